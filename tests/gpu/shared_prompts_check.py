"""Trains with GRPO on one generation several times over, with micro-batches that compute each prompt once and
with micro-batches of one completion, which share nothing. Prints how far losses, divergences and norms of
gradients are apart. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B shared_prompts_check.py [--steps 4] [--tiny]

The model has random weights and several end tokens, so that completions have different lengths; rewards differ
between the completions of a prompt. Micro-batches of 4, 8 and 16 completions show how much rounding alone
changes the figures. Exits with status 1 if a figure differs by more than the limit: 2e-4 in fp32, and in bf16
three times the largest difference between micro-batches that share, at least 1 %. `--unshared FOLDER` has
mgpu-run and an mgpu-train that never shares, for a further run. MGPU_BIN is the folder of mgpu-run and
mgpu-train [build/bin].
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from random_model import SHAPES, write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build" / "bin"))
MODEL = SHAPES["0.5B"] | {"num_hidden_layers": 8, "vocab_size": 1000, "eos_token_id": list(range(8))}
TINY = SHAPES["tiny"] | {"eos_token_id": list(range(8))}
GROUP = 8
FIGURES = ("loss", "grad_norm", "kl", "entropy")
REWARD = "def score(completion_ids, **columns):\n    return [float(sum(ids) % 7) for ids in completion_ids]\n"
ADAPTERS = {"use_peft": True, "lora_r": 16, "lora_dropout": 0, "loss_type": "grpo",
            "importance_sampling_level": "sequence"}
CASES = {
    "all weights, dapo, fp32": {"dtype": "fp32"},
    "all weights, dapo, bf16": {"dtype": "bf16"},
    "adapters, gspo, fp32": {"dtype": "fp32", **ADAPTERS},
    "adapters, gspo, bf16": {"dtype": "bf16", **ADAPTERS},
}


def train(args, folder, programs, micro_batch, keys):
    """The figures of each step, and the completions that were generated."""
    output = folder / "output"
    shutil.rmtree(output, ignore_errors=True)
    keys = {"task": "grpo", "model_name_or_path": str(folder / "model"),
            "dataset_name": str(folder / "prompts.jsonl"), "output_dir": str(output),
            "num_generations": GROUP, "global_batch_size": GROUP * args.prompts,
            "per_device_train_batch_size": micro_batch, "max_completion_length": args.length // 2,
            "num_iterations": args.steps, "max_steps": args.steps, "learning_rate": 1e-4,
            "lr_scheduler_type": "constant", "beta": 0.04, "gradient_checkpointing": False,
            "reward_funcs": [f"{folder / 'reward.py'}:score"], "reward_python": sys.executable,
            "logging_steps": 1, "log_completions": True, "save_strategy": "no", "save_final_model": False,
            **keys}
    recipe = folder / "recipe.yaml"
    recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
    job = subprocess.run([programs / "mgpu-run", "--nproc", "1", recipe], capture_output=True, text=True)
    if job.returncode != 0:
        sys.exit(job.stdout + job.stderr)
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["event"] == "train"]
    (completions,) = (output / "completions").glob("*.jsonl")
    return [{figure: step[figure] for figure in FIGURES} for step in steps], completions.read_text()


def difference(run, other, figure):
    """The largest of all steps, relative to the largest value of the figure: losses may be near 0."""
    largest = max(abs(step[figure]) for step in other)
    return max(abs(one[figure] - two[figure]) for one, two in zip(run, other, strict=True)) / largest


def check(args, folder, name, keys):
    print(name, flush=True)
    whole, completions = train(args, folder, BIN, 1, keys)
    runs = {f"shared, {size} a micro-batch": train(args, folder, BIN, size, keys) for size in (4, 8, 16)}
    if args.unshared:
        runs["not shared, 8 a micro-batch"] = train(args, folder, args.unshared, 8, keys)
    lengths = [len(json.loads(line).get("completion", "")) for line in completions.splitlines()]
    print(f"  {len(lengths)} completions, of {min(lengths)} to {max(lengths)} characters")
    for step, values in enumerate(whole, 1):
        print(f"  step {step}, not shared: " + ", ".join(f"{key} {value:.6g}" for key, value in values.items()))
    good = min(step["grad_norm"] for step in whole) > 0
    shared = [run for title, (run, _) in runs.items() if title.startswith("shared")]
    for title, (run, own_completions) in runs.items():
        if own_completions != completions:
            print(f"  {title}: OTHER COMPLETIONS were generated")
            good = False
        parts = []
        for figure in FIGURES:
            spread = max(difference(one, two, figure) for one in shared for two in shared)
            limit = 2e-4 if keys["dtype"] == "fp32" else max(0.01, 3 * spread)
            found = difference(run, whole, figure)
            fine = found <= limit
            good = good and fine
            parts.append(f"{figure} {found:.1e}" + ("" if fine else f" ABOVE {limit:.1e}"))
        print(f"  {title}, from not shared: " + ", ".join(parts), flush=True)
    print("  among those that share: " + ", ".join(
        f"{figure} {max(difference(one, two, figure) for one in shared for two in shared):.1e}"
        for figure in FIGURES), flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4, help="passes over one generation")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--length", type=int, default=256, help="tokens of a prompt; completions have half")
    parser.add_argument("--tiny", action="store_true", help="a small model, in fp32: works without a GPU")
    parser.add_argument("--unshared", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--folder", help="where the model and outputs are written")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        write_model(folder / "model", TINY if args.tiny else MODEL)
        (folder / "reward.py").write_text(REWARD)
        rng = random.Random(5)
        (folder / "prompts.jsonl").write_text("".join(
            json.dumps({"prompt": "".join(rng.choices("0123456789", k=args.length))}) + "\n"
            for _ in range(args.prompts)))
        cases = {title: keys | {"dtype": "fp32"} if args.tiny else keys for title, keys in CASES.items()}
        results = [check(args, folder, title, keys) for title, keys in cases.items()]
    print("shared prompts agree" if all(results) else "SHARED PROMPTS DIFFER")
    return not all(results)


if __name__ == "__main__":
    sys.exit(main())
