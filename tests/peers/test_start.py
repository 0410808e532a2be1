"""The ranks of a run: what it prints about them at its start, and its status for programs."""

import json
import pathlib
import signal
import socket
import subprocess
import unittest

from trainer import BIN, LIMIT, TrainerTest, environment, load_tensors, until


class Start(TrainerTest):
    def test_each_rank_has_a_line_then_the_trainer_and_the_batch_arithmetic(self):
        run = self.train(4, per_device_train_batch_size=2, global_batch_size=8, max_steps=1)
        lines = run.column("text", "note")
        for rank, line in enumerate(lines[:4]):
            self.assertRegex(line, rf"\Arank {rank} of 4 initialized on the CPU, pid \d+\Z")
        self.assertEqual(lines[4:6], [
            "distributed trainer initialized: 4 ranks on 1 host, backend gloo",
            "8 sequences per step = 2 per device x 4 ranks x 1 accumulation"])
        for line in lines[:6]:
            self.assertEqual(run.out.splitlines().count(line), 1, line)

    def test_one_rank_has_one_line_and_the_batch_arithmetic(self):
        run = self.train(1, per_device_train_batch_size=2, global_batch_size=8, max_steps=1)
        self.assertEqual(run.column("text", "note")[:2], [
            "trainer initialized: 1 rank on the CPU",
            "8 sequences per step = 2 per device x 1 rank x 4 accumulation"])

    def test_without_a_launcher_a_recipe_trains_on_one_rank(self):
        launched = self.train(1, max_steps=3)
        alone = self.dir / "alone"
        done = subprocess.run(
            [BIN / "mgpu-train", self.recipe(max_steps=3, output_dir=str(alone))],
            capture_output=True, text=True, timeout=LIMIT,
            env=environment(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("trainer initialized: 1 rank on the CPU\n", done.stdout)
        self.assert_same_weights(load_tensors(alone), launched.weights())


class End(TrainerTest):
    """LibTorch's static objects took 0.2 s to destroy, a quarter of a short run."""

    def destroys_static_objects(self, **settings):
        """Whether libraries of the worker were finished, as the dynamic linker reports it."""
        done = subprocess.run(
            [BIN / "mgpu-train", self.recipe(max_steps=1, output_dir=str(self.dir / "out"))],
            capture_output=True, text=True, timeout=LIMIT,
            env=environment(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", LD_DEBUG="files",
                            LD_DEBUG_OUTPUT=str(self.dir / "linker"), **settings))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("train_runtime", done.stdout)
        report, = (text for text in map(pathlib.Path.read_text, self.dir.glob("linker.*"))
                   if "calling init: " in text and "libtorch_cpu" in text)
        return "calling fini: " in report

    def test_a_run_ends_without_destroying_static_objects(self):
        self.assertFalse(self.destroys_static_objects())

    def test_a_profiler_in_the_process_can_write_its_results(self):
        self.assertTrue(self.destroys_static_objects(CUDA_INJECTION64_PATH="none"))


class Status(TrainerTest):
    def status(self, folder):
        return json.loads((folder / "training_status.json").read_text())

    def test_a_program_reads_rank_world_size_and_step(self):
        status = self.status(self.train(2, max_steps=3).folder)
        self.assertEqual({key: status[key] for key in (
            "rank", "world_size", "is_distributed", "step", "total_steps", "state", "restarts",
            "backend")}, {
                "rank": 0, "world_size": 2, "is_distributed": True, "step": 3, "total_steps": 3,
                "state": "complete", "restarts": 0, "backend": "gloo"})
        host = socket.gethostname()[:63]
        self.assertEqual([{**rank, "pid": None} for rank in status["ranks"]], [
            {"rank": rank, "host": host, "pid": None, "gpu": None, "device": "cpu"}
            for rank in range(2)])

    def test_a_run_of_one_rank_is_not_distributed(self):
        status = self.status(self.train(1, max_steps=1).folder)
        self.assertEqual((status["rank"], status["world_size"], status["is_distributed"]),
                         (0, 1, False))

    def test_the_status_follows_a_run_until_it_is_stopped(self):
        job = self.start_training(2, max_steps=1000000)
        until((job.folder / "training_status.json").exists, LIMIT, "a status")
        self.assertEqual(self.status(job.folder)["state"], "running")
        until(lambda: self.status(job.folder)["step"] >= 2, LIMIT, "two steps")
        job.send_signal(signal.SIGTERM)
        self.end(job)
        status = self.status(job.folder)
        self.assertEqual(status["state"], "stopped")
        self.assertTrue((job.folder / f"checkpoint-{status['step']}").exists())


if __name__ == "__main__":
    unittest.main()
