"""Forms in which data sets come, through the program: arrays, other forms of conversations, compressed files, one text
that is cut for validation, and how much of the data a run reads. The expected ids are those of the same texts as plain
lines, or of files cut by hand here."""

import bz2
import gzip
import json
import lzma
import os
import subprocess
import unittest

import model_folder
from program import SHORT, TINY, ProgramTest
from test_data import CHATS, END, TokenFile, plain_chat

ZSTD = b"\x28\xb5\x2f\xfd\x24\x05"
PARQUET = b"PAR1\x15\x04\x15\x20\x15\x24\x4c\x15\x02\x15\x00"


class DataForms(ProgramTest):
    def tokenize(self, *arguments):
        self.succeeds("tokenize", *arguments, "-o", self.path("out.tokens"))
        self.succeeds("check", self.path("out.tokens"))
        file = TokenFile(self.path("out.tokens"))
        return file.ids, file.counts

    def lines(self, objects, name="data.jsonl"):
        return self.write(name, "".join(json.dumps(each) + "\n" for each in objects))

    # ---- conversations ----

    def messages(self, chat, keys=("role", "content"), names=None):
        return [dict(zip(keys, ((names or {}).get(role, role), content))) for role, content in chat]

    def test_conversations_of_other_forms_are_those_of_their_messages(self):
        expected = [plain_chat(chat) for chat in CHATS]
        for objects in ([{"messages": self.messages(chat)} for chat in CHATS],
                        [{"conversations": self.messages(chat, ("from", "value"), {"user": "human", "assistant": "gpt"})} for chat in CHATS],
                        [{"conversations": self.messages(chat), "messages": None} for chat in CHATS],
                        [{"messages": [{"role": role, "content": [{"type": "text", "text": text[:1]}, {"type": "text", "text": text[1:]}]}
                                       for role, text in chat]} for chat in CHATS]):
            with self.subTest(objects=objects):
                ids, counts = self.tokenize(self.lines(objects), "--chat")
                self.assertEqual(ids, [each for ids, _ in expected for each in ids])
                self.assertEqual(counts, [each for _, counts in expected for each in counts])

    def test_pairs_are_a_question_and_its_answer(self):
        ids, counts = plain_chat([("user", "Add\n1, 2"), ("assistant", "3")])
        for pair in ({"prompt": "Add\n1, 2", "completion": "3"}, {"instruction": "Add", "input": "1, 2", "output": "3"},
                     {"prompt": self.messages([("user", "Add\n1, 2")]), "completion": self.messages([("assistant", "3")])}):
            self.assertEqual(self.tokenize(self.lines([pair]), "--chat"), (ids, counts))
        two = self.lines([{"prompt": "a", "completion": "b", "instruction": "a", "output": "b"}])
        self.fails(4, "tokenize", two, "--chat", "-o", self.path("o"),
                   says=f'{two}:1: the object has "prompt" with "completion" and "instruction" with "output"')

    def test_a_conversation_that_is_read_as_a_field_names_chat(self):
        for objects, flags, says in (
                ([{"messages": self.messages(CHATS[0])}], [], '"messages" is a conversation, and the field "text" is missing'),
                ([{"messages": self.messages(CHATS[0])}], ["--field", "messages"], 'the field "messages" is an array'),
                ([{"prompt": "a", "completion": "b"}], [], '"prompt" with "completion" is a conversation, and the field "text" is missing: '
                                                           "learn the pair as text (--field prompt,completion), read conv"),
                ([{"prompt": "a", "completion": "b"}], ["--field", "prompt,response"],
                 'the field "response" is missing: learn the pair as text (--field prompt,completion), read conv'),
                ([{"prompt": self.messages([("user", "a")]), "completion": self.messages([("assistant", "b")])}], [],
                 'the field "text" is missing: read conv'),
                ([{"instruction": "a", "output": "b"}], ["--field", "body"], 'and the field "body" is missing')):
            path = self.lines(objects)
            for command in (["tokenize", path, "-o", self.path("o")], ["train", *TINY, "--data", path, "--save", "none"]):
                with self.subTest(command=command, flags=flags):
                    said = self.fails(4, *command, *flags, says=says).err
                    self.assertIn(f"{path}:1: ", said)
                    self.assertIn("read conversations (--chat), or name a field that holds a text (--field NAME)", said)
        self.assertEqual(self.tokenize(self.lines([{"text": "x", "messages": [1]}]))[0], [*b"x", 256])

    def test_the_texts_of_an_object_are_named_where_the_field_is_none_of_them(self):
        for line, field, says in (
                ({"prompt": "a", "id": 3, "answer": "b"}, "prompt,response", 'no field "response", and has "prompt", "answer": name the one'),
                ({"a": "", "b": "", "c": "", "d": "", "e": "", "f" * 70: ""}, "text", 'no field "text", and has "a", "b", "c", "d": name the one'),
                ({"id": 3}, "text", 'no field "text": name the one')):
            self.fails(4, "tokenize", self.lines([line]), "--field", field, "-o", self.path("o"), says=says)

    # ---- a prompt and its completion ----

    def test_of_a_prompt_and_its_completion_the_completion_and_the_end_count(self):
        """As text without a template. A token across the border is the completion's."""
        self.assertEqual(self.tokenize(self.lines([{"prompt": "q: ", "completion": "a"}, {"completion": "", "prompt": ""}]), "--field", "prompt,completion"),
                         ([*b"q: a", END, END], [0, 0, 0, 1, 1, 1]))
        for kind, begins in (("gpt2", 0), ("llama", 1)):
            model_folder.make(self.path(kind), kind)
            pairs, crossed = [("the cat sat on the mat"[:n], "the cat sat on the mat"[n:]) for n in range(23)], 0
            for prompt, completion in pairs:
                flags = ["--tokenizer", self.path(kind), "--field"]
                ids, counts = self.tokenize(self.lines([{"p": prompt, "c": completion}]), *flags, "p,c")
                whole, _ = self.tokenize(self.lines([{"text": prompt + completion}]), *flags, "text")
                alone = self.tokenize(self.lines([{"text": prompt}]), *flags, "text")[0][:-1]
                same = next((i for i, (a, b) in enumerate(zip(alone, whole)) if a != b), len(alone))
                self.assertEqual((ids, counts), (whole, [0] * same + [1] * (len(whole) - same)), (kind, prompt))
                self.assertGreaterEqual(same, begins)
                crossed += same < len(alone)
            self.assertGreater(crossed, 0, kind)

    def test_a_run_on_prompts_and_completions_goes_on_and_is_evaluated_alike(self):
        data, run = self.lines([{"p": f"{i} + {i} = ", "c": f"{2 * i}"} for i in range(60)]), self.path("run")
        form = ["--field", "p,c", "--documents", "aligned", "--validation-split", 0.3]
        whole = self.succeeds("train", *TINY, "--data", data, *form, "--steps", 4, "--save", "none", "--json").json
        self.succeeds("train", *TINY, "--data", data, *form, "--steps", 2, "--schedule-steps", 4, "--save", run)
        resumed = self.succeeds("train", "--resume", run, "--steps", 4, "--json").json
        self.assertEqual([resumed[key] for key in ("hash", "validation_loss")], [whole[key] for key in ("hash", "validation_loss")])
        told = self.succeeds("eval", run, "--data", data, "--json").json
        self.assertEqual(told["tokens"], sum(len(f"{2 * i}") + 1 for i in range(60)))
        for line, says in (({"p": "a"}, 'no field "c"'), ({"c": "a"}, 'no field "p"'), ({"p": 1, "c": "a"}, 'the field "p" is a number')):
            self.fails(4, "tokenize", self.lines([line], "bad.jsonl"), "--field", "p,c", "-o", self.path("o"), says=says)

    # ---- arrays ----

    def test_an_array_of_objects_is_as_good_as_lines(self):
        texts = [{"body": f"text {i} \u00e9\"\\[{{" * (i % 7)} for i in range(40)] + [{"body": "x" * 3_000_000}]
        expected = self.tokenize(self.lines(texts), "--field", "body")
        for name, indent in (("data.json", None), ("data.json", 2), ("data.jsonl", 1), ("data.txt", None)):
            path = self.write(name, json.dumps(texts, indent=indent))
            self.assertEqual(self.tokenize(path, "--field", "body"), expected, (name, indent))
        chats = [{"messages": self.messages(chat)} for chat in CHATS]
        self.assertEqual(self.tokenize(self.write("chats.json", "\ufeff\n" + json.dumps(chats, indent=4)), "--chat"),
                         self.tokenize(self.lines(chats), "--chat"))

    def test_a_bad_array_is_refused_with_its_line(self):
        for text, says in (('[\n{"text": "a"},\n{"text": 1}]', ':3: the field "text" is a number'),
                           ('[{"text": "a"}\n{"text": "b"}]', ":2: no comma before element 2"),
                           ('[{"text": "a"},\n"b"]', ":2: element 2 of the array is not a JSON object"),
                           ('[{"text": "a"},\n]', ":2: element 2 of the array is not a JSON object"),
                           ('[{"text": "a"},', ":1: the array does not end"),
                           ('[{"text": "a"}, {"text": "b', ":1: the object does not end"),
                           ('[{"text": "a"}]\n\n{"text": "b"}', ":3: the array ends, and more text is behind it"),
                           ('[\n\n{"text": "a" "b"}]', ":3: no JSON at byte"),
                           ("[ ]", "holds no line with an object")):
            path = self.write("bad.json", text)
            with self.subTest(text=text):
                self.assertIn(path + says if says[0] == ":" else says,
                              self.fails(4, "tokenize", path, "--field", "text", "-o", self.path("o")).err)
                self.assertFalse(os.path.exists(self.path("o")))

    def test_json_is_not_learned_as_text_by_mistake(self):
        run, text = self.path("run"), self.corpus()
        self.succeeds("train", *TINY, "--data", text, "--steps", 1, "--save", run)
        for content in ('[{"instruction": "a", "output": "b"}]', '\n {"text": "a"}\n{"text": "b"}\n'):
            path = self.write("alpaca.json", content * 20)
            for command in (["train", *TINY, "--data", path, "--save", "none"],
                            ["train", *TINY, "--data", text, "--validation", path, "--save", "none"],
                            ["eval", run, "--data", path], ["tokenize", path, "-o", self.path("o")],
                            ["tokenize", path, "--tokenizer", "bytes", "-o", self.path("o")]):
                with self.subTest(command=command):
                    said = self.fails(4, *command, says=f"{path} is JSON, and would be learned as it is").err
                    self.assertIn("add --field NAME", said)
                    self.assertIn("--chat", said)
                    self.assertEqual(said.count("\n"), 1)
        os.rename(path, self.path("alpaca.txt"))
        self.succeeds("tokenize", self.path("alpaca.txt"), "-o", self.path("o"))
        self.succeeds("tokenize", self.write("poem.json", "roses"), "-o", self.path("o"))

    # ---- files that are no text ----

    def test_a_compressed_file_is_named_with_the_command_that_unpacks_it(self):
        run, text = self.path("run"), self.corpus()
        self.succeeds("train", *TINY, "--data", text, "--steps", 1, "--save", run)
        lines = b'{"text": "some words"}\n' * 40
        for name, content, says, command in (
                ("t.jsonl.gz", gzip.compress(lines), "is compressed by gzip", "gunzip -c {0} > {1}"),
                ("t.jsonl.bz2", bz2.compress(lines), "is compressed by bzip2", "bunzip2 -c {0} > {1}"),
                ("t.jsonl.xz", lzma.compress(lines), "is compressed by xz", "xz -dc {0} > {1}"),
                ("t.jsonl.zst", ZSTD + lines, "is compressed by zstd", "zstd -dc {0} > {1}"),
                ("t.parquet", PARQUET + lines, "is a Parquet file", '.to_json(sys.argv[2], orient="records", lines=True)\' {0} {1}')):
            path = self.write(name, content)
            other = self.path("t.jsonl")
            for arguments in (["train", *TINY, "--data", path, "--save", "none"], ["eval", run, "--data", path],
                              ["train", *TINY, "--data", text, "--validation", path, "--save", "none"],
                              ["tokenize", path, "-o", self.path("o")],
                              ["tokenize", path, "--field", "text", "--tokenizer", "bytes", "-o", self.path("o")]):
                with self.subTest(arguments=arguments):
                    said = self.fails(4, *arguments, says=f"{path} {says}").err
                    self.assertIn(command.format(path, other), said)
                    self.assertEqual(said.count("\n"), 1)
            # any bytes, if they are asked for
            self.succeeds("tokenize", path, "--tokenizer", "bytes", "-o", self.path("o"))
        packed = self.path("t.jsonl.gz")
        command = self.fails(4, "eval", run, "--data", packed).err.split("convert it with ")[1].split(", and")[0]
        subprocess.run(command, shell=True, check=True)
        self.succeeds("eval", run, "--data", self.path("t.jsonl"))
        # a text that begins as such a file does
        for name, content in (("a.txt", "PAR1 of the text\n" * 9), ("b.txt", "BZh1 is a word\n" * 9)):
            self.succeeds("train", *TINY, "--data", self.write(name, content), "--steps", 1, "--save", "none")

    def test_unpacked_lines_keep_the_ending_that_makes_them_lines(self):
        for name, unpacked in (("d.jsonl", "d.unpacked.jsonl"), ("d.ndjson", "d.unpacked.ndjson"), ("d.json", "d.unpacked.json"), ("d", "d.txt")):
            path = self.write(name, gzip.compress(b'{"text": "some words"}\n'))
            self.fails(4, "train", *TINY, "--data", path, "--save", "none", says=f"gunzip -c {path} > {self.path(unpacked)}, and ")

    def test_the_command_that_unpacks_replaces_no_file(self):
        path = self.write("t.txt.gz", gzip.compress(b"some words\n"))
        for there in ("t.txt", "t.2.txt", "t.3.txt"):
            self.fails(4, "train", *TINY, "--data", path, "--save", "none", says=f"gunzip -c {path} > {self.path(there)}, and ")
            self.write(there, "another text")
        nameless = self.write("words.gz", gzip.compress(b"some words\n"))
        os.mkdir(self.path("words"))
        self.fails(4, "tokenize", nameless, "-o", self.path("o"), says=f"gunzip -c {nameless} > {self.path('words.2')}, and ")

    def test_data_that_is_given_twice_names_a_folder(self):
        text = self.corpus()
        for flag in ("--data", "--validation"):
            self.fails(2, "train", *TINY, "--data", text, *(["--data", text] if flag == "--data" else [flag, text, flag, text]), as_given=True,
                       says=f"{flag} is given twice: leave one out, or give a folder that holds the files"
                            f"{', or what cohobate mix makes of token files' if flag == '--data' else ''} (docs/data.md)")

    # ---- mixtures ----

    def mixed(self, *parts):
        return json.loads(self.succeeds("mix", *parts, "-o", self.path("mixed.tokens"), "--json").out)

    def test_a_mixture_is_read_as_its_files_would_be(self):
        """The oracle is a text that has the texts as often, one after the other."""
        texts = [self.corpus(4), self.write("other.txt", "other words, and other words\n" * 40)]
        for i, text in enumerate(texts):
            self.succeeds("tokenize", text, "-o", self.path(f"{i}.tokens"))
        found = self.mixed(self.path("0.tokens"), self.path("1.tokens") + ":3")
        with open(self.path("all.txt"), "wb") as file:
            for text in (texts[0], *3 * [texts[1]]):
                with open(text, "rb") as part:
                    file.write(part.read())
        self.succeeds("tokenize", self.path("all.txt"), "-o", self.path("all.tokens"))
        with open(self.path("all.tokens"), "rb") as one, open(self.path("mixed.tokens"), "rb") as other:
            self.assertEqual(one.read(), other.read())
        self.assertEqual([part["times"] for part in found["parts"]], [1, 3])
        self.assertAlmostEqual(sum(part["share"] for part in found["parts"]), 1)
        self.assertEqual(sum(part["tokens"] for part in found["parts"]), found["file"]["tokens"])
        self.succeeds("train", *TINY, "--data", self.path("mixed.tokens"), "--steps", 1, "--save", "none")

    def test_conversations_and_text_share_a_mixture(self):
        lines = "".join(json.dumps({"messages": [{"role": "user", "content": "Hi"},
                                                 {"role": "assistant", "content": f"Hello {i}"}]}) + "\n" for i in range(30))
        self.succeeds("tokenize", self.write("chats.jsonl", lines), "--chat", "--documents", "separate", "--sequence", 32,
                      "-o", self.path("chats.tokens"))
        self.succeeds("tokenize", self.corpus(4), "-o", self.path("text.tokens"))
        found = self.mixed(self.path("chats.tokens") + ":2", self.path("text.tokens") + ":0.5")
        self.assertIn("documents in sequences of 32 tokens: separate", self.succeeds("inspect", self.path("mixed.tokens")).out)
        self.assertEqual(found["file"]["tokens"] % 33, 0)
        self.succeeds("train", *TINY, "--sequence", 32, "--data", self.path("mixed.tokens"), "--steps", 1, "--save", "none")

    def test_what_cannot_be_mixed_is_refused_with_its_remedy(self):
        ids, out = self.path("ids.tokens"), self.path("out.tokens")
        self.succeeds("tokenize", self.corpus(4), "-o", ids)
        for times in ("x", "0", "-1", "1001", "nan", "2x", ""):
            self.fails(2, "mix", f"{ids}:{times}", "-o", out, says="is not how often one is read in a pass: a number above 0")
        os.rename(ids, ids + ":2")  # a file's whole name comes first
        self.assertEqual(json.loads(self.succeeds("mix", ids + ":2", "-o", out, "--json").out)["parts"][0]["times"], 1)
        os.remove(out)
        self.fails(4, "mix", self.corpus(4), "-o", out, says="is not a token file: make one with `cohobate tokenize`")
        self.fails(2, "mix", ids + ":2", says="-o OUT is missing")
        self.fails(2, "mix", "-o", out, says="FILE is missing")
        self.fails(2, "mix", *65 * [ids + ":2"], "-o", out, says="takes up to 64 FILEs")
        self.assertFalse(os.path.exists(out))

    # ---- one text with a part for validation ----

    def cut_by_hand(self, text, at):
        """The paths of both parts of a text that is cut behind the last line end before byte `at`."""
        cut = text.rindex(b"\n", 0, at) + 1
        return self.write("first.txt", text[:cut]), self.write("last.txt", text[cut:])

    def test_a_text_is_cut_into_the_parts_that_a_cut_by_hand_makes(self):
        model_folder.make(self.path("gpt2"), "gpt2")
        text = "".join(f"line {i} of some, with caf\u00e9 and {'x' * (i * 7 % 50)}\n" for i in range(3000 if SHORT else 60000)).encode()
        path = self.write("text.txt", text)
        for tokenizer, flags, held in (("bytes", ["--held-out", 10], -(-len(text) // 10)),
                                       (self.path("gpt2"), ["--held-out", 3], -(-len(text) // 3)),
                                       (self.path("gpt2"), ["--validation-split", 0.25], -(-len(text) // 4)),
                                       ("bytes", ["--validation-split", 0.25, "--documents", "aligned", "--sequence", 7], -(-len(text) // 4))):
            with self.subTest(tokenizer=tokenizer, flags=flags):
                whole = ["tokenize", path, "--tokenizer", tokenizer, *flags, "--held-out-file", self.path("held"), "-o", self.path("kept")]
                first, last = self.cut_by_hand(text, len(text) - held)
                said = self.succeeds(*whole).err
                self.assertIn(f"{path}: cut at a line end behind byte {os.path.getsize(first)} of {len(text)}: the last ", said)
                for part, name in ((first, "kept"), (last, "held")):
                    by_hand = self.tokenize(part, "--tokenizer", tokenizer, *flags[2:])
                    made = TokenFile(self.path(name))
                    self.assertEqual((made.ids, made.counts), by_hand)

    def test_a_text_without_a_line_end_before_the_part_is_refused(self):
        for text in ("x" * 400, "x" * 390 + "\nlast"):
            path = self.write("text.txt", text)
            self.fails(4, "train", *TINY, "--data", path, "--validation-split", 0.1, "--save", self.path("run"),
                       says=f"{path} has no line end in its first ")
            self.assertFalse(os.path.exists(self.path("run")))

    def test_a_long_line_is_not_put_aside_for_a_small_share(self):
        path = self.write("text.txt", "The title\n" + "a long line " * 100 + "\n")
        self.fails(4, "train", *TINY, "--data", path, "--validation-split", 0.05, "--save", self.path("run"),
                   says="1201 of 1211 bytes put aside where 61 were asked for: give shorter lines, or a text to validate with as another file")
        self.assertFalse(os.path.exists(self.path("run")))

    def test_a_run_with_a_cut_text_ends_as_with_parts_cut_by_hand_and_as_cut_in_two(self):
        with open(self.corpus(), "rb") as file:
            text = file.read()
        path = self.write("text.txt", text)
        first, last = self.cut_by_hand(text, len(text) - -(-len(text) // 5))
        by_hand = self.succeeds("train", *TINY, "--data", first, "--validation", last, "--steps", 4, "--save", "none", "--json").json
        whole = self.succeeds("train", *TINY, "--data", path, "--validation-split", 0.2, "--steps", 4, "--save", "none", "--json").json
        run = self.path("run")
        self.succeeds("train", *TINY, "--data", path, "--validation-split", 0.2, "--steps", 2, "--schedule-steps", 4, "--save", run)
        resumed = self.succeeds("train", "--resume", run, "--steps", 4, "--json").json
        for done in (whole, resumed):
            self.assertEqual([done[key] for key in ("hash", "validation_loss")], [by_hand[key] for key in ("hash", "validation_loss")])
        again = self.succeeds("train", "--resume", run, "--steps", 5, "--data", path)
        self.assertNotIn("other data", again.err)
        self.assertIn("validation loss", again.out)

    # ---- how much of the data is read ----

    def test_a_run_says_how_much_of_its_data_it_reads(self):
        tokens = 16 * 40 + 1  # 40 sequences of TINY's 16 tokens, 2 in a step
        path, run = self.write("text.txt", "x" * 15 + "\n" + "y" * (tokens - 16)), self.path("run")
        train = ["train", *TINY, "--data", path]
        for steps, begins, ends, passes in (
                (1, "5 % of them are read in 1 step of 2 (all of them: --epochs 1)", "5 % of the data read", 0.05),
                (3, "15 % of them are read in 3 steps of 2 (all of them: --epochs 1)", "15 % of the data read", 0.15),
                (20, "they are read once in 20 steps of 2", "the data read once", 1),
                (30, "they are read 1.5 times in 30 steps of 2", "the data read 1.5 times", 1.5)):
            if SHORT and steps == 20:
                continue
            with self.subTest(steps=steps):
                done = self.succeeds(*train, "--steps", steps, "--save", "none")
                self.assertIn(f"data:   {tokens} tokens, 40 sequences of 16; {begins}\n", done.err)
                self.assertRegex(done.out, rf"done:   step {steps} of {steps}, loss [\d.]+, {ends}\n")
                told = self.succeeds(*train, "--steps", steps, "--save", "none", "--json").json
                self.assertEqual((told["data_tokens"], told["data_sequences"], told["data_passes"]), (tokens, 40, passes))
        self.succeeds(*train, "--steps", 2, "--schedule-steps", 6, "--save", run)
        with open(os.path.join(run, "run.json"), encoding="utf-8") as file:
            facts = json.load(file)
        self.assertEqual((facts["data_tokens"], facts["data_sequences"]), (tokens, 40))
        more = self.succeeds("train", "--resume", run, "--steps", 6)
        self.assertIn("no text is read again\n        40 sequences of 16; 30 % of them are read up to step 6\n", more.err)
        self.assertRegex(more.out, r"done:   step 6 of 6, loss [\d.]+, 30 % of the data read\n")


if __name__ == "__main__":
    unittest.main()
