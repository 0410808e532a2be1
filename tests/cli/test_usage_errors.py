"""Every usage error of mgpu-run and mgpu-train: status 2 and one line that names what is wrong.

To read all messages from top to bottom:
    MGPU_PRINT_USAGE_ERRORS=1 python3 -m unittest discover -s tests/cli -p test_usage_errors.py
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from harness import MGPU_RUN, SLOWER, JobTest, environment

PRINT = bool(os.environ.get("MGPU_PRINT_USAGE_ERRORS")) or any(
    argument in ("-v", "--verbose") for argument in sys.argv[1:])
MGPU_TRAIN = pathlib.Path(
    os.environ.get("MGPU_BUILD", pathlib.Path(MGPU_RUN).parents[1])).resolve() / "bin/mgpu-train"
LONGEST = 500  # characters of a message
NOBODY = 65534

# Variables that schedulers and other launchers set, and that a message may depend on.
SURROUNDINGS = ("SLURM_", "OMPI_", "PMIX_", "KUBERNETES_", "TORCH_ELASTIC_", "LOCAL_", "GROUP_",
                "JOB_COMPLETION_INDEX", "PYTHON_EXEC", "CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE")
# Names that keep their capital at the beginning of a message. "Could not convert" is CLI11's.
PROPER_NAMES = ("Slurm", "Open MPI", "PMIx", "Kubernetes", "Could not convert")

SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2",
         "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "0", "SLURM_STEP_NODELIST": "a[1-2]"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
ETCD = ("--nnodes", "2", "--insecure", "--rdzv-backend", "etcd", "--rdzv-endpoint")
C10D = ("--nnodes", "2", "--insecure", "--rdzv-backend", "c10d", "--rdzv-endpoint", "h:1")
PROGRAM = ("--no-python", "/bin/true")

# Two GPUs without a kernel driver, on a NUMA node that has no cores; seen by one process only.
FAKE_GPUS = """
mount -t tmpfs tmpfs /proc/driver && mount -t tmpfs tmpfs /sys/bus/pci/devices || exit 99
for i in 1 2; do
  mkdir -p /proc/driver/nvidia/gpus/0000:0$i:00.0 /sys/bus/pci/devices/0000:0$i:00.0
  echo "GPU UUID: GPU-5eed000$i" > /proc/driver/nvidia/gpus/0000:0$i:00.0/information
  echo 99 > /sys/bus/pci/devices/0000:0$i:00.0/numa_node
done
"""
NO_TOPOLOGY = "mount -t tmpfs tmpfs /sys/devices/system || exit 99"


@dataclasses.dataclass
class Case:
    """One wrong command line, and what its message has to name."""

    name: str
    args: tuple
    named: tuple
    env: dict = dataclasses.field(default_factory=dict)  # None removes a variable
    files: dict = dataclasses.field(default_factory=dict)  # text, bytes, or a function of the path
    mode: int = 0o644  # of the files
    stdin: object = None  # text, or the path of a file
    machine: str = ""  # what root changes for this process alone
    as_nobody: bool = False
    alone: bool = False  # in a folder without mgpu-train
    hidden: tuple = ()  # what must not be shown


def made_folder(path):
    path.mkdir()


def made_socket(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))


def of_another_user(path):
    path.write_text("secret\n")
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o600)


def config(text, *named, name=None, **others):
    """A config file that is wrong."""
    return Case(name or f"config file: {named[-1] if len(named) > 1 else text[:30]!r}",
                ("--config", "c.yaml", "x.py"), named, files={"c.yaml": text}, **others)


def launch(text, *named, name=None, **others):
    """A recipe whose launch section is wrong."""
    return Case(name or f"launch section: {text.strip()[:40]!r}", ("t.yaml",), named,
                files={"t.yaml": "launch:\n" + text}, **others)


def hosts(text, *named, name=None):
    """A hostfile that is wrong."""
    return Case(name or f"hostfile: {text[:30]!r}", ("--hostfile", "hosts", "x.py"),
                ("hosts", *named), files={"hosts": text})


def option(argument, *named):
    """An option with a bad value."""
    name, _, value = argument.partition("=")
    return Case(argument[:40], (argument, "x.py"), (name, *(named or ((value,) if value else ()))))


def variable(name, value, *named):
    """A variable with a bad value."""
    return Case(f"{name}={value}", ("x.py",), (name, *named), env={name: value})


def slurm(name, changes, *named, args=("x.py",)):
    return Case(f"Slurm: {name}", args, named, env={**SLURM, **changes})


def open_mpi(name, changes, *named, args=("x.py",)):
    return Case(f"Open MPI: {name}", args, named, env={**OPEN_MPI, **changes})


def etcd(endpoint, *named, hidden=()):
    return Case(f"etcd at {endpoint[:40]}", (*ETCD, endpoint, *PROGRAM),
                ("--rdzv-endpoint", *named), hidden=hidden)


def conf(settings, *named):
    return Case(f"--rdzv-conf {settings}", (*C10D, "--rdzv-conf", settings, *PROGRAM),
                ("--rdzv-conf", *named))


def token_file(name, content, *named, mode=0o600):
    return Case(f"token file: {name}",
                ("--nnodes", "2", "--rdzv-token-file", "secret", *PROGRAM), ("secret", *named),
                files={"secret": content} if content is not None else {}, mode=mode)


COMMAND_LINE = [
    Case("nothing to run", (), ("--help",)),
    Case("an unknown option like another", ("--nprocs", "2", "x.py"), ("--nprocs", "--nproc")),
    Case("an unknown option like no other", ("--colour", "x.py"), ("--colour", "--help")),
    Case("an option without a name", ("--=3", "x.py"), ("--help",)),
    Case("an unknown letter", ("-q", "x.py"), ("-q", "--help")),
    Case("a beginning of two options", ("--no", "x.py"), ("--no", "--no-python")),
    Case("an option at the end without its value", ("--nproc",), ("--nproc", "N|gpu|cpu|auto")),
    Case("a letter at the end without its value", ("-n",), ("-n", "N|gpu|cpu|auto")),
    Case("an option instead of a value", ("--nproc", "--tee", "3", "x.py"), ("--nproc", "--tee")),
    Case("--module with --no-python", ("--module", "--no-python", "x"),
         ("--module", "--no-python")),
    Case("a command that does not exist yet", ("top",), ("top",)),
    Case("processes that nodes cannot share",
         ("--num-processes", "5", "--num-machines", "2", "x.py"),
         ("--num-processes", "5", "2", "--nproc")),
]

VALUES = [
    *(option(f"--nproc={value}", f"{value}") for value in ("0", "4097", "4x")),
    option("--nproc="), option("--num-processes=many"), option("-n=0"),
    *(option(f"--{name}=maybe") for name in ("module", "no-python", "run-path", "use-env", "prefix",
                                             "oversubscribe", "standalone", "dry-run", "json")),
    option("--nnodes=0"), option("--nnodes=1:2:3"), option("--nnodes=65537"),
    option("--nnodes=4:2"),
    option("--node-rank=-1"), option("--node-rank=65536"),
    option("--master-port=65536"), option("--main-process-port=http"),
    option("--max-restarts=-1"), option("--max-restarts=often"),
    option("--grace=-1"), option("--grace=nan"), option("--shutdown-timeout=1min"),
    option("--retry-delay=soon"), option("--monitor-interval=often"), option("--keep-alive=0.4"),
    option("--keep-alive=long"),
    option("--signals-to-handle=SIGFOO"), option("--signals-to-handle=SIGTERM,SIGKILL", "SIGKILL"),
    option("--signals-to-handle=SIGCHLD"),
    option("--numa-binding=far", "far", "core-complex"),
    option("--start-method=thread", "thread", "forkserver"),
    option("--rdzv-backend=zookeeper", "zookeeper", "c10d"),
    option("--completion=tcsh", "tcsh", "bash"),
    option("--redirects=5"), option("--redirects=0:1,0:2"), option("--tee=0:9"), option("-t=x"),
    option("--local-ranks-filter=0,x"),
    option("--duplicate-stdout-filters=,"), option("--duplicate-stderr-filters=,"),
    option("--gpus=first"), option("--gpus=0,1,0", "0"), option("--gpu-ids=0,"),
    option("--rdzv-endpoint=host:port"), option("--rdzv-endpoint=[::1"),
    option("--rdzv-endpoint=:1"),
    option("--rdzv-conf=timeout"), option("--rdzv-conf=timeout=3,is_host", "is_host"),
    option("--env=NAME"), option("--env==value", "value"), option("--set=learning_rate"),
    *(option(f"--{name}=") for name in (
        "workdir", "role", "config", "master-addr", "rdzv-id", "local-addr", "hostfile",
        "ssh-command", "rdzv-token-file", "log-dir", "log-line-prefix-template", "report",
        "logs-specs")),
    Case("a value of 100 KB", ("--nproc", "9" * 100_000, "x.py"), ("--nproc", "999")),
    Case("a value with a newline", ("--role", "trainer", "--nproc", "4\n4", "x.py"), ("--nproc",)),
]

VARIABLES = [
    variable("MGPU_NPROC", "many", "many"), variable("MGPU_NUM_PROCESSES", "0", "0"),
    variable("MGPU_STANDALONE", "perhaps", "perhaps"), variable("MGPU_MAX_RESTARTS", "-1", "-1"),
    variable("MGPU_GRACE", "5 min", "5 min"), variable("MGPU_TEE", "4", "4"),
    Case("MGPU_ENV: the second of two lines", ("x.py",), ("MGPU_ENV", "WRONG"),
         env={"MGPU_ENV": "RIGHT=1\nWRONG"}),
    Case("MGPU_CONFIG: a file that is not there", ("x.py",), ("no-such.yaml",),
         env={"MGPU_CONFIG": "no-such.yaml"}),
    variable("PET_NNODES", "0", "0"), variable("PET_NPROC_PER_NODE", "x", "x"),
    variable("PET_RDZV_ENDPOINT", "a:b", "a:b"), variable("PET_RDZV_CONF", "x", "x"),
    variable("PET_SIGNALS_TO_HANDLE", "SIGSTOP", "SIGSTOP"),
    variable("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "x", "x"),
]

YAML_FILES = [
    Case("a config that is not there", ("--config", "no.yaml", "x.py"), ("no.yaml",)),
    Case("a config that is a folder", ("--config", ".", "x.py"), (".",)),
    Case("a recipe that is not there", ("no.yaml",), ("no.yaml",)),
    Case("an empty recipe", ("t.yaml",), ("t.yaml",), files={"t.yaml": ""}),
    Case("a recipe with comments only", ("t.yaml",), ("t.yaml",), files={"t.yaml": "# to do\n"}),
    Case("a recipe of one word", ("t.yaml",), ("t.yaml:1",), files={"t.yaml": "launch\n"}),
    Case("a recipe that is a list", ("t.yaml",), ("t.yaml:1",), files={"t.yaml": "- launch\n"}),
    Case("a recipe of more than 1 MiB", ("t.yaml",), ("t.yaml",),
         files={"t.yaml": "a" * 2_000_000}),
    Case("a recipe with a NUL byte", ("t.yaml",), ("t.yaml:2",), files={"t.yaml": "a: b\nc: \0\n"}),
    Case("two documents", ("t.yaml",), ("t.yaml:",), files={"t.yaml": "a: b\n---\nc: d\n"}),
    Case("a deep recipe", ("t.yaml",), ("t.yaml:1",),
         files={"t.yaml": "a: " + "[" * 40 + "]" * 40}),
    Case("a key twice", ("t.yaml",), ("t.yaml:3", "nproc"),
         files={"t.yaml": "launch:\n  nproc: 2\n  nproc: 3\n"}),
    Case("a tab", ("t.yaml",), ("t.yaml:2",), files={"t.yaml": "launch:\n\tnproc: 2\n"}),
    Case("broken YAML", ("t.yaml",), ("t.yaml:",), files={"t.yaml": "launch:\n  nproc: [2\n"}),
    Case("an unreadable recipe", ("t.yaml",), ("t.yaml",), files={"t.yaml": "launch: {}\n"}, mode=0,
         as_nobody=True),
    Case("a launch section that is a value", ("t.yaml",), ("t.yaml:1", "launch"),
         files={"t.yaml": "launch: 2\n"}),
    Case("a launch section that is a list", ("t.yaml",), ("t.yaml:1", "launch"),
         files={"t.yaml": "launch: [nproc]\n"}),
    launch("  [nproc, tee]: 2\n", "t.yaml:2", "launch"),
    launch("  max_restart: 2\n", "t.yaml:2", "max_restart", "max_restarts"),
    launch("  colour: red\n", "t.yaml:2", "colour"),
    launch("  config: other.yaml\n", "t.yaml:2", "config"),
    launch("  nproc: 2\n  nproc_per_node: 3\n", "t.yaml:3", "nproc_per_node", "nproc", "2"),
    launch("  enable_fault_tolerance: maybe\n", "t.yaml:2", "enable_fault_tolerance", "maybe"),
    launch("  enable_fault_tolerance: [true]\n", "t.yaml:2", "enable_fault_tolerance"),
    launch("  nproc: many\n", "t.yaml:2", "nproc", "many"),
    launch("  nnodes: '4:2'\n", "t.yaml:2", "nnodes", "4:2"),
    launch("  role:\n", "t.yaml:2", "role", name="launch section: nothing after a key"),
    launch("  role: [a]\n", "t.yaml:2", "role"),
    launch("  role: {a: b}\n", "t.yaml:2", "role"),
    Case("launch section: an alias", ("t.yaml",), ("t.yaml:3", "role"),
         files={"t.yaml": "name: &n trainer\nlaunch:\n  role: *n\n"}),
    launch('  role: "a\\0b"\n', "t.yaml:2", "role"),
    launch('  local_ranks_filter: ["0,1"]\n', "t.yaml:2", "local_ranks_filter"),
    launch("  env: [NAME]\n", "t.yaml:2", "env", "NAME"),
    launch("  tee: {0: 9}\n", "t.yaml:2", "tee", "0:9"),
    launch("  rdzv_conf: {timeout: soon}\n  nnodes: 2\n  insecure: true\n", "timeout=soon",
           name="launch section: a bad timeout"),
    config("name: x\n", "c.yaml", "launch", name="config file: no launch section"),
    config("launch:\n  nproc: many\n", "c.yaml:2", "nproc", "many"),
    config("compute_environment: LOCAL_MACHINE\nnum_processes: many\n", "c.yaml:2", "num_processes",
           "many", name="accelerate's config: a bad number"),
    config("compute_environment: LOCAL_MACHINE\ngpu_ids: [0]\n", "c.yaml:2", "gpu_ids",
           name="accelerate's config: a list"),
    config("num_processes: 5\nnum_machines: 2\n", "c.yaml:1", "num_processes", "5", "2", "--nproc",
           name="accelerate's config: processes that machines cannot share"),
]
HOSTFILES = [
    Case("a hostfile that is not there", ("--hostfile", "no-hosts", "x.py"),
         ("--hostfile", "no-hosts")),
    Case("a hostfile that is a folder", ("--hostfile", ".", "x.py"), ("--hostfile", ".")),
    hosts("# none\n\n", name="hostfile: no host"),
    hosts("a\n" * 600_000, name="hostfile: more than 1 MiB"),
    hosts("a\n" + "b" * 2000, "hosts:2", name="hostfile: a line of 2,000 bytes"),
    hosts("a\n-x@b\n", "hosts:2", "-x"),
    hosts("a\n-oProxyCommand=x\n", "hosts:2", "-oProxyCommand=x"),
    hosts("a:8\n", "hosts:1", "a:8", "slots="),
    hosts("a\nb;c\n", "hosts:2", "b;c"),
    hosts("a slots=0\n", "hosts:1", "slots=0"),
    hosts("a slots=many\n", "hosts:1", "slots=many"),
    hosts("a slots\n", "hosts:1", "slots"),
    hosts("a gpus=4\n", "hosts:1", "gpus=4", "slots="),
    hosts("a slots=4 max_slots=2\n", "hosts:1", "slots=4", "max_slots=2"),
    hosts("a slots=4\nb\na slots=4\n", "hosts:3", "a", "1"),
    hosts("a\n" * 4097, "hosts:4097", "4096", name="hostfile: 4,097 slots of one host"),
    hosts("".join(f"h{i}\n" for i in range(4097)), "hosts:4097", "4096",
          name="hostfile: 4,097 hosts"),
    Case("--standalone with --hostfile", ("--standalone", "--hostfile", "hosts", "x.py"),
         ("--standalone", "--hostfile"), files={"hosts": "a\nb\n"}),
    Case("--node-rank with --hostfile", ("--node-rank", "1", "--hostfile", "hosts", "x.py"),
         ("--node-rank", "--hostfile"), files={"hosts": "a\nb\n"}),
    Case("more nodes than hosts", ("--nnodes", "3", "--hostfile", "hosts", "x.py"),
         ("--nnodes", "3", "hosts", "2"), files={"hosts": "a\nb\n"}),
    Case("more nodes than the one host", ("--nnodes", "2", "--hostfile", "hosts", "x.py"),
         ("--nnodes", "2", "hosts", "1"), files={"hosts": "a\n"}),
]

SCHEDULERS = [
    slurm("a job id that is no number", {"SLURM_JOB_ID": "seven"}, "SLURM_JOB_ID", "seven"),
    slurm("a number of nodes that is none", {"SLURM_STEP_NUM_NODES": "x"}, "SLURM_STEP_NUM_NODES",
          "x"),
    slurm("a node rank that is no number", {"SLURM_NODEID": "-1"}, "SLURM_NODEID", "-1"),
    slurm("two tasks on each node", {"SLURM_STEP_NUM_TASKS": "4"}, "srun", "4", "2", "--standalone",
          "--ntasks-per-node=1"),
    slurm("no number of nodes", {"SLURM_STEP_NUM_NODES": None}, "SLURM_STEP_ID",
          "SLURM_STEP_NUM_NODES"),
    slurm("no nodes", {"SLURM_STEP_NUM_NODES": "0", "SLURM_STEP_NUM_TASKS": None},
          "SLURM_STEP_NUM_NODES"),
    slurm("no node rank", {"SLURM_NODEID": None}, "SLURM_STEP_ID", "SLURM_NODEID"),
    slurm("a node rank above all", {"SLURM_NODEID": "2"}, "SLURM_NODEID", "2",
          "SLURM_STEP_NUM_NODES"),
    slurm("no list of hosts", {"SLURM_STEP_NODELIST": None}, "SLURM_STEP_ID",
          "SLURM_STEP_NODELIST"),
    slurm("three hosts for two nodes", {"SLURM_STEP_NODELIST": "a[1-3]"}, "SLURM_STEP_NODELIST",
          "a[1-3]", "3", "2"),
    *(slurm(f"hosts {text[:20]}", {"SLURM_STEP_NODELIST": text}, "SLURM_STEP_NODELIST", text[:20])
      for text in ("a[1-2", "a1]", "a[1[2]]", "a1,,a2", "a[x]", "a[4-2]", "a[0-999999]",
                   "n" * 300)),
    slurm("a node rank that --nnodes excludes",
          {"SLURM_STEP_NUM_NODES": "8", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NODEID": "5",
           "SLURM_STEP_NODELIST": "a[1-8]"}, "5", "Slurm", "--nnodes", "2",
          args=("--nnodes", "2", "x.py")),
    slurm("neither a token nor munge", {"MGPU_MUNGE_SOCKET": "/no/munge"}, "--nnodes", "2", "munge",
          "--rdzv-token-file", "MGPU_RDZV_TOKEN", "--insecure", args=PROGRAM),
    open_mpi("no size", {"OMPI_COMM_WORLD_SIZE": None}, "OMPI_COMM_WORLD_SIZE"),
    open_mpi("no rank", {"OMPI_COMM_WORLD_RANK": None}, "OMPI_COMM_WORLD_RANK"),
    open_mpi("no local size", {"OMPI_COMM_WORLD_LOCAL_SIZE": None}, "OMPI_COMM_WORLD_LOCAL_SIZE"),
    open_mpi("two processes on this node", {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "mpirun", "2",
             "--map-by ppr:1:node", "--standalone"),
    open_mpi("a rank above all", {"OMPI_COMM_WORLD_RANK": "2"}, "OMPI_COMM_WORLD_RANK", "2",
             "OMPI_COMM_WORLD_SIZE"),
    open_mpi("a size that is no number", {"OMPI_COMM_WORLD_SIZE": "two"}, "OMPI_COMM_WORLD_SIZE",
             "two"),
    open_mpi("no address of node 0", {}, "MGPU_MASTER_ADDR", "MGPU_MASTER_PORT", "mpirun"),
    Case("PMIx: no rank", ("x.py",), ("PMIX_NAMESPACE", "PMIX_RANK"),
         env={"PMIX_NAMESPACE": "job"}),
    Case("PMIx: a rank that is no number", ("x.py",), ("PMIX_RANK", "x"), env={"PMIX_RANK": "x"}),
    Case("PMIx: no number of nodes", ("x.py",), ("PMIX_RANK", "3", "--nnodes", "--standalone"),
         env={"PMIX_RANK": "3"}),
    Case("PMIx: no address of node 0", ("--nnodes", "4", "x.py"),
         ("MGPU_MASTER_ADDR", "MGPU_MASTER_PORT", "prterun"), env={"PMIX_RANK": "3"}),
    Case("Kubernetes: an index that is no number", ("x.py",), ("JOB_COMPLETION_INDEX", "first"),
         env={"JOB_COMPLETION_INDEX": "first"}),
    Case("Kubernetes: an index that --nnodes excludes", ("--nnodes", "2", "x.py"),
         ("5", "Kubernetes", "--nnodes", "2"), env={"JOB_COMPLETION_INDEX": "5"}),
]

NODES = [
    Case("a node rank without --nnodes", ("--node-rank", "1", *PROGRAM),
         ("--node-rank", "1", "--nnodes")),
    Case("a node rank above all", ("--nnodes", "2", "--node-rank", "5", *PROGRAM),
         ("--nnodes", "2", "5")),
    Case("a size that may change, and no endpoint", ("--nnodes", "2:4", *PROGRAM),
         ("--nnodes", "2:4", "--rdzv-endpoint")),
    Case("c10d without an endpoint", ("--nnodes", "2", "--rdzv-backend", "c10d", *PROGRAM),
         ("--nnodes", "2", "--rdzv-endpoint")),
    conf("join_timeot=3", "join_timeot", "join_timeout"),
    conf("colour=red", "colour"),
    conf("join_timeout=soon", "join_timeout", "soon"),
    conf("last_call_timeout=-1", "last_call_timeout", "-1"),
    conf("keep_alive_interval=0.1,keep_alive_max_attempt=1", "keep_alive_interval"),
    conf("keep_alive_interval=30000000,keep_alive_max_attempt=9", "keep_alive_interval",
         "keep_alive_max_attempt"),
    conf("is_host=perhaps", "is_host", "perhaps"),
    etcd("http://a:99999", "http://a:99999"), etcd("ftp://a", "ftp://a"),
    etcd("http://me:word@a:1", hidden=("word@a",)), etcd("http://a/v3", "http://a/v3"),
    etcd("http://[::1", "http://[::1"), etcd("http://[::1]x", "http://[::1]x"),
    etcd("http://[a]:1", "http://[a]:1"), etcd("http://::1:2379", "http://::1:2379"),
    etcd("http://", "http://"), etcd("http://a b", "http://a b"),
    etcd(",".join(f"http://a{i}" for i in range(65)), "64"),
    Case("etcd without an endpoint", ("--nnodes", "2", "--rdzv-backend", "etcd", *PROGRAM),
         ("--rdzv-endpoint",)),
    Case("etcd: a missing certificate",
         (*ETCD, "https://127.0.0.1:1", "--rdzv-conf", "cacert=no.pem", *PROGRAM),
         ("--rdzv-conf", "no.pem")),
    Case("etcd: a certificate that is none",
         (*ETCD, "https://127.0.0.1:1", "--rdzv-conf", "cert=my.pem", *PROGRAM),
         ("--rdzv-conf", "my.pem"), files={"my.pem": "not a certificate\n"}),
    Case("no token", ("--nnodes", "2", *PROGRAM),
         ("--nnodes", "2", "--rdzv-token-file", "MGPU_RDZV_TOKEN", "--insecure")),
    token_file("it is not there", None),
    token_file("a folder", made_folder),
    token_file("a socket", made_socket),
    token_file("of another user", of_another_user, str(NOBODY)),
    token_file("others may read it", "secret\n", "0644", mode=0o644),
    token_file("empty", ""),
    token_file("too long", "x" * 5000, "4096"),
    Case("MGPU_RDZV_TOKEN: empty but for a newline", ("--nnodes", "2", *PROGRAM),
         ("MGPU_RDZV_TOKEN",), env={"MGPU_RDZV_TOKEN": "\n"}),
    Case("MGPU_RDZV_TOKEN: too long", ("--nnodes", "2", *PROGRAM), ("MGPU_RDZV_TOKEN", "4096"),
         env={"MGPU_RDZV_TOKEN": "x" * 5000}, hidden=("xxx",)),
    Case("a token from stdin: empty", ("--nnodes", "2", "--rdzv-token-stdin", *PROGRAM), ("stdin",),
         stdin=""),
    Case("a token from stdin: too long", ("--nnodes", "2", "--rdzv-token-stdin", *PROGRAM),
         ("stdin", "4096"), stdin="x" * 5000, hidden=("xxx",)),
    Case("a token from stdin: a folder", ("--nnodes", "2", "--rdzv-token-stdin", *PROGRAM),
         ("stdin",), stdin=pathlib.Path("/")),
]

MACHINE = [
    Case("a work folder that is not there", ("--workdir", "no", *PROGRAM), ("--workdir", "no")),
    Case("a work folder that is a file", ("--workdir", "x.py", *PROGRAM), ("--workdir", "x.py"),
         files={"x.py": ""}),
    Case("a missing script", ("no.py",), ("no.py",)),
    Case("a folder as script", (".",), (".", "-m")),
    Case("a socket as script", ("s.py",), ("s.py",), files={"s.py": made_socket}),
    Case("an unreadable script", ("s.py",), ("s.py",), files={"s.py": ""}, mode=0, as_nobody=True),
    Case("a missing program", ("--no-python", "./no"), ("./no",)),
    Case("a program that is not on PATH", ("--no-python", "no-such-program"),
         ("no-such-program", "PATH")),
    Case("a program without permission", ("--no-python", "./prog"), ("./prog", "chmod +x"),
         files={"prog": "x"}),
    Case("a folder as program", ("--no-python", "./prog"), ("./prog",),
         files={"prog": made_folder}),
    Case("no python", ("x.py",), ("python3", "PATH", "PYTHON_EXEC", "--no-python"),
         files={"x.py": ""}, env={"PATH": "/no/bin"}),
    Case("PYTHON_EXEC that is nothing", ("x.py",), ("PYTHON_EXEC", "/no/python"),
         files={"x.py": ""}, env={"PYTHON_EXEC": "/no/python"}),
    Case("PYTHON_EXEC that is not on PATH", ("-m", "json"), ("PYTHON_EXEC", "snake"),
         env={"PYTHON_EXEC": "snake"}),
    Case("no mgpu-train", ("t.yaml",), ("t.yaml", "mgpu-train", "MGPU_TRAIN"),
         files={"t.yaml": "task: sft\n"}, env={"PATH": "/no/bin"}, alone=True),
    Case("MGPU_TRAIN that is nothing", ("t.yaml",), ("MGPU_TRAIN", "/no/trainer"),
         files={"t.yaml": "task: sft\n"}, env={"MGPU_TRAIN": "/no/trainer"}),
    Case("--nproc gpu and no visible GPU", ("--nproc", "gpu", *PROGRAM),
         ("--nproc", "gpu", "CUDA_VISIBLE_DEVICES"), env={"CUDA_VISIBLE_DEVICES": ""}),
    Case("a GPU that no machine has", ("--gpus", "4096", *PROGRAM), ("--gpus", "4096")),
    Case("a GPU above all", ("--gpus", "0,7", *PROGRAM), ("--gpus", "7"), machine=FAKE_GPUS),
    Case("a UUID of no GPU", ("--gpus", "GPU-beef", *PROGRAM), ("--gpus", "GPU-beef"),
         machine=FAKE_GPUS),
    Case("a UUID of two GPUs", ("--gpus", "GPU-5eed", *PROGRAM), ("--gpus", "GPU-5eed", "2"),
         machine=FAKE_GPUS),
    Case("a GPU twice", ("--gpus", "1,GPU-5eed0002", *PROGRAM), ("--gpus", "GPU-5eed0002"),
         machine=FAKE_GPUS),
    Case("more ranks than GPUs", ("--nproc", "4", *PROGRAM),
         ("--nproc", "4", "2", "--oversubscribe", "CUDA_VISIBLE_DEVICES="), machine=FAKE_GPUS),
    Case("a NUMA node without cores", ("--numa-binding", "node", *PROGRAM),
         ("--numa-binding", "99"), machine=FAKE_GPUS),
    Case("more ranks than cores", ("--numa-binding", "exclusive", "--nproc", "4096", *PROGRAM),
         ("--numa-binding", "exclusive", "--numa-binding node"), env={"CUDA_VISIBLE_DEVICES": ""}),
    Case("a kernel without a list of cores", ("--numa-binding", "node", *PROGRAM),
         ("--numa-binding", "/sys/devices/system"), machine=NO_TOPOLOGY),
]

COMMANDS = [
    Case("devices: an unknown word", ("devices", "0"), ("devices", "0", "--json")),
    Case("doctor: an unknown option", ("doctor", "--fix"), ("doctor", "--fix", "--port", "--json")),
    Case("doctor: a port without a number", ("doctor", "--port"), ("doctor", "--port")),
    Case("doctor: port 0", ("doctor", "--port", "0"), ("doctor", "--port", "0", "65535")),
    Case("doctor: a bad port", ("doctor", "--port=http"), ("doctor", "--port", "http", "65535")),
    Case("status: no job", ("status",), ("status", "--rdzv-id", "HOST:PORT")),
    Case("status: two jobs", ("status", "a", "b"), ("status", "b")),
    Case("status: an unknown job", ("status", "job7"), ("status", "job7", "--rdzv-endpoint")),
    Case("status: an unknown option", ("status", "job7", "--jsn"), ("--jsn", "--json")),
    Case("status: no token", ("status", "h:1"), ("--rdzv-token-file", "MGPU_RDZV_TOKEN")),
]

TRAINER = [
    Case("nothing to train", (), (".yaml",)),
    Case("a recipe that is not there", ("no.yaml",), ("no.yaml",)),
    Case("an unknown option", ("t.yaml", "--chek"), ("--chek", "--check")),
    Case("two recipes", ("t.yaml", "u.yaml"), ("u.yaml",)),
    Case("--gpus without --check", ("t.yaml", "--gpus", "2"), ("--gpus", "--check")),
    Case("--set without its value", ("t.yaml", "--set"), ("--set",)),
    Case("check: no GPUs", ("check", "t.yaml", "--gpus", "0"), ("--gpus", "0")),
    Case("plan: no recipe", ("plan",), ("--help",)),
    Case("plan: a bad amount of memory", ("plan", "t.yaml", "--gpu-memory", "lots"),
         ("--gpu-memory", "lots")),
    Case("init: an unknown kind", ("init", "dpo"), ("dpo", "sft", "grpo")),
    Case("generate: no model", ("generate", "--prompt", "x"), ("--model",)),
    Case("generate: no prompt", ("generate", "--model", "m"), ("--prompt", "--input")),
    Case("generate: two sources of prompts",
         ("generate", "--model", "m", "--input", "f.jsonl", "--prompt", "x"),
         ("--input", "--prompt")),
    Case("generate: a seed that is no number",
         ("generate", "--model", "m", "--seed", "x", "--prompt", "x"), ("--seed", "x")),
    Case("merge: no output", ("merge", "--model", "m", "--adapter", "a"), ("--output",)),
    Case("score: settings that are no JSON",
         ("score", "f.jsonl", "--rewards", "length", "--settings", "{"), ("--settings",)),
    Case("score: an unknown setting",
         ("score", "f.jsonl", "--rewards", "cosine", "--settings", '{"cosine_maxlen": 5}'),
         ("--settings", "cosine_maxlen")),
    Case("version: a word too many", ("version", "2"), ("2",)),
]
LAUNCHER = {
    "The command line": COMMAND_LINE,
    "Values of options": VALUES,
    "Environment variables": VARIABLES,
    "Recipes and config files": YAML_FILES,
    "Hostfiles": HOSTFILES,
    "Schedulers": SCHEDULERS,
    "Multi-node jobs": NODES,
    "Programs, folders, GPUs and cores": MACHINE,
    "Commands": COMMANDS,
}


@functools.lru_cache(maxsize=None)
def machine_can_be_changed():
    """Whether this user may mount something for one process alone."""
    changed = subprocess.run(["unshare", "-m", "/bin/sh", "-c", FAKE_GPUS + NO_TOPOLOGY],
                             capture_output=True) if shutil.which("unshare") else None
    return changed is not None and changed.returncode == 0


@functools.lru_cache(maxsize=None)
def nobody_can_run(program):
    """Whether root can start the program as a user who may read less."""
    try:
        return subprocess.run([program, "--version"], user=NOBODY, capture_output=True,
                              cwd="/").returncode == 0
    except OSError:
        return False


class UsageErrors(JobTest):
    """Runs tables of cases, each case in its own folder, and checks the form of every message."""

    prefix, program, at_once = "mgpu-run: ", MGPU_RUN, 1

    def check_all(self, title, cases):
        if PRINT:
            print(f"\n=== {title}", file=sys.stderr)
        self.assertEqual(len({case.name for case in cases}), len(cases), "two cases of one name")
        with concurrent.futures.ThreadPoolExecutor(self.at_once) as pool:
            results = [pool.submit(self.run_case, case) for case in cases]
        for case, result in zip(cases, results):
            with self.subTest(title, case=case.name):
                done = result.result()
                self.show(case, done.stderr.rstrip("\n") if done else "(not run: it needs more "
                          "privileges than this user has)")
                if done:
                    self.check_message(case, done)

    def can_run(self, case):
        root = os.getuid() == 0
        return ((root or of_another_user not in case.files.values())
                and (not root or not case.as_nobody or nobody_can_run(self.program))
                and (not case.machine or machine_can_be_changed()))

    def write_files(self, folder, case):
        for name, content in case.files.items():
            path = folder / name
            if callable(content):
                content(path)
                continue
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            path.chmod(case.mode)

    def run_case(self, case):
        """Runs the case to its end; None where this user cannot set it up."""
        if not self.can_run(case):
            return None
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.dir))
        self.write_files(folder, case)
        env = {name: value for name, value in environment().items()
               if not name.startswith(SURROUNDINGS)}
        env.update({"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder), **case.env})
        argv = [str(self.program), *case.args]
        if case.alone:
            argv[0] = shutil.copy(self.program, folder / "mgpu-run")
        if case.machine:
            argv = ["unshare", "-m", "/bin/sh", "-c", case.machine + '\nexec "$@"', "-", *argv]
        as_whom = {}
        if case.as_nobody and os.getuid() == 0:
            as_whom = {"user": NOBODY}
            self.dir.chmod(0o755)
            folder.chmod(0o755)
        with contextlib.ExitStack() as stack:
            stdin = {"input": case.stdin or ""}
            if isinstance(case.stdin, pathlib.Path):
                stdin = {"stdin": os.open(case.stdin, os.O_RDONLY)}
                stack.callback(os.close, stdin["stdin"])
            return subprocess.run(
                argv, cwd=folder, capture_output=True, text=True, errors="replace",
                env={name: value for name, value in env.items() if value is not None},
                timeout=60 * SLOWER, **stdin, **as_whom)

    def show(self, case, message):
        if not PRINT:
            return
        words = [f"{name}={shlex.quote(value)}" for name, value in case.env.items()
                 if value is not None]
        words += [pathlib.Path(self.program).name, *map(shlex.quote, case.args)]
        words = [word if len(word) < 80 else word[:80] + "..." for word in words]
        print(f"\n{case.name}\n  $ {' '.join(words)}", file=sys.stderr)
        for name, content in case.files.items():
            text = content.__name__ if callable(content) else repr(content)
            print(f"    {name}: {text if len(text) < 90 else text[:90] + '...'}", file=sys.stderr)
        print(f"  {message}", file=sys.stderr)

    def check_message(self, case, done):
        err = done.stderr
        self.assertEqual(done.returncode, 2, err)
        self.assertEqual(done.stdout, "")
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.endswith("\n"), err)
        self.assertTrue(err.startswith(self.prefix), err)
        message = err[len(self.prefix):-1]
        self.assertLess(len(message), LONGEST)
        self.assertNotRegex(message, r"(?<!\.\.)[.!]$", "a message ends without a full stop")
        self.assertNotRegex(message, r"\b[Ee]rror: |  ")
        if not message.startswith(PROPER_NAMES):
            self.assertNotRegex(message, r"^[A-Z](?:[a-z']*|\b)(?:\s|$)",
                                "a message begins in lower case")
        for text in case.named:
            self.assertIn(text, message)
        for text in case.hidden:
            self.assertNotIn(text, message)


class Launcher(UsageErrors):
    def test_every_usage_error_is_one_line_that_names_what_is_wrong(self):
        for title, cases in LAUNCHER.items():
            self.check_all(title, cases)


@unittest.skipUnless(MGPU_TRAIN.exists(), f"there is no {MGPU_TRAIN}")
class Trainer(UsageErrors):
    """The command line of mgpu-train; tests/peers/test_bad_recipes.py tests mistakes in recipes."""

    # It loads LibTorch, which takes long.
    prefix, program, at_once = "mgpu-train: ", MGPU_TRAIN, os.cpu_count()

    def test_every_usage_error_is_one_line_that_names_what_is_wrong(self):
        self.check_all("mgpu-train", TRAINER)


del UsageErrors  # it has no tests of its own

if __name__ == "__main__":
    unittest.main()
