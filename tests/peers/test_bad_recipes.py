"""Errors of users: one clear line, the right exit status, quickly, and no partial output."""

import json
import os
import signal
import subprocess
import time
import unittest

import trainer
from trainer import children, comm, make_rows, until, write_rows

SOON = 15  # seconds; other ranks must not wait for a rank that failed


class BadRecipes(trainer.TrainerTest):
    def refused(self, status, *lines, nproc=2, recipe=None, **keys):
        """Runs a job that must fail quickly with each line on stderr; returns the run."""
        job = self.start_training(nproc, recipe=recipe, **keys)
        begin = time.monotonic()
        run = self.end(job)
        took = time.monotonic() - begin
        self.assertEqual(run.status, status, run.out + run.err)
        for line in lines:
            self.assertIn(line, run.err)
        self.assertLess(took, SOON * trainer.SLOWER, run.err)
        self.assertEqual(list(run.folder.glob("checkpoint-*")), [])
        self.assertFalse((run.folder / "model.safetensors").exists())
        return run

    def rows_with(self, bad):
        """A file whose fifth line is bad."""
        path = write_rows(self.dir / "bad.jsonl", make_rows(8))
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:4]) + bad + "\n" + "".join(lines[4:]))
        return str(path)

    def test_an_unknown_key_is_rejected(self):
        recipe = self.recipe(learning_rte=1e-4)
        lines = recipe.read_text().splitlines()
        at = 1 + next(i for i, line in enumerate(lines) if "learning_rte" in line)
        self.refused(2, f"{recipe}:{at}: unknown key learning_rte; did you mean learning_rate?",
                     recipe=recipe)

    def test_an_unknown_key_on_the_command_line_is_rejected(self):
        self.refused(2, "unknown key lora_rnak; did you mean lora_rank?", lora_rnak=4)

    def test_several_mistakes_are_reported_at_once(self):
        self.refused(2, "learning_rate: need a number, not abc", "lora_r: need a number at least 1",
                     learning_rate="abc", lora_r=0)

    def test_a_missing_dataset_is_reported(self):
        self.refused(2, "nowhere.jsonl: No such file", dataset_name="nowhere.jsonl")

    def test_an_empty_dataset_is_reported(self):
        self.refused(2, "empty.jsonl has no rows",
                     dataset_name=str(write_rows(self.dir / "empty.jsonl", [])))

    def test_a_model_is_not_overwritten_by_the_one_that_is_trained_from_it(self):
        before = (self.model / "model.safetensors").read_bytes()
        link = self.dir / "link"
        link.symlink_to(self.model)
        for folder in (self.model, link, f"{self.dir}/other/../model"):
            (self.dir / "other").mkdir(exist_ok=True)
            recipe = self.recipe(output_dir=str(folder))
            done = subprocess.run([trainer.BIN / "mgpu-train", recipe], capture_output=True,
                                  text=True, timeout=trainer.LIMIT,
                                  env=trainer.environment(CUDA_VISIBLE_DEVICES=""))
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(f"output_dir: {folder} is the folder of model_name_or_path", done.stderr)
            self.assertIn("choose another output_dir", done.stderr)
        self.assertEqual((self.model / "model.safetensors").read_bytes(), before)
        self.train(out="model", max_steps=1, save_strategy="no", save_final_model=False)
        self.train(out="model", max_steps=1, lora_r=4)

    def test_bad_rows_are_reported(self):
        for bad, what in (('{"input_ids": [1, 2', "invalid JSON"), ("[1, 2]", "object"),
                          ('{"input_ids": [1, 999]}', "contains 999"),
                          ('{"input_ids": [1, -7]}', "contains -7"),
                          ('{"input_ids": [1, 2], "labels": [1]}', "labels")):
            with self.subTest(bad):
                run = self.refused(2, "bad.jsonl:5: ", dataset_name=self.rows_with(bad))
                message = next(line for line in run.err.splitlines() if "bad.jsonl:5: " in line)
                self.assertIn(what, message)

    def test_bad_rows_can_be_skipped_with_a_note(self):
        run = self.train(2, dataset_name=self.rows_with('{"input_ids": [1, 2'), on_bad_row="skip",
                         max_steps=1, global_batch_size=8)
        self.assertIn("bad.jsonl: 1 of 9 rows skipped as bad; the first: ", run.notes)
        self.assertIn("bad.jsonl:5: ", run.notes)
        self.assertEqual(run.column("epoch"), [1])

    def test_missing_folders_are_errors_of_the_recipe_and_cause_no_restarts(self):
        run = self.refused(2, "mgpu-train: model_name_or_path: no-such-model is neither a local folder "
                           "nor in the cache", model_name_or_path="no-such-model",
                           options=("--max-restarts", "3"))
        self.assertNotIn("restarting", run.err)
        run = self.refused(2, "mgpu-train: tokenizer_path: there is no folder ./nowhere with a "
                           "tokenizer", "mgpu-train: adapter_path: ./gone is neither a folder nor a "
                           "Hub id", tokenizer_path="./nowhere", adapter_path="./gone", use_peft=True)
        self.assertNotIn("AutoTokenizer", run.err)

    def test_layers_that_the_model_does_not_have_are_an_error_of_the_recipe(self):
        run = self.refused(2, "mgpu-train: lora_target_modules: q_prj is not supported", use_peft=True,
                           lora_target_modules=["q_prj"], options=("--max-restarts", "3"))
        self.assertNotIn("restarting", run.err)
        self.refused(2, "mgpu-train: lora_modules_to_save: norm cannot be trained", use_peft=True,
                     lora_modules_to_save=["norm"])

    def test_truncated_weights_are_reported(self):
        weights = self.model / "model.safetensors"
        whole = weights.read_bytes()
        for length in (0, 7, 100, len(whole) // 2, len(whole) - 1):
            with self.subTest(length=length):
                weights.write_bytes(whole[:length])
                self.refused(2, f"{weights}: ")

    def test_input_that_is_wrong_used_up_the_restarts(self):
        """Rank 0 alone looks for the checkpoint, while the others wait for it."""
        run = self.refused(2, "mgpu-train: there is no checkpoint maybe", "first failure: rank 0",
                           resume_from_checkpoint="maybe", options=("--max-restarts", "3"))
        self.assertNotIn("restarting", run.err)
        errors = [line for line in run.err.splitlines() if line.startswith("mgpu-train: ")]
        self.assertEqual(len(errors), 1, run.err)
        run = self.refused(2, "val_set_size 100 takes all 64 examples", val_set_size=100,
                           options=("--max-restarts", "3"))
        self.assertNotIn("restarting", run.err)

    def test_files_that_a_model_lacks_are_reported(self):
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            with self.subTest(name):
                (self.model / name).rename(self.dir / "aside")
                self.refused(2, name, nproc=1)
                (self.dir / "aside").rename(self.model / name)

    def test_weights_that_are_integers_trained_with_a_huge_loss(self):
        weights = self.model / "model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole.replace(b'"F32"', b'"I32"'))
        self.refused(2, f"{weights}: tensor '", "has dtype I32, but F32, F16, BF16 or F64 is required",
                     nproc=1)

    def test_an_end_token_beyond_the_vocabulary_is_left_out(self):
        for name in ("config.json", "generation_config.json"):
            file = self.model / name
            file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": [2, 320]}))
        self.train(1, max_steps=1)

    def test_a_tokenizer_without_tokens_is_rejected(self):
        (self.model / "tokenizer.json").write_text('{"model": {}}')
        self.refused(2, f'{self.model}: tokenizer.json: it has no tokens: "vocab" of "model" is missing',
                     nproc=1)

    def test_an_empty_home_was_the_root_of_the_file_system(self):
        variables = {"HOME": "", "XDG_CACHE_HOME": ""}
        run = self.train(1, max_steps=1, dataset_prepared_path="", variables=variables)
        self.assertTrue((run.folder / ".tokens").is_dir())

    def test_weights_of_another_shape_are_reported(self):
        config = self.model / "config.json"
        config.write_text(config.read_text().replace('"intermediate_size": 96',
                                                     '"intermediate_size": 128'))
        self.refused(2, "mlp.", "96", "128")

    def test_a_model_with_fewer_rows_than_the_tokenizer_is_rejected(self):
        """Otherwise a token beyond the embeddings is an invalid read, or an error on the GPU."""
        trainer.make_model(self.model, vocab_size=104)
        texts = write_rows(self.dir / "texts.jsonl", [{"text": "The answer is \\boxed{5}"}] * 8)
        run = self.refused(2, "104", dataset_name=str(texts))
        self.assertNotIn("index out of range in self", run.err)

    def test_a_row_beyond_the_sliding_window_is_rejected(self):
        trainer.make_model(self.model, "mistral", sliding_window=63)
        rows = make_rows(8)
        data = write_rows(self.dir / "long.jsonl", rows)
        self.train(1, dataset_name=str(data), max_length=64, packing=True, max_steps=1)
        rows[4]["input_ids"] = rows[4]["labels"] = list(range(64))
        write_rows(data, rows)
        self.refused(2, "long.jsonl:5: the row has 64 tokens, which are more than the model's "
                        "sliding_window of 63, and sliding-window attention is not supported; set "
                        "max_length to at most 63 to cut it", dataset_name=str(data), max_length=64)
        self.refused(2, "max_length: 64 tokens are more than the model's sliding_window of 63", "with "
                        "streaming, set max_length to at most 63", dataset_name=str(data),
                     max_length=64, streaming=True, max_steps=1)

    def test_ids_beyond_the_rows_of_the_model_are_rejected(self):
        """The model has 320 rows and its tokenizer 274 tokens: the model's rows are the limit."""
        rows = make_rows(8)
        rows[3]["input_ids"][2:4] = rows[3]["labels"][2:4] = [300, 319]
        self.train(2, dataset_name=str(write_rows(self.dir / "high.jsonl", rows)), max_steps=1)
        rows[3]["input_ids"][2] = 320
        self.refused(2, "contains 320; ids must be from 0 to 319",
                     dataset_name=str(write_rows(self.dir / "high.jsonl", rows)))

    def test_skipped_and_truncated_rows_are_counted(self):
        long_prompt = make_rows(1, shortest=30, longest=30)[0]
        long_prompt["labels"] = [-100] * 20 + long_prompt["input_ids"][20:]
        rows = [*make_rows(14, shortest=8, longest=12), *make_rows(2, shortest=20, longest=20),
                long_prompt]
        run = self.train(2, dataset_name=str(write_rows(self.dir / "some.jsonl", rows)),
                         max_length=16, max_steps=1)
        for line in ("some.jsonl: 2 of 17 rows cut to max_length 16",
                     "some.jsonl: 1 of 17 rows dropped: no target token within max_length 16"):
            self.assertIn(line, run.notes)
            self.assertEqual(run.out.count(line), 1)
        done = subprocess.run(
            [trainer.BIN / "mgpu-train", "tokenize", self.recipe(), "--set=max_length=16",
             f"--set=dataset_name={self.dir}/some.jsonl", f"--set=output_dir={self.dir}/out"],
            capture_output=True, text=True, timeout=trainer.LIMIT,
            env=trainer.environment(CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("some.jsonl: 2 of 17 rows cut to max_length 16\n", done.stdout)

    def test_grpo_without_rewards_is_rejected(self):
        self.refused(2, "reward_funcs: name at least one reward", task="grpo")

    def test_batch_sizes_that_do_not_divide_are_rejected(self):
        """Before any file is opened, reported once by rank 0."""
        message = "global_batch_size 10 is not a multiple of 4 per device x 2 ranks = 8"
        run = self.refused(2, message, "possible per_device_train_batch_size: 1, 5",
                           "possible global_batch_size: 8, 16", "first failure: rank 0",
                           global_batch_size=10, model_name_or_path="no-such-model")
        begins = [line for line in run.err.splitlines() if line.startswith("mgpu-train: ")]
        self.assertEqual(len(begins), 1, run.err)
        self.assertFalse(run.folder.exists())
        self.refused(2, "global_batch_size 8 is not 4 per device x 2 ranks x 3 accumulation = 24",
                     gradient_accumulation_steps=3)
        self.refused(2, "one number in gpu_weights per rank: 2 ranks, 3 weights",
                     batch_sharding="weighted", gpu_weights=[1, 2, 1])

    def test_check_uses_the_number_of_ranks(self):
        recipe = self.recipe(global_batch_size=12, per_device_train_batch_size=4)
        self.assertIn("12 sequences per step = 4 per device x 3 ranks x 1 accumulation",
                      self.check(0, recipe, "--gpus", "3"))
        self.assertIn("12 is not a multiple of 4 per device x 2 ranks = 8",
                      self.check(2, recipe, "--nproc", "2"))
        self.assertIn("4 per device x 3 ranks", self.check(0, recipe, WORLD_SIZE="3"))
        self.assertIn("4 per device x 2 ranks = 8", self.check(2, recipe, WORLD_SIZE="2"))
        self.assertIn("4 per device x 3 ranks",
                      self.check(0, recipe, "--gpus", "3", WORLD_SIZE="2"))
        self.assertIn("WORLD_SIZE=many: must be a whole", self.check(2, recipe, WORLD_SIZE="many"))
        job = self.run_job("--nproc", 2, recipe, "--check", program=str(trainer.BIN / "mgpu-run"))
        self.assertEqual(job.returncode, 2, job.err)
        self.assertIn("12 is not a multiple of 4 per device x 2 ranks = 8", job.err)
        job = self.run_job("--nproc", 3, recipe, "--check", program=str(trainer.BIN / "mgpu-run"))
        self.assertEqual(job.returncode, 0, job.err)
        self.assertEqual(job.out.count("x 3 ranks x"), 1)
        recipe = self.recipe(global_batch_size=16, per_device_train_batch_size=4,
                             gradient_accumulation_steps=2)
        self.assertIn("16 sequences per step = 4 per device x 2 ranks x 2 accumulation",
                      self.check(0, recipe))

    def test_check_rejects_what_a_run_rejects(self):
        grpo = {"task": "grpo", "reward_funcs": ["format"]}
        for line, keys in (
                ("grad_dtype: must be fp32 beside fp16", {"dtype": "fp16", "grad_dtype": "bf16"}),
                ("unknown reward formt (did you mean format?)", {**grpo, "reward_funcs": ["formt"]}),
                ("reward_weights: 2 weights for 1 reward_funcs", {**grpo, "reward_weights": [1, 2]}),
                ("temperature: must be above 0", {**grpo, "temperature": 0}),
                ("generation_kwargs: num_beams is not supported without a server",
                 {**grpo, "generation_kwargs": {"num_beams": 4}})):
            with self.subTest(line):
                recipe = self.recipe(**keys)
                self.assertIn(line, self.check(2, recipe))
                self.refused(2, line, nproc=1, recipe=recipe)

    def test_check_reports_all_errors(self):
        said = self.check(2, self.recipe(task="grpo", reward_funcs=["formt"], temperature=0,
                                         dataset_name="nowhere.jsonl"))
        for part in ("nowhere.jsonl: No such file", "formt", "temperature: must be above 0"):
            self.assertIn(part, said)

    def check(self, status, recipe, *options, **env):
        """Runs mgpu-train without the launcher; returns its output."""
        done = subprocess.run([trainer.BIN / "mgpu-train", recipe, "--check", *options],
                              capture_output=True, text=True, timeout=trainer.LIMIT,
                              env=trainer.environment(CUDA_VISIBLE_DEVICES="", **env))
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_an_incomplete_rank_environment_is_reported(self):
        for there, missing in (({"WORLD_SIZE": "4"}, "RANK is not set although WORLD_SIZE=4 is"),
                               ({"RANK": "0"}, "LOCAL_RANK is not set although RANK=0 is"),
                               ({"LOCAL_RANK": "0"}, "RANK is not set although LOCAL_RANK=0 is")):
            with self.subTest(there):
                done = subprocess.run(
                    [trainer.BIN / "mgpu-train", self.recipe(), f"--set=output_dir={self.dir}/o"],
                    capture_output=True, text=True, timeout=trainer.LIMIT,
                    env=trainer.environment(CUDA_VISIBLE_DEVICES="", **there))
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(missing, done.stderr)
                self.assertFalse((self.dir / "o").exists())

    def test_an_unusable_output_folder_is_reported(self):
        file = self.write("file.txt", "")
        for folder, why in ((f"{file}/out", "Not a directory; a file is in its way"),
                            (file, "Not a directory; a file is in its way"),
                            ("/proc/out", "No such file or directory")):
            with self.subTest(folder):
                run = self.end(self.start_training(2, recipe=self.recipe(),
                                                   output_dir=str(folder)))
                self.assertEqual(run.status, 1, run.err)
                self.assertIn(f"cannot create the folder {folder}: {why}", run.err)
                self.assertIn("choose another output_dir", run.err)
                self.assertNotIn("filesystem error", run.err)

    def test_unsupported_keys_are_rejected(self):
        self.refused(2, "median requires zero_stage 0 or 1, not 2",
                     gradient_aggregation="median", zero_stage=2)
        self.refused(2, "load_in_8bit: contradicts load_in_4bit", load_in_4bit=True,
                     load_in_8bit=True)
        self.refused(2, "4-bit weights cannot be trained", load_in_4bit=True,
                     use_peft=False)


class LostRanks(trainer.TrainerTest):
    def training_ranks(self, job):
        return until(lambda: len(found := [pid for pid in children(job.pid)
                                           if comm(pid) == "mgpu-train"]) == 3 and found,
                     trainer.LIMIT, "three ranks")

    def assert_ends_soon(self, job, pids, status):
        os.kill(pids[1], signal.SIGKILL)
        begin = time.monotonic()
        run = self.end(job)
        self.assertEqual(run.status, status, run.err)
        self.assertLess(time.monotonic() - begin, SOON * trainer.SLOWER, run.err)
        self.assert_all_gone(pids)

    def test_a_killed_rank_ends_the_job(self):
        job = self.start_training(3, max_steps=100000, global_batch_size=12)
        metrics = job.folder / "metrics.jsonl"
        until(lambda: metrics.exists() and metrics.read_bytes().count(b'"train"') >= 5,
              trainer.LIMIT, "five steps")
        self.assert_ends_soon(job, self.training_ranks(job), 128 + signal.SIGKILL)

    def test_a_hanging_rank_ends_the_job(self):
        """A rank that is stopped for longer than ddp_timeout, as if its GPU hangs."""
        job = self.start_training(2, max_steps=100000, ddp_timeout=3, options=("--grace", 2))
        metrics = job.folder / "metrics.jsonl"
        until(lambda: metrics.exists() and metrics.read_bytes().count(b'"train"') >= 5,
              trainer.LIMIT, "five steps")
        ranks = [pid for pid in children(job.pid) if comm(pid) == "mgpu-train"]
        self.assertEqual(len(ranks), 2)
        os.kill(max(ranks), signal.SIGSTOP)  # the second rank: they start in order
        begin = time.monotonic()
        run = self.end(job)
        self.assertEqual(run.status, 1, run.err)
        self.assertRegex(run.err, r"mgpu-train: rank 0: [a-z][a-z -]+ did not finish within 3 s; "
                                  "another rank is stuck, too slow, or has exited")
        self.assertIn("first failure: rank 1", run.err)
        self.assertRegex(run.err, r"cause   hang: rank 1 was suspended by a signal or a debugger; rank "
                                  r"0 timed out waiting for it: .* did not finish within 3 s")
        self.assertLess(time.monotonic() - begin, SOON * trainer.SLOWER, run.err)
        self.assert_all_gone(ranks)

    def test_sigterm_before_the_first_step_ends_the_job(self):
        """While rows are read there is nothing to save, so a rank must not wait for a step."""
        rows = self.dir / "many-rows.jsonl"
        row = json.dumps({"text": "12+34=46 " * 400}) + "\n"
        rows.write_text(row * 60_000)  # more than 200 MB
        job = self.start_training(2, dataset_name=str(rows))
        self.addCleanup(lambda: job.poll() is None and job.kill())
        until(lambda: list((self.dir / "tokens").rglob("*")), trainer.LIMIT, "the first tokens")
        job.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        run = self.end(job)
        self.assertEqual(run.status, 128 + signal.SIGTERM, run.err)
        self.assertLess(time.monotonic() - begin, SOON * trainer.SLOWER, run.err)


if __name__ == "__main__":
    unittest.main()
