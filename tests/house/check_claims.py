"""Runs scripts/claims on a folder of made-up claims: checks what its report keeps, and how its time limit ends
programs."""

import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

CLAIMS = sys.argv.pop(1)
HEADS = "9-1 A first claim.\n9-2 A second one.\n9-2b One between.\n"
OLD = """# What holds, and what does not

## 9.1 A first claim.

| claim | command | outcome | figure | date |
|---|---|---|---|---|
| One. | `scripts/claims.d/9-1-one` | met | 3 of 3; 4 s | 2026-01-02 |
"""


def script(body, *headers):
    return "\n".join(["#!/bin/sh", "# claim: One.", *headers, body, ""])


class Claims(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="cohobate-claims-")
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.status = os.path.join(self.folder, "status.md")
        self.write("claims", HEADS)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def claims(self, *arguments, code=0):
        done = subprocess.run([sys.executable, CLAIMS, "--claims", self.folder, "--status", self.status, *arguments],
                              capture_output=True, text=True, check=False, timeout=250)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def row(self, name):
        """(outcome, figure, date, commit)"""
        with open(self.status, encoding="utf-8") as file:
            lines = [line for line in file if f"`scripts/claims.d/{name}`" in line]
        self.assertEqual(len(lines), 1, name)
        return tuple(cell.strip() for cell in lines[0].strip().strip("|").split("|")[2:])

    def report(self):
        with open(self.status, encoding="utf-8") as file:
            return file.read()

    def test_the_last_line_is_the_figure_and_the_exit_code_the_outcome(self):
        for name, body in (("met", "echo so far; echo '5 of 5'"), ("open", "echo '4 of 5'; exit 1"),
                           ("unchecked", "echo 'no GPU here'; exit 77")):
            self.write(f"9-1-{name}", script(body))
        self.write("9-2-shown", script("echo 1.5", "# shown"))
        self.claims(code=1)
        self.assertEqual([self.row(f"9-{name}")[:2] for name in ("1-met", "1-open", "1-unchecked", "2-shown")],
                         [("met", "5 of 5"), ("**not met**", "4 of 5"), ("not checked", "no GPU here"), ("shown", "1.5")])
        date, commit = self.row("9-1-met")[2:]
        self.assertRegex(date, r"^\d{4}-\d\d-\d\d$")
        self.assertRegex(commit, r"^([0-9a-f]{7,}\+?|-)$")
        # 9-2b has no program, which counts
        self.assertIn("1 met, 1 shown (nothing is asked of them), 2 not met, 0 not finished, 1 not checked", self.report())

    def test_a_head_may_end_in_a_letter(self):
        self.write("9-2-one", script("echo plain"))
        self.write("9-2b-one", script("echo lettered"))
        self.claims("9-2b", code=0)
        self.assertEqual((self.row("9-2-one")[1], self.row("9-2b-one")[1]), ("not run yet", "lettered"))
        between = self.report().split("## 9.2b One between.")
        self.assertIn("9-2-one", between[0])
        self.assertIn("9-2b-one", between[1])
        self.write("9-3-one", script("true"))
        self.assertIn("does not name the claim of 9-3-one", self.claims(code=1))

    def test_a_claim_past_its_wall_is_ended_with_all_it_started(self):
        pid = os.path.join(self.folder, "pid")
        self.write("9-1-one", script(f"echo 'turn 1 of 9: 0.4'; sh -c 'trap \"\" TERM; echo $$ >{pid}; sleep 300' & sleep 300",
                                     "# wall: 1 s"))
        said = self.claims("9-1", code=1)
        self.assertIn("9-1-one: not finished: turn 1 of 9: 0.4 after 1 s", said)
        self.assertEqual(self.row("9-1-one")[:2], ("**not finished**", "not finished: turn 1 of 9: 0.4 after 1 s"))
        self.assertIn("2 not met, 1 not finished", self.report())  # two heads have no program
        with open(pid, encoding="utf-8") as file:
            orphan = f"/proc/{file.read().strip()}/stat"
        for _ in range(1000):
            if not os.path.exists(orphan):
                break
            with open(orphan, encoding="utf-8") as file:
                if ") Z " in file.read():
                    break
            time.sleep(0.05)
        else:
            self.fail("a process that the claim started is alive")

    def test_the_last_good_figure_outlives_bad_runs_and_leaves_with_a_good_one(self):
        with open(self.status, "w", encoding="utf-8") as file:
            file.write(OLD)  # without commits, as in old reports
        last = "; last met: 3 of 3; 4 s (2026-01-02, -)"
        self.write("9-1-one", script("echo '2 of 3'; exit 1"))
        self.claims("9-1", code=1)
        self.assertEqual(self.row("9-1-one")[:2], ("**not met**", "2 of 3" + last))
        self.write("9-1-one", script("echo 'turn 1'; exec sleep 300", "# wall: 1 s"))
        self.claims("9-1", code=1)
        self.assertEqual(self.row("9-1-one")[:2], ("**not finished**", "not finished: turn 1 after 1 s" + last))
        self.write("9-1-one", script("echo 'no compiler'; exit 77"))
        self.claims("9-1")
        self.assertEqual(self.row("9-1-one")[:2], ("not checked", "no compiler" + last))
        kept = self.row("9-1-one")
        self.write("9-1-one", script("echo '3 of 3'", "# slow"))
        self.claims("9-1")
        self.assertEqual(self.row("9-1-one"), kept)  # slow, and not requested
        self.claims("--slow", "9-1")
        self.assertEqual(self.row("9-1-one")[:2], ("met", "3 of 3"))
        good = self.row("9-1-one")
        self.write("9-1-one", script("exit 1"))
        self.claims("9-1", code=1)
        self.assertEqual(self.row("9-1-one")[1], f"no output; last met: 3 of 3 ({good[2]}, {good[3]})")

    def test_a_wall_that_is_no_time_is_refused(self):
        self.write("9-1-one", script("true", "# wall: soon"))
        self.assertTrue(re.search("9-1-one has '# wall: soon'", self.claims("--list", code=1)))


if __name__ == "__main__":
    unittest.main()
