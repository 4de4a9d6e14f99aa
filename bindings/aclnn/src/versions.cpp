// SPDX-License-Identifier: Apache-2.0
//
// The C functions of every version, made from the rows of versions.def. A row becomes three lists: the function's
// parameters, the assignments into Arguments, and the description that error texts are made from. The headers declare
// the same functions, so a row that disagrees with its header does not compile.
#include "versions.def"

#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "executor.h"
#include "versions.h"

namespace fascore::aclnn {

bool Version::has(Field field) const noexcept {
    for (const Parameter& parameter : parameters) {
        if (parameter.field == field) return true;
    }
    return false;
}

std::string_view Version::name(Field field) const noexcept {
    for (const Parameter& parameter : parameters) {
        if (parameter.field == field) return parameter.name;
    }
    return "unknown";
}

namespace {

// ---- a row as parameters, as assignments, as a description ----

#define FASCORE_PARAMETER(kind, name, field) FASCORE_PARAMETER_##kind(name)
#define FASCORE_PARAMETER_T(name) const aclTensor *name,
#define FASCORE_PARAMETER_O(name) const aclTensor *name,
#define FASCORE_PARAMETER_W(name) aclTensor *name,
#define FASCORE_PARAMETER_A(name) const aclIntArray *name,
#define FASCORE_PARAMETER_I(name) int64_t name,
#define FASCORE_PARAMETER_D(name) double name,
#define FASCORE_PARAMETER_S(name) char *name,

#define FASCORE_FILL(kind, name, field) FASCORE_FILL_##kind(name, field)
#define FASCORE_FILL_T(name, field) given.tensor[index(Field::field)] = name;
#define FASCORE_FILL_O(name, field) given.tensor[index(Field::field)] = name;
#define FASCORE_FILL_W(name, field) given.tensor[index(Field::field)] = name;
#define FASCORE_FILL_A(name, field) given.field = name;
#define FASCORE_FILL_I(name, field) given.field = name;
#define FASCORE_FILL_D(name, field) given.field = name;
#define FASCORE_FILL_S(name, field) given.field = name;

#define FASCORE_DESCRIBE(kind, name, field) {ParameterKind::kind, #name, Field::field},

#define FASCORE_VERSION(function, ROW, direction, family)                                                  \
    constexpr Parameter parameters_of_##function[] = {ROW(FASCORE_DESCRIBE)};                              \
    constexpr Version version_of_##function{#function "GetWorkspaceSize", #function, Direction::direction, \
                                            Family::family, parameters_of_##function};
FASCORE_VERSIONS(FASCORE_VERSION)

constexpr Version largest(Version version, const char* first, bool refuses_drop_mask) {
    version.first = first;
    version.refuses_drop_mask = refuses_drop_mask;
    return version;
}
constexpr Version largest_of_aclnnFlashAttentionVarLenScoreV5 =
    largest(version_of_aclnnFlashAttentionVarLenScoreV5, "aclnnFlashAttentionVarLenScoreV5GetMaxWorkspaceSize", false);
constexpr Version largest_of_aclnnFlashAttentionUnpaddingScoreGradV5 =
    largest(version_of_aclnnFlashAttentionUnpaddingScoreGradV5,
            "aclnnFlashAttentionUnpaddingScoreGradV5GetMaxWorkspaceSize", true);

}  // namespace

}  // namespace fascore::aclnn

using namespace fascore::aclnn;

#define FASCORE_FIRST_PHASE(function, suffix, ROW, version)                                 \
    extern "C" aclnnStatus function##suffix(ROW(FASCORE_PARAMETER) uint64_t* workspaceSize, \
                                            aclOpExecutor** executor) {                     \
        Arguments given;                                                                    \
        ROW(FASCORE_FILL)                                                                   \
        return first_phase(version, given, workspaceSize, executor);                        \
    }

#define FASCORE_FUNCTIONS(function, ROW, direction, family)                                           \
    FASCORE_FIRST_PHASE(function, GetWorkspaceSize, ROW, version_of_##function)                       \
    extern "C" aclnnStatus function(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, \
                                    const aclrtStream stream) {                                       \
        return second_phase(version_of_##function, workspace, workspaceSize, executor, stream);       \
    }
FASCORE_VERSIONS(FASCORE_FUNCTIONS)

// The most that any lengths would need is what these lengths need: the workspace does not depend on the others.
FASCORE_FIRST_PHASE(aclnnFlashAttentionVarLenScoreV5, GetMaxWorkspaceSize, FASCORE_VARLEN_SCORE_V5,
                    largest_of_aclnnFlashAttentionVarLenScoreV5)
FASCORE_FIRST_PHASE(aclnnFlashAttentionUnpaddingScoreGradV5, GetMaxWorkspaceSize, FASCORE_UNPADDING_SCORE_GRAD_V5,
                    largest_of_aclnnFlashAttentionUnpaddingScoreGradV5)
