"""Trains a model of random weights in the shape of Qwen2.5-1.5B on a GPU, one sequence per
micro-batch, with rows of ever new lengths and of equal ones, and prints the tokens per second. Run by
hand, with a Python that has torch:

    cd tests/gpu; python -B lengths_bench.py [CASE ...]

MGPU_BIN is the folder of mgpu-run and mgpu-train [build/bin]. Exits with status 1 if new lengths up to
2,048 tokens are trained at less than 30,000 tokens per second in any five steps from step 11 on. Until
then cuDNN builds plans.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from random_model import write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build" / "bin"))
CONFIG = {"vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960,
          "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2}
WANTED = 30_000  # on an H100 or H200
LONGEST = 8192
random.seed(1)

# The lengths of the rows, and the number of steps of four rows.
CASES = {
    "new, 1449 to 2048": (random.sample(range(1449, 2049), 240), 50),
    "equal, 1750": ([1750] * 240, 50),
    "multiples of 64": ([64 * random.randrange(22, 33) for _ in range(240)], 50),
    "new, 2049 to 8192": (random.sample(range(2049, LONGEST + 1), 480), 100),
    "equal, 8192": ([LONGEST] * 100, 25),
}


def records_of(folder, name):
    lengths, steps = CASES[name]
    data = folder / "rows.jsonl"
    data.write_text("".join(
        json.dumps({"input_ids": [random.randrange(1000) for _ in range(length)]}) + "\n"
        for length in lengths))
    output = folder / f"output {name}"
    keys = {"model_name_or_path": str(folder / "model"), "dataset_name": str(data),
            "output_dir": str(output), "max_length": LONGEST, "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 4, "max_steps": steps, "learning_rate": 1e-5,
            "bf16": True, "gradient_checkpointing": False, "logging_steps": 5,
            "save_strategy": "no", "save_final_model": False}
    recipe = folder / "recipe.yaml"
    recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
    job = subprocess.run([BIN / "mgpu-run", "--nproc", "1", recipe], capture_output=True, text=True)
    if job.returncode != 0:
        sys.exit(job.stdout + job.stderr)
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if "loss" in record]


def main():
    slow = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder / "model", CONFIG)
        for case in sys.argv[1:] or CASES:
            speeds = [round(record["tokens_per_second"]) for record in records_of(folder, case)]
            print(f"{case}: {speeds[0]} and {speeds[1]} tok/s at steps 5 and 10, then {min(speeds[2:])} "
                  f"at the slowest, {speeds[-1]} at the last", flush=True)
            slow = slow or (case == "new, 1449 to 2048" and min(speeds[2:]) < WANTED)
    return slow


if __name__ == "__main__":
    sys.exit(main())
