# SPDX-License-Identifier: Apache-2.0
"""enable(): torch.nn.functional.scaled_dot_product_attention goes to fascore for CPU tensors it serves.

The function is replaced in torch.nn.functional, so it reaches every caller that looks it up there when it calls:
torch.nn.MultiheadAttention, TransformerEncoder, model libraries. A name bound by `from torch.nn.functional import ...`
before enable() keeps what it had.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import math
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.autograd import forward_ad

from ._functional import MOST_HEADS, scaled_dot_product_attention

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_LARGEST_HEAD = 768
_MOST_ROWS = 1 << 20

_original = functional.scaled_dot_product_attention
_lock = threading.Lock()
_depth = 0


def serves(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> bool:
    """Whether enable() sends such a call to fascore; anything else, PyTorch's refusals too, stays with PyTorch."""
    for tensor in (query, key, value):
        if not isinstance(tensor, Tensor) or not tensor.is_cpu or tensor.layout != torch.strided or tensor.is_nested:
            return False
        if tensor.dtype not in _DTYPES or tensor.dim() < 2 or not 1 <= tensor.shape[-1] <= _LARGEST_HEAD:
            return False
        if tensor.shape[-2] > _MOST_ROWS:
            return False
    if attn_mask is not None:
        if is_causal:  # PyTorch applies both, or refuses, from version to version
            return False
        if not attn_mask.is_cpu or attn_mask.layout != torch.strided or attn_mask.is_nested:
            return False
    if scale is not None and not math.isfinite(scale):
        return False
    if forward_ad._current_level >= 0:
        return False
    return _few_heads(query, key, value)


def _few_heads(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the operator has room for the heads, or for the batch where heads are turned into batches."""
    heads = [tensor.shape[-3] if tensor.dim() > 2 else 1 for tensor in (query, key, value)]
    if max(heads) <= MOST_HEADS:
        return True
    if min(heads) != max(heads):
        return False
    try:
        return torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3]).numel() <= MOST_HEADS
    except RuntimeError:  # shapes that do not fit: PyTorch says so
        return False


def _routed(
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
    given = (query, key, value, attn_mask, dropout_p, is_causal)
    served = serves(*given, scale=scale, enable_gqa=enable_gqa)
    chosen = scaled_dot_product_attention if served else _original
    return chosen(*given, scale=scale, enable_gqa=enable_gqa)


# A function that is scripted while enable() is in force calls PyTorch's, which TorchScript knows.
torch.jit._builtins._register_builtin(_routed, "aten::scaled_dot_product_attention")


# torch.nn.attention.bias.CausalBias knows PyTorch's function by the name that enable() gives to another: while that is
# so it is told. The module brings torch.compile along, seconds of imports, so it is not imported here but waited for.
_BIAS = "torch.nn.attention.bias"
_of_bias: Any = None  # CausalBias's own __torch_function__


def _by_function(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    if func is _original:
        return cls._dispatch(*args, **(kwargs or {}))
    return _of_bias.__get__(None, cls)(func, types, args, kwargs)


class _BiasFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _BIAS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _tell_bias(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_finder = _BiasFinder()


def _tell_bias(module: ModuleType) -> None:
    global _of_bias
    kind = module.CausalBias
    if _of_bias is None:
        _of_bias = kind.__dict__["__torch_function__"]
    kind.__torch_function__ = classmethod(_by_function) if _depth else _of_bias


def _install(function: Any) -> None:
    functional.scaled_dot_product_attention = function
    if _BIAS in sys.modules:
        _tell_bias(sys.modules[_BIAS])
    elif _depth and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    elif not _depth and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


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
            _install(_routed)

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
            _install(_original)


def original(*args: Any, **kwargs: Any) -> Tensor:
    """PyTorch's own scaled_dot_product_attention, also while enable() is in force."""
    return _original(*args, **kwargs)
