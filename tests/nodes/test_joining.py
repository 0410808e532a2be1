"""Who may join a job: those that know its secret, and nobody by saying again what they heard."""

import os
import signal
import subprocess
import sys
import time
import unittest

from nodes_job import (COULD_NOT_MEET, MISTAKE, PORT, PROGRAMS, NodesTest, lines_with, send,
                       slowly, until)

REFUSED = (1, MISTAKE, COULD_NOT_MEET)


class Joining(NodesTest):
    hosts = 3

    def job_of_two(self, **kwargs):
        """A job that has room for a third."""
        self.two = [self.agent(host, "2:3", **kwargs) for host in range(2)]
        return self.world(2)

    def assert_undisturbed(self, world):
        """The job is still of these two, and has been all along."""
        self.goes_on(steps=20)
        self.assertEqual([w.name for w in self.worlds()], [world.name])
        self.end_well(self.two)

    def stranger(self, what, *args, host=None, **popen):
        return self.net[self.hosts - 1 if host is None else host].start(
            [sys.executable, "-S", "-E", PROGRAMS / "stranger.py", what, self.net[0].v4, PORT,
             *args], stdout=subprocess.PIPE, **popen)

    def told(self, what, *args, **kwargs):
        return self.stranger(what, *args, **kwargs).communicate(timeout=60)[0].decode().split()


class Secrets(Joining):
    def refused(self, *options, **kwargs):
        """What an agent says that wants to be the third of the job and is not let in."""
        kwargs.setdefault("meeting", self.meeting(join_timeout=3))
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

    def test_a_token_file_and_the_variable_are_the_same(self):
        secret = (self.dir / "token").read_text().strip()
        self.agent(0, 2)
        self.agent(1, 2, token=False, env={"MGPU_RDZV_TOKEN": secret})
        self.world(2)
        self.end_well()

    def check_mistake(self, *words, **kwargs):
        agent = self.agent(0, 2, **kwargs)
        self.assertEqual(agent.wait(10), MISTAKE)
        self.assertEqual(len(agent.err.splitlines()), 1, agent.err)
        for word in words:
            self.assertIn(word, agent.err)
        self.assert_nothing_left()

    def test_without_a_token_one_line_offers_a_file_or_to_do_without(self):
        self.check_mistake("--rdzv-token-file", "--insecure", token=False)

    def test_the_same_for_a_static_job(self):
        agent = self.static_agent(0, token=False)
        self.assertEqual(agent.wait(10), MISTAKE)
        self.assertEqual(len(agent.err.splitlines()), 1, agent.err)
        self.assertIn("--insecure", agent.err)

    def test_a_token_file_that_others_can_read_is_refused(self):
        self.token = self.write("open", "a secret that everybody can read, though\n", 0o644)
        self.check_mistake(self.token)

    def test_so_is_one_that_is_empty_or_not_there(self):
        for name, text in (("empty", ""), ("blank", "\n"), ("nowhere", None)):
            with self.subTest(name):
                self.token = str(self.dir / name)
                if text is not None:
                    self.write(name, text, 0o600)
                self.check_mistake(self.token)

    def test_insecure_needs_none(self):
        for host in range(2):
            self.agent(host, 2, "--insecure", token=False)
        self.world(2)
        self.end_well()

    def test_insecure_does_not_open_a_job_that_has_a_token(self):
        world = self.job_of_two()
        self.refused("--insecure", token=False)
        self.assert_undisturbed(world)

    def test_nor_does_a_token_join_a_job_that_has_none(self):
        self.two = [self.agent(host, "2:3", "--insecure", token=False) for host in range(2)]
        world = self.world(2)
        self.refused()
        self.assert_undisturbed(world)

    def test_a_token_on_stdin_goes_with_it(self):
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
        second.wait()  # the end of stdin ends the agent with its workers
        until(slowly(lambda: not self.net[1].pids()), 20, "the end of the second node")
        self.agents[0].signal(signal.SIGTERM)
        self.agents[0].wait()
        self.assert_nothing_left()

    def test_another_job_id_is_refused_with_a_word_on_both_sides(self):
        world = self.job_of_two()
        options = self.meeting(join_timeout=3)
        options[options.index("job")] = "another-job"
        self.assertIn("another-job", self.refused(meeting=options))
        self.assertTrue(lines_with(self.two[0].err, "another-job"), self.two[0].err)
        self.assert_undisturbed(world)


class Versions(Joining):
    """Peers that greet with another version of the protocol than this mgpu-run's."""

    older, newer = 0, 255

    def our_version(self, told):
        """What the other side was told before the connection was closed."""
        self.assertEqual((told[:1], told[2:]), (["version"], ["closed"]), told)
        return told[1]

    def assert_names_both(self, lines, theirs, ours):
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(f"version {theirs} of", lines[0])
        self.assertIn(f"version {ours};", lines[0])

    def check_caller(self, version):
        world = self.job_of_two()
        ours = self.our_version(self.told("calls", version))
        said = lines_with(self.two[0].err, "version")
        self.assert_names_both(said, version, ours)
        self.assertIn(self.net[2].v4, said[0])
        self.assert_undisturbed(world)

    def test_an_older_agent_is_turned_away_and_both_sides_are_told_the_versions(self):
        self.check_caller(self.older)

    def test_a_newer_agent_too(self):
        self.check_caller(self.newer)

    def check_leader(self, version):
        world = self.job_of_two()
        leader = self.net[2].start(
            [sys.executable, "-S", "-E", PROGRAMS / "stranger.py", "leads", self.net[2].v4, PORT,
             version], stdout=subprocess.PIPE)
        self.assertEqual(leader.stdout.readline(), b"listening\n")
        agent = self.agent(1, 2, meeting=self.meeting(self.endpoint(2)))
        self.assertEqual(agent.wait(10), MISTAKE)
        ours = self.our_version(leader.communicate(timeout=20)[0].decode().split())
        self.assert_names_both(agent.err.splitlines(), version, ours)
        self.assertIn(self.endpoint(2), agent.err)
        self.assert_undisturbed(world)

    def test_an_agent_that_calls_an_older_leader_ends_and_both_sides_are_told_the_versions(self):
        self.check_leader(self.older)

    def test_an_agent_that_calls_a_newer_leader_too(self):
        self.check_leader(self.newer)


class Replay(Joining):
    def job_through_a_relay(self):
        """host1 reaches the leader through host2, which keeps all that it says."""
        self.kept = self.dir / "kept"
        self.kept.mkdir()
        relay = self.net[2].start([sys.executable, "-S", "-E", PROGRAMS / "relay.py",
                                   self.net[0].v4, PORT, self.kept], stdout=subprocess.PIPE)
        with relay.stdout as out:
            self.assertEqual(out.readline(), b"ready\n")
        self.two = [self.agent(0, "1:2"),
                    self.agent(1, "1:2", meeting=self.meeting(self.endpoint(2)))]
        self.relay = relay
        return self.world(2)

    def end_relay(self):
        self.relay.kill()
        self.relay.wait()

    def test_what_an_agent_said_is_worth_nothing_when_it_is_said_again(self):
        world = self.job_through_a_relay()
        before = len(self.two[0].err)
        for path in sorted(self.kept.glob("tcp.*")):
            if path.read_bytes()[:1] != b"\0":  # not the ranks' talk with the store
                told = self.told("replay", path)
                self.assertIn("closed", told, path)
        self.goes_on(steps=20)
        self.assertEqual([w.name for w in self.worlds()], [world.name], self.two[0].err[before:])
        self.end_relay_and_job()

    def end_relay_and_job(self):
        self.stop_counting()
        self.assertEqual([agent.wait() for agent in self.two], [0, 0])
        self.end_relay()
        self.assert_nothing_left()
        self.assert_counts()

    def test_heartbeats_of_a_dead_agent_said_again_do_not_keep_it_alive(self):
        world = self.job_through_a_relay()
        self.goes_on(steps=30)
        self.assertTrue(list(self.kept.glob("udp.*")), "no datagram came through the relay")
        (self.kept / "replay").touch()
        (worker,) = [life.pid for life in world.lives if life.host == "host1"]
        for pid in self.net[1].pids():  # nothing closes the agent's connections
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

    def test_garbage_at_the_port_disturbs_nobody(self):
        world = self.job_of_two()
        for seed in range(3):
            self.assertEqual(self.told("garbage", seed), ["said"])
            self.assertEqual(self.told("datagrams", seed), ["said"])
        self.assert_undisturbed(world)

    def test_garbage_before_the_nodes_have_met_neither(self):
        first = self.agent(0, 2)
        until(slowly(lambda: self.connected(0)), 20, "the leader")
        self.assertEqual(self.told("garbage", 4), ["said"])
        self.assertEqual(self.told("datagrams", 4), ["said"])
        self.two = [first, self.agent(1, 2)]
        self.assert_undisturbed(self.world(2))

    def test_idle_connections_keep_nobody_out(self):
        world = self.job_of_two()
        idle = self.stranger("idle", 500, stdin=subprocess.PIPE)
        self.assertEqual(idle.stdout.readline().split()[0], b"open")
        self.agent(2, "2:3")
        self.world(3, after=world)
        idle.communicate(timeout=10)
        self.end_well()

    def test_the_store_is_for_members_only(self):
        world = self.job_of_two()
        self.assertEqual(self.told("store", host=1), ["served"])
        self.assertEqual(self.told("store", host=3), ["refused"])
        self.assert_undisturbed(world)


if __name__ == "__main__":
    unittest.main()
