# SPDX-License-Identifier: Apache-2.0
"""run_with_fascore.py SCRIPT [arguments]: runs a script that imports flash_attn or torch_npu where neither is there."""

import runpy
import sys

import fascore.flash_attn
import fascore.torch_npu

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    fascore.flash_attn.install()
    fascore.torch_npu.install()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
