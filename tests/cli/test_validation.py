"""A text has the same loss in `train` and in `eval`; over which windows it is; and its consequences: the best
checkpoint, and early stopping."""

import fcntl
import json
import math
import os
import re
import resource
import shutil
import signal
import struct
import termios
import threading
import unittest

import model_folder
from program import FAULTY, NANO, SHORT, TINY, TrainTest, environment, last_of_each, lines_of, run, start, wait_for_step

HEADER = 128


def on_terminal(*command, columns=100):
    """Runs the program with a terminal as standard error only. Returns exit code, standard output and what the terminal
    was sent."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = start(*command, stderr=slave)
    os.close(slave)
    sent = []

    def read():
        try:
            while piece := os.read(master, 65536):
                sent.append(piece)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    out = process.stdout.read().decode()
    code = process.wait()
    reader.join()
    os.close(master)
    return code, out, b"".join(sent).decode()


class Windows(TrainTest):
    def held(self, tokens):
        return self.write("held.txt", "".join(f"line {i}: the {i * 7 % 11}th\n" for i in range(tokens))[:tokens])

    def measure(self, what, text, *flags):
        return self.succeeds("eval", what, "--data", text, "--json", "--threads", 2, *flags).json

    def test_a_perplexity_of_many_digits_is_short(self):
        for rate, least in ((5, 21), (50, 710)):  # of one step, after which all instruction sets agree within 1 %
            run = self.path(f"run-{rate}")
            flags = ["--data", self.corpus(), "--warmup", 0, "--steps", 1]
            self.succeeds("train", *TINY, *flags, "--lr", rate, "--save", run)
            said = self.succeeds("eval", run, "--data", self.held(64)).out
            loss, perplexity = re.match(r"loss (\S+) nats, perplexity (above 1e308|\d\.\d{4}e\+\d+),", said).groups()
            self.assertGreater(float(loss), least)
            self.assertEqual(perplexity, f"{math.exp(float(loss)):.4e}" if rate == 5 else "above 1e308")

    def test_equal_weights_have_one_loss_under_every_seed_and_budget_by_train_and_eval(self):
        windows = 19 if SHORT else 75
        run, held = self.path("run"), self.held(16 * windows)  # the last window is short
        flags = ["--data", self.corpus(), "--validation", held]
        self.succeeds("train", *NANO, *flags, "--steps", 2, "--save", run, "--dropout", 0.1)
        losses = set()
        streamed = ["--device-memory", "40MiB", "--disk", self.folder]
        for more in (["--seed", 1], ["--seed", 2], ["--seed", 3, *streamed]):
            log = self.path(f"log-{more[1]}")
            done = self.succeeds("train", run, *NANO[1:], *flags, "--steps", 1, "--lr", 0, "--dropout", 0.1, "--save",
                                 "none", "--json", "--log", log, *more)
            self.assertIn(f"over {windows} of {windows} windows", done.err)
            self.assertEqual([done.json[k] for k in ("validation_windows", "validation_windows_total")], [windows, windows])
            with open(log, encoding="utf-8") as file:
                row = json.loads(file.read().splitlines()[-1])
            self.assertEqual([row[k] for k in ("step", "validation_loss", "windows", "windows_total")],
                             [1, done.json["validation_loss"], windows, windows])
            losses.add(done.json["validation_loss"])
        for more in ([], ["--device-memory", "24MiB", "--disk", self.folder]):
            told = self.measure(run, held, *more)
            self.assertEqual([told[k] for k in ("tokens", "windows", "sequence", "stride", "micro_batch", "step")],
                             [16 * windows - 1, windows, 16, 16, 2, 2])
            self.assertAlmostEqual(told["bits_per_byte"], told["loss"] / math.log(2), places=9)
            losses.add(told["loss"])
        self.assertEqual(len(losses), 1, losses)
        print(f"validation loss {losses.pop()!r} of {16 * windows - 1} tokens in {windows} windows", flush=True)

    def test_every_token_but_the_first_is_scored_once(self):
        run = self.path("run")
        self.train("--steps", 1, "--save", run)
        for tokens, stride in ((2, 16), (17, 16), (18, 16), (60, 5)):
            windows = 1 if tokens <= 17 else 1 + -(-(tokens - 17) // stride)
            told = self.measure(run, self.held(tokens), "--stride", stride)
            self.assertEqual([told["tokens"], told["windows"]], [tokens - 1, windows])
        self.fails(4, "eval", run, "--data", self.held(1), says="holds 1 token, and a loss needs 2")
        self.fails(2, "eval", run, "--data", self.held(60), "--stride", 17, says="--stride 17 is above the 16 tokens")
        self.fails(2, "eval", run, "--data", self.held(60), "--stride", 4, "--documents", "aligned",
                   says="--stride 4 is for packed text")

    def test_validations_between_saves_take_the_windows_that_are_asked_for(self):
        log = self.path("log")
        self.train("--steps", 5, "--save", self.path("run"), "--save-every", 4, "--validation", self.held(170), "--log",
                   log, "--validation-every", 2, "--validation-windows", 3)
        with open(log, encoding="utf-8") as file:
            rows = [row for row in map(json.loads, file) if "validation_loss" in row]
        self.assertEqual([[row["step"], row["windows"], row["windows_total"]] for row in rows],
                         [[2, 3, 11], [4, 11, 11], [5, 11, 11]])

    # ---- logits ----

    def logits(self, *arguments):
        """The rows of the file, by an independent reader, and the result."""
        path = self.path("logits.npy")
        told = self.measure(*arguments, "--logits", path)
        with open(path, "rb") as file:
            data = file.read()
        self.assertEqual(data[:10], b"\x93NUMPY\x01\x00" + struct.pack("<H", HEADER - 10))
        rows, columns = map(int, re.fullmatch(
            r"\{'descr': '<f4', 'fortran_order': False, 'shape': \((\d+), (\d+)\), \} *\n", data[10:HEADER].decode()).groups())
        self.assertEqual(rows, told["tokens"])
        self.assertEqual(len(data), HEADER + 4 * columns * rows)
        return [struct.unpack_from(f"<{columns}f", data, HEADER + 4 * columns * row) for row in range(rows)], told

    @staticmethod
    def surprise(row, target):
        most = max(row)
        return most + math.log(math.fsum(math.exp(x - most) for x in row)) - row[target]

    def test_a_sliding_window_scores_its_last_tokens_and_logits_say_so(self):
        run, text = self.path("run"), b"line 12: the 5th of many"
        self.train("--steps", 3, "--save", run, "--dtype", "f32")
        # windows of 8 tokens, 3 apart: [0, 8), [3, 11), ... score after 0-7, 8-10, ...; each alone is a text
        expected = []
        for begin in range(0, len(text) - 9 + 3, 3):
            part = text[begin:begin + 9]
            rows, _ = self.logits(run, self.write("part.txt", part), "--sequence", 8)
            scored = [self.surprise(row, target) for row, target in zip(rows, part[1:])]
            expected += scored if begin == 0 else scored[8 - 3:]
        self.assertEqual(len(expected), len(text) - 1)
        whole = self.write("whole.txt", text)
        rows, told = self.logits(run, whole, "--sequence", 8, "--stride", 3)
        for row, target, value in zip(rows, text[1:], expected):
            self.assertAlmostEqual(self.surprise(row, target), value, places=5)
        self.assertAlmostEqual(told["loss"], math.fsum(expected) / len(expected), places=5)
        # writing logits changes no digit of the loss
        self.assertEqual(self.measure(run, whole, "--sequence", 8, "--stride", 3)["loss"], told["loss"])

    def test_a_logits_file_is_whole_or_not_there(self):
        folder, text = self.path("model"), self.corpus(20)
        model_folder.make(folder, "gpt2")
        measure = ["eval", folder, "--data", text, "--logits"]

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))

        said = self.fails(5, *measure, self.path("l.npy"), says=f"--logits {self.path('l.npy')} cannot be written: File too large",
                          preexec_fn=small_files, env=environment(TMPDIR=self.folder)).err
        self.assertTrue(said.endswith("; raise the limit of file sizes (ulimit -f)\n"), said)
        self.assertFalse([name for name in os.listdir(self.folder) if "l.npy" in name])
        self.fails(2, *measure, self.path("gone", "l.npy"), says="is not there")
        # a temporary file that another process holds is left to it; one that nobody holds goes
        for is_held in (True, False):
            with open(self.path("l.npy.partial"), "ab") as file:
                if is_held:
                    fcntl.flock(file, fcntl.LOCK_EX)
                self.succeeds(*measure, self.path("l.npy"))
                self.assertEqual(os.path.exists(self.path("l.npy.partial")), is_held)
                self.assertEqual(os.fstat(file.fileno()).st_size, 0)
        self.fails(2, *measure, text, says="the same file as the input")
        self.fails(2, *measure, self.write("mine.txt", "mine"), says="is no .npy file")

    # ---- the micro-batch ----

    def test_a_terminal_shows_how_many_windows_are_scored_and_nothing_else_does(self):
        folder, text = self.path("run"), self.held(64)
        train = ["train", *TINY, "--data", self.corpus(), "--steps", 1, "--validation", text]
        self.succeeds(*train, "--save", folder)
        measure = ["eval", folder, "--data", text, "--micro-batch", 1, "--threads", 2, "--json"]
        usual = self.succeeds(*measure)
        self.assertNotIn("window 1/", usual.err)
        for columns in (100, 24):
            code, out, sent = on_terminal(*measure, columns=columns)
            self.assertEqual((code, json.loads(out)["loss"]), (0, usual.json["loss"]))
            windows = usual.json["windows"]
            self.assertGreater(windows, 1)
            lines = re.findall(r"\r(eval, window [^\r\n]*?)\x1b\[K", sent)
            self.assertTrue(lines[0].startswith(f"eval, window 1/{windows}"), sent)
            self.assertEqual(" loss " in lines[0], columns == 100)
            self.assertLess(max(map(len, lines)), columns)
            self.assertTrue(sent.endswith("\r\x1b[K"), repr(sent[-80:]))
        code, _, sent = on_terminal(*train, "--micro-batch", 1, "--save", "none")
        self.assertEqual(code, 0)
        self.assertRegex(sent, rf"\n\rvalidation, window 1/{windows}  loss ")
        self.assertRegex(sent, rf"\r\x1b\[Kstep 1  validation loss [\d.]+ over {windows} of {windows} windows")

    def test_a_terminal_shows_what_takes_its_time_until_it_is_done(self):
        run, text, tokens = self.path("run"), self.corpus(), self.path("tokens")
        self.succeeds("train", *TINY, "--data", text, "--steps", 1, "--save", run)
        for arguments, what in ((["tokenize", text, "-o", tokens], f"tokenizing {text}"), (["check", run], f"reading {run}"),
                                (["inspect", run, "--hash"], f"reading {run}"),
                                (["export", run, "-o", self.path("out")], f"writing {self.path('out')}"),
                                (["eval", run, "--data", text, "--json"], f"tokenizing {text}")):
            with self.subTest(arguments=arguments):
                code, _, sent = on_terminal(*arguments)
                self.assertEqual(code, 0)
                self.assertIn(what, sent)
                self.assertIn("\r\x1b[K", sent[sent.index(what):])
                shutil.rmtree(self.path("out"), ignore_errors=True)
                self.assertNotIn(what.split()[0], self.succeeds(*arguments).err)
        code, _, sent = on_terminal("check", run, columns=12)
        self.assertTrue(sent.startswith(f"reading {run}"[:11] + "\r\x1b[K"), repr(sent))

    def test_the_micro_batch_of_eval_follows_the_flag_and_never_the_budget(self):
        run, text = self.path("run"), self.corpus(lines=30 if SHORT else 100)
        self.succeeds("train", "gpt2-nano", "--sequence", 64, "--batch", 8, "--threads", 2, "--data", text, "--steps", 1,
                      "--save", run, "--dtype", "f32")
        whole = self.measure(run, text)
        self.assertEqual(whole["micro_batch"], 8)
        tight = ["--device-memory", "45MiB"]
        refused = self.fails(3, "eval", run, "--data", text, *tight, "--json", says="; give --micro-batch ")
        fits = int(re.search(r"--micro-batch (\d+): other rounding", refused.err)[1])
        self.assertIn(fits, (1, 2, 4))
        first = refused.json["changes"][0]
        self.assertEqual((first["change"], first["micro_batch"], refused.json["micro_batch"]), ("lower-micro-batch", fits, 8))
        smaller = self.measure(run, text, *tight, "--micro-batch", fits)
        self.assertEqual([smaller["micro_batch"], smaller["loss"]],
                         [fits, self.measure(run, text, "--micro-batch", fits)["loss"]])
        self.assertAlmostEqual(smaller["loss"], whole["loss"], places=5)
        chosen = self.succeeds("eval", run, "--data", text, "--json", *tight, "--micro-batch", "auto")
        self.assertIn(f"micro-batch 8 -> {fits}: other rounding", chosen.err)
        self.assertEqual(chosen.json["loss"], smaller["loss"])
        none = self.fails(3, "eval", run, "--data", text, "--device-memory", "1MiB", "--json", says="from 8 down to 1")
        self.assertEqual((none.json["micro_batch"], none.json["largest_micro_batch"]), (1, 8))
        self.assertEqual({change["micro_batch"] for change in none.json["changes"]}, {1})
        self.assertRegex(none.err, r"raise --device-memory to (at least )?\S+, where micro-batch 1 fits")
        one = self.fails(3, "eval", run, "--data", text, "--device-memory", "1MiB", "--micro-batch", 1, "--json")
        self.assertEqual((one.json["micro_batch"], [c["change"] for c in one.json["changes"] if "micro" in c["change"]]), (1, []))

    def test_folders_of_every_family_are_measured_with_their_own_positions_and_give_their_logits(self):
        text = self.corpus(4)
        for kind in model_folder.KINDS:  # one of them with a separate head
            folder, tokens = self.path(kind), self.path(f"{kind}.tokens")
            model_folder.make(folder, kind)
            self.succeeds("tokenize", text, "--tokenizer", folder, "-o", tokens)
            with open(tokens, "rb") as file:
                data = file.read()[64:]
            ids = struct.unpack(f"<{len(data) // 2}H", data)
            rows, told = self.logits(folder, text, "--dtype", "f32")
            self.assertEqual([told[k] for k in ("sequence", "stride", "micro_batch")], [64, 64, 8])
            self.assertEqual(len(rows), len(ids) - 1)
            loss = math.fsum(self.surprise(row, target) for row, target in zip(rows, ids[1:])) / len(rows)
            self.assertAlmostEqual(told["loss"], loss, places=5)
        self.assertEqual(self.measure(self.path("gpt2"), text, "--micro-batch", 3)["micro_batch"], 3)


class Best(TrainTest):
    """Trained on one letter, a model finds another ever less likely: the first saved checkpoint is the best."""

    def setUp(self):
        super().setUp()
        self.flags = ["--data", self.write("a.txt", "a" * 400), "--validation", self.write("z.txt", "z" * 40),
                      "--save", self.path("run"), "--save-every", 1, "--lr", "1e-3", "--warmup", 0,
                      "--schedule-steps", 9, "--threads", 2]

    def begin(self, steps, *more):
        return self.succeeds("train", *TINY, *self.flags, "--keep", 1, "--steps", steps, "--json", *more)

    def resume(self, steps, *more):
        return self.succeeds("train", "--resume", self.path("run"), "--save-every", 1, "--keep", 1, "--steps", steps,
                             "--threads", 2, "--json", *more)

    def kept(self):
        names = os.listdir(self.path("run"))
        best = os.readlink(self.path("run", "best")) if "best" in names else None
        return sorted(name for name in names if name.startswith("step-")), best

    def test_the_best_checkpoint_is_kept_through_resumes_and_named(self):
        done = self.begin(3, "--keep-best").json
        self.assertEqual(self.kept(), (["step-1", "step-3"], "step-1"))
        self.assertEqual(done["best_step"], 1)
        measure = ["--data", self.path("z.txt"), "--json"]
        best = self.succeeds("eval", self.path("run", "best"), *measure).json
        self.assertEqual([best["step"], best["loss"]], [1, done["best_validation_loss"]])
        self.assertGreater(self.succeeds("eval", self.path("run"), *measure).json["loss"], best["loss"])
        # an existing link is kept up without the flag; one lost in a kill is restored with it
        self.assertEqual(self.resume(4).json["best_step"], 1)
        self.assertEqual(self.kept(), (["step-1", "step-4"], "step-1"))
        os.remove(self.path("run", "best"))
        self.resume(5, "--keep-best")
        self.assertEqual(self.kept(), (["step-1", "step-5"], "step-1"))
        # losses of different texts are not compared: the first checkpoint on a new text is its best
        self.resume(7, "--validation", self.write("y.txt", "y" * 40))
        self.assertEqual(self.kept(), (["step-6", "step-7"], "step-6"))

    def test_the_best_outlives_steps_that_are_not_validated(self):
        self.begin(2, "--keep-best")
        self.resume(3, "--validation", "none")
        done = self.resume(9, "--validation", self.path("z.txt"), "--stop-after-worse", 2).json
        self.assertEqual([done[k] for k in ("step", "ended_early", "best_step")], [5, True, 1])
        note = self.succeeds("inspect", self.path("run"), "--json").json["note"]
        self.assertEqual(note["validated"]["best"], done["best_validation_loss"])

    def test_the_checkpoint_that_the_link_names_stays_where_the_link_cannot_be_moved(self):
        self.flags[3] = self.flags[1]  # each step is better than the last
        self.begin(1, "--keep-best")
        os.mkdir(self.path("run", "best.partial"))
        done = self.resume(3)
        self.assertIn("cannot make the link", done.err)
        self.assertEqual(self.kept(), (["step-1", "step-3"], "step-1"))

    def test_a_run_goes_on_where_all_windows_give_a_better_loss_than_some(self):
        # some windows get worse, the total gets better: the first is of "z", the others are of "a"
        self.flags[3] = self.write("za.txt", "z" * 17 + "a" * 160)
        self.flags[self.flags.index("--save-every") + 1] = 2
        done = self.begin(5, "--stop-after-worse", 1, "--validation-every", 1, "--validation-windows", 1, "--keep-best")
        self.assertEqual([done.json[k] for k in ("step", "ended_early")], [5, False])

    def test_a_better_checkpoint_takes_the_place_of_the_best(self):
        self.flags[3] = self.flags[1]
        self.begin(3, "--keep-best")
        self.assertEqual(self.kept(), (["step-3"], "step-3"))

    def test_a_validation_between_saves_that_is_the_best_so_far_is_saved(self):
        done = self.begin(5, "--keep-best", "--save-every", 4, "--validation-every", 1).json
        self.assertEqual((self.kept(), done["best_step"]), ((["step-1", "step-5"], "step-1"), 1))
        # it needs no other saves, and each better one is saved
        self.flags[3] = self.flags[1]
        self.flags[self.flags.index("--save") + 1] = self.path("other")
        done = self.begin(5, "--keep-best", "--save-every", 0, "--validation-every", 2, "--keep", 9)
        self.assertIn("and at each validation loss below the lowest so far (--keep-best)", done.err)
        self.assertEqual(sorted(name for name in os.listdir(self.path("other")) if name.startswith("step-")),
                         ["step-2", "step-4", "step-5"])
        # a resumed run compares with the checkpoints that are there
        self.resume(7, "--save-every", 0, "--validation-every", 1)
        self.assertEqual(self.kept(), (["step-1", "step-7"], "step-1"))

    def test_a_lower_loss_over_some_windows_saves_only_if_it_is_lower_over_all(self):
        # the loss of the first window, of "a", falls at each step, and that of all rises
        self.flags[3] = self.write("az.txt", "a" * 17 + "z" * 160)
        done = self.begin(4, "--keep-best", "--save-every", 0, "--validation-every", 1, "--validation-windows", 1, "--keep", 9,
                          "--stop-after-worse", 1)
        self.assertEqual(self.kept(), (["step-1", "step-4"], "step-1"))
        self.assertEqual([done.json[k] for k in ("step", "ended_early")], [4, False])
        self.assertIn("over 1 of 11 windows", done.err)

    def test_a_run_ends_after_so_many_validations_without_a_better_one(self):
        done = self.begin(9, "--stop-after-worse", 2)
        self.assertEqual([done.json[k] for k in ("step", "ended_early", "stopped")], [3, True, False])
        self.assertEqual(self.kept(), (["step-3"], None))
        self.assertEqual(self.hash_of(self.path("run")), done.json["hash"])
        # the state of early stopping is in the checkpoint: a resumed run ends where the uninterrupted one does
        self.flags[self.flags.index("--save") + 1] = self.path("other")
        self.begin(2, "--stop-after-worse", 2)
        other = self.succeeds("train", "--resume", self.path("other"), "--steps", 9, "--save-every", 1, "--threads", 2,
                              "--stop-after-worse", 2)
        self.assertIn("ended:  2 validations in a row without a lower loss", other.out)
        self.assertEqual(self.says_hash(other), done.json["hash"])
        # between saves, over some of the windows: still saved, and validated in full
        log = self.path("log")
        done = self.begin(9, "--stop-after-worse", 1, "--save-every", 0, "--validation-every", 1, "--validation-windows",
                          1, "--save", self.path("third"), "--log", log).json
        self.assertEqual([done["step"], done["ended_early"], done["validation_windows"]], [2, True, 3])
        self.assertEqual(self.succeeds("inspect", self.path("third"), "--json").json["step"], 2)

    # ---- the rest of a run that was ended ----

    def how_it_ended(self, folder):
        with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
            return json.load(file).get("ended", {}).get("how")

    def content(self, folder):
        """What a run leaves: its checkpoints, the best of them, all their losses, and how it ended."""
        steps = sorted(name for name in os.listdir(folder) if name.startswith("step-"))
        notes = [self.succeeds("inspect", os.path.join(folder, name), "--json").json["note"] for name in steps]
        best = os.path.join(folder, "best")
        return (steps, os.readlink(best) if os.path.islink(best) else None, [note["validated"] for note in notes],
                self.hash_of(folder), self.how_it_ended(folder))

    def validations(self, folder):
        return [(row["step"], row["validation_loss"], row["windows"]) for row in lines_of(os.path.join(folder, "steps.jsonl"))
                if "validation_loss" in row]

    def test_a_resume_finishes_what_a_kill_after_the_last_save_left(self):
        def begin(folder, **told):
            return run(*self.command, "--steps", 4, "--keep-best", "--keep", 2, "--save", folder, program=FAULTY, env=environment(**told))
        self.command = ["train", "--data", self.flags[1], "--validation", self.flags[3], "--save-every", 1, *TINY]
        self.assertEqual(begin(self.path("whole")).code, 0)
        expected, most, least = self.content(self.path("whole")), 2048, 0
        while most - least > 1:  # the operations of the run's saves and removals
            middle, folder = (least + most) // 2, self.path("killed")
            shutil.rmtree(folder, ignore_errors=True)
            least, most = (middle, most) if begin(folder, COH_TEST_EXIT_AT=str(middle)).code == 86 else (least, middle)
        left = set()
        for last in range(least, least - 12, -1):
            folder = self.path(f"killed-{last}")
            if begin(folder, COH_TEST_EXIT_AT=str(last)).code != 86:
                continue  # saves and steps share no order, so that another one may be the last
            left.add("step-4" in os.listdir(folder))
            self.assertIsNone(self.how_it_ended(folder))
            done = self.succeeds("train", "--resume", folder, "--keep-best", "--threads", 2)
            self.assertEqual(self.says_hash(done), expected[3])
            self.assertEqual(self.content(folder), expected)
        self.assertIn(True, left)
        # a loop that resumes until that succeeds may begin once more; nothing is written then
        with open(self.path("whole", "run.json"), "rb") as file:
            before = file.read()
        again = self.succeeds("train", "--resume", self.path("whole"), "--json")
        self.assertEqual([again.json[k] for k in ("step", "hash", "stopped", "best_step")], [4, expected[3], False, int(expected[1][5:])])
        self.assertIn("nothing is left to train; --steps 5 or more goes on", again.err)
        self.assertEqual(self.content(self.path("whole")), expected)
        with open(self.path("whole", "run.json"), "rb") as file:
            self.assertEqual(file.read(), before)
        for other in (["--lr", "1e-3"], ["--data", self.flags[1]], ["--save", self.path("other")], ["--reset-optimizer"]):
            self.fails(2, "train", "--resume", self.path("whole"), *other, says="give --steps 5 or more")

    def test_a_validation_that_a_stop_left_out_is_the_first_thing_that_a_resumed_run_does(self):
        flags = ["--validation-every", 1, "--keep-best", "--save-every", 1000, "--steps", 400, "--stop-after-worse", 30, "--keep", 1]
        whole = self.begin(400, *flags).json
        self.assertTrue(whole["ended_early"])
        expected, losses = self.content(self.path("run")), self.validations(self.path("run"))
        run_flags = [self.path("cut") if value == self.path("run") else value for value in last_of_each([*self.flags, *flags])]
        process = start("train", *TINY, *run_flags)
        stops = last = 0
        while True:  # stopped at steps that chance chooses: before the validation or in it
            wait_for_step(process, self.path("cut"), last + 1)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=120)
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, 75, err)
            stops += 1
            last = max(row["step"] for row in lines_of(self.path("cut", "steps.jsonl")))
            process = start("train", "--resume", self.path("cut"), "--keep-best", "--threads", 2)
        self.assertGreater(stops, 0)
        self.assertEqual(self.validations(self.path("cut")), losses)
        self.assertEqual(self.content(self.path("cut")), expected)

    def test_a_run_that_is_stopped_in_its_last_validation_is_stopped_and_not_finished(self):
        data = ["--data", self.flags[1], "--steps", 1, "--keep-best", "--save-every", 1]
        for longer in range(8):  # until the signal comes before the validation is over
            text = self.write("long.txt", "so many words as take a while, " * (2000 << longer))
            folder = self.path(f"stopped-{longer}")
            process = start("train", *TINY, *data, "--validation", text, "--save", folder)
            wait_for_step(process, folder, 1)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=120)
            if process.returncode != 0:
                break
        self.assertEqual(process.returncode, 75, err)
        self.assertIn(b"step 1  no validation loss: stopped on request; the resumed run takes it first", err)
        self.assertIn(b"stopped after step 1 of 1; go on with: cohobate train --resume", err)
        self.assertEqual(self.validations(folder), [])
        self.assertEqual((self.how_it_ended(folder), os.path.lexists(os.path.join(folder, "best"))), ("stopped", False))
        whole = self.path("whole")
        self.succeeds("train", *TINY, *data, "--validation", text, "--save", whole)
        done = self.succeeds("train", "--resume", folder, "--keep-best", "--threads", 2)
        self.assertIn("done:   step 1 of 1, validation loss ", done.out)
        self.assertEqual(self.content(folder), self.content(whole))
        self.assertEqual(self.validations(folder), self.validations(whole))

    def test_a_run_that_ended_early_does_not_go_on_by_itself(self):
        self.begin(9, "--stop-after-worse", 2)
        before = self.content(self.path("run"))
        again = self.succeeds("train", "--resume", self.path("run"), "--stop-after-worse", 2)
        self.assertIn("ended:  2 validations in a row without a lower loss", again.out)
        self.assertIn("nothing is left to train; a larger one goes on", again.err)
        self.assertEqual(self.content(self.path("run")), before)
        self.fails(2, "train", "--resume", self.path("run"), "--steps", 12, says="give a larger one to go on")
        self.assertEqual(self.resume(9, "--stop-after-worse", 4).json["step"], 5)

    def test_flags_of_validation_are_refused_where_they_have_no_effect(self):
        train = ["train", *TINY, "--data", self.corpus(), "--save", self.path("none")]
        for flag, more in (("--keep-best", []), ("--stop-after-worse", [2]), ("--validation-every", [5]),
                           ("--validation-windows", [4])):
            for without in ([], ["--validation", "none"]):
                self.fails(2, *train, *without, flag, *more, says=f"{flag} needs a validation loss")
        validates = [*train, "--validation", self.corpus()]
        self.fails(2, *validates, "--validation-windows", 4, says="add it, or leave this out")
        self.fails(2, *validates, "--stop-after-worse", 1, says="--validation-every N or --save-every N")
        self.fails(2, *validates, "--keep-best", says="there is only one, at the end: add --validation-every N or --save-every N")
        self.fails(2, *train[:-1], "none", "--validation", self.corpus(), "--keep-best", says="--save none keeps nothing")
        self.assertFalse(os.path.exists(self.path("none")))
        self.train("--steps", 1, "--save", self.path("run"))
        self.fails(2, "train", "--resume", self.path("run"), "--steps", 2, "--keep-best", says="no text to validate with")


if __name__ == "__main__":
    unittest.main()
