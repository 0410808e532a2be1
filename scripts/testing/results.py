"""Reads the number of passed and failed cases out of what the test frameworks print."""

import re

from testing.steps import Outcome


def catch2_outcome(status, output):
    """Reads the closing lines of Catch2, version 2 or 3."""
    cases = re.search(r"^All tests passed \(.* in (\d+) test cases?\)", output, re.M)
    if cases:
        passed, failed = int(cases[1]), 0
    else:
        summary = re.search(r"^test cases:.*", output, re.M)
        numbers = {word: int(n) for n, word in
                   re.findall(r"(\d+) (passed|failed as expected|failed)", summary[0])
                   } if summary else {}
        passed = numbers.get("passed", 0) + numbers.get("failed as expected", 0)
        failed = numbers.get("failed", 0)
    if failed == 0 and (status != 0 or passed == 0):
        failed = 1
        output += f"\nended with status {status} and no failed case\n"
    return Outcome(passed, failed, output)


def unittest_outcome(status, output):
    """Reads the closing lines of Python's unittest. Skipped tests are not counted."""
    ran = sum(int(n) for n in re.findall(r"^Ran (\d+) tests? in ", output, re.M))
    last = (re.findall(r"^(?:OK|FAILED)(?: \(.*\))?$", output, re.M) or [""])[-1]
    numbers = {word: int(n) for word, n in re.findall(r"(\w[a-z ]*)=(\d+)", last)}
    failed = sum(numbers.get(word, 0) for word in ("failures", "errors", "unexpected successes"))
    skipped = numbers.get("skipped", 0)
    if failed == 0 and (status != 0 or ran == 0):
        failed = 1
        output += f"\nended with status {status} after {ran} tests\n"
    return Outcome(max(0, ran - failed - skipped), failed, output)


def failed_tests(output):
    """The full names of the tests that unittest reports as failed, each once."""
    return list(dict.fromkeys(re.findall(r"^(?:FAIL|ERROR): \w+ \((\w+(?:\.\w+)+)\)", output, re.M)))
