"""SIGTSTP (^Z) on nodes of a job: its ranks wait, and no node is lost."""

import signal
import time
import unittest

from nodes_job import NodesTest, alive, slowly, until


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0]


class Suspended(NodesTest):
    """A job of two nodes, whose keep-alive and grace period are over before it continues."""

    def setUp(self):
        super().setUp()
        self.agents_ = self.all_agents()
        self.before = self.world(2)

    def suspend(self, *hosts):
        for host in hosts:
            self.agents_[host].signal(signal.SIGTSTP)
            until(slowly(lambda h=host: state(self.agents_[h].pid) == "T"), 10, "a stopped agent")
        until(slowly(lambda: all(state(pid) == "T" for pid in self.before.pids)), 10,
              "stopped ranks")

    def wait_until_it_would_be_lost(self):
        """Time must pass: nothing happens that could be waited for."""
        time.sleep(self.keep_alive + self.grace + 0.5)
        self.assertTrue(all(state(pid) == "T" for pid in self.before.pids))

    def resume(self, *hosts):
        for host in hosts:
            self.agents_[host].signal(signal.SIGCONT)

    def check_it_continues(self):
        self.wait_for_steps()
        self.assertEqual([world.name for world in self.worlds()], [self.before.name])
        self.end_well()


class OneNode(Suspended):
    def check(self, host):
        self.suspend(host)
        self.wait_until_it_would_be_lost()
        self.resume(host)
        self.check_it_continues()

    def test_a_suspended_node_is_not_lost_after_the_keep_alive(self):
        self.check(1)
        self.assertIn("suspended", self.agents_[0].err)

    def test_a_suspended_leader_is_not_lost_after_the_keep_alive(self):
        self.check(0)


class AllNodes(Suspended):
    def check(self, order, back):
        self.suspend(*order)
        self.wait_until_it_would_be_lost()
        self.resume(back[0])
        until(slowly(lambda: state(self.agents_[back[0]].pid) != "T"), 10, "a running agent")
        self.assertTrue(all(state(pid) == "T" for pid in self.before.pids))
        self.resume(back[1])
        self.check_it_continues()

    def test_all_nodes_suspended_and_the_leader_resumed_first(self):
        self.check((1, 0), (0, 1))

    def test_all_nodes_suspended_and_the_leader_resumed_last(self):
        self.check((0, 1), (1, 0))


class Ends(Suspended):
    def test_a_suspended_node_that_is_stopped_leaves_the_job(self):
        self.suspend(1)
        self.agents_[1].signal(signal.SIGTERM)
        self.resume(1)
        self.assertEqual(self.agents_[1].wait(), 128 + signal.SIGTERM)
        until(slowly(lambda: not any(map(alive, self.before.pids))), 10, "the end of the ranks")
        self.agents_[0].signal(signal.SIGTERM)
        self.assertEqual(self.agents_[0].wait(), 128 + signal.SIGTERM)
        self.assert_nothing_left()

    def test_a_suspended_node_that_is_killed_is_lost(self):
        self.suspend(1)
        self.agents_[1].kill()
        self.agents_[1] = self.agent(1)
        self.world(2, after=self.before)
        self.end_well([agent for agent in self.agents if agent.running])

    def test_a_suspended_node_that_was_cut_off_does_not_continue_its_old_round(self):
        self.suspend(1)
        self.net[1].cut()
        self.resume(1)
        until(slowly(lambda: not alive(self.before.pids[1])), self.keep_alive + self.grace + 6,
              "the end of its rank")
        self.net[1].heal()
        self.world(2, after=self.before)
        self.end_well()


if __name__ == "__main__":
    unittest.main()
