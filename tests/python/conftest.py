# SPDX-License-Identifier: Apache-2.0
"""What the Python tests share.

Tests need the installed package (make python). Modules whose names start with test_torch_ need torch and are skipped as
a whole without it; nothing else is ever skipped silently.

Bounds. `close(actual, exact, unit, terms)` allows |a - r| <= unit * (1 + sqrt(terms)) * max|r|: `unit` is the rounding
of the result's dtype (half a unit in the last place relative to the largest element), `terms` the longest f32 or f64
sum behind an element, whose errors of random sign add up like a random walk. Each test says what it passes and why.
"""

import importlib.util
import sys

import numpy as np
import pytest

HAVE_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore_glob = [] if HAVE_TORCH else ["test_torch_*.py"]

UNIT = {"f64": 2.0**-53, "f32": 2.0**-24, "bf16": 2.0**-9, "f16": 2.0**-12}


def pytest_report_header(config: pytest.Config) -> str:
    if HAVE_TORCH:
        import torch

        return f"torch {torch.__version__}"
    return "torch is not installed: test_torch_* are left out"


def worst(actual, exact) -> float:
    """Largest difference relative to the largest element."""
    actual, exact = (np.asarray(to_numpy(a), dtype=np.float64) for a in (actual, exact))
    assert actual.shape == exact.shape
    scale = np.abs(exact).max(initial=0.0)
    return float(np.abs(actual - exact).max(initial=0.0) / (scale if scale > 0 else 1.0))


def to_numpy(array):
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.detach().double().numpy()
    return array


def close(actual, exact, unit: float, terms: int) -> None:
    error, allowed = worst(actual, exact), unit * (1.0 + terms**0.5)
    assert error <= allowed, f"error {error:.3e}, allowed {allowed:.3e}"
