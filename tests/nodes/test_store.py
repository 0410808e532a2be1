"""How ranks on other nodes reach the store, and who else does."""

import hashlib
import pathlib
import sys
import unittest

from nodes_job import PORT, PROGRAMS, NodesTest, lines_with, slowly, until

NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


class Store(NodesTest):
    hosts = 2

    def storing(self, what):
        return ["--no-python", sys.executable, "-S", "-E", PROGRAMS / "storing.py", what,
                self.counts]

    def found(self, rank):
        return (self.counts / str(rank)).read_text()

    def run_storing(self, what, *options, workers=1):
        agents = [self.static_agent(host, *options, workers=workers, program=self.storing(what))
                  for host in range(2)]
        self.assertEqual([agent.wait() for agent in agents], [0, 0])
        self.assert_nothing_left()

    def established(self, host, port):
        """How many connections of that host lead to the port."""
        lines = pathlib.Path(f"/proc/{self.net[host].pid}/net/tcp").read_text().splitlines()[1:]
        return sum(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01"
                   for line in lines)

    def relay_port(self, world):
        (port,) = {int(life.env["master_port"]) for life in world.lives if life.host == "host1"}
        return port

    def use_store(self, host, port, prefix=()):
        program = [*prefix, sys.executable, "-S", "-E", PROGRAMS / "stranger.py", "store",
                   "127.0.0.1", port]
        return self.net[host].run(program).stdout.split()

    def test_the_ranks_of_a_node_share_one_connection_to_the_leaders_store(self):
        for host in range(2):
            self.static_agent(host, workers=3)
        self.world(6)
        self.assertEqual(self.established(1, PORT), 2)  # the agent's own, and the store's
        self.end_well()

    def test_another_user_of_a_node_cannot_use_the_store(self):
        agents = [self.static_agent(host) for host in range(2)]
        world = self.world(2)
        for host, port in ((0, PORT), (1, self.relay_port(world))):
            self.assertEqual(self.use_store(host, port), ["served"])
            self.assertEqual(self.use_store(host, port, NOBODY), ["refused"])
        self.wait_for_steps(steps=10)
        self.end_well(agents)

    def test_large_values_and_clients_that_do_not_read_do_not_block_a_node(self):
        self.run_storing("large", workers=2)
        value = hashlib.sha256(b"x" * (8 << 20)).hexdigest()
        self.assertEqual([self.found(rank) for rank in range(4)], [value] * 4)

    def test_a_program_with_a_port_of_its_own_finds_the_leader_either_way(self):
        self.run_storing("listener")
        self.assertEqual(self.found(1), "MGPU_LEADER_ADDR")
        self.run_storing("listener", "--store", "direct")
        self.assertEqual(self.found(1), "MASTER_ADDR MGPU_LEADER_ADDR")

    def test_the_relay_of_an_old_round_does_not_serve_a_new_one(self):
        agents = [self.static_agent(host, "--max-restarts", 1) for host in range(2)]
        world = self.world(2)
        old = self.relay_port(world)
        self.break_rank(1)
        new = self.relay_port(self.world(2, after=world))
        self.assertEqual(self.use_store(1, new), ["served"])
        if old != new:
            self.assertEqual(self.use_store(1, old), ["refused"])
        self.end_well(agents)


class LostStore(NodesTest):
    hosts = 3

    def test_a_lost_connection_to_the_leaders_store_is_named(self):
        failing = {"program": self.counting(), "env": {"COUNTING_ON_LOSS": "fail"}}
        agents = [self.static_agent(host, **failing) for host in range(2)]
        # Until the third agent comes, host1's only connection to the leader is the agent's.
        (own,) = until(self.ports_to_the_leader, 20, "a connection to the leader")
        agents.append(self.static_agent(2, **failing))
        self.world(3)
        (stores,) = self.ports_to_the_leader() - {own}
        self.net[1].call("ss", "-K", "dst", self.net[0].v4, "dport", "=", PORT, "sport", "=",
                         stores)
        until(slowly(lambda: lines_with(agents[1].err, "lost the connection to the leader's store")),
              20, "a line about the connection")
        for agent in agents:
            self.assertNotEqual(agent.wait(), 0)
        self.assert_nothing_left()

    def ports_to_the_leader(self):
        """The local ports of host1's connections to the leader's port."""
        lines = pathlib.Path(f"/proc/{self.net[1].pid}/net/tcp").read_text().splitlines()[1:]
        return {int(line.split()[1].split(":")[1], 16) for line in lines
                if line.split()[2].endswith(f":{PORT:04X}") and line.split()[3] == "01"}


if __name__ == "__main__":
    unittest.main()
