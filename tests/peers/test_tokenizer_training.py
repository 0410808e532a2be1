"""Trains tokenizers and compares them with those that Hugging Face's tokenizers train."""

import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["MGPU_BUILD"]) / "bin"
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def their_bpe(texts, vocab_size, min_frequency):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def repetitive(seed, count=400):
    """Few letters in long words: many pairs of equal frequency, and tokens that two pairs make."""
    rng = random.Random(seed)
    return ["".join(rng.choices("aab", k=rng.randint(1, 30))) + "\n" for _ in range(count)]


def lines_of(text):
    return text.splitlines(keepends=True)


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def train(self, *args, status=0):
        done = subprocess.run([BIN / "mgpu-train", "train-tokenizer", *map(str, args)],
                              cwd=self.dir, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def write_text(self, texts, name="corpus.txt"):
        path = self.dir / name
        path.write_bytes("".join(texts).encode())
        return path

    def ours(self, texts, *options):
        self.count = getattr(self, "count", 0) + 1
        out = self.dir / f"tokenizer-{self.count}"
        self.train(self.write_text(texts), "--output", out, *options)
        return out

    def assert_same_model(self, folder, theirs):
        ours = json.loads((folder / "tokenizer.json").read_text())["model"]
        theirs = json.loads(theirs.to_str())["model"]
        self.assertEqual(ours["vocab"], theirs["vocab"])
        self.assertEqual(ours["merges"], theirs["merges"])

    def corpora(self):
        pages = "".join(path.read_text() for path in sorted(ROOT.glob("docs/*.md")))
        return [(lines_of(pages), 3000, 2), (lines_of(pages), 600, 0),
                (lines_of("naïve cafe\u0301 日本語 😀\u200d  \t\r\n x" * 9), 400, 1),
                *((repetitive(seed), 299 + 80 * seed, 0) for seed in range(3))]

    def test_vocabulary_and_merges_are_those_of_huggingface(self):
        for texts, vocab_size, min_frequency in self.corpora():
            with self.subTest(vocab_size=vocab_size, min_frequency=min_frequency, text=texts[0]):
                folder = self.ours(texts, "--vocab-size", vocab_size,
                                   "--min-frequency", min_frequency)
                self.assert_same_model(folder, their_bpe(texts, vocab_size, min_frequency))

    def test_ids_and_texts_are_those_of_huggingface_and_transformers(self):
        texts = self.corpora()[0][0]
        folder = self.ours(texts, "--vocab-size", 1000)
        file = Tokenizer.from_file(str(folder / "tokenizer.json"))
        theirs = their_bpe(texts, 1000, 2)
        auto = transformers.AutoTokenizer.from_pretrained(folder)
        self.assertEqual((auto.eos_token, auto.pad_token, auto.eos_token_id, len(auto)),
                         (SPECIAL[0], SPECIAL[0], 0, 1000))
        for text in ["Hello wörld! 日本語 😀\n\n  x=1", "".join(texts[:200]), SPECIAL[1] + "user\n"]:
            ids = theirs.encode(text).ids
            self.assertEqual(file.encode(text).ids, ids)
            self.assertEqual(auto(text)["input_ids"], ids)
            self.assertEqual(self.our_ids(folder, text), ids)
            self.assertEqual(file.decode(ids, skip_special_tokens=False), text)
        chat = [{"role": "user", "content": "hi"}]
        self.assertEqual(auto.apply_chat_template(chat, tokenize=False, add_generation_prompt=True),
                         "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")

    def our_ids(self, folder, text):
        done = subprocess.run([BIN / "tokenize", folder / "tokenizer.json"], input=json.dumps(
            {"text": text, "special": False}) + "\n", capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)["ids"]

    def test_characters_are_those_of_the_text(self):
        texts = lines_of("naïve cafe\u0301 日本語 😀\nabba a\n")
        folder = self.ours(texts, "--kind", "characters")
        vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        self.assertEqual(vocab, {token: number for number, token in enumerate(
            [*SPECIAL, "<|unk|>", *sorted(set("naïve café 日本語 😀\nab"))])})
        trainer = trainers.BpeTrainer(
            vocab_size=len(vocab), special_tokens=[*SPECIAL, "<|unk|>"], show_progress=False)
        theirs = Tokenizer(models.BPE())
        theirs.normalizer = normalizers.NFC()
        theirs.train_from_iterator(texts, trainer)
        self.assertEqual(theirs.get_vocab(), vocab)
        auto = transformers.AutoTokenizer.from_pretrained(folder)
        for text in ("cafe\u0301 日本", "zebra"):
            ids = auto(text)["input_ids"]
            self.assertEqual(self.our_ids(folder, text), ids)
        self.assertEqual(auto.decode(auto("naïve a\n")["input_ids"]), "naïve a\n")
        few = self.ours(texts, "--kind", "characters", "--vocab-size", 6)
        vocab = json.loads((few / "tokenizer.json").read_text())["model"]["vocab"]
        self.assertEqual(list(vocab)[4:], [" ", "a"])  # the most frequent ones

    def test_rows_of_jsonl_files_are_read_by_their_format(self):
        rows = [{"text": "alpha beta", "source": "ignored"}, {"text": "alpha", "source": "x"}]
        path = self.write_text([json.dumps(row) + "\n" for row in rows], "rows.jsonl")
        self.train(path, "-o", self.dir / "text", "--min-frequency", 1)
        self.assert_same_model(self.dir / "text", their_bpe(["alpha beta", "alpha"], 8192, 1))
        chat = {"messages": [{"role": "user", "content": "one two"},
                             {"role": "assistant", "content": "two"}]}
        path = self.write_text([json.dumps(chat) + "\n"], "chat.jsonl")
        self.train(path, "-o", self.dir / "chat", "--min-frequency", 1)
        self.assert_same_model(self.dir / "chat", their_bpe(["one two", "two"], 8192, 1))

    def test_bad_input_is_reported_in_one_line(self):
        out = self.dir / "out"
        empty = self.write_text([], "empty.txt")
        torn = self.dir / "torn.txt"
        torn.write_bytes(b"good\nbad \xff byte\n")
        ids = self.write_text(['{"input_ids": [1, 2]}\n'], "ids.jsonl")
        good = self.write_text(["abc abc\n"], "good.txt")
        for args, status, message in [
                ((empty,), 2, f"cannot train a tokenizer: {empty} contains no text"),
                ((torn,), 2, f"{torn}:2: byte 5 is not valid UTF-8; convert the file to UTF-8, "
                 "for example with iconv -t UTF-8"),
                ((ids,), 2, "token ids, from which no tokenizer can be trained"),
                ((self.dir / "no.txt",), 2, "No such file or directory"),
                ((good, "--vocab-size", 258), 2, "--vocab-size 258: --kind bpe needs at least 259"),
                ((good, "--kind", "characters", "--vocab-size", 4), 2, "needs at least 5"),
                ((good, "--kind", "words"), 2, "--kind: need bpe or characters, not words")]:
            with self.subTest(message):
                done = self.train(*args, "-o", out, status=status)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertFalse(out.exists())
        done = self.train(good, "-o", out)
        self.assertRegex(done.stdout, r"\Awrote \S+/out/tokenizer.json: 26\d tokens, because the "
                         r"text yields no more \(--vocab-size 8192\)\n\Z")
        self.assertIn("already exists", self.train(good, "-o", out, status=1).stderr)


if __name__ == "__main__":
    unittest.main()
