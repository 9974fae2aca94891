// RUN: qfuse-opt %s | filecheck %s
// RUN: qfuse-opt %s --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>
#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#d0 = affine_map<(d0, d1) -> (d0)>
#d1 = affine_map<(d0, d1) -> (d1)>

// Order is kept by a positive scale: the maximum is taken on the integers, and the quantize with equal parameters cancels.
// CHECK-LABEL: func.func @max_pooling(
// CHECK: arith.constant -128 : i8
// CHECK: [[M:%[0-9]+]] = linalg.generic {{.*}} ins(%arg0, %{{.*}} : tensor<1x2x4x4xi8>, tensor<2x2xi8>) outs(%{{.*}} : tensor<1x2x2x2xi8>)
// CHECK: arith.maxsi
// CHECK-NOT: math.roundeven
// CHECK: return [[M]]
// REMARK: remark: qfuse.maximum: linalg.pooling_nchw_max: exactness bit-exact, input s8 per-tensor asymmetric
// REMARK: remark: qfuse.cancel:
func.func @max_pooling(%qa: tensor<1x2x4x4xi8>) -> tensor<1x2x2x2xi8> {
  %ae = tensor.empty() : tensor<1x2x4x4xf32>
  %a = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qa : tensor<1x2x4x4xi8>) outs(%ae : tensor<1x2x4x4xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vw = arith.extsi %vq : i8 to i64
    %vz = arith.constant 3 : i64
    %vd = arith.subi %vw, %vz : i64
    %vf = arith.sitofp %vd : i64 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<1x2x4x4xf32>
  %me = tensor.empty() : tensor<1x2x2x2xf32>
  %mz = arith.constant 0xFF800000 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %w = tensor.empty() : tensor<2x2xf32>
  %m = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%a, %w : tensor<1x2x4x4xf32>, tensor<2x2xf32>) outs(%mf : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %re = tensor.empty() : tensor<1x2x2x2xi8>
  %r = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%m : tensor<1x2x2x2xf32>) outs(%re : tensor<1x2x2x2xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.5 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vz = arith.constant 3.0 : f32
    %vr = math.roundeven %vd : f32
    %vp = arith.addf %vr, %vz : f32
    %va = arith.maximumf %vp, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<1x2x2x2xi8>
  return %r : tensor<1x2x2x2xi8>
}

// A quantize keeps the order of numbers, so the maximum of a convolution's float value is taken of the integers behind it:
// padding becomes the least of them.
// CHECK-LABEL: func.func @max_pooling_of_accumulators(
// CHECK: [[ACC:%[0-9]+]] = linalg.conv_2d_nchw_fchw {{.*}} -> tensor<1x2x4x4xi32>
// CHECK: [[Q:%[0-9]+]] = linalg.generic {{.*}} ins([[ACC]] : tensor<1x2x4x4xi32>) outs({{.*}} : tensor<1x2x4x4xi8>)
// CHECK: arith.constant -128 : i8
// CHECK: [[P:%[a-z0-9_]+]] = tensor.pad [[Q]]
// CHECK: [[M:%[0-9]+]] = linalg.generic {{.*}} ins([[P]], %{{.*}} : tensor<1x2x6x6xi8>, tensor<2x2xi8>) outs(%{{.*}} : tensor<1x2x3x3xi8>)
// CHECK: arith.maxsi
// CHECK: return [[M]]
// REMARK: remark: qfuse.maximum: linalg.pooling_nchw_max: exactness within-1-lsb, result s8 per-tensor symmetric
// REMARK: remark: qfuse.requantize:
func.func @max_pooling_of_accumulators(%qa: tensor<1x3x5x5xi8>, %qw: tensor<2x3x2x2xi8>) -> tensor<1x2x3x3xi8> {
  %ae = tensor.empty() : tensor<1x3x5x5xf32>
  %a = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qa : tensor<1x3x5x5xi8>) outs(%ae : tensor<1x3x5x5xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<1x3x5x5xf32>
  %we = tensor.empty() : tensor<2x3x2x2xf32>
  %w = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qw : tensor<2x3x2x2xi8>) outs(%we : tensor<2x3x2x2xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<2x3x2x2xf32>
  %ye = tensor.empty() : tensor<1x2x4x4xf32>
  %yz = arith.constant 0.0 : f32
  %yf = linalg.fill ins(%yz : f32) outs(%ye : tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%a, %w : tensor<1x3x5x5xf32>, tensor<2x3x2x2xf32>) outs(%yf : tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %u = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%y : tensor<1x2x4x4xf32>) outs(%ye : tensor<1x2x4x4xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vz = arith.constant 0.0 : f32
    %vr = arith.maximumf %vx, %vz : f32
    linalg.yield %vr : f32
  } -> tensor<1x2x4x4xf32>
  %mz = arith.constant 0xFF800000 : f32
  %p = tensor.pad %u low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %mz : f32
  } : tensor<1x2x4x4xf32> to tensor<1x2x6x6xf32>
  %me = tensor.empty() : tensor<1x2x3x3xf32>
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<1x2x3x3xf32>) -> tensor<1x2x3x3xf32>
  %mw = tensor.empty() : tensor<2x2xf32>
  %m = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%p, %mw : tensor<1x2x6x6xf32>, tensor<2x2xf32>) outs(%mf : tensor<1x2x3x3xf32>) -> tensor<1x2x3x3xf32>
  %re = tensor.empty() : tensor<1x2x3x3xi8>
  %r = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%m : tensor<1x2x3x3xf32>) outs(%re : tensor<1x2x3x3xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.5 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vr = math.roundeven %vd : f32
    %va = arith.maximumf %vr, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<1x2x3x3xi8>
  return %r : tensor<1x2x3x3xi8>
}

// A float maximum needs no integers.
// CHECK-LABEL: func.func @no_fuse_when_the_result_stays_a_float(
// CHECK: linalg.pooling_nchw_max {{.*}} ins(%{{.*}} : tensor<1x2x4x4xf32>, tensor<2x2xf32>)
// REMARK: missed: linalg.pooling_nchw_max: no quantize reads its result
func.func @no_fuse_when_the_result_stays_a_float(%qa: tensor<1x2x4x4xi8>) -> tensor<1x2x2x2xf32> {
  %ae = tensor.empty() : tensor<1x2x4x4xf32>
  %a = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qa : tensor<1x2x4x4xi8>) outs(%ae : tensor<1x2x4x4xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<1x2x4x4xf32>
  %me = tensor.empty() : tensor<1x2x2x2xf32>
  %mz = arith.constant 0xFF800000 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %w = tensor.empty() : tensor<2x2xf32>
  %m = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%a, %w : tensor<1x2x4x4xf32>, tensor<2x2xf32>) outs(%mf : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  return %m : tensor<1x2x2x2xf32>
}

// The result is at least the initial value, which need not be on the grid.
// CHECK-LABEL: func.func @no_fuse_when_it_does_not_start_from_minus_infinity(
// CHECK: linalg.pooling_nchw_max {{.*}} ins(%{{.*}} : tensor<1x2x4x4xf32>, tensor<2x2xf32>)
// REMARK: missed: linalg.pooling_nchw_max: the reduction does not start from the neutral infinity
func.func @no_fuse_when_it_does_not_start_from_minus_infinity(%qa: tensor<1x2x4x4xi8>) -> tensor<1x2x2x2xf32> {
  %ae = tensor.empty() : tensor<1x2x4x4xf32>
  %a = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qa : tensor<1x2x4x4xi8>) outs(%ae : tensor<1x2x4x4xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<1x2x4x4xf32>
  %me = tensor.empty() : tensor<1x2x2x2xf32>
  %mz = arith.constant 1.3 : f32
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %w = tensor.empty() : tensor<2x2xf32>
  %m = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%a, %w : tensor<1x2x4x4xf32>, tensor<2x2xf32>) outs(%mf : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  return %m : tensor<1x2x2x2xf32>
}

// The float maximum is made anyway: that of the integers would be one more.
// CHECK-LABEL: func.func @no_fuse_when_the_maximum_is_read_as_a_float(
// CHECK: linalg.conv_2d_nchw_fchw {{.*}} -> tensor<1x2x4x4xi32>
// CHECK: linalg.pooling_nchw_max {{.*}} ins(%{{.*}} : tensor<1x2x6x6xf32>, tensor<2x2xf32>)
// REMARK: missed: linalg.pooling_nchw_max: several operations read the result, so that it would be taken of integers and of floats
func.func @no_fuse_when_the_maximum_is_read_as_a_float(%qa: tensor<1x3x5x5xi8>, %qw: tensor<2x3x2x2xi8>)
    -> (tensor<1x2x3x3xi8>, tensor<1x2x3x3xf32>) {
  %ae = tensor.empty() : tensor<1x3x5x5xf32>
  %a = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qa : tensor<1x3x5x5xi8>) outs(%ae : tensor<1x3x5x5xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<1x3x5x5xf32>
  %we = tensor.empty() : tensor<2x3x2x2xf32>
  %w = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qw : tensor<2x3x2x2xi8>) outs(%we : tensor<2x3x2x2xf32>) {
  ^bb0(%vq: i8, %vo: f32):
    %vf = arith.sitofp %vq : i8 to f32
    %vs = arith.constant 0.5 : f32
    %vr = arith.mulf %vf, %vs : f32
    linalg.yield %vr : f32
  } -> tensor<2x3x2x2xf32>
  %ye = tensor.empty() : tensor<1x2x4x4xf32>
  %yz = arith.constant 0.0 : f32
  %yf = linalg.fill ins(%yz : f32) outs(%ye : tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%a, %w : tensor<1x3x5x5xf32>, tensor<2x3x2x2xf32>) outs(%yf : tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %u = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%y : tensor<1x2x4x4xf32>) outs(%ye : tensor<1x2x4x4xf32>) {
  ^bb0(%vx: f32, %vo: f32):
    %vz = arith.constant 0.0 : f32
    %vr = arith.maximumf %vx, %vz : f32
    linalg.yield %vr : f32
  } -> tensor<1x2x4x4xf32>
  %mz = arith.constant 0xFF800000 : f32
  %p = tensor.pad %u low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %mz : f32
  } : tensor<1x2x4x4xf32> to tensor<1x2x6x6xf32>
  %me = tensor.empty() : tensor<1x2x3x3xf32>
  %mf = linalg.fill ins(%mz : f32) outs(%me : tensor<1x2x3x3xf32>) -> tensor<1x2x3x3xf32>
  %mw = tensor.empty() : tensor<2x2xf32>
  %m = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%p, %mw : tensor<1x2x6x6xf32>, tensor<2x2xf32>) outs(%mf : tensor<1x2x3x3xf32>) -> tensor<1x2x3x3xf32>
  %re = tensor.empty() : tensor<1x2x3x3xi8>
  %r = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%m : tensor<1x2x3x3xf32>) outs(%re : tensor<1x2x3x3xi8>) {
  ^bb0(%vx: f32, %vo: i8):
    %vs = arith.constant 0.5 : f32
    %vl = arith.constant -128.0 : f32
    %vh = arith.constant 127.0 : f32
    %vd = arith.divf %vx, %vs : f32
    %vr = math.roundeven %vd : f32
    %va = arith.maximumf %vr, %vl : f32
    %vb = arith.minimumf %va, %vh : f32
    %vc = arith.fptosi %vb : f32 to i8
    linalg.yield %vc : i8
  } -> tensor<1x2x3x3xi8>
  return %r, %m : tensor<1x2x3x3xi8>, tensor<1x2x3x3xf32>
}
