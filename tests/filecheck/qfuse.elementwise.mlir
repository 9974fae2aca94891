// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// A residual branch: one operation from integers to integers.
// CHECK-LABEL: func.func @add_and_relu(
// CHECK: [[R:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x6xi8>, tensor<4x6xi8>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: arith.constant 3 : i32
// CHECK: arith.subi
// CHECK: arith.sitofp
// CHECK: arith.sitofp
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK: math.roundeven
// CHECK: arith.fptosi
// CHECK-NOT: linalg.generic
// CHECK: return [[R]]
// REMARK: remark: qfuse.elementwise: linalg.generic: exactness bit-exact, {{.*}}result s8 per-tensor symmetric
func.func @add_and_relu(%qa: tensor<4x6xi8>, %qb: tensor<4x6xi8>) -> tensor<4x6xi8> {
  %ae = tensor.empty() : tensor<4x6xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x6xi8>) outs(%ae : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extsi %vq : i8 to i64
    %vz = arith.constant 3 : i64
    %vd = arith.subi %vw, %vz : i64
    %vf = arith.sitofp %vd : i64 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %be = tensor.empty() : tensor<4x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb : tensor<4x6xi8>) outs(%be : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %se = tensor.empty() : tensor<4x6xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<4x6xf32>, tensor<4x6xf32>) outs(%se : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vv: f32, %vo: f32):
    %vy = arith.addf %vx, %vv : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  %ue = tensor.empty() : tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x6xf32>) outs(%ue : tensor<4x6xf32>) {
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
    %vs = arith.constant 0.75 : f32
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

// The result stays a float.
// CHECK-LABEL: func.func @no_fuse_when_no_quantize_follows(
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<4x6xf32>, tensor<4x6xf32>) outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: arith.addf
// REMARK: missed: linalg.generic: no quantize reads its result
func.func @no_fuse_when_no_quantize_follows(%qa: tensor<4x6xi8>, %qb: tensor<4x6xi8>) -> tensor<4x6xf32> {
  %ae = tensor.empty() : tensor<4x6xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x6xi8>) outs(%ae : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %be = tensor.empty() : tensor<4x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qb : tensor<4x6xi8>) outs(%be : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %se = tensor.empty() : tensor<4x6xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<4x6xf32>, tensor<4x6xf32>) outs(%se : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vv: f32, %vo: f32):
    %vy = arith.addf %vx, %vv : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  return %s : tensor<4x6xf32>
}

// A float addition and a quantize.
// CHECK-LABEL: func.func @no_fuse_when_nothing_is_dequantized(
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x6xf32>, tensor<4x6xf32>) outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: linalg.generic
// CHECK: math.roundeven
// REMARK-NOT: remark: qfuse.elementwise
func.func @no_fuse_when_nothing_is_dequantized(%a: tensor<4x6xf32>, %b: tensor<4x6xf32>) -> tensor<4x6xi8> {
  %se = tensor.empty() : tensor<4x6xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<4x6xf32>, tensor<4x6xf32>) outs(%se : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vv: f32, %vo: f32):
    %vy = arith.addf %vx, %vv : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
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
