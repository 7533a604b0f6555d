#!/usr/bin/env python3
"""Records what `transformers` writes for tiny models of every family and variant.

    record_families.py OUT.json

Needs torch and transformers. OUT.json has the version that wrote it and per case: the config.json of `save_pretrained`
unchanged, the names and shapes of the tensors in model.safetensors, and the model's parameter count. The recorded files
came from versions 4.46, which has no Qwen3 and no Gemma 3, and 5.23, which name the fields of dtype and rotary embedding
differently."""

import json
import os
import struct
import sys
import tempfile

import torch
import transformers
from transformers import (AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig, MistralConfig, OPTConfig, Phi3Config,
                          Qwen2Config)

Qwen3Config = getattr(transformers, "Qwen3Config", None)

GPT2 = dict(vocab_size=37, n_positions=19, n_embd=12, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=0)
OPT = dict(vocab_size=37, max_position_embeddings=19, hidden_size=12, word_embed_proj_dim=12, ffn_dim=20,
           num_hidden_layers=2, num_attention_heads=3)
LLAMA = dict(vocab_size=37, max_position_embeddings=19, hidden_size=24, intermediate_size=20, num_hidden_layers=2,
             num_attention_heads=4)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8)
# The ramp covers a part of 12 channels; a low limit of positions per turn, so that few tokens suffice to see each part.
YARN = dict(rope_type="yarn", factor=2.0, original_max_position_embeddings=19)
YARN_SET = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=19, attention_factor=1.75, beta_fast=4.0,
                beta_slow=0.125)
PHI3 = dict(LLAMA, pad_token_id=None, bos_token_id=0, eos_token_id=0)

GEMMA2 = dict(LLAMA, num_key_value_heads=2, head_dim=10, query_pre_attn_scalar=7, sliding_window=3,
              attn_logit_softcapping=3.0, final_logit_softcapping=2.0)
GEMMA3 = dict(LLAMA, num_key_value_heads=2, head_dim=12, query_pre_attn_scalar=12, sliding_window=3)

CASES = {
    "gpt2": (GPT2Config, GPT2),
    "gpt2 n_inner": (GPT2Config, dict(GPT2, n_inner=20)),
    "gpt2 untied": (GPT2Config, dict(GPT2, tie_word_embeddings=False)),
    "opt": (OPTConfig, OPT),
    "opt post-norm, projected": (OPTConfig, dict(OPT, do_layer_norm_before=False, word_embed_proj_dim=8)),
    "opt projected": (OPTConfig, dict(OPT, word_embed_proj_dim=8)),
    "opt without biases": (OPTConfig, dict(OPT, enable_bias=False)),
    "opt without last norm": (OPTConfig, dict(OPT, _remove_final_layer_norm=True)),
    "opt untied": (OPTConfig, dict(OPT, tie_word_embeddings=False)),
    "llama": (LlamaConfig, LLAMA),
    "llama grouped, tied": (LlamaConfig, dict(LLAMA, num_key_value_heads=2, tie_word_embeddings=True)),
    "llama biases": (LlamaConfig, dict(LLAMA, num_key_value_heads=1, attention_bias=True, mlp_bias=True)),
    "llama head_dim": (LlamaConfig, dict(LLAMA, num_key_value_heads=2, head_dim=10)),
    "llama llama3": (LlamaConfig, dict(LLAMA, rope_theta=500000.0, rope_scaling=LLAMA3)),
    "llama linear": (LlamaConfig, dict(LLAMA, rope_scaling=dict(rope_type="linear", factor=2.0))),
    "llama yarn": (LlamaConfig, dict(LLAMA, rope_scaling=YARN)),
    "mistral": (MistralConfig, dict(LLAMA, num_key_value_heads=2, sliding_window=None)),
    "mistral head_dim": (MistralConfig, dict(LLAMA, num_key_value_heads=2, sliding_window=None, head_dim=8)),
    "qwen2": (Qwen2Config, dict(LLAMA, num_key_value_heads=2)),
    "qwen2 tied": (Qwen2Config, dict(LLAMA, num_key_value_heads=2, tie_word_embeddings=True, rope_theta=1e6)),
    "mistral window": (MistralConfig, dict(LLAMA, num_key_value_heads=2, sliding_window=3)),
    "gemma2": (Gemma2Config, GEMMA2),
    "gemma2 untied, no caps": (Gemma2Config, dict(GEMMA2, tie_word_embeddings=False, attn_logit_softcapping=None,
                                                  final_logit_softcapping=None)),
    "qwen2 yarn": (Qwen2Config, dict(LLAMA, num_key_value_heads=2, rope_scaling=YARN_SET)),
    "qwen3": (Qwen3Config, dict(LLAMA, num_key_value_heads=2, head_dim=10)),
    "qwen3 biases, tied, yarn": (Qwen3Config, dict(LLAMA, head_dim=6, attention_bias=True, tie_word_embeddings=True,
                                                   num_key_value_heads=4, rope_scaling=YARN_SET)),
    "phi3": (Phi3Config, dict(PHI3, num_key_value_heads=2)),
    "phi3 tied, window": (Phi3Config, dict(PHI3, tie_word_embeddings=True, sliding_window=19, pad_token_id=3)),
}
CASES = {name: case for name, case in CASES.items() if case[0]}
if hasattr(transformers, "Gemma3TextConfig"):
    CASES.update({
        "gemma3_text": (transformers.Gemma3TextConfig, GEMMA3),
        "gemma3_text two bases, pattern": (transformers.Gemma3TextConfig, dict(
            GEMMA3, num_hidden_layers=4, sliding_window_pattern=2, query_pre_attn_scalar=5, final_logit_softcapping=2.0,
            rope_theta=500000.0, rope_local_base_freq=20000.0, rope_scaling=dict(rope_type="linear", factor=2.0))),
        "gemma3_text yarn": (transformers.Gemma3TextConfig, dict(
            GEMMA3, layer_types=["sliding_attention", "full_attention"],
            rope_scaling=dict(YARN_SET, attention_factor=0.75))),
    })


def tensors(path):
    """[name, [dims]] of every tensor in a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return sorted([name, entry["shape"]] for name, entry in header.items() if name != "__metadata__")


def record(kind, fields):
    torch.manual_seed(1)
    rope = fields.get("rope_scaling")
    fields = dict(fields, rope_scaling=dict(rope)) if rope else fields
    model = AutoModelForCausalLM.from_config(kind(**fields))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        return {"config": config, "parameters": sum(p.numel() for p in model.parameters()),
                "tensors": tensors(os.path.join(folder, "model.safetensors"))}


def main():
    cases = [dict(case=name, **record(*case)) for name, case in CASES.items()]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write('{"transformers": "%s",\n"cases": [\n' % transformers.__version__)
        file.write(",\n".join(json.dumps(case) for case in cases) + "\n]}\n")


if __name__ == "__main__":
    main()
