// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the C interface share: tensors with their descriptors, one struct with every parameter of any
// version, and the list of versions to go through.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "fascore/fascore.h"

namespace fascore::aclnn_test {

/// Memory with an aclTensor on it. Elements are addressed in row-major order of the shape, wherever they lie.
class Data {
  public:
    using Shape = std::vector<std::int64_t>;

    Data() = default;
    /// Row-major; every byte is 0xFF.
    Data(aclDataType type, Shape shape);
    /// Strides in elements and an offset, in memory of `room` elements.
    Data(aclDataType type, Shape shape, Shape stride, std::int64_t offset, std::int64_t room);
    Data(Data&& other) noexcept;
    Data& operator=(Data&& other) noexcept;
    Data(const Data&) = delete;
    Data& operator=(const Data&) = delete;
    ~Data();

    Data& fill(const std::function<double(std::int64_t)>& value);
    Data& fill(double value);
    /// Every byte 0.
    Data& clear();
    /// Small numbers that look random, the same for the same seed in any arrangement.
    Data& vary(std::uint64_t seed);

    [[nodiscard]] double at(std::int64_t element) const;
    void set(std::int64_t element, double value);
    [[nodiscard]] std::int64_t count() const;
    [[nodiscard]] std::vector<double> values() const;
    /// The bytes of every element in order: two tensors are the same when these are.
    [[nodiscard]] std::vector<std::byte> element_bytes() const;
    [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }
    [[nodiscard]] bool untouched() const;  ///< every byte is still 0xFF

    [[nodiscard]] aclTensor* handle() const { return handle_; }
    [[nodiscard]] const Shape& shape() const { return shape_; }
    [[nodiscard]] aclDataType type() const { return type_; }

    [[nodiscard]] ConstTensorView view() const;
    [[nodiscard]] TensorView out();

  private:
    [[nodiscard]] std::int64_t place(std::int64_t element) const;

    aclDataType type_ = ACL_FLOAT;
    Shape shape_;
    Shape stride_;
    std::int64_t offset_ = 0;
    std::vector<std::byte> bytes_;
    aclTensor* handle_ = nullptr;
};

[[nodiscard]] DType ours(aclDataType type);

/// Is anything left of what a test made? All counters of live handles.
[[nodiscard]] std::size_t live_handles();

/// An aclIntArray.
class Array {
  public:
    explicit Array(const std::vector<std::int64_t>& values)
        : handle_(aclCreateIntArray(values.data(), values.size())) {}
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    ~Array() { EXPECT_EQ(aclDestroyIntArray(handle_), 0); }
    // NOLINTNEXTLINE(google-explicit-constructor): stands for its handle
    operator const aclIntArray*() const { return handle_; }

  private:
    aclIntArray* handle_;
};

/// Every parameter of every version.
struct Given {
    const aclTensor *query{}, *key{}, *value{}, *query_rope{}, *key_rope{}, *dy{}, *pse{}, *drop_mask{},
        *padding_mask{}, *atten_mask{}, *sink{}, *d_scale_q{}, *d_scale_k{}, *d_scale_v{}, *d_scale_dy{}, *d_scale_o{},
        *ds_scale{}, *p_scale{};
    aclTensor *softmax_max{}, *softmax_sum{}, *attention_out{}, *reserved{}, *dq{}, *dk{}, *dv{}, *dq_rope{},
        *dk_rope{}, *dpse{}, *dsink{};
    const aclIntArray *prefix{}, *actual_seq_qlen{}, *actual_seq_kvlen{}, *q_start_idx{}, *kv_start_idx{};
    double scale = 1.0;
    double keep_prob = 1.0;
    std::int64_t pre_tokens = 2147483647;
    std::int64_t next_tokens = 2147483647;
    std::int64_t head_num = 1;
    std::int64_t inner_precise = 0;
    std::int64_t sparse_mode = 0;
    std::int64_t pse_type = 1;
    std::int64_t seed = 0;
    std::int64_t offset = 0;
    std::int64_t out_dtype = 0;
    std::string layout_text = "BNSD";
    std::string softmax_layout_text;
    bool null_layout = false;
    bool null_softmax_layout = false;

    // The interface takes mutable strings.
    [[nodiscard]] char* layout() const { return null_layout ? nullptr : const_cast<char*>(layout_text.c_str()); }
    [[nodiscard]] char* softmax_layout() const {
        return null_softmax_layout ? nullptr : const_cast<char*>(softmax_layout_text.c_str());
    }
};

using FirstPhase = aclnnStatus (*)(const Given&, std::uint64_t*, aclOpExecutor**);
using SecondPhase = aclnnStatus (*)(void*, std::uint64_t, aclOpExecutor*, aclrtStream);

enum class Family : std::uint8_t { batches, packed, whole, hifloat8 };

struct VersionRow {
    std::string name;
    FirstPhase first;
    SecondPhase second;
    bool gradient;
    Family family;
    int number;
};

inline void PrintTo(const VersionRow& row, std::ostream* out) { *out << row.name; }

/// All of them, those of hifloat8 and the two "largest" forms included (by_hand.cpp).
[[nodiscard]] const std::vector<VersionRow>& versions();
[[nodiscard]] const VersionRow& version(const std::string& name);

/// A small problem with all its tensors, as any layout has them: N1 4, N2 2, S1 6, S2 8 (packed: lengths {2, 4} and
/// {5, 3}), D 16, Dv 8, B 2.
struct Problem {
    explicit Problem(Layout layout, aclDataType type = ACL_FLOAT16);

    Layout layout;
    Data query, key, value, dy;
    Data softmax_max, softmax_sum, attention_out;
    Data dq, dk, dv;
    std::vector<std::int64_t> ends_q, ends_kv;  ///< packed

    /// The parameters that any version needs; the arrays live as long as the problem.
    [[nodiscard]] Given given();
    [[nodiscard]] AttentionParams params() const;
    [[nodiscard]] ForwardInputs forward_inputs() const;
    [[nodiscard]] ForwardOutputs forward_outputs();
    [[nodiscard]] BackwardInputs backward_inputs() const;
    [[nodiscard]] BackwardOutputs backward_outputs();
    /// attention_out and the statistics, by the C++ call.
    void run_forward();

    static constexpr std::int64_t B = 2, N1 = 4, N2 = 2, S1 = 6, S2 = 8, D = 16, Dv = 8;
    static constexpr double scale = 0.25;

  private:
    std::vector<std::unique_ptr<Array>> arrays_;
};

/// The shape of a tensor with N heads of D columns and S rows (packed: T rows) in a layout.
[[nodiscard]] Data::Shape shape_in(Layout layout, std::int64_t B, std::int64_t N, std::int64_t S, std::int64_t D);

/// The text of the failures since it was last asked.
std::string last_error();

/// Both phases and a synchronize on the default stream, with a workspace of exactly the size asked for, NaN before and
/// guarded behind. The first code that is not 0.
aclnnStatus run(const VersionRow& version, const Given& given, aclrtStream stream = nullptr);

}  // namespace fascore::aclnn_test
