"""GRPO with a server that generates: vllm_server.py, which is ours and speaks vLLM's protocol."""

import unittest

from grpo_trainer import GrpoTest

try:
    import vllm_server
except ImportError:  # trainer.MISSING says so
    vllm_server = None

ATOL = 1e-5  # of weights, in fp32
SAME = 1e-4  # of log-probs of two programs, in fp32


class ServerTest(GrpoTest):
    KEYS = dict(GrpoTest.KEYS, use_vllm=True, vllm_mode="server", use_peft=True, lora_r=4,
                lora_dropout=0.0, learning_rate=1e-2, vllm_server_timeout=10)

    def serve(self, **options):
        server = vllm_server.Server(self.model, **options)
        self.enterContext(server)
        return server

    def train_by(self, server, nproc=1, **keys):
        return self.train(nproc, **{"vllm_server_base_url": server.url, **keys})


class Rollouts(ServerTest):
    def test_the_server_has_the_weights_of_every_step(self):
        server = self.serve()
        run = self.train_by(server, save_strategy="steps", save_steps=1)
        for record in run.records():
            self.assertLess(record["sampling/sampling_logp_difference/max"], SAME)


if __name__ == "__main__":
    unittest.main()
