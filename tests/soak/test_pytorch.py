"""Faults in a PyTorch job: DDP over gloo on one node and on four."""

import os
import unittest

from soak_test import SoakTest


@unittest.skipIf(not os.environ.get("MGPU_TORCH_PYTHON"),
                 "MGPU_TORCH_PYTHON names no python that has torch")
class PyTorch(SoakTest):
    def test_a_pytorch_job_recovers_from_6_faults_on_one_node(self):
        self.soak("pytorch", 1, 6)

    def test_a_pytorch_job_recovers_from_4_faults_on_four_nodes(self):
        self.soak("pytorch", 4, 4)


if __name__ == "__main__":
    unittest.main()
