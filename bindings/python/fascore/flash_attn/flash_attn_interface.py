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

import math
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from .. import _core
from ..errors import InvalidArgument
from ..torch import _ops
from ..torch._functional import autocast, draw_rng, keep_prob_of

_PAD = 128

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
        left, right = window_size
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
            if alibi_slopes.dtype != torch.float32:
                raise InvalidArgument(f"alibi_slopes: {alibi_slopes.dtype}, must be float32")
            if alibi_slopes.dim() not in (1, 2):
                raise InvalidArgument(f"alibi_slopes: {alibi_slopes.dim()} axes, must be (N1,) or (B, N1)")
        self.alibi_slopes = alibi_slopes
        self.scale = float(1.0 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale)
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


def _check(q: Tensor, k: Tensor, v: Tensor, rank: int) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != rank:
            raise InvalidArgument(f"{name}: {tensor.dim()} axes, must have {rank}")
    if not q.dtype == k.dtype == v.dtype:
        raise InvalidArgument(f"q, k, v: dtypes {q.dtype}, {k.dtype}, {v.dtype}, must be the same")
    if k.shape[-2] == 0 or q.shape[-2] % k.shape[-2] != 0:
        raise InvalidArgument(
            f"q, k: {q.shape[-2]} and {k.shape[-2]} heads, the first must be a multiple of the second"
        )


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
        shifts = set(((cu_seqlens_k[1:] - cu_seqlens_k[:-1]) - (cu_seqlens_q[1:] - cu_seqlens_q[:-1])).tolist())
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
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
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
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    batch, heads = len(ends_q) - 1, q.shape[1]
    result = q.new_zeros((batch, heads, _round_up(int(max_seqlen_q)), _round_up(int(max_seqlen_k))))
    slopes = options.alibi_slopes
    shifts = {(ends_k[b + 1] - ends_k[b]) - (ends_q[b + 1] - ends_q[b]) for b in range(batch)}
    separate = slopes is not None and len(shifts) > 1
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
    if packed.dim() != rank or packed.shape[-3] != parts:
        raise InvalidArgument(f"{name}: shape {tuple(packed.shape)}, must have {rank} axes and {parts} at axis -3")
    return packed.unbind(-3)


def _gather_pages(pages: Tensor, block_table: Tensor, cu_seqlens_k: Tensor) -> Tensor:
    """Rows of paged keys or values (blocks, page, N2, D) in the order of the sequences."""
    page = pages.shape[1]
    ends = cu_seqlens_k.tolist()
    rows = []
    for b in range(len(ends) - 1):
        at = torch.arange(ends[b + 1] - ends[b])
        rows.append(block_table[b].long()[at // page] * page + at % page)
    return pages.flatten(0, 1)[torch.cat(rows)] if rows else pages.flatten(0, 1)[:0]


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
    q, k, v = autocast(q, k, v)
    for name, ends in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if ends.dtype != torch.int32 or ends.dim() != 1 or ends.shape[0] < 2:
            raise InvalidArgument(
                f"{name}: {ends.dtype} of shape {tuple(ends.shape)}, must be int32 of (B + 1,), B > 0"
            )
    if cu_seqlens_q.shape != cu_seqlens_k.shape:
        raise InvalidArgument(
            f"cu_seqlens_q, cu_seqlens_k: {cu_seqlens_q.shape[0]} and {cu_seqlens_k.shape[0]} ends, must be as many"
        )
    if block_table is not None:
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
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k_cache, v_cache, k, v)):
        raise InvalidArgument("flash_attn_with_kvcache: an input requires a gradient, it has no backward")
    if (k is None) != (v is None):
        raise InvalidArgument("k, v: one of them is absent, must be both or neither")
    options = _Options(q, 0.0, softmax_scale, causal, window_size, softcap, alibi_slopes)
    batch, rows = q.shape[:2]
    if cache_seqlens is None:
        held = k_cache.shape[1] if block_table is None else block_table.shape[1] * k_cache.shape[1]
        lengths = [held] * batch
    elif isinstance(cache_seqlens, int):
        lengths = [cache_seqlens] * batch
    else:
        lengths = cache_seqlens.tolist()
    local = causal or tuple(window_size) != (-1, -1)
    outs, lses = [], []
    for b in range(batch):
        slot = b if cache_batch_idx is None else int(cache_batch_idx[b])
        first = 0 if cache_leftpad is None else int(cache_leftpad[b])
        new = 0 if k is None else k.shape[1]
        length = lengths[b] + new
        if block_table is None:
            at: Any = (slot, slice(lengths[b], length))
            whole: Any = (slot, slice(first, length))
        else:
            page = k_cache.shape[1]
            row = torch.arange(length)
            block = block_table[b].long()[row // page]
            at, whole = (block[lengths[b] :], row[lengths[b] :] % page), (block[first:], row[first:] % page)
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
    if block_table is not None:
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
    if alibi_slopes is not None:
        lengths_q, lengths_k = cu_seqlens_q[1:] - cu_seqlens_q[:-1], cu_seqlens_k[1:] - cu_seqlens_k[:-1]
        shifts = set((lengths_k - lengths_q).tolist())
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
