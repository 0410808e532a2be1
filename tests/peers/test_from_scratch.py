"""Models that are trained from scratch, in every family, compared with transformers and peft."""

import subprocess
import unittest

import test_gradients
import test_rollout
import trainer
from trainer import BIN, in_order, load_model, load_tensors, mean_loss, train_in_torch

if not trainer.MISSING:
    import peft
    import torch
    import transformers

STEPS = 10
BATCH = 8
LORA = dict(use_peft=True, lora_r=4, lora_alpha=8, lora_dropout=0.0, learning_rate=1e-2)


class FromScratchTest(trainer.TrainerTest):
    def scratch(self, family, size="tiny", **keys):
        """Trains a new model; its tokenizer is the examples'."""
        recipe = self.recipe(model_size=size, model_family=family,
                             tokenizer_path=str(trainer.TOKENIZER), **keys)
        lines = recipe.read_text().splitlines(keepends=True)
        recipe.write_text("".join(line for line in lines if "model_name_or_path" not in line))
        return self.train(recipe=recipe)


class FromScratch(FromScratchTest):
    def test_training_equals_a_torch_loop(self):
        """A run with rate 0 saves the initial weights, which the same seed reproduces."""
        for family in trainer.FAMILIES:
            with self.subTest(family):
                begun = self.scratch(family, max_steps=1, learning_rate=0)
                model = load_model(begun.folder)
                self.assertEqual(type(model).__name__.lower(), f"{family}forcausallm")
                history = train_in_torch(model, in_order(self.rows, BATCH, STEPS), 1e-3)
                run = self.scratch(family, max_steps=STEPS)
                losses, norms, _ = zip(*history)
                self.assert_near(run.column("loss"), losses, 2e-4, "loss")
                self.assert_near(run.column("grad_norm"), norms, 2e-4, "grad_norm")
                theirs = model.state_dict()
                ours = run.weights()
                self.assert_same_weights(ours, {name: theirs[name] for name in ours}, atol=1e-4)

    def test_qwen3_has_norms_of_heads_and_no_biases(self):
        weights = self.scratch("qwen3", max_steps=1, learning_rate=0).weights()
        self.assertFalse([name for name in weights if name.endswith(".bias")])
        for name in ("q_norm", "k_norm"):
            norms = [weight for key, weight in weights.items() if key.endswith(f"{name}.weight")]
            self.assertEqual(len(norms), 4)
            for norm in norms:
                self.assertTrue(torch.equal(norm, torch.ones(32)))

    def test_every_tensor_is_loaded_by_transformers(self):
        for family in trainer.FAMILIES:
            with self.subTest(family):
                run = self.scratch(family, max_steps=1)
                _, found = transformers.AutoModelForCausalLM.from_pretrained(
                    run.folder, output_loading_info=True)
                for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
                    self.assertFalse(found[problem], problem)


class TrainedQwen3(FromScratchTest):
    """A model that has learned some rows, so that its attention has an effect."""

    row_count = 8

    def setUp(self):
        super().setUp()
        self.trained = self.scratch("qwen3", learning_rate=3e-3, max_steps=40).folder

    def test_logits_and_gradients_equal_transformers(self):
        truth = test_gradients.theirs(self.trained, self.rows[:6], torch.float32, "cpu")
        rows = trainer.write_rows(self.dir / "few.jsonl", self.rows[:6])
        out = self.dir / "gradients"
        out.mkdir()
        subprocess.run([BIN / "gradients_of", self.trained, rows, out, "fp32"], check=True)
        got = load_tensors(out)
        self.assertEqual(sorted(got), sorted(truth))
        for name, value in truth.items():
            apart = test_gradients.distance(got[name].reshape(value.shape), value)
            self.assertLessEqual(apart, 1e-4 * value.norm().item(), name)

    def test_an_adapter_evaluates_the_same_in_peft(self):
        self.model = self.trained
        run = self.train(recipe=self.recipe(eval_dataset=str(self.data), eval_strategy="steps",
                                            eval_steps=STEPS, **LORA))
        tuned = peft.PeftModel.from_pretrained(load_model(self.trained), run.folder)
        loss = mean_loss(tuned, self.rows)
        self.assertAlmostEqual(run.column("eval_loss", "eval")[-1], loss, places=4)
        before = mean_loss(load_model(self.trained), self.rows)
        self.assertLess(before, 3.5)
        self.assertLess(loss, before)


class GreedyQwen3(FromScratchTest, test_rollout.RolloutTest):
    row_count = 8
    assert_greedy = test_rollout.Greedy.assert_greedy

    def test_completions_equal_those_of_transformers(self):
        trained = self.scratch("qwen3", learning_rate=3e-3, max_steps=40).folder
        lines = self.answers(self.prompts(), "--temperature", 0, "--max-new-tokens",
                             test_rollout.NEW, "--sequences", 3, model=trained)
        self.assert_greedy(trained, lines)


if __name__ == "__main__":
    unittest.main()
