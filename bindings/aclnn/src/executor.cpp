// SPDX-License-Identifier: Apache-2.0
#include "executor.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "call.h"
#include "memory.h"
#include "meta.h"
#include "registry.h"
#include "report.h"
#include "stream.h"

namespace fascore::aclnn {

namespace {

struct Executor {
    std::shared_ptr<const Call> call;
    bool repeatable = false;
};

Registry<Executor>& executors() {
    static auto* const kept = new Registry<Executor>(Kind::executor);
    return *kept;
}

Verdict not_alive(const void* executor) {
    return {ACLNN_ERR_PARAM_INVALID, "executor: " + text_of(executor) +
                                         " is not alive, must come from a first phase and not be used up or destroyed"};
}

Verdict null_executor(int code) { return {code, "executor: null, must come from a first phase"}; }

// The executor for one run; removed unless it may run again.
bool take(const aclOpExecutor* handle, Executor& executor) {
    return executors().remove_if(handle, [&](Executor& kept) {
        executor = kept;
        return !kept.repeatable;
    });
}

Verdict check_workspace(const Call& call, const void* workspace, std::uint64_t size) {
    if (size < call.workspace_bytes()) {
        return {ACLNN_ERR_PARAM_INVALID, "workspaceSize: given " + std::to_string(size) + ", must be at least " +
                                             std::to_string(call.workspace_bytes())};
    }
    if (workspace == nullptr && call.workspace_bytes() > 0) {
        return {ACLNN_ERR_PARAM_NULLPTR,
                "workspace: null, must point to " + std::to_string(call.workspace_bytes()) + " bytes"};
    }
    if (const std::size_t room = room_at(workspace); room < call.workspace_bytes()) {
        return {ACLNN_ERR_PARAM_INVALID, "workspace: its block has " + std::to_string(room) +
                                             " bytes from there, must be at least " +
                                             std::to_string(call.workspace_bytes())};
    }
    return {};
}

// Which of the version's tensors an index means.
enum class Which : std::uint8_t { inputs, outputs, both };

bool counts(ParameterKind kind, Which which) {
    if (kind == ParameterKind::T) return which != Which::outputs;
    return (kind == ParameterKind::O || kind == ParameterKind::W) && which != Which::inputs;
}

const Parameter* tensor_at(const Version& version, std::size_t wanted, Which which) {
    // Inputs stand before outputs in every version.
    for (const Parameter& parameter : version.parameters) {
        if (counts(parameter.kind, which) && wanted-- == 0) return &parameter;
    }
    return nullptr;
}

aclnnStatus point_tensor(const char* function, aclOpExecutor* handle, std::size_t place, aclTensor* tensor,
                         void* address, Which which) noexcept {
    return operator_call(function, [&]() -> Verdict {
        if (handle == nullptr) return null_executor(ACLNN_ERR_INNER_NULLPTR);
        if (tensor == nullptr) return {ACLNN_ERR_INNER_NULLPTR, "tensor: null, must be given"};
        if (address == nullptr) return {ACLNN_ERR_PARAM_NULLPTR, "addr: null, must be given"};
        Executor executor;
        static_cast<void>(executors().read(handle, executor));
        if (executor.call == nullptr) return not_alive(handle);
        if (!executor.repeatable) {
            return {ACLNN_ERR_PARAM_INVALID, "executor: runs once, must be made repeatable first"};
        }
        const Parameter* parameter = tensor_at(executor.call->version(), place, which);
        if (parameter == nullptr) {
            return {ACLNN_ERR_PARAM_INVALID,
                    "index: given " + std::to_string(place) + ", must be less than the number of tensors"};
        }
        auto moved = std::make_shared<Call>(*executor.call);
        if (!moved->point(parameter->field, address)) {
            return {ACLNN_ERR_PARAM_INVALID, "index: given " + std::to_string(place) + ", which is " +
                                                 std::string(parameter->name) +
                                                 ", must be a tensor that the first phase was given and uses"};
        }
        if (!tensors().with(tensor, [&](Tensor& described) { described.data = address; })) {
            return {ACLNN_ERR_PARAM_INVALID,
                    "tensor: " + text_of(tensor) + " is not alive, must be created and not yet destroyed"};
        }
        // Runs that are enqueued keep the Call they were enqueued with.
        const bool alive = executors().with(handle, [&](Executor& kept) { kept.call = moved; });
        return alive ? Verdict{} : not_alive(handle);
    });
}

}  // namespace

aclnnStatus first_phase(const Version& version, const Arguments& given, std::uint64_t* workspace_size,
                        aclOpExecutor** executor) noexcept {
    return operator_call(version.first, [&]() -> Verdict {
        if (workspace_size == nullptr) return {ACLNN_ERR_PARAM_NULLPTR, "workspaceSize: null, must be given"};
        if (executor == nullptr) return {ACLNN_ERR_PARAM_NULLPTR, "executor: null, must be given"};
        auto call = std::make_shared<Call>();
        if (Verdict v = Call::translate(version, given, *call); !v.ok()) return v;
        const std::uint64_t bytes = call->workspace_bytes();
        *executor = static_cast<aclOpExecutor*>(executors().add({std::move(call), false}));
        *workspace_size = bytes;
        return {};
    });
}

aclnnStatus second_phase(const Version& version, void* workspace, std::uint64_t workspace_size, aclOpExecutor* executor,
                         aclrtStream stream) noexcept {
    return operator_call(version.second, [&]() -> Verdict {
        if (executor == nullptr) return null_executor(ACLNN_ERR_PARAM_NULLPTR);
        Executor taken;
        if (!take(executor, taken)) return not_alive(executor);
        const Call& call = *taken.call;
        if (std::string_view(call.version().second) != version.second) {
            return {ACLNN_ERR_PARAM_INVALID,
                    "executor: comes from " + std::string(call.version().first) + ", must come from " + version.first};
        }
        if (Verdict v = check_workspace(call, workspace, workspace_size); !v.ok()) return v;
        if (Verdict v = call.check_addresses(); !v.ok()) return v;
        const std::shared_ptr<Stream> queue = find_stream(stream);
        auto* memory = static_cast<std::byte*>(workspace);
        const bool enqueued =
            queue != nullptr && queue->enqueue([run = std::move(taken.call), memory](const CancelToken& cancel) {
                return run->run(memory, cancel);
            });
        if (!enqueued) {
            return {ACLNN_ERR_RUNTIME_ERROR,
                    "stream: " + text_of(stream) + " is not alive, must be null or created and not yet destroyed"};
        }
        return {};
    });
}

std::size_t live_executors() { return executors().size(); }

}  // namespace fascore::aclnn

using namespace fascore::aclnn;

extern "C" {

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
    return operator_call("aclSetAclOpExecutorRepeatable", [&]() -> Verdict {
        if (executor == nullptr) return null_executor(ACLNN_ERR_INNER_NULLPTR);
        const bool alive = executors().with(executor, [](Executor& kept) { kept.repeatable = true; });
        return alive ? Verdict{} : not_alive(executor);
    });
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
    return operator_call("aclDestroyAclOpExecutor", [&]() -> Verdict {
        if (executor == nullptr) return null_executor(ACLNN_ERR_INNER_NULLPTR);
        return executors().remove(executor) ? Verdict{} : not_alive(executor);
    });
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
    return point_tensor("aclSetInputTensorAddr", executor, index, tensor, addr, Which::inputs);
}

aclnnStatus AclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
    return point_tensor("AclSetInputTensorAddr", executor, index, tensor, addr, Which::inputs);
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
    return point_tensor("aclSetOutputTensorAddr", executor, index, tensor, addr, Which::outputs);
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
    return point_tensor("aclSetTensorAddr", executor, index, tensor, addr, Which::both);
}

}  // extern "C"
