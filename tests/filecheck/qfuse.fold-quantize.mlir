// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// Divided, rounded half to even, clamped now.
// CHECK-LABEL: func.func @a_constant(
// CHECK: [[C:%[a-z0-9]+]] = arith.constant dense<{{\[\[}}0, 1, 1, 2, -2, 127]]> : tensor<1x6xi8>
// CHECK-NEXT: return [[C]]
// REMARK: remark: qfuse.fold-quantize: linalg.generic: exactness bit-exact, result s8 per-tensor symmetric
func.func @a_constant() -> tensor<1x6xi8> {
  %c = arith.constant dense<[[0.1, 0.2, 0.3, 0.375, -0.375, 1.0e+09]]> : tensor<1x6xf32>
  %re = tensor.empty() : tensor<1x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<1x6xf32>) outs(%re : tensor<1x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<1x6xi8>
  return %r : tensor<1x6xi8>
}

// Stays a splat; 200 is -56 as a signless i8.
// CHECK-LABEL: func.func @a_splat_unsigned(
// CHECK: [[C:%[a-z0-9]+]] = arith.constant dense<-56> : tensor<4x6xi8>
// CHECK-NEXT: return [[C]]
// REMARK: remark: qfuse.fold-quantize: linalg.generic: exactness bit-exact, result u8 per-tensor symmetric
func.func @a_splat_unsigned() -> tensor<4x6xi8> {
  %c = arith.constant dense<50.0> : tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant 0.0 : f32
    %vh = arith.constant 255.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptoui %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// The folded weight is an operand of the integer contraction.
// CHECK-LABEL: func.func @feeds_a_contraction(
// CHECK: [[C:%[a-z0-9]+]] = arith.constant dense<{{\[\[}}0, 1, 1, 2, -2, 127]]> : tensor<1x6xi8>
// CHECK: linalg.generic {{.*}} ins(%arg0, [[C]] : tensor<4x1xi8>, tensor<1x6xi8>) outs(%{{.*}} : tensor<4x6xi32>)
// REMARK: remark: qfuse.fold-quantize: linalg.generic: exactness bit-exact, result s8 per-tensor symmetric
// REMARK: remark: qfuse.contraction: linalg.matmul: {{.*}}, accumulator i32, accumulator_bound 16384
func.func @feeds_a_contraction(%qa: tensor<4x1xi8>) -> tensor<4x6xf32> {
  %c = arith.constant dense<[[0.1, 0.2, 0.3, 0.375, -0.375, 1.0e+09]]> : tensor<1x6xf32>
  %qe = tensor.empty() : tensor<1x6xi8>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<1x6xf32>) outs(%qe : tensor<1x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<1x6xi8>
  %ae = tensor.empty() : tensor<4x1xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%qa : tensor<4x1xi8>) outs(%ae : tensor<4x1xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<4x1xf32>
  %be = tensor.empty() : tensor<1x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<1x6xi8>) outs(%be : tensor<1x6xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.25 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<1x6xf32>
  %me = tensor.empty() : tensor<4x6xf32>
  %mz = arith.constant 0.0 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<4x6xf32>) -> tensor<4x6xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x1xf32>, tensor<1x6xf32>)
      outs(%mf : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}

// Left as it is.
// CHECK-LABEL: func.func @no_fold_when_the_input_is_no_constant(
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<4x6xf32>)
// CHECK: math.roundeven
// REMARK-NOT: remark: qfuse.fold-quantize
func.func @no_fold_when_the_input_is_no_constant(%x: tensor<4x6xf32>) -> tensor<4x6xi8> {
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// Nothing to compute with.
// CHECK-LABEL: func.func @no_fold_when_the_values_are_elided(
// CHECK: dense_resource<__elided__> : tensor<4x6xf32>
// CHECK: math.roundeven
func.func @no_fold_when_the_values_are_elided() -> tensor<4x6xi8> {
  %c = arith.constant dense_resource<__elided__> : tensor<4x6xf32>
  %re = tensor.empty() : tensor<4x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<4x6xf32>) outs(%re : tensor<4x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.25 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<4x6xi8>
  return %r : tensor<4x6xi8>
}

// Refused.
// CHECK-LABEL: func.func @no_fold_when_the_scale_is_zero(
// CHECK: dense<{{.*}}> : tensor<1x6xf32>
// CHECK: math.roundeven
// REMARK: missed: linalg.generic: a scale is zero
func.func @no_fold_when_the_scale_is_zero() -> tensor<1x6xi8> {
  %c = arith.constant dense<[[0.1, 0.2, 0.3, 0.375, -0.375, 1.0e+09]]> : tensor<1x6xf32>
  %re = tensor.empty() : tensor<1x6xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<1x6xf32>) outs(%re : tensor<1x6xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.0 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vp = math.roundeven %vd : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<1x6xi8>
  return %r : tensor<1x6xi8>
}
