"""Trains repeatedly on a GPU and compares the weights: with `full_determinism: true` all bits must be
the same, without it the losses must agree up to rounding. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B -m unittest -v test_determinism

MGPU_BIN is the folder of mgpu-run and mgpu-train [build/bin], MGPU_REPEATS how often each case is
trained [2]. Where there is only one GPU, cases with two ranks let them share it (--oversubscribe).
"""

import glob
import hashlib
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import unittest

from random_model import write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build" / "bin"))
REPEATS = int(os.environ.get("MGPU_REPEATS", "2"))
VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES")
GPUS = len(glob.glob("/dev/nvidia[0-9]*")) if VISIBLE is None else len(VISIBLE.split(","))

# Heads of 64 with shared keys, as in Qwen2.5-0.5B: cuDNN and flash attention both support them.
CONFIG = {"vocab_size": 4096, "hidden_size": 896, "intermediate_size": 4864,
          "num_hidden_layers": 4, "num_attention_heads": 14, "num_key_value_heads": 2}


@unittest.skipIf(GPUS == 0, "needs a GPU")
class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        for name, tied in (("tied", True), ("untied", False)):
            write_model(cls.dir / name, {**CONFIG, "tie_word_embeddings": tied})

    KEYS = {"max_length": 1024, "per_device_train_batch_size": 4, "max_steps": 10,
            "gradient_accumulation_steps": 2, "learning_rate": 1e-4, "bf16": True,
            "gradient_checkpointing": False, "full_determinism": True, "logging_steps": 1,
            "save_strategy": "no"}
    EQUAL = [1024] * 80
    random.seed(2)
    UNEQUAL = [random.randrange(100, 1024) for _ in range(80)]
    LORA = {"use_peft": True, "lora_r": 8, "lora_dropout": 0.1}

    def train(self, rows, number, ranks=1, model="tied", **keys):
        """Returns the hashes of the files of weights, and the losses."""
        dataset = self.dir / "data.jsonl"
        dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
        output = self.dir / f"output-{number}"
        shutil.rmtree(output, ignore_errors=True)
        keys = {"model_name_or_path": str(self.dir / model), "dataset_name": str(dataset),
                "output_dir": str(output), **self.KEYS, **keys}
        recipe = self.dir / "recipe.yaml"
        recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()
                                  if value is not None))
        shared = ranks > GPUS
        if shared:
            print(f"{ranks} ranks share {GPUS} GPU", end=" ", flush=True)
        job = subprocess.run(
            [BIN / "mgpu-run", "--nproc", str(ranks), *["--oversubscribe"] * shared, recipe],
            capture_output=True, text=True, timeout=600,
            env={**os.environ, **({"NCCL_SOCKET_IFNAME": "lo"} if shared else {})})
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        records = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
        losses = [record["loss"] for record in records if "loss" in record]
        self.assertTrue(losses)
        files = sorted(output.glob("*.safetensors"))
        self.assertTrue(files)
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files], losses

    @staticmethod
    def token_rows(lengths):
        random.seed(1)
        # Few different tokens, so that many gradients are added to each row of the embedding.
        return [{"input_ids": [random.randrange(16) for _ in range(length)]}
                for length in lengths]

    def assert_repeats(self, lengths, **keys):
        runs = [self.train(self.token_rows(lengths), number, **keys)
                for number in range(REPEATS)]
        for run in runs[1:]:
            self.assertEqual(run[1], runs[0][1])
            self.assertEqual(run[0], runs[0][0])

    def assert_agrees(self, lengths, **keys):
        runs = [self.train(self.token_rows(lengths), number, full_determinism=False, **keys)
                for number in range(REPEATS)]
        same = len({str(run[0]) for run in runs})
        print(f"{same} different results of {REPEATS} runs", end=" ", flush=True)
        for run in runs[1:]:
            for one, other in zip(run[1], runs[0][1], strict=True):
                self.assertTrue(math.isclose(one, other, rel_tol=2e-2), (runs[0][1], run[1]))


class FullDeterminism(Training):
    def test_sequences_of_equal_length_repeat_bit_for_bit(self):
        self.assert_repeats(self.EQUAL)

    def test_sequences_of_unequal_length_repeat_bit_for_bit(self):
        self.assert_repeats(self.UNEQUAL)

    def test_one_sequence_per_micro_batch_repeats_bit_for_bit(self):
        self.assert_repeats(self.UNEQUAL, per_device_train_batch_size=1)

    def test_an_embedding_apart_from_the_head_repeats_bit_for_bit(self):
        self.assert_repeats(self.UNEQUAL, model="untied")

    def test_adapters_with_dropout_repeat_bit_for_bit(self):
        self.assert_repeats(self.UNEQUAL, **self.LORA)

    def test_adapters_with_a_trained_embedding_repeat_bit_for_bit(self):
        self.assert_repeats(self.UNEQUAL, lora_modules_to_save=["embed_tokens"], **self.LORA)

    def test_an_offloaded_embedding_has_the_bits_of_one_on_the_gpu(self):
        for keys in ({}, {"load_in_4bit": True}):
            with self.subTest(**keys):
                on_gpu, on_host = (
                    self.train(self.token_rows(self.UNEQUAL), place, model="untied",
                               offload_embedding=place, **keys, **self.LORA)
                    for place in (False, True))
                self.assertEqual(on_host, on_gpu)

    def test_recomputed_activations_repeat_bit_for_bit(self):
        self.assert_repeats(self.EQUAL, gradient_checkpointing=True)

    def test_fp32_repeats_bit_for_bit(self):
        self.assert_repeats(self.UNEQUAL[:32], bf16=None, dtype="fp32", max_steps=4)

    GRPO_ROWS = [{"prompt": f"{number}+{number * 7 % 10}="} for number in range(24)]
    GRPO = {"task": "grpo", "reward_funcs": ["letters", "digits"],
            "reward_rules": {"letters": {"regex": "[a-z]{2}", "otherwise": -0.5},
                             "digits": {"regex": "[0-9]"}},
            "num_generations": 8, "per_device_train_batch_size": 8, "max_length": None,
            "max_completion_length": 48, "max_steps": 3, "repetition_penalty": 1.1,
            "top_k": 50, "beta": 0.01, "num_iterations": 2, "entropy_coef": 0.01,
            "top_entropy_quantile": 0.5}

    def test_grpo_repeats_bit_for_bit(self):
        runs = [self.train(self.GRPO_ROWS, number, **self.GRPO) for number in range(REPEATS)]
        for run in runs[1:]:
            self.assertEqual(run, runs[0])

    def test_grpo_with_an_offloaded_embedding_has_the_bits_of_one_on_the_gpu(self):
        on_gpu, on_host = (
            self.train(self.GRPO_ROWS, place, model="untied", offload_embedding=place,
                       **self.GRPO, **self.LORA)
            for place in (False, True))
        self.assertEqual(on_host, on_gpu)

    def test_two_ranks_repeat_bit_for_bit_in_every_zero_stage(self):
        for stage in range(4):
            with self.subTest(stage=stage):
                self.assert_repeats(self.UNEQUAL, ranks=2, zero_stage=stage)

    def test_the_median_of_gradients_repeats_bit_for_bit(self):
        self.assert_repeats(self.UNEQUAL, ranks=2, gradient_aggregation="median")


class WithoutTheFlag(Training):
    def test_sequences_of_equal_length_agree_up_to_rounding(self):
        self.assert_agrees(self.EQUAL)

    def test_sequences_of_unequal_length_agree_up_to_rounding(self):
        self.assert_agrees(self.UNEQUAL)

    def test_adapters_agree_up_to_rounding(self):
        self.assert_agrees(self.UNEQUAL, **self.LORA)


if __name__ == "__main__":
    unittest.main()
