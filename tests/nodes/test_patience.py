"""How long an agent tries to reach its leader and how often it reports. Takes over a minute;
scripts/run_tests.py runs it beside the others."""

import re
import time
import unittest

from nodes_job import COULD_NOT_JOIN, NodesTest, slowly, until

SECONDS = 68  # two messages, the second a minute after the first


class Patience(NodesTest):
    join_timeout = SECONDS

    def test_an_unreachable_leader_is_reported_after_3_s_and_once_a_minute_until_status_75(self):
        start = time.monotonic()
        agent = self.agent(1)  # no leader listens on host0

        def after(lines, limit):
            until(slowly(lambda: agent.err.count("\n") >= lines), limit, f"line {lines}")
            return time.monotonic() - start
        times = [after(1, 20), after(2, 80)]
        self.assertEqual(agent.wait(SECONDS), COULD_NOT_JOIN)
        ended = time.monotonic() - start

        first, second, last = agent.err.splitlines()
        for line, when in zip((first, second), times):
            told = re.fullmatch(rf"mgpu-run: cannot reach the leader at {self.endpoint()} yet "
                                rf"\({self.endpoint()}: Connection refused\); trying on for "
                                r"(\d+) s", line)
            self.assertTrue(told, line)
            self.assertAlmostEqual(int(told[1]), SECONDS - when, delta=3)
        self.assertEqual(last, f"mgpu-run: could not meet the leader at {self.endpoint()} within "
                         f"{SECONDS} s: {self.endpoint()}: Connection refused")
        self.assertGreater(times[0], 3)
        self.assertLess(times[0], 3 + 1 + 3)  # a pause between two calls, a busy machine
        self.assertGreater(times[1] - times[0], 59)
        self.assertAlmostEqual(ended, SECONDS, delta=3)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
