# SPDX-License-Identifier: Apache-2.0
"""The canonical calls: FlashAttentionScore and FlashAttentionScoreGrad on NumPy arrays or torch tensors.

Every parameter has the name, the meaning and the default it has in include/fascore/attention.h. This file turns keyword
arguments into a Params object, sizes the outputs and hands everything to fascore._core; it computes nothing.
"""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from . import _core
from ._arrays import (
    EIGHT_BIT,
    as_array,
    bounds,
    dtype_name,
    empty,
    integer,
    integers,
    real,
    required,
    text,
    unsigned,
)
from .errors import InvalidArgument

UNLIMITED_TOKENS = 2147483647
STATISTICS_COPIES = 8
MOST_HEADS = 256


class ForwardResult(NamedTuple):
    """What :func:`flash_attention_score` returns."""

    attention_out: Any
    softmax_max: Any
    softmax_sum: Any


class BackwardResult(NamedTuple):
    """What :func:`flash_attention_score_grad` returns; None = not wanted, or its input was not given."""

    dq: Any
    dk: Any
    dv: Any
    dq_rope: Any = None
    dk_rope: Any = None
    dpse: Any = None
    dsink: Any = None


_SHARED = (
    "query", "key", "value", "query_rope", "key_rope", "atten_mask",
    "pse", "drop_mask", "sink", "d_scale_q", "d_scale_k", "d_scale_v",
)  # fmt: skip
_BACKWARD = ("dy", "softmax_max", "softmax_sum", "attention_out", "dlse", "d_scale_dy")
_GRADIENT_OF = {
    "dq": "query", "dk": "key", "dv": "value", "dq_rope": "query_rope", "dk_rope": "key_rope", "dpse": "pse",
    "dsink": "sink",
}  # fmt: skip
_OUT_DTYPES = {0: "f16", 1: "bf16", "f16": "f16", "bf16": "bf16", "f32": "f32"}

_PARAMETERS: dict[str, Any] = {
    "layout": "BNSD",
    "head_num": 0,
    "scale": 1.0,
    "sparse_mode": 0,
    "pre_tokens": UNLIMITED_TOKENS,
    "next_tokens": UNLIMITED_TOKENS,
    "prefix": None,
    "check_mask": False,
    "rule": "none",
    "window": None,
    "actual_seq_qlen": None,
    "actual_seq_kvlen": None,
    "softmax_layout": "",
    "pse_type": 1,
    "q_start_idx": 0,
    "kv_start_idx": 0,
    "keep_prob": 1.0,
    "seed": 0,
    "offset": 0,
    "softcap": 0.0,
    "inner_precise": 0,
}
_BITS = {
    "head_num": 64, "sparse_mode": 32, "pre_tokens": 64, "next_tokens": 64, "left": 64, "right": 64, "pse_type": 32,
    "q_start_idx": 64, "kv_start_idx": 64, "inner_precise": 32,
}  # fmt: skip
_UNSIGNED = ("seed", "offset")
_REALS = ("scale", "keep_prob", "softcap")
_LISTS = ("prefix", "actual_seq_qlen", "actual_seq_kvlen")
_TEXTS = ("layout", "rule", "softmax_layout")
_MOST_REMEMBERED = 1024

_remembered: dict[tuple[Any, ...], _core.Params] = {}


def remembered(given: Mapping[str, Any], make: Callable[[Mapping[str, Any]], _core.Params]) -> _core.Params:
    """make(given); the Params of the last calls are remembered, for short calls.

    Types belong to the key, for 1.0 equals 1 and is refused where 1 is not; what holds other values is made each time.
    """
    values = given.values()
    kinds = tuple(map(type, values))
    key = (*given, *values, kinds)
    try:
        known = _remembered.get(key)
    except TypeError:  # a list or an array among them
        return make(given)
    if known is None:
        known = make(given)
        if len(_remembered) >= _MOST_REMEMBERED:
            _remembered.clear()
        if tuple not in kinds:
            _remembered[key] = known
    return known


def new_params(given: Mapping[str, Any]) -> _core.Params:
    """A Params object from parameters by name, with checks for type and range of the C++ fields.

    A window may also come as the fields it becomes, left and right.
    """
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name in _PARAMETERS and value is _PARAMETERS[name]:
            continue  # the default, as the C++ side has it
        if name in _LISTS:
            value = integers(value, name)
        elif name in _REALS:
            value = real(value, name)
        elif name in _UNSIGNED:
            value = unsigned(value, name)
        elif name in _BITS:
            value = integer(value, name, _BITS[name])
        elif name == "window":
            fields["left"], fields["right"] = bounds(value, name)
            name, value = "rule", "window"
            if given.get("rule", "none") not in ("none", "window"):
                raise InvalidArgument(f"window: given with rule '{given['rule']}', must stand alone")
        elif name in _TEXTS:
            value = text(value, name)
        else:
            value = bool(value)
        fields[name] = value
    return _core.Params(**fields)


class Shapes(NamedTuple):
    """Shapes of a call's results. Where the inputs do not fit each other it holds a guess: the library refuses them."""

    attention_out: tuple[int, ...]
    statistics: tuple[int, ...]  # without the axis of copies


def output_shapes(layout: str, head_num: int, query: Any, key: Any, value: Any) -> Shapes:
    q, k, v = tuple(query.shape), tuple(key.shape), tuple(value.shape)
    rank = 4 if layout in ("BNSD", "BSND") else 3
    if len(q) != rank or len(k) != rank or len(v) != rank:
        return Shapes(q, q[:-1])
    if layout == "BNSD":
        return Shapes((*q[:3], v[3]), q[:3])
    if layout == "BSND":
        return Shapes((*q[:3], v[3]), (q[0], q[2], q[1]))
    if layout == "TND":
        return Shapes((*q[:2], v[2]), q[:2])
    if not 0 < head_num <= MOST_HEADS:
        return Shapes(q, q[:-1])
    batch, rows = (q[0], q[1]) if layout == "BSH" else (q[1], q[0])
    head_size = q[2] // head_num
    kv_heads = k[2] // head_size if head_size > 0 else 0
    value_size = v[2] // kv_heads if kv_heads > 0 else head_size
    return Shapes((*q[:2], head_num * value_size), (batch, head_num, rows))


def _checked(out: Mapping[str, Any] | None, names: Sequence[str]) -> Mapping[str, Any]:
    if out is None:
        return {}
    if not isinstance(out, Mapping):
        raise TypeError(f"out: {type(out).__name__}, must be a mapping of {', '.join(names)} to arrays")
    for name in out:
        if name not in names:
            raise TypeError(f"out: '{name}', must be one of {', '.join(names)}")
    return out


def _wanted(want: Sequence[str] | None, named: Mapping[str, Any]) -> Sequence[str]:
    if want is None:
        return [name for name, of in _GRADIENT_OF.items() if named[of] is not None]
    if isinstance(want, str) or not isinstance(want, Iterable):
        raise TypeError(f"want: {want!r}, must be a sequence of names among {', '.join(_GRADIENT_OF)}")
    want = list(want)
    for name in want:
        if not isinstance(name, str) or name not in _GRADIENT_OF:
            raise InvalidArgument(f"want: {name!r}, must be among {', '.join(_GRADIENT_OF)}")
        if named[_GRADIENT_OF[name]] is None:
            raise InvalidArgument(f"want: '{name}' without {_GRADIENT_OF[name]}, which must be given")
    return want


def _dtype_of(array: Any, name: str) -> str:
    try:
        return dtype_name(array.dtype)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def _statistics_dtype(name: str) -> str:
    return "f64" if name == "f64" else "f32"


def _out_dtype(given: Any, query_dtype: str) -> str:
    if given is None:
        return "f16" if query_dtype in EIGHT_BIT else query_dtype
    if not isinstance(given, (numbers.Integral, str)) or given not in _OUT_DTYPES:
        raise InvalidArgument(f"out_dtype: {given!r}, must be 0 (f16), 1 (bf16), 'f16', 'bf16' or 'f32'")
    return _OUT_DTYPES[given]


def _progress(progress: Any, what: str) -> tuple[Callable[[int, int], object] | None, Callable[[], None]]:
    """The function the library calls, and one that closes what was opened."""
    if progress is None or progress is False:
        return None, lambda: None
    if progress is not True:
        if not callable(progress):
            raise TypeError(f"progress: {progress!r}, must be True, False or a function of (done, total)")
        return progress, lambda: None
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError("progress=True needs the package tqdm; or pass a function of (done, total)") from error
    bar = tqdm(total=1, desc=what, unit="tile")

    def show(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    return show, bar.close


class _Call(NamedTuple):
    """A call taken apart: what _core wants."""

    params: _core.Params
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


def _split(given: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], list[Any]]:
    parameters = {
        name: value for name, default in _PARAMETERS.items() if (value := given.get(name, default)) is not default
    }
    arrays = [required(given.get(name), name) for name in names[:3]]
    arrays += [None if (array := given.get(name)) is None else as_array(array, name) for name in names[3:]]
    return parameters, arrays


def prepare_forward(given: Mapping[str, Any], *, reference: bool = False) -> _Call:
    parameters, inputs = _split(given, _SHARED)
    params = remembered(parameters, new_params)
    query, key, value = inputs[:3]
    query_dtype = _dtype_of(query, "query")
    shapes = output_shapes(parameters.get("layout", "BNSD"), parameters.get("head_num", 0), query, key, value)
    out = _checked(given.get("out"), ForwardResult._fields)
    kept = as_array(out.get("attention_out"), "attention_out")
    if kept is None:
        dtype = "f64" if reference else _out_dtype(given.get("out_dtype"), query_dtype)
        kept = empty(query, shapes.attention_out, dtype)
    outputs = [kept]
    for name in ("softmax_max", "softmax_sum"):
        array = as_array(out.get(name), name)
        if array is None:
            dtype = "f64" if reference else _statistics_dtype(query_dtype)
            array = empty(query, (*shapes.statistics, STATISTICS_COPIES), dtype)
        outputs.append(array)
    return _Call(params, tuple(inputs), tuple(outputs))


def prepare_backward(given: Mapping[str, Any], *, reference: bool = False) -> _Call:
    parameters, inputs = _split(given, _SHARED + _BACKWARD)
    params = remembered(parameters, new_params)
    named = dict(zip(_SHARED + _BACKWARD, inputs, strict=True))
    query_dtype = _dtype_of(named["query"], "query")
    out = _checked(given.get("out"), BackwardResult._fields)
    want = _wanted(given.get("want"), named)
    outputs = []
    for name, of in _GRADIENT_OF.items():
        array = as_array(out.get(name), name)
        if array is None and name in want:
            source = named[of]
            dtype = _dtype_of(source, of)
            if reference:
                dtype = "f64"
            elif of not in ("pse", "sink") and query_dtype in EIGHT_BIT:
                dtype = _out_dtype(given.get("out_dtype"), query_dtype)
            array = empty(named["query"], tuple(source.shape), dtype)
        outputs.append(array)
    return _Call(params, tuple(inputs), tuple(outputs))


def _execution(threads: Any, isa: Any) -> tuple[int, str]:
    return integer(threads, "threads", 32), text(isa, "isa")


def _run(entry: Callable[..., None], call: _Call, given: Mapping[str, Any], what: str) -> None:
    progress, close = _progress(given["progress"], what)
    try:
        entry(call.params, call.inputs, call.outputs, *_execution(given["threads"], given["isa"]), progress)
    finally:
        close()


def flash_attention_score(
    query: Any,
    key: Any,
    value: Any,
    *,
    layout: str = "BNSD",
    head_num: int = 0,
    scale: float = 1.0,
    atten_mask: Any = None,
    sparse_mode: int = 0,
    pre_tokens: int = UNLIMITED_TOKENS,
    next_tokens: int = UNLIMITED_TOKENS,
    prefix: Sequence[int] | None = None,
    check_mask: bool = False,
    rule: str = "none",
    window: tuple[int, int] | None = None,
    pse: Any = None,
    pse_type: int = 1,
    q_start_idx: int = 0,
    kv_start_idx: int = 0,
    drop_mask: Any = None,
    keep_prob: float = 1.0,
    seed: int = 0,
    offset: int = 0,
    softcap: float = 0.0,
    query_rope: Any = None,
    key_rope: Any = None,
    sink: Any = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    softmax_layout: str = "",
    d_scale_q: Any = None,
    d_scale_k: Any = None,
    d_scale_v: Any = None,
    out_dtype: int | str | None = None,
    inner_precise: int = 0,
    out: Mapping[str, Any] | None = None,
    threads: int = 0,
    isa: str = "",
    progress: bool | Callable[[int, int], object] = False,
) -> ForwardResult:
    """Exact fused attention (FlashAttentionScore) with the row statistics its gradient needs.

    ``P = softmax(scale * query @ key.T + bias)`` over the visible pairs, ``attention_out = P @ value``; see
    docs/operator.md for every formula. Arrays are NumPy arrays or torch CPU tensors, any strides, never copied.

    Letters: B batch, N1 query heads, N2 key/value heads (N1 % N2 = 0), S1/S2 query/key length, D and Dv head sizes.

    Parameters
    ----------
    query, key, value
        f64, f32, bf16, f16 or an 8-bit float, all one dtype. Shapes by `layout`:
        BNSD ``[B,N,S,D]``, BSND ``[B,S,N,D]``, BSH ``[B,S,N*D]``, SBH ``[S,B,N*D]`` (both need `head_num` = N1),
        TND ``[T,N,D]`` with `actual_seq_qlen` and `actual_seq_kvlen`, the cumulative ends (no leading 0).
    scale
        Used as given, never replaced by 1/sqrt(D).
    atten_mask, sparse_mode, pre_tokens, next_tokens, prefix, check_mask
        Mask tensor (bool or u8, **non-zero = masked out**) and how it is meant; without a mask these do nothing.
    rule, window
        A rule that needs no mask: "none", "causal_top_left", "causal_bottom_right", or ``window=(left, right)``
        counted from the bottom right diagonal, -1 = no bound.
    pse, pse_type, q_start_idx, kv_start_idx
        Position bias ``[B|1,N1|1,S1|1,S2]`` added after (0) or before (1) the scale, or f32 slopes (2, 3).
    drop_mask, keep_prob, seed, offset
        Dropout of the weights: a bit mask (1 = keep), or drawn from seed and offset when it is absent.
    softcap
        ``c * tanh(z / c)`` of the scaled scores, 0 = none.
    query_rope, key_rope
        Dr more columns of query and key, as if appended.
    sink
        ``[N1]`` f32, one more logit a head in the denominator.
    d_scale_q, d_scale_k, d_scale_v, out_dtype
        8-bit inputs: dequantisation factors; dtype of the result, 0 = f16 (default), 1 = bf16, or "f32".
        For 16-bit inputs out_dtype "f32" gives the unrounded result.
    softmax_layout
        Order of the TND statistics: "" by sequence, "same_as_input" by token.
    out
        Arrays to write into, by name of the result.
    threads, isa
        0 and "" choose; the values depend on neither (isa: by rounding only).
    progress
        True shows a tqdm bar; a function is called with (done, total).

    Returns
    -------
    ForwardResult
        attention_out (query's shape with Dv), softmax_max and softmax_sum ``[B,N1,S1,8]`` f32 (TND ``[T,N1,8]``;
        f64 for f64), eight equal copies.

    Raises
    ------
    InvalidArgument (a ValueError)
        ``<parameter>: <given>, <allowed>``; no output was touched.
    TypeError
        Not an array, or a dtype fascore does not know.
    MemoryError, KeyboardInterrupt
        The workspace cannot be had; Ctrl-C while it ran.

    Source: CANN's aclnnFlashAttentionScore family; include/fascore/attention.h.
    """
    given = locals()
    call = prepare_forward(given)
    _run(_core.forward, call, given, "attention")
    return ForwardResult(*call.outputs)


def flash_attention_score_grad(
    query: Any,
    key: Any,
    value: Any,
    dy: Any,
    softmax_max: Any,
    softmax_sum: Any,
    attention_out: Any,
    *,
    layout: str = "BNSD",
    head_num: int = 0,
    scale: float = 1.0,
    atten_mask: Any = None,
    sparse_mode: int = 0,
    pre_tokens: int = UNLIMITED_TOKENS,
    next_tokens: int = UNLIMITED_TOKENS,
    prefix: Sequence[int] | None = None,
    check_mask: bool = False,
    rule: str = "none",
    window: tuple[int, int] | None = None,
    pse: Any = None,
    pse_type: int = 1,
    q_start_idx: int = 0,
    kv_start_idx: int = 0,
    drop_mask: Any = None,
    keep_prob: float = 1.0,
    seed: int = 0,
    offset: int = 0,
    softcap: float = 0.0,
    query_rope: Any = None,
    key_rope: Any = None,
    sink: Any = None,
    dlse: Any = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    softmax_layout: str = "",
    d_scale_q: Any = None,
    d_scale_k: Any = None,
    d_scale_v: Any = None,
    d_scale_dy: Any = None,
    out_dtype: int | str | None = None,
    inner_precise: int = 0,
    want: Sequence[str] | None = None,
    out: Mapping[str, Any] | None = None,
    threads: int = 0,
    isa: str = "",
    progress: bool | Callable[[int, int], object] = False,
) -> BackwardResult:
    """Gradient of :func:`flash_attention_score` (FlashAttentionScoreGrad).

    Parameters are those of the forward, and must be given as they were there, and

    dy
        Gradient of attention_out, query's shape with Dv, query's dtype.
    softmax_max, softmax_sum, attention_out
        What the forward returned. Used as given, in any of the shapes ``[B,N1,S1,8]``, ``[B,N1,S1,1]``, ``[B,N1,S1]``
        (the first of 8 copies is read); max = log-sum-exp and sum = 1 serve as well.
    dlse
        Gradient of ``softmax_max + log(softmax_sum)``, shaped as the statistics.
    want
        Names of the gradients to compute; the others are None and their share of the work is not done.
        Default: of every input that was given.
    out
        Arrays to write into, by name of the gradient.

    Returns
    -------
    BackwardResult
        dq, dk, dv, dq_rope, dk_rope, dpse, dsink in the shapes and dtypes of their inputs (8-bit inputs: out_dtype).
        dpse is summed over the axes pse was broadcast along.

    Raises as the forward does.

    Source: CANN's aclnnFlashAttentionScoreGrad family; include/fascore/attention.h.
    """
    given = locals()
    call = prepare_backward(given)
    _run(_core.backward, call, given, "gradient")
    return BackwardResult(*call.outputs)


@functools.cache
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def plan(direction: str, *args: Any, threads: int = 0, isa: str = "", **parameters: Any) -> dict[str, Any]:
    """What a call would do, without doing it: block sizes, tiles skipped, bytes of workspace, operations, the kernel.

    ``plan("forward", query, key, value, ...)`` or ``plan("backward", query, key, value, dy, softmax_max, softmax_sum,
    attention_out, ...)`` with the parameters of the call.
    """
    kinds = {
        "forward": (flash_attention_score, prepare_forward, _core.plan_forward),
        "backward": (flash_attention_score_grad, prepare_backward, _core.plan_backward),
    }
    if direction not in kinds:
        raise InvalidArgument(f"direction: {direction!r}, must be 'forward' or 'backward'")
    function, prepare, entry = kinds[direction]
    call = prepare(signature_of(function).bind(*args, **parameters).arguments)
    return entry(call.params, call.inputs, call.outputs, *_execution(threads, isa))
