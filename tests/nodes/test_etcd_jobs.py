"""Jobs over etcd form, end, and leave a state that the next job understands."""

import pathlib
import subprocess
import sys
import time
import unittest

from etcd_cluster import BUILD
from etcd_job import CODE, OverEtcd, user_prefix
from nodes_job import COULD_NOT_JOIN, lines_with, slowly, until

STALLED_FILES = BUILD / "lib" / "libstalled_files.so"


class OldState(OverEtcd):
    """What commit 263596c left in etcd: without a code, and under one prefix for all users."""

    def setUp(self):
        super().setUp()
        self.prefix = "/mgpu-run"

    def rdzv(self, endpoint=None, backend="etcd", **conf):
        conf = {"prefix": self.prefix, "accept_unsigned_state": "true", **conf}
        return super().rdzv(endpoint, backend, **conf)

    STATE = '{"job":7,"left":0,"nodes":3,"oom_count":0,"restarts":1,"rounds":4}'

    def test_a_job_continues_from_the_state_that_an_agent_of_263596c_left(self):
        self.etcd.ctl("put", "/mgpu-run/job/state", self.STATE)
        self.job()
        saved = self.saved(rounds=5)
        self.assertIn(CODE, self.signed("state"))
        self.assertEqual((saved["job"], saved["rounds"]), (7, 5))
        # Agents that have not seen the job before count restarts anew.
        lease_and_grace = round(1000 * (self.keep_alive + self.grace))
        self.assertEqual(saved, {"job": 7, "left": 0, "nodes": 3, "oom_count": 0, "restarts": 0,
                                 "rounds": 5, "lease_and_grace_ms": lease_and_grace})
        self.end_all()

    def test_a_new_agent_begins_another_job_where_the_old_one_has_ended(self):
        self.etcd.ctl("put", "/mgpu-run/job/state", self.STATE.replace("}", ',"ended":3}'))
        world = self.job()
        self.assertEqual(world.restarts, 0)
        self.assertNotEqual(self.saved()["job"], 7)
        self.end_all()

    def test_without_the_option_the_old_state_is_ignored_and_a_line_names_the_option(self):
        self.etcd.ctl("put", "/mgpu-run/job/state", self.STATE)
        self.job(rdzv=self.rdzv(accept_unsigned_state="false"))
        saved = self.saved(rounds=1)
        self.assertNotEqual(saved["job"], 7)
        for agent in self.agents:
            (line,) = lines_with(agent.err, "/mgpu-run/job/state")
            self.assertIn("accept_unsigned_state=true", line)
        self.end_all()


class Formation(OverEtcd):
    def test_three_agents_form_one_world(self):
        world = self.job(nnodes=3, workers=2)
        self.assertEqual(sorted(world.hosts), ["host0"] * 2 + ["host1"] * 2 + ["host2"] * 2)
        self.assertEqual({life.env["torchelastic_run_id"] for life in world.lives}, {"job"})
        names = self.etcd.ctl("get", "--prefix", "--keys-only", "/").stdout.split()
        self.assertEqual([name for name in names if not name.startswith(user_prefix() + "/job/")],
                         [])
        self.end_all()
        self.assertEqual(len(self.worlds()), 1)

    def test_the_etcd_v2_backend_of_torchrun_forms_one_world(self):
        self.job(nnodes=2, hosts=2, rdzv=self.rdzv(backend="etcd-v2"))
        self.end_all()

    def test_a_node_that_joins_later_enlarges_the_job(self):
        world = self.job(hosts=2)
        self.back(2, world)
        self.end_all()

    def test_given_node_ranks_are_respected(self):
        for host, rank in ((0, 2), (1, 0), (2, 1)):
            self.agent(host, 3, "--node-rank", rank)
        self.assertEqual(self.world(3).hosts, ["host1", "host2", "host0"])
        self.end_well()

    def test_the_leader_uses_no_port_but_the_given_one(self):
        self.job("--master-port", 29444, nnodes=3)
        self.assertEqual(self.key("leader"), f"{self.net[self.leader()].v4}:29444")
        self.end_all()

    def test_another_node_leads_when_the_port_is_in_use(self):
        other = self.net[0].start(
            [sys.executable, "-c", "import socket; s = socket.create_server(('', 29444)); "
             "print(flush=True); s.accept()"], stdout=subprocess.PIPE)
        with other.stdout as ready:
            ready.readline()
        first = self.agent(0, 2, "--master-port", 29444)
        until(slowly(lambda: lines_with(first.err, "29444")), 20, "a word of the port")
        time.sleep(2.5)  # the port is tried again meanwhile, without another message
        self.assertEqual(len(lines_with(first.err, "29444")), 1, first.err)
        self.agent(1, 2, "--master-port", 29444)
        self.world(2)
        self.assertEqual(self.leader(), 1)
        self.stop_counting()
        self.assertEqual([agent.wait() for agent in self.agents], [0, 0])
        other.kill()
        other.wait()

    def test_the_leader_announces_its_local_addr(self):
        for host in range(2):
            self.agent(host, 2, "--local-addr", self.net[host].v6)
        self.world(2)
        self.assertIn("[fd00:77::", self.key("leader"))
        self.end_well()

    def test_a_name_server_that_stalls_does_not_keep_an_agent_from_stopping(self):
        member = self.etcd.members[0].url.partition("//")[2].rpartition(":")
        stall = self.write("stall", "")
        agent = self.agent(0, "1:2", rdzv=self.rdzv(f"stalled.example:{member[2]}"), env={
            "LD_PRELOAD": str(STALLED_FILES), "STALL": stall, "STALLED_ADDRESS": member[0]})
        until(lambda: pathlib.Path(stall + ".seen").exists(), 20, "a look-up that does not return")
        agent.process.terminate()
        self.assertEqual(agent.process.wait(10), 143, agent.err)

    def test_a_failing_rank_ends_all_agents_with_its_status(self):
        self.job(nnodes=3)
        self.break_rank(1)
        self.assert_ended(7)


class Ended(OverEtcd):
    def test_the_same_job_id_can_be_used_again_at_once(self):
        world = self.job("--max-restarts", 1, nnodes=3)
        self.break_rank(1)
        world = self.world(3, after=world)
        self.end_all()
        self.counts = self.dir / "counts of the second"
        self.counts.mkdir()
        self.assertEqual(self.job("--max-restarts", 1, nnodes=3).restarts, 0)
        self.end_all()

    def test_a_node_that_was_cut_off_at_the_end_gets_the_status_of_the_job(self):
        world = self.job()
        away = (self.leader() + 1) % 3
        self.net[away].cut()
        world = self.without(away, world)
        self.break_rank(0)
        others = [agent for host, agent in self.by_host.items() if host != away]
        self.assertEqual([agent.wait() for agent in others], [7, 7])
        self.net[away].heal()
        late = self.by_host[away]
        self.assertEqual(late.wait(), 7)
        self.assertTrue(lines_with(late.err, "the job has ended"), late.err)
        self.assert_nothing_left()
        self.assert_counts()

    def test_an_agent_that_starts_after_the_end_does_not_run_the_job_alone(self):
        self.job()
        self.end_all()
        (self.counts / "stop").unlink()
        ran = len(self.worlds())
        late = self.agent(0, "2:3", rdzv=self.rdzv(join_timeout=4))
        self.assertEqual(late.wait(), COULD_NOT_JOIN)
        self.assertTrue(lines_with(late.err, "1 of 2 nodes"), late.err)
        self.assertEqual(len(self.worlds()), ran)


if __name__ == "__main__":
    unittest.main()
