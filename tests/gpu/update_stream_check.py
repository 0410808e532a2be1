"""Compares updates on a stream of their own (MGPU_UPDATES=beside), beside the next step's forward pass,
with updates before it. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B update_stream_check.py [--model 0.5B] [--bench 1.5B] [--folder /dev/shm]

1. With `full_determinism: true`, losses, norms, evaluations, checkpoints and the final model must be
   the same bit for bit, also with updates that are delayed (`late`), so that whatever forgets to
   wait for one reads old weights. Two ranks share a GPU where there is only one.
2. step_bench with both orders in turn. (`--bench none` leaves it out.)

MGPU_BIN is the folder of mgpu-run and mgpu-train [build/bin]; step_bench lies there too. Exits with
status 1 if any bit differs.
"""

import argparse
import glob
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from random_model import SHAPES, write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build" / "bin"))
VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES")
GPUS = len(glob.glob("/dev/nvidia[0-9]*")) if VISIBLE is None else len(VISIBLE.split(","))
STEPS = 20

# Clipping, accumulation, and evaluations and checkpoints in the middle.
KEYS = {"max_length": 512, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2,
        "max_steps": STEPS, "learning_rate": 1e-4, "max_grad_norm": 0.5, "weight_decay": 0.1,
        "gradient_checkpointing": False, "full_determinism": True, "logging_steps": 1,
        "val_set_size": 8, "eval_strategy": "steps", "eval_steps": 7, "save_strategy": "steps",
        "save_steps": 8, "save_total_limit": None}
CASES = [("one rank", 1, {}),
         ("one rank, moments in 8 bits", 1, {"optim": "adamw_8bit"}),
         ("one rank, fp16 with loss scaling", 1, {"fp16": True}),
         ("one rank, adapters", 1, {"use_peft": True, "lora_r": 16, "lora_dropout": 0.1}),
         *((f"two ranks, stage {stage}", 2, {"zero_stage": stage}) for stage in range(4))]


def files_of(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    return {name: file for name, file in manifest["files"].items() if name != "trainer_state.json"}


def train(folder, order, ranks, keys):
    """What must be the same in every order."""
    output = folder / "output"
    shutil.rmtree(output, ignore_errors=True)
    keys = {"model_name_or_path": str(folder / "model"), "dataset_name": str(folder / "rows.jsonl"),
            "dataset_prepared_path": str(folder / "tokens"), "output_dir": str(output), **KEYS, **keys}
    recipe = folder / "recipe.yaml"
    recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()
                              if value is not None))
    shared = ranks > GPUS
    job = subprocess.run(
        [BIN / "mgpu-run", "--nproc", str(ranks), *["--oversubscribe"] * shared, recipe],
        capture_output=True, text=True,
        env={**os.environ, "MGPU_UPDATES": order, **({"NCCL_SOCKET_IFNAME": "lo"} if shared else {})})
    if job.returncode != 0:
        sys.exit(job.stdout + job.stderr)
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [(record["loss"], record["grad_norm"]) for record in records
             if record["event"] == "train"]
    assert len(steps) == STEPS, len(steps)
    result = {"losses and norms": steps,
              "evaluations": [record["eval_loss"] for record in records if record["event"] == "eval"],
              "final model": {path.name: path.read_bytes() for path in output.glob("*.safetensors")}}
    for step in (8, 16, STEPS):
        if (output / f"checkpoint-{step}").exists():
            result[f"checkpoint of step {step}"] = files_of(output / f"checkpoint-{step}")
    assert len(result) >= 5 and all(result.values()), list(result)
    return result


def compare(folder):
    differences = 0
    for title, ranks, keys in CASES:
        first = train(folder, "at_once", ranks, keys)
        clipped = sum(norm > KEYS["max_grad_norm"] for _, norm in first["losses and norms"])
        for order in ("beside", "late"):
            other = train(folder, order, ranks, keys)
            different = [what for what in first if other.get(what) != first[what]]
            differences += bool(different)
            print(f"{title}, {order}: "
                  + (f"DIFFERENT {', '.join(different)}" if different else "the same bits")
                  + f"; {clipped} of {STEPS} steps clipped, last loss {first['losses and norms'][-1][0]}",
                  flush=True)
    return differences


def seconds_of(shape, order, ranks, *more):
    program = [BIN / "step_bench", shape, "mb=4", "steps=40", "warm=8", f"updates={order}", *more]
    job = subprocess.run([BIN / "mgpu-run", "--nproc", str(ranks), *program] if ranks > 1 else program,
                         capture_output=True, text=True)
    found = re.search(r"(\d+) tok/s per GPU", job.stdout)
    if not found:
        sys.exit(job.stdout + job.stderr)
    return 4 * 2048 / int(found.group(1))


def bench(shape):
    cases = [(1, "zero=0"), *([(2, "zero=0"), (2, "zero=1"), (2, "zero=3")] if GPUS > 1 else [])]
    for ranks, stage in cases:
        times = {"at_once": [], "beside": []}
        for _ in range(3):
            for order, taken in times.items():
                taken.append(seconds_of(shape, order, ranks, stage))
        before, after = (1000 * statistics.median(taken) for taken in times.values())
        print(f"{shape}, {ranks} ranks, {stage}: {before:.1f} ms a step at once, {after:.1f} beside "
              f"({before - after:+.1f} ms saved); runs {times}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=SHAPES, default="0.5B")
    parser.add_argument("--bench", default="1.5B", help="shape for step_bench, or none")
    parser.add_argument("--folder", help="where models and checkpoints are written")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        write_model(folder / "model", SHAPES[args.model])
        random.seed(1)
        (folder / "rows.jsonl").write_text("".join(
            json.dumps({"input_ids": [random.randrange(1000) for _ in range(random.randint(100, 512))]})
            + "\n" for _ in range(200)))
        differences = compare(folder)
    if args.bench != "none":
        bench(args.bench)
    return differences > 0


if __name__ == "__main__":
    sys.exit(main())
