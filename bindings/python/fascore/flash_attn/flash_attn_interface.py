# SPDX-License-Identifier: Apache-2.0
"""The functions of flash_attn.flash_attn_interface over fascore's operator.

    q (B, Sq, N1, D), k and v (B, Sk, N2, D), N1 % N2 = 0; varlen: (total, N, D) cut by cu_seqlens (B+1 int32, from 0)

    score(i, j) = cap(softmax_scale q_i.k_j) - slope |i + Sk - Sq - j|       cap(z) = softcap tanh(z / softcap)

causal and window_size count from the bottom right corner: row i sees i + Sk - Sq - left <= j <= i + Sk - Sq + right, -1
is no bound, and causal sets right = 0. A row that sees nothing gives 0, with softmax_lse = +inf.

Everything becomes one call of the operator: dense is layout BSND, varlen is TND. Distances of alibi_slopes are counted
from the bottom right, the operator's from the top left plus a start index; packed sequences whose Sk - Sq differ have
no one start index and are computed one after the other.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from .. import _core
from .._arrays import bounds, integer
from ..errors import InvalidArgument
from ..torch import _ops
from ..torch._functional import autocast, default_scale, draw_rng, keep_prob_of, need_tensors

_PAD = 128
_INTEGERS = (torch.int32, torch.int64)

Result = Any  # Tensor, or (out, softmax_lse, S_dmask) with return_attn_probs


# --- one set of options for every form ------------------------------------------------------------------------------


class _Options:
    """The arguments all forms share, checked and translated."""

    def __init__(
        self,
        q: Tensor,
        dropout_p: float,
        softmax_scale: float | None,
        causal: bool,
        window_size: tuple[int, int],
        softcap: float,
        alibi_slopes: Tensor | None,
    ) -> None:
        if not 0.0 <= dropout_p < 1.0:
            raise InvalidArgument(f"dropout_p: {dropout_p}, must be at least 0 and below 1")
        if softcap > 0.0 and dropout_p > 0.0:
            raise InvalidArgument(f"softcap: {softcap} with dropout_p {dropout_p}, must be 0 when there is dropout")
        left, right = bounds(window_size, "window_size")
        if left < -1 or right < -1:
            raise InvalidArgument(f"window_size: ({left}, {right}), bounds must be -1 (none) or at least 0")
        if causal:
            right = 0
        self.left, self.right = left, right
        if left == -1 and right == -1:
            rule = "none"
        elif left == -1 and right == 0:
            rule = "causal_bottom_right"
        else:
            rule = "window"
        if alibi_slopes is not None:
            need_tensors(("alibi_slopes",), alibi_slopes)
            if alibi_slopes.dtype != torch.float32:
                raise InvalidArgument(f"alibi_slopes: {alibi_slopes.dtype}, must be float32")
            if alibi_slopes.dim() not in (1, 2):
                raise InvalidArgument(f"alibi_slopes: {alibi_slopes.dim()} axes, must be (N1,) or (B, N1)")
        self.alibi_slopes = alibi_slopes
        self.scale = float(default_scale(q.shape[-1]) if softmax_scale is None else softmax_scale)
        self.softcap = float(softcap)
        self.dropout_p = dropout_p
        self.keep_prob = keep_prob_of(dropout_p) if dropout_p > 0.0 else 1.0
        self.parameters: dict[str, Any] = {
            "scale": self.scale,
            "softcap": self.softcap,
            "keep_prob": self.keep_prob,
            "rule": rule,
            "left": left if rule == "window" else -1,
            "right": right if rule == "window" else -1,
        }

    def rng(self) -> Tensor | None:
        return draw_rng() if self.dropout_p > 0.0 else None

    def start(self, shift: Any) -> dict[str, Any]:
        """Parameters that measure alibi distances from the bottom right, shift = Sk - Sq."""
        if self.alibi_slopes is None:
            return {}
        return {"pse_type": 2, "q_start_idx": max(shift, 0), "kv_start_idx": max(-shift, 0)}


_QKV = ("q", "k", "v")


def _check(q: Tensor, k: Tensor, v: Tensor, rank: int) -> None:
    for name, tensor in zip(_QKV, (q, k, v), strict=True):
        if tensor.dim() != rank:
            raise InvalidArgument(f"{name}: {tensor.dim()} axes, must have {rank}")
    if not q.dtype == k.dtype == v.dtype:
        raise InvalidArgument(f"q, k, v: dtypes {q.dtype}, {k.dtype}, {v.dtype}, must be the same")
    if k.shape[-2] == 0 or q.shape[-2] % k.shape[-2] != 0:
        raise InvalidArgument(
            f"q, k: {q.shape[-2]} and {k.shape[-2]} heads, the first must be a multiple of the second"
        )


def _check_ends(cu_seqlens_q: Tensor, cu_seqlens_k: Tensor) -> None:
    """What a tensor of ends must be; whether the numbers in it fit the tokens is the operator's to say."""
    names = ("cu_seqlens_q", "cu_seqlens_k")
    need_tensors(names, cu_seqlens_q, cu_seqlens_k)
    for name, ends in zip(names, (cu_seqlens_q, cu_seqlens_k), strict=True):
        if ends.dtype != torch.int32 or ends.dim() != 1 or ends.shape[0] < 2:
            raise InvalidArgument(
                f"{name}: {ends.dtype} of shape {tuple(ends.shape)}, must be int32 of (B + 1,), B > 0"
            )
    if cu_seqlens_q.shape != cu_seqlens_k.shape:
        raise InvalidArgument(
            f"cu_seqlens_q, cu_seqlens_k: {cu_seqlens_q.shape[0]} and {cu_seqlens_k.shape[0]} ends, must be as many"
        )


def _ends(cu_seqlens: Tensor) -> list[int]:
    """The ends as they count: of sequences that are not there (0 at the end) that of the last one before."""
    return list(itertools.accumulate(cu_seqlens.tolist(), max))


def _shifts(cu_seqlens_q: Tensor, cu_seqlens_k: Tensor) -> set[int]:
    """All Sk - Sq."""
    differences = [k - q for q, k in zip(_ends(cu_seqlens_q), _ends(cu_seqlens_k), strict=True)]
    return {after - before for before, after in itertools.pairwise(differences)}


def _flip_empty(lse: Tensor) -> Tensor:
    """flash_attn stores +inf for a row without keys."""
    return torch.where(lse == -math.inf, math.inf, lse)


def _dense(q: Tensor, k: Tensor, v: Tensor, options: _Options, rng: Tensor | None, with_lse: bool) -> Any:
    """(out, lse or None)"""
    tensors = (q, k, v, None, None, options.alibi_slopes, None, None, None, None, None, rng)
    out, _, _, lse = _ops.attention(
        tensors,
        layout="BSND",
        return_lse=with_lse,
        **options.parameters,
        **options.start(k.shape[1] - q.shape[1]),
    )
    return out, _flip_empty(lse) if with_lse else None


def _packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    options: _Options,
    rng: Tensor | None,
    with_lse: bool,
) -> Any:
    """(out, lse (N1, total_q) or None)"""
    start: dict[str, Any] = {}
    if options.alibi_slopes is not None:
        shifts = _shifts(cu_seqlens_q, cu_seqlens_k)
        if len(shifts) > 1:
            return _one_by_one(q, k, v, cu_seqlens_q, cu_seqlens_k, options, rng, with_lse)
        start = options.start(shifts.pop() if shifts else 0)
    tensors = (q, k, v, None, None, options.alibi_slopes, None, None, None, cu_seqlens_q, cu_seqlens_k, rng)
    out, _, _, lse = _ops.attention(
        tensors,
        layout="TND",
        leading_zero=True,
        softmax_layout="same_as_input",
        return_lse=with_lse,
        **options.parameters,
        **start,
    )
    return out, _flip_empty(lse).t() if with_lse else None


def _refuse_packed(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor) -> None:
    """Raises what the operator would for sequences packed so: it plans the call, on tensors without memory."""
    inputs = [torch.empty((), dtype=t.dtype).expand(t.shape) for t in (q, k, v)]
    outputs = _ops._allocate(*inputs, "TND", 0, 1)
    params = _ops._params(cu_seqlens_q, cu_seqlens_k, None, {"layout": "TND", "leading_zero": True})
    _core.plan_forward(params, (*inputs, *[None] * 9), outputs, 0, "")


def _one_by_one(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    options: _Options,
    rng: Tensor | None,
    with_lse: bool,
) -> Any:
    """_packed for sequences whose alibi distances start at different places."""
    _refuse_packed(q, k, v, cu_seqlens_q, cu_seqlens_k)
    ends_q, ends_k = _ends(cu_seqlens_q), _ends(cu_seqlens_k)
    slopes = options.alibi_slopes
    outs, lses = [], []
    for b in range(len(ends_q) - 1):
        rows, columns = slice(ends_q[b], ends_q[b + 1]), slice(ends_k[b], ends_k[b + 1])
        options.alibi_slopes = slopes if slopes.dim() == 1 else slopes[b]
        state = None if rng is None else rng + torch.tensor([b, 0])
        out, lse = _dense(q[None, rows], k[None, columns], v[None, columns], options, state, with_lse)
        outs.append(out[0])
        lses.append(lse)
    options.alibi_slopes = slopes
    tail = q.shape[0] - ends_q[-1]
    outs.append(q.new_zeros((tail, q.shape[1], v.shape[2])))
    if not with_lse:
        return torch.cat(outs), None
    lses = [lse[0] for lse in lses] + [q.new_zeros((q.shape[1], tail), dtype=lses[0].dtype)]
    return torch.cat(outs), torch.cat(lses, 1)


# --- the probability matrix, for tests -------------------------------------------------------------------------------


def _round_up(length: int) -> int:
    return (length + _PAD - 1) // _PAD * _PAD


def _signed_weights(
    q: Tensor, k: Tensor, lse: Tensor, options: _Options, slopes: Tensor | None, seed: int, first_element: int
) -> Tensor:
    """(N1, Sq, Sk) weights of one batch from (Sq, N1, D), (Sk, N2, D) and lse (N1, Sq); negative = dropped."""
    rows, heads = q.shape[0], q.shape[1]
    columns = k.shape[0]
    dtype = lse.dtype
    group = heads // k.shape[1]
    scores = torch.einsum("ihd,jhd->hij", q.to(dtype), k.to(dtype).repeat_interleave(group, 1)) * options.scale
    if options.softcap > 0.0:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    away = torch.arange(columns)[None] - torch.arange(rows)[:, None] - (columns - rows)
    if slopes is not None:
        scores = scores - slopes.to(dtype)[:, None, None] * away.abs()
    hidden = torch.zeros_like(away, dtype=torch.bool)
    if options.left >= 0:
        hidden |= away < -options.left
    if options.right >= 0:
        hidden |= away > options.right
    weights = torch.exp(scores - lse[:, :, None]).masked_fill(hidden, 0.0)
    keep = torch.zeros((heads * rows, columns), dtype=torch.bool)
    if keep.numel():
        _core.dropout_keep(seed, 0, options.keep_prob, first_element, keep)
    return torch.where(keep.view(heads, rows, columns), weights, -weights)


def _dense_weights(q: Tensor, k: Tensor, lse: Tensor, options: _Options, rng: Tensor | None) -> Tensor:
    if rng is None:
        return q.new_empty((0,))
    batch, rows, heads, _ = q.shape
    columns = k.shape[1]
    result = q.new_zeros((batch, heads, _round_up(rows), _round_up(columns)))
    stride = (columns + 15) // 16 * 16
    slopes = options.alibi_slopes
    for b in range(batch):
        result[b, :, :rows, :columns] = _signed_weights(
            q[b], k[b], lse[b], options, slopes if slopes is None or slopes.dim() == 1 else slopes[b],
            int(rng[0]), b * heads * rows * stride,
        )  # fmt: skip
    return result


def _packed_weights(
    q: Tensor,
    k: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    lse: Tensor,
    options: _Options,
    rng: Tensor | None,
) -> Tensor:
    if rng is None:
        return q.new_empty((0,))
    ends_q, ends_k = _ends(cu_seqlens_q), _ends(cu_seqlens_k)
    batch, heads = len(ends_q) - 1, q.shape[1]
    result = q.new_zeros((batch, heads, _round_up(int(max_seqlen_q)), _round_up(int(max_seqlen_k))))
    slopes = options.alibi_slopes
    separate = slopes is not None and len(_shifts(cu_seqlens_q, cu_seqlens_k)) > 1
    seed, first = int(rng[0]), 0
    for b in range(batch):
        rows, columns = ends_q[b + 1] - ends_q[b], ends_k[b + 1] - ends_k[b]
        result[b, :, :rows, :columns] = _signed_weights(
            q[ends_q[b] : ends_q[b + 1]],
            k[ends_k[b] : ends_k[b + 1]],
            lse[:, ends_q[b] : ends_q[b + 1]],
            options,
            slopes if slopes is None or slopes.dim() == 1 else slopes[b],
            seed + b if separate else seed,
            0 if separate else first,
        )
        first += heads * rows * ((columns + 15) // 16 * 16)
    return result


# --- public functions ------------------------------------------------------------------------------------------------


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """Attention of q (B, Sq, N1, D), k and v (B, Sk, N2, D) -> out (B, Sq, N1, D).

    softmax_scale None is 1/sqrt(D). With return_attn_probs: (out, softmax_lse (B, N1, Sq) f32, S_dmask), where S_dmask
    is the weights with dropped ones negative, (B, N1, Sq and Sk rounded up to 128), and empty without dropout.

    Source: flash_attn.flash_attn_func.
    """
    need_tensors(_QKV, q, k, v)
    q, k, v = autocast(q, k, v)
    _check(q, k, v, 4)
    options = _Options(q, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    rng = options.rng()
    out, lse = _dense(q, k, v, options, rng, return_attn_probs)
    if not return_attn_probs:
        return out
    with torch.no_grad():
        return out, lse, _dense_weights(q, k, lse, options, rng)


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """flash_attn_func of qkv (B, S, 3, N, D). Source: flash_attn.flash_attn_qkvpacked_func."""
    q, k, v = _unpack(qkv, "qkv", 5, 3)
    return flash_attn_func(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    )


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """flash_attn_func of q (B, Sq, N1, D) and kv (B, Sk, 2, N2, D). Source: flash_attn.flash_attn_kvpacked_func."""
    k, v = _unpack(kv, "kv", 5, 2)
    return flash_attn_func(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    )


def _unpack(packed: Tensor, name: str, rank: int, parts: int) -> tuple[Tensor, ...]:
    need_tensors((name,), packed)
    if packed.dim() != rank or packed.shape[-3] != parts:
        raise InvalidArgument(f"{name}: shape {tuple(packed.shape)}, must have {rank} axes and {parts} at axis -3")
    return packed.unbind(-3)


def _rows_of_pages(block_table: Tensor, at: int, length: int, page: int, blocks: int) -> Tensor:
    """The rows of flattened pages that hold the first `length` tokens of sequence `at`."""
    held = block_table.shape[1] * page
    if not 0 <= length <= held:
        raise InvalidArgument(f"block_table: {held} rows for sequence {at} of length {length}, must hold it")
    token = torch.arange(length)
    block = block_table[at].long()[token // page]
    if length and not 0 <= int(block.min()) <= int(block.max()) < blocks:
        raise InvalidArgument(f"block_table: blocks {block.unique().tolist()}, must be 0 to {blocks - 1}")
    return block * page + token % page


def _check_table(block_table: Tensor, batch: int) -> None:
    need_tensors(("block_table",), block_table)
    if block_table.dim() != 2 or block_table.shape[0] != batch or block_table.dtype not in _INTEGERS:
        raise InvalidArgument(
            f"block_table: {block_table.dtype} of shape {tuple(block_table.shape)}, must be int32 of ({batch}, blocks)"
        )


def _gather_pages(pages: Tensor, block_table: Tensor, cu_seqlens_k: Tensor) -> Tensor:
    """Rows of paged keys or values (blocks, page, N2, D) in the order of the sequences."""
    ends = _ends(cu_seqlens_k)
    _check_table(block_table, len(ends) - 1)
    rows = [
        _rows_of_pages(block_table, b, ends[b + 1] - ends[b], pages.shape[1], pages.shape[0])
        for b in range(len(ends) - 1)
    ]
    return pages.flatten(0, 1)[torch.cat(rows)]


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Result:
    """Attention of packed sequences: q (total_q, N1, D), k and v (total_k, N2, D) -> out (total_q, N1, D).

    cu_seqlens_* are (B+1,) int32 and start with 0; max_seqlen_* are hints. With block_table (B, blocks) k and v are
    pages (num_blocks, page, N2, D). softmax_lse is (N1, total_q). Source: flash_attn.flash_attn_varlen_func.
    """
    need_tensors(_QKV, q, k, v)
    q, k, v = autocast(q, k, v)
    _check_ends(cu_seqlens_q, cu_seqlens_k)
    if block_table is not None:
        for name, pages in (("k", k), ("v", v)):
            if pages.dim() != 4:
                raise InvalidArgument(f"{name}: {pages.dim()} axes, must have 4 (pages) with block_table")
        k, v = (_gather_pages(t, block_table, cu_seqlens_k) for t in (k, v))
    _check(q, k, v, 3)
    options = _Options(q, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    rng = options.rng()
    out, lse = _packed(q, k, v, cu_seqlens_q, cu_seqlens_k, options, rng, return_attn_probs)
    if not return_attn_probs:
        return out
    with torch.no_grad():
        weights = _packed_weights(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, lse, options, rng)
        return out, lse, weights


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """flash_attn_varlen_func of qkv (total, 3, N, D). Source: flash_attn.flash_attn_varlen_qkvpacked_func."""
    q, k, v = _unpack(qkv, "qkv", 4, 3)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal, window_size, softcap,
        alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """flash_attn_varlen_func of q (total_q, N1, D) and kv (total_k, 2, N2, D).

    Source: flash_attn.flash_attn_varlen_kvpacked_func.
    """
    k, v = _unpack(kv, "kv", 4, 2)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal, window_size,
        softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


# --- generation with a cache -----------------------------------------------------------------------------------------


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool) -> Tensor:
    """Rotary embedding of x (S, N, D) at `positions` (S,), on the first 2 * cos.shape[1] columns."""
    size = 2 * cos.shape[1]
    c, s = cos[positions][:, None].to(x.dtype), sin[positions][:, None].to(x.dtype)
    part, rest = x[..., :size], x[..., size:]
    if interleaved:
        a, b = part[..., 0::2], part[..., 1::2]
        turned = torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)
    else:
        a, b = part.chunk(2, -1)
        turned = torch.cat((a * c - b * s, a * s + b * c), -1)
    return torch.cat((turned, rest), -1)


def _one_each(given: int | Tensor, name: str, batch: int, most: int) -> list[int]:
    """A number for each sequence, 0 to `most`, from a tensor of them or one for all."""
    if not isinstance(given, Tensor):
        numbers = [integer(given, name)] * batch
    elif given.dtype in _INTEGERS and tuple(given.shape) == (batch,):
        numbers = given.tolist()
    else:
        raise InvalidArgument(f"{name}: {given.dtype} of shape {tuple(given.shape)}, must be int32 of ({batch},)")
    for number in numbers:
        if not 0 <= number <= most:
            raise InvalidArgument(f"{name}: {number}, must be 0 to {most}")
    return numbers


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Attention of q (B, Sq, N1, D) over a cache (Bc, Sc, N2, D) or pages with block_table; inference only.

    k and v (B, Sn, N2, D) are written into the cache behind cache_seqlens first. Source:
    flash_attn.flash_attn_with_kvcache.
    """
    need_tensors(("q", "k_cache", "v_cache"), q, k_cache, v_cache)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k_cache, v_cache, k, v)):
        raise InvalidArgument("flash_attn_with_kvcache: an input requires a gradient, it has no backward")
    if (k is None) != (v is None):
        raise InvalidArgument("k, v: one of them is absent, must be both or neither")
    options = _Options(q, 0.0, softmax_scale, causal, window_size, softcap, alibi_slopes)
    for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache), ("k", k), ("v", v)):
        if tensor is not None and tensor.dim() != 4:
            raise InvalidArgument(f"{name}: {tensor.dim()} axes, must have 4")
        if name in _QKV and tensor is not None and tensor.shape[0] != q.shape[0]:
            raise InvalidArgument(f"{name}: batch {tensor.shape[0]}, must be q's {q.shape[0]}")
    if v_cache.shape[:3] != k_cache.shape[:3]:
        raise InvalidArgument(f"v_cache: shape {tuple(v_cache.shape)}, must be k_cache's {tuple(k_cache.shape)} but D")
    batch, rows = q.shape[:2]
    new = 0 if k is None else k.shape[1]
    slots = list(range(batch))
    if block_table is not None:
        if cache_batch_idx is not None:
            raise InvalidArgument("cache_batch_idx: given with block_table, must be None")
        _check_table(block_table, batch)
        held = block_table.shape[1] * k_cache.shape[1]
    else:
        held = k_cache.shape[1]
        if cache_batch_idx is not None:
            slots = _one_each(cache_batch_idx, "cache_batch_idx", batch, k_cache.shape[0] - 1)
        elif batch > k_cache.shape[0]:
            raise InvalidArgument(f"k_cache: batch {k_cache.shape[0]}, must be at least q's {batch}")
    if cache_seqlens is None:
        if k is not None:
            raise InvalidArgument("cache_seqlens: absent, must be given with k and v")
        cache_seqlens = held
    lengths = _one_each(cache_seqlens, "cache_seqlens", batch, held - new)
    firsts = _one_each(0 if cache_leftpad is None else cache_leftpad, "cache_leftpad", batch, held)
    local = causal or tuple(window_size) != (-1, -1)
    outs, lses = [], []
    for b in range(batch):
        first, length = firsts[b], lengths[b] + new
        if block_table is None:
            at: Any = (slots[b], slice(lengths[b], length))
            whole: Any = (slots[b], slice(first, length))
        else:
            page = k_cache.shape[1]
            row = _rows_of_pages(block_table, b, length, page, k_cache.shape[0])
            at, whole = ((part // page, part % page) for part in (row[lengths[b] :], row[first:]))
        query = q[b]
        if rotary_cos is not None:
            steps = torch.arange(rows) if local else torch.zeros(rows, dtype=torch.long)
            query = _rotate(query, rotary_cos, rotary_sin, steps + lengths[b], rotary_interleaved)
        if k is not None:
            fresh = k[b]
            if rotary_cos is not None:
                places = torch.arange(new) + lengths[b]
                fresh = _rotate(fresh, rotary_cos, rotary_sin, places, rotary_interleaved)
            k_cache[at] = fresh.to(k_cache.dtype)
            v_cache[at] = v[b].to(v_cache.dtype)
        if alibi_slopes is not None and alibi_slopes.dim() == 2:
            options.alibi_slopes = alibi_slopes[b]
        out, lse = _dense(query[None], k_cache[whole][None], v_cache[whole][None], options, None, True)
        outs.append(out)
        lses.append(lse)
    out = torch.cat(outs)
    return (out, torch.cat(lses)) if return_softmax_lse else out


# --- the layer below, which ring attention and the like call -------------------------------------------------------


def _flash_attn_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, softmax_lse, S_dmask, rng_state)"""
    need_tensors(_QKV, q, k, v)
    _check(q, k, v, 4)
    window = (window_size_left, window_size_right)
    options = _Options(q, dropout_p, softmax_scale, causal, window, softcap, alibi_slopes)
    rng = options.rng()
    with torch.no_grad():
        out, lse = _dense(q, k, v, options, rng, True)
        weights = _dense_weights(q, k, lse, options, rng) if return_softmax else q.new_empty((0,))
    return out, lse, weights, torch.zeros(2, dtype=torch.int64) if rng is None else rng


def _flash_attn_varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
    block_table: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    zero_tensors: bool = False,
    num_splits: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, softmax_lse, S_dmask, rng_state)"""
    for name, given in (("leftpad_k", leftpad_k), ("seqused_k", seqused_k)):
        if given is not None:
            raise InvalidArgument(f"{name}: given, must be None (not supported here)")
    need_tensors(_QKV, q, k, v)
    _check_ends(cu_seqlens_q, cu_seqlens_k)
    if block_table is not None:
        for name, pages in (("k", k), ("v", v)):
            if pages.dim() != 4:
                raise InvalidArgument(f"{name}: {pages.dim()} axes, must have 4 (pages) with block_table")
        k, v = (_gather_pages(t, block_table, cu_seqlens_k) for t in (k, v))
    _check(q, k, v, 3)
    window = (window_size_left, window_size_right)
    options = _Options(q, dropout_p, softmax_scale, causal, window, softcap, alibi_slopes)
    rng = options.rng()
    with torch.no_grad():
        out, lse = _packed(q, k, v, cu_seqlens_q, cu_seqlens_k, options, rng, True)
        weights = q.new_empty((0,))
        if return_softmax:
            weights = _packed_weights(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, lse, options, rng)
    return out, lse, weights, torch.zeros(2, dtype=torch.int64) if rng is None else rng


def _write_gradients(targets: tuple[Tensor | None, ...], gradients: list[Tensor]) -> None:
    for target, gradient in zip(targets, gradients, strict=False):
        if target is not None:
            target.copy_(gradient)


def _flash_attn_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    rng_state: Tensor | None = None,
) -> Tensor:
    """Writes dq, dk, dv; returns softmax_d = rowsum(dout * out), (B, N1, Sq rounded up to 128) f32."""
    window = (window_size_left, window_size_right)
    options = _Options(q, dropout_p, softmax_scale, causal, window, softcap, alibi_slopes)
    rng = rng_state if dropout_p > 0.0 else None
    want = [target is not None for target in (dq, dk, dv)] + [False] * 4
    gradients = _ops.attention_backward(
        dout, None, out, softmax_lse, torch.ones_like(softmax_lse), q, k, v, None, None, alibi_slopes, None, None, None,
        None, None, rng, want, layout="BSND", **options.parameters, **options.start(k.shape[1] - q.shape[1]),
    )  # fmt: skip
    _write_gradients((dq, dk, dv), gradients)
    delta = (dout.float() * out.float()).sum(-1).transpose(1, 2)
    return functional.pad(delta, (0, _round_up(q.shape[1]) - q.shape[1]))


def _flash_attn_varlen_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    rng_state: Tensor | None = None,
    zero_tensors: bool = False,
) -> Tensor:
    """Writes dq, dk, dv; returns softmax_d = rowsum(dout * out), (N1, total_q) f32."""
    window = (window_size_left, window_size_right)
    options = _Options(q, dropout_p, softmax_scale, causal, window, softcap, alibi_slopes)
    rng = rng_state if dropout_p > 0.0 else None
    _check_ends(cu_seqlens_q, cu_seqlens_k)
    if alibi_slopes is not None:
        shifts = _shifts(cu_seqlens_q, cu_seqlens_k)
        if len(shifts) > 1:
            raise InvalidArgument(
                "alibi_slopes: sequences with different Sk - Sq, use flash_attn_varlen_func and autograd"
            )
        start = options.start(shifts.pop())
    else:
        start = {}
    statistics = softmax_lse.t()
    want = [target is not None for target in (dq, dk, dv)] + [False] * 4
    gradients = _ops.attention_backward(
        dout, None, out, statistics, torch.ones_like(statistics), q, k, v, None, None, alibi_slopes, None, None, None,
        cu_seqlens_q, cu_seqlens_k, rng, want, layout="TND", leading_zero=True, softmax_layout="same_as_input",
        **options.parameters, **start,
    )  # fmt: skip
    _write_gradients((dq, dk, dv), gradients)
    return (dout.float() * out.float()).sum(-1).t()
