#!/usr/bin/env python3
"""Records the results of PEFT's adapters on the tiny models of record_families.py, in float64.

    record_peft.py OUT.json

Needs numpy, torch, transformers and peft. Numbers are drawn as in record_reference.py, with factors under their names
in an adapter's file, without "base_model.model.". Per case: our settings, and from a run that trains only the factors:
the loss, the logits, the gradients, and the last loss of 100 steps."""

import json
import sys
import types

import peft
import torch
import transformers
from transformers import AutoModelForCausalLM

from record_families import CASES
from record_reference import drawn, exact_norm, ids, loss_of, trained, weights

import numpy

# Ours: rank, alpha and targets; theirs: target_modules.
ADAPTED = {
    "gpt2": ((3, 8, "c_attn"), None),
    "gpt2 n_inner": ((2, 5, "c_fc,mlp.c_proj"), ["mlp.c_fc", "mlp.c_proj"]),
    "gpt2 untied": ((4, 1, "h.1.*"), r".*\.h\.1\..*\.c_.*"),
    "opt": ((3, 8, "q_proj,v_proj"), None),
    "opt post-norm, projected": ((2, 7, "*"), ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "project_in",
                                               "project_out"]),
    "llama grouped, tied": ((3, 8, "q_proj,v_proj"), None),
    "llama biases": ((1, 2, "*"), "all-linear"),
    "qwen2": ((2, 4, "o_proj,down_proj"), ["o_proj", "down_proj"]),
    "gemma2": ((3, 8, "q_proj,v_proj"), None),
    "gemma3_text": ((2, 4, "*"), "all-linear"),
    "qwen3": ((3, 8, "q_proj,v_proj"), None),
    "phi3": ((2, 4, "qkv_proj"), ["qkv_proj"]),
    "phi3 tied, window": ((3, 2, "*"), "all-linear"),
}


def published(name):
    """The name of a parameter of PEFT's model in a file."""
    return name.replace("base_model.model.", "", 1).replace(".base_layer.", ".").replace(".default.", ".")


def record(case, ours, theirs):
    kind, fields = CASES[case]
    config = kind(**{key: dict(value) if isinstance(value, dict) else value for key, value in fields.items()})
    said = json.loads(config.to_json_string())
    base = AutoModelForCausalLM.from_config(config).double().eval()
    for module in base.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = types.MethodType(exact_norm, module)
    rank, alpha, targets = ours
    adapters = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=theirs, task_type="CAUSAL_LM")
    model = peft.get_peft_model(base, adapters, autocast_adapter_dtype=False).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(weights(published(name), tuple(parameter.shape), said["model_type"])))
    logits = model(ids("tokens")).logits
    loss = loss_of(logits, ids("targets"))
    loss.backward()
    gradients = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gradient = parameter.grad.numpy().reshape(-1)
            along = float(gradient @ drawn("g " + published(name), gradient.size))
            gradients[published(name)] = [float(numpy.linalg.norm(gradient)), along]
    return {"case": case + " with adapters", "config": said,
            "adapters": {"rank": rank, "alpha": alpha, "targets": targets}, "loss": loss.item(),
            "logits": [[float("%.9g" % x) for x in row] for row in logits[0].tolist()], "gradients": gradients,
            "trained": trained(model)}


def main():
    found = [record(case, *told) for case, told in ADAPTED.items()]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write('{"peft": "%s", "transformers": "%s",\n"cases": [\n' % (peft.__version__, transformers.__version__))
        file.write(",\n".join(json.dumps(case) for case in found) + "\n]}\n")


if __name__ == "__main__":
    main()
