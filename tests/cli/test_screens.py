"""Screens shown in docs/ have the words that are printed: commands are run again, and every line has its form. Figures,
units and times may differ; lines that depend on the processor or on figures are compared by their labels."""

import os
import re
import shutil
import subprocess
import sys
import unittest

from program import ProgramTest, environment

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Labels whose text is of fixed words; the text of others follows from figures, or from the processor.
FIXED = ("budget:", "fits:", "made:", "prices:", "speed:", "run:", "drive:", "plan:", "states:", "with", "memory",
         "links", "operators")
# Answers of a program that the demo could have called.
PLAYED = """#!{python}
import json, sys
words = sys.argv[1:]
lanes = {{"read": 2 << 20, "write": 1 << 20}}
if words[0] == "generate":
    print("static int x;\\n* y")
elif "--hash" in words:
    print("0123456789abcdef")
else:
    print(json.dumps({{
        "parameters": 11e6, "dtype": "bf16", "in_memory_bytes": 4 << 20, "instruction_count": 5, "step_seconds": 0.5,
        "run_seconds": 9.0, "link_bytes": lanes, "work_link_bytes": 9, "gradient_link_bytes": 9, "state_link_bytes": 9,
        "other_link_bytes": 9, "stream_bytes": 9, "peak_bytes": {{"device": 1 << 20}},
        "predicted_peak_bytes": {{"device": 1 << 20}}, "seconds": 1.0, "predicted_step_seconds": 0.5,
        "exposed_seconds": {{"read": 0.1, "write": 0.1}}, "store_direct": True, "store": "io_uring fixed",
        "overhead_bytes": 1, "validation_windows": 3, "validation_windows_total": 3, "validation_loss": 1.0,
        "unigram_entropy": 3.0}}))
"""


def form(line):
    """A line without its figures: N a number or a hash, U a unit of bytes, T one of time."""
    line = re.sub(r"\b[0-9a-f]{16}\b|\d[\d.,]*", "N", line)
    line = re.sub(r"\b(?:[KMGT]i)?B\b", "U", line)
    line = re.sub(r"\b(?:s|ms|us|min|h|days?)\b", "T", re.sub(r"N h N min|N min N s|N days? N h", "N s", line))
    return " ".join(line.split())


def paragraphs(lines):
    """Lines with those that go on from them, and end with blanks at the start."""
    found = []
    for line in lines:
        if line.startswith("    ") and found:
            found[-1] += " " + line.strip()
        elif line.strip():
            found.append(line.rstrip())
    return found


def block(page, begin):
    """The lines of the indented block of docs/PAGE that has a line `$ begin...`, from the line after that on."""
    with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as file:
        lines = file.read().splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("$ " + begin))
    indent = len(lines[at]) - len(lines[at].lstrip())
    end = next(i for i in range(at, len(lines)) if lines[i].strip() and not lines[i].startswith(" " * indent))
    return lines[at].strip()[2:], [line[indent:] for line in lines[at + 1:end]]


class Screens(ProgramTest):
    maxDiff = None

    def compare(self, shown, printed):
        """The shown lines are among the printed ones, in order; "..." stands for what is left out."""
        shown, printed = ([(p.split()[0], form(p)) for p in paragraphs(lines)] for lines in (shown, printed))
        for label, text in shown:
            if label == "...":
                break
            while printed and printed[0][0] != label:
                self.assertNotIn(printed.pop(0)[0], {each for each, _ in shown}, f"in another order than {label}")
            self.assertTrue(printed, f"no line is printed that begins with {label}")
            found = printed.pop(0)[1]
            if label in FIXED:
                self.assertEqual(text, found)

    def test_the_screens_of_a_plan(self):
        plan = self.path("plan.json")
        for begin, more in (("cohobate plan gpt2 --vocabulary", ["-o", plan]), ("cohobate simulate plan.json", []),
                            ("cohobate explain plan.json", [])):
            with self.subTest(begin=begin):
                command, shown = block("planning.md", begin)
                words = [plan if word == "plan.json" else word for word in command.split()[1:]] + more
                done = self.succeeds(*words)
                printed = done.out.splitlines()
                if begin.startswith("cohobate explain"):
                    (rows, shown), (found, printed) = map(self.alternatives, (shown, printed))
                    self.assertEqual(rows, found)
                self.compare(shown, printed)

    @staticmethod
    def alternatives(lines):
        """Of an explained operator: what its decisions were called, and the other paragraphs."""
        at = next(i for i, line in enumerate(lines) if line.startswith("with one decision"))
        rows = [line.split()[0] for line in lines[at + 1:] if re.match(r"[\w.]+=\w+ ", line)]
        return rows, lines[:1] + [line for line in lines[at:] if line.split() and line.split()[0] not in rows]

    def test_the_output_of_the_demo(self):
        scripts, played = self.path("scripts"), self.write("played", PLAYED.format(python=sys.executable))
        os.makedirs(scripts)
        shutil.copy(os.path.join(ROOT, "scripts", "demo-run"), scripts)
        os.chmod(played, 0o755)
        done = subprocess.run([sys.executable, os.path.join(scripts, "demo-run"), "--threads", "2"], check=False, text=True,
                              capture_output=True, env=environment(COHOBATE=played))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(ROOT, "docs", "using.md"), encoding="utf-8") as file:
            page = file.read()
        shown = page[page.index("    Text: "):]
        shown = [line[4:] for line in shown[:shown.index("\n\nThe generated sample")].splitlines()]
        self.assertEqual(*map(self.of_demo, (shown, done.stdout.splitlines())))

    @staticmethod
    def of_demo(lines):
        """Forms of the lines, commands in one line each, without the generated text."""
        text = re.sub(r" \\\n +", " ", "\n".join(lines))
        text = re.sub(r"(\$ cohobate generate .*)\n(?:.+\n)+", r"\1\n", text)
        return [form(line) for line in text.splitlines() if line]


if __name__ == "__main__":
    unittest.main()
