// SPDX-License-Identifier: Apache-2.0
//
// Block sizes: how many query rows (Br) and key rows (Bc) a tile has.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace fascore {

struct Blocking {
    std::int64_t Br;
    std::int64_t Bc;
};

[[nodiscard]] Blocking choose_blocking(Direction direction, const KernelShape& shape);

}  // namespace fascore
