#include "acme.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t matmul_calls, conv_calls;

int64_t acme_qmatmul_calls(void) { return matmul_calls; }
int64_t acme_qconv_calls(void) { return conv_calls; }
void acme_reset_calls(void) { matmul_calls = conv_calls = 0; }

static void fail(const char *what) {
  fprintf(stderr, "acme: %s\n", what);
  abort();
}

static int is_dense(const int64_t *sizes, const int64_t *strides, int rank) {
  int64_t expected = 1;
  for (int i = rank - 1; i >= 0; expected *= sizes[i--])
    if (sizes[i] > 1 && strides[i] != expected) return 0;
  return 1;
}

/* -- products of one row with rows of weights; k is a multiple of 16 ---------------------------------------------- */

/* So many at a time. */
#define COLUMNS 64

#if defined(__AVX2__)
#include <immintrin.h>

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define INSTRUCTIONS "AVX-512 VNNI (vpdpwssd)"
#define ACCUMULATE(sum, a, b) _mm256_dpwssd_epi32(sum, a, b)
#elif defined(__AVXVNNI__)
#define INSTRUCTIONS "AVX-VNNI (vpdpwssd)"
#define ACCUMULATE(sum, a, b) _mm256_dpwssd_avx_epi32(sum, a, b)
#else
#define INSTRUCTIONS "AVX2 (vpmaddwd)"
#define ACCUMULATE(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
#endif

static __m256i wide(const int8_t *bytes) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)bytes)); }

static __m128i totals(__m256i s0, __m256i s1, __m256i s2, __m256i s3) {
  __m256i pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(s0, s1), _mm256_hadd_epi32(s2, s3));
  return _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
}

/* Two rows at once: each weight is widened once for both. */
static void products_of_two(const int8_t *first, const int8_t *second, const int8_t *weights, int64_t k,
                            int64_t columns, int32_t *sums, int32_t *more) {
  for (int64_t j = 0; j < columns; j += 4) {
    const int8_t *w = weights + j * k;
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0, t0 = s0, t1 = s0, t2 = s0, t3 = s0;
    for (int64_t p = 0; p < k; p += 16) {
      __m256i a = wide(first + p), b = wide(second + p);
      __m256i w0 = wide(w + p), w1 = wide(w + k + p), w2 = wide(w + 2 * k + p), w3 = wide(w + 3 * k + p);
      s0 = ACCUMULATE(s0, a, w0), t0 = ACCUMULATE(t0, b, w0);
      s1 = ACCUMULATE(s1, a, w1), t1 = ACCUMULATE(t1, b, w1);
      s2 = ACCUMULATE(s2, a, w2), t2 = ACCUMULATE(t2, b, w2);
      s3 = ACCUMULATE(s3, a, w3), t3 = ACCUMULATE(t3, b, w3);
    }
    _mm_storeu_si128((__m128i *)(sums + j), totals(s0, s1, s2, s3));
    _mm_storeu_si128((__m128i *)(more + j), totals(t0, t1, t2, t3));
  }
}

static void products(const int8_t *row, const int8_t *weights, int64_t k, int64_t columns, int32_t *sums) {
  int64_t j = columns / 4 * 4;
  for (int64_t q = 0; q < j; q += 4) {
    const int8_t *w = weights + q * k;
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t p = 0; p < k; p += 16) {
      __m256i a = wide(row + p);
      s0 = ACCUMULATE(s0, a, wide(w + p));
      s1 = ACCUMULATE(s1, a, wide(w + k + p));
      s2 = ACCUMULATE(s2, a, wide(w + 2 * k + p));
      s3 = ACCUMULATE(s3, a, wide(w + 3 * k + p));
    }
    _mm_storeu_si128((__m128i *)(sums + q), totals(s0, s1, s2, s3));
  }
  for (; j < columns; j++) {
    __m256i lanes = _mm256_setzero_si256();
    for (int64_t p = 0; p < k; p += 16) lanes = ACCUMULATE(lanes, wide(row + p), wide(weights + j * k + p));
    int32_t parts[8], sum = 0;
    _mm256_storeu_si256((__m256i *)parts, lanes);
    for (int i = 0; i < 8; i++) sum += parts[i];
    sums[j] = sum;
  }
}

#else
#define INSTRUCTIONS "portable C"

static void products(const int8_t *row, const int8_t *weights, int64_t k, int64_t columns, int32_t *sums) {
  for (int64_t j = 0; j < columns; j++) {
    int32_t sum = 0;
    for (int64_t p = 0; p < k; p++) sum += (int32_t)row[p] * weights[j * k + p];
    sums[j] = sum;
  }
}

static void products_of_two(const int8_t *first, const int8_t *second, const int8_t *weights, int64_t k,
                            int64_t columns, int32_t *sums, int32_t *more) {
  products(first, weights, k, columns, sums);
  products(second, weights, k, columns, more);
}
#endif

const char *acme_instructions(void) { return INSTRUCTIONS; }

/* -- requantize --------------------------------------------------------------------------------------------------- */

typedef struct {
  const int32_t *bias, *multiplier;
  const int8_t *shift;
  int32_t zero_point, minimum, maximum;
} requantize;

static void store(const int32_t *sums, const requantize *to, int64_t first, int64_t columns, int8_t *out) {
  const int32_t *bias = to->bias + first, *multiplier = to->multiplier + first;
  const int8_t *shift = to->shift + first;
  for (int64_t j = 0; j < columns; j++) {
    int64_t product = (int64_t)(sums[j] + bias[j]) * multiplier[j];
    int64_t value = ((product + ((int64_t)1 << (shift[j] - 1))) >> shift[j]) + to->zero_point;
    value = value < to->minimum ? to->minimum : value;
    out[j] = (int8_t)(value > to->maximum ? to->maximum : value);
  }
}

static void row_times_weights(const int8_t *row, const int8_t *weights, int64_t k, int64_t n, const requantize *to,
                              int8_t *restrict out) {
  for (int64_t j = 0; j < n; j += COLUMNS) {
    int64_t columns = n - j < COLUMNS ? n - j : COLUMNS;
    int32_t sums[COLUMNS];
    products(row, weights + j * k, k, columns, sums);
    store(sums, to, j, columns, out + j);
  }
}

/* Rows one behind the other, their results too. */
static void rows_times_weights(const int8_t *rows, int64_t count, const int8_t *weights, int64_t k, int64_t n,
                               const requantize *to, int8_t *restrict out) {
  int64_t i = 0, even = n / 4 * 4;
  for (; i + 2 <= count; i += 2) {
    const int8_t *first = rows + i * k, *second = first + k;
    int8_t *to_first = out + i * n, *to_second = to_first + n;
    for (int64_t j = 0; j < even; j += COLUMNS) {
      int64_t columns = even - j < COLUMNS ? even - j : COLUMNS;
      int32_t sums[COLUMNS], more[COLUMNS];
      products_of_two(first, second, weights + j * k, k, columns, sums, more);
      store(sums, to, j, columns, to_first + j);
      store(more, to, j, columns, to_second + j);
    }
    if (even < n) {
      int32_t sums[4], more[4];
      products(first, weights + even * k, k, n - even, sums);
      products(second, weights + even * k, k, n - even, more);
      store(sums, to, even, n - even, to_first + even);
      store(more, to, even, n - even, to_second + even);
    }
  }
  if (i < count) row_times_weights(rows + i * k, weights, k, n, to, out + i * n);
}

/* -- kernels ------------------------------------------------------------------------------------------------------ */

void _mlir_ciface_acme_qmatmul_s8(acme_i8_2d *returned, acme_i8_2d *lhs, acme_i8_2d *rhs, acme_i32_1d *bias,
                                  acme_i32_1d *multiplier, acme_i8_1d *shift, int32_t zero_point, int32_t minimum,
                                  int32_t maximum, acme_i8_2d *result) {
  int64_t m = lhs->sizes[0], k = lhs->sizes[1], n = rhs->sizes[0];
  if (k % 16 || !is_dense(lhs->sizes, lhs->strides, 2) || !is_dense(rhs->sizes, rhs->strides, 2) ||
      !is_dense(result->sizes, result->strides, 2))
    fail("qmatmul takes dense operands and a multiple of 16 for k");
  const requantize to = {bias->data + bias->offset,   multiplier->data + multiplier->offset,
                         shift->data + shift->offset, zero_point, minimum, maximum};
  rows_times_weights(lhs->data + lhs->offset, m, rhs->data + rhs->offset, k, n, &to, result->data + result->offset);
  matmul_calls++;
  *returned = *result;
}

void _mlir_ciface_acme_qconv_s8(acme_i8_4d *returned, acme_i8_4d *lhs, acme_i8_4d *rhs, acme_i32_1d *bias,
                                acme_i32_1d *multiplier, acme_i8_1d *shift, int32_t lhs_zero_point,
                                int32_t zero_point, int32_t minimum, int32_t maximum, int32_t stride_h,
                                int32_t stride_w, int32_t dilation_h, int32_t dilation_w, int32_t top, int32_t bottom,
                                int32_t left, int32_t right, acme_i8_4d *result) {
  int64_t batch = lhs->sizes[0], height = lhs->sizes[1], width = lhs->sizes[2], c = lhs->sizes[3];
  int64_t n = rhs->sizes[0], kernel_h = rhs->sizes[1], kernel_w = rhs->sizes[2];
  int64_t out_h = result->sizes[1], out_w = result->sizes[2], k = kernel_h * kernel_w * c;
  (void)bottom, (void)right; /* implied by the extents of the result */
  if (c % 16 || !is_dense(lhs->sizes, lhs->strides, 4) || !is_dense(rhs->sizes, rhs->strides, 4) ||
      !is_dense(result->sizes, result->strides, 4))
    fail("qconv takes dense operands and a multiple of 16 input channels");
  const requantize to = {bias->data + bias->offset,   multiplier->data + multiplier->offset,
                         shift->data + shift->offset, zero_point, minimum, maximum};
  const int8_t *image = lhs->data + lhs->offset;
  int8_t *out = result->data + result->offset, *patches = malloc((size_t)(out_w * k) + 1);
  if (!patches) fail("out of memory");
  for (int64_t b = 0; b < batch; b++)
    for (int64_t y = 0; y < out_h; y++, out += out_w * n) {
      int8_t *patch = patches;
      for (int64_t x = 0; x < out_w; x++)
        for (int64_t i = 0; i < kernel_h; i++)
          for (int64_t j = 0; j < kernel_w; j++, patch += c) {
            int64_t row = y * stride_h + i * dilation_h - top, column = x * stride_w + j * dilation_w - left;
            if (row < 0 || row >= height || column < 0 || column >= width)
              memset(patch, lhs_zero_point, (size_t)c);
            else
              memcpy(patch, image + ((b * height + row) * width + column) * c, (size_t)c);
          }
      rows_times_weights(patches, out_w, rhs->data + rhs->offset, k, n, &to, out);
    }
  free(patches);
  conv_calls++;
  *returned = *result;
}
