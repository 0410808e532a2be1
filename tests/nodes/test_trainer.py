"""The native trainer on two hosts computes what the same ranks compute on one host."""

import json
import pathlib
import sys
import unittest

from nodes_job import NodesTest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import trainer  # noqa: E402
from grpo_trainer import GrpoTest  # noqa: E402


class TwoHosts(NodesTest, trainer.TrainerTest):
    """The hosts share all files: nodes must share the output folder and the cache of token ids."""

    hosts = 2
    keep_alive, grace, join_timeout = 5.0, 2.0, 60

    def on_two_hosts(self, ranks=1, out="two-hosts", **keys):
        folder = self.dir / out
        program = [self.recipe(), *(f"--set={key}={json.dumps(value)}" for key, value in
                                    {"output_dir": str(folder), **keys}.items())]
        agents = [self.agent(host, 2, workers=ranks, env={"OMP_NUM_THREADS": "1"}, program=program)
                  for host in range(2)]
        self.assertEqual([agent.wait(trainer.LIMIT) for agent in agents], [0, 0],
                         "".join(agent.err for agent in agents))
        self.assert_nothing_left()
        self.assertIn(f"2 nodes, {2 * ranks} ranks", agents[0].err)
        return trainer.Run(0, agents[0].out, agents[0].err, folder)

    def assert_equal_runs(self, ranks=1, **keys):
        keys = {"max_steps": 3, **keys}
        one = self.train(2 * ranks, out="one-host", **keys)
        two = self.on_two_hosts(ranks, **keys)
        self.assert_same_course(two, one)
        return one, two


class Sft(TwoHosts):
    def test_two_hosts_give_the_losses_of_one(self):
        self.assert_equal_runs()

    def test_two_hosts_with_sharded_weights_give_the_losses_of_one(self):
        self.assert_equal_runs(zero_stage=3)

    def test_two_hosts_of_two_ranks_give_the_losses_of_one_with_four(self):
        self.assert_equal_runs(2, per_device_train_batch_size=2)


class Grpo(TwoHosts, GrpoTest):
    def test_two_hosts_give_the_losses_completions_and_rewards_of_one(self):
        one, two = self.assert_equal_runs(log_completions=True)
        self.assertEqual(self.completions(two), self.completions(one))
        self.assertEqual(two.column("reward"), one.column("reward"))


if __name__ == "__main__":
    unittest.main()
