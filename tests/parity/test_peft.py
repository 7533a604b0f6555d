#!/usr/bin/env python3
"""Adapters on a frozen model compared with PEFT: same model, same factors, same batches.

With g a gradient of ours, g32 and g64 those of PEFT in float and double, for every factor (2-norms of tensors)

    |g - g64| <= 1e-5 |g64| + 1e-7 |all g64|     and     |g - g64| <= max(4 |g32 - g64|, 1e-7 |all g64|)

With dropout PEFT gets our masks in the modules where it drops (test_dropout.py computes them).

After 100 steps of AdamW the losses differ by at most 1e-3, and no bit of the model has changed. PEFT loads the folder
of adapters that we write and gives the same logits; so does `transformers` with the folder of the merged model. Run as
test_x.py PATH-OF-DUMP [unittest arguments]; SKIPPED (77) if PEFT is not installed."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reference"))
import reference_python  # noqa: E402
reference_python.need("numpy", "torch", "transformers", "peft")

import parity  # noqa: E402
from parity import SETTINGS, main, norm_of, remember  # noqa: E402
import test_transformers  # noqa: E402
from test_dropout import Masks  # noqa: E402
from test_transformers import LLAMA, OPT, RUN, GPT2, gradients_of  # noqa: E402

import gpt2_torch  # noqa: E402
import numpy  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import GPT2Config, LlamaConfig, OPTConfig, Phi3Config, Qwen2Config, Qwen3Config  # noqa: E402

GROUPED = dict(LLAMA, num_key_value_heads=2)

# Class, fields, our settings (rank, alpha, targets), PEFT's settings.
CASES = {
    "gpt2, as by default": (GPT2Config, GPT2, (8, 8, None), None),
    "gpt2, behind gelu and residuals": (GPT2Config, dict(GPT2, n_inner=101), (5, 11, "mlp.c_fc,c_proj"),
                                        ["mlp.c_fc", "c_proj"]),
    "gpt2, one layer": (GPT2Config, GPT2, (4, 2, "h.1.*"), r".*\.h\.1\..*\.c_.*"),
    "opt, as by default": (OPTConfig, OPT, (8, 16, None), None),
    "opt 350M, everywhere": (OPTConfig, dict(OPT, do_layer_norm_before=False, word_embed_proj_dim=29), (3, 7, "*"),
                             ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "project_in", "project_out"]),
    "llama, as by default": (LlamaConfig, GROUPED, (8, 4, None), None),
    "llama, everywhere": (LlamaConfig, dict(GROUPED, attention_bias=True, mlp_bias=True), (2, 3, "*"), "all-linear"),
    "qwen2, as by default": (Qwen2Config, GROUPED, (1, 1, None), None),
    "qwen3, as by default": (Qwen3Config, dict(GROUPED, head_dim=14), (3, 8, None), None),
    "phi3, as by default": (Phi3Config, dict(GROUPED, pad_token_id=None), (4, 8, None), ["qkv_proj"]),
    "phi3, everywhere": (Phi3Config, dict(GROUPED, pad_token_id=None), (2, 3, "*"), "all-linear"),
}
# Their cases are ours where test_transformers.py looks them up.
test_transformers.CASES.update({name: (RUN, kind, fields) for name, (kind, fields, _, _) in CASES.items()})


def is_factor(name):
    return ".lora_" in name


class Drop(torch.nn.Module):
    """Our dropout of an operator, in step 0."""

    def __init__(self, count, probability, operator):
        super().__init__()
        self.count, self.probability, self.operator = count, probability, operator

    def forward(self, x):
        return Masks(self.probability, 0, self.count["at"]).of_operator(x, self.operator)


class Side(test_transformers.Side):
    """A case with adapters: its base weights and factors, one run of ours, PEFT's model of the same."""

    def __init__(self, test, case, drawn_up=False, **more):
        kind, fields, (rank, alpha, targets), self.their_targets = CASES[case]
        self.rank, self.alpha, self.drawn_up = rank, alpha, drawn_up
        self.told = {"lora": rank, "alpha": alpha, "targets": targets or ""}
        self.dropout = more.get("lora_dropout", 0.0)
        super().__init__(test, case, **self.told, **more)
        for name in [name for name in self.run.tensors if name.endswith(".lora_A.weight")]:
            op = name[:-len(".lora_A.weight")]
            module = self.published[op + ".weight"][0][:-len(".weight")]
            for part in ("lora_A", "lora_B"):
                self.published[f"{op}.{part}.weight"] = (f"base_model.model.{module}.{part}.default.weight", False)

    def run_again(self, **more):
        """Runs again with the present weights; the run before is `trained`."""
        self.trained = self.run
        self.run = parity.Run(self.run.folder, self.run_shape, more.pop("steps"), weights=self.weights,
                              model=self.config, **self.told, **more)

    def publish(self, ours):
        """Returns the tensors present."""
        return {published: numpy.ascontiguousarray(ours[name].T if transposed else ours[name])
                for name, (published, transposed) in self.published.items() if name in ours}

    def draw(self, tensors):
        """B is zero when training begins; for comparing gradients it is not, since A's would be zero."""
        weights = parity.drawn_weights(tensors)
        for name, value in weights.items():
            if name.endswith(".lora_A.weight"):
                value *= numpy.float32(1.0 / (0.08 * value.shape[1] ** 0.5))
            if name.endswith(".lora_B.weight") and not self.drawn_up:
                value *= numpy.float32(0)
        return weights

    def base(self, dtype):
        weights = {name: value for name, value in self.weights.items() if not is_factor(name)}
        return test_transformers.made_model(self.kind, self.fields, dtype, self.publish(weights))

    def model(self, dtype):
        config = peft.LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules=self.their_targets,
                                 lora_dropout=self.dropout, task_type="CAUSAL_LM")
        model = peft.get_peft_model(self.base(dtype), config, autocast_adapter_dtype=False).to(dtype)
        factors = {name: p for name, p in model.named_parameters() if p.requires_grad}
        ours = self.publish({name: value for name, value in self.weights.items() if is_factor(name)})
        assert sorted(factors) == sorted(ours), sorted(set(factors) ^ set(ours))
        with torch.no_grad():
            for name, factor in factors.items():
                factor.copy_(torch.from_numpy(ours[name]))
        return model

    def drop_as_ours(self, model):
        """Puts the masks of our step 0 where PEFT drops."""
        with open(self.run.path("operators"), encoding="utf-8") as file:
            operators = file.read().split()
        count = {"at": -1}  # the micro-batch whose forward pass runs
        model.register_forward_pre_hook(lambda *_: count.update(at=count["at"] + 1))
        for name in [name for name in operators if name.endswith(".lora_dropout")]:
            module = self.published[name[:-len("lora_dropout")] + "weight"][0][:-len(".weight")]
            dropouts = model.get_submodule("base_model.model." + module).lora_dropout
            assert isinstance(dropouts["default"], torch.nn.Dropout), dropouts
            dropouts["default"] = Drop(count, self.dropout, operators.index(name))
        assert not any(isinstance(module, torch.nn.Dropout) for name, module in model.named_modules()
                       if "lora_dropout" in name)
        return model

    def gradients(self, dtype):
        model = self.drop_as_ours(self.model(dtype)) if self.dropout else self.model(dtype)
        loss = gradients_of(model, self.run.batches[0])
        return loss, {name: p.grad.double().numpy() for name, p in model.named_parameters() if p.requires_grad}


class Adapters(parity.ParityTest):
    def each(self, check):
        for case in CASES:
            with self.subTest(case):
                check(case)

    def gradients_agree(self, case, **more):
        side = Side(self, case, drawn_up=True, steps=1, gradients=1, **more)
        found = side.publish(side.run.stream("gradient", 0))
        loss64, exact = side.gradients(torch.float64)
        loss32, single = side.gradients(torch.float32)
        self.assertEqual(sorted(found), sorted(exact), case)
        floor = 1e-7 * norm_of(exact)
        for name, g64 in exact.items():
            error, own = numpy.linalg.norm(found[name] - g64), numpy.linalg.norm(single[name] - g64)
            self.holds("gradient", error, 1e-5 * numpy.linalg.norm(g64) + floor, f"{case}: gradient of {name}")
            self.holds("gradient against 4x float's", error, max(4 * own, floor), f"{case}: gradient of {name}")
        self.holds("norm", abs(side.run.norms[0] - norm_of(exact)), 1e-5 * norm_of(exact), case)
        self.holds("loss", abs(side.run.losses[0] - loss64), max(4 * abs(loss32 - loss64), 4 * parity.UNIT * loss64),
                   f"{case}: loss")

    def test_gradients_are_pefts(self):
        self.each(self.gradients_agree)

    def test_gradients_are_pefts_with_dropout(self):
        for case in ("gpt2, behind gelu and residuals", "opt 350M, everywhere", "llama, everywhere",
                     "phi3, as by default"):
            for more in ({}, {"percent": 50}):
                with self.subTest(case, **more):
                    self.gradients_agree(case, lora_dropout=0.3, **more)

    def trained(self, case, model, side):
        """Losses of PEFT's model over our batches."""
        factors = {name: p for name, p in model.named_parameters() if p.requires_grad}
        optimizer = gpt2_torch.optimizer_of(factors, {name: True for name in factors}, SETTINGS)
        losses = []
        for batch, rate in zip(side.run.batches, side.run.rates):
            losses.append(gradients_of(model, batch))
            gpt2_torch.update(optimizer, factors, rate, 1.0)
        return losses

    def folders_agree(self, case, side):
        """Our folders, loaded by PEFT and by transformers, compared with our decoder with the trained weights."""
        side.weights = side.run.stream("value", 100)
        side.run_again(steps=1, logits=1)
        tokens = torch.from_numpy(side.run.batches[0][0][0]).long()
        ours = torch.from_numpy(side.logits())
        with torch.no_grad():
            loaded = peft.PeftModel.from_pretrained(side.base(torch.float32), side.trained.path("adapters")).eval()
            merged = transformers.AutoModelForCausalLM.from_pretrained(side.trained.path("merged")).eval()
            logits = loaded(tokens).logits
            size = logits.abs().max().item()
            self.holds("logits of the adapters' folder", (logits - ours).abs().max().item(), 1e-4 * size,
                       f"{case}: logits of the adapters' folder")
            self.holds("logits of the merged folder", (logits - merged(tokens).logits).abs().max().item(), 1e-4 * size,
                       f"{case}: logits of the merged folder")
            values = side.publish({name: value for name, value in side.weights.items() if is_factor(name)})
            for name, parameter in loaded.named_parameters():
                if is_factor(name):
                    self.assertTrue(numpy.array_equal(parameter.numpy(), values[name]), f"{case}: {name}")
            own = loaded.merge_and_unload().state_dict()
            for name, value in merged.state_dict().items():
                error = (own[name] - value).abs().max().item()
                self.holds("merged weights", error, 1e-6 * max(1.0, own[name].abs().max().item()), f"{case}: {name}")

    def training_agrees(self, case):
        side = Side(self, case, steps=100, lr=3e-3, min_lr=3e-4, warmup=10, states="0,100", folders=1)
        before, after = side.run.stream("value", 0), side.run.stream("value", 100)
        for name, value in before.items():
            if not is_factor(name):
                self.assertEqual(value.tobytes(), after[name].tobytes(), f"{case}: {name} is frozen and has changed")
        model = side.model(torch.float32)
        theirs = self.trained(case, model, side)
        ours = side.run.losses
        self.assertLess(ours[-5:].mean(), ours[:5].mean(), f"{case}: nothing was learned")
        self.holds("loss after 100 steps", abs(ours[-1] - theirs[-1]), 1e-3, f"{case}: loss after 100 steps")
        remember("largest difference of 100 losses", abs(ours - numpy.array(theirs)).max() / 1e-3)
        self.folders_agree(case, side)

    def test_a_hundred_steps_follow_peft_and_its_folders_hold_them(self):
        self.each(self.training_agrees)

    def test_a_bf16_model_beside_its_adapters_learns_as_a_float_one(self):
        for case in ("gpt2, as by default", "llama, everywhere"):
            single, half = (Side(self, case, steps=100, lr=1e-2, min_lr=1e-3, warmup=10, bf16=bf16) for bf16 in (0, 1))
            self.assertLess(half.run.losses[-5:].mean(), half.run.losses[:5].mean(), case)
            self.holds("bf16 loss", abs(single.run.losses[-5:] - half.run.losses[-5:]).mean(), 2e-2, case)

    def test_half_of_the_memory_gives_the_same_losses_and_hash(self):
        for case in ("gpt2, one layer", "opt 350M, everywhere", "llama, as by default"):
            memory, streamed = (Side(self, case, steps=4, percent=percent).run for percent in (0, 50))
            self.assertGreater(int(streamed.plan["link_bytes"]), 0)
            for name in ("steps", "hash"):
                with open(memory.path(name), "rb") as one, open(streamed.path(name), "rb") as other:
                    self.assertEqual(one.read(), other.read(), f"{case}: {name} differs")


if __name__ == "__main__":
    print(f"PEFT {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}")
    main()
