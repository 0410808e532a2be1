"""Mistakes and hostile surroundings: a clear line or no effect, nothing lost, nothing grows."""

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

from harness import MGPU_RUN, SLOWER, JobTest, alive, environment, until


class Mistakes(JobTest):
    def refused(self, *args, **kwargs):
        """The one line with which a mistake ends, after the program's name."""
        job = self.run_job(*args, **kwargs)
        self.assertEqual(job.returncode, 2, job.err)
        self.assertEqual(job.out, "")
        self.assertEqual(job.err.count("\n"), 1, job.err)
        self.assertTrue(job.err.startswith("mgpu-run: "), job.err)
        self.assertLess(len(job.err), 500)
        return job.err[len("mgpu-run: "):-1]

    def test_nothing_to_run(self):
        self.assertIn("nothing to run; name a recipe (.yaml), a script", self.refused())

    def test_a_missing_script(self):
        self.assertEqual(self.refused("nope.py"),
                         "cannot run script nope.py: No such file or directory")

    def test_a_directory(self):
        self.assertIn("it is a directory", self.refused("."))

    def test_no_execute_permission(self):
        program = self.write("prog", "x", 0o644)
        self.assertIn("permission denied", self.refused("--no-python", program))

    def test_a_program_that_is_not_on_path(self):
        self.assertIn("no such program on PATH", self.refused("--no-python", "no-such-program-x"))

    def test_an_unreadable_script_or_yaml(self):
        as_another = {"user": 65534} if os.getuid() == 0 else {}
        if as_another and not os.access(MGPU_RUN, os.X_OK):
            self.skipTest("mgpu-run is not for everybody here")
        os.chmod(self.dir, 0o777)
        for name in ("s.py", "t.yaml"):
            self.assertIn(f"{name}: Permission denied",
                          self.refused(self.write(name, "launch: {}\n", 0), **as_another))

    def test_an_empty_yaml(self):
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

    def test_counts_that_cannot_be(self):
        for value in ("0", "-1", "1e9", "4x", "", "99999999999999999999"):
            with self.subTest(nproc=value):
                words = self.refused("--nproc", value, "x.py")
                self.assertIn("--nproc", words)

    def test_a_10_mb_flag_is_not_echoed(self):
        # One argument may have 128 KiB; a value of 10 MB can only come from a file.
        self.assertIn("--nproc", self.refused("--nproc", "9" * 120_000, "x.py"))
        words = self.refused(self.write("big.yaml", "launch:\n  role: " + "x" * 10_000_000 + "\n"))
        self.assertIn("big.yaml", words)

    def test_a_nul_in_a_yaml_string(self):
        words = self.refused(self.write("nul.yaml", 'launch:\n  role: "a\\0b"\n'))
        self.assertIn("nul.yaml:2", words)

    def test_a_workdir_that_is_not_there(self):
        self.assertIn("--workdir", self.refused("--workdir", "/no/such", "--no-python", "/bin/true"))

    def test_gpus_that_are_not_there(self):
        words = self.refused("-n", 2, "--gpus", "0,77", "--no-python", "/bin/true")
        self.assertRegex(words, "--gpus 0: this machine has no usable GPU")

    def test_an_unknown_rendezvous_backend(self):
        self.assertIn("--rdzv-backend zzz", self.refused("--rdzv-backend", "zzz", "x.py"))

    def test_several_nodes_are_refused_unless_standalone(self):
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


class BadSurroundings(JobTest):
    def test_a_log_folder_that_cannot_be_made_is_one_warning(self):
        (self.dir / "file").write_text("")
        job = self.sh(2, "echo hi", "--log-dir", self.dir / "file" / "logs", "-t", "3")
        self.assertEqual(job.returncode, 0)
        self.assertEqual(job.err.count("\n"), 1)
        self.assertIn("the job continues", job.err)
        self.assertEqual(job.out.count("hi"), 2)

    def test_a_log_folder_that_goes_away_between_attempts_is_told(self):
        job = self.sh(1, f'rm -rf {self.dir / "logs"}; exit 1', "--log-dir", self.dir / "logs",
                      "--max-restarts", 1)
        self.assertIn("this attempt has no logs", job.err)

    def test_a_full_disk_is_one_warning_and_nothing_is_lost(self):
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

    def test_no_stdin_stdout_or_stderr_at_all(self):
        job = subprocess.run(
            ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "-", MGPU_RUN, "-n", "2", "--no-python",
             "/bin/sh", "-c", 'echo x; echo y >&2; cat; echo "$(ls /proc/$$/fd | tr -d "\\n")" '
             '> fds.$RANK'], cwd=self.dir, env=environment(TMPDIR=str(self.dir)),
            timeout=20 * SLOWER)
        self.assertEqual(job.returncode, 0)
        self.assertEqual((self.dir / "fds.0").read_text().strip()[:3], "012")

    def test_a_worker_that_closes_its_pipes(self):
        job = self.sh(2, "exec >&- 2>&-; sleep 0.3; exit $((RANK * 6))")
        self.assertEqual(job.returncode, 6)

    def test_a_worker_that_forks_and_exits(self):
        began = time.monotonic()
        job = self.sh(2, "(sleep 60; echo late) & exit 0")
        self.assertEqual((job.returncode, job.out), (0, ""))
        self.assertLess(time.monotonic() - began, 5 * SLOWER)

    def as_nobody(self, limit, *args):
        """A job of a user that may have `limit` processes."""
        if os.getuid() == 0 and not self.can_be_nobody():
            self.skipTest("needs another uid")

        def prepare():
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
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

    def test_a_full_process_table(self):
        status, err = self.as_nobody(6, "-n", "16", "--no-python", "/bin/sleep", "30")
        self.assertNotEqual(status, 0)
        self.assertIn("cannot start a process", err)
        self.assertIn("was not started", err)

    def test_a_worker_that_fills_the_process_table(self):
        worker = self.script('import os, sys, time\nheld = []\ntry:\n    while True:\n'
                             '        pid = os.fork()\n        if pid == 0:\n'
                             '            os.setsid(); time.sleep(300)\n        held.append(pid)\n'
                             'except OSError:\n    open("pids", "w").write(" ".join(map(str, held)))\n'
                             '    sys.exit(5)\n')
        python = next((p for p in ("/usr/bin/python3", sys.executable) if os.path.exists(p)))
        if os.getuid() == 0 and python.startswith("/root"):
            self.skipTest("no python that another user may run")
        status, err = self.as_nobody(150, "-n", "2", "--no-python", python, worker)
        self.assertEqual(status, 5, err)
        pids = [int(word) for word in (self.dir / "pids").read_text().split()]
        self.assertGreater(len(pids), 20)
        self.assertFalse(any(map(alive, pids)))

    def can_be_nobody(self):
        return subprocess.run(["/bin/true"], user=65534, capture_output=True).returncode == 0


class AtTheStore(JobTest):
    """Strangers at the store's port do not disturb the job."""

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

    def test_a_port_scanner(self):
        for greeting in (b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 4096, b"\0" * 64, b"SSH-2.0-x\r\n"):
            stranger = self.connect()
            stranger.sendall(greeting)
            try:
                self.assertEqual(stranger.recv(1), b"")
            except ConnectionResetError:
                pass
        self.assert_still_serving()

    def test_a_half_open_client(self):
        self.connect().sendall(b"\0\xce")
        self.assert_still_serving()

    def test_an_8_gb_length_prefix(self):
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

    def test_1000_idle_connections(self):
        before = self.memory()
        for _ in range(1000):
            self.connect()
        time.sleep(0.2)
        self.assertLess(self.memory() - before, 4 << 20)
        self.assert_still_serving()


if __name__ == "__main__":
    unittest.main()
