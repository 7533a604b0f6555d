#!/usr/bin/env python3
"""Small models of every family and variant compared with `transformers`, same weights and batches.

Logits of a decoder are within 1e-4 in f32 and 2e-2 in bf16 of a float64 run. Drawn weights are half as large for bf16;
at full size our error is at most twice that of `transformers` in bf16. With g a gradient of ours, g32 and g64 those of
`transformers` in float and double, for every parameter (2-norms of tensors)

    |g - g64| <= 1e-5 |g64| + 1e-7 |all g64|     and     |g - g64| <= max(4 |g32 - g64|, 1e-7 |all g64|)

After 100 steps of AdamW the loss differs from that of a float64 run by at most 1e-3. (A float32 run of `transformers`
itself differs by up to 1.2e-3, where ReLU's kinks meet Adam's division.) Weights are drawn as in parity.py, so that
each term of each formula matters. Run as test_transformers.py PATH-OF-DUMP [unittest arguments]; exits 77 if
`transformers` is not installed (scripts/reference-python)."""

import os
import sys
import tempfile
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reference"))
import reference_python  # noqa: E402
reference_python.need("numpy", "torch", "transformers")

import parity  # noqa: E402
from parity import SETTINGS, main, norm_of, remember  # noqa: E402

import gpt2_torch  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import (Gemma2Config, Gemma3TextConfig, GPT2Config, LlamaConfig, MistralConfig, OPTConfig,  # noqa: E402
                          Phi3Config, Qwen2Config, Qwen3Config)

# Widths are divisible by a vector's width only where they must be; targets of -1; two micro-batches.
RUN = {"vocabulary": 311, "positions": 40, "sequences": 3, "tokens": 33, "microbatches": 2, "ignored": 0.06,
       "drawn": True}
# More tokens than a block of attention has queries or keys (128), more rows than one of the table (1024).
LONG = {"vocabulary": 1111, "positions": 300, "sequences": 2, "tokens": 273, "microbatches": 1, "ignored": 0.0,
        "drawn": True}

GPT2 = dict(vocab_size=311, n_positions=40, n_embd=45, n_layer=3, n_head=3)
OPT = dict(vocab_size=311, max_position_embeddings=40, hidden_size=45, word_embed_proj_dim=45, ffn_dim=77,
           num_hidden_layers=3, num_attention_heads=3)
LLAMA = dict(vocab_size=311, max_position_embeddings=40, hidden_size=60, intermediate_size=77, num_hidden_layers=3,
             num_attention_heads=6)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
# Caps that matter; windows below the tokens; heads of another width than the scale of the scores says.
GEMMA2 = dict(LLAMA, num_key_value_heads=2, head_dim=14, query_pre_attn_scalar=10, sliding_window=9,
              attn_logit_softcapping=3.0, final_logit_softcapping=2.0, pad_token_id=2)
GEMMA3 = dict(LLAMA, num_key_value_heads=2, head_dim=14, query_pre_attn_scalar=40, sliding_window=9, pad_token_id=None,
              layer_types=["sliding_attention", "full_attention", "sliding_attention"],
              rope_parameters={"full_attention": dict(rope_type="linear", factor=2.5, rope_theta=1e6),
                               "sliding_attention": dict(rope_type="default", rope_theta=1e4)})
# Of the pairs of a head some are kept, some interpolated, some scaled.
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=40, beta_fast=2.0, beta_slow=0.125)
PHI3 = dict(LLAMA, pad_token_id=None, bos_token_id=0, eos_token_id=0)
WIDE = dict(vocab_size=1111, max_position_embeddings=300, num_hidden_layers=2)

CASES = {
    "gpt2": (RUN, GPT2Config, GPT2),
    "gpt2 untied": (RUN, GPT2Config, dict(GPT2, tie_word_embeddings=False)),
    "gpt2 n_inner": (RUN, GPT2Config, dict(GPT2, n_inner=101, layer_norm_epsilon=1e-3)),
    "opt": (RUN, OPTConfig, OPT),
    "opt post-norm, projected (350M)": (RUN, OPTConfig, dict(OPT, do_layer_norm_before=False, word_embed_proj_dim=29)),
    "opt post-norm": (RUN, OPTConfig, dict(OPT, do_layer_norm_before=False)),
    "opt projected": (RUN, OPTConfig, dict(OPT, word_embed_proj_dim=29)),
    "opt without biases": (RUN, OPTConfig, dict(OPT, enable_bias=False)),
    "opt without last norm": (RUN, OPTConfig, dict(OPT, _remove_final_layer_norm=True)),
    "opt untied": (RUN, OPTConfig, dict(OPT, tie_word_embeddings=False, pad_token_id=None)),
    "llama": (RUN, LlamaConfig, LLAMA),
    "llama tied, grouped (SmolLM)": (RUN, LlamaConfig, dict(LLAMA, num_key_value_heads=2, tie_word_embeddings=True,
                                                            rope_theta=100000.0, rms_norm_eps=1e-5, pad_token_id=2)),
    "llama one head of keys, biases": (RUN, LlamaConfig, dict(LLAMA, num_key_value_heads=1, attention_bias=True,
                                                              mlp_bias=True)),
    "llama attention_bias": (RUN, LlamaConfig, dict(LLAMA, attention_bias=True)),
    "llama mlp_bias": (RUN, LlamaConfig, dict(LLAMA, mlp_bias=True)),
    "llama head_dim": (RUN, LlamaConfig, dict(LLAMA, num_key_value_heads=3, head_dim=14)),
    "llama linear": (RUN, LlamaConfig, dict(LLAMA, rope_scaling=dict(rope_type="linear", factor=2.5))),
    "llama llama3": (RUN, LlamaConfig, dict(LLAMA, num_key_value_heads=2, rope_theta=500000.0, rope_scaling=LLAMA3)),
    "mistral": (RUN, MistralConfig, dict(LLAMA, num_key_value_heads=2, sliding_window=33)),
    "mistral head_dim": (RUN, MistralConfig, dict(LLAMA, num_key_value_heads=2, sliding_window=None, head_dim=8)),
    "mistral window": (RUN, MistralConfig, dict(LLAMA, num_key_value_heads=2, sliding_window=9)),
    "gemma2": (RUN, Gemma2Config, GEMMA2),
    "gemma2 untied, no caps": (RUN, Gemma2Config, dict(GEMMA2, tie_word_embeddings=False, attn_logit_softcapping=None,
                                                       final_logit_softcapping=None, num_key_value_heads=3)),
    "gemma3_text": (RUN, Gemma3TextConfig, GEMMA3),
    "gemma3_text capped logits, no local layer": (RUN, Gemma3TextConfig, dict(
        GEMMA3, final_logit_softcapping=2.0, query_pre_attn_scalar=56, layer_types=["full_attention"] * 3)),
    "qwen2": (RUN, Qwen2Config, dict(LLAMA, num_key_value_heads=2)),
    "qwen2 tied": (RUN, Qwen2Config, dict(LLAMA, num_key_value_heads=2, tie_word_embeddings=True, rope_theta=1e6)),
    "llama yarn": (RUN, LlamaConfig, dict(LLAMA, num_key_value_heads=2, rope_scaling=YARN)),
    "qwen2 yarn, attention_factor": (RUN, Qwen2Config, dict(LLAMA, num_key_value_heads=2,
                                                            rope_scaling=dict(YARN, attention_factor=0.75))),
    "qwen3": (RUN, Qwen3Config, dict(LLAMA, num_key_value_heads=2, head_dim=14)),
    "qwen3 tied, biases, yarn": (RUN, Qwen3Config, dict(LLAMA, head_dim=10, num_key_value_heads=6, attention_bias=True,
                                                        tie_word_embeddings=True, rope_scaling=YARN)),
    "phi3": (RUN, Phi3Config, dict(PHI3, num_key_value_heads=2, sliding_window=33)),
    "phi3 tied": (RUN, Phi3Config, dict(PHI3, tie_word_embeddings=True, pad_token_id=2)),
    "gpt2, long": (LONG, GPT2Config, dict(GPT2, vocab_size=1111, n_positions=300, n_layer=2)),
    "opt, long": (LONG, OPTConfig, dict(OPT, **WIDE)),
    "mistral window, long": (LONG, MistralConfig, dict(LLAMA, **WIDE, num_key_value_heads=2, sliding_window=130)),
    "gemma2, long": (LONG, Gemma2Config, dict(GEMMA2, **WIDE, sliding_window=100)),
    "gemma3_text, long": (LONG, Gemma3TextConfig, dict(GEMMA3, **WIDE, sliding_window=150,
                                                       layer_types=["sliding_attention", "full_attention"])),
    "llama, long": (LONG, LlamaConfig, dict(LLAMA, **WIDE, num_key_value_heads=2, rope_scaling=LLAMA3)),
    "qwen3, long": (LONG, Qwen3Config, dict(LLAMA, **WIDE, num_key_value_heads=2, head_dim=20)),
    "phi3, long": (LONG, Phi3Config, dict(PHI3, **WIDE, num_key_value_heads=2)),
}


def exact_norm(self, x):
    """RMSNorm in its input's dtype: the class computes it in float, whatever the model's dtype."""
    is_gemma = type(self).__name__.startswith("Gemma")
    epsilon = self.eps if is_gemma else self.variance_epsilon
    return (self.weight + is_gemma) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon))


def made_model(kind, fields, dtype, weights):
    """A model of `transformers` with `weights`, given by published name."""
    fields = {key: dict(value) if isinstance(value, dict) else value for key, value in fields.items()}
    attention = "eager" if kind is Gemma2Config else "sdpa"  # sdpa has no soft cap
    model = transformers.AutoModelForCausalLM.from_config(kind(**fields), attn_implementation=attention).to(dtype).eval()
    parameters = dict(model.named_parameters())  # a tied head is there once
    assert sorted(parameters) == sorted(weights), sorted(set(parameters) ^ set(weights))
    with torch.no_grad():
        for name, parameter in parameters.items():
            assert parameter.shape == weights[name].shape, name
            parameter.copy_(torch.from_numpy(weights[name]))
    for module in model.modules():
        if dtype == torch.float64 and type(module).__name__.endswith("RMSNorm"):
            module.forward = types.MethodType(exact_norm, module)
    return model


def loss_of(model, tokens, targets):
    """Mean over all items of one micro-batch; an item whose target is -1 counts as 0."""
    logits = model(tokens, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1,
                                             reduction="sum") / targets.numel()


def gradients_of(model, batch):
    """Adds the gradient of the mean over micro-batches to every parameter's .grad; returns that mean."""
    tokens, targets = (torch.from_numpy(part).long() for part in batch)
    total = 0.0
    for i in range(tokens.shape[0]):
        loss = loss_of(model, tokens[i], targets[i])
        (loss / tokens.shape[0]).backward()
        total += loss.item()
    return total / tokens.shape[0]


def is_zero_in_theory(name, fields):
    """Softmax ignores a constant added to all keys; after a rotation by position, a bias is not constant."""
    return name.endswith("k_proj.bias") and "ffn_dim" in fields


class Side:
    """A case's config.json and weights, and one run of ours. In bf16 the weights are representable in bf16."""

    def __init__(self, test, case, size=1.0, **more):
        self.run_shape, self.kind, self.fields = CASES[case]
        folder = tempfile.mkdtemp(dir=test.folder)
        fields = {key: dict(value) if isinstance(value, dict) else value for key, value in self.fields.items()}
        self.kind(**fields).save_pretrained(folder)
        self.config = os.path.join(folder, "config.json")
        trained = {key: more[key] for key in ("lora", "alpha", "targets") if key in more}
        self.weights = self.draw(parity.Run(test.folder, self.run_shape, 0, model=self.config, **trained).tensors)
        for name, values in self.weights.items() if more.get("bf16") else ():
            middle = numpy.float32(self.is_gain(name, values))
            values = torch.from_numpy(middle + numpy.float32(size) * (values - middle))
            self.weights[name] = values.bfloat16().float().numpy()
        self.run = parity.Run(test.folder, self.run_shape, more.pop("steps"), weights=self.weights,
                              model=self.config, **more)
        with open(self.run.path("published"), encoding="utf-8") as file:
            rows = [line.split() for line in file]
        self.published = {name: (published, transposed == "1") for name, published, transposed in rows}

    def is_gain(self, name, values):
        """A norm's weight around one. Gemma's are around zero: it adds the one."""
        return values.ndim == 1 and name.endswith("weight") and not self.kind.__name__.startswith("Gemma")

    def draw(self, tensors):
        weights = parity.drawn_weights(tensors)
        return {name: values - numpy.float32(values.ndim == 1 and name.endswith("weight") and not self.is_gain(name, values))
                for name, values in weights.items()}

    def publish(self, ours):
        """Under published names and in published layout."""
        return {published: numpy.ascontiguousarray(ours[name].T if transposed else ours[name])
                for name, (published, transposed) in self.published.items()}

    def model(self, dtype):
        return made_model(self.kind, self.fields, dtype, self.publish(self.weights))

    def logits(self):
        shape = (self.run_shape["sequences"], self.run_shape["tokens"], self.run_shape["vocabulary"])
        return numpy.fromfile(self.run.path("logits"), dtype=numpy.float32).reshape(shape)

    def logits_of(self, dtype):
        with torch.no_grad():
            return self.model(dtype)(torch.from_numpy(self.run.batches[0][0][0]).long()).logits.double().numpy()

    def gradients(self, dtype):
        model = self.model(dtype)
        loss = gradients_of(model, self.run.batches[0])
        return loss, {name: p.grad.double().numpy() for name, p in model.named_parameters()}


class Transformers(parity.ParityTest):
    def each(self, check):
        for case in CASES:
            with self.subTest(case):
                check(case)

    def gradients_agree(self, case):
        side = Side(self, case, steps=1, gradients=1)
        found = side.publish(side.run.stream("gradient", 0))
        loss64, exact = side.gradients(torch.float64)
        loss32, single = side.gradients(torch.float32)
        floor = 1e-7 * norm_of(exact)
        for name, g64 in exact.items():
            error, own = numpy.linalg.norm(found[name] - g64), numpy.linalg.norm(single[name] - g64)
            what = f"{case}: gradient of {name}"
            self.holds("gradient", error, 1e-5 * numpy.linalg.norm(g64) + floor, what)
            self.holds("gradient against 4x float's", error, max(4 * own, floor), what)
            if is_zero_in_theory(name, side.fields):
                self.assertLessEqual(numpy.linalg.norm(g64), 1e-9 * norm_of(exact), what)
        self.holds("norm", abs(side.run.norms[0] - norm_of(exact)), 1e-5 * norm_of(exact), case)
        self.holds("loss", abs(side.run.losses[0] - loss64), max(4 * abs(loss32 - loss64), 4 * parity.UNIT * loss64),
                   f"{case}: loss")

    def test_gradients_are_those_of_transformers(self):
        self.each(self.gradients_agree)

    def logits_agree(self, case):
        side = Side(self, case, steps=1, logits=1)
        error = abs(side.logits() - side.logits_of(torch.float64)).max()
        self.holds("logits", error, 1e-4, f"{case}: logits")

    def test_logits_are_those_of_transformers(self):
        self.each(self.logits_agree)

    def bf16_logits_agree(self, case):
        for size in (0.5, 1.0):
            side = Side(self, case, size=size, steps=1, logits=1, bf16=1)
            exact = side.logits_of(torch.float64)
            error, own = abs(side.logits() - exact).max(), abs(side.logits_of(torch.bfloat16) - exact).max()
            if size == 0.5:
                self.holds("bf16 logits", error, 2e-2, f"{case}: logits in bf16 (transformers' own: {own:g})")
            else:
                self.holds("bf16 logits against 2x transformers'", error, 2 * own, f"{case}: logits in bf16")

    def test_logits_in_bf16_are_near_those_of_transformers(self):
        self.each(self.bf16_logits_agree)

    def training_agrees(self, case, **more):
        side = Side(self, case, steps=100, lr=3e-3, min_lr=3e-4, warmup=10, **more)
        ours = side.run.losses
        self.assertLess(ours[-5:].mean(), 0.95 * ours[:5].mean(), f"{case}: nothing was learned")
        model = side.model(torch.float64)
        decays = {published: side.run.decays[name] for name, (published, _) in side.published.items()}
        weights = dict(model.named_parameters())
        optimizer = gpt2_torch.optimizer_of(weights, decays, SETTINGS)
        theirs = []
        for batch, rate in zip(side.run.batches, side.run.rates):
            theirs.append(gradients_of(model, batch))
            gpt2_torch.update(optimizer, weights, rate, 1.0)
        self.holds("loss after 100 steps", abs(ours[-1] - theirs[-1]), 1e-3, f"{case}: loss after 100 steps")
        remember("largest difference of 100 losses", abs(ours - numpy.array(theirs)).max() / 1e-3)

    def test_a_hundred_steps_follow_transformers(self):
        self.each(lambda case: None if case.endswith("long") else self.training_agrees(case))

    def test_a_quarter_of_the_memory_gives_the_same_losses_and_hash(self):
        for case in ("opt post-norm, projected (350M)", "llama one head of keys, biases", "qwen2 tied", "qwen3", "phi3"):
            memory, streamed = (Side(self, case, steps=4, percent=percent).run for percent in (0, 25))
            self.assertGreater(int(streamed.plan["link_bytes"]), 0)
            for name in ("steps", "hash"):
                with open(memory.path(name), "rb") as one, open(streamed.path(name), "rb") as other:
                    self.assertEqual(one.read(), other.read(), f"{case}: {name} differs")


if __name__ == "__main__":
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    main()
