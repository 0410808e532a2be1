"""The ranges that a profiler sees, recorded by a small library that NVTX loads in its place."""

import os
import pathlib
import unittest
import unittest.mock

import grpo_trainer
import trainer

RECORDER = trainer.BIN.parent / "lib" / "libnvtx_recorder.so"
STEP = {"step", "step > forward", "step > head", "step > backward", "step > optimizer"}


def in_backward(name):
    return f"step > backward > {name}"


@unittest.skipUnless(RECORDER.exists(), "built without NVTX")
class Recorded:
    """`ranges(nproc, keys)` trains and returns the ranges of each rank, with the ranges around
    them."""

    def ranges(self, nproc, **keys):
        stem = self.dir / f"ranges-{self.runs}"
        with unittest.mock.patch.dict(os.environ, NVTX_INJECTION64_PATH=str(RECORDER),
                                      NVTX_RECORD=str(stem)):
            self.train(nproc, **keys)
        files = sorted(self.dir.glob(stem.name + ".*"))
        self.assertEqual(len(files), nproc)
        return [pathlib.Path(file).read_text().splitlines() for file in files]


class Sft(Recorded, trainer.TrainerTest):
    KEYS = dict(max_steps=2, save_strategy="no", save_final_model=False)

    def test_one_rank_has_the_parts_of_each_step(self):
        (lines,) = self.ranges(1, **self.KEYS)
        self.assertEqual(set(lines), STEP)
        # Two steps, each of two micro-batches.
        self.assertEqual([lines.count(name) for name in sorted(STEP)], [2, 4, 4, 4, 2])

    def test_an_evaluation_has_its_own_forward_and_head(self):
        (lines,) = self.ranges(1, **self.KEYS, eval_strategy="steps", eval_steps=2, val_set_size=8)
        self.assertEqual(set(lines) - STEP,
                         {"evaluate", "evaluate > forward", "evaluate > head"})

    def test_collectives_are_named_in_the_part_of_the_step_that_starts_them(self):
        for stage, expected in ((0, {in_backward("all-reduce of gradients")}),
                                (2, {in_backward("reduce-scatter of gradients"),
                                     "step > all-gather of updated weights"}),
                                (3, {in_backward("reduce-scatter of gradients"),
                                     in_backward("all-gather of weights"),
                                     "step > forward > all-gather of weights"})):
            with self.subTest(stage=stage):
                for lines in self.ranges(2, **self.KEYS, zero_stage=stage):
                    self.assertLessEqual(
                        STEP | expected | {"step > all-reduce of losses and norms"}, set(lines))


class Grpo(Recorded, grpo_trainer.GrpoTest):
    def test_generation_and_rewards_have_ranges_outside_of_the_step(self):
        (lines,) = self.ranges(1, max_steps=2)
        self.assertEqual(set(lines), STEP | {"rollout", "rollout > prefill", "rollout > decode",
                                             "reward"})
        self.assertEqual(lines.count("rollout"), 2)
        self.assertGreater(lines.count("rollout > decode"), lines.count("rollout > prefill"))


if __name__ == "__main__":
    unittest.main()
