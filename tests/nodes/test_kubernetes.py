"""The JobSet of the documentation: the environment that its pods give mgpu-run."""

import os
import pathlib
import re
import subprocess
import unittest

from nodes_job import MGPU_RUN, NodesTest, environment, lines_with, slowly, until

ROOT = pathlib.Path(__file__).resolve().parents[2]

try:
    import yaml
except ImportError:
    yaml = None


@unittest.skipUnless(yaml, "this python has no yaml")
class JobSet(unittest.TestCase):
    def setUp(self):
        super().setUp()
        job_set = yaml.safe_load((ROOT / "docs" / "examples" / "jobset.yaml").read_text())
        job, = job_set["spec"]["replicatedJobs"]
        self.name = f"{job_set['metadata']['name']}-{job['name']}-0"
        self.domain = job_set["metadata"]["name"]
        self.job = job["template"]["spec"]
        self.pod = self.job["template"]["spec"]
        self.container, = self.pod["containers"]
        self.env = {entry["name"]: entry["value"] for entry in self.container["env"]}

    def test_every_pod_finds_its_node_rank(self):
        for index in range(self.job["completions"]):
            done = subprocess.run(
                [MGPU_RUN, "--dry-run", "--insecure", "/bin/true"], text=True, check=False,
                env=environment(KUBERNETES_SERVICE_HOST="10.0.0.1", CUDA_VISIBLE_DEVICES="",
                                JOB_COMPLETION_INDEX=str(index), **self.env),
                capture_output=True)
            self.assertTrue(done.stdout.startswith(
                f"Kubernetes provides\n  node rank  {index}  JOB_COMPLETION_INDEX\n"),
                done.stdout + done.stderr)

    def test_numbers_and_names_of_the_job_set_agree(self):
        self.assertEqual(self.job["completionMode"], "Indexed")
        self.assertEqual({self.job["parallelism"], self.job["completions"]},
                         {int(self.env["PET_NNODES"])})
        self.assertEqual(self.env["PET_MASTER_ADDR"], f"{self.name}-0.{self.domain}")
        self.assertEqual({(port["containerPort"], port["protocol"])
                          for port in self.container["ports"]},
                         {(int(self.env["PET_MASTER_PORT"]), "TCP"),
                          (int(self.env["PET_MASTER_PORT"]), "UDP")})

    def test_the_secret_is_mounted_where_mgpu_run_looks_for_it(self):
        path, = re.findall(r'kMountedToken = "(.+?)"',
                           (ROOT / "launcher" / "nodes" / "token.hpp").read_text())
        volume = next(v for v in self.pod["volumes"] if v["name"] == "token")
        mount = next(m for m in self.container["volumeMounts"] if m["name"] == "token")
        self.assertEqual(mount["mountPath"], os.path.dirname(path))
        self.assertEqual(volume["secret"]["defaultMode"], 0o400)


# Like the kubelet, which mounts a secret as symlinks that it swaps when the secret changes.
MOUNT_SECRET = """mount -t tmpfs tmpfs /run; mkdir -p /run/secrets/mgpu/..now; cd /run/secrets/mgpu
cat > ..now/token; chmod 0400 ..now/token; ln -s ..now ..data; ln -s ..data/token token"""


class InPods(JobSet, NodesTest):
    """Hosts of a net as pods: each has its own /run, and names that the test sets."""

    # These tests need no pods.
    test_every_pod_finds_its_node_rank = None
    test_numbers_and_names_of_the_job_set_agree = None
    test_the_secret_is_mounted_where_mgpu_run_looks_for_it = None

    def start_pod(self, host, env, *options, secret="the secret of this job set, of 32 bytes\n"):
        self.net[host].call("sh", "-ec", MOUNT_SECRET, text=secret)
        return self.launch(
            host, "--keep-alive", self.keep_alive, "--grace", self.grace, "--rdzv-conf",
            f"join_timeout={self.join_timeout},last_call_timeout={self.last_call}", *options,
            *self.counting(), token=False,
            env={"KUBERNETES_SERVICE_HOST": "10.96.0.1", **env})

    def pods_of_the_job_set(self, *options, **kwargs):
        """Starts two of its pods with one rank each."""
        return [self.start_pod(index, {**self.env, "PET_NNODES": "2", "PET_NPROC_PER_NODE": "1",
                                 "JOB_COMPLETION_INDEX": str(index)}, *options, **kwargs)
                for index in range(2)]

    def the_service_resolves(self, hosts=(0, 1)):
        for host in hosts:
            self.net[host].set_names({self.env["PET_MASTER_ADDR"]: self.net[0].v4})

    def test_pods_join_when_the_service_resolves_late(self):
        pods = self.pods_of_the_job_set()
        until(slowly(lambda: lines_with(pods[1].err, "cannot resolve train-node-0-0.train")), 20,
              "a word of the name that does not resolve")
        self.the_service_resolves()
        world = self.world(2)
        self.assertEqual(world.hosts, ["host0", "host1"])
        self.assertEqual({life.env["torchelastic_run_id"] for life in world.lives}, {"train"})
        self.assertEqual([life.env["master_port"] for life in world.lives if life.rank == 0],
                         ["29400"])
        self.end_well()

    def test_a_pod_with_another_secret_is_rejected(self):
        self.the_service_resolves()
        first = self.start_pod(0, {**self.env, "PET_NNODES": "2", "JOB_COMPLETION_INDEX": "0"})
        other = self.start_pod(1, {**self.env, "PET_NNODES": "2", "JOB_COMPLETION_INDEX": "1"},
                         secret="what another job set has as its secret\n")
        self.assertNotEqual(other.wait(), 0)
        self.assertTrue(lines_with(other.err, "token"), other.err)
        self.assertTrue(first.running)
        first.signal(15)
        first.wait()

    def test_pods_restart_together(self):
        self.the_service_resolves()
        self.pods_of_the_job_set("--max-restarts", 1)
        world = self.world(2)
        self.break_rank(1)
        self.assertEqual(self.world(2, after=world).restarts, 1)
        self.end_well()

    def test_the_variables_of_kubeflow_s_trainer_are_understood(self):
        self.the_service_resolves()
        for index in range(2):
            self.start_pod(index, {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2",
                             "PET_NODE_RANK": str(index), "PET_MASTER_PORT": "29500",
                             "PET_MASTER_ADDR": self.env["PET_MASTER_ADDR"]})
        self.assertEqual(self.world(4).hosts, ["host0", "host0", "host1", "host1"])
        self.end_well()

    def test_the_variables_of_kubeflow_s_operator_for_elastic_jobs_are_understood(self):
        self.the_service_resolves()
        endpoint = f"{self.env['PET_MASTER_ADDR']}:23456"
        for index in range(2):
            self.start_pod(index, {"PET_NNODES": "1:2", "PET_NPROC_PER_NODE": "1",
                             "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": endpoint,
                             "PET_RDZV_ID": "elastic", "PET_MAX_RESTARTS": "2"})
        world = self.world(2)
        self.assertEqual({life.env["torchelastic_max_restarts"] for life in world.lives}, {"2"})
        self.end_well()


if __name__ == "__main__":
    unittest.main()
