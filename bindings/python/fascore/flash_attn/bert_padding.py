# SPDX-License-Identifier: Apache-2.0
"""Between padded batches (B, S, ...) and packed tokens (total, ...): the functions of flash_attn.bert_padding.

All are differentiable. Source: flash_attn.bert_padding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """Rows `indices` of input (rows, ...)."""
    return input[indices]


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """(first_axis_dim, ...) with `values` at rows `indices`, zeros elsewhere."""
    output = values.new_zeros((first_axis_dim, *values.shape[1:]))
    return output.index_put((indices,), values)


def index_first_axis_residual(input: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Rows `indices`, and the input itself for a residual connection."""
    return input[indices], input


def _cumulative(lengths: Tensor) -> Tensor:
    return functional.pad(torch.cumsum(lengths, 0, dtype=torch.int32), (1, 0))


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """Packs hidden_states (B, S, ...) by attention_mask (B, S), 1 = a token.

    unused_mask (B, S) marks tokens that keep their place in the packing but are not counted as used. Returns the tokens
    (total, ...), their indices into B*S, cu_seqlens (B+1, int32), the longest length and the used lengths (B,).
    """
    kept = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = kept.sum(-1, dtype=torch.int32)
    used = attention_mask.sum(-1, dtype=torch.int32)
    indices = torch.nonzero(kept.flatten(), as_tuple=False).flatten()
    longest = int(lengths.max()) if lengths.numel() else 0
    packed = index_first_axis(hidden_states.flatten(0, 1), indices)
    return packed, indices, _cumulative(lengths), longest, used


def unpad_input_for_concatenated_sequences(
    hidden_states: Tensor, attention_mask_in_length: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Packs hidden_states (B, S, ...) where row b of attention_mask_in_length lists the lengths of the sequences that
    follow each other in it: [[2, 3, 0, ...], [6, 0, ...]] are lengths 2 and 3, then 6.
    """
    lengths = attention_mask_in_length.sum(-1)
    positions = torch.arange(attention_mask_in_length.shape[-1], device=lengths.device)
    indices = torch.nonzero((positions[None] < lengths[:, None]).flatten(), as_tuple=False).flatten()
    sequences = attention_mask_in_length.flatten()
    sequences = sequences[sequences != 0]
    longest = int(sequences.max()) if sequences.numel() else 0
    packed = index_first_axis(hidden_states.flatten(0, 1), indices)
    return packed, indices, _cumulative(sequences), longest


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """(total, ...) back to (batch, seqlen, ...), zeros where there was no token."""
    padded = index_put_first_axis(hidden_states, indices, batch * seqlen)
    return padded.unflatten(0, (batch, seqlen))
