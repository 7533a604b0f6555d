"""cohobate watch: the screen of a run, on a terminal and in a pipe, while the run trains and when it ends."""

import fcntl
import json
import os
import re
import shlex
import signal
import termios
import time
import unittest

from program import COHOBATE, NANO, TrainTest, environment, lines_of, run, start, wait_for_step
from screen import Terminal

UTF8 = {"LC_ALL": "C.UTF-8"}


class Watch(TrainTest):
    """Most tests need no training: a folder's files are written by hand, and a run is somebody who holds its lock."""

    def setUp(self):
        super().setUp()
        self.run_folder = self.path("run")
        os.mkdir(self.run_folder)
        self.facts = {"version": 1, "model": "gpt2-nano", "started": "2026-01-02T03:04:05Z", "dtype": "f32", "optimizer": "adamw",
                      "machine": {"cpu": "a processor"}, "first_step": 0, "steps": 40, "batch": 8, "sequence": 256,
                      "parameters": 11139456, "predicted_step_s": 0.5, "endurance_bytes": 1e12,
                      "budget_bytes": {"device": 100 << 20, "host": 0, "disk": None}}
        self.lock = self.write("run/lock", f"{os.getpid()}\n")

    def put(self, **changes):
        os.rename(self.write("run/fresh", json.dumps({**self.facts, **changes}) + "\n"), self.path("run", "run.json"))

    def line(self, step, **more):
        return json.dumps({"step": step, "loss": 5 - 0.1 * step, "grad_norm": 1.5, "lr": 6e-4, "tokens": 2048, "seconds": 0.5,
                           "exposed_seconds": {"read": 0.1, "h2d": 0.025}, "link_bytes": {"read": 3 << 20, "write": 2 << 20},
                           "peak_bytes": {"device": 90 << 20, "host": 0, "disk": 1 << 30}, **more}) + "\n"

    def add(self, *lines):
        with open(self.path("run", "steps.jsonl"), "a", encoding="utf-8") as file:
            file.write("".join(lines))

    def hold(self):
        file = open(self.lock, encoding="utf-8")  # pylint: disable=consider-using-with
        fcntl.flock(file, fcntl.LOCK_EX)
        self.addCleanup(file.close)
        return file

    def once(self, *more, **names):
        done = self.succeeds("watch", self.run_folder, "--once", *more, env=environment(**{**UTF8, **names}))
        lines = done.out.split("\n")[:-1]
        self.assertLessEqual(max(map(len, lines[:-1])), 80, done.out)  # the sentence may be longer
        self.assertLessEqual(len(lines), 24, done.out)
        self.assertNotIn("\033", done.out)
        return lines

    def row(self, lines, label):
        found = [line[12:].strip() for line in lines if line.startswith(label)]
        self.assertEqual(len(found), 1, lines)
        return found[0]

    def terminal(self, *more, **names):
        terminal = Terminal(COHOBATE, "watch", self.run_folder, *more, **names)
        self.addCleanup(terminal.close)
        return terminal

    def test_the_numbers_of_the_screen_are_those_of_the_folder(self):
        self.put()
        self.add(*(self.line(step) for step in range(1, 11)), '{"step": 10, "validation_loss": 4.25, "windows": 6, "windows_total": 9}\n',
                 self.line(11, slow=True, throttled_seconds=1.5, store_retries=2), self.line(12, skipped=True, loss=None),
                 self.line(13, seconds=1.0), "half of a li")
        os.mkdir(self.path("run", "step-10"))
        os.mkdir(self.path("run", "step-9"))
        os.mkdir(self.path("run", "step-11.partial"))
        lines = self.once()
        self.assertEqual(lines[0], f"cohobate watch  {self.run_folder}"[:80])
        self.assertIn("11.14 M parameters, f32 adamw on a processor; 8 x 256 tokens", lines[1])
        self.assertRegex(self.row(lines, "step"), r"^13 of 40 +32.5 %  █+░+$")
        self.assertEqual(self.row(lines, "speed"), f"{13 * 2048 / 7:.0f} tokens/s, {7000 / 13:.0f} ms a step (plan: 500 ms), last 13 steps")
        self.assertEqual(self.row(lines, "loss"), "3.7000   gradient norm 1.5   learning rate 6e-4")
        self.assertEqual(self.row(lines, "validation"), "4.2500 at step 10 over 6 windows; lowest 4.2500 at 10")
        self.assertRegex(self.row(lines, "saved"), r"^step-10, .* ago$")
        self.assertEqual(self.row(lines, "waits"), f"compute waits {100 * 13 * 0.125 / 7:.1f} % of a step: "
                         f"for read {100 * 1.3 / 7:.1f} %, h2d {100 * 13 * 0.025 / 7:.1f} %")
        self.assertRegex(self.row(lines, "device"), r"^90.00 MiB of 100.00 MiB +90.0 %  █+░+$")
        self.assertEqual(self.row(lines, "disk"), "1.00 GiB, without a limit")
        self.assertEqual(self.row(lines, "drive"), "3.15 MB read, 2.10 MB written a step")
        self.assertTrue(self.row(lines, "wear").startswith("27.3 MB written in all, "))
        self.assertIn(f", {100 * 26 * 2**20 / 1e12:.2g} % of its life, ", self.row(lines, "wear"))
        self.assertEqual(self.row(lines, "health"), "1 left out, 1 slow (last: 11), 2 transfers repeated, throttled 1.5 s")
        self.assertEqual(lines[-1], f"The run was killed after step 13 of 40. Resume it from step 10 with: cohobate train --resume {self.run_folder}")

    def test_the_curve_falls_as_the_loss_does(self):
        self.put(steps=5000)
        for count in (30, 3000):  # a column for each step, and for many of them
            self.write("run/steps.jsonl", "".join(self.line(step, loss=9 - 8 * step / count) for step in range(1, count + 1)))
            for ascii_only, ramp in ((0, " ▁▂▃▄▅▆▇█"), (1, " _.:|")):
                lines = self.once(*["--ascii"] * ascii_only)
                self.assertTrue(ascii_only == 0 or all(line.isascii() for line in lines))
                again = self.once(**({"LC_ALL": "C"} if ascii_only else {}))
                self.assertEqual([line for line in again if not line.startswith("time")],
                                 [line for line in lines if not line.startswith("time")])
                begin = next(i for i, line in enumerate(lines) if line.startswith("loss")) + 1
                end = next(i for i, line in enumerate(lines) if line.strip().startswith("steps 1 to"))
                curve = [line[12:].ljust(68) for line in lines[begin:end]]
                heights = [sum(ramp.index(row[column]) for row in curve) for column in range(min(count, 68))]
                self.assertEqual(heights, sorted(heights, reverse=True), lines)
                self.assertGreater(len(set(heights)), 8 if ascii_only else 20)
                self.assertAlmostEqual(float(lines[begin][:12]), 9 - 8 / count, delta=0.2)
                self.assertAlmostEqual(float(lines[end - 1][:12]), 1, delta=0.2)

    def test_steps_that_a_resumed_run_repeats_count_once_in_the_curve(self):
        self.put()
        self.add(*(self.line(step, loss=5) for step in range(1, 21)), *(self.line(step, loss=1) for step in range(11, 16)))
        lines = self.once()
        self.assertRegex(self.row(lines, "step"), r"^15 of 40 ")
        row = next(line for line in lines if line.startswith("    5.0000"))
        self.assertEqual(row[12:].rstrip(), "█" * 10)

    def test_the_lowest_validation_loss_is_the_lowest_finite_one(self):
        self.put()
        for losses, says in ((("null",), "not finite at step 1 over 6 windows; lowest not finite at 1"),
                             (("null", "4.5"), "4.5000 at step 2 over 6 windows; lowest 4.5000 at 2"),
                             (("4.5", "null", "4.75"), "4.7500 at step 3 over 6 windows; lowest 4.5000 at 1"),
                             (("4.5", "null"), "not finite at step 2 over 6 windows; lowest 4.5000 at 1")):
            self.write("run/steps.jsonl", "".join(f'{{"step": {step}, "validation_loss": {loss}, "windows": 6, "windows_total": 6}}\n'
                                                  for step, loss in enumerate(losses, 1)))
            self.assertEqual(self.row(self.once(), "validation"), says)

    def test_how_a_run_ended_is_told_from_its_folder(self):
        self.add(*(self.line(step) for step in range(1, 41)))
        for ended, says in (("finished", "The run finished: step 40 of 40"), ("early", "The run ended early after step 40 of 40: its"),
                            ("stopped", "The run was stopped after step 40 of 40. It has no checkpoint"),
                            ("failed", "The run failed after step 40 of 40: a drive broke. It has no"),
                            (None, "The run was killed after step 40 of 40. It has no checkpoint")):
            self.put(**({"ended": {"how": ended, "step": 40, "sentence": "a drive broke"}} if ended else {}))
            self.assertTrue(self.once()[-1].startswith(says), self.once())
        self.put(steps=None)  # a run of an earlier version did not say
        self.assertEqual(self.once()[-1], "The run ended after step 40. It has no checkpoint")
        self.hold()
        self.put()
        self.assertEqual(self.once()[-1], "The run continues: step 40 of 40 is done")

    def test_a_run_whose_steps_were_cut_off_is_told_by_its_end_and_its_checkpoint(self):
        os.mkdir(self.path("run", "step-30"))
        resume = f". Resume it from step 30 with: cohobate train --resume {self.run_folder}"
        for lines, note in ((0, "steps.jsonl has no step"), (12, "steps.jsonl ends at step 12: it was cut")):
            self.add(*(self.line(step) for step in range(1, lines + 1)))
            for ended, says in (("finished", f"The run finished: step 40 of 40 ({note})"),
                                ("stopped", f"The run was stopped after step 40 of 40 ({note}){resume}")):
                self.put(ended={"how": ended, "step": 40})
                shown = self.once()
                self.assertEqual(shown[-1], says)
                self.assertRegex(self.row(shown, "step"), r"^40 of 40 +100\.0 %")
                self.assertEqual(self.succeeds("watch", self.run_folder).out.splitlines()[-1], says)
        self.put()  # killed
        self.assertTrue(self.once()[-1].startswith("The run was killed after step 12 of 40. Resume it from step 30"), self.once())
        os.truncate(self.path("run", "steps.jsonl"), 0)
        shown = self.once()
        self.assertTrue(shown[-1].startswith("The run was killed after step 30 of 40 (steps.jsonl has no step). Resume it with"), shown)
        self.assertRegex(self.row(shown, "speed"), "^steps.jsonl has no step")
        self.add(self.line(1, seconds=-0.5))
        self.assertRegex(self.row(self.once(), "speed"), "^not known")

    def test_a_killed_run_whose_steps_were_emptied_is_told_without_a_checkpoint(self):
        self.add(self.line(1))
        os.truncate(self.path("run", "steps.jsonl"), 0)
        self.put()
        says = "The run was killed after step 0 of 40 (steps.jsonl has no step). It has no checkpoint"
        self.assertTrue(self.once()[-1].startswith(says), self.once())
        self.hold()
        self.assertEqual(self.once()[-1], "The run continues: step 0 of 40 is done")

    def test_the_command_that_resumes_a_run_names_its_folder_exactly(self):
        odd = self.path("two  spaces, an ' and 宽" + " long" * 20)
        os.rename(self.run_folder, odd)
        self.run_folder = odd
        self.lock = self.path(odd, "lock")
        os.rename(self.write(self.path(odd, "fresh"), json.dumps(self.facts)), self.path(odd, "run.json"))
        os.mkdir(self.path(odd, "step-7"))
        terminal = self.terminal(columns=60)
        self.assertEqual(terminal.wait(), 0)
        shown = terminal.shown.decode().rstrip("\r\n").split("\r\n")[-1]
        for said in (self.once()[-1], self.succeeds("watch", odd).out.rstrip("\n"), shown):
            self.assertEqual(shlex.split(said[said.index("with: ") + 6:]), ["cohobate", "train", "--resume", odd])

    def test_the_command_that_resumes_a_run_has_the_flags_that_it_must_be_given_again(self):
        os.mkdir(self.path("run", "step-7"))
        given = ["--batch", "2", "--device-memory", "40MiB", "--data", "text", "--disk=a drive", "--disk", "other"]
        for command, again in ((["train", "gpt2-nano", *given], ["--device-memory", "40MiB", "--disk", "a drive", "--disk", "other"]),
                               (["train", "--resume", "run", "--host-memory", "1GiB"], ["--host-memory", "1GiB"]),
                               (["train", "gpt2-nano", "--disk", "a\033[2J"], ["--disk", "a?[2J"]),
                               (["train", "gpt2-nano", "--of-a-later-version"], []), (["eval"], [])):
            self.put(command=["cohobate", *command])
            said = self.once()[-1]
            self.assertEqual(shlex.split(said[said.index("with: ") + 6:]), ["cohobate", "train", "--resume", self.run_folder, *again])

    def test_a_folder_without_a_run_is_refused_as_by_report(self):
        self.fails(2, "watch", self.run_folder, says="holds no run.json")
        self.hold()
        self.fails(2, "watch", self.run_folder, says=f"(process {os.getpid()}) has not begun its first step")
        self.put(version=2)
        self.fails(4, "watch", self.run_folder, says="use a newer program")
        self.write("run/run.json", "{")
        self.fails(4, "watch", self.run_folder, says="run.json")
        self.fails(2, "watch", self.path("nowhere"), says="is not there")
        self.fails(2, "watch", says="RUN")
        self.fails(2, "watch", self.folder, says="run.json does not exist")

    def test_a_hostile_folder_sends_nothing_to_the_terminal(self):
        evil = "\033[2J\007\u009b31m\x7f\n" + "宽" * 200
        self.put(model=evil, dtype=evil, machine={"cpu": evil}, steps=1e300, budget_bytes={"device": 1e300, "disk": -5},
                 ended={"how": "failed", "sentence": evil}, predicted_step_s=1e300, batch=-1e300)
        self.add(self.line(1, loss=1e308), self.line(2, loss=-1e308), self.line(4294967295, seconds=-1e300, tokens=1e308), "{" * 100000 + "\n",
                 '{"step": "x"}\n', "\0\n", self.line(3, peak_bytes={"device": 1e300}, link_bytes={"write": 1e300}), "x" * 200000 + "\n",
                 '{"step": 3, "validation_loss": 1e308, "windows": 1e300}\n')
        done = self.succeeds("watch", self.run_folder, "--once", env=environment(**UTF8))
        self.assertTrue(all(line.isprintable() for line in done.out.split("\n")), done.out)
        self.assertIn(" unreadable", done.out)
        self.hold()
        terminal = self.terminal()
        terminal.until(lambda lines: "q quits" in lines[-1])
        terminal.press(b"q")
        self.assertEqual(terminal.wait(), 0)
        self.assertEqual((terminal.screen.wrapped, terminal.is_as_before()), (0, True))

    def test_keys_signals_and_sizes_leave_the_terminal_as_it_was(self):
        self.put()
        self.add(*(self.line(step) for step in range(1, 11)))
        self.hold()
        for key, number in ((b"q", None), (b"Q", None), (b"\x03", signal.SIGINT), (None, signal.SIGTERM), (None, signal.SIGHUP)):
            terminal = self.terminal()
            terminal.until(lambda lines: "q quits" in lines[-1])
            self.assertFalse(terminal.screen.has_cursor)
            terminal.resize(60, 20)
            terminal.until(lambda lines: "q quits" in lines[-1])
            if key:
                terminal.press(key)
            else:
                terminal.process.send_signal(number)
            self.assertEqual(terminal.wait(), -number if number else 0)
            self.assertEqual((terminal.screen.wrapped, terminal.is_as_before()), (0, True))
            if not number:
                self.assertIn("The run continues: step 10 of 40 is done", terminal.screen.lines)

    def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(self):
        self.put()
        self.add(self.line(1))
        self.hold()
        terminal = self.terminal()
        terminal.until(lambda lines: "q quits" in lines[-1])
        terminal.press(b"\x1a")
        terminal.until(lambda lines: terminal.is_as_before())
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda lines: "q quits" in lines[-1])
        terminal.press(b"q")
        self.assertEqual(terminal.wait(), 0)
        self.assertTrue(terminal.is_as_before())

    def test_a_screen_without_keys_does_not_offer_one(self):
        self.put()
        self.hold()
        terminal = Terminal("sh", "-c", f"exec '{COHOBATE}' watch '{self.run_folder}' </dev/null")
        self.addCleanup(terminal.close)
        terminal.until(lambda lines: lines[-1] == "process %d; Ctrl-C quits, the run continues" % os.getpid())
        terminal.press(b"\x03")
        self.assertEqual((terminal.wait(), terminal.is_as_before()), (-signal.SIGINT, True))

    def test_a_terminal_that_was_reset_while_it_was_stopped_is_taken_again(self):
        self.put()
        self.add(self.line(1))
        self.hold()
        terminal = self.terminal()
        terminal.until(lambda lines: "q quits" in lines[-1])
        terminal.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
        termios.tcsetattr(terminal.slave, termios.TCSANOW, terminal.before)  # as a shell does
        terminal.screen.feed(b"\033[?25h\033[?1049l")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda lines: "q quits" in lines[-1] and terminal.screen.other is not None)
        terminal.press(b"q")
        self.assertEqual(terminal.wait(), 0)
        self.assertTrue(terminal.is_as_before())

    def test_a_screen_goes_on_with_the_run_and_ends_with_it(self):
        self.put()
        self.add(self.line(1))
        lock = self.hold()
        terminal = self.terminal(columns=100, rows=30)
        terminal.until(lambda lines: any(re.match(r"step +1 of 40", line) for line in lines))
        self.add(self.line(2), '{"step": 3, "lo')
        terminal.until(lambda lines: any(re.match(r"step +2 of 40", line) for line in lines))
        self.add('ss": 1.25}\n')
        terminal.until(lambda lines: any(re.match(r"loss +1.2500 ", line) for line in lines))
        # another run of the same folder begins from step 0
        self.write("run/steps.jsonl", "")
        self.put(started="2026-01-02T03:04:06Z", steps=50)
        self.add(*(self.line(step) for step in range(1, 31)))
        terminal.until(lambda lines: any(re.match(r"step +30 of 50", line) for line in lines))
        self.add(*(self.line(step) for step in range(31, 51)))
        self.put(started="2026-01-02T03:04:06Z", steps=50, ended={"how": "finished", "step": 50})
        lock.close()
        self.assertEqual(terminal.wait(), 0)
        lines = terminal.screen.lines
        self.assertTrue(any(re.match(r"step +50 of 50 +100.0 %", line) for line in lines), lines)
        self.assertIn("The run finished: step 50 of 50", lines)
        self.assertEqual((terminal.screen.wrapped, terminal.is_as_before()), (0, True))

    def test_a_terminal_without_escape_codes_and_a_pipe_get_plain_lines(self):
        self.put(ended={"how": "finished", "step": 2})
        self.add(self.line(1), self.line(2))
        terminal = self.terminal(TERM="dumb")
        self.assertEqual(terminal.wait(), 0)
        self.assertNotIn(b"\033", terminal.shown)
        wanted = ["step 2/40  loss 4.8000  4096 tokens/s  waits 20 % for read", "The run finished: step 2 of 40"]
        self.assertEqual(terminal.shown.decode().split("\r\n")[:-1], wanted)
        self.assertEqual(self.succeeds("watch", self.run_folder).out.split("\n")[:-1], wanted)

    def test_a_pipe_gets_a_line_when_something_changes_and_the_end(self):
        folder = self.path("trained")
        train = start("train", *NANO, "--data", self.corpus(), "--validation", self.corpus(20), "--steps", 100000, "--save-every", 2, "--save", folder)
        wait_for_step(train, folder, 1)
        watch = start("watch", folder, env=environment(**UTF8))
        begin = time.monotonic()
        first = watch.stdout.readline().decode()
        wait_for_step(train, folder, 5)
        train.send_signal(signal.SIGTERM)
        train.communicate(timeout=120)
        out, err = watch.communicate(timeout=60)
        self.assertEqual((train.returncode, watch.returncode), (75, 0), err)
        rest = out.decode().split("\n")[:-1]
        steps = [line for line in lines_of(os.path.join(folder, "steps.jsonl")) if "loss" in line]
        tests = {line["step"]: line for line in lines_of(os.path.join(folder, "steps.jsonl")) if "validation_loss" in line}
        self.assertRegex(first, r"^step \d+/100000  loss \d+\.\d{4}  [\d.]+ tokens/s  .* left  (waits|no waits)")
        last = steps[-1]["step"]
        self.assertTrue(rest[-1].startswith(f"The run was stopped after step {last} of 100000. Resume it with: cohobate train --resume {folder}"), rest)
        self.assertIn(f"step {last}  saved", rest)
        progress = [line for line in [first, *rest] if "tokens/s" in line]
        self.assertLessEqual(len(progress), 2 + (time.monotonic() - begin) // 10)
        self.assertTrue(progress[-1].startswith(f"step {last}/100000  loss {steps[-1]['loss']:.4f}  "), progress)
        for kind in ("/", "  saved", "  validation"):  # a save overlaps the steps that follow, and may be found after their line
            steps = [int(number) for number in re.findall(rf"(?m)^step (\d+){kind}", first + out.decode())]
            self.assertGreater(len(steps), 0)
            self.assertEqual(steps, sorted(steps))
        for step, loss in re.findall(r"step (\d+)  validation loss ([\d.]+) ", out.decode()):
            self.assertEqual(loss, f"{tests[int(step)]['validation_loss']:.4f}")

    def test_a_checkpoint_found_before_its_steps_lines_waits_for_them(self):
        self.put()
        self.add(self.line(1))
        os.mkdir(self.path("run", "step-4"))
        lock = self.hold()
        watch = start("watch", self.run_folder, env=environment(**UTF8))
        first = watch.stdout.readline().decode()
        tested = json.dumps({"step": 2, "validation_loss": 4.5, "windows": 8, "windows_total": 8}) + "\n"
        self.add(self.line(2), tested, *(self.line(step) for step in (3, 4, 5)))
        self.put(ended={"how": "finished", "step": 5})
        lock.close()
        out, err = watch.communicate(timeout=60)
        self.assertEqual(watch.returncode, 0, err)
        steps = [int(number) for number in re.findall(r"(?m)^step (\d+)", first + out.decode())]
        self.assertEqual(steps, [1, 2, 4, 5], out)

    def test_a_run_that_fails_tells_why(self):
        folder = self.path("failed")
        done = run("train", *NANO, "--data", self.corpus(), "--steps", 30, "--lr", 1e9, "--clip", 0, "--save", folder)
        self.assertEqual(done.code, 1, done.err)
        sentence = done.err.strip().split("\n")[-1].removeprefix("cohobate train: ")
        end = self.succeeds("watch", folder).out.strip().split("\n")[-1]
        self.assertIn(sentence[:400], end)
        self.assertRegex(end, r"^The run failed after step \d+ of 30: ")


if __name__ == "__main__":
    unittest.main()
