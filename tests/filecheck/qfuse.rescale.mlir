// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// From integers to integers in one operation.
// CHECK-LABEL: func.func @other_parameters(
// CHECK: [[R:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x6xi8>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: arith.sitofp
// CHECK: arith.constant 5.000000e-01 : f32
// CHECK: arith.mulf
// CHECK: arith.constant 2.500000e-01 : f32
// CHECK: arith.divf
// CHECK: math.roundeven
// CHECK: arith.addf
// CHECK: arith.fptosi
// CHECK: return [[R]]
// REMARK: remark: qfuse.rescale: linalg.generic: exactness bit-exact, input s8 per-tensor symmetric, result s8 per-tensor asymmetric
func.func @other_parameters(%q: tensor<4x6xi8>) -> tensor<4x6xi8> {
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
// CHECK: [[R:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0 : tensor<6x4xi8>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: math.roundeven
// CHECK-NOT: linalg.generic
// CHECK: return [[R]]
// REMARK: remark: qfuse.rescale: linalg.generic: exactness bit-exact, input s8 per-tensor symmetric, result s8 per-tensor symmetric
func.func @through_a_layout(%q: tensor<6x4xi8>) -> tensor<4x6xi8> {
  %xe = tensor.empty() : tensor<6x4xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<6x4xi8>) outs(%xe : tensor<6x4xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
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
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// Rounds otherwise at ties.
// CHECK-LABEL: func.func @no_rescale_when_the_zero_point_is_added_before_rounding(
// CHECK: outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: arith.divf
// CHECK: arith.addf
// CHECK: math.roundeven
// REMARK: missed: linalg.generic: the zero point is added before rounding, which a rescale does not do
func.func @no_rescale_when_the_zero_point_is_added_before_rounding(%q: tensor<4x6xi8>) -> tensor<4x6xi8> {
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
    %vz = arith.constant 3.0 : f32
    %vr = arith.addf %vd, %vz : f32
    %vp = math.roundeven %vr : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// A product by the reciprocal rounds otherwise than a division.
// CHECK-LABEL: func.func @no_rescale_when_the_quantize_multiplies(
// CHECK: outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: arith.mulf
// CHECK: arith.mulf
// CHECK: math.roundeven
// REMARK: missed: linalg.generic: the quantize multiplies by the reciprocal scale, a rescale divides
func.func @no_rescale_when_the_quantize_multiplies(%q: tensor<4x6xi8>) -> tensor<4x6xi8> {
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
    %vs = arith.constant 3.0 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.mulf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}
