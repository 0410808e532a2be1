"""Rewards for GSM8K's rows: `answer` ends with "#### " and the result, a number.

    mgpu-train score --rewards docs/examples/gsm8k_rewards.py:correct rows.jsonl

Functions are called with the columns of the dataset by name, for one group of completions at a time, and
return one number for each completion. None means that the reward does not apply.
"""

import re

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def text_of(completion):
    """A completion is a text, or a list of messages if the model has a chat template."""
    return completion if isinstance(completion, str) else completion[-1]["content"]


def number(text):
    return float(text.replace(",", ""))


def boxed(completion):
    """The number in the last \\boxed{} of a completion, or None."""
    found = re.findall(r"\\boxed\{([^{}]*)\}", text_of(completion))
    numbers = NUMBER.findall(found[-1]) if found else []
    return number(numbers[-1]) if numbers else None


def correct(completions, answer, **_):
    """1 if the boxed number is the result, else 0."""
    wanted = [number(NUMBER.findall(text.rsplit("####", 1)[1])[-1]) for text in answer]
    return [float(boxed(completion) == result) for completion, result in zip(completions, wanted)]


def has_box(completions, **_):
    """1 if there is a boxed number at all: an easier goal, which is learned first."""
    return [float(boxed(completion) is not None) for completion in completions]
