/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operator header includes: the descriptors and the status codes by name. A program that defines those
 * names itself compiles with -DFASCORE_ACLNN_NO_STATUS_NAMES.
 */
#ifndef FASCORE_ACLNN_ACLNN_BASE_H
#define FASCORE_ACLNN_ACLNN_BASE_H

#include "aclnn/acl_meta.h"

#ifndef FASCORE_ACLNN_NO_STATUS_NAMES

static const aclnnStatus ACLNN_SUCCESS = 0;
/* A required pointer is null. */
static const aclnnStatus ACLNN_ERR_PARAM_NULLPTR = 161001;
/* A dtype, layout, shape, attribute or combination is not allowed. */
static const aclnnStatus ACLNN_ERR_PARAM_INVALID = 161002;
/* A runtime call failed. */
static const aclnnStatus ACLNN_ERR_RUNTIME_ERROR = 361001;
static const aclnnStatus ACLNN_ERR_INNER = 561000;
static const aclnnStatus ACLNN_ERR_INNER_INFERSHAPE_ERROR = 561001;
static const aclnnStatus ACLNN_ERR_INNER_TILING_ERROR = 561002;
static const aclnnStatus ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003;
static const aclnnStatus ACLNN_ERR_INNER_CREATE_EXECUTOR = 561101;
static const aclnnStatus ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR = 561102;
static const aclnnStatus ACLNN_ERR_INNER_NULLPTR = 561103;
static const aclnnStatus ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE = 561104;
static const aclnnStatus ACLNN_ERR_INNER_KEY_CONFILICT = 561105; /* so spelled where it comes from */
static const aclnnStatus ACLNN_ERR_INNER_INVALID_IMPL_MODE = 561106;
/* Faults of an operator package: there is none here, so these are never returned. */
static const aclnnStatus ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND = 561107;
static const aclnnStatus ACLNN_ERR_INNER_LOAD_JSON_FAILED = 561108;
static const aclnnStatus ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND = 561109;
static const aclnnStatus ACLNN_ERR_INNER_JSON_FORMAT_INVALID = 561110;
static const aclnnStatus ACLNN_ERR_INNER_JSON_DTYPE_INVALID = 561111;
static const aclnnStatus ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND = 561112;
static const aclnnStatus ACLNN_ERR_INNER_OP_FILE_INVALID = 561113;
static const aclnnStatus ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND = 561114;
static const aclnnStatus ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH = 561115;
static const aclnnStatus ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE = 561116;
static const aclnnStatus ACLNN_ERR_INNER_INPUT_JSON_IS_NULL = 561117;
static const aclnnStatus ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID = 561118;
static const aclnnStatus ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID = 561119;

#endif

#endif
