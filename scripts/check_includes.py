#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: every #include of the tree against the table of allowed edges.

src/ is one include root, so the compiler would accept any edge; this table is what keeps the arrows pointing down.
Each stage may name the types of the stage before it. Files, where a stage may see one header of a folder and no more.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

PUBLIC = ["fascore/"]
EDGES = {
    "include": PUBLIC,
    "src/base": [*PUBLIC, "base/"],
    "src/problem": [*PUBLIC, "base/", "problem/"],
    "src/plan": [*PUBLIC, "base/", "problem/", "plan/", "kernels/kernel_table.h"],
    "src/engine": [*PUBLIC, "base/", "problem/", "plan/", "engine/", "kernels/kernel_table.h"],
    "src/kernels": [*PUBLIC, "base/", "kernels/"],
    "src/kernels/simd": ["kernels/"],
    "src/kernels/body": ["kernels/"],
    "src/kernels/isa": ["kernels/"],
    "src/reference": [*PUBLIC, "base/", "problem/problem.h", "problem/layout.h", "problem/validate.h", "reference/"],
    "src/api": [*PUBLIC, "base/", "problem/", "plan/", "engine/", "kernels/", "reference/", "api/"],
    "tools": [*PUBLIC, "standard_suite.h"],  # generated from bench/suites
    "examples": PUBLIC,
    "bindings/python/src": PUBLIC,
    "bindings/aclnn/include": ["acl/", "aclnn/"],
    "bindings/aclnn/src": [*PUBLIC, "acl/", "aclnn/", "aclnnop/"],
    "examples/aclnn": ["acl/", "aclnnop/"],
}
# Folders of programs and libraries that stand beside src/: their files include one another by plain name.
BESIDE = ("tools", "examples", "bindings/aclnn/src", "bindings/python/src")
# Code compiled with an instruction set's flags: anything that could bring inline functions with names stays out.
HERMETIC = ["src/kernels/simd", "src/kernels/body", "src/kernels/isa", "src/kernels/kernel_table.h"]
HERMETIC_SYSTEM = {"cstddef", "cstdint", "cstring", "immintrin.h", "arm_neon.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def complaints(path: pathlib.Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    folder = max((f for f in EDGES if name.startswith(f + "/")), key=len)
    found = []
    for bracket, target in INCLUDE.findall(path.read_text(encoding="utf-8")):
        if bracket == "<":
            if target.startswith("fascore/") and folder not in BESIDE:
                found.append(f"{name}: <{target}>, our own headers are included with quotes")
            elif any(name.startswith(h) for h in HERMETIC) and target not in HERMETIC_SYSTEM:
                found.append(f"{name}: <{target}>, kernel code may include only {sorted(HERMETIC_SYSTEM)}")
        elif folder in BESIDE and any(
            (base / target).exists() for base in (path.parent, ROOT / folder, ROOT / folder / name.split("/")[1])
        ):
            continue  # a file of the program itself
        elif not any(target.startswith(allowed) for allowed in EDGES[folder]):
            found.append(f'{name}: "{target}", {folder} may include only {EDGES[folder]}')
    return found


def main() -> int:
    folders = ("include", "src", "tools", "examples", "bindings")
    files = [p for f in folders for p in sorted((ROOT / f).rglob("*.[ch]*"))]
    files = [p for p in files if p.suffix in (".h", ".cpp", ".c")]
    found = [c for p in files for c in complaints(p)]
    print("\n".join(found) if found else f"{len(files)} files, every include points down")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
