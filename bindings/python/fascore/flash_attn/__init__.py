# SPDX-License-Identifier: Apache-2.0
"""flash_attn's functions on CPU tensors: same names, signatures, defaults and semantics (of its version 2.8.4).

install() makes `import flash_attn`, `flash_attn.flash_attn_interface` and `flash_attn.bert_padding` find these modules
when the real package is absent.

What is different here: f32 and f64 work beside f16 and bf16; alibi_slopes and softmax_lse are differentiable too; v may
have another head size than q and k; results are deterministic whatever `deterministic` says.
"""

from __future__ import annotations

import importlib.util
import sys

from . import bert_padding, flash_attn_interface
from .flash_attn_interface import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

__version__ = "2.8.4"

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "install",
]


def install() -> bool:
    """Makes `import flash_attn` find this package; False when the real flash_attn is there."""
    present = sys.modules.get("flash_attn")
    if present is not None:
        return present is sys.modules[__name__]
    if importlib.util.find_spec("flash_attn") is not None:
        return False
    sys.modules["flash_attn"] = sys.modules[__name__]
    sys.modules["flash_attn.flash_attn_interface"] = flash_attn_interface
    sys.modules["flash_attn.bert_padding"] = bert_padding
    return True
