// SPDX-License-Identifier: Apache-2.0
//
// The formulas, row by row, for one head; each line of the gradient stands under the line of the forward it
// differentiates.
//
//   raw(i,j)  = Σ_d query[i,d] · key[j,d]                dq[i] = Σ_j dx(i,j) · key[j]    dk[j] = Σ_i dx(i,j) · query[i]
//   x(i,j)    = raw(i,j) · scale                         dx(i,j) = scale · dS(i,j)
//   P(i,j)    = exp(x(i,j) − max_i) / sum_i              dS(i,j) = P(i,j) · (dP(i,j) − Δ_i),  Δ_i = dy[i]·out[i]
//                                                                                              or Σ_j P(i,j) · dP(i,j)
//   out[i]    = Σ_j P(i,j) · value[j]                    dP(i,j) = dy[i] · value[j]      dv[j] = Σ_i P(i,j) · dy[i]
//
// Sums over j run over the visible columns of row i only: a hidden pair is left out, never multiplied by zero, so
// whatever its key or value holds cannot reach a result. dk and dv also sum over the G query heads of a kv head.
//
// One source serves both evaluations; they differ in the type of the sums and in what happens to each finished step:
//
//              sums       each of raw, x, P, out, dP, dx, dq, dk, dv
//   exact      f64        kept
//   plain      f32        rounded to the dtype of the inputs (what a tensor of a framework holds)
//   plain f64  f64        kept
//
// Every sum is one chain in ascending order of its index: no reordering, no fusing. For speed the loops are turned so
// that the innermost one runs over independent sums (columns j of a row, columns d of a matrix), which a compiler may
// do several of at once without changing a bit; key and value are therefore also kept transposed. Rows are taken 16 at
// a time so that both matrices are read once per 16 rows; memory is O(S2) beyond the operands.
//
//   threads    one per (b, kv head), which shares nothing with another: same bits for any number
#include "reference/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/dtype.h"
#include "base/parallel.h"
#include "reference/visible.h"

namespace fascore::reference {

namespace {

constexpr std::int64_t rows_at_once = 16;
constexpr std::int64_t columns_at_once = 256;             // a strip of the transposed matrix that stays in cache
constexpr double empty_row = 3.40282346638528859812e+38;  // FLT_MAX: softmax_max is minus this, softmax_sum this

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

// ---- evaluations ---------------------------------------------------------------------------------------------------

struct Exact {
    using Real = double;
    explicit Exact(DType /*dtype*/) {}
    static double step(double value) { return value; }
};

struct Plain {
    using Real = float;
    explicit Plain(DType inputs) : dtype(inputs) {}
    [[nodiscard]] float step(float value) const {
        switch (dtype) {
            case DType::bf16: return bf16_to_f32(f32_to_bf16(value));
            case DType::f16: return f16_to_f32(f32_to_f16(value));
            default: return value;
        }
    }
    DType dtype;
};

// ---- matrices ------------------------------------------------------------------------------------------------------

// Row-major rows × columns.
template <class Real>
struct Matrix {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::vector<Real> elements;

    Matrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), elements(index(r * c), Real{0}) {}
    Real* row(std::int64_t r) { return elements.data() + r * columns; }
    const Real* row(std::int64_t r) const { return elements.data() + r * columns; }
    void zero() { std::fill(elements.begin(), elements.end(), Real{0}); }
};

// Rows [first, first + count) of head (b, n).
template <class Real>
void load(const Operand& operand, std::int64_t b, std::int64_t n, std::int64_t first, std::int64_t count,
          Matrix<Real>& into) {
    const std::int64_t bytes = size_of(operand.dtype);
    for (std::int64_t r = 0; r < count; ++r) {
        Real* row = into.row(r);
        for (std::int64_t d = 0; d < into.columns; ++d) {
            const Strides& stride = operand.stride;
            const std::int64_t offset = b * stride.b + n * stride.n + (first + r) * stride.s + d * stride.d;
            row[d] = static_cast<Real>(load_scalar(operand.data + offset * bytes, operand.dtype));
        }
    }
}

template <class Real>
Matrix<Real> transpose(const Matrix<Real>& matrix) {
    Matrix<Real> turned(matrix.columns, matrix.rows);
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
        for (std::int64_t c = 0; c < matrix.columns; ++c) turned.row(c)[r] = matrix.row(r)[c];
    }
    return turned;
}

// to[c] += factor · from[c]
template <class Real>
void add(Real* __restrict to, Real factor, const Real* __restrict from, std::int64_t columns) {
    for (std::int64_t c = 0; c < columns; ++c) to[c] += factor * from[c];
}

// The same four times, in the same order.
template <class Real>
void add4(Real* __restrict to, const Real* factor, const Real* __restrict from, std::int64_t row,
          std::int64_t columns) {
    const Real f0 = factor[0], f1 = factor[1], f2 = factor[2], f3 = factor[3];
    const Real* __restrict from1 = from + row;
    const Real* __restrict from2 = from1 + row;
    const Real* __restrict from3 = from2 + row;
    for (std::int64_t c = 0; c < columns; ++c) {
        to[c] = (((to[c] + f0 * from[c]) + f1 * from1[c]) + f2 * from2[c]) + f3 * from3[c];
    }
}

// products[r][j] = Σ_d rows[r][d] · turned[d][j], for every j: a sum for a hidden pair is computed and never used.
template <class Real>
void dot_products(const Matrix<Real>& rows, std::int64_t count, const Matrix<Real>& turned, Matrix<Real>& products) {
    const std::int64_t depth = turned.rows;
    for (std::int64_t j = 0; j < turned.columns; j += columns_at_once) {
        const std::int64_t width = std::min(columns_at_once, turned.columns - j);
        for (std::int64_t r = 0; r < count; ++r) {
            Real* sums = products.row(r) + j;
            std::fill(sums, sums + width, Real{0});
            std::int64_t d = 0;
            for (; d + 4 <= depth; d += 4) add4(sums, rows.row(r) + d, turned.row(d) + j, turned.columns, width);
            for (; d < depth; ++d) add(sums, rows.row(r)[d], turned.row(d) + j, width);
        }
    }
}

// ---- stores --------------------------------------------------------------------------------------------------------

template <class Real>
void store_row(const Result& result, std::int64_t b, std::int64_t n, std::int64_t s, const Real* row,
               std::int64_t columns) {
    if (!result.wanted) return;
    for (std::int64_t d = 0; d < columns; ++d) {
        const Strides& stride = result.stride;
        const std::int64_t offset = b * stride.b + n * stride.n + s * stride.s + d * stride.d;
        store_scalar(result.data + offset * size_of(result.dtype), result.dtype, static_cast<double>(row[d]));
    }
}

std::byte* statistic_at(const Statistic& statistic, std::int64_t b, std::int64_t n, std::int64_t i, std::int64_t copy) {
    const Strides& stride = statistic.stride;
    const std::int64_t offset = b * stride.b + n * stride.n + i * stride.s + copy * stride.d;
    return statistic.data + offset * size_of(statistic.dtype);
}

void store_statistic(const Statistic& statistic, std::int64_t b, std::int64_t n, std::int64_t i, double value) {
    if (!statistic.wanted) return;
    for (std::int64_t copy = 0; copy < statistic.copies; ++copy) {
        store_scalar(statistic_at(statistic, b, n, i, copy), statistic.dtype, value);
    }
}

void store_zeros(const Result& result, std::int64_t B, std::int64_t N, std::int64_t S, std::int64_t columns) {
    const std::vector<double> zeros(index(columns), 0.0);
    for (std::int64_t b = 0; b < B; ++b) {
        for (std::int64_t n = 0; n < N; ++n) {
            for (std::int64_t s = 0; s < S; ++s) store_row(result, b, n, s, zeros.data(), columns);
        }
    }
}

// ---- one kv head and its group of query heads -----------------------------------------------------------------------

template <class Evaluation>
class Group {
  public:
    using Real = typename Evaluation::Real;

    Group(const Problem& problem, std::int64_t b, std::int64_t kv_head)
        : problem_(problem),
          evaluation_(problem.dtype),
          b_(b),
          kv_head_(kv_head),
          scale_(static_cast<Real>(problem.scale)),
          key_(problem.S2, problem.D),
          value_(problem.S2, problem.Dv),
          query_(rows_at_once, problem.D),
          x_(rows_at_once, problem.S2),
          P_(rows_at_once, problem.S2),
          visible_(index(rows_at_once)) {
        load(problem.key, b, kv_head, 0, problem.S2, key_);
        load(problem.value, b, kv_head, 0, problem.S2, value_);
    }

    void forward() {
        const Matrix<Real> key_turned = transpose(key_);
        std::vector<Real> out(index(problem_.Dv));
        each_block([&](std::int64_t n, std::int64_t first, std::int64_t count) {
            scores(key_turned, n, first, count);
            for (std::int64_t r = 0; r < count; ++r) {
                const std::int64_t i = first + r;
                Row row = statistics(r);
                probabilities(r, row);
                // out[i] = Σ_j P(i,j) · value[j]
                std::fill(out.begin(), out.end(), Real{0});
                for (const std::int64_t j : columns(r)) add(out.data(), P_.row(r)[j], value_.row(j), problem_.Dv);
                round(out.data(), problem_.Dv);
                store_row(problem_.attention_out, b_, n, i, out.data(), problem_.Dv);
                const bool empty = columns(r).empty();
                store_statistic(problem_.softmax_max, b_, n, i, empty ? -empty_row : static_cast<double>(row.max));
                store_statistic(problem_.softmax_sum, b_, n, i, empty ? empty_row : static_cast<double>(row.sum));
            }
        });
    }

    void backward() {
        const Matrix<Real> key_turned = transpose(key_);
        const Matrix<Real> value_turned = transpose(value_);
        Matrix<Real> dy(rows_at_once, problem_.Dv);
        Matrix<Real> out(rows_at_once, problem_.Dv);
        Matrix<Real> dP(rows_at_once, problem_.S2);
        Matrix<Real> dx(rows_at_once, problem_.S2);
        Matrix<Real> dk(problem_.S2, problem_.D);
        Matrix<Real> dv(problem_.S2, problem_.Dv);
        std::vector<Real> dq(index(problem_.D));
        const bool out_given = problem_.attention_in.data != nullptr;
        each_block([&](std::int64_t n, std::int64_t first, std::int64_t count) {
            scores(key_turned, n, first, count);
            load(problem_.dy, b_, n, first, count, dy);
            if (out_given) load(problem_.attention_in, b_, n, first, count, out);
            dot_products(dy, count, value_turned, dP);
            for (std::int64_t r = 0; r < count; ++r) {
                const std::int64_t i = first + r;
                const Row row = problem_.softmax_max.wanted ? given_statistics(n, i) : statistics(r);
                probabilities(r, row);
                gradient_of_scores(r, dy.row(r), out_given ? out.row(r) : nullptr, dP.row(r), dx.row(r));
                // dq[i] = Σ_j dx(i,j) · key[j]
                std::fill(dq.begin(), dq.end(), Real{0});
                for (const std::int64_t j : columns(r)) add(dq.data(), dx.row(r)[j], key_.row(j), problem_.D);
                round(dq.data(), problem_.D);
                store_row(problem_.dq, b_, n, i, dq.data(), problem_.D);
            }
            // dk[j] = Σ_i dx(i,j) · query[i]        dv[j] = Σ_i P(i,j) · dy[i]
            // Each row walks its own list of visible columns; `next` is how far it has come.
            std::vector<std::size_t> next(index(count), 0);
            for (std::int64_t j = 0; j < problem_.S2; ++j) {
                for (std::int64_t r = 0; r < count; ++r) {
                    const std::vector<std::int64_t>& seen = columns(r);
                    std::size_t& at = next[index(r)];
                    if (at == seen.size() || seen[at] != j) continue;
                    ++at;
                    add(dk.row(j), dx.row(r)[j], query_.row(r), problem_.D);
                    add(dv.row(j), P_.row(r)[j], dy.row(r), problem_.Dv);
                }
            }
        });
        for (std::int64_t j = 0; j < problem_.S2; ++j) {
            round(dk.row(j), problem_.D);
            round(dv.row(j), problem_.Dv);
            store_row(problem_.dk, b_, kv_head_, j, dk.row(j), problem_.D);
            store_row(problem_.dv, b_, kv_head_, j, dv.row(j), problem_.Dv);
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
        for (std::int64_t n = kv_head_ * problem_.G; n < (kv_head_ + 1) * problem_.G; ++n) {
            for (std::int64_t first = 0; first < problem_.S1; first += rows_at_once) {
                visit(n, first, std::min(rows_at_once, problem_.S1 - first));
            }
        }
    }

    // raw(i,j) = Σ_d query[i,d] · key[j,d];  x(i,j) = raw(i,j) · scale;  and the columns each row sees.
    void scores(const Matrix<Real>& key_turned, std::int64_t n, std::int64_t first, std::int64_t count) {
        load(problem_.query, b_, n, first, count, query_);
        dot_products(query_, count, key_turned, x_);
        for (std::int64_t r = 0; r < count; ++r) {
            std::vector<std::int64_t>& seen = visible_[index(r)];
            seen.clear();
            for (std::int64_t j = 0; j < problem_.S2; ++j) {
                if (visible(problem_, b_, n, first + r, j)) seen.push_back(j);
            }
            Real* x = x_.row(r);
            for (const std::int64_t j : seen) x[j] = evaluation_.step(evaluation_.step(x[j]) * scale_);
        }
    }

    // max_i = max_j x(i,j);  sum_i = Σ_j exp(x(i,j) − max_i). A NaN among the scores is the maximum.
    Row statistics(std::int64_t r) {
        const Real* x = x_.row(r);
        Row row;
        row.max = -std::numeric_limits<Real>::infinity();
        for (const std::int64_t j : columns(r)) row.max = x[j] > row.max || std::isnan(x[j]) ? x[j] : row.max;
        for (const std::int64_t j : columns(r)) row.sum += std::exp(x[j] - row.max);
        return row;
    }

    Row given_statistics(std::int64_t n, std::int64_t i) const {
        const auto read = [&](const Statistic& statistic) {
            return static_cast<Real>(load_scalar(statistic_at(statistic, b_, n, i, 0), statistic.dtype));
        };
        return {read(problem_.softmax_max), read(problem_.softmax_sum)};
    }

    // P(i,j) = exp(x(i,j) − max_i) / sum_i
    void probabilities(std::int64_t r, const Row& row) {
        const Real* x = x_.row(r);
        for (const std::int64_t j : columns(r)) P_.row(r)[j] = evaluation_.step(std::exp(x[j] - row.max) / row.sum);
    }

    // dP(i,j) = dy[i] · value[j] comes unrounded;  dS(i,j) = P(i,j) · (dP(i,j) − Δ_i);  dx(i,j) = scale · dS(i,j)
    void gradient_of_scores(std::int64_t r, const Real* dy, const Real* out, Real* dP, Real* dx) {
        const Real* P = P_.row(r);
        for (const std::int64_t j : columns(r)) dP[j] = evaluation_.step(dP[j]);
        Real delta = 0;
        if (out != nullptr) {
            for (std::int64_t c = 0; c < problem_.Dv; ++c) delta += dy[c] * out[c];
        } else {
            for (const std::int64_t j : columns(r)) delta += P[j] * dP[j];
        }
        for (const std::int64_t j : columns(r)) dx[j] = evaluation_.step(scale_ * (P[j] * (dP[j] - delta)));
    }

    void round(Real* row, std::int64_t columns) const {
        for (std::int64_t c = 0; c < columns; ++c) row[c] = evaluation_.step(row[c]);
    }

    [[nodiscard]] const std::vector<std::int64_t>& columns(std::int64_t r) const { return visible_[index(r)]; }

    const Problem& problem_;
    Evaluation evaluation_;
    std::int64_t b_;
    std::int64_t kv_head_;
    Real scale_;
    Matrix<Real> key_;
    Matrix<Real> value_;
    Matrix<Real> query_;  // of the block of rows at hand, like all below
    Matrix<Real> x_;
    Matrix<Real> P_;
    std::vector<std::vector<std::int64_t>> visible_;
};

// ---- all groups ----------------------------------------------------------------------------------------------------

// work(b, kv head) for every pair, on as many threads as the machine has. The first exception is thrown on.
template <class Work>
void each_group(const Problem& problem, Work work) {
    const std::int64_t groups = problem.B * problem.N2;
    std::atomic<std::int64_t> next{0};
    std::mutex guard;
    std::exception_ptr failure;
    const auto take = [&]() noexcept {
        for (std::int64_t g = next.fetch_add(1); g < groups; g = next.fetch_add(1)) {
            try {
                work(g / problem.N2, g % problem.N2);
            } catch (...) {
                const std::lock_guard<std::mutex> lock(guard);
                failure = std::current_exception();
                next.store(groups);
            }
        }
    };
    std::vector<std::thread> helpers;
    try {
        for (std::int64_t t = 1; t < std::min<std::int64_t>(groups, hardware_threads()); ++t)
            helpers.emplace_back(take);
    } catch (...) {
        // No more threads to be had: those that started are enough.
    }
    take();
    for (std::thread& helper : helpers) helper.join();
    if (failure) std::rethrow_exception(failure);
}

// f64 inputs are evaluated in f64 either way.
bool in_f64(const Problem& problem, Evaluation evaluation) {
    return evaluation == Evaluation::exact || problem.dtype == DType::f64;
}

}  // namespace

void forward(const Problem& problem, Evaluation evaluation) {
    if (problem.empty()) {
        store_zeros(problem.attention_out, problem.B, problem.N1, problem.S1, problem.Dv);
        for (std::int64_t b = 0; b < problem.B; ++b) {
            for (std::int64_t n = 0; n < problem.N1; ++n) {
                for (std::int64_t i = 0; i < problem.S1; ++i) {
                    store_statistic(problem.softmax_max, b, n, i, 0.0);
                    store_statistic(problem.softmax_sum, b, n, i, 0.0);
                }
            }
        }
        return;
    }
    each_group(problem, [&](std::int64_t b, std::int64_t kv_head) {
        if (in_f64(problem, evaluation)) {
            Group<Exact>(problem, b, kv_head).forward();
        } else {
            Group<Plain>(problem, b, kv_head).forward();
        }
    });
}

void backward(const Problem& problem, Evaluation evaluation) {
    if (problem.empty()) {
        store_zeros(problem.dq, problem.B, problem.N1, problem.S1, problem.D);
        store_zeros(problem.dk, problem.B, problem.N2, problem.S2, problem.D);
        store_zeros(problem.dv, problem.B, problem.N2, problem.S2, problem.Dv);
        return;
    }
    each_group(problem, [&](std::int64_t b, std::int64_t kv_head) {
        if (in_f64(problem, evaluation)) {
            Group<Exact>(problem, b, kv_head).backward();
        } else {
            Group<Plain>(problem, b, kv_head).backward();
        }
    });
}

}  // namespace fascore::reference
