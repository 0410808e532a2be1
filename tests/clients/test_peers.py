"""torchrun within mgpu-run and around it, and programs that serve their own store."""

import json
import pathlib
import socket
import subprocess
import unittest

from torch_job import LIMIT, MGPU_RUN, PROGRAMS, TORCH_PYTHON, TorchJobTest, environment

TORCHRUN = pathlib.Path(TORCH_PYTHON).parent / "torchrun"


class Torchrun(TorchJobTest):
    """The first failure is passed on through error files, whichever launcher is the outer one."""

    MESSAGE = "ValueError: the third layer is upside down"

    def test_torchrun_within_a_rank_reports_the_failure_of_its_worker(self):
        job = self.torch("-n", 1, "--no-python", TORCHRUN, "--standalone", "--nproc-per-node", 2,
                         PROGRAMS / "recorded.py")
        self.assertEqual(job.returncode, 1)
        attempt = job.report["attempts"][0]
        self.assertEqual((attempt["cause"]["kind"], attempt["cause"]["text"]),
                         ("python_exception", self.MESSAGE))
        self.assertEqual(attempt["error_file"]["message"]["errorCode"], 1)
        self.assertIn(f"cause   {self.MESSAGE}", job.err)

    def test_torchrun_around_mgpu_run_gets_the_failure_of_the_rank(self):
        outer = self.dir / "outer.json"
        job = subprocess.run(
            [TORCHRUN, "--standalone", "--nproc-per-node=1", "--no-python", MGPU_RUN, "-n", "2",
             PROGRAMS / "recorded.py"], capture_output=True, text=True, timeout=LIMIT, cwd=self.dir,
            env=environment(**self.torch_env, TMPDIR=str(self.dir),
                            TORCHELASTIC_ERROR_FILE=str(outer)))
        self.assertEqual(job.returncode, 1)
        root_cause = job.stderr[job.stderr.index("Root Cause"):]
        self.assertIn(self.MESSAGE, root_cause)
        self.assertIn("recorded.py", root_cause)
        error = json.loads(outer.read_text())["message"]  # torchrun's copy of our file
        self.assertEqual((error["message"], error["errorCode"]), (self.MESSAGE, 1))


class OwnStore(TorchJobTest):
    def check(self, *args, options=()):
        job = self.program(2, "own_store.py", *args, options=options)
        self.assert_ended_well(job)
        self.assertEqual(self.results(job), [{"rank": rank, "sum": 3} for rank in range(2)])

    def test_a_store_of_rank_0_on_master_port_uses_the_agent_s_store(self):
        self.check("store")

    def test_rank_0_serves_its_store_on_master_port_with_rank0_store(self):
        self.check("store", options=["--rank0-store"])

    def test_a_store_on_the_program_s_own_port_works_with_rank0_store(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.check(port, options=["--rank0-store"])


if __name__ == "__main__":
    unittest.main()
