# SPDX-License-Identifier: Apache-2.0
"""enable(): torch.nn.functional.scaled_dot_product_attention goes to fascore for CPU tensors it serves.

The function is replaced in torch.nn.functional, so it reaches every caller that looks it up there when it calls:
torch.nn.MultiheadAttention, TransformerEncoder, model libraries. A name bound by `from torch.nn.functional import ...`
before enable() keeps what it had.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from ._functional import MOST_HEADS, scaled_dot_product_attention

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_LARGEST_HEAD = 768

_original = functional.scaled_dot_product_attention
_lock = threading.Lock()
_depth = 0


def serves(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> bool:
    """Whether enable() sends such a call to fascore; anything else stays with PyTorch."""
    for tensor in (query, key, value):
        if not isinstance(tensor, Tensor) or not tensor.is_cpu or tensor.layout != torch.strided or tensor.is_nested:
            return False
        if tensor.dtype not in _DTYPES or tensor.dim() < 2 or not 1 <= tensor.shape[-1] <= _LARGEST_HEAD:
            return False
    if query.dim() > 3 and query.shape[-3] > MOST_HEADS and query.shape[:-3].numel() > MOST_HEADS:
        return False
    return attn_mask is None or (attn_mask.is_cpu and not attn_mask.is_nested)


def _routed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    chosen = scaled_dot_product_attention if serves(query, key, value, attn_mask) else _original
    return chosen(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


class enable:
    """Routes torch.nn.functional.scaled_dot_product_attention to fascore, from the call on.

        fascore.torch.enable()            # until fascore.torch.disable()
        with fascore.torch.enable():      # until the end of the block
            model(x)

    Calls nest; PyTorch's own function is back when the last one ends.
    """

    def __init__(self) -> None:
        global _depth
        with _lock:
            _depth += 1
            functional.scaled_dot_product_attention = _routed

    def __enter__(self) -> enable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        disable()


def disable() -> None:
    """Takes one enable() back."""
    global _depth
    with _lock:
        _depth = max(0, _depth - 1)
        if _depth == 0:
            functional.scaled_dot_product_attention = _original


def original(*args: Any, **kwargs: Any) -> Tensor:
    """PyTorch's own scaled_dot_product_attention, also while enable() is in force."""
    return _original(*args, **kwargs)
