"""What a soak reads, chooses and judges, without processes."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import soak
import summary
from progress import Progress

SETUP = soak.Setup("quickstart", 4, "mgpu-run", 7, pathlib.Path("/nowhere"))


def row(**changes):
    return {"number": 3, "fault": "kill", "rank": 1, "expected": "killed", "found": "killed",
            "found_rank": 1, "launcher": "mgpu-run", "run": "a", "lives": 1, "seconds": 1.0,
            "orphans": 0, "lost_steps": 0, "changed_losses": 0, "missing_steps": 0,
            "sizes": [{"fds": 30, "private": 500, "hwm": 5100}], **changes}


def failure(kind, rank):
    return {"first_failure": {"rank": rank}, "cause": {"kind": kind, "text": "why"}}


class Choice(unittest.TestCase):
    def test_the_seed_and_the_number_choose_the_same_fault_again(self):
        names = ["a", "b", "c", "d"]
        first = [soak.chosen(SETUP, number, names)[:2] for number in range(20)]
        self.assertEqual(first, [soak.chosen(SETUP, number, names)[:2] for number in range(20)])
        self.assertTrue(all(0 <= rank < 4 for _, rank in first))

    def test_every_fault_comes_once_before_one_comes_again(self):
        names = ["a", "b", "c", "d"]
        for deck in range(5):
            self.assertEqual(sorted(soak.chosen(SETUP, 4 * deck + card, names)[0]
                                    for card in range(4)), names)


class Continuation(unittest.TestCase):
    def test_a_soak_goes_on_after_the_faults_of_its_state_file(self):
        """All of them are judged: nothing is started, and the tables are printed."""
        with tempfile.TemporaryDirectory() as folder:
            state = pathlib.Path(folder) / "state"
            state.write_text("".join(json.dumps(row(number=number)) + "\n" for number in (1, 0)))
            done = subprocess.run(
                [sys.executable, "-B", soak.HERE / "soak.py", "--faults", "2", "--state", state],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("| **all** | | | 2 (100.0%) | 2 |", done.stdout)


class Lines(unittest.TestCase):
    def read(self, *lines, rounding=0.0):
        progress = Progress(rounding)
        for when, line in enumerate(lines):
            progress.take(line, when)
        return progress

    def test_the_lines_of_both_jobs_are_read(self):
        progress = self.read(
            b"rank 0 of 2 initialized on the CPU, pid 5", b"step 1/60 1%  epoch 0.1  loss 5.5  lr 1",
            b"saved /x/checkpoint-1", b"rank 0 of 2 initialized",
            b"resuming from /x/checkpoint-1 at step 1 of 60", b"step 2/60 loss 4.25")
        self.assertEqual([life.began_at for life in progress.lives], [0, 1])
        self.assertEqual(progress.lives[1].steps, [(2, 5)])
        self.assertEqual((progress.saved, progress.changed, progress.missing), (1, [], []))

    def test_a_step_that_is_not_printed_or_has_another_loss_is_noticed(self):
        progress = self.read(b"rank 0 of 2 initialized", b"step 1/60 loss 5.5",
                             b"step 3/60 loss 4.5", b"rank 0 of 2 initialized",
                             b"step 1/60 loss 5.6")
        self.assertEqual((progress.missing, progress.changed), ([3], [1]))

    def test_losses_may_differ_by_the_rounding_of_sums_in_another_order(self):
        lines = [b"rank 0 of 2 initialized", b"step 1/60 loss 5.500000", b"rank 0 of 2 initialized",
                 b"step 1/60 loss 5.500001"]
        self.assertEqual(self.read(*lines).changed, [1])
        self.assertEqual(self.read(*lines, rounding=1e-4).changed, [])
        self.assertEqual(self.read(*lines, b"rank 0 of 2 initialized", b"step 1/60 loss 5.51",
                                   rounding=1e-4).changed, [1])


class Causes(unittest.TestCase):
    def test_the_cause_is_that_of_the_attempt_which_the_fault_ended(self):
        failures = [failure("signal", 0), failure("killed", 1)]
        found = summary.with_cause(row(restarts=1), failures)
        self.assertEqual((found["found"], found["found_rank"]), ("killed", 1))
        self.assertEqual(summary.with_cause(row(restarts=1, lives=0), failures)["found"], "none")

    def test_a_wrong_kind_and_a_wrong_rank_are_wrong(self):
        self.assertTrue(summary.is_right(row()))
        self.assertFalse(summary.is_right(row(found="exit_status")))
        self.assertFalse(summary.is_right(row(found_rank=0)))
        self.assertFalse(summary.is_right(row(trouble="it ended")))

    def test_every_rank_may_report_that_the_disk_is_full(self):
        self.assertTrue(summary.is_right(row(expected="disk_full", found="disk_full",
                                             found_rank=0)))


class Rules(unittest.TestCase):
    def test_a_soak_without_faults_breaks_no_rule(self):
        self.assertEqual(summary.broken_rules([row() for _ in range(6)]), [])

    def test_each_rule_is_checked(self):
        for changes in ({"orphans": 1}, {"lost_steps": 2}, {"changed_losses": 1},
                        {"missing_steps": 1}, {"lost_lines": 1}, {"trouble": "it ended"},
                        {"found": "signal"}, {"sizes": [{"fds": 30, "private": 1, "hwm": 1 << 20}]}):
            with self.subTest(changes=changes):
                self.assertNotEqual(summary.broken_rules([row(**changes)]), [])

    def test_a_launcher_that_grows_is_noticed(self):
        for size, step in (("fds", 1), ("private", 30)):
            rows = [row(sizes=[{"fds": 30, "private": 500, "hwm": 6000, size: 5000 + step * number}])
                    for number in range(60)]
            with self.subTest(size=size):
                self.assertEqual(len(summary.broken_rules(rows)), 1)

    def test_a_state_of_an_earlier_soak_has_the_resident_memory(self):
        rows = [row(sizes=[{"fds": 30, "rss": 5000 + 30 * number, "hwm": 8000}]) for number in range(60)]
        self.assertEqual(len(summary.broken_rules(rows)), 1)

    def test_one_wrong_cause_in_a_hundred_is_allowed(self):
        rows = [row() for _ in range(99)] + [row(found="signal")]
        self.assertEqual(summary.broken_rules(rows), [])
        self.assertEqual(len(summary.broken_rules(rows[50:])), 2)


class Tables(unittest.TestCase):
    def test_they_have_a_line_for_each_fault_and_launcher(self):
        text = summary.tables([row(seconds=second) for second in (1.0, 2.0, 4.0)]
                              + [row(launcher="torchrun", seconds=9.0)])
        self.assertIn("| mgpu-run | kill | 3 | 2.00 | 4.00 | 4.00 |", text)
        self.assertIn("| torchrun | **all** | 1 | 9.00 | 9.00 | 9.00 |", text)
        self.assertIn("| kill | killed | killed | yes | 3 |", text)


if __name__ == "__main__":
    unittest.main()
