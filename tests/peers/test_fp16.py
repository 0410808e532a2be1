"""Training in fp16 with a scaled loss, compared with fp32, bf16 and torch.amp.GradScaler."""

import json
import math
import subprocess
import unittest

import trainer
from grpo_trainer import GrpoTest
from trainer import in_order, labels_of, load_model, row_loss, write_rows

if not trainer.MISSING:
    import torch

FP16 = dict(dtype="fp16")
RTOL = 1e-3  # of losses and norms against fp32, whose last bits fp16 does not have


def train_with_grad_scaler(model, batches, rate, scale, interval):
    """Mixed precision as torch does it: fp32 weights, autocast to fp16, and GradScaler. Returns
    (loss, gradient norm, scale after the step) of each step; the norm is not finite if the step was
    skipped. Unlike in transformers, the learning rate is constant."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    history = []
    for batch in batches:
        labels, total = labels_of(batch), 0.0
        for row in batch:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = row_loss(model, row)[0]
            scaler.scale(loss / labels).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        history.append((total / labels, norm.item(), scaler.get_scale()))
    return history


class LossScale(trainer.TrainerTest):
    def test_losses_are_those_of_fp32(self):
        exact = self.train(1, dtype="fp32")
        run = self.train(1, **FP16)
        for key in ("loss", "grad_norm"):
            self.assert_near(run.column(key), exact.column(key), RTOL, key)
        self.assertNotEqual(run.column("loss"), exact.column("loss"))
        self.assertEqual(run.column("loss_scale"), [65536] * 10)
        self.assertNotIn("loss_scale", exact.records()[0])

    def test_the_scale_and_the_skipped_steps_are_those_of_grad_scaler(self):
        """The first scale overflows four times; later every doubling overflows. All steps have the
        same rows, and both arithmetics begin to overflow between 2^19.5 and 2^19.8."""
        self.rows = self.rows[:8]
        self.data = write_rows(self.dir / "eight.jsonl", self.rows)
        power, window, steps, rate = 23.2, 4, 24, 1e-5
        theirs = train_with_grad_scaler(load_model(self.model), in_order(self.rows, 8, steps), rate,
                                        2**power, window)
        scales = [scale for _, _, scale in theirs]
        skipped = [not math.isfinite(norm) for _, norm, _ in theirs]
        self.assertEqual(sum(skipped), 8)
        for nproc, stage in ((1, 0), (2, 1), (2, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                run = self.train(nproc, zero_stage=stage, recipe=self.recipe(
                    fp16=True, dtype="auto", initial_scale_power=power, loss_scale_window=window,
                    lr_scheduler_type="constant", learning_rate=rate, max_steps=steps))
                self.assert_near(run.column("loss_scale"), scales, 1e-6, "loss_scale")
                self.assertEqual([loss is None for loss in run.column("loss")], skipped)
                self.assertEqual(run.column("skipped_steps")[-1], sum(skipped))
                for key, wanted in (("loss", 0), ("grad_norm", 1)):
                    taken = [(ours, step[wanted]) for ours, step, skip
                             in zip(run.column(key), theirs, skipped) if not skip]
                    self.assert_near(*zip(*taken), 3e-3, key)
                self.assertIn("step 4: the gradient is not finite at loss scale", run.notes)
                self.assertIn("  loss scale ", run.out)

    def test_the_smallest_scale_ends_a_run_that_always_overflows(self):
        keys = dict(FP16, max_steps=30)
        for what, error, steps in (
                (dict(initial_scale_power=40, min_loss_scale=2**38),
                 f"step 12: the gradient is not finite at the smallest loss scale {2**38} "
                 "(steps in a row: 10); lower learning_rate", 11),
                (dict(initial_scale_power=40, min_loss_scale=2**38, on_non_finite="stop"),
                 f"step 3: the gradient is not finite at the smallest loss scale {2**38} "
                 "(steps in a row: 1); lower learning_rate", 2),
                (dict(loss_scale=1e30),
                 "step 10: the gradient is not finite at the fixed loss scale 1e+30 "
                 "(steps in a row: 10); set loss_scale: dynamic", 9)):
            with self.subTest(**what):
                run = self.end(self.start_training(2, **keys, **what))
                self.assertEqual(run.status, 1)
                self.assertIn(error, run.err)
                self.assertEqual(run.notes.count("; the step is skipped"), steps)
                self.assertFalse((run.folder / "model.safetensors").exists())

    def test_weights_that_are_ruined_end_the_run_with_what_to_do(self):
        """The first update makes the weights infinite: no scale helps."""
        run = self.end(self.start_training(2, **FP16, max_steps=60, learning_rate=1e30,
                                           lr_scheduler_type="constant", max_grad_norm=0))
        self.assertEqual(run.status, 1)
        self.assertIn("step 27: the gradient is not finite at the smallest loss scale 1 "
                      "(steps in a row: 10); lower learning_rate", run.err)

    def test_a_resumed_run_is_bitwise_equal_to_an_uninterrupted_one(self):
        """The checkpoint is between an overflow that hysteresis tolerates and the next one."""
        keys = dict(FP16, initial_scale_power=23, loss_scale_window=4, loss_scale_hysteresis=2,
                    lr_scheduler_type="constant", save_strategy="steps", save_steps=3)
        for nproc, stage in ((1, 0), (2, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                whole = self.train(nproc, max_steps=20, zero_stage=stage, **keys)
                self.assertGreater(whole.column("skipped_steps")[-1], 5)
                self.assertGreater(len(set(whole.column("loss_scale"))), 3)
                part = self.train(nproc, max_steps=12, zero_stage=stage, **keys)
                self.assertEqual(self.saved_scale(part, 12)["scale"],
                                 part.column("loss_scale")[-1])
                run = self.train(nproc, out=part.folder.name, max_steps=20, zero_stage=stage,
                                 **keys)
                self.assertIn("checkpoint-12 at step 12", run.notes)
                for key in ("loss", "grad_norm", "loss_scale"):
                    self.assertEqual(run.column(key), whole.column(key), key)
                self.assert_same_weights(run.weights(), whole.weights())
                self.assertEqual(self.saved_scale(run, 20), self.saved_scale(whole, 20))

    def saved_scale(self, run, step):
        state = run.folder / f"checkpoint-{step}" / "trainer_state.json"
        return json.loads(state.read_text())["loss_scale"]


class Invariance(trainer.TrainerTest):
    """As in test_invariance.py, within the rounding of fp16 instead of fp32."""

    BATCH = dict(FP16, global_batch_size=12, max_steps=8, adam_epsilon=1e-4)

    def course(self, nproc, **keys):
        return self.train(nproc, **{**self.BATCH, **keys})

    def test_ranks_stages_and_accumulation_do_not_change_the_result(self):
        """The first steps overflow, in every course the same ones."""
        keys = dict(initial_scale_power=22)
        first = self.course(1, per_device_train_batch_size=12, **keys)
        self.assertGreater(first.column("skipped_steps")[-1], 0)
        for nproc, size, stage in ((1, 4, 0), (2, 6, 0), (2, 3, 2), (3, 4, 3), (3, 2, 1)):
            with self.subTest(nproc=nproc, size=size, stage=stage):
                run = self.course(nproc, per_device_train_batch_size=size, zero_stage=stage, **keys)
                self.assertEqual(run.column("loss_scale"), first.column("loss_scale"))
                for key in ("loss", "grad_norm"):
                    ours, wanted = ([value for value in each.column(key) if value is not None]
                                    for each in (run, first))
                    self.assert_near(ours, wanted, 5e-4, key)
                self.assert_same_weights(run.weights(), first.weights(), 1e-3)

    def test_recomputation_and_overlap_are_bitwise_equal(self):
        size = dict(per_device_train_batch_size=3)
        first = self.course(2, gradient_checkpointing=False, zero_stage=0, **size)
        for keys in (dict(gradient_checkpointing=True), dict(gradient_checkpointing="offload"),
                     dict(overlap_comm=False)):
            with self.subTest(**keys):
                self.assert_same_course(self.course(2, **{"zero_stage": 0, **size, **keys}), first)


class Methods(trainer.TrainerTest):
    def test_every_optimizer_trains_in_fp16(self):
        for keys in (dict(optim="adamw_8bit"), dict(optim_dtype="bf16"), dict(weight_decay=0.1)):
            with self.subTest(**keys):
                exact = self.train(2, dtype="fp32", **keys)
                run = self.train(2, **FP16, **keys)
                self.assert_near(run.column("loss"), exact.column("loss"), 2e-3, "loss")

    def test_adapters_train_in_fp16_beside_a_base_of_16_or_4_bits(self):
        for keys in (dict(), dict(load_in_4bit=True), dict(lora_dropout=0.1)):
            lora = dict(use_peft=True, lora_r=4, learning_rate=1e-2, **{"lora_dropout": 0, **keys})
            with self.subTest(**keys):
                exact = self.train(2, dtype="fp32" if not keys.get("load_in_4bit") else "bf16",
                                   **lora)
                run = self.train(2, **FP16, **lora)
                limit = 5e-3 if keys.get("load_in_4bit") else 1e-3
                self.assert_near(run.column("loss"), exact.column("loss"), limit, "loss")
                self.assertLess(run.column("loss")[-1], run.column("loss")[0])
                for name, tensor in run.weights("adapter_model").items():
                    self.assertEqual(tensor.dtype, torch.float32, name)

    def test_the_saved_model_is_in_fp16_and_evaluates_the_same_in_transformers(self):
        held_back = trainer.make_rows(13, seed=2)
        evaluated = write_rows(self.dir / "held-back.jsonl", held_back)
        run = self.train(2, **FP16, eval_dataset=str(evaluated), eval_strategy="steps",
                         eval_steps=10)
        for folder in (run.folder, run.folder / "checkpoint-10"):
            config = json.loads((folder / "config.json").read_text())
            self.assertEqual(config.get("dtype", config.get("torch_dtype")), "float16")
            for name, tensor in trainer.load_tensors(folder).items():
                self.assertEqual(tensor.dtype, torch.float16, name)
            theirs = trainer.mean_loss(load_model(folder), held_back)
            self.assert_near(run.column("eval_loss", "eval"), [theirs], 1e-3)
        again = self.train(1, **FP16, model_name_or_path=str(run.folder), max_steps=1)
        self.assertLess(again.column("loss")[0], run.column("loss")[0])

    def test_an_adapter_merges_into_a_base_of_fp16(self):
        base = self.train(1, **FP16, max_steps=1)
        adapter = self.train(1, **FP16, model_name_or_path=str(base.folder), use_peft=True)
        merged = self.dir / "merged"
        subprocess.run([trainer.BIN / "mgpu-train", "merge", "--model", base.folder, "--adapter",
                        adapter.folder, "--output", merged], check=True, capture_output=True)
        for name, tensor in trainer.load_tensors(merged).items():
            self.assertEqual(tensor.dtype, torch.float16, name)
        self.assertIn("float16", (merged / "config.json").read_text())

    def test_files_of_accelerate_and_deepspeed_turn_fp16_on(self):
        sections = {"fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 12,
                             "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
                    "zero_optimization": {"stage": 2}}
        for name, content, keys, scale in (
                ("accelerate.yaml", {"distributed_type": "MULTI_CPU", "mixed_precision": "fp16"},
                 {}, 65536),
                ("deepspeed.json", sections, {"fp16": True}, 4096)):
            with self.subTest(name):
                path = self.dir / name
                path.write_text(json.dumps(content))
                recipe = self.recipe(deepspeed=str(path), max_steps=2, dtype="auto", **keys)
                run = self.train(2, recipe=recipe)
                self.assertEqual(run.column("loss_scale"), [scale] * 2)


class Grpo(GrpoTest):
    def setUp(self):
        super().setUp()
        self.keys = dict(FP16, reward_funcs=[self.mine("vowels")], beta=0.1)

    def test_grpo_has_the_gradient_of_fp32_on_any_ranks(self):
        """From the second step on, other weights draw other completions."""
        exact = self.train(1, **{**self.keys, "dtype": "fp32", "max_steps": 1})
        for nproc, stage in ((1, 0), (2, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                run = self.train(nproc, zero_stage=stage, **self.keys)
                self.assertEqual(run.column("loss_scale"), [65536] * 3)
                if run.column("reward")[0] != exact.column("reward")[0]:
                    self.skipTest("the products of this CPU in fp16 draw other completions")
                self.assert_near(run.column("grad_norm")[:1], exact.column("grad_norm"), RTOL)
                self.assertGreater(self.moved(run), 1e-4)

    def test_grpo_skips_steps_that_overflow_on_all_ranks(self):
        run = self.train(2, **self.keys, initial_scale_power=40)
        self.assertEqual(run.column("loss_scale"), [2**39, 2**38, 2**37])
        self.assertEqual(run.column("loss"), [None] * 3)
        self.assertEqual(run.column("skipped_steps")[-1], 3)
        for name, tensor in trainer.load_tensors(self.model).items():
            self.assertTrue(torch.equal(run.weights()[name], tensor.half()), name)
        self.refused(1, "step 2: the gradient is not finite at the smallest loss scale",
                     **self.keys, initial_scale_power=40, min_loss_scale=2**39,
                     on_non_finite="stop")


if __name__ == "__main__":
    unittest.main()
