// RUN: qfuse-opt %s --target=tosa-int | filecheck %s
// RUN: qfuse-opt %s --target=tosa-int --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

// A cast to i8 saturates at 127: signed ones are made, 128 less, and their bits read as unsigned by who gets them.
// CHECK-LABEL: func.func @unsigned(
// CHECK-DAG: [[HALF:%[0-9]+]] = "tosa.const"() <{values = dense<1.280000e+02> : tensor<1x1xf32>}>
// CHECK: [[C:%[0-9]+]] = tosa.clamp {{.*}}max_val = 2.550000e+02 : f32, min_val = 0.000000e+00 : f32
// CHECK-NEXT: [[S:%[0-9]+]] = tosa.sub [[C]], [[HALF]]
// CHECK-NEXT: [[Q:%[0-9]+]] = tosa.cast [[S]] : (tensor<2x3xf32>) -> tensor<2x3xi8>
// CHECK-NEXT: [[U:%[0-9]+]] = tosa.rescale [[Q]], {{.*}}input_unsigned = false, output_unsigned = true
// CHECK-NEXT: return [[U]]
// REMARK: remark: qfuse.repair-quantize: tosa.cast: exactness bit-exact, result u8 per-tensor asymmetric, repaired
// REMARK-SAME: results differ from the unfused module's
func.func @unsigned(%arg0: tensor<2x3xf32>) -> tensor<2x3xi8> {
  %0 = "tosa.const"() <{values = dense<5.000000e+01> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %1 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %2 = tosa.mul %arg0, %0, %1 : (tensor<2x3xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x3xf32>
  %3 = "tosa.const"() <{values = dense<5.000000e-01> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %4 = "tosa.const"() <{values = dense<2.000000e+00> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %5 = tosa.floor %2 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %6 = tosa.sub %2, %5 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %7 = tosa.ceil %2 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %8 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %9 = tosa.mul %5, %3, %8 : (tensor<2x3xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x3xf32>
  %10 = tosa.floor %9 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %11 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %12 = tosa.mul %10, %4, %11 : (tensor<2x3xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x3xf32>
  %13 = tosa.equal %5, %12 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  %14 = tosa.equal %6, %3 : (tensor<2x3xf32>, tensor<1x1xf32>) -> tensor<2x3xi1>
  %15 = tosa.greater %3, %6 : (tensor<1x1xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  %16 = tosa.logical_and %14, %13 : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
  %17 = tosa.logical_or %15, %16 : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
  %18 = tosa.select %17, %5, %7 : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %19 = "tosa.const"() <{values = dense<7.000000e+00> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %20 = tosa.add %18, %19 : (tensor<2x3xf32>, tensor<1x1xf32>) -> tensor<2x3xf32>
  %21 = tosa.clamp %20 {max_val = 2.550000e+02 : f32, min_val = 0.000000e+00 : f32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %22 = tosa.cast %21 : (tensor<2x3xf32>) -> tensor<2x3xi8>
  return %22 : tensor<2x3xi8>
}

// Nothing to repair.
// CHECK-LABEL: func.func @signed(
// CHECK: [[C:%[0-9]+]] = tosa.clamp
// CHECK-NEXT: [[Q:%[0-9]+]] = tosa.cast [[C]] : (tensor<2x3xf32>) -> tensor<2x3xi8>
// CHECK-NEXT: return [[Q]]
// REMARK-NOT: repair-quantize
func.func @signed(%arg0: tensor<2x3xf32>) -> tensor<2x3xi8> {
  %0 = "tosa.const"() <{values = dense<5.000000e+01> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %1 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %2 = tosa.mul %arg0, %0, %1 : (tensor<2x3xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x3xf32>
  %3 = "tosa.const"() <{values = dense<5.000000e-01> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %4 = "tosa.const"() <{values = dense<2.000000e+00> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %5 = tosa.floor %2 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %6 = tosa.sub %2, %5 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %7 = tosa.ceil %2 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %8 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %9 = tosa.mul %5, %3, %8 : (tensor<2x3xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x3xf32>
  %10 = tosa.floor %9 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %11 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %12 = tosa.mul %10, %4, %11 : (tensor<2x3xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x3xf32>
  %13 = tosa.equal %5, %12 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  %14 = tosa.equal %6, %3 : (tensor<2x3xf32>, tensor<1x1xf32>) -> tensor<2x3xi1>
  %15 = tosa.greater %3, %6 : (tensor<1x1xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  %16 = tosa.logical_and %14, %13 : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
  %17 = tosa.logical_or %15, %16 : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
  %18 = tosa.select %17, %5, %7 : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %19 = "tosa.const"() <{values = dense<7.000000e+00> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %20 = tosa.add %18, %19 : (tensor<2x3xf32>, tensor<1x1xf32>) -> tensor<2x3xf32>
  %21 = tosa.clamp %20 {max_val = 1.270000e+02 : f32, min_val = -1.280000e+02 : f32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %22 = tosa.cast %21 : (tensor<2x3xf32>) -> tensor<2x3xi8>
  return %22 : tensor<2x3xi8>
}
