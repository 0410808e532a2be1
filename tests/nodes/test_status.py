"""mgpu-run status shows the state of a job, on any host that has its secret."""

import json
import sys
import unittest

from nodes_job import MGPU_RUN, PROGRAMS, NodesTest, environment, lines_with, slowly, until


class Status(NodesTest):
    hosts = 3

    def run_status(self, host, *options, job="job", endpoint=None, token=True):
        secret = ["--rdzv-token-file", self.token] if token else []
        return self.net[host].run(
            [MGPU_RUN, "status", job, "--rdzv-endpoint", endpoint or self.endpoint(), *secret,
             *options], env=environment(TMPDIR=str(self.dir)))

    def status(self, host, **kwargs):
        answer = self.run_status(host, "--json", **kwargs)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)

    def hosts_of(self, answer):
        return [node["host"] for node in answer["nodes"]]

    def test_the_json_of_a_running_job_is_the_same_on_every_host(self):
        for host in range(2):
            self.agent(host, 2, workers=2)
        self.world(4)
        for host in range(3):
            answer = self.status(host)
            self.assertEqual(self.hosts_of(answer), ["host0", "host1"])
            self.assertEqual([node["node_rank"] for node in answer["nodes"]], [0, 1])
            self.assertEqual({node["state"] for node in answer["nodes"]}, {"running"})
        self.end_well()

    def test_the_text_names_every_node(self):
        for host in range(2):
            self.agent(host, 2)
        world = self.world(2)
        answer = self.run_status(2)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        for name in ("host0", "host1", "running"):
            self.assertTrue(lines_with(answer.stdout, name), answer.stdout)
        self.wait_for_steps()
        self.assertEqual([w.name for w in self.worlds()], [world.name])
        self.end_well()

    def test_every_rank_of_every_node_has_its_step_and_a_straggler_is_named_with_its_node(self):
        program = ["--no-python", sys.executable, "-S", "-E", PROGRAMS / "straggling.py", self.counts]
        agents = [self.agent(host, 2, "--hang-timeout", 1, workers=2, program=program) for host in range(2)]

        def ranks():
            return [(node["host"], rank) for node in self.status(2)["nodes"] for rank in node.get("progress", [])]

        def straggler():
            found = ranks()
            return len(found) == 4 and any(rank.get("straggler") for _, rank in found) and found
        found = until(slowly(straggler), 30, "the straggler")
        self.assertEqual([(host, rank["rank"]) for host, rank in found],
                         [("host0", 0), ("host0", 1), ("host1", 2), ("host1", 3)])
        self.assertEqual([rank.get("straggler", False) for _, rank in found], [False, False, False, True])
        for _, rank in found:
            self.assertGreater(rank["step"], 0)
            self.assertGreater(rank["step_ms"], 0)
            self.assertEqual(rank["phase"], "training")
        self.assertEqual((found[3][1]["busy_ms"], found[3][1]["skew"]), (30, 1.5))
        text = self.run_status(2).stdout
        line = ("rank 3 on host1 is a straggler: its own work takes 30 ms per step, that of the other ranks 20 ms "
                "(1.50 times as long); the others wait up to 10 ms in every step")
        self.assertIn(line, text)
        self.assertRegex(text, r"\n3 +host1 +\d+ +training +\d+ ms +30 ms +1.50\n")
        (self.counts / "go").touch()
        self.assertEqual([agent.wait() for agent in agents], [0, 0])
        # The leader alone prints it, once.
        self.assertEqual("".join(agent.err for agent in agents).count(line), 1)

    def test_a_spare_and_a_restart_are_shown(self):
        for host in range(2):
            self.agent(host, 2, "--max-restarts", 1)
        world = self.world(2)
        self.agent(2, 2, "--max-restarts", 1)
        until(slowly(lambda: "spare" in [node["state"] for node in self.status(0)["nodes"]]), 20,
              "a spare")
        self.break_rank(1)
        self.world(2, after=world)
        self.assertEqual(self.status(1)["restarts"], 1)
        self.end_well()

    def test_a_waiting_job_names_the_missing_nodes(self):
        agents = [self.agent(host, "2:2") for host in range(2)]
        world = self.world(2)
        agents[1].kill()
        until(slowly(lambda: not any(node["state"] == "running"
                                     for node in self.status(0)["nodes"])), 20, "the loss to show")
        answer = self.run_status(0)
        self.assertTrue(lines_with(answer.stdout, "host1", "1 of 2", "missing"), answer.stdout)
        agents[1] = self.agent(1, "2:2")
        self.world(2, after=world)
        self.end_well(agents)

    def test_the_status_is_not_given_without_the_secret(self):
        for host in range(2):
            self.agent(host, 2)
        world = self.world(2)
        without = self.run_status(2, token=False)
        self.assertNotEqual(without.returncode, 0)
        self.assertNotIn("host1", without.stdout + without.stderr)
        self.assertTrue(lines_with(without.stderr, "token"), without.stderr)
        self.token = self.write("wrong", "some other secret of the same kind\n", 0o600)
        wrong = self.run_status(2)
        self.assertNotEqual(wrong.returncode, 0)
        self.assertNotIn("host1", wrong.stdout + wrong.stderr)
        self.wait_for_steps()
        self.assertEqual([w.name for w in self.worlds()], [world.name])
        self.end_well()

    def test_a_missing_job_is_reported_quickly(self):
        answer = self.run_status(2)
        self.assertNotEqual(answer.returncode, 0)
        self.assertIn(self.net[0].v4, answer.stderr)
        self.assertEqual(len(answer.stderr.splitlines()), 1, answer.stderr)

    def test_an_unknown_job_id_is_reported_quickly(self):
        for host in range(2):
            self.agent(host, 2)
        self.world(2)
        answer = self.run_status(2, job="another")
        self.assertNotEqual(answer.returncode, 0)
        self.assertIn("another", answer.stderr)
        self.end_well()


if __name__ == "__main__":
    unittest.main()
