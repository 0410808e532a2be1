"""Shared by the scripts that measure other programs: models of random weights, and the result."""

import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
from random_model import SHAPES, config_of  # noqa: E402

LINEAR_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SIZES = {"full": (5, 20), "quick": (3, 8), "tiny": (1, 3)}  # steps to warm up, to measure


def arguments(*options):
    """`options` are names of the form --micro-batch with a default, or flags if it is False."""
    parser = argparse.ArgumentParser()
    for name, default in (*options, ("--tiny", False), ("--quick", False)):
        if default is False:
            parser.add_argument(name, action="store_true")
        else:
            parser.add_argument(name, default=default, type=type(default))
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--began", type=float, default=time.time())
    args = parser.parse_args()
    args.warm, args.steps = SIZES["tiny" if args.tiny else "quick" if args.quick else "full"]
    return args


def device_of():
    import torch
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dtype_of():
    import torch
    return torch.bfloat16 if torch.cuda.is_available() else torch.float32


def random_lm(args, **config):
    """transformers' model of the shape, made where it is used."""
    import torch
    import transformers
    sizes = config_of(SHAPES["tiny" if args.tiny else args.shape])
    sizes = {key: value for key, value in sizes.items()
             if key not in ("architectures", "torch_dtype")}
    kind = transformers.AutoConfig.for_model(sizes.pop("model_type"), **sizes, **config)
    with device_of():
        return transformers.AutoModelForCausalLM.from_config(
            kind, dtype=dtype_of(), attn_implementation="sdpa")


def with_adapter(model, rank, dropout=0.0):
    import peft
    return peft.get_peft_model(model, peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=dropout, target_modules=LINEAR_LAYERS,
        task_type="CAUSAL_LM"))


def wait():
    import torch
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_gib():
    import torch
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None


def print_result(value):
    print("RESULT " + json.dumps({"value": value, "peak_gib": peak_gib()}), flush=True)


def time_steps(model, args):
    """Trains on random tokens, clipping and AdamW included; returns the tokens per second."""
    import torch
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    sequences, length = (2, 128) if args.tiny else (args.micro_batch, 2048)
    vocabulary = SHAPES["tiny"]["vocab_size"] if args.tiny else 150000
    ids = torch.randint(0, vocabulary, (sequences, length), device=device_of())
    casts = torch.autocast(device_of().type, torch.bfloat16,
                           enabled=getattr(args, "autocast", False))

    def step():
        with casts:
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    model.train()
    for _ in range(args.warm):
        step()
    wait()
    began = time.perf_counter()
    for _ in range(args.steps):
        step()
    wait()
    return args.steps * ids.numel() / (time.perf_counter() - began)
