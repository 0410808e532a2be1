"""Shared by the client tests: real PyTorch programs as the workers of mgpu-run."""

import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import (MGPU_RUN, SLOWER, JobTest, alive, children, environment,  # noqa: E402, F401
                     until)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
TORCH_PYTHON = os.environ.get("MGPU_TORCH_PYTHON", "")
LIMIT = 120 * SLOWER  # seconds; a job of eight takes 20 on two cores


@unittest.skipIf(not TORCH_PYTHON, "MGPU_TORCH_PYTHON names no python that has torch")
class TorchJobTest(JobTest):
    """Jobs that use the python that has torch, and that see no GPU."""

    torch_env = {"PYTHON_EXEC": TORCH_PYTHON, "CUDA_VISIBLE_DEVICES": ""}

    def torch(self, *args, env=None, **kwargs):
        return self.run_job(*args, limit=LIMIT, env={**self.torch_env, **(env or {})}, **kwargs)

    def program(self, nproc, name, *args, options=(), **kwargs):
        """Runs programs/NAME with nproc ranks in the folder of this test."""
        return self.torch("-n", nproc, *options, PROGRAMS / name, *args, **kwargs)

    def assert_ended_well(self, job):
        self.assertEqual(job.returncode, 0, job.err)

    def results(self, job):
        """The results of the ranks: the JSON lines in the output of the job, ordered by rank."""
        lines = [json.loads(line) for line in job.out.splitlines() if line.startswith("{")]
        return sorted(lines, key=lambda line: line["rank"])
