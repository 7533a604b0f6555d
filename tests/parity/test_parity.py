#!/usr/bin/env python3
"""Training in f32 against PyTorch on the CPU, same weights and batches; with --device on that GPU (parity.py).

g is a gradient of ours, g32 and g64 PyTorch's in float and double. For every parameter

    |g - g64| <= 1e-5 |g64| + 1e-7 |all g64|     and     |g - g64| <= max(4 |g32 - g64|, 1e-7 |all g64|)

(2-norms of tensors); the second keeps us from being much worse than float has to be."""

import math
import os
import unittest

import parity  # first: it looks for PyTorch
from parity import NANO, ODD, SETTINGS, SHORT, UNIT, WIDE_TABLE, in_full, main, norm_of, remember, torch_gradients

import gpt2_torch
import numpy
import torch


class AdamBounds:
    """How far a float AdamW may be from the exact one, element by element, when both see the same
    gradients: every rounding is counted, at 2^-24 of its result. Terms are those of kernels.h."""

    def __init__(self, weights):
        self.m, self.v, self.w = ({n: numpy.zeros(w.shape) for n, w in weights.items()} for _ in range(3))

    def after(self, name, g, old, new, bias, rate, decay):
        """`g`: clipped; `old` and `new`: exact (m, v, w) before and after; `bias`: 1 - beta^t."""
        beta1, beta2 = SETTINGS["beta1"], SETTINGS["beta2"]
        # scale, its product with g, the product with 1 - beta, the sum; for v the first two count twice
        # and the square once more. The last term is for what falls below float's range.
        m = beta1 * self.m[name] + 5 * UNIT * (beta1 * abs(old[0]) + (1 - beta1) * abs(g))
        v = beta2 * self.v[name] + 8 * UNIT * (beta2 * old[1] + (1 - beta2) * g * g) + 2.0 ** -126
        root = numpy.sqrt(new[1])
        with numpy.errstate(divide="ignore"):
            root_error = numpy.minimum(v / root, numpy.sqrt(v)) / math.sqrt(bias[1])
        below = root / math.sqrt(bias[1]) + SETTINGS["epsilon"]
        quotient = abs(new[0]) / bias[0] / below
        # bias1, m / bias1, bias2, v / bias2, the root, the sum with epsilon, the quotient
        direction = m / bias[0] / below + quotient * (root_error / below + 7 * UNIT)
        size = quotient + decay * abs(old[2])
        # decay * w, its sum with the direction, rate * that; and the difference
        # The last factor is for products of two roundings.
        self.w[name] = (self.w[name] * (1 + rate * decay) + rate * (direction + 4 * UNIT * size)
                        + UNIT * numpy.maximum(abs(old[2]), abs(new[2]))) * (1 + 1e-5)
        self.m[name], self.v[name] = m, v


class Parity(parity.ParityTest):
    # ---- gradients ----

    def gradients_agree(self, config, steps=1, states="0", figure="gradient", **more):
        run = self.run_dump(config, steps, gradients=steps, states=states, **more)
        for step in map(int, states.split(",")):
            weights, batch, found = run.stream("value", step), run.batches[step], run.stream("gradient", step)
            loss64, exact = torch_gradients(weights, config, batch, torch.float64)
            loss32, single = torch_gradients(weights, config, batch, torch.float32)
            self.one_gradient_agrees(step, found, single, exact, figure)
            self.loss_and_norm_agree(run, step, found, (loss32, loss64), single, exact)
        return run

    def one_gradient_agrees(self, step, found, single, exact, figure):
        self.assertEqual(list(found), list(exact))
        floor = 1e-7 * norm_of(exact)
        for name, g64 in exact.items():
            error = numpy.linalg.norm(found[name] - g64)
            own = numpy.linalg.norm(single[name] - g64)
            what = f"gradient of {name} at step {step}"
            self.holds(figure, error, 1e-5 * numpy.linalg.norm(g64) + floor, what)
            self.holds(figure + " against 4x float's", error, max(4 * own, floor), what)

    def loss_and_norm_agree(self, run, step, found, losses, single, exact):
        """The norm of a sum of errors: its bounds are those of the gradient as one vector."""
        everything = norm_of(exact)
        own = norm_of({name: single[name] - exact[name] for name in exact})
        error = abs(run.norms[step] - everything)
        self.holds("norm", error, 1e-5 * everything, f"norm of step {step}")
        self.holds("norm against 4x float's", error, max(4 * own, 1e-7 * everything), f"norm of step {step}")
        # It is exactly the norm of the gradients that there are: sums of doubles.
        self.holds("norm of its own gradients", abs(run.norms[step] - norm_of(found)), 1e-12 * everything, "norm")
        # Two ulps are what one float at the end may cost.
        error = abs(run.losses[step] - losses[1])
        self.holds("loss", error, max(4 * abs(losses[0] - losses[1]), 4 * UNIT * losses[1]), f"loss of step {step}")

    def test_gradients_of_an_odd_model_agree_before_and_after_updates(self):
        self.gradients_agree(ODD, steps=6, states="0,5")

    def test_gradients_agree_where_table_and_attention_take_several_tiles(self):
        self.gradients_agree(WIDE_TABLE)

    @in_full
    def test_gradients_of_nano_agree(self):
        self.gradients_agree(NANO)

    @unittest.skipIf(parity.WHERE, "a path of the host's kernels")
    def test_gradients_agree_on_the_plain_path(self):
        run = self.gradients_agree(ODD, figure="gradient, plain path",
                                   environment={"COH_ISA": "plain", "COH_PLAIN_MATMUL": "1"})
        self.assertIn("plain", run.plan["kernel_path"])

    # ---- AdamW ----

    def updates_agree(self, run, gradients, clip, counts=(1, 5)):
        """PyTorch's AdamW in double with our gradients: only our roundings differ."""
        start = run.stream("value", 0)
        weights = gpt2_torch.leaves(start, torch.float64)
        optimizer, bounds = gpt2_torch.optimizer_of(weights, run.decays, SETTINGS), AdamBounds(start)
        exact = {n: (numpy.zeros(w.shape), numpy.zeros(w.shape), w.astype(numpy.float64)) for n, w in start.items()}
        for step in range(max(counts)):
            grads = {name: g.astype(numpy.float64) for name, g in gradients(step).items()}
            scale = min(1.0, clip / norm_of(grads)) if clip > 0 else 1.0
            for name, w in weights.items():
                w.grad = torch.from_numpy(grads[name] * scale)
            gpt2_torch.update(optimizer, weights, run.rates[step], 0.0)
            bias = [1 - SETTINGS[beta] ** (step + 1) for beta in ("beta1", "beta2")]
            for name, w in weights.items():
                state = optimizer.state[w]
                new = tuple(x.detach().numpy().copy() for x in (state["exp_avg"], state["exp_avg_sq"], w))
                bounds.after(name, grads[name] * scale, exact[name], new, bias, run.rates[step],
                             SETTINGS["decay"] if run.decays[name] else 0.0)
                exact[name] = new
            if step + 1 in counts:
                self.states_agree(run, step + 1, exact, bounds)

    def states_agree(self, run, count, exact, bounds):
        for i, (stream, bound) in enumerate((("m", bounds.m), ("v", bounds.v), ("value", bounds.w))):
            found = run.stream(stream, count)
            for name, values in exact.items():
                ratio = (abs(found[name] - values[i]) / numpy.maximum(bound[name], 2.0 ** -149)).max()
                remember(f"AdamW {stream}", float(ratio))
                if not ratio <= 1:
                    self.fail(f"{stream} of {name} after {count} updates: {ratio:g} times the bound")

    def test_deferred_updates_with_clipping_are_adamw_to_the_rounding(self):
        for config in (ODD,) if SHORT else (ODD, NANO):
            run = self.run_dump(config, 5, gradients=5, states="0,1,5", clip=0.5, warmup=3)
            self.assertGreater(run.norms[0], 0.5)
            self.updates_agree(run, lambda step, run=run: run.stream("gradient", step), 0.5)

    def test_updates_in_backward_are_adamw_to_the_rounding(self):
        """Their gradients are freed before the step ends, so they come from deferred updates without a clip: the same
        numbers if the updates are right."""
        deferred = self.run_dump(ODD, 5, gradients=5, clip=0, warmup=3)
        run = self.run_dump(ODD, 5, states="0,1,5", clip=0, warmup=3, deferred=0)
        self.updates_agree(run, lambda step: deferred.stream("gradient", step), 0.0)

    # ---- training ----

    def curve_agrees(self, config, clip, highest, **more):
        run = self.run_dump(config, 50, states="0", clip=clip, lr=highest, min_lr=highest / 10, warmup=10, **more)
        self.assertLess(run.losses[-5:].mean(), 0.95 * run.losses[:5].mean(), "nothing was learned")
        self.rates_are_warm_up_and_cosine(run.rates, highest, highest / 10, 10)
        start, settings = run.stream("value", 0), {**SETTINGS, "clip": clip}
        self.assertEqual({name for name, decays in run.decays.items() if decays},
                         {name for name, (shape, _) in run.tensors.items() if len(shape) == 2})
        other = gpt2_torch.curve(start, run.decays, config, run.batches, run.rates, settings, torch.float32)
        error = max(abs(ours - theirs) for ours, theirs in zip(run.losses, other))
        self.holds("50-step curve", error, 1e-3, "largest difference of two losses")
        return run, start, settings

    def rates_are_warm_up_and_cosine(self, rates, highest, lowest, warmup):
        for step, rate in enumerate(rates):
            if step < warmup:
                expected = highest * (step + 1) / warmup
            else:
                turn = math.pi * (step + 1 - warmup) / (len(rates) - warmup)
                expected = lowest + (highest - lowest) * (1 + math.cos(turn)) / 2
            self.assertLessEqual(abs(rate - expected), 1e-7 * expected, f"rate of step {step}")

    def test_fifty_steps_of_an_odd_model_follow_pytorch(self):
        run, start, settings = self.curve_agrees(ODD, 1.0, 3e-3)
        exact = gpt2_torch.curve(start, run.decays, ODD, run.batches, run.rates, settings, torch.float64)
        remember("50-step curve, float64", max(abs(a - b) for a, b in zip(run.losses, exact)) / 1e-3)

    def test_fifty_steps_with_updates_in_backward_follow_pytorch(self):
        self.curve_agrees(ODD, 0.0, 3e-3, deferred=0)

    @in_full
    def test_fifty_steps_of_nano_follow_pytorch(self):
        self.curve_agrees(NANO, 1.0, 6e-4)

    # ---- the streamed run ----

    @unittest.skipIf(parity.WHERE, "a quarter of these small models is less than a GPU's libraries get: claim 6-1-bits")
    def test_a_quarter_of_the_memory_gives_the_same_files(self):
        """So all of the above also holds for a streamed run."""
        # A fetch reads the whole store, so for nano only what does not need one is compared.
        for config, more in ((ODD, {"gradients": 3, "states": "0,1,4"}), (NANO, {})):
            memory, streamed = (self.run_dump(config, 4, percent=percent, **more) for percent in (0, 25))
            self.assertLessEqual(int(streamed.plan["peak_bytes"]), 0.25 * int(streamed.plan["in_memory_bytes"]))
            self.assertGreater(int(streamed.plan["link_bytes"]), 0)
            names = sorted(os.listdir(memory.folder))
            self.assertEqual(names, sorted(os.listdir(streamed.folder)))
            self.assertIn("hash", names)
            for name in set(names) - {"plan"}:
                with open(memory.path(name), "rb") as one, open(streamed.path(name), "rb") as other:
                    self.assertTrue(one.read() == other.read(), f"{name} differs")


if __name__ == "__main__":
    main()
