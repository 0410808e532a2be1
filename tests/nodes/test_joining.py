"""Joining a job requires its secret; replaying recorded messages does not work."""

import os
import signal
import subprocess
import sys
import time
import unittest

from nodes_job import (COULD_NOT_JOIN, PORT, PROGRAMS, USAGE_ERROR, NodesTest, lines_with, send,
                       slowly, until)

REFUSED = (1, USAGE_ERROR, COULD_NOT_JOIN)


class Joining(NodesTest):
    hosts = 3

    def job_of_two(self, **kwargs):
        """Starts a job of two nodes that a third could join."""
        self.two = [self.agent(host, "2:3", **kwargs) for host in range(2)]
        return self.world(2)

    def assert_undisturbed(self, world):
        """Checks that the job has had the same two nodes all the time."""
        self.wait_for_steps(steps=20)
        self.assertEqual([w.name for w in self.worlds()], [world.name])
        self.end_well(self.two)

    def stranger(self, what, *args, host=None, **popen):
        return self.net[self.hosts - 1 if host is None else host].start(
            [sys.executable, "-S", "-E", PROGRAMS / "stranger.py", what, self.net[0].v4, PORT,
             *args], stdout=subprocess.PIPE, **popen)

    def stranger_output(self, what, *args, **kwargs):
        return self.stranger(what, *args, **kwargs).communicate(timeout=60)[0].decode().split()


class Secrets(Joining):
    def refused(self, *options, **kwargs):
        """The output of a third agent, which must be rejected."""
        kwargs.setdefault("rdzv", self.rdzv(join_timeout=3))
        stranger = self.agent(2, "2:3", *options, **kwargs)
        self.assertIn(stranger.wait(), REFUSED)
        return stranger.err

    def test_a_wrong_token_is_refused(self):
        world = self.job_of_two()
        wrong = self.write("wrong", "some other secret of the same kind\n", 0o600)
        said = self.refused("--rdzv-token-file", wrong, token=False)
        self.assertTrue(lines_with(said, "token"), said)
        until(lambda: lines_with(self.two[0].err, "rejected a connection", "token"))
        self.assert_undisturbed(world)

    def test_a_token_file_and_the_variable_are_equivalent(self):
        secret = (self.dir / "token").read_text().strip()
        self.agent(0, 2)
        self.agent(1, 2, token=False, env={"MGPU_RDZV_TOKEN": secret})
        self.world(2)
        self.end_well()

    def check_mistake(self, *words, **kwargs):
        agent = self.agent(0, 2, **kwargs)
        self.assertEqual(agent.wait(10), USAGE_ERROR)
        self.assertEqual(len(agent.err.splitlines()), 1, agent.err)
        for word in words:
            self.assertIn(word, agent.err)
        self.assert_nothing_left()

    def test_a_missing_token_is_a_usage_error_that_names_the_options(self):
        self.check_mistake("--rdzv-token-file", "--insecure", token=False)

    def test_a_missing_token_of_a_static_job_is_a_usage_error_too(self):
        agent = self.static_agent(0, token=False)
        self.assertEqual(agent.wait(10), USAGE_ERROR)
        self.assertEqual(len(agent.err.splitlines()), 1, agent.err)
        self.assertIn("--insecure", agent.err)

    def test_a_token_file_that_other_users_can_read_is_rejected(self):
        self.token = self.write("open", "a secret that everybody can read, though\n", 0o644)
        self.check_mistake(self.token)

    def test_an_empty_or_missing_token_file_is_rejected(self):
        for name, text in (("empty", ""), ("blank", "\n"), ("nowhere", None)):
            with self.subTest(name):
                self.token = str(self.dir / name)
                if text is not None:
                    self.write(name, text, 0o600)
                self.check_mistake(self.token)

    def test_an_insecure_job_needs_no_token(self):
        for host in range(2):
            self.agent(host, 2, "--insecure", token=False)
        self.world(2)
        self.end_well()

    def test_an_insecure_agent_cannot_join_a_job_that_has_a_token(self):
        world = self.job_of_two()
        self.refused("--insecure", token=False)
        self.assert_undisturbed(world)

    def test_an_agent_with_a_token_cannot_join_an_insecure_job(self):
        self.two = [self.agent(host, "2:3", "--insecure", token=False) for host in range(2)]
        world = self.world(2)
        self.refused()
        self.assert_undisturbed(world)

    def test_an_agent_with_its_token_from_stdin_ends_when_stdin_closes(self):
        read_end, write_end = os.pipe()
        secret = (self.dir / "token").read_text()
        self.agent(0, 2)
        stdin = open(read_end, "rb")  # noqa: SIM115
        self.addCleanup(stdin.close)
        second = self.agent(1, 2, "--rdzv-token-stdin", token=False, stdin=stdin)
        with open(write_end, "w", encoding="ascii") as writer:
            writer.write(secret)
            writer.flush()
            self.world(2)
        second.wait()  # the end of stdin ends the agent and its workers
        until(slowly(lambda: not self.net[1].pids()), 20, "the end of the second node")
        self.agents[0].signal(signal.SIGTERM)
        self.agents[0].wait()
        self.assert_nothing_left()

    def test_another_job_id_is_rejected_and_reported_on_both_sides(self):
        world = self.job_of_two()
        options = self.rdzv(join_timeout=3)
        options[options.index("job")] = "another-job"
        self.assertIn("another-job", self.refused(rdzv=options))
        self.assertTrue(lines_with(self.two[0].err, "another-job"), self.two[0].err)
        self.assert_undisturbed(world)


class Versions(Joining):
    """Peers whose protocol version differs from that of this mgpu-run."""

    older, newer = 0, 255

    def our_version(self, output):
        """The version that the other side received before the connection was closed."""
        self.assertEqual((output[:1], output[2:]), (["version"], ["closed"]), output)
        return output[1]

    def assert_names_both(self, lines, theirs, ours):
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(f"version {theirs} of", lines[0])
        self.assertIn(f"version {ours};", lines[0])

    def check_caller(self, version):
        world = self.job_of_two()
        ours = self.our_version(self.stranger_output("calls", version))
        lines = lines_with(self.two[0].err, "version")
        self.assert_names_both(lines, version, ours)
        self.assertIn(self.net[2].v4, lines[0])
        self.assert_undisturbed(world)

    def test_an_older_agent_is_rejected_and_both_sides_report_the_versions(self):
        self.check_caller(self.older)

    def test_a_newer_agent_is_rejected_and_both_sides_report_the_versions(self):
        self.check_caller(self.newer)

    def check_leader(self, version):
        world = self.job_of_two()
        leader = self.net[2].start(
            [sys.executable, "-S", "-E", PROGRAMS / "stranger.py", "leads", self.net[2].v4, PORT,
             version], stdout=subprocess.PIPE)
        self.assertEqual(leader.stdout.readline(), b"listening\n")
        agent = self.agent(1, 2, rdzv=self.rdzv(self.endpoint(2), join_timeout=3))
        self.assertEqual(agent.wait(20), COULD_NOT_JOIN)
        ours = self.our_version(leader.communicate(timeout=20)[0].decode().split())
        self.assert_names_both(lines_with(agent.err, "could not reach"), version, ours)
        self.assertIn(self.endpoint(2), agent.err)
        self.assert_undisturbed(world)

    # Anybody can listen on a port and name a version, so the agent tries again until its time is up.
    def test_an_agent_of_an_older_leader_tries_again_and_both_sides_report_the_versions(self):
        self.check_leader(self.older)

    def test_an_agent_of_a_newer_leader_tries_again_and_both_sides_report_the_versions(self):
        self.check_leader(self.newer)


class Replay(Joining):
    def job_through_a_relay(self):
        """Starts a job in which host1 reaches the leader through a recording relay on host2."""
        self.kept = self.dir / "kept"
        self.kept.mkdir()
        relay = self.net[2].start([sys.executable, "-S", "-E", PROGRAMS / "relay.py",
                                   self.net[0].v4, PORT, self.kept], stdout=subprocess.PIPE)
        with relay.stdout as out:
            self.assertEqual(out.readline(), b"ready\n")
        self.two = [self.agent(0, "1:2"),
                    self.agent(1, "1:2", rdzv=self.rdzv(self.endpoint(2)))]
        self.relay = relay
        return self.world(2)

    def end_relay(self):
        self.relay.kill()
        self.relay.wait()

    def test_replayed_messages_of_an_agent_are_rejected(self):
        world = self.job_through_a_relay()
        before = len(self.two[0].err)
        for path in sorted(self.kept.glob("tcp.*")):
            if path.read_bytes()[:1] != b"\0":  # not a connection of a rank to the store
                output = self.stranger_output("replay", path)
                self.assertIn("closed", output, path)
        self.wait_for_steps(steps=20)
        self.assertEqual([w.name for w in self.worlds()], [world.name], self.two[0].err[before:])
        self.end_relay_and_job()

    def end_relay_and_job(self):
        self.stop_counting()
        self.assertEqual([agent.wait() for agent in self.two], [0, 0])
        self.end_relay()
        self.assert_nothing_left()
        self.assert_counts()

    def test_replayed_heartbeats_do_not_keep_a_dead_agent_alive(self):
        world = self.job_through_a_relay()
        self.wait_for_steps(steps=30)
        self.assertTrue(list(self.kept.glob("udp.*")), "no datagram came through the relay")
        (self.kept / "replay").touch()
        (worker,) = [life.pid for life in world.lives if life.host == "host1"]
        for pid in self.net[1].pids():  # so that no process closes the agent's connections
            send(pid, signal.SIGKILL if pid == worker else signal.SIGSTOP)
        start = time.monotonic()
        until(slowly(lambda: self.worlds()[-1].name != world.name),
              self.keep_alive + self.grace + 8, "a world without the dead node")
        self.assertGreaterEqual(time.monotonic() - start, 0.5 * self.keep_alive)
        self.world(1, after=world)
        for pid in self.net[1].pids():
            send(pid, signal.SIGKILL)
        self.two[1].process.wait()
        self.stop_counting()
        self.assertEqual(self.two[0].wait(), 0)
        self.end_relay()
        self.assert_nothing_left()
        self.assert_counts()


class Strangers(Joining):
    hosts = 4

    def test_garbage_at_the_port_does_not_disturb_the_job(self):
        world = self.job_of_two()
        for seed in range(3):
            self.assertEqual(self.stranger_output("garbage", seed), ["sent"])
            self.assertEqual(self.stranger_output("datagrams", seed), ["sent"])
        self.assert_undisturbed(world)

    def test_garbage_at_the_port_does_not_disturb_a_job_that_is_forming(self):
        first = self.agent(0, 2)
        until(slowly(lambda: self.connected(0)), 20, "the leader")
        self.assertEqual(self.stranger_output("garbage", 4), ["sent"])
        self.assertEqual(self.stranger_output("datagrams", 4), ["sent"])
        self.two = [first, self.agent(1, 2)]
        self.assert_undisturbed(self.world(2))

    def test_idle_connections_do_not_keep_nodes_out(self):
        world = self.job_of_two()
        idle = self.stranger("idle", 500, stdin=subprocess.PIPE)
        self.assertEqual(idle.stdout.readline().split()[0], b"open")
        self.agent(2, "2:3")
        self.world(3, after=world)
        idle.communicate(timeout=10)
        self.end_well()

    def test_only_hosts_of_the_job_can_use_the_store_directly(self):
        self.two = [self.agent(host, "2:3", "--store", "direct") for host in range(2)]
        world = self.world(2)
        self.assertEqual(self.stranger_output("store", host=1), ["served"])
        self.assertEqual(self.stranger_output("store", host=3), ["refused"])
        self.assert_undisturbed(world)

    def test_no_other_host_can_use_the_store_without_an_agent(self):
        world = self.job_of_two()
        for host in (1, 3):
            self.assertEqual(self.stranger_output("store", host=host), ["refused"])
        self.assert_undisturbed(world)


if __name__ == "__main__":
    unittest.main()
