// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// A strict comparison takes the first place; from the least integer, at place 0.
// CHECK-LABEL: func.func @place_of_the_maximum(
// CHECK-NOT: f32
// CHECK: [[AT:%[0-9]+]] = linalg.fill ins(%{{.*}} : i64)
// CHECK: arith.constant -128 : i8
// CHECK: [[BEST:%[0-9]+]] = linalg.fill ins(%{{.*}} : i8)
// CHECK: [[BOTH:%[0-9]+]]:2 = linalg.generic {{.*}} ins(%arg0 : tensor<4x8xi8>) outs([[BEST]], [[AT]] : tensor<4xi8>, tensor<4xi64>)
// CHECK: [[GREATER:%[0-9]+]] = arith.cmpi sgt, %in, %out : i8
// CHECK: linalg.index 1
// CHECK: arith.maxsi %in, %out : i8
// CHECK: arith.select [[GREATER]]
// CHECK: return [[BOTH]]#1
// REMARK: remark: qfuse.argmax: linalg.generic: {{.*}}input s8 per-tensor asymmetric
func.func @place_of_the_maximum(%qa: tensor<4x8xi8>) -> tensor<4xi64> {
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x8xi8>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extsi %vq : i8 to i32
    %vz = arith.constant 3 : i32
    %vd = arith.subi %vw, %vz : i32
    %vf = arith.sitofp %vd : i32 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x8xf32>
  %none = arith.constant 0 : i64
  %nil = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<4xi64>
  %at = linalg.fill ins(%none : i64) outs(%e0 : tensor<4xi64>) -> tensor<4xi64>
  %e1 = tensor.empty() : tensor<4xf32>
  %best = linalg.fill ins(%nil : f32) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
  %m:2 = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<4x8xf32>) outs(%best, %at : tensor<4xf32>, tensor<4xi64>) {
  ^bb0(%x: f32, %o: f32, %p: i64):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i64
    %n = arith.maximumf %x, %o : f32
    %g = arith.cmpf ogt, %x, %o : f32
    %k = arith.select %g, %j, %p : i64
    linalg.yield %n, %k : f32, i64
  } -> (tensor<4xf32>, tensor<4xi64>)
  return %m#1 : tensor<4xi64>
}
