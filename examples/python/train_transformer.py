# SPDX-License-Identifier: Apache-2.0
"""Trains a small torch transformer on this repository's text, with PyTorch's attention and with fascore.

Same seed, same batches, one process: the loss curves agree to f32 rounding, which grows slowly with the steps, and the
times stand side by side. First the model is trained for a while with PyTorch alone; both runs then fine-tune it.

    train_transformer.py [--steps 60] [--length 512] [--plot curve.png]
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

import torch
import torch.nn.functional as functional
from torch import Tensor

import fascore.torch


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Model(torch.nn.Module):
    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2, longest: int = 4096) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(256, width), torch.nn.Embedding(longest, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def text() -> Tensor:
    root = Path(__file__).resolve().parent.parent.parent
    files = sorted([*root.glob("docs/*.md"), *root.glob("include/fascore/*.h")])
    data = b"".join(file.read_bytes() for file in files) or Path(__file__).read_bytes()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


def train(model: Model, data: Tensor, steps: int, length: int, seed: int) -> tuple[list[float], float]:
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    begin = time.perf_counter()
    for _ in range(steps):
        starts = torch.randint(data.numel() - length - 1, (4,), generator=generator)
        batch = torch.stack([data[s : s + length + 1] for s in starts.tolist()])
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, time.perf_counter() - begin


def main(argv: list[str] | None = None) -> tuple[list[float], list[float]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=20, help="steps of training before the comparison")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--plot", help="draw both curves to this file")
    arguments = parser.parse_args(argv)

    torch.manual_seed(0)
    data = text()
    start = Model()
    train(start, data, arguments.warm_up, arguments.length, seed=1)
    curves, seconds = [], []
    for context in (contextlib.nullcontext, fascore.torch.enable):
        model = Model()
        model.load_state_dict(start.state_dict())
        with context():
            losses, took = train(model, data, arguments.steps, arguments.length, seed=2)
        curves.append(losses)
        seconds.append(took)
    print(f"{'step':>6} {'torch':>10} {'fascore':>10} {'apart':>9}")
    for step in sorted({*range(0, arguments.steps, max(1, arguments.steps // 6)), arguments.steps - 1}):
        a, b = curves[0][step], curves[1][step]
        print(f"{step:>6} {a:>10.6f} {b:>10.6f} {abs(a - b):>9.1e}")
    apart = max(abs(a - b) for a, b in zip(*curves, strict=True))
    print(f"largest difference of a loss {apart:.1e}; {seconds[0]:.2f} s with torch, {seconds[1]:.2f} s with fascore")
    if arguments.plot:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(7, 4))
        axes.plot(curves[0], label=f"torch, {seconds[0]:.1f} s")
        axes.plot(curves[1], "--", label=f"fascore, {seconds[1]:.1f} s")
        axes.set(xlabel="step", ylabel="loss")
        axes.legend()
        figure.tight_layout()
        figure.savefig(arguments.plot, dpi=120)
        print(f"wrote {arguments.plot}")
    return curves[0], curves[1]


if __name__ == "__main__":
    main()
