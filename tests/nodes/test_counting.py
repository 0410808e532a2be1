"""Tests of the counting worker and of counts.py: they must detect every kind of error."""

import json
import os
import shutil
import signal
import sys
import unittest

import counts
from nodes_job import PROGRAMS, JobTest, until


class CountingJob(JobTest):
    def setUp(self):
        super().setUp()
        self.counts = self.dir / "counts"
        self.counts.mkdir()

    def start_counting(self, ranks, *options):
        return self.start("-n", ranks, *options, "--no-python", sys.executable, "-S", "-E",
                          PROGRAMS / "counting.py", self.counts, 0.002)

    def world(self, after=None, steps=5):
        def newest():
            found = counts.worlds(self.counts)
            return found and found[-1].steps >= steps and (
                after is None or found[-1].name != after.name) and found[-1]
        return until(newest, 20, "a world")

    def end(self, job):
        (self.counts / "stop").touch()
        self.assertEqual(job.wait(20), 0)


class Worker(CountingJob):
    def test_workers_count_in_lock_step_until_they_are_stopped(self):
        job = self.start_counting(3)
        self.world()
        self.end(job)
        (world,) = counts.worlds(self.counts)
        self.assertEqual((world.size, world.restarts, len(world.lives)), (3, 0, 3))
        self.assertTrue(all(life.ended_well for life in world.lives))
        self.assertEqual(counts.checkpoint(self.counts)["step"], world.steps)
        self.assertEqual(counts.wrong(self.counts), [])

    def test_counting_continues_from_the_checkpoint_after_a_restart(self):
        job = self.start_counting(3, "--max-restarts", 2)
        first = self.world()
        os.kill(first.lives[0].pid, signal.SIGKILL)
        second = self.world(after=first)
        (self.counts / "fail.new").write_text("exit 7")
        (self.counts / "fail.new").rename(self.counts / "fail.1")
        third = self.world(after=second)
        self.end(job)
        self.assertEqual([world.restarts for world in counts.worlds(self.counts)], [0, 1, 2])
        self.assertGreater(third.lives[0].start, second.lives[0].start)
        self.assertEqual(counts.wrong(self.counts), [])

    def test_a_worker_that_loses_the_store_waits_to_be_stopped_or_fails(self):
        for mode, expected in (("wait", 128 + signal.SIGTERM), ("fail", 1)):
            with self.subTest(mode):
                server = self.write("server.py", "import socket\ns = socket.create_server"
                                    "(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=True)\n"
                                    "s.accept()[0].recv(1)\n")
                store = self.start(server, program=sys.executable)
                port = int(store.stdout.readline())
                worker = self.start("-S", "-E", PROGRAMS / "counting.py", self.counts,
                                    program=sys.executable,
                                    env={"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                                         "MASTER_PORT": str(port), "COUNTING_ON_LOSS": mode})
                self.assertIn(b"lost the store", worker.stderr.readline())
                if mode == "wait":
                    worker.terminate()
                    expected = -signal.SIGTERM
                self.assertEqual(worker.wait(10), expected)

    def test_workers_detect_a_second_world(self):
        jobs = [self.start_counting(2) for _ in range(2)]
        until(lambda: list(self.counts.glob("violation.*")), 20, "a violation")
        for job in jobs:
            job.terminate()
            job.wait()
        self.assertTrue(counts.wrong(self.counts))

    def test_workers_detect_a_second_world_that_is_frozen(self):
        first = self.start_counting(1)
        frozen = self.world()
        first.send_signal(signal.SIGSTOP)
        os.kill(frozen.lives[0].pid, signal.SIGSTOP)
        second = self.start_counting(1)
        self.assertNotEqual(second.wait(20), 0)
        self.assertTrue(list(self.counts.glob("violation.*")))
        os.kill(frozen.lives[0].pid, signal.SIGKILL)
        first.send_signal(signal.SIGCONT)
        first.wait(20)


class Findings(CountingJob):
    """Notes of two correct worlds; each test then makes one thing wrong."""

    def setUp(self):
        super().setUp()
        self.lives = [self.life(world, rank) for world in range(2) for rank in range(2)]
        self.saved = {"step": 7, "worlds": [["w0", 0, 2], ["w1", 3, 6]]}

    def life(self, world, rank):
        """World 0 does steps 0 to 3 and commits 0 to 2; world 1 does and commits 3 to 6."""
        start, t = 3 * world, 100.0 + 10 * world
        return [
            {"t": t, "host": f"host{rank}", "pid": 10 * world + rank, "agent": 7 + rank,
             "rank": rank, "size": 2,
             "group_rank": str(rank), "group_world_size": "2", "torchelastic_run_id": "job",
             "torchelastic_restart_count": str(world)},
            {"t": t + 1, "world": f"w{world}", "start": start},
            *({"t": t + 2 + n, "step": start + n} for n in range(4))]

    def wrong(self):
        folder = self.dir / "made up"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for number, lines in enumerate(self.lives):
            (folder / f"log.{number}").write_text("".join(json.dumps(line) + "\n"
                                                          for line in lines))
        (folder / "checkpoint.json").write_text(json.dumps(self.saved))
        return "\n".join(counts.wrong(folder))

    def test_correct_notes_have_no_findings(self):
        self.assertEqual(self.wrong(), "")

    def test_a_lost_step_is_found(self):
        self.saved["worlds"][1][1] = 4
        for life in self.lives[2:]:
            life[1]["start"] = 4
            del life[2]
        self.assertIn("began at step 4 instead of 3", self.wrong())

    def test_a_repeated_step_is_found(self):
        self.saved["worlds"][1][1] = 2
        for life in self.lives[2:]:
            life[1]["start"] = 2
            life.insert(2, {"t": 111.5, "step": 2})
        self.assertIn("began at step 2 instead of 3", self.wrong())

    def test_two_worlds_at_the_same_time_are_found(self):
        self.lives[1][-1]["t"] = 110.5
        self.assertIn("at the same time", self.wrong())

    def test_a_gap_in_the_steps_of_a_rank_is_found(self):
        del self.lives[0][3]
        self.assertIn("gaps", self.wrong())

    def test_ranks_that_are_not_in_step_are_found(self):
        del self.lives[2][-2:]
        self.assertIn("not in step", self.wrong())

    def test_a_commit_before_all_ranks_did_the_step_is_found(self):
        del self.lives[2][-1]
        self.assertIn("not all of its ranks did it", self.wrong())

    def test_steps_that_were_not_committed_are_found(self):
        self.saved = {"step": 5, "worlds": [["w0", 0, 2], ["w1", 3, 4]]}
        self.assertIn("only 4 is saved", self.wrong())

    def test_ranks_that_disagree_are_found(self):
        for key, value in (("size", 3), ("torchelastic_restart_count", "5"),
                           ("group_world_size", "3"), ("rank", 0)):
            with self.subTest(key):
                self.lives[1] = self.life(0, 1)
                self.lives[1][0][key] = value
                self.assertIn("w0", self.wrong())

    def test_a_missing_rank_is_found(self):
        del self.lives[3]
        self.assertIn("1 ranks did what needs 2", self.wrong())

    def test_a_decreasing_restart_count_is_found(self):
        for life in self.lives[:2]:
            life[0]["torchelastic_restart_count"] = "3"
        self.assertIn("fell from 3 to 1", self.wrong())
        self.lives[2][0]["agent"] = 17
        self.assertIn("fell from 3 to 1", self.wrong())

    def test_the_restart_count_may_start_again_when_all_agents_are_new(self):
        for life in self.lives[:2]:
            life[0]["torchelastic_restart_count"] = "3"
        for life in self.lives[2:]:
            life[0]["agent"] += 10
        self.assertEqual(self.wrong(), "")

    def test_a_process_that_ran_beside_a_world_without_joining_is_found(self):
        self.lives.append(self.life(1, 0)[:1])
        self.lives[-1][0]["t"] = 99.0
        self.assertEqual(self.wrong(), "")
        self.lives[-1][0]["t"] = 102.0
        self.assertIn("beside the world w0", self.wrong())

    def test_a_checkpoint_that_went_back_is_found(self):
        self.saved["worlds"].append(["w0", 7, 7])
        self.assertIn("then the first again", self.wrong())

    def test_a_world_without_notes_is_found(self):
        self.saved["worlds"].append(["w2", 7, 7])
        self.saved["step"] = 8
        self.assertIn("nobody noted", self.wrong())


if __name__ == "__main__":
    unittest.main()
