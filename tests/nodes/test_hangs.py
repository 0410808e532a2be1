"""A job of two nodes that hangs because a rank on one of them is suspended."""

import json
import sys
import time
import unittest

from nodes_job import PROGRAMS, NodesTest, slowly, until


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
        program = ["--no-python", sys.executable, "-S", "-E", PROGRAMS / "giving_up.py", self.counts,
                   "RuntimeError: Timed out waiting 4000ms for recv operation to complete"]
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

    def test_the_policy_for_hangs_applies_to_a_time_out_because_of_a_suspended_rank_on_another_node(self):
        program = ["--no-python", sys.executable, "-S", "-E", PROGRAMS / "giving_up.py", self.counts,
                   "TimeoutError: the barrier of the program timed out"]
        report = self.dir / "report.json"
        agents = [self.agent(host, None, "--grace", 1, "--max-restarts", 3, "--on-failure", "hang=give_up",
                             "--report", f"{report}.{host}", program=program) for host in range(2)]
        self.assertEqual([agent.wait() for agent in agents], [1, 1])
        attempts = max(
            (json.loads((self.dir / f"report.json.{host}").read_text())["attempts"] for host in range(2)),
            key=lambda attempts: len(attempts[0]["ranks"]))
        self.assertEqual([attempt["cause"]["kind"] for attempt in attempts], ["hang"])
        self.assertEqual(attempts[0]["policy"], "give_up")

    def silent(self, prints):
        program = ["--no-python", sys.executable, "-S", "-E", PROGRAMS / "silent.py", self.counts, prints]
        return [self.agent(host, None, "--hang-timeout", 2, "--hang-activity", "output", "--failure-grace", 0,
                           "--report", self.dir / f"report.json.{host}", program=program) for host in range(2)]

    def test_ranks_without_output_hang_only_if_those_of_the_other_node_have_none_either(self):
        agents = self.silent(prints=0)
        began = time.monotonic()
        # Longer than the limit and what a node without a suspect waits in addition.
        until(slowly(lambda: time.monotonic() > began + 25), 40)
        self.assertTrue(all(agent.running for agent in agents))
        (self.counts / "go").touch()
        self.assertEqual([agent.wait() for agent in agents], [0, 0])
        self.assertNotIn("hang", "".join(agent.err for agent in agents))

    def test_a_job_whose_ranks_have_all_stopped_writing_hangs(self):
        agents = self.silent(prints=-1)
        self.assertEqual([agent.wait(60) for agent in agents], [137, 137])
        reports = [json.loads((self.dir / f"report.json.{host}").read_text()) for host in range(2)]
        causes = [attempt["cause"] for report in reports for attempt in report["attempts"] if "cause" in attempt]
        self.assertTrue(any(cause["kind"] == "hang" and "wrote output for" in cause["text"] for cause in causes),
                        causes)
        self.assertRegex("".join(agent.err for agent in agents), r"hang: no rank on host[01] wrote output for")


if __name__ == "__main__":
    unittest.main()
