// RUN: qfuse-opt %s --option rounding=magic | filecheck %s
// RUN: qfuse-opt %s --option rounding=magic --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// Clamp, then round by adding 1.5 * 2^23, then take the low bits.
// CHECK-LABEL: func.func @signed(
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<4x6xf32>) outs(%{{.*}} : tensor<4x6xi8>)
// CHECK: arith.divf
// CHECK: arith.constant -1.310000e+02 : f32
// CHECK: arith.constant 1.240000e+02 : f32
// CHECK: arith.constant 0x4B400000 : f32
// CHECK: arith.addf
// CHECK: arith.bitcast %{{.*}} : f32 to i32
// CHECK: arith.constant 1262485501 : i32
// CHECK: arith.subi
// CHECK: arith.trunci %{{.*}} : i32 to i8
// REMARK: remark: qfuse.respell-quantize: linalg.generic: exactness bit-exact, result s8 per-tensor asymmetric
func.func @signed(%x: tensor<4x6xf32>) -> tensor<4x6xi8> {
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

// The low 8 bits are those of the unsigned integer.
// CHECK-LABEL: func.func @unsigned(
// CHECK: arith.divf
// CHECK: arith.constant -1.280000e+02 : f32
// CHECK: arith.constant 1.270000e+02 : f32
// CHECK: arith.constant 0x4B400000 : f32
// CHECK: arith.constant 1262485376 : i32
// CHECK: arith.trunci %{{.*}} : i32 to i8
// REMARK: remark: qfuse.respell-quantize: linalg.generic: exactness bit-exact, result u8 per-tensor asymmetric
func.func @unsigned(%x: tensor<4x6xf32>) -> tensor<4x6xi8> {
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant 0.0 : f32
    %vh = arith.constant 255.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vz = arith.constant 128.0 : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptoui %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// Sums of more than 22 bits do not survive the addition.
// CHECK-LABEL: func.func @no_respelling_of_wide_storage(
// CHECK: math.roundeven
// CHECK: arith.fptosi %{{.*}} : f32 to i32
// REMARK-NOT: remark: qfuse.respell-quantize
func.func @no_respelling_of_wide_storage(%x: tensor<4x6xf32>) -> tensor<4x6xi32> {
  %re = tensor.empty() : tensor<4x6xi32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%re : tensor<4x6xi32>) {
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
  } -> tensor<4x6xi32>
  return %r : tensor<4x6xi32>
}

// Clamped as unsigned, cast as signed: left alone.
// CHECK-LABEL: func.func @no_respelling_of_what_contradicts_itself(
// CHECK: math.roundeven
// CHECK: arith.fptosi %{{.*}} : f32 to i8
// REMARK: missed: linalg.generic: the clamp [0, 255] does not fit the signed 8-bit storage that the cast produces
func.func @no_respelling_of_what_contradicts_itself(%x: tensor<4x6xf32>) -> tensor<4x6xi8> {
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant 0.0 : f32
    %vh = arith.constant 255.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}
