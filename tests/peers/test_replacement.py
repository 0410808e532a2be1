"""Replacing a killed rank while the other ranks keep their processes (--replace-ranks)."""

import json
import os
import signal
import unittest

import trainer
from test_oom import LimitedMemoryTest
from trainer import LIMIT, children, comm, until


def pid_of_rank(launcher, rank):
    """The process that has this rank now; None while there is none."""
    for pid in children(launcher):
        try:
            with open(f"/proc/{pid}/environ", "rb") as variables:
                names = variables.read().split(b"\0")
        except OSError:
            continue
        if comm(pid) == "mgpu-train" and b"RANK=%d" % rank in names:
            return pid
    return None


class Replacing(trainer.TrainerTest):
    def wait_for_step(self, job, step):
        path = job.folder / "metrics.jsonl"
        until(lambda: path.exists() and f'"step":{step},' in path.read_text().replace(" ", ""),
              LIMIT, f"step {step}")

    def kill(self, job, rank):
        os.kill(pid_of_rank(job.pid, rank), signal.SIGKILL)

    def wait_for_a_new_process(self, job, rank, old):
        until(lambda: pid_of_rank(job.pid, rank) not in (None, old), LIMIT, f"a new rank {rank}")

    def assert_same_run(self, run, whole, stem="model"):
        self.assertEqual(run.status, 0, run.err)
        self.assertEqual(run.column("step"), whole.column("step"))
        self.assertEqual(run.column("loss"), whole.column("loss"))
        self.assertEqual(run.column("epoch"), whole.column("epoch"))
        self.assert_same_weights(run.weights(stem), whole.weights(stem))


class LackOfMemory(Replacing, LimitedMemoryTest):
    def test_a_new_process_divides_its_micro_batches_as_the_other_ranks_do(self):
        keys = dict(zero_stage=0, max_steps=14)
        limits = self.limits(1)
        whole = self.limited(limits, **keys)
        self.assertIn("divided into 2", whole.notes)
        job = self.start_limited(limits, options=("--replace-ranks", "--max-restarts", 1), **keys)
        self.wait_for_step(job, 6)
        self.kill(job, 0)
        run = self.end(job)
        self.assertIn("starting a new process in its place", run.err)
        self.assertNotIn("restarting all ranks", run.err)
        self.assert_same_run(run, whole)


class Replacement(Replacing):
    KEYS = dict(max_steps=120, save_strategy="no", lr_scheduler_type="cosine", zero_stage=0,
                shuffle_dataset=True, global_batch_size=6, per_device_train_batch_size=1)
    LORA = dict(use_peft=True, lora_r=4, lora_dropout=0.1)

    def start_job(self, nproc, *options, **keys):
        return self.start_training(nproc, options=("--max-restarts", 3, *options),
                                   **{**self.KEYS, **keys})

    def undisturbed(self, nproc, **keys):
        run = self.end(self.start_job(nproc, **keys))
        self.assertEqual(run.status, 0, run.err)
        return run

    def lose(self, job, nproc, rank, step):
        """Kills the rank after this step, and waits until training has gone on."""
        self.wait_for_step(job, step)
        before = [pid_of_rank(job.pid, each) for each in range(nproc)]
        self.kill(job, rank)
        self.wait_for_a_new_process(job, rank, before[rank])
        self.wait_for_step(job, step + 10)
        after = [pid_of_rank(job.pid, each) for each in range(nproc)]
        changed = [each for each in range(nproc) if before[each] != after[each]]
        self.assertEqual(changed, [rank])

    def test_one_of_two_ranks_is_replaced_and_every_bit_stays(self):
        job = self.start_job(2, "--replace-ranks", "--report", self.dir / "report.json")
        self.lose(job, 2, rank=1, step=20)
        run = self.end(job)
        self.assertIn("counts as restart 1 of 3", run.err)
        self.assertNotIn("restarting all ranks", run.err)
        self.assertIn("a new process took the place of rank 1", run.notes)
        self.assert_same_run(run, self.undisturbed(2))
        ends = json.loads((self.dir / "report.json").read_text())["attempts"][0]["ranks"]
        self.assertEqual([(end["rank"], end.get("replaced", False), end["signal"])
                          for end in ends if end["signal"]], [(1, True, "SIGKILL")])

    def test_adapters_of_three_ranks_survive_the_loss_of_the_first_and_of_another(self):
        job = self.start_job(3, "--replace-ranks", **self.LORA)
        self.lose(job, 3, rank=0, step=20)
        self.lose(job, 3, rank=2, step=50)
        run = self.end(job)
        self.assertNotIn("restarting all ranks", run.err)
        self.assert_same_run(run, self.undisturbed(3, **self.LORA), "adapter_model")

    def test_a_rank_killed_while_a_checkpoint_is_written_is_replaced(self):
        keys = dict(save_strategy="steps", save_steps=1, save_total_limit=2)
        job = self.start_job(2, "--replace-ranks", **keys)
        self.wait_for_step(job, 20)
        drafts = lambda: list(job.folder.glob(".checkpoint-*"))
        until(drafts, LIMIT, "a checkpoint that is being written")
        self.kill(job, 0)
        run = self.end(job)
        self.assertNotIn("restarting all ranks", run.err)
        self.assertEqual(drafts(), [])
        self.assertEqual(sorted(path.name for path in run.folder.glob("checkpoint-*")),
                         ["checkpoint-119", "checkpoint-120"])
        self.assert_same_run(run, self.undisturbed(2))

    def test_a_second_death_during_the_replacement_restarts_all_ranks(self):
        job = self.start_job(2, "--replace-ranks")
        self.wait_for_step(job, 20)
        old = pid_of_rank(job.pid, 1)
        self.kill(job, 1)
        self.wait_for_a_new_process(job, 1, old)
        self.kill(job, 1)
        run = self.end(job)
        self.assertEqual(run.err.count("starting a new process in its place"), 1)
        self.assertEqual(run.err.count("restarting all ranks"), 1)
        self.assert_same_run(run, self.undisturbed(2))

    def test_without_the_option_all_ranks_restart(self):
        job = self.start_job(2)
        self.wait_for_step(job, 20)
        self.kill(job, 1)
        run = self.end(job)
        self.assertEqual((run.status, run.err.count("restarting all ranks")), (0, 1), run.err)
        self.assertNotIn("in its place", run.err)

    def test_sharded_state_is_not_replaced_and_a_note_says_why(self):
        job = self.start_job(2, "--replace-ranks", zero_stage=1)
        self.wait_for_step(job, 20)
        self.kill(job, 1)
        run = self.end(job)
        self.assertEqual((run.status, run.err.count("restarting all ranks")), (0, 1), run.err)
        self.assertIn("lost ranks are not replaced: zero_stage is 1", run.out)

    def test_a_replacement_needs_a_restart_that_is_left(self):
        job = self.start_training(2, options=("--replace-ranks",), **self.KEYS)
        run = self.end(job)
        self.assertEqual(run.status, 2)
        self.assertEqual(run.err, "mgpu-run: --replace-ranks: each replacement counts as a restart "
                                  "and none is allowed; add --max-restarts N\n")


if __name__ == "__main__":
    unittest.main()
