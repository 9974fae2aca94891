// RUN: qfuse-opt %s --target=tosa-int | filecheck %s
// RUN: qfuse-opt %s --target=tosa-int --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

// The result has the parameters of what is pooled: one operation, which leaves out padding itself.
// CHECK-LABEL: func.func @same_parameters(
// CHECK: [[ZERO:%[0-9]+]] = "tosa.const"() <{values = dense<5> : tensor<1xi8>}>
// CHECK-NEXT: [[MEAN:%[0-9]+]] = tosa.avg_pool2d %arg0, [[ZERO]], [[ZERO]] {acc_type = i32, {{.*}}pad = array<i64: 1, 0, 1, 0>{{.*}} -> tensor<1x2x2x2xi8>
// CHECK-NEXT: return [[MEAN]]
// REMARK: remark: qfuse.requantize: tosa.cast: exactness within-1-lsb, {{.*}}scaling single, multiplier 4 channels
func.func @same_parameters(%q: tensor<1x4x4x2xi8>) -> tensor<1x2x2x2xi8> {
  %v0 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %v1 = tosa.cast %q : (tensor<1x4x4x2xi8>) -> tensor<1x4x4x2xi32>
  %v2 = "tosa.const"() <{values = dense<5> : tensor<1x1x1x1xi32>}> : () -> tensor<1x1x1x1xi32>
  %v3 = tosa.sub %v1, %v2 : (tensor<1x4x4x2xi32>, tensor<1x1x1x1xi32>) -> tensor<1x4x4x2xi32>
  %v4 = tosa.cast %v3 : (tensor<1x4x4x2xi32>) -> tensor<1x4x4x2xf32>
  %v5 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v6 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v7 = tosa.mul %v4, %v5, %v6 : (tensor<1x4x4x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x4x4x2xf32>
  %v8 = tosa.avg_pool2d %v7, %v0, %v0 {acc_type = f32, kernel = array<i64: 3, 3>, pad = array<i64: 1, 0, 1, 0>, stride = array<i64: 2, 2>} : (tensor<1x4x4x2xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2x2x2xf32>
  %v9 = "tosa.const"() <{values = dense<2.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v10 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v11 = tosa.mul %v8, %v9, %v10 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2x2xf32>
  %v12 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v13 = "tosa.const"() <{values = dense<2.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v14 = tosa.floor %v11 : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v15 = tosa.sub %v11, %v14 : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v16 = tosa.ceil %v11 : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v17 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v18 = tosa.mul %v14, %v12, %v17 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2x2xf32>
  %v19 = tosa.floor %v18 : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v20 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v21 = tosa.mul %v19, %v13, %v20 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2x2xf32>
  %v22 = tosa.equal %v14, %v21 : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xi1>
  %v23 = tosa.equal %v15, %v12 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x2xi1>
  %v24 = tosa.greater %v12, %v15 : (tensor<1x1x1x1xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xi1>
  %v25 = tosa.logical_and %v23, %v22 : (tensor<1x2x2x2xi1>, tensor<1x2x2x2xi1>) -> tensor<1x2x2x2xi1>
  %v26 = tosa.logical_or %v24, %v25 : (tensor<1x2x2x2xi1>, tensor<1x2x2x2xi1>) -> tensor<1x2x2x2xi1>
  %v27 = tosa.select %v26, %v14, %v16 : (tensor<1x2x2x2xi1>, tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v28 = "tosa.const"() <{values = dense<5.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v29 = tosa.add %v27, %v28 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %v30 = tosa.clamp %v29 {max_val = 127.0 : f32, min_val = -128.0 : f32} : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v31 = tosa.cast %v30 : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xi8>
  return %v31 : tensor<1x2x2x2xi8>
}

// Other parameters: the sums of the windows, and a multiplier a position: windows have 4, 6 or 9 elements.
// CHECK-LABEL: func.func @other_parameters(
// CHECK: dense<[31, 32, 32, 33]> : tensor<4xi8>
// CHECK: dense<[1073741824, 1431655765, 1431655765, 1908874354]> : tensor<4xi32>
// CHECK: tosa.depthwise_conv2d %arg0, {{.*}}pad = array<i64: 1, 0, 1, 0>
// CHECK: tosa.rescale {{.*}}per_channel = true
// CHECK-NOT: f32
func.func @other_parameters(%q: tensor<1x4x4x2xi8>) -> tensor<1x2x2x2xi8> {
  %v0 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %v1 = tosa.cast %q : (tensor<1x4x4x2xi8>) -> tensor<1x4x4x2xi32>
  %v2 = "tosa.const"() <{values = dense<5> : tensor<1x1x1x1xi32>}> : () -> tensor<1x1x1x1xi32>
  %v3 = tosa.sub %v1, %v2 : (tensor<1x4x4x2xi32>, tensor<1x1x1x1xi32>) -> tensor<1x4x4x2xi32>
  %v4 = tosa.cast %v3 : (tensor<1x4x4x2xi32>) -> tensor<1x4x4x2xf32>
  %v5 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v6 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v7 = tosa.mul %v4, %v5, %v6 : (tensor<1x4x4x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x4x4x2xf32>
  %v8 = tosa.avg_pool2d %v7, %v0, %v0 {acc_type = f32, kernel = array<i64: 3, 3>, pad = array<i64: 1, 0, 1, 0>, stride = array<i64: 2, 2>} : (tensor<1x4x4x2xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2x2x2xf32>
  %v9 = "tosa.const"() <{values = dense<4.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v10 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v11 = tosa.mul %v8, %v9, %v10 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2x2xf32>
  %v12 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v13 = "tosa.const"() <{values = dense<2.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v14 = tosa.floor %v11 : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v15 = tosa.sub %v11, %v14 : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v16 = tosa.ceil %v11 : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v17 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v18 = tosa.mul %v14, %v12, %v17 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2x2xf32>
  %v19 = tosa.floor %v18 : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v20 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v21 = tosa.mul %v19, %v13, %v20 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x2x2xf32>
  %v22 = tosa.equal %v14, %v21 : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xi1>
  %v23 = tosa.equal %v15, %v12 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x2xi1>
  %v24 = tosa.greater %v12, %v15 : (tensor<1x1x1x1xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xi1>
  %v25 = tosa.logical_and %v23, %v22 : (tensor<1x2x2x2xi1>, tensor<1x2x2x2xi1>) -> tensor<1x2x2x2xi1>
  %v26 = tosa.logical_or %v24, %v25 : (tensor<1x2x2x2xi1>, tensor<1x2x2x2xi1>) -> tensor<1x2x2x2xi1>
  %v27 = tosa.select %v26, %v14, %v16 : (tensor<1x2x2x2xi1>, tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v28 = "tosa.const"() <{values = dense<-3.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v29 = tosa.add %v27, %v28 : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %v30 = tosa.clamp %v29 {max_val = 127.0 : f32, min_val = -128.0 : f32} : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %v31 = tosa.cast %v30 : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xi8>
  return %v31 : tensor<1x2x2x2xi8>
}

// A mean over two dimensions is two sums of integers and one rescale.
// CHECK-LABEL: func.func @sum_of_sums(
// CHECK: [[ROWS:%[0-9]+]] = tosa.reduce_sum {{.*}}axis = 1 : i32} : (tensor<1x4x4x2xi32>)
// CHECK-NEXT: [[SUM:%[0-9]+]] = tosa.reduce_sum [[ROWS]] {axis = 2 : i32} : (tensor<1x1x4x2xi32>)
// CHECK-NEXT: [[MEAN:%[0-9]+]] = tosa.rescale [[SUM]]
// CHECK-NEXT: return [[MEAN]]
// REMARK: remark: qfuse.sum: tosa.reduce_sum: {{.*}}accumulator i32
func.func @sum_of_sums(%q: tensor<1x4x4x2xi8>) -> tensor<1x1x1x2xi8> {
  %v0 = tosa.cast %q : (tensor<1x4x4x2xi8>) -> tensor<1x4x4x2xi32>
  %v1 = "tosa.const"() <{values = dense<5> : tensor<1x1x1x1xi32>}> : () -> tensor<1x1x1x1xi32>
  %v2 = tosa.sub %v0, %v1 : (tensor<1x4x4x2xi32>, tensor<1x1x1x1xi32>) -> tensor<1x4x4x2xi32>
  %v3 = tosa.cast %v2 : (tensor<1x4x4x2xi32>) -> tensor<1x4x4x2xf32>
  %v4 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v6 = tosa.mul %v3, %v4, %v5 : (tensor<1x4x4x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x4x4x2xf32>
  %v7 = tosa.reduce_sum %v6 {axis = 1 : i32} : (tensor<1x4x4x2xf32>) -> tensor<1x1x4x2xf32>
  %v8 = tosa.reduce_sum %v7 {axis = 2 : i32} : (tensor<1x1x4x2xf32>) -> tensor<1x1x1x2xf32>
  %v9 = "tosa.const"() <{values = dense<0.0625> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v10 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v11 = tosa.mul %v8, %v9, %v10 : (tensor<1x1x1x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x1x1x2xf32>
  %v12 = "tosa.const"() <{values = dense<4.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v13 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v14 = tosa.mul %v11, %v12, %v13 : (tensor<1x1x1x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x1x1x2xf32>
  %v15 = "tosa.const"() <{values = dense<0.5> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v16 = "tosa.const"() <{values = dense<2.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v17 = tosa.floor %v14 : (tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32>
  %v18 = tosa.sub %v14, %v17 : (tensor<1x1x1x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32>
  %v19 = tosa.ceil %v14 : (tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32>
  %v20 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v21 = tosa.mul %v17, %v15, %v20 : (tensor<1x1x1x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x1x1x2xf32>
  %v22 = tosa.floor %v21 : (tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32>
  %v23 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v24 = tosa.mul %v22, %v16, %v23 : (tensor<1x1x1x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x1x1x2xf32>
  %v25 = tosa.equal %v17, %v24 : (tensor<1x1x1x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xi1>
  %v26 = tosa.equal %v18, %v15 : (tensor<1x1x1x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x1x1x2xi1>
  %v27 = tosa.greater %v15, %v18 : (tensor<1x1x1x1xf32>, tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xi1>
  %v28 = tosa.logical_and %v26, %v25 : (tensor<1x1x1x2xi1>, tensor<1x1x1x2xi1>) -> tensor<1x1x1x2xi1>
  %v29 = tosa.logical_or %v27, %v28 : (tensor<1x1x1x2xi1>, tensor<1x1x1x2xi1>) -> tensor<1x1x1x2xi1>
  %v30 = tosa.select %v29, %v17, %v19 : (tensor<1x1x1x2xi1>, tensor<1x1x1x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32>
  %v31 = "tosa.const"() <{values = dense<-3.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
  %v32 = tosa.add %v30, %v31 : (tensor<1x1x1x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x1x1x2xf32>
  %v33 = tosa.clamp %v32 {max_val = 127.0 : f32, min_val = -128.0 : f32} : (tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32>
  %v34 = tosa.cast %v33 : (tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xi8>
  return %v34 : tensor<1x1x1x2xi8>
}
