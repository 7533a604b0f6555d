"""A run that fails outside the engine (data that cannot be read, steps without numbers) saves its last step."""

import os
import re
import shlex
import unittest

from program import FAULTY, QUICK, TINY, TrainTest, environment, last_save, lines_of, run, start, wait_for_step

MANY = 100000  # more steps than a test waits for


class TrainFailed(TrainTest):
    def tokens(self, name):
        self.succeeds("tokenize", self.corpus(), "-o", self.path(name))
        return self.path(name)

    def cut_while_it_trains(self, tokens, *flags, **keywords):
        """Runs until `tokens` is cut short; returns the last sentence, the steps that were done, and the file's bytes."""
        with open(tokens, "rb") as file:
            whole = file.read()
        process = start("train", *TINY, "--steps", MANY, "--save", self.path("run"), *flags, **keywords)
        wait_for_step(process, self.path("run"), 3)
        os.truncate(tokens, 100)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 4, err)
        sentence = err.decode().strip().split("\n")[-1]
        self.assertRegex(sentence, rf": {tokens} ends at byte \d+, \d+ bytes? too early; ")
        return sentence, lines_of(self.path("run", "steps.jsonl"))[-1]["step"], whole, err.decode()

    def test_data_that_ends_early_costs_no_step_and_the_run_goes_on_once_it_is_back(self):
        streamed = ["--device-memory", "6MiB", "--disk", self.folder]
        for name, flags in (("plain", []), ("streamed", streamed), ("previous", [*streamed, "--clip-mode", "previous"]),
                            ("speculating", [*streamed, "--clip-mode", "speculate", "--clip", 0.05]),
                            ("ranks", ["--ranks", 2, "--replicas", 2, "--gradients", "f32"])):
            with self.subTest(name=name):
                tokens, folder = self.tokens(name), self.path("run")
                sentence, step, whole, _ = self.cut_while_it_trains(tokens, "--data", tokens, *flags)
                self.assertEqual(last_save(folder), step)
                found = re.search(rf"; step {step} is saved: go on from {folder}/step-{step} with: cohobate (train --resume .*)$",
                                  sentence)
                self.assertTrue(found, sentence)
                self.succeeds("check", folder)
                go_on = [*shlex.split(found[1]), "--steps", step + 2]
                self.fails(4, *go_on)
                with open(tokens, "wb") as file:
                    file.write(whole)
                more = self.succeeds("train", *TINY, "--data", tokens, "--steps", step + 2, "--schedule-steps", MANY, "--save",
                                     "none", *flags)
                self.assertEqual(self.says_hash(self.succeeds(*go_on)), self.says_hash(more))
                os.rename(folder, self.path(f"run-{name}"))

    def test_a_validation_that_cannot_be_read_costs_no_step(self):
        tokens = self.tokens("held.tokens")
        sentence, step, _, _ = self.cut_while_it_trains(tokens, "--data", self.corpus(), "--validation", tokens,
                                                        "--validation-every", 1, "--validation-windows", 4)
        self.assertIn(f"; step {step} is saved: go on from {self.path('run')}/step-{step} with: ", sentence)
        self.assertEqual(self.says_hash(self.resumed(self.path("run"), "--steps", step + 1, "--validation", "none")),
                         self.says_hash(self.train("--steps", step + 1, "--schedule-steps", MANY, "--save", "none")))

    def test_a_save_that_fails_after_the_data_leaves_the_first_failure_the_last_sentence(self):
        tokens = self.tokens("ids.tokens")
        sentence, step, _, err = self.cut_while_it_trains(tokens, "--data", tokens, program=FAULTY,
                                                          env=environment(COH_TEST_FAIL_AT="9:28"))
        self.assertIn(f"; the result of steps 1 to {step} is lost: start again", sentence)
        self.assertRegex(err, rf"(?m)^warning: step {step} could not be saved: .*No space left on device")
        self.assertEqual(last_save(self.path("run")), 0)

    def without_numbers(self, *flags):
        done = run("train", *TINY, "--data", self.corpus(), "--steps", 60, "--lr", "1e6", "--warmup", 0, *flags,
                   "--save", self.path("run"))
        self.assertEqual(done.code, 1, done.err)
        saved = {int(name[5:]) for name in os.listdir(self.path("run")) if name.startswith("step-")}
        return done.err.strip(), lines_of(self.path("run", "steps.jsonl"))[-1]["step"], saved

    def test_ten_steps_without_numbers_are_saved_if_nothing_else_is(self):
        err, step, saved = self.without_numbers()
        self.assertTrue(err.endswith(f": lower --lr; step {step} is saved: {self.path('run')}/step-{step}"), err)
        self.assertEqual(saved, {step})
        self.succeeds("check", self.path("run"))
        more = self.succeeds("train", "--resume", self.path("run"), *QUICK, "--threads", 2, "--steps", step + 1, "--lr", 0)
        self.assertIn(f"step-{step}, step {step}", more.err)

    def test_ten_steps_without_numbers_do_not_replace_the_checkpoint_before(self):
        """Their weights are finite, but may be of no use, and a resumed run takes and keeps the newest checkpoint."""
        every = 7
        err, step, saved = self.without_numbers("--save-every", every, "--keep", 1)
        self.assertTrue(err.endswith(": lower --lr; the last checkpoint is whole"), err)
        self.assertEqual(saved, {step - step % every})
        self.succeeds("check", self.path("run"))


if __name__ == "__main__":
    unittest.main()
