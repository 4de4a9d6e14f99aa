# SPDX-License-Identifier: Apache-2.0
"""The C++ library behind fascore. Internal: use the functions of the package."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__version__: str

_Arrays = tuple[Any, ...]
_Progress = Callable[[int, int], object] | None

class Params:
    def __init__(
        self,
        *,
        layout: str = "BNSD",
        head_num: int = 0,
        scale: float = 1.0,
        sparse_mode: int = 0,
        pre_tokens: int = 2147483647,
        next_tokens: int = 2147483647,
        prefix: Sequence[int] = ...,
        check_mask: bool = False,
        rule: str = "none",
        left: int = -1,
        right: int = -1,
        actual_seq_qlen: Sequence[int] = ...,
        actual_seq_kvlen: Sequence[int] = ...,
        softmax_layout: str = "",
        pse_type: int = 1,
        q_start_idx: int = 0,
        kv_start_idx: int = 0,
        keep_prob: float = 1.0,
        seed: int = 0,
        offset: int = 0,
        softcap: float = 0.0,
        inner_precise: int = 0,
    ) -> None: ...

def forward(params: Params, inputs: _Arrays, outputs: _Arrays, threads: int, isa: str, progress: _Progress) -> None: ...
def backward(
    params: Params, inputs: _Arrays, outputs: _Arrays, threads: int, isa: str, progress: _Progress
) -> None: ...
def reference_forward(params: Params, inputs: _Arrays, outputs: _Arrays, plain: bool) -> None: ...
def reference_backward(params: Params, inputs: _Arrays, outputs: _Arrays, plain: bool) -> None: ...
def plan_forward(params: Params, inputs: _Arrays, outputs: _Arrays, threads: int, isa: str) -> dict[str, Any]: ...
def plan_backward(params: Params, inputs: _Arrays, outputs: _Arrays, threads: int, isa: str) -> dict[str, Any]: ...
def forward_seconds(params: Params, inputs: _Arrays, outputs: _Arrays, threads: int, repeat: int) -> float: ...
def backward_seconds(params: Params, inputs: _Arrays, outputs: _Arrays, threads: int, repeat: int) -> float: ...
def dropout_keep(seed: int, offset: int, keep_prob: float, first_element: int, keep: Any) -> None: ...
def use_huge_pages(address: int, bytes: int) -> None: ...
def kept_memory(bytes: int) -> np.ndarray: ...
def kept_bytes() -> int: ...
def empty_cache() -> None: ...
def info() -> dict[str, Any]: ...
def measure_peak(isa: str = "") -> dict[str, float]: ...
def set_hooks(
    classify: Callable[[type], int], dtype_of: Callable[[Any], int], invalid_argument: type[Exception]
) -> None: ...
