"""The same training, however it is spread: losses and weights do not depend on ranks, micro-batches,
ZeRO stage, recomputation or overlap."""

import pathlib
import tempfile
import unittest

import trainer

STEPS = 4


class Invariance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.dir = pathlib.Path(folder.name)
        trainer.make_model("qwen3", cls.dir / "model")
        trainer.write_rows(cls.dir / "rows.jsonl", trainer.make_rows(30, seed=3))
        cls.recipe = trainer.write_recipe(
            cls.dir / "recipe.yaml", model_name_or_path=str(cls.dir / "model"),
            dataset_name=str(cls.dir / "rows.jsonl"), dataset_prepared_path=str(cls.dir / "cache"),
            global_batch_size=12, per_device_train_batch_size=12, max_steps=STEPS,
            gradient_checkpointing=False, shuffle_dataset=True)
        cls.wanted = cls.run_with(1)

    @classmethod
    def run_with(cls, ranks, **settings):
        output = cls.dir / ("out" + str(len(list(cls.dir.glob("out*")))))
        trainer.train(cls.recipe, ranks=ranks, output_dir=output, **settings)
        return (trainer.metrics(output, "loss"), trainer.metrics(output, "grad_norm"),
                trainer.weights(output))

    def assert_same(self, got, wanted, tolerance):
        for ours, theirs in zip(got[:2], wanted[:2]):
            self.assertEqual(len(ours), STEPS)
            for a, b in zip(ours, theirs):
                self.assertLessEqual(abs(a - b), tolerance * abs(b))
        self.assertEqual(got[2].keys(), wanted[2].keys())
        for name, tensor in got[2].items():
            # AdamW's first steps are the gradient's sign: noise shows where a gradient is near 0.
            far = float((tensor - wanted[2][name]).abs().max())
            self.assertLessEqual(far, 100 * tolerance * 1e-2, name)

    def test_any_number_of_ranks(self):
        for ranks, batch in ((2, 6), (3, 4), (4, 3)):
            with self.subTest(ranks=ranks):
                self.assert_same(self.run_with(ranks, per_device_train_batch_size=batch),
                                 self.wanted, 1e-4)

    def test_any_accumulation(self):
        for batch in (6, 3, 1):
            with self.subTest(per_device=batch):
                self.assert_same(self.run_with(1, per_device_train_batch_size=batch), self.wanted,
                                 1e-4)

    def test_any_zero_stage(self):
        for ranks, batch, stage in ((2, 3, 1), (2, 3, 2), (2, 6, 3), (3, 2, 2), (3, 4, 3)):
            with self.subTest(ranks=ranks, stage=stage):
                self.assert_same(
                    self.run_with(ranks, per_device_train_batch_size=batch, zero_stage=stage),
                    self.wanted, 1e-4)

    def test_recomputing_changes_no_bit(self):
        for how in ("true", "offload"):
            with self.subTest(how=how):
                self.assert_same(self.run_with(1, gradient_checkpointing=how), self.wanted, 0)

    def test_overlap_changes_no_bit(self):
        for stage in (0, 1, 2):
            with self.subTest(stage=stage):
                settings = dict(per_device_train_batch_size=6, zero_stage=stage)
                self.assert_same(self.run_with(2, overlap_comm="false", **settings),
                                 self.run_with(2, overlap_comm="true", **settings), 0)

    def test_packing_everything_into_bins_is_the_same_step(self):
        # One step over all rows: packed or not, these are the same examples.
        whole = dict(max_steps=1, global_batch_size=30, per_device_train_batch_size=30)
        loose = self.run_with(1, **whole)
        packed = self.run_with(1, packing="true", **whole)
        self.assertLess(abs(loose[0][0] - packed[0][0]), 1e-5 * loose[0][0])
        self.assertLess(abs(loose[1][0] - packed[1][0]), 1e-4 * loose[1][0])

    def test_aggregations_of_one_rank_are_all_its_mean(self):
        for how in ("mean", "sum", "median"):
            with self.subTest(how=how):
                self.assert_same(self.run_with(1, gradient_aggregation=how), self.wanted, 1e-5)

    def test_two_ranks_agree_on_mean_and_lower_median(self):
        for how in ("mean", "median"):
            with self.subTest(how=how):
                got = self.run_with(2, gradient_aggregation=how, per_device_train_batch_size=6)
                self.assertLess(abs(got[0][0] - self.wanted[0][0]), 1e-4 * got[0][0])
                self.assertNotEqual(got[1][0], self.wanted[1][0])


if __name__ == "__main__":
    unittest.main()
