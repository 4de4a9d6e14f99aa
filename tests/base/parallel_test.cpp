// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace fascore {
namespace {

class Team : public ::testing::TestWithParam<int> {};

TEST_P(Team, EveryMemberOnceAndTheFirstIsTheCaller) {
    const int threads = GetParam();
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(threads));
    std::atomic<int> outside{0};
    std::thread::id first;
    auto body = [&](int member) {
        if (member < 0 || member >= threads) {
            ++outside;
            return;
        }
        if (member == 0) first = std::this_thread::get_id();
        ++calls[static_cast<std::size_t>(member)];
    };
    run_team(threads, body);
    EXPECT_EQ(outside, 0);
    EXPECT_EQ(first, std::this_thread::get_id());
    EXPECT_EQ(calls[0], 1);
    // Fewer may come, none twice.
    for (const std::atomic<int>& count : calls) EXPECT_LE(count, 1);
}

// Work shared by an atomic is all done, and once, however many members came.
TEST_P(Team, SharesWorkThroughAnAtomic) {
    constexpr int tasks = 1000;
    std::vector<std::atomic<int>> done(tasks);
    std::atomic<int> next{0};
    auto body = [&](int) {
        for (int task = next++; task < tasks; task = next++) ++done[static_cast<std::size_t>(task)];
    };
    run_team(GetParam(), body);
    for (const std::atomic<int>& count : done) ASSERT_EQ(count, 1);
}

// The pool of threads does not survive a fork; a team in the child must not wait for it.
TEST(TeamAfterFork, WorksInTheChild) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer does not follow forks of threaded programs";
#endif
    std::atomic<int> members{0};
    auto body = [&](int) { ++members; };
    run_team(3, body);
    const int in_parent = members;
    EXPECT_GE(in_parent, 1);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(60);  // a hang ends the child by a signal
        members = 0;
        run_team(3, body);
        _exit(members == 3 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

// What members wrote before they ended is seen after the call.
TEST_P(Team, ResultsAreVisibleAfterwards) {
    std::vector<int> written(static_cast<std::size_t>(GetParam()), 0);
    auto body = [&](int member) { written[static_cast<std::size_t>(member)] = member + 1; };
    for (int round = 0; round < 50; ++round) {
        std::fill(written.begin(), written.end(), 0);
        run_team(GetParam(), body);
        ASSERT_EQ(written[0], 1);
        for (std::size_t m = 0; m < written.size(); ++m) {
            ASSERT_TRUE(written[m] == 0 || written[m] == static_cast<int>(m) + 1);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Threads, Team, ::testing::Values(1, 2, 3, 5, 16));

TEST(TeamOfTeams, NestsWithoutWaiting) {
    std::atomic<int> inner{0};
    auto leaf = [&](int) { ++inner; };
    auto body = [&](int) { run_team(3, leaf); };
    run_team(2, body);
    EXPECT_GE(inner, 1);
    EXPECT_LE(inner, 6);
}

TEST(TeamOfTeams, CallersAreIndependent) {
    std::atomic<int> total{0};
    auto body = [&](int member) { total += member == 0 ? 1 : 0; };
    std::vector<std::thread> callers;
    for (int c = 0; c < 4; ++c) {
        callers.emplace_back([&] {
            for (int round = 0; round < 100; ++round) run_team(3, body);
        });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(total, 400);
}

TEST(Machine, OffersAtLeastOneThread) {
    EXPECT_GE(hardware_threads(), 1);
    EXPECT_EQ(hardware_threads(), hardware_threads());
}

TEST(SpinPause, LetsTheOtherSideRun) {
    std::atomic<bool> ready{false};
    std::thread other([&] { ready = true; });
    for (int round = 0; !ready; ++round) spin_pause(round);
    other.join();
    EXPECT_TRUE(ready);
}

}  // namespace
}  // namespace fascore
