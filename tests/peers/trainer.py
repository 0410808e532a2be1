"""Shared by the tests of mgpu-train: tiny models, rows, real mgpu-run jobs, and a plain torch loop.

The loop (`train_in_torch`) is the reference for training: transformers' model, torch's AdamW and
clipping, transformers' schedule, one row at a time without padding.
"""

import importlib.util
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import unittest

os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import SLOWER, JobTest, children, comm, environment, until  # noqa: E402, F401

try:
    import safetensors.torch
    import torch
    import transformers
    # Only the files that use peft import it: that takes longer than many of the tests here.
    MISSING = "" if importlib.util.find_spec("peft") else "No module named 'peft'"
except ImportError as error:
    MISSING = str(error)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BUILD", ROOT / "build")).resolve() / "bin"
TOKENIZER = ROOT / "docs" / "examples" / "tokenizer"
VOCABULARY = 320  # the tokenizer has 274
LIMIT = 60

FAMILIES = {"qwen2": "Qwen2Config", "qwen3": "Qwen3Config", "llama": "LlamaConfig",
            "mistral": "MistralConfig"}


def make_model(folder, family="qwen2", seed=1, **others):
    """Saves a small random fp32 model with the examples' tokenizer; returns its folder."""
    sizes = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                 # Larger than usual, so that attention has an effect on the loss.
                 initializer_range=0.1, dtype=torch.float32)
    config = getattr(transformers, FAMILIES[family])(**{**sizes, **others})
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():  # initial biases of 0 and norms of 1 would hide errors
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(TOKENIZER).save_pretrained(folder)
    return folder


def make_rows(count, seed=1, shortest=8, longest=40):
    """Rows of token ids. Half of them have no labels at the start, like a prompt."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        ids = [rng.randrange(64) for _ in range(rng.randint(shortest, longest))]
        unlabelled = rng.randrange(1, 6) if number % 2 else 0
        rows.append({"input_ids": ids, "labels": [-100] * unlabelled + ids[unlabelled:]})
    return rows


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def load_model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def load_tensors(folder, stem="model"):
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob(f"{stem}*.safetensors")):
        tensors.update(safetensors.torch.load_file(path))
    return tensors


def row_loss(model, row):
    """The summed loss of a row's labels, and the number of labels."""
    logits = model(torch.tensor([row["input_ids"]])).logits[0, :-1]
    labels = torch.tensor(row["labels"][1:])
    loss = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
    return loss, int((labels != -100).sum())


def labels_of(rows):
    return sum(label != -100 for row in rows for label in row["labels"][1:])


def mean_loss(model, rows):
    with torch.no_grad():
        return sum(row_loss(model, row)[0].item() for row in rows) / labels_of(rows)


def gradients_of(model, rows, scale):
    """The gradients of the rows' loss times `scale`, as one flat tensor."""
    model.zero_grad()
    for row in rows:
        (row_loss(model, row)[0] * scale).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])


def train_in_torch(model, batches, rate, weight_decay=0.0, warmup=0, schedule="linear",
                   max_norm=1.0, optimizer=None):
    """Trains on lists of rows, one list per step; returns (loss, gradient norm, rate) per step."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1], "weight_decay": weight_decay},
              {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = optimizer or torch.optim.AdamW([group for group in groups if group["params"]],
                                               lr=rate)
    scheduler = transformers.get_scheduler(schedule, optimizer, num_warmup_steps=warmup,
                                           num_training_steps=len(batches))
    history = []
    for batch in batches:
        labels, total = labels_of(batch), 0.0
        for row in batch:
            loss = row_loss(model, row)[0]
            (loss / labels).backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(trained, max_norm)
        history.append((total / labels, norm.item(), scheduler.get_last_lr()[0]))
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return history


def in_order(rows, size, steps):
    """The batches of `steps` steps without shuffling: consecutive rows, repeated."""
    batches = [rows[i:i + size] for i in range(0, len(rows), size)]
    return [batches[step % len(batches)] for step in range(steps)]


class Run:
    """A finished job: status, out, err (text), and the files in its output folder."""

    def __init__(self, status, out, err, folder):
        self.status, self.out, self.err, self.folder = status, out, err, folder

    @property
    def metrics(self):
        with open(self.folder / "metrics.jsonl", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def records(self, event="train"):
        return [record for record in self.metrics if record["event"] == event]

    def column(self, key, event="train"):
        return [record[key] for record in self.records(event)]

    @property
    def notes(self):
        return "\n".join(self.column("text", "note"))

    def weights(self, stem="model"):
        return load_tensors(self.folder, stem)


@unittest.skipIf(MISSING, MISSING)
def descendants(pid):
    found = children(pid)
    return found + [each for child in found for each in descendants(child)]


class TrainerTest(JobTest):
    """Trains in its own folder: self.model on self.rows, unless the recipe changes it."""

    family = "qwen2"
    model_options = {}
    row_count = 64

    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        self.model = make_model(self.dir / "model", self.family, **self.model_options)
        self.rows = make_rows(self.row_count)
        self.data = write_rows(self.dir / "rows.jsonl", self.rows)
        self.runs = 0

    def recipe(self, **keys):
        keys = {"model_name_or_path": str(self.model), "dataset_name": str(self.data),
                "dataset_prepared_path": str(self.dir / "tokens"), "max_length": 64,
                "dtype": "fp32", "global_batch_size": 8, "per_device_train_batch_size": 4,
                "max_steps": 10, "learning_rate": 1e-3, "logging_steps": 1, "plot_loss": False,
                "shuffle_dataset": False, **keys}
        path = self.dir / "recipe.yaml"
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
        return path

    def start_training(self, nproc=1, out=None, recipe=None, options=(), variables=None, **keys):
        """Starts a job and returns it; job.folder is its output folder. `out` is the folder's name,
        `options` are mgpu-run's, `variables` those of the environment."""
        self.runs += 1
        folder = self.dir / (out or f"run-{self.runs}")
        recipe = recipe or self.recipe()
        settings = [f"--set={key}={json.dumps(value)}" for key, value in keys.items()]
        job = self.start("--nproc", nproc, *options, recipe, f"--set=output_dir={folder}", *settings,
                         program=str(BIN / "mgpu-run"),
                         env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                              **(variables or {})})
        job.folder = folder
        return job

    def kill_all(self, job):
        """Ends the launcher and all of its processes with SIGKILL."""
        processes = [job.pid, *descendants(job.pid)]
        self.assertGreaterEqual(len(processes), 3)
        for pid in processes:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it was killed with the launcher
        self.assertEqual(self.end(job).status, -signal.SIGKILL)
        self.assert_all_gone(processes)

    def end(self, job, limit=LIMIT):
        out, err = job.communicate(timeout=limit * SLOWER)
        return Run(job.returncode, out.decode(errors="replace"), err.decode(errors="replace"),
                   job.folder)

    def train(self, nproc=1, **keys):
        """Trains and requires success."""
        run = self.end(self.start_training(nproc, **keys))
        self.assertEqual(run.status, 0, run.out + run.err)
        return run

    def assert_near(self, ours, theirs, rtol, what=""):
        """Compares lists of numbers."""
        self.assertEqual(len(ours), len(theirs), what)
        for number, (a, b) in enumerate(zip(ours, theirs)):
            self.assertLessEqual(abs(a - b), rtol * abs(b), f"{what} {number}: {a} and {b}")

    def assert_same_weights(self, ours, theirs, atol=0.0):
        """Compares tensors by name; without a tolerance they must be bitwise equal."""
        self.assertEqual(sorted(ours), sorted(theirs))
        self.assertTrue(ours)
        for name, tensor in theirs.items():
            self.assertEqual(ours[name].dtype, tensor.dtype, name)
            self.assertEqual(ours[name].shape, tensor.shape, name)
            difference = (ours[name] - tensor).abs().max().item()
            self.assertLessEqual(difference, atol, name)

    def assert_same_course(self, ours, theirs, rtol=0.0, atol=0.0):
        """Compares losses, gradient norms and final weights of two runs."""
        for key in ("loss", "grad_norm"):
            self.assert_near(ours.column(key), theirs.column(key), rtol, key)
        self.assert_same_weights(ours.weights(), theirs.weights(), atol)
