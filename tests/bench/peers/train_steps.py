"""Training steps of transformers' models: eager, compiled, with Liger kernels, with adapters."""

import torch
import transformers
from random_lm import arguments, dtype_of, print_result, random_lm, time_steps, with_adapter


def four_bit_model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype_of(), device_map={"": 0} if torch.cuda.is_available() else "cpu",
        attn_implementation="sdpa", quantization_config=transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype_of()))


def main():
    args = arguments(("--shape", ""), ("--model", ""), ("--micro-batch", 4), ("--lora", 0),
                     ("--dropout", 0.0), ("--compile", False), ("--liger", False),
                     ("--four-bits", False), ("--recompute", False))
    if args.liger:
        import liger_kernel.transformers
        patch = "qwen3" if args.shape == "8B" else "qwen2"
        getattr(liger_kernel.transformers, f"apply_liger_kernel_to_{patch}")()
    model = four_bit_model(args.model) if args.four_bits else random_lm(args, use_cache=False)
    model.config.use_cache = False
    if args.lora:
        model = with_adapter(model, args.lora, args.dropout)
    if args.recompute:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    print_result(time_steps(torch.compile(model) if args.compile else model, args))


if __name__ == "__main__":
    main()
