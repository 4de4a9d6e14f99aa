// SPDX-License-Identifier: Apache-2.0
//
// Calls made of random parameters, most of them wrong in several ways: every one is refused with a documented code and
// a text, or runs to its end. Nothing crashes, hangs or leaks (the sanitizers watch).
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "support.h"
#include "support/random.h"

namespace fascore::aclnn_test {

namespace {

// A pool of tensors of all sorts, good for nothing in particular.
std::vector<Data> make_pool() {
    std::vector<Data> pool;
    for (const aclDataType type : {ACL_FLOAT16, ACL_FLOAT, ACL_BOOL, ACL_UINT8, ACL_FLOAT8_E4M3FN, ACL_INT64}) {
        for (const Data::Shape& shape : {Data::Shape{},
                                         {0},
                                         {1},
                                         {4},
                                         {6, 8},
                                         {2, 4},
                                         {2, 4, 6, 8},
                                         {2, 2, 8, 16},
                                         {6, 4, 8},
                                         {1, 1, 1, 1, 1, 1, 1, 1, 2}}) {
            pool.emplace_back(type, shape);
            pool.back().clear();
        }
    }
    return pool;
}

TEST(Anything, IsRefusedOrRuns) {
    const std::size_t before = live_handles();
    {
        std::vector<Data> pool = make_pool();
        Problem good(Layout::BSND), good_packed(Layout::TND);
        good.run_forward();
        good_packed.run_forward();
        const Array short_array({3}), lengths({2, 6}), wild({9, -1, 1000000000000});
        test::Random random(20240607);
        const auto chance = [&](int one_in) { return random.below(one_in) == 0; };
        const auto any_tensor = [&]() -> aclTensor* {
            if (chance(4)) return nullptr;
            if (chance(20)) return reinterpret_cast<aclTensor*>(&pool);
            return pool[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(pool.size())))].handle();
        };
        const auto any_array = [&]() -> const aclIntArray* {
            const aclIntArray* arrays[] = {nullptr, short_array, lengths, wild};
            return arrays[random.below(4)];
        };
        const auto any_number = [&]() -> std::int64_t {
            constexpr std::int64_t numbers[] = {-2147483648LL, -1,         0,         1,        2, 3, 4, 5, 6, 7, 8,
                                                100,           2147483647, INT64_MAX, INT64_MIN};
            return numbers[random.below(15)];
        };
        const auto any_double = [&]() -> double {
            const double numbers[] = {0,
                                      0.5,
                                      1,
                                      -1,
                                      1e300,
                                      -1e-300,
                                      std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN()};
            return numbers[random.below(8)];
        };
        const std::set<aclnnStatus> documented = {0, 161001, 161002};
        int ran = 0, refused = 0;
        for (int round = 0; round < 20000; ++round) {
            const VersionRow& row =
                versions()[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(versions().size())))];
            Given g = row.family == Family::packed ? good_packed.given() : good.given();
            // One to four things of a good call are replaced.
            for (std::int64_t k = random.below(4); k >= 0; --k) {
                switch (random.below(40)) {
                    case 0: g.query = any_tensor(); break;
                    case 1: g.key = any_tensor(); break;
                    case 2: g.value = any_tensor(); break;
                    case 3: g.query_rope = any_tensor(); break;
                    case 4: g.key_rope = any_tensor(); break;
                    case 5: g.dy = any_tensor(); break;
                    case 6: g.pse = any_tensor(); break;
                    case 7: g.drop_mask = any_tensor(); break;
                    case 8: g.padding_mask = any_tensor(); break;
                    case 9: g.atten_mask = any_tensor(); break;
                    case 10: g.sink = any_tensor(); break;
                    case 11: g.d_scale_q = any_tensor(); break;
                    case 12: g.softmax_max = any_tensor(); break;
                    case 13: g.softmax_sum = any_tensor(); break;
                    case 14: g.attention_out = any_tensor(); break;
                    case 15: g.reserved = any_tensor(); break;
                    case 16: g.dq = any_tensor(); break;
                    case 17: g.dk = any_tensor(); break;
                    case 18: g.dv = any_tensor(); break;
                    case 19: g.dq_rope = any_tensor(); break;
                    case 20: g.dpse = any_tensor(); break;
                    case 21: g.dsink = any_tensor(); break;
                    case 22: g.prefix = any_array(); break;
                    case 23: g.actual_seq_qlen = any_array(); break;
                    case 24: g.actual_seq_kvlen = any_array(); break;
                    case 25: g.q_start_idx = any_array(); break;
                    case 26: g.kv_start_idx = any_array(); break;
                    case 27: g.scale = any_double(); break;
                    case 28: g.keep_prob = any_double(); break;
                    case 29: g.pre_tokens = any_number(); break;
                    case 30: g.next_tokens = any_number(); break;
                    case 31: g.head_num = any_number(); break;
                    case 32: g.inner_precise = any_number(); break;
                    case 33: g.sparse_mode = any_number(); break;
                    case 34: g.pse_type = any_number(); break;
                    case 35: g.seed = any_number(); break;
                    case 36: g.offset = any_number(); break;
                    case 37: g.out_dtype = any_number(); break;
                    case 38: g.layout_text = chance(2) ? "BNSD" : "TND"; break;
                    default: g.softmax_layout_text = chance(2) ? "same_as_input" : "?"; break;
                }
            }
            last_error();
            const aclnnStatus status = run(row, g);
            ASSERT_TRUE(documented.contains(status)) << row.name << " returned " << status << " " << last_error();
            const std::string text = last_error();
            ASSERT_EQ(status == 0, text.empty()) << row.name << ": " << status << " " << text;
            ++(status == 0 ? ran : refused);
        }
        EXPECT_GT(ran, 1000);
        EXPECT_GT(refused, 1000);
    }
    EXPECT_EQ(live_handles(), before) << "handles leak";
}

}  // namespace

}  // namespace fascore::aclnn_test
