"""Our etcd client and the election over it, with real etcd servers that fail in many ways."""

import base64
import json
import signal
import time
import unittest

from etcd_cluster import LEASE, Cluster, EtcdTest, reason_to_skip, until

def setUpModule():
    if reason_to_skip():
        raise unittest.SkipTest(reason_to_skip())


class OneMember(EtcdTest):
    """Tests for which one etcd server is enough."""

    @classmethod
    def setUpClass(cls):
        cls.shared = Cluster().wait()
        cls.endpoints = cls.shared.endpoints

    @classmethod
    def tearDownClass(cls):
        cls.shared.close()

    def test_a_value_that_was_put_can_be_read(self):
        client = self.client(self.endpoints)
        self.assertIsNone(client.ask("get", "/nothing", what="got")["value"])
        self.assertEqual(client.ask("put", "/a", "some text", what="put")["problem"], "")
        self.assertEqual(client.ask("get", "/a", what="got")["value"], "some text")
        self.assertEqual(self.shared.ctl("get", "/a").stdout, "/a\nsome text\n")

    def test_localhost_is_resolved(self):
        port = self.shared.members[0].port
        client = self.client(f"http://localhost:{port}")
        self.assertEqual(client.ask("get", "/nothing", what="got")["problem"], "")

    def test_one_of_two_candidates_leads_and_the_other_sees_it(self):
        a = self.candidate(self.endpoints, "a:1", job="two")
        leads = a.change(us=True)
        self.assertEqual((leads["leader"], leads["state"]), ("a:1", None))
        b = self.candidate(self.endpoints, "b:2", job="two")
        sees = b.change(leader="a:1")
        self.assertFalse(sees["us"])
        self.assertEqual(sees["term"], leads["term"])
        self.assertTrue(a.ask("save", "one", what="saved")["good"])
        b.change(state="one")
        self.assertFalse(b.ask("save", "mine", what="saved")["good"])
        self.assertTrue(a.ask("save", "two", what="saved")["good"])
        b.change(state="two")

    def test_after_a_resignation_the_other_candidate_leads_at_once_with_the_state(self):
        a = self.candidate(self.endpoints, "a:1", job="resign", lease=60)
        a.change(us=True)
        self.assertTrue(a.ask("save", "kept", what="saved")["good"])
        b = self.candidate(self.endpoints, "b:2", job="resign", lease=60)
        before = b.change(leader="a:1")
        a.ask("resign", what="resigned")
        after = b.change(us=True, limit=5)
        self.assertEqual(after["state"], "kept")
        self.assertGreater(after["term"], before["term"])
        self.assertFalse(a.ask("save", "late", what="saved")["good"])
        a.sees(leader="b:2", us=False)
        a.say("campaign", "a:1")
        b.ask("resign", what="resigned")
        self.assertEqual(a.change(us=True, limit=5)["state"], "kept")

    def test_when_the_leader_dies_another_leads_within_the_lease_plus_a_second(self):
        a = self.candidate(self.endpoints, "a:1", job="dies")
        a.change(us=True)
        self.assertTrue(a.ask("save", "kept", what="saved")["good"])
        b = self.candidate(self.endpoints, "b:2", job="dies")
        b.change(leader="a:1")
        a.kill()
        died = time.clock_gettime(time.CLOCK_BOOTTIME)
        leads = b.change(us=True, limit=LEASE + 5)
        self.assertLess(leads["at"] - died, LEASE + 1)
        self.assertEqual(leads["state"], "kept")

    def test_a_leader_that_was_frozen_notices_its_loss_before_it_can_save(self):
        a = self.candidate(self.endpoints, "a:1", job="frozen")
        a.change(us=True)
        b = self.candidate(self.endpoints, "b:2", job="frozen")
        b.change(leader="a:1")
        a.send(signal.SIGSTOP)
        b.change(us=True, limit=LEASE + 5)
        self.assertTrue(b.ask("save", "new", what="saved")["good"])
        a.say("save", "old")  # it reads this when it continues
        before = len(a.lines)
        a.send(signal.SIGCONT)
        self.assertFalse(a.wait("saved")["good"])
        lines = [line for line in a.lines[before:] if line["what"] in ("change", "saved")]
        self.assertEqual(lines[0]["what"], "change")
        self.assertFalse(lines[0]["us"])
        self.assertFalse(a.ask("leading", what="leading")["good"])
        a.sees(leader="b:2", state="new")
        self.assertEqual(self.key("frozen", "state"), "new")

    def key(self, job, name):
        return self.shared.ctl("get", "--print-value-only", f"/mgpu-run/{job}/{name}").stdout.strip()

    def test_a_leader_whose_key_was_deleted_stops_leading(self):
        a = self.candidate(self.endpoints, "a:1", job="taken", lease=60)
        a.change(us=True)
        self.shared.ctl("del", "/mgpu-run/taken/leader")
        a.change(us=False, limit=5)
        self.assertFalse(a.ask("save", "x", what="saved")["good"])
        self.assertEqual(self.key("taken", "state"), "")

    def test_a_leader_whose_lease_was_revoked_stops_leading(self):
        a = self.candidate(self.endpoints, "a:1", job="revoked", lease=60)
        a.change(us=True)
        got = a.ask("get", "/mgpu-run/revoked/leader", what="got")
        self.shared.ctl("lease", "revoke", f"{got['lease']:x}")
        a.change(us=False, limit=5)

    def test_only_the_leader_replaces_a_state_that_another_client_wrote(self):
        a = self.candidate(self.endpoints, "a:1", job="foreign")
        a.change(us=True)
        self.assertTrue(a.ask("save", "one", what="saved")["good"])
        self.shared.ctl("put", "/mgpu-run/foreign/state", "not ours")
        a.change(state="not ours")
        self.assertTrue(a.ask("save", "two", what="saved")["good"])
        self.assertEqual(self.key("foreign", "state"), "two")

    def test_a_state_whose_lease_is_gone_is_saved_with_a_new_lease(self):
        a = self.candidate(self.endpoints, "a:1", job="lost_lease")
        a.change(us=True)
        self.assertTrue(a.ask("save", "one", what="saved")["good"])
        got = a.ask("get", "/mgpu-run/lost_lease/state", what="got")
        self.shared.ctl("lease", "revoke", f"{got['lease']:x}")
        a.change(state=None)
        self.assertTrue(a.ask("save", "two", what="saved")["good"])
        self.assertEqual(self.key("lost_lease", "state"), "two")

    def test_all_keys_of_a_job_expire(self):
        a = self.candidate(self.endpoints, "a:1", job="old", keep=2, lease=5)
        a.change(us=True)
        self.assertTrue(a.ask("save", "one", what="saved")["good"])
        started = time.monotonic()
        while time.monotonic() - started < 5:  # more than twice the lease of the state
            self.assertTrue(a.ask("leading", what="leading")["good"])
            self.assertEqual(self.key("old", "state"), "one")
            time.sleep(0.25)
        a.kill()
        until(lambda: not self.shared.ctl("get", "--prefix", "/mgpu-run/old/").stdout, 10,
              "the end of the job's keys")

    def test_the_end_of_a_job_stays_visible_to_late_agents_for_a_while(self):
        a = self.candidate(self.endpoints, "a:1", job="ended")
        a.change(us=True)
        self.assertTrue(a.ask("save", "running", what="saved")["good"])
        self.assertTrue(a.ask("save_end", 3, "ended with 0", what="saved")["good"])
        a.ask("resign", what="resigned")
        a.kill()
        late = self.client(self.endpoints, job="ended")
        late.say("observe")
        self.assertEqual(late.change()["state"], "ended with 0")
        late.change(state=None, limit=10)

    def test_of_overlapping_saves_the_last_one_wins(self):
        a = self.candidate(self.endpoints, "a:1", job="many")
        a.change(us=True)
        for number in range(200):
            a.say("save", f"state-{number}")
        for _ in range(200):
            self.assertTrue(a.wait("saved")["good"])
        self.assertEqual(self.key("many", "state"), "state-199")

    def test_a_large_state_is_saved_and_seen(self):
        a = self.candidate(self.endpoints, "a:1", job="large")
        a.change(us=True)
        b = self.client(self.endpoints, job="large")
        b.say("observe")
        b.change(leader="a:1")
        self.assertTrue(a.ask("save_large", 512 << 10, what="saved")["good"])
        self.assertEqual(len(b.change(state=lambda state: state)["state"]), 512 << 10)

    def test_of_many_candidates_one_leads_at_a_time(self):
        candidates = [self.candidate(self.endpoints, f"c:{i + 1}", job="crowd", lease=30)
                      for i in range(8)]
        waiting = list(range(8))
        terms = []
        for _ in range(8):
            leader = until(lambda: [i for i in waiting
                                    if any(line.get("us") for line in candidates[i].lines)],
                           10, "a leader")
            self.assertEqual(len(leader), 1)
            terms.append([line["term"] for line in candidates[leader[0]].lines
                          if line.get("us")][0])
            candidates[leader[0]].ask("resign", what="resigned")
            waiting.remove(leader[0])
        self.assertEqual(terms, sorted(set(terms)))

    def test_a_watch_of_compacted_revisions_reports_the_compaction(self):
        client = self.client(self.endpoints)
        for number in range(3):
            client.ask("put", "/watched", number, what="put")
        status = json.loads(self.shared.ctl("get", "/watched", "-w", "json").stdout)
        revision = status["header"]["revision"]
        self.shared.ctl("compact", str(revision))
        client.say("watch", "/watched", 1)
        self.assertIn("no longer keeps", client.wait("lost")["why"])
        client.say("watch", "/watched", revision)
        self.assertEqual(client.wait("event")["value"], "2")

    def test_an_observer_continues_after_a_compaction(self):
        a = self.candidate(self.endpoints, "a:1", job="compacted", lease=60)
        a.change(us=True)
        b = self.client(self.endpoints, job="compacted", lease=60)
        b.say("observe")
        b.change(leader="a:1")
        b.send(signal.SIGSTOP)
        for number in range(20):
            self.assertTrue(a.ask("save", f"s{number}", what="saved")["good"])
        got = json.loads(self.shared.ctl("get", "/x", "-w", "json").stdout)
        self.shared.ctl("compact", str(got["header"]["revision"]))
        b.send(signal.SIGCONT)
        b.change(state="s19", limit=10)

    def test_jobs_with_similar_ids_are_separate(self):
        a = self.candidate(self.endpoints, "a:1", job="x/y")
        b = self.candidate(self.endpoints, "b:2", job="x")
        c = self.candidate(self.endpoints, "c:3", job="x%2Fy")
        for client, address in ((a, "a:1"), (b, "b:2"), (c, "c:3")):
            self.assertEqual(client.change(us=True)["leader"], address)

    def test_a_client_that_left_its_election_receives_nothing_more(self):
        a = self.candidate(self.endpoints, "a:1", job="forgets")
        a.change(us=True)
        for _ in range(20):
            a.say("save", "x")
        a.say("forget")
        self.assertEqual(a.ask("get", "/nothing", what="got")["problem"], "")
        self.assertIsNone(a.process.poll())


SECRET = "a secret of this test, 32 bytes or more"


class Signed(EtcdTest):
    """Jobs with a secret, in an etcd where other clients write to their keys."""

    @classmethod
    def setUpClass(cls):
        cls.shared = Cluster().wait()
        cls.endpoints = cls.shared.endpoints

    @classmethod
    def tearDownClass(cls):
        cls.shared.close()

    def begin(self, job, state="one"):
        """A leader that has saved a state, and an observer that has seen it."""
        a = self.candidate(self.endpoints, "a:1", job=job, lease=60, secret=SECRET)
        a.change(us=True)
        self.assertTrue(a.ask("save", state, what="saved")["good"])
        return a, self.observer(job, state=state)

    def observer(self, job, secret=SECRET, accept_unsigned=False, **fields):
        b = self.client(self.endpoints, job=job, lease=60, secret=secret,
                        accept_unsigned=str(accept_unsigned).lower())
        b.say("observe")
        b.change(**fields)
        return b

    def raw(self, job, name):
        return self.shared.ctl("get", "--print-value-only",
                               f"/mgpu-run/{job}/{name}").stdout.rstrip("\n")

    def put(self, job, name, value):
        self.shared.ctl("put", f"/mgpu-run/{job}/{name}", value)

    @staticmethod
    def rejected(job, name, why):
        """Whether a line names that key and that reason."""
        return lambda text: f"etcd key /mgpu-run/{job}/{name} is ignored" in text and why in text

    def test_all_that_have_the_secret_accept_what_the_leader_writes(self):
        a, b = self.begin("signed")
        self.assertTrue(a.ask("save", "two", what="saved")["good"])
        b.change(leader="a:1", state="two")
        self.assertRegex(self.raw("signed", "leader"), "^a:1 hmac-sha256:[0-9a-f]{64}$")
        self.assertRegex(self.raw("signed", "state"), "^two hmac-sha256:[0-9a-f]{64}$")
        b.say("campaign", "b:2")
        a.ask("resign", what="resigned")
        self.assertEqual(b.change(us=True)["state"], "two")
        self.assertTrue(b.ask("save", "three", what="saved")["good"])
        b.sees(state="three")
        for client in (a, b):
            lines = [line for line in client.lines if line["what"] == "change"]
            self.assertFalse([line for line in lines
                              if line["leader_rejected"] or line["state_rejected"]])

    def test_a_signed_state_whose_lease_is_gone_is_saved_again(self):
        a, b = self.begin("signed_lease")
        got = a.ask("get", "/mgpu-run/signed_lease/state", what="got")
        self.shared.ctl("lease", "revoke", f"{got['lease']:x}")
        b.change(state=None)
        a.sees(state=None)
        self.assertTrue(a.ask("save", "two", what="saved")["good"])
        self.assertEqual(b.change(state="two")["state_rejected"], "")

    def test_a_state_ended_with_0_that_another_client_wrote_is_not_accepted(self):
        a, b = self.begin("ended_by_another")
        self.put("ended_by_another", "state", "ended with 0")
        no_code = self.rejected("ended_by_another", "state", "it has no authentication code")
        b.change(state=None, state_rejected=no_code)
        a.change(state=None, state_rejected=no_code)
        self.assertTrue(a.ask("save", "two", what="saved")["good"])
        b.change(state="two", state_rejected="")

    def test_a_stranger_s_leader_address_is_not_accepted(self):
        a, b = self.begin("strange_leader")
        self.put("strange_leader", "leader", "evil:666")
        no_code = self.rejected("strange_leader", "leader", "it has no authentication code")
        b.change(leader="", leader_rejected=no_code)
        a.change(leader="a:1", us=True, leader_rejected=no_code)
        self.assertTrue(a.ask("save", "two", what="saved")["good"])
        b.change(state="two")

    def test_a_candidate_waits_until_a_stranger_s_leader_key_is_deleted(self):
        self.put("blocked", "leader", "evil:666")
        a = self.candidate(self.endpoints, "a:1", job="blocked", secret=SECRET)
        a.change(us=False, leader="", leader_rejected=lambda text: "etcdctl del" in text)
        self.shared.ctl("del", "/mgpu-run/blocked/leader")
        a.change(us=True, leader_rejected="")

    def test_a_replayed_old_state_is_not_accepted(self):
        a, b = self.begin("replayed")
        old = self.raw("replayed", "state")
        self.assertTrue(a.ask("save", "two", what="saved")["good"])
        b.change(state="two")
        wrong = self.rejected("replayed", "state", "its authentication code is wrong")
        self.put("replayed", "state", old)
        b.change(state=None, state_rejected=wrong)
        self.shared.ctl("del", "/mgpu-run/replayed/state")
        b.change(state=None, state_rejected="")
        self.put("replayed", "state", old)
        b.change(state=None, state_rejected=wrong)
        self.put("replayed", "state", old)  # now it has the version that it was signed for
        self.observer("replayed", leader="a:1", state=None, state_rejected=wrong)

    def test_a_replayed_leader_address_is_not_accepted_over_another(self):
        a, b = self.begin("replayed_leader")
        old = self.raw("replayed_leader", "leader")
        a.ask("resign", what="resigned")
        b.change(leader="")
        c = self.candidate(self.endpoints, "c:3", job="replayed_leader", lease=60, secret=SECRET)
        c.change(us=True)
        b.change(leader="c:3")
        self.put("replayed_leader", "leader", old)
        b.change(leader="", leader_rejected=self.rejected("replayed_leader", "leader", "is wrong"))

    def test_the_state_of_another_job_with_the_same_secret_is_not_accepted(self):
        self.begin("first_job")
        _, b = self.begin("second_job", "two")
        self.put("second_job", "state", self.raw("first_job", "state"))
        b.change(state=None, state_rejected=self.rejected("second_job", "state", "is wrong"))

    def test_a_state_whose_code_was_stripped_is_not_accepted(self):
        _, b = self.begin("stripped")
        self.put("stripped", "state", "one")
        b.change(state=None, state_rejected=self.rejected(
            "stripped", "state", "accept_unsigned_state=true"))
        self.observer("stripped", accept_unsigned=True, state="one", state_rejected="")

    def test_values_of_another_secret_are_not_accepted(self):
        self.begin("two_secrets")
        self.observer("two_secrets", secret="another secret of this test", leader="", state=None,
                      leader_rejected=self.rejected("two_secrets", "leader", "is wrong"),
                      state_rejected=self.rejected("two_secrets", "state", "is wrong"))

    def test_signed_values_are_not_accepted_without_a_secret(self):
        self.begin("no_secret")
        self.observer("no_secret", secret="", leader="", state=None,
                      leader_rejected=self.rejected("no_secret", "leader", "has no secret"),
                      state_rejected=self.rejected("no_secret", "state", "has no secret"))

    def test_a_leader_continues_from_an_unsigned_state_on_request_and_signs_it(self):
        self.put("old_version", "state", "one")
        a = self.candidate(self.endpoints, "a:1", job="old_version", secret=SECRET,
                           accept_unsigned="true")
        self.assertEqual(a.change(us=True)["state"], "one")
        self.assertTrue(a.ask("save", "two", what="saved")["good"])
        self.assertRegex(self.raw("old_version", "state"), "^two hmac-sha256:[0-9a-f]{64}$")
        self.observer("old_version", state="two", state_rejected="")


class ThreeMembers(EtcdTest):
    """One of three members is lost, always the one that our client is connected to."""

    def begin(self, job):
        cluster = self.cluster(3)
        a = self.candidate(cluster.endpoints, "a:1", job=job, lease=5)
        a.change(us=True)
        b = self.candidate(cluster.endpoints, "b:2", job=job, lease=5)
        b.change(leader="a:1")
        self.assertTrue(a.ask("save", "one", what="saved")["good"])
        b.change(state="one")
        return cluster, a, b

    def still_works(self, a, b, limit):
        """Checks that the leader saves, that the other sees it, and that it is still leader."""
        self.assertTrue(a.ask("save", "two", what="saved", limit=limit)["good"])
        b.change(state="two", limit=limit)
        us = [line["us"] for line in a.lines if line["what"] == "change"]
        self.assertEqual(us, sorted(us), "it led without a break")
        self.assertFalse([line for line in b.lines if line.get("us")])

    def test_the_election_continues_when_the_connected_member_is_killed(self):
        cluster, a, b = self.begin("killed")
        cluster.members[0].kill()
        self.still_works(a, b, 5)

    def test_the_election_continues_when_the_connected_member_is_frozen(self):
        cluster, a, b = self.begin("frozen")
        cluster.members[0].send(signal.SIGSTOP)
        self.still_works(a, b, 10)

    def test_the_election_continues_when_etcd_s_leader_is_killed(self):
        cluster, a, b = self.begin("etcd_leader")
        cluster.members[cluster.leader()].kill()
        self.still_works(a, b, 10)

    def test_the_election_continues_when_each_member_in_turn_is_restarted(self):
        cluster, a, b = self.begin("rolling")
        for number, member in enumerate(cluster.members):
            member.kill()
            self.assertTrue(until(lambda: a.ask("save", f"r{number}", what="saved")["good"], 20,
                                  "a save"))
            b.change(state=f"r{number}", limit=15)
            member.start()
            cluster.wait()
        self.assertFalse([line for line in b.lines if line.get("us")])

    def test_a_watch_continues_at_its_revision_when_its_member_is_killed(self):
        cluster = self.cluster(3)
        client = self.client(cluster.endpoints)
        client.ask("put", "/w", "0", what="put")
        client.say("watch", "/w", 1)
        self.assertEqual(client.wait("event")["value"], "0")
        cluster.members[0].kill()
        for number in range(1, 6):
            until(lambda: cluster.ctl("put", "/w", str(number), check=False).returncode == 0)
        for number in range(1, 6):
            self.assertEqual(client.wait("event")["value"], str(number))

    def test_without_a_majority_the_leader_steps_down_in_time_and_all_report_it(self):
        cluster, a, b = self.begin("minority")
        cluster.members[1].kill()
        cluster.members[2].kill()
        lost = time.clock_gettime(time.CLOCK_BOOTTIME)
        change = a.change(us=False, limit=10)
        self.assertLess(change["at"] - lost, 5)
        self.assertFalse(a.ask("save", "x", what="saved")["good"])
        b.change(problem=lambda text: "etcd does not answer" in text, limit=15)
        self.assertFalse([line for line in b.lines if line.get("us")])
        cluster.members[1].start()
        a.say("campaign", "a:1")
        until(lambda: [line for line in a.lines[a.read:] + b.lines[b.read:] if line.get("us")], 40,
              "a leader when the majority is back")

    def test_a_request_delayed_by_a_frozen_member_undoes_nothing(self):
        cluster, a, b = self.begin("held_up")
        cluster.members[0].send(signal.SIGSTOP)
        for number in range(5):
            self.assertTrue(a.ask("save", f"h{number}", what="saved")["good"])
        cluster.members[0].send(signal.SIGCONT)
        cluster.wait()
        revisions = []

        def settled():
            revisions.append(json.loads(
                cluster.ctl("get", "/mgpu-run/held_up/state", "-w", "json").stdout))
            return len(revisions) > 10
        until(settled)
        last = revisions[-1]["kvs"][0]
        self.assertEqual(base64.b64decode(last["value"]), b"h4")
        b.change(state="h4")


if __name__ == "__main__":
    unittest.main()
