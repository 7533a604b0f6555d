"""A training loop of one's own with the library's note (own_loop.c): the program evaluates, generates from, exports and inspects its
checkpoint, and resumes it with the bits of one long run of its own."""
import os
import subprocess
import unittest

from program import TrainTest, run

FLAGS = ["--sequence", 16, "--batch", 4, "--micro-batch", 2, "--dtype", "f32", "--warmup", 1]
LOOP = os.environ["COH_OWN_LOOP"]


class OwnLoop(TrainTest):
    def loop(self, *arguments):
        return subprocess.run([LOOP, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)

    def data(self):
        path = self.path("data.tokens")
        if not os.path.exists(path):
            self.succeeds("tokenize", "--tokenizer", "bytes", self.corpus(), "-o", path)
        return path

    def saved(self, *more, steps=6, before=3):
        path = self.path("own")
        done = self.loop(self.data(), path, steps, before, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def test_train_goes_on_with_the_bits_of_one_long_run(self):
        own, whole = self.saved(), self.path("whole")
        half = self.succeeds("train", "gpt2-nano", "--data", self.data(), *FLAGS, "--steps", 6, "--save", whole, "--save-every", 3)
        self.assertIn("gpt2-nano", half.err)
        self.assertEqual(self.hash_of(own), self.hash_of(os.path.join(whole, "step-3")))
        self.succeeds("train", "--resume", own, "--save", self.path("goes-on"))
        self.assertEqual(self.hash_of(os.path.join(self.path("goes-on"), "step-6")), self.hash_of(os.path.join(whole, "step-6")))

    def test_eval_generate_export_and_inspect_read_it(self):
        own = self.saved(self.path("bare"))
        held = self.write("held.txt", "line 4: the 2th of many\n" * 20)
        loss = self.succeeds("eval", own, "--data", held, "--json").json
        self.assertLess(loss["loss"], 5.6)
        text = self.succeeds("generate", own, "--prompt", "line ", "--tokens", 8, "--temperature", 0)
        self.assertTrue(text.out.startswith("line "))
        self.succeeds("export", own, "-o", self.path("folder"))
        again = self.succeeds("eval", self.path("folder"), "--tokenizer", "bytes", "--sequence", 16, "--data", held, "--dtype",
                              "f32", "--json").json
        self.assertAlmostEqual(again["loss"], loss["loss"], places=5)
        self.assertIn("step 3", " ".join(self.succeeds("inspect", own).out.split()))
        self.assertIn("no note: ", self.succeeds("inspect", self.path("bare")).out)

    def test_its_mistakes_are_named(self):
        done = self.loop(self.data(), self.path("none"), 0, 0)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("'steps'", done.stderr)
        self.assertFalse(os.path.exists(self.path("none")))
        os.remove(self.data())
        own = self.path("without")
        self.succeeds("tokenize", "--tokenizer", "bytes", self.corpus(), "-o", self.path("data.tokens"))
        self.assertEqual(self.loop(self.path("data.tokens"), own, 6, 3).returncode, 0)
        os.remove(self.path("data.tokens"))
        said = run("train", "--resume", own, "--save", self.path("never"))
        self.assertNotEqual(said.code, 0)
        self.assertIn("give it with --data", said.err)


if __name__ == "__main__":
    unittest.main()
