"""Checkpoints that are copied from a GPU while it computes the next step have the bytes of those that are
written while training stands still. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B -m unittest test_background_save
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import unittest

import torch
from random_model import SHAPES, write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build" / "bin"))


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class BackgroundSave(unittest.TestCase):
    """Short steps: the optimizer has to wait until its state is copied."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mgpu-saves-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        write_model(self.dir / "model", SHAPES["0.5B"])
        random.seed(1)
        (self.dir / "rows.jsonl").write_text("".join(
            json.dumps({"input_ids": [random.randrange(1000) for _ in range(128)]}) + "\n"
            for _ in range(64)))

    def train(self, nproc, **keys):
        output = self.dir / f"output-{nproc}-{keys['async_save']}"
        keys = {"model_name_or_path": str(self.dir / "model"),
                "dataset_name": str(self.dir / "rows.jsonl"), "output_dir": str(output),
                "dataset_prepared_path": str(self.dir / "tokens"), "max_length": 128,
                "per_device_train_batch_size": 1, "learning_rate": 1e-4, "logging_steps": 1,
                "max_steps": 6, "save_steps": 2, "save_final_model": False,
                "full_determinism": True, **keys}
        recipe = self.dir / "recipe.yaml"
        recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
        job = subprocess.run([BIN / "mgpu-run", "--nproc", str(nproc), recipe], capture_output=True,
                             text=True)
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        return output

    def files_of(self, output, step):
        manifest = json.loads((output / f"checkpoint-{step}" / "manifest.json").read_text())
        return {name: file for name, file in manifest["files"].items()
                if name != "trainer_state.json"}

    def compare(self, nproc, **keys):
        at_once = self.train(nproc, async_save=False, **keys)
        in_background = self.train(nproc, async_save=True, **keys)
        for step in (2, 4, 6):
            self.assertEqual(self.files_of(in_background, step), self.files_of(at_once, step))
        records = map(json.loads, (in_background / "metrics.jsonl").read_text().splitlines())
        self.assertEqual([record["in_background"] for record in records
                          if record["event"] == "checkpoint"], [True] * 3)
        for output in (at_once, in_background):
            shutil.rmtree(output)

    def test_whole_models_of_one_rank(self):
        self.compare(1)

    def test_adapters_and_8_bit_moments(self):
        self.compare(1, use_peft=True, lora_r=16, lora_target_modules=["all-linear"])
        self.compare(1, use_peft=True, lora_r=16, lora_target_modules=["all-linear"],
                     init_lora_weights="pissa_niter_4")
        self.compare(1, optim="adamw_8bit")

    @unittest.skipUnless(torch.cuda.device_count() > 1, "needs two GPUs")
    def test_sharded_states_of_two_ranks(self):
        for stage in (0, 1, 2, 3):
            with self.subTest(stage=stage):
                self.compare(2, zero_stage=stage)


if __name__ == "__main__":
    unittest.main()
