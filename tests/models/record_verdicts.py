#!/usr/bin/env python3
"""Writes config.json files that must be refused, each with the verdict of `transformers`.

    record_verdicts.py OUT.json

Needs torch and transformers. A case is the text of a file, a word that our message must contain, and `reference`:
"refused" if transformers fails to read the file or to make a model from it, "none" if it does neither in 10 s, "taken"
if it makes one. For accepted files, `why` gives the reason for our refusal: some describe something that we do not
compute, some something that nobody intended."""

import json
import os
import signal
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

GPT2 = {"model_type": "gpt2", "vocab_size": 37, "n_positions": 19, "n_embd": 12, "n_layer": 2, "n_head": 3}
OPT = {"model_type": "opt", "vocab_size": 37, "max_position_embeddings": 19, "hidden_size": 12, "ffn_dim": 20,
       "num_hidden_layers": 2, "num_attention_heads": 3}
LLAMA = {"model_type": "llama", "vocab_size": 37, "max_position_embeddings": 19, "hidden_size": 24,
         "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4}
MISTRAL = dict(LLAMA, model_type="mistral", num_key_value_heads=2, sliding_window=None)
QWEN2 = dict(LLAMA, model_type="qwen2", num_key_value_heads=2)
GEMMA2 = dict(LLAMA, model_type="gemma2", num_key_value_heads=2, head_dim=10, sliding_window=3)
GEMMA3 = dict(GEMMA2, model_type="gemma3_text")
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8}
QWEN3 = dict(LLAMA, model_type="qwen3", num_key_value_heads=2, head_dim=10)
PHI3 = dict(LLAMA, model_type="phi3", pad_token_id=None)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
LIMIT = "beyond what our kinds compute (kinds.h)"
OTHER = "computes what our graphs do not"
NONSENSE = "no model that anybody could want"
STRICT = "the format leaves it open: we do not guess"


def text(base, **changes):
    return json.dumps(dict(base, **changes))


def rope(**changes):
    return text(LLAMA, rope_scaling={k: v for k, v in dict(LLAMA3, **changes).items() if v is not None})


def yarn(**changes):
    return text(LLAMA, rope_scaling={k: v for k, v in dict(YARN, **changes).items() if v is not None})


# (name, text, a word of our message, why we refuse what the reference accepts)
CASES = [
    ("empty", "", "config.json", ""),
    ("not JSON", "n_layer: 2", "config.json", ""),
    ("cut off", text(GPT2)[:-20], "config.json", ""),
    ("more behind it", text(GPT2) + "}", "config.json", ""),
    ("a list", "[" + text(GPT2) + "]", "object", ""),
    ("nested too deep", "[" * 100000, "config.json", ""),
    ("not UTF-8", text(GPT2, name="@").replace("@", "\udcff"), "config.json", ""),
    ("a member twice", text(GPT2)[:-1] + ', "n_layer": 3}', "n_layer", STRICT),
    ("no model_type", json.dumps({k: v for k, v in GPT2.items() if k != "model_type"}), "model_type", ""),
    ("model_type of nobody", text(GPT2, model_type="gpt5"), "gpt5", ""),
    ("model_type a number", text(GPT2, model_type=2), "model_type", ""),
    ("model_type of another architecture", text(GPT2, model_type="bert"), "bert", OTHER),
    ("architecture of another head", text(GPT2, architectures=["GPT2ForSequenceClassification"]), "architectures", OTHER),
    ("layers in words", text(GPT2, n_layer="2"), "n_layer", ""),
    ("half a layer", text(GPT2, n_layer=2.5), "n_layer", ""),
    ("no layers", text(GPT2, n_layer=0), "n_layer", NONSENSE),
    ("fewer layers than none", text(GPT2, n_layer=-1), "n_layer", NONSENSE),
    ("layers true", text(GPT2, n_layer=True), "n_layer", STRICT),
    ("layers beyond 64 bits", text(GPT2).replace('"n_layer": 2', '"n_layer": 1' + 30 * "0"), "config.json", ""),
    ("too many layers", text(OPT, num_hidden_layers=2000000), "num_hidden_layers", ""),
    ("vocabulary null", text(GPT2, vocab_size=None), "vocab_size", ""),
    ("vocabulary of 2^31", text(GPT2, vocab_size=1 << 31), "vocab_size", OTHER),
    ("heads do not divide", text(GPT2, n_head=5), "n_head", ""),
    ("two names of one field disagree", text(GPT2, hidden_size=24), "hidden_size", STRICT),
    ("inner of 0", text(GPT2, n_inner=0), "n_inner", NONSENSE),
    ("epsilon in words", text(GPT2, layer_norm_epsilon="1e-5"), "layer_norm_epsilon", ""),
    ("epsilon 0", text(GPT2, layer_norm_epsilon=0.0), "layer_norm_epsilon", NONSENSE),
    ("epsilon 1", text(GPT2, layer_norm_epsilon=1.0), "layer_norm_epsilon", LIMIT),
    ("heads of 514 channels", text(GPT2, n_embd=1542), "n_embd", LIMIT),
    ("opt: heads of 516 channels", text(OPT, hidden_size=1548), "hidden_size", LIMIT),
    ("opt: positions to the end of 32 bits", text(OPT, max_position_embeddings=(1 << 31) - 1), "max_position_embeddings",
     LIMIT),
    ("inner too wide by n_embd", text(GPT2, n_embd=536870912, n_head=1048576), "n_inner", LIMIT),
    ("epsilon NaN", text(GPT2, layer_norm_epsilon=float("nan")), "config.json", NONSENSE),
    ("activation of nobody", text(GPT2, activation_function="quux"), "activation_function", ""),
    ("gelu by erf", text(GPT2, activation_function="gelu"), "activation_function", OTHER),
    ("cross attention", text(GPT2, add_cross_attention=True), "add_cross_attention", OTHER),
    ("unscaled attention", text(GPT2, scale_attn_weights=False), "scale_attn_weights", OTHER),
    ("attention scaled by layer", text(GPT2, scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx", OTHER),
    ("tied in words", text(GPT2, tie_word_embeddings="yes"), "tie_word_embeddings", ""),
    ("dropout above 1", text(GPT2, resid_pdrop=1.5), "resid_pdrop", ""),
    ("dropout in words", text(GPT2, embd_pdrop="0.1"), "embd_pdrop", ""),
    ("dtype of 8 bits", text(GPT2, torch_dtype="float8_e4m3fn"), "torch_dtype", OTHER),
    ("quantised", text(LLAMA, quantization_config={"quant_method": "gptq", "bits": 4}), "quantization_config", OTHER),
    ("opt: norm before as a number", text(OPT, do_layer_norm_before=1), "do_layer_norm_before", ""),
    ("opt: norms without weights", text(OPT, layer_norm_elementwise_affine=False), "layer_norm_elementwise_affine", OTHER),
    ("opt: gelu", text(OPT, activation_function="gelu"), "activation_function", OTHER),
    ("opt: projection of 0", text(OPT, word_embed_proj_dim=0), "word_embed_proj_dim", NONSENSE),
    ("opt: heads do not divide", text(OPT, num_attention_heads=5), "num_attention_heads", ""),
    ("opt: padding outside the vocabulary", text(OPT, pad_token_id=37), "pad_token_id", ""),
    ("llama: padding too far from the end", text(LLAMA, pad_token_id=-38), "pad_token_id", ""),
    ("llama: gelu", text(LLAMA, hidden_act="gelu"), "hidden_act", OTHER),
    ("llama: heads of keys do not divide", text(LLAMA, num_key_value_heads=3), "num_key_value_heads", OTHER),
    ("llama: no heads of keys", text(LLAMA, num_key_value_heads=0), "num_key_value_heads", ""),
    ("llama: odd heads", text(LLAMA, head_dim=7), "head_dim", ""),
    ("llama: heads do not divide", text(LLAMA, num_attention_heads=5), "num_attention_heads", ""),
    ("llama: bias in words", text(LLAMA, mlp_bias="true"), "mlp_bias", ""),
    ("llama: theta 0", text(LLAMA, rope_theta=0.0), "rope_theta", NONSENSE),
    ("llama: theta below 1", text(LLAMA, rope_theta=0.5), "rope_theta", LIMIT),
    ("llama: theta above 2^100", text(LLAMA, rope_theta=2.0 ** 101), "rope_theta", LIMIT),
    ("llama: heads of 514 channels", text(LLAMA, head_dim=514), "head_dim", LIMIT),
    ("llama: heads of 514 channels by division", text(LLAMA, hidden_size=2056), "head_dim", LIMIT),
    ("llama: epsilon 1", text(LLAMA, rms_norm_eps=1.0), "rms_norm_eps", LIMIT),
    ("llama: linear by too little", text(LLAMA, rope_scaling={"rope_type": "linear", "factor": 1e-10}), "factor", LIMIT),
    ("llama: theta in words", text(LLAMA, rope_theta="1e4"), "rope_theta", ""),
    ("llama: scaling in words", text(LLAMA, rope_scaling="linear"), "rope_scaling", ""),
    ("llama: scaling of nobody", rope(rope_type="quux"), "quux", ""),
    ("llama: yarn without a factor", yarn(factor=None), "factor", ""),
    ("llama: yarn by null", text(LLAMA, rope_scaling=dict(YARN, factor=None)), "factor", STRICT),
    ("llama: yarn without truncation", yarn(truncate=False), "truncate", OTHER),
    ("llama: yarn attends by 0", yarn(attention_factor=0.0), "attention_factor", NONSENSE),
    ("llama: yarn attends in words", yarn(attention_factor="1"), "attention_factor", ""),
    ("llama: yarn betas the wrong way", yarn(beta_fast=1.0, beta_slow=32.0), "beta_fast", NONSENSE),
    ("llama: yarn betas below 0", yarn(beta_slow=-1.0), "beta_slow", ""),
    ("llama: yarn of theta 1", text(LLAMA, rope_theta=1.0, rope_scaling=YARN), "rope_theta", ""),
    ("llama: longrope", text(LLAMA, rope_scaling={"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0, 1.0, 1.0],
                                                   "long_factor": [2.0, 2.0, 2.0]}), "longrope", OTHER),
    ("llama: dynamic", text(LLAMA, rope_scaling={"type": "dynamic", "factor": 2.0}), "dynamic", OTHER),
    ("llama: part of each head", text(LLAMA, partial_rotary_factor=0.5), "partial_rotary_factor", STRICT),
    ("llama: linear without a factor", text(LLAMA, rope_scaling={"rope_type": "linear"}), "factor", ""),
    ("llama: linear by 0", text(LLAMA, rope_scaling={"rope_type": "linear", "factor": 0.0}), "factor", NONSENSE),
    ("llama: llama3 without a factor", rope(factor=None), "factor", ""),
    ("llama: llama3 without low_freq_factor", rope(low_freq_factor=None), "low_freq_factor", ""),
    ("llama: llama3 factors the wrong way", rope(low_freq_factor=4.0, high_freq_factor=1.0), "high_freq_factor", NONSENSE),
    ("llama: llama3 factors equal", rope(low_freq_factor=4.0), "high_freq_factor", NONSENSE),
    ("llama: llama3 in words", rope(factor="8"), "factor", ""),
    ("llama: thetas disagree", text(LLAMA, rope_theta=1e4, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
     "rope_theta", STRICT),
    ("qwen2: layers of a sort", text(QWEN2, layer_types=["full_attention", "linear_attention"]), "layer_types", ""),
    ("qwen2: too few sorts", text(QWEN2, layer_types=["full_attention"]), "layer_types", ""),
    ("qwen3: head_dim null", text(QWEN3, head_dim=None), "head_dim", ""),
    ("qwen3: bias in words", text(QWEN3, attention_bias="true"), "attention_bias", ""),
    ("qwen3: layers of a sort", text(QWEN3, layer_types=["full_attention", "linear_attention"]), "layer_types", ""),
    ("phi3: longrope", text(PHI3, rope_scaling={"type": "longrope", "short_factor": [1.0, 1.0, 1.0],
                                                 "long_factor": [2.0, 2.0, 2.0]}), "longrope", OTHER),
    ("phi3: su", text(PHI3, rope_scaling={"type": "su", "short_factor": [1.0, 1.0, 1.0], "long_factor": [2.0, 2.0, 2.0]}),
     "su", OTHER),
    ("phi3: yarn", text(PHI3, rope_scaling=YARN), "yarn", ""),
    ("phi3: linear", text(PHI3, rope_scaling={"type": "linear", "factor": 2.0}), "linear", ""),
    ("phi3: part of each head", text(PHI3, partial_rotary_factor=0.5), "partial_rotary_factor", OTHER),
    ("phi3: padding by default outside the vocabulary", text({k: v for k, v in PHI3.items() if k != "pad_token_id"}),
     "padding", ""),
    ("mistral: window of 0", text(MISTRAL, sliding_window=0), "sliding_window", NONSENSE),
    ("gemma3 with its vision tower", json.dumps({"model_type": "gemma3", "text_config": GEMMA3}), "vision tower", OTHER),
    ("gemma2: a cap below 0", text(GEMMA2, final_logit_softcapping=-1.0), "final_logit_softcapping", NONSENSE),
    ("gemma2: half a scalar", text(GEMMA2, query_pre_attn_scalar=0.5), "query_pre_attn_scalar", ""),
    ("gemma2: scaled rope", text(GEMMA2, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
     "rope_type", OTHER),
    ("gemma2: heads that do not divide", text(GEMMA2, hidden_size=26), "hidden_size", ""),
    ("gemma2: biases", text(GEMMA2, attention_bias=True), "attention_bias", OTHER),
    ("gemma3: capped scores", text(GEMMA3, attn_logit_softcapping=5.0), "attn_logit_softcapping", STRICT),
    ("gemma3: yarn in local layers", text(GEMMA3, rope_parameters={"sliding_attention": dict(YARN, rope_theta=1e4)}),
     "rope_type", OTHER),
    ("gemma3: one rope for all layers", text(GEMMA3, rope_parameters={"rope_type": "linear", "factor": 2.0}),
     "rope_parameters", STRICT),
    ("gemma3: yarn without a factor", text(GEMMA3, layer_types=2 * ["full_attention"], rope_scaling={"rope_type": "yarn"}),
     "factor", ""),
    ("gemma3: local theta 0", text(GEMMA3, rope_local_base_freq=0.0), "rope_local_base_freq", NONSENSE),
    ("gemma3: local theta above 2^100", text(GEMMA3, rope_local_base_freq=2.0 ** 101), "rope_local_base_freq", LIMIT),
    ("gemma3: odd heads", text(GEMMA3, head_dim=7), "head_dim", ""),
    ("gemma3: heads of keys do not divide", text(GEMMA3, num_key_value_heads=3), "num_key_value_heads", OTHER),
    ("gemma3: layers in no pattern", text(GEMMA3, num_hidden_layers=4, layer_types=[
        "full_attention", "sliding_attention", "full_attention", "sliding_attention"]), "layer_types", OTHER),
    ("gemma3: a window that is null", text(GEMMA3, sliding_window=None), "sliding_window", ""),
    ("gemma3: other attention", text(GEMMA3, use_bidirectional_attention=True), "use_bidirectional_attention", OTHER),
    ("gemma3: another activation", text(GEMMA3, hidden_activation="silu"), "hidden_activation", OTHER),
]


def too_late(*_):
    raise TimeoutError


def verdict(content):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(content)
        signal.alarm(10)
        try:
            config = AutoConfig.from_pretrained(folder)
            with torch.device("meta" if config.vocab_size > 1 << 20 else "cpu"):
                model = AutoModelForCausalLM.from_config(config)
                model(torch.zeros(1, 3, dtype=torch.long))
        except (Exception, RecursionError) as error:  # noqa: BLE001 - whatever it raises is its verdict
            if isinstance(error, TimeoutError):
                return "none", ""
            return "refused", type(error).__name__ + ": " + str(error).strip().split("\n")[0][:100]
        finally:
            signal.alarm(0)
    return "taken", ""


def main():
    signal.signal(signal.SIGALRM, too_late)
    cases = []
    for name, content, word, why in CASES:
        found, says = verdict(content)
        print(f"{name}: {found} {says}", file=sys.stderr)
        case = {"case": name, "word": word, "reference": found}
        if found == "taken":
            case["why"] = why or "?"
        if len(content) > 10000:
            case["repeat"], content = len(content), content[0]
        cases.append(dict(case, text=content.encode("utf-8", "surrogateescape").decode("latin-1")))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write('{"transformers": "%s",\n"cases": [\n' % transformers.__version__)
        file.write(",\n".join(json.dumps(case) for case in cases) + "\n]}\n")


main()
