// SPDX-License-Identifier: Apache-2.0
#pragma once

/// FASCORE_EXPORT marks the public symbols. Everything else in the library is hidden.
#if defined(__GNUC__)
#define FASCORE_EXPORT __attribute__((visibility("default")))
#else
#define FASCORE_EXPORT
#endif
