"""Compares our files with those of safetensors, transformers, peft and bitsandbytes, both ways.

bin/model_files (tests/support/files_main.cpp) reads what the packages write and writes what they read.
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

MODEL_FILES = pathlib.Path(os.environ.get("MGPU_BUILD", "build")) / "bin" / "model_files"

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # bitsandbytes compiles what runs once
os.environ.setdefault("TQDM_DISABLE", "1")

try:
    import bitsandbytes.functional as bnb
    import peft
    import safetensors.torch
    import torch
    import transformers
    MISSING = ""
except ImportError as error:
    MISSING = str(error)


def raw(tensor):
    """The bytes of a tensor of any dtype."""
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def save(folder, tensors, stem="model"):
    safetensors.torch.save_file(tensors, folder / f"{stem}.safetensors", metadata={"format": "pt"})


def load(folder, stem="model"):
    tensors = {}
    for path in sorted(folder.glob(f"{stem}*.safetensors")):
        tensors.update(safetensors.torch.load_file(path))
    return tensors


def small_config(kind, **others):
    sizes = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                 **others)
    return {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
            "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}[kind](**sizes)


LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
               "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}


@unittest.skipIf(MISSING, MISSING)
class FilesTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mgpu-files-"))
        self.addCleanup(shutil.rmtree, self.dir)
        torch.manual_seed(20240607)

    def folder(self, name):
        (self.dir / name).mkdir(exist_ok=True)
        return self.dir / name

    def ours(self, *args):
        done = subprocess.run([MODEL_FILES, *map(str, args)], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout) if done.stdout else None

    def refused(self, *args):
        done = subprocess.run([MODEL_FILES, *map(str, args)], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stderr

    def assert_same(self, ours, theirs):
        self.assertEqual(sorted(ours), sorted(theirs))
        for name, tensor in theirs.items():
            self.assertEqual((ours[name].dtype, ours[name].shape), (tensor.dtype, tensor.shape), name)
            self.assertEqual(raw(ours[name]), raw(tensor), name)

    def model(self, kind, name="model", **others):
        model = transformers.AutoModelForCausalLM.from_config(small_config(kind, **others))
        folder = self.folder(name)
        model.to(torch.bfloat16).save_pretrained(folder)
        return model, folder


class Safetensors(FilesTest):
    def tensors(self):
        dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64,
                  torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
                  torch.float8_e4m3fn, torch.float8_e5m2]
        tensors = {f"of {dtype}": torch.randn(3, 5).mul(9).to(dtype) for dtype in dtypes}
        return tensors | {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 7), "ä\n\"": torch.ones(1)}

    def test_every_dtype_is_read_and_written(self):
        tensors = self.tensors()
        save(self.folder("from"), tensors)
        listed = self.ours("list", self.dir / "from", "model")
        self.assertEqual({name: entry[1] for name, entry in listed.items()},
                         {name: list(tensor.shape) for name, tensor in tensors.items()})
        self.ours("copy", self.dir / "from", self.folder("to"), 10**9, "model")
        self.assert_same(load(self.dir / "to"), tensors)

    def test_sharded_files_are_read_and_written(self):
        model, theirs = self.model("llama")
        model.save_pretrained(theirs, max_shard_size="20kB")
        (theirs / "model.safetensors").unlink(missing_ok=True)
        self.assertGreater(len(list(theirs.glob("model-*.safetensors"))), 2)
        shards = self.folder("shards")
        self.ours("copy", theirs, shards, 20000, "model")
        self.assertGreater(len(list(shards.glob("model-*.safetensors"))), 2)
        shutil.copy(theirs / "config.json", shards)
        again = transformers.AutoModelForCausalLM.from_pretrained(shards, dtype="auto")
        self.assert_same(dict(again.state_dict()), dict(model.state_dict()))

    def test_truncated_files_are_rejected_as_by_safetensors(self):
        save(self.folder("from"), {"a": torch.ones(100)})
        path = self.dir / "from" / "model.safetensors"
        whole = path.read_bytes()
        for length in (0, 7, 20, len(whole) - 1):
            path.write_bytes(whole[:length])
            with self.assertRaises(Exception):
                safetensors.torch.load_file(path)
            self.assertIn("model.safetensors", self.refused("list", self.dir / "from", "model"))


class Configs(FilesTest):
    KINDS = [("llama", {}), ("llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3_ROPE}),
             ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 16,
                        "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}),
             ("mistral", {}), ("mistral", {"sliding_window": None, "head_dim": 16}),
             ("qwen2", {}), ("qwen2", {"tie_word_embeddings": True, "eos_token_id": [3, 4]}),
             ("qwen3", {"head_dim": 16}), ("qwen3", {"attention_bias": True})]

    def test_configs_give_the_tensors_of_transformers(self):
        for number, (kind, others) in enumerate(self.KINDS):
            with self.subTest(kind=kind, **others):
                model, folder = self.model(kind, f"model{number}", **others)
                config = self.ours("config", folder)
                saved = {name: list(tensor.shape) for name, tensor in load(folder).items()}
                self.assertEqual(dict(config["plan"]), saved)
                names = [name for name in model.state_dict() if name in saved]
                self.assertEqual([name for name, _ in config["plan"]], names)
                self.assertEqual(config["parameters"], model.num_parameters())

    def test_our_configs_load_as_the_same_model_in_transformers(self):
        for number, (kind, others) in enumerate(self.KINDS):
            with self.subTest(kind=kind, **others):
                _, folder = self.model(kind, f"model{number}", **others)
                theirs = transformers.AutoConfig.from_pretrained(folder)
                ours = self.ours("config", folder)
                for key in ("text", "with_base"):
                    again = self.folder(f"again-{number}-{key}")
                    (again / "config.json").write_text(ours[key])
                    (again / "generation_config.json").write_text(ours["generation"])
                    read = transformers.AutoConfig.from_pretrained(again)
                    self.assert_same_config(read, theirs)
                    transformers.GenerationConfig.from_pretrained(again)

    # hidden, layers, heads, MLP, tied; all have 8 heads of k and v, and head_dim 128
    QWEN3 = {"0.6B": (1024, 28, 16, 3072, True), "1.7B": (2048, 28, 16, 6144, True),
             "4B": (2560, 36, 32, 9728, True), "8B": (4096, 36, 32, 12288, False),
             "14B": (5120, 40, 40, 17408, False), "32B": (5120, 64, 64, 25600, False)}

    def test_new_qwen3_models_have_the_published_shapes_in_transformers(self):
        for size, (hidden, layers, heads, mlp, tied) in self.QWEN3.items():
            with self.subTest(size):
                ours = self.ours("preset", size, 151936)
                (self.folder(size) / "config.json").write_text(ours["text"])
                read = transformers.AutoConfig.from_pretrained(self.dir / size)
                expected = transformers.Qwen3Config(
                    architectures=["Qwen3ForCausalLM"], vocab_size=151936, hidden_size=hidden,
                    num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=8,
                    head_dim=128, intermediate_size=mlp, max_position_embeddings=40960,
                    rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                    tie_word_embeddings=tied, dtype="bfloat16")
                self.assert_same_config(read, expected)
                with torch.device("meta"):
                    model = transformers.AutoModelForCausalLM.from_config(read)
                self.assertEqual(type(model).__name__, "Qwen3ForCausalLM")
                self.assertEqual(model.num_parameters(), ours["parameters"])

    def assert_same_config(self, read, theirs):
        ours, expected = read.to_dict(), theirs.to_dict()
        for key in ("_name_or_path", "transformers_version"):
            ours.pop(key), expected.pop(key)
        differing = {key: (ours.get(key), value) for key, value in expected.items()
                     if ours.get(key) != value}
        # Without a base model the unused window settings are transformers' defaults.
        self.assertEqual(differing, {})

    def test_configs_in_the_older_format_are_equal(self):
        _, folder = self.model("llama", rope_parameters=LLAMA3_ROPE)
        newer = self.ours("config", folder)
        path = folder / "config.json"
        config = json.loads(path.read_text())
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope
        config["torch_dtype"] = config.pop("dtype")
        path.write_text(json.dumps(config))
        older = self.ours("config", folder)
        self.assertEqual(older["text"], newer["text"])


class Adapters(FilesTest):
    CASES = [dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
             dict(r=4, lora_alpha=16, target_modules="all-linear", use_rslora=True),
             dict(r=2, target_modules=r".*\.(gate|up)_proj", lora_dropout=0.1),
             dict(r=4, lora_alpha=8, target_modules=["k_proj", "layers.1.mlp.down_proj"],
                  rank_pattern={"down_proj": 2}, alpha_pattern={"layers.0.self_attn.k_proj": 3}),
             dict(r=4, target_modules=["q_proj", "up_proj"], use_dora=True),
             dict(r=4, target_modules=["q_proj"], modules_to_save=["lm_head", "embed_tokens"])]

    def test_peft_adapters_are_read_and_ours_load_in_peft(self):
        for number, case in enumerate(self.CASES):
            with self.subTest(**case):
                _, folder = self.model("llama", f"model{number}")
                model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
                tuned = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **case))
                for name, parameter in tuned.named_parameters():
                    if "lora_" in name:
                        torch.nn.init.normal_(parameter)
                theirs, ours = self.folder(f"theirs{number}"), self.folder(f"ours{number}")
                tuned.save_pretrained(theirs)
                targets = self.ours("adapter", folder, theirs, ours)
                self.assert_scales(targets, tuned)
                self.assert_same(load(ours, "adapter_model"), load(theirs, "adapter_model"))

                base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
                again = peft.PeftModel.from_pretrained(base, ours)
                self.assert_same(dict(again.state_dict()), dict(tuned.state_dict()))
                tokens = torch.arange(12).reshape(2, 6)
                with torch.no_grad():
                    self.assertTrue(torch.equal(again.eval()(tokens).logits,
                                                tuned.eval()(tokens).logits))

    def assert_scales(self, targets, tuned):
        expected = {}
        for name, module in tuned.get_base_model().named_modules():
            if isinstance(module, peft.tuners.lora.LoraLayer):
                expected[name] = (module.r["default"], module.scaling["default"])
        self.assertEqual(sorted(expected), sorted(name for name, _, _ in targets))
        for name, rank, scale in targets:
            self.assertEqual(expected[name][0], rank)
            self.assertTrue(math.isclose(expected[name][1], scale, rel_tol=1e-12), name)

    def test_unsupported_adapters_are_rejected_by_name(self):
        for number, (case, word) in enumerate([
                (dict(bias="all"), "bias"),
                (dict(layers_to_transform=[0]), "layers_to_transform"),
                (dict(init_lora_weights="olora"), "init_lora_weights"),
                (dict(lora_bias=True), "lora_bias")]):
            with self.subTest(**case):
                model, folder = self.model("llama", f"model{number}")
                config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], **case)
                theirs = self.folder(f"theirs{number}")
                peft.get_peft_model(model.float(), config).save_pretrained(theirs)
                self.assertIn(word, self.refused("adapter", folder, theirs, self.folder("x")))


class Nf4(FilesTest):
    """Shapes: whole blocks, a last part of a block, many blocks of scales, odd, a single element."""

    SHAPES = [(64, 64), (96, 200), (300, 1024), (7, 9), (1, 1), (3, 64)]

    def tensors(self):
        tensors = {}
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for shape in self.SHAPES:
                tensors[f"{dtype} {shape}"] = (torch.randn(shape) * 0.02).to(dtype)
            tensors[f"{dtype} zeros"] = torch.zeros(2, 64, dtype=dtype)
        tensors["midpoints"] = self.midpoints()
        return tensors

    def midpoints(self):
        """Values at and next to the boundaries between levels, for a scale of 1."""
        levels = bnb.get_4bit_type("nf4", device="cpu")
        middle = (levels[:-1] + levels[1:]) / 2
        beside = [torch.nextafter(middle, torch.full_like(middle, end)) for end in (-2.0, 2.0)]
        values = torch.cat([middle, *beside, levels])
        return torch.cat([torch.ones(1), values, torch.zeros(64)])[:64].reshape(1, 64)

    def parts(self, tensors, nested):
        parts = {}
        for name, tensor in tensors.items():
            packed, state = bnb.quantize_4bit(tensor, blocksize=64, quant_type="nf4",
                                              compress_statistics=nested)
            parts[name] = packed
            parts |= {f"{name}.{key}": value.contiguous()
                      for key, value in state.as_dict(packed=True).items()}
        return parts

    def state(self, parts, name):
        found = {key.removeprefix(f"{name}."): value for key, value in parts.items()
                 if key.startswith(f"{name}.")}
        return bnb.QuantState.from_dict(found, device=torch.device("cpu"))

    def scales(self, state):
        if not state.nested:
            return state.absmax
        return bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset

    def assert_within_ulps(self, ours, theirs, ulps, name):
        apart = (ours.view(torch.int32).long() - theirs.view(torch.int32).long()).abs().max()
        self.assertLessEqual(apart.item(), ulps, name)

    def test_levels_of_nested_scales_equal_bitsandbytes(self):
        save(self.folder("from"), {"a": torch.randn(64, 64)})
        self.ours("quantize", self.dir / "from", self.folder("to"), "nested")
        self.assertTrue(torch.equal(load(self.dir / "to")["a.nested_quant_map"],
                                    bnb.create_dynamic_map()))

    def test_our_quantisation_equals_bitsandbytes(self):
        tensors = self.tensors()
        save(self.folder("from"), tensors)
        for nested in (False, True):
            to = self.folder(f"to{nested}")
            self.ours("quantize", self.dir / "from", to, "nested" if nested else "plain")
            ours, theirs = load(to), self.parts(tensors, nested)
            self.assertEqual(sorted(ours), sorted(theirs))
            for name in tensors:
                self.assertTrue(torch.equal(ours[name], theirs[name]), name)
                mine, other = self.state(ours, name), self.state(theirs, name)
                self.assertEqual((mine.dtype, mine.shape, mine.blocksize, mine.nested),
                                 (other.dtype, other.shape, other.blocksize, other.nested))
                if nested:
                    self.assert_nearest(mine, tensors[name], name)
                else:
                    self.assertTrue(torch.equal(mine.absmax, other.absmax), name)

    def assert_nearest(self, mine, tensor, name):
        """Nested scales are the nearest levels. Theirs on a CPU come from a table of 16 bits and are
        one level away where a scale lies between two; with 64-bit numbers they search."""
        _, plain = bnb.quantize_4bit(tensor, blocksize=64, quant_type="nf4")
        self.assert_within_ulps(mine.offset, plain.absmax.mean(), 1, name)
        away = (plain.absmax - mine.offset).double()
        quantise = torch.ops.bitsandbytes.quantize_blockwise.default
        theirs, scales = quantise(away, bnb.create_dynamic_map(), 256)
        self.assertTrue(torch.equal(mine.state2.absmax, scales), name)
        counts = scales.repeat_interleave(256)[:len(theirs)] != 0  # of zero, every level is as near
        self.assertTrue(torch.equal(mine.absmax[counts], theirs[counts]), name)

    def test_files_quantised_by_bitsandbytes_are_read(self):
        tensors = self.tensors()
        for nested in (False, True):
            parts = self.parts(tensors, nested)
            from_, to = self.folder(f"from{nested}"), self.folder(f"to{nested}")
            save(from_, parts)
            self.ours("dequantize", from_, to)
            ours = load(to)
            self.assertEqual(sorted(ours), sorted(tensors))
            for name in tensors:
                state = self.state(parts, name)
                theirs = bnb.dequantize_4bit(parts[name], state).reshape(state.shape)
                self.assertEqual(ours[name].dtype, theirs.dtype)
                self.assertTrue(torch.equal(ours[name], theirs), name)

    def test_bitsandbytes_dequantises_our_files_to_the_same_values(self):
        tensors = self.tensors()
        save(self.folder("from"), tensors)
        self.ours("quantize", self.dir / "from", self.folder("to"), "nested")
        self.ours("dequantize", self.dir / "to", self.folder("back"))
        parts, back = load(self.dir / "to"), load(self.dir / "back")
        for name in tensors:
            theirs = bnb.dequantize_4bit(parts[name], self.state(parts, name))
            self.assertTrue(torch.equal(theirs.reshape(back[name].shape), back[name]), name)


if __name__ == "__main__":
    unittest.main()
