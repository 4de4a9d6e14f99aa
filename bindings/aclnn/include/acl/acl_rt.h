/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime: one device (this host), contexts, streams, memory. A stream runs what it is given in order, on a thread
 * of its own; a null stream is the device's default stream. Device memory is host memory: a kernel may read any
 * address the program may read, and a copy between "host" and "device" is a copy.
 *
 * Every function returns 0 (ACL_SUCCESS) or an error code, and leaves a text for aclGetRecentErrMsg (acl.h).
 */
#ifndef FASCORE_ACL_ACL_RT_H
#define FASCORE_ACL_ACL_RT_H

#include <stddef.h>
#include <stdint.h>

#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum FASCORE_ACL_INT {
    ACL_MEM_MALLOC_HUGE_FIRST = 0,
    ACL_MEM_MALLOC_HUGE_ONLY = 1,
    ACL_MEM_MALLOC_NORMAL_ONLY = 2,
    ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
    ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
    ACL_MEM_MALLOC_HUGE1G_ONLY = 6,
    ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7,
    ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x0100,
    ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000,
    ACL_MEM_ACCESS_USER_SPACE_READONLY = 0x100000
} aclrtMemMallocPolicy;

typedef enum FASCORE_ACL_INT {
    ACL_MEMCPY_HOST_TO_HOST = 0,
    ACL_MEMCPY_HOST_TO_DEVICE = 1,
    ACL_MEMCPY_DEVICE_TO_HOST = 2,
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
    ACL_MEMCPY_DEFAULT = 4,
    ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5,
    ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6,
    ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7
} aclrtMemcpyKind;

typedef enum FASCORE_ACL_INT { ACL_OPT_DETERMINISTIC = 0, ACL_OPT_ENABLE_DEBUG_KERNEL = 1 } aclSysParamOpt;

typedef enum FASCORE_ACL_INT { ACL_DEVICE = 0, ACL_HOST = 1 } aclrtRunMode;

/* ---- device and context ---- */

/* Version of the runtime interface, not of fascore. Null pointers are skipped. */
aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion);

/* Makes the device's default context current in this thread. The only device is 0. */
aclError aclrtSetDevice(int32_t deviceId);
/* Waits for everything enqueued; reports what failed. */
aclError aclrtResetDevice(int32_t deviceId);
aclError aclrtGetDevice(int32_t* deviceId);
aclError aclrtGetDeviceCount(uint32_t* count);
/* Waits for every stream; reports the first failure among them. */
aclError aclrtSynchronizeDevice(void);
aclError aclrtGetRunMode(aclrtRunMode* runMode);

/* Creates a context and makes it current in this thread. */
aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId);
aclError aclrtDestroyContext(aclrtContext context);
aclError aclrtSetCurrentContext(aclrtContext context);
aclError aclrtGetCurrentContext(aclrtContext* context);

/* Options are kept and given back. Results here are deterministic whatever they say. */
aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value);
aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value);
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value);
aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value);

/* ---- streams ---- */

aclError aclrtCreateStream(aclrtStream* stream);
/* priority and flag are accepted and have no effect. */
aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag);
/* Finishes what is enqueued, then destroys. */
aclError aclrtDestroyStream(aclrtStream stream);
/* Stops what runs, drops what waits, then destroys. */
aclError aclrtDestroyStreamForce(aclrtStream stream);
/* Waits; returns the first failure since the last time it was asked, and leaves its text to this thread. */
aclError aclrtSynchronizeStream(aclrtStream stream);
/* Waits at most `timeout` milliseconds; -1 = for ever. */
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);

/* ---- memory ---- */

/* Aligned to 64 bytes. Freeing what was not allocated here, or twice, is an error. */
aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtFree(void* devPtr);
aclError aclrtMallocHost(void** hostPtr, size_t size);
aclError aclrtFreeHost(void* hostPtr);

/* Bytes. count <= destMax; neither may reach beyond the end of a block allocated here. */
aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind);
aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream);
aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                       aclrtMemcpyKind kind);
aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                            aclrtMemcpyKind kind, aclrtStream stream);
aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count);
aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
