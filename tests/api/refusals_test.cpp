// SPDX-License-Identifier: Apache-2.0
//
// The refusals of problem/refusals.h through the public functions: the same text from the call, its workspace query and
// the form with a workspace of its own, and no byte of any tensor written.
#include <gtest/gtest.h>

#include "fascore/attention.h"
#include "problem/refusals.h"

namespace fascore::test {
namespace {

// Rules about pointers, which a query does not look at.
bool about_pointers(const std::string& text) { return text.find("data is ") != std::string::npos; }

struct Functions {
    static Status query(const ForwardCall& c, std::size_t& bytes) {
        return forward_workspace_bytes(c.params, c.in, c.out, {}, bytes);
    }
    static Status query(const BackwardCall& c, std::size_t& bytes) {
        return backward_workspace_bytes(c.params, c.in, c.out, {}, bytes);
    }
    static Status call(const ForwardCall& c, std::span<std::byte> workspace) {
        return attention_forward(c.params, c.in, c.out, {}, workspace);
    }
    static Status call(const BackwardCall& c, std::span<std::byte> workspace) {
        return attention_backward(c.params, c.in, c.out, {}, workspace);
    }
    static Status own(const ForwardCall& c) { return attention_forward(c.params, c.in, c.out); }
    static Status own(const BackwardCall& c) { return attention_backward(c.params, c.in, c.out); }
};

template <class Call, std::size_t Count>
void expect_all_refused(const Refusal<Call> (&table)[Count]) {
    std::vector<std::byte> workspace(1 << 20);
    for (const Refusal<Call>& row : table) {
        CallMemory memory;
        Call call(memory);
        row.spoil(call);
        for (const Status& status : {Functions::call(call, workspace), Functions::own(call)}) {
            EXPECT_EQ(status.code(), StatusCode::invalid_argument) << row.name;
            EXPECT_EQ(status.message(), row.text) << row.name;
        }
        if (!about_pointers(row.text)) {
            std::size_t bytes = 77;
            EXPECT_EQ(Functions::query(call, bytes).message(), row.text) << row.name;
        }
        EXPECT_TRUE(memory.untouched()) << row.name;
    }
}

TEST(PublicRefusals, Forward) { expect_all_refused(forward_refusals); }
TEST(PublicRefusals, Backward) { expect_all_refused(backward_refusals); }

// The tables above mean something only if the call they spoil works.
TEST(PublicRefusals, TheValidCallRuns) {
    CallMemory memory;
    std::fill(memory.memory.begin(), memory.memory.end(), std::byte{0});
    EXPECT_EQ(Functions::own(ForwardCall(memory)).message(), "");
    EXPECT_EQ(Functions::own(BackwardCall(memory)).message(), "");
}

}  // namespace
}  // namespace fascore::test
