"""Wall clocks that disagree or step by hours: no decision of mgpu-run depends on them. But the time
in which a machine sleeps counts."""

import datetime
import json
import os
import pathlib
import random
import re
import struct
import sys
import threading
import time
import unittest

import netns
from nodes_job import PROGRAMS, alive, slowly, until
from test_loss import Loss

BUILD = pathlib.Path(os.environ.get("MGPU_BUILD") or
                     pathlib.Path(__file__).resolve().parents[2] / "build")
LIBRARY = BUILD / "lib" / "libstepped_clock.so"
HOUR = 3600


class Stepping:
    """A context in which each clock steps back and forth by an hour, independently."""

    def __init__(self, clocks):
        self._clocks, self._over = clocks, threading.Event()
        self._thread = threading.Thread(target=self._step)
        self.steps = 0

    def _step(self):
        while not self._over.wait(0.05):
            for clock in self._clocks:
                step_clock(clock, random.choice([-HOUR, 0, HOUR]))
            self.steps += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def step_clock(path, seconds):
    with open(path, "r+b", buffering=0) as file:
        file.write(struct.pack("=q", seconds))


class WallClocks(Loss):
    """The wall clock of each host is ours plus the seconds in its file."""

    def setUp(self):
        super().setUp()
        self.assertTrue(LIBRARY.exists(), f"{LIBRARY} is not built")
        self.wall = [self.dir / f"clock{host}" for host in range(self.hosts)]
        for path in self.wall:
            path.write_bytes(struct.pack("=q", 0))

    def launch(self, host, *args, env=None, **kwargs):
        return super().launch(host, *args, env={
            "LD_PRELOAD": str(LIBRARY), "STEPPED_CLOCK": str(self.wall[host]), **(env or {})},
            **kwargs)

    def set_clocks(self, *seconds):
        for path, ahead in zip(self.wall, seconds):
            step_clock(path, ahead)


class Sleep(WallClocks):
    """CLOCK_BOOTTIME goes on while a machine sleeps, CLOCK_MONOTONIC does not."""

    def sleep_for_an_hour(self, host, world):
        with open(self.wall[host], "r+b", buffering=0) as file:
            file.write(struct.pack("=qq", 0, HOUR))
        until(slowly(lambda: not any(alive(life.pid) for life in world.lives
                                     if life.host == f"host{host}")), 20, "the end of its worker")

    def test_a_node_whose_machine_has_slept_for_an_hour_does_not_continue_its_old_round(self):
        agents, world = self.three()
        self.sleep_for_an_hour(2, world)
        self.world(3, after=world)
        self.assertIn("lost the leader", agents[2].err)
        self.end_well(agents)

    def test_ranks_that_the_guard_kills_after_the_sleep_are_not_reported_as_failed(self):
        self.keep_alive = 20.0  # the guard notices the sleep seconds before the agent does
        agents, world = self.three()
        self.sleep_for_an_hour(2, world)
        self.world(3, after=world)
        self.assertIn("lost the leader", agents[2].err)
        self.assertNotIn("SIGKILL", "".join(agent.err for agent in agents))
        self.end_well(agents)


class Apart(WallClocks):
    def test_nodes_with_clocks_an_hour_apart_join_run_restart_and_survive_a_loss(self):
        self.set_clocks(0, HOUR, -HOUR)
        agents = [self.agent(host, "2:3", "--max-restarts", 1) for host in range(3)]
        world = self.world(3)
        self.runs_on(agents, world)
        self.break_rank(1)
        world = self.world(3, after=world)
        self.assertEqual(world.restarts, 1)
        agents[2].kill()
        self.without(2, world)
        self.end_well(agents[:2])


class Steps(WallClocks):
    def test_clocks_that_step_by_an_hour_cause_no_eviction_and_no_delay(self):
        with Stepping(self.wall) as stepping:
            agents = [self.agent(host, "2:3", "--max-restarts", 1) for host in range(3)]
            world = self.world(3)
            before = stepping.steps
            self.runs_on(agents, world)
            self.assertGreater(stepping.steps, before + 20)
            self.break_rank(1)
            world = self.world(3, after=world)
            self.assertEqual(world.restarts, 1)
            self.net[2].cut()
            self.without(2, world)
            self.net[2].heal()
            self.world(3, after=self.worlds()[-1])
            self.end_well(agents)

    def test_a_clock_step_does_not_end_the_wait_for_nodes(self):
        waiting = [self.agent(0, 3), self.agent(1, 3)]
        until(slowly(lambda: self.connected(1)), 20, "a connection")
        for ahead in (HOUR, -HOUR, 0):
            self.set_clocks(ahead, ahead)
            time.sleep(self.keep_alive)  # the time between the steps
            self.assertTrue(all(agent.running for agent in waiting))
        self.set_clocks(HOUR, -HOUR)
        agents = [*waiting, self.agent(2, 3)]
        self.world(3)
        self.end_well(agents)


class Causes(WallClocks):
    """A rank fails, and then one on another host because of it; the first wall clock has just gone
    from an hour behind to an hour ahead."""

    keep_alive = 2.0
    slow = 0.2  # seconds by which the report of the first failure is delayed

    def fail_in_turn(self, first, second):
        """The output of the agents of a job in which one rank fails after another."""
        for name in ("go", *(f"up.{rank}" for rank in range(3))):
            (self.dir / name).unlink(missing_ok=True)
        agents = [self.agent(host, None, "--node-rank", host, program=[
            "--no-python", sys.executable, "-S", "-E", PROGRAMS / "falling.py", self.dir, first,
            second]) for host in range(3)]
        until(slowly(lambda: len(list(self.dir.glob("up.*"))) == 3), 30, "the ranks")
        # The offsets of the monotonic clocks are known after some heartbeats in both directions.
        time.sleep(2 * self.keep_alive)
        step_clock(self.wall[first], HOUR)
        (self.dir / "go").touch()
        self.assertEqual([agent.wait() for agent in agents], [1] * 3)
        self.assert_nothing_left()
        return [agent.err for agent in agents]

    def error_time(self, rank):
        """The time at which that rank failed, by its own wall clock."""
        content = json.loads((self.dir / f"error.{rank}").read_text())
        return int(content["message"]["extraInfo"]["timestamp"])

    def check_first_is_named(self, first, second):
        step_clock(self.wall[first], -HOUR)
        if netns.can_delay():
            self.net[first].delay(self.slow)
        outputs = self.fail_in_turn(first, second)
        self.assertAlmostEqual(self.error_time(first) - self.error_time(second), HOUR, delta=30)

        table = outputs[0]
        self.assertIn(f"first failure: rank {first} (local rank 0, node {first}, host{first}, ",
                      table)
        self.assertIn("cause   ValueError('the data are gone')", table)
        ends = {int(rank): end for rank, end in re.findall(
            r"^  (\d)  +host\d +\d+ +[\d.]+ s +(\S.*)$", table, re.M)}
        self.assertEqual(ends[first], "exited with status 1   <- first")
        self.assertEqual(ends[second], "exited with status 1")  # not by a stop signal
        for others in outputs[1:]:
            self.assertIn(f"failed: rank {first} on host{first}: ValueError(", others)
        # The agent uses the clock that the test has set: its job began an hour ago.
        start = datetime.datetime.fromisoformat(
            re.search(r"after the start at (\S+ \S+)", table)[1])
        ago = (datetime.datetime.now() - start).total_seconds()
        self.assertAlmostEqual(ago, HOUR, delta=60)

    def test_the_first_failure_is_named_although_its_wall_clock_is_an_hour_ahead(self):
        self.check_first_is_named(1, 2)


@unittest.skipIf(not netns.has_clocks(), "this kernel has no time namespaces")
class CausesByOtherMonotonicClocks(Causes):
    """The same when the monotonic clocks of the hosts differ, as after different uptimes."""

    clocks = netns.CLOCKS_APART

    def test_the_first_failure_is_named_when_the_second_is_on_the_leader_s_host(self):
        self.check_first_is_named(2, 0)

    def test_the_first_failure_is_named_when_it_is_on_the_leader_s_host(self):
        self.check_first_is_named(0, 1)


if __name__ == "__main__":
    unittest.main()
