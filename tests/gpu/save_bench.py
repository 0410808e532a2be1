"""Trains a model of random weights in the shape of Qwen2.5 and saves checkpoints with the training
state, once in the background and once while training stands still. Prints for each checkpoint how long
training stood still and how long it took until the checkpoint was complete. Run by hand, with a Python
that has torch:

    cd tests/gpu; python -B save_bench.py [--model 1.5B] [--ranks 1] [--folder /dev/shm]

The folder needs space for two checkpoints (1.5B: 43 GB) and the model. MGPU_BIN is the folder of mgpu-run
and mgpu-train [build/bin]. Exits with status 1 if training stands still for more than half a second at
any checkpoint in the background but the first, for which memory is pinned.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from random_model import SHAPES, write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build" / "bin"))
LONGEST_STALL = 0.5


def train(args, folder, in_background, save_steps, saves):
    """The records of a run; rank 0 has written them."""
    output = folder / f"output-{in_background}"
    keys = {"model_name_or_path": str(folder / "model"), "dataset_name": str(folder / "rows.jsonl"),
            "dataset_prepared_path": str(folder / "tokens"), "output_dir": str(output),
            "max_length": 2048, "per_device_train_batch_size": args.batch, "learning_rate": 1e-5,
            "max_steps": save_steps * saves, "save_steps": save_steps, "save_total_limit": 1,
            "logging_steps": 1, "gradient_checkpointing": False, "save_final_model": False,
            "async_save": in_background}
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
    size = sum(path.stat().st_size for path in output.glob("checkpoint-*/**/*") if path.is_file())
    subprocess.run(["rm", "-rf", output], check=True)
    return records, size


def report(records, size, title):
    print(f"{title}: checkpoints of {size / 1e9:.1f} GB")
    saves = [record for record in records if record["event"] == "checkpoint"]
    for save in saves:
        kind = "in the background" if save["in_background"] else "at once"
        print(f"  step {save['step']}, {kind}: training stood still {save['stalled_seconds']:.3f} s, "
              f"complete after {save['seconds']:.2f} s "
              f"({size / 1e9 / save['seconds']:.1f} GB/s)")
    for record in records:
        if record["event"] == "note" and "background" in record["text"]:
            print("  note: " + record["text"])
    steps = [record for record in records if record["event"] == "train"]
    begins = [(save["time"] - save["seconds"], save["time"]) for save in saves]
    beside, alone = [], []
    for step in steps[5:]:
        is_beside = any(begin < step["time"] - step["seconds"] and step["time"] < end
                        for begin, end in begins)
        (beside if is_beside else alone).append(step["seconds"])
    # A save itself lies between two steps and counts as a part of the later one.
    text = f"  median step {statistics.median(alone):.4f} s"
    if beside:
        text += f"; while a checkpoint is written {statistics.median(beside):.4f} s"
    losses = [f"{step['loss']:.4f}" for step in steps[:20:4]]
    print(f"{text}; losses at steps 1, 5, 9, ...: {' '.join(losses)}", flush=True)
    return [save["stalled_seconds"] for save in saves]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=SHAPES, default="1.5B")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a rank in a step")
    parser.add_argument("--steps", type=int, default=120, help="between checkpoints in the background")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="another key of the recipe, with a value in JSON")
    parser.add_argument("--folder", help="where models and checkpoints are written")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        write_model(folder / "model", SHAPES[args.model])
        random.seed(1)
        (folder / "rows.jsonl").write_text("".join(
            json.dumps({"input_ids": [random.randrange(1000) for _ in range(2048)]}) + "\n"
            for _ in range(512)))
        report(*train(args, folder, False, 20, 2), "async_save: false")
        stalls = report(*train(args, folder, True, args.steps, 3), "async_save: true")
    return any(stall > LONGEST_STALL for stall in stalls[1:])


if __name__ == "__main__":
    sys.exit(main())
