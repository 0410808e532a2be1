"""Process groups and stores of unmodified PyTorch programs, gloo on the CPU."""

import socket
import unittest

from torch_job import ROOT, TorchJobTest


class ProcessGroup(TorchJobTest):
    def ranks(self, world):
        job = self.program(world, "collectives.py")
        self.assert_ended_well(job)
        results = self.results(job)
        self.assertEqual([line["rank"] for line in results], list(range(world)))
        for line in results:
            self.assertEqual((line["world"], line["elastic"]), (world, True))
        return results

    def check_group(self, world):
        everybody = list(range(world))
        results = self.ranks(world)
        for line in results:
            parity = line["rank"] % 2
            self.assertEqual(line["group"], {
                "all_reduce": [float(sum(r + 1 for r in everybody)), 10.0 * sum(everybody)],
                "broadcast": 100 + world - 1,
                "all_gather_object": everybody,
                "processes": world,
                "new_group": sum(1 << r for r in everybody if r % 2 == parity),
            })
        return [line["store"] for line in results]

    def check_store(self, stores, world):
        everybody = list(range(world))
        self.assertEqual(sorted(got["order"] for got in stores), [r + 1 for r in everybody])
        self.assertEqual(sorted(int(got["job"]) for got in stores), everybody)
        self.assertEqual(len({got["elected"] for got in stores}), 1)
        for got in stores:
            self.assertEqual(got["multi_get"], [str(r * r) for r in everybody])
            self.assertEqual(sorted(got["roll"].split(","))[1:], [str(r) for r in everybody])
            self.assertEqual(got["listed"], world)
            self.assertEqual(got["timeout"], "DistStoreError")

    def check(self, world):
        self.check_store(self.check_group(world), world)

    def test_a_group_of_1_works(self):
        self.check(1)

    def test_a_group_of_2_works(self):
        self.check(2)

    def test_a_group_of_4_works(self):
        self.check(4)

    def test_a_group_of_8_works(self):
        self.check(8)

    def test_a_group_of_2_works_when_rank_0_owns_the_store(self):
        job = self.program(2, "collectives.py", options=["--rank0-store"])
        self.assert_ended_well(job)
        results = self.results(job)
        self.assertEqual([line["agent_store"] for line in results], ["False"] * 2)
        self.check_store([line["store"] for line in results], 2)


class Store(TorchJobTest):
    def test_every_operation_of_torch_s_own_client_works(self):
        job = self.torch("-n", 1, ROOT / "tests/clients/store_ops.py")
        self.assert_ended_well(job)
        self.assertEqual(job.out, "all operations as c10d has them\n")

    def test_the_next_attempt_on_the_same_port_has_an_empty_store(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        job = self.torch("-n", 1, "--max-restarts", 1, "--master-port", port, "--no-python",
                         "/bin/sh", "-c", f'"$PYTHON_EXEC" {ROOT}/tests/clients/store_ops.py || '
                         'exit 9; exit $(( 4 - 4 * TORCHELASTIC_RESTART_COUNT ))')
        self.assert_ended_well(job)
        self.assertEqual(job.out, "all operations as c10d has them\n" * 2)
        self.assertEqual(job.report["attempts"][0]["first_failure"]["exit_code"], 4)


if __name__ == "__main__":
    unittest.main()
