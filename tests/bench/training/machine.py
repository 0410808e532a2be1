"""The machine: GPUs, their clocks while something is measured, processor and system."""

import datetime
import os
import pathlib
import platform
import re
import statistics
import subprocess
import tempfile

FIELDS = ("name", "driver_version", "memory.total", "memory.used", "clocks.max.sm", "power.limit")


def smi(*options):
    """The lines that nvidia-smi prints; none without the program or a GPU."""
    try:
        done = subprocess.run(["nvidia-smi", *options, "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def visible(rows):
    """The GPUs that CUDA_VISIBLE_DEVICES lists by number; all if it is unset or lists names."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None or not re.fullmatch(r"[\d, ]*", wanted):
        return rows
    numbers = [int(word) for word in wanted.replace(",", " ").split()]
    return [rows[number] for number in numbers if number < len(rows)]


def gpus():
    """One dict of FIELDS for each visible GPU."""
    rows = [line.split(", ") for line in smi("--query-gpu=" + ",".join(FIELDS))]
    return visible([dict(zip(FIELDS, row)) | {"index": number}
                    for number, row in enumerate(rows) if len(row) == len(FIELDS)])


class Clocks:
    """Samples the clock of a GPU while it works. `median` is in MHz, None if it never was busy."""

    def __init__(self, index):
        self.index, self.median = index, None

    def __enter__(self):
        self.file = tempfile.TemporaryFile("w+")
        try:
            self.sampler = subprocess.Popen(
                ["nvidia-smi", "--query-gpu=clocks.sm,utilization.gpu", "-i", str(self.index),
                 "--format=csv,noheader,nounits", "-lms", "200"],
                stdout=self.file, stderr=subprocess.DEVNULL)
        except OSError:
            self.sampler = None
        return self

    def __exit__(self, *_):
        if self.sampler:
            self.sampler.terminate()
            self.sampler.wait()
        self.file.seek(0)
        pairs = re.findall(r"^(\d+), (\d+)$", self.file.read(), re.M)
        busy = [int(clock) for clock, use in pairs if int(use) >= 50]
        self.median = statistics.median(busy) if busy else None
        self.file.close()


def first_match(path, pattern):
    try:
        found = re.search(pattern, pathlib.Path(path).read_text(), re.M)
    except OSError:
        return None
    return found and found[1]


def describe(found):
    """The rows of the page about the machine."""
    names = {gpu["name"] for gpu in found}
    yield "date", datetime.datetime.now(datetime.timezone.utc).strftime("%F %H:%M UTC")
    if found:
        one = found[0]
        yield "GPUs", f"{len(found)} x {' and '.join(sorted(names))}"
        yield "driver, limits", (f"{one['driver_version']}; at most {one['clocks.max.sm']} MHz, "
                                 f"{one['power.limit']} W")
        used = ", ".join(f"{int(gpu['memory.used']) / 1024:.1f} GiB" for gpu in found)
        yield "GPU memory in use before", used
    else:
        yield "GPUs", "none"
    name = first_match("/proc/cpuinfo", r"^model name[^:]*: (.*)$") or platform.machine()
    yield "processor", f"{name}, {os.cpu_count()} cores"
    system = first_match("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)') or platform.system()
    yield "system", f"{system}, Linux {platform.release().split('-')[0]}"
    yield "load before", " ".join(f"{load:.2f}" for load in os.getloadavg())
    nccl = [f"{key}={value}" for key, value in sorted(os.environ.items())
            if key.startswith("NCCL_")]
    if nccl:
        yield "environment", ", ".join(nccl)
