// SPDX-License-Identifier: Apache-2.0
//
// Streams: order, asynchrony, errors, and threads with streams of their own.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "stream.h"
#include "support.h"

namespace fascore::aclnn_test {

namespace {

class Streams : public ::testing::Test {
  protected:
    void SetUp() override {
        last_error();
        ASSERT_EQ(aclrtCreateStream(&stream_), 0);
    }
    void TearDown() override { EXPECT_EQ(aclrtDestroyStream(stream_), 0); }

    // Blocks the stream until the gate opens.
    void block(std::atomic<bool>& gate) {
        ASSERT_TRUE(aclnn::find_stream(stream_)->enqueue([&gate](const CancelToken& cancel) -> aclnn::Verdict {
            while (!gate && !cancel.cancelled()) std::this_thread::yield();
            return {};
        }));
    }
    void fail(const char* text) {
        ASSERT_TRUE(aclnn::find_stream(stream_)->enqueue([text](const CancelToken&) -> aclnn::Verdict {
            return {ACL_ERROR_RT_FAILURE, text};
        }));
    }

    aclrtStream stream_ = nullptr;
};

TEST_F(Streams, WorkIsDoneInOrder) {
    std::vector<int> order;
    for (int k = 0; k < 1000; ++k) {
        ASSERT_TRUE(aclnn::find_stream(stream_)->enqueue([&order, k](const CancelToken&) -> aclnn::Verdict {
            order.push_back(k);
            return {};
        }));
    }
    EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
    std::vector<int> expected(1000);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(order, expected);
}

TEST_F(Streams, TheCallerDoesNotWait) {
    std::atomic<bool> gate{false};
    block(gate);
    std::vector<int> source(4, 7), target(4, 0);
    // Would hang here if enqueueing waited.
    EXPECT_EQ(aclrtMemcpyAsync(target.data(), 16, source.data(), 16, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_), 0);
    EXPECT_EQ(aclrtMemsetAsync(source.data(), 16, 0, 16, stream_), 0);
    EXPECT_EQ(target[0], 0) << "the copy is behind the gate";
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 0), ACL_ERROR_FAILURE);
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 5), ACL_ERROR_FAILURE);
    EXPECT_NE(last_error().find("timeout: the stream still works after 5 ms"), std::string::npos);
    gate = true;
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, -1), 0);
    EXPECT_EQ(target, std::vector<int>(4, 7));
    EXPECT_EQ(source, std::vector<int>(4, 0));
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, -2), ACL_ERROR_INVALID_PARAM);
}

TEST_F(Streams, AFailureIsReportedOnceToTheOneWhoWaits) {
    int done = 0;
    fail("first: broken, must not be");
    fail("second: broken, must not be");
    ASSERT_TRUE(aclnn::find_stream(stream_)->enqueue([&done](const CancelToken&) -> aclnn::Verdict {
        ++done;
        return {};
    }));
    EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_ERROR_RT_FAILURE);
    EXPECT_EQ(last_error(), "aclrtSynchronizeStream: first: broken, must not be");
    EXPECT_EQ(done, 1) << "work behind a failure is done";
    EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
    fail("third: broken, must not be");
    EXPECT_EQ(aclrtSynchronizeDevice(), ACL_ERROR_RT_FAILURE) << "the device waits for all streams";
    EXPECT_EQ(aclrtSynchronizeDevice(), 0);
}

TEST_F(Streams, DestroyFinishes) {
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStreamWithConfig(&stream, 1, 1), 0);
    std::vector<char> memory(1000, 0);
    for (std::size_t k = 0; k < 1000; ++k) {
        ASSERT_EQ(aclrtMemsetAsync(memory.data() + k, 1, 1, 1, stream), 0);
    }
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
    EXPECT_EQ(std::accumulate(memory.begin(), memory.end(), 0), 1000);
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_ERROR_INVALID_RESOURCE_HANDLE) << "destroyed twice";
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_ERROR_INVALID_RESOURCE_HANDLE) << "used after destroy";
    EXPECT_EQ(aclrtMemsetAsync(memory.data(), 1, 1, 1, stream), ACL_ERROR_INVALID_RESOURCE_HANDLE);
    EXPECT_EQ(aclrtCreateStream(nullptr), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtDestroyStream(nullptr), ACL_ERROR_INVALID_PARAM);
}

TEST_F(Streams, DestroyForceStopsWhatRunsAndDropsTheRest) {
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), 0);
    std::atomic<bool> running{false};
    ASSERT_TRUE(aclnn::find_stream(stream)->enqueue([&running](const CancelToken& cancel) -> aclnn::Verdict {
        running = true;
        while (!cancel.cancelled()) std::this_thread::yield();  // for ever, were it not told to stop
        return {};
    }));
    while (!running) std::this_thread::yield();
    char byte = 0;
    ASSERT_EQ(aclrtMemsetAsync(&byte, 1, 1, 1, stream), 0);
    EXPECT_EQ(aclrtDestroyStreamForce(stream), 0);
    EXPECT_EQ(byte, 0);
}

TEST_F(Streams, NullIsTheDefaultStream) {
    char byte = 0;
    EXPECT_EQ(aclrtMemsetAsync(&byte, 1, 9, 1, nullptr), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
    EXPECT_EQ(byte, 9);
}

// Enqueues seconds of work and ends the program without cleaning up.
[[noreturn]] void exit_while_a_stream_works() {
    constexpr std::int64_t S = 16384;
    static std::vector<float> data(S * 64, 0.0F), out(S * 64), maximum(S * 8), sum(S * 8);
    const auto tensor = [](const Data::Shape& extents, std::vector<float>& values) {
        return aclCreateTensor(extents.data(), 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, extents.data(), 4,
                               values.data());
    };
    Given given;
    given.query = given.key = given.value = tensor({1, 1, S, 64}, data);
    given.attention_out = tensor({1, 1, S, 64}, out);
    given.softmax_max = tensor({1, 1, S, 8}, maximum);
    given.softmax_sum = tensor({1, 1, S, 8}, sum);
    aclrtStream stream = nullptr;
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    if (aclrtCreateStream(&stream) != 0) std::exit(1);
    if (version("aclnnFlashAttentionScore").first(given, &size, &executor) != 0) std::exit(2);
    static std::vector<std::byte> workspace(size);
    if (aclnnFlashAttentionScore(workspace.data(), size, executor, stream) != 0) std::exit(3);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::exit(0);
}

TEST(StreamsDeathTest, AProgramMayEndWhileAStreamWorks) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(exit_while_a_stream_works(), ::testing::ExitedWithCode(0), "");
}

// Threads with a stream each, another problem each, all at once: everyone gets their own results.
TEST(Concurrency, ThreadsOnTheirOwnStreams) {
    constexpr int threads = 6, rounds = 20;
    const std::size_t before = live_handles();
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t) {
        team.emplace_back([t] {
            Problem problem(t % 2 == 0 ? Layout::SBH : Layout::BNSD, t % 3 == 0 ? ACL_BF16 : ACL_FLOAT);
            problem.query.vary(100U + static_cast<std::uint64_t>(t));
            problem.run_forward();
            ASSERT_TRUE(
                attention_backward(problem.params(), problem.backward_inputs(), problem.backward_outputs()).ok());
            const auto dq = problem.dq.element_bytes();
            const auto dv = problem.dv.element_bytes();
            aclrtStream stream = nullptr;
            ASSERT_EQ(aclrtSetDevice(0), 0);
            ASSERT_EQ(aclrtCreateStream(&stream), 0);
            for (int round = 0; round < rounds; ++round) {
                problem.dq.fill(-1);
                problem.dv.fill(-1);
                // The forward overwrites what the gradient behind it reads: order in the stream is all that protects
                // it.
                problem.attention_out.fill(-1);
                const Given given = problem.given();
                std::uint64_t sizes[2] = {};
                aclOpExecutor* executors[2] = {};
                ASSERT_EQ(version("aclnnFlashAttentionScoreV2").first(given, &sizes[0], &executors[0]), 0);
                ASSERT_EQ(version("aclnnFlashAttentionScoreGradV2").first(given, &sizes[1], &executors[1]), 0);
                std::vector<std::byte> first(sizes[0]), second(sizes[1]);
                ASSERT_EQ(aclnnFlashAttentionScoreV2(first.data(), sizes[0], executors[0], stream), 0);
                ASSERT_EQ(aclnnFlashAttentionScoreGradV2(second.data(), sizes[1], executors[1], stream), 0);
                ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
                ASSERT_EQ(problem.dq.element_bytes(), dq) << "thread " << t << " round " << round;
                ASSERT_EQ(problem.dv.element_bytes(), dv) << "thread " << t << " round " << round;
            }
            // A failure is this thread's alone.
            ASSERT_EQ(aclrtSetDevice(1000 + t), ACL_ERROR_INVALID_DEVICE);
            ASSERT_EQ(last_error(), "aclrtSetDevice: deviceId: given " + std::to_string(1000 + t) + ", must be 0");
            ASSERT_EQ(aclrtDestroyStream(stream), 0);
        });
    }
    for (std::thread& thread : team) thread.join();
    EXPECT_EQ(live_handles(), before) << "handles leak";
}

// Many threads on one stream: every piece is done.
TEST(Concurrency, ThreadsOnOneStream) {
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), 0);
    std::vector<char> memory(4000, 0);
    std::vector<std::thread> team;
    for (std::size_t t = 0; t < 4; ++t) {
        team.emplace_back([&memory, stream, t] {
            for (std::size_t k = t * 1000; k < (t + 1) * 1000; ++k) {
                ASSERT_EQ(aclrtMemsetAsync(memory.data() + k, 1, 1, 1, stream), 0);
                if (k % 97 == 0) {
                    ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
                    ASSERT_EQ(memory[k], 1);
                }
            }
        });
    }
    for (std::thread& thread : team) thread.join();
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
    EXPECT_EQ(std::accumulate(memory.begin(), memory.end(), 0), 4000);
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

}  // namespace

}  // namespace fascore::aclnn_test
