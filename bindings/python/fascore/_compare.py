# SPDX-License-Identifier: Apache-2.0
"""python -m fascore compare: the backward through fascore.torch against torch's own attention at its best.

Same tensors, same process, alternating, medians. "At its best" is the fastest of PyTorch's ways to the same gradients:
its fused CPU attention where it takes the call, its math attention, and for bf16 either of them in float32 with casts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import _core
from . import torch as ours
from .torch import _ops


class Row(NamedTuple):
    name: str
    shape: tuple[int, int, int, int]
    dtype: torch.dtype
    causal: bool = False
    window: int | None = None
    mask_gradient: bool = False
    dropout: float = 0.0
    wanted: float = 1.0


ROWS = (
    Row("bf16_4096_128_causal", (1, 8, 4096, 128), torch.bfloat16, causal=True, wanted=1.8),
    Row("f32_1024_64_full", (4, 16, 1024, 64), torch.float32, wanted=1.1),
    Row("f32_1024_64_causal", (4, 16, 1024, 64), torch.float32, causal=True, wanted=1.5),
    Row("f32_2048_64_window256", (1, 8, 2048, 64), torch.float32, window=256, wanted=8.0),
    Row("f32_2048_64_mask_gradient", (1, 8, 2048, 64), torch.float32, mask_gradient=True, wanted=2.0),
    Row("f32_2048_64_dropout", (1, 8, 2048, 64), torch.float32, dropout=0.1, wanted=2.0),
)


def _own(row: Row, mask: Tensor | None) -> Callable[..., Tensor]:
    if row.window is not None:
        return lambda q, k, v: ours.attention(q, k, v, window=(row.window - 1, 0))
    return lambda q, k, v: ours.scaled_dot_product_attention(q, k, v, mask, row.dropout, row.causal)


def _theirs(row: Row, mask: Tensor | None, backend: SDPBackend, cast: bool) -> Callable[..., Tensor]:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        inputs = [t.float() for t in (q, k, v)] if cast else [q, k, v]
        with sdpa_kernel(backend):
            out = ours.original(*inputs, attn_mask=mask, dropout_p=row.dropout, is_causal=row.causal)
        return out.to(q.dtype)

    return attention


def _backward(attention: Callable[..., Tensor], inputs: list[Tensor], dy: Tensor) -> Callable[[], object]:
    out = attention(*inputs[:3])
    return lambda: torch.autograd.grad(out, inputs, dy, retain_graph=True)


def measure(row: Row, repeat: int) -> dict[str, Any]:
    torch.manual_seed(0)
    batch, heads, length, size = row.shape
    inputs = [torch.randn(row.shape, dtype=torch.float32).to(row.dtype).requires_grad_() for _ in range(3)]
    dy = torch.randn(row.shape).to(row.dtype)
    mask = None
    if row.mask_gradient:
        mask = torch.randn(1, heads, length, length, dtype=row.dtype).requires_grad_()
        inputs.append(mask)
    elif row.window is not None:
        away = torch.arange(length)[None] - torch.arange(length)[:, None]
        mask = (away <= 0) & (away > -row.window)
    ways = {"fascore": _backward(_own(row, mask), inputs, dy)}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        for cast in (False, True) if row.dtype == torch.bfloat16 else (False,):
            name = f"torch {backend.name.lower()}{' in f32' if cast else ''}"
            try:
                ways[name] = _backward(_theirs(row, mask, backend, cast), inputs, dy)
            except RuntimeError:
                continue  # that way does not take the call
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeat + 1):
        for name, function in ways.items():
            begin = time.perf_counter()
            function()
            if turn:  # the first turn warms up
                times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(list_) for name, list_ in times.items()}
    best = min((name for name in medians if name != "fascore"), key=medians.__getitem__)
    return {
        "name": row.name,
        "seconds": medians,
        "best": best,
        "ratio": medians[best] / medians["fascore"],
        "wanted": row.wanted,
    }


def call_overhead(repeat: int = 50, calls: int = 200) -> dict[str, float]:
    """Microseconds of the smallest forward: in C++ alone, and through each door, the least of `repeat` rounds."""
    from . import flash_attention_score

    tensor = torch.randn(1, 1, 1, 16)
    array = tensor.numpy()
    inputs = (tensor,) * 3 + (None,) * 9
    outputs = _ops._allocate(tensor, tensor, tensor, "BNSD", 0, 1)
    params = _core.Params()
    doors = {
        "fascore.flash_attention_score, NumPy": lambda: flash_attention_score(array, array, array),
        "fascore.flash_attention_score, torch": lambda: flash_attention_score(tensor, tensor, tensor),
        "fascore.torch.attention": lambda: ours.attention(tensor, tensor, tensor),
        "fascore.torch.scaled_dot_product_attention": lambda: ours.scaled_dot_product_attention(tensor, tensor, tensor),
    }
    least = {name: float("inf") for name in ("C++", *doors)}
    for _ in range(repeat):
        least["C++"] = min(least["C++"], _core.forward_seconds(params, inputs, outputs, 0, calls))
        for name, door in doors.items():
            begin = time.perf_counter()
            for _ in range(calls):
                door()
            least[name] = min(least[name], (time.perf_counter() - begin) / calls)
    return {name: 1e6 * seconds for name, seconds in least.items()}


def run(arguments: argparse.Namespace) -> int:
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    chosen = arguments.only.split(",") if arguments.only else [row.name for row in ROWS]
    report: dict[str, Any] = {"rows": [], "overhead_us": call_overhead(10 * arguments.repeat)}
    print(f"{'backward of':<28} {'fascore':>10} {'torch':>10} {'faster':>8} {'wanted':>7}  torch's best")
    for row in ROWS:
        if row.name not in chosen:
            continue
        result = measure(row, arguments.repeat)
        report["rows"].append(result)
        seconds = result["seconds"]
        print(
            f"{row.name:<28} {seconds['fascore']:>10.5f} {seconds[result['best']]:>10.5f} {result['ratio']:>7.2f}x "
            f"{row.wanted:>6.1f}x  {result['best']}",
            flush=True,
        )
    print("\nsmallest forward, microseconds a call:")
    for name, microseconds in report["overhead_us"].items():
        print(f"  {name:<44} {microseconds:>7.1f}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0
