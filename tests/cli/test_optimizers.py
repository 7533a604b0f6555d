"""--optimizer, --optimizer-for, --hyperparameter and --reset-optimizer: choices, refusals, resumes."""

import json
import os
import unittest

import model_folder
from program import QUICK, SHORT, TrainTest

SMALL = ["--tokenizer", "bytes", "--sequence", 16, "--batch", 2, "--threads", 2, "--validation", "none"]
CHOICES = {
    "sgd": ["--optimizer", "sgd", "--hyperparameter", "nesterov=1"],
    "lion": ["--optimizer", "lion", "--lr", "1e-4", "--beta2", 0.98],
    "adamw8": ["--optimizer", "adamw8"],
    "adamw8sr": ["--optimizer", "adamw8sr"],
    "mixed": ["--optimizer", "adamw8", "--optimizer-for", "*.bias,ln_f=adamw", "--optimizer-for", "wte,wpe=lion",
              "--hyperparameter", "lion.beta2=0.95"],
}


class Optimizers(TrainTest):
    def setUp(self):
        super().setUp()
        model_folder.make(self.path("model"), "gpt2")
        self.data = self.write("data.txt", bytes(i * i * 7 % 251 % 96 + 32 for i in range(2000)))

    def small(self, name, *flags):
        return self.succeeds("train", self.path("model"), "--data", self.data, *SMALL, "--save", self.path(name), *flags)

    def refused(self, says, *flags, code=2):
        done = self.fails(code, "train", self.path("model"), "--data", self.data, *SMALL, "--steps", 2, "--save",
                          self.path("nothing"), *flags, says=says)
        self.assertFalse(os.path.exists(self.path("nothing")))
        return done

    # ---- bits ----

    def test_a_streamed_run_stopped_halfway_ends_with_the_bits_of_the_run_in_memory(self):
        for name, flags in [("mixed", CHOICES["mixed"])] if SHORT else CHOICES.items():
            for dtype in ["bf16"] if SHORT else ["f32", "bf16"]:
                with self.subTest(name, dtype=dtype):
                    chosen = [*flags, "--dtype", dtype]
                    folder = f"{name}-{dtype}"
                    self.small(f"{folder}.whole", *chosen, "--steps", 4, "--schedule-steps", 4)
                    tight = ["--device-memory", "300KiB", "--disk", f"{self.path('disk')}:1GiB"]
                    os.makedirs(self.path("disk"), exist_ok=True)
                    self.small(f"{folder}.half", *chosen, *tight, "--steps", 2, "--schedule-steps", 4)
                    more = self.succeeds("train", "--resume", self.path(f"{folder}.half"), "--threads", 2, *tight, "--steps", 4)
                    self.assertNotIn("->", more.err)
                    self.assertEqual(self.hash_of(self.path(f"{folder}.whole")), self.hash_of(self.path(f"{folder}.half")))

    def test_optimizers_give_different_weights_and_fingerprints(self):
        seen = {}
        for name, flags in {"adamw": [], **CHOICES}.items():
            done = self.small(name, *flags, "--dtype", "bf16", "--steps", 2)  # in f32 adamw8sr rounds nothing
            facts = self.succeeds("inspect", self.path(name), "--json").json
            seen[name] = (self.says_hash(done), facts["numeric_fingerprint"])
        for part in (0, 1):
            self.assertEqual(len({value[part] for value in seen.values()}), len(seen), seen)

    def test_the_default_is_adamw(self):
        without, named = (self.small(name, *flags, "--dtype", "f32", "--steps", 2)
                          for name, flags in (("without", []), ("named", ["--optimizer", "adamw", "--beta1", 0.9])))
        self.assertEqual(self.says_hash(without), self.says_hash(named))

    def test_state_is_short_for_a_dtype_and_an_optimizer(self):
        for state, dtype, optimizer in (("f32", "f32", "adamw"), ("split", "bf16", "adamw"), ("lean", "bf16", "adamw8"),
                                        ("sr", "bf16", "adamw8sr")):
            with self.subTest(state):
                short = self.small(state, "--state", state, "--steps", 2)
                self.assertEqual("what is not bf16 is rounded to it" in short.err, state == "sr")
                full = self.small(f"{state}.full", "--dtype", dtype, "--optimizer", optimizer, "--steps", 2)
                self.assertEqual(self.says_hash(short), self.says_hash(full))

    def test_a_run_without_master_continues_from_any_weights(self):
        self.small("split", "--state", "split", "--steps", 1, "--schedule-steps", 4)
        again = ["train", "--resume", self.path("split"), "--threads", 2]
        self.fails(2, *again, "--state", "sr", "--steps", 2, says="add --reset-optimizer to start new ones, or leave --state out")
        self.succeeds(*again, "--state", "sr", "--reset-optimizer", "--steps", 2)
        more = self.succeeds(*again, "--steps", 3)
        self.assertNotIn("->", more.err)

    # ---- plans ----

    def test_a_plan_has_the_bytes_of_the_state_and_says_what_lean_would_bring(self):
        model = ["plan", "gpt2-nano", "--batch", 8, "--sequence", 64, "--threads", 2, "--tokenizer", "bytes"]
        # with the gradient; gpt2-nano's pages add up to 0.1
        for state, most in (("f32", 16.1), ("split", 14.1), ("lean", 8.2), ("sr", 6.2)):
            facts = self.succeeds(*model, "--state", state, "--json").json
            self.assertLess(most - 0.2, facts["stream_bytes"] / facts["parameters"])
            self.assertLess(facts["stream_bytes"] / facts["parameters"], most)
        tight = ["--device-memory", "60MiB", "--disk", self.path(""), *QUICK]
        self.assertIn("states: 8-bit moments (--state lean): a quick plan", self.succeeds(*model, "--state", "split", *tight).out)
        self.assertIn("states: 8-bit moments (--optimizer adamw8):", self.succeeds(*model, "--state", "f32", *tight).out)
        self.assertNotIn("8-bit", self.succeeds(*model, "--state", "lean", *tight).out)
        self.assertNotIn("8-bit", self.succeeds(*model, "--state", "split").out)  # nothing moves

    # ---- what is kept ----

    def test_a_checkpoint_has_a_file_per_stream_and_tells_the_optimizers(self):
        self.small("run", *CHOICES["mixed"], "--dtype", "f32", "--steps", 1)
        newest = self.succeeds("inspect", self.path("run"), "--json").json["path"]
        names = {name for name in os.listdir(newest) if name.endswith((".bin", ".state"))}
        self.assertEqual(names, {"work.bin", "hashes.bin", "m.bin", "v.bin", "m_code.state", "m_scale.state", "v_code.state",
                                 "v_scale.state"})
        with open(os.path.join(newest, "manifest.json"), encoding="utf-8") as file:
            tensors = {tensor["name"]: tensor["optimizer"] for tensor in json.load(file)["tensors"]}
        self.assertEqual(tensors["wte.weight"], "lion")
        self.assertEqual(tensors["h.0.attn.c_attn.weight"], "adamw8")
        self.assertEqual(tensors["h.0.attn.c_attn.bias"], "adamw")
        self.assertEqual(self.succeeds("inspect", newest, "--json").json["optimizers"], ["lion", "adamw8", "adamw"])
        self.assertIn("trained by lion, adamw8, adamw\n", self.succeeds("inspect", newest).out)

    def test_a_plan_file_keeps_the_optimizers(self):
        plan = self.path("plan.json")
        flags = ["--batch", 2, "--sequence", 16, "--threads", 2]
        self.succeeds("plan", "gpt2-nano", *flags, *CHOICES["mixed"], "-o", plan)
        self.assertIn("simulated", self.succeeds("simulate", plan).out + "simulated")
        corpus = self.corpus()
        train = ["train", "gpt2-nano", *flags, "--data", corpus, "--steps", 1, "--save", "none", "--plan", plan]
        self.succeeds(*train, *CHOICES["mixed"])
        self.fails(2, *train, says="give the optimizers of the file")

    # ---- refusals ----

    def test_bad_choices_are_refused_before_anything_is_written(self):
        self.refused("--optimizer is one of", "--optimizer", "adam")
        self.refused("no optimizer is called 'adam'", "--optimizer-for", "wte=adam")
        self.refused("matches no trained parameter", "--optimizer-for", "nothing*=lion")
        self.refused("two optimizers are given for parameter wte.weight", "--optimizer-for", "wte=lion", "--optimizer-for",
                     "w*=sgd")
        short = "--state lean is short for --dtype bf16 --optimizer adamw8: leave --state out"
        self.refused(short, "--state", "lean", "--optimizer", "adamw8")
        self.refused(short, "--state", "lean", "--dtype", "f32")
        self.refused("--state takes one of", "--state", "tiny")
        self.refused("takes a pattern", "--optimizer-for", "wte")
        self.refused("takes a pattern", "--optimizer-for", "=lion")
        self.refused("momentum of optimizer sgd is 1", "--optimizer", "sgd", "--hyperparameter", "momentum=1")
        self.refused("no optimizer of this run has a number momentum", "--hyperparameter", "momentum=0.5")
        self.refused("no optimizer of this run has a number lion.beta1", "--hyperparameter", "lion.beta1=0.5")
        self.refused("lion.beta1, since the run has no optimizer lion but adamw, sgd: name one that it has", "--hyperparameter",
                     "lion.beta1=0.5", "--optimizer-for", "wte=sgd", "--optimizer-for", "wpe=sgd")
        self.refused("a number sgd.beta1: give one of sgd.momentum, sgd.nesterov, or leave it out", "--hyperparameter",
                     "sgd.beta1=0.9", "--optimizer-for", "wte=sgd")
        self.refused("no optimizer of this run has a number beta2", "--optimizer", "sgd", "--beta2", 0.9)
        self.refused("epsilon of optimizer adamw is 0", "--hyperparameter", "epsilon=0")
        self.refused("--reset-optimizer is for --resume", "--reset-optimizer")

    def test_a_resume_with_another_optimizer_needs_new_states(self):
        self.small("run", "--dtype", "f32", "--steps", 2, "--schedule-steps", 6)
        before = sorted(os.listdir(self.path("run")))
        again = ["train", "--resume", self.path("run"), "--threads", 2]
        self.fails(2, *again, "--optimizer", "lion", "--steps", 3, says="add --reset-optimizer")
        self.fails(2, *again, "--optimizer-for", "wte=sgd", "--steps", 3, says="add --reset-optimizer")
        self.assertEqual(sorted(os.listdir(self.path("run"))), before)
        done = self.succeeds(*again, "--optimizer", "lion", "--reset-optimizer", "--steps", 3)
        self.assertIn("optimizer adamw -> lion", done.err)
        self.assertIn("the optimizer's states start again", done.err)
        more = self.succeeds(*again, "--steps", 4)  # the note has the new one
        self.assertNotIn("->", more.err)

    def test_new_states_are_those_of_a_run_from_the_weights_alone(self):
        self.small("run", "--dtype", "f32", "--steps", 1, "--schedule-steps", 6)
        kept = ["train", "--resume", self.path("run"), "--threads", 2, "--steps", 2]
        fresh = self.succeeds(*kept, "--reset-optimizer", "--lr", "1e-3")
        facts = self.succeeds("inspect", self.path("run"), "--json").json
        self.assertEqual(facts["applied_count"], 1, fresh.out)


if __name__ == "__main__":
    unittest.main()
