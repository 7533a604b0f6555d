"""Makes small Hugging Face folders by hand, and reads them: independent of the program under test.

Names, shapes and dtypes of tensors are those that `transformers` writes for these configurations."""

import json
import os
import random
import shutil
import struct

TOKENIZERS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "text", "fixtures", "tokenizers")
WIDTH = {"F32": 4, "F16": 2, "BF16": 2}


def narrow(values, dtype):
    """The bytes of floats in one of the three dtypes; to bf16 by nearest, ties to even."""
    if dtype == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *((w + 0x7fff + (w >> 16 & 1)) >> 16 for w in words))


def widen(data, dtype):
    if dtype == "BF16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    count = len(data) // (2 if dtype == "F16" else 4)
    return struct.unpack(f"<{count}{'e' if dtype == 'F16' else 'f'}", data)


def gpt2(C=32, L=2, V=420, P=64, inner=96):
    config = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=C, n_layer=L, n_head=4, n_positions=P,
                  vocab_size=V, n_inner=inner, bos_token_id=0, eos_token_id=0, resid_pdrop=0.1)
    tensors = {"transformer.wte.weight": [V, C], "transformer.wpe.weight": [P, C]}
    for n in range(L):
        layer = f"transformer.h.{n}."
        for name, rows, columns in (("attn.c_attn", C, 3 * C), ("attn.c_proj", C, C), ("mlp.c_fc", C, inner),
                                    ("mlp.c_proj", inner, C)):
            tensors[layer + name + ".weight"] = [rows, columns]
            tensors[layer + name + ".bias"] = [columns]
        for name in ("ln_1", "ln_2"):
            tensors.update({f"{layer}{name}.weight": [C], f"{layer}{name}.bias": [C]})
    return config, {**tensors, "transformer.ln_f.weight": [C], "transformer.ln_f.bias": [C]}


def opt(C=32, L=2, V=512, P=64, inner=80):
    config = dict(model_type="opt", architectures=["OPTForCausalLM"], hidden_size=C, num_hidden_layers=L,
                  num_attention_heads=4, max_position_embeddings=P, vocab_size=V, ffn_dim=inner, word_embed_proj_dim=C,
                  do_layer_norm_before=True, activation_function="relu", pad_token_id=1, dropout=0.1)
    tensors = {"model.decoder.embed_tokens.weight": [V, C], "model.decoder.embed_positions.weight": [P + 2, C]}
    for n in range(L):
        layer = f"model.decoder.layers.{n}."
        for name, rows, columns in [(f"self_attn.{p}_proj", C, C) for p in ("q", "k", "v", "out")] + [
                ("fc1", inner, C), ("fc2", C, inner)]:
            tensors[layer + name + ".weight"] = [rows, columns]
            tensors[layer + name + ".bias"] = [rows]
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            tensors.update({f"{layer}{name}.weight": [C], f"{layer}{name}.bias": [C]})
    last = "model.decoder.final_layer_norm."
    return config, {**tensors, last + "weight": [C], last + "bias": [C]}


def llama(C=32, L=2, V=520, P=64, inner=88):
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=C, num_hidden_layers=L,
                  num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=P, vocab_size=V,
                  intermediate_size=inner, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
    tensors = {"model.embed_tokens.weight": [V, C]}
    for n in range(L):
        layer = f"model.layers.{n}."
        for name, rows, columns in (("self_attn.q_proj", C, C), ("self_attn.k_proj", C // 2, C),
                                    ("self_attn.v_proj", C // 2, C), ("self_attn.o_proj", C, C),
                                    ("mlp.gate_proj", inner, C), ("mlp.up_proj", inner, C), ("mlp.down_proj", C, inner)):
            tensors[layer + name + ".weight"] = [rows, columns]
        tensors.update({layer + "input_layernorm.weight": [C], layer + "post_attention_layernorm.weight": [C]})
    return config, {**tensors, "model.norm.weight": [C], "lm_head.weight": [V, C]}


def qwen3(C=32, L=2, V=424, P=64, inner=88, D=12):
    config, tensors = llama(C, L, V, P, inner)
    config.update(model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=D, tie_word_embeddings=True,
                  rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16))
    for n in range(L):
        part = f"model.layers.{n}.self_attn."
        tensors.update({part + "q_proj.weight": [4 * D, C], part + "k_proj.weight": [2 * D, C],
                        part + "v_proj.weight": [2 * D, C], part + "o_proj.weight": [C, 4 * D],
                        part + "q_norm.weight": [D], part + "k_norm.weight": [D]})
    del tensors["lm_head.weight"]
    return config, tensors


def phi3(C=32, L=2, V=520, P=64, inner=88):
    config, tensors = llama(C, L, V, P, inner)
    config.update(model_type="phi3", architectures=["Phi3ForCausalLM"], pad_token_id=None, resid_pdrop=0.1)
    for n in range(L):
        layer = f"model.layers.{n}."
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            del tensors[f"{layer}{name}.weight"]
        tensors[layer + "self_attn.qkv_proj.weight"] = [2 * C, C]
        tensors[layer + "mlp.gate_up_proj.weight"] = [2 * inner, C]
    return config, tensors


def gemma3(C=32, L=2, V=424, P=64, inner=88, D=12):
    config, tensors = qwen3(C, L, V, P, inner, D)
    config.update(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], query_pre_attn_scalar=D, sliding_window=8,
                  layer_types=["sliding_attention", "full_attention"] * (L // 2), pad_token_id=None,
                  rope_scaling=dict(rope_type="linear", factor=2.0))
    for n in range(L):
        tensors.update({f"model.layers.{n}.{side}_feedforward_layernorm.weight": [C] for side in ("pre", "post")})
    return config, tensors


# family, its tokenizer, dtype, tensors per file
KINDS = {"gpt2": (gpt2, "gpt2", "F16", 0), "opt": (opt, "opt", "BF16", 10), "llama": (llama, "llama2", "F32", 0),
         "qwen3": (qwen3, "qwen2", "BF16", 0), "phi3": (phi3, "llama2", "F16", 7),
         "gemma3_text": (gemma3, "qwen2", "F32", 9)}
TORCH = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def write_file(path, tensors, metadata=None):
    """tensors: {name: (dtype, shape, bytes)}; metadata {}: none at all"""
    metadata = {"format": "pt"} if metadata is None else metadata
    header, offset = ({"__metadata__": metadata} if metadata else {}), 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def write(folder, config, tensors, per_file=0):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    if not per_file:
        write_file(os.path.join(folder, "model.safetensors"), tensors)
        return
    names = list(tensors)
    count = -(-len(names) // per_file)
    where = {}
    for n in range(count):
        name = f"model-{n + 1:05}-of-{count:05}.safetensors"
        some = names[n * per_file:(n + 1) * per_file]
        write_file(os.path.join(folder, name), {key: tensors[key] for key in some})
        where.update({key: name for key in some})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": 0}, "weight_map": where}, file)


def values(shape, name, chance, gain=1.0):
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    around = gain if len(shape) == 1 and name.endswith("weight") else 0.0
    return [chance.gauss(around, 0.05) for _ in range(count)]


def make(folder, kind, dtype=None, **sizes):
    """Makes a folder of that kind with random weights, its tokenizer and a generation_config.json; returns its tensors.
    """
    family, tokenizer, own_dtype, per_file = KINDS[kind]
    dtype = dtype or own_dtype
    config, shapes = family(**sizes)
    chance, gain = random.Random(kind), float(kind != "gemma3_text")  # Gemma's gains are 1 + weight
    tensors = {name: (dtype, shape, narrow(values(shape, name, chance, gain), dtype)) for name, shape in shapes.items()}
    write(folder, dict(config, torch_dtype=TORCH[dtype]), tensors, per_file)
    for name in os.listdir(os.path.join(TOKENIZERS, tokenizer)):
        if name != "cases":
            shutil.copy(os.path.join(TOKENIZERS, tokenizer, name), folder)
    with open(os.path.join(folder, "generation_config.json"), "w", encoding="utf-8") as file:
        file.write('{"_from_model_config": true}\n')
    return tensors


def header_of(file):
    length, = struct.unpack("<Q", file.read(8))
    return json.loads(file.read(length))


def metadata(path):
    with open(path, "rb") as file:
        return header_of(file).get("__metadata__")


def read_file(path):
    with open(path, "rb") as file:
        header = header_of(file)
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def read(folder):
    """{name: (dtype, shape, bytes)} of one file or of all shards."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_file(os.path.join(folder, "model.safetensors"))
    with open(index, encoding="utf-8") as file:
        where = json.load(file)["weight_map"]
    tensors = {}
    for name in sorted(set(where.values())):
        tensors.update(read_file(os.path.join(folder, name)))
    assert sorted(tensors) == sorted(where)
    return tensors
