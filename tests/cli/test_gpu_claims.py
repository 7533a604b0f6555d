"""The programs of the claims that need a GPU (benchmarks/gpu_claim.py, scripts/device), on one that is played and with
models of a test: what they find means nothing, but every line of them has run, and what must be equal is."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
import gpu_claim  # noqa: E402
import model_folder  # noqa: E402

LIBRARIES = 32 * 2**20 + 4096  # what a plan for a GPU keeps for libraries
SIZES = (420, 16, 4, 2, 3)  # vocabulary, sequence, batch, micro-batch, steps
SMALL_CURVE = ["--torch", "cpu", "--steps", "30", "--lr", "1e-3", "--layers", "2", "--heads", "2", "--channels", "32",
               "--positions", "16", "--vocabulary", "256", "--sequences", "2", "--tokens", "16"]
# Says that it is compute-sanitizer, and finds something where it is told to.
STAND_IN = """#!/bin/sh
[ "$1 $3 $4" = "--tool --error-exitcode 9" ] || exit 2
[ "$2" != "$FINDS" ] || exit 9
shift 4
exec "$@"
"""


class GpuClaims(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.chdir(ROOT)
        folder = tempfile.TemporaryDirectory(prefix="cohobate-claims-")  # pylint: disable=consider-using-with
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.options = {"build": BUILD, "out": cls.folder}

    def path(self, name):
        return os.path.join(self.folder, name)

    def model(self):
        if not os.path.exists(self.path("gpt2")):
            model_folder.make(self.path("gpt2"), "gpt2", "F32")
        return self.path("gpt2")

    def sanitizer(self):
        with open(self.path("sanitizer"), "w", encoding="utf-8") as file:
            file.write(STAND_IN)
        os.chmod(file.name, stat.S_IRWXU)
        return file.name

    def budget(self):
        """Five eighths of what the model takes in memory beside the libraries' room."""
        model, (vocabulary, sequence, batch, micro, _) = self.model(), SIZES
        done = subprocess.run([os.path.join(BUILD, "cli", "cohobate"), "plan", model, "--vocabulary", str(vocabulary),
                               "--sequence", str(sequence), "--batch", str(batch), "--micro-batch", str(micro), "--dtype", "bf16",
                               "--profile", "h200", "--json"], capture_output=True, text=True, check=True)
        return LIBRARIES + (json.loads(done.stdout)["in_memory_bytes"] - LIBRARIES) // 8 * 5 // 4096 * 4096

    def test_bits(self):
        self.assertEqual(gpu_claim.bits((self.model(), *SIZES, self.budget()), **self.options)[1:], ([], []))
        self.assertEqual(gpu_claim.bits((self.model(), *SIZES, 1 << 30), **self.options)[1:], (["nothing was streamed"], []))

    def test_kernels(self):
        words, missed, unmeasured = gpu_claim.kernels(["quantise", "matmul-cublaslt"], BUILD, self.sanitizer())
        self.assertEqual(missed, [])
        self.assertEqual(unmeasured, ["matmul-cublaslt (its library is not here)"])
        self.assertEqual(words, ["1 of 2 groups right", "memcheck clean in 2 of 2 groups", "racecheck clean in 1 of 1 groups",
                                 "synccheck clean in 1 of 1 groups"])
        os.environ["FINDS"] = "racecheck"
        self.addCleanup(os.environ.pop, "FINDS")
        self.assertEqual(gpu_claim.kernels(["quantise"], BUILD, self.sanitizer())[1], ["racecheck of quantise"])

    def test_beside_pytorch(self):
        words, missed, unmeasured = gpu_claim.beside_pytorch(["-k", "gradients_of_an_odd_model"], SMALL_CURVE, BUILD)
        self.assertEqual((missed, unmeasured), ([], []), words)

    def test_prediction(self):
        words, missed, unmeasured = gpu_claim.prediction([(self.model(), *SIZES, part) for part in (None, self.budget())],
                                                         **self.options)
        self.assertEqual(unmeasured, [], words)
        self.assertIn("0 peaks differ", words[0])
        self.assertLessEqual(set(missed), {"mean"})

    def test_what_scripts_device_finds(self):
        found = gpu_claim.phases(BUILD, self.folder, tiny=True)
        self.assertEqual(found["tiny"], True)
        # what is there is taken
        self.assertEqual(gpu_claim.phases(BUILD, self.folder, tiny=True), found)


if __name__ == "__main__":
    unittest.main()
