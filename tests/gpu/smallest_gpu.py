"""Measures how much GPU memory docs/examples/qlora_8gb.yaml needs, with random weights in the shape of
Qwen2.5-3B and rows of the greatest length. Run by hand on an idle GPU, with a Python that has torch:

    python3 -B tests/gpu/smallest_gpu.py [--steps 5] [--set max_length=2048]

Prints the peak that the trainer reports, what it planned, and the peak that nvidia-smi shows for the
whole GPU, CUDA's own memory included. MGPU_BIN is the folder of mgpu-run and mgpu-train [build/bin].
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile

from random_model import write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build/bin"))
RECIPE = ROOT / "docs/examples/qlora_8gb.yaml"
SHAPE = {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
         "num_attention_heads": 16, "num_key_value_heads": 2, "vocab_size": 151936}
LONGEST = 4096  # tokens; rows are shortened to max_length
ROWS = 64
VOCABULARY = 256  # of the rows
GIB = 2**30


def write_rows(path):
    rng = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(ROWS):
            ids = [rng.randrange(VOCABULARY) for _ in range(LONGEST)]
            file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_model(folder / "model", SHAPE)
        write_rows(folder / "rows.jsonl")
        settings = {"model_name_or_path": folder / "model", "dataset_name": folder / "rows.jsonl",
                    "dataset_prepared_path": folder / "tokens", "output_dir": folder / "out",
                    "max_steps": args.steps, "save_strategy": "no", "logging_steps": 1}
        words = [f"--set={key}={value}" for key, value in settings.items()]
        words += [f"--set={setting}" for setting in args.set]
        with open(folder / "used", "w", encoding="ascii") as used:
            sampler = subprocess.Popen(["nvidia-smi", "--query-gpu=memory.used,name", "-i", "0",
                                        "--format=csv,noheader,nounits", "-lms", "50"], stdout=used)
            try:
                subprocess.run([BIN / "mgpu-run", "--nproc", "1", RECIPE, *words], check=True)
            finally:
                sampler.terminate()
                sampler.wait()
        samples = [line.split(", ") for line in (folder / "used").read_text().splitlines()]
        results = json.loads((folder / "out/train_results.json").read_text())
        print(f"\n{samples[0][1]}: {RECIPE.name}, {args.steps} steps")
        print(f"planned {results.get('planned_memory_bytes', 0) / GIB:.2f} GiB, peak of the trainer "
              f"{results['peak_memory_bytes'] / GIB:.2f} GiB, {results['train_tokens_per_second']:.0f} tok/s")
        print(f"GPU memory in use, by nvidia-smi: {int(samples[0][0]) / 1024:.2f} GiB before, at most "
              f"{max(int(sample[0]) for sample in samples) / 1024:.2f} GiB")


if __name__ == "__main__":
    main()
