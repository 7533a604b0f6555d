"""Flags that change a resumed run: each change is reported, noted, and exact."""

import fcntl
import json
import os
import re
import shutil
import unittest

import model_folder
from program import QUICK, TINY, TrainTest, run, seal_of

SMALL = ["--tokenizer", "bytes", "--sequence", 16, "--threads", 2, "--dtype", "f32", "--validation", "none"]
WINDOWS = 7  # of the small data in one epoch


class Resume(TrainTest):
    def setUp(self):
        super().setUp()
        model_folder.make(self.path("model"), "gpt2")
        self.data = self.write("data.txt", bytes(i * i * 7 % 251 % 96 + 32 for i in range(16 * WINDOWS + 1)))
        self.other = self.write("other.txt", "something else entirely, many times over\n" * 20)

    def begin(self, name, *flags):
        return self.succeeds("train", self.path("model"), "--data", self.data, *SMALL, "--save", self.path(name), *flags)

    def go_on(self, name, *flags):
        return self.succeeds("train", "--resume", self.path(name), *QUICK, "--threads", 2, *flags)

    def note(self, name):
        return self.succeeds("inspect", self.path(name), "--json").json["note"]

    def edit_manifest(self, checkpoint, edit):
        path = os.path.join(checkpoint, "manifest.json")
        with open(path, encoding="utf-8") as file:
            text = edit(file.read().split(',\n  "manifest_hash"')[0])
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'{text},\n  "manifest_hash": "{seal_of(text)}"\n}}\n')

    def logged(self, name, key):
        with open(self.path(name), encoding="utf-8") as file:
            return [json.loads(line)[key] for line in file]

    def still_losses(self, log, *cuts):
        """Losses of a run that changes no weight: (batch, steps so far, more flags) in sequence."""
        for at, (batch, steps, *more) in enumerate(cuts):
            flags = ["--batch", batch, "--micro-batch", 1, "--steps", steps, "--log", self.path(log), *more]
            if at == 0:
                self.begin(log + ".run", "--lr", 0, "--clip", 0, "--weight-decay", 0, *flags)
            else:
                self.go_on(log + ".run", *flags)
        return self.logged(log, "loss")

    # ---- the data's position ----

    def test_another_batch_reads_every_sequence_once_a_pass(self):
        one_by_one = self.still_losses("one", (1, 3 * WINDOWS))
        for begin in (WINDOWS, 2 * WINDOWS):  # an epoch has all sequences, in its own order
            for a, b in zip(sorted(one_by_one[:WINDOWS]), sorted(one_by_one[begin:begin + WINDOWS])):
                self.assertAlmostEqual(a, b, delta=1e-5)
        self.assertGreater(max(one_by_one) - min(one_by_one), 1e-2)
        batches = [2, 2, 3, 3, 1, 1, 1, 5]
        losses = self.still_losses("many", (2, 2), (3, 4), (1, 7), (5, 8))
        self.assertEqual(len(losses), len(batches))
        begin = 0
        for loss, batch in zip(losses, batches):
            self.assertAlmostEqual(loss, sum(one_by_one[begin:begin + batch]) / batch, delta=1e-5)
            begin += batch

    def test_other_data_and_then_another_batch_are_read_from_the_right_place(self):
        def other(log, *cuts):
            return self.still_losses(log, (1, 2), (1, 3, "--data", self.other), *cuts)
        one_by_one = other("one", (1, 12))
        first = self.still_losses("first", (1, 1, "--data", self.other))  # of a run on only that data
        self.assertAlmostEqual(one_by_one[2], first[0], delta=1e-5)
        losses = other("many", (3, 5), (2, 6))
        for loss, begin, end in zip(losses[3:], (3, 6, 9), (6, 9, 11)):
            self.assertAlmostEqual(loss, sum(one_by_one[begin:end]) / (end - begin), delta=1e-5)

    def test_a_second_resume_after_a_change_goes_on_bit_for_bit(self):
        flags = ["--batch", 4, "--lr", "3e-3", "--weight-decay", 0.2, "--beta1", 0.8, "--beta2", 0.99, "--clip", 0.5,
                 "--schedule-steps", 9, "--warmup", 1, "--data", self.other]
        hashes = []
        for name, cut in (("whole", False), ("half", True)):
            self.begin(name, "--batch", 2, "--lr", "1e-3", "--steps", 2, "--schedule-steps", 6)
            if cut:
                self.go_on(name, *flags, "--steps", 4)
                more = self.go_on(name, "--steps", 6)
                self.assertNotIn("->", more.err)
            else:
                more = self.go_on(name, *flags, "--steps", 6)
            hashes.append(self.says_hash(more))
        self.assertEqual(hashes[0], hashes[1])

    def test_clipping_by_the_previous_norm_goes_on_bit_for_bit_streamed_too(self):
        flags = ["--batch", 4, "--micro-batch", 2, "--lr", "3e-3", "--schedule-steps", 6, "--clip", 0.05, "--clip-mode", "previous"]
        hashes = []
        for name, cut, room in (("whole", 6, []), ("half", 3, []), ("streamed", 3, ["--device-memory", "3MiB", "--disk", self.folder])):
            done = self.begin(name, *flags, "--steps", cut, *room)
            if cut < 6:
                done = self.go_on(name, "--steps", 6, *room)
                self.assertNotIn("->", done.err)
            hashes.append(self.says_hash(done))
        self.assertEqual(len(set(hashes)), 1, hashes)
        exact = self.begin("exact", *flags[:-1], "exact", "--steps", 6)
        self.assertNotEqual(self.says_hash(exact), hashes[0])
        self.assertIn("clip-mode previous -> exact", self.go_on("half", "--steps", 7, "--clip-mode", "exact").err)
        self.fails(2, "plan", "gpt2-nano", "--clip", 0, "--clip-mode", "previous", says="no limit to clip to")

    def test_speculating_has_the_bits_of_exact_clipping_and_goes_on_so(self):
        flags = ["--batch", 4, "--micro-batch", 2, "--lr", "3e-3", "--schedule-steps", 6, "--clip", 0.05]
        room = ["--device-memory", "300KiB", "--disk", self.folder, "--search", "quick"]
        exact = self.says_hash(self.begin("exact", *flags, "--steps", 6))
        whole = self.begin("whole", *flags, "--steps", 6, *room, "--clip-mode", "speculate")
        self.assertEqual(self.says_hash(whole), exact)
        self.assertRegex(whole.out, r"clip: +6 of them ran twice")
        self.begin("half", *flags, "--steps", 3, *room, "--clip-mode", "speculate")
        done = self.go_on("half", "--steps", 6, *room)
        self.assertNotIn("->", done.err)
        self.assertRegex(done.out, r"clip: +3 of them ran twice")
        self.assertEqual(self.says_hash(done), exact)
        self.begin("other", *flags, "--steps", 3, *room)
        done = self.go_on("other", "--steps", 6, *room, "--clip-mode", "speculate")
        self.assertIn("clip-mode exact -> speculate", done.err)
        self.assertEqual(self.says_hash(done), exact)
        self.fails(2, "plan", "gpt2-nano", "--clip", 0, "--clip-mode", "speculate", says="no limit to clip to")

    def test_a_plan_that_speculates_says_so_and_is_kept(self):
        flags = [self.path("model"), *SMALL, "--batch", 4, "--device-memory", "290KiB", "--disk", self.folder, "--clip-mode",
                 "speculate"]
        planned = self.succeeds("plan", *flags, "--json").json
        self.assertGreater(planned["kept_bytes"], 0)
        self.assertGreaterEqual(planned["peak_bytes"]["disk"], 2 * planned["kept_bytes"])
        plan = self.path("plan.json")
        self.assertIn("speculates: the drive keeps", self.succeeds("plan", *flags, "-o", plan).out)
        self.assertIn("clipped, updates speculate", self.succeeds("inspect", plan).out)
        self.fails(2, "plan", *flags, "--pin", "blocks.0=device", says="keep weights on the drive alone")
        waits = self.succeeds("plan", *flags[:-6], "--clip-mode", "speculate")
        self.assertIn("exact: to speculate would not be faster", waits.out)
        # a drive too small to keep the step before may do for a plan that waits: a refusal asks for no more

        def sized(size):
            return ["plan", *(f"{flag}:{size}" if flag == self.folder else flag for flag in flags), "--calibration", "none"]

        self.succeeds(*sized(re.search(r"give --disk DIR:(\S+)$", self.fails(3, *sized("200kB")).err.strip())[1]))
        asked = json.loads(run(*sized("200kB"), "--json").out)["changes"][0]["bytes"]
        self.succeeds(*sized(f"{asked}B"))
        self.fails(3, *sized(f"{asked - 1}B"))

    # ---- reports and notes ----

    def test_each_change_is_one_line_and_in_the_next_note(self):
        self.begin("run", "--batch", 2, "--lr", "6e-4", "--steps", 1, "--schedule-steps", 20, "--warmup", 2)
        done = self.go_on("run", "--steps", 2, "--lr", "3e-4", "--batch", 4, "--weight-decay", 0.05, "--beta1", 0.8,
                          "--beta2", 0.999, "--clip", 2, "--schedule-steps", 40, "--warmup", "25%", "--data", self.other)
        tokens = re.escape(os.path.realpath(self.path("run", "data.tokens")))
        for line in ("lr 6e-4 -> 3e-4", "min-lr 6e-5 -> 3e-5", "batch 2 -> 4", "weight-decay 0.1 -> 0.05",
                     "beta1 0.9 -> 0.8", "beta2 0.95 -> 0.999", "clip 1 -> 2", "schedule-steps 20 -> 40",
                     "warmup 2 -> 10", f"data {tokens} -> {re.escape(self.other)}: other data, read from .*"):
            self.assertEqual(len(re.findall(f"(?m)^{line}$", done.err)), 1, f"{line}\n{done.err}")
        note = self.note("run")
        expected = {"lr": 3e-4, "batch": 4, "micro_batch": 2, "weight_decay": 0.05, "beta1": 0.8, "beta2": 0.999, "clip": 2,
                    "schedule_steps": 40, "warmup_steps": 10, "data_first_step": 1, "data_first_window": 0}
        self.assertEqual({key: note[key] for key in expected}, expected)
        self.assertAlmostEqual(note["min_lr"], 3e-5, delta=1e-18)
        same = self.go_on("run", "--steps", 3, "--lr", "3e-4", "--batch", 4, "--beta1", 0.8)
        self.assertNotIn("->", same.err)
        rates = self.go_on("run", "--steps", 4, "--min-lr", "1e-5", "--micro-batch", 4)
        self.assertRegex(rates.err, r"(?m)^min-lr 3e-5 -> 1e-5$")
        # A rate is told in as many digits as it has.
        for rate in ("3.0000001e-4", "1.23456789e-3", "4.123456789012e-4"):
            done = self.go_on("run", "--steps", 5, "--lr", rate, "--weight-decay", "0.012345678", "--save", "none")
            self.assertRegex(done.err, f"(?m)^lr 3e-4 -> {re.escape(rate)}$")
            self.assertRegex(done.err, r"(?m)^weight-decay 0.05 -> 0.012345678$")
        self.fails(2, "train", "--resume", self.path("run"), "--steps", 9, "--min-lr", "3.0000001e-4",
                   says="the lowest rate 3.0000001e-4 is above the highest 3e-4")
        self.assertRegex(rates.err, r"(?m)^micro-batch 2 -> 4: other rounding")
        odd = self.go_on("run", "--steps", 5, "--batch", 3)
        self.assertRegex(odd.err, r"(?m)^micro-batch 4 -> 3: other rounding")
        self.assertEqual(self.note("run")["lr"], 3e-4)

    def test_a_budget_that_the_command_lacks_is_one_note(self):
        drive = self.path("a drive")
        os.mkdir(drive)
        self.begin("run", "--batch", 2, "--steps", 1, "--device-memory", "3MiB", f"--disk={drive}")
        note = "note: the last command of the run had"
        bound = self.go_on("run", "--steps", 2, "--device-memory", "4MiB", "--disk", drive)
        self.assertNotIn(note, bound.err)
        part = self.go_on("run", "--steps", 3, "--device-memory", "1GiB")
        self.assertEqual(part.err.count(f"{note} --disk '{drive}', which this one lacks: "), 1, part.err)
        os.symlink(self.path("run", "step-3"), self.path("link"))
        inside = self.path("run", "step-3")
        for spelling in (inside, inside + "/", inside + "/.", self.path("link"), "."):
            done = self.succeeds("train", "--resume", spelling, "--threads", 2, "--steps", 4, "--save", "none", cwd=inside)
            self.assertEqual(done.err.count(f"{note} --device-memory 1GiB, which"), 1, f"{spelling}\n{done.err}")
        none = self.go_on("run", "--steps", 4)
        self.assertEqual(none.err.count(f"{note} --device-memory 1GiB, which"), 1, none.err)
        self.write("run/run.json", "")
        step = self.path("run", "step-4")
        for spelling, named in ((step, self.path("run")), (step + "/", step + "//.."), (".", "./..")):
            done = self.succeeds("train", "--resume", spelling, "--threads", 2, "--steps", 5, "--save", "none", cwd=step)
            self.assertEqual(done.err.count(f"note: {named}/run.json cannot be read: "), 1, f"{spelling}\n{done.err}")
        os.unlink(self.path("run", "run.json"))
        self.assertNotIn(note, self.go_on("run", "--steps", 5).err)

    def test_a_run_whose_run_json_is_cut_off_goes_on_from_its_checkpoint_and_says_so(self):
        self.begin("run", "--batch", 2, "--steps", 2, "--schedule-steps", 3)
        self.begin("whole", "--batch", 2, "--steps", 3, "--schedule-steps", 3)
        facts = self.path("run", "run.json")
        with open(facts, "rb") as file:
            whole = file.read()
        for cut in (whole[:1000], b"", b"[]\n", b"\0" * 1000):
            with open(facts, "wb") as file:
                file.write(cut)
            for command in (["report", self.path("run")], ["diff", self.path("whole"), self.path("run")],
                            ["watch", self.path("run"), "--once"]):
                self.fails(4, *command, says=f"; no checkpoint depends on it, and cohobate train --resume {self.path('run')} writes it again")
        os.mkdir(self.path("bare"))  # resuming it is refused
        self.write("bare/run.json", "[]\n")
        os.mkdir(self.path("bare", "step-9.partial"))
        said = self.fails(4, "report", self.path("bare"), says="; the folder holds no checkpoint to resume from: give another run").err
        self.assertNotIn("--resume", said)
        done = self.go_on("run", "--steps", 3)
        note = f"note: {facts} cannot be read: the run continues from {self.path('run', 'step-2')}, "
        self.assertEqual(done.err.count(note), 1, done.err)
        self.assertEqual(self.hash_of(self.path("run")), self.hash_of(self.path("whole")))
        self.succeeds("report", self.path("run"), "--text")
        self.assertNotIn("run.json", self.go_on("run", "--steps", 4).err)

    def test_check_names_what_is_left_of_a_save(self):
        self.begin("run", "--steps", 2)
        run = self.path("run")
        self.assertEqual(self.succeeds("check", run).err, "")
        for name in ("step-7.partial", "step-x.partial", "step-7.partial.txt", "steps.partial"):
            os.mkdir(self.path("run", name))
        for command in (["check", run], ["check", run, "--json"]):
            self.assertEqual(self.succeeds(*command).err, f"note: {run}/step-7.partial is what a run that ended during a save left "
                                                          "of it: no command reads it, and it can be removed\n")
        with open(self.path("run", "lock"), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertIn("may be writing it", self.succeeds("check", run).err)
        os.rmdir(self.path("run", "step-7.partial"))
        self.assertEqual(self.succeeds("check", run).err, "")
        self.go_on("run", "--steps", 3)

    def test_the_rate_of_the_next_step_follows_the_new_schedule(self):
        self.begin("run", "--batch", 1, "--lr", "8e-4", "--min-lr", 0, "--steps", 3, "--schedule-steps", 8, "--warmup", 0)
        self.go_on("run", "--steps", 4, "--lr", "4e-4", "--schedule-steps", 4, "--log", self.path("log"))
        self.go_on("run", "--steps", 6, "--schedule-steps", 10, "--min-lr", "4e-4", "--log", self.path("log"))
        # the end of a schedule of 4; then no range between the rates
        for rate, wanted in zip(self.logged("log", "lr"), (0, 4e-4, 4e-4)):
            self.assertAlmostEqual(rate, wanted, delta=1e-15)

    def test_a_resume_within_the_decay_of_each_schedule_has_the_rates_and_bits_of_the_whole_run(self):
        for kind, flags, rates in (("linear", [], (4, 8, 6.25, 4.5, 2.75, 1)), ("constant", [], (4, 8, 8, 8, 8, 8)),
                                   ("wsd", ["--decay-steps", "50%"], (4, 8, 8, 17 / 3, 10 / 3, 1))):
            lowest = [] if kind == "constant" else ["--min-lr", "1e-4"]
            flags = ["--batch", 2, "--lr", "8e-4", "--warmup", 2, "--schedule", kind, *lowest, *flags]
            self.begin(f"{kind}-whole", *flags, "--steps", 6, "--log", self.path(f"log-{kind}"))
            for rate, wanted in zip(self.logged(f"log-{kind}", "lr"), rates, strict=True):
                self.assertAlmostEqual(rate, wanted * 1e-4, delta=1e-9)
            self.begin(f"{kind}-half", *flags, "--steps", 4, "--schedule-steps", 6)
            note = self.note(f"{kind}-half")
            self.assertEqual((note["schedule"], note["version"], note["decay_steps"]), (kind, 2, 3 if kind == "wsd" else 0))
            more = self.go_on(f"{kind}-half", "--steps", 6)
            self.assertNotRegex(more.err, "(?m)^(schedule|decay-steps) ")
            self.assertEqual(self.hash_of(self.path(f"{kind}-half")), self.hash_of(self.path(f"{kind}-whole")))
        self.assertIn("  schedule: wsd of 6 steps, warm-up 2, decay 3, lr 8e-4 to 1e-4\n",
                      self.succeeds("inspect", self.path("wsd-half", "step-6")).out)
        self.assertNotIn("the schedule ends", self.go_on("constant-half", "--steps", 7, "--save", "none").err)

    def test_a_schedule_that_is_changed_counts_from_the_next_step(self):
        flags = ["--batch", 1, "--lr", "8e-4", "--min-lr", 0, "--warmup", 1]
        self.begin("run", *flags, "--steps", 3, "--schedule", "wsd", "--schedule-steps", 100, "--decay-steps", 2)
        self.begin("whole", *flags, "--steps", 6, "--schedule", "wsd", "--decay-steps", 2)
        self.go_on("run", "--steps", 6, "--schedule-steps", 6)  # longer or shorter: the constant part is the same
        self.assertEqual(self.hash_of(self.path("run")), self.hash_of(self.path("whole")))
        self.begin("cosine", *flags, "--steps", 2, "--schedule-steps", 5)
        self.assertEqual((self.note("cosine")["schedule"], self.note("cosine")["version"]), ("cosine", 1))
        done = self.go_on("cosine", "--steps", 5, "--schedule", "wsd", "--log", self.path("log"))
        self.assertRegex(done.err, r"(?m)^schedule cosine -> wsd\ndecay-steps 0 -> 1$")
        for rate, wanted in zip(self.logged("log", "lr"), (8e-4, 8e-4, 0), strict=True):
            self.assertAlmostEqual(rate, wanted, delta=1e-9)
        refused = ["train", "--resume", self.path("cosine"), "--steps", 9]
        self.fails(2, *refused, "--decay-steps", 5, says="a warm-up of 1 steps and a decay of 5 are longer than the schedule of 5")
        self.fails(2, *refused, "--schedule", "linear", "--decay-steps", 2, says="--decay-steps is for --schedule wsd")
        done = self.go_on("cosine", "--steps", 6, "--schedule", "constant", "--save", "none")
        self.assertRegex(done.err, r"(?m)^schedule wsd -> constant$")

    def test_flags_that_contradict_the_schedule_are_refused(self):
        train = ["train", *TINY, "--data", self.data, "--save", "none", "--steps", 10]
        for flags, says in ((["--schedule", "line"], "--schedule takes one of cosine|linear|constant|wsd, not 'line': is linear meant?"),
                            (["--decay-steps", 2], "--decay-steps is for --schedule wsd, and the schedule is cosine: leave it"),
                            (["--schedule", "wsd", "--decay-steps", 0], "--decay-steps takes a whole number from 1"),
                            (["--schedule", "wsd", "--decay-steps", "1%"], "--decay-steps 1% of a schedule of 10 steps is none"),
                            (["--schedule", "wsd", "--decay-steps", "101%"], "--decay-steps takes a share from 0% to 100%"),
                            (["--schedule", "wsd", "--decay-steps", 8, "--warmup", 3], "a warm-up of 3 steps and a decay of 8"),
                            (["--schedule", "wsd", "--warmup", 10], "a warm-up of 10 steps and a decay of 1"),
                            (["--schedule", "constant", "--min-lr", "1e-5"], "--min-lr has no effect with --schedule constant")):
            self.fails(2, *train, *flags, says=says)
            self.fails(2, "plan", *TINY, "--steps", 10, *flags, says=says)

    def test_what_cannot_change_is_refused_and_leaves_the_run_as_it_was(self):
        self.begin("run", "--batch", 2, "--steps", 1)
        before = sorted(os.listdir(self.path("run")))
        for flags in (["--seed", 2], ["--sequence", 8], ["--vocabulary", 300], ["--dropout", 0.1], ["--lora-dropout", 0.1], ["--freeze", "wte"],
                      ["--lora", 4], ["--epochs", 2], ["--chat"], ["--id-bytes", 2]):
            self.fails(2, "train", "--resume", self.path("run"), "--steps", 2, *flags, says=flags[0])
        for flags, says in ((["--min-lr", 1], "--min-lr"), (["--warmup", 9, "--schedule-steps", 8], "--warmup"),
                            (["--batch", 4, "--micro-batch", 3], "--micro-batch 3"), (["--lr", -1], "--lr")):
            self.fails(2, "train", "--resume", self.path("run"), "--steps", 2, *flags, says=says)
        self.fails(2, "train", "--resume", self.path("run"), "--steps", 2, "--data", self.other, "--validation-split", 0.5,
                   "--validation", self.other, says="--validation")
        short = self.write("short.txt", "short")
        self.fails(4, "train", "--resume", self.path("run"), "--steps", 2, "--data", short, says="needs 17")
        self.assertEqual(sorted(os.listdir(self.path("run"))), before)
        planned = self.succeeds("plan", "--resume", self.path("run"), "--steps", 2, "--batch", 4, "--json")
        self.assertIn("batch 2 -> 4", planned.err)

    # ---- parameter groups ----

    def hash_with(self, *flags):
        return self.says_hash(self.succeeds("train", self.path("model"), "--data", self.data, *SMALL, "--batch", 2, "--steps",
                                            4, "--save", "none", *flags))

    def test_a_group_follows_the_schedule_at_its_own_highest_rate_and_decay(self):
        # powers of two commute with every rounding: the bits of a run with that rate for all parameters
        self.assertEqual(self.hash_with("--lr", "1e-3", "--lr-for", "*=2e-3"), self.hash_with("--lr", "2e-3"))
        matrices = "wte,wpe,c_attn.weight,c_proj.weight,c_fc.weight"
        self.assertEqual(self.hash_with("--lr", "1e-3", "--weight-decay-for", f"{matrices}=0.5"),
                         self.hash_with("--lr", "1e-3", "--weight-decay", 0.5))
        plain = self.hash_with("--lr", "1e-3")
        self.assertEqual(self.hash_with("--lr", "1e-3", "--lr-for", "*=3e-3", "--lr-for", "*=1e-3"), plain)  # the last one
        self.assertNotEqual(self.hash_with("--lr", "1e-3", "--weight-decay-for", "bias=0.5"), plain)

    def test_groups_are_part_of_the_note_shown_and_kept_by_a_resume(self):
        flags = ["--batch", 2, "--lr", "1e-2", "--warmup", 0, "--lr-for", "wte, ln_f=0", "--lr-for", "mlp.*=2e-2",
                 "--weight-decay-for", "bias=0.5"]
        whole = self.begin("whole", "--steps", 4, *flags)
        self.assertRegex(whole.err, r"(?m)^group:  highest lr 0 for wte, ln_f: 3 tensors, \d+ parameters$")
        self.assertIn("\ngroup:  weight decay 0.5 for bias: 13 tensors, ", whole.err)
        self.begin("half", "--steps", 2, "--schedule-steps", 4, *flags)
        more = self.go_on("half", "--steps", 4)
        self.assertNotIn("->", more.err)
        self.assertEqual(self.says_hash(more), self.says_hash(whole))
        note = self.note("half")
        self.assertEqual(note["lr_for"], [["wte, ln_f", 0], ["mlp.*", 0.02]])
        self.assertEqual(note["weight_decay_for"], [["bias", 0.5]])
        shown = self.succeeds("inspect", self.path("half")).out
        for line in ("highest lr 0 for wte, ln_f", "highest lr 2e-2 for mlp.*", "weight decay 0.5 for bias"):
            self.assertIn(f"\ngroup:  {line.replace('2e-2', '0.02')}\n", shown)
        self.succeeds("export", self.path("half"), "-o", self.path("out"))
        before, after = model_folder.read(self.path("model")), model_folder.read(self.path("out"))
        for name, tensor in before.items():
            still = "wte.weight" in name or "ln_f.weight" in name
            self.assertEqual(after[name][2] == tensor[2], still or "ln_f.bias" in name, name)
        changed = self.go_on("half", "--steps", 5, "--lr-for", "wte=1e-4", "--weight-decay-for", "none")
        self.assertIn("\nlr-for wte, ln_f=0 mlp.*=0.02 -> wte=1e-4\n", "\n" + changed.err)
        self.assertIn("\nweight-decay-for bias=0.5 -> none\n", "\n" + changed.err)
        note = self.note("half")
        self.assertEqual((note["lr_for"], note["weight_decay_for"]), ([["wte", 1e-4]], []))

    def test_a_group_that_is_wrong_is_refused_by_its_pattern_before_anything_is_made(self):
        begin = ["train", self.path("model"), "--data", self.data, *SMALL, "--save", self.path("run")]
        for flags, says in ((["--lr-for", "wtf=1e-3"], "--lr-for: parameter group 'wtf' matches no parameter"),
                            (["--lr-for", "wte,zzz=1"], "parameter group 'zzz' matches no parameter"),
                            (["--weight-decay-for", "h.9.*=0"], "--weight-decay-for: parameter group 'h.9.*'"),
                            (["--lr-for", "wte=1e-3", "--freeze", "wte"], "not trained"),
                            (["--lr-for", "wte=1e-3", "--lr", 0], "--lr above 0"),
                            (["--lr-for", "wte"], "--lr-for takes a pattern"), (["--lr-for", "=1"], "--lr-for takes"),
                            (["--lr-for", "wte=-1"], "--lr-for"), (["--lr-for", "wte=nan"], "--lr-for"),
                            (["--weight-decay-for", "wte=101"], "--weight-decay-for"),
                            (["--lr-for", "w" * 256 + "=1"], "--lr-for"), (["--lr-for", "wte=1"] * 17, "more than 16 times")):
            self.fails(2, *begin, *flags, says=says)
        self.assertFalse(os.path.exists(self.path("run")))
        self.fails(2, "plan", self.path("model"), "--lr-for", "wtf=1e-3", says="'wtf'")

    # ---- earlier data and notes ----

    def test_data_that_changed_by_itself_is_refused_and_the_text_again_repairs_it(self):
        self.begin("run", "--batch", 2, "--steps", 1)
        tokens = self.path("run", "data.tokens")
        self.succeeds("tokenize", self.other, "-o", self.path("else.tokens"), "--tokenizer", "bytes")
        os.replace(self.path("else.tokens"), tokens)
        self.fails(4, "train", "--resume", self.path("run"), "--steps", 2, says="is not what the checkpoint was trained on")
        again = self.go_on("run", "--steps", 2, "--data", self.data)
        self.assertNotIn("->", again.err)
        self.go_on("run", "--steps", 3)
        self.assertEqual(self.note("run")["data"], os.path.realpath(self.path("run", "data-1.tokens")))
        before = sorted(os.listdir(self.path("run")))
        self.go_on("run", "--steps", 4, "--data", self.data, "--new-data")  # the same text, kept once
        self.assertEqual([name for name in before if "tokens" in name],
                         [name for name in sorted(os.listdir(self.path("run"))) if "tokens" in name])

    def test_a_line_of_the_log_that_a_kill_cut_off_goes_before_the_next(self):
        log = self.path("log")
        self.begin("run", "--steps", 2, "--log", log)
        with open(log, "ab") as file:
            file.write(b'{"step": 3, "loss": 4.1')
        self.go_on("run", "--steps", 4, "--log", log)
        self.assertEqual(self.logged("log", "step"), [1, 2, 3, 4])
        # a pipe has no end to cut off
        os.mkfifo(self.path("pipe"))
        reader = os.open(self.path("pipe"), os.O_RDONLY | os.O_NONBLOCK)
        self.go_on("run", "--steps", 5, "--log", self.path("pipe"))
        self.assertEqual(json.loads(os.read(reader, 65536))["step"], 5)
        os.close(reader)

    def test_data_that_is_gone_is_named(self):
        tokens = self.path("made.tokens")
        self.succeeds("tokenize", self.data, "-o", tokens, "--tokenizer", "bytes")
        for name, data, says in (("given", tokens, f"{tokens}, the data of the run, cannot be read: No such file or directory: give it"),
                                 ("made", self.data, f"{self.path('made', 'data.tokens')}, the tokens that the run made of its text, "
                                                     "cannot be read: No such file or directory: give the text or a copy of the tokens")):
            self.begin(name, "--batch", 2, "--steps", 1, "--data", data)
            os.remove(tokens if name == "given" else self.path("made", "data.tokens"))
            self.fails(2, "train", "--resume", self.path(name), "--steps", 2, says=says + " with --data")
        self.go_on("made", "--steps", 2, "--data", self.data)

    def test_a_resumed_run_saves_and_validates_as_before(self):
        def steps():
            return sorted(int(name[5:]) for name in os.listdir(self.path("run")) if name.startswith("step-"))
        flags = ["--save-every", 2, "--keep", 3, "--validation", self.other, "--validation-every", 1, "--validation-windows", 1]
        self.succeeds("train", self.path("model"), "--data", self.data, *SMALL[:-2], "--save", self.path("run"), "--steps", 3, *flags)
        self.assertEqual(steps(), [2, 3])
        done = self.go_on("run", "--steps", 7, "--log", self.path("log"))
        self.assertIn("saved every 2 steps", done.err)
        self.assertEqual(steps(), [4, 6, 7])
        with open(self.path("log"), encoding="utf-8") as file:
            seen = {row["step"]: row["windows"] for row in map(json.loads, file) if "validation_loss" in row}
        every = seen[7]  # all windows where it is saved
        self.assertEqual(seen, {4: every, 5: 1, 6: every, 7: every})
        self.assertGreater(every, 1)
        self.go_on("run", "--steps", 9, "--keep", 1, "--save-every", 0, "--validation", "none")
        self.assertEqual(steps(), [9])
        note = self.note("run")
        self.assertEqual([note[key] for key in ("save_every", "keep", "validation_every", "validation_windows")], [0, 1, 1, 1])
        self.fails(2, "train", "--resume", self.path("run"), "--steps", 10, "--stop-after-worse", 2, says="--stop-after-worse")

    def test_a_damaged_newest_checkpoint_names_the_way_to_the_one_before(self):
        self.begin("run", "--steps", 4, "--save-every", 2)
        newest = self.path("run", "step-4")
        with open(os.path.join(newest, "work.bin"), "r+b") as file:
            byte = file.read(1)[0]
            file.seek(0)
            file.write(bytes([byte ^ 1]))
        said = self.fails(4, "train", "--resume", self.path("run"), "--steps", 5, says="is damaged").err
        self.assertIn(f"before it there is step-2: move {newest} out of the folder", said)
        os.rename(newest, self.path("aside"))
        self.assertIn("step-2, step 2", self.go_on("run", "--steps", 5).err)

    def test_a_note_of_an_earlier_version_goes_on_bit_for_bit(self):
        whole = self.begin("whole", "--batch", 2, "--steps", 4)
        self.begin("half", "--batch", 2, "--steps", 2, "--schedule-steps", 4)
        def without_later_keys(text):
            for key in ("data_first_window", "lr_for", "weight_decay_for"):
                text, count = re.subn(rf', "{key}": (\d+|\[\])', "", text)
                self.assertEqual(count, 1, key)
            return text
        self.edit_manifest(self.path("half", "step-2"), without_later_keys)
        more = self.go_on("half", "--steps", 4)
        self.assertEqual(self.says_hash(more), self.says_hash(whole))

    def test_json_that_an_earlier_version_validated_with_is_text_still(self):
        """The file was named otherwise when this run began, since it is refused for a new run."""
        text, named = self.write("held.txt", '[{"text": "a"}]\n' * 9), os.path.realpath(self.path("held.json"))
        self.succeeds("train", self.path("model"), "--data", self.data, *SMALL[:-2], "--save", self.path("run"), "--steps", 1, "--validation", text)
        noted = os.path.realpath(text)
        os.rename(text, named)

        def with_other_name(manifest):
            self.assertEqual(manifest.count(noted), 1)
            return manifest.replace(noted, named)
        self.edit_manifest(self.path("run", "step-1"), with_other_name)
        self.assertRegex(self.go_on("run", "--steps", 2).out, r"validation loss \d")
        self.fails(4, "train", "--resume", self.path("run"), "--steps", 3, "--validation", named,
                   says="held.json is JSON, and would be learned as it is")

    def test_conversations_that_an_earlier_version_wrote_otherwise_are_named_as_a_cause(self):
        """As if the earlier version had made other ids: the hash in the note is another."""
        chat = [{"role": "user", "content": "How many of them are there?"}, {"role": "assistant", "content": "There are five."}]
        chats = json.dumps({"messages": chat}) + "\n"
        text, data, run = self.write("cc.jsonl", chats * 4), self.write("data.jsonl", chats * 5), self.path("run")
        self.succeeds("tokenize", text, "--chat", "-o", self.path("cc.tokens"))
        for held, says in ((text, "cc.jsonl is not what the run was validated with (hash "), (self.path("cc.tokens"), "cc.tokens is not what")):
            self.succeeds("train", self.path("model"), "--data", data, "--chat", *SMALL[:-2], "--save", run, "--steps", 1, "--validation", held)
            noted = self.note("run")["validation_hash"]
            self.edit_manifest(os.path.join(run, "step-1"), lambda text, noted=noted: text.replace(noted, "0123456789abcdef"))
            said = self.fails(4, "train", "--resume", run, "--steps", 2, says=says).err
            self.assertIn("with --validation FILE, or go on without with --validation none", said)
            self.assertEqual("this version writes or marks conversations otherwise: give it again" in said, held == text)
            more = self.go_on("run", "--steps", 2, "--validation", held)
            self.assertIn("other validation data than before", more.err)
            self.assertRegex(more.out, r"validation loss \d")
            self.go_on("run", "--steps", 3)
            shutil.rmtree(run)


if __name__ == "__main__":
    unittest.main()
