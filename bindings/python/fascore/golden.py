# SPDX-License-Identifier: Apache-2.0
"""The reference: the operator straight from its formulas in float64, O(S1*S2) time. For judging results.

    fascore.golden.flash_attention_score(query, key, value, ...)
    fascore.golden.flash_attention_score_grad(query, key, value, dy, ...)

Parameters as in fascore.flash_attention_score and fascore.flash_attention_score_grad; every result is float64. In the
gradient softmax_max, softmax_sum and attention_out may be left out: exact ones are then computed on the way.
evaluation="plain" computes what an unfused framework would in the dtype of the inputs, each step rounded: the yardstick
for our own error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _core, _operator
from ._operator import BackwardResult, ForwardResult, prepare_backward, prepare_forward
from .errors import InvalidArgument

__all__ = ["flash_attention_score", "flash_attention_score_grad"]

_NOT_HERE = ("threads", "isa", "progress", "out_dtype")


def _plain(evaluation: str, parameters: dict[str, Any], function: Callable[..., Any]) -> bool:
    """Whether evaluation is "plain"; `parameters` must be among those of the `function` this is the reference of."""
    known = _operator.signature_of(function).parameters
    for name in parameters:
        if name in _NOT_HERE or name not in known:
            raise TypeError(f"golden.{function.__name__}() got an unexpected keyword argument '{name}'")
    if evaluation not in ("exact", "plain"):
        raise InvalidArgument(f"evaluation: {evaluation!r}, must be 'exact' or 'plain'")
    return evaluation == "plain"


def flash_attention_score(
    query: Any, key: Any, value: Any, *, evaluation: str = "exact", **parameters: Any
) -> ForwardResult:
    """Forward in float64; parameters as :func:`fascore.flash_attention_score`."""
    plain = _plain(evaluation, parameters, _operator.flash_attention_score)
    call = prepare_forward({"query": query, "key": key, "value": value, **parameters}, reference=True)
    _core.reference_forward(call.params, call.inputs, call.outputs, plain)
    return ForwardResult(*call.outputs)


def flash_attention_score_grad(
    query: Any,
    key: Any,
    value: Any,
    dy: Any,
    softmax_max: Any = None,
    softmax_sum: Any = None,
    attention_out: Any = None,
    *,
    evaluation: str = "exact",
    **parameters: Any,
) -> BackwardResult:
    """Gradient in float64; parameters as :func:`fascore.flash_attention_score_grad`."""
    plain = _plain(evaluation, parameters, _operator.flash_attention_score_grad)
    given = {
        "query": query,
        "key": key,
        "value": value,
        "dy": dy,
        "softmax_max": softmax_max,
        "softmax_sum": softmax_sum,
        "attention_out": attention_out,
    }
    call = prepare_backward({**given, **parameters}, reference=True)
    _core.reference_backward(call.params, call.inputs, call.outputs, plain)
    return BackwardResult(*call.outputs)
