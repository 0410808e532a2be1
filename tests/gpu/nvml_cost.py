#!/usr/bin/env python3
"""Measures what NVML costs the launcher: CPU time and memory of mgpu-run and its guard while quiet ranks run.

usage: nvml_cost.py [MGPU_RUN] [--ranks N] [--seconds S]

The ranks sleep. With the GPUs of the machine mgpu-run samples them through NVML every 10 s (more
often in the first seconds); with CUDA_VISIBLE_DEVICES="" it never loads NVML. Both jobs run one
after another, each for S seconds. Prints a table in Markdown.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mgpu_run", nargs="?", default=str(ROOT / "build" / "bin" / "mgpu-run"))
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    return parser.parse_args()


def processes_of(launcher):
    """mgpu-run and its guard."""
    children = [child for file in pathlib.Path(f"/proc/{launcher}/task").glob("*/children")
                for child in file.read_text().split()]
    guards = [child for child in children
              if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "mg-guard"]
    assert len(guards) == 1, guards
    return [launcher, int(guards[0])]


def cpu_seconds(pids):
    """Of all threads; one that has ended is not counted."""
    tasks = [task for pid in pids for task in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def memory_kib(pids):
    """The sums of all processes."""
    sums = dict.fromkeys(("VmRSS", "VmHWM", "RssAnon", "RssFile"), 0)
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, size = line.partition(":")
            if name in sums:
                sums[name] += int(size.split()[0])
    return sums


def uses_nvml(pid):
    return "libnvidia-ml" in pathlib.Path(f"/proc/{pid}/maps").read_text()


def measure(args, environment):
    """The CPU seconds in the whole time and after the first third, the memory, and whether NVML is loaded."""
    job = subprocess.Popen([args.mgpu_run, "--nproc", str(args.ranks), "--oversubscribe", "--grace", "1",
                            "--no-python", "sleep", "1000000"], env=environment, stdin=subprocess.DEVNULL)
    try:
        began = time.monotonic()
        time.sleep(args.seconds / 3)
        own = processes_of(job.pid)
        early, at = cpu_seconds(own), time.monotonic()
        time.sleep(max(0.0, began + args.seconds - time.monotonic()))
        if job.poll() is not None:
            sys.exit(f"the job ended with status {job.returncode}")
        cpu, end = cpu_seconds(own), time.monotonic()
        return {"cpu": cpu, "share": (cpu - early) / (end - at), "nvml": uses_nvml(job.pid), **memory_kib(own)}
    finally:
        job.terminate()
        job.wait()


def main():
    args = arguments()
    rows = {"GPUs, with NVML": measure(args, dict(os.environ)),
            "without NVML": measure(args, {**os.environ, "CUDA_VISIBLE_DEVICES": ""})}
    if not rows["GPUs, with NVML"]["nvml"] or rows["without NVML"]["nvml"]:
        sys.exit("this machine has no NVML, or mgpu-run has not loaded it: nothing to compare")
    print(f"{args.ranks} ranks that sleep, {args.seconds:g} s\n")
    print("| mgpu-run and its guard | CPU s in all | share of a core after the first third | resident | of which files | highest |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, row in rows.items():
        print(f"| {name} | {row['cpu']:.3f} | {row['share']:.3%} | {row['VmRSS'] / 1024:.1f} MiB | "
              f"{row['RssFile'] / 1024:.1f} MiB | {row['VmHWM'] / 1024:.1f} MiB |")


if __name__ == "__main__":
    main()
