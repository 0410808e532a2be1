"""A job of two nodes that hangs because a rank on one of them is suspended."""

import json
import sys
import unittest

from nodes_job import PROGRAMS, NodesTest


class Hangs(NodesTest):
    def test_the_node_of_the_suspended_rank_names_it(self):
        program = ["--no-python", sys.executable, "-S", "-E", PROGRAMS / "stopping.py", self.counts]
        report = self.dir / "report.json"
        agents = [self.agent(host, None, "--hang-timeout", 1, "--max-restarts", 1, "--report",
                             f"{report}.{host}", program=program) for host in range(2)]
        self.assertEqual([agent.wait() for agent in agents], [0, 0])
        # The leader's report has the results of all nodes.
        failed, last = max(
            (json.loads((self.dir / f"report.json.{host}").read_text())["attempts"] for host in range(2)),
            key=lambda attempts: len(attempts[0]["ranks"]))
        self.assertEqual(failed["cause"]["kind"], "hang")
        self.assertEqual(failed["first_failure"]["rank"], 1)
        self.assertIn("rank 1 is suspended by a signal or a debugger", failed["cause"]["text"])
        self.assertEqual((failed["last_step"], last["last_step"]), (5, 7))

    def test_a_rank_that_gave_up_waiting_for_a_suspended_one_on_another_node_is_not_the_cause(self):
        program = ["--no-python", sys.executable, "-S", "-E", PROGRAMS / "giving_up.py", self.counts]
        report = self.dir / "report.json"
        agents = [self.agent(host, None, "--grace", 1, "--report", f"{report}.{host}", program=program)
                  for host in range(2)]
        self.assertEqual([agent.wait() for agent in agents], [1, 1])
        # The leader's report has the results of all nodes.
        (failed,) = max(
            (json.loads((self.dir / f"report.json.{host}").read_text())["attempts"] for host in range(2)),
            key=lambda attempts: len(attempts[0]["ranks"]))
        self.assertEqual(failed["cause"]["kind"], "hang")
        self.assertEqual(failed["first_failure"]["rank"], 1)
        self.assertEqual(failed["root_rank"], 1)
        self.assertRegex(failed["cause"]["text"],
                         "rank 1 on .* was suspended by a signal or a debugger; rank 0 timed out waiting for it: .*Timed out")


if __name__ == "__main__":
    unittest.main()
