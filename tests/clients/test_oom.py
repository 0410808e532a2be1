"""A real OOM kill by the kernel, in a memory cgroup that the test makes."""

import os
import pathlib
import subprocess
import unittest

from client_harness import TorchTest
from harness import MGPU_RUN, SLOWER, environment

LIMIT = 64 << 20
HOG = ('import os, time\n'
       'if os.environ["RANK"] == "1" and os.environ["MGPU_OOM_COUNT"] == "0":\n'
       '    held = []\n'
       '    while True: held.append(bytearray(os.urandom(1 << 20)))\n'
       'print("oom count", os.environ["MGPU_OOM_COUNT"], flush=True)\n'
       'time.sleep(60 if os.environ["MGPU_OOM_COUNT"] == "0" else 0)\n')


def memory_folder():
    """The folder of our own cgroup that controls memory, v1 or v2, and the name of its limit."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return pathlib.Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes"
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return pathlib.Path("/sys/fs/cgroup" + line[3:]), "memory.max"
    return None, ""


class KernelOom(TorchTest):
    def setUp(self):
        super().setUp()
        parent, limit = memory_folder()
        if parent is None:
            self.skipTest("no cgroups here")
        self.cgroup = parent / f"mgpu-test-{os.getpid()}"
        try:
            self.cgroup.mkdir()
            self.addCleanup(self.cgroup.rmdir)
            (self.cgroup / limit).write_text(str(LIMIT))
            for swap, value in (("memory.memsw.limit_in_bytes", LIMIT), ("memory.swap.max", 0)):
                if (self.cgroup / swap).exists():
                    (self.cgroup / swap).write_text(str(value))
        except OSError as problem:
            self.skipTest(f"no memory cgroup can be made here: {problem}")

    def test_it_is_named_with_its_numbers_and_the_retry_is_told(self):
        worker = self.script(HOG)
        job = self.run_job("-n", 2, "--max-restarts", 1, worker, limit=120,
                           preexec_fn=lambda: (self.cgroup / "cgroup.procs").write_text("0"))
        self.assertEqual(job.returncode, 0, job.err)
        first = job.report["attempts"][0]
        self.assertEqual((first["first_failure"]["rank"], first["first_failure"]["signal"]),
                         (1, "SIGKILL"))
        self.assertEqual(first["cause"]["kind"], "host_oom", first["cause"])
        self.assertIn(str(self.cgroup), first["cause"]["text"])
        self.assertIn("of 0.1 GiB", first["cause"]["text"])
        self.assertEqual(job.out.count("oom count 1"), 2)

    def test_the_exit_status_is_137_when_no_restart_is_left(self):
        job = self.run_job("-n", 2, self.script(HOG), limit=120,
                           preexec_fn=lambda: (self.cgroup / "cgroup.procs").write_text("0"))
        self.assertEqual(job.returncode, 137)
        self.assertIn("host out of memory: the kernel's OOM killer ended it", job.err)


if __name__ == "__main__":
    unittest.main()
