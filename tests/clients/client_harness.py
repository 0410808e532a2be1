"""What the tests with real PyTorch programs share."""

import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
from harness import JobTest  # noqa: E402

PROGRAMS = HERE / "programs"
PYTHON = os.environ.get("MGPU_TORCH_PYTHON") or sys.executable


class TorchTest(JobTest):
    """Jobs whose Python has torch in it."""

    def torch(self, *args, env=None, **kwargs):
        kwargs.setdefault("limit", 180)
        return self.run_job(*args, env={"PYTHON_EXEC": PYTHON, **(env or {})}, **kwargs)

    def torch_ok(self, *args, **kwargs):
        job = self.torch(*args, **kwargs)
        self.assertEqual(job.returncode, 0, job.err)
        return job
