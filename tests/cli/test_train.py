"""Training from the outside: what is kept, how it goes on, what is said."""

import glob
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import time
import unittest

import model_folder
from program import COHOBATE, SANITIZED, TINY, ProgramTest, environment, in_full, pairs, run, start


class Train(ProgramTest):
    def train(self, *more, model=TINY, **keywords):
        return self.succeeds("train", *model, "--data", self.corpus(), *more, **keywords)

    def resumed(self, folder, *more):
        return self.succeeds("train", "--resume", folder, "--threads", 2, *more)

    def hash_of(self, path):
        return self.succeeds("inspect", path, "--hash").out.strip()

    def test_a_run_cut_in_two_ends_with_the_hash_of_the_whole_one(self):
        whole = self.train("--steps", 6, "--save", self.path("whole"), "--micro-batch", 1)
        self.train("--steps", 3, "--schedule-steps", 6, "--save", self.path("half"), "--micro-batch", 1)
        more = self.resumed(self.path("half"), "--steps", 6, "--threads", 1)
        self.assertNotIn("other rounding", more.err)
        self.assertEqual(self.says_hash(more), self.says_hash(whole))
        self.assertEqual(self.hash_of(self.path("half")), self.says_hash(whole))
        self.assertEqual(sorted(os.listdir(self.path("half"))),
                         ["data.tokens", "lock", "plan.json", "step-3", "step-6"])

    def test_steps_behind_the_schedule_are_said_to_run_at_its_lowest_rate(self):
        self.train("--steps", 2, "--schedule-steps", 3, "--lr", "1e-3", "--save", self.path("run"))
        within = self.resumed(self.path("run"), "--steps", 3)
        self.assertNotIn("the schedule ends", within.err)
        behind = self.resumed(self.path("run"), "--steps", 4, "--log", self.path("run.jsonl"))
        self.assertRegex(behind.err, r"(?m)^note:   the schedule ends at step 3: .* learning rate 0.0001, the lowest$")
        with open(self.path("run.jsonl"), encoding="utf-8") as file:
            self.assertAlmostEqual(json.loads(file.read())["lr"], 1e-4)

    @in_full
    def test_dropout_is_kept_by_resumes_and_changes_no_bit_from_tier_to_tier(self):
        numbers = ["--dropout", 0.2, "--micro-batch", 1]
        in_memory = self.succeeds("plan", *TINY, *numbers, "--json").json["in_memory_bytes"]
        quarter = ["--disk", self.folder, "--device-memory", f"{in_memory // 4096}KiB", "--json"]
        whole = self.train("--steps", 4, "--save", "none", *numbers)
        self.train("--steps", 2, "--schedule-steps", 4, "--save", self.path("half"), *numbers)
        self.fails(2, "train", "--resume", self.path("half"), "--dropout", 0.2, says="comes from the checkpoint")
        more = self.resumed(self.path("half"), "--steps", 4, *quarter)
        self.assertRegex(more.err, r"(?m)^dropout: 0.2 ")
        self.assertNotIn("other rounding", more.err)
        self.assertGreater(more.json["link_bytes"]["read"], 0)
        self.assertEqual(more.json["hash"], self.says_hash(whole))
        plain = self.train("--steps", 4, "--save", "none", "--micro-batch", 1)
        self.assertNotEqual(self.says_hash(plain), self.says_hash(whole))
        self.assertEqual(self.says_hash(self.train("--steps", 4, "--save", "none", "--micro-batch", 1, "--dropout", 0)),
                         self.says_hash(plain))

    def test_resuming_within_a_quarter_of_the_memory_continues_bit_for_bit(self):
        whole = self.train("--steps", 4, "--save", "none")
        self.train("--steps", 2, "--schedule-steps", 4, "--save", self.path("half"))
        in_memory = self.succeeds("plan", *TINY, "--json").json["in_memory_bytes"]
        more = self.resumed(self.path("half"), "--steps", 4, "--json", "--disk", self.folder, "--device-memory",
                            f"{in_memory // 4096}KiB")
        self.assertEqual(more.json["hash"], self.says_hash(whole))
        self.assertGreater(more.json["link_bytes"]["read"], 0)
        self.assertLessEqual(more.json["peak_bytes"]["device"], in_memory // 4)
        self.assertEqual(more.json["peak_bytes"]["device"], more.json["predicted_peak_bytes"]["device"])

    @in_full
    def test_either_dtype_is_kept_by_resumes_and_gives_the_same_bits_in_a_quarter_of_the_memory(self):
        for dtype in pairs("f32", "bf16"):
            in_memory = self.succeeds("plan", *TINY, "--dtype", dtype, "--json").json["in_memory_bytes"]
            quarter = ["--disk", self.folder, "--device-memory", f"{in_memory // 4096}KiB"]
            whole = self.train("--steps", 4, "--save", "none", "--dtype", dtype)
            self.assertRegex(whole.err, f"(?m)^dtype:  {dtype} \\(")
            half = self.train("--steps", 2, "--schedule-steps", 4, "--save", self.path(dtype), "--dtype", dtype, "--json",
                              *quarter)
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
            tuned = self.succeeds("tune", *model, "-o", self.path(dtype + ".json"), "--json").json
            self.assertEqual({shape["dtype"] for shape in tuned["shapes"]}, {dtype})

    def test_the_default_dtype_is_what_the_doctor_says(self):
        said = re.search(r"--dtype is (\w+) unless given", self.succeeds("doctor").out)[1]
        self.assertEqual(self.succeeds("plan", *TINY, "--json").json["dtype"], said)

    def test_only_the_newest_checkpoints_are_kept_and_all_are_whole(self):
        self.train("--steps", 5, "--save-every", 1, "--keep", 2, "--save", self.path("run"))
        self.assertEqual(sorted(n for n in os.listdir(self.path("run")) if n.startswith("step")), ["step-4", "step-5"])
        for name in ("step-4", "step-5", "."):
            self.succeeds("check", self.path("run", name))
        self.assertEqual(self.hash_of(self.path("run")), self.hash_of(self.path("run", "step-5")))

    def test_the_log_has_one_object_a_step_and_goes_on_after_resume(self):
        log = self.path("run.jsonl")
        self.train("--steps", 2, "--schedule-steps", 4, "--warmup", 2, "--lr", "1e-3", "--save", self.path("run"),
                   "--log", log)
        self.resumed(self.path("run"), "--steps", 4, "--log", log)
        with open(log, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([line["step"] for line in lines], [1, 2, 3, 4])
        for line in lines:
            self.assertEqual(line["tokens"], 32)
            self.assertGreater(line["loss"], 0)
            self.assertGreater(line["grad_norm"], 0)
            self.assertGreater(line["peak_bytes"]["device"], 0)
            self.assertIn("exposed_seconds", line)
            self.assertIn("link_bytes", line)
        # warm-up by hand: 1/2, 2/2; then half a cosine from 1e-3 down to 1e-4 in two steps
        for line, rate in zip(lines, [0.5e-3, 1e-3, 0.55e-3, 1e-4]):
            self.assertAlmostEqual(line["lr"], rate, places=12)

    def test_sigterm_saves_exits_75_and_the_run_goes_on_bit_for_bit(self):
        whole = self.train("--steps", 8, "--save", "none")
        odd = "a run's $HOME"  # what is printed is pasted into a shell
        os.mkdir(self.path("a disk"))
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 8, "--save", self.path(odd),
                        "--test-delay-seed", 3, "--device-memory", "1000MiB", "--disk", self.path("a disk") + ":1GB")
        for line in process.stderr:
            if line.startswith(b"step "):
                break
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
        if process.returncode == 0:
            self.skipTest("the run was over before the signal")
        self.assertEqual(process.returncode, 75, err)
        sentence = err.decode().strip().split("\n")[-1]
        self.assertIn("go on with: cohobate train --resume", sentence)
        arguments = shlex.split(sentence.split("go on with: cohobate ")[1])
        self.assertEqual(arguments, ["train", "--resume", self.path(odd), "--device-memory", "1000MiB", "--disk",
                                     self.path("a disk") + ":1GB", "--threads", "2"])
        self.assertTrue(sentence.endswith(":1GB --threads 2"), sentence)
        self.succeeds("check", self.path(odd))
        self.assertEqual(self.says_hash(self.succeeds(*arguments, "--threads", 2)), self.says_hash(whole))

    def test_a_second_signal_stops_at_once_with_the_last_checkpoint_whole(self):
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 100000, "--save-every", 1, "--save",
                        self.path("run"))
        # A folder of that name is a whole checkpoint: it is renamed into place.
        while not os.path.isdir(self.path("run", "step-2")) and process.poll() is None:
            time.sleep(0.01)
        # Whatever it is doing, the first asks for an end and the second makes one.
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 75, err)
        self.assertTrue(err.endswith(b"\ncohobate train: stopped at once; the last checkpoint stands\n"), err)
        self.succeeds("check", self.path("run"))

    def stopped(self, *flags, signals):
        """A run of many steps that got so many signals once it had a step behind it."""
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 100000, *flags)
        for line in process.stderr:
            if line.startswith(b"step 1/"):
                break
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
            time.sleep(0.002)  # two at once would be one
        _, err = process.communicate(timeout=120)
        return process.returncode, err.decode().strip().split("\n")[-1]

    def test_a_stop_that_keeps_nothing_exits_1_and_says_so(self):
        code, sentence = self.stopped("--save", "none", signals=1)
        self.assertEqual(code, 1, sentence)
        self.assertIn("nothing was kept", sentence)
        # every step late, so that the second signal comes before the first is heard
        code, sentence = self.stopped("--save", self.path("run"), "--test-delay-seed", 3, signals=2)
        self.assertEqual((code, sentence), (1, "cohobate train: stopped at once; nothing was saved yet"))

    def test_a_killed_run_goes_on_from_its_last_checkpoint(self):
        whole = self.train("--steps", 6, "--save", "none")
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 6, "--save-every", 1, "--save",
                        self.path("run"))
        for line in process.stderr:
            if line.startswith(b"step 3/"):
                break
        process.kill()
        process.communicate(timeout=120)
        more = run("train", "--resume", self.path("run"), "--threads", 2)
        if more.code == 2 and "already" in more.err:
            self.skipTest("the run was over before it was killed")
        self.assertEqual(self.says_hash(more), self.says_hash(whole))
        self.assertEqual([n for n in os.listdir(self.path("run")) if n.endswith(".partial")], [])

    def test_tokens_that_a_killed_run_left_half_written_go_with_the_next_run(self):
        os.mkdir(self.path("run"))
        for name in ("data.tokens.partial-12", "validation-8.tokens.partial-12", "mine.tokens.partial-1", "data.tokens.partial-x"):
            self.write("run/" + name, "half")
        self.train("--steps", 1, "--save", self.path("run"))
        self.assertEqual(sorted(os.listdir(self.path("run"))), ["data.tokens", "data.tokens.partial-x", "lock",
                                                                "mine.tokens.partial-1", "plan.json", "step-1"])

    def test_a_save_on_the_way_that_fails_costs_one_checkpoint_and_not_the_run(self):
        whole = self.train("--steps", 3, "--save", "none")
        for fault in ("9:28", "16:5"):  # a full disk as space is reserved, an I/O error at a write
            run_folder = self.path("run-" + fault)
            done = self.train("--steps", 3, "--save-every", 1, "--save", run_folder,
                              env=environment(COH_TEST_FAIL_AT=fault))
            warnings = [line for line in done.err.split("\n") if line.startswith("warning: nothing was saved")]
            self.assertEqual(len(warnings), 1, done.err)
            self.assertIn("after step 1", warnings[0])
            self.assertEqual(sorted(os.listdir(run_folder)), ["data.tokens", "lock", "plan.json", "step-2", "step-3"])
            self.succeeds("check", run_folder)
            self.assertEqual(self.says_hash(done), self.says_hash(whole))

    def held_bytes(self, process):
        """What the run holds for checkpoints to come: the blocks of an open file without a name."""
        folder = f"/proc/{process.pid}/fd"
        for name in os.listdir(folder):
            try:
                if os.readlink(os.path.join(folder, name)).endswith("/reserve.partial (deleted)"):
                    return os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass
        return 0

    def test_room_for_the_checkpoints_is_held_before_the_first_step_and_given_to_them(self):
        one = 12 * 11.14e6  # parameters and two states
        for flags, least in ((["--save-every", 1000], 3), (["--save-every", 1000, "--keep", 1], 2), ([], 2)):
            process = start("train", *TINY, "--data", self.corpus(), "--steps", 5000, "--save",
                            self.path(f"run-{len(flags)}"), *flags)
            for line in process.stderr:
                if line.startswith(b"step 1/"):
                    break
            held = self.held_bytes(process)
            process.kill()
            process.communicate(timeout=120)
            if held == 0:
                self.skipTest("this file system cannot reserve")
            self.assertGreater(held, least * one, flags)
            self.assertLess(held, least * one + (least << 20), flags)
            self.assertEqual([n for n in os.listdir(self.path(f"run-{len(flags)}")) if "reserve" in n], [])
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 5000, "--save-every", 2, "--keep", 2,
                        "--save", self.path("run"))
        while not os.path.isdir(self.path("run", "step-6")) and process.poll() is None:
            time.sleep(0.01)
        held = self.held_bytes(process)
        process.kill()
        process.communicate(timeout=120)
        self.assertEqual(held, 0)

    def test_a_resumed_run_holds_room_only_for_what_is_not_there(self):
        self.train("--steps", 2, "--save-every", 1, "--save", self.path("run"))
        process = start("train", "--resume", self.path("run"), "--threads", 2, "--steps", 5000, "--save-every", 1000)
        for line in process.stderr:
            if line.startswith(b"step 3/"):
                break
        held = self.held_bytes(process)
        process.kill()
        process.communicate(timeout=120)
        self.assertLess(held, 12 * 11.14e6 + (1 << 20))

    def test_room_that_cannot_be_had_is_refused_before_the_first_step(self):
        # Well beyond what is free: other programs give room back meanwhile, and what fits is then held.
        most = shutil.disk_usage(self.folder).free * 5 // 4 // int(12 * 11.14e6) + 2
        if most > 1000:
            self.skipTest("the disk has room for a thousand checkpoints")
        done = self.fails(3, "train", *TINY, "--data", self.corpus(), "--steps", 2000, "--save-every", 1, "--keep", most,
                          "--save", self.path("run"), says=f"{most + 1} checkpoints")
        self.assertNotIn("step 1/", done.err)
        self.assertIn("free", done.err)
        done = self.fails(3, "train", *TINY, "--data", self.corpus(), "--steps", 2000, "--save-every", 1, "--keep", most,
                          "--save", self.path("run"), "--disk", self.folder, "--device-memory", "64MiB",
                          says=f"{most + 1} checkpoints")
        self.assertIn("the working store", done.err)

    def test_held_room_is_asked_of_the_file_system(self):
        def few_blocks():
            resource.setrlimit(resource.RLIMIT_FSIZE, (200 << 20, 200 << 20))
        # Python ignores the signal of a file too large, and the program inherits that.
        self.fails(3, "train", *TINY, "--data", self.corpus(), "--steps", 2, "--save", self.path("run"),
                   says="cannot hold", preexec_fn=few_blocks, restore_signals=False)

    def test_a_refused_run_leaves_no_folder_that_it_made_and_each_that_was_there(self):
        def few_blocks():
            resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, 20 << 20))
        bad = self.write("bad.jsonl", "no object\n")
        os.mkdir(self.path("there"))
        for folder in ("made", "there/made/deep", "there/made//"):
            self.fails(4, "train", *TINY, "--data", bad, "--steps", 1, "--save", self.path(folder), says="bad.jsonl:1:")
            # room is asked for before the text is read
            self.fails(3, "train", *TINY, "--data", bad, "--steps", 1, "--save", self.path(folder), says="cannot hold",
                       preexec_fn=few_blocks, restore_signals=False)
            self.assertFalse(os.path.exists(self.path("made")))
            self.assertEqual(os.listdir(self.path("there")), [])
        self.fails(4, "train", *TINY, "--data", self.write("short.txt", "abc"), "--save", self.path("made"), says="needs 17")
        self.fails(4, "train", *TINY, "--data", bad, "--steps", 1, cwd=self.folder)
        self.assertEqual(sorted(os.listdir(self.folder)), ["bad.jsonl", "short.txt", "there"])
        self.fails(4, "train", *TINY, "--data", bad, "--steps", 1, "--save", self.path("there"))
        self.assertTrue(os.path.isdir(self.path("there")))

    def test_a_run_that_is_stopped_while_it_tokenizes_leaves_nothing(self):
        """A large text; the process stands still when it is signalled, so that it has surely not come further."""
        tokenizer = self.path("tokenizer")
        model_folder.make(tokenizer, "gpt2")
        text = self.write("large.txt", "".join(f"{i * 7919 % 10007} of the many words, and {i}\n" for i in range(200000)))
        os.mkdir(self.path("temporary"))
        before = sorted(os.listdir(self.folder))
        cases = (("train", *TINY, "--data", text, "--tokenizer", tokenizer, "--steps", 1, "--save", self.path("run")),
                 ("train", *TINY, "--data", text, "--tokenizer", tokenizer, "--steps", 1, "--save", "none"),
                 ("eval", tokenizer, "--data", text, "--threads", 1),
                 ("tokenize", text, "--tokenizer", tokenizer, "-o", self.path("out")))
        for case in cases:
            for number in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(command=case[0], save=case[-1], number=number):
                    process = start(*case, env=environment(TMPDIR=self.path("temporary")))
                    partial = None
                    while not partial and process.poll() is None:
                        partial = glob.glob(self.path("**", "*.partial-*"), recursive=True)
                        time.sleep(0.001)
                    process.send_signal(signal.SIGSTOP)
                    self.assertTrue(glob.glob(self.path("**", "*.partial-*"), recursive=True), "not caught tokenizing")
                    process.send_signal(number)
                    process.send_signal(signal.SIGCONT)
                    _, err = process.communicate(timeout=120)
                    self.assertEqual(process.returncode, 1, err)
                    self.assertIn(b": stopped on request while text was tokenized: ", err)
                    self.assertEqual(sorted(os.listdir(self.folder)), before)
                    self.assertEqual(os.listdir(self.path("temporary")), [])

    def test_the_last_save_that_fails_ends_the_run_with_its_reason(self):
        for fault, says in (("16:5", "Input/output error"), ("9:28", "No space left on device")):
            done = self.fails(5, "train", *TINY, "--data", self.corpus(), "--steps", 2, "--save", self.path("run"),
                              env=environment(COH_TEST_FAIL_AT=fault), says=says)
            self.assertNotIn("warning: nothing was saved", done.err)
            self.assertEqual(sorted(os.listdir(self.path("run"))), ["data.tokens", "lock", "plan.json"])

    def test_the_save_of_a_stop_that_fails_ends_the_run_with_its_reason(self):
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 100000, "--save", self.path("run"),
                        env=environment(COH_TEST_FAIL_AT="16:5"))
        for line in process.stderr:
            if line.startswith(b"step 1/"):
                break
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 5, err)
        self.assertNotIn(b"warning: nothing was saved", err)

    def test_a_log_that_is_full_ends_and_the_run_goes_on(self):
        def little():
            resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
        log, flags = self.path("log"), ["--steps", 5, "--save", "none"]
        whole = self.train(*flags)
        tokens = self.path("corpus.tokens")
        self.succeeds("tokenize", self.corpus(), "-o", tokens)
        # Python ignores the signal of a file too large, and the program inherits that.
        done = self.succeeds("train", *TINY, "--data", tokens, *flags, "--log", log, preexec_fn=little,
                             restore_signals=False)
        self.assertEqual(done.err.count("warning: --log ends here"), 1, done.err)
        self.assertEqual(self.says_hash(done), self.says_hash(whole))
        with open(log, encoding="utf-8") as file:
            steps = [json.loads(line)["step"] for line in file]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertLess(len(steps), 5)

    def test_files_that_no_run_wrote_are_not_replaced_in_its_folder(self):
        for name in ("data.tokens", "plan.json"):
            folder = self.path("mine-" + name)
            os.mkdir(folder)
            path = self.write(f"mine-{name}/{name}", "mine\n")
            for _ in range(2):
                self.fails(2, "train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", folder, says=name)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), "mine\n")
            self.assertEqual(os.listdir(folder), [name])
        # a token file in the folder may be what the run reads
        os.mkdir(self.path("own"))
        self.succeeds("tokenize", self.corpus(), "-o", self.path("own", "data.tokens"))
        self.succeeds("train", *TINY, "--data", self.path("own", "data.tokens"), "--steps", 1, "--save",
                      self.path("own"))

    def test_two_runs_never_share_a_folder(self):
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 100000, "--save", self.path("run"))
        for line in process.stderr:
            if line.startswith(b"step "):
                break
        self.fails(2, "train", *TINY, "--data", self.corpus(), "--save", self.path("run"),
                   says=f"in use by process {process.pid}")
        # which has no checkpoint yet, but that is not the reason
        self.fails(2, "train", "--resume", self.path("run"), says=f"in use by process {process.pid}")
        process.kill()
        process.communicate(timeout=120)

    def test_a_folder_with_later_checkpoints_is_not_written_over(self):
        self.train("--steps", 2, "--save", self.path("run"))
        self.fails(2, "train", *TINY, "--data", self.corpus(), "--steps", 2, "--save", self.path("run"),
                   says="--resume")

    def test_a_later_checkpoint_is_set_aside_only_if_it_is_damaged(self):
        self.train("--steps", 2, "--save-every", 1, "--save", self.path("run"))
        first, manifest = self.path("run", "step-1"), self.path("run", "step-2", "manifest.json")
        self.write("run/step-2/manifest.json", '{"format": "cohobate checkpoint", "version": 2}')
        for resumed in (first, self.path("run")):
            self.fails(4, "train", "--resume", resumed, "--steps", 3, "--threads", 2, says="use a newer release")
        self.assertTrue(os.path.exists(manifest))
        os.remove(manifest)
        self.assertIn("step-2.broken", self.resumed(first, "--steps", 2).err)

    def test_the_recipe_of_a_resumed_run_is_the_checkpoints(self):
        self.train("--steps", 2, "--save", self.path("run"))
        for flags in (["--lr", "1"], ["--batch", "4"], ["--seed", "2"], ["--clip", "0"], ["--sequence", "8"]):
            self.fails(2, "train", "--resume", self.path("run"), "--steps", 4, *flags, says=flags[0])
        self.fails(2, "train", "gpt2", "--resume", self.path("run"), "--steps", 4, says="gpt2")
        self.fails(2, "train", "--resume", self.path("run"), says="--steps")
        other = self.write("other.txt", "something else entirely, many times over\n" * 100)
        self.fails(4, "train", "--resume", self.path("run"), "--steps", 3, "--data", other, says="--new-data")
        self.resumed(self.path("run"), "--steps", 3, "--data", self.corpus())
        done = self.resumed(self.path("run"), "--steps", 4, "--data", other, "--new-data")
        self.assertIn("other data", done.err)
        # and the next resume finds the new data by itself
        self.resumed(self.path("run"), "--steps", 5)

    def test_a_moved_run_folder_still_resumes(self):
        self.train("--steps", 1, "--save", self.path("run"))
        shutil.move(self.path("run"), self.path("moved"))
        self.resumed(self.path("moved"), "--steps", 2)
        # its later data has another name, and the first's are still there
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

    def test_a_sweep_order_that_is_chosen_is_said(self):
        small = ["gpt2-nano", "--sequence", "16", "--batch", "8", "--micro-batch", "1", "--device-memory", "12MiB",
                 "--disk", self.folder, "--recompute", "none"]
        done = self.succeeds("plan", *small, "--sweep-order", "auto", "--json")
        self.assertIn("sweep order micro-batch -> layer: other rounding", done.err)
        usual = self.succeeds("plan", *small, "--json")
        self.assertNotIn("sweep order", usual.err)
        self.assertEqual((done.json["sweep_order"], usual.json["sweep_order"]), ("layer", "micro-batch"))
        self.assertLess(done.json["step_seconds"], usual.json["step_seconds"])

    def test_a_budget_changes_the_micro_batch_only_where_it_may_and_says_so(self):
        big = ["gpt2-nano", "--sequence", "128", "--batch", "4", "--threads", "2", "--recompute", "none"]
        need = {n: self.succeeds("plan", *big, "--micro-batch", n, "--json").json["in_memory_bytes"] for n in (4, 2, 1)}
        budget = ["--device-memory", f"{need[2]}B"]
        self.assertLess(need[2], need[4])
        self.fails(3, "plan", *big, *budget, says="--micro-batch 2: other rounding")
        auto = ["--micro-batch", "auto"]
        planned = self.succeeds("plan", *big, *budget, *auto, "--json")
        self.assertIn("micro-batch 4 -> 2: other rounding", planned.err)
        self.assertEqual(planned.json["micro_batch"], 2)
        lowered = self.train("--steps", 2, "--save", self.path("run"), *budget, *auto, model=big)
        # the plan's own micro-batch is taken where none is given
        self.succeeds("plan", *big, *budget, *auto, "-o", self.path("plan.json"))
        planned = self.train("--steps", 2, "--save", "none", *budget, "--plan", self.path("plan.json"), model=big)
        self.assertIn("micro-batch 4 -> 2: that of the plan", planned.err)
        self.assertEqual(self.says_hash(planned), self.says_hash(lowered))
        self.assertIn("micro-batch 4 -> 2: other rounding", lowered.err)
        given = self.train("--steps", 2, "--save", "none", *budget, "--micro-batch", 2, model=big)
        self.assertNotIn("other rounding", given.err)
        self.assertEqual(self.says_hash(lowered), self.says_hash(given))
        # with a disk the default fits, so it stays
        disk = self.succeeds("plan", *big, *budget, "--disk", self.folder, "--json")
        self.assertNotIn("other rounding", disk.err)
        self.assertEqual(disk.json["micro_batch"], 4)
        # what is said to fit does, and a run that goes on keeps what it has
        self.fails(3, "plan", *big, *budget, "--micro-batch", 4, says="--micro-batch 2: other rounding")
        resumed = self.fails(3, "train", "--resume", self.path("run"), "--steps", 3, "--recompute", "none", "--device-memory",
                             f"{need[1]}B", says="--micro-batch 1: other rounding")
        self.assertNotIn("->", resumed.err)

    def test_what_fits_nowhere_is_refused_with_the_smallest_change(self):
        big = ["gpt2-nano", "--sequence", "128", "--batch", "4", "--threads", "2"]
        done = self.fails(3, "plan", *big, "--device-memory", "24MiB", says="the smallest change: --disk DIR")
        none = self.fails(3, "plan", *big, "--micro-batch", "auto", "--device-memory", "24MiB", says="--disk DIR")
        self.assertIn("no micro-batch from 4 down to 1 fits", none.err)
        size = re.search(r"--disk DIR:(\w+), where micro-batch 4 fits", done.err)[1]
        self.succeeds("plan", *big, "--device-memory", "24MiB", "--disk", f"{self.folder}:{size}")
        big += ["--micro-batch", "auto"]
        done = self.fails(3, "plan", *big, "--device-memory", "1MiB", says="also with --disk DIR")
        self.assertEqual(done.err.count("also with --disk DIR"), 1, done.err)
        least = int(re.search(r"raise --device-memory to (?:at least )?(\d+)B", done.err)[1])
        fits = self.succeeds("plan", *big, "--device-memory", f"{least}B", "--disk", self.folder)
        self.assertIn("micro-batch 4 -> 1: other rounding", fits.err)
        self.fails(3, "plan", *big, "--device-memory", f"{least - 4096}B", "--disk", self.folder)

    def test_pins_are_kept_by_the_plan_and_by_the_run(self):
        model = ["gpt2-nano", "--sequence", "64", "--batch", "2", "--threads", "2"]
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
        self.fails(3, "plan", *model, "--disk", self.folder, "--device-memory", "20MiB", "--pin", "blocks.0-5=device",
                   says="pin 'blocks.0-5=device': with it a step needs")
        for text, says in [('{"format": "cohobate pins", "version": 2, "pins": []}', "version 2"),
                           ('{"format": "cohobate pins", "version": 1, "pins": [{"target": "a"}]}', "entry 0"),
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
        self.assertEqual([n for n in os.listdir(self.path("run")) if n.startswith("step")], [])

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
        done = self.fails(3, "train", *TINY, "--data", self.corpus(), "--device-memory", "1MiB", "--save",
                          self.path("run"))
        self.assertNotIn("step 1/", done.err)
        self.fails(3, "plan", *TINY, "--device-memory", "1MiB")

    def test_a_new_run_may_begin_with_the_weights_of_another(self):
        self.train("--steps", 3, "--save", self.path("first"))
        loss = {}
        for name, model in (("fresh", TINY), ("from", [self.path("first"), *TINY[1:]])):
            self.train("--steps", 1, "--save", "none", "--log", self.path(name), model=model)
            with open(self.path(name), encoding="utf-8") as file:
                loss[name] = json.loads(file.readline())["loss"]
        self.assertLess(loss["from"], loss["fresh"])

    def test_validation_loss_is_what_eval_says(self):
        held_out = self.write("held-out.txt", "line 5: the 7th of many\n" * 40)
        done = self.train("--steps", 2, "--save", self.path("run"), "--validation", held_out, "--json")
        measured = self.succeeds("eval", self.path("run"), "--data", held_out, "--json").json
        self.assertAlmostEqual(done.json["validation_loss"], measured["loss"], places=5)
        self.assertAlmostEqual(measured["bits_per_byte"], measured["loss"] / 0.6931471805599453, places=9)

    def test_the_peak_and_the_overhead_are_what_was_said(self):
        done = self.train("--steps", 3, "--save", "none", "--json").json
        self.assertEqual(done["peak_bytes"], done["predicted_peak_bytes"])
        if not SANITIZED:  # a sanitizer's shadow is no part of the program
            self.assertLessEqual(done["overhead_bytes"], 128 << 20)

    def test_every_byte_has_a_holder_and_the_start_says_what_the_arena_got(self):
        flags = ["--steps", 2, "--save", "none", "--device-memory", "64MiB", "--disk", self.folder]
        done = self.train(*flags, "--json")
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
        self.assertNotIn("ledger:", done.err)
        table = self.train(*flags).err.split("ledger: who held what, in bytes\n")[1].strip().split("\n")
        shown = {tuple(line.split()[:2]) for line in table}
        self.assertTrue({("device", "work"), ("device", "state"), ("disk", "working")} <= shown, table)
        self.assertEqual(len(table), 1 + len(rows))

    def test_the_emulated_tier_is_called_emulated(self):
        done = self.train("--steps", 1, "--save", "none", "--emulate-host", "1GiB", "--device-memory", "64MiB")
        self.assertIn("EMULATED", done.err)
        self.assertIn("EMULATED", done.out)

    def test_a_replayed_plan_gives_the_same_run(self):
        budget = ["--device-memory", "64MiB", "--disk", self.folder]
        self.succeeds("plan", *TINY, *budget, "-o", self.path("plan.json"))
        self.succeeds("check", self.path("plan.json"))
        planned = self.train("--steps", 2, "--save", "none", "--json", *budget).json
        replayed = self.train("--steps", 2, "--save", "none", "--json", *budget, "--plan", self.path("plan.json")).json
        self.assertEqual(planned["hash"], replayed["hash"])
        self.assertEqual(planned["program_hash"], replayed["program_hash"])
        self.assertEqual(self.succeeds("inspect", self.path("plan.json"), "--hash").out.strip(),
                         planned["program_hash"])

    def test_a_terminal_gets_one_live_line(self):
        master, slave = os.openpty()
        process = subprocess.Popen([COHOBATE, "train", *TINY, "--data", self.corpus(), "--steps",
                                    "3", "--save", "none"], env=environment(), stdout=subprocess.DEVNULL, stderr=slave)
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
        self.assertIn(b"\rstep 1/3  loss ", shown)
        self.assertIn(b"\rstep 3/3  loss ", shown)


if __name__ == "__main__":
    unittest.main()
