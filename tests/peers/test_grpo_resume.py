"""GRPO runs that are resumed: after the end of a run, SIGTERM or a kill."""

import os
import signal
import unittest

from grpo_trainer import ATOL, GrpoTest, prompt_rows
from trainer import LIMIT, children, until, write_rows


def trainers(job):
    """The ranks' processes, in the order of their start."""
    return [pid for pid in sorted(children(job.pid))
            if os.readlink(f"/proc/{pid}/exe").endswith("/mgpu-train")]


class Resume(GrpoTest):
    """A generation is used for four steps: two of 16 completions, twice."""

    KEYS = {**GrpoTest.KEYS, "global_batch_size": 16, "steps_per_generation": 4,
            "num_iterations": 2, "max_steps": 14, "save_strategy": "steps", "save_steps": 100,
            "beta": 0.1, "log_completions": True}

    def setUp(self):
        super().setUp()
        # 5 generations of 4 prompts per epoch, one prompt is left over.
        self.data = write_rows(self.dir / "prompts.jsonl", prompt_rows(21))

    def assert_resumes_as(self, run, whole, step, atol=0.0):
        self.assertIn(f"checkpoint-{step} at step {step}", run.notes)
        self.assertEqual(run.column("step"), whole.column("step"))
        ours, theirs = self.completions(run), self.completions(whole)
        self.assertEqual(list(ours), list(theirs))
        for name, lines in theirs.items():
            self.assertEqual([(l["prompt"], l["completion"]) for l in ours[name]],
                             [(l["prompt"], l["completion"]) for l in lines], name)
        if atol == 0:
            self.assertEqual(run.column("loss"), whole.column("loss"))
            self.assertEqual(run.column("num_tokens"), whole.column("num_tokens"))
        self.assert_same_weights(run.weights(), whole.weights(), atol)

    def test_a_resumed_run_is_bitwise_equal_to_an_uninterrupted_one(self):
        """Step 5 and 6 are within a pass, 7 in the next, 8 between generations, 22 in epoch 2."""
        whole = self.train(2)
        for step in (5, 7, 8):
            with self.subTest(step):
                part = self.train(2, max_steps=step)
                self.assert_resumes_as(self.train(2, out=part.folder.name), whole, step)
        late = self.train(2, max_steps=25)
        part = self.train(2, max_steps=22)
        self.assertGreater(part.column("epoch")[-1], 1)
        self.assert_resumes_as(self.train(2, max_steps=25, out=part.folder.name), late, 22)

    def test_a_run_with_a_budget_of_tokens_resumes_bitwise_equal(self):
        keys = dict(micro_batch_tokens=60, max_completion_length=24,
                    generation_kwargs={"stop": ["e", "a", "1", "o"]})
        whole = self.train(2, **keys)
        for step in (5, 7):
            with self.subTest(step):
                part = self.train(2, max_steps=step, **keys)
                self.assert_resumes_as(self.train(2, out=part.folder.name, **keys), whole, step)

    def test_other_numbers_of_ranks_resume_with_the_same_completions(self):
        keys = dict(steps_per_generation=None, generation_batch_size=32, max_steps=9)
        whole = self.train(2, **keys)
        for nproc, stage in ((1, 0), (3, 3)):
            with self.subTest(nproc=nproc):
                part = self.train(2, **{**keys, "max_steps": 6})
                run = self.train(nproc, zero_stage=stage, out=part.folder.name, **keys)
                self.assert_resumes_as(run, whole, 6, 2 * ATOL)

    def test_adapters_and_adaptive_coefficients_are_resumed(self):
        keys = dict(use_peft=True, lora_r=4, lora_dropout=0.1, target_kl=1e-6, zero_stage=2,
                    use_adaptive_entropy=True, entropy_target=9.0, max_steps=9)
        whole = self.train(2, **keys)
        self.assertGreater(whole.column("beta")[-1], 0.1)
        self.assertGreater(whole.column("entropy_coef")[-1], 0.03)
        part = self.train(2, **{**keys, "max_steps": 6})
        run = self.train(2, out=part.folder.name, **keys)
        for key in ("loss", "beta", "entropy_coef"):
            self.assertEqual(run.column(key), whole.column(key))
        self.assert_same_weights(run.weights("adapter_model"), whole.weights("adapter_model"))

    def test_a_resumed_run_uses_the_recipes_coefficients_unless_they_are_adaptive(self):
        part = self.train(1, max_steps=1)
        run = self.train(1, max_steps=2, beta=0.3, out=part.folder.name)
        self.assertEqual(run.column("beta"), [0.1, 0.3])

    def test_a_killed_job_resumes_bitwise_equal(self):
        keys = dict(save_steps=6, max_steps=30)
        whole = self.train(2, **keys)
        job = self.start_training(2, out="killed", **keys)
        first = self.dir / "killed" / "checkpoint-6" / "manifest.json"
        until(first.exists, LIMIT, "a checkpoint")
        self.kill_all(job)
        left = sorted(int(path.name.split("-")[1])
                      for path in (self.dir / "killed").glob("checkpoint-*"))
        self.assertLess(left[-1], 30)
        run = self.train(2, out="killed", **keys)
        self.assert_resumes_as(run, whole, left[-1])

    def test_sigterm_saves_a_checkpoint_that_can_be_resumed(self):
        job = self.start_training(2, out="stopped", max_steps=100000)
        metrics = job.folder / "metrics.jsonl"
        until(lambda: metrics.exists() and metrics.read_bytes().count(b'"train"') >= 5, LIMIT,
              "five steps")
        job.send_signal(signal.SIGTERM)
        run = self.end(job)
        self.assertEqual(run.status, 128 + signal.SIGTERM, run.err)
        saved = [int(path.name.split("-")[1]) for path in run.folder.glob("checkpoint-*")]
        self.assertEqual(len(saved), 1)
        end = saved[0] + 5
        run = self.train(2, out="stopped", max_steps=end)
        self.assert_resumes_as(run, self.train(2, max_steps=end), saved[0])

    def test_sigterm_during_a_rollout_saves_the_last_step_on_all_ranks(self):
        """It came to nothing: a rollout lasts longer than the grace period of the launcher."""
        keys = dict(steps_per_generation=None, num_iterations=1, global_batch_size=64,
                    per_device_train_batch_size=32, max_completion_length=160, max_steps=100000)
        whole = self.train(2, **{**keys, "max_steps": 2})
        for name, receivers in (("job", lambda job: [job.pid]),
                                ("rank", lambda job: trainers(job)[1:])):
            with self.subTest(name):
                job = self.start_training(2, out=name, **keys)
                metrics = job.folder / "metrics.jsonl"
                until(lambda: metrics.exists() and b'"train"' in metrics.read_bytes(), LIMIT,
                      "a step")
                for pid in receivers(job):
                    os.kill(pid, signal.SIGTERM)
                run = self.end(job)
                self.assertEqual(run.status, 128 + signal.SIGTERM, run.err)
                self.assertEqual(run.column("step"), [1])
                self.assertEqual([path.name for path in run.folder.glob("checkpoint-*")],
                                 ["checkpoint-1"])
                resumed = self.train(2, out=name, **{**keys, "max_steps": 2})
                self.assert_resumes_as(resumed, whole, 1)

    def test_sigterm_during_an_evaluation_saves_the_last_step(self):
        job = self.start_training(2, eval_dataset=str(self.data), eval_strategy="steps",
                                  eval_steps=1, num_generations_eval=400,
                                  max_completion_length=160)
        metrics = job.folder / "metrics.jsonl"
        until(lambda: metrics.exists() and b'"train"' in metrics.read_bytes(), LIMIT, "a step")
        job.send_signal(signal.SIGTERM)
        run = self.end(job)
        self.assertEqual(run.status, 128 + signal.SIGTERM, run.err)
        self.assertEqual(run.records("eval"), [])
        self.assertEqual([path.name for path in run.folder.glob("checkpoint-*")], ["checkpoint-1"])

    def test_saved_completions_that_do_not_match_the_run_are_rejected(self):
        """Otherwise the run would train on them as if they belonged to its plan."""
        part = self.train(2, max_steps=6, save_final_model=False)
        self.refused(2, "checkpoint-6 contains 32 completions",
                     "num_generations", out=part.folder.name, generation_batch_size=16,
                     steps_per_generation=None, resume_with_changes=True)
        fewer = write_rows(self.dir / "fewer.jsonl", prompt_rows(20))
        self.refused(2, "of other prompts than those of this run", out=part.folder.name,
                     dataset_name=str(fewer), resume_with_changes=True)
        self.refused(2, "without reference log-probs: beta has changed",
                     out=self.train(2, max_steps=6, save_final_model=False, beta=0).folder.name)

    def test_a_checkpoint_of_another_run_is_rejected(self):
        part = self.train(2, max_steps=8, save_final_model=False)
        fewer = write_rows(self.dir / "fewer.jsonl", prompt_rows(20))
        self.refused(2, "checkpoint-8 belongs to another run: dataset_name has other contents, "
                     "max_completion_length was", out=part.folder.name, dataset_name=str(fewer),
                     max_completion_length=7)


if __name__ == "__main__":
    unittest.main()
