"""Runs mgpu-train on tiny models, for the tests of training beside Hugging Face's programs."""

import json
import os
import pathlib
import random
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["MGPU_BUILD"]) / "bin"
TOKENIZER = ROOT / "docs" / "examples" / "tokenizer"
VOCAB = 280
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def make_model(kind, folder):
    """A random model of that family in fp32, with a tokenizer; gives the model too."""
    import torch
    import transformers as t
    torch.manual_seed(1)
    common = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=144, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                  eos_token_id=271, bos_token_id=None, pad_token_id=None)
    if kind == "qwen2":
        model = t.Qwen2ForCausalLM(t.Qwen2Config(**common, tie_word_embeddings=True))
    elif kind == "qwen3":
        model = t.Qwen3ForCausalLM(t.Qwen3Config(**common, head_dim=32, tie_word_embeddings=False))
    else:
        model = t.LlamaForCausalLM(t.LlamaConfig(**common, tie_word_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder)
    return model


def make_rows(count, seed=0, longest=40):
    """Rows that are tokenised already; the first third of each has no label."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        ids = [rng.randrange(256) for _ in range(rng.randrange(6, longest))]
        labels = [-100 if i < len(ids) // 3 else token for i, token in enumerate(ids)]
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def write_rows(path, rows):
    pathlib.Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def command(recipe, ranks, settings):
    words = [str(BIN / "mgpu-run"), "--nproc", str(ranks), str(recipe)]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    return words


def train(recipe, ranks=1, expect=0, **settings):
    """Trains; gives what it printed. Fails the test if it does not end as expected."""
    done = subprocess.run(command(recipe, ranks, settings), env=ENVIRONMENT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
    if expect is not None and done.returncode != expect:
        raise AssertionError(f"ended with {done.returncode}, not {expect}:\n{done.stdout}")
    return done.stdout


def write_recipe(path, **settings):
    defaults = {"max_length": 128, "logging_steps": 1, "lr_scheduler_type": "constant",
                "learning_rate": 1e-3, "shuffle_dataset": False, "save_steps": 1000000,
                "resume_from_checkpoint": "auto", "dataset_format": "tokenized", "plot_loss": False}
    lines = [f"{key}: {json.dumps(value)}" for key, value in {**defaults, **settings}.items()]
    pathlib.Path(path).write_text("\n".join(lines) + "\n")
    return path


def metrics(output, name):
    """The values of one name in metrics.jsonl, in order."""
    lines = (json.loads(line) for line in
             (pathlib.Path(output) / "metrics.jsonl").read_text().splitlines())
    return [line[name] for line in lines if name in line]


def weights(folder):
    import safetensors.torch
    return safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")
