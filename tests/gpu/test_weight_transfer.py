"""Sends all weights to a server over NCCL, on a machine with two or more GPUs. Run by hand:

    cd tests/gpu; python -B -m unittest -v test_weight_transfer

The trainer uses the first GPU and the server (weight_server.py) the last one.
"""

import glob
import pathlib
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import trainer  # noqa: E402
from grpo_trainer import GrpoTest  # noqa: E402

GPUS = len(glob.glob("/dev/nvidia[0-9]*"))
LIMIT = 240


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@unittest.skipIf(GPUS < 2, "needs two GPUs")
class WeightTransfer(GrpoTest):
    KEYS = dict(GrpoTest.KEYS, use_vllm=True, vllm_mode="server", dtype="bf16",
                learning_rate=1e-3, save_strategy="steps", save_steps=1, vllm_server_timeout=60)

    def serve(self, *options):
        self.port, self.received = free_port(), self.dir / "received"
        self.received.mkdir()
        server = subprocess.Popen(
            [sys.executable, "-B", pathlib.Path(__file__).parent / "weight_server.py", "--model",
             self.model, "--port", str(self.port), "--out", self.received, *options],
            env=trainer.environment(CUDA_VISIBLE_DEVICES=str(GPUS - 1), NCCL_NVLS_ENABLE="0"))
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)

    def train_on(self, gpus, **keys):
        """Trains with one rank on each of these GPUs."""
        folder = self.dir / f"run-{gpus.replace(',', '-')}"
        recipe = self.recipe(output_dir=str(folder), vllm_server_port=self.port,
                             vllm_group_port=free_port(), **keys)
        job = self.start("--nproc", len(gpus.split(",")), recipe,
                         program=str(trainer.BIN / "mgpu-run"),
                         env={"CUDA_VISIBLE_DEVICES": gpus, "NCCL_NVLS_ENABLE": "0"})
        job.folder = folder
        return self.end(job, LIMIT)

    def assert_received(self, run):
        """The first update comes before the first step, the next ones after steps 1 and 2."""
        self.assertEqual(run.status, 0, run.out + run.err)
        updates = [trainer.load_tensors(self.received, f"received-{number}")
                   for number in (1, 2, 3)]
        saved = [trainer.load_tensors(folder) for folder in
                 (self.model, run.folder / "checkpoint-1", run.folder / "checkpoint-2")]
        for ours, theirs in zip(updates, saved):
            wanted = {name: tensor.bfloat16() for name, tensor in theirs.items()}
            self.assert_same_weights(ours, wanted)
        self.assertTrue(any(not tensor.equal(updates[0][name])
                            for name, tensor in updates[2].items()))
        for difference in run.column("sampling/sampling_logp_difference/mean"):
            self.assertLess(difference, 0.1)

    def test_the_server_gets_what_checkpoints_hold(self):
        self.serve()
        self.assert_received(self.train_on("0"))

    @unittest.skipIf(GPUS < 3, "needs three GPUs")
    def test_weights_that_are_spread_are_gathered(self):
        self.serve()
        self.assert_received(self.train_on("0,1", zero_stage=3))

    def test_a_server_that_gives_up_ends_the_job(self):
        self.serve("--refuses-update", "2")
        run = self.train_on("0")
        self.assertEqual(run.status, 1)
        self.assertIn("/update_weights answered with status 500: no room for these weights",
                      run.err)

    def test_a_gpu_that_trains_and_serves_is_refused(self):
        self.serve()
        run = self.train_on(str(GPUS - 1))
        self.assertEqual(run.status, 1)
        self.assertIn(f"GPU {GPUS - 1} is used by rank 0 and by the server at", run.err)
        self.assertIn("vllm_mode: colocate", run.err)


if __name__ == "__main__":
    unittest.main()
