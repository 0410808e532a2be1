"""Compares the planned GPU memory with the peak of the trainer on packed rows of unequal lengths, whose
attention has a workspace of its own. Run by hand on an idle GPU, with a Python that has torch:

    python3 -B tests/gpu/packed_memory.py [CASE ...]

Prints a table; exits with status 1 if a peak differs from its plan by more than 3 %. MGPU_BIN is the
folder of mgpu-run and mgpu-train [build/bin].
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from random_model import SHAPES, write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build/bin"))
MOST = 0.03
GIB = 2**30
STEPS = 6
LORA = {"use_peft": True, "lora_r": 16, "lora_target_modules": "all-linear"}
# The shape, the tokens of a bin, and keys of the recipe.
CASES = {
    "full 1.5B": ("1.5B", 8192, {}),
    "LoRA 1.5B": ("1.5B", 32768, LORA),
    "LoRA 4B": ("4B", 8192, LORA),
    "LoRA 4B, recomputed": ("4B", 32768, {**LORA, "gradient_checkpointing": True}),
}


def write_rows(path, longest):
    rng = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(STEPS):
            left = longest  # every bin is full
            while left > 0:
                length = min(left, rng.randrange(longest // 16, longest // 3))
                left -= length
                file.write(json.dumps({"input_ids": [rng.randrange(1000) for _ in range(length)]}) + "\n")


def main():
    good = True
    print("| case | tokens of a bin | planned | peak | deviation |", "| --- | --- | --- | --- | --- |",
          sep="\n")
    for name in sys.argv[1:] or CASES:
        shape, longest, keys = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            write_model(folder / "model", SHAPES[shape])
            write_rows(folder / "rows.jsonl", longest)
            recipe = {"model_name_or_path": str(folder / "model"), "dataset_name": str(folder / "rows.jsonl"),
                      "output_dir": str(folder / "out"), "max_length": longest, "packing": True,
                      "packing_strategy": "sequential", "shuffle_dataset": False,
                      "per_device_train_batch_size": 1, "max_steps": STEPS, "learning_rate": 1e-5,
                      "bf16": True, "gradient_checkpointing": False, "save_strategy": "no",
                      "save_final_model": False, "logging_steps": 1, **keys}
            (folder / "recipe.yaml").write_text(
                "".join(f"{key}: {json.dumps(value)}\n" for key, value in recipe.items()))
            job = subprocess.run([BIN / "mgpu-run", "--nproc", "1", folder / "recipe.yaml"],
                                 capture_output=True, text=True, check=False)
            if job.returncode != 0:
                sys.exit(job.stdout + job.stderr)
            results = json.loads((folder / "out/train_results.json").read_text())
        planned, peak = results["planned_memory_bytes"], results["peak_memory_bytes"]
        good = good and abs(peak / planned - 1) <= MOST
        print(f"| {name} | {longest:,} | {planned / GIB:.2f} GiB | {peak / GIB:.2f} GiB | "
              f"{100 * (peak / planned - 1):+.1f} % |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
