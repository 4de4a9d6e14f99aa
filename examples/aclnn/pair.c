/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward and gradient as a training step has them (aclnnFlashAttentionScoreV2, then ...GradV2; BNSD, FLOAT, grouped
 * heads, a causal mask), enqueued one behind the other on a stream and waited for once. Compared with the formulas
 * evaluated below in double, from the forward on.
 *
 *     cc  -std=c11            -I$PREFIX/include pair.c -L$PREFIX/lib64 -lascendcl -lnnopbase -lopapi -lm
 *     c++ -std=c++11 -x c++   -I$PREFIX/include pair.c -L$PREFIX/lib64 -lascendcl -lnnopbase -lopapi
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"

#define CHECK(call)                                                                           \
    do {                                                                                      \
        const int status = (call);                                                            \
        if (status != ACL_SUCCESS) {                                                          \
            const char* text = aclGetRecentErrMsg();                                          \
            fprintf(stderr, "%s returned %d\n%s\n", #call, status, text == NULL ? "" : text); \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

enum { B = 2, N1 = 4, N2 = 2, G = N1 / N2, S = 72, D = 40 };
enum { QUERIES = B * N1 * S * D, KEYS = B * N2 * S * D, STATISTICS = B * N1 * S * 8 };

/* Element (b, n, s, d) of a tensor of `heads` heads. */
static size_t place(int heads, int b, int n, int s, int d) {
    return (((size_t)b * (size_t)heads + (size_t)n) * S + (size_t)s) * D + (size_t)d;
}

static float* wave(int count, double step) {
    float* values = (float*)malloc(sizeof(float) * (size_t)count);
    int k;
    for (k = 0; k < count; ++k) values[k] = (float)sin(step * k);
    return values;
}

/* Device memory that holds `host`, or zeros. */
static void* to_device(const void* host, size_t bytes) {
    void* memory = NULL;
    CHECK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    if (host != NULL) CHECK(aclrtMemcpy(memory, bytes, host, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    if (host == NULL) CHECK(aclrtMemset(memory, bytes, 0, bytes));
    return memory;
}

static aclTensor* describe(void* memory, int heads, int rows, int columns, aclDataType type) {
    const int64_t shape[4] = {B, heads, rows, columns};
    aclTensor* tensor = aclCreateTensor(shape, 4, type, NULL, 0, ACL_FORMAT_ND, shape, 4, memory);
    if (tensor == NULL) exit(1);
    return tensor;
}

static int close_enough(const char* name, const void* device, const double* expected, int count) {
    float* got = (float*)malloc(sizeof(float) * (size_t)count);
    double off = 0, size = 0;
    int k;
    CHECK(aclrtMemcpy(got, sizeof(float) * (size_t)count, device, sizeof(float) * (size_t)count,
                      ACL_MEMCPY_DEVICE_TO_HOST));
    for (k = 0; k < count; ++k) {
        const double here = fabs((double)got[k] - expected[k]);
        if (!(here <= off)) off = here; /* a NaN counts */
        if (fabs(expected[k]) > size) size = fabs(expected[k]);
    }
    printf("%-3s  ... %9.6f %9.6f %9.6f  off by %.1e of the largest\n", name, (double)got[count - 3],
           (double)got[count - 2], (double)got[count - 1], off / size);
    free(got);
    return off / size < 1e-5; /* FLOAT: 2^-24 a rounding, some dozens of them one after the other */
}

int main(void) {
    const double scale = 1 / sqrt((double)D);
    const int64_t mask_shape[2] = {S, S};
    char layout[] = "BNSD";
    float *query = wave(QUERIES, 0.37), *key = wave(KEYS, 0.53), *value = wave(KEYS, 0.71), *dy = wave(QUERIES, 0.11);
    unsigned char* hidden = (unsigned char*)malloc((size_t)S * S);
    double *out = (double*)calloc(QUERIES, sizeof(double)), *dq = (double*)calloc(QUERIES, sizeof(double));
    double *dk = (double*)calloc(KEYS, sizeof(double)), *dv = (double*)calloc(KEYS, sizeof(double));
    void* memory[11];
    aclTensor* tensor[11];
    enum { Q, K, V, DY, OUT, MAXIMUM, SUM, DQ, DK, DV, MASK };
    aclrtStream stream = NULL;
    uint64_t bytes[2] = {0, 0};
    aclOpExecutor* executor[2];
    void* workspace[2] = {NULL, NULL};
    int b, n, i, j, d, k, right = 1;

    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    for (i = 0; i < S; ++i) {
        for (j = 0; j < S; ++j) hidden[i * S + j] = j > i; /* 1 = masked out */
    }
    memory[Q] = to_device(query, sizeof(float) * QUERIES), memory[K] = to_device(key, sizeof(float) * KEYS);
    memory[V] = to_device(value, sizeof(float) * KEYS), memory[DY] = to_device(dy, sizeof(float) * QUERIES);
    memory[OUT] = to_device(NULL, sizeof(float) * QUERIES), memory[DQ] = to_device(NULL, sizeof(float) * QUERIES);
    memory[DK] = to_device(NULL, sizeof(float) * KEYS), memory[DV] = to_device(NULL, sizeof(float) * KEYS);
    memory[MAXIMUM] = to_device(NULL, sizeof(float) * STATISTICS),
    memory[SUM] = to_device(NULL, sizeof(float) * STATISTICS);
    memory[MASK] = to_device(hidden, (size_t)S * S);
    for (k = 0; k < MASK; ++k) {
        const int statistic = k == MAXIMUM || k == SUM, keys = k == K || k == V || k == DK || k == DV;
        tensor[k] = describe(memory[k], keys ? N2 : N1, S, statistic ? 8 : D, ACL_FLOAT);
    }
    tensor[MASK] = aclCreateTensor(mask_shape, 2, ACL_BOOL, NULL, 0, ACL_FORMAT_ND, mask_shape, 2, memory[MASK]);

    CHECK(aclnnFlashAttentionScoreV2GetWorkspaceSize(
        tensor[Q], tensor[K], tensor[V], NULL, NULL, NULL, tensor[MASK], NULL, NULL, NULL, scale, 1.0, INT_MAX, INT_MAX,
        N1, layout, 0, 1, 1, tensor[MAXIMUM], tensor[SUM], NULL, tensor[OUT], &bytes[0], &executor[0]));
    CHECK(aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
        tensor[Q], tensor[K], tensor[V], tensor[DY], NULL, NULL, NULL, tensor[MASK], tensor[MAXIMUM], tensor[SUM], NULL,
        tensor[OUT], NULL, NULL, NULL, scale, 1.0, INT_MAX, INT_MAX, N1, layout, 0, 1, 1, tensor[DQ], tensor[DK],
        tensor[DV], NULL, &bytes[1], &executor[1]));
    for (k = 0; k < 2; ++k) {
        if (bytes[k] > 0) CHECK(aclrtMalloc(&workspace[k], bytes[k], ACL_MEM_MALLOC_HUGE_FIRST));
    }
    CHECK(aclnnFlashAttentionScoreV2(workspace[0], bytes[0], executor[0], stream));
    CHECK(aclnnFlashAttentionScoreGradV2(workspace[1], bytes[1], executor[1], stream));
    CHECK(aclrtSynchronizeStream(stream));

    /* softmax over the visible keys, then its derivative, in double. */
    for (b = 0; b < B; ++b) {
        for (n = 0; n < N1; ++n) {
            for (i = 0; i < S; ++i) {
                double p[S], dp[S], maximum = -HUGE_VAL, sum = 0, delta = 0;
                const int h = n / G;
                for (j = 0; j <= i; ++j) {
                    p[j] = dp[j] = 0;
                    for (d = 0; d < D; ++d) {
                        p[j] += (double)query[place(N1, b, n, i, d)] * (double)key[place(N2, b, h, j, d)];
                        dp[j] += (double)dy[place(N1, b, n, i, d)] * (double)value[place(N2, b, h, j, d)];
                    }
                    p[j] *= scale;
                    if (p[j] > maximum) maximum = p[j];
                }
                for (j = 0; j <= i; ++j) sum += p[j] = exp(p[j] - maximum);
                for (j = 0; j <= i; ++j) {
                    p[j] /= sum;
                    delta += p[j] * dp[j];
                }
                for (j = 0; j <= i; ++j) {
                    const double ds = p[j] * (dp[j] - delta);
                    for (d = 0; d < D; ++d) {
                        out[place(N1, b, n, i, d)] += p[j] * (double)value[place(N2, b, h, j, d)];
                        dq[place(N1, b, n, i, d)] += scale * ds * (double)key[place(N2, b, h, j, d)];
                        dk[place(N2, b, h, j, d)] += scale * ds * (double)query[place(N1, b, n, i, d)];
                        dv[place(N2, b, h, j, d)] += p[j] * (double)dy[place(N1, b, n, i, d)];
                    }
                }
            }
        }
    }
    right &= close_enough("out", memory[OUT], out, QUERIES);
    right &= close_enough("dq", memory[DQ], dq, QUERIES);
    right &= close_enough("dk", memory[DK], dk, KEYS);
    right &= close_enough("dv", memory[DV], dv, KEYS);

    for (k = 0; k <= MASK; ++k) {
        CHECK(aclDestroyTensor(tensor[k]));
        CHECK(aclrtFree(memory[k]));
    }
    for (k = 0; k < 2; ++k) {
        if (workspace[k] != NULL) CHECK(aclrtFree(workspace[k]));
    }
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    free(query), free(key), free(value), free(dy), free(hidden), free(out), free(dq), free(dk), free(dv);
    printf(right ? "right\n" : "wrong\n");
    return right ? 0 : 1;
}
