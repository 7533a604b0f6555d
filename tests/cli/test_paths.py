"""The same mistake with a path has the same exit code for all flags and commands: 2 if it does not exist, 4 if it is of
another type, 5 if the system refuses. Each gives one message that names flag and path."""

import os
import re
import shutil
import unittest

from program import COHOBATE, ProgramTest, environment, run

# The type that a flag or operand needs.
FLAGS = {
    "--data": "any", "--validation": "any", "--tokenizer": "any", "--plan": "file", "--pins": "file", "--kernels": "file",
    "--profile": "file", "--topology": "file", "--calibration": "kept file", "--disk": "folder", "--folder": "folder", "--adapter": "folder", "--resume": "model",
    "--save": "new folder", "--output": "new file", "--held-out-file": "new file", "--program": "new file",
    "--report": "new file", "--tune": "new file", "--log": "log", "--prompt-file": "text", "--prompts": "text", "--messages": "text",
    "--logits": "new file", "--tensorboard": "new folder",
}
OPERANDS = {
    "train": "model", "plan": "model", "tune": "model", "profile": "model", "generate": "model", "eval": "model",
    "export": "model", "tokenize": "any", "inspect": "any", "check": "any", "simulate": "file", "explain": "file",
    "trace": "model", "watch": "model", "report": "model", "diff": "model", "mix": "file", "doctor": None, "check-kind": None,
}
# A command up to its flags, with a valid operand.
BEGIN = {"train": ["gpt2-nano"], "plan": ["gpt2-nano"], "tune": ["gpt2-nano"], "profile": ["gpt2-nano"], "doctor": []}
READ = ("any", "file", "text", "folder", "model")


class Paths(ProgramTest):
    def setUp(self):
        super().setUp()
        self.text, self.empty = self.corpus(4), self.write("empty", "")
        os.mkdir(self.path("folder"))
        os.mkfifo(self.path("pipe"))
        os.symlink("nowhere", self.path("dangling"))
        os.symlink("loop", self.path("loop"))
        self.plan = self.path("plan.json")
        self.succeeds("plan", "gpt2-nano", "--sequence", 16, "--batch", 1, "-o", self.plan)
        self.succeeds("tokenize", self.text, "-o", self.path("ids.tokens"))
        self.begin = {**BEGIN, "generate": [self.folder], "eval": [self.folder], "export": [self.folder],
                      "tokenize": [self.text], "inspect": [self.text], "check": [self.text], "simulate": [self.plan],
                      "explain": [self.plan, "wte"], "trace": [self.folder], "report": [self.folder],
                      "diff": [self.folder, self.folder], "watch": [self.folder], "mix": [self.path("ids.tokens")]}

    def places(self):
        """Each path argument of each command: its name, the type it needs, and the arguments for a path."""
        for command, needs in OPERANDS.items():
            if needs:
                second = {"explain": ["wte"], "diff": [self.folder]}.get(command, [])
                yield "", needs, lambda path, c=command, s=second: [c, path, *s]
            for flag in self.flags_of(command):
                kind = "fresh folder" if (command, flag) == ("export", "--output") else FLAGS[flag]
                yield flag, kind, lambda path, c=command, f=flag: [c, *self.begin[c], f, path]

    @staticmethod
    def flags_of(command):
        """The flags that take a path, according to --help."""
        found = re.findall(r"^  (?:-\w, )?(--[\w-]+) ([^ ]+)", run(command, "--help").out, re.M)
        return [flag for flag, takes in found if re.search(r"\b(FILE|DIR|PATH|OUT)\b", takes)]

    def refused(self, code, path, kinds, says=""):
        for flag, needs, arguments in self.places():
            if needs not in kinds:
                continue
            with self.subTest(arguments=arguments(path)):
                done = self.fails(code, *arguments(path), says=says)
                self.assertIn(path[:40], done.err)
                self.assertIn("-o" if flag == "--output" else flag, done.err.split("\n")[-2])
                self.assertEqual(done.out, "")

    def test_no_flag_that_takes_a_path_is_forgotten(self):
        seen = set()
        for command in OPERANDS:
            flags = self.flags_of(command)
            self.assertEqual([flag for flag in flags if flag not in FLAGS], [], command)
            seen.update(flags)
        self.assertEqual(seen, set(FLAGS))
        self.assertEqual(sorted(OPERANDS), sorted(re.findall(r"^  ([\w-]+) ", run("--help").out, re.M)))

    def test_what_is_not_there_is_2(self):
        for path in (self.path("gone"), self.path("gone", "below"), self.path("dangling"), self.text + "/below"):
            self.refused(2, path, READ)

    def test_a_path_that_is_too_long_is_2(self):
        for path in (self.path("x" * 300), self.path("x/" * 3000)):
            self.refused(2, path, set(FLAGS.values()) | {"fresh folder"})

    def test_an_output_whose_folder_is_not_there_is_2_and_makes_none(self):
        before = sorted(os.listdir(self.folder))
        self.refused(2, self.path("gone", "below"), ("new file", "new folder", "fresh folder", "kept file", "log"),
                     says="is not there: make it")
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_a_file_where_a_folder_is_due_is_4(self):
        for path in (self.text, self.empty):
            self.refused(4, path, ("folder", "model", "new folder"), says=" file, and ")
        self.refused(4, self.text + "/below", ("new file", "new folder", "fresh folder", "kept file", "log"),
                     says="a file, and a folder is needed")

    def test_a_folder_where_a_file_is_due_is_4(self):
        self.refused(4, self.path("folder"), ("file", "text", "new file", "kept file", "log"), says="is a folder, and ")

    def test_a_device_or_a_pipe_where_a_file_or_folder_is_due_is_4_and_waits_for_nobody(self):
        for path, kind in (("/dev/zero", "a device"), ("/dev/null", "a device"), (self.path("pipe"), "a pipe")):
            self.refused(4, path, set(FLAGS.values()) - {"log", "text"}, says=f"{path} is {kind}, and ")
        self.refused(4, self.path("pipe"), ("any", "file"), says="read more than once: write what comes through it to a file")
        self.refused(5, self.path("pipe"), ("log",), says="a pipe without a reader")

    def test_a_link_where_a_new_file_is_due_is_4_and_stays(self):
        os.symlink(self.text, self.path("link"))
        for link in (self.path("link"), self.path("dangling")):
            self.refused(4, link, ("new file",), says="is a link, which the finished file would replace")
            self.assertTrue(os.path.islink(link))

    def test_an_empty_file_where_something_must_be_in_it_is_4(self):
        self.refused(4, self.empty, ("file", "kept file"), says="an empty file")

    def test_what_the_system_refuses_is_5(self):
        self.refused(5, self.path("loop"), set(FLAGS.values()))

    def test_a_file_system_that_takes_no_file_is_5_before_anything_runs(self):
        """Not even root can make a file in /proc."""
        self.refused(5, "/proc/cohobate", ("new file", "new folder", "fresh folder", "log"), says="no file can be made in the folder /proc: ")
        for command in ("train", "eval", "generate", "profile"):
            done = self.fails(5, command, *self.begin[command], "--disk", "/proc", says="--disk /proc: no file can be made in it: ")
            self.assertEqual(done.err.count("\n"), 1)
        self.fails(5, "train", "gpt2-nano", "--data", self.text, "--save", "/proc", says="--save /proc: no file can be made in it: ")

    def as_another(self):
        """The keywords that run the program as another user than root."""
        os.chmod(self.folder, 0o755)
        shutil.copy(COHOBATE, self.path("cohobate"))
        os.mkdir(self.path("counts"))
        os.chown(self.path("counts"), 65534, 65534)  # a build with gcov writes there, and else prints that it cannot
        keywords = {"program": self.path("cohobate"), "user": 65534, "group": 65534,
                    "env": environment(GCOV_PREFIX=self.path("counts"))}
        try:
            run("--version", **keywords)
        except PermissionError as error:
            self.skipTest(f"no other user can run a program here: {error}")
        return keywords

    def test_a_folder_without_rights_is_named_by_the_flag_and_the_path_that_were_given(self):
        """As root the program is run as another user, who has no rights to the folder."""
        os.mkdir(self.path("closed"), 0o755)
        self.write("closed/there.html", "<!doctype html>\n<!-- cohobate report -->\n")
        keywords = {}
        if os.geteuid() == 0:
            keywords = self.as_another()
        else:
            os.chmod(self.path("closed"), 0o555)
            self.addCleanup(os.chmod, self.path("closed"), 0o755)
        begin = {**self.begin, "train": ["gpt2-nano", "--data", self.text]}
        tried = 0
        for command in OPERANDS:
            for flag in self.flags_of(command):
                if FLAGS[flag] not in ("new file", "new folder", "log"):
                    continue
                for path in ("fresh", "there.html"):
                    if path == "there.html" and (FLAGS[flag] != "new file" or flag == "--output" and command == "export"):
                        continue
                    with self.subTest(command=command, flag=flag, path=path):
                        done = self.fails(5, command, *begin[command], flag, path, cwd=self.path("closed"), **keywords,
                                          says=f"{'-o' if flag == '--output' else flag} {path} cannot be written: no file can be made in the folder .: ")
                        self.assertEqual(done.out, "")
                        tried += 1
        self.assertGreater(tried, 20)
        for command in ("train", "eval", "generate", "profile"):
            self.fails(5, command, *begin[command], "--disk", self.path("closed"), **keywords,
                       says=f"--disk {self.path('closed')}: no file can be made in it: ")

    @unittest.skipIf(os.geteuid() != 0, "only root can make the file of another user")
    def test_another_users_file_in_a_sticky_folder_is_5_before_anything_runs(self):
        keywords = self.as_another()
        os.mkdir(self.path("sticky"))
        os.chmod(self.path("sticky"), 0o1777)
        shutil.copy(self.plan, self.path("sticky", "plan.json"))
        plan = ["plan", "gpt2-nano", "--sequence", 16, "--batch", 1, "-o", self.path("sticky", "plan.json")]
        said = self.fails(5, *plan, **keywords, says=f"-o {self.path('sticky', 'plan.json')} cannot be replaced: ")
        self.assertEqual(said.out, "")
        self.succeeds(*plan)  # as root
        os.chown(self.path("sticky", "plan.json"), 65534, 65534)
        self.succeeds(*plan, **keywords)
        os.chown(self.path("sticky", "plan.json"), 0, 0)
        os.chown(self.path("sticky"), 65534, 65534)
        self.succeeds(*plan, **keywords)

    @unittest.skipIf(os.geteuid() == 0, "root may read and write everything")
    def test_what_may_not_be_read_or_written_is_5(self):
        for path in (self.text, self.plan):
            os.chmod(path, 0)
            self.refused(5, path, ("any", "file", "text", "kept file"))
        os.chmod(self.path("folder"), 0)
        self.refused(5, self.path("folder"), ("any", "folder", "model"))
        self.refused(5, self.path("folder", "new"), ("new file", "new folder", "fresh folder", "log"))


if __name__ == "__main__":
    unittest.main()
