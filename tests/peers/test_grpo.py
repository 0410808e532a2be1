"""Whole GRPO runs: invariance of the result, losses, and what is skipped.

The arithmetic of the loss is in test_grpo_loss.py, rewards are in test_rewards.py, rows and errors
in test_grpo_recipes.py.
"""

import math
import unittest

from grpo_trainer import ATOL, GrpoTest

RTOL = 1e-3  # of logged metrics, which are differences of close numbers


class Invariance(GrpoTest):
    def assert_same_learning(self, ours, theirs, stem="model", atol=ATOL):
        for one, two in zip(ours.records(), theirs.records(), strict=True):
            for key in ("reward", "completions/mean_length", "entropy", "loss"):
                a, b = one.get(key), two.get(key)  # a step without a generation has no reward
                self.assertEqual(a is None, b is None, key)
                if a is not None:
                    self.assertLessEqual(abs(a - b), RTOL * max(abs(b), 0.1), key)
        self.assert_same_weights(ours.weights(stem), theirs.weights(stem), atol)

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
                # AdamW divides a gradient by its own size, also one that is hardly more than rounding,
                # which depends on the CPU: of one weight by 2.7e-5.
                self.assert_same_learning(run, alone, atol=5e-5)
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

    def test_a_run_in_which_no_completion_has_a_score_trained_on_nothing_without_a_word(self):
        run = self.train(1, reward_funcs=[self.mine("nothing")], max_steps=2)
        self.assertIn("warning: frac_reward_missing is 1; no reward function gave", run.notes)
        self.assertEqual(run.column("frac_reward_missing"), [1, 1])


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


if __name__ == "__main__":
    unittest.main()
