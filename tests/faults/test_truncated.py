"""Checkpoints with a truncated or missing file, truncated anywhere: every command that reads checkpoints exits 4 with
one message that names the checkpoint. A run folder with an older complete one resumes from that."""

import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from program import TINY, ProgramTest  # pylint: disable=wrong-import-position

FILES = ["work.bin", "m.bin", "v.bin", "hashes.bin", "manifest.json"]


class Truncated(ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.corpus()
        self.succeeds("train", *TINY, "--data", self.text, "--steps", 1, "--schedule-steps", 3, "--save", self.path("run"))
        self.whole = self.path("run", "step-1")

    def damaged(self, name):
        """A run folder with one checkpoint: the original's files, with a copy of `name` to be truncated."""
        folder = self.path("cut")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.join(folder, "step-1"))
        for file in FILES:
            place = os.path.join(folder, "step-1", file)
            (shutil.copy if file == name else os.link)(os.path.join(self.whole, file), place)
        shutil.copy(self.path("run", "data.tokens"), folder)
        return folder, os.path.join(folder, "step-1", name)

    def refused(self, folder):
        step = os.path.join(folder, "step-1")
        commands = [
            ("train", "--resume", folder, "--steps", 2),
            ("train", "--resume", step, "--steps", 2),
            ("inspect", step),
            ("inspect", folder, "--hash"),
            ("check", step),
            ("eval", step, "--data", self.text),
            ("generate", folder, "--prompt", "line", "--tokens", 1),
        ]
        for command in commands:
            self.fails(4, *command, says=folder)
        return len(commands)

    def test_a_file_cut_off_anywhere_is_bad_data_to_every_command(self):
        count = 0
        for name in FILES:
            folder, file = self.damaged(name)
            length = os.path.getsize(file)
            for cut in (length - 1, length - 8, length // 2, 4096, 1, 0):
                if cut < length:
                    os.truncate(file, cut)
                    count += self.refused(folder)
            os.remove(file)
            count += self.refused(folder)
        print(f"figure: {count} commands refused a checkpoint that was cut off")

    def test_a_file_that_grew_is_bad_data_too(self):
        for name in FILES:
            folder, file = self.damaged(name)
            with open(file, "ab") as grown:
                grown.write(b"\0")
            self.refused(folder)

    def test_a_run_with_an_older_whole_checkpoint_goes_on_from_that(self):
        whole = self.succeeds("train", *TINY, "--data", self.text, "--steps", 3, "--save", "none")
        self.succeeds("train", "--resume", self.path("run"), "--steps", 2)
        for name in FILES:
            folder = self.path("fork")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.path("run"), folder, copy_function=os.link)
            file = os.path.join(folder, "step-2", name)
            os.remove(file)
            with open(file, "wb") as cut, open(os.path.join(self.path("run"), "step-2", name), "rb") as source:
                cut.write(source.read()[:-5])
            done = self.succeeds("train", "--resume", folder, "--steps", 3)
            self.assertIn("step-1, step 1", done.err)
            self.assertEqual(self.says_hash(done), self.says_hash(whole))


if __name__ == "__main__":
    unittest.main()
