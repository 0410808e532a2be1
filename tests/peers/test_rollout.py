"""Compares `mgpu-train generate` with transformers on the same models and token ids."""

import collections
import json
import math
import random
import subprocess
import unittest

import trainer
from trainer import BIN, LIMIT, SLOWER, environment, load_model, make_model

if not trainer.MISSING:
    import torch
    import transformers
    transformers.logging.set_verbosity_error()

# Around multiples of 16, the number of tokens of a KV cache page.
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 48, 50)
NEW = 64


class RolloutTest(trainer.TrainerTest):
    def setUp(self):
        super().setUp()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(trainer.TOKENIZER)

    def generate(self, *options, model=None, ok=True, nproc=None, stdout=subprocess.PIPE):
        """Runs mgpu-train directly, or as a job of `nproc` ranks."""
        words = [str(BIN / "mgpu-run"), "--nproc", str(nproc)] if nproc else []
        words += [str(BIN / "mgpu-train"), "generate", "--model", str(model or self.model)]
        words += [option if isinstance(option, bytes) else str(option) for option in options]
        done = subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, timeout=LIMIT * SLOWER,
                              check=False, env=environment(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""))
        if ok:
            self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done

    def answers(self, rows, *options, model=None):
        """Completions of raw prompts (no chat template), with all details."""
        path = self.dir / "prompts.jsonl"
        path.write_text("".join(json.dumps({"prompt": row}) + "\n" for row in rows))
        done = self.generate("--input", path, "--raw", "--details", *options, model=model)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([line["prompt"] for line in lines], list(rows))
        return lines

    def ids(self, text):
        return self.tokenizer(text).input_ids

    def prompt_of(self, count, seed=1):
        """A text with `count` tokens."""
        rng = random.Random(f"{seed} {count}")
        text = ""
        while len(self.ids(text)) < count:
            more = text + rng.choice("0123456789+-=abcdefghij ")
            if len(self.ids(more)) <= count:
                text = more
        return text

    def prompts(self, lengths=LENGTHS):
        return [self.prompt_of(length) for length in lengths]

    def last_logits(self, prompt, model=None):
        with torch.no_grad():
            return load_model(model or self.model)(torch.tensor([self.ids(prompt)])).logits[0, -1]


class Greedy(RolloutTest):
    def assert_greedy(self, model, lines, **options):
        reference = load_model(model)
        for line in lines:
            prompt = torch.tensor([self.ids(line["prompt"])])
            generated = reference.generate(prompt, do_sample=False, max_new_tokens=NEW,
                                      attention_mask=torch.ones_like(prompt), **options)
            self.assertEqual(line["completion_ids"], generated[0, prompt.shape[1]:].tolist(),
                             f"{prompt.shape[1]} tokens")

    def test_wrong_input_has_status_2(self):
        path = self.dir / "bad.jsonl"
        path.write_text('{"prompt": "1+1="}\n{"prompt"\n')
        for options, line in ((("--input", path), f"{path}:2: "),
                              (("--input", self.dir), f"--input: {self.dir} is a folder"),
                              (("--prompt", b"\xff"), "--prompt: ")):
            with self.subTest(options):
                done = self.generate(*options, ok=False)
                self.assertEqual((done.returncode, done.stdout), (2, b""), done.stderr)
                self.assertTrue(done.stderr.decode().startswith(f"mgpu-train: {line}"), done.stderr)

    def test_a_read_error_does_not_shorten_the_input(self):
        """Reading this file ends with EIO, as that of a failing disk does."""
        done = self.generate("--input", "/proc/self/mem", ok=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (1, b"", b"mgpu-train: cannot read /proc/self/mem: Input/output error\n"))

    def test_completions_equal_those_of_transformers(self):
        for family in trainer.FAMILIES:
            for tied in (False, True):
                with self.subTest(family, tied=tied):
                    model = make_model(self.dir / f"{family}-{tied}", family, seed=3,
                                       tie_word_embeddings=tied)
                    lines = self.answers(self.prompts(), "--temperature", 0, "--max-new-tokens",
                                         NEW, "--sequences", 3, model=model)
                    self.assert_greedy(model, lines)

    def test_completions_equal_those_of_transformers_with_any_number_of_kv_heads(self):
        for heads in (1, 4):
            with self.subTest(heads):
                model = make_model(self.dir / f"heads-{heads}", num_key_value_heads=heads)
                lines = self.answers(self.prompts((1, 16, 33)), "--temperature", 0,
                                     "--max-new-tokens", NEW, model=model)
                self.assert_greedy(model, lines)

    def test_the_number_of_concurrent_sequences_does_not_change_completions(self):
        runs = [self.answers(self.prompts(), "--temperature", 0, "--max-new-tokens", NEW,
                             "--sequences", count) for count in (1, 2, 3, 32)]
        for run in runs[1:]:
            self.assertEqual([line["completion_ids"] for line in run],
                             [line["completion_ids"] for line in runs[0]])

    def test_more_rows_than_fit_into_one_chunk_do_not_change_completions(self):
        """At most 8192 tokens are prefilled at a time, and 1024 rows are written at a time."""
        prompts = [self.prompt_of(10, seed) for seed in range(50)] * 21
        runs = [self.answers(prompts, "--temperature", 0, "--max-new-tokens", 3, "--sequences",
                             count) for count in (1024, 5)]
        self.assertEqual(*[[line["completion_ids"] for line in run] for run in runs])
        self.assertEqual([line["completion_ids"] for line in runs[0]],
                         [line["completion_ids"] for line in runs[0][:50]] * 21)

    def test_completions_with_a_repetition_penalty_equal_those_of_transformers(self):
        options = ("--temperature", 0, "--max-new-tokens", NEW, "--sequences", 3)
        lines = self.answers(self.prompts(), *options, "--repetition-penalty", 1.3)
        self.assert_greedy(self.model, lines, repetition_penalty=1.3)
        plain = self.answers(self.prompts(), *options)
        self.assertNotEqual([line["completion_ids"] for line in lines],
                            [line["completion_ids"] for line in plain])


class Sampled(RolloutTest):
    def log_probs(self, model, prompt, generated, temperature):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + generated])).logits[0, len(prompt) - 1:-1]
        scores = torch.log_softmax(logits / temperature, -1)
        return scores.gather(1, torch.tensor(generated).unsqueeze(1)).squeeze(1)

    def test_log_probs_are_those_of_the_model_at_the_temperature(self):
        """Filters and penalties do not change the reported log-probs."""
        model = load_model(self.model)
        for options in ((), ("--top-p", .8), ("--repetition-penalty", 1.5)):
            with self.subTest(options):
                for line in self.answers(self.prompts(), "--temperature", .7, "--max-new-tokens",
                                         40, "--samples", 2, "--sequences", 5, *options):
                    for generated, log_probs in zip(line["completion_ids"], line["log_probs"]):
                        expected = self.log_probs(model, self.ids(line["prompt"]), generated, .7)
                        self.assertEqual(len(log_probs), len(generated))
                        apart = (torch.tensor(log_probs) - expected).abs().max().item()
                        self.assertLessEqual(apart, 1e-4, line["prompt"])

    def test_a_completion_does_not_depend_on_other_completions(self):
        prompts = self.prompts((17, 1, 32, 5))
        options = ("--max-new-tokens", 24, "--samples", 3)
        whole = self.answers(prompts, *options)
        for count in (1, 2, 3, 7):
            with self.subTest(sequences=count):
                some = self.answers(prompts, *options, "--sequences", count)
                self.assertEqual([line["completion_ids"] for line in some],
                                 [line["completion_ids"] for line in whole])
        beside = self.answers([prompts[0]] + self.prompts((50, 16, 3)), *options)
        alone = self.answers(prompts[:1], *options)
        for line in (beside[0], alone[0]):
            self.assertEqual(line["completion_ids"], whole[0]["completion_ids"])

    def test_completions_that_could_not_be_written_were_an_error_without_a_cause(self):
        reason = b"No space left on device\n"
        done = self.generate("--prompt", "1+1=", "--output", "/dev/full", ok=False)
        self.assertEqual((done.returncode, done.stderr),
                         (1, b"mgpu-train: cannot write to /dev/full: " + reason))
        with open("/dev/full", "wb") as full:
            done = self.generate("--prompt", "1+1=", ok=False, stdout=full)
        self.assertEqual((done.returncode, done.stderr),
                         (1, b"mgpu-train: cannot write to the standard output: " + reason))

    def test_a_model_without_finite_logits_is_an_error(self):
        model = load_model(self.model)
        with torch.no_grad():
            model.model.norm.weight.fill_(math.nan)
        model.save_pretrained(self.model)
        done = self.generate("--prompt", "1+1=", ok=False)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn("the model's logits are not finite", done.stderr.decode())

    def test_samples_differ_and_are_reproducible(self):
        prompts = self.prompts((17, 3))
        for line, again, fewer, other in zip(
                self.answers(prompts, "--max-new-tokens", 16, "--samples", 6),
                self.answers(prompts, "--max-new-tokens", 16, "--samples", 6),
                self.answers(prompts, "--max-new-tokens", 16, "--samples", 2),
                self.answers(prompts, "--max-new-tokens", 16, "--samples", 6, "--seed", 43)):
            generated = line["completion_ids"]
            self.assertEqual(len({tuple(one) for one in generated}), 6)
            self.assertEqual(again["completion_ids"], generated)
            self.assertEqual(fewer["completion_ids"], generated[:2])
            self.assertFalse({tuple(one) for one in other["completion_ids"]}
                             & {tuple(one) for one in generated})

    def test_a_duplicate_prompt_has_two_different_completions(self):
        first, second = self.answers(self.prompts((9,)) * 2, "--max-new-tokens", 16)
        self.assertNotEqual(first["completion_ids"], second["completion_ids"])


class FirstToken(RolloutTest):
    """The distribution of many samples; transformers' warpers give the exact one."""

    # Large enough for a distribution that is far from uniform.
    model_options = {"initializer_range": .3}

    def kept_by(self, logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
        """The probabilities after the filters."""
        warpers = [transformers.TemperatureLogitsWarper(temperature)]
        if top_k:
            warpers.append(transformers.TopKLogitsWarper(top_k))
        if top_p < 1:
            warpers.append(transformers.TopPLogitsWarper(top_p))
        if min_p:
            warpers.append(transformers.MinPLogitsWarper(min_p))
        scores = logits.unsqueeze(0)
        for warper in warpers:
            scores = warper(None, scores)
        return torch.softmax(scores[0].double(), -1)

    def sample_counts(self, prompts, count, **sampling):
        options = [word for key, value in sampling.items()
                   for word in ("--" + key.replace("_", "-"), value)]
        lines = self.answers(prompts, "--max-new-tokens", 1, "--samples", count, *options)
        return [collections.Counter(ids[0] for ids in line["completion_ids"]) for line in lines]

    def test_samples_are_never_outside_the_filters(self):
        prompts = self.prompts((1, 16, 21))
        free = self.sample_counts(prompts, 300)
        for sampling in (dict(top_k=5), dict(top_p=.7), dict(min_p=.1),
                         dict(temperature=1.5, top_k=40, top_p=.8, min_p=.02)):
            with self.subTest(**sampling):
                for prompt, counts, unfiltered in zip(prompts, self.sample_counts(prompts, 300, **sampling),
                                                     free):
                    left = self.kept_by(self.last_logits(prompt), **sampling)
                    kept = set(left.nonzero().flatten().tolist())
                    self.assertLessEqual(set(counts), kept)
                    self.assertFalse(set(unfiltered) <= kept, "the filters must have an effect here")

    def deviations(self, counts, probabilities):
        """By how many standard deviations chi-square exceeds its mean; bins of at least 5 samples."""
        count = sum(counts.values())
        pairs = [(counts[token], count * probability) for token, probability in enumerate(probabilities.tolist())]
        bins = [pair for pair in pairs if pair[1] >= 5]
        rest = [pair for pair in pairs if pair[1] < 5]
        if sum(pair[1] for pair in rest) > 1e-9:
            bins.append(tuple(map(sum, zip(*rest))))
        else:
            self.assertEqual(sum(pair[0] for pair in rest), 0)
        free = len(bins) - 1
        self.assertGreater(free, 5)
        chi_square = sum((seen - expected) ** 2 / expected for seen, expected in bins)
        return (chi_square - free) / math.sqrt(2 * free)

    def test_samples_have_the_exact_distribution(self):
        prompt = self.prompt_of(21)
        logits = self.last_logits(prompt)
        for sampling in (dict(temperature=.7), dict(temperature=1.0, top_p=.9),
                         dict(temperature=.7, top_p=.9)):
            with self.subTest(**sampling):
                counts = self.sample_counts([prompt], 4000, **sampling)[0]
                self.assertLess(self.deviations(counts, self.kept_by(logits, **sampling)), 4)
                hotter = self.kept_by(logits, **{**sampling, "temperature": 1.2})
                self.assertGreater(self.deviations(counts, hotter), 10)


class Stops(RolloutTest):
    TEXT = "abcdefgh-é🙂 xyz"

    def setUp(self):
        super().setUp()
        self.model = self.make_speller()

    def make_speller(self):
        """A model that generates TEXT token by token and then ends: only a token's own embedding
        reaches the head, whose row for the next token equals it."""
        folder = make_model(self.dir / "speller", tie_word_embeddings=False)
        model = load_model(folder)
        ids = self.ids(self.TEXT)
        self.assertGreaterEqual(len(ids), len(self.TEXT.encode()) - 3, "mostly bytes")
        self.assertEqual(len(set(ids)), len(ids), "each token has one successor")
        end = self.tokenizer.eos_token_id
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.o_proj.weight.zero_()
                layer.mlp.down_proj.weight.zero_()
            model.model.norm.weight.fill_(1)
            table = torch.nn.functional.normalize(model.model.embed_tokens.weight, dim=1)
            model.lm_head.weight.zero_()
            for token, following in zip(ids, ids[1:] + [end]):
                model.lm_head.weight[following] = 8 * table[token]
        model.config.eos_token_id = model.generation_config.eos_token_id = end
        model.save_pretrained(folder)
        return folder

    def spelled(self, *stops):
        options = [word for stop in stops for word in ("--stop", stop)]
        return self.answers(["a"], "--temperature", 0, "--max-new-tokens", 40, *options)[0]

    def assert_stopped(self, line, text, until):
        """`until` is the text up to the token that completed the stop text."""
        self.assertEqual((line["ended"], line["completion"]), ("stop", text))
        self.assertEqual(self.tokenizer.decode(self.ids("a") + line["completion_ids"]), until)

    def test_without_a_stop_text_the_model_ends_the_completion(self):
        for stops in ((), ("nowhere",), (self.TEXT + "!",), ("A",)):
            with self.subTest(stops):
                line = self.spelled(*stops)
                self.assertEqual((line["ended"], line["completion"]), ("eos", self.TEXT[1:]))
                self.assertEqual(line["completion_ids"][-1], self.tokenizer.eos_token_id)
                self.assertEqual(len(line["log_probs"]), len(line["completion_ids"]))

    def test_the_maximum_length_is_reported_as_the_stop_reason(self):
        line = self.answers(["a"], "--temperature", 0, "--max-new-tokens", 3)[0]
        self.assertEqual((line["ended"], len(line["completion_ids"])), ("length", 3))

    def test_a_stop_text_can_span_tokens(self):
        self.assert_stopped(self.spelled("fgh"), "bcde", "abcdefgh")
        self.assert_stopped(self.spelled(self.TEXT[1:-1]), "", self.TEXT[:-1])

    def test_a_stop_text_can_be_a_character_of_several_tokens(self):
        self.assert_stopped(self.spelled("é"), "bcdefgh-", "abcdefgh-é")
        self.assert_stopped(self.spelled("🙂"), "bcdefgh-é", "abcdefgh-é🙂")
        self.assert_stopped(self.spelled("é🙂 x"), "bcdefgh-", "abcdefgh-é🙂 x")

    def test_the_first_of_several_stop_texts_applies(self):
        self.assert_stopped(self.spelled("🙂", "gh", "x"), "bcdef", "abcdefgh")

    def test_empty_stop_texts_and_partial_characters_are_rejected(self):
        for stop, reason in ((b"", "empty"), ("é".encode()[:1], "not UTF-8"),
                             ("🙂".encode()[1:3], "not UTF-8")):
            with self.subTest(stop):
                done = self.generate("--prompt", "a", "--stop", stop, ok=False)
                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stderr.decode(),
                                 f"mgpu-train: --stop: the text is {reason}\n")


class Prompts(RolloutTest):
    def refused(self, *rows):
        """The error about the last of the rows."""
        path = self.dir / "prompts.jsonl"
        path.write_text("".join(row + "\n" for row in rows))
        done = self.generate("--input", path, "--raw", "--max-new-tokens", 4, ok=False)
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        begin, _, reason = done.stderr.decode().partition(f"{path}:{len(rows)}: ")
        self.assertEqual(begin, "mgpu-train: ", done.stderr)
        self.assertEqual(reason.count("\n"), 1)
        return reason.strip()

    def test_a_bad_prompt_is_reported_with_its_line(self):
        good = '{"prompt": "1+1="}'
        self.assertEqual(self.refused(good, '{"prompt": ""}'), "the prompt is empty")
        for row in ('{"text": "1+1="}', '{"prompt": 7}', '{"prompt": null}'):
            with self.subTest(row):
                self.assertEqual(self.refused(good, row),
                                 'the row has no "prompt" with a text or a list of messages')
        self.refused(good, good, '{"prompt": ')
        self.assertIn("is a list of messages, which",
                      self.refused('{"prompt": [{"role": "user", "content": "1+1="}]}'))

    def test_a_prompt_longer_than_the_context_is_reported(self):
        long = json.dumps({"prompt": self.prompt_of(257)})
        self.assertEqual(self.refused('{"prompt": "1+1="}', "", long),
                         "the prompt has 257 tokens, but the model has only 256 positions")

    def test_a_completion_may_reach_the_end_of_the_sliding_window_and_not_beyond(self):
        make_model(self.model, "mistral", sliding_window=50)
        fits, long = (json.dumps({"prompt": self.prompt_of(count)}) for count in (46, 47))
        self.assertEqual(self.refused(fits, long),
                         "the prompt has 47 tokens and --max-new-tokens is 4, together more than "
                         "the model's sliding_window of 50, and sliding-window attention is not "
                         "supported; lower --max-new-tokens")

    def test_a_prompt_can_fill_the_context(self):
        line = self.answers([self.prompt_of(256)], "--temperature", 0, "--max-new-tokens", 2)[0]
        self.assertEqual(len(line["completion_ids"]), 2)

    def test_rows_keep_their_columns_and_order(self):
        path, out = self.dir / "prompts.jsonl", self.dir / "answers.jsonl"
        rows = [{"prompt": self.prompt_of(length), "number": length} for length in LENGTHS]
        path.write_text("\n\n".join(map(json.dumps, rows)))
        self.generate("--input", path, "--output", out, "--max-new-tokens", 5, "--sequences", 2)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertTrue(all(isinstance(line.pop("completion"), str) for line in lines))
        self.assertEqual(lines, rows)


class Ranks(RolloutTest):
    def test_any_number_of_ranks_writes_the_same_file(self):
        """Ten rows are not a multiple of three, and one is fewer than three."""
        path = self.dir / "prompts.jsonl"
        for lengths in (LENGTHS, (7,), ()):
            path.write_text("".join(json.dumps({"prompt": prompt}) + "\n"
                                    for prompt in self.prompts(lengths)))
            generated = []
            for nproc in (None, 1, 3):
                out = self.dir / f"answers-{len(lengths)}-{nproc}.jsonl"
                self.generate("--input", path, "--output", out, "--raw", "--details", "--samples",
                              2, "--max-new-tokens", 12, nproc=nproc)
                generated.append([json.loads(line) for line in out.read_text().splitlines()])
            alone = generated[0]
            self.assertEqual(len(alone), len(lengths))
            for lines in generated[1:]:
                for ours, theirs in zip(lines, alone, strict=True):
                    for ours_one, theirs_one in zip(ours.pop("log_probs"), theirs["log_probs"]):
                        self.assert_near(ours_one, theirs_one, 1e-4)
                    self.assertEqual(ours, {key: value for key, value in theirs.items()
                                            if key != "log_probs"})

    def test_a_bad_row_ends_all_ranks(self):
        path = self.dir / "prompts.jsonl"
        path.write_text('{"prompt": "1+1="}\n{"prompt": ""}\n')
        done = self.generate("--input", path, "--output", self.dir / "answers.jsonl", "--raw",
                             ok=False, nproc=2)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{path}:2: the prompt is empty", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
