// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// A transposed operand is read transposed: nothing is moved in memory.
// CHECK-LABEL: func.func @transpose(
// CHECK-NOT: linalg.transpose
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<6x8xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK-NOT: linalg.transpose
// CHECK: return
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result f32
func.func @transpose(%qa: tensor<4x8xi8>, %qb: tensor<6x8xi8>) -> tensor<4x6xf32> {
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x8xi8>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x8xf32>
  %be = tensor.empty() : tensor<6x8xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb : tensor<6x8xi8>) outs(%be : tensor<6x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<6x8xf32>
  %te = tensor.empty() : tensor<8x6xf32>
  %t = linalg.transpose ins(%b : tensor<6x8xf32>) outs(%te : tensor<8x6xf32>) permutation = [1, 0]
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %t : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}

// A reshape is done on the integers.
// CHECK-LABEL: func.func @collapse(
// CHECK: [[A:%[a-z0-9]+]] = tensor.collapse_shape %arg0 {{\[\[}}0, 1], [2]] : tensor<2x2x8xi8> into tensor<4x8xi8>
// CHECK: linalg.generic {{.*}} ins([[A]], %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result f32
func.func @collapse(%qa: tensor<2x2x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
  %ae = tensor.empty() : tensor<2x2x8xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%qa : tensor<2x2x8xi8>) outs(%ae : tensor<2x2x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<2x2x8xf32>
  %c = tensor.collapse_shape %a [[0, 1], [2]] : tensor<2x2x8xf32> into tensor<4x8xf32>
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
  %m = linalg.matmul ins(%c, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}

// Padding with 0.0 is padding with the zero point.
// CHECK-LABEL: func.func @pad(
// CHECK: [[Z:%[a-z0-9_]+]] = arith.constant 3 : i8
// CHECK: [[P:%[a-z0-9]+]] = tensor.pad %arg0 low[1, 0] high[0, 0]
// CHECK: tensor.yield [[Z]] : i8
// CHECK: tensor<3x8xi8> to tensor<4x8xi8>
// CHECK: linalg.generic {{.*}} ins([[P]], %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}lhs s8 per-tensor asymmetric
func.func @pad(%qa: tensor<3x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
  %ae = tensor.empty() : tensor<3x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<3x8xi8>) outs(%ae : tensor<3x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extsi %vq : i8 to i64
    %vz = arith.constant 3 : i64
    %vd = arith.subi %vw, %vz : i64
    %vf = arith.sitofp %vd : i64 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<3x8xf32>
  %z = arith.constant 0.0 : f32
  %p = tensor.pad %a low[1, 0] high[0, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<3x8xf32> to tensor<4x8xf32>
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
  %m = linalg.matmul ins(%p, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}

// Between contraction and quantize: the stored integers are transposed.
// CHECK-LABEL: func.func @behind_the_contraction(
// CHECK: [[ACC:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: [[OUT:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<4x6xi32>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: math.roundeven
// CHECK: [[T:%[a-z0-9]+]] = linalg.transpose ins([[OUT]] : tensor<4x6xi8>) outs(%{{.*}} : tensor<6x4xi8>) permutation = [1, 0]
// CHECK: return [[T]]
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, result s8 per-tensor symmetric
// REMARK: remark: qfuse.requantize: linalg.generic: exactness within-1-lsb
func.func @behind_the_contraction(%qa: tensor<4x8xi8>, %qb: tensor<8x6xi8>) -> tensor<6x4xi8> {
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
  %te = tensor.empty() : tensor<6x4xf32>
  %t = linalg.transpose ins(%m : tensor<4x6xf32>) outs(%te : tensor<6x4xf32>) permutation = [1, 0]
  %re = tensor.empty() : tensor<6x4xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : tensor<6x4xf32>) outs(%re : tensor<6x4xi8>) {
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
  } -> tensor<6x4xi8>
  return %r : tensor<6x4xi8>
}

// 1.3 is no multiple of the scale 0.5.
// CHECK-LABEL: func.func @no_move_when_the_pad_value_is_not_on_the_grid(
// CHECK: tensor<3x8xf32> to tensor<4x8xf32>
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x6xf32>)
// REMARK: missed: tensor.pad: the pad value is not on the grid
// REMARK: missed: linalg.matmul: operand 0 (lhs) is not dequantized
func.func @no_move_when_the_pad_value_is_not_on_the_grid(%qa: tensor<3x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
  %ae = tensor.empty() : tensor<3x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<3x8xi8>) outs(%ae : tensor<3x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extsi %vq : i8 to i64
    %vz = arith.constant 3 : i64
    %vd = arith.subi %vw, %vz : i64
    %vf = arith.sitofp %vd : i64 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<3x8xf32>
  %z = arith.constant 1.3 : f32
  %p = tensor.pad %a low[1, 0] high[0, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<3x8xf32> to tensor<4x8xf32>
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
  %m = linalg.matmul ins(%p, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}

// Integers of two scales are not concatenated.
// CHECK-LABEL: func.func @no_move_when_concatenated_tensors_differ(
// CHECK: tensor.concat dim(0) %{{.*}}, %{{.*}} : (tensor<2x8xf32>, tensor<2x8xf32>)
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x6xf32>)
// REMARK: missed: tensor.concat: the concatenated tensors have different quantization parameters
// REMARK: missed: linalg.matmul: operand 0 (lhs) is not dequantized
func.func @no_move_when_concatenated_tensors_differ(%qa: tensor<2x8xi8>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
  %ae = tensor.empty() : tensor<2x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<2x8xi8>) outs(%ae : tensor<2x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<2x8xf32>
  %ce = tensor.empty() : tensor<2x8xf32>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<2x8xi8>) outs(%ce : tensor<2x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<2x8xf32>
  %j = tensor.concat dim(0) %a, %c : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
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
  %m = linalg.matmul ins(%j, %b : tensor<4x8xf32>, tensor<8x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}
