"""Jobs whose leader is elected over etcd."""

import json
import os
import pwd
import time
import unittest
import urllib.parse

from etcd_cluster import Cluster, reason_for_no_etcd
from nodes_job import NodesTest, slowly, until

SLACK = 6  # seconds that a busy machine may add
CODE = " hmac-sha256:"  # between a value and its authentication code


def user_prefix():
    """Where the jobs of this user have their keys."""
    name = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "root"
    return "/mgpu-run/" + urllib.parse.quote(name, safe="")


@unittest.skipIf(reason_for_no_etcd(), reason_for_no_etcd())
class OverEtcd(NodesTest):
    hosts, servers = 3, 1

    def setUp(self):
        super().setUp()
        self.prefix = user_prefix()
        self.etcd = self.start_etcd()

    def start_etcd(self, **options):
        cluster = Cluster(hosts=self.net.hosts[self.hosts:], **options)
        self.addCleanup(cluster.close)
        return cluster.wait()

    def endpoints(self):
        return ",".join(member.url.partition("//")[2] for member in self.etcd.members)

    def rdzv(self, endpoint=None, backend="etcd", **conf):
        options = super().rdzv(endpoint or self.endpoints(), **conf)
        options[options.index("c10d")] = backend
        return options

    def lease(self):
        return max(self.keep_alive, 2)  # the shortest that etcd grants

    def path(self, name):
        return f"{self.prefix}/job/{name}"

    def signed(self, name):
        """The value of a key, with its authentication code."""
        return self.etcd.ctl("get", "--print-value-only", self.path(name)).stdout.strip()

    def key(self, name):
        return self.signed(name).partition(CODE)[0]

    def saved(self, **fields):
        """The saved state, once it has these fields."""
        def found():
            text = self.key("state")
            state = json.loads(text) if text else {}
            return state if state and fields.items() <= state.items() else None
        return until(slowly(found), 20, f"a saved state with {fields}")

    def leader(self, but=None):
        """The index of the leader's host, once it is not the host `but`."""
        def found():
            address = self.key("leader").rpartition(":")[0]
            return [host.index for host in self.net.hosts if host.v4 == address
                    and host.index != but]
        return until(slowly(found), 20, "a leader")[0]

    def job(self, *options, nnodes="2:3", hosts=None, after=None, **kwargs):
        """Starts agents on all hosts; returns them and their world."""
        self.by_host = {host: self.agent(host, nnodes, *options, **kwargs)
                        for host in range(self.hosts if hosts is None else hosts)}
        return self.world(len(self.by_host) * kwargs.get("workers", 1), after=after)

    def back(self, host, world, *options):
        """Starts the agent of a host again and waits for the world of all hosts."""
        self.by_host[host] = self.agent(host, "2:3", *options)
        return self.world(3, after=world)

    def end_all(self):
        self.end_well(list(self.by_host.values()))

    def without(self, host, world):
        """Waits for the world of the other hosts and checks that it formed in time."""
        start = time.monotonic()
        after = self.world(2, after=world, steps=1)
        self.assertLess(time.monotonic() - start, self.lease() + self.keep_alive + self.grace + SLACK)
        self.assertNotIn(f"host{host}", after.hosts)
        return after
