#!/usr/bin/env python3
"""Trains the recipes of checkouts of other projects for a few steps, with tiny models.

    scripts/testing/train_recipes.py [--only FILE] CHECKOUT...

The recipes stay as they are. A cache of the Hub is made for them: each model is a small random
one of the same family with a tokenizer of the same kind, and each dataset has few rows in the
format, subset and splits that the recipe names. Set are the number of steps, the folders and the
length of completions; nothing is downloaded or uploaded. A recipe has run if at least one step has
a finite loss and the model or adapter is saved. Needs the packages of requirements-tests.txt.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import check_recipes
import tokenizers
import torch
import transformers
import yaml

SOURCES = check_recipes.SOURCES
LIMIT = 400  # seconds for one run
ROWS = 24
COMMIT = "0" * 40  # of everything in the cache
SENTENCE_PIECE = re.compile(r"llama-2|codellama|tinyllama|open_llama|mistral-7b|yi-", re.IGNORECASE)
CHAT = re.compile(r"instruct|chat|r1-distill|cogito|deepcoder|qwen3-|plano|coder", re.IGNORECASE)
CHATML = ("{% for m in messages %}"
          "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def family_of(name):
    name = name.lower()
    if "mistral" in name:
        return "Mistral"
    if "qwen3" in name or "plano" in name:
        return "Qwen3"
    return "Qwen2" if "qwen" in name or "deepcoder" in name else "Llama"


def sentence_piece():
    """BPE over characters with ▁ for spaces and bytes for what is not in the vocabulary."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True))
    made.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")])
    made.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.ByteFallback(),
         tokenizers.decoders.Fuse(), tokenizers.decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=special[:3],
                                             show_progress=False)
    made.train_from_iterator([row["output"] + " " + row["instruction"] for row in alpaca(200)],
                             trainer)
    text = json.loads(made.to_str())
    for token in special[3:]:
        text["model"]["vocab"][token] = len(text["model"]["vocab"])
    text["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                 {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(text)), bos_token="<s>",
        eos_token="</s>", unk_token="<unk>")


def make_model(folder, name):
    folder.mkdir(parents=True)
    if SENTENCE_PIECE.search(name):
        tokenizer = sentence_piece()
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(SOURCES / "docs/examples/tokenizer")
        tokenizer.chat_template = CHATML if CHAT.search(name) else None
    config = getattr(transformers, family_of(name) + "Config")(
        vocab_size=len(tokenizer) + 8, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32768,
        eos_token_id=tokenizer.eos_token_id)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def alpaca(count):
    return [{"instruction": f"Add {n} and {n + 1}.", "input": "" if n % 2 else f"Case {n}",
             "output": f"The sum of {n} and {n + 1} is {2 * n + 1}."} for n in range(count)]


def rows_of(kind, count):
    rows = alpaca(count)
    if kind == "alpaca":
        return rows
    if kind == "text":
        return [{"text": row["output"], "label": 0} for row in rows]
    if kind == "problem":
        return [{"problem": row["instruction"], "solution": f"$\\boxed{{{n}}}$"}
                for n, row in enumerate(rows)]
    column, role, content, names = kind
    return [{column: [{role: names[0], content: row["instruction"]},
                      {role: names[1], content: row["output"]}]} for row in rows]


def axolotl_kind(source):
    if source.get("type") != "chat_template":
        return "alpaca"
    fields = source.get("message_property_mappings") or {}
    role = fields.get("role", "role")
    names = ("human", "gpt") if role == "from" else ("user", "assistant")
    return (source.get("field_messages", "messages"), role, fields.get("content", "content"), names)


def datasets_of(recipe):
    """(name, subset, split, kind of rows) of the datasets of the Hub that a recipe names."""
    chats = ("messages", "role", "content", ("user", "assistant"))
    for source in recipe.get("datasets") or []:
        split = re.sub(r"\[.*", "", source.get("split", "train"))
        yield source["path"], source.get("name", "default"), split, axolotl_kind(source)
    for source in (recipe.get("dataset_mixture") or {}).get("datasets", []):
        yield source["id"], source.get("config", "default"), source.get("split", "train"), chats
    if "dataset_name" in recipe:
        kind = "problem" if "reward_funcs" in recipe else chats
        if "system_prompt" not in recipe and recipe["dataset_name"].endswith("imdb"):
            kind = "text"
        for split in (recipe.get("dataset_train_split", "train"),
                      recipe.get("dataset_test_split", "test")):
            yield recipe["dataset_name"], recipe.get("dataset_config", "default"), split, kind


def snapshot(cache, kind, name):
    top = cache / f"{kind}--{name.replace('/', '--')}"
    (top / "refs").mkdir(parents=True, exist_ok=True)
    (top / "refs/main").write_text(COMMIT)
    return top / "snapshots" / COMMIT


def make_datasets(cache, recipe):
    all_of = {}
    for name, subset, split, kind in datasets_of(recipe):
        all_of.setdefault(name, {}).setdefault(subset, {})[split] = kind
    held_out = (recipe.get("dataset_mixture") or {}).get("test_split_size") or 0
    held_out = held_out if held_out >= 1 else 0
    for name, subsets in all_of.items():
        folder = snapshot(cache, "datasets", name)
        card = []
        for subset, splits in subsets.items():
            files = []
            for split, kind in splits.items():
                file = folder / subset / f"{split}.jsonl"
                file.parent.mkdir(parents=True, exist_ok=True)
                rows = rows_of(kind, ROWS + held_out)
                file.write_text("".join(json.dumps(row) + "\n" for row in rows))
                files.append({"split": split, "path": f"{subset}/{split}.jsonl"})
            card.append({"config_name": subset, "data_files": files})
        (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': card})}---\n")


def settings_for(recipe, out):
    chosen = {"offline": "true", "output_dir": out / "model", "push_to_hub": "false",
              "dataset_prepared_path": out / "tokens", "dataset_num_proc": 1}
    if (recipe.get("evals_per_epoch") or 0) > 1 or (recipe.get("saves_per_epoch") or 0) > 1:
        chosen["num_train_epochs"] = 2
    else:
        chosen["max_steps"] = 2
    if "reward_funcs" in recipe:
        chosen["max_completion_length"] = 16
    return [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]


def outcome(run, model):
    if run.returncode != 0:
        lines = [line for line in run.stderr.splitlines() if line.strip()]
        return "failed: " + " | ".join(lines[-3:])
    metrics = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in metrics if record["event"] == "train"]
    if not losses or not all(math.isfinite(loss) for loss in losses):
        return f"failed: losses {losses}"
    saved = [name for name in ("adapter_model.safetensors", "model.safetensors")
             if (model / name).exists()]
    last = max(record["step"] for record in metrics)
    return f"ran: {last} steps, {saved[0]}" if saved else "failed: nothing saved"


def train(program, checkout, path):
    recipe = yaml.safe_load((checkout / path).read_text().replace(": <|", ": \\<|"))
    out = Path(tempfile.mkdtemp(prefix="recipe-"))
    try:
        cache = out / "hub"
        name = recipe.get("base_model") or recipe["model_name_or_path"]
        make_model(snapshot(cache, "models", name), name)
        make_datasets(cache, recipe)
        env = dict(os.environ, HF_HUB_CACHE=str(cache), HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1",
                   CUDA_VISIBLE_DEVICES="")
        run = subprocess.run([program, path, "--single", *settings_for(recipe, out)], cwd=checkout,
                             env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
        return outcome(run, out / "model")
    except subprocess.TimeoutExpired:
        return f"failed: no end after {LIMIT} s"
    except Exception as error:  # one recipe must not end the others
        return f"failed: {type(error).__name__}: {error}"
    finally:
        shutil.rmtree(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    parser.add_argument("--only", metavar="FILE", help="train only the recipes listed in FILE")
    parser.add_argument("--program", default=SOURCES / "build/bin/mgpu-train", type=Path,
                        metavar="FILE", help="mgpu-train, if it is not the one in build/bin")
    options = parser.parse_args()
    program, only = options.program.resolve(), check_recipes.listed(options.only)
    accepted = [(root.resolve(), path) for root in options.checkouts
                for path in check_recipes.recipes(root, only)
                if check_recipes.check(program, root, path)["result"] == "accepted"]
    ran = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda each: train(program, *each), accepted)
        for (root, path), result in zip(accepted, results):
            print(f"{root.name}  {path}: {result}", flush=True)
            ran += result.startswith("ran")
    print(f"{ran} of {len(accepted)} accepted recipes ran")
    return 0 if ran == len(accepted) else 1


if __name__ == "__main__":
    sys.exit(main())
