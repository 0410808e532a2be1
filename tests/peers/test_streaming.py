"""streaming: true: rows are tokenized while earlier ones are trained on."""

import csv
import gzip
import io
import json
import os
import pathlib
import unittest
import unittest.mock

import trainer

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

PLUGIN = trainer.BIN.parent / "libexec" / "mgpu" / "mgpu-columnar.so"
RTOL = 1e-4


def lines_of(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def table_of(rows, delimiter):
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0].keys(), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


class Streaming(trainer.TrainerTest):
    """64 rows in windows of 16 rows and steps of 8: 8 steps are a pass."""

    KEYS = dict(streaming=True, buffer_size=16, lr_scheduler_type="constant", shuffle_dataset=True)

    def train_to(self, step, nproc=1, **keys):
        return self.train(nproc, max_steps=step, **{**self.KEYS, **keys})

    def assert_no_windows(self):
        self.assertEqual([p for p in (self.dir / "tokens").rglob("*") if p.is_file()], [])

    def test_a_resumed_run_is_bitwise_equal_to_an_uninterrupted_one(self):
        for keys in (dict(), dict(packing=True, buffer_size=20)):
            with self.subTest(**keys):
                whole = self.train_to(13, **keys)
                part = self.train_to(5, save_steps=5, **keys)
                run = self.train_to(13, out=part.folder.name, **keys)
                self.assertIn("checkpoint-5 at step 5", run.notes)
                self.assertEqual(run.column("loss"), whole.column("loss"))
                self.assert_same_weights(run.weights(), whole.weights())
                self.assert_no_windows()
        run = self.end(self.start_training(out=part.folder.name, max_steps=20,
                                           **{**self.KEYS, "packing": True, "buffer_size": 24}))
        self.assertEqual(run.status, 2, run.err)
        self.assertIn("streaming was windows of 20 rows and is now windows of 24 rows", run.err)

    def test_a_file_that_becomes_shorter_while_it_is_read_is_named(self):
        # Rows are cut to max_length: few of them are a block of the file.
        self.data.write_bytes(lines_of([{"text": "a" * 300_000}] * 100))
        job = self.start_training(**{**self.KEYS, "max_steps": 10000, "buffer_size": 8})
        metrics = job.folder / "metrics.jsonl"
        trainer.until(lambda: metrics.exists() and '"train"' in metrics.read_text(), trainer.LIMIT,
                      "the first step")
        os.truncate(self.data, 5000)
        run = self.end(job)
        self.assertEqual(run.status, 1, run.err)
        self.assertIn(f"mgpu-train: cannot read {self.data}: another program made it shorter while it "
                      "was read; start again when the file is complete\n", run.err)

    def test_the_number_of_ranks_does_not_matter(self):
        one, two = self.train_to(10), self.train_to(10, nproc=2)
        self.assert_near(two.column("loss"), one.column("loss"), RTOL)
        self.assertEqual(one.column("epoch")[6:9], [0, 1, 1])
        self.assert_no_windows()

    def losses_of(self, name, content=None, **keys):
        path = self.dir / name
        if content is not None:
            path.write_bytes(content)
        return self.train_to(6, dataset_name=str(path), **keys).column("loss")

    def test_every_text_format_has_the_losses_of_its_rows(self):
        rows = [{"prompt": f"{i}+{i}=", "completion": f"{2 * i}, \"è\"\n"} for i in range(40)]
        expected = self.losses_of("rows.jsonl", lines_of(rows))
        for name, content in {"rows.jsonl.gz": gzip.compress(lines_of(rows)),
                              "rows.json": json.dumps(rows, indent=1).encode(),
                              "rows.csv": table_of(rows, ","),
                              "rows.tsv": table_of(rows, "\t")}.items():
            with self.subTest(name=name):
                self.assertEqual(self.losses_of(name, content), expected)
        texts = [{"text": f"{i} è" + " x" * (i % 7)} for i in range(40)]
        self.assertEqual(
            self.losses_of("rows.txt", "".join(row["text"] + "\n" for row in texts).encode()),
            self.losses_of("texts.jsonl", lines_of(texts), dataset_format="text"))

    @unittest.skipUnless(pyarrow and PLUGIN.exists(), "needs pyarrow and the plug-in")
    def test_zstd_parquet_and_arrow_have_the_losses_of_their_rows(self):
        rows = [{"prompt": f"{i}+{i}=", "completion": f"{2 * i}"} for i in range(40)]
        expected = self.losses_of("rows.jsonl", lines_of(rows))
        with pyarrow.CompressedOutputStream(str(self.dir / "rows.jsonl.zst"), "zstd") as file:
            file.write(lines_of(rows))
        table = pyarrow.Table.from_pylist(rows)
        pyarrow.parquet.write_table(table, self.dir / "rows.parquet", row_group_size=7)
        with pyarrow.ipc.new_file(self.dir / "rows.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=9)
        env = {"PYARROW_ROOT": str(pathlib.Path(pyarrow.__file__).parent)}
        with unittest.mock.patch.dict(os.environ, env):
            for name in ("rows.jsonl.zst", "rows.parquet", "rows.arrow"):
                with self.subTest(name=name):
                    self.assertEqual(self.losses_of(name), expected)

    def test_evaluation_uses_a_dataset_of_its_own(self):
        run = self.train_to(4, eval_dataset=str(self.data), eval_steps=4)
        self.assertEqual(len(run.records("eval")), 1)

    def test_an_epoch_of_a_mixture_ends_with_the_first_dataset(self):
        files = [str(trainer.write_rows(self.dir / f"{i}.jsonl", rows))
                 for i, rows in enumerate((self.rows[:48], self.rows[48:]))]
        for strategy, steps in (("concat", 8), ("interleave_under", 4), ("interleave_over", 12)):
            run = self.train(dataset_name=files, mix_strategy=strategy, max_steps=-1,
                             num_train_epochs=1)
            self.assertEqual(len(run.column("loss")), steps, strategy)

    def test_prompts_of_a_mixture_are_counted(self):
        examples = trainer.ROOT / "docs" / "examples"
        rows = (examples / "addition_grpo.jsonl").read_text().splitlines(keepends=True)
        for name, part in (("a", rows[:12]), ("b", rows[:4])):
            (self.dir / f"{name}.jsonl").write_text("".join(part))
        recipe = self.dir / "grpo.yaml"
        recipe.write_text(json.dumps({
            "task": "grpo", "model_size": "tiny", "tokenizer_path": str(examples / "tokenizer"),
            "dataset_name": [str(self.dir / "a.jsonl"), str(self.dir / "b.jsonl")],
            "mix_strategy": "interleave_under", "reward_funcs": ["accuracy"],
            "num_generations": 8, "global_batch_size": 256, "per_device_train_batch_size": 64}))
        run = self.end(self.start_training(recipe=recipe))
        self.assertIn("there are 8 prompts to train on, but a generation needs 32", run.err)

    def test_a_bad_row_ends_the_run_with_its_line_and_leaves_nothing(self):
        rows = [json.dumps(row) for row in self.rows[:40]] + ['{"prompt": "a"}']
        path = self.dir / "bad.jsonl"
        path.write_text("\n".join(rows) + "\n")
        run = self.end(self.start_training(dataset_name=str(path), max_steps=20, **self.KEYS))
        self.assertEqual(run.status, 2)
        self.assertIn("bad.jsonl:41: ", run.err)
        self.assert_no_windows()
