/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start, end and error text of a process. Brings in the whole runtime; most programs include this header and one of
 * aclnnop/.
 */
#ifndef FASCORE_ACL_ACL_H
#define FASCORE_ACL_ACL_H

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Counts references: each call adds one. configPath is null, empty or a readable file, whose content has no effect. */
aclError aclInit(const char* configPath);
/* Waits for all streams and drops all references. Without a reference: ACL_ERROR_REPEAT_FINALIZE. */
aclError aclFinalize(void);
/* Drops one reference and, with the last one, finalizes. refCount (may be null): references left. */
aclError aclFinalizeReference(uint64_t* refCount);

/* Texts of the failures in this thread since the last call, newest first, one a line; null when there was none. The
 * pointer is good until the next call in this thread. */
const char* aclGetRecentErrMsg(void);

#ifdef __cplusplus
}
#endif

#endif
