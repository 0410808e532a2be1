"""Random faults, one after another, on four hosts whose workers count.

MGPU_FAULTS is their number [20], MGPU_SEED selects them [random; it is printed]. 200 of
them take several minutes.
"""

import os
import random
import signal
import sys
import time
import unittest

import counts
from nodes_job import NodesTest, alive, send, slowly, until

FAULTS = int(os.environ.get("MGPU_FAULTS") or 20)
SEED = int(os.environ.get("MGPU_SEED") or random.SystemRandom().randrange(1 << 32))


class Faults(NodesTest):
    hosts = 4
    keep_alive, grace, join_timeout, last_call = 1.0, 1.0, 120, 0.5
    max_restarts = 100000
    longest = 40  # seconds from a fault to a world of all four, on a busy machine

    def begin(self, host):
        self.by_host[host] = self.agent(host, "2:4", "--max-restarts", self.max_restarts)

    def workers_of(self, host):
        """The pids of the live workers on a host."""
        return [life.pid for life in counts.lives(self.counts)
                if life.host == f"host{host}" and alive(life.pid) and not life.ended_well]

    # --- The faults: each affects one host and returns a function that undoes it.

    def kill_agent(self, host):
        self.by_host[host].kill()
        return lambda: self.begin(host)

    def kill_everything(self, host):
        for pid in self.net[host].pids():
            send(pid, signal.SIGKILL)
        self.by_host[host].process.wait()
        return lambda: self.begin(host)

    def kill_worker(self, host):
        for pid in self.workers_of(host):
            send(pid, signal.SIGKILL)
        return lambda: None

    def fail_worker(self, host):
        self.break_rank(host % 2, self.random.choice(["exit 1", "exit 7", "kill 6"]))
        return lambda: None

    def freeze_agent(self, host):
        agent = self.by_host[host]
        agent.signal(signal.SIGSTOP)
        return lambda: agent.signal(signal.SIGCONT)

    def freeze_worker(self, host):
        frozen = self.workers_of(host)
        for pid in frozen:
            send(pid, signal.SIGSTOP)
        return lambda: [send(pid, signal.SIGCONT) for pid in frozen]

    def cut(self, host):
        self.net[host].cut()
        return self.net[host].heal

    def cut_in(self, host):
        self.net[host].cut_in()
        return self.net[host].heal

    def cut_out(self, host):
        self.net[host].cut_out()
        return self.net[host].heal

    def lossy(self, host):
        self.net[host].lose(0.3)
        return self.net[host].heal

    def leave(self, host):
        self.by_host[host].signal(signal.SIGTERM)
        self.by_host[host].wait(30)
        return lambda: self.begin(host)

    def extra_agent(self, host):
        """One more agent: a spare, or the replacement of one that leaves."""
        spare = self.agent(host, "2:4", "--max-restarts", self.max_restarts)

        def end():
            spare.signal(signal.SIGTERM)
            spare.wait(30)
        return end

    # A stop signal to the leader ends the job; the other nodes may leave it.
    anywhere = ("kill_agent", "kill_everything", "kill_worker", "fail_worker", "freeze_agent",
                "freeze_worker", "cut", "cut_in", "cut_out", "lossy")
    not_the_leader = ("leave", "extra_agent")

    def choose(self):
        """Chooses the next faults, one or two at a time, at different hosts."""
        hosts = self.random.sample(range(4), self.random.choice([1, 1, 1, 2]))
        return [(self.random.choice(self.anywhere + (self.not_the_leader if host else ())), host)
                for host in hosts]

    def strike(self, faults):
        undo = [getattr(self, name)(host) for name, host in faults]
        # From a moment that must have no effect to a loss that all have detected.
        time.sleep(self.random.choice([0.1, 0.5, 1.5, 3.5]))
        for back in undo:
            back()

    def all_are_well(self, since):
        """Restarts missing agents; all hosts must then count together within the limit."""
        def counting():
            found = counts.worlds(self.counts)
            return (found and found[-1].size == 4 and counts.checkpoint(self.counts)["step"] > since
                    and all(map(alive, found[-1].pids)) and self.committed_by(found[-1]))
        until(slowly(counting), self.longest, "a world of all four that commits")

    def committed_by(self, world):
        saved = counts.checkpoint(self.counts)["worlds"]
        return saved and saved[-1][0] == world.name and saved[-1][2] >= saved[-1][1] + 2

    def test_faults_in_a_row_lose_no_step_and_leave_nothing(self):
        self.random = random.Random(SEED)
        self.by_host = {}
        print(f"{FAULTS} faults, MGPU_SEED={SEED}", file=sys.stderr, flush=True)
        for host in range(4):
            self.begin(host)
        self.all_are_well(0)
        done, history = 0, []
        while done < FAULTS:
            faults = self.choose()
            history.append(faults)
            with self.subTest(number=done, seed=SEED, faults=faults):
                since = self.committed()
                self.strike(faults)
                self.all_are_well(since)
                self.assertEqual(list(self.counts.glob("violation.*")), [])
            if not self._outcome.success:
                self.fail(f"after {history[-3:]}, MGPU_SEED={SEED}")
            done += len(faults)
        self.end_well(list(self.by_host.values()))
        # Only a failure of a rank itself is counted, not a loss and its consequences.
        failures = sum(name in ("kill_worker", "fail_worker", "kill_everything")
                       for faults in history for name, _ in faults)
        self.assertLessEqual(self.worlds()[-1].restarts, failures)


if __name__ == "__main__":
    unittest.main()
