"""Models from scratch whose tokenizer is trained from the data: `model_size` needs only text."""

import json
import subprocess
import unittest

import trainer
from trainer import BIN, LIMIT, environment

if not trainer.MISSING:
    import tokenizers
    import transformers

TEXT = ["the quick brown fox jumps over the lazy dog", "the dog sleeps", "a fox and a dog: 12 + 3",
        "naïve café 日本語"] * 8


class NewTokenizer(trainer.TrainerTest):
    def setUp(self):
        super().setUp()
        self.text = trainer.write_rows(self.dir / "text.jsonl", [{"text": line} for line in TEXT])

    def recipe(self, **keys):
        """The arguments of the guide to distributed training of Qwen3, and a file of text."""
        keys = {"model_size": "tiny", "num_epochs": 1, "batch_size": 1, "max_length": 64,
                "lr": 0.001, "train_file": str(self.text), "model_family": "qwen3",
                "dataset_prepared_path": str(self.dir / "tokens"), "logging_steps": 1,
                "plot_loss": False, "max_steps": 3, **keys}
        path = self.dir / "recipe.yaml"
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
        return path

    @staticmethod
    def tokenizer_of(folder):
        return (folder / "tokenizer.json").read_bytes()

    def test_a_recipe_with_text_alone_trains_its_tokenizer_and_a_model(self):
        run = self.train(2, recipe=self.recipe(vocab_size=300))
        self.assertIn("tokenizer_path is not set: trained a tokenizer with 300 tokens (bpe) on the "
                      f"text of the datasets, saved as {run.folder}/tokenizer", run.notes)
        for folder in (run.folder / "tokenizer", run.folder / "checkpoint-3"):
            self.assertEqual(self.tokenizer_of(folder), self.tokenizer_of(run.folder))
        model = transformers.AutoModelForCausalLM.from_pretrained(run.folder)
        self.assertEqual((model.config.model_type, model.config.vocab_size), ("qwen3", 300))
        auto = transformers.AutoTokenizer.from_pretrained(run.folder)
        file = tokenizers.Tokenizer.from_file(str(run.folder / "tokenizer.json"))
        for text in TEXT[:4]:
            ids = auto(text)["input_ids"]
            self.assertEqual(file.encode(text).ids, ids)
            self.assertEqual(auto.decode(ids), text)
        self.assertEqual(model.config.eos_token_id, auto.eos_token_id)

    def test_the_tokenizer_does_not_depend_on_the_ranks_and_a_resumed_run_keeps_it(self):
        alone = self.train(1, recipe=self.recipe(vocab_size=290), max_steps=2)
        run = self.train(2, out="shared", recipe=self.recipe(vocab_size=290), max_steps=2)
        self.assertEqual(self.tokenizer_of(alone.folder), self.tokenizer_of(run.folder))
        again = self.train(2, out="shared", recipe=self.recipe(vocab_size=290), max_steps=4,
                           resume_with_changes=True)
        self.assertIn(f"using the tokenizer {run.folder}/tokenizer, which an earlier start trained",
                      again.notes)
        self.assertIn("checkpoint-2 at step 2", again.notes)
        self.assertEqual(self.tokenizer_of(again.folder), self.tokenizer_of(alone.folder))

    def test_a_tokenizer_of_characters(self):
        run = self.train(1, recipe=self.recipe(tokenizer_kind="characters"))
        vocab = json.loads(self.tokenizer_of(run.folder))["model"]["vocab"]
        self.assertEqual(list(vocab)[4:], sorted(set("".join(TEXT))))
        self.assertIn(f"the text yields only {len(vocab)} tokens, fewer than vocab_size: 8192",
                      run.notes)

    def test_other_settings_than_those_of_the_saved_tokenizer_are_rejected(self):
        self.train(1, out="shared", recipe=self.recipe(vocab_size=290))
        run = self.end(self.start_training(1, out="shared", recipe=self.recipe(vocab_size=291)))
        self.assertEqual(run.status, 2)
        self.assertIn("tokenizer was trained with", run.err)
        self.assertIn("but the recipe has tokenizer_kind bpe and vocab_size 291", run.err)

    def test_data_without_text_is_reported(self):
        ids = trainer.write_rows(self.dir / "ids.jsonl", trainer.make_rows(4))
        run = self.end(self.start_training(2, recipe=self.recipe(train_file=str(ids))))
        self.assertEqual(run.status, 2)
        self.assertIn("no tokenizer can be trained; set tokenizer_path", run.err)
        self.assertFalse((run.folder / "tokenizer").exists())

    def test_the_arguments_of_the_guide_win_over_a_recipe(self):
        """--batch_size 4 --max_length 32 --model_size small ... of the guide, written with --set."""
        save_dir = self.dir / "my_checkpoints"
        arguments = {"batch_size": 4, "max_length": 32, "num_epochs": 1, "model_size": "small",
                     "lr": 0.0005, "save_dir": str(save_dir)}
        done = subprocess.run(
            [BIN / "mgpu-train", self.recipe(max_steps=1, vocab_size=280),
             *(f"--set={key}={value}" for key, value in arguments.items())],
            capture_output=True, text=True, timeout=LIMIT,
            env=environment(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("4 sequences per step = 4 per device x 1 rank x 1 accumulation", done.stdout)
        config = json.loads((save_dir / "config.json").read_text())
        self.assertEqual((config["hidden_size"], config["num_hidden_layers"]), (256, 8))

    def test_a_plan_needs_no_tokenizer(self):
        done = subprocess.run([BIN / "mgpu-train", "plan", self.recipe(vocab_size=512), "--gpus",
                               "1", "--gpu-memory", "16GB"], capture_output=True, text=True,
                              timeout=LIMIT, env=environment(CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
