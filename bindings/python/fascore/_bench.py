# SPDX-License-Identifier: Apache-2.0
"""python -m fascore bench: fascore as the share of this core's peak over S, and its error, beside PyTorch's attention.

Speed of fascore comes from the program (`fascore bench --json`, medians, peak measured around each row); without the
program the package times itself. PyTorch's attention runs the same shapes here, its share is taken of the same peak.
For bf16 its time is the better of native and cast to f32 and back. Both errors are root mean squares against the
float64 reference, relative to the reference's, on one head and at most `ERROR_LENGTH` rows (the reference is O(S^2)).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import flash_attention_score, flash_attention_score_grad, golden, measure_peak, plan

ERROR_LENGTH = 1024
DIRECTIONS = ("forward", "backward")


def find_program(given: str | None) -> str | None:
    if given:
        return given
    beside = Path.cwd() / "build" / "fascore"
    return shutil.which("fascore") or (str(beside) if beside.exists() else None)


def _by_program(program: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    batch, heads, size = arguments.shape.split(",")
    causal = " --causal" if arguments.causal else ""
    rows = [
        f"S{length} --shape {batch},{heads},{length},{size} --dtype {arguments.dtype}{causal}"
        for length in arguments.lengths
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as suite:
        suite.write("\n".join(rows) + "\n")
        suite.flush()
        command = [program, "bench", suite.name, "--json", "--threads", str(arguments.threads)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    wanted = ("direction", "S1", "seconds", "operations", "peak_gflops", "share")
    return [{name: row[name] for name in wanted} for row in json.loads(done.stdout)]


def _median(function: Callable[[], object], repeat: int) -> float:
    function()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def _arrays(arguments: argparse.Namespace, length: int, heads: int | None = None) -> list[np.ndarray]:
    batch, all_heads, size = (int(part) for part in arguments.shape.split(","))
    random = np.random.default_rng(length)
    shape = (batch, all_heads, length, size) if heads is None else (1, heads, length, size)
    return [random.standard_normal(shape).astype(_dtype(arguments.dtype)) for _ in range(4)]


def _dtype(name: str) -> Any:
    if name == "f32":
        return np.float32
    import ml_dtypes

    return ml_dtypes.bfloat16


def _by_package(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    rule = "causal_bottom_right" if arguments.causal else "none"
    for length in arguments.lengths:
        query, key, value, dy = _arrays(arguments, length)
        given = {"scale": query.shape[-1] ** -0.5, "rule": rule}
        inputs = (query, key, value)
        saved = flash_attention_score(*inputs, **given)
        results = (saved.softmax_max, saved.softmax_sum, saved.attention_out)

        def forward() -> object:
            return flash_attention_score(*inputs, **given, threads=arguments.threads)  # noqa: B023

        def backward() -> object:
            return flash_attention_score_grad(*inputs, dy, *results, **given, threads=arguments.threads)  # noqa: B023

        peaks = measure_peak()
        for direction, function, extra in (("forward", forward, ()), ("backward", backward, (dy, *results))):
            about = plan(direction, *inputs, *extra, **given)
            peak = peaks["bf16_dot"] if about["compute"] == "bf16" and peaks["bf16_dot"] else peaks["f32"]
            seconds = _median(function, arguments.repeat)
            share = about["operations"] / seconds / 1e9 / (peak * max(1, arguments.threads))
            rows.append(
                {
                    "direction": direction,
                    "S1": length,
                    "seconds": seconds,
                    "operations": about["operations"],
                    "peak_gflops": peak,
                    "share": share,
                }
            )
    return rows


def torch_attention(query: Any, key: Any, value: Any, causal: bool, cast: bool) -> Any:
    """PyTorch's own attention; `cast`: in float32 and back."""
    import torch

    from .torch import original

    inputs = [t.to(torch.float32) for t in (query, key, value)] if cast else (query, key, value)
    out = original(*inputs, is_causal=causal)
    return out.to(query.dtype) if cast else out


def to_torch(array: np.ndarray) -> Any:
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array)


def _torch_seconds(arguments: argparse.Namespace, length: int) -> dict[str, float]:
    import torch

    torch.set_num_threads(max(1, arguments.threads))
    best: dict[str, float] = {}
    for cast in (False, True) if arguments.dtype == "bf16" else (False,):
        query, key, value, dy = (to_torch(array) for array in _arrays(arguments, length))
        inputs = [t.requires_grad_() for t in (query, key, value)]
        out = torch_attention(*inputs, arguments.causal, cast)

        def forward() -> object:
            with torch.no_grad():
                return torch_attention(*inputs, arguments.causal, cast)  # noqa: B023

        def backward() -> object:
            return torch.autograd.grad(out, inputs, dy, retain_graph=True)  # noqa: B023

        for direction, function in zip(DIRECTIONS, (forward, backward), strict=True):
            seconds = _median(function, arguments.repeat)
            best[direction] = min(seconds, best.get(direction, seconds))
    return best


def _relative_rms(actual: Any, exact: np.ndarray) -> float:
    difference = np.asarray(actual, dtype=np.float64) - exact
    return float(np.sqrt((difference**2).mean()) / np.sqrt((exact**2).mean()))


def errors(arguments: argparse.Namespace, length: int) -> dict[str, dict[str, float]]:
    """Relative rms error of attention_out and the gradients, ours and PyTorch's."""
    import torch

    query, key, value, dy = _arrays(arguments, length, heads=1)
    given = {"scale": query.shape[-1] ** -0.5, "rule": "causal_bottom_right" if arguments.causal else "none"}
    exact_out = golden.flash_attention_score(query, key, value, **given)
    exact = golden.flash_attention_score_grad(query, key, value, dy, **given)
    saved = flash_attention_score(query, key, value, **given)
    ours = flash_attention_score_grad(
        query, key, value, dy, saved.softmax_max, saved.softmax_sum, saved.attention_out, **given
    )
    inputs = [to_torch(array).requires_grad_() for array in (query, key, value)]
    out = torch_attention(*inputs, arguments.causal, False)
    theirs = torch.autograd.grad(out, inputs, to_torch(dy))
    result = {"attention_out": {"fascore": _relative_rms(saved.attention_out, exact_out.attention_out)}}
    result["attention_out"]["torch"] = _relative_rms(out.detach().double().numpy(), exact_out.attention_out)
    for at, name in enumerate(("dq", "dk", "dv")):
        result[name] = {
            "fascore": _relative_rms(ours[at], exact[at]),
            "torch": _relative_rms(theirs[at].double().numpy(), exact[at]),
        }
    return result


def _with_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def run(arguments: argparse.Namespace) -> int:
    program = None if arguments.package else find_program(arguments.program)
    print(f"fascore by {program or 'the Python package'}, {arguments.threads} thread(s)")
    rows = _by_program(program, arguments) if program else _by_package(arguments)
    report: dict[str, Any] = {"dtype": arguments.dtype, "causal": arguments.causal, "rows": rows, "errors": {}}
    with_torch = _with_torch()
    for length in _bar(arguments.lengths, "PyTorch") if with_torch else ():
        seconds = _torch_seconds(arguments, length)
        for row in rows:
            if row["S1"] == length:
                row["torch_seconds"] = seconds[row["direction"]]
                row["torch_share"] = row["share"] * row["seconds"] / row["torch_seconds"]
        if length <= ERROR_LENGTH:
            report["errors"][length] = errors(arguments, length)
    print(f"{'S':>6} {'way':<9} {'seconds':>10} {'share':>7} {'torch':>10} {'share':>7} {'faster':>7}")
    for row in rows:
        theirs = row.get("torch_seconds")
        tail = f"{theirs:>10.5f} {100 * row['torch_share']:>6.1f}% {theirs / row['seconds']:>6.2f}x" if theirs else ""
        print(f"{row['S1']:>6} {row['direction']:<9} {row['seconds']:>10.5f} {100 * row['share']:>6.1f}% {tail}")
    for length, table in report["errors"].items():
        for name, both in table.items():
            print(f"error at S = {length}, {name:<14} fascore {both['fascore']:.2e}  torch {both['torch']:.2e}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if arguments.plot:
        draw(report, arguments.plot)
        print(f"wrote {arguments.plot}")
    return 0


def _bar(items: list[int], what: str) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return items
    return tqdm(items, desc=what, unit="length")


def _finish(axes: Any, lengths: list[int]) -> None:
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
    axes.legend(ncols=2, fontsize="small")
    axes.grid(alpha=0.3)


def draw(report: dict[str, Any], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    colours = {"forward": "tab:blue", "backward": "tab:red"}
    figure, (speed, error) = pyplot.subplots(1, 2, figsize=(12, 5))
    for direction in DIRECTIONS:
        rows = [row for row in report["rows"] if row["direction"] == direction]
        lengths = [row["S1"] for row in rows]
        speed.plot(
            lengths,
            [100 * row["share"] for row in rows],
            "o-",
            color=colours[direction],
            label=f"fascore {direction}",
        )
        if rows and "torch_share" in rows[0]:
            speed.plot(
                lengths,
                [100 * row["torch_share"] for row in rows],
                "s--",
                color=colours[direction],
                alpha=0.6,
                label=f"torch {direction}",
            )
    speed.set(
        xscale="log",
        xlabel="S",
        ylabel="share of this core's peak, %",
        title=f"speed, {report['dtype']}{', causal' if report['causal'] else ''}",
        ylim=(0, None),
    )
    _finish(speed, sorted({row["S1"] for row in report["rows"]}))
    lengths = list(report["errors"])
    names = ("attention_out", "dq", "dk", "dv")
    for at, name in enumerate(names):
        for who, style in (("fascore", "o-"), ("torch", "s--")):
            error.plot(
                lengths,
                [report["errors"][length][name][who] for length in lengths],
                style,
                color=f"C{at}",
                alpha=1.0 if who == "fascore" else 0.6,
                label=f"{who} {name}",
            )
    error.set(
        xscale="log", yscale="log", xlabel="S", ylabel="relative rms error against float64", title="error, one head"
    )
    _finish(error, lengths)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
