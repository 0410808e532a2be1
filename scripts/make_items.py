#!/usr/bin/env python3
"""Writes the catalogue of docs/examples/minionerec_rl.yaml and its rows into docs/examples/items: 64
made-up items, named by three tokens each as in MiniOneRec, and users of whom the last two items are
known. Users of the first stage buy anything of the same kind next; those of the second stage want
green ones. Running it again changes nothing."""

import json
import pathlib
import random

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs" / "examples" / "items"
SIDE = 4  # values of each of the three tokens
ROWS = 1536
HELD_OUT = 128
KINDS = ["drill", "saw", "lamp", "chair"]
COLOURS = ["red", "green", "blue", "grey"]
SIZES = ["small", "medium", "large", "huge"]


def name(item):
    a, b, c = item
    return f"<a_{a}><b_{b}><c_{c}>"


def any_of_the_kind(last, rng):
    return last[0], rng.randrange(SIDE), rng.randrange(SIDE)


def green_one(last, rng):
    return last[0], COLOURS.index("green"), rng.randrange(SIDE)


def rows(seed, count, choose):
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        before, last = (tuple(rng.randrange(SIDE) for _ in range(3)) for _ in range(2))
        made.append({"prompt": f"{name(before)}, {name(last)}\n### Response:\n",
                     "completion": name(choose(last, rng)) + "\n"})
    return made


def write(file, lines):
    (FOLDER / file).write_text("".join(line + "\n" for line in lines))


def main():
    FOLDER.mkdir(exist_ok=True)
    items = [(a, b, c) for a in range(SIDE) for b in range(SIDE) for c in range(SIDE)]
    random.Random(1).shuffle(items)
    write("items.txt", [f"{name(item)}\t{SIZES[item[2]]} {COLOURS[item[1]]} {KINDS[item[0]]}\t{number}"
                        for number, item in enumerate(items)])
    write("sft.jsonl", map(json.dumps, rows(2, ROWS, any_of_the_kind)))
    made = rows(3, ROWS + HELD_OUT, green_one)
    write("train.jsonl", map(json.dumps, made[HELD_OUT:]))
    write("eval.jsonl", map(json.dumps, made[:HELD_OUT]))


if __name__ == "__main__":
    main()
