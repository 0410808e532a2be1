"""Compares beam search and allowed completions of `mgpu-train generate` with transformers."""

import collections
import json
import math
import random
import unittest

import trainer
from test_rollout import RolloutTest
from trainer import load_model, make_model

if not trainer.MISSING:
    import torch
    import transformers

LENGTHS = (1, 16, 17, 33)  # around multiples of 16, the number of tokens of a KV cache page
STOPS = [7, 40, 41, 99, 150, 151, 200, 260, 300, 301]  # so many that beams end at all lengths
WORD = {False: "no", True: "yes", "never": "never"}


class BeamTest(RolloutTest):
    stops = STOPS

    def setUp(self):
        super().setUp()
        make_model(self.model, tie_word_embeddings=False, initializer_range=.15,
                   eos_token_id=self.stops, bos_token_id=None, pad_token_id=None)
        self.reference = load_model(self.model)

    def assert_beams(self, count, new, options=(), after=lambda size: {}, **settings):
        """Compares all beams of all prompts with transformers' generate(**settings), which also
        gets the settings `after` a prompt of so many tokens."""
        lines = self.answers(self.prompts(LENGTHS), "--beams", count, "--samples", count,
                             "--max-new-tokens", new, *options)
        for line in lines:
            prompt = torch.tensor([self.ids(line["prompt"])])
            theirs = self.reference.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False, num_beams=count,
                num_return_sequences=count, max_new_tokens=new, return_dict_in_generate=True,
                output_scores=True, pad_token_id=self.stops[0], **settings,
                **after(prompt.shape[1]))
            expected = [self.until_stop(ids) for ids in theirs.sequences[:, prompt.shape[1]:].tolist()]
            self.assertEqual(line["completion_ids"], expected, f"{prompt.shape[1]} tokens")
            self.assert_near(line["score"], theirs.sequences_scores.tolist(), 2e-4)
        return lines

    def until_stop(self, ids):
        ends = [position for position, token in enumerate(ids) if token in self.stops]
        return ids[:ends[0] + 1] if ends else ids


class Beams(BeamTest):
    def test_beams_and_scores_equal_those_of_transformers(self):
        lengths = set()
        for count, new, penalty, early in ((2, 24, 1.0, False), (3, 40, 0.0, False),
                                           (5, 20, 1.0, True), (4, 24, 2.0, "never"),
                                           (4, 24, -1.0, False), (6, 1, 1.0, False)):
            with self.subTest(count=count, new=new, penalty=penalty, early=early):
                lines = self.assert_beams(
                    count, new, ("--length-penalty", penalty, "--early-stopping", WORD[early]),
                    length_penalty=penalty, early_stopping=early)
                lengths |= {len(ids) for line in lines for ids in line["completion_ids"]}
        self.assertGreater(len(lengths), 8, "completions of many lengths")

    def test_fifty_beams_equal_those_of_transformers(self):
        self.assert_beams(50, 18, ("--length-penalty", 0), length_penalty=0.0)

    def test_one_beam_is_greedy(self):
        greedy = self.answers(self.prompts(LENGTHS), "--temperature", 0, "--max-new-tokens", 24)
        one = self.answers(self.prompts(LENGTHS), "--beams", 1, "--max-new-tokens", 24)
        self.assertEqual([line["completion_ids"] for line in one],
                         [line["completion_ids"] for line in greedy])

    def test_fewer_samples_than_beams_are_the_best_beams(self):
        options = ("--beams", 5, "--max-new-tokens", 16)
        for whole, some in zip(self.answers(self.prompts(LENGTHS), *options, "--samples", 5),
                               self.answers(self.prompts(LENGTHS), *options, "--samples", 2)):
            self.assertEqual(some["completion_ids"], whole["completion_ids"][:2])
            self.assertEqual(some["score"], sorted(some["score"], reverse=True))

    def test_log_probs_of_beams_are_those_of_the_model(self):
        for line in self.answers(self.prompts(LENGTHS), "--beams", 3, "--samples", 3,
                                 "--max-new-tokens", 20, "--length-penalty", .5):
            for ids, log_probs, score in zip(line["completion_ids"], line["log_probs"],
                                             line["score"]):
                prompt = self.ids(line["prompt"])
                with torch.no_grad():
                    logits = self.reference(torch.tensor([prompt + ids])).logits[0]
                expected = torch.log_softmax(logits[len(prompt) - 1:-1], -1)
                expected = expected.gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1)
                self.assertLess((torch.tensor(log_probs) - expected).abs().max().item(), 1e-4)
                self.assertAlmostEqual(score, sum(log_probs) / len(ids) ** .5, 4)


class Allowed(BeamTest):
    stops = [7]

    def setUp(self):
        super().setUp()
        rng = random.Random(5)
        items = {tuple(rng.randrange(100, 106) for _ in range(rng.randint(1, 5)))
                 for _ in range(90)}
        self.items = sorted(map(list, items))
        self.assertTrue(any(a != b and b[:len(a)] == a for a in self.items for b in self.items),
                        "some items begin others")
        self.following = collections.defaultdict(set)
        for item in self.items:
            for end in range(len(item) + 1):
                self.following[tuple(item[:end])].add((item + self.stops)[end])
        self.path = self.write(self.items)

    def write(self, rows, name="items.jsonl"):
        path = self.dir / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def allowed_after(self, prompt_size):
        """transformers' prefix_allowed_tokens_fn; beams that cannot exist may only end."""
        return lambda _, ids: sorted(self.following.get(tuple(ids[prompt_size:].tolist()), self.stops))

    def test_allowed_beams_equal_those_of_transformers(self):
        for count, penalty in ((2, 1.0), (5, 0.0), (50, 0.0), (50, 1.0)):
            with self.subTest(count=count, penalty=penalty):
                lines = self.assert_beams(
                    count, 12, ("--allowed", self.path, "--length-penalty", penalty),
                    lambda size: {"prefix_allowed_tokens_fn": self.allowed_after(size)},
                    length_penalty=penalty)
                for line in lines:
                    for ids in line["completion_ids"]:
                        self.assertIn(ids[:-1], self.items)

    def test_a_temperature_divides_the_log_probs_before_the_constraint(self):
        """As in MiniOneRec: a temperature, then log_softmax, then a mask."""
        test = self

        class Constraint(transformers.LogitsProcessor):
            def __init__(self, size):
                self.after = test.allowed_after(size)

            def __call__(self, input_ids, scores):
                mask = torch.full_like(scores, -1e6)
                for row, ids in enumerate(input_ids):
                    mask[row, self.after(0, ids)] = 0
                return torch.log_softmax(scores, -1) + mask

        for temperature in (.6, 1.7):
            with self.subTest(temperature):
                warper = transformers.TemperatureLogitsWarper(temperature)
                self.assert_beams(8, 12, ("--allowed", self.path, "--length-penalty", 0,
                                          "--temperature", temperature),
                                  lambda size: {"logits_processor": [warper, Constraint(size)]},
                                  length_penalty=0.0)

    def item_probabilities(self, prompt, temperature):
        """Of all items, when forbidden tokens have the probability 0."""
        found = {}
        for item in self.items:
            whole = prompt + item + self.stops
            with torch.no_grad():
                logits = self.reference(torch.tensor([whole])).logits[0] / temperature
            probability = 1.0
            for position, token in enumerate(item + self.stops):
                row = logits[len(prompt) + position - 1]
                allowed = sorted(self.following[tuple(item[:position])])
                probability *= torch.softmax(row[allowed], -1)[allowed.index(token)].item()
            found[tuple(item)] = probability
        return found

    def test_samples_have_the_distribution_without_the_forbidden_tokens(self):
        prompt = self.prompt_of(17)
        expected = self.item_probabilities(self.ids(prompt), .8)
        self.assertAlmostEqual(sum(expected.values()), 1, 4)
        line, = self.answers([prompt], "--allowed", self.path, "--temperature", .8, "--samples",
                             2000, "--max-new-tokens", 12)
        counts = collections.Counter(tuple(ids[:-1]) for ids in line["completion_ids"])
        self.assertLessEqual(set(counts), set(expected))
        for item, probability in expected.items():
            spread = math.sqrt(2000 * probability * (1 - probability))
            self.assertLess(abs(counts[item] - 2000 * probability), 4.5 * spread + 1, item)

    def test_log_probs_of_allowed_samples_are_over_the_whole_vocabulary(self):
        for line in self.answers(self.prompts(LENGTHS), "--allowed", self.path, "--samples", 2,
                                 "--temperature", .7, "--max-new-tokens", 12):
            prompt = self.ids(line["prompt"])
            for ids, log_probs in zip(line["completion_ids"], line["log_probs"]):
                self.assertIn(ids[:-1], self.items)
                with torch.no_grad():
                    logits = self.reference(torch.tensor([prompt + ids])).logits[0]
                expected = torch.log_softmax(logits[len(prompt) - 1:-1] / .7, -1)
                expected = expected.gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1)
                self.assertLess((torch.tensor(log_probs) - expected).abs().max().item(), 1e-4)

    def test_allowed_texts_are_encoded_and_repeated_ones_are_one(self):
        path = self.write(["abc\n", "xyz", "abc\n"], "texts.jsonl")
        line, = self.answers(["1+1="], "--allowed", path, "--beams", 2, "--samples", 2)
        self.assertEqual(sorted(line["completion"]), ["abc\n", "xyz"])

    def refused(self, rows, *options):
        path = self.dir / "bad.jsonl"
        path.write_text(rows)
        done = self.generate("--prompt", "1+1=", "--allowed", path, *options, ok=False)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        return done.stderr.decode().replace(str(path), "FILE")

    def test_bad_lists_of_allowed_completions_are_rejected(self):
        for rows, reason in (
                ("", "FILE: there is no allowed sequence"),
                ('"a"\n\n""\n', "FILE: allowed sequence 2 is empty"),
                ('"a"\n[5, 7]\n', "FILE: allowed sequence 2 contains the end token 7, which is "
                                  "added to each one"),
                ('"a"\n{"b": 1}\n', "FILE:2: the line is neither a JSON string nor a list of "
                                    "token ids"),
                ('"a"\n\nabc\n', "FILE:3: the line is neither a JSON string nor a list of "
                                 "token ids"),
                ("[5, -2]\n", "FILE:1: the list contains something that is not a token id"),
                ("[5, 320]\n", "an allowed completion contains the token 320, but the model's "
                               "vocabulary has 320 tokens")):
            with self.subTest(rows):
                self.assertEqual(self.refused(rows), f"mgpu-train: {reason}\n")

    def test_more_beams_than_allowed_completions_are_rejected(self):
        self.assertEqual(self.refused('"a"\n"b"\n"a"\n', "--beams", 3),
                         "mgpu-train: 3 beams are requested, but only 2 different completions "
                         "are allowed\n")

    def test_a_catalogue_of_one_item_has_one_completion(self):
        path = self.write([[100, 101]], "one.jsonl")
        for options in (("--beams", 1), ("--temperature", 1)):
            line, = self.answers(["1+1="], "--allowed", path, *options)
            self.assertEqual((line["completion_ids"], line["ended"]), ([100, 101, 7], "eos"))


class Usage(RolloutTest):
    def test_options_that_contradict_beams_are_rejected(self):
        for options, reason in (
                (("--samples", 3, "--beams", 2), "--samples 3 exceeds --beams 2"),
                (("--repetition-penalty", 2, "--beams", 2),
                 "--repetition-penalty has no effect on --beams; leave one of them out")):
            done = self.generate("--prompt", "a", *options, ok=False)
            self.assertEqual((done.returncode, done.stderr.decode()), (2, f"mgpu-train: {reason}\n"))


if __name__ == "__main__":
    unittest.main()
