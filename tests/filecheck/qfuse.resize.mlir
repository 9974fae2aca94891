// RUN: qfuse-opt %s --target=tosa-int | filecheck %s
// RUN: qfuse-opt %s --target=tosa-int --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

// The weights of four neighbours add up to 16: it and the scales are one multiplier, 16 times the zero point is taken off.
// CHECK-LABEL: func.func @twice(
// CHECK-NOT: f32
// CHECK: dense<-80> : tensor<1x1x1x1xi32>
// CHECK: [[SUM:%[0-9]+]] = tosa.resize %arg0, {{.*}} {mode = BILINEAR} : (tensor<1x3x3x2xi8>, {{.*}}) -> tensor<1x6x6x2xi32>
// CHECK: [[REST:%[0-9]+]] = tosa.add [[SUM]]
// CHECK: [[RESULT:%[0-9]+]] = tosa.rescale [[REST]]
// CHECK: return [[RESULT]]
// REMARK: remark: qfuse.resize: tosa.resize: {{.*}}input s8 per-tensor asymmetric, accumulator i32, accumulator_bound 2128
func.func @twice(%q: tensor<1x3x3x2xi8>) -> tensor<1x6x6x2xi8> {
  %v0 = tosa.cast %q : (tensor<1x3x3x2xi8>) -> tensor<1x3x3x2xi32>
  %v1 = "tosa.const"() <{values = dense<5> : tensor<1x1x1x1xi32>}> : () -> tensor<1x1x1x1xi32>
  %v2 = tosa.sub %v0, %v1 : (tensor<1x3x3x2xi32>, tensor<1x1x1x1xi32>) -> tensor<1x3x3x2xi32>
  %v3 = tosa.cast %v2 : (tensor<1x3x3x2xi32>) -> tensor<1x3x3x2xf32>
  %v4 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v6 = tosa.mul %v3, %v4, %v5 : (tensor<1x3x3x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x3x3x2xf32>
  %v7 = tosa.const_shape {values = dense<[4, 2, 4, 2]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %v8 = tosa.const_shape {values = dense<[-1, -1]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %v9 = tosa.const_shape {values = dense<[1, 1]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %v10 = tosa.resize %v6, %v7, %v8, %v9 {mode = BILINEAR} : (tensor<1x3x3x2xf32>, !tosa.shape<4>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<1x6x6x2xf32>
  %v11 = "tosa.const"() <{values = dense<4.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v12 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v13 = tosa.mul %v10, %v11, %v12 : (tensor<1x6x6x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x6x6x2xf32>
  %v14 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v15 = "tosa.const"() <{values = dense<2.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v16 = tosa.floor %v13 : (tensor<1x6x6x2xf32>) -> tensor<1x6x6x2xf32>
  %v17 = tosa.sub %v13, %v16 : (tensor<1x6x6x2xf32>, tensor<1x6x6x2xf32>) -> tensor<1x6x6x2xf32>
  %v18 = tosa.ceil %v13 : (tensor<1x6x6x2xf32>) -> tensor<1x6x6x2xf32>
  %v19 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v20 = tosa.mul %v16, %v14, %v19 : (tensor<1x6x6x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x6x6x2xf32>
  %v21 = tosa.floor %v20 : (tensor<1x6x6x2xf32>) -> tensor<1x6x6x2xf32>
  %v22 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v23 = tosa.mul %v21, %v15, %v22 : (tensor<1x6x6x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x6x6x2xf32>
  %v24 = tosa.equal %v16, %v23 : (tensor<1x6x6x2xf32>, tensor<1x6x6x2xf32>) -> tensor<1x6x6x2xi1>
  %v25 = tosa.equal %v17, %v14 : (tensor<1x6x6x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x6x6x2xi1>
  %v26 = tosa.greater %v14, %v17 : (tensor<1x1x1x1xf32>, tensor<1x6x6x2xf32>) -> tensor<1x6x6x2xi1>
  %v27 = tosa.logical_and %v25, %v24 : (tensor<1x6x6x2xi1>, tensor<1x6x6x2xi1>) -> tensor<1x6x6x2xi1>
  %v28 = tosa.logical_or %v26, %v27 : (tensor<1x6x6x2xi1>, tensor<1x6x6x2xi1>) -> tensor<1x6x6x2xi1>
  %v29 = tosa.select %v28, %v16, %v18 : (tensor<1x6x6x2xi1>, tensor<1x6x6x2xf32>, tensor<1x6x6x2xf32>) -> tensor<1x6x6x2xf32>
  %v30 = "tosa.const"() <{values = dense<-3.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v31 = tosa.add %v29, %v30 : (tensor<1x6x6x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x6x6x2xf32>
  %v32 = tosa.clamp %v31 {max_val = 127.0 : f32, min_val = -128.0 : f32} : (tensor<1x6x6x2xf32>) -> tensor<1x6x6x2xf32>
  %v33 = tosa.cast %v32 : (tensor<1x6x6x2xf32>) -> tensor<1x6x6x2xi8>
  return %v33 : tensor<1x6x6x2xi8>
}
