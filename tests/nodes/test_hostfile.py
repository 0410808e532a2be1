"""--hostfile: one command starts an agent on each host, with a fake ssh and with a real one."""

import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import MGPU_RUN, PYTHON, SLOWER, JobTest, children, until  # noqa: E402

TORCH_PYTHON = os.environ.get("MGPU_TORCH_PYTHON", "")
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"

# Like sshd: a new environment, and the words after the host are one line for a login shell.
FAKE_SSH = """#!/bin/sh
printf '%s\\n' "$#" "$@" > "$NOTES/ssh.$1"
host=$1; shift
case $host in
  gone) echo "a banner" >&2; echo "ssh: connect to host gone port 22: Connection refused" >&2
        exit 255 ;;
esac
case $host in restricted*) echo "This account is not available"; exit 0 ;; esac
login() { env -i HOME=/nonexistent FAKE_HOST="$host" PATH=/usr/bin:/bin /bin/sh -c "$*"; }
case $host in
  deaf) login "$*" 2>/dev/null; exit ;;
  mute) login "$*" >/dev/null; exit ;;
  merged) login "$*" 2>&1; exit ;;
  terminal) { login "$*" 2>&1 >&3 | sed -u 's/$/\r/' >&2; } 3>&1 | sed -u 's/$/\r/'; exit 0 ;;
esac
case $host in bytewise) exec 3>&1
  { echo "mgpu-run: starting up" >&2; login "$*"; } 2>&1 >&3 | dd bs=1 status=none >&2; exit 0 ;;
esac
exec env -i HOME=/nonexistent FAKE_HOST="$host" PATH=/usr/bin:/bin /bin/sh -c "$*"
"""


class SshLaunch(JobTest):
    def setUp(self):
        super().setUp()
        self.ssh = self.write("ssh", FAKE_SSH, 0o755)
        agent = (PROGRAMS / "fake_agent.py").read_text()
        # mgpu-run is started under this name, so this is the program that it starts on the hosts.
        self.agent = self.write("agent", f"#!{PYTHON}\n{agent}", 0o755)

    def begin(self, hosts, *args, env=None, **popen):
        hostfile = self.write("hosts", hosts)
        popen.setdefault("stdout", subprocess.PIPE)
        popen.setdefault("stderr", subprocess.PIPE)
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(("MGPU_", "PET_"))},
               "NOTES": str(self.dir), "MGPU_SSH": self.ssh, **(env or {})}
        job = subprocess.Popen([self.agent, "--hostfile", hostfile, "--grace", "0.5",
                                "--keep-alive", "0.5", *args, "train.py", "--lr", "1 2"],
                               executable=MGPU_RUN, env=env, cwd=self.dir,
                               stdin=subprocess.DEVNULL, **popen)
        self.started.append(job)
        return job

    def end(self, job, limit=30):
        out, err = job.communicate(timeout=limit * SLOWER)
        job.out, job.err = out.decode(errors="replace"), err.decode(errors="replace")
        return job.returncode

    def agents(self, count):
        return [json.loads(path.read_text())
                for path in self.wait_for_files("agent.[0-9]", count)]

    def test_every_host_gets_its_rank_the_environment_the_folder_and_the_secret(self):
        odd = "it's \"$HOME\" `id`\n\\ % \t\u00e9\n"
        job = self.begin("a slots=2\nme@b\n", "--max-restarts", "1",
                         env={"ODD": odd, "PRIVATE_KEY": "k3y", "MGPU_RDZV_TOKEN": "older",
                              "SLURM_JOB_ID": "7", "XDG_RUNTIME_DIR": "/run/x"})
        self.assertEqual(self.end(job), 0, job.err)
        first, second = self.agents(2)
        place = ["--nnodes=2", "--node-rank=0", "--master-addr=a"]
        self.assertEqual(first["argv"][:3],
                         ["--grace=0.5", "--keep-alive=0.5", "--max-restarts=1"])
        self.assertEqual(first["argv"][3:6], place)
        self.assertRegex(first["argv"][6], r"^--master-port=2\d{4}$")
        self.assertEqual(first["argv"][7:], ["--nproc=2", "--rdzv-token-stdin", "--", "train.py",
                                             "--lr", "1 2"])
        self.assertEqual(second["argv"][4:7], ["--node-rank=1", *first["argv"][5:7]])
        self.assertEqual(first["token"], second["token"])
        self.assertRegex(first["token"], r"^[0-9a-f]{64}\n$")
        for agent, host in ((first, "a"), (second, "me@b")):
            self.assertEqual(agent["cwd"], os.path.realpath(self.dir))
            self.assertEqual(agent["env"]["ODD"], odd)
            self.assertEqual(agent["env"]["FAKE_HOST"], host)
            self.assertEqual(agent["env"]["HOME"], "/nonexistent")
            for name in ("MGPU_RDZV_TOKEN", "SLURM_JOB_ID", "XDG_RUNTIME_DIR", "MGPU_SSH"):
                self.assertNotIn(name, agent["env"])
            argv = (self.dir / f"ssh.{host}").read_text()
            self.assertEqual(argv.split("\n")[:2], ["2", host])
            for secret in (first["token"].strip(), "k3y", "older", "train.py"):
                self.assertNotIn(secret, argv)

    def test_each_job_has_its_own_secret(self):
        tokens = set()
        for _ in range(2):
            self.assertEqual(self.end(self.begin("a\n")), 0)
            tokens.add(self.agents(1)[0]["token"])
        self.assertEqual(len(tokens), 2)

    def test_output_of_all_hosts_arrives_in_whole_lines(self):
        job = self.begin("a\nb\nlocalhost\n", env={f"DO_{i}": "print 5000" for i in range(3)})
        self.assertEqual(self.end(job, 60), 0, job.err)
        lines = job.out.splitlines()
        self.assertEqual(sorted(lines), sorted(f"{rank} {i} " + str(rank) * 50
                                               for rank in range(3) for i in range(5000)))

    def test_an_agent_on_this_machine_is_started_without_ssh(self):
        job = self.begin(f"localhost\n{socket.gethostname()} slots=3\n",
                         env={"MGPU_RDZV_TOKEN": "older"})
        self.assertEqual(self.end(job), 0, job.err)
        first, second = self.agents(2)
        self.assertIn("--master-addr=127.0.0.1", first["argv"])
        self.assertIn("--nproc=3", second["argv"])
        self.assertEqual(first["env"]["HOME"], os.environ["HOME"])
        self.assertNotIn("MGPU_RDZV_TOKEN", first["env"])
        self.assertEqual(list(self.dir.glob("ssh.*")), [])

    def test_the_command_ends_with_the_status_of_the_job(self):
        job = self.begin("a\nb\n", env={"DO_0": "exit 7", "DO_1": "exit 7"})
        self.assertEqual(self.end(job), 7, job.err)
        self.assertNotIn("lost", job.err)

    def test_an_unreachable_host_is_named_and_ends_the_job(self):
        job = self.begin("a\ngone\n", env={"DO_0": "wait"})
        self.assertEqual(self.end(job), 75, job.err)
        self.assertIn("mgpu-run: node 1 (gone) cannot be reached or was lost: ssh exited with "
                      "status 255; its last line: ssh: connect to host gone port 22: "
                      "Connection refused\n", job.err)
        # The missing node is not waited for, whether or not node 0 had begun.
        self.assertEqual((self.dir / "agent.0").exists(), (self.dir / "stopped.0").exists())

    def test_a_host_that_starts_no_agent_is_named_and_ends_the_job(self):
        for hosts in ("restricted0\n", "restricted0\nrestricted1\n"):
            job = self.begin(hosts)
            self.assertEqual(self.end(job), 75, job.err)
            self.assertRegex(job.err, r"node [01] \(restricted[01]\) did not start its agent "
                                      r"although ssh exited with status 0")
        job = self.begin("a\nrestricted1\n", env={"DO_0": "wait"})
        self.assertEqual(self.end(job), 75, job.err)
        self.assertIn("node 1 (restricted1) did not start", job.err)
        self.wait_for_files("stopped.0", 1)
        job = self.begin("a\nrestricted1\n", "--nnodes", "1:2")
        self.assertEqual(self.end(job), 0, job.err)

    def test_the_line_before_an_agent_starts_is_not_shown(self):
        for hosts in ("a\n", "localhost\n", "a\nb\n"):
            job = self.begin(hosts)
            self.assertEqual((self.end(job), job.out, job.err), (0, "", ""))

    def test_the_line_before_an_agent_starts_may_arrive_in_pieces_after_a_banner(self):
        job = self.begin("bytewise\n", env={"DO_0": "print 1"})
        self.assertEqual((self.end(job), job.out, job.err),
                         (0, "0 0 " + "0" * 50 + "\n", "mgpu-run: starting up\n"))

    def test_the_line_before_an_agent_starts_is_found_although_ssh_changes_its_output(self):
        line = "0 0 " + "0" * 50
        for host, out in (("deaf", f"{line}\n"), ("mute", ""), ("merged", f"{line}\n"),
                          ("terminal", f"{line}\r\n")):
            job = self.begin(f"{host}\n", env={"DO_0": "print 1"})
            self.assertEqual((self.end(job), job.out, job.err), (0, out, ""))

    def test_a_prompt_that_may_begin_that_line_is_shown_while_the_agent_runs(self):
        for host in ("a", "merged"):
            job = self.begin(f"{host}\n", env={"DO_0": "ask m"})
            self.assertTrue(select.select([job.stdout], [], [], 30 * SLOWER)[0])
            self.assertEqual(job.stdout.read(1), b"m")
            job.terminate()
            self.assertEqual(self.end(job), 143, job.err)

    def test_a_killed_ssh_ends_its_agent_and_the_job(self):
        job = self.begin("a\nb\n", env={"DO_0": "wait", "DO_1": "wait"})
        agents = self.agents(2)
        os.kill(agents[1]["pid"], signal.SIGKILL)  # the fake ssh has become the agent
        self.assertEqual(self.end(job), 75, job.err)
        self.assertIn("node 1 (b)", job.err)
        self.wait_for_files("stopped.0", 1)
        self.assert_all_gone([agent["pid"] for agent in agents])

    def test_an_elastic_job_continues_without_an_unreachable_host(self):
        job = self.begin("a\ngone\nc\n", "--nnodes=1:3")
        self.assertEqual(self.end(job), 0, job.err)
        self.assertIn("node 1 (gone)", job.err)

    def test_an_agent_that_cannot_be_started_ends_the_job(self):
        os.chmod(self.agent, 0o644)  # neither here nor on PATH under that name
        job = self.begin("a\nb\n")
        self.assertEqual(self.end(job), 127, job.err)

    def test_a_stop_signal_ends_all_agents(self):
        for signo in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signo=signo):
                job = self.begin("a\nb\nlocalhost\n",
                                 env={f"DO_{rank}": "wait" for rank in range(3)})
                agents = self.agents(3)
                job.send_signal(signo)
                self.assertEqual(self.end(job), 128 + signo, job.err)
                self.wait_for_files("stopped.*", 3)
                self.assert_all_gone([agent["pid"] for agent in agents])
                for path in (*self.dir.glob("stopped.*"), *self.dir.glob("agent.[0-9]")):
                    path.unlink()

    def test_a_second_interrupt_does_not_wait(self):
        job = self.begin("a\n", "--grace=100", env={"DO_0": "defy"})
        agent, = self.agents(1)
        job.send_signal(signal.SIGINT)
        self.wait_for_files("stopped.0", 1)
        job.send_signal(signal.SIGINT)
        self.assertEqual(self.end(job), 130, job.err)
        self.assertIn("node 0 (a) has not stopped yet; killing its ssh", job.err)
        self.assert_all_gone([agent["pid"]])

    def test_an_agent_that_ignores_the_stop_is_killed_after_the_grace_period(self):
        job = self.begin("a\n", env={"DO_0": "defy"})
        agent, = self.agents(1)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(job, 40), 143, job.err)
        self.assertIn("node 0 (a) did not stop in time", job.err)
        self.assert_all_gone([agent["pid"]])

    def test_no_process_outlives_the_command(self):
        job = self.begin("a\nlocalhost\n", env={"DO_0": "wait", "DO_1": "defy"})
        agents = self.agents(2)
        job.kill()
        job.wait()
        self.assert_all_gone([agent["pid"] for agent in agents])

    def test_a_dry_run_starts_nothing(self):
        job = self.begin("a slots=2\nlocalhost\n", "--dry-run")
        self.assertEqual(self.end(job), 0, job.err)
        self.assertRegex(job.out, r"(?m)^0 +\S+ +over ssh  mgpu-run")
        self.assertRegex(job.out, r"(?m)^1 +localhost +locally +mgpu-run")
        self.assertIn("--nproc=2", job.out)
        self.assertEqual(list(self.dir.glob("ssh.*")), [])

    def test_a_usage_error_is_one_line_and_starts_nothing(self):
        for hosts, args, line in (("a\na slots=2\n", [], "hosts:2: a is already listed on line 1"),
                                  ("", [], "lists no host"),
                                  ("a\n", ["--nnodes=2"], "--nnodes 2: "),
                                  ("a\n", ["--node-rank=0"], "--node-rank and --hostfile")):
            job = self.begin(hosts, *args)
            self.assertEqual(self.end(job), 2, job.err)
            self.assertIn(line, job.err)
            self.assertEqual(job.err.count("\n"), 1)
        self.assertEqual(list(self.dir.glob("agent.*")), [])


def start_sshd(folder):
    """Starts an sshd for 127.0.0.2 and 127.0.0.3; returns it and the ssh command.

    It has its own /run, in which sshd needs a folder.
    """
    folder = pathlib.Path(folder)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name],
                       check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        port = probe.getsockname()[1]
    (folder / "conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.2\nListenAddress 127.0.0.3\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/authorized\nPidFile none\nUsePAM no\nStrictModes no\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\n")
    with open(folder / "log", "wb") as log:
        sshd = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-ec",
             'mount -t tmpfs tmpfs /run; mkdir -m 755 /run/sshd; exec "$0" -D -e -f "$1"',
             shutil.which("sshd") or "/usr/sbin/sshd", folder / "conf"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    ssh = (f"ssh -F none -p {port} -i {folder}/user -o IdentitiesOnly=yes -o BatchMode=yes "
           f"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR")

    def answers():
        return subprocess.run([*ssh.split(), "127.0.0.2", "true"], capture_output=True,
                              check=False).returncode == 0
    try:
        until(answers, 20, "an answer of sshd")
    except AssertionError as late:
        sshd.kill()
        sshd.wait()
        raise unittest.SkipTest(f"{late}: {(folder / 'log').read_text()[-500:]}")
    return sshd, ssh


@unittest.skipUnless(os.geteuid() == 0, "only root can start an sshd with a /run of its own")
@unittest.skipUnless((shutil.which("sshd") or os.path.exists("/usr/sbin/sshd")) and
                     shutil.which("ssh"), "there is no sshd here (openssh-server)")
class RealSsh(SshLaunch):
    @classmethod
    def setUpClass(cls):
        cls.keys = tempfile.TemporaryDirectory(prefix="mgpu-sshd-")
        cls.addClassCleanup(cls.keys.cleanup)
        cls.sshd, cls.ssh_command = start_sshd(cls.keys.name)
        cls.addClassCleanup(cls.sshd.wait)
        cls.addClassCleanup(cls.sshd.terminate)

    def begin(self, hosts, *args, env=None, **popen):
        names = {"a": "127.0.0.2", "b": "127.0.0.3", "me@b": "127.0.0.3"}
        hosts = "".join(" ".join([names.get(line.split()[0], line.split()[0]), *line.split()[1:]])
                        + "\n" for line in hosts.splitlines())
        return super().begin(hosts, *args, env={"MGPU_SSH": self.ssh_command, **(env or {})},
                             **popen)

    # These tests need the fake ssh.
    test_every_host_gets_its_rank_the_environment_the_folder_and_the_secret = None
    test_a_killed_ssh_ends_its_agent_and_the_job = None
    test_an_unreachable_host_is_named_and_ends_the_job = None
    test_an_elastic_job_continues_without_an_unreachable_host = None
    test_an_agent_that_ignores_the_stop_is_killed_after_the_grace_period = None
    test_a_second_interrupt_does_not_wait = None
    test_no_process_outlives_the_command = None
    test_a_host_that_starts_no_agent_is_named_and_ends_the_job = None
    test_the_line_before_an_agent_starts_may_arrive_in_pieces_after_a_banner = None
    test_the_line_before_an_agent_starts_is_found_although_ssh_changes_its_output = None
    test_a_prompt_that_may_begin_that_line_is_shown_while_the_agent_runs = None
    test_a_usage_error_is_one_line_and_starts_nothing = None
    test_an_agent_on_this_machine_is_started_without_ssh = None

    def test_the_folder_the_environment_and_the_secret_arrive_over_ssh(self):
        odd = "it's \"$HOME\" `id`\n\\ % \t\u00e9\n"
        big = "x" * 100_000
        job = self.begin("a\nb\n", env={"ODD": odd, "BIG": big})
        self.assertEqual(self.end(job), 0, job.err)
        first, second = self.agents(2)
        for agent in (first, second):
            self.assertEqual(agent["env"]["ODD"], odd)
            self.assertEqual(agent["env"]["BIG"], big)
            self.assertEqual(agent["cwd"], os.path.realpath(self.dir))
            self.assertEqual(agent["token"], first["token"])
        self.assertIn("127.0.0.3", second["env"]["SSH_CONNECTION"])

    def test_killing_ssh_or_the_command_ends_the_agents(self):
        for kill_command in (False, True):
            job = self.begin("a\nb\n", env={"DO_0": "wait", "DO_1": "wait"})
            agents = self.agents(2)
            os.kill(job.pid if kill_command else children(job.pid)[0], signal.SIGKILL)
            status = self.end(job)
            self.assertEqual(status, -signal.SIGKILL if kill_command else 75, job.err)
            self.wait_for_files("stopped.*", 2)
            self.assert_all_gone([agent["pid"] for agent in agents])
            for path in (*self.dir.glob("stopped.*"), *self.dir.glob("agent.[0-9]")):
                path.unlink()

    def test_ssh_s_own_message_is_shown_when_a_connection_is_refused(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.4", 0))
            closed = f"ssh -F none -o BatchMode=yes -p {probe.getsockname()[1]}"
            job = super().begin("127.0.0.4\n", env={"MGPU_SSH": closed})
            self.assertEqual(self.end(job), 75, job.err)
        self.assertRegex(job.err, r"node 0 \(127\.0\.0\.4\) cannot be reached.*Connection refused")

    @unittest.skipIf(not TORCH_PYTHON, "MGPU_TORCH_PYTHON names no python that has torch")
    def test_a_job_runs_over_ssh(self):
        worker = self.script(
            "import os, socket\n"
            "from torch import distributed as d, ones\n"
            "d.init_process_group('gloo')\n"
            "x = ones(1) * (d.get_rank() + 1)\n"
            "d.all_reduce(x)\n"
            "print('sum', int(x), 'of', d.get_world_size(), flush=True)\n"
            "d.destroy_process_group()\n")  # its threads may otherwise abort an ending process
        hosts = self.write("hosts", "127.0.0.2 slots=2\n127.0.0.3 slots=2\n")
        job = self.run_job("--hostfile", hosts, worker, limit=120,
                           env={"MGPU_SSH": self.ssh_command, "PYTHON_EXEC": TORCH_PYTHON,
                                "GLOO_SOCKET_IFNAME": "lo"})
        self.assertEqual(job.returncode, 0, job.err)
        self.assertEqual(job.out.splitlines(), ["sum 10 of 4"] * 4)

    def begin_real(self, text):
        """Starts a job of sh workers with real agents."""
        hosts = self.write("hosts", "127.0.0.2 slots=1\n127.0.0.3 slots=1\n")
        return self.start("--hostfile", hosts, "--grace", "1", "--keep-alive", "1", "--no-python",
                          "/bin/sh", "-c", text, env={"MGPU_SSH": self.ssh_command})

    def test_a_job_over_ssh_ends_with_the_status_of_its_failing_rank(self):
        job = self.begin_real("test $RANK = 0 || exit 7; exec sleep 100")
        self.assertEqual(self.end(job), 7, job.err)
        self.assertIn("exited with status 7", job.err)
        self.assertNotIn("cannot be reached", job.err)

    def test_a_killed_ssh_ends_its_agent_the_ranks_and_the_job(self):
        job = self.begin_real("echo $$ > pid.$RANK; exec sleep 100")
        ranks = self.pids_from("pid.*", 2, 30)
        os.kill(children(job.pid)[1], signal.SIGKILL)
        self.assertEqual(self.end(job), 75, job.err)
        self.assertIn("node 1 (127.0.0.3)", job.err)
        self.assert_all_gone(ranks, 10)


if __name__ == "__main__":
    unittest.main()
