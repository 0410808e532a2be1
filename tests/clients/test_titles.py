"""Processes that rewrite their title, which overwrites the environment: vLLM, Ray and others."""

import importlib.util
import os
import pathlib
import shutil
import signal
import sys
import unittest

from torch_job import MGPU_RUN, TorchJobTest

NOBODY = 65534

# A rank with a child in its session and a grandchild in a session of its own. Both have a title of
# their own, and no cookie in their environment any more.
RANK = r'''
import os, pathlib, time
import setproctitle
def note(name):
    pathlib.Path(name + ".tmp").write_text(str(os.getpid()))
    os.rename(name + ".tmp", name + ".pid")
def become(name):
    setproctitle.setproctitle("VLLM::Worker " + "x" * 5000)
    assert b"MGPU_JOB_COOKIE" not in open("/proc/self/environ", "rb").read()
    note(name)
rank = os.environ["RANK"]
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        become("grandchild" + rank)
    else:
        become("child" + rank)
else:
    note("rank" + rank)
time.sleep(300)
'''


class WithoutACgroup(TorchJobTest):
    """As a user who cannot make a cgroup."""

    def setUp(self):
        super().setUp()
        found = importlib.util.find_spec("setproctitle")
        self.assertIsNotNone(found, "install scripts/requirements-tests.txt")
        shutil.copytree(pathlib.Path(found.origin).parent, self.dir / "setproctitle")
        self.launcher = shutil.copy(MGPU_RUN, self.dir / "mgpu-run")
        self.python = os.path.realpath(sys.executable)
        self.user = {}
        if os.geteuid() == 0:
            os.chown(self.dir, NOBODY, NOBODY)
            self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def job(self, *words):
        job = self.start(*words, program=self.launcher, env={"PYTHONPATH": str(self.dir)},
                         **self.user)
        pids = self.pids_from("*.pid", 6, 20)
        self.addCleanup(self.kill_those_left, pids)
        return job, pids

    @staticmethod
    def kill_those_left(pids):
        for pid in pids:
            try:
                if b"VLLM::Worker" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass

    def test_processes_with_a_rewritten_title_do_not_outlive_a_killed_mgpu_run(self):
        job, pids = self.job("-n", 2, "--no-python", self.python, self.script(RANK))
        job.kill()
        job.wait()
        self.assert_all_gone(pids)

    def test_processes_with_a_rewritten_title_do_not_outlive_the_job_around_theirs(self):
        job, pids = self.job("-n", 1, "--no-python", self.launcher, "-n", 2, "--no-python",
                             self.python, self.script(RANK))
        job.kill()
        job.wait()
        self.assert_all_gone(pids)


if __name__ == "__main__":
    unittest.main()
