"""Fine-tuning by mgpu-train beside the same steps made with transformers, torch and peft."""

import pathlib
import tempfile
import unittest

import torch
import transformers

import trainer

STEPS = 20
BATCH = 8


def sequence_loss(model, row):
    """The sum of the losses of a row's labels, and how many there are."""
    logits = model(torch.tensor([row["input_ids"]])).logits[0, :-1]
    labels = torch.tensor(row["labels"])[1:]
    loss = torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")
    return loss, int((labels != -100).sum())


def torch_loop(model, rows, parameters, rate):
    """Plain steps over the rows in order: token-mean loss, clipping at 1, AdamW."""
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    losses, norms = [], []
    for step in range(STEPS):
        begin = step * BATCH % len(rows)
        parts = [sequence_loss(model, row) for row in rows[begin:begin + BATCH]]
        loss = sum(part for part, _ in parts) / sum(count for _, count in parts)
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)))
        optimizer.step()
        losses.append(float(loss))
    return losses, norms


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.rows = trainer.make_rows(32)
        trainer.write_rows(self.dir / "rows.jsonl", self.rows)

    def recipe(self, **settings):
        return trainer.write_recipe(
            self.dir / "recipe.yaml", model_name_or_path=str(self.dir / "model"),
            dataset_name=str(self.dir / "rows.jsonl"), output_dir=str(self.dir / "out"),
            dataset_prepared_path=str(self.dir / "cache"), per_device_train_batch_size=4,
            global_batch_size=BATCH, max_steps=STEPS, **settings)

    def assert_close(self, ours, theirs, tolerance):
        self.assertEqual(len(ours), len(theirs))
        for step, (a, b) in enumerate(zip(ours, theirs)):
            self.assertLess(abs(a - b), tolerance * max(1e-3, abs(b)), f"step {step}: {a} and {b}")

    def check_family(self, kind):
        model = trainer.make_model(kind, self.dir / "model")
        trainer.train(self.recipe(), ranks=2)
        losses, norms = torch_loop(model, self.rows, list(model.parameters()), 1e-3)
        self.assert_close(trainer.metrics(self.dir / "out", "loss"), losses, 2e-4)
        self.assert_close(trainer.metrics(self.dir / "out", "grad_norm"), norms, 1e-3)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(self.dir / "out")
        for (name, ours), theirs in zip(loaded.named_parameters(), model.parameters()):
            self.assertLess(float((ours - theirs).abs().max()), 2e-4, name)
        self.assertEqual(type(transformers.AutoTokenizer.from_pretrained(self.dir / "out")
                              ("1+2=")["input_ids"]), list)

    def test_twenty_steps_of_qwen2_are_torchs(self):
        self.check_family("qwen2")

    def test_twenty_steps_of_qwen3_are_torchs(self):
        self.check_family("qwen3")

    def test_twenty_steps_of_llama_are_torchs(self):
        self.check_family("llama")

    def test_an_adapter_trains_as_pefts_and_loads_there(self):
        import peft
        trainer.make_model("qwen2", self.dir / "model")
        lora = dict(use_peft=True, lora_r=4, lora_alpha=8, lora_dropout=0.0)
        # What both begin with: the adapter that a step at rate 0 leaves.
        trainer.train(self.recipe(**lora), ranks=1, learning_rate=0, max_steps=1)
        base = transformers.AutoModelForCausalLM.from_pretrained(self.dir / "model")
        model = peft.PeftModel.from_pretrained(base, self.dir / "out", is_trainable=True)
        trainer.train(self.recipe(**lora), ranks=2, output_dir=self.dir / "ours")
        trained = [p for p in model.parameters() if p.requires_grad]
        losses, norms = torch_loop(model, self.rows, trained, 1e-3)
        self.assert_close(trainer.metrics(self.dir / "ours", "loss"), losses, 2e-4)
        self.assert_close(trainer.metrics(self.dir / "ours", "grad_norm"), norms, 1e-3)
        again = peft.PeftModel.from_pretrained(
            transformers.AutoModelForCausalLM.from_pretrained(self.dir / "model"),
            self.dir / "ours")
        ids = torch.tensor([self.rows[0]["input_ids"]])
        with torch.no_grad():
            difference = (again(ids).logits - model(ids).logits).abs().max()
        self.assertLess(float(difference), 1e-3)

    def test_evaluation_is_the_mean_over_all_labels(self):
        model = trainer.make_model("llama", self.dir / "model")
        rows = trainer.make_rows(7, seed=5)  # not a multiple of anything
        trainer.write_rows(self.dir / "eval.jsonl", rows)
        trainer.train(self.recipe(eval_dataset=str(self.dir / "eval.jsonl"), eval_strategy="steps",
                                  eval_steps=1, learning_rate=0.0), ranks=3, max_steps=1,
                      global_batch_size=12)
        with torch.no_grad():
            parts = [sequence_loss(model, row) for row in rows]
        wanted = float(sum(part for part, _ in parts)) / sum(count for _, count in parts)
        self.assert_close(trainer.metrics(self.dir / "out", "eval_loss"), [wanted], 1e-5)

    def test_a_bad_row_is_named_with_file_and_line(self):
        trainer.make_model("qwen2", self.dir / "model")
        with open(self.dir / "rows.jsonl", "a") as file:
            file.write('{"input_ids": ["x"]}\n')
        printed = trainer.train(self.recipe(), expect=1)
        self.assertIn("rows.jsonl:33", printed)
        trainer.train(self.recipe(on_bad_row="skip"), max_steps=1)

    def test_what_is_not_carried_out_is_refused(self):
        trainer.make_model("qwen2", self.dir / "model")
        printed = trainer.train(self.recipe(use_peft=True, load_in_4bit=True), expect=1)
        self.assertIn("load_in_4bit is not supported", printed)
        printed = trainer.train(self.recipe(learning_rat=1.0), expect=2)
        self.assertIn("did you mean learning_rate", printed)


if __name__ == "__main__":
    unittest.main()
