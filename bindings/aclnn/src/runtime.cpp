// SPDX-License-Identifier: Apache-2.0
//
// acl.h and acl_rt.h: the process, the device, contexts, streams and memory. There is one device, this host; contexts
// exist so that programs can make them.
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "acl/acl.h"
#include "memory.h"
#include "registry.h"
#include "report.h"
#include "stream.h"

namespace fascore::aclnn {

namespace {

// ---- process ----

std::mutex process_mutex;
std::uint64_t references = 0;

Verdict finalize() {
    static_cast<void>(wait_for_streams());
    return {};
}

// ---- device and contexts ----

// Values of aclSysParamOpt, which is 0 or 1.
struct Options {
    std::int64_t value[2] = {0, 0};
};

Registry<Options>& contexts() {
    static auto* const kept = new Registry<Options>(Kind::context);
    return *kept;
}

std::mutex options_mutex;
Options process_options;

aclrtContext default_context() {
    static void* const kept = contexts().add({});
    return kept;
}

thread_local aclrtContext current_context = nullptr;

// A thread that chose nothing works in the device's default context.
aclrtContext context_here() { return current_context == nullptr ? default_context() : current_context; }

Verdict check_device(std::int32_t device) {
    if (device == 0) return {};
    return {ACL_ERROR_INVALID_DEVICE, "deviceId: given " + std::to_string(device) + ", must be 0"};
}

Verdict check_option(aclSysParamOpt option) {
    const int number = static_cast<int>(option);
    if (number == ACL_OPT_DETERMINISTIC || number == ACL_OPT_ENABLE_DEBUG_KERNEL) return {};
    return {ACL_ERROR_INVALID_PARAM, "opt: given " + std::to_string(number) +
                                         ", must be 0 (ACL_OPT_DETERMINISTIC) or 1 "
                                         "(ACL_OPT_ENABLE_DEBUG_KERNEL)"};
}

Verdict dead_context(const void* context) {
    return {ACL_ERROR_INVALID_RESOURCE_HANDLE,
            "context: " + text_of(context) + " is not alive, must be created and not yet destroyed"};
}

// use(value of the option) in the context of this thread.
template <class Use>
Verdict context_option(aclSysParamOpt option, const Use& use) {
    if (Verdict v = check_option(option); !v.ok()) return v;
    const aclrtContext context = context_here();
    const bool alive =
        contexts().with(context, [&](Options& options) { use(options.value[static_cast<int>(option)]); });
    return alive ? Verdict{} : dead_context(context);
}

// ---- streams ----

Verdict dead_stream(const void* stream) {
    return {ACL_ERROR_INVALID_RESOURCE_HANDLE,
            "stream: " + text_of(stream) + " is not alive, must be created and not yet destroyed"};
}

Verdict create_stream(aclrtStream* stream) {
    if (stream == nullptr) return null(ACL_ERROR_INVALID_PARAM, "stream");
    *stream = add_stream();
    return {};
}

Verdict destroy_stream(aclrtStream stream, Stream::Closing how) {
    if (stream == nullptr) return null(ACL_ERROR_INVALID_PARAM, "stream");
    const std::shared_ptr<Stream> taken = take_stream(stream);
    if (taken == nullptr) return dead_stream(stream);
    taken->close(how);
    return {};
}

Verdict synchronize(aclrtStream stream, std::int32_t milliseconds) {
    if (milliseconds < -1) {
        return {ACL_ERROR_INVALID_PARAM,
                "timeout: given " + std::to_string(milliseconds) + ", must be 0 or more, or -1 for ever"};
    }
    const std::shared_ptr<Stream> found = find_stream(stream);
    if (found == nullptr) return dead_stream(stream);
    std::optional<Verdict> verdict = found->wait(milliseconds);
    if (!verdict) {
        return {ACL_ERROR_FAILURE, "timeout: the stream still works after " + std::to_string(milliseconds) + " ms"};
    }
    return std::move(*verdict);
}

// ---- memory ----

Verdict check_span(const char* parameter, const void* address, std::size_t bytes) {
    if (bytes == 0) return {};
    if (address == nullptr) return null(ACL_ERROR_INVALID_PARAM, parameter);
    if (const std::size_t room = room_at(address); room < bytes) {
        return {ACL_ERROR_INVALID_PARAM, std::string(parameter) + ": " + std::to_string(bytes) +
                                             " bytes, its block has " + std::to_string(room) + " from there"};
    }
    return {};
}

Verdict check_count(const char* limit_name, std::size_t limit, std::size_t count) {
    if (count <= limit) return {};
    return {ACL_ERROR_INVALID_PARAM,
            "count: given " + std::to_string(count) + ", must be at most " + limit_name + " " + std::to_string(limit)};
}

Verdict check_kind(aclrtMemcpyKind kind) {
    const int number = static_cast<int>(kind);
    if (number >= ACL_MEMCPY_HOST_TO_HOST && number <= ACL_MEMCPY_INTER_DEVICE_TO_DEVICE) return {};
    return {ACL_ERROR_INVALID_PARAM, "kind: given " + std::to_string(number) + ", must be 0 to 7"};
}

// A copy of rows; one row is a plain copy.
struct Copy {
    void* to = nullptr;
    std::size_t to_pitch = 0;
    const void* from = nullptr;
    std::size_t from_pitch = 0;
    std::size_t width = 0;
    std::size_t height = 1;

    void run() const {
        for (std::size_t row = 0; row < height && width > 0; ++row) {
            // memmove: a copy within one buffer is not forbidden.
            std::memmove(static_cast<std::byte*>(to) + row * to_pitch,
                         static_cast<const std::byte*>(from) + row * from_pitch, width);
        }
    }
};

Verdict check_copy(const Copy& copy, aclrtMemcpyKind kind) {
    if (Verdict v = check_kind(kind); !v.ok()) return v;
    if (Verdict v = check_span("dst", copy.to, copy.width); !v.ok()) return v;
    return check_span("src", copy.from, copy.width);
}

Verdict check_plane(const Copy& copy, aclrtMemcpyKind kind) {
    if (Verdict v = check_kind(kind); !v.ok()) return v;
    if (copy.width == 0 || copy.height == 0) return {};
    for (const auto& [name, pitch, address, parameter] :
         {std::tuple{"dpitch", copy.to_pitch, static_cast<const void*>(copy.to), "dst"},
          std::tuple{"spitch", copy.from_pitch, copy.from, "src"}}) {
        std::size_t reach = 0;
        if (pitch < copy.width || __builtin_mul_overflow(pitch, copy.height - 1, &reach) ||
            __builtin_add_overflow(reach, copy.width, &reach)) {
            return {ACL_ERROR_INVALID_PARAM, std::string(name) + ": given " + std::to_string(pitch) +
                                                 ", must be at least width " + std::to_string(copy.width) +
                                                 " and not too large to address"};
        }
        if (Verdict v = check_span(parameter, address, reach); !v.ok()) return v;
    }
    return {};
}

Verdict enqueue(aclrtStream stream, Stream::Work work) {
    const std::shared_ptr<Stream> found = find_stream(stream);
    if (found == nullptr || !found->enqueue(std::move(work))) return dead_stream(stream);
    return {};
}

Verdict copy_later(const Copy& copy, aclrtStream stream) {
    return enqueue(stream, [copy](const CancelToken&) -> Verdict {
        copy.run();
        return {};
    });
}

Verdict check_fill(void* address, std::size_t room, std::size_t count) {
    if (Verdict v = check_count("maxCount", room, count); !v.ok()) return v;
    return check_span("devPtr", address, count);
}

}  // namespace

}  // namespace fascore::aclnn

using namespace fascore::aclnn;

extern "C" {

// ---- process ----

aclError aclInit(const char* configPath) {
    return runtime_call("aclInit", [&]() -> Verdict {
        if (configPath != nullptr && *configPath != '\0' && !std::ifstream(configPath).good()) {
            return {ACL_ERROR_INVALID_FILE, "configPath: '" + std::string(configPath) +
                                                "' cannot be read, must be null, "
                                                "empty or a readable file"};
        }
        const std::lock_guard lock(process_mutex);
        ++references;
        return {};
    });
}

aclError aclFinalize(void) {
    return runtime_call("aclFinalize", []() -> Verdict {
        {
            const std::lock_guard lock(process_mutex);
            if (references == 0) return {ACL_ERROR_REPEAT_FINALIZE, "not initialized, must follow aclInit"};
            references = 0;
        }
        return finalize();
    });
}

aclError aclFinalizeReference(uint64_t* refCount) {
    return runtime_call("aclFinalizeReference", [&]() -> Verdict {
        std::uint64_t left = 0;
        {
            const std::lock_guard lock(process_mutex);
            if (references == 0) return {ACL_ERROR_REPEAT_FINALIZE, "not initialized, must follow aclInit"};
            left = --references;
        }
        if (refCount != nullptr) *refCount = left;
        return left == 0 ? finalize() : Verdict{};
    });
}

// ---- device and context ----

aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
    if (majorVersion != nullptr) *majorVersion = 1;
    if (minorVersion != nullptr) *minorVersion = 0;
    if (patchVersion != nullptr) *patchVersion = 0;
    return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t deviceId) {
    return runtime_call("aclrtSetDevice", [&]() -> Verdict {
        if (Verdict v = check_device(deviceId); !v.ok()) return v;
        current_context = default_context();
        return {};
    });
}

aclError aclrtResetDevice(int32_t deviceId) {
    return runtime_call("aclrtResetDevice", [&]() -> Verdict {
        if (Verdict v = check_device(deviceId); !v.ok()) return v;
        current_context = nullptr;
        return wait_for_streams();
    });
}

aclError aclrtGetDevice(int32_t* deviceId) {
    return runtime_call("aclrtGetDevice", [&]() -> Verdict {
        if (deviceId == nullptr) return null(ACL_ERROR_INVALID_PARAM, "deviceId");
        *deviceId = 0;
        return {};
    });
}

aclError aclrtGetDeviceCount(uint32_t* count) {
    return runtime_call("aclrtGetDeviceCount", [&]() -> Verdict {
        if (count == nullptr) return null(ACL_ERROR_INVALID_PARAM, "count");
        *count = 1;
        return {};
    });
}

aclError aclrtSynchronizeDevice(void) {
    return runtime_call("aclrtSynchronizeDevice", [] { return wait_for_streams(); });
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
    return runtime_call("aclrtGetRunMode", [&]() -> Verdict {
        if (runMode == nullptr) return null(ACL_ERROR_INVALID_PARAM, "runMode");
        *runMode = ACL_HOST;
        return {};
    });
}

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
    return runtime_call("aclrtCreateContext", [&]() -> Verdict {
        if (context == nullptr) return null(ACL_ERROR_INVALID_PARAM, "context");
        if (Verdict v = check_device(deviceId); !v.ok()) return v;
        current_context = *context = contexts().add({});
        return {};
    });
}

aclError aclrtDestroyContext(aclrtContext context) {
    return runtime_call("aclrtDestroyContext", [&]() -> Verdict {
        if (context == nullptr) return null(ACL_ERROR_INVALID_PARAM, "context");
        if (context == default_context()) {
            return {ACL_ERROR_INVALID_PARAM, "context: the device's default, must be one of aclrtCreateContext"};
        }
        if (!contexts().remove(context)) return dead_context(context);
        if (current_context == context) current_context = nullptr;
        return {};
    });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
    return runtime_call("aclrtSetCurrentContext", [&]() -> Verdict {
        if (context == nullptr) return null(ACL_ERROR_INVALID_PARAM, "context");
        if (!contexts().with(context, [](const Options&) {})) return dead_context(context);
        current_context = context;
        return {};
    });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
    return runtime_call("aclrtGetCurrentContext", [&]() -> Verdict {
        if (context == nullptr) return null(ACL_ERROR_INVALID_PARAM, "context");
        *context = context_here();
        return {};
    });
}

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    return runtime_call("aclrtSetSysParamOpt", [&]() -> Verdict {
        if (Verdict v = check_option(opt); !v.ok()) return v;
        const std::lock_guard lock(options_mutex);
        process_options.value[static_cast<int>(opt)] = value;
        return {};
    });
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
    return runtime_call("aclrtGetSysParamOpt", [&]() -> Verdict {
        if (value == nullptr) return null(ACL_ERROR_INVALID_PARAM, "value");
        if (Verdict v = check_option(opt); !v.ok()) return v;
        const std::lock_guard lock(options_mutex);
        *value = process_options.value[static_cast<int>(opt)];
        return {};
    });
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    return runtime_call("aclrtCtxSetSysParamOpt",
                        [&] { return context_option(opt, [&](std::int64_t& kept) { kept = value; }); });
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
    return runtime_call("aclrtCtxGetSysParamOpt", [&]() -> Verdict {
        if (value == nullptr) return null(ACL_ERROR_INVALID_PARAM, "value");
        return context_option(opt, [&](const std::int64_t& kept) { *value = kept; });
    });
}

// ---- streams ----

aclError aclrtCreateStream(aclrtStream* stream) {
    return runtime_call("aclrtCreateStream", [&] { return create_stream(stream); });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
    static_cast<void>(priority);
    static_cast<void>(flag);
    return runtime_call("aclrtCreateStreamWithConfig", [&] { return create_stream(stream); });
}

aclError aclrtDestroyStream(aclrtStream stream) {
    return runtime_call("aclrtDestroyStream", [&] { return destroy_stream(stream, Stream::Closing::finish); });
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
    return runtime_call("aclrtDestroyStreamForce", [&] { return destroy_stream(stream, Stream::Closing::drop); });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
    return runtime_call("aclrtSynchronizeStream", [&] { return synchronize(stream, -1); });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
    return runtime_call("aclrtSynchronizeStreamWithTimeout", [&] { return synchronize(stream, timeout); });
}

// ---- memory ----

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
    static_cast<void>(policy);
    return runtime_call("aclrtMalloc", [&] { return allocate("devPtr", devPtr, size, Place::device); });
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
    static_cast<void>(policy);
    return runtime_call("aclrtMallocAlign32", [&] { return allocate("devPtr", devPtr, size, Place::device); });
}

aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
    static_cast<void>(policy);
    return runtime_call("aclrtMallocCached", [&] { return allocate("devPtr", devPtr, size, Place::device); });
}

aclError aclrtFree(void* devPtr) {
    return runtime_call("aclrtFree", [&] { return release("devPtr", devPtr, Place::device); });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
    return runtime_call("aclrtMallocHost", [&] { return allocate("hostPtr", hostPtr, size, Place::host); });
}

aclError aclrtFreeHost(void* hostPtr) {
    return runtime_call("aclrtFreeHost", [&] { return release("hostPtr", hostPtr, Place::host); });
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
    return runtime_call("aclrtMemcpy", [&]() -> Verdict {
        const Copy copy{dst, 0, src, 0, count};
        if (Verdict v = check_count("destMax", destMax, count); !v.ok()) return v;
        if (Verdict v = check_copy(copy, kind); !v.ok()) return v;
        copy.run();
        return {};
    });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
    return runtime_call("aclrtMemcpyAsync", [&]() -> Verdict {
        const Copy copy{dst, 0, src, 0, count};
        if (Verdict v = check_count("destMax", destMax, count); !v.ok()) return v;
        if (Verdict v = check_copy(copy, kind); !v.ok()) return v;
        return copy_later(copy, stream);
    });
}

aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                       aclrtMemcpyKind kind) {
    return runtime_call("aclrtMemcpy2d", [&]() -> Verdict {
        const Copy copy{dst, dpitch, src, spitch, width, height};
        if (Verdict v = check_plane(copy, kind); !v.ok()) return v;
        copy.run();
        return {};
    });
}

aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                            aclrtMemcpyKind kind, aclrtStream stream) {
    return runtime_call("aclrtMemcpy2dAsync", [&]() -> Verdict {
        const Copy copy{dst, dpitch, src, spitch, width, height};
        if (Verdict v = check_plane(copy, kind); !v.ok()) return v;
        return copy_later(copy, stream);
    });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
    return runtime_call("aclrtMemset", [&]() -> Verdict {
        if (Verdict v = check_fill(devPtr, maxCount, count); !v.ok()) return v;
        if (count > 0) std::memset(devPtr, value, count);
        return {};
    });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
    return runtime_call("aclrtMemsetAsync", [&]() -> Verdict {
        if (Verdict v = check_fill(devPtr, maxCount, count); !v.ok()) return v;
        return enqueue(stream, [=](const fascore::CancelToken&) -> Verdict {
            if (count > 0) std::memset(devPtr, value, count);
            return {};
        });
    });
}

}  // extern "C"
