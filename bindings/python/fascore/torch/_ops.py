# SPDX-License-Identifier: Apache-2.0
"""The two custom operators every torch front end of fascore calls.

    fascore::attention           12 tensors (3 needed), the parameters -> attention_out, softmax_max, softmax_sum, lse
    fascore::attention_backward  the same and dy, dlse, the results        -> 7 gradients, each empty when not wanted

Both have fake implementations (shapes and strides without data), so torch.compile and torch.export see through them;
attention is differentiable, attention_backward is not; neither has forward-mode derivatives, and says so. Results of
the forward that are asked for by nobody cost nothing: lse is empty unless `return_lse`. All results are tensors, not
lists of them, so that torch's own loop serves where a batch of calls is asked for (vmap, is_grads_batched).

Sequence ends and the dropout state are tensors, not numbers, so that a compiled graph does not depend on their values:
`rng` is int64 (seed, offset), and actual_seq_* may start with a 0 (`leading_zero`), as flash_attn's cu_seqlens do.

In plain eager mode the dispatcher's detour (tens of microseconds through Python) is not taken: the same kernels are
called through one torch.autograd.Function. Under torch.func the operators are called through two others, for theirs
have no setup_context; torch.jit.trace records the operators.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _core
from .._arrays import give_memory
from .._operator import MOST_HEADS, new_params, remembered
from ..errors import InvalidArgument

FLT_MAX = float(torch.finfo(torch.float32).max)

TENSORS = (
    "query", "key", "value", "query_rope", "key_rope", "pse", "sink",  # these seven are differentiable
    "atten_mask", "drop_mask", "actual_seq_qlen", "actual_seq_kvlen", "rng",
)  # fmt: skip
DIFFERENTIABLE = 7
_BACKWARD_TENSORS = ("dy", "dlse", "attention_out", "softmax_max", "softmax_sum", *TENSORS)

_PARAMETERS = (
    "str layout='BNSD', SymInt head_num=0, float scale=1.0, int sparse_mode=0, int pre_tokens=2147483647, "
    "int next_tokens=2147483647, int[]? prefix=None, str rule='none', SymInt left=-1, SymInt right=-1, "
    "bool leading_zero=False, str softmax_layout='', int pse_type=1, SymInt q_start_idx=0, SymInt kv_start_idx=0, "
    "float keep_prob=1.0, float softcap=0.0, int inner_precise=0, int copies=1"
)
DEFAULTS: dict[str, Any] = {
    "layout": "BNSD",
    "head_num": 0,
    "scale": 1.0,
    "sparse_mode": 0,
    "pre_tokens": 2147483647,
    "next_tokens": 2147483647,
    "prefix": None,
    "rule": "none",
    "left": -1,
    "right": -1,
    "leading_zero": False,
    "softmax_layout": "",
    "pse_type": 1,
    "q_start_idx": 0,
    "kv_start_idx": 0,
    "keep_prob": 1.0,
    "softcap": 0.0,
    "inner_precise": 0,
    "copies": 1,
}
_INPUTS = (
    "Tensor query, Tensor key, Tensor value, Tensor? query_rope, Tensor? key_rope, Tensor? pse, Tensor? sink, "
    "Tensor? atten_mask, Tensor? drop_mask, Tensor? actual_seq_qlen, Tensor? actual_seq_kvlen, Tensor? rng"
)

torch.library.define(
    "fascore::attention",
    f"({_INPUTS}, *, {_PARAMETERS}, bool return_lse=False) -> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    "fascore::attention_backward",
    f"(Tensor dy, Tensor? dlse, Tensor attention_out, Tensor softmax_max, Tensor softmax_sum, {_INPUTS}, "
    f"bool[] want, *, {_PARAMETERS}) -> ({', '.join(['Tensor'] * DIFFERENTIABLE)})",
)


# --- sizes of the results, the same for real and fake tensors ------------------------------------------------------


def _out_like(source: Tensor, layout: str, columns: Any) -> Tensor:
    """Uninitialised, source's shape with `columns`; in layout BNSD stored as source is, heads in rows or around."""
    if source.shape[-1] == columns and source.is_contiguous():
        return torch.empty_like(source, memory_format=torch.contiguous_format)
    shape = list(source.shape)
    shape[-1] = columns
    if layout == "BNSD" and len(shape) == 4 and source.stride(1) < source.stride(2):
        shape[1], shape[2] = shape[2], shape[1]
        return source.new_empty(shape).transpose(1, 2)
    return source.new_empty(shape)


def _allocate_out(query: Tensor, key: Tensor, value: Tensor, layout: str, head_num: Any) -> tuple[Tensor, Any]:
    """attention_out, and the shape of the statistics without their copies."""
    rank = 4 if layout in ("BNSD", "BSND") else 3
    if not query.dim() == key.dim() == value.dim() == rank:
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if tensor.dim() != rank:
                raise InvalidArgument(f"{name}: {tensor.dim()} axes, must have {rank} in layout {layout}")
    if rank == 4 or layout == "TND":
        columns = value.shape[-1]
        rows = query.shape[:-1]
        if layout == "BSND":
            rows = (rows[0], rows[2], rows[1])
    else:
        if not 0 < head_num <= MOST_HEADS:
            raise InvalidArgument(f"head_num: {head_num}, must be 1 to {MOST_HEADS} in layout {layout}")
        head_size = query.shape[2] // head_num
        kv_heads = key.shape[2] // head_size if head_size > 0 else 0
        columns = head_num * (value.shape[2] // kv_heads if kv_heads > 0 else head_size)
        batch, length = (0, 1) if layout == "BSH" else (1, 0)
        rows = (query.shape[batch], head_num, query.shape[length])
    return _out_like(query, layout, columns), rows


def _allocate(query: Tensor, key: Tensor, value: Tensor, layout: str, head_num: Any, copies: int) -> tuple[Tensor, ...]:
    out, rows = _allocate_out(query, key, value, layout, head_num)
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    shape = rows if copies == 1 else (*rows, copies)
    return out, query.new_empty(shape, dtype=dtype), query.new_empty(shape, dtype=dtype)


# --- kernels ---------------------------------------------------------------------------------------------------------


def _ends(ends: Tensor | None, leading_zero: bool, name: str) -> list[int]:
    if ends is None:
        return []
    if ends.dtype not in (torch.int32, torch.int64) or ends.dim() != 1:
        raise InvalidArgument(f"{name}: {ends.dtype} with {ends.dim()} axes, must be int32 or int64 with one")
    values = ends.tolist()
    if leading_zero:
        if not values or values[0] != 0:
            raise InvalidArgument(f"{name}: starts with {values[:1]}, must start with 0")
        del values[0]
    return values


def _threads() -> int:
    """torch's count, so that torch.set_num_threads and DataLoader workers are obeyed; 0 where the user set ours."""
    return 0 if os.environ.get("FASCORE_NUM_THREADS") else min(torch.get_num_threads(), 1024)


def _numbers(given: Mapping[str, Any]) -> _core.Params:
    return new_params({name: value for name, value in given.items() if name not in ("leading_zero", "copies")})


def _params(ends_q: Tensor | None, ends_kv: Tensor | None, rng: Tensor | None, given: dict[str, Any]) -> _core.Params:
    """The Params of a call; those without data of their own are remembered."""
    if ends_q is None and ends_kv is None and rng is None:
        return remembered(given, _numbers)
    fields = dict(given)
    if ends_q is not None or ends_kv is not None:
        leading_zero = given.get("leading_zero", False)
        fields["actual_seq_qlen"] = _ends(ends_q, leading_zero, "actual_seq_qlen")
        fields["actual_seq_kvlen"] = _ends(ends_kv, leading_zero, "actual_seq_kvlen")
    if rng is not None:
        fields["seed"], fields["offset"] = rng.tolist()
    return _numbers(fields)


_NO_FORWARD_MODE = "forward-mode differentiation of fascore's attention is not implemented"


def _has_tangent(tensor: Tensor) -> bool:
    try:
        return forward_ad.unpack_dual(tensor).tangent is not None
    except RuntimeError:  # below torch.func.linearize, which carries them apart
        return False


def _refuse_tangents(names: Sequence[str], tensors: Sequence[Tensor | None]) -> None:
    """A kernel sees plain numbers: a tangent would be lost without a word."""
    if forward_ad._current_level < 0:
        return
    for name, tensor in zip(names, tensors, strict=False):
        if tensor is not None and _has_tangent(tensor):
            raise NotImplementedError(f"{name}: has a tangent, {_NO_FORWARD_MODE}")


def _forward_out(
    tensors: tuple[Tensor | None, ...], *, return_lse: bool = False, **given: Any
) -> tuple[Tensor, None, None, None]:
    """attention_out alone, for short calls nobody differentiates."""
    query, key, value, query_rope, key_rope, pse, sink, atten_mask, drop_mask, seq_q, seq_kv, rng = tensors
    params = _params(seq_q, seq_kv, rng, given)
    out = _allocate_out(query, key, value, given.get("layout", "BNSD"), given.get("head_num", 0))[0]
    inputs = (query, key, value, query_rope, key_rope, atten_mask, pse, drop_mask, sink, None, None, None)
    _refuse_tangents(TENSORS, tensors)
    give_memory((out,))
    _core.forward(params, inputs, (out, None, None), _threads(), "", None)
    return out, None, None, None


def _log_sum_exp(softmax_max: Tensor, softmax_sum: Tensor, copies: int) -> Tensor:
    if copies != 1:
        softmax_max, softmax_sum = softmax_max[..., 0], softmax_sum[..., 0]
    lse = softmax_sum.log().add_(softmax_max)
    return lse.masked_fill_(softmax_sum == FLT_MAX, float("-inf"))  # rows without a key


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_rope: Tensor | None,
    key_rope: Tensor | None,
    pse: Tensor | None,
    sink: Tensor | None,
    atten_mask: Tensor | None,
    drop_mask: Tensor | None,
    actual_seq_qlen: Tensor | None,
    actual_seq_kvlen: Tensor | None,
    rng: Tensor | None,
    *,
    return_lse: bool = False,
    **given: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    layout, head_num = given.get("layout", "BNSD"), given.get("head_num", 0)
    copies = given.get("copies", 1)
    params = _params(actual_seq_qlen, actual_seq_kvlen, rng, given)
    outputs = _allocate(query, key, value, layout, head_num, copies)
    inputs = (query, key, value, query_rope, key_rope, atten_mask, pse, drop_mask, sink, None, None, None)
    _refuse_tangents(TENSORS, (query, key, value, query_rope, key_rope, pse, sink))
    give_memory(outputs)
    _core.forward(params, inputs, outputs, _threads(), "", None)
    lse = _log_sum_exp(outputs[1], outputs[2], copies) if return_lse else outputs[1].new_empty((0,))
    return *outputs, lse


def _backward(
    dy: Tensor,
    dlse: Tensor | None,
    attention_out: Tensor,
    softmax_max: Tensor,
    softmax_sum: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_rope: Tensor | None,
    key_rope: Tensor | None,
    pse: Tensor | None,
    sink: Tensor | None,
    atten_mask: Tensor | None,
    drop_mask: Tensor | None,
    actual_seq_qlen: Tensor | None,
    actual_seq_kvlen: Tensor | None,
    rng: Tensor | None,
    want: list[bool],
    **given: Any,
) -> tuple[Tensor, ...]:
    _refuse_tangents(
        _BACKWARD_TENSORS,
        (dy, dlse, attention_out, softmax_max, softmax_sum, query, key, value, query_rope, key_rope, pse, sink),
    )
    params = _params(actual_seq_qlen, actual_seq_kvlen, rng, given)
    inputs = (
        query, key, value, query_rope, key_rope, atten_mask, pse, drop_mask, sink, None, None, None,
        dy, softmax_max, softmax_sum, attention_out, dlse, None,
    )  # fmt: skip
    results = _gradients((query, key, value, query_rope, key_rope, pse, sink), want, given.get("layout", "BNSD"))
    outputs = tuple([result if wanted else None for result, wanted in zip(results, want, strict=True)])
    give_memory(outputs)
    _core.backward(params, inputs, outputs, _threads(), "", None)
    return results


def _gradients(sources: tuple[Tensor | None, ...], want: list[bool], layout: str) -> tuple[Tensor, ...]:
    """Uninitialised gradients; empty where none is wanted (an operator cannot return None)."""
    results = []
    for at, (source, wanted) in enumerate(zip(sources, want, strict=True)):
        if not wanted or source is None:
            results.append(sources[0].new_empty((0,)))
        elif at < 5:
            results.append(_out_like(source, layout, source.shape[-1]))
        else:
            results.append(source.new_empty(source.shape))
    return tuple(results)


def _forward_fake(query: Tensor, key: Tensor, value: Tensor, *_: Any, return_lse: bool = False, **given: Any) -> Any:
    parameters = {**DEFAULTS, **given}
    copies = parameters["copies"]
    outputs = _allocate(query, key, value, parameters["layout"], parameters["head_num"], copies)
    statistics = outputs[1] if copies == 1 else outputs[1][..., 0]
    return *outputs, outputs[1].new_empty(statistics.shape if return_lse else (0,))


def _backward_fake(
    dy: Tensor,
    dlse: Tensor | None,
    attention_out: Tensor,
    softmax_max: Tensor,
    softmax_sum: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_rope: Tensor | None,
    key_rope: Tensor | None,
    pse: Tensor | None,
    sink: Tensor | None,
    atten_mask: Tensor | None,
    drop_mask: Tensor | None,
    actual_seq_qlen: Tensor | None,
    actual_seq_kvlen: Tensor | None,
    rng: Tensor | None,
    want: list[bool],
    **given: Any,
) -> tuple[Tensor, ...]:
    layout = given.get("layout", "BNSD")
    return _gradients((query, key, value, query_rope, key_rope, pse, sink), want, layout)


# --- autograd --------------------------------------------------------------------------------------------------------


def _setup_context(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    ctx.set_materialize_grads(False)
    _save(ctx, inputs, keyword_only_inputs, output)


def _save(ctx: Any, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
    out, softmax_max, softmax_sum, lse = output
    ctx.with_lse = keywords.get("return_lse", False)
    ctx.parameters = {name: value for name, value in keywords.items() if name != "return_lse"}
    ctx.save_for_backward(out, softmax_max, softmax_sum, *inputs)
    if ctx.with_lse:
        ctx.mark_non_differentiable(softmax_max, softmax_sum)
    else:
        ctx.mark_non_differentiable(softmax_max, softmax_sum, lse)


def _gradient(ctx: Any, backward: Any, dy: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    none = (None,) * len(TENSORS)
    want = [bool(needed) for needed in ctx.needs_input_grad[-len(TENSORS) :][:DIFFERENTIABLE]]
    if (dy is None and dlse is None) or not any(want):
        return none
    out, softmax_max, softmax_sum, *inputs = ctx.saved_tensors
    if dy is None:
        dy = torch.zeros_like(out)
    gradients = backward(dy, dlse, out, softmax_max, softmax_sum, *inputs, want, **ctx.parameters)
    return *(g if w else None for g, w in zip(gradients, want, strict=True)), *none[DIFFERENTIABLE:]


def _backward_of_op(ctx: Any, dy: Tensor | None, dmax: Any, dsum: Any, dlse: Tensor | None) -> Any:
    return _gradient(ctx, attention_backward, dy, dlse)


def _second_derivative(ctx: Any, *gradients: Any) -> Any:
    raise NotImplementedError("fascore: the second derivative of attention is not implemented")


torch.library.impl("fascore::attention", "CPU", _forward)
torch.library.impl("fascore::attention_backward", "CPU", _backward)
torch.library.register_fake("fascore::attention", _forward_fake)
torch.library.register_fake("fascore::attention_backward", _backward_fake)
torch.library.register_autograd("fascore::attention", _backward_of_op, setup_context=_setup_context)
torch.library.register_autograd("fascore::attention_backward", _second_derivative)


def _one_by_one(operator: Any) -> Any:
    """vmap's rule: call after call, as torch's own loop does, but without its warning."""

    def rule(info: Any, in_dims: tuple[Any, ...], *arguments: Any, **keywords: Any) -> Any:
        def member(at: int) -> list[Any]:
            pairs = zip(arguments, in_dims, strict=True)
            return [argument.select(dim, at) if isinstance(dim, int) else argument for argument, dim in pairs]

        results = zip(*(operator(*member(at), **keywords) for at in range(info.batch_size)), strict=True)
        stacked = tuple(torch.stack(parts) for parts in results)
        return stacked, (0,) * len(stacked)

    return rule


torch.library.register_vmap("fascore::attention", _one_by_one(torch.ops.fascore.attention.default))
torch.library.register_vmap("fascore::attention_backward", _one_by_one(torch.ops.fascore.attention_backward.default))


class _ReverseOnly(torch.autograd.Function):
    """A function without a forward-mode derivative, which says so."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(_NO_FORWARD_MODE)


class _Attention(_ReverseOnly):
    """fascore::attention for plain eager mode."""

    @staticmethod
    def forward(ctx: Any, keywords: dict[str, Any], *tensors: Tensor | None) -> Any:
        output = _forward(*tensors, **keywords)
        _setup_context(ctx, tensors, keywords, output)
        return output

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, dmax: Any, dsum: Any, dlse: Tensor | None) -> Any:
        # Under create_graph the operator goes on the tape: whoever differentiates it is told that this is not there.
        plain = not torch.is_grad_enabled() and _plain_eager((dy, dlse)) and _dense(dy) and _dense(dlse)
        return None, *_gradient(ctx, _backward if plain else attention_backward, dy, dlse)


class _TransformedAttention(_ReverseOnly):
    """fascore::attention under torch.func: vmap loops over the operators."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keywords: dict[str, Any], *tensors: Tensor | None) -> Any:
        return torch.ops.fascore.attention.default(*tensors, **keywords)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        keywords, *tensors = inputs
        _save(ctx, tuple(tensors), keywords, output)

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dmax: Any, dsum: Any, dlse: Tensor) -> Any:
        return None, *_gradient(ctx, attention_backward, dy, dlse if ctx.with_lse else None)


class _TransformedGradient(_ReverseOnly):
    """fascore::attention_backward under torch.func."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keywords: dict[str, Any], want: list[bool], *tensors: Tensor | None) -> Any:
        return torch.ops.fascore.attention_backward.default(*tensors, want, **keywords)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    backward = staticmethod(_second_derivative)


_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter, type(None))


def _plain_eager(tensors: tuple[Tensor | None, ...]) -> bool:
    if torch.compiler.is_compiling():
        return False
    c = torch._C
    if c._len_torch_dispatch_stack() or c._len_torch_function_stack() or c._are_functorch_transforms_active():
        return False
    if c._is_tracing():
        return False
    for tensor in tensors:
        if type(tensor) not in _PLAIN_TYPES or (tensor is not None and not tensor.is_cpu):
            return False
    return True


def _dispatch_keys(tensor: Tensor) -> int:
    return torch._C._dispatch_keys(tensor).raw_repr()


_MEMORY = _dispatch_keys(torch.empty(0))


def _dense(tensor: Tensor | None) -> bool:
    """Whether it is memory and no more: not a batch (is_grads_batched), not zeros without storage, not negated."""
    return tensor is None or _dispatch_keys(tensor) == _MEMORY


def _transformed() -> bool:
    return torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling()


def attention(tensors: tuple[Tensor | None, ...], statistics: bool = False, **keywords: Any) -> tuple[Any, ...]:
    """(attention_out, softmax_max, softmax_sum, lse); `tensors` in the order of TENSORS.

    Without `statistics` the caller looks at attention_out and, with return_lse, at lse alone.
    """
    if not _plain_eager(tensors):
        if _transformed():
            return _TransformedAttention.apply(keywords, *tensors)
        _refuse_tangents(TENSORS, tensors)
        return torch.ops.fascore.attention.default(*tensors, **keywords)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors[:DIFFERENTIABLE]):
        return _Attention.apply(keywords, *tensors)
    if statistics or keywords.get("return_lse", False):
        return _forward(*tensors, **keywords)
    return _forward_out(tensors, **keywords)


def attention_backward(*arguments: Any, **keywords: Any) -> tuple[Tensor, ...]:
    """The operator fascore::attention_backward: its tensors and `want`, its parameters."""
    *tensors, want = arguments
    if _transformed():
        return _TransformedGradient.apply(keywords, want, *tensors)
    _refuse_tangents(_BACKWARD_TENSORS, tensors)
    return torch.ops.fascore.attention_backward.default(*arguments, **keywords)
