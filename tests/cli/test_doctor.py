"""`mgpu-run doctor` on the machine that runs the tests."""

import json
import os
import pathlib
import re
import resource
import socket
import unittest

from harness import JobTest

TRAINER = "#!/bin/sh\necho mgpu-train {}\n"


class DoctorTest(JobTest):
    def doctor(self, *args, env=None, **popen):
        """Runs doctor with a working mgpu-train, unless env changes that."""
        version = self.start("--version")
        trainer = TRAINER.format(version.communicate(timeout=60)[0].decode().split()[1])
        folder = self.dir / "bin"
        folder.mkdir(exist_ok=True)
        path = folder / "mgpu-train"
        path.write_text(trainer)
        path.chmod(0o755)
        job = self.start("doctor", *args, env={"MGPU_TRAIN": str(path), **(env or {})}, **popen)
        out, err = job.communicate(timeout=120)
        job.out, job.err = out.decode(), err.decode()
        return job

    def checks(self, *args, **kwargs):
        job = self.doctor("--json", *args, **kwargs)
        report = json.loads(job.out)
        self.assertEqual(job.returncode, 1 if report["failed"] else 0)
        self.assertEqual(report["passed"] + report["warnings"] + report["failed"],
                         len(report["checks"]))
        return {check["check"]: check for check in report["checks"]}

    def test_every_check_has_a_verdict_and_advice_unless_it_passes(self):
        checks = self.checks()
        for name in ("driver", "mgpu-train", "libtorch", "ports", "network", "disk: current folder",
                     "disk: Hub cache", "disk: temporary files", "shared memory", "memory",
                     "open files"):
            self.assertIn(name, checks)
        for check in checks.values():
            self.assertIn(check["verdict"], ("PASS", "WARN", "FAIL"))
            self.assertEqual(check["verdict"] == "PASS", check["advice"] == "", check)
        self.assertEqual(checks["mgpu-train"]["verdict"], "PASS")
        self.assertEqual(checks["ports"]["verdict"], "PASS")

    def test_the_text_has_the_same_checks(self):
        job = self.doctor()
        self.assertEqual(job.err, "")
        lines = job.out.splitlines()
        self.assertRegex(lines[-1], r"^\d+ passed, \d+ warnings?, \d+ failed$")
        self.assertEqual(sum(line[:6] in ("PASS  ", "WARN  ", "FAIL  ") for line in lines),
                         sum(map(int, re.findall(r"\d+", lines[-1]))))

    def test_a_port_in_use_is_a_failure(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            check = self.checks("--port", str(port))[f"port {port}"]
        self.assertEqual(check["verdict"], "FAIL")
        self.assertIn("Address already in use", check["text"])

    def test_a_trainer_that_does_not_run_is_a_failure(self):
        broken = self.write("broken", "#!/bin/sh\necho 'libtorch.so: cannot open' >&2; exit 127\n",
                            0o755)
        check = self.checks(env={"MGPU_TRAIN": broken})["mgpu-train"]
        self.assertEqual(check["verdict"], "FAIL")
        self.assertIn("ends with 127: libtorch.so: cannot open", check["text"])

    def test_a_missing_interface_is_a_failure(self):
        check = self.checks(env={"NCCL_SOCKET_IFNAME": "nope0"})["NCCL_SOCKET_IFNAME"]
        self.assertEqual(check["verdict"], "FAIL")

    def test_the_limit_on_open_files_is_the_one_that_ranks_get(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        job = self.doctor("--json", preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (300, hard)))
        checks = {check["check"]: check for check in json.loads(job.out)["checks"]}
        self.assertEqual(checks["open files"]["text"], "300 for each rank")
        self.assertEqual(checks["open files"]["verdict"], "WARN")

    def test_the_current_folder_is_the_one_doctor_was_started_in(self):
        check = self.checks()["disk: current folder"]
        self.assertIn(str(self.dir), check["text"])

    def test_doctor_survives_a_current_folder_that_was_removed(self):
        gone = self.dir / "gone"
        gone.mkdir()
        job = self.doctor("--json", cwd=gone, preexec_fn=lambda: os.rmdir(gone))
        self.assertIn("checks", json.loads(job.out))

    @unittest.skipUnless(os.environ.get("MGPU_TORCH_PYTHON"), "needs a python that has torch")
    def test_the_torch_of_python_is_found_by_its_files(self):
        checks = self.checks(env={"PYTHON_EXEC": os.environ["MGPU_TORCH_PYTHON"],
                                  "LIBTORCH_ROOT": ""})
        self.assertEqual(checks["libtorch"]["verdict"], "PASS")
        self.assertRegex(checks["libtorch"]["text"], r"^2\.\d+\.\d+.* \(by python3\)$")
        self.assertRegex(checks["nccl"]["text"], r"^2\.\d+\.\d+$")

    def test_a_usage_error_ends_with_status_2(self):
        for args in (["--port"], ["--port", "x"], ["--port", "0"], ["all"]):
            job = self.start("doctor", *args)
            out, err = job.communicate(timeout=60)
            self.assertEqual((job.returncode, out), (2, b""), args)
            self.assertIn(b"mgpu-run: doctor ", err)

    def test_a_file_named_doctor_can_still_be_run(self):
        self.write("doctor", "#!/bin/sh\necho file\n", 0o755)
        job = self.run_job("./doctor", "-n", "1", cwd=self.dir)
        self.assertEqual(job.out, "file\n")


if __name__ == "__main__":
    unittest.main()
