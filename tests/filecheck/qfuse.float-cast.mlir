// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// An extension is exact: the integers are the same.
// CHECK-LABEL: func.func @extension(
// CHECK-NOT: f16
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: arith.constant 1.250000e-01 : f32
// CHECK: return [[OUT]]
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result f32
func.func @extension(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
  %ae = tensor.empty() : tensor<4x8xf16>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x8xi8>) outs(%ae : tensor<4x8xf16>) {
  ^bb0(%vq: i8, %vo: f16):
    %vf = arith.sitofp %vq : i8 to f16
    %vs = arith.constant 0.5 : f16
    %vr = arith.mulf %vf, %vs : f16
    linalg.yield %vr : f16
  } -> tensor<4x8xf16>
  %te = tensor.empty() : tensor<4x8xf32>
  %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<4x8xf16>) outs(%te : tensor<4x8xf32>) {
  ^bb0(%vx: f16, %vo: f32):
    %vy = arith.extf %vx : f16 to f32
    linalg.yield %vy : f32
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
  %m = linalg.matmul ins(%t, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}

// There is no integer form to keep.
// CHECK-LABEL: func.func @no_cast_of_a_value_that_is_not_dequantized(
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x6xf32>)
// REMARK: missed: linalg.matmul: operand 0 (lhs) is not dequantized
func.func @no_cast_of_a_value_that_is_not_dequantized(%a: tensor<4x8xf16>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
  %te = tensor.empty() : tensor<4x8xf32>
  %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<4x8xf16>) outs(%te : tensor<4x8xf32>) {
  ^bb0(%vx: f16, %vo: f32):
    %vy = arith.extf %vx : f16 to f32
    linalg.yield %vy : f32
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
  %m = linalg.matmul ins(%t, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}
