"""Calibration: a run's measured times price the next plan. It is written by train, used and reported by plan, and never
changes a bit. Oracles: the times that train prints of its own lines, and the hash of the same run without a
calibration."""

import fcntl
import json
import os
import re
import unittest

from program import QUICK, TINY, ProgramTest, environment, sealed


class Calibration(ProgramTest):
    def train(self, *more, **keywords):
        return self.succeeds("train", *TINY, "--data", self.corpus(), "--save", "none", "--steps", 8, "--json", *more,
                             **keywords).json

    def plan(self, *more):
        return self.succeeds("plan", *TINY, "--json", *more).json

    def read(self, path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def test_a_run_is_kept_and_the_next_plan_is_by_it(self):
        path = self.path("calibration.json")
        before = self.plan("--calibration", path)
        self.assertFalse(os.path.exists(path))  # planning writes nothing
        first = self.train("--calibration", path)
        factors = {line["opcode"]: line["factor"] for line in first["instructions"]}
        self.assertLessEqual({"forward", "backward", "update", "norm"}, set(factors))
        kept = self.read(path)
        self.assertEqual(kept["runs"], 1)
        for opcode, factor in factors.items():
            self.assertAlmostEqual(kept["opcodes"][opcode.upper()]["factor"], min(max(factor, 0.2), 5), places=3)
        after = self.plan("--calibration", path)
        self.assertEqual(after["profile"]["calibrated_runs"], 1)
        self.assertEqual(after["profile"]["hash"], before["profile"]["hash"])
        self.assertNotEqual(after["step_seconds"], before["step_seconds"])
        self.assertIn("calibrated by 1 run (--calibration none leaves them out)",
                      " ".join(self.succeeds("plan", *TINY, "--calibration", path).out.split()))
        # the factors are relative to prices without the calibration that priced the second run
        second = self.train("--calibration", path)
        self.assertEqual(self.read(path)["runs"], 2)
        both = self.read(path)["opcodes"]
        for line in second["instructions"]:
            mean = (min(max(factors[line["opcode"]], 0.2), 5) + min(max(line["factor"], 0.2), 5)) / 2
            self.assertAlmostEqual(both[line["opcode"].upper()]["factor"], mean, places=3)
        self.assertEqual(first["hash"], second["hash"])

    def test_a_suspended_process_that_holds_the_lock_is_not_waited_for(self):
        path = self.path("calibration.json")
        with open(path + ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.train("--calibration", path)
            self.assertTrue(os.path.exists(path + ".lock"))
        self.assertEqual(self.read(path)["runs"], 1)

    def test_replays_take_the_calibration_that_is_asked_for_and_say_so(self):
        path, file = self.path("calibration.json"), self.path("plan.json")
        self.succeeds("plan", *TINY, "--calibration", "none", "-o", file)
        self.train("--calibration", path)
        for command in (["simulate", file], ["explain", file, "wte"]):
            without, calibrated = (self.succeeds(*command, "--json", "--calibration", name).json for name in ("none", path))
            self.assertNotEqual(without["step_seconds"], calibrated["step_seconds"])
            said = " ".join(self.succeeds(*command, "--calibration", path).out.split())
            self.assertIn("calibrated by 1 run", said)
            plain = " ".join(self.succeeds(*command, "--calibration", "none").out.split())
            self.assertIn(": a guess, not calibrated", plain)
            self.assertNotIn("a guess", said)
        # a note tells of the other prices, unless nothing is explained
        self.assertEqual(self.succeeds("explain", file, "wte", "--calibration", path).err.count("was made for"), 1)
        self.assertEqual(self.fails(2, "explain", file, "nothing", "--calibration", path, says="is no operator").err.count("\n"), 1)

    def test_a_replay_notes_other_prices_exactly_if_they_are_other(self):
        path, plain, priced = self.path("calibration.json"), self.path("plain.json"), self.path("priced.json")
        profile = self.succeeds("plan", *TINY, "--json", "--calibration", "none", "-o", plain).json["profile"]["hash"]
        os.rename(self.made(profile, 2, 1), path)
        self.succeeds("plan", *TINY, "--calibration", path, "-o", priced)
        for command in (["simulate"], ["explain"]):
            for file, calibration in ((plain, "none"), (plain, path), (priced, "none"), (priced, path)):
                operator = ["wte"] if command == ["explain"] else []
                said = self.succeeds(*command, file, *operator, "--calibration", calibration).err
                self.assertEqual("by today's profile and calibration" in said, (file == plain) != (calibration == "none"))

    def test_a_what_if_of_a_plan_names_the_step_that_has_its_prices(self):
        file, what_if = self.path("plan.json"), ["--profile", "built-in,disk-write=2x"]
        self.succeeds("plan", *TINY, "--calibration", "none", "-o", file)
        for command in (["simulate", file], ["explain", file, "wte"]):
            said = self.succeeds(*command, *what_if, "--calibration", self.path("calibration.json")).err
            self.assertIn("has no calibration by this machine's runs: compare with the same command without --profile, with --calibration none", said)
            self.assertNotIn("compare with", self.succeeds(*command, *what_if, "--calibration", "none").err)
            self.assertNotIn("compare with", self.succeeds(*command, "--calibration", "none").err)

    def test_runs_of_another_number_of_threads_calibrate_nothing(self):
        path = self.path("calibration.json")
        made_for_two = ["--profile", "built-in-2", "--calibration", path]
        self.train(*made_for_two, "--threads", 2)
        self.assertEqual(self.plan(*made_for_two, "--threads", 2)["profile"]["calibrated_runs"], 1)
        found = self.succeeds("plan", *TINY, "--json", *made_for_two, "--threads", 1)
        self.assertEqual(found.json["profile"]["calibrated_runs"], 0)
        self.assertIn("is for 2 threads", found.err)

    def test_none_keeps_nothing_and_has_the_same_bits(self):
        cache = self.path("cache")
        os.mkdir(cache)
        named = environment(XDG_CACHE_HOME=cache)
        usual = environment(XDG_CACHE_HOME=cache, COH_CALIBRATION="")
        without = self.train("--calibration", "none", env=usual)
        self.assertEqual(self.train(env=named)["instructions"], [])  # COH_CALIBRATION=none
        self.assertEqual(os.listdir(cache), [])
        kept = self.train(env=usual)
        self.assertEqual(without["hash"], kept["hash"])
        files = os.listdir(os.path.join(cache, "cohobate"))
        self.assertEqual(len(files), 1)
        self.assertRegex(files[0], r"^calibration-[0-9a-f]{16}-[0-9a-f]{16}\.json$")

    def test_a_damaged_file_is_left_out_said_and_written_anew(self):
        path = self.write("calibration.json", "{\"format\": \"cohobate calibration\", \"version\": 1}\n")
        usual = environment(COH_CALIBRATION=path)
        done = self.succeeds("plan", *TINY, env=usual)
        self.assertIn("the calibration is ignored", done.err)
        self.assertNotIn("calibrated by", done.out)
        self.train(env=usual)
        self.assertEqual(self.read(path)["runs"], 1)

    def test_a_file_of_another_kind_that_is_named_is_refused_and_kept(self):
        path = self.write("precious.txt", "what nobody has twice\n")
        for command in (["plan", *TINY], ["train", *TINY, "--data", self.corpus(), "--steps", "2", "--save", "none"]):
            self.fails(4, *command, "--calibration", path, says="--calibration takes what train wrote")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "what nobody has twice\n")

    def made(self, profile, passes, others):
        """A calibration that three runs could have written: factors of forward and backward, and of all else."""
        factors = {opcode: {"factor": passes if opcode in ("FORWARD", "BACKWARD") else others, "runs": 3} for opcode in
                   ("FORWARD", "BACKWARD", "ADD", "NORM", "UPDATE", "LOAD", "STORE", "READ", "WRITE")}
        text = json.dumps({"format": "cohobate calibration", "version": 1, "profile": profile, "runs": 3,
                           "opcodes": factors}, indent=2).removesuffix("\n}") + ",\n"
        return self.write("made.json", sealed(text))

    def test_a_write_limit_that_is_named_is_accepted_whatever_is_chosen_without_it(self):
        """Both plans keep to the limit, the one without the calibration and the faster one with it, which writes more a day."""
        plan = ["plan", "gpt2-pico", "--threads", 1, "--sequence", 32, "--batch", 4, "--search", "quick", "--disk", self.folder]
        profile = self.succeeds(*plan, "--device-memory", "3MiB", "--json").json["profile"]["hash"]
        path = self.made(profile, 0.2, 1)
        two = self.path("two")
        os.mkdir(two)
        for flags in (["--micro-batch", "auto", "--disk", two, "--device-memory", "3MiB"],
                      ["--micro-batch", "1", "--sweep-order", "auto", "--device-memory", "3MiB"],
                      ["--micro-batch", "auto", "--sweep-order", "auto", "--device-memory", "4MiB"]):
            with self.subTest(flags=flags):
                limited = [*plan, *flags, "--calibration", path, "--disk-write-limit"]
                said = self.fails(3, *limited, "1TB/day", says="--disk-write-limit allows 1TB/day; raise --disk-write-limit").err
                for named in re.findall(r"raise --disk-write-limit to ([\d.]+TB/day)", said):
                    self.succeeds(*limited, named)

    def test_what_bits_depend_on_is_chosen_without_it(self):
        nano = ["gpt2-nano", "--dtype", "f32", "--threads", "2", "--json"]
        for flags, passes, others in (  # each would choose otherwise by these factors
                (["--sequence", "8", "--batch", "9", "--micro-batch", "auto"], 0.2, 5),
                (["--sequence", "128", "--batch", "4", "--micro-batch", "2", "--sweep-order", "auto",
                  "--device-memory", "64MiB", "--disk", self.folder, *QUICK], 5, 0.2)):
            with self.subTest(flags=flags):
                without = self.succeeds("plan", *nano, *flags).json
                path = self.made(without["profile"]["hash"], passes, others)
                by_runs = self.succeeds("plan", *nano, *flags, "--calibration", path).json
                self.assertEqual(by_runs["profile"]["calibrated_runs"], 3)
                self.assertGreater(by_runs["step_seconds"], 1.1 * without["step_seconds"])
                for key in ("micro_batch", "sweep_order", "numeric_fingerprint"):
                    self.assertEqual(by_runs[key], without[key], key)

    def test_few_steps_say_nothing(self):
        path = self.path("calibration.json")
        done = self.succeeds("train", *TINY, "--data", self.corpus(), "--save", "none", "--steps", 2, "--json",
                             "--calibration", path)
        self.assertEqual(done.json["instructions"], [])
        self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    unittest.main()
