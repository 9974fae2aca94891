module {
  func.func @main(%arg0: tensor<1x3x16x16xf32>) -> tensor<1x5xf32> {
    %0 = "tosa.const"() <{values = dense_resource<torch_tensor_12_torch.float32_1> : tensor<12xf32>}> : () -> tensor<12xf32>
    %1 = "tosa.const"() <{values = dense_resource<torch_tensor_8_torch.float32_5> : tensor<8xf32>}> : () -> tensor<8xf32>
    %2 = "tosa.const"() <{values = dense_resource<torch_tensor_8_torch.float32_4> : tensor<8xf32>}> : () -> tensor<8xf32>
    %3 = "tosa.const"() <{values = dense_resource<torch_tensor_8_torch.float32_3> : tensor<8xf32>}> : () -> tensor<8xf32>
    %4 = "tosa.const"() <{values = dense_resource<torch_tensor_5_torch.int64> : tensor<5xi64>}> : () -> tensor<5xi64>
    %5 = "tosa.const"() <{values = dense_resource<torch_tensor_5_12_torch.int8> : tensor<5x12xi8>}> : () -> tensor<5x12xi8>
    %6 = "tosa.const"() <{values = dense_resource<torch_tensor_12_torch.int64> : tensor<12xi64>}> : () -> tensor<12xi64>
    %7 = "tosa.const"() <{values = dense_resource<torch_tensor_12_8_3_3_torch.int8> : tensor<12x8x3x3xi8>}> : () -> tensor<12x8x3x3xi8>
    %8 = "tosa.const"() <{values = dense_resource<torch_tensor_8_torch.int64_2> : tensor<8xi64>}> : () -> tensor<8xi64>
    %9 = "tosa.const"() <{values = dense_resource<torch_tensor_8_8_3_3_torch.int8_1> : tensor<8x8x3x3xi8>}> : () -> tensor<8x8x3x3xi8>
    %10 = "tosa.const"() <{values = dense_resource<torch_tensor_8_torch.int64_1> : tensor<8xi64>}> : () -> tensor<8xi64>
    %11 = "tosa.const"() <{values = dense_resource<torch_tensor_8_8_3_3_torch.int8> : tensor<8x8x3x3xi8>}> : () -> tensor<8x8x3x3xi8>
    %12 = "tosa.const"() <{values = dense_resource<torch_tensor_8_torch.int64> : tensor<8xi64>}> : () -> tensor<8xi64>
    %13 = "tosa.const"() <{values = dense_resource<torch_tensor_8_3_5_5_torch.int8> : tensor<8x3x5x5xi8>}> : () -> tensor<8x3x5x5xi8>
    %14 = tosa.const_shape  {values = dense<[8, 1, 1, 1]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %15 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %16 = tosa.const_shape  {values = dense<[12, 1, 1, 1]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %17 = tosa.const_shape  {values = dense<[5, 1]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %18 = "tosa.const"() <{values = dense<0.000000e+00> : tensor<1xf32>}> : () -> tensor<1xf32>
    %19 = tosa.const_shape  {values = dense<[1, 12]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %20 = tosa.const_shape  {values = dense<[1, 1, 12]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %21 = tosa.const_shape  {values = dense<[1, 12, 5]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %22 = tosa.const_shape  {values = dense<[1, 5]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %23 = "tosa.const"() <{values = dense_resource<torch_tensor_8_torch.float32> : tensor<8x1x1x1xf32>}> : () -> tensor<8x1x1x1xf32>
    %24 = "tosa.const"() <{values = dense_resource<torch_tensor_8_torch.float32_1> : tensor<8x1x1x1xf32>}> : () -> tensor<8x1x1x1xf32>
    %25 = "tosa.const"() <{values = dense_resource<torch_tensor_8_torch.float32_2> : tensor<8x1x1x1xf32>}> : () -> tensor<8x1x1x1xf32>
    %26 = "tosa.const"() <{values = dense_resource<torch_tensor_12_torch.float32> : tensor<12x1x1x1xf32>}> : () -> tensor<12x1x1x1xf32>
    %27 = "tosa.const"() <{values = dense_resource<torch_tensor_5_torch.float32> : tensor<5x1xf32>}> : () -> tensor<5x1xf32>
    %28 = "tosa.const"() <{values = dense<33.4441338> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %29 = "tosa.const"() <{values = dense<5.000000e-01> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %30 = "tosa.const"() <{values = dense<2.000000e+00> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %31 = "tosa.const"() <{values = dense<1.370000e+02> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %32 = "tosa.const"() <{values = dense<137> : tensor<1x1x1x1xi32>}> : () -> tensor<1x1x1x1xi32>
    %33 = "tosa.const"() <{values = dense<0.0299006104> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %34 = "tosa.const"() <{values = dense<126.240379> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %35 = "tosa.const"() <{values = dense<0.00792139582> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %36 = "tosa.const"() <{values = dense<238.166336> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %37 = "tosa.const"() <{values = dense<0.00419874629> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %38 = "tosa.const"() <{values = dense<125.175751> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %39 = "tosa.const"() <{values = dense<0.00798876769> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %40 = "tosa.const"() <{values = dense<0.000000e+00> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %41 = "tosa.const"() <{values = dense<6.000000e+00> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %42 = "tosa.const"() <{values = dense<244.527267> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %43 = "tosa.const"() <{values = dense<0.00408952357> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %44 = tosa.const_shape  {values = dense<[1, 12, 1, 1]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %45 = "tosa.const"() <{values = dense<244.527267> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
    %46 = "tosa.const"() <{values = dense<5.000000e-01> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
    %47 = "tosa.const"() <{values = dense<2.000000e+00> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
    %48 = "tosa.const"() <{values = dense<0.00408952357> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
    %49 = "tosa.const"() <{values = dense_resource<torch_tensor_5_torch.float32_1> : tensor<1x5xf32>}> : () -> tensor<1x5xf32>
    %50 = tosa.cast %13 : (tensor<8x3x5x5xi8>) -> tensor<8x3x5x5xi32>
    %51 = tosa.cast %12 : (tensor<8xi64>) -> tensor<8xi32>
    %52 = tosa.reshape %51, %14 : (tensor<8xi32>, !tosa.shape<4>) -> tensor<8x1x1x1xi32>
    %53 = tosa.sub %50, %52 : (tensor<8x3x5x5xi32>, tensor<8x1x1x1xi32>) -> tensor<8x3x5x5xi32>
    %54 = tosa.cast %53 : (tensor<8x3x5x5xi32>) -> tensor<8x3x5x5xf32>
    %55 = tosa.mul %54, %23, %15 : (tensor<8x3x5x5xf32>, tensor<8x1x1x1xf32>, tensor<1xi8>) -> tensor<8x3x5x5xf32>
    %56 = tosa.cast %11 : (tensor<8x8x3x3xi8>) -> tensor<8x8x3x3xi32>
    %57 = tosa.cast %10 : (tensor<8xi64>) -> tensor<8xi32>
    %58 = tosa.reshape %57, %14 : (tensor<8xi32>, !tosa.shape<4>) -> tensor<8x1x1x1xi32>
    %59 = tosa.sub %56, %58 : (tensor<8x8x3x3xi32>, tensor<8x1x1x1xi32>) -> tensor<8x8x3x3xi32>
    %60 = tosa.cast %59 : (tensor<8x8x3x3xi32>) -> tensor<8x8x3x3xf32>
    %61 = tosa.mul %60, %24, %15 : (tensor<8x8x3x3xf32>, tensor<8x1x1x1xf32>, tensor<1xi8>) -> tensor<8x8x3x3xf32>
    %62 = tosa.cast %9 : (tensor<8x8x3x3xi8>) -> tensor<8x8x3x3xi32>
    %63 = tosa.cast %8 : (tensor<8xi64>) -> tensor<8xi32>
    %64 = tosa.reshape %63, %14 : (tensor<8xi32>, !tosa.shape<4>) -> tensor<8x1x1x1xi32>
    %65 = tosa.sub %62, %64 : (tensor<8x8x3x3xi32>, tensor<8x1x1x1xi32>) -> tensor<8x8x3x3xi32>
    %66 = tosa.cast %65 : (tensor<8x8x3x3xi32>) -> tensor<8x8x3x3xf32>
    %67 = tosa.mul %66, %25, %15 : (tensor<8x8x3x3xf32>, tensor<8x1x1x1xf32>, tensor<1xi8>) -> tensor<8x8x3x3xf32>
    %68 = tosa.cast %7 : (tensor<12x8x3x3xi8>) -> tensor<12x8x3x3xi32>
    %69 = tosa.cast %6 : (tensor<12xi64>) -> tensor<12xi32>
    %70 = tosa.reshape %69, %16 : (tensor<12xi32>, !tosa.shape<4>) -> tensor<12x1x1x1xi32>
    %71 = tosa.sub %68, %70 : (tensor<12x8x3x3xi32>, tensor<12x1x1x1xi32>) -> tensor<12x8x3x3xi32>
    %72 = tosa.cast %71 : (tensor<12x8x3x3xi32>) -> tensor<12x8x3x3xf32>
    %73 = tosa.mul %72, %26, %15 : (tensor<12x8x3x3xf32>, tensor<12x1x1x1xf32>, tensor<1xi8>) -> tensor<12x8x3x3xf32>
    %74 = tosa.cast %5 : (tensor<5x12xi8>) -> tensor<5x12xi32>
    %75 = tosa.cast %4 : (tensor<5xi64>) -> tensor<5xi32>
    %76 = tosa.reshape %75, %17 : (tensor<5xi32>, !tosa.shape<2>) -> tensor<5x1xi32>
    %77 = tosa.sub %74, %76 : (tensor<5x12xi32>, tensor<5x1xi32>) -> tensor<5x12xi32>
    %78 = tosa.cast %77 : (tensor<5x12xi32>) -> tensor<5x12xf32>
    %79 = tosa.mul %78, %27, %15 : (tensor<5x12xf32>, tensor<5x1xf32>, tensor<1xi8>) -> tensor<5x12xf32>
    %80 = tosa.mul %arg0, %28, %15 : (tensor<1x3x16x16xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x3x16x16xf32>
    %81 = tosa.floor %80 : (tensor<1x3x16x16xf32>) -> tensor<1x3x16x16xf32>
    %82 = tosa.sub %80, %81 : (tensor<1x3x16x16xf32>, tensor<1x3x16x16xf32>) -> tensor<1x3x16x16xf32>
    %83 = tosa.ceil %80 : (tensor<1x3x16x16xf32>) -> tensor<1x3x16x16xf32>
    %84 = tosa.mul %81, %29, %15 : (tensor<1x3x16x16xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x3x16x16xf32>
    %85 = tosa.floor %84 : (tensor<1x3x16x16xf32>) -> tensor<1x3x16x16xf32>
    %86 = tosa.mul %85, %30, %15 : (tensor<1x3x16x16xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x3x16x16xf32>
    %87 = tosa.equal %81, %86 : (tensor<1x3x16x16xf32>, tensor<1x3x16x16xf32>) -> tensor<1x3x16x16xi1>
    %88 = tosa.equal %82, %29 : (tensor<1x3x16x16xf32>, tensor<1x1x1x1xf32>) -> tensor<1x3x16x16xi1>
    %89 = tosa.greater %29, %82 : (tensor<1x1x1x1xf32>, tensor<1x3x16x16xf32>) -> tensor<1x3x16x16xi1>
    %90 = tosa.logical_and %88, %87 : (tensor<1x3x16x16xi1>, tensor<1x3x16x16xi1>) -> tensor<1x3x16x16xi1>
    %91 = tosa.logical_or %89, %90 : (tensor<1x3x16x16xi1>, tensor<1x3x16x16xi1>) -> tensor<1x3x16x16xi1>
    %92 = tosa.select %91, %81, %83 : (tensor<1x3x16x16xi1>, tensor<1x3x16x16xf32>, tensor<1x3x16x16xf32>) -> tensor<1x3x16x16xf32>
    %93 = tosa.add %92, %31 : (tensor<1x3x16x16xf32>, tensor<1x1x1x1xf32>) -> tensor<1x3x16x16xf32>
    %94 = tosa.clamp %93 {max_val = 2.550000e+02 : f32, min_val = 0.000000e+00 : f32} : (tensor<1x3x16x16xf32>) -> tensor<1x3x16x16xf32>
    %95 = tosa.cast %94 : (tensor<1x3x16x16xf32>) -> tensor<1x3x16x16xi8>
    %96 = tosa.cast %95 : (tensor<1x3x16x16xi8>) -> tensor<1x3x16x16xi32>
    %97 = tosa.sub %96, %32 : (tensor<1x3x16x16xi32>, tensor<1x1x1x1xi32>) -> tensor<1x3x16x16xi32>
    %98 = tosa.cast %97 : (tensor<1x3x16x16xi32>) -> tensor<1x3x16x16xf32>
    %99 = tosa.mul %98, %33, %15 : (tensor<1x3x16x16xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x3x16x16xf32>
    %100 = tosa.transpose %99 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x3x16x16xf32>) -> tensor<1x16x16x3xf32>
    %101 = tosa.transpose %55 {perms = array<i32: 0, 2, 3, 1>} : (tensor<8x3x5x5xf32>) -> tensor<8x5x5x3xf32>
    %102 = tosa.conv2d %100, %101, %3, %18, %18 {acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: 2, 1, 2, 1>, stride = array<i64: 2, 2>} : (tensor<1x16x16x3xf32>, tensor<8x5x5x3xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x8x8x8xf32>
    %103 = tosa.clamp %102 {max_val = 3.40282347E+38 : f32, min_val = 0.000000e+00 : f32} : (tensor<1x8x8x8xf32>) -> tensor<1x8x8x8xf32>
    %104 = tosa.max_pool2d %103 {kernel = array<i64: 3, 3>, pad = array<i64: 1, 0, 1, 0>, stride = array<i64: 2, 2>} : (tensor<1x8x8x8xf32>) -> tensor<1x4x4x8xf32>
    %105 = tosa.transpose %104 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x4x8xf32>) -> tensor<1x8x4x4xf32>
    %106 = tosa.mul %105, %34, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %107 = tosa.floor %106 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %108 = tosa.sub %106, %107 : (tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %109 = tosa.ceil %106 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %110 = tosa.mul %107, %29, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %111 = tosa.floor %110 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %112 = tosa.mul %111, %30, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %113 = tosa.equal %107, %112 : (tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xi1>
    %114 = tosa.equal %108, %29 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>) -> tensor<1x8x4x4xi1>
    %115 = tosa.greater %29, %108 : (tensor<1x1x1x1xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xi1>
    %116 = tosa.logical_and %114, %113 : (tensor<1x8x4x4xi1>, tensor<1x8x4x4xi1>) -> tensor<1x8x4x4xi1>
    %117 = tosa.logical_or %115, %116 : (tensor<1x8x4x4xi1>, tensor<1x8x4x4xi1>) -> tensor<1x8x4x4xi1>
    %118 = tosa.select %117, %107, %109 : (tensor<1x8x4x4xi1>, tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %119 = tosa.clamp %118 {max_val = 2.550000e+02 : f32, min_val = 0.000000e+00 : f32} : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %120 = tosa.cast %119 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xi8>
    %121 = tosa.cast %120 : (tensor<1x8x4x4xi8>) -> tensor<1x8x4x4xf32>
    %122 = tosa.mul %121, %35, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %123 = tosa.transpose %122 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x8x4x4xf32>) -> tensor<1x4x4x8xf32>
    %124 = tosa.transpose %61 {perms = array<i32: 0, 2, 3, 1>} : (tensor<8x8x3x3xf32>) -> tensor<8x3x3x8xf32>
    %125 = tosa.conv2d %123, %124, %2, %18, %18 {acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>} : (tensor<1x4x4x8xf32>, tensor<8x3x3x8xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x4x8xf32>
    %126 = tosa.transpose %125 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x4x8xf32>) -> tensor<1x8x4x4xf32>
    %127 = tosa.clamp %126 {max_val = 3.40282347E+38 : f32, min_val = 0.000000e+00 : f32} : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %128 = tosa.mul %127, %36, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %129 = tosa.floor %128 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %130 = tosa.sub %128, %129 : (tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %131 = tosa.ceil %128 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %132 = tosa.mul %129, %29, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %133 = tosa.floor %132 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %134 = tosa.mul %133, %30, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %135 = tosa.equal %129, %134 : (tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xi1>
    %136 = tosa.equal %130, %29 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>) -> tensor<1x8x4x4xi1>
    %137 = tosa.greater %29, %130 : (tensor<1x1x1x1xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xi1>
    %138 = tosa.logical_and %136, %135 : (tensor<1x8x4x4xi1>, tensor<1x8x4x4xi1>) -> tensor<1x8x4x4xi1>
    %139 = tosa.logical_or %137, %138 : (tensor<1x8x4x4xi1>, tensor<1x8x4x4xi1>) -> tensor<1x8x4x4xi1>
    %140 = tosa.select %139, %129, %131 : (tensor<1x8x4x4xi1>, tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %141 = tosa.clamp %140 {max_val = 2.550000e+02 : f32, min_val = 0.000000e+00 : f32} : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %142 = tosa.cast %141 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xi8>
    %143 = tosa.cast %142 : (tensor<1x8x4x4xi8>) -> tensor<1x8x4x4xf32>
    %144 = tosa.mul %143, %37, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %145 = tosa.transpose %144 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x8x4x4xf32>) -> tensor<1x4x4x8xf32>
    %146 = tosa.transpose %67 {perms = array<i32: 0, 2, 3, 1>} : (tensor<8x8x3x3xf32>) -> tensor<8x3x3x8xf32>
    %147 = tosa.conv2d %145, %146, %1, %18, %18 {acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>} : (tensor<1x4x4x8xf32>, tensor<8x3x3x8xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x4x8xf32>
    %148 = tosa.transpose %147 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x4x8xf32>) -> tensor<1x8x4x4xf32>
    %149 = tosa.add %148, %122 : (tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %150 = tosa.clamp %149 {max_val = 3.40282347E+38 : f32, min_val = 0.000000e+00 : f32} : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %151 = tosa.mul %150, %38, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %152 = tosa.floor %151 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %153 = tosa.sub %151, %152 : (tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %154 = tosa.ceil %151 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %155 = tosa.mul %152, %29, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %156 = tosa.floor %155 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %157 = tosa.mul %156, %30, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %158 = tosa.equal %152, %157 : (tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xi1>
    %159 = tosa.equal %153, %29 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>) -> tensor<1x8x4x4xi1>
    %160 = tosa.greater %29, %153 : (tensor<1x1x1x1xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xi1>
    %161 = tosa.logical_and %159, %158 : (tensor<1x8x4x4xi1>, tensor<1x8x4x4xi1>) -> tensor<1x8x4x4xi1>
    %162 = tosa.logical_or %160, %161 : (tensor<1x8x4x4xi1>, tensor<1x8x4x4xi1>) -> tensor<1x8x4x4xi1>
    %163 = tosa.select %162, %152, %154 : (tensor<1x8x4x4xi1>, tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %164 = tosa.clamp %163 {max_val = 2.550000e+02 : f32, min_val = 0.000000e+00 : f32} : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
    %165 = tosa.cast %164 : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xi8>
    %166 = tosa.cast %165 : (tensor<1x8x4x4xi8>) -> tensor<1x8x4x4xf32>
    %167 = tosa.mul %166, %39, %15 : (tensor<1x8x4x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4x4xf32>
    %168 = tosa.transpose %167 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x8x4x4xf32>) -> tensor<1x4x4x8xf32>
    %169 = tosa.transpose %73 {perms = array<i32: 0, 2, 3, 1>} : (tensor<12x8x3x3xf32>) -> tensor<12x3x3x8xf32>
    %170 = tosa.conv2d %168, %169, %0, %18, %18 {acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x4x4x8xf32>, tensor<12x3x3x8xf32>, tensor<12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2x2x12xf32>
    %171 = tosa.transpose %170 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x2x2x12xf32>) -> tensor<1x12x2x2xf32>
    %172 = tosa.maximum %171, %40 : (tensor<1x12x2x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x12x2x2xf32>
    %173 = tosa.minimum %172, %41 : (tensor<1x12x2x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x12x2x2xf32>
    %174 = tosa.mul %173, %42, %15 : (tensor<1x12x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x12x2x2xf32>
    %175 = tosa.floor %174 : (tensor<1x12x2x2xf32>) -> tensor<1x12x2x2xf32>
    %176 = tosa.sub %174, %175 : (tensor<1x12x2x2xf32>, tensor<1x12x2x2xf32>) -> tensor<1x12x2x2xf32>
    %177 = tosa.ceil %174 : (tensor<1x12x2x2xf32>) -> tensor<1x12x2x2xf32>
    %178 = tosa.mul %175, %29, %15 : (tensor<1x12x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x12x2x2xf32>
    %179 = tosa.floor %178 : (tensor<1x12x2x2xf32>) -> tensor<1x12x2x2xf32>
    %180 = tosa.mul %179, %30, %15 : (tensor<1x12x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x12x2x2xf32>
    %181 = tosa.equal %175, %180 : (tensor<1x12x2x2xf32>, tensor<1x12x2x2xf32>) -> tensor<1x12x2x2xi1>
    %182 = tosa.equal %176, %29 : (tensor<1x12x2x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x12x2x2xi1>
    %183 = tosa.greater %29, %176 : (tensor<1x1x1x1xf32>, tensor<1x12x2x2xf32>) -> tensor<1x12x2x2xi1>
    %184 = tosa.logical_and %182, %181 : (tensor<1x12x2x2xi1>, tensor<1x12x2x2xi1>) -> tensor<1x12x2x2xi1>
    %185 = tosa.logical_or %183, %184 : (tensor<1x12x2x2xi1>, tensor<1x12x2x2xi1>) -> tensor<1x12x2x2xi1>
    %186 = tosa.select %185, %175, %177 : (tensor<1x12x2x2xi1>, tensor<1x12x2x2xf32>, tensor<1x12x2x2xf32>) -> tensor<1x12x2x2xf32>
    %187 = tosa.clamp %186 {max_val = 2.550000e+02 : f32, min_val = 0.000000e+00 : f32} : (tensor<1x12x2x2xf32>) -> tensor<1x12x2x2xf32>
    %188 = tosa.cast %187 : (tensor<1x12x2x2xf32>) -> tensor<1x12x2x2xi8>
    %189 = tosa.cast %188 : (tensor<1x12x2x2xi8>) -> tensor<1x12x2x2xf32>
    %190 = tosa.mul %189, %43, %15 : (tensor<1x12x2x2xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x12x2x2xf32>
    %191 = tosa.transpose %190 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x12x2x2xf32>) -> tensor<1x2x2x12xf32>
    %192 = tosa.max_pool2d %191 {kernel = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<1x2x2x12xf32>) -> tensor<1x1x1x12xf32>
    %193 = tosa.reshape %192, %44 : (tensor<1x1x1x12xf32>, !tosa.shape<4>) -> tensor<1x12x1x1xf32>
    %194 = tosa.mul %193, %42, %15 : (tensor<1x12x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x12x1x1xf32>
    %195 = tosa.floor %194 : (tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xf32>
    %196 = tosa.sub %194, %195 : (tensor<1x12x1x1xf32>, tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xf32>
    %197 = tosa.ceil %194 : (tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xf32>
    %198 = tosa.mul %195, %29, %15 : (tensor<1x12x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x12x1x1xf32>
    %199 = tosa.floor %198 : (tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xf32>
    %200 = tosa.mul %199, %30, %15 : (tensor<1x12x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x12x1x1xf32>
    %201 = tosa.equal %195, %200 : (tensor<1x12x1x1xf32>, tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xi1>
    %202 = tosa.equal %196, %29 : (tensor<1x12x1x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x12x1x1xi1>
    %203 = tosa.greater %29, %196 : (tensor<1x1x1x1xf32>, tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xi1>
    %204 = tosa.logical_and %202, %201 : (tensor<1x12x1x1xi1>, tensor<1x12x1x1xi1>) -> tensor<1x12x1x1xi1>
    %205 = tosa.logical_or %203, %204 : (tensor<1x12x1x1xi1>, tensor<1x12x1x1xi1>) -> tensor<1x12x1x1xi1>
    %206 = tosa.select %205, %195, %197 : (tensor<1x12x1x1xi1>, tensor<1x12x1x1xf32>, tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xf32>
    %207 = tosa.clamp %206 {max_val = 2.550000e+02 : f32, min_val = 0.000000e+00 : f32} : (tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xf32>
    %208 = tosa.cast %207 : (tensor<1x12x1x1xf32>) -> tensor<1x12x1x1xi8>
    %209 = tosa.cast %208 : (tensor<1x12x1x1xi8>) -> tensor<1x12x1x1xf32>
    %210 = tosa.mul %209, %43, %15 : (tensor<1x12x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x12x1x1xf32>
    %211 = tosa.reshape %210, %19 : (tensor<1x12x1x1xf32>, !tosa.shape<2>) -> tensor<1x12xf32>
    %212 = tosa.mul %211, %45, %15 : (tensor<1x12xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<1x12xf32>
    %213 = tosa.floor %212 : (tensor<1x12xf32>) -> tensor<1x12xf32>
    %214 = tosa.sub %212, %213 : (tensor<1x12xf32>, tensor<1x12xf32>) -> tensor<1x12xf32>
    %215 = tosa.ceil %212 : (tensor<1x12xf32>) -> tensor<1x12xf32>
    %216 = tosa.mul %213, %46, %15 : (tensor<1x12xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<1x12xf32>
    %217 = tosa.floor %216 : (tensor<1x12xf32>) -> tensor<1x12xf32>
    %218 = tosa.mul %217, %47, %15 : (tensor<1x12xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<1x12xf32>
    %219 = tosa.equal %213, %218 : (tensor<1x12xf32>, tensor<1x12xf32>) -> tensor<1x12xi1>
    %220 = tosa.equal %214, %46 : (tensor<1x12xf32>, tensor<1x1xf32>) -> tensor<1x12xi1>
    %221 = tosa.greater %46, %214 : (tensor<1x1xf32>, tensor<1x12xf32>) -> tensor<1x12xi1>
    %222 = tosa.logical_and %220, %219 : (tensor<1x12xi1>, tensor<1x12xi1>) -> tensor<1x12xi1>
    %223 = tosa.logical_or %221, %222 : (tensor<1x12xi1>, tensor<1x12xi1>) -> tensor<1x12xi1>
    %224 = tosa.select %223, %213, %215 : (tensor<1x12xi1>, tensor<1x12xf32>, tensor<1x12xf32>) -> tensor<1x12xf32>
    %225 = tosa.clamp %224 {max_val = 2.550000e+02 : f32, min_val = 0.000000e+00 : f32} : (tensor<1x12xf32>) -> tensor<1x12xf32>
    %226 = tosa.cast %225 : (tensor<1x12xf32>) -> tensor<1x12xi8>
    %227 = tosa.cast %226 : (tensor<1x12xi8>) -> tensor<1x12xf32>
    %228 = tosa.mul %227, %48, %15 : (tensor<1x12xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<1x12xf32>
    %229 = tosa.transpose %79 {perms = array<i32: 1, 0>} : (tensor<5x12xf32>) -> tensor<12x5xf32>
    %230 = tosa.reshape %228, %20 : (tensor<1x12xf32>, !tosa.shape<3>) -> tensor<1x1x12xf32>
    %231 = tosa.reshape %229, %21 : (tensor<12x5xf32>, !tosa.shape<3>) -> tensor<1x12x5xf32>
    %232 = tosa.matmul %230, %231, %18, %18 : (tensor<1x1x12xf32>, tensor<1x12x5xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x1x5xf32>
    %233 = tosa.reshape %232, %22 : (tensor<1x1x5xf32>, !tosa.shape<2>) -> tensor<1x5xf32>
    %234 = tosa.add %233, %49 : (tensor<1x5xf32>, tensor<1x5xf32>) -> tensor<1x5xf32>
    return %234 : tensor<1x5xf32>
  }
}

{-#
  dialect_resources: {
    builtin: {
      torch_tensor_12_torch.float32_1: "0x040000007C99D0BD80C7D43BB83D5BBCDF6AD23DC9EB1EBDD28CBA3DB0D0B63B6FE058BD4799E5BC221E5BBCCF00A03AE40E9FBC",
      torch_tensor_8_torch.float32_5: "0x04000000FA656FBDFE88943CD23388BDA7A816BDEF00BE3DDDFB6CBD8635E8BB7E82E63D",
      torch_tensor_8_torch.float32_4: "0x04000000D366033D63C4673BC267E8BC205992BD163BADBCE05142BD4000C33DF7F0EABD",
      torch_tensor_8_torch.float32_3: "0x04000000A30189BE73061D3EBEAA913E8217A73E4810B7BD1D6D913E36E9803EE0651A3E",
      torch_tensor_5_torch.int64: "0x0800000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
      torch_tensor_5_12_torch.int8: "0x0100000028701531541D3F477F842FFAE7CA547F8E4B6018026B04DDF43227F8322A80276012F2798DC4C571810D81FC31E17F00B4264E007FA240554A002B8B",
      torch_tensor_12_torch.int64: "0x08000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
      torch_tensor_12_8_3_3_torch.int8: "0x010000002CBFB3D3D838E36CB9D82F677B1505C649B5DE9584480967664333DF443E2DFC1301A31EA13EB3D6C366A542415B204666192C9BDE0C10D381DF316F8C3D8685AFEF249E63740869C5CDEF0EA59833267FCB2ECB40F960486C430570B47B7F7CC3BB082941356FDFD52C24B40D9DDACD728BB381219C2AA6ADBD14787AF680D5CEE432423A25CBFF11BEF4F08558F38F66BB2E7F06253361D9B8F6650B59FF27040386900B4056063636918F9C02AFD7ED321E7774AE001570D8CDAF5FDCD05776FBA569D4C5A6C29BB68BE6349E00D13E6FEFBF9DB4251D45ED428D237D80BD52ECBB4F0905D9614717144350CBF239C278A83BA3295A10F352A3A992B103C61D046BC8DD55DF7BCDFFE13C31BB55F8DFFD5A7E3F1754CABDDBAD370CD4F3FD6E729D2F3131EF20207D85CFAAC2194E9F536BC116BE1BC5CEAA9566F0FCC059B7CC9C94729DEEDB2F229E73800DF5E2576C11D35F5017DD05720EE794BB5CFBF732ACF7DC436850608ED30F9323AC3768926B3CAB7B91AAC0FA17DA87F161634013209D3481CBDE5EFCC61696DE23F8F34E9FBF7C19EB424DEBCBEB2FF04B98C162111A2AE2CD25DECB111FF4A9EDB743AB6633935F82F9B0920DC25C9C6A4D70DBB2AB6AC0F0EC169767A17ECEC7EE26E8805A7F407D23F69A90A8E04ACBFBFEACFD7B6661F30246D6CC6D07AA6C154491184EEEB7663B251F034BE3B3322332F1EFF6239B8631B8F52412551121F413305A84C98ACC50848A4CB26029216886602BA820DBCBF2C27371F28CF80958042623B5AF8BFF29F77FE7AA16DBEE7FFC7111D05FB6041D3A8906DF542C344EE3F86898A709CD0772F192C577E4C73A108E6C497039D4D63FE71983C030FAC28F52E6817D3FB3A27D01B24AE509BD92AAF2A27F01CE338DBE3093400B9580293DE68EB60E052117F9447D6B75D5D4F22634F5AD9F7CDDEFB1C01C36CDD166BEA0EC7A1C12F050C0571E0E12B15F439C88DF55C177BF8C39B2ECD8F6908A37F1B2FD8B223D7D97F04676A437354EA75CC8B11A6DAB45F129642395D91A9315BBE62E98AD3B81599DFE1A33B011376E9FC025FCA9948EA6C9A78F0A4BC30DFE3CA706785C80ED01D6ACA755D6F826B10B4CB525FC4755220491334ED18068E21ADC527D50D75A3F0D99C981567F4B291E7CBFD58DF30923A7F196981183228AA7E5856869BD1B4229EF875D8FE808D6D1",
      torch_tensor_8_torch.int64_2: "0x0800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
      torch_tensor_8_8_3_3_torch.int8_1: "0x01000000AD97E865718FFA4C396AFCA956D443E03774788AAACBAE7CF5AAC6B9358F87803840B0205F13E50AF241A84249B26A7FCDDC409B331E5290953A2F88B88AA3C66BE64A7B3B8C413163824F69890D6DA32A39227F696EF06C88BBE5DA763C5357A0F1132142CDD96BDEA75757D8E6A19530C96699EE0342685738C5A48D067CE8FBA3275182A65F1EF817EDA68854F1D0DFBADA916035BFD43AD02223AF200871D1DF6F97097CC67C7278F475C8D4311B477AAF442B443DD09A67B75285EA01160A29F2207FADF9CF716EFCD3B05CF779497166AC26CB41F40BA88E301E0B57CB2DBA1AE359706F064B81B517019CC8C4820C5734C38B990258CCBBBCF5878F7EC3E9DE90EA27CCFBFF815D6757D64388E0E6D336C6F1DB88EB944A4478D506197F75BE938DC26B2B7B5F02B17D6637BA650C54354490B94DE59174FD679C2CD0CAE5D146E8611DECB68BDB8AE802F8C15948E1CE506F8BE4F4D26DED6C01F2B5D62938FB7AA83173EA6602A0BA30C91F7E2CF420B694A0951A19CA8345B7EB95B83589B760BECBDC37AC0D34F7179E3A30F0963354EA3C2FCDF77F019AF740D6BD6A44EA07F21E05B2180308CF21982648F19900008DA27B63495C334B58E1EF5E00AA994A6E67165B86A1806BFFC32DCEAB3318A1A93E650BBD40178CAA1D52D540AE7F5E193B2EB2FF23E27FCD8AC1856DC5A3F2A7BB44A03D5E0039B8647D1F7580F21A903ECFD29A34A3E539611DD0C848186C30679967C5DE01E81972B32899146A576E45F522CA6D40A26FFEFADDDE06C189BEE6615EB3FBDBBBE9D348",
      torch_tensor_8_torch.int64_1: "0x0800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
      torch_tensor_8_8_3_3_torch.int8: "0x0100000092CFA67CC8C444C4C0F5F39A6DC62E7242136F12C47C1F80DBA773EA89F85222290C31E0CC869E39B3132A09AB7DB46B98E147CB6EA692C51578C22FDFE4609B0E7BEE65D86982EDE92A3364EDFB59DD72A9F2F93A59EB94412734AF547C0B865C9F1E13C32D8B1EADF2116FC254EFC28E887FDF0723596F6A9FEBB3B51F7B974FBCE768E20CA56FEFA126A3980868DB3C6E55BDF2D89900606C0C1DC960CBA7144D8D732EA7E46F9EDB2A9046424FAF7FB47F858E4E0D07B9CADB84071700297922D1CBAEA7EBE939C966A600737FB6170FC4D423A71537CE6AF83A7ED945DCEDEAFFD01E0551E60DD1953410CDD521E953073038E1375E06190558CABC389102C554894D7E1AF87ECAF6C8EE1C11E88007FC13627CB4F8CD8AA3784A44479B0D77B972225AC93B8FF82B266B7D74565AF09DD1F2BB412D151F702E90A338113E808A4E528D309C61287E828556714E55945C871DACCD17CEEC878831CAB2CE989A4C4111BA2A06A51B7482811060B21C5A271C7F53B80B41718145DB831CBA12ADA0F5D54B0B6418D7570718D700E7F59CFF96E54AA7AAE1DD161541A8F7476FF7B62549B0B638F787B634D5586513F6D7FA179EE1954FAE75DFB73E1359368451E8C7515E8FF469326CD4B96E357BCAAEF187325F1FF340AF7D8085E2690D31A22FF2335B38F5F8B0D253CD50CDE2038AFFF3F4E6655FA93B9C932702C485CE2B8A8410A490CFEB8CAB0887EEADA7329D9F491875DEC2F4016280F739BABF3E851E9D40934F8794026592C770EB3585D8BF6C35A315FFCBB7D665A4A5D902",
      torch_tensor_8_torch.int64: "0x0800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
      torch_tensor_8_3_5_5_torch.int8: "0x01000000FF4596A2CF22FD66F522D9E785ABCB05334DA9C82F6AE660EB0E7489AFE0CE6FADC5A688B56E393E07BE1688A3BE514BC7FB527F331156B4189DA7BE3A34B42746F0051E507B9DD1326A707119910CB08972618018EAEBC531B42F415B3081AD401B9CB67856C8E086FEA09DF913CC4CB2745894E006131E3208C23C85B4E0C2D397E51BADF95BF304F51A51795179F78DC357FFC09E8793E6474684509BE5CCE7E78C91EC02C5318CF771CB742F8C52F1C667980EE55C243E2EE1E596466658A506A5B9B52CB3FD05539FA8B55AD26D2F10FFE710E3FF109BBC6897F77F2F049040A4DBD5ED016A10734FAF3AA5C9262A61D70042845D9602EABC116ADAB4D0803AC2AAB64A44632FD5DC266A23C3C4861CB88D71ACF12504A99867156BD526E3FAB22C29FDE3B159A035D5C217BE1D19A1153632F097EC2CD13055BD01350A0B109C0A58734B113CC296927F51A832607F7063E3D36947B3733E46B025D364E9321736D53EA71DAA829A654578668EA9EBAD59A0C285B869685B6271DF38722A7F424FD33D0FE2B8B89E565BF1B6635209C475349F7A61D248B8EC6C05A6D5DDE70C7607B1073D3F8BE9A1CA2EA52F6C08ABD21C9F3F8C8584E656876ACD25068D6A457F41AB6B073D99DB82CE1C9B294512AA9DD8387F4AF22D82923CB73EA5C09643F3634F4704D8E41140A66CF295BB7175895A404C6DBB2934DA2BDB4FDCD0202DC10B4AF327E12DA3B5BF75DE00C27F7DA0989FFFDFACD218BD1CE3C21269AA06D17D87867EAF18F5E5E3510684B5D440AD78E4E964406C4AD9ABF66AD58A347CDC968C20F6C01A316663ED8F8D77383891767973",
      torch_tensor_8_torch.float32: "0x04000000623D9B3AB824843A52DB8D3ADE72883A6261433AEB5E793A1E66463AFAB26B3A",
      torch_tensor_8_torch.float32_1: "0x04000000B7696C3A64A36C3A4CE7713A5A44723AD6FE713A2EC1713A5FEF703A135B713A",
      torch_tensor_8_torch.float32_2: "0x0400000000DB6E3A2AEB703A27C86F3ACB18723ABCDF713A4933713A6227693A50A6703A",
      torch_tensor_12_torch.float32: "0x04000000EB34703A6C566D3A2B4C703A3ACF6F3A545E713AB726713A2FD5713AA8326B3A8DD16E3ACF78703A3627703A7798703A",
      torch_tensor_5_torch.float32: "0x0400000008E30A3BC2BC073B2A65F03AF909103B64DFFD3A",
      torch_tensor_5_torch.float32_1: "0x04000000F5F967BE4FFD92BC0C3214BD3A7E5B3E3FA5563E"
    }
  }
#-}
