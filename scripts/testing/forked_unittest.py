"""Runs unittest in forks of a process that has imported PyTorch and transformers: to import them
takes up to 10 s of CPU time, and some fifty files of tests need them.

The process is this file, run by the Python that has the packages: `forked_unittest.py SOCKET`, where
SOCKET is the number of the descriptor over which the test run asks for runs. ForkedUnittest is the
other end.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

if __name__ != "__main__":
    from testing import steps

# bitsandbytes, and with it peft, stays out: it compiles what runs once if torch._dynamo permits it
# when it is imported, which some files do not.
MODULES = ("torch", "transformers", "transformers.models.auto.modeling_auto",
           "transformers.models.auto.tokenization_auto",
           "transformers.models.qwen2.modeling_qwen2", "safetensors.torch")
# What tests set before they import these packages.
ENVIRONMENT = {"TRANSFORMERS_OFFLINE": "1", "TQDM_DISABLE": "1"}
LARGEST = 1 << 20  # bytes of a request


# --- In the process of the packages

def serve(connection):
    """Answers requests until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, LARGEST, 2)
        if not request:
            return None
        if os.fork() == 0:
            connection.close()
            return keep(json.loads(request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def keep(request, output, answers):
    """Starts a run and tells its process id, and at its end its status and CPU seconds. Returns the
    words of unittest in the process that is to run it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(answers)
        become(request, output)
        return request["words"]
    with open(answers, "w", encoding="utf-8") as file:
        print(pid, file=file, flush=True)
        _, status, usage = os.wait4(pid, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime]),
              file=file, flush=True)
    os._exit(0)


def become(request, output):
    """Makes this process what `python -B -m unittest` would be."""
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    folders = request["environment"].get("PYTHONPATH", "")
    sys.path[:1] = [request["folder"], *filter(None, folders.split(os.pathsep))]


def main():
    connection = socket.socket(fileno=int(sys.argv[1]))
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    words = serve(connection)
    if words:
        unittest.main(module=None, argv=["python3 -m unittest", *words])


# --- In the test run

class ForkedUnittest:
    """The process of the packages. It begins with the first run."""

    def __init__(self):
        self._lock = threading.Lock()
        self._connection = self._process = None

    def run(self, python, words, limit, environment):
        """Runs `python -m unittest WORDS` as steps.run would. All runs must have the same Python."""
        environment = {**os.environ, **{name: str(value) for name, value in environment.items()}}
        request = json.dumps({"words": [str(word) for word in words], "folder": str(steps.ROOT),
                              "environment": environment}).encode()
        with tempfile.TemporaryFile() as output:
            with self._ask(request, output, python, environment) as answers:
                with steps.Limit(limit, int(answers.readline() or self._ended())) as time_limit:
                    status, cpu = json.loads(answers.readline() or self._ended())
            steps.SPENT.cpu += cpu
            return status, time_limit.text(output)

    def _ask(self, request, output, python, environment):
        answers, theirs = os.pipe()
        with self._lock:
            if self._connection is None:
                self._begin(python, environment)
            socket.send_fds(self._connection, [request], [output.fileno(), theirs])
        os.close(theirs)
        return open(answers, encoding="utf-8")

    def _begin(self, python, environment):
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [str(python), "-B", __file__, str(theirs.fileno())], stdin=subprocess.DEVNULL,
                env={**environment, **ENVIRONMENT}, pass_fds=[theirs.fileno()])

    @staticmethod
    def _ended():
        raise RuntimeError(f"{__file__} has ended before the tests")

    def close(self):
        if self._process is not None:
            self._connection.close()
            self._process.wait()


if __name__ == "__main__":
    main()
