"""--frozen-dtype nf4: a run over frozen weights in 4 bits has the bits of one whose plain weights hold the same numbers."""

import os
import re
import shutil
import struct
import unittest

import model_folder
from program import QUICK, TrainTest, on_any_processor

LORA = ["--lora", "2:4", "--lora-targets", "*"]
NF4 = ["--frozen-dtype", "nf4"]
VALUES = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
          -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
          0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
NANO = ["gpt2-nano", "--sequence", 16, "--batch", 2, "--threads", 2, "--steps", 4, "--schedule-steps", 6]


def bf16(number):
    """Rounded to bf16, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16))[0]


def rounded(row):
    """A row of numbers as 4 bits hold it."""
    out = []
    for begin in range(0, len(row), 64):
        block = row[begin:begin + 64]
        scale = bf16(max(map(abs, block)))
        single = [struct.unpack("<f", struct.pack("<f", value))[0] for value in VALUES]
        for x in block:
            nearest = min(single, key=lambda value: abs(x - value * scale))
            out.append(bf16(struct.unpack("<f", struct.pack("<f", nearest * scale))[0]))
    return out


class Nf4(TrainTest):
    def nano(self, *more):
        return self.succeeds("train", *NANO, "--data", self.corpus(), *LORA, *more)

    def test_budgets_tiers_and_storage_change_no_bit(self):
        for dtype in ("f32", "bf16"):
            with self.subTest(dtype):
                run, whole = self.path("run-" + dtype), ["--dtype", dtype, "--steps", 6, "--save", "none"]
                done = self.nano(*NF4, *whole)
                self.assertIn("frozen weights of linear layers in nf4, 4.25 bits each", done.out + done.err)
                expected = self.says_hash(done)
                tight = self.nano(*NF4, *whole, "--device-memory", "24MiB", "--disk", self.path())
                self.assertEqual(self.says_hash(tight), expected)
                self.nano(*NF4, "--dtype", dtype, "--save", run, "--save-every", 2, "--keep", 2)
                shutil.copytree(run, self.path("plain-" + dtype))
                self.assertEqual(self.says_hash(self.resumed(run, "--steps", 6)), expected)
                self.assertEqual(self.says_hash(self.resumed(self.path("plain-" + dtype), "--frozen-dtype", "model", "--steps", 6)),
                                 expected)
                # one file of frozen numbers in both, since they are the same
                frozen = {os.stat(self.path(name + dtype, "step-6", "frozen.bin")).st_ino for name in ("run-", "plain-")}
                self.assertEqual(len(frozen), 2)
                self.assertEqual(os.stat(self.path("plain-" + dtype, "step-6", "frozen.bin")).st_nlink, 2)

    def test_a_run_begun_with_a_run_keeps_the_storage_and_says_what_changes(self):
        first, base = self.path("first"), ["--data", self.corpus(), "--sequence", 16, "--batch", 2, "--threads", 2]
        self.nano(*NF4, "--save", first)
        again = self.succeeds("train", first, *base, "--steps", 1, "--save", "none")
        self.assertIn(f"frozen weights in nf4: as those of {first}; --frozen-dtype changes it", again.err)
        self.assertIn("lr 2e-4: default for adapters of pretrained weights", again.err)
        self.assertIn("frozen weights of linear layers in nf4, 4.25 bits each", again.out + again.err)
        plain = self.succeeds("train", first, *base, "--steps", 1, "--save", "none", "--frozen-dtype", "model")
        self.assertNotIn("in nf4", plain.out + plain.err)
        self.assertEqual(self.says_hash(plain), self.says_hash(again))
        # storage is no part of the numeric plan: nothing is said to round otherwise
        shutil.copytree(first, self.path("off"))
        off = self.resumed(self.path("off"), "--frozen-dtype", "model", "--steps", 5)
        self.assertNotIn("bit for bit", off.err)
        on = self.resumed(self.path("off"), *NF4, "--steps", 6)
        self.assertIn("stored in nf4 from now on: they are rounded, unless they have been before", on.err)
        self.assertNotIn("bit for bit", on.err)
        self.assertEqual(self.says_hash(on), self.says_hash(self.resumed(first, "--steps", 6)))
        told = self.succeeds("export", first, "-o", self.path("adapters"), "--tokenizer", "none").err
        self.assertIn("the adapters were trained over weights in nf4", told)

    def test_weights_that_cannot_be_stored_so_are_counted(self):
        folder = self.path("odd")
        model_folder.make(folder, "llama", dtype="F32", C=128, inner=88)  # rows of down_proj have 88
        done = self.succeeds("train", folder, "--data", self.corpus(60), "--sequence", 16, "--batch", 2, "--threads", 2,
                             "--steps", 1, "--save", "none", "--lora", 2, *NF4)
        self.assertIn("4.25 bits each: 12 of 14, since rows of the others are no multiple of 128", " ".join((done.out + done.err).split()))
        self.assertNotIn("note: in f32", done.err)  # bf16 rounds less than 4 bits

    def test_a_hint_names_it_where_weights_move(self):
        plan = ["plan", "llama-3.2-1b", "--lora", 16, "--sequence", 64, "--batch", 1, "--profile", "rtx-3090", "--device-memory",
                "1GiB", "--calibration", "none"]
        self.assertRegex(" ".join(self.succeeds(*plan).out.split()), r"frozen: weights in 4 bits \(--frozen-dtype nf4\): a quick plan takes")
        self.assertNotIn("frozen:", self.succeeds(*plan, *NF4).out)

    @on_any_processor
    def test_a_refusal_names_it_where_a_plan_then_fits(self):
        """The bytes that are named are enough, as they are printed; where they are not, nothing is named."""
        plan = ["plan", "gpt2-nano", *LORA, "--dtype", "bf16", "--sequence", 16, "--batch", 2, *QUICK]
        remedy = r"or give --frozen-dtype nf4, which rounds frozen weights to 4 bits: a plan then takes (\S+) of (device memory|disk)"
        for flags, short, part in ((["--disk", "none", "--device-memory"], "15MiB", "device"),
                                   (["--device-memory", "4MiB", "--disk"], self.path() + ":12MiB", "disk")):
            with self.subTest(flags=flags):
                said = self.fails(3, *plan, *flags, short, says="nf4")
                enough, place = re.search(remedy, said.err).groups()
                self.assertIn(part, place)
                size = enough if part == "device" else f"{self.path()}:{enough}"
                self.succeeds(*plan, *NF4, *flags, size)
                told = self.fails(3, *plan, *flags, short, "--json", says="nf4").json
                change = told["changes"][-1]
                self.assertEqual((change["change"], change["tier"]), ("frozen-nf4", part))
                self.assertIn("--frozen-dtype nf4", told["remedy"])
                made = self.succeeds(*plan, *NF4, *flags, short, "--json").json
                self.assertLessEqual(made["peak_bytes"][part], change["bytes"])
        for flags in (["8MiB", *LORA], ["15MiB", "--freeze", "wpe"], ["9MiB", *LORA, *NF4]):
            short = ["plan", "gpt2-nano", "--sequence", 16, "--batch", 2, *QUICK, "--disk", "none", "--device-memory", *flags]
            self.assertNotIn("--frozen-dtype", self.fails(3, *short, says="raise --device-memory to").err)
            told = self.fails(3, *short, "--json", says="raise --device-memory to").json
            self.assertTrue(told["reason"] and told["changes"], told)

    @on_any_processor
    def test_a_limit_of_writes_names_it_where_it_is_kept_then(self):
        plan = ["plan", "gpt2-nano", *LORA, "--dtype", "bf16", "--sequence", 16, "--batch", 2, *QUICK, "--device-memory", "12MiB",
                "--disk", self.path(), "--disk-write-limit", "1GB/day"]
        self.fails(3, *plan, says="; the limit is kept with --frozen-dtype nf4, or with --device-memory ")
        self.assertEqual(self.succeeds(*plan, *NF4, "--json").json["disk_bytes_written"], 0)

    def test_a_folders_weights_are_rounded_once(self):
        folder = self.path("model")
        tensors = model_folder.make(folder, "llama", dtype="BF16", C=128, inner=256)
        base = ["train", folder, "--data", self.corpus(60), "--sequence", 16, "--batch", 2, "--threads", 2, "--steps", 1]
        self.succeeds(*base, "--lora", 2, *NF4, "--save", self.path("run"))
        self.succeeds("export", self.path("run"), "-o", self.path("merged"), "--merge-lora", "--dtype", "f32")
        merged = model_folder.read(self.path("merged"))
        checked = 0
        for name, (dtype, dims, data) in tensors.items():
            if not name.endswith(("o_proj.weight", "up_proj.weight", "down_proj.weight", "embed_tokens.weight")):
                continue
            numbers, found = model_folder.widen(data, dtype), model_folder.widen(merged[name][2], merged[name][0])
            if not name.endswith("embed_tokens.weight"):
                numbers = rounded(list(numbers))
                checked += 1
            self.assertEqual(list(found), list(numbers), name)
        self.assertGreater(checked, 2)
        kept = self.succeeds(*base, "--lora", 2, "--save", "none")
        self.assertNotIn("nf4", kept.out + kept.err)

    def test_adapters_that_are_exported_say_over_which_weights_they_were_trained(self):
        folder, text = self.path("model"), self.corpus(60)
        model_folder.make(folder, "llama", dtype="BF16", C=128, inner=256)
        base = ["train", folder, "--data", text, "--sequence", 16, "--batch", 2, "--threads", 2, "--steps", 1]
        note = "were trained over weights in nf4, and those of"
        for name, flags in (("packed", NF4), ("plain", [])):
            run, out = self.path("run-" + name), self.path(name)
            done = self.succeeds(*base, "--lora", 2, *flags, "--save", run, "--json").json
            self.assertEqual(done["frozen_dtype"], "nf4" if flags else None)
            self.succeeds("export", run, "-o", out)
            held = model_folder.metadata(os.path.join(out, "adapter_model.safetensors"))
            self.assertEqual(held, {"format": "pt", **({"cohobate.frozen_dtype": "nf4"} if flags else {})})
            told = [self.succeeds("eval", folder, "--adapter", out, "--data", text, "--sequence", 16).err,
                    self.succeeds("generate", folder, "--adapter", out, "--prompt", "a", "--tokens", 2).err,
                    self.succeeds("export", folder, "--adapter", out, "-o", self.path("merged-" + name), "--merge-lora").err,
                    self.succeeds(*base, "--adapter", out, "--save", "none").err]
            for said in told:
                self.assertEqual(note in " ".join(said.split()), bool(flags), said)
            self.assertNotIn(note, " ".join(self.succeeds(*base, "--adapter", out, *NF4, "--save", "none").err.split()))
            shown = self.succeeds("inspect", run)
            self.assertEqual("frozen weights of linear layers in nf4" in shown.out, bool(flags))
            self.assertEqual(self.succeeds("inspect", run, "--json").json["frozen_dtype"], "nf4" if flags else None)
            self.assertNotIn(note, self.succeeds("eval", run, "--data", text).err)  # has the rounded numbers

    def test_weights_that_were_rounded_once_are_said_to_be_for_ever(self):
        """Later runs store them as the model has them, which gives nothing back."""
        folder, text, plain = self.path("model"), self.corpus(60), ["--frozen-dtype", "model"]
        model_folder.make(folder, "llama", dtype="BF16", C=128, inner=256)
        base = ["--data", text, "--sequence", 16, "--batch", 2, "--threads", 2, "--steps", 1]
        self.succeeds("train", folder, *base, "--lora", 2, *NF4, "--save", self.path("first"))
        self.succeeds("train", self.path("first"), *base, *plain, "--save", self.path("second"))
        self.succeeds("train", self.path("second"), *base, "--save", self.path("third"))
        shutil.copytree(self.path("first"), self.path("resumed"))
        self.resumed(self.path("resumed"), *plain, "--steps", 2)
        for name in ("second", "third", "resumed"):
            with self.subTest(name=name):
                run, out = self.path(name), self.path(name + "-out")
                self.assertIsNone(self.succeeds("inspect", run, "--json").json["frozen_dtype"])
                self.assertIn("frozen weights of linear layers were in nf4: the numbers here are rounded so", self.succeeds("inspect", run).out)
                self.assertIn("the adapters were trained over weights in nf4", self.succeeds("export", run, "-o", out).err)
                held = model_folder.metadata(os.path.join(out, "adapter_model.safetensors"))
                self.assertEqual(held["cohobate.frozen_dtype"], "nf4")
        self.succeeds("train", folder, *base, "--freeze", "*_proj", *NF4, "--save", self.path("frozen"))
        self.succeeds("train", folder, *base, "--freeze", "*_proj", "--save", self.path("kept"))
        for name, flags, is_told in (("third", ["--merge-lora"], True), ("frozen", [], True), ("kept", [], False)):
            said = self.succeeds("export", self.path(name), "-o", self.path(name + "-whole"), *flags).err
            self.assertEqual("frozen weights of linear layers were rounded to nf4, and are exported so" in said, is_told, said)

    def test_what_has_no_such_weights_is_refused(self):
        says = "--frozen-dtype nf4 is of frozen weights of linear layers"
        self.fails(2, "train", *NANO, "--data", self.corpus(), *NF4, says=says)
        self.fails(2, "train", *NANO, "--data", self.corpus(), *NF4, "--freeze", "wte,wpe", says=says)
        tiny = model_folder.make(self.path("tiny"), "llama")
        self.assertTrue(tiny)
        self.fails(2, "plan", self.path("tiny"), "--lora", 2, *NF4, says=says)

    def test_a_plan_holds_a_quarter_and_can_be_replayed(self):
        plan = ["plan", "llama-3.2-1b", "--lora", 16, "--dtype", "bf16", "--sequence", 128, "--batch", 1, "--device-memory", "8GiB"]
        usual, packed = self.succeeds(*plan, "--json").json, self.succeeds(*plan, *NF4, "--json").json
        weights = 16 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192)  # of all linears
        self.assertEqual(usual["parameter_bytes"] - packed["parameter_bytes"], 2 * weights - weights // 64 * 34)
        nano = ["plan", *NANO, "--data", self.corpus(), *LORA, *NF4, "-o", self.path("plan.json")]
        self.succeeds(*nano)
        made = self.succeeds("simulate", self.path("plan.json"), "--json").json
        self.assertGreater(made["step_seconds"], 0)
        self.assertEqual((usual["frozen_dtype"], packed["frozen_dtype"]), (None, "nf4"))
        self.assertEqual(self.succeeds("inspect", self.path("plan.json"), "--json").json["frozen_dtype"], "nf4")
        self.assertIn("(frozen weights nf4)", self.succeeds("inspect", self.path("plan.json")).out)


if __name__ == "__main__":
    unittest.main()
