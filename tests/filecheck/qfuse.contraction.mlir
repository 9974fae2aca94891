// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// Symmetric, per tensor: i32 accumulators, one scale.
// CHECK-LABEL: func.func @per_tensor(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: arith.sitofp %{{.*}} : i32 to f32
// CHECK: arith.constant 1.250000e-01 : f32
// CHECK: arith.mulf
// CHECK: return [[OUT]] : tensor<4x6xf32>
// CHECK-NOT: linalg.matmul
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}lhs s8 per-tensor symmetric, rhs s8 per-tensor symmetric, accumulator i32, accumulator_bound 131072, result f32
func.func @per_tensor(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
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
  return %m : tensor<4x6xf32>
}

// A zero point on the left: corrected by the column sums of the right; a scale a column, known at run time.
// CHECK-LABEL: func.func @asymmetric_by_axis(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[SUMS:%[0-9]+]] = linalg.generic {{.*}}"reduction"]} ins(%arg1 : tensor<8x6xi8>) outs(%{{.*}} : tensor<6xi32>)
// CHECK: linalg.generic {{.*}} ins([[ACC]], [[SUMS]], %arg2 : tensor<4x6xi32>, tensor<6xi32>, tensor<6xf32>)
// CHECK: arith.constant 3 : i32
// CHECK: arith.subi
// CHECK: arith.sitofp
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}lhs s8 per-tensor asymmetric, rhs s8 per-axis(1) symmetric run-time, accumulator i32, accumulator_bound 134144, result f32
func.func @asymmetric_by_axis(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>, %sb: tensor<6xf32>) -> tensor<4x6xf32> {
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
  %be = tensor.empty() : tensor<8x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #d1, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb, %sb : tensor<8x6xi8>, tensor<6xf32>) outs(%be : tensor<8x6xf32>) {
  ^bb0(%vq: i8, %vs: f32, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<8x6xf32>
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}

// Unsigned storage is zero-extended; a dequantize may be both operands.
// CHECK-LABEL: func.func @unsigned_shared(
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg0 : tensor<8x8xi8>, tensor<8x8xi8>) outs(%{{.*}} : tensor<8x8xi32>)
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK-NOT: arith.extsi
// CHECK: return
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}lhs u8 per-tensor asymmetric, rhs u8 per-tensor asymmetric, accumulator i32
func.func @unsigned_shared(%qa: tensor<8x8xi8>) -> tensor<8x8xf32> {
  %ae = tensor.empty() : tensor<8x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<8x8xi8>) outs(%ae : tensor<8x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extui %vq : i8 to i64
    %vz = arith.constant 128 : i64
    %vd = arith.subi %vw, %vz : i64
    %vf = arith.sitofp %vd : i64 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<8x8xf32>
  %me = tensor.empty() : tensor<8x8xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<8x8xf32>) -> tensor<8x8xf32>
  %m = linalg.matmul ins(%a, %a : tensor<8x8xf32>, tensor<8x8xf32>)
      outs(%mf : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %m : tensor<8x8xf32>
}

// Weight-only quantization stays in float.
// CHECK-LABEL: func.func @no_fuse_when_one_operand_is_float(
// CHECK-NOT: xi32>
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x6xf32>)
// CHECK-NOT: xi32>
// REMARK: missed: linalg.matmul: operand 0 (lhs) is not dequantized
func.func @no_fuse_when_one_operand_is_float(%a: tensor<4x8xf32>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
  %be = tensor.empty() : tensor<8x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb : tensor<8x6xi8>) outs(%be : tensor<8x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<8x6xf32>
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}

// A scale that varies along the reduction cannot be taken out of the integer sum.
// CHECK-LABEL: func.func @no_fuse_when_the_scale_varies_along_k(
// CHECK-NOT: xi32>
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x6xf32>)
// CHECK-NOT: xi32>
// REMARK: missed: linalg.matmul: the scale of rhs varies along the reduction without blocks
func.func @no_fuse_when_the_scale_varies_along_k(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>, %sb: tensor<8xf32>) -> tensor<4x6xf32> {
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
  %b = linalg.generic {indexing_maps = [#id, #d0, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb, %sb : tensor<8x6xi8>, tensor<8xf32>) outs(%be : tensor<8x6xf32>) {
  ^bb0(%vq: i8, %vs: f32, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<8x6xf32>
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}

// Eight products of two 32-bit integers fit no accumulator.
// CHECK-LABEL: func.func @no_fuse_when_the_accumulator_may_overflow(
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x6xf32>)
// REMARK: missed: linalg.matmul: the accumulator can reach 36893488147419103232, which does not fit i32 or i64
func.func @no_fuse_when_the_accumulator_may_overflow(%qa: tensor<4x8xi32>, %qb: tensor<8x6xi32>) -> tensor<4x6xf32> {
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x8xi32>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i32, %vo: f32):
    %vf = arith.sitofp %vq : i32 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x8xf32>
  %be = tensor.empty() : tensor<8x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb : tensor<8x6xi32>) outs(%be : tensor<8x6xf32>) {
  ^bb0(%vq: i32, %vo: f32):
    %vf = arith.sitofp %vq : i32 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<8x6xf32>
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}
