"""Checkpoints of runs with frozen parameters: they share one file of them, and the space reserved counts it once."""

import glob
import json
import os
import shutil
import unittest

from program import FAULTY, TINY, TrainTest, environment, run, start, wait_for_save, wait_for_step

LORA = ["--lora", "2"]


class Frozen(TrainTest):
    def file(self, *names):
        return os.stat(self.path(*names, "frozen.bin"))

    def bytes_of(self, *names):
        """Sizes of a checkpoint's files."""
        folder = self.path(*names)
        return {name: os.stat(os.path.join(folder, name)).st_size for name in os.listdir(folder)}

    def allocated(self, *names):
        """Bytes on disk of a run's folder; a file with two names counts once."""
        found = {}
        for path in glob.glob(os.path.join(self.path(*names), "step-*", "*")):
            facts = os.stat(path)
            found[facts.st_ino] = facts.st_size
        return sum(found.values())

    def test_a_run_and_its_continuation_write_frozen_parameters_once(self):
        for dtype, width in (("f32", 4), ("bf16", 2)):
            with self.subTest(dtype):
                name = "run-" + dtype
                flags = ["--dtype", dtype, "--schedule-steps", 6]
                whole = self.train(*LORA, *flags, "--steps", 6, "--save", "none")
                self.train(*LORA, *flags, "--steps", 4, "--save-every", 1, "--keep", 3, "--save", self.path(name))
                self.assertEqual(len({self.file(name, f"step-{n}").st_ino for n in (2, 3, 4)}), 1)
                self.assertEqual(self.file(name, "step-4").st_nlink, 3)
                sizes = self.bytes_of(name, "step-4")
                self.assertGreater(sizes["frozen.bin"], 10 * sizes["work.bin"])
                self.assertLess(self.allocated(name), 2 * sizes["frozen.bin"])
                before = self.file(name, "step-4").st_ino
                done = self.resumed(self.path(name), "--steps", 6)
                self.assertEqual(self.says_hash(done), self.says_hash(whole))
                self.assertEqual(self.hash_of(self.path(name)), self.says_hash(whole))
                self.assertEqual(self.file(name, "step-6").st_ino, before)
                with open(self.path(name, "step-6", "manifest.json"), encoding="utf-8") as file:
                    manifest = json.load(file)
                self.assertEqual((manifest["version"], manifest["frozen"]), (3, dtype))
                frozen = sum(tensor["shape"][0] * (tensor["shape"] + [1])[1] for tensor in manifest["tensors"] if not tensor["optimizer"])
                self.assertEqual(sizes["frozen.bin"], width * frozen)
                self.assertIn(f"frozen.bin: {sizes['frozen.bin']}", "".join(f"{k}: {v}" for k, v in manifest["files"].items()))
                for step in ("step-4", "step-5", "step-6", "."):
                    self.succeeds("check", self.path(name, step))
                for command in (["inspect"], ["eval", "--data", self.corpus()], ["generate", "--prompt", "a", "--tokens", "2"],
                                ["export", "-o", self.path("out-" + dtype), "--merge-lora"]):
                    self.succeeds(command[0], self.path(name), *command[1:])

    def test_a_checkpoint_without_frozen_parameters_has_no_file_of_them(self):
        self.train("--steps", 1, "--save", self.path("run"))
        with open(self.path("run", "step-1", "manifest.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["version"], 2)
        self.assertNotIn("frozen.bin", self.bytes_of("run", "step-1"))

    def test_a_copied_run_goes_on_and_writes_the_file_once(self):
        self.train(*LORA, "--steps", 2, "--save-every", 1, "--save", self.path("run"))
        shutil.copytree(self.path("run"), self.path("copy"))
        self.assertEqual(self.file("copy", "step-2").st_nlink, 1)
        self.resumed(self.path("copy"), "--steps", 4)
        self.assertEqual(self.file("copy", "step-4").st_ino, self.file("copy", "step-2" if
                         os.path.exists(self.path("copy", "step-2")) else "step-3").st_ino)
        # another folder on the same file system shares, too
        self.resumed(self.path("run"), "--steps", 3, "--save", self.path("other"))
        self.assertEqual(self.file("other", "step-3").st_ino, self.file("run", "step-2").st_ino)
        shutil.rmtree(self.path("run"))
        self.succeeds("check", self.path("other"))

    def test_ranks_and_new_optimizer_states_share_it(self):
        ranks = ["--replicas", 2, "--ranks", 2, "--gradients", "f32"]
        self.train(*LORA, *ranks, "--steps", 2, "--save-every", 1, "--save", self.path("run"))
        self.assertEqual(self.file("run", "step-1").st_ino, self.file("run", "step-2").st_ino)
        self.succeeds("check", self.path("run"))
        self.resumed(self.path("run"), "--reset-optimizer", "--steps", 3)
        self.assertEqual(self.file("run", "step-3").st_ino, self.file("run", "step-2").st_ino)

    def test_a_link_that_fails_costs_nothing_but_the_bytes(self):
        """On a file system without links, for which a fault stands in, each save writes the file."""
        # the operations of the second save are those after the first one's, which are as many as an engine that dies there counts
        n = 0
        for n in range(1, 120):
            shutil.rmtree(self.path("run"), ignore_errors=True)
            done = run("train", *TINY, "--data", self.corpus(), *LORA, "--steps", 2, "--save-every", 1, "--save", self.path("run"),
                       program=FAULTY, env=environment(COH_TEST_FAIL_AT=f"{n}:1"))
            if "cannot share frozen.bin" in done.err:
                break
        else:
            self.fail("no operation was a link")
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual((self.file("run", "step-1").st_nlink, self.file("run", "step-2").st_nlink), (1, 1))
        for step in ("step-1", "step-2"):
            self.succeeds("check", self.path("run", step))

    # ---- space ----

    def held(self, process):
        folder = f"/proc/{process.pid}/fd"
        for name in os.listdir(folder):
            try:
                if os.readlink(os.path.join(folder, name)).endswith("/reserve.partial (deleted)"):
                    return os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass
        return 0

    def held_by(self, *arguments, folder, step):
        process = start(*arguments)
        wait_for_step(process, folder, step)
        self.assertIsNone(process.poll(), process.poll() is not None and process.stderr.read())
        held = self.held(process)
        process.kill()
        process.communicate(timeout=120)
        if held == 0:
            self.skipTest("this file system cannot reserve")
        return held

    def test_the_space_reserved_counts_frozen_parameters_once(self):
        train = ["train", *TINY, "--data", self.corpus(), *LORA, "--steps", 100000]
        planned = self.succeeds("plan", *TINY, *LORA, "--json").json
        once, each = planned["save_frozen_bytes"], planned["save_bytes"] - planned["save_frozen_bytes"]
        self.assertGreater(once, each)
        for flags, count in (([], 1), (["--save-every", 50000, "--keep", 1], 2), (["--save-every", 20000, "--keep", 4], 5)):
            with self.subTest(flags=flags):
                run_folder = self.path(f"run-{count}")
                held = self.held_by(*train, *flags, "--save", run_folder, folder=run_folder, step=1)
                self.assertEqual(held, once + count * each)
        self.train(*LORA, "--steps", 1, "--save", self.path("run"))
        more = ["train", "--resume", self.path("run"), "--threads", 2, "--steps", 100000, "--save-every", 20000, "--keep", 4]
        self.assertEqual(self.held_by(*more, folder=self.path("run"), step=2), 4 * each)
        self.assertFalse(os.path.exists(self.path("run", "reserve.partial")))
        # the first save takes the shared file's space along
        process = start(*train, "--save-every", 1, "--keep", 2, "--save", self.path("many"))
        wait_for_save(process, self.path("many"), 5)
        self.assertLessEqual(self.held(process), 2 * each)
        process.kill()
        process.communicate(timeout=120)

    def test_a_run_says_what_its_checkpoints_take(self):
        line = [line for line in self.train(*LORA, "--steps", 2, "--save-every", 1, "--save", self.path("run")).err.split("\n")
                if line.startswith("keeps:")]
        self.assertRegex(line[0], r", [\d.]+ [kKM]i?B each and once [\d.]+ [kKM]i?B of frozen parameters$")
        line = [line for line in self.train("--steps", 1, "--save", self.path("other")).err.split("\n") if line.startswith("keeps:")]
        self.assertRegex(line[0], r", [\d.]+ [kKM]i?B$")


if __name__ == "__main__":
    unittest.main()
