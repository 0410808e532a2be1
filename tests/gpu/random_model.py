"""Writes models of random weights in the shape of Qwen2, with torch alone."""

import json
import pathlib
import shutil
import struct

TOKENIZER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples" / "tokenizer"


def tensor_shapes(config):
    width, wide = config["hidden_size"], config["intermediate_size"]
    kv = width // config["num_attention_heads"] * config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (config["vocab_size"], width)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows in (("q", width), ("k", kv), ("v", kv)):
            yield f"{at}self_attn.{name}_proj.weight", (rows, width)
            yield f"{at}self_attn.{name}_proj.bias", (rows,)
        yield f"{at}self_attn.o_proj.weight", (width, width)
        yield f"{at}mlp.gate_proj.weight", (wide, width)
        yield f"{at}mlp.up_proj.weight", (wide, width)
        yield f"{at}mlp.down_proj.weight", (width, wide)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{norm}.weight", (width,)
    yield "model.norm.weight", (width,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], width)


def write_model(folder, config):
    """`config` has the sizes. Norms are 1, everything else is normal with a deviation of 0.02."""
    import torch
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
              "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
              "hidden_act": "silu", "tie_word_embeddings": True, "eos_token_id": 0,
              "torch_dtype": "bfloat16", **config}
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
