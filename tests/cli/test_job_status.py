"""mgpu-run status of single-node jobs, which have no leader."""

import json
import unittest

from harness import JobTest, MGPU_RUN, until

WAIT = "echo $$ > pid.$RANK; while :; do sleep 0.02; done"


class SingleNode(JobTest):
    def setUp(self):
        super().setUp()
        (self.dir / "run").mkdir(mode=0o700)
        self.own = {"XDG_RUNTIME_DIR": str(self.dir / "run")}

    def status(self, *arguments):
        done = self.start("status", *arguments, env=self.own)
        out, err = done.communicate(timeout=60)
        self.assertEqual((done.returncode, err), (0, b""))
        return out.decode()

    def listed(self, *arguments):
        return json.loads(self.status("--json", *arguments))

    def begin(self, *options, text=WAIT):
        return self.start_sh(2, text, *options, env=self.own)

    def notes(self):
        return list((self.dir / "run" / "mgpu-run").glob("*.status"))

    def test_without_a_job_there_is_a_line(self):
        self.assertEqual(self.status(), "no job of this user is running on this machine\n")
        self.assertEqual(self.listed(), [])

    def test_a_running_job_has_its_state_and_ranks(self):
        job = self.begin("--max-restarts", 3)
        self.pids_from("pid.*", 2)
        status, = until(self.listed, what="the note")
        self.assertGreaterEqual(status.pop("for_s"), 0)
        node, = status.pop("nodes")
        self.assertGreaterEqual(node.pop("for_s"), 0)
        self.assertEqual((node.pop("ranks"), node.pop("state")), ([0, 1], "running"))
        self.assertEqual({name: status[name] for name in (
            "job", "target", "state", "round", "restarts", "max_restarts", "max_nodes")},
            {"job": "none", "target": "/bin/sh", "state": "running", "round": 0, "restarts": 0,
             "max_restarts": 3, "max_nodes": 1})
        text = self.status()
        self.assertIn("none (/bin/sh): running for ", text)
        self.assertIn("0-1", text)
        job.terminate()
        job.wait(10)
        self.assertEqual(self.notes(), [])
        self.assertEqual(self.listed(), [])

    def test_a_running_job_shows_the_memory_of_its_ranks(self):
        job = self.begin()
        self.pids_from("pid.*", 2)

        def memory():
            return [node["memory"] for job in self.listed() for node in job["nodes"]
                    if "memory" in node]
        sample, = until(memory, what="the first sample")
        self.assertEqual([rank["rank"] for rank in sample["ranks"]], [0, 1])
        for rank in sample["ranks"]:
            self.assertGreater(rank["bytes"], 100_000)
        self.assertGreater(sample["host"]["used"], 0)
        self.assertGreater(sample["host"]["total"], sample["host"]["used"])
        self.assertEqual(sample["gpus"], [])
        text = self.status()
        self.assertRegex(text, r"host memory: [\d.]+ of [\d.]+ GiB\n")
        self.assertRegex(text, r"rank 1: [\d.]+ MiB")
        job.terminate()
        job.wait(10)

    def test_jobs_are_found_by_their_id(self):
        for name in ("a", "b.c"):
            self.begin("--rdzv-id", name, text=f"echo $$ > pid.{name}.$RANK; exec sleep 1000")
        self.pids_from("pid.*", 4)
        until(lambda: len(self.notes()) == 2, what="two notes")
        self.assertEqual([status["job"] for status in self.listed()], ["a", "b.c"])
        self.assertEqual(self.listed("b.c")["job"], "b.c")
        other = self.start("status", "c", env=self.own)
        _, err = other.communicate(timeout=60)
        self.assertEqual(other.returncode, 2)
        self.assertIn(b"status c: this user has no such job on this machine", err)

    def test_a_restart_and_the_wait_before_it_are_shown(self):
        job = self.begin("--max-restarts", 2, "--retry-delay", 1, text=(
            "test $TORCHELASTIC_RESTART_COUNT = 2 || exit 1; echo $$ > pid.$RANK; exec sleep 1000"))
        until(lambda: [status["state"] for status in self.listed()] == ["waiting to restart"],
              what="the wait")
        self.pids_from("pid.*", 2)
        status, = until(lambda: [s for s in self.listed() if s["state"] == "running"],
                        what="the restart")
        self.assertEqual((status["restarts"], status["round"]), (2, 2))
        job.terminate()
        job.wait(10)

    def test_a_job_that_was_killed_is_not_listed(self):
        job = self.begin()
        until(self.notes, what="the note")
        job.kill()
        job.wait()
        self.assertEqual(len(self.notes()), 1)
        self.assertEqual(self.listed(), [])


if __name__ == "__main__":
    unittest.main()
