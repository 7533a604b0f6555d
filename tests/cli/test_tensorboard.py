"""train --tensorboard: the events are the lines of --log, in files that follow their formats (event_file.py)."""

import os
import resource
import struct
import time
import unittest

import event_file
from program import NANO, QUICK, TINY, TrainTest, last_save, lines_of, run, start, wait_for_save, wait_for_step


def as_float(number):
    """As the file has it: f32."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


class TensorBoard(TrainTest):
    def board(self):
        return self.path("board")

    def curves(self, events):
        """By tag: the values of each step, as TensorBoard shows them: a start drops the steps from its own on."""
        found = {}
        for file in events:
            self.assertEqual(file[0]["version"], "brain.Event:2")
            self.assertEqual(file[1]["session"], 1)
            for event in file[1:]:
                if "session" in event:
                    found = {tag: {step: value for step, value in steps.items() if step < event["step"]} for tag, steps in found.items()}
                for tag, value in event["scalars"].items():
                    found.setdefault(tag, {})[event["step"]] = value
        return found

    def wanted(self, log):
        """The same from --log: of lines of one step the last one counts. A resumed run that goes back to a step does not
        repeat a validation after it unless it saves there, too."""
        found, validations, last = {}, {}, 0
        for line in lines_of(log):
            if "validation_loss" in line:
                validations[line["step"]] = as_float(line["validation_loss"])
                found["validation/loss"] = validations
                continue
            if line["step"] <= last:
                for step in [step for step in validations if step >= line["step"]]:
                    del validations[step]
            last = line["step"]
            for tag, value in (("loss", line["loss"]), ("gradient_norm", line["grad_norm"]), ("learning_rate", line["lr"])):
                found.setdefault("train/" + tag, {})[line["step"]] = as_float(value)
        return found

    def held(self):
        return self.write("held.txt", "a line of a held-out text\n" * 10)

    def check(self, log):
        curves = self.curves(event_file.read(self.board()))
        speed = curves.pop("train/tokens_per_second")
        self.assertEqual(curves, self.wanted(log))
        for line in lines_of(log):
            if "loss" in line and line["seconds"] > 0:
                self.assertAlmostEqual(speed[line["step"]] * line["seconds"] / line["tokens"], 1, delta=1e-2)

    def test_events_are_the_lines_of_the_log_and_a_resumed_run_drops_what_it_repeats(self):
        folder, log, begin = self.path("run"), self.path("run", "steps.jsonl"), time.time()
        process = start("train", *NANO, "--data", self.corpus(), "--validation", self.held(), "--steps", 100000, "--save-every", 4,
                        "--save", folder, "--tensorboard", self.board())
        wait_for_save(process, folder)
        wait_for_step(process, folder, last_save(folder) + 2)  # repeated after the resume, if not yet saved
        process.kill()
        process.communicate()
        self.assertEqual(len(os.listdir(self.board())), 1)
        last = max(line["step"] for line in lines_of(log) if "loss" in line) + 6  # it may be long past step 6
        self.resumed(folder, "--steps", last, "--tensorboard", self.board())
        files = event_file.read(self.board())
        self.assertEqual(len(files), 2)
        kept = {line["step"]: line for line in lines_of(log) if "loss" in line}  # the last line of a step
        curves = self.curves(files)
        self.assertEqual(curves["train/loss"], {step: as_float(line["loss"]) for step, line in kept.items()})
        self.assertEqual(sorted(curves["train/loss"]), list(range(1, last + 1)))
        self.assertEqual(curves["validation/loss"], self.wanted(log)["validation/loss"])
        times = [event["wall_time"] for file in files for event in file]
        self.assertEqual(times, sorted(times))
        self.assertTrue(begin <= times[0] and times[-1] <= time.time())

    def test_each_step_and_validation_is_an_event(self):
        log = self.path("log")
        self.train("--steps", 7, "--save", "none", "--log", log, "--validation", self.held(), "--validation-every", 3,
                   "--tensorboard", self.board())
        self.check(log)

    def test_runs_of_one_folder_have_files_in_the_order_of_their_begin(self):
        os.mkdir(self.board())
        self.write("board/events.out.tfevents.9999999990.host.1.0", "")
        for steps in (1, 2):
            self.train("--steps", steps, "--save", "none", "--tensorboard", self.board())
        files = event_file.read(self.board())
        self.assertEqual([len(file) for file in files], [0, 3, 4])

    def test_a_folder_that_cannot_be_written_is_refused_before_the_run(self):
        for folder, code in (("/proc", 5), ("/proc/nothing", 5), (self.corpus(), 4), (self.path("a", "b"), 2)):
            self.fails(code, "train", *TINY, "--data", self.corpus(), "--save", self.path("run"), "--tensorboard", folder,
                       says="--tensorboard")
            self.assertFalse(os.path.exists(self.path("run")))

    def test_a_run_that_is_refused_leaves_no_events(self):
        self.fails(3, "train", *NANO, "--data", self.corpus(), "--device-memory", "1MiB", "--tensorboard", self.board())
        self.fails(2, "train", *NANO, "--data", self.path("nothing"), "--tensorboard", self.board())
        run("train", "gpt2-nano", *QUICK, "--data", self.corpus(), "--save", self.path("run"), "--log", "/proc/log",
            "--tensorboard", self.board())
        self.assertFalse(os.path.exists(self.board()))

    def test_a_drive_that_is_full_ends_the_events_and_not_the_run(self):
        def little():
            resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
        flags = ["--steps", 6, "--save", "none"]
        whole = self.train(*flags)
        tokens = self.path("corpus.tokens")
        self.succeeds("tokenize", self.corpus(), "-o", tokens)
        # Python ignores the signal for files that are too large, and the program inherits that.
        done = self.succeeds("train", *TINY, "--data", tokens, *flags, "--tensorboard", self.board(), preexec_fn=little,
                             restore_signals=False)
        self.assertEqual(done.err.count("warning: --tensorboard ends here: File too large"), 1, done.err)
        self.assertEqual(self.says_hash(done), self.says_hash(whole))
        (events,) = event_file.read(self.board())  # whole records
        self.assertEqual([event["step"] for event in events[2:]], list(range(1, len(events) - 1)))
        self.assertTrue(2 < len(events) < 8)


if __name__ == "__main__":
    unittest.main()
