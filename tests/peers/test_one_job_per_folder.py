"""Two jobs with the same output folder."""

import re
import unittest

from test_replacement import Replacing


class OneJobPerFolder(Replacing):
    KEYS = dict(save_steps=5, save_total_limit=2)

    def start_long(self, name, *options):
        job = self.start_training(2, out=name, options=options, **{**self.KEYS, "max_steps": 100000})
        self.wait_for_step(job, 6)
        return job

    def test_a_second_job_is_refused_with_one_line_and_changes_nothing(self):
        first = self.start_long("shared")
        run = self.end(self.start_training(2, out="shared", overwrite_output_dir=True, **self.KEYS))
        self.assertEqual(run.status, 2, run.err)
        lines = [line for line in run.err.splitlines() if line.startswith("mgpu-train:")]
        self.assertEqual(len(lines), 1, run.err)
        self.assertRegex(lines[0], re.escape(f"output_dir: {first.folder} is in use by process ") +
                         r"\d+ on \S+; wait until that job has ended, or use another folder")
        self.assertTrue(list(first.folder.glob("checkpoint-*")))
        self.assertEqual(list(first.folder.glob("metrics.*")), [first.folder / "metrics.jsonl"])
        # A job that was killed leaves the file, but no lock.
        self.kill_all(first)
        self.assertTrue((first.folder / ".lock").exists())
        run = self.train(2, out="shared", overwrite_output_dir=True, **self.KEYS)
        self.assertFalse((run.folder / ".lock").exists())

    def test_a_restarted_job_keeps_its_folder(self):
        job = self.start_training(2, out="kept", options=("--max-restarts", 2),
                                  **{**self.KEYS, "max_steps": 40})
        for rank in (0, 1):
            self.wait_for_step(job, 6 + 10 * rank)
            self.kill(job, rank)
        self.assertEqual(self.end(job).status, 0)


if __name__ == "__main__":
    unittest.main()
