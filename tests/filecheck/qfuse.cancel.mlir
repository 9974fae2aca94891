// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// Gives back the integers.
// CHECK-LABEL: func.func @equal_parameters(
// CHECK-NEXT: return %arg0 : tensor<4x6xi8>
// REMARK: remark: qfuse.cancel: linalg.generic: exactness bit-exact, result s8 per-tensor asymmetric
func.func @equal_parameters(%q: tensor<4x6xi8>) -> tensor<4x6xi8> {
  %xe = tensor.empty() : tensor<4x6xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x6xi8>) outs(%xe : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extsi %vq : i8 to i64
    %vz = arith.constant 3 : i64
    %vd = arith.subi %vw, %vz : i64
    %vf = arith.sitofp %vd : i64 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vz = arith.constant 3.0 : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// The transpose is done on integers.
// CHECK-LABEL: func.func @through_a_layout(
// CHECK: [[T:%[a-z0-9]+]] = linalg.{{.*}} ins(%arg0 : tensor<6x4xi8>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK-NOT: math.roundeven
// CHECK: return [[T]]
// REMARK: remark: qfuse.cancel: linalg.generic: exactness bit-exact, result s8 per-tensor asymmetric
func.func @through_a_layout(%q: tensor<6x4xi8>) -> tensor<4x6xi8> {
  %xe = tensor.empty() : tensor<6x4xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<6x4xi8>) outs(%xe : tensor<6x4xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extsi %vq : i8 to i64
    %vz = arith.constant 3 : i64
    %vd = arith.subi %vw, %vz : i64
    %vf = arith.sitofp %vd : i64 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<6x4xf32>
  %te = tensor.empty() : tensor<4x6xf32>
  %t = linalg.transpose ins(%x : tensor<6x4xf32>) outs(%te : tensor<4x6xf32>) permutation = [1, 0]
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vz = arith.constant 3.0 : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// The dequantize has another user.
// CHECK-LABEL: func.func @the_float_value_stays_for_others(
// CHECK: [[X:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x6xi8>) outs(%{{.*}} : tensor<4x6xf32>)
// CHECK-NOT: math.roundeven
// CHECK: return %arg0, [[X]]
// REMARK: remark: qfuse.cancel: linalg.generic: exactness bit-exact, result s8 per-tensor symmetric
func.func @the_float_value_stays_for_others(%q: tensor<4x6xi8>) -> (tensor<4x6xi8>, tensor<4x6xf32>) {
  %xe = tensor.empty() : tensor<4x6xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x6xi8>) outs(%xe : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r, %x : tensor<4x6xi8>, tensor<4x6xf32>
}

// A rescale, no cancellation.
// CHECK-LABEL: func.func @no_cancel_when_the_scales_differ(
// CHECK: arith.divf
// CHECK: math.roundeven
// REMARK-NOT: remark: qfuse.cancel
func.func @no_cancel_when_the_scales_differ(%q: tensor<4x6xi8>) -> tensor<4x6xi8> {
  %xe = tensor.empty() : tensor<4x6xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x6xi8>) outs(%xe : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// -128 would become -127.
// CHECK-LABEL: func.func @no_cancel_when_the_clamp_is_narrower(
// CHECK: math.roundeven
// CHECK: arith.constant -1.270000e+02 : f32
func.func @no_cancel_when_the_clamp_is_narrower(%q: tensor<4x6xi8>) -> tensor<4x6xi8> {
  %xe = tensor.empty() : tensor<4x6xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x6xi8>) outs(%xe : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -127.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// The rounding error is part of the model.
// CHECK-LABEL: func.func @no_cancel_of_quantize_then_dequantize(
// CHECK: math.roundeven
// CHECK: arith.sitofp
// CHECK: return
func.func @no_cancel_of_quantize_then_dequantize(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %qe = tensor.empty() : tensor<4x6xi8>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%qe : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  %ye = tensor.empty() : tensor<4x6xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x6xi8>) outs(%ye : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  return %y : tensor<4x6xf32>
}
