"""Compares QLoRA with bitsandbytes: the base equals its quantised and dequantised weights."""

import json
import os
import shutil
import subprocess
import unittest

import trainer
from trainer import load_tensors

try:
    import bitsandbytes.functional as bnb
    import safetensors.torch
    import torch
    import transformers
except ImportError:
    bnb = None

LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def is_linear(name):
    return name.endswith(tuple(f"{layer}.weight" for layer in LAYERS))


@unittest.skipIf(bnb is None, "no bitsandbytes")
class Qlora(trainer.TrainerTest):
    # On a CPU bitsandbytes 0.50 dequantises correctly only if a row is a multiple of a block.
    model_options = {"intermediate_size": 128}

    def quantised(self, nested):
        """Two folders: the base model in bitsandbytes' layout, and dequantised."""
        packed, plain = {}, {}
        for name, tensor in load_tensors(self.model).items():
            if not is_linear(name):
                packed[name] = plain[name] = tensor
                continue
            codes, state = bnb.quantize_4bit(tensor, blocksize=64, compress_statistics=nested,
                                             quant_type="nf4")
            packed[name] = codes
            for key, part in state.as_dict(packed=True).items():
                packed[f"{name}.{key}"] = part
            plain[name] = bnb.dequantize_4bit(codes, state)
        folders = []
        for label, tensors in (("packed", packed), ("plain", plain)):
            folder = self.dir / f"{label}-{nested}"
            shutil.copytree(self.model, folder)
            safetensors.torch.save_file({name: tensor.contiguous() for name, tensor
                                         in tensors.items()}, folder / "model.safetensors",
                                        metadata={"format": "pt"})
            folders.append(folder)
        config = json.loads((folders[0] / "config.json").read_text())
        config["quantization_config"] = {
            "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": nested, "bnb_4bit_compute_dtype": "float32"}
        (folders[0] / "config.json").write_text(json.dumps(config))
        return folders

    def tuned(self, model, nproc=1, **keys):
        return self.train(nproc, **{"use_peft": True, "lora_r": 4, "lora_dropout": 0.0,
                                    "learning_rate": 1e-2, "model_name_or_path": str(model),
                                    **keys})

    def assert_same_adapter(self, run, wanted, atol=0.0, rtol=0.0):
        self.assert_near(run.column("loss"), wanted.column("loss"), rtol, "loss")
        self.assert_same_weights(run.weights("adapter_model"), wanted.weights("adapter_model"),
                                 atol)

    def test_quantisation_while_loading_equals_bitsandbytes(self):
        for nested in (False, True):
            with self.subTest(nested=nested):
                _, plain = self.quantised(nested)
                wanted = self.tuned(plain)
                run = self.tuned(self.model, load_in_4bit=True, use_bnb_nested_quant=nested)
                # bitsandbytes' CPU code does not always choose the nearer of two 8-bit levels.
                if nested:
                    self.assert_near(run.column("loss")[:1], wanted.column("loss")[:1], 1e-5)
                else:
                    self.assert_same_adapter(run, wanted)
                self.assertNotEqual(run.column("loss"), self.tuned(self.model).column("loss"))

    def test_a_4_bit_checkpoint_stays_in_4_bits(self):
        for nested in (False, True):
            with self.subTest(nested=nested):
                packed, plain = self.quantised(nested)
                run = self.tuned(packed)
                self.assert_same_adapter(run, self.tuned(plain))
                self.assertIn("has 4-bit weights, which stay in 4 bits", run.notes)

    def test_all_weights_of_a_4_bit_checkpoint_can_be_trained(self):
        packed, plain = self.quantised(True)
        run, wanted = self.train(model_name_or_path=str(packed)), self.train(
            model_name_or_path=str(plain))
        self.assert_same_course(run, wanted)

    def test_zero_stages_and_ranks_do_not_change_the_result(self):
        keys = dict(load_in_4bit=True, learning_rate=1e-3, global_batch_size=12,
                    per_device_train_batch_size=2)
        wanted = self.tuned(self.model, **keys)
        for nproc, stage in ((2, 0), (2, 1), (2, 2), (2, 3), (3, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                self.assert_same_adapter(self.tuned(self.model, nproc, zero_stage=stage, **keys),
                                         wanted, 1e-4, 1e-5)

    def test_a_resumed_run_is_bitwise_equal(self):
        keys = dict(load_in_4bit=True, save_strategy="steps", save_steps=5)
        whole = self.tuned(self.model, 2, **keys)
        shutil.rmtree(whole.folder / "checkpoint-10")
        again = self.tuned(self.model, 2, out=whole.folder.name, **keys)
        self.assertIn("resuming from", again.notes)
        wanted = self.tuned(self.model, 2, **keys)
        self.assert_same_weights(again.weights("adapter_model"), wanted.weights("adapter_model"))

    def test_the_output_of_quantize_loads_in_bitsandbytes_and_trains_the_same(self):
        out = self.dir / "ours"
        subprocess.run([trainer.BIN / "mgpu-train", "quantize", "--model", self.model,
                        "--output", out], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        ours, before = load_tensors(out), load_tensors(self.model)
        for name, tensor in before.items():
            if not is_linear(name):
                self.assertTrue(torch.equal(ours[name], tensor), name)
                continue
            parts = {key.removeprefix(f"{name}."): part for key, part in ours.items()
                     if key.startswith(f"{name}.")}
            state = bnb.QuantState.from_dict(parts, device=torch.device("cpu"))
            theirs = bnb.dequantize_4bit(ours[name], state)
            self.assertLess((theirs - tensor).norm() / tensor.norm(), 0.12, name)
        config = transformers.AutoConfig.from_pretrained(out).quantization_config
        config = config if isinstance(config, dict) else config.to_dict()
        self.assertEqual(config["bnb_4bit_quant_type"], "nf4")
        self.assert_same_adapter(self.tuned(out), self.tuned(self.model, load_in_4bit=True,
                                                            use_bnb_nested_quant=True))

    def test_a_weight_that_is_not_finite_is_reported_by_name(self):
        tensors = load_tensors(self.model)
        name = "model.layers.1.mlp.up_proj.weight"
        tensors[name][3, 5] = float("nan")
        safetensors.torch.save_file(tensors, self.model / "model.safetensors",
                                    metadata={"format": "pt"})
        job = self.start_training(1, use_peft=True, load_in_4bit=True)
        run = self.end(job)
        self.assertEqual(run.status, 1)
        self.assertIn(f"{name}: a weight that is not finite", run.err)


if __name__ == "__main__":
    unittest.main()
