"""PyTorch programs whose ranks are on several hosts and communicate with gloo."""

import json
import os
import pathlib
import signal
import unittest

from nodes_job import PROGRAMS, NodesTest, slowly, until

TORCH_PYTHON = os.environ.get("MGPU_TORCH_PYTHON", "")
CLIENTS = pathlib.Path(__file__).resolve().parents[1] / "clients" / "programs"
LIMIT = 120  # seconds; eight ranks need 20 to import torch on two cores


@unittest.skipIf(not TORCH_PYTHON, "MGPU_TORCH_PYTHON names no python that has torch")
class Torch(NodesTest):
    hosts = 4
    keep_alive, grace, join_timeout = 3.0, 2.0, 60

    def setUp(self):
        super().setUp()
        self.sums = self.dir / "sums"
        self.sums.mkdir()

    # gloo would resolve the host's own name, which fails here: choosing its interface
    # is the job of the agent.
    def torch_agent(self, host, nnodes, *options, program=None, **kwargs):
        return self.agent(host, nnodes, *options,
                          program=program or [PROGRAMS / "reducing.py", self.sums],
                          env={"PYTHON_EXEC": TORCH_PYTHON}, **kwargs)

    def results(self):
        """The results that the ranks of the last world printed, ordered by rank."""
        lines = [json.loads(line) for agent in self.agents for line in agent.out.splitlines()
                 if line.startswith("{")]
        return sorted(lines, key=lambda line: line["rank"])

    def reduced(self, world, pids=()):
        """Waits until a world of that size, without those pids, has done some steps."""
        def ranks():
            files = [path for path in self.sums.glob(f"sums.*.{world}.*")
                     if int(path.suffix[1:]) not in pids and path.read_text().count("\n") > 3]
            return len(files) == world and [int(path.suffix[1:]) for path in files]
        return until(slowly(ranks), LIMIT, f"sums of {world} ranks")

    def check_sums(self):
        """Checks that in every world every rank got the right sum in every step."""
        for path in self.sums.glob("sums.*"):
            for number, line in enumerate(path.read_text().splitlines()):
                line = json.loads(line)
                size = line["world"]
                self.assertEqual((line["step"], line["sum"], line["steps"]),
                                 (number, size * (size + 1) / 2, size * number), path)

    def end(self, agents, world):
        (self.sums / "stop").touch()
        self.assertEqual([agent.wait(LIMIT) for agent in agents], [0] * len(agents),
                         [agent.err for agent in agents])
        self.assert_nothing_left()
        self.check_sums()
        last = self.results()
        self.assertEqual([line["rank"] for line in last], list(range(world)))
        return last

    def test_gloo_works_on_two_hosts_of_two_ranks_before_and_after_a_failure(self):
        agents = [self.torch_agent(host, 2, "--max-restarts", 3, workers=2) for host in range(2)]
        pids = self.reduced(4)
        (self.sums / "fail.3").touch()
        self.reduced(4, pids)
        last = self.end(agents, 4)
        self.assertEqual({line["attempt"] for line in last}, {1})
        self.assertEqual([line["host"] for line in last], ["host0"] * 2 + ["host1"] * 2)
        self.assertEqual({line["master"] for line in last}, {"127.0.0.1"})
        self.assertEqual({line["leader"] for line in last}, {self.net[0].v4})

    def test_gloo_works_on_four_hosts_when_one_is_killed_and_replaced(self):
        agents = [self.torch_agent(host, "3:4", "--max-restarts", 5) for host in range(4)]
        pids = self.reduced(4)
        agents[2].signal(signal.SIGKILL)
        agents[2].wait()
        pids += self.reduced(3, pids)
        agents[2] = self.torch_agent(2, "3:4", "--max-restarts", 5)
        self.reduced(4, pids)
        self.end(agents, 4)

    def test_a_program_written_for_one_host_runs_on_several(self):
        agents = [self.torch_agent(host, 4, "--max-restarts", 3,
                                   program=[CLIENTS / "failing_twice.py"]) for host in range(4)]
        self.assertEqual([agent.wait(LIMIT) for agent in agents], [0] * 4)
        self.assert_nothing_left()
        self.assertEqual(self.results(), [{"rank": r, "attempt": 2, "sum": 4} for r in range(4)])


if __name__ == "__main__":
    unittest.main()
