"""Training through the command line: what is kept, how it resumes, what is reported."""

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import termios
import time
import unittest

from program import (COHOBATE, NANO, QUICK, SANITIZED, TINY, TINY_USUAL, TrainTest, bytes_of, environment, in_full, lines_of,
                     pairs, run, start)
from screen import Terminal


class Train(TrainTest):
    def test_a_run_cut_in_two_ends_with_the_hash_of_the_whole_one(self):
        whole = self.train("--steps", 6, "--save", self.path("whole"), "--micro-batch", 1)
        self.train("--steps", 3, "--schedule-steps", 6, "--save", self.path("half"), "--micro-batch", 1)
        more = self.resumed(self.path("half"), "--steps", 6, "--threads", 1)
        self.assertNotIn("other rounding", more.err)
        self.assertEqual(self.says_hash(more), self.says_hash(whole))
        self.assertEqual(self.hash_of(self.path("half")), self.says_hash(whole))
        self.assertEqual(sorted(os.listdir(self.path("half"))),
                         ["data.tokens", "lock", "plan.json", "run.json", "step-3", "step-6", "steps.jsonl", "trace.bin"])

    def test_steps_behind_the_schedule_are_said_to_run_at_its_lowest_rate(self):
        self.train("--steps", 2, "--schedule-steps", 3, "--lr", "1e-3", "--save", self.path("run"))
        within = self.resumed(self.path("run"), "--steps", 3)
        self.assertNotIn("the schedule ends", within.err)
        behind = self.resumed(self.path("run"), "--steps", 4, "--log", self.path("run.jsonl"))
        self.assertRegex(behind.err, r"(?m)^note:   the schedule ends at step 3: .* learning rate 1e-4, the lowest \(--schedule-steps N")
        with open(self.path("run.jsonl"), encoding="utf-8") as file:
            self.assertAlmostEqual(json.loads(file.read())["lr"], 1e-4)

    def test_a_result_that_cannot_be_written_names_the_checkpoint_that_is_saved(self):
        run, train = self.path("run"), ["train", *TINY, "--data", self.corpus(), "--steps", 2]
        for flags in ([], ["--json"]):
            with open("/dev/full", "wb") as full:
                said = start(*train, *flags, "--save", run, stdout=full)
                error = said.communicate()[1].decode().strip().split("\n")[-1]
                self.assertEqual(said.returncode, 5)
            self.assertTrue(error.startswith("cohobate train: the output could not be written: "), error)
            self.assertTrue(error.endswith(f"nothing of the run is lost, it is saved: {run}/step-2"), error)
            self.succeeds("check", run + "/step-2")
            shutil.rmtree(run)
        with open("/dev/full", "wb") as full:
            said = start(*train, "--save", "none", stdout=full)
            self.assertNotIn(b"saved: ", said.communicate()[1])
            self.assertEqual(said.returncode, 5)

    def on_terminal(self, *train, columns):
        """The lines of a run on a terminal, those that are rewritten in place without what was there before."""
        terminal = Terminal(COHOBATE, "train", *TINY, "--data", self.corpus(), "--steps", 1, *train, columns=columns, rows=60,
                            COH_CALIBRATION="none")
        self.addCleanup(terminal.close)
        self.assertEqual(terminal.wait(), 0, terminal.shown)
        return [line.split("\033[K")[-1] for line in terminal.shown.decode().split("\r\n")]

    def test_a_narrow_terminal_shows_paths_whole(self):
        """So that they can be copied; everything else is wrapped."""
        for name in ("y" * 60, "\u00e4" * 60):
            run = self.path(name, "run")
            os.mkdir(self.path(name))
            lines = self.on_terminal("--save", run, columns=60)
            self.assertIn(f"saved:  {run}/step-1", lines)
            self.assertIn(f"keeps:  {run},", lines)
            self.assertEqual([line for line in lines if len(line) > 60 and name not in line], [])
            self.assertTrue(any(line.startswith("        ") for line in lines))

    def test_lines_for_pipes_are_not_wrapped_by_the_environment(self):
        said = self.train("--steps", 1, "--save", "none", env=environment(COLUMNS="60"))
        for lines in (said.out.split("\n"), said.err.split("\n")):
            self.assertEqual([line for line in lines if line.startswith("  ")], [])
        self.assertGreater(max(map(len, said.err.split("\n"))), 100)

    def test_a_long_start_is_wrapped_to_its_end(self):
        pattern = ",".join(["wte", "h.0.ln_1.weight"] * 12)[:250] + "*"
        groups = [word for flag in ("--lr-for", "--weight-decay-for") for i in range(16) for word in (flag, f"{pattern}={i + 1}e-5")]
        lines = self.on_terminal("--save", "none", *groups, columns=40)
        self.assertEqual(len([line for line in lines if line.startswith("group: ")]), 32)
        self.assertIn("keeps:  nothing", lines)
        more = [word for i in range(8) for word in ("--optimizer-for", pattern + "=sgd")]
        err = self.train("--steps", 1, "--save", "none", *groups, *more).err  # too long to be shown whole
        self.assertRegex(err, "(?m)^step 1/1 ")

    def test_a_presets_run_says_that_it_begins_with_first_values(self):
        said = self.train("--steps", 1, "--seed", 7, "--save", self.path("run")).err
        self.assertEqual(re.findall(r"(?m)^start: .*$", said), ["start:  first values of seed 7, no trained weights"])
        self.assertNotIn("start: ", self.resumed(self.path("run"), "--steps", 2).err)
        adapted = self.train("--steps", 1, "--lora", 2, "--save", "none").err
        self.assertNotIn("start: ", adapted)
        self.assertIn("note:   the weights under the adapters are first values of seed 1, not trained ones\n", adapted)

    def test_a_rate_that_no_step_takes_begins_the_note(self):
        self.train("--steps", 2, "--lr", "1e-3", "--save", self.path("run"))
        ends = ": the schedule ends at step 2: later steps run at the learning rate"
        for steps, flags, note in ((3, ["--lr", "2e-3"], "--lr 2e-3 is the rate of no step" + ends + " 2e-4, "),
                                   (4, ["--lr", "3e-3", "--warmup", 1],
                                    "--lr 3e-3 is the rate of no step, and --warmup has no effect" + ends + " 3e-4, "),
                                   (5, ["--warmup", 2], "--warmup has no effect" + ends),
                                   (6, ["--lr", "3e-3", "--min-lr", "3e-3"], ends[2:] + " 3e-3, "),
                                   (7, ["--lr", "2e-3", "--schedule-steps", 9], None)):
            said = self.resumed(self.path("run"), "--steps", steps, *flags, "--log", self.path("log")).err
            if note:
                self.assertIn("\nnote:   " + note, said)
            else:
                self.assertNotIn("the schedule ends", said)
        # a new highest rate keeps its ratio to the lowest, which these steps take
        for at, rate in zip(lines_of(self.path("log")), (2e-4, 3e-4, 3e-4, 3e-3)):
            self.assertAlmostEqual(at["lr"], rate)

    @in_full
    def test_dropout_is_kept_by_resumes_and_changes_no_bit_from_tier_to_tier(self):
        numbers = ["--dropout", 0.2, "--micro-batch", 1]
        in_memory = self.succeeds("plan", *NANO, *numbers, "--json").json["in_memory_bytes"]
        quarter = ["--disk", self.folder, "--device-memory", f"{in_memory // 4096}KiB", "--json"]
        whole = self.train("--steps", 4, "--save", "none", *numbers, model=NANO)
        self.train("--steps", 2, "--schedule-steps", 4, "--save", self.path("half"), *numbers, model=NANO)
        self.fails(2, "train", "--resume", self.path("half"), "--dropout", 0.2, says="comes from the checkpoint")
        more = self.resumed(self.path("half"), "--steps", 4, *quarter)
        self.assertRegex(more.err, r"(?m)^dropout: 0.2 ")
        self.assertNotIn("other rounding", more.err)
        self.assertGreater(more.json["link_bytes"]["read"], 0)
        self.assertEqual(more.json["hash"], self.says_hash(whole))
        plain = self.train("--steps", 4, "--save", "none", "--micro-batch", 1, model=NANO)
        self.assertNotEqual(self.says_hash(plain), self.says_hash(whole))
        self.assertEqual(self.says_hash(self.train("--steps", 4, "--save", "none", "--micro-batch", 1, "--dropout", 0, model=NANO)),
                         self.says_hash(plain))

    def test_resuming_within_a_quarter_of_the_memory_continues_bit_for_bit(self):
        whole = self.train("--steps", 4, "--save", "none", model=NANO)
        self.train("--steps", 2, "--schedule-steps", 4, "--save", self.path("half"), model=NANO)
        in_memory = self.succeeds("plan", *NANO, "--json").json["in_memory_bytes"]
        more = self.resumed(self.path("half"), "--steps", 4, "--json", "--disk", self.folder, "--device-memory",
                            f"{in_memory // 4096}KiB")
        self.assertEqual(more.json["hash"], self.says_hash(whole))
        self.assertGreater(more.json["link_bytes"]["read"], 0)
        self.assertLessEqual(more.json["peak_bytes"]["device"], in_memory // 4)
        self.assertEqual(more.json["peak_bytes"]["device"], more.json["predicted_peak_bytes"]["device"])

    @in_full
    def test_either_dtype_is_kept_by_resumes_and_gives_the_same_bits_in_a_quarter_of_the_memory(self):
        for dtype in pairs("f32", "bf16"):
            in_memory = self.succeeds("plan", *NANO, "--dtype", dtype, "--json").json["in_memory_bytes"]
            quarter = ["--disk", self.folder, "--device-memory", f"{in_memory // 4096}KiB"]
            whole = self.train("--steps", 4, "--save", "none", "--dtype", dtype, model=NANO)
            self.assertRegex(whole.err, f"(?m)^dtype:  {dtype} \\(")
            half = self.train("--steps", 2, "--schedule-steps", 4, "--save", self.path(dtype), "--dtype", dtype, "--json",
                              *quarter, model=NANO)
            self.assertEqual(half.json["dtype"], dtype)
            more = self.resumed(self.path(dtype), "--steps", 4, "--json", *quarter)
            self.assertNotIn("other rounding", more.err)
            self.assertRegex(more.err, f"(?m)^dtype:  {dtype} \\(as the run began\\)")
            self.assertEqual(more.json["hash"], self.says_hash(whole))
            self.assertEqual(self.succeeds("inspect", self.path(dtype), "--json").json["note"]["model"]["dtype"], dtype)

    def test_another_dtype_is_said_at_a_resume_and_for_eval_differs_by_rounding(self):
        held_out = self.write("held-out.txt", "line 5: the 7th of many\n" * 10)
        for dtype, other in pairs(("f32", "bf16"), ("bf16", "f32")):
            self.train("--steps", 2, "--save", self.path(dtype), "--dtype", dtype)
            losses = {name: self.succeeds("eval", self.path(dtype), "--data", held_out, "--json", *flags).json["loss"]
                      for name, flags in ((dtype, []), (other, ["--dtype", other]))}
            self.assertNotEqual(losses["f32"], losses["bf16"])
            self.assertLess(abs(losses["f32"] - losses["bf16"]), 2 ** -7 * losses["f32"])
            more = self.resumed(self.path(dtype), "--steps", 3, "--dtype", other)
            self.assertIn(f"dtype {dtype} -> {other}: other rounding", more.err)
            self.assertRegex(more.err, r"numeric plan \w+ -> \w+ ")
            self.assertNotIn("other rounding", self.resumed(self.path(dtype), "--steps", 4).err)

    def test_a_new_run_from_a_checkpoint_takes_its_dtype_unless_told_another(self):
        for dtype, other in pairs(("f32", "bf16"), ("bf16", "f32")):
            self.train("--steps", 1, "--save", self.path(dtype), "--dtype", dtype)
            model = [self.path(dtype), *TINY[1:]]
            self.assertEqual(self.succeeds("plan", *model, "--json").json["dtype"], dtype)
            self.assertEqual(self.succeeds("plan", *model, "--dtype", other, "--json").json["dtype"], other)
            begun = self.train("--steps", 1, "--save", self.path("from-" + dtype), model=model)
            self.assertRegex(begun.err, f"(?m)^dtype:  {dtype} \\(as the model was trained")
            note = self.succeeds("inspect", self.path("from-" + dtype), "--json").json["note"]
            self.assertEqual(note["model"]["dtype"], dtype)
            tune = ["tune", self.path(dtype), *TINY_USUAL[1:]]
            tuned = self.succeeds(*tune, "-o", self.path(dtype + ".json"), "--json").json
            self.assertEqual({shape["dtype"] for shape in tuned["shapes"]}, {dtype})

    def test_the_default_dtype_is_what_the_doctor_says(self):
        said = re.search(r"--dtype is (\w+) unless given", self.succeeds("doctor").out)[1]
        self.assertEqual(self.succeeds("plan", *TINY, "--json").json["dtype"], said)

    def test_the_recipe_of_a_resumed_run_is_the_checkpoints(self):
        self.train("--steps", 2, "--save", self.path("run"))
        for flags in (["--seed", "2"], ["--sequence", "8"]):
            self.fails(2, "train", "--resume", self.path("run"), "--steps", 4, *flags, says=flags[0])
        self.fails(2, "train", "gpt2", "--resume", self.path("run"), "--steps", 4, says="gpt2")
        self.fails(2, "train", "--resume", self.path("run"), "--lr", "1e-4", says="--steps 3")
        self.fails(2, "plan", "--resume", self.path("run"), says="--steps 3")
        other = self.write("other.txt", "something else entirely, many times over\n" * 100)
        self.assertNotIn("other data", self.resumed(self.path("run"), "--steps", 3, "--data", self.corpus()).err)
        for steps, flags in ((4, ["--new-data"]), (5, [])):
            done = self.resumed(self.path("run"), "--steps", steps, "--data", self.corpus() if not flags else other, *flags)
            self.assertIn("other data", done.err)
        # and the next resume finds the new data automatically
        self.assertNotIn("other data", self.resumed(self.path("run"), "--steps", 6).err)

    def test_a_moved_run_folder_still_resumes(self):
        self.train("--steps", 1, "--save", self.path("run"))
        shutil.move(self.path("run"), self.path("moved"))
        self.resumed(self.path("moved"), "--steps", 2)
        # its later data have another name, and the first are still there
        other = self.write("other.txt", "something else entirely, many times over\n" * 100)
        self.resumed(self.path("moved"), "--steps", 3, "--data", other, "--new-data")
        shutil.move(self.path("moved"), self.path("again"))
        self.resumed(self.path("again"), "--steps", 4)

    def test_another_micro_batch_is_said(self):
        self.train("--steps", 1, "--save", self.path("run"))
        done = self.resumed(self.path("run"), "--steps", 2, "--micro-batch", 1)
        self.assertIn("micro-batch 2 -> 1: other rounding", done.err)

    def test_a_run_keeps_its_sweep_order_and_says_another(self):
        flags = ["--micro-batch", 1, "--sweep-order", "layer"]
        whole = self.train("--steps", 4, "--save", "none", *flags)
        self.train("--steps", 2, "--schedule-steps", 4, "--save", self.path("half"), *flags)
        more = self.resumed(self.path("half"), "--steps", 3)
        self.assertNotIn("other rounding", more.err)
        self.succeeds("plan", *TINY, *flags, "-o", self.path("plan.json"))
        last = self.resumed(self.path("half"), "--steps", 4, "--plan", self.path("plan.json"))
        self.assertNotIn("other rounding", last.err)
        self.assertEqual(self.says_hash(last), self.says_hash(whole))
        usual = self.train("--steps", 4, "--save", "none", "--micro-batch", 1)
        self.assertNotEqual(self.says_hash(usual), self.says_hash(whole))  # the table is tied
        other = self.resumed(self.path("half"), "--steps", 5, "--sweep-order", "micro-batch")
        self.assertIn("sweep order layer -> micro-batch: other rounding", other.err)
        self.fails(2, "train", *TINY, "--micro-batch", 1, "--sweep-order", "micro-batch", "--data", self.corpus(), "--plan",
                   self.path("plan.json"), says="give --sweep-order layer")

    def test_a_run_keeps_its_f32_gradients_and_says_others(self):
        flags = ["--micro-batch", 1, "--dtype", "bf16", "--gradients", "f32"]
        whole = self.train("--steps", 4, "--save", "none", *flags)
        self.assertIn("gradients of weights in f32", whole.err)
        self.train("--steps", 2, "--schedule-steps", 4, "--save", self.path("half"), *flags)
        self.succeeds("plan", *TINY, *flags, "-o", self.path("plan.json"))
        self.assertIn("(gradients f32)", self.succeeds("inspect", self.path("plan.json")).out)
        self.succeeds("simulate", self.path("plan.json"))
        last = self.resumed(self.path("half"), "--steps", 4, "--plan", self.path("plan.json"))
        self.assertNotIn("other rounding", last.err)
        self.assertEqual(self.says_hash(last), self.says_hash(whole))
        usual = self.train("--steps", 4, "--save", "none", *flags[:4])
        self.assertNotEqual(self.says_hash(usual), self.says_hash(whole))
        other = self.resumed(self.path("half"), "--steps", 5, "--gradients", "bf16")
        self.assertIn("gradients f32 -> bf16: other rounding", other.err)
        self.assertIn("(dtype, gradients, micro-batch", other.err)
        self.fails(2, "train", *TINY, *flags[:4], "--data", self.corpus(), "--plan", self.path("plan.json"),
                   says="give --gradients f32")
        self.fails(2, "plan", *TINY, "--dtype", "f32", "--gradients", "bf16", says="add --dtype bf16")

    def test_sums_of_many_micro_batches_in_bf16_name_the_flag_for_f32(self):
        said = r"gradients of weights in bf16, rounded as each of 16 micro-batches adds to them: --gradients f32 does not, for (\S+ [KM]iB) more"
        plan = ["plan", *TINY, "--batch", 16, "--dtype", "bf16"]
        screen = " ".join(self.succeeds(*plan, "--micro-batch", 1).out.split())
        found = re.search(said, screen)
        self.assertTrue(found, screen)
        parameters = float(re.search(r"([\d.]+) M parameters", screen)[1])
        self.assertAlmostEqual(float(found[1].split()[0]), 2 * parameters * 1e6 / 2 ** (20 if "M" in found[1] else 10), delta=20)
        for flags in (["--micro-batch", 2], ["--micro-batch", 1, "--dtype", "f32"], ["--micro-batch", 1, "--gradients", "f32"],
                      ["--micro-batch", 1, "--gradients", "bf16"]):
            self.assertNotIn("micro-batches adds", " ".join(self.succeeds(*plan, *flags).out.split()), flags)
        trained = self.train("--steps", 1, "--save", "none", "--batch", 16, "--micro-batch", 1, "--dtype", "bf16")
        self.assertRegex(" ".join(trained.err.split()), said)

    def test_a_sweep_order_that_is_chosen_is_said(self):
        small = ["gpt2-nano", "--sequence", "16", "--batch", "8", *QUICK, "--micro-batch", "1", "--device-memory", "12MiB",
                 "--disk", self.folder, "--recompute", "none"]
        done = self.succeeds("plan", *small, "--sweep-order", "auto", "--json")
        self.assertIn("sweep order micro-batch -> layer: other rounding", done.err)
        usual = self.succeeds("plan", *small, "--json")
        self.assertNotIn("sweep order", usual.err)
        self.assertEqual((done.json["sweep_order"], usual.json["sweep_order"]), ("layer", "micro-batch"))
        self.assertLess(done.json["step_seconds"], usual.json["step_seconds"])

    def test_a_budget_changes_the_micro_batch_only_where_it_may_and_says_so(self):
        big = ["gpt2-nano", "--sequence", "128", "--batch", "4", *QUICK, "--threads", "2", "--recompute", "none"]
        need = {n: self.succeeds("plan", *big, "--micro-batch", n, "--json").json["in_memory_bytes"] for n in (4, 2, 1)}
        budget = ["--device-memory", f"{need[2]}B"]
        self.assertLess(need[2], need[4])
        self.fails(3, "plan", *big, *budget, says="--micro-batch 2: other rounding")
        auto = ["--micro-batch", "auto"]
        planned = self.succeeds("plan", *big, *budget, *auto, "--json")
        self.assertIn("micro-batch 4 -> 2: other rounding", planned.err)
        self.assertEqual(planned.json["micro_batch"], 2)
        lowered = self.train("--steps", 1, "--save", self.path("run"), *budget, *auto, model=big)
        # without a flag, the plan's own micro-batch is used
        self.succeeds("plan", *big, *budget, *auto, "-o", self.path("plan.json"))
        planned = self.train("--steps", 1, "--save", "none", *budget, "--plan", self.path("plan.json"), model=big)
        self.assertIn("micro-batch 4 -> 2: that of the plan", planned.err)
        self.assertEqual(self.says_hash(planned), self.says_hash(lowered))
        self.assertIn("micro-batch 4 -> 2: other rounding", lowered.err)
        given = self.train("--steps", 1, "--save", "none", *budget, "--micro-batch", 2, model=big)
        self.assertNotIn("other rounding", given.err)
        self.assertEqual(self.says_hash(lowered), self.says_hash(given))
        # with a disk the default fits, so it stays
        disk = self.succeeds("plan", *big, *budget, "--disk", self.folder, "--json")
        self.assertNotIn("other rounding", disk.err)
        self.assertEqual(disk.json["micro_batch"], 4)
        # what is reported to fit does, and a resumed run keeps what it has
        self.fails(3, "plan", *big, *budget, "--micro-batch", 4, says="--micro-batch 2: other rounding")
        resumed = self.fails(3, "train", "--resume", self.path("run"), "--steps", 3, "--recompute", "none", "--device-memory",
                             f"{need[1]}B", says="--micro-batch 1: other rounding")
        self.assertNotIn("->", resumed.err)

    def test_what_fits_nowhere_is_refused_with_the_smallest_change(self):
        big = ["gpt2-nano", "--sequence", "128", "--batch", "4", *QUICK, "--threads", "2"]
        done = self.fails(3, "plan", *big, "--device-memory", "24MiB", says="a change that is enough: --disk DIR")
        none = self.fails(3, "plan", *big, "--micro-batch", "auto", "--device-memory", "24MiB", says="--disk DIR")
        self.assertIn("no micro-batch from 4 down to 1 fits", none.err)
        size = re.search(r"--disk DIR:([\w.]+), where micro-batch 4 fits", done.err)[1]
        self.succeeds("plan", *big, "--device-memory", "24MiB", "--disk", f"{self.folder}:{size}", "--json")
        big += ["--micro-batch", "auto"]
        done = self.fails(3, "plan", *big, "--device-memory", "1MiB", says="also with --disk DIR")
        self.assertEqual(done.err.count("also with --disk DIR"), 1, done.err)
        least = (1 << 20) + int(re.search(r"(\d+) bytes short", done.err)[1])
        typed = re.search(r"raise --device-memory to (?:at least )?(\S+)$", done.err.strip())[1]
        self.assertGreaterEqual(bytes_of(typed), least)
        self.succeeds("plan", *big, "--device-memory", typed, "--disk", self.folder, "--json")
        fits = self.succeeds("plan", *big, "--device-memory", f"{least}B", "--disk", self.folder, "--json")
        self.assertIn("micro-batch 4 -> 1: other rounding", fits.err)
        self.fails(3, "plan", *big, "--device-memory", f"{least - 4096}B", "--disk", self.folder)

    def test_pins_are_kept_by_the_plan_and_by_the_run(self):
        model = ["gpt2-nano", "--sequence", "64", "--batch", "2", *QUICK, "--threads", "2"]
        budget = ["--device-memory", "40MiB", "--disk", self.folder]
        pins = ["--pin", "blocks.0=device", "--pin", "blocks.1=keep"]
        with open(self.path("pins.json"), "w", encoding="utf-8") as file:
            json.dump({"format": "cohobate pins", "version": 1,
                       "pins": [{"target": "blocks.2", "parameters": "disk", "activations": "recompute"}]}, file)
        pins += ["--pins", self.path("pins.json")]
        self.succeeds("plan", *model, *budget, *pins, "-o", self.path("plan.json"))
        with open(self.path("plan.json"), encoding="utf-8") as file:
            plan = json.load(file)
        self.assertEqual(plan["pins"], ["blocks.0=device", "blocks.1=keep", "blocks.2=disk", "blocks.2=recompute"])
        self.assertEqual(plan["decisions"]["recompute"].split(",").count("1"), 0)
        free = self.train("--steps", 2, "--save", "none", *budget, model=model)
        pinned = self.train("--steps", 2, "--save", "none", *budget, *pins, model=model)
        replayed = self.train("--steps", 2, "--save", "none", *budget, "--plan", self.path("plan.json"), model=model)
        self.assertEqual(self.says_hash(free), self.says_hash(pinned))
        self.assertEqual(self.says_hash(free), self.says_hash(replayed))
        self.fails(2, "plan", *model, *budget, *pins, "--plan", self.path("plan.json"), says="holds its own pins")
        tight = [*model, "--device-memory", "24MiB", "--disk", self.folder, "--recompute", "all", "--chunk", "512KiB"]
        self.succeeds("plan", *tight, "-o", self.path("tight.json"))
        again = [*tight, "--data", self.corpus(), "--steps", 1, "--save", "none", "--plan", self.path("tight.json")]
        self.succeeds("train", *again)
        for flag, value, says in (("--chunk", "256KiB", "has chunks of 512.00 KiB: leave --chunk out"),
                                  ("--recompute", "none", r"blocks: leave --recompute out")):
            changed = [value if before == flag else each for before, each in zip([""] + again, again)]
            self.fails(2, "train", *changed, says=says)
        self.fails(3, "plan", *model, "--disk", self.folder, "--device-memory", "20MiB", "--pin", "blocks.0-5=device",
                   says="pin 'blocks.0-5=device': with it a step needs")
        for text, says in [('{"format": "cohobate pins", "version": 2, "pins": []}', "version 2"),
                           ('{"format": "cohobate pins", "version": 1, "pins": [{"target": "a"}]}', "entry pins[0]"),
                           ('{"format": "cohobate pins", "version": 1, "pins": [{"target": "a", "parameters": "cpu"}]}',
                            '"cpu"'), ("[", "line 1")]:
            with open(self.path("pins.json"), "w", encoding="utf-8") as file:
                file.write(text)
            self.fails(4, "plan", *model, "--pins", self.path("pins.json"), says=says)

    def test_an_exploding_run_stops_with_a_reason_and_saves_nothing_broken(self):
        flags = ["--steps", 40, "--lr", "100", "--warmup", 0, "--weight-decay", "100", "--save", self.path("run")]
        done = run("train", *TINY, "--data", self.corpus(), *flags, "--clip", "0")
        self.assertEqual(done.code, 1, done.err)
        self.assertIn("not finite", done.err.strip().split("\n")[-1])
        self.assertEqual([n for n in os.listdir(self.path("run")) if n.startswith("step-")], [])

    def test_steps_that_are_not_finite_are_left_out_by_name_and_ten_end_the_run(self):
        done = run("train", *TINY, "--data", self.corpus(), "--steps", 40, "--lr", "1e6", "--warmup", 0, "--save-every",
                   1, "--keep", 2, "--log", self.path("log"), "--save", self.path("wild"))
        self.assertEqual(done.code, 1, done.err)
        warnings = [line for line in done.err.split("\n") if line.startswith("warning: step ")]
        self.assertEqual(len(warnings), 10)
        for warning in warnings:
            self.assertRegex(warning, r"left out: .*operator '\S+'")
        self.assertIn("10 steps in a row", done.err.strip().split("\n")[-1])
        self.succeeds("check", self.path("wild"))
        with open(self.path("log"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([line.get("skipped", False) for line in lines][-10:], [True] * 10)
        self.assertIsNone(lines[-1]["loss"])

    def test_damaged_data_and_checkpoints_are_bad_data(self):
        self.train("--steps", 1, "--save", self.path("run"))
        tokens = self.path("run", "data.tokens")
        with open(tokens, "rb") as file:
            whole = file.read()
        cut = self.write("cut.tokens", whole[:-5])
        self.fails(4, "train", *TINY, "--data", cut, "--save", "none")
        self.fails(4, "check", cut)
        flipped = self.write("flipped.tokens", whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        for command in (["train", *TINY, "--save", "none"], ["eval", self.path("run")]):
            self.fails(4, *command, "--data", flipped, says="flipped.tokens")
        self.fails(4, "train", *TINY, "--save", "none", "--data", tokens, "--validation", flipped, says="flipped.tokens")
        work = self.path("run", "step-1", "work.bin")
        with open(work, "r+b") as file:
            file.seek(12345)
            byte = file.read(1)
            file.seek(12345)
            file.write(bytes([byte[0] ^ 4]))
        self.fails(4, "check", self.path("run"), says="work.bin")
        self.fails(4, "train", "--resume", self.path("run"), "--steps", 2)
        os.truncate(work, 1000)
        self.fails(4, "inspect", self.path("run", "step-1"))
        self.fails(4, "train", *TINY, "--data", self.write("short.txt", "abc"), "--save", "none", says="--sequence")

    def test_what_does_not_fit_exits_3_before_anything_is_trained(self):
        done = self.fails(3, "train", *NANO, "--data", self.corpus(), "--device-memory", "1MiB", "--save",
                          self.path("run"))
        self.assertNotIn("step 1/", done.err)
        self.fails(3, "plan", *NANO, "--device-memory", "1MiB")

    def test_a_new_run_may_begin_with_the_weights_of_another(self):
        self.train("--steps", 3, "--save", self.path("first"))
        loss = {}
        for name, model in (("fresh", TINY), ("from", [self.path("first"), *TINY[1:]])):
            self.train("--steps", 1, "--save", "none", "--log", self.path(name), model=model)
            with open(self.path(name), encoding="utf-8") as file:
                loss[name] = json.loads(file.readline())["loss"]
        self.assertLess(loss["from"], loss["fresh"])

    def test_the_peak_and_the_overhead_are_what_was_said(self):
        done = self.train("--steps", 3, "--save", "none", "--json").json
        self.assertEqual(done["peak_bytes"], done["predicted_peak_bytes"])
        if not SANITIZED:  # a sanitizer's shadow is no part of the program
            self.assertLessEqual(done["overhead_bytes"], 128 << 20)

    def test_every_byte_has_a_holder_and_the_start_says_what_the_arena_got(self):
        flags = ["--steps", 2, "--save", "none", "--device-memory", "64MiB", "--disk", self.folder]
        done = self.train(*flags, "--json", model=NANO)
        self.assertRegex(done.err, r"(?m)^arenas: device \d[\d.]* MiB, (huge pages asked for|small pages), on \d+ NUMA")
        rows = {(row["tier"], row["purpose"], row["owner"]): row for row in done.json["ledger"]}
        self.assertEqual(rows["device", "device arena", "arena"]["bytes"], done.json["peak_bytes"]["device"])
        self.assertEqual(rows["device", "highest end", "extents"]["peak_bytes"], done.json["peak_bytes"]["device"])
        self.assertEqual(rows["disk", "working store", "store"]["bytes"], done.json["peak_bytes"]["disk"])
        standing = [row for (_, purpose, owner), row in rows.items() if owner == "extents" and purpose != "highest end"]
        self.assertGreater(len(standing), 5)
        self.assertLessEqual(sum(row["bytes"] for row in standing), done.json["peak_bytes"]["device"])
        for row in done.json["ledger"]:
            self.assertLessEqual(row["peak_bytes"], sum(done.json["peak_bytes"].values()))
        self.assertLessEqual({("device", "work"), ("device", "state"), ("disk", "working store")}, {row[:2] for row in rows})

    def test_survivors_beyond_the_host_tier_train_save_resume_and_evaluate_bit_for_bit(self):
        far = ["--device-memory", "96MiB", "--emulate-host", "112MiB"]
        whole = self.train("--steps", 4, "--save", self.path("whole"), model=NANO)
        self.train("--steps", 2, "--schedule-steps", 4, "--save", self.path("half"), *far, model=NANO)
        more = self.resumed(self.path("half"), "--steps", 4, "--json", *far)
        self.assertEqual(more.json["hash"], self.says_hash(whole))
        plan = self.succeeds("plan", *NANO, *far, "--json").json
        self.assertGreater(plan["stream_bytes"], 112 << 20)  # no gradient dies before the next step
        for tier, budget in (("device", 96 << 20), ("host", 112 << 20)):
            self.assertEqual(more.json["peak_bytes"][tier], more.json["predicted_peak_bytes"][tier])
            self.assertLessEqual(more.json["peak_bytes"][tier], budget)
        short = self.fails(3, "plan", *NANO, "--device-memory", "96MiB", "--emulate-host", "32MiB",
                           says="raise --emulate-host to at least")
        self.assertIn("all tiers together", short.err)

    def test_the_emulated_tier_is_called_emulated(self):
        done = self.train("--steps", 1, "--save", "none", "--emulate-host", "1GiB", "--device-memory", "64MiB", model=NANO)
        self.assertIn("EMULATED", done.err)
        self.assertIn("EMULATED", done.out)

    def test_a_replayed_plan_gives_the_same_run(self):
        budget = ["--device-memory", "64MiB", "--disk", self.folder]
        self.succeeds("plan", *NANO, *budget, "-o", self.path("plan.json"))
        self.succeeds("check", self.path("plan.json"))
        planned = self.train("--steps", 2, "--save", "none", "--json", *budget, model=NANO).json
        replayed = self.train("--steps", 2, "--save", "none", "--json", *budget, "--plan", self.path("plan.json"), model=NANO).json
        self.assertEqual(planned["hash"], replayed["hash"])
        self.assertEqual(planned["program_hash"], replayed["program_hash"])
        self.assertEqual(self.succeeds("inspect", self.path("plan.json"), "--hash").out.strip(),
                         planned["program_hash"])

    def shown_on_terminal(self, columns, *more):
        """The bytes that a terminal gets from a run, of 3 steps if no others are given."""
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([COHOBATE, "train", *TINY, "--data", self.corpus(), *(more or ["--steps", "3", "--save", "none"])], env=environment(), stdout=subprocess.DEVNULL, stderr=slave)
        os.close(slave)
        shown = b""
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        os.close(master)
        self.assertEqual(process.wait(timeout=60), 0)
        return shown

    def test_a_terminal_gets_one_live_line_that_never_wraps(self):
        for columns in (200, 60, 40):
            shown = self.shown_on_terminal(columns)
            self.assertIn(b"planning gpt2-pico\r\x1b[K", shown)
            self.assertIn(b"\rstep 1/3  loss ", shown)
            self.assertIn(b"\rstep 3/3  loss ", shown)
            lines = [line.removeprefix(b"\r") for line in re.findall(rb"\rstep [^\r\n]*?(?=\x1b\[K)", shown)]
            self.assertTrue(all(len(line) < columns for line in lines), lines)
            self.assertEqual(any(b"device" in line for line in lines), columns == 200)
            # rate, time left and the wait, shortened
            self.assertEqual(all(re.search(rb"(?:waits|\d) \d* ?% (?:for )?\w+$|no waits$|device", line) for line in lines), columns > 40)

    def test_the_rate_that_is_shown_leaves_out_validations(self):
        held = self.write("held.txt", "a text that takes far longer than the steps between\n" * 40)
        shown = self.shown_on_terminal(120, "--steps", "9", "--validation", held, "--validation-every", "4", "--save", self.path("run"))
        with open(self.path("run", "steps.jsonl"), encoding="utf-8") as file:
            steps = [line for line in map(json.loads, file) if "loss" in line][1:]
        rate = float(re.findall(rb"\rstep 9/9  loss [\d.]+  ([\d.]+) tokens/s", shown)[-1])
        wanted = sum(step["tokens"] for step in steps) / sum(step["seconds"] for step in steps)
        self.assertTrue(wanted / 3 < rate < wanted * 3, (rate, wanted))

    def test_a_pipe_gets_at_most_one_line_of_progress_in_ten_seconds(self):
        begin = time.monotonic()
        done = self.train("--steps", 10, "--save", "none", "--json", "--device-memory", "130MiB", "--disk", self.folder, model=NANO)
        lines = [line for line in done.err.split("\n") if line.startswith("step ")]
        self.assertRegex(lines[0], r"^step 1/10  loss [\d.]+  .* left \(predicted\)  (waits \d+ % for \w+|no waits)  device ")
        self.assertLessEqual(len(lines), 1 + (time.monotonic() - begin) // 10)
        self.assertNotIn("\033", done.err)


if __name__ == "__main__":
    unittest.main()
