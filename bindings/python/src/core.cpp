// SPDX-License-Identifier: Apache-2.0
//
// fascore._core: what Python needs of C++ and no more. One generic forward and one generic backward call (and the
// reference and the plan of each), called by the Python layer with
//
//   params    a Params object: AttentionParams with its arrays owned
//   inputs    a tuple of arrays or None, in the order of input_names below
//   outputs   a tuple of arrays or None, in the order of forward_output_names / backward_output_names
//
// Arrays are never copied (but torch tensors with the negative bit, whose memory is not what they read as): a NumPy
// array gives its address and strides by the buffer protocol, a torch tensor by its own data_ptr(), shape and stride(),
// so torch is neither linked nor included. What an object or a dtype is, is asked of Python once for each type and
// remembered.
//
// The interpreter lock is released while the library works. The library reports progress from the calling thread, and
// there, at most every tenth of a second, the lock is taken to run pending signal handlers: Ctrl-C sets the cancel
// token and comes out as KeyboardInterrupt.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fascore/fascore.h"
#include "memory.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using fascore::AttentionInputs;
using fascore::BackwardInputs;
using fascore::BackwardOutputs;
using fascore::ConstTensorView;
using fascore::DType;
using fascore::Execution;
using fascore::ForwardInputs;
using fascore::ForwardOutputs;
using fascore::PlanInfo;
using fascore::Status;
using fascore::StatusCode;
using fascore::TensorView;

constexpr std::size_t shared_inputs = 12;
constexpr std::array<const char*, 18> input_names{
    "query", "key",         "value",       "query_rope",    "key_rope",  "atten_mask",
    "pse",   "drop_mask",   "sink",        "d_scale_q",     "d_scale_k", "d_scale_v",
    "dy",    "softmax_max", "softmax_sum", "attention_out", "dlse",      "d_scale_dy"};
constexpr std::array<const char*, 3> forward_output_names{"attention_out", "softmax_max", "softmax_sum"};
constexpr std::array<const char*, 7> backward_output_names{"dq", "dk", "dv", "dq_rope", "dk_rope", "dpse", "dsink"};

// What Python tells about types and dtypes (set_hooks) and what has been learnt so far.
struct Registry {
    PyObject* classify = nullptr;          ///< classify(type) -> kind
    PyObject* dtype_of = nullptr;          ///< dtype_of(dtype) -> DType as int
    PyObject* invalid_argument = nullptr;  ///< exception class
    PyObject* kinds = nullptr;             ///< {type: kind}
    PyObject* dtypes = nullptr;            ///< {dtype: DType as int}
    PyObject *shape = nullptr, *stride = nullptr, *dtype = nullptr, *data_ptr = nullptr, *is_cpu = nullptr,
             *view = nullptr, *is_neg = nullptr, *resolve_neg = nullptr;
};
Registry registry;

enum class Kind : long { numpy = 0, torch = 1 };

[[noreturn]] void raise(PyObject* type, const std::string& message) {
    PyErr_SetString(type, message.c_str());
    throw nb::python_error();
}

[[noreturn]] void refuse(const std::string& message) { raise(registry.invalid_argument, message); }

// The remembered answer for `key`, else hook(key), remembered.
long learn(PyObject* known, PyObject* hook, PyObject* key) {
    if (PyObject* value = PyDict_GetItemWithError(known, key); value != nullptr) return PyLong_AsLong(value);
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    const nb::object value = nb::steal(PyObject_CallOneArg(hook, key));
    if (!value.is_valid()) throw nb::python_error();
    const long answer = PyLong_AsLong(value.ptr());
    if (answer == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (PyDict_SetItem(known, key, value.ptr()) != 0) throw nb::python_error();
    return answer;
}

nb::object attribute(PyObject* object, PyObject* name) {
    nb::object value = nb::steal(PyObject_GetAttr(object, name));
    if (!value.is_valid()) throw nb::python_error();
    return value;
}

nb::object call_method(PyObject* object, PyObject* name) {
    nb::object value = nb::steal(PyObject_CallMethodNoArgs(object, name));
    if (!value.is_valid()) throw nb::python_error();
    return value;
}

// A view of a Python array for the time of one call. Holds the buffer and whatever object had to be made for it.
class Borrowed {
  public:
    Borrowed() = default;
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed() {
        if (has_buffer_) PyBuffer_Release(&buffer_);
    }

    void take(PyObject* array, const char* name, bool writable) {
        const auto kind =
            static_cast<Kind>(learn(registry.kinds, registry.classify, reinterpret_cast<PyObject*>(Py_TYPE(array))));
        const nb::object dtype = attribute(array, registry.dtype);
        long code = 0;
        try {
            code = learn(registry.dtypes, registry.dtype_of, dtype.ptr());
        } catch (nb::python_error& error) {
            if (!error.matches(PyExc_TypeError)) throw;
            raise(PyExc_TypeError, std::string(name) + ": " + nb::str(error.value()).c_str());
        }
        view_.dtype = static_cast<DType>(code);
        if (kind == Kind::torch) {
            take_torch(array, name, writable);
        } else {
            take_numpy(array, name, writable);
        }
    }

    [[nodiscard]] const TensorView& view() const { return view_; }

  private:
    void set_rank(Py_ssize_t rank, const char* name) {
        if (rank > fascore::max_rank) {
            refuse(std::string(name) + ": " + std::to_string(rank) + " axes, must be at most " +
                   std::to_string(fascore::max_rank));
        }
        view_.rank = static_cast<int>(rank);
    }

    void take_torch(PyObject* tensor, const char* name, bool writable) {
        if (attribute(tensor, registry.is_cpu).ptr() != Py_True) {
            refuse(std::string(name) + ": a tensor on another device, must be on the CPU");
        }
        // The imaginary part of a conjugate: memory holds the negatives of the elements.
        if (call_method(tensor, registry.is_neg).ptr() == Py_True) {
            if (writable) {
                refuse(std::string(name) + ": a tensor with the negative bit, must be one without (resolve_neg())");
            }
            made_ = call_method(tensor, registry.resolve_neg);
            tensor = made_.ptr();
        }
        const nb::object shape = attribute(tensor, registry.shape);
        const nb::object stride = call_method(tensor, registry.stride);
        const nb::object address = call_method(tensor, registry.data_ptr);
        if (PyTuple_Check(shape.ptr()) == 0 || PyTuple_Check(stride.ptr()) == 0) {
            refuse(std::string(name) + ": a tensor without strides, must be a dense one");
        }
        set_rank(PyTuple_GET_SIZE(shape.ptr()), name);
        for (int axis = 0; axis < view_.rank; ++axis) {
            const auto at = static_cast<std::size_t>(axis);
            view_.shape[at] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.ptr(), axis));
            view_.stride[at] = PyLong_AsLongLong(PyTuple_GET_ITEM(stride.ptr(), axis));
        }
        view_.data = PyLong_AsVoidPtr(address.ptr());
        if (PyErr_Occurred() != nullptr) throw nb::python_error();
    }

    void take_numpy(PyObject* array, const char* name, bool writable) {
        const int flags = writable ? PyBUF_STRIDED : PyBUF_STRIDED_RO;
        PyObject* source = array;
        if (PyObject_GetBuffer(source, &buffer_, flags) != 0) {
            PyErr_Clear();
            // A dtype the buffer protocol has no letter for (ml_dtypes): the same bytes as unsigned integers have.
            const char* bits = fascore::size_of(view_.dtype) == 2 ? "u2" : "u1";
            if (fascore::size_of(view_.dtype) <= 2 && view_.dtype != DType::f16 && view_.dtype != DType::boolean) {
                made_ = nb::steal(PyObject_CallMethodOneArg(array, registry.view, nb::str(bits).ptr()));
                if (!made_.is_valid()) throw nb::python_error();
                source = made_.ptr();
            }
            if (source == array || PyObject_GetBuffer(source, &buffer_, flags) != 0) {
                PyErr_Clear();
                refuse(std::string(name) + (writable ? ": an array that is not writable, must be writable"
                                                     : ": an array without a buffer, must have one"));
            }
        }
        has_buffer_ = true;
        set_rank(buffer_.ndim, name);
        const std::int64_t size = fascore::size_of(view_.dtype);
        for (int axis = 0; axis < view_.rank; ++axis) {
            const auto at = static_cast<std::size_t>(axis);
            view_.shape[at] = buffer_.shape[axis];
            if (buffer_.strides[axis] % size != 0) {
                refuse(std::string(name) + ": a stride of " + std::to_string(buffer_.strides[axis]) +
                       " bytes, must be a multiple of the element's " + std::to_string(size));
            }
            view_.stride[at] = buffer_.strides[axis] / size;
        }
        view_.data = buffer_.buf;
        if (reinterpret_cast<std::uintptr_t>(buffer_.buf) % static_cast<std::uintptr_t>(size) != 0) {
            refuse(std::string(name) + ": a misaligned array, its address must be a multiple of the element's " +
                   std::to_string(size) + " bytes");
        }
    }

    TensorView view_;
    Py_buffer buffer_{};
    bool has_buffer_ = false;
    nb::object made_;
};

// The views of a tuple of arrays; None and an array without axes are absent.
template <std::size_t count>
class Views {
  public:
    Views(const nb::tuple& arrays, std::span<const char* const> names, bool writable) {
        if (static_cast<std::size_t>(PyTuple_GET_SIZE(arrays.ptr())) != names.size()) {
            raise(PyExc_TypeError, "_core: " + std::to_string(names.size()) + " arrays are needed");
        }
        for (std::size_t at = 0; at < names.size(); ++at) {
            PyObject* array = PyTuple_GET_ITEM(arrays.ptr(), static_cast<Py_ssize_t>(at));
            if (array != Py_None) borrowed_[at].take(array, names[at], writable);
        }
    }
    const TensorView& operator[](std::size_t at) const { return borrowed_[at].view(); }

  private:
    std::array<Borrowed, count> borrowed_;
};

// AttentionParams that owns what its spans point at.
struct Params {
    fascore::AttentionParams params;
    std::vector<std::int64_t> prefix, actual_seq_qlen, actual_seq_kvlen;
};

template <class Enum>
Enum named(std::string_view given, const char* parameter, std::span<const std::pair<std::string_view, Enum>> table) {
    std::string allowed;
    for (const auto& [name, value] : table) {
        if (name == given) return value;
        allowed += (allowed.empty() ? "'" : ", '") + std::string(name) + "'";
    }
    refuse(std::string(parameter) + ": '" + std::string(given) + "', must be one of " + allowed);
}

using fascore::Layout;
using Rule = fascore::MaskRule::Kind;
using fascore::StatisticsOrder;
constexpr std::array<std::pair<std::string_view, Layout>, 5> layouts{
    {{"BNSD", Layout::BNSD}, {"BSND", Layout::BSND}, {"BSH", Layout::BSH}, {"SBH", Layout::SBH}, {"TND", Layout::TND}}};
constexpr std::array<std::pair<std::string_view, Rule>, 4> rules{{{"none", Rule::none},
                                                                  {"causal_top_left", Rule::causal_top_left},
                                                                  {"causal_bottom_right", Rule::causal_bottom_right},
                                                                  {"window", Rule::window}}};
constexpr std::array<std::pair<std::string_view, StatisticsOrder>, 2> orders{
    {{"", StatisticsOrder::by_sequence}, {"same_as_input", StatisticsOrder::by_token}}};

void init_params(Params* self, std::string_view layout, std::int64_t head_num, double scale, int sparse_mode,
                 std::int64_t pre_tokens, std::int64_t next_tokens, std::vector<std::int64_t> prefix, bool check_mask,
                 std::string_view rule, std::int64_t left, std::int64_t right,
                 std::vector<std::int64_t> actual_seq_qlen, std::vector<std::int64_t> actual_seq_kvlen,
                 std::string_view softmax_layout, int pse_type, std::int64_t q_start_idx, std::int64_t kv_start_idx,
                 double keep_prob, std::uint64_t seed, std::uint64_t offset, double softcap, int inner_precise) {
    auto* owner = new (self) Params;
    owner->prefix = std::move(prefix);
    owner->actual_seq_qlen = std::move(actual_seq_qlen);
    owner->actual_seq_kvlen = std::move(actual_seq_kvlen);
    fascore::AttentionParams& p = owner->params;
    p.layout = named<Layout>(layout, "layout", layouts);
    p.head_num = head_num;
    p.scale = scale;
    p.sparse_mode = sparse_mode;
    p.pre_tokens = pre_tokens;
    p.next_tokens = next_tokens;
    p.prefix = owner->prefix;
    p.check_mask = check_mask;
    p.rule = {named<Rule>(rule, "rule", rules), left, right};
    p.actual_seq_qlen = owner->actual_seq_qlen;
    p.actual_seq_kvlen = owner->actual_seq_kvlen;
    p.statistics_order = named<StatisticsOrder>(softmax_layout, "softmax_layout", orders);
    p.pse_type = pse_type;
    p.q_start_idx = q_start_idx;
    p.kv_start_idx = kv_start_idx;
    p.keep_prob = keep_prob;
    p.seed = seed;
    p.offset = offset;
    p.softcap = softcap;
    p.inner_precise = inner_precise;
}

// Keeps an eye on Python while the library works without the lock: signals, and the caller's progress function.
class Watch {
  public:
    explicit Watch(nb::handle progress) : progress_(progress.is_none() ? nullptr : progress.ptr()) {}
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    void attach(Execution& execution) {
        execution.cancel = &cancel_;
        execution.progress = {&Watch::look, this};
        due_ = std::chrono::steady_clock::now() + every;
    }

    /// Raises what a signal handler or the progress function raised.
    void rethrow() {
        if (error_.is_valid()) {
            PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error_.ptr())), error_.ptr());
            throw nb::python_error();
        }
    }

  private:
    static constexpr std::chrono::milliseconds every{100};

    static void look(void* context, std::int64_t done, std::int64_t total) {
        auto& self = *static_cast<Watch*>(context);
        const auto now = std::chrono::steady_clock::now();
        const bool last = done == total && self.progress_ != nullptr;
        if ((now < self.due_ && !last) || self.failed_) return;
        self.due_ = now + every;
        const nb::gil_scoped_acquire lock;
        bool good = PyErr_CheckSignals() == 0;
        if (good && self.progress_ != nullptr) {
            PyObject* answer = PyObject_CallFunction(self.progress_, "LL", static_cast<long long>(done),
                                                     static_cast<long long>(total));
            good = answer != nullptr;
            Py_XDECREF(answer);
        }
        if (good) return;
        PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
        PyErr_Fetch(&type, &value, &trace);
        PyErr_NormalizeException(&type, &value, &trace);
        if (trace != nullptr) PyException_SetTraceback(value, trace);
        self.error_ = nb::steal(value);
        Py_XDECREF(type);
        Py_XDECREF(trace);
        self.failed_ = true;
        self.cancel_.cancel();
    }

    fascore::CancelToken cancel_;
    PyObject* progress_;
    std::chrono::steady_clock::time_point due_;
    bool failed_ = false;
    nb::object error_;
};

void raise_unless_ok(const Status& status) {
    switch (status.code()) {
        case StatusCode::ok: return;
        case StatusCode::invalid_argument:
        case StatusCode::workspace_too_small: refuse(status.message());
        case StatusCode::out_of_memory: raise(PyExc_MemoryError, status.message());
        case StatusCode::cancelled: raise(PyExc_KeyboardInterrupt, status.message());
        case StatusCode::unavailable:
        case StatusCode::internal_error: raise(PyExc_RuntimeError, status.message());
    }
}

template <std::size_t count>
void fill(AttentionInputs& in, const Views<count>& views) {
    const std::array<ConstTensorView*, shared_inputs> fields{
        &in.query, &in.key,       &in.value, &in.query_rope, &in.key_rope,  &in.atten_mask,
        &in.pse,   &in.drop_mask, &in.sink,  &in.d_scale_q,  &in.d_scale_k, &in.d_scale_v};
    for (std::size_t at = 0; at < fields.size(); ++at) *fields[at] = views[at];
}

// A direction's arguments out of their tuples: `in` and `out` are what the library takes.
struct Forward {
    Forward(const nb::tuple& inputs, const nb::tuple& outputs)
        : in_views(inputs, std::span(input_names).first(shared_inputs), false),
          out_views(outputs, forward_output_names, true),
          out{out_views[0], out_views[1], out_views[2]} {
        fill(in, in_views);
    }
    Views<shared_inputs> in_views;
    Views<forward_output_names.size()> out_views;
    ForwardInputs in;
    ForwardOutputs out;

    static constexpr auto run =
        static_cast<Status (*)(const fascore::AttentionParams&, const ForwardInputs&, const ForwardOutputs&,
                               const Execution&) noexcept>(fascore::attention_forward);
    static constexpr auto reference = fascore::reference_forward;
    static constexpr auto plan = fascore::plan_forward;
    static constexpr auto workspace_bytes = fascore::forward_workspace_bytes;
};

struct Backward {
    Backward(const nb::tuple& inputs, const nb::tuple& outputs)
        : in_views(inputs, input_names, false),
          out_views(outputs, backward_output_names, true),
          out{out_views[0], out_views[1], out_views[2], out_views[3], out_views[4], out_views[5], out_views[6]} {
        fill(in, in_views);
        const std::array<ConstTensorView*, input_names.size() - shared_inputs> fields{
            &in.dy, &in.softmax_max, &in.softmax_sum, &in.attention_out, &in.dlse, &in.d_scale_dy};
        for (std::size_t at = 0; at < fields.size(); ++at) *fields[at] = in_views[shared_inputs + at];
    }
    Views<input_names.size()> in_views;
    Views<backward_output_names.size()> out_views;
    BackwardInputs in;
    BackwardOutputs out;

    static constexpr auto run =
        static_cast<Status (*)(const fascore::AttentionParams&, const BackwardInputs&, const BackwardOutputs&,
                               const Execution&) noexcept>(fascore::attention_backward);
    static constexpr auto reference = fascore::reference_backward;
    static constexpr auto plan = fascore::plan_backward;
    static constexpr auto workspace_bytes = fascore::backward_workspace_bytes;
};

template <class Direction>
void run(const Params& params, const nb::tuple& inputs, const nb::tuple& outputs, int threads, std::string_view isa,
         nb::handle progress) {
    const Direction call(inputs, outputs);
    Execution execution;
    execution.threads = threads;
    execution.isa = isa;
    Watch watch(progress);
    watch.attach(execution);
    Status status;
    {
        const nb::gil_scoped_release unlocked;
        status = Direction::run(params.params, call.in, call.out, execution);
    }
    watch.rethrow();
    raise_unless_ok(status);
}

template <class Direction>
void run_reference(const Params& params, const nb::tuple& inputs, const nb::tuple& outputs, bool plain) {
    const Direction call(inputs, outputs);
    Status status;
    {
        const nb::gil_scoped_release unlocked;
        status = Direction::reference(params.params, call.in, call.out,
                                      plain ? fascore::Evaluation::plain : fascore::Evaluation::exact);
    }
    raise_unless_ok(status);
}

template <class Direction>
nb::dict plan(const Params& params, const nb::tuple& inputs, const nb::tuple& outputs, int threads,
              std::string_view isa) {
    const Direction call(inputs, outputs);
    Execution execution;
    execution.threads = threads;
    execution.isa = isa;
    PlanInfo info;
    raise_unless_ok(Direction::plan(params.params, call.in, call.out, execution, info));
    nb::dict result;
    const std::array<std::pair<const char*, std::int64_t>, 12> numbers{{{"B", info.B},
                                                                        {"N1", info.N1},
                                                                        {"N2", info.N2},
                                                                        {"S1", info.S1},
                                                                        {"S2", info.S2},
                                                                        {"D", info.D},
                                                                        {"Dv", info.Dv},
                                                                        {"Br", info.Br},
                                                                        {"Bc", info.Bc},
                                                                        {"tiles_full", info.tiles_full},
                                                                        {"tiles_partial", info.tiles_partial},
                                                                        {"tiles_skipped", info.tiles_skipped}}};
    for (const auto& [name, number] : numbers) result[name] = number;
    result["dtype"] = fascore::name(info.dtype);
    result["isa"] = info.isa;
    result["compute"] = info.compute;
    result["kernel"] = info.kernel;
    result["threads"] = info.threads;
    result["visible_pairs"] = info.visible_pairs;
    result["operations"] = info.operations;
    result["workspace_bytes"] = info.workspace_bytes;
    nb::dict workspace;
    for (const fascore::WorkspaceLine& line : info.workspace) {
        workspace[line.name.c_str()] = line.bytes_each * line.copies;
    }
    result["workspace"] = workspace;
    return result;
}

// Calls `repeat` times without Python between: what a call costs in C++ alone, for measuring the cost of this door.
template <class Direction>
double seconds_alone(const Params& params, const nb::tuple& inputs, const nb::tuple& outputs, int threads, int repeat) {
    const Direction call(inputs, outputs);
    Execution execution;
    execution.threads = threads;
    Status status;
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < repeat && status.ok(); ++round) {
        status = Direction::run(params.params, call.in, call.out, execution);
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    raise_unless_ok(status);
    return spent.count() / repeat;
}

void dropout_keep(std::uint64_t seed, std::uint64_t offset, double keep_prob, std::int64_t first_element,
                  nb::handle keep) {
    Borrowed borrowed;
    borrowed.take(keep.ptr(), "keep", true);
    Status status;
    {
        const nb::gil_scoped_release unlocked;
        status = fascore::dropout_keep(seed, offset, keep_prob, first_element, borrowed.view());
    }
    raise_unless_ok(status);
}

nb::dict info() {
    nb::list isas;
    for (const fascore::IsaInfo& isa : fascore::built_isas()) {
        isas.append(nb::make_tuple(isa.name, isa.needs, isa.runnable));
    }
    nb::dict result;
    result["isas"] = isas;
    std::string isa;
    std::string why;
    raise_unless_ok(fascore::select_isa("", isa, why));
    result["isa"] = isa;
    result["why"] = why;
    int threads = 0;
    raise_unless_ok(fascore::default_threads(threads));
    result["threads"] = threads;
    nb::dict environment;
    for (const fascore::EnvironmentVariable& variable : fascore::environment_variables()) {
        environment[variable.name.c_str()] = variable.set ? nb::object(nb::str(variable.value.c_str())) : nb::none();
    }
    result["environment"] = environment;
    return result;
}

nb::dict measure_peak(std::string_view isa) {
    fascore::Peak peak;
    Status status;
    {
        const nb::gil_scoped_release unlocked;
        status = fascore::measure_peak(isa, peak);
    }
    raise_unless_ok(status);
    nb::dict result;
    result["f32"] = peak.f32;
    result["f64"] = peak.f64;
    result["bf16_dot"] = peak.bf16_dot;
    return result;
}

void set_hooks(nb::handle classify, nb::handle dtype_of, nb::handle invalid_argument) {
    registry.classify = classify.inc_ref().ptr();
    registry.dtype_of = dtype_of.inc_ref().ptr();
    registry.invalid_argument = invalid_argument.inc_ref().ptr();
}

template <class Direction>
void define(nb::module_& m, const char* name) {
    const std::string suffix = name;
    m.def(name, &run<Direction>, "params"_a, "inputs"_a, "outputs"_a, "threads"_a, "isa"_a, "progress"_a.none());
    m.def(("reference_" + suffix).c_str(), &run_reference<Direction>, "params"_a, "inputs"_a, "outputs"_a, "plain"_a);
    m.def(("plan_" + suffix).c_str(), &plan<Direction>, "params"_a, "inputs"_a, "outputs"_a, "threads"_a, "isa"_a);
    m.def((suffix + "_seconds").c_str(), &seconds_alone<Direction>, "params"_a, "inputs"_a, "outputs"_a, "threads"_a,
          "repeat"_a);
}

}  // namespace

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // remembered Params live as long as the process
    m.doc() = "The C++ library behind fascore; use the package's functions instead.";
    registry.kinds = PyDict_New();
    registry.dtypes = PyDict_New();
    registry.invalid_argument = PyExc_ValueError;
    registry.shape = PyUnicode_InternFromString("shape");
    registry.stride = PyUnicode_InternFromString("stride");
    registry.dtype = PyUnicode_InternFromString("dtype");
    registry.data_ptr = PyUnicode_InternFromString("data_ptr");
    registry.is_cpu = PyUnicode_InternFromString("is_cpu");
    registry.view = PyUnicode_InternFromString("view");
    registry.is_neg = PyUnicode_InternFromString("is_neg");
    registry.resolve_neg = PyUnicode_InternFromString("resolve_neg");

    using List = std::vector<std::int64_t>;
    nb::class_<Params>(m, "Params", "AttentionParams of include/fascore/attention.h")
        .def("__init__", &init_params, nb::kw_only(), "layout"_a = "BNSD", "head_num"_a = 0, "scale"_a = 1.0,
             "sparse_mode"_a = 0, "pre_tokens"_a = fascore::unlimited_tokens,
             "next_tokens"_a = fascore::unlimited_tokens, "prefix"_a = List{}, "check_mask"_a = false,
             "rule"_a = "none", "left"_a = -1, "right"_a = -1, "actual_seq_qlen"_a = List{},
             "actual_seq_kvlen"_a = List{}, "softmax_layout"_a = "", "pse_type"_a = 1, "q_start_idx"_a = 0,
             "kv_start_idx"_a = 0, "keep_prob"_a = 1.0, "seed"_a = 0, "offset"_a = 0, "softcap"_a = 0.0,
             "inner_precise"_a = 0);
    define<Forward>(m, "forward");
    define<Backward>(m, "backward");
    m.def("dropout_keep", &dropout_keep, "seed"_a, "offset"_a, "keep_prob"_a, "first_element"_a, "keep"_a);
    m.def("use_huge_pages", &fascore_python::use_huge_pages, "address"_a, "bytes"_a);
    m.def("kept_memory", &fascore_python::kept_memory, "bytes"_a);
    m.def("kept_bytes", &fascore_python::kept_bytes);
    m.def("empty_cache", &fascore_python::empty_cache);
    m.def("info", &info);
    m.def("measure_peak", &measure_peak, "isa"_a = "");
    m.def("set_hooks", &set_hooks, "classify"_a, "dtype_of"_a, "invalid_argument"_a);
    m.attr("__version__") = fascore::version;
}
