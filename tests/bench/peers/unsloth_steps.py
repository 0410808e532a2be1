"""Training steps of Unsloth: all weights, or adapters on weights in 16 or 4 bits."""

import os

os.environ["UNSLOTH_RETURN_LOGITS"] = "0"
from unsloth import FastLanguageModel  # noqa: E402, before transformers
import torch  # noqa: E402
from random_lm import LINEAR_LAYERS, arguments, print_result, time_steps  # noqa: E402


def main():
    args = arguments(("--model", ""), ("--micro-batch", 4), ("--lora", 0), ("--dropout", 0.0),
                     ("--four-bits", False), ("--recompute", False))
    model, _ = FastLanguageModel.from_pretrained(
        args.model, max_seq_length=2048, dtype=torch.bfloat16, load_in_4bit=args.four_bits,
        full_finetuning=not args.lora, local_files_only=True)
    if args.lora:
        model = FastLanguageModel.get_peft_model(
            model, r=args.lora, lora_alpha=2 * args.lora, lora_dropout=args.dropout, bias="none",
            target_modules=LINEAR_LAYERS,
            use_gradient_checkpointing="unsloth" if args.recompute else False)
    args.autocast = True  # its adapters are fp32
    torch.cuda.reset_peak_memory_stats()
    print_result(time_steps(model, args))


if __name__ == "__main__":
    main()
