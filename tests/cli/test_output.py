"""The output of the ranks: on the terminal, in pipes and in log files."""

import collections
import os
import pathlib
import pty
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

from harness import MGPU_RUN, PYTHON, SLOWER, JobTest, alive, environment, until


class Plain(JobTest):
    def test_bytes_pass_through_unchanged(self):
        job = self.sh(1, r'printf "a\r\nb\tc\0d\033[1m\n no end"; printf "e\n\n\nf" >&2')
        self.assertEqual(job.out, "a\r\nb\tc\0d\033[1m\n no end")
        self.assertEqual(job.err, "e\n\n\nf")

    def test_lines_have_no_prefix_by_default(self):
        self.assertEqual(sorted(self.sh(2, "echo hi $RANK").out.splitlines()), ["hi 0", "hi 1"])
        self.assertEqual(sorted(self.sh(2, "echo hi $RANK", "--prefix").out.splitlines()),
                         ["[default0]:hi 0", "[default1]:hi 1"])

    def test_the_prefix_follows_the_template(self):
        job = self.sh(2, "echo hi", "--prefix", "--log-line-prefix-template",
                      "<${role_name}/${rank}/${local_rank}> ", "--role", "trainer")
        self.assertEqual(sorted(job.out.splitlines()), ["<trainer/0/0> hi", "<trainer/1/1> hi"])

    def test_an_unfinished_last_line_is_not_joined_with_another_rank_s_line(self):
        job = self.sh(4, 'printf "only $RANK"')
        self.assertEqual(sorted(job.out.splitlines()), [f"only {r}" for r in range(4)])

    def test_filters_show_only_the_chosen_ranks(self):
        job = self.sh(3, "echo out $RANK; echo err $RANK >&2", "--local-ranks-filter", "2")
        self.assertEqual((job.out, job.err), ("out 2\n", "err 2\n"))

    def test_a_line_over_64_kib_is_split_with_a_mark(self):
        job = self.run_job("-n", 2, self.script('import sys\nsys.stdout.write("x" * 150000 + "\\n")\n'))
        lines = job.out.splitlines()
        self.assertEqual(sum(line.count("x") for line in lines), 300000)
        self.assertEqual(collections.Counter(line.endswith(" [line continues]") for line in lines),
                         {True: 4, False: 2})
        self.assertLess(max(map(len, lines)), 65536 + 20)


class Files(JobTest):
    def log(self, name, rank, attempt=0):
        return next((self.dir / "logs").glob(f"*/attempt_{attempt}/{rank}/{name}")).read_text()

    def test_redirects_go_to_files_only(self):
        job = self.sh(2, "echo out $RANK; echo err $RANK >&2", "-r", "3",
                      "--log-dir", self.dir / "logs")
        self.assertEqual((job.out, job.err), ("", ""))
        self.assertEqual((self.log("stdout.log", 1), self.log("stderr.log", 0)),
                         ("out 1\n", "err 0\n"))

    def test_tee_goes_to_both_with_a_prefix(self):
        job = self.sh(2, "echo out $RANK", "-t", "3", "--log-dir", self.dir / "logs")
        self.assertEqual(sorted(job.out.splitlines()), ["[default0]:out 0", "[default1]:out 1"])
        self.assertEqual(self.log("stdout.log", 0), "out 0\n")

    def test_redirects_accept_local_ranks_of_two_digits(self):
        job = self.sh(12, "echo out $RANK; echo err $RANK >&2", "-r", "0:1,11:3",
                      "--log-dir", self.dir / "logs")
        self.assertEqual(self.log("stdout.log", 11), "out 11\n")
        self.assertNotIn("out 11", job.out)
        self.assertNotIn("out 0\n", job.out)
        self.assertIn("err 0", job.err)
        self.assertIn("out 5", job.out)

    def test_lines_that_match_a_duplicate_filter_are_copied(self):
        self.sh(2, 'echo "loss 1 $RANK"; echo other; echo "step 2 $RANK"', "-t", "3",
                "--log-dir", self.dir / "logs", "--duplicate-stdout-filters", "loss,step 2")
        copied = next((self.dir / "logs").glob("*/attempt_0/filtered_stdout.log")).read_text()
        self.assertEqual(sorted(copied.splitlines()),
                         sorted(f"[default{r}]:{what} {r}" for r in (0, 1)
                                for what in ("loss 1", "step 2")))

    def test_the_default_log_folder_is_temporary_and_removed_after_success(self):
        env = {"TMPDIR": str(self.dir / "tmp")}
        (self.dir / "tmp").mkdir()
        self.sh(1, 'echo "$TORCHELASTIC_ERROR_FILE" > where', env=env)
        self.assertTrue((self.dir / "where").read_text().startswith(str(self.dir / "tmp")))
        self.assertEqual(list((self.dir / "tmp").iterdir()), [])
        self.sh(1, "exit 1", env=env)
        self.assertEqual(len(list((self.dir / "tmp").iterdir())), 1)

    def test_the_job_s_id_does_not_lead_out_of_the_log_folder(self):
        for run_id, name in (("../../x", "___.._x_*"), ("team/run", "team_run_*")):
            job = self.sh(1, "echo out; echo $TORCHELASTIC_RUN_ID >&2", "--log-dir", "a/b/logs",
                          "--rdzv-id", run_id, "-r", "1")
            self.assertEqual((job.returncode, job.err), (0, run_id + "\n"))
            self.assertEqual(len(list(self.dir.glob(f"a/b/logs/{name}/attempt_0/0/stdout.log"))), 1)
        self.assertEqual([path.name for path in self.dir.iterdir() if path.is_dir()], ["a"])

    def test_without_the_temporary_folder_logs_are_in_tmp(self):
        (self.dir / "file").write_text("")
        for folder, why in (("/nonexistent", "No such file or directory"),
                            (str(self.dir / "file"), "Not a directory")):
            job = self.sh(1, 'echo "$TORCHELASTIC_ERROR_FILE"', env={"TMPDIR": folder})
            self.assertEqual((job.returncode, job.err), (
                0, f"mgpu-run: cannot create a log folder in TMPDIR={folder}: {why}; "
                   "it is in /tmp\n"))
            self.assertRegex(job.out, r"^/tmp/mgpu_\w{6}/")
            self.assertFalse(pathlib.Path(job.out.strip()).parents[2].exists())
            planned = self.run_job("--dry-run", "--no-python", "true", env={"TMPDIR": folder})
            self.assertIn("/tmp/mgpu_XXXXXX/", planned.out)

    def test_a_log_dir_of_dev_null_writes_no_files(self):
        job = self.sh(1, 'echo "[$TORCHELASTIC_ERROR_FILE]"', "--log-dir", "/dev/null", "-t", "3")
        self.assertEqual(job.out, "[default0]:[]\n")


class Flood(JobTest):
    WRITER = ('import os, sys\n'
              'rank = os.environ["RANK"]; total = int(sys.argv[1])\n'
              'line = (rank * 99 + "\\n").encode(); block = line * 640; done = 0\n'
              'out = os.fdopen(1, "wb", 0)\n'
              'while done < total:\n'
              '    out.write(block[:(total - done)]); done += min(len(block), total - done)\n')

    def test_lines_of_8_ranks_are_never_torn(self):
        total = 12_800_000 // (10 if SLOWER > 1 else 1)
        began = time.monotonic()
        with open(self.dir / "out", "wb") as out:
            job = self.start("-n", 8, self.script(self.WRITER), total, stdout=out)
            self.assertEqual(job.wait(60 * SLOWER), 0)
        took = time.monotonic() - began
        counts = collections.Counter((self.dir / "out").read_bytes().split(b"\n"))
        self.assertEqual(counts.pop(b""), 1)
        self.assertEqual(counts, {str(r).encode() * 99: total // 100 for r in range(8)})
        if SLOWER == 1:
            self.assertGreater(8 * total / took, 40e6, "bytes a second with start and end")

    def test_lines_through_a_pipe_that_is_read_slowly_are_never_torn(self):
        job = self.start("-n", 4, self.script(self.WRITER), 400_000)
        seen = bytearray()
        while True:
            block = os.read(job.stdout.fileno(), 3_001)
            if not block:
                break
            seen += block
            if len(seen) < 200_000:
                time.sleep(0.002)
        self.assertEqual(job.wait(60 * SLOWER), 0)
        counts = collections.Counter(bytes(seen).split(b"\n"))
        self.assertEqual(counts.pop(b""), 1)
        self.assertEqual(counts, {str(r).encode() * 99: 4000 for r in range(4)})

    def test_a_reader_that_does_not_read_blocks_the_rank_but_not_mgpu_run(self):
        job = self.start("-n", 2, self.script(
            self.WRITER.replace("while done", 'open("pid." + rank, "w").write(str(os.getpid()))\n'
                                              'while done')), 50_000_000)
        pids = self.pids_from("pid.*", 2)

        def memory():
            with open(f"/proc/{job.pid}/statm", encoding="ascii") as statm:
                return int(statm.read().split()[1]) * 4096
        time.sleep(0.5)
        before = memory()
        time.sleep(0.5)
        self.assertLess(memory() - before, (1 << 20) * SLOWER)
        if SLOWER == 1:
            self.assertLess(memory(), 12 << 20)
        job.terminate()
        self.assert_all_gone(pids, 5)
        job.stdout.close()
        self.assertEqual(job.wait(10 * SLOWER), 143)

    def test_a_reader_that_never_reads_does_not_delay_the_end_of_the_job(self):
        job = self.start("-n", 1, self.script(self.WRITER + 'open("written", "w").write("x")\n'),
                         300_000)
        self.wait_for_files("written", 1)
        time.sleep(0.3)
        self.assertIsNone(job.poll())
        job.terminate()
        self.assertEqual(job.wait(10 * SLOWER), 0)

    def test_a_closed_stdout_does_not_end_the_job(self):
        job = self.start_sh(2, 'for i in 1 2 3 4 5 6 7 8 9 10; do echo line; sleep 0.03; done; '
                               'echo > done.$RANK; exit 0')
        job.stdout.readline()
        job.stdout.close()
        self.assertEqual(job.wait(20 * SLOWER), 0)
        self.assertEqual(len(list(self.dir.glob("done.*"))), 2)


class FullDisk(JobTest):
    """stdout on a disk that is full; a limit of the file size is the full disk of a regular file."""

    LOST = "mgpu-run: cannot write the ranks' output to stdout: {}; the rest is lost\n"
    COUNT = ("--no-python", "/bin/sh", "-c", "seq 1 30000")

    def test_a_full_device_is_reported_once_and_the_ranks_set_the_status(self):
        with open("/dev/full", "wb") as full:
            job = self.run_job("-n", 2, *self.COUNT, stdout=full)
            failing = self.run_job("-n", 2, "--no-python", "/bin/sh", "-c", "seq 1 30000; exit 7",
                                   stdout=full)
        self.assertEqual((job.returncode, job.err), (0, self.LOST.format("No space left on device")))
        self.assertEqual(failing.returncode, 7)

    def test_a_regular_file_that_cannot_grow_is_reported_once(self):
        def limit_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        with open(self.dir / "out", "wb") as out:
            job = self.run_job("-n", 2, *self.COUNT, stdout=out, preexec_fn=limit_files)
        self.assertEqual((job.returncode, job.err), (0, self.LOST.format("File too large")))
        self.assertEqual((self.dir / "out").stat().st_size, 1 << 16)

    def test_a_full_device_for_both_streams_does_not_end_the_job(self):
        with open("/dev/full", "wb") as full:
            job = self.run_job("-n", 2, *self.COUNT, stdout=full, stderr=full)
        self.assertEqual(job.returncode, 0)

    def end_on_full_disk(self, *args, **changes):
        with open("/dev/full", "wb") as full:
            job = self.start(*args, stdout=full, **changes)
            err = job.communicate(timeout=60 * SLOWER)[1].decode()
        return job.returncode, err

    def test_a_command_that_prints_fails_if_it_cannot(self):
        hosts = self.write("hosts", "localhost\n")
        for args in (("--help",), ("--version",), ("--completion", "bash"), ("devices",), ("doctor",),
                     ("status",), ("status", "--json"), ("--dry-run", "--no-python", "true"),
                     ("--dry-run", "--json", "--no-python", "true"),
                     ("--hostfile", hosts, "--dry-run", "--no-python", "true")):
            with self.subTest(args):
                self.assertEqual(self.end_on_full_disk(*args), (
                    1, "mgpu-run: cannot write to stdout: No space left on device\n"))

    def test_the_check_of_a_recipe_fails_if_it_cannot_print(self):
        trainer = self.write("trainer", "#!/bin/sh\necho plan\n", 0o755)
        recipe = self.write("t.yaml", "task: sft\n")
        env = {"MGPU_TRAIN": trainer}
        lost = self.LOST.format("No space left on device")
        self.assertEqual(self.end_on_full_disk(recipe, "--check", env=env), (1, lost))
        self.assertEqual(self.end_on_full_disk(recipe, env=env), (0, lost))

    def test_a_command_that_prints_to_a_reader_that_left_succeeds(self):
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "wb") as closed:
            job = self.start("--help", stdout=closed)
        self.assertEqual((job.communicate()[1], job.returncode), (b"", 0))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            reader = socket.create_connection(listener.getsockname())
            connection, _ = listener.accept()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reader.close()  # resets the connection
        with connection:
            job = self.start("--help", stdout=connection)
            self.assertEqual((job.communicate()[1], job.returncode), (b"", 0))

    def test_a_reader_that_left_is_not_reported(self):
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "wb") as closed:
            job = self.run_job("-n", 2, *self.COUNT, stdout=closed)
        self.assertEqual((job.returncode, job.err), (0, ""))


class Terminal(JobTest):
    def on_terminal(self, *args):
        master, slave = pty.openpty()
        job = subprocess.Popen([MGPU_RUN, *map(str, args)], cwd=self.dir, stdin=slave, stdout=slave,
                               stderr=slave, env=environment(), start_new_session=True)
        self.started.append(job)
        os.close(slave)
        self.addCleanup(os.close, master)
        return job, master

    def read_until(self, master, needle, limit=10):
        seen = b""
        deadline = time.monotonic() + limit * SLOWER
        while needle not in seen and time.monotonic() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    seen += os.read(master, 65536)
                except OSError:
                    break
        self.assertIn(needle, seen)
        return seen

    def test_ranks_get_a_terminal_when_mgpu_run_has_one(self):
        job, master = self.on_terminal("-n", 2, self.script(
            'import os, sys\nprint("tty", sys.stdout.isatty(), sys.stderr.isatty())\n'))
        seen = self.read_until(master, b"tty True True\r\ntty True True\r\n")
        self.assertNotIn(b"\r\r\n", seen)
        self.assertEqual(job.wait(10 * SLOWER), 0)
        self.assertEqual(self.run_job("-n", 1, self.script(
            'import sys\nprint(sys.stdout.isatty())\n')).out, "False\n")

    def test_an_input_prompt_is_shown_and_rank_0_reads_the_answer(self):
        job, master = self.on_terminal("-n", 2, self.script(
            'import os\nif os.environ["RANK"] == "0": print("got", input("name? "))\n'))
        self.read_until(master, b"name? ")
        os.write(master, b"ada\n")
        self.read_until(master, b"got ada")
        self.assertEqual(job.wait(10 * SLOWER), 0)

    def test_a_progress_bar_is_shown_without_delay(self):
        job, master = self.on_terminal("-n", 1, self.script(
            'import sys, time\nfor i in range(3):\n    sys.stderr.write(f"\\rstep {i}")\n'
            '    sys.stderr.flush(); time.sleep(0.05)\ntime.sleep(20)\n'))
        self.read_until(master, b"\rstep 2")
        job.terminate()
        self.assertEqual(job.wait(10 * SLOWER), 143)

    def test_sigtstp_and_sigcont_work_on_a_terminal(self):
        job, master = self.on_terminal("-n", 1, "--no-python", "/bin/sh", "-c",
                                       'echo $$ > pid.0; exec sleep 300')
        (pid,) = self.pids_from("pid.0", 1)
        os.kill(job.pid, signal.SIGTSTP)
        for stopped in (pid, job.pid):  # the rank first: a SIGCONT before the second has no effect
            stat = pathlib.Path(f"/proc/{stopped}/stat")
            until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T")
        os.kill(job.pid, signal.SIGCONT)
        os.kill(job.pid, signal.SIGTERM)
        self.assertEqual(job.wait(10 * SLOWER), 143)


class Stdin(JobTest):
    def test_rank_0_inherits_stdin_and_the_others_read_end_of_file(self):
        job = self.start_sh(3, 'echo "$RANK:$(cat)"', stdin=subprocess.PIPE)
        out, _ = job.communicate(b"told", timeout=10 * SLOWER)
        self.assertEqual(sorted(out.decode().splitlines()), ["0:told", "1:", "2:"])


if __name__ == "__main__":
    unittest.main()
