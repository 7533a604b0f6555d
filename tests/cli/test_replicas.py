"""Replicas through the command line: their shape is kept, changes of it are said, no placement changes a bit."""

import unittest

from program import QUICK, TrainTest, in_full

RUN = ["gpt2-nano", "--sequence", "16", "--batch", "8", *QUICK, "--threads", "2"]
F32 = ["--dtype", "f32"]
SHAPE = ["--replicas", "2x2"]


class Replicas(TrainTest):
    def hash_of_run(self, *more):
        return self.says_hash(self.train("--steps", 3, "--save", "none", *more, model=RUN))

    def test_a_run_keeps_its_replicas_and_says_others(self):
        whole = self.train("--steps", 4, "--save", "none", *F32, *SHAPE, model=RUN)
        self.assertIn("gradients of replicas made apart, added as 2x2", whole.err)
        self.train("--steps", 2, "--schedule-steps", 4, "--save", self.path("half"), *F32, *SHAPE, model=RUN)
        self.succeeds("plan", *RUN, *F32, *SHAPE, "-o", self.path("plan.json"))
        self.assertIn("replicas 2x2;", self.succeeds("inspect", self.path("plan.json")).out)
        self.assertEqual(self.succeeds("inspect", self.path("plan.json"), "--json").json["replicas"], "2x2")
        self.assertEqual(self.succeeds("simulate", self.path("plan.json"), "--json").json["replicas"], "2x2")
        last = self.resumed(self.path("half"), "--steps", 4, "--plan", self.path("plan.json"))
        self.assertNotIn("other rounding", last.err)
        self.assertEqual(self.says_hash(last), self.says_hash(whole))
        other = self.resumed(self.path("half"), "--steps", 5, "--replicas", 4)
        self.assertIn("replicas 2x2 -> 4: other rounding", other.err)
        self.fails(2, "train", *RUN, *F32, "--replicas", 4, "--data", self.corpus(), "--plan", self.path("plan.json"),
                   says="is for --replicas 2x2: give the same")

    def test_the_shape_is_numeric_and_factors_of_one_are_none(self):
        one = self.succeeds("plan", *RUN, *F32, "--micro-batch", 2, "--json").json
        ones = self.succeeds("plan", *RUN, *F32, "--micro-batch", 2, "--replicas", "1x1x1", "--json").json
        self.assertEqual(one["replicas"], "1")
        self.assertEqual((ones["numeric_fingerprint"], ones["program_hash"]), (one["numeric_fingerprint"], one["program_hash"]))
        prints = {one["numeric_fingerprint"]}
        for shape in ("4", "2x2", "2"):
            done = self.succeeds("plan", *RUN, *F32, "--micro-batch", 2, "--replicas", shape, "--json").json
            self.assertEqual((done["replicas"], done["micro_batch"]), (shape, 2))
            prints.add(done["numeric_fingerprint"])
        self.assertEqual(len(prints), 4)

    def test_a_replica_has_the_default_micro_batch_of_its_share(self):
        for shape, expected in (("1", 8), ("2", 4), ("2x2", 2), ("8", 1)):
            done = self.succeeds("plan", *RUN, *F32, "--replicas", shape, "--json")
            self.assertEqual(done.json["micro_batch"], expected)

    @in_full
    def test_no_placement_changes_a_bit(self):
        for flags in ([*F32, "--dropout", "0.1"], ["--dtype", "bf16", "--gradients", "f32"], [*F32, "--clip", "0"],
                      [*F32, "--clip-mode", "previous"], [*F32, "--lora", "4"], [*F32, "--optimizer", "adamw8"]):
            with self.subTest(flags=flags):
                numbers = [*flags, *SHAPE, "--micro-batch", "1"]
                memory = self.succeeds("plan", *RUN, *numbers, "--json").json["in_memory_bytes"]
                quarter = ["--device-memory", f"{memory // 4096}KiB"]
                whole = self.hash_of_run(*numbers)
                self.assertEqual(self.hash_of_run(*numbers, *quarter, "--disk", self.folder, "--test-poison"), whole)
                self.assertEqual(self.hash_of_run(*numbers, *quarter, "--emulate-host", "1GiB"), whole)

    def test_shapes_that_cannot_be_are_refused(self):
        for shape in ("0", "2x", "x2", "two", "-1", "2x2x2x2", "70000", "99999999999999999999"):
            self.fails(2, "plan", *RUN, *F32, "--replicas", shape, says=f"--replicas '{shape}' is not")
        self.fails(2, "plan", *RUN, *F32, "--replicas", "256x257", says="at most 65536")
        self.fails(2, "plan", *RUN, *F32, "--replicas", 3, says="--replicas 3: 3 replicas do not divide --batch 8")
        self.fails(2, "plan", *RUN, *F32, "--replicas", 16, says="give a multiple of 16")
        self.fails(2, "plan", *RUN, *F32, "--replicas", 4, "--micro-batch", 4,
                   says="--micro-batch 4 does not divide the 2 sequences of each of 4 replicas")
        self.fails(2, "plan", *RUN, "--dtype", "bf16", "--replicas", 2, says="give --gradients f32")


if __name__ == "__main__":
    unittest.main()
