"""Compares training with a plain loop of torch, transformers and peft over the same batches."""

import json
import os
import subprocess
import unittest

import trainer
from trainer import in_order, load_model, make_model, make_rows, mean_loss, train_in_torch

if not trainer.MISSING:
    import peft
    import torch
    import transformers

STEPS = 20
BATCH = 8
MODELS = [("qwen2", {"tie_word_embeddings": True}), ("qwen2", {"tie_word_embeddings": False}),
          ("qwen3", {"tie_word_embeddings": True, "head_dim": 32}),
          ("qwen3", {"tie_word_embeddings": False, "head_dim": 16, "num_hidden_layers": 3}),
          ("llama", {"tie_word_embeddings": True}),
          ("mistral", {"tie_word_embeddings": False, "sliding_window": 64}),
          ("llama", {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True})]


class FullFineTuning(trainer.TrainerTest):
    def assert_course_of_torch(self, run, model, **settings):
        history = train_in_torch(model, in_order(self.rows, BATCH, STEPS), 1e-3, **settings)
        losses, norms, rates = zip(*history)
        self.assert_near(run.column("learning_rate"), rates, 1e-9, "rate")
        self.assert_near(run.column("loss"), losses, 2e-4, "loss")
        self.assert_near(run.column("grad_norm"), norms, 2e-4, "grad_norm")
        saved = run.weights()
        theirs = {name: tensor for name, tensor in model.state_dict().items() if name in saved}
        self.assert_same_weights(saved, theirs, atol=1e-4)

    def test_training_equals_a_torch_loop(self):
        for number, (family, options) in enumerate(MODELS):
            with self.subTest(family=family, **options):
                self.model = make_model(self.dir / f"model-{number}", family, **options)
                run = self.train(2, max_steps=STEPS, recipe=self.recipe())
                model = load_model(self.model)
                self.assertEqual("lm_head.weight" in run.weights(),
                                 not options["tie_word_embeddings"])
                self.assert_course_of_torch(run, model)

    def test_training_with_decay_and_warm_up_equals_a_torch_loop(self):
        run = self.train(2, max_steps=STEPS, weight_decay=0.1, warmup_steps=5,
                         lr_scheduler_type="cosine", max_grad_norm=0.5)
        self.assert_course_of_torch(run, load_model(self.model), weight_decay=0.1, warmup=5,
                                    schedule="cosine", max_norm=0.5)

    def test_the_number_of_loader_threads_changes_no_bit(self):
        default = self.train(2)
        for keys in ({"num_workers": 0}, {"num_workers": 4, "pin_memory": False},
                     {"dataloader_num_workers": 3, "dataloader_prefetch_factor": 5}):
            with self.subTest(keys):
                self.assert_same_course(self.train(2, **keys), default)

    def test_steps_without_a_finite_gradient_are_skipped_with_a_note(self):
        """The first step's rate ruins the weights; every later step is skipped."""
        keys = dict(learning_rate=1e30, lr_scheduler_type="constant", max_grad_norm=0)
        once = self.train(2, max_steps=1, **keys)
        run = self.train(2, max_steps=3, **keys)
        self.assertEqual(run.column("skipped_steps"), [0, 1, 2])
        self.assert_same_weights(run.weights(), once.weights())
        self.assertIn("step 3: the gradient is not finite; the step is skipped", run.notes)
        for key in ("loss", "grad_norm", "mean_token_accuracy", "entropy"):
            self.assertIsNotNone(run.column(key)[0])
            self.assertEqual(run.column(key)[1:], [None, None], key)  # unknown, which is not 0
        self.assertEqual(run.out.count("loss nan"), 2)
        # Averages cover the steps that were not skipped.
        self.assert_near(run.column("train_loss", "summary"), once.column("loss"), 1e-9)
        at_once = self.train(2, max_steps=3, **{**keys, "logging_steps": 3,
                                                "logging_first_step": False})
        self.assert_near(at_once.column("loss"), once.column("loss"), 1e-9)
        self.assertEqual(at_once.column("skipped_steps"), [2])
        stopped = self.end(self.start_training(2, max_steps=3, on_non_finite="stop", **keys))
        self.assertEqual(stopped.status, 1)
        self.assertIn("step 2: the gradient is not finite", stopped.err)

    def test_a_run_ends_when_ten_steps_in_a_row_have_no_finite_gradient(self):
        """It once went on to the end, with status 0 and a final model that had learned nothing."""
        run = self.end(self.start_training(
            2, max_steps=40, learning_rate=1e30, lr_scheduler_type="constant", max_grad_norm=0,
            options=("--report", self.dir / "report.json")))
        self.assertEqual(run.status, 1)
        self.assertIn("step 11: the gradient is not finite, as in 10 steps in a row", run.err)
        self.assertFalse((run.folder / "model.safetensors").exists())
        report = json.loads((self.dir / "report.json").read_text())
        self.assertEqual(report["attempts"][-1]["cause"]["kind"], "nan")

    def test_new_tokens_grow_the_model(self):
        """New rows are the mean of the others; a model with spare rows is unchanged."""
        for rows, tokens, expected in ((320, 50, 324), (320, 5, 320), (104, 1, 275)):
            for tied in (True, False):
                with self.subTest(rows=rows, tokens=tokens, tied=tied):
                    self.model = make_model(self.dir / f"model-{rows}-{tied}", vocab_size=rows,
                                            tie_word_embeddings=tied)
                    names = [f"<new-{number}>" for number in range(tokens)]
                    run = self.train(2, recipe=self.recipe(new_tokens=names), max_steps=1,
                                     learning_rate=0)
                    before, after = load_model(self.model), load_model(run.folder)
                    self.assertEqual(after.config.vocab_size, expected)
                    for ours, theirs in ((after.get_input_embeddings().weight,
                                          before.get_input_embeddings().weight),
                                         (after.get_output_embeddings().weight,
                                          before.get_output_embeddings().weight)):
                        self.assertEqual(len(ours), expected)
                        self.assertTrue(torch.equal(ours[:rows], theirs))
                        apart = (ours[rows:] - theirs.mean(0)).abs()
                        self.assertLess(apart.max().item() if len(apart) else 0, 1e-6)
                    tokenizer = transformers.AutoTokenizer.from_pretrained(run.folder)
                    self.assertEqual(tokenizer(names[-1]).input_ids, [274 + tokens - 1])

    def test_the_saved_model_evaluates_the_same_in_transformers(self):
        held_back = make_rows(13, seed=2)
        evaluated = trainer.write_rows(self.dir / "held-back.jsonl", held_back)
        run = self.train(2, eval_dataset=str(evaluated), eval_strategy="steps", eval_steps=5,
                         per_device_eval_batch_size=4, eval_on_start=True)
        losses = run.column("eval_loss", "eval")
        self.assertEqual(run.column("step", "eval"), [0, 5, 10])
        self.assertLess(run.column("loss")[-1], run.column("loss")[0])
        self.assertAlmostEqual(losses[0], mean_loss(load_model(self.model), held_back), places=5)
        for folder in (run.folder, run.folder / "checkpoint-10"):
            model = load_model(folder)
            self.assertEqual(model.config.dtype, torch.float32)
            self.assertAlmostEqual(losses[-1], mean_loss(model, held_back), places=5)
            ours = transformers.AutoTokenizer.from_pretrained(folder)
            theirs = transformers.AutoTokenizer.from_pretrained(trainer.TOKENIZER)
            self.assertEqual(ours.get_vocab(), theirs.get_vocab())
            self.assertEqual(ours("12+34=").input_ids, theirs("12+34=").input_ids)
            self.assertEqual(ours.eos_token, theirs.eos_token)


class LoraTraining(trainer.TrainerTest):
    LORA = dict(use_peft=True, lora_r=4, lora_alpha=8, lora_dropout=0.0,
                lora_target_modules="all-linear")

    def tuned(self, folder, trainable=False):
        return peft.PeftModel.from_pretrained(load_model(self.model), folder,
                                              is_trainable=trainable)

    def test_an_adapter_starts_as_the_base_model_and_learns(self):
        run = self.train(2, max_steps=STEPS, learning_rate=1e-2, **self.LORA)
        first = in_order(self.rows, BATCH, 1)[0]
        self.assertAlmostEqual(run.column("loss")[0], mean_loss(load_model(self.model), first),
                               places=5)
        self.assertLess(run.column("loss")[-1], run.column("loss")[0] - 0.1)

    def test_lora_training_equals_torch_and_peft(self):
        for family in ("qwen2", "mistral"):
            with self.subTest(family):
                self.model = make_model(self.dir / family, family)
                self.assert_course_of_peft()

    def assert_course_of_peft(self):
        """A run with rate 0 saves the initial adapter, which the same seed reproduces."""
        recipe = self.recipe()
        begun = self.train(2, recipe=recipe, max_steps=1, learning_rate=0, **self.LORA)
        run = self.train(2, recipe=recipe, max_steps=STEPS, **self.LORA)
        model = self.tuned(begun.folder, trainable=True)
        history = train_in_torch(model, in_order(self.rows, BATCH, STEPS), 1e-3)
        losses, norms, _ = zip(*history)
        self.assert_near(run.column("loss"), losses, 2e-4, "loss")
        self.assert_near(run.column("grad_norm"), norms, 2e-4, "grad_norm")
        theirs = {name.replace(".default.", "."): tensor
                  for name, tensor in model.state_dict().items() if "lora_" in name}
        self.assert_same_weights(run.weights("adapter_model"), theirs, atol=1e-4)
        ids = torch.tensor([self.rows[0]["input_ids"]])
        with torch.no_grad():
            ours = self.tuned(run.folder)(ids).logits
            self.assertLess((ours - model.eval()(ids).logits).abs().max().item(), 2e-3)

    def test_the_saved_adapter_evaluates_the_same_in_peft(self):
        held_back = make_rows(9, seed=3)
        evaluated = trainer.write_rows(self.dir / "held-back.jsonl", held_back)
        for options in (dict(), dict(use_rslora=True), dict(lora_modules_to_save=["lm_head"]),
                        dict(lora_target_modules=["q_proj", "down_proj"])):
            with self.subTest(**options):
                keys = {**self.LORA, "learning_rate": 1e-2, "max_steps": 6, **options}
                run = self.train(2, eval_dataset=str(evaluated), eval_strategy="steps",
                                 eval_steps=6, **keys)
                model = self.tuned(run.folder)
                self.assertAlmostEqual(run.column("eval_loss", "eval")[-1],
                                       mean_loss(model, held_back), places=4)

    def test_new_tokens_save_the_embedding_with_the_adapter(self):
        for tied in (True, False):
            with self.subTest(tied=tied):
                trainer.make_model(self.model, tie_word_embeddings=tied,
                                   vocab_size=len(trainer.transformers.AutoTokenizer
                                                  .from_pretrained(trainer.TOKENIZER)))
                run = self.train(max_steps=2, new_tokens=["<one>", "<two>"], **self.LORA)
                self.assertIn("new_tokens requires embed_tokens to be trained", run.notes)
                names = run.weights("adapter_model")
                whole = [name for name in names if "embed_tokens" in name or "lm_head" in name]
                self.assertEqual(len(whole), 1 if tied else 2)
                rows = len(trainer.transformers.AutoTokenizer.from_pretrained(run.folder))
                for name in whole:
                    self.assertEqual(names[name].shape[0], rows)

    def test_the_merged_model_equals_pefts(self):
        run = self.train(2, learning_rate=1e-2, **self.LORA)
        merged = self.dir / "merged"
        done = subprocess.run([trainer.BIN / "mgpu-train", "merge", "--model", self.model,
                               "--adapter", run.folder, "--output", merged],
                              capture_output=True, text=True, timeout=trainer.LIMIT,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        theirs = self.tuned(run.folder).merge_and_unload().state_dict()
        ours = trainer.load_tensors(merged)
        self.assert_same_weights(ours, {name: theirs[name] for name in ours}, atol=1e-5)
        config = json.loads((merged / "config.json").read_text())
        self.assertEqual(config["model_type"], "qwen2")


if __name__ == "__main__":
    unittest.main()
