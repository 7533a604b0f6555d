"""Feeds made-up logs to scripts/test-report: every failure must be counted, none silently dropped."""

import json
import os
import subprocess
import sys
import tempfile

REPORT = sys.argv[1]


def entry(name, result, stdout="", stderr=""):
    return {"name": f"cohobate:x / {name}", "result": result, "stdout": stdout, "stderr": stderr}


def report(entries, expected=None):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.json")
        with open(log, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in entries)
        command = [sys.executable, REPORT, log]
        if expected is not None:
            with open(os.path.join(folder, "expected"), "w", encoding="utf-8") as file:
                file.write(expected)
            command[2:2] = ["--expected", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()


TWO = "[==========] Running 2 test(s).\n[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n"
CASES = [
    ("cases of a program are counted one by one", [entry("p", "OK", TWO + "[       OK ] b\n")], None, 0, "2 passed, 0 failed"),
    ("a failed case is one failure, not two", [entry("p", "FAIL", TWO, "[  FAILED  ] b\n")], None, 1, "1 passed, 1 failed"),
    ("a crash after a passed case is a failure", [entry("p", "FAIL", TWO)], None, 1, "1 passed, 1 failed"),
    ("a time-out is a failure", [entry("p", "TIMEOUT")], None, 1, "0 passed, 1 failed"),
    ("a program without cases is one test", [entry("p", "OK")], None, 0, "1 passed, 0 failed"),
    ("no test at all is no success", [], None, 1, "0 passed, 0 failed"),
    ("a skip is told", [entry("p", "OK"), entry("q", "SKIP", "no torch here\n")], None, 0, "1 passed, 0 failed, 1 skipped"),
    ("an expected skip passes", [entry("p", "OK"), entry("q", "SKIP")], "q # why\n", 0, "1 passed, 0 failed, 1 skipped"),
    ("an unexpected skip fails", [entry("p", "OK"), entry("q", "SKIP")], "r\n", 1, "1 passed, 1 failed"),
    ("a skipped case inside a program counts", [entry("p", "OK", TWO, "[  SKIPPED ] b\n")], "", 1, "1 passed, 1 failed"),
]


def main():
    wrong = 0
    for claim, entries, expected, code, last in CASES:
        got_code, lines = report(entries, expected)
        if got_code != code or not lines or lines[-1] != last:
            wrong += 1
            print(f"{claim}: exit {got_code} and {lines} where exit {code} and '{last}' were due")
    _, lines = report([entry("p", "OK"), entry("q", "SKIP", "no torch here\n")])
    if lines[0] != "skipped: q: no torch here":
        wrong += 1
        print(f"a skip's reason is printed: {lines}")
    missing = subprocess.run([sys.executable, REPORT, "/nowhere.json"], capture_output=True, text=True, check=False)
    if missing.returncode != 1 or missing.stdout.splitlines()[-1] != "0 passed, 0 failed":
        wrong += 1
        print(f"a log that is not there is no success: {missing.stdout} {missing.stderr}")
    print(f"{len(CASES) + 2} made-up logs, {wrong} misread")
    return 1 if wrong else 0


sys.exit(main())
