"""Frozen parts of a model, and adapters trained with all of it frozen: from folder to folder."""

import json
import os
import shutil
import unittest

import model_folder
from program import ProgramTest, in_full

SMALL = ["--sequence", 16, "--batch", 2, "--threads", 2]
MOVING = ["--lr", "1e-2", "--warmup", 0]
# kind: default targets (endings of modules); number of linears; whether weights are published transposed
DEFAULTS = {"gpt2": (["c_attn"], 2, True), "opt": (["q_proj", "v_proj"], 4, False), "llama": (["q_proj", "v_proj"], 4, False)}


def matrix(tensor):
    """A tensor as rows of floats."""
    dtype, (rows, columns), data = tensor
    numbers = model_folder.widen(data, dtype)
    return [numbers[r * columns:(r + 1) * columns] for r in range(rows)]


class Adapters(ProgramTest):
    def model(self, kind, name="model", **keywords):
        tensors = model_folder.make(self.path(name), kind, **keywords)
        return self.path(name), tensors

    def train(self, *arguments, **keywords):
        return self.succeeds("train", *arguments, "--data", self.corpus(60), *SMALL, **keywords)

    def read_adapters(self, name):
        with open(self.path(name, "adapter_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        return config, model_folder.read_file(self.path(name, "adapter_model.safetensors"))

    def merged(self, weight, down, up, factor, turned):
        """W + factor B A in its published layout, in double."""
        down, up, rows = matrix(down), matrix(up), matrix(weight)
        for o, factors in enumerate(up):
            for i in range(len(down[0])):
                added = factor * sum(b * a[i] for b, a in zip(factors, down))
                if turned:
                    rows[i] = rows[i][:o] + (rows[i][o] + added,) + rows[i][o + 1:]
                else:
                    rows[o] = rows[o][:i] + (rows[o][i] + added,) + rows[o][i + 1:]
        return rows

    # ---- adapters ----

    def test_adapters_come_out_in_a_folder_of_their_own_or_merged(self):
        for kind, (targets, count, turned) in DEFAULTS.items():
            with self.subTest(kind=kind):
                folder, tensors = self.model(kind, kind, dtype="F32")
                run, out, whole = (self.path(name + kind) for name in ("run-", "adapters-", "merged-"))
                done = self.train(folder, "--lora", "3:6", "--steps", 3, *MOVING, "--dtype", "f32", "--save", run)
                self.assertRegex(done.err, rf"trains: \d+ of \d+ .*adapters of rank 3, alpha 6 on {count} of")
                self.succeeds("export", run, "-o", out)
                self.assertEqual(sorted(os.listdir(out)), ["adapter_config.json", "adapter_model.safetensors"])
                config, factors = self.read_adapters("adapters-" + kind)
                self.assertEqual((config["r"], config["lora_alpha"], config["target_modules"]), (3, 6, targets))
                self.assertEqual(config["base_model_name_or_path"], folder)
                self.assertEqual(len(factors), 2 * count)
                self.succeeds("export", run, "-o", whole, "--merge-lora")
                merged = model_folder.read(whole)
                self.assertEqual(merged.keys(), tensors.keys())
                for name, tensor in tensors.items():
                    begin = "base_model.model." + name[:-len("weight")]
                    if begin + "lora_A.weight" not in factors:
                        self.assertEqual(merged[name], tensor, name)
                        continue
                    must = self.merged(tensor, *(factors[f"{begin}lora_{x}.weight"] for x in "AB"), 2.0, turned)
                    self.assertNotEqual(merged[name][2], tensor[2], name)
                    for found, exact in zip(matrix(merged[name]), must):
                        for x, y in zip(found, exact):
                            self.assertLessEqual(abs(x - y), 1e-6 * (1 + abs(y)), name)

    def test_a_tokenizer_goes_along_with_adapters_where_it_is_asked_for(self):
        folder, _ = self.model("gpt2")
        run, out = self.path("run"), self.path("out")
        self.train(folder, "--lora", 2, "--steps", 1, "--save", run)
        own = {"adapter_config.json", "adapter_model.safetensors"}
        theirs = {name for name in os.listdir(folder) if not name.startswith(("model", "config", "generation"))}
        self.assertIn("tokenizer.json", theirs)
        self.assertIn("generation_config.json", os.listdir(folder))
        done = self.succeeds("export", run, "-o", out, "--tokenizer", folder, "--json")
        self.assertEqual(set(os.listdir(out)), own | theirs)
        self.assertEqual(done.json["tokenizer"], folder)
        for name in theirs:
            with open(os.path.join(folder, name), "rb") as was, open(os.path.join(out, name), "rb") as now:
                self.assertEqual(now.read(), was.read(), name)
        self.succeeds("export", run, "-o", self.path("none"), "--tokenizer", "none")
        self.assertEqual(set(os.listdir(self.path("none"))), own)
        other = os.path.join(model_folder.TOKENIZERS, "qwen2")
        self.fails(4, "export", run, "-o", self.path("other"), "--tokenizer", other, says="not the one the checkpoint was")
        self.assertFalse(os.path.exists(self.path("other")))

    def test_a_merged_folder_has_the_loss_of_the_checkpoint(self):
        for kind in DEFAULTS:
            with self.subTest(kind=kind):
                folder, _ = self.model(kind, kind, dtype="F32")
                run, whole = self.path("run-" + kind), self.path("merged-" + kind)
                self.train(folder, "--lora", "4", "--lora-targets", "*", "--steps", 4, *MOVING, "--dtype", "f32", "--save",
                           run)
                self.succeeds("export", run, "-o", whole, "--merge-lora")
                losses = [self.succeeds("eval", where, "--data", self.corpus(60), "--sequence", 16, "--dtype", "f32",
                                        "--json").json["loss"] for where in (folder, run, whole)]
                self.assertNotAlmostEqual(losses[0], losses[1], 4)
                self.assertAlmostEqual(losses[1], losses[2], 5)
                texts = [self.succeeds("generate", where, "--prompt", "line", "--tokens", 8, "--temperature", 0, "--dtype",
                                       "f32").out for where in (run, whole)]
                self.assertEqual(*texts)

    # ---- a folder of adapters, over its model ----

    def exported(self, kind, *flags):
        """Folder of the model, run folder and folder of the adapters of a run of a few steps."""
        folder, _ = self.model(kind, kind, dtype="F32")
        run, out = self.path("run-" + kind), self.path("adapters-" + kind)
        self.train(folder, "--lora", "3:6", *flags, "--steps", 4, *MOVING, "--dtype", "f32", "--save", run)
        self.succeeds("export", run, "-o", out)
        return folder, run, out

    def test_a_folder_of_adapters_over_its_model_is_the_run_that_made_them(self):
        # Targets of one layer alone, of all linears, and the default.
        for kind, flags in (("gpt2", ["--lora-targets", "h.1.attn.c_proj,c_fc"]), ("opt", ["--lora-targets", "*"]),
                            ("llama", [])):
            with self.subTest(kind=kind):
                folder, run, out = self.exported(kind, *flags)
                over = [folder, "--adapter", out]
                score = ["--data", self.corpus(60), "--sequence", 16, "--micro-batch", 2, "--threads", 2, "--dtype", "f32", "--json"]
                losses = [self.succeeds("eval", *what, *score).json["loss"] for what in ([folder], [run], over)]
                self.assertNotEqual(losses[0], losses[1])
                self.assertEqual(losses[1], losses[2])
                write = ["--prompt", "line", "--tokens", 8, "--temperature", 0, "--dtype", "f32"]
                self.assertEqual(*(self.succeeds("generate", *what, *write).out for what in ([run], over)))
                wholes = [self.path(name + kind) for name in ("merged-", "merged-over-")]
                self.succeeds("export", run, "-o", wholes[0], "--merge-lora")
                self.succeeds("export", *over, "-o", wholes[1], "--merge-lora")
                self.assertEqual(*(model_folder.read(whole) for whole in wholes))

    def test_a_run_begins_with_a_folder_of_adapters(self):
        folder, run, out = self.exported("llama")
        train = [folder, "--adapter", out, "--dtype", "f32"]
        # At a rate of 0 the run ends with the adapters that it began with.
        done = self.train(*train, "--lr", 0, "--weight-decay", 0, "--steps", 1, "--save", self.path("same"))
        self.assertRegex(done.err, r"adapters of rank 3, alpha 6 on 4 of")
        self.assertIn(f"start:  adapters of {out}", done.err)
        self.succeeds("export", self.path("same"), "-o", self.path("same-adapters"))
        self.assertEqual(self.read_adapters("same-adapters"), self.read_adapters("adapters-llama"))
        done = self.train(*train, "--steps", 2, "--save", self.path("next"))
        self.assertIn("lr 2e-4: default for adapters", done.err)
        done = self.succeeds("train", "--resume", self.path("next"), "--steps", 3)
        self.assertIn("adapters of rank 3", done.err)
        self.succeeds("plan", *train, *SMALL)

    def test_adapters_that_do_not_fit_are_refused(self):
        folder, run, out = self.exported("gpt2")
        train = ["train", folder, "--data", self.corpus(60), *SMALL, "--adapter", out]
        self.fails(2, *train, "--lora", 2, says="leave --freeze, --lora, --lora-targets and --lora-also out")
        self.fails(2, *train, "--from-scratch", says="--adapter keeps trained weights")
        self.fails(2, "train", "gpt2-pico", *train[2:], says="--adapter goes with trained weights")
        self.fails(2, "train", "--resume", run, "--steps", 6, "--adapter", out, says="comes from the checkpoint")
        self.fails(2, "eval", run, "--data", self.corpus(60), "--adapter", out, says="leave --adapter out")
        self.fails(2, "export", folder, "--adapter", out, "-o", self.path("no"), says="add --merge-lora")
        self.fails(2, *train[:-1], self.path("none"), says="export or PEFT wrote")
        other, _ = self.model("llama", "other")
        self.fails(4, "eval", other, "--adapter", out, "--data", self.corpus(60), says="is no adapter of a linear")
        config, _ = self.read_adapters("adapters-gpt2")
        for changed, says in ({"use_dora": True}, "use_dora"), ({"bias": "all"}, "bias"), ({"r": 4}, "another rank"), \
                             ({"peft_type": "IA3"}, "peft_type"), ({"init_lora_weights": "pissa"}, "init_lora_weights"), \
                             ({"rank_pattern": {"c_attn": 2}}, "rank_pattern"), ({"modules_to_save": ["wte"]}, "modules"):
            with self.subTest(says=says):
                with open(os.path.join(out, "adapter_config.json"), "w", encoding="utf-8") as file:
                    json.dump({**config, **changed}, file)
                self.fails(4, *train, says=says)
        with open(os.path.join(out, "adapter_config.json"), "w", encoding="utf-8") as file:
            json.dump({**config, "lora_dropout": 0.1, "use_dora": False, "peft_version": "0.18.0"}, file)
        self.assertIn("dropout: 0.1 of the inputs of adapters", self.succeeds(*train, "--steps", 1, "--save", "none").err)
        path = os.path.join(out, "adapter_model.safetensors")
        _, tensors = self.read_adapters("adapters-gpt2")
        twice = {name.removeprefix("base_model.model."): tensor for name, tensor in tensors.items()}
        model_folder.write_file(path, {**tensors, **twice})
        self.fails(4, *train, says="is there twice")
        rows = next(iter(tensors.values()))[1][0]
        for table, says, remedy in (
                ("transformer.wte.weight", f"has {rows} rows, and the vocabulary of gpt2 has 420: PEFT saves the embedding and the head with "
                 "adapters if the vocabulary was resized", "train them with the model's own vocabulary"),
                ("lm_head.weight", f"has {rows} rows, and the vocabulary", "train them with the model's own vocabulary"),
                ("transformer.wte.lora_embedding_A", "is of an adapter of the embedding or the head, which cannot have one here",
                 "train these modules in full (modules_to_save)")):
            model_folder.write_file(path, {**tensors, "base_model.model." + table: next(iter(tensors.values()))})
            said = self.fails(4, *train, says=f"tensor base_model.model.{table} {says}").err
            self.assertIn("merge them into their model with PEFT (merge_and_unload), or " + remedy, said)
        os.truncate(path, 100)
        self.fails(4, *train, says="adapter_model.safetensors")
        os.rename(path, os.path.join(out, "adapter_model.bin"))  # older PEFT's
        self.fails(4, *train, says="holds no adapter_model.safetensors: fetch it again; adapter_model.bin of an older PEFT")

    # ---- adapters in a run ----

    def test_adapters_in_bf16_have_masters_in_float(self):
        folder, tensors = self.model("opt")
        self.train(folder, "--lora", 4, "--steps", 3, *MOVING, "--dtype", "bf16", "--save", self.path("run"))
        self.succeeds("export", self.path("run"), "-o", self.path("out"), "--dtype", "f32")
        _, factors = self.read_adapters("out")
        numbers = [x for dtype, _, data in factors.values() for x in model_folder.widen(data, dtype)]
        halves = model_folder.widen(model_folder.narrow(numbers, "BF16"), "BF16")
        self.assertGreater(sum(x != y for x, y in zip(numbers, halves)), len(numbers) // 2)
        self.succeeds("export", self.path("run"), "-o", self.path("merged"), "--merge-lora")
        merged = model_folder.read(self.path("merged"))
        for name, tensor in tensors.items():
            same = merged[name] == tensor
            self.assertEqual(same, not name.endswith(("q_proj.weight", "v_proj.weight")), name)

    def test_a_run_goes_on_with_its_adapters_bit_for_bit(self):
        folder, _ = self.model("llama")
        whole = self.train(folder, "--lora", 4, "--steps", 4, "--save", "none", *MOVING)
        self.train(folder, "--lora", 4, "--steps", 2, "--schedule-steps", 4, "--save", self.path("run"), *MOVING)
        done = self.succeeds("train", "--resume", self.path("run"), "--steps", 4)
        self.assertIn("adapters of rank 4", done.err)
        self.assertEqual(self.says_hash(done), self.says_hash(whole))
        for flags in (["--lora", 4], ["--freeze", "norm"], ["--lora-targets", "q_proj"]):
            self.fails(2, "train", "--resume", self.path("run"), "--steps", 6, *flags, says="comes from the checkpoint")

    def test_adapters_drop_their_inputs(self):
        folder, _ = self.model("llama", dtype="F32")
        same = ["--dtype", "f32", "--micro-batch", 1]
        told = [folder, "--lora", "3:6", "--lora-targets", "*", *same, *MOVING]
        some = [*told, "--lora-dropout", 0.25, "--schedule-steps", 4]
        plain = self.train(*told, "--steps", 4, "--save", "none")
        self.assertNotIn("dropout", plain.err)
        none = self.train(*told, "--lora-dropout", 0, "--steps", 4, "--save", "none")
        self.assertEqual(self.says_hash(none), self.says_hash(plain))
        whole = self.train(*some, "--steps", 4, "--save", self.path("whole"))
        self.assertRegex(whole.err, r"(?m)^dropout: 0.25 of the inputs of adapters in training, none in validation$")
        self.assertNotEqual(self.says_hash(whole), self.says_hash(plain))
        # a resumed run, also within less memory, keeps it
        self.train(*some, "--steps", 2, "--save", self.path("run"))
        memory = self.succeeds("plan", *some, *SMALL, "--json").json["in_memory_bytes"]
        resume = ["train", "--resume", self.path("run"), "--steps", 4, "--threads", 1]
        done = self.succeeds(*resume, "--disk", self.folder, "--device-memory", f"{memory // 2048}KiB", "--json")
        self.assertGreater(done.json["link_bytes"]["read"], 0)
        self.assertIn("dropout: 0.25 of the inputs", done.err)
        self.assertEqual(done.json["hash"], self.says_hash(whole))
        self.fails(2, "train", "--resume", self.path("whole"), "--steps", 6, "--lora-dropout", 0.1, says="comes from the checkpoint")
        # evaluation has no dropout, and the digits of the run's validation
        held = self.write("held.txt", "a line that was held out\n" * 20)
        measured = self.train(self.path("whole"), *same, "--steps", 1, "--lr", 0, "--weight-decay", 0, "--validation", held,
                              "--tokenizer", folder, "--save", "none", "--json")
        self.assertIn(f"dropout of adapters 0.25: as those of {self.path('whole')}; --lora-dropout changes it", measured.err)
        loss = self.succeeds("eval", self.path("whole"), "--data", held, "--sequence", 16, "--micro-batch", 1, "--json").json["loss"]
        self.assertEqual(loss, measured.json["validation_loss"])

    def test_a_folder_of_adapters_keeps_their_dropout(self):
        folder, _ = self.model("gpt2", dtype="F32")
        config, out = self.path("out", "adapter_config.json"), self.path("out")
        for flags, share in (([], "0.0"), (["--lora-dropout", 0.05], "0.05")):
            shutil.rmtree(out, ignore_errors=True)
            self.train(folder, "--lora", 2, *flags, "--steps", 2, *MOVING, "--save", self.path("run" + share))
            self.succeeds("export", self.path("run" + share), "-o", out)
            with open(config, encoding="utf-8") as file:
                self.assertIn(f'"lora_dropout": {share},', file.read())
        again = [folder, "--adapter", out, "--steps", 1]
        done = self.train(*again, "--save", self.path("next"))
        self.assertIn("adapters with lora_dropout 0.05: training keeps it unless --lora-dropout gives another number", done.err)
        self.assertIn("dropout: 0.05 of the inputs", done.err)
        self.assertIn("dropout: 0.05 of the inputs", self.succeeds("train", "--resume", self.path("next"), "--steps", 2).err)
        self.assertIn("dropout: 0.5 of the inputs", self.train(*again, "--save", "none", "--lora-dropout", 0.5).err)
        self.assertNotIn("of the inputs", self.train(*again, "--save", "none", "--lora-dropout", 0).err)
        score = ["--data", self.corpus(60), "--sequence", 16, "--micro-batch", 2, "--threads", 2, "--json"]
        self.assertEqual(*(self.succeeds("eval", *what, *score).json["loss"]
                           for what in ([folder, "--adapter", out, "--dtype", "f32"], [self.path("run0.05"), "--dtype", "f32"])))
        for flags in ([], ["--freeze", "wte"]):
            self.fails(2, "train", folder, "--data", self.corpus(), *flags, "--lora-dropout", 0.1,
                       says="--lora-dropout is of the inputs of adapters, and this run has none: add --lora 8")
        for share in (1, -0.5, "half"):
            self.fails(2, "train", folder, "--data", self.corpus(), "--lora", 2, f"--lora-dropout={share}",
                       says="--lora-dropout takes a number")

    def test_a_checkpoint_gets_adapters_once(self):
        folder, _ = self.model("gpt2")
        self.train(folder, "--steps", 2, "--save", self.path("plain"), *MOVING)
        told = ["--tokenizer", folder, "--vocabulary", 420]
        self.train(self.path("plain"), "--lora", 2, "--steps", 2, "--save", self.path("beside"), *told, *MOVING)
        self.fails(2, "train", self.path("beside"), "--data", self.corpus(), "--lora", 2, *told, says="--merge-lora")
        self.train(self.path("beside"), "--steps", 1, "--save", "none", *told)
        self.succeeds("export", self.path("beside"), "-o", self.path("merged"), "--merge-lora")
        self.train(self.path("merged"), "--lora", 2, "--steps", 1, "--save", "none")

    # ---- what is frozen ----

    def test_what_is_frozen_keeps_its_bytes(self):
        folder, tensors = self.model("gpt2")
        done = self.train(folder, "--freeze", "wte,wpe,h.0.*,ln_?", "--steps", 3, *MOVING, "--dtype", "f32", "--save",
                          self.path("run"))
        self.assertIn("wte,wpe,h.0.*,ln_? frozen", done.err)
        self.succeeds("export", self.path("run"), "-o", self.path("out"))
        out = model_folder.read(self.path("out"))
        for name, tensor in tensors.items():
            frozen = "wte" in name or "wpe" in name or ".h.0." in name or ".ln_" in name
            self.assertEqual(out[name] == tensor, frozen, name)

    def test_what_is_frozen_keeps_its_bytes_in_the_dtype_that_nobody_chose(self):
        for kind, dtype in (("gpt2", "F32"), ("gpt2", "F16"), ("llama", "F32"), ("opt", "BF16")):
            for flags in (["--freeze", "embed_tokens,lm_head" if kind == "llama" else "wte" if kind == "gpt2" else "fc1"],
                          ["--lora", 2, "--lora-targets", "c_attn" if kind == "gpt2" else "q_proj"]):
                with self.subTest(kind=kind, dtype=dtype, flags=flags):
                    name = f"{kind}{dtype}{flags[0]}"
                    folder, tensors = self.model(kind, name, dtype=dtype)
                    run, out = self.path("run-" + name), self.path("out-" + name)
                    self.train(folder, *flags, "--steps", 2, *MOVING, "--save", run)
                    self.succeeds("export", run, "-o", out, *(["--merge-lora"] if flags[0] == "--lora" else []))
                    for tensor, has in model_folder.read(out).items():
                        trained = ("c_attn.weight" in tensor or "q_proj.weight" in tensor) if flags[0] == "--lora" else \
                            not any(one in tensor for one in flags[1].split(","))
                        if not trained:
                            self.assertTrue(has == tensors[tensor], tensor)

    def test_bf16_that_is_asked_for_says_that_it_rounds_what_is_frozen(self):
        folder, _ = self.model("gpt2")
        run = self.path("run")
        done = self.train(folder, "--freeze", "wte", "--steps", 1, "--dtype", "bf16", "--save", run)
        self.assertIn("rounded to bf16", done.err)
        self.train(folder, "--freeze", "wte", "--steps", 1, "--dtype", "f32", "--save", self.path("full"))
        done = self.succeeds("train", "--resume", self.path("full"), "--steps", 2, "--dtype", "bf16")
        self.assertIn("rounded to bf16", done.err)
        done = self.train(folder, "--steps", 1, "--dtype", "bf16", "--save", "none")
        self.assertNotIn("rounded to bf16", done.err)

    def test_what_is_frozen_of_a_checkpoint_keeps_the_bits_of_its_masters(self):
        folder, _ = self.model("opt", dtype="BF16")
        plain, run = self.path("plain"), self.path("run")
        self.train(folder, "--steps", 2, *MOVING, "--dtype", "bf16", "--save", plain)
        told = ["--tokenizer", folder, "--steps", 1, *MOVING]
        done = self.train(plain, "--freeze", "fc1", *told, "--save", run)
        self.assertIn("bf16 would round what is frozen", done.err)
        for name in ("plain", "run"):
            self.succeeds("export", self.path(name), "-o", self.path(name + "-out"), "--dtype", "f32", "--tokenizer", "none")
        masters, kept = model_folder.read(self.path("plain-out")), model_folder.read(self.path("run-out"))
        name = "model.decoder.layers.0.fc1.weight"
        self.assertEqual(masters[name], kept[name])
        numbers = model_folder.widen(masters[name][2], "F32")
        self.assertNotEqual(numbers, model_folder.widen(model_folder.narrow(numbers, "BF16"), "BF16"))
        self.assertIn("rounded to bf16", self.train(plain, "--lora", 2, "--dtype", "bf16", *told, "--save", "none").err)
        # values frozen in bf16 are bf16 values
        self.train(folder, "--freeze", "fc1", "--dtype", "bf16", *told, "--save", self.path("frozen"))
        for flags in ([], ["--freeze", "fc1"]):
            done = self.train(self.path("frozen"), *flags, *told, "--save", "none")
            self.assertIn("dtype:  bf16", done.err)
            self.assertNotIn("round what is frozen", done.err)

    def test_plan_and_train_choose_one_dtype_and_say_the_same_of_it(self):
        def stored(name, config_dtype, frozen, trained):
            """A folder whose config.json names one dtype, while its tensors have others."""
            folder, tensors = self.model("opt", name, dtype=config_dtype)
            for file in os.listdir(folder):
                if ".safetensors" in file:
                    os.remove(os.path.join(folder, file))
            changed = {}
            for tensor, (was, shape, data) in tensors.items():
                dtype = frozen if "fc1" in tensor else trained
                changed[tensor] = (dtype, shape, model_folder.narrow(model_folder.widen(data, was), dtype))
            order = {"F32": 0, "BF16": 1, "F16": 2}
            names = sorted(changed, key=lambda name: (order[changed[name][0]], name))
            model_folder.write_file(os.path.join(folder, "model.safetensors"), {name: changed[name] for name in names})
            return folder

        def told(*arguments):
            done = self.succeeds(*arguments)
            lines = (done.out + done.err).split("\n")
            return sorted(line for line in lines if line.startswith(("dtype:", "note: in f32", "note: what is frozen")))
        freeze, lora = ["--freeze", "fc1"], ["--lora", 2]
        for config, frozen, trained, flags, rounds in (("BF16", "F32", "BF16", freeze, True), ("F32", "BF16", "F32", freeze, False),
                                                       ("F32", "BF16", "BF16", lora, False), ("BF16", "F16", "BF16", lora, True),
                                                       ("BF16", "BF16", "F32", freeze, False)):
            folder = stored(f"{config}{frozen}{trained}{flags[0]}", config, frozen, trained)
            for dtype in ([], ["--dtype", "bf16"]):
                with self.subTest(config=config, frozen=frozen, trained=trained, flags=flags, dtype=dtype):
                    planned = told("plan", folder, *SMALL, *flags, *dtype)
                    self.assertEqual(planned, told("train", folder, "--data", self.corpus(60), *SMALL, *flags, *dtype,
                                                   "--steps", 1, "--save", "none"))
                    if dtype:
                        self.assertEqual(any("rounded to bf16" in line for line in planned), rounds, planned)
                    elif not rounds:
                        self.assertFalse(any("note: in f32" in line for line in planned), planned)
        # a config.json alone is enough
        os.remove(os.path.join(folder, "model.safetensors"))
        self.assertTrue(told("plan", folder, *SMALL, *flags))

    def test_nothing_is_said_to_be_rounded_that_is_bf16_already(self):
        for base, rounds in (("BF16", False), ("F32", True)):
            folder, tensors = self.model("opt", "of-" + base, dtype=base)
            run = self.path("run-" + base)
            self.train(folder, "--freeze", "fc1", "--steps", 1, *MOVING, "--dtype", "f32", "--save", run)
            done = self.succeeds("train", "--resume", run, "--steps", 2, "--dtype", "bf16")
            self.assertEqual("what is frozen is rounded" in done.err, rounds, done.err)
            self.assertIn("dtype f32 -> bf16", done.err)
            self.succeeds("export", run, "-o", self.path("out-" + base))
            name = "model.decoder.layers.0.fc1.weight"
            kept = model_folder.read(self.path("out-" + base))[name] == tensors[name]
            self.assertEqual(kept, not rounds)
        # a bf16 run that froze more than this one: its frozen parameters are bf16 in its checkpoint
        self.train(self.path("of-BF16"), "--freeze", "fc1,fc2", "--steps", 1, *MOVING, "--dtype", "bf16", "--save",
                   self.path("more"))
        done = self.train(self.path("more"), "--freeze", "fc1", "--steps", 1, "--dtype", "bf16", "--save", "none")
        self.assertNotIn("rounded", done.err)
        done = self.train(self.path("more"), "--freeze", "out_proj", "--steps", 1, "--dtype", "bf16", "--save", "none")
        self.assertIn("rounded", done.err)

    def test_adapters_name_a_folder_as_their_base_or_nothing(self):
        folder, _ = self.model("gpt2")
        self.train(folder, "--steps", 1, "--save", self.path("plain"))
        for name, start in (("beside", [self.path("plain")]), ("new", ["gpt2-nano", "--vocabulary", 300])):
            self.train(*start, "--lora", 2, "--lora-targets", "c_fc", "--steps", 1, "--save", self.path(name))
            done = self.succeeds("export", self.path(name), "-o", self.path(name + "-out"))
            self.assertIn("names no base model", done.err)
            self.assertIsNone(self.read_adapters(name + "-out")[0]["base_model_name_or_path"])

    def test_a_run_that_begins_with_a_run_has_the_files_of_the_first_ones_base(self):
        folder, _ = self.model("gpt2")
        texts = {"LICENSE": "Free.", "NOTICE.md": "By others.", "README.md": "# Model",
                 "generation_config.json": json.dumps({"eos_token_id": [0, 7], "top_k": 5})}
        for name, text in texts.items():
            self.write(f"model/{name}", text)
        base = {"beside": folder, "beside-on": folder, "twice-beside": None, "twice-beside-on": None}
        for name, start in (("once", [folder]), ("twice", [self.path("once")]), ("thrice", [self.path("twice", "step-1")]),
                            ("beside", [folder, "--lora", 2]), ("beside-on", [self.path("beside")]),
                            ("twice-beside", [self.path("twice"), "--lora", 2]),
                            ("twice-beside-on", [self.path("twice-beside")])):
            with self.subTest(name=name):
                self.train(*start, "--steps", 1, "--save", self.path(name))
                out, whole = f"{name}-out", ["--merge-lora"] if name in base else []
                self.succeeds("export", self.path(name), "-o", self.path(out), *whole)
                for file, text in texts.items():
                    with open(self.path(out, file), encoding="utf-8") as copy:
                        self.assertEqual(copy.read(), text)
                said = self.succeeds("generate", self.path(name), "--prompt", "a", "--tokens", 1, "--threads", 2).err
                self.assertIn(f"{folder}/generation_config.json is taken as if it were flags: --top-k 5;", said)
                if name in base:
                    said = self.succeeds("export", self.path(name), "-o", self.path(f"{name}-alone")).err
                    self.assertEqual(self.read_adapters(f"{name}-alone")[0]["base_model_name_or_path"], base[name])
                    self.assertEqual("names no base model: the run began with weights that a run before it trained" in said,
                                     base[name] is None, said)

    @in_full
    def test_a_frozen_model_is_read_from_disk_and_never_written(self):
        for kind in DEFAULTS:
            with self.subTest(kind=kind):
                folder, _ = self.model(kind, kind, C=96, L=4, inner=256)
                lora = [folder, *SMALL, "--lora", "2:2"]
                budget = self.succeeds("plan", *lora, "--disk", self.folder, "--json").json["smallest_device_bytes"]
                little = ["--disk", self.folder, "--device-memory", f"{budget * 5 // 4}B"]
                known = self.train(folder, "--lora", "2:2", "--steps", 3, "--save", "none", *MOVING)
                done = self.train(folder, "--lora", "2:2", "--steps", 3, "--save", "none", *MOVING, *little, "--json")
                self.assertEqual(done.json["hash"], self.says_hash(known))
                self.assertGreater(done.json["frozen_link_bytes"]["read"], 0)
                self.assertNotIn("write", done.json["frozen_link_bytes"])
                told = self.train(folder, "--lora", "2:2", "--steps", 3, "--save", "none", *MOVING, *little)
                self.assertRegex(told.out, r"bytes: .*of these frozen parameters: read [1-9]")

    # ---- what is refused ----

    def test_flags_that_say_nothing_are_refused(self):
        folder, _ = self.model("gpt2")
        train = ["train", folder, "--data", self.corpus(60), *SMALL]
        for flags, says in [
            (["--freeze", "wtf"], "wte, wpe, ln_1, attn.c_attn"),
            (["--freeze", "*"], "nothing is left to train"),
            (["--freeze", ""], "--freeze takes PATTERN"),
            (["--freeze", "a," * 200], "at most 255"),
            (["--lora-targets", "c_attn"], "add --lora"),
            (["--lora", "4", "--lora-targets", "ln_1"], "attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj"),
            (["--lora", "4", "--lora-targets", "q_proj"], "matches no linear operator"),
            (["--lora", "4", "--lora-targets", ""], "--lora-targets takes PATTERN"),
            (["--lora", "0"], "RANK[:ALPHA]"),
            (["--lora", "8:"], "RANK[:ALPHA]"),
            (["--lora", "8:0"], "RANK[:ALPHA]"),
            (["--lora", "8:-1"], "RANK[:ALPHA]"),
            (["--lora", "8:x"], "RANK[:ALPHA]"),
            (["--lora", "x"], "RANK[:ALPHA]"),
            (["--lora", "100000"], "rank 100000"),
        ]:
            with self.subTest(flags=flags):
                self.fails(2, *train, *flags, says=says)

    def test_a_folder_of_adapters_is_no_model_and_says_so(self):
        folder, _ = self.model("gpt2")
        run, out = self.path("run"), self.path("adapters")
        self.train(folder, "--lora", 2, "--steps", 1, "--save", run)
        self.succeeds("export", run, "-o", out)
        data = ["--data", self.corpus(60)]
        commands = [["train", out, *data], ["plan", out], ["eval", out, *data], ["generate", out, "--prompt", "x"],
                    ["inspect", out], ["check", out], ["export", out, "-o", self.path("no")],
                    ["tune", out, "-o", self.path("no")], ["train", "--resume", out, "--steps", 2]]
        for command in commands:
            with self.subTest(command=command[0]):
                done = self.fails(4, *command, says=f"{out} holds adapters of {folder} (adapter_config.json), not a model")
                self.assertIn(f"--adapter {out}", done.err)
                self.assertIn("--merge-lora", done.err)
        # Adapters of a base that is not named, or unreadable.
        for text in ('{"base_model_name_or_path": null}', "{", "[]"):
            with open(os.path.join(out, "adapter_config.json"), "w", encoding="utf-8") as file:
                file.write(text)
            self.fails(4, "inspect", out, says=f"{out} holds adapters (adapter_config.json), not a model")
        os.mkdir(self.path("empty"))
        self.fails(4, "eval", folder, "--adapter", self.path("empty"), *data, says="there is no adapter_config.json: give")
        # A preset is a preset whatever folder has its name here; a model's folder is one whatever else it contains.
        os.rename(out, self.path("gpt2-nano"))
        self.succeeds("plan", "gpt2-nano", *SMALL, cwd=self.folder)
        self.fails(4, "inspect", "gpt2-nano", cwd=self.folder, says="holds adapters")
        self.write("model/adapter_config.json", "{}")
        self.succeeds("inspect", folder)

    def test_adapters_that_name_another_model_are_noted(self):
        folder, _ = self.model("gpt2")
        run, out, data = self.path("run"), self.path("adapters"), ["--data", self.corpus(60)]
        self.train(folder, "--lora", 2, "--steps", 1, "--save", run)
        self.succeeds("export", run, "-o", out)
        cached = self.path("models--owner--the-base", "snapshots", "0123abc")
        shutil.copytree(folder, cached)
        os.symlink(cached, self.path("link"))
        name, config = os.path.basename(folder), os.path.join(out, "adapter_config.json")
        with open(config, encoding="utf-8") as file:
            written = json.load(file)
        for base, where, is_other in ((folder, folder, 0), (f"owner/{name}", folder, 0), (f"owner/{name}/", folder + "/", 0),
                                      (None, folder, 0), ("", folder, 0), ("owner/other", folder, 1), ("the-base", cached, 0),
                                      (cached, self.path("link"), 0), ("owner/the-base", self.path("link"), 0), ("base", cached, 1)):
            with open(config, "w", encoding="utf-8") as file:
                json.dump({**written, "base_model_name_or_path": base}, file)
            said = self.succeeds("eval", where, "--adapter", out, *data).err
            self.assertEqual(said.count(f"note: the adapters of {out} were trained on {base}, and {where} has another name: "), is_other,
                             (base, where, said))

    def test_only_adapters_are_merged(self):
        folder, _ = self.model("gpt2")
        self.train(folder, "--steps", 1, "--save", self.path("run"))
        for what in (folder, self.path("run")):
            self.fails(2, "export", what, "-o", self.path("out"), "--merge-lora", says="has no adapters")
        self.train(folder, "--lora", 2, "--steps", 1, "--save", self.path("beside"))
        self.fails(2, "export", self.path("beside"), "-o", self.path("out"), "--shard-size", "1MB", says="--merge-lora")
        self.assertFalse(os.path.exists(self.path("out")))


if __name__ == "__main__":
    unittest.main()
