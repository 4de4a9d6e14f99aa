// SPDX-License-Identifier: Apache-2.0
//
// Drawn problems: what is in them is in drawn.h.
#include "drawn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "command.h"
#include "random.h"

namespace fascore::cli {
namespace {

/// One a tensor, fixed for ever: a published seed means the same numbers.
enum class Stream : std::uint64_t {
    query,
    key,
    value,
    dy,
    query_rope,
    key_rope,
    pse,
    atten_mask,
    drop_mask,
    sink,
    dlse,
    lengths,
};

NormalStream stream_of(const Problem& problem, Stream stream) {
    return {problem.seed, static_cast<std::uint64_t>(stream)};
}

constexpr std::int64_t block_rows = 128;          // that share a dequantisation factor
constexpr std::int64_t template_side = 2048;      // of a compressed mask
constexpr std::int64_t prefix_rows = 3072;        // of that with a prefix
constexpr std::int64_t prefix_columns = 1024;     // which the rows below template_side show
constexpr std::int64_t compressed_rows = 1024;    // of a compressed bias
constexpr std::int64_t most_sequences = 1 << 24;  // that lengths are drawn for; the operator's limit is far below

/// More than memory holds: refused by name when it is asked for.
constexpr std::int64_t beyond = std::numeric_limits<std::int64_t>::max() / 2;

std::int64_t product(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? beyond : result;
}

/// Σ S1·S2 over the batches.
std::int64_t pairs_of(const Problem& problem) {
    const Rows queries = problem.query_rows();
    const Rows keys = problem.key_rows();
    if (!problem.packed()) return product(problem.extents.B, product(problem.extents.S1, problem.extents.S2));
    const std::int64_t batches = std::min(queries.batches(), keys.batches());
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < batches; ++b) {
        if (__builtin_add_overflow(sum, product(queries.length(b), keys.length(b)), &sum)) return beyond;
    }
    return sum;
}

/// Lengths of the sequences of a packed problem, drawn or all alike, as ends.
void draw_lengths(Problem& problem, const Shape& shape) {
    const std::int64_t B = shape.most.B;
    if (B > most_sequences) {
        throw Failure(fmt::format("--shape: B is {}, must be at most {} in layout TND", B, most_sequences));
    }
    const NormalStream bits = stream_of(problem, Stream::lengths);
    const auto length = [&](std::int64_t least, std::int64_t most, std::int64_t number) {
        const auto choices = static_cast<std::uint64_t>(most - least) + 1;
        return least + static_cast<std::int64_t>(bits.word(static_cast<std::uint64_t>(number)) % choices);
    };
    std::int64_t q_end = 0;
    std::int64_t k_end = 0;
    for (std::int64_t b = 0; b < B; ++b) {
        const std::int64_t queries = length(shape.least_S1, shape.most.S1, 2 * b);
        const std::int64_t keys = shape.own_S2 ? length(shape.least_S2, shape.most.S2, 2 * b + 1) : queries;
        if (__builtin_add_overflow(q_end, queries, &q_end) || __builtin_add_overflow(k_end, keys, &k_end)) {
            throw Failure("--shape: the sum of all lengths must be below 2^63");
        }
        problem.q_ends.push_back(q_end);
        problem.k_ends.push_back(k_end);
    }
}

/// Sequences and the extents that follow from them.
void describe_sequences(Problem& problem, const ProblemOptions& options, const Shape& shape) {
    Extents& e = problem.extents;
    if (!problem.packed()) {
        if (!shape.has_range()) return;
        throw Failure(fmt::format("--shape: {}, must have one S1 and one S2 unless --layout is TND", options.shape));
    }
    if (problem.q_ends.empty()) {
        draw_lengths(problem, shape);
        e.T1 = problem.query_rows().total();
        e.T2 = problem.key_rows().total();
    } else {
        const auto entries = static_cast<std::int64_t>(problem.q_ends.size());
        if (e.B != entries || shape.has_range()) {
            throw Failure(
                fmt::format("--shape: {}, must be B = {}, the entries of --actual-seq-qlen, and the rows of "
                            "the tensors for S1 and S2",
                            options.shape, entries));
        }
        e.T1 = e.S1;
        e.T2 = e.S2;
    }
    e.S1 = problem.query_rows().longest();
    e.S2 = problem.key_rows().longest();
}

std::vector<std::int64_t> shape_of(const Form& form, const Problem& problem) {
    const Extents& e = problem.extents;
    const auto extent = [&](char axis) -> std::int64_t {
        switch (axis) {
            case 'B': return e.B;
            case 'N': return e.N1;
            case 'S': return e.S1;
            case 'K': return e.S2;
            case 'H': return compressed_rows;
            case 'T': return e.T1;
            case 'U': return e.T2;
            case 'P': return product(e.N1, pairs_of(problem));
            case 'V': return product(e.N1, e.T2);
            case 'C': return template_side;
            case 'X': return prefix_rows;
            default: return 1;
        }
    };
    std::vector<std::int64_t> shape;
    for (const char axis : form.axes) shape.push_back(extent(axis));
    return shape;
}

/// Normal values in ascending order of their numbers, each pair computed once.
class Ascending {
  public:
    explicit Ascending(const NormalStream& values) : values_(values) {}
    double at(std::int64_t number) {
        const auto index = static_cast<std::uint64_t>(number);
        if (index / 2 != pair_) values_.pair(pair_ = index / 2, both_[0], both_[1]);
        return both_[index % 2];
    }

  private:
    NormalStream values_;
    std::uint64_t pair_ = ~std::uint64_t{0};
    std::array<double, 2> both_{};
};

void fill_normal(HostTensor& tensor, const NormalStream& values) {
    Ascending ascending(values);
    const std::int64_t count = tensor.count();
    for (std::int64_t index = 0; index < count; ++index) tensor.store(index, ascending.at(index));
}

/// Tensors of the same rows: query and query_rope are quantised together.
struct Part {
    HostTensor* tensor;
    Ascending values;
    std::int64_t D;
};

struct Block {
    std::int64_t batch, begin, length;  ///< rows of the batch
    std::int64_t n, first, last;        ///< a head, rows within the batch
};

/// Elements in the order of the logical index (b, n, s, d), whatever the layout.
class RowDrawing {
  public:
    RowDrawing(const Problem& problem, std::int64_t N, std::vector<Part> parts, HostTensor* scale)
        : layout_(problem.params.layout), B_(problem.extents.B), N_(N), parts_(std::move(parts)), scale_(scale) {
        largest_ = problem.dtype == DType::f8e4m3 ? 448.0 : 57344.0;
    }

    void draw(const Rows& rows, std::int64_t T) {
        for (Part& part : parts_) part.tensor->allocate();
        if (scale_->present()) scale_->allocate();
        for (std::int64_t b = 0; b < rows.batches(); ++b) draw_batch(b, rows.begin(b), rows.length(b));
        const std::int64_t used = rows.total();  // the rows behind the last sequence are no inputs, but are there
        if (layout_ == Layout::TND && T > used) draw_batch(-1, used, T - used);
    }

  private:
    void draw_batch(std::int64_t batch, std::int64_t begin, std::int64_t length) {
        for (std::int64_t n = 0; n < N_; ++n) {
            for (std::int64_t first = 0; first < length; first += block_rows) {
                draw_block({batch, begin, length, n, first, std::min(first + block_rows, length)});
            }
        }
    }

    void draw_block(const Block& block) {
        double factor = 1.0;
        if (scale_->present()) {
            double most = 0.0;
            for_each(block, [&](Part&, std::int64_t, double value) { most = std::max(most, std::abs(value)); });
            if (most > 0.0) factor = largest_ / most;
            const std::int64_t blocks = scale_->shape()[2];
            if (block.batch >= 0) {
                scale_->store((block.batch * N_ + block.n) * blocks + block.first / block_rows, 1.0 / factor);
            }
        }
        for_each(block, [&](Part& part, std::int64_t at, double value) { part.tensor->store(at, value * factor); });
    }

    /// Calls f(part, element, value) for every element of a block.
    template <class F>
    void for_each(const Block& block, const F& f) {
        for (std::int64_t s = block.first; s < block.last; ++s) {
            const std::int64_t row = N_ * block.begin + block.n * block.length + s;
            std::int64_t at = row;  // BNSD
            if (layout_ == Layout::SBH) {
                at = (s * B_ + block.batch) * N_ + block.n;
            } else if (layout_ != Layout::BNSD) {
                at = (block.begin + s) * N_ + block.n;
            }
            for (Part& part : parts_) {
                for (std::int64_t d = 0; d < part.D; ++d) f(part, at * part.D + d, part.values.at(row * part.D + d));
            }
        }
    }

    Layout layout_;
    std::int64_t B_;
    std::int64_t N_;
    double largest_ = 1.0;
    std::vector<Part> parts_;
    HostTensor* scale_;
};

void fill_template(HostTensor& mask) {
    const std::int64_t count = mask.count();
    for (std::int64_t at = 0; at < count; ++at) {
        const std::int64_t row = at / template_side;
        const std::int64_t column = at % template_side;
        mask.store(at, (row < template_side ? column > row : column >= prefix_columns) ? 1.0 : 0.0);
    }
}

/// Mode 5: hidden unless j < prefix[b] or j ≤ i + S2 − S1.
void fill_prefix(HostTensor& mask, const Problem& problem) {
    const Extents& e = problem.extents;
    const std::int64_t pairs = product(e.S1, e.S2);
    const std::int64_t heads = mask.rank() == 4 ? mask.shape()[1] : 1;
    const std::int64_t count = mask.count();
    for (std::int64_t at = 0; at < count; ++at) {
        const auto b = static_cast<std::size_t>(at / pairs / heads);
        const std::int64_t i = at % pairs / e.S2;
        const std::int64_t j = at % e.S2;
        const std::int64_t prefix = b < problem.prefix.size() ? problem.prefix[b] : 0;
        mask.store(at, j < prefix || j <= i + e.S2 - e.S1 ? 0.0 : 1.0);
    }
}

void fill_random(HostTensor& mask, const NormalStream& bits) {
    const std::int64_t count = mask.count();
    for (std::int64_t at = 0; at < count; ++at) {
        mask.store(at, bits.word(static_cast<std::uint64_t>(at)) % 4 == 0 ? 1.0 : 0.0);
    }
}

void fill_mask(Problem& problem) {
    problem.atten_mask.allocate();
    switch (problem.params.sparse_mode) {
        case 0:
        case 1: fill_random(problem.atten_mask, stream_of(problem, Stream::atten_mask)); break;
        case 5: fill_prefix(problem.atten_mask, problem); break;
        default: fill_template(problem.atten_mask); break;
    }
}

void fill_drop_mask(Problem& problem) {
    problem.drop_mask.allocate();
    const NormalStream bits = stream_of(problem, Stream::drop_mask);
    const std::int64_t bytes = problem.drop_mask.count();
    for (std::int64_t byte = 0; byte < bytes; ++byte) {
        unsigned kept = 0;
        for (unsigned bit = 0; bit < 8; ++bit) {
            const std::uint64_t word = bits.word(static_cast<std::uint64_t>(byte) * 8 + bit);
            if (static_cast<double>(word >> 11) * 0x1p-53 < problem.params.keep_prob) kept |= 1U << bit;
        }
        problem.drop_mask.store(byte, kept);
    }
}

void fill_slopes(HostTensor& slopes, std::int64_t N1) {
    const std::int64_t count = slopes.count();
    for (std::int64_t at = 0; at < count; ++at) {
        slopes.store(at, 1.0 / (static_cast<double>(at / N1 + 1) * static_cast<double>(at % N1 + 1)));
    }
}

/// The last 1024 rows of a bias that falls by the head's slope a step left of the diagonal.
void fill_compressed(HostTensor& bias, const Extents& e) {
    const std::int64_t count = bias.count();
    for (std::int64_t at = 0; at < count; ++at) {
        const std::int64_t column = at % e.S2;
        const std::int64_t row = at / e.S2 % compressed_rows;
        const std::int64_t n = at / e.S2 / compressed_rows % e.N1;
        const std::int64_t distance = row + e.S2 - compressed_rows - column;
        const double slope = std::exp2(-8.0 * static_cast<double>(n + 1) / static_cast<double>(e.N1));
        bias.store(at, distance > 0 ? -slope * static_cast<double>(distance) : 0.0);
    }
}

void fill_bias(Problem& problem) {
    problem.pse.allocate();
    if (problem.params.pse_type >= 2) {
        fill_slopes(problem.pse, problem.extents.N1);
    } else if (problem.pse_axes.find('H') != std::string_view::npos) {
        fill_compressed(problem.pse, problem.extents);
    } else {
        fill_normal(problem.pse, stream_of(problem, Stream::pse));
    }
}

/// By the logical row (b, n, i), whatever the order.
void fill_dlse(Problem& problem) {
    problem.dlse.allocate();
    Ascending values(stream_of(problem, Stream::dlse));
    const std::int64_t N = problem.extents.N1;
    const Rows rows = problem.query_rows();
    const bool by_token = problem.packed() && problem.params.statistics_order == StatisticsOrder::by_token;
    const auto fill = [&](std::int64_t begin, std::int64_t length) {
        for (std::int64_t n = 0; n < N; ++n) {
            for (std::int64_t i = 0; i < length; ++i) {
                const std::int64_t row = N * begin + n * length + i;
                problem.dlse.store(by_token ? (begin + i) * N + n : row, values.at(row));
            }
        }
    };
    for (std::int64_t b = 0; b < rows.batches(); ++b) fill(rows.begin(b), rows.length(b));
    if (problem.packed()) fill(rows.total(), problem.extents.T1 - rows.total());
}

}  // namespace

void describe_drawn(Problem& problem, const ProblemOptions& options) {
    const Shape shape = parse_shape(options.shape);
    AttentionParams& params = problem.params;
    Extents& e = problem.extents;
    e = shape.most;
    e.Dr = options.rope;
    if (e.Dr < 0) throw Failure(fmt::format("--rope: {}, must be at least 0", e.Dr));
    describe_sequences(problem, options, shape);

    const std::int64_t columns = e.D + e.Dr;
    params.scale = options.scale.value_or(columns > 0 ? 1.0 / std::sqrt(static_cast<double>(columns)) : 1.0);
    if (params.head_num == 0 && (params.layout == Layout::BSH || params.layout == Layout::SBH)) params.head_num = e.N1;

    struct Operand {
        HostTensor Problem::*tensor;
        HostTensor Problem::*scale;
        const char* name;
        const char* scale_name;
        std::int64_t N, S, T, D;
        bool wanted;
    };
    const bool rope = e.Dr > 0;
    const Operand operands[] = {
        {&Problem::query, &Problem::d_scale_q, "query", "d_scale_q", e.N1, e.S1, e.T1, e.D, true},
        {&Problem::key, &Problem::d_scale_k, "key", "d_scale_k", e.N2, e.S2, e.T2, e.D, true},
        {&Problem::value, &Problem::d_scale_v, "value", "d_scale_v", e.N2, e.S2, e.T2, e.Dv, true},
        {&Problem::dy, &Problem::d_scale_dy, "dy", "d_scale_dy", e.N1, e.S1, e.T1, e.Dv, true},
        {&Problem::query_rope, nullptr, "query_rope", "", e.N1, e.S1, e.T1, e.Dr, rope},
        {&Problem::key_rope, nullptr, "key_rope", "", e.N2, e.S2, e.T2, e.Dr, rope},
    };
    for (const Operand& o : operands) {
        if (!o.wanted) continue;
        problem.*o.tensor = HostTensor(o.name, problem.dtype, shape_in(params.layout, e.B, o.N, o.S, o.D, o.T));
        if (o.scale == nullptr || !is_8bit(problem.dtype)) continue;
        const std::int64_t blocks = o.S / block_rows + (o.S % block_rows != 0 ? 1 : 0);
        problem.*o.scale = HostTensor(o.scale_name, DType::f32, {e.B, o.N, blocks, 1});
    }

    if (!options.bias.empty()) {
        const Form& form = parse_bias_form(options.bias);
        problem.pse_axes = form.axes;
        DType dtype = params.pse_type >= 2 ? DType::f32 : problem.out_dtype;
        if (!options.bias_dtype.empty()) dtype = parse_wide_dtype("--bias-dtype", options.bias_dtype);
        problem.pse = HostTensor("pse", dtype, shape_of(form, problem));
    } else if (!options.bias_dtype.empty()) {
        throw Failure("--bias-dtype: given without --bias, must be with it");
    }
    if (!options.mask.empty()) {
        problem.atten_mask = HostTensor("atten_mask", DType::boolean,
                                        shape_of(parse_mask_form(options.mask, params.sparse_mode), problem));
    }
    if (options.drop_mask) {
        const std::int64_t bits = product(e.N1, pairs_of(problem));
        problem.drop_mask = HostTensor("drop_mask", DType::u8, {bits / 8 + (bits % 8 != 0 ? 1 : 0)});
    }
    if (options.sink) problem.sink = HostTensor("sink", DType::f32, {e.N1});
    if (options.dlse) {
        std::vector<std::int64_t> rows = problem.statistic_shape();
        rows.pop_back();
        problem.dlse = HostTensor("dlse", problem.statistic_dtype(), rows);
    }
}

void draw(Problem& problem, Needs needs) {
    const Extents& e = problem.extents;
    const auto part = [&](HostTensor& tensor, Stream stream, std::int64_t D) {
        return Part{&tensor, Ascending(stream_of(problem, stream)), D};
    };
    const auto with_rope = [&](Part main, HostTensor& rope, Stream stream) {
        std::vector<Part> parts{std::move(main)};
        if (rope.present()) parts.push_back(part(rope, stream, e.Dr));
        return parts;
    };
    const Rows queries = problem.query_rows();
    const Rows keys = problem.key_rows();
    RowDrawing(problem, e.N1,
               with_rope(part(problem.query, Stream::query, e.D), problem.query_rope, Stream::query_rope),
               &problem.d_scale_q)
        .draw(queries, e.T1);
    RowDrawing(problem, e.N2, with_rope(part(problem.key, Stream::key, e.D), problem.key_rope, Stream::key_rope),
               &problem.d_scale_k)
        .draw(keys, e.T2);
    RowDrawing(problem, e.N2, {part(problem.value, Stream::value, e.Dv)}, &problem.d_scale_v).draw(keys, e.T2);
    if (problem.atten_mask.present()) fill_mask(problem);
    if (problem.pse.present()) fill_bias(problem);
    if (problem.drop_mask.present()) fill_drop_mask(problem);
    if (problem.sink.present()) {
        problem.sink.allocate();
        fill_normal(problem.sink, stream_of(problem, Stream::sink));
    }
    if (needs == Needs::forward) return;
    RowDrawing(problem, e.N1, {part(problem.dy, Stream::dy, e.Dv)}, &problem.d_scale_dy).draw(queries, e.T1);
    if (problem.dlse.present()) fill_dlse(problem);
}

}  // namespace fascore::cli
