"""consistency_check_steps finds a flipped bit in one rank's memory and reports rank and tensor."""

import os
import unittest

import trainer
from trainer import children, comm, load_tensors, until


def flip_in_memory(pid, needle):
    """Flips a bit of these bytes everywhere in the process's writable memory."""
    found = 0
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        ranges = [line.split()[0].split("-") for line in maps
                  if "rw-p" in line and "[v" not in line]
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for begin, end in ((int(a, 16), int(b, 16)) for a, b in ranges):
            try:
                content = os.pread(memory.fileno(), end - begin, begin)
            except OSError:
                continue
            at = content.find(needle)
            while at >= 0:
                os.pwrite(memory.fileno(), bytes([needle[0] ^ 1]), begin + at)
                found += 1
                at = content.find(needle, at + 1)
    return found


class Consistency(trainer.TrainerTest):
    def flipped(self, name, nproc=3, rank=1, **keys):
        """A run with learning rate 0, with a bit of this weight flipped on one rank."""
        needle = load_tensors(self.model)[name].numpy().tobytes()
        job = self.start_training(nproc, learning_rate=0.0, weight_decay=0.0, max_steps=100000,
                                  consistency_check_steps=5, global_batch_size=12,
                                  per_device_train_batch_size=2, **keys)
        metrics = job.folder / "metrics.jsonl"
        until(lambda: metrics.exists() and metrics.read_bytes().count(b'"train"') >= 6,
              trainer.LIMIT, "six steps")
        pids = {}
        for pid in children(job.pid):
            if comm(pid) != "mgpu-train":
                continue
            with open(f"/proc/{pid}/environ", "rb") as environ:
                variables = dict(v.split(b"=", 1) for v in environ.read().split(b"\0") if v)
            pids[int(variables[b"RANK"])] = pid
        self.assertEqual(sorted(pids), list(range(nproc)))
        self.assertGreaterEqual(flip_in_memory(pids[rank], needle), 1)
        return self.end(job)

    def test_a_flipped_bit_of_a_weight_ends_the_job_with_its_name(self):
        name = "model.layers.1.post_attention_layernorm.weight"
        run = self.flipped(name)
        self.assertEqual(run.status, 1, run.err)
        self.assertIn(f"parameter {name} differs on rank 1 from the others", run.err)

    def test_a_flipped_bit_of_a_frozen_weight_is_found(self):
        name = "model.layers.0.self_attn.o_proj.weight"
        for stage in (0, 1):
            with self.subTest(stage=stage):
                run = self.flipped(name, use_peft=True, rank=2, zero_stage=stage)
                self.assertEqual(run.status, 1, run.err)
                self.assertIn(f"parameter {name} differs on rank 2 from the others", run.err)

    def test_two_ranks_that_differ_are_both_reported(self):
        name = "model.norm.weight"
        run = self.flipped(name, nproc=2, rank=0)
        self.assertIn(f"parameter {name} differs on ranks 0, 1, bit for bit", run.err)

    def test_equal_ranks_continue(self):
        for keys in ({"zero_stage": 0}, {"use_peft": True, "load_in_4bit": True,
                                         "dtype": "fp32"}, {"gradient_aggregation": "median"}):
            with self.subTest(keys):
                run = self.train(2, consistency_check_steps=1, **keys)
                self.assertEqual(len(run.records()), 10)

    def test_a_run_without_replicated_weights_prints_a_note(self):
        run = self.train(2, consistency_check_steps=1, zero_stage=3, max_steps=2)
        self.assertIn("there is nothing to compare", run.notes)


if __name__ == "__main__":
    unittest.main()
