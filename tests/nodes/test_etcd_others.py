"""Other clients of etcd write to the keys of a job: nothing of it is accepted."""

import json
import subprocess
import sys
import unittest

from etcd_job import OverEtcd
from nodes_job import COULD_NOT_JOIN, lines_with, slowly, until


class OthersWrite(OverEtcd):
    """None of the other clients has the job's secret."""

    def put(self, name, value):
        self.etcd.ctl("put", self.path(name), value)

    def assert_rejected(self, name, why):
        """Checks that every agent reports the key once, with the reason."""
        for agent in self.by_host.values():
            until(slowly(lambda a=agent: lines_with(a.err, self.path(name))), 20, "a line")
            lines = lines_with(agent.err, self.path(name))
            self.assertEqual(len(lines), 1, agent.err)
            self.assertIn(why, lines[0])

    def lose_the_leader(self, world):
        """Kills the leader's agent; a new leader reads the state."""
        lost = self.leader()
        self.by_host.pop(lost).kill()
        return self.without(lost, world)

    def test_a_state_ended_with_0_that_another_client_wrote_does_not_end_the_job_with_success(self):
        world = self.job()
        self.put("state", json.dumps({**self.saved(rounds=1), "ended": 0}))
        self.lose_the_leader(world)
        self.assert_rejected("state", "it has no authentication code")
        self.break_rank(0)
        self.assert_ended(7, self.by_host.values())

    def test_a_replayed_old_state_does_not_reset_the_counts(self):
        world = self.job("--max-restarts", 1)
        self.saved(rounds=1)
        old = self.signed("state")
        self.break_rank(1)
        world = self.world(3, after=world)
        self.saved(rounds=2, restarts=1)
        self.put("state", old)
        after = self.lose_the_leader(world)
        self.assert_rejected("state", "its authentication code is wrong")
        self.assertEqual(after.restarts, 1)
        self.break_rank(0)
        self.assert_ended(7, self.by_host.values())

    def test_the_end_of_an_earlier_job_that_is_put_back_does_not_end_the_next_one(self):
        world = self.job()
        self.saved(rounds=1)
        running = self.signed("state")
        self.end_all()
        self.saved(ended=0)
        ended = self.signed("state")
        (self.counts / "stop").unlink()
        self.put("state", running)  # so that new agents take themselves for agents of that job
        world = self.job(after=world)
        self.put("state", ended)
        self.lose_the_leader(world)
        self.break_rank(0)
        self.assert_ended(7, self.by_host.values())

    def test_a_state_whose_code_was_stripped_is_ignored(self):
        world = self.job()
        self.saved(rounds=1)
        self.put("state", self.key("state"))
        self.lose_the_leader(world)
        self.assert_rejected("state", "it has no authentication code")
        self.end_all()

    def test_no_agent_connects_to_a_stranger_s_leader_address(self):
        listener = self.net[0].start(
            [sys.executable, "-c", "import socket; s = socket.create_server(('', 29555)); "
             "print(flush=True); s.accept(); print('connected', flush=True)"],
            stdout=subprocess.PIPE)
        self.addCleanup(listener.stdout.close)
        listener.stdout.readline()
        self.put("leader", f"{self.net[0].v4}:29555")
        self.by_host = {host: self.agent(host, 2) for host in range(2)}
        self.assert_rejected("leader", f"etcdctl del {self.path('leader')}")
        self.assertEqual(self.worlds(), [])
        listener.kill()
        listener.wait()
        self.assertEqual(listener.stdout.read(), b"")
        self.etcd.ctl("del", self.path("leader"))
        self.world(2)
        self.end_all()

    def test_a_job_that_finds_only_a_stranger_s_leader_address_ends_with_status_75(self):
        self.put("leader", f"{self.net[0].v4}:29555")
        agent = self.agent(0, "1:2", rdzv=self.rdzv(join_timeout=4))
        self.assertEqual(agent.wait(), COULD_NOT_JOIN)
        (line,) = lines_with(agent.err, "could not reach the leader")
        self.assertIn(f"the etcd key {self.path('leader')} is ignored", line)

    def test_a_stranger_s_leader_address_does_not_disturb_a_running_job(self):
        world = self.job()
        self.put("leader", f"{self.net[0].v4}:29555")
        self.wait_for_steps(steps=150)  # longer than the lease
        self.assertEqual([found.name for found in self.worlds()], [world.name])
        self.assert_rejected("leader", "it has no authentication code")
        self.end_all()

    def test_an_agent_with_another_secret_names_the_key_and_does_not_join(self):
        self.job(hosts=2)
        secret = self.write("another", "another secret of this test, long enough\n", 0o600)
        late = self.agent(2, "2:3", "--rdzv-token-file", secret, token=False,
                          rdzv=self.rdzv(join_timeout=4))
        self.assertEqual(late.wait(), COULD_NOT_JOIN)
        (line,) = lines_with(late.err, "could not reach the leader")
        self.assertIn(self.path("leader"), line)
        self.assertIn("give all nodes the same secret", line)
        self.end_all()


if __name__ == "__main__":
    unittest.main()
