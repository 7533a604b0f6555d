#!/usr/bin/env python3
"""Writes the seeds of fuzz_manifest, fuzz_plan, fuzz_profile, fuzz_token_file and fuzz_config:
file_corpus.py FOLDER

FOLDER gets manifest/, plan/, profile/, token_file/ and config/, the contents of tests/fuzz/corpus. Hashes are left out:
the targets correct them. Configurations are those that `transformers` wrote, recorded in tests/models/fixtures."""

import json
import math
import os
import struct
import sys

GRAIN = 16384
PROFILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/profiles")
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models/fixtures")


ADAMW = {"m": (4, 1, True), "v": (4, 1, True)}
BLOCKS = {"code": (1, 1, False), "scale": (4, 128, True)}


def manifest(tensors, note, forms=None, version=2, frozen=None, **other):
    """The text before the seal; tensors are (name, shape, optimizer and its streams, or None). `frozen`: the dtype of frozen.bin."""
    sizes = [math.prod(shape) for _, shape, _ in tensors]
    used = {name: form for name, form in (forms or ADAMW).items()
            if any(trained and name in trained[1:] for *_, trained in tensors)}
    aside = sum(size for size, (*_, trained) in zip(sizes, tensors) if frozen and not trained)
    files = {"work.bin": 4 * (sum(sizes) - aside)}
    for name, (block_bytes, elements, _) in used.items():
        files[name + (".bin" if name in ("m", "v") else ".state")] = sum(-(-size // elements) * block_bytes for size, (*_, trained) in zip(sizes, tensors)
                                   if trained and name in trained[1:])
    if frozen:
        files["frozen.bin"] = aside * {"f32": 4, "bf16": 2}.get(frozen, 4)
        other = {"frozen": frozen, **other}
    files["hashes.bin"] = sum(-(-size // GRAIN) for size in sizes) * (1 + len(used)) * 8
    if version == 1:
        entries = [{"name": name, "shape": shape, "states": bool(trained)} for name, shape, trained in tensors]
    else:
        entries = [{"name": name, "shape": shape, "optimizer": trained[0] if trained else None,
                    "streams": list(trained[1:]) if trained else []} for name, shape, trained in tensors]
        other = {"streams": [{"name": name, "bytes_per_block": form[0], "elements_per_block": form[1], "f32": form[2]}
                             for name, form in used.items()], **other}
    whole = {"format": "cohobate checkpoint", "version": version, "step": 7, "applied_count": 7,
             "numeric_fingerprint": "0123456789abcdef", "hash": "fedcba9876543210", "grain_elements": GRAIN,
             "files": files, "tensors": entries, "note": note, **other}
    return json.dumps(whole).removesuffix("}").encode()


def by(optimizer="adamw", *streams):
    return (optimizer, *(streams or ADAMW))


MANIFESTS = {}
for form, suffix in ((2, ""), (1, "-1")):
    MANIFESTS.update({
        "one" + suffix: manifest([("a", [5], None)], {}, version=form),
        "states" + suffix: manifest([("wte", [37, 12], by()), ("wpe", [19, 12], by())],
                                    {"model": {"layers": 2}}, version=form),
        "mixed" + suffix: manifest([("frozen", [3, 5, 7, 2, 1], None), ("b", [GRAIN + 1], by())],
                                   {"data": {"seed": -1, "x": 0.5}}, version=form),
        "large" + suffix: manifest([("large", [1 << 30, 1 << 28], None)], {"a": [1e300, True, None, "\u00e9"]},
                                   version=form),
        "twice" + suffix: manifest([("a", [5], None), ("a", [5], None)], {}, version=form),
    })
MANIFESTS.update({
    "newer": manifest([("a", [5], None)], {}, version=4),
    "frozen": manifest([("w", [3, 5], None), ("a", [GRAIN + 1], by())], {}, version=3, frozen="f32"),
    "frozen-bf16": manifest([("a", [7], by()), ("w", [GRAIN, 2], None)], {}, version=3, frozen="bf16"),
    "frozen-all": manifest([("w", [5], None)], {}, version=3, frozen="f32"),
    "frozen-none": manifest([("a", [5], by())], {}, version=3, frozen="f32"),
    "frozen-other": manifest([("w", [5], None)], {}, version=3, frozen="f16"),
    "frozen-lacking": manifest([("w", [5], None)], {}, version=3),
    "blocks": manifest([("a", [13, 77], by("adamw8", "code", "scale")), ("b", [GRAIN + 1], by()), ("c", [3], None),
                        ("d", [7], ("sgd",))], {}, {**ADAMW, **BLOCKS}),
    "unused": manifest([("a", [5], None)], {}, streams=[{"name": "m", "bytes_per_block": 4, "elements_per_block": 1,
                                                         "f32": True}]),
})


def sealed(whole):
    """The text of a plan or profile before its seal."""
    return (json.dumps(whole, indent=2).removesuffix("\n}") + ",\n").encode()


def plan(operators=(), slots=(), decisions=None, pins=(), options=None, predictions=None, **other):
    return sealed({
        "format": "cohobate plan", "version": 5, "builder": 5, "numeric_fingerprint": "a632bf631cb1a7e9",
        "program_hash": "4e0063584ff9895a",
        "options": {"mode": "train", "microbatch_count": 2, "sweep_order": "layer",
                    "deferred_update": 1, "emulate_host_bytes": "1073741824",
                    "disk_bytes": "18446744073709551615", "link_bytes_per_s": 1.6e10, **(options or {})},
        "decisions": {"device_bytes": "41943040", "chunk_bytes": 524288, "in_memory": 0, "cache": 0, "row_passes": 4,
                      "slices": 16, "tie_break": 1, "patient": 1, "boundary": 2, "horizon": 16, "host_updates": 2,
                      "resident": 0, "recompute": "0-3,7", **(decisions or {})},
        "pins": list(pins),
        "profile": {"name": "a100-40g", "device": "gpu", "hash": "fedcba9876543210"},
        "predictions": {"peak_device_bytes": 41902080, "peak_host_bytes": 298930176, "disk_bytes": 0,
                        "step_ns": 429268682, "bound_ns": 423072943, "smallest_device_bytes": 25206784, "lines": 1635,
                        **(predictions or {})},
        "operators": [dict(zip(("name", "activations", "parameters", "states", "pattern"), op)) for op in operators],
        "slots": [list(slot) for slot in slots], **other})


PLANS = {
    "whole": plan([("wte", "keep", "host", "host+disk", "slice x12"), ("h.0.attn", "move", "-", "-", "replicate")],
                  [(0, 1, 0), (329, 0, 150605824)]),
    "empty": plan(),
    "slot": plan(slots=[(0, 2, 0)]),
    "horizon": plan(decisions={"horizon": -1}),
    "member": plan(decisions={"horison": 1}),
    "newer": plan(version=6),
    "pins": plan(pins=["blocks.0-3=device", "h.*.mlp=offload", "wte=disk"]),
    "pin": plan(pins=["blocks.3-0=keep"]),
    "noted": plan(depths=[4, 4, 8, 8], note='{"version": 1, "batch": 8}'),
    "depths": plan(depths=[4, 4, 65, 8]),
    "kernels": plan(kernel_path="avx512 bf16"),
    "lines": plan(predictions={"lines": None}),
    "far": plan(options={"emulate_host_bytes": "262144"},
                decisions={"device_bytes": "300000", "chunk_bytes": 16384, "row_passes": 3, "recompute": "0"}),
    "memory": plan(options={"disk_bytes": "0", "emulate_host_bytes": "0"}, decisions={"in_memory": 1, "cache": 1}),
    "blocks": plan(decisions={"recompute": "3-1,1024"}),
}


def profiles():
    """A datasheet unchanged, and a measured profile with every member."""
    with open(os.path.join(PROFILES, "h200.json"), "rb") as source:
        datasheet = source.read()
    yield "datasheet", datasheet
    measured = json.loads(datasheet)
    figure = [9.5, 10, 10.25, 7]
    sample = [{"flops": 2e9 * n, "bytes": 1e6, "seconds": figure if n > 1 else 1e-3} for n in (1, 2, 4)]
    measured.update({
        "name": "here", "source": "measured", "fingerprint": "fedcba9876543210", "device": "host", "line_ns": figure,
        "memlock_bytes": 8388608, "calibration": {"UPDATE": {"factor": 1.02, "runs": 3}}, "origins": [],
        "operators": [{"kind": kind, "dtype": "bf16", "phase": "forward", "lane": lane, "signature": "000000000000002a",
                       "shape": "[.,256,768]", "samples": sample} for kind, lane in (("linear", "compute"),
                                                                                  ("update", "host"))]})
    measured["links"]["write"]["sustained_bytes_per_s"] = figure
    measured["contention"] = {"compute": {"h2d": 0.75}, "d2h": {"host": 1e-6}}
    yield "measured", sealed(measured)


def token_file(vocabulary, ids, version=1, count=None, window=0):
    """In version 2 the top bit of an id marks it as not a target."""
    width = "H" if vocabulary <= (32768 if version == 2 else 65536) else "I"
    data = struct.pack(f"<{len(ids)}{width}", *ids)
    count = len(ids) if count is None else count
    return struct.pack("<8sIIQQQQIIQ", b"COHTOKEN", version, struct.calcsize(width), count, vocabulary, 77, 0, window,
                       version == 2, 0) + data


TOKEN_FILES = {
    "narrow": token_file(300, [5, 299, 0, 7, 7, 7, 123, 256, 1, 2, 3]),
    "wide": token_file(128256, [5, 128255, 0, 70000, 65536, 65535]),
    "none": token_file(300, []),
    "outside": token_file(300, [5, 300]),
    "cut": token_file(300, [5], count=2),
    "largest": token_file(2**31 - 1, [2**31 - 2, 0]),
    "newer": token_file(300, [5], version=9),
    "masked": token_file(300, [5, 299, 1 << 15, 7, 7 | 1 << 15, 7, 123, 256], version=2),
    "masked-wide": token_file(40000, [5, 39999 | 1 << 31, 0, 7], version=2),
    "aligned": token_file(300, [5, 6, 7, 8, 1 << 15, 9, 10 | 1 << 15, 11, 1 << 15, 1 << 15], version=2, window=4),
}


def configs():
    for name in ["families-4.46.json", "families-5.23.json"]:
        with open(os.path.join(MODELS, name), encoding="utf-8") as source:
            recorded = json.load(source)
        for case in recorded["cases"]:
            clean = "".join(letter if letter.isalnum() else "-" for letter in case["case"])
            yield f"{clean}-{recorded['transformers'].split('.')[0]}", json.dumps(case["config"]).encode()


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for folder, seeds in (("manifest", MANIFESTS), ("plan", PLANS), ("profile", dict(profiles())),
                          ("token_file", TOKEN_FILES), ("config", dict(configs()))):
        path = os.path.join(sys.argv[1], folder)
        os.makedirs(path, exist_ok=True)
        for name, content in seeds.items():
            with open(os.path.join(path, name), "wb") as target:
                target.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
