// RUN: qfuse-opt %s --target affine-iree | filecheck %s
// RUN: qfuse-opt %s --target affine-iree --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=MISSED

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>

// CHECK-LABEL: func.func @quantize(
// CHECK-DAG: [[S:%[a-z0-9_]+]] = arith.constant 2.500000e-01 : f32
// CHECK-DAG: [[Z:%[a-z0-9_]+]] = arith.constant 3 : i32
// CHECK: "iree_linalg_ext.quantize_affine"(%arg0, [[S]], [[Z]], %{{.*}}) {{{.*}}quant_max = 127 : i64, quant_min = -127 : i64}
func.func @quantize(%x: tensor<2x4xf32>) -> tensor<2x4xi8> {
  %er = tensor.empty() : tensor<2x4xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x4xf32>) outs(%er : tensor<2x4xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vz = arith.constant 3.0 : f32
    %vl = arith.constant -127.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<2x4xi8>
  return %r : tensor<2x4xi8>
}

// CHECK-LABEL: func.func @dequantize(
// CHECK: "iree_linalg_ext.dequantize_affine"(%arg0, %{{.*}}, %{{.*}}, %{{.*}}) {indexing_maps = [#map, #map2, #map1, #map]}
func.func @dequantize(%q: tensor<2x4xi8>) -> tensor<2x4xf32> {
  %s = arith.constant dense<[0.5, 0.25]> : tensor<2xf32>
  %ed = tensor.empty() : tensor<2x4xf32>
  %d = linalg.generic {indexing_maps = [#id, #d0, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q, %s : tensor<2x4xi8>, tensor<2xf32>) outs(%ed : tensor<2x4xf32>) {
  ^bb0(%vq: i8, %vs: f32, %vo: f32):
    %vw = arith.extsi %vq : i8 to i32
    %vf = arith.sitofp %vw : i32 to f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<2x4xf32>
  return %d : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @by_the_reciprocal(
// CHECK: math.roundeven
// MISSED: missed: linalg.generic: the quantize multiplies by the reciprocal scale, a named quantize divides
func.func @by_the_reciprocal(%x: tensor<2x4xf32>) -> tensor<2x4xi8> {
  %er = tensor.empty() : tensor<2x4xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x4xf32>) outs(%er : tensor<2x4xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vz = arith.constant 3.0 : f32
    %vl = arith.constant -127.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.mulf %vx, %vs : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<2x4xi8>
  return %r : tensor<2x4xi8>
}
