"""Shared by the tests of this folder: a short soak with a fixed seed."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 600


class SoakTest(unittest.TestCase):
    def soak(self, job, nodes, faults, *options):
        """Runs a soak; a rule that is broken is a failure."""
        with tempfile.TemporaryDirectory(prefix="mgpu-soak-test-") as folder:
            done = subprocess.run(
                [sys.executable, "-B", HERE / "soak.py", "--seed", "17", "--faults", str(faults),
                 "--job", job, "--nodes", str(nodes), "--hang-timeout", "15", *options,
                 "--state", pathlib.Path(folder) / "state"],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                env=os.environ, check=False)
        print(done.stdout, file=sys.stderr)
        self.assertEqual(done.returncode, 0, done.stdout[-8000:] + done.stderr[-8000:])
