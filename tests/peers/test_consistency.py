"""consistency_check_steps finds a flipped bit in one rank's memory and reports rank and tensor; nodes
that would train on different things do not start."""

import os
import socket
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


class Nodes(trainer.TrainerTest):
    """Each node reads its own copy of the recipe, the data and the model."""

    def end_of_two(self, **other):
        """Trains on two nodes, of which the second has other settings; returns both runs."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        recipe = self.recipe()
        jobs = [self.start_training(
            1, recipe=recipe, options=("--nnodes", 2, "--node-rank", rank, "--master-addr", "127.0.0.1",
                        "--master-port", port, "--insecure"),
            out="out", max_steps=4, **(other if rank else {})) for rank in range(2)]
        return [self.end(job) for job in jobs]

    def test_nodes_with_different_recipes_data_or_models_trained_on_or_hung(self):
        rows = trainer.write_rows(self.dir / "other.jsonl", trainer.make_rows(64, seed=2))
        model = trainer.make_model(self.dir / "other-model", seed=5)
        self.train(1, max_steps=1, dataset_name=str(rows))  # fills the cache of token ids
        for other, what in (
                (dict(learning_rate=.005), "learning_rate is "),
                (dict(per_device_train_batch_size=2), "per_device_train_batch_size is "),
                (dict(dataset_name=str(rows)), "dataset_name has different contents"),
                (dict(model_name_or_path=str(model)), "model_name_or_path has different contents")):
            with self.subTest(other):
                runs = self.end_of_two(**other)
                self.assertEqual([run.status for run in runs], [2, 2], runs[0].err)
                self.assertRegex("".join(run.err for run in runs),
                                 f"rank 0 on .* and rank 1 on .* do not train on the same: {what}")

    def test_nodes_may_keep_the_same_files_elsewhere(self):
        rows = trainer.write_rows(self.dir / "copied.jsonl", self.rows)
        for run in self.end_of_two(dataset_name=str(rows)):
            self.assertEqual(run.status, 0, run.err)


if __name__ == "__main__":
    unittest.main()
