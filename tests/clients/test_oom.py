"""Out of memory, by the kernel or by torch: it is the cause, and restarted ranks get the count."""

import os
import pathlib
import unittest

from torch_job import MGPU_RUN, SLOWER, TorchJobTest, until

LIMIT_BYTES = 128 << 20
EATER = '''import os, signal, subprocess, sys, time
print("oom count", os.environ["MGPU_OOM_COUNT"], flush=True)
deed = sys.argv[1 + int(os.environ["TORCHELASTIC_RESTART_COUNT"])]
if deed == "well": sys.exit(0)
if os.environ["RANK"] == "0": time.sleep(300)
if deed == "eat": held = bytearray(os.urandom(1 << 20)) * 1024
if deed == "child":
    reader = subprocess.run([sys.executable, "-c", "held = b'x' * (1 << 30)"])
    raise RuntimeError(f"the reader ended with {reader.returncode}")
os.kill(os.getpid(), signal.SIGKILL)
'''


def lines_of(path):
    return pathlib.Path(path).read_text().splitlines()


class Cgroup:
    """A memory cgroup (v1 or v2) below our own, with a limit. OSError if it cannot be created."""

    def __init__(self, bytes_limit):
        own = dict(line.split(":", 2)[1:] for line in lines_of("/proc/self/cgroup"))
        mounts = [line.split() for line in lines_of("/proc/self/mounts")]
        v1 = [m[1] for m in mounts if m[2] == "cgroup" and "memory" in m[3].split(",")]
        v2 = [m[1] for m in mounts if m[2] == "cgroup2"]
        if not v1 and not v2:
            raise OSError("no cgroup tree is mounted")
        inside = own.get("memory" if v1 else "", "/").lstrip("/")
        root = pathlib.Path((v1 or v2)[0])
        # In a container the path may be the one on the host, of which the mount shows only the end.
        parent = root / inside if (root / inside).is_dir() else root
        self.path = parent / f"mgpu-test-{os.getpid()}"
        self.path.mkdir()
        try:
            names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"] if v1 else \
                ["memory.max", "memory.swap.max"]
            self.write(names[0], bytes_limit)
            if (self.path / names[1]).exists():  # missing if swap is not accounted for
                self.write(names[1], bytes_limit if v1 else 0)
        except OSError:
            self.path.rmdir()
            raise

    def write(self, name, value):
        if not (self.path / name).exists():
            raise OSError(f"{self.path} has no {name}: the memory controller is not ours to use")
        (self.path / name).write_text(str(value))

    def remove(self):
        def removed():
            try:
                self.path.rmdir()
            except FileNotFoundError:
                pass
            except OSError:  # busy until its last process has been reaped
                return False
            return True
        until(removed, 10 * SLOWER, f"the removal of {self.path}")


class Host(TorchJobTest):
    def setUp(self):
        try:
            self.cgroup = Cgroup(LIMIT_BYTES)
        except OSError as why:
            self.skipTest(f"no memory cgroup can be made here: {why}")
        self.addCleanup(self.cgroup.remove)  # after the clean-up of the jobs in it
        super().setUp()

    def eat(self, *deeds, restarts=0):
        """Runs a job of 2 ranks in the cgroup; rank 1 does one of the deeds in each attempt."""
        limited = self.write("limited", f"#!/bin/sh\necho $$ > '{self.cgroup.path}/cgroup.procs' &&\n"
                                        f"exec '{MGPU_RUN}' \"$@\"\n", 0o755)
        return self.run_job("-n", 2, "--max-restarts", restarts, self.script(EATER), *deeds,
                            program=limited)

    def test_a_kill_by_the_kernel_is_the_cause_with_the_memory_sizes(self):
        job = self.eat("eat")
        self.assertEqual(job.returncode, 137)
        attempt = job.report["attempts"][0]
        self.assertEqual((attempt["first_failure"]["rank"], attempt["first_failure"]["signal"]),
                         (1, "SIGKILL"))
        cause = attempt["cause"]
        self.assertEqual(cause["kind"], "host_oom")
        self.assertIn(str(self.cgroup.path), cause["text"])
        self.assertRegex(cause["text"], r"this rank used up to 1[0-2]\d\.\d MiB")
        self.assertRegex(cause["text"], r"the cgroup up to 12[78]\.\d MiB of 128\.0 MiB")
        self.assertIn("host out of memory", job.err)
        self.assertIn("host memory", cause["advice"])

    def test_host_memory_is_not_counted_as_a_reason_for_smaller_batches(self):
        job = self.eat("eat", "well", restarts=1)
        self.assertEqual(job.returncode, 0, job.err)
        self.assertEqual(job.out.splitlines(), ["oom count 0"] * 4)
        self.assertEqual(job.report["attempts"][0]["cause"]["kind"], "host_oom")

    def test_a_rank_that_fails_because_its_child_was_killed_is_out_of_memory(self):
        job = self.eat("child", "well", restarts=1)
        self.assertEqual(job.returncode, 0, job.err)
        attempt = job.report["attempts"][0]
        self.assertEqual(attempt["first_failure"]["exit_code"], 1)
        self.assertEqual(attempt["cause"]["kind"], "host_oom")
        self.assertIn(str(self.cgroup.path), attempt["cause"]["text"])
        self.assertIn("after that this rank failed: RuntimeError: the reader ended with -9",
                      attempt["cause"]["text"])

    def test_a_later_sigkill_by_another_process_is_reported_as_a_guess(self):
        job = self.eat("eat", "kill", restarts=1)
        self.assertEqual([a["cause"]["kind"] for a in job.report["attempts"]],
                         ["host_oom", "host_oom_guess"])


GROWER = """import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("peer stopped", flush=True), os._exit(0)))
if os.environ["RANK"] == "0":
    while True: time.sleep(60)
grow = "import time; held = []\\nwhile True: held.append(b'x' * (1 << 20)); time.sleep(0.002)"
if sys.argv[1] == "child": sys.exit(subprocess.call([sys.executable, "-c", grow]))
exec(grow)
"""


class WorkerMemory(TorchJobTest):
    """A rank above --worker-memory dies, and its peer lives until that is handled."""

    def grow(self, who, **kwargs):
        return self.run_job("-n", 2, "--worker-memory", "96M", self.script(GROWER), who, **kwargs)

    def test_a_rank_that_grows_dies_alone(self):
        job = self.grow("rank")
        self.assertEqual(job.returncode, 137)
        attempt = job.report["attempts"][0]
        self.assertEqual((attempt["first_failure"]["rank"], attempt["first_failure"]["signal"]),
                         (1, "SIGKILL"))
        self.assertEqual(attempt["cause"]["kind"], "host_oom")
        self.assertIn("96.0 MiB", attempt["cause"]["text"])
        self.assertEqual(job.out.splitlines(), ["peer stopped"])

    def test_memory_of_its_children_counts(self):
        job = self.grow("child")
        self.assertNotEqual(job.returncode, 0)
        attempt = job.report["attempts"][0]
        self.assertEqual(attempt["first_failure"]["rank"], 1)
        self.assertEqual(attempt["cause"]["kind"], "host_oom", attempt["cause"]["text"])
        self.assertIn("96.0 MiB", attempt["cause"]["text"])
        self.assertEqual(job.out.splitlines(), ["peer stopped"])

    def test_without_a_cgroup_mgpu_run_itself_kills_the_rank(self):
        """As on a machine on which no cgroup can be created."""
        hidden = self.write("hidden", f"#!/bin/sh\nmount -t tmpfs -o ro none /sys/fs/cgroup || exit 99\n"
                                      f"exec '{MGPU_RUN}' \"$@\"\n", 0o755)
        outer = self.write("outer", f"#!/bin/sh\nexec unshare -m '{hidden}' \"$@\"\n", 0o755)
        for who in "rank", "child":
            with self.subTest(who):
                job = self.grow(who, program=outer)
                if job.returncode in (1, 99) and not job.report:
                    self.skipTest("mounts are not permitted here")
                self.assertIn("cannot create a memory cgroup", job.err)
                attempt = job.report["attempts"][0]
                self.assertEqual((attempt["first_failure"]["rank"], attempt["cause"]["kind"]),
                                 (1, "host_oom"), attempt["cause"])
                self.assertIn("more than --worker-memory 96.0 MiB, so mgpu-run killed them",
                              attempt["cause"]["text"])
                self.assertEqual(job.out.splitlines(), ["peer stopped"])


class Gpu(TorchJobTest):
    def test_torch_s_oom_error_is_the_cause_with_and_without_record(self):
        job = self.program(1, "gpu_oom.py", options=["--max-restarts", 2])
        self.assert_ended_well(job)
        self.assertEqual(job.out.splitlines(), ["oom count 0", "oom count 1", "oom count 2"])
        for attempt in job.report["attempts"][:2]:
            self.assertEqual(attempt["cause"]["kind"], "gpu_oom")
            self.assertIn("Tried to allocate 20.00 GiB", attempt["cause"]["text"])

    def test_an_oom_message_on_stderr_is_enough(self):
        job = self.sh(2, '[ $RANK = 0 ] && sleep 60; echo "RuntimeError: CUDA out of memory. Tried '
                         'to allocate 1.00 GiB" >&2; exit 1')
        self.assertEqual(job.returncode, 1)
        self.assertEqual(job.report["attempts"][0]["cause"]["kind"], "gpu_oom")


if __name__ == "__main__":
    unittest.main()
