"""Random faults, one after another, at any node of a job over etcd or at a member of etcd.

MGPU_FAULTS and MGPU_SEED are as for test_faults.
"""

import unittest

import test_faults
from etcd_job import OverEtcd


class FaultsOverEtcd(OverEtcd, test_faults.Faults):
    hosts, servers = 4, 3
    # With etcd the leader may leave like any other node.
    anywhere = (*test_faults.Faults.anywhere, *test_faults.Faults.not_the_leader, "kill_member")
    not_the_leader = ()

    def kill_member(self, host):
        """Only one of two simultaneous faults may stop a member: the other two are the majority."""
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
