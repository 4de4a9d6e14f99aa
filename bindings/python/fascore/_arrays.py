# SPDX-License-Identifier: Apache-2.0
"""Arrays of either kind: what fascore knows of NumPy and torch, and the only place that knows it.

A dtype has one name here, that of include/fascore/tensor.h ("f64", "f32", "bf16", "f16", "bool", "u8", "f8e4m3",
"f8e5m2"), whichever library the array comes from. NumPy has bfloat16 and float8 from the package ml_dtypes.
torch is never imported here: an array can only be a torch tensor when somebody else has imported torch.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import _core
from .errors import InvalidArgument

NAMES = ("f64", "f32", "bf16", "f16", "bool", "u8", "f8e4m3", "f8e5m2")  # in the order of fascore::DType
_NUMPY_NAMES = {
    "float64": "f64",
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "bool": "bool",
    "uint8": "u8",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}
_LONG_NAMES = {short: long for long, short in _NUMPY_NAMES.items()}
EIGHT_BIT = ("f8e4m3", "f8e5m2")

_NUMPY, _TORCH = 0, 1


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _classify(kind: type) -> int:
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        return _TORCH
    if issubclass(kind, np.ndarray):
        return _NUMPY
    raise TypeError(f"{kind.__module__}.{kind.__qualname__}: not an array, must be a numpy.ndarray or a torch.Tensor")


@functools.cache
def dtype_name(dtype: Any) -> str:
    """The name of a NumPy or torch dtype; TypeError for one fascore does not take."""
    if isinstance(dtype, np.dtype):
        known = _NUMPY_NAMES.get(dtype.name) if dtype.isnative else None
    else:
        known = _NUMPY_NAMES.get(str(dtype).removeprefix("torch."))
    if known is None:
        raise TypeError(f"dtype {dtype}, must be one of {', '.join(_LONG_NAMES.values())}")
    return known


_core.set_hooks(_classify, lambda dtype: NAMES.index(dtype_name(dtype)), InvalidArgument)


@functools.cache
def _numpy_dtype(name: str) -> np.dtype:
    if name in ("f64", "f32", "f16", "bool", "u8"):
        return np.dtype(_LONG_NAMES[name])
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(f"{_LONG_NAMES[name]} for NumPy needs the package ml_dtypes") from error
    return np.dtype(getattr(ml_dtypes, _LONG_NAMES[name]))


def as_array(array: Any, name: str) -> Any:
    """`array` itself when it is one; an array of another library by DLPack, without a copy."""
    if array is None or type(array) is np.ndarray or is_torch(array):
        return array
    if isinstance(array, np.ndarray):
        if np.ma.is_masked(array):
            raise TypeError(f"{name}: a MaskedArray with masked elements, must have none (atten_mask hides pairs)")
        return array
    if hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    raise TypeError(
        f"{name}: {type(array).__name__}, must be a numpy.ndarray, a torch.Tensor or an array with DLPack support"
    )


def required(array: Any, name: str) -> Any:
    """as_array of what may not be left out."""
    if array is None:
        raise InvalidArgument(f"{name}: absent, must be given")
    return as_array(array, name)


_HUGE_PAGES = 4 << 20  # bytes: from here on fresh memory asks for huge pages, as NumPy's own does
_KEPT = 32 << 20  # malloc gives longer blocks back to the kernel each time: from here on they are kept for the next call


def give_memory(tensors: Iterable[Any]) -> None:
    """Prepares the memory of large uninitialised torch tensors (or None), as src/memory.h says."""
    for tensor in tensors:
        if tensor is None or tensor.nbytes < _HUGE_PAGES:
            continue
        if tensor.nbytes > _KEPT:
            memory = sys.modules["torch"].from_numpy(_core.kept_memory(tensor.nbytes))
            tensor.set_(memory.untyped_storage(), 0, tensor.shape, tensor.stride())
        else:
            _core.use_huge_pages(tensor.data_ptr(), tensor.nbytes)


def empty(like: Any, shape: Sequence[int], dtype: str) -> Any:
    """An uninitialised array of `like`'s library."""
    if is_torch(like):
        torch = sys.modules["torch"]
        tensor = torch.empty(shape, dtype=getattr(torch, _LONG_NAMES[dtype]))
        give_memory((tensor,))
        return tensor
    array = np.empty(shape, dtype=_numpy_dtype(dtype))
    if array.nbytes <= _KEPT:
        return array
    return np.ndarray(array.shape, array.dtype, _core.kept_memory(array.nbytes))


def same_kind(like: Any, array: np.ndarray) -> Any:
    """A NumPy array as an array of `like`'s library, sharing memory."""
    return sys.modules["torch"].from_numpy(array) if is_torch(like) else array


def integer(value: Any, name: str, bits: int = 64) -> int:
    """A signed integer of so many bits; 0 = any."""
    if type(value) is not int:
        try:
            value = operator.index(value)
        except TypeError:
            raise TypeError(f"{name}: {value!r}, must be an integer") from None
    if bits and not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise InvalidArgument(f"{name}: {value}, must be a {bits}-bit integer")
    return value


def unsigned(value: Any, name: str) -> int:
    """An integer as its 64 bits read without a sign: seeds and offsets."""
    return integer(value, name, 0) % (1 << 64)


def real(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {value!r}, must be a number") from None


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: {value!r}, must be a string")
    return value


def integers(values: Any, name: str) -> list[int]:
    """A sequence, array or tensor of integers (or None) as a list."""
    if values is None:
        return []
    given = values
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: {given!r}, must be a sequence of integers")
    return [integer(value, name) for value in values]


def bounds(window: Any, name: str) -> tuple[int, int]:
    """A window (left, right)."""
    pair = integers(window, name)
    if len(pair) != 2:
        raise InvalidArgument(f"{name}: {window!r}, must be (left, right)")
    return pair[0], pair[1]
