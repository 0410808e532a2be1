"""Training that continues from an adapter, ours or peft's."""

import json
import shutil
import unittest

import trainer
from trainer import load_model

try:
    import peft
    import torch
except ImportError:
    peft = None


class AdapterPath(trainer.TrainerTest):
    lora = {"use_peft": True, "lora_r": 4, "lora_alpha": 12, "lora_dropout": 0.0,
            "lora_target_modules": ["q_proj", "v_proj", "down_proj"]}

    def evaluated(self, **keys):
        """The loss before the first step."""
        run = self.train(max_steps=1, learning_rate=0.0, eval_strategy="steps", eval_steps=1,
                         eval_dataset=str(self.data), **keys)
        return run.column("eval_loss", "eval")[0], run

    def test_training_continues_from_our_adapter(self):
        first = self.train(learning_rate=1e-2, eval_strategy="steps", eval_steps=10,
                           eval_dataset=str(self.data), **self.lora)
        wanted = first.column("eval_loss", "eval")[-1]
        got, run = self.evaluated(adapter_path=str(first.folder))
        self.assert_near([got], [wanted], 1e-6)
        self.assertIn("continuing from adapter", run.notes)
        self.assertIn("lora_r: using the adapter's 4 instead of 16", run.notes)
        config = json.loads((run.folder / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], sorted(config["target_modules"])),
                         (4, 12, ["down_proj", "q_proj", "v_proj"]))
        self.assert_same_weights(run.weights("adapter_model"), first.weights("adapter_model"))

    def test_training_continues_from_a_peft_adapter_with_rslora_and_an_embedding(self):
        torch.manual_seed(3)
        model = peft.get_peft_model(load_model(self.model), peft.LoraConfig(
            r=4, lora_alpha=8, target_modules=["q_proj", "o_proj"], use_rslora=True,
            modules_to_save=["lm_head"], task_type="CAUSAL_LM"))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter), alpha=0.05)
        model.save_pretrained(self.dir / "theirs")
        got, run = self.evaluated(adapter_path=str(self.dir / "theirs"))
        self.assert_near([got], [trainer.mean_loss(model, self.rows)], 1e-5)
        self.assertIn("rsLoRA", run.notes)

    def test_a_named_adapter_is_saved_in_a_folder_of_that_name(self):
        keys = dict(self.lora, adapter_name="second", save_strategy="steps", save_steps=5,
                    learning_rate=1e-2)
        whole = self.train(2, **keys)
        for folder in (whole.folder, whole.folder / "checkpoint-5"):
            self.assertFalse((folder / "adapter_config.json").exists())
            model = peft.PeftModel.from_pretrained(load_model(self.model), folder / "second",
                                                   adapter_name="second")
            self.assertIn("second", model.peft_config)
        wanted = trainer.load_tensors(whole.folder / "second", "adapter_model")
        shutil.rmtree(whole.folder / "checkpoint-10")
        again = self.train(2, out=whole.folder.name, **keys)
        self.assertIn("resuming from", again.notes)
        self.assert_same_weights(trainer.load_tensors(again.folder / "second", "adapter_model"),
                                 wanted)
        run = self.end(self.start_training(adapter_name="../second", **self.lora))
        self.assertEqual(run.status, 2)
        self.assertIn("adapter_name", run.err)

    def master_weights(self, folder):
        """The master weights of a checkpoint by PEFT's names, put together from all pieces."""
        tensors = trainer.load_tensors(folder, "adapter_model")
        masters = {name: torch.full((tensor.numel(),), torch.nan)
                   for name, tensor in tensors.items()}
        for name, piece in trainer.load_tensors(folder / "training_state", "rank-").items():
            vector, rest = name.split("/", 1)
            if vector == "master":
                tensor, begin = rest.rsplit("@", 1)
                name = "base_model.model." + tensor
                masters[name][int(begin):int(begin) + piece.numel()] = piece
        return {name: master.view(tensors[name].shape) for name, master in masters.items()}

    def test_a_saved_adapter_has_the_bits_of_the_master_weights(self):
        """Adapters were once rounded to bf16 and stored as F32."""
        for nproc, keys in ((1, {}), (2, {"zero_stage": 0}), (2, {"zero_stage": 1}),
                            (2, {"zero_stage": 3, "lora_modules_to_save": ["lm_head"]})):
            with self.subTest(nproc=nproc, **keys):
                run = self.train(nproc, dtype="bf16", max_steps=3, learning_rate=1e-2,
                                 **{**self.lora, **keys})
                saved = run.weights("adapter_model")
                self.assertTrue(any((tensor != tensor.bfloat16().float()).any()
                                    for tensor in saved.values()))
                self.assert_same_weights(saved, self.master_weights(run.folder / "checkpoint-3"))
                bare = self.train(nproc, dtype="bf16", max_steps=3, learning_rate=1e-2,
                                  save_strategy="no", **{**self.lora, **keys})
                self.assert_same_weights(bare.weights("adapter_model"), saved)

    def test_an_adapter_to_continue_from_keeps_all_bits_in_the_master_weights(self):
        """The adapter was once rounded to bf16 before the master weights were made from it."""
        torch.manual_seed(3)
        model = peft.get_peft_model(load_model(self.model), peft.LoraConfig(
            r=4, lora_alpha=8, target_modules=["q_proj", "o_proj"], modules_to_save=["lm_head"],
            task_type="CAUSAL_LM"))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter), alpha=0.05)
        model.save_pretrained(self.dir / "theirs")
        wanted = trainer.load_tensors(self.dir / "theirs", "adapter_model")
        for nproc, stage in ((1, 0), (2, 3)):
            with self.subTest(nproc=nproc):
                run = self.train(nproc, dtype="bf16", max_steps=1, learning_rate=0.0,
                                 zero_stage=stage, adapter_path=str(self.dir / "theirs"))
                self.assert_same_weights(run.weights("adapter_model"), wanted)

    def test_incompatible_adapters_are_reported(self):
        first = self.train(max_steps=1, **self.lora)
        path = first.folder / "adapter_config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "target_modules": ["q_proj", "v_proj"]}))
        run = self.end(self.start_training(adapter_path=str(first.folder)))
        self.assertEqual(run.status, 2)
        self.assertIn("down_proj", run.err)
        run = self.end(self.start_training(adapter_path=str(self.dir / "nowhere")))
        self.assertEqual(run.status, 2)
        self.assertIn("mgpu-train: adapter_path: ", run.err)
        self.assertIn("nowhere", run.err)


if __name__ == "__main__":
    unittest.main()
