"""Faults in a row, chosen at random, that hit any node of a job over etcd, or a member of etcd.

MGPU_FAULTS and MGPU_SEED are as for test_faults.
"""

import unittest

import test_etcd_jobs
import test_faults


class FaultsOverEtcd(test_etcd_jobs.OverEtcd, test_faults.Faults):
    hosts, servers = 4, 3
    # Here the leader may leave like anybody else.
    anywhere = (*test_faults.Faults.anywhere, *test_faults.Faults.not_the_leader, "kill_member")
    not_the_leader = ()

    def kill_member(self, host):
        """Only one of two faults at a time may take a member: two are a majority."""
        member = self.etcd.members[host % 3]
        if any(other.process.poll() is not None for other in self.etcd.members):
            return lambda: None
        member.kill()

        def back():
            member.start()
            self.etcd.wait()
        return back


if __name__ == "__main__":
    unittest.main()
