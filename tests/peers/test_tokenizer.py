"""Compares our tokenizer with Hugging Face's: the same ids and text for strings of every kind."""

import functools
import itertools
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import unicodedata
import unittest

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZE = pathlib.Path(os.environ["MGPU_BUILD"]) / "bin" / "tokenize"
LIMIT = 300

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPACES = [chr(c) for c in (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028,
                           0x2029, 0x202F, 0x205F, 0x3000)]
EMOJI = ["👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "1️⃣", "👩🏿‍🚒", "🧑‍🤝‍🧑", "❤️‍🔥", "☃️", "😀"]
WORDS = ["don't", "I'LL", "we'Ve", "it'ſ", "X'M", "naïve", "e\u0301a\u0323\u0302", "日本語", "한국어",
         "각", "ไทย", "नमस्ते", "العربية", "עִבְרִית", "Привет", "Ελληνικά", "ab12cd345", "１２３", "x²½Ⅷ",
         "\u212b\u2126", "fi\ufb01", "_under_score", "a-b--c", "...", "?!\n", "\\n", "\x00", "\x7f",
         "\ufeff", "\u200b", "\u180e", "\ufffd", "▁", "▁▁a", "Ġ", "Ċ", "<0x0A>", "<0x41>", "<unk>"]


def corpus():
    texts = [path.read_text() for path in sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md"))]
    return texts + [" ".join(WORDS), " ".join(EMOJI), "  \n\n\t  ".join(WORDS)]


def by_block(rng):
    """Strings of each range of 64 code points: every script, and unassigned code points."""
    for first in (*range(0, 0x20000, 64), *range(0x2A6C0, 0x32400, 64), 0xE0000, 0xE0100, 0xF0000):
        letters = [chr(c) for c in range(first, first + 64) if not 0xD800 <= c < 0xE000]
        if letters:
            mixed = rng.choices(letters, k=24) + rng.choices([" ", "a", "1", "\n"], k=6)
            rng.shuffle(mixed)
            yield "".join(mixed)


def draw_strings(tokens):
    rng = random.Random(7)
    marks = [chr(c) for c in range(0x20000) if unicodedata.category(chr(c))[0] == "M"]
    kinds = [
        lambda: rng.choice(WORDS),
        lambda: rng.choice(WORDS) + " ",
        lambda: rng.choice(EMOJI),
        lambda: rng.choice(tokens),
        lambda: rng.choice(["", " ", "a", "\n "]) + rng.choice(tokens) + rng.choice(["", " ", "b"]),
        lambda: "".join(rng.choices(SPACES, k=rng.randint(1, 5))),
        lambda: " " * rng.randint(1, 9) + "\n" * rng.randint(0, 3),
        lambda: rng.choice("aeoAE각가ㅏ") + "".join(rng.choices(marks, k=rng.randint(1, 4))),
        lambda: bytes(rng.choices(range(256), k=6)).decode("utf-8", "replace"),
        lambda: "".join(chr(rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000))))
                        for _ in range(3)),
        lambda: str(rng.randrange(10 ** rng.randint(1, 12))),
        lambda: chr(rng.randrange(32)),
        lambda: "".join(rng.choices("abcdeéxyz ABC'", k=rng.randint(1, 8))),
    ]
    yield from ("", " ", "  ", "\n", "a")
    yield from WORDS + EMOJI + tokens
    yield from (before + token + after for token in tokens
                for before, after in itertools.product(("", "a", " ", "  x  ", "é"), repeat=2))
    yield from by_block(rng)
    for _ in range(3000):
        yield "".join(rng.choice(kinds)() for _ in range(rng.randint(1, 12)))
    for text in corpus():
        yield text[:4000]
    yield rng.choice(WORDS) * 3000


@functools.cache
def strings(*tokens):
    """Texts of every kind, with these tokens among them. Many tests use the same tokens."""
    return list(draw_strings(list(tokens)))


@functools.cache
def trained_text(untrained, size, specials, alphabet):
    tokenizer = Tokenizer.from_str(untrained)
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [])
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer.to_str()


def trained(tokenizer, size, specials=(), alphabet=True):
    """A new tokenizer like this one, trained. Equal ones are trained only once."""
    return Tokenizer.from_str(trained_text(tokenizer.to_str(), size, tuple(specials), alphabet))


def byte_level(pattern, normalizer=None, prefix=False, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return trained(tokenizer, 700)


def llama2(byte_fallback=True, fuse_unk=True, normalizer=True, drop=()):
    """A vocabulary like SentencePiece's: <unk>, <s>, </s>, bytes, and trained pieces."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    first = ["<unk>", "<s>", "</s>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256) if byte not in drop] if byte_fallback else []
    file = json.loads(trained(tokenizer, 900, first + bytes_, alphabet=False).to_str())
    rare = {"é", "日", "Ġ", "א", "☃"}  # characters that must not be in the vocabulary
    vocab = [t for t in file["model"]["vocab"] if not rare & set(t)]
    file["model"]["vocab"] = {token: i for i, token in enumerate(vocab)}
    file["model"]["merges"] = [m for m in file["model"]["merges"] if not rare & set("".join(m))]
    file["model"]["byte_fallback"] = byte_fallback
    file["added_tokens"] = file["added_tokens"][:3]
    if normalizer:
        file["pre_tokenizer"] = None
        file["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    file["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return Tokenizer.from_str(json.dumps(file))


def with_bos(tokenizer, token="<s>"):
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A {token}", pair=f"{token} $A $B", special_tokens=[
            (token, tokenizer.token_to_id(token))])
    return tokenizer


def charsmap(replacements):
    """SentencePiece's table of replacements: a double-array trie of the texts, and their results."""
    results, offsets = b"", {}
    for text, result in replacements.items():
        offsets[text if isinstance(text, bytes) else text.encode()] = len(results)
        results += result.encode() + b"\0"
    keys = sorted(offsets)
    units, used = {0: 0}, {0}

    def place(node, prefix):
        """Gives the children of a node their places, from an offset at which all of them are free."""
        children = sorted({key[len(prefix)] for key in keys
                           if key.startswith(prefix) and len(key) > len(prefix)})
        ends = prefix in offsets
        wanted = ([0] if ends else []) + children
        # Offsets from 2 ** 21 on must be multiples of 256: small tables do not need them.
        base = next(base for base in range(256, 1 << 21)
                    if not any(base ^ byte in used for byte in wanted))
        units[node] |= (node ^ base) << 10 | ends << 8
        used.update(base ^ byte for byte in wanted)
        if ends:
            units[base] = offsets[prefix] | 1 << 31
        for byte in children:
            units[base ^ byte] = byte
            place(base ^ byte, prefix + bytes([byte]))

    place(0, b"")
    array = struct.pack(f"<{max(units) + 256}I", *(units.get(i, 0) for i in range(max(units) + 256)))
    return struct.pack("<I", len(array)) + array + results


@functools.cache
def nmt_nfkc():
    """A part of the table with which T5 and DeBERTa were trained: compatible forms and spaces."""
    chars = [chr(c) for c in (*range(0xA0, 0x500), *range(0x900, 0xA00), *range(0x1100, 0x1180),
                              *range(0x1E00, 0x2200), *range(0x2460, 0x2500),
                              *range(0x3000, 0x3400), *range(0xF900, 0xFB50),
                              *range(0xFE30, 0xFFF0), *range(0x1D400, 0x1D500))]
    table = {c: unicodedata.normalize("NFKC", c) for c in chars}
    table |= {a + m: unicodedata.normalize("NFKC", a + m) for a in "aeiouAEIOUnc"
              for m in "\u0300\u0301\u0302\u0303\u0308\u0323\u0327"}
    table |= {unicodedata.normalize("NFD", chr(c)): chr(c) for c in range(0xAC00, 0xAC80)}
    table |= {c: " " for c in "\t\n\r\u200b\u200e\u200f\u2028\u2581\ufeff"}
    table |= {chr(c): "" for c in (*range(1, 9), 11, 12, *range(14, 32), 0x7F, 0x8F)}
    return charsmap({text: result for text, result in table.items() if text != result})


@functools.cache
def trained_unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.UnigramTrainer(
        vocab_size=800, special_tokens=["[PAD]", "[CLS]", "[SEP]", "[UNK]", *bytes_],
        unk_token="[UNK]", show_progress=False)
    tokenizer.train_from_iterator([text[:5000] for text in corpus()], trainer)
    return tokenizer.to_str()


def unigram(normalizer, pre_tokenizer=None, byte_fallback=False):
    first = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    file = json.loads(trained_unigram())
    file["model"]["byte_fallback"] = byte_fallback
    file["added_tokens"] = file["added_tokens"][:4]
    file["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                       "split": True}
    file["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0)],
        "pair": [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0), sequence("B", 1),
                 special("[SEP]", 1)],
        "special_tokens": {name: {"id": name, "ids": [first.index(name)], "tokens": [name]}
                           for name in ("[CLS]", "[SEP]")}}
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Metaspace()
    return tokenizer


def special(name, kind):
    return {"SpecialToken": {"id": name, "type_id": kind}}


def sequence(name, kind):
    return {"Sequence": {"id": name, "type_id": kind}}


def deberta():
    """The parts that DeBERTa-v3's published tokenizer.json has."""
    return normalizers.Sequence([
        normalizers.Strip(), normalizers.Precompiled(nmt_nfkc()),
        normalizers.Replace(Regex(" {2,}"), " ")])


class SameAsHuggingFace(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mgpu-test-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def ours(self, path, requests):
        lines = "".join(json.dumps(request) + "\n" for request in requests)
        done = subprocess.run([TOKENIZE, path], input=lines, capture_output=True, text=True,
                              timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        answers = [json.loads(line) for line in done.stdout.split("\n") if line]
        self.assertEqual(len(answers), len(requests))
        return answers

    def check(self, theirs, tokens=("<s>",), file=None):
        path = self.dir / "tokenizer.json"
        path.write_text(json.dumps(file) if file else theirs.to_str())
        requests = [{"text": text, "special": i % 2 == 0}
                    for i, text in enumerate(strings(*tokens))]
        rng = random.Random(3)
        end = theirs.get_vocab_size() + 5
        requests += [{"ids": [rng.randrange(end) for _ in range(rng.randint(1, 9))]}
                     for _ in range(500)]
        for request, answer in zip(requests, self.ours(path, requests)):
            ids = request.get("ids")
            if ids is None:
                ids = theirs.encode(request["text"], add_special_tokens=request["special"]).ids
            expected = {"ids": ids, "decoded": theirs.decode(ids, skip_special_tokens=False),
                        "skipped": theirs.decode(ids, skip_special_tokens=True)}
            self.assertEqual(answer, expected, ascii(request))

    def test_qwens_pattern_with_nfc(self):
        theirs = byte_level(QWEN, normalizers.NFC())
        names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        theirs.add_special_tokens(names)
        calls = ["<tool_call>", "</tool_call>", "<think>"]
        theirs.add_tokens([AddedToken(call, normalized=False) for call in calls])
        self.check(theirs, names + calls)

    def test_llama_3s_pattern_with_ignored_merges_and_a_template(self):
        theirs = byte_level(LLAMA3, ignore_merges=True)
        names = ["<|begin_of_text|>", "<|eot_id|>"]
        theirs.add_special_tokens(names)
        template = with_bos(theirs, names[0]).post_processor
        theirs.post_processor = processors.Sequence([processors.ByteLevel(), template])
        file = json.loads(theirs.to_str())
        # A token that no merge produces.
        file["model"]["vocab"]["Ġdon"] = len(file["model"]["vocab"]) + len(names)
        for token in file["added_tokens"]:
            token["id"] += 1
        file["model"]["vocab"]["Ġdon"] = min(token["id"] for token in file["added_tokens"]) - 1
        self.check(Tokenizer.from_str(json.dumps(file)), names, file)

    def test_cased_letters(self):
        self.check(byte_level(CASED), ["x"])

    def test_word_classes_and_boundaries(self):
        self.check(byte_level(r"\b\w+\b|\d|\W|\u0041\D"), ["x"])

    def test_gpt_2s_byte_level_with_and_without_a_prefixed_space(self):
        for prefix in (False, True):
            theirs = byte_level(None, prefix=prefix)
            theirs.add_special_tokens(["<|endoftext|>"])
            self.check(theirs, ["<|endoftext|>"])

    def test_merges_as_strings(self):
        theirs = byte_level(QWEN, normalizers.NFC())
        file = json.loads(theirs.to_str())
        file["model"]["merges"] = [" ".join(merge) for merge in file["model"]["merges"]]
        self.check(theirs, ["x"], file)

    def test_llama_2_with_byte_fallback(self):
        theirs = with_bos(llama2())
        theirs.add_tokens([AddedToken("<pad>", normalized=True), AddedToken("[INST]", normalized=False)])
        self.check(theirs, ["<s>", "</s>", "<unk>", "<pad>", "[INST]"])

    def test_llama_2_with_some_bytes_missing(self):
        for fuse in (False, True):
            self.check(llama2(fuse_unk=fuse, drop=(0xE2, 0xC3)), ["<s>"])

    def test_unknown_characters(self):
        for fuse in (False, True):
            self.check(llama2(byte_fallback=False, fuse_unk=fuse), ["<s>"])
        silent = json.loads(llama2(byte_fallback=False).to_str())
        silent["model"]["unk_token"] = None
        self.check(Tokenizer.from_str(json.dumps(silent)), ["<s>"])

    def test_metaspace(self):
        for scheme, split in itertools.product(("always", "first", "never"), (False, True)):
            theirs = llama2(normalizer=False)
            theirs.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
            theirs.decoder = decoders.Metaspace(prepend_scheme=scheme)
            self.check(theirs, ["<s>", "</s>"])

    def test_split_behaviors(self):
        behaviors = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
        for behavior, invert in itertools.product(behaviors, (False, True)):
            theirs = byte_level(QWEN)
            theirs.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex(r"\s|[a-f]{2}"), behavior, invert),
                pre_tokenizers.Split("e", behavior, invert),
                pre_tokenizers.Digits(individual_digits=invert),
                pre_tokenizers.ByteLevel(add_prefix_space=invert)])
            self.check(theirs, ["x"])

    def test_other_pre_tokenizers(self):
        for pre_tokenizer in (pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(),
                              pre_tokenizers.Digits(True)):
            theirs = llama2()
            theirs.pre_tokenizer = pre_tokenizer
            self.check(theirs, ["<s>"])

    def test_added_tokens_of_every_kind(self):
        contents = iter(["<a>", "<ab>", "<abc", "b", " ", "\t", "word", "<é>", "e\u0301", "\u212b", "▁x",
                         "ing", "  ", "<<", "<", "ß", "日本", "\n", "12", "'s", "<|x|>", "[x]", "Ġ",
                         "🏳", "don", "A", "_", "the", "he", "e", "ǆ", "-"])
        tokens = [AddedToken(next(contents), single_word=a, lstrip=b, rstrip=c, normalized=d,
                             special=e)
                  for a, b, c, d, e in itertools.product((False, True), repeat=5)]
        names = [token.content for token in tokens]
        for theirs in (byte_level(QWEN, normalizers.NFC()), byte_level(None, prefix=True), llama2()):
            for some in (tokens, tokens[::2], tokens[1::3], tokens[16:]):
                fresh = Tokenizer.from_str(theirs.to_str())
                fresh.add_tokens(some)
                self.check(fresh, names)

    def test_deberta_v3s_unigram(self):
        theirs = unigram(deberta(), pre_tokenizers.Sequence([pre_tokenizers.Metaspace()]))
        names = ["[CLS]", "[SEP]", "[UNK]", "[PAD]"]
        self.check(theirs, [*names, "▁", "ing"])

    def test_unigram_with_other_normalizers_and_prefixes(self):
        """T5's old form, the one that transformers 5 makes of DeBERTa's, and each normal form."""
        rebuilt = normalizers.Sequence([normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "),
                                        normalizers.NFC(), normalizers.Strip(left=False)])
        table = normalizers.Precompiled(nmt_nfkc())
        metaspace = pre_tokenizers.Metaspace
        for normalizer, pre_tokenizer, byte_fallback in (
                (rebuilt, metaspace(), False),
                (table, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()]),
                 False),
                (normalizers.NFKC(), metaspace(prepend_scheme="first"), True),
                (normalizers.NFKD(), metaspace(prepend_scheme="never"), False),
                (normalizers.NFD(), metaspace(split=False), True),
                (normalizers.Strip(right=False), metaspace(prepend_scheme="first"), True)):
            with self.subTest(normalizer=normalizer, pre_tokenizer=pre_tokenizer):
                theirs = unigram(normalizer, pre_tokenizer, byte_fallback)
                self.check(theirs, ["[CLS]", "[UNK]"])

    def test_normal_forms_of_every_code_point(self):
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            theirs = llama2(normalizer=False)
            theirs.normalizer = normalizers.Sequence([getattr(normalizers, form)()])
            theirs.pre_tokenizer = None
            path = self.dir / "tokenizer.json"
            path.write_text(theirs.to_str())
            letters = [chr(c) for c in range(0x110000)
                       if not 0xD800 <= c < 0xE000 and (c < 0x30000 or c % 512 == 7)]
            texts = ["".join(letters[at:at + 400]) for at in range(0, len(letters), 400)]
            texts += ["".join(f"a{letter}\u0301\u0323" for letter in text) for text in texts[::7]]
            answers = self.ours(path, [{"text": text, "special": False} for text in texts])
            for text, answer, right in zip(texts, answers, theirs.encode_batch(
                    texts, add_special_tokens=False), strict=True):
                self.assertEqual(answer["ids"], right.ids, (form, ascii(text[:20])))

    def test_boundaries_of_grapheme_clusters(self):
        """With this table each cluster of less than six bytes becomes one X."""
        theirs = Tokenizer(models.Unigram([("[UNK]", 0.0), ("X", -1.0)], 0, False))
        theirs.normalizer = normalizers.Precompiled(
            charsmap({bytes([byte]): "X" for byte in range(1, 256)}))
        rng = random.Random(11)
        interesting = [0x0D, 0x0A, 0xAD, 0xA9, 0x200D, 0x200C, 0x203C, 0x2139, 0x301, 0x5B0, 0x600,
                       0x903, 0x915, 0x94D, 0x958, 0x93C, 0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01,
                       0x1F1E6, 0x1F600, 0x1F3FB, 0xE0020, 0x113D1, 0x61]
        kinds = [lambda: rng.choice(interesting), lambda: rng.randrange(1, 128),
                 lambda: rng.randrange(0x300, 0x3000)]
        texts = ["".join(chr(rng.choice(kinds)()) for _ in range(rng.randint(1, 8)))
                 for _ in range(20000)]
        path = self.dir / "tokenizer.json"
        path.write_text(theirs.to_str())
        answers = self.ours(path, [{"text": text, "special": False} for text in texts])
        for text, answer in zip(texts, answers):
            right = theirs.encode(text, add_special_tokens=False).ids
            self.assertEqual(answer["ids"], right, ascii(text))

    def test_pairs_of_texts_and_their_truncation(self):
        theirs = unigram(deberta())
        path = self.dir / "tokenizer.json"
        path.write_text(theirs.to_str())
        texts = ["", "a", "What is it?", "a long answer " * 9, " ".join(WORDS)]
        cases = [(a, b, longest) for a, b in itertools.product(texts, repeat=2)
                 for longest in (3, 4, 7, 12, 33, 10000)]
        answers = self.ours(path, [{"pair": [a, b], "longest": longest} for a, b, longest in cases])
        for (a, b, longest), answer in zip(cases, answers):
            whole = theirs.encode(a, b)
            theirs.enable_truncation(longest)
            right = theirs.encode(a, b)
            theirs.no_truncation()
            self.assertEqual(answer, {"ids": right.ids, "types": right.type_ids,
                                      "cut": len(right.ids) < len(whole.ids)}, (a, b, longest))

    def test_no_decoder(self):
        theirs = byte_level(QWEN)
        file = json.loads(theirs.to_str()) | {"decoder": None}
        self.check(Tokenizer.from_str(json.dumps(file)), ["x"])

    def test_saved_with_added_tokens(self):
        from transformers import AutoTokenizer, PreTrainedTokenizerFast
        theirs = byte_level(QWEN, normalizers.NFC())
        theirs.add_special_tokens(["<|endoftext|>"])
        PreTrainedTokenizerFast(tokenizer_object=theirs, eos_token="<|endoftext|>",
                                pad_token="<|endoftext|>").save_pretrained(self.dir / "in")
        subprocess.run([TOKENIZE, self.dir / "in", "add", self.dir / "out", "<new>", "é", "the"],
                       check=True, timeout=LIMIT)
        theirs.add_tokens(["<new>", "é", "the"])
        saved = AutoTokenizer.from_pretrained(self.dir / "out")
        self.assertEqual(saved.eos_token, "<|endoftext|>")
        text = "the <new>é<new> breathe\u0301<|endoftext|>"
        self.assertEqual(saved(text)["input_ids"], theirs.encode(text).ids)
        self.check(theirs, ["<new>", "é", "the"],
                   json.loads((self.dir / "out" / "tokenizer.json").read_text()))

    def test_an_unchanged_tokenizer_is_saved_bytewise_equal(self):
        source = self.dir / "in"
        source.mkdir()
        (source / "tokenizer.json").write_text(byte_level(QWEN).to_str(pretty=True))
        (source / "tokenizer_config.json").write_text('{"model_max_length": 1000000000000000019884624838656}')
        subprocess.run([TOKENIZE, source, "add", self.dir / "out"], check=True, timeout=LIMIT)
        for file in source.iterdir():
            self.assertEqual(file.read_bytes(), (self.dir / "out" / file.name).read_bytes())


if __name__ == "__main__":
    unittest.main()
