"""A model larger than the device's memory is fine-tuned from folder to folder, and `transformers` computes the same
loss with what came out; and what `transformers` wrote comes out with the same logits where nothing was trained.

Needs torch and transformers; exits 77 where they are not there."""

import json
import math
import os
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reference"))
import reference_python  # noqa: E402
reference_python.need("torch", "transformers")

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import (AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, OPTConfig,  # noqa: E402
                          PreTrainedTokenizerFast, Qwen2Config)

import model_folder  # noqa: E402
from program import ProgramTest  # noqa: E402

SEQUENCE = 32
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
KINDS = {
    "gpt2": dict(C=192, L=6, P=128, inner=768),
    "opt": dict(C=192, L=6, P=128, inner=768),
    "llama": dict(C=192, L=6, P=128, inner=512),
}


LLAMA = dict(vocab_size=99, max_position_embeddings=40, hidden_size=48, intermediate_size=60, num_hidden_layers=2,
             num_attention_heads=4)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8)
OPT = dict(vocab_size=99, max_position_embeddings=40, hidden_size=48, ffn_dim=70, num_hidden_layers=2,
           num_attention_heads=3)
WRITTEN = {
    "gpt2": GPT2Config(vocab_size=99, n_positions=40, n_embd=48, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=0),
    "opt": OPTConfig(**OPT, word_embed_proj_dim=48),
    "opt 350M": OPTConfig(**OPT, word_embed_proj_dim=24, do_layer_norm_before=False),
    "llama 3": LlamaConfig(**LLAMA, num_key_value_heads=2, tie_word_embeddings=True, rope_theta=5e5, rope_scaling=LLAMA3),
    "llama biases": LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=True),
    "mistral": MistralConfig(**LLAMA, num_key_value_heads=2, sliding_window=None),
    "qwen2": Qwen2Config(**LLAMA, num_key_value_heads=2),
}


class Transformers(ProgramTest):
    def test_what_transformers_wrote_comes_out_with_the_same_logits(self):
        ids = torch.randint(0, 99, (2, 30), generator=torch.Generator().manual_seed(2))
        for name, config in WRITTEN.items():
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                with self.subTest(name=name, dtype=dtype), torch.no_grad():
                    torch.manual_seed(1)
                    was = AutoModelForCausalLM.from_config(config).to(dtype).eval()
                    folder, out = self.path(f"{name} {dtype}"), self.path(f"{name} {dtype} out")
                    was.save_pretrained(folder, max_shard_size="60KB", safe_serialization=True)
                    self.succeeds("export", folder, "-o", out, "--tokenizer", "none", "--shard-size", "40kB")
                    now, told = AutoModelForCausalLM.from_pretrained(out, torch_dtype=dtype, output_loading_info=True)
                    self.assertFalse(told["missing_keys"] or told["unexpected_keys"] or told["mismatched_keys"], told)
                    state, other = was.state_dict(), now.state_dict()
                    self.assertEqual(state.keys(), other.keys())
                    for key, tensor in state.items():
                        self.assertTrue(torch.equal(tensor, other[key]), key)
                    now = now.to(dtype).eval()  # as `was`, whose tables of rotation were rounded by it
                    self.assertTrue(torch.equal(was.float()(ids).logits, now.float()(ids).logits))

    def test_a_tied_head_that_is_not_its_table_is_refused_where_transformers_unties_it(self):
        for name in ("gpt2", "opt", "llama 3"):
            with self.subTest(name=name):
                folder, out = self.path(name), self.path(f"{name} out")
                was = AutoModelForCausalLM.from_config(WRITTEN[name])
                was.save_pretrained(folder, safe_serialization=True)
                file = os.path.join(folder, "model.safetensors")
                tensors = load_file(file)
                self.assertNotIn("lm_head.weight", tensors)
                table = was.get_input_embeddings().weight.detach()
                save_file({**tensors, "lm_head.weight": table.clone()}, file, metadata={"format": "pt"})
                now = AutoModelForCausalLM.from_pretrained(folder)
                self.assertIs(now.get_output_embeddings().weight, now.get_input_embeddings().weight)
                self.succeeds("export", folder, "-o", out, "--tokenizer", "none")
                save_file({**tensors, "lm_head.weight": table + 1}, file, metadata={"format": "pt"})
                now = AutoModelForCausalLM.from_pretrained(folder)
                untied = now.get_output_embeddings().weight is not now.get_input_embeddings().weight
                self.assertEqual(untied, int(transformers.__version__.split(".")[0]) >= 5)
                self.fails(4, "inspect", folder, says='"tie_word_embeddings": false')
                with open(os.path.join(folder, "config.json"), encoding="utf-8") as config:
                    told = json.load(config)
                with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as config:
                    json.dump({**told, "tie_word_embeddings": False}, config)
                self.succeeds("inspect", folder)

    def text(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "test_train.py"), encoding="utf-8") as file:
            return self.write("text.txt", file.read(12000))

    def ids(self, folder, text):
        """The text's ids; where `transformers` has the tokenizer without more packages, by it as well."""
        told = self.succeeds("tokenize", text, "--tokenizer", folder, "-o", self.path("tokens"), "--json")
        told = told.json["file"]["tokens"]
        with open(self.path("tokens"), "rb") as file:
            ids = list(struct.unpack(f"<{told}H", file.read()[64:64 + 2 * told]))
        its_own = os.path.join(folder, "tokenizer.json")
        if os.path.exists(its_own):
            with open(text, encoding="utf-8") as file:
                tokenizer = PreTrainedTokenizerFast(tokenizer_file=its_own)
                self.assertEqual(tokenizer(file.read())["input_ids"], ids)
        return ids

    def loss_by_transformers(self, folder, ids):
        """Mean over all disjoint windows, as `cohobate eval` takes it; and the loader's complaints."""
        model, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        self.assertFalse(told["missing_keys"] or told["unexpected_keys"] or told["mismatched_keys"], told)
        model.float().eval()
        sums, count = 0.0, (len(ids) - 1) // SEQUENCE
        with torch.no_grad():
            for w in range(count):
                window = torch.tensor(ids[w * SEQUENCE:(w + 1) * SEQUENCE + 1])
                logits = model(window[None, :-1]).logits[0].double()
                sums += torch.nn.functional.cross_entropy(logits, window[1:]).item()
        return sums / count

    def test_a_fine_tune_beyond_the_budget_is_a_folder_with_equal_loss(self):
        for kind, sizes in KINDS.items():
            with self.subTest(kind=kind):
                self.fine_tune(kind, sizes)

    def fine_tune(self, kind, sizes):
        folder, run, out = (self.path(f"{what}-{kind}") for what in ("model", "run", "out"))
        tensors = model_folder.make(folder, kind, "F32", **sizes)
        text = self.text()
        shape = ["--sequence", SEQUENCE, "--batch", 4, "--dtype", "f32"]
        planned = self.succeeds("plan", folder, *shape, "--disk", self.folder, "--json").json
        weights = sum(4 * math.prod(dims) for _, dims, _ in tensors.values())
        budget = weights * 3 // 4  # the weights alone do not fit, less still gradients, moments and activations
        self.assertGreater(planned["in_memory_bytes"], 5 * budget)
        within = ["--device-memory", f"{budget}B", "--disk", self.folder]
        measure = ["--data", text, "--sequence", SEQUENCE, "--dtype", "f32", "--json", *within]
        before = self.succeeds("eval", folder, *measure)
        done = self.succeeds("train", folder, "--data", text, *shape, *within, "--steps", 20, "--lr", "3e-3", "--save",
                             run, "--json").json
        self.assertLessEqual(done["peak_bytes"]["device"], budget)
        self.assertGreater(done["link_bytes"]["read"], weights)
        self.succeeds("export", run, "-o", out, "--shard-size", "500kB")
        after = self.succeeds("eval", out, *measure)
        self.assertLess(after.json["loss"], before.json["loss"] - 0.5)
        ids = self.ids(out, text)
        for where, ours in ((folder, before.json["loss"]), (out, after.json["loss"])):
            theirs = self.loss_by_transformers(where, ids)
            print(f"{kind}: budget {budget} of {weights} bytes of weights; loss {ours:.9f}, by transformers "
                  f"{transformers.__version__} {theirs:.9f}", flush=True)
            self.assertLessEqual(abs(ours - theirs), 1e-5 * theirs)


if __name__ == "__main__":
    unittest.main()
