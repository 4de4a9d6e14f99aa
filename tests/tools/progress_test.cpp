// SPDX-License-Identifier: Apache-2.0
//
// The bar's text; and that nothing of it appears where stderr is no terminal.
#include "progress.h"

#include <gtest/gtest.h>

namespace fascore::cli {
namespace {

TEST(Progress, text) {
    EXPECT_EQ(progress_text("grad", 0, 10, 0.5), "grad  [------------------------------]   0 %  0.5 s");
    EXPECT_EQ(progress_text("grad", 5, 10, 2.0), "grad  [###############---------------]  50 %  2.0 s, 2.0 s left");
    EXPECT_EQ(progress_text("grad", 10, 10, 125.0), "grad  [##############################] 100 %  2 min 05 s");
    EXPECT_EQ(progress_text("grad", 0, 0, 1.0), "grad  [##############################] 100 %  1.0 s");
    EXPECT_EQ(progress_text("grad", 99, 10, 1.0), "grad  [##############################] 100 %  1.0 s");
}

TEST(Progress, not_a_terminal_no_callback) {
    ::testing::internal::CaptureStderr();  // a file: no terminal
    {
        ProgressBar bar("grad");
        EXPECT_EQ(bar.callback().function, nullptr);
        const WaitNote note("reference ...");
    }
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace fascore::cli
