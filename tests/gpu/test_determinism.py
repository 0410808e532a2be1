"""Trains twice on a GPU with `full_determinism: true` and expects the same bits. Run by hand, with a
Python that has torch and transformers:

    cd tests/gpu; python -B -m unittest -v test_determinism

MGPU_BIN is the folder of mgpu-run and mgpu-train [build/bin].
"""

import glob
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build" / "bin"))
TOKENIZER = ROOT / "docs" / "examples" / "tokenizer"


@unittest.skipIf(not glob.glob("/dev/nvidia[0-9]*"), "needs a GPU")
class FullDeterminism(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import torch
        import transformers
        cls.dir = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        torch.manual_seed(0)
        # Heads of 64, as in Qwen2.5-0.5B: cuDNN and flash attention both support them.
        config = transformers.Qwen2Config(
            vocab_size=4096, hidden_size=896, intermediate_size=4864, num_hidden_layers=4,
            num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(cls.dir / "model")
        shutil.copytree(TOKENIZER, cls.dir / "model", dirs_exist_ok=True)

    def bits(self, lengths, number):
        random.seed(1)
        data = self.dir / "data.jsonl"
        data.write_text("".join(
            json.dumps({"input_ids": [random.randrange(16) for _ in range(length)]}) + "\n"
            for length in lengths))
        output = self.dir / f"output-{number}"
        keys = {"model_name_or_path": self.dir / "model", "dataset_name": data,
                "max_length": 1024, "per_device_train_batch_size": 4, "max_steps": 10,
                "gradient_accumulation_steps": 2, "learning_rate": "1.0e-4", "bf16": "true",
                "gradient_checkpointing": "false", "full_determinism": "true",
                "output_dir": output}
        recipe = self.dir / "recipe.yaml"
        recipe.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
        job = subprocess.run([BIN / "mgpu-run", "--nproc", "1", recipe], capture_output=True,
                             text=True, timeout=300)
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        return [hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(output.glob("*.safetensors"))]

    def assert_repeats(self, lengths):
        first, second = self.bits(lengths, 1), self.bits(lengths, 2)
        self.assertTrue(first)
        self.assertEqual(first, second)

    def test_sequences_of_equal_length_repeat_bit_for_bit(self):
        self.assert_repeats([1024] * 80)

    def test_sequences_of_unequal_length_repeat_bit_for_bit(self):
        random.seed(2)
        self.assert_repeats([random.randrange(100, 1024) for _ in range(80)])


if __name__ == "__main__":
    unittest.main()
