// RUN: qfuse-opt %s --target=tosa-int | filecheck %s

// A function of 16 bits is a table of 513 points, which gives seven bits more than they have.
// CHECK-LABEL: func.func @of_16_bits(
// CHECK: [[SHIFT:%[0-9]+]] = "tosa.const"() <{values = dense<37> : tensor<1xi8>}>
// CHECK: [[POINTS:%[0-9]+]] = "tosa.const"() <{values = dense<{{.*}}> : tensor<513xi16>}>
// CHECK-NOT: xf32
// CHECK: [[LINE:%[0-9]+]] = tosa.table %arg0, [[POINTS]] : (tensor<4xi16>, tensor<513xi16>) -> tensor<4xi32>
// CHECK-NEXT: [[RESULT:%[0-9]+]] = tosa.rescale [[LINE]], {{%[0-9]+}}, [[SHIFT]], {{.*}}scale32 = true} : {{.*}} -> tensor<4xi16>
// CHECK-NEXT: return [[RESULT]]
func.func @of_16_bits(%q: tensor<4xi16>) -> tensor<4xi16> {
  %v0 = tosa.cast %q : (tensor<4xi16>) -> tensor<4xf32>
  %v1 = "tosa.const"() <{values = dense<0.0001250000059371814> : tensor<1xf32>}> : () -> tensor<1xf32>
  %v2 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v3 = tosa.mul %v0, %v1, %v2 : (tensor<4xf32>, tensor<1xf32>, tensor<1xi8>) -> tensor<4xf32>
  %v4 = tosa.tanh %v3 : (tensor<4xf32>) -> tensor<4xf32>
  %v5 = "tosa.const"() <{values = dense<31250.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %v6 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v7 = tosa.mul %v4, %v5, %v6 : (tensor<4xf32>, tensor<1xf32>, tensor<1xi8>) -> tensor<4xf32>
  %v8 = "tosa.const"() <{values = dense<0.5> : tensor<1xf32>}> : () -> tensor<1xf32>
  %v9 = "tosa.const"() <{values = dense<2.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %v10 = tosa.floor %v7 : (tensor<4xf32>) -> tensor<4xf32>
  %v11 = tosa.sub %v7, %v10 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %v12 = tosa.ceil %v7 : (tensor<4xf32>) -> tensor<4xf32>
  %v13 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v14 = tosa.mul %v10, %v8, %v13 : (tensor<4xf32>, tensor<1xf32>, tensor<1xi8>) -> tensor<4xf32>
  %v15 = tosa.floor %v14 : (tensor<4xf32>) -> tensor<4xf32>
  %v16 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v17 = tosa.mul %v15, %v9, %v16 : (tensor<4xf32>, tensor<1xf32>, tensor<1xi8>) -> tensor<4xf32>
  %v18 = tosa.equal %v10, %v17 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %v19 = tosa.equal %v11, %v8 : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xi1>
  %v20 = tosa.greater %v8, %v11 : (tensor<1xf32>, tensor<4xf32>) -> tensor<4xi1>
  %v21 = tosa.logical_and %v19, %v18 : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  %v22 = tosa.logical_or %v20, %v21 : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  %v23 = tosa.select %v22, %v10, %v12 : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %v24 = tosa.clamp %v23 {max_val = 32767.0 : f32, min_val = -32768.0 : f32} : (tensor<4xf32>) -> tensor<4xf32>
  %v25 = tosa.cast %v24 : (tensor<4xf32>) -> tensor<4xi16>
  return %v25 : tensor<4xi16>
}
