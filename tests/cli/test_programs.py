"""The programs of recorded plans: a change that is not meant to change programs changes none of their hashes.

    test_programs.py PATH-OF-COHOBATE [--record]

programs.json has a row per plan: the arguments and the program's hash. `--record` writes the present hashes; the commit
that does so explains each change. Plans use written profiles or f32, so that no hash depends on the processor. A short
run takes every fourth, from the second on: the first of four are those that take longest."""

import json
import os
import re
import sys
import unittest

RECORD = "--record" in sys.argv and not sys.argv.remove("--record")

from program import SHORT, ProgramTest, run  # pylint: disable=wrong-import-position

ROWS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs.json")


def rows():
    with open(ROWS, encoding="utf-8") as file:
        return json.load(file)


def planned(arguments):
    done = run("plan", *arguments.replace("@DISK", os.environ.get("TMPDIR", "/tmp")).split(), "--json")
    return done.json["program_hash"] if done.code == 0 else done.err.strip().split("\n")[-1]


class Programs(ProgramTest):
    def test_recorded_programs_are_reproduced(self):
        for arguments, recorded in rows()[1::4] if SHORT else rows():
            with self.subTest(arguments=arguments):
                self.assertEqual(planned(arguments), recorded)

    def test_the_screen_of_the_documentation_is_of_the_present_plan(self):
        with open(os.path.join(os.path.dirname(ROWS), "..", "..", "docs", "planning.md"), encoding="utf-8") as file:
            screen = file.read().split("    $ cohobate plan ")[1].split("\n\n|")[0]
        told = re.search(r"program\s+([0-9a-f]{16})", screen)[1]
        self.assertEqual(planned(screen.split("\n")[0].replace("/var/tmp", "@DISK") + " --calibration none"), told)


def record():
    lines = [json.dumps([arguments, planned(arguments)]) for arguments, _ in rows()]
    with open(ROWS, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    if RECORD:
        record()
    else:
        unittest.main()
