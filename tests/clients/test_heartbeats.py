"""Heartbeats of unmodified programs: the helper and the Trainer's callback of docs/examples."""

import unittest

from torch_job import ROOT, TorchJobTest


class Heartbeats(TorchJobTest):
    def hang(self, program, *args):
        job = self.program(2, program, *args, options=("--hang-timeout", 2, "--failure-grace", 1),
                           env={"PYTHONPATH": str(ROOT / "docs/examples"),
                                "PATH": "/bin/none"})  # without a debugger, which takes seconds
        self.assertEqual(job.returncode, 137, job.err)
        attempt = job.report["attempts"][0]
        self.assertEqual(attempt["cause"]["kind"], "hang")
        return attempt

    def test_a_program_that_makes_progress_is_left_alone(self):
        job = self.program(2, "heartbeats.py", "work", options=("--hang-timeout", 2),
                           env={"PYTHONPATH": str(ROOT / "docs/examples")})
        self.assert_ended_well(job)
        self.assertEqual(job.report["attempts"][0]["last_step"], 8)

    def test_a_suspended_rank_is_named_and_not_the_one_that_waits_for_it(self):
        attempt = self.hang("heartbeats.py", "stop")
        self.assertEqual(attempt["first_failure"]["rank"], 1)
        self.assertIn("rank 1 is suspended", attempt["cause"]["text"])
        self.assertEqual(attempt["last_step"], 5)

    def test_a_deadlocked_collective_is_a_hang(self):
        attempt = self.hang("heartbeats.py", "leave")
        self.assertEqual(attempt["first_failure"]["rank"], 1)
        self.assertIn("rank 1 is not in a collective operation", attempt["cause"]["text"])

    def test_a_trainer_with_the_callback_is_watched(self):
        attempt = self.hang("trainer_heartbeats.py")
        self.assertEqual(attempt["first_failure"]["rank"], 1)
        self.assertIn("rank 1 is suspended", attempt["cause"]["text"])
        self.assertEqual(attempt["last_step"], 5)

    def test_without_mgpu_run_the_helper_does_nothing(self):
        job = self.start("-c", "import heartbeat; heartbeat.heartbeat(step=1)",
                         program=self.torch_env["PYTHON_EXEC"],
                         env={"PYTHONPATH": str(ROOT / "docs/examples")})
        self.assertEqual(job.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
