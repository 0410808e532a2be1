"""The examples from beginning to end, as the docs tell them: a model is taught to add from nothing,
then by rewards alone to work its sums out."""

import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from trainer import BIN, ROOT, SLOWER, environment

EXAMPLES = ROOT / "docs" / "examples"


def train(recipe, folder, limit, **keys):
    """Runs an example on two ranks; gives its metrics and what it printed."""
    keys = {"output_dir": folder, "plot_loss": "false", **keys}
    sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    job = subprocess.run([BIN / "mgpu-run", "--nproc", "2", EXAMPLES / recipe, *sets], cwd=ROOT,
                         capture_output=True, text=True, timeout=limit, env=environment())
    assert job.returncode == 0, job.stdout + job.stderr
    rows = [json.loads(line) for path in sorted(folder.rglob("metrics.jsonl"))
            for line in path.read_text().splitlines()]
    return rows, job.stdout + job.stderr


class EndToEnd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.model = cls.folder / "quickstart"
        cls.metrics, _ = train("quickstart.yaml", cls.model, 1200)

    def test_the_quickstarts_model_adds(self):
        evaluations = [row for row in self.metrics if "eval_loss" in row]
        self.assertLess(evaluations[-1]["eval_loss"], 0.25)
        asked = self.folder / "asked.jsonl"
        rows = [json.loads(line) for line in
                (EXAMPLES / "addition_eval.jsonl").read_text().splitlines()[:100]]
        rows = [row for row in rows if "answer is" in row["completion"]]
        # The first digits of the working make the model continue it.
        starts = [row["completion"][:4] for row in rows]
        asked.write_text("".join(json.dumps({"prompt": row["prompt"] + start}) + "\n"
                                 for row, start in zip(rows, starts)))
        made = subprocess.run([BIN / "mgpu-train", "generate", "--model", self.model, "--input",
                               asked, "--raw", "--temperature", "0", "--max-new-tokens", "64"],
                              capture_output=True, text=True, timeout=300, env=environment())
        self.assertEqual(made.returncode, 0, made.stderr)
        answers = [json.loads(line)["completion"] for line in made.stdout.splitlines()]
        right = sum(start + answer == row["completion"]
                    for row, start, answer in zip(rows, starts, answers))
        self.assertGreater(right, 0.6 * len(rows))

    def test_grpo_raises_the_sampled_accuracy_for_every_seed(self):
        for seed in (42, 1, 2):
            with self.subTest(seed=seed):
                rows, said = train("grpo.yaml", self.folder / f"grpo-{seed}", 900, seed=seed,
                                   model_name_or_path=self.model)
                evaluations = [row["eval_reward"] for row in rows if "eval_reward" in row]
                self.assertEqual(len(evaluations), 2, said)
                before, after = evaluations
                hours, minutes, seconds = re.search(r"train_runtime *= *(\d+):(\d+):([\d.]+)",
                                                    said).groups()
                took = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
                print(f"seed {seed}: {before:.3f} -> {after:.3f} in {took:.0f} s", flush=True)
                self.assertGreater(after - before, 0.20)
                self.assertLess(took, 180 * SLOWER)


if __name__ == "__main__":
    unittest.main()
