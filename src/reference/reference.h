// SPDX-License-Identifier: Apache-2.0
//
// The operator straight from its formulas: see include/fascore/reference.h for what it promises and group.h for the
// formulas. Shares with the engine the Problem (shapes, strides, pointers) and dtype conversion, nothing else.
#pragma once

#include "fascore/reference.h"
#include "problem/problem.h"

namespace fascore::reference {

/// Writes every wanted output of a valid problem made for Audience::reference. Throws std::bad_alloc (and nothing
/// else) when memory runs out.
void forward(const Problem& problem, Evaluation evaluation);
void backward(const Problem& problem, Evaluation evaluation);

}  // namespace fascore::reference
