"""An independent GPT-2 and its training, in PyTorch: the oracle of test_parity.py.

Radford et al. 2019 as plain tensor algebra: pre-norm layers, learned positions, tanh GELU, the token table reused as
classifier. Weights are a dictionary with the names of published weights, each [outputs, inputs]. Nothing is fused, so
that a float64 run computes in float64 throughout."""

import math

import torch

GELU_CUBE = 0.044715


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + GELU_CUBE * x ** 3)))


def norm(x, weight, bias, epsilon=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred ** 2).mean(-1, keepdim=True) + epsilon) * weight + bias


def kept(x, _place):
    """No dropout."""
    return x


def attention(qkv, heads, drop=lambda shares: shares):
    sequences, tokens, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (part.reshape(sequences, tokens, heads, width // heads).transpose(1, 2) for part in qkv.split(width, -1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=scores.device).triu(1)
    shares = torch.softmax(scores.masked_fill(later, -math.inf), -1)
    return (drop(shares) @ v).transpose(1, 2).reshape(sequences, tokens, width)


def loss_of(weights, config, tokens, targets, drop=kept):
    """Mean over all items of one micro-batch; an item whose target is -1 counts as 0. drop(x, place): what dropout
    makes of x at "drop", "h.N.attn", "h.N.attn.c_proj" and "h.N.mlp.c_proj", where the class of `transformers` has it."""

    def linear(x, name):
        return x @ weights[name + ".weight"].T + weights[name + ".bias"]

    def normed(x, name):
        return norm(x, weights[name + ".weight"], weights[name + ".bias"])

    x = drop(weights["wte.weight"][tokens] + weights["wpe.weight"][: tokens.shape[1]], "drop")
    for n in range(config["layers"]):
        layer = f"h.{n}."
        qkv = linear(normed(x, layer + "ln_1"), layer + "attn.c_attn")
        attended = attention(qkv, config["heads"], lambda shares, place=layer + "attn": drop(shares, place))
        x = x + drop(linear(attended, layer + "attn.c_proj"), layer + "attn.c_proj")
        wide = linear(normed(x, layer + "ln_2"), layer + "mlp.c_fc")
        x = x + drop(linear(gelu(wide), layer + "mlp.c_proj"), layer + "mlp.c_proj")
    shares = torch.log_softmax(normed(x, "ln_f") @ weights["wte.weight"].T, -1)
    counted = targets >= 0
    picked = shares.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(picked * counted).sum() / targets.numel()


def fused_loss_of(weights, config, tokens, targets):
    """loss_of with PyTorch's fused operators, in the dtype of the weights or under autocast: what a user of its bf16
    gets. These compute a norm, a softmax and a GELU in float internally; the loss is computed from float logits."""
    functional = torch.nn.functional

    def linear(x, name):
        return functional.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def normed(x, name):
        return functional.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"])

    def attention_of(qkv):
        sequences, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        split = (sequences, length, config["heads"], width // config["heads"])
        q, k, v = (part.reshape(split).transpose(1, 2) for part in qkv.split(width, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(split[-1])
        later = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        shares = torch.softmax(scores.masked_fill(later, -math.inf), -1)
        return (shares @ v).transpose(1, 2).reshape(sequences, length, width)

    x = functional.embedding(tokens, weights["wte.weight"]) + weights["wpe.weight"][: tokens.shape[1]]
    for n in range(config["layers"]):
        layer = f"h.{n}."
        x = x + linear(attention_of(linear(normed(x, layer + "ln_1"), layer + "attn.c_attn")), layer + "attn.c_proj")
        wide = functional.gelu(linear(normed(x, layer + "ln_2"), layer + "mlp.c_fc"), approximate="tanh")
        x = x + linear(wide, layer + "mlp.c_proj")
    logits = functional.linear(normed(x, "ln_f"), weights["wte.weight"]).float().flatten(0, 1)
    return functional.cross_entropy(logits, targets.flatten(), ignore_index=-1, reduction="sum") / targets.numel()


def autocast_loss_of(weights, *arguments):
    with torch.autocast(device_of(weights).type, dtype=torch.bfloat16):
        return fused_loss_of(weights, *arguments)


def leaves(weights, dtype, device="cpu"):
    return {name: torch.tensor(value, dtype=dtype, device=device, requires_grad=True) for name, value in weights.items()}


def device_of(weights):
    return next(iter(weights.values())).device


def gradients_of(weights, config, batch, loss_of=loss_of):
    """Adds the gradient of the mean over micro-batches to every leaf's .grad; returns that mean."""
    tokens, targets = (torch.from_numpy(part).long().to(device_of(weights)) for part in batch)
    total = 0.0
    for i in range(tokens.shape[0]):
        loss = loss_of(weights, config, tokens[i], targets[i])
        (loss / tokens.shape[0]).backward()
        total += loss.item()
    return total / tokens.shape[0]


def optimizer_of(weights, decays, settings):
    groups = [{"params": [w for n, w in weights.items() if decays[n]], "weight_decay": settings["decay"]},
              {"params": [w for n, w in weights.items() if not decays[n]], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(settings["beta1"], settings["beta2"]), eps=settings["epsilon"])


def update(optimizer, weights, rate, clip):
    """Takes one step with the leaves' gradients; returns their norm before clipping."""
    if clip > 0:
        total = torch.nn.utils.clip_grad_norm_(list(weights.values()), clip).item()
    else:
        total = math.sqrt(sum((w.grad.double() ** 2).sum().item() for w in weights.values()))
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def curve(start, decays, config, batches, rates, settings, dtype, loss_of=loss_of, device="cpu"):
    """Loss of every step, from the weights `start`."""
    weights = leaves(start, dtype, device)
    optimizer = optimizer_of(weights, decays, settings)
    losses = []
    for batch, rate in zip(batches, rates):
        losses.append(gradients_of(weights, config, batch, loss_of))
        update(optimizer, weights, rate, settings["clip"])
    return losses
