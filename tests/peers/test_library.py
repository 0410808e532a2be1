"""A C++ program that uses the trainer library gives the same result as mgpu-train."""

import os
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
        self.assertIn("rank 0 of 1: step 4 of 4: loss ", done.stdout)
        self.assert_same_weights(trainer.load_tensors(out), wanted.weights())


if __name__ == "__main__":
    unittest.main()
