#!/usr/bin/env python3
"""Training in f32 with dropout compared with PyTorch, which gets the same masks: they are computed independently here
from their definition (kernels/random.h, kernels/kernels.h), and applied where `transformers` has dropout in GPT-2.
Bounds are those of test_parity.py."""

import parity  # first: it looks for PyTorch
from parity import ODD, SETTINGS, WIDE_TABLE, main, norm_of

import gpt2_torch
import numpy
import torch

SEED = 1  # of dump.c
# Operators of the graph: wte, wpe, drop, then nine a layer.
PLACES = {"attn": 2, "attn.c_proj": 4, "mlp.c_proj": 8}


def philox(counter, key):
    """Philox 4x32-10 (Salmon et al. 2011) of four arrays of words."""
    x, key = [numpy.asarray(word, dtype=numpy.uint64) for word in counter], [int(word) for word in key]
    low = numpy.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = x[0] * numpy.uint64(0xD2511F53), x[2] * numpy.uint64(0xCD9E8D57)
        x = [(b >> numpy.uint64(32)) ^ x[1] ^ numpy.uint64(key[0]), b & low,
             (a >> numpy.uint64(32)) ^ x[3] ^ numpy.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return x


class Masks:
    """drop(x, place) of one micro-batch of one step; drop.of_operator(x, operator) outside of attention."""

    def __init__(self, probability, step, microbatch):
        self.probability, self.step, self.microbatch = probability, step, microbatch

    def words(self, operator, low, high, word):
        """Word `word` of the blocks whose counters begin with `low` and `high`: arrays of one shape."""
        stream = [int(part) for part in philox((self.step, 0, operator, self.microbatch), (SEED, 0))]
        ones = numpy.ones_like(low)
        blocks = numpy.stack(philox((low, high, ones * stream[2], ones * stream[3]), stream[:2]))
        return numpy.take_along_axis(blocks, word[None].astype(numpy.int64), 0)[0]

    def __call__(self, x, place):
        operator = 2
        if place != "drop":
            layer, place = place.split(".", 2)[1:]
            operator = 3 + 9 * int(layer) + PLACES[place]
        if place == "attn":  # [sequences, heads, queries, keys]
            head, query, key = (part.astype(numpy.uint64) for part in numpy.indices((x.shape[0] * x.shape[1], *x.shape[2:])))
            row = head * numpy.uint64((x.shape[2] + 3) // 4) + key // numpy.uint64(4)
            words = self.words(operator, query, row, key % numpy.uint64(4))
            return self.masked(x, words)
        return self.of_operator(x, operator)

    def of_operator(self, x, operator):
        number = numpy.arange(x.numel(), dtype=numpy.uint64)
        block = number // numpy.uint64(64) * numpy.uint64(16) + number % numpy.uint64(16)
        return self.masked(x, self.words(operator, block, numpy.zeros_like(block),
                                         number % numpy.uint64(64) // numpy.uint64(16)))

    def masked(self, x, words):
        dropped = torch.from_numpy((words < int(self.probability * 2 ** 32)).reshape(x.shape))
        return x.masked_fill(dropped, 0) / (1 - self.probability)


def dropping(probability, step):
    """loss_of of the micro-batches of a step, in sequence."""
    count = iter(range(1 << 20))
    return lambda *arguments: gpt2_torch.loss_of(*arguments, drop=Masks(probability, step, next(count)))


class Dropout(parity.ParityTest):
    def gradients(self, run, config, probability, step, dtype):
        values = gpt2_torch.leaves(run.stream("value", step), dtype)
        loss = gpt2_torch.gradients_of(values, config, run.batches[step], dropping(probability, step))
        return loss, {name: value.grad.double().numpy() for name, value in values.items()}

    def gradients_agree(self, config, probability, steps, **more):
        run = self.run_dump(config, max(steps) + 1, gradients=max(steps) + 1, states=",".join(map(str, steps)),
                            dropout=probability, **more)
        for step in steps:
            found = run.stream("gradient", step)
            loss64, exact = self.gradients(run, config, probability, step, torch.float64)
            loss32, single = self.gradients(run, config, probability, step, torch.float32)
            floor = 1e-7 * norm_of(exact)
            for name, g64 in exact.items():
                error, own = (numpy.linalg.norm(g[name] - g64) for g in (found, single))
                self.holds("gradient", error, 1e-5 * numpy.linalg.norm(g64) + floor, f"{name} at step {step}")
                self.holds("gradient against 4x float's", error, max(4 * own, floor), f"{name} at step {step}")
            self.holds("loss", abs(run.losses[step] - loss64), max(4 * abs(loss32 - loss64), 1e-6 * loss64), "loss")
        return run

    def test_gradients_agree_before_and_after_updates(self):
        self.gradients_agree(ODD, 0.1, (0, 5))

    def test_gradients_agree_where_attention_takes_several_tiles(self):
        self.gradients_agree(WIDE_TABLE, 0.4, (0,))

    def test_gradients_agree_on_the_plain_path_and_recomputed_in_half_of_the_memory(self):
        self.gradients_agree(ODD, 0.25, (1,), percent=50, environment={"COH_ISA": "plain", "COH_PLAIN_MATMUL": "1"})

    def test_twenty_steps_follow_pytorch(self):
        run = self.run_dump(ODD, 20, states="0", clip=1.0, lr=3e-3, min_lr=3e-4, dropout=0.2)
        weights = gpt2_torch.leaves(run.stream("value", 0), torch.float32)
        optimizer = gpt2_torch.optimizer_of(weights, run.decays, SETTINGS)
        for step, (batch, rate) in enumerate(zip(run.batches, run.rates)):
            loss = gpt2_torch.gradients_of(weights, ODD, batch, dropping(0.2, step))
            self.holds("20-step curve", abs(loss - run.losses[step]), 1e-3, f"loss of step {step}")
            gpt2_torch.update(optimizer, weights, rate, 1.0)


if __name__ == "__main__":
    main()
