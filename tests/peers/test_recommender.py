"""The two stages of a recommender with MiniOneRec's keys: the examples from beginning to end, whose
hits must rise, and small runs on their catalogue."""

import json
import math
import shutil
import tempfile
import unittest
from pathlib import Path

import trainer
from grpo_trainer import GrpoTest
from test_end_to_end import EXAMPLES, train

ITEMS = EXAMPLES / "items"
TOKENS = [f"<{letter}_{number}>" for letter in "abc" for number in range(4)]


def rows_of(name, count):
    return [json.loads(line) for line in (ITEMS / name).read_text().splitlines()[:count]]


class Example(unittest.TestCase):
    def test_the_second_stage_raises_the_hits(self):
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        train("items_sft.yaml", folder / "sft", 300)
        rows, said = train("minionerec_rl.yaml", folder / "rl", 300, model_path=folder / "sft")
        evaluations = [row for row in rows if "eval_HR@10" in row and row["event"] == "eval"]
        self.assertEqual([row["step"] for row in evaluations], [0, 10, 20], said)
        before, _, after = evaluations
        for name in ("HR@1", "HR@10", "NDCG@10"):
            print(f"{name}: {before['eval_' + name]:.3f} -> {after['eval_' + name]:.3f}", flush=True)
        self.assertGreater(after["eval_HR@10"], before["eval_HR@10"] + 0.2)
        self.assertGreater(after["eval_NDCG@10"], before["eval_NDCG@10"] + 0.2)
        summary = rows[-1]
        self.assertEqual(summary["event"], "summary")
        self.assertEqual(summary["eval_HR@10"], after["eval_HR@10"])
        self.assertIn("eval_HR@10", said)
        self.assertIn("HR@10 ", said)  # on the progress line


class Recommender(GrpoTest):
    """A model that knows the tokens of the catalogue but no user."""

    KEYS = {**GrpoTest.KEYS, "task": None, "reward_funcs": None, "reward_rules": None,
            "reward_type": "ranking", "beam_search": True, "info_file": str(ITEMS / "items.txt"),
            "eval_dataset": str(ITEMS / "eval.jsonl"), "num_generations": 4,
            "global_batch_size": 12, "new_tokens": TOKENS, "log_completions": True}

    def setUp(self):
        super().setUp()
        self.data = trainer.write_rows(self.dir / "users.jsonl", rows_of("train.jsonl", 24))
        self.held_out = trainer.write_rows(self.dir / "held_out.jsonl", rows_of("eval.jsonl", 7))
        self.names = {line.split("\t")[0] for line in
                      (ITEMS / "items.txt").read_text().splitlines()}

    def recipe(self, **keys):
        return super().recipe(**{"eval_dataset": str(self.held_out), **keys})

    def groups(self, run, size=4):
        logged = [row for rows in self.completions(run).values() for row in rows]
        return [logged[i:i + size] for i in range(0, len(logged), size)]

    def test_completions_are_different_items_with_the_rewards_of_their_places(self):
        run = self.train(2)
        groups = self.groups(run)
        self.assertEqual(len(groups), 9)
        targets = {row["prompt"]: row["completion"] for row in rows_of("train.jsonl", 24)}
        weights = [1 / math.log2(place + 2) for place in range(4)]
        for group in groups:
            texts = [row["completion"] for row in group]
            self.assertEqual(len(set(texts)), 4)
            self.assertTrue(all(row["terminated"] for row in group))
            self.assertLessEqual({text.strip() for text in texts}, self.names)
            hits = [text == targets[row["prompt"]] for text, row in zip(texts, group)]
            for place, (row, hit) in enumerate(zip(group, hits)):
                self.assertEqual(row["rule"], float(hit))
                miss = -weights[place] / sum(weights) if any(hits) and not hit else 0
                self.assertAlmostEqual(row["ndcg_rule"], miss, places=6)
        record = run.records()[0]
        self.assertEqual(record["categorical_diversity"], 1)
        self.assertIn("HR@3", record)
        self.assertLess(record["sampling/sampling_logp_difference/max"], 1e-3)

    def test_the_number_of_ranks_changes_neither_training_nor_evaluation(self):
        keys = dict(test_during_training=True, test_beam=20, eval_on_start=True, eval_steps=3,
                    sync_ref_model=True, ref_model_sync_steps=2, beta=1e-3)
        alone = self.train(1, **keys)
        values = {key: alone.column(f"eval_{key}", "eval") for key in
                  ("HR@1", "HR@3", "HR@5", "HR@10", "HR@20", "NDCG@1", "NDCG@10", "NDCG@20",
                   "categorical_diversity")}
        self.assertEqual(len(values["HR@10"]), 2)
        self.assertLessEqual(values["HR@1"], values["HR@20"])
        for nproc in (2, 3):
            run = self.train(nproc, **keys)
            for key, expected in values.items():
                self.assert_near(run.column(f"eval_{key}", "eval"), expected, 1e-9, key)
            self.assert_same_weights(run.weights(), alone.weights(), 1e-5)

    def test_the_item_to_find_is_added_and_sampled_completions_are_items(self):
        run = self.train(2, beam_search=False, add_gt=True, dynamic_sampling=True)
        targets = {row["prompt"]: row["completion"] for row in rows_of("train.jsonl", 24)}
        for group in self.groups(run):
            self.assertEqual(group[-1]["completion"], targets[group[-1]["prompt"]])
            self.assertEqual(group[-1]["rule"], 1)
            self.assertLessEqual({row["completion"].strip() for row in group}, self.names)
        self.assertTrue(all(math.isfinite(loss) for loss in run.column("loss")))

    def test_bad_items_are_one_line_with_their_place(self):
        text = (ITEMS / "items.txt").read_text()
        first = text.splitlines()[0].split("\t")[0]
        for added, line in ((f"{first}\tagain\t0\n", "items.txt:65: item 0 is also at "),
                            ("<a_9><b_0><c_0>\tnew\t64\n", "items.txt:65: <a_9> is not a token of"),
                            ("<a_0><b_0><c_0>\t64\n", "items.txt:65: need 3 columns")):
            with self.subTest(line):
                bad = self.dir / "items.txt"
                bad.write_text(text + added)
                run = self.refused(2, line, info_file=str(bad))
                self.assertNotIn("terminate called", run.err)
        self.refused(2, "num_generations: 80 beams need as many items, but ", num_generations=80,
                     global_batch_size=80)


if __name__ == "__main__":
    unittest.main()
