// SPDX-License-Identifier: Apache-2.0
#include "fascore/info.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "fascore/attention.h"

namespace fascore {
namespace {

TEST(Info, EnvironmentVariablesAreTheOnesTheLibraryReads) {
    const std::vector<EnvironmentVariable> variables = environment_variables();
    ASSERT_EQ(variables.size(), 2U);
    EXPECT_EQ(variables[0].name, "FASCORE_ISA");
    EXPECT_EQ(variables[1].name, "FASCORE_NUM_THREADS");
    for (const EnvironmentVariable& variable : variables) {
        const char* value = std::getenv(variable.name.c_str());
        EXPECT_EQ(variable.value, value == nullptr ? "" : value);
        EXPECT_FALSE(variable.help.empty());
    }
}

TEST(Info, DefaultThreads) {
    int threads = 0;
    const Status status = default_threads(threads);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_GE(threads, 1);
    if (const char* configured = std::getenv("FASCORE_NUM_THREADS")) {
        EXPECT_EQ(threads, std::atoi(configured));
    }
}

TEST(Info, ElementsThereAndBack) {
    std::byte element[8];
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::boolean, DType::u8}) {
        store_element(element, dtype, 1.0);
        EXPECT_EQ(load_element(element, dtype), 1.0) << name(dtype);
    }
}

TEST(Info, EnumNames) {
    EXPECT_EQ(name(Layout::BNSD), "BNSD");
    EXPECT_EQ(name(Layout::BSND), "BSND");
    EXPECT_EQ(name(Layout::BSH), "BSH");
    EXPECT_EQ(name(Layout::SBH), "SBH");
    EXPECT_EQ(name(Layout::TND), "TND");
    EXPECT_EQ(name(StatusCode::ok), "ok");
    EXPECT_EQ(name(StatusCode::invalid_argument), "invalid_argument");
    EXPECT_EQ(name(StatusCode::workspace_too_small), "workspace_too_small");
    EXPECT_EQ(name(StatusCode::out_of_memory), "out_of_memory");
    EXPECT_EQ(name(StatusCode::unavailable), "unavailable");
    EXPECT_EQ(name(StatusCode::cancelled), "cancelled");
    EXPECT_EQ(name(StatusCode::internal_error), "internal_error");
}

}  // namespace
}  // namespace fascore
