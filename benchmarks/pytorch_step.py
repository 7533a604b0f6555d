"""Optimizer steps of a GPT-2 in PyTorch on request: the other side of benchmarks/compare and of scripts/device.

    python pytorch_step.py --mode f32|autocast|bf16 --batch 4 --sequence 64 ...   prints one JSON line of facts
    run 3                                              on standard input: three steps, one JSON line
    python pytorch_step.py ... --ranks 2 --wrap ddp|fsdp    that many processes over gloo, each with this batch

Written as a user of PyTorch would write it, with what the version at hand offers: scaled_dot_product_attention
and the fused AdamW where they are, tied embeddings, decay for matrices only, gradients set to None. autocast
keeps f32 parameters and multiplies in bf16; bf16 is the whole model and the states in bf16. The step is that of
benchmarks/step.c: forward, loss, backward, clipping to norm 1, AdamW; random tokens, the same in each step. Of a batch of
several micro-batches the gradients are summed up, and AdamW runs once. On a GPU attention is flash attention and nothing
else, where this version lets one say so: "attention" says which it is.
Of several processes each has its own tokens; ddp averages gradients, which are views of its buckets, and fsdp is fully_shard
on each block and the model, without mixed precision.
torch.compile is left out unless --compile asks for it: it needs a compiler at run time, and few use it on a CPU."""

import argparse
import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(channels)
        self.c_attn = nn.Linear(channels, 3 * channels)
        self.c_proj = nn.Linear(channels, channels)
        self.ln_2 = nn.LayerNorm(channels)
        self.c_fc = nn.Linear(channels, 4 * channels)
        self.c_out = nn.Linear(4 * channels, channels)

    def attention(self, q, k, v, mask):
        if mask is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1]))
        return F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(C, dim=2))
        y = self.attention(q, k, v, mask).transpose(1, 2).reshape(B, T, C)
        x = x + self.c_proj(y)
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, heads, channels, positions, vocabulary, sequence):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, channels)
        self.wpe = nn.Embedding(positions, channels)
        self.h = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels)
        self.lm_head = nn.Linear(channels, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)
        mask = None
        if not hasattr(F, "scaled_dot_product_attention"):
            mask = torch.triu(torch.ones(sequence, sequence, dtype=torch.bool), diagonal=1)
        self.register_buffer("mask", mask)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x, self.mask)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def make_optimizer(model, choice):
    """The fastest AdamW of this version for the CPU, the one with the least memory, or the plain loop, which alone takes
    divided parameters; and its name."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    for name in {"fastest": ("fused", "foreach"), "smallest": ("fused",), "plain": ()}[choice]:
        try:
            return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), **{name: True}), name
        except (RuntimeError, TypeError):
            pass
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95)), "loop"


def fixed_attention(device, is_masked):
    """A context in which attention has one implementation, and its name."""
    if is_masked:
        return contextlib.nullcontext(), "matmul, softmax"
    if device == "cuda":
        try:
            from torch.nn.attention import SDPBackend, sdpa_kernel
            return sdpa_kernel(SDPBackend.FLASH_ATTENTION), "flash"
        except ImportError:
            pass
    return contextlib.nullcontext(), "scaled_dot_product_attention"


def start_others(ranks):
    """Starts the processes of ranks above 0, which run this program with these arguments, and joins them as rank 0."""
    if ranks == 1 or "RANK" in os.environ:
        return []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE=str(ranks), RANK="0")
    return [subprocess.Popen([sys.executable, *sys.argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             env={**os.environ, "RANK": str(rank)}) for rank in range(1, ranks)]


def wrapped(model, options):
    """The model as all ranks train it."""
    if options.ranks == 1:
        return model
    if options.wrap == "ddp":
        model._ddp_params_and_buffers_to_ignore = ["mask"]  # pylint: disable=protected-access # gloo sends no bool
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    from torch.distributed.fsdp import fully_shard
    for block in model.h:
        fully_shard(block)
    return fully_shard(model)


def counts(options):
    """The numbers of steps to run, which rank 0 reads and tells the others; 0 ends them."""
    while True:
        line = sys.stdin.readline() if int(os.environ.get("RANK", "0")) == 0 else ""
        count = int(line.split()[1]) if line else 0
        if options.ranks > 1:
            told = torch.tensor([count])
            torch.distributed.broadcast(told, 0)
            count = int(told)
        if count == 0:
            return
        yield count


def largest(value, options):
    """The largest value of all ranks."""
    if options.ranks == 1:
        return value
    all_ranks = torch.tensor([value])
    torch.distributed.all_reduce(all_ranks, torch.distributed.ReduceOp.MAX)
    return int(all_ranks)


def resident_kib():
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--mode", choices=("f32", "autocast", "bf16"), default="f32")
    for name in ("layers", "heads", "channels", "vocabulary", "batch", "sequence"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--micro-batch", type=int, help="sequences at a time, a divisor of the batch (default: all)")
    parser.add_argument("--optimizer", choices=("fastest", "smallest", "plain"), default="fastest")
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--wrap", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    options = parser.parse_args()
    micro = options.micro_batch or options.batch
    if micro < 1 or options.batch % micro:
        parser.error(f"--micro-batch {micro} does not divide --batch {options.batch}")

    others = start_others(options.ranks)
    torch.set_num_threads(options.threads)
    if options.ranks > 1:
        torch.distributed.init_process_group("gloo")
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(1)
    model = GPT2(options.layers, options.heads, options.channels, options.positions, options.vocabulary,
                 options.sequence).to(options.device)
    if options.mode == "bf16":
        model = model.bfloat16()
    is_masked = model.mask is not None
    trained = wrapped(model, options)
    torch.manual_seed(2 + rank)
    optimizer, optimizer_name = make_optimizer(model, options.optimizer)
    tokens = torch.randint(0, options.vocabulary, (options.batch, options.sequence)).to(options.device)
    forward = torch.compile(trained) if options.compile else trained
    targets = torch.roll(tokens.view(-1), -1).view(options.batch, options.sequence)

    attention, attention_name = fixed_attention(options.device, is_masked)

    def step():
        loss = 0.0
        for x, y in zip(tokens.split(micro), targets.split(micro)):
            with torch.autocast(options.device, torch.bfloat16, enabled=options.mode == "autocast"):
                part = forward(x, y) * (micro / options.batch)
            part.backward()
            loss += part.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if options.device == "cuda":
            torch.cuda.synchronize()
        return loss

    print(json.dumps({"torch": torch.__version__, "mode": options.mode, "optimizer": optimizer_name,
                      "attention": attention_name, "micro_batch": micro,
                      "parameters": sum(p.numel() for p in model.parameters()),
                      "threads": torch.get_num_threads(), "ranks": options.ranks,
                      "wrap": options.wrap if options.ranks > 1 else None}), flush=True)
    with attention:
        for count in counts(options):
            seconds = []
            for _ in range(count):
                begin = time.monotonic()
                loss = step()
                seconds.append(time.monotonic() - begin)
            print(json.dumps({"seconds": seconds, "loss": float(loss), "resident_kib": largest(resident_kib(), options)}),
                  flush=True)
    for other in others:
        other.wait()


if __name__ == "__main__":
    main()
