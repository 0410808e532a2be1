"""Reads mgpu-train's files with TensorBoard, wandb and transformers."""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import xml.etree.ElementTree

BUILD = pathlib.Path(os.environ.get("MGPU_BUILD") or
                     pathlib.Path(__file__).resolve().parents[2] / "build")
SAMPLE = BUILD / "bin" / "telemetry_sample"


@unittest.skipUnless(SAMPLE.exists(), f"{SAMPLE} is not built")
class TelemetryTest(unittest.TestCase):
    """The files of a run that was resumed from step 20 after it had reached step 30."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="mgpu-telemetry-")
        cls.addClassCleanup(folder.cleanup)
        cls.dir = pathlib.Path(folder.name)
        env = {k: v for k, v in os.environ.items() if k != "TENSORBOARD_LOGGING_DIR"}
        cls.out = subprocess.run([SAMPLE, folder.name], env=env, check=True,
                                 stdout=subprocess.PIPE).stdout.decode()

    def events(self):
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            self.skipTest("this python has no tensorboard")
        runs = list((self.dir / "runs").iterdir())
        self.assertEqual(len(runs), 1)
        accumulator = EventAccumulator(str(runs[0]), size_guidance={"scalars": 0, "tensors": 0})
        accumulator.Reload()
        return accumulator

    def test_tensorboard_shows_curves_without_repeated_steps(self):
        events = self.events()
        tags = events.Tags()["scalars"]
        for tag in ("train/loss", "train/grad_norm", "train/learning_rate", "train/epoch",
                    "train/tokens_per_second", "train/mean_token_accuracy", "eval/loss",
                    "eval/runtime", "train/train_runtime", "train/train_samples_per_second"):
            self.assertIn(tag, tags)
        losses = [(event.step, event.value) for event in events.Scalars("train/loss")]
        self.assertEqual([step for step, _ in losses], [5, 10, 15, 20, 25, 30, 35, 40])
        self.assertEqual(losses[3][1], 100)
        self.assertAlmostEqual(losses[4][1], 1.6, places=6)
        self.assertEqual([(e.step, e.value) for e in events.Scalars("eval/loss")], [(40, 0.75)])
        self.assertTrue(math.isnan(events.Scalars("train/grad_norm")[1].value))

    def test_tensorboard_shows_the_recipe(self):
        events = self.events()
        text = events.Tensors("args/text_summary")[0].tensor_proto.string_val[0].decode()
        self.assertEqual(text, "    learning_rate: 1e-4\n    seed: 42\n")
        metadata = events.SummaryMetadata("args/text_summary")
        self.assertEqual(metadata.plugin_data.plugin_name, "text")

    def test_every_record_passes_tensorflows_checks(self):
        try:
            from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
        except ImportError:
            self.skipTest("this python has no tensorboard")
        for path in (self.dir / "runs").rglob("events.out.tfevents.*"):
            reader = PyRecordReader_New(str(path))
            records = 0
            with self.assertRaises(Exception) as end:
                while True:
                    reader.GetNext()  # raises for a wrong checksum, and at the end
                    records += 1
            self.assertEqual(type(end.exception).__name__, "OutOfRangeError")
            self.assertGreater(records, 50)

    def test_wandb_gets_each_row_once_and_in_order(self):
        rows, inits = [], []

        class Run:
            def log(self, row, step):
                rows.append((step, row))

            def finish(self):
                rows.append("finished")

        wandb = types.ModuleType("wandb")
        wandb.init = lambda **kwargs: inits.append(kwargs) or Run()
        program = self.dir / "wandb-sync.py"
        before = sys.modules.get("wandb")
        sys.modules["wandb"] = wandb
        try:
            exec(compile(program.read_text("utf-8"), program, "exec"),
                 {"__file__": str(program)})
        finally:
            if before is None:
                del sys.modules["wandb"]
            else:
                sys.modules["wandb"] = before
        self.assertEqual(inits[0]["name"], 'sample "1" \U0001F680')
        self.assertEqual(inits[0]["project"], "samples")
        self.assertEqual(inits[0]["resume"], "allow")
        self.assertRegex(inits[0]["id"], r"^mgpu-[0-9a-f]+-\d+$")
        self.assertEqual(rows.pop(), "finished")
        self.assertEqual([step for step, _ in rows], [5, 10, 15, 20, 25, 30, 35, 40, 40, 40])
        self.assertEqual(rows[4][1]["train/loss"], 1.6)
        self.assertNotIn("train/grad_norm", rows[1][1])
        self.assertEqual(rows[8][1]["eval/loss"], 0.75)
        self.assertIn("train/train_runtime", rows[9][1])

    def test_a_resumed_run_appends_to_the_metrics_file(self):
        lines = [json.loads(line) for line in
                 (self.dir / "metrics.jsonl").read_text("utf-8").splitlines()]
        self.assertEqual([(line["event"], line["step"]) for line in lines],
                         [("train", 5), ("train", 10), ("train", 15), ("train", 20),
                          ("resume", 20), ("train", 25), ("train", 30), ("train", 35),
                          ("train", 40), ("eval", 40), ("summary", 40)])

    def test_the_loss_curve_is_complete_xml(self):
        root = xml.etree.ElementTree.parse(self.dir / "training_loss.svg").getroot()
        texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn('sample "1" \U0001F680', texts)
        self.assertIn("step", texts)
        self.assertEqual(len(list(root.iter("{http://www.w3.org/2000/svg}circle"))), 1)

    def test_transformers_reads_the_trainer_state(self):
        try:
            from transformers.trainer_callback import TrainerState
        except ImportError:
            self.skipTest("this python has no transformers")
        path = self.dir / "trainer_state.json"
        state = TrainerState.load_from_json(str(path))
        self.assertEqual(state.global_step, 40)
        self.assertEqual(state.best_metric, 0.75)
        self.assertEqual(state.log_history[-2]["eval_loss"], 0.75)
        self.assertIn("train_runtime", state.log_history[-1])
        self.assertEqual(set(json.loads(path.read_text())), set(vars(TrainerState())))


if __name__ == "__main__":
    unittest.main()
