"""How a job ends: exit status, first failure, restarts, failure report."""

import json
import os
import resource
import signal
import socket
import subprocess
import unittest
from pathlib import Path

from harness import JobTest, MGPU_RUN, SIGNALS, SLOWER


class ExitStatus(JobTest):
    def test_a_successful_job_ends_with_0_and_prints_nothing(self):
        job = self.sh(4, "exit 0")
        self.assertEqual((job.returncode, job.out, job.err), (0, "", ""))

    def test_the_job_ends_with_the_status_of_the_failed_rank(self):
        for status in (1, 3, 77, 255):
            self.assertEqual(self.sh(2, f'[ "$RANK" = 0 ] || exit {status}').returncode, status)

    def test_a_rank_killed_by_signal_n_gives_status_128_plus_n(self):
        for signo in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGUSR1):
            job = self.sh(2, f'ulimit -c 0; [ "$RANK" = 0 ] || kill -{int(signo)} $$; sleep 30')
            self.assertEqual(job.returncode, 128 + signo)
            self.assertIn(SIGNALS(signo).name, job.err)

    def test_the_first_failed_rank_sets_the_status_not_ranks_that_were_stopped(self):
        job = self.sh(4, 'trap "exit 9" TERM; [ "$RANK" = 2 ] && exit 5; '
                         'while :; do sleep 0.01; done')
        self.assertEqual(job.returncode, 5)
        first = job.report["attempts"][0]["first_failure"]
        self.assertEqual((first["rank"], first["exit_code"]), (2, 5))
        ends = {end["rank"]: end for end in job.report["attempts"][0]["ranks"]}
        self.assertEqual([ends[r]["ended_by_us"] for r in range(4)], [True, True, False, True])

    def test_a_failed_rank_stops_the_others(self):
        job = self.sh(3, '[ "$RANK" = 1 ] && exit 4; sleep 60')
        self.assertEqual(job.returncode, 4)
        self.assertLess(job.report["lasted_s"], 10)

    def test_failures_within_one_second_are_ordered(self):
        for first in (0, 1, 2, 3):
            job = self.sh(4, f'[ "$RANK" = {first} ] && exit 11; sleep 0.15; exit 12')
            self.assertEqual(job.report["attempts"][0]["first_failure"]["rank"], first)


class Restarts(JobTest):
    def test_a_failing_job_uses_all_restarts_and_counts_them(self):
        job = self.sh(2, '[ $RANK = 1 ] || sleep 60; '
                         'echo "$TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"; exit 1',
                      "--max-restarts", 3)
        self.assertEqual(job.returncode, 1)
        self.assertEqual(job.out.splitlines(), [f"{i} of 3" for i in range(4)])
        self.assertEqual(len(job.report["attempts"]), 4)

    def test_a_job_that_succeeds_after_restarts_ends_with_0(self):
        job = self.sh(3, 'exit $(( TORCHELASTIC_RESTART_COUNT < 2 ? RANK : 0 ))', "--max-restarts", 5)
        self.assertEqual(job.returncode, 0)
        self.assertEqual(len(job.report["attempts"]), 3)

    def test_restarts_after_new_steps_do_not_count_if_progress_renews_them(self):
        job = self.run_job("-n", 1, "--max-restarts", "1/progress", self.script(
            'import os, socket, sys\n'
            'launcher = socket.socket(socket.AF_UNIX)\n'
            'launcher.connect(os.environ["MGPU_WORKER_SOCKET"].replace("@", "\\0", 1))\n'
            'step = [5, 8, 9, 9, 9][int(os.environ["TORCHELASTIC_RESTART_COUNT"])]\n'
            'launcher.sendall(b\'{"rank": 0, "step": %d}\\n\' % step)\n'
            'sys.exit(3)\n'))
        self.assertEqual(job.returncode, 3)
        self.assertEqual([a["last_step"] for a in job.report["attempts"]], [5, 8, 9, 9, 9])
        restarts = [line.rpartition("(")[2] for line in job.err.splitlines() if "restarting" in line]
        self.assertEqual(restarts, ["restart 1, after new steps up to 5)",
                                    "restart 2, after new steps up to 8)",
                                    "restart 3, after new steps up to 9)",
                                    "restart 4, 1 of 1 without a new step)"])
        self.assertIn("attempt 5 (exit status 3)", job.err)

    def test_each_attempt_uses_a_new_port(self):
        job = self.sh(2, 'echo $MASTER_PORT; exit $RANK', "--max-restarts", 2)
        ports = job.out.split()
        self.assertEqual(len(set(ports)), 3, ports)

    def test_a_given_port_is_kept(self):
        job = self.sh(2, 'echo $MASTER_ADDR:$MASTER_PORT; exit $RANK', "--max-restarts", 2,
                      "--master-port", 29517)
        self.assertEqual(set(job.out.split()), {"127.0.0.1:29517"})

    def test_the_logs_of_every_attempt_are_kept(self):
        self.sh(2, '[ $RANK = 0 ] || sleep 60; echo "attempt $TORCHELASTIC_RESTART_COUNT"; exit 1',
                "--max-restarts", 2, "--log-dir", self.dir / "logs", "-r", "3")
        for attempt in range(3):
            logs = sorted((self.dir / "logs").glob(f"*/attempt_{attempt}/*/stdout.log"))
            self.assertEqual([p.read_text() for p in logs], [f"attempt {attempt}\n", ""])

    def test_the_end_of_the_output_of_a_failed_rank_is_in_its_log_folder(self):
        (self.dir / "tmp").mkdir()
        job = self.sh(2, '[ $RANK = 0 ] && sleep 60; seq 20000; echo "no such thing" >&2; exit 3',
                      env={"TMPDIR": str(self.dir / "tmp")})
        folder = Path(job.report["attempts"][0]["log_dir"])
        self.assertEqual((folder / "stderr.log").read_text(), "no such thing\n")
        lines = (folder / "stdout.log").read_text()
        self.assertEqual(len(lines), 64 << 10)
        self.assertTrue(lines.endswith("\n19999\n20000\n"))
        self.assertEqual(list((folder.parent / "0").iterdir()), [])

    def test_a_failure_that_is_not_retryable_ends_the_job_when_it_repeats(self):
        worker = self.script("raise ImportError('half a module')\n")
        job = self.run_job("-n", 2, "--max-restarts", 9, worker)
        self.assertEqual(job.returncode, 1)
        self.assertEqual(len(job.report["attempts"]), 2)
        self.assertEqual(job.report["attempts"][1]["cause"]["kind"], "import_error")
        self.assertIn("would not help", job.report["remark"])

    def test_a_module_that_does_not_exist_ends_the_job_at_once(self):
        worker = self.script("import no_such_module_anywhere\n")
        job = self.run_job("-n", 2, "--max-restarts", 9, worker)
        self.assertEqual(job.returncode, 1)
        [attempt] = job.report["attempts"]
        self.assertEqual((attempt["cause"]["kind"], attempt["cause"]["signature"],
                          attempt["cause"]["role"], attempt["policy"]),
                         ("import_error", "no_module", "root", "give_up"))
        self.assertIn("not restarted: import_error before the first step", job.err)

    def test_a_job_that_made_progress_survives_a_while_without_its_files(self):
        worker = self.script(
            'import os, socket\n'
            'attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])\n'
            'if attempt in (1, 2): import no_such_module_anywhere\n'
            'if attempt == 0:\n'
            '    launcher = socket.socket(socket.AF_UNIX)\n'
            '    launcher.connect(os.environ["MGPU_WORKER_SOCKET"].replace("@", "\\0", 1))\n'
            '    launcher.sendall(b\'{"rank": 0, "step": 7}\\n\')\n'
            '    os.kill(os.getpid(), 9)\n')
        job = self.run_job("-n", 1, "--max-restarts", 5, "--retry-delay", 0, worker)
        self.assertEqual(job.returncode, 0, job.err)
        self.assertEqual([attempt["cause"]["kind"] for attempt in job.report["attempts"][1:3]],
                         ["import_error", "import_error"])

    def test_the_user_chooses_what_happens_after_a_kind_of_failure(self):
        worker = self.script("import no_such_module_anywhere\n")
        job = self.run_job("-n", 1, "--max-restarts", 3, "--on-failure", "import_error=restart", worker)
        self.assertEqual(len(job.report["attempts"]), 4)
        job = self.sh(1, "exit 3", "--max-restarts", 3, "--on-failure", "nan=restart",
                      "--on-failure", "exit_status=give_up")
        self.assertEqual(len(job.report["attempts"]), 1)
        self.assertIn("not restarted: the policy for exit_status is give_up", job.err)

    def test_an_exec_failure_is_reported_and_restarted_once_only(self):
        program = self.write("broken", "#!/no/such/interpreter\n", 0o755)
        job = self.run_job("-n", 2, "--max-restarts", 9, "--no-python", program)
        self.assertEqual(job.returncode, 127)
        self.assertEqual(len(job.report["attempts"]), 2)
        self.assertIn("could not be started: No such file or directory", job.err)

    def test_the_retry_delay_applies_from_the_second_restart(self):
        job = self.sh(1, "exit 1", "--max-restarts", 2, "--retry-delay", "0.3")
        self.assertEqual(len(job.report["attempts"]), 3)
        self.assertGreaterEqual(job.report["lasted_s"], 0.3)
        self.assertLess(job.report["lasted_s"], 0.3 + 0.25 * 10)


class FailureReport(JobTest):
    def test_a_rank_whose_peer_vanished_is_not_the_cause(self):
        job = self.run_job("-n", 2, self.script(
            'import os, signal, sys, time\n'
            'done = sys.argv[1]\n'
            'if os.environ["RANK"] == "0":\n'
            '    while not os.path.exists(done): time.sleep(0.01)\n'
            '    raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")\n'
            'try:\n'
            '    raise ValueError("boom")\n'
            'finally:\n'
            '    import traceback; traceback.print_exc()\n'
            '    open(done, "w").close()\n'
            '    time.sleep(60)\n'), self.dir / "done")
        attempt = job.report["attempts"][0]
        self.assertEqual(attempt["first_failure"]["rank"], 0)
        self.assertEqual(attempt["root_rank"], 1)
        self.assertEqual(attempt["cause"]["text"], "a consequence of rank 1: ValueError: boom")
        self.assertEqual({rank["rank"]: rank["role"] for rank in attempt["ranks"]},
                         {0: "cascade", 1: "root"})

    def test_the_python_exception_is_the_cause(self):
        worker = self.script('import os\nif os.environ["RANK"] == "1": raise ValueError("boom")\n'
                             'import time; time.sleep(60)\n')
        job = self.run_job("-n", 2, worker)
        self.assertEqual(job.report["attempts"][0]["cause"],
                         {"kind": "python_exception", "text": "ValueError: boom", "advice": "",
                          "signature": "", "evidence": "ValueError: boom", "role": "root"})
        words = job.err[job.err.index("mgpu-run: "):]
        for expected in ("first failure: rank 1 (local rank 1", "cause   ValueError: boom",
                         "last lines of its stderr:", "| ValueError: boom", "<- first"):
            self.assertIn(expected, words)

    def test_an_error_file_is_written_for_programs_that_do_not_use_record(self):
        worker = self.script('raise KeyError("lost")\n')
        job = self.run_job("-n", 1, "--log-dir", self.dir / "logs", worker)
        error = json.loads(next((self.dir / "logs").glob("*/attempt_0/0/error.json")).read_text())
        self.assertEqual(error["message"]["message"], "KeyError: 'lost'")
        self.assertIn("Traceback", error["message"]["extraInfo"]["py_callstack"])
        self.assertTrue(error["message"]["extraInfo"]["timestamp"].isdigit())
        self.assertEqual(job.returncode, 1)

    def test_an_error_file_written_by_the_worker_is_read(self):
        message = {"message": {"message": "RuntimeError: told in the file",
                               "extraInfo": {"py_callstack": "Traceback x", "timestamp": "17"}}}
        worker = self.script(f"import os, sys\nopen(os.environ['TORCHELASTIC_ERROR_FILE'], 'w')"
                             f".write({json.dumps(json.dumps(message))})\nos._exit(6)\n")
        job = self.run_job("-n", 1, worker)
        self.assertEqual(job.returncode, 6)
        self.assertEqual(job.report["attempts"][0]["cause"]["text"], "RuntimeError: told in the file")

    def test_a_nested_launcher_writes_the_first_failure_to_the_outer_error_file(self):
        path = self.dir / "ours.json"
        self.sh(2, "echo broken >&2; exit 8", env={"TORCHELASTIC_ERROR_FILE": str(path)})
        error = json.loads(path.read_text())["message"]
        self.assertEqual(error["errorCode"], 8)
        self.assertIn("broken", error["message"])

    def test_quiet_keeps_the_workers_output_and_the_failure_report(self):
        job = self.sh(1, "echo out; exit 1", "--quiet", "--max-restarts", 1)
        self.assertEqual(job.out, "out\nout\n")
        self.assertNotIn("restarting all ranks", job.err)
        self.assertIn("exit status 1", job.err)

    def test_a_gpu_oom_is_the_cause_and_the_restarted_ranks_get_the_oom_count(self):
        job = self.sh(2, 'echo "oom count $MGPU_OOM_COUNT"; [ $RANK = 0 ] && sleep 9; '
                         'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate '
                         '20.00 GiB" >&2; exit 1', "--max-restarts", 1)
        self.assertEqual(job.report["attempts"][0]["cause"]["kind"], "gpu_oom")
        self.assertIn("20.00 GiB", job.err)
        self.assertIn("oom count 1", job.out)

    def test_ranks_restarted_after_a_gpu_oom_have_expandable_segments(self):
        job = self.sh(1, 'echo "conf ${PYTORCH_CUDA_ALLOC_CONF-unset} ${PYTORCH_ALLOC_CONF-unset}"; '
                         'echo "CUDA out of memory" >&2; exit 1', "--max-restarts", 1)
        self.assertEqual(job.out.splitlines(),
                         ["conf unset unset",
                          "conf expandable_segments:True expandable_segments:True"])

    # If the kernel's counter of OOM kills can be read, it is certain that this was none.
    def test_an_unexplained_sigkill_is_not_called_out_of_memory(self):
        job = self.sh(1, "kill -9 $$")
        cause = job.report["attempts"][0]["cause"]
        counted = "the kernel counted no OOM kill" in cause["text"]
        self.assertEqual(cause["kind"], "killed" if counted else "host_oom_guess")
        self.assertIn("killed by SIGKILL, which mgpu-run did not send", cause["text"])

    def test_an_unexplained_sigkill_does_not_make_the_restarted_batches_smaller(self):
        job = self.sh(1, 'echo "oom count $MGPU_OOM_COUNT"; [ "$MGPU_OOM_COUNT" = 0 ] && kill -9 $$',
                      "--max-restarts", 2)
        self.assertEqual(job.out.splitlines(), ["oom count 0"] * 3)


class CpuLimit(JobTest):
    LIMIT = 1 if SLOWER == 1 else 5  # seconds; the launcher has it, too

    def run_busy(self, soft, hard):
        return self.run_job("-n", 1, self.script("while True:\n    pass\n"),
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (soft, hard)))

    def test_a_rank_at_the_hard_limit_of_cpu_time_is_not_attributed_to_a_person(self):
        job = self.run_busy(self.LIMIT, self.LIMIT)
        cause = job.report["attempts"][0]["cause"]
        self.assertEqual((job.returncode, cause["kind"]), (137, "killed"))
        self.assertIn(f"{self.LIMIT} s of CPU time, the limit that ranks inherit (ulimit -t {self.LIMIT})",
                      cause["text"])
        self.assertNotIn("a person", job.err)
        self.assertIn("ulimit -t unlimited", cause["advice"])

    def test_a_rank_at_the_soft_limit_of_cpu_time_has_this_cause(self):
        job = self.run_busy(self.LIMIT, 100)
        cause = job.report["attempts"][0]["cause"]
        self.assertEqual((job.returncode, cause["kind"]), (152, "signal"))
        self.assertEqual(cause["text"],
                         f"killed by SIGXCPU: the rank has used {self.LIMIT} s of CPU time, the limit that "
                         f"ranks inherit (ulimit -t {self.LIMIT})")

    def test_a_limit_of_cpu_time_that_the_rank_did_not_reach_is_no_cause(self):
        job = self.run_job("-n", 1, "--no-python", "/bin/sh", "-c", "kill -9 $$",
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (3600, 3600)))
        self.assertIn("killed by SIGKILL, which mgpu-run did not send", job.err)
        self.assertNotIn("CPU time", job.err)


class ReportFile(JobTest):
    def run_with_report(self, report, options=(), **popen):
        job = self.start("--report", report, *options, "--no-python", "true", **popen)
        out, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0)
        return out.decode(), err.decode()

    def test_a_report_replaces_an_older_one_whole(self):
        report = Path(self.write("r.json", "old", 0o640))
        before = report.stat()
        with report.open() as kept:
            self.assertEqual(self.run_with_report(report), ("", ""))
            self.assertEqual(kept.read(), "old")
        self.assert_only(report)
        self.assertEqual(report.stat().st_mode, before.st_mode)

    def assert_only(self, *reports):
        for report in reports:
            self.assertEqual(json.loads(report.read_text())["exit_status"], 0)
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()),
                         sorted(path.name for path in reports))

    def test_a_report_keeps_its_other_names(self):
        report, other = Path(self.write("r.json", "old")), self.dir / "other"
        other.hardlink_to(report)
        self.assertEqual(self.run_with_report(report), ("", ""))
        self.assert_only(report, other)

    @unittest.skipIf(os.geteuid() != 0, "only root may give a file to another user")
    def test_a_report_keeps_its_owner(self):
        report = Path(self.write("r.json", "old", 0o600))
        os.chown(report, 1234, 4321)
        self.assertEqual(self.run_with_report(report), ("", ""))
        self.assert_only(report)
        end = report.stat()
        self.assertEqual((end.st_uid, end.st_gid, end.st_mode & 0o7777), (1234, 4321, 0o600))

    def test_another_user_could_lead_a_report_into_any_file(self):
        """The name of the file beside the report was known: it had the pid of mgpu-run."""
        report, planted = self.dir / "r.json", Path(self.write("planted", "mine"))
        job = subprocess.run(["/bin/sh", "-c", 'ln -s planted "r.json.$$"; exec "$0" "$@"', MGPU_RUN,
                              "--report", report, "--no-python", "true"],
                             capture_output=True, text=True, cwd=self.dir, timeout=60 * SLOWER)
        self.assertEqual((job.returncode, job.stderr), (0, ""))
        self.assertEqual(planted.read_text(), "mine")
        self.assertFalse(report.is_symlink())
        self.assertEqual(json.loads(report.read_text())["exit_status"], 0)

    def test_a_report_that_is_a_mount_point_is_written_in_place(self):
        report, source = self.dir / "r.json", Path(self.write("source", "old"))
        report.touch()
        mounted = ["unshare", "-rm", "sh", "-c", 'mount --bind "$0" "$1" && shift && "$@"', source, report]
        try:
            subprocess.run([*mounted, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("mounts are not permitted here")
        job = subprocess.run([*mounted, MGPU_RUN, "--report", report, "--no-python", "true"],
                             capture_output=True, text=True, cwd=self.dir, timeout=60 * SLOWER)
        self.assertEqual((job.returncode, job.stderr), (0, ""))
        self.assertEqual(json.loads(source.read_text())["exit_status"], 0)
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()), ["r.json", "source"])

    def test_an_older_report_stays_if_the_new_one_cannot_be_written(self):
        def limit_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        report = Path(self.write("r.json", "old"))
        for quiet in ([], ["--quiet"]):  # which prints errors
            _, err = self.run_with_report(report, options=quiet, preexec_fn=limit_files)
            self.assertEqual(err, f"mgpu-run: cannot write the report {report}: File too large\n")
            self.assertEqual(report.read_text(), "old")
            self.assertEqual([path.name for path in self.dir.iterdir()], ["r.json"])

    def test_a_report_to_a_link_or_to_stdout_goes_there(self):
        link = self.dir / "link"
        link.symlink_to("r.json")
        self.run_with_report(link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(json.loads((self.dir / "r.json").read_text())["exit_status"], 0)
        out, _ = self.run_with_report("/dev/stdout")
        self.assertEqual(json.loads(out)["exit_status"], 0)

    def test_a_report_to_stdout_goes_to_a_socket_and_after_the_output_of_a_file(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            job = self.start("--report", "/dev/stdout", "--no-python", "true", stdout=theirs)
            self.assertEqual((job.communicate(timeout=60 * SLOWER)[1], job.returncode), (b"", 0))
            theirs.close()
            with ours.makefile() as text:
                self.assertEqual(json.load(text)["exit_status"], 0)
        with (self.dir / "out").open("w") as out:
            job = self.start("--report", "/dev/stdout", "--no-python", "echo", "hello", stdout=out)
            self.assertEqual((job.communicate(timeout=60 * SLOWER)[1], job.returncode), (b"", 0))
        self.assertIn("hello\n", (self.dir / "out").read_text())

    def test_a_report_that_can_never_be_written_is_refused_at_the_start(self):
        link, name = self.dir / "link", self.dir / "socket"
        link.symlink_to("missing/r.json")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(name))
            for report, reason in (link, "No such file or directory"), (name, "No such device or address"):
                job = self.start("--report", report, "--no-python", "true")
                err = job.communicate(timeout=60 * SLOWER)[1].decode()
                self.assertEqual(job.returncode, 2)
                self.assertIn(f"cannot write there: {reason}", err)


if __name__ == "__main__":
    unittest.main()
