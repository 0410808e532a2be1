"""Trains in bf16 with several seeds and in fp8 with the first of them, and prints a Markdown table of
the losses of each way. Run by hand, on a machine with a GPU:

    cd tests/gpu; python3 -B fp8_losses.py [--ways full lora] [--steps 500] [--size large]

full: a model from scratch, with fp8: mlp. lora: an adapter on the model that the first run of full
leaves, with fp8: base. The text is that of this repository: C++ for full, Markdown and Python for lora. Both runs
of a seed have the same weights in the beginning and the same order of rows. fp8 is within the spread
if its losses on held-out text differ from those of the same seed in bf16 by no more than the seeds
differ among each other. Exits with status 1 if not.

MGPU_BIN is the folder of mgpu-train [build/bin].
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build" / "bin")).resolve()
SEEDS = (1, 2, 3)
CODE, OTHERS = (".cpp", ".hpp", ".cu", ".cuh"), (".md", ".py")
PIECE, HELD_OUT = 3000, 100  # characters of a row; rows that are held out


def write_text(folder, name, endings):
    """Writes the rows for training and those that are held out."""
    pieces = []
    for top in ("runtime", "launcher", "rendezvous", "tests", "docs"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in endings and path.is_file():
                text = path.read_text(errors="replace")
                pieces += [text[at:at + PIECE] for at in range(0, len(text), PIECE)]
    random.Random(0).shuffle(pieces)
    for kind, rows in (("eval", pieces[:HELD_OUT]), ("train", pieces[HELD_OUT:])):
        (folder / f"{name}-{kind}.jsonl").write_text(
            "".join(json.dumps({"text": row}) + "\n" for row in rows))


class Runs:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        write_text(folder, "code", CODE)
        write_text(folder, "others", OTHERS)

    def keys_of(self, way):
        first = self.folder / f"full-bf16-{SEEDS[0]}"
        if way == "lora":
            return {"model_name_or_path": str(first), "lora_r": 16, "lora_alpha": 32,
                    "lora_dropout": 0.0, "learning_rate": 5e-4}
        tokenizer = {"tokenizer_path": str(first)} if (first / "tokenizer.json").exists() else {}
        return {"model_size": self.args.size, "learning_rate": 6e-4, **tokenizer}

    def train(self, way, fp8, seed):
        """Returns the losses of training and of evaluations by step."""
        name = f"{way}-{'fp8' if fp8 else 'bf16'}-{seed}"
        output, steps = self.folder / name, self.args.steps
        text = "others" if way == "lora" else "code"
        keys = {"dataset_name": str(self.folder / f"{text}-train.jsonl"),
                "eval_dataset": str(self.folder / f"{text}-eval.jsonl"), "dtype": "bf16",
                "max_length": self.args.length, "per_device_train_batch_size": self.args.batch,
                "packing": True, "max_steps": steps, "warmup_steps": steps // 10,
                "lr_scheduler_type": "cosine", "logging_steps": max(1, steps // 50),
                "eval_strategy": "steps", "eval_steps": max(1, steps // 5), "seed": seed,
                "save_strategy": "no", "plot_loss": False, "output_dir": str(output),
                **self.keys_of(way)}
        if fp8:
            keys["fp8"] = "base" if way == "lora" else "mlp"
        recipe = self.folder / f"{name}.yaml"
        recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
        job = subprocess.run([BIN / "mgpu-train", "--single", recipe], stdout=sys.stderr)
        if job.returncode != 0:
            sys.exit(f"{name} failed")
        losses = {"loss": {}, "eval_loss": {}}
        for line in (output / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            for kind, at in losses.items():
                if kind in record:
                    at[record["step"]] = record[kind]
        return losses


def compare(way, bf16, fp8):
    """Prints the table; returns whether fp8 is within the spread."""
    print(f"\n{way}, {len(bf16)} seeds in bf16 and the first of them in fp8\n")
    print("| step | loss of | " + " | ".join(f"bf16, seed {seed}" for seed in bf16)
          + f" | fp8, seed {SEEDS[0]} | fp8 - bf16 | spread of bf16 |")
    print("| --- " * (len(bf16) + 5) + "|")
    within = True
    for kind, title in (("loss", "training"), ("eval_loss", "held-out text")):
        steps = sorted(fp8[kind])
        for step in steps if kind == "eval_loss" else steps[len(steps) // 10 - 1::len(steps) // 5 or 1]:
            values = [losses[kind][step] for losses in bf16.values()]
            change, spread = fp8[kind][step] - values[0], max(values) - min(values)
            if kind == "eval_loss":
                within = within and abs(change) <= spread
            print(f"| {step} | {title} | " + " | ".join(f"{value:.4f}" for value in values)
                  + f" | {fp8[kind][step]:.4f} | {change:+.4f} | {spread:.4f} |")
    print(f"\nfp8 is {'within' if within else 'OUTSIDE'} the spread of the seeds")
    return within


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", nargs="+", choices=("full", "lora"), default=["full", "lora"])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--size", default="large", help="model_size of the recipe")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--folder", help="where runs are kept [a temporary folder]")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.folder or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        runs, good = Runs(args, folder), True
        if "full" not in args.ways and not (folder / f"full-bf16-{SEEDS[0]}" / "config.json").exists():
            runs.train("full", False, SEEDS[0])  # the base of the adapters
        for way in sorted(args.ways):
            bf16 = {seed: runs.train(way, False, seed) for seed in SEEDS}
            good = compare(way, bf16, runs.train(way, True, SEEDS[0])) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
