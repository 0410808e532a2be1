"""Trains over NCCL with two agents of one GPU each, and expects the bits that one agent with two
GPUs gives. Run by hand on a machine with GPUs, with a Python that has torch and transformers:

    cd tests/gpu; python -B -m unittest -v test_two_agents

MGPU_BUILD is the build folder [build]. Each agent is a node of the job. Its rank finds the other
one through shared memory or NVLink, as on one node; in the tests with sockets both believe that
they are on different hosts (NCCL_HOSTID). Every sum has two terms, so its bits do not depend on
their order.

With a single GPU all ranks share it, and all tests use sockets.
"""

import glob
import json
import pathlib
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import trainer  # noqa: E402
from grpo_trainer import GrpoTest  # noqa: E402

GPUS = len(glob.glob("/dev/nvidia[0-9]*"))
SHARED = GPUS == 1
SOCKETS = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
# NCCL refuses two ranks on one GPU of one host.
DIFFERENT_HOSTS = [{"NCCL_HOSTID": name, **SOCKETS} for name in ("first", "second")]
LIMIT = 240
RUN = str(trainer.BIN / "mgpu-run")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def setUpModule():
    print("one GPU, which all ranks share; over sockets" if SHARED else "two GPUs", file=sys.stderr)


@unittest.skipIf(GPUS == 0, "needs a GPU")
class TwoAgents(trainer.TrainerTest):
    def start_agent(self, recipe, folder, gpus, options, keys, env=None, ranks=1):
        settings = {"dtype": "bf16", "full_determinism": True, "max_steps": 4, **keys}
        job = self.start(
            "--nproc", ranks, *options, recipe, f"--set=output_dir={folder}",
            *(f"--set={key}={json.dumps(value)}" for key, value in settings.items()), program=RUN,
            env={"CUDA_VISIBLE_DEVICES": gpus, "NCCL_NVLS_ENABLE": "0", **(env or {})})
        job.folder = folder
        return job

    def assert_ended(self, *jobs):
        runs = [self.end(job, LIMIT) for job in jobs]
        self.assertEqual([run.status for run in runs], [0] * len(runs),
                         "".join(run.out + run.err for run in runs))
        return runs[0]

    def assert_equal_runs(self, env=({}, {}), **keys):
        """Trains with one agent, then with two; returns both runs."""
        if SHARED:
            env = DIFFERENT_HOSTS
        recipe = self.recipe()  # written once: the first agent reads it while the second one starts
        one = self.assert_ended(
            self.start_agent(recipe, self.dir / "one", "0", ("--oversubscribe",), keys, SOCKETS, 2)
            if SHARED else self.start_agent(recipe, self.dir / "one", "0,1", (), keys, ranks=2))
        token = self.write("token", "a secret of this test, 32 bytes or more\n", 0o600)
        job = ["--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", free_port(),
               "--rdzv-token-file", token, "--rdzv-conf", "join_timeout=60", "--node-rank"]
        two = self.assert_ended(*(
            self.start_agent(recipe, self.dir / "two", "0" if SHARED else str(rank), [*job, rank],
                             keys, env[rank])
            for rank in range(2)))
        self.assertIn("2 nodes, 2 ranks", two.err)
        self.assert_same_course(two, one)
        return one, two

    def assert_equal_over_sockets(self, **keys):
        return self.assert_equal_runs(DIFFERENT_HOSTS, **keys)


class Sft(TwoAgents):
    def test_two_agents_give_the_losses_of_one(self):
        self.assert_equal_runs()

    def test_two_agents_with_sharded_weights_give_the_losses_of_one(self):
        self.assert_equal_runs(zero_stage=3)

    def test_two_agents_over_sockets_give_the_losses_of_one(self):
        self.assert_equal_over_sockets()


class Grpo(TwoAgents, GrpoTest):
    def assert_same_completions(self, runs):
        one, two = runs
        self.assertEqual(self.completions(two), self.completions(one))
        self.assertEqual(two.column("reward"), one.column("reward"))

    def test_two_agents_give_the_losses_and_completions_of_one(self):
        self.assert_same_completions(self.assert_equal_runs(log_completions=True))

    def test_two_agents_over_sockets_give_the_losses_and_completions_of_one(self):
        self.assert_same_completions(self.assert_equal_over_sockets(log_completions=True))


if __name__ == "__main__":
    unittest.main()
