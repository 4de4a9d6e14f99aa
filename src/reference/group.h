// SPDX-License-Identifier: Apache-2.0
//
// The formulas, row by row, for one kv head of one batch and its group of query heads; each line of the gradient
// stands beside the line of the forward it differentiates. cap(z) = c · tanh(z / c), or z.
//
//   raw(i,j) = Σ_d query[i,d] · key[j,d]         dq[i] = Σ_j dz(i,j) · key[j]     dk[j] = Σ_i dz(i,j) · query[i]
//   x(i,j)   = cap(scale · raw(i,j)) + bias(i,j) dz(i,j) = scale · (cap'(i,j) · dx(i,j))         dbias(i,j) = dx(i,j)
//   max_i    = max(sink, max_j x(i,j))
//   sum_i    = exp(sink − max_i) + Σ_j exp(x(i,j) − max_i)       dsink −= exp(sink − max_i) / sum_i · (Δ_i − dlse_i)
//   P(i,j)   = exp(x(i,j) − max_i) / sum_i       dx(i,j) = P(i,j) · (dP(i,j) − (Δ_i − dlse_i))
//   R(i,j)   = P(i,j) · keep(i,j) / keep_prob    dP(i,j) = dR(i,j) · keep(i,j) / keep_prob
//   out[i]   = Σ_j R(i,j) · value[j]             dR(i,j) = dy[i] · value[j]       dv[j] = Σ_i R(i,j) · dy[i]
//                                                Δ_i = dy[i] · out[i], or Σ_j R(i,j) · dR(i,j)
//
// Sums over j run over the visible columns of row i only: a hidden pair is left out, never multiplied by zero, so
// whatever its key or value holds cannot reach a result. dk and dv also sum over the G query heads of a kv head. A row
// that sees nothing is in none of the sums but one: dsink, where it counts by its statistics and out as given.
//
// 8-bit inputs: R, and dz before the factor scale, are replaced as quantise.h says before they meet value, dy, key or
// query; P in dx is not.
//
// Rows are taken 16 at a time (8-bit: 128, a block of the quantisation) so that key and value are read once per 16
// rows; memory is O(S2) beyond the operands.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "problem/problem.h"
#include "reference/bias.h"
#include "reference/dropout.h"
#include "reference/evaluation.h"
#include "reference/matrix.h"
#include "reference/quantise.h"
#include "reference/tensors.h"
#include "reference/visible.h"

namespace fascore::reference {

template <class Evaluation>
class Group {
  public:
    using Real = typename Evaluation::Real;

    Group(const Problem& problem, const Batch& batch, std::int64_t kv_head)
        : batch_(batch),
          evaluation_(batch.dtype),
          visible_(problem, batch),
          kv_head_(kv_head),
          quantised_(is_8bit(batch.dtype)),
          rows_at_once_(quantised_ ? quantised_side : 16),
          scale_(static_cast<Real>(batch.scale)),
          softcap_(static_cast<Real>(batch.softcap)),
          keep_prob_(static_cast<Real>(batch.dropout.keep_prob)),
          key_(batch.S2, batch.D),
          value_(batch.S2, batch.Dv),
          query_(rows_at_once_, batch.D),
          x_(rows_at_once_, batch.S2),
          P_(rows_at_once_, batch.S2),
          columns_(static_cast<std::size_t>(rows_at_once_)) {
        load(batch.key, batch.key_rope, batch.Dr, kv_head, 0, batch.S2, key_);
        load(batch.value, kv_head, 0, batch.S2, value_);
        if (batch.dropout.active) {
            dropout_.emplace(problem, batch);
            keep_ = Matrix<std::uint8_t>(rows_at_once_, batch.S2);
        }
        if (batch.dropout.active || quantised_) R_ = Matrix<Real>(rows_at_once_, batch.S2);
        if (softcap_ > 0) cap_slope_ = Matrix<Real>(rows_at_once_, batch.S2);
    }

    void forward() {
        const Matrix<Real> key_turned = transpose(key_);
        std::vector<Real> out(static_cast<std::size_t>(batch_.Dv));
        each_block([&](std::int64_t n, std::int64_t first, std::int64_t count) {
            scores(key_turned, n, first, count);
            for (std::int64_t r = 0; r < count; ++r) {
                const std::int64_t i = first + r;
                const Row row = statistics(n, r);
                weights(n, i, r, row);
                // out[i] = Σ_j R(i,j) · value[j]
                std::fill(out.begin(), out.end(), Real{0});
                for (const std::int64_t j : columns(r)) add(out.data(), R(r)[j], value_.row(j), batch_.Dv);
                round(out.data(), batch_.Dv);
                store_row(batch_.attention_out, n, i, out.data(), batch_.Dv);
                store_statistic(batch_.softmax_max, n, i, static_cast<double>(row.max));
                store_statistic(batch_.softmax_sum, n, i, static_cast<double>(row.sum));
            }
        });
    }

    void backward() {
        const Matrix<Real> key_turned = transpose(key_);
        const Matrix<Real> value_turned = transpose(value_);
        Matrix<Real> dy(rows_at_once_, batch_.Dv);
        Matrix<Real> out(rows_at_once_, batch_.Dv);
        Matrix<Real> dR(rows_at_once_, batch_.S2);
        Matrix<Real> dz(rows_at_once_, batch_.S2);
        Matrix<Real> dk(batch_.S2, batch_.D);
        Matrix<Real> dv(batch_.S2, batch_.Dv);
        std::vector<Real> dq(static_cast<std::size_t>(batch_.D));
        const bool out_given = batch_.attention_in.data != nullptr;
        each_block([&](std::int64_t n, std::int64_t first, std::int64_t count) {
            scores(key_turned, n, first, count);
            load(batch_.dy, n, first, count, dy);
            if (out_given) load(batch_.attention_in, n, first, count, out);
            dot_products(dy, count, value_turned, dR);
            for (std::int64_t r = 0; r < count; ++r) {
                const std::int64_t i = first + r;
                const Row row = batch_.softmax_max.wanted ? given_statistics(n, i) : statistics(n, r);
                if (columns(r).empty()) {
                    gradient_of_sink(n, row, delta_of_unseeing(n, i, dy.row(r), out_given ? out.row(r) : nullptr));
                    continue;
                }
                weights(n, i, r, row);
                for (const std::int64_t j : columns(r)) dR.row(r)[j] = evaluation_.step(dR.row(r)[j]);
                const Real delta = delta_of(n, i, r, dy.row(r), out_given ? out.row(r) : nullptr, dR.row(r));
                gradient_of_scores(n, i, r, delta, dR.row(r), dz.row(r));
                gradient_of_sink(n, row, delta);
            }
            finish_dz(count, dz);
            // dq[i] = Σ_j dz(i,j) · key[j]
            for (std::int64_t r = 0; r < count; ++r) {
                std::fill(dq.begin(), dq.end(), Real{0});
                for (const std::int64_t j : columns(r)) add(dq.data(), dz.row(r)[j], key_.row(j), batch_.D);
                round(dq.data(), batch_.D);
                store_row(batch_.dq, batch_.dq_rope, batch_.Dr, n, first + r, dq.data(), batch_.D);
            }
            // dk[j] = Σ_i dz(i,j) · query[i]        dv[j] = Σ_i R(i,j) · dy[i]
            // Each row walks its own list of visible columns; `next` is how far it has come.
            std::vector<std::size_t> next(static_cast<std::size_t>(count), 0);
            for (std::int64_t j = 0; j < batch_.S2; ++j) {
                for (std::int64_t r = 0; r < count; ++r) {
                    const std::vector<std::int64_t>& seen = columns(r);
                    std::size_t& at = next[static_cast<std::size_t>(r)];
                    if (at == seen.size() || seen[at] != j) continue;
                    ++at;
                    add(dk.row(j), dz.row(r)[j], query_.row(r), batch_.D);
                    add(dv.row(j), R(r)[j], dy.row(r), batch_.Dv);
                }
            }
        });
        for (std::int64_t j = 0; j < batch_.S2; ++j) {
            round(dk.row(j), batch_.D);
            round(dv.row(j), batch_.Dv);
            store_row(batch_.dk, batch_.dk_rope, batch_.Dr, kv_head_, j, dk.row(j), batch_.D);
            store_row(batch_.dv, kv_head_, j, dv.row(j), batch_.Dv);
        }
    }

  private:
    struct Row {
        Real max = 0;
        Real sum = 0;
    };

    // visit(n, first row, rows) over the query heads of the group and their blocks of rows.
    template <class Visit>
    void each_block(Visit visit) {
        for (std::int64_t n = kv_head_ * batch_.G; n < (kv_head_ + 1) * batch_.G; ++n) {
            for (std::int64_t first = 0; first < batch_.S1; first += rows_at_once_) {
                visit(n, first, std::min(rows_at_once_, batch_.S1 - first));
            }
        }
    }

    // raw(i,j), x(i,j), cap'(i,j), and the columns each row sees.
    void scores(const Matrix<Real>& key_turned, std::int64_t n, std::int64_t first, std::int64_t count) {
        load(batch_.query, batch_.query_rope, batch_.Dr, n, first, count, query_);
        dot_products(query_, count, key_turned, x_);
        for (std::int64_t r = 0; r < count; ++r) {
            const std::int64_t i = first + r;
            std::vector<std::int64_t>& seen = columns_[static_cast<std::size_t>(r)];
            seen.clear();
            for (std::int64_t j = 0; j < batch_.S2; ++j) {
                if (visible_(n, i, j)) seen.push_back(j);
            }
            Real* x = x_.row(r);
            if (softcap_ > 0) {
                for (const std::int64_t j : seen) {
                    const Real t = std::tanh(evaluation_.step(evaluation_.step(x[j]) * scale_) / softcap_);
                    x[j] = evaluation_.step(softcap_ * t);
                    cap_slope_.row(r)[j] = Real{1} - t * t;
                }
            } else {
                for (const std::int64_t j : seen) x[j] = evaluation_.step(evaluation_.step(x[j]) * scale_);
            }
            if (batch_.bias.present()) add_bias(n, i, x, seen);
        }
    }

    // x(i,j) += weight(i,j) · pse[…];  a pair whose element is −∞ is not seen.
    void add_bias(std::int64_t n, std::int64_t i, Real* x, std::vector<std::int64_t>& seen) {
        const auto hidden = [&](std::int64_t j) {
            const BiasTerm term = bias_term(batch_, batch_.bias.stride, n, i, j);
            const double element = pse_element(batch_, term);
            if (hides(batch_.bias, element)) return true;
            const Real bias = static_cast<Real>(term.weight) * static_cast<Real>(element);
            x[j] = evaluation_.step(x[j] + evaluation_.as(batch_.bias.dtype, bias));
            return false;
        };
        std::erase_if(seen, hidden);
    }

    Real sink(std::int64_t n) const {
        const HeadVector& sinks = batch_.sink;
        return static_cast<Real>(load_scalar(sinks.data + n * sinks.stride * size_of(sinks.dtype), sinks.dtype));
    }

    // max_i and sum_i. A NaN among the scores is the maximum. A row that sees nothing: ∓FLT_MAX, or the sink alone.
    Row statistics(std::int64_t n, std::int64_t r) {
        constexpr Real none = static_cast<Real>(std::numeric_limits<float>::max());
        const Real* x = x_.row(r);
        Row row;
        row.max = batch_.sink.present ? sink(n) : -std::numeric_limits<Real>::infinity();
        if (columns(r).empty()) return batch_.sink.present ? Row{row.max, 1} : Row{-none, none};
        for (const std::int64_t j : columns(r)) row.max = x[j] > row.max || std::isnan(x[j]) ? x[j] : row.max;
        if (batch_.sink.present) row.sum = std::exp(sink(n) - row.max);
        for (const std::int64_t j : columns(r)) row.sum += std::exp(x[j] - row.max);
        return row;
    }

    Row given_statistics(std::int64_t n, std::int64_t i) const {
        return {load_statistic<Real>(batch_.softmax_max, n, i), load_statistic<Real>(batch_.softmax_sum, n, i)};
    }

    // P(i,j) = exp(x(i,j) − max_i) / sum_i;  R(i,j) = P(i,j) · keep(i,j) / keep_prob, then quantised.
    void weights(std::int64_t n, std::int64_t i, std::int64_t r, const Row& row) {
        const Real* x = x_.row(r);
        Real* P = P_.row(r);
        for (const std::int64_t j : columns(r)) P[j] = evaluation_.step(std::exp(x[j] - row.max) / row.sum);
        if (R_.rows == 0) return;
        Real* weight = R_.row(r);
        if (dropout_) dropout_->row(n, i, keep_.row(r));
        for (const std::int64_t j : columns(r)) {
            weight[j] = dropped(r, P[j], j);
            if (quantised_) weight[j] = static_cast<Real>(to_fp8(static_cast<double>(weight[j]), batch_.dtype));
        }
    }

    // value · keep(i,j) / keep_prob
    Real dropped(std::int64_t r, Real value, std::int64_t j) const {
        if (!dropout_) return value;
        return keep_.row(r)[j] != 0 ? evaluation_.step(value / keep_prob_) : Real{0};
    }

    const Real* R(std::int64_t r) const { return R_.rows == 0 ? P_.row(r) : R_.row(r); }

    // Δ_i − dlse_i
    Real delta_of(std::int64_t n, std::int64_t i, std::int64_t r, const Real* dy, const Real* out, const Real* dR) {
        Real delta = 0;
        if (out != nullptr) {
            for (std::int64_t c = 0; c < batch_.Dv; ++c) delta += dy[c] * out[c];
        } else {
            for (const std::int64_t j : columns(r)) delta += R(r)[j] * dR[j];
        }
        return batch_.dlse.wanted ? delta - load_statistic<Real>(batch_.dlse, n, i) : delta;
    }

    // The same of a row that sees no key. Its attention_out is 0, and its dy, for which nobody asked, may be NaN.
    Real delta_of_unseeing(std::int64_t n, std::int64_t i, const Real* dy, const Real* out) const {
        Real delta = 0;
        for (std::int64_t c = 0; out != nullptr && c < batch_.Dv; ++c) {
            if (out[c] != 0) delta += dy[c] * out[c];
        }
        return batch_.dlse.wanted ? delta - load_statistic<Real>(batch_.dlse, n, i) : delta;
    }

    // dx(i,j) = P(i,j) · (dP(i,j) − (Δ_i − dlse_i)), added to dpse;  of dz all but the factor scale
    void gradient_of_scores(std::int64_t n, std::int64_t i, std::int64_t r, Real delta, const Real* dR, Real* dz) {
        const Real* P = P_.row(r);
        for (const std::int64_t j : columns(r)) {
            const Real dx = P[j] * (dropped(r, dR[j], j) - delta);
            if (batch_.dpse.wanted) add_to_dpse(batch_, n, i, j, evaluation_.step(dx));
            dz[j] = softcap_ > 0 ? cap_slope_.row(r)[j] * dx : dx;
        }
    }

    void gradient_of_sink(std::int64_t n, const Row& row, Real delta) {
        if (!batch_.dsink.wanted) return;
        add_to(batch_.dsink, n * batch_.dsink.stride.n, -(std::exp(sink(n) - row.max) / row.sum * delta));
    }

    // dz(i,j) = scale · (cap'(i,j) · dx(i,j)), the bracket quantised before
    void finish_dz(std::int64_t count, Matrix<Real>& dz) {
        if (quantised_) quantise_blocks(dz, count, columns_, batch_.dtype);
        for (std::int64_t r = 0; r < count; ++r) {
            for (const std::int64_t j : columns(r)) dz.row(r)[j] = evaluation_.step(scale_ * dz.row(r)[j]);
        }
    }

    void round(Real* row, std::int64_t columns) const {
        for (std::int64_t c = 0; c < columns; ++c) row[c] = evaluation_.step(row[c]);
    }

    [[nodiscard]] const std::vector<std::int64_t>& columns(std::int64_t r) const {
        return columns_[static_cast<std::size_t>(r)];
    }

    const Batch& batch_;
    Evaluation evaluation_;
    Visibility visible_;
    std::int64_t kv_head_;
    bool quantised_;
    std::int64_t rows_at_once_;
    Real scale_;
    Real softcap_;
    Real keep_prob_;
    Matrix<Real> key_;
    Matrix<Real> value_;
    Matrix<Real> query_;  // of the block of rows at hand, like all below
    Matrix<Real> x_;
    Matrix<Real> P_;
    Matrix<Real> R_;          // only where it differs from P
    Matrix<Real> cap_slope_;  // only with a soft cap
    Matrix<std::uint8_t> keep_;
    std::optional<Keep> dropout_;
    std::vector<std::vector<std::int64_t>> columns_;
};

}  // namespace fascore::reference
