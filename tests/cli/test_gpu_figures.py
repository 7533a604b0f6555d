"""The rows that the GPU benchmarks print, on a played GPU with played libraries: each row's rates, ratios and fractions
of roofs follow from its turns and from the work, which is counted again here. Also what is left out if a library is
missing. Speeds are not checked."""

import json
import os
import statistics
import subprocess
import unittest

BENCHMARKS, GPU, LIBRARIES = (os.environ[name] for name in ("COH_BENCHMARKS", "COH_EMULATED_GPU", "COH_PLAYED_LIBRARIES"))
DIVISOR = 256
PRODUCTS = {  # rows, columns, depth, undivided
    "124M up": (8192, 3072, 768), "124M up dx": (8192, 768, 3072), "124M up dw": (3072, 768, 8192),
    "7B qkv": (8192, 4096, 4096), "7B up": (8192, 11008, 4096), "7B up dx": (8192, 4096, 11008),
    "7B up dw": (11008, 4096, 8192), "classifier": (16384, 1024, 4096), "8192 cubed": (8192, 8192, 8192),
}
EPILOGUES = ("124M up", "7B up")
HEADS = {"124M": (1024, 12, 64), "XL": (1024, 25, 64), "7B": (2048, 32, 128), "8B grouped": (2048, 32, 128)}  # T, H, D
ROW_ELEMENTS, ROW_C = 1024, 128  # in gpu_rows: one tensor, which is one sequence
# Bytes per element that a pass moves, in f32 and (alone) in bf16; the table of positions counts as a tensor.
OF_TYPE = {"norm": 2, "norm backward": 3, "norm backward 1024": 3, "rms norm": 2, "rms norm backward": 3, "gelu": 2,
           "gelu backward": 3, "gelu gradient": 3, "gelu of rows": 2, "relu": 2, "relu backward": 3, "relu gradient": 3,
           "swiglu": 3, "swiglu backward": 5, "geglu": 3, "geglu backward": 5, "scale": 2, "copy": 2, "add": 3, "dropout": 3, "rope": 2, "position": 3,
           "position backward": 2, "embedding": 2, "embedding backward": 2,
           "embedding backward of common tokens": 2, "classifier loss": 1, "classifier gradient": 2,
           "attention decode": 2, "column sum": 1, "square sums": 1, "half of rows": 1, "row mean": 1, "row mean backward": 1,
           "column mean": 1, "softmax": 2, "softmax backward": 3, "cross-entropy": 1, "squared error": 2,
           "squared error backward": 3, "fold of four ranks": 5}
PASSES = {**{f"{name} {dtype}": count * bytes_ for name, count in OF_TYPE.items() for dtype, bytes_ in (("f32", 4), ("bf16", 2))},
          "round f32": 4 + 4, "round bf16": 4 + 2,
          "update f32": 4 * (2 + 1 + 2 + 2),  # work and both moments are read and written, the gradient is read
          "update bf16": 2 * (2 + 1) + 2 * 2 + 4 * (2 + 2),  # and a master's lower half
          "update of adamw8 f32": 4 * (2 + 1) + 2 + 2, "update of adamw8 bf16": 2 * (2 + 1) + 2 * 2 + 2 + 2,
          "update of adamw8sr f32": 4 * (2 + 1) + 2 + 2, "update of adamw8sr bf16": 2 * (2 + 1) + 2 + 2,
          **{f"update of {name} f32": 4 * (2 + 1 + 2) for name in ("lion", "sgd")},
          **{f"update of {name} bf16": 2 * (2 + 1) + 2 * 2 + 4 * 2 for name in ("lion", "sgd")},
          "soft cap bf16": 4 + 4,
          **{f"weights in 4 bits {dtype}": bytes_ + 34 / 64 for dtype, bytes_ in (("f32", 4), ("bf16", 2))},
          **{f"wire {way}, int8 {dtype}": bytes_ + 1 for way in ("pack", "unpack") for dtype, bytes_ in (("f32", 4), ("bf16", 2))}}


def run(name, *arguments, libraries=LIBRARIES, gpu=GPU):
    """Returns exit code, rows, and the messages."""
    program = os.path.join(BENCHMARKS, "bench_" + name)
    where = {**os.environ, "LD_LIBRARY_PATH": gpu, "COH_CUDA_LIBRARIES": libraries, "COH_EMULATED_SEED": "1",
             **({} if gpu else {"CUDA_VISIBLE_DEVICES": ""})}
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, env=where, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def divided(size):
    return -(-(size // DIVISOR) // 16) * 16


class Figures:
    def near(self, found, wanted, what, decimals=None):
        """Equal to the printed digits: four significant, or that many after the point."""
        bound = 0.51 * 10**-decimals if decimals else 1e-3 * abs(wanted)
        self.assertLessEqual(abs(found - wanted), bound + 1e-3 * abs(wanted), what)

    def row_is_right(self, row, giga):
        """giga: FLOP or bytes of one call, in 10^9, counted independently."""
        ours, ceiling = row["ours_turns_s"], row["ceiling_turns_s"]
        ratios = [b / a for a, b in zip(ours, ceiling)]
        self.assertEqual((len(ours), len(ceiling), row["pairs"]), (9, 9, 9), row)
        self.near(row["median"], giga / statistics.median(ours), row)
        self.near(row["ceiling"], giga / statistics.median(ceiling), row)
        self.near(row["ratio"], statistics.median(ratios), row, 3)
        if "roof" in row:
            self.near(row["of_roof"], giga / statistics.median(ours) / row["roof"], row, 3)
        if "goal" in row:
            self.assertEqual(row["is_below_goal"], sum(ratio < row["goal"] for ratio in ratios) >= 8, row)

    def roof_is_right(self, row, sizes):
        self.assertIn(row["size"], [divided(size) for size in sizes])
        self.near(row["median"], 2e-9 * row["size"]**3 / row["seconds"], row)
        return row["median"]

    def rows_by_shape(self, rows, wanted):
        found = {row["shape"]: row for row in rows}
        self.assertEqual(sorted(found), sorted(wanted))
        self.assertEqual(len(rows), len(found))
        return found


class Products(Figures, unittest.TestCase):
    def test_every_kernel_is_in_a_pass_or_left_out(self):
        """gpu_rows compares its lists with the kernels before it looks for a GPU."""
        code, _, said = run("gpu_rows", gpu="")
        self.assertEqual(code, 77, said)

    def test_products_are_parts_of_the_roof_and_of_the_bare_call(self):
        code, rows, said = run("gpu_products", DIVISOR)
        self.assertEqual(code, 0, said)
        names = [f"{shape} {dtype}" for shape in PRODUCTS for dtype in ("bf16", "f32")]
        fused = [f"{shape} gelu bf16 against its epilogue" for shape in EPILOGUES]
        found = self.rows_by_shape(rows, [*names, *(name + ", own kernel" for name in names), *fused, "roof bf16", "roof f32"])
        roofs = {dtype: self.roof_is_right(found["roof " + dtype], (4096, 8192, 16384)) for dtype in ("bf16", "f32")}
        for name in names:
            shape, _, dtype = name.rpartition(" ")
            rows, columns, depth = map(divided, PRODUCTS[shape])
            coh, own = found[name], found[name + ", own kernel"]
            for row in (coh, own):
                self.row_is_right(row, 2e-9 * rows * columns * depth)
                self.assertEqual(row["roof"], roofs[dtype])
            self.assertEqual((coh["goal"], "goal" in own), (0.95, False))
            self.assertEqual(coh["ceiling_turns_s"], own["ceiling_turns_s"])  # both are compared with one direct call
            self.assertNotEqual(coh["ours_turns_s"], own["ours_turns_s"])
        for name in fused:
            rows, columns, depth = map(divided, PRODUCTS[name.partition(" gelu")[0]])
            self.row_is_right(found[name], 2e-9 * rows * columns * depth)

    def test_what_is_not_here_is_said(self):
        for name, library in (("gpu_products", "cuBLASLt"), ("gpu_attention", "cuDNN")):
            self.assertEqual(run(name, DIVISOR, libraries="none"),
                             (77, [], f"{name}: {library} is not on this machine\n"))


class OwnKernels(Figures, unittest.TestCase):
    """They are emulated, which takes a minute."""

    def test_attention_is_a_part_of_the_roof_and_of_all_of_cudnn(self):
        code, rows, said = run("gpu_attention", DIVISOR)
        self.assertEqual(code, 0, said)
        names = [f"{heads} {way}" for heads in HEADS for way in ("forward", "backward")]
        by_atomics = [name + ", by atomics against the cut" for name in names if name.endswith("backward")]
        found = self.rows_by_shape(rows, [*names, *(name + ", own kernels" for name in names), *by_atomics, "roof bf16"])
        roof = self.roof_is_right(found["roof bf16"], (4096, 8192, 16384))
        for name in names:
            heads, _, way = name.rpartition(" ")
            tokens, count, width = HEADS[heads]
            tokens //= DIVISOR  # of one sequence: half of the square, for two products or five
            giga = 1e-9 * (2 if way == "forward" else 5) * 2 * count * width * tokens**2 / 2
            coh, own = found[name], found[name + ", own kernels"]
            atomic = [found[one] for one in by_atomics if one.startswith(name + ",")]
            for row in (coh, own, *atomic):
                self.row_is_right(row, giga)
                self.assertEqual(row["roof"], roof)
            self.assertEqual((coh["goal"], "goal" in own), (1, False))
            self.assertEqual(coh["ceiling_turns_s"], own["ceiling_turns_s"])
            for row in atomic:  # compared with a run without them
                self.assertEqual(row["ceiling_turns_s"], coh["ours_turns_s"])

    def test_passes_are_parts_of_a_copy_of_what_they_must_move(self):
        code, rows, said = run("gpu_rows", ROW_C, ROW_ELEMENTS, libraries="none")
        self.assertEqual(code, 0, said)
        found = self.rows_by_shape(rows, PASSES)
        for name, bytes_ in PASSES.items():
            self.row_is_right(found[name], 1e-9 * ROW_ELEMENTS * bytes_)
            self.assertEqual(found[name]["goal"], 0.9)
        left_out = [line for line in said.splitlines() if line.startswith("gpu_rows: ")]
        self.assertEqual(left_out, [f"gpu_rows: norm backward {columns} {dtype}: a row is longer than {ROW_ELEMENTS} elements"
                                    for dtype in ("f32", "bf16") for columns in (8192, 16384)])


if __name__ == "__main__":
    unittest.main()
