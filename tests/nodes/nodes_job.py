"""Shared by the tests of multi-node jobs: agents on the hosts of a Net, and counting workers."""

import os
import pathlib
import sys
import time
import unittest

import counts
import netns
from netns import Net, send  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import MGPU_RUN, JobTest, alive, environment, until  # noqa: E402, F401

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
PORT = 29400
TIME_LIMIT = 45  # seconds to wait for something that takes a few at most
COULD_NOT_JOIN, USAGE_ERROR = 75, 2


class Agent:
    """One mgpu-run on a host. Its output goes to files, so that its pipes cannot fill up."""

    def __init__(self, test, host, argv, env, stdin=None):
        self.host = host
        self._path = test.dir / f"agent{len(test.agents)}"
        with open(f"{self._path}.out", "wb") as out, open(f"{self._path}.err", "wb") as err:
            self.process = host.start(argv, test.dir, env=env, stdout=out, stderr=err,
                                      **({"stdin": stdin} if stdin is not None else {}))
        self.pid = self.process.pid

    @property
    def out(self):
        return pathlib.Path(f"{self._path}.out").read_text(errors="replace")

    @property
    def err(self):
        return pathlib.Path(f"{self._path}.err").read_text(errors="replace")

    @property
    def running(self):
        return self.process.poll() is None

    def signal(self, signo):
        self.process.send_signal(signo)

    def kill(self):
        """Sends SIGKILL to the agent only."""
        self.process.kill()
        self.process.wait()

    def wait(self, limit=TIME_LIMIT):
        return self.process.wait(limit)


def slowly(condition):
    """A condition for until() that is expensive to check: it is checked less often."""
    def ask():
        time.sleep(0.03)
        return condition()
    return ask


@unittest.skipIf(netns.reason_to_skip(), netns.reason_to_skip())
class NodesTest(JobTest):
    """A job on the hosts of a net that is created for each test. The default timeouts are short."""

    hosts = 2
    servers = 0  # more hosts, on which no agent runs
    second_nic = False
    clocks = ()
    keep_alive, grace, join_timeout, last_call = 1.0, 1.0, 30, 1

    def setUp(self):
        super().setUp()
        self.dir.chmod(0o755)
        self.agents = []
        self.net = Net(self.hosts + self.servers, self.second_nic, self.clocks)
        self.addCleanup(self._end_agents)
        for host, ahead in zip(self.net.hosts, self.clocks):
            self.assertAlmostEqual(host.clock_ahead(), ahead, delta=5, msg=host.name)
        self.token = self.write("token", "a secret of this test, 32 bytes or more\n", 0o600)
        self.counts = self.dir / "counts"
        self.counts.mkdir()

    def run(self, result=None):
        self._result, self._failed_before = result, self._failures(result)
        return super().run(result)

    @staticmethod
    def _failures(result):
        return len(result.failures) + len(result.errors) if result else 0

    def print_agent_output(self):
        for number, agent in enumerate(self.agents):
            state = "running" if agent.running else f"status {agent.process.returncode}"
            print(f"\n--- agent {number} on {agent.host.name}, {state}:",
                  *agent.err.splitlines()[-25:], sep="\n    ", file=sys.stderr)

    def _end_agents(self):
        if self._failures(self._result) > self._failed_before:
            self.print_agent_output()
        self.net.close()
        for agent in self.agents:
            agent.process.wait()

    # --- Starting

    def counting(self, seconds=0.03):
        return ["--no-python", sys.executable, "-S", "-E", PROGRAMS / "counting.py", self.counts,
                seconds]

    def endpoint(self, host=0, port=PORT):
        return f"{self.net[host].v4}:{port}"

    def rdzv(self, endpoint=None, **conf):
        """The options of a dynamic rendezvous."""
        conf = {"join_timeout": self.join_timeout, "last_call_timeout": self.last_call, **conf}
        return ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint or self.endpoint(),
                "--rdzv-id", "job", "--rdzv-conf", ",".join(f"{k}={v}" for k, v in conf.items())]

    def launch(self, host, *args, token=True, env=None, stdin=None):
        """Starts mgpu-run on a host with these arguments and the token."""
        secret = ["--rdzv-token-file", self.token] if token else []
        agent = Agent(self, self.net[host], [MGPU_RUN, *secret, *args],
                      environment(TMPDIR=str(self.dir), CUDA_VISIBLE_DEVICES="", **(env or {})),
                      stdin)
        self.agents.append(agent)
        return agent

    def agent(self, host, nnodes=None, *options, workers=1, rdzv=None, program=None, **launch):
        """Starts an agent of a dynamic job of counting workers."""
        return self.launch(
            host, "--nnodes", nnodes or self.hosts, "--nproc", workers, "--keep-alive",
            self.keep_alive, "--grace", self.grace, *(rdzv or self.rdzv()), *options,
            *(program or self.counting()), **launch)

    def all_agents(self, nnodes=None, *options, **kwargs):
        return [self.agent(host, nnodes, *options, **kwargs) for host in range(self.hosts)]

    def static_agent(self, host, *options, nnodes=None, node_rank=None, master=0, workers=1,
                     program=None, **launch):
        """Starts an agent of a static job with torchrun's options."""
        return self.launch(
            host, "--nnodes", nnodes or self.hosts, "--nproc", workers,
            "--node-rank", host if node_rank is None else node_rank,
            "--master-addr", self.net[master].v4, "--master-port", PORT,
            "--keep-alive", self.keep_alive, "--grace", self.grace, "--rdzv-conf",
            f"join_timeout={self.join_timeout}", *options, *(program or self.counting()), **launch)

    # --- Watching

    def worlds(self):
        return counts.worlds(self.counts)

    def world(self, size, after=None, steps=3, limit=TIME_LIMIT):
        """The newest world, once it has that many ranks and all have done some steps. It must not
        be the world `after`."""
        def newest():
            if not any(agent.running for agent in self.agents):
                raise AssertionError("every agent has ended: "
                                     f"{[agent.process.returncode for agent in self.agents]}")
            found = self.worlds()
            return found and found[-1].size == size and found[-1].steps >= steps and (
                after is None or found[-1].name != after.name) and found[-1]
        return until(slowly(newest), limit, f"a world of {size}, now "
                     f"{[(world.size, world.steps) for world in self.worlds()]},")

    def committed(self):
        return counts.checkpoint(self.counts)["step"]

    def connected(self, host, port=PORT):
        """Whether a socket of that host is connected to the port or bound to it."""
        for family in ("tcp", "tcp6"):
            for line in pathlib.Path(f"/proc/{self.net[host].pid}/net/{family}"
                                     ).read_text().splitlines()[1:]:
                ours, theirs, state = line.split()[1:4]
                if (theirs.endswith(f":{port:04X}") and state == "01"
                        or ours.endswith(f":{port:04X}") and state == "0A"):
                    return True
        return False

    def wait_for_steps(self, steps=3, limit=TIME_LIMIT):
        """Waits until more steps are committed."""
        goal = self.committed() + steps
        until(slowly(lambda: self.committed() >= goal), limit, "progress")

    def break_rank(self, rank, how="exit 7"):
        """Makes a rank fail in its next step."""
        (self.counts / "fail.new").write_text(how)
        (self.counts / "fail.new").rename(self.counts / f"fail.{rank}")

    # --- Ending

    def stop_counting(self):
        (self.counts / "stop").touch()

    def job_pids(self):
        return [pid for host in self.net.hosts[:self.hosts] for pid in host.pids() if alive(pid)]

    def assert_nothing_left(self, limit=10):
        """Checks that no process of the job is left on any host."""
        def left():
            return [(pid, pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()[-80:])
                    for pid in self.job_pids()]
        try:
            until(slowly(lambda: not self.job_pids()), limit)
        except AssertionError:
            raise AssertionError(f"processes are left: {left()}") from None

    def assert_counts(self):
        """Checks that no step was lost or repeated and that no two worlds ran at the same time."""
        self.assertEqual(counts.wrong(self.counts), [])

    def assert_ended(self, status=0, agents=None, limit=TIME_LIMIT):
        """Checks that the agents end with that status, leave no process and counted right."""
        got = [agent.wait(limit) for agent in (self.agents if agents is None else agents)]
        self.assertEqual(got, [status] * len(got))
        self.assert_nothing_left()
        self.assert_counts()

    def end_well(self, agents=None):
        """Lets the workers end, and checks the result of the job."""
        self.stop_counting()
        self.assert_ended(0, [a for a in self.agents if a.running] if agents is None else agents)


def lines_with(text, *words):
    """The lines that contain one of the words."""
    return [line for line in text.splitlines()
            if any(word.lower() in line.lower() for word in words)]
