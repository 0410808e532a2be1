"""Resuming: after the end, after SIGKILL, with damaged checkpoints, after SIGTERM."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import time
import unittest

import trainer
from trainer import children, load_tensors, until

RTOL = 1e-4
ATOL = 2e-5


def flip_byte(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


class Resume(trainer.TrainerTest):
    """64 rows in steps of 8: step 12 is in the middle of the second epoch."""

    KEYS = dict(lr_scheduler_type="constant", shuffle_dataset=True, warmup_steps=2)

    def train_to(self, step, nproc=2, **keys):
        return self.train(nproc, max_steps=step, **{**self.KEYS, **keys})

    def copy(self, run, name):
        shutil.copytree(run.folder, self.dir / name)
        return name

    def assert_went_on(self, run, step):
        self.assertIn(f"checkpoint-{step} at step {step}", run.notes)

    def assert_end_of(self, run, whole, atol=0.0):
        self.assert_same_weights(run.weights(), whole.weights(), atol)

    def test_a_resumed_run_is_bitwise_equal_to_an_uninterrupted_one(self):
        for keys in (dict(), dict(zero_stage=2), dict(zero_stage=3, packing=True),
                     dict(optim_dtype="bf16", group_by_length=True)):
            with self.subTest(**keys):
                whole = self.train_to(20, **keys)
                part = self.train_to(12, **keys)
                run = self.train_to(20, out=part.folder.name, **keys)
                self.assert_went_on(run, 12)
                self.assertEqual(run.column("step"), list(range(1, 21)))
                self.assertEqual(run.column("loss"), whole.column("loss"))
                self.assertEqual(run.column("epoch"), whole.column("epoch"))
                self.assert_end_of(run, whole)

    def test_resumed_adapters_are_bitwise_equal_to_an_uninterrupted_run(self):
        lora = dict(use_peft=True, lora_r=4, lora_dropout=0.1, zero_stage=1)
        whole = self.train_to(20, **lora)
        part = self.train_to(12, **lora)
        run = self.train_to(20, out=part.folder.name, **lora)
        self.assert_went_on(run, 12)
        self.assertEqual(run.column("loss"), whole.column("loss"))
        self.assert_same_weights(run.weights("adapter_model"), whole.weights("adapter_model"))

    def test_other_ranks_and_stages_resume(self):
        whole = self.train_to(20)
        part = self.train_to(12, zero_stage=1)
        for nproc, stage in ((1, 0), (4, 3), (2, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                run = self.train_to(20, nproc, out=self.copy(part, f"{nproc}-{stage}"),
                                    per_device_train_batch_size=2, zero_stage=stage)
                self.assert_went_on(run, 12)
                self.assert_same_course(run, whole, RTOL, ATOL)

    def test_three_ranks_resume_from_four_and_two_from_three(self):
        keys = dict(global_batch_size=12, per_device_train_batch_size=1)
        whole = self.train_to(12, 4, zero_stage=3, **keys)
        out = self.train_to(5, 4, zero_stage=3, **keys).folder.name
        self.train_to(8, 3, zero_stage=2, out=out, **keys)
        run = self.train_to(12, 2, zero_stage=3, out=out, **keys)
        self.assert_went_on(run, 5)
        self.assert_went_on(run, 8)
        self.assert_same_course(run, whole, RTOL, ATOL)

    def test_a_killed_job_resumes_bitwise_equal(self):
        keys = dict(save_steps=40, zero_stage=1, lr_scheduler_type="cosine")
        whole = self.train_to(240, **keys)
        job = self.start_training(2, out="killed", max_steps=240, **{**self.KEYS, **keys})
        first = self.dir / "killed" / "checkpoint-40" / "manifest.json"
        until(first.exists, trainer.LIMIT, "a checkpoint")
        self.kill_all(job)
        left = sorted(path.name for path in (self.dir / "killed").glob("checkpoint-*"))
        self.assertIn("checkpoint-40", left)
        self.assertNotIn("checkpoint-240", left)
        run = self.train_to(240, out="killed", **keys)
        self.assertIn("resuming from", run.notes)
        self.assertEqual(list((self.dir / "killed").glob(".checkpoint-*")), [])
        self.assertEqual(run.column("step"), list(range(1, 241)))
        self.assertEqual(run.column("loss"), whole.column("loss"))
        self.assert_end_of(run, whole)

    def test_damaged_checkpoints_are_skipped_with_a_note(self):
        whole = self.train_to(12, save_steps=4)

        def cut(folder):
            path = next((folder / "training_state").iterdir())
            path.write_bytes(path.read_bytes()[:-1])

        damages = {"flipped": lambda folder: flip_byte(folder / "model.safetensors", -9),
                   "state": lambda folder: flip_byte(folder / "trainer_state.json", 30),
                   "cut": cut,
                   "missing": lambda folder: (folder / "config.json").unlink(),
                   "torn": lambda folder: (folder / "manifest.json").unlink(),
                   "empty": lambda folder: (folder / "manifest.json").write_text("")}
        for name, damage in damages.items():
            with self.subTest(name):
                damage(self.dir / self.copy(whole, name) / "checkpoint-12")
                run = self.train_to(12, out=name, save_steps=4)
                self.assertRegex(run.err, r"checkpoint-12 is skipped: \S+")
                self.assert_went_on(run, 8)
                self.assert_end_of(run, whole)

    def test_a_checkpoint_that_rank_0_gives_up_is_not_a_missing_folder_of_another_rank(self):
        """Rank 0 cannot write its file and removes the folder, but its message, and so its end,
        waits for a full pipe. The other rank cannot write there any more and must not fail first."""
        words = self.dir / "words"
        os.mkfifo(words)
        pipe = os.open(words, os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, pipe)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(pipe, bytes(4096))
        program = self.write("mgpu-train", '#!/bin/sh\n[ "$RANK" = 1 ] || '
                             f"{{ ulimit -f 100; exec 2>'{words}'; }}\n"
                             f"exec '{trainer.BIN / 'mgpu-train'}' \"$@\"\n", 0o755)
        report = self.dir / "report.json"
        recipe = self.recipe(max_steps=2, save_steps=1, output_dir=str(self.dir / "out"))
        job = self.start("--nproc", 2, "--report", report, recipe,
                         program=str(trainer.BIN / "mgpu-run"),
                         env={"CUDA_VISIBLE_DEVICES": "", "MGPU_TRAIN": program})

        def writing(pid):
            return pathlib.Path(f"/proc/{pid}/syscall").read_text().startswith("1 0x2 ")
        until(lambda: any(map(writing, children(job.pid))), trainer.LIMIT, "rank 0's last words")
        time.sleep(1)  # that rank 1 does not fail needs time
        while True:
            with contextlib.suppress(BlockingIOError):
                os.read(pipe, 1 << 16)
            if job.poll() is not None:
                break
            time.sleep(0.01)
        self.assertEqual(job.returncode, 1)
        attempt = json.loads(report.read_text())["attempts"][0]
        self.assertEqual(attempt["first_failure"]["rank"], 0, attempt["cause"])

    def test_resume_from_checkpoint_accepts_a_path_or_no(self):
        whole = self.train_to(12, save_steps=4)
        from_four = self.train_to(12, save_steps=4,
                                  resume_from_checkpoint=str(whole.folder / "checkpoint-4"))
        self.assert_went_on(from_four, 4)
        self.assert_end_of(from_four, whole)
        restarted = self.train_to(12, save_steps=4, out=self.copy(whole, "restarted"),
                                  resume_from_checkpoint="no")
        self.assertNotIn("going on", restarted.notes)
        self.assert_end_of(restarted, whole)
        flip_byte(whole.folder / "checkpoint-4" / "model.safetensors", -9)
        refused = self.end(self.start_training(
            2, max_steps=12, resume_from_checkpoint=str(whole.folder / "checkpoint-4")))
        self.assertEqual(refused.status, 1)
        self.assertIn("model.safetensors", refused.err)

    def test_a_finished_run_does_nothing_more(self):
        whole = self.train_to(12)
        run = self.train_to(12, out=self.copy(whole, "again"))
        self.assertEqual(run.column("step"), list(range(1, 13)))
        self.assert_end_of(run, whole)

    def test_a_finished_run_that_is_started_again_keeps_its_results(self):
        keys = dict(eval_dataset=str(self.data), eval_steps=6)
        whole = self.train_to(12, **keys)
        files = ("train_results.json", "all_results.json")
        results = [(whole.folder / name).read_text() for name in files]
        self.assertIsNotNone(json.loads(results[0])["train_loss"])
        run = self.train_to(12, out=whole.folder.name, **keys)
        self.assertEqual([(run.folder / name).read_text() for name in files], results)
        self.assertNotIn("train metrics", run.out)
        self.assertIn("nothing to train: all steps are done", run.notes)
        self.assertEqual(len(run.records("summary")), 1)
        status = json.loads((run.folder / "training_status.json").read_text())
        self.assertEqual((status["state"], status["step"]), ("complete", 12))

    def test_a_run_without_training_state_starts_again(self):
        """A checkpoint exists, but it cannot be resumed."""
        keys = dict(save_only_model=True, save_steps=4)
        first = self.train_to(12, **keys)
        again = self.train_to(12, out=first.folder.name, **keys)
        self.assertRegex(again.err, "checkpoint-12 is skipped: it has no training state")
        self.assertNotIn("resuming from", again.notes)
        self.assertEqual(again.column("step"), list(range(1, 13)))
        self.assertFalse((again.folder / "checkpoint-12" / "training_state").exists())
        with_state = self.train_to(8, out=first.folder.name, resume_from_checkpoint="no")
        self.assert_went_on(self.train_to(12, out=with_state.folder.name), 8)

    def test_a_shorter_run_in_the_folder_of_an_older_one_keeps_its_checkpoints(self):
        older = self.train_to(12)
        run = self.train_to(6, out=older.folder.name, save_steps=3, save_total_limit=1,
                            resume_from_checkpoint="no")
        self.assertTrue((run.folder / "checkpoint-6" / "manifest.json").exists())
        self.assert_same_weights(run.weights(), load_tensors(run.folder / "checkpoint-6"))

    def test_changing_the_final_model_does_not_damage_the_checkpoint(self):
        run = self.train_to(4)
        for path in (run.folder / "checkpoint-4").iterdir():
            if path.is_file() and path.name not in ("manifest.json", "trainer_state.json"):
                self.assertEqual(path.read_bytes(), (run.folder / path.name).read_bytes())
                self.assertFalse(path.samefile(run.folder / path.name), path.name)
        self.assertFalse((run.folder / "trainer_state.json").exists())
        with open(run.folder / "model.safetensors", "r+b") as file:
            file.truncate(7)
        self.assert_went_on(self.train_to(5, out=run.folder.name), 4)

    def test_without_checkpoints_the_final_model_is_saved(self):
        for extra, stem in (({}, "model"), (dict(zero_stage=3), "model"),
                            (dict(use_peft=True, lora_r=4), "adapter_model")):
            with self.subTest(**extra):
                saved = self.train_to(6, **extra)
                run = self.train_to(6, save_strategy="no", **extra)
                self.assertEqual(list(run.folder.glob("*checkpoint-*")), [])
                self.assert_same_weights(run.weights(stem), saved.weights(stem))
                names = {path.name for path in (saved.folder / "checkpoint-6").iterdir()}
                names -= {"training_state", "manifest.json", "trainer_state.json"}
                self.assertLessEqual(names, {path.name for path in run.folder.iterdir()})
                self.assertFalse((run.folder / "training_state").exists())
        bare = self.train_to(6, save_strategy="no", save_final_model=False)
        self.assertEqual(bare.weights(), {})

    def test_an_adapter_replaces_the_model_of_an_earlier_run(self):
        """Both once stayed in the folder, and programs loaded the older one."""
        whole = self.train_to(2)
        for name in ("added_tokens.json", "model-00001-of-00002.safetensors",
                     "model.safetensors.index.json"):  # a model in shards, and another tokenizer
            (whole.folder / name).write_text("{}")
        lora = dict(use_peft=True, lora_r=4, resume_from_checkpoint="no")
        for strategy in ("steps", "no"):
            with self.subTest(save_strategy=strategy):
                run = self.train_to(3, out=whole.folder.name, save_strategy=strategy, **lora)
                self.assertIn("contains a whole model; this run's adapter will replace it",
                              run.notes)
                self.assertEqual(sorted(path.name for path in run.folder.glob("*.safetensors*")),
                                 ["adapter_model.safetensors"])
                names = {path.name for path in run.folder.iterdir()}
                gone = {"config.json", "generation_config.json", "added_tokens.json"}
                self.assertFalse(gone & names)
                self.assertLessEqual({"adapter_config.json", "tokenizer.json"}, names)
                self.assertEqual([name for name in names if name.startswith(".")], [])
                again = self.train_to(2, out=whole.folder.name, save_strategy=strategy,
                                      resume_from_checkpoint="no")
                self.assert_same_weights(again.weights(), whole.weights())
                self.assertFalse((run.folder / "adapter_config.json").exists())
                self.assertEqual(again.weights("adapter_model"), {})

    def test_an_adapter_can_be_saved_into_the_folder_of_its_base_model(self):
        before = load_tensors(self.model)
        run = self.train_to(2, 1, out="model", use_peft=True, lora_r=4)
        self.assert_same_weights(load_tensors(self.model), before)
        self.assertTrue((self.model / "config.json").exists())
        self.assertTrue(run.weights("adapter_model"))

    def test_the_final_model_has_the_weights_of_the_last_step(self):
        part = self.train_to(4)
        whole = self.train_to(9)
        run = self.train_to(9, out=part.folder.name, save_strategy="no")
        self.assert_went_on(run, 4)
        self.assertFalse((run.folder / "checkpoint-9").exists())
        self.assert_end_of(run, whole)

    def test_another_global_batch_size_is_rejected(self):
        part = self.train_to(4)
        run = self.end(self.start_training(2, out=part.folder.name, global_batch_size=16,
                                           max_steps=8))
        self.assertEqual(run.status, 2)
        self.assertIn("was saved with 8 sequences per step, but this run uses 16; set "
                      "global_batch_size: 8 to resume", run.err)

    def test_the_advice_about_another_global_batch_led_to_another_error(self):
        part = self.train_to(4, 1, global_batch_size=8, per_device_train_batch_size=4)
        keys = {**self.KEYS, "per_device_train_batch_size": 2, "max_steps": 8,
                "global_batch_size": None}
        run = self.end(self.start_training(1, out=part.folder.name, gradient_accumulation_steps=2,
                                           **keys))
        self.assertEqual(run.status, 2)
        self.assertIn("set gradient_accumulation_steps: 4 to resume", run.err)
        run = self.end(self.start_training(1, out=part.folder.name, gradient_accumulation_steps=4,
                                           **keys))
        self.assertEqual(run.status, 0, run.err)
        self.assert_went_on(run, 4)

    def test_a_checkpoint_of_another_run_is_rejected(self):
        """Other data, another seed and another length once went on without a word."""
        part = self.train_to(4, 1)
        other = trainer.write_rows(self.dir / "other.jsonl", trainer.make_rows(64, seed=2))
        moved = trainer.write_rows(self.dir / "moved.jsonl", self.rows)
        changes = dict(dataset_name=str(other), seed=7, max_length=48, packing=True,
                       warmup_steps=3)
        run = self.end(self.start_training(1, out=part.folder.name, max_steps=8,
                                           **{**self.KEYS, **changes}))
        self.assertEqual(run.status, 2)  # another attempt would end the same way
        self.assertIn("checkpoint-4 belongs to another run: dataset_name has other contents, "
                      "max_length was 64 and is now 48, packing was false and is now true, "
                      "seed was 42 and is now 7, warmup_steps was 2 and is now 3", run.err)
        run = self.train_to(6, 1, out=self.copy(part, "on-purpose"), resume_with_changes=True,
                            **changes)
        self.assert_went_on(run, 4)
        self.assertIn("seed was 42 and is now 7", run.notes)
        run = self.train_to(7, 1, out="on-purpose", **changes)
        self.assert_went_on(run, 6)
        run = self.train_to(6, 1, out=part.folder.name, dataset_name=str(moved))
        self.assert_went_on(run, 4)
        self.assertIn("total_steps was 4 and is now 6", run.notes)

    def test_a_checkpoint_that_one_rank_does_not_see_whole_may_be_whole_in_the_next_attempt(self):
        """As behind the cache of a network disk, after rank 0 on another node has verified it."""
        part = self.train_to(4)
        (self.dir / "nothing").mkdir()
        (self.dir / "no-bytes").touch()
        for lacks, seen, error in (("training_state", "nothing", "the training state is incomplete"),
                                   ("model.safetensors", "no-bytes", "model.safetensors: ")):
            with self.subTest(lacks):
                hide = f"mount --bind {self.dir / seen} {part.folder}/checkpoint-4/{lacks} || exit 77"
                program = self.write("mgpu-train", '#!/bin/sh\n[ "$RANK" = 0 ] || exec unshare --mount '
                                     f"sh -c '{hide}; exec \"$@\"' sh {trainer.BIN}/mgpu-train \"$@\"\n"
                                     f'exec {trainer.BIN}/mgpu-train "$@"\n', 0o755)
                run = self.end(self.start_training(2, out=part.folder.name, max_steps=8,
                                                   variables={"MGPU_TRAIN": program}, **self.KEYS))
                if "mgpu-train: " not in run.err:
                    self.skipTest("needs permission to mount")
                self.assertEqual(run.status, 1, run.err)
                self.assertIn(error, run.err)

    def test_another_tokenizer_is_rejected(self):
        part = self.train_to(4, 1)
        template = self.dir / "template.jinja"
        template.write_text("{{ messages }}")
        run = self.end(self.start_training(1, out=part.folder.name, max_steps=8,
                                           chat_template=str(template), **self.KEYS))
        self.assertEqual(run.status, 2)
        self.assertIn("tokenizer has other contents", run.err)

    def test_another_base_model_was_ignored_or_got_the_adapter(self):
        other = trainer.make_model(self.dir / "other-model", seed=5)
        copied = self.dir / "copied-model"
        shutil.copytree(self.model, copied)
        for lora in ({}, {"lora_r": 4}):
            with self.subTest(lora=lora):
                part = self.train_to(4, 1, **lora)
                run = self.end(self.start_training(1, out=part.folder.name, max_steps=8,
                                                   model_name_or_path=str(other),
                                                   **{**self.KEYS, **lora}))
                self.assertEqual(run.status, 2, run.err)
                self.assertIn("belongs to another run: model_name_or_path has other contents",
                              run.err)
                run = self.train_to(6, 1, out=part.folder.name, model_name_or_path=str(copied),
                                    **lora)
                self.assert_went_on(run, 4)

    def stopped(self, signo):
        """Stops a run of two ranks midway; returns it and the number of its steps."""
        job = self.start_training(2, out=f"stopped-{signo}", max_steps=100000, **self.KEYS)
        metrics = job.folder / "metrics.jsonl"
        until(lambda: metrics.exists() and metrics.read_bytes().count(b'"train"') >= 10,
              trainer.LIMIT, "ten steps")
        job.send_signal(signo)
        run = self.end(job)
        self.assertEqual(run.status, 128 + signo, run.err)
        saved = [int(path.name.split("-")[1]) for path in run.folder.glob("checkpoint-*")]
        self.assertEqual(len(saved), 1)
        return run, saved[0]

    def test_sigterm_and_sigint_save_a_checkpoint(self):
        for signo in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signo):
                stopped, step = self.stopped(signo)
                self.assertFalse((stopped.folder / "model.safetensors").exists())
                run = self.train_to(step + 5, out=stopped.folder.name)
                self.assert_went_on(run, step)
                whole = self.train_to(step + 5)
                self.assertEqual(run.column("loss"), whole.column("loss"))
                self.assert_end_of(run, whole)

    def test_sigterm_to_one_rank_stops_all_ranks_in_the_same_step(self):
        job = self.start_training(2, max_steps=100000, **self.KEYS)
        metrics = job.folder / "metrics.jsonl"
        until(lambda: metrics.exists() and metrics.read_bytes().count(b'"train"') >= 10,
              trainer.LIMIT, "ten steps")
        ranks = [pid for pid in children(job.pid) if trainer.comm(pid) == "mgpu-train"]
        self.assertEqual(len(ranks), 2)
        os.kill(ranks[1], signal.SIGTERM)
        run = self.end(job)
        self.assertEqual(len(list(run.folder.glob("checkpoint-*/manifest.json"))), 1)
        self.assertEqual(run.status, 143, run.err)
        self.assertNotIn("status 128", run.err)

    def test_the_rank_that_got_sigterm_is_the_first_to_exit(self):
        """All ranks stop in the same step; which one was ended is known to that rank only."""
        report = self.dir / "report.json"
        for rank in (0, 1, 0, 1):
            with self.subTest(rank=rank):
                job = self.start_training(2, options=["--report", report], max_steps=100000,
                                          **self.KEYS)
                metrics = job.folder / "metrics.jsonl"
                until(lambda: metrics.exists() and b'"train"' in metrics.read_bytes(),
                      trainer.LIMIT, "a step")
                ranks = [pid for pid in children(job.pid) if trainer.comm(pid) == "mgpu-train"]
                os.kill(ranks[rank], signal.SIGTERM)
                self.assertEqual(self.end(job).status, 143)
                attempt = json.loads(report.read_text())["attempts"][0]
                self.assertEqual(attempt["first_failure"]["pid"], ranks[rank])

    def test_sigusr1_saves_and_training_continues(self):
        job = self.start_training(2, max_steps=100000, **self.KEYS)
        metrics = job.folder / "metrics.jsonl"
        until(lambda: metrics.exists() and metrics.read_bytes().count(b'"train"') >= 10,
              trainer.LIMIT, "ten steps")
        ranks = [pid for pid in children(job.pid) if trainer.comm(pid) == "mgpu-train"]
        os.kill(ranks[0], signal.SIGUSR1)
        saved = until(lambda: list(job.folder.glob("checkpoint-*/manifest.json")), trainer.LIMIT,
                      "a checkpoint")
        self.assertEqual(len(saved), 1)
        self.assertTrue(load_tensors(saved[0].parent))
        steps = metrics.read_bytes().count(b'"train"')
        until(lambda: metrics.read_bytes().count(b'"train"') > steps + 5, trainer.LIMIT, "more")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(job).status, 143)


if __name__ == "__main__":
    unittest.main()
