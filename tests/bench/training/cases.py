"""The cases: what of ours is measured, beside which peers, best peer first.

The names are those of trainer_bars.json.
"""

import dataclasses

from .jobs import CheckpointStall, GrpoStep, Start, Throughput
from .peers import Peer
from .programs import Decode, Steps

RATE, SECONDS = "tok/s", "s"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    title: str
    program: object  # measure(settings) gives the figure
    peers: tuple = ()
    unit: str = RATE  # per GPU; of SECONDS less is better
    quick: bool = False
    beside: str = ""  # the case of ours that this one is compared with

    @property
    def gpus(self):
        return getattr(self.program, "gpus", 1)

    def times(self, figure, other):
        """How many times as fast `figure` is as `other`."""
        return other / figure if self.unit == SECONDS else figure / other


def full(shape, micro_batch):
    steps = ("--shape", shape, "--micro-batch", str(micro_batch))
    return (Peer("Hugging Face + torch.compile", "train_steps.py", (*steps, "--compile")),
            Peer("Hugging Face + Liger kernels", "train_steps.py", (*steps, "--liger"),
                 ("liger_kernel",)),
            Peer("Unsloth", "unsloth_steps.py",
                 ("--model", shape, "--micro-batch", str(micro_batch)), ("unsloth",)),
            Peer("Hugging Face", "train_steps.py", steps))


def adapters(shape, micro_batch, dropout=0.0, four_bits=False, recompute=False):
    options = ("--micro-batch", str(micro_batch), "--lora", "16", "--dropout", str(dropout),
               *("--four-bits",) * four_bits, *("--recompute",) * recompute)
    unsloth = Peer("Unsloth", "unsloth_steps.py", ("--model", shape, *options), ("unsloth", "peft"))
    if four_bits:
        return (unsloth, Peer("PEFT + bitsandbytes", "train_steps.py", ("--model", shape, *options),
                              ("peft", "bitsandbytes")))
    steps = ("--shape", shape, *options)
    return (unsloth,
            Peer("PEFT + torch.compile", "train_steps.py", (*steps, "--compile"), ("peft",)),
            Peer("PEFT + Liger kernels", "train_steps.py", (*steps, "--liger"),
                 ("peft", "liger_kernel")),
            Peer("PEFT", "train_steps.py", steps, ("peft",)))


def generate(sequences, lora=0):
    options = ("--shape", "1.5B", "--sequences", str(sequences),
               *("--lora", str(lora)) * bool(lora))
    needs = ("peft",) * bool(lora)
    return (Peer("compiled generate with a static cache", "generate.py", (*options, "--static"),
                 needs),
            Peer("generate", "generate.py", options, needs))


def trl(gpus):
    return (Peer("TRL with its own generation", "grpo_steps.py",
                 ("--shape", "1.5B", "--prompts", str(16 * gpus)), ("trl", "peft", "datasets"),
                 gpus),)


def trainer(model, measured, gpus=1, lora=0):
    return (Peer("Hugging Face Trainer" + " under torchrun" * (gpus > 1), "trainer_job.py",
                 ("--model", model, "--measure", measured, *("--lora", str(lora)) * bool(lora)),
                 ("peft",) * bool(lora), gpus),)


def packed():
    """Unequal lengths packed into bins, beside equal lengths with as many tokens a step."""
    for name, longest, batch in (("2k", 2048, 4), ("8k", 8192, 1), ("32k", 32768, 1)):
        job = dict(shape="1.5B", micro_batch=batch, longest=longest)
        equal = f"equal-{name}-1.5B"
        yield Case(equal, f"full 1.5B, equal lengths of {name}, micro-batch {batch}",
                   Throughput(**job))
        yield Case(f"packed-{name}-1.5B",
                   f"full 1.5B, unequal lengths packed to {name}, micro-batch {batch}",
                   Throughput(**job, rows="unequal", keys=(("packing", True),)), beside=equal)


QLORA = (("use_peft", True), ("load_in_4bit", True), ("lora_r", 16), ("lora_alpha", 32),
         ("lora_dropout", 0))
LORA = (("use_peft", True), ("lora_r", 16), ("lora_alpha", 32), ("lora_dropout", 0))
ON_HOST = (("offload_embedding", True),)
RECOMPUTED = (("gradient_checkpointing", True),)

CASES = (
    Case("full-1.5B-mb4", "full 1.5B, micro-batch 4", Steps("1.5B", 4), full("1.5B", 4),
         quick=True),
    Case("full-1.5B-mb16", "full 1.5B, micro-batch 16", Steps("1.5B", 16), full("1.5B", 16)),
    Case("full-0.5B-mb8", "full 0.5B, micro-batch 8", Steps("0.5B", 8), full("0.5B", 8)),
    Case("lora-7B-mb4", "LoRA r 16 on 7B, micro-batch 4", Steps("7B", 4, lora=16),
         adapters("7B", 4), quick=True),
    Case("lora-7B-mb4-dropout", "LoRA r 16 with dropout 0.05 on 7B, micro-batch 4",
         Steps("7B", 4, lora=16, dropout=0.05), adapters("7B", 4, dropout=0.05),
         beside="lora-7B-mb4"),
    Case("lora-7B-mb4-fp8", "LoRA r 16 on 7B with fp8: base, micro-batch 4",
         Steps("7B", 4, lora=16, fp8="base"), beside="lora-7B-mb4"),
    Case("full-1.5B-mb4-fp8", "full 1.5B with fp8: mlp, micro-batch 4",
         Steps("1.5B", 4, fp8="mlp"), beside="full-1.5B-mb4"),
    Case("lora-1.5B-mb4", "LoRA r 16 on 1.5B, micro-batch 4", Steps("1.5B", 4, lora=16),
         adapters("1.5B", 4)),
    Case("lora-8B-mb4", "LoRA r 16 on Qwen3-8B's shape, micro-batch 4", Steps("8B", 4, lora=16),
         adapters("8B", 4)),
    Case("qlora-7B-mb4", "QLoRA r 16 on 7B, micro-batch 4",
         Throughput("7B", 4, keys=QLORA, untied_keys=ON_HOST), adapters("7B", 4, four_bits=True)),
    Case("qlora-7B-mb1-recomputed", "QLoRA r 16 on 7B, micro-batch 1, recomputed",
         Throughput("7B", 1, keys=QLORA + RECOMPUTED, untied_keys=ON_HOST),
         adapters("7B", 1, four_bits=True, recompute=True)),
    Case("new-lengths-1.5B", "full 1.5B, rows of ever new lengths, one sequence a micro-batch",
         Throughput("1.5B", 1, accumulation=4, rows="new"), trainer("1.5B", "rate"), quick=True),
    *packed(),
    Case("decode-64", "generation, 1.5B, 64 sequences", Decode("1.5B", 64), generate(64)),
    Case("decode-256", "generation, 1.5B, 256 sequences", Decode("1.5B", 256), generate(256),
         quick=True),
    Case("decode-128-lora", "generation, LoRA r 16 on 1.5B, 128 sequences",
         Decode("1.5B", 128, lora=16, group=8), generate(128, lora=16)),
    Case("grpo-1gpu", "GRPO step, LoRA r 16 on 1.5B, 16 prompts x 8, 256 + 256 tokens",
         GrpoStep("1.5B", 32, prompts=16), trl(1), SECONDS),
    Case("grpo-2gpu", "GRPO step, LoRA r 16 on 1.5B, 2 GPUs, 32 prompts x 8, 256 + 256 tokens",
         GrpoStep("1.5B", 32, prompts=32, gpus=2), trl(2), SECONDS),
    Case("grpo-2gpu-dropout",
         "GRPO step, LoRA r 16 with dropout 0.05 on 1.5B, 2 GPUs, 32 prompts x 8, 256 + 256 tokens",
         GrpoStep("1.5B", 32, prompts=32, gpus=2, dropout=0.05), (), SECONDS, beside="grpo-2gpu"),
    Case("full-1.5B-mb4-2gpu", "full 1.5B, micro-batch 4, ZeRO 1, 2 GPUs",
         Steps("1.5B", 4, gpus=2, zero=1), beside="full-1.5B-mb4"),
    Case("lora-7B-mb4-2gpu", "LoRA r 16 on 7B, micro-batch 4, 2 GPUs",
         Steps("7B", 4, lora=16, gpus=2), beside="lora-7B-mb4"),
    Case("checkpoint-1.5B", "training stands still for a checkpoint, full 1.5B (21 GB)",
         CheckpointStall("1.5B", 4), trainer("1.5B", "stall"), SECONDS),
    Case("start-7B-lora", "start to first step, LoRA r 16 on 7B", Start("7B", 1, keys=LORA),
         trainer("7B", "start", lora=16), SECONDS),
    Case("start-7B-lora-2gpu", "start to first step, LoRA r 16 on 7B, 2 GPUs",
         Start("7B", 1, gpus=2, keys=LORA), trainer("7B", "start", gpus=2, lora=16), SECONDS),
)
BY_NAME = {case.name: case for case in CASES}
