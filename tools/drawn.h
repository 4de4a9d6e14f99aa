// SPDX-License-Identifier: Apache-2.0
//
// Drawn problems: which tensors --shape and its companions ask for, and what is in them.
//
//   query key value dy, rope parts   standard normal, by the logical index (b, n, s, d): the same values in every
//   layout
//                                    (TND: as BNSD when all sequences are equally long), and in every dtype up to
//                                    rounding
//   8-bit                            the same values times 448 or 57344 over the largest of 128 rows of a head (rope
//                                    columns with them), rounded; d_scale_* is what undoes it
//   pse                              standard normal; slopes 1/(n + 1) or 1/((b + 1)(n + 1)); compressed: a line
//                                    −2^(−8(n + 1)/N1) a step left of the diagonal
//   atten_mask                       a quarter of the pairs, at random; compressed: the template; mode 5: its rule
//   drop_mask                        ones with probability keep_prob
//   sink, dlse                       standard normal
//
// Each tensor has a stream of its own, so that adding one changes no other.
#pragma once

#include "problem.h"

namespace fascore::cli {

/// Shapes and dtypes of everything the options ask for; params are stated already. Throws Failure.
void describe_drawn(Problem& problem, const ProblemOptions& options);

/// Draws the described tensors; those of the gradient only where it is needed.
void draw(Problem& problem, Needs needs);

}  // namespace fascore::cli
