# SPDX-License-Identifier: Apache-2.0
"""torch_npu's fused attention on CPU tensors: same names, signatures, defaults and returned tuples.

    npu_fusion_attention, npu_fusion_attention_v2, npu_fusion_attention_v3                  differentiable forward
    npu_fusion_attention_grad, npu_fusion_attention_grad_v2, npu_fusion_attention_grad_v3   gradient by hand
    install()                                          `import torch_npu` finds this module when there is no real one

Where it matters to callers:

- scale is used as given (default 1.0); atten_mask is True = masked out; sparse_mode does nothing without a mask.
- v1 and v3 add pse before the scale (pse_type 1); v2 has pse_type.
- softmax_max and softmax_sum are float32 [B, N1, S1, 8], eight equal copies; TND [T1, N1, 8].
- keep_prob < 1 without a dropout_mask: (seed, offset) come from torch's generator, or are those passed when seed is not
  0, and are returned; the gradient redraws the mask from them. The bits are fascore's (fascore.dropout_keep): only an
  explicit mask is portable between machines.
- gen_mask_parallel, sync, padding_mask, softmax_in and inner_precise are accepted and change no number.
- dpse is computed (the accelerator leaves it undefined); gradients of absent inputs are None.

Faults raise InvalidArgument, which is a RuntimeError.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _core
from ._arrays import integers, unsigned
from .errors import InvalidArgument
from .torch import _ops
from .torch._functional import autocast, draw_rng, need_tensors, signed

__all__ = [
    "install",
    "npu_fusion_attention",
    "npu_fusion_attention_grad",
    "npu_fusion_attention_grad_v2",
    "npu_fusion_attention_grad_v3",
    "npu_fusion_attention_v2",
    "npu_fusion_attention_v3",
]

__version__ = _core.__version__

_LAYOUTS = ("BSH", "SBH", "BNSD", "BSND", "TND")
_LONGEST = 1 << 20
_UNLIMITED = 2147483647


def _layout(input_layout: str) -> str:
    layout = str(input_layout).upper()
    if layout not in _LAYOUTS:
        raise InvalidArgument(f"input_layout: '{input_layout}', must be one of {', '.join(_LAYOUTS)}")
    return layout


def _lengths(cumulative: Sequence[int]) -> list[int]:
    """Lengths of cumulative ends; trailing zeros are batches that are not there."""
    lengths, start = [], 0
    for end in cumulative:
        lengths.append(max(0, end - start))
        start = max(start, end)
    return lengths


class _Call:
    """One call's arguments, checked as torch_npu checks them and translated to the operator's."""

    def __init__(
        self,
        tensors: dict[str, Tensor | None],
        head_num: int,
        input_layout: str,
        *,
        scale: float,
        keep_prob: float,
        pre_tokens: int,
        next_tokens: int,
        inner_precise: int,
        prefix: Sequence[int] | None,
        actual_seq_qlen: Any,
        actual_seq_kvlen: Any,
        sparse_mode: int,
        softmax_layout: str,
        pse_type: int = 1,
        q_start_idx: Sequence[int] | None = None,
        kv_start_idx: Sequence[int] | None = None,
    ) -> None:
        self.tensors = tensors
        layout = _layout(input_layout)
        if head_num <= 0:
            raise InvalidArgument(f"head_num: {head_num}, must be above 0")
        need_tensors(("query", "key", "value"), tensors["query"], tensors["key"], tensors["value"])
        for name in ("query", "key", "value"):
            if tensors[name].dim() not in (3, 4):
                raise InvalidArgument(f"{name}: {tensors[name].dim()} axes, must have 3 or 4")
        if not 0.0 < keep_prob <= 1.0:
            raise InvalidArgument(f"keep_prob: {keep_prob}, must be above 0 and at most 1")
        modes = range(9) if layout == "TND" else range(7)
        if sparse_mode not in modes or (layout == "TND" and sparse_mode == 5):
            allowed = "0..4 or 6..8" if layout == "TND" else "0..6"
            raise InvalidArgument(f"sparse_mode: {sparse_mode}, must be {allowed} in layout {layout}")
        if softmax_layout not in ("", "TND") or (softmax_layout == "TND" and layout != "TND"):
            raise InvalidArgument(f"softmax_layout: '{softmax_layout}', must be '', or 'TND' with input_layout TND")
        self.seq_q = integers(actual_seq_qlen, "actual_seq_qlen")
        self.seq_kv = integers(actual_seq_kvlen, "actual_seq_kvlen")
        if layout == "TND":
            if not self.seq_q or not self.seq_kv or len(self.seq_q) != len(self.seq_kv):
                raise InvalidArgument(
                    f"actual_seq_qlen, actual_seq_kvlen: {len(self.seq_q)} and {len(self.seq_kv)} ends, must be as "
                    "many of both in layout TND, and at least 1"
                )
            for name, cumulative in (("actual_seq_qlen", self.seq_q), ("actual_seq_kvlen", self.seq_kv)):
                if max(_lengths(cumulative)) > _LONGEST:
                    raise InvalidArgument(
                        f"{name}: a length of {max(_lengths(cumulative))}, must be at most {_LONGEST}"
                    )
        self.layout, self.keep_prob = layout, float(keep_prob)
        self.parameters = {
            "layout": layout,
            "head_num": head_num,
            "scale": float(scale),
            "sparse_mode": sparse_mode,
            "pre_tokens": pre_tokens,
            "next_tokens": next_tokens,
            "prefix": None if prefix is None else integers(prefix, "prefix"),
            "softmax_layout": "same_as_input" if softmax_layout == "TND" else "",
            "pse_type": pse_type,
            "q_start_idx": int(q_start_idx[0]) if q_start_idx else 0,
            "kv_start_idx": int(kv_start_idx[0]) if kv_start_idx else 0,
            "keep_prob": self.keep_prob,
            "inner_precise": inner_precise,
            "copies": 8,
        }
        self.head_num = head_num

    def numels(self) -> int:
        """Elements of the dropout mask; 0 without dropout."""
        if self.keep_prob == 1.0:
            return 0
        query, key = self.tensors["query"], self.tensors["key"]
        if self.layout == "TND":
            pairs = zip(_lengths(self.seq_q), _lengths(self.seq_kv), strict=True)
            return self.head_num * sum(q * k for q, k in pairs)
        batch = 1 if self.layout == "SBH" else 0
        rows = {"BNSD": 2, "BSND": 1, "BSH": 1, "SBH": 0}[self.layout]
        return query.shape[batch] * self.head_num * query.shape[rows] * key.shape[rows]

    def inputs(self, rng: Tensor | None) -> tuple[Tensor | None, ...]:
        t = self.tensors
        return (
            t["query"], t["key"], t["value"], t.get("query_rope"), t.get("key_rope"), t["pse"], t["sink"],
            t["atten_mask"], t.get("drop_mask"), _tensor(self.seq_q), _tensor(self.seq_kv), rng,
        )  # fmt: skip

    def forward(self, seed: int, offset: int) -> tuple[tuple[Tensor, ...], int, int, int]:
        rng = None
        if self.keep_prob < 1.0 and self.tensors.get("drop_mask") is None:
            rng = torch.tensor([signed(seed, "seed"), signed(offset, "offset")]) if seed else draw_rng()
            seed, offset = rng.tolist()
        out, softmax_max, softmax_sum, _ = _ops.attention(self.inputs(rng), True, **self.parameters)
        return (out, softmax_max, softmax_sum, out.new_empty((0, 0, 0, 0))), seed, offset, self.numels()

    def backward(
        self,
        dy: Tensor,
        softmax_max: Tensor | None,
        softmax_sum: Tensor | None,
        attention_in: Tensor | None,
        seed: int,
        offset: int,
        numels: int | None,
    ) -> tuple[Tensor | None, ...]:
        """dq, dk, dv, dq_rope, dk_rope, dpse, dsink."""
        for name, tensor in (
            ("softmax_max", softmax_max),
            ("softmax_sum", softmax_sum),
            ("attention_in", attention_in),
        ):
            if tensor is None:
                raise InvalidArgument(f"{name}: absent, must be what the forward returned")
        rng = None
        if self.keep_prob < 1.0:
            if numels is not None and numels != self.numels():
                raise InvalidArgument(f"numels: {numels}, must be the forward's {self.numels()}")
            rng = torch.tensor([signed(seed, "seed"), signed(offset, "offset")])
        inputs = self.inputs(rng)
        want = [tensor is not None for tensor in inputs[: _ops.DIFFERENTIABLE]]
        gradients = _ops.attention_backward(
            dy, None, attention_in, softmax_max, softmax_sum, *inputs, want, **self.parameters
        )
        dq, dk, dv, dq_rope, dk_rope, dpse, dsink = (g if w else None for g, w in zip(gradients, want, strict=True))
        return dq, dk, dv, dq_rope, dk_rope, dpse, dsink


def _tensor(values: list[int]) -> Tensor | None:
    return torch.tensor(values, dtype=torch.int64) if values else None


def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
    dropout_mask: Tensor | None = None,
    seed: int = 0,
    offset: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    """(attention_out, softmax_max, softmax_sum, softmax_out, seed, offset, numels).

    Shapes by input_layout (any case of BSH, SBH, BNSD, BSND, TND); TND needs both cumulative length lists. Gradients
    flow to query, key, value, pse and sink. Source: torch_npu.npu_fusion_attention.
    """
    query, key, value = autocast(query, key, value)
    call = _Call(
        {
            "query": query,
            "key": key,
            "value": value,
            "pse": pse,
            "atten_mask": atten_mask,
            "sink": sink,
            "drop_mask": dropout_mask,
        },
        head_num,
        input_layout,
        scale=scale,
        keep_prob=keep_prob,
        pre_tokens=pre_tockens,
        next_tokens=next_tockens,
        inner_precise=inner_precise,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
    )
    tensors, seed, offset, numels = call.forward(seed, offset)
    return *tensors, seed, offset, numels


def npu_fusion_attention_grad(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None,
    softmax_sum: Tensor | None = None,
    softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    seed: int = 0,
    offset: int = 0,
    numels: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """(dq, dk, dv, dpse, dsink); seed, offset and numels as the forward returned them.

    Source: torch_npu.npu_fusion_attention_grad.
    """
    call = _Call(
        {"query": query, "key": key, "value": value, "pse": pse, "atten_mask": atten_mask, "sink": sink},
        head_num,
        input_layout,
        scale=scale_value,
        keep_prob=keep_prob,
        pre_tokens=pre_tockens,
        next_tokens=next_tockens,
        inner_precise=inner_precise,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
    )
    dq, dk, dv, _, _, dpse, dsink = call.backward(dy, softmax_max, softmax_sum, attention_in, seed, offset, numels)
    return dq, dk, dv, dpse, dsink


def npu_fusion_attention_v2(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    pse_type: int = 1,
    q_start_idx: Sequence[int] | None = None,
    kv_start_idx: Sequence[int] | None = None,
    softmax_layout: str = "",
    sink: Tensor | None = None,
    dropout_mask: Tensor | None = None,
    seed: int = 0,
    offset: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    """As npu_fusion_attention, with pse_type, start indices and rope parts (gradients flow to those too).

    Source: torch_npu.npu_fusion_attention_v2.
    """
    query, key, value, query_rope, key_rope = autocast(query, key, value, query_rope, key_rope)
    call = _Call(
        {
            "query": query,
            "key": key,
            "value": value,
            "query_rope": query_rope,
            "key_rope": key_rope,
            "pse": pse,
            "atten_mask": atten_mask,
            "sink": sink,
            "drop_mask": dropout_mask,
        },
        head_num,
        input_layout,
        scale=scale,
        keep_prob=keep_prob,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        inner_precise=inner_precise,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
        pse_type=pse_type,
        q_start_idx=q_start_idx,
        kv_start_idx=kv_start_idx,
    )
    tensors, seed, offset, numels = call.forward(seed, offset)
    return *tensors, seed, offset, numels


def npu_fusion_attention_grad_v2(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None,
    softmax_sum: Tensor | None = None,
    softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    inner_precise: int = 0,
    seed: int = 0,
    offset: int = 0,
    numels: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    pse_type: int = 1,
    q_start_idx: Sequence[int] | None = None,
    kv_start_idx: Sequence[int] | None = None,
    softmax_layout: str = "",
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """(dq, dk, dv, dpse, dq_rope, dk_rope, dsink).

    Source: torch_npu.npu_fusion_attention_grad_v2.
    """
    call = _Call(
        {
            "query": query,
            "key": key,
            "value": value,
            "query_rope": query_rope,
            "key_rope": key_rope,
            "pse": pse,
            "atten_mask": atten_mask,
            "sink": sink,
        },
        head_num,
        input_layout,
        scale=scale_value,
        keep_prob=keep_prob,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        inner_precise=inner_precise,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
        pse_type=pse_type,
        q_start_idx=q_start_idx,
        kv_start_idx=kv_start_idx,
    )
    gradients = call.backward(dy, softmax_max, softmax_sum, attention_in, seed, offset, numels)
    dq, dk, dv, dq_rope, dk_rope, dpse, dsink = gradients
    return dq, dk, dv, dpse, dq_rope, dk_rope, dsink


def npu_fusion_attention_v3(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Tensor | None = None,
    actual_seq_kvlen: Tensor | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """npu_fusion_attention with lengths, seed and offset as tensors, and without numels.

    Source: torch_npu.npu_fusion_attention_v3.
    """
    *tensors, seed, offset, _ = npu_fusion_attention(
        query, key, value, head_num, input_layout, pse, padding_mask, atten_mask, scale, keep_prob, pre_tockens,
        next_tockens, inner_precise, prefix, actual_seq_qlen, actual_seq_kvlen, sparse_mode, gen_mask_parallel, sync,
        softmax_layout, sink,
    )  # fmt: skip
    return *tensors, torch.tensor([seed]), torch.tensor([offset])


def npu_fusion_attention_grad_v3(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None,
    softmax_sum: Tensor | None = None,
    softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    seed: Tensor | None = None,
    offset: Tensor | None = None,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Tensor | None = None,
    actual_seq_kvlen: Tensor | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """(dq, dk, dv, dpse, dsink). Source: torch_npu.npu_fusion_attention_grad_v3."""
    call = _Call(
        {"query": query, "key": key, "value": value, "pse": pse, "atten_mask": atten_mask, "sink": sink},
        head_num,
        input_layout,
        scale=scale_value,
        keep_prob=keep_prob,
        pre_tokens=pre_tockens,
        next_tokens=next_tockens,
        inner_precise=inner_precise,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
    )
    if keep_prob < 1.0 and (seed is None or offset is None):
        raise InvalidArgument("seed, offset: absent, must be what the forward returned when keep_prob is below 1")
    numbers = [0 if number is None else int(number.reshape(-1)[0]) for number in (seed, offset)]
    dq, dk, dv, _, _, dpse, dsink = call.backward(dy, softmax_max, softmax_sum, attention_in, *numbers, None)
    return dq, dk, dv, dpse, dsink


def _npu_dropout_gen_mask(
    self: Tensor, size: Sequence[int], p: float, seed: int, offset: int, parallel: bool = True, sync: bool = False
) -> Tensor:
    """A bit mask of `size` elements, 1 = keep with probability 1 - p; the bits npu_fusion_attention itself would draw.

    uint8, ceil(numels / 128) * 16 + 32 bytes, least significant bit first. Source: torch_npu._npu_dropout_gen_mask.
    """
    if not size or min(size) < 0:
        raise InvalidArgument(f"size: {size!r}, must have an axis, and none below 0")
    numels = math.prod(int(extent) for extent in size)
    packed = torch.zeros((numels + 127) // 128 * 16 + 32, dtype=torch.uint8)
    if numels == 0:
        return packed
    keep = torch.zeros((numels + 7) // 8 * 8, dtype=torch.bool)
    rows = keep[:numels].reshape(-1, int(size[-1]))
    _core.dropout_keep(unsigned(seed, "seed"), unsigned(offset, "offset"), 1.0 - p, 0, rows)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
    packed[: keep.numel() // 8] = (keep.reshape(-1, 8) * weights).sum(1, dtype=torch.uint8)
    return packed


_registered: list[torch.library.Library] = []


def _register_operators() -> None:
    """torch.ops.npu.<name>, for those who write the name that way."""
    if _registered:
        return
    library = torch.library.Library("npu", "FRAGMENT")
    for name in __all__:
        function = globals()[name]
        if name != "install" and not hasattr(torch.ops.npu, name):
            library.define(f"{name}{_schema(function)}")
            library.impl(name, function, "CompositeImplicitAutograd")
    _registered.append(library)


def _schema(function: Any) -> str:
    import inspect

    types = {"Tensor": "Tensor", "Tensor | None": "Tensor?", "int": "int", "str": "str", "float": "float"}
    types |= {"bool": "bool", "Sequence[int] | None": "int[]?"}
    arguments, keywords = [], False
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            arguments.append("*")
            keywords = True
        text = f"{types[parameter.annotation]} {parameter.name}"
        if parameter.default is not parameter.empty:
            value = parameter.default
            text += f"='{value}'" if isinstance(value, str) else f"={value}"
        arguments.append(text)
    results = signature.return_annotation.removeprefix("tuple[").removesuffix("]").replace("Tensor | None", "Tensor?")
    return f"({', '.join(arguments)}) -> ({results})"


def install() -> bool:
    """Makes `import torch_npu` (and torch.ops.npu) find these functions; False when the real torch_npu is there."""
    present = sys.modules.get("torch_npu")
    if present is not None:
        return present is sys.modules[__name__]
    if importlib.util.find_spec("torch_npu") is not None:
        return False
    sys.modules["torch_npu"] = sys.modules[__name__]
    _register_operators()
    return True
