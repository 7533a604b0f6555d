"""cohobate profile: writes a file that can be read again, adds to it and never replaces it; refusals. Speeds are not
checked."""

import json
import os
import resource
import unittest

from program import SHORT, TINY, ProgramTest, environment, sealed_again

QUICK = ["profile", "gpt2-nano", "--quick", "--threads", "2", "--sequence", "16", "--dtype", "f32"]


class Measure(ProgramTest):
    kept = None  # in short: the first profile made by a test

    def measured(self):
        """A profile of a batch of 1 as `machine.json`: measured each time, in short runs once for all tests."""
        if Measure.kept is None:
            self.succeeds(*QUICK, "--batch", "1", "-o", self.path("machine.json"))
            if SHORT:
                Measure.kept = self.text(self.path("machine.json"))
        else:
            self.write("machine.json", Measure.kept)
        return self.path("machine.json")

    def text(self, path):
        with open(path) as file:
            return file.read()

    def read(self, path):
        return json.loads(self.text(path))

    def curves(self, profile):
        return {(o["kind"], o["dtype"], o["phase"], o["signature"]): o["samples"] for o in profile["operators"]}

    def test_what_is_measured_is_kept_and_added_to(self):
        path = self.path("machine.json")
        # of the process that measures, which may lock less than others here
        limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))}
        said = self.succeeds(*QUICK, "--batch", "1", "--json", "-o", path, **limit).json
        first = self.read(path)
        self.assertEqual(first["memlock_bytes"], 64 << 10)
        self.assertEqual(first["source"], "measured")
        self.assertEqual(first["threads"], 2)
        self.assertEqual(sorted(first["links"]), ["d2h", "h2d"])
        self.assertEqual(said["operators"], len(first["operators"]))
        self.assertEqual(said["fingerprint"], first["fingerprint"])
        phases = {(o["kind"], o["phase"]) for o in first["operators"]}
        for kind in ["linear", "attention", "classifier", "embedding"]:
            for phase in ["forward", "backward"]:
                self.assertIn((f"cohobate.{kind}", phase), phases)
        known = self.succeeds("plan", *TINY, "--dtype", "f32", "--profile", path, "--json")
        self.assertEqual((known.json["unmeasured_operators"], known.json["unmeasured_kind"]), (0, ""))
        self.assertNotIn("no measurement", known.err)
        other = self.succeeds("plan", "llama-3.2-1b", "--dtype", "f32", "--search", "quick", "--profile", path,
                              "--json")
        self.assertEqual(other.json["unmeasured_kind"], "cohobate.rmsnorm")
        self.assertIn(f"cohobate.rmsnorm: the times of {other.json['unmeasured_operators']} of ", other.err)
        self.succeeds(*QUICK, "--batch", "2", "--disk", self.folder, "-o", path)
        second = self.read(path)
        self.assertEqual(sorted(second["links"]), ["d2h", "h2d", "read", "write"])
        for key in ["flops_per_s", "memory_bytes_per_s", "line_ns"]:
            self.assertEqual(first[key], second[key])
        for link in first["links"]:
            self.assertEqual(first["links"][link], second["links"][link])
        grown = self.curves(second)
        for key, samples in self.curves(first).items():
            for sample in samples:
                self.assertIn(sample, grown[key], key)
        self.assertTrue(any(len(grown[key]) > len(samples) for key, samples in self.curves(first).items()))
        self.assertEqual(os.listdir(self.folder), ["machine.json"])  # nothing of the scratch file

    def test_again_adds_to_the_figures_that_are_there(self):
        path = self.measured()
        first = self.read(path)
        self.succeeds(*QUICK, "--batch", "1", "--again", "-o", path)
        second = self.read(path)
        self.assertEqual(first["flops_per_s"], second["flops_per_s"])
        again = self.curves(second)
        for key, samples in self.curves(first).items():
            for before, after in zip(samples, again[key], strict=True):
                self.assertEqual((before["flops"], before["bytes"]), (after["flops"], after["bytes"]))
                self.assertGreater(after["seconds"][3], before["seconds"][3], key)

    def test_without_a_file_the_figures_are_printed(self):
        done = self.succeeds(*QUICK, "--batch", "1")
        self.assertIn("products of f32", done.out)
        self.assertNotIn("\x1b", done.err)

    def test_files_that_are_not_this_machines_are_refused_and_stay(self):
        foreign = self.write("plan.json", '{"format": "cohobate plan"}\n')
        self.fails(2, *QUICK, "-o", foreign, says="no profile")
        path = self.measured()
        before = self.text(path)
        other = QUICK[:QUICK.index("--threads")] + ["--threads", "1"]
        self.fails(2, *other, "-o", path, says="2 threads, not 1")
        self.assertEqual(self.text(path), before)
        damaged = self.write("damaged.json", before.replace('"threads": 2', '"threads": 3'))
        self.fails(4, *QUICK, "-o", damaged, says="damaged.json")

    def test_a_profile_of_other_kernels_is_noticed_and_not_added_to(self):
        path = self.measured()
        before = self.text(path)
        plan = ["plan", *TINY, "--profile", path]
        self.assertNotIn("another machine", self.succeeds(*plan).err)
        # other kernels, as on another machine, under every COH_ISA
        plain = environment(COH_PLAIN_MATMUL="1")
        self.assertIn("another machine", self.succeeds(*plan, env=plain).err)
        self.fails(2, *QUICK, "-o", path, says="was not measured on this machine", env=plain)
        self.assertEqual(self.text(path), before)

    def test_a_limit_at_measuring_binds_no_later_run(self):
        """As of a job of less memory. A profile of another machine keeps its limit."""
        MIB = 1 << 20
        self.measured()
        limited = self.write("limited.json", sealed_again(self.text(self.path("machine.json")), ("cgroup_bytes", 16 * MIB)))
        plan = ["plan", *TINY, "--dtype", "f32", "--profile", limited]
        train = ["train", *TINY, "--dtype", "f32", "--data", self.corpus(), "--steps", 1, "--save", "none", "--profile", limited]
        for command in (plan, train, [*plan, "--device-memory", "64MiB"], [*train, "--device-memory", "64MiB"]):
            self.succeeds(*command)
        rows = self.succeeds(*plan, "--what-if", "memory-rate=2x", "--json").json["rows"]
        self.assertTrue(all(row["fits"] for row in rows), rows)
        elsewhere = environment(COH_PLAIN_MATMUL="1")
        said = self.fails(3, *plan, "--device-memory", "64MiB", says="has a limit of 16777216", env=elsewhere).err
        self.assertIn("the cgroup of profile ", said)
        self.succeeds(*train, "--device-memory", "64MiB", env=elsewhere)

    def test_a_drive_without_a_folder_or_room_is_refused(self):
        path = self.path("machine.json")
        self.fails(2, *QUICK, "--disk", self.path("none"), "-o", path, says="--disk")
        self.fails(3, *QUICK, "--disk", f"{self.folder}:1MiB", "-o", path, says="allow")
        self.fails(2, *QUICK, "-o", self.path("none", "machine.json"), says="-o")
        self.fails(2, "profile", "gpt5-nano", "--quick", says="gpt2-nano")
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
