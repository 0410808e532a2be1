"""Times steps of two CPU ranks with batch_sharding uniform and adaptive. One rank is slow: it shares its core with a
busy process. The machine must be idle otherwise, and have two cores or more.

    MGPU_BUILD=build MGPU_RUN=build/bin/mgpu-run PYTHONPATH=tests/bench:tests/peers:tests/support \\
        python3 -m unittest adaptive_shards_bench
"""

import os
import statistics
import subprocess
import sys
import unittest

import trainer
from trainer import LIMIT, children, comm, until

STEPS = 40
SETTLED = 25  # from this step on the shares have followed the measured speeds


def ranks_of(launcher):
    return [pid for pid in children(launcher) if comm(pid) == "mgpu-train"]


@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one rank per core is needed")
class AdaptiveShards(trainer.TrainerTest):
    model_options = dict(hidden_size=192, intermediate_size=512, num_hidden_layers=3)
    row_count = 96

    def step_time(self, sharding):
        """Median seconds of a settled step, and the run."""
        first, second = sorted(os.sched_getaffinity(0))[:2]
        job = self.start_training(2, batch_sharding=sharding, max_steps=STEPS,
                                  global_batch_size=24, per_device_train_batch_size=12,
                                  save_strategy="no")
        ranks = until(lambda: len(found := ranks_of(job.pid)) == 2 and found, LIMIT, "both ranks")
        for rank, core in zip(ranks, (first, second)):
            for thread in os.listdir(f"/proc/{rank}/task"):
                os.sched_setaffinity(int(thread), {core})
        run = self.end(job)
        self.assertEqual(run.status, 0, run.err)
        return statistics.median(run.column("seconds")[SETTLED:]), run

    def test_times(self):
        second = sorted(os.sched_getaffinity(0))[1]
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        self.addCleanup(busy.wait)
        self.addCleanup(busy.kill)
        os.sched_setaffinity(busy.pid, {second})
        uniform, _ = self.step_time("uniform")
        adaptive, run = self.step_time("adaptive")
        print(f"\nseconds per step: uniform {uniform:.4f}, adaptive {adaptive:.4f}, "
              f"{uniform / adaptive:.2f} times as fast", file=sys.stderr)
        self.assertIn("work shares by rank: 0.", run.notes)


if __name__ == "__main__":
    unittest.main()
