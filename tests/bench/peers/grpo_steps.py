"""GRPO steps of TRL with its own generation: LoRA r 16, 8 completions a prompt, 256 tokens each."""

import os
import random
import statistics
import time

import datasets
import peft
import torch
import transformers
import trl
from random_lm import LINEAR_LAYERS, arguments, print_result, random_lm, wait
from random_model import TOKENIZER

GROUP = 8


class Times(transformers.TrainerCallback):
    def __init__(self):
        self.seconds = []

    def on_step_begin(self, *_, **__):
        wait()
        self.began = time.perf_counter()

    def on_step_end(self, *_, **__):
        wait()
        self.seconds.append(time.perf_counter() - self.began)


def odd(completion_ids, **_):
    """As in our job: about half of the completions earn it."""
    return [float(sum(ids) % 2) for ids in completion_ids]


def main():
    args = arguments(("--shape", ""), ("--prompts", 32))
    prompts, length = (2, 16) if args.tiny else (args.prompts, 256)
    warm, steps = (1, 2) if args.tiny or args.quick else (1, 3)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
    rng = random.Random(3)
    rows = ["".join(rng.choices("0123456789", k=length)) for _ in range(prompts * (warm + steps))]
    batch = prompts * GROUP // world
    micro_batch = min(batch, 16)
    times = Times()
    tokenizer = transformers.AutoTokenizer.from_pretrained(TOKENIZER, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    trainer = trl.GRPOTrainer(
        model=random_lm(args), reward_funcs=odd, processing_class=tokenizer, callbacks=[times],
        train_dataset=datasets.Dataset.from_dict({"prompt": rows}),
        peft_config=peft.LoraConfig(r=16, lora_alpha=32, target_modules=LINEAR_LAYERS,
                                    task_type="CAUSAL_LM"),
        args=trl.GRPOConfig(
            output_dir=str(args.scratch / "trl"), per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=batch // micro_batch, num_generations=GROUP,
            max_completion_length=length, generation_kwargs={"min_new_tokens": length}, beta=0.0,
            max_steps=warm + steps, learning_rate=1e-5, bf16=torch.cuda.is_available(),
            use_cpu=not torch.cuda.is_available(), save_strategy="no", report_to=[],
            gradient_checkpointing=False, disable_tqdm=True, ddp_find_unused_parameters=False))
    trainer.train()
    if int(os.environ.get("RANK", "0")) == 0:
        print_result(statistics.median(times.seconds[warm:]))


if __name__ == "__main__":
    main()
