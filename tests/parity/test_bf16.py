#!/usr/bin/env python3
"""Training in bf16 compared with PyTorch's bf16 on the CPU, same weights and batches; with --device on that GPU
(parity.py).

"pure": PyTorch with weights, activations, gradients and AdamW's states in bf16; "autocast": weights and states in
float, products in bf16. Both use PyTorch's fused operators. g64 is PyTorch in double on the weights that we multiply
with: our masters, rounded to bf16.

Any gradient in bf16 is off by about 2^-9 of the sums' magnitudes; how much in which tensor, only another bf16 run can
show. So our errors are compared with PyTorch's, tensor by tensor, and as one vector; the bounds are given where they
are used."""

import parity  # first: it looks for PyTorch
from parity import NANO, ODD, SETTINGS, SHORT, WIDE_TABLE, main, norm_of, remember

import gpt2_torch
import numpy
import torch


def rounded(values):
    """The bf16 that products use for a master: its high 16 bits, rounded half away from zero."""
    bits = numpy.ascontiguousarray(values).view(numpy.uint32)
    return ((bits + numpy.uint32(0x8000)) & numpy.uint32(0xffff0000)).view(numpy.float32)


def gradients(weights, config, batch, dtype, loss_of):
    values = gpt2_torch.leaves(weights, dtype)
    loss = gpt2_torch.gradients_of(values, config, batch, loss_of)
    return loss, {name: value.grad.double().numpy() for name, value in values.items()}


class Bf16(parity.ParityTest):
    def gradients_are_as_near_as_pytorchs(self, config, steps=1, states="0", **more):
        run = self.run_dump(config, steps, gradients=steps, states=states, bf16=1, **more)
        for step in map(int, states.split(",")):
            weights = {name: rounded(value) for name, value in run.stream("value", step).items()}
            found, batch = run.stream("gradient", step), run.batches[step]
            loss64, exact = gradients(weights, config, batch, torch.float64, gpt2_torch.loss_of)
            loss_pure, pure = gradients(weights, config, batch, torch.bfloat16, gpt2_torch.fused_loss_of)
            whole = norm_of(exact)
            for name, g64 in exact.items():
                own = numpy.linalg.norm(pure[name] - g64)
                error = numpy.linalg.norm(found[name] - g64)
                what = f"gradient of {name} at step {step}"
                # Two draws of the same rounding differ; and what is below 2^-10 of everything is noise.
                self.holds("gradient against pure bf16's", error, 1.5 * own + 2.0 ** -10 * whole, what)
            self.holds("whole gradient against pure bf16's", norm_of({n: found[n] - exact[n] for n in exact}),
                       norm_of({n: pure[n] - exact[n] for n in exact}), f"gradient of step {step}")
            self.holds("loss against pure bf16's", abs(run.losses[step] - loss64),
                       abs(loss_pure - loss64) + 2.0 ** -11 * loss64, f"loss of step {step}")
            self.holds("norm of its own gradients", abs(run.norms[step] - norm_of(found)), 1e-12 * whole, "norm")
        return run

    def test_gradients_of_an_odd_model_are_as_near_before_and_after_updates(self):
        self.gradients_are_as_near_as_pytorchs(ODD, steps=6, states="0,5")

    def test_gradients_are_as_near_where_table_and_attention_take_several_tiles(self):
        self.gradients_are_as_near_as_pytorchs(WIDE_TABLE)

    def test_gradients_of_nano_are_as_near(self):
        self.gradients_are_as_near_as_pytorchs(NANO)

    def curve_is_nearer(self, config, highest):
        """Fifty steps: the losses of PyTorch in float are the reference for all bf16 runs."""
        flags = {"states": "0", "clip": 1.0, "lr": highest, "min_lr": highest / 10, "warmup": 10}
        run = self.run_dump(config, 50, bf16=1, **flags)
        self.assertLess(run.losses[-5:].mean(), 0.95 * run.losses[:5].mean(), "nothing was learned")
        start, settings = run.stream("value", 0), {**SETTINGS, "clip": 1.0}
        curves = {name: numpy.array(gpt2_torch.curve(start, run.decays, config, run.batches, run.rates, settings, dtype,
                                                     loss_of))
                  for name, dtype, loss_of in (("float", torch.float32, gpt2_torch.fused_loss_of),
                                               ("pure", torch.bfloat16, gpt2_torch.fused_loss_of),
                                               ("autocast", torch.float32, gpt2_torch.autocast_loss_of))}
        ours, pure, autocast = (abs(losses - curves["float"])
                                for losses in (run.losses, curves["pure"], curves["autocast"]))
        print(f"losses of 50 steps against float's, {config['layers']} layers: mean and largest difference: ours"
              f" {ours.mean():.3g} {ours.max():.3g}, autocast {autocast.mean():.3g} {autocast.max():.3g},"
              f" pure {pure.mean():.3g} {pure.max():.3g}", flush=True)
        return ours, pure, autocast

    def test_fifty_steps_are_nearer_to_float_than_pytorchs_pure_bf16(self):
        for config, highest in ((ODD, 3e-3), (NANO, 6e-4))[:1 if SHORT else 2]:
            ours, pure, autocast = self.curve_is_nearer(config, highest)
            self.holds("curve, mean, against pure bf16's", ours.mean(), pure.mean(), "mean difference of losses")
            self.holds("curve, last ten, against pure bf16's", ours[-10:].mean(), pure[-10:].mean(), "late losses")
            remember("curve, mean, against autocast's", ours.mean() / autocast.mean())


if __name__ == "__main__":
    main()
