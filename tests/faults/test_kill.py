"""Training runs that are killed: by kill -9 at random moments, by _exit and by a power cut at random file operations of
their saves, and by a failing disk. Each resumes from what is left and ends with the hash of the undisturbed run; a
failing disk gives one message and the right exit code.

    test_kill.py COHOBATE KILLS SEED DTYPE[+lora]

With lora the checkpoints share a file of frozen parameters.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

KILLS, SEED = (int(word) for word in sys.argv[2:4])
DTYPE, _, LORA = sys.argv[4].partition("+")
del sys.argv[2:5]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from program import FAULTY, QUICK, SHORT, NANO, ProgramTest, environment, start  # pylint: disable=wrong-import-position

if SHORT:
    KILLS = min(KILLS, 3)  # usually one in memory and two streamed

STEPS = 4 if SHORT else 6
SYNC_MS = 60  # of a slow drive, for each of
FLUSHES = 7  # a checkpoint
DEAD = 86  # exit code of the test modes (file_faults.h)
# A second process that dies must not block the first one forever.
HANG_S = 200


def folder_of_runs():
    """In memory if there is room: a kill loses no page, so a disk proves nothing more, and its flushes take long."""
    shared = "/dev/shm"
    return shared if os.path.isdir(shared) and shutil.disk_usage(shared).free > 2 << 30 else None


class Killed(ProgramTest):
    undisturbed = None  # (hash, seconds), the same for every test

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cohobate-kill-", dir=folder_of_runs())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.text = self.corpus()
        self.random = random.Random(SEED)
        # In turn: in memory; streamed through a third of that, over two folders; through less, with steps that are clipped
        # run twice. All have the same bits.
        os.mkdir(self.path("disk"))
        self.budgets = [[], ["--device-memory", "64MiB", "--disk", self.folder, "--disk", self.path("disk")],
                        ["--device-memory", "32MiB", "--disk", self.folder, "--clip-mode", "speculate"]]
        # Masks must be those of the step, whichever process runs it.
        dropout = ["--dropout", "0.1"] if DTYPE == "bf16" else []
        lora = ["--lora", "4"] if LORA else []
        self.new_run = ["train", *NANO, "--dtype", DTYPE, *lora, *dropout, "--data", self.text, "--steps", STEPS, "--save-every", 1, "--clip", "0.5"]

    def whole_run(self):
        if Killed.undisturbed is None:
            begin = time.monotonic()
            done = self.succeeds(*self.new_run, "--save", self.path("whole"))
            Killed.undisturbed = self.says_hash(done), time.monotonic() - begin
            shutil.rmtree(self.path("whole"))
        return Killed.undisturbed[0]

    def go_on(self, folder):
        """The command that resumes the run in `folder`, whatever it contains."""
        if any(re.fullmatch(r"step-\d+", name) for name in os.listdir(folder)):
            return ["train", "--resume", folder, *QUICK, "--steps", STEPS, "--save-every", 1, "--threads", 2]
        return [*self.new_run, "--save", folder]

    def check_left(self, folder):
        """A folder named step-<n> is a complete checkpoint, except an old one whose removal had begun."""
        steps = sorted((int(name[5:]) for name in os.listdir(folder) if re.fullmatch(r"step-\d+", name)), reverse=True)
        if steps:
            self.succeeds("check", os.path.join(folder, f"step-{steps[0]}"))
        return steps[0] if steps else 0

    def finish(self, folder, expected):
        was_over = self.check_left(folder) == STEPS
        if not was_over:
            self.assertEqual(self.says_hash(self.succeeds(*self.go_on(folder))), expected)
        self.assertEqual(self.succeeds("inspect", folder, "--hash").out.strip(), expected)
        left = sorted(name for name in os.listdir(folder) if name.startswith("step-"))
        # Killed after the last save, it may not have removed the oldest one.
        self.assertEqual(left[-2:] if was_over else left, [f"step-{STEPS - 1}", f"step-{STEPS}"])
        shutil.rmtree(folder)

    def is_saving_beside_steps(self, folder):
        """Was a later step recorded than that of the unfinished checkpoint in `folder`?"""
        saving = [int(name[5:-8]) for name in os.listdir(folder) if re.fullmatch(r"step-\d+\.partial", name)]
        try:
            with open(os.path.join(folder, "steps.jsonl"), encoding="utf-8") as file:
                steps = [int(step) for step in re.findall(r'"step": ?(\d+)', file.read())]
        except FileNotFoundError:
            steps = []
        return bool(saving and steps and steps[-1] > saving[0])

    def test_runs_killed_at_random_moments_end_with_the_hash_of_the_whole_run(self):
        expected = self.whole_run()
        kills, runs, _ = self.kill_runs(expected, Killed.undisturbed[1])
        print(f"figure: {kills} kills in {runs} runs of {STEPS} steps, {DTYPE}, each ended with {expected}")

    def test_runs_killed_while_a_slow_drive_takes_their_saves_do_so_too(self):
        expected = self.whole_run()
        seconds = Killed.undisturbed[1] + STEPS * FLUSHES * SYNC_MS / 1000
        kills, runs, beside = self.kill_runs(expected, seconds, program=FAULTY, env=environment(COH_TEST_SYNC_MS=str(SYNC_MS)))
        print(f"figure: {kills} kills in {runs} runs of {STEPS} steps on a slow drive, {beside} of them beside a save, {DTYPE}, "
              f"each ended with {expected}")

    def kill_runs(self, expected, seconds, **how):
        """Kills runs that take some seconds at random moments, KILLS times. Returns kills, runs, and kills of a run
        that had gone on beside a save."""
        kills, runs, attempts, beside = 0, 0, 0, 0
        while kills < KILLS:
            runs += 1
            folder = self.path(f"run-{runs}")
            os.mkdir(folder)
            while kills < KILLS and attempts < 4 * KILLS + 20:
                attempts += 1
                process = start(*self.go_on(folder), *self.budgets[attempts % 3], **how)
                try:
                    process.communicate(timeout=self.random.uniform(0, 0.7 * seconds))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate(timeout=HANG_S)
                    self.assertEqual(process.returncode, -9)
                    kills += 1
                    beside += self.is_saving_beside_steps(folder)
                    if self.check_left(folder) == STEPS:
                        break
                    continue
                self.assertEqual(process.returncode, 0)
                break
            self.finish(folder, expected)
            self.assertLess(attempts, 4 * KILLS + 20, "the runs are over before they are killed")
        return kills, runs, beside

    def dies(self, folder, variable, value):
        """Runs until it dies. False if the run has fewer operations than that."""
        process = start(*self.go_on(folder), program=FAULTY, env=environment(**{variable: value}))
        _, err = process.communicate(timeout=HANG_S)
        self.assertIn(process.returncode, (0, DEAD), err)
        return process.returncode == DEAD

    def test_runs_that_lose_power_or_die_in_a_save_end_with_the_hash_of_the_whole_run(self):
        expected = self.whole_run()
        times = max(2, KILLS // 4)
        for variable in ("COH_TEST_POWER_CUT_AT", "COH_TEST_EXIT_AT"):
            dead = 0
            folder = self.path(variable)
            os.mkdir(folder)
            for seed in range(times):
                value = str(self.random.randint(1, 700))
                dead += self.dies(folder, variable, value + (f":{seed}" if "POWER" in variable else ""))
                if self.check_left(folder) == STEPS:
                    break
            self.assertGreater(dead, 0)
            self.finish(folder, expected)
            print(f"figure: {variable}: {dead} deaths of gpt2-nano, each went on")

    @unittest.skipIf(SHORT and DTYPE != "f32", "in full only: a failing file operation knows no dtype")
    def test_a_disk_that_fails_in_the_last_save_gives_the_right_exit_code(self):
        folder = self.path("run")
        for code, how in ((5, ""), (5, ":28")):  # EIO; ENOSPC
            at = self.random.randint(1, 100)
            self.fails(code, "train", *NANO, "--data", self.text, "--steps", 2, "--save", folder,
                       program=FAULTY, env=environment(COH_TEST_FAIL_AT=f"{at}{how}"))
            self.assertEqual([name for name in os.listdir(folder) if name.startswith("step-")], [])

    @unittest.skipIf(SHORT and DTYPE != "f32", "in full only: a failing file operation knows no dtype")
    def test_a_disk_that_fails_in_a_save_on_the_way_costs_that_checkpoint_only(self):
        expected = self.whole_run()
        for how in ("", ":28", ":short"):
            folder = self.path("run" + how)
            os.mkdir(folder)
            at = self.random.randint(1, 100)
            done = self.succeeds(*self.go_on(folder), program=FAULTY, env=environment(COH_TEST_FAIL_AT=f"{at}{how}"))
            self.assertEqual(self.says_hash(done), expected)
            self.assertEqual("nothing was saved after step 1:" in done.err, how != ":short")
            self.finish(folder, expected)


if __name__ == "__main__":
    unittest.main()
