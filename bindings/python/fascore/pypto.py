# SPDX-License-Identifier: Apache-2.0
"""The gradient wrapper of CANN's PyPTO-Gym, on NumPy arrays or torch CPU tensors.

Plain attention in layout BNSD: no mask, no bias, no dropout, as many key heads as query heads, S1 = S2.
"""

from __future__ import annotations

from typing import Any

from ._arrays import required
from ._operator import flash_attention_score_grad
from .errors import InvalidArgument

__all__ = ["HEAD_DIM", "NUM_HEADS", "S_TILE", "flash_attention_score_grad_wrapper"]

NUM_HEADS = 8
HEAD_DIM = 64
S_TILE = 128


def flash_attention_score_grad_wrapper(
    query: Any,
    key: Any,
    value: Any,
    dy: Any,
    softmax_max: Any,
    softmax_sum: Any,
    attention_out: Any,
    scale_value: float,
    num_heads: int = NUM_HEADS,
    head_dim: int = HEAD_DIM,
) -> tuple[Any, Any, Any]:
    """(dq, dk, dv) from the forward's results.

    query, key, value, dy, attention_out are ``[B, num_heads, S, head_dim]`` with S a multiple of 128, one dtype;
    softmax_max and softmax_sum ``[B, num_heads, S, 8]`` float32, of which copy 0 is read. Raises ValueError for another
    shape.

    Source: flash_attention_score_grad_impl of PyPTO-Gym.
    """
    query, key, value, dy = (
        required(array, name) for name, array in (("query", query), ("key", key), ("value", value), ("dy", dy))
    )
    softmax_max, softmax_sum = required(softmax_max, "softmax_max"), required(softmax_sum, "softmax_sum")
    attention_out = required(attention_out, "attention_out")
    shape = tuple(query.shape)
    if len(shape) != 4:
        raise InvalidArgument(f"query: {len(shape)} axes, must have 4 (BNSD)")
    if shape[1] != num_heads:
        raise InvalidArgument(f"query: {shape[1]} heads, must have num_heads = {num_heads}")
    if shape[3] != head_dim:
        raise InvalidArgument(f"query: head size {shape[3]}, must be head_dim = {head_dim}")
    if shape[2] % S_TILE != 0:
        raise InvalidArgument(f"query: S = {shape[2]}, must be a multiple of {S_TILE}")
    for name, array in (("key", key), ("value", value), ("dy", dy), ("attention_out", attention_out)):
        if tuple(array.shape) != shape:
            raise InvalidArgument(f"{name}: shape {tuple(array.shape)}, must be query's {shape}")
    for name, array in (("softmax_max", softmax_max), ("softmax_sum", softmax_sum)):
        if tuple(array.shape) != (*shape[:3], 8):
            raise InvalidArgument(f"{name}: shape {tuple(array.shape)}, must be {(*shape[:3], 8)}")
    result = flash_attention_score_grad(
        query, key, value, dy, softmax_max, softmax_sum, attention_out, scale=scale_value
    )
    return result.dq, result.dk, result.dv
