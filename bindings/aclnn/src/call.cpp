// SPDX-License-Identifier: Apache-2.0
//
// The rules of the C interface that the C++ one does not know (null pointers, which features a version has, dtypes and
// formats by their names there), then the C++ call's own checks. In order:
//
//   1  pointers       161001 for a required one that is null
//   2  handles        161002 for one that is not alive
//   3  all outputs empty: success, whatever else was passed
//   4  attributes     headNum, layouts, modes
//   5  tensors        format, rank, dtype
//   6  features       rope, sink, dropout, 8-bit: what excludes or needs what
//   7  everything else: fascore's validator, with its text and this version's parameter names
//   8  outputs that share their address with an input or another output
#include "call.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "fascore/info.h"
#include "memory.h"
#include "meta.h"

namespace fascore::aclnn {

namespace {

constexpr int bad_pointer = 161001;
constexpr int bad_value = 161002;

// ---- words ----

std::string text(double value) {
    std::array<char, 32> digits{};
    return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

std::string text(std::int64_t value) { return std::to_string(value); }

std::string shape_text(const TensorDims& dims) {
    std::string words = "[";
    for (int axis = 0; axis < dims.rank; ++axis) {
        if (axis > 0) words += ", ";
        words += text(dims.shape[static_cast<std::size_t>(axis)]);
    }
    return words + "]";
}

bool same_letters(std::string_view left, std::string_view right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](char a, char b) {
        const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; };
        return upper(a) == upper(b);
    });
}

// ---- dtypes ----

struct DtypeRow {
    aclDataType theirs;
    DType ours;
};

// What a tensor may hold; the first three are the usual data types.
constexpr DtypeRow data_types[] = {{ACL_FLOAT16, DType::f16},
                                   {ACL_BF16, DType::bf16},
                                   {ACL_FLOAT, DType::f32},
                                   {ACL_FLOAT8_E5M2, DType::f8e5m2},
                                   {ACL_FLOAT8_E4M3FN, DType::f8e4m3}};
constexpr DtypeRow mask_types[] = {{ACL_BOOL, DType::boolean}, {ACL_UINT8, DType::u8}};
constexpr DtypeRow bit_types[] = {{ACL_UINT8, DType::u8}};
constexpr DtypeRow number_types[] = {{ACL_FLOAT, DType::f32}};

bool eight_bit(DType dtype) { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

std::string name_in_c(DType dtype) {
    for (const std::span<const DtypeRow> rows :
         {std::span<const DtypeRow>(data_types), std::span<const DtypeRow>(mask_types)}) {
        for (const DtypeRow& row : rows) {
            if (row.ours == dtype) return name_of(row.theirs);
        }
    }
    return std::string(fascore::name(dtype));
}

std::span<const DtypeRow> allowed_types(Field field, Family family) {
    switch (field) {
        case Field::atten_mask: return mask_types;
        case Field::drop_mask: return bit_types;
        case Field::softmax_max:
        case Field::softmax_sum:
        case Field::sink:
        case Field::dsink:
        case Field::d_scale_q:
        case Field::d_scale_k:
        case Field::d_scale_v:
        case Field::d_scale_dy: return number_types;
        case Field::query:
        case Field::key:
        case Field::value:
        case Field::dy: return std::span<const DtypeRow>(data_types).first(family == Family::whole ? 5 : 3);
        default: return std::span<const DtypeRow>(data_types).first(3);
    }
}

// ---- memory ----

bool contiguous(const TensorDims& dims) {
    std::int64_t step = 1;
    for (int axis = dims.rank; axis-- > 0;) {
        const auto a = static_cast<std::size_t>(axis);
        if (dims.shape[a] != 1 && dims.stride[a] != step) return false;
        if (__builtin_mul_overflow(step, dims.shape[a], &step)) return false;
    }
    return true;
}

void make_contiguous(TensorDims& dims) {
    std::int64_t step = 1;
    for (int axis = dims.rank; axis-- > 0;) {
        const auto a = static_cast<std::size_t>(axis);
        dims.stride[a] = step;
        step *= dims.shape[a];
    }
}

// Every element between a strided view and a row-major copy, in row-major order.
enum class Way : std::uint8_t { gather, scatter };
void move_elements(const View& view, std::byte* packed, Way way) {
    const auto size = static_cast<std::size_t>(size_of(view.dims.dtype));
    std::array<std::int64_t, max_rank> at{};
    std::byte* element = view.first();
    for (std::int64_t left = view.dims.count(); left > 0; --left) {
        std::memcpy(way == Way::gather ? packed : element, way == Way::gather ? element : packed, size);
        packed += size;
        for (int axis = view.dims.rank; axis-- > 0;) {
            const auto a = static_cast<std::size_t>(axis);
            const std::int64_t step = view.dims.stride[a] * static_cast<std::int64_t>(size);
            element += step;
            if (++at[a] < view.dims.shape[a]) break;
            element -= step * view.dims.shape[a];
            at[a] = 0;
        }
    }
}

ConstTensorView read(const View& view) {
    ConstTensorView shown;
    if (!view.given) return shown;
    static_cast<TensorDims&>(shown) = view.dims;
    shown.data = view.first();
    return shown;
}

TensorView written(const View& view) {
    TensorView shown;
    if (!view.given) return shown;
    static_cast<TensorDims&>(shown) = view.dims;
    shown.data = view.first();
    return shown;
}

using Views = std::array<View, tensor_fields>;

template <class Inputs>
void fill_inputs(const Views& views, Inputs& in) {
    const auto view = [&](Field field) { return read(views[index(field)]); };
    in.query = view(Field::query);
    in.key = view(Field::key);
    in.value = view(Field::value);
    in.query_rope = view(Field::query_rope);
    in.key_rope = view(Field::key_rope);
    in.atten_mask = view(Field::atten_mask);
    in.pse = view(Field::pse);
    in.drop_mask = view(Field::drop_mask);
    in.sink = view(Field::sink);
    in.d_scale_q = view(Field::d_scale_q);
    in.d_scale_k = view(Field::d_scale_k);
    in.d_scale_v = view(Field::d_scale_v);
}

struct ForwardCall {
    ForwardInputs in;
    ForwardOutputs out;
    explicit ForwardCall(const Views& views) {
        fill_inputs(views, in);
        out.attention_out = written(views[index(Field::attention_out)]);
        out.softmax_max = written(views[index(Field::softmax_max)]);
        out.softmax_sum = written(views[index(Field::softmax_sum)]);
    }
};

struct BackwardCall {
    BackwardInputs in;
    BackwardOutputs out;
    explicit BackwardCall(const Views& views) {
        fill_inputs(views, in);
        in.dy = read(views[index(Field::dy)]);
        in.softmax_max = read(views[index(Field::softmax_max)]);
        in.softmax_sum = read(views[index(Field::softmax_sum)]);
        in.attention_out = read(views[index(Field::attention_out)]);
        in.d_scale_dy = read(views[index(Field::d_scale_dy)]);
        out.dq = written(views[index(Field::dq)]);
        out.dk = written(views[index(Field::dk)]);
        out.dv = written(views[index(Field::dv)]);
        out.dq_rope = written(views[index(Field::dq_rope)]);
        out.dk_rope = written(views[index(Field::dk_rope)]);
        out.dpse = written(views[index(Field::dpse)]);
        out.dsink = written(views[index(Field::dsink)]);
    }
};

constexpr Field forward_outputs[] = {Field::softmax_max, Field::softmax_sum, Field::attention_out};
constexpr Field backward_outputs[] = {Field::dq,      Field::dk,   Field::dv,   Field::dq_rope,
                                      Field::dk_rope, Field::dpse, Field::dsink};

std::span<const Field> outputs_of(Direction direction) {
    return direction == Direction::forward ? std::span<const Field>(forward_outputs)
                                           : std::span<const Field>(backward_outputs);
}

bool is_output(Direction direction, Field field) {
    const std::span<const Field> outputs = outputs_of(direction);
    return std::find(outputs.begin(), outputs.end(), field) != outputs.end();
}

// fascore's names of canonical parameters, where its refusals begin with them.
struct FieldName {
    std::string_view name;
    Field field;
};
constexpr FieldName field_names[] = {
    {"query", Field::query},
    {"key", Field::key},
    {"value", Field::value},
    {"query_rope", Field::query_rope},
    {"key_rope", Field::key_rope},
    {"dy", Field::dy},
    {"pse", Field::pse},
    {"drop_mask", Field::drop_mask},
    {"atten_mask", Field::atten_mask},
    {"softmax_max", Field::softmax_max},
    {"softmax_sum", Field::softmax_sum},
    {"attention_out", Field::attention_out},
    {"sink", Field::sink},
    {"d_scale_q", Field::d_scale_q},
    {"d_scale_k", Field::d_scale_k},
    {"d_scale_v", Field::d_scale_v},
    {"d_scale_dy", Field::d_scale_dy},
    {"dq", Field::dq},
    {"dk", Field::dk},
    {"dv", Field::dv},
    {"dq_rope", Field::dq_rope},
    {"dk_rope", Field::dk_rope},
    {"dpse", Field::dpse},
    {"dsink", Field::dsink},
    {"prefix", Field::prefix},
    {"actual_seq_qlen", Field::actual_seq_qlen},
    {"actual_seq_kvlen", Field::actual_seq_kvlen},
    {"q_start_idx", Field::q_start_idx},
    {"kv_start_idx", Field::kv_start_idx},
    {"scale", Field::scale},
    {"keep_prob", Field::keep_prob},
    {"pre_tokens", Field::pre_tokens},
    {"next_tokens", Field::next_tokens},
    {"head_num", Field::head_num},
    {"layout", Field::layout},
    {"inner_precise", Field::inner_precise},
    {"sparse_mode", Field::sparse_mode},
    {"pse_type", Field::pse_type},
    {"seed", Field::seed},
    {"offset", Field::offset},
};

int code_of(StatusCode code) {
    switch (code) {
        case StatusCode::ok: return ACLNN_SUCCESS;
        case StatusCode::invalid_argument: return bad_value;
        case StatusCode::out_of_memory: return ACLNN_ERR_INNER_CREATE_EXECUTOR;
        case StatusCode::unavailable: return ACLNN_ERR_INNER_FIND_KERNEL_ERROR;
        case StatusCode::workspace_too_small:
        case StatusCode::cancelled:
        case StatusCode::internal_error: break;
    }
    return ACLNN_ERR_INNER;
}

// A refusal of fascore, its first word replaced by the name this version's header has for the parameter.
Verdict verdict_of(const Version& version, const Status& status) {
    const std::string& said = status.message();
    const std::string_view parameter = std::string_view(said).substr(0, said.find_first_of(":."));
    for (const FieldName& row : field_names) {
        if (row.name == parameter && version.has(row.field)) {
            return {code_of(status.code()), std::string(version.name(row.field)) + said.substr(parameter.size())};
        }
    }
    return {code_of(status.code()), said};
}

}  // namespace

// ---- the translation ----------------------------------------------------------------------------------------------

class Translation {
  public:
    Translation(const Version& version, const Arguments& given, Call& call)
        : version_(version), given_(given), call_(call) {}

    Verdict run();

  private:
    using Rule = Verdict (Translation::*)();

    Verdict pointers();
    Verdict handles();
    Verdict attributes();
    Verdict tensors_alone();
    Verdict rope();
    Verdict sink();
    Verdict bias();
    Verdict dropout();
    Verdict eight_bit_inputs();
    Verdict results();
    Verdict heads();
    Verdict arrays();
    Verdict staging();
    Verdict engine();
    Verdict addresses();

    [[nodiscard]] bool forward() const { return version_.direction == Direction::forward; }
    [[nodiscard]] View& view(Field field) { return call_.views_[index(field)]; }
    [[nodiscard]] bool present(Field field) { return view(field).given; }
    [[nodiscard]] bool all_outputs_empty();
    void drop_absent();

    [[nodiscard]] Verdict refuse(Field field, const std::string& given, const std::string& allowed,
                                 int code = bad_value) const {
        return {code, std::string(version_.name(field)) + ": " + given + ", " + allowed};
    }
    [[nodiscard]] Verdict missing(Field field, const std::string& why = "must be given") const {
        return refuse(field, "null", why, bad_pointer);
    }

    const Version& version_;
    const Arguments& given_;
    Call& call_;
    std::array<Tensor, tensor_fields> described_{};
};

Verdict Translation::run() {
    call_.version_ = &version_;
    if (Verdict v = pointers(); !v.ok()) return v;
    if (Verdict v = handles(); !v.ok()) return v;
    if (all_outputs_empty()) {
        call_.nothing_to_do_ = true;
        return {};
    }
    constexpr Rule rules[] = {
        &Translation::attributes,
        &Translation::tensors_alone,
        &Translation::rope,
        &Translation::sink,
        &Translation::bias,
        &Translation::dropout,
        &Translation::eight_bit_inputs,
        &Translation::results,
        &Translation::heads,
        &Translation::arrays,
        &Translation::staging,
        &Translation::engine,
        &Translation::addresses,
    };
    for (const Rule rule : rules) {
        if (Verdict v = (this->*rule)(); !v.ok()) return v;
    }
    return {};
}

// 1

Verdict Translation::pointers() {
    constexpr Field of_forward[] = {Field::query,       Field::key,         Field::value,
                                    Field::softmax_max, Field::softmax_sum, Field::attention_out};
    constexpr Field of_backward[] = {
        Field::query,       Field::key,         Field::value, Field::dy, Field::attention_out,
        Field::softmax_max, Field::softmax_sum, Field::dq,    Field::dk, Field::dv};
    constexpr Field of_hifloat8[] = {Field::d_scale_q,  Field::d_scale_k, Field::d_scale_v,
                                     Field::d_scale_dy, Field::ds_scale,  Field::p_scale};
    if (given_.layout == nullptr) return missing(Field::layout);
    for (const Field field : forward() ? std::span<const Field>(of_forward) : std::span<const Field>(of_backward)) {
        if (given_.tensor[index(field)] == nullptr) return missing(field);
    }
    if (version_.family == Family::hifloat8) {
        for (const Field field : of_hifloat8) {
            if (version_.has(field) && given_.tensor[index(field)] == nullptr) return missing(field);
        }
    }
    return {};
}

// 2

Verdict Translation::handles() {
    for (const Parameter& parameter : version_.parameters) {
        if (index(parameter.field) >= tensor_fields) continue;
        const aclTensor* handle = given_.tensor[index(parameter.field)];
        if (handle == nullptr) continue;
        Tensor& tensor = described_[index(parameter.field)];
        if (!tensors().read(handle, tensor)) {
            return refuse(parameter.field, text_of(handle) + " is not alive",
                          "must be a tensor that is created and not yet destroyed");
        }
        View& shown = view(parameter.field);
        shown.given = true;
        shown.data = static_cast<std::byte*>(tensor.data);
        // One axis too many is kept as a fact (tensors_alone refuses it).
        shown.dims.rank = static_cast<int>(std::min(tensor.shape.count, static_cast<std::size_t>(max_rank)));
        for (std::size_t axis = 0; axis < static_cast<std::size_t>(shown.dims.rank); ++axis) {
            shown.dims.shape[axis] = tensor.shape.extent[axis];
            shown.dims.stride[axis] = tensor.stride.extent[axis];
        }
    }
    return {};
}

// 3

// dq, dk, dv (and dpse and dsink where they are); the forward's three.
bool Translation::all_outputs_empty() {
    for (const Field field : outputs_of(version_.direction)) {
        if (!present(field)) continue;
        const bool rank_counts =
            field != Field::dpse && field != Field::dsink && field != Field::dq_rope && field != Field::dk_rope;
        if (view(field).dims.rank == 0 && !rank_counts) continue;  // absent
        if (!view(field).empty()) return false;
    }
    return true;
}

// 4

Verdict Translation::attributes() {
    const bool only_packed = version_.family == Family::packed || version_.family == Family::packed_rope;
    constexpr Layout layouts[] = {Layout::BSH, Layout::SBH, Layout::BSND, Layout::BNSD, Layout::TND};
    const auto* found = std::find_if(std::begin(layouts), std::end(layouts),
                                     [&](Layout layout) { return same_letters(given_.layout, fascore::name(layout)); });
    if (only_packed && (found == std::end(layouts) || *found != Layout::TND)) {
        return refuse(Field::layout, "given \"" + std::string(given_.layout) + "\"", "must be \"TND\"");
    }
    if (found == std::end(layouts)) {
        return refuse(Field::layout, "given \"" + std::string(given_.layout) + "\"",
                      "must be \"BSH\", \"SBH\", \"BSND\", \"BNSD\" or \"TND\"");
    }
    if (version_.family == Family::batches && *found == Layout::TND) {
        return refuse(Field::layout, "given \"TND\", which needs sequence lengths",
                      "must be \"BSH\", \"SBH\", \"BSND\" or \"BNSD\" in this version");
    }
    AttentionParams& params = call_.params_;
    params.layout = *found;
    if (given_.head_num <= 0) return refuse(Field::head_num, "given " + text(given_.head_num), "must be 1 or more");
    params.head_num = given_.head_num;
    const auto in_range = [&](Field field, std::int64_t value, std::int64_t last, int& stored) -> Verdict {
        if (value < 0 || value > last) return refuse(field, "given " + text(value), "must be 0 to " + text(last));
        stored = static_cast<int>(value);
        return {};
    };
    if (Verdict v = in_range(Field::sparse_mode, given_.sparse_mode, 8, params.sparse_mode); !v.ok()) return v;
    if (Verdict v = in_range(Field::pse_type, given_.pse_type, 3, params.pse_type); !v.ok()) return v;
    if (Verdict v = in_range(Field::inner_precise, given_.inner_precise, 2, params.inner_precise); !v.ok()) return v;
    params.scale = given_.scale;
    params.keep_prob = given_.keep_prob;
    params.pre_tokens = given_.pre_tokens;
    params.next_tokens = given_.next_tokens;
    params.seed = static_cast<std::uint64_t>(given_.seed);
    params.offset = static_cast<std::uint64_t>(given_.offset);

    const std::string_view order = given_.softmax_layout == nullptr ? "" : given_.softmax_layout;
    if (order == "same_as_input") {
        if (params.layout != Layout::TND) {
            return refuse(Field::softmax_layout, "given \"same_as_input\"",
                          "must be \"\" for layout " + std::string(fascore::name(params.layout)));
        }
        params.statistics_order = StatisticsOrder::by_token;
    } else if (!order.empty()) {
        return refuse(Field::softmax_layout, "given \"" + std::string(order) + "\"",
                      "must be \"\" or \"same_as_input\"");
    }
    return {};
}

// 5

// Optional tensors of rank 0 or without elements count as not given, and reserved ones are never looked at.
void Translation::drop_absent() {
    constexpr Field reserved[] = {Field::padding_mask, Field::softmax_out, Field::d_scale_o};
    for (const Field field : reserved) view(field).given = false;
    constexpr Field optional[] = {Field::pse,       Field::drop_mask, Field::atten_mask, Field::sink, Field::d_scale_q,
                                  Field::d_scale_k, Field::d_scale_v, Field::d_scale_dy, Field::dpse, Field::dsink};
    for (const Field field : optional) {
        if (view(field).empty() || view(field).dims.rank == 0) view(field).given = false;
    }
    // A rope part is empty with the tensor it belongs to, too; then it stays.
    constexpr std::pair<Field, Field> ropes[] = {{Field::query_rope, Field::query},
                                                 {Field::key_rope, Field::key},
                                                 {Field::dq_rope, Field::query},
                                                 {Field::dk_rope, Field::key}};
    for (const auto& [part, whole] : ropes) {
        if (view(part).dims.rank == 0 || (view(part).empty() && !view(whole).empty())) view(part).given = false;
    }
    // Without what they are the gradients of, these are not computed.
    constexpr std::pair<Field, Field> gradients[] = {{Field::dpse, Field::pse},
                                                     {Field::dsink, Field::sink},
                                                     {Field::dq_rope, Field::query_rope},
                                                     {Field::dk_rope, Field::key_rope}};
    for (const auto& [gradient, of] : gradients) view(gradient).given = present(gradient) && present(of);
}

Verdict Translation::tensors_alone() {
    drop_absent();
    for (const Parameter& parameter : version_.parameters) {
        const Field field = parameter.field;
        if (index(field) >= tensor_fields || !present(field)) continue;
        const Tensor& tensor = described_[index(field)];
        if (tensor.format != ACL_FORMAT_ND) {
            return refuse(field, "format is " + name_of(tensor.format), "must be ND");
        }
        if (tensor.shape.count > static_cast<std::size_t>(max_rank)) {
            return refuse(field, "rank is " + std::to_string(tensor.shape.count),
                          "must be at most " + std::to_string(max_rank));
        }
        if (version_.family == Family::hifloat8) continue;  // has types of its own
        const std::span<const DtypeRow> allowed = allowed_types(field, version_.family);
        const auto row = std::find_if(allowed.begin(), allowed.end(),
                                      [&](const DtypeRow& one) { return one.theirs == tensor.dtype; });
        if (row == allowed.end()) {
            std::string words;
            for (std::size_t k = 0; k < allowed.size(); ++k) {
                if (k > 0) words += k + 1 == allowed.size() ? " or " : ", ";
                words += name_of(allowed[k].theirs);
            }
            return refuse(field, "dtype is " + name_of(tensor.dtype), "must be " + words);
        }
        View& shown = view(field);
        shown.dims.dtype = row->ours;
        constexpr std::int64_t farthest = std::int64_t{1} << 62;  // no address is beyond that
        if (tensor.offset < 0 || __builtin_mul_overflow(tensor.offset, size_of(row->ours), &shown.element_zero) ||
            shown.element_zero > farthest) {
            return refuse(field, "offset is " + text(tensor.offset), "must be 0 or more and within the memory");
        }
    }
    if (version_.family == Family::hifloat8) {
        return refuse(Field::query, "dtype is " + name_of(described_[index(Field::query)].dtype),
                      "HIFLOAT8 attention is not computed by this library (docs/aclnn.md)");
    }
    return {};
}

// 6

Verdict Translation::rope() {
    const bool query = present(Field::query_rope);
    if (query != present(Field::key_rope)) {
        return missing(query ? Field::key_rope : Field::query_rope,
                       "must be given with " + std::string(version_.name(query ? Field::query_rope : Field::key_rope)));
    }
    if (!query) return {};
    if (!forward()) {
        for (const Field field : {Field::dq_rope, Field::dk_rope}) {
            if (!present(field)) return missing(field, "must be given with the rope parts");
        }
    }
    if (version_.family != Family::packed_rope) return {};
    // What these versions exclude beside rope parts; their forward reports it as it reports null pointers.
    const int code = forward() ? bad_pointer : bad_value;
    const std::string rule = " with rope parts in this version";
    if (!present(Field::atten_mask)) return missing(Field::atten_mask, "must be given" + rule);
    for (const Field field : {Field::pse, Field::drop_mask}) {
        if (present(field))
            return refuse(field, "shape is " + shape_text(view(field).dims), "must be null" + rule, code);
    }
    if (given_.keep_prob < 1.0)
        return refuse(Field::keep_prob, "given " + text(given_.keep_prob), "must be 1" + rule, code);
    if (given_.sparse_mode == 6) return refuse(Field::sparse_mode, "given 6", "must not be 6" + rule, code);
    if (view(Field::query).dims.dtype != DType::bf16) {
        return refuse(Field::query, "dtype is " + name_in_c(view(Field::query).dims.dtype), "must be BF16" + rule,
                      code);
    }
    const TensorDims& part = view(Field::query_rope).dims;
    const std::int64_t columns = part.rank == 3 ? part.shape[2] : 0;
    if (columns % 8 != 0) {
        return refuse(Field::query_rope, "head size is " + text(columns), "must be a multiple of 8" + rule, code);
    }
    return {};
}

Verdict Translation::sink() {
    if (!present(Field::sink)) return {};
    if (view(Field::sink).dims.rank != 1) {
        return refuse(Field::sink, "rank is " + text(std::int64_t{view(Field::sink).dims.rank}), "must be 1");
    }
    if (view(Field::query).dims.dtype == DType::f32) {
        return refuse(Field::query, "dtype is FLOAT", "must be FLOAT16 or BF16 with a sink");
    }
    if (!forward() && !present(Field::dsink))
        return missing(Field::dsink, "must be given with " + std::string(version_.name(Field::sink)));
    return {};
}

Verdict Translation::bias() {
    call_.params_.pse_type = static_cast<int>(given_.pse_type);
    if (!present(Field::pse)) return {};
    const DType query = view(Field::query).dims.dtype;
    if (given_.pse_type >= 2) {
        if (view(Field::pse).dims.dtype == DType::f32) return {};
        return refuse(Field::pse, "dtype is " + name_in_c(view(Field::pse).dims.dtype),
                      "must be FLOAT (slopes of pseType 2 and 3)");
    }
    const DType wanted = eight_bit(query) ? (given_.out_dtype == 1 ? DType::bf16 : DType::f16) : query;
    if (view(Field::pse).dims.dtype == wanted) return {};
    return refuse(Field::pse, "dtype is " + name_in_c(view(Field::pse).dims.dtype), "must be " + name_in_c(wanted));
}

Verdict Translation::dropout() {
    if (!(given_.keep_prob > 0.0 && given_.keep_prob <= 1.0)) {
        return refuse(Field::keep_prob, "given " + text(given_.keep_prob), "must be more than 0 and at most 1");
    }
    if (given_.keep_prob < 1.0 && !present(Field::drop_mask) && version_.family != Family::whole) {
        return refuse(
            Field::keep_prob, "given " + text(given_.keep_prob),
            "must be 1 without " + std::string(version_.name(Field::drop_mask)) + " (this version has no seed)");
    }
    if (version_.refuses_drop_mask && present(Field::drop_mask)) {
        return refuse(Field::drop_mask, "shape is " + shape_text(view(Field::drop_mask).dims), "must be null here");
    }
    if (given_.keep_prob == 1.0) view(Field::drop_mask).given = false;  // ignored
    return {};
}

Verdict Translation::eight_bit_inputs() {
    constexpr Field scales[] = {Field::d_scale_q, Field::d_scale_k, Field::d_scale_v, Field::d_scale_dy};
    if (!eight_bit(view(Field::query).dims.dtype)) {
        for (const Field field : scales) view(field).given = false;  // meaningless here
        return {};
    }
    if (given_.out_dtype != 0 && given_.out_dtype != 1) {
        return refuse(Field::out_dtype, "given " + text(given_.out_dtype), "must be 0 (FLOAT16) or 1 (BF16)");
    }
    for (const Field field : scales) {
        if (version_.has(field) && !present(field)) return refuse(field, "absent", "must be given with 8-bit inputs");
    }
    return {};
}

// dtypes of what the forward writes and the gradient reads and writes.
Verdict Translation::results() {
    const DType query = view(Field::query).dims.dtype;
    const DType result = eight_bit(query) ? (given_.out_dtype == 1 ? DType::bf16 : DType::f16) : query;
    const auto must_be = [&](Field field, DType wanted) -> Verdict {
        if (!present(field) || view(field).dims.dtype == wanted) return {};
        return refuse(field, "dtype is " + name_in_c(view(field).dims.dtype),
                      "must be " + name_in_c(wanted) + (eight_bit(query) ? " as outDtype says" : " as query"));
    };
    for (const Field field : {Field::key, Field::value, Field::dy}) {
        if (Verdict v = must_be(field, query); !v.ok()) return v;
    }
    for (const Field field : {Field::attention_out, Field::dq, Field::dk, Field::dv}) {
        if (Verdict v = must_be(field, result); !v.ok()) return v;
    }
    for (const Field field : {Field::dq_rope, Field::dk_rope}) {
        if (present(field)) {
            if (Verdict v = must_be(field, eight_bit(query) ? result : view(Field::query_rope).dims.dtype); !v.ok())
                return v;
        }
    }
    if (present(Field::dpse)) return must_be(Field::dpse, view(Field::pse).dims.dtype);
    return {};
}

// fascore takes 0 for "as the tensor says"; here the number must be right.
Verdict Translation::heads() {
    const TensorDims& query = view(Field::query).dims;
    const Layout layout = call_.params_.layout;
    if (layout == Layout::BSH || layout == Layout::SBH) return {};
    const std::size_t axis = layout == Layout::BSND ? 2 : 1;
    if (query.rank == (layout == Layout::TND ? 3 : 4) && query.shape[axis] != given_.head_num) {
        return refuse(Field::head_num, "given " + text(given_.head_num),
                      "must be query's head count " + text(query.shape[axis]));
    }
    return {};
}

Verdict Translation::arrays() {
    const auto copy = [&](Field field, const aclIntArray* handle, std::vector<std::int64_t>& values) -> Verdict {
        if (handle == nullptr || int_arrays().read(handle, values)) return {};
        return refuse(field, text_of(handle) + " is not alive",
                      "must be an array that is created and not yet destroyed");
    };
    const auto first = [&](Field field, const aclIntArray* handle, std::int64_t& value) -> Verdict {
        std::vector<std::int64_t> values;
        if (Verdict v = copy(field, handle, values); !v.ok()) return v;
        if (!values.empty()) value = values.front();
        return {};
    };
    AttentionParams& params = call_.params_;
    if (Verdict v = first(Field::q_start_idx, given_.q_start_idx, params.q_start_idx); !v.ok()) return v;
    if (Verdict v = first(Field::kv_start_idx, given_.kv_start_idx, params.kv_start_idx); !v.ok()) return v;
    if (Verdict v = copy(Field::prefix, given_.prefix, call_.prefix_); !v.ok()) return v;
    if (Verdict v = copy(Field::actual_seq_qlen, given_.actual_seq_qlen, call_.seq_q_); !v.ok()) return v;
    if (Verdict v = copy(Field::actual_seq_kvlen, given_.actual_seq_kvlen, call_.seq_kv_); !v.ok()) return v;
    // What the mode or layout does not use may hold anything: programs pass {0} for it.
    if (!present(Field::atten_mask) || (params.sparse_mode != 5 && params.sparse_mode != 6)) call_.prefix_.clear();
    if (params.layout != Layout::TND) {
        call_.seq_q_.clear();
        call_.seq_kv_.clear();
    }
    return {};
}

// Which tensors are worked on as contiguous copies, and where those lie.
Verdict Translation::staging() {
    const bool packed = call_.params_.layout == Layout::TND;
    const TensorDims& query = view(Field::query).dims;
    for (const Field field : {Field::softmax_max, Field::softmax_sum}) {
        // Statistics of packed sequences are a run of [N1, Sq_b, 8] blocks, whether they are declared [T1, N1, 8] or
        // [N1, T1, 8].
        TensorDims& dims = view(field).dims;
        if (packed && call_.params_.statistics_order == StatisticsOrder::by_sequence && dims.rank == 3 &&
            query.rank == 3 && dims.shape[0] == query.shape[1] && dims.shape[1] == query.shape[0] &&
            dims.shape[0] != dims.shape[1] && contiguous(dims)) {
            std::swap(dims.shape[0], dims.shape[1]);
            make_contiguous(dims);
        }
    }
    const auto ordered = [&](Field field) {
        switch (field) {
            case Field::drop_mask: return true;
            case Field::softmax_max:
            case Field::softmax_sum: return packed && call_.params_.statistics_order == StatisticsOrder::by_sequence;
            case Field::atten_mask: return packed && view(field).dims.rank == 4;
            case Field::pse:
            case Field::dpse: return packed && view(field).dims.rank == 1 && given_.pse_type <= 1;
            default: return false;
        }
    };
    for (std::size_t k = 0; k < tensor_fields; ++k) {
        const auto field = static_cast<Field>(k);
        const TensorDims& dims = view(field).dims;
        if (!present(field) || !ordered(field) || contiguous(dims)) continue;
        std::int64_t bytes = size_of(dims.dtype);
        for (int axis = 0; axis < dims.rank; ++axis) {
            if (dims.shape[static_cast<std::size_t>(axis)] < 0 ||
                __builtin_mul_overflow(bytes, dims.shape[static_cast<std::size_t>(axis)], &bytes)) {
                return refuse(field, "shape is " + shape_text(dims), "must fit into memory");
            }
        }
        call_.staged_.push_back({field, is_output(version_.direction, field), 0, static_cast<std::size_t>(bytes)});
    }
    return {};
}

// 7

Verdict Translation::engine() {
    if (Status s = default_threads(call_.threads_); !s.ok()) return verdict_of(version_, s);
    Views views = call_.views_;
    for (const Staged& staged : call_.staged_) make_contiguous(views[index(staged.field)].dims);
    const AttentionParams params = call_.params();
    Execution execution;
    execution.threads = call_.threads_;
    Status status;
    if (forward()) {
        const ForwardCall call(views);
        status = forward_workspace_bytes(params, call.in, call.out, execution, call_.engine_bytes_);
    } else {
        const BackwardCall call(views);
        status = backward_workspace_bytes(params, call.in, call.out, execution, call_.engine_bytes_);
    }
    if (!status.ok()) return verdict_of(version_, status);
    call_.workspace_bytes_ = call_.engine_bytes_;
    for (Staged& staged : call_.staged_) {
        staged.at = call_.workspace_bytes_;
        call_.workspace_bytes_ += staged.bytes;
    }
    return {};
}

// 8

Verdict Translation::addresses() {
    const auto address = [&](Field field) -> const std::byte* {
        return present(field) && !view(field).empty() ? view(field).first() : nullptr;
    };
    const std::span<const Field> outputs = outputs_of(version_.direction);
    for (const Field output : outputs) {
        if (address(output) == nullptr) continue;
        for (const Parameter& other : version_.parameters) {
            if (other.field == output || index(other.field) >= tensor_fields || address(other.field) != address(output))
                continue;
            return refuse(output, "data is " + std::string(other.name) + "'s", "must not overlap another tensor");
        }
    }
    return {};
}

// ---- the call -----------------------------------------------------------------------------------------------------

Verdict Call::translate(const Version& version, const Arguments& given, Call& call) {
    return Translation(version, given, call).run();
}

bool Call::point(Field field, void* data) {
    View& view = views_[index(field)];
    if (!view.given) return false;
    view.data = static_cast<std::byte*>(data);
    return true;
}

namespace {

// Bytes from a tensor's address to the end of its last element.
std::size_t reach_of(const View& view) {
    std::int64_t last = 0;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.dims.rank); ++axis) {
        if (view.dims.stride[axis] > 0) last += (view.dims.shape[axis] - 1) * view.dims.stride[axis];
    }
    return static_cast<std::size_t>(view.element_zero + (last + 1) * size_of(view.dims.dtype));
}

}  // namespace

Verdict Call::check_addresses() const {
    if (nothing_to_do_) return {};
    for (const Parameter& parameter : version_->parameters) {
        if (index(parameter.field) >= tensor_fields) continue;
        const View& view = views_[index(parameter.field)];
        if (view.given && view.data == nullptr && !view.empty()) {
            return {bad_pointer,
                    std::string(parameter.name) + ": data is null, must point to shape " + shape_text(view.dims)};
        }
        if (!view.given || view.empty()) continue;
        const std::size_t reach = reach_of(view);
        if (const std::size_t room = room_at(view.data); room < reach) {
            return {ACLNN_ERR_PARAM_INVALID, std::string(parameter.name) + ": reaches " + std::to_string(reach) +
                                                 " bytes from its address, its block has " + std::to_string(room)};
        }
    }
    return {};
}

AttentionParams Call::params() const {
    AttentionParams params = params_;
    params.prefix = prefix_;
    params.actual_seq_qlen = seq_q_;
    params.actual_seq_kvlen = seq_kv_;
    return params;
}

Status Call::compute(const Views& views, const Execution& execution, std::byte* workspace) const {
    const std::span<std::byte> memory(workspace, engine_bytes_);
    if (version_->direction == Direction::forward) {
        const ForwardCall call(views);
        return attention_forward(params(), call.in, call.out, execution, memory);
    }
    const BackwardCall call(views);
    return attention_backward(params(), call.in, call.out, execution, memory);
}

Verdict Call::run(std::byte* workspace, const CancelToken& cancel) const {
    if (nothing_to_do_) return {};
    Views views = views_;
    for (const Staged& staged : staged_) {
        View& view = views[index(staged.field)];
        std::byte* copy = workspace + staged.at;
        if (!staged.written) move_elements(view, copy, Way::gather);
        view.data = copy;
        view.element_zero = 0;
        make_contiguous(view.dims);
    }
    Execution execution;
    execution.threads = threads_;
    execution.cancel = &cancel;
    if (Status status = compute(views, execution, workspace); !status.ok()) {
        Verdict verdict = verdict_of(*version_, status);
        return {ACL_ERROR_RT_FAILURE, std::string(version_->second) + ": " + verdict.text};
    }
    for (const Staged& staged : staged_) {
        if (staged.written) move_elements(views_[index(staged.field)], workspace + staged.at, Way::scatter);
    }
    return {};
}

}  // namespace fascore::aclnn
