"""PackageTest: the base of the package's tests. It has a corpus, its token file and a small model.

Each test file runs as `test_x.py PATH-OF-COHOBATE`, with the library's path in COHOBATE_LIBRARY. With
NumPy installed, batches and parameters are NumPy's arrays, else memoryviews; every claim holds for
both."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "cli")]

import cohobate  # noqa: E402
from program import ProgramTest  # noqa: E402

BATCH, SEQUENCE, RATE = 4, 16, 1e-3
SIZES = {"micro_batch": 2, "search": "quick", "threads": 2}
SAME = ["--batch", BATCH, "--micro-batch", 2, "--sequence", SEQUENCE, "--lr", RATE, "--min-lr", RATE,
        "--warmup", 0, "--dtype", "f32", "--search", "quick", "--threads", 2, "--tokenizer", "bytes"]


def hash_of(engine):
    return f"{engine.hash():016x}"


class PackageTest(ProgramTest):
    preset = "gpt2-nano"

    def setUp(self):
        super().setUp()
        self.text = self.corpus()
        with cohobate.Tokenizer("bytes") as tokenizer:
            cohobate.tokenize(tokenizer, self.text, self.path("corpus.tokens"))
            self.vocabulary = tokenizer.vocabulary
        self.data = cohobate.TokenFile(self.path("corpus.tokens"))
        self.addCleanup(self.data.close)

    def model(self, **options):
        return cohobate.Model(self.preset, vocabulary=self.vocabulary, **options)

    def plan(self, **options):
        return self.model().plan(BATCH, SEQUENCE, **{**SIZES, **options})

    def batch(self, step):
        return self.data.batch(step, BATCH, SEQUENCE)

    def steps(self, engine, *numbers):
        return [engine.step(*self.batch(step), RATE).loss for step in numbers]

    def program_hash(self, steps, *more, model=None):
        return self.says_hash(self.succeeds("train", model or self.preset, "--data", self.text, *SAME,
                                            "--steps", steps, *more))
