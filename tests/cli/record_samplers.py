#!/usr/bin/env python3
"""Records the output of transformers' logits processors, for test_sample.c.

    python3 record_samplers.py

Needs torch and transformers from the Python package index (2.15.0 and 5.23.0 made samplers.jsonl). Writes a line of
JSON per case: logits, the ids seen, the settings, and the probability of each id, 0 for those that are not candidates.
The processors and their order are those of generate(do_sample=True) with these settings. Logits are distinct, and no id
is near a threshold, where rounding decides which ids transformers keeps."""

import json
import os
import random

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

HERE = os.path.dirname(os.path.abspath(__file__))
VOCABULARY = 24
NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def probabilities(logits, seen, settings):
    """Probabilities of all ids, in float64: the distribution from which generate draws after `seen`."""
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(logits), n_embd=4, n_layer=1, n_head=1, n_positions=8))
    config = GenerationConfig(do_sample=True, **settings)
    processors = model._get_logits_processor(config, input_ids_seq_length=len(seen), device="cpu")
    scores = processors(torch.tensor([seen]), torch.tensor([logits], dtype=torch.float64))
    return torch.softmax(scores, dim=-1)[0].tolist()


def near_threshold(logits, seen, settings):
    """Returns whether settings that differ by rounding would keep other ids."""
    kept = [[p > 0 for p in probabilities(logits, seen, dict(settings, top_p=min(1, settings["top_p"] * factor),
                                                             min_p=min(1, settings["min_p"] * factor)))]
            for factor in (1 - 1e-6, 1, 1 + 1e-6)]
    return kept[0] != kept[1] or kept[1] != kept[2]


def cases():
    chance = random.Random(7)
    for number in range(120):
        logits = [round(chance.gauss(0, 4), 4) for _ in range(VOCABULARY)]
        seen = [chance.randrange(VOCABULARY) for _ in range(chance.choice([1, 5, 40]))]
        settings = dict(temperature=chance.choice([0.3, 0.7, 1.0, 2.5]), top_k=chance.choice([0, 0, 1, 3, 10, 23]),
                        top_p=chance.choice([1.0, 1.0, 0.0001, 0.3, 0.8, 0.95]), min_p=chance.choice([0.0, 0.0, 0.02, 0.3, 1.0]),
                        repetition_penalty=chance.choice([1.0, 1.0, 1.2, 0.7, 5.0]))
        if number < 5:  # each alone
            alone = dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0)
            settings = dict(alone, **{NAMES[number]: (0.5, 4, 0.6, 0.1, 1.5)[number]})
        if len(set(logits)) == VOCABULARY and not near_threshold(logits, seen, settings):
            yield {"logits": logits, "seen": seen, **settings,
                   "probabilities": [float(f"{p:.9g}") for p in probabilities(logits, seen, settings)]}


if __name__ == "__main__":
    with open(os.path.join(HERE, "samplers.jsonl"), "w", encoding="utf-8") as file:
        for case in cases():
            file.write(json.dumps(case, separators=(",", ":")) + "\n")
