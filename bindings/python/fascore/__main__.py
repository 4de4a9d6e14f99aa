# SPDX-License-Identifier: Apache-2.0
"""python -m fascore: info, bench, compare."""

from __future__ import annotations

import argparse
import sys

from . import __version__, info


def _show_info(_: argparse.Namespace) -> int:
    about = info()
    print(f"fascore {__version__}")
    for name, needs, runnable in about["isas"]:
        print(f"  {name:<12} {'runs here' if runnable else 'not here '}  needs {needs}")
    print(f"chosen: {about['isa']} ({about['why']})")
    print(f"threads: {about['threads']}")
    for name, value in about["environment"].items():
        print(f"{name}: {'not set' if value is None else value}")
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from ._bench import run

    return run(arguments)


def _compare(arguments: argparse.Namespace) -> int:
    from ._compare import run

    return run(arguments)


def _lengths(text: str) -> list[int]:
    return [int(length) for length in text.split(",")]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fascore", description="fascore from Python")
    commands = parser.add_subparsers(dest="command", required=True)

    about = commands.add_parser("info", help="instruction sets, threads, environment")
    about.set_defaults(run=_show_info)

    bench = commands.add_parser(
        "bench", help="share of peak over S, and error, beside PyTorch's own attention; --plot draws it"
    )
    bench.add_argument("--lengths", type=_lengths, default=[256, 512, 1024, 2048, 4096], help="256,512,...")
    bench.add_argument("--shape", default="1,8,64", help="B,N,D (default 1,8,64)")
    bench.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    bench.add_argument("--causal", action="store_true")
    bench.add_argument("--threads", type=int, default=1)
    bench.add_argument("--repeat", type=int, default=5, help="repetitions of each measurement of PyTorch's")
    bench.add_argument("--program", help="the fascore program (default: on PATH, or build/fascore)")
    bench.add_argument("--package", action="store_true", help="time the Python package instead of the program")
    bench.add_argument("--json", help="write the numbers to this file")
    bench.add_argument("--plot", help="draw to this file (png, svg, pdf)")
    bench.set_defaults(run=_bench)

    compare = commands.add_parser("compare", help="backward against torch's own attention at its best, alternating")
    compare.add_argument("--only", help="names of rows, comma-separated")
    compare.add_argument("--repeat", type=int, default=5)
    compare.add_argument("--threads", type=int, default=0, help="0: all of this machine")
    compare.add_argument("--json", help="write the numbers to this file")
    compare.set_defaults(run=_compare)

    arguments = parser.parse_args(argv)
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
