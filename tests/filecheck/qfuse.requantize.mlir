// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// From i32 straight to i8.
// CHECK-LABEL: func.func @to_the_next_storage(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: arith.constant 5.000000e-01 : f32
// CHECK: arith.mulf
// CHECK: math.roundeven
// CHECK: arith.constant -1.280000e+02 : f32
// CHECK: arith.constant 1.270000e+02 : f32
// CHECK: arith.fptosi %{{.*}} : f32 to i8
// CHECK: return [[OUT]]
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result s8 per-tensor symmetric
// REMARK: remark: qfuse.requantize: linalg.generic: exactness within-1-lsb, result s8 per-tensor symmetric
func.func @to_the_next_storage(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xi8> {
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x8xi8>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x8xf32>
  %be = tensor.empty() : tensor<8x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb : tensor<8x6xi8>) outs(%be : tensor<8x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<8x6xf32>
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
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

// A zero point is added after rounding; unsigned storage.
// CHECK-LABEL: func.func @unsigned_with_zero_point(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: math.roundeven
// CHECK: arith.constant 1.280000e+02 : f32
// CHECK: arith.addf
// CHECK: arith.constant 0.000000e+00 : f32
// CHECK: arith.constant 2.550000e+02 : f32
// CHECK: arith.fptoui %{{.*}} : f32 to i8
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result u8 per-tensor asymmetric
// REMARK: remark: qfuse.requantize: linalg.generic: exactness within-1-lsb, result u8 per-tensor asymmetric
func.func @unsigned_with_zero_point(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xi8> {
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x8xi8>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x8xf32>
  %be = tensor.empty() : tensor<8x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb : tensor<8x6xi8>) outs(%be : tensor<8x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<8x6xf32>
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant 0.0 : f32
    %vh = arith.constant 255.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vz = arith.constant 128.0 : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptoui %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// Two quantizes of one result share its accumulators.
// CHECK-LABEL: func.func @twice(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK-NOT: arith.muli
// CHECK: [[FIRST:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: [[SECOND:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xi16>)
// CHECK: return [[FIRST]], [[SECOND]]
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result s16 per-tensor symmetric and s8 per-tensor symmetric
// REMARK: remark: qfuse.requantize: linalg.generic: exactness within-1-lsb, result s8 per-tensor symmetric
// REMARK: remark: qfuse.requantize: linalg.generic: exactness within-{{[0-9]+}}-lsb, result s16 per-tensor symmetric
func.func @twice(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>) -> (tensor<4x6xi8>, tensor<4x6xi16>) {
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x8xi8>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x8xf32>
  %be = tensor.empty() : tensor<8x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb : tensor<8x6xi8>) outs(%be : tensor<8x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<8x6xf32>
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
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
  %te = tensor.empty() : tensor<4x6xi16>
  %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x6xf32>) outs(%te : tensor<4x6xi16>) {
  ^bb0(%vx: f32, %vo: i16):
    %vs = arith.constant 0.001 : f32
    %vl = arith.constant -32768.0 : f32
    %vh = arith.constant 32767.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i16
    linalg.yield %vc : i16
  } -> tensor<4x6xi16>
  return %r, %t : tensor<4x6xi8>, tensor<4x6xi16>
}

// Rounds otherwise at ties: the contraction is integer, its result a float.
// CHECK-LABEL: func.func @no_fuse_when_the_zero_point_is_added_before_rounding(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: linalg.generic {{.*}} ins([[OUT]] : tensor<4x6xf32>)
// CHECK: arith.divf
// CHECK: arith.addf
// CHECK: math.roundeven
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result f32
func.func @no_fuse_when_the_zero_point_is_added_before_rounding(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xi8> {
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x8xi8>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x8xf32>
  %be = tensor.empty() : tensor<8x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb : tensor<8x6xi8>) outs(%be : tensor<8x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<8x6xf32>
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
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

// Clamped as unsigned, cast as signed.
// CHECK-LABEL: func.func @no_fuse_when_the_clamp_contradicts_the_cast(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: linalg.generic {{.*}} ins([[OUT]] : tensor<4x6xf32>)
// CHECK: arith.divf
// CHECK: math.roundeven
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result f32
// REMARK: missed: linalg.generic: the zero point is added before rounding, which a requantize does not do
// REMARK: missed: linalg.generic: the clamp [0, 255] does not fit the signed 8-bit storage that the cast produces
func.func @no_fuse_when_the_clamp_contradicts_the_cast(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xi8> {
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x8xi8>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x8xf32>
  %be = tensor.empty() : tensor<8x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb : tensor<8x6xi8>) outs(%be : tensor<8x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<8x6xf32>
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant 0.0 : f32
    %vh = arith.constant 255.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}
