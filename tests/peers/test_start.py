"""What a run prints and writes at its start: the ranks, their devices, the batch arithmetic."""

import unittest

from trainer import TrainerTest


class Start(TrainerTest):
    def test_each_rank_has_a_line_then_the_trainer_and_the_batch_arithmetic(self):
        run = self.train(4, per_device_train_batch_size=2, global_batch_size=8, max_steps=1)
        lines = run.column("text", "note")
        for rank, line in enumerate(lines[:4]):
            self.assertRegex(line, rf"\Arank {rank} of 4 initialized on the CPU, pid \d+\Z")
        self.assertEqual(lines[4:6], [
            "distributed trainer initialized: 4 ranks on 1 host, backend gloo",
            "8 sequences per step = 2 per device x 4 ranks x 1 accumulation"])
        for line in lines[:6]:
            self.assertEqual(run.out.splitlines().count(line), 1, line)

    def test_one_rank_has_one_line_and_the_batch_arithmetic(self):
        run = self.train(1, per_device_train_batch_size=2, global_batch_size=8, max_steps=1)
        self.assertEqual(run.column("text", "note")[:2], [
            "trainer initialized: 1 rank on the CPU",
            "8 sequences per step = 2 per device x 1 rank x 4 accumulation"])


if __name__ == "__main__":
    unittest.main()
