# SPDX-License-Identifier: Apache-2.0
"""fascore: exact fused attention and its gradient on any CPU, for NumPy and PyTorch.

    fascore.flash_attention_score, fascore.flash_attention_score_grad    the operator pair, on arrays of either kind
    fascore.golden                                                       its float64 reference
    fascore.torch                                                        differentiable attention for PyTorch
    fascore.flash_attn, fascore.torch_npu                                the names other libraries use

The last three need torch and are imported when asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from . import _arrays, _core, golden
from ._operator import BackwardResult, ForwardResult, flash_attention_score, flash_attention_score_grad, plan
from .errors import InvalidArgument
from .pypto import flash_attention_score_grad_wrapper

__version__ = _core.__version__

__all__ = [
    "BackwardResult",
    "ForwardResult",
    "InvalidArgument",
    "dropout_keep",
    "empty_cache",
    "flash_attention_score",
    "flash_attention_score_grad",
    "flash_attention_score_grad_wrapper",
    "golden",
    "info",
    "measure_peak",
    "plan",
]

_NEED_TORCH = ("flash_attn", "torch", "torch_npu")


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def info() -> dict[str, Any]:
    """Instruction sets of this build, the one that is chosen and why, threads, environment variables."""
    return _core.info()


def empty_cache() -> None:
    """Gives back to the system what fascore keeps of freed results above 32 MiB for the next call of the same sizes.

    Kept and in use together it is never more than the results once in use at one time; the kernel may take the pages
    of what is kept whenever it is short of memory.
    """
    _core.empty_cache()


def measure_peak(isa: str = "") -> dict[str, float]:
    """Peak of one core right now in GFLOP/s, by multiply-add kind (0 where there is none); takes about 0.3 s."""
    return _core.measure_peak(_arrays.text(isa, "isa"))


def dropout_keep(shape: tuple[int, ...], seed: int, offset: int = 0, keep_prob: float = 1.0) -> np.ndarray:
    """The keep mask the operator draws from seed and offset for weights of `shape` (..., S1, S2), as bool."""
    extents = _arrays.integers(shape, "shape")
    if not extents or min(extents) < 0:
        raise InvalidArgument(f"shape: {shape!r}, must be (..., S1, S2) with no extent below 0")
    state = (_arrays.unsigned(seed, "seed"), _arrays.unsigned(offset, "offset"))
    keep = _arrays.empty(None, extents, "bool")
    if keep.size:
        _core.dropout_keep(*state, _arrays.real(keep_prob, "keep_prob"), 0, keep.reshape(-1, extents[-1]))
    return keep
