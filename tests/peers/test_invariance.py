"""Invariance of training results: ranks, accumulation, ZeRO, recomputation, packing, overlap.

Sums in another order differ in the last bits, so other numbers of ranks agree to 1e-4; where the
same sums are made in the same order, every bit agrees.
"""

import unittest

import trainer
from trainer import gradients_of, labels_of, load_model, make_rows, write_rows

if not trainer.MISSING:
    import torch

RTOL = 1e-4  # of losses and norms
ATOL = 2e-5  # of weights, after ten steps of 1e-3


class Invariance(trainer.TrainerTest):
    # AdamW divides by the size of the gradient: where that is near 0, its default epsilon makes
    # an update of full size out of rounding, whose amount depends on the CPU.
    BATCH = dict(global_batch_size=12, max_steps=8, adam_epsilon=1e-4)

    def course(self, nproc, **keys):
        return self.train(nproc, **{**self.BATCH, **keys})

    def assert_alike(self, runs, first):
        for what, run in runs.items():
            with self.subTest(what):
                self.assert_same_course(run, first, RTOL, ATOL)

    def test_the_number_of_ranks_does_not_change_the_result(self):
        alone = self.course(1, per_device_train_batch_size=12)
        self.assert_alike({f"{n} ranks": self.course(n, per_device_train_batch_size=12 // n)
                           for n in (2, 3, 4)}, alone)

    def test_accumulation_does_not_change_the_result(self):
        whole = self.course(1, per_device_train_batch_size=12)
        self.assert_alike({f"{n} ranks, {size} at a time":
                           self.course(n, per_device_train_batch_size=size)
                           for n, size in ((1, 1), (1, 4), (2, 1), (3, 2))}, whole)

    def test_a_short_last_batch_does_not_change_the_result(self):
        """50 rows in steps of 12: the fifth step of an epoch has two rows, fewer than ranks."""
        data = write_rows(self.dir / "fifty.jsonl", make_rows(50))
        keys = dict(dataset_name=str(data), shuffle_dataset=True)
        alone = self.course(1, per_device_train_batch_size=12, **keys)
        self.assertLess(alone.column("tokens")[4], alone.column("tokens")[3] / 2)
        self.assert_same_course(self.course(4, per_device_train_batch_size=3, **keys), alone, RTOL,
                                ATOL)

    def test_timed_matrix_products_change_nothing_without_a_gpu(self):
        size = dict(per_device_train_batch_size=6, max_steps=3)
        first = self.course(2, **size)
        timed = self.course(2, gemm_choice="timed", **size)
        self.assert_same_course(timed, first)
        self.assertIn("gemm_choice: timed has no effect: there are no GPUs", timed.notes)
        self.assertFalse((timed.folder / "gemm_choices.json").exists())

    def test_zero_stages_do_not_change_the_result(self):
        for nproc in (2, 3):
            size = dict(per_device_train_batch_size=2)
            first = self.course(nproc, **size)
            self.assert_alike({f"{nproc} ranks, stage {stage}":
                               self.course(nproc, zero_stage=stage, **size)
                               for stage in (1, 2, 3)}, first)

    def test_the_distribution_of_work_does_not_change_the_result(self):
        """The sums do not depend on which rank computes what; each case is a distribution of work."""
        size = dict(per_device_train_batch_size=2)
        first = self.course(3, **size)
        self.assertNotIn("work shares", first.notes)
        for keys, shares in ((dict(batch_sharding="weighted", gpu_weights=[1, 4, 3]),
                              "step 1: work shares by rank: 0.125 0.500 0.375"),
                             (dict(batch_sharding="weighted", gpu_weights=[0, 1, 1]),
                              "step 1: work shares by rank: 0.000 0.500 0.500"),
                             (dict(batch_sharding="adaptive"), "work shares by rank: 0.")):
            for stage in (0, 3):
                with self.subTest(**keys, stage=stage):
                    run = self.course(3, zero_stage=stage, **size, **keys)
                    self.assertIn(shares, run.notes)
                    self.assert_same_course(run, first, RTOL, ATOL)

    def test_small_buckets_do_not_change_the_result(self):
        first = self.course(2, per_device_train_batch_size=3)
        self.assert_alike({f"stage {stage}": self.course(
            2, per_device_train_batch_size=3, zero_stage=stage, reduce_bucket_size=1000,
            allgather_bucket_size=1000) for stage in (0, 3)}, first)

    def test_zero_stages_do_not_change_the_result_with_adapters(self):
        lora = dict(use_peft=True, lora_r=4, lora_dropout=0.0, per_device_train_batch_size=3)
        first = self.course(1, **lora)
        for nproc, stage in ((2, 0), (2, 2), (2, 3)):
            run = self.course(nproc, zero_stage=stage, **lora)
            with self.subTest(nproc=nproc, stage=stage):
                self.assert_near(run.column("loss"), first.column("loss"), RTOL, "loss")
                self.assert_same_weights(run.weights("adapter_model"),
                                         first.weights("adapter_model"), ATOL)

    def test_recomputation_is_bitwise_equal(self):
        for nproc, stage in ((1, 0), (2, 3)):
            size = dict(per_device_train_batch_size=3, zero_stage=stage)
            kept = self.course(nproc, gradient_checkpointing=False, **size)
            for way in (True, "offload"):
                with self.subTest(nproc=nproc, stage=stage, way=way):
                    self.assert_same_course(self.course(nproc, gradient_checkpointing=way, **size),
                                            kept)

    def test_any_number_of_recomputed_layers_is_bitwise_equal(self):
        for nproc, stage in ((1, 0), (2, 3)):
            size = dict(per_device_train_batch_size=3, zero_stage=stage)
            kept = self.course(nproc, gradient_checkpointing=False, **size)
            for keys in (dict(recomputed_layers=1), dict(recomputed_layers=2),
                         dict(recomputed_layers=1, gradient_checkpointing="offload"),
                         dict(recomputed_layers="auto", gradient_checkpointing=True)):
                with self.subTest(nproc=nproc, stage=stage, **keys):
                    self.assert_same_course(self.course(nproc, **keys, **size), kept)

    def test_more_recomputed_layers_than_the_model_has_are_refused(self):
        run = self.end(self.start_training(1, recomputed_layers=3, **self.BATCH))
        self.assertEqual(run.status, 2)
        self.assertIn("recomputed_layers: 3 is more than the model's 2 layers", run.err)

    def test_an_offloaded_embedding_is_bitwise_equal(self):
        lora = dict(use_peft=True, lora_r=4, per_device_train_batch_size=3)
        for nproc, keys in ((1, {}), (2, dict(zero_stage=3)), (1, dict(load_in_4bit=True))):
            with self.subTest(nproc=nproc, **keys):
                kept = self.course(nproc, offload_embedding=False, **keys, **lora)
                moved = self.course(nproc, offload_embedding=True, **keys, **lora)
                self.assertEqual(moved.column("loss"), kept.column("loss"))
                self.assert_same_weights(moved.weights("adapter_model"),
                                         kept.weights("adapter_model"))

    def test_fewer_rows_of_the_head_at_a_time_do_not_change_the_result(self):
        size = dict(per_device_train_batch_size=3)
        self.assert_same_course(self.course(1, head_rows=5, **size), self.course(1, **size), RTOL,
                                ATOL)

    def test_an_embedding_that_is_trained_is_not_offloaded(self):
        run = self.end(self.start_training(1, offload_embedding=True, **self.BATCH))
        self.assertEqual(run.status, 2)
        self.assertIn("offload_embedding: the embedding must stay on the GPU", run.err)

    def test_recomputation_with_dropout_is_bitwise_equal(self):
        lora = dict(use_peft=True, lora_r=4, lora_dropout=0.2, per_device_train_batch_size=3)
        kept = self.course(2, gradient_checkpointing=False, **lora)
        for way in (True, "offload"):
            again = self.course(2, gradient_checkpointing=way, **lora)
            self.assertEqual(again.column("loss"), kept.column("loss"))
            self.assert_same_weights(again.weights("adapter_model"), kept.weights("adapter_model"))

    def test_overlap_is_bitwise_equal(self):
        for stage in (0, 3):
            size = dict(per_device_train_batch_size=3, zero_stage=stage)
            with self.subTest(stage=stage):
                self.assert_same_course(self.course(2, overlap_comm=False, **size),
                                        self.course(2, overlap_comm=True, **size))

    def test_a_repeated_run_is_bitwise_equal(self):
        keys = dict(shuffle_dataset=True, per_device_train_batch_size=3)
        self.assert_same_course(self.course(2, **keys), self.course(2, **keys))

    def test_packing_the_same_rows_does_not_change_the_result(self):
        """One step over all rows: a bin has several rows, and each attends only to itself."""
        loose = self.train(2, max_steps=1, global_batch_size=64, per_device_train_batch_size=8)
        packed = self.train(2, max_steps=1, packing=True, global_batch_size=32,
                            per_device_train_batch_size=4)
        self.assertEqual(packed.column("tokens"), loose.column("tokens"))
        self.assertEqual(packed.column("epoch"), [1])
        self.assert_same_course(packed, loose, RTOL, ATOL)


class Aggregation(trainer.TrainerTest):
    """A row a rank and a step, of very different lengths, so that every way has a result of its
    own: which row is whose plays no part in it."""

    def setUp(self):
        super().setUp()
        self.rows = [row for length in (6, 40, 17)
                     for row in make_rows(1, seed=length, shortest=length, longest=length)]
        self.data = write_rows(self.dir / "rows.jsonl", self.rows)
        model = load_model(self.model)
        self.own = torch.stack([gradients_of(model, [row], 1 / labels_of([row]))
                                for row in self.rows])
        self.weighted = gradients_of(model, self.rows, 1 / labels_of(self.rows))

    def assert_norm(self, expected, **keys):
        run = self.train(3, global_batch_size=3, per_device_train_batch_size=1, max_steps=1, **keys)
        self.assert_near(run.column("grad_norm"), [expected.norm().item()], RTOL, "grad_norm")

    def test_weighted_averages_over_target_tokens(self):
        self.assert_norm(self.weighted)
        self.assert_norm(self.weighted, gradient_aggregation="weighted", zero_stage=2)

    def test_mean_averages_over_ranks(self):
        for stage in (0, 2, 3):
            self.assert_norm(self.own.mean(0), gradient_aggregation="mean", zero_stage=stage)

    def test_sum_adds_the_means_of_ranks(self):
        for stage in (0, 2):
            self.assert_norm(self.own.sum(0), gradient_aggregation="sum", zero_stage=stage)

    def test_median_is_taken_element_by_element(self):
        for stage in (0, 1):
            self.assert_norm(self.own.median(0).values, gradient_aggregation="median",
                             zero_stage=stage)


if __name__ == "__main__":
    unittest.main()
