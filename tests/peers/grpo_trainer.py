"""Shared by the GRPO tests: prompts, rewards of every kind, and recipes of a few small steps."""

import json
import time

import trainer
from trainer import write_rows

ATOL = 1e-5  # of weights, after three steps of 1e-4 in fp32

# Rewards that an untrained model can earn.
RULES = {"letters": {"regex": "[a-z]{2}", "otherwise": -0.5}, "digits": {"regex": "[0-9]"}}

REWARDS = '''
import json
import os
import pathlib
import time

def vowels(completions, **columns):
    return [sum(c in "aeiou" for c in text) / 8 for text in completions]

def sleeps(completions, **columns):
    time.sleep(1000)

def sleeps_on_rank_1(completions, **columns):
    time.sleep(1000 if os.environ["RANK"] == "1" else 0)
    return [1.0] * len(completions)

def meet(name, other):
    """Returns when both functions of this rank are being called."""
    mark = f"{__file__}.{os.environ['RANK']}."
    open(mark + name, "w").close()
    while not os.path.exists(mark + other):
        time.sleep(0.01)

def meets_second(completions, **columns):
    meet("first", "second")
    return vowels(completions)

def meets_first(completions, **columns):
    meet("second", "first")
    return vowels(completions)

def marks(completions, **columns):
    open(f"{__file__}.scored", "w").close()
    return vowels(completions)

def no_number(completions, **columns):
    return [float("nan")] * len(completions)

def sometimes(completions, prompts, **columns):
    scores = vowels(completions)
    return [score if int(prompt.split("+")[0]) % 4 == 0 else 1 for score, prompt in zip(scores, prompts)]

def same(completions, **columns):
    return [1.5] * len(completions)

def nothing(completions, **columns):
    return [None] * len(completions)

def knows(completions, prompts, tag, nested, **columns):
    assert len(prompts) == len(completions) == len(tag) == len(nested)
    return [float(t == "t" + p[1] and n == {"of": [p]}) for p, t, n in zip(prompts, tag, nested)]

def says(completions, prompts, **columns):
    assert all(prompt[-1]["role"] == "user" for prompt in prompts), prompts
    return [float(len(answer[0]["content"]) % 3) for answer in completions]

def records(completions, prompts, **columns):
    with open(pathlib.Path(__file__).with_name("requests.jsonl"), "a") as file:
        file.write(json.dumps({"prompts": prompts, "completions": completions}) + "\\n")
    return [0.5] * len(completions)
'''


def prompt_rows(count):
    return [{"prompt": f"{number}+{number * 7 % 10}=", "solution": str(number)}
            for number in range(count)]


class GrpoTest(trainer.TrainerTest):
    KEYS = dict(task="grpo", reward_funcs=["letters", "digits"], reward_rules=RULES,
                num_generations=8, global_batch_size=24, per_device_train_batch_size=4,
                max_completion_length=8, max_steps=3, learning_rate=1e-4,
                lr_scheduler_type="constant", shuffle_dataset=True, save_strategy="no")

    def setUp(self):
        super().setUp()
        self.data = write_rows(self.dir / "prompts.jsonl", prompt_rows(24))
        self.rewards = self.dir / "my_rewards.py"
        self.rewards.write_text(REWARDS)

    def recipe(self, **keys):
        return super().recipe(**{**self.KEYS, **keys})

    def mine(self, name):
        return f"{self.rewards}:{name}"

    def moved(self, run, stem="model"):
        """The largest change of a weight since the start."""
        before = trainer.load_tensors(self.model)
        return max((tensor - before[name]).abs().max().item()
                   for name, tensor in run.weights(stem).items())

    def completions(self, run):
        """The log's lines, by file. (A text may have other characters that end a line.)"""
        return {path.name: [json.loads(line) for line in path.read_text().strip().split("\n")]
                for path in sorted((run.folder / "completions").iterdir())}

    def error_lines(self, run):
        """The number of error lines that ranks have written."""
        return sum(line.startswith("mgpu-train: ") for line in run.err.splitlines())

    def refused(self, status, *lines, nproc=2, recipe=None, **keys):
        begin = time.monotonic()
        run = self.end(self.start_training(nproc, recipe=recipe, **keys))
        self.assertEqual(run.status, status, run.out + run.err)
        for line in lines:
            self.assertIn(line, run.err)
        self.assertLess(time.monotonic() - begin, 40 * trainer.SLOWER)
        self.assertFalse((run.folder / "model.safetensors").exists())
        return run
