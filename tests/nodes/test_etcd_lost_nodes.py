"""Jobs over etcd survive the loss of any node, also that of the leader."""

import re
import signal
import time
import unittest

from etcd_job import OverEtcd
from nodes_job import alive, send


class LeaderLost(OverEtcd):
    def test_the_job_survives_the_leader_s_agent_and_keeps_its_counts(self):
        world = self.job("--max-restarts", 1)
        self.break_rank(1)
        world = self.world(3, after=world)
        self.assertEqual(world.restarts, 1)
        rounds = self.newest_round()
        lost = self.leader()
        self.by_host[lost].kill()
        after = self.without(lost, world)
        self.assertEqual(after.restarts, 1)
        self.assertGreater(self.newest_round(), rounds)
        world = self.back(lost, after, "--max-restarts", 1)
        self.assertEqual(world.restarts, 1)
        self.break_rank(2)
        self.assert_ended(7, self.by_host.values())

    def newest_round(self):
        return max(int(number) for agent in self.agents
                   for number in re.findall(r"round (\d+): ", agent.err))

    def test_the_job_survives_when_each_new_leader_is_killed(self):
        world = self.job()
        for _ in range(3):
            lost = self.leader()
            self.by_host[lost].kill()
            world = self.without(lost, world)
            world = self.back(lost, world)
        self.assertEqual(world.restarts, 0)
        self.end_all()

    def test_the_last_of_two_nodes_continues_alone(self):
        world = self.job(nnodes="1:2", hosts=2)
        lost = self.leader()
        self.by_host.pop(lost).kill()
        after = self.world(1, after=world)
        self.assertEqual((after.hosts, after.restarts), ([f"host{1 - lost}"], 0))
        self.end_all()

    def test_the_job_survives_the_loss_of_another_node(self):
        world = self.job()
        lost = (self.leader() + 1) % 3
        self.by_host[lost].kill()
        after = self.without(lost, world)
        self.assertNotEqual(self.leader(), lost)
        self.back(lost, after)
        self.end_all()

    def test_the_job_survives_the_loss_of_the_leader_s_host(self):
        world = self.job()
        lost = self.leader()
        for pid in self.net[lost].pids():  # the guard too
            send(pid, signal.SIGKILL)
        self.by_host.pop(lost).process.wait()
        self.without(lost, world)
        self.end_all()

    def test_the_job_survives_when_the_leader_s_host_is_cut_off_and_returns(self):
        world = self.job()
        lost = self.leader()
        self.net[lost].cut()
        after = self.without(lost, world)
        mine = [life.pid for life in world.lives if life.host == f"host{lost}"]
        self.assertFalse(any(map(alive, mine)))
        self.assertNotEqual(self.leader(), lost)
        self.net[lost].heal()
        world = self.world(3, after=after)
        self.assertEqual(world.restarts, 0)
        self.end_all()

    def test_no_worker_starts_while_those_of_a_cut_off_leader_have_their_grace_period(self):
        self.grace = 3.0
        world = self.job(env={"COUNTING_STUBBORN": "1"})
        lost = self.leader()
        self.net[lost].cut()
        after = self.without(lost, world)
        (stubborn,) = [life for life in world.lives if life.host == f"host{lost}"]
        self.assertFalse(alive(stubborn.pid))
        self.net[lost].heal()
        self.world(3, after=after)
        self.end_all()

    def test_the_workers_of_a_frozen_leader_are_gone_before_the_others_start(self):
        world = self.job()
        lost = self.leader()
        self.by_host[lost].signal(signal.SIGSTOP)
        after = self.without(lost, world)
        mine = [life.pid for life in world.lives if life.host == f"host{lost}"]
        self.assertFalse(any(map(alive, mine)))
        self.by_host[lost].signal(signal.SIGCONT)
        self.world(3, after=after)
        self.end_all()

    def test_a_leader_that_receives_sigterm_leaves_and_the_others_continue_at_once(self):
        self.grace = 20.0  # the others know that its ranks have ended and do not wait
        world = self.job()
        left = self.leader()
        self.by_host[left].signal(signal.SIGTERM)
        start = time.monotonic()
        self.assertEqual(self.by_host.pop(left).wait(), 128 + signal.SIGTERM)
        after = self.world(2, after=world, steps=1)
        self.assertLess(time.monotonic() - start, self.grace / 2)
        self.assertEqual(after.restarts, 0)
        self.assertNotEqual(self.leader(), left)
        self.end_all()

    def test_a_job_stopped_on_all_nodes_leaves_no_state_to_the_next_job(self):
        world = self.job("--max-restarts", 1)
        self.break_rank(0)
        world = self.world(3, after=world)
        for agent in self.by_host.values():
            agent.signal(signal.SIGTERM)
        self.assert_ended(128 + signal.SIGTERM, self.by_host.values())
        self.assertEqual(self.job("--max-restarts", 1, after=world).restarts, 0)
        self.stop_counting()
        self.assertEqual([agent.wait() for agent in self.by_host.values()], [0] * 3)


if __name__ == "__main__":
    unittest.main()
