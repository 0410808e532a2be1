"""Every usage error of mgpu-run and mgpu-train: status 2 and one line that names what is wrong.

To read all messages from top to bottom:
    MGPU_PRINT_USAGE_ERRORS=1 python3 -m unittest discover -s tests/cli -p test_usage_errors.py
"""

import concurrent.futures
import contextlib
import functools
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import MGPU_RUN, SLOWER, JobTest, environment
from usage_error_cases import (FAKE_GPUS, LAUNCHER, NO_TOPOLOGY, NOBODY, TRAINER,
                               make_file_of_another_user)

PRINT = bool(os.environ.get("MGPU_PRINT_USAGE_ERRORS")) or any(
    argument in ("-v", "--verbose") for argument in sys.argv[1:])
MGPU_TRAIN = pathlib.Path(
    os.environ.get("MGPU_BUILD", pathlib.Path(MGPU_RUN).parents[1])).resolve() / "bin/mgpu-train"
LONGEST = 500  # characters of a message

# Variables that schedulers and other launchers set, and that a message may depend on.
SURROUNDINGS = ("SLURM_", "OMPI_", "PMIX_", "KUBERNETES_", "TORCH_ELASTIC_", "LOCAL_", "GROUP_",
                "JOB_COMPLETION_INDEX", "PYTHON_EXEC", "CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE")
# Names that keep their capital at the beginning of a message.
PROPER_NAMES = ("Slurm", "Open MPI", "PMIx", "Kubernetes")


@functools.lru_cache(maxsize=None)
def machine_can_be_changed():
    """Whether this user may mount something for one process alone."""
    changed = subprocess.run(["unshare", "-m", "/bin/sh", "-c", FAKE_GPUS + NO_TOPOLOGY],
                             capture_output=True) if shutil.which("unshare") else None
    return changed is not None and changed.returncode == 0


@functools.lru_cache(maxsize=None)
def nobody_can_run(program):
    """Whether root can start the program as a user who may read less."""
    try:
        return subprocess.run([program, "--version"], user=NOBODY, capture_output=True,
                              cwd="/").returncode == 0
    except OSError:
        return False


class UsageErrors(JobTest):
    """Runs tables of cases, each case in its own folder, and checks the form of every message."""

    prefix, program, at_once = "mgpu-run: ", MGPU_RUN, 1

    def check_all(self, title, cases):
        if PRINT:
            print(f"\n=== {title}", file=sys.stderr)
        self.assertEqual(len({case.name for case in cases}), len(cases), "two cases of one name")
        with concurrent.futures.ThreadPoolExecutor(self.at_once) as pool:
            results = [pool.submit(self.run_case, case) for case in cases]
        for case, result in zip(cases, results):
            with self.subTest(title, case=case.name):
                done = result.result()
                self.show(case, done.stderr.rstrip("\n") if done else "(not run: it needs more "
                          "privileges than this user has)")
                if done:
                    self.check_message(case, done)

    def can_run(self, case):
        root = os.getuid() == 0
        return ((root or make_file_of_another_user not in case.files.values())
                and (not root or not case.as_nobody or nobody_can_run(self.program))
                and (not case.machine or machine_can_be_changed()))

    def write_files(self, folder, case):
        for name, content in case.files.items():
            path = folder / name
            if callable(content):
                content(path)
                continue
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            path.chmod(case.mode)

    def run_case(self, case):
        """Runs the case to its end; None where this user cannot set it up."""
        if not self.can_run(case):
            return None
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.dir))
        self.write_files(folder, case)
        env = {name: value for name, value in environment().items()
               if not name.startswith(SURROUNDINGS)}
        env.update({"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder), **case.env})
        argv = [str(self.program), *case.args]
        if case.alone:
            argv[0] = shutil.copy(self.program, folder / "mgpu-run")
        if case.machine:
            argv = ["unshare", "-m", "/bin/sh", "-c", case.machine + '\nexec "$@"', "-", *argv]
        as_whom = {}
        if case.as_nobody and os.getuid() == 0:
            as_whom = {"user": NOBODY}
            self.dir.chmod(0o755)
            folder.chmod(0o755)
        with contextlib.ExitStack() as stack:
            stdin = {"input": case.stdin or ""}
            if isinstance(case.stdin, pathlib.Path):
                stdin = {"stdin": os.open(case.stdin, os.O_RDONLY)}
                stack.callback(os.close, stdin["stdin"])
            return subprocess.run(
                argv, cwd=folder, capture_output=True, text=True, errors="replace",
                env={name: value for name, value in env.items() if value is not None},
                timeout=60 * SLOWER, **stdin, **as_whom)

    def show(self, case, message):
        if not PRINT:
            return
        words = [f"{name}={shlex.quote(value)}" for name, value in case.env.items()
                 if value is not None]
        words += [pathlib.Path(self.program).name, *map(shlex.quote, case.args)]
        words = [word if len(word) < 80 else word[:80] + "..." for word in words]
        print(f"\n{case.name}\n  $ {' '.join(words)}", file=sys.stderr)
        for name, content in case.files.items():
            text = content.__name__ if callable(content) else repr(content)
            print(f"    {name}: {text if len(text) < 90 else text[:90] + '...'}", file=sys.stderr)
        print(f"  {message}", file=sys.stderr)

    def check_message(self, case, done):
        err = done.stderr
        self.assertEqual(done.returncode, 2, err)
        self.assertEqual(done.stdout, "")
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.endswith("\n"), err)
        self.assertTrue(err.startswith(self.prefix), err)
        message = err[len(self.prefix):-1]
        self.assertLess(len(message), LONGEST)
        self.assertNotRegex(message, r"(?<!\.\.)[.!]$", "a message ends without a full stop")
        self.assertNotRegex(message, r"\b[Ee]rror: |  ")
        if not message.startswith(PROPER_NAMES):
            self.assertNotRegex(message, r"^[A-Z](?:[a-z']*|\b)(?:\s|$)",
                                "a message begins in lower case")
        for text in case.named:
            self.assertIn(text, message)
        for text in case.hidden:
            self.assertNotIn(text, message)


class Launcher(UsageErrors):
    def test_every_usage_error_is_one_line_that_names_what_is_wrong(self):
        for title, cases in LAUNCHER.items():
            self.check_all(title, cases)


@unittest.skipUnless(MGPU_TRAIN.exists(), f"there is no {MGPU_TRAIN}")
class Trainer(UsageErrors):
    """The command line of mgpu-train; tests/peers/test_bad_recipes.py tests mistakes in recipes."""

    # It loads LibTorch, which takes long.
    prefix, program, at_once = "mgpu-train: ", MGPU_TRAIN, os.cpu_count()

    def test_every_usage_error_is_one_line_that_names_what_is_wrong(self):
        self.check_all("mgpu-train", TRAINER)


del UsageErrors  # it has no tests of its own

if __name__ == "__main__":
    unittest.main()
