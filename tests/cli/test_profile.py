"""Profiles price plans: shipped datasheets, entries, files; how train uses them."""

import json
import os
import unittest

from program import QUICK, NANO, TINY, ProgramTest

# In short a search that decides less, where other decisions are tested.
FEWER = ["--recompute", "all"] if QUICK else []
SHIPPED = ["a100-40g", "a100-80g", "a100x8-800gbit", "a100x8-80gbit", "frontier", "h100", "h200", "h200x8", "mi250x",
           "rtx-3090", "rtx-3090x4", "rtx-4090", "rtx-5090"]
DATASHEETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/profiles")


def datasheet(name):
    with open(os.path.join(DATASHEETS, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


class Profile(ProgramTest):
    def plan(self, profile, *flags):
        return self.succeeds("plan", *NANO, "--json", "--profile", profile, *flags).json

    def test_every_shipped_datasheet_is_inspected_checked_and_plans(self):
        self.assertEqual(sorted(name[:-5] for name in os.listdir(DATASHEETS)), SHIPPED)
        for name in SHIPPED:
            with self.subTest(name=name):
                found = self.succeeds("inspect", name, "--json").json
                given = datasheet(name)
                self.assertEqual((found["name"], found["source"], found["what_if"]), (name, "datasheet", True))
                self.assertEqual(found["bf16_flops_per_s"], given["flops_per_s"]["bf16"])
                self.assertEqual(found["device_bytes"], given["memory_bytes"]["device"])
                self.assertEqual(len(found["origins"]), len(given["origins"]))
                self.assertEqual(self.succeeds("check", name, "--json").json["hash"], found["hash"])
                planned = self.plan(name)
                self.assertEqual(planned["profile"], {"name": name, "source": "datasheet", "device": "gpu",
                                                      "what_if": True, "hash": found["hash"], "calibrated_runs": 0})
                self.assertEqual(planned["budget_bytes"], given["memory_bytes"]["device"])
                self.assertEqual(planned["dtype"], "bf16")
                self.assertFalse(planned["emulated"])

    def test_twice_the_link_halves_the_time_of_a_step_that_the_link_bounds(self):
        tight = ["--device-memory", "40MiB", "--sequence", "64", "--batch", "8"]
        slow, fast = (self.plan(f"h100,pcie={rate}MB/s", *tight) for rate in (100, 200))
        self.assertGreater(slow["link_bytes"]["h2d"], 0)
        self.assertAlmostEqual(slow["step_seconds"] / fast["step_seconds"], 2, delta=0.1)
        self.assertGreaterEqual(slow["step_seconds"], slow["link_bytes"]["h2d"] / 100e6)
        self.assertNotEqual(slow["profile"]["hash"], fast["profile"]["hash"])
        self.assertIn("pcie=100MB/s", slow["profile"]["name"])

    def test_the_drive_is_taken_where_the_host_is_too_small(self):
        tight = ["--device-memory", "40MiB", "--host-memory", "60MiB"]
        planned = self.plan("a100-40g", *tight, *FEWER)
        self.assertGreater(planned["peak_bytes"]["disk"], 0)
        self.assertLessEqual(planned["peak_bytes"]["host"], 60 << 20)
        self.assertEqual(self.plan("a100-40g", *tight[:2], *FEWER)["peak_bytes"]["disk"], 0)
        self.fails(3, "plan", *NANO, "--profile", "a100-40g,disk=1MB", *tight, says="--profile a100-40g,disk=1MB")

    def test_the_output_for_people_says_that_it_is_a_what_if(self):
        said = self.succeeds("plan", *NANO, "--profile", "rtx-4090").out
        self.assertRegex(said, r"prices: WHAT-IF, profile rtx-4090 \(datasheet of 2022-10, hash [0-9a-f]{16}\)")
        self.assertNotIn("EMULATED", said)
        self.assertNotIn("WHAT-IF", self.succeeds("plan", *NANO).out)
        self.assertIn("ASSUMED", self.succeeds("inspect", "rtx-4090").out)

    def test_the_rate_of_host_memory_goes_with_its_shares_and_is_said(self):
        tight = ["--device-memory", "40MiB", "--calibration", "none", *FEWER]
        for entries, words in (("", "51.2 GB/s of host memory, 1 of its machine's 8 shares"),
                               (",host-memory=512GiB", "205 GB/s of host memory, 4 of its machine's 8 shares")):
            printed = " ".join(self.succeeds("plan", *NANO, "--profile", "a100-40g" + entries, *tight).out.split())
            self.assertIn("links and updates share " + words, printed)
        found = self.succeeds("inspect", "a100-40g,host-memory=512GiB", "--json").json
        self.assertEqual((found["host_gpus"], found["host_shares"]), (8, 4))
        self.assertEqual(found["shared_host_bytes_per_s"], 4 * datasheet("a100-40g")["host_memory_bytes_per_s"])
        self.assertIn("4 of 8 shares", self.succeeds("inspect", "a100-40g,host-memory=512GiB").out)
        self.assertNotIn("shares", self.succeeds("inspect", "rtx-4090").out)
        slow, fast = (self.plan("rtx-4090,host-memory-rate=" + rate, *tight) for rate in ("1GB/s", "1TB/s"))
        self.assertGreater(slow["step_seconds"], fast["step_seconds"])

    def test_a_plan_is_replayed_under_its_profile_alone(self):
        plan = self.path("plan.json")
        made = self.plan("h100", "--device-memory", "40MiB", "-o", plan)
        again = self.plan("h100", "--device-memory", "40MiB", "--plan", plan)
        self.assertEqual(made["program_hash"], again["program_hash"])
        self.fails(2, "plan", *NANO, "--dtype", "bf16", "--device-memory", "40MiB", "--plan", plan, says="profile h100")
        self.fails(2, "train", *NANO, "--dtype", "bf16", "--data", self.corpus(), "--device-memory", "40MiB",
                   "--plan", plan, says="for a GPU")

    def test_a_gpu_alone_takes_no_drive_that_nobody_named(self):
        alone = ["plan", "opt-13b", *QUICK, "--profile", "h200", "--host-memory", "none"]
        self.fails(3, *alone, says="without a far tier")
        self.assertEqual(self.succeeds(*alone[:-2], "--json").json["peak_bytes"]["disk"], 0)

    def test_atomics_are_of_plans_for_a_gpu_and_said(self):
        on, off = self.path("on.json"), self.path("off.json")
        made, usual = self.plan("h100", "--atomics", "on", "-o", on), self.plan("h100", "-o", off)
        self.assertNotEqual(made["numeric_fingerprint"], usual["numeric_fingerprint"])
        self.assertEqual(self.plan("h100", "--atomics", "off")["program_hash"], usual["program_hash"])
        self.assertEqual(self.plan("h100", "--atomics", "on", "--plan", on)["program_hash"], made["program_hash"])
        for path, says in ((on, self.assertIn), (off, self.assertNotIn)):
            says("in bf16 (atomics), ", self.succeeds("inspect", path).out)
            says("attention backward by atomics", self.succeeds("simulate", path).out)
            with open(path, encoding="utf-8") as file:
                says('"atomics": 1', file.read())
        self.fails(2, "plan", *NANO, "--profile", "h100", "--plan", on, says="give --atomics on")
        self.fails(2, "plan", *NANO, "--plan", on, says="give that --profile")
        self.fails(2, "plan", *NANO, "--profile", "h100", "--atomics", "on", "--plan", off, says="give --atomics off")
        for flags, of in (([], "a GPU"), (["--profile", "h100", "--dtype", "f32"], "weights in bf16"),
                          (["--profile", "h100", "--dropout", "0.1"], "attention without dropout")):
            self.fails(2, "plan", *NANO, "--atomics", "on", *flags, says=f"--atomics on is of {of}: leave it out")
        for of, says in (("gemma-2-9b", "a cap of 50"), ("gemma-3-27b", "a scale of 0.077"),
                         ("phi-3-medium", "a window of 2047")):
            self.fails(2, "plan", of, "--profile", "h100", "--sequence", "4096", "--atomics", "on", says=says)
        # Its heads have 256 channels, not hidden_size / num_attention_heads = 320.
        self.succeeds("plan", "gemma-3-4b", "--profile", "h100", "--search", "quick", "--sequence", "64", "--atomics", "on")

    def test_train_takes_a_profile_of_a_host_device_and_no_other(self):
        data, host = self.corpus(), datasheet("h100")
        host["device"] = "host"
        path = self.write("host.json", json.dumps(host))
        done = self.succeeds("train", *NANO, "--data", data, "--steps", "2", "--save", "none", "--profile", path)
        self.assertIn("what-if", done.err)
        plain = self.succeeds("train", *NANO, "--data", data, "--steps", "2", "--save", "none")
        self.assertEqual(self.says_hash(done), self.says_hash(plain))
        self.fails(2, "train", *NANO, "--data", data, "--profile", "h100", says="is of a GPU")

    def test_a_measurement_of_another_machine_is_a_what_if(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            self.skipTest("one core cannot pretend to be another machine")
        path, data = self.path("here.json"), self.corpus()
        self.succeeds("profile", *TINY[:1], "--quick", "--sequence", "16", "--batch", "2", "--threads", "2", "-o", path)
        self.assertEqual(self.succeeds("plan", *TINY, "--json", "--profile", path).json["profile"]["what_if"], False)
        # the fingerprint of a machine includes the number of cores a process has
        elsewhere = {"preexec_fn": lambda: os.sched_setaffinity(0, cores[:1])}
        there = self.succeeds("plan", *TINY, "--json", "--profile", path, **elsewhere).json
        self.assertEqual(there["profile"]["what_if"], True)
        train = ["train", *TINY, "--data", data, "--steps", "1", "--save", "none", "--profile", path]
        self.assertIn("another machine", self.succeeds(*train, **elsewhere).err)
        self.assertNotIn("what-if", self.succeeds(*train).err)
        # nor do times of one thread apply to two: reported once, and the memory stays this machine's
        alone = ["--threads", "1"]
        one = self.succeeds("plan", *TINY[:-2], *alone, "--json", "--profile", path)
        self.assertEqual(one.json["profile"]["what_if"], True)
        self.assertEqual(one.err.count("measured for 2 threads, this run has 1"), 1)
        self.assertIn("cohobate profile --threads 1", one.err)
        self.assertIn("measured for 2 threads", self.succeeds(*(train[:1] + TINY[:-2] + train[len(TINY) + 1 :]), *alone).err)
        self.assertNotIn("measured for", self.succeeds(*train).err)

    def test_gradients_of_another_kind_are_added_to_a_profile(self):
        measure = ["profile", "gpt2-nano", "--quick", "--dtype", "bf16", "--sequence", "16", "--micro-batch", "2", "--threads", "2",
                   "--json", "-o", self.path("here.json")]
        counts = [self.succeeds(*measure, *flags).json["operators"] for flags in (
            ["--batch", "2"], ["--batch", "4"], ["--batch", "4", "--gradients", "f32"], ["--batch", "2", "--gradients", "f32"])]
        self.assertTrue(counts[0] < counts[1] < counts[2] == counts[3], counts)
        self.fails(2, "profile", "gpt2-nano", "--dtype", "f32", "--gradients", "bf16", says="leave it out, or add --dtype bf16")

    def test_a_disk_is_not_priced_by_a_profile_without_a_drive(self):
        host = {**datasheet("h100"), "device": "host"}
        del host["links"]["write"]
        path = self.write("host.json", json.dumps(host))
        self.plan(path)
        self.fails(2, "plan", *NANO, "--profile", path, "--disk", self.folder, says="disk-write=")
        self.plan(path + ",disk-write=1GB/s", "--disk", self.folder)
        # too little memory: it is unknown whether a disk helps
        self.fails(3, "plan", *NANO, "--profile", path, "--device-memory", "4MiB", says="knows no drive")
        del host["links"]["h2d"]
        path = self.write("host.json", json.dumps(host))
        self.fails(2, "plan", *NANO, "--profile", path, "--emulate-host", "1GiB", says="pcie=")

    def test_a_gpu_that_is_not_here_is_refused_in_one_sentence(self):
        for model in ([], ["gpt2-nano"]):
            said = self.fails(2, "profile", *model, "--quick", "--device", "cuda:99", says="--device cuda:99: ").err
            self.assertEqual(said.count("\n"), 1, said)

    def test_a_budget_above_the_memory_of_the_profile_is_noted(self):
        plan = ["plan", *NANO, "--profile", "rtx-4090", "--calibration", "none"]
        for flag in ("--device-memory", "--host-memory"):
            self.assertRegex(self.succeeds(*plan, flag, "80GiB").err, rf"^note: {flag} 80GiB is more than the .* GiB that programs can use on the machine of profile rtx-4090: ")
        self.assertNotIn("is more than", self.succeeds(*plan, "--device-memory", "20GiB").err)
        self.assertNotIn("is more than", self.succeeds(*plan, "--what-if", "device-memory=80GiB").err)

    def test_wrong_profiles_are_refused(self):
        good = datasheet("h100")
        self.fails(2, "plan", *NANO, "--profile", "v100", says="rtx-4090")
        self.fails(2, "plan", *NANO, "--profile", "h100,pcie=fast", says="pcie=16GB/s")
        self.fails(2, "plan", *NANO, "--profile", "h100", "--emulate-host", "1GiB", says="--host-memory SIZE")
        self.fails(2, "plan", *NANO, "--profile", "h100", "--device", "host", says="--device host is none: leave --device out")
        self.fails(2, "plan", *NANO, "--host-memory", "1GiB", says="--device-memory")
        self.fails(4, "plan", *NANO, "--profile", self.write("p.json", "{}"), says="not a profile")
        for key, value in (("source", "measured"), ("threads", 0), ("origins", [])):
            path = self.write("bad.json", json.dumps({**good, key: value}))
            for command in (["plan", *NANO, "--profile"], ["check"], ["inspect"]):
                self.fails(4, *command, path, says=path)


if __name__ == "__main__":
    unittest.main()
