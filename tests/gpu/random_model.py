"""Writes models of random weights in the shapes of Qwen2 and Qwen3, with torch alone."""

import json
import pathlib
import shutil
import struct

# Those of shapes.hpp: of Qwen2.5; 4B and 8B are those of Qwen3.
NAMES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads", "vocab_size", "tie_word_embeddings")
SHAPES = {name: dict(zip(NAMES, sizes)) for name, sizes in {
    "tiny": (256, 512, 4, 4, 2, 1000, True),
    "0.3B": (896, 4864, 12, 14, 2, 151936, True),
    "0.5B": (896, 4864, 24, 14, 2, 151936, True),
    "1.5B": (1536, 8960, 28, 12, 2, 151936, True),
    "4B": (2560, 9728, 36, 32, 8, 151936, True),
    "7B": (3584, 18944, 28, 28, 4, 152064, False),
    "8B": (4096, 12288, 36, 32, 8, 151936, False),
}.items()}
for qwen3_name in ("4B", "8B"):
    SHAPES[qwen3_name] |= {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128}

TOKENIZER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples" / "tokenizer"


def tensor_shapes(config):
    width, wide = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim", width // config["num_attention_heads"])
    queries = head * config["num_attention_heads"]
    kv = head * config["num_key_value_heads"]
    qwen3 = config.get("model_type") == "qwen3"
    yield "model.embed_tokens.weight", (config["vocab_size"], width)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows in (("q", queries), ("k", kv), ("v", kv)):
            yield f"{at}self_attn.{name}_proj.weight", (rows, width)
            if not qwen3:
                yield f"{at}self_attn.{name}_proj.bias", (rows,)
            elif name != "v":
                yield f"{at}self_attn.{name}_norm.weight", (head,)
        yield f"{at}self_attn.o_proj.weight", (width, queries)
        yield f"{at}mlp.gate_proj.weight", (wide, width)
        yield f"{at}mlp.up_proj.weight", (wide, width)
        yield f"{at}mlp.down_proj.weight", (width, wide)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{norm}.weight", (width,)
    yield "model.norm.weight", (width,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], width)


def config_of(sizes):
    """The contents of config.json."""
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "hidden_act": "silu", "tie_word_embeddings": True, "eos_token_id": 0,
            "torch_dtype": "bfloat16", **sizes}


def write_model(folder, config):
    """`config` has the sizes. Norms are 1, everything else is normal with a deviation of 0.02."""
    import torch
    config = config_of(config)
    header, end = {}, 0
    for name, shape in tensor_shapes(config):
        size = 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    shutil.copytree(TOKENIZER, folder)
    (folder / "config.json").write_text(json.dumps(config))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(0)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensor_shapes(config):
            value = (torch.ones(shape) if "norm" in name else
                     torch.randn(shape, generator=generator, device=device) * 0.02)
            file.write(value.bfloat16().cpu().view(torch.uint8).numpy().tobytes())
