"""scripts/torch_python.sh finds the Python that has the wanted version of torch."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
PINNED = next(line.split("==")[1] for line in
              (SCRIPTS / "requirements.txt").read_text().splitlines() if line.startswith("torch=="))


class TorchPython(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def find(self, installed, *wanted):
        """Where the script finds torch if LIBTORCH_ROOT belongs to a Python with this version."""
        root = pathlib.Path(self.folder.name)
        torch = root / "lib" / "python3" / "site-packages" / "torch"
        torch.mkdir(parents=True, exist_ok=True)
        python = root / "bin" / "python3"
        python.parent.mkdir(exist_ok=True)
        python.write_text(f"#!/bin/sh\necho {installed}\n")
        python.chmod(0o755)
        found = subprocess.run([SCRIPTS / "torch_python.sh", *wanted], capture_output=True,
                               text=True, env={**os.environ, "LIBTORCH_ROOT": str(torch)})
        return found.returncode, found.stdout.strip() == str(python)

    def test_the_pinned_version_is_found_with_any_suffix(self):
        self.assertEqual(self.find(f"{PINNED}+cu130"), (0, True))

    def test_another_version_is_found_when_it_is_wanted(self):
        self.assertEqual(self.find("2.10.0+cu128", "2.10.0"), (0, True))
        self.assertFalse(self.find("2.10.0+cu128")[1])

    def test_a_version_that_is_not_there_is_an_error(self):
        self.assertEqual(self.find(PINNED, "0.0.1"), (1, False))


class Setup(unittest.TestCase):
    def test_a_missing_version_is_a_usage_error(self):
        for script, option in (("setup.sh", "--torch="), ("build.sh", "--torch="),
                               ("version_matrix.sh", "--torch=2.10.0")):
            done = subprocess.run([SCRIPTS / script, option], capture_output=True, text=True,
                                  env={**os.environ, "MGPU_NO_INSTALL": "1"})
            self.assertEqual(done.returncode, 2, (script, done.stderr))


if __name__ == "__main__":
    unittest.main()
