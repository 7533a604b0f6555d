"""scripts/device --tiny as users run it, on a played GPU (played_cohobate.py): every phase except PyTorch's, and the
uses of its result: the claims judged by it, and the profile extracted from it."""

import glob
import json
import os
import shutil
import subprocess
import sys
import unittest

import model_folder
from program import ProgramTest, environment

GPU = os.environ["COH_EMULATED_GPU"]
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
BUILD = os.path.abspath(os.path.join(GPU, "..", "..", ".."))
NAME = "NVIDIA H200"
LIBRARIES = ("attention-cudnn", "matmul-cublaslt", "kinds-libraries")  # groups that check NVIDIA's libraries
CHECKED = ("indices", "wires", *LIBRARIES)  # others take minutes here
BENCHMARKS = ("probe", "gpu_copies", "gpu_products", "gpu_attention", "gpu_rows")
PHASES = ("doctor", "check", "profile", "facts", "bits", "memory", "offload", "kernels", "pytorch")


class DevicePlayed(ProgramTest):
    def setUp(self):
        super().setUp()
        self.where = environment(LD_LIBRARY_PATH=GPU, COH_CUDA_LIBRARIES="none", COH_EMULATED_SEED="1", COH_EMULATED_NAME=NAME,
                                 COH_PLAYED=self.folder)
        del self.where["COH_CALIBRATION"]  # the script's own
        model_folder.make(self.path("model"), "gpt2", "F32")
        os.symlink(os.path.join(GPU, "as_measured"), self.path("as_measured"))
        for folder in ("cli", "tests/cuda", "benchmarks", "out"):
            os.makedirs(self.path(folder))
        shutil.copy(os.path.join(TESTS, "cli", "played_cohobate.py"), self.path("cli/cohobate"))
        os.chmod(self.path("cli/cohobate"), 0o755)
        for name in ("tests/cuda/gpu-check", *(f"benchmarks/bench_{name}" for name in BENCHMARKS)):
            if os.path.isfile(os.path.join(BUILD, name)):
                os.symlink(os.path.join(BUILD, name), self.path(name))
        self.set_budget()

    def set_budget(self):
        """Sets the budget to five eighths of the model's bytes, plus the libraries' workspace."""
        plan = [os.path.join(GPU, "as_measured"), "plan", self.path("model"), "--sequence", "16", "--batch", "2", "--micro-batch",
                "2", "--dtype", "bf16", "--profile", "h200", "--json"]
        room = json.loads(subprocess.run(plan, capture_output=True, check=True, env=self.where).stdout)["in_memory_bytes"]
        libraries = 32 * 2**20 + 4096
        self.write("budget", f"{libraries + (room - libraries) // 8 * 5 // 4096 * 4096}B".encode())

    def python(self, script):
        """Runs a program that begins with an import of the claims."""
        begin = f"import json, sys; sys.path.insert(0, {os.path.join(ROOT, 'benchmarks')!r}); import gpu_claim; "
        return subprocess.run([sys.executable, "-c", begin + script], capture_output=True, text=True, env=self.where, check=False)

    def run_script(self, *more):
        """Returns exit code, output, and the result's path."""
        flags = ["--tiny", "--build", self.folder, "--out", self.path("out"), "--minutes", "120", *more]
        done = self.python(f"device = gpu_claim.scripts_device(); device.CHECKS = {CHECKED!r}; "
                           f"sys.argv[1:] = {flags!r}; sys.exit(device.main())")
        written = sorted(glob.glob(self.path("out") + "/*.json"))
        self.assertEqual(len(written), 1, done.stdout + done.stderr)
        return done.returncode, done.stdout + done.stderr, written[0]

    def test_every_phase_runs_and_says_what_it_left_out(self):
        code, said, path = self.run_script()
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        phases = found["phases"]
        self.assertEqual(tuple(phases), PHASES)
        self.assertEqual([name for name, phase in phases.items() if "failed" in phase], [], said)
        self.assertEqual(code, 0, said)
        self.assertEqual(phases["check"]["groups"], {
            "indices": "right", "wires": "right", **dict.fromkeys(LIBRARIES, "skipped")})
        for one in (*(f"check: {group}: skipped: " for group in LIBRARIES), "gpu_rows: ", "gpu_attention: ",
                    "gpt2-nano by PyTorch: "):
            self.assertTrue(any(skipped.startswith(one) for skipped in found["skipped"]), (one, found["skipped"]))
        self.assertEqual([one for one in found["skipped"] if one.startswith(("bits", "memory", "offload", "profile"))], [])
        end = said[said.index("things were skipped"):]
        for one in found["skipped"]:
            self.assertIn(one, end)
        self.goals_are_told(phases["kernels"], end)
        self.rows_are_right(phases, found["datasheet"]["bf16_flops_per_s"])
        self.claims_can_be_judged(path)
        self.profile_can_be_taken_out(path)

    def test_a_large_model_is_compared_with_itself_in_memory(self):
        code, said, path = self.run_script("--only", "large")
        self.assertEqual(code, 0, said)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual((tuple(found["phases"]), found["skipped"]), (("large",), []))
        row = found["phases"]["large"]["rows"]["gpt2-nano in 64 MiB"]
        self.assertEqual((row["hash"], row["losses"]), (row["in_memory"]["hash"], row["in_memory"]["losses"]))
        self.assertEqual(row["peak_bytes"], row["predicted_peak_bytes"])
        self.assertGreater(row["peak_bytes"]["host"], 0)
        self.assertAlmostEqual(row["share_of_memory_speed"], row["tokens_per_second"] / row["in_memory"]["tokens_per_second"])

    def goals_are_told(self, kernels, said):
        """Every measured pass is reported as below its copy."""
        rows = [row for row in kernels["rows"].get("gpu_rows", []) if row["is_below_goal"]]
        self.assertEqual(len(kernels["below_goals"]), len(rows))
        for row, one in zip(rows, kernels["below_goals"]):
            self.assertTrue(one.startswith(f"gpu_rows {row['shape']}: ") and "BELOW its goal" in one, one)
            self.assertIn(one, said)

    def rows_are_right(self, phases, peak):
        alone, default = (phases["memory"][kind]["gpt2-nano"] for kind in ("rows", "by_default"))
        streamed = phases["offload"]["rows"]["gpt2-nano at 50 %"]
        for row in (alone, default, streamed):
            self.assertEqual((row["hash"], row["losses"]), (alone["hash"], alone["losses"]))
            self.assertEqual(row["peak_bytes"], row["predicted_peak_bytes"])
            self.assertEqual(len(row["seconds"]), 3)
        self.assertEqual((sum(alone["link_bytes"].values()), alone["peak_bytes"]["host"]), (0, 0))
        self.assertGreater(sum(streamed["link_bytes"].values()), 0)
        utilised = alone["utilisation"]
        self.assertAlmostEqual(utilised["of_datasheet"], alone["tokens_per_second"] * utilised["flops_per_token"] / peak)
        self.assertEqual(utilised["of_datasheet"], utilised["of_measured_roof"])  # both are the datasheet's

    def claims_can_be_judged(self, result):
        """Whatever the figures are: nothing is missing except what this machine lacks."""
        done = self.python(f"found = json.load(open({result!r})); print(json.dumps([gpu_claim.speed(found, ['gpt2-nano']), "
                           "gpu_claim.offload(found, 'gpt2-nano at 50 %'), gpu_claim.facts(found), gpu_claim.bits(found)]))")
        self.assertEqual(done.returncode, 0, done.stderr)
        speed, offload, facts, bits = json.loads(done.stdout)
        self.assertEqual(bits[1:], [[], []])
        self.assertEqual((speed[2], offload[2]), (["gpt2-nano by PyTorch"], []))
        without = [] if os.path.isfile(self.path("benchmarks", "bench_probe")) else [
            "the host's memory by threads", "kernels that copy"]
        self.assertEqual((facts[1:]), [[], without])

    def test_groups_of_libraries_that_are_not_here_are_not_right(self):
        done = subprocess.run([self.path("tests/cuda/gpu-check"), *LIBRARIES], capture_output=True, text=True, env=self.where,
                              check=True)
        for group, missing in zip(LIBRARIES, ("cuDNN is", "cuBLASLt is", "cuBLASLt and cuDNN are")):
            self.assertIn(f"{group:16} skipped: {missing} not on this machine\n", done.stdout)
        done = self.python(f"print(json.dumps(gpu_claim.kernels(('indices', *{LIBRARIES!r}), {self.folder!r}, 'true')))")
        words, missed, unmeasured = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((words[0], missed), ("1 of 4 groups right", []))
        self.assertEqual([one.split()[0] for one in unmeasured], list(LIBRARIES))

    def test_the_claim_of_predictions_runs_by_itself(self):
        case = ("gpt2-nano", 257, 16, 2, 2, 6, 0.5)
        done = self.python(f"print(json.dumps(gpu_claim.prediction([{case!r}], [{case[:3] + (4,) + case[4:6] + (None,)!r}], "
                           f"build={self.folder!r})))")
        self.assertEqual(done.returncode, 0, done.stderr)
        prediction = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(prediction[2], [], done.stdout)
        self.assertIn(" 0 peaks differ", prediction[0][0])

    def profile_can_be_taken_out(self, result):
        done = subprocess.run([os.path.join(ROOT, "scripts", "device-profile"), result, self.path("taken")], capture_output=True,
                              text=True, check=True)
        path = done.stdout.strip()
        plan = [os.path.join(GPU, "as_measured"), "plan", self.path("model"), "--sequence", "16", "--device", "cuda:0", "--json",
                "--profile", path]
        said = json.loads(subprocess.run(plan, capture_output=True, text=True, check=True, env=self.where).stdout)
        self.assertFalse(said["profile"]["what_if"])
        with open(result, encoding="utf-8") as file:
            found = json.load(file)
        del found["phases"]["profile"]["files"]
        self.write("none.json", json.dumps(found).encode())
        done = subprocess.run([os.path.join(ROOT, "scripts", "device-profile"), self.path("none.json"), self.path("taken")],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("--only profile", done.stderr)


if __name__ == "__main__":
    unittest.main()
