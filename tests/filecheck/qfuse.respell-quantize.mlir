// RUN: qfuse-opt %s --option rounding=magic | filecheck %s
// RUN: qfuse-opt %s --option rounding=magic --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// The quantized activation of an integer contraction: clamp, round by adding 1.5 * 2^23, take the low bits.
// CHECK-LABEL: func.func @read_by_a_contraction(
// CHECK: [[Q:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x8xf32>) outs(%{{.*}} : tensor<4x8xi8>)
// CHECK: arith.divf
// CHECK: arith.constant -1.310000e+02 : f32
// CHECK: arith.constant 1.240000e+02 : f32
// CHECK: arith.constant 0x4B400000 : f32
// CHECK: arith.addf
// CHECK: arith.bitcast %{{.*}} : f32 to i32
// CHECK: arith.constant 1262485501 : i32
// CHECK: arith.subi
// CHECK: arith.trunci %{{.*}} : i32 to i8
// CHECK: linalg.generic {{.*}} ins([[Q]], %arg1 : tensor<4x8xi8>, tensor<8x6xi8>)
// REMARK: remark: qfuse.respell-quantize: linalg.generic: exactness bit-exact, result s8 per-tensor asymmetric
// REMARK: remark: qfuse.contraction:
func.func @read_by_a_contraction(%x: tensor<4x8xf32>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
  %qe = tensor.empty() : tensor<4x8xi8>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%qe : tensor<4x8xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vz = arith.constant 3.0 : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x8xi8>
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x8xi8>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extsi %vq : i8 to i64
    %vz = arith.constant 3 : i64
    %vd = arith.subi %vw, %vz : i64
    %vf = arith.sitofp %vd : i64 to f32
    %vs = arith.constant 0.25 : f32
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

// A quantize at the end of a function is left as it is.
// CHECK-LABEL: func.func @no_respelling_when_no_fusion_reads_the_integers(
// CHECK: math.roundeven
// CHECK: arith.fptosi %{{.*}} : f32 to i8
// REMARK-NOT: remark: qfuse.respell-quantize
func.func @no_respelling_when_no_fusion_reads_the_integers(%x: tensor<4x6xf32>) -> tensor<4x6xi8> {
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vz = arith.constant 3.0 : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// Needs at most 16 bits.
// CHECK-LABEL: func.func @no_respelling_of_wide_storage(
// CHECK: math.roundeven
// CHECK: arith.fptosi %{{.*}} : f32 to i32
// REMARK: remark: qfuse.contraction: {{.*}}lhs s32 per-tensor symmetric
func.func @no_respelling_of_wide_storage(%x: tensor<4x8xf32>, %qb: tensor<8x6xi8>) -> tensor<4x6xf32> {
  %qe = tensor.empty() : tensor<4x8xi32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%qe : tensor<4x8xi32>) {
  ^bb0(%vx: f32, %vo: i32):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -1000.0 : f32
    %vh = arith.constant 1000.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i32
    linalg.yield %vc : i32
  } -> tensor<4x8xi32>
  %ae = tensor.empty() : tensor<4x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x8xi32>) outs(%ae : tensor<4x8xf32>) {
  ^bb0(%vq: i32, %vo: f32):
    %vf = arith.sitofp %vq : i32 to f32
    %vs = arith.constant 0.25 : f32
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
