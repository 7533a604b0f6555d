"""A run's folder: which checkpoints it keeps, the space reserved for them, how a run stops."""

import glob
import json
import os
import re
import resource
import shlex
import shutil
import signal
import stat
import time
import unittest

import model_folder
from program import (FAULTY, NANO, QUICK, TINY, TrainTest, environment, held_files, last_save, lines_of, run, start,
                     wait_for_save, wait_for_step)


class TrainFolder(TrainTest):
    def test_only_the_newest_checkpoints_are_kept_and_all_are_whole(self):
        self.train("--steps", 5, "--save-every", 1, "--keep", 2, "--save", self.path("run"), model=NANO)
        self.assertEqual(sorted(n for n in os.listdir(self.path("run")) if n.startswith("step-")), ["step-4", "step-5"])
        for name in ("step-4", "step-5", "."):
            self.succeeds("check", self.path("run", name))
        self.assertEqual(self.hash_of(self.path("run")), self.hash_of(self.path("run", "step-5")))

    def test_nothing_is_written_into_files_where_standard_streams_are_closed(self):
        begin = ["train", *TINY, "--data", self.corpus(), "--steps", 2, "--device-memory", "6MiB", "--disk", self.folder]
        whole = self.succeeds(*begin, "--save", self.path("open"))
        for closed in ([2], [0, 2], [1, 2], [0, 1, 2]):
            with self.subTest(closed=closed):
                run_folder, log = self.path(f"run{len(closed)}{closed[0]}"), self.path("log")
                done = run(*begin, "--save", run_folder, "--log", log, preexec_fn=lambda: [os.close(fd) for fd in closed])  # pylint: disable=cell-var-from-loop
                self.assertEqual(done.code, 5 if 1 in closed else 0)  # the result is lost
                self.assertEqual(self.hash_of(run_folder), self.says_hash(whole))
                for name in ("lock", "steps.jsonl", "trace.bin", "run.json"):
                    with open(os.path.join(run_folder, name), "rb") as file:
                        self.assertNotRegex(file.read(), rb"(?m)^(model|keeps|done|hash): ", name)
                self.assertEqual(len(lines_of(log)), 2)
                os.remove(log)

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

    def test_a_run_that_reached_its_end_continues_at_the_lowest_rate_or_with_a_longer_schedule(self):
        self.train("--steps", 2, "--warmup", 0, "--lr", "1e-3", "--save", self.path("run"))
        shutil.copytree(self.path("run"), self.path("longer"))
        flags = ["--lr", "2e-3", "--log"]
        done = self.resumed(self.path("run"), "--steps", 3, *flags, self.path("lowest"))
        self.assertIn("--lr 2e-3 is the rate of no step: the schedule ends at step 2: ", done.err)
        self.assertEqual([line["lr"] for line in lines_of(self.path("lowest"))], [2e-4])
        done = self.resumed(self.path("longer"), "--steps", 6, "--schedule-steps", 6, *flags, self.path("rates"))
        self.assertNotIn("rate of no step", done.err)
        # by hand: half a cosine from 2e-3 down to 2e-4 in six steps, of which this is the second half
        for line, rate in zip(lines_of(self.path("rates")), [1.1e-3, 0.65e-3, 1.1e-3 - 0.9e-3 * 0.75 ** 0.5, 2e-4], strict=True):
            self.assertAlmostEqual(line["lr"], rate, places=12)

    def test_a_warm_up_given_as_a_share_is_that_share_of_the_schedule(self):
        for share, schedule, steps in (("50%", 4, 2), ("12.5%", 20, 3), ("0%", 20, 0), ("100%", 3, 3)):
            done = self.train("--steps", 1, "--schedule-steps", schedule, "--warmup", share, "--save",
                              self.path(f"run-{schedule}-{steps}"), "--lr", "1e-3")
            note = self.succeeds("inspect", self.path(f"run-{schedule}-{steps}"), "--json").json["note"]
            self.assertEqual(note["warmup_steps"], steps, done.err)
        for share in ("101%", "-1%", "x%", "%", "5%%", "nan%"):
            self.fails(2, "train", *TINY, "--data", self.corpus(), "--warmup", share, says="--warmup")

    def test_sigterm_saves_exits_75_and_the_run_goes_on_bit_for_bit(self):
        whole = self.train("--steps", 8, "--save", "none", model=NANO)
        odd = "a run's $HOME"  # the printed command is pasted into a shell
        os.mkdir(self.path("a disk"))
        process = start("train", *NANO, "--data", self.corpus(), "--steps", 8, "--save", self.path(odd),
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
                                     self.path("a disk") + ":1GB", "--threads", "2", *QUICK])
        self.assertTrue(sentence.endswith(" ".join([":1GB --threads 2", *QUICK])), sentence)
        self.succeeds("check", self.path(odd))
        self.assertEqual(self.says_hash(self.succeeds(*arguments, "--threads", 2)), self.says_hash(whole))

    def test_the_command_that_goes_on_has_every_flag_that_no_checkpoint_keeps(self):
        """Also behind a report, which plans changes of the run and may fail at some."""
        kept = ["--save-every", "50", "--keep", "3", "--micro-batch", "2", "--lr", "1e-3", "--validation", self.corpus()]
        told = ["--device-memory", "100MiB", "--disk", self.folder, "--disk-write-limit", "1000TB/day", "--threads", "2",
                "--chunk", "256KiB", "--search", "quick", "--keep-best", "--log", self.path("a log"), "--tensorboard", self.path("tb"),
                "--record", "5", "--report", self.path("r.txt")]
        process = self.begun("--save", self.path("run"), "--batch", "2", *kept, *told)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 75, err)
        sentence = err.decode().strip().split("\n")[-1]
        arguments = shlex.split(sentence.split("go on with: cohobate ")[1])
        self.assertEqual(arguments, ["train", "--resume", self.path("run"), *told])
        with open(self.path("r.txt"), encoding="utf-8") as file:
            self.assertNotIn("micro-batches of 4", file.read())

    def test_a_long_command_that_goes_on_is_whole(self):
        deep = self.path(*(letter * 200 for letter in "abcde"))
        os.makedirs(deep)
        process = self.begun("--save", self.path("run"), "--log", os.path.join(deep, "log"))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 75, err)
        *_, command, sentence = err.decode().strip().split("\n")
        self.assertIn("go on with the command above", sentence)
        arguments = shlex.split(command)
        self.assertEqual(arguments[1:4], ["train", "--resume", self.path("run")])
        self.assertEqual(arguments[arguments.index("--log") + 1], os.path.join(deep, "log"))

    def begun(self, *flags, **keywords):
        """A run of many steps that has finished one."""
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 100000, *flags, **keywords)
        for line in process.stderr:
            if line.startswith(b"step 1/"):
                break
        return process

    def test_whoever_asks_for_a_stop_gets_a_checkpoint(self):
        def not_ignored():
            """The tests themselves may run under nohup, and signals ignored at the start stay ignored."""
            signal.signal(number, signal.SIG_DFL)

        run = ["--save", self.path("run")]
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
            with self.subTest(number=number):
                process = self.begun(*run, preexec_fn=not_ignored)
                self.addCleanup(process.kill)
                process.send_signal(number)
                if number == signal.SIGXCPU:
                    process.send_signal(number)  # the system call is restarted
                _, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 75, err)
                self.succeeds("check", self.path("run"))
                shutil.rmtree(self.path("run"))

    def wait_for_another_step(self, process):
        """Waits for two more saves: the second of them began after this call."""
        wait_for_save(process, self.path("run"), last_save(self.path("run")) + 2)

    def test_nohup_and_a_reader_that_ends_do_not_end_a_run(self):
        def nohup():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        process = self.begun("--save", self.path("run"), "--save-every", 1, preexec_fn=nohup)
        process.stderr.close()  # what it prints from now on has no reader
        for number in (signal.SIGHUP, signal.SIGPIPE):
            process.send_signal(number)
            self.wait_for_another_step(process)
        process.send_signal(signal.SIGTERM)
        self.assertIn(b"saved:", process.stdout.read())
        self.assertEqual(process.wait(timeout=120), 75)
        self.succeeds("check", self.path("run"))

    def test_a_limit_of_file_sizes_fails_a_save_and_not_the_run(self):
        run = self.path("run")
        process = self.begun("--save", run, "--save-every", 1)
        self.wait_for_another_step(process)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        for line in process.stderr:
            if line.startswith(b"warning: nothing was saved"):
                break
        self.assertRegex(line, rb"^warning: .*after step \d+: .*File too large.*; the run continues, step-\d+ stays the")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 5, err)
        self.assertIn(b"File too large", err)
        self.succeeds("check", run)
        def little():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        self.fails(3, "train", *NANO, "--data", self.path("corpus.txt"), "--save", "none", "--steps", 1, "--disk",
                   self.folder, "--device-memory", "40MiB", preexec_fn=little, says="raise ulimit -f")

    def test_a_second_signal_stops_at_once_with_the_last_checkpoint_whole(self):
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 100000, "--save-every", 1, "--save",
                        self.path("run"))
        wait_for_save(process, self.path("run"), 2)
        # In any phase, the first signal requests an end and the second forces it.
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 75, err)
        sentence = err.decode().split("\n")[-2]
        self.assertTrue(sentence.startswith("cohobate train: stopped at once; the last checkpoint is whole; go on with: "), err)
        self.succeeds("check", self.path("run"))
        arguments = shlex.split(sentence.split("go on with: cohobate ")[1])
        self.assertEqual(arguments, ["train", "--resume", self.path("run"), "--threads", "2", *QUICK])
        self.succeeds(*arguments, "--steps", last_save(self.path("run")) + 1)

    def sent(self, process, number):
        """Sends the signal and waits until the process has got it. The system merges it with one that it has not."""
        process.send_signal(number)
        def is_pending():
            with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
                return any(int(line.split()[1], 16) >> (number - 1) & 1 for line in file if line.startswith(("SigPnd:", "ShdPnd:")))
        while process.poll() is None and is_pending():
            time.sleep(0.001)

    def test_a_signal_that_is_sent_twice_at_once_is_one_request(self):
        """timeout(1) sends its signal to the process and then to its own group, of which the process is. The save is slow, so
        that both signals come before its end."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(number=number):
                took = 1
                while took >= 1:  # on a machine under load a second may have passed
                    shutil.rmtree(self.path("run"), ignore_errors=True)
                    process = self.begun("--save", self.path("run"), program=FAULTY, env={**environment(), "COH_TEST_SYNC_MS": "300"},
                                         preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
                    self.addCleanup(process.kill)
                    begun = time.monotonic()
                    self.sent(process, number)
                    self.sent(process, number)
                    took = time.monotonic() - begun
                    _, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 75, err)
                self.succeeds("check", self.path("run"))

    def test_a_second_signal_during_the_first_save_leaves_a_folder_that_says_what_to_do(self):
        """The save is slow: flushes take long. No command takes what is left of it for a checkpoint."""
        folder, command = self.path("run"), ["train", *TINY, "--data", self.corpus(), "--save", self.path("run")]
        process = start(*command, "--steps", 1, program=FAULTY, env={**environment(), "COH_TEST_SYNC_MS": "4000"})
        while not any(name.endswith(".partial") and name.startswith("step-") for name in
                      (os.listdir(folder) if os.path.isdir(folder) else [])):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        time.sleep(1.1)  # within a second it would be the same request
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1, err)
        self.assertTrue(err.decode().endswith("\ncohobate train: stopped at once; nothing was saved yet: the same command "
                                              "starts again\n"), err)
        for more in (["check", folder], ["eval", folder, "--data", self.corpus()], ["export", folder, "-o", self.path("o")],
                     ["inspect", folder], ["generate", folder, "--prompt", "a"]):
            self.fails(4, *more, says="a run that ended before its first save was whole has none: start it again")
        self.fails(4, "check", os.path.join(folder, "step-1.partial"), says="if there is none, start the run again")
        self.assertIn("note: " + os.path.join(folder, "step-1.partial") + " is what a run that ended during a save left of it",
                      self.fails(4, "check", folder, says="start it again").err)
        self.fails(4, "train", "--resume", folder, says="It has no checkpoint: train again, with --save-every N")
        self.succeeds(*command, "--steps", 1)
        self.succeeds("check", folder)

    def test_a_hang_up_is_never_the_second_signal(self):
        """A lost terminal sends SIGHUP twice, the second to the process that saves already; a logout sends it after SIGTERM."""
        for signals in ((signal.SIGHUP, signal.SIGHUP), (signal.SIGTERM, signal.SIGHUP), (signal.SIGHUP, signal.SIGINT)):
            with self.subTest(signals=signals):
                process = self.begun("--save", self.path("run"), program=FAULTY, env={**environment(), "COH_TEST_SYNC_MS": "300"},
                                     preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
                process.send_signal(signals[0])
                while process.poll() is None and not glob.glob(self.path("run", "step-*.partial")):
                    time.sleep(0.01)
                process.send_signal(signals[1])
                _, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 75, err)
                self.succeeds("check", self.path("run"))
                shutil.rmtree(self.path("run"))

    def test_a_finished_run_without_its_checkpoint_says_that_it_is_gone(self):
        self.train("--steps", 1, "--save", self.path("run"))
        shutil.rmtree(self.path("run", "step-1"))
        self.fails(4, "train", "--resume", self.path("run"), "--steps", 2,
                   says="The run finished: step 1 of 1, and no checkpoint is left there: put it back, or train again")

    def stopped(self, *flags, signals):
        """A run of many steps that gets `signals` signals after its first step."""
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 100000, *flags)
        for line in process.stderr:
            if line.startswith(b"step 1/"):
                break
        for number in (signal.SIGINT, signal.SIGTERM)[:signals]:  # a second SIGINT may be merged with the first
            process.send_signal(number)
        _, err = process.communicate(timeout=120)
        return process.returncode, err.decode().strip().split("\n")[-1]

    def test_a_stop_that_keeps_nothing_exits_1_and_says_so(self):
        code, sentence = self.stopped("--save", "none", signals=1)
        self.assertEqual(code, 1, sentence)
        self.assertIn("nothing was kept", sentence)
        # every step is slow, so that the second signal comes before the first is handled
        code, sentence = self.stopped("--save", self.path("run"), "--test-delay-seed", 3, signals=2)
        self.assertEqual((code, sentence), (1, "cohobate train: stopped at once; nothing was saved yet: the same "
                                               "command starts again"))

    def test_a_killed_run_goes_on_from_its_last_checkpoint(self):
        whole = self.train("--steps", 6, "--save", "none")
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 6, "--save-every", 1, "--save",
                        self.path("run"))
        wait_for_save(process, self.path("run"))
        process.kill()
        process.communicate(timeout=120)
        more = run("train", "--resume", self.path("run"), "--threads", 2)
        self.assertEqual(self.says_hash(more), self.says_hash(whole))
        self.assertEqual([n for n in os.listdir(self.path("run")) if n.endswith(".partial")], [])

    def test_tokens_that_a_killed_run_left_half_written_go_with_the_next_run(self):
        os.mkdir(self.path("run"))
        for name in ("data.tokens.partial", "data.tokens.partial-12", "validation-8.tokens.partial-12", "mine.tokens.partial-1", "data.tokens.partial-x"):
            self.write("run/" + name, "half")
        self.write("run/lock", "12\n")  # it was a run's folder
        self.train("--steps", 1, "--save", self.path("run"))
        self.assertEqual(sorted(os.listdir(self.path("run"))), ["data.tokens", "data.tokens.partial-x", "lock",
                                                                "mine.tokens.partial-1", "plan.json", "run.json", "step-1",
                                                                "steps.jsonl", "trace.bin"])

    def test_a_folder_in_the_place_of_a_checkpoint_costs_that_one_and_not_the_run(self):
        run = self.path("run")
        process = self.begun("--save", run, "--save-every", 1)
        self.wait_for_another_step(process)
        taken = 50 + max((int(name[5:]) for name in os.listdir(run) if name[:5] == "step-" and name[5:].isdigit()), default=0)
        os.mkdir(os.path.join(run, f"step-{taken}"))
        for line in process.stderr:
            if line.startswith(b"warning: nothing was saved"):
                break
        self.assertRegex(line, rb"^warning: .*after step %d: .*exists already.*; the run continues, step-%d stays" % (taken, taken - 1))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 75, err)

    def test_a_save_on_the_way_that_fails_costs_one_checkpoint_and_not_the_run(self):
        whole = self.train("--steps", 3, "--save", "none")
        for fault in ("9:28", "16:5"):  # a full disk when space is reserved, an I/O error in a write
            run_folder = self.path("run-" + fault)
            done = self.train("--steps", 3, "--save-every", 1, "--save", run_folder,
                              program=FAULTY, env=environment(COH_TEST_FAIL_AT=fault))
            warnings = [line for line in done.err.split("\n") if line.startswith("warning: nothing was saved")]
            self.assertEqual(len(warnings), 1, done.err)
            self.assertIn("after step 1", warnings[0])
            self.assertEqual(sorted(os.listdir(run_folder)), ["data.tokens", "lock", "plan.json", "run.json", "step-2",
                                                               "step-3", "steps.jsonl", "trace.bin"])
            self.succeeds("check", run_folder)
            self.assertEqual(self.says_hash(done), self.says_hash(whole))

    def held_bytes(self, process):
        """Bytes reserved for future checkpoints: the blocks of an open file without a name."""
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
        best = ["--keep-best", "--validation", self.corpus(), "--validation-every", 2000]  # each of the two may be
        for flags, least in ((["--save-every", 1000], 3), (["--save-every", 1000, "--keep", 1], 2), ([], 1), (best, 3)):
            process = start("train", *NANO, "--data", self.corpus(), "--steps", 5000, "--save",
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
        process = start("train", *NANO, "--data", self.corpus(), "--steps", 5000, "--save-every", 2, "--keep", 2,
                        "--save", self.path("run"))
        # All pieces were given away, then that of the checkpoint that was removed is held until the next save.
        wait_for_save(process, self.path("run"), 6)
        while (held := self.held_bytes(process)) <= one and not os.path.exists(self.path("run", "step-40")):
            self.assertIsNone(process.poll())
        process.kill()
        process.communicate(timeout=120)
        self.assertGreater(held, one)
        self.assertLess(held, one + (1 << 20))

    def test_a_resumed_run_holds_room_only_for_what_is_not_there(self):
        self.train("--steps", 2, "--save-every", 1, "--save", self.path("run"), model=NANO)
        process = start("train", "--resume", self.path("run"), "--threads", 2, "--steps", 5000, "--save-every", 1000)
        wait_for_step(process, self.path("run"), 3)
        held = self.held_bytes(process)
        process.kill()
        process.communicate(timeout=120)
        self.assertLess(held, 12 * 11.14e6 + (1 << 20))

    def test_a_run_holds_no_file_of_what_it_began_with(self):
        # a removed checkpoint gives its space back only when nobody has it open
        self.train("--steps", 1, "--save", self.path("run"))
        model_folder.make(self.path("model"), "gpt2")
        shutil.copytree(self.path("run"), self.path("two"))
        more = ["--threads", 2, "--steps", 100000, "--save-every", 1, "--keep", 1, "--data", self.corpus(), "--save"]
        small = ["--tokenizer", "bytes", "--sequence", 16, "--batch", 2, *more]
        for name, begins_with, flags in (
                ("run", "run/step-1", ["--resume", self.path("run"), *more]),
                ("new", "two", [self.path("two"), *small]),
                ("tuned", "model", [self.path("model"), *small]),
                ("ranks", "two", [self.path("two"), *small[:-1], "--replicas", 2, "--ranks", 2, "--gradients", "f32", "--save"])):
            with self.subTest(name):
                process = start("train", *flags, self.path(name))
                wait_for_save(process, self.path(name), 4)
                self.assertIsNone(process.poll(), process.poll() is not None and process.stderr.read())
                held = held_files(process, self.path(begins_with))
                others = held_files(process, self.path(name))
                process.kill()
                _, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, -9, err)
                self.assertEqual(held, [])
                self.assertTrue(others)  # its lock, its tokens
                if name == "run":
                    self.assertFalse(os.path.exists(self.path(begins_with)))

    def test_room_that_cannot_be_had_is_refused_before_the_first_step(self):
        # Well above the free space: other programs free some meanwhile, and what fits is then reserved.
        most = shutil.disk_usage(self.folder).free * 5 // 4 // int(12 * 11.14e6) + 2
        if most > 1000:
            self.skipTest("the disk has room for a thousand checkpoints")
        done = self.fails(3, "train", *NANO, "--data", self.corpus(), "--steps", 2000, "--save-every", 1, "--keep", most,
                          "--save", self.path("run"), says=f"{most + 1} checkpoints")
        self.assertNotIn("step 1/", done.err)
        self.assertIn("free", done.err)
        done = self.fails(3, "train", *NANO, "--data", self.corpus(), "--steps", 2000, "--save-every", 1, "--keep", most,
                          "--save", self.path("run"), "--disk", self.folder, "--device-memory", "64MiB",
                          says=f"{most + 1} checkpoints")
        self.assertIn("the working store", done.err)

    def test_held_room_is_asked_of_the_file_system(self):
        def few_blocks():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 20, 100 << 20))
        # Python ignores the signal for files that are too large, and the program inherits that.
        self.fails(3, "train", *NANO, "--data", self.corpus(), "--steps", 2, "--save", self.path("run"),
                   says="cannot hold", preexec_fn=few_blocks, restore_signals=False)

    def test_a_refused_run_leaves_no_folder_that_it_made_and_each_that_was_there(self):
        def few_blocks():
            resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, 20 << 20))
        bad = self.write("bad.jsonl", "no object\n")
        os.mkdir(self.path("there"))
        for folder in ("made", "there/made", "there/made//"):
            self.fails(4, "train", *NANO, "--data", bad, "--steps", 1, "--save", self.path(folder), says="bad.jsonl:1:")
            # space is checked before the text is read
            self.fails(3, "train", *NANO, "--data", bad, "--steps", 1, "--save", self.path(folder), says="cannot hold",
                       preexec_fn=few_blocks, restore_signals=False)
            self.assertFalse(os.path.exists(self.path("made")))
            self.assertEqual(os.listdir(self.path("there")), [])
        self.fails(4, "train", *NANO, "--data", self.write("short.txt", "abc"), "--save", self.path("made"), says="needs 17")
        self.fails(4, "train", *NANO, "--data", bad, "--steps", 1, cwd=self.folder)
        self.assertEqual(sorted(os.listdir(self.folder)), ["bad.jsonl", "short.txt", "there"])
        self.fails(4, "train", *NANO, "--data", bad, "--steps", 1, "--save", self.path("there"))
        self.assertEqual(os.listdir(self.path("there")), [])  # no lock, which would make it a run's

    def paused_while_it_tokenizes(self, case, before):
        def partial():
            return glob.glob(self.path("**", "*.partial*"), recursive=True)
        for _ in range(20):
            process = start(*case, env=environment(TMPDIR=self.path("temporary")))
            while process.poll() is None and not partial():
                time.sleep(0.001)
            process.send_signal(signal.SIGSTOP)
            if partial():
                return process
            process.send_signal(signal.SIGCONT)
            process.communicate(timeout=120)
            for name in set(os.listdir(self.folder)) - set(before):
                shutil.rmtree(self.path(name)) if os.path.isdir(self.path(name)) else os.remove(self.path(name))
        self.fail("not caught tokenizing")

    def test_a_run_that_is_stopped_while_it_tokenizes_leaves_nothing(self):
        """The process is paused while its partial file is searched; if it was faster, it is started again."""
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
                    process = self.paused_while_it_tokenizes(case, before)
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
                              program=FAULTY, env=environment(COH_TEST_FAIL_AT=fault), says=says)
            self.assertNotIn("warning: nothing was saved", done.err)
            self.assertEqual(sorted(os.listdir(self.path("run"))), ["data.tokens", "lock", "plan.json", "run.json",
                                                                    "steps.jsonl", "trace.bin"])

    def test_the_last_save_that_fails_says_what_is_lost_and_how_the_run_goes_on(self):
        again = ["--threads", "2", *QUICK]
        whole = self.train("--steps", 5, "--save", "none")
        for flags, lost in (["--steps", 5], "steps 3 to 5"), (["--steps", 3], "step 3"):
            run_folder = self.path(f"a run of {flags[1]}")
            self.train("--steps", 2, "--schedule-steps", 5, "--save", run_folder)
            done = self.fails(5, "train", "--resume", run_folder, *again, *flags, program=FAULTY,
                              env=environment(COH_TEST_FAIL_AT="9:28"), says="No space left on device")
            said = done.err.strip().split("\n")[-1]
            self.assertTrue(said.endswith(f"; the result of {lost} is lost: the same command continues from {run_folder}/step-2"), said)
            self.succeeds("train", "--resume", run_folder, *again, *flags)
        self.assertEqual(self.says_hash(self.resumed(self.path("a run of 3"), "--steps", 5)), self.says_hash(whole))
        other = self.fails(5, "train", "--resume", self.path("a run of 3"), *again, "--steps", 6, "--save", self.path("other"),
                           program=FAULTY, env=environment(COH_TEST_FAIL_AT="16:5")).err.strip().split("\n")[-1]
        self.assertIn(f"the result of step 6 is lost: the same command continues from {self.path('a run of 3')}/step-5", other)
        for operation in sorted(range(20, 400, 5), key=lambda at: at % 40):  # until one is of the last save
            train = ["train", *TINY, "--data", self.corpus(), "--steps", 5, "--save-every", 2, "--lr", "1e-3", "--save"]
            done = run(*train, self.path(f"new-{operation}"), program=FAULTY, env=environment(COH_TEST_FAIL_AT=f"{operation}:5"))
            saved = done.err.strip().split("\n")[-1]
            if done.code == 5 and "step 5 is lost" in saved:
                break
        found = re.search(r"the result of step 5 is lost: go on from (\S+)/step-4 with: cohobate (train --resume .*)$", saved)
        self.assertTrue(found, saved)
        self.assertEqual(self.says_hash(self.succeeds(*shlex.split(found[2]))),
                         self.says_hash(self.train("--steps", 5, "--lr", "1e-3", "--save", "none")))
        none = self.fails(5, "train", *TINY, "--data", self.corpus(), "--steps", 2, "--save", self.path("none"), program=FAULTY,
                          env=environment(COH_TEST_FAIL_AT="9:28")).err
        self.assertIn("; the result of steps 1 to 2 is lost: start again, with --save-every N", none)

    def test_the_save_of_a_stop_that_fails_ends_the_run_with_its_reason(self):
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 100000, "--save", self.path("run"),
                        program=FAULTY, env=environment(COH_TEST_FAIL_AT="16:5"))
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
        # Python ignores the signal for files that are too large, and the program inherits that.
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
        os.mkdir(self.path("locked"))
        self.write("locked/run.json", "mine\n")
        lock = self.write("locked/lock", "my own lock\n")
        self.fails(2, "train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", self.path("locked"), says="holds a lock that no run wrote")
        os.remove(lock)
        os.makedirs(self.path("locked", "step-1"))
        os.remove(self.path("locked", "run.json"))
        for _ in range(2):  # the first refusal leaves no lock, which would make the folder a run's
            self.fails(2, "train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", self.path("locked"), says="move what comes after step 0 out of the folder")
            self.assertEqual(os.listdir(self.path("locked")), ["step-1"])
        os.mkdir(self.path("split"))
        self.write("split/validation.tokens", "mine\n")
        self.fails(2, "train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", self.path("split"), "--validation-split", 0.1,
                   says="holds a validation.tokens that no run wrote")
        # a token file in the folder may be in use by the run
        os.mkdir(self.path("own"))
        self.succeeds("tokenize", self.corpus(), "-o", self.path("own", "data.tokens"))
        self.succeeds("train", *TINY, "--data", self.path("own", "data.tokens"), "--steps", 1, "--save",
                      self.path("own"))

    def content_of(self, folder):
        """What is there, links not followed."""
        def content(path):
            if os.path.islink(path):
                return f"link to {os.readlink(path)}"
            if not stat.S_ISREG(os.stat(path).st_mode):
                return stat.S_IFMT(os.stat(path).st_mode)
            with open(path, "rb") as file:
                return file.read()
        return {os.path.relpath(os.path.join(above, name), folder): content(os.path.join(above, name))
                for above, folders, files in os.walk(folder) for name in folders + files}

    def documents(self):
        return self.write("other.jsonl", "".join(f'{{"text": "{i * 7919 % 10007} other words"}}\n' for i in range(400)))

    def is_refused(self, code, folder, says, *more):
        before = self.content_of(folder)
        done = self.fails(code, "train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", folder, *more, says=says)
        self.assertNotIn("stay as they are", done.err)
        self.assertEqual(self.content_of(folder), before)

    def test_data_that_are_changed_while_a_run_reads_them_are_told_once(self):
        tokens = self.path("ids")
        self.succeeds("tokenize", self.corpus(), "-o", tokens, "--tokenizer", "bytes")
        process = self.begun("--data", tokens, "--save-every", 1, "--save", self.path("run"))
        with open(tokens, "r+b") as file:  # one id in place
            file.seek(100)
            file.write(b"x")
        for line in process.stderr:
            if line.startswith(b"warning: "):
                break
        self.assertRegex(line.decode(), rf"^warning: {tokens} was changed since the run began to read it: .* which compares the hash")
        self.wait_for_another_step(process)
        self.wait_for_another_step(process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 75, err)
        self.assertNotIn(b"warning", err)

    def test_commands_read_the_newest_checkpoint_of_a_run_that_replaces_it_meanwhile(self):
        folder, text = self.path("run"), self.write("held.txt", "a few words to measure")
        process = self.begun("--save", folder, "--save-every", 1, "--keep", 1)
        wait_for_save(process, folder)
        for _ in range(8):
            self.succeeds("inspect", folder)
            self.succeeds("eval", folder, "--data", text, "--threads", 1)
            self.succeeds("generate", folder, "--prompt", "a", "--tokens", 1, "--threads", 1)
            self.fails(2, "train", "--resume", folder, says=f"{os.path.realpath(folder)} is in use by process {process.pid}: ")
        process.kill()
        process.communicate(timeout=120)

    def test_a_folder_with_a_number_that_no_step_has_is_no_checkpoint(self):
        self.train("--steps", 1, "--save", self.path("run"))
        for name in ("step-99999999999999999999", "step-18446744073709551616.partial"):
            os.mkdir(self.path("run", name))
        done = self.resumed(self.path("run"), "--steps", 2)
        self.assertNotIn("not whole", done.err)
        self.succeeds("watch", self.path("run"), "--once")
        self.assertLessEqual({"step-2", "step-99999999999999999999", "step-18446744073709551616.partial"}, set(os.listdir(self.path("run"))))

    def test_runs_that_begin_at_once_have_folders_of_their_own(self):
        text = self.corpus()
        runs = [start("train", *TINY, "--data", text, "--steps", 1, "--seed", seed, cwd=self.folder) for seed in range(8)]
        for process in runs:
            _, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, err)
        folders = glob.glob(self.path("run-gpt2-pico-*"))
        self.assertEqual(len(folders), len(runs))
        self.assertEqual(len({self.hash_of(folder) for folder in folders}), len(runs))

    def test_a_run_starts_again_where_no_checkpoint_is_whole(self):
        train = ["train", *TINY, "--data", self.corpus(), "--steps", 3, "--save-every", 2, "--save", self.path("run")]
        whole = self.says_hash(self.succeeds(*train))
        os.remove(self.path("run", "step-3", "work.bin"))
        self.fails(2, *train, says="already holds step-3")  # step 2 is whole
        os.truncate(self.path("run", "step-2", "m.bin"), 100)
        self.fails(4, "train", "--resume", self.path("run"), says="or start the run again")
        again = self.succeeds(*train)
        self.assertEqual(self.says_hash(again), whole)
        for name in ("step-2", "step-3"):
            self.assertIn(f"{self.path('run', name)} is not whole: set aside as {self.path('run', name)}.broken", again.err)
            self.assertTrue(os.path.isdir(self.path("run", name + ".broken")))

    def test_a_run_goes_on_in_its_folder_without_a_lock(self):
        whole = self.train("--steps", 3, "--save", "none")
        self.train("--steps", 3, "--save", self.path("run"), "--save-every", 2)
        shutil.rmtree(self.path("run", "step-3"))
        os.remove(self.path("run", "lock"))
        # another run may not take what lies there
        self.is_refused(2, self.path("run"), "holds a data.tokens that no run wrote")
        done = self.succeeds("train", "--resume", self.path("run"), "--threads", 2)
        self.assertEqual(self.says_hash(done), self.says_hash(whole))
        self.assertIn("lock", os.listdir(self.path("run")))

    def test_unfinished_files_that_no_run_wrote_are_not_removed(self):
        for name in ("reserve.partial", "best.partial", "run.json.partial", "plan.json.partial", "data-old.tokens.partial-3",
                     "data.tokens.partial",
                     "validation.tokens.partial-3", "step-7.partial/m.bin", "tokenizer.partial-1-2/x", "data.2.tokens"):
            with self.subTest(name=name):
                folder = self.path(name.replace("/", "-"))
                os.makedirs(os.path.dirname(os.path.join(folder, name)))
                self.write(os.path.join(folder, name), "x")
                self.is_refused(2, folder, f"holds a {name.split('/')[0]} that no run wrote")
        killed = self.path("killed")  # a folder that was a run's is cleaned
        os.mkdir(killed)
        for name in ("lock", "reserve.partial", "data.tokens.partial-3"):
            self.write(os.path.join(killed, name), "1\n")
        self.train("--steps", 1, "--save", killed)
        self.assertFalse([name for name in os.listdir(killed) if "partial" in name])

    def test_links_are_neither_replaced_nor_written_through(self):
        for name in ("plan.json", "run.json", "steps.jsonl", "trace.bin", "data.tokens", "lock"):
            for target in ("nowhere", "precious.txt"):
                with self.subTest(name=name, target=target):
                    folder = self.path(name + target)
                    os.mkdir(folder)
                    self.write(os.path.join(folder, "precious.txt"), "")
                    os.symlink(target, os.path.join(folder, name))
                    self.is_refused(4, folder, f"holds a link {name}, which the run would replace or write through")
        self.train("--steps", 1, "--save", self.path("run"))
        shutil.rmtree(self.path("run", "step-1"))
        shutil.move(self.path("run", "steps.jsonl"), self.path("elsewhere"))
        os.symlink(self.path("elsewhere"), self.path("run", "steps.jsonl"))
        self.is_refused(4, self.path("run"), "holds a link steps.jsonl")

    def test_a_lock_that_is_no_run_s_stays_as_it_is(self):
        for name, make, code in (("long", lambda path: self.write(path, "".join(f"{i}\n" for i in range(1, 1001))), 2),
                                 ("a pipe", os.mkfifo, 2), ("a folder", os.mkdir, 2), ("text", lambda path: self.write(path, "\n1\n"), 2)):
            with self.subTest(name=name):
                os.mkdir(self.path(name))
                make(self.path(name, "lock"))
                self.is_refused(code, self.path(name), "holds a lock that no run wrote")
        os.mkdir(self.path("empty"))  # a run killed before it wrote its number, or somebody's
        self.write("empty/lock", "")
        mine = self.write("empty/steps.jsonl", "mine\n")
        self.is_refused(2, self.path("empty"), "holds a steps.jsonl that no run wrote")
        os.remove(mine)
        self.train("--steps", 1, "--save", self.path("empty"))
        shutil.rmtree(self.path("empty", "step-1"))
        os.truncate(self.path("empty", "lock"), 0)
        self.train("--steps", 1, "--save", self.path("empty"))  # run.json tells that it was a run's

    def test_a_link_best_that_names_no_checkpoint_stays(self):
        for before in ([], ["lock"]):
            folder = self.path("run" + "".join(before))
            os.mkdir(folder)
            for name in before:
                self.write(os.path.join(folder, name), "1\n")
            os.symlink("../dbest", os.path.join(folder, "best"))
            said = self.succeeds("train", *TINY, "--data", self.documents(), "--steps", 2, "--save", folder, "--keep-best",
                                 "--validation-split", 0.1, "--save-every", 1, "--validation-every", 1).err
            self.assertEqual(os.readlink(os.path.join(folder, "best")), "../dbest")
            self.assertIn("best is not a link to a checkpoint of the run and stays as it is", said)
            self.assertEqual("holds other files (best): they stay as they are" in said, not before)

    def test_data_in_the_folder_of_a_killed_run_is_not_replaced(self):
        other = self.documents()
        for when in ("before run.json", "after it"):
            for split in ([], ["--validation-split", 0.1]):
                folder = self.path(f"{when}{len(split)}")
                os.mkdir(folder)
                tokens = os.path.join(folder, "data.tokens")
                self.succeeds("tokenize", self.corpus(), "-o", tokens)
                shutil.copy(tokens, os.path.join(folder, "validation.tokens"))
                kept = self.content_of(folder)
                self.train("--steps", 1, "--save", self.path("whole"), "--validation", os.path.join(folder, "validation.tokens"))
                done = self.succeeds("train", *TINY, "--data", tokens, "--steps", 1, "--save", folder)
                self.assertNotIn("the tokens go into", done.err)
                shutil.rmtree(os.path.join(folder, "step-1"))
                shutil.rmtree(self.path("whole"))
                if when == "before run.json":
                    os.remove(os.path.join(folder, "run.json"))
                for _ in range(2):
                    done = self.succeeds("train", *TINY, "--data", other, "--steps", 1, "--save", folder, *split)
                    self.assertIn(f"the tokens go into {folder}/data.2.tokens, since nothing says that a run made data.tokens there", done.err)
                    found = self.content_of(folder)
                    self.assertEqual({name: found[name] for name in kept}, kept)
                    self.assertEqual([name for name in found if name.endswith(".3.tokens")], [])
                    self.resumed(folder, "--steps", 2)
                    for step in ("step-1", "step-2"):
                        shutil.rmtree(os.path.join(folder, step))
        # the run's own tokens are replaced
        run = self.path("own")
        for text in (self.corpus(), other):
            done = self.succeeds("train", *TINY, "--data", text, "--steps", 1, "--save", run)
            self.assertNotIn("the tokens go into", done.err)
            self.assertEqual(sorted(glob.glob(run + "/*.tokens")), [run + "/data.tokens"])
            shutil.rmtree(os.path.join(run, "step-1"))

    def test_data_with_the_name_of_a_file_of_the_run_is_not_replaced(self):
        for name in ("steps.jsonl", "data.tokens", "plan.json"):
            with self.subTest(name=name):
                folder = self.path(name)
                os.mkdir(folder)
                text = self.write(os.path.join(folder, name), "".join(f'{{"text": "{i} words of a text"}}\n' for i in range(400)))
                says = f"holds a {name} that no run wrote" if name == "data.tokens" else f"holds {name}, which this run reads and would replace"
                self.fails(2, "train", *TINY, "--data", text, "--steps", 1, "--save", folder, says=says)
                self.assertEqual(os.listdir(folder), [name])
                self.write(os.path.join(folder, "lock"), "1\n")  # as after a kill
                before = self.content_of(folder)
                if name != "data.tokens":
                    self.fails(2, "train", *TINY, "--data", text, "--steps", 1, "--save", folder, says=says)
                    self.assertEqual(self.content_of(folder), before)
                else:
                    self.succeeds("train", *TINY, "--data", text, "--steps", 1, "--save", folder)
                    self.assertEqual(self.content_of(folder)[name], before[name])

    def test_a_run_says_what_else_its_folder_holds_and_leaves_it(self):
        def notes(*flags):
            return re.findall("(?m)^note: --save .*", self.train("--steps", 1, *flags).err)
        mine = {name: self.write(name, name) for name in ("c d", "b.txt", ".hidden", "a\033.txt", "e")}
        found = notes("--save", self.folder)
        self.assertEqual(len(found), 1)
        self.assertIn(" other files (", found[0])
        self.assertNotIn("\033", found[0])
        shutil.rmtree(self.path("step-1"))
        self.assertEqual(notes("--save", self.folder), [f"note: --save {self.folder} holds the record of a run without a checkpoint: "
                                                        "this run replaces it"])
        for path in mine.values():
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), os.path.basename(path))
        os.mkdir(self.path("new"))
        self.assertEqual(notes("--save", self.path("new")), [])
        self.assertEqual(notes("--save", self.path("fresh")), [])
        os.mkdir(self.path("other"))
        for name in ("c", "b c", ".hidden"):
            self.write(f"other/{name}", name)
        self.assertEqual(notes("--save", self.path("other")), [f"note: --save {self.path('other')} holds other files ('b c', c): they "
                                                               "stay as they are, next to those of this run"])

    def test_two_runs_never_share_a_folder(self):
        process = start("train", *TINY, "--data", self.corpus(), "--steps", 100000, "--save", self.path("run"))
        for line in process.stderr:
            if line.startswith(b"step "):
                break
        self.fails(2, "train", *TINY, "--data", self.corpus(), "--save", self.path("run"),
                   says=f"in use by process {process.pid}")
        for command in (["eval", self.path("run"), "--data", self.corpus()], ["export", self.path("run"), "-o", self.path("o")],
                        ["inspect", self.path("run")], ["check", self.path("run")], ["generate", self.path("run"), "--prompt", "a"],
                        ["train", self.path("run"), "--data", self.corpus()], ["plan", self.path("run")]):
            self.fails(4, *command, says=f"has no checkpoint yet, and its run continues (process {process.pid})")
        os.mkdir(self.path("run", "step-"))
        for name in ("step-5", "step-x"):  # none of them is a checkpoint
            self.write(f"run/{name}", "")
        self.fails(4, "inspect", self.path("run"), says="has no checkpoint yet, and its run continues")
        for name in ("step-5", "step-x"):
            os.remove(self.path("run", name))
        # it has no checkpoint yet, but that is not the reason
        self.fails(2, "train", "--resume", self.path("run"), says=f"in use by process {process.pid}")
        process.kill()
        process.communicate(timeout=120)

    def test_a_folder_with_later_checkpoints_is_not_written_over(self):
        self.train("--steps", 2, "--save", self.path("run"))
        self.fails(2, "train", *TINY, "--data", self.corpus(), "--steps", 2, "--save", self.path("run"),
                   says="--resume")

    def test_no_run_is_kept_in_a_checkpoint(self):
        self.train("--steps", 1, "--save", self.path("run"))
        before = sorted(os.listdir(self.path("run", "step-1")))
        self.fails(2, "train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", self.path("run", "step-1"), says="holds manifest.json")
        self.assertEqual(sorted(os.listdir(self.path("run", "step-1"))), before)

    def test_a_later_checkpoint_is_set_aside_only_if_it_is_damaged(self):
        self.train("--steps", 2, "--save-every", 1, "--save", self.path("run"))
        first, manifest = self.path("run", "step-1"), self.path("run", "step-2", "manifest.json")
        self.write("run/step-2/manifest.json", '{"format": "cohobate checkpoint", "version": 4}')
        for resumed in (first, self.path("run")):
            self.fails(4, "train", "--resume", resumed, "--steps", 3, "--threads", 2, says="use a newer release")
        self.assertTrue(os.path.exists(manifest))
        os.remove(manifest)
        self.assertIn("step-2.broken", self.resumed(first, "--steps", 2).err)

    def test_every_damaged_checkpoint_of_one_step_is_set_aside(self):
        run, names = self.path("run"), ["step-2.broken", "step-2.broken.2", "step-2.broken.3"]
        whole = self.says_hash(self.train("--steps", 2, "--save-every", 1, "--save", run))
        for name in names:
            os.truncate(self.path("run", "step-2", "work.bin"), 5)
            done = self.resumed(run, "--steps", 2)
            self.assertIn(f"{run}/step-2 is not whole: set aside as {run}/{name}\n", done.err)
            self.assertEqual(self.says_hash(done), whole)
        self.assertEqual([name for name in sorted(os.listdir(run)) if "broken" in name], names)


if __name__ == "__main__":
    unittest.main()
