"""Token files, generation, inspection and the doctor, through the command line."""

import json
import math
import os
import re
import resource
import shutil
import unittest

import model_folder
from program import NANO, QUICK, TINY, TINY_USUAL, ProgramTest, environment


class Text(ProgramTest):
    def trained(self):
        self.succeeds("train", *NANO, "--data", self.corpus(), "--steps", 2, "--save", self.path("run"))
        return self.path("run")

    def byte_vocabulary(self, folder):
        """A tokenizer in `folder`: characters for the 256 bytes, as in GPT-2, and no merges."""
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in plain]
        names = {chr(byte): i for i, byte in enumerate(plain)}
        names.update({chr(256 + i): len(plain) + i for i in range(len(others))})
        os.makedirs(folder, exist_ok=True)
        self.write(os.path.join(folder, "vocab.json"), json.dumps({**names, "<|endoftext|>": 256}))
        self.write(os.path.join(folder, "merges.txt"), "#version: 0.2\n")

    def test_a_token_file_holds_the_text_and_its_entropy(self):
        text = b"aaab" * 100
        done = self.succeeds("tokenize", self.write("in.txt", text), "-o", self.path("out.tokens"), "--json").json
        facts = self.succeeds("inspect", self.path("out.tokens"), "--json").json
        self.assertEqual(done["file"]["hash"], facts["hash"])
        self.assertEqual(facts["vocabulary"], 257)
        self.assertGreaterEqual(facts["tokens"], len(text))
        share = {ord("a"): 300, ord("b"): 100}
        if facts["tokens"] > len(text):
            share[256] = facts["tokens"] - len(text)
        entropy = -sum(n / facts["tokens"] * math.log(n / facts["tokens"]) for n in share.values())
        self.assertAlmostEqual(facts["unigram_entropy"], entropy, places=9)
        self.succeeds("check", self.path("out.tokens"))

    def test_every_nth_file_of_a_folder_is_held_out(self):
        os.mkdir(self.path("texts"))
        for i in range(6):
            self.write(f"texts/{i}.txt", f"file {i}\n" * 10)
        done = self.succeeds("tokenize", self.path("texts"), "-o", self.path("a"), "--held-out", 3, "--held-out-file",
                             self.path("b"), "--json").json
        self.assertGreater(done["held_out"]["tokens"], 0)
        self.assertGreater(done["file"]["tokens"], done["held_out"]["tokens"])

    def test_generation_is_decided_by_prompt_and_seed(self):
        run = self.trained()
        flags = ["--prompt", "line ", "--tokens", 12]
        first = self.succeeds("generate", run, *flags, "--seed", 4)
        self.assertTrue(first.out.startswith("line "))
        self.assertEqual(first.out, self.succeeds("generate", run, *flags, "--seed", 4, "--threads", 1).out)
        self.assertEqual(self.succeeds("generate", run, *flags, "--temperature", 0).out,
                         self.succeeds("generate", run, *flags, "--top-k", 1, "--seed", 9).out)

    def test_generation_within_a_budget_writes_the_same_text(self):
        run = self.trained()
        flags = ["--prompt", "line ", "--tokens", 8, "--seed", 4]
        free = self.succeeds("generate", run, *flags)
        tight = self.succeeds("generate", run, *flags, "--device-memory", "24MiB", "--disk", self.folder)
        self.assertEqual(tight.out, free.out)

    def test_another_tokenizer_than_the_checkpoints_is_refused_with_what_to_leave_out(self):
        run = self.trained()
        self.byte_vocabulary(self.folder)
        for command in (["generate", run, "--prompt", "x"], ["train", "--resume", run, "--steps", 3]):
            self.fails(4, *command, "--tokenizer", self.folder, says="leave --tokenizer out")

    def test_a_text_beyond_the_trained_positions_is_noted(self):
        run = self.trained()
        for tokens, check in ((4, self.assertNotIn), (40, self.assertIn)):
            said = self.succeeds("generate", run, "--prompt", "x", "--tokens", tokens).err
            check("note: trained on sequences of 16 tokens, so later positions are untrained\n", said)

    def test_the_positions_of_weights_that_were_trained_before_stay_trained(self):
        """A model of 64 positions, tuned on sequences of 16: eval measures it in the windows of its base."""
        base, text, beyond = self.path("base"), self.corpus(lines=30), "so later positions are untrained"
        model_folder.make(base, "gpt2")
        flags = ["--data", text, "--batch", 2, "--steps", 1, "--lr", 0, "--threads", 2, "--tokenizer", "bytes"]
        self.succeeds("train", base, *flags, "--sequence", 16, "--validation", text, "--save", self.path("tuned"), "--dtype", "f32")
        self.succeeds("train", self.path("tuned"), *flags, "--sequence", 8, "--save", self.path("again"))
        self.succeeds("train", base, *flags, "--sequence", 16, "--from-scratch", "--save", self.path("new"))
        self.succeeds("train", self.path("new"), *flags, "--sequence", 8, "--save", self.path("newer"))
        for name, trained in (("tuned", 64), ("again", 64), ("new", 16), ("newer", 16)):
            done = self.succeeds("eval", self.path(name), "--data", text, "--json")
            self.assertEqual((done.json["sequence"], done.json["stride"]), (trained, trained), name)
            self.assertEqual("for which the weights were trained before the run" in done.err, name in ("tuned", "again", "newer"), name)
            said = self.succeeds("generate", self.path(name), "--prompt", "x", "--tokens", 40).err
            self.assertEqual(beyond in said, trained == 16, said)
        measured = [self.succeeds("eval", what, "--data", text, "--json", "--dtype", "f32", "--tokenizer", "bytes").json
                    for what in (base, self.path("tuned"))]
        self.assertEqual(*({**one, "step": 0, "tokens_per_second": 0} for one in measured))
        self.succeeds("eval", self.path("tuned"), "--data", text, "--stride", 32)
        told = self.succeeds("eval", self.path("tuned"), "--data", text, "--sequence", 16, "--json").json
        log = self.succeeds("train", "--resume", self.path("tuned"), "--steps", 2, "--threads", 2, "--json").json
        self.assertEqual(told["loss"], log["validation_loss"])
        # aligned documents stay in windows of the run
        self.succeeds("train", base, *flags, "--sequence", 16, "--documents", "aligned", "--save", self.path("aligned"))
        self.assertEqual(self.succeeds("eval", self.path("aligned"), "--data", text, "--json").json["sequence"], 16)

    def test_a_moved_tokenizer_is_named_with_its_remedy_and_remembered_where_it_is(self):
        run, text = self.path("run"), self.corpus(lines=20)
        self.byte_vocabulary(self.path("tok"))
        self.succeeds("train", *TINY, "--tokenizer", self.path("tok"), "--data", text, "--steps", 2, "--save", run)
        os.rename(self.path("tok"), self.path("moved"))
        shutil.rmtree(self.path("run/tokenizer"))
        gone = f"the tokenizer of the run, {self.path('tok')}, is not there any more: give it with --tokenizer PATH"
        for command in (["generate", run, "--prompt", "x"], ["eval", run, "--data", text], ["export", run, "-o", self.path("out")],
                        ["train", run, "--data", text], ["train", "--resume", run, "--steps", 3, "--data", text],
                        ["train", "--resume", run, "--steps", 3, "--validation", text]):
            self.fails(2, *command, says=gone)
        self.succeeds("train", "--resume", run, "--steps", 3, "--tokenizer", "./moved", cwd=self.folder)
        self.assertEqual(self.succeeds("inspect", run, "--json").json["note"]["tokenizer"], self.path("moved"))
        self.succeeds("eval", run, "--data", text, cwd="/")

    def test_a_run_has_a_copy_of_its_tokenizer_and_moves_with_it(self):
        text = self.corpus(lines=20)
        self.byte_vocabulary(self.path("tok"))
        self.write("tok/LICENSE", "free\n")
        whole = self.succeeds("train", *TINY, "--tokenizer", self.path("tok"), "--data", text, "--steps", 3, "--save", self.path("whole"))
        self.succeeds("train", *TINY, "--tokenizer", self.path("tok"), "--data", text, "--steps", 2, "--schedule-steps", 3,
                      "--save", self.path("first"))
        shutil.rmtree(self.path("tok"))
        os.rename(self.path("first"), self.path("run"))
        said = self.succeeds("generate", self.path("run"), "--prompt", "x", "--tokens", 4)
        self.succeeds("eval", self.path("run"), "--data", text)
        on = self.succeeds("train", "--resume", self.path("run"), "--steps", 3, "--threads", 2, "--data", text)
        self.assertEqual(self.says_hash(on), self.says_hash(whole))
        self.assertNotRegex(said.err + on.err, "not there any more|no longer exists")
        self.assertEqual(self.succeeds("inspect", self.path("run"), "--json").json["note"]["tokenizer"], self.path("run/tokenizer"))
        os.rename(self.path("run"), self.path("again"))
        self.succeeds("export", self.path("again"), "-o", self.path("out"))
        kept, out = (sorted(os.listdir(self.path(folder))) for folder in ("again/tokenizer", "out"))
        self.assertEqual(kept, ["LICENSE", "merges.txt", "vocab.json"])
        self.assertTrue({"merges.txt", "vocab.json"} <= set(out))

    def test_a_run_goes_on_without_its_tokenizer_if_it_reads_no_text(self):
        text = self.corpus(lines=20)
        self.byte_vocabulary(self.path("tok"))
        flags = [*TINY, "--tokenizer", self.path("tok"), "--data", text, "--schedule-steps", 4]
        whole = self.succeeds("train", *flags, "--steps", 3, "--save", "none")
        self.succeeds("train", *flags, "--steps", 2, "--save", self.path("run"))
        for name, tokenizer in (("same", self.path("tok")), ("other", "bytes")):
            self.succeeds("tokenize", text, "--tokenizer", tokenizer, "-o", self.path(name))
        os.rename(self.path("tok"), self.path("moved"))
        shutil.rmtree(self.path("run/tokenizer"))
        on = self.succeeds("train", "--resume", self.path("run"), "--threads", 2, "--steps", 3)
        self.assertEqual(self.says_hash(on), self.says_hash(whole))
        self.assertIn(f"note: the tokenizer of the run, {self.path('tok')}, no longer exists: the run continues", on.err)
        self.assertEqual(self.succeeds("inspect", self.path("run"), "--json").json["note"]["tokenizer"], self.path("tok"))
        more = ["train", "--resume", self.path("run"), "--threads", 2, "--steps", 4, "--data"]
        self.fails(4, *more, self.path("other"), says="made by another tokenizer")
        self.succeeds(*more, self.path("same"), "--validation", self.path("same"))

    def test_prompts_that_do_not_fit_are_refused(self):
        run = self.trained()
        self.fails(2, "generate", run, "--prompt", "", says="--prompt")
        self.fails(2, "generate", run, "--prompt", "x" * 5000, says="shorten")

    def test_inspect_shows_a_checkpoint(self):
        run = self.trained()
        facts = self.succeeds("inspect", run, "--json").json
        self.assertEqual(facts["step"], 2)
        self.assertEqual(facts["note"]["batch"], 2)
        self.assertEqual(facts["note"]["model"]["name"], "gpt2-nano")
        self.assertIn("h.0.attn.c_attn.weight", self.succeeds("inspect", run).out)
        self.assertEqual(self.succeeds("inspect", run, "--hash").out.strip(), facts["hash"])

    def check_singular(self, done):
        """No word after a number 1 is a plural, in what was printed."""
        said = re.sub(r"\s+", " ", done.out + done.err)
        self.assertEqual(re.findall(r"(?<![\w.,:/-])(?<![Ss]tep )1 (?!is\b|as\b|ms\b)[a-z-]+s\b[^.;]*", said), [], said)

    def test_one_of_a_thing_is_written_in_the_singular(self):
        one_window = self.write("window.txt", "x" * 17)
        run_folder, tokens = self.path("run"), self.path("one.tokens")
        self.check_singular(self.succeeds("train", *TINY, "--data", self.corpus(), "--steps", 1, "--batch", 1, "--save", run_folder,
                                          "--save-every", 1, "--validation", one_window, "--validation-every", 1,
                                          "--lr-for", "ln_f.bias=1e-4"))
        for flags in (["--json"], [], ["--stride", 1]):
            self.check_singular(self.succeeds("eval", run_folder, "--data", one_window, *flags))
        self.check_singular(self.succeeds("eval", run_folder, "--data", self.write("two.txt", "xy"), "--sequence", 1))
        self.check_singular(self.succeeds("tokenize", self.write("one.txt", "x"), "-o", tokens))
        for path in (run_folder, os.path.join(run_folder, "plan.json"), tokens, self.write("one.bin", b"\0\0")):
            self.check_singular(self.succeeds("inspect", path))
        self.check_singular(self.succeeds("report", run_folder, "--text"))
        self.check_singular(self.succeeds("plan", "gpt2-pico", "--sequence", 1, "--batch", 1, "--disk", self.folder, *QUICK))
        self.check_singular(self.succeeds("plan", "gpt2-pico", "--sequence", 1, "--batch", 8, *QUICK))
        self.check_singular(self.succeeds("generate", run_folder, "--prompt", "x" * 255, "--tokens", 2))
        self.check_singular(self.succeeds("train", "gpt2-pico", "--sequence", 8, "--batch", 1, "--epochs", 1, "--threads", 1,
                                          "--data", self.write("nine.txt", "123456789"), "--save", "none", *QUICK))

    def test_one_of_a_thing_is_missing_in_the_singular(self):
        plan = ["plan", *NANO, "--disk", self.folder]
        least = self.succeeds(*plan, "--json", "--device-memory", "64MiB").json["smallest_device_bytes"]
        self.check_singular(self.fails(3, *plan, "--device-memory", f"{least - 1}B", says=" are 1 byte short: "))
        run_folder, tokens = self.path("run"), self.path("cut.tokens")
        self.succeeds("train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", run_folder)
        os.truncate(os.path.join(run_folder, "step-1", "work.bin"), 1)
        self.check_singular(self.fails(4, "check", run_folder, says=" has 1 byte, must have "))
        self.succeeds("tokenize", self.corpus(), "-o", tokens)
        os.truncate(tokens, 1)
        self.check_singular(self.fails(4, "check", tokens))
        self.check_singular(self.fails(4, "check", self.write("cut.bin", b"\0")))
        os.mkdir(self.path("binary"))
        self.write("binary/file", b"\0")
        self.check_singular(self.fails(4, "tokenize", self.path("binary"), "-o", self.path("new"), says=" of its 1 file none "))
        self.check_singular(self.fails(2, "tokenize", self.write("one.jsonl", '{"text": "x"}\n'), "-o", self.path("new"), "--held-out", 2, "--held-out-file",
                                       self.path("held"), says=" holds 1 document, "))

    def test_foreign_and_missing_paths_have_their_exit_codes(self):
        self.fails(2, "check", self.path("nothing"), says="nothing")
        self.fails(4, "check", self.write("text", "hello\n"))
        self.fails(4, "check", self.write("plan.json", "{}\n"))
        self.fails(4, "check", self.write("torn.json", '{"format": "coho'))
        self.fails(4, "check", self.folder)
        self.fails(4, "inspect", self.write("empty", ""))
        for command in ("check", "inspect"):  # all kinds that they take
            for name, text in (("corpus.txt", "hello\n"), ("lines.jsonl", '{"text": "hello"}\n')):
                self.fails(4, command, self.write(name, text), says="the folder of a run, a checkpoint or a Hugging Face model, "
                           "a plan, a profile, a kernel table, ids (*.bin), or a token file")

    def test_plan_names_placements_peaks_and_time(self):
        plan = self.succeeds("plan", *NANO, "--device-memory", "64MiB", "--disk", self.folder, "--json").json
        self.assertLessEqual(plan["peak_bytes"]["device"], 64 << 20)
        self.assertGreater(plan["in_memory_bytes"], 64 << 20)
        self.assertLessEqual(plan["smallest_device_bytes"], plan["peak_bytes"]["device"])
        self.assertGreater(plan["step_seconds"], 0)
        self.assertGreaterEqual(plan["run_seconds"], 99 * plan["step_seconds"])
        self.assertGreater(len(plan["operators"]), 20)
        # f32: value, gradient, mean, square; bf16: two of two bytes and the low halves of the values, too. Each
        # tensor is padded to a page.
        for dtype, each in (("f32", 4 + 4 + 8), ("bf16", 2 + 2 + 2 + 8)):
            streams = self.succeeds("plan", *NANO, "--dtype", dtype, "--json").json["stream_bytes"]
            self.assertGreaterEqual(streams, each * plan["parameters"])
            self.assertLessEqual(streams, (each + 0.2) * plan["parameters"])
        text = self.succeeds("plan", *NANO, "--program", self.path("program.txt")).out
        self.assertTrue(text.startswith("model: "), text)
        self.assertNotIn("h.0.attn", text)
        table = self.succeeds("plan", *NANO, "--operators").out
        self.assertTrue(table.startswith("model: "), table)
        self.assertEqual(sum(line.startswith("h.") for line in table.split("\n")),
                         sum(op["name"].startswith("h.") for op in plan["operators"]))
        self.assertGreater(os.path.getsize(self.path("program.txt")), 1000)
        self.assertLessEqual(plan["step_alone_seconds"], plan["step_seconds"])
        self.assertLessEqual(plan["step_seconds"], plan["step_contended_seconds"])
        self.assertLessEqual(plan["step_p10_seconds"], plan["step_p90_seconds"])
        self.assertNotIn("memory_curve", plan)
        curve = self.succeeds("plan", *NANO, "--device-memory", "64MiB", "--disk", self.folder, "--json",
                              "--memory-curve", "7").json["memory_curve"]
        for tier, points in curve.items():
            self.assertEqual(len(points), 7)
            self.assertLessEqual(max(points), plan["peak_bytes"][tier])
        self.assertGreater(max(curve["device"]), 0)
        self.fails(2, "plan", *NANO, "--memory-curve", "7", says="--json")

    def test_an_instruction_set_that_is_none_is_refused(self):
        done = self.fails(2, "inspect", "h100", env=environment(COH_ISA="avx1024"), says="COH_ISA=avx1024 in the environment")
        self.assertIn("give plain, avx2, ", done.err)
        self.succeeds("inspect", "h100", env=environment(COH_ISA=""))

    def test_a_kernel_table_is_measured_used_and_remembered(self):
        table, other = self.path("kernels.json"), self.path("other.json")
        tuned = self.succeeds("tune", *TINY_USUAL, "--dtype", "f32", "-o", table, "--json").json
        with open(table, encoding="utf-8") as file:
            written = json.load(file)
        self.assertEqual(len(written["products"]), len(tuned["shapes"]))
        for shape in tuned["shapes"]:
            self.assertLessEqual(shape["seconds"][shape["product"]], shape["seconds"][shape["standard"]])
        # all shapes by our own panels, so that there is something to remember
        for product in written["products"]:
            product["product"] = "panels"
        with open(other, "w", encoding="utf-8") as file:
            json.dump(written, file)
        for name in (table, other):
            self.succeeds("check", name)
        run = ["train", *TINY, "--dtype", "f32", "--data", self.corpus(), "--save", self.path("run")]
        started = self.succeeds(*run, "--steps", 2, "--schedule-steps", 4, "--kernels", other)
        table_hash = self.succeeds("inspect", other, "--hash").out.strip()
        self.assertIn(f"+table-{table_hash}", started.err)
        self.assertNotIn("oneDNN", started.err)
        resume = ["train", "--resume", self.path("run"), "--threads", 2, "--steps"]
        self.assertNotIn("other rounding", self.succeeds(*resume, 3).err)
        os.rename(other, self.path("moved.json"))
        gone = self.succeeds(*resume, 4)
        self.assertIn("other.json of the run is gone", gone.err)
        self.assertRegex(gone.err, r"numeric plan \w+ -> \w+ .*other rounding")
        bad = self.write("bad.json", '{"format": "cohobate kernels"}')
        self.fails(4, "train", *TINY, "--data", self.corpus(), "--kernels", bad, says="bad.json")
        self.fails(4, "check", bad, says="bad.json")

    def test_a_table_by_onednn_is_noted_for_the_dtype_it_names_it_for(self):
        table, run = self.path("kernels.json"), self.path("run")
        tuned = self.succeeds("tune", *TINY_USUAL, "--dtype", "f32", "-o", table, "--json").json
        if "onednn" not in tuned["shapes"][0]["seconds"]:
            self.skipTest("this build has no oneDNN")
        with open(table, encoding="utf-8") as file:
            written = json.load(file)
        for product in written["products"]:
            product["product"] = "onednn"
        with open(table, "w", encoding="utf-8") as file:
            json.dump(written, file)
        note = f"note: the kernel table {table} takes oneDNN, which allocates inside each of its calls"
        flags = ["--data", self.corpus(lines=20), "--kernels", table]  # only the note of eval's output is checked
        self.assertIn(note, self.succeeds("train", *TINY, *flags, "--dtype", "f32", "--steps", 1, "--save", run).err)
        self.assertIn(note, self.succeeds("eval", run, *flags).err)
        # the path names oneDNN here, too, but because of the table it multiplies nothing in bf16
        other = self.succeeds("train", *TINY, *flags, "--dtype", "bf16", "--steps", 1, "--save", "none")
        self.assertRegex(other.err, r"kernel: \S*onednn\S*\+table-")
        self.assertNotIn(note, other.err)
        self.assertNotIn(note, self.succeeds("eval", run, *flags, "--dtype", "bf16").err)

    def test_output_that_is_lost_is_an_io_fault_in_every_command(self):
        run, tokens = self.trained(), self.path("out.tokens")
        # Two long paths make a text larger than stdio's buffer, which fails during writing; shorter text fails at the
        # end.
        deep = self.path(*["x" * 200] * 11)
        os.makedirs(deep)
        os.mkdir(self.path("texts"))
        for name in "ab":
            self.write(f"texts/{name}.txt", "text\n")
        long = ["tokenize", self.path("texts"), "-o", os.path.join(deep, "a"), "--held-out", 2, "--held-out-file",
                os.path.join(deep, "b"), "--json"]
        self.assertGreater(len(self.succeeds(*long).out), 4096)
        for arguments in [
            long, ["train", "--help"], ["--help"], ["--version"], ["doctor"], ["plan", *TINY], ["plan", *TINY, "--json"],
            ["tune", *TINY_USUAL, "-o", self.path("kernels.json"), "--json"], ["tokenize", self.corpus(), "-o", tokens],
            ["check", tokens], ["inspect", run, "--json"], ["inspect", run, "--hash"],
            ["eval", run, "--data", self.write("few.txt", "text\n" * 20)], ["report", run], ["report", run, "--json"],
            ["generate", run, "--prompt", "line", "--tokens", 1],
            ["train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", "none"],
        ]:
            with self.subTest(arguments=arguments), open("/dev/full", "wb") as full:
                self.fails(5, *arguments, stdout=full, says="the output could not be written: No space left on device: send")

    def test_a_lost_result_names_the_file_that_is_complete(self):
        run = self.trained()
        for made, arguments in ((self.path("plan.json"), ["plan", *TINY]), (self.path("model"), ["export", run]),
                                (self.path("tokens"), ["tokenize", self.corpus()])):
            with self.subTest(arguments=arguments), open("/dev/full", "wb") as full:
                self.fails(5, *arguments, "-o", made, stdout=full, says=f"where there is room; {made} is complete all the same")
                self.succeeds("inspect", made)

    def test_a_lost_result_names_all_files_that_are_complete(self):
        made = [self.path(name) for name in ("plan.json", "plan.html", "program")]
        flags = [word for pair in zip(("-o", "--report", "--program"), made) for word in pair]
        for some, says in ((flags, "{}, {} and {} are"), (flags[:4], "{} and {} are"), (flags[2:], "{} and {} are"),
                           (flags[2:4], "{} is"), (flags[4:], "{} is")):
            with self.subTest(flags=some), open("/dev/full", "wb") as full:
                self.fails(5, "plan", *TINY, *some, stdout=full,
                           says="is room; " + says.format(*some[1::2]) + " complete all the same")
                for path in some[1::2]:
                    self.assertGreater(os.path.getsize(path), 0)
                    os.remove(path)
        texts, aside = self.path("texts.tokens"), self.path("aside.tokens")
        for name in ("1.txt", "2.txt"):
            self.write(name, "text\n")
        with open("/dev/full", "wb") as full:
            self.fails(5, "tokenize", self.folder, "-o", texts, "--held-out", 2, "--held-out-file", aside, stdout=full,
                       says=f"is room; {texts} and {aside} are complete all the same")

    def test_output_without_its_last_byte_is_an_io_fault(self):
        run, plan, out = self.trained(), self.path("plan.json"), self.path("out")
        self.succeeds("plan", *TINY, "-o", plan)
        text = ["generate", run, "--prompt", "line", "--tokens", 1]
        for arguments in [
            ["--help"], ["--version"], ["plan", "--help"], ["inspect", run, "--json"], ["inspect", run, "--hash"], ["check", run],
            ["report", run, "--text"], ["report", run, "--json"], ["diff", run, run], ["watch", run], ["simulate", plan],
            ["simulate", plan, "--json"], ["explain", plan, "lm_head", "--json"], text, [*text, "--json"],
        ]:
            with self.subTest(arguments=arguments):
                with open(out, "wb") as file:
                    self.succeeds(*arguments, stdout=file)
                most = os.path.getsize(out) - 1
                with open(out, "wb") as file:
                    self.fails(5, *arguments, stdout=file, says="the output could not be written: File too large: raise the limit of file sizes (ulimit -f)",
                               preexec_fn=lambda most=most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
                self.assertEqual(os.path.getsize(out), most)

    def test_a_table_that_cannot_be_written_leaves_no_half_of_a_json_object(self):
        # an existing folder in which nobody can create files, not even root
        done = self.fails(5, "tune", *TINY_USUAL, "-o", "/proc/kernels.json", "--json", says="/proc/kernels.json")
        self.assertEqual(sorted(done.json), ["exit_code", "status", "why"])

    def test_the_doctor_says_what_is_there(self):
        findings = self.succeeds("doctor", "--folder", self.folder, "--json").json["findings"]
        self.assertIn("cores", [finding["subject"] for finding in findings])
        self.assertTrue(self.succeeds("doctor").out)
        json.dumps(findings)

    def test_the_default_dtype_follows_the_processor_and_a_pretence_is_reported(self):
        dtype, says = {}, {}
        for isa in ("plain", "bf16-pretended"):
            there = {"env": environment(COH_ISA=isa)}
            dtype[isa] = self.succeeds("plan", *TINY, "--json", **there).json["dtype"]
            says[isa] = self.succeeds("doctor", **there).out
        self.assertEqual(dtype, {"plain": "f32", "bf16-pretended": "bf16"})
        self.assertIn("--dtype is f32 unless given", says["plain"])
        self.assertIn("widened to f32 with this COH_ISA", says["plain"])
        for chosen, why in (((), "full precision; with this COH_ISA bf16 is not multiplied in hardware"),
                            (("--dtype", "bf16"), "COH_ISA bars its products in hardware: --dtype f32 is faster and more precise")):
            self.assertIn(f"({why})", " ".join(self.succeeds("plan", *TINY, *chosen, env=environment(COH_ISA="plain")).out.split()))
        self.assertIn("--dtype is bf16 unless given", says["bf16-pretended"])
        self.assertIn("COH_ISA=bf16-pretended, a test setting", says["bf16-pretended"])
        trained = self.succeeds("train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", "none",
                                env=environment(COH_ISA="bf16-pretended")).err
        self.assertRegex(trained, r"dtype: +bf16 \(COH_ISA takes this CPU for one that multiplies it")
        self.assertRegex(trained, r"kernel: \S+\+bf16-pretended;")


if __name__ == "__main__":
    unittest.main()
