"""Rows become the same ids and labels as with TRL's SFTTrainer, for every format that TRL has.

TRL's rules are written down here once more, on transformers' tokenizers and templates; where the
package datasets is installed, which SFTTrainer needs, they are held to SFTTrainer itself. Runs under
a Python that has transformers and trl's chat templates; finds the program `examples` in
$MGPU_BUILD/bin. Tokenizers are trained here.
"""

import importlib.util
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest
import uuid

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

try:
    import datasets
    from trl import SFTConfig, SFTTrainer
    # Hashes the functions of a step for its cache by pickling them and all they know, which fails
    # with some versions of its packages. The cache is not needed here.
    datasets.fingerprint.Hasher.hash = staticmethod(lambda value: uuid.uuid4().hex)
except ImportError:
    datasets = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = pathlib.Path(os.environ.get("MGPU_BUILD", ROOT / "build")) / "bin" / "examples"
TEMPLATES = pathlib.Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = ["How", "much", "is", "2+2", "?", "It's", "four", "naïve", "e\u0301a", "日本語", "👨‍👩‍👧", "so\n\n",
         "  spaced ", "\n", "answer:", "don't", "été", "1,234.5", "def f(x):\n\treturn x", "Ω≠Å"]

# As Llama-2's, with the marks that trl's training templates have; no end to a lone user's turn.
LLAMA_2 = """\
{% for message in messages %}{% if message['role'] == 'user' %}\
{{ bos_token + '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}\
{% generation %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endgeneration %}{% endif %}{% endfor %}"""


def text(rng, least=1, most=12):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def corpus():
    rng = random.Random(0)
    files = [path.read_text() for path in sorted(ROOT.glob("*.md"))]
    return files + [text(rng) for _ in range(300)]


def byte_level(folder, template, bos=None):
    """A tokenizer as Qwen's, or with `bos` one that puts it before every text, as Llama-3's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + ([bos] if bos else [])
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=700, show_progress=False, special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B",
            special_tokens=[(bos, tokenizer.token_to_id(bos))])
    for plain in ("<think>", "</think>", "<tool_call>"):
        tokenizer.add_tokens([AddedToken(plain, special=False)])
    save(folder, tokenizer, template, eos="<|im_end|>", pad="<|endoftext|>", bos=bos)


def llama2(folder):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=900, show_progress=False, special_tokens=special + pieces))
    file = json.loads(tokenizer.to_str())
    file["model"]["byte_fallback"] = True
    file["added_tokens"] = file["added_tokens"][:3]
    file["pre_tokenizer"] = None
    file["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    file["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    save(folder, Tokenizer.from_str(json.dumps(file)), LLAMA_2, eos="</s>", pad="<unk>", bos="<s>")


def save(folder, tokenizer, template, eos, pad, bos):
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=eos, pad_token=pad, bos_token=bos,
        chat_template=template, clean_up_tokenization_spaces=False).save_pretrained(folder)


def turns(rng, count, first="user", system=True):
    out = [{"role": "system", "content": text(rng)}] if system and rng.random() < 0.5 else []
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    return out + [{"role": roles[i % 2], "content": text(rng)} for i in range(count)]


def rows_of(kind, count=40):
    rng = random.Random(kind)
    tool = json.dumps([{"type": "function", "function": {
        "name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}])
    make = {
        "text": lambda i: {"text": text(rng) + ("<|im_end|>" if i % 7 == 0 else "")},
        "pairs": lambda i: {"prompt": (all := text(rng, 4))[:(at := rng.randrange(len(all)))],
                            "completion": all[at:]},  # often in the middle of a word
        "messages": lambda i: {"messages": turns(rng, 2 * rng.randint(1, 4))},
        "plain turns": lambda i: {"messages": turns(rng, 2 * rng.randint(1, 4), system=False)},
        "tools": lambda i: {"messages": turns(rng, 2), "tools": tool},
        "thinking": lambda i: {"messages": turns(rng, 4),
                               "chat_template_kwargs": {"enable_thinking": i % 2 == 0}},
        "chat pairs": lambda i: {"prompt": turns(rng, 2 * rng.randint(0, 2) + 1),
                                 "completion": turns(rng, 1, "assistant", system=False)},
        "plain pairs": lambda i: {"prompt": turns(rng, 3, system=False),
                                  "completion": turns(rng, 1, "assistant", system=False)},
        "sharegpt": lambda i: {"conversations": [
            {"from": t["role"], "value": t["content"]} for t in turns(rng, 4)]},
        "tokens": lambda i: {"input_ids": (ids := [rng.randrange(600) for _ in range(9 + i)]),
                             "labels": [-100 if rng.random() < 0.5 else id for id in ids]},
    }[kind]
    return [make(i) for i in range(count)]


def renamed(turn):
    return {{"from": "role", "value": "content"}.get(key, key): value for key, value in turn.items()}


def example(tokenizer, row, completion_only_loss=None, assistant_only_loss=False, **_):
    """The ids and labels of a row, after TRL's rules."""
    if "input_ids" in row:
        return row["input_ids"], row["labels"]
    tools = json.loads(row["tools"]) if "tools" in row else None
    extra = row.get("chat_template_kwargs", {})

    def encode(said, generation_prompt=False):
        if isinstance(said, str):
            ids = tokenizer(said)["input_ids"]
            return ids, [1] * len(ids)
        out = tokenizer.apply_chat_template(
            said, tools=tools, tokenize=True, return_dict=True,
            add_generation_prompt=generation_prompt,
            return_assistant_tokens_mask=assistant_only_loss and not generation_prompt, **extra)
        return out["input_ids"], out.get("assistant_masks", [1] * len(out["input_ids"]))

    def ended(text):
        return text if text.endswith(tokenizer.eos_token) else text + tokenizer.eos_token

    if "prompt" not in row:
        said = row.get("messages") or [renamed(turn) for turn in row.get("conversations", ())]
        ids, mask = encode(said or ended(row["text"]))
        return ids, [id if bit else -100 for id, bit in zip(ids, mask)]
    chat = isinstance(row["prompt"], list)
    ids, mask = encode(row["prompt"] + (row["completion"] if chat else ended(row["completion"])))
    prompt, _ = encode(row["prompt"], generation_prompt=True)
    if completion_only_loss is not False:
        common = len(os.path.commonprefix([prompt, ids]))
        mask = [0] * common + list(mask[common:])
    return ids, [id if bit else -100 for id, bit in zip(ids, mask)]


def tiny_model(vocabulary):
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=vocabulary, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1))


class Examples(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        for name in ("qwen2_5", "qwen2_5_training", "qwen3", "qwen3_training"):
            byte_level(cls.root / name, (TEMPLATES / f"{name}.jinja").read_text())
        byte_level(cls.root / "bos", (TEMPLATES / "qwen2_5.jinja").read_text(), bos="<|begin|>")
        llama2(cls.root / "llama2")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def trl(self, tokenizer, rows, **options):
        loaded = transformers.AutoTokenizer.from_pretrained(self.root / tokenizer)
        config = SFTConfig(output_dir=str(self.root / "out"), report_to="none", use_cpu=True,
                           bf16=False, disable_tqdm=True, **{"max_length": None, **options})
        trainer = SFTTrainer(model=tiny_model(len(loaded)), args=config,
                             train_dataset=datasets.Dataset.from_list(rows),
                             processing_class=loaded)
        prepared = trainer.train_dataset
        return {"input_ids": list(prepared["input_ids"]), "labels": list(prepared["labels"])}

    def theirs(self, tokenizer, rows, **options):
        loaded = transformers.AutoTokenizer.from_pretrained(self.root / tokenizer)
        made = [example(loaded, row, **options) for row in rows]
        length = options.get("max_length")
        cut = [(ids[:length], labels[:length]) for ids, labels in made]
        kept = [(ids, labels) for ids, labels in cut if set(labels) != {-100}]
        out = {"input_ids": [ids for ids, _ in kept], "labels": [labels for _, labels in kept]}
        if datasets:
            self.assertEqual(out, self.trl(tokenizer, rows, **options))
        return out

    def ours(self, tokenizer, rows, **options):
        file = self.root / "rows.jsonl"
        file.write_text("".join(json.dumps(row, ensure_ascii=bool(i % 2)) + "\n"
                                for i, row in enumerate(rows)))
        asked = {"tokenizer": str(self.root / tokenizer), "file": str(file),
                 "cache": str(self.root / "cache"), **options}
        done = subprocess.run([EXAMPLES], input=json.dumps(asked) + "\n", capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def compare(self, tokenizer, kind, **options):
        with self.subTest(tokenizer=tokenizer, kind=kind, **options):
            rows = rows_of(kind)
            theirs = self.theirs(tokenizer, rows, **options)
            given = {**options, "map_sharegpt_roles": False}
            ours = self.ours(tokenizer, rows, **given)
            self.assertEqual(len(ours["input_ids"]), len(theirs["input_ids"]))
            for i, ids in enumerate(theirs["input_ids"]):
                self.assertEqual(ours["input_ids"][i], ids, rows[i])
                self.assertEqual(ours["labels"][i], theirs["labels"][i], rows[i])
            return ours

    def test_plain_text(self):
        for tokenizer in ("qwen2_5", "bos", "llama2"):
            self.compare(tokenizer, "text")
            self.compare(tokenizer, "pairs")
        self.compare("qwen2_5", "pairs", completion_only_loss=False)

    def test_prompts_that_lose_their_end(self):
        self.assertGreater(self.compare("qwen2_5", "pairs")["lost"], 0)

    def test_conversations(self):
        for tokenizer in ("qwen2_5", "qwen3", "bos"):
            for kind in ("messages", "chat pairs", "sharegpt", "tools"):
                self.compare(tokenizer, kind)
        self.compare("qwen3", "thinking")
        self.compare("llama2", "plain turns")
        self.compare("llama2", "plain pairs")

    def test_assistant_only(self):
        for tokenizer in ("qwen2_5_training", "qwen3_training"):
            for kind in ("messages", "chat pairs", "thinking"):
                self.compare(tokenizer, kind, assistant_only_loss=True)
        self.compare("qwen2_5_training", "chat pairs", assistant_only_loss=True,
                     completion_only_loss=False)

    def test_assistant_only_where_the_tokenizer_rewrites_the_text(self):
        self.compare("llama2", "plain turns", assistant_only_loss=True)
        self.compare("llama2", "plain pairs", assistant_only_loss=True)

    def test_tokens(self):
        self.compare("qwen2_5", "tokens")

    def test_cutting_and_dropping(self):
        self.compare("qwen2_5", "messages", max_length=40)
        cut = self.compare("qwen2_5", "pairs", max_length=10)
        self.assertGreater(cut["dropped"], 0)
        self.compare("qwen2_5_training", "messages", max_length=60, assistant_only_loss=True)


if __name__ == "__main__":
    unittest.main()
