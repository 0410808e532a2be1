"""Jobs over etcd survive the loss of any etcd member, and wait for an etcd that is missing."""

import time
import unittest

from etcd_job import SLACK, OverEtcd
from nodes_job import COULD_NOT_JOIN, USAGE_ERROR, alive, lines_with, slowly, until


class Members(OverEtcd):
    servers = 3
    keep_alive = 5.0  # etcd takes one or two to elect another leader of its own

    def test_the_job_is_not_disturbed_when_each_member_in_turn_is_lost(self):
        world = self.job()
        for member in self.etcd.members:
            member.kill()
            self.wait_for_steps(steps=150)  # longer than the lease
            member.start()
            self.etcd.wait()
        self.assertEqual([found.name for found in self.worlds()], [world.name])
        self.end_all()

    def test_the_leader_is_replaced_while_a_member_is_lost(self):
        world = self.job()
        self.etcd.members[0].kill()
        lost = self.leader()
        self.by_host[lost].kill()
        after = self.without(lost, world)
        self.back(lost, after)
        self.end_all()

    def test_no_worker_runs_without_a_majority_and_all_continue_with_one(self):
        world = self.job()
        for member in self.etcd.members[1:]:
            member.kill()
        until(slowly(lambda: not any(map(alive, world.pids))), self.lease() + self.grace + SLACK,
              "the end of the workers")
        self.assertTrue(all(agent.running for agent in self.agents))
        for member in self.etcd.members[1:]:
            member.start()
        self.etcd.wait()
        after = self.world(3, after=world)
        self.assertEqual(after.restarts, 0)
        self.end_all()


class Unreachable(OverEtcd):
    hosts = 1

    def test_a_missing_etcd_is_reported_and_waited_for_until_the_join_timeout(self):
        started = time.monotonic()
        agent = self.agent(0, 2, rdzv=self.rdzv(f"{self.net[0].v4}:2379", join_timeout=6))
        self.assertEqual(agent.wait(), COULD_NOT_JOIN)
        self.assertGreaterEqual(time.monotonic() - started, 5.9)
        lines = lines_with(agent.err, "etcd")
        self.assertEqual(len(lines), 2, agent.err)  # after 3 s, and at the end
        for line in lines:
            self.assertIn(f"{self.net[0].v4}:2379", line)
            self.assertIn("Connection refused", line)

    def test_an_etcd_that_starts_late_is_found(self):
        self.etcd.members[0].kill()
        agent = self.agent(0, "1:2")
        until(slowly(lambda: lines_with(agent.err, "Connection refused")), 20, "a complaint")
        self.etcd.members[0].start()
        self.world(1)
        self.end_well()

    def test_unreadable_certificate_files_are_a_usage_error(self):
        agent = self.agent(0, 2, rdzv=self.rdzv(protocol="https", cacert="/nowhere/ca.pem"))
        self.assertEqual(agent.wait(), USAGE_ERROR)
        self.assertEqual(len(agent.err.splitlines()), 1, agent.err)
        self.assertIn("cacert=/nowhere/ca.pem", agent.err)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
