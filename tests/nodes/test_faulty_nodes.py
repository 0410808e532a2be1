"""Nodes on which ranks keep failing because of the node: they give up their place."""

import json
import unittest

from nodes_job import NodesTest, lines_with, slowly, until


class FaultyNodes(NodesTest):
    hosts = 3
    options = ("--max-restarts", 9)

    def start(self, host, nnodes, *options):
        agent = self.agent(host, nnodes, *self.options, *options)
        until(slowly(lambda: self.connected(host)), 20, f"host{host} at the leader")
        return agent

    def two_and_a_spare(self):
        self.report = self.dir / "report.json"
        agents = [self.start(0, 2, "--report", self.report), self.start(1, 2)]
        world = self.world(2)
        agents.append(self.start(2, 2))
        return agents, world

    def make_broken(self, name):
        """From now on ranks fail on this host, or this rank does."""
        path = self.counts / f"broken.{name}"
        path.touch()
        return path

    def world_of(self, *hosts):
        """Waits for a world of these hosts, ordered by rank."""
        def newest():
            found = self.worlds()
            return found and found[-1].hosts == list(hosts) and found[-1].steps >= 3 and found[-1]
        return until(slowly(newest), 20, f"a world of {hosts}")

    def node_changes(self):
        attempts = json.loads(self.report.read_text())["attempts"]
        return [attempt["node_change"] for attempt in attempts if "node_change" in attempt]

    def test_a_spare_replaces_a_node_whose_gpu_keeps_failing(self):
        agents, _ = self.two_and_a_spare()
        self.make_broken("host1")
        self.assertEqual(self.world_of("host0", "host2").restarts, 2)
        self.end_well(agents)
        line = ("node 1 (host1) is replaced by host2: a rank on it failed first in two attempts in "
                "a row, the last time rank 1 (gpu_error)")
        self.assertEqual(len(lines_with(agents[0].err, line)), 1, agents[0].err)
        self.assertEqual(self.node_changes(), [line])
        self.assertTrue(lines_with(agents[1].err, line + "; this node waits for the end"),
                        agents[1].err)

    def test_a_node_whose_gpu_keeps_failing_is_excluded_without_a_spare(self):
        agents = [self.start(host, "2:3") for host in range(3)]
        self.world(3)
        self.make_broken("host2")
        self.world_of("host0", "host1")
        self.wait_for_steps(40)  # for longer than the last call
        self.end_well(agents)
        self.assertEqual(self.worlds()[-1].size, 2)
        self.assertTrue(lines_with(agents[0].err, "node 2 (host2) is excluded from the job: a rank"))

    def test_the_leader_can_be_excluded_and_its_successor_waits_for_all_ranks(self):
        agents, _ = self.two_and_a_spare()
        broken = self.make_broken("host0")
        world = self.world_of("host2", "host1")
        broken.unlink()
        agents[0].kill()
        agents[0] = self.agent(0, 2, *self.options)
        self.world(2, after=world)
        self.end_well(agents)

    def test_no_further_node_is_replaced_when_the_failure_follows_the_rank(self):
        agents, _ = self.two_and_a_spare()
        broken = self.make_broken(1)
        until(slowly(lambda: lines_with(agents[0].err, "restart 5 of 9")), 20, "five failures")
        broken.unlink()
        self.world_of("host0", "host2")
        self.end_well(agents)
        changes = self.node_changes()
        self.assertEqual(len(changes), 2, changes)
        self.assertIn("is replaced by host2", changes[0])
        self.assertEqual(changes[1], "rank 1 (gpu_error) failed on host2 as it had on host1: the "
                         "failure follows the rank, so no further node is replaced or excluded; "
                         "host1 may take part again")


if __name__ == "__main__":
    unittest.main()
