/* SPDX-License-Identifier: Apache-2.0 */
/* The headers as a C11 program sees them: sizes and numbers that reach the object code, and one call. */
#include "acl/acl.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"

_Static_assert(sizeof(aclDataType) == 4 && sizeof(aclFormat) == 4 && sizeof(aclrtMemcpyKind) == 4, "enums are ints");
_Static_assert(sizeof(aclrtStream) == sizeof(void*) && sizeof(aclFloat16) == 2, "handles are pointers");
_Static_assert(ACL_BF16 == 27 && ACL_FORMAT_ND == 2 && ACL_MEMCPY_DEVICE_TO_HOST == 2, "values");

int fascore_c11_program(void);
int fascore_c11_program(void) {
    const int64_t shape[2] = {2, 3};
    aclTensor* tensor = aclCreateTensor(shape, 2, ACL_FLOAT16, NULL, 0, ACL_FORMAT_ND, shape, 2, NULL);
    const bool yes[1] = {true};
    aclBoolArray* array = aclCreateBoolArray(yes, 1);
    uint64_t size = 0;
    if (tensor == NULL || array == NULL || aclGetBoolArraySize(array, &size) != OK || size != 1) return 1;
    return aclDestroyTensor(tensor) != ACLNN_SUCCESS || aclDestroyBoolArray(array) != ACL_SUCCESS;
}
