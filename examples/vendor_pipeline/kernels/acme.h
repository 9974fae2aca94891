/* Integer kernels of the vendor "acme", called by name from lowered MLIR.
 *
 * MLIR passes a ranked memref as a pointer to its descriptor (`llvm.emit_c_interface`) and prefixes the symbol. The
 * memref that a function returns comes first: these kernels return the destination that they were given last.
 */
#ifndef ACME_H
#define ACME_H

#include <stdint.h>

typedef struct {
  int8_t *allocated, *data;
  int64_t offset, sizes[2], strides[2];
} acme_i8_2d;

typedef struct {
  int8_t *allocated, *data;
  int64_t offset, sizes[4], strides[4];
} acme_i8_4d;

typedef struct {
  int32_t *allocated, *data;
  int64_t offset, sizes[1], strides[1];
} acme_i32_1d;

typedef struct {
  int8_t *allocated, *data;
  int64_t offset, sizes[1], strides[1];
} acme_i8_1d;

/* result[m][n] = clamp(((bias[n] + sum lhs[m][k] * rhs[n][k]) * multiplier[n] >> shift[n], rounded half up) + zero)
 *
 * The zero point of lhs is folded into the bias. k is a multiple of 16. */
void _mlir_ciface_acme_qmatmul_s8(acme_i8_2d *returned, acme_i8_2d *lhs, acme_i8_2d *rhs, acme_i32_1d *bias,
                                  acme_i32_1d *multiplier, acme_i8_1d *shift, int32_t zero_point, int32_t minimum,
                                  int32_t maximum, acme_i8_2d *result);

/* The same over windows of an NHWC image and OHWI weights; padding (top, bottom, left, right) is by lhs_zero_point.
 * The input channels are a multiple of 16. */
void _mlir_ciface_acme_qconv_s8(acme_i8_4d *returned, acme_i8_4d *lhs, acme_i8_4d *rhs, acme_i32_1d *bias,
                                acme_i32_1d *multiplier, acme_i8_1d *shift, int32_t lhs_zero_point,
                                int32_t zero_point, int32_t minimum, int32_t maximum, int32_t stride_h,
                                int32_t stride_w, int32_t dilation_h, int32_t dilation_w, int32_t top, int32_t bottom,
                                int32_t left, int32_t right, acme_i8_4d *result);

/* Which instructions the kernels were compiled to. */
const char *acme_instructions(void);

/* How many calls there were since the last reset. */
int64_t acme_qmatmul_calls(void);
int64_t acme_qconv_calls(void);
void acme_reset_calls(void);

#endif
