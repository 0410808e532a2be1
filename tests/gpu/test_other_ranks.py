"""Resumes on another number of ranks, on GPUs. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B -m unittest -v test_other_ranks

The variables are those of test_determinism.py; ranks share a GPU where there are too few.
"""

import json
import math
import unittest

import test_determinism


class OtherRanks(test_determinism.Training):
    SAVING = {"save_strategy": "steps", "save_steps": 5, "lr_scheduler_type": "constant",
              "full_determinism": False}

    def losses(self, number):
        lines = (self.dir / f"output-{number}" / "metrics.jsonl").read_text().splitlines()
        records = map(json.loads, lines)
        return [record["loss"] for record in records if record["event"] == "train"]

    def assert_continues(self, ranks, other_ranks, **keys):
        """Both numbers of ranks have the same rows in a step."""
        rows, keys = self.token_rows(self.UNEQUAL), {**self.SAVING, **keys}
        batch = {count: {"ranks": count, "per_device_train_batch_size": 4 // count}
                 for count in (ranks, other_ranks)}
        self.train(rows, 0, **batch[ranks], **keys)
        whole = self.losses(0)
        self.train(rows, 1, **batch[ranks], **{**keys, "max_steps": 5})
        kept = self.dir / f"kept-{ranks}-{keys.get('zero_stage')}"
        (self.dir / "output-1" / "checkpoint-5").rename(kept)
        self.train(rows, 1, **batch[other_ranks], resume_from_checkpoint=str(kept), **keys)
        for one, other in zip(self.losses(1), whole[5:], strict=True):
            self.assertTrue(math.isclose(one, other, rel_tol=2e-3), (self.losses(1), whole))

    def test_a_checkpoint_of_one_gpu_continues_on_two_ranks(self):
        for stage in (0, 1, 3):
            with self.subTest(stage=stage):
                self.assert_continues(1, 2, zero_stage=stage)

    def test_a_checkpoint_of_two_ranks_continues_on_one_gpu(self):
        for stage in (0, 3):
            with self.subTest(stage=stage):
                self.assert_continues(2, 1, zero_stage=stage)

    def test_adapters_continue_on_two_ranks(self):
        self.assert_continues(1, 2, use_peft=True, lora_r=8)


if __name__ == "__main__":
    unittest.main()
