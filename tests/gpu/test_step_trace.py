"""The trace of `trace_steps` on GPUs: kernels lie in the range of the step that started them. Run by
hand, with a Python that has torch:

    cd tests/gpu; python -B -m unittest -v test_step_trace
"""

import json
import unittest

from test_determinism import Training


class StepTrace(Training):
    def spans(self, rank=0):
        path = self.dir / "output-0" / "traces" / f"rank{rank}.json"
        events = json.loads(path.read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        self.assertEqual({span["pid"] for span in spans}, {rank})
        return ([span for span in spans if span["tid"] < 1000],
                [span for span in spans if span["tid"] >= 1000])

    def assert_kernels_lie_in(self, step, kernels):
        """The device is idle before and after a recorded step. A millisecond for two clocks."""
        begin, end = step["ts"] - 1000, max(k["ts"] + k["dur"] for k in kernels)
        self.assertGreater(len(kernels), 100)
        self.assertGreaterEqual(min(kernel["ts"] for kernel in kernels), begin)
        busy = sum(kernel["dur"] for kernel in kernels)
        self.assertGreater(busy, 0.05 * (end - begin))

    def test_the_kernels_of_the_chosen_step_are_in_the_trace(self):
        self.train(self.token_rows(self.EQUAL), 0, trace_steps=[4])
        ranges, kernels = self.spans()
        (step,) = [each for each in ranges if each["name"] == "step"]
        self.assertEqual(step["args"], {"step": 4})
        self.assert_kernels_lie_in(step, kernels)

    def test_tracing_changes_no_bit_of_the_result(self):
        rows = self.token_rows(self.UNEQUAL)
        self.assertEqual(self.train(rows, 1), self.train(rows, 0, trace_steps=[2, 3, 6]))

    def test_each_of_two_ranks_has_its_own_kernels_and_collectives(self):
        self.train(self.token_rows(self.EQUAL), 0, ranks=2, trace_steps=[3])
        for rank in (0, 1):
            ranges, kernels = self.spans(rank)
            (step,) = [each for each in ranges if each["name"] == "step"]
            self.assert_kernels_lie_in(step, kernels)
            self.assertTrue(any("nccl" in kernel["name"] for kernel in kernels))


if __name__ == "__main__":
    unittest.main()
