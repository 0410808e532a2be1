"""The ranges that a profiler sees, recorded by a small library that NVTX loads in its place, and
those in the traces of trace_steps."""

import collections
import json
import os
import pathlib
import signal
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
                                     "step > optimizer > all-gather of updated weights"}),
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


def events(run, rank=0):
    """The complete events of a rank's trace, and its metadata events."""
    trace = json.loads((run.folder / "traces" / f"rank{rank}.json").read_text())
    parts = {"X": [], "M": []}
    for event in trace["traceEvents"]:
        assert event["pid"] == rank, event
        parts[event["ph"]].append(event)
    return parts["X"], parts["M"]


def nesting(spans):
    """The names of the spans, each with those around it, as the recorder writes them."""
    lines, around = [], collections.defaultdict(list)
    for span in spans:
        outer = around[span["tid"]]
        while outer and outer[-1]["ts"] + outer[-1]["dur"] <= span["ts"]:
            outer.pop()
        outer.append(span)
        lines.append(" > ".join(each["name"] for each in outer))
    return lines


class SftTrace(trainer.TrainerTest):
    KEYS = dict(max_steps=4, save_strategy="no", save_final_model=False)

    def test_the_trace_has_the_ranges_of_the_chosen_steps_only(self):
        run = self.train(1, **self.KEYS, trace_steps=[2, 4])
        spans, names = events(run)
        self.assertEqual({span["args"]["step"] for span in spans}, {2, 4})
        for step in (2, 4):
            lines = nesting([span for span in spans if span["args"]["step"] == step])
            self.assertEqual(set(lines), STEP)
            self.assertEqual([lines.count(name) for name in sorted(STEP)], [1, 2, 2, 2, 1])
        self.assertEqual({(name["name"], name["args"]["name"]) for name in names},
                         {("process_name", "rank 0 of 1"), ("thread_name", "main thread")})

    def test_each_rank_writes_a_trace_and_the_training_is_the_same(self):
        plain = self.train(2, **self.KEYS, zero_stage=2)
        traced = self.train(2, **self.KEYS, zero_stage=2, trace_steps="2-3")
        self.assertEqual(plain.column("loss"), traced.column("loss"))
        self.assertEqual(plain.column("grad_norm"), traced.column("grad_norm"))
        self.assertEqual(sorted(os.listdir(traced.folder / "traces")), ["rank0.json", "rank1.json"])
        self.assertFalse((plain.folder / "traces").exists())
        for rank in (0, 1):
            spans, _ = events(traced, rank)
            main = [span for span in spans if span["tid"] == 0]
            self.assertEqual({span["args"]["step"] for span in main}, {2, 3})
            self.assertLessEqual(STEP | {in_backward("reduce-scatter of gradients"),
                                         "step > all-reduce of losses and norms"},
                                 set(nesting(main)))

    def test_a_run_that_ends_early_writes_the_steps_that_it_recorded(self):
        job = self.start_training(1, max_steps=100000, logging_steps=1, save_strategy="no",
                                  trace_steps=[2, 99999])
        metrics = job.folder / "metrics.jsonl"
        trainer.until(lambda: metrics.exists() and b'"step":3,' in metrics.read_bytes(), 30,
                      "the third step")
        job.send_signal(signal.SIGTERM)
        run = self.end(job)
        self.assertEqual({span["args"]["step"] for span in events(run)[0]}, {2})

    def test_a_step_beyond_the_end_is_an_error_before_training(self):
        run = self.end(self.start_training(2, **{**self.KEYS, "max_steps": -1},
                                           num_train_epochs=1, trace_steps=[3, 9]))
        self.assertEqual(run.status, 2, run.err)
        line = "mgpu-train: trace_steps: step 9 is out of range: this run has 8 steps"
        self.assertEqual([each for each in run.err.splitlines() if each.startswith("mgpu-train: ")], [line])

    def test_a_folder_that_cannot_be_written_is_an_error_before_training(self):
        run = self.end(self.start_training(1, **self.KEYS, trace_steps=[1],
                                           trace_dir=str(self.data / "traces")))
        self.assertEqual(run.status, 1, run.err)
        self.assertIn(f"cannot create the folder {self.data}/traces: Not a directory", run.err)
        self.assertFalse((run.folder / "metrics.jsonl").exists())

    def test_a_trace_that_cannot_be_written_leaves_a_note_and_no_file(self):
        folder = self.dir / "traces"
        (folder / "rank0.json" / "in the way").mkdir(parents=True)
        run = self.train(1, **self.KEYS, trace_steps=[1], trace_dir=str(folder))
        self.assertIn(f"trace_steps: cannot create {folder}/rank0.json", run.notes)
        self.assertEqual(os.listdir(folder), ["rank0.json"])

    def test_a_resumed_run_records_the_steps_that_it_trains(self):
        keys = dict(max_steps=4, trace_steps=[1, 3], out="resumed")
        self.train(1, **keys, save_steps=2)
        for path in self.dir.glob("resumed/checkpoint-4"):
            path.rename(self.dir / "not here")
        run = self.train(1, **keys)
        self.assertIn("trace_steps: 1 of 2 steps are before step 3, where this run resumes",
                      run.notes)
        self.assertEqual({span["args"]["step"] for span in events(run)[0]}, {3})


class GrpoTrace(grpo_trainer.GrpoTest):
    def test_the_trace_of_a_step_has_its_generation_and_rewards(self):
        run = self.train(2, max_steps=3, trace_steps=[2])
        for rank in (0, 1):
            spans, _ = events(run, rank)
            self.assertEqual({span["args"]["step"] for span in spans}, {2})
            lines = nesting([span for span in spans if span["tid"] == 0])
            self.assertLessEqual(STEP | {"rollout", "rollout > prefill", "rollout > decode"},
                                 set(lines))
            self.assertEqual((lines.count("rollout"), lines.count("step")), (1, 1))
            self.assertEqual(sum(span["name"] == "reward" for span in spans), 1)


if __name__ == "__main__":
    unittest.main()
