"""From a Hugging Face folder to a Hugging Face folder."""

import json
import math
import os
import shutil
import signal
import struct
import subprocess
import unittest

import model_folder
from program import FAULTY, QUICK, ProgramTest, start

KINDS = list(model_folder.KINDS)
SHORT = ["--sequence", 16, "--batch", 2, "--threads", 2]
STILL = ["--steps", 1, "--lr", 0]


class Folder(ProgramTest):
    def model(self, kind, name="model", **keywords):
        tensors = model_folder.make(self.path(name), kind, **keywords)
        return self.path(name), tensors

    def train(self, *arguments, **keywords):
        return self.succeeds("train", "--data", self.corpus(60), *SHORT, *arguments, **keywords)

    def bytes_of(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return file.read()

    def entries(self):
        return sorted(os.listdir(self.folder))

    # ---- there and back ----

    def test_a_model_that_was_not_trained_comes_back_bit_for_bit(self):
        for kind in KINDS:
            for dtype in ("f32", "bf16"):
                with self.subTest(kind=kind, dtype=dtype):
                    run, out = self.path(f"run-{kind}-{dtype}"), self.path(f"out-{kind}-{dtype}")
                    folder, tensors = self.model(kind, kind)
                    self.train(folder, *STILL, "--dtype", dtype, "--save", run)
                    done = self.succeeds("export", run, "-o", out, "--json").json
                    self.assertEqual(model_folder.read(out), tensors)
                    self.assertEqual(done["dtype"], model_folder.KINDS[kind][2].lower())
                    self.assertEqual(done["parameters"], sum(math.prod(shape) for _, shape, _ in tensors.values()))

    def mixed(self, kind):
        """A folder of three dtypes with its own metadata, in one file as the reference writes it; returns its weights.
        """
        folder, tensors = self.model(kind, f"mixed-{kind}", dtype="F32")
        order = {"F32": 0, "BF16": 1, "F16": 2}
        names = sorted(tensors)
        changed = {}
        for at, name in enumerate(names):
            _, shape, data = tensors[name]
            dtype = "F32" if len(shape) == 1 else ("F16", "BF16", "F16", "F32")[at % 4]
            changed[name] = (dtype, shape, model_folder.narrow(model_folder.widen(data, "F32"), dtype))
        names.sort(key=lambda name: (order[changed[name][0]], name))
        changed = {name: changed[name] for name in names}
        for name in os.listdir(folder):
            if ".safetensors" in name:
                os.remove(self.path(folder, name))
        file = self.path(folder, "model.safetensors")
        model_folder.write_file(file, changed, {"format": "pt", "licence": 'd\u00e9j\u00e0 "vu"\n', "empty": ""})
        return folder, changed

    def test_a_mixed_folder_and_its_metadata_come_back_byte_for_byte(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                folder, tensors = self.mixed(kind)
                run, again = self.path("run-" + kind), self.path("again-" + kind)
                was = self.bytes_of(folder, "model.safetensors")
                self.succeeds("export", folder, "-o", self.path("at-once-" + kind))
                self.assertEqual(self.bytes_of("at-once-" + kind, "model.safetensors"), was)
                self.train(folder, *STILL, "--save", run, "--dtype", "f32")
                self.train(run, *STILL, "--save", again)  # a run from a run: the notes are carried on
                for number, at in enumerate((run, again)):
                    out = f"out-{kind}-{number}"
                    done = self.succeeds("export", at, "-o", self.path(out), "--json").json
                    self.assertEqual(self.bytes_of(out, "model.safetensors"), was)
                    self.assertTrue(done["mixed"])
                    self.assertEqual(done["bytes"], sum(len(data) for _, _, data in tensors.values()))
                one = f"one-{kind}"
                done = self.succeeds("export", run, "-o", self.path(one), "--dtype", "f32", "--json").json
                self.assertFalse(done["mixed"])
                self.assertEqual({dtype for dtype, _, _ in model_folder.read(self.path(one)).values()}, {"F32"})

    def test_metadata_that_files_do_not_share_or_that_are_too_long_are_said(self):
        folder, _ = self.model("opt")
        files = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
        self.assertGreater(len(files), 1)
        shared = {"by": "nobody", "format": "pt"}
        for number, (own, said, kept) in enumerate([
                ({"part": "%d"}, True, shared), ({"long": 2000 * "x"}, True, shared), ({}, False, shared),
                (None, False, {"format": "pt"})]):
            for at, name in enumerate(files):
                file = self.path(folder, name)
                pairs = {} if own is None else {**shared, **{key: value.replace("%d", str(at)) for key, value in own.items()}}
                model_folder.write_file(file, model_folder.read_file(file), pairs)
            out = self.path(f"out-{number}")
            done = self.succeeds("export", folder, "-o", out)
            self.assertEqual("metadata of its files are not kept" in done.err, said, done.err)
            self.assertEqual(model_folder.metadata(os.path.join(out, "model.safetensors")), kept)

    def test_what_a_config_says_and_the_files_of_tokenizer_and_generation_come_back(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                folder, _ = self.model(kind, kind)
                run, out = self.path("run-" + kind), self.path("out-" + kind)
                terms = ["LICENSE", "NOTICE.txt", "README.md", "additional_chat_templates/rag.jinja"]
                os.mkdir(self.path(kind, "additional_chat_templates"))
                for name in terms:
                    self.write(f"{kind}/{name}", f"{name} of {kind}")
                self.train(folder, *STILL, "--save", run)
                self.succeeds("export", run, "-o", out)
                was, now = (json.loads(self.bytes_of(name, "config.json")) for name in (kind, "out-" + kind))
                self.assertEqual({key: now.get(key) for key in was}, was)
                beside = [name for name in os.listdir(folder) if not name.startswith(("model", "config"))]
                self.assertIn("generation_config.json", beside)
                for name in {*beside, *terms} - {"additional_chat_templates"}:
                    self.assertEqual(self.bytes_of("out-" + kind, name), self.bytes_of(kind, name), name)

    def test_an_export_names_no_files_of_python_that_it_lacks(self):
        """The auto_map of a config, which transformers follows with trust_remote_code."""
        folder, _ = self.model("llama")
        config = json.loads(self.bytes_of("model", "config.json"))
        self.write("model/config.json", json.dumps({**config, "auto_map": {"AutoModelForCausalLM": "modeling_x.XForCausalLM"}}))
        self.write("model/modeling_x.py", "")
        self.train(folder, *STILL, "--save", self.path("run"))
        for number, source in enumerate((folder, self.path("run"))):
            self.succeeds("export", source, "-o", self.path(f"out-{number}"))
            self.assertNotIn("auto_map", json.loads(self.bytes_of(f"out-{number}", "config.json")))
            self.assertNotIn("modeling_x.py", os.listdir(self.path(f"out-{number}")))

    def test_a_quantised_model_is_refused_with_its_method_and_what_to_do(self):
        folder, _ = self.model("llama")
        config = json.loads(self.bytes_of("model", "config.json"))
        self.write("model/config.json", json.dumps({**config, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}))
        for command in (["train", folder, "--data", self.corpus(60)], ["plan", folder], ["export", folder, "-o", self.path("out")]):
            self.fails(4, *command, says='config.json: "quantization_config" is of weights quantised by bitsandbytes, which are not computed '
                                         "with: give the unquantised folder of the same model; adapters that were trained over the quantised "
                                         "one can be given over it by --adapter")

    def test_the_terms_are_those_of_the_weights_and_that_they_are_gone_is_said(self):
        folder, _ = self.model("gpt2")
        other, _ = self.model("gpt2", "other")
        self.write("model/LICENSE", "of the weights")
        self.write("other/LICENSE", "of another")
        run, out = self.path("run"), self.path("out")
        self.train(folder, *STILL, "--save", run)
        for more, terms in ((["--tokenizer", other], b"of the weights"), (["--tokenizer", "none"], b"of the weights")):
            self.assertNotIn("LICENSE", self.succeeds("export", run, "-o", out, *more).err)
            self.assertEqual(self.bytes_of("out", "LICENSE"), terms)
            shutil.rmtree(out)
        os.rename(folder, self.path("elsewhere"))
        self.succeeds("export", run, "-o", out, "--tokenizer", self.path("elsewhere"))
        self.assertEqual(self.bytes_of("out", "LICENSE"), b"of the weights")
        shutil.rmtree(out)
        done = self.succeeds("export", run, "-o", out, "--tokenizer", "none")
        self.assertIn("LICENSE, NOTICE and README.md do not go along", done.err)
        self.assertNotIn("LICENSE", os.listdir(out))

    def test_a_moved_run_knows_an_end_of_text_that_only_config_json_names(self):
        folder, _ = self.model("gpt2")
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            if os.path.exists(os.path.join(folder, name)):
                os.remove(os.path.join(folder, name))
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.write("model/config.json", json.dumps({**config, "eos_token_id": 7}))
        run, moved = self.path("run"), self.path("moved")
        self.train(folder, *STILL, "--save", run)
        before = self.succeeds("generate", run, "--prompt", "a", "--tokens", 4, "--json").out
        os.rename(folder, self.path("elsewhere"))
        os.rename(run, moved)
        self.assertEqual(self.succeeds("generate", moved, "--prompt", "a", "--tokens", 4, "--json").out, before)

    def test_training_changes_every_tensor_and_export_takes_the_newest_checkpoint(self):
        folder, tensors = self.model("gpt2")
        self.train(folder, "--steps", 4, "--save-every", 2, "--lr", "1e-2", "--warmup", 0, "--save", self.path("run"))
        self.succeeds("export", self.path("run"), "-o", self.path("out"))
        self.succeeds("export", self.path("run", "step-4"), "-o", self.path("out-4"))
        tuned = model_folder.read(self.path("out"))
        self.assertEqual(tuned, model_folder.read(self.path("out-4")))
        self.assertEqual(tuned.keys(), tensors.keys())
        for name, tensor in tensors.items():
            self.assertNotEqual(tuned[name][2], tensor[2], name)

    def test_trained_weights_take_a_rate_of_2e_5_unless_one_is_given(self):
        folder, _ = self.model("gpt2")
        begun = self.train(folder, "--steps", 1, "--save", self.path("begun"))
        self.assertIn("lr 2e-5: default for pretrained weights\n", begun.err)
        given = self.train(folder, "--steps", 1, "--lr", "3e-4", "--save", self.path("given"))
        self.assertNotIn("default for pretrained", given.err)
        again = self.train(self.path("given"), "--steps", 1, "--save", self.path("again"))  # a checkpoint is trained, too
        self.assertIn("lr 2e-5: default for pretrained weights\n", again.err)
        adapted = self.train(folder, "--lora", 4, "--steps", 1, "--save", self.path("adapted"))
        self.assertIn("lr 2e-4: default for adapters of pretrained weights\n", adapted.err)
        new = self.train("gpt2-nano", "--steps", 1, "--save", self.path("new"))
        self.assertNotIn("default for pretrained", new.err)
        for run, rate in (("begun", 2e-5), ("given", 3e-4), ("again", 2e-5), ("adapted", 2e-4), ("new", 6e-4)):
            note = self.succeeds("inspect", self.path(run), "--json").json["note"]
            self.assertEqual((note["lr"], note["min_lr"]), (rate, rate / 10), run)
        self.fails(2, "train", folder, "--data", self.corpus(60), *SHORT, "--min-lr", "6e-5", says="--min-lr")

    def test_the_choices_of_a_run_are_printed_once_it_is_accepted(self):
        folder, _ = self.model("llama")
        few, text = self.write("few.txt", "few"), self.corpus(60)
        for code, command, more in ((4, "train", ["--data", few]), (3, "train", ["--data", text, "--device-memory", "1KiB"]),
                                    (2, "train", ["--data", text, "--sequence", 5000]), (3, "plan", ["--device-memory", "1KiB"])):
            with self.subTest(command=command, more=more):
                refused = self.fails(code, command, folder, *SHORT, *more)
                self.assertEqual(refused.err.count("\n"), 1, refused.err)

    def test_a_number_that_is_not_finite_is_refused_before_the_first_step(self):
        for number in (math.nan, math.inf):
            for kind, name in (("gpt2", "transformer.h.1.attn.c_attn.weight"), ("llama", "lm_head.weight")):
                with self.subTest(kind=kind, number=number):
                    folder, tensors = self.model(kind, f"{kind}-{number}")
                    dtype, shape, data = tensors[name]
                    last = len(data) - model_folder.WIDTH[dtype]  # at the last element
                    tensors[name] = (dtype, shape, data[:last] + model_folder.narrow([number], dtype))
                    model_folder.write_file(os.path.join(folder, "model.safetensors"), tensors)
                    says = f"{name} of model.safetensors holds a number that is not finite"
                    self.fails(4, "check", folder, says=says)
                    self.fails(4, "train", folder, "--data", self.corpus(60), *SHORT, "--steps", 2, "--save",
                               self.path("run"), says=says)
                    self.assertFalse(os.path.exists(self.path("run")))
                    self.fails(4, "eval", folder, "--data", self.corpus(60), "--sequence", 16, says=says)
                    place = "[{}, {}]".format(*(size - 1 for size in shape))
                    before = self.entries()
                    for dtype in ([], ["--dtype", "f32"], ["--dtype", "bf16"], ["--dtype", "f16"]):
                        self.fails(4, "export", folder, "-o", self.path("out"), *dtype,
                                   says=f"{name} holds {'NaN' if math.isnan(number) else 'an infinity'} at {place}")
                    self.assertEqual(self.entries(), before)

    def test_a_model_whose_numbers_overflow_has_no_loss_and_no_text(self):
        folder, tensors = self.model("gpt2")
        shape = tensors["transformer.ln_f.weight"][1]
        tensors["transformer.ln_f.weight"] = ("F32", shape, model_folder.narrow([3e38] * shape[0], "F32"))
        model_folder.write_file(os.path.join(folder, "model.safetensors"), tensors)
        text = self.corpus(60)
        before = self.entries()
        measure = ["eval", folder, "--data", text, "--sequence", 16, "--logits", self.path("logits.npy")]
        self.fails(1, *measure, says="is not finite: the model's numbers overflow")
        self.assertEqual(self.fails(1, *measure, "--json").json["status"], "COH_ERR_NUMBER")
        for more in ([], ["--temperature", 0], ["--json"]):
            said = self.fails(1, "generate", folder, "--prompt", "x", *more, says="the model's logits are not finite")
            self.assertNotIn("text", said.out)
        self.assertEqual(self.entries(), before)
        trained = self.succeeds("train", folder, "--data", text, *SHORT, "--steps", 1, "--validation", text, "--save", "none")
        self.assertIn("validation loss not finite over", trained.err)
        self.assertNotIn("nan", trained.out + trained.err)

    def test_a_run_does_not_keep_its_checkpoints_where_the_model_would_hide_them(self):
        folder, _ = self.model("gpt2")
        before = sorted(os.listdir(folder))
        run = ["train", "--data", self.corpus(60), *SHORT, *STILL]
        says = "holds config.json"
        self.fails(2, *run, folder, "--save", folder, says=says)
        self.assertEqual(sorted(os.listdir(folder)), before)
        # a bad value that was kept there before is refused
        self.train(folder, *STILL, "--save", self.path("run"))
        for name in ("step-1", "lock"):
            shutil.move(self.path("run", name), folder)
        self.fails(2, *run, folder, "--save", folder, says=says)
        kept = os.path.join(folder, "step-1")
        self.fails(2, "train", "--resume", kept, "--steps", 2, "--data", self.corpus(60), says=says)
        for command in (["export", folder, "-o", self.path("out")], ["eval", folder, "--data", self.corpus(60)],
                        ["generate", folder, "--prompt", "a"], ["inspect", folder], [*run, folder, "--save", "none"]):
            self.fails(2, *command, says=f"checkpoint {kept}")
        self.succeeds("export", kept, "-o", self.path("out"))

    def test_a_folder_is_written_in_another_dtype_and_in_shards(self):
        folder, tensors = self.model("llama")
        self.succeeds("export", folder, "-o", self.path("out"), "--dtype", "bf16", "--shard-size", "20kB")
        out = model_folder.read(self.path("out"))
        self.assertEqual(out.keys(), tensors.keys())
        for name, (_, shape, data) in tensors.items():
            must = model_folder.narrow(model_folder.widen(data, "F32"), "BF16")
            self.assertEqual(out[name], ("BF16", shape, must), name)
        shards = [name for name in os.listdir(self.path("out")) if name.startswith("model-")]
        self.assertGreater(len(shards), 2)
        self.assertNotIn("model.safetensors", os.listdir(self.path("out")))
        self.assertEqual(json.loads(self.bytes_of("out", "config.json"))["torch_dtype"], "bfloat16")

    def test_a_preset_that_was_trained_becomes_a_folder_that_is_taken_again(self):
        preset = ["gpt2-pico", "--vocabulary", 300, "--dtype", "f32"]
        # a batch of 8, as in eval of the folder: OpenBLAS's last digits depend on the rows of a product
        self.train(*preset, "--steps", 2, "--save", self.path("run"), "--batch", 8)
        done = self.succeeds("export", self.path("run"), "-o", self.path("out"))
        self.assertNotIn("tokenizer", done.err)  # a test below reads it without the flag
        losses = [self.succeeds("eval", where, "--data", self.corpus(60), "--tokenizer", "bytes", "--dtype", "f32",
                                "--sequence", 16, "--micro-batch", 2, "--json").json["loss"]
                  for where in (self.path("run"), self.path("out"))]
        self.assertEqual(*losses)

    def test_first_values_of_a_config_are_those_of_its_preset(self):
        run, folder, again = self.path("run"), self.path("folder"), self.path("again")
        expected = self.says_hash(self.train("gpt2-pico", "--steps", 2, "--save", run))
        self.succeeds("export", run, "-o", folder)
        scratch = [folder, "--tokenizer", "bytes", "--steps", 2, "--from-scratch"]
        beside = self.train(*scratch, "--save", "none")  # weights that are there are not read
        self.assertEqual(self.says_hash(beside), expected)
        self.assertIn("start:  first values of seed ", beside.err)
        self.assertNotIn("pretrained", beside.err)
        self.fails(2, "plan", folder, "--tokenizer", "none", "--vocabulary", 200, says="keeps the 257 rows of its token table, so --vocabulary 200 ")
        self.fails(2, "plan", folder, "--tokenizer", "none", "--vocabulary", 300, says="keeps the 257 rows of its token table, so --vocabulary 300 ")
        os.remove(self.path("folder", "model.safetensors"))
        train = ["train", "--data", self.corpus(60), *SHORT]
        self.fails(4, *train, folder, "--tokenizer", "bytes", says="config.json from first values with --from-scratch")
        self.assertEqual(self.says_hash(self.train(*scratch, "--save", again)), expected)
        self.succeeds("export", again, "-o", self.path("out"))
        for flags, says in ((["gpt2-pico"], "begins with first values anyway"), ([run], "is a checkpoint"),
                            ([folder, "--lora", 4, "--tokenizer", "bytes"], "--lora keeps trained weights"),
                            (["--resume", run, "--steps", 3], "--resume continues one")):
            self.fails(2, *train, *flags, "--from-scratch", says=says)
        self.fails(2, "plan", "--resume", run, "--steps", 3, "--from-scratch", says="--resume continues one")

    # ---- results ----

    def test_a_folder_and_a_checkpoint_of_its_weights_have_one_loss(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                folder, _ = self.model(kind, kind)
                run = self.path("run-" + kind)
                # Eval takes as many sequences at a time as a run: 8 by default, as here.
                self.train(folder, *STILL, "--dtype", "f32", "--save", run, "--batch", 8)
                results = [self.succeeds("eval", where, "--data", self.corpus(60), "--sequence", 16, "--dtype", "f32",
                                         "--json").json for where in (folder, run)]
                self.assertGreater(results[0]["tokens_per_second"], 0)
                self.assertEqual(results[0]["loss"], results[1]["loss"])
                self.assertEqual(results[0]["perplexity"], math.exp(results[0]["loss"]))

    def test_a_fine_tune_in_the_smallest_budget_ends_with_the_bits_of_one_in_memory(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                folder, _ = self.model(kind, kind)
                least = self.succeeds("plan", folder, *SHORT, "--disk", self.folder, "--json").json["smallest_device_bytes"]
                whole = self.train(folder, "--steps", 3, "--save", "none")
                little = self.train(folder, "--steps", 3, "--save", "none", "--disk", self.folder, "--device-memory",
                                    f"{least}B", *QUICK)
                self.assertEqual(self.says_hash(little), self.says_hash(whole))

    def test_a_window_is_computed_and_one_of_some_layers_is_refused_with_the_reason(self):
        folder, _ = self.model("llama")
        plain = json.loads(self.bytes_of("model", "config.json"))
        measure = ["eval", folder, "--data", self.corpus(60), "--json", "--sequence"]
        whole = [self.succeeds(*measure, length).json["loss"] for length in (16, 17)]
        self.write("model/config.json", json.dumps({**plain, "model_type": "mistral", "sliding_window": 16,
                                                    "architectures": ["MistralForCausalLM"]}))
        self.assertEqual(self.succeeds(*measure, 16).json["loss"], whole[0])
        self.assertNotEqual(self.succeeds(*measure, 17).json["loss"], whole[1])
        self.write("model/config.json", json.dumps({**plain, "model_type": "qwen2", "sliding_window": 16,
                                                    "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True}))
        done = self.fails(2, "plan", folder, "--sequence", 17, says="--sequence 17 is longer than the")
        self.assertIn("its sliding window changes nothing within 16 tokens", done.err)
        self.assertNotIn("raise", done.err)

    def test_a_sequence_beyond_rotary_positions_names_the_member_that_bounds_them(self):
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
        member = ": lower it, or raise max_position_embeddings in its config.json"
        for kind, more, says in (("llama", {}, member), ("llama", {"rope_scaling": yarn}, member + ", whose yarn must then have original_max"),
                                 ("gemma3_text", {}, member), ("gpt2", {}, None)):
            with self.subTest(kind=kind, more=more):
                shutil.rmtree(self.path("model"), ignore_errors=True)
                folder, _ = self.model(kind)
                config = {**json.loads(self.bytes_of("model", "config.json")), **more}
                self.write("model/config.json", json.dumps(config))
                longer = ["train", folder, "--data", self.corpus(), "--sequence", 96, "--batch", 1, "--steps", 1, "--threads", 2,
                          "--save", "none"]
                said = self.fails(2, *longer, says=f"--sequence 96 is longer than the {config.get('max_position_embeddings', 64)} positions").err
                self.assertIn(says or "lower it\n", said)
                if says:
                    self.write("model/config.json", json.dumps({**config, "max_position_embeddings": 96}))
                    self.succeeds(*longer)

    def test_eval_in_a_small_budget_has_the_same_loss(self):
        folder, _ = self.model("gpt2", C=64, inner=256)
        measure = ["eval", folder, "--data", self.corpus(60), "--sequence", 16, "--json"]
        little = self.succeeds(*measure, "--disk", self.folder, "--device-memory", "400KiB")
        self.assertIn("disk", little.err)
        self.assertEqual(little.json["loss"], self.succeeds(*measure).json["loss"])

    def test_a_run_goes_on_from_its_checkpoint_without_the_folders_weights(self):
        folder, _ = self.model("opt")
        whole = self.train(folder, "--steps", 4, "--save", "none")
        self.train(folder, "--steps", 2, "--schedule-steps", 4, "--save", self.path("run"))
        for name in os.listdir(folder):
            if "safetensors" in name or name == "config.json":
                os.remove(os.path.join(folder, name))
        more = self.succeeds("train", "--resume", self.path("run"), "--steps", 4, "--threads", 2)
        self.assertNotIn("other rounding", more.err)
        self.assertEqual(self.says_hash(more), self.says_hash(whole))
        done = self.succeeds("export", self.path("run"), "-o", self.path("out"), "--json").json
        self.assertEqual(done["dtype"], "bf16")
        self.assertEqual(done["step"], 4)

    def test_a_new_run_from_a_checkpoint_reads_text_and_is_written_as_the_run_before(self):
        folder, tensors = self.model("opt")
        self.train(folder, *STILL, "--save", self.path("first"))
        self.train(self.path("first"), *STILL, "--save", self.path("second"))
        self.succeeds("export", self.path("second"), "-o", self.path("out"))
        self.assertEqual(model_folder.read(self.path("out")), tensors)
        self.assertEqual(self.bytes_of("out", "vocab.json"), self.bytes_of("model", "vocab.json"))

    def test_a_folder_called_as_a_preset_is_said_and_measured_by_its_path(self):
        folder, tensors = self.model("gpt2", "gpt2")
        here = dict(cwd=self.folder)
        note = "note: gpt2 is the preset of that name, which begins with first values; for the folder here give ./gpt2\n"
        self.assertEqual(self.succeeds("plan", "gpt2", *SHORT, **here).err.count(note), 1)
        # The note explains a refusal, too, and a folder that holds no model.
        refused = self.fails(2, "train", "gpt2", "--data", self.corpus(60), *SHORT, "--from-scratch",
                             says="--from-scratch is for a folder", **here)
        self.assertEqual(refused.err.count(note), 1)
        self.assertNotIn("note: gpt2 is the preset", self.succeeds("plan", "./gpt2", *SHORT, **here).err)
        os.mkdir(self.path("opt-125m"))
        self.assertIn("for the folder here give ./opt-125m", self.succeeds("plan", "opt-125m", *SHORT, **here).err)
        told = self.succeeds("inspect", "gpt2", "--json", **here).json
        self.assertEqual(len(told["tensors"]), len(tensors))
        losses = [self.succeeds("eval", what, "--data", self.corpus(60), "--sequence", 16, "--json", **here).json["loss"]
                  for what in ("gpt2", "./gpt2", folder)]
        self.assertEqual(len(set(losses)), 1)

    def test_a_folder_whose_name_is_not_utf8_is_refused_before_the_first_step(self):
        folder, _ = self.model("gpt2")
        odd = os.fsencode(self.folder) + b"/m\xff"
        os.rename(folder, odd)
        done = self.fails(2, "train", os.fsdecode(odd), "--data", self.corpus(60), *SHORT, *STILL, "--save",
                          self.path("run"), says="UTF-8")
        self.assertNotIn("step 1", done.err)
        losses = self.succeeds("eval", os.fsdecode(odd), "--data", self.corpus(60), "--sequence", 16, "--json").json
        self.assertGreater(losses["loss"], 0)

    def test_paths_that_are_too_long_for_a_note_are_said_before_anything_is_made(self):
        """A note holds 12288 bytes, and a quote takes two: two paths of 3.6 KB do not fit."""
        deep = "/".join(['"' * 240] * 15)
        folder, _ = self.model("gpt2")
        os.makedirs(self.path("t", deep))
        os.makedirs(os.path.dirname(self.path("s", deep)))
        tokenizer = self.path("t", deep, "x")
        os.rename(os.path.join(folder, "tokenizer.json"), tokenizer)
        bad = self.write("bad.jsonl", "no object\n")  # would be refused if it were read
        before = self.entries()
        for save in (self.path("s", deep), os.path.join("s", deep)):
            self.fails(2, "train", folder, "--tokenizer", tokenizer, "--data", bad, *SHORT, *STILL, "--save", save,
                       "--validation", self.corpus(60), says="too long for a checkpoint's note", cwd=self.folder)
            self.assertEqual(self.entries(), sorted({*before, "corpus.txt"}))
        # the run folder's name makes it too long
        self.fails(4, "train", folder, "--tokenizer", tokenizer, "--data", bad, *SHORT, *STILL, "--save",
                   self.path("run"), says="bad.jsonl:1:")

    def test_linear_turns_are_written_as_every_version_reads_them(self):
        folder, _ = self.model("llama")
        config = json.loads(self.bytes_of("model", "config.json"))
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(dict(config, rope_scaling={"rope_type": "linear", "factor": 2.5}), file)
        self.succeeds("export", folder, "-o", self.path("out"))
        self.assertEqual(json.loads(self.bytes_of("out", "config.json"))["rope_scaling"], {"type": "linear", "factor": 2.5})

    def test_a_named_tokenizer_file_keeps_its_kind_behind_blanks(self):
        folder, _ = self.model("gpt2")
        named = self.write("named", b" \n\t" + self.bytes_of("model", "tokenizer.json"))
        self.succeeds("export", folder, "-o", self.path("out"), "--tokenizer", named)
        self.assertIn("tokenizer.json", os.listdir(self.path("out")))
        self.assertNotIn("tokenizer.model", os.listdir(self.path("out")))

    def test_a_tokenizer_that_is_named_for_a_folder_must_be_one(self):
        folder, _ = self.model("gpt2")
        os.mkdir(self.path("bare"))
        os.mkfifo(self.path("pipe"))
        before = self.entries()
        named = self.write("notes.txt", "no tokenizer")
        for code, name in ((4, named), (4, self.path("bare")), (4, self.path("pipe"))):
            self.fails(code, "export", folder, "-o", self.path("out"), "--tokenizer", name)
        self.assertEqual(self.entries(), sorted([*before, "notes.txt"]))
        self.assertEqual(self.succeeds("export", folder, "-o", self.path("whole"), "--json").json["tokenizer"], folder)
        os.remove(os.path.join(folder, "tokenizer.json"))
        self.assertIsNone(self.succeeds("export", folder, "-o", self.path("out"), "--json").json["tokenizer"])

    def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(self):
        def ends(code, *arguments):
            process = start(*arguments)
            try:
                _, err = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self.fail(f"{arguments} waits for a writer")
            self.assertEqual(process.returncode, code, (arguments, err))
            return err.decode().strip().split("\n")[-1]
        folder, _ = self.model("opt")  # vocab.json with merges.txt, in shards
        data = ["--data", self.corpus(60), *SHORT, *STILL, "--save", "none"]
        for name in ("config.json", "tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json",
                     "tokenizer_config.json", "special_tokens_map.json", "model.safetensors.index.json",
                     "model-00001-of-00004.safetensors"):
            with self.subTest(name=name):
                path, aside = os.path.join(folder, name), self.path("aside")
                was = os.path.exists(path)
                if was:
                    os.rename(path, aside)
                os.mkfifo(path)
                self.assertIn(f"{name} is not a regular file", ends(4, "train", folder, *data))
                os.remove(path)
                if was:
                    os.rename(aside, path)
        self.train(folder, *STILL, "--save", "none")
        os.mkdir(self.path("beside"))
        os.mkfifo(self.path("beside", "adapter_config.json"))
        self.assertIn("holds adapters", ends(4, "eval", self.path("beside"), *data[:2]))
        os.mkfifo(self.path("pipe.txt"))
        told = "pipe.txt is a pipe, and "
        self.assertIn(told, ends(4, "train", folder, "--data", self.path("pipe.txt"), *SHORT, *STILL, "--save", "none"))
        self.assertIn(told, ends(4, "train", folder, *data, "--validation", self.path("pipe.txt")))
        self.assertIn(told, ends(4, "tokenize", self.path("pipe.txt"), "-o", self.path("out")))
        self.assertIn(told, ends(4, "inspect", self.path("pipe.txt")))

    def test_what_a_killed_export_left_goes_before_room_is_asked_for(self):
        rows = shutil.disk_usage(self.folder).free // 16384 * 2  # of 16 KiB each: more than fits
        if rows >= 1 << 29:
            self.skipTest("a file may not be as large as this disk")
        config, shapes = model_folder.gpt2(C=4096, L=1, V=rows, P=1, inner=1)
        header, end = {}, 0
        for name, shape in shapes.items():
            begin, end = end, end + 4 * math.prod(shape)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        os.mkdir(self.path("model"))
        self.write("model/config.json", json.dumps(dict(config, n_head=8)))
        weights = self.write("model/model.safetensors", len(text).to_bytes(8, "little") + text)
        os.truncate(weights, 8 + len(text) + end)  # holes
        os.mkdir(self.path("out.partial-1-0"))
        self.write("out.partial-1-0/model.safetensors", "half")
        self.fails(3, "export", self.path("model"), "-o", self.path("out"), "--tokenizer", "none", says="free")
        self.assertEqual(self.entries(), ["model"])

    def test_text_is_written_from_a_folder(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                folder, _ = self.model(kind, kind)
                write = ["generate", folder, "--prompt", "the line", "--tokens", 5, "--seed", 3]
                first = self.succeeds(*write)
                self.assertTrue(first.out.startswith("the line"))
                self.assertEqual(first.out, self.succeeds(*write).out)

    # ---- messages ----

    def test_dropout_of_a_config_is_told_and_only_the_flag_asks_for_it(self):
        folder, _ = self.model("gpt2")
        self.assertRegex(self.succeeds("inspect", folder).out, r"dropout.*resid_pdrop.*with 0 unless --dropout")
        none = self.train(folder, *STILL, "--save", "none")
        self.assertRegex(none.err, r"dropout.*resid_pdrop.*with 0 unless --dropout")
        self.assertNotRegex(none.err, r"(?m)^dropout:")
        # reports and what-ifs plan again, and repeat no note
        run_folder, page = self.path("reported"), ["--report", self.path("page.html")]
        for said in (self.train(folder, *STILL, "--save", run_folder, *page), self.succeeds("plan", folder, *STILL, *page),
                     self.succeeds("plan", folder, *STILL, "--what-if", "disk-read=2x", "--what-if", "device-memory=9MiB")):
            self.assertEqual(said.err.count("asks for dropout"), 1, said.err)
        self.assertEqual(self.succeeds("report", run_folder).err, "")
        some = self.train(folder, *STILL, "--save", "none", "--dropout", 0.25)
        self.assertRegex(some.err, r"(?m)^dropout: 0.25 in training, none in validation$")
        for share in ("1", "-0.1", "nan", "half"):
            self.fails(2, "train", folder, "--data", self.corpus(), f"--dropout={share}", says="--dropout takes a number")

    def test_inspect_keeps_long_names_and_shapes_apart(self):
        folder, _ = self.model("llama")
        self.train(folder, "--steps", 1, "--save", self.path("long"))
        self.assertRegex(self.succeeds("inspect", self.path("long")).out,
                         r"(?m)^  model\.layers\.1\.post_attention_layernorm\.weight 32$")

    def test_inspect_tells_both_names_shapes_and_dtypes(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                folder, tensors = self.model(kind, kind)
                told = self.succeeds("inspect", folder, "--json").json
                self.assertEqual(told["model_type"], kind)
                self.assertEqual(told["parameters"], sum(math.prod(shape) for _, shape, _ in tensors.values()))
                self.assertEqual({one["published"]: (one["dtype"], one["published_shape"]) for one in told["tensors"]},
                                 {name: (dtype.lower(), shape) for name, (dtype, shape, _) in tensors.items()})
                for one in told["tensors"]:
                    turned = kind == "gpt2" and ".c_" in one["name"] and len(one["shape"]) == 2
                    self.assertEqual(one["shape"], one["published_shape"][::-1 if turned else 1])
                self.assertEqual({op["block"] for op in told["operators"]}, {-1, 0, 1})
                text = self.succeeds("inspect", folder).out
                for one in told["tensors"]:
                    self.assertIn(one["name"], text)
                    self.assertIn(one["published"], text)

    def test_check_reads_every_number(self):
        folder, tensors = self.model("llama")
        self.assertIn("llama", self.succeeds("check", folder).out)
        dtype, shape, data = tensors["model.norm.weight"]
        tensors["model.norm.weight"] = (dtype, shape, data[:-4] + b"\0\0\xc0\x7f")
        config = json.loads(self.bytes_of("model", "config.json"))
        model_folder.write(folder, config, tensors)
        self.fails(4, "check", folder, says="model.norm.weight")

    # ---- what is refused ----

    def test_a_mistyped_member_of_the_config_is_named(self):
        """Once as the likely cause of a refusal, once in a note where the weights fit without the member."""
        for kind, name, typed, says in (("gpt2", "n_layer", "n_layr", "holds no tensor transformer.h.2"), ("gpt2", "n_embd", "n_emdb", "is 420 x 32, and"),
                                        ("llama", "hidden_size", "hiden_size", "describes no model: "),
                                        ("llama", "num_hidden_layers", "num_hiden_layers", "holds no tensor model.layers.2")):
            with self.subTest(name=name):
                folder, _ = self.model(kind, name)
                config = json.loads(self.bytes_of(name, "config.json"))
                self.write(f"{name}/config.json", json.dumps({typed if key == name else key: value for key, value in config.items()}))
                for command in (["train", folder, "--data", self.corpus()], ["eval", folder, "--data", self.corpus()], ["check", folder]):
                    said = self.fails(4, *command, says=f'; config.json has no "{name}" but "{typed}": is that meant?').err
                    self.assertIn(says, said)
        folder, _ = self.model("llama")
        config = json.loads(self.bytes_of("model", "config.json"))
        note = 'config.json has no "rms_norm_eps" but "rms_norm_epz": is that meant?'
        for name, is_noted in (("rms_norm_eps", True), ("no member", False)):  # at the second the known member is there, too
            typed = {key: value for key, value in config.items() if key != name} | {"rms_norm_epz": 1e-5}
            self.write("model/config.json", json.dumps(typed))
            self.assertEqual(note in self.succeeds("inspect", folder).out, is_noted)
        folder, _ = self.model("gpt2", "two names")  # "num_hidden_layers" is another name of n_layer, which is there
        config = json.loads(self.bytes_of("two names", "config.json"))
        self.write("two names/config.json", json.dumps({**config, "num_hidden_layer": 3}))
        self.assertNotIn("is that meant", self.succeeds("inspect", folder).out)

    def test_an_entry_of_the_hubs_cache_names_the_folder_of_its_main_branch(self):
        entry, revision = self.path("models--org--name"), "0123456789abcdef" * 2
        for name in ("refs", "snapshots", "blobs"):
            os.makedirs(os.path.join(entry, name))
        snapshot = os.path.join(entry, "snapshots", revision)
        model_folder.make(snapshot, "llama")
        says = f"{entry} is an entry of the Hugging Face Hub's cache, not a model: give the folder of a revision in it, {entry}/snapshots/"
        self.fails(4, "inspect", entry, says=says + "REVISION")
        self.write("models--org--name/refs/main", revision)
        for command in (["inspect"], ["check"], ["plan"], ["train", "--data", self.corpus()], ["eval", "--data", self.corpus()],
                        ["generate", "--prompt", "x"], ["export", "-o", self.path("out")]):
            self.fails(4, command[0], entry, *command[1:], says=f"{says}{revision}")
        self.succeeds("inspect", snapshot)

    def test_what_git_lfs_has_not_fetched_is_named(self):
        folder, _ = self.model("llama")
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 4999\n"
        train = ["train", folder, "--data", self.corpus(), "--steps", 1, "--threads", 2, "--save", "none"]
        for name in ("model.safetensors", "tokenizer.json", "tokenizer.model", "config.json"):
            with self.subTest(name=name):
                path = os.path.join(folder, name)
                kept = self.bytes_of("model", name) if os.path.exists(path) else None
                self.write(f"model/{name}", pointer)
                self.fails(4, *train, says=f"{path} is a pointer of Git LFS in the place of the file: fetch the file by git lfs pull")
                os.remove(path)
                if kept is not None:
                    with open(path, "wb") as file:
                        file.write(kept)
        self.succeeds(*train)

    def test_numbers_of_a_config_are_shown_as_they_are_written(self):
        folder, _ = self.model("llama")
        config = json.loads(self.bytes_of("model", "config.json"))
        for number, shown in ((256.0, "256.0"), (0.5, "0.5"), (-1, "-1"), (1e12, "1e+12")):
            self.write("model/config.json", json.dumps({**config, "max_position_embeddings": number}))
            self.fails(4, "inspect", folder, says=f'"max_position_embeddings" is {shown}, and must be a whole number')

    def test_shards_without_their_index_are_said_to_lack_it(self):
        folder, _ = self.model("llama")
        self.succeeds("export", folder, "-o", self.path("out"), "--shard-size", "20KB")
        os.remove(self.path("out", "model.safetensors.index.json"))
        for command in (["train", self.path("out"), "--data", self.corpus(), "--save", "none"], ["check", self.path("out")]):
            said = self.fails(4, *command, says="and model.safetensors.index.json, which names the files of all tensors, is missing").err
            self.assertRegex(said, r"/out holds model-0000\d-of-0000\d.safetensors, ")

    def test_tensors_that_do_not_fit_the_config_are_bad_data(self):
        folder, tensors = self.model("llama")
        config = json.loads(self.bytes_of("model", "config.json"))
        lacking = {name: tensor for name, tensor in tensors.items() if name != "model.norm.weight"}
        dtype, shape, data = tensors["lm_head.weight"]
        for wrong, says in [
            (lacking, "model.norm.weight"),
            ({**tensors, "model.norm.bias": tensors["model.norm.weight"]}, "model.norm.bias"),
            ({**tensors, "lm_head.weight": (dtype, shape[::-1], data)}, "lm_head.weight is 32 x 520"),
            ({**tensors, "lm_head.weight": ("I32", shape, data)}, "I32"),
        ]:
            model_folder.write(folder, config, wrong)
            for arguments in (["train", folder, "--data", self.corpus()], ["eval", folder, "--data", self.corpus()],
                              ["inspect", folder], ["check", folder], ["generate", folder, "--prompt", "x"],
                              ["export", folder, "-o", self.path("out")]):
                with self.subTest(says=says, command=arguments[0]):
                    self.fails(4, *arguments, says=says)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_an_export_refuses_what_it_cannot_do_and_leaves_nothing(self):
        folder, _ = self.model("gpt2")
        self.train(folder, *STILL, "--save", self.path("run"))
        os.mkdir(self.path("mine"))
        before = self.entries()
        out = ["-o", self.path("out")]
        self.fails(2, "export", self.path("run"), says="-o FOLDER is missing")
        for more in ([], ["--tokenizer", "bytes"]):  # the refusal alone is printed
            self.assertEqual(self.fails(2, "export", self.path("run"), "-o", self.path("mine"), *more, says="exists").err.count("\n"), 1)
        self.fails(2, "export", self.path("run"), "-o", self.path("no", "where"), says="is not there")
        self.fails(2, "export", self.path("gone"), *out, says="is not there")
        self.fails(2, "export", self.path("run"), *out, "--dtype", "f64", says="f32|bf16|f16")
        self.fails(2, "export", self.path("run"), *out, "--shard-size", "5", says="--shard-size 5GB")
        self.fails(4, "export", self.path("mine"), *out, says="is no checkpoint")
        self.fails(4, "export", self.path("run"), *out, "--tokenizer", os.path.join(model_folder.TOKENIZERS, "qwen2"),
                   says="not the one the checkpoint was trained with")
        for at in ("1", "3:28", "9", "12:28"):
            with self.subTest(at=at):
                self.fails(5, "export", self.path("run"), *out, program=FAULTY, env=dict(os.environ, COH_TEST_FAIL_AT=at))
        self.assertEqual(self.entries(), before)

    def test_a_stopped_export_leaves_nothing_and_a_killed_one_goes_with_the_next(self):
        folder, tensors = self.model("gpt2")
        self.train(folder, "--lora", 2, *STILL, "--save", self.path("run"))
        before = self.entries()
        for command in (["export", folder], ["export", self.path("run")], ["export", self.path("run"), "--merge-lora"]):
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(command=command, number=number):
                    told = os.environ | {"COH_TEST_SIGNAL_AT": f"2:{int(number)}"}
                    self.fails(1, *command, "-o", self.path("out"), program=FAULTY, env=told, says="stopped on request: ")
                    self.assertEqual(self.entries(), before)
        for at in (1, 2, 9):
            killed = start("export", folder, "-o", self.path("out"), program=FAULTY, env=os.environ | {"COH_TEST_SIGNAL_AT": f"{at}:9"})
            killed.communicate()
            self.assertEqual(killed.returncode, -9)
            self.assertEqual(len(self.entries()), len(before) + (at > 1))
        self.succeeds("export", folder, "-o", self.path("out"))
        self.assertEqual(self.entries(), sorted([*before, "out"]))
        self.assertEqual(model_folder.read(self.path("out")), tensors)

    def without_tokenizer(self, name="bare"):
        folder, _ = self.model("gpt2", name)
        for file in ("tokenizer.json", "vocab.json", "merges.txt"):
            if os.path.exists(os.path.join(folder, file)):
                os.remove(os.path.join(folder, file))
        return folder

    def ids(self, name="ids.bin", count=400):
        return self.write(name, struct.pack(f"<{count}H", *(i * i % 419 for i in range(count))))

    def test_a_model_that_is_not_supported_is_told_before_its_tokenizer(self):
        folder = self.without_tokenizer()
        self.write("bare/config.json", json.dumps({"model_type": "gpt_bigcode", "vocab_size": 420}))
        data = ["--data", self.corpus(60)]
        for command in (["train", *data], ["eval", *data], ["generate", "--prompt", "x"], ["plan"], ["export", "-o", self.path("o")]):
            for more in ([], ["--tokenizer", "bytes"]):
                self.fails(4, command[0], folder, *command[1:], *more, says='"model_type" is "gpt_bigcode"')
        # an unreadable tokenizer is reported second, too
        self.write("bare/tokenizer.json", "{}")
        self.fails(4, "train", folder, *data, says='"model_type" is "gpt_bigcode"')

    def test_damaged_weights_are_told_before_their_tokenizer(self):
        folder = self.without_tokenizer()
        weights, data = os.path.join(folder, "model.safetensors"), ["--data", self.corpus(60)]
        os.truncate(weights, os.path.getsize(weights) - 1)
        for command in (["train", *data], ["eval", *data], ["generate", "--prompt", "x"]):
            self.assertIn("model.safetensors", self.fails(4, command[0], folder, *command[1:]).err)
        os.remove(weights)
        for command in (["train", *data], ["eval", *data]):
            self.assertNotIn("holds no tokenizer", self.fails(4, command[0], folder, *command[1:]).err)
        self.fails(2, "train", folder, *data, "--from-scratch", says="holds no tokenizer")  # which needs no weights

    def test_ids_without_a_tokenizer_have_a_loss_and_no_bits_per_byte(self):
        folder, ids = self.without_tokenizer(), self.ids()
        for command in (["train", folder, "--steps", 1], ["eval", folder]):
            self.fails(2, *command, "--data", ids, says="--tokenizer none for --data that is ids already")
        flags = ["--data", ids, "--sequence", 16, "--threads", 2, "--dtype", "f32"]
        known = self.succeeds("eval", folder, *flags, "--tokenizer", "none", "--json").json
        self.assertNotIn("bits_per_byte", known)
        self.assertGreater(known["loss"], 3)
        self.assertNotIn("bits per byte", self.succeeds("eval", folder, *flags, "--tokenizer", "none").out)
        # a file that does not name its form of ids is not taken as bytes because of --tokenizer
        as_bytes = self.succeeds("eval", folder, *flags, "--tokenizer", "bytes", "--json").json
        self.assertNotIn("bits_per_byte", as_bytes)
        self.assertEqual(as_bytes["loss"], known["loss"])

    def test_a_run_on_ids_goes_on_is_measured_and_exported_by_its_base_folder(self):
        folder, ids, run = self.without_tokenizer(), self.ids(), self.path("run")
        flags = ["--data", ids, *SHORT, "--dtype", "f32"]
        self.succeeds("train", folder, *flags, "--tokenizer", "none", "--steps", 1, "--validation", ids, "--save", run)
        note = self.succeeds("inspect", run, "--json").json["note"]
        self.assertEqual((note["tokenizer"], note["tokenizer_identity"]), ("none", "0" * 16))
        self.succeeds("train", "--resume", run, "--threads", 2, "--steps", 2)
        loss = self.succeeds("eval", run, "--data", ids, "--sequence", 16, "--json").json["loss"]
        self.succeeds("export", run, "-o", self.path("plain"))
        self.assertEqual({"config.json", "generation_config.json", "model.safetensors"},
                         {name for name in os.listdir(self.path("plain")) if "tokenizer" not in name})
        again = self.succeeds("eval", self.path("plain"), "--tokenizer", "none", *flags[:2], "--sequence", 16, "--dtype", "f32",
                              "--json").json["loss"]
        self.assertAlmostEqual(again, loss, delta=1e-3)  # the folder holds f16
        # text needs a tokenizer; the ids do not name it, so any that fits may be given
        self.fails(2, "eval", run, "--data", self.corpus(60), says="--tokenizer none reads ids only")
        self.fails(2, "generate", run, "--prompt", "x", says="trained on ids, with --tokenizer none")
        self.fails(2, "generate", run, "--prompt", "x", "--tokenizer", "none", says="--tokenizer bytes|PATH")
        self.succeeds("generate", run, "--prompt", "x", "--tokens", 2, "--tokenizer", "bytes")
        self.fails(2, "tokenize", self.corpus(60), "--tokenizer", "none", "-o", self.path("t"), says="--tokenizer none")

    def test_ids_of_a_folder_with_a_tokenizer_are_exported_with_it(self):
        folder, _ = self.model("gpt2")
        flags = ["--data", self.ids(), *SHORT, *STILL]
        for tokenizer, goes_along in (("none", True), ("bytes", False)):
            run, out = self.path("run-" + tokenizer), self.path("out-" + tokenizer)
            done = self.succeeds("train", folder, *flags, "--tokenizer", tokenizer, "--save", run)
            self.assertEqual("note: --tokenizer bytes is not the tokenizer of " in done.err,
                             tokenizer == "bytes")
            self.succeeds("export", run, "-o", out)
            self.assertEqual("tokenizer.json" in os.listdir(out), goes_along)
            self.assertIn("generation_config.json", os.listdir(out))

    def test_a_folder_of_a_run_on_bytes_says_so(self):
        run, out, again = self.path("run"), self.path("out"), self.path("again")
        data = ["--data", self.corpus(60)]
        self.succeeds("train", "gpt2-pico", *SHORT, *data, "--steps", 1, "--dtype", "f32", "--save", run)
        self.assertNotIn("tokenizer", self.succeeds("export", run, "-o", out).err)
        self.assertEqual(json.loads(self.bytes_of("out", "config.json"))["cohobate_tokenizer"], "bytes")
        self.assertIn("its ids are bytes", self.succeeds("inspect", out).out)
        self.assertNotIn("cohobate_tokenizer", self.succeeds("inspect", out).out)  # in no note
        flags = [*data, "--sequence", 16, "--dtype", "f32", "--json"]
        loss = self.succeeds("eval", run, *data, "--sequence", 16, "--json").json["loss"]
        self.assertAlmostEqual(self.succeeds("eval", out, *flags).json["loss"], loss, delta=1e-5)
        write = ["--prompt", "the", "--tokens", 8, "--temperature", 0]
        self.assertEqual(self.succeeds("generate", out, "--dtype", "f32", *write).out, self.succeeds("generate", run, *write).out)
        self.assertEqual(self.succeeds("export", out, "-o", again, "--json").json["tokenizer"], "bytes")
        self.assertAlmostEqual(self.succeeds("eval", again, *flags).json["loss"], loss, delta=1e-5)
        self.succeeds("train", again, *data, *SHORT, "--steps", 1, "--dtype", "f32", "--save", self.path("second"))
        self.assertEqual(self.succeeds("inspect", self.path("second"), "--json").json["note"]["tokenizer"], "bytes")
        # it is a tokenizer for others, too
        self.assertTrue(self.succeeds("inspect", out, "--json").json["tokenizer"])
        self.succeeds("tokenize", data[1], "--tokenizer", out, "-o", self.path("by-folder.tokens"))
        self.succeeds("tokenize", data[1], "-o", self.path("bytes.tokens"))
        self.assertEqual(self.bytes_of("by-folder.tokens"), self.bytes_of("bytes.tokens"))
        # another choice counts, and is what the next export says
        self.fails(2, "eval", out, *flags, "--tokenizer", "none", says="--tokenizer none reads ids only")
        self.succeeds("export", out, "-o", self.path("none"), "--tokenizer", "none")
        self.assertNotIn("cohobate_tokenizer", json.loads(self.bytes_of("none", "config.json")))
        self.fails(2, "eval", self.path("none"), *flags, says="holds no tokenizer")

    def test_a_preset_on_ids_keeps_its_published_vocabulary(self):
        plan = ["plan", "gpt2-nano", "--sequence", 16, "--batch", 2, "--json", "--tokenizer"]
        none, own = (self.succeeds(*plan, *more).json["parameters"] for more in (
            ["none"], ["bytes", "--vocabulary", 50257]))
        self.assertEqual(none, own)
        token = self.path("c.tokens")
        self.succeeds("tokenize", self.corpus(60), "-o", token)
        losses = [self.succeeds("train", "gpt2-nano", "--vocabulary", 257, *SHORT, "--data", token, "--steps", 1, "--save", "none",
                                "--tokenizer", tokenizer, "--json").json for tokenizer in ("bytes", "none")]
        self.assertEqual(losses[0]["loss"], losses[1]["loss"])
        self.fails(4, "train", "gpt2-nano", "--vocabulary", 50, *SHORT, "--data", token, "--steps", 1, "--save", "none",
                   "--tokenizer", "none", says="and the model has a vocabulary of 50")

    def test_a_tokenizer_that_is_gone_is_asked_for_or_left_out(self):
        folder, tensors = self.model("gpt2")
        self.write(os.path.join(folder, "LICENSE"), "free\n")
        self.train(folder, *STILL, "--save", self.path("run"))
        os.rename(folder, self.path("elsewhere"))
        self.succeeds("export", self.path("run"), "-o", self.path("kept"))
        self.assertTrue({"LICENSE", "tokenizer.json"} <= set(os.listdir(self.path("kept"))))
        shutil.rmtree(self.path("run/tokenizer"))
        self.fails(2, "export", self.path("run"), "-o", self.path("out"), says="--tokenizer")
        self.succeeds("export", self.path("run"), "-o", self.path("bare"), "--tokenizer", "none")
        self.assertEqual(sorted(os.listdir(self.path("bare"))), ["config.json", "model.safetensors"])
        self.succeeds("export", self.path("run"), "-o", self.path("out"), "--tokenizer", self.path("elsewhere"))
        self.assertEqual(model_folder.read(self.path("out")), tensors)
        self.assertIn("tokenizer.json", os.listdir(self.path("out")))

    def test_the_sequence_is_that_of_a_shorter_model_by_default(self):
        folder, _ = self.model("gpt2")  # of 64 positions
        done = self.succeeds("plan", folder, "--batch", 2, "--threads", 2)
        self.assertIn("a step of 2 x 64 tokens", done.out)
        self.fails(2, "plan", folder, "--sequence", 65, says="--sequence 65 is longer than the 64 positions")

    def test_folders_that_lack_what_makes_them_a_model_or_a_run_are_told_apart(self):
        folder, _ = self.model("opt")
        self.fails(4, "train", "--resume", folder, says=f"cohobate train {folder} --data FILE")
        os.rename(self.path("model", "config.json"), self.path("config.json"))
        data = ["--data", self.corpus(60)]
        for command in (["train", folder, *data], ["train", "--resume", folder], ["eval", folder, *data],
                        ["generate", folder, "--prompt", "x"], ["inspect", folder], ["check", folder],
                        ["export", folder, "-o", self.path("out")], ["plan", folder]):
            says = self.fails(4, *command, says="safetensors but no config.json").err
            self.assertIn(f"{self.path('model')} holds model-0000", says)
        self.assertEqual(self.entries(), ["config.json", "corpus.txt", "model"])
        # a run's folder may hold tensors of any name in addition to its checkpoints
        os.rename(self.path("config.json"), self.path("model", "config.json"))
        self.train(folder, *STILL, "--save", self.path("run"))
        self.write("run/mine.safetensors", b"")
        self.succeeds("check", self.path("run"))

    def test_a_damaged_newest_checkpoint_is_named_with_what_is_taken_for_it(self):
        folder, _ = self.model("opt")
        run = self.path("run")
        self.train(folder, "--steps", 2, "--save-every", 1, "--save", run)
        step1, step2 = self.path("run", "step-1"), self.path("run", "step-2")
        os.truncate(self.path("run", "step-2", "m.bin"), 5)
        names = f"warning: checkpoint {step2}: m.bin has 5 bytes"
        data = ["--data", self.corpus(60)]
        whole = self.succeeds("check", step1).out.split()[-1]
        says = self.fails(4, "check", run, says=f"the newest that is whole is {step1}, hash {whole}").err
        self.assertIn(f"checkpoint {step2}: m.bin has 5 bytes", says)
        for command in (["inspect", run, "--hash"], ["generate", run, "--prompt", "line", "--tokens", 1],
                        ["export", run, "-o", self.path("out")], ["plan", run, *SHORT]):
            done = self.succeeds(*command)
            self.assertIn(names, done.err, command)
            self.assertIn(f"the newest that is whole is taken: {step1}\n", done.err, command)
        # given by name it is refused, and a complete one gets no warning
        self.fails(4, "check", step2, says="take another checkpoint of the run, or a copy of this one")
        self.assertNotIn("warning", self.succeeds("check", step1).err)
        resumed = self.succeeds("train", "--resume", run, "--steps", 2, *data)
        self.assertIn(names, resumed.err)
        self.assertIn(f"{step2} is not whole: set aside as {step2}.broken", resumed.err)
        self.assertNotIn("warning", self.succeeds("check", run).err)
        for name in os.listdir(run):
            if name.startswith("step-"):
                os.truncate(self.path("run", name, "manifest.json"), 5)
        self.fails(4, "train", "--resume", run, "--steps", 3, says="or start the run again")
        shutil.rmtree(step1)
        self.fails(4, "train", "--resume", run, "--steps", 3, says=f"the only checkpoint in {run} is not whole")

    def test_check_names_the_newest_whole_checkpoint_behind_one_with_a_flipped_bit(self):
        folder, _ = self.model("opt")
        run = self.path("run")
        self.train(folder, "--steps", 3, "--save-every", 1, "--keep", 3, "--save", run)
        hashes = {n: self.succeeds("check", self.path("run", f"step-{n}")).out.split()[-1] for n in (1, 2, 3)}
        self.assertIn(hashes[3], self.succeeds("check", run).out)
        for newest, older in ((3, 2), (2, 1), (1, None)):
            path = self.path("run", f"step-{newest}", "m.bin")  # same length: only reading all of it reveals it
            data = bytearray(self.bytes_of(path))
            data[len(data) // 2] ^= 1
            self.write(path, bytes(data))
            says = f"whole is {self.path('run', f'step-{older}')}, hash {hashes[older]}" if older else f"in {run} is whole"
            self.assertIn(self.path("run", "step-3"), self.fails(4, "check", run, says=says).err)

    def test_damaged_weights_of_a_run_name_the_checkpoint_before(self):
        folder, _ = self.model("opt")
        run, data = self.path("run"), ["--data", self.corpus(60)]
        self.train(folder, "--steps", 2, "--save-every", 1, "--save", run)
        path = self.path("run", "step-2", "work.bin")
        weights = bytearray(self.bytes_of(path))
        weights[len(weights) // 2] ^= 1
        self.write(path, bytes(weights))
        for command in (["generate", run, "--prompt", "line", "--tokens", 1], ["export", run, "-o", self.path("out")],
                        ["eval", run, *data], ["train", run, *data, *SHORT, "--steps", 1, "--save", "none"]):
            self.fails(4, *command, says=f"; before it there is {self.path('run', 'step-1')}: give that")
        self.assertNotIn("before it", self.fails(4, "generate", self.path("run", "step-2"), "--prompt", "line", "--tokens", 1).err)

    def test_an_added_token_beyond_the_model_is_told_and_refused_only_where_a_text_holds_it(self):
        # ids of the vocabulary itself; after them tokenizer.json has one added token
        for kind, rows, own in (("opt", 420, 420), ("gpt2", 417, 416)):
            with self.subTest(kind=kind):
                plain, _ = self.model(kind, "plain-" + kind, V=rows)
                folder, _ = self.model(kind, kind, V=rows)
                if kind == "opt":
                    self.write("opt/added_tokens.json", json.dumps({"<extra>": rows}))
                else:
                    tokenizer = json.loads(self.bytes_of(kind, "tokenizer.json"))
                    self.assertEqual(max(tokenizer["model"]["vocab"].values()) + 1, own)
                    token = dict(id=rows, content="<extra>", single_word=False, lstrip=False, rstrip=False,
                                 normalized=False, special=True)
                    tokenizer["added_tokens"].append(token)
                    self.write("gpt2/tokenizer.json", json.dumps(tokenizer))
                warning = f'{folder} has a vocabulary of {rows}, and added tokens of its tokenizer have ids up to {rows}'
                says = f'is "<extra>" (id {rows}), and the model has a vocabulary of {rows}'
                data, run = ["--data", self.corpus(60)], self.path("run-" + kind)
                trained = self.train(folder, *STILL, "--save", run)
                self.assertIn(warning + ' ("<extra>" is the first beyond)', trained.err)
                self.assertNotIn("added tokens", self.train(plain, *STILL, "--save", "none").err)
                losses = [self.succeeds("eval", of, *data, "--json").json["loss"] for of in (plain, folder)]
                self.assertEqual(losses[0], losses[1])
                self.assertIn("added tokens", self.succeeds("generate", run, "--prompt", "line", "--tokens", 3).err)
                self.succeeds("train", "--resume", run, "--steps", 2)
                # where the token is: in a text, a line, a token file, a prompt
                text = self.write("with.txt", "ab<extra>" * 50)
                self.succeeds("tokenize", self.write("ab.txt", "ab"), "--tokenizer", folder, "-o", self.path("ab"))
                count = self.succeeds("inspect", self.path("ab"), "--json").json["tokens"] + 1
                self.fails(4, "train", folder, "--data", text, *SHORT, "--save", "none",
                           says=f"{text}: token {count} {says}")
                lines = self.write("with.jsonl", '{"text": "ab"}\n{"text": "ab<extra>"}\n')
                self.fails(4, "eval", folder, "--data", lines, says=f"{lines}:2: token {count} {says}")
                self.succeeds("tokenize", text, "--tokenizer", folder, "-o", self.path("with.tokens"))
                self.fails(4, "eval", folder, "--data", self.path("with.tokens"), says=f"token {count} {says}")
                self.fails(4, "generate", folder, "--prompt", "ab<extra>", says=f"{says}: leave it out")
                # without the token such a file is valid
                self.succeeds("tokenize", self.corpus(60), "--tokenizer", folder, "-o", self.path("c.tokens"))
                self.assertEqual(self.succeeds("eval", folder, "--data", self.path("c.tokens"), "--json").json["loss"],
                                 losses[0])
                # a vocabulary that does not fit still means another model
                small, _ = self.model(kind, "small-" + kind, V=own - 1)
                self.fails(2, "eval", small, *data, says=f"has a vocabulary of {own - 1}")

    def test_a_token_that_the_tokenizer_itself_adds_is_not_blamed_on_the_text(self):
        rows = 420
        end = f'"<extra>" (id {rows}), and the model has a vocabulary of {rows}'
        lines = self.write("lines.jsonl", '{"text": "ab"}\n' * 40)
        chats = self.write("chats.jsonl", '{"messages": [{"role": "user", "content": "a"}, '
                                          '{"role": "assistant", "content": "b"}]}\n' * 40)
        folder, _ = self.model("opt", "folder", V=rows)
        config = json.loads(self.bytes_of("folder", "tokenizer_config.json"))

        def told(more, added, code, *arguments, says):
            self.write("folder/added_tokens.json", json.dumps({name: rows + i for i, name in enumerate(added)}))
            self.write("folder/tokenizer_config.json", json.dumps({**config, **more}))
            err = self.fails(code, *arguments, says=says).err
            self.assertNotIn("take it out of the text", err)
        train = ["train", folder, *SHORT, *STILL, "--save", "none"]
        ends = {"eos_token": "<extra>"}
        told(ends, ["<extra>"], 4, *train, "--data", lines, says="the tokenizer ends each document with " + end)
        begins = {"bos_token": "<extra>", "add_bos_token": True}
        told(begins, ["<extra>"], 4, *train, "--data", lines, says="the tokenizer begins each document with " + end)
        told(begins, ["<extra>"], 4, "generate", folder, "--prompt", "ab",
             says="the tokenizer begins each text with " + end)
        told({}, ["<|im_start|>", "<|im_end|>"], 4, *train, "--data", chats, "--chat",
             says=f'the form of conversations writes "<|im_start|>" (id {rows}), and the model has')
        # from a token file made without the model
        self.write("folder/added_tokens.json", json.dumps({"<extra>": rows}))
        self.write("folder/tokenizer_config.json", json.dumps({**config, **ends}))
        self.succeeds("tokenize", lines, "--tokenizer", folder, "-o", self.path("made"))
        told(ends, ["<extra>"], 4, *train, "--data", self.path("made"), says="the tokenizer puts it around documents")

    def test_a_folder_without_a_tokenizer_asks_for_one(self):
        folder, _ = self.model("gpt2")
        os.remove(os.path.join(folder, "tokenizer.json"))
        self.fails(2, "train", folder, "--data", self.corpus(), says="--tokenizer bytes|PATH")
        self.fails(2, "eval", folder, "--data", self.corpus(), says="--tokenizer bytes|PATH")
        self.succeeds("plan", folder, *SHORT)
        self.train(folder, *STILL, "--save", "none", "--tokenizer", os.path.join(model_folder.TOKENIZERS, "gpt2"))


if __name__ == "__main__":
    unittest.main()
