"""Adapters with tokens of their own: merged, and used for generation, beside transformers and peft."""

import json
import shutil
import subprocess
import unittest

import trainer
from trainer import BIN, LIMIT, environment, load_model, load_tensors, make_model

try:
    import peft
    import transformers
except ImportError:
    peft = None

TOKENS = 274  # of the examples' tokenizer


class AdapterVocabulary(trainer.TrainerTest):
    keys = {"use_peft": True, "lora_r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "max_steps": 3,
            "learning_rate": 1e-2}
    added = {"chat_template": "chatml", "special_tokens": {"eos_token": "<|im_end|>"},
             "new_tokens": ["<tool_a>", "<tool_b>"]}

    def program(self, *arguments, status=0):
        done = subprocess.run([BIN / "mgpu-train", *arguments], capture_output=True, text=True,
                              timeout=LIMIT, env=environment(OMP_NUM_THREADS="1",
                                                             CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def merge(self, adapter, name="merged"):
        out, _ = self.program("merge", "--model", self.model, "--adapter", adapter, "--output",
                              self.dir / name)
        return self.dir / name, out

    def adapted(self, **keys):
        """Trains on every token, also on the new ones."""
        count = TOKENS + 2
        rows = [{"input_ids": [*range(first, count, 9), 1]} for first in range(9)]
        data = trainer.write_rows(self.dir / "all-tokens.jsonl", rows * 4)
        return self.train(dataset_name=str(data), **{**self.keys, **self.added, **keys})

    def test_a_merged_model_has_the_tokens_the_template_and_the_end_of_its_adapter(self):
        run = self.adapted()
        merged, out = self.merge(run.folder)
        self.assertIn(f"note: using the tokenizer and the chat template of the adapter {run.folder}",
                      out)
        theirs = transformers.AutoTokenizer.from_pretrained(run.folder)
        ours = transformers.AutoTokenizer.from_pretrained(merged)
        self.assertEqual(ours.get_vocab(), theirs.get_vocab())
        self.assertEqual(ours.eos_token, "<|im_end|>")
        messages = [{"role": "user", "content": "1+2="}]
        prompt = ours.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        self.assertEqual(prompt, "<|im_start|>user\n1+2=<|im_end|>\n<|im_start|>assistant\n")
        self.assertEqual(len(ours("<tool_b>").input_ids), 1)
        model = load_model(merged)
        for config in (model.config, model.generation_config):
            self.assertEqual(config.eos_token_id, ours.eos_token_id)
        # With the template and the end of the adapter both complete the same prompt.
        options = ("generate", "--prompt", "1+2=", "--max-new-tokens", "12")
        text, notes = self.program(*options, "--model", self.model, "--adapter", run.folder)
        self.assertIn("note: using the tokenizer and the chat template of the adapter", notes)
        self.assertEqual(self.program(*options, "--model", merged)[0], text)
        rows = self.dir / "prompts.jsonl"
        trainer.write_rows(rows, [{"prompt": messages}])
        completed, _ = self.program("generate", "--model", self.model, "--adapter", run.folder,
                                    "--input", rows, "--max-new-tokens", "12")
        self.assertEqual(json.loads(completed)["completion"] + "\n", text)

    def test_an_adapter_without_a_tokenizer_has_that_of_the_model(self):
        run = self.train(**self.keys)
        for path in run.folder.glob("*token*"):
            path.unlink()
        merged, out = self.merge(run.folder)
        self.assertNotIn("note:", out)
        self.assertEqual((merged / "tokenizer.json").read_bytes(),
                         (self.model / "tokenizer.json").read_bytes())

    def test_an_adapter_with_new_rows_is_merged_as_by_peft(self):
        for tied in (False, True):
            with self.subTest(tied=tied):
                make_model(self.model, vocab_size=TOKENS, tie_word_embeddings=tied)
                run = self.adapted()
                merged, out = self.merge(run.folder, f"merged-{tied}")
                self.assertIn(f"has {TOKENS + 2} rows, as in the adapter, instead of {TOKENS}", out)
                base = load_model(self.model)
                base.resize_token_embeddings(TOKENS + 2)
                theirs = peft.PeftModel.from_pretrained(base, run.folder)
                theirs = theirs.merge_and_unload().state_dict()
                ours = load_tensors(merged)
                self.assert_same_weights(ours, {name: theirs[name] for name in ours}, atol=1e-5)
                self.assertEqual(load_model(merged).config.vocab_size, TOKENS + 2)
                self.program("generate", "--model", self.model, "--adapter", run.folder,
                             "--prompt", "<tool_a>", "--max-new-tokens", "4")

    def test_new_tokens_in_spare_rows_are_trained_with_the_adapter(self):
        """Such rows were once not trained, and no note reported it."""
        before = load_model(self.model).get_input_embeddings().weight
        self.assertGreater(len(before), TOKENS + 2)
        run = self.adapted()
        for name in ("embed_tokens", "lm_head"):
            self.assertIn(f"new_tokens requires {name} to be trained", run.notes)
        after = run.weights("adapter_model")["base_model.model.model.embed_tokens.weight"]
        self.assertEqual(after.shape, before.shape)
        for row in range(TOKENS, TOKENS + 2):
            self.assertGreater((after[row] - before[row]).abs().max().item(), 1e-3)
        theirs = peft.PeftModel.from_pretrained(load_model(self.model), run.folder)
        theirs = theirs.merge_and_unload().state_dict()
        ours = load_tensors(self.merge(run.folder)[0])
        self.assert_same_weights(ours, {name: theirs[name] for name in ours}, atol=1e-5)

    def test_tokens_that_the_model_has_already_do_not_train_the_embedding(self):
        run = self.train(**self.keys, new_tokens=["1"])
        self.assertNotIn("embed_tokens", run.notes)

    def test_a_model_is_not_merged_into_a_folder_with_a_model_or_an_adapter(self):
        run = self.train(**self.keys)
        for folder, what in ((run.folder, "an adapter"), (self.model, "a model")):
            kept = shutil.copytree(folder, self.dir / f"copy of {what}")
            _, err = self.program("merge", "--model", self.model, "--adapter", run.folder,
                                  "--output", folder, status=2)
            self.assertIn(f"{folder} already contains {what}; use another --output", err)
            for path in kept.rglob("*.*"):
                if path.is_file():
                    self.assertEqual((folder / path.relative_to(kept)).read_bytes(),
                                     path.read_bytes())


if __name__ == "__main__":
    unittest.main()
