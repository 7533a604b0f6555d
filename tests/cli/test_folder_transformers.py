"""A model larger than the device's memory is fine-tuned from folder to folder, and `transformers` computes the same
loss with the result; a folder that `transformers` wrote gives the same logits if nothing was trained.

Needs torch and transformers; exits 77 without them."""

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
from transformers import (AutoModelForCausalLM, Gemma2Config, Gemma3TextConfig, GPT2Config, LlamaConfig,  # noqa: E402
                          MistralConfig, OPTConfig, Phi3Config, PreTrainedTokenizerFast, Qwen2Config, Qwen3Config)

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
    "qwen3": dict(C=192, L=6, P=128, inner=512, D=64),
    "phi3": dict(C=192, L=6, P=128, inner=512),
    "gemma3_text": dict(C=192, L=6, P=128, inner=512, D=64),
}


LLAMA = dict(vocab_size=99, max_position_embeddings=40, hidden_size=48, intermediate_size=60, num_hidden_layers=2,
             num_attention_heads=4)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=40, attention_factor=0.75)
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
    "qwen3": Qwen3Config(**LLAMA, num_key_value_heads=2, head_dim=20, rope_scaling=YARN),
    "phi3": Phi3Config(**LLAMA, num_key_value_heads=2, pad_token_id=None, bos_token_id=0, eos_token_id=0),
    "gemma2": Gemma2Config(**LLAMA, num_key_value_heads=2, head_dim=20, sliding_window=9, pad_token_id=None),
    "gemma3": Gemma3TextConfig(**LLAMA, num_key_value_heads=2, head_dim=20, sliding_window=9, pad_token_id=None,
                               layer_types=["sliding_attention", "full_attention"], rope_scaling=YARN),
}


class Folders(ProgramTest):
    def ids(self, folder, text):
        """The text's ids; also by `transformers`, if it has the tokenizer without more packages."""
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


class Transformers(Folders):
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
                    now = now.to(dtype).eval()  # like `was`, whose tables of rotation were rounded by it
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

    def loss_by_transformers(self, folder, ids):
        """Mean over all targets of disjoint windows, the last of which is shorter, as in `cohobate eval`."""
        model, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        self.assertFalse(told["missing_keys"] or told["unexpected_keys"] or told["mismatched_keys"], told)
        model.float().eval()
        sums = 0.0
        with torch.no_grad():
            for begin in range(0, len(ids) - 1, SEQUENCE):
                window = torch.tensor(ids[begin:begin + SEQUENCE + 1])
                logits = model(window[None, :-1]).logits[0].double()
                sums += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
        return sums / (len(ids) - 1)

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
        budget = weights * 3 // 4  # not even the weights alone fit
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


class Perplexity(Folders):
    """Of a small GPT-2 trained here, over 100 kB of text: the loop of Hugging Face's guide to the perplexity of
    fixed-length models, in float64."""

    POSITIONS = 128
    TEXT_BYTES = 100000

    def corpus_of_code(self):
        folder = os.path.dirname(os.path.abspath(__file__))
        parts = []
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    parts.append(file.read())
        text = "".join(parts).encode("ascii", "replace")
        self.assertGreaterEqual(len(text), self.TEXT_BYTES)
        return self.write("code.txt", text[:self.TEXT_BYTES])

    def guide(self, model, ids, stride):
        """The guide's windows of max_length ids: each scores its last ids, except the very first of the text."""
        sums, count, previous_end = 0.0, 0, 0
        for begin in range(0, len(ids), stride):
            end = min(begin + self.POSITIONS, len(ids))
            target_count = end - previous_end
            logits = model(ids[None, begin:end]).logits[0, :-1]
            targets = ids[begin + 1:end][-target_count:]
            sums += torch.nn.functional.cross_entropy(logits[-len(targets):], targets, reduction="sum").item()
            count += len(targets)
            previous_end = end
            if end == len(ids):
                break
        return math.exp(sums / count), count

    def disjoint(self, model, ids):
        """Adjacent windows, each of all positions, and every id after the first scored once."""
        sums = 0.0
        for begin in range(0, len(ids) - 1, self.POSITIONS):
            targets = ids[begin + 1:begin + 1 + self.POSITIONS]
            logits = model(ids[None, begin:begin + len(targets)]).logits[0]
            sums += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
        return math.exp(sums / (len(ids) - 1)), len(ids) - 1

    def test_the_perplexity_of_a_text_is_that_of_transformers_with_the_same_stride(self):
        folder, run, out, text = self.path("model"), self.path("run"), self.path("out"), self.corpus_of_code()
        model_folder.make(folder, "gpt2", "F32", C=64, P=self.POSITIONS, inner=256)
        self.succeeds("train", folder, "--data", text, "--sequence", 64, "--batch", 8, "--dtype", "f32", "--steps", 60,
                      "--lr", "3e-3", "--save", run)
        self.succeeds("export", run, "-o", out)
        model = AutoModelForCausalLM.from_pretrained(out).double().eval()
        ids = torch.tensor(self.ids(out, text))
        with torch.no_grad():
            cases = {"stride 64": (["--sequence", self.POSITIONS - 1, "--stride", 64], *self.guide(model, ids, 64)),
                     "its own context": ([], *self.disjoint(model, ids))}
        for name, (flags, theirs, count) in cases.items():
            ours = self.succeeds("eval", out, "--data", text, "--dtype", "f32", "--json", *flags).json
            difference = abs(ours["perplexity"] - theirs) / theirs
            print(f"perplexity, {name}: {ours['perplexity']:.9f}, transformers {transformers.__version__}: {theirs:.9f},"
                  f" relative difference {difference:.1e}", flush=True)
            self.assertEqual(ours["tokens"], count)
            self.assertLess(theirs, 200)  # of 420 ids: it was trained
            self.assertLessEqual(difference, 1e-6)


if __name__ == "__main__":
    unittest.main()
