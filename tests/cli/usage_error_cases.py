"""The cases of test_usage_errors.py: wrong command lines, and what their messages must name.

There is one case for each place that raises a usage error, in the order of the subjects at the end.
"""

import dataclasses
import os
import pathlib
import socket

NOBODY = 65534

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
    """A wrong command line and its surroundings, and the texts that its message must contain."""

    name: str
    args: tuple
    named: tuple
    env: dict = dataclasses.field(default_factory=dict)  # None removes a variable
    files: dict = dataclasses.field(default_factory=dict)  # text, bytes, or a function of the path
    mode: int = 0o644  # of the files
    stdin: object = None  # text, or the path of a file
    machine: str = ""  # a script that changes the machine for this process only; needs root
    as_nobody: bool = False
    alone: bool = False  # in a folder without mgpu-train
    hidden: tuple = ()  # texts that the message must not contain


def make_folder(path):
    path.mkdir()


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))


def make_file_of_another_user(path):
    path.write_text("secret\n")
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o600)


def config(text, *named, name=None, **others):
    """A case with an invalid config file."""
    return Case(name or f"config file: {named[-1] if len(named) > 1 else text[:30]!r}",
                ("--config", "c.yaml", "x.py"), named, files={"c.yaml": text}, **others)


def launch(text, *named, name=None, **others):
    """A case with a recipe whose launch section is invalid."""
    return Case(name or f"launch section: {text.strip()[:40]!r}", ("t.yaml",), named,
                files={"t.yaml": "launch:\n" + text}, **others)


def hosts(text, *named, name=None):
    """A case with an invalid hostfile."""
    return Case(name or f"hostfile: {text[:30]!r}", ("--hostfile", "hosts", "x.py"),
                ("hosts", *named), files={"hosts": text})


def option(argument, *named):
    """A case with a bad value of an option."""
    name, _, value = argument.partition("=")
    return Case(argument[:40], (argument, "x.py"), (name, *(named or ((value,) if value else ()))))


def variable(name, value, *named):
    """A case with a bad value of a variable."""
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
    Case("an unknown option without a similar one", ("--colour", "x.py"), ("--colour", "--help")),
    Case("an option without a name", ("--=3", "x.py"), ("--help",)),
    Case("an unknown letter", ("-q", "x.py"), ("-q", "--help")),
    Case("an option behind the recipe", ("t.yaml", "--max-restarts", "2"),
         ("--max-restarts", "before the recipe", "t.yaml"), files={"t.yaml": "task: sft\n"}),
    Case("an ambiguous abbreviation", ("--no", "x.py"), ("--no", "--no-python")),
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
    option("--worker-memory=60"), option("--worker-memory=0G"), option("--worker-memory=1e30T"),
    option("--worker-memory=lots"), option("--grace=-1"), option("--grace=nan"), option("--shutdown-timeout=1min"),
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

# Variables that give a rank its place, or state the size of the job.
OWN_VARIABLES = [
    *(option(f"--env={name}=1", name) for name in (
        "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE",
        "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "MGPU_LEADER_ADDR",
        "MGPU_WORKER_SOCKET", "MGPU_REPLACEMENT")),
    Case("MGPU_ENV: a rank's own variable", ("x.py",), ("MGPU_ENV", "RANK"),
         env={"MGPU_ENV": "A=1\nRANK=0"}),
    launch("  env: {A: 1, WORLD_SIZE: 8}\n", "t.yaml:2", "WORLD_SIZE", "--nproc", "--nnodes"),
]

VARIABLES = [
    variable("MGPU_NPROC", "many", "many"), variable("MGPU_NUM_PROCESSES", "0", "0"),
    variable("MGPU_STANDALONE", "perhaps", "perhaps"), variable("MGPU_MAX_RESTARTS", "-1", "-1"),
    variable("MGPU_GRACE", "5 min", "5 min"), variable("MGPU_TEE", "4", "4"),
    Case("MGPU_ENV: the second of two lines", ("x.py",), ("MGPU_ENV", "WRONG"),
         env={"MGPU_ENV": "RIGHT=1\nWRONG"}),
    Case("MGPU_CONFIG: a missing file", ("x.py",), ("MGPU_CONFIG", "no-such.yaml"),
         env={"MGPU_CONFIG": "no-such.yaml"}),
    variable("PET_NNODES", "0", "0"), variable("PET_NPROC_PER_NODE", "x", "x"),
    variable("PET_RDZV_ENDPOINT", "a:b", "a:b"), variable("PET_RDZV_CONF", "x", "x"),
    variable("PET_SIGNALS_TO_HANDLE", "SIGSTOP", "SIGSTOP"),
    variable("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "x", "x"),
]

YAML_FILES = [
    Case("a missing config", ("--config", "no.yaml", "x.py"), ("--config", "no.yaml")),
    Case("a config that is a folder", ("--config", ".", "x.py"), (".",)),
    Case("a missing recipe", ("no.yaml",), ("no.yaml",)),
    Case("an empty recipe", ("t.yaml",), ("t.yaml",), files={"t.yaml": ""}),
    Case("a recipe of comments only", ("t.yaml",), ("t.yaml",), files={"t.yaml": "# to do\n"}),
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
    launch("  rdzv_conf: {timeout: soon}\n  nnodes: 2\n  insecure: true\n", "t.yaml:2", "rdzv_conf",
           "timeout=soon", name="launch section: a bad timeout"),
    launch("  rdzv_conf: {colour: red}\n", "t.yaml:2", "rdzv_conf", "colour",
           name="launch section: an unknown key of rdzv_conf"),
    launch("  workdir: /no/folder\n", "t.yaml:2", "workdir", "/no/folder",
           name="launch section: a missing work folder"),
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
    Case("a missing hostfile", ("--hostfile", "no-hosts", "x.py"),
         ("--hostfile", "no-hosts")),
    Case("MGPU_HOSTFILE: a missing file", ("x.py",), ("MGPU_HOSTFILE", "no-hosts"),
         env={"MGPU_HOSTFILE": "no-hosts"}),
    Case("more nodes than hosts in a hostfile with a newline",
         ("--nnodes", "3", "--hostfile", "a\nb", "x.py"), ("--nnodes", "3", "a?b"),
         files={"a\nb": "a\n"}),
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
    slurm("a job id that is not a number", {"SLURM_JOB_ID": "seven"}, "SLURM_JOB_ID", "seven"),
    slurm("an invalid number of nodes", {"SLURM_STEP_NUM_NODES": "x"}, "SLURM_STEP_NUM_NODES",
          "x"),
    slurm("a node rank that is not a number", {"SLURM_NODEID": "-1"}, "SLURM_NODEID", "-1"),
    slurm("two tasks on each node", {"SLURM_STEP_NUM_TASKS": "4"}, "srun", "4", "2", "--standalone",
          "--ntasks-per-node=1"),
    slurm("no number of nodes", {"SLURM_STEP_NUM_NODES": None}, "SLURM_STEP_ID",
          "SLURM_STEP_NUM_NODES"),
    slurm("no nodes", {"SLURM_STEP_NUM_NODES": "0", "SLURM_STEP_NUM_TASKS": None},
          "SLURM_STEP_NUM_NODES"),
    slurm("no node rank", {"SLURM_NODEID": None}, "SLURM_STEP_ID", "SLURM_NODEID"),
    slurm("a node rank that is too high", {"SLURM_NODEID": "2"}, "SLURM_NODEID", "2",
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
    slurm("neither a token nor munge", {"MGPU_MUNGE_SOCKET": "/no/munge"}, "2", "Slurm", "munge",
          "--rdzv-token-file", "MGPU_RDZV_TOKEN", "--insecure", args=PROGRAM),
    open_mpi("no size", {"OMPI_COMM_WORLD_SIZE": None}, "OMPI_COMM_WORLD_SIZE"),
    open_mpi("no rank", {"OMPI_COMM_WORLD_RANK": None}, "OMPI_COMM_WORLD_RANK"),
    open_mpi("no local size", {"OMPI_COMM_WORLD_LOCAL_SIZE": None}, "OMPI_COMM_WORLD_LOCAL_SIZE"),
    open_mpi("two processes on this node", {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "mpirun", "2",
             "--map-by ppr:1:node", "--standalone"),
    open_mpi("a rank that is too high", {"OMPI_COMM_WORLD_RANK": "2"}, "OMPI_COMM_WORLD_RANK", "2",
             "OMPI_COMM_WORLD_SIZE"),
    open_mpi("a size that is too high", {"OMPI_COMM_WORLD_SIZE": "70000"}, "OMPI_COMM_WORLD_SIZE",
             "65536"),
    open_mpi("a size that is not a number", {"OMPI_COMM_WORLD_SIZE": "two"}, "OMPI_COMM_WORLD_SIZE",
             "two"),
    open_mpi("no address of node 0", {}, "MGPU_MASTER_ADDR", "MGPU_MASTER_PORT", "mpirun"),
    Case("PMIx: no rank", ("x.py",), ("PMIX_NAMESPACE", "PMIX_RANK"),
         env={"PMIX_NAMESPACE": "job"}),
    Case("PMIx: a rank that is not a number", ("x.py",), ("PMIX_RANK", "x"),
         env={"PMIX_RANK": "x"}),
    Case("PMIx: no number of nodes", ("x.py",), ("PMIX_RANK", "3", "--nnodes", "--standalone"),
         env={"PMIX_RANK": "3"}),
    Case("PMIx: no address of node 0", ("--nnodes", "4", "x.py"),
         ("MGPU_MASTER_ADDR", "MGPU_MASTER_PORT", "prterun"), env={"PMIX_RANK": "3"}),
    Case("Kubernetes: an index that is not a number", ("x.py",), ("JOB_COMPLETION_INDEX", "first"),
         env={"JOB_COMPLETION_INDEX": "first"}),
    Case("Kubernetes: an index that --nnodes excludes", ("--nnodes", "2", "x.py"),
         ("5", "Kubernetes", "--nnodes", "2"), env={"JOB_COMPLETION_INDEX": "5"}),
]

NODES = [
    Case("a node rank without --nnodes", ("--node-rank", "1", *PROGRAM),
         ("--node-rank", "1", "--nnodes")),
    Case("a node rank that is too high", ("--nnodes", "2", "--node-rank", "5", *PROGRAM),
         ("--nnodes", "2", "5")),
    Case("an elastic job without an endpoint", ("--nnodes", "2:4", *PROGRAM),
         ("--nnodes", "2:4", "--rdzv-endpoint")),
    Case("c10d without an endpoint", ("--nnodes", "2", "--rdzv-backend", "c10d", *PROGRAM),
         ("--rdzv-backend", "c10d", "--rdzv-endpoint"), hidden=("2:2",)),
    conf("join_timeot=3", "join_timeot", "join_timeout"),
    conf("colour=red", "colour", "join_timeout"),
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
         ("--rdzv-backend", "etcd", "--rdzv-endpoint"), hidden=("2:2",)),
    Case("etcd: a missing certificate",
         (*ETCD, "https://127.0.0.1:1", "--rdzv-conf", "cacert=no.pem", *PROGRAM),
         ("--rdzv-conf", "cacert=no.pem")),
    Case("etcd: an invalid certificate",
         (*ETCD, "https://127.0.0.1:1", "--rdzv-conf", "cert=my.pem", *PROGRAM),
         ("--rdzv-conf", "cert=my.pem"), files={"my.pem": "not a certificate\n"}),
    Case("etcd: a prefix without a slash",
         (*ETCD, "http://127.0.0.1:1", "--rdzv-conf", "prefix=mine", *PROGRAM),
         ("--rdzv-conf", "prefix=mine", "/mgpu-run/alice")),
    Case("etcd: neither signed nor unsigned",
         (*ETCD, "http://127.0.0.1:1", "--rdzv-conf", "accept_unsigned_state=some", *PROGRAM),
         ("--rdzv-conf", "accept_unsigned_state=some", "true or false")),
    Case("no token", ("--nnodes", "2", *PROGRAM),
         ("--nnodes", "2", "--rdzv-token-file", "MGPU_RDZV_TOKEN", "--insecure")),
    token_file("missing", None),
    token_file("a folder", make_folder),
    token_file("a socket", make_socket),
    token_file("of another user", make_file_of_another_user, str(NOBODY)),
    token_file("others may read it", "secret\n", "0644", mode=0o644),
    token_file("empty", ""),
    token_file("too short to resist guessing", "fifteen letters\n", "15", "16", "openssl rand"),
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
    Case("a missing work folder", ("--workdir", "no", *PROGRAM), ("--workdir", "no")),
    Case("a work folder that is a file", ("--workdir", "x.py", *PROGRAM), ("--workdir", "x.py"),
         files={"x.py": ""}),
    Case("a missing work folder with a newline", ("--workdir", "a\nb", *PROGRAM),
         ("--workdir", "a?b")),
    Case("a report in a missing folder", ("--report", "no/r.json", *PROGRAM),
         ("--report", "no/r.json", "No such file")),
    Case("a report below a file", ("--report", "x.py/r.json", *PROGRAM),
         ("--report", "x.py/r.json", "Not a directory"), files={"x.py": ""}),
    Case("a report that is a folder", ("--report", "r", *PROGRAM), ("--report r", "Is a directory"),
         files={"r": make_folder}),
    Case("a report of which only a folder is named", ("--report", "./", *PROGRAM),
         ("--report ./", "Is a directory")),
    Case("a report in a folder that cannot be written", ("--report", "r.json", *PROGRAM),
         ("--report", "r.json", "Permission denied"), as_nobody=True),
    Case("a report that cannot be written", ("--report", "r.json", *PROGRAM),
         ("--report", "r.json", "Permission denied"), files={"r.json": "{}"}, mode=0o444,
         as_nobody=True),
    Case("MGPU_WORKDIR: a missing folder", PROGRAM, ("MGPU_WORKDIR", "/no/folder"),
         env={"MGPU_WORKDIR": "/no/folder"}),
    Case("a missing script", ("no.py",), ("no.py",)),
    Case("a missing script with a newline", ("a\nb.py",), ("a?b.py",)),
    Case("a missing recipe with an escape sequence", ("a\x1b[2J.yaml",), ("a?[2J.yaml",),
         hidden=("\x1b",)),
    Case("a folder with a newline as script", ("a\nb.py",), ("a?b.py", "-m"),
         files={"a\nb.py": make_folder}),
    Case("a missing program with a newline", ("--no-python", "./a\nb"), ("./a?b",)),
    Case("a program with a newline that is not on PATH", ("--no-python", "a\nb"), ("a?b", "PATH")),
    Case("a program with a newline without permission", ("--no-python", "./a\nb"),
         ("./a?b", "permission"), files={"a\nb": "x"}),
    Case("a folder as script", (".",), (".", "-m")),
    Case("a socket as script", ("s.py",), ("s.py",), files={"s.py": make_socket}),
    Case("a pipe as script", ("s.py",), ("s.py", "save it to a file"), files={"s.py": make_pipe}),
    Case("a pipe as recipe", ("t.yaml",), ("t.yaml", "save it to a file"),
         files={"t.yaml": make_pipe}),
    Case("a pipe on stdin as script", ("/dev/stdin",), ("/dev/stdin", "save it to a file"),
         stdin="print()"),
    Case("a file on stdin as script", ("--nproc", "2", "/dev/stdin"),
         ("/dev/stdin", "save it to a file"), stdin=pathlib.Path(__file__)),
    Case("an unreadable script", ("s.py",), ("s.py",), files={"s.py": ""}, mode=0, as_nobody=True),
    Case("a missing program", ("--no-python", "./no"), ("./no",)),
    Case("a program that is not on PATH", ("--no-python", "no-such-program"),
         ("no-such-program", "PATH")),
    Case("a program without permission", ("--no-python", "./prog"), ("./prog", "chmod +x"),
         files={"prog": "x"}),
    Case("a folder as program", ("--no-python", "./prog"), ("./prog",),
         files={"prog": make_folder}),
    Case("no python", ("x.py",), ("x.py", "python3", "PATH", "PYTHON_EXEC", "--no-python"),
         files={"x.py": ""}, env={"PATH": "/no/bin"}),
    Case("PYTHON_EXEC that does not exist", ("x.py",), ("PYTHON_EXEC", "/no/python"),
         files={"x.py": ""}, env={"PYTHON_EXEC": "/no/python"}),
    Case("PYTHON_EXEC with a newline", ("-m", "json"), ("PYTHON_EXEC", "/no?python"),
         env={"PYTHON_EXEC": "/no\npython"}),
    Case("PYTHON_EXEC that is not on PATH", ("-m", "json"), ("PYTHON_EXEC", "snake"),
         env={"PYTHON_EXEC": "snake"}),
    Case("no mgpu-train", ("t.yaml",), ("t.yaml", "mgpu-train", "MGPU_TRAIN"),
         files={"t.yaml": "task: sft\n"}, env={"PATH": "/no/bin"}, alone=True),
    Case("MGPU_TRAIN that does not exist", ("t.yaml",), ("MGPU_TRAIN", "/no/trainer"),
         files={"t.yaml": "task: sft\n"}, env={"MGPU_TRAIN": "/no/trainer"}),
    Case("MGPU_TRAIN with a newline", ("t.yaml",), ("MGPU_TRAIN", "/no?trainer"),
         files={"t.yaml": "task: sft\n"}, env={"MGPU_TRAIN": "/no\ntrainer"}),
    Case("--nproc gpu and no visible GPU", ("--nproc", "gpu", *PROGRAM),
         ("--nproc", "gpu", "CUDA_VISIBLE_DEVICES"), env={"CUDA_VISIBLE_DEVICES": ""}),
    Case("a GPU number above all", ("--gpus", "4096", *PROGRAM), ("--gpus", "4096")),
    Case("a missing GPU", ("--gpus", "0,7", *PROGRAM), ("--gpus", "7"), machine=FAKE_GPUS),
    Case("a UUID of no GPU", ("--gpus", "GPU-beef", *PROGRAM), ("--gpus", "GPU-beef"),
         machine=FAKE_GPUS),
    Case("a UUID of two GPUs", ("--gpus", "GPU-5eed", *PROGRAM), ("--gpus", "GPU-5eed", "2"),
         machine=FAKE_GPUS),
    Case("a GPU twice", ("--gpus", "1,GPU-5eed0002", *PROGRAM), ("--gpus", "GPU-5eed0002"),
         machine=FAKE_GPUS),
    Case("MGPU_NPROC: more ranks than GPUs", PROGRAM, ("MGPU_NPROC", "4", "2"), machine=FAKE_GPUS,
         env={"MGPU_NPROC": "4"}),
    Case("a GPU with a newline", ("--gpus", "GPU-\n5", *PROGRAM), ("--gpus", "GPU-?5"),
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
    Case("doctor: a port without a number", ("doctor", "--port"), ("doctor", "--port", "value")),
    Case("doctor: port 0", ("doctor", "--port", "0"), ("doctor", "--port", "0", "65535")),
    Case("doctor: a bad port", ("doctor", "--port=http"), ("doctor", "--port", "http", "65535")),
    Case("status: two jobs", ("status", "a", "b"), ("status", "b")),
    Case("status: an unknown job", ("status", "job7"), ("status", "job7", "--rdzv-endpoint")),
    Case("status: an unknown option", ("status", "job7", "--jsn"), ("--jsn", "--json")),
    Case("status: no token", ("status", "h:1"),
         ("status h:1", "--rdzv-token-file", "MGPU_RDZV_TOKEN", "--insecure"),
         hidden=("--nnodes",)),
]

TRAINER = [
    Case("nothing to train", (), (".yaml",)),
    Case("a missing recipe", ("no.yaml",), ("no.yaml",)),
    Case("an unknown option", ("t.yaml", "--chek"), ("--chek", "--check")),
    Case("two recipes", ("t.yaml", "u.yaml"), ("u.yaml",)),
    Case("--gpus without --check", ("t.yaml", "--gpus", "2"), ("--gpus", "--check")),
    Case("--set without its value", ("t.yaml", "--set"), ("--set",)),
    Case("check: no GPUs", ("check", "t.yaml", "--gpus", "0"), ("--gpus", "not 0", "1 to 65536")),
    Case("plan: no recipe", ("plan",), ("FILE.yaml", "--help")),
    Case("plan: a bad amount of memory", ("plan", "t.yaml", "--gpu-memory", "lots"),
         ("--gpu-memory", "lots")),
    Case("plan: an unknown size", ("plan", "--model-size", "9B"), ("--model-size", "7B", "9B")),
    Case("plan: a file to write for a given recipe", ("plan", "t.yaml", "--write", "u.yaml"),
         ("--write", "--model-size")),
    Case("init: an unknown kind", ("init", "dpo"), ("dpo", "sft", "grpo")),
    Case("generate: no model", ("generate", "--prompt", "x"), ("--model",)),
    Case("generate: no prompt", ("generate", "--model", "m"), ("--prompt", "--input")),
    Case("generate: two sources of prompts",
         ("generate", "--model", "m", "--input", "f.jsonl", "--prompt", "x"),
         ("--input", "--prompt")),
    Case("generate: a seed that is not a number",
         ("generate", "--model", "m", "--seed", "x", "--prompt", "x"), ("--seed", "x", "number")),
    Case("generate: a probability above 1",
         ("generate", "--model", "m", "--top-p", "2", "--prompt", "x"), ("--top-p", "0 to 1", "2")),
    Case("generate: a model twice", ("generate", "--model", "a", "--model", "b", "--prompt", "x"),
         ("--model", "repeated")),
    Case("generate: a value for a flag",
         ("generate", "--model", "m", "--raw=maybe", "--prompt", "x"), ("--raw", "maybe", "true")),
    Case("train-tokenizer: no output", ("train-tokenizer", "a.txt"), ("--output",)),
    Case("train-tokenizer: an unknown kind",
         ("train-tokenizer", "a.txt", "-o", "out", "--kind", "words"), ("--kind", "bpe", "words")),
    Case("train-tokenizer: a vocabulary without room for all bytes",
         ("train-tokenizer", "a.txt", "-o", "out", "--vocab-size", "256"),
         ("--vocab-size", "259")),
    Case("merge: no output", ("merge", "--model", "m", "--adapter", "a"), ("--output",)),
    Case("score: settings that are not JSON",
         ("score", "f.jsonl", "--rewards", "length", "--settings", "{"), ("--settings",)),
    Case("score: an unknown setting",
         ("score", "f.jsonl", "--rewards", "cosine", "--settings", '{"cosine_maxlen": 5}'),
         ("--settings", "cosine_maxlen")),
    Case("version: a word too many", ("version", "2"), ("2",)),
]
LAUNCHER = {
    "The command line": COMMAND_LINE,
    "Values of options": VALUES,
    "Variables that mgpu-run sets": OWN_VARIABLES,
    "Environment variables": VARIABLES,
    "Recipes and config files": YAML_FILES,
    "Hostfiles": HOSTFILES,
    "Schedulers": SCHEDULERS,
    "Multi-node jobs": NODES,
    "Programs, folders, GPUs and cores": MACHINE,
    "Commands": COMMANDS,
}
