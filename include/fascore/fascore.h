// SPDX-License-Identifier: Apache-2.0
//
// The whole public API in one header.
#pragma once

#include "fascore/attention.h"
#include "fascore/dropout.h"
#include "fascore/info.h"
#include "fascore/plan.h"
#include "fascore/reference.h"
#include "fascore/status.h"
#include "fascore/tensor.h"
#include "fascore/version.h"
