"""Faults in the quickstart job: the native trainer on one node and on four."""

import unittest

from soak_test import SoakTest


class Quickstart(SoakTest):
    def test_the_quickstart_job_recovers_from_12_faults_on_one_node(self):
        self.soak("quickstart", 1, 12)

    def test_the_quickstart_job_recovers_from_8_faults_on_four_nodes(self):
        self.soak("quickstart", 4, 8)


if __name__ == "__main__":
    unittest.main()
