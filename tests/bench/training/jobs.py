"""How our jobs are measured: recipes under mgpu-run, and what their metrics say."""

import dataclasses
import json
import random
import shutil
import statistics
import sys
import time

from .programs import dtype_keys, lora_keys, write_recipe
from .settings import Failed, Measurement, run

GIB = 2**30
SHORTEST = 0.001  # seconds; a stall that is lost in the noise of steps counts as this
DIGITS = "0123456789"  # one token each with the tokenizer of docs/examples


def lengths_of(kind, longest, count):
    """Lengths of rows: "equal", "new" (all different while there are enough) or "unequal"."""
    rng = random.Random(1)
    if kind == "equal":
        return [longest] * count
    if kind == "unequal":
        return [rng.randint(longest // 8, longest) for _ in range(count)]
    shortest = longest * 1449 // 2048
    choices = range(shortest, longest + 1)
    return rng.sample(choices, count) if count <= len(choices) else rng.choices(choices, k=count)


def write_rows(path, lengths):
    rng = random.Random(2)
    with open(path, "w", encoding="ascii") as file:
        for length in lengths:
            ids = [rng.randrange(256) for _ in range(length)]
            file.write(json.dumps({"input_ids": ids}) + "\n")
    return path


def train_job(settings, keys, gpus):
    """Trains; returns the records of metrics.jsonl and the values of train_results.json."""
    output = settings.scratch / "output"
    shutil.rmtree(output, ignore_errors=True)
    keys = {"output_dir": str(output), "dataset_prepared_path": str(settings.scratch / "tokens"),
            "learning_rate": 1e-5, "logging_steps": 1, "save_strategy": "no",
            "save_final_model": False, **dtype_keys(settings), **keys}
    try:
        run(settings, [settings.bin / "mgpu-run", "--nproc", gpus,
                       write_recipe(settings.scratch / "recipe.yaml", keys)])
        lines = (output / "metrics.jsonl").read_text().splitlines()
        results = json.loads((output / "train_results.json").read_text())
        return [json.loads(line) for line in lines], results
    except (OSError, ValueError) as error:
        raise Failed(f"the metrics of the job cannot be read: {error}") from None
    finally:
        shutil.rmtree(output, ignore_errors=True)  # checkpoints are large


def steps_in(records, warm):
    steps = [record for record in records if record.get("event") == "train"]
    if len(steps) <= warm:
        raise Failed(f"the job wrote metrics of {len(steps)} steps; more than {warm} are needed")
    return steps[warm:]


def with_memory(value, results, tflops=None):
    """The largest peak of a GPU, and the plan for it, which excludes CUDA's own memory."""
    gib = {key: results[key] / GIB for key in results if "memory_bytes" in key}
    peaks = [size for key, size in gib.items() if key.startswith("peak_memory_bytes")]
    return Measurement(value, max(peaks, default=None), gib.get("planned_memory_bytes"), tflops)


@dataclasses.dataclass(frozen=True)
class Job:
    """Common to all jobs: a recipe for rows of token ids."""
    shape: str
    micro_batch: int = 1
    accumulation: int = 1
    gpus: int = 1
    longest: int = 2048
    rows: str = "equal"
    keys: tuple = ()  # pairs
    untied_keys: tuple = ()  # the same, only for a head of its own, which the tiny model lacks

    def needs(self):
        return ("mgpu-run", "mgpu-train")

    def length(self, settings):
        return 128 if settings.tiny else self.longest

    def numbers(self, settings):
        """Steps to warm up and to measure. The first steps of a job build plans and graphs."""
        warm, steps = settings.steps
        return (warm, steps) if settings.tiny else (10, steps)

    def data(self, settings):
        """The rows: enough that every row is seen at most once, also when several share a bin."""
        steps = sum(self.numbers(settings))
        bins = steps * self.micro_batch * self.accumulation * self.gpus
        count = bins * (3 if self.rows == "unequal" else 1)
        return write_rows(settings.scratch / "rows.jsonl",
                          lengths_of(self.rows, self.length(settings), count))

    def recipe(self, settings):
        return {"model_name_or_path": str(settings.model(self.shape)),
                "dataset_name": str(self.data(settings)), "max_length": self.length(settings),
                "per_device_train_batch_size": self.micro_batch,
                "gradient_accumulation_steps": self.accumulation,
                "max_steps": sum(self.numbers(settings)), "gradient_checkpointing": False,
                **dict(self.keys), **({} if settings.tiny else dict(self.untied_keys))}


@dataclasses.dataclass(frozen=True)
class Throughput(Job):
    """Tokens per second and GPU over all steps after the warm-up, so that slow steps count."""

    def measure(self, settings):
        records, results = train_job(settings, self.recipe(settings), self.gpus)
        steps = steps_in(records, self.numbers(settings)[0])
        seconds = sum(step["seconds"] for step in steps)
        tokens = sum(step["tokens"] for step in steps)
        tflops = statistics.median(step.get("tflops_per_gpu", 0) for step in steps)
        return with_memory(tokens / seconds / self.gpus, results, tflops)


@dataclasses.dataclass(frozen=True)
class CheckpointStall(Job):
    """Seconds that training stands still for a checkpoint: what the two steps after it take longer
    than the median step. The first checkpoint is left out, because it allocates memory."""
    every: int = 10
    saves: int = 3

    def numbers(self, settings):
        every = 4 if settings.tiny else self.every
        return every, every * self.saves + 2  # a save at the end is not followed by a step

    def measure(self, settings):
        every, measured = self.numbers(settings)
        keys = {"save_strategy": "steps", "save_steps": every, "save_total_limit": 1}
        records, results = train_job(settings, {**self.recipe(settings), **keys}, self.gpus)
        return with_memory(self.stall(steps_in(records, 0), every), results)

    def stall(self, steps, every):
        seconds = {step["step"]: step["seconds"] for step in steps}
        usual = statistics.median(seconds.values())
        stalls = [sum(seconds[step + after] - usual for after in (1, 2))
                  for step in range(2 * every, max(seconds) - 1, every)]
        if not stalls:
            raise Failed("the job had no two checkpoints with steps after them")
        return max(statistics.median(stalls), SHORTEST)


@dataclasses.dataclass(frozen=True)
class Start(Job):
    """Seconds from the start of mgpu-run to the end of the first step. The model's files are in the
    page cache, because they were written or read before."""

    def numbers(self, settings):
        return 0, 2

    def measure(self, settings):
        keys = self.recipe(settings)  # writes the files
        began = time.time()
        records, results = train_job(settings, keys, self.gpus)
        return with_memory(steps_in(records, 0)[0]["time"] - began, results)


@dataclasses.dataclass(frozen=True)
class GrpoStep(Job):
    """The median seconds of a GRPO step: prompts and completions of 256 tokens, 8 a prompt."""
    prompts: int = 32
    dropout: float = 0
    LENGTH = 256
    GROUP = 8

    def numbers(self, settings):
        return (1, 2) if settings.tiny else (2, 4 if settings.size == "quick" else 8)

    def sizes(self, settings):
        """Prompts in a step, their tokens, completions in a micro-batch."""
        return (4, 16, 8) if settings.tiny else (self.prompts, self.LENGTH, self.micro_batch)

    def recipe(self, settings):
        prompts, length, micro_batch = self.sizes(settings)
        steps = sum(self.numbers(settings))
        rng = random.Random(3)
        rows = settings.scratch / "prompts.jsonl"
        rows.write_text("".join(
            json.dumps({"prompt": "".join(rng.choices(DIGITS, k=length))}) + "\n"
            for _ in range(prompts * steps)))
        return {"task": "grpo", "model_name_or_path": str(settings.model(self.shape)),
                "dataset_name": str(rows), "num_generations": self.GROUP,
                "global_batch_size": prompts * self.GROUP,
                "per_device_train_batch_size": micro_batch, "max_completion_length": length,
                "max_steps": steps, "gradient_checkpointing": False, "beta": 0,
                "reward_funcs": [f"{self.reward(settings)}:odd"],
                "reward_python": sys.executable,
                **lora_keys(16, self.dropout), **dict(self.keys)}

    def reward(self, settings):
        """A file with a reward that half of the completions of any model earn: where all of a group
        earn the same, there is nothing to learn, and the step would be shorter."""
        path = settings.scratch / "reward.py"
        path.write_text("def odd(completion_ids, **columns):\n"
                        "    return [float(sum(ids) % 2) for ids in completion_ids]\n")
        return path

    def measure(self, settings):
        records, results = train_job(settings, self.recipe(settings), self.gpus)
        steps = steps_in(records, self.numbers(settings)[0])
        if min(step.get("reward_std", 0) for step in steps) == 0:
            raise Failed("a step had equal rewards only and learned nothing")
        times = [step["step_time"] for step in steps if "step_time" in step]
        if not times:
            raise Failed("the metrics have no step_time")
        return with_memory(statistics.median(times), results)
