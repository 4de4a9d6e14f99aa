// SPDX-License-Identifier: Apache-2.0
//
// The protocol of two phases: who owns an executor, how often it runs, which workspace it takes.
#include <vector>

#include "support.h"

namespace fascore::aclnn_test {

namespace {

class Executors : public ::testing::Test {
  protected:
    void SetUp() override {
        last_error();
        problem_.run_forward();
        given_ = problem_.given();
        before_ = live_handles();
    }
    void TearDown() override { EXPECT_EQ(live_handles(), before_) << "handles leak"; }

    void first() { ASSERT_EQ(version_.first(given_, &size_, &executor_), 0) << last_error(); }

    Problem problem_{Layout::SBH, ACL_BF16};
    Given given_;
    const VersionRow& version_ = version("aclnnFlashAttentionScoreGradV2");
    std::uint64_t size_ = 0;
    aclOpExecutor* executor_ = nullptr;

  private:
    std::size_t before_ = 0;
};

TEST_F(Executors, TheWorkspaceIsWhatTheEngineNeeds) {
    std::size_t bytes = 0;
    ASSERT_TRUE(
        backward_workspace_bytes(problem_.params(), problem_.backward_inputs(), problem_.backward_outputs(), {}, bytes)
            .ok());
    first();
    EXPECT_EQ(size_, bytes);
    EXPECT_GT(size_, 0U);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor_), 0) << "one that never ran can be destroyed";
}

TEST_F(Executors, TheSecondPhaseUsesItUp) {
    first();
    std::vector<std::byte> workspace(size_);
    EXPECT_EQ(version_.second(workspace.data(), size_, executor_, nullptr), 0);
    EXPECT_EQ(version_.second(workspace.data(), size_, executor_, nullptr), 161002);
    EXPECT_NE(last_error().find("is not alive, must come from a first phase and not be used up or destroyed"),
              std::string::npos);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor_), 161002);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
}

TEST_F(Executors, ASmallWorkspaceIsRefusedAndNothingWritten) {
    first();
    std::vector<std::byte> workspace(size_);
    EXPECT_EQ(version_.second(workspace.data(), size_ - 1, executor_, nullptr), 161002);
    EXPECT_EQ(last_error(), "aclnnFlashAttentionScoreGradV2: workspaceSize: given " + std::to_string(size_ - 1) +
                                ", must be at least " + std::to_string(size_));
    first();
    EXPECT_EQ(version_.second(nullptr, size_, executor_, nullptr), 161001);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
    EXPECT_TRUE(problem_.dq.untouched());
    EXPECT_TRUE(problem_.dv.untouched());
    first();
    std::vector<std::byte> roomy(2 * size_);
    EXPECT_EQ(version_.second(roomy.data(), roomy.size(), executor_, nullptr), 0) << "more is fine";
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
    EXPECT_FALSE(problem_.dq.untouched());
}

TEST_F(Executors, BlocksThatAreTooSmallAreRefused) {
    first();
    void* block = nullptr;
    ASSERT_EQ(aclrtMalloc(&block, size_ - 1, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    EXPECT_EQ(version_.second(block, size_, executor_, nullptr), 161002);
    EXPECT_EQ(last_error(), "aclnnFlashAttentionScoreGradV2: workspace: its block has " + std::to_string(size_ - 1) +
                                " bytes from there, must be at least " + std::to_string(size_));
    EXPECT_EQ(aclrtFree(block), 0);
    EXPECT_TRUE(problem_.dq.untouched());

    first();
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor_), 0);
    const std::size_t bytes = problem_.dy.bytes().size();
    ASSERT_EQ(aclrtMalloc(&block, bytes - 2, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    ASSERT_EQ(aclSetInputTensorAddr(executor_, 3, problem_.dy.handle(), block), 0);
    std::vector<std::byte> workspace(size_);
    EXPECT_EQ(version_.second(workspace.data(), size_, executor_, nullptr), 161002);
    EXPECT_EQ(last_error(), "aclnnFlashAttentionScoreGradV2: dy: reaches " + std::to_string(bytes) +
                                " bytes from its address, its block has " + std::to_string(bytes - 2));
    EXPECT_EQ(aclrtFree(block), 0);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor_), 0);
}

TEST_F(Executors, AnotherVersionsSecondPhaseIsRefused) {
    first();
    std::vector<std::byte> workspace(size_);
    EXPECT_EQ(aclnnFlashAttentionScoreGradV3(workspace.data(), size_, executor_, nullptr), 161002);
    EXPECT_EQ(last_error(),
              "aclnnFlashAttentionScoreGradV3: executor: comes from aclnnFlashAttentionScoreGradV2GetWorkspaceSize, "
              "must come "
              "from aclnnFlashAttentionScoreGradV3GetWorkspaceSize");
}

TEST_F(Executors, ADeadStreamIsARuntimeError) {
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), 0);
    ASSERT_EQ(aclrtDestroyStream(stream), 0);
    first();
    std::vector<std::byte> workspace(size_);
    EXPECT_EQ(version_.second(workspace.data(), size_, executor_, stream), 361001);
    EXPECT_TRUE(problem_.dq.untouched());
}

TEST_F(Executors, DescriptorsMayGoAfterTheFirstPhase) {
    Problem other(Layout::SBH, ACL_BF16);
    other.run_forward();
    ASSERT_TRUE(attention_backward(other.params(), other.backward_inputs(), other.backward_outputs()).ok());
    const auto expected = other.dq.element_bytes();
    std::vector<std::byte> memory(problem_.dq.bytes().size());
    const Data::Shape shape = problem_.dq.shape();
    aclTensor* dq = aclCreateTensor(shape.data(), shape.size(), ACL_BF16, nullptr, 0, ACL_FORMAT_ND, shape.data(),
                                    shape.size(), memory.data());
    given_.dq = dq;
    first();
    EXPECT_EQ(aclDestroyTensor(dq), 0);
    std::vector<std::byte> workspace(size_);
    EXPECT_EQ(version_.second(workspace.data(), size_, executor_, nullptr), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
    EXPECT_EQ(memory, expected);
}

TEST_F(Executors, RepeatableOnesRunAgainAndElsewhere) {
    first();
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor_), 0);
    std::vector<std::byte> workspace(size_);
    for (int k = 0; k < 3; ++k) {
        problem_.dq.fill(-1);
        EXPECT_EQ(version_.second(workspace.data(), size_, executor_, nullptr), 0);
        EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
        EXPECT_NE(problem_.dq.at(0), -1);
    }
    const auto expected = problem_.dv.element_bytes();

    // dy is the fourth input, dv the third output; counted over both, dv is 14: twelve inputs come before dq, dk, dv.
    Data dy(ACL_BF16, problem_.dy.shape());
    dy.bytes() = problem_.dy.bytes();
    Data dv(ACL_BF16, problem_.dv.shape());
    EXPECT_EQ(aclSetInputTensorAddr(executor_, 3, dy.handle(), dy.bytes().data()), 0);
    EXPECT_EQ(AclSetInputTensorAddr(executor_, 3, dy.handle(), dy.bytes().data()), 0);
    EXPECT_EQ(aclSetOutputTensorAddr(executor_, 2, dv.handle(), dv.bytes().data()), 0);
    problem_.dy.fill(0);
    problem_.dv.fill(-1);
    EXPECT_EQ(version_.second(workspace.data(), size_, executor_, nullptr), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
    EXPECT_EQ(dv.element_bytes(), expected);
    EXPECT_EQ(problem_.dv.at(0), -1);

    EXPECT_EQ(aclSetTensorAddr(executor_, 14, problem_.dv.handle(), problem_.dv.bytes().data()), 0);
    EXPECT_EQ(version_.second(workspace.data(), size_, executor_, nullptr), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
    EXPECT_EQ(problem_.dv.element_bytes(), expected);

    EXPECT_EQ(aclSetInputTensorAddr(nullptr, 0, dy.handle(), dy.bytes().data()), 561103);
    EXPECT_EQ(aclSetInputTensorAddr(executor_, 0, nullptr, dy.bytes().data()), 561103);
    EXPECT_EQ(aclSetInputTensorAddr(executor_, 0, dy.handle(), nullptr), 161001);
    EXPECT_EQ(aclSetInputTensorAddr(executor_, 4, dy.handle(), dy.bytes().data()), 161002) << "no pse was given";
    EXPECT_EQ(aclSetInputTensorAddr(executor_, 12, dy.handle(), dy.bytes().data()), 161002) << "no such input";
    EXPECT_EQ(aclSetOutputTensorAddr(executor_, 4, dy.handle(), dy.bytes().data()), 161002);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor_), 0);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor_), 161002);
    EXPECT_EQ(aclSetInputTensorAddr(executor_, 3, dy.handle(), dy.bytes().data()), 161002);
}

TEST_F(Executors, NullIsNamed) {
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(nullptr), 561103);
    EXPECT_EQ(aclDestroyAclOpExecutor(nullptr), 561103);
    first();
    EXPECT_EQ(aclSetInputTensorAddr(executor_, 0, const_cast<aclTensor*>(given_.query), this), 161002)
        << "not repeatable";
    EXPECT_EQ(aclDestroyAclOpExecutor(executor_), 0);
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(executor_), 161002);
}

TEST_F(Executors, DataMayComeLaterButMustCome) {
    const Data::Shape shape = problem_.dq.shape();
    aclTensor* without = aclCreateTensor(shape.data(), shape.size(), ACL_BF16, nullptr, 0, ACL_FORMAT_ND, shape.data(),
                                         shape.size(), nullptr);
    given_.dq = without;
    first();
    std::vector<std::byte> workspace(size_);
    EXPECT_EQ(version_.second(workspace.data(), size_, executor_, nullptr), 161001);
    EXPECT_EQ(last_error(), "aclnnFlashAttentionScoreGradV2: dqOut: data is null, must point to shape [6, 2, 64]");
    first();
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor_), 0);
    ASSERT_EQ(aclSetOutputTensorAddr(executor_, 0, without, problem_.dq.bytes().data()), 0);
    EXPECT_EQ(version_.second(workspace.data(), size_, executor_, nullptr), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
    EXPECT_FALSE(problem_.dq.untouched());
    EXPECT_EQ(aclDestroyAclOpExecutor(executor_), 0);
    EXPECT_EQ(aclDestroyTensor(without), 0);
}

}  // namespace

}  // namespace fascore::aclnn_test
