"""Runs our kernels under compute-sanitizer: the programs that compare them with ATen, and rollouts.
Run by hand on an idle GPU of a machine that has compute-sanitizer:

    python3 -B tests/gpu/sanitize.py [--tools memcheck racecheck] [--only few_rows_check] [--list]

Prints a table of the findings of each tool in each program, and what was found. MGPU_BIN is the folder
of the programs [build/bin]. Only kernels in namespace mgpu are checked. Where nothing is recorded as a
CUDA graph, each tensor is an allocation of its own, so that an access beyond its end is seen.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build/bin"))
TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
ALONE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
# Program, its words, and variables.
RUNS = [
    ("kernels_check", ["check"], ALONE),
    ("few_rows_check", ["check", "attention"], ALONE),
    ("fp8_check", ["check"], ALONE),
    ("rollout_check", ["fp32, penalty, few pages"], {}),
    ("rollout_check", ["bf16, LoRA of rank 16"], {}),
    ("rollout_check", ["bf16, LoRA 16, heads of 128"], {}),
    ("rollout_check", ["bf16, LoRA 16, normed heads"], {}),
    ("rollout_check", ["bf16, LoRA 16 of some, 130 sequences"], {}),
    ("rollout_check", ["calls, bf16, LoRA 16, penalty"], {}),
]
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
SHOWN = 40  # lines of what was found


def command(tool, program, words):
    options = ["--tool", tool, "--kernel-name", "kns=mgpu", "--show-backtrace", "device",
               "--print-limit", "20", "--require-cuda-init", "no"]
    if tool == "memcheck":
        options += ["--padding", "64"]
    return ["compute-sanitizer", *options, BIN / program, *words]


def sanitized(tool, program, words, variables, limit):
    """Findings (-1: the tool came to no result), the program's exit status, seconds and the output."""
    began = time.monotonic()
    try:
        done = subprocess.run(list(map(str, command(tool, program, words))), text=True, timeout=limit,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, **variables})
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, output = "timeout", (late.stdout or b"").decode(errors="replace")
    found = SUMMARY.findall(output)
    return int(found[-1]) if found else -1, status, time.monotonic() - began, output


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--only", default="", help="part of a program and its words")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each run [600]")
    parser.add_argument("--list", action="store_true", help="print the commands and end")
    args = parser.parse_args()
    runs = [run for run in RUNS if args.only in " ".join([run[0], *run[1]])]
    print("| program | tool | findings | exit status | seconds |", "| --- | --- | --- | --- | --- |",
          sep="\n")
    good = bool(runs)
    for tool in args.tools:
        for program, words, variables in runs:
            if args.list:
                print(*(f"{name}={value}" for name, value in variables.items()),
                      *command(tool, program, words))
                continue
            findings, status, seconds, output = sanitized(tool, program, words, variables, args.limit)
            print(f"| {' '.join([program, *words])} | {tool} | "
                  f"{findings if findings >= 0 else 'no result'} | {status} | {seconds:.0f} |",
                  flush=True)
            if findings or status:
                good = False
                print(*output.splitlines()[-SHOWN:], sep="\n", file=sys.stderr, flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
