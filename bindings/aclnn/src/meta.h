// SPDX-License-Identifier: Apache-2.0
//
// What descriptors stand for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "aclnn/acl_meta.h"
#include "registry.h"

namespace fascore::aclnn {

/// More axes than any operator takes: one too many must be describable, so that the operator can refuse it.
inline constexpr std::size_t most_axes = 16;

struct Axes {
    std::array<std::int64_t, most_axes> extent{};
    std::size_t count = 0;
};

struct Tensor {
    aclDataType dtype = ACL_DT_UNDEFINED;
    aclFormat format = ACL_FORMAT_ND;
    Axes shape;
    Axes stride;  ///< elements
    Axes storage;
    std::int64_t offset = 0;  ///< elements
    void* data = nullptr;
    bool in_list = false;  ///< a list will destroy it
};

struct Scalar {
    aclDataType dtype = ACL_DT_UNDEFINED;
    std::vector<std::byte> value;
    bool in_list = false;
};

[[nodiscard]] Registry<Tensor>& tensors();
[[nodiscard]] Registry<std::vector<std::int64_t>>& int_arrays();

/// "FLOAT16" for ACL_FLOAT16; "value 99" for what is none.
[[nodiscard]] std::string name_of(aclDataType dtype);
/// "ND" for ACL_FORMAT_ND.
[[nodiscard]] std::string name_of(aclFormat format);

/// Descriptors that are alive, of all kinds.
[[nodiscard]] std::size_t live_descriptors();

}  // namespace fascore::aclnn
