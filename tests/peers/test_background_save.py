"""Checkpoints that are written while training continues: what a failure at each moment leaves behind."""

import contextlib
import json
import os
import random
import shutil
import signal
import unittest

import trainer
from test_replacement import Replacing, pid_of_rank
from trainer import LIMIT, until

STALLED_FILES = trainer.BIN.parent / "lib" / "libstalled_files.so"


class BackgroundSaves(Replacing):
    """Training on two ranks that saves every 4 steps."""

    KEYS = dict(max_steps=20, save_steps=4, lr_scheduler_type="cosine", shuffle_dataset=True)

    def saved(self, folder):
        return sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*"))

    def drafts(self, folder):
        return list(folder.glob(".checkpoint-*"))

    def train_to_end(self, nproc=2, **keys):
        return self.train(nproc, **{**self.KEYS, **keys})

    def assert_end_of(self, run, whole):
        self.assertEqual(run.status, 0, run.out + run.err)
        self.assertEqual(self.drafts(run.folder), [])
        self.assertEqual(run.column("step"), whole.column("step"))
        self.assertEqual(run.column("loss"), whole.column("loss"))
        self.assert_same_weights(run.weights(), whole.weights())


class Contents(BackgroundSaves):
    def files_of(self, checkpoint):
        files = json.loads((checkpoint / "manifest.json").read_text())["files"]
        del files["trainer_state.json"]  # has times
        return files

    def test_the_files_are_those_that_are_written_while_training_stands_still(self):
        for nproc, keys in ((1, {}), (2, dict(zero_stage=1)), (2, dict(zero_stage=2)),
                            (3, dict(zero_stage=3, global_batch_size=12)),
                            (2, dict(optim="adamw_8bit", save_only_model=False)),
                            (2, dict(save_only_model=True)),
                            (2, dict(use_peft=True, lora_r=4, zero_stage=1, adapter_name="mine")),
                            (2, dict(use_peft=True, lora_r=4, init_lora_weights="pissa")),
                            (1, dict(use_peft=True, lora_r=4, use_dora=True))):
            with self.subTest(nproc=nproc, **keys):
                keys = dict(max_steps=8, **keys)
                runs = [self.train_to_end(nproc, async_save=choice, **keys)
                        for choice in (False, True)]
                for step in (4, 8):
                    files = [self.files_of(run.folder / f"checkpoint-{step}") for run in runs]
                    self.assertEqual(*files)
                    self.assertTrue(files[0])
                self.assertEqual(runs[0].column("in_background", "checkpoint"), [False, False])
                self.assertEqual(runs[1].column("in_background", "checkpoint"), [True, True])

    def test_times_are_reported_for_every_checkpoint(self):
        run = self.train_to_end()
        self.assertEqual(run.column("step", "checkpoint"), [4, 8, 12, 16, 20])
        for record in run.records("checkpoint"):
            self.assertGreater(record["stalled_seconds"], 0)
            self.assertGreaterEqual(record["seconds"], record["stalled_seconds"])
        self.assertEqual(run.notes.count("saved "), 5)

    def test_missing_host_memory_is_reported_once_and_training_stands_still(self):
        meminfo = self.dir / "meminfo"
        meminfo.write_text("MemTotal: 1000 kB\nMemAvailable: 1000 kB\n")
        script = f'mount --bind {meminfo} /proc/meminfo || exit 77; exec "$@"'
        recipe = self.recipe(**{**self.KEYS, "output_dir": str(self.dir / "small")})
        job = self.start("--mount", "sh", "-c", script, "sh", trainer.BIN / "mgpu-run", "--nproc", 2,
                         recipe, program=shutil.which("unshare"),
                         env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        job.folder = self.dir / "small"
        run = self.end(job)
        if run.status in (1, 77) and "mgpu" not in run.err:
            self.skipTest("needs permission to mount")
        self.assertEqual(run.status, 0, run.err)
        self.assertEqual(run.column("in_background", "checkpoint"), [False] * 5)
        self.assertEqual(run.notes.count("training stands still while checkpoints are written"), 1)
        self.assertIn("of host memory on node 0, which may use 75 % of the 1.02 MB available",
                      run.notes)
        self.assert_end_of(run, self.train_to_end())

    def test_an_older_checkpoint_that_cannot_be_removed_does_not_end_the_run(self):
        for async_save in (True, False):
            with self.subTest(async_save=async_save):
                keys = {**self.KEYS, "async_save": async_save, "save_total_limit": 1}
                part = self.train_to_end(**{**keys, "max_steps": 4})
                old = part.folder / "checkpoint-4"
                # A folder that something is mounted on cannot be renamed.
                script = (f'cp -r {old} {self.dir}/copy && mount -t tmpfs tmpfs {old} || exit 77; '
                          f'mv {self.dir}/copy/* {old} && rmdir {self.dir}/copy && exec "$@"')
                recipe = self.recipe(**{**keys, "output_dir": str(part.folder)})
                job = self.start("--mount", "sh", "-c", script, "sh", trainer.BIN / "mgpu-run",
                                 "--nproc", 2, recipe, program=shutil.which("unshare"),
                                 env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
                job.folder = part.folder
                run = self.end(job)
                if run.status in (1, 77) and "mgpu" not in run.err:
                    self.skipTest("needs permission to mount")
                self.assertEqual(run.status, 0, run.err)
                self.assertIn(f"more than save_total_limit 1 checkpoints stay: cannot remove {old}: "
                              "Device or resource busy", run.notes)
                self.assertEqual(self.saved(run.folder), [4, 20])

    def test_a_full_disk_ends_the_job_with_one_line_and_no_draft(self):
        out = self.dir / "full"
        out.mkdir()
        script = (f'mount -t tmpfs -o size=5m tmpfs {out} || exit 77; "$@"; status=$?; '
                  f'ls -a {out}; exit $status')
        recipe = self.recipe(**{**self.KEYS, "output_dir": str(out)})
        job = self.start("--mount", "sh", "-c", script, "sh", trainer.BIN / "mgpu-run", "--nproc", 1,
                         recipe, program=shutil.which("unshare"),
                         env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        job.folder = out
        output, err = (text.decode() for text in job.communicate(timeout=LIMIT))
        if job.returncode in (1, 77) and "mgpu" not in err:
            self.skipTest("needs permission to mount")
        self.assertEqual(job.returncode, 1, err)
        lines = [line for line in err.splitlines() if line.startswith("mgpu-train:")]
        self.assertEqual(len(lines), 1, err)
        self.assertRegex(lines[0], "cannot (reserve|write|create) .*No space left on device")
        self.assertIn("checkpoint-4\n", output)
        self.assertNotIn(".checkpoint-", output)


@unittest.skipIf(trainer.SLOWER > 1, "a sanitizer's run-time library must be loaded first")
class Stalled(BackgroundSaves):
    """A checkpoint is complete, but for its name: that rename does not return while `stall` exists."""

    def start_stalled(self, step, *options, **keys):
        name = f"stalled-{self.runs}"
        self.stall, self.seen = self.dir / f"{name}.stall", self.dir / f"{name}.stall.seen"
        self.stall.touch()
        self.addCleanup(self.stall.unlink, missing_ok=True)
        settings = (f"LD_PRELOAD={STALLED_FILES}", f"STALL={self.stall}",
                    f"STALLED_FOLDER={self.dir / name}/checkpoint-{step}")
        options = [*options, *(word for setting in settings for word in ("--env", setting))]
        job = self.start_training(2, out=name, options=options, **{**self.KEYS, **keys})
        until(lambda: self.seen.exists() and "rename" in self.seen.read_text(), LIMIT,
              "a checkpoint that is complete")
        return job

    def test_training_continues_until_the_next_checkpoint_which_waits(self):
        job = self.start_stalled(8)
        self.wait_for_step(job, 12)
        self.assertEqual(self.saved(job.folder), [4])
        metrics = [json.loads(line) for line in
                   (job.folder / "metrics.jsonl").read_text().splitlines()]
        self.assertFalse([record for record in metrics
                          if "checkpoint-8" in record.get("text", "")
                          or record["event"] == "train" and record["step"] > 12])
        self.stall.unlink()
        run = self.end(job)
        self.assertEqual(self.saved(run.folder), [4, 8, 12, 16, 20])
        self.assertEqual(run.column("step", "checkpoint"), [4, 8, 12, 16, 20])
        self.assert_end_of(run, self.train_to_end())

    def test_the_older_checkpoint_goes_only_when_the_new_one_has_its_name(self):
        job = self.start_stalled(8, save_total_limit=1)
        self.wait_for_step(job, 11)
        self.assertEqual(self.saved(job.folder), [4])
        self.stall.unlink()
        run = self.end(job)
        self.assertEqual((run.status, self.saved(run.folder)), (0, [20]), run.err)

    LONGER = dict(max_steps=100, save_steps=40)

    def test_sigterm_completes_the_running_checkpoint_and_saves_the_last_step(self):
        whole = self.train_to_end(**self.LONGER)
        job = self.start_stalled(40, **self.LONGER)
        self.wait_for_step(job, 42)
        job.send_signal(signal.SIGTERM)
        self.stall.unlink()
        run = self.end(job)
        self.assertEqual(run.status, 128 + signal.SIGTERM, run.err)
        self.assertEqual(self.saved(run.folder), [40, run.column("step")[-1]])
        self.assertEqual(self.drafts(run.folder), [])
        self.assert_end_of(self.train_to_end(out=run.folder.name, **self.LONGER), whole)

    def test_a_rank_that_dies_while_a_stopped_job_saves_does_not_take_the_whole_grace(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                job = self.start_stalled(8, "--grace", LIMIT)
                job.send_signal(signal.SIGTERM)
                self.kill(job, rank)
                run = self.end(job, limit=LIMIT / 3)
                self.assertEqual(run.status, 128 + signal.SIGTERM)
                self.assertIn(f"rank {rank} was killed by SIGKILL (signal 9) while the ranks stopped",
                              run.err)
                self.assertEqual(self.saved(run.folder), [4])

    def test_sigusr1_waits_for_the_running_checkpoint(self):
        job = self.start_stalled(40, **self.LONGER)
        self.wait_for_step(job, 42)
        job.send_signal(signal.SIGUSR1)
        self.stall.unlink()
        run = self.end(job)
        self.assertEqual(run.status, 0, run.err)
        first, requested, last_but_one, last = self.saved(run.folder)
        self.assertEqual((first, last_but_one, last), (40, 80, 100))
        self.assertTrue(42 <= requested < 80, requested)

    def test_sigusr1_that_reaches_the_ranks_in_different_steps_saves_once(self):
        job = self.start_training(2, **{**self.KEYS, "max_steps": 300, "save_steps": 300})
        self.wait_for_step(job, 5)
        os.kill(pid_of_rank(job.pid, 0), signal.SIGUSR1)
        until(lambda: self.saved(job.folder), LIMIT, "a checkpoint")
        os.kill(pid_of_rank(job.pid, 1), signal.SIGUSR1)
        run = self.end(job)
        self.assertEqual(run.status, 0, run.err)
        self.assertEqual(len(self.saved(run.folder)), 2, self.saved(run.folder))

    def test_a_rank_that_dies_meanwhile_leaves_the_checkpoint_before(self):
        whole = self.train_to_end()
        for rank in (0, 1):
            with self.subTest(rank=rank):
                job = self.start_stalled(8, "--max-restarts", 1)
                self.wait_for_step(job, 10)
                other = pid_of_rank(job.pid, 1 - rank)
                self.kill(job, rank)
                self.wait_for_a_new_process(job, 1 - rank, other)
                self.stall.unlink()
                run = self.end(job)
                self.assertIn("checkpoint-4 at step 4", run.notes)
                self.assertEqual(self.saved(run.folder), [4, 8, 12, 16, 20])
                self.assert_end_of(run, whole)

    def test_what_a_replaced_rank_leaves_incomplete_is_saved_again(self):
        keys = dict(save_total_limit=2, zero_stage=0, **self.LONGER)
        whole = self.train_to_end(**keys)
        for rank in (0, 1):
            with self.subTest(rank=rank):
                job = self.start_stalled(40, "--replace-ranks", "--max-restarts", 1, **keys)
                self.wait_for_step(job, 42)
                self.kill(job, rank)
                self.stall.unlink()
                run = self.end(job)
                self.assertNotIn("restarting all ranks", run.err)
                self.assertIn(f"took the place of rank {rank}", run.notes)
                self.assert_end_of(run, whole)
                first, *others = run.column("step", "checkpoint")
                self.assertEqual(others, [80, 100])
                # Rank 0 gives the checkpoint its name, unless it is the one that was killed.
                if rank == 1:
                    self.assertEqual(first, 40)
                else:
                    self.assertTrue(42 <= first < 80, first)


class Killed(BackgroundSaves):
    def test_kills_at_any_moment_leave_complete_checkpoints(self):
        """Every step is saved, so that one of them is always being written."""
        keys = dict(max_steps=60, save_steps=1, save_total_limit=2, zero_stage=1)
        whole = self.train_to_end(**keys)
        moments = random.Random(5)
        job = self.start_training(2, out="killed", options=("--max-restarts", 6),
                                  **{**self.KEYS, **keys})
        step = 0
        for _ in range(6):
            step += moments.randint(3, 7)
            self.wait_for_step(job, step)
            victim = pid_of_rank(job.pid, moments.randint(0, 1))
            if victim is not None:  # else all ranks are being restarted
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
        run = self.end(job)
        self.assertNotIn(" is skipped: ", run.out + run.err)
        self.assertEqual(self.saved(run.folder), [59, 60])
        self.assert_end_of(run, whole)


if __name__ == "__main__":
    unittest.main()
