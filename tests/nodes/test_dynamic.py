"""Nodes that join at an endpoint: which of them leads, their ranks, and their addresses."""

import time
import unittest

import netns
from nodes_job import PORT, USAGE_ERROR, NodesTest, lines_with, slowly, until


class Order(NodesTest):
    hosts = 3

    def test_nodes_are_ranked_in_the_order_of_arrival(self):
        for host in (0, 2, 1):
            self.agent(host)
            if host != 1:
                until(slowly(lambda h=host: self.connected(h)), 20, f"host{host} at the leader")
        self.assertEqual(self.world(3).hosts, ["host0", "host2", "host1"])
        self.end_well()

    def test_nodes_keep_their_ranks_over_a_restart(self):
        for host in (0, 2, 1):
            self.agent(host, None, "--max-restarts", 1)
            if host != 1:
                until(slowly(lambda h=host: self.connected(h)), 20, f"host{host} at the leader")
        world = self.world(3)
        self.break_rank(1)
        self.assertEqual(self.world(3, after=world).hosts, ["host0", "host2", "host1"])
        self.end_well()

    def test_a_given_node_rank_is_respected(self):
        for host, node_rank in ((0, 2), (1, 1), (2, 0)):
            self.agent(host, None, "--node-rank", node_rank)
        world = self.world(3)
        self.assertEqual(world.hosts, ["host2", "host1", "host0"])
        self.assertEqual({life.env["mgpu_leader_addr"] for life in world.lives},
                         {self.net[0].v4})
        self.end_well()

    def test_the_node_that_owns_the_address_leads_even_when_it_starts_last(self):
        knocks = self.net[0].counter(f"tcp dport {PORT}")
        for host in (1, 2):
            self.agent(host)
        until(slowly(lambda: knocks() >= 4), 20, "attempts to connect")
        self.agent(0)
        world = self.world(3)
        self.assertEqual({life.env["mgpu_leader_addr"] for life in world.lives},
                         {self.net[0].v4})
        self.end_well()

    def test_the_minimum_of_nodes_starts_when_the_last_call_ends(self):
        self.last_call = 3
        self.agent(0, "2:3")
        self.agent(1, "2:3")
        until(slowly(lambda: self.connected(1)), 20, "host1 at the leader")
        begin = time.monotonic()
        world = self.world(2)
        self.assertGreaterEqual(world.first - begin, 2)
        self.end_well()

    def test_a_node_that_joins_within_the_last_call_is_in_the_first_world(self):
        self.last_call = 30
        for host in range(3):
            self.agent(host, "2:3")
            until(slowly(lambda h=host: self.connected(h)), 20, f"host{host} at the leader")
        # MAX is reached, so the last call is not waited for.
        self.world(3, limit=15)
        self.end_well()
        self.assertEqual(len(self.worlds()), 1)

    def test_several_agents_can_run_on_one_host(self):
        for host in (0, 0, 1):
            self.agent(host, 3, workers=2)
        world = self.world(6)
        self.assertEqual(sorted(world.hosts), ["host0"] * 4 + ["host1"] * 2)
        self.assertEqual({(life.rank // 2, life.env["group_rank"]) for life in world.lives},
                         {(node, str(node)) for node in range(3)})
        self.end_well()

    def test_several_agents_on_one_host_can_use_localhost_as_endpoint(self):
        for _ in range(3):
            self.agent(0, 3, rdzv=self.rdzv(f"localhost:{PORT}"))
        self.assertEqual(self.world(3).hosts, ["host0"] * 3)
        self.end_well()

    def test_the_command_line_of_torchrun_s_manual_works_without_a_backend(self):
        for host in range(3):
            self.agent(host, "1:3", rdzv=["--rdzv-endpoint", self.endpoint(), "--rdzv-id", "job",
                                             "--rdzv-conf", "join_timeout=30,last_call_timeout=5"])
        self.world(3)
        self.end_well()

    def test_is_host_selects_the_node_that_leads(self):
        for host in range(3):
            self.agent(host, None, rdzv=self.rdzv(is_host=int(host == 0)))
        self.world(3)
        self.end_well()

    def test_every_rdzv_conf_key_of_torchrun_is_accepted(self):
        for host in range(3):
            self.agent(host, None, rdzv=self.rdzv(
                close_timeout=30, heartbeat_timeout=5, keep_alive_interval=1,
                keep_alive_max_attempt=3, read_timeout=60, store_type="tcp", timeout=900))
        self.world(3)
        self.end_well()

    def test_a_minimum_above_the_maximum_is_a_usage_error(self):
        for nnodes in ("3:2", "0", "0:2", "2:x", "-1:2"):
            with self.subTest(nnodes):
                agent = self.launch(0, f"--nnodes={nnodes}", *self.rdzv(), *self.counting())
                self.assertEqual(agent.wait(10), USAGE_ERROR)
                self.assertEqual(len(agent.err.splitlines()), 1, agent.err)
                self.assertIn("nnodes", agent.err)


class LateNodes(NodesTest):
    hosts = 5

    def test_nodes_that_join_a_running_job_one_after_another_restart_it_once(self):
        self.last_call = 4
        agents = [self.agent(0, "1:5")]
        world = self.world(1)
        for host in range(1, 5):
            agents.append(self.agent(host, "1:5"))
            until(slowly(lambda h=host: self.connected(h)), 20, f"host{host} at the leader")
        # MAX is reached, so the last call is not waited for.
        self.world(5, after=world)
        self.assertEqual(len(self.worlds()), 2)
        self.assertTrue(lines_with(agents[0].err, "host1 joins; the ranks go on for 4 s"))
        self.end_well()


class Addresses(NodesTest):
    second_nic = True

    def check_rendezvous_at(self, endpoint, address):
        self.all_agents(rdzv=self.rdzv(endpoint))
        world = self.world(2)
        self.assertEqual({life.env["mgpu_leader_addr"] for life in world.lives}, {address})
        self.assertEqual({life.env["master_addr"] for life in world.lives}, {"127.0.0.1"})
        self.end_well()

    def test_nodes_join_over_ipv4(self):
        self.check_rendezvous_at(self.endpoint(), self.net[0].v4)

    def test_nodes_join_over_ipv6(self):
        if not netns.has_ipv6():
            self.skipTest("this kernel has no IPv6")
        self.check_rendezvous_at(f"[{self.net[0].v6}]:{PORT}", self.net[0].v6)

    def test_nodes_join_over_the_second_nic(self):
        self.check_rendezvous_at(f"{self.net[0].second_v4}:{PORT}", self.net[0].second_v4)

    def test_the_default_port_is_29400(self):
        self.check_rendezvous_at(self.net[0].v4, self.net[0].v4)

    def test_nodes_join_at_an_alias_of_the_leader_s_host(self):
        for host in self.net.hosts:
            host.set_names({"rendezvous.example": self.net[0].v4})
        self.all_agents(rdzv=self.rdzv(f"rendezvous.example:{PORT}"))
        self.world(2)
        self.end_well()

    def test_nodes_join_when_the_name_resolves_late(self):
        asked = [host.counter("udp dport 53") for host in self.net.hosts]
        self.all_agents(rdzv=self.rdzv(f"job-0.headless:{PORT}"))
        until(slowly(lambda: all(count() for count in asked)), 20, "questions for the name")
        self.net[1].set_names({"job-0.headless": self.net[0].v4})
        self.net[0].set_names({"job-0.headless": self.net[0].v4})
        self.world(2, limit=30)
        self.end_well()

    def test_nodes_join_although_their_host_names_resolve_to_loopback(self):
        # Debian's installer writes "127.0.1.1 NAME" for the host's own name.
        for host in self.net.hosts:
            host.set_names({host.name: "127.0.1.1"})
        self.net[1].set_names({"host1": "127.0.1.1", "host0": self.net[0].v4})
        self.all_agents(rdzv=self.rdzv(f"host0:{PORT}"))
        world = self.world(2)
        self.assertEqual(world.size, 2)
        self.end_well()


if __name__ == "__main__":
    unittest.main()
