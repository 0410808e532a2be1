"""Usage errors and hostile environments: a clear message or no effect, and no data is lost."""

import json
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

from harness import MGPU_RUN, SLOWER, JobTest, alive, children, comm, environment, until

# A user of these tests only: the kernel counts all processes of a user against RLIMIT_NPROC.
LIMITED = 65533


class BadCommandLines(JobTest):
    def refused(self, *args, **kwargs):
        """The one-line message of a usage error, without the program's name."""
        job = self.run_job(*args, **kwargs)
        self.assertEqual(job.returncode, 2, job.err)
        self.assertEqual(job.out, "")
        self.assertEqual(job.err.count("\n"), 1, job.err)
        self.assertTrue(job.err.startswith("mgpu-run: "), job.err)
        self.assertLess(len(job.err), 500)
        return job.err[len("mgpu-run: "):-1]

    def test_an_empty_command_line_says_what_can_be_run(self):
        self.assertIn("nothing to run; name a recipe (.yaml), a script", self.refused())

    def test_a_missing_script_is_named(self):
        self.assertEqual(self.refused("nope.py"),
                         "cannot run script nope.py: No such file or directory")

    def test_a_directory_is_no_target(self):
        self.assertIn("it is a directory", self.refused("."))

    def test_a_program_without_execute_permission_is_named(self):
        program = self.write("prog", "x", 0o644)
        self.assertIn("permission denied", self.refused("--no-python", program))

    def test_a_program_that_is_not_on_path_is_named(self):
        self.assertIn("no such program on PATH", self.refused("--no-python", "no-such-program-x"))

    def test_an_unreadable_script_or_yaml_is_named(self):
        as_another = {"user": 65534} if os.getuid() == 0 else {}
        if as_another and not os.access(MGPU_RUN, os.X_OK):
            self.skipTest("mgpu-run is not for everybody here")
        os.chmod(self.dir, 0o777)
        for name in ("s.py", "t.yaml"):
            self.assertIn(f"{name}: Permission denied",
                          self.refused(self.write(name, "launch: {}\n", 0), **as_another))

    def test_an_empty_yaml_is_rejected(self):
        self.assertIn("empty", self.refused(self.write("t.yaml", "")))

    def test_tabs_and_duplicate_keys_name_file_and_line(self):
        self.assertRegex(self.refused(self.write("t.yaml", "launch:\n\tnproc: 2\n")), r"t\.yaml:2.*tab")
        self.assertRegex(self.refused(self.write("d.yaml", "launch:\n  nproc: 2\n  nproc: 3\n")),
                         r"d\.yaml:3.*nproc")

    def test_an_unknown_key_suggests_the_nearest(self):
        words = self.refused(self.write("k.yaml", "launch:\n  max_restart: 2\n"))
        self.assertRegex(words, r'k\.yaml:2.*max_restart.*did you mean "?max_restarts')

    def test_an_unknown_flag_suggests_the_nearest(self):
        self.assertIn("did you mean --nproc", self.refused("--nprocs", "2", "x.py"))

    def test_impossible_numbers_of_ranks_are_rejected(self):
        for value in ("0", "-1", "1e9", "4x", "", "99999999999999999999"):
            with self.subTest(nproc=value):
                words = self.refused("--nproc", value, "x.py")
                self.assertIn("--nproc", words)

    def test_a_value_of_10_mb_is_not_echoed(self):
        # Linux limits an argument to 128 KiB, so a value of 10 MB has to come from a file.
        self.assertIn("--nproc", self.refused("--nproc", "9" * 120_000, "x.py"))
        text = "launch:\n  role: " + "x" * 10_000_000 + "\n"
        words = self.refused(self.write("big.yaml", text))
        self.assertIn("big.yaml", words)

    def test_a_nul_in_a_yaml_string_is_rejected_with_its_line(self):
        words = self.refused(self.write("nul.yaml", 'launch:\n  role: "a\\0b"\n'))
        self.assertIn("nul.yaml:2", words)

    def test_a_missing_workdir_is_named(self):
        self.assertIn("--workdir", self.refused("--workdir", "/no/such", "--no-python", "/bin/true"))

    def test_missing_gpus_are_named(self):
        words = self.refused("-n", 2, "--gpus", "0,77", "--no-python", "/bin/true")
        self.assertRegex(words, "--gpus 0: this machine has no usable GPU")

    def test_an_unknown_rendezvous_backend_is_named(self):
        self.assertIn("--rdzv-backend zzz", self.refused("--rdzv-backend", "zzz", "x.py"))

    def test_several_nodes_need_a_secret_unless_standalone(self):
        self.assertIn("--nnodes 2", self.refused("--nnodes", "2", "--no-python", "/bin/true"))
        job = self.run_job("--standalone", "--nnodes", "2", "--no-python", "/bin/true")
        self.assertEqual(job.returncode, 0, job.err)

    def test_a_taken_port_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            job = self.run_job("-n", 1, "--master-port", port, "--no-python", "/bin/true")
        self.assertEqual(job.returncode, 1)
        self.assertIn(f"127.0.0.1:{port}", job.err)
        self.assertIn("in use", job.err)


class BadEnvironments(JobTest):
    def test_a_leader_that_cannot_get_its_udp_port_fails_at_once(self):
        """Another leader would have the TCP port too; without it nobody is there to wait for."""
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as taken:
            taken.bind(("::", 0))
            port = taken.getsockname()[1]
            began = time.monotonic()
            job = self.run_job("--nnodes", 2, "--rdzv-backend", "c10d", "--insecure",
                               "--rdzv-endpoint", f"127.0.0.1:{port}", "--no-python", "true")
        self.assertEqual(job.returncode, 1, job.err)
        self.assertIn(f"cannot bind UDP port {port}: Address already in use; another program "
                      "uses it, choose another port", job.err)
        self.assertLess(time.monotonic() - began, 10 * SLOWER)

    def test_a_log_folder_that_cannot_be_created_causes_one_warning(self):
        (self.dir / "file").write_text("")
        job = self.sh(2, "echo hi", "--log-dir", self.dir / "file" / "logs", "-t", "3")
        self.assertEqual(job.returncode, 0)
        self.assertEqual(job.err.count("\n"), 1)
        self.assertIn("the job continues", job.err)
        self.assertEqual(job.out.count("hi"), 2)

    def test_a_log_folder_removed_between_attempts_is_reported(self):
        job = self.sh(1, f'rm -rf {self.dir / "logs"}; exit 1', "--log-dir", self.dir / "logs",
                      "--max-restarts", 1)
        self.assertIn("this attempt has no logs", job.err)

    def test_a_full_disk_causes_one_warning_and_no_output_is_lost(self):
        full = self.dir / "full"
        full.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", full],
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        try:
            job = self.sh(2, 'i=0; while [ $i -lt 20000 ]; do echo "rank $RANK line $i ........"; '
                             'i=$((i+1)); done', "--log-dir", full, "-t", "1", "-r", "2")
            self.assertEqual(job.returncode, 0)
            self.assertEqual(job.out.count("\n"), 40000)
            self.assertEqual(job.err.count("\n"), 1, job.err)
            self.assertIn("No space left on device", job.err)
        finally:
            subprocess.run(["umount", full], check=True)

    def test_a_job_runs_without_stdin_stdout_and_stderr(self):
        job = subprocess.run(
            ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "-", MGPU_RUN, "-n", "2", "--no-python",
             "/bin/sh", "-c", 'echo x; echo y >&2; cat; echo "$(ls /proc/$$/fd | tr -d "\\n")" '
             '> fds.$RANK'], cwd=self.dir, env=environment(TMPDIR=str(self.dir)),
            timeout=20 * SLOWER)
        self.assertEqual(job.returncode, 0)
        self.assertEqual((self.dir / "fds.0").read_text().strip()[:3], "012")

    def test_a_worker_that_closes_its_pipes_is_still_waited_for(self):
        job = self.sh(2, "exec >&- 2>&-; sleep 0.3; exit $((RANK * 6))")
        self.assertEqual(job.returncode, 6)

    def test_children_of_a_finished_worker_are_killed(self):
        began = time.monotonic()
        job = self.sh(2, "(sleep 60; echo late) & exit 0")
        self.assertEqual((job.returncode, job.out), (0, ""))
        self.assertLess(time.monotonic() - began, 5 * SLOWER)

    def as_nobody(self, limit, *args):
        """Runs a job as a user who may have `limit` processes."""
        if os.getuid() == 0 and not self.can_be_nobody():
            self.skipTest("needs another uid")

        def prepare():
            if os.getuid() == 0:
                os.setgid(LIMITED)
                os.setuid(LIMITED)
            resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        os.chmod(self.dir, 0o777)
        program = self.dir / "mgpu-run"
        program.write_bytes(pathlib.Path(MGPU_RUN).read_bytes())
        program.chmod(0o755)
        job = subprocess.Popen([program, *args], cwd=self.dir, preexec_fn=prepare,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment(TMPDIR=str(self.dir)))
        self.started.append(job)
        _, err = job.communicate(timeout=30 * SLOWER)
        return job.returncode, err.decode()

    def test_a_full_process_table_is_reported(self):
        status, err = self.as_nobody(6, "-n", "16", "--no-python", "/bin/sleep", "30")
        self.assertNotEqual(status, 0)
        self.assertIn("cannot start a process", err)
        self.assertIn("was not started", err)

    def test_a_healthy_job_survives_a_guard_that_cannot_be_replaced(self):
        if os.getuid() != 0 or not self.can_be_nobody():
            self.skipTest("needs another uid")
        os.chmod(self.dir, 0o777)
        program = self.dir / "mgpu-run"
        program.write_bytes(pathlib.Path(MGPU_RUN).read_bytes())
        program.chmod(0o755)

        def prepare():
            os.setgid(LIMITED)
            os.setuid(LIMITED)
        with (self.dir / "err").open("wb") as err:
            job = subprocess.Popen(
                [program, "-n", "1", "--report", "r.json", "--no-python", "/bin/sh", "-c",
                 "until [ -e go ]; do read x < tick; done"], cwd=self.dir, preexec_fn=prepare,
                stdin=subprocess.DEVNULL, stderr=err, env=environment(TMPDIR=str(self.dir)))
        os.mkfifo(self.dir / "tick")
        os.chmod(self.dir / "tick", 0o666)
        self.started.append(job)

        def guards():
            return [pid for pid in children(job.pid) if comm(pid) == "mg-guard"]
        until(lambda: len(children(job.pid)) == 2 and guards(), what="a guard and the rank")

        def limit(processes):
            subprocess.run(["prlimit", f"--pid={job.pid}", f"--nproc={processes}:"], check=True,
                           user=LIMITED, group=LIMITED)
        limit(1)
        os.kill(guards()[0], signal.SIGKILL)
        until(lambda: b"cannot be started again" in (self.dir / "err").read_bytes(), what="a note")
        self.assertIsNone(job.poll())
        limit(200)
        until(guards, what="another guard")
        (self.dir / "go").write_text("")
        (self.dir / "tick").write_text("now\n")
        self.assertEqual(job.wait(10 * SLOWER), 0, (self.dir / "err").read_text())
        self.assertEqual(json.loads((self.dir / "r.json").read_text())["exit_status"], 0)

    def test_processes_of_a_fork_bomb_are_killed(self):
        worker = self.script('import os, sys, time\nheld = []\ntry:\n    while True:\n'
                             '        pid = os.fork()\n        if pid == 0:\n'
                             '            os.setsid(); time.sleep(300)\n        held.append(pid)\n'
                             'except OSError:\n    name = "pids" + os.environ["RANK"]\n'
                             '    open(name, "w").write(" ".join(map(str, held)))\n'
                             '    sys.exit(5)\n')
        python = next((p for p in ("/usr/bin/python3", sys.executable) if os.path.exists(p)))
        if os.getuid() == 0 and python.startswith("/root"):
            self.skipTest("no python that another user may run")
        status, err = self.as_nobody(150, "-n", "2", "--no-python", python, worker)
        self.assertEqual(status, 5, err)
        # One rank may have started all that the limit allows.
        pids = [int(word) for file in self.dir.glob("pids*") for word in file.read_text().split()]
        self.assertGreater(len(pids), 20)
        self.assertFalse(any(map(alive, pids)))

    def can_be_nobody(self):
        return subprocess.run(["/bin/true"], user=LIMITED, capture_output=True).returncode == 0


class StrangersAtTheStore(JobTest):
    """Clients at the port of the store that are not ranks do not disturb the job."""

    def setUp(self):
        super().setUp()
        self.job = self.start_sh(1, 'echo $MASTER_PORT > port; until [ -e go ]; do sleep 0.02; done')
        self.port = int(self.wait_for_files("port", 1)[0].read_text())
        self.sockets = []
        self.addCleanup(lambda: [s.close() for s in self.sockets])

    def connect(self):
        self.sockets.append(socket.create_connection(("127.0.0.1", self.port), timeout=5))
        return self.sockets[-1]

    def memory(self):
        with open(f"/proc/{self.job.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * 4096

    def assert_still_serving(self):
        member = self.connect()
        member.sendall(bytes([0]) + struct.pack("<I", 0x3C85F7CE) + bytes([13]) + b"\1\2\3\4")
        self.assertEqual(member.recv(4), b"\1\2\3\4")
        (self.dir / "go").write_text("")
        self.assertEqual(self.job.wait(10 * SLOWER), 0)

    def test_a_port_scanner_is_disconnected(self):
        for hello in (b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 4096, b"\0" * 64, b"SSH-2.0-x\r\n"):
            stranger = self.connect()
            stranger.sendall(hello)
            try:
                self.assertEqual(stranger.recv(1), b"")
            except ConnectionResetError:
                pass
        self.assert_still_serving()

    def test_a_client_that_stops_in_mid_request_is_ignored(self):
        self.connect().sendall(b"\0\xce")
        self.assert_still_serving()

    def test_a_length_prefix_of_8_gb_allocates_nothing(self):
        before = self.memory()
        liar = self.connect()
        liar.sendall(bytes([0]) + struct.pack("<I", 0x3C85F7CE) + bytes([1]) + struct.pack("<Q", 3)
                     + b"key" + struct.pack("<Q", 8 << 30) + b"x" * 1000)
        try:
            self.assertEqual(liar.recv(1), b"")
        except ConnectionResetError:
            pass
        self.assertLess(self.memory() - before, 1 << 20)
        self.assert_still_serving()

    def test_1000_idle_connections_take_less_than_4_mib(self):
        before = self.memory()
        for _ in range(1000):
            self.connect()
        time.sleep(0.2)
        # AddressSanitizer keeps what was freed.
        self.assertLess(self.memory() - before, (4 if SLOWER == 1 else 8) << 20)
        self.assert_still_serving()


if __name__ == "__main__":
    unittest.main()
