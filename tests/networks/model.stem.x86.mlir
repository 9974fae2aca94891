#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0)>
#map4 = affine_map<(d0, d1, d2, d3) -> ()>
#map5 = affine_map<(d0, d1) -> (d1)>
module {
  func.func @main(%arg0: tensor<1x3x16x16xf32>) -> tensor<1x5xf32> {
    %c137_i64 = arith.constant 137 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant dense<6.000000e+00> : tensor<f32>
    %cst_2 = arith.constant dense<0.000000e+00> : tensor<f32>
    %cst_3 = arith.constant dense_resource<torch_tensor_5_torch.float32_1> : tensor<5xf32>
    %cst_4 = arith.constant dense_resource<torch_tensor_12_torch.float32_1> : tensor<12xf32>
    %cst_5 = arith.constant dense_resource<torch_tensor_8_torch.float32_5> : tensor<8xf32>
    %cst_6 = arith.constant dense_resource<torch_tensor_8_torch.float32_4> : tensor<8xf32>
    %cst_7 = arith.constant dense_resource<torch_tensor_8_torch.float32_3> : tensor<8xf32>
    %cst_8 = arith.constant dense_resource<torch_tensor_5_torch.float32> : tensor<5xf32>
    %cst_9 = arith.constant dense_resource<torch_tensor_12_torch.float32> : tensor<12xf32>
    %cst_10 = arith.constant dense_resource<torch_tensor_8_torch.float32_2> : tensor<8xf32>
    %cst_11 = arith.constant dense_resource<torch_tensor_8_torch.float32_1> : tensor<8xf32>
    %cst_12 = arith.constant dense_resource<torch_tensor_8_torch.float32> : tensor<8xf32>
    %cst_13 = arith.constant 2.550000e+02 : f32
    %cst_14 = arith.constant 0.0299006104 : f32
    %cst_15 = arith.constant 1.370000e+02 : f32
    %cst_16 = arith.constant 0.00792139582 : f32
    %cst_17 = arith.constant 0.00419874629 : f32
    %cst_18 = arith.constant 0.00798876769 : f32
    %cst_19 = arith.constant 0.00408952357 : f32
    %cst_20 = arith.constant dense_resource<torch_tensor_5_torch.int64> : tensor<5xi64>
    %cst_21 = arith.constant dense_resource<torch_tensor_5_12_torch.int8> : tensor<5x12xi8>
    %cst_22 = arith.constant dense_resource<torch_tensor_12_torch.int64> : tensor<12xi64>
    %cst_23 = arith.constant dense_resource<torch_tensor_12_8_3_3_torch.int8> : tensor<12x8x3x3xi8>
    %cst_24 = arith.constant dense_resource<torch_tensor_8_torch.int64_2> : tensor<8xi64>
    %cst_25 = arith.constant dense_resource<torch_tensor_8_8_3_3_torch.int8_1> : tensor<8x8x3x3xi8>
    %cst_26 = arith.constant dense_resource<torch_tensor_8_torch.int64_1> : tensor<8xi64>
    %cst_27 = arith.constant dense_resource<torch_tensor_8_8_3_3_torch.int8> : tensor<8x8x3x3xi8>
    %cst_28 = arith.constant dense_resource<torch_tensor_8_3_5_5_torch.int8> : tensor<8x3x5x5xi8>
    %cst_29 = arith.constant dense_resource<torch_tensor_8_torch.int64> : tensor<8xi64>
    %0 = tensor.empty() : tensor<8x3x5x5xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1, #map1, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_28, %cst_12, %cst_29 : tensor<8x3x5x5xi8>, tensor<8xf32>, tensor<8xi64>) outs(%0 : tensor<8x3x5x5xf32>) {
    ^bb0(%in: i8, %in_36: f32, %in_37: i64, %out: f32):
      %55 = arith.extsi %in : i8 to i64
      %56 = arith.subi %55, %in_37 : i64
      %57 = arith.sitofp %56 : i64 to f32
      %58 = arith.mulf %57, %in_36 : f32
      linalg.yield %58 : f32
    } -> tensor<8x3x5x5xf32>
    %2 = tensor.empty() : tensor<8x8x3x3xf32>
    %3 = linalg.generic {indexing_maps = [#map, #map1, #map1, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_27, %cst_11, %cst_26 : tensor<8x8x3x3xi8>, tensor<8xf32>, tensor<8xi64>) outs(%2 : tensor<8x8x3x3xf32>) {
    ^bb0(%in: i8, %in_36: f32, %in_37: i64, %out: f32):
      %55 = arith.extsi %in : i8 to i64
      %56 = arith.subi %55, %in_37 : i64
      %57 = arith.sitofp %56 : i64 to f32
      %58 = arith.mulf %57, %in_36 : f32
      linalg.yield %58 : f32
    } -> tensor<8x8x3x3xf32>
    %4 = linalg.generic {indexing_maps = [#map, #map1, #map1, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_25, %cst_10, %cst_24 : tensor<8x8x3x3xi8>, tensor<8xf32>, tensor<8xi64>) outs(%2 : tensor<8x8x3x3xf32>) {
    ^bb0(%in: i8, %in_36: f32, %in_37: i64, %out: f32):
      %55 = arith.extsi %in : i8 to i64
      %56 = arith.subi %55, %in_37 : i64
      %57 = arith.sitofp %56 : i64 to f32
      %58 = arith.mulf %57, %in_36 : f32
      linalg.yield %58 : f32
    } -> tensor<8x8x3x3xf32>
    %5 = tensor.empty() : tensor<12x8x3x3xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map1, #map1, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_23, %cst_9, %cst_22 : tensor<12x8x3x3xi8>, tensor<12xf32>, tensor<12xi64>) outs(%5 : tensor<12x8x3x3xf32>) {
    ^bb0(%in: i8, %in_36: f32, %in_37: i64, %out: f32):
      %55 = arith.extsi %in : i8 to i64
      %56 = arith.subi %55, %in_37 : i64
      %57 = arith.sitofp %56 : i64 to f32
      %58 = arith.mulf %57, %in_36 : f32
      linalg.yield %58 : f32
    } -> tensor<12x8x3x3xf32>
    %7 = tensor.empty() : tensor<5x12xf32>
    %8 = linalg.generic {indexing_maps = [#map2, #map3, #map3, #map2], iterator_types = ["parallel", "parallel"]} ins(%cst_21, %cst_8, %cst_20 : tensor<5x12xi8>, tensor<5xf32>, tensor<5xi64>) outs(%7 : tensor<5x12xf32>) {
    ^bb0(%in: i8, %in_36: f32, %in_37: i64, %out: f32):
      %55 = arith.extsi %in : i8 to i64
      %56 = arith.subi %55, %in_37 : i64
      %57 = arith.sitofp %56 : i64 to f32
      %58 = arith.mulf %57, %in_36 : f32
      linalg.yield %58 : f32
    } -> tensor<5x12xf32>
    %9 = tensor.empty() : tensor<1x3x16x16xi8>
    %10 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0 : tensor<1x3x16x16xf32>) outs(%9 : tensor<1x3x16x16xi8>) {
    ^bb0(%in: f32, %out: i8):
      %55 = arith.divf %in, %cst_14 : f32
      %56 = math.roundeven %55 : f32
      %57 = arith.addf %56, %cst_15 : f32
      %58 = arith.maximumf %57, %cst : f32
      %59 = arith.minimumf %58, %cst_13 : f32
      %60 = arith.fptoui %59 : f32 to i8
      linalg.yield %60 : i8
    } -> tensor<1x3x16x16xi8>
    %11 = tensor.empty() : tensor<1x3x16x16xf32>
    %12 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%10 : tensor<1x3x16x16xi8>) outs(%11 : tensor<1x3x16x16xf32>) {
    ^bb0(%in: i8, %out: f32):
      %55 = arith.extui %in : i8 to i64
      %56 = arith.subi %55, %c137_i64 : i64
      %57 = arith.sitofp %56 : i64 to f32
      %58 = arith.mulf %57, %cst_14 : f32
      linalg.yield %58 : f32
    } -> tensor<1x3x16x16xf32>
    %padded = tensor.pad %12 low[0, 0, 2, 2] high[0, 0, 2, 2] {
    ^bb0(%arg1: index, %arg2: index, %arg3: index, %arg4: index):
      tensor.yield %cst : f32
    } : tensor<1x3x16x16xf32> to tensor<1x3x20x20xf32>
    %13 = tensor.empty() : tensor<1x8x8x8xf32>
    %broadcasted = linalg.broadcast ins(%cst_7 : tensor<8xf32>) outs(%13 : tensor<1x8x8x8xf32>) dimensions = [0, 2, 3] 
    %14 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>} ins(%padded, %1 : tensor<1x3x20x20xf32>, tensor<8x3x5x5xf32>) outs(%broadcasted : tensor<1x8x8x8xf32>) -> tensor<1x8x8x8xf32>
    %15 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14 : tensor<1x8x8x8xf32>) outs(%13 : tensor<1x8x8x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %55 = arith.cmpf ugt, %in, %cst : f32
      %56 = arith.select %55, %in, %cst : f32
      linalg.yield %56 : f32
    } -> tensor<1x8x8x8xf32>
    %padded_30 = tensor.pad %15 low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%arg1: index, %arg2: index, %arg3: index, %arg4: index):
      tensor.yield %cst_0 : f32
    } : tensor<1x8x8x8xf32> to tensor<1x8x10x10xf32>
    %16 = tensor.empty() : tensor<1x8x4x4xf32>
    %17 = linalg.fill ins(%cst_0 : f32) outs(%16 : tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %18 = tensor.empty() : tensor<3x3xf32>
    %19 = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>} ins(%padded_30, %18 : tensor<1x8x10x10xf32>, tensor<3x3xf32>) outs(%17 : tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %20 = tensor.empty() : tensor<1x8x4x4xi8>
    %21 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%19 : tensor<1x8x4x4xf32>) outs(%20 : tensor<1x8x4x4xi8>) {
    ^bb0(%in: f32, %out: i8):
      %55 = arith.divf %in, %cst_16 : f32
      %56 = math.roundeven %55 : f32
      %57 = arith.addf %56, %cst : f32
      %58 = arith.maximumf %57, %cst : f32
      %59 = arith.minimumf %58, %cst_13 : f32
      %60 = arith.fptoui %59 : f32 to i8
      linalg.yield %60 : i8
    } -> tensor<1x8x4x4xi8>
    %22 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21 : tensor<1x8x4x4xi8>) outs(%16 : tensor<1x8x4x4xf32>) {
    ^bb0(%in: i8, %out: f32):
      %55 = arith.uitofp %in : i8 to f32
      %56 = arith.mulf %55, %cst_16 : f32
      linalg.yield %56 : f32
    } -> tensor<1x8x4x4xf32>
    %padded_31 = tensor.pad %22 low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%arg1: index, %arg2: index, %arg3: index, %arg4: index):
      tensor.yield %cst : f32
    } : tensor<1x8x4x4xf32> to tensor<1x8x6x6xf32>
    %broadcasted_32 = linalg.broadcast ins(%cst_6 : tensor<8xf32>) outs(%16 : tensor<1x8x4x4xf32>) dimensions = [0, 2, 3] 
    %23 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%padded_31, %3 : tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) outs(%broadcasted_32 : tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %24 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%23 : tensor<1x8x4x4xf32>) outs(%16 : tensor<1x8x4x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %55 = arith.cmpf ugt, %in, %cst : f32
      %56 = arith.select %55, %in, %cst : f32
      linalg.yield %56 : f32
    } -> tensor<1x8x4x4xf32>
    %25 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%24 : tensor<1x8x4x4xf32>) outs(%20 : tensor<1x8x4x4xi8>) {
    ^bb0(%in: f32, %out: i8):
      %55 = arith.divf %in, %cst_17 : f32
      %56 = math.roundeven %55 : f32
      %57 = arith.addf %56, %cst : f32
      %58 = arith.maximumf %57, %cst : f32
      %59 = arith.minimumf %58, %cst_13 : f32
      %60 = arith.fptoui %59 : f32 to i8
      linalg.yield %60 : i8
    } -> tensor<1x8x4x4xi8>
    %26 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%25 : tensor<1x8x4x4xi8>) outs(%16 : tensor<1x8x4x4xf32>) {
    ^bb0(%in: i8, %out: f32):
      %55 = arith.uitofp %in : i8 to f32
      %56 = arith.mulf %55, %cst_17 : f32
      linalg.yield %56 : f32
    } -> tensor<1x8x4x4xf32>
    %padded_33 = tensor.pad %26 low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%arg1: index, %arg2: index, %arg3: index, %arg4: index):
      tensor.yield %cst : f32
    } : tensor<1x8x4x4xf32> to tensor<1x8x6x6xf32>
    %broadcasted_34 = linalg.broadcast ins(%cst_5 : tensor<8xf32>) outs(%16 : tensor<1x8x4x4xf32>) dimensions = [0, 2, 3] 
    %27 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%padded_33, %4 : tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) outs(%broadcasted_34 : tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %28 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%27, %22 : tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) outs(%16 : tensor<1x8x4x4xf32>) {
    ^bb0(%in: f32, %in_36: f32, %out: f32):
      %55 = arith.addf %in, %in_36 : f32
      linalg.yield %55 : f32
    } -> tensor<1x8x4x4xf32>
    %29 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%28 : tensor<1x8x4x4xf32>) outs(%16 : tensor<1x8x4x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %55 = arith.cmpf ugt, %in, %cst : f32
      %56 = arith.select %55, %in, %cst : f32
      linalg.yield %56 : f32
    } -> tensor<1x8x4x4xf32>
    %30 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%29 : tensor<1x8x4x4xf32>) outs(%20 : tensor<1x8x4x4xi8>) {
    ^bb0(%in: f32, %out: i8):
      %55 = arith.divf %in, %cst_18 : f32
      %56 = math.roundeven %55 : f32
      %57 = arith.addf %56, %cst : f32
      %58 = arith.maximumf %57, %cst : f32
      %59 = arith.minimumf %58, %cst_13 : f32
      %60 = arith.fptoui %59 : f32 to i8
      linalg.yield %60 : i8
    } -> tensor<1x8x4x4xi8>
    %31 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%30 : tensor<1x8x4x4xi8>) outs(%16 : tensor<1x8x4x4xf32>) {
    ^bb0(%in: i8, %out: f32):
      %55 = arith.uitofp %in : i8 to f32
      %56 = arith.mulf %55, %cst_18 : f32
      linalg.yield %56 : f32
    } -> tensor<1x8x4x4xf32>
    %32 = tensor.empty() : tensor<1x12x2x2xf32>
    %broadcasted_35 = linalg.broadcast ins(%cst_4 : tensor<12xf32>) outs(%32 : tensor<1x12x2x2xf32>) dimensions = [0, 2, 3] 
    %33 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%31, %6 : tensor<1x8x4x4xf32>, tensor<12x8x3x3xf32>) outs(%broadcasted_35 : tensor<1x12x2x2xf32>) -> tensor<1x12x2x2xf32>
    %34 = linalg.generic {indexing_maps = [#map, #map4, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%33, %cst_2 : tensor<1x12x2x2xf32>, tensor<f32>) outs(%32 : tensor<1x12x2x2xf32>) {
    ^bb0(%in: f32, %in_36: f32, %out: f32):
      %55 = arith.cmpf ogt, %in, %in_36 : f32
      %56 = arith.select %55, %in, %in_36 : f32
      linalg.yield %56 : f32
    } -> tensor<1x12x2x2xf32>
    %35 = linalg.generic {indexing_maps = [#map4, #map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_1, %34 : tensor<f32>, tensor<1x12x2x2xf32>) outs(%32 : tensor<1x12x2x2xf32>) {
    ^bb0(%in: f32, %in_36: f32, %out: f32):
      %55 = arith.cmpf olt, %in, %in_36 : f32
      %56 = arith.select %55, %in, %in_36 : f32
      linalg.yield %56 : f32
    } -> tensor<1x12x2x2xf32>
    %36 = tensor.empty() : tensor<1x12x2x2xi8>
    %37 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%35 : tensor<1x12x2x2xf32>) outs(%36 : tensor<1x12x2x2xi8>) {
    ^bb0(%in: f32, %out: i8):
      %55 = arith.divf %in, %cst_19 : f32
      %56 = math.roundeven %55 : f32
      %57 = arith.addf %56, %cst : f32
      %58 = arith.maximumf %57, %cst : f32
      %59 = arith.minimumf %58, %cst_13 : f32
      %60 = arith.fptoui %59 : f32 to i8
      linalg.yield %60 : i8
    } -> tensor<1x12x2x2xi8>
    %38 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%37 : tensor<1x12x2x2xi8>) outs(%32 : tensor<1x12x2x2xf32>) {
    ^bb0(%in: i8, %out: f32):
      %55 = arith.uitofp %in : i8 to f32
      %56 = arith.mulf %55, %cst_19 : f32
      linalg.yield %56 : f32
    } -> tensor<1x12x2x2xf32>
    %39 = tensor.empty() : tensor<1x12x1x1xf32>
    %40 = linalg.fill ins(%cst_0 : f32) outs(%39 : tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xf32>
    %41 = tensor.empty() : tensor<2x2xf32>
    %42 = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>} ins(%38, %41 : tensor<1x12x2x2xf32>, tensor<2x2xf32>) outs(%40 : tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xf32>
    %43 = tensor.empty() : tensor<1x12x1x1xi8>
    %44 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%42 : tensor<1x12x1x1xf32>) outs(%43 : tensor<1x12x1x1xi8>) {
    ^bb0(%in: f32, %out: i8):
      %55 = arith.divf %in, %cst_19 : f32
      %56 = math.roundeven %55 : f32
      %57 = arith.addf %56, %cst : f32
      %58 = arith.maximumf %57, %cst : f32
      %59 = arith.minimumf %58, %cst_13 : f32
      %60 = arith.fptoui %59 : f32 to i8
      linalg.yield %60 : i8
    } -> tensor<1x12x1x1xi8>
    %45 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%44 : tensor<1x12x1x1xi8>) outs(%39 : tensor<1x12x1x1xf32>) {
    ^bb0(%in: i8, %out: f32):
      %55 = arith.uitofp %in : i8 to f32
      %56 = arith.mulf %55, %cst_19 : f32
      linalg.yield %56 : f32
    } -> tensor<1x12x1x1xf32>
    %collapsed = tensor.collapse_shape %45 [[0], [1, 2, 3]] : tensor<1x12x1x1xf32> into tensor<1x12xf32>
    %46 = tensor.empty() : tensor<1x12xi8>
    %47 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel"]} ins(%collapsed : tensor<1x12xf32>) outs(%46 : tensor<1x12xi8>) {
    ^bb0(%in: f32, %out: i8):
      %55 = arith.divf %in, %cst_19 : f32
      %56 = math.roundeven %55 : f32
      %57 = arith.addf %56, %cst : f32
      %58 = arith.maximumf %57, %cst : f32
      %59 = arith.minimumf %58, %cst_13 : f32
      %60 = arith.fptoui %59 : f32 to i8
      linalg.yield %60 : i8
    } -> tensor<1x12xi8>
    %48 = tensor.empty() : tensor<1x12xf32>
    %49 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel"]} ins(%47 : tensor<1x12xi8>) outs(%48 : tensor<1x12xf32>) {
    ^bb0(%in: i8, %out: f32):
      %55 = arith.uitofp %in : i8 to f32
      %56 = arith.mulf %55, %cst_19 : f32
      linalg.yield %56 : f32
    } -> tensor<1x12xf32>
    %50 = tensor.empty() : tensor<12x5xf32>
    %transposed = linalg.transpose ins(%8 : tensor<5x12xf32>) outs(%50 : tensor<12x5xf32>) permutation = [1, 0] 
    %51 = tensor.empty() : tensor<1x5xf32>
    %52 = linalg.fill ins(%cst : f32) outs(%51 : tensor<1x5xf32>) -> tensor<1x5xf32>
    %53 = linalg.matmul ins(%49, %transposed : tensor<1x12xf32>, tensor<12x5xf32>) outs(%52 : tensor<1x5xf32>) -> tensor<1x5xf32>
    %54 = linalg.generic {indexing_maps = [#map2, #map5, #map2], iterator_types = ["parallel", "parallel"]} ins(%53, %cst_3 : tensor<1x5xf32>, tensor<5xf32>) outs(%51 : tensor<1x5xf32>) {
    ^bb0(%in: f32, %in_36: f32, %out: f32):
      %55 = arith.addf %in, %in_36 : f32
      linalg.yield %55 : f32
    } -> tensor<1x5xf32>
    return %54 : tensor<1x5xf32>
  }
}

{-#
  dialect_resources: {
    builtin: {
      torch_tensor_5_torch.float32_1: "0x04000000F5F967BE4FFD92BC0C3214BD3A7E5B3E3FA5563E",
      torch_tensor_12_torch.float32_1: "0x040000007C99D0BD80C7D43BB83D5BBCDF6AD23DC9EB1EBDD28CBA3DB0D0B63B6FE058BD4799E5BC221E5BBCCF00A03AE40E9FBC",
      torch_tensor_8_torch.float32_5: "0x04000000FA656FBDFE88943CD23388BDA7A816BDEF00BE3DDDFB6CBD8635E8BB7E82E63D",
      torch_tensor_8_torch.float32_4: "0x04000000D366033D63C4673BC267E8BC205992BD163BADBCE05142BD4000C33DF7F0EABD",
      torch_tensor_8_torch.float32_3: "0x04000000A30189BE73061D3EBEAA913E8217A73E4810B7BD1D6D913E36E9803EE0651A3E",
      torch_tensor_5_torch.float32: "0x0400000008E30A3BC2BC073B2A65F03AF909103B64DFFD3A",
      torch_tensor_12_torch.float32: "0x04000000EB34703A6C566D3A2B4C703A3ACF6F3A545E713AB726713A2FD5713AA8326B3A8DD16E3ACF78703A3627703A7798703A",
      torch_tensor_8_torch.float32_2: "0x0400000000DB6E3A2AEB703A27C86F3ACB18723ABCDF713A4933713A6227693A50A6703A",
      torch_tensor_8_torch.float32_1: "0x04000000B7696C3A64A36C3A4CE7713A5A44723AD6FE713A2EC1713A5FEF703A135B713A",
      torch_tensor_8_torch.float32: "0x04000000623D9B3AB824843A52DB8D3ADE72883A6261433AEB5E793A1E66463AFAB26B3A",
      torch_tensor_5_torch.int64: "0x0800000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
      torch_tensor_5_12_torch.int8: "0x0100000028701531541D3F477F842FFAE7CA547F8E4B6018026B04DDF43227F8322A80276012F2798DC4C571810D81FC31E17F00B4264E007FA240554A002B8B",
      torch_tensor_12_torch.int64: "0x08000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
      torch_tensor_12_8_3_3_torch.int8: "0x010000002CBFB3D3D838E36CB9D82F677B1505C649B5DE9584480967664333DF443E2DFC1301A31EA13EB3D6C366A542415B204666192C9BDE0C10D381DF316F8C3D8685AFEF249E63740869C5CDEF0EA59833267FCB2ECB40F960486C430570B47B7F7CC3BB082941356FDFD52C24B40D9DDACD728BB381219C2AA6ADBD14787AF680D5CEE432423A25CBFF11BEF4F08558F38F66BB2E7F06253361D9B8F6650B59FF27040386900B4056063636918F9C02AFD7ED321E7774AE001570D8CDAF5FDCD05776FBA569D4C5A6C29BB68BE6349E00D13E6FEFBF9DB4251D45ED428D237D80BD52ECBB4F0905D9614717144350CBF239C278A83BA3295A10F352A3A992B103C61D046BC8DD55DF7BCDFFE13C31BB55F8DFFD5A7E3F1754CABDDBAD370CD4F3FD6E729D2F3131EF20207D85CFAAC2194E9F536BC116BE1BC5CEAA9566F0FCC059B7CC9C94729DEEDB2F229E73800DF5E2576C11D35F5017DD05720EE794BB5CFBF732ACF7DC436850608ED30F9323AC3768926B3CAB7B91AAC0FA17DA87F161634013209D3481CBDE5EFCC61696DE23F8F34E9FBF7C19EB424DEBCBEB2FF04B98C162111A2AE2CD25DECB111FF4A9EDB743AB6633935F82F9B0920DC25C9C6A4D70DBB2AB6AC0F0EC169767A17ECEC7EE26E8805A7F407D23F69A90A8E04ACBFBFEACFD7B6661F30246D6CC6D07AA6C154491184EEEB7663B251F034BE3B3322332F1EFF6239B8631B8F52412551121F413305A84C98ACC50848A4CB26029216886602BA820DBCBF2C27371F28CF80958042623B5AF8BFF29F77FE7AA16DBEE7FFC7111D05FB6041D3A8906DF542C344EE3F86898A709CD0772F192C577E4C73A108E6C497039D4D63FE71983C030FAC28F52E6817D3FB3A27D01B24AE509BD92AAF2A27F01CE338DBE3093400B9580293DE68EB60E052117F9447D6B75D5D4F22634F5AD9F7CDDEFB1C01C36CDD166BEA0EC7A1C12F050C0571E0E12B15F439C88DF55C177BF8C39B2ECD8F6908A37F1B2FD8B223D7D97F04676A437354EA75CC8B11A6DAB45F129642395D91A9315BBE62E98AD3B81599DFE1A33B011376E9FC025FCA9948EA6C9A78F0A4BC30DFE3CA706785C80ED01D6ACA755D6F826B10B4CB525FC4755220491334ED18068E21ADC527D50D75A3F0D99C981567F4B291E7CBFD58DF30923A7F196981183228AA7E5856869BD1B4229EF875D8FE808D6D1",
      torch_tensor_8_torch.int64_2: "0x0800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
      torch_tensor_8_8_3_3_torch.int8_1: "0x01000000AD97E865718FFA4C396AFCA956D443E03774788AAACBAE7CF5AAC6B9358F87803840B0205F13E50AF241A84249B26A7FCDDC409B331E5290953A2F88B88AA3C66BE64A7B3B8C413163824F69890D6DA32A39227F696EF06C88BBE5DA763C5357A0F1132142CDD96BDEA75757D8E6A19530C96699EE0342685738C5A48D067CE8FBA3275182A65F1EF817EDA68854F1D0DFBADA916035BFD43AD02223AF200871D1DF6F97097CC67C7278F475C8D4311B477AAF442B443DD09A67B75285EA01160A29F2207FADF9CF716EFCD3B05CF779497166AC26CB41F40BA88E301E0B57CB2DBA1AE359706F064B81B517019CC8C4820C5734C38B990258CCBBBCF5878F7EC3E9DE90EA27CCFBFF815D6757D64388E0E6D336C6F1DB88EB944A4478D506197F75BE938DC26B2B7B5F02B17D6637BA650C54354490B94DE59174FD679C2CD0CAE5D146E8611DECB68BDB8AE802F8C15948E1CE506F8BE4F4D26DED6C01F2B5D62938FB7AA83173EA6602A0BA30C91F7E2CF420B694A0951A19CA8345B7EB95B83589B760BECBDC37AC0D34F7179E3A30F0963354EA3C2FCDF77F019AF740D6BD6A44EA07F21E05B2180308CF21982648F19900008DA27B63495C334B58E1EF5E00AA994A6E67165B86A1806BFFC32DCEAB3318A1A93E650BBD40178CAA1D52D540AE7F5E193B2EB2FF23E27FCD8AC1856DC5A3F2A7BB44A03D5E0039B8647D1F7580F21A903ECFD29A34A3E539611DD0C848186C30679967C5DE01E81972B32899146A576E45F522CA6D40A26FFEFADDDE06C189BEE6615EB3FBDBBBE9D348",
      torch_tensor_8_torch.int64_1: "0x0800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
      torch_tensor_8_8_3_3_torch.int8: "0x0100000092CFA67CC8C444C4C0F5F39A6DC62E7242136F12C47C1F80DBA773EA89F85222290C31E0CC869E39B3132A09AB7DB46B98E147CB6EA692C51578C22FDFE4609B0E7BEE65D86982EDE92A3364EDFB59DD72A9F2F93A59EB94412734AF547C0B865C9F1E13C32D8B1EADF2116FC254EFC28E887FDF0723596F6A9FEBB3B51F7B974FBCE768E20CA56FEFA126A3980868DB3C6E55BDF2D89900606C0C1DC960CBA7144D8D732EA7E46F9EDB2A9046424FAF7FB47F858E4E0D07B9CADB84071700297922D1CBAEA7EBE939C966A600737FB6170FC4D423A71537CE6AF83A7ED945DCEDEAFFD01E0551E60DD1953410CDD521E953073038E1375E06190558CABC389102C554894D7E1AF87ECAF6C8EE1C11E88007FC13627CB4F8CD8AA3784A44479B0D77B972225AC93B8FF82B266B7D74565AF09DD1F2BB412D151F702E90A338113E808A4E528D309C61287E828556714E55945C871DACCD17CEEC878831CAB2CE989A4C4111BA2A06A51B7482811060B21C5A271C7F53B80B41718145DB831CBA12ADA0F5D54B0B6418D7570718D700E7F59CFF96E54AA7AAE1DD161541A8F7476FF7B62549B0B638F787B634D5586513F6D7FA179EE1954FAE75DFB73E1359368451E8C7515E8FF469326CD4B96E357BCAAEF187325F1FF340AF7D8085E2690D31A22FF2335B38F5F8B0D253CD50CDE2038AFFF3F4E6655FA93B9C932702C485CE2B8A8410A490CFEB8CAB0887EEADA7329D9F491875DEC2F4016280F739BABF3E851E9D40934F8794026592C770EB3585D8BF6C35A315FFCBB7D665A4A5D902",
      torch_tensor_8_3_5_5_torch.int8: "0x01000000FF4596A2CF22FD66F522D9E785ABCB05334DA9C82F6AE660EB0E7489AFE0CE6FADC5A688B56E393E07BE1688A3BE514BC7FB527F331156B4189DA7BE3A34B42746F0051E507B9DD1326A707119910CB08972618018EAEBC531B42F415B3081AD401B9CB67856C8E086FEA09DF913CC4CB2745894E006131E3208C23C85B4E0C2D397E51BADF95BF304F51A51795179F78DC357FFC09E8793E6474684509BE5CCE7E78C91EC02C5318CF771CB742F8C52F1C667980EE55C243E2EE1E596466658A506A5B9B52CB3FD05539FA8B55AD26D2F10FFE710E3FF109BBC6897F77F2F049040A4DBD5ED016A10734FAF3AA5C9262A61D70042845D9602EABC116ADAB4D0803AC2AAB64A44632FD5DC266A23C3C4861CB88D71ACF12504A99867156BD526E3FAB22C29FDE3B159A035D5C217BE1D19A1153632F097EC2CD13055BD01350A0B109C0A58734B113CC296927F51A832607F7063E3D36947B3733E46B025D364E9321736D53EA71DAA829A654578668EA9EBAD59A0C285B869685B6271DF38722A7F424FD33D0FE2B8B89E565BF1B6635209C475349F7A61D248B8EC6C05A6D5DDE70C7607B1073D3F8BE9A1CA2EA52F6C08ABD21C9F3F8C8584E656876ACD25068D6A457F41AB6B073D99DB82CE1C9B294512AA9DD8387F4AF22D82923CB73EA5C09643F3634F4704D8E41140A66CF295BB7175895A404C6DBB2934DA2BDB4FDCD0202DC10B4AF327E12DA3B5BF75DE00C27F7DA0989FFFDFACD218BD1CE3C21269AA06D17D87867EAF18F5E5E3510684B5D440AD78E4E964406C4AD9ABF66AD58A347CDC968C20F6C01A316663ED8F8D77383891767973",
      torch_tensor_8_torch.int64: "0x0800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    }
  }
#-}
