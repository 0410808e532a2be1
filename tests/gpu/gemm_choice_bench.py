"""Trains a model of random weights with `gemm_choice: heuristic` and `timed` in turn, and prints the
time of a step of each. Then trains with `full_determinism: true` and checks that a second run with the
same choices, and a run that resumes from a checkpoint, have the same losses bit for bit. Run by hand,
with a Python that has torch:

    cd tests/gpu; python -B gemm_choice_bench.py [--model 1.5B] [--batch 4] [--ranks 1] [--rounds 3]

MGPU_BIN is the folder of mgpu-run and mgpu-train [build/bin]. Other keys of the recipe: --set
use_peft=true. Exits with status 1 if losses differ.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

from random_model import SHAPES, write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build" / "bin"))
FILE = "gemm_choices.json"
WARM = 10  # steps that are not counted
LOGGED = 5  # steps of a log line, where the host reads what the GPU has done


def train(args, folder, name, choices=None, **keys):
    """The records of a run. `choices`: a file of choices that it begins with."""
    output = folder / name
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    if choices:
        shutil.copy(choices, output / FILE)
    keys = {"model_name_or_path": str(folder / "model"), "dataset_name": str(folder / "rows.jsonl"),
            "dataset_prepared_path": str(folder / "tokens"), "output_dir": str(output),
            "max_length": args.length, "per_device_train_batch_size": args.batch,
            "learning_rate": 1e-5, "gradient_checkpointing": False, "logging_steps": 1,
            "save_strategy": "no", "save_final_model": False, **keys}
    for setting in args.set:
        key, _, value = setting.partition("=")
        keys[key] = json.loads(value)
    recipe = folder / "recipe.yaml"
    recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
    job = subprocess.run([BIN / "mgpu-run", "--nproc", str(args.ranks), recipe], capture_output=True,
                         text=True)
    if job.returncode != 0:
        sys.exit(job.stdout + job.stderr)
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        if record["event"] == "note" and ("matrix products" in record["text"]
                                          or "gemm_choice" in record["text"]):
            print(f"  {name}: {record['text']}", flush=True)
    return records


def losses(records):
    return {record["step"]: record["loss"] for record in records if record["event"] == "train"}


def median_step(records):
    return statistics.median(record["seconds"] / LOGGED for record in records
                             if record["event"] == "train" and record["step"] > WARM)


def speed(args, folder):
    """Runs take turns. All timed runs use the choices of the first."""
    times = {"heuristic": [], "timed": []}
    choices = None
    for number in range(args.rounds):
        for kind, all_times in times.items():
            records = train(args, folder, kind, choices if kind == "timed" else None,
                            gemm_choice=kind, max_steps=WARM + args.steps,
                            logging_steps=LOGGED)
            all_times.append(median_step(records))
            print(f"round {number + 1}, {kind}: {1e3 * all_times[-1]:.2f} ms a step", flush=True)
            if kind == "timed" and choices is None and (folder / kind / FILE).exists():
                choices = shutil.copy(folder / kind / FILE, folder / "first.json")
    return times


def same_losses(args, folder):
    """Compares runs; prints what differs, and returns whether nothing does."""
    keys = {"gemm_choice": "timed", "full_determinism": True, "max_steps": 12}
    first = losses(train(args, folder, "first", save_strategy="steps", save_steps=6, **keys))
    choices = folder / "first" / FILE
    second = losses(train(args, folder, "second", choices if choices.exists() else None, **keys))
    # Its choices come from the checkpoint, because the new folder has no file.
    checkpoint = folder / "first" / "checkpoint-6"
    resumed = losses(train(args, folder, "resumed", resume_from_checkpoint=str(checkpoint), **keys))
    same = True
    for name, other, steps in (("a second run with the same choices", second, 12),
                               ("a resumed run", resumed, 6)):
        compared = [step for step in first if step > 12 - steps]
        different = [step for step in compared if other.get(step) != first[step]]
        fine = len(compared) == steps and not different
        print(f"losses of {name}: " + ("the same bits" if fine else f"DIFFERENT at steps {different}"),
              flush=True)
        same = same and fine
    return same


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=SHAPES, default="1.5B")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a rank in a step")
    parser.add_argument("--length", type=int, default=2048, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=30, help="of a run, after the first ten; a multiple of 5")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="another key of the recipe, with a value in JSON")
    parser.add_argument("--folder", help="where models and checkpoints are written")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        write_model(folder / "model", SHAPES[args.model])
        random.seed(1)
        (folder / "rows.jsonl").write_text("".join(
            json.dumps({"input_ids": [random.randrange(1000) for _ in range(args.length)]}) + "\n"
            for _ in range(256)))
        times = speed(args, folder)
        same = same_losses(args, folder)
    print("\n| gemm_choice | ms a step, median of rounds | rounds |\n| --- | --- | --- |")
    medians = {}
    for kind, all_times in times.items():
        medians[kind] = statistics.median(all_times)
        print(f"| {kind} | {1e3 * medians[kind]:.2f} | "
              + ", ".join(f"{1e3 * time:.2f}" for time in all_times) + " |")
    print(f"\ntimed takes {100 * (medians['timed'] / medians['heuristic'] - 1):+.2f} % of heuristic")
    return not same


if __name__ == "__main__":
    sys.exit(main())
