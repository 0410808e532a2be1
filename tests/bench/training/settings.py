"""What all measurements of a run share, and how their processes are started."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess

from . import models

EXCEPTION = re.compile(r"(\[\w+\]: ?)?[\w.]*(Error|Exception)\b")
STEPS = {"full": (5, 20), "quick": (3, 8), "tiny": (1, 3)}  # to warm up, to measure


class Failed(Exception):
    """A measurement gave no figure; the text is one line."""


@dataclasses.dataclass
class Measurement:
    """The figure of one run. `value` is in the unit of its case; GiB are those of one GPU."""
    value: float
    peak_gib: float | None = None
    plan_gib: float | None = None
    tflops: float | None = None


@dataclasses.dataclass
class Settings:
    bin: pathlib.Path       # the folder of mgpu-run, mgpu-train, step_bench and rollout_bench
    scratch: pathlib.Path   # models, rows, recipes and outputs
    python: str | None      # a Python that has torch
    size: str = "full"      # or "quick", or "tiny": small shapes, which also run without a GPU
    gpu_gib: float = 16     # the memory of a GPU, for the plan
    limit: float = 900      # seconds that a measurement may take

    @property
    def tiny(self):
        return self.size == "tiny"

    @property
    def steps(self):
        return STEPS[self.size]

    def shape(self, name):
        return "tiny" if self.tiny else name

    def model(self, name):
        """The folder of a model with random weights, which is written when it is first needed."""
        return models.with_weights(self, self.shape(name))


def cause_of(text):
    """The line of a program's output that names its error: of Python's the last exception, which
    launchers follow with a summary of theirs; else the last line with words."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    raised = [line for line in lines if EXCEPTION.match(line) and "ChildFailedError" not in line]
    return (raised or lines or ["no message"])[-1]


def stop(process):
    """Ends a program with all that it started: launchers end their workers when asked to."""
    for signo, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, signo)
        except ProcessLookupError:
            pass
        try:
            process.communicate(timeout=patience)
            return
        except subprocess.TimeoutExpired:
            continue


def run(settings, command, environment=None):
    """The output of a program. Raises Failed with one line if it fails or takes too long."""
    words = [str(word) for word in command]
    name = pathlib.Path(words[0]).name
    try:
        process = subprocess.Popen(words, text=True, errors="replace", stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                                   start_new_session=True)
    except OSError as error:
        raise Failed(f"cannot start {words[0]}: {error.strerror}") from None
    try:
        output, errors = process.communicate(timeout=settings.limit)
    except subprocess.TimeoutExpired:
        stop(process)
        raise Failed(f"{name} did not end within {settings.limit:.0f} s") from None
    except BaseException:
        stop(process)
        raise
    if process.returncode != 0:
        raise Failed(f"{name} ended with status {process.returncode}: "
                     + cause_of(errors if errors.strip() else output))
    return output
