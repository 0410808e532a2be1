"""The JobSet of the documentation: what a pod of it gives mgpu-run."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from harness import MGPU_RUN, environment  # noqa: E402

try:
    import yaml
except ImportError:
    yaml = None


@unittest.skipUnless(yaml, "this python has no yaml")
class JobSet(unittest.TestCase):
    def setUp(self):
        job_set = yaml.safe_load((ROOT / "docs" / "examples" / "jobset.yaml").read_text())
        job, = job_set["spec"]["replicatedJobs"]
        self.name = f"{job_set['metadata']['name']}-{job['name']}-0"
        self.domain = job_set["metadata"]["name"]
        self.job = job["template"]["spec"]
        self.pod = self.job["template"]["spec"]
        self.container, = self.pod["containers"]
        self.env = {entry["name"]: entry["value"] for entry in self.container["env"]}

    def test_every_pod_finds_its_place(self):
        for index in range(self.job["completions"]):
            told = subprocess.run(
                [MGPU_RUN, "--dry-run", "--insecure", "/bin/true"], text=True, check=False,
                env=environment(KUBERNETES_SERVICE_HOST="10.0.0.1", CUDA_VISIBLE_DEVICES="",
                                JOB_COMPLETION_INDEX=str(index), **self.env),
                capture_output=True)
            self.assertTrue(told.stdout.startswith(
                f"Kubernetes tells\n  node rank  {index}  JOB_COMPLETION_INDEX\n"),
                told.stdout + told.stderr)

    def test_its_numbers_and_names_agree(self):
        self.assertEqual(self.job["completionMode"], "Indexed")
        self.assertEqual({self.job["parallelism"], self.job["completions"]},
                         {int(self.env["PET_NNODES"])})
        self.assertEqual(self.env["PET_MASTER_ADDR"], f"{self.name}-0.{self.domain}")
        self.assertEqual({(port["containerPort"], port["protocol"])
                          for port in self.container["ports"]},
                         {(int(self.env["PET_MASTER_PORT"]), "TCP"),
                          (int(self.env["PET_MASTER_PORT"]), "UDP")})

    def test_its_secret_is_where_and_how_it_is_looked_for(self):
        path, = re.findall(r'kMountedToken = "(.+?)"',
                           (ROOT / "launcher" / "token.hpp").read_text())
        volume = next(v for v in self.pod["volumes"] if v["name"] == "token")
        mount = next(m for m in self.container["volumeMounts"] if m["name"] == "token")
        self.assertEqual(mount["mountPath"], os.path.dirname(path))
        self.assertEqual(volume["secret"]["defaultMode"], 0o400)


if __name__ == "__main__":
    unittest.main()
