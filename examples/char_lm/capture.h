// SPDX-License-Identifier: Apache-2.0
//
// Writes what one attention layer of the trained model saw, so that `fascore grad` and `fascore verify` can be tried on
// real numbers instead of random ones: query, key, value, dy in bf16, layout BNSD, contiguous, with softmax_max,
// softmax_sum and attention_out as fascore's forward gives them for exactly these bf16 values.
//
// File format (safetensors): 8 bytes little-endian length of the header, the header in JSON, then the data.
//
//   { "__metadata__": {text: text, …},
//     "query": {"dtype": "BF16", "shape": [B, N, S, D], "data_offsets": [first byte, byte after the last]}, … }
#pragma once

#include <bit>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <fascore/attention.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "attention.h"
#include "bf16.h"
#include "model.h"

namespace char_lm {

/// Collects tensors, then writes them to one file.
class SafetensorsWriter {
  public:
    template <class Element>
    void add(const std::string& name, const std::string& dtype, const std::vector<Index>& shape,
             const std::vector<Element>& values) {
        static_assert(std::endian::native == std::endian::little, "the file is little-endian");
        const std::size_t first = data_.size();
        data_.resize(first + values.size() * sizeof(Element));
        std::memcpy(data_.data() + first, values.data(), values.size() * sizeof(Element));
        header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {first, data_.size()}}};
    }

    void write(const std::string& path, const std::map<std::string, std::string>& metadata) {
        header_["__metadata__"] = metadata;
        std::string header = header_.dump();
        header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data starts on a multiple of 8
        const auto length = static_cast<std::uint64_t>(header.size());
        std::string prefix(sizeof(length), '\0');
        std::memcpy(prefix.data(), &length, sizeof(length));
        std::ofstream file(path, std::ios::binary);
        file << prefix << header;
        file.write(data_.data(), static_cast<std::streamsize>(data_.size()));
        if (!file.flush()) throw std::runtime_error(fmt::format("--capture: {}, cannot be written", path));
    }

  private:
    nlohmann::ordered_json header_;
    std::vector<char> data_;
};

/// The values source[b·batch + s·row + n·D + d] · factor, in bf16, as [B, N, S, D].
inline std::vector<std::uint16_t> to_bnsd_bf16(const float* source, const AttentionShape& shape, Index row_stride,
                                               float factor) {
    const auto [B, S, N, D] = shape;
    std::vector<std::uint16_t> values;
    values.reserve(static_cast<std::size_t>(shape.elements()));
    for (Index b = 0; b < B; ++b) {
        for (Index n = 0; n < N; ++n) {
            for (Index s = 0; s < S; ++s) {
                const float* head = source + (b * S + s) * row_stride + n * D;
                for (Index d = 0; d < D; ++d) values.push_back(round_to_bf16(head[d] * factor));
            }
        }
    }
    return values;
}

/// `record` as Model::attention_record gave it after a forward and backward.
inline void capture_attention(const std::string& path, const Model<float>::AttentionRecord& record, int threads) {
    using fascore::ConstTensorView, fascore::TensorView, fascore::DType;
    const auto [B, S, N, D] = record.shape;
    const auto query = to_bnsd_bf16(record.qkv, record.shape, 3 * N * D, 1);
    const auto key = to_bnsd_bf16(record.qkv + N * D, record.shape, 3 * N * D, 1);
    const auto value = to_bnsd_bf16(record.qkv + 2 * N * D, record.shape, 3 * N * D, 1);
    // The loss is a mean over B·S characters. Times B·S this is the gradient of their sum: numbers one can read.
    const auto dy = to_bnsd_bf16(record.dy, record.shape, N * D, static_cast<float>(B * S));

    std::vector<std::uint16_t> attention_out(query.size());
    std::vector<float> softmax_max(static_cast<std::size_t>(B * N * S)), softmax_sum(softmax_max.size());
    fascore::AttentionParams params;
    params.scale = attention_scale(D);
    params.rule.kind = fascore::MaskRule::Kind::causal_top_left;
    fascore::ForwardInputs in;
    in.query = ConstTensorView(query.data(), DType::bf16, {B, N, S, D});
    in.key = ConstTensorView(key.data(), DType::bf16, {B, N, S, D});
    in.value = ConstTensorView(value.data(), DType::bf16, {B, N, S, D});
    fascore::ForwardOutputs out;
    out.attention_out = TensorView(attention_out.data(), DType::bf16, {B, N, S, D});
    out.softmax_max = TensorView(softmax_max.data(), DType::f32, {B, N, S});
    out.softmax_sum = TensorView(softmax_sum.data(), DType::f32, {B, N, S});
    fascore::Execution execution;
    execution.threads = threads;
    require(fascore::attention_forward(params, in, out, execution));

    SafetensorsWriter writer;
    writer.add("query", "BF16", {B, N, S, D}, query);
    writer.add("key", "BF16", {B, N, S, D}, key);
    writer.add("value", "BF16", {B, N, S, D}, value);
    writer.add("dy", "BF16", {B, N, S, D}, dy);
    writer.add("attention_out", "BF16", {B, N, S, D}, attention_out);
    writer.add("softmax_max", "F32", {B, N, S}, softmax_max);
    writer.add("softmax_sum", "F32", {B, N, S}, softmax_sum);
    writer.write(path, {{"layout", "BNSD"}, {"scale", fmt::format("{}", params.scale)}, {"rule", "causal"}});
}

}  // namespace char_lm
