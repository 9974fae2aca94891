// RUN: qfuse-opt %s --target affine-generic | filecheck %s
// RUN: qfuse-opt %s --target affine-generic --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

!q = !quant.uniform<i8:f32, 0.25:3>
!c = !quant.uniform<i8:f32:0, {0.5, 0.25}>

// CHECK-LABEL: func.func @quantize(
// CHECK: arith.divf
// CHECK-NEXT: math.roundeven
// CHECK-NEXT: arith.constant 3.000000e+00
// CHECK-NEXT: arith.addf
// CHECK: arith.maximumf
// CHECK: arith.minimumf
// CHECK-NEXT: arith.fptosi
// REMARK: remark: qfuse.lower-affine: quant.qcast: exactness bit-exact, result s8 per-tensor asymmetric
func.func @quantize(%x: tensor<2x4xf32>) -> tensor<2x4xi8> {
  %t = quant.qcast %x : tensor<2x4xf32> to tensor<2x4x!q>
  %r = quant.scast %t : tensor<2x4x!q> to tensor<2x4xi8>
  return %r : tensor<2x4xi8>
}

// A scale a row.
// CHECK-LABEL: func.func @dequantize(
// CHECK: [[S:%[a-z0-9_]+]] = arith.constant dense<[5.000000e-01, 2.500000e-01]> : tensor<2xf32>
// CHECK: linalg.generic {{.*}} ins(%arg0, [[S]] : tensor<2x4xi8>, tensor<2xf32>)
// CHECK: arith.extsi
// CHECK-NEXT: arith.sitofp
// CHECK-NEXT: arith.mulf
// REMARK: remark: qfuse.lower-affine: quant.dcast: exactness bit-exact
func.func @dequantize(%q: tensor<2x4xi8>) -> tensor<2x4xf32> {
  %t = quant.scast %q : tensor<2x4xi8> to tensor<2x4x!c>
  %d = quant.dcast %t : tensor<2x4x!c> to tensor<2x4xf32>
  return %d : tensor<2x4xf32>
}
