"""The drive space of a run: counted before anything is read, the same for plan and train, and with the flag that needs
less. The free space of every file system is that of COH_TEST_FREE_BYTES."""

import json
import os
import re
import resource
import shutil
import tempfile
import unittest

from program import COHOBATE, FAULTY, NANO, QUICK, SANITIZED, TINY, TrainTest, bytes_of, environment, run
from screen import Terminal

MIB = 1 << 20
STREAMED = ["--device-memory", "64MiB"]


def with_free(count):
    return {"program": FAULTY, "env": environment(COH_TEST_FREE_BYTES=str(int(count)))}


class Room(TrainTest):
    def long_text(self, count=5 * MIB):
        line = "words of a text that is long enough\n"
        return self.write("long.txt", (line * (count // len(line) + 1))[:count])

    def tokens_in(self, folder):
        return sorted(name for name in os.listdir(self.path(folder)) if name.endswith(".tokens"))

    def plan(self, *more, **keywords):
        return self.succeeds("plan", *NANO, *STREAMED, *more, "--json", **keywords)

    def folder_of(self, path):
        os.makedirs(self.path("alone"), exist_ok=True)
        shutil.copy(path, self.path("alone"))
        return self.path("alone")

    # ---- what is counted ----

    def test_room_is_checked_before_text_is_read_also_where_epochs_are_counted_later(self):
        bad = self.write("bad.jsonl", "no object\n")
        for length in (["--epochs", 1], ["--steps", 1]):
            for flags in (["--save", self.path("run")], [*STREAMED, "--disk", self.folder, "--save", "none"]):
                with self.subTest(length=length, flags=flags):
                    self.fails(3, "train", *NANO, "--data", bad, *length, *flags, says="has 1.00 MiB free", **with_free(MIB))
                    self.fails(4, "train", *NANO, "--data", bad, *length, *flags, says="bad.jsonl:1:", **with_free(1 << 40))
        self.assertEqual(os.listdir(self.folder), ["bad.jsonl"])
        # with one save at least; all of them are counted once their number is known
        one = self.succeeds("plan", *NANO, "--json").json["save_bytes"]
        flags = ["train", *NANO, "--data", self.corpus(), "--epochs", 1, "--save-every", 1, "--keep", 9, "--save", self.path("run")]
        self.fails(3, *flags, says="10 checkpoints", **with_free(2 * one))
        self.fails(3, *flags, says="1 checkpoint ", **with_free(one / 2))

    def test_files_are_counted_before_text_is_read_where_their_number_is_limited(self):
        bad, done = self.write("bad.jsonl", "no object\n"), self.path("done")
        train = ["train", *TINY, "--data", bad, "--steps", 9, "--save-every", 1, "--keep", 4, "--save", self.path("run")]
        for count, code, says in ((0, 3, "run has room for 0 more files, and up to "), (40, 3, "5 checkpoints 45"), (100, 4, "bad.jsonl:1:")):
            keywords = {"program": FAULTY, "env": environment(COH_TEST_FREE_FILES=str(count))}
            self.fails(code, *train, says=says, **keywords)
        self.assertEqual(os.listdir(self.folder), ["bad.jsonl"])
        # the count holds what a run writes, of the optimizer with the most streams too
        for flags in ([], ["--state", "lean"], ["--optimizer", "adamw8"], ["--lora", 2]):
            self.train("--steps", 1, *flags, "--save", done)
            checkpoint = os.listdir(os.path.join(done, "step-1"))
            self.assertLessEqual(len(checkpoint) + 1, 9, checkpoint)
            records = [name for name in os.listdir(done) if name != "step-1" and not name.endswith(".tokens")]
            self.assertLessEqual(len(records) + 3, 8, records)  # the folder, a link to the best, a temporary one
            shutil.rmtree(done)

    def test_a_limit_of_open_files_under_which_no_save_would_succeed_is_named_before_the_first_step(self):
        def limit(count):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
        train = ["train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", self.path("run")]
        said = self.fails(3, *train, says="limit of open files (ulimit -n 14) leaves", preexec_fn=limit(14)).err
        self.assertNotIn("step 1", said)
        self.assertEqual(os.listdir(self.folder), ["corpus.txt"])
        enough = int(re.search(r"raise it by ulimit -n (\d+) or more", said)[1])
        self.succeeds(*train, preexec_fn=limit(enough))

    def test_tokens_of_a_text_are_counted_and_none_of_ids(self):
        text, tokens, texts = self.long_text(8 * MIB), self.path("ids"), self.path("texts")
        self.succeeds("tokenize", text, "--tokenizer", "bytes", "-o", tokens)
        os.mkdir(texts)
        shutil.copy(text, texts)
        with open(os.path.join(texts, "picture"), "wb") as file:
            file.write(bytes(20 * MIB))  # no text
        train = ["train", *TINY, "--steps", 1]
        for data in (text, texts):
            for save in (self.path("run"), "none"):
                what = "tokens, in TMPDIR, estimated" if save == "none" else "tokens, estimated"
                self.fails(3, *train, "--data", data, "--save", save, says=f"{what} 16.00 MiB", **with_free(15.9 * MIB))
        self.succeeds(*train, "--data", texts, "--save", "none", **with_free(16.1 * MIB))
        self.succeeds(*train, "--data", tokens, "--save", self.path("run"), **with_free(15.9 * MIB))
        # what is not read of a folder: hidden files, and what links to folders lead to
        os.mkdir(self.path("other"))
        os.mkdir(os.path.join(texts, ".git"))
        for name in (os.path.join(texts, ".git", "pack"), os.path.join(texts, ".hidden"), self.path("other", "long.txt")):
            shutil.copy(text, name)
        os.symlink(self.path("other"), os.path.join(texts, "linked"))
        self.succeeds(*train, "--data", texts, "--save", "none", **with_free(16.1 * MIB))
        # of lines, which may hold much that is not read
        lines = self.write("lines.jsonl", (json.dumps({"text": "a few words", "about": "x" * MIB}) + "\n") * 8)
        for data in (lines, self.folder_of(lines)):
            for flags in ([], ["--field", "text"]):
                self.succeeds(*train, "--data", data, *flags, "--save", "none", **with_free(MIB))
        self.succeeds(*train, "--data", text, "--save", self.path("other"), **with_free(32 * MIB))

    # ---- plan and train ----

    def test_a_plan_reports_what_train_would_refuse(self):
        fits = self.plan("--save", "none", "--disk", self.folder).json
        store, one = fits["peak_bytes"]["disk"], fits["save_bytes"]
        self.assertEqual((fits["fits"], fits["refused_here"]), (True, None))
        kept = ["--steps", 4, "--save-every", 1, "--keep", 2]  # three at once
        cases = (([], ["--save", self.path("run"), *kept], 2.5 * one, "3 checkpoints"),
                 (["--disk", self.folder], ["--save", self.path("run"), *kept], store + 2.5 * one, "the working store"),
                 (["--disk", self.folder], ["--save", "none"], store / 8, "the working store"))
        for disk, save, free, says in cases:
            with self.subTest(disk=disk, save=save):
                found = self.plan(*disk, *save, **with_free(free)) if disk else self.succeeds("plan", *NANO, *save, "--json", **with_free(free))
                self.assertTrue(found.json["fits"] and found.json["refused_here"])
                self.assertIn(says, found.json["refused_here"])
                self.assertIn("note: train would be refused here and now: " + found.json["refused_here"], found.err)
                said = self.fails(3, "train", *NANO, *(STREAMED if disk else []), *disk, *save, "--data", self.corpus(), says=says, **with_free(free))
                self.assertIn(re.sub(r"has \S+ \S+ free.*", "", found.json["refused_here"]), said.err)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_a_plan_counts_checkpoints_that_are_there_as_train_does(self):
        flags = ["--save-every", 1, "--keep", 2, "--save", self.path("run")]
        self.train("--steps", 3, *flags, model=NANO)
        before = sorted(os.listdir(self.path("run")))
        resumed = ["plan", "--resume", self.path("run"), *QUICK, "--steps", 9, "--json"]
        one = self.succeeds(*resumed).json["save_bytes"]
        self.assertFalse(self.succeeds(*resumed, **with_free(1.5 * one)).json["refused_here"])
        self.assertTrue(self.succeeds(*resumed, **with_free(0.5 * one)).json["refused_here"])
        self.assertEqual(sorted(os.listdir(self.path("run"))), before)

    def test_a_plan_counts_the_store_of_every_rank(self):
        flags = ["--batch", 4, "--micro-batch", 1, "--replicas", 2, "--ranks", 2, "--gradients", "f32", "--save", "none", "--disk", self.folder]
        store = self.plan(*flags).json["peak_bytes"]["disk"]
        self.assertGreater(store, 0)
        self.assertTrue(self.plan(*flags, **with_free(1.5 * store)).json["refused_here"])
        self.assertFalse(self.plan(*flags, **with_free(2.1 * store)).json["refused_here"])

    # ---- what would do ----

    def test_a_smaller_store_that_has_a_plan_is_named_and_fits(self):
        model = ["gpt2-nano", *QUICK, "--threads", 2, "--device-memory", "50MiB"]  # whose activations lie there, too
        train = ["train", *model, "--data", self.corpus(), "--steps", 1, "--save", "none", "--disk"]
        store = self.succeeds("plan", *model, "--disk", self.folder, "--json").json["peak_bytes"]["disk"]
        free = with_free(0.9 * store)
        said = self.fails(3, *train, self.folder, says="the working store", **free).err
        found = re.search(r"; or give --disk (\S+:(\d+MiB)), for which there is a plan$", said.strip())
        self.assertTrue(found, said)
        self.assertLess(bytes_of(found[2]), 0.9 * store)
        self.succeeds(*train, found[1], **free)
        # none where no store is small enough, or the user has given a limit
        for disk, left in ((self.folder, store / 50), (self.folder + ":9GiB", 0.9 * store)):
            self.assertNotIn("or give --disk", self.fails(3, *train, disk, says="the working store", **with_free(left)).err)

    def test_tokens_that_took_a_while_outlive_a_run_that_is_refused_after_them(self):
        self.train("--steps", 1, "--save", self.path("first"))
        weights = max((os.path.join(folder, name) for folder, _, names in os.walk(self.path("first", "step-1")) for name in names),
                      key=os.path.getsize)
        with open(weights, "r+b") as file:
            content = file.read()
            file.seek(len(content) // 2)
            file.write(bytes([content[len(content) // 2] ^ 1]))
        text, kept = self.long_text(), self.path("run", "data.tokens")
        def begin(data, save="run"):
            return ["train", self.path("first", "step-1"), "--sequence", 16, "--batch", 2, "--threads", 2, *QUICK, "--data", data,
                    "--steps", 1, "--save", self.path(save)]
        self.assertNotIn("are kept", self.fails(4, *begin(self.corpus(), "short")).err)
        self.assertFalse(os.path.exists(self.path("short")))
        for rest in (self.path("run"), kept):  # the same command again: one copy is kept
            said = self.fails(4, *begin(text)).err
            self.assertIn(f"note: the tokens of {text} are kept: with --data {kept} in place of the flags of the text, the next try does not "
                          f"tokenize again; remove {rest} if you do not want them\n", said)
            self.assertEqual(self.tokens_in("run"), ["data.tokens"])
        self.fails(4, *begin(text), "--validation-split", 0.1)
        self.assertEqual(self.tokens_in("run"), ["data.tokens", "validation.tokens"])
        self.fails(4, *begin(text))
        self.assertEqual(self.tokens_in("run"), ["data.tokens"])
        self.assertNotIn("are kept", self.fails(4, *begin(text), "--validation-split", 0.5).err)  # too few
        self.assertEqual(self.tokens_in("run"), [])
        self.fails(4, *begin(text))
        # a folder that nobody named would hold them unseen
        unnamed = begin(text)[:-2]
        for _ in range(2):
            self.assertNotIn("are kept", self.fails(4, *unnamed, cwd=self.folder).err)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("run-")], [])
        # what somebody else put in their place stays
        os.rename(kept, self.path("aside"))
        self.succeeds("tokenize", self.corpus(), "--tokenizer", "bytes", "-o", kept)
        self.assertIn("data.2.tokens", self.fails(4, *begin(text)).err)
        self.assertTrue(os.path.exists(kept))
        os.rename(self.path("aside"), kept)
        # flags of a form are for the text that validates
        lines = self.write("lines.jsonl", "".join(json.dumps({"body": f"the {i}th of many lines of a text"}) + "\n" for i in range(99)))
        form = ["--field", "body", "--validation", lines, "--validation-every", 1]
        long_lines = self.write("long.jsonl", (json.dumps({"body": "words of a text that is long enough"}) + "\n") * 140000)
        said = self.fails(4, *begin(long_lines, "form"), *form).err
        given = self.path("form", "data.tokens")
        self.assertIn(f"with --data {given} in place of the text, and the other flags as they are, the next", said)
        self.assertIn("ids already", self.fails(2, *begin(given, "form"), "--field", "body").err)
        with open(weights, "wb") as file:
            file.write(content)
        self.succeeds(*begin(given, "form"), *form)
        again = self.says_hash(self.succeeds(*begin(kept)))
        self.assertNotIn(".kept-tokens", os.listdir(self.path("run")))
        self.assertEqual(again, self.says_hash(self.succeeds(*begin(text, "other"))))

    def test_flags_are_named_that_free_enough(self):
        save = ["--save", self.path("run")]
        flags = ["--disk", self.folder, *save, "--steps", 9, "--save-every", 1, "--keep", 3]
        fits = self.plan(*flags).json
        store, one = fits["peak_bytes"]["disk"], fits["save_bytes"]
        def said(free):
            return self.plan(*flags, **with_free(free)).json["refused_here"]
        other = ": put the working store on another drive (--disk DIR), or give more memory (--device-memory, --host-memory)"
        self.assertIn(": save fewer checkpoints (--keep 1), or to another drive (--save DIR), or keep nothing (--save none)", said(store + 2.5 * one))
        self.assertIn(": save to another drive (--save DIR), or keep nothing (--save none)", said(store + 1.5 * one))
        few = said(store / 50)
        self.assertTrue(few.endswith(other + ", and save to another drive, too (--save DIR)"), few)
        alone = self.plan("--disk", self.folder, "--save", "none", **with_free(store / 50)).json["refused_here"]
        self.assertTrue(alone.endswith(other), alone)

    # ---- a file system in memory ----

    def test_a_store_in_memory_is_refused_before_text_is_read_if_memory_is_too_small(self):
        memory = self.path("memory")
        os.mkdir(memory)
        mounted = ["-m", "sh", "-c", 'mount -t tmpfs -o size=9t none "$0" && exec "$@"', memory]
        if not shutil.which("unshare") or run(*mounted, "true", program="unshare").code != 0:
            self.skipTest("may not mount a file system")
        if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") > 800 << 30:
            self.skipTest("this machine has memory for the store of opt-66b")
        def on_tmpfs(*arguments):
            return run(*mounted, COHOBATE, *arguments, "--disk", memory, program="unshare")
        bad = self.write("bad.jsonl", "no object\n")
        large = ["opt-66b", "--sequence", 16, "--batch", 1, "--search", "quick", "--recompute", "all", "--device-memory", "2GiB", "--save", "none"]
        says = f"--disk {memory} is a file system in memory: "
        done = on_tmpfs("train", *large, "--data", bad, "--steps", 1, "--disk-write-limit", "9999TB/day")
        self.assertEqual(done.code, 3, done.err)
        self.assertIn(says, done.err)
        done = on_tmpfs("plan", *large)
        self.assertIn("train would be refused here and now: " + says, done.err)
        done = on_tmpfs("plan", *NANO, *STREAMED)
        self.assertNotIn("would be refused", done.err)
        self.assertIn(f"note: --disk {memory} is a file system in memory: what is stored there is main memory, in addition to the budgets", done.err)

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_limits_of_the_process_are_not_those_of_a_store_in_memory(self):
        """It is written, and not mapped."""
        def lower():
            resource.setrlimit(resource.RLIMIT_AS, (310 * MIB, 310 * MIB))
        run = ["gpt2-nano", "--sequence", 64, "--batch", 1, "--threads", 1, *QUICK, "--device-memory", "40MiB", "--save", "none"]
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            done = self.succeeds("plan", *run, "--disk", memory, "--json", preexec_fn=lower)
            self.assertIn("is a file system in memory: what is stored", done.err)
            self.assertIsNone(done.json["refused_here"])
            self.assertGreater(done.json["peak_bytes"]["disk"], 140 * MIB)
            self.succeeds("train", *run, "--disk", memory, "--data", self.corpus(), "--steps", 1, preexec_fn=lower)

    # ---- the start, and the drive's rate ----

    def test_a_plan_says_what_the_start_writes(self):
        small = self.plan("--disk", self.folder, "--save", "none").json
        self.assertEqual(small["start_bytes_written"], small["peak_bytes"]["disk"])
        self.assertLess(small["start_seconds"], 1)
        large = ["plan", "opt-6.7b", "--sequence", 16, "--batch", 1, "--search", "quick", "--recompute", "all", "--profile",
                 "a100-40g,host-memory=4GiB,device-memory=4GiB,disk-write=1x"]
        found = self.succeeds(*large, "--json").json
        self.assertGreater(found["start_seconds"], 10)
        line = next(line for line in self.succeeds(*large).out.split("\n") if line.startswith("start:"))
        self.assertRegex(line, r"^start:  writes the whole working store once: \S+ GiB, .* at the write rate$")
        self.assertNotIn("\nstart:", self.succeeds("plan", *NANO, *STREAMED, "--disk", self.folder).out)

    def test_a_stop_while_the_drive_is_prepared_does_not_wait_for_it(self):
        self.corpus()
        terminal = Terminal(COHOBATE, "train", "gpt2", "--sequence", 16, "--batch", 1, "--threads", 2, "--search", "quick",
                            "--data", self.path("corpus.txt"), "--device-memory", "300MiB", "--disk", self.folder, "--steps", 1,
                            "--save", "none", columns=200, COH_CALIBRATION="none")
        self.addCleanup(terminal.close)
        terminal.until(lambda lines: any(line.startswith("preparing the drive for gpt2") for line in lines))
        terminal.press(b"\x03")
        self.assertEqual(terminal.wait(), 1, terminal.shown)
        self.assertIn(b"stopped on request before the first step: nothing was trained", terminal.shown)
        self.assertNotIn(b"disk: ", terminal.shown)  # the first lines of a run follow its preparation
        self.assertFalse([line for line in terminal.screen.lines if "preparing" in line])

    def test_a_drive_that_is_slower_than_its_prices_gets_a_note(self):
        def said(*more):
            return self.train(*STREAMED, "--disk", self.folder, "--steps", 1, "--save", "none", *more, model=NANO).err
        note = (rf"note:   the drive is slower than this plan's prices: it reads at \S+ \S+/s \(priced at .*/s\) and writes at .*/s \(.*/s\), "
                rf"so no step is faster than .*: cohobate profile --disk {self.folder} -o FILE measures it, and --profile FILE plans with it\n")
        slow, fast = (said("--profile", f"built-in-2,disk-read={times},disk-write={times}") for times in ("1000x", "0.001x"))
        self.assertRegex(slow, note)
        self.assertNotIn("the drive is slower", fast)


if __name__ == "__main__":
    unittest.main()
