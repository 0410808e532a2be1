#!/usr/bin/env python3
"""Writes the quickstart's data and tokenizer into docs/examples: 3-digit additions, half of them
worked out digit by digit; more additions as prompts with solutions, for GRPO; and a byte-level BPE
tokenizer of 274 tokens. Running it again changes nothing."""

import collections
import json
import pathlib
import random

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "docs" / "examples"
ROWS = 6000
HELD_OUT = 200
PROMPTS = 2560  # of the GRPO example
HELD_OUT_PROMPTS = 512
MERGES = 15
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # the last two for conversations


def worked_out(a, b):
    """Digit by digit from the right, with the carry: 7+5=12, 1+4+1=6, 1+8=9."""
    steps, carry = [], 0
    for place in (1, 10, 100):
        x, y = a // place % 10, b // place % 10
        terms = ([carry] if carry else []) + [x, y]
        total = sum(terms)
        steps.append("+".join(map(str, terms)) + f"={total}")
        carry = total // 10
    return ", ".join(steps)


def row(rng, index):
    a, b = rng.randrange(100, 1000), rng.randrange(100, 1000)
    answer = f"\\boxed{{{a + b}}}"
    long = index % 2 == 0
    completion = f" {worked_out(a, b)}. The answer is {answer}" if long else f" {answer}"
    return {"prompt": f"{a}+{b}=", "completion": completion}


def grpo_rows(seen):
    """Additions that are not in `seen`, each once, with their solutions."""
    rng, rows = random.Random(6), []
    while len(rows) < PROMPTS + HELD_OUT_PROMPTS:
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        prompt = f"{a}+{b}="
        if prompt not in seen:
            seen.add(prompt)
            rows.append({"prompt": prompt, "solution": f"\\boxed{{{a + b}}}"})
    return rows


def byte_characters():
    """The characters that stand for the 256 bytes in byte-level BPE."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters, extra = {}, 0
    for byte in range(256):
        if byte in plain:
            characters[byte] = chr(byte)
        else:
            characters[byte] = chr(0x100 + extra)
            extra += 1
    return characters


def learn_merges(texts, count):
    """The pairs that plain BPE merges first, within words; a word starts at a space. Digits are
    never merged."""
    characters = byte_characters()
    words = collections.Counter()
    for text in texts:
        for word in text.replace(" ", "\0 ").split("\0"):
            words[tuple(characters[byte] for byte in word.encode())] += 1
    merges = []
    while len(merges) < count:
        pairs = collections.Counter()
        for word, times in words.items():
            for pair in zip(word, word[1:]):
                if not any(character.isdigit() for part in pair for character in part):
                    pairs[pair] += times
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        joined = collections.Counter()
        for word, times in words.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == best:
                    out.append(word[i] + word[i + 1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            joined[tuple(out)] += times
        words = joined
    return merges


def tokenizer(texts):
    merges = learn_merges(texts, MERGES)
    tokens = [*byte_characters().values(), *(a + b for a, b in merges)]
    added = [{"id": len(tokens) + i, "content": token, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for i, token in enumerate(SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": r"\d| ?[^\s\d]+|\s+"}, "behavior": "Isolated",
             "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": [list(pair) for pair in merges]},
    }


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main():
    rng = random.Random(42)
    rows = [row(rng, index) for index in range(ROWS + HELD_OUT)]
    lines = [json.dumps(r) + "\n" for r in rows]
    write(EXAMPLES / "addition.jsonl", "".join(lines[:ROWS]))
    write(EXAMPLES / "addition_eval.jsonl", "".join(lines[ROWS:]))
    prompts = [json.dumps(r) + "\n" for r in grpo_rows({r["prompt"] for r in rows})]
    write(EXAMPLES / "addition_grpo.jsonl", "".join(prompts[:PROMPTS]))
    write(EXAMPLES / "addition_grpo_eval.jsonl", "".join(prompts[PROMPTS:]))
    texts = [r["prompt"] + r["completion"] for r in rows[:ROWS]]
    folder = EXAMPLES / "tokenizer"
    write(folder / "tokenizer.json",
          json.dumps(tokenizer(texts), ensure_ascii=False, indent=1) + "\n")
    write(folder / "tokenizer_config.json", json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>",
         "pad_token": "<|endoftext|>",
         "clean_up_tokenization_spaces": False}, indent=1) + "\n")


if __name__ == "__main__":
    main()
