"""Text, token files and windows. The oracle is the text itself, or `cohobate tokenize`. Run as
`test_data.py PATH-OF-COHOBATE`."""
import json
import pathlib
import unittest
from array import array

from package_test import PackageTest, cohobate


def numbers(values):
    return memoryview(values).tolist()


class Data(PackageTest):
    def test_ids_of_a_file_are_the_bytes_of_its_text(self):
        text = pathlib.Path(self.text).read_bytes()
        self.assertEqual(len(self.data), len(text))
        self.assertEqual(numbers(self.data.read(3, 20)), list(text[3:23]))
        self.assertEqual(list(self.data.read(0, 0)), [])
        self.data.check()
        with self.assertRaisesRegex(cohobate.Error, "ids"):
            self.data.read(len(text) - 1, 2)

    def test_batches_are_those_of_the_steps_one_after_the_other(self):
        found = [tuple(map(numbers, pair)) for pair in self.data.batches(2, 16, start=3, stop=6, seed=7)]
        self.assertEqual(found, [tuple(map(numbers, self.data.batch(step, 2, 16, seed=7))) for step in (3, 4, 5)])
        endless = self.data.batches(2, 16)
        windows = self.data.window_count(16)
        first_pass = [next(endless)[0] for _ in range(windows // 2 + 1)]
        self.assertGreater(2 * len(first_pass), windows)

    def test_stretches_follow_one_another_to_the_end_of_the_text(self):
        text = list(pathlib.Path(self.text).read_bytes())
        seen, begin = [], 0
        while begin < len(text):
            tokens, targets = map(numbers, self.data.stretch(begin, 3, 16))
            for row, row_targets in zip(tokens, targets):
                for token, target in zip(row, row_targets):
                    if target >= 0:
                        self.assertEqual((token, target), (text[len(seen)], text[len(seen) + 1]))
                        seen.append(token)
            begin += 3 * 16
        self.assertEqual(seen, text[:-1])

    def test_a_tokenizer_may_be_given_by_its_name(self):
        with cohobate.Tokenizer() as tokenizer:
            count = cohobate.tokenize(tokenizer, self.text, self.path("by-object.tokens"))
        self.assertEqual(cohobate.tokenize("bytes", self.text, self.path("by-name.tokens")), count)

    def test_lines_of_json_and_conversations_become_documents(self):
        lines = "".join(json.dumps({"body": f"text {i}"}) + "\n" for i in range(40))
        with cohobate.Tokenizer() as tokenizer:
            end = tokenizer.end_of_text
            count = cohobate.tokenize(tokenizer, self.write("lines.jsonl", lines), self.path("lines.tokens"), form="jsonl",
                                      field="body", validation_split=0.25, held_out_path=self.path("held.tokens"))
            with cohobate.TokenFile(self.path("lines.tokens")) as data, cohobate.TokenFile(self.path("held.tokens")) as held:
                self.assertEqual(count, len(data))
                documents = []
                for file in (data, held):
                    ids = numbers(file.read(0, len(file)))
                    documents.append(bytes(10 if each == end else each for each in ids).decode().split("\n")[:-1])
                self.assertEqual(sorted(sum(documents, [])), sorted(f"text {i}" for i in range(40)))
                self.assertTrue(0 < len(documents[1]) < 20, documents)
            turns = [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "answer"}]
            cohobate.tokenize(tokenizer, self.write("chat.jsonl", json.dumps({"messages": turns}) + "\n"),
                              self.path("chat.tokens"), form="chat", chat_form="plain", window=64)
            with cohobate.TokenFile(self.path("chat.tokens")) as data:
                tokens, targets = data.batch(0, 1, 64)
                said = bytes(target for target in numbers(targets)[0] if 0 <= target < 256)
                self.assertEqual((said.strip(), data.facts.has_mask, data.facts.window), (b"answer", 1, 64))
            for wrong, says in (({"form": "xml"}, "form 'xml' is not one of text, jsonl, chat"),
                                ({"chat_form": "other"}, "chat_form 'other' is not one of auto, chatml")):
                with self.assertRaisesRegex(ValueError, says):
                    cohobate.tokenize(tokenizer, self.text, self.path("wrong"), **wrong)

    def test_an_option_that_a_form_has_no_use_for_is_refused(self):
        lines = self.write("lines.jsonl", '{"text": "a text"}\n' * 40)
        for says, text, wrong in (
                ("field is for form='jsonl', and the form is 'text'", self.text, {"field": "body"}),
                ("field is for form='jsonl', and the form is 'chat'", lines, {"field": "body", "form": "chat"}),
                ("chat_form is for form='chat', and the form is 'jsonl'", lines, {"chat_form": "plain", "form": "jsonl"}),
                ("chat_form is for form='chat', and the form is 'text'", self.text, {"chat_form": "plain"}),
                ("skip_bad is for form='jsonl' or form='chat', and the form is 'text'", self.text, {"skip_bad": True}),
                ("held_out_path goes with validation_split", self.text, {"held_out_path": self.path("held")}),
                ("held_out_path goes with validation_split", self.text, {"validation_split": 0.1})):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, says):
                cohobate.tokenize("bytes", text, self.path("wrong"), **wrong)
            self.assertFalse(pathlib.Path(self.path("wrong")).exists())

    def test_what_a_token_file_lacks_is_told_in_the_words_of_the_program(self):
        """In cut conversations a window is the program's --sequence."""
        turns = [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "answer " * 20}]
        self.write("bad.jsonl", '{"text": "a \\ud800"}\n{"body": 4}\n' + '{"text": "more"}\n' * 9)
        self.write("chat.jsonl", (json.dumps({"messages": turns}) + "\n") * 2)
        pathlib.Path(self.path("folder")).mkdir()
        for name, content in (("a.txt", b"text"), ("b.bin", b"\0"), ("c.jsonl", b"{}"), ("README.json", b"{}")):
            pathlib.Path(self.path("folder", name)).write_bytes(content)
        pathlib.Path(self.path("lines")).mkdir()
        for name in ("a.jsonl", "b.txt"):
            pathlib.Path(self.path("lines", name)).write_text('{"text": "a"}\n')
        for name, form, flags, options in (
                ("bad.jsonl", "jsonl", ["--skip-bad"], {"skip_bad": True}),
                ("bad.jsonl", "jsonl", ["--skip-bad", "--validation-split", 0.5, "--held-out-file", self.path("held")],
                 {"skip_bad": True, "validation_split": 0.5, "held_out_path": self.path("held")}),
                ("chat.jsonl", "chat", ["--chat", "--chat-form", "plain", "--documents", "aligned", "--sequence", 16],
                 {"chat_form": "plain", "window": 16}),
                ("corpus.txt", "text", ["--validation-split", 0.1, "--held-out-file", self.path("held")],
                 {"validation_split": 0.1, "held_out_path": self.path("held")}),
                ("folder", "text", [], {}), ("lines", "jsonl", ["--field", "text"], {})):
            with self.subTest(name=name, flags=flags), self.assertLogs("cohobate", "INFO") as logs:
                made = self.path("made.tokens")
                count = cohobate.tokenize("bytes", self.path(name), made, form=form, **options)
                self.assertEqual(count, len(cohobate.TokenFile(made)))
                done = self.succeeds("tokenize", self.path(name), "-o", made, "--tokenizer", "bytes", *flags)
                said = done.err
                for flag, mine in (("--sequence ", "window="), ("--field NAME (or --chat)", 'form="jsonl" or "chat"'),
                                   ("--field NAME", "field NAME")):
                    said = said.replace(flag, mine)
                for record in logs.records:
                    self.assertIn(record.getMessage(), said)
                self.assertEqual(len(logs.records), said.count(f"{self.path(name)}: "), done.err)

    def test_ids_of_another_program_are_read_in_place(self):
        path = self.write("ids.bin", array("H", range(100)).tobytes())
        with cohobate.TokenFile(path, id_bytes=2, vocabulary=128) as data:
            self.assertEqual((numbers(data.read(0, 100)), data.facts.vocabulary), (list(range(100)), 128))
        with self.assertRaises(cohobate.Error):
            cohobate.TokenFile(path)
        for id_bytes in (0, 2, 4):
            with self.assertRaisesRegex(cohobate.Error, "corpus.tokens is a token file, .*: leave id_bytes out$"):
                cohobate.TokenFile(self.path("corpus.tokens"), id_bytes=id_bytes)

    def test_a_mixture_has_each_file_as_often_as_asked_for(self):
        first, second = list(range(97, 123)) * 8, list(b"0123456789" * 30)
        paths = [self.path("first.tokens"), self.path("second.tokens")]
        for path, ids in zip(paths, (first, second)):
            cohobate.tokenize("bytes", self.write(path + ".txt", bytes(ids).decode()), path)
        self.assertEqual(cohobate.mix([paths[0], (paths[1], 2)], self.path("mixed.tokens")), [len(first), 2 * len(second)])
        with cohobate.TokenFile(self.path("mixed.tokens")) as mixed:
            self.assertEqual(numbers(mixed.read(0, len(mixed))), first + 2 * second)
        for seed in (1, 1, 2):
            self.assertEqual(cohobate.mix([(paths[0], 0.5)], self.path(f"{seed}.tokens"), seed=seed), [len(first) // 2])
        for wrong, says in (([], "at least one"), ([(paths[0], 0)], "0 times"), ([self.path("none")], "none")):
            with self.assertRaisesRegex(cohobate.Error, says):
                cohobate.mix(wrong, self.path("wrong.tokens"))
        self.assertFalse(pathlib.Path(self.path("wrong.tokens")).exists())

    def test_a_tokenizer_has_its_special_ids(self):
        with cohobate.Tokenizer("bytes") as tokenizer:
            self.assertEqual((tokenizer.end_of_text, tokenizer.begin_of_text, tokenizer.around), (256, -1, ([], [])))
            self.assertEqual(tokenizer.token_id("<|nothing|>"), -1)
            self.assertEqual(tokenizer.identity, self.data.facts.tokenizer_identity)


if __name__ == "__main__":
    unittest.main()
