"""The evidence of real deadlocks in PyTorch programs: which rank is named, and what is kept."""

import pathlib
import unittest

from torch_job import TorchJobTest

NO_DEBUGGER = "/bin/none"  # gdb takes seconds to read torch's symbols


class HangEvidence(TorchJobTest):
    def hang(self, kind, nproc):
        """Runs the program until its hang has been found; returns the failed attempt."""
        job = self.program(nproc, "hanging.py", kind,
                           options=("--hang-timeout", 1, "--grace", 1, "--log-dir", self.dir / "logs"),
                           env={"PATH": NO_DEBUGGER})
        self.assertEqual(job.returncode, 137, job.err)
        attempt = job.report["attempts"][0]
        self.assertEqual(attempt["cause"]["kind"], "hang")
        self.assertEqual(attempt["first_failure"]["rank"], nproc - 1, attempt["cause"]["text"])
        self.assertIn(f"stacks  {attempt['evidence']}\n", job.err)
        self.evidence = pathlib.Path(attempt["evidence"])
        self.assertEqual(self.evidence.parent.name, "attempt_0")
        self.assertEqual({file.name for file in self.evidence.iterdir()},
                         {"summary.txt", *(f"rank_{rank}.txt" for rank in range(nproc))})
        return attempt["cause"]["text"]

    def test_a_rank_in_another_collective_is_named(self):
        text = self.hang("other", 3)
        self.assertRegex(text, r"; rank 2 is in barrier \(hanging\.py:41\), "
                               r"while ranks 0, 1 are in all_reduce \(hanging\.py:42\)$")
        self.assertIn("in all_reduce\n", (self.evidence / "rank_0.txt").read_text())

    def test_a_sleeping_rank_is_named(self):
        text = self.hang("sleeping", 2)
        self.assertRegex(text, r"; rank 1 is not in a collective operation: it is at "
                               r"hanging\.py:35 in main "
                               r"\(waits in .*nanosleep.*\), while rank 0 is in all_reduce")

    def test_a_rank_that_reads_a_pipe_is_named(self):
        text = self.hang("reading", 2)
        self.assertRegex(text, r"; rank 1 is not in a collective operation: it is at "
                               r"hanging\.py:15 in load_batch "
                               r"\(waits in .*pipe_read\), while rank 0 is in all_reduce")
        self.assertIn("hanging.py:15 in load_batch\n", (self.evidence / "rank_1.txt").read_text())

    def test_a_rank_in_an_endless_loop_is_named(self):
        text = self.hang("computing", 2)
        self.assertRegex(text, r"; rank 1 is not in a collective operation: it is at "
                               r"hanging\.py:\d+ in compute "
                               r"\(running\), while rank 0 is in all_reduce")

    def test_a_suspended_rank_is_named(self):
        text = self.hang("suspended", 2)
        self.assertRegex(text, "; rank 1 is suspended by a signal or a debugger$")
        self.assertIn("state T", (self.evidence / "summary.txt").read_text())


if __name__ == "__main__":
    unittest.main()
