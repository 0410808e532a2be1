"""Lets a rank run out of GPU memory while it trains: the losses must be those of a run with enough
memory. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B -m unittest -v test_oom

The variables are those of test_determinism.py. One step has long sequences. The memory is enough for
its micro-batches in halves, but not for whole ones: another process holds the rest, or the allocator
of one rank is limited.
"""

import json
import os
import shutil
import subprocess
import sys
import unittest

import test_determinism
from test_determinism import BIN, GPUS

STEP = 16  # sequences
LARGE_STEP = 3

# Holds GPU memory until stdin closes, so that argv[1] bytes are left; "all": holds none, and prints
# the least free memory that it has seen.
OTHER_PROGRAM = '''import select, sys, torch
torch.zeros(1, device="cuda")
free = torch.cuda.mem_get_info()[0]
if sys.argv[1] != "all":
    held = torch.empty(free - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.005)[0]:
    free = min(free, torch.cuda.mem_get_info()[0])
print(free, flush=True)
'''

# Limits the allocator of some ranks and becomes mgpu-train. argv[1]: RANK=FRACTION,...
LIMITED_RANK = '''import os, sys
fractions = dict(pair.split("=") for pair in sys.argv[1].split(",") if pair)
if fraction := fractions.get(os.environ["RANK"]):
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "per_process_memory_fraction:" + fraction
os.execv(sys.argv[2], sys.argv[2:])
'''


class OutOfMemory(test_determinism.Training):
    KEYS = {**test_determinism.Training.KEYS, "gradient_accumulation_steps": 1, "max_steps": 6,
            "per_device_train_batch_size": STEP, "global_batch_size": STEP,
            "shuffle_dataset": False, "full_determinism": False, "zero_stage": 0}

    def rows(self, longest=1024, long_rows=STEP):
        lengths = [64] * STEP * self.KEYS["max_steps"]
        begin = STEP * LARGE_STEP
        lengths[begin:begin + long_rows] = [longest] * long_rows
        return self.token_rows(lengths)

    def run_ranks(self, number, ranks=1, fractions="", rows=None, options=(), **keys):
        """Returns the finished job; self.metrics(number) has its records."""
        dataset = self.dir / "data.jsonl"
        rows = rows or self.rows()
        dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
        output = self.dir / f"output-{number}"
        shutil.rmtree(output, ignore_errors=True)
        keys = {"model_name_or_path": str(self.dir / "tied"), "dataset_name": str(dataset),
                "output_dir": str(output), **self.KEYS,
                "per_device_train_batch_size": STEP // ranks, **keys}
        keys.pop("gradient_accumulation_steps")
        recipe = self.dir / "recipe.yaml"
        recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()
                                  if value is not None))
        program = self.dir / "limited_rank.py"
        program.write_text(LIMITED_RANK)
        shared = ranks > GPUS
        return subprocess.run(
            [BIN / "mgpu-run", "--nproc", str(ranks), *["--oversubscribe"] * shared, *options,
             sys.executable, program, fractions, BIN / "mgpu-train", recipe],
            capture_output=True, text=True, timeout=300,
            env={**os.environ, **({"NCCL_SOCKET_IFNAME": "lo"} if shared else {})})

    def metrics(self, number):
        lines = (self.dir / f"output-{number}" / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def column(self, number, key):
        return [record[key] for record in self.metrics(number) if record["event"] == "train"]

    def notes(self, number):
        return "\n".join(r["text"] for r in self.metrics(number) if r["event"] == "note")

    def other_program(self, left):
        program = self.dir / "other_program.py"
        program.write_text(OTHER_PROGRAM)
        other = subprocess.Popen([sys.executable, program, str(left)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        self.assertEqual(other.stdout.readline().strip(), "ready")
        return other

    def least_free(self, number, **keys):
        """Trains while another program measures, which has the same context as when it holds."""
        other = self.other_program("all")
        job = self.run_ranks(number, **keys)
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        return int(other.communicate("end\n")[0])

    def fractions(self, ranks, *limited, **keys):
        """Of the GPU's memory: between what the large step allocates whole and in halves."""
        import torch
        peaks = []
        for number, size in (("whole", STEP // ranks), ("halves", STEP // ranks // 2)):
            job = self.run_ranks(number, ranks, per_device_train_batch_size=size, **keys)
            self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
            peaks.append(max(self.column(number, "memory_bytes")))
        print([f"{peak / 2**30:.2f} GiB" for peak in peaks], end=" ", flush=True)
        fraction = sum(peaks) / 2 / torch.cuda.get_device_properties(0).total_memory
        return ",".join(f"{rank}={fraction:.6f}" for rank in limited)

    def assert_divided(self, job, number, rtol=2e-3):
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        self.assertIn("out of memory; each micro-batch is now divided into 2", self.notes(number))
        ours, whole = self.column(number, "loss"), self.column("whole", "loss")
        print(ours, whole, end=" ", flush=True)
        for one, other in zip(ours, whole, strict=True):
            self.assertAlmostEqual(one, other, delta=rtol * other)

    def test_a_rank_beside_another_program_has_the_losses_of_one_alone(self):
        left = [self.least_free("whole"), self.least_free("halves", per_device_train_batch_size=8)]
        self.assertGreater(left[1], left[0])
        # What the trainer took from the free memory, between whole and halves.
        start = self.other_program("all")
        free = int(start.communicate("end\n")[0])
        self.other_program(free - sum(left) // 2)
        self.assert_divided(self.run_ranks("ours"), "ours")

    def test_a_limited_rank_has_the_losses_of_one_with_enough_memory(self):
        job = self.run_ranks("ours", fractions=self.fractions(1, 0))
        self.assert_divided(job, "ours")

    def test_offloaded_activations_are_divided_too(self):
        keys = {"gradient_checkpointing": "offload"}
        self.assert_divided(self.run_ranks("ours", fractions=self.fractions(1, 0, **keys), **keys),
                            "ours")

    def test_one_of_two_ranks_divides_in_every_zero_stage(self):
        for stage in range(4):
            with self.subTest(stage=stage):
                fractions = self.fractions(2, 1, zero_stage=stage)
                job = self.run_ranks("ours", 2, fractions, zero_stage=stage)
                self.assert_divided(job, "ours")
                self.assertIn("rank 1 ran out of memory", self.notes("ours"))

    def test_a_sequence_that_does_not_fit_alone_ends_the_job_with_this_cause(self):
        fractions = self.fractions(2, 0, 1)
        job = self.run_ranks("ours", 2, fractions, rows=self.rows(32768, 1), max_length=32768)
        self.assertEqual(job.returncode, 1, job.stdout + job.stderr)
        self.assertIn("GPU out of memory", job.stderr)

    def test_a_healthy_step_is_as_fast_as_without_the_remedy(self):
        speed = {}
        for oom in ("restart", "shrink", "restart", "shrink"):
            job = self.run_ranks(oom, rows=self.token_rows([256] * STEP * 60), max_steps=60, oom=oom)
            self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
            speed[oom] = max(speed.get(oom, 0), *self.column(oom, "tokens_per_second"))
        print(speed, end=" ", flush=True)
        self.assertGreater(speed["shrink"], 0.97 * speed["restart"])


if __name__ == "__main__":
    unittest.main()
