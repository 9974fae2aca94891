// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// Symmetric, per tensor: i32 accumulators, one scale.
// CHECK-LABEL: func.func @symmetric(
// CHECK: [[ACC:%[0-9]+]] = linalg.conv_2d_nchw_fchw {{.*}} ins(%arg0, %arg1 : tensor<1x2x6x6xi8>, tensor<3x2x3x3xi8>) outs(%{{.*}} : tensor<1x3x4x4xi32>)
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<1x3x4x4xi32>) outs(%{{.*}} : tensor<1x3x4x4xf32>)
// CHECK: arith.constant 1.250000e-01 : f32
// CHECK: return [[OUT]]
// REMARK: remark: qfuse.convolution: linalg.conv_2d_nchw_fchw: {{.*}}lhs s8 per-tensor symmetric, rhs s8 per-tensor symmetric, accumulator i32, accumulator_bound 294912, result f32
func.func @symmetric(%qa: tensor<1x2x6x6xi8>, %qb: tensor<3x2x3x3xi8>) -> tensor<1x3x4x4xf32> {
  %ae = tensor.empty() : tensor<1x2x6x6xf32>
  %a = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qa : tensor<1x2x6x6xi8>) outs(%ae : tensor<1x2x6x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<1x2x6x6xf32>
  %be = tensor.empty() : tensor<3x2x3x3xf32>
  %b = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qb : tensor<3x2x3x3xi8>) outs(%be : tensor<3x2x3x3xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<3x2x3x3xf32>
  %me = tensor.empty() : tensor<1x3x4x4xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32>
  %m = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%a, %b : tensor<1x2x6x6xf32>, tensor<3x2x3x3xf32>) outs(%mf : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32>
  return %m : tensor<1x3x4x4xf32>
}

// Padded with the zero point in i8; corrected by the sums of the filters.
// CHECK-LABEL: func.func @padded_asymmetric(
// CHECK: [[Z:%[a-z0-9_]+]] = arith.constant 3 : i8
// CHECK: [[P:%[a-z0-9]+]] = tensor.pad %arg0 low[0, 0, 1, 1] high[0, 0, 1, 1]
// CHECK: tensor.yield [[Z]] : i8
// CHECK: [[ACC:%[0-9]+]] = linalg.conv_2d_nchw_fchw {{.*}} ins([[P]], %arg1 : tensor<1x2x6x6xi8>, tensor<3x2x3x3xi8>) outs(%{{.*}} : tensor<1x3x4x4xi32>)
// CHECK: [[SUMS:%[0-9]+]] = linalg.generic {{.*}} ins(%arg1 : tensor<3x2x3x3xi8>) outs(%{{.*}} : tensor<3xi32>)
// CHECK: linalg.generic {{.*}} ins([[ACC]], [[SUMS]] : tensor<1x3x4x4xi32>, tensor<3xi32>)
// REMARK: remark: qfuse.convolution: linalg.conv_2d_nchw_fchw: {{.*}}lhs s8 per-tensor asymmetric, rhs s8 per-tensor symmetric, accumulator i32
func.func @padded_asymmetric(%qa: tensor<1x2x4x4xi8>, %qb: tensor<3x2x3x3xi8>) -> tensor<1x3x4x4xf32> {
  %ue = tensor.empty() : tensor<1x2x4x4xf32>
  %u = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qa : tensor<1x2x4x4xi8>) outs(%ue : tensor<1x2x4x4xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extsi %vq : i8 to i64
    %vz = arith.constant 3 : i64
    %vd = arith.subi %vw, %vz : i64
    %vf = arith.sitofp %vd : i64 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<1x2x4x4xf32>
  %z = arith.constant 0.0 : f32
  %a = tensor.pad %u low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %z : f32
  } : tensor<1x2x4x4xf32> to tensor<1x2x6x6xf32>
  %be = tensor.empty() : tensor<3x2x3x3xf32>
  %b = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qb : tensor<3x2x3x3xi8>) outs(%be : tensor<3x2x3x3xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<3x2x3x3xf32>
  %me = tensor.empty() : tensor<1x3x4x4xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32>
  %m = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%a, %b : tensor<1x2x6x6xf32>, tensor<3x2x3x3xf32>) outs(%mf : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32>
  return %m : tensor<1x3x4x4xf32>
}

// Both operands must be dequantized.
// CHECK-LABEL: func.func @no_fuse_when_the_filter_is_float(
// CHECK-NOT: xi32>
// CHECK: linalg.conv_2d_nchw_fchw {{.*}} ins(%{{.*}}, %arg1 : tensor<1x2x6x6xf32>, tensor<3x2x3x3xf32>)
// CHECK-NOT: xi32>
// REMARK: missed: linalg.conv_2d_nchw_fchw: operand 1 (rhs) is not dequantized
func.func @no_fuse_when_the_filter_is_float(%qa: tensor<1x2x6x6xi8>, %b: tensor<3x2x3x3xf32>) -> tensor<1x3x4x4xf32> {
  %ae = tensor.empty() : tensor<1x2x6x6xf32>
  %a = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qa : tensor<1x2x6x6xi8>) outs(%ae : tensor<1x2x6x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<1x2x6x6xf32>
  %me = tensor.empty() : tensor<1x3x4x4xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32>
  %m = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%a, %b : tensor<1x2x6x6xf32>, tensor<3x2x3x3xf32>) outs(%mf : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32>
  return %m : tensor<1x3x4x4xf32>
}
