"""Checkpoints that earlier releases wrote are still read: the file formats do not change.

data/checkpoints-263596c was written by commit 263596c: a model, its rows, and for training of all
weights (two ranks, ZeRO-1) and of an adapter the checkpoint of step 12, the losses of steps 13 to
20 and the weights after step 20. data/checkpoints-acdfbf1 was written by commit acdfbf1: for GRPO
training of an adapter (two ranks) the checkpoint of step 6, the losses of steps 7 to 10 and the
adapter after step 10.
"""

import json
import pathlib
import shutil
import unittest

import trainer
from grpo_trainer import GrpoTest, prompt_rows

OLD = pathlib.Path(__file__).resolve().parent / "data" / "checkpoints-263596c"
RTOL, ATOL = 1e-4, 2e-5  # the sums of another CPU may round differently


class OldCheckpoints(trainer.TrainerTest):
    KEYS = dict(model_name_or_path="model", lr_scheduler_type="constant", shuffle_dataset=True,
                warmup_steps=2, max_steps=20)

    def setUp(self):
        super().setUp()
        shutil.rmtree(self.model)
        shutil.copytree(OLD / "model", self.model)
        self.assertEqual(self.data.read_text(), (OLD / "rows.jsonl").read_text())

    def check_resumes(self, kind, stem, nproc, **keys):
        name = f"{kind}-{nproc}"
        shutil.copytree(OLD / kind / "checkpoint-12", self.dir / name / "checkpoint-12")
        run = self.train(nproc, out=name, **{**self.KEYS, **keys})
        self.assertIn("checkpoint-12 at step 12", run.notes)
        self.assertIn("checkpoint-12 does not record its data and settings", run.notes)
        self.assertEqual(run.column("step"), list(range(13, 21)))
        self.assert_near(run.column("loss"), json.loads((OLD / kind / "losses.json").read_text()),
                         RTOL, "loss")
        self.assert_same_weights(run.weights(stem),
                                 trainer.load_tensors(OLD / kind, "after-20-steps"), ATOL)

    def test_training_of_all_weights_resumes_from_a_checkpoint_of_263596c(self):
        self.check_resumes("full", "model", 2, zero_stage=1)

    def test_it_resumes_with_another_number_of_ranks_and_another_zero_stage(self):
        self.check_resumes("full", "model", 1)
        self.check_resumes("full", "model", 4, zero_stage=3, per_device_train_batch_size=1)

    def test_an_adapter_resumes_from_a_checkpoint_of_263596c(self):
        self.check_resumes("adapter", "adapter_model", 2, use_peft=True, lora_r=2, lora_dropout=0.0)


class OldGrpoCheckpoints(GrpoTest):
    def test_completions_in_json_are_read_from_a_checkpoint_of_acdfbf1(self):
        """Steps 7 and 8 train on completions that the checkpoint of step 6 has as JSON."""
        old = OLD.parent / "checkpoints-acdfbf1" / "grpo"
        shutil.rmtree(self.model)
        shutil.copytree(OLD / "model", self.model)
        self.data = trainer.write_rows(self.dir / "prompts.jsonl", prompt_rows(21))
        shutil.copytree(old / "checkpoint-6", self.dir / "run" / "checkpoint-6")
        state = json.loads((old / "checkpoint-6" / "trainer_state.json").read_text())
        self.assertEqual(len(state["task_state"]["generations"][0]["samples"]), 32)
        run = self.train(2, out="run", use_peft=True, lora_r=2, lora_dropout=0.0, beta=0.1,
                         global_batch_size=16, steps_per_generation=4, num_iterations=2,
                         save_strategy="steps", save_steps=7, learning_rate=1e-2, max_steps=10)
        self.assertIn("checkpoint-6 at step 6", run.notes)
        self.assert_near(run.column("loss"), json.loads((old / "losses.json").read_text()), RTOL,
                         "loss")
        self.assert_same_weights(run.weights("adapter_model"),
                                 trainer.load_tensors(old, "after-10-steps"), ATOL)
        saved = run.folder / "checkpoint-7"
        self.assertNotIn("samples", (saved / "trainer_state.json").read_text())
        self.assertEqual(len(list((saved / "training_state_generations").iterdir())), 1)


if __name__ == "__main__":
    unittest.main()
