// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

// Each branch is rescaled, then the integers are concatenated.
// CHECK-LABEL: func.func @two(
// CHECK: [[A:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x6xi8>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: [[B:%[0-9]+]] = linalg.generic {{.*}} ins(%arg1 : tensor<4x6xi8>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: [[C:%[a-z0-9_]+]] = tensor.concat dim(0) [[A]], [[B]] : (tensor<4x6xi8>, tensor<4x6xi8>) -> tensor<8x6xi8>
// CHECK: return [[C]]
// REMARK: remark: qfuse.concat: linalg.generic: exactness bit-exact, input s8 per-tensor asymmetric, result s8 per-tensor asymmetric
func.func @two(%arg0: tensor<4x6xi8>, %arg1: tensor<4x6xi8>) -> (tensor<8x6xi8>) {
  %v0 = tensor.empty() : tensor<4x6xf32>
  %v1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
  ins(%arg0 : tensor<4x6xi8>)
  outs(%v0 : tensor<4x6xf32>) {
  ^bb0(%a: i8, %o: f32):
    %s = arith.constant 5.000000000e-02 : f32
    %z = arith.constant 3 : i64
    %w = arith.extsi %a : i8 to i64
    %t = arith.subi %w, %z : i64
    %f = arith.sitofp %t : i64 to f32
    %y = arith.mulf %f, %s : f32
    linalg.yield %y : f32
  } -> tensor<4x6xf32>
  %v2 = tensor.empty() : tensor<4x6xf32>
  %v3 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
  ins(%arg1 : tensor<4x6xi8>)
  outs(%v2 : tensor<4x6xf32>) {
  ^bb0(%a: i8, %o: f32):
    %s = arith.constant 3.100000000e-02 : f32
    %z = arith.constant -7 : i64
    %w = arith.extsi %a : i8 to i64
    %t = arith.subi %w, %z : i64
    %f = arith.sitofp %t : i64 to f32
    %y = arith.mulf %f, %s : f32
    linalg.yield %y : f32
  } -> tensor<4x6xf32>
  %v4 = tensor.concat dim(0) %v1, %v3 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %v5 = tensor.empty() : tensor<8x6xi8>
  %v6 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
  ins(%v4 : tensor<8x6xf32>)
  outs(%v5 : tensor<8x6xi8>) {
  ^bb0(%a: f32, %o: i8):
    %s = arith.constant 5.130000000e-02 : f32
    %z = arith.constant -5.0 : f32
    %l = arith.constant -128.0 : f32
    %h = arith.constant 127.0 : f32
    %d = arith.divf %a, %s : f32
    %r = math.roundeven %d : f32
    %p = arith.addf %r, %z : f32
    %m = arith.maximumf %p, %l : f32
    %n = arith.minimumf %m, %h : f32
    %y = arith.fptosi %n : f32 to i8
    linalg.yield %y : i8
  } -> tensor<8x6xi8>
  return %v6 : tensor<8x6xi8>
}

// A branch without integers.
// CHECK-LABEL: func.func @no_fuse_of_a_float_branch(
// CHECK: tensor.concat {{.*}} -> tensor<8x6xf32>
// REMARK: missed: linalg.generic: a branch of the concat is not dequantized (quantize all branches)
func.func @no_fuse_of_a_float_branch(%arg0: tensor<4x6xi8>, %arg1: tensor<4x6xf32>) -> (tensor<8x6xi8>) {
  %v0 = tensor.empty() : tensor<4x6xf32>
  %v1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
  ins(%arg0 : tensor<4x6xi8>)
  outs(%v0 : tensor<4x6xf32>) {
  ^bb0(%a: i8, %o: f32):
    %s = arith.constant 5.000000000e-02 : f32
    %z = arith.constant 3 : i64
    %w = arith.extsi %a : i8 to i64
    %t = arith.subi %w, %z : i64
    %f = arith.sitofp %t : i64 to f32
    %y = arith.mulf %f, %s : f32
    linalg.yield %y : f32
  } -> tensor<4x6xf32>
  %v2 = tensor.concat dim(0) %v1, %arg1 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %v3 = tensor.empty() : tensor<8x6xi8>
  %v4 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
  ins(%v2 : tensor<8x6xf32>)
  outs(%v3 : tensor<8x6xi8>) {
  ^bb0(%a: f32, %o: i8):
    %s = arith.constant 5.130000000e-02 : f32
    %z = arith.constant -5.0 : f32
    %l = arith.constant -128.0 : f32
    %h = arith.constant 127.0 : f32
    %d = arith.divf %a, %s : f32
    %r = math.roundeven %d : f32
    %p = arith.addf %r, %z : f32
    %m = arith.maximumf %p, %l : f32
    %n = arith.minimumf %m, %h : f32
    %y = arith.fptosi %n : f32 to i8
    linalg.yield %y : i8
  } -> tensor<8x6xi8>
  return %v4 : tensor<8x6xi8>
}
