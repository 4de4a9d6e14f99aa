// SPDX-License-Identifier: Apache-2.0
//
// One batch of a call: every pointer moved to where its part begins.
//
//   batches alike    b · stride.b
//   TND              query side q_begin · stride.s, key side k_begin · stride.s; mask, bias and drop bits by their
//                    placement; statistics by their order
#include "problem/problem.h"

#include "fascore/tensor.h"

namespace fascore {

namespace {

template <class Tensor>
void move(Tensor& tensor, std::int64_t elements) {
    if (tensor.data != nullptr) tensor.data += elements * size_of(tensor.dtype);
}

void move(RowScale& scale, std::int64_t elements) {
    if (scale.data != nullptr) scale.data += elements * size_of(DType::f32);
}

void move(MaskTensor& mask, std::int64_t elements) {
    if (mask.data != nullptr) mask.data += elements;
}

void move_by_batch(Batch& batch, std::int64_t b) {
    for (Operand* operand :
         {&batch.query, &batch.key, &batch.value, &batch.query_rope, &batch.key_rope, &batch.dy, &batch.attention_in}) {
        move(*operand, b * operand->stride.b);
        move(operand->scale, b * operand->scale.stride.b);
    }
    for (Result* result : {&batch.attention_out, &batch.dq, &batch.dk, &batch.dv, &batch.dq_rope, &batch.dk_rope}) {
        move(*result, b * result->stride.b);
    }
    for (Statistic* statistic : {&batch.softmax_max, &batch.softmax_sum, &batch.dlse}) {
        move(*statistic, b * statistic->stride.b);
    }
}

void move_to_sequence(Batch& batch, std::int64_t b, const Sequence& sequence, StatisticsOrder order) {
    for (Operand* operand : {&batch.query, &batch.key, &batch.value, &batch.query_rope, &batch.key_rope, &batch.dy}) {
        move(operand->scale, b * operand->scale.stride.b);  // its batch axis counts sequences
    }
    for (Operand* operand : {&batch.query, &batch.query_rope, &batch.dy, &batch.attention_in}) {
        move(*operand, sequence.q_begin * operand->stride.s);
    }
    for (Operand* operand : {&batch.key, &batch.key_rope, &batch.value}) {
        move(*operand, sequence.k_begin * operand->stride.s);
    }
    for (Result* result : {&batch.attention_out, &batch.dq, &batch.dq_rope}) {
        move(*result, sequence.q_begin * result->stride.s);
    }
    for (Result* result : {&batch.dk, &batch.dk_rope, &batch.dv}) move(*result, sequence.k_begin * result->stride.s);
    for (Statistic* statistic : {&batch.softmax_max, &batch.softmax_sum, &batch.dlse}) {
        move(*statistic, sequence.q_begin * statistic->stride.s);
        if (order == StatisticsOrder::by_sequence) {
            // Declared [T1, N1, …], filled with [N1, Sq, …]: rows of a head are neighbours.
            statistic->stride.s = statistic->stride.n;
            statistic->stride.n *= sequence.S1;
        }
    }
}

}  // namespace

Batch Problem::batch(std::int64_t b) const {
    Batch batch = *this;
    batch.index = b;
    if (packed) {
        move_to_sequence(batch, b, sequences[static_cast<std::size_t>(b)], statistics_order);
    } else {
        move_by_batch(batch, b);
    }
    Sequence here{0, S1, 0, S2, b * S1 * S2, b * S1 * ((S2 + 15) / 16 * 16), band};
    if (!sequences.empty()) here = sequences[static_cast<std::size_t>(b)];
    batch.S1 = here.S1;
    batch.S2 = here.S2;
    batch.band = here.band;

    switch (mask.placement) {
        case MaskTensor::Placement::by_batch: move(batch.mask, b * mask.stride_b); break;
        case MaskTensor::Placement::by_rows:
            move(batch.mask, here.q_begin * mask.stride_i + here.k_begin * mask.stride_j);
            break;
        case MaskTensor::Placement::by_pairs:
            move(batch.mask, here.pairs_begin * mask.heads * mask.stride_j);
            batch.mask.stride_i = here.S2 * mask.stride_j;
            batch.mask.stride_n = mask.heads == 1 ? 0 : here.S1 * batch.mask.stride_i;
            break;
    }

    const auto place_bias = [&](auto& tensor) {
        switch (bias.placement) {
            case Bias::Placement::by_batch: move(tensor, b * tensor.stride.b); break;
            case Bias::Placement::by_pairs:
                move(tensor, here.pairs_begin * N1 * tensor.stride.d);
                tensor.stride.s = here.S2 * tensor.stride.d;
                tensor.stride.n = here.S1 * tensor.stride.s;
                break;
            case Bias::Placement::by_keys:
                move(tensor, here.k_begin * N1 * tensor.stride.d);
                tensor.stride.s = 0;
                tensor.stride.n = here.S2 * tensor.stride.d;
                break;
        }
    };
    place_bias(batch.bias);
    place_bias(batch.dpse);
    if (bias.first_only && b != 0) {
        batch.bias.q_start = 0;
        batch.bias.k_start = 0;
    }

    if (!dropout.active) return batch;
    batch.dropout.pitch = dropout.generated ? (here.S2 + 15) / 16 * 16 : here.S2;
    batch.dropout.first = N1 * (dropout.generated ? here.padded_begin : here.pairs_begin);
    return batch;
}

}  // namespace fascore
