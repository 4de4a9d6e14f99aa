// SPDX-License-Identifier: Apache-2.0
//
// What this machine can run, for parameterised tests: every instruction set of the build that the CPU has, and the
// thread counts that hurt (1, an even, an odd, more than cores).
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fascore/info.h"

namespace fascore::test {

[[nodiscard]] inline std::vector<std::string> runnable_isas() {
    std::vector<std::string> names;
    for (const IsaInfo& isa : built_isas()) {
        if (isa.runnable) names.push_back(isa.name);
    }
    return names;
}

inline constexpr int thread_counts[] = {1, 2, 3, 5};

/// Base of tests that run once per instruction set; the parameter is its name and appears in the test's name.
class ForEachIsa : public ::testing::TestWithParam<std::string> {
  protected:
    [[nodiscard]] static const std::string& isa() { return GetParam(); }
};

[[nodiscard]] inline std::string isa_test_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace fascore::test

/// Makes the tests of a suite derived from ForEachIsa run on every instruction set of this machine.
#define FASCORE_FOR_EACH_ISA(suite)                                                           \
    INSTANTIATE_TEST_SUITE_P(isa, suite, ::testing::ValuesIn(fascore::test::runnable_isas()), \
                             fascore::test::isa_test_name)
