"""Trains in fp16 on a GPU, with every kernel that fp16 has there, and compares with fp32 and bf16.
Run by hand, with a Python that has torch:

    cd tests/gpu; python -B -m unittest -v test_fp16

The variables are those of test_determinism.py; two ranks share a single GPU. The kernels alone are compared by kernels_check, gradients with those of transformers by
tests/peers/test_gradients.py.
"""

import json
import math
import subprocess
import unittest

import test_determinism
from test_determinism import BIN

FP16 = {"bf16": None, "fp16": True}
FP32 = {"bf16": None, "dtype": "fp32"}


class Training(test_determinism.Training):
    def column(self, number, key):
        lines = (self.dir / f"output-{number}" / "metrics.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return [record[key] for record in records if record["event"] == "train"]

    def assert_near(self, ours, theirs, rtol):
        for one, other in zip(ours, theirs, strict=True):
            self.assertTrue(math.isclose(one, other, rel_tol=rtol), (ours, theirs))

    def assert_losses_of_fp32(self, lengths, rtol=2e-3, **keys):
        rows = self.token_rows(lengths)
        exact = self.train(rows, "exact", **{**keys, **FP32})[1]
        losses = self.train(rows, "fp16", **{**keys, **FP16})[1]
        self.assertEqual(set(self.column("fp16", "loss_scale")), {65536})
        self.assert_near(losses, exact, rtol)


class Losses(Training):
    def test_sequences_of_equal_length_have_the_losses_of_fp32(self):
        """cuDNN computes the attention."""
        self.assert_losses_of_fp32(self.EQUAL, full_determinism=False)

    def test_sequences_of_unequal_length_have_the_losses_of_fp32(self):
        """Flash attention computes the attention."""
        self.assert_losses_of_fp32(self.UNEQUAL, full_determinism=False)

    def test_recomputed_and_offloaded_activations_have_the_losses_of_fp32(self):
        for way in (True, "offload"):
            with self.subTest(way):
                self.assert_losses_of_fp32(self.UNEQUAL[:32], gradient_checkpointing=way,
                                           max_steps=4)

    def test_optimizers_have_the_losses_of_fp32(self):
        for keys in ({"optim": "adamw_8bit"}, {"optim_dtype": "bf16"}):
            with self.subTest(**keys):
                self.assert_losses_of_fp32(self.UNEQUAL[:32], max_steps=4, **keys)

    def test_adapters_have_the_losses_of_fp32(self):
        self.assert_losses_of_fp32(self.UNEQUAL, use_peft=True, lora_r=8, lora_dropout=0)

    def test_adapters_on_4_bit_weights_have_the_losses_of_bf16(self):
        """fp32 does not compute with 4-bit weights."""
        rows, lora = self.token_rows(self.UNEQUAL), {**self.LORA, "load_in_4bit": True}
        coarse = self.train(rows, "bf16", **lora)[1]
        self.assert_near(self.train(rows, "fp16", **lora, **FP16)[1], coarse, 1e-2)

    def test_two_ranks_have_the_losses_of_fp32_in_every_zero_stage(self):
        for stage in range(4):
            with self.subTest(stage=stage):
                self.assert_losses_of_fp32(self.UNEQUAL, ranks=2, zero_stage=stage)


class LossScale(Training):
    def test_overflows_halve_the_scale_and_update_nothing(self):
        """Scales far above the range of fp16, until they fit; then training goes on."""
        rows = self.token_rows(self.EQUAL * 3)
        self.train(rows, 0, **FP16, initial_scale_power=32, max_steps=24)
        scale, losses = 2.0**32, self.column(0, "loss")
        for loss, after in zip(losses, self.column(0, "loss_scale"), strict=True):
            scale /= 1 if loss is not None else 2
            self.assertEqual(after, scale)
        self.assertEqual(losses[:3], [None] * 3)
        taken = [loss for loss in losses if loss is not None]
        self.assertGreater(len(taken), 4)
        self.assertLess(taken[-1], taken[0])

    def test_two_ranks_skip_the_same_steps(self):
        rows = self.token_rows(self.UNEQUAL * 3)
        self.train(rows, 1, **FP16, initial_scale_power=32, max_steps=12)
        for stage in range(4):
            with self.subTest(stage=stage):
                self.train(rows, 2, ranks=2, zero_stage=stage, **FP16, initial_scale_power=32,
                           max_steps=12, per_device_train_batch_size=2)
                self.assertEqual(self.column(2, "loss_scale"), self.column(1, "loss_scale"))

    def test_a_run_that_always_overflows_ends_with_what_to_do(self):
        with self.assertRaises(AssertionError) as failed:
            self.train(self.token_rows(self.EQUAL), 3, **FP16, loss_scale=1e30, max_steps=20)
        self.assertIn("step 10: the gradient is not finite at the fixed loss scale 1e+30",
                      str(failed.exception))


class FullDeterminism(Training):
    def test_fp16_repeats_bit_for_bit(self):
        self.assert_repeats(self.EQUAL, **FP16)
        self.assert_repeats(self.UNEQUAL, **FP16)

    def test_a_resumed_run_repeats_bit_for_bit(self):
        keys = {**FP16, "initial_scale_power": 30, "loss_scale_window": 3, "save_strategy": "steps",
                "save_steps": 5, "lr_scheduler_type": "constant"}
        rows = self.token_rows(self.UNEQUAL)
        whole = self.train(rows, 0, **keys)
        self.train(rows, 1, **{**keys, "max_steps": 5})
        checkpoint = self.dir / "output-1" / "checkpoint-5"
        kept = checkpoint.rename(self.dir / "checkpoint-5")
        run = self.train(rows, 1, resume_from_checkpoint=str(kept), **keys)
        self.assertEqual(run[0], whole[0])
        self.assertEqual(self.column(1, "loss_scale"), self.column(0, "loss_scale")[5:])


class Grpo(Training):
    def test_completions_have_the_probabilities_of_the_trained_model(self):
        """The paged kernels generate, the ordinary ones train."""
        rows = [{"prompt": f"{number}+{number * 7 % 10}="} for number in range(24)]
        keys = {"task": "grpo", "reward_funcs": ["letters"], "num_generations": 8,
                "reward_rules": {"letters": {"regex": "[a-z]{2}", "otherwise": -0.5}},
                "per_device_train_batch_size": 8, "max_length": None, "max_completion_length": 48,
                "max_steps": 3, "beta": 0.01}
        apart = {}
        for name, dtype in (("bf16", {}), ("fp16", FP16)):
            self.train(rows, name, **{**keys, **dtype})
            apart[name] = self.column(name, "sampling/sampling_logp_difference/mean")
        self.assertEqual(set(self.column("fp16", "loss_scale")), {65536})
        print(apart, end=" ", flush=True)
        self.assertLess(max(apart["fp16"]), max(apart["bf16"]))


class Speed(Training):
    def test_fp16_is_about_as_fast_as_bf16(self):
        """It waits once a step; its kernels move the same bytes."""
        speed = {}
        for name, dtype in (("bf16", {}), ("fp16", FP16)):
            self.train(self.token_rows(self.EQUAL), name, full_determinism=False, max_steps=30,
                       **dtype)
            speed[name] = max(self.column(name, "tokens_per_second"))
        print(speed, end=" ", flush=True)
        self.assertGreater(speed["fp16"], 0.85 * speed["bf16"])


class Commands(Training):
    def test_a_model_saved_in_fp16_generates(self):
        self.train(self.token_rows(self.EQUAL), 0, **FP16, max_steps=2)
        out = subprocess.run([BIN / "mgpu-train", "generate", "--model", self.dir / "output-0",
                              "--prompt", "1+1=", "--max-new-tokens", "8"],
                             capture_output=True, text=True, timeout=300)
        self.assertEqual(out.returncode, 0, out.stderr)


if __name__ == "__main__":
    unittest.main()
