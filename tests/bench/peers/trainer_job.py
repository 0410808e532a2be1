"""Hugging Face's Trainer on rows of token ids: the rate, the stall of a checkpoint, or the start.

--measure rate: tokens per second after the warm-up, rows of ever new lengths, one a micro-batch.
--measure stall: seconds that the step after a checkpoint takes longer than the median step.
--measure start: seconds from --began to the end of the first step.
"""

import os
import pathlib
import statistics
import sys
import time

import torch
import transformers
from random_lm import arguments, dtype_of, print_result, wait, with_adapter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from training.jobs import SHORTEST, lengths_of  # noqa: E402

EVERY, SAVES = 10, 3  # checkpoints for --measure stall
BATCHES = {"rate": (1, 4), "stall": (4, 1), "start": (1, 1)}  # rows, accumulation


def numbers_of(args):
    """Steps to warm up, and in all."""
    if args.measure == "start":
        return 0, 2
    if args.measure == "stall":
        every = 4 if args.tiny else EVERY
        return every, every * (SAVES + 1) + 2
    warm = args.warm if args.tiny else 10
    return warm, warm + args.steps


class Collator:
    """Keeps the order in which rows were taken, to know the tokens of each step."""

    def __init__(self):
        self.lengths = []

    def __call__(self, rows):
        self.lengths += [len(row["input_ids"]) for row in rows]
        ids = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row["input_ids"]) for row in rows], batch_first=True)
        return {"input_ids": ids, "labels": ids}


class Times(transformers.TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_step_end(self, *_, **__):
        wait()
        self.ends.append(time.time())


def value_of(args, ends, lengths, rows_a_step):
    warm, total = numbers_of(args)
    if args.measure == "start":
        return ends[0] - args.began
    gaps = [after - before for before, after in zip(ends, ends[1:])]
    if args.measure == "stall":  # gaps[n - 1] is the one from step n on
        stalls = [gaps[step - 1] for step in range(2 * warm, total - 1, warm)]
        return max(statistics.median(stalls) - statistics.median(gaps), SHORTEST)
    tokens = sum(lengths[warm * rows_a_step:total * rows_a_step])
    return tokens / (ends[total - 1] - ends[warm - 1])


def main():
    args = arguments(("--model", ""), ("--measure", "rate"), ("--lora", 0))
    warm, total = numbers_of(args)
    batch, accumulation = BATCHES[args.measure]
    world = int(os.environ.get("WORLD_SIZE", "1"))
    longest = 128 if args.tiny else 2048
    lengths = lengths_of("new" if args.measure == "rate" else "equal", longest,
                         total * batch * accumulation * world)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype_of())
    model.config.use_cache = False
    if args.lora:
        model = with_adapter(model, args.lora)
    collator, times = Collator(), Times()
    trainer = transformers.Trainer(
        model, transformers.TrainingArguments(
            output_dir=str(args.scratch / "trainer"), max_steps=total,
            per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
            save_strategy="steps" if args.measure == "stall" else "no",
            save_steps=max(warm, 1), save_total_limit=1, logging_steps=1000, report_to=[],
            bf16=torch.cuda.is_available(), disable_tqdm=True, learning_rate=1e-5,
            use_cpu=not torch.cuda.is_available()),
        data_collator=collator,
        train_dataset=[{"input_ids": [number % 256 for number in range(length)]}
                       for length in lengths],
        callbacks=[times])
    trainer.train()
    if int(os.environ.get("RANK", "0")) == 0:
        print_result(value_of(args, times.ends, collator.lengths, batch * accumulation))


if __name__ == "__main__":
    main()
