"""A Slurm for one test: munged, slurmctld and one slurmd on each host of a Net."""

import os
import pathlib
import secrets
import shutil
import signal
import subprocess

from harness import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "squeue", "scancel")

CONF = """ClusterName=test
SlurmctldHost={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPort=6817
SlurmdPort=6818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=5
MailProg=/bin/true
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def program(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def reason_to_skip():
    """Why Slurm cannot be run here; None if it can."""
    if os.geteuid() != 0:
        return "only root can start slurmd"
    missing = [name for name in PROGRAMS if not program(name)]
    return f"there is no {missing[0]} here (slurm-wlm, munge)" if missing else None


class Slurm:
    """The last host of the net is the controller; the others are nodes of two CPUs and two GPUs.

    The GPUs are only counted: there are no devices behind them.
    """

    def __init__(self, net):
        self.net, self.controller = net, net[len(net) - 1]
        self.nodes = [net[i] for i in range(len(net) - 1)]
        self.dir = pathlib.Path(net.dir) / "slurm"
        self._daemons = []
        names = {net[i].name: net[i].v4 for i in range(len(net))}
        for i in range(len(net)):
            net[i].set_names(names)
        try:
            self._write()
            self._start()
        except BaseException:
            self.close()
            raise

    def _write(self):
        for name in ("", "munge", "state"):
            (self.dir / name).mkdir(mode=0o755)
        self.net.dir.chmod(0o755)  # munged requires a path that no other user can change
        key = self.dir / "munge" / "key"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o600)
        nodes = "\n".join(f"NodeName={node.name} NodeAddr={node.v4} CPUs=2 Gres=gpu:2 State=UNKNOWN"
                          for node in self.nodes)
        (self.dir / "slurm.conf").write_text(CONF.format(
            controller=f"{self.controller.name}({self.controller.v4})", folder=self.dir,
            nodes=nodes))
        for i in range(2):
            (self.dir / f"gpu{i}").touch()
        (self.dir / "gres.conf").write_text(f"Name=gpu File={self.dir}/gpu[0-1]\n")

    def environment(self, **changes):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("SLURM", "SBATCH", "MGPU_", "PET_"))}
        return {**env, "SLURM_CONF": str(self.dir / "slurm.conf"),
                "MGPU_MUNGE_SOCKET": str(self.dir / "munge" / "socket"), **changes}

    def _daemon(self, host, *argv):
        log = open(self.dir / f"out.{len(self._daemons)}", "wb")
        with log:
            self._daemons.append(host.start(
                [program(argv[0]), *argv[1:]], env=self.environment(), stdout=log, stderr=log))

    def _start(self):
        munge = self.dir / "munge"
        # One munged for all hosts: they share the machine and the folder of its socket.
        self._daemon(self.controller, "munged", "--foreground", "--force",
                     f"--key-file={munge}/key", f"--socket={munge}/socket",
                     f"--pid-file={munge}/pid", f"--log-file={munge}/log",
                     f"--seed-file={munge}/seed")
        until(lambda: (munge / "socket").exists(), 20, "munged's socket")
        self._daemon(self.controller, "slurmctld", "-D")
        for node in self.nodes:
            self._daemon(node, "slurmd", "-D", "-N", node.name)
        try:
            until(self.all_idle, 60, "idle nodes")
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.logs()}") from None

    def all_idle(self):
        states = self.run("sinfo", "-h", "-N", "-o", "%T").stdout.split()
        return len(states) == len(self.nodes) and set(states) == {"idle"}

    def logs(self):
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}"
                         for log in sorted(self.dir.glob("*log")) + sorted(self.dir.glob("out.*")))

    def run(self, name, *argv, limit=120, env=None, **popen):
        """Runs a Slurm command on the controller to its end."""
        return self.controller.run([program(name), *argv], limit,
                                   env=self.environment(**(env or {})), **popen)

    def close(self):
        for daemon in reversed(self._daemons):  # slurmd waits for its controller when it stops
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
