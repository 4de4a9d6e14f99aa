/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences of different lengths packed one after the other (layout TND), causal, BF16 through
 * aclnnFlashAttentionVarLenScoreV4 and aclnnFlashAttentionUnpaddingScoreGradV4, with the statistics in the order of the
 * tokens ("same_as_input"). Shows that packing is only packing: each sequence alone, as a call of its own, gives the
 * same bits.
 *
 *     cc  -std=c11            -I$PREFIX/include gradient_packed.c -L$PREFIX/lib64 -lascendcl -lnnopbase -lopapi -lm
 *     c++ -std=c++11 -x c++   -I$PREFIX/include gradient_packed.c -L$PREFIX/lib64 -lascendcl -lnnopbase -lopapi
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

enum { SEQUENCES = 4, T = 120, N1 = 4, N2 = 2, D = 64, MASK = 2048 };

/* Cumulative ends, without a leading 0: lengths 30, 7, 0, 83. */
static const int64_t ends[SEQUENCES] = {30, 37, 37, 120};

/* The tensors of a call; each is [rows, heads, columns] on the device. */
typedef struct {
    void *query, *key, *value, *dy, *out, *maximum, *sum, *dq, *dk, *dv;
} Memory;

static void* device_memory(size_t bytes) {
    void* memory = NULL;
    CHECK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemset(memory, bytes, 0, bytes));
    return memory;
}

/* BF16 is the upper half of a float. */
static void* wave(int heads, double step) {
    const size_t count = (size_t)T * (size_t)heads * D;
    uint16_t* host = (uint16_t*)malloc(2 * count);
    void* memory = device_memory(2 * count);
    size_t k;
    for (k = 0; k < count; ++k) {
        const float value = (float)sin(step * (double)k);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        host[k] = (uint16_t)(bits >> 16);
    }
    CHECK(aclrtMemcpy(memory, 2 * count, host, 2 * count, ACL_MEMCPY_HOST_TO_DEVICE));
    free(host);
    return memory;
}

/* Rows first .. first + rows - 1 of a packed tensor: the offset of a view, counted in elements. */
static aclTensor* view(void* memory, int64_t first, int64_t rows, int64_t heads, int64_t columns, aclDataType type) {
    const int64_t shape[3] = {rows, heads, columns};
    const int64_t storage[3] = {T, heads, columns};
    aclTensor* tensor =
        aclCreateTensor(shape, 3, type, NULL, first * heads * columns, ACL_FORMAT_ND, storage, 3, memory);
    if (tensor == NULL) exit(1);
    return tensor;
}

/* Forward and gradient of rows first .. first + rows - 1 as the sequences that `lengths` says. */
static void compute(const Memory* m, int64_t first, int64_t rows, const int64_t* lengths, uint64_t sequences,
                    const aclTensor* mask, aclrtStream stream) {
    char layout[] = "TND", order[] = "same_as_input";
    aclTensor* all[10];
    aclIntArray* array = aclCreateIntArray(lengths, sequences);
    uint64_t bytes = 0;
    aclOpExecutor* executor;
    void* workspace = NULL;
    int k;
    all[0] = view(m->query, first, rows, N1, D, ACL_BF16);
    all[1] = view(m->key, first, rows, N2, D, ACL_BF16);
    all[2] = view(m->value, first, rows, N2, D, ACL_BF16);
    all[3] = view(m->dy, first, rows, N1, D, ACL_BF16);
    all[4] = view(m->out, first, rows, N1, D, ACL_BF16);
    all[5] = view(m->maximum, first, rows, N1, 8, ACL_FLOAT);
    all[6] = view(m->sum, first, rows, N1, 8, ACL_FLOAT);
    all[7] = view(m->dq, first, rows, N1, D, ACL_BF16);
    all[8] = view(m->dk, first, rows, N2, D, ACL_BF16);
    all[9] = view(m->dv, first, rows, N2, D, ACL_BF16);

    CHECK(aclnnFlashAttentionVarLenScoreV4GetWorkspaceSize(all[0], all[1], all[2], NULL, NULL, NULL, mask, NULL, array,
                                                           array, 0.125, 1.0, INT_MAX, INT_MAX, N1, layout, 0, 3, order,
                                                           all[5], all[6], NULL, all[4], &bytes, &executor));
    if (bytes > 0) CHECK(aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclnnFlashAttentionVarLenScoreV4(workspace, bytes, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    if (workspace != NULL) CHECK(aclrtFree(workspace));
    workspace = NULL;

    CHECK(aclnnFlashAttentionUnpaddingScoreGradV4GetWorkspaceSize(
        all[0], all[1], all[2], all[3], NULL, NULL, NULL, mask, all[5], all[6], NULL, all[4], NULL, array, array, 0.125,
        1.0, INT_MAX, INT_MAX, N1, layout, 0, 3, all[7], all[8], all[9], NULL, order, &bytes, &executor));
    if (bytes > 0) CHECK(aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclnnFlashAttentionUnpaddingScoreGradV4(workspace, bytes, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    if (workspace != NULL) CHECK(aclrtFree(workspace));

    for (k = 0; k < 10; ++k) CHECK(aclDestroyTensor(all[k]));
    CHECK(aclDestroyIntArray(array));
}

static int same(const char* name, const void* packed, const void* alone, size_t bytes) {
    unsigned char *a = (unsigned char*)malloc(bytes), *b = (unsigned char*)malloc(bytes);
    int equal;
    CHECK(aclrtMemcpy(a, bytes, packed, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK(aclrtMemcpy(b, bytes, alone, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    equal = memcmp(a, b, bytes) == 0;
    printf("%-4s %s\n", name, equal ? "same bits" : "DIFFERENT");
    free(a), free(b);
    return equal;
}

int main(void) {
    const size_t q_bytes = (size_t)2 * T * N1 * D, kv_bytes = (size_t)2 * T * N2 * D,
                 statistics = (size_t)4 * T * N1 * 8;
    const int64_t mask_shape[2] = {MASK, MASK};
    unsigned char* upper = (unsigned char*)malloc((size_t)MASK * MASK);
    Memory packed, alone;
    aclTensor* mask;
    void* mask_memory;
    aclrtStream stream = NULL;
    int64_t first = 0;
    int k, column, right = 1;

    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    packed.query = wave(N1, 0.37), packed.key = wave(N2, 0.53), packed.value = wave(N2, 0.71),
    packed.dy = wave(N1, 0.11);
    alone = packed; /* the same inputs, results of its own */
    packed.out = device_memory(q_bytes), packed.dq = device_memory(q_bytes);
    packed.dk = device_memory(kv_bytes), packed.dv = device_memory(kv_bytes);
    packed.maximum = device_memory(statistics), packed.sum = device_memory(statistics);
    alone.out = device_memory(q_bytes), alone.dq = device_memory(q_bytes);
    alone.dk = device_memory(kv_bytes), alone.dv = device_memory(kv_bytes);
    alone.maximum = device_memory(statistics), alone.sum = device_memory(statistics);

    /* sparseMode 3, causal from the bottom right, comes with this template: 1 above the diagonal. */
    for (k = 0; k < MASK; ++k) {
        for (column = 0; column < MASK; ++column) upper[(size_t)k * MASK + (size_t)column] = column > k;
    }
    mask_memory = device_memory((size_t)MASK * MASK);
    CHECK(aclrtMemcpy(mask_memory, (size_t)MASK * MASK, upper, (size_t)MASK * MASK, ACL_MEMCPY_HOST_TO_DEVICE));
    mask = aclCreateTensor(mask_shape, 2, ACL_UINT8, NULL, 0, ACL_FORMAT_ND, mask_shape, 2, mask_memory);

    compute(&packed, 0, T, ends, SEQUENCES, mask, stream);
    for (k = 0; k < SEQUENCES; ++k) {
        const int64_t rows = ends[k] - first;
        if (rows > 0) compute(&alone, first, rows, &rows, 1, mask, stream);
        first = ends[k];
    }
    right &= same("out", packed.out, alone.out, q_bytes);
    right &= same("max", packed.maximum, alone.maximum, statistics);
    right &= same("sum", packed.sum, alone.sum, statistics);
    right &= same("dq", packed.dq, alone.dq, q_bytes);
    right &= same("dk", packed.dk, alone.dk, kv_bytes);
    right &= same("dv", packed.dv, alone.dv, kv_bytes);

    CHECK(aclDestroyTensor(mask));
    CHECK(aclrtFree(mask_memory));
    CHECK(aclrtFree(packed.query));
    CHECK(aclrtFree(packed.key));
    CHECK(aclrtFree(packed.value));
    CHECK(aclrtFree(packed.dy));
    {
        void* results[12];
        results[0] = packed.out, results[1] = packed.maximum, results[2] = packed.sum;
        results[3] = packed.dq, results[4] = packed.dk, results[5] = packed.dv;
        results[6] = alone.out, results[7] = alone.maximum, results[8] = alone.sum;
        results[9] = alone.dq, results[10] = alone.dk, results[11] = alone.dv;
        for (k = 0; k < 12; ++k) CHECK(aclrtFree(results[k]));
    }
    free(upper);
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    printf(right ? "right\n" : "wrong\n");
    return right ? 0 : 1;
}
