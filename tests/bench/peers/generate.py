"""Generation by transformers: prompts of 256 tokens, 256 new tokens, sampled from all tokens."""

import time

import torch
from random_lm import (SHAPES, arguments, device_of, print_result, random_lm, wait, with_adapter)


def main():
    args = arguments(("--shape", ""), ("--sequences", 64), ("--lora", 0), ("--static", False))
    model = random_lm(args).eval()
    if args.lora:
        model = with_adapter(model, args.lora).eval()
    sequences, length = (4, 16) if args.tiny else (args.sequences, 256)
    vocabulary = SHAPES["tiny"]["vocab_size"] if args.tiny else 150000
    ids = torch.randint(0, vocabulary, (sequences, length), device=device_of())

    def generate(new):
        settings = {"cache_implementation": "static"} if args.static else {}
        return model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True,
                              temperature=1.0, top_p=1.0, top_k=0, pad_token_id=0,
                              max_new_tokens=new, min_new_tokens=new, **settings)

    with torch.no_grad():
        # A static cache is compiled for the length.
        generate(length if args.static else min(8, length))
        wait()
        began = time.perf_counter()
        made = generate(length).shape[1] - length
        wait()
    print_result(sequences * made / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
