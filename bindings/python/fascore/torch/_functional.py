# SPDX-License-Identifier: Apache-2.0
"""attention() with every field of the operator, and scaled_dot_product_attention() with PyTorch's exact semantics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._arrays import bounds, integers, unsigned
from .._operator import MOST_HEADS
from ..errors import InvalidArgument
from . import _ops

UNLIMITED_TOKENS = 2147483647


def need_tensors(names: tuple[str, ...], *tensors: Any) -> None:
    for at, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{names[at]}: {type(tensor).__name__}, must be a torch.Tensor")


def default_scale(columns: Any) -> float:
    """1/sqrt of the head size; of none there are no products to scale."""
    return 1.0 / math.sqrt(columns) if columns else 1.0


def autocast(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """As torch.autocast does before its attention: f32 and 16-bit tensors to the autocast dtype, others as they are."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    eligible = (torch.float32, torch.bfloat16, torch.float16)
    return tuple(t.to(dtype) if t is not None and t.dtype in eligible else t for t in tensors)


def draw_rng() -> Tensor:
    """A fresh (seed, offset) from torch's default generator: dropout follows torch.manual_seed."""
    return torch.cat((torch.randint(0, 1 << 62, (1,), dtype=torch.int64), torch.zeros(1, dtype=torch.int64)))


def keep_prob_of(dropout_p: float) -> float:
    """1 - dropout_p as a multiple of 1/256.

    The operator keeps a weight when a random byte is at most trunc(255 keep_prob), a share of (trunc(255 keep_prob) +
    1) / 256. For multiples of 1/256 that is keep_prob itself, so the factor 1 / keep_prob keeps the mean exactly.
    """
    return max(1, round(256 * (1.0 - dropout_p))) / 256


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    layout: str = "BNSD",
    head_num: int = 0,
    scale: float | None = None,
    bias: Tensor | None = None,
    rule: str = "none",
    window: tuple[int, int] | None = None,
    atten_mask: Tensor | None = None,
    sparse_mode: int = 0,
    pre_tokens: int = UNLIMITED_TOKENS,
    next_tokens: int = UNLIMITED_TOKENS,
    prefix: Sequence[int] | None = None,
    pse: Tensor | None = None,
    pse_type: int = 1,
    q_start_idx: int = 0,
    kv_start_idx: int = 0,
    keep_prob: float = 1.0,
    drop_mask: Tensor | None = None,
    seed: int | None = None,
    offset: int = 0,
    softcap: float = 0.0,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    sink: Tensor | None = None,
    actual_seq_qlen: Tensor | Sequence[int] | None = None,
    actual_seq_kvlen: Tensor | Sequence[int] | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Differentiable exact attention with every field of the operator, on CPU tensors of any strides.

    Gradients flow to query, key, value, query_rope, key_rope, bias or pse, sink, and back from the log-sum-exp; only
    those that autograd needs are computed. Works under torch.compile, autocast and activation checkpointing. The second
    derivative is not implemented and says so.

    Parameters
    ----------
    query, key, value
        f64, f32, bf16 or f16. BNSD ``[B,N,S,D]``, BSND, BSH, SBH (with `head_num`) or TND ``[T,N,D]`` with
        `actual_seq_qlen` and `actual_seq_kvlen` (cumulative ends without a leading 0). N1 % N2 = 0.
    scale
        None = 1/sqrt(D + Dr), with Dr the columns of query_rope.
    bias
        ``[B|1,N1|1,S1|1,S2]``, added to the scaled scores; -inf hides a pair. The same as ``pse=bias, pse_type=0``.
    rule, window
        "none", "causal_top_left" (PyTorch's is_causal), "causal_bottom_right" (flash_attn's causal); window (left,
        right) from the bottom right diagonal, -1 = no bound.
    atten_mask, sparse_mode, pre_tokens, next_tokens, prefix
        Mask tensor, bool or uint8, **non-zero = masked out** (the opposite of PyTorch's), and its mode.
    pse, pse_type, q_start_idx, kv_start_idx
        Position bias as CANN has it: 0 added after the scale, 1 before it, 2 and 3 f32 slopes.
    keep_prob, drop_mask, seed, offset
        Dropout; the mask is given, or drawn from seed and offset, or (seed None) from torch's default generator.
    softcap, sink
        See fascore.flash_attention_score.
    return_lse
        Also return the natural log-sum-exp ``[B,N1,S1]`` (TND ``[T,N1]``), -inf for a row without a key.

    Raises InvalidArgument (a ValueError and a RuntimeError) with the library's text.
    """
    need_tensors(("query", "key", "value"), query, key, value)
    query, key, value, query_rope, key_rope = autocast(query, key, value, query_rope, key_rope)
    if bias is not None:
        if pse is not None:
            raise InvalidArgument("bias: given together with pse, must be one of them")
        pse, pse_type = bias, 0
    if scale is None:
        columns = query.shape[-1] // head_num if layout in ("BSH", "SBH") and head_num > 0 else query.shape[-1]
        if query_rope is not None:
            columns = columns + query_rope.shape[-1] // (head_num if layout in ("BSH", "SBH") and head_num > 0 else 1)
        scale = default_scale(columns)
    left, right = -1, -1
    if window is not None:
        if rule not in ("none", "window"):
            raise InvalidArgument(f"window: given with rule '{rule}', must stand alone")
        rule, (left, right) = "window", bounds(window, "window")
    rng = None
    if keep_prob < 1.0 and drop_mask is None:
        rng = draw_rng() if seed is None else torch.tensor([signed(seed, "seed"), signed(offset, "offset")])
    tensors = (
        query, key, value, query_rope, key_rope, pse, sink, atten_mask, drop_mask,
        ends(actual_seq_qlen, "actual_seq_qlen"), ends(actual_seq_kvlen, "actual_seq_kvlen"), rng,
    )  # fmt: skip
    out, _, _, lse = _ops.attention(
        tensors,
        layout=layout,
        head_num=head_num,
        scale=float(scale),
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        prefix=prefix,
        rule=rule,
        left=left,
        right=right,
        softmax_layout="same_as_input" if layout == "TND" else "",
        pse_type=pse_type,
        q_start_idx=q_start_idx,
        kv_start_idx=kv_start_idx,
        keep_prob=float(keep_prob),
        softcap=float(softcap),
        return_lse=return_lse,
    )
    return (out, lse) if return_lse else out


def signed(value: Any, name: str) -> int:
    """A 64-bit number as int64 holds it."""
    value = unsigned(value, name)
    return value - (1 << 64) if value >= 1 << 63 else value


def ends(values: Tensor | Sequence[int] | None, name: str) -> Tensor | None:
    if values is None or isinstance(values, Tensor):
        return values
    return torch.tensor(integers(values, name), dtype=torch.int64)


# --- scaled_dot_product_attention ----------------------------------------------------------------------------------


def _common_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Leading axes (all but heads, rows, columns) broadcast and folded into one: [B, N, S, D] each."""
    if query.dim() == key.dim() == value.dim() == 4 and query.shape[0] == key.shape[0] == value.shape[0]:
        return query, key, value
    parts = (query, key, value)
    if min(t.dim() for t in parts) < 2:
        raise InvalidArgument("query, key, value: fewer than 2 axes, must have at least 2")
    rank = max(4, *(t.dim() for t in parts))
    parts = tuple(t[(None,) * (rank - t.dim())] for t in parts)
    batch = torch.broadcast_shapes(*(t.shape[:-3] for t in parts))
    return tuple(t.expand(*batch, *t.shape[-3:]).reshape(-1, *t.shape[-3:]) for t in parts)


def _mask_4d(mask: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """A mask that broadcasts to (..., N, L, S), folded like a query of `shape`: [B|1, N|1, L|1, S|1]."""
    rank = max(4, len(shape))
    if mask.dim() > rank:
        raise InvalidArgument(f"attn_mask: {mask.dim()} axes, must broadcast to the scores' {len(shape)}")
    mask = mask[(None,) * (rank - mask.dim())]
    if mask.dim() == 4:
        return mask
    lead = mask.shape[:-3]
    if all(extent == 1 for extent in lead):
        return mask.reshape(1, *mask.shape[-3:])
    return mask.expand(*shape[:-3], *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention on CPU tensors, by fascore.

    The semantics are PyTorch's: ``query (..., Hq, L, E)``, ``key (..., H, S, E)``, ``value (..., H, S, Ev)`` ->
    ``(..., Hq, L, Ev)``, leading axes broadcast; a bool mask is True where a pair **takes part**, a float mask is added
    (and is differentiable, in memory linear in S beside the mask itself); is_causal counts from the top left; scale
    None is 1/sqrt(E); dropout is applied whenever dropout_p > 0. A row that sees no key gives 0.

    dropout_p is rounded to a multiple of 1/256 and the kept weights are scaled to match, so the mean is exact.

    Raises InvalidArgument (a RuntimeError, as PyTorch's) for what PyTorch refuses and for head sizes above 768.
    """
    need_tensors(("query", "key", "value"), query, key, value)
    query, key, value = autocast(query, key, value)
    if not query.dtype == key.dtype == value.dtype:
        raise InvalidArgument(f"query, key, value: dtypes {query.dtype}, {key.dtype}, {value.dtype}, must be the same")
    if not 0.0 <= dropout_p <= 1.0:
        raise InvalidArgument(f"dropout_p: {dropout_p}, must be between 0 and 1")
    rule = "none"
    if attn_mask is not None:
        if is_causal:
            raise InvalidArgument("is_causal: True together with attn_mask, must be one of them")
        need_tensors(("attn_mask",), attn_mask)
        attn_mask, rule = _causal_bias(attn_mask, query.shape[-2], key.shape[-2])
    elif is_causal:
        rule = "causal_top_left"
    shape = query.shape
    q, k, v = _common_batch(query, key, value)
    folded = q is not query
    batch = torch.broadcast_shapes(shape[:-3], key.shape[:-3], value.shape[:-3]) if folded else shape[:1]
    if q.shape[1] != k.shape[1] or k.shape[1] != v.shape[1]:
        q, k, v = _match_heads(q, k, v, enable_gqa)
    if scale is None:
        scale = default_scale(q.shape[-1])
    pse = hidden = None
    if attn_mask is not None:
        mask = _mask_4d(attn_mask, (*batch, *q.shape[1:]))
        full = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        if any(extent not in (1, whole) for extent, whole in zip(mask.shape, full, strict=True)):
            raise InvalidArgument(
                f"attn_mask: shape {tuple(attn_mask.shape)}, must broadcast to (..., {full[1]}, {full[2]}, {full[3]})"
            )
        if mask.dtype == torch.bool:
            heads = 1 if mask.shape[1] == 1 else full[1]
            hidden = torch.logical_not(mask).expand(full[0], heads, *full[2:])
        else:
            if mask.dtype not in (q.dtype, torch.float32):
                (mask,) = autocast(mask)
            if mask.dtype not in (q.dtype, torch.float32):
                raise InvalidArgument(f"attn_mask: {mask.dtype}, must be bool, float32 or query's {q.dtype}")
            pse = mask if mask.shape[3] == full[3] else mask.expand(-1, -1, -1, full[3])
    # Without groups heads are as good as batches, and there may be more of those.
    swapped = q.shape[1] > MOST_HEADS and q.shape[1] == k.shape[1]
    if swapped:
        q, k, v, pse, hidden = (None if t is None else t.transpose(0, 1) for t in (q, k, v, pse, hidden))
        if hidden is not None:
            hidden = hidden.expand(q.shape[0], *hidden.shape[1:])
    rng = None
    keep_prob = 1.0
    if dropout_p > 0.0:
        keep_prob, rng = keep_prob_of(dropout_p), draw_rng()
    tensors = (q, k, v, None, None, pse, None, hidden, None, None, None, rng)
    out = _ops.attention(
        tensors, scale=float(scale), rule=rule, sparse_mode=1 if hidden is not None else 0, pse_type=0,
        keep_prob=keep_prob,
    )[0]  # fmt: skip
    if swapped:
        out = out.transpose(0, 1)
    if dropout_p == 1.0:
        out = out * 0.0
    return out.reshape(_result_shape(shape, batch, out)) if folded else out


def _result_shape(query: torch.Size, batch: Any, out: Tensor) -> tuple[Any, ...]:
    """(..., Hq, L, Ev) with the broadcast leading axes and as many axes as the inputs have."""
    if len(query) == 2 and not batch and out.shape[1] == 1:
        return tuple(out.shape[2:])
    return (*batch, *out.shape[1:])


def _match_heads(q: Tensor, k: Tensor, v: Tensor, grouped: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Head counts the operator takes (N1 a multiple of N2 = those of k and v), by PyTorch's rules."""
    heads = (q.shape[1], k.shape[1], v.shape[1])
    if grouped:
        if heads[1] == 0 or heads[2] == 0 or heads[0] % heads[1] or heads[0] % heads[2]:
            raise InvalidArgument(
                f"enable_gqa: {heads[0]} query heads, {heads[1]} key heads, {heads[2]} value heads, the first must be "
                "a multiple of the others"
            )
        if heads[1] != heads[2]:
            k = k.repeat_interleave(heads[0] // heads[1], 1)
            v = v.repeat_interleave(heads[0] // heads[2], 1)
        return q, k, v
    most = max(heads)
    if any(count not in (1, most) for count in heads):
        raise InvalidArgument(
            f"query, key, value: {heads[0]}, {heads[1]}, {heads[2]} heads, must agree or be 1 (or pass enable_gqa=True)"
        )
    if heads[1] == heads[2] == 1:
        return q, k, v  # one key head for all: a group, natively
    return tuple(t.expand(-1, most, -1, -1) for t in (q, k, v))


def _causal_bias(mask: Tensor, rows: int, columns: int) -> tuple[Tensor | None, str]:
    """torch.nn.attention.bias.causal_upper_left / causal_lower_right as a rule; any other mask as it is.

    As PyTorch has it: a square bias is is_causal, and its size does not matter; a lower right one of another size than
    the scores is the mask that it stands for.
    """
    if type(mask) is Tensor:
        return mask, "none"
    from torch.nn.attention.bias import CausalBias, CausalVariant

    if not isinstance(mask, CausalBias):
        return mask, "none"
    if mask.variant == CausalVariant.UPPER_LEFT or mask.seq_len_q == mask.seq_len_kv:
        return None, "causal_top_left"
    if (mask.seq_len_q, mask.seq_len_kv) == (rows, columns):
        return None, "causal_bottom_right"
    return mask._materialize(), "none"
