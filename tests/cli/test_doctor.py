"""`mgpu-run doctor` on the machine that it is run on."""

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
        """A run with a mgpu-train that is well, unless env says otherwise."""
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
        told = json.loads(job.out)
        self.assertEqual(job.returncode, 1 if told["failed"] else 0)
        self.assertEqual(told["passed"] + told["warnings"] + told["failed"], len(told["checks"]))
        return {check["check"]: check for check in told["checks"]}

    def test_every_check_has_a_verdict_and_all_but_those_that_pass_advice(self):
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

    def test_a_port_that_is_taken_is_a_failure(self):
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
        self.assertIn("exited with status 127: libtorch.so: cannot open", check["text"])

    def test_an_interface_that_is_not_there_is_a_failure(self):
        check = self.checks(env={"NCCL_SOCKET_IFNAME": "nope0"})["NCCL_SOCKET_IFNAME"]
        self.assertEqual(check["verdict"], "FAIL")

    def test_the_limit_on_open_files_is_the_one_that_ranks_get(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        job = self.doctor("--json", preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (300, hard)))
        checks = {check["check"]: check for check in json.loads(job.out)["checks"]}
        self.assertEqual(checks["open files"]["text"], "300 per rank")
        self.assertEqual(checks["open files"]["verdict"], "WARN")

    def test_the_current_folder_is_the_one_we_are_in(self):
        check = self.checks()["disk: current folder"]
        self.assertIn(str(self.dir), check["text"])

    def test_a_folder_that_is_gone_is_no_crash(self):
        gone = self.dir / "gone"
        gone.mkdir()
        job = self.doctor("--json", cwd=gone, preexec_fn=lambda: os.rmdir(gone))
        self.assertIn("checks", json.loads(job.out))

    @unittest.skipUnless(os.environ.get("MGPU_TORCH_PYTHON"), "needs a python that has torch")
    def test_the_torch_of_python_is_found_by_its_files(self):
        checks = self.checks(env={"PYTHON_EXEC": os.environ["MGPU_TORCH_PYTHON"],
                                  "LIBTORCH_ROOT": ""})
        self.assertEqual(checks["libtorch"]["verdict"], "PASS")
        self.assertRegex(checks["libtorch"]["text"], r"^2\.\d+\.\d+.* \(found by python3\)$")
        self.assertRegex(checks["nccl"]["text"], r"^2\.\d+\.\d+$")

    def test_mistakes_on_the_command_line_end_with_2(self):
        for args in (["--port"], ["--port", "x"], ["--port", "0"], ["all"]):
            job = self.start("doctor", *args)
            out, err = job.communicate(timeout=60)
            self.assertEqual((job.returncode, out), (2, b""), args)
            self.assertIn(b"mgpu-run: doctor ", err)

    def test_a_file_of_that_name_is_still_run(self):
        self.write("doctor", "#!/bin/sh\necho file\n", 0o755)
        job = self.run_job("./doctor", "-n", "1", cwd=self.dir)
        self.assertEqual(job.out, "file\n")


if __name__ == "__main__":
    unittest.main()
