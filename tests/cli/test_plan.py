"""cohobate plan: a plan on one screen, the same as JSON, and the limit of writes to a drive."""

import json
import math
import os
import re
import unittest

from program import COHOBATE, QUICK, SHORT, NANO, TINY, ProgramTest, environment, in_full, on_any_processor, pairs, run, sealed
from screen import Terminal

TIERS = ["device", "host", "disk"]
# In short a search that decides less, where other decisions are tested.
FEWER = ["--recompute", "all"] if SHORT else []


class Plan(ProgramTest):
    def disk(self):
        return ["--device-memory", "40MiB", "--disk", self.folder]

    def plan(self, *flags):
        return self.succeeds("plan", *NANO, "--json", *flags).json

    def screen_and_object(self, *plan):
        """The screen of a plan, and the object of its file: one search for both."""
        kept = self.path("kept.json")
        said = self.succeeds(*plan, "-o", kept).out
        return said, self.succeeds(*plan, "--plan", kept, "--json").json

    def object_and_screen(self, *plan):
        """The object of a plan, and the screen of its file, which has no hints: they take several searches."""
        kept = self.path("kept.json")
        made = self.succeeds(*plan, "--json", "-o", kept).json
        return made, self.succeeds(*plan, "--plan", kept).out

    def test_a_refusal_names_all_budgets_that_are_too_small(self):
        for small in (["--disk", self.folder + ":2MiB"], ["--emulate-host", "4MiB"], ["--emulate-host", "4MiB", "--disk", self.folder + ":3MiB"],
                      ["--disk", self.folder, "--disk-write-limit", "1GB/day"]):
            with self.subTest(small=small):
                plan = ["plan", *TINY, "--device-memory", "64KiB", *small]
                enough = self.fails(3, *plan, says="; enough is --device-memory ").err.split("; enough is ")[1].replace("DIR", self.folder).split()
                kept = [word for flag, value in zip(plan[-len(small)::2], plan[1 - len(small)::2]) if flag not in enough for word in (flag, value)]
                self.succeeds("plan", *TINY, *kept, *enough)
                self.assertGreaterEqual(len(enough), 4)
        one = ["plan", *TINY, "--device-memory", "1MiB"]  # a bound comes first, then what a plan takes
        enough = self.fails(3, *one, "--emulate-host", "4MiB", says="; enough is --emulate-host ").err.split()[-1]
        self.succeeds(*one, "--emulate-host", enough)
        self.assertNotIn("enough is --", self.fails(3, "plan", *TINY, "--device-memory", "64KiB").err)
        gpu = ["plan", "gpt2-nano", "--search", "quick", "--calibration", "none", "--sequence", 32, "--batch", 1, "--disk", "none",
               "--profile", "rtx-4090,device-memory=40MiB,host-memory=40MiB"]  # the host's memory is the profile's
        enough = self.fails(3, *gpu, says="; enough is --host-memory ").err.split()[-1]
        self.succeeds(*gpu, "--host-memory", enough)

    def test_budgets_that_are_enough_fit_as_they_are_printed(self):
        model, device, disk = ("gpt2-pico", "800KiB", "6MiB") if SHORT else ("gpt2-nano", "4MiB", "300MiB")
        plan = ["plan", model, "--threads", 1, "--device-memory", device, "--disk-write-limit", "1GB/day"]
        for search in ("quick", "usual"):
            said = self.fails(3, *plan, "--disk", f"{self.folder}:{disk}", "--search", search, says="; enough is --device-memory ").err
            enough = said.split("; enough is ")[1].split()
            self.assertRegex(enough[-1], r"^(\d{1,3}(\.\d+)?[MG]|\d+(\.\d+)?T)B/day$")
            self.succeeds(*plan, "--search", search, *(word.replace("DIR", self.folder) for word in enough))

    def test_the_screen_has_at_most_40_lines_of_100_columns(self):
        deep = self.path("a" * 90)
        os.mkdir(deep)
        for flags in ([], ["--lora", "4"], ["--profile", "rtx-4090,pcie=gen3,host-memory=60MiB", "--device-memory", "40MiB", *FEWER],
                      *pairs(self.disk(), ["--sequence", "256", "--batch", "8", "--micro-batch", "1", *self.disk()],
                             ["--device-memory", "40MiB", "--disk", deep])):
            with self.subTest(flags=flags):
                lines = self.succeeds("plan", *NANO, *flags).out.rstrip("\n").split("\n")
                self.assertLessEqual(len(lines), 40)
                self.assertLessEqual(max(map(len, lines)), 100)
                for word in ("model:", "budget:", "fits:", "prices:", "speed:", "limit:", "memory ", "links ",
                             "operators ", "plan:"):
                    self.assertEqual(sum(line.startswith(word) for line in lines), 1, word)

    @on_any_processor
    def test_a_screen_with_all_hints_has_at_most_40_lines(self):
        # either has more lines if room is kept for three lines of hints
        step = ["gpt2", "--device-memory", "500MB", "--host-memory", "1GB", "--sequence", 64, "--batch", 10, "--sweep-order",
                "micro-batch", *FEWER] if SHORT else ["llama-3.1-8b", "--sequence", 192, "--batch", 16]
        said = self.succeeds("plan", *step, "--profile", "rtx-4090", "--calibration", "none", "--search", "quick").out.rstrip("\n").split("\n")
        self.assertLessEqual(len(said), 40)
        for label in ("states:", "both:", "tokens:", "batch:"):
            self.assertEqual(sum(line.startswith(label) for line in said), 1, label)

    SUMMARY = ("model:", "dtype:", "budget:", "fits:", "prices:", "speed:", "run:", "limit:", "repeat:", "drive:")
    HINTS = ("states:", "both:", "clip:", "order:", "tokens:", "batch:", "try:")
    STEP_WITH_HINTS = ("plan", "gpt2-pico", "--threads", 2, "--sequence", 32, "--batch", 11, "--dtype", "f32", "--search", "quick",
                       "--device-memory", "3MiB")

    def test_waits_that_name_another_lane_than_the_limit_are_explained(self):
        """A wait counts for the last lane of a chain. The report follows the chain: its main cause is a lane of the limit."""
        lanes = {"h2d and d2h": {"h2d", "d2h"}, "read and write": {"read", "write"}}
        small = ["--search", "quick", "--device-memory", "10MiB", "--dtype", "f32"]
        far = ["--emulate-host", "20MiB", "--disk", self.folder]
        cases = [([*small, *far], True), ([*small, *far[2:]], False), ([*small, "--emulate-host", "1GiB"], False),
                 ([*small, "--emulate-host", "1GiB", "--link-rate", "100MB/s"], False), ([], False)]
        kept, report = self.path("kept.json"), self.path("report.json")
        for flags, is_explained in cases:
            with self.subTest(flags=flags):
                said = self.succeeds("plan", *NANO, *flags, "-o", kept).out
                waits = re.findall(r"(?m)^(\w+) .*; it waits, see limit$", said)
                made = self.succeeds("plan", *NANO, *flags, "--json").json
                exposed, busy = made["exposed_seconds"], made["busy_seconds"]
                longest = max(exposed, key=exposed.get, default=None)
                limit = re.search(r"(?m)^limit:  ([a-z0-9 ]+)", said)[1].strip()
                is_other = limit in {*lanes, *exposed} and exposed[longest] > busy[longest] and longest not in lanes.get(limit, {limit})
                self.assertEqual((waits, is_other), ([longest] if is_explained else [], is_explained), said)
                if is_explained:
                    self.succeeds("plan", *NANO, *flags, "--plan", kept, "--report", report)
                    with open(report, encoding="utf-8") as file:
                        self.assertIn(json.load(file)["causes"][0]["lane"], lanes[limit])

    def test_hints_are_the_last_lines_above_the_tables(self):
        plan = [*self.STEP_WITH_HINTS, "--disk", self.folder]
        lines = self.succeeds(*plan).out.split("\n")
        summary = [line.split()[0] for line in lines[:lines.index("")] if not line.startswith(" ")]
        self.assertEqual(summary, [label for label in (*self.SUMMARY, *self.HINTS) if label in summary])
        self.assertGreaterEqual(len(set(summary) & set(self.HINTS)), 2)
        for line in lines[lines.index(""):]:
            self.assertFalse(line.startswith(self.HINTS), line)

    def test_lines_of_prose_are_as_wide_as_the_terminal_and_tables_are_whole(self):
        plan = [*self.STEP_WITH_HINTS, "--disk", self.folder]
        usual = self.succeeds(*plan).out
        tables = usual[usual.index("\n\n"):usual.index("\nplan: ")]
        for columns, wanted in pairs((72, 72), (120, 100), (25, 40)) if SHORT else ((40, 40), (25, 40), (72, 72), (120, 100)):
            terminal = Terminal(COHOBATE, *map(str, plan), columns=columns, rows=60, COH_CALIBRATION="none")
            self.assertEqual(terminal.wait(), 0)
            shown = terminal.shown.decode().replace("\r", "")
            shown = shown[shown.index("model:"):]
            piped = self.succeeds(*plan, env=environment(COLUMNS=str(columns))).out  # as watch sets it
            for said in (shown, piped):
                with self.subTest(columns=columns):
                    self.assertEqual(" ".join(said.split()), " ".join(usual.split()))
                    self.assertIn(tables, said)
                    prose = said.replace(tables, "")
                    self.assertEqual([line for line in prose.split("\n") if len(line) > wanted], [])
                    self.assertEqual(usual == said, wanted == 100)
        text = self.write("whole.txt", "Six whole sequences. " * 4 + "One id more.\n")  # notes are not wrapped: without one of a tail
        train = ["train", *NANO, "--data", text, "--steps", 1, "--save", "none", *self.disk()]
        terminal = Terminal(COHOBATE, *map(str, train), columns=40, rows=60, COH_CALIBRATION="none")
        self.assertEqual(terminal.wait(), 0)
        lines = [line.split("\033[K")[-1] for line in terminal.shown.decode().split("\r\n")]
        whole = [line for line in lines if self.folder in line]  # a path
        self.assertGreater(len(whole), 0)
        longer = [line for line in lines if len(line) > 40]  # a word that does not fit: a path, the name of a kernel
        self.assertEqual([line for line in longer if " " in line[len("kernel: "):].strip()], [])
        self.assertEqual(terminal.screen.wrapped, sum((len(line) - 1) // 40 for line in longer))
        self.assertGreater(max(map(len, self.succeeds(*train).err.split("\n"))), 100)  # one line, one fact, for a pipe

    def test_the_lines_of_explain_fit_a_screen(self):
        """All but the table, whose lines have at most 100 columns everywhere. The words stay the same."""
        plan = self.path("plan.json")
        self.succeeds("plan", *TINY, "--dtype", "f32", "--device-memory", "1500KiB", "--emulate-host", "3MiB", "--disk",
                      self.folder + ":1GB", "--calibration", "none", "--search", "quick", "--json", "-o", plan)
        for operator in ("wte", "h.1.mlp.c_fc"):  # one with alternatives that do not fit, and one with others
            usual = self.succeeds("explain", plan, operator).out
            self.assertLessEqual(max(map(len, usual.splitlines())), 100, usual)
            for columns in (40, 60, 90):
                said = self.succeeds("explain", plan, operator, env=environment(COLUMNS=str(columns))).out
                self.assertEqual(said.split(), usual.split())
                table = re.compile(r".* (?:device|-|[\d.]+ [KMG]?i?B)$")  # the last column: bytes of device memory
                for line in said.splitlines():
                    self.assertTrue(len(line) <= columns or (len(line) == 98 and table.match(line)), f"{columns}: {line}")

    def test_a_narrow_screen_is_filled_by_characters(self):
        """Each line of the budget has as many words as fit, and a word that is too long is cut between characters."""
        kept = self.path("kept.json")
        self.plan(*self.disk(), "-o", kept)
        for name in ("\u00e4" * 8, "\u00e4" * 30, "\u00e4" * 90):
            deep = self.path(name)
            os.mkdir(deep)
            said = self.succeeds("plan", *NANO, "--device-memory", "40MiB", "--disk", deep, "--plan", kept,
                                 env=environment(COLUMNS="60")).out
            budget = re.search(r"(?m)^budget: .*(\n {8}.*)*", said)[0].split("\n        ")
            self.assertIn(deep, "".join(budget))
            self.assertLessEqual(max(map(len, budget[1:]), default=0), 52)
            self.assertLessEqual(len(budget[0]), 60)
            for i, (line, following) in enumerate(zip(budget, budget[1:])):
                self.assertGreater(len(line) + 1 + len(following.split()[0]), 52 if i else 60)

    def test_columns_that_are_no_number_are_left_alone(self):
        plan = ["plan", *TINY, "--device-memory", "64MiB"]  # by default what is free at the moment
        usual = self.succeeds(*plan).out
        for columns in ("4294967336", "9223372036854775848", "40x", "-40", "0", "", "x"):
            self.assertEqual(self.succeeds(*plan, env=environment(COLUMNS=columns)).out, usual, columns)
        self.assertNotEqual(self.succeeds(*plan, env=environment(COLUMNS="40")).out, usual)

    @on_any_processor
    def test_a_model_whose_blocks_all_stand_otherwise_has_no_longer_screen(self):
        model, host, device = ("gpt2", "1GB", "400MiB") if SHORT else ("opt-2.7b", "16GB", "4GiB")
        done = self.succeeds("plan", model, *QUICK, *FEWER, "--profile", f"rtx-4090,host-memory={host}", "--device-memory", device,
                             "--sequence", "64", "--batch", "1")
        lines = done.out.rstrip("\n").split("\n")
        self.assertLessEqual(len(lines), 40)
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertIn("blocks ", done.out)

    @on_any_processor
    def test_the_columns_of_operators_cut_no_word_and_do_not_touch(self):
        """Where a row's activations go three ways, the columns of places give way."""
        said = self.object_and_screen("plan", "gpt2-medium", "--sequence", 1024, "--batch", 4, "--search", "quick", "--device-memory", "1GiB",
                                      "--state", "lean", "--clip-mode", "previous", "--profile",
                                      "rtx-4090,host-memory=64GB,host-memory-rate=1TB/s", "--calibration", "none")[1].split("\n")
        self.assertLessEqual(max(map(len, said)), 100)
        first = next(i for i, line in enumerate(said) if line.startswith("operators "))
        rows = said[first:said.index("", first)]
        starts = [rows[0].index(name) for name in ("pattern", "stored", "states", "activations")]
        for row in rows:
            for start in starts:
                self.assertRegex(row[start - 1:start + 1], r"^ \S$", row)
        ways = [row[starts[-1]:] for row in rows[1:]]
        self.assertLessEqual({way for name in ways for way in name.split("+")}, {"keep", "recompute", "again", "move"})
        self.assertIn("keep+recompute+move", ways)

    def test_a_quick_search_finds_a_placement_of_the_same_bits(self):
        flags = ["gpt2-nano", "--sequence", 16, "--batch", 2, "--threads", 2, *self.disk(), "--json", *FEWER]
        usual, quick = (self.succeeds("plan", *flags, "--search", search).json for search in ("usual", "quick"))
        self.assertLessEqual(usual["step_seconds"], quick["step_seconds"])
        self.assertNotEqual(usual["program_hash"], quick["program_hash"])
        self.assertEqual(usual["numeric_fingerprint"], quick["numeric_fingerprint"])
        self.fails(2, "plan", "gpt2-nano", "--search", "long", says="usual|quick|thorough")

    def test_a_thorough_search_goes_on_from_the_usual_one(self):
        flags = ["gpt2-pico", "--sequence", 16, "--batch", 4, "--threads", 2, "--device-memory", "1536KiB", "--disk", self.folder, "--json",
                 "--calibration", "none", "--profile", "built-in-2", "--dtype", "f32"]
        usual, thorough = (self.succeeds("plan", *flags, "--search", search).json for search in ("usual", "thorough"))
        self.assertLessEqual(thorough["step_seconds"], usual["step_seconds"])
        self.assertNotEqual(usual["program_hash"], thorough["program_hash"])  # with these flags it finds a faster one
        self.assertEqual(usual["numeric_fingerprint"], thorough["numeric_fingerprint"])

    def test_the_screen_of_a_quick_search_says_so_if_it_could_be_faster(self):
        flags, path = ["gpt2-nano", "--sequence", 16, "--batch", 2, "--threads", 2, *FEWER], self.path("plan.json")
        for search, tiers, says in (("quick", self.disk(), 1), ("usual", [*self.disk(), "-o", path], 0), ("quick", [], 0),
                                    ("quick", [*self.disk(), "--plan", path], 0)):
            with self.subTest(search=search, tiers=tiers):
                said = self.succeeds("plan", *flags, *tiers, "--search", search).out
                self.assertEqual(said.count(" instructions in the step, found by the quick search, chunks of at most "), says)

    def test_the_screen_says_what_the_object_says(self):
        flags = [*self.disk(), "--dtype", "f32"]  # the size of the chunks follows from it
        said, planned = self.succeeds("plan", *NANO, *flags).out, self.plan(*flags)
        rate = float(re.search(r"speed:  ([\d.]+) tokens/s", said)[1])
        self.assertAlmostEqual(rate, planned["batch"] * planned["sequence"] / planned["step_seconds"], delta=rate / 1e3)
        self.assertRegex(said, rf"limit:  (transfer )?{planned['binding']}( \(|: )")
        self.assertEqual(planned["chunk_bytes"], 2**18)
        self.assertIn("chunks of at most 256.00 KiB, ", said)
        self.assertIn(f"program {planned['program_hash']}", said.replace("\n        ", " "))
        self.assertIn(f"({planned['smallest_device_bytes']} bytes", said.replace("\n        ", " "))

    def test_a_chunk_size_that_is_printed_is_the_one_that_is_used(self):
        """64 KiB hold the 16,384 f32 numbers of a grain, which no chunk cuts (docs/numerics.md)."""
        plan = ["plan", *NANO, *self.disk()]
        for given, used in (*pairs(("64KiB", "64.00 KiB"), ("100000B", "64.00 KiB")), ("1MiB", "1.00 MiB")):
            kept = self.path("kept.json")
            done = self.succeeds(*plan, "--chunk", given, "--json", "-o", kept)
            self.assertIn(f"chunks of at most {used}, ", self.succeeds(*plan, "--plan", kept).out)
            self.assertEqual(done.json["chunk_bytes"], 2**20 if given == "1MiB" else 2**16)
            note = "note: --chunk 100000B is rounded down to 64KiB: chunks are multiples of 64KiB\n"
            self.assertEqual(done.err.count("rounded down"), given == "100000B")
            self.assertIn(note if given == "100000B" else "", done.err)
        # in memory nothing moves, in no unit
        for flags in ([], ["--chunk", "1MiB"]):
            done = self.succeeds("plan", *NANO, *flags, "-o", self.path("plan.json"))
            self.assertNotIn("chunk", done.out)
            self.assertNotIn("chunk", self.succeeds("inspect", self.path("plan.json")).out)

    def test_a_plan_that_runs_most_of_forward_again_says_what_memory_ends_that(self):
        plan = ["plan", "gpt2-nano", *QUICK, "--sequence", "64", "--batch", "8", "--threads", "2", "--dtype", "f32", "--disk", self.folder,
                "--profile", "built-in-2,disk-read=0.02x,disk-write=0.02x"]
        tight = [*plan, "--device-memory", "30MiB"]
        planned = self.succeeds(*tight, "--json").json
        found = planned["recompute"]
        self.assertGreater(found["of_forward"], 0.5)
        self.assertAlmostEqual(found["seconds"], found["of_step"] * planned["step_seconds"], delta=1e-6)
        compute = next(limit["seconds"] for limit in planned["limits"] if limit["name"] == "compute")
        self.assertAlmostEqual(found["seconds"], found["of_compute"] * compute, delta=1e-6)
        enough = found["end_device_bytes"]
        ended = self.succeeds(*plan, "--device-memory", f"{enough}B", "--json").json["recompute"]
        self.assertLessEqual(ended["of_forward"], 0.5)
        self.assertAlmostEqual(ended["of_forward"], found["end_of_forward"], delta=1e-9)
        self.assertIsNone(ended["end_device_bytes"])
        said = self.succeeds(*tight).out.replace("\n        ", " ")
        line = re.search(r"(?m)^repeat: (\d+) % of the forward pass runs again .*; with --device-memory (\S+) .*?(\d+) % would$", said)
        self.assertEqual([round(100 * found["of_forward"]), round(100 * found["end_of_forward"])], [int(line[1]), int(line[3])])
        self.assertEqual(line[2], f"{enough >> 20}MiB")
        self.assertNotIn("repeat:", self.succeeds(*plan, "--device-memory", f"{enough}B").out)
        small = [*plan[:-4], "--profile", "rtx-4090,device-memory=60MiB,pcie=100MB/s"]  # no more than the GPU has
        self.assertRegex(self.succeeds(*small).out, r"(?m)^repeat: .* of the step\)$")
        self.assertIsNone(self.succeeds(*small, "--json").json["recompute"]["end_device_bytes"])
        asked = self.succeeds("plan", *NANO, "--recompute", "all", "--json").json["recompute"]
        self.assertGreater(asked["of_forward"], 0.5)
        self.assertIsNone(asked["end_device_bytes"])

    @on_any_processor
    def test_a_host_lane_that_lags_behind_backward_updates_first_what_the_next_step_needs_first(self):
        sequence = ["--sequence", 128, *FEWER] if SHORT else ["--sequence", 512]
        plan = self.succeeds("plan", "opt-125m", "--profile", "h200,host-memory=64GB,host-memory-rate=1TB/s", "--calibration", "none", *sequence,
                             "--batch", 16, "--micro-batch", 16, "--dtype", "bf16", "--state", "split", "--clip-mode", "previous",
                             "--device-memory", "935MiB" if SHORT else "950MiB", "-o", self.path("plan.json"), "--json").json
        with open(self.path("plan.json"), encoding="utf-8") as file:
            self.assertGreater(json.load(file)["decisions"]["late"], 0)
        self.assertEqual(plan["binding"], "host window")
        self.assertLess(plan["step_seconds"], 1.1 * plan["limits"][0]["seconds"])

    @on_any_processor
    def test_a_bound_of_all_decisions_above_the_limit_is_called_closer(self):
        of = ["plan", "gpt2-nano", "--search", "quick", "--threads", 2, "--dtype", "f32", "--calibration", "none",
              "--sequence", 64, "--disk", self.folder]
        for flags, is_closer in ((["--device-memory", "40MiB", "--profile", "built-in-2"], True),
                                 (["--device-memory", "60MiB", "--profile", "built-in-2,disk-read=0.05x,disk-write=0.05x"], False)):
            with self.subTest(flags=flags):
                plan, said = self.object_and_screen(*of, *flags)
                self.assertEqual(plan["bound_seconds"] > plan["limits"][0]["seconds"], is_closer)
                said = " ".join(said.split())
                self.assertIn("; by a closer bound no decisions go below " if is_closer else "; no decisions go below ", said)

    def test_the_dtype_of_a_gpus_plan_names_the_other_one_and_its_gain(self):
        for dtype, says in (("bf16", "bf16 (--dtype f32 for full precision)"),
                            ("f32", "f32 (full precision; --dtype bf16 takes less memory)")):
            self.assertIn(f"dtype:  {says}\n", self.succeeds("plan", *NANO, "--profile", "h100", "--dtype", dtype).out)

    @on_any_processor
    def test_a_limit_whose_name_says_little_is_put_in_words(self):
        of = ["plan", "gpt2-nano", "--search", "quick", "--threads", "2", "--dtype", "f32", "--calibration", "none", "--sequence", 64]
        drive = ["--disk", self.folder, "--profile"]
        cases = {"phase": (["--device-memory", "120MiB", *drive, "built-in-2,disk-read=0.2x,disk-write=0.2x"],
                           "part of the step waits for the transfer of more bytes than memory holds at once"),
                 "update phase": (["--device-memory", "60MiB", *drive, "built-in-2,disk-read=0.5x,disk-write=0.5x"],
                                  "the first forward waits for the states of all updates"),
                 "host window": (["--device-memory", "60MiB", "--emulate-host", "1GiB", "--link-rate", "200MB/s"],
                                 "the updates of the host fit only between gradients and the next forward")}
        for name, (flags, words) in cases.items():
            with self.subTest(limit=name):
                shown = "transfer phase" if name == "phase" else name
                made, said = self.object_and_screen(*of, *flags)
                self.assertIn(f"limit: {shown} ({words}): no schedule ", " ".join(said.split()))
                self.assertEqual(made["binding"], name)  # programs read it
                if SHORT and shown == name:
                    continue
                table = self.succeeds("plan", "--max", "gpt2-nano", *of[2:], *flags).out
                self.assertIn(f", limit {shown}", " ".join(table.split()))
                table = self.succeeds(*of, *flags, "--what-if", "device-memory=4GiB").out.split("\n")
                self.assertIn(f" {shown} ", table[1])

    @on_any_processor
    def test_the_screen_of_a_slow_default_names_what_helps_with_the_figures_of_those_plans(self):
        slow = ["plan", "llama-3.1-8b", "--profile", "rtx-4090", "--calibration", "none", "--search", "quick", *FEWER]
        slow += ["--chunk", "512MiB"] if SHORT else []
        said, usual = self.screen_and_object(*slow)
        self.assertGreater(usual["disk_bytes_written"], 0)
        for label, flags in (("states: 8-bit moments (--state lean):", ["--state", "lean"]),
                             ("both:   --state lean --clip-mode previous:", ["--state", "lean", "--clip-mode", "previous"])):
            share = float(re.search(re.escape(label) + r" a quick plan takes \S+ \S+, (0\.\d\d) of this one; drive unused", said)[1])
            alone = self.succeeds(*slow, *flags, "--json").json
            self.assertAlmostEqual(alone["step_seconds"] / usual["step_seconds"], share, delta=0.006)
            self.assertEqual(alone["disk_bytes_written"], 0)
        rate, times = re.search(r"tokens: a quick plan of more of them \(--sequence 2048\) trains (\d+) tokens/s, ([\d.]+) times", said).groups()
        alone = self.succeeds(*slow, "--sequence", "2048", "--json").json
        self.assertAlmostEqual(alone["tokens_per_second"], float(rate), delta=1)
        self.assertAlmostEqual(alone["tokens_per_second"] / usual["tokens_per_second"], float(times), delta=0.06)
        # a given sequence is kept, and another batch tried
        given = [*slow, "--sequence", "512", "--clip-mode", "exact", "--state", "lean", "--host-memory", "32GB"]
        if SHORT:
            given = ["plan", "gpt2", *slow[2:8], "--sequence", "256", "--clip-mode", "exact", "--state", "lean", "--device-memory", "600MB",
                     "--host-memory", "700MB", "--sweep-order", "micro-batch", *FEWER]
        said = self.succeeds(*given).out
        self.assertNotIn("--sequence", said)
        rate = re.search(r"tokens: a quick plan of more of them \(--batch 32\) trains (\d+) tokens/s", said)[1]
        alone = self.succeeds(*given, "--batch", "32", "--json").json
        self.assertGreaterEqual(alone["tokens_per_second"], float(rate) * 0.99)

    @on_any_processor
    def test_both_changes_are_named_only_if_they_are_better_than_each_alone(self):
        step = ["plan", "gpt2", "--profile", "rtx-4090", "--calibration", "none", "--device-memory", "1100MB", "--host-memory", "1000MB",
                "--sequence", "1024", "--search", "quick", *FEWER]
        said, usual = self.screen_and_object(*step)
        lean, previous = ["--state", "lean"], ["--clip-mode", "previous"]
        shares = [self.succeeds(*step, *flags, "--json").json["step_seconds"] / usual["step_seconds"]
                  for flags in (lean, previous, lean + previous)]
        self.assertLess(shares[2], 0.95 * shares[0])  # better than states alone, and hardly better than the clipping alone
        self.assertGreater(shares[2], 0.95 * shares[1])
        self.assertNotIn("both:", said)
        share = float(re.search(r"clip: .* \(--clip-mode previous\) a quick plan takes .*, (0\.\d\d) of this one", said)[1])
        self.assertAlmostEqual(shares[1], share, delta=0.006)

    def test_a_step_too_long_to_compare_names_what_to_try(self):
        long = ["plan", "gpt2-nano", "--sequence", "16", "--batch", "128", "--micro-batch", "1", "--device-memory", "30MiB",
                "--disk", self.folder, "--search", "quick", "--dtype", "bf16"]
        said, plan = self.screen_and_object(*long)
        operators = len(self.succeeds(*long, "--operators", "--json").json["operators"])
        self.assertIn("try: --state lean --clip-mode previous --sweep-order layer, perhaps faster "
                      f"(not compared: {128 * operators} calls of operators in a step)", " ".join(said.split()))
        lean = self.succeeds(*long, "--state", "lean").out
        self.assertIn("try: --clip-mode previous --sweep-order layer, perhaps", " ".join(lean.split()))
        known = [*long, "--state", "lean", "--clip-mode", "previous"]
        self.assertIn("try:    --sweep-order layer, perhaps", self.succeeds(*known).out)
        self.assertNotIn("try:", self.succeeds(*known, "--sweep-order", "layer").out)

    @on_any_processor
    def test_the_screen_says_what_a_user_would_try_next(self):
        of = ["--profile", "rtx-4090", "--calibration", "none", *FEWER]
        model, device, host = ("gpt2", "700MB", "1800MB") if SHORT else ("gpt2-xl", "6GB", "16GB")
        lean = ["plan", model, *of, "--device-memory", device, "--host-memory", host, "--sequence", "512", "--state", "lean",
                "--search", "quick"]
        said, exact = self.screen_and_object(*lean)
        share = float(re.search(r"\(--clip-mode previous\) a quick plan takes .*, (0\.\d\d) of this one", said)[1])
        without, previous = self.screen_and_object(*lean, "--clip-mode", "previous")
        self.assertAlmostEqual(previous["step_seconds"] / exact["step_seconds"], share, delta=0.006)
        self.assertNotIn("clip-mode", without)
        tied = ["plan", "gpt2", *of, "--device-memory", "600MB", "--host-memory", "16GB", "--sequence", "256", "--batch", "8",
                "--clip-mode", "previous", "--search", "quick", "--micro-batch"]
        said, usual = self.screen_and_object(*tied, "2")
        share = float(re.search(r"\(--sweep-order layer, other rounding\) a quick plan takes .*, (0\.\d\d) of this one", said)[1])
        layer = self.succeeds(*tied, "2", "--json", "--sweep-order", "layer").json
        self.assertAlmostEqual(layer["step_seconds"] / usual["step_seconds"], share, delta=0.006)
        for other in (["2", "--sweep-order", "micro-batch"], ["8"]):
            self.assertNotIn("order:", self.succeeds(*tied, *other).out)
        few = ["plan", "gpt2-nano", *of, *QUICK, "--sequence", "512", "--batch"]
        self.assertIn("1 x 512 tokens at once are few (1 is the largest divisor of 31 up to 8)", self.succeeds(*few, "31").out)
        self.assertNotIn("at once are few", self.succeeds(*few, "32").out + self.succeeds(*few, "31", "--micro-batch", "1").out)

    @on_any_processor
    def test_in_memory_no_more_blocks_are_recomputed_than_must_be(self):
        plan = ["plan", "gpt2-xl", "--profile", "a100-40g", "--sequence", "1024", "--host-memory", "none", "--calibration", "none"]
        for memory in ("38GiB", "36GiB"):
            done = self.succeeds(*plan, "--device-memory", memory, "--json").json
            fewest = done["recomputes"]
            self.assertGreater(fewest, 0)
            self.assertNotIn(fewest, (12, 24, 36, 48))  # of these the search starts
            self.fails(3, *plan, "--device-memory", memory, "--pin", f"blocks.{fewest - 1}-47=keep")

    def test_of_a_device_far_too_large_it_takes_what_a_model_in_memory_needs(self):
        model = "opt-125m" if SHORT else "qwen2.5-0.5b"
        plan = self.succeeds("plan", model, "--profile", "h200", "--sequence", "1024", "--calibration", "none", "--json").json
        self.assertGreater(plan["host_update_bytes"], 0)  # not in memory: a schedule that may spread
        self.assertLess(plan["peak_bytes"]["device"], 1.5 * plan["in_memory_bytes"])

    def test_a_pin_takes_no_more_of_a_large_device_than_its_schedule_needs(self):
        """Activations that are placed from the top of the budget on left all between them and the weights unused."""
        for tier in (["--disk", self.folder], ["--emulate-host", "1GiB"]):
            plan = self.succeeds("plan", "gpt2-pico", "--vocabulary", "50257", "--sequence", "32", "--dtype", "f32", "--threads", "2",
                                 "--pin", "blocks.0=offload", "--device-memory", "2GiB", *tier, "--calibration", "none", "--json").json
            self.assertLess(plan["peak_bytes"]["device"], 1.5 * plan["in_memory_bytes"])

    def test_what_does_not_fit_is_an_object_too(self):
        done = self.fails(3, "plan", *NANO, "--device-memory", "1MiB", "--disk", self.folder, "--json")
        said = done.err.strip().split("\n")[-1].split(": ", 1)[1]
        found = done.json
        self.assertEqual((found["fits"], found["short"], found["why"]), (False, "device", said))
        self.assertIn(f" {found['short_bytes']} bytes short", said)
        self.assertTrue(found["remedy"].startswith("raise --device-memory to"), found["remedy"])
        self.assertTrue(self.plan()["fits"])

    def test_inspect_says_what_the_file_of_a_plan_says(self):
        path = self.path("plan.json")
        for flags in (self.disk(), [], ["--profile", "h100,pcie=2GB/s,host-memory=60MiB", "--device-memory", "40MiB"],
                      [*self.disk(), "--pin", "blocks.0=recompute", "--disk-write-limit", "900TB/day"]):
            with self.subTest(flags=flags):
                made = self.plan(*flags, "-o", path)
                found = self.succeeds("inspect", path, "--json").json
                for key in ("model", "dtype", "batch", "micro_batch", "sequence", "steps", "budget_bytes", "peak_bytes",
                            "step_seconds", "chunk_bytes", "sweep_order", "recomputes", "instruction_count",
                            "numeric_fingerprint", "program_hash"):
                    self.assertEqual(found[key], made[key], key)
                self.assertAlmostEqual(found["tokens_per_second"], made["tokens_per_second"], delta=1e-6 * made["tokens_per_second"])
                self.assertEqual((found["type"], found["operators"], found["trained_parameters"], found["pins"]),
                                 ("plan", len(made["operators"]), made["parameters"], flags.count("--pin")))
                self.assertEqual((found["profile"], found["profile_hash"]), (made["profile"]["name"], made["profile"]["hash"]))
                said = self.succeeds("inspect", path).out
                lines = said.rstrip("\n").split("\n")
                self.assertLessEqual(len(lines), 20)
                self.assertLessEqual(max(map(len, lines)), 120)
                for kind in ("parameters", "states", "activations"):
                    words = [op[kind] for op in made["operators"] if op[kind] != "-"]
                    counted = dict(one.split(" ")[::-1] for one in re.search(rf"{kind}.*: (.*)", said)[1].split(", "))
                    self.assertEqual(counted, {word: str(words.count(word)) for word in words}, kind)
                for says in (f"of       gpt2-nano in {made['dtype']}", "2 x 16 tokens, 2 at once", made["program_hash"],
                             f"hash {made['profile']['hash']}", f"{made['recomputes']} block", "tokens/s"):
                    self.assertIn(says, said)

    def test_inspect_of_a_plan_without_our_note_says_the_rest(self):
        path = self.path("plan.json")
        self.plan("-o", path)
        with open(path, encoding="utf-8") as file:
            text = file.read().split('  "file_hash"')[0]
        noteless = re.sub(r'  "note": .*\n', "", text)
        for changed in (noteless, text.replace('\\"batch\\"', '\\"hatch\\"')):
            self.assertNotEqual(changed, text)
            other = self.write("other.json", sealed(changed))
            done = self.succeeds("inspect", other)
            self.assertIn("a model that it does not name", done.out)
            self.assertIn(self.plan()["program_hash"], done.out)

    def test_a_size_of_four_digits_keeps_its_unit_among_the_operators(self):
        said = self.object_and_screen("plan", "llama-3.1-8b", "--profile", "rtx-4090", "--lora", 16, "--batch", 1, "--sequence", 128,
                                      "--search", "quick", "--chunk", "512MiB")[1]
        self.assertRegex(said, r"(?m)^model\.embed_tokens +\S+ +1002\.0 MiB ")  # 128256 rows of 4096 in bf16

    def test_a_plan_for_another_batch_is_refused_by_its_flags_before_anything_else(self):
        path = self.path("plan.json")
        self.plan("-o", path)
        for flags in (["--batch", 4], ["--sequence", 32]):
            done = self.fails(2, "train", *NANO, *flags, "--plan", path, "--data", self.corpus(), "--save", "none",
                              says="is for --batch 2 --sequence 16, this run has ")
            self.assertNotIn("micro-batch", done.err)

    def test_a_plan_of_another_model_is_refused_by_its_name(self):
        path = self.path("plan.json")
        self.plan("-o", path)
        done = self.fails(2, "train", "gpt2-pico", *NANO[1:], "--plan", path, "--data", self.corpus(), "--save", "none",
                          says=f"plan {path} is for gpt2-nano with ")
        self.assertIn(" of gpt2-pico: give the model and the adapters of the plan, or plan again", done.err)
        self.assertNotIn("--batch", done.err)

    def test_a_plan_that_is_read_brings_its_tiers_and_no_smallest_budget(self):
        path = self.path("plan.json")
        small, far = ["--device-memory", "40MiB"], ["--emulate-host", "1GiB"]
        made = self.plan(*small, *far, "-o", path)
        self.assertTrue(made["emulated"])
        self.assertTrue(self.plan(*small, "--plan", path)["emulated"])
        said = self.succeeds("plan", *NANO, *small, "--plan", path).out
        self.assertIn("EMULATED", said)
        self.assertNotIn("smallest", said)
        done = self.succeeds("train", *NANO, *small, "--plan", path, "--data", self.corpus(), "--save", "none",
                             "--steps", "1", "--json")
        self.assertTrue(done.json["emulated"])
        self.fails(3, "plan", *NANO, *small, "--emulate-host", "60MiB", "--plan", path, says="raise --emulate-host")
        self.plan(*self.disk(), "-o", path)
        self.plan(*self.disk(), "--plan", path)
        self.fails(3, "plan", *NANO, *small, "--disk", self.folder + ":60MiB", "--plan", path, says="give --disk DIR:")

    @in_full
    def test_in_memory_is_of_the_order_that_the_plan_has(self):
        flags = ["--batch", "8", "--micro-batch", "1", *self.disk()]
        path = self.path("plan.json")
        layer = self.plan(*flags, "--sweep-order", "layer", "-o", path)
        self.assertGreater(layer["in_memory_bytes"], self.plan(*flags)["in_memory_bytes"])
        self.assertEqual(self.succeeds("simulate", path, "--json").json["in_memory_bytes"], layer["in_memory_bytes"])
        auto = self.plan(*flags, "--sweep-order", "auto")
        self.assertEqual(auto["in_memory_bytes"], self.plan(*flags, "--sweep-order", auto["sweep_order"])["in_memory_bytes"])

    @on_any_processor
    def test_another_micro_batch_is_taken_only_where_it_is_worth_other_bits(self):
        flags = ["--profile", "a100-80g", "--batch", "16", "--search", "quick", "--json", "--sequence"]
        medium = ["plan", "gpt2-medium", *flags, "1024", "--micro-batch"]
        step = {n: self.succeeds(*medium, n).json["step_seconds"] for n in ("8", "16")}
        self.assertTrue(0.97 < step["16"] / step["8"] < 1)
        kept = self.succeeds(*medium, "auto")
        self.assertEqual((kept.json["micro_batch"], kept.json["step_seconds"]), (8, step["8"]))
        self.assertNotIn("other rounding", kept.err)
        taken = self.succeeds("plan", "gpt2", *flags, "256", "--micro-batch", "auto")
        self.assertEqual(taken.json["micro_batch"], 16)
        self.assertIn("micro-batch 8 -> 16: other rounding; the step is predicted to take 0.9", taken.err)

    @on_any_processor
    def test_of_the_smaller_micro_batches_the_largest_that_fits_is_found(self):
        flags = ["plan", "gpt2-nano", "--sequence", "128", "--batch", "6", "--chunk", "1MiB", "--disk", self.folder,
                 "--device-memory", "8MiB", "--search", "quick", "--dtype", "f32"]
        divisors = [6, 3, 2, 1]
        fits = [n for n in divisors if run(*flags, "--micro-batch", n, "--json").code == 0]
        self.assertTrue(0 < len(fits) < len(divisors) - 1)
        for wanted in divisors[:-len(fits)]:
            self.fails(3, *flags, "--micro-batch", wanted, says=f"; give --micro-batch {fits[0]}: other rounding, or")
        taken = self.succeeds(*flags, "--micro-batch", "auto", "--json")
        self.assertEqual(taken.json["micro_batch"], fits[0])

    @on_any_processor
    def test_an_untied_model_streams_in_the_faster_order_unless_one_is_given(self):
        flags = ["plan", "llama-2-7b", "--profile", "a100-80g,host-memory=512GB,device-memory=8GB", "--sequence", "256",
                 "--batch", "4", "--micro-batch", "1", "--search", "quick", "--chunk", "512MiB", "--recompute", "all"]
        plans = {order: self.succeeds(*flags, "--sweep-order", order, "--json").json for order in ("micro-batch", "layer")}
        done = self.succeeds(*flags, "--json")
        self.assertLess(plans["layer"]["step_seconds"], plans["micro-batch"]["step_seconds"])
        self.assertEqual((done.json["sweep_order"], done.json["program_hash"]), ("layer", plans["layer"]["program_hash"]))
        self.assertNotIn("other rounding", done.err)
        self.assertEqual(len({plan["numeric_fingerprint"] for plan in (done.json, *plans.values())}), 1)

    def test_limits_fall_and_no_step_is_below_the_first_or_the_bound_of_all_decisions(self):
        for flags in (self.disk(), [], ["--profile", "h100,pcie=100MB/s", "--device-memory", "40MiB"]):
            planned = self.plan(*flags)
            times = [limit["seconds"] for limit in planned["limits"]]
            self.assertEqual(times, sorted(times, reverse=True))
            self.assertLessEqual(planned["bound_seconds"], planned["step_seconds"])
            self.assertIn({"name": planned["binding"], "seconds": times[0]}, planned["limits"])
            self.assertLessEqual(times[0], planned["step_seconds"])
            names = [limit["name"] for limit in planned["limits"]] + [None]
            self.assertEqual(planned["runner_up"], names[1])
            self.assertAlmostEqual(planned["gap"], planned["step_seconds"] / planned["bound_seconds"] - 1, delta=1e-6)
            self.assertEqual(len({limit["name"] for limit in planned["limits"]}), len(times))

    def test_a_rehearsal_does_what_the_plan_says(self):
        far = ["--device-memory", "40MiB", "--emulate-host", "1GiB"]
        for flags in pairs([], far, [*self.disk(), "--batch", "4", "--micro-batch", "1"]):
            with self.subTest(flags=flags):
                planned = self.plan(*flags, "--rehearse", "6")
                found = planned["rehearsal"]
                self.assertEqual(found["steps"], 6)
                self.assertEqual(found["programs"], planned["program_count"])
                self.assertGreater(found["instructions"], 6 * planned["instruction_count"])
                self.assertEqual(found["link_bytes"], planned["link_bytes"])
                self.assertEqual(found["peak_bytes"], planned["peak_bytes"])
                self.assertEqual(found["predicted_step_seconds"], planned["step_seconds"])
                self.assertAlmostEqual(found["step_seconds"], planned["step_seconds"], delta=0.02 * planned["step_seconds"])
                self.assertAlmostEqual(found["idle_seconds"], sum(planned["exposed_seconds"].values()),
                                       delta=0.02 * planned["step_seconds"])
        self.assertNotIn("rehearsal", self.plan())
        file = self.path("plan.json")
        self.assertIn("\nrehearsed without memory: 4 steps,", self.succeeds("plan", *NANO, *far, *FEWER, "--rehearse", "4", "-o", file).out)
        self.assertIn("\nrehearsed without memory: 5 steps,", self.succeeds("simulate", file, "--rehearse", "5").out)
        self.fails(2, "plan", *NANO, "--rehearse", "3", says="--rehearse")
        self.fails(2, "plan", *NANO, "--rehearse", "4", "--what-if", "pcie=2x", says="--rehearse")

    def test_memory_by_purpose_is_that_of_the_fullest_moment(self):
        for flags in ([], ["--profile", "rtx-4090,host-memory=60MiB", "--device-memory", "40MiB", *FEWER],
                      *pairs(self.disk(), ["--device-memory", "40MiB", "--emulate-host", "1GiB"])):
            planned = self.plan(*flags, "--memory-curve", "1")
            for tier in TIERS:
                with self.subTest(flags=flags, tier=tier):
                    held = planned["memory_bytes"][tier]
                    self.assertEqual(sum(held.values()), planned["memory_curve"][tier][0])
                    self.assertLessEqual(sum(held.values()), planned["peak_bytes"][tier])
        # whatever survives a step is on the disk
        held = self.plan(*self.disk())["memory_bytes"]["disk"]
        self.assertEqual(held["states"], 5 * held["parameters"] if self.plan()["dtype"] == "bf16" else 2 * held["parameters"])

    @on_any_processor
    def test_gradients_that_wait_lie_in_host_memory_if_there_is_room(self):
        # All that lives between steps, 8 bytes a parameter, is three quarters of the two memories.
        done = self.succeeds("plan", "opt-125m", *QUICK, "--dtype", "bf16", "--sequence", "1024", "--batch", "4", "--micro-batch", "4",
                             "--state", "lean", "--profile", "a100-40g,device-memory=500MB,host-memory=820MB", "--json").json
        self.assertLess(done["stream_bytes"], 0.8 * (500e6 + 820e6))
        gradients = done["parameter_bytes"]
        self.assertLess(done["link_bytes"].get("write", 0), gradients / 8)

    def test_no_link_carries_less_than_the_least(self):
        planned = self.plan(*self.disk(), "--batch", "4", "--micro-batch", "1")
        for lane, least in planned["least_link_bytes"].items():
            self.assertGreater(least, 0)
            self.assertLessEqual(least, planned["link_bytes"][lane])
        # A step reads and writes all streams, of which 40 MiB may stay.
        for lane in ("read", "write"):
            self.assertGreaterEqual(planned["least_link_bytes"][lane], planned["stream_bytes"] - (40 << 20))
        self.assertEqual(self.plan()["least_link_bytes"], {})

    @on_any_processor
    def test_norms_that_run_again_have_their_own_word(self):
        """A block that is not recomputed runs them again by themselves, before what reads them."""
        again = ["plan", "gpt2-nano", "--sequence", 512, "--batch", 8, "--dtype", "f32", "--threads", 2, "--device-memory",
                 "136MiB", "--chunk", "1MiB", "--disk", self.folder, "--calibration", "none"]
        made, said = self.object_and_screen(*again)
        self.assertEqual(made["recomputes"], 0)
        kinds = {op["kind"] for op in made["operators"] if op["activations"] == "again"}
        self.assertIn("cohobate.layernorm", kinds)
        self.assertNotIn("cohobate.linear", kinds)
        rows = [line for line in said.split("\n") if line.startswith("block")]
        self.assertIn("again", rows[0].split()[-1].split("+"))
        self.assertEqual([row.split()[-1] for row in rows],
                         [group["activations"] for group in made["groups"] if group["first_block"] >= 0])

    def test_groups_hold_every_operator_once_in_their_order(self):
        for flags in (self.disk(), [], ["--lora", "2"]):
            planned = self.plan(*flags)
            groups, operators = planned["groups"], planned["operators"]
            self.assertEqual(sum(group["operators"] for group in groups), len(operators))
            self.assertEqual(sum(group["parameter_bytes"] for group in groups),
                             sum(op["parameter_bytes"] for op in operators))
            at = 0
            for group in groups:
                taken, at = operators[at : at + group["operators"]], at + group["operators"]
                for key in ("parameters", "states"):
                    places = {place for op in taken for place in op[key].split("+")} - {"-"}
                    self.assertEqual(set(group[key].split("+")) - {"-"}, places)

    def test_what_a_drive_may_be_written_in_a_day_is_held_to_or_refused(self):
        planned = self.plan(*self.disk())
        day = planned["disk_bytes_written_per_day"]
        self.assertAlmostEqual(day, planned["disk_bytes_written"] / planned["step_seconds"] * 86400, delta=day / 1e6)
        allowed = self.plan(*self.disk(), "--disk-write-limit", f"{day * 2 / 1e9:.0f}GB/day")
        self.assertEqual(allowed["program_hash"], planned["program_hash"])
        self.fails(3, "plan", *NANO, *self.disk(), "--disk-write-limit", "1MB/day", says="--disk-write-limit allows")
        plan = self.path("plan.json")
        self.plan(*self.disk(), "-o", plan)
        self.fails(3, "plan", *NANO, *self.disk(), "--plan", plan, "--disk-write-limit", "1MB", says="this plan writes")
        self.fails(2, "plan", *NANO, "--disk-write-limit", "2TB/year", says="--disk-write-limit 2TB/day")

    @on_any_processor
    def test_a_write_limit_that_is_too_low_is_told_the_least_that_has_a_plan(self):
        flags = ["gpt2-nano", *QUICK, "--dtype", "f32", "--sequence", "64", "--batch", "8", "--threads", "2", "--device-memory",
                 "60MiB", "--disk", self.folder, "--disk-write-limit"]
        fastest = self.succeeds("plan", *flags[:-1], "--json").json["disk_bytes_written_per_day"]
        said = self.fails(3, "plan", *flags, "1TB/day", says="the least that a plan was found for").err
        # both are whole GB, in TB if there are a thousand
        to, writes = (re.search(rf"{words} (([\d.]+)([GT])B/day)", said).groups() for words in ("raise --disk-write-limit to", "plan writes"))
        least, written = (round(float(number) * (1000 if unit == "T" else 1)) for _, number, unit in (to, writes))
        self.assertEqual(written, math.ceil(fastest / 1e9))
        self.assertLess(least * 1e9, fastest)
        held_to = self.succeeds("plan", *flags, to[0], "--json").json
        self.assertLessEqual(held_to["disk_bytes_written_per_day"], least * 1e9)
        self.assertGreater(held_to["disk_bytes_written_per_day"], 0.99 * least * 1e9)  # what that plan writes, and no more
        self.fails(3, "plan", *flags, f"{least - 1}GB/day", says=f"raise --disk-write-limit to {to[0]}")

    @on_any_processor
    def test_a_write_limit_that_refuses_names_what_keeps_to_it(self):
        """Each change that is named has a plan within the limit, by itself; one that is not named has none."""
        plan = ["plan", "gpt2-pico", "--search", "quick", "--profile", "rtx-4090", "--calibration", "none", "--sequence", 32, "--batch", 1,
                "--device-memory", "34MiB", "--disk-write-limit", "1GB/day"]
        lean = ["--state", "lean"]
        for host, wanted, others in (("5MiB", ["--state lean", "--lora 16", "--host-memory"], []), ("1MiB", ["--lora 16", "--host-memory"], [lean])):
            said = self.fails(3, *plan, "--host-memory", host, says="; the limit is kept with ").err
            ways = said.strip().split("; the limit is kept with ")[1].split("; enough is ")[0].split(", or with ")
            with self.subTest(host=host, ways=ways):
                self.assertEqual([next((w for w in wanted if way.startswith(w)), way) for way in ways], wanted)
                for way in ways:
                    held_to = self.succeeds(*plan, "--host-memory", host, *way.split(" (")[0].split(), "--json").json
                    self.assertLessEqual(held_to["disk_bytes_written_per_day"], 1e9)
                for other in others:
                    self.fails(3, *plan, "--host-memory", host, *other)

    def test_a_write_limit_that_refuses_names_one_limit_and_it_is_accepted_as_printed(self):
        """Below what the fastest plan writes: each of these has a plan that writes less."""
        plan = ["plan", "gpt2-pico", "--threads", 1, "--calibration", "none", "--sequence", 32, "--disk", self.folder]
        for flags in (["--batch", 1, "--device-memory", "6MiB"], ["--batch", 4, "--micro-batch", 1, "--device-memory", "3MiB", *QUICK]):
            with self.subTest(flags=flags):
                said = self.fails(3, *plan, *flags, "--disk-write-limit", "1GB/day", says="--disk-write-limit allows 1GB/day; raise").err
                self.assertNotIn("; enough is", said)
                limits = re.findall(r"to ([\d.]+)TB/day, the least", said)
                self.assertEqual(len(limits), 1, said)
                self.assertLess(float(limits[0]), float(re.search(r"fastest plan writes ([\d.]+)TB/day", said)[1]))
                self.succeeds(*plan, *flags, "--disk-write-limit", limits[0] + "TB/day")

    def test_without_a_host_the_device_memory_that_keeps_to_the_limit_is_named(self):
        plan = ["plan", "gpt2-pico", "--search", "quick", "--calibration", "none", "--sequence", 32, "--batch", 1, *self.disk(),
                "--disk-write-limit", "1GB/day"]
        ways = self.fails(3, *plan, "--device-memory", "4MiB", says="; the limit is kept with ").err
        enough = re.search(r"(?:kept|or) with --device-memory (\S+?)[;\s]", ways)
        self.assertTrue(enough, ways)
        self.assertEqual(self.succeeds(*plan, "--device-memory", enough[1], "--json").json["disk_bytes_written_per_day"], 0)

    def test_no_drive_is_said_with_none(self):
        """A profile has a drive; without it a plan is made of the other tiers, or refused."""
        plan = ["plan", "gpt2-pico", "--search", "quick", "--calibration", "none", "--sequence", 32, "--batch", 1, "--device-memory", "34MiB"]
        for host, drive in (("1MiB", True), ("64MiB", False)):
            profile = ["--profile", f"rtx-4090,host-memory={host}"]
            self.assertEqual(self.succeeds(*plan, *profile, "--json").json["peak_bytes"]["disk"] > 0, drive)
            if not drive:
                self.assertEqual(self.succeeds(*plan, *profile, "--disk", "none", "--json").json["peak_bytes"]["disk"], 0)
                continue
            self.assertNotIn("--disk DIR, which", self.fails(3, *plan, *profile, "--disk", "none").err)
        for wrong in (("none", "none"), ("none", "."), (".", "none")):
            self.fails(2, *plan, "--disk", wrong[0], "--disk", wrong[1], says="--disk none is given beside another")

    def test_a_drive_lasts_as_long_as_its_endurance(self):
        flags = [*self.disk(), *FEWER]
        planned = self.plan("--profile", "built-in-2,endurance=600TB", *flags)
        self.assertEqual(planned["drive_endurance_bytes"], 600e12)
        self.assertAlmostEqual(planned["drive_life_days"], 600e12 / planned["disk_bytes_written_per_day"], places=3)
        self.assertIsNone(self.plan()["drive_life_days"])
        for days, says in ((0.5, "12 h 00 min"), (1.99, "47 h 45 min"), (25.5, "25.5 days"), (1095, "3.0 years")):
            endurance = round(days * planned["disk_bytes_written_per_day"]) + 10**6
            said = self.succeeds("plan", *NANO, "--profile", f"built-in-2,endurance={endurance}B", *flags).out
            self.assertIn(f"; it lasts {says} of that", said.replace("\n        ", " "))

    def test_the_wear_of_a_drive_has_the_decimal_units_of_its_endurance_everywhere(self):
        """The flag and the refusal say GB/day and a drive's endurance is in TB, so no other line says TiB a day."""
        plan, kept = ["plan", *NANO, *self.disk(), *FEWER], self.path("plan.json")
        day = self.plan(*self.disk(), *FEWER)["disk_bytes_written_per_day"]
        step = self.plan(*self.disk(), *FEWER)["disk_bytes_written"]
        limit = f"{math.ceil(day / 1e12)}TB/day"
        said = " ".join(self.succeeds(*plan, "--disk-write-limit", limit, "-o", kept).out.split())
        found = re.search(r"drive: ([\d.]+) MB written a step, ([\d.]+) TB a day; at most ([\d.]+) TB allowed ", said)
        for text, wanted in zip(found.groups(), (step / 1e6, day / 1e12, math.ceil(day / 1e12))):
            self.assertAlmostEqual(float(text) / wanted, 1, delta=0.006)
        self.assertRegex(self.succeeds("inspect", kept).out, r"which may be written [\d.]+ TB a day")
        asked = self.fails(2, "train", *NANO, "--data", self.corpus(), "--save", "none", *self.disk(), "--steps", "99999999").err
        self.assertRegex(asked, r"would write [\d.]+ TB to the drive in a day.*--disk-write-limit \d+TB/day")

    def test_train_asks_before_it_writes_more_than_a_terabyte_in_a_day(self):
        train = ["train", *NANO, "--data", self.corpus(), "--save", "none", *self.disk()]
        done = self.fails(2, *train, "--steps", "99999999", says="TB/day, or bound it")
        self.assertNotIn("step 1/", done.err)
        self.succeeds(*train, "--steps", "1")

    def test_train_says_the_plan_in_at_most_8_lines(self):
        for flags in (self.disk(), ["--lora", "2"]):
            said = self.succeeds("train", *NANO, "--data", self.corpus(), "--steps", "1", "--save", "none", *flags).err
            lines = said.split("\n")
            first, last = (next(i for i, line in enumerate(lines) if line.startswith(word)) for word in ("model:", "plan:"))
            self.assertLessEqual(last - first + 1, 8)
            for word in ("budget:", "speed:", "limit:"):
                self.assertTrue(any(line.startswith(word) for line in lines[first : last + 1]), word)


if __name__ == "__main__":
    unittest.main()
