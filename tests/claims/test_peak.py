"""The program's report of its memory is true: the kernel's count for the process (VmHWM) is within arenas and printed
overhead, the smallest budget runs, with a page less it exits 3 and names what fits, a replayed plan runs in its own
peak and not in a page less.

Run as test_peak.py COHOBATE"""

import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))

from program import NANO, ProgramTest, start  # noqa: E402

PAGE = 4096
MIB = 1 << 20
OVERHEAD_MOST = 128 * MIB
MODEL = [*NANO, "--micro-batch", 1, "--steps", 3]


class Peak(ProgramTest):
    def train_measured(self, *flags):
        """Runs train; returns (result, the kernel's ru_maxrss of that process in bytes)."""
        process = start("train", *MODEL, "--data", self.corpus(), "--json", "--save", "none", *flags)
        with process.stdout, process.stderr:
            out, err = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, err.decode())
        return json.loads(out), usage.ru_maxrss * 1024

    def plan(self, *flags):
        return self.succeeds("plan", *MODEL, "--json", *flags).json

    def check_process(self, name, result, kernel_peak):
        arenas = result["peak_bytes"]["device"] + result["peak_bytes"]["host"]
        self.assertEqual(result["peak_bytes"], result["predicted_peak_bytes"], name)
        print(f"figure: {name}: {kernel_peak / MIB:.1f} MiB in all, arenas {arenas / MIB:.1f}")
        self.assertLessEqual(result["overhead_bytes"], OVERHEAD_MOST, name)
        # The overhead is printed before the process ends: exit takes a page table or two, not more.
        self.assertLessEqual(kernel_peak, arenas + result["overhead_bytes"] + MIB, name)

    def test_the_process_holds_its_arenas_and_the_printed_overhead(self):
        quarter = f"{self.plan()['in_memory_bytes'] // 4096}KiB"
        for name, flags in (("in memory", []), ("25 %, disk", ["--device-memory", quarter, "--disk", self.folder]),
                            ("25 %, emulated host", ["--device-memory", quarter, "--emulate-host", "1GiB"]),
                            ("25 %, both", ["--device-memory", quarter, "--emulate-host", "50MiB", "--disk",
                                            self.folder])):
            self.check_process(name, *self.train_measured(*flags))

    def test_the_smallest_budget_runs_and_a_page_less_exits_3(self):
        disk = ["--disk", self.folder]
        smallest = self.plan(*disk)["smallest_device_bytes"]
        self.check_process("smallest, disk", *self.train_measured("--device-memory", f"{smallest}B", *disk))
        for command in ("plan", "train"):
            data = ["--data", self.corpus(), "--save", "none"] if command == "train" else []
            done = self.fails(3, command, *MODEL, *data, "--device-memory", f"{smallest - PAGE}B", *disk)
            self.assertEqual(re.findall(r"are (\d+) bytes short", done.err), [str(PAGE)], done.err)

    def test_without_a_far_tier_the_refusal_names_what_holds_the_run(self):
        whole = self.plan()["in_memory_bytes"]
        done = self.fails(3, "plan", *MODEL, "--device-memory", f"{whole // 8 // PAGE * PAGE}B", says="--disk")
        self.succeeds("plan", *MODEL, "--device-memory", re.search(r"raise --device-memory to (\S+)$", done.err.strip())[1])
        fits = whole // 8 // PAGE * PAGE + int(re.search(r"are (\d+) bytes short", done.err)[1])
        self.succeeds("plan", *MODEL, "--device-memory", f"{fits}B")
        self.fails(3, "plan", *MODEL, "--device-memory", f"{fits - PAGE}B")

    def test_a_replayed_plan_runs_in_its_peak_and_not_in_a_page_less(self):
        disk, written = ["--disk", self.folder], self.path("plan.json")
        planned = self.plan("--device-memory", "48MiB", *disk, "-o", written)
        peak = planned["peak_bytes"]["device"]
        plain, _ = self.train_measured("--device-memory", "48MiB", *disk)
        replay = ["--plan", written, *disk, "--device-memory"]
        result, kernel_peak = self.train_measured(*replay, f"{peak}B")
        self.check_process("replayed", result, kernel_peak)
        self.assertEqual(result["peak_bytes"]["device"], peak)
        self.assertEqual(result["program_hash"], planned["program_hash"])
        self.assertEqual(result["hash"], plain["hash"])
        done = self.fails(3, "train", *MODEL, "--data", self.corpus(), "--save", "none", *replay, f"{peak - PAGE}B")
        self.assertIn(str(peak), done.err)


if __name__ == "__main__":
    unittest.main()
