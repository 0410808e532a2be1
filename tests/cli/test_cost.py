"""What mgpu-run costs while its ranks work: CPU time and memory."""

import pathlib
import textwrap
import time
import unittest

from harness import JobTest, SLOWER, until

# Rank 0 sends the heartbeats of all ranks, as often as mgpu-train does; the others sleep.
RANKS = textwrap.dedent('''
    import json, os, pathlib, socket, time
    if os.environ["RANK"] != "0": os.execlp("sleep", "sleep", "1000")
    def connect(rank):
        launcher = socket.socket(socket.AF_UNIX)
        launcher.connect(os.environ["MGPU_WORKER_SOCKET"].replace("@", "\\0", 1))
        launcher.sendall(b'{"rank": %d, "aborts": true}\\n' % rank)
        return launcher
    ranks = [connect(rank) for rank in range(8)]
    for step in range(100000):
        for launcher in ranks: launcher.sendall(b'{"step": %d, "busy_ms": 17.123}\\n' % step)
        if step == 3: pathlib.Path("ready").write_text("yes")
        time.sleep(0.5)
''')


@unittest.skipIf(SLOWER > 1, "a sanitizer costs more than the program")
class Cost(JobTest):
    def test_8_quiet_ranks_with_heartbeats_cost_less_than_a_thousandth_of_a_core(self):
        job = self.start("-n", 8, "--grace", 1, self.script(RANKS))
        self.wait_for_files("ready", 1)
        def used():  # seconds on a CPU
            tasks = pathlib.Path(f"/proc/{job.pid}/task").glob("*/schedstat")
            return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
        begin, before = time.monotonic(), used()
        until(lambda: time.monotonic() - begin > 3)
        share = (used() - before) / (time.monotonic() - begin)
        status = pathlib.Path(f"/proc/{job.pid}/status").read_text()
        resident, = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        print(f"\n{100 * share:.3f} % of a core, {resident / 1024:.1f} MiB")
        self.assertLess(share, 0.001)
        self.assertLess(resident, 6 * 1024)
        job.terminate()
        job.wait(20)


if __name__ == "__main__":
    unittest.main()
