# SPDX-License-Identifier: Apache-2.0
"""Differentiable attention for PyTorch on CPU tensors.

    attention(query, key, value, ...)           every field of the operator
    scaled_dot_product_attention(...)           torch.nn.functional's, to the letter
    enable(), disable()                         route torch.nn.functional.scaled_dot_product_attention here and back

Both are built on the custom operators torch.ops.fascore.attention and attention_backward.
"""

from ._enable import disable, enable, original, serves
from ._functional import attention, scaled_dot_product_attention

__all__ = ["attention", "disable", "enable", "original", "scaled_dot_product_attention", "serves"]
