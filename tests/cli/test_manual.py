"""Man pages and completions, made from the table of flags, against what --help prints: test_manual.py COHOBATE MANUAL.

Exits with 77 if groff, zsh or fish is missing, after all that can be checked without them."""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

MANUAL = sys.argv.pop(2)
from program import ProgramTest  # noqa: E402 pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[2]
missing = [name for name in ("groff", "zsh", "fish") if shutil.which(name) is None]


def made(*arguments):
    return subprocess.run([MANUAL, *arguments], check=True, capture_output=True, text=True).stdout


def needs(program):
    return unittest.skipIf(program in missing, f"{program} is not installed")


class Manual(ProgramTest):
    def commands(self):
        text = self.succeeds("--help").out
        return re.findall(r"^  ([\w-]+) +\S", text.split("usage:")[1], re.M)

    def flags(self, command):
        """[long name] of the flags that --help lists."""
        text = self.succeeds(command, "--help").out.split("\nflags:\n")[1].split("\nexamples:")[0]
        found = re.findall(r"^  (?:-\w, )?--([\w-]+)", text, re.M)
        self.assertIn("help", found)
        return found

    # ---- man pages ----

    def test_each_command_has_an_installed_page_with_all_its_flags_and_examples(self):
        installed = re.search(r"cli_command_names = \[(.*?)\]", (ROOT / "cli" / "meson.build").read_text(), re.S)[1]
        self.assertEqual(sorted(re.findall(r"'([\w-]+)'", installed)), sorted(self.commands()))
        for command in self.commands():
            with self.subTest(command):
                page = made("man", command).replace("\\-", "-")
                options = page.split(".SH OPTIONS")[1].split(".SH EXAMPLES")[0]
                self.assertEqual(re.findall(r"\\fB--([\w-]+)", options), self.flags(command))
                first = self.succeeds(command, "--help").out.split("\nexamples:\n")[1].split("\n")[0]
                self.assertIn(first.replace("'", "\\(aq"), page)

    def test_the_page_of_the_program_names_each_command_and_exit_code(self):
        page = made("man").replace("\\-", "-")
        self.assertEqual(re.findall(r"\\fBcohobate-([\w-]+)\\fR\(1\)", page), self.commands())
        self.assertIn("75 stopped and resumable", page)

    def test_the_page_of_the_library_names_each_header(self):
        page = (ROOT / "docs" / "libcohobate.7").read_text()
        for header in (ROOT / "include" / "cohobate").glob("*.h"):
            self.assertRegex(page, rf"\b{re.escape(header.name)}\b")

    @needs("groff")
    def test_groff_has_nothing_to_warn_of(self):
        pages = [made("man"), (ROOT / "docs" / "libcohobate.7").read_text(), *(made("man", each) for each in self.commands())]
        for page in pages:
            done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou"], input=page, capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "", page[:60])
            self.assertIn("SEE ALSO", done.stdout)

    # ---- completions ----

    def completed(self, shell, script, *arguments):
        path = self.write(f"completions.{shell}", made(shell))
        done = subprocess.run([shell, "-c", script, shell, path, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), script)
        return done.stdout.splitlines()

    def check_answers(self, complete):
        """complete(word...) returns the candidates for the last word."""
        self.assertLessEqual(set(self.commands()), set(complete("")))
        self.assertEqual(complete("doc"), ["doctor"])
        for command in self.commands():
            self.assertEqual(sorted(set(complete(command, "--"))), sorted(f"--{name}" for name in set(self.flags(command))))
        self.assertEqual(complete("train", "--dtype", "b"), ["bf16"])
        self.assertEqual(sorted(complete("export", "x", "--dtype", "")), ["bf16", "f16", "f32"])
        self.assertEqual(complete("plan", "--sweep-order", "m"), ["micro-batch"])
        self.assertEqual(complete("plan", "llama-2-70"), ["llama-2-70b"])
        self.assertEqual(complete("plan", "gpt2", "--profile", "a100-80"), ["a100-80g"])

    def test_bash_offers_commands_flags_and_values(self):
        script = '. "$1"; shift; COMP_WORDS=(cohobate "$@"); COMP_CWORD=$#; _cohobate; printf "%s\\n" "${COMPREPLY[@]}"'
        self.check_answers(lambda *words: self.completed("bash", script, *words))
        self.write("corpus.txt", "")
        found = self.completed("bash", f'cd "{self.folder}"; {script}', "train", "--data", "corp")
        self.assertEqual(found, ["corpus.txt"])

    @needs("fish")
    def test_fish_offers_commands_flags_and_values(self):
        script = 'source $argv[2]; complete -C (string join -- " " cohobate $argv[3..])'
        def complete(*words):
            return [line.split("\t")[0] for line in self.completed("fish", script, *words)]
        self.check_answers(complete)
        described = [line for line in self.completed("fish", script, "train", "--") if "'" in line.partition("\t")[2]]
        self.assertTrue(described, "an apostrophe of a help text is lost")

    @needs("zsh")
    def test_zsh_gives_its_functions_each_flag(self):
        script = """_arguments() { print -rl -- "$@" }; _describe() { print -rl -- ${(P)2} }
            file=$1; shift; words=(cohobate "$@"); CURRENT=$(( $# + 1 )); . $file"""
        names = [line.split(":")[0] for line in self.completed("zsh", script, "")]
        self.assertEqual(names, self.commands())
        for command in self.commands():
            specs = self.completed("zsh", script, command, "")
            found = [match[1] for match in (re.match(r"\*--([\w-]+)\[.*\]", spec) for spec in specs) if match]
            self.assertEqual(sorted([*found, "help"]), sorted(self.flags(command)))
            for spec in specs:  # a colon or bracket inside a description would end it
                self.assertRegex(spec, r"^(\*?--?[\w-]+\[(\\.|[^\[\]:\\])+\](:(\\.|[^:\\])*:(_files|\([^()]*\)| _alternative .*))?|\(-h --help\)-?-h(elp)?\[.*\]|\*:\w+:.*)$")


if __name__ == "__main__":
    done = unittest.main(exit=False)
    if done.result.wasSuccessful() and missing:
        print(f"{' and '.join(missing)} not installed")
        sys.exit(77)
    sys.exit(not done.result.wasSuccessful())
