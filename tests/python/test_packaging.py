# SPDX-License-Identifier: Apache-2.0
"""What a user gets: the wheel alone in a clean environment, without torch; types; the command line."""

import ast
import inspect
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import fascore

PACKAGE = Path(fascore.__file__).parent

SMOKE = """
import sys
import numpy as np, fascore
q = np.random.default_rng(0).standard_normal((1, 2, 16, 8)).astype(np.float32)
r = fascore.flash_attention_score(q, q, q, scale=0.3)
g = fascore.flash_attention_score_grad(q, q, q, q, r.softmax_max, r.softmax_sum, r.attention_out, scale=0.3)
exact = fascore.golden.flash_attention_score_grad(q, q, q, q, scale=0.3)
assert abs(g.dq - exact.dq).max() < 1e-5
assert "torch" not in sys.modules and "ml_dtypes" not in sys.modules
try:
    import fascore.torch
except ModuleNotFoundError as error:
    assert error.name == "torch", error
else:
    raise SystemExit("torch is here, this environment is not clean")
print("fine", fascore.__file__)
"""


def test_the_wheel_works_without_torch(tmp_path):
    wheel = os.environ.get("FASCORE_WHEEL")
    if not wheel:
        pytest.skip("FASCORE_WHEEL is not set: scripts/python_tests.sh names the wheel it built")
    clean = tmp_path / "clean"
    venv.create(clean, with_pip=True)
    python = clean / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
    done = subprocess.run([python, "-c", SMOKE], cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.startswith("fine") and str(clean) in done.stdout


def test_typed():
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "_core.pyi").exists()


def test_the_stub_names_what_the_extension_has():
    from fascore import _core

    tree = ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8"))
    stated = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert stated == {name for name in dir(_core) if not name.startswith("__")}


def test_public_functions_have_docstrings():
    for name in fascore.__all__:
        member = getattr(fascore, name)
        if inspect.isfunction(member):
            assert member.__doc__, name
            for parameter in inspect.signature(member).parameters.values():
                assert parameter.annotation is not parameter.empty, f"{name}({parameter.name})"


def test_command_line():
    done = subprocess.run([sys.executable, "-m", "fascore", "info"], check=True, stdout=subprocess.PIPE, text=True)
    assert fascore.info()["isa"] in done.stdout
