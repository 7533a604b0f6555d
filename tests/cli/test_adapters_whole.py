"""Operators that are trained in full next to adapters (--lora-also): in checkpoints, in a folder of adapters and back, and
merged."""

import json
import os
import unittest

import model_folder
from program import ProgramTest

SMALL = ["--sequence", 16, "--batch", 2, "--threads", 2]
MOVING = ["--lr", "1e-2", "--warmup", 0, "--dtype", "f32"]
BEGIN = "base_model.model."
# kind: operators in full, the modules that PEFT has to train, their tensors in the file
KINDS = {
    "gpt2": ("wte", ["wte", "lm_head"], ["transformer.wte.weight", "lm_head.weight"]),  # one table
    "llama": ("embed_tokens,lm_head", ["embed_tokens", "lm_head"], ["model.embed_tokens.weight", "lm_head.weight"]),
    "qwen3": ("embed_tokens,norm", ["embed_tokens", "model.norm", "lm_head"],
              ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]),
}


class Whole(ProgramTest):
    def model(self, kind):
        tensors = model_folder.make(self.path(kind), kind, dtype="F32")
        return self.path(kind), tensors

    def train(self, *arguments):
        return self.succeeds("train", *arguments, "--data", self.corpus(60), *SMALL)

    def trained(self, kind):
        """Folder of the model and its tensors, run folder and folder of the adapters of a run of a few steps."""
        folder, tensors = self.model(kind)
        run, out = self.path("run-" + kind), self.path("adapters-" + kind)
        done = self.train(folder, "--lora", "3:6", "--lora-also", KINDS[kind][0], "--steps", 3, *MOVING, "--save", run)
        self.assertIn(f"; {KINDS[kind][0]} in full\n", done.err)
        return folder, tensors, run, out

    def same(self, found, expected):
        """Compares tensors by name: assertEqual takes minutes to describe how megabytes differ."""
        self.assertEqual(found.keys(), expected.keys())
        self.assertEqual([name for name, tensor in found.items() if tensor != expected[name]], [])

    def config(self, folder, **changed):
        """The configuration of a folder of adapters, which gets these members."""
        path = os.path.join(folder, "adapter_config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        if changed:
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**config, **changed}, file)
        return config

    def test_what_is_trained_in_full_goes_along_with_the_adapters(self):
        for kind, (_, modules, names) in KINDS.items():
            with self.subTest(kind=kind):
                folder, tensors, run, out = self.trained(kind)
                done = self.succeeds("export", run, "-o", out, "--json").json
                self.assertEqual(self.config(out)["modules_to_save"], modules)
                file = model_folder.read_file(os.path.join(out, "adapter_model.safetensors"))
                whole = {name.removeprefix(BEGIN): tensor for name, tensor in file.items() if ".lora_" not in name}
                self.assertEqual(sorted(whole), sorted(names))
                self.assertEqual(done["bytes"], sum(len(data) for _, _, data in file.values()))
                if "lm_head.weight" not in tensors:
                    self.assertTrue(whole["lm_head.weight"] == whole[names[0]])
                    self.assertEqual(done["parameters"] * 4 + len(whole["lm_head.weight"][2]), done["bytes"])
                for name in set(names) & set(tensors):
                    self.assertEqual(whole[name][:2], tensors[name][:2])
                    self.assertTrue(whole[name] != tensors[name], name)
                # Merged, they are those of the run, and everything without an adapter is that of the base.
                for name, what in (("merged-", [run]), ("merged-over-", [folder, "--adapter", out])):
                    merged = self.path(name + kind)
                    self.succeeds("export", *what, "-o", merged, "--merge-lora")
                    merged = model_folder.read(merged)
                    self.assertEqual(merged.keys(), tensors.keys())
                    for tensor, must in tensors.items():
                        if tensor in whole:
                            self.assertTrue(merged[tensor] == whole[tensor], tensor)
                        else:
                            adapted = f"{BEGIN}{tensor.removesuffix('weight')}lora_A.weight" in file
                            self.assertEqual(merged[tensor] == must, not adapted, tensor)

    def test_a_folder_of_adapters_over_its_model_is_the_run_that_made_it(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                folder, _, run, out = self.trained(kind)
                self.succeeds("export", run, "-o", out)
                over = [folder, "--adapter", out]
                score = ["--data", self.corpus(60), "--sequence", 16, "--micro-batch", 2, "--threads", 2, "--dtype", "f32", "--json"]
                losses = [self.succeeds("eval", *what, *score).json["loss"] for what in ([folder], [run], over)]
                self.assertNotEqual(losses[0], losses[1])
                self.assertEqual(losses[1], losses[2])
                write = ["--prompt", "line", "--tokens", 8, "--temperature", 0, "--dtype", "f32"]
                self.assertEqual(*(self.succeeds("generate", *what, *write).out for what in ([run], over)))
                # At a rate of 0 a run ends with what it began with, and trains the same operators.
                done = self.train(*over, *MOVING, "--lr", 0, "--weight-decay", 0, "--steps", 1, "--save", self.path("same-" + kind))
                self.assertIn(f"; {KINDS[kind][0]} in full\n", done.err)
                self.succeeds("export", self.path("same-" + kind), "-o", self.path("again-" + kind))
                self.same(*(model_folder.read_file(os.path.join(where, "adapter_model.safetensors"))
                            for where in (out, self.path("again-" + kind))))

    def test_a_checkpoint_is_a_base_too(self):
        folder, _ = self.model("gpt2")
        self.train(folder, *MOVING, "--steps", 2, "--save", self.path("plain"))
        told = ["--tokenizer", folder, "--vocabulary", 420]
        self.train(self.path("plain"), *told, "--lora", 2, "--lora-also", "wte", *MOVING, "--steps", 2, "--save", self.path("run"))
        self.succeeds("export", self.path("run"), "-o", self.path("out"))
        for name, what in (("one", [self.path("run")]), ("two", [self.path("plain"), "--adapter", self.path("out")])):
            self.succeeds("export", *what, "-o", self.path(name), "--merge-lora", "--tokenizer", "none")
        self.same(model_folder.read(self.path("one")), model_folder.read(self.path("two")))

    # ---- checkpoints ----

    def test_each_save_has_what_is_trained_in_full_and_a_resumed_run_its_bits(self):
        folder, tensors = self.model("gpt2")
        train = [folder, "--lora", 2, "--lora-also", "wte,ln_f", *MOVING]
        whole = self.train(*train, "--steps", 4, "--save", "none")
        self.train(*train, "--steps", 2, "--save-every", 1, "--schedule-steps", 4, "--save", self.path("run"))
        done = self.succeeds("train", "--resume", self.path("run"), "--steps", 4, "--keep", 5)
        self.assertIn("; wte,ln_f in full\n", done.err)
        self.assertEqual(self.says_hash(done), self.says_hash(whole))
        # The shared file of frozen parameters holds the others, and none of these.
        frozen = sum(len(data) for name, (_, _, data) in tensors.items() if ".wte." not in name and ".ln_f." not in name)
        facts = [os.stat(self.path("run", f"step-{n}", "frozen.bin")) for n in (2, 4)]
        self.assertEqual([fact.st_size for fact in facts], [frozen, frozen])
        self.assertEqual(facts[0].st_ino, facts[1].st_ino)
        tables = []
        for n in (2, 4):
            self.succeeds("export", self.path("run", f"step-{n}"), "-o", self.path(f"out-{n}"), "--tokenizer", "none")
            tables.append(model_folder.read_file(self.path(f"out-{n}", "adapter_model.safetensors"))[BEGIN + "transformer.wte.weight"])
        self.assertTrue(tables[0] != tables[1])
        self.fails(2, "train", "--resume", self.path("run"), "--steps", 6, "--lora-also", "wte", says="comes from the checkpoint")

    # ---- what is refused ----

    def test_flags_that_do_not_fit_are_refused(self):
        folder, _ = self.model("gpt2")
        train = ["train", folder, "--data", self.corpus(60), *SMALL]
        for flags, says in [
            (["--lora-also", "wte"], "--lora-also goes with --lora: add --lora 8"),
            (["--lora", 4, "--lora-also", ""], "--lora-also takes PATTERN"),
            (["--lora", 4, "--lora-also", "w," * 200], "--lora-also of 400 bytes: at most 255"),
            (["--lora", 4, "--lora-also", "embed_tokens"], "\"embed_tokens\" matches no operator of this model: choose among wte, wpe"),
            (["--lora", 4, "--lora-also", "c_attn"], "h.0.attn.c_attn has an adapter"),
            (["--lora", 4, "--lora-also", "lm_head"], "matches no operator"),  # it is the table
            (["--lora", 4, "--lora-also", "wte", "--freeze", "wte"], "--freeze 'wte' freezes all that --lora-also 'wte' is to train"),
            (["--lora", 4, "--lora-also", "ln_f, h.0.ln_*", "--freeze", "wpe,h.*"], "'wpe,h.*' freezes all that --lora-also 'h.0.ln_*' is"),
        ]:
            with self.subTest(flags=flags):
                self.fails(2, *train, *flags, says=says)
        part = self.succeeds("plan", folder, "--lora", 4, "--lora-also", "ln_1", "--freeze", "h.0.*")
        self.assertIn("ln_1 in full; h.0.* frozen", " ".join(part.out.split()))
        _, _, run, out = self.trained("gpt2")
        self.succeeds("export", run, "-o", out)
        self.fails(2, *train, "--adapter", out, "--lora-also", "wpe", says="leave --freeze, --lora, --lora-targets and --lora-also out")
        self.fails(2, "train", run, "--tokenizer", folder, "--data", self.corpus(), "--lora-also", "wpe", says="has adapters of rank 3")

    def broken(self, kind, out, tensors, says, **changed):
        before = self.config(out, **changed)
        model_folder.write_file(os.path.join(out, "adapter_model.safetensors"), tensors)
        done = self.fails(4, "plan", self.path(kind), *SMALL, "--adapter", out, says=says)
        self.config(out, **before)
        return done.err

    def accepted(self, kind, out, tensors, **changed):
        before = self.config(out, **changed)
        model_folder.write_file(os.path.join(out, "adapter_model.safetensors"), tensors)
        self.succeeds("plan", self.path(kind), *SMALL, "--adapter", out)
        merged = self.path("of-accepted")
        self.succeeds("export", self.path(kind), "--adapter", out, "-o", merged, "--merge-lora", "--tokenizer", "none")
        found = model_folder.read(merged)
        self.succeeds("export", self.path("run-" + kind), "-o", merged + "-run", "--merge-lora", "--tokenizer", "none")
        self.same(found, model_folder.read(merged + "-run"))
        for name in (merged, merged + "-run"):
            os.rename(name, name + str(len(os.listdir(self.folder))))
        self.config(out, **before)

    def test_a_table_that_is_the_head_is_there_for_both(self):
        kind = "gpt2"
        _, _, run, out = self.trained(kind)
        self.succeeds("export", run, "-o", out)
        file = model_folder.read_file(os.path.join(out, "adapter_model.safetensors"))
        table, head = BEGIN + "transformer.wte.weight", BEGIN + "lm_head.weight"
        without = {name: {key: tensor for key, tensor in file.items() if key != name} for name in (table, head)}
        for changed in {}, {"ensure_weight_tying": True}:  # by which PEFT ties no module named "wte"
            self.broken(kind, out, without[head], f"tensor {table} is there without that of the head", modules_to_save=["wte"], **changed)
            self.broken(kind, out, without[table], f"tensor {head} is there without that of the embedding", modules_to_save=["lm_head"], **changed)
        self.accepted(kind, out, file, modules_to_save=["transformer.wte"], ensure_weight_tying=True)
        dtype, shape, data = file[head]
        self.broken(kind, out, {**file, head: (dtype, shape, data[:-4] + b"\0\0\0\0")}, f"tensors {table} and {head} differ")
        self.broken(kind, out, {**file, **{name: (dtype, [shape[0] + 3, shape[1]], data + bytes(3 * 4 * shape[1])) for name in (table, head)}},
                    "rows, and the vocabulary of gpt2 has 420: PEFT saves the embedding and the head with adapters if the vocabulary was resized")
        self.broken(kind, out, {**file, head: ("I32", shape, data)}, "I32")

    def test_parts_of_what_was_trained_in_full_are_refused(self):
        folder, _ = self.model("gpt2")
        run, out = self.path("run-gpt2"), self.path("out")
        self.train(folder, "--lora", 3, "--lora-also", "ln_f,mlp.c_proj", "--steps", 2, *MOVING, "--save", run)
        self.succeeds("export", run, "-o", out)
        file = model_folder.read_file(os.path.join(out, "adapter_model.safetensors"))
        bias = BEGIN + "transformer.ln_f.bias"
        self.broken("gpt2", out, {name: tensor for name, tensor in file.items() if name != bias},
                    "module transformer.ln_f is there without all of its weight and bias: fetch the adapters again")
        self.broken("gpt2", out, {name: tensor for name, tensor in file.items() if "ln_f" not in name},
                    "\"modules_to_save\" names \"ln_f\", of which adapter_model.safetensors holds nothing: fetch the adapters again")
        self.broken("gpt2", out, {**file, "transformer.ln_f.bias": file[bias]}, "is there twice")
        self.broken("gpt2", out, {**file, bias: (file[bias][0], [16], file[bias][2][:64])}, f"tensor {bias} has another shape than")
        self.broken("gpt2", out, {**file, BEGIN + "transformer.h.0.attn.c_attn.weight": ("F32", [32, 96], bytes(4 * 32 * 96)),
                                  BEGIN + "transformer.h.0.attn.c_attn.bias": ("F32", [96], bytes(4 * 96))},
                    "module transformer.h.0.attn.c_attn is there whole and with an adapter")
        self.broken("gpt2", out, {**file, BEGIN + "score.weight": file[bias]}, f"tensor {BEGIN}score.weight is no adapter of a linear")
        self.broken("gpt2", out, file, "\"modules_to_save\" must be null or a list of names", modules_to_save="ln_f")
        # As earlier versions of PEFT, and other programs, write the names.
        for mark in (".modules_to_save", ".modules_to_save.default"):
            old = {name if ".lora_" in name else name[:name.rindex(".")] + mark + name[name.rindex("."):]: tensor
                   for name, tensor in file.items()}
            self.accepted("gpt2", out, old)
        self.accepted("gpt2", out, {name.removeprefix(BEGIN): tensor for name, tensor in file.items()}, modules_to_save=None)
        nan = b"\0\0\xc0\x7f"
        model_folder.write_file(os.path.join(out, "adapter_model.safetensors"), {**file, bias: (*file[bias][:2], nan + file[bias][2][4:])})
        self.fails(4, "export", folder, "--adapter", out, "-o", self.path("no"), "--merge-lora", says="holds a number that is not finite")


if __name__ == "__main__":
    unittest.main()
