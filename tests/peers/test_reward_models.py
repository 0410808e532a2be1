"""Reward models: the scores of transformers for the same text, and roles on their own GPUs.

The tests run without GPUs: a role on its own GPU is resident on the CPU of one rank.
"""

import json
import os
import unittest
from unittest import mock

import trainer
from grpo_trainer import GrpoTest, prompt_rows
from trainer import write_rows

CLOSE = 1e-4
ROLES = {1: dict(policy_gpus=[0], reference_gpu=1, reward_gpu=1),
         2: dict(policy_gpus=[0, 1], reference_gpu=2, reward_gpu=1)}
# Where a gradient is near 0, AdamW's default epsilon makes updates of full size out of rounding,
# whose amount depends on the CPU.
STEADY = dict(adam_epsilon=1e-4)


def make_reward_model(folder, family="qwen2", labels=1, seed=7, template=None, **others):
    """Saves a small random sequence classifier with the examples' tokenizer."""
    import torch
    import transformers
    sizes = dict(vocab_size=trainer.VOCABULARY, hidden_size=32, intermediate_size=48,
                 num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=256, initializer_range=0.2, num_labels=labels)
    config = getattr(transformers, trainer.FAMILIES[family])(**{**sizes, **others})
    torch.manual_seed(seed)
    model = transformers.AutoModelForSequenceClassification.from_config(config,
                                                                        dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(trainer.TOKENIZER)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder


def logits_of(folder, texts):
    """As TRL computes them: no special tokens, and the last token that is not padding."""
    import torch
    import transformers
    # AutoTokenizer would use Qwen's own pre-tokenizer for any model of type qwen2.
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder,
                                                                            dtype=torch.float32)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    with torch.no_grad():
        return [model(**tokenizer(text=[text], return_tensors="pt", add_special_tokens=False))
                .logits[0, 0].item() for text in texts]


# The published models, and what else the same type of model can have.
DEBERTAS = {
    "v3": {},
    "near": dict(position_buckets=8, max_relative_positions=12),
    "unbucketed": dict(position_buckets=-1, max_relative_positions=10),
    "v2": dict(share_att_key=False, type_vocab_size=2, position_biased_input=True,
               embedding_size=16, pos_att_type="c2p", norm_rel_ebd="none", hidden_act="gelu_new"),
    "p2c": dict(share_att_key=False, pos_att_type=["p2c"], pooler_hidden_act="tanh"),
    "absolute": dict(relative_attention=False, position_biased_input=True)}


def make_deberta(folder, seed=7, labels=1, **others):
    """Saves a small random DeBERTa-v3 classifier with a Unigram tokenizer."""
    import tokenizers
    import torch
    import transformers
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    pieces = [(name, 0.0) for name in special] + [("▁", -2.5), ("▁the", -4.0)]
    pieces += [(chr(c), -3.0 - c / 50) for c in range(33, 127)]
    pieces += [(f"{a}{b}", -4.5 - a / 9) for a in range(10) for b in range(10)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 3, False))
    tokenizer.add_special_tokens(special)
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Strip(), tokenizers.normalizers.NFKC()])
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    sizes = dict(vocab_size=len(pieces) + 3, hidden_size=32, intermediate_size=48,
                 num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=120,
                 type_vocab_size=0, relative_attention=True, max_relative_positions=-1,
                 position_buckets=256, position_biased_input=False, pos_att_type="p2c|c2p",
                 share_att_key=True, norm_rel_ebd="layer_norm", initializer_range=0.3,
                 num_labels=labels)
    config = transformers.DebertaV2Config(**{**sizes, **others})
    torch.manual_seed(seed)
    model = transformers.DebertaV2ForSequenceClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        unk_token="[UNK]", model_input_names=["input_ids", "token_type_ids", "attention_mask"]
    ).save_pretrained(folder)
    return folder


def logits_of_pairs(folder, pairs):
    """As the published models are used: question and answer as a pair."""
    import torch
    import transformers
    # AutoTokenizer would use the normalizer of its own class.
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder,
                                                                            dtype=torch.float32)
    longest = model.config.max_position_embeddings
    with torch.no_grad():
        return [model(**tokenizer(question, answer, return_tensors="pt", truncation=True,
                                  max_length=longest)).logits[0, 0].item()
                for question, answer in pairs]


class RewardModelTest(GrpoTest):
    def scores(self, run, name):
        """(prompt, completion, score) of every completion."""
        return [(line["prompt"], line["completion"], line[name])
                for lines in self.completions(run).values() for line in lines]


class RewardModels(RewardModelTest):
    TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                "{% if add_generation_prompt %}<assistant>{% endif %}")
    OTHER = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"

    def test_scores_equal_those_of_transformers(self):
        """Every family, as one of several rewards, with one and two ranks."""
        for family, nproc, options in (("qwen2", 1, {}), ("qwen2", 2, {}), ("qwen3", 2, dict(
                head_dim=16)), ("llama", 2, {}), ("mistral", 2, {})):
            with self.subTest(family, nproc=nproc):
                scorer = make_reward_model(self.dir / f"scorer-{family}", family, **options)
                run = self.train(nproc, reward_funcs=["letters", str(scorer), "digits"],
                                 reward_weights=[1, 0.5, 1], log_completions=True, max_steps=2)
                scores = self.scores(run, scorer.name)
                self.assertEqual(len(scores), 48)
                right = logits_of(scorer, [prompt + text for prompt, text, _ in scores])
                for (_, text, ours), theirs in zip(scores, right):
                    self.assertLessEqual(abs(ours - theirs), CLOSE, text)
                self.assertGreater(max(right) - min(right), 0.1)
                for record in run.records():
                    self.assertAlmostEqual(
                        record["reward"], record["rewards/letters/mean"] +
                        0.5 * record[f"rewards/{scorer.name}/mean"] +
                        record["rewards/digits/mean"], 4)

    def test_a_reward_model_uses_its_own_chat_template(self):
        config = self.model / "tokenizer_config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()),
                                      "chat_template": self.TEMPLATE}))
        rows = [{"prompt": [{"role": "user", "content": f"what is {n}"}]} for n in range(4)]
        rows += [{"question": f"and {n}", "system": "be brief"} for n in range(2)]
        rows += [{"prompt": f"{n}="} for n in range(2)]
        data = write_rows(self.dir / "mixed.jsonl", rows)
        keys = dict(dataset_name=str(data), log_completions=True, shuffle_dataset=False,
                    global_batch_size=64, per_device_train_batch_size=8, max_steps=1)
        scorer = make_reward_model(self.dir / "scorer", template=self.OTHER)
        scores = self.scores(self.train(2, reward_funcs=[str(scorer)], **keys), "scorer")
        texts = []
        for number, (_, text, _) in enumerate(scores):
            row = rows[number // 8]
            if number < 32:
                texts.append(f"[user: {row['prompt'][0]['content']}][assistant: {text}]")
            elif number < 48:
                texts.append(f"[system: be brief][user: {row['question']}][assistant: {text}]")
            else:
                texts.append(row["prompt"] + text)
        for (_, text, ours), theirs in zip(scores, logits_of(scorer, texts)):
            self.assertLessEqual(abs(ours - theirs), CLOSE, text)
        raising = make_reward_model(self.dir / "raising", template="{{ raise_exception('no ' + 'more') }}")
        self.refused(2, "reward raising: ", "no more", reward_funcs=[str(raising)], **keys)
        untemplated = make_reward_model(self.dir / "untemplated")
        self.refused(2, "reward untemplated: ", "mixed.jsonl:1: the prompt is a conversation, but ",
                     "has no chat template", reward_funcs=[str(untemplated)], **keys)

    def test_texts_that_are_too_long_have_no_score_and_are_counted(self):
        scorer = make_reward_model(self.dir / "scorer", max_position_embeddings=10)
        run = self.train(2, reward_funcs=["letters", str(scorer)], log_completions=True, max_steps=1)
        none = sum(score is None for _, _, score in self.scores(run, "scorer"))
        self.assertGreater(none, 0)
        self.assertIn(f"warning: {none} completions with their prompts are empty or longer than the "
                      "10 tokens that reward scorer supports", run.notes)

    def test_reward_models_score_evaluations_and_resumed_runs(self):
        scorer = make_reward_model(self.dir / "scorer")
        held_out = write_rows(self.dir / "held_out.jsonl", prompt_rows(5))
        keys = dict(reward_funcs=[str(scorer), "digits"], eval_dataset=str(held_out),
                    eval_strategy="steps", eval_steps=2, num_iterations=2, max_steps=4, **STEADY)
        runs = [self.train(2, **keys, **ROLES[2]), self.train(2, **keys)]
        for run in runs:
            self.assertEqual(len(run.column("eval_rewards/scorer/mean", "eval")), 2)
            self.assert_near(run.column("eval_reward", "eval"),
                             runs[0].column("eval_reward", "eval"), 1e-4)
        half = dict(keys, save_strategy="steps", save_steps=1)
        self.train(2, out="half", **{**half, "max_steps": 1})
        self.assert_same_weights(self.train(2, out="half", **half).weights(), runs[1].weights(),
                                 1e-6)

    def test_models_that_are_not_reward_models_are_rejected(self):
        scorer, headless, other = (make_reward_model(self.dir / name)
                                  for name in ("scorer", "headless", "other"))
        three = make_reward_model(self.dir / "three", labels=3)
        tensors = trainer.load_tensors(headless)
        del tensors["score.weight"]
        trainer.safetensors.torch.save_file(tensors, headless / "model.safetensors")
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
        for folder, line in (
                (self.model, "is a Qwen2ForCausalLM; a reward model must be a "
                             "...ForSequenceClassification"),
                (three, "has 3 labels; a reward model must have one (num_labels 1)"),
                (headless, "has no score.weight"),
                (other, "model_type 'bert' is not supported for a reward model; deberta-v2, "
                        "llama, mistral, qwen2 and qwen3 are")):
            with self.subTest(folder.name):
                run = self.refused(2, line, nproc=1, reward_funcs=[str(folder)])
                self.assertIn(f"mgpu-train: reward {folder.name}: ", run.err)
        run = self.refused(2, "unknown reward ", "http://HOST:PORT/PATH and a reward model's folder",
                           reward_funcs=[str(self.dir / "nowhere")])
        self.assertEqual(self.error_lines(run), 1, run.err)
        self.refused(2, "reward_funcs names scorer twice", nproc=1,
                     reward_funcs=[str(scorer), f"{scorer}/"])

    def test_a_program_longer_than_a_path_is_not_taken_for_a_model(self):
        run = self.refused(1, "reward cmd:", nproc=1,
                           reward_funcs=["cmd:" + "true; " * 100 + "exit 3"])
        self.assertNotIn("filesystem error", run.err)

    def test_score_rejects_a_reward_model_in_one_line(self):
        scorer = make_reward_model(self.dir / "scorer")
        rows = write_rows(self.dir / "rows.jsonl", [{"completion": "a"}])
        done = trainer.subprocess.run(
            [trainer.BIN / "mgpu-train", "score", "--rewards", str(scorer), rows],
            capture_output=True, text=True, timeout=trainer.LIMIT)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("is a model; mgpu-train score supports reward functions only", done.stderr)


class Debertas(RewardModelTest):
    def assert_scores(self, run, folder, questions=None):
        scores = self.scores(run, folder.name)
        pairs = [((questions or {}).get(prompt, prompt), text) for prompt, text, _ in scores]
        right = logits_of_pairs(folder, pairs)
        for (_, text, ours), theirs in zip(scores, right):
            self.assertLessEqual(abs(ours - theirs), CLOSE, (folder.name, text))
        self.assertGreater(max(right) - min(right), 0.05, folder.name)

    def test_scores_equal_those_of_transformers(self):
        """All kinds, with prompts that are long enough for every bucket and for truncation."""
        folders = [make_deberta(self.dir / name, **keys) for name, keys in DEBERTAS.items()]
        rows = [{"prompt": "".join(chr(33 + (n * i * i + i) % 90) for i in range(3 + 11 * n))}
                for n in range(12)]
        data = write_rows(self.dir / "long.jsonl", rows)
        for nproc, reward_gpu in ((1, None), (2, None), (2, 1)):
            with self.subTest(nproc=nproc, reward_gpu=reward_gpu):
                roles = {} if reward_gpu is None else dict(policy_gpus=[0, 1], reward_gpu=1)
                run = self.train(nproc, dataset_name=str(data), log_completions=True, max_steps=1,
                                 global_batch_size=96, per_device_train_batch_size=8,
                                 reward_funcs=["letters", *map(str, folders)], **roles)
                for folder in folders:
                    self.assert_scores(run, folder)
                self.assertIn("reward v3 reads a prompt and its completion as a pair of at most 120 "
                              "tokens; longer pairs are cut", run.notes)

    def test_the_guides_key_names_a_reward_model(self):
        scorer = make_deberta(self.dir / "scorer")
        alone = self.train(1, reward_funcs=None, reward_rules=None, reward_model=str(scorer),
                           log_completions=True)
        self.assert_scores(alone, scorer)
        both = self.train(1, reward_funcs=["letters"], reward_model=str(scorer),
                          reward_weights=[1, 0.5])
        for record in both.records():
            self.assertAlmostEqual(record["reward"], record["rewards/letters/mean"] +
                                   0.5 * record["rewards/scorer/mean"], 4)
        self.refused(2, "reward_model: ", "no-such-model", nproc=1, reward_model="no-such-model")
        self.refused(2, "names scorer twice", nproc=1, reward_funcs=[str(scorer)],
                     reward_model=str(scorer))

    def test_a_name_of_the_hub_is_found_in_the_cache(self):
        snapshot = self.dir / "hub" / "models--some--scorer" / "snapshots" / ("0" * 40)
        snapshot.parent.mkdir(parents=True)
        make_deberta(snapshot)
        refs = snapshot.parents[1] / "refs"
        refs.mkdir()
        (refs / "main").write_text("0" * 40)
        with mock.patch.dict(os.environ, HF_HUB_CACHE=str(self.dir / "hub")):
            run = self.train(1, reward_model="some/scorer", log_completions=True, max_steps=1)
        scores = self.scores(run, "scorer")
        right = logits_of_pairs(snapshot, [(prompt, text) for prompt, text, _ in scores])
        for (_, _, ours), theirs in zip(scores, right):
            self.assertLessEqual(abs(ours - theirs), CLOSE)

    def test_a_conversation_is_a_question_without_its_system_message(self):
        config = self.model / "tokenizer_config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()),
                                      "chat_template": RewardModels.TEMPLATE}))
        rows = [{"prompt": [{"role": "system", "content": "be brief"},
                            {"role": "user", "content": f"what is {n}"}]} for n in range(3)]
        rows.append({"prompt": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"},
                                {"role": "user", "content": "3"}]})
        data = write_rows(self.dir / "chats.jsonl", rows)
        scorer = make_deberta(self.dir / "scorer")
        run = self.train(1, dataset_name=str(data), reward_funcs=[str(scorer)], max_steps=1,
                         log_completions=True, shuffle_dataset=False, global_batch_size=32)
        scores = self.scores(run, "scorer")
        questions = ["what is 0", "what is 1", "what is 2", "1\n\n2\n\n3"]
        right = logits_of_pairs(scorer, [(questions[number // 8], text)
                                         for number, (_, text, _) in enumerate(scores)])
        self.assertEqual(len(scores), 32)
        for (_, text, ours), theirs in zip(scores, right):
            self.assertLessEqual(abs(ours - theirs), CLOSE, text)

    def test_unsupported_classifiers_are_rejected_in_one_line(self):
        names = ("conv", "act", "bias", "pickle", "headless", "kind")
        folders = {name: make_deberta(self.dir / name) for name in names}
        folders["three"] = make_deberta(self.dir / "three", labels=3)
        folders["typed"] = make_deberta(self.dir / "typed", type_vocab_size=1)
        folders["small"] = make_deberta(self.dir / "small", vocab_size=90)
        for name, change in (("conv", {"conv_kernel_size": 3}), ("act", {"hidden_act": "mish"}),
                             ("bias", {"pos_att_type": "p2p|c2p"}),
                             ("kind", {"architectures": ["DebertaV2ForMaskedLM"]})):
            path = folders[name] / "config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        (folders["pickle"] / "model.safetensors").rename(folders["pickle"] / "pytorch_model.bin")
        tensors = trainer.load_tensors(folders["headless"])
        del tensors["classifier.weight"]
        trainer.safetensors.torch.save_file(tensors, folders["headless"] / "model.safetensors")
        (make_deberta(self.dir / "spm") / "tokenizer.json").rename(self.dir / "spm" / "spm.model")
        folders["spm"] = self.dir / "spm"
        for name, line in (
                ("conv", "conv_kernel_size: the convolution of DeBERTa-v2 xlarge is not supported"),
                ("act", "hidden_act: 'mish' is not supported"),
                ("bias", "pos_att_type: 'p2p' is not supported; c2p and p2c are"),
                ("kind", "is a DebertaV2ForMaskedLM; a reward model must be a "
                         "...ForSequenceClassification"),
                ("pickle", "AutoModelForSequenceClassification as M; M.from_pretrained("),
                ("headless", "has no classifier.weight"),
                ("three", "has 3 labels; a reward model must have one (num_labels 1)"),
                ("typed", "has the token type 1, but type_vocab_size is 1"),
                ("small", "has vocab_size 90 but its tokenizer has 200 tokens"),
                ("spm", "no tokenizer.json in ")):
            with self.subTest(name):
                run = self.refused(2, line, nproc=1, reward_funcs=[str(folders[name])])
                self.assertEqual(self.error_lines(run), 1, run.err)

    def test_plan_counts_its_whole_weights_on_each_gpu(self):
        scorer = make_deberta(self.dir / "scorer", hidden_size=256, intermediate_size=1024,
                              vocab_size=40000)
        size = (scorer / "model.safetensors").stat().st_size
        # The guide's layouts for three and two GPUs, with its names, and no layout.
        for roles, options, held in (
                (dict(policy_gpu_ids=[0, 1], reference_gpu_id=2, reward_gpu_id=2), (), ["2"]),
                (dict(policy_gpu_ids=[0, 1], reference_gpu_id=1, reward_gpu_id=1), (), ["1"]),
                (dict(), ("--gpus", "2"), ["0, 1"])):
            recipe = self.recipe(reward_model=str(scorer), beta=0.1, **roles)
            done = trainer.subprocess.run(
                [trainer.BIN / "mgpu-train", "plan", recipe, *options, "--gpu-memory", "80GB"],
                capture_output=True, text=True, timeout=trainer.LIMIT,
                env=trainer.environment(CUDA_VISIBLE_DEVICES=""))
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = [line.split("reward scorer") for line in done.stdout.splitlines()
                    if "reward scorer" in line]
            self.assertEqual([gpus.strip() for gpus, _ in rows], held, done.stdout)
            self.assertIn(f"{size / 2 ** 30:.2f} GiB  +", rows[0][1])


class Roles(RewardModelTest):
    def assert_same_run(self, ours, theirs, keys=("reward", "loss", "kl"), stem="model"):
        for key in keys:
            for a, b in zip(ours.column(key), theirs.column(key), strict=True):
                self.assertLessEqual(abs(a - b), 1e-3 * max(abs(b), 1e-3), key)
        self.assert_same_weights(ours.weights(stem), theirs.weights(stem), 1e-5)

    def test_roles_on_their_own_gpus_do_not_change_the_result(self):
        scorer = make_reward_model(self.dir / "scorer")
        keys = dict(reward_funcs=["letters", str(scorer)], beta=0.1, learning_rate=1e-3,
                    **STEADY)
        for nproc, roles in ROLES.items():
            with self.subTest(nproc=nproc):
                plain = self.train(nproc, **keys)
                run = self.train(nproc, **keys, **roles)
                self.assert_same_run(run, plain)
                self.assertGreater(run.column("kl")[2], 1e-6)
                self.assertIn("select no GPU on this machine", run.notes)
                for role in ("the policy", "the rollout", "the reference", "reward scorer"):
                    self.assertIn(role, run.notes)

    def plan(self, *options, **keys):
        done = trainer.subprocess.run(
            [trainer.BIN / "mgpu-train", "plan", self.recipe(**keys), *options],
            capture_output=True, text=True, timeout=trainer.LIMIT,
            env=trainer.environment(CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_plan_shows_the_memory_of_roles_and_which_role_does_not_fit(self):
        scorer = make_reward_model(self.dir / "scorer", max_position_embeddings=64)
        keys = dict(reward_funcs=["letters", str(scorer)], beta=0.1, max_prompt_length=100,
                    policy_gpus=[0, 1], reference_gpu=2, reward_gpu=1)
        text = self.plan("--gpu-memory", "80GB", **keys)
        rows = [line.split() for line in text.split("Memory by role")[1].splitlines()]
        roles = {(row[0], " ".join(row[1:3])) for row in rows if row and row[0] in ("0", "1", "2")}
        for row in (("0", "the policy"), ("1", "the rollout"), ("1", "reward scorer"),
                    ("2", "the reference"), ("2", "in total")):
            self.assertIn(row, roles)
        self.assertNotIn(("0", "the reference"), roles)
        self.assertIn("for prompts of 100 tokens:", text)
        self.assertNotIn("its roles need", text)
        self.assertIn("GPU 0 has 0.5 GiB, but its roles need ",
                      self.plan("--gpu-memory", "0.5GB", **keys))

    def test_a_reference_on_its_own_gpu_works_with_adapters(self):
        keys = dict(use_peft=True, lora_r=4, lora_dropout=0.0, beta=0.1, learning_rate=1e-3)
        self.assert_same_run(self.train(2, **keys, policy_gpus=[0, 1], reference_gpu=1),
                             self.train(2, **keys), stem="adapter_model")

    def test_layouts_that_do_not_fit_the_job_are_rejected(self):
        run = self.refused(2, "policy_gpus names 2 GPUs, but the job has 3 ranks; start it with "
                              "--nproc 2", nproc=3, policy_gpus=[0, 1])
        self.assertEqual(self.error_lines(run), 1, run.err)
        self.refused(2, "policy_gpus: need GPU numbers without repetition", policy_gpus=[0, 0])
        self.refused(2, "reward_gpu: need a number", reward_gpu=-1)


class MovingReference(RewardModelTest):
    KEYS = dict(GrpoTest.KEYS, beta=0.1, sync_ref_model=True, ref_model_mixup_alpha=0.25,
                ref_model_sync_steps=2, learning_rate=3e-3, max_steps=4, save_strategy="steps",
                save_steps=1)

    def reference(self, folder):
        return {name: tensor for path in sorted((folder / "training_state_reference").iterdir())
                for name, tensor in trainer.safetensors.torch.load_file(path).items()}

    def test_the_reference_moves_a_part_of_the_way(self):
        runs = {(1, False): self.train(1), (2, False): self.train(2, zero_stage=3),
                (2, True): self.train(2, reference_gpu=2)}
        for run in runs.values():
            self.assertFalse((run.folder / "checkpoint-1" / "training_state_reference").exists())
            right = trainer.load_tensors(self.model)
            for step in (2, 4):
                policy = trainer.load_tensors(run.folder / f"checkpoint-{step}")
                right = {name: 0.75 * tensor + 0.25 * policy[name]
                         for name, tensor in right.items() if name in policy}
                self.assert_same_weights(self.reference(run.folder / f"checkpoint-{step}"), right,
                                         1e-6)
            self.assert_same_weights(run.weights(), runs[1, False].weights(), 1e-4)
        still = self.train(1, sync_ref_model=False)
        self.assertGreater(abs(still.column("kl")[3] - runs[1, False].column("kl")[3]),
                           0.05 * still.column("kl")[3])

    def test_a_moved_reference_is_resumed(self):
        whole = self.train(2)
        self.train(2, out="broken", max_steps=3)
        again = self.train(2, out="broken")
        self.assert_same_weights(again.weights(), whole.weights())
        self.train(2, out="other", max_steps=3)
        elsewhere = self.train(1, out="other", reference_gpu=1)
        self.assert_same_weights(elsewhere.weights(), whole.weights(), 1e-4)

    def test_recipes_without_a_movable_reference_are_rejected(self):
        self.refused(2, "sync_ref_model: with LoRA the reference is the model without the adapter",
                     use_peft=True)
        self.refused(2, "sync_ref_model: requires beta above 0", beta=0)


if __name__ == "__main__":
    unittest.main()
