"""Ranks, jobs, nodes and other programs that download into the same cache of the Hub at once, and
downloads that are interrupted."""

import os
import signal
import socket
import subprocess
import threading
import unittest
from unittest import mock

import hub
import trainer
from hub import WEIGHTS
from trainer import until


class SharedCache(hub.HubTest):
    def two_nodes(self, homes):
        """Trains on two nodes with two ranks each, whose caches are `homes`."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        recipe = self.recipe(output_dir=str(self.dir / "out"), global_batch_size=16)
        jobs = []
        for rank, home in enumerate(homes):
            with mock.patch.dict(os.environ, HF_HOME=str(home)):
                jobs.append(self.start(
                    "--nnodes", 2, "--node-rank", rank, "--nproc", 2, "--master-addr", "127.0.0.1",
                    "--master-port", port, "--insecure", recipe,
                    program=str(trainer.BIN / "mgpu-run"),
                    env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}))
        for job in jobs:
            out, err = job.communicate(timeout=trainer.LIMIT * trainer.SLOWER)
            self.assertEqual(job.returncode, 0, (out + err).decode())

    def test_each_node_downloads_into_its_own_cache_and_waits_for_the_others(self):
        self.two_nodes([self.dir / "hf-0", self.dir / "hf-1"])
        self.assertEqual(self.server.contents_sent(WEIGHTS), 2)
        self.assertEqual(self.server.contents_sent("train.jsonl"), 2)

    def test_nodes_that_share_a_cache_download_once(self):
        self.two_nodes([self.home, self.home])
        self.assertEqual(self.server.contents_sent(WEIGHTS), 1)
        self.assertEqual(self.server.contents_sent("train.jsonl"), 1)
        self.assertEqual(self.partial_files(), [])

    def test_jobs_that_share_a_cache_download_once(self):
        gate = self.remote.gates[WEIGHTS] = threading.Event()
        jobs = [self.start_training(out=f"job-{number}", recipe=self.recipe(
            output_dir=str(self.dir / f"job-{number}"))) for number in range(2)]
        self.until_weights()
        gate.set()
        for run in map(self.end, jobs):
            self.assertEqual(run.status, 0, run.out + run.err)
        self.assertEqual(self.server.contents_sent(WEIGHTS), 1)

    def test_a_file_that_another_program_downloads_is_not_downloaded_twice(self):
        gate = self.remote.gates[WEIGHTS] = threading.Event()
        other = self.start("download", "org/model", program=hub.HF)
        self.until_weights()
        job = self.start_training(recipe=self.recipe())
        until(lambda: b"downloading model org/model" in os.read(job.stdout.fileno(), 4096),
              what="our download")
        gate.set()
        run = self.end(job)
        self.assertEqual(run.status, 0, run.out + run.err)
        self.assertEqual(other.wait(trainer.LIMIT), 0)
        self.assertEqual(self.server.contents_sent(WEIGHTS), 1)
        self.assertEqual(self.partial_files(), [])

    def test_check_does_not_wait_for_the_download_of_another_job(self):
        gate = self.remote.gates[WEIGHTS] = threading.Event()
        job = self.start_training(recipe=self.recipe())
        self.until_weights()
        partial, = self.partial_files()
        status, out = self.program("check", self.recipe(output_dir=str(self.dir / "another")))
        self.assertEqual(status, 0, out)
        self.assertNotIn("not checked: model", out)
        self.assertNotIn("not checked: cannot", out)
        self.assertTrue(partial.exists())
        gate.set()
        run = self.end(job)
        self.assertEqual(run.status, 0, run.out + run.err)
        self.assertEqual(self.server.contents_sent(WEIGHTS), 1)


class InterruptedDownloads(hub.HubTest):
    def start_alone(self):
        """Starts a run that is downloading the weights when this returns."""
        job = self.start(self.recipe(), "--single", program=str(trainer.BIN / "mgpu-train"),
                         stderr=subprocess.DEVNULL, env={"CUDA_VISIBLE_DEVICES": ""})
        self.until_weights()
        return job, trainer.children(job.pid)

    def test_a_stopped_download_leaves_no_processes_and_no_partial_files(self):
        gate = self.remote.gates[WEIGHTS] = threading.Event()
        job, downloads = self.start_alone()
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(10), -signal.SIGTERM)
        self.assert_all_gone(downloads)
        self.assertEqual(self.partial_files(), [])
        gate.set()
        status, out = self.run_alone()
        self.assertEqual(status, 0, out)

    def test_a_download_that_was_killed_is_continued_with_the_files_that_it_lacks(self):
        gate = self.remote.gates[WEIGHTS] = threading.Event()
        job, downloads = self.start_alone()
        for pid in (job.pid, *downloads):
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(job.wait(10), -signal.SIGKILL)
        self.assertEqual(len(self.partial_files()), 1)
        gate.set()
        status, out = self.run_alone()
        self.assertEqual(status, 0, out)
        self.assertEqual(self.partial_files(), [])
        self.assertEqual(self.server.contents_sent("tokenizer.json"), 1)
        self.assertEqual(self.server.contents_sent(WEIGHTS), 2)


if __name__ == "__main__":
    unittest.main()
