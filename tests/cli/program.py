"""Common parts of the command line's tests: runs the program, checks how it fails.

Each test file is run as `test_x.py PATH-OF-COHOBATE [unittest arguments]`."""

import ctypes
import ctypes.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from length import SHORT, in_full  # pylint: disable=unused-import,wrong-import-position

COHOBATE = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "cohobate"
# The same with faults in its file operations (tests/faults/file_faults.h).
FAULTY = os.environ.get("COH_FAULTY", "cohobate-faulty")
# Short runs take the first placement found, where the best one is not what is tested.
QUICK = ["--search", "quick"] if SHORT else []
# A GPT-2 of half a million parameters on 32 tokens a step: a step takes milliseconds.
TINY_USUAL = ["gpt2-pico", "--sequence", "16", "--batch", "2", "--threads", "2"]
TINY = [*TINY_USUAL[:-2], *QUICK, *TINY_USUAL[-2:]]
# One of 11 M, for cases of little memory: it takes tens of MiB.
NANO_USUAL, NANO = (["gpt2-nano", *small[1:]] for small in (TINY_USUAL, TINY))
TIMEOUT_S = 300
SANITIZED = os.environ.get("COH_SANITIZER", "none") != "none"


class Finished:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


def environment(**more):
    names = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_") and key != "COLUMNS"}
    # a test's calibration must not price another test's plan, nor go to the user's cache
    return {"COH_CALIBRATION": "none", **names, **more}


# flags that add up: the program takes them more than once
REPEATABLE = {"--disk", "--folder", "--pin", "--prompt", "--stop", "--what-if", "--kinds", "--input", "--lr-for",
              "--weight-decay-for", "--hyperparameter", "--optimizer-for"}


def last_of_each(arguments):
    """The arguments without a flag and its value if the flag follows again: a case's flags replace those that its tests
    share. The program refuses a flag that is given twice."""
    kept = list(map(str, arguments))
    for i in reversed(range(len(kept))):
        if kept[i].startswith("--") and kept[i] not in REPEATABLE and kept[i] in kept[i + 1:]:
            del kept[i:i + 2]
    return kept


started = []


def start(*arguments, program=None, as_given=False, **keywords):
    arguments = arguments if as_given else last_of_each(arguments)
    started.append(subprocess.Popen([program or COHOBATE, *map(str, arguments)],
                                    **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(), **keywords}))
    return started[-1]


def end_all_started():
    """A test that fails in the middle leaves no program running."""
    while started:
        with started.pop() as process:
            if process.poll() is None:
                process.kill()


def run(*arguments, **keywords):
    process = start(*arguments, **keywords)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return Finished(process.returncode, (out or b"").decode(errors="replace"), err.decode(errors="replace"))


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def wait_for_step(process, folder, step):
    """Waits until the run in `folder` has recorded step `step`, or has ended."""
    path = os.path.join(folder, "steps.jsonl")
    while process.poll() is None:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                if f'{{"step": {step},' in file.read():
                    return
        time.sleep(0.01)


def last_save(folder):
    """The step of the newest checkpoint of a run; 0: there is none. A complete checkpoint is renamed to such a name."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return max((int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name)), default=0)


def wait_for_save(process, folder, step=1):
    """Waits until the run in `folder` has a checkpoint of step `step` or later, or has ended: a save continues while the
    next steps run and are recorded."""
    while process.poll() is None and last_save(folder) < step:
        time.sleep(0.01)


def held_files(process, folder):
    """The files of `folder` that the process has open, removed ones too."""
    fds, held = f"/proc/{process.pid}/fd", []
    for name in os.listdir(fds):
        try:
            held.append(os.readlink(os.path.join(fds, name)))
        except FileNotFoundError:
            pass
    return [name for name in held if name.startswith(os.path.realpath(folder) + os.sep)]


UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def bytes_of(size):
    """The bytes of a size as it is typed: "161.1GiB"."""
    number, unit = re.fullmatch(r"([\d.]+)([A-Za-z]+)", size).groups()
    return int(float(number) * UNITS[unit])


def pairs(*all_of_them):
    """Cases that differ only in numbers: a sanitizer, which looks for errors that do not depend on values, gets the
    last one, and so does a short run."""
    return all_of_them[-1:] if SANITIZED or SHORT else all_of_them


def on_any_processor(test):
    """Marks a test whose plans are for a GPU or of a given dtype: no instruction set changes them. Phase isa of .ci/run,
    which sets one, leaves the test out."""
    return None if "COH_ISA" in os.environ else test


def seal_of(text):
    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_64bits.restype = ctypes.c_uint64
    return f"{library.XXH3_64bits(text.encode(), ctypes.c_size_t(len(text.encode()))):016x}"


def sealed(text):
    """A file in our format with the members `text`, each ending with a comma, and their hash at its end."""
    return f'{text}  "file_hash": "{seal_of(text)}"\n}}\n'


def sealed_again(text, *changes):
    """A measured profile's text with a member's value replaced in each (member, value), as if it had been measured so."""
    for member, value in changes:
        text, count = re.subn(rf'("{member}": )(\w+|\{{[^}}]*\}})', rf"\g<1>{value}", text)
        assert count == 1, member
    return sealed(text[:text.rindex('  "file_hash"')])


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cohobate-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(end_all_started)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def corpus(self, lines=400):
        return self.write("corpus.txt", "".join(f"line {i * i % 97}: the {i % 13}th of many\n" for i in range(lines)))

    def succeeds(self, *arguments, **keywords):
        done = run(*arguments, **keywords)
        self.assertEqual(done.code, 0, f"{arguments}\n{done.err}")
        return done

    def fails(self, code, *arguments, says="", **keywords):
        """Checks for exit code `code`, and one message as the last line of standard error; with --json for an object,
        which says the same unless it is a result."""
        done = run(*arguments, **keywords)
        self.assertEqual(done.code, code, f"{arguments}\n{done.out}{done.err}")
        lines = done.err.strip().split("\n")
        self.assertRegex(lines[-1], r"^cohobate( [\w-]+)?: \S.*\S$", arguments)
        self.assertIn(says, lines[-1], arguments)
        if "--json" in arguments and "stdout" not in keywords and arguments[0] not in ("diff", "trace", "watch"):  # these have no --json
            found = json.loads(done.out)
            self.assertEqual(found.get("exit_code", code), code, arguments)
            self.assertTrue(lines[-1].endswith(": " + found.get("why", "")) or "exit_code" not in found, f"{arguments}\n{found}")
        return done

    def says_hash(self, done):
        found = re.search(r"^hash: +([0-9a-f]{16})$", done.out, re.M)
        self.assertTrue(found, done.out)
        return found[1]


class TrainTest(ProgramTest):
    """Runs of TINY on a corpus."""

    def train(self, *more, model=TINY, **keywords):
        return self.succeeds("train", *model, "--data", self.corpus(), *more, **keywords)

    def resumed(self, folder, *more):
        return self.succeeds("train", "--resume", folder, *QUICK, "--threads", 2, *more)

    def hash_of(self, path):
        return self.succeeds("inspect", path, "--hash").out.strip()
