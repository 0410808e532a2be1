"""Evaluation: metrics, schedule, best model and early stopping."""

import json
import shutil
import unittest

import trainer
from trainer import load_model, load_tensors, make_rows, mean_loss, write_rows


class EvaluationTest(trainer.TrainerTest):
    KEYS = {}

    def held_back(self, count, seed=5):
        rows = make_rows(count, seed=seed)
        return rows, str(write_rows(self.dir / f"held-back-{count}.jsonl", rows))

    def evaluate(self, nproc=2, **keys):
        if "eval_dataset" not in keys and "val_set_size" not in keys:
            keys["eval_dataset"] = self.held_back(7)[1]
        return self.train(nproc, **{**self.KEYS, **keys})


class Evaluation(EvaluationTest):
    KEYS = dict(per_device_eval_batch_size=2, lr_scheduler_type="constant")

    def test_the_loss_is_the_mean_over_all_target_tokens(self):
        """Seven rows are not a multiple of anything, and two are fewer than ranks."""
        for count in (7, 2):
            rows, path = self.held_back(count)
            expected = mean_loss(load_model(self.model), rows)
            for nproc, stage in ((1, 0), (3, 0), (3, 3)):
                with self.subTest(count=count, nproc=nproc, stage=stage):
                    run = self.evaluate(nproc, eval_dataset=path, eval_strategy="steps",
                                        eval_steps=1, max_steps=1, learning_rate=0, zero_stage=stage,
                                        global_batch_size=12)
                    self.assert_near(run.column("eval_loss", "eval"), [expected], 1e-5)

    def test_evaluation_runs_at_the_requested_steps(self):
        """64 rows in steps of 8: an epoch has 8 steps."""
        for keys, steps in ((dict(eval_strategy="steps", eval_steps=0.25, max_steps=10), [3, 6, 9]),
                            (dict(eval_strategy="steps", eval_steps=4, max_steps=10), [4, 8]),
                            (dict(eval_strategy="epoch", max_steps=-1, num_train_epochs=2), [8, 16]),
                            (dict(eval_strategy="epoch", max_steps=10), [8, 10]),
                            (dict(eval_strategy="no", max_steps=3), [])):
            with self.subTest(**keys):
                self.assertEqual(self.evaluate(**keys).column("step", "eval"), steps)

    def test_validation_rows_are_not_trained_on(self):
        run = self.evaluate(val_set_size=16, eval_strategy="epoch",
                            max_steps=-1, num_train_epochs=1)
        self.assertEqual(run.column("step", "eval"), [6])
        self.assertEqual(run.column("epoch"), [n / 6 for n in range(1, 7)])

    def test_a_bad_row_is_reported_and_can_be_skipped(self):
        rows, path = self.held_back(7)
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"input_ids": ["x"]}\n')
        keys = dict(eval_dataset=path, eval_strategy="steps", eval_steps=1, max_steps=1,
                    learning_rate=0)
        run = self.end(self.start_training(2, **{**self.KEYS, **keys}))
        self.assertEqual(run.status, 2)
        self.assertIn("held-back-7.jsonl:8: ", run.err)
        run = self.evaluate(on_bad_row="skip", **keys)
        self.assertIn("held-back-7.jsonl: 1 of 8 rows skipped as bad; the first: ", run.notes)
        self.assertIn("held-back-7.jsonl:8: ", run.notes)
        self.assert_near(run.column("eval_loss", "eval"), [mean_loss(load_model(self.model), rows)],
                         1e-5)


class BestModel(EvaluationTest):
    """Trained on eight rows again and again, and evaluated on others: the loss on those falls, and
    rises when the eight are known by heart."""

    KEYS = dict(per_device_eval_batch_size=8, lr_scheduler_type="constant", learning_rate=5e-3,
                eval_strategy="steps", eval_steps=2, save_steps=2, max_steps=20)

    def setUp(self):
        super().setUp()
        write_rows(self.data, make_rows(8))

    def losses(self, run):
        return dict(zip(run.column("step", "eval"), run.column("eval_loss", "eval")))

    def saved(self, run):
        return sorted(int(path.name.split("-")[1]) for path in run.folder.glob("checkpoint-*"))

    def state(self, run, step):
        return json.loads((run.folder / f"checkpoint-{step}" / "trainer_state.json").read_text())

    def best_of(self, run):
        losses = self.losses(run)
        best = min(losses, key=losses.get)
        self.assertLess(best, max(losses), "the last must not be the best here")
        return best

    def test_the_best_model_is_published_and_kept_beyond_the_limit(self):
        for strategy in ("steps", "best"):
            with self.subTest(strategy):
                run = self.evaluate(load_best_model_at_end=True, save_total_limit=1,
                                    save_strategy=strategy)
                best = self.best_of(run)
                self.assertEqual(self.saved(run), [best, 20])
                self.assertRegex(run.notes, f"the final model is that of .*/checkpoint-{best}, "
                                            "with the best eval_loss: [0-9.]+")
                self.assert_same_weights(run.weights(),
                                         load_tensors(run.folder / f"checkpoint-{best}"))
                state = self.state(run, 20)
                self.assertEqual(state["best_global_step"], best)
                self.assert_near([state["best_metric"]], [self.losses(run)[best]], 1e-6)

    def test_another_metric_can_decide_in_its_own_direction(self):
        run = self.evaluate(load_best_model_at_end=True,
                            metric_for_best_model="mean_token_accuracy")
        accuracies = run.column("eval_mean_token_accuracy", "eval")
        best = run.column("step", "eval")[accuracies.index(max(accuracies))]
        self.assertEqual(self.state(run, 20)["best_global_step"], best)
        self.assert_same_weights(run.weights(), load_tensors(run.folder / f"checkpoint-{best}"))
        worst = self.evaluate(load_best_model_at_end=True, greater_is_better=True)
        losses = self.losses(worst)
        self.assertEqual(self.state(worst, 20)["best_global_step"], max(losses, key=losses.get))
        unknown = self.end(self.start_training(2, **{
            **self.KEYS, "eval_dataset": self.held_back(7)[1], "metric_for_best_model": "bleu"}))
        self.assertEqual(unknown.status, 2)
        self.assertIn("metric_for_best_model: unknown metric bleu; use loss, "
                      "mean_token_accuracy or entropy", unknown.err)

    def test_early_stopping_works_in_a_resumed_run(self):
        whole = self.evaluate(early_stopping_patience=3, max_steps=40)
        best = self.best_of(whole)
        self.assertEqual(max(self.losses(whole)), best + 6)
        self.assertEqual(whole.column("step")[-1], best + 6)
        self.assertIn("eval_loss has not improved in 3 evaluations: stopping early",
                      whole.notes)
        self.assertTrue(whole.weights())
        # Killed after two of the three bad evaluations: only the third is left.
        shutil.copytree(whole.folder, self.dir / "again")
        for step in self.saved(whole):
            if step > best + 4:
                shutil.rmtree(self.dir / "again" / f"checkpoint-{step}")
        again = self.evaluate(early_stopping_patience=3, max_steps=40, out="again")
        self.assertIn(f"checkpoint-{best + 4} at step {best + 4}", again.notes)
        self.assertEqual(again.column("step")[-1], best + 6)
        self.assertEqual(self.losses(again), self.losses(whole))
        self.assert_same_weights(again.weights(), whole.weights())

    def test_the_best_model_is_found_beside_the_checkpoint_that_is_resumed(self):
        keys = dict(load_best_model_at_end=True)
        whole = self.evaluate(**keys)
        best = self.best_of(whole)
        last = whole.folder / "checkpoint-18"
        again = self.evaluate(**keys, resume_from_checkpoint=f"{last}/", out="elsewhere")
        self.assertEqual(again.column("step")[0], 19)
        self.assert_same_weights(again.weights(), whole.weights())
        shutil.rmtree(whole.folder / f"checkpoint-{best}")
        lost = self.evaluate(**keys, resume_from_checkpoint=str(last), out="without")
        self.assertIn(f"the best model so far, checkpoint-{best}, is neither in ", lost.notes)
        self.assert_same_weights(lost.weights(), load_tensors(lost.folder / "checkpoint-20"))

    def test_gains_below_the_threshold_are_ignored(self):
        run = self.evaluate(early_stopping_patience=2, early_stopping_threshold=100.0, max_steps=40)
        self.assertEqual(run.column("step")[-1], 6)  # the first evaluation always counts as a gain


if __name__ == "__main__":
    unittest.main()
