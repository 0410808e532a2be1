"""What a recipe requests of the launcher and of reports, as users of unsloth-multigpu write it."""

import math
import os
import shlex
import signal
import socket
import subprocess
import unittest

import trainer
from trainer import BIN, LIMIT, children, comm, environment, until


def ranks_of(launcher):
    return [pid for pid in children(launcher) if comm(pid) == "mgpu-train"]


class LaunchedRecipes(trainer.TrainerTest):
    def add_to_recipe(self, lines, **keys):
        recipe = self.recipe(**keys)
        recipe.write_text(recipe.read_text() + lines)
        return recipe

    def test_a_killed_rank_is_retried_from_the_last_checkpoint(self):
        steps = 40  # so that the run does not end before the signal
        whole = self.train(2, max_steps=steps)
        recipe = self.add_to_recipe("max_retries: 3\nretry_delay: 1.0\n"
                                    "enable_fault_tolerance: True\n",
                                    max_steps=steps, save_strategy="steps", save_steps=1)
        job = self.start_training(2, recipe=recipe)
        until((job.folder / "checkpoint-2").exists, LIMIT, "the second checkpoint")
        os.kill(ranks_of(job.pid)[1], signal.SIGKILL)
        run = self.end(job)
        self.assertEqual(run.status, 0, run.err)
        self.assertIn("restart 1 of 3", run.err)
        self.assertEqual(len(run.records("resume")), 1)
        self.assertEqual(run.column("step"), list(range(1, steps + 1)))
        self.assert_same_weights(run.weights(), whole.weights())

    def test_ranks_train_without_a_store_of_the_launcher(self):
        # They waited for it for a day.
        whole = self.train(2, max_steps=4, save_steps=2)
        own = self.end(self.start_training(2, options=["--rank0-store"], max_steps=4, save_steps=2))
        self.assertEqual(own.status, 0, own.err)
        self.assert_same_weights(own.weights(), whole.weights())

        by_hand = self.dir / "by-hand"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        recipe = self.recipe(max_steps=4, save_steps=2, output_dir=str(by_hand))
        ranks = [subprocess.Popen([BIN / "mgpu-train", recipe], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True,
                                  env=environment(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1",
                                                  MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                                                  WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                                                  RANK=str(rank), LOCAL_RANK=str(rank)))
                 for rank in (1, 0)]
        for process in ranks:
            self.addCleanup(process.kill)
        said = [process.communicate(timeout=LIMIT)[0] for process in ranks]
        self.assertEqual([process.returncode for process in ranks], [0, 0], said)
        self.assert_same_weights(trainer.Run(0, "", "", by_hand).weights(), whole.weights())

    def test_every_report_has_speed_memory_and_the_share_of_communication(self):
        run = self.train(2, max_steps=4, report_to=["tensorboard", "wandb"])
        self.assertEqual(run.column("step"), [1, 2, 3, 4])
        for record in run.records():
            for name in ("tokens_per_second", "tflops_per_gpu", "memory_bytes", "comm_share"):
                self.assertTrue(math.isfinite(record[name]), name)
            self.assertGreater(record["tokens_per_second"], 0)
            self.assertTrue(0 <= record["comm_share"] <= 1, record)
        self.assertTrue(list(run.folder.glob("runs/*/events.out.tfevents.*")))
        self.assertTrue((run.folder / "wandb-sync.py").exists())

    def test_a_recipe_for_several_ranks_prints_the_command_of_the_launcher(self):
        out = self.dir / "launched"
        recipe = self.add_to_recipe("num_gpus: 2\n", max_steps=1)
        env = environment(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
        settings = ["--set", f"output_dir={out}", "--set", "run_name=it is"]
        alone = subprocess.run([BIN / "mgpu-train", recipe, *settings], capture_output=True,
                               text=True, timeout=LIMIT, env=env, check=False)
        self.assertEqual(alone.returncode, 2, alone.stdout + alone.stderr)
        self.assertFalse(out.exists())
        command = (f"mgpu-run --nproc 2 {recipe} --set output_dir={out} --set 'run_name=it is'")
        self.assertEqual(alone.stderr, "mgpu-train: the recipe is for 2 ranks, but this process has "
                                       f"no launcher; run {command} or add --single to train "
                                       "with one rank\n")
        words = shlex.split(command)
        printed = subprocess.run([BIN / words[0], *words[1:]], capture_output=True, text=True,
                                 timeout=LIMIT, env=env, check=False)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertIn("x 2 ranks", printed.stdout + printed.stderr)
        single = subprocess.run([BIN / "mgpu-train", recipe, "--single", *settings],
                                capture_output=True, text=True, timeout=LIMIT, env=env, check=False)
        self.assertEqual(single.returncode, 0, single.stderr)


if __name__ == "__main__":
    unittest.main()
