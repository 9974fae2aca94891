// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// The zero point is corrected by its multiple: 8 times 3.
// CHECK-LABEL: func.func @sum_of_rows(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x8xi8>) outs(%{{.*}} : tensor<4xi32>)
// CHECK: arith.extsi
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4xi32>) outs(%{{.*}} : tensor<4xf32>)
// CHECK: arith.constant -24 : i32
// CHECK: arith.constant 5.000000e-01 : f32
// CHECK: return [[OUT]]
// REMARK: remark: qfuse.sum: linalg.generic: {{.*}}input s8 per-tensor asymmetric, accumulator i32, accumulator_bound 1048, result f32
func.func @sum_of_rows(%qa: tensor<4x8xi8>) -> tensor<4xf32> {
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x8xi8>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extsi %vq : i8 to i64
    %vz = arith.constant 3 : i64
    %vd = arith.subi %vw, %vz : i64
    %vf = arith.sitofp %vd : i64 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x8xf32>
  %me = tensor.empty() : tensor<4xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#id, #d0], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<4x8xf32>) outs(%mf : tensor<4xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vy = arith.addf %vx, %vo : f32
    linalg.yield %vy : f32
  } -> tensor<4xf32>
  return %m : tensor<4xf32>
}

// The sum of each window; the division behind it belongs to the epilogue.
// CHECK-LABEL: func.func @average_pooling(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %{{.*}} : tensor<1x2x4x4xi8>, tensor<2x2xi8>) outs(%{{.*}} : tensor<1x2x2x2xi32>)
// CHECK: linalg.generic {{.*}} ins([[ACC]] : tensor<1x2x2x2xi32>) outs(%{{.*}} : tensor<1x2x2x2xf32>)
// REMARK: remark: qfuse.sum: linalg.pooling_nchw_sum: {{.*}}input s8 per-tensor symmetric, accumulator i32, accumulator_bound 512, result f32
func.func @average_pooling(%qa: tensor<1x2x4x4xi8>) -> tensor<1x2x2x2xf32> {
  %ae = tensor.empty() : tensor<1x2x4x4xf32>
  %a = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qa : tensor<1x2x4x4xi8>) outs(%ae : tensor<1x2x4x4xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<1x2x4x4xf32>
  %me = tensor.empty() : tensor<1x2x2x2xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %w = tensor.empty() : tensor<2x2xf32>
  %m = linalg.pooling_nchw_sum {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%a, %w : tensor<1x2x4x4xf32>, tensor<2x2xf32>) outs(%mf : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  return %m : tensor<1x2x2x2xf32>
}

// A scale that varies along the sum cannot be taken out of it.
// CHECK-LABEL: func.func @no_fuse_when_the_scale_varies_along_the_sum(
// CHECK-NOT: xi32>
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<4x8xf32>) outs(%{{.*}} : tensor<4xf32>)
// CHECK-NOT: xi32>
// REMARK: missed: linalg.generic: the scale of {{.*}} varies along the reduction
func.func @no_fuse_when_the_scale_varies_along_the_sum(%qa: tensor<4x8xi8>, %s: tensor<8xf32>) -> tensor<4xf32> {
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #d1, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa, %s : tensor<4x8xi8>, tensor<8xf32>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i8, %vs: f32, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x8xf32>
  %me = tensor.empty() : tensor<4xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#id, #d0], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<4x8xf32>) outs(%mf : tensor<4xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vy = arith.addf %vx, %vo : f32
    linalg.yield %vy : f32
  } -> tensor<4xf32>
  return %m : tensor<4xf32>
}
