"""Injects one fault after another into a training job and prints when mgpu-run reports each fault, what it
reports, and when the next step is done. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B fault_bench.py [--model 1.5B] [--task full] [--ranks 2] [--agents 2]

| fault | what happens |
| --- | --- |
| kill | the last rank gets SIGKILL; all ranks restart |
| stop | the last rank gets SIGSTOP; mgpu-run detects the hang, and all ranks restart |
| agent | with `--agents 2` only: the second agent, its guard and its ranks get SIGKILL, as when a node is lost; the other agent goes on with its ranks |
| return | after `agent`: the second agent is started again and its ranks join the job |

The ranks are divided evenly among the agents, and each agent uses GPUs of its own. `--sockets` keeps NCCL
from shared memory and NVLink. The other options are those of restart_bench.py.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import restart_bench
from random_model import SHAPES, write_model
from restart_bench import BIN, NativeJob


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Agent:
    """One mgpu-run; keeps its messages with the times at which they were printed."""

    def __init__(self, command, env):
        self.messages = []
        self.process = subprocess.Popen(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            if line.startswith("mgpu-run: "):
                self.messages.append((time.time(), line.rstrip()))

    def descendants(self):
        found, pids = [], [self.process.pid]
        for pid in pids:
            found.append(pid)
            try:
                children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
            except OSError:
                continue
            pids += [int(child) for child in children.split()]
        return found

    def lose(self):
        """Kills everything that this agent has started, the agent first, so that nothing reports it."""
        pids = self.descendants()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


class FaultyJob:
    def __init__(self, args, folder):
        self.args = args
        # A step has the same rows whatever the number of ranks, so that fewer ranks may go on.
        args.set.append(f"global_batch_size={args.batch * args.ranks}")
        self.native = NativeJob(args, folder)
        self.token = folder / "token"
        self.token.write_text("a secret of this bench, 32 bytes or more\n")
        self.token.chmod(0o600)
        self.port = free_port()
        self.agents = [self.start(number) for number in range(args.agents)]

    def start(self, number):
        args, recipe = self.args, self.native.command[-1]
        ranks = args.ranks // args.agents
        options = ["--max-restarts", "20", "--hang-timeout", str(args.hang_timeout)]
        env = dict(self.native.env)
        if args.agents > 1:
            first = number * ranks
            options += ["--nnodes", f"1:{args.agents}", "--rdzv-endpoint", f"127.0.0.1:{self.port}",
                        "--rdzv-id", "faults", "--rdzv-token-file", str(self.token), "--rdzv-conf",
                        "last_call_timeout=3", "--local-addr", "127.0.0.1"]
            if "CUDA_VISIBLE_DEVICES" not in os.environ and args.gpus:
                env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(first, first + ranks)))
        if args.sockets:
            env |= {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}
        if args.sockets and args.agents > 1:
            env["NCCL_HOSTID"] = f"node{number}"
        return Agent([BIN / "mgpu-run", "--nproc", str(ranks), *options, recipe], env)

    def steps_after(self, moment):
        return [at for _, at in self.native.steps() if at > moment]

    def wait(self, what, ready, limit=300):
        end = time.monotonic() + limit
        while not (value := ready()):
            if self.agents[0].process.poll() is not None or time.monotonic() > end:
                for agent in self.agents:
                    print("\n".join(text for _, text in agent.messages), file=sys.stderr)
                sys.exit(f"the job ended, or {limit} s are over, while waiting for {what}")
            time.sleep(0.02)
        return value

    def settle(self, moment):
        """Waits for a checkpoint after `moment` and a few steps after it."""
        saved = self.wait("a checkpoint", lambda: [at for at in self.native.saved() if at > moment])[0]
        self.wait("steps", lambda: len(self.steps_after(saved)) >= 3)

    def inject(self, fault):
        if fault == "agent":
            self.agents[-1].lose()
        elif fault == "return":
            self.agents[-1] = self.start(self.args.agents - 1)
        else:
            os.kill(self.native.pids()[-1],
                    {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[fault])

    def measure(self, fault):
        self.settle(time.time())
        began = time.time()
        self.inject(fault)
        if fault == "return":  # steps go on until the new round
            ranks = self.args.ranks
            self.wait("all ranks", lambda: len(self.native.pids()) == ranks and self.starts(began))
            began_steps = self.starts(began)[-1]
        else:
            began_steps = began + 0.5  # a step that was under way may still be recorded
        done = self.wait("a step", lambda: self.steps_after(began_steps))[0]
        print(f"{fault}: next step is done after {done - began:.2f} s")
        for agent in self.agents:
            for at, text in agent.messages:
                if began <= at <= done:
                    print(f"  {at - began:6.2f} s  {text[:300]}")
        sys.stdout.flush()

    def starts(self, moment):
        return [r["time"] for r in self.native.records() if r["event"] == "start" and r["time"] > moment]

    def end(self):
        for agent in self.agents:
            agent.process.terminate()
        for agent in self.agents:
            agent.process.wait(timeout=120)


def main():
    parser = restart_bench.arguments()
    parser.add_argument("--agents", type=int, default=1)
    parser.add_argument("--sockets", action="store_true")
    parser.add_argument("--hang-timeout", default="10", help="of mgpu-run; auto waits for minutes [10]")
    parser.add_argument("--faults", help="in this order [kill,stop; with two agents also agent,return]")
    args = parser.parse_args()
    args.gpus = len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))
    faults = args.faults or ("kill,stop,agent,return" if args.agents > 1 else "kill,stop")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        folder = pathlib.Path(folder)
        write_model(folder / "model", SHAPES[args.model])
        job = FaultyJob(args, folder)
        print(f"{args.model} {args.task}, {args.ranks} ranks, {args.agents} agents")
        try:
            for fault in faults.split(","):
                job.measure(fault)
        finally:
            job.end()


if __name__ == "__main__":
    main()
