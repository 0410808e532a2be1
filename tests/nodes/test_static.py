"""Jobs whose node ranks are given on the command line, as in torchrun's static rendezvous."""

import os
import signal
import time
import unittest

from nodes_job import COULD_NOT_JOIN, PORT, PROGRAMS, NodesTest, lines_with, slowly, until


class Formation(NodesTest):
    hosts = 3

    def test_three_nodes_form_one_world(self):
        agents = [self.static_agent(host, workers=2) for host in range(3)]
        world = self.world(6)
        self.assertEqual(world.hosts, [f"host{rank // 2}" for rank in range(6)])
        for life in world.lives:
            env = life.env
            self.assertEqual((env["group_rank"], env["group_world_size"]),
                             (str(life.rank // 2), "3"))
            self.assertEqual((env["local_rank"], env["local_world_size"]),
                             (str(life.rank % 2), "2"))
            self.assertEqual((env["master_addr"], env["mgpu_leader_addr"]),
                             ("127.0.0.1", self.net[0].v4))
            self.assertEqual(env["master_port"] == str(PORT), life.rank < 2)
        self.end_well(agents)
        self.assertEqual(len(self.worlds()), 1)

    def test_nodes_may_have_different_numbers_of_ranks(self):
        for host, workers in enumerate((1, 3, 2)):
            self.static_agent(host, workers=workers)
        self.assertEqual(self.world(6).hosts, ["host0"] + ["host1"] * 3 + ["host2"] * 2)
        self.end_well()

    def test_node_ranks_are_respected_and_rank_0_is_on_the_master_host(self):
        for host, node_rank in ((0, 2), (2, 1), (1, 0)):
            self.static_agent(host, node_rank=node_rank, master=1)
        world = self.world(3)
        self.assertEqual(world.hosts, ["host1", "host2", "host0"])
        self.assertEqual({life.env["mgpu_leader_addr"] for life in world.lives},
                         {self.net[1].v4})
        self.end_well()

    def test_the_command_line_of_kubeflow_works(self):
        for host in range(3):
            self.launch(host, "--keep-alive", self.keep_alive, "--grace", self.grace,
                        *self.counting(), env={
                            "PET_NNODES": "3", "PET_NPROC_PER_NODE": "2",
                            "PET_NODE_RANK": str(host), "PET_MASTER_ADDR": self.net[0].v4,
                            "PET_MASTER_PORT": str(PORT)})
        self.assertEqual(self.world(6).hosts, [f"host{rank // 2}" for rank in range(6)])
        self.end_well()

    def test_one_open_port_is_enough_for_a_multi_node_job(self):
        # New connections and datagrams reach the leader at its port only, the others not at all.
        for host in self.net.hosts:
            master = host.index == 0
            host.call("nft", "table inet wall { chain in { type filter hook input priority 0; "
                      "iifname lo accept; "
                      + (f"tcp dport {PORT} accept; udp dport {PORT} accept; " if master else
                         f"udp sport {PORT} accept; ")
                      + "tcp flags & (syn | ack) == syn drop; meta l4proto udp drop; }; }")
        for host in range(3):
            self.static_agent(host, workers=2)
        self.world(6, steps=30)
        self.end_well()
        self.assertEqual(len(self.worlds()), 1)

    def test_a_second_agent_with_the_same_node_rank_is_rejected(self):
        first = [self.static_agent(0), self.static_agent(1)]
        until(slowly(lambda: self.connected(1)), 20, "a connection")
        twin = self.static_agent(2, node_rank=1)
        self.assertIn(twin.wait(), (2, COULD_NOT_JOIN))
        self.assertTrue(lines_with(twin.err, "node rank", "node-rank"), twin.err)
        self.assertTrue(all(agent.running for agent in first))
        first.append(self.static_agent(2))
        self.world(3)
        self.end_well(first)

    def test_missing_nodes_are_waited_for_until_the_join_timeout(self):
        self.join_timeout = 4
        agents = [self.static_agent(0), self.static_agent(2)]
        self.assert_ended(COULD_NOT_JOIN, limit=4 + 15)
        for agent in agents:
            self.assertTrue(lines_with(agent.err, "node"), agent.err)
        self.assertEqual(self.worlds(), [])

    def test_agents_wait_for_a_late_master(self):
        knocks = self.net[0].counter(f"tcp dport {PORT}")
        for host in (1, 2):
            self.static_agent(host)
        until(slowly(lambda: knocks() >= 4), 20, "attempts to connect")
        self.static_agent(0)
        self.assertEqual(self.world(3).hosts, ["host0", "host1", "host2"])
        self.end_well()


class Ends(NodesTest):
    hosts = 3

    def start_all(self, *options, **kwargs):
        return [self.static_agent(host, *options, **kwargs) for host in range(3)]

    def test_a_failure_on_one_node_restarts_all_nodes(self):
        self.start_all("--max-restarts", 3)
        world = self.world(3)
        for rank, how in ((1, "exit 7"), (2, "kill 9"), (0, "exit 1")):
            self.break_rank(rank, how)
            after = self.world(3, after=world)
            self.assertEqual(after.restarts, world.restarts + 1)
            self.assertEqual(after.hosts, world.hosts)
            world = after
        self.end_well()
        self.assertEqual(len(self.worlds()), 4)

    def test_every_agent_ends_with_the_status_of_the_first_failure(self):
        for how, status in (("exit 7", 7), ("kill 9", 128 + signal.SIGKILL)):
            with self.subTest(how):
                agents = self.start_all()
                self.world(3, after=self.worlds()[-1] if self.worlds() else None)
                self.break_rank(2, how)
                self.assert_ended(status, agents)

    def test_the_leader_prints_the_failure_report_and_the_others_one_line(self):
        agents = self.start_all()
        self.world(3)
        self.break_rank(1, "exit 7")
        self.assert_ended(7)
        tables = [len(lines_with(agent.err, "first failure")) > 0 for agent in agents]
        self.assertEqual(tables, [True, False, False], agents[1].err)
        self.assertTrue(lines_with(agents[0].err, "host1"), agents[0].err)
        for agent in agents[1:]:
            last = agent.err.strip().splitlines()[-1]
            self.assertTrue(last.startswith("mgpu-run:"), agent.err)
            self.assertTrue(lines_with(last, self.net[0].v4, "host0", "node 0"), last)

    def test_the_first_failure_is_reported_although_others_follow(self):
        go = self.dir / "go"
        program = ["--no-python", "/bin/sh", "-c",
                   f"touch {self.dir}/up.$RANK; until [ -e {go} ]; do sleep 0.01; done; "
                   "[ $RANK = 2 ] && exit 12; [ $RANK = 1 ] && sleep 0.5; exit 1$RANK"]
        self.start_all(program=program)
        until(slowly(lambda: len(list(self.dir.glob("up.*"))) == 3), 20, "the ranks")
        go.touch()
        # Rank 2 and rank 0 fail at about the same time, rank 1 half a second later.
        got = {agent.wait() for agent in self.agents}
        self.assertEqual(len(got), 1)
        self.assertIn(got.pop(), (10, 12))
        self.assert_nothing_left()

    def ranks_of_their_own(self, text, *options):
        """Starts all agents with sh workers; $DIR is the folder of the test and $A the attempt."""
        script = f"DIR={self.dir}; A=$TORCHELASTIC_RESTART_COUNT; touch $DIR/up.$RANK.$A; {text}"
        return self.start_all(*options, program=["--no-python", "/bin/sh", "-c", script])

    def wait_for_ranks(self, attempt):
        until(slowly(lambda: len(list(self.dir.glob(f"up.*.{attempt}"))) == 3), 30,
              f"attempt {attempt}")

    def test_a_node_that_has_finished_waits_for_the_others(self):
        agents = self.ranks_of_their_own(
            "[ $RANK = 2 ] || exit 0; until [ -e $DIR/go ]; do sleep 0.01; done")
        self.wait_for_ranks(0)
        time.sleep(2 * self.keep_alive)  # long enough to be considered lost
        self.assertTrue(all(agent.running for agent in agents))
        (self.dir / "go").touch()
        self.assert_ended(0)

    def test_a_failure_after_a_node_has_finished_restarts_the_job(self):
        self.ranks_of_their_own("[ $RANK = 2 ] || exit 0; sleep 1; exit 5", "--max-restarts", 1)
        self.wait_for_ranks(1)  # all ranks again
        self.assert_ended(5)

    def test_a_stop_signal_to_all_agents_ends_all_with_its_status(self):
        agents = self.start_all()
        self.world(3)
        for agent in agents:
            agent.signal(signal.SIGTERM)
        self.assert_ended(128 + signal.SIGTERM)

    def test_a_stop_signal_to_the_leader_stops_all_nodes(self):
        agents = self.start_all()
        self.world(3)
        agents[0].signal(signal.SIGTERM)
        self.assertEqual(agents[0].wait(), 128 + signal.SIGTERM)
        got = [agent.wait() for agent in agents]
        self.assertEqual(got, [128 + signal.SIGTERM] * 3)
        self.assert_nothing_left()

    def test_nodes_that_save_before_a_stop_do_not_wait_for_a_rank_that_was_killed(self):
        self.grace = 30
        agents = self.start_all(program=[PROGRAMS / "saving.py", self.dir])
        killed = self.pids_from("pid.*", 3, limit=30)[2]
        agents[0].signal(signal.SIGTERM)
        until(lambda: len(list(self.dir.glob("saving.*"))) == 3, 30, "ranks that save")
        os.kill(killed, signal.SIGKILL)
        self.assertEqual([agent.wait(20) for agent in agents], [128 + signal.SIGTERM] * 3)
        self.assertEqual(sorted(path.name for path in self.dir.glob("aborted.*")),
                         ["aborted.0", "aborted.1"])
        self.assert_nothing_left()

    def test_logs_are_kept_by_rank_and_attempt(self):
        logs = self.dir / "logs"
        program = ["--no-python", "/bin/sh", "-c",
                   'echo "node $GROUP_RANK rank $RANK attempt $TORCHELASTIC_RESTART_COUNT"; '
                   f'touch {self.dir}/up.$RANK.$TORCHELASTIC_RESTART_COUNT; '
                   f'until [ -e {self.dir}/go.$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done; '
                   '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || [ $RANK != 3 ] || exit 1; '
                   '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 60']
        self.start_all("--max-restarts", 1, "--log-dir", logs, "-r", 3, workers=2, program=program)
        for attempt in range(2):
            until(slowly(lambda a=attempt: len(list(self.dir.glob(f"up.*.{a}"))) == 6), 30,
                  f"attempt {attempt}")
            (self.dir / f"go.{attempt}").touch()
        self.assert_ended(0)
        kept = sorted(text for path in logs.rglob("stdout.log") if (text := path.read_text()))
        self.assertEqual(kept, sorted(f"node {rank // 2} rank {rank} attempt {attempt}\n"
                                      for rank in range(6) for attempt in range(2)))


if __name__ == "__main__":
    unittest.main()
