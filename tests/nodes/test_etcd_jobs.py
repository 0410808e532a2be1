"""Jobs whose leader is elected over etcd survive the loss of any node and of any etcd member."""

import json
import os
import pathlib
import pwd
import re
import signal
import subprocess
import sys
import time
import unittest
import urllib.parse

from etcd_cluster import BUILD, Cluster, reason_for_no_etcd
from nodes_job import (COULD_NOT_JOIN, USAGE_ERROR, NodesTest, alive, lines_with, send, slowly,
                       until)

STALLED_FILES = BUILD / "lib" / "libstalled_files.so"
SLACK = 6  # seconds that a busy machine may add
CODE = " hmac-sha256:"  # between a value and its authentication code


def user_prefix():
    """Where the jobs of this user have their keys."""
    name = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "root"
    return "/mgpu-run/" + urllib.parse.quote(name, safe="")


@unittest.skipIf(reason_for_no_etcd(), reason_for_no_etcd())
class OverEtcd(NodesTest):
    hosts, servers = 3, 1

    def setUp(self):
        super().setUp()
        self.prefix = user_prefix()
        self.etcd = self.start_etcd()

    def start_etcd(self, **options):
        cluster = Cluster(hosts=self.net.hosts[self.hosts:], **options)
        self.addCleanup(cluster.close)
        return cluster.wait()

    def endpoints(self):
        return ",".join(member.url.partition("//")[2] for member in self.etcd.members)

    def rdzv(self, endpoint=None, backend="etcd", **conf):
        options = super().rdzv(endpoint or self.endpoints(), **conf)
        options[options.index("c10d")] = backend
        return options

    def lease(self):
        return max(self.keep_alive, 2)  # the shortest that etcd grants

    def path(self, name):
        return f"{self.prefix}/job/{name}"

    def signed(self, name):
        """The value of a key, with its authentication code."""
        return self.etcd.ctl("get", "--print-value-only", self.path(name)).stdout.strip()

    def key(self, name):
        return self.signed(name).partition(CODE)[0]

    def saved(self, **fields):
        """The saved state, once it has these fields."""
        def found():
            text = self.key("state")
            state = json.loads(text) if text else {}
            return state if state and fields.items() <= state.items() else None
        return until(slowly(found), 20, f"a saved state with {fields}")

    def leader(self, but=None):
        """The index of the leader's host, once it is not the host `but`."""
        def found():
            address = self.key("leader").rpartition(":")[0]
            return [host.index for host in self.net.hosts if host.v4 == address
                    and host.index != but]
        return until(slowly(found), 20, "a leader")[0]

    def job(self, *options, nnodes="2:3", hosts=None, after=None, **kwargs):
        """Starts agents on all hosts; returns them and their world."""
        self.by_host = {host: self.agent(host, nnodes, *options, **kwargs)
                        for host in range(self.hosts if hosts is None else hosts)}
        return self.world(len(self.by_host) * kwargs.get("workers", 1), after=after)

    def back(self, host, world, *options):
        """Starts the agent of a host again and waits for the world of all hosts."""
        self.by_host[host] = self.agent(host, "2:3", *options)
        return self.world(3, after=world)

    def end_all(self):
        self.end_well(list(self.by_host.values()))

    def without(self, host, world):
        """Waits for the world of the other hosts and checks that it formed in time."""
        start = time.monotonic()
        after = self.world(2, after=world, steps=1)
        self.assertLess(time.monotonic() - start, self.lease() + self.keep_alive + self.grace + SLACK)
        self.assertNotIn(f"host{host}", after.hosts)
        return after


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


class LeaderLost(OverEtcd):
    def test_the_job_survives_the_leader_s_agent_and_keeps_its_counts(self):
        world = self.job("--max-restarts", 1)
        self.break_rank(1)
        world = self.world(3, after=world)
        self.assertEqual(world.restarts, 1)
        rounds = self.newest_round()
        lost = self.leader()
        self.by_host[lost].kill()
        after = self.without(lost, world)
        self.assertEqual(after.restarts, 1)
        self.assertGreater(self.newest_round(), rounds)
        world = self.back(lost, after, "--max-restarts", 1)
        self.assertEqual(world.restarts, 1)
        self.break_rank(2)
        self.assert_ended(7, self.by_host.values())

    def newest_round(self):
        return max(int(number) for agent in self.agents
                   for number in re.findall(r"round (\d+): ", agent.err))

    def test_the_job_survives_when_each_new_leader_is_killed(self):
        world = self.job()
        for _ in range(3):
            lost = self.leader()
            self.by_host[lost].kill()
            world = self.without(lost, world)
            world = self.back(lost, world)
        self.assertEqual(world.restarts, 0)
        self.end_all()

    def test_the_last_of_two_nodes_continues_alone(self):
        world = self.job(nnodes="1:2", hosts=2)
        lost = self.leader()
        self.by_host.pop(lost).kill()
        after = self.world(1, after=world)
        self.assertEqual((after.hosts, after.restarts), ([f"host{1 - lost}"], 0))
        self.end_all()

    def test_the_job_survives_the_loss_of_another_node(self):
        world = self.job()
        lost = (self.leader() + 1) % 3
        self.by_host[lost].kill()
        after = self.without(lost, world)
        self.assertNotEqual(self.leader(), lost)
        self.back(lost, after)
        self.end_all()

    def test_the_job_survives_the_loss_of_the_leader_s_host(self):
        world = self.job()
        lost = self.leader()
        for pid in self.net[lost].pids():  # the guard too
            send(pid, signal.SIGKILL)
        self.by_host.pop(lost).process.wait()
        self.without(lost, world)
        self.end_all()

    def test_the_job_survives_when_the_leader_s_host_is_cut_off_and_returns(self):
        world = self.job()
        lost = self.leader()
        self.net[lost].cut()
        after = self.without(lost, world)
        mine = [life.pid for life in world.lives if life.host == f"host{lost}"]
        self.assertFalse(any(map(alive, mine)))
        self.assertNotEqual(self.leader(), lost)
        self.net[lost].heal()
        world = self.world(3, after=after)
        self.assertEqual(world.restarts, 0)
        self.end_all()

    def test_no_worker_starts_while_those_of_a_cut_off_leader_have_their_grace_period(self):
        self.grace = 3.0
        world = self.job(env={"COUNTING_STUBBORN": "1"})
        lost = self.leader()
        self.net[lost].cut()
        after = self.without(lost, world)
        (stubborn,) = [life for life in world.lives if life.host == f"host{lost}"]
        self.assertFalse(alive(stubborn.pid))
        self.net[lost].heal()
        self.world(3, after=after)
        self.end_all()

    def test_the_workers_of_a_frozen_leader_are_gone_before_the_others_start(self):
        world = self.job()
        lost = self.leader()
        self.by_host[lost].signal(signal.SIGSTOP)
        after = self.without(lost, world)
        mine = [life.pid for life in world.lives if life.host == f"host{lost}"]
        self.assertFalse(any(map(alive, mine)))
        self.by_host[lost].signal(signal.SIGCONT)
        self.world(3, after=after)
        self.end_all()

    def test_a_leader_that_receives_sigterm_leaves_and_the_others_continue_at_once(self):
        self.grace = 20.0  # the others know that its ranks have ended and do not wait
        world = self.job()
        left = self.leader()
        self.by_host[left].signal(signal.SIGTERM)
        start = time.monotonic()
        self.assertEqual(self.by_host.pop(left).wait(), 128 + signal.SIGTERM)
        after = self.world(2, after=world, steps=1)
        self.assertLess(time.monotonic() - start, self.grace / 2)
        self.assertEqual(after.restarts, 0)
        self.assertNotEqual(self.leader(), left)
        self.end_all()

    def test_a_job_stopped_on_all_nodes_leaves_no_state_to_the_next_job(self):
        world = self.job("--max-restarts", 1)
        self.break_rank(0)
        world = self.world(3, after=world)
        for agent in self.by_host.values():
            agent.signal(signal.SIGTERM)
        self.assert_ended(128 + signal.SIGTERM, self.by_host.values())
        self.assertEqual(self.job("--max-restarts", 1, after=world).restarts, 0)
        self.stop_counting()
        self.assertEqual([agent.wait() for agent in self.by_host.values()], [0] * 3)


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


class Members(OverEtcd):
    servers = 3
    keep_alive = 5.0  # etcd takes one or two to elect another leader of its own

    def test_the_job_is_not_disturbed_when_each_member_in_turn_is_lost(self):
        world = self.job()
        for member in self.etcd.members:
            member.kill()
            self.wait_for_steps(steps=150)  # longer than the lease
            member.start()
            self.etcd.wait()
        self.assertEqual([found.name for found in self.worlds()], [world.name])
        self.end_all()

    def test_the_leader_is_replaced_while_a_member_is_lost(self):
        world = self.job()
        self.etcd.members[0].kill()
        lost = self.leader()
        self.by_host[lost].kill()
        after = self.without(lost, world)
        self.back(lost, after)
        self.end_all()

    def test_no_worker_runs_without_a_majority_and_all_continue_with_one(self):
        world = self.job()
        for member in self.etcd.members[1:]:
            member.kill()
        until(slowly(lambda: not any(map(alive, world.pids))), self.lease() + self.grace + SLACK,
              "the end of the workers")
        self.assertTrue(all(agent.running for agent in self.agents))
        for member in self.etcd.members[1:]:
            member.start()
        self.etcd.wait()
        after = self.world(3, after=world)
        self.assertEqual(after.restarts, 0)
        self.end_all()


class Unreachable(OverEtcd):
    hosts = 1

    def test_a_missing_etcd_is_reported_and_waited_for_until_the_join_timeout(self):
        started = time.monotonic()
        agent = self.agent(0, 2, rdzv=self.rdzv(f"{self.net[0].v4}:2379", join_timeout=6))
        self.assertEqual(agent.wait(), COULD_NOT_JOIN)
        self.assertGreaterEqual(time.monotonic() - started, 5.9)
        lines = lines_with(agent.err, "etcd")
        self.assertEqual(len(lines), 2, agent.err)  # after 3 s, and at the end
        for line in lines:
            self.assertIn(f"{self.net[0].v4}:2379", line)
            self.assertIn("Connection refused", line)

    def test_an_etcd_that_starts_late_is_found(self):
        self.etcd.members[0].kill()
        agent = self.agent(0, "1:2")
        until(slowly(lambda: lines_with(agent.err, "Connection refused")), 20, "a complaint")
        self.etcd.members[0].start()
        self.world(1)
        self.end_well()

    def test_unreadable_certificate_files_are_a_usage_error(self):
        agent = self.agent(0, 2, rdzv=self.rdzv(protocol="https", cacert="/nowhere/ca.pem"))
        self.assertEqual(agent.wait(), USAGE_ERROR)
        self.assertEqual(len(agent.err.splitlines()), 1, agent.err)
        self.assertIn("cacert=/nowhere/ca.pem", agent.err)
        self.assert_nothing_left()


class Users(OverEtcd):
    hosts = 2

    def setUp(self):
        super().setUp()
        for words in (["user", "add", "root:rootpw"], ["user", "grant-role", "root", "root"],
                      ["user", "add", "job:secret"], ["role", "add", "jobs"],
                      ["role", "grant-permission", "jobs", "--prefix=true", "readwrite",
                       user_prefix() + "/"],
                      ["user", "grant-role", "job", "jobs"], ["auth", "enable"]):
            self.etcd.ctl(*words)

    def test_a_user_with_a_password_is_accepted(self):
        self.job(nnodes=2, rdzv=self.rdzv(user="job", password="secret"))
        self.end_all()

    def test_a_password_that_is_sent_over_http_is_reported_once(self):
        self.job(nnodes=2, rdzv=self.rdzv(user="job", password="secret"))
        self.wait_for_steps()
        for agent in self.agents:
            (line,) = lines_with(agent.err, "unencrypted")
            self.assertIn("password of the etcd user job", line)
            self.assertIn(self.etcd.members[0].url, line)
            self.assertIn("use https://", line)
        self.end_all()

    def test_the_role_of_a_user_does_not_include_the_keys_of_others(self):
        self.check_refused("permission denied", user="job", password="secret",
                           prefix="/mgpu-run/somebody-else")

    def check_refused(self, *words, **conf):
        started = time.monotonic()
        agent = self.agent(0, 2, rdzv=self.rdzv(**conf))
        self.assertEqual(agent.wait(), USAGE_ERROR)
        self.assertLess(time.monotonic() - started, SLACK)
        for word in words:
            self.assertIn(word, agent.err)
        return agent

    def test_a_wrong_password_ends_the_agent_at_once_and_is_not_shown(self):
        agent = self.check_refused("rejected the user job", user="job", password="guessed")
        self.assertNotIn("guessed", agent.err)

    def test_a_missing_user_ends_the_agent_at_once(self):
        self.check_refused("requires a user and a password")

    def test_a_running_job_survives_the_loss_of_its_user_s_permission(self):
        world = self.job(nnodes=2, rdzv=self.rdzv(user="job", password="secret"))
        self.etcd.ctl("user", "revoke-role", "job", "jobs", user="root:rootpw")
        until(slowly(lambda: not any(map(alive, world.pids))), self.lease() + self.grace + SLACK,
              "the end of the workers")
        self.etcd.ctl("user", "grant-role", "job", "jobs", user="root:rootpw")
        self.world(2, after=world)
        self.end_all()


class Tls(OverEtcd):
    hosts = 2

    def openssl(self, *words):
        subprocess.run(["openssl", *words], cwd=self.dir, check=True, capture_output=True)

    def certificate(self, name, names):
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                     "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.dir / "names").write_text(f"subjectAltName={names}\n")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                     "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.pem")

    def start_etcd(self):
        try:
            self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
                         "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "ca.key", "-out",
                         "ca.pem", "-days", "2", "-subj", "/CN=authority of a test")
        except FileNotFoundError:
            self.skipTest("openssl is not installed")
        self.certificate("server", f"IP:{self.net[self.hosts].v4}")
        self.certificate("client", "DNS:client.example")
        files = {name: str(self.dir / name) for name in os.listdir(self.dir)}
        return super().start_etcd(tls={"ca": files["ca.pem"], "cert": files["server.pem"],
                                       "key": files["server.key"], "client_ca": files["ca.pem"]})

    def test_certificates_of_both_sides_are_used(self):
        files = {name: self.dir / file for name, file in (
            ("cacert", "ca.pem"), ("cert", "client.pem"), ("key", "client.key"))}
        self.job(nnodes=2, rdzv=self.rdzv(protocol="https", **files))
        self.end_all()

    def test_a_server_with_an_unknown_authority_is_rejected(self):
        agent = self.agent(0, 2, rdzv=self.rdzv(self.etcd.endpoints, join_timeout=4))
        self.assertEqual(agent.wait(), COULD_NOT_JOIN)
        self.assertTrue(lines_with(agent.err, "certificate"), agent.err)


if __name__ == "__main__":
    unittest.main()
