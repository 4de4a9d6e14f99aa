// SPDX-License-Identifier: Apache-2.0
#include "base/config.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace fascore {
namespace {

TEST(Config, ThreadsAreAWholeNumberFrom1To1024) {
    struct Row {
        const char* text;
        int threads;  // 0: refused
    };
    for (const Row& row : {Row{"1", 1}, Row{"2", 2}, Row{"1024", 1024}, Row{"0", 0}, Row{"1025", 0}, Row{"-1", 0},
                           Row{"two", 0}, Row{"2x", 0}, Row{" 2", 0}, Row{"2 ", 0}, Row{"+2", 0}, Row{"2.0", 0},
                           Row{"99999999999999999999", 0}, Row{"", 0}}) {
        int threads = 77;
        const Status status = parse_threads(row.text, threads);
        EXPECT_EQ(status.ok(), row.threads != 0) << row.text;
        EXPECT_EQ(threads, row.threads != 0 ? row.threads : 77) << row.text;
        if (row.threads == 0) {
            EXPECT_EQ(status.code(), StatusCode::invalid_argument);
            EXPECT_EQ(status.message(), "FASCORE_NUM_THREADS: given " + std::string(row.text) + ", must be 1 to 1024");
        }
    }
}

TEST(Config, ListsEveryVariableAsTheEnvironmentHasIt) {
    const std::vector<ConfigVariable>& variables = config_variables();
    ASSERT_EQ(variables.size(), 2U);
    EXPECT_EQ(variables[0].name, "FASCORE_ISA");
    EXPECT_EQ(variables[1].name, "FASCORE_NUM_THREADS");
    for (const ConfigVariable& variable : variables) {
        EXPECT_FALSE(variable.help.empty());
        const char* value = std::getenv(std::string(variable.name).c_str());
        const std::string expected = value == nullptr ? "" : value;
        EXPECT_EQ(variable.value, expected);
        EXPECT_EQ(variable.set, !expected.empty());
    }
    EXPECT_EQ(config_isa(), variables[0].value);
}

TEST(Config, IsReadOnce) {
    const std::string before(config_isa());
    ASSERT_EQ(setenv("FASCORE_ISA", "something_else", 1), 0);
    EXPECT_EQ(config_isa(), before);
    if (before.empty()) {
        unsetenv("FASCORE_ISA");
    } else {
        setenv("FASCORE_ISA", before.c_str(), 1);
    }
}

}  // namespace
}  // namespace fascore
