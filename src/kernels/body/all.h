// SPDX-License-Identifier: Apache-2.0
//
// The bodies in order of use. Included inside the unnamed namespace of isa/*.cpp, after a simd header.
#include "kernels/body/exp.h"
#include "kernels/body/product.h"
#include "kernels/body/pack.h"
#include "kernels/body/store.h"
#include "kernels/body/softmax.h"
#include "kernels/body/dropout.h"
#include "kernels/body/quantise.h"
#include "kernels/body/peak.h"
#include "kernels/body/table.h"
