"""Unmodified PyTorch programs under mgpu-run, on CPUs with gloo."""

import json
import os
import pathlib
import subprocess
import unittest

from client_harness import HERE, PROGRAMS, PYTHON, TorchTest
from harness import MGPU_RUN, environment


class ProcessGroups(TorchTest):
    def collectives(self, ranks, *options):
        job = self.torch_ok("-n", ranks, *options, PROGRAMS / "collectives.py")
        self.assertEqual(sorted(job.out.splitlines()), [f"ok {r}" for r in range(ranks)])

    def test_1_rank(self):
        self.collectives(1)

    def test_2_ranks(self):
        self.collectives(2)

    def test_4_ranks(self):
        self.collectives(4)

    def test_8_ranks(self):
        self.collectives(8)

    def test_2_ranks_whose_rank_0_binds_the_port(self):
        self.collectives(2, "--rank0-store")

    def test_an_existing_torchrun_command_line(self):
        link = self.dir / "torchrun"
        link.symlink_to(MGPU_RUN)
        job = subprocess.run(
            [link, "--standalone", "--nproc_per_node=2", "--rdzv_backend=c10d",
             "--rdzv_endpoint=localhost:0", "--rdzv_id=j1", "--max_restarts=0",
             PROGRAMS / "collectives.py"], capture_output=True, text=True, timeout=180,
            env=environment(PYTHON_EXEC=PYTHON))
        self.assertEqual((job.returncode, sorted(job.stdout.splitlines())), (0, ["ok 0", "ok 1"]),
                         job.stderr)
        alone = subprocess.run([link, "--no-python", "/bin/sh", "-c", "echo $WORLD_SIZE"],
                               capture_output=True, text=True, env=environment())
        self.assertEqual(alone.stdout, "1\n")


class Store(TorchTest):
    def test_every_operation_of_torch_s_client(self):
        self.torch_ok("-n", 1, "--no-python", "/bin/sh", "-c",
                      f'exec {PYTHON} {HERE / "store_ops.py"} $MASTER_PORT $MASTER_ADDR')


class Programs(TorchTest):
    def test_a_recorded_exception_is_the_cause(self):
        job = self.torch("-n", 2, PROGRAMS / "recorded.py")
        self.assertEqual(job.returncode, 1)
        attempt = job.report["attempts"][0]
        self.assertEqual((attempt["first_failure"]["rank"], attempt["cause"]["text"]),
                         (1, "RuntimeError: the loss went away"))
        self.assertIn("Traceback", attempt["error_file"]["message"]["extraInfo"]["py_callstack"])
        self.assertIn("cause   RuntimeError: the loss went away", job.err)

    def test_a_data_loader_with_worker_processes(self):
        job = self.torch_ok("-n", 2, PROGRAMS / "loader.py")
        self.assertEqual(job.out, "sum 780.0\n" * 2)

    def test_a_killed_ddp_job_resumes_and_ends_where_an_undisturbed_one_does(self):
        whole = self.torch_ok("-n", 2, PROGRAMS / "resumed.py", self.dir / "whole.pt", -1)
        hurt = self.torch_ok("-n", 2, "--max-restarts", 1, PROGRAMS / "resumed.py",
                             self.dir / "hurt.pt", 5)
        self.assertEqual(len(hurt.report["attempts"]), 2)
        self.assertEqual(hurt.report["attempts"][0]["first_failure"]["signal"], "SIGKILL")
        start, weights = hurt.out.split(" ", 2)[1:]
        self.assertEqual(start, "5")
        self.assertEqual(weights, whole.out.split(" ", 2)[2])

    def test_a_gpu_oom_of_torch_is_told_from_other_exceptions(self):
        worker = self.script('import torch\nraise torch.OutOfMemoryError("CUDA out of memory. Tried '
                             'to allocate 3.00 GiB. GPU 0 has a total capacity of 1 GiB")\n')
        job = self.torch("-n", 1, worker)
        cause = job.report["attempts"][0]["cause"]
        self.assertEqual(cause["kind"], "gpu_oom")
        self.assertIn("Tried to allocate 3.00 GiB", cause["text"])

    def test_the_quickstart_s_program(self):
        job = self.torch_ok("-n", 2, HERE.parents[1] / "docs" / "examples" / "hello_ddp.py")
        self.assertIn("2 workers on cpu", job.out)


class DistributedLaunch(TorchTest):
    """torch.distributed.launch, whose scripts go silently single-process without --local-rank."""

    SCRIPT = PROGRAMS / "local_rank_argument.py"

    def lines(self, *args):
        job = self.torch_ok("-n", 2, *args, self.SCRIPT, "--lr", "0.5")
        return sorted(job.out.splitlines())

    def test_with_use_env_nothing_is_appended(self):
        self.assertEqual(self.lines("--use-env"), ["alone 0.5"] * 2)
        self.assertEqual(self.lines(), ["alone 0.5"] * 2)

    def test_no_use_env_appends_the_local_rank(self):
        self.assertEqual(self.lines("--no-use-env"), ["rank 0 0.5", "rank 1 0.5"])

    def test_the_link_named_torch_distributed_launch_does(self):
        link = self.dir / "torch-distributed-launch"
        link.symlink_to(MGPU_RUN)
        job = subprocess.run([link, "--nproc_per_node=2", self.SCRIPT, "--lr", "0.5"],
                             capture_output=True, text=True, env=environment(PYTHON_EXEC=PYTHON))
        self.assertEqual(sorted(job.stdout.splitlines()), ["rank 0 0.5", "rank 1 0.5"])


class BesideTorchrun(TorchTest):
    # Set anew by each launcher, or of the shell it was started from.
    OWN = {"MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID", "_", "SHLVL",
           "PYTHON_EXEC", "TMPDIR"}
    # torchrun's static back-end on one node meets at its own host's name.
    ADDRESSES = {"localhost", "127.0.0.1"}

    def test_workers_see_the_same_environment(self):
        for name in ("ours", "theirs"):
            (self.dir / name).mkdir()
        flags = ["--nnodes=1", "--nproc-per-node=2", "--max-restarts=3", "--role=trainer"]
        program = PROGRAMS / "show_environment.py"
        self.torch_ok(*flags, program, self.dir / "ours")
        subprocess.run([PYTHON, "-m", "torch.distributed.run", *flags, "--master-port=29611",
                        program, self.dir / "theirs"], check=True, capture_output=True,
                       env=environment(), timeout=120)
        for rank in range(2):
            ours, theirs = (json.loads((self.dir / name / f"env.{rank}").read_text())
                            for name in ("ours", "theirs"))
            self.assertIn(theirs.pop("MASTER_ADDR"), self.ADDRESSES)
            self.assertIn(ours.pop("MASTER_ADDR"), self.ADDRESSES)
            # Under torchrun's static back-end rank 0 keeps the store; here the launcher always does.
            self.assertIn(theirs.pop("TORCHELASTIC_USE_AGENT_STORE"), ("True", "False"))
            self.assertEqual(ours.pop("TORCHELASTIC_USE_AGENT_STORE"), "True")

            def kept(env):
                return {k: v for k, v in env.items()
                        if k not in self.OWN and not k.startswith("MGPU_")}
            self.assertEqual(kept(ours), kept(theirs))


if __name__ == "__main__":
    unittest.main()
