// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// Bias and relu join the requantize: one operation from i32 to i8.
// CHECK-LABEL: func.func @bias_and_relu(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]], %arg2 : tensor<4x6xi32>, tensor<6xf32>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: arith.addf
// CHECK: math.roundeven
// CHECK: arith.constant 0.000000e+00 : f32
// CHECK: arith.constant 1.270000e+02 : f32
// CHECK: arith.fptosi
// CHECK-NOT: linalg.generic
// CHECK: return [[OUT]]
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result s8 per-tensor symmetric
// REMARK: remark: qfuse.requantize: linalg.generic: exactness within-1-lsb, result s8 per-tensor symmetric
func.func @bias_and_relu(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>, %bias: tensor<6xf32>) -> tensor<4x6xi8> {
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
  %ne = tensor.empty() : tensor<4x6xf32>
  %n = linalg.generic {indexing_maps = [#id, #d1, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %bias : tensor<4x6xf32>, tensor<6xf32>) outs(%ne : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vv: f32, %vo: f32):
    %vy = arith.addf %vx, %vv : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  %ue = tensor.empty() : tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%n : tensor<4x6xf32>) outs(%ue : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vz = arith.constant 0.0 : f32
    %vg = arith.cmpf ugt, %vx, %vz : f32
    %vy = arith.select %vg, %vx, %vz : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
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

// Also where the result stays a float.
// CHECK-LABEL: func.func @relu6_without_quantize(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: arith.constant 0.000000e+00 : f32
// CHECK: arith.constant 6.000000e+00 : f32
// CHECK-NOT: linalg.generic
// CHECK: return [[OUT]]
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result f32
func.func @relu6_without_quantize(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
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
  %ue = tensor.empty() : tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x6xf32>) outs(%ue : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vz = arith.constant 0.0 : f32
    %vs = arith.constant 6.0 : f32
    %vg = arith.maximumf %vx, %vz : f32
    %vy = arith.minimumf %vg, %vs : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  return %u : tensor<4x6xf32>
}

// A float user in between gets its value, from the same accumulators.
// CHECK-LABEL: func.func @the_float_value_stays_for_others(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK-NOT: arith.muli
// CHECK: [[FLOAT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]], %arg2 : tensor<4x6xi32>, tensor<6xf32>) outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: [[STORED:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]], %arg2 : tensor<4x6xi32>, tensor<6xf32>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: return [[STORED]], [[FLOAT]]
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result f32 and s8 per-tensor symmetric
// REMARK: remark: qfuse.requantize: linalg.generic: exactness within-1-lsb
func.func @the_float_value_stays_for_others(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>, %bias: tensor<6xf32>) -> (tensor<4x6xi8>, tensor<4x6xf32>) {
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
  %ne = tensor.empty() : tensor<4x6xf32>
  %n = linalg.generic {indexing_maps = [#id, #d1, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %bias : tensor<4x6xf32>, tensor<6xf32>) outs(%ne : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vv: f32, %vo: f32):
    %vy = arith.addf %vx, %vv : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%n : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
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
  return %r, %n : tensor<4x6xi8>, tensor<4x6xf32>
}

// exp is none: the contraction ends in a float value, which exp reads.
// CHECK-LABEL: func.func @no_epilogue_of_other_functions(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: linalg.generic {{.*}} ins([[OUT]] : tensor<4x6xf32>)
// CHECK: math.exp
// CHECK: math.roundeven
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result f32
func.func @no_epilogue_of_other_functions(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xi8> {
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
  %ue = tensor.empty() : tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x6xf32>) outs(%ue : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vy = math.exp %vx : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
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
