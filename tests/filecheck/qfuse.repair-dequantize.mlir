// RUN: qfuse-opt %s --target=tosa-int | filecheck %s
// RUN: qfuse-opt %s --target=tosa-int --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

// No signed byte has a zero point of 200.
// CHECK-LABEL: func.func @unsigned(
// CHECK-DAG: [[Z:%[0-9]+]] = "tosa.const"() <{values = dense<72> : tensor<1x1xi32>}>
// CHECK: [[S:%[0-9]+]] = tosa.rescale %arg0, {{.*}}input_unsigned = true, output_unsigned = false
// CHECK-NEXT: [[I:%[0-9]+]] = tosa.cast [[S]] : (tensor<2x3xi8>) -> tensor<2x3xi32>
// CHECK-NEXT: [[D:%[0-9]+]] = tosa.sub [[I]], [[Z]]
// CHECK-NEXT: [[F:%[0-9]+]] = tosa.cast [[D]] : (tensor<2x3xi32>) -> tensor<2x3xf32>
// CHECK-NEXT: [[X:%[0-9]+]] = tosa.mul [[F]]
// CHECK-NEXT: return [[X]]
// REMARK: remark: qfuse.repair-dequantize: tosa.mul: exactness bit-exact, input u8 per-tensor asymmetric, repaired
// REMARK-SAME: results differ from the unfused module's
func.func @unsigned(%arg0: tensor<2x3xi8>) -> tensor<2x3xf32> {
  %0 = tosa.cast %arg0 : (tensor<2x3xi8>) -> tensor<2x3xi32>
  %1 = "tosa.const"() <{values = dense<200> : tensor<1x1xi32>}> : () -> tensor<1x1xi32>
  %2 = tosa.sub %0, %1 : (tensor<2x3xi32>, tensor<1x1xi32>) -> tensor<2x3xi32>
  %3 = tosa.cast %2 : (tensor<2x3xi32>) -> tensor<2x3xf32>
  %4 = "tosa.const"() <{values = dense<2.000000e-02> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %6 = tosa.mul %3, %4, %5 : (tensor<2x3xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x3xf32>
  return %6 : tensor<2x3xf32>
}

// Nothing to repair.
// CHECK-LABEL: func.func @signed(
// CHECK-NOT: tosa.rescale
// CHECK: [[I:%[0-9]+]] = tosa.cast %arg0 : (tensor<2x3xi8>) -> tensor<2x3xi32>
// REMARK-NOT: repair-dequantize
func.func @signed(%arg0: tensor<2x3xi8>) -> tensor<2x3xf32> {
  %0 = tosa.cast %arg0 : (tensor<2x3xi8>) -> tensor<2x3xi32>
  %1 = "tosa.const"() <{values = dense<7> : tensor<1x1xi32>}> : () -> tensor<1x1xi32>
  %2 = tosa.sub %0, %1 : (tensor<2x3xi32>, tensor<1x1xi32>) -> tensor<2x3xi32>
  %3 = tosa.cast %2 : (tensor<2x3xi32>) -> tensor<2x3xf32>
  %4 = "tosa.const"() <{values = dense<2.000000e-02> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %6 = tosa.mul %3, %4, %5 : (tensor<2x3xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x3xf32>
  return %6 : tensor<2x3xf32>
}
