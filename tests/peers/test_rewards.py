"""Compares rewards with their definitions, written again in Python, and with math_verify.

data/answers.jsonl has the expected scores of `accuracy`. If math_verify decides differently, a line
has its verdict and the reason for ours.
"""

import collections
import json
import math
import os
import pathlib
import random
import re
import subprocess
import tempfile
import unittest

from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify

TRAIN = pathlib.Path(os.environ["MGPU_BUILD"]) / "bin" / "mgpu-train"
ANSWERS = pathlib.Path(__file__).parent / "data" / "answers.jsonl"
LIMIT = 300
SETTINGS = {"cosine_max_len": 120, "cosine_min_value_wrong": 0.0, "cosine_max_value_wrong": -0.5,
            "cosine_min_value_correct": 0.5, "cosine_max_value_correct": 1.0,
            "repetition_n_grams": 3, "repetition_max_penalty": -1.0, "max_completion_len": 40,
            "soft_punish_cache": 15}


def ours(names, rows, **settings):
    done = score(",".join(names), "".join(json.dumps(row) + "\n" for row in rows),
                 "--settings", json.dumps(settings))
    if done.returncode:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def score(names, lines, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write(lines)
        file.flush()
        return subprocess.run([TRAIN, "score", "--rewards", names, *options, file.name],
                              capture_output=True, text=True, timeout=LIMIT, check=False)


def answers():
    return [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]


def by_math_verify(solution, completion):
    gold = parse(solution, extraction_mode="first_match")
    if not gold:
        return None
    config = LatexExtractionConfig(
        normalization_config=NormalizationConfig(
            nits=False, malformed_operators=False, basic_latex=True, boxed="all", units=True),
        boxed_match_priority=0, try_extract_without_anchor=False)
    answer = parse(completion, extraction_config=[config], extraction_mode="first_match")
    return float(verify(gold, answer))


# --- The definitions

def format_reward(text):
    pattern = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
    return 1.0 if re.match(pattern, text, re.DOTALL | re.MULTILINE) else 0.0


def tag_count(text):
    tags = ["<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>"]
    return sum(0.25 for tag in tags if text.count(tag) == 1)


def reasoning_steps(text):
    pattern = r"(Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,)"
    return min(1.0, len(re.findall(pattern, text)) / 3)


def think_format(text):
    pattern = r"^<think>(?!.*<think>)(.*?)</think>.*$"
    return 1.0 if re.match(pattern, text, re.DOTALL | re.MULTILINE) else 0.0


def repeated(words, penalty):
    grams = list(zip(words, words[1:], words[2:]))
    if not grams:
        return 0.0
    return (1 - len(set(grams)) / len(grams)) * penalty


def overlong(length, longest, cache):
    if length <= longest - cache:
        return 0.0
    return (longest - cache - length) / cache if length <= longest else -1.0


def wave(progress, low, high):
    return low + 0.5 * (high - low) * (1 + math.cos(progress * math.pi))


def cosine(text, verdict):
    if verdict is None:
        return 1.0
    low, high = (0.5, 1.0) if verdict else (-0.5, 0.0)
    return wave(len(text) / 120, low, high)


def cosine_of_tokens(count, verdict):
    if verdict is None:
        return None
    low, high = (0.5, 1.0) if verdict else (-0.5, 0.0)
    return wave(min(1, count / 120), low, high)


def length(texts, verdicts):
    sizes = [len(text) for text in texts]
    if min(sizes) == max(sizes):
        return [0.0] * len(sizes)
    shares = [0.5 - (size - min(sizes)) / (max(sizes) - min(sizes)) for size in sizes]
    return [min(0, share) if verdict == 0 else share for share, verdict in zip(shares, verdicts)]


def ranking(hits):
    places = [1 / math.log2(i + 2) for i in range(len(hits))]
    if not any(hits):
        return [0.0] * len(hits)
    return [1.0 if hit else -place / sum(places) for hit, place in zip(hits, places)]


# --- Completions of every kind

PIECES = ["<think>\n", "\n</think>\n", "<answer>\n", "\n<answer>\n", "\n</answer>", "<think>",
          "</think>", "Step 1:", "Step ٣: ", "1. ", "\n1. ", "\n- so", "\n* so", "First, ", "Next, ",
          "Finally,", "the the the ", "a b c a b c ", "İstanbul ISTANBUL ", "\u00a0", "\u2003x ", "日本 ",
          "\n", "\\boxed{5}", "\\boxed{4}", " ", "ß SS ", "\x1c"]
WHOLE = ["", "<think>\na\n</think>\n<answer>\nb\n</answer>",
         "<think>\na\n</think>\n<answer>\nb\n</answer>\nmore",
         "<think>\na\n</think>\n<answer>\nb\n</answer> more",
         "<think>\n</think>\n<answer>\n</answer>", "First, a\nSecond, b\nFinally, c \\boxed{5}"]


def completions(seed=11, count=600):
    rng = random.Random(seed)
    return WHOLE + ["".join(rng.choices(PIECES, k=rng.randint(1, 9))) for _ in range(count)]


class Rewards(unittest.TestCase):
    def test_accuracy_gives_the_listed_scores(self):
        rows = answers()
        self.assertGreaterEqual(len(rows), 200)
        for row, given in zip(rows, ours(["accuracy"], rows), strict=True):
            with self.subTest(row=row):
                self.assertEqual(given["accuracy"], row["accuracy"])

    def test_accuracy_equals_math_verify_except_for_the_listed_reasons(self):
        for row in answers():
            with self.subTest(row=row):
                verdict = by_math_verify(row["solution"], row["completion"])
                self.assertEqual(verdict, row.get("math_verify", row["accuracy"]))
                self.assertEqual("why" in row, verdict != row["accuracy"])

    def test_text_rewards_equal_their_definitions(self):
        texts = completions()
        ids = [[ord(c) % 5 for c in text] for text in texts]
        rows = [{"completion": t, "completion_ids": i} for t, i in zip(texts, ids)]
        expected = {
            "format": [format_reward(t) for t in texts],
            "tag_count": [tag_count(t) for t in texts],
            "reasoning_steps": [reasoning_steps(t) for t in texts],
            "think_format_reward": [think_format(t) for t in texts],
            "repetition_penalty": [repeated(t.lower().split(), -1.0) for t in texts],
            "get_repetition_penalty_reward": [repeated(i, -1.0) for i in ids],
            "soft_overlong_punishment": [overlong(len(i), 40, 15) for i in ids],
            "get_soft_overlong_punishment": [overlong(len(i), 40, 15) for i in ids],
        }
        given = ours(list(expected), rows, **SETTINGS)
        for name, values in expected.items():
            seen = set(values)
            self.assertGreater(len(seen), 1, name)
            for text, value, row in zip(texts, values, given, strict=True):
                with self.subTest(name=name, text=text):
                    self.assertAlmostEqual(row[name], value, places=12)

    def test_answer_and_length_rewards_equal_their_definitions(self):
        golds = ["5", "4", "?"]
        rows, groups = [], collections.defaultdict(list)
        for at, text in enumerate(completions(count=300)):
            gold = golds[at // 6 % 3]
            rows.append({"completion": text, "solution": gold, "group": at // 6,
                         "completion_ids": [1] * (len(text) * 2)})
            groups[at // 6].append(at)
        verdicts = [row["accuracy"] for row in ours(["accuracy"], rows)]
        names = ["length", "cosine", "get_cosine_scaled_reward"]
        given = ours(names, rows, **SETTINGS)
        whole = ours(["length"], rows, length_scope="batch")
        texts = [row["completion"] for row in rows]
        lengths = [None] * len(rows)
        for members in groups.values():
            values = length([texts[i] for i in members], [verdicts[i] for i in members])
            for place, value in zip(members, values):
                lengths[place] = value
        for at, row in enumerate(given):
            with self.subTest(text=texts[at], verdict=verdicts[at]):
                self.assertAlmostEqual(row["length"], lengths[at], places=12)
                self.assertAlmostEqual(row["cosine"], cosine(texts[at], verdicts[at]), places=12)
                self.assertEqual(*(round(v, 12) if v is not None else v for v in (
                    row["get_cosine_scaled_reward"],
                    cosine_of_tokens(len(texts[at]) * 2, verdicts[at]))))
        for row, value in zip(whole, length(texts, verdicts), strict=True):
            self.assertAlmostEqual(row["length"], value, places=12)

    def test_errors_are_one_line_with_reason_and_place(self):
        for names, lines, options, status, words in (
                ("acuracy", "", [], 2, "unknown reward acuracy (did you mean accuracy?)"),
                ("format", '{"completion": 5}\n', [], 2, ":1: completion is neither text nor messages"),
                ("format", '{"completion": "a"}\n\n[]\n', [], 2, ":3: the line is not a JSON object"),
                ("accuracy", '{"completion": "a"}\n', [], 2,
                 "reward accuracy: the dataset has no column solution"),
                ("cosine", "", ["--settings", '{"cosine_maxlen": 5}'], 2,
                 "did you mean cosine_max_len?")):
            done = score(names, lines, *options)
            with self.subTest(names=names, lines=lines):
                self.assertEqual((done.returncode, done.stdout), (status, ""))
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_ranking_equals_its_definition(self):
        rng = random.Random(3)
        rows, expected = [], []
        for group in range(50):
            items = [rng.choice("abc") for _ in range(rng.randint(1, 8))]
            rows += [{"completion": item, "solution": "a", "group": group} for item in items]
            expected += ranking([item == "a" for item in items])
        for row, value in zip(ours(["ranking"], rows), expected, strict=True):
            self.assertAlmostEqual(row["ranking"], value, places=12)


if __name__ == "__main__":
    unittest.main()
