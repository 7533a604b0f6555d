"""Checks benchmarks/pytorch_step.py, the competitor in timings: a batch in several micro-batches is the same step, with
one update.

    test_pytorch_step.py FOLDER-OF-BENCHMARKS      77: there is no PyTorch
"""

import contextlib
import json
import os
import subprocess
import sys
import types
import unittest

sys.dont_write_bytecode = True
BENCHMARKS = sys.argv.pop(1)
try:
    import torch
except ImportError:
    print("no PyTorch: install python3-torch")
    sys.exit(77)
sys.path.insert(0, BENCHMARKS)
import pytorch_step  # noqa: E402


class PytorchStep(unittest.TestCase):
    def steps(self, micro):
        done = subprocess.run([sys.executable, os.path.join(BENCHMARKS, "pytorch_step.py"), "--layers", "2", "--heads", "2",
                               "--channels", "32", "--vocabulary", "97", "--batch", "4", "--micro-batch", str(micro),
                               "--sequence", "16"], input="run 4\n", capture_output=True, text=True, check=False)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def test_micro_batches_make_the_step_of_the_batch(self):
        (_, whole, _), (code, parts, said) = self.steps(4), self.steps(1)
        self.assertEqual((code, whole[0]["micro_batch"], parts[0]["micro_batch"]), (0, 4, 1), said)
        self.assertEqual(len(parts[1]["seconds"]), 4)
        # Updates of 1e-4: a fourth loss as near as this has had three of them, not twelve.
        self.assertAlmostEqual(parts[1]["loss"], whole[1]["loss"], delta=1e-5)

    def test_what_does_not_divide_the_batch_is_refused(self):
        code, lines, said = self.steps(3)
        self.assertEqual((code, lines), (2, []))
        self.assertIn("--micro-batch 3 does not divide --batch 4", said)

    def test_attention_on_a_gpu_is_flash_attention_and_says_so(self):
        asked = []
        stands_in = types.ModuleType("torch.nn.attention")
        stands_in.SDPBackend = types.SimpleNamespace(FLASH_ATTENTION="flash of PyTorch")
        stands_in.sdpa_kernel = lambda backend: asked.append(backend) or contextlib.nullcontext()
        self.addCleanup(sys.modules.update, {name: sys.modules[name] for name in ("torch.nn.attention",) if name in sys.modules})
        self.addCleanup(sys.modules.pop, "torch.nn.attention", None)
        sys.modules["torch.nn.attention"] = stands_in
        names = [pytorch_step.fixed_attention(*case)[1] for case in (("cuda", False), ("cpu", False), ("cuda", True))]
        self.assertEqual(names, ["flash", "scaled_dot_product_attention", "matmul, softmax"])
        self.assertEqual(asked, ["flash of PyTorch"])


if __name__ == "__main__":
    torch.set_num_threads(2)
    unittest.main()
