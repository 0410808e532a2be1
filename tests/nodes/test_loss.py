"""Lost nodes: killed, frozen or cut off, for a while or for good."""

import signal
import time
import unittest

from nodes_job import COULD_NOT_JOIN, NodesTest, alive, lines_with, send, slowly, until

SLACK = 6  # seconds that a busy machine may add


class Loss(NodesTest):
    hosts = 3

    def three(self):
        agents = [self.agent(host, "2:3") for host in range(3)]
        return agents, self.world(3)

    def without(self, host, world):
        """Waits for the world of the other two and checks that it formed in time."""
        start = time.monotonic()
        after = self.world(2, after=world, steps=1)
        self.assertLess(time.monotonic() - start, self.keep_alive + self.grace + SLACK)
        self.assertNotIn(f"host{host}", after.hosts)
        self.assertEqual(after.restarts, world.restarts)
        return after

    def runs_on(self, agents, world, keep_alives=6):
        """Checks that the world keeps counting for so long and that no agent ends."""
        deadline = time.monotonic() + keep_alives * self.keep_alive
        while time.monotonic() < deadline:
            self.assertEqual(self.worlds()[-1].name, world.name)
            self.assertTrue(all(agent.running for agent in agents))
            time.sleep(0.1)
        self.wait_for_steps()
        self.assertEqual(self.worlds()[-1].name, world.name)


class Killed(Loss):
    def test_torchrun_defect_3_a_lost_node_is_detected(self):
        agents = [self.agent(host, "1:2") for host in range(2)]
        world = self.world(2)
        agents[1].kill()
        after = self.world(1, after=world)  # torchrun: 60 s later the world is still that of two
        self.assertEqual(after.hosts, ["host0"])
        self.end_well(agents[:1])

    def test_the_job_survives_the_loss_of_each_agent_but_the_leader(self):
        agents, world = self.three()
        for host in (1, 2):
            agents[host].kill()
            until(slowly(lambda h=host: not self.net[h].pids()), self.grace + 10,
                  "the end of what the agent left")
            world = self.without(host, world)
            agents[host] = self.agent(host, "2:3")
            world = self.world(3, after=world)
        self.end_well(agents)

    def test_the_job_waits_for_its_leader_and_continues(self):
        agents, world = self.three()
        agents[0].kill()
        until(slowly(lambda: not any(map(alive, world.pids))), self.keep_alive + self.grace + SLACK,
              "the end of the workers")
        self.assertTrue(agents[1].running and agents[2].running)
        agents[0] = self.agent(0, "2:3")
        self.world(3, after=world)
        self.end_well(agents)

    def test_the_restart_count_survives_the_loss_of_the_leader(self):
        agents = [self.agent(host, "2:3", "--max-restarts", 2) for host in range(3)]
        world = self.world(3)
        self.break_rank(1)
        world = self.world(3, after=world)
        agents[0].kill()
        until(slowly(lambda: not any(map(alive, world.pids))), self.keep_alive + self.grace + SLACK,
              "the end of the workers")
        agents[0] = self.agent(0, "2:3", "--max-restarts", 2)
        self.assertEqual(self.world(3, after=world).restarts, 1)
        self.end_well(agents)

    def test_the_others_end_at_the_join_timeout_when_the_leader_stays_away(self):
        self.join_timeout = 5
        agents, _ = self.three()
        agents[0].kill()
        self.assert_ended(COULD_NOT_JOIN, agents[1:],
                          limit=self.keep_alive + self.grace + 5 + 15)
        for agent in agents[1:]:
            self.assertTrue(lines_with(agent.err, self.net[0].v4), agent.err)

    def test_the_job_survives_a_leader_that_is_restarted_at_once(self):
        agents, world = self.three()
        agents[0].kill()
        agents[0] = self.agent(0, "2:3")
        self.world(3, after=world)
        self.end_well(agents)

    def test_the_job_starts_again_when_all_agents_were_killed(self):
        agents, world = self.three()
        for agent in agents:
            agent.kill()
        agents = [self.agent(host, "2:3") for host in (2, 1, 0)]
        self.world(3, after=world)
        self.end_well(agents)

    def test_the_job_survives_the_loss_of_a_host(self):
        agents, world = self.three()
        for pid in self.net[1].pids():  # the guard too: no process is left to report it
            send(pid, signal.SIGKILL)
        agents[1].process.wait()
        self.without(1, world)
        self.end_well([agents[0], agents[2]])


class Frozen(Loss):
    def test_the_workers_of_a_frozen_agent_are_gone_before_the_others_start(self):
        agents, world = self.three()
        agents[1].signal(signal.SIGSTOP)
        after = self.without(1, world)
        mine = [life.pid for life in world.lives if life.host == "host1"]
        self.assertFalse(any(map(alive, mine)))
        agents[1].signal(signal.SIGCONT)
        self.world(3, after=after)
        self.end_well(agents)

    def test_the_job_survives_a_frozen_leader(self):
        agents, world = self.three()
        agents[0].signal(signal.SIGSTOP)
        until(slowly(lambda: not any(map(alive, world.pids))), self.keep_alive + self.grace + SLACK,
              "the end of the workers")
        agents[0].signal(signal.SIGCONT)
        self.world(3, after=world)
        self.end_well(agents)

    def test_a_freeze_shorter_than_the_keep_alive_does_not_disturb_the_job(self):
        self.keep_alive = 4
        agents, world = self.three()
        for agent in agents:
            agent.signal(signal.SIGSTOP)
            time.sleep(0.5)  # the time that it is frozen
            agent.signal(signal.SIGCONT)
        self.wait_for_steps(steps=30)
        self.assertEqual([w.name for w in self.worlds()], [world.name])
        self.end_well(agents)


class GraceDiffers(Loss):
    hosts = 2

    def test_two_worlds_never_run_at_once_although_a_frozen_node_has_a_longer_grace_period(self):
        leader = self.agent(0, "1:2")
        self.grace = 4.0
        frozen = self.agent(1, "1:2", env={"COUNTING_STUBBORN": "1"})
        world = self.world(2)
        frozen.signal(signal.SIGSTOP)
        after = self.world(1, after=world, steps=1)
        (old,) = [life for life in world.lives if life.host == "host1"]
        self.assertFalse(alive(old.pid))
        self.assertTrue(lines_with(leader.err, "different grace periods"), leader.err)
        frozen.signal(signal.SIGCONT)
        self.world(2, after=after)
        self.end_well()


class Cut(Loss):
    def check_cut(self, cut):
        agents, world = self.three()
        getattr(self.net[2], cut)()
        after = self.without(2, world)
        mine = [life.pid for life in world.lives if life.host == "host2"]
        self.assertFalse(any(map(alive, mine)))
        self.assertTrue(agents[2].running)
        self.net[2].heal()
        self.world(3, after=after)
        self.end_well(agents)

    def test_a_host_that_was_cut_off_joins_again(self):
        self.check_cut("cut")

    def test_a_host_that_receives_nothing_is_lost_and_joins_again(self):
        self.check_cut("cut_in")

    def test_a_host_that_cannot_send_is_lost_and_joins_again(self):
        self.check_cut("cut_out")

    def test_no_worker_starts_while_those_of_a_cut_off_host_have_their_grace_period(self):
        self.grace = 3.0
        agents = [self.agent(host, "2:3") for host in range(2)]
        agents.append(self.agent(2, "2:3", env={"COUNTING_STUBBORN": "1"}))
        world = self.world(3)
        self.net[2].cut()
        after = self.without(2, world)
        (stubborn,) = [life for life in world.lives if life.host == "host2"]
        self.assertFalse(alive(stubborn.pid))
        self.assertGreater(after.first - stubborn.last, self.grace)
        self.net[2].heal()
        self.world(3, after=after)
        self.end_well(agents)

    def test_a_new_leader_waits_until_unseen_workers_must_have_ended(self):
        self.grace = 3.0
        agents = [self.agent(host, "2:3") for host in range(2)]
        agents.append(self.agent(2, "2:3", env={"COUNTING_STUBBORN": "1"}))
        world = self.world(3)
        self.net[2].cut()
        agents[0].kill()
        agents[0] = self.agent(0, "2:3")
        after = self.world(2, after=world, steps=1)
        (stubborn,) = [life for life in world.lives if life.host == "host2"]
        self.assertFalse(alive(stubborn.pid))
        self.net[2].heal()
        self.world(3, after=after)
        self.end_well(agents)

    def check_leader(self, cut):
        agents, world = self.three()
        getattr(self.net[0], cut)()
        until(slowly(lambda: not any(map(alive, world.pids))), self.keep_alive + self.grace + SLACK,
              "the end of the workers")
        self.net[0].heal()
        self.world(3, after=world)
        self.end_well(agents)

    def test_the_job_survives_a_leader_that_is_cut_off(self):
        self.check_leader("cut")

    def test_the_job_survives_a_leader_that_cannot_send(self):
        self.check_leader("cut_out")

    def test_the_job_survives_a_leader_that_receives_nothing(self):
        self.check_leader("cut_in")

    def test_a_host_that_stays_cut_off_ends_at_the_join_timeout(self):
        self.join_timeout = 5
        agents, world = self.three()
        self.net[2].cut()
        self.without(2, world)
        self.assertEqual(agents[2].wait(self.keep_alive + self.grace + 5 + 15), COULD_NOT_JOIN)
        self.assertTrue(lines_with(agents[2].err, self.net[0].v4), agents[2].err)
        self.end_well(agents[:2])

    def test_a_cut_shorter_than_the_keep_alive_does_not_disturb_the_job(self):
        self.keep_alive = 4
        agents, world = self.three()
        self.net[1].cut()
        time.sleep(0.5)  # the time that it is cut
        self.net[1].heal()
        self.wait_for_steps(steps=30)
        self.assertEqual([w.name for w in self.worlds()], [world.name])
        self.end_well(agents)


class Datagrams(Loss):
    """Firewalls that pass only TCP, which then carries the heartbeats."""

    def runs_without(self, dropped, agents, world):
        before = dropped()
        self.runs_on(agents, world)
        self.assertGreater(dropped(), before)

    def check_cut(self, agents, world):
        self.net[2].cut()
        after = self.without(2, world)
        self.assertFalse(any(alive(life.pid) for life in world.lives if life.host == "host2"))
        self.net[2].heal()
        self.world(3, after=after)
        self.end_well(agents)

    def test_a_node_without_datagrams_is_kept_and_its_loss_is_detected(self):
        dropped = self.net[2].drop_datagrams()
        agents, world = self.three()
        self.runs_without(dropped, agents, world)
        self.check_cut(agents, world)

    def test_a_node_whose_datagrams_stop_in_mid_run_is_kept(self):
        agents, world = self.three()
        self.wait_for_steps(steps=30)
        dropped = self.net[2].drop_datagrams()
        self.runs_without(dropped, agents, world)
        self.check_cut(agents, world)

    def test_a_leader_whose_firewall_rejects_datagrams_loses_no_node(self):
        dropped = self.net[0].refuse_datagrams()
        agents, world = self.three()
        self.runs_without(dropped, agents, world)
        self.check_cut(agents, world)


class PromptWorkers(Loss):
    keep_alive = 0.5

    def test_the_shortest_keep_alive_detects_a_lost_node_in_that_time(self):
        agents, world = self.three()
        self.net[1].cut()
        start = time.monotonic()
        until(slowly(lambda: not any(alive(life.pid) for life in world.lives
                                     if life.host != "host1")), 30)
        self.assertLess(time.monotonic() - start, self.keep_alive + 2)
        self.without(1, world)
        self.net[1].heal()
        self.world(3, after=world)
        self.end_well(agents)


if __name__ == "__main__":
    unittest.main()
