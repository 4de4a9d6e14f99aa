# SPDX-License-Identifier: Apache-2.0
"""Attention as it is written for torch_npu; nothing here knows of fascore.

Causal attention by the compressed 2048 x 2048 mask (sparse_mode 2) in layout BSND, its gradient once by autograd and
once by npu_fusion_attention_grad from the statistics, then the same with dropout, where (seed, offset, numels)
carry the mask.
"""

import math

import torch
import torch_npu


def main() -> None:
    torch.manual_seed(0)
    batch, length, heads, size = 2, 256, 4, 64
    query, key, value = (
        torch.randn(batch, length, heads, size, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )
    mask = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), diagonal=1)
    dy = torch.randn(batch, length, heads, size, dtype=torch.bfloat16)

    for keep_prob in (1.0, 0.9):
        attention_out, softmax_max, softmax_sum, _, seed, offset, numels = torch_npu.npu_fusion_attention(
            query,
            key,
            value,
            heads,
            "BSND",
            atten_mask=mask,
            scale=1 / math.sqrt(size),
            keep_prob=keep_prob,
            sparse_mode=2,
        )
        by_autograd = torch.autograd.grad(attention_out, (query, key, value), dy)
        dq, dk, dv, dpse, dsink = torch_npu.npu_fusion_attention_grad(
            query, key, value, dy, heads, "BSND", atten_mask=mask, softmax_max=softmax_max, softmax_sum=softmax_sum,
            attention_in=attention_out, scale_value=1 / math.sqrt(size), keep_prob=keep_prob, sparse_mode=2, seed=seed,
            offset=offset, numels=numels,
        )  # fmt: skip
        same = all(torch.equal(a, b) for a, b in zip(by_autograd, (dq, dk, dv), strict=True))
        print(
            f"keep_prob {keep_prob}: out {tuple(attention_out.shape)}, statistics {tuple(softmax_max.shape)}, "
            f"numels {numels}"
        )
        print(f"  gradient by hand and by autograd have the same bits: {same}; dpse {dpse}, dsink {dsink}")


if __name__ == "__main__":
    main()
