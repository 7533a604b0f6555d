"""Changes of a plan's inputs: --what-if, --sweep, --max; plan files priced by another profile and explained."""

import json
import os
import re
import subprocess
import unittest

import model_folder
from program import COHOBATE, NANO, QUICK, SHORT, TINY, ProgramTest, environment, run

TIGHT = ["--device-memory", "40MiB"]
# In short a search that decides less, where other decisions are tested.
FEWER = ["--recompute", "all"] if SHORT else []


class Variants(ProgramTest):
    def plan(self, *flags):
        return self.succeeds("plan", *NANO, "--json", *flags).json

    def disk(self):
        return [*TIGHT, "--disk", self.folder]

    def test_a_what_if_is_the_plan_of_that_profile(self):
        rows = self.plan(*TIGHT, "--profile", "h100,pcie=100MB/s", "--what-if", "pcie=2x", "--what-if",
                         "pcie=200MB/s,device-memory=2x")["rows"]
        self.assertEqual([row["what"] for row in rows], ["", "pcie=2x", "pcie=200MB/s,device-memory=2x"])
        for row, flags in zip(rows, ([*TIGHT, "--profile", "h100,pcie=100MB/s"], [*TIGHT, "--profile", "h100,pcie=200MB/s"],
                                     ["--device-memory", "80MiB", "--profile", "h100,pcie=200MB/s"])):
            alone = self.plan(*flags)
            self.assertTrue(row["fits"])
            self.assertLessEqual(row["step_seconds"], alone["step_seconds"])
            self.assertEqual(row["limit"], alone["binding"])
        self.assertGreater(rows[1]["tokens_per_second"], rows[0]["tokens_per_second"])

    def test_more_memory_is_never_slower_in_a_sweep(self):
        rows = self.plan(*self.disk(), "--sweep", f"device-memory=16MiB:140MiB:{5 if SHORT else 21}", "--what-if", "device-memory=2x")["rows"]
        steps = [row["step_seconds"] for row in rows[2:]]
        self.assertEqual(steps, sorted(steps, reverse=True))
        self.assertGreater(steps[0], steps[-1])
        self.assertLessEqual(rows[1]["step_seconds"], rows[0]["step_seconds"])

    def test_no_row_of_a_sweep_is_slower_than_the_plan_of_a_faster_row_on_its_machine(self):
        model, batch, device, rate = ("gpt2-pico", 8, "34MiB", 1000) if SHORT else ("gpt2-nano", 4, "55MiB", 500)
        slow, fast = ["--profile", f"h100,pcie={rate}MB/s"], ["--profile", "h100,pcie=4500MB/s"]
        plan = ["plan", model, "--sequence", "32", "--batch", batch, "--dtype", "f32", "--device-memory", device, "--json"]
        path = self.path("fast.json")
        self.succeeds(*plan, *fast, "-o", path)
        taken_over = self.succeeds("simulate", path, *slow, "--json").json["step_seconds"]
        rows = self.succeeds(*plan, *slow, "--sweep", f"pcie={rate}MB/s:4500MB/s:2").json["rows"]
        self.assertLess(taken_over, rows[0]["step_seconds"])  # on its own, the search finds a slower plan
        self.assertLessEqual(rows[1]["step_seconds"], taken_over)

    def test_what_fits_in_memory_is_no_slower_than_what_does_not(self):
        """Updates on the host help a GPU even if nothing need be streamed."""
        model, less = ("gpt2", "1800MB") if SHORT else ("gpt2-xl", "22500MB")
        tight, roomy = (self.succeeds("plan", model, "--profile", "a100-40g", "--device-memory", room, "--json").json
                        for room in (less, "40GiB"))
        self.assertLess(tight["peak_bytes"]["device"], roomy["in_memory_bytes"])
        self.assertLessEqual(roomy["in_memory_bytes"], 40 << 30)
        self.assertLessEqual(roomy["step_seconds"], tight["step_seconds"])

    def test_a_host_too_small_for_the_states_takes_nothing_from_a_gpu_that_holds_them(self):
        """14 bytes per parameter exceed these 100 MiB, and the drive is not needed."""
        plan = self.succeeds("plan", "gpt2", "--profile", "h200", "--host-memory", "100MiB", "--json").json
        self.assertLessEqual(plan["peak_bytes"]["device"], plan["in_memory_bytes"])
        self.assertEqual((plan["peak_bytes"]["host"], plan["peak_bytes"]["disk"], sum(plan["link_bytes"].values())), (0, 0, 0))

    def test_without_host_memory_nothing_leaves_the_gpu(self):
        plan = ["plan", "gpt2-medium", *QUICK, "--profile", "a100-40g", "--json"]
        shared, alone = (self.succeeds(*plan, *flags).json for flags in ([], ["--host-memory", "none"]))
        self.assertGreater(sum(shared["link_bytes"].values()), 0)  # the host updates
        self.assertEqual((sum(alone["link_bytes"].values()), alone["peak_bytes"]["host"], alone["peak_bytes"]["disk"]), (0, 0, 0))
        rows = self.succeeds(*plan, "--host-memory", "none", "--what-if", "host-memory=64GB").json["rows"]
        self.assertEqual([row["step_seconds"] for row in rows], [alone["step_seconds"], shared["step_seconds"]])

    def test_the_built_in_profile_takes_entries_too(self):
        rows = self.plan(*self.disk(), "--what-if", "disk-read=0.1x,disk-write=0.1x")["rows"]
        self.assertEqual(rows[0]["step_seconds"], self.plan(*self.disk())["step_seconds"])
        self.assertGreater(rows[1]["step_seconds"], 2 * rows[0]["step_seconds"])
        self.assertEqual([row["what_if"] for row in rows], [False, True])
        self.assertIn(rows[0]["profile"], rows[1]["profile"])
        told = self.plan(*self.disk(), "--profile", "built-in-2,disk-read=0.1x,disk-write=0.1x")
        self.assertEqual(told["step_seconds"], rows[1]["step_seconds"])
        self.assertTrue(told["profile"]["what_if"])
        self.assertFalse(self.plan("--profile", "built-in-2")["profile"]["what_if"])

    def gpu_like(self, **members):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/profiles/h200.json")
        with open(path, encoding="utf-8") as file:
            return self.write("gpu.json", json.dumps({**json.load(file), **members}))

    def test_an_entry_of_memory_lifts_the_limit_of_the_cgroup(self):
        rows = self.plan(*TIGHT, *FEWER, "--profile", self.gpu_like(cgroup_bytes=60 << 20), "--what-if", "host-memory=256MiB",
                         "--what-if", "host-memory=1.5x", "--what-if", "device-memory=1x")["rows"]
        host = [row["peak_bytes"]["host"] for row in rows]
        self.assertLessEqual(max(host[0], host[3]), 60 << 20)
        self.assertGreater(host[1], 90 << 20)
        self.assertGreater(host[2], 60 << 20)
        self.assertLessEqual(host[2], 90 << 20)
        self.assertLess(rows[1]["step_seconds"], rows[0]["step_seconds"])

    def test_rows_that_have_no_measured_times_say_so(self):
        operator = {"kind": "linear", "dtype": "bf16", "phase": "forward", "lane": "compute",
                    "signature": "000000000000002a", "shape": "[.,256,768]",
                    "samples": [{"flops": 2e9, "bytes": 1e6, "seconds": 1e-3}]}
        flags = ["--profile", self.gpu_like(operators=[operator])]
        for entry in ("flops=2x", "memory-rate=2x", "pcie=2x"):
            flags += ["--what-if", entry]
        self.assertEqual([row["operators"] for row in self.plan(*flags)["rows"]], [1, 0, 0, 1])
        said = self.succeeds("plan", *NANO, *flags).out
        self.assertEqual(re.findall("(?m)^(.*): by rates alone, without the measured times of operators", said),
                         ["flops=2x", "memory-rate=2x"])
        changes = dict(re.findall(r"(?m)^(\S+=\S+) +[\d,.]+ +(\S+)", said))
        self.assertEqual([changes["flops=2x"], changes["memory-rate=2x"]], ["-", "-"])
        self.assertRegex(changes["pcie=2x"], r"[+-]")
        self.assertIn("by rates alone, without the measured times", " ".join(self.succeeds(
            "plan", *NANO, "--profile", self.gpu_like(fingerprint="00000000000000ab", operators=[operator]) + ",flops=2x").out.split()))

    def test_what_does_not_fit_is_a_row_that_says_why(self):
        done = self.succeeds("plan", *NANO, *self.disk(), "--what-if", "device-memory=1MiB")
        self.assertRegex(done.out, r"(?m)^device-memory=1MiB does not fit: .*raise --device-memory")
        rows = self.plan(*self.disk(), "--what-if", "device-memory=1MiB")["rows"]
        self.assertEqual([row["fits"] for row in rows], [True, False])
        self.assertIn("short", rows[1]["why"])

    def test_a_sweep_plans_each_point(self):
        rows = self.plan(*self.disk(), "--sweep", "device-memory=20MiB:40MiB:3")["rows"]
        self.assertEqual([row["what"] for row in rows],
                         ["", "device-memory=20MiB", "device-memory=30MiB", "device-memory=40MiB"])
        self.assertLessEqual(rows[3]["step_seconds"], rows[0]["step_seconds"])  # it also tries the plans of the other rows
        self.assertEqual(rows[1]["step_seconds"],
                         self.plan("--device-memory", "20MiB", "--disk", self.folder)["step_seconds"])
        for row, most in zip(rows[1:], (20, 30, 40)):
            self.assertLessEqual(row["peak_bytes"]["device"], most << 20)
        stepped = self.plan(*self.disk(), "--sweep", "disk-read=1GB/s:2GB/s:500MB/s")["rows"]
        self.assertEqual([row["what"] for row in stepped[1:]],
                         ["disk-read=1GB/s", "disk-read=1500MB/s", "disk-read=2GB/s"])
        table = self.succeeds("plan", *NANO, *self.disk(), "--sweep", "disk-read=1x:2x:2").out.split("\n")
        self.assertEqual(len(table), 9 + SHORT)  # then the search is quick, which the last line says
        self.assertLessEqual(max(map(len, table)), 100)
        self.assertEqual(table[4], "a step: 2 x 16 tokens; written: to the drive in a step")
        self.assertRegex(table[5], r"^prices: profile built-in, \d+ threads? \(built-in, hash [0-9a-f]{16}\): "
                                   "a guess, not calibrated$")
        self.assertRegex(table[6], "^WHAT-IF: ")
        self.assertEqual(table[7], "calibrations by earlier runs are left out of all rows, so that rows compare")

    def test_a_table_tells_how_its_rows_wear_the_drive(self):
        """By the plan of each row alone: bytes written in a step, or the days until the endurance is written. A table of
        rows without a drive has no such column."""
        entries = ["device-memory=80MiB", "device-memory=4GiB"]
        table = [flag for entry in entries for flag in ("--what-if", entry)]
        alone = [self.plan("--disk", self.folder, "--device-memory", room) for room in ("40MiB", "80MiB", "4GiB")]
        lines = self.succeeds("plan", *NANO, *self.disk(), *table).out.split("\n")
        self.assertRegex(lines[0], "limit +written device, host, disk$")
        for line, plan in zip(lines[1:], alone):
            said = re.search(r"(\S+ [kMG]B|-) [\d.]+ [MG]iB, -, \S+", line)[1]
            written = plan["disk_bytes_written"]
            self.assertEqual(said == "-", written == 0, line)
            if written:
                self.assertAlmostEqual(float(said.split()[0]) / (written / 1e6), 1, delta=0.01, msg=line)
        self.assertEqual([plan["disk_bytes_written"] > 0 for plan in alone], [True, True, False])
        rows = self.plan(*self.disk(), *table)["rows"]
        for key in ("disk_bytes_written", "drive_life_days", "batch", "sequence"):
            self.assertEqual([row[key] for row in rows], [plan[key] for plan in alone], key)

        gpu = ["--profile", self.gpu_like(drive_endurance_bytes=10**13), "--device-memory", "40MiB", "--host-memory", "8MiB", *FEWER]
        days = self.plan(*gpu)["drive_life_days"]
        lines = self.succeeds("plan", *NANO, *gpu, "--what-if", "host-memory=8GiB").out.split("\n")
        self.assertRegex(lines[0], "limit +drive life device, host, disk$")
        self.assertIn(f" {days:.1f} days " if days < 100 else f" {days:.0f} days ", lines[1])
        self.assertRegex(lines[2], r" - [\d.]+ MiB, [\d.]+ MiB, -$")
        lines = self.succeeds("plan", *NANO, "--device-memory", "4GiB", "--what-if", "flops=2x").out
        self.assertNotIn("written", lines)
        self.assertIn("\na step: 2 x 16 tokens\n", lines)
        long = self.succeeds("plan", *NANO, "--profile", "h100", "--what-if", "host-memory=16GB,device-memory=8GB").out
        self.assertIn("\nhost-memory=16GB,device-m..  ", long)
        self.assertLessEqual(max(map(len, long.split("\n"))), 100)

    def test_entries_and_ranges_that_mean_nothing_are_refused(self):
        plan = ["plan", *NANO, *TIGHT]
        for flags, says in [
            (["--what-if", "warp=9"], "'warp' is no entry"),
            (["--pin", "nothing=device", "--what-if", "pcie=2x", "--what-if", "warp=9"], "'warp' is no entry"),  # before a plan is tried
            (["--what-if", "pcie=fast"], "pcie=16GB/s"),
            (["--what-if", ""], "--what-if takes"),
            (["--what-if", "host-memory=1GB"], "device-memory="),
            (["--what-if", "disk=1TB"], "--disk DIR:SIZE"),
            (["--sweep", "device-memory"], "names no entry"),
            (["--sweep", "device-memory=8GB"], "no FROM:TO"),
            (["--sweep", "device-memory=8GB:8GB"], "no points"),
            (["--sweep", "device-memory=9GB:8GB"], "no points"),
            (["--sweep", "device-memory=8:9"], "sizes with their unit"),
            (["--sweep", "device-memory=8GB:2x"], "not of one kind"),
            (["--sweep", "device-memory=8GB:9GB:1"], "from 2 to 64 points"),
            (["--sweep", "device-memory=8GB:9GB:65"], "from 2 to 64 points"),
            (["--sweep", "device-memory=8GB:9GB:0MB"], "from 2 to 64 points"),
            (["--sweep", "device-memory=8GB:9GB:1MB"], "more than 64 points"),
            (["--sweep", "warp=1x:2x"], "'warp' is no entry"),
            (["--sweep", "warp=1:2"], "--sweep warp=1:2: 'warp' is no entry of a profile: give one of device-memory, "),
            (["--sweep", "device-memory=1GB:2GB", "-o", self.path("plan.json")], "leave -o"),
            (["--what-if", "pcie=2x", "--operators"], "leave -o"),
        ]:
            with self.subTest(flags=flags):
                self.fails(2, *plan, *flags, says=says)
        self.fails(2, "plan", "--max", "bert", says="llama-3.1")
        self.fails(2, "plan", "gpt2", "--max", "opt", says="leave MODEL")

    def test_max_is_the_last_of_the_family_that_fits(self):
        flags = ["--sequence", "16", "--batch", "1", "--device-memory", "1200MB", "--dtype", "f32", "--json"]
        found = self.succeeds("plan", "--max", "gpt2", *QUICK, *flags).json
        largest, following = found["largest"]["what"], found["next"]["what"]
        names = ["gpt2-pico", "gpt2-nano", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]
        self.assertEqual(names.index(following), names.index(largest) + 1)
        self.assertFalse(found["next"]["fits"])
        alone = self.succeeds("plan", largest, *QUICK, *flags).json
        self.assertEqual(alone["step_seconds"], found["largest"]["step_seconds"])
        self.fails(3, "plan", following, *flags)
        self.fails(3, "plan", "--max", "gpt2", *QUICK, *flags[:4], "--device-memory", "64KiB", says="not even gpt2-pico")
        none = run("plan", "--max", "gpt2", *QUICK, *flags[:4], "--device-memory", "64KiB", "--json")
        self.assertEqual((none.code, none.json["largest"], none.json["next"]["what"], none.json["next"]["fits"]), (3, None, "gpt2-pico", False))
        all_fit = self.succeeds("plan", "--max", "gpt2-nano", "--sequence", "16", "--batch", "1").out
        self.assertIn("no preset of the family is larger", all_fit)
        self.assertRegex(all_fit, r"(?m)^prices: profile built-in")

    def test_max_says_which_budgets_its_answer_is_of(self):
        flags = ["--sequence", "16", "--batch", "1"]
        for room, says, bytes_of in (
            (["--device-memory", "200MiB", "--disk", f"{self.folder}:9GiB"],
             f"device 200.00 MiB, disk {self.folder} up to 9.00 GiB", [200 << 20, 0, 9 << 30]),
            (["--device-memory", "200MiB", "--disk", self.folder], f"device 200.00 MiB, disk {self.folder}",
             [200 << 20, 0, None]),
            (["--device-memory", "1GiB", "--profile", "h100,host-memory=2GiB,disk=3GiB"],
             "device 1.00 GiB, host 2.00 GiB, disk 3.00 GiB", [1 << 30, 2 << 30, 3 << 30]),
        ):
            done = self.succeeds("plan", "--max", "gpt2-nano", *flags, *room)
            self.assertIn(f"\nbudget: {says}\n", done.out)
            self.assertNotIn("planning ", done.err)
            found = self.succeeds("plan", "--max", "gpt2-nano", *flags, *room, "--json").json
            self.assertEqual(found["budgets"], dict(zip(("device", "host", "disk"), bytes_of)))

    def test_tables_and_max_say_that_their_plans_are_of_the_quick_search(self):
        line = "\nsearch: quick (--search quick); the usual search often finds faster plans\n"
        for table in (["gpt2-pico", "--what-if", "disk-read=2x"], ["gpt2-pico", "--sweep", "disk-read=1x:2x:2"], ["--max", "gpt2-pico"]):
            for search in ("quick", "usual"):
                with self.subTest(table=table, search=search):
                    said = self.succeeds("plan", *table, "--sequence", 16, "--batch", 1, *self.disk(), "--search", search).out
                    self.assertEqual(said.count(line), int(search == "quick"))

    def test_max_says_its_tokens_and_its_drives_wear_as_the_plan_does(self):
        flags = ["--sequence", "24", "--batch", "2", "--device-memory", "40MiB", "--disk", self.folder, "--micro-batch", "1", *FEWER]
        said = self.succeeds("plan", "--max", "gpt2-nano", *flags).out
        self.assertLessEqual(max(map(len, said.split("\n"))), 100)
        self.assertIn("a step of 2 x 24 tokens, 1 at once, limit ", " ".join(said.split()))
        drive = re.search("(?m)^drive: .*$", self.succeeds("plan", "gpt2-nano", *flags).out)[0]
        self.assertIn(f"\n{drive}", said)

    def test_max_tells_a_terminal_alone_what_it_plans(self):
        master, slave = os.openpty()
        self.addCleanup(os.close, master)
        flags = ["--sequence", "16", "--batch", "1", "--device-memory", "256KiB", "--disk", self.folder]
        done = subprocess.run([COHOBATE, "plan", "--max", "gpt2", *QUICK, *flags], env=environment(), stdout=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, stderr=slave, timeout=60, check=False)
        os.close(slave)
        shown = os.read(master, 65536)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"planning gpt2-xl, 1 of 6\r\n", shown)
        self.assertIn(b"\x1b[Kgpt2-xl does not fit, 1 of 6\r\nplanning gpt2-large, 2 of 6\r\n", shown)
        self.assertIn(b"planning gpt2-pico, 6 of 6\r\n", shown)
        self.assertEqual(self.fails(3, "plan", "--max", "gpt2", *QUICK, *flags).err.count("planning"), 0)


class Replays(ProgramTest):
    def made(self, *flags):
        path = self.path("plan.json")
        return path, self.succeeds("plan", *NANO, "--json", "-o", path, *flags).json

    def test_simulate_prices_the_very_program_by_another_profile(self):
        path, made = self.made(*TIGHT, "--disk", self.folder)
        same = self.succeeds("simulate", path, "--json").json
        for key in ("program_hash", "step_seconds", "bound_seconds", "peak_bytes", "numeric_fingerprint", "limits"):
            self.assertEqual(same[key], made[key], key)
        slow = self.succeeds("simulate", path, "--profile", "built-in-2,disk-read=0.1x,disk-write=0.1x", "--json").json
        self.assertEqual(slow["program_hash"], made["program_hash"])
        self.assertGreater(slow["step_seconds"], 2 * made["step_seconds"])
        self.assertTrue(slow["profile"]["what_if"])
        self.assertEqual(slow["made"]["step_seconds"], made["step_seconds"])
        self.assertEqual(slow["made"]["profile"], "built-in, 2 threads")
        said = self.succeeds("simulate", path).out
        self.assertRegex(said, rf"^made:   program {made['program_hash']}, ")
        self.assertLessEqual(len(said.split("\n")), 42)

    def test_a_flag_of_tables_names_what_a_plan_file_has_instead(self):
        """The commands of the refusals are typed as they are printed, with the words in capitals filled in."""
        path, made = self.made(*TIGHT, "--disk", self.folder, "--profile", "built-in-2")
        filled = {"PLAN": path, "OPERATOR": "wte", "FAMILY": "gpt2-pico"}
        for command in (["simulate", path], ["explain", path, "wte"]):
            for flag, value in (("--what-if", "disk-read=2x"), ("--sweep", "disk-read=1x:2x")):
                said = self.fails(2, *command, flag, value, says=f"{flag} is not a flag of cohobate {command[0]}, but of plan").err
                self.assertNotIn("-o plan.json", said)
                words, example = re.search(r"give cohobate (.*) --profile NAME,ENTRY=VALUE, as (--profile \S+)", said).groups()
                typed = [filled.get(word, word) for word in words.split()]
                found = self.succeeds(*typed, *example.split(), "--json").json
                # the same program on another machine
                self.assertLess(found["step_seconds"], made["step_seconds"])
                if command[0] == "simulate":
                    self.assertEqual(found["program_hash"], made["program_hash"])
            said = self.fails(2, *command, "--max", "gpt2", says="--max is not a flag of cohobate").err
            words = re.search(r"run cohobate (.*)$", said.strip())[1]
            self.succeeds(*[filled.get(word, word) for word in words.split()], "--sequence", 16, "--batch", 1)

    def test_what_a_run_makes_of_a_model_is_in_its_plan(self):
        for flags in (["--dropout", "0.125"], ["--freeze", "wte,wpe"], ["--lora", "4"],
                      ["--lora", "4", "--lora-dropout", "0.125"], ["--gradients", "f32", "--dtype", "bf16"]):
            path, made = self.made(*flags)
            again = self.succeeds("simulate", path, "--json").json
            self.assertEqual((again["program_hash"], again["numeric_fingerprint"]),
                             (made["program_hash"], made["numeric_fingerprint"]), flags)
        path, _ = self.made("--dropout", "0.125")
        self.assertIn("dropout: 0.125 in training", self.succeeds("simulate", path).out)

    def test_what_runs_found_prices_a_replay_as_it_priced_the_plan(self):
        found = {"env": environment(COH_CALIBRATION=self.path("found.json"))}
        self.succeeds("train", *NANO, "--data", self.corpus(), "--steps", "6", "--save", "none", **found)
        self.assertTrue(os.path.exists(self.path("found.json")))
        path = self.path("plan.json")
        made = self.succeeds("plan", *NANO, "--json", "-o", path, **found).json
        plain = self.succeeds("plan", *NANO, "--json").json
        self.assertNotEqual(made["step_seconds"], plain["step_seconds"])
        self.assertEqual(self.succeeds("simulate", path, "--json", **found).json["step_seconds"], made["step_seconds"])
        rows = self.succeeds("plan", *NANO, "--json", "--what-if", "flops=2x", **found).json["rows"]
        self.assertEqual(rows[0]["step_seconds"], plain["step_seconds"])

    def test_a_replay_says_whose_budget_it_has_and_what_the_plan_was_made_for(self):
        path, made = self.made("--profile", "rtx-4090,pcie=gen3", *TIGHT)
        for flags, budget in (([], "device 40.00 MiB, host"),
                              (["--profile", "h100,device-memory=80MiB"], "device 80.00 MiB of the profile (planned for 40.00 MiB), host"),
                              (["--device-memory", "60MiB"], "device 60.00 MiB (planned for 40.00 MiB), host")):
            said = self.succeeds("simulate", path, *flags)
            self.assertRegex(said.out, rf"(?m)^budget: {re.escape(budget)} ")
            found = self.succeeds("simulate", path, "--json", *flags).json
            self.assertEqual(found["made"]["budget_bytes"], made["budget_bytes"])

    def test_a_gpus_plan_is_simulated_on_another_card_or_refused(self):
        path, made = self.made("--profile", "rtx-4090,pcie=gen3", *TIGHT)
        self.assertEqual(self.succeeds("simulate", path, "--json").json["step_seconds"], made["step_seconds"])
        other = self.succeeds("simulate", path, "--profile", "h100", "--json").json
        self.assertEqual(other["program_hash"], made["program_hash"])
        self.assertNotEqual(other["step_seconds"], made["step_seconds"])
        self.fails(3, "simulate", path, "--profile", "h100,device-memory=20MiB", says="--device-memory")
        self.fails(3, "simulate", path, "--profile", "h100,host-memory=20MiB", says="host memory")
        self.fails(2, "simulate", path, "--profile", "built-in", says="GPU")
        path, made = self.made("--profile", "rtx-4090,host-memory=60MiB", *TIGHT, *FEWER)
        self.assertGreater(made["peak_bytes"]["disk"], 60 << 20)
        done = self.fails(3, "simulate", path, "--profile", "h100,disk=60MiB", "--json", says="raise its entry disk")
        self.assertEqual((done.json["fits"], done.json["short"]), (False, "disk"))
        self.assertEqual(done.json["short_bytes"], made["peak_bytes"]["disk"] - (60 << 20))
        path, _ = self.made(*TIGHT, "--disk", self.folder)
        self.fails(3, "simulate", path, "--profile", "built-in-2,device-memory=20MiB", says="--device-memory")
        self.fails(2, "simulate", path, "--profile", "v100", says="rtx-4090")

    def test_a_plan_that_another_tool_sorted_is_a_plan_with_other_bytes(self):
        plan = self.path("plan.json")
        self.succeeds("plan", *TINY, "-o", plan)
        with open(plan, encoding="utf-8") as file:
            members = json.load(file)
        with open(plan, "w", encoding="utf-8") as file:
            json.dump(members, file, indent=2, sort_keys=True)
        for command in ("check", "inspect", "simulate"):
            self.fails(4, command, plan, says="its bytes are not those its hash names: it was edited or damaged, or written again by a tool")

    def test_train_runs_exactly_the_plan_of_the_file_and_keeps_one_that_is_simulated(self):
        path, made = self.made(*TIGHT, "--disk", self.folder)
        run = self.path("run")
        done = self.succeeds("train", *NANO, *TIGHT, "--disk", self.folder, "--data", self.corpus(), "--steps", "1",
                             "--plan", path, "--save", run, "--json").json
        self.assertEqual(done["program_hash"], made["program_hash"])
        self.assertEqual(done["peak_bytes"], made["peak_bytes"])
        kept = self.succeeds("simulate", os.path.join(run, "plan.json"), "--json").json
        self.assertEqual(kept["program_hash"], made["program_hash"])

    def test_files_that_are_no_plans_of_ours_are_refused(self):
        path, _ = self.made(*TIGHT, "--disk", self.folder)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for changed, says in [("{}", "not a plan"), (text.replace('"depths"', '"deaths"'), "deaths"),
                              (text.replace("gpt2-nano", "gpt2-nana"), "path")]:
            other = self.write("other.json", changed)
            for command in (["simulate", other], ["explain", other, "wte"]):
                done = self.fails(4, *command)
                self.assertIn(says if says != "path" else other, done.err)
        self.fails(2, "simulate", self.path("gone"), says="is not there")
        os.mkdir(self.path("run"))
        self.fails(4, "simulate", self.path("run"), says="a run's plan.json")
        kept = self.path("run", "plan.json")
        os.link(path, kept)
        for command, taker in ((["simulate", self.path("run")], "simulate"), (["explain", self.path("run") + "/", "wte"], "explain"),
                               (["plan", *NANO, *TIGHT, "--plan", self.path("run")], "--plan")):
            self.fails(4, *command, says=f"is a folder, and {taker} takes a plan file: give {kept}")
        said = self.fails(2, "explain", path, says="OPERATOR is missing: give a name such as ").err
        name, command = re.search(r"such as ([\w.]+); cohobate (.*) lists", said).groups()
        self.assertIn(" ".join(command.split()), " ".join(run("explain", "--help").out.split()))
        listed = self.succeeds(*command.replace("MODEL", "gpt2-nano").split(), "--sequence", 16, "--batch", 1).out
        self.assertRegex(listed, rf"(?m)^{re.escape(name)} ")
        model, other = self.path("llama"), self.path("llama.json")  # the name is one of the plan's own
        model_folder.make(model, "llama")
        self.succeeds("plan", model, *QUICK, "--sequence", 16, "--batch", 1, "-o", other)
        name = re.search(r"such as (\S+);", self.fails(2, "explain", other).err)[1]
        self.assertEqual(self.succeeds("explain", other, name, "--json").json["operator"], name)
        self.fails(2, "explain", path, "h.9.attn", says="'h.9.attn' is no operator")
        self.fails(2, "explain", path, "wte", "wpe", says="one operand too many")

    def test_explain_costs_each_alternative_by_its_own_program(self):
        path, made = self.made(*TIGHT, "--disk", self.folder, "--recompute", "none")
        found = self.succeeds("explain", path, "h.3.mlp.c_fc", "--json").json
        tried = {one["pin"]: one for one in found["alternatives"]}
        every = set(tried) | set(found["as_planned"])
        self.assertEqual(every, {"h.3.mlp.c_fc=device", "h.3.mlp.c_fc=disk", "blocks.3=recompute", "blocks.3=keep",
                                 "blocks.3=offload"})
        self.assertEqual(found["step_seconds"], made["step_seconds"])
        again = tried["blocks.3=recompute"]
        self.assertTrue(again["fits"])
        self.assertAlmostEqual(again["change"], again["step_seconds"] / made["step_seconds"] - 1, delta=1e-6)
        # recomputing the block is compute that the plan does not have
        self.assertGreater(again["compute_seconds"], made["busy_seconds"]["compute"])
        for one in tried.values():
            if one["fits"]:
                self.assertLessEqual(one["peak_bytes"]["device"], 40 << 20)
        said = self.succeeds("explain", path, "h.3.mlp.c_fc").out
        self.assertIn(found["why"], " ".join(said.split()))
        table = [line for line in said.split("\n")[:-2] if "does not fit" not in line]  # a message, however long
        self.assertLessEqual(max(map(len, table)), 120)

    def test_explain_tells_what_is_so_already_from_what_would_be_otherwise(self):
        path, made = self.made(*TIGHT, "--disk", self.folder, "--dtype", "f32", "--search", "quick")  # with rows that are so already
        words = {"offload": "move"}
        held_to = 0
        for op in made["operators"]:
            if op["name"] not in ("wte", "wpe", "h.0.mlp.c_fc", "h.4.mlp.c_fc", "h.5.ln_1"):
                continue
            found = self.succeeds("explain", path, op["name"], "--json").json
            said = self.succeeds("explain", path, op["name"]).out
            block = {one["activations"] for one in made["operators"] if one["block"] == op["block"]}
            for one in found["alternatives"]:
                target, place = one["pin"].split("=")
                is_so = op["parameters"] == place if target == op["name"] else block == {words.get(place, place)}
                self.assertEqual(one.get("is_so", False), is_so, one)
                row = re.search(rf"(?m)^{one['pin']} +(.*)$", said)[1]
                self.assertEqual(row.startswith("is so already; held to it throughout"), is_so, row)
                held_to += is_so
                if is_so and one.get("change", 0) > 0:
                    self.assertNotIn(one["pin"], found["why"])
        self.assertGreater(held_to, 0)

    def test_what_does_not_fit_alone_fits_with_the_search_that_explain_names(self):
        """Budgets and chunks are of a search: explain has no flag for them, so it names the search with the pin."""
        flags = ["--device-memory", "12MiB", "--disk", self.folder, "--dtype", "f32", "--search", "quick"]
        path, _ = self.made(*flags)
        explain = ["explain", path, "h.3.mlp.c_fc"]
        said = " ".join(self.succeeds(*explain).out.split())
        short = [one for one in self.succeeds(*explain, "--json").json["alternatives"] if not one.get("fits", True)]
        self.assertTrue(short)
        for one in short:
            self.assertIn(f"{one['pin']} does not fit while all other decisions stay: {one['why']}", said)
            pin = re.search(r"to change them, plan with --pin '(\S+)'$", one["why"])[1]
            self.assertEqual(pin, one["pin"])
            self.assertEqual((one["refusal"]["changes"], one["refusal"]["remedy"]), ([], None))
            for flag in re.findall(r"--([a-z-]+)", one["why"]):
                if flag != "pin":
                    self.assertIn(f"--{flag}", self.succeeds("explain", "--help").out)
            found = self.made(*flags, "--pin", pin)[1]
            self.assertLessEqual(found["peak_bytes"]["device"], 12 << 20)
            block = {op["activations"] for op in found["operators"] if op["block"] == 3}
            self.assertEqual(block, {"keep"})

    def test_explain_prints_names_that_can_be_copied(self):
        path = self.path("plan.json")
        self.succeeds("plan", "llama-3.2-1b", "--profile", "rtx-4090,device-memory=4GB", "--sequence", "512", "--search", "quick",
                      "--recompute", "all", "--chunk", "512MiB", "--json", "-o", path)
        said = self.succeeds("explain", path, "model.layers.3.mlp.down_proj").out
        self.assertRegex(said, r"(?m)^model\.layers\.3\.mlp\.down_proj=(device|host)$")
        self.assertRegex(said, r"(?m)^blocks\.3=\w+ {2}")
        self.assertIn("\n  parameters   none\n", self.succeeds("explain", path, "model.layers.3.mlp.act_fn").out)

    def test_explain_takes_no_more_room_than_the_plan_was_made_for(self):
        path, made = self.made(*TIGHT, "--disk", self.folder)
        explain = ["explain", path, "h.3.mlp.c_fc", "--json", "--device-memory"]
        self.fails(2, *explain, "80MiB", says="planned for (40.00 MiB), and explain searches nothing")
        found = self.succeeds(*explain, "40MiB").json
        self.assertEqual(found, self.succeeds(*explain[:-1]).json)
        # alternatives have no more memory than reported: where one used the plan's free memory, it does not fit
        less = self.succeeds(*explain, f"{made['peak_bytes']['device']}B").json
        self.assertEqual(less["step_seconds"], found["step_seconds"])
        for one in less["alternatives"]:
            if one["fits"]:
                self.assertLessEqual(one["peak_bytes"]["device"], made["peak_bytes"]["device"])
        self.fails(3, *explain, "20MiB", says="raise --device-memory")

    def test_explain_holds_alternatives_to_the_plans_write_limit(self):
        path = self.path("plan.json")
        plan = ["plan", "gpt2-nano", "--dtype", "bf16", "--sequence", "64", "--batch", "8", "--threads", "2",
                "--device-memory", "70MiB", "--disk", self.folder, "--recompute", "none", "--json", "-o", path]

        def tried(*more):
            made = self.succeeds(*plan, *more).json
            found = [self.succeeds("explain", path, name, "--json").json for name in ("h.3.mlp.c_fc", "h.0.mlp.c_fc", "wte")]
            return made, {one["pin"]: one for each in found for one in each["alternatives"]}, [each["why"] for each in found]

        made, free, _ = tried()
        day = made["disk_bytes_written_per_day"]
        held_to, limited, why = tried("--disk-write-limit", f"{day * 1.001:.0f}B/day")
        self.assertEqual(held_to["program_hash"], made["program_hash"])
        refused = {pin for pin, one in limited.items() if "--disk-write-limit allows" in one.get("why", "")}
        self.assertTrue(refused)
        for pin in refused:
            self.assertTrue(free[pin]["fits"], pin)
            self.assertFalse(limited[pin]["fits"], pin)
            self.assertFalse(any(each.startswith(pin) for each in why))

    def test_explain_says_what_updates_on_the_host_lane_would_cost(self):
        path, made = self.made("--profile", "h100,pcie=2GB/s", *TIGHT)
        found = self.succeeds("explain", path, "h.3.mlp.c_fc", "--json").json
        tried = {one["pin"]: one for one in found["alternatives"]}
        there = {"update on the device", "update on the host lane"}
        self.assertEqual(len(there & set(tried)), 1)
        self.assertEqual(len(there & set(found["as_planned"])), 1)
        self.assertIn("h.3.mlp.c_fc=host", set(tried) | set(found["as_planned"]))
        best = min((one for one in tried.values() if one["fits"]), key=lambda one: one["step_seconds"])
        if best["step_seconds"] < made["step_seconds"]:
            self.assertTrue(found["why"].startswith(f"{best['pin']} alone would be "), found["why"])
        else:
            self.assertTrue(found["why"].startswith("as planned the step is fastest"), found["why"])

    def test_explain_of_a_run_in_memory_has_no_far_places(self):
        path, _ = self.made()
        found = self.succeeds("explain", path, "wte", "--json").json
        self.assertEqual((found["alternatives"], found["as_planned"]), ([], []))
        self.assertIn("no other place", found["why"])

    def test_explain_tells_a_contradiction_from_what_does_not_fit(self):
        path, _ = self.made(*TIGHT, "--disk", self.folder, "--pin", "h.3.mlp.c_fc=keep")
        said = self.succeeds("explain", path, "h.3.mlp.c_fc").out
        self.assertRegex(said, r"(?m)^blocks.3=recompute +contradicts the plan's pins: ")
        tried = {one["pin"]: one for one in self.succeeds("explain", path, "h.3.mlp.c_fc", "--json").json["alternatives"]}
        self.assertTrue(tried["blocks.3=recompute"]["contradicts"])
        self.assertNotIn("fits", tried["blocks.3=recompute"])

    def test_explain_says_that_a_pin_of_the_plan_holds_what_would_be_faster(self):
        pins = [word for block in range(4) for word in ("--pin", f"blocks.{block}=recompute")]
        path, _ = self.made(*pins)  # in memory, where nothing need be recomputed
        found = self.succeeds("explain", path, "h.3.mlp.c_fc", "--json").json
        tried = {one["pin"]: one for one in found["alternatives"]}
        self.assertTrue(tried["blocks.3=keep"]["replaces_pin"])
        self.assertLess(tried["blocks.3=keep"]["change"], 0)
        self.assertRegex(found["why"], "blocks.3=keep alone would be .* faster: the plan's own pin for it asks otherwise")


if __name__ == "__main__":
    unittest.main()
