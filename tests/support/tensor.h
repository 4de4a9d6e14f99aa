// SPDX-License-Identifier: Apache-2.0
//
// Tensors that own their memory, for tests. Every tensor here has four logical axes (b, n, s, d), whatever its layout:
//
//   element (b, n, s, d) lies at element  origin + b·step.b + n·step.n + s·step.s + d·step.d  of its memory
//
// and a Form says how it is shown to the library. So a test writes values by meaning, and the same values can be laid
// out in every way the library accepts (I8: same values, other strides, same bits).
//
//   memory   [ canary | gap  row  gap  row  gap … | canary ]       gaps and canaries hold 0xA5
//                            ^^^      ^^^                          elements start as 0xFF bytes: NaN in every dtype
//
// After a call, untouched_outside() says whether anything but the elements was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fascore/attention.h"
#include "fascore/tensor.h"
#include "support/random.h"

namespace fascore::test {

struct Extents {
    std::int64_t b = 1;
    std::int64_t n = 1;
    std::int64_t s = 1;
    std::int64_t d = 1;
    [[nodiscard]] std::int64_t count() const noexcept { return b * n * s * d; }
    bool operator==(const Extents&) const = default;
};

struct Steps {
    std::int64_t b = 0;
    std::int64_t n = 0;
    std::int64_t s = 0;
    std::int64_t d = 0;
};

/// How the four axes are shown to the library. BNS drops the last axis (statistics); SS keeps only (s, d) (a mask).
enum class Form : std::uint8_t { BNSD, BSND, BSH, SBH, BNS, SS };

[[nodiscard]] Form form_of(Layout layout) noexcept;

/// Ways to lie in memory that are not plain row-major; each hurts a different assumption.
enum class Arrangement : std::uint8_t {
    packed,           ///< row-major in the form's own order
    padded_rows,      ///< 3 elements between rows
    second_rows,      ///< every second row of a longer tensor
    reversed_rows,    ///< negative row step
    misaligned,       ///< starts one element into its memory
    column_slice,     ///< a slice of rows that are 2·d + 5 wide
    strided_columns,  ///< column step 2
};

inline constexpr Arrangement all_arrangements[] = {
    Arrangement::packed,     Arrangement::padded_rows,  Arrangement::second_rows,    Arrangement::reversed_rows,
    Arrangement::misaligned, Arrangement::column_slice, Arrangement::strided_columns};

[[nodiscard]] const char* name(Arrangement arrangement) noexcept;
[[nodiscard]] const char* name(Form form) noexcept;

/// Bytes with a known pattern around them.
class Memory {
  public:
    /// `bytes` on the heap between two canaries of `canary` bytes; everything holds 0xA5.
    [[nodiscard]] static std::shared_ptr<Memory> heap(std::size_t bytes, std::size_t canary = 256);
    /// Address space only: pages appear (zeroed) when touched. Empty pointer when the system refuses.
    [[nodiscard]] static std::shared_ptr<Memory> reserved(std::size_t bytes);
    /// Ends exactly at a page that may not be touched.
    [[nodiscard]] static std::shared_ptr<Memory> fenced(std::size_t bytes);

    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory();

    [[nodiscard]] std::byte* data() noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// False when a canary was written (heap only).
    [[nodiscard]] bool canaries_intact() const noexcept;

  private:
    Memory() = default;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t canary_ = 0;
    std::vector<std::byte> heap_;
    void* mapping_ = nullptr;
    std::size_t mapping_bytes_ = 0;
};

class Tensor {
  public:
    /// Absent: its view has rank 0.
    Tensor() = default;
    /// Fresh memory, elements 0xFF (NaN).
    Tensor(DType dtype, Form form, Extents extents, Arrangement arrangement = Arrangement::packed,
           std::size_t canary = 256);
    Tensor(DType dtype, Form form, Extents extents, Steps steps);
    /// A window into memory that others share; nothing is written.
    Tensor(DType dtype, Form form, Extents extents, Steps steps, std::shared_ptr<Memory> memory, std::int64_t origin);

    [[nodiscard]] bool present() const noexcept { return memory_ != nullptr; }
    [[nodiscard]] DType dtype() const noexcept { return dtype_; }
    [[nodiscard]] Form form() const noexcept { return form_; }
    [[nodiscard]] const Extents& extents() const noexcept { return extents_; }
    [[nodiscard]] const Steps& steps() const noexcept { return steps_; }
    [[nodiscard]] std::int64_t origin() const noexcept { return origin_; }
    [[nodiscard]] const std::shared_ptr<Memory>& memory() const noexcept { return memory_; }

    [[nodiscard]] ConstTensorView view() const noexcept;
    [[nodiscard]] TensorView out() noexcept;

    [[nodiscard]] std::byte* address(std::int64_t b, std::int64_t n, std::int64_t s, std::int64_t d) const noexcept;
    [[nodiscard]] double get(std::int64_t b, std::int64_t n, std::int64_t s, std::int64_t d) const noexcept;
    void set(std::int64_t b, std::int64_t n, std::int64_t s, std::int64_t d, double value) noexcept;

    /// Every element from a function of its place, in the order b, n, s, d (so that a generator gives the same values
    /// in every layout).
    Tensor& fill(const std::function<double(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& value);
    Tensor& fill(double value);
    Tensor& fill_normal(Random& random, double size = 1.0);
    Tensor& fill_uniform(Random& random, double low, double high);
    /// Every element's bytes to 0xFF.
    Tensor& poison();

    /// The elements as doubles, in the order b, n, s, d.
    [[nodiscard]] std::vector<double> values() const;
    [[nodiscard]] bool all_finite() const;
    /// Every element is +0 or −0.
    [[nodiscard]] bool all_zero() const;
    [[nodiscard]] double max_abs() const;
    /// False when a byte that belongs to no element changed since the tensor was made.
    [[nodiscard]] bool untouched_outside() const;
    /// True while every element still is as poison() left it.
    [[nodiscard]] bool still_poisoned() const;

    /// The same bits somewhere else.
    [[nodiscard]] Tensor rearranged(Form form, Arrangement arrangement) const;
    [[nodiscard]] Tensor copied_to(Form form, Steps steps) const;
    void copy_into(Tensor& target) const;

    /// A tensor over the same memory: rows first … first + count − 1, or likewise batches, heads, columns.
    [[nodiscard]] Tensor rows(std::int64_t first, std::int64_t count) const;
    [[nodiscard]] Tensor heads(std::int64_t first, std::int64_t count) const;
    [[nodiscard]] Tensor batches(std::int64_t first, std::int64_t count) const;
    /// The same elements shown in another form.
    [[nodiscard]] Tensor shown_as(Form form) const;

  private:
    DType dtype_ = DType::f32;
    Form form_ = Form::BNSD;
    Extents extents_{0, 0, 0, 0};
    Steps steps_;
    std::int64_t origin_ = 0;
    std::shared_ptr<Memory> memory_;
};

/// Row-major steps in the form's own order.
[[nodiscard]] Steps packed_steps(Form form, const Extents& extents) noexcept;

/// Same extents and the same bits in every element, wherever they lie.
[[nodiscard]] bool same_bits(const Tensor& left, const Tensor& right);

/// Text that says where the first difference is ("" when there is none).
[[nodiscard]] std::string first_difference(const Tensor& left, const Tensor& right);

}  // namespace fascore::test
