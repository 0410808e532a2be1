"""GRPO's rows and recipes: supported forms and errors."""

import json
import math
import socket
import subprocess
import time
import unittest

import trainer
from grpo_trainer import GrpoTest, prompt_rows
from trainer import write_rows

try:
    import vllm_server
except ImportError:  # trainer.MISSING has the name
    vllm_server = None


class Rows(GrpoTest):
    TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                "{% if add_generation_prompt %}<assistant>{% endif %}")

    def prompts_of(self, rows, **keys):
        """The prompt that the model gets for each row."""
        count = len(rows)
        data = write_rows(self.dir / "some.jsonl", rows)
        run = self.train(1, dataset_name=str(data), log_completions=True, num_generations=2,
                         global_batch_size=2 * count, per_device_train_batch_size=2 * count,
                         max_steps=1, shuffle_dataset=False, **keys)
        lines = next(iter(self.completions(run).values()))
        return [line["prompt"] for line in lines[::2]]

    def chat(self):
        path = self.model / "tokenizer_config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "chat_template": self.TEMPLATE}))

    def test_all_prompt_formats_are_rendered(self):
        self.chat()
        messages = [{"role": "user", "content": "a"}]
        rows = [{"prompt": "x="}, {"prompt": messages}, {"problem": "p"}, {"question": "q"},
                {"question": "q", "system": "s"}, {"prompt": messages, "system_prompt": "t"}]
        self.assertEqual(self.prompts_of(rows), [
            "x=", "<user>a<assistant>", "<user>p<assistant>", "<user>q<assistant>",
            "<system>s<user>q<assistant>", "<system>t<user>a<assistant>"])
        self.assertEqual(self.prompts_of(rows[3:5], system_prompt="z"), [
            "<system>z<user>q<assistant>", "<system>s<user>q<assistant>"])

    def test_a_prompt_column_that_the_recipe_names_keeps_the_chat_template(self):
        """As in open-r1: its text is the user's message, also in the column `prompt`."""
        self.chat()
        messages = [{"role": "user", "content": "a"}]
        rows = [{"ask": "x="}, {"ask": messages}, {"ask": "q", "prompt": "p", "system": "s"}]
        self.assertEqual(self.prompts_of(rows, dataset_prompt_column="ask"), [
            "<user>x=<assistant>", "<user>a<assistant>", "<system>s<user>q<assistant>"])
        self.assertEqual(self.prompts_of([{"prompt": "x="}], dataset_prompt_column="prompt"),
                         ["<user>x=<assistant>"])

    def test_a_row_without_the_prompt_column_that_the_recipe_names_is_rejected(self):
        data = write_rows(self.dir / "other.jsonl", [{"problem": "1+1="}])
        self.refused(2, 'other.jsonl:1: the row has no "ask" column, which dataset_prompt_column '
                        'names', dataset_name=str(data), dataset_prompt_column="ask")

    def test_rewards_get_the_prompt_that_the_model_saw(self):
        def prompts_and_answers(rows, **keys):
            requests = self.dir / "requests.jsonl"
            requests.write_text("")
            data = write_rows(self.dir / "asked.jsonl", rows)
            self.train(1, dataset_name=str(data), reward_funcs=[self.mine("records")],
                       num_generations=2, global_batch_size=2 * len(rows), max_steps=1,
                       per_device_train_batch_size=2 * len(rows), shuffle_dataset=False, **keys)
            lines = [json.loads(line) for line in requests.read_text().splitlines()]
            self.assertEqual([len(line["prompts"]) for line in lines], [2] * len(rows))
            answers = [(line["prompts"][0], type(line["completions"][0])) for line in lines]
            # A group is scored as soon as it is generated.
            return sorted(answers, key=lambda answer: json.dumps(answer[0], sort_keys=True))

        rows = [{"ask": "q"}, {"ask": [{"from": "user", "value": "a"}], "system": "s"}]
        named = dict(dataset_prompt_column="ask")
        self.assertEqual(prompts_and_answers(rows[:1], system_prompt="z", **named),
                         [("z\n\nq", str)])
        plain = [{"prompt": "p"}, {"problem": "p"}]
        self.assertEqual(prompts_and_answers(plain), [("p", str), ("p", str)])
        self.chat()
        user = {"role": "user", "content": "q"}
        system = {"role": "system", "content": "s"}
        self.assertEqual(prompts_and_answers(rows, **named), [
            ([user], list), ([system, {"role": "user", "content": "a"}], list)])
        self.assertEqual(prompts_and_answers([{"prompt": "q"}], system_prompt="s"),
                         [([system, user], list)])

    def test_questions_are_plain_text_without_a_chat_template(self):
        self.assertEqual(self.prompts_of([{"prompt": "x="}, {"problem": "p"},
                                          {"question": "q", "system": "s"}]),
                         ["x=", "p", "s\n\nq"])

    def test_messages_without_a_chat_template_are_rejected(self):
        data = write_rows(self.dir / "chat.jsonl",
                          [{"prompt": [{"role": "user", "content": "a"}]}])
        self.refused(2, "chat.jsonl:1: the prompt is a conversation, but the model has no chat "
                        "template", dataset_name=str(data))

    def test_a_python_reward_gets_every_column(self):
        rows = [{"prompt": f"p{n}", "tag": f"t{n}", "nested": {"of": [f"p{n}"]}} for n in range(6)]
        data = write_rows(self.dir / "columns.jsonl", rows)
        run = self.train(2, dataset_name=str(data), reward_funcs=[self.mine("knows")],
                         max_steps=2)
        self.assertEqual(run.column("reward"), [1, 1])

    def test_a_python_reward_of_conversations_gets_messages(self):
        self.chat()
        data = write_rows(self.dir / "chat.jsonl",
                          [{"prompt": [{"role": "user", "content": f"{n}"}]} for n in range(6)])
        run = self.train(2, dataset_name=str(data), reward_funcs=[self.mine("says")], max_steps=2)
        self.assertGreater(max(run.column("reward_std")), 0)

    def test_built_in_and_python_rewards_are_summed(self):
        run = self.train(3, reward_funcs=["tag_count", self.mine("vowels"), "digits"],
                         reward_weights=[1, 2, 0.5])
        for record in run.records():
            total = (record["rewards/tag_count/mean"] + 0.5 * record["rewards/digits/mean"] +
                     2 * record[f"rewards/{self.mine('vowels')}/mean"])
            self.assertAlmostEqual(record["reward"], total, 5)


class Recipes(GrpoTest):
    """Recipes from the guides of the replaced projects, with a small model and our rows."""

    SOURCES = trainer.ROOT / "tests" / "runtime" / "config" / "recipes"

    def test_the_recipe_of_the_readme_runs(self):
        """As it is, except for the paths, the port and the length of the run."""
        with vllm_server.Server(self.model) as server:
            run = self.train(2, recipe=self.SOURCES / "grpo_open_r1_readme.yaml",
                             model_name_or_path=str(self.model), dtype="fp32",
                             dataset_name=str(self.data), vllm_server_port=server.port,
                             max_completion_length=12, max_steps=2, logging_steps=1)
            self.assertEqual(len(server.bodies("/v1/completions")), 2)
            self.assertEqual(len(server.loaded), 2)
        self.assertIn("gradient_accumulation_steps is 4, the smallest number that makes whole "
                      "groups of 8 with 1 per device x 2 ranks", run.notes)
        self.assertIn("vllm_server_host: means vllm_mode: server", run.out)
        self.assertIn(f"on the server at {server.url}", run.notes)
        for name in ("accuracy", "format", "reasoning_steps", "cosine", "repetition_penalty",
                     "length"):
            self.assertEqual(len(run.column(f"rewards/{name}/mean")), 2)
        self.assertTrue(run.weights("adapter_model"))

    def test_the_recipes_of_the_source_pass_the_check(self):
        """Only the paths of model and data are replaced."""
        for name, *expected in (
                ("unsloth_grpo.yaml", r"gradient_checkpointing\W+offload", r"load_in_4bit\W+true"),
                ("grpo_open_r1_readme.yaml", r"gradient_checkpointing\W+true"),
                ("grpo_open_r1_config.yaml", r"optim\W+adamw_8bit")):
            with self.subTest(name):
                done = subprocess.run(
                    [trainer.BIN / "mgpu-train", "check", self.SOURCES / name, "--gpus", "2",
                     f"--set=model_name_or_path={self.model}", f"--set=dataset_name={self.data}"],
                    capture_output=True, text=True, timeout=trainer.LIMIT, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                for pattern in (r"use_vllm\W+[tT]rue", r"vllm_server_host\W+127.0.0.1",
                                r"vllm_server_port\W+8000", r"num_generations\W+8", *expected):
                    self.assertRegex(done.stdout, pattern)

    def test_the_recipe_of_the_readme_waits_for_its_server_and_says_how_to_start_it(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            run = self.refused(1, f"waiting for the server at http://127.0.0.1:{port} (",
                               f"no server answered at http://127.0.0.1:{port} within 1 s "
                               "(vllm_server_timeout)", f"start it with\n    "
                               "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve "
                               f"{self.model} --port {port} --enable-lora --max-lora-rank 16",
                               recipe=self.SOURCES / "grpo_open_r1_readme.yaml", nproc=1,
                               model_name_or_path=str(self.model), dataset_name=str(self.data),
                               vllm_server_port=port, vllm_server_timeout=1,
                               max_completion_length=12)

    def test_a_policy_in_four_bits_is_its_own_reference(self):
        run = self.train(2, load_in_4bit=True, use_peft=True, lora_r=16, lora_alpha=32, beta=0.1,
                         lora_dropout=0.0,  # otherwise training computes other log-probs than sampling
                         lora_target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
                         gradient_checkpointing="unsloth", learning_rate=1e-3)
        self.assertLess(run.column("kl")[0], 1e-9)  # rounding of batches of different shapes
        self.assertGreater(run.column("kl")[2], 1e-9)
        self.assertLess(max(run.column("sampling/sampling_logp_difference/max")), 1e-4)

    def test_a_frozen_copy_of_a_policy_in_four_bits_is_in_four_bits(self):
        """Otherwise it would differ from the policy before the first step."""
        adapter = self.train(1, load_in_4bit=True, use_peft=True, lora_r=4, max_steps=1,
                             learning_rate=1e-3).folder
        run = self.train(2, load_in_4bit=True, adapter_path=str(adapter), lora_dropout=0.0,
                         beta=0.1, learning_rate=1e-3)
        self.assertLess(run.column("kl")[0], 1e-9)
        self.assertGreater(run.column("kl")[2], 1e-9)

    def test_gspo_runs_with_the_guides_settings(self):
        """Roles select GPUs; beta is adapted towards target_kl."""
        run = self.train(2, recipe=self.recipe(
            task="gspo", num_generations=4, num_iterations=4, epsilon=0.2, beta=0.2,
            target_kl=0.01, entropy_coef=0.01, temperature=0.7, max_grad_norm=1.0, max_steps=8,
            policy_gpus=[0, 1], reference_gpu=2, reward_gpu=2))
        self.assertIn("policy_gpus, reference_gpu and reward_gpu select no GPU on this machine", run.notes)
        self.assertIn("reward_gpu has no effect: no reward is a model", run.notes)
        self.assertEqual(run.column("beta")[:3], [0.2, 0.1, 0.05])
        for name in ("policy_loss", "kl", "entropy", "entropy_coef"):
            self.assertEqual(len(run.column(name)), 8, name)
        self.assertEqual(sum("reward" in record for record in run.records()), 2)


    def test_rewards_outside_of_the_program_are_scored_at_the_same_time(self):
        first, second = self.mine("meets_second"), self.mine("meets_first")
        run = self.train(2, reward_funcs=[first, "letters", second], max_steps=2)
        self.assertEqual(run.column(f"rewards/{first}/mean"), run.column(f"rewards/{second}/mean"))
        self.assertEqual(len(run.column(f"rewards/{first}/mean")), 2)

    def test_several_processes_of_a_reward_give_the_result_of_one(self):
        one, four = (self.train(2, reward_funcs=[self.mine("vowels")], reward_concurrency=number)
                     for number in (1, 4))
        self.assert_same_course(four, one)
        self.assertEqual(four.column("reward"), one.column("reward"))


class Mistakes(GrpoTest):
    def test_a_reward_that_never_answers_ends_the_run(self):
        self.refused(1, "my_rewards.py:sleeps: it did not answer in time (reward_timeout)",
                     reward_funcs=[self.mine("sleeps")], reward_timeout=0.2)

    def test_a_reward_that_hangs_on_one_rank_ends_the_run_before_the_others_stop_waiting(self):
        self.refused(1, "first failure: rank 1", "my_rewards.py:sleeps_on_rank_1: no scores yet for "
                     "1 of its groups, and the other ranks do not wait any longer (ddp_timeout)",
                     reward_funcs=["letters", self.mine("sleeps_on_rank_1")],
                     global_batch_size=16, reward_timeout=1000, ddp_timeout=4)

    def test_a_reward_that_never_answers_can_be_ignored(self):
        run = self.train(2, reward_funcs=["letters", self.mine("sleeps")], reward_timeout=0.05,
                         reward_on_error="none", max_steps=1)
        self.assertIn("did not answer in time", run.err)
        self.assertEqual(run.column("reward"), run.column("rewards/letters/mean"))
        self.assertNotIn(f"rewards/{self.mine('sleeps')}/mean", run.records()[0])

    def test_a_reward_file_that_cannot_be_loaded_used_up_the_restarts(self):
        broken = self.dir / "broken.py"
        broken.write_text("def reward(completions, **_):\n    return [1\n")
        run = self.refused(2, "broken.py:reward: it failed: SyntaxError", options=("--max-restarts", "2"),
                           reward_funcs=[f"{broken}:reward"])
        self.assertNotIn("restarting", run.err)
        self.refused(2, "broken.py has no function rewards; it has reward", nproc=1,
                     reward_funcs=[self.loadable(broken)])

    def loadable(self, path):
        path.write_text("def reward(completions, **_):\n    return [1.0] * len(completions)\n")
        return f"{path}:rewards"

    def test_rewards_that_are_not_numbers_are_rejected(self):
        self.refused(1, "my_rewards.py:no_number: ", reward_funcs=[self.mine("no_number")])
        run = self.train(2, reward_funcs=[self.mine("no_number")], reward_on_error="none",
                         weight_decay=0.0)
        self.assertEqual(self.moved(run), 0)
        self.assertTrue(all(math.isfinite(loss) for loss in run.column("loss")))

    def test_prompts_longer_than_the_context_are_rejected_or_skipped(self):
        rows = prompt_rows(4) + [{"prompt": "word " * 300}]
        data = write_rows(self.dir / "long.jsonl", rows)
        run = self.refused(2, "long.jsonl:5: the prompt has ", dataset_name=str(data))
        self.assertIn(" but at most 248 fit", run.err)
        left = self.train(2, dataset_name=str(data), on_bad_row="skip", max_steps=1)
        self.assertIn("skipped ", left.notes)
        self.assertIn("long.jsonl: 4 prompts, 1 bad rows skipped", left.notes)
        self.refused(2, "prompts.jsonl:11: the prompt has 5 tokens, but at most 4 fit", max_prompt_length=4)

    def test_completions_that_leave_no_space_for_a_prompt_are_rejected(self):
        self.refused(2, "max_completion_length: 256 leaves no space for a prompt; the model "
                        "supports 256 tokens", max_completion_length=256)
        trainer.make_model(self.model, "mistral", sliding_window=100)
        self.refused(2, "max_completion_length: 100 leaves no space for a prompt; the model "
                        "supports 100 tokens", max_completion_length=100)

    def test_a_group_of_one_is_rejected(self):
        self.refused(2, "num_generations: need a number at least 2", num_generations=1)

    def test_accuracy_without_solutions_is_rejected(self):
        data = write_rows(self.dir / "unsolved.jsonl", [{"prompt": "1+1="}] * 8)
        self.refused(2, "unsolved.jsonl:1: the row has no \"solution\" column, which a reward function "
                        "needs",
                     reward_funcs=["accuracy"], dataset_name=str(data))

    def test_unusable_datasets_are_rejected(self):
        empty = write_rows(self.dir / "empty.jsonl", [])
        self.refused(2, "empty.jsonl contains no prompts", dataset_name=str(empty))
        other = write_rows(self.dir / "other.jsonl", [{"text": "abc"}])
        self.refused(2, "other.jsonl:1: the row has no \"prompt\"", dataset_name=str(other))
        few = write_rows(self.dir / "few.jsonl", prompt_rows(2))
        self.refused(2, "there are 2 prompts to train on, but a generation needs 3",
                     dataset_name=str(few))

    def refused_once(self, line, **keys):
        """An error in the recipe, reported once, by rank 0."""
        run = self.refused(2, line, **keys)
        self.assertEqual(self.error_lines(run), 1, run.err)
        self.assertIn("first failure: rank 0", run.err)

    def test_invalid_reward_names_and_weights_are_rejected(self):
        self.refused_once("unknown reward acuracy (did you mean accuracy?)",
                          reward_funcs=["acuracy"])
        self.refused_once("reward_weights: 3 weights for 2 reward_funcs", reward_weights=[1, 2, 3])
        self.refused_once("reward_funcs: name at least one reward", reward_funcs=[])

    def test_invalid_sampling_settings_are_rejected(self):
        self.refused_once("temperature: must be above 0", temperature=0)
        self.refused_once("generation_kwargs: num_beams is not supported",
                          generation_kwargs={"num_beams": 2})

    def test_a_stop_text_with_a_partial_character_is_rejected(self):
        """The first byte of an umlaut, and a stray byte after a whole character."""
        for stop, line in ((b"\xc3", "byte 1 of 1 (0xc3)"), (b"\xc3\xa4\xa4", "byte 3 of 3 (0xa4)")):
            recipe = self.recipe()
            recipe.write_bytes(recipe.read_bytes() + b'generation_kwargs: {stop: ["' + stop +
                               b'"]}\n')
            self.refused_once(f"generation_kwargs: stop: {line} is not the start of a valid UTF-8 character",
                              recipe=recipe)
        run = self.train(1, generation_kwargs={"stop": "\u00e4"}, max_steps=1)
        self.assertEqual(len(run.records()), 1)

    def test_an_error_on_one_rank_ends_all_ranks(self):
        """Each rank has its own recipe; that of rank 1 has an error."""
        for rank, keys in enumerate(({}, {"reward_funcs": ["acuracy"]})):
            self.recipe(**keys).rename(self.dir / f"recipe-{rank}.yaml")
        begin = time.monotonic()
        job = self.start("--nproc", 2, "--", "/bin/sh", "-c",
                         f"exec {trainer.BIN}/mgpu-train {self.dir}/recipe-$RANK.yaml "
                         f"--set=output_dir={self.dir}/out", program=str(trainer.BIN / "mgpu-run"),
                         env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        job.folder = self.dir / "out"
        run = self.end(job)
        self.assertEqual(run.status, 2, run.err)
        self.assertIn("mgpu-train: unknown reward acuracy", run.err)
        self.assertIn("first failure: rank 1", run.err)
        self.assertLess(time.monotonic() - begin, 20 * trainer.SLOWER)

    def test_a_batch_that_is_not_a_multiple_of_the_group_is_rejected(self):
        self.refused(2, "global_batch_size 20 is not a multiple of num_generations 8; possible ",
                     global_batch_size=20)

    def test_unsupported_keys_are_rejected(self):
        for keys in (dict(replay_buffer_size=8), dict(vllm_structured_outputs_regex="a+"),
                     dict(reward_type="sasrec", reward_funcs=None)):
            with self.subTest(**keys):
                self.refused(2, f"{next(iter(keys))}: ", **keys)


if __name__ == "__main__":
    unittest.main()
