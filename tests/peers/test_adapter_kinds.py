"""Compares every kind of adapter with peft: forward, gradients, files, merging and resuming."""

import json
import os
import subprocess
import unittest

import trainer
from trainer import in_order, load_model, make_rows, mean_loss, train_in_torch

try:
    import bitsandbytes as bnb
    import peft
    import peft.optimizers
    import safetensors.torch
    import torch
    import transformers
except ImportError:
    peft = None

STEPS, BATCH = 8, 8
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
KINDS = {
    "rslora": dict(use_rslora=True),
    "dora": dict(use_dora=True),
    "dora-some": dict(use_dora=True, use_rslora=True,
                      lora_target_modules=["q_proj", "v_proj", "up_proj"]),
    "whole": dict(lora_modules_to_save=["embed_tokens", "lm_head"]),
    "whole-dora": dict(use_dora=True, lora_modules_to_save=["lm_head"]),
}
PISSA = dict(init_lora_weights="pissa")


class KindsTest(trainer.TrainerTest):
    LORA = dict(use_peft=True, lora_r=4, lora_alpha=8, lora_dropout=0.0)

    def tuned(self, folder, trainable=False, model=None):
        return peft.PeftModel.from_pretrained(model or load_model(self.model), folder,
                                              is_trainable=trainable)

    def run_program(self, *words):
        done = subprocess.run([trainer.BIN / "mgpu-train", *words], capture_output=True, text=True,
                              timeout=trainer.LIMIT,
                              env={**os.environ, "OMP_NUM_THREADS": "1",
                                   "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def with_weights(self, tensors):
        """The model with other weights, as a folder."""
        folder = self.dir / "plain"
        load_model(self.model).save_pretrained(folder)
        transformers.AutoTokenizer.from_pretrained(self.model).save_pretrained(folder)
        safetensors.torch.save_file(tensors, folder / "model.safetensors",
                                    metadata={"format": "pt"})
        return folder

    def adapted(self, nproc=1, **keys):
        return self.train(nproc, **{"learning_rate": 1e-2, "max_steps": STEPS, **self.LORA, **keys})

    def assert_same_adapter(self, run, wanted, atol=0.0, rtol=0.0):
        self.assert_near(run.column("loss"), wanted.column("loss"), rtol, "loss")
        self.assert_same_weights(run.weights("adapter_model"), wanted.weights("adapter_model"),
                                 atol)

    def assert_any_world(self, rate=1e-3, **keys):
        keys = dict(keys, learning_rate=rate, global_batch_size=12, per_device_train_batch_size=2)
        wanted = self.adapted(**keys)
        for nproc, stage in ((2, 0), (2, 1), (2, 2), (2, 3), (3, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                self.assert_same_adapter(self.adapted(nproc, zero_stage=stage, **keys), wanted,
                                         1e-4, 1e-5)

    def assert_resumes(self, name, **keys):
        keys = dict(keys, lr_scheduler_type="constant", save_strategy="steps", save_steps=3)
        whole = self.adapted(2, out=f"whole-{name}", **{**keys, "max_steps": 6})
        part = self.adapted(2, out=f"part-{name}", **{**keys, "max_steps": 3})
        run = self.adapted(2, out=part.folder.name, resume_with_changes=True,
                           **{**keys, "max_steps": 6})
        self.assertIn("resuming from", run.notes)
        self.assertEqual(run.column("loss"), whole.column("loss"))
        self.assert_same_weights(run.weights("adapter_model"), whole.weights("adapter_model"))


class Kinds(KindsTest):
    def gradients(self, folder):
        """The gradients of a run's only step by PEFT's names: from the first moments."""
        found = {}
        for name, piece in trainer.load_tensors(folder / "training_state", "rank-").items():
            vector, rest = name.split("/", 1)
            if vector == "first":
                found["base_model.model." + rest.rsplit("@", 1)[0]] = piece.flatten() / (1 - .9)
        return found

    def random_adapter(self, name, **keys):
        """An adapter of peft whose tensors are all random, and its model."""
        torch.manual_seed(3)
        model = peft.get_peft_model(load_model(self.model), peft.LoraConfig(
            task_type="CAUSAL_LM", r=4, lora_alpha=8,
            target_modules=keys.get("lora_target_modules", list(LAYERS)),
            modules_to_save=keys.get("lora_modules_to_save"),
            use_rslora=keys.get("use_rslora", False), use_dora=keys.get("use_dora", False)))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter), alpha=0.1)
        folder = self.dir / f"theirs-{name}"
        model.save_pretrained(folder)
        return folder, model

    def test_loss_and_gradients_equal_pefts(self):
        batch = in_order(self.rows, BATCH, 1)[0]
        for family in ("qwen2", "qwen3"):
            self.model = trainer.make_model(self.dir / family, family)
            for name, keys in KINDS.items():
                with self.subTest(name, family=family):
                    folder, model = self.random_adapter(f"{family}-{name}", **keys)
                    run = self.adapted(max_steps=1, adapter_path=str(folder), max_grad_norm=0,
                                       weight_decay=0)
                    self.assert_near(run.column("loss"), [mean_loss(model, batch)], 1e-5)
                    model.train()
                    trainer.gradients_of(model, batch, 1 / trainer.labels_of(batch))
                    theirs = {key.replace(".default", "").replace(".modules_to_save", "")
                                 .replace("lora_magnitude_vector.weight", "lora_magnitude_vector"):
                              parameter.grad.flatten()
                              for key, parameter in model.named_parameters()
                              if parameter.requires_grad}
                    ours = self.gradients(run.folder / "checkpoint-1")
                    self.assertEqual(sorted(ours), sorted(theirs))
                    for key, value in theirs.items():
                        self.assertLessEqual((ours[key] - value).norm().item(),
                                             1e-4 * value.norm().item(), key)

    def test_training_equals_pefts(self):
        for name, keys in KINDS.items():
            with self.subTest(name):
                recipe = self.recipe()
                begun = self.adapted(2, recipe=recipe, **{**keys, "max_steps": 1,
                                                          "learning_rate": 0})
                run = self.adapted(2, recipe=recipe, **{**keys, "learning_rate": 1e-3})
                model = self.tuned(begun.folder, trainable=True)
                losses, norms, _ = zip(*train_in_torch(model, in_order(self.rows, BATCH, STEPS),
                                                       1e-3))
                self.assert_near(run.column("loss"), losses, 2e-4, "loss")
                self.assert_near(run.column("grad_norm"), norms, 2e-4, "grad_norm")
                self.assert_same_logits(self.tuned(run.folder), model)

    def assert_same_logits(self, ours, theirs, limit=2e-3):
        ids = torch.tensor([self.rows[0]["input_ids"]])
        with torch.no_grad():
            difference = ours.eval()(ids).logits - theirs.eval()(ids).logits
        self.assertLess(difference.abs().max().item(), limit)

    def test_an_adapter_begins_as_the_base_model(self):
        batch = in_order(self.rows, BATCH, 1)[0]
        wanted = mean_loss(load_model(self.model), batch)
        for name, keys in {**KINDS, "pissa": PISSA,
                           "pissa_niter": dict(init_lora_weights="pissa_niter_4")}.items():
            with self.subTest(name):
                run = self.adapted(max_steps=1, **keys)
                self.assertAlmostEqual(run.column("loss")[0], wanted, places=4)

    def test_saved_and_merged_adapters_evaluate_as_in_peft(self):
        held_back = make_rows(9, seed=3)
        evaluated = str(trainer.write_rows(self.dir / "held-back.jsonl", held_back))
        for name, keys in {**KINDS, "pissa": dict(PISSA, use_rslora=True)}.items():
            with self.subTest(name):
                run = self.adapted(2, eval_dataset=evaluated, eval_strategy="steps",
                                   eval_steps=STEPS, **keys)
                model = self.tuned(run.folder)
                self.assertAlmostEqual(run.column("eval_loss", "eval")[-1],
                                       mean_loss(model, held_back), places=4)
                merged = self.dir / f"merged-{name}"
                self.run_program("merge", "--model", self.model, "--adapter", run.folder,
                                 "--output", merged)
                theirs = model.merge_and_unload().state_dict()
                ours = trainer.load_tensors(merged)
                self.assert_same_weights(ours, {key: theirs[key] for key in ours}, atol=1e-5)
                prompt = ("generate", "--prompt", "1+2=", "--max-new-tokens", "12")
                self.assertEqual(self.run_program(*prompt, "--model", merged),
                                 self.run_program(*prompt, "--model", self.model, "--adapter",
                                                  run.folder))

    def test_dora_has_the_same_result_for_all_ranks_and_stages(self):
        self.assert_any_world(use_dora=True)

    def test_resumed_kinds_are_bitwise_equal(self):
        for name, keys in {"dora": dict(use_dora=True, lora_dropout=0.1, zero_stage=1),
                           "pissa": PISSA, "pissa-3": dict(PISSA, zero_stage=3),
                           "loraplus": dict(loraplus_lr_ratio=8),
                           "neftune": dict(neftune_noise_alpha=5)}.items():
            with self.subTest(name):
                self.assert_resumes(name, **keys)

    def test_recomputation_of_dora_with_dropout_is_bitwise_equal(self):
        keys = dict(use_dora=True, lora_dropout=0.2)
        kept = self.adapted(2, gradient_checkpointing=False, **keys)
        for way in (True, "offload"):
            self.assert_same_adapter(self.adapted(2, gradient_checkpointing=way, **keys), kept)

    def test_dora_continues_from_a_saved_adapter(self):
        first = self.adapted(use_dora=True)
        run = self.adapted(max_steps=1, learning_rate=0, adapter_path=str(first.folder))
        self.assertIn("DoRA", run.notes)
        self.assert_same_weights(run.weights("adapter_model"), first.weights("adapter_model"))


class LoraPlus(KindsTest):
    def test_training_equals_pefts_optimizer(self):
        recipe = self.recipe()
        keys = dict(loraplus_lr_ratio=6, use_dora=True, lora_modules_to_save=["lm_head"])
        begun = self.adapted(2, recipe=recipe, **{**keys, "max_steps": 1, "learning_rate": 0})
        run = self.adapted(2, recipe=recipe, **{**keys, "learning_rate": 1e-3})
        model = self.tuned(begun.folder, trainable=True)
        optimizer = peft.optimizers.create_loraplus_optimizer(
            model, torch.optim.AdamW, lr=1e-3, loraplus_lr_ratio=6)
        losses, norms, _ = zip(*train_in_torch(model, in_order(self.rows, BATCH, STEPS), 1e-3,
                                               optimizer=optimizer))
        self.assert_near(run.column("loss"), losses, 2e-4, "loss")
        self.assert_near(run.column("grad_norm"), norms, 4e-4, "grad_norm")
        plain = self.adapted(2, recipe=recipe, **{**keys, "learning_rate": 1e-3,
                                                  "loraplus_lr_ratio": 1})
        self.assertNotEqual(run.column("loss")[2:], plain.column("loss")[2:])

    def test_ranks_and_stages_do_not_change_the_result(self):
        self.assert_any_world(loraplus_lr_ratio=4, optim="adamw_torch")


class Pissa(KindsTest):
    def test_training_equals_pefts(self):
        run = self.adapted(2, learning_rate=1e-3, **PISSA)
        model = peft.get_peft_model(load_model(self.model), peft.LoraConfig(
            task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=list(LAYERS),
            init_lora_weights="pissa"))
        losses, norms, _ = zip(*train_in_torch(model, in_order(self.rows, BATCH, STEPS), 1e-3))
        self.assert_near(run.column("loss"), losses, 2e-4, "loss")
        self.assert_near(run.column("grad_norm"), norms, 5e-4, "grad_norm")
        ids = torch.tensor([self.rows[0]["input_ids"]])
        with torch.no_grad():
            ours = self.tuned(run.folder)(ids).logits
            self.assertLess((ours - model.eval()(ids).logits).abs().max().item(), 2e-3)
        config = json.loads((run.folder / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], config["init_lora_weights"]),
                         (8, 16, True))

    def test_an_approximate_decomposition_is_near_the_exact_one(self):
        exact = self.adapted(**PISSA)
        near = self.adapted(pissa_init=True, pissa_iter=16)
        self.assert_near(near.column("loss"), exact.column("loss"), 1e-2)
        again = self.adapted(init_lora_weights="pissa_niter_16")
        self.assertEqual(again.column("loss"), near.column("loss"))

    def test_ranks_and_stages_do_not_change_the_result(self):
        self.assert_any_world(**PISSA)

    def test_models_from_scratch_and_bf16_begin_as_the_base_model(self):
        for dtype in ("fp32", "bf16"):
            with self.subTest(dtype):
                keys = dict(dtype=dtype, eval_strategy="steps", eval_steps=1, max_steps=1,
                            learning_rate=0, eval_dataset=str(self.data))
                wanted = self.adapted(**keys).column("eval_loss", "eval")
                got = self.adapted(**keys, **PISSA).column("eval_loss", "eval")
                self.assert_near(got, wanted, 1e-5 if dtype == "fp32" else 2e-2)

    def test_a_rank_above_the_sides_of_a_matrix_is_refused(self):
        job = self.start_training(1, **{**self.LORA, **PISSA, "lora_r": 64})
        run = self.end(job)
        self.assertEqual(run.status, 2, run.err)
        self.assertIn("lora_r: pissa needs at most 32, the smaller side of "
                      "model.layers.0.self_attn.k_proj.weight, not 64", run.err)


class Noise(KindsTest):
    def test_noise_changes_training_and_not_evaluation(self):
        keys = dict(max_steps=1, learning_rate=0, eval_strategy="steps", eval_steps=1,
                    eval_dataset=str(self.data))
        plain, noisy = self.adapted(**keys), self.adapted(neftune_noise_alpha=20, **keys)
        self.assertNotEqual(noisy.column("loss"), plain.column("loss"))
        self.assertEqual(noisy.column("eval_loss", "eval"), plain.column("eval_loss", "eval"))
        again = self.adapted(neftune_noise_alpha=20, **keys)
        self.assertEqual(again.column("loss"), noisy.column("loss"))

    def test_recomputation_with_noise_is_bitwise_equal(self):
        keys = dict(use_peft=False, neftune_noise_alpha=5, max_steps=3)
        kept = self.train(2, gradient_checkpointing=False, **keys)
        self.assert_same_course(self.train(2, gradient_checkpointing=True, **keys), kept)


@unittest.skipIf(peft is None, "no peft or bitsandbytes")
class EightBit(KindsTest):
    def dequantised(self):
        """The model with the weights that bitsandbytes' 8-bit layers stand for."""
        tensors = trainer.load_tensors(self.model)
        for name, tensor in tensors.items():
            if name.endswith(tuple(f"{layer}.weight" for layer in LAYERS)):
                codes, scales, _ = bnb.functional.int8_vectorwise_quant(tensor.half())
                tensors[name] = codes.float().mul_(scales.unsqueeze(1).mul(1 / 127))
        return self.with_weights(tensors)

    def in_bitsandbytes(self, threshold):
        return transformers.AutoModelForCausalLM.from_pretrained(
            self.model, dtype=torch.float32, device_map="cpu",
            quantization_config=transformers.BitsAndBytesConfig(
                load_in_8bit=True, llm_int8_threshold=threshold))

    def test_the_weights_are_those_of_bitsandbytes(self):
        for name, keys in {"lora": {}, "dora": dict(use_dora=True)}.items():
            with self.subTest(name):
                wanted = self.adapted(model_name_or_path=str(self.dequantised()), **keys)
                run = self.adapted(load_in_8bit=True, **keys)
                self.assert_same_adapter(run, wanted)
                self.assertNotEqual(run.column("loss"), self.adapted(**keys).column("loss"))

    def test_dora_on_4_bit_weights_trains_and_merges(self):
        run = self.adapted(load_in_4bit=True, use_dora=True)
        self.assertLess(run.column("loss")[-1], run.column("loss")[0] - 0.1)

    def test_the_adapter_evaluates_as_on_bitsandbytes_layers(self):
        """With a threshold near 0 bitsandbytes multiplies every column in the type of the input, as
        we do; by default it rounds most of the input to 8 bits."""
        held_back = make_rows(9, seed=3)
        run = self.adapted(2, load_in_8bit=True, eval_strategy="steps", eval_steps=STEPS,
                           eval_dataset=str(trainer.write_rows(self.dir / "held-back.jsonl",
                                                               held_back)))
        loss = run.column("eval_loss", "eval")[-1]
        exact = mean_loss(self.tuned(run.folder, model=self.in_bitsandbytes(1e-9)), held_back)
        self.assert_near([loss], [exact], 2e-5)
        usual = mean_loss(self.tuned(run.folder, model=self.in_bitsandbytes(6.0)), held_back)
        self.assert_near([loss], [usual], 1e-2)

    def test_ranks_and_stages_do_not_change_the_result(self):
        self.assert_any_world(load_in_8bit=True)

    def test_a_resumed_run_is_bitwise_equal(self):
        self.assert_resumes("int8", load_in_8bit=True, use_dora=True)

    def test_a_weight_that_is_not_finite_is_reported_by_name(self):
        tensors = trainer.load_tensors(self.model)
        name = "model.layers.1.mlp.up_proj.weight"
        tensors[name][3, 5] = float("inf")
        safetensors.torch.save_file(tensors, self.model / "model.safetensors",
                                    metadata={"format": "pt"})
        run = self.end(self.start_training(1, use_peft=True, load_in_8bit=True))
        self.assertEqual(run.status, 1)
        self.assertIn(f"{name}: a weight that is not finite", run.err)


@unittest.skipIf(peft is None, "no peft or bitsandbytes")
class BaseInFp8(KindsTest):
    """The hidden sizes are no multiples of 128, so the last block of each matrix is smaller."""

    def dequantised(self):
        """The model with the weights that fp8 stands for: a scale per 128 x 128 elements."""
        tensors = trainer.load_tensors(self.model)
        for name, tensor in tensors.items():
            if not name.endswith(tuple(f"{layer}.weight" for layer in LAYERS)):
                continue
            for rows in tensor.split(128):
                for block in rows.split(128, 1):
                    scale = block.abs().max() / 448
                    block.copy_((block / scale).to(torch.float8_e4m3fn).float() * scale)
        return self.with_weights(tensors)

    def test_the_loss_is_near_that_of_the_dequantised_weights(self):
        plain = self.adapted(model_name_or_path=str(self.dequantised()))
        run = self.adapted(fp8="base")
        self.assert_near(run.column("loss"), plain.column("loss"), 1e-2, "loss")
        self.assertNotEqual(run.column("loss"), plain.column("loss"))
        self.assertLess(run.column("loss")[-1], run.column("loss")[0] - 0.1)

    def test_ranks_and_stages_do_not_change_the_result(self):
        """Each token is rounded alone, so only the order of sums differs."""
        keys = dict(fp8="base", learning_rate=1e-3, global_batch_size=12,
                    per_device_train_batch_size=2)
        wanted = self.adapted(**keys)
        for nproc, stage in ((2, 1), (2, 3), (3, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                run = self.adapted(nproc, zero_stage=stage, **keys)
                self.assert_near(run.column("loss"), wanted.column("loss"), 1e-3, "loss")

    def test_a_resumed_run_is_bitwise_equal(self):
        self.assert_resumes("fp8", fp8="base")

    def test_recomputation_is_bitwise_equal(self):
        keys = dict(fp8="base", lora_dropout=0.1)
        self.assert_same_adapter(self.adapted(gradient_checkpointing=True, **keys),
                                 self.adapted(gradient_checkpointing=False, **keys))

    def test_a_weight_that_is_not_finite_is_reported_by_name(self):
        tensors = trainer.load_tensors(self.model)
        name = "model.layers.1.mlp.up_proj.weight"
        tensors[name][3, 5] = float("inf")
        safetensors.torch.save_file(tensors, self.model / "model.safetensors",
                                    metadata={"format": "pt"})
        run = self.end(self.start_training(1, use_peft=True, fp8="base"))
        self.assertEqual(run.status, 1)
        self.assertIn(f"{name}: a weight that is not finite", run.err)


class MlpInFp8(trainer.TrainerTest):
    def run_of(self, nproc=1, **keys):
        return self.train(nproc, **{"learning_rate": 1e-3, "max_steps": STEPS, **keys})

    def test_the_loss_is_near_that_of_exact_products(self):
        plain, run = self.run_of(), self.run_of(fp8="mlp")
        self.assert_near(run.column("loss"), plain.column("loss"), 1e-2, "loss")
        self.assertNotEqual(run.column("loss"), plain.column("loss"))

    def test_ranks_and_stages_do_not_change_the_result(self):
        keys = dict(fp8="mlp", global_batch_size=12, per_device_train_batch_size=2)
        wanted = self.run_of(**keys)
        for nproc, stage in ((2, 1), (2, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                run = self.run_of(nproc, zero_stage=stage, **keys)
                self.assert_near(run.column("loss"), wanted.column("loss"), 1e-3, "loss")

    def test_recomputation_is_bitwise_equal(self):
        self.assert_same_course(self.run_of(fp8="mlp", gradient_checkpointing=True),
                                self.run_of(fp8="mlp", gradient_checkpointing=False))


if __name__ == "__main__":
    unittest.main()
