// SPDX-License-Identifier: Apache-2.0
//
// The two phases, for every version alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "acl/acl_base.h"
#include "aclnn/acl_meta.h"
#include "versions.h"

namespace fascore::aclnn {

/// Checks the call and makes its executor.
[[nodiscard]] aclnnStatus first_phase(const Version& version, const Arguments& given, std::uint64_t* workspace_size,
                                      aclOpExecutor** executor) noexcept;

/// Enqueues the executor's call. The executor is used up, whatever comes back, unless it is repeatable.
[[nodiscard]] aclnnStatus second_phase(const Version& version, void* workspace, std::uint64_t workspace_size,
                                       aclOpExecutor* executor, aclrtStream stream) noexcept;

[[nodiscard]] std::size_t live_executors();

}  // namespace fascore::aclnn
