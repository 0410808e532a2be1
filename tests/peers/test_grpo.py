"""Whole GRPO runs: invariance of the result, resuming, and reports.

The arithmetic of the loss is in test_grpo_loss.py, rewards are in test_rewards.py, rows and errors
in test_grpo_recipes.py.
"""

import json
import math
import os
import signal
import unittest

import trainer
from grpo_trainer import GrpoTest, prompt_rows
from trainer import LIMIT, children, until, write_rows

ATOL = 1e-5  # of weights, after three steps of 1e-4 in fp32
RTOL = 1e-3  # of logged metrics, which are differences of close numbers


def descendants(pid):
    found = children(pid)
    return found + [each for child in found for each in descendants(child)]


class Invariance(GrpoTest):
    def assert_same_learning(self, ours, theirs, stem="model"):
        for one, two in zip(ours.records(), theirs.records(), strict=True):
            for key in ("reward", "completions/mean_length", "entropy", "loss"):
                a, b = one.get(key), two.get(key)  # a step without a generation has no reward
                self.assertEqual(a is None, b is None, key)
                if a is not None:
                    self.assertLessEqual(abs(a - b), RTOL * max(abs(b), 0.1), key)
        self.assert_same_weights(ours.weights(stem), theirs.weights(stem), ATOL)

    def any_world(self, stages=((2, 0), (3, 0), (4, 0)), stem="model", **keys):
        alone = self.train(1, **keys)
        if stem == "model":
            self.assertGreater(self.moved(alone), 10 * ATOL)
        for nproc, stage in stages:
            with self.subTest(nproc=nproc, stage=stage):
                self.assert_same_learning(self.train(nproc, zero_stage=stage, **keys), alone, stem)
        return alone

    def test_the_number_of_ranks_does_not_change_the_result(self):
        self.any_world()

    def test_ranks_without_a_prompt_do_not_change_the_result(self):
        """One group of 8 for three ranks, and for four."""
        self.any_world(((2, 0), (3, 3), (4, 1)), global_batch_size=8, per_device_train_batch_size=3)

    def test_zero_stages_do_not_change_the_result(self):
        self.any_world(((2, 1), (2, 2), (2, 3), (3, 3)), global_batch_size=16)

    def test_ranks_and_stages_do_not_change_the_result_with_adapters(self):
        """The reference is the policy without adapters, and the KL has a gradient."""
        lora = dict(use_peft=True, lora_r=4, lora_dropout=0.0, beta=0.1, learning_rate=1e-3)
        alone = self.any_world(((2, 0), (3, 3)), stem="adapter_model", **lora)
        self.assertLess(alone.column("kl")[0], 1e-9)
        self.assertGreater(alone.column("kl")[2], 1e-9)

    def test_the_reference_keeps_the_initial_modules_to_save(self):
        """Without its adapter the policy would still have the trained head."""
        keys = dict(use_peft=True, lora_r=4, lora_dropout=0.0, lora_target_modules=["q_proj"],
                    lora_modules_to_save=["lm_head"], reward_funcs=[self.mine("vowels")],
                    beta=0.1, learning_rate=3e-3)
        both = self.any_world(((2, 3),), stem="adapter_model", **keys)
        bare = self.train(1, **{**keys, "lora_modules_to_save": None})
        self.assertLess(both.column("kl")[0], 1e-9)
        self.assertGreater(both.column("kl")[2], 2 * bare.column("kl")[2])

    def test_ranks_and_stages_do_not_change_the_result_with_a_frozen_copy_and_several_passes(self):
        keys = dict(beta=0.1, num_iterations=2, generation_batch_size=48, max_steps=4)
        alone = self.any_world(((2, 0), (3, 3), (4, 2)), **keys)
        self.assertLess(alone.column("kl")[0], 1e-9)
        self.assertGreater(alone.column("kl")[3], 1e-9)

    def test_steps_per_generation_counts_micro_batches_per_device(self):
        """Two ranks of 4 per device: a step of 16 has two micro-batches, so 4 of them are 32."""
        by_steps = self.train(2, steps_per_generation=4, num_iterations=2, global_batch_size=16)
        by_size = self.train(2, generation_batch_size=32, num_iterations=2, global_batch_size=16)
        self.assertIn("32 per generation = 4 prompts x 8, 2 training passes", by_steps.notes)
        self.assert_same_weights(by_steps.weights(), by_size.weights())

    def test_the_entropy_quantile_covers_the_tokens_of_all_ranks(self):
        """Micro-batches are comparable only if a step has one."""
        keys = dict(top_entropy_quantile=0.3, global_batch_size=24)
        alone = self.train(1, per_device_train_batch_size=24, **keys)
        for nproc in (2, 3):
            run = self.train(nproc, per_device_train_batch_size=24 // nproc, **keys)
            self.assert_same_learning(run, alone)
        every = self.train(1, per_device_train_batch_size=24)
        self.assertGreater(max((a - b).abs().max().item() for a, b in zip(
            alone.weights().values(), every.weights().values())), 5 * ATOL)

    # Completions of 1 to 24 tokens after prompts of 5 and more.
    RAGGED = dict(max_completion_length=24, generation_kwargs={"stop": ["e", "a", "1", "o"]})

    def test_a_budget_of_tokens_does_not_change_the_result(self):
        alone = self.train(1, **self.RAGGED)
        lengths = {len(line["completion"]) for lines in self.completions(self.train(
            1, **self.RAGGED, log_completions=True)).values() for line in lines}
        self.assertGreater(len(lengths), 8)
        for nproc, stage, tokens in ((1, 0, 64), (2, 0, 64), (2, 0, 1), (2, 2, 100), (3, 3, 100),
                                     (2, 1, 10000)):
            with self.subTest(nproc=nproc, stage=stage, tokens=tokens):
                run = self.train(nproc, zero_stage=stage, micro_batch_tokens=tokens, **self.RAGGED)
                self.assertIn(f"computed in micro-batches of up to {tokens} tokens", run.notes)
                self.assert_same_learning(run, alone)

    def test_a_budget_of_tokens_does_not_change_the_result_with_a_reference_and_several_passes(self):
        keys = dict(beta=0.1, num_iterations=2, generation_batch_size=48, max_steps=4, **self.RAGGED)
        alone = self.train(1, **keys)
        self.assertGreater(alone.column("kl")[3], 1e-9)
        for nproc, stage in ((1, 0), (2, 0), (2, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                run = self.train(nproc, zero_stage=stage, micro_batch_tokens=80, **keys)
                self.assert_same_learning(run, alone)
                self.assertLess(abs(run.column("kl")[3] / alone.column("kl")[3] - 1), 0.05)

    def test_a_budget_of_tokens_does_not_change_the_result_without_the_idle_completions(self):
        keys = dict(reward_funcs=[self.mine("sometimes")], learning_rate=1e-3,
                    skip_zero_advantage_batches=True, **self.RAGGED)
        alone = self.train(1, **keys)
        for nproc, stage in ((2, 0), (2, 3)):
            run = self.train(nproc, zero_stage=stage, micro_batch_tokens=64, **keys)
            self.assertGreater(sum(run.column("skipped_micro_batches")), 0)
            self.assert_near(run.column("grad_norm"), alone.column("grad_norm"), RTOL)
            self.assert_same_weights(run.weights(), alone.weights(), 10 * ATOL)

    def test_a_run_with_a_budget_of_tokens_repeats_bit_for_bit(self):
        keys = dict(beta=0.1, num_iterations=2, micro_batch_tokens=64, **self.RAGGED)
        self.assert_same_course(self.train(2, **keys), self.train(2, **keys))

    def test_a_budget_of_tokens_needs_a_loss_that_does_not_depend_on_micro_batches(self):
        self.refused(2, "micro_batch_tokens: the loss of this recipe depends on which completions "
                     "share a micro-batch", micro_batch_tokens=64, loss_type="bnpo")
        self.refused(2, "use_dynamic_bsz: requires micro_batch_tokens", use_dynamic_bsz=True)

    def test_a_repeated_run_is_bitwise_equal(self):
        keys = dict(beta=0.1, num_iterations=2)
        self.assert_same_course(self.train(2, **keys), self.train(2, **keys))


class Losses(GrpoTest):
    def test_every_loss_type_trains(self):
        special = {"cispo": dict(epsilon_high=5.0)}
        for name in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"):
            with self.subTest(name):
                run = self.train(2, loss_type=name, max_steps=2, num_iterations=2,
                                 **special.get(name, {}))
                self.assertTrue(all(math.isfinite(loss) for loss in run.column("loss")))
                self.assertGreater(min(run.column("grad_norm")), 0)
                self.assertGreater(self.moved(run), 5e-5)

    def test_gspo_is_the_grpo_loss_at_sequence_level(self):
        gspo = self.train(2, recipe=self.recipe(task="gspo", num_iterations=2))
        ours = self.train(2, loss_type="grpo", importance_sampling_level="sequence",
                          num_iterations=2)
        self.assert_same_weights(gspo.weights(), ours.weights())

    def test_equal_rewards_leave_the_weights_unchanged(self):
        run = self.train(2, reward_funcs=[self.mine("same")], weight_decay=0.0)
        self.assertEqual(run.column("grad_norm"), [0, 0, 0])
        self.assertEqual(run.column("frac_reward_zero_std"), [1, 1, 1])
        self.assertEqual(run.column("reward"), [1.5] * 3)
        self.assertEqual(self.moved(run), 0)
        self.assertIn("warning: frac_reward_zero_std is 1", run.notes)


class OwnRounding(GrpoTest):
    def norm(self, **keys):
        (record,) = self.train(1, max_steps=1, **keys).records()
        self.assertLess(record["sampling/sampling_logp_difference/max"], 1e-4)
        return record["grad_norm"]

    def test_the_built_in_engines_rounding_is_corrected_on_request(self):
        limits = dict(vllm_importance_sampling_mode="token_truncate",
                      vllm_importance_sampling_clip_max=0.5)
        plain = self.norm()
        self.assertGreater(plain, 0)
        self.assertEqual(self.norm(**limits), plain)
        corrects = dict(vllm_importance_sampling_correction=True)
        # In fp32 every ratio is about 1, so that the limit of 0.5 applies to all tokens.
        self.assertAlmostEqual(self.norm(**corrects) / plain, 1, 3)
        self.assertAlmostEqual(self.norm(**corrects, **limits) / plain, 0.5, 5)


class Skipping(GrpoTest):
    def test_micro_batches_without_an_advantage_are_skipped(self):
        """Equal with all stages: a rank can skip alone unless other ranks need it."""
        keys = dict(per_device_train_batch_size=2, global_batch_size=24, learning_rate=1e-3,
                    reward_funcs=[self.mine("sometimes")])
        plain = self.train(1, **keys)
        self.assertNotIn("skipped_micro_batches", plain.records()[0])
        for nproc, stage in ((2, 0), (2, 1), (3, 2), (2, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                run = self.train(nproc, zero_stage=stage, skip_zero_advantage_batches=True, **keys)
                self.assertGreater(sum(run.column("skipped_micro_batches")), 0)
                self.assert_near(run.column("grad_norm"), plain.column("grad_norm"), RTOL)
                self.assert_same_weights(run.weights(), plain.weights(), 10 * ATOL)

    PHASES = {"weights_time", "rollout_time", "reward_time", "look_back_time", "update_time"}
    UNEQUAL = PHASES | {"skipped_micro_batches", "step_time", "time", "seconds", "mfu",
                        "comm_share", "memory_bytes"}
    METRICS = {"loss", "grad_norm", "entropy", "num_tokens", "clip_ratio/region_mean",
               "clip_ratio/low_min", "clip_ratio/high_max", "sampling/sampling_logp_difference/mean",
               "sampling/importance_sampling_ratio/mean"}

    def assert_same_but_for_skipping(self, run, plain):
        """Also the metrics: they are those of all completions, with and without an advantage."""
        for ours, theirs in zip(run.records(), plain.records(), strict=True):
            ours, theirs = ({name: value for name, value in record.items()
                             if name.split("/")[0] not in self.UNEQUAL and "_per_" not in name}
                            for record in (ours, theirs))
            self.assertLessEqual(self.METRICS, set(ours))
            self.assertEqual(set(ours), set(theirs))
            for name, value in theirs.items():
                self.assertAlmostEqual(ours[name], value, 5, name)
        self.assert_same_weights(run.weights(), plain.weights(), 10 * ATOL)

    def test_completions_without_an_advantage_do_not_keep_micro_batches_from_being_skipped(self):
        """Three of four prompts have none, and their completions were in every micro-batch."""
        keys = dict(global_batch_size=48, reward_funcs=[self.mine("sometimes")], num_iterations=2,
                    learning_rate=1e-3, log_completions=True, max_steps=4)
        plain = self.train(1, **keys)
        self.assertGreater(plain.column("clip_ratio/region_mean")[1], 0)
        with_advantage = [sum(line["advantage"] != 0 for line in lines)
                          for lines in self.completions(plain).values()]
        self.assertLess(sum(with_advantage), 48)
        run = self.train(1, skip_zero_advantage_batches=True, **keys)
        self.assertEqual(run.column("skipped_micro_batches"),
                         [12 - math.ceil(count / 4) for count in with_advantage for _ in range(2)])
        self.assert_same_but_for_skipping(run, plain)
        for nproc, stage in ((2, 1), (3, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                other = self.train(nproc, zero_stage=stage, skip_zero_advantage_batches=True, **keys)
                self.assert_same_but_for_skipping(other, plain)
                self.assertGreaterEqual(sum(other.column("skipped_micro_batches")), 24)

    def test_losses_are_the_same_without_the_completions_that_have_no_advantage(self):
        special = {"cispo": dict(epsilon_high=5.0)}
        keys = dict(reward_funcs=[self.mine("sometimes")], num_iterations=2, learning_rate=1e-3,
                    mask_truncated_completions=True, generation_kwargs={"stop": ["e", "a", "1"]},
                    max_steps=2)
        for name in ("grpo", "cispo", "sapo", "vespo", "bnpo"):
            with self.subTest(name):
                more = dict(keys, loss_type=name, **special.get(name, {}))
                run = self.train(1, skip_zero_advantage_batches=True, **more)
                plain = self.train(1, **more)
                if name == "bnpo":
                    self.assertIn("no effect with beta, entropy_coef, top_entropy_quantile or "
                                  "loss_type: bnpo", run.notes)
                    self.assert_same_course(run, plain)
                    continue
                self.assertGreater(sum(run.column("skipped_micro_batches")), 0)
                for key in ("loss", "grad_norm", "entropy"):
                    self.assert_near(run.column(key), plain.column(key), RTOL, key)
                self.assert_same_weights(run.weights(), plain.weights(), 10 * ATOL)

    def test_a_step_without_any_advantage_is_still_taken(self):
        keys = dict(reward_funcs=[self.mine("same")], weight_decay=0.1, learning_rate=1e-2)
        plain = self.train(1, **keys)
        for nproc, stage in ((2, 1), (2, 3)):
            run = self.train(nproc, zero_stage=stage, skip_zero_advantage_batches=True, **keys)
            self.assertEqual(run.column("skipped_micro_batches"), [6] * 3)
            self.assertEqual(run.column("loss"), [0] * 3)
            self.assertEqual(run.column("grad_norm"), [0] * 3)
            self.assert_same_weights(run.weights(), plain.weights(), 1e-6)
        self.assertGreater(self.moved(plain), 1e-5)

    def test_nothing_is_skipped_if_the_loss_has_more_than_the_advantage_term(self):
        keys = dict(reward_funcs=[self.mine("same")], beta=0.1, num_iterations=2, max_steps=2)
        run = self.train(2, skip_zero_advantage_batches=True, **keys)
        self.assertIn("skip_zero_advantage_batches has no effect with beta", run.notes)
        self.assert_same_weights(run.weights(), self.train(2, **keys).weights())


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
        processes = [job.pid, *descendants(job.pid)]
        self.assertGreaterEqual(len(processes), 3)
        for pid in processes:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it was killed with the launcher
        self.assertEqual(self.end(job).status, -signal.SIGKILL)
        self.assert_all_gone(processes)
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
        self.refused(1, "checkpoint-6 contains 32 completions",
                     "num_generations", out=part.folder.name, generation_batch_size=16,
                     steps_per_generation=None, resume_with_changes=True)
        fewer = write_rows(self.dir / "fewer.jsonl", prompt_rows(20))
        self.refused(1, "of other prompts than those of this run", out=part.folder.name,
                     dataset_name=str(fewer), resume_with_changes=True)
        self.refused(1, "without reference log-probs: beta has changed",
                     out=self.train(2, max_steps=6, save_final_model=False, beta=0).folder.name)

    def test_a_checkpoint_of_another_run_is_rejected(self):
        part = self.train(2, max_steps=8, save_final_model=False)
        fewer = write_rows(self.dir / "fewer.jsonl", prompt_rows(20))
        self.refused(1, "checkpoint-8 belongs to another run: dataset_name has other contents, "
                     "max_completion_length was", out=part.folder.name, dataset_name=str(fewer),
                     max_completion_length=7)


class Reports(GrpoTest):
    TRL = {"loss", "grad_norm", "learning_rate", "epoch", "num_tokens", "step_time", "reward",
           "reward_std", "frac_reward_zero_std", "entropy", "rewards/letters/mean",
           "rewards/letters/std", "rewards/digits/mean", "rewards/digits/std",
           "clip_ratio/low_mean", "clip_ratio/low_min", "clip_ratio/high_mean",
           "clip_ratio/high_max", "clip_ratio/region_mean", "completions/mean_length",
           "completions/min_length", "completions/max_length", "completions/clipped_ratio",
           "sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max",
           "sampling/importance_sampling_ratio/mean", "sampling/importance_sampling_ratio/min",
           "sampling/importance_sampling_ratio/max"}

    def test_metrics_have_trls_names(self):
        run = self.train(2, beta=0.1)
        for record in run.records():
            self.assertEqual((self.TRL | {"kl"}) - set(record), set())
        self.assertLess(max(run.column("sampling/sampling_logp_difference/max")), 1e-4)
        for record in run.records():
            self.assertAlmostEqual(record["reward"], record["rewards/letters/mean"] +
                                   record["rewards/digits/mean"], 5)
            self.assertLessEqual(record["completions/max_length"], 8)
            self.assertEqual(record["clip_ratio/region_mean"], 0)
        tokens = run.column("num_tokens")
        self.assertEqual(tokens, sorted(tokens))
        self.assertGreater(tokens[0], 24 * 4)

    def test_the_time_of_a_step_is_divided_into_phases(self):
        run = self.train(1, beta=0.1, eval_steps=1, eval_strategy="steps", val_set_size=4,
                         logging_steps=1)
        names = ("weights", "rollout", "reward", "look_back", "update")
        for record in run.records():
            phases = {name: record[name + "_time"] for name in names}
            self.assertLessEqual(sum(phases.values()), record["step_time"] + 1e-6)
            for name in ("rollout", "look_back", "update"):
                self.assertGreater(phases[name], 0)

    def test_the_progress_line_and_the_final_table_show_reward_kl_and_length(self):
        run = self.train(1, beta=0.1)
        lines = [line for line in run.out.splitlines() if line.startswith("step ")]
        for line, record in zip(lines, run.records(), strict=True):
            for label, name in (("reward", "reward"), ("kl", "kl"),
                                ("length", "completions/mean_length")):
                self.assertIn(f"  {label} {record[name]:.4g}  ", line)
        table = run.out[run.out.index("***** train metrics *****"):]
        results = json.loads((run.folder / "train_results.json").read_text())
        for name in ("reward", "kl", "completions/mean_length"):
            self.assertIn(f"  train_{name} ", table)
            self.assertAlmostEqual(results[f"train_{name}"], sum(run.column(name)) / 3)
        self.assertIn("  final_reward ", table)
        self.assertEqual(results["final_reward"], run.column("reward")[-1])

    def test_terminated_lengths_cover_completions_that_ended_by_themselves(self):
        """If no completion ends by itself, all are truncated and a warning is printed."""
        run = self.train(1, max_steps=1)
        self.assertGreater(run.column("completions/clipped_ratio")[0], 0.3)
        self.assertIn("warning: completions/clipped_ratio", run.notes)
        with_stops = self.train(1, max_steps=1, max_completion_length=40,
                           generation_kwargs={"stop": ["e", "a", "1", "o", " "]})
        record = with_stops.records()[0]
        self.assertLess(record["completions/clipped_ratio"], 1)
        self.assertLessEqual(record["completions/max_terminated_length"], 40)

    def test_a_warning_is_printed_once_while_its_metric_stays_out_of_range(self):
        run = self.train(1)
        self.assertEqual(run.notes.count("warning: completions/clipped_ratio"), 1)
        self.assertEqual(run.notes.count("warning: entropy is 5."), 1)

    def test_logged_metrics_are_means_over_the_interval(self):
        each = self.train(1, max_steps=4)
        every = self.train(1, max_steps=4, logging_steps=2, logging_first_step=False)
        for key in ("reward", "loss", "entropy", "completions/mean_length"):
            one, two = each.column(key), every.column(key)
            for number in range(2):
                self.assertAlmostEqual(two[number], sum(one[2 * number:2 * number + 2]) / 2, 5, key)

    def test_completions_are_logged_and_printed(self):
        run = self.train(2, log_completions=True, num_completions_to_print=2, reward_weights=[2, 1])
        files = self.completions(run)
        self.assertEqual(list(files), [f"completions_{step:05}.jsonl" for step in (1, 2, 3)])
        for (name, lines), reward in zip(files.items(), run.column("reward")):
            self.assertEqual(len(lines), 24, name)
            self.assertEqual(len({line["prompt"] for line in lines}), 3)
            self.assertTrue(all(line["letters"] in (1, -0.5) for line in lines))
            sums = [2 * line["letters"] + line["digits"] for line in lines]
            self.assertAlmostEqual(sum(sums) / 24, reward, 5)
        table = next(text for text in run.column("text", "note") if "completions of step 1" in text)
        self.assertEqual(len(table.strip().splitlines()), 4, table)
        self.assertFalse((self.train(1, max_steps=1).folder / "completions").exists())

    def test_evaluation_reports_rewards_of_held_out_prompts(self):
        held_out = write_rows(self.dir / "held_out.jsonl", prompt_rows(5))
        keys = dict(eval_dataset=str(held_out), eval_strategy="steps", eval_steps=2,
                    eval_on_start=True, num_generations_eval=3, max_steps=4)
        runs = [self.train(nproc, **keys) for nproc in (1, 2)]
        for run in runs:
            self.assertEqual(run.column("step", "eval"), [0, 2, 4])
            for name in ("eval_reward", "eval_reward_std", "eval_rewards/letters/mean",
                         "eval_completions/mean_length", "eval_runtime"):
                self.assertEqual(len(run.column(name, "eval")), 3)
        for a, b in zip(*(run.column("eval_reward", "eval") for run in runs)):
            self.assertAlmostEqual(a, b, 5)
        split = self.train(1, val_set_size=4, eval_strategy="steps", eval_steps=3)
        self.assertEqual(split.column("step", "eval"), [3])

    def test_the_best_model_has_the_best_reward(self):
        held_out = write_rows(self.dir / "held_out.jsonl", prompt_rows(5))
        run = self.train(1, eval_dataset=str(held_out), eval_strategy="steps", eval_steps=1,
                         save_strategy="steps", save_steps=1, load_best_model_at_end=True,
                         metric_for_best_model="reward", learning_rate=3e-3, max_steps=5)
        rewards = run.column("eval_reward", "eval")
        best = run.column("step", "eval")[rewards.index(max(rewards))]
        self.assert_same_weights(run.weights(),
                                 trainer.load_tensors(run.folder / f"checkpoint-{best}"))

    def test_early_stopping_ends_a_run(self):
        held_out = write_rows(self.dir / "held_out.jsonl", prompt_rows(5))
        run = self.train(2, eval_dataset=str(held_out), eval_strategy="steps", eval_steps=1,
                         early_stopping_patience=2, early_stopping_threshold=10, max_steps=8)
        self.assertEqual(run.column("step", "eval"), [1, 2, 3])
        self.assertIn("eval_reward has not improved in 2 evaluations", run.notes)
        self.assertTrue(run.weights())

    def test_consistency_checks_run_in_grpo(self):
        """Flipped bits are tested in test_consistency.py."""
        plain = self.train(2, max_steps=2)
        run = self.train(2, max_steps=2, consistency_check_steps=1, zero_stage=1)
        self.assert_same_weights(run.weights(), plain.weights(), ATOL)
        spread = self.train(2, max_steps=2, consistency_check_steps=1, zero_stage=3)
        self.assertIn("consistency_check_steps is ignored: every weight is on one rank only", spread.notes)

    def test_disable_dropout_disables_dropout(self):
        """With dropout, training computes other log-probs than sampling."""
        keys = dict(use_peft=True, lora_r=4, lora_dropout=0.5, learning_rate=1e-2)
        off = self.train(2, disable_dropout=True, **keys)
        self.assertLess(max(off.column("sampling/sampling_logp_difference/max")), 1e-4)
        self.assert_same_weights(off.weights("adapter_model"), self.train(
            2, **{**keys, "lora_dropout": 0.0}).weights("adapter_model"))
        on = self.train(2, **keys)
        self.assertGreater(max(on.column("sampling/sampling_logp_difference/max")), 1e-3)

    def test_the_built_in_engine_replaces_vllm(self):
        run = self.train(1, max_steps=1, use_vllm=True)
        self.assertIn("use_vllm", run.out + run.err + run.notes)
        self.assertIn("the built-in engine generates", run.out + run.err + run.notes)


if __name__ == "__main__":
    unittest.main()
