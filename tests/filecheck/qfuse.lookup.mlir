// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// A table of 256 entries.
// CHECK-LABEL: func.func @sigmoid(
// CHECK: [[T:%[a-z0-9_]+]] = arith.constant dense<"0x0004080C1014{{.*}}"> : tensor<256xi8>
// CHECK: [[R:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x6xi8>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: [[I:%[0-9]+]] = arith.index_castui %{{.*}} : i8 to index
// CHECK: tensor.extract [[T]]{{\[}}[[I]]] : tensor<256xi8>
// CHECK-NOT: math.exp
// CHECK: return [[R]]
// REMARK: remark: qfuse.lookup: linalg.generic: exactness within-1-lsb, {{.*}}input s8 per-tensor symmetric, result s8 per-tensor asymmetric, entries 256
func.func @sigmoid(%q: tensor<4x6xi8>) -> tensor<4x6xi8> {
  %ae = tensor.empty() : tensor<4x6xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x6xi8>) outs(%ae : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.0625 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %ue = tensor.empty() : tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<4x6xf32>) outs(%ue : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vi = arith.constant 1.0 : f32
    %vn = arith.negf %vx : f32
    %ve = math.exp %vn : f32
    %vp = arith.addf %ve, %vi : f32
    %vy = arith.divf %vi, %vp : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.00390625 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vz = arith.constant -128.0 : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// The result stays a float.
// CHECK-LABEL: func.func @no_fuse_when_no_quantize_follows(
// CHECK: math.exp
// CHECK-NOT: tensor.extract
// CHECK: return
func.func @no_fuse_when_no_quantize_follows(%q: tensor<4x6xi8>) -> tensor<4x6xf32> {
  %ae = tensor.empty() : tensor<4x6xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x6xi8>) outs(%ae : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.0625 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %ue = tensor.empty() : tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<4x6xf32>) outs(%ue : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vi = arith.constant 1.0 : f32
    %vn = arith.negf %vx : f32
    %ve = math.exp %vn : f32
    %vp = arith.addf %ve, %vi : f32
    %vy = arith.divf %vi, %vp : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  return %u : tensor<4x6xf32>
}

// There is nothing to tabulate.
// CHECK-LABEL: func.func @no_fuse_when_the_scale_is_known_at_run_time_only(
// CHECK: ins(%arg0, %arg1 : tensor<4x6xi8>, tensor<6xf32>)
// CHECK: math.exp
// CHECK-NOT: tensor.extract
// CHECK: return
// REMARK: remark: qfuse.elementwise:
func.func @no_fuse_when_the_scale_is_known_at_run_time_only(%q: tensor<4x6xi8>, %s: tensor<6xf32>) -> tensor<4x6xi8> {
  %ae = tensor.empty() : tensor<4x6xf32>
  %a = linalg.generic {indexing_maps = [#id, #d1, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q, %s : tensor<4x6xi8>, tensor<6xf32>) outs(%ae : tensor<4x6xf32>) {
  ^bb0(%vq: i8, %vs: f32, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %ue = tensor.empty() : tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<4x6xf32>) outs(%ue : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vi = arith.constant 1.0 : f32
    %vn = arith.negf %vx : f32
    %ve = math.exp %vn : f32
    %vp = arith.addf %ve, %vi : f32
    %vy = arith.divf %vi, %vp : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.00390625 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vz = arith.constant -128.0 : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// A table for 16 bits is too large, unless asked for.
// CHECK-LABEL: func.func @no_fuse_of_wide_storage(
// CHECK: ins(%arg0 : tensor<4x6xi16>)
// CHECK: math.exp
// CHECK-NOT: tensor.extract
// CHECK: return
// REMARK: remark: qfuse.elementwise:
func.func @no_fuse_of_wide_storage(%q: tensor<4x6xi16>) -> tensor<4x6xi8> {
  %ae = tensor.empty() : tensor<4x6xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x6xi16>) outs(%ae : tensor<4x6xf32>) {
  ^bb0(%vq: i16, %vo: f32):
    %vf = arith.sitofp %vq : i16 to f32
    %vs = arith.constant 0.0625 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x6xf32>
  %ue = tensor.empty() : tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<4x6xf32>) outs(%ue : tensor<4x6xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vi = arith.constant 1.0 : f32
    %vn = arith.negf %vx : f32
    %ve = math.exp %vn : f32
    %vp = arith.addf %ve, %vi : f32
    %vy = arith.divf %vi, %vp : f32
    linalg.yield %vy : f32
  } -> tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.00390625 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vz = arith.constant -128.0 : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}
