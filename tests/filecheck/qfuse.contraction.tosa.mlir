// RUN: qfuse-opt %s --target=tosa-int | filecheck %s

// No operand holds a zero point of 16 bits, and nothing adds i48. What it adds, 90027 and 24, is two more rows of weights.
// CHECK-LABEL: func.func @zero_point(
// CHECK-DAG: [[ONES:%[0-9]+]] = "tosa.const"() <{values = dense<{{.*}}[32767, 1], [32767, 1]{{.*}}> : tensor<1x2x2xi16>}>
// CHECK-DAG: [[WEIGHTS:%[0-9]+]] = "tosa.const"() <{values = dense<{{.*}}[30000, 2], [-3, 4], [5, -6], [7, 8], [3, 0], [-8274, 24]{{.*}}> : tensor<1x6x2xi16>}>
// CHECK: [[LHS:%[0-9]+]] = tosa.concat %arg0, [[ONES]] {axis = 2 : i32}
// CHECK-NEXT: [[SUMS:%[0-9]+]] = tosa.matmul [[LHS]], [[WEIGHTS]], {{.*}} -> tensor<1x2x2xi48>
// CHECK-NEXT: [[RESULT:%[0-9]+]] = tosa.rescale [[SUMS]], {{.*}}scale32 = false} : {{.*}} -> tensor<1x2x2xi16>
// CHECK-NEXT: return [[RESULT]]
func.func @zero_point(%q: tensor<1x2x4xi16>) -> tensor<1x2x2xi16> {
  %v0 = tosa.cast %q : (tensor<1x2x4xi16>) -> tensor<1x2x4xi32>
  %v1 = "tosa.const"() <{values = dense<-3> : tensor<1x1x1xi32>}> : () -> tensor<1x1x1xi32>
  %v2 = tosa.sub %v0, %v1 : (tensor<1x2x4xi32>, tensor<1x1x1xi32>) -> tensor<1x2x4xi32>
  %v3 = tosa.cast %v2 : (tensor<1x2x4xi32>) -> tensor<1x2x4xf32>
  %v4 = "tosa.const"() <{values = dense<0.25> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %v5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v6 = tosa.mul %v3, %v4, %v5 : (tensor<1x2x4xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x4xf32>
  %v7 = "tosa.const"() <{values = dense<[[[30000, 2], [-3, 4], [5, -6], [7, 8]]]> : tensor<1x4x2xi16>}> : () -> tensor<1x4x2xi16>
  %v8 = tosa.cast %v7 : (tensor<1x4x2xi16>) -> tensor<1x4x2xf32>
  %v9 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %v10 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v11 = tosa.mul %v8, %v9, %v10 : (tensor<1x4x2xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x4x2xf32>
  %v12 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %v13 = tosa.matmul %v6, %v11, %v12, %v12 : (tensor<1x2x4xf32>, tensor<1x4x2xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2x2xf32>
  %v14 = "tosa.const"() <{values = dense<0.015625> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %v15 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v16 = tosa.mul %v13, %v14, %v15 : (tensor<1x2x2xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2xf32>
  %v17 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %v18 = "tosa.const"() <{values = dense<2.0> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %v19 = tosa.floor %v16 : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  %v20 = tosa.sub %v16, %v19 : (tensor<1x2x2xf32>, tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  %v21 = tosa.ceil %v16 : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  %v22 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v23 = tosa.mul %v19, %v17, %v22 : (tensor<1x2x2xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2xf32>
  %v24 = tosa.floor %v23 : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  %v25 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v26 = tosa.mul %v24, %v18, %v25 : (tensor<1x2x2xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2xf32>
  %v27 = tosa.equal %v19, %v26 : (tensor<1x2x2xf32>, tensor<1x2x2xf32>) -> tensor<1x2x2xi1>
  %v28 = tosa.equal %v20, %v17 : (tensor<1x2x2xf32>, tensor<1x1x1xf32>) -> tensor<1x2x2xi1>
  %v29 = tosa.greater %v17, %v20 : (tensor<1x1x1xf32>, tensor<1x2x2xf32>) -> tensor<1x2x2xi1>
  %v30 = tosa.logical_and %v28, %v27 : (tensor<1x2x2xi1>, tensor<1x2x2xi1>) -> tensor<1x2x2xi1>
  %v31 = tosa.logical_or %v29, %v30 : (tensor<1x2x2xi1>, tensor<1x2x2xi1>) -> tensor<1x2x2xi1>
  %v32 = tosa.select %v31, %v19, %v21 : (tensor<1x2x2xi1>, tensor<1x2x2xf32>, tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  %v33 = tosa.clamp %v32 {max_val = 32767.0 : f32, min_val = -32768.0 : f32} : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  %v34 = tosa.cast %v33 : (tensor<1x2x2xf32>) -> tensor<1x2x2xi16>
  return %v34 : tensor<1x2x2xi16>
}
