// RUN: qfuse-opt %s --target=tosa-int | filecheck %s
// RUN: qfuse-opt %s --target=tosa-int --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

// The zero point 141 as a signed byte is -115: right from 128 on and wrong below. Both are kept 128 less.
// CHECK-LABEL: func.func @unsigned(
// CHECK-DAG: [[Z:%[0-9]+]] = "tosa.const"() <{values = dense<13> : tensor<1xi8>}>
// CHECK: tosa.clamp
// CHECK-NEXT: [[S:%[0-9]+]] = tosa.sub
// CHECK-NEXT: [[Q:%[0-9]+]] = tosa.cast [[S]] : (tensor<1x2x3xf32>) -> tensor<1x2x3xi8>
// CHECK: [[C:%[0-9]+]] = tosa.matmul [[Q]], %{{[0-9]+}}, [[Z]],
// CHECK-NEXT: return [[C]]
// REMARK: remark: qfuse.repair-contraction: tosa.matmul: exactness bit-exact, repaired
// REMARK-SAME: results differ from the unfused module's
func.func @unsigned(%arg0: tensor<1x2x3xf32>) -> tensor<1x2x2xi32> {
  %0 = "tosa.const"() <{values = dense<5.000000e+01> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %1 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %2 = tosa.mul %arg0, %0, %1 : (tensor<1x2x3xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x3xf32>
  %3 = "tosa.const"() <{values = dense<5.000000e-01> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %4 = "tosa.const"() <{values = dense<2.000000e+00> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %5 = tosa.floor %2 : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %6 = tosa.sub %2, %5 : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %7 = tosa.ceil %2 : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %8 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %9 = tosa.mul %5, %3, %8 : (tensor<1x2x3xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x3xf32>
  %10 = tosa.floor %9 : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %11 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %12 = tosa.mul %10, %4, %11 : (tensor<1x2x3xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x3xf32>
  %13 = tosa.equal %5, %12 : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xi1>
  %14 = tosa.equal %6, %3 : (tensor<1x2x3xf32>, tensor<1x1x1xf32>) -> tensor<1x2x3xi1>
  %15 = tosa.greater %3, %6 : (tensor<1x1x1xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xi1>
  %16 = tosa.logical_and %14, %13 : (tensor<1x2x3xi1>, tensor<1x2x3xi1>) -> tensor<1x2x3xi1>
  %17 = tosa.logical_or %15, %16 : (tensor<1x2x3xi1>, tensor<1x2x3xi1>) -> tensor<1x2x3xi1>
  %18 = tosa.select %17, %5, %7 : (tensor<1x2x3xi1>, tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %19 = "tosa.const"() <{values = dense<1.410000e+02> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %20 = tosa.add %18, %19 : (tensor<1x2x3xf32>, tensor<1x1x1xf32>) -> tensor<1x2x3xf32>
  %21 = tosa.clamp %20 {max_val = 1.270000e+02 : f32, min_val = -1.280000e+02 : f32} : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %22 = tosa.cast %21 : (tensor<1x2x3xf32>) -> tensor<1x2x3xi8>
  %23 = "tosa.const"() <{values = dense<[[[1, 2], [3, -4], [5, 6]]]> : tensor<1x3x2xi8>}> : () -> tensor<1x3x2xi8>
  %24 = "tosa.const"() <{values = dense<-115> : tensor<1xi8>}> : () -> tensor<1xi8>
  %25 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %26 = tosa.matmul %22, %23, %24, %25 : (tensor<1x2x3xi8>, tensor<1x3x2xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x2x2xi32>
  return %26 : tensor<1x2x2xi32>
}

// Nothing to repair.
// CHECK-LABEL: func.func @signed(
// CHECK: tosa.clamp
// CHECK-NEXT: [[Q:%[0-9]+]] = tosa.cast
// CHECK: [[Z:%[0-9]+]] = "tosa.const"() <{values = dense<-5> : tensor<1xi8>}>
// CHECK: tosa.matmul [[Q]], %{{[0-9]+}}, [[Z]],
// REMARK: remark: tosa.matmul is integer already
func.func @signed(%arg0: tensor<1x2x3xf32>) -> tensor<1x2x2xi32> {
  %0 = "tosa.const"() <{values = dense<5.000000e+01> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %1 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %2 = tosa.mul %arg0, %0, %1 : (tensor<1x2x3xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x3xf32>
  %3 = "tosa.const"() <{values = dense<5.000000e-01> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %4 = "tosa.const"() <{values = dense<2.000000e+00> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %5 = tosa.floor %2 : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %6 = tosa.sub %2, %5 : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %7 = tosa.ceil %2 : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %8 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %9 = tosa.mul %5, %3, %8 : (tensor<1x2x3xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x3xf32>
  %10 = tosa.floor %9 : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %11 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %12 = tosa.mul %10, %4, %11 : (tensor<1x2x3xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x2x3xf32>
  %13 = tosa.equal %5, %12 : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xi1>
  %14 = tosa.equal %6, %3 : (tensor<1x2x3xf32>, tensor<1x1x1xf32>) -> tensor<1x2x3xi1>
  %15 = tosa.greater %3, %6 : (tensor<1x1x1xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xi1>
  %16 = tosa.logical_and %14, %13 : (tensor<1x2x3xi1>, tensor<1x2x3xi1>) -> tensor<1x2x3xi1>
  %17 = tosa.logical_or %15, %16 : (tensor<1x2x3xi1>, tensor<1x2x3xi1>) -> tensor<1x2x3xi1>
  %18 = tosa.select %17, %5, %7 : (tensor<1x2x3xi1>, tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %19 = "tosa.const"() <{values = dense<-5.000000e+00> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %20 = tosa.add %18, %19 : (tensor<1x2x3xf32>, tensor<1x1x1xf32>) -> tensor<1x2x3xf32>
  %21 = tosa.clamp %20 {max_val = 1.270000e+02 : f32, min_val = -1.280000e+02 : f32} : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %22 = tosa.cast %21 : (tensor<1x2x3xf32>) -> tensor<1x2x3xi8>
  %23 = "tosa.const"() <{values = dense<[[[1, 2], [3, -4], [5, 6]]]> : tensor<1x3x2xi8>}> : () -> tensor<1x3x2xi8>
  %24 = "tosa.const"() <{values = dense<-5> : tensor<1xi8>}> : () -> tensor<1xi8>
  %25 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %26 = tosa.matmul %22, %23, %24, %25 : (tensor<1x2x3xi8>, tensor<1x3x2xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x2x2xi32>
  return %26 : tensor<1x2x2xi32>
}
