// SPDX-License-Identifier: Apache-2.0
//
// Implementation of the owning test tensors: where elements lie, how they are shown, what surrounds them.
#include "support/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "fascore/info.h"

namespace fascore::test {
namespace {

constexpr std::byte canary_byte{0xA5};
constexpr std::byte poison_byte{0xFF};

template <typename Visit>
void for_each_element(const Extents& extents, Visit&& visit) {
    for (std::int64_t b = 0; b < extents.b; ++b) {
        for (std::int64_t n = 0; n < extents.n; ++n) {
            for (std::int64_t s = 0; s < extents.s; ++s) {
                for (std::int64_t d = 0; d < extents.d; ++d) visit(b, n, s, d);
            }
        }
    }
}

/// Elements that a tensor with these steps spans below and above its origin.
struct Span {
    std::int64_t below = 0;
    std::int64_t above = 0;  ///< exclusive
};

Span span_of(const Extents& extents, const Steps& steps) noexcept {
    if (extents.count() == 0) return {};
    Span span{0, 1};
    const auto add = [&span](std::int64_t extent, std::int64_t step) {
        const std::int64_t reach = (extent - 1) * step;
        (reach < 0 ? span.below : span.above) += reach < 0 ? -reach : reach;
    };
    add(extents.b, steps.b);
    add(extents.n, steps.n);
    add(extents.s, steps.s);
    add(extents.d, steps.d);
    return span;
}

std::size_t bytes_of(DType dtype, std::int64_t elements) noexcept {
    return static_cast<std::size_t>(elements * size_of(dtype));
}

/// Row-major steps for a tensor whose row is `row` elements apart from the next and whose column step is `column`.
Steps wide_steps(Form form, const Extents& e, std::int64_t column, std::int64_t row) noexcept {
    const std::int64_t head = e.d * column;  // fused layouts: heads lie side by side inside a row
    switch (form) {
        case Form::BNSD:
        case Form::BNS:
        case Form::SS: return {e.n * e.s * row, e.s * row, row, column};
        case Form::BSND: return {e.s * e.n * row, row, e.n * row, column};
        case Form::BSH: {
            const std::int64_t wide = e.n * head + (row - head);
            return {e.s * wide, head, wide, column};
        }
        case Form::SBH: {
            const std::int64_t wide = e.n * head + (row - head);
            return {wide, head, e.b * wide, column};
        }
    }
    return {};
}

}  // namespace

Form form_of(Layout layout) noexcept {
    switch (layout) {
        case Layout::BSND: return Form::BSND;
        case Layout::BSH: return Form::BSH;
        case Layout::SBH: return Form::SBH;
        default: return Form::BNSD;
    }
}

const char* name(Arrangement arrangement) noexcept {
    switch (arrangement) {
        case Arrangement::packed: return "packed";
        case Arrangement::padded_rows: return "padded_rows";
        case Arrangement::second_rows: return "second_rows";
        case Arrangement::reversed_rows: return "reversed_rows";
        case Arrangement::misaligned: return "misaligned";
        case Arrangement::column_slice: return "column_slice";
        case Arrangement::strided_columns: return "strided_columns";
    }
    return "?";
}

const char* name(Form form) noexcept {
    constexpr const char* names[] = {"BNSD", "BSND", "BSH", "SBH", "BNS", "SS"};
    return names[static_cast<std::size_t>(form)];
}

std::shared_ptr<Memory> Memory::heap(std::size_t bytes, std::size_t canary) {
    std::shared_ptr<Memory> memory(new Memory);
    memory->heap_.assign(bytes + 2 * canary, canary_byte);
    memory->data_ = memory->heap_.data() + canary;
    memory->size_ = bytes;
    memory->canary_ = canary;
    return memory;
}

std::shared_ptr<Memory> Memory::reserved(std::size_t bytes) {
    void* where = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (where == MAP_FAILED) return nullptr;
    std::shared_ptr<Memory> memory(new Memory);
    memory->mapping_ = where;
    memory->mapping_bytes_ = bytes;
    memory->data_ = static_cast<std::byte*>(where);
    memory->size_ = bytes;
    return memory;
}

std::shared_ptr<Memory> Memory::fenced(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t usable = (bytes + page - 1) / page * page;
    void* where = mmap(nullptr, usable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (where == MAP_FAILED) return nullptr;
    std::shared_ptr<Memory> memory(new Memory);
    memory->mapping_ = where;
    memory->mapping_bytes_ = usable + page;
    memory->data_ = static_cast<std::byte*>(where) + (usable - bytes);
    memory->size_ = bytes;
    mprotect(static_cast<std::byte*>(where) + usable, page, PROT_NONE);
    return memory;
}

Memory::~Memory() {
    if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

bool Memory::canaries_intact() const noexcept {
    const auto intact = [](std::byte value) { return value == canary_byte; };
    const auto canary = static_cast<std::ptrdiff_t>(canary_);
    return std::all_of(heap_.begin(), heap_.begin() + canary, intact) &&
           std::all_of(heap_.end() - canary, heap_.end(), intact);
}

Steps packed_steps(Form form, const Extents& extents) noexcept { return wide_steps(form, extents, 1, extents.d); }

Tensor::Tensor(DType dtype, Form form, Extents extents, Steps steps)
    : dtype_(dtype), form_(form), extents_(extents), steps_(steps) {
    const Span span = span_of(extents, steps);
    memory_ = Memory::heap(bytes_of(dtype, span.below + span.above));
    origin_ = span.below;
    poison();
}

Tensor::Tensor(DType dtype, Form form, Extents extents, Steps steps, std::shared_ptr<Memory> memory,
               std::int64_t origin)
    : dtype_(dtype), form_(form), extents_(extents), steps_(steps), origin_(origin), memory_(std::move(memory)) {}

Tensor::Tensor(DType dtype, Form form, Extents extents, Arrangement arrangement, std::size_t canary)
    : dtype_(dtype), form_(form), extents_(extents), steps_(packed_steps(form, extents)) {
    std::int64_t lead = 0;  // elements in front of the lowest one
    switch (arrangement) {
        case Arrangement::packed: break;
        case Arrangement::padded_rows: steps_ = wide_steps(form, extents, 1, extents.d + 3); break;
        case Arrangement::second_rows:
            // Twice as many rows, every second one taken: all steps that step over rows double with them.
            steps_ = packed_steps(form, {extents.b, extents.n, 2 * extents.s, extents.d});
            steps_.s *= 2;
            break;
        case Arrangement::reversed_rows: steps_.s = -steps_.s; break;
        case Arrangement::misaligned: lead = 1; break;
        case Arrangement::column_slice:
            steps_ = wide_steps(form, extents, 1, 2 * extents.d + 5);
            lead = 2;
            break;
        case Arrangement::strided_columns: steps_ = wide_steps(form, extents, 2, 2 * extents.d); break;
    }
    const Span span = span_of(extents, steps_);
    memory_ = Memory::heap(bytes_of(dtype, lead + span.below + span.above), canary);
    origin_ = lead + span.below;
    poison();
}

ConstTensorView Tensor::view() const noexcept {
    ConstTensorView view;
    if (!present()) return view;
    view.dtype = dtype_;
    view.data = address(0, 0, 0, 0);
    const auto axis = [&view](std::int64_t extent, std::int64_t step) {
        view.shape[static_cast<std::size_t>(view.rank)] = extent;
        view.stride[static_cast<std::size_t>(view.rank)] = step;
        ++view.rank;
    };
    switch (form_) {
        case Form::BNSD:
            axis(extents_.b, steps_.b), axis(extents_.n, steps_.n), axis(extents_.s, steps_.s);
            axis(extents_.d, steps_.d);
            break;
        case Form::BSND:
            axis(extents_.b, steps_.b), axis(extents_.s, steps_.s), axis(extents_.n, steps_.n);
            axis(extents_.d, steps_.d);
            break;
        case Form::BSH:
            axis(extents_.b, steps_.b), axis(extents_.s, steps_.s), axis(extents_.n * extents_.d, steps_.d);
            break;
        case Form::SBH:
            axis(extents_.s, steps_.s), axis(extents_.b, steps_.b), axis(extents_.n * extents_.d, steps_.d);
            break;
        case Form::BNS: axis(extents_.b, steps_.b), axis(extents_.n, steps_.n), axis(extents_.s, steps_.s); break;
        case Form::SS: axis(extents_.s, steps_.s), axis(extents_.d, steps_.d); break;
    }
    return view;
}

TensorView Tensor::out() noexcept {
    TensorView view;
    const ConstTensorView source = this->view();
    static_cast<TensorDims&>(view) = source;
    if (present()) view.data = address(0, 0, 0, 0);
    return view;
}

std::byte* Tensor::address(std::int64_t b, std::int64_t n, std::int64_t s, std::int64_t d) const noexcept {
    return memory_->data() + size_of(dtype_) * (origin_ + b * steps_.b + n * steps_.n + s * steps_.s + d * steps_.d);
}

double Tensor::get(std::int64_t b, std::int64_t n, std::int64_t s, std::int64_t d) const noexcept {
    return load_element(address(b, n, s, d), dtype_);
}

void Tensor::set(std::int64_t b, std::int64_t n, std::int64_t s, std::int64_t d, double value) noexcept {
    store_element(address(b, n, s, d), dtype_, value);
}

Tensor& Tensor::fill(const std::function<double(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& value) {
    for_each_element(extents_, [&](auto b, auto n, auto s, auto d) { set(b, n, s, d, value(b, n, s, d)); });
    return *this;
}

Tensor& Tensor::fill(double value) {
    for_each_element(extents_, [&](auto b, auto n, auto s, auto d) { set(b, n, s, d, value); });
    return *this;
}

Tensor& Tensor::fill_normal(Random& random, double size) {
    for_each_element(extents_, [&](auto b, auto n, auto s, auto d) { set(b, n, s, d, size * random.normal()); });
    return *this;
}

Tensor& Tensor::fill_uniform(Random& random, double low, double high) {
    for_each_element(extents_, [&](auto b, auto n, auto s, auto d) { set(b, n, s, d, random.uniform(low, high)); });
    return *this;
}

Tensor& Tensor::poison() {
    const auto bytes = static_cast<std::size_t>(size_of(dtype_));
    for_each_element(extents_,
                     [&](auto b, auto n, auto s, auto d) { std::fill_n(address(b, n, s, d), bytes, poison_byte); });
    return *this;
}

std::vector<double> Tensor::values() const {
    std::vector<double> values;
    values.reserve(static_cast<std::size_t>(extents_.count()));
    for_each_element(extents_, [&](auto b, auto n, auto s, auto d) { values.push_back(get(b, n, s, d)); });
    return values;
}

bool Tensor::all_finite() const {
    const std::vector<double> all = values();
    return std::all_of(all.begin(), all.end(), [](double value) { return std::isfinite(value); });
}

bool Tensor::all_zero() const {
    const std::vector<double> all = values();
    return std::all_of(all.begin(), all.end(), [](double value) { return value == 0.0; });
}

double Tensor::max_abs() const {
    double largest = 0.0;
    for (const double value : values()) largest = std::max(largest, std::abs(value));
    return largest;
}

bool Tensor::untouched_outside() const {
    if (!present()) return true;
    std::vector<bool> owned(memory_->size(), false);
    const auto bytes = static_cast<std::size_t>(size_of(dtype_));
    for_each_element(extents_, [&](auto b, auto n, auto s, auto d) {
        const auto first = static_cast<std::size_t>(address(b, n, s, d) - memory_->data());
        for (std::size_t at = first; at < first + bytes; ++at) owned[at] = true;
    });
    for (std::size_t at = 0; at < owned.size(); ++at) {
        if (!owned[at] && memory_->data()[at] != canary_byte) return false;
    }
    return memory_->canaries_intact();
}

bool Tensor::still_poisoned() const {
    const auto bytes = static_cast<std::size_t>(size_of(dtype_));
    bool poisoned = true;
    for_each_element(extents_, [&](auto b, auto n, auto s, auto d) {
        const std::byte* element = address(b, n, s, d);
        for (std::size_t at = 0; at < bytes; ++at) poisoned = poisoned && element[at] == poison_byte;
    });
    return poisoned;
}

void Tensor::copy_into(Tensor& target) const {
    const auto bytes = static_cast<std::size_t>(size_of(dtype_));
    for_each_element(extents_, [&](auto b, auto n, auto s, auto d) {
        std::memcpy(target.address(b, n, s, d), address(b, n, s, d), bytes);
    });
}

Tensor Tensor::rearranged(Form form, Arrangement arrangement) const {
    Tensor target(dtype_, form, extents_, arrangement);
    copy_into(target);
    return target;
}

Tensor Tensor::copied_to(Form form, Steps steps) const {
    Tensor target(dtype_, form, extents_, steps);
    copy_into(target);
    return target;
}

Tensor Tensor::rows(std::int64_t first, std::int64_t count) const {
    Tensor part = *this;
    part.origin_ += first * steps_.s;
    part.extents_.s = count;
    return part;
}

Tensor Tensor::heads(std::int64_t first, std::int64_t count) const {
    Tensor part = *this;
    part.origin_ += first * steps_.n;
    part.extents_.n = count;
    return part;
}

Tensor Tensor::batches(std::int64_t first, std::int64_t count) const {
    Tensor part = *this;
    part.origin_ += first * steps_.b;
    part.extents_.b = count;
    return part;
}

Tensor Tensor::shown_as(Form form) const {
    Tensor same = *this;
    same.form_ = form;
    return same;
}

bool same_bits(const Tensor& left, const Tensor& right) { return first_difference(left, right).empty(); }

std::string first_difference(const Tensor& left, const Tensor& right) {
    if (left.present() != right.present()) return "one of the two is absent";
    if (!left.present()) return "";
    if (left.dtype() != right.dtype() || !(left.extents() == right.extents())) return "different dtype or extents";
    const auto bytes = static_cast<std::size_t>(size_of(left.dtype()));
    std::int64_t differing = 0;
    std::ostringstream where;
    for_each_element(left.extents(), [&](auto b, auto n, auto s, auto d) {
        if (std::memcmp(left.address(b, n, s, d), right.address(b, n, s, d), bytes) == 0) return;
        if (differing++ == 0) {
            where.precision(17);
            where << "first at (b " << b << ", n " << n << ", s " << s << ", d " << d << "): " << left.get(b, n, s, d)
                  << " against " << right.get(b, n, s, d);
        }
    });
    if (differing == 0) return "";
    where << "; " << differing << " of " << left.extents().count() << " elements differ";
    return where.str();
}

}  // namespace fascore::test
