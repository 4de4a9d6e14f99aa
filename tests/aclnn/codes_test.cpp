// SPDX-License-Identifier: Apache-2.0
//
// The code table: one thing broken in a good call, the code that comes back, and the text; nothing was written. Each
// row is tried with every version it speaks of.
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "support.h"

namespace fascore::aclnn_test {

namespace {

// Tensors a row may use. Broken ones live here, so that they outlive the call.
struct Bench {
    explicit Bench(Layout layout, aclDataType type) : problem(layout, type), given(problem.given()) {
        sink.fill(0.5);
        rope_q = Data(type, shape_in(layout, Problem::B, Problem::N1, Problem::S1, 8));
        rope_k = Data(type, shape_in(layout, Problem::B, Problem::N2, Problem::S2, 8));
        drope_q = Data(type, rope_q.shape());
        drope_k = Data(type, rope_k.shape());
    }
    // Keeps a tensor alive and gives its handle.
    aclTensor* keep(Data data) {
        kept.push_back(std::move(data));
        return kept.back().handle();
    }
    void give_rope() {
        given.query_rope = rope_q.handle();
        given.key_rope = rope_k.handle();
        given.dq_rope = drope_q.handle();
        given.dk_rope = drope_k.handle();
        given.atten_mask = mask.handle();
        given.sparse_mode = 3;
    }
    void give_sink() {
        given.sink = sink.handle();
        given.dsink = dsink.handle();
    }
    const aclIntArray* array(const std::vector<std::int64_t>& values) {
        arrays.push_back(std::make_unique<Array>(values));
        return *arrays.back();
    }

    Problem problem;
    Given given;
    Data mask{ACL_UINT8, {2048, 2048}};  // a template: not looked at
    Data sink{ACL_FLOAT, {Problem::N1}}, dsink{ACL_FLOAT, {Problem::N1}};
    Data rope_q, rope_k, drope_q, drope_k;
    std::vector<Data> kept;
    std::vector<std::unique_ptr<Array>> arrays;
};

using Row = VersionRow;
using Which = std::function<bool(const Row&)>;
bool any(const Row&) { return true; }
bool gradient(const Row& row) { return row.gradient; }
bool forward(const Row& row) { return !row.gradient; }
bool packed(const Row& row) { return row.family == Family::packed; }
bool has_type(const Row& row) {
    return row.number == 2 || row.number == 3 || row.number == 5 || row.family == Family::whole;
}
bool has_sink(const Row& row) {
    return (row.number == 3 && !packed(row)) || row.number == 5 || row.family == Family::whole;
}
bool narrow_rope(const Row& row) { return packed(row) && (row.number == 3 || row.number == 5); }
bool has_order(const Row& row) { return row.number >= 4; }
Which both(const Which& a, const Which& b) {
    return [a, b](const Row& row) { return a(row) && b(row); };
}
Which no(const Which& a) {
    return [a](const Row& row) { return !a(row); };
}

struct Refusal {
    std::string name;
    Which where;
    std::function<void(Bench&)> breaks;
    aclnnStatus code;
    std::string text;  ///< a piece of the message; {} = the parameter's name depends on the version
    aclDataType type = ACL_BF16;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

Data other_type(const Data& like, aclDataType type) { return {type, like.shape()}; }

const std::vector<Refusal>& refusals() {
    static const std::vector<Refusal> rows = {
        // pointers
        {"null_query", any, [](Bench& b) { b.given.query = nullptr; }, 161001, "query: null, must be given"},
        {"null_key", any, [](Bench& b) { b.given.key = nullptr; }, 161001, "null, must be given"},
        {"null_value", any, [](Bench& b) { b.given.value = nullptr; }, 161001, "value: null, must be given"},
        {"null_layout", any, [](Bench& b) { b.given.null_layout = true; }, 161001, "inputLayout: null, must be given"},
        {"null_max", any, [](Bench& b) { b.given.softmax_max = nullptr; }, 161001, "softmaxMax"},
        {"null_sum", any, [](Bench& b) { b.given.softmax_sum = nullptr; }, 161001, "softmaxSum"},
        {"null_attention", any, [](Bench& b) { b.given.attention_out = nullptr; }, 161001, "attention"},
        {"null_dy", gradient, [](Bench& b) { b.given.dy = nullptr; }, 161001, "dy: null, must be given"},
        {"null_dq", gradient, [](Bench& b) { b.given.dq = nullptr; }, 161001, "dqOut: null, must be given"},
        {"null_dk", gradient, [](Bench& b) { b.given.dk = nullptr; }, 161001, "dkOut: null, must be given"},
        {"null_dv", gradient, [](Bench& b) { b.given.dv = nullptr; }, 161001, "dvOut: null, must be given"},
        // handles
        {"dead_query", any,
         [](Bench& b) { b.given.query = reinterpret_cast<const aclTensor*>(b.problem.query.bytes().data()); }, 161002,
         "is not alive, must be a tensor that is created and not yet destroyed"},
        {"dead_array", packed,
         [](Bench& b) { b.given.actual_seq_qlen = reinterpret_cast<const aclIntArray*>(b.given.query); }, 161002,
         "actualSeqQLenOptional: 0x"},
        // attributes
        {"head_num_zero", any, [](Bench& b) { b.given.head_num = 0; }, 161002, "headNum: given 0, must be 1 or more"},
        {"head_num_negative", any, [](Bench& b) { b.given.head_num = -4; }, 161002,
         "headNum: given -4, must be 1 or more"},
        {"head_num_contradicts", packed, [](Bench& b) { b.given.head_num = 2; }, 161002,
         "headNum: given 2, must be query's head count 4"},
        {"head_num_too_many", no(packed), [](Bench& b) { b.given.head_num = 100; }, 161002, "query: "},
        {"layout_unknown", any, [](Bench& b) { b.given.layout_text = "NBSD"; }, 161002,
         "inputLayout: given \"NBSD\", must be"},
        {"layout_empty", any, [](Bench& b) { b.given.layout_text = ""; }, 161002, "inputLayout: given \"\", must be"},
        {"layout_of_batches", packed, [](Bench& b) { b.given.layout_text = "BSH"; }, 161002,
         "inputLayout: given \"BSH\", must be \"TND\""},
        {"layout_packed", both(no(packed), [](const Row& row) { return row.family == Family::batches; }),
         [](Bench& b) { b.given.layout_text = "TND"; }, 161002,
         "inputLayout: given \"TND\", which needs sequence lengths"},
        {"sparse_mode_nine", any, [](Bench& b) { b.given.sparse_mode = 9; }, 161002,
         "sparseMode: given 9, must be 0 to 8"},
        {"sparse_mode_huge", any, [](Bench& b) { b.given.sparse_mode = std::int64_t{1} << 32; }, 161002,
         "sparseMode: given 4294967296, must be 0 to 8"},
        {"pse_type_four", has_type, [](Bench& b) { b.given.pse_type = 4; }, 161002, "pseType: given 4, must be 0 to 3"},
        {"pse_type_without_pse", has_type, [](Bench& b) { b.given.pse_type = 2; }, 161002, "pse"},
        {"inner_precise", any, [](Bench& b) { b.given.inner_precise = 3; }, 161002,
         "innerPrecise: given 3, must be 0 to 2"},
        {"scale_nan", any, [](Bench& b) { b.given.scale = std::numeric_limits<double>::quiet_NaN(); }, 161002,
         "scaleValue: given nan"},
        {"keep_prob_zero", any, [](Bench& b) { b.given.keep_prob = 0; }, 161002,
         "keepProb: given 0, must be more than 0"},
        {"keep_prob_large", any, [](Bench& b) { b.given.keep_prob = 1.5; }, 161002,
         "keepProb: given 1.5, must be more than 0"},
        {"keep_prob_without_mask", no([](const Row& row) { return row.family == Family::whole; }),
         [](Bench& b) { b.given.keep_prob = 0.9; }, 161002, "keepProb: given 0.9, must be 1 without dropMaskOptional"},
        {"order_unknown", has_order, [](Bench& b) { b.given.softmax_layout_text = "Same_As_Input"; }, 161002,
         "given \"Same_As_Input\", must be \"\" or \"same_as_input\""},
        {"order_of_batches", both(has_order, no(packed)),
         [](Bench& b) { b.given.softmax_layout_text = "same_as_input"; }, 161002,
         "given \"same_as_input\", must be \"\" for layout SBH"},
        // tensors
        {"query_format", any,
         [](Bench& b) {
             const Data& q = b.problem.query;
             aclInitTensor(q.handle(), q.shape().data(), q.shape().size(), q.type(), nullptr, 0, ACL_FORMAT_FRACTAL_NZ,
                           q.shape().data(), q.shape().size(), b.problem.query.bytes().data());
         },
         161002, "query: format is FRACTAL_NZ, must be ND"},
        {"query_type", any, [](Bench& b) { b.given.query = b.keep(other_type(b.problem.query, ACL_DOUBLE)); }, 161002,
         "query: dtype is DOUBLE, must be FLOAT16, BF16"},
        {"key_type", any, [](Bench& b) { b.given.key = b.keep(other_type(b.problem.key, ACL_FLOAT16)); }, 161002,
         "dtype is FLOAT16, must be BF16 as query"},
        {"value_type", any, [](Bench& b) { b.given.value = b.keep(other_type(b.problem.value, ACL_INT8)); }, 161002,
         "value: dtype is INT8"},
        {"dy_type", gradient, [](Bench& b) { b.given.dy = b.keep(other_type(b.problem.dy, ACL_FLOAT)); }, 161002,
         "dy: dtype is FLOAT, must be BF16 as query"},
        {"result_type", any,
         [](Bench& b) { b.given.attention_out = b.keep(other_type(b.problem.attention_out, ACL_FLOAT)); }, 161002,
         "dtype is FLOAT, must be BF16 as query"},
        {"dq_type", gradient, [](Bench& b) { b.given.dq = b.keep(other_type(b.problem.dq, ACL_FLOAT16)); }, 161002,
         "dqOut: dtype is FLOAT16, must be BF16 as query"},
        {"statistics_type", any,
         [](Bench& b) { b.given.softmax_max = b.keep(other_type(b.problem.softmax_max, ACL_BF16)); }, 161002,
         "dtype is BF16, must be FLOAT"},
        {"eight_bit_type", no([](const Row& row) { return row.family == Family::whole; }),
         [](Bench& b) { b.given.query = b.keep(other_type(b.problem.query, ACL_FLOAT8_E4M3FN)); }, 161002,
         "query: dtype is FLOAT8_E4M3FN, must be FLOAT16, BF16 or FLOAT"},
        {"mask_type", any,
         [](Bench& b) {
             b.given.atten_mask = b.keep(Data(ACL_FLOAT, {6, 8}));
         },
         161002, "attenMaskOptional: dtype is FLOAT, must be BOOL or UINT8"},
        {"mask_rank", any,
         [](Bench& b) {
             b.given.atten_mask = b.keep(Data(ACL_BOOL, {1, 6, 8}));
         },
         161002, "attenMaskOptional: "},
        {"mask_shape", any,
         [](Bench& b) {
             b.given.atten_mask = b.keep(Data(ACL_BOOL, {5, 8}));
         },
         161002, "attenMaskOptional: shape is [5, 8]"},
        {"compressed_mask_shape", any,
         [](Bench& b) {
             b.given.atten_mask = b.keep(Data(ACL_BOOL, {6, 8}));
             b.given.sparse_mode = 3;
         },
         161002, "attenMaskOptional: shape is [6, 8]"},
        {"query_rank", any,
         [](Bench& b) {
             b.given.query = b.keep(Data(ACL_BF16, {6, 128}));
         },
         161002, "query: "},
        {"query_rank_one", any, [](Bench& b) { b.given.query = b.keep(Data(ACL_BF16, {6})); }, 161002, "query: "},
        {"query_rank_nine", any,
         [](Bench& b) {
             b.given.query = b.keep(Data(ACL_BF16, {1, 1, 1, 1, 1, 1, 6, 2, 64}));
         },
         161002, "query: rank is 9, must be at most 8"},
        {"key_rows", any,
         [](Bench& b) {
             Data::Shape shape = b.problem.key.shape();
             ++shape[0];
             b.given.key = b.keep(Data(ACL_BF16, shape));
         },
         161002, ""},
        {"key_columns", packed, [](Bench& b) { b.given.key = b.keep(Data(ACL_BF16, {8, 2, 12})); }, 161002,
         ": head_dim is 12, must equal query's 16"},
        {"key_by_its_name", both(packed, gradient), [](Bench& b) { b.given.key = b.keep(Data(ACL_BF16, {8, 2, 12})); },
         161002, "WorkspaceSize: keyIn: head_dim is 12"},
        {"value_columns", any,
         [](Bench& b) {
             Data::Shape shape = b.problem.value.shape();
             shape.back() *= 4;
             b.given.value = b.keep(Data(ACL_BF16, shape));
         },
         161002, ""},
        {"attention_shape", any,
         [](Bench& b) {
             Data::Shape shape = b.problem.attention_out.shape();
             ++shape[0];
             b.given.attention_out = b.keep(Data(ACL_BF16, shape));
         },
         161002, "attention"},
        {"dk_shape", gradient,
         [](Bench& b) {
             Data::Shape shape = b.problem.dk.shape();
             --shape[0];
             b.given.dk = b.keep(Data(ACL_BF16, shape));
         },
         161002, "dkOut: "},
        {"statistics_shape", any,
         [](Bench& b) {
             b.given.softmax_sum = b.keep(Data(ACL_FLOAT, {2, 4, 6, 7}));
         },
         161002, "softmaxSum"},
        {"negative_extent", any,
         [](Bench& b) {
             Data::Shape shape = b.problem.query.shape();
             shape[0] = -shape[0];
             aclInitTensor(b.problem.query.handle(), shape.data(), 3, ACL_BF16, nullptr, 0, ACL_FORMAT_ND, shape.data(),
                           3, b.problem.query.bytes().data());
         },
         161002, "query: "},
        {"extents_overflow", any,
         [](Bench& b) {
             const Data::Shape shape(3, std::int64_t{1} << 40);
             aclInitTensor(b.problem.query.handle(), shape.data(), 3, ACL_BF16, nullptr, 0, ACL_FORMAT_ND, shape.data(),
                           3, b.problem.query.bytes().data());
         },
         161002, ""},
        {"offset_negative", any,
         [](Bench& b) {
             const Data& q = b.problem.query;
             aclInitTensor(q.handle(), q.shape().data(), 3, ACL_BF16, nullptr, -1, ACL_FORMAT_ND, q.shape().data(), 3,
                           b.problem.query.bytes().data());
         },
         161002, "query: offset is -1, must be 0 or more"},
        {"pse_type_of_data", any,
         [](Bench& b) {
             b.given.pse = b.keep(Data(ACL_FLOAT16, {2, 4, 6, 8}));
         },
         161002, "dtype is FLOAT16, must be BF16"},
        {"slopes_type", has_type,
         [](Bench& b) {
             b.given.pse = b.keep(Data(ACL_BF16, {4}));
             b.given.pse_type = 2;
         },
         161002, "dtype is BF16, must be FLOAT (slopes of pseType 2 and 3)"},
        {"pse_shape", no(narrow_rope),
         [](Bench& b) {
             b.given.pse = b.keep(Data(ACL_BF16, {2, 4, 5, 8}));
         },
         161002, "Optional: "},
        {"drop_mask_short", any,
         [](Bench& b) {
             b.given.keep_prob = 0.5;
             b.given.drop_mask = b.keep(Data(ACL_UINT8, {4}));
         },
         161002, "dropMaskOptional: "},
        // packed sequences
        {"no_lengths", packed, [](Bench& b) { b.given.actual_seq_qlen = nullptr; }, 161002, "actualSeqQLenOptional: "},
        {"no_kv_lengths", packed, [](Bench& b) { b.given.actual_seq_kvlen = nullptr; }, 161002,
         "actualSeqKvLenOptional: "},
        {"lengths_too_long", packed,
         [](Bench& b) {
             b.given.actual_seq_qlen = b.array({2, 7});
         },
         161002, "actualSeqQLenOptional: "},
        {"lengths_fall", packed,
         [](Bench& b) {
             b.given.actual_seq_qlen = b.array({4, 2});
         },
         161002, "actualSeqQLenOptional: "},
        {"lengths_of_other_count", packed, [](Bench& b) { b.given.actual_seq_kvlen = b.array({8}); }, 161002,
         "actualSeq"},
        // sink
        {"sink_with_float", has_sink, [](Bench& b) { b.give_sink(); }, 161002,
         "query: dtype is FLOAT, must be FLOAT16 or BF16 with a sink", ACL_FLOAT},
        {"sink_type", has_sink,
         [](Bench& b) {
             b.give_sink();
             b.given.sink = b.keep(Data(ACL_BF16, {4}));
         },
         161002, "dtype is BF16, must be FLOAT"},
        {"sink_rank", has_sink,
         [](Bench& b) {
             b.give_sink();
             b.given.sink = b.keep(Data(ACL_FLOAT, {4, 1}));
         },
         161002, "rank is 2, must be 1"},
        {"sink_length", has_sink,
         [](Bench& b) {
             b.give_sink();
             b.given.sink = b.keep(Data(ACL_FLOAT, {3}));
         },
         161002, "sink"},
        {"sink_without_dsink", both(has_sink, gradient),
         [](Bench& b) {
             b.give_sink();
             b.given.dsink = nullptr;
         },
         161001, "dsinkOut: null, must be given with sinkInOptional"},
        // rope
        {"rope_half", narrow_rope,
         [](Bench& b) {
             b.give_rope();
             b.given.key_rope = nullptr;
         },
         161001, "null, must be given with queryRope"},
        {"rope_other_half", [](const Row& row) { return row.family == Family::whole; },
         [](Bench& b) {
             b.give_rope();
             b.given.query_rope = nullptr;
         },
         161001, "queryRopeOptional: null, must be given with keyRopeOptional"},
        {"rope_without_mask", narrow_rope,
         [](Bench& b) {
             b.give_rope();
             b.given.atten_mask = nullptr;
         },
         161001, "attenMaskOptional: null, must be given with rope parts"},
        {"rope_without_results", both(narrow_rope, gradient),
         [](Bench& b) {
             b.give_rope();
             b.given.dk_rope = nullptr;
         },
         161001, "dkRopeOut: null, must be given with the rope parts"},
        {"rope_with_pse", both(narrow_rope, gradient),
         [](Bench& b) {
             b.give_rope();
             b.given.pse = b.keep(Data(ACL_BF16, {88}));
         },
         161002, "pseShiftOptional: shape is [88], must be null with rope parts"},
        {"rope_with_pse_forward", both(narrow_rope, forward),
         [](Bench& b) {
             b.give_rope();
             b.given.pse = b.keep(Data(ACL_BF16, {88}));
         },
         161001, "realShiftOptional: shape is [88], must be null with rope parts"},
        {"rope_with_dropout", both(narrow_rope, gradient),
         [](Bench& b) {
             b.give_rope();
             b.given.keep_prob = 0.5;
         },
         161002, "keepProb: given 0.5, must be 1 with rope parts"},
        {"rope_with_mode_6", both(narrow_rope, gradient),
         [](Bench& b) {
             b.give_rope();
             b.given.sparse_mode = 6;
         },
         161002, "sparseMode: given 6, must not be 6 with rope parts"},
        {"rope_in_half", both(narrow_rope, gradient), [](Bench& b) { b.give_rope(); }, 161002,
         "query: dtype is FLOAT16, must be BF16 with rope parts", ACL_FLOAT16},
        {"rope_too_wide", both(narrow_rope, gradient),
         [](Bench& b) {
             b.give_rope();
             b.given.query_rope = b.keep(Data(ACL_BF16, {6, 4, 12}));
         },
         161002, "queryRope: head size is 12, must be a multiple of 8"},
        // outputs
        {"output_is_input", any,
         [](Bench& b) { b.given.attention_out = b.given.dq = const_cast<aclTensor*>(b.given.value); }, 161002, ""},
        {"output_over_itself", gradient,
         [](Bench& b) {
             const Data& dk = b.problem.dk;
             const Data::Shape stride(3, 0);
             aclInitTensor(dk.handle(), dk.shape().data(), 3, ACL_BF16, stride.data(), 0, ACL_FORMAT_ND,
                           dk.shape().data(), 3, b.problem.dk.bytes().data());
         },
         161002, "dkOut: "},
        {"outputs_share", gradient,
         [](Bench& b) {
             const Data& dk = b.problem.dk;
             aclInitTensor(dk.handle(), dk.shape().data(), 3, ACL_BF16, nullptr, 0, ACL_FORMAT_ND, dk.shape().data(), 3,
                           b.problem.query.bytes().data());
         },
         161002, "dkOut: data is query's, must not overlap another tensor"},
        {"largest_takes_no_drop_mask",
         [](const Row& row) { return row.gradient && row.name.find("largest") != std::string::npos; },
         [](Bench& b) { b.given.drop_mask = b.keep(Data(ACL_UINT8, {64})); }, 161002,
         "dropMaskOptional: shape is [64], must be null here"},
    };
    return rows;
}

class Codes : public ::testing::TestWithParam<Refusal> {};

std::string name_of_row(const ::testing::TestParamInfo<Refusal>& row) { return row.param.name; }
INSTANTIATE_TEST_SUITE_P(All, Codes, ::testing::ValuesIn(refusals()), name_of_row);

TEST_P(Codes, ComeBackBeforeAnythingIsWritten) {
    const Refusal& refusal = GetParam();
    const std::size_t before = live_handles();
    int tried = 0;
    for (const VersionRow& row : versions()) {
        if (row.family == Family::hifloat8 || !refusal.where(row)) continue;
        SCOPED_TRACE(row.name);
        ++tried;
        Bench bench(row.family == Family::packed ? Layout::TND : Layout::SBH, refusal.type);
        refusal.breaks(bench);
        last_error();
        std::uint64_t size = 77;
        aclOpExecutor* executor = nullptr;
        EXPECT_EQ(row.first(bench.given, &size, &executor), refusal.code);
        EXPECT_EQ(size, 77U);
        EXPECT_EQ(executor, nullptr);
        const std::string text = last_error();
        const std::string function =
            row.name.substr(0, row.name.find(' ')) +
            (row.name.find(' ') == std::string::npos ? "GetWorkspaceSize: " : "GetMaxWorkspaceSize: ");
        EXPECT_EQ(text.rfind(function, 0), 0U) << text;
        EXPECT_NE(text.find(refusal.text), std::string::npos) << text;
        for (const Data* data : {&bench.problem.attention_out, &bench.problem.softmax_max, &bench.problem.softmax_sum,
                                 &bench.problem.dq, &bench.problem.dk, &bench.problem.dv}) {
            EXPECT_TRUE(data->untouched());
        }
    }
    EXPECT_GT(tried, 0);
    EXPECT_EQ(live_handles(), before) << "handles leak";
}

// The good call that the rows break is good: otherwise they would prove nothing.
TEST(CodeTable, TheCallThatIsBrokenIsGood) {
    for (const VersionRow& row : versions()) {
        if (row.family == Family::hifloat8) continue;
        SCOPED_TRACE(row.name);
        for (const int extra : {0, 1, 2}) {
            Bench bench(row.family == Family::packed ? Layout::TND : Layout::SBH, ACL_BF16);
            if (extra == 1) bench.give_sink();
            if (extra == 2) bench.give_rope();
            std::uint64_t size = 0;
            aclOpExecutor* executor = nullptr;
            EXPECT_EQ(row.first(bench.given, &size, &executor), 0) << last_error();
            EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
        }
    }
}

TEST(CodeTable, WorkspaceSizeAndExecutorMustBeThere) {
    for (const VersionRow& row : versions()) {
        Bench bench(row.family == Family::packed ? Layout::TND : Layout::SBH, ACL_BF16);
        std::uint64_t size = 0;
        aclOpExecutor* executor = nullptr;
        EXPECT_EQ(row.first(bench.given, nullptr, &executor), 161001) << row.name;
        EXPECT_EQ(row.first(bench.given, &size, nullptr), 161001) << row.name;
    }
}

// HIFLOAT8 attention is declared and named, not computed.
TEST(CodeTable, HiFloat8IsRefusedByName) {
    for (const VersionRow& row : versions()) {
        if (row.family != Family::hifloat8) continue;
        SCOPED_TRACE(row.name);
        Bench bench(Layout::BSND, ACL_BF16);
        Given given = bench.given;
        std::uint64_t size = 0;
        aclOpExecutor* executor = nullptr;
        EXPECT_EQ(row.first(given, &size, &executor), 161001) << "scales are required";
        last_error();
        Data one(ACL_FLOAT, {1});
        const Data query(ACL_HIFLOAT8, bench.problem.query.shape());
        given.query = query.handle();
        given.d_scale_q = given.d_scale_k = given.d_scale_v = given.d_scale_dy = given.ds_scale = given.p_scale =
            one.handle();
        EXPECT_EQ(row.first(given, &size, &executor), 161002);
        EXPECT_NE(last_error().find("query: dtype is HIFLOAT8, HIFLOAT8 attention is not computed by this library"),
                  std::string::npos);
    }
}

// Cases that the accelerator's own tests state.
TEST(CodeTable, UpstreamsCases) {
    {
        // SBH, FLOAT, {256, 1, 192}, one head, everything optional null or of rank 0.
        Data tensor(ACL_FLOAT, {256, 1, 192}), statistics(ACL_FLOAT, {1, 1, 256, 8}), none(ACL_FLOAT, {});
        Data dq(ACL_FLOAT, {256, 1, 192}), dk(ACL_FLOAT, {256, 1, 192}), dv(ACL_FLOAT, {256, 1, 192});
        Given given;
        given.query = given.key = given.value = given.dy = tensor.handle();
        given.attention_out = tensor.handle();
        given.softmax_max = given.softmax_sum = statistics.handle();
        given.dq = dq.handle(), given.dk = dk.handle(), given.dv = dv.handle();
        given.dpse = given.dq_rope = given.dk_rope = none.handle();
        given.null_softmax_layout = true;
        given.layout_text = "SBH";
        for (const char* name : {"aclnnFlashAttentionScoreGradV3", "aclnnFlashAttentionScoreGradV4"}) {
            std::uint64_t size = 0;
            aclOpExecutor* executor = nullptr;
            EXPECT_EQ(version(name).first(given, &size, &executor), 0) << last_error();
            EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
        }
    }
    {
        // TND {2, 4, 16}: headNum must be 4; keys may have 4 or 2 heads.
        for (const auto& [heads, kv_heads, code] :
             {std::tuple{1, 4, 161002}, std::tuple{2, 4, 161002}, std::tuple{8, 4, 161002}, std::tuple{4, 4, 0},
              std::tuple{4, 2, 0}}) {
            Data query(ACL_FLOAT16, {2, 4, 16}), key(ACL_FLOAT16, {2, kv_heads, 16}), out(ACL_FLOAT16, {2, 4, 16});
            Data max(ACL_FLOAT, {2, 4, 8}), sum(ACL_FLOAT, {2, 4, 8});
            const Array ends({2});
            Given given;
            given.query = query.handle();
            given.key = given.value = key.handle();
            given.attention_out = out.handle();
            given.softmax_max = max.handle(), given.softmax_sum = sum.handle();
            given.actual_seq_qlen = given.actual_seq_kvlen = ends;
            given.layout_text = "TND";
            given.head_num = heads;
            std::uint64_t size = 0;
            aclOpExecutor* executor = nullptr;
            EXPECT_EQ(version("aclnnFlashAttentionVarLenScore").first(given, &size, &executor), code) << last_error();
            if (code == 0) {
                EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
            }
        }
    }
    {
        // SBH with D = 1 and 100 heads.
        Data tensor(ACL_FLOAT16, {4, 1, 1}), statistics(ACL_FLOAT, {1, 1, 4, 8}), other(ACL_FLOAT16, {4, 1, 1});
        Given given;
        given.query = given.key = given.value = given.dy = given.attention_out = tensor.handle();
        given.dq = given.dk = given.dv = other.handle();
        given.softmax_max = given.softmax_sum = statistics.handle();
        given.layout_text = "SBH";
        given.head_num = 100;
        std::uint64_t size = 0;
        aclOpExecutor* executor = nullptr;
        EXPECT_EQ(version("aclnnFlashAttentionScoreGrad").first(given, &size, &executor), 161002);
    }
}

}  // namespace

}  // namespace fascore::aclnn_test
