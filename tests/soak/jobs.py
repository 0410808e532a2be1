"""The jobs that a soak injects faults into, and the launchers that run them."""

import dataclasses
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cli"), str(ROOT / "tests" / "nodes")]
import memory_limit  # noqa: E402
import netns  # noqa: E402
from harness import MGPU_RUN, alive, environment, until  # noqa: E402
from progress import Progress, Reader  # noqa: E402
from sizes import Sizes  # noqa: E402

TORCH_PYTHON = os.environ.get("MGPU_TORCH_PYTHON") or sys.executable
MARK = "SOAK_JOB"
PORT = 29400
RESTARTS = 1000000
WITH_US = netns.WITH_US
QUICKSTART = """\
model_size: tiny
tokenizer_path: {examples}/tokenizer
dataset_name: {examples}/addition.jsonl
max_length: 128
global_batch_size: 8
per_device_train_batch_size: {per_device}
max_steps: 10000000
learning_rate: 1.0e-3
lr_scheduler_type: constant
logging_steps: 1
save_steps: {save_steps}
save_total_limit: 2
output_dir: {folder}
plot_loss: false
seed: 42
"""


@dataclasses.dataclass
class Process:
    pid: int
    parent: int
    rank: int  # -1: not a process of a rank
    restarts: int


def _process(pid, mark):
    try:
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        if mark not in variables:
            return None
        variables = dict(entry.split(b"=", 1) for entry in variables.split(b"\0") if b"=" in entry)
        parent = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, ValueError):
        return None
    return Process(pid, parent, int(variables.get(b"RANK", -1)),
                   int(variables.get(b"TORCHELASTIC_RESTART_COUNT", -1)))


class Job:
    """One job on 1 or 4 nodes, under mgpu-run or torchrun. Its folder is on a small disk."""

    def __init__(self, setup, folder):
        self.setup, self.folder = setup, folder
        self.folder.mkdir(parents=True)
        self.disk = setup.disk / f"{os.getpid()}.{uuid.uuid4().hex[:8]}"
        self.disk.mkdir()
        self.mark = uuid.uuid4().hex
        # DDP's first step after a start has other buckets than the later ones, so with more than two
        # ranks gloo may add in another order.
        self.progress = Progress(1e-4 if setup.job == "pytorch" and setup.nodes > 1 else 0)
        self.net, self.limits, self.agents, self.readers = None, [], [], []
        self.held = Sizes()
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def _start(self):
        if self.setup.nodes > 1 and netns.reason_to_skip() is None:
            self.net = netns.Net(self.setup.nodes)
            for host in self.net.hosts:
                host.set_names({other.name: other.v4 for other in self.net.hosts})
        if memory_limit.reason_to_skip() is None:
            self.limits = [memory_limit.MemoryLimit(f"mgpu-soak-{self.mark[:8]}-{node}")
                           for node in range(self.setup.nodes)]
        if self.net is None:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
        else:
            self.port = PORT
        token = self.folder / "token"
        token.write_text("a secret of this soak, 32 bytes or more\n")
        token.chmod(0o600)
        for node in range(self.setup.nodes):
            self._start_agent(node)

    def _start_agent(self, node):
        where = self.net[node].enter(self.folder) if self.net else [*WITH_US, "env", "-C",
                                                                    str(self.folder)]
        limit = self.limits[node].enter() if self.limits else []
        env = environment(**{
            MARK: self.mark, "TMPDIR": str(self.folder), "OMP_NUM_THREADS": "1",
            "PYTHON_EXEC": TORCH_PYTHON, "NO_COLOR": "1", "SOAK_DEVICE": self.setup.device,
            **({"CUDA_VISIBLE_DEVICES": ""} if self.setup.device == "cpu" else {}),
            "MGPU_TRAIN": os.environ.get("MGPU_TRAIN")
            or str(pathlib.Path(MGPU_RUN).with_name("mgpu-train")),
            "NCCL_SOCKET_IFNAME": "eth0" if self.net else "lo",
            # NCCL takes ranks of one host that share a GPU for a mistake.
            **({"NCCL_HOSTID": f"node{node}"} if self.setup.nodes > 1 else {}),
            **({"GLOO_SOCKET_IFNAME": "eth0"} if self.net else {})})
        ours, theirs = os.pipe()
        with open(self.folder / f"agent{node}.err", "wb") as err:
            self.agents.append(subprocess.Popen(
                list(map(str, [*where, *limit, *self._command(node)])), env=env,
                stdin=subprocess.DEVNULL, stdout=theirs, stderr=err))
        os.close(theirs)
        # Only rank 0, which is on node 0, prints what is read.
        self.readers.append(Reader(ours, self.progress if node == 0 else Progress()))

    def _address(self):
        return self.net[0].v4 if self.net else "127.0.0.1"

    def _command(self, node):
        if self.setup.job == "quickstart":
            recipe = self.folder / "quickstart.yaml"
            if node == 0:  # the first agent reads it while the next ones are started
                recipe.write_text(QUICKSTART.format(
                    examples=ROOT / "docs" / "examples", folder=self.disk,
                    per_device=8 // self.ranks,
                    # A step takes a few milliseconds on a GPU.
                    save_steps=5 if self.setup.device == "cpu" else 100))
            program = [recipe]
        else:
            program = [ROOT / "tests" / "soak" / "programs" / "ddp_training.py", self.disk]
        per_node = self.ranks // self.setup.nodes
        if self.setup.launcher == "torchrun":
            nodes = [] if self.setup.nodes == 1 else [
                "--nnodes", self.setup.nodes, "--rdzv-backend", "c10d", "--rdzv-id", "soak",
                "--rdzv-endpoint", f"{self._address()}:{self.port}", "--node-rank", node,
                "--local-addr", self.net[node].v4 if self.net else "127.0.0.1",
                "--rdzv-conf", f"is_host={int(node == 0)}"]
            return [TORCH_PYTHON, "-m", "torch.distributed.run", *nodes, "--nproc-per-node",
                    per_node, "--max-restarts", RESTARTS, *program]
        nodes = [] if self.setup.nodes == 1 else [
            "--nnodes", self.setup.nodes, "--node-rank", node, "--master-addr", self._address(),
            "--master-port", self.port, "--rdzv-token-file", self.folder / "token"]
        hang = ["--hang-timeout", self.setup.hang_timeout] if self.setup.hang_timeout else []
        shared = ["--oversubscribe"] if self.setup.device == "cuda" else []
        return [MGPU_RUN, *nodes, "--nproc", per_node, "--max-restarts", RESTARTS,
                "--retry-delay", 0, "--grace", 5, *hang, *shared,
                "--report", self.folder / f"report{node}.json", *program]

    @property
    def ranks(self):
        return 2 if self.setup.nodes == 1 else self.setup.nodes

    # --- Watching

    def processes(self):
        """The processes of the job: the launchers, what they started and what is left of it."""
        mark = f"{MARK}={self.mark}".encode()
        found = (_process(int(pid), mark) for pid in os.listdir("/proc") if pid.isdigit())
        return [process for process in found if process and alive(process.pid)]

    def workers(self):
        """The process of each rank, by rank."""
        agents = {agent.pid for agent in self.agents}
        return {process.rank: process for process in self.processes()
                if process.rank >= 0 and process.parent in agents}

    def sizes(self):
        """What each launcher holds."""
        return self.held.of([agent.pid for agent in self.agents if agent.poll() is None])

    def running(self):
        return bool(self.agents) and all(agent.poll() is None for agent in self.agents)

    def errors(self):
        """The ends of what the launchers printed to stderr."""
        return "\n".join(path.read_text(errors="replace")[-3000:]
                         for path in sorted(self.folder.glob("agent*.err")))

    # --- Ending

    def stop(self, limit=60):
        """Stops the job with a signal and returns the processes that it left behind."""
        for reader in self.readers:
            reader.read_on()
        agents = self.agents if self.setup.launcher == "torchrun" else self.agents[:1]
        for agent in agents:
            netns.send(agent.pid, signal.SIGTERM)
        try:
            for agent in self.agents:
                agent.wait(limit)
            until(lambda: not self.processes(), 5)
        except (subprocess.TimeoutExpired, AssertionError):
            pass
        return self.processes()

    def failures(self):
        """The failed attempts of the job's report, the first one first."""
        try:
            report = json.loads((self.folder / "report0.json").read_text())
        except (OSError, ValueError):
            return []
        return [attempt for attempt in report["attempts"] if "first_failure" in attempt]

    def end(self):
        """Kills what is left of the job."""
        deadline = time.monotonic() + 20
        while (left := self.processes()) and time.monotonic() < deadline:
            for process in left:
                netns.send(process.pid, signal.SIGKILL)
            time.sleep(0.02)
        for agent in self.agents:
            agent.wait()
        if self.net:
            self.net.close()
        for reader in self.readers:
            reader.read_on()
            reader.join(5)
        for limit in self.limits:
            limit.close()
        subprocess.run(["rm", "-rf", str(self.disk)], check=False)
