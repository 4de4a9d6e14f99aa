/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient through aclnnFlashAttentionScoreGradV2: layout SBH, FP16, with softmax statistics that are simply given
 * (max = sum = 3): the gradient takes them as they are, P = exp(x - 3) / 3. Prints some of dq, dk, dv and compares them
 * with the formulas evaluated below in double.
 *
 *     cc  -std=c11            -I$PREFIX/include gradient_sbh.c -L$PREFIX/lib64 -lascendcl -lnnopbase -lopapi -lm
 *     c++ -std=c++11 -x c++   -I$PREFIX/include gradient_sbh.c -L$PREFIX/lib64 -lascendcl -lnnopbase -lopapi
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
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

enum { S1 = 48, S2 = 64, B = 2, N = 2, D = 32, H = N * D };

static const double scale = 0.17677669529663687; /* 1 / sqrt(32) */

/* A tensor: device memory and its descriptor, made from host values or (values null) filled with nothing. */
typedef struct {
    void* device;
    aclTensor* tensor;
    size_t bytes;
} Tensor;

static Tensor make_tensor(const void* host, const int64_t* shape, uint64_t rank, aclDataType type) {
    Tensor made = {NULL, NULL, 0};
    uint64_t axis;
    made.bytes = aclDataTypeSize(type);
    for (axis = 0; axis < rank; ++axis) made.bytes *= (size_t)shape[axis];
    CHECK(aclrtMalloc(&made.device, made.bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    if (host != NULL) CHECK(aclrtMemcpy(made.device, made.bytes, host, made.bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    made.tensor = aclCreateTensor(shape, rank, type, NULL, 0, ACL_FORMAT_ND, shape, rank, made.device);
    if (made.tensor == NULL) exit(1);
    return made;
}

static void drop_tensor(Tensor* tensor) {
    CHECK(aclDestroyTensor(tensor->tensor));
    CHECK(aclrtFree(tensor->device));
}

/* FP16 values of a gentle wave. */
static aclFloat16* wave(int count, double step) {
    aclFloat16* values = (aclFloat16*)malloc((size_t)count * sizeof(aclFloat16));
    int k;
    for (k = 0; k < count; ++k) values[k] = aclFloatToFloat16((float)sin(step * k));
    return values;
}

/* Element (s, b, n, d) of a host tensor in SBH. */
static double at(const aclFloat16* values, int s, int b, int n, int d) {
    return (double)aclFloat16ToFloat(values[((s * B + b) * N + n) * D + d]);
}

/* The largest difference between a result and the formula, relative to the largest value of the formula. */
static double difference(const char* name, const Tensor* result, const double* expected, int count) {
    aclFloat16* got = (aclFloat16*)malloc(result->bytes);
    double largest = 0, size = 0;
    int k;
    CHECK(aclrtMemcpy(got, result->bytes, result->device, result->bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (k = 0; k < count; ++k) {
        const double value = (double)aclFloat16ToFloat(got[k]);
        const double off = fabs(value - expected[k]);
        if (!(off <= largest)) largest = off; /* a NaN counts */
        if (fabs(expected[k]) > size) size = fabs(expected[k]);
    }
    printf("%s  %9.5f %9.5f %9.5f ...  off by %.1e of the largest\n", name, (double)aclFloat16ToFloat(got[0]),
           (double)aclFloat16ToFloat(got[1]), (double)aclFloat16ToFloat(got[2]), largest / size);
    free(got);
    return largest / size;
}

int main(void) {
    const int64_t q_shape[3] = {S1, B, H};
    const int64_t kv_shape[3] = {S2, B, H};
    const int64_t statistics_shape[4] = {B, N, S1, 8};
    char layout[] = "SBH";
    aclFloat16 *query = wave(S1 * B * H, 0.37), *dy = wave(S1 * B * H, 0.11), *out = wave(S1 * B * H, 0.23);
    aclFloat16 *key = wave(S2 * B * H, 0.53), *value = wave(S2 * B * H, 0.71);
    float* three = (float*)malloc(sizeof(float) * B * N * S1 * 8);
    double* dq = (double*)calloc((size_t)S1 * B * H, sizeof(double));
    double* dk = (double*)calloc((size_t)S2 * B * H, sizeof(double));
    double* dv = (double*)calloc((size_t)S2 * B * H, sizeof(double));
    aclrtStream stream = NULL;
    Tensor q, k, v, g, o, maximum, sum, dq_out, dk_out, dv_out;
    uint64_t workspace_bytes = 0;
    aclOpExecutor* executor;
    void* workspace = NULL;
    double off;
    int b, n, i, j, d, index;

    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    for (index = 0; index < B * N * S1 * 8; ++index) three[index] = 3.0f;
    q = make_tensor(query, q_shape, 3, ACL_FLOAT16);
    k = make_tensor(key, kv_shape, 3, ACL_FLOAT16);
    v = make_tensor(value, kv_shape, 3, ACL_FLOAT16);
    g = make_tensor(dy, q_shape, 3, ACL_FLOAT16);
    o = make_tensor(out, q_shape, 3, ACL_FLOAT16);
    maximum = make_tensor(three, statistics_shape, 4, ACL_FLOAT);
    sum = make_tensor(three, statistics_shape, 4, ACL_FLOAT);
    dq_out = make_tensor(NULL, q_shape, 3, ACL_FLOAT16);
    dk_out = make_tensor(NULL, kv_shape, 3, ACL_FLOAT16);
    dv_out = make_tensor(NULL, kv_shape, 3, ACL_FLOAT16);

    /* Phase 1 checks and says how much workspace; phase 2 enqueues. */
    CHECK(aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
        q.tensor, k.tensor, v.tensor, g.tensor, NULL, NULL, NULL, NULL, maximum.tensor, sum.tensor, NULL, o.tensor,
        NULL, NULL, NULL, scale, 1.0, INT_MAX, INT_MAX, N, layout, 0, 0, 1, dq_out.tensor, dk_out.tensor, dv_out.tensor,
        NULL, &workspace_bytes, &executor));
    if (workspace_bytes > 0) CHECK(aclrtMalloc(&workspace, workspace_bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclnnFlashAttentionScoreGradV2(workspace, workspace_bytes, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));

    /* The same in double, pair by pair. */
    for (b = 0; b < B; ++b) {
        for (n = 0; n < N; ++n) {
            for (i = 0; i < S1; ++i) {
                double delta = 0; /* dy . attention_out */
                for (d = 0; d < D; ++d) delta += at(dy, i, b, n, d) * at(out, i, b, n, d);
                for (j = 0; j < S2; ++j) {
                    double raw = 0, dp = 0, p, ds;
                    for (d = 0; d < D; ++d) {
                        raw += at(query, i, b, n, d) * at(key, j, b, n, d);
                        dp += at(dy, i, b, n, d) * at(value, j, b, n, d);
                    }
                    p = exp(raw * scale - 3.0) / 3.0;
                    ds = p * (dp - delta);
                    for (d = 0; d < D; ++d) {
                        dq[((i * B + b) * N + n) * D + d] += scale * ds * at(key, j, b, n, d);
                        dk[((j * B + b) * N + n) * D + d] += scale * ds * at(query, i, b, n, d);
                        dv[((j * B + b) * N + n) * D + d] += p * at(dy, i, b, n, d);
                    }
                }
            }
        }
    }
    off = difference("dq", &dq_out, dq, S1 * B * H);
    off = fmax(off, difference("dk", &dk_out, dk, S2 * B * H));
    off = fmax(off, difference("dv", &dv_out, dv, S2 * B * H));

    {
        Tensor* all[10];
        all[0] = &q, all[1] = &k, all[2] = &v, all[3] = &g, all[4] = &o;
        all[5] = &maximum, all[6] = &sum, all[7] = &dq_out, all[8] = &dk_out, all[9] = &dv_out;
        for (index = 0; index < 10; ++index) drop_tensor(all[index]);
    }
    if (workspace != NULL) CHECK(aclrtFree(workspace));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    free(query), free(key), free(value), free(dy), free(out), free(three), free(dq), free(dk), free(dv);
    /* FP16 keeps 11 bits; terms of the sums may have been rounded to it as well. */
    if (!(off < 1.0 / 1024)) {
        fprintf(stderr, "wrong\n");
        return 1;
    }
    printf("right\n");
    return 0;
}
