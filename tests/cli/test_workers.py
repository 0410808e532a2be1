"""The environment, the limits and the arguments of each worker."""

import json
import os
import resource
import signal
import unittest

from harness import JobTest

DUMP = ('import json, os, resource, signal\n'
        'json.dump({"env": dict(os.environ), "pid": os.getpid(), "pgid": os.getpgid(0),\n'
        '  "sid": os.getsid(0), "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),\n'
        '  "cwd": os.getcwd(), "affinity": sorted(os.sched_getaffinity(0)),\n'
        '  "fds": sorted(os.listdir("/proc/self/fd")),\n'
        '  "pipe": str(signal.getsignal(signal.SIGPIPE)),\n'
        '  "masked": [int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, [])]},\n'
        '  open("dump." + os.environ["RANK"], "w"))\n')


class Workers(JobTest):
    def dumps(self, nproc, *options, **kwargs):
        job = self.run_job("-n", nproc, *options, self.script(DUMP), **kwargs)
        self.assertEqual(job.returncode, 0, job.err)
        return [json.loads((self.dir / f"dump.{rank}").read_text()) for rank in range(nproc)]

    def test_each_worker_has_its_own_session_and_process_group(self):
        for worker in self.dumps(2):
            self.assertEqual((worker["pid"], worker["pid"]), (worker["pgid"], worker["sid"]))

    def test_the_environment_is_the_one_that_torchrun_sets(self):
        for rank, worker in enumerate(self.dumps(3, "--role", "t", "--max-restarts", 4)):
            env = worker["env"]
            expected = {"LOCAL_RANK": rank, "RANK": rank, "GROUP_RANK": 0, "ROLE_RANK": rank,
                        "ROLE_NAME": "t", "LOCAL_WORLD_SIZE": 3, "WORLD_SIZE": 3,
                        "GROUP_WORLD_SIZE": 1, "ROLE_WORLD_SIZE": 3, "MASTER_ADDR": "127.0.0.1",
                        "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 4,
                        "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True",
                        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1, "OMP_NUM_THREADS": 1}
            self.assertEqual({k: env.get(k) for k in expected},
                             {k: str(v) for k, v in expected.items()})
            self.assertGreater(int(env["MASTER_PORT"]), 0)
            self.assertTrue(env["TORCHELASTIC_ERROR_FILE"].endswith(f"/attempt_0/{rank}/error.json"))

    def test_workers_get_the_limits_and_signal_mask_that_mgpu_run_inherited(self):
        def prepare():
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
            signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGWINCH])
        (worker,) = self.dumps(1, preexec_fn=prepare)
        self.assertEqual(worker["nofile"][0], 512)
        self.assertEqual(worker["masked"], [int(signal.SIGWINCH)])

    def test_workers_inherit_no_descriptor_of_mgpu_run(self):
        for worker in self.dumps(4):
            self.assertEqual(worker["fds"], ["0", "1", "2", "3"])  # 3 is of the listing

    def test_env_workdir_and_macros_reach_the_workers(self):
        (self.dir / "deep").mkdir()
        worker = self.script('import json, os, sys\njson.dump([os.getcwd(), os.environ["X"], '
                             'os.environ["OMP_NUM_THREADS"], sys.argv[1:]], '
                             'open("args." + os.environ["RANK"], "w"))\n')
        self.run_job("-n", 2, "--env", "X=a=b", "--env", "OMP_NUM_THREADS=7", "--workdir",
                     self.dir / "deep", worker, "--r=${local_rank}", "--nproc", "cost $5", "")
        for rank in (0, 1):
            cwd, x, omp, args = json.loads((self.dir / "deep" / f"args.{rank}").read_text())
            self.assertEqual((cwd, x, omp), (str(self.dir / "deep"), "a=b", "7"))
            self.assertEqual(args, [f"--r={rank}", "--nproc", "cost $5", ""])

    def test_numa_binding_restricts_ranks_to_cores(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one core only")
        every = sorted(os.sched_getaffinity(0))
        workers = self.dumps(2, "--numa-binding", "node")
        for worker in workers:
            self.assertTrue(set(worker["affinity"]) <= set(every))
        exclusive = self.dumps(2, "--numa-binding", "exclusive")
        self.assertTrue(set(exclusive[0]["affinity"]).isdisjoint(exclusive[1]["affinity"]))

    def test_modules_and_programs_can_be_started(self):
        (self.dir / "pkg").mkdir()
        (self.dir / "pkg" / "__init__.py").write_text("")
        (self.dir / "pkg" / "train.py").write_text('import sys; print("module", sys.argv[1:])\n')
        self.assertEqual(self.run_job("-n", 1, "-m", "pkg.train", "--x", "1").out,
                         "module ['--x', '1']\n")
        program = self.write("prog", "#!/bin/sh\necho program $1\n", 0o755)
        self.assertEqual(self.run_job("-n", 1, program, "y").out, "program y\n")
        self.assertEqual(self.run_job("-n", 1, "./prog", "y").out, "program y\n")

    def test_64_ranks_can_be_started(self):
        job = self.sh(64, 'echo $RANK/$WORLD_SIZE')
        self.assertEqual(sorted(job.out.split()), sorted(f"{r}/64" for r in range(64)))


if __name__ == "__main__":
    unittest.main()
