"""Jobs that grow and shrink: new nodes, spares, nodes that leave, and one restart count."""

import signal
import time
import unittest

from nodes_job import COULD_NOT_JOIN, NodesTest, alive, lines_with, slowly, until


class Grow(NodesTest):
    hosts = 3

    def test_torchrun_defect_2_a_node_can_join_a_running_job(self):
        self.agent(0, "1:2")
        alone = self.world(1)
        self.agent(1, "1:2")
        both = self.world(2, after=alone)
        self.assertEqual(both.hosts, ["host0", "host1"])
        self.assertEqual(both.restarts, 0)  # torchrun: both die after 60 s
        self.wait_for_steps()
        self.end_well()

    def test_each_new_node_starts_a_new_round(self):
        self.agent(0, "1:3")
        world = self.world(1)
        for size, host in ((2, 2), (3, 1)):
            self.agent(host, "1:3")
            world = self.world(size, after=world)
        self.assertEqual(world.hosts, ["host0", "host2", "host1"])
        self.assertEqual([world.restarts for world in self.worlds()], [0] * len(self.worlds()))
        self.end_well()

    def test_workers_have_the_grace_period_before_the_round_of_a_new_node(self):
        self.grace = 5
        ending = self.dir / "ending"
        slow = (f'trap "sleep 1; echo saved >> {ending}; exit 0" TERM; '
                f'touch {self.dir}/up.$WORLD_SIZE.$RANK; '
                f'while ! [ -e {self.dir}/stop ]; do sleep 0.05; done')
        program = ["--no-python", "/bin/sh", "-c", slow]
        self.agent(0, "1:2", program=program)
        self.wait_for_files_there("up.1.0")
        self.agent(1, "1:2", program=program)
        self.wait_for_files_there("up.2.0", "up.2.1")
        self.assertEqual(ending.read_text(), "saved\n")
        (self.dir / "stop").touch()
        self.assertEqual([agent.wait() for agent in self.agents], [0, 0])
        self.assert_nothing_left()

    def wait_for_files_there(self, *names):
        until(slowly(lambda: all((self.dir / name).exists() for name in names)), 30, str(names))


class Spares(NodesTest):
    hosts = 3

    def full_job_with_a_spare(self):
        agents = [self.agent(host, 2) for host in (0, 1)]
        world = self.world(2)
        agents.append(self.agent(2, 2))
        until(slowly(lambda: self.connected(2)), 20, "the spare at the leader")
        self.wait_for_steps(steps=20)
        self.assertEqual([w.name for w in self.worlds()], [world.name])  # the job was not disturbed
        return agents, world

    def test_a_spare_takes_over_at_once(self):
        self.last_call = 20
        (first, lost, spare), world = self.full_job_with_a_spare()
        start = time.monotonic()
        lost.kill()
        after = self.world(2, after=world, steps=1)
        self.assertLess(time.monotonic() - start, self.keep_alive + self.grace + 5)
        self.assertEqual(after.hosts, ["host0", "host2"])
        self.end_well([first, spare])

    def test_a_spare_that_leaves_does_not_disturb_the_job(self):
        (first, second, spare), world = self.full_job_with_a_spare()
        spare.signal(signal.SIGTERM)
        self.assertEqual(spare.wait(), 128 + signal.SIGTERM)
        self.wait_for_steps(steps=20)
        self.assertEqual([w.name for w in self.worlds()], [world.name])
        self.end_well([first, second])

    def test_a_spare_that_is_killed_does_not_disturb_the_job(self):
        (first, second, spare), world = self.full_job_with_a_spare()
        spare.kill()
        until(slowly(lambda: not self.net[2].pids()), 10)
        self.wait_for_steps(steps=50)
        self.assertEqual([w.name for w in self.worlds()], [world.name])
        self.end_well([first, second])

    def test_a_spare_ends_with_the_job(self):
        agents, _ = self.full_job_with_a_spare()
        self.break_rank(0, "exit 7")
        self.assert_ended(7, agents)


class Shrink(NodesTest):
    hosts = 3

    def test_the_others_continue_at_once_when_a_node_leaves(self):
        self.keep_alive = 8
        agents = [self.agent(host, "1:3") for host in range(3)]
        world = self.world(3)
        start = time.monotonic()
        agents[2].signal(signal.SIGTERM)
        after = self.world(2, after=world, steps=1)
        self.assertLess(time.monotonic() - start, 6)
        self.assertEqual(after.hosts, ["host0", "host1"])
        self.assertEqual(after.restarts, 0)
        self.assertEqual(agents[2].wait(), 128 + signal.SIGTERM)
        self.end_well(agents[:2])

    def test_all_nodes_share_one_restart_count(self):
        options = ("1:3", "--max-restarts", 2)
        agents = [self.agent(host, *options) for host in range(2)]
        world = self.world(2)
        self.break_rank(1)
        world = self.world(2, after=world)
        self.assertEqual(world.restarts, 1)
        agents.append(self.agent(2, *options))
        world = self.world(3, after=world)
        self.assertEqual(world.restarts, 1)  # a new node is no failure
        self.break_rank(2)  # a rank of the new node
        world = self.world(3, after=world)
        self.assertEqual(world.restarts, 2)
        self.assertEqual({life.env["torchelastic_max_restarts"] for life in world.lives}, {"2"})
        self.break_rank(0, "exit 9")
        self.assert_ended(9, agents)

    def test_below_the_minimum_all_wait_and_continue_when_a_node_joins(self):
        self.join_timeout = 60
        agents = [self.agent(host, "2:3") for host in range(2)]
        world = self.world(2)
        agents[1].kill()
        until(slowly(lambda: not any(map(alive, world.pids))), self.keep_alive + self.grace + 10,
              "the end of the workers")
        self.assertTrue(agents[0].running)
        agents[1] = self.agent(2, "2:3")
        after = self.world(2, after=world)
        self.assertEqual(after.hosts, ["host0", "host2"])
        self.end_well(agents)

    def test_below_the_minimum_until_the_join_timeout_gives_status_75_with_a_reason(self):
        self.join_timeout = 4
        agents = [self.agent(host, "2:3") for host in range(2)]
        self.world(2)
        agents[1].kill()
        self.assert_ended(COULD_NOT_JOIN, agents[:1],
                          limit=self.keep_alive + self.grace + 4 + 15)
        self.assertTrue(lines_with(agents[0].err, "node"), agents[0].err)
        self.assertTrue(lines_with(agents[0].err, "host1"), agents[0].err)  # who is missing


class Eight(NodesTest):
    hosts = 8

    def test_eight_nodes_survive_the_loss_and_return_of_three(self):
        agents = self.all_agents("5:8")
        world = self.world(8)
        self.assertEqual(sorted(world.hosts), [f"host{n}" for n in range(8)])
        for host in (2, 5, 7):
            agents[host].kill()
        after = self.world(5, after=world)
        kept = [(place, host) for place, host in enumerate(world.hosts[:5])
                if host not in ("host2", "host5", "host7")]
        self.assertEqual([(place, after.hosts[place]) for place, _ in kept], kept)
        for host in (2, 5, 7):
            agents[host] = self.agent(host, "5:8")
        self.world(8, after=after)
        self.end_well(agents)


if __name__ == "__main__":
    unittest.main()
