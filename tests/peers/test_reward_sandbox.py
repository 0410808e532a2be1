"""GRPO with reward_sandbox: the same rewards, nothing else reached, and no run without it."""

import os
import socket
import subprocess
import sys
import unittest
import unittest.mock

from grpo_trainer import GrpoTest
from trainer import BIN

REWARDS = '''
import os, socket

def reaches(completions, **columns):
    """The number of ways out of the sandbox, which are {ways}."""
    reached = 0
    try:
        socket.create_connection(("127.0.0.1", {port}), 5).close()
        reached += 1
    except OSError:
        pass
    try:
        with open(__file__ + ".written", "w"):
            reached += 1
    except OSError:
        pass
    return [float(reached + ("HF_TOKEN" in os.environ))] * len(completions)
'''

SCORE = '''
import json, sys
for line in sys.stdin:
    texts = json.loads(line)["completions"]
    print(json.dumps({"scores": [len(text) % 3 for text in texts]}), flush=True)
'''

NAMESPACES = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork"]
NONE_LEFT = ["unshare", "--user", "--map-root-user", "sh", "-c",
             'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh"]


def works(command):
    try:
        return subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@unittest.skipUnless(works(NAMESPACES), "this machine does not allow namespaces")
class Sandbox(GrpoTest):
    def test_a_sandbox_does_not_change_a_run(self):
        script = self.dir / "score.py"
        script.write_text(SCORE)
        rewards = ["letters", self.mine("vowels"), f"cmd:{sys.executable} {script}"]
        outside = self.train(2, reward_funcs=rewards)
        inside = self.train(2, reward_funcs=rewards, reward_sandbox=True)
        self.assertGreater(max(outside.column("reward_std")), 0)
        self.assertEqual(inside.column("reward"), outside.column("reward"))
        self.assert_same_course(inside, outside)

    def test_a_reward_in_a_sandbox_reaches_nothing(self):
        listener = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        self.rewards.write_text(REWARDS.format(port=listener.getsockname()[1], ways=3))
        for sandbox, reached in ((False, 3), (True, 0)):
            with self.subTest(sandbox=sandbox):
                with unittest.mock.patch.dict(os.environ, HF_TOKEN="secret"):
                    run = self.train(1, reward_funcs=[self.mine("reaches")], max_steps=1,
                                     reward_sandbox=sandbox)
                self.assertEqual(run.column("reward"), [reached])

    def test_a_sandbox_without_programs_is_noted(self):
        run = self.train(1, reward_sandbox=True, max_steps=1)
        self.assertIn("reward_sandbox has no effect: no reward is a Python function or a program",
                      run.notes)

    @unittest.skipUnless(works(NONE_LEFT), "sysctls cannot be written here")
    def test_a_machine_without_namespaces_is_refused_before_the_model_is_loaded(self):
        recipe = self.recipe(reward_funcs=[self.mine("vowels")], reward_sandbox=True,
                             reward_on_error="none",
                             model_name_or_path=str(self.dir / "missing"))
        job = self.start(*NONE_LEFT[1:], BIN / "mgpu-run", "--nproc", 1, recipe,
                         f"--set=output_dir={self.dir / 'out'}", program=NONE_LEFT[0],
                         env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        job.folder = self.dir / "out"
        run = self.end(job)
        self.assertEqual(run.status, 2, run.out + run.err)
        self.assertIn("mgpu-train: reward_sandbox: cannot start a sandbox on ", run.err)
        self.assertIn("creating namespaces: No space left on device; run sysctl "
                      "user.max_user_namespaces=10000 as root", run.err)
        self.assertEqual(self.error_lines(run), 1, run.err)
        self.assertNotIn(str(self.dir / "missing"), run.err)


if __name__ == "__main__":
    unittest.main()
