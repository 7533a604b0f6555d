"""Malformed files: one clear message, exit 4, no crash, nothing left.

The cases are those of the library's own tests, with the verdicts of the reference readers; here the whole program reads
them."""

import json
import os
import shutil
import unittest

import model_folder
from program import ProgramTest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = os.path.join(TESTS, "models", "fixtures")
REFUSED_TOKENIZERS = os.path.join(TESTS, "text", "fixtures", "refused.json")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Malformed(ProgramTest):
    def assert_bad_data(self, *arguments, says):
        done = self.fails(4, *arguments, says=says)
        lines = done.err.strip().split("\n")
        self.assertEqual(len(lines), 1, lines)
        self.assertLess(len(lines[0]), 1100)
        self.assertFalse([c for c in lines[0] if ord(c) < 0x20 or 0x7f <= ord(c) < 0xa0], lines[0])

    def test_safetensors(self):
        folder = self.path("model")
        model_folder.make(folder, "gpt2")
        with open(os.path.join(MODELS, "safetensors_cases.txt"), encoding="ascii") as file:
            cases = [line.rstrip("\n").split("\t") for line in file]
        wrong = [(name, ours, bytes.fromhex(content)) for name, _, ours, content in cases if ours != "ok"]
        self.assertGreater(len(wrong), 100)
        for name, says, content in wrong:
            with self.subTest(case=name):
                self.write("model/model.safetensors", content)
                self.assert_bad_data("inspect", folder, says=says)

    def test_configurations(self):
        folder = self.path("model")
        model_folder.make(folder, "gpt2")
        cases = load(os.path.join(MODELS, "refused_configs.json"))["cases"]
        self.assertGreaterEqual(len(cases), 20)
        for case in cases:
            with self.subTest(case=case["case"]):
                self.write("model/config.json", (case["text"] * case.get("repeat", 1)).encode("latin-1"))
                self.assert_bad_data("inspect", folder, says=case["word"])

    def test_tokenizers(self):
        text, out = self.write("text.txt", "a few words\n"), self.path("out")
        cases = load(REFUSED_TOKENIZERS)
        self.assertGreaterEqual(len(cases), 20)
        for case in cases:
            with self.subTest(case=case):
                folder = self.path("tokenizer")
                shutil.copytree(os.path.join(model_folder.TOKENIZERS, case["fixture"]), folder, dirs_exist_ok=True)
                path = os.path.join(folder, case["file"])
                with open(path, "rb") as file:
                    content = file.read()
                if "tail" in case:
                    content += bytes.fromhex(case["tail"])
                else:
                    self.assertIn(case["find"].encode(), content)
                    content = content.replace(case["find"].encode(), case["replacement"].encode(), 1)
                self.write(os.path.join("tokenizer", case["file"]), content)
                self.assert_bad_data("tokenize", text, "-o", out, "--tokenizer", folder, says=case["sentence"])
                self.assertFalse(os.path.exists(out))
                shutil.rmtree(folder)


if __name__ == "__main__":
    unittest.main()
