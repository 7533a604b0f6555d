"""--kinds: a model, a kind and an optimizer of a shared object (examples/own_extension), through the commands that take a
model: the hash is that of the run in memory whatever the budget, a checkpoint resumes, and a missing object is named."""

import json
import os
import pathlib
import shlex
import subprocess
import unittest
from array import array

from program import ProgramTest

SOURCE, INCLUDE = os.environ["COH_EXTENSION"], os.environ["COH_INCLUDE"]


class Extension(ProgramTest):
    def compiled(self, name, *changes):
        """The example's shared object, with texts of its source replaced."""
        with open(SOURCE, encoding="utf-8") as file:
            text = file.read()
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        source, library = self.write(name + ".c", text), self.path(name + ".so")
        subprocess.run([*shlex.split(os.environ["CC"]), "-std=c17", "-O2", "-fPIC", "-shared", "-I" + INCLUDE, source,
                        "-lm", "-o", library], check=True)
        return library

    def arguments(self, library, *more):
        return ["train", "mine-gated", "--kinds", library, "--optimizer", "mine_momentum", "--data", self.corpus(),
                "--batch", 2, "--sequence", 32, "--lr", 0.01, *more]

    def test_a_rank_pattern_of_ones_own_keeps_the_bits(self):
        library = self.compiled("mine")
        shape = ["gpt2-nano", "--kinds", library, "--dtype", "f32", "--batch", 4, "--sequence", 16, "--replicas", "2x2", "--search", "quick"]
        steps = ["--steps", "2", "--save", "none", "--data", self.corpus()]
        whole = self.succeeds("train", *shape, *steps)
        done = self.succeeds("train", *shape, *steps, "--ranks", "4", "--pattern", "mine_node")
        self.assertEqual(self.says_hash(done), self.says_hash(whole))
        self.assertIn("each keeps its part of states (--pattern mine_node)", done.err)
        pinned = self.succeeds("plan", *shape, "--ranks", "4", "--pattern", "replicate", "--pin", "blocks.*=mine_node")
        self.assertIn("each keeps its part of states (--pattern replicate, blocks.*=mine_node)", " ".join(pinned.out.split()))
        self.fails(2, "train", "gpt2-nano", "--data", self.corpus(), "--replicas", "2x2", "--ranks", "4", "--gradients", "f32",
                   "--pattern", "mine_node", says="no rank pattern is called 'mine_node'")

    def test_a_model_trains_resumes_and_is_evaluated(self):
        library = self.compiled("mine")
        whole, half, streamed = self.path("whole"), self.path("half"), self.path("streamed")
        done = self.succeeds(*self.arguments(library, "--steps", 6, "--save", whole))
        self.succeeds(*self.arguments(library, "--steps", 3, "--schedule-steps", 6, "--save", half))
        self.succeeds("train", "--resume", half, "--kinds", library, "--steps", 6)
        self.succeeds(*self.arguments(library, "--steps", 6, "--save", streamed, "--device-memory", "640KiB", "--disk",
                                      self.path()))
        hashes = {self.succeeds("inspect", run, "--kinds", library, "--hash").out for run in (whole, half, streamed)}
        self.assertEqual(len(hashes), 1, hashes)
        self.assertIn(hashes.pop().strip(), done.out + done.err)
        scored = self.succeeds("eval", whole, "--kinds", library, "--data", self.corpus(), "--json").json
        self.assertLess(scored["loss"], 6)

    def test_a_kind_that_fails_costs_no_step_before_it(self):
        """The first or the last of four layers fails in step 4, when the step behind it has been submitted."""
        right, whole, three = self.compiled("mine"), self.path("whole"), self.path("three")
        self.succeeds(*self.arguments(right, "--steps", 6, "--save", whole))
        self.succeeds(*self.arguments(right, "--steps", 3, "--schedule-steps", 6, "--save", three))

        def hash_of(run):
            return self.succeeds("inspect", run, "--kinds", right, "--hash").out

        for name, count in (("first", 13), ("last", 16)):
            run = self.path(name)
            failing = self.compiled(name + "_fails", ("static coh_status gate_forward(const coh_call *call)\n{", f"""static int forwards;
static coh_status gate_forward(const coh_call *call)
{{
    if (++forwards == {count})
        return coh_kind_fail(COH_ERR_DEVICE, "the gate is shut");"""))
            lost = self.fails(5, *self.arguments(failing, "--steps", 6, "--save", run), says="the gate is shut")
            self.assertIn(f"; step 3 is saved: go on from {run}/step-3 with: cohobate train --resume {run}", lost.err)
            self.assertEqual(hash_of(run), hash_of(three))
            self.succeeds("train", "--resume", run, "--kinds", right)
            self.assertEqual(hash_of(run), hash_of(whole))
        unsaved = self.fails(5, *self.arguments(failing, "--steps", 6, "--save", "none"), says="the gate is shut")
        self.assertNotIn("is saved:", unsaved.err)
        dead = self.fails(5, *self.arguments(failing, "--steps", 6, "--save", self.path("dead"), "--clip", 0),
                          says="is lost: start again")
        self.assertNotIn("could not be saved", dead.err)
        ranks = self.fails(5, *self.arguments(failing, "--steps", 6, "--save", self.path("ranks"), "--replicas", 2, "--ranks", 2,
                                              "--dtype", "f32"), says="the gate is shut")
        self.assertNotIn("is saved:", ranks.err)

    def test_a_plan_is_made_explained_and_replayed(self):
        library, plan = self.compiled("mine"), self.path("plan.json")
        self.succeeds("plan", *self.arguments(library, "--device-memory", "640KiB", "--disk", self.path())[1:],
                      "-o", plan)
        self.succeeds("explain", plan, "h.1.gate", "--kinds", library)
        self.succeeds("simulate", plan, "--kinds", library)
        self.fails(2, "simulate", plan, says="its model mine-gated is one of extension mine, which is not loaded: "
                                             "name the shared object by --kinds")
        self.succeeds(*self.arguments(library, "--plan", plan, "--disk", self.path(), "--steps", 2))
        other = self.compiled("faster", ('"mine.gate", 1, 2, gate_forward', '"mine.gate.fast", 1, 2, gate_forward'))
        self.fails(4, *self.arguments(other, "--plan", plan, "--disk", self.path(), "--steps", 2),
                   says="it was made for another run")

    def test_what_its_build_freezes_is_not_counted_as_trained(self):
        frozen = self.compiled("frozen", (".inputs = &to->tokens,",
                                          ".inputs = &to->tokens, .frozen_parameters = UINT32_MAX,"))
        plan = self.path("plan.json")
        screen = self.succeeds("plan", *self.arguments(frozen)[1:], "-o", plan).out
        table, rest = 257 * 64, 4 * (64 * 64 + 64) + 4 * 2 * 64 + 257 * 64
        self.assertIn(f"trains: {rest} of {table + rest} parameters (67.1 %)\n", screen)
        self.assertIn("0.03 M parameters trained", self.succeeds("inspect", plan, "--kinds", frozen).out)
        self.assertNotIn("trains:", self.succeeds("plan", *self.arguments(self.compiled("mine"))[1:]).out)

    def test_a_missing_or_other_object_is_named(self):
        library, run = self.compiled("mine"), self.path("run")
        self.succeeds(*self.arguments(library, "--steps", 1, "--save", run))
        for command in (["train", "--resume", run, "--steps", 2], ["eval", run, "--data", self.corpus()],
                        ["generate", run, "--prompt", "a"]):
            self.fails(2, *command, says="its model mine-gated is one of extension mine, which is not loaded")
        second = self.compiled("second", (".revision = 1, .kind_count", ".revision = 2, .kind_count"))
        self.fails(2, "train", "--resume", run, "--steps", 2, "--kinds", second,
                   says="extension mine in revision 1, and revision 2 is loaded")
        self.fails(2, "train", "mine-gated", "--data", self.corpus(), says="neither a preset")
        self.fails(2, "train", "gpt2-nano", "--optimizer", "mine_momentum", "--data", self.corpus(), says="--kinds")

    def test_a_model_generates_what_its_logits_say(self):
        """Each token is the largest of the logits that eval writes for the text before it."""
        library, run, prompts = self.compiled("mine"), self.path("run"), ["the", "a longer prompt"]
        self.succeeds(*self.arguments(library, "--steps", 40, "--save", run))
        done = self.succeeds("generate", run, "--kinds", library, *(part for each in prompts for part in ("--prompt", each)),
                             "--tokens", 12, "--temperature", 0, "--json")
        for prompt, line in zip(prompts, done.out.splitlines(), strict=True):
            text = (prompt + json.loads(line)["text"]).encode()
            held, rows = self.path("held.txt"), self.path("rows.npy")
            pathlib.Path(held).write_bytes(text)
            self.succeeds("eval", run, "--kinds", library, "--data", held, "--sequence", 32, "--logits", rows)
            numbers = array("f", pathlib.Path(rows).read_bytes()[128:])
            for at in range(len(prompt), len(text)):
                row = numbers[(at - 1) * 257:at * 257]
                self.assertEqual(text[at], row.index(max(row)))
            os.remove(rows)

    def test_a_model_without_logits_generates_nothing(self):
        library, run = self.compiled("mute", ("coh_tensor x;", "coh_tensor x, last;"), ("&to->logits, NULL", "&last, NULL"),
                                     ("to->logits, to->targets", "last, to->targets")), self.path("run")
        self.succeeds(*self.arguments(library, "--steps", 1, "--save", run))
        self.fails(2, "generate", run, "--kinds", library, "--prompt", "a", says="sets no coh_own_graph.logits")

    def test_a_model_without_a_loss_is_named(self):
        library = self.compiled("lost", ("coh_tensor x;", "coh_tensor x, last;"), ("&to->loss, NULL", "&last, NULL"))
        self.fails(2, *self.arguments(library, "--steps", 1), says="the build of model mine-gated sets no coh_own_graph.loss, which "
                   "the model is trained by: set it to output 0 of a loss kind")

    def test_states_of_another_form_are_refused_with_the_flag_that_helps(self):
        run = self.path("run")
        self.succeeds(*self.arguments(self.compiled("mine"), "--steps", 1, "--save", run))
        resumed = ["train", "--resume", run, "--steps", 2, "--kinds"]
        wider = self.compiled("wider", ('{ "velocity", 4, 1, 1 }', '{ "velocity", 8, 1, 0 }'))
        self.fails(2, *resumed, wider, says="the checkpoint has no stream velocity of this form for tensor 'embedding.weight': load "
                   "the weights alone (--reset-optimizer)")
        newer = self.compiled("newer", ('.name = "mine_momentum",\n                                        .revision = 1',
                                        '.name = "mine_momentum", .revision = 2'))
        self.assertIn("wire, reduce, kinds, optimizer or kernel path): other rounding", self.succeeds(*resumed, newer).err)
        self.succeeds("train", "--resume", run, "--steps", 3, "--kinds", wider, "--reset-optimizer")

    def test_what_an_extension_cannot_do_is_said(self):
        library, run = self.compiled("mine"), self.path("run")
        self.succeeds(*self.arguments(library, "--steps", 1, "--save", run))
        self.fails(2, "export", run, "--kinds", library, "-o", self.path("folder"), says="no configuration and tensor names")
        self.fails(2, *self.arguments(library, "--lora", 4), says="leave patterns and adapters out")
        self.fails(2, *self.arguments(library, "--documents", "separate"), says="give --documents fitted in place of separate")

    def test_a_kind_is_checked_and_measured_by_its_name(self):
        library = self.compiled("mine")
        self.assertEqual(self.succeeds("check-kind", library + ":mine.gate").out,
                         "mine.gate: nothing found; gradients compared: 3\n")
        self.assertEqual(self.succeeds("check-kind", library + ":gate_kind").out,
                         "mine.gate: nothing found; gradients compared: 3\n")

    def test_a_kind_of_an_extension_for_another_library_is_not_read(self):
        old = self.compiled("old", ('COH_EXTENSION(.name', 'COH_EXTENSION(.kind_abi = 1, .name'))
        self.fails(2, "check-kind", old + ":mine.gate", says="extension mine was compiled for version 1 of coh_op_kind")
        short = self.compiled("short", ('COH_EXTENSION(.name', 'COH_EXTENSION(.struct_bytes = 8, .name'))
        self.fails(2, "check-kind", short + ":mine.gate", says="set it to sizeof(coh_extension)")

    def test_a_file_that_is_no_extension_is_named(self):
        plain = self.write("plain.so", "not an object")
        for code, library, says in [(2, self.path("gone.so"), "does not exist"), (4, plain, "no library"),
                                    (2, self.compiled("taken", ('"mine-gated"', '"gpt2"')), "the name of a preset")]:
            self.fails(code, *self.arguments(library), says=says)
        source = self.write("empty.c", "int nothing;")
        empty = self.path("empty.so")
        subprocess.run([*shlex.split(os.environ["CC"]), "-fPIC", "-shared", source, "-o", empty], check=True)
        self.fails(4, *self.arguments(empty), says="exports no extension")


if __name__ == "__main__":
    unittest.main()
