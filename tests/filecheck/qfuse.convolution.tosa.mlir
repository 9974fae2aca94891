// RUN: qfuse-opt %s --target=tosa-int | filecheck %s

// Filter [c, m] makes channel 2 c + m of the result: scales [[0.5, 0.25], [2, 1]] times 0.25 / 0.5 are a multiplier each.
// CHECK-LABEL: func.func @channels(
// CHECK-DAG: [[SHIFT:%[0-9]+]] = "tosa.const"() <{values = dense<[32, 33, 30, 31]> : tensor<4xi8>}>
// CHECK-DAG: [[MULTIPLIER:%[0-9]+]] = "tosa.const"() <{values = dense<1073741824> : tensor<4xi32>}>
// CHECK-DAG: [[BIAS:%[0-9]+]] = "tosa.const"() <{values = dense<[0, 8, -2, 8]> : tensor<4xi32>}>
// CHECK: [[SUMS:%[0-9]+]] = tosa.depthwise_conv2d %arg0, {{%[0-9]+}}, [[BIAS]], {{.*}} -> tensor<1x2x2x4xi32>
// CHECK-NEXT: [[RESULT:%[0-9]+]] = tosa.rescale [[SUMS]], [[MULTIPLIER]], [[SHIFT]], {{.*}}per_channel = true, {{.*}} -> tensor<1x2x2x4xi8>
// CHECK-NEXT: return [[RESULT]]
func.func @channels(%q: tensor<1x2x2x2xi8>) -> (tensor<1x2x2x4xi8>) {
  %v0 = "tosa.const"() <{values = dense<[[[[1, -2], [3, -4]]]]> : tensor<1x1x2x2xi8>}> : () -> tensor<1x1x2x2xi8>
  %v1 = tosa.cast %v0 : (tensor<1x1x2x2xi8>) -> tensor<1x1x2x2xf32>
  %v2 = "tosa.const"() <{values = dense<[[[[0.5, 0.25], [2.0, 1.0]]]]> : tensor<1x1x2x2xf32>}> : () -> tensor<1x1x2x2xf32>
  %v3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v4 = tosa.mul %v1, %v2, %v3 : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>, tensor<1xi8>) -> tensor<1x1x2x2xf32>
  %v5 = tosa.cast %q : (tensor<1x2x2x2xi8>) -> tensor<1x2x2x2xi32>
  %v6 = "tosa.const"() <{values = dense<3> : tensor<1x1x1x1xi32>}> : () -> tensor<1x1x1x1xi32>
  %v7 = tosa.sub %v5, %v6 : (tensor<1x2x2x2xi32>, tensor<1x1x1x1xi32>) -> tensor<1x2x2x2xi32>
  %v8 = tosa.cast %v7 : (tensor<1x2x2x2xi32>) -> tensor<1x2x2x2xf32>
  %v9 = "tosa.const"() <{values = dense<0.25> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v10 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v11 = tosa.mul %v8, %v9, %v10 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2x2xf32>
  %v12 = "tosa.const"() <{values = dense<[0.0, 0.5, -1.0, 2.0]> : tensor<4xf32>}> : () -> tensor<4xf32>
  %v13 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %v14 = tosa.depthwise_conv2d %v11, %v4, %v12, %v13, %v13 {acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x2x2x2xf32>, tensor<1x1x2x2xf32>, tensor<4xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2x2x4xf32>
  %v15 = "tosa.const"() <{values = dense<2.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v16 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v17 = tosa.mul %v14, %v15, %v16 : (tensor<1x2x2x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2x4xf32>
  %v18 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v19 = "tosa.const"() <{values = dense<2.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v20 = tosa.floor %v17 : (tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %v21 = tosa.sub %v17, %v20 : (tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %v22 = tosa.ceil %v17 : (tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %v23 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v24 = tosa.mul %v20, %v18, %v23 : (tensor<1x2x2x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2x4xf32>
  %v25 = tosa.floor %v24 : (tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %v26 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v27 = tosa.mul %v25, %v19, %v26 : (tensor<1x2x2x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2x4xf32>
  %v28 = tosa.equal %v20, %v27 : (tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xi1>
  %v29 = tosa.equal %v21, %v18 : (tensor<1x2x2x4xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x4xi1>
  %v30 = tosa.greater %v18, %v21 : (tensor<1x1x1x1xf32>, tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xi1>
  %v31 = tosa.logical_and %v29, %v28 : (tensor<1x2x2x4xi1>, tensor<1x2x2x4xi1>) -> tensor<1x2x2x4xi1>
  %v32 = tosa.logical_or %v30, %v31 : (tensor<1x2x2x4xi1>, tensor<1x2x2x4xi1>) -> tensor<1x2x2x4xi1>
  %v33 = tosa.select %v32, %v20, %v22 : (tensor<1x2x2x4xi1>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %v34 = "tosa.const"() <{values = dense<-1.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v35 = tosa.add %v33, %v34 : (tensor<1x2x2x4xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x4xf32>
  %v36 = tosa.clamp %v35 {max_val = 127.0 : f32, min_val = -128.0 : f32} : (tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %v37 = tosa.cast %v36 : (tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xi8>
  return %v37 : tensor<1x2x2x4xi8>
}
