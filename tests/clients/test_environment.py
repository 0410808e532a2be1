"""The environment of each worker is the one that torchrun sets for the same options.

Deliberate differences: MASTER_PORT is a free port unless one is given (torchrun: 29500);
--standalone sets MASTER_ADDR to 127.0.0.1 (torchrun: the host name, which may not resolve);
and only mgpu-run sets MGPU_JOB_COOKIE, MGPU_LEADER_ADDR and MGPU_OOM_COUNT.
"""

import glob
import pathlib
import re
import socket
import subprocess
import unittest

from torch_job import LIMIT, TORCH_PYTHON, TorchJobTest, environment

OURS = {"MGPU_JOB_COOKIE", "MGPU_LEADER_ADDR", "MGPU_OOM_COUNT", "MGPU_WORKER_SOCKET"}
DUMP = 'env -0 > "$DUMPS.$RANK"'
ANY = "<any>"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Environment(TorchJobTest):
    def dumps(self, name, ranks):
        found = []
        for rank in range(ranks):
            text = (self.dir / f"{name}.{rank}").read_bytes().decode().rstrip("\0")
            found.append(dict(entry.split("=", 1) for entry in text.split("\0")))
        return found

    def both(self, ranks, *flags, env=None):
        """The environments that torchrun and mgpu-run set, by rank."""
        flags = ["--nproc-per-node", str(ranks), *flags, "--no-python", "/bin/sh", "-c", DUMP]
        env = {"CUDA_VISIBLE_DEVICES": "", "TMPDIR": str(self.dir), **(env or {})}
        subprocess.run([pathlib.Path(TORCH_PYTHON).parent / "torchrun", *flags], check=True,
                       env=environment(**env, DUMPS="torchrun"), cwd=self.dir, timeout=LIMIT,
                       capture_output=True)
        self.assert_ended_well(self.run_job(*flags, env={**env, "DUMPS": "mgpu-run"}))
        return self.dumps("torchrun", ranks), self.dumps("mgpu-run", ranks)

    def check(self, ranks, *flags, env=None, but=()):
        torchrun, ours = self.both(ranks, *flags, env=env)
        for expected, got in zip(torchrun, ours, strict=True):
            self.assertGreater(int(got["MASTER_PORT"]), 0)
            self.assertEqual(set(got) - set(expected), OURS)
            for name in ("_", "DUMPS", *but):
                expected[name] = got[name] = ANY
            for worker in (expected, got):  # the folder above has a random name
                worker["TORCHELASTIC_ERROR_FILE"] = re.sub(r"^/.*/(?=attempt_)", "…/",
                                                           worker["TORCHELASTIC_ERROR_FILE"])
            self.assertEqual({k: v for k, v in got.items() if k not in OURS}, expected)
        return ours

    def test_two_ranks_with_a_role_restarts_and_a_run_id_get_torchrun_s_variables(self):
        first, second = self.check(2, "--max-restarts", "3", "--role", "trainer", "--rdzv-id", "j7",
                                   "--log-dir", str(self.dir / "logs"), but=["MASTER_PORT"])
        self.assertEqual((first["GROUP_WORLD_SIZE"], second["ROLE_NAME"]), ("1", "trainer"))
        self.assertTrue(second["TORCHELASTIC_ERROR_FILE"].endswith("/attempt_0/1/error.json"))

    def test_one_rank_that_inherits_variables_gets_torchrun_s_variables(self):
        inherited = {"OMP_NUM_THREADS": "3", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "SENTINEL": "a=b"}
        (only,) = self.check(1, "--master-addr", "127.0.0.1", "--master-port", free_port(),
                             "--log-dir", "/dev/null", env=inherited)
        self.assertEqual({name: only[name] for name in inherited}, inherited)
        self.assertEqual(only["TORCHELASTIC_ERROR_FILE"], "")

    def test_a_standalone_job_gets_torchrun_s_variables(self):
        self.check(1, "--standalone", but=["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"])

    @unittest.skipIf(glob.glob("/dev/nvidia[0-9]*"), "the GPUs named here are made up")
    def test_virtual_local_ranks_get_torchrun_s_variables(self):
        workers = self.check(2, "--virtual-local-rank", "--signals-to-handle", "SIGTERM,SIGUSR1",
                             env={"CUDA_VISIBLE_DEVICES": "4,6,7"}, but=["MASTER_PORT"])
        self.assertEqual([w["CUDA_VISIBLE_DEVICES"] for w in workers], ["4", "6"])

    def test_each_standalone_job_has_its_own_run_id(self):
        ids = [self.sh(1, 'echo "$TORCHELASTIC_RUN_ID"', "--standalone").out for _ in range(2)]
        self.assertNotEqual(*ids)


if __name__ == "__main__":
    unittest.main()
