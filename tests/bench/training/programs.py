"""How our own programs without files are measured: step_bench and rollout_bench.

A measured program has measure(settings) and needs(), the names of the binaries that it starts.
"""

import dataclasses
import json
import re

from . import models
from .settings import Failed, Measurement, run

STEP_LINE = re.compile(r"(?P<rate>\d+) tok/s per GPU, (?P<tflops>[\d.]+) TFLOP/s, .* peak "
                       r"(?P<peak>[\d.]+) GiB allocated")
ROUND_LINE = re.compile(r"round \d+: .*: (?P<rate>\d+)/s; (?P<memory>[\d.]+) GiB reserved")
PLAN_LINE = re.compile(r"^ +allocated +([\d.]+) GiB", re.M)


def write_recipe(path, keys):
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
    return path


def lora_keys(rank, dropout):
    if not rank:
        return {}
    return {"use_peft": True, "lora_r": rank, "lora_alpha": 2 * rank, "lora_dropout": dropout}


def dtype_keys(settings):
    """bf16 on GPUs; the small shapes also run on CPUs, in fp32."""
    return {} if settings.tiny else {"bf16": True}


def planned_gib(settings, keys, gpus):
    """What `mgpu-train plan` computes for the allocator of one GPU; None if there is no plan."""
    recipe = write_recipe(settings.scratch / "plan.yaml", keys)
    try:
        text = run(settings, [settings.bin / "mgpu-train", "plan", recipe, "--gpus", gpus,
                              "--gpu-memory", f"{settings.gpu_gib:.2f}GiB"])
    except Failed:  # a plan that does not fit is no reason not to measure
        return None
    found = PLAN_LINE.search(text)
    return float(found[1]) if found else None


@dataclasses.dataclass(frozen=True)
class Steps:
    """Training steps on random tokens, by step_bench."""
    shape: str
    micro_batch: int
    lora: int = 0
    dropout: float = 0
    gpus: int = 1
    zero: int = 0
    fp8: str = "none"

    def needs(self):
        return ("step_bench", "mgpu-train") + (("mgpu-run",) if self.gpus > 1 else ())

    def sizes(self, settings):
        return (2, 128) if settings.tiny else (self.micro_batch, 2048)

    def command(self, settings):
        warm, steps = settings.steps
        batch, length = self.sizes(settings)
        words = [settings.bin / "step_bench", settings.shape(self.shape), f"mb={batch}",
                 f"seq={length}", f"warm={warm}", f"steps={steps}", f"zero={self.zero}"]
        words += [f"lora={self.lora}"] * bool(self.lora)
        words += [f"dropout={self.dropout}"] * bool(self.dropout)
        words += [f"fp8={self.fp8}"] * (self.fp8 != "none")
        if self.gpus > 1:
            words = [settings.bin / "mgpu-run", "--nproc", self.gpus, *words]
        return words

    def measure(self, settings):
        text = run(settings, self.command(settings))
        found = STEP_LINE.search(text)
        if not found:
            raise Failed("step_bench printed no rate")
        return Measurement(float(found["rate"]), float(found["peak"]), self.plan(settings),
                           float(found["tflops"]))

    def plan(self, settings):
        batch, length = self.sizes(settings)
        rows = settings.scratch / "plan.jsonl"
        rows.write_text((json.dumps({"input_ids": [1] * length}) + "\n") * 16 * self.gpus)
        return planned_gib(settings, {
            "model_name_or_path": str(models.config_only(settings, settings.shape(self.shape))),
            "dataset_name": str(rows), "output_dir": str(settings.scratch / "plan"),
            "dataset_prepared_path": str(settings.scratch / "tokens"), "max_length": length,
            "per_device_train_batch_size": batch, "gradient_checkpointing": False,
            "zero_stage": self.zero, "fp8": self.fp8, **dtype_keys(settings),
            **lora_keys(self.lora, self.dropout)}, self.gpus)


@dataclasses.dataclass(frozen=True)
class Decode:
    """Generation of 256 tokens after prompts of 256, by rollout_bench: the last call's rate."""
    shape: str
    sequences: int
    lora: int = 0
    group: int = 1

    def needs(self):
        return ("rollout_bench",)

    def command(self, settings):
        sequences, length = (4, 16) if settings.tiny else (self.sequences, 256)
        words = [settings.bin / "rollout_bench", settings.shape(self.shape), f"rows={sequences}",
                 f"prompt={length}", f"new={length}",
                 f"rounds={3 if settings.size == 'full' else 2}"]
        words += [f"lora={self.lora}"] * bool(self.lora)
        words += [f"group={min(self.group, sequences)}"] * (self.group > 1)
        return words

    def measure(self, settings):
        found = list(ROUND_LINE.finditer(run(settings, self.command(settings))))
        if not found:
            raise Failed("rollout_bench printed no rate")
        return Measurement(float(found[-1]["rate"]), float(found[-1]["memory"]))

