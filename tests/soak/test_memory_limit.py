"""The kernel kills the rank that a soak has chosen, and no other process."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import memory_limit

CACHE_BYTES = 512 << 20
# Takes some memory and reads a file, which is then in the page cache of its group, and waits.
RANK = """
import sys, time
held = b"x" * (100 << 20)
with open(sys.argv[1], "rb", buffering=0) as file:
    while file.read(1 << 20):
        pass
print("read", flush=True)
time.sleep(1000)
"""


@unittest.skipIf(memory_limit.reason_to_skip(), memory_limit.reason_to_skip())
class MemoryLimit(unittest.TestCase):
    def test_the_kernel_kills_the_rank_although_page_cache_can_give_way_to_another_process(self):
        limit = memory_limit.MemoryLimit(f"mgpu-soak-test-{os.getpid()}")
        self.addCleanup(limit.close)
        with tempfile.TemporaryDirectory(prefix="mgpu-soak-test-") as folder:
            file = pathlib.Path(folder) / "file"
            with open(file, "wb") as sparse:
                sparse.truncate(CACHE_BYTES)
            with subprocess.Popen([*limit.enter(), sys.executable, "-c", RANK, file],
                                  stdout=subprocess.PIPE) as rank:
                try:
                    self.assertEqual(rank.stdout.readline(), b"read\n")
                    limit.kill_for_memory(rank.pid, 30)
                    self.assertEqual(rank.poll() or rank.wait(5), -signal.SIGKILL)
                finally:
                    rank.kill()


if __name__ == "__main__":
    unittest.main()
