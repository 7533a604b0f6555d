"""Adapters go from PEFT to the program and back: a folder that PEFT trained and saved is scored by `eval --adapter`, and
merged; a folder that `train --lora` and `export` wrote is loaded by PEFT, which may train on. The loss is the same.

Needs torch, transformers and peft; exits 77 without them."""

import os
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reference"))
import reference_python  # noqa: E402
reference_python.need("torch", "transformers", "peft")

import peft  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig  # noqa: E402

from program import ProgramTest  # noqa: E402

SEQUENCE, WINDOWS, VOCABULARY = 32, 4, 99
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
LLAMA = dict(vocab_size=VOCABULARY, max_position_embeddings=40, hidden_size=48, intermediate_size=60,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
MODELS = {
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_positions=40, n_embd=48, n_layer=2, n_head=3, bos_token_id=0,
                       eos_token_id=0),
    "llama": LlamaConfig(**LLAMA),
    "llama tied": LlamaConfig(**LLAMA, tie_word_embeddings=True),
}
# As PEFT's users write them; every member that is left out is saved with PEFT's default.
SETTINGS = {
    "default": {},
    "every linear": dict(r=4, lora_alpha=12, target_modules="all-linear"),
    "dropout": dict(r=2, lora_dropout=0.1, init_lora_weights="gaussian"),
    "one layer": dict(r=3, layers_to_transform=[1]),
    "expression": dict(r=3, target_modules=r".*\.1\..*(c_attn|q_proj|o_proj|up_proj)"),
}
# Operators that are trained in full. Where the table is the head, PEFT ties its copies of both if ensure_weight_tying is
# set and one of them is named "embed_tokens" or "lm_head".
IN_FULL = {"gpt2": "wte,mlp.c_proj,ln_1", "llama": "embed_tokens,lm_head", "llama tied": "embed_tokens,norm"}
# The two add in another order in float: 200 roundings of a loss of 5, of half a unit each.
BOUND = 200 * 5 * 2.0**-24


class Peft(ProgramTest):
    def setUp(self):
        super().setUp()
        ids = torch.randint(0, VOCABULARY, (WINDOWS * SEQUENCE + 1,), generator=torch.Generator().manual_seed(3))
        self.windows = torch.stack([ids[i:i + SEQUENCE + 1] for i in range(0, WINDOWS * SEQUENCE, SEQUENCE)])
        with open(self.path("ids.bin"), "wb") as file:
            file.write(struct.pack(f"<{len(ids)}H", *ids.tolist()))
        self.data = ["--data", self.path("ids.bin"), "--tokenizer", "none", "--sequence", SEQUENCE, "--dtype", "f32",
                     "--json"]

    def base(self, name):
        """The folder of a model of random numbers, as `transformers` writes it."""
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(MODELS[name]).save_pretrained(self.path(name))
        return self.path(name)

    def their_loss(self, model):
        with torch.no_grad():
            logits = model.eval()(input_ids=self.windows[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.windows[:, 1:].flatten()).item()

    def our_loss(self, *what):
        return self.succeeds("eval", *what, *self.data).json["loss"]

    def train_theirs(self, model):
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        for _ in range(8):
            optimizer.zero_grad()
            model.train()(input_ids=self.windows, labels=self.windows).loss.backward()
            optimizer.step()

    def test_a_folder_that_peft_trained_has_pefts_loss(self):
        for name in MODELS:
            folder = self.base(name)
            plain = self.our_loss(folder)
            for setting, told in SETTINGS.items():
                with self.subTest(name=name, setting=setting):
                    adapters, merged = self.path(f"{name} {setting}"), self.path(f"{name} {setting} merged")
                    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder),
                                                peft.LoraConfig(task_type="CAUSAL_LM", **told))
                    self.train_theirs(model)
                    model.save_pretrained(adapters)
                    theirs, ours = self.their_loss(model), self.our_loss(folder, "--adapter", adapters)
                    self.assertGreater(abs(plain - theirs), 100 * BOUND)
                    self.assertLessEqual(abs(ours - theirs), BOUND)
                    self.succeeds("export", folder, "--adapter", adapters, "--merge-lora", "-o", merged, "--tokenizer", "none")
                    whole = AutoModelForCausalLM.from_pretrained(merged)
                    self.assertLessEqual(abs(self.their_loss(whole) - theirs), BOUND)

    def test_a_folder_that_we_trained_has_our_loss_in_peft(self):
        for name in MODELS:
            for flags in ([], ["--lora-targets", "*"], ["--lora-targets", "h.1.*" if name == "gpt2" else "layers.1.*"]):
                with self.subTest(name=name, flags=flags):
                    folder, run, out = self.base(name), self.path(f"run {name}{flags}"), self.path(f"out {name}{flags}")
                    self.succeeds("train", folder, "--lora", "4:6", *flags, *self.data, "--batch", 2, "--steps", 6,
                                  "--lr", "1e-2", "--warmup", 0, "--save", run)
                    self.succeeds("export", run, "-o", out)
                    ours = self.our_loss(run)
                    self.assertGreater(abs(self.our_loss(folder) - ours), 100 * BOUND)
                    model = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), out,
                                                           is_trainable=True)
                    self.assertLessEqual(abs(self.their_loss(model) - ours), BOUND)
                    # The folder names its base, so these need no other path.
                    for loaded in (peft.AutoPeftModelForCausalLM, AutoModelForCausalLM):
                        self.assertLessEqual(abs(self.their_loss(loaded.from_pretrained(out)) - ours), BOUND)
                    # PEFT trains on, and the result comes back.
                    self.train_theirs(model)
                    model.save_pretrained(out + "again")
                    theirs = self.their_loss(model)
                    self.assertGreater(abs(theirs - ours), 100 * BOUND)
                    self.assertLessEqual(abs(self.our_loss(folder, "--adapter", out + "again") - theirs), BOUND)

    # ---- modules that are trained in full ----

    def test_modules_that_we_trained_in_full_are_pefts_modules_to_save(self):
        for name, also in IN_FULL.items():
            with self.subTest(name=name):
                folder, run, out = self.base(name), self.path(f"run {name}"), self.path(f"out {name}")
                self.succeeds("train", folder, "--lora", "4:6", "--lora-also", also, *self.data, "--batch", 2, "--steps", 6,
                              "--lr", "1e-2", "--warmup", 0, "--save", run)
                self.succeeds("export", run, "-o", out)
                ours = self.our_loss(run)
                model = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), out, is_trainable=True)
                # Each tensor of the file has its place, and each trained one its tensor.
                tensors = safetensors.torch.load_file(os.path.join(out, "adapter_model.safetensors"))
                saved = peft.get_peft_model_state_dict(model)
                self.assertEqual(sorted(saved), sorted(tensors))
                for key, tensor in tensors.items():
                    self.assertTrue(torch.equal(saved[key], tensor), key)
                loaded = peft.set_peft_model_state_dict(model, dict(tensors))
                self.assertEqual(loaded.unexpected_keys, [])
                self.assertFalse([key for key in loaded.missing_keys if "lora_" in key or "modules_to_save" in key])
                self.assertLessEqual(abs(self.their_loss(model) - ours), BOUND)
                merged = self.path(f"merged {name}")
                self.succeeds("export", run, "-o", merged, "--merge-lora", "--tokenizer", "none")
                self.assertLessEqual(abs(self.their_loss(AutoModelForCausalLM.from_pretrained(merged)) - ours), BOUND)

    def test_modules_that_peft_trained_in_full_have_pefts_loss(self):
        for name, also in IN_FULL.items():
            with self.subTest(name=name):
                folder, adapters = self.base(name), self.path(f"{name} whole")
                told = peft.LoraConfig(task_type="CAUSAL_LM", r=4, ensure_weight_tying=name != "llama",
                                       modules_to_save=also.split(",") + (["lm_head"] if name == "gpt2" else []))
                model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder), told)
                self.train_theirs(model)
                model.save_pretrained(adapters)
                theirs = self.their_loss(model)
                self.assertGreater(abs(self.our_loss(folder) - theirs), 100 * BOUND)
                self.assertLessEqual(abs(self.our_loss(folder, "--adapter", adapters) - theirs), BOUND)
                merged = self.path(f"{name} whole merged")
                self.succeeds("export", folder, "--adapter", adapters, "--merge-lora", "-o", merged, "--tokenizer", "none")
                self.assertLessEqual(abs(self.their_loss(AutoModelForCausalLM.from_pretrained(merged)) - theirs), BOUND)

    def test_a_table_that_peft_trained_apart_from_its_head_is_refused(self):
        for modules in (["wte"], ["lm_head"], ["wte", "lm_head"]):
            with self.subTest(modules=modules):
                folder, adapters = self.base("gpt2"), self.path("apart" + "".join(modules))
                model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder),
                                            peft.LoraConfig(task_type="CAUSAL_LM", r=4, modules_to_save=modules))
                self.train_theirs(model)
                model.save_pretrained(adapters)
                self.fails(4, "eval", folder, "--adapter", adapters, *self.data, says="ensure_weight_tying")


if __name__ == "__main__":
    unittest.main()
