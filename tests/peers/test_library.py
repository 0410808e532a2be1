"""A C++ program that uses the trainer library gives the same result as mgpu-train."""

import os
import re
import subprocess
import unittest

import trainer
from trainer import BIN


class Library(trainer.TrainerTest):
    def test_the_example_trains_as_mgpu_train_does(self):
        wanted = self.train(max_steps=4)
        out = self.dir / "by-library"
        recipe = self.recipe(max_steps=4, output_dir=str(out))
        done = subprocess.run([BIN / "trainer_example", recipe], capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1",
                                   "CUDA_VISIBLE_DEVICES": ""}, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("rank 0 of 1: step 4 of 4: 4 steps with 32 examples in ", done.stdout)
        self.assert_same_weights(trainer.load_tensors(out), wanted.weights())

    def test_an_epoch_returns_its_steps_samples_loss_and_times(self):
        """With the optimizer and the aggregation as unsloth-multigpu's direct trainer has them."""
        out = self.dir / "by-library"
        recipe = self.dir / "direct.yaml"
        recipe.write_text(f"""
model_name_or_path: {self.model}
dataset_name: {self.data}
dataset_prepared_path: {self.dir / "tokens"}
output_dir: {out}
dtype: fp32
global_batch_size: 8
num_train_epochs: 2
logging_steps: 1
optimizer_config:
  class: torch.optim.AdamW
  kwargs: {{lr: 2e-5, weight_decay: 0.01}}
aggregation_method: AggregationMethod.MEAN
""")
        done = subprocess.run([BIN / "trainer_example", recipe], capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1",
                                   "CUDA_VISIBLE_DEVICES": ""}, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        epochs = re.findall(r"step (\d+) of 16: 8 steps with 64 examples in ([\d.]+) s "
                            r"\(([\d.]+) s each\), mean loss ([\d.]+)", done.stdout)
        self.assertEqual([int(step) for step, *_ in epochs], [8, 16], done.stdout)
        records = trainer.Run(0, "", "", out).records()
        for number, (_, time, step_time, loss) in enumerate(epochs):
            self.assertAlmostEqual(float(time) / 8, float(step_time), delta=0.002)
            steps = records[8 * number:8 * number + 8]
            losses = [record["loss"] for record in steps]
            self.assertLessEqual(min(losses), float(loss) + 1e-4)
            self.assertGreaterEqual(max(losses), float(loss) - 1e-4)
            self.assertAlmostEqual(sum(losses) / 8, float(loss), delta=0.05)


if __name__ == "__main__":
    unittest.main()
