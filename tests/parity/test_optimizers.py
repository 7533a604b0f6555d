#!/usr/bin/env python3
"""SGD and Lion against PyTorch's SGD and a Lion in float64, for 50 steps on the engine's own gradients, so that only
the roundings of the updates differ. Every rounding is counted, at 2^-24 of its result, element by element."""

import unittest

import parity  # first: it looks for PyTorch
from parity import ODD, SETTINGS, UNIT, main, norm_of, remember

import gpt2_torch
import numpy
import torch

STEPS = 50
COUNTS = (1, 5, STEPS)
SLACK = 1 + 1e-5  # for products of two roundings
LEAST = 2.0 ** -149


class Sgd:
    """PyTorch's SGD with momentum in double, and how far one in float may be from it."""
    stream = "momentum"
    momentum = float(numpy.float32(0.9))

    def __init__(self, start, decays, nesterov):
        self.weights, self.nesterov = gpt2_torch.leaves(start, torch.float64), nesterov
        groups = [{"params": [w for n, w in self.weights.items() if bool(decays[n]) == wanted],
                   "weight_decay": SETTINGS["decay"] if wanted else 0.0} for wanted in (True, False)]
        self.optimizer = torch.optim.SGD(groups, lr=0.0, momentum=self.momentum, nesterov=nesterov)
        self.decays = {n: SETTINGS["decay"] if d else 0.0 for n, d in decays.items()}
        self.state = {n: numpy.zeros(w.shape) for n, w in start.items()}
        self.error, self.weight_error = ({n: numpy.zeros(w.shape) for n, w in start.items()} for _ in range(2))

    def step(self, grads, rate):
        old = {name: w.detach().numpy().copy() for name, w in self.weights.items()}
        for name, w in self.weights.items():
            w.grad = torch.from_numpy(grads[name])
        gpt2_torch.update(self.optimizer, self.weights, rate, 0.0)
        for name, w in self.weights.items():
            before, decay = self.state[name], self.decays[name]
            self.state[name] = self.optimizer.state[w]["momentum_buffer"].numpy().copy()
            self.bound(name, grads[name], decay, before, old[name], w.detach().numpy(), rate)

    def bound(self, name, grad, decay, before, old, new, rate):
        after, mu = self.state[name], self.momentum
        g = grad + decay * old
        # the scale, its product with the gradient, the decay's product; their sum
        g_error = decay * self.weight_error[name] + UNIT * (2 * abs(grad) + decay * abs(old) + abs(g))
        self.error[name] = (mu * self.error[name] + g_error + UNIT * (mu * abs(before) + abs(after))) * SLACK
        direction, d_error = after, self.error[name]
        if self.nesterov:
            direction = g + mu * after
            d_error = g_error + mu * self.error[name] + UNIT * (mu * abs(after) + abs(direction))
        self.weight_error[name] = (self.weight_error[name] + rate * (d_error + 2 * UNIT * abs(direction)) +
                                   UNIT * numpy.maximum(abs(old), abs(new))) * SLACK

    def weight(self, name):
        return self.weights[name].detach().numpy()


class Lion:
    """Lion (Chen et al. 2023) in double. Where the sign's argument is as small as its error, either sign is right."""
    stream = "m"
    beta1, beta2 = (float(numpy.float32(value)) for value in (0.9, 0.99))

    def __init__(self, start, decays):
        self.decays = {n: SETTINGS["decay"] if d else 0.0 for n, d in decays.items()}
        self.weights = {n: w.astype(numpy.float64) for n, w in start.items()}
        self.state, self.error, self.weight_error = ({n: numpy.zeros(w.shape) for n, w in start.items()} for _ in range(3))

    def step(self, grads, rate):
        for name, w in self.weights.items():
            grad, before, decay = grads[name], self.state[name], self.decays[name]
            mixed = self.beta1 * before + (1 - self.beta1) * grad
            # the scale, its product, the product with 1 - beta; the product with beta; the sum
            mixed_error = self.beta1 * self.error[name] + UNIT * (
                3 * (1 - self.beta1) * abs(grad) + self.beta1 * abs(before) + abs(mixed))
            self.state[name] = self.beta2 * before + (1 - self.beta2) * grad
            self.error[name] = (self.beta2 * self.error[name] + UNIT * (
                4 * (1 - self.beta2) * abs(grad) + self.beta2 * abs(before) + abs(self.state[name]))) * SLACK
            sign = numpy.sign(mixed)
            undecided = abs(mixed) <= mixed_error * SLACK
            direction = sign + decay * w
            self.weights[name] = w - rate * direction
            error = decay * (self.weight_error[name] + UNIT * abs(w)) + 2 * UNIT * abs(direction) + 2.0 * undecided
            self.weight_error[name] = (self.weight_error[name] + rate * error +
                                       UNIT * numpy.maximum(abs(w), abs(self.weights[name]))) * SLACK

    def weight(self, name):
        return self.weights[name]


class Optimizers(parity.ParityTest):
    def agrees(self, name, make, clip, **more):
        run = self.run_dump(ODD, STEPS, gradients=STEPS, states=",".join(map(str, (0, *COUNTS))), clip=clip,
                            optimizer=name, warmup=3, **more)
        exact = make(run.stream("value", 0), run.decays)
        for step in range(STEPS):
            grads = {tensor: g.astype(numpy.float64) for tensor, g in run.stream("gradient", step).items()}
            scale = min(1.0, clip / norm_of(grads)) if clip > 0 else 1.0
            exact.step({tensor: g * scale for tensor, g in grads.items()}, run.rates[step])
            if step + 1 in COUNTS:
                self.close(name, run, step + 1, exact)
        self.assertLess(run.losses[-5:].mean(), run.losses[:5].mean(), "nothing was learned")

    def close(self, name, run, count, exact):
        for stream, wanted, bounds in ((exact.stream, exact.state.__getitem__, exact.error),
                                       ("value", exact.weight, exact.weight_error)):
            found = run.stream(stream, count)
            for tensor, bound in bounds.items():
                ratio = float((abs(found[tensor] - wanted(tensor)) / numpy.maximum(bound, LEAST)).max())
                remember(f"{name} {stream}", ratio)
                if not ratio <= 1:
                    self.fail(f"{stream} of {tensor} after {count} updates: {ratio:g} times the bound")

    def test_sgd_is_pytorchs(self):
        self.agrees("sgd", lambda start, decays: Sgd(start, decays, False), 0.5, lr=3e-2, min_lr=3e-3)

    def test_sgd_with_nesterov_is_pytorchs(self):
        self.agrees("sgd", lambda start, decays: Sgd(start, decays, True), 0.5, lr=3e-2, min_lr=3e-3, nesterov=1)

    def test_lion_is_that_of_its_paper(self):
        self.agrees("lion", Lion, 0.5, lr=3e-4, min_lr=3e-5)

    @unittest.skipIf(parity.WHERE, "a quarter of these small models is less than a GPU's libraries get")
    def test_a_quarter_of_the_memory_gives_the_same_weights(self):
        for name in ("sgd", "lion"):
            memory, streamed = (self.run_dump(ODD, 4, percent=percent, optimizer=name, states="4") for percent in (0, 25))
            self.assertGreater(int(streamed.plan["link_bytes"]), 0)
            with open(memory.path("value-4"), "rb") as one, open(streamed.path("value-4"), "rb") as other:
                self.assertTrue(one.read() == other.read(), name)


if __name__ == "__main__":
    main()
