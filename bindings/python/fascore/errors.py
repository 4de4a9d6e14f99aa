# SPDX-License-Identifier: Apache-2.0
"""What fascore raises."""


class InvalidArgument(ValueError, RuntimeError):
    """A value, shape, dtype or combination is not allowed; no output was touched.

    The text reads ``<parameter>: <what was given>, <what is allowed>``. It is a ValueError for Python callers and a
    RuntimeError as well, because that is what PyTorch, torch_npu and flash_attn raise for the same fault.
    """


# As users see it: fascore.InvalidArgument.
InvalidArgument.__module__ = "fascore"
