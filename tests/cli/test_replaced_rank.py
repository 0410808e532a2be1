"""What mgpu-run --replace-ranks does when a rank is killed, with programs that speak its protocol."""

import re
import textwrap
import unittest

from harness import JobTest

# Rank 0 says that it can go on; rank 1 then kills itself, unless it is a replacement.
RANKS = textwrap.dedent('''
    import json, os, pathlib, signal, socket, sys, time
    rank, replacement = os.environ["RANK"], os.environ.get("MGPU_REPLACEMENT")
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    ready = pathlib.Path("ready" + attempt)
    done = pathlib.Path("done" + attempt)
    def wait_for(path):
        while not path.exists(): time.sleep(0.005)
    def talk(**line):
        launcher.sendall(json.dumps({"rank": int(rank), **line}).encode() + b"\\n")
    launcher = socket.socket(socket.AF_UNIX)
    launcher.connect(os.environ["MGPU_WORKER_SOCKET"].replace("@", "\\0", 1))
    requests = launcher.makefile()
    print(f"rank {rank} attempt {attempt} replacement {replacement}", flush=True)
''')


class ReplacedRank(JobTest):
    def run_ranks(self, text, *options):
        return self.run_job("-n", 2, "--max-restarts", 2, "--replace-ranks", *options,
                            self.script(RANKS + textwrap.dedent(text)))

    def lines(self, job):
        return sorted(re.findall(r"rank \d attempt \d replacement \w+", job.out))

    def test_the_others_go_on_with_a_new_process(self):
        job = self.run_ranks('''
            if rank == "0":
                talk(replaces=True)
                ready.touch()
                assert json.loads(requests.readline()) == {"replace": 1}
                done.touch()
            elif replacement == "0":
                wait_for(ready)
                os.kill(os.getpid(), signal.SIGKILL)
            wait_for(done)
        ''', "--log-dir", self.dir / "logs", "--tee", "3")
        self.assertEqual(job.returncode, 0, job.err)
        self.assertEqual(self.lines(job), ["rank 0 attempt 0 replacement 0",
                                           "rank 1 attempt 0 replacement 0",
                                           "rank 1 attempt 0 replacement 1"])
        self.assertIn("(signal 9); starting a new process in its place (counts as restart 1 of 2)",
                      job.err)
        self.assertEqual(len(job.report["attempts"]), 1)
        log, = (self.dir / "logs").glob("*/attempt_0/1/stdout.log")
        self.assertEqual(log.read_text().count("rank 1 attempt 0"), 2)

    def test_a_program_that_does_not_take_part_is_restarted(self):
        job = self.run_ranks('''
            if attempt == "0":
                if rank == "1": os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
        ''')
        self.assertEqual(job.returncode, 0, job.err)
        self.assertIn("restarting all ranks (restart 1 of 2)", job.err)
        self.assertNotIn("in its place", job.err)

    def test_a_rank_that_exits_with_an_error_is_not_replaced(self):
        job = self.run_ranks('''
            if rank == "0" and attempt == "0":
                talk(replaces=True)
                ready.touch()
                time.sleep(60)
            elif attempt == "0":
                wait_for(ready)
                sys.exit(3)
        ''')
        self.assertEqual(job.returncode, 0, job.err)
        self.assertIn("restarting all ranks", job.err)
        self.assertNotIn("in its place", job.err)

    def test_a_new_process_that_is_killed_before_the_others_are_ready_restarts_all(self):
        job = self.run_ranks('''
            if attempt == "0" and rank == "0":
                talk(replaces=True)
                ready.touch()
                time.sleep(60)
            elif attempt == "0":
                wait_for(ready)
                os.kill(os.getpid(), signal.SIGKILL)
        ''')
        self.assertEqual(job.returncode, 0, job.err)
        self.assertEqual(job.err.count("in its place"), 1)
        self.assertIn("restarting all ranks", job.err)
        self.assertEqual(self.lines(job)[-1], "rank 1 attempt 1 replacement 0")

    def test_the_job_ends_when_replacements_have_used_up_the_restarts(self):
        job = self.run_ranks('''
            if rank == "0":
                for number in (1, 2, 3):
                    talk(replaces=True)
                    pathlib.Path(f"ready{number}").touch()
                    assert json.loads(requests.readline()) == {"replace": number}
            else:
                wait_for(pathlib.Path(f"ready{int(replacement) + 1}"))
                os.kill(os.getpid(), signal.SIGKILL)
        ''')
        self.assertEqual(job.returncode, 137, job.err)
        self.assertEqual(job.err.count("in its place"), 2)
        self.assertIn("counts as restart 2 of 2", job.err)
        self.assertIn("attempt 1 of 3, after 2 replacements (exit status 137)", job.err)
        self.assertNotIn("restarting all ranks", job.err)
        self.assertEqual([end.get("replaced", False) for end in job.report["attempts"][0]["ranks"]],
                         [True, True, False, False])

    # Rank 1 is killed when rank 0 is ready to go on; what the new process then does is the text.
    def lose_rank_1(self, text, *options):
        return self.run_ranks('''
            if rank == "0" and attempt == "0":
                talk(replaces=True)
                ready.touch()
                requests.readline()
            elif attempt == "0" and replacement == "0":
                wait_for(ready)
                os.kill(os.getpid(), signal.SIGKILL)
        ''' + textwrap.indent(textwrap.dedent(text), " " * 12), *options)

    def test_the_report_has_the_cause_of_the_loss(self):
        job = self.lose_rank_1("")
        self.assertEqual(job.returncode, 0, job.err)
        lost = job.report["attempts"][0]["ranks"][0]
        self.assertEqual((lost["rank"], lost["replaced"]), (1, True))
        self.assertIn(lost["cause"]["kind"], ("killed", "host_oom_guess"))

    def test_a_policy_that_the_user_has_chosen_goes_before_a_replacement(self):
        for policy, status in ("give_up", 137), ("restart_changed", 0):
            with self.subTest(policy):
                job = self.lose_rank_1("", "--on-failure", f"killed={policy}",
                                       "--on-failure", f"host_oom_guess={policy}")
                self.assertEqual(job.returncode, status, job.err)
                self.assertNotIn("in its place", job.err)
                self.assertEqual("restarting all ranks" in job.err, policy != "give_up")

    def test_a_rank_that_exceeded_its_memory_is_not_replaced(self):
        job = self.run_ranks('''
            if rank == "0" and attempt == "0":
                talk(replaces=True)
                ready.touch()
                requests.readline()
                time.sleep(60)
            elif attempt == "0":
                wait_for(ready)
                too_much = bytearray(400 << 20)
                time.sleep(60)
        ''', "--worker-memory", "200MB", "--grace", 1)
        self.assertEqual(job.returncode, 0, job.err)
        self.assertEqual(job.report["attempts"][0]["cause"]["kind"], "host_oom")
        self.assertNotIn("in its place", job.err)

    def test_the_limit_of_memory_applies_to_the_new_process_too(self):
        job = self.lose_rank_1('''
            elif attempt == "0":
                too_much = bytearray(400 << 20)
                time.sleep(60)
        ''', "--worker-memory", "200MB", "--grace", 1)
        self.assertEqual(job.returncode, 0, job.err)
        first = job.report["attempts"][0]
        self.assertEqual((first["cause"]["kind"], first["root_rank"]), ("host_oom", 1))
        self.assertEqual([(end["rank"], end["role"]) for end in first["ranks"] if end["signal"]],
                         [(1, "replaced"), (1, "root")])
        self.assertEqual(job.err.count("in its place"), 1)
        self.assertIn("restarting all ranks (restart 2 of 2)", job.err)

    def test_replacements_after_new_steps_do_not_count_if_progress_renews_restarts(self):
        job = self.run_ranks('''
            if rank == "0":
                for number in (1, 2, 3):
                    talk(step=number, replaces=True)
                    pathlib.Path(f"ready{number}").touch()
                    assert json.loads(requests.readline()) == {"replace": number}
            elif replacement != "3":
                wait_for(pathlib.Path(f"ready{int(replacement) + 1}"))
                os.kill(os.getpid(), signal.SIGKILL)
        ''', "--max-restarts", "1/progress")
        self.assertEqual(job.returncode, 0, job.err)
        self.assertEqual(re.findall(r"in its place \((.*)\)", job.err),
                         ["after step 1", "after step 2", "after step 3"])

    def test_ranks_that_wait_for_the_new_process_do_not_hang(self):
        job = self.run_ranks('''
            step = 0
            while step < 4:
                step += 1
                talk(step=step)
            if rank == "0":
                talk(replaces=True)
                ready.touch()
                requests.readline()
                wait_for(done)
                talk(replaces=True)
            elif replacement == "0":
                wait_for(ready)
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                time.sleep(1.5)  # longer than the limit
                talk(replaces=True)
                done.touch()
        ''', "--hang-timeout", 1)
        self.assertEqual(job.returncode, 0, job.err)
        self.assertIn("in its place", job.err)
        self.assertNotIn("hang", job.err)

    def test_without_the_option_nothing_is_offered(self):
        job = self.run_job("-n", 2, self.script(RANKS))
        self.assertEqual(job.returncode, 0, job.err)
        self.assertEqual(self.lines(job), ["rank 0 attempt 0 replacement None",
                                           "rank 1 attempt 0 replacement None"])


if __name__ == "__main__":
    unittest.main()
