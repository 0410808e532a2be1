"""Runs our kernels under compute-sanitizer: the programs that compare them with ATen, and rollouts.
Run by hand on an idle GPU of a machine that has compute-sanitizer:

    python3 -B tests/gpu/sanitize.py [--tools memcheck racecheck] [--only few_rows] [--jobs 8] [--list]

Prints a table of the findings of each tool in each program, and what was found. MGPU_BIN is the folder
of the programs [build/bin]. Only findings in namespace mgpu count, and other kernels are not checked:
except by initcheck, which has to see what they write. Where nothing is recorded as a CUDA graph, each
tensor is an allocation of its own, so that an access beyond its end is seen. The tools themselves take
memory of the GPU for each program: where too little is left, some kernels are not checked.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build/bin"))
TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
ALONE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
PARTS = ["norms", "head_norms", "elements", "cross_entropy", "paged", "sampling", "attention", "formats",
         "adamw", "adamw_8bit", "low_rank"]
# Program, its words, and variables.
RUNS = [
    *(("kernels_check", [part], ALONE) for part in PARTS),
    *(("few_rows_check", ["check", rows], ALONE) for rows in ("1", "33", "100", "256")),
    ("few_rows_check", ["attention"], ALONE),
    ("rollout_check", ["fp32, penalty, few pages"], {}),
]
# Programs with cuBLAS's products in 16 bits, which fail under racecheck, also in a program of PyTorch alone.
WITH_PRODUCTS = [
    ("kernels_check", ["products"], ALONE),
    ("kernels_check", ["low_rank_products"], ALONE),
    ("fp8_check", ["check"], ALONE),
    ("rollout_check", ["bf16, LoRA of rank 16"], {}),
    ("rollout_check", ["bf16, LoRA 16, heads of 128"], {}),
    ("rollout_check", ["bf16, LoRA 16, normed heads"], {}),
    ("rollout_check", ["bf16, LoRA 16 of some, 130 sequences"], {}),
    ("rollout_check", ["calls, bf16, LoRA 16, penalty"], {}),
]
INTERNAL = "Internal Sanitizer Error"
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
UNINITIALIZED = re.compile(r"Uninitialized .*\n=+ +at [^\n]*\bmgpu::")
SHOWN = 40  # lines of what was found


def command(tool, program, words):
    options = ["--tool", tool, "--show-backtrace", "device", "--require-cuda-init", "no"]
    if tool == "initcheck":
        options += ["--print-limit", "10000"]
    else:
        options += ["--print-limit", "20", "--kernel-name", "kns=mgpu"]
    if tool == "memcheck":
        options += ["--padding", "64"]
    return ["compute-sanitizer", *options, BIN / program, *words]


def findings_in(tool, output):
    """-1: the tool came to no result, or did not check every kernel."""
    found, internal = SUMMARY.findall(output), output.count(INTERNAL)
    if not found or internal:
        return -1
    return len(UNINITIALIZED.findall(output)) if tool == "initcheck" else int(found[-1])


def sanitized(tool, program, words, variables, limit):
    """Findings, whether the program succeeded, seconds and the output."""
    began = time.monotonic()
    job = subprocess.Popen(list(map(str, command(tool, program, words))), text=True, errors="replace",
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                           env={**os.environ, **variables})
    try:
        output, status = job.communicate(timeout=limit)[0], job.returncode
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)  # the tool and the program
        output, status = job.communicate()[0], "timeout"
    return findings_in(tool, output), status, time.monotonic() - began, output


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART",
                        help="of a program and its words: only those that have one of these")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each run [600]")
    parser.add_argument("--jobs", type=int, default=1, help="at a time [1]")
    parser.add_argument("--list", action="store_true", help="print the commands and end")
    args = parser.parse_args()
    runs = [(tool, *run) for tool in args.tools
            for run in RUNS + (WITH_PRODUCTS if tool != "racecheck" else [])
            if any(part in " ".join([run[0], *run[1]]) for part in args.only)]
    if args.list:
        for tool, program, words, variables in runs:
            print(*(f"{name}={value}" for name, value in variables.items()),
                  *command(tool, program, words))
        return 0
    print("| program | tool | findings | exit status | seconds |", "| --- | --- | --- | --- | --- |",
          sep="\n", flush=True)
    lock = threading.Lock()

    def run(case):
        tool, program, words, _ = case
        findings, status, seconds, output = sanitized(*case, args.limit)
        with lock:
            print(f"| {' '.join([program, *words])} | {tool} | "
                  f"{findings if findings >= 0 else 'no result'} | {status} | {seconds:.0f} |",
                  flush=True)
            if findings or status:
                print(*output.splitlines()[-SHOWN:], sep="\n", file=sys.stderr, flush=True)
        return not findings and status == 0

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        good = list(pool.map(run, runs))
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
