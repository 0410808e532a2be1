"""What a GRPO run reports: metrics, tables, completions, evaluations."""

import json
import unittest

import trainer
from grpo_trainer import ATOL, GrpoTest, prompt_rows
from trainer import write_rows


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
