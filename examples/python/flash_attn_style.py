# SPDX-License-Identifier: Apache-2.0
"""A model's attention as it is written for flash_attn; nothing here knows of fascore.

A padded batch is packed, projected, attended to as variable-length sequences (causal, a sliding window) and padded
back; a few steps of training show that gradients flow.
"""

import torch
from flash_attn import flash_attn_qkvpacked_func, flash_attn_varlen_qkvpacked_func
from flash_attn.bert_padding import pad_input, unpad_input


class Attention(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        if mask is None:
            qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
            y = flash_attn_qkvpacked_func(qkv, causal=True, window_size=(15, 0))
            return self.out(y.flatten(2))
        tokens, indices, cu_seqlens, max_seqlen, _ = unpad_input(x, mask)
        qkv = self.qkv(tokens).view(-1, 3, self.heads, width // self.heads)
        y = flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, causal=True, window_size=(15, 0))
        return pad_input(self.out(y.flatten(1)), indices, batch, length)


def main() -> None:
    torch.manual_seed(0)
    batch, length, width = 4, 64, 64
    model = Attention(width, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x, target = torch.randn(batch, length, width), torch.randn(batch, length, width)
    lengths = torch.tensor([64, 17, 40, 1])
    mask = (torch.arange(length)[None] < lengths[:, None]).int()

    with torch.no_grad():
        padded, packed = model(x), model(x, mask)
        apart = (padded - packed)[mask.bool()].abs().max()
    print(f"packed against padded, causal, so real tokens see the same: largest difference {apart:.1e}")
    for step in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x, mask)[mask.bool()], target[mask.bool()])
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
