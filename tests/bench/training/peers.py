"""Other programs: which of them the machine has, and how they are measured.

A peer is a script of tests/bench/peers with its options. The script runs in a Python that has the
packages that the peer needs, and prints one line: RESULT {"value": ..., "peak_gib": ...}.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import time

from . import models
from .settings import Failed, Measurement, run

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "peers"
PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "trl", "datasets", "liger_kernel",
            "unsloth")
# A package counts as present if it can be found; what fails to import shows when it is measured.
PROBE = """
import importlib.metadata, importlib.util, json
found = {}
for name in %r:
    if importlib.util.find_spec(name):
        try: found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError: pass
print("RESULT", json.dumps(found))
""" % (PACKAGES,)
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "UNSLOTH_DISABLE_STATISTICS": "1"}


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    script: str
    options: tuple = ()
    needs: tuple = ()  # packages besides torch and transformers
    gpus: int = 1

    @property
    def packages(self):
        return ("torch", "transformers", *self.needs)


@dataclasses.dataclass(frozen=True)
class Python:
    path: str
    versions: dict  # of the PACKAGES that it has

    def has(self, peer):
        return all(package in self.versions for package in peer.packages)

    def versions_for(self, peer):
        return ", ".join(f"{package} {self.versions[package]}" for package in peer.packages)


def result_of(output):
    for line in reversed(output.splitlines()):
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    raise Failed("the program printed no result")


def probe(path):
    """The packages of a Python. One that cannot be started has none."""
    try:
        done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, timeout=60,
                              cwd="/")
        return Python(str(path), result_of(done.stdout))
    except (OSError, subprocess.TimeoutExpired, ValueError, Failed):
        return Python(str(path), {})


def python_for(peer, pythons):
    """The first Python that has all that the peer needs."""
    return next((python for python in pythons if python.has(peer)), None)


def command(peer, python, settings):
    words = [python.path, "-B"]
    if peer.gpus > 1:
        words += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", peer.gpus]
    words += [SCRIPTS / peer.script, *peer.options]
    return words + ["--tiny"] * settings.tiny + ["--quick"] * (settings.size == "quick")


def measure(peer, python, settings):
    words = command(peer, python, settings)
    if "--model" in words:  # its value is a shape: the script gets the folder of such a model
        at = words.index("--model") + 1
        words[at] = models.with_weights(settings, settings.shape(words[at]))
    words += ["--scratch", settings.scratch, "--began", time.time()]
    result = result_of(run(settings, words, {**os.environ, **OFFLINE}))
    return Measurement(float(result["value"]), result.get("peak_gib"))
