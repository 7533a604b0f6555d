#!/usr/bin/env python3
"""Compares the losses of a GPT-2 with those of PyTorch's bf16: same weights, text, AdamW, clip and rates, step by step.

    curve.py DUMP [--device cuda:0 --profile h200] [--torch cuda|cpu] [--steps 200] [--bound 0.02] [sizes]

Ours trains in bf16 on --device (default: the host), PyTorch under autocast on its --torch device: weights and states in
float, products in bf16. The text is this repository's documentation, in bytes: losses fall from ln(vocabulary) to those
of English text, so a wrong update shows. PyTorch also trains in f32, since its autocast may leave that curve: on an H200, with
50 steps, it had a loss of 21 where f32 and ours had 3.4. Exits 0 if all losses are within --bound of one of the two
curves, 1 if not or nothing was learned, 77 if PyTorch or its CUDA is missing. Without flags the model is GPT-2 124M."""

import argparse
import glob
import os
import statistics
import sys
import tempfile

import parity  # first: it looks for PyTorch
from parity import SETTINGS

import gpt2_torch
import numpy
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIZES = {"layers": 12, "heads": 12, "channels": 768, "positions": 1024, "vocabulary": 50257, "sequences": 4,
         "tokens": 1024, "microbatches": 2}
ROWS = 10  # lines of figures that are printed


def batches_of(config, steps, seed=3):
    """(tokens, targets) of each step, drawn from the text."""
    text = b""
    for path in sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))):
        with open(path, "rb") as file:
            text += file.read()
    ids = numpy.frombuffer(text, dtype=numpy.uint8).astype(numpy.int32) % config["vocabulary"]
    draw = numpy.random.default_rng(seed)
    shape = (config["microbatches"], config["sequences"])
    batches = []
    for _ in range(steps):
        begins = draw.integers(len(ids) - config["tokens"] - 1, size=shape)
        windows = numpy.array([[ids[begin:begin + config["tokens"] + 1] for begin in row] for row in begins])
        batches.append((windows[..., :-1].copy(), windows[..., 1:].copy()))
    return batches


def curves(options, config, folder):
    """Losses of every step: ours, PyTorch's under autocast and in f32."""
    run = parity.Run(folder, config, options.steps, batches=batches_of(config, options.steps), states="0", bf16=1,
                     clip=1.0, lr=options.lr, min_lr=options.lr / 10, warmup=options.steps // 10)
    print(f"ours on {run.plan['kernel_path'].strip()}", flush=True)
    start = run.stream("value", 0)
    theirs, exact = (numpy.array(gpt2_torch.curve(start, run.decays, config, run.batches, run.rates, {**SETTINGS, "clip": 1.0},
                                                  torch.float32, loss_of, options.torch))
                     for loss_of in (gpt2_torch.autocast_loss_of, gpt2_torch.loss_of))
    return run.losses, theirs, exact


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--torch", choices=("cuda", "cpu"), default="cuda", help="where PyTorch computes")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--bound", type=float, default=2e-2, help="most that two losses of a step may differ")
    for name, value in SIZES.items():
        parser.add_argument("--" + name, type=int, default=value)
    options = parser.parse_args()
    if options.torch == "cuda" and not torch.cuda.is_available():
        print(f"the losses of PyTorch {torch.__version__}, which has no CUDA here")
        return 77
    torch.set_num_threads(1 if options.torch == "cuda" else len(os.sched_getaffinity(0)))
    config = {name: getattr(options, name) for name in SIZES}
    with tempfile.TemporaryDirectory(prefix="cohobate-curve-") as folder:
        ours, theirs, exact = curves(options, config, folder)
    apart, beside_f32 = abs(ours - theirs), abs(ours - exact)
    for step in range(0, options.steps, max(1, options.steps // ROWS)):
        print(f"step {step}: ours {ours[step]:.4f}, PyTorch {theirs[step]:.4f}, in f32 {exact[step]:.4f}")
    last = slice(-max(1, options.steps // 20), None)
    fell = statistics.fmean(ours[last]) < 0.95 * ours[0]
    right = bool(apart.max() <= options.bound or beside_f32.max() <= options.bound)  # NaN is not
    print(f"{options.steps} losses from {ours[0]:.3f} to {statistics.fmean(ours[last]):.3f}: at most {apart.max():.2g} (in the mean "
          f"{apart.mean():.2g}) from those of PyTorch {torch.__version__} under bf16 autocast on {options.torch}, {beside_f32.max():.2g} "
          f"({beside_f32.mean():.2g}) from its f32 (one must be {options.bound:g}); its two curves are "
          f"{abs(exact - theirs).max():.2g} apart" + ("" if fell else ", and nothing was learned"))
    return 0 if right and fell else 1


if __name__ == "__main__":
    sys.exit(main())
