# SPDX-License-Identifier: Apache-2.0
"""The examples and the commands run as their documents say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples" / "python"


def run(*command):
    done = subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_train_transformer(tmp_path):
    plot = tmp_path / "curve.png"
    text = run(EXAMPLES / "train_transformer.py", "--steps", 6, "--warm-up", 2, "--length", 128, "--plot", plot)
    apart = float(re.search(r"largest difference of a loss (\S+);", text).group(1))
    # Losses near 5.5 are stored in steps of 2^-21.5; rounding of two layers and six steps of AdamW.
    assert apart < 1e-5
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_flash_attn_style():
    text = run(EXAMPLES / "run_with_fascore.py", EXAMPLES / "flash_attn_style.py")
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", text)]
    assert len(losses) == 5 and losses[-1] < losses[0]
    # The same rows in other projections: f32 rounding of sums of 64 terms.
    assert float(re.search(r"largest difference (\S+)", text).group(1)) < 1e-5


def test_torch_npu_style():
    text = run(EXAMPLES / "run_with_fascore.py", EXAMPLES / "torch_npu_style.py")
    assert text.count("have the same bits: True") == 2


@pytest.mark.parametrize("by_program", [False, True])
def test_bench(tmp_path, by_program):
    program = os.environ.get("FASCORE_PROGRAM", ROOT / "build" / "fascore")
    if by_program and not Path(program).exists():
        pytest.skip("build/fascore is not there: make build")
    plot, numbers = tmp_path / "out.png", tmp_path / "out.json"
    command = ["-m", "fascore", "bench", "--lengths", "64,128", "--shape", "1,2,32", "--dtype", "f32", "--repeat", "1"]
    if by_program:
        command += ["--program", program]
    else:
        command += ["--package"]
    run(*command, "--causal", "--plot", plot, "--json", numbers)
    assert plot.read_bytes().startswith(b"\x89PNG")
    report = json.loads(numbers.read_text(encoding="utf-8"))
    assert [row["S1"] for row in report["rows"]] == [64, 64, 128, 128]
    assert all(row["share"] > 0 and row["torch_share"] > 0 for row in report["rows"])
    # Both are f32 results judged against f64: a relative error of a few hundred units of 2^-24 at most.
    for table in report["errors"].values():
        assert all(0 < error < 2.0**-15 for both in table.values() for error in both.values())


def test_compare():
    text = run("-m", "fascore", "compare", "--only", "f32_1024_64_causal", "--repeat", "1")
    assert "f32_1024_64_causal" in text and "fascore.torch.attention" in text
