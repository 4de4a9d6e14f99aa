// SPDX-License-Identifier: Apache-2.0
//
// Names of the public enums, as messages, the command line and files spell them. Here and not in api/, because the
// refusals of problem/ use them.
#include "fascore/attention.h"
#include "fascore/status.h"
#include "fascore/tensor.h"

namespace fascore {

// Every switch lists all values, so that the compiler points here when one is added; what falls through is a value
// cast from a number, and validate.cpp prints that number.

std::string_view name(StatusCode code) noexcept {
    switch (code) {
        case StatusCode::ok: return "ok";
        case StatusCode::invalid_argument: return "invalid_argument";
        case StatusCode::workspace_too_small: return "workspace_too_small";
        case StatusCode::out_of_memory: return "out_of_memory";
        case StatusCode::unavailable: return "unavailable";
        case StatusCode::cancelled: return "cancelled";
        case StatusCode::internal_error: return "internal_error";
    }
    return "unknown";
}

std::string_view name(Layout layout) noexcept {
    switch (layout) {
        case Layout::BNSD: return "BNSD";
        case Layout::BSND: return "BSND";
        case Layout::BSH: return "BSH";
        case Layout::SBH: return "SBH";
        case Layout::TND: return "TND";
    }
    return "unknown";
}

std::string_view name(DType dtype) noexcept {
    switch (dtype) {
        case DType::f64: return "f64";
        case DType::f32: return "f32";
        case DType::bf16: return "bf16";
        case DType::f16: return "f16";
        case DType::boolean: return "bool";
        case DType::u8: return "u8";
        case DType::f8e4m3: return "f8e4m3";
        case DType::f8e5m2: return "f8e5m2";
    }
    return "unknown";
}

std::int64_t size_of(DType dtype) noexcept {
    switch (dtype) {
        case DType::f64: return 8;
        case DType::f32: return 4;
        case DType::bf16:
        case DType::f16: return 2;
        case DType::boolean:
        case DType::u8:
        case DType::f8e4m3:
        case DType::f8e5m2: return 1;
    }
    return 0;
}

}  // namespace fascore
