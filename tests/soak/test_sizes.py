"""The sizes of a launcher that a soak compares."""

import subprocess
import sys
import unittest

from sizes import Sizes

# Holds one more descriptor for half of each 40 ms, and one more for good after each line of stdin.
LAUNCHER = """
import select, sys, time
kept = []
while True:
    with open("/dev/null"):
        time.sleep(0.02)
    if select.select([sys.stdin], [], [], 0.02)[0]:
        if not sys.stdin.readline():
            break
        kept.append(open("/dev/null"))
        print("kept", flush=True)
"""


class Descriptors(unittest.TestCase):
    def setUp(self):
        self.launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.launcher.communicate)
        self.sizes = Sizes()

    def count(self):
        return self.sizes.of([self.launcher.pid])[0]["fds"]

    def keep_one_more(self):
        self.launcher.stdin.write("\n")
        self.launcher.stdin.flush()
        self.launcher.stdout.readline()

    def test_a_descriptor_that_is_open_for_a_moment_is_not_a_growth(self):
        self.keep_one_more()
        self.assertEqual(len({self.count() for _ in range(30)}), 1)

    def test_a_descriptor_that_stays_open_is_a_growth(self):
        self.keep_one_more()
        before = self.count()
        self.keep_one_more()
        self.assertEqual(self.count(), before + 1)


if __name__ == "__main__":
    unittest.main()
