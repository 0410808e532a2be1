"""Scripts report a wrong option, and answer --help, before they install or build anything."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ("setup.sh", "prepare.sh", "build.sh", "quickstart.sh", "package.sh", "test.sh", "bench.sh",
           "version_matrix.sh")


class Options(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        for name in ("scripts", "tests/bench", "tests/gpu", "docs/examples/tokenizer"):
            shutil.copytree(ROOT / name, self.dir / name,
                            ignore=shutil.ignore_patterns("__pycache__"))
        # Whatever would change the machine writes down that it was called.
        self.log = self.dir / "calls"
        for name in ("cmake", "apt-get", "dpkg", "sudo", "pip"):
            self.stub(f"bin/{name}")

    def stub(self, name):
        path = self.dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {name} >>{self.log}\nexit 9\n")
        path.chmod(0o755)

    def run_script(self, name, *options):
        done = subprocess.run([self.dir / "scripts" / name, *options], capture_output=True, text=True,
                              timeout=60, stdin=subprocess.DEVNULL,
                              env={**os.environ, "PATH": f"{self.dir}/bin:{os.environ['PATH']}"})
        calls = self.log.read_text() if self.log.exists() else ""
        self.log.unlink(missing_ok=True)
        self.assertEqual(calls, "", (name, options))
        return done

    def test_a_wrong_option_is_an_error_before_anything_is_installed(self):
        for name in SCRIPTS:
            with self.subTest(name):
                done = self.run_script(name, "--no-such-option")
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertRegex(done.stderr, "Usage: |--no-such-option")
        for options in (("bench.sh", "--runs"), ("bench.sh", "--trainer", "--no-such-option"),
                        ("test.sh", "unti"), ("package.sh", "--dist"), ("setup.sh", "--torch=")):
            with self.subTest(options):
                done = self.run_script(*options)
                self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_help_is_printed_before_anything_is_installed(self):
        for name in SCRIPTS:
            with self.subTest(name):
                done = self.run_script(name, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertRegex(done.stdout, f"(?i)^usage: scripts/{name}")
        self.assertEqual(self.run_script("bench.sh", "--trainer", "--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
