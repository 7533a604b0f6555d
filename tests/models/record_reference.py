#!/usr/bin/env python3
"""Records the results of `transformers`, in float64, for the tiny models of record_families.py.

    record_reference.py OUT.json

Needs numpy, torch and transformers. No weights are stored: each element of each tensor is a function of the tensor's
name and its index in the file (drawn), as in test_reference.c. Per case: the loss of one batch, the logits of its first
sequence, for each tensor's gradient the norm and the scalar product with a drawn tensor, and the last loss of 100 steps
of AdamW."""

import json
import sys
import types

import numpy
import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, OPTConfig

from record_families import CASES, LLAMA, OPT

SEQUENCES, TOKENS, VOCABULARY = 2, 7, 37
STEPS, BATCHES, RATE = 100, 4, 1e-3
BETA1, BETA2, EPSILON, DECAY = (float(numpy.float32(x)) for x in (0.9, 0.95, 1e-8, 0.1))


def mixed(x):
    """The finaliser of SplitMix64 (Steele et al. 2014), for each element."""
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
    return x ^ (x >> numpy.uint64(31))


def drawn(name, count):
    """`count` numbers of 24 bits in [-0.5, 0.5): exact in float, a function of name and index."""
    seed = 0xcbf29ce484222325  # FNV-1a of the name
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001b3 % (1 << 64)
    places = numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9e3779b97f4a7c15)
    return (mixed(places + numpy.uint64(seed)) >> numpy.uint64(40)).astype(numpy.float64) / (1 << 24) - 0.5


def weights(name, shape, kind):
    """Makes every term of every formula matter: no gain is one, no bias is zero. Gemma's gains are 1 + weight."""
    values = drawn(name, int(numpy.prod(shape))).reshape(shape)
    if len(shape) == 2:
        return values * 0.5
    return values * 0.5 + (1.0 if name.endswith("weight") and not kind.startswith("gemma") else 0.0)


def ids(name):
    count = SEQUENCES * TOKENS
    return torch.from_numpy(((drawn(name, count) + 0.5) * VOCABULARY).astype(numpy.int64).reshape(SEQUENCES, TOKENS))


def exact_norm(self, x):
    """RMSNorm in double: the class computes it in float, whatever the model's dtype is."""
    is_gemma = type(self).__name__.startswith("Gemma")
    epsilon = self.eps if is_gemma else self.variance_epsilon
    return (self.weight + is_gemma) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon))


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def trained(model):
    """The last of the losses. Matrices decay, as usual."""
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.dim() == 2], "weight_decay": DECAY},
                                   {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}],
                                  lr=float(numpy.float32(RATE)), betas=(BETA1, BETA2), eps=EPSILON)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(ids("tokens %d" % (step % BATCHES))).logits, ids("targets %d" % (step % BATCHES)))
        loss.backward()
        optimizer.step()
    return loss.item()


def record(name, kind, fields):
    fields = {key: dict(value) if isinstance(value, dict) else value for key, value in fields.items()}
    config = kind(**fields)
    said = json.loads(config.to_json_string())
    model = AutoModelForCausalLM.from_config(config).double().eval()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = types.MethodType(exact_norm, module)
    parameters = dict(model.named_parameters())  # a tied head is there once
    with torch.no_grad():
        for tensor, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(weights(tensor, tuple(parameter.shape), said["model_type"])))
    logits = model(ids("tokens")).logits
    loss = loss_of(logits, ids("targets"))
    loss.backward()
    gradients = {}
    for tensor, parameter in parameters.items():
        gradient = parameter.grad.numpy().reshape(-1)
        gradients[tensor] = [float(numpy.linalg.norm(gradient)), float(gradient @ drawn("g " + tensor, gradient.size))]
    return {"case": name, "config": said, "loss": loss.item(),
            "logits": [[float("%.9g" % x) for x in row] for row in logits[0].tolist()], "gradients": gradients,
            "trained": trained(model)}


def main():
    padding = ids("tokens")[0, 1].item()
    cases = dict(CASES, **{"llama padding": (LlamaConfig, dict(LLAMA, pad_token_id=padding)),
                           "opt padding": (OPTConfig, dict(OPT, pad_token_id=padding))})
    found = [record(name, *case) for name, case in cases.items()]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write('{"transformers": "%s",\n"cases": [\n' % transformers.__version__)
        file.write(",\n".join(json.dumps(case) for case in found) + "\n]}\n")


if __name__ == "__main__":
    main()
