"""What users of other trainers bring, through the program: conversations longer than a sequence, folders of data sets,
tables, lines with mistakes, answers that are not to be learned. The expected ids are those of the same documents as plain
lines, and what is cut or learned is counted here."""

import csv
import gzip
import json
import os
import shutil
import struct
import subprocess
import unittest
import zipfile

from program import TINY, ProgramTest
from test_data import CHATS, END, TokenFile, plain_chat

PARQUET = b"PAR1\x15\x04\x15\x20\x15\x24\x4c\x15\x02\x15\x00"
ARROW = b"\xff\xff\xff\xff\x10\0\0\0"


class DataSets(ProgramTest):
    def lines(self, objects, name="data.jsonl"):
        return self.write(name, "".join(json.dumps(each) + "\n" for each in objects))

    def texts(self, name="data.jsonl", count=60):
        return self.lines([{"text": f"document {i} of some"} for i in range(count)], name)

    def chats(self, name="chats.jsonl", answers=("a", "b" * 40, "c" * 90)):
        return self.lines([{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]}
                           for answer in answers], name)

    def set_of(self, name, files):
        """A folder with these files: {path: content}."""
        shutil.rmtree(self.path(name), ignore_errors=True)
        for key, content in files.items():
            path = self.path(name, key)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def tokenize(self, *arguments):
        self.succeeds("tokenize", *arguments, "-o", self.path("out.tokens"))
        file = TokenFile(self.path("out.tokens"))
        return file.ids, file.counts

    # ---- conversations that are cut ----

    def test_conversations_longer_than_a_sequence_are_counted_and_the_longest_is_named(self):
        chats = self.chats()
        ids = [len(plain_chat([("user", "q"), ("assistant", answer)])[0]) for answer in ("a", "b" * 40, "c" * 90)]
        says = f"{chats}: 2 of 3 conversations are longer than --sequence 32 (the longest has {ids[2]} tokens), so they are cut: "
        remedy = f"--sequence {ids[2] - 1} holds the longest"
        train = ["train", *TINY, "--sequence", 32, "--steps", 1, "--save", self.path("run"), "--data", chats, "--chat"]
        packed = self.succeeds(*train).err
        self.assertIn(says + remedy + ", and --documents separate keeps those whole that fit\n", packed)
        self.assertLess(packed.index(says), packed.index("model: "))
        shutil.rmtree(self.path("run"))
        self.assertIn(says + remedy + "\n", self.succeeds(*train, "--documents", "aligned").err)
        self.assertIn(says, self.succeeds("tokenize", chats, "--chat", "--sequence", 32, "-o", self.path("o")).err)
        self.assertIn(says, self.succeeds("eval", self.path("run"), "--data", chats).err)
        resumed = self.succeeds("train", "--resume", self.path("run"), "--steps", 2, "--data", chats).err
        self.assertIn(says + "a new run may have a longer --sequence\n", resumed)
        for sequence, cut in ((ids[2] - 1, 0), (ids[2] - 2, 1), (ids[1] - 1, 1), (ids[1] - 2, 2)):
            for form in ("packed", "aligned"):
                said = self.succeeds("tokenize", chats, "--chat", "--sequence", sequence, "--documents", form, "-o", self.path("o")).err
                self.assertEqual(said.count("longer than"), int(cut > 0))
                self.assertIn({0: "", 1: ": 1 of 3 conversations is longer", 2: ": 2 of 3 conversations are longer"}[cut], said)

    def test_a_longer_sequence_is_named_up_to_what_the_model_reads(self):
        chats = self.chats(answers=("a", "b" * 40, "c" * 5000))
        train = ["train", *TINY, "--batch", 1, "--steps", 1, "--save", "none", "--data", chats, "--chat"]  # a model of 1024 positions
        for sequence, says in ((32, "--sequence 1024, the most that this model reads, cuts fewer, and --documents separate keeps those whole that fit\n"),
                               (1024, "this model reads no more than 1024 tokens, so split what is longer, and --documents separate keeps those whole that fit\n")):
            self.assertIn("cut: " + says, self.succeeds(*train, "--sequence", sequence).err)

    def test_a_prompt_and_its_completion_are_counted_as_cut_and_texts_are_not(self):
        pairs = self.lines([{"p": "question", "c": "a"}, {"p": "question", "c": "b" * 40}])
        cut = ["--sequence", 16, "-o", self.path("o")]
        self.assertIn(": 1 of 2 pairs is longer than --sequence 16 (the longest has 49 tokens), so it is cut: ",
                      self.succeeds("tokenize", pairs, "--field", "p,c", *cut).err)
        self.assertNotIn("longer than", self.succeeds("tokenize", pairs, "--field", "c", *cut).err)

    def test_a_run_that_begins_with_a_run_has_its_sequence(self):
        text, first = self.corpus(), self.path("first")
        self.succeeds("train", *TINY, "--sequence", 24, "--documents", "aligned", "--data", self.texts(), "--steps", 1, "--save", first)
        more = ["train", first, "--data", text, "--steps", 1, "--batch", 2, "--threads", 2, "--save", "none"]
        said = self.succeeds(*more).err
        self.assertIn(f"sequence 24: as {first} was trained; --sequence changes it\n", said)
        self.assertIn(f"note: the documents of {first} were aligned; those of this run are packed (--documents aligned)\n", said)
        self.assertIn(" sequences of 24; ", said)
        said = self.succeeds(*more, "--sequence", 20, "--documents", "packed").err
        self.assertIn(" sequences of 20; ", said)
        self.assertNotIn(f"as {first} was trained", said)
        self.assertNotIn("aligned", said)
        planned = self.succeeds("plan", first, "--batch", 2, "--threads", 2, "-o", self.path("plan.json"))
        self.assertNotIn("aligned", planned.err)
        self.succeeds(*more, "--plan", self.path("plan.json"))

    def test_a_report_of_a_run_of_an_earlier_version_plans_its_own_sequence(self):
        """Its command has no --sequence, and it did not have that of the run that it began with."""
        text, first, run = self.corpus(), self.path("first"), self.path("run")
        self.succeeds("train", *TINY, "--sequence", 24, "--data", text, "--steps", 1, "--save", first)
        self.succeeds("train", first, "--sequence", 20, "--batch", 2, "--threads", 2, "--data", text, "--steps", 2, "--save", run)
        told = self.succeeds("report", run, "--json").json["what_if"]
        path = os.path.join(run, "run.json")
        with open(path, encoding="utf-8") as file:
            facts = file.read()
        self.write("run/run.json", facts.replace('"--sequence", "20", ', ""))
        self.assertEqual(self.succeeds("report", run, "--json").json["what_if"], told)

    # ---- folders ----

    def test_a_folder_of_lines_is_read_as_its_files_are(self):
        text = [json.dumps({"text": f"document {i}"}) + "\n" for i in range(40)]
        expected = self.tokenize(self.write("all.jsonl", "".join(text)))
        parts = {"a.jsonl": "".join(text[:20]), "sub/b.ndjson": "".join(text[20:])}
        for more in ({}, {"README.md": "# About"}, {"LICENSE": "MIT", "dataset_info.json": "{}"}, {"logo.png": b"P\0NG"}, {"_SUCCESS": ""}):
            with self.subTest(more=more):
                self.assertEqual(self.tokenize(self.set_of("shards", {**parts, **more})), expected)
        folder = self.set_of("shards", parts)
        run = self.path("run")
        told = self.succeeds("train", *TINY, "--data", folder, "--validation", folder, "--steps", 1, "--save", run)
        self.assertNotIn("as text", told.err)
        self.assertEqual(TokenFile(os.path.join(run, "data.tokens")).ids, expected[0])
        self.succeeds("train", "--resume", run, "--steps", 2)  # the validation text, too, is read as before
        self.assertEqual(self.succeeds("eval", run, "--data", folder, "--json").json["tokens"], len(expected[0]) - 1)
        mixed = self.set_of("mixed", {**parts, "notes.txt": "a text"})
        self.assertIn("2 files *.jsonl, *.ndjson or *.jl: read as text; --field NAME (or --chat) reads the lines",
                      self.succeeds("tokenize", mixed, "-o", self.path("o")).err)

    def test_arrays_of_a_folder_are_read_with_a_flag_and_refused_without(self):
        chats = [{"messages": [{"role": role, "content": text} for role, text in chat]} for chat in CHATS]
        expected = self.tokenize(self.lines(chats), "--chat")
        folder = self.set_of("arrays", {"a.json": json.dumps(chats[:1]), "b.json": json.dumps(chats[1:], indent=2),
                                        "state.json": '{"of": "the data"}', "words.json": '["a", "b"]'})
        self.assertEqual(self.tokenize(folder, "--chat"), expected)
        self.assertEqual(self.tokenize(self.set_of("both", {"a.json": json.dumps(chats[:1]), "b.jsonl": json.dumps(chats[1])}), "--chat"), expected)
        folder = self.set_of("arrays", {"a.json": json.dumps(chats), "README.md": "about"})
        for command in (["tokenize", folder, "-o", self.path("o")], ["train", *TINY, "--data", folder, "--save", "none"]):
            self.fails(4, *command, says=f"{folder}/a.json is JSON, and would be learned as it is")
        self.fails(4, "tokenize", self.set_of("none", {"a.json": "{}"}), "--chat", "-o", self.path("o"),
                   says="none/a.json:1: \"messages\" is missing")
        self.fails(4, "tokenize", self.set_of("none", {"config.json": "{}"}), "--chat", "-o", self.path("o"),
                   says="holds no file *.jsonl, *.ndjson or *.jl, nor a *.json of objects that are no configuration: give one that does")

    def test_a_folder_of_one_object_a_file_is_read_as_its_objects(self):
        """Each file is one conversation or text, however it is laid out; what describes the data is none."""
        chats = [{"messages": [{"role": role, "content": text} for role, text in chat], "text": f"text {i} }}]\\\"{{"} for i, chat in enumerate(CHATS)]
        about = {"dataset_info.json": '{"text": "about"}', "sub/config.json": '{\n"text": "about"}', "README.md": "about", "words.json": '["a"]'}
        for flags in (["--chat"], ["--field", "text"]):
            expected = self.tokenize(self.lines(chats), *flags)
            for indent, end in ((None, ""), (None, "\n"), (2, "\n"), (1, "\n\n")):
                with self.subTest(flags=flags, indent=indent):
                    each = {f"{i:03d}.json": json.dumps(chat, indent=indent) + end for i, chat in enumerate(chats)}
                    folder = self.set_of("objects", {**each, **about})
                    self.assertEqual(self.tokenize(folder, *flags), expected)
                    self.assertIn(f": {len(chats)} file{'s' * (len(chats) > 1)} read; 4 left out: named as a configuration, or neither *.jsonl, *.ndjson or *.jl nor a *.json of documents", self.succeeds("tokenize", folder, *flags, "-o", self.path("o")).err)
                    all_of_them = {"all.JSON": "".join(json.dumps(chat, indent=indent) + "\n" for chat in chats)}
                    self.assertEqual(self.tokenize(self.set_of("objects", {**all_of_them, **about}), *flags), expected)
                    self.assertEqual(self.tokenize(self.path("objects", "all.JSON"), *flags), expected)
        text = {"a.json": '{\n"text": "a"\n}', "b.json": '\n{\n"text":\n3}\n{"text": "b"}\nx'}
        folder = self.set_of("objects", text)
        self.fails(4, "tokenize", folder, "--field", "text", "-o", self.path("o"), says=f'{folder}/b.json:2: the field "text" is a number')
        self.fails(4, "tokenize", folder, "--field", "text", "--skip-bad", "-o", self.path("o"), says=f"{folder}/b.json:6: an object is expected here")
        for command in (["tokenize", folder, "-o", self.path("o")], ["train", *TINY, "--data", folder, "--save", "none"]):
            self.fails(4, *command, says=f"{folder}/a.json is JSON, and would be learned as it is")
        # next to lines, an object describes them
        self.assertEqual(self.tokenize(self.set_of("both", {"a.jsonl": '{"text": "a"}', "b.json": '{"text": "b"}'}), "--field", "text")[0], [*b"a", END])
        # data that would be left out is larger
        self.fails(4, "tokenize", self.set_of("set", {"a.json": '{"text": "a"}', "b.parquet": PARQUET * 9}), "--field", "text", "-o", self.path("o"), says="b.parquet is a Parquet file")

    def test_a_folder_whose_data_is_no_text_is_refused_with_the_way_to_it(self):
        """The data set would be left out, and its README be learned."""
        llmc = struct.pack("<3i", 20240520, 1, 500) + bytes(1012) + bytes(1000)
        narrow, wide = (struct.pack(f"<1000{sign}", *(i * i % 50257 for i in range(1000))) for sign in "HI")
        for files, says in (
                ({"README.md": "# A data set " * 20, "data/train-0.parquet": PARQUET * 9, "data/train-1.parquet": PARQUET * 9},
                 ("holds its data in 2 files that are no text and would be left out; the first, ", "data/train-0.parquet, is a Parquet file: convert each with python3")),
                ({"data-0.arrow": ARROW * 99, "state.json": "{}", "dataset_info.json": "{}"}, ("data-0.arrow is an Arrow stream: convert it with python3 -c 'import datasets",)),
                ({"prepare.py": "import os", "readme.md": "## openwebtext", "train.bin": narrow, "val.bin": wide},
                 ("holds its data in 2 files of ids, which are no text and would be left out: give ", "train.bin, or another of them, in place of the folder")),
                ({"a.txt": "a short text", "b.bin": wide}, ("holds its data in a file of ids, which is no text and would be left out: give ", "b.bin in place of the folder")),
                ({"a.bin": llmc}, ("holds its data in a file of ids, which is no text and would be left out: give ", "a.bin in place of the folder")),
                ({"a.jsonl.gz": gzip.compress(b'{"text": "a"}\n' * 9)}, ("a.jsonl.gz is compressed by gzip: convert it with gunzip -c ",))):
            folder, run = self.set_of("set", files), self.path("run")
            for command in (["tokenize", folder, "-o", self.path("o")], ["train", *TINY, "--data", folder, "--save", run],
                            ["train", *TINY, "--data", self.texts(), "--validation", folder, "--save", run]):
                for flags in ([], ["--field", "text"]):
                    with self.subTest(files=list(files), command=command, flags=flags):
                        said = self.fails(4, *command, *flags, says=folder + " " + says[0] if len(says) > 1 else says[0]).err
                        self.assertIn(says[-1], said)
                        self.assertEqual(said.count("\n"), 1)
                        self.assertFalse(os.path.exists(run))
                        alone = ("in place of the folder, or move it out of the folder (or give it a hidden name) to read the texts alone\n",
                                 "in place of the folder, or move them out of the folder (or give them hidden names) to read the texts alone\n")
                        self.assertEqual(said.endswith(alone), not flags and not {"a.txt", "prepare.py"}.isdisjoint(files))
        # tokens of a folder's texts, next to them
        texts = self.set_of("texts", {"a.txt": "some text " * 9, "logo.gz": gzip.compress(b"b")})
        for _ in range(2):
            self.succeeds("tokenize", texts, "-o", os.path.join(texts, "a.tokens"))
        os.remove(os.path.join(texts, "a.txt"))
        os.remove(os.path.join(texts, "logo.gz"))
        self.fails(4, "train", *TINY, "--data", texts, "--save", "none", says=f"give {texts}/a.tokens in place of the folder")
        self.fails(4, "tokenize", self.set_of("set", {"a.txt": "a text", "a.gz": gzip.compress(os.urandom(99))}), "-o", self.path("o"),
                   says="and give what it writes, or move it out of the folder (or give it a hidden name) to read the texts alone")
        # a large text with a small file of another kind
        self.succeeds("tokenize", self.set_of("texts", {"a.txt": "some text " * 99, "a.gz": gzip.compress(b"b"), "fw.bin": bytes(64)}), "-o", self.path("o"))

    def test_texts_next_to_a_larger_binary_are_read_without_it(self):
        """What is no data is left out, and so is data next to more text than describes it."""
        source = {f"src/{name}.c": f"int {name};\n" * 700 for name in "abc"}
        code = struct.pack("<30000H", *(i * 40503 % 65536 for i in range(30000)))
        table = struct.pack("<16I", *range(0x8000000, 0x8000010)) + bytes(9000)
        data = struct.pack("<60000H", *(i * i % 50257 for i in range(60000)))
        for files, left in (({**source, "fw/firmware.bin": code}, "fw/firmware.bin"), ({"a.txt": "a text", "f.bin": bytes(9000)}, "f.bin"),
                            ({"a.txt": "a text", "table.bin": table}, "table.bin"),
                            ({"a.txt": "some words of a text\n" * 4000, "data.bin": data}, "data.bin"),
                            ({**{f"{i}.txt": "a text" for i in range(9)}, "texts.tar.gz": gzip.compress(os.urandom(9000))}, "texts.tar.gz")):
            with self.subTest(left=left):
                folder = self.set_of("set", files)
                said = self.succeeds("tokenize", folder, "-o", self.path("o")).err
                self.assertIn(f": {len(files) - 1} file{'s' if len(files) > 2 else ''} read as text; 1 left out as binary (a NUL byte in the first 8 KiB), "
                              f"the first: {folder}/{left}\n", said)

    def test_compressed_lines_next_to_lines_are_not_left_out_silently(self):
        """Half of the data set would be."""
        text = [json.dumps({"text": f"document {i}"}) + "\n" for i in range(40)]
        first, packed = "".join(text[:20]), gzip.compress("".join(text[20:]).encode())
        for files, says in (({"a.jsonl": first * 9, "b.jsonl.gz": packed}, "would be read without {}/b.jsonl.gz, which is compressed by gzip: if the folder holds the texts already, move it out of the folder (or give it a hidden name); else convert it with gunzip -c {}/b.jsonl.gz > {}/b.jsonl, and "),
                            ({"a.jsonl": first * 9, "b.ndjson.zst": b"\x28\xb5\x2f\xfd" + packed, "c.jsonl.gz": packed},
                             "would be read without 2 files; the first, {}/b.ndjson.zst, is compressed by zstd: if the folder holds the texts already, move them out of the folder (or give them hidden names); else convert each with zstd -dc {}/b.ndjson.zst > {}/b.ndjson, and "),
                            ({"a.jsonl": first * 9, "c.parquet": PARQUET}, "would be read without {}/c.parquet, which is a Parquet file: if the folder holds the texts already, move it out of the folder (or give it a hidden name); else convert it with python3 "),
                            ({"a.jsonl": first * 9, "B.JSON.XZ": b"\xfd7zXZ\0" + packed}, "would be read without {}/B.JSON.XZ, which is compressed by xz")):
            folder, run = self.set_of("shards", files), self.path("run")
            for command in (["tokenize", folder, "-o", self.path("o")], ["train", *TINY, "--data", folder, "--save", run],
                            ["train", *TINY, "--data", self.texts(), "--validation", folder, "--save", run]):
                for flags in ([], ["--field", "text"]):
                    with self.subTest(files=list(files), command=command, flags=flags):
                        said = self.fails(4, *command, *flags, says=folder + " " + says.format(folder, folder, folder)).err
                        self.assertIn(", and give the folder again\n", said)
                        self.assertEqual(said.count("\n"), 1)
                        self.assertFalse(os.path.exists(run))
        # the command of the refusal leads to a folder that is read whole
        folder = self.set_of("shards", {"a.jsonl": first, "b.jsonl.gz": packed})
        said = self.fails(4, "tokenize", folder, "--field", "text", "-o", self.path("o"), says="would be read without").err
        subprocess.run(said.split("convert it with ")[1].split(", and give")[0], shell=True, check=True)
        self.assertEqual(self.tokenize(folder), self.tokenize(self.write("all.jsonl", "".join(text))))
        self.assertNotIn("without", self.succeeds("tokenize", folder, "-o", self.path("o")).err)
        # files that are no lines, and texts
        for files, flags, says in (({"a.jsonl": first * 9, "notes.txt.gz": packed}, [], "notes.txt.gz > {}/notes.txt"), ({"a.jsonl": first * 9, "b.tar.gz": packed}, ["--field", "text"], "b.tar.gz > {}/b.tar"),
                                   ({"a.txt": first * 9, "b.txt.gz": packed}, [], "b.txt.gz > {}/b.txt"), ({"a.txt": first * 9, "b.jsonl": first, "c.jsonl.gz": packed}, [], "c.jsonl.gz > {}/c.jsonl")):
            folder = self.set_of("texts", files)
            name = list(files)[-1]
            self.assertIn(f"note: {folder} is read without {folder}/{name}, which is compressed by gzip: if it holds texts of the data, convert it with gunzip -c {folder}/"
                          + says.format(folder) + ", and give the folder again\n", self.succeeds("tokenize", folder, *flags, "-o", self.path("o")).err)

    def test_objects_next_to_lines_are_not_left_out_silently(self):
        """They may describe the lines, so that a note is enough; no flag makes texts of them."""
        lines, about = '{"text": "a"}\n', '{"text": "about"}'
        one, two = ["{}/metadata.json, an object of JSON: next to lines "], ["2 *.json of objects; the first, {}/1.json: next to lines "]
        for files, says in (({"a.jsonl": lines, "metadata.json": about}, one), ({"a.jsonl": lines, "1.json": about * 9, "2.json": about}, two),
                            ({"a.jsonl": lines, "Config.json": about, "trainer_state.json": about, "README.md": "about"}, [])):
            folder = self.set_of("noted", files)
            for flags in ([], ["--field", "text"]):
                with self.subTest(files=list(files), flags=flags):
                    self.assertEqual(self.tokenize(folder, *flags)[0], [*b"a", END])
                    said = self.succeeds("tokenize", folder, *flags, "-o", self.path("o")).err
                    for note in says:
                        self.assertIn(f"note: {folder} is read without " + note.format(folder), said)
                    self.assertEqual(said.count("is read without"), len(says))
        self.assertIn("1 file read; 1 left out: named as a configuration", self.succeeds(
            "tokenize", self.set_of("named", {"1.json": '{"text": "a"}', "Config.json": about}), "--field", "text", "-o", self.path("o")).err)
        self.fails(4, "tokenize", self.set_of("alone", {"config.json": about}), "-o", self.path("o"), says="config.json is JSON, and would be learned")

    def test_archives_next_to_objects_do_not_hide_them(self):
        """Converted lines would end the reading of objects: the refusal does not advise them."""
        each = {f"{i}.json": json.dumps({"text": str(i)}) for i in range(5)}
        expected = self.tokenize(self.write("all.jsonl", "\n".join(each.values())), "--field", "text")
        zipped = {"backup.zip": b"PK\3\4" + bytes(range(256)) * 9}
        self.assertEqual(self.tokenize(self.set_of("zipped", {**each, **zipped}), "--field", "text"), expected)
        self.assertIn("backup.zip, which is a zip archive: if it holds texts", self.succeeds(
            "tokenize", self.path("zipped"), "--field", "text", "-o", self.path("o")).err)
        packed = gzip.compress(b'{"text": "more"}\n')
        for files in ({"more.jsonl.gz": packed}, {"more.jsonl.gz": packed + bytes(range(256)) * 9}):
            folder = self.set_of("objects", {**each, **files})
            said = self.fails(4, "tokenize", folder, "--field", "text", "-o", self.path("o"), says="more.jsonl.gz").err
            self.assertIn("move it out of the folder (or give it a hidden name)", said)
            self.assertNotIn("give the folder again", said)
            os.rename(folder + "/more.jsonl.gz", folder + "/.more.jsonl.gz")
            self.assertEqual(self.tokenize(folder, "--field", "text"), expected)
        # an object of JSON that is packed may be one more; a configuration is none
        folder = self.set_of("packed", {**{f"{i}.json": json.dumps({"text": "a text" * 20}) for i in range(5)}, "5.json.gz": packed})
        self.fails(4, "tokenize", folder, "--field", "text", "-o", self.path("o"), says="5.json, and give the folder again")
        folder = self.set_of("config", {"a.jsonl": '{"text": "a"}\n' * 20, "config.json.gz": packed})
        for flags in ([], ["--field", "text"]):
            self.succeeds("tokenize", folder, *flags, "-o", self.path("o"))

    # ---- names ----

    def test_an_ending_in_any_case_is_the_same_ending(self):
        """A file from Windows, or one that a person named by hand, is what its ending says."""
        text = '{"text": "words"}\n{"text": "more words"}\n'
        expected = self.tokenize(self.write("data.jsonl", text))
        for name in ("data.JSONL", "data.Jsonl", "data.NDJSON", "data.jl", "data.JL"):
            with self.subTest(name=name):
                path = self.write(name, text)
                self.assertEqual(self.tokenize(path), expected)
                for flags in ([], ["--field", "text"]):
                    self.assertEqual(self.tokenize(self.set_of("set", {name: text, "README.md": "about"}), *flags), expected)
                run = self.path("run-" + name)
                self.succeeds("train", *TINY, "--data", self.corpus(), "--validation", path, "--steps", 1, "--save", run)
                self.assertEqual(self.succeeds("eval", run, "--data", path, "--json").json["tokens"], len(expected[0]) - 1)
        chats = json.dumps([{"messages": [{"role": role, "content": text} for role, text in CHATS[0]]}])
        self.assertEqual(self.tokenize(self.set_of("arrays", {"A.JSON": chats}), "--chat"), self.tokenize(self.write("a.json", chats), "--chat"))
        ids = struct.pack("<400H", *range(400))
        self.assertEqual(*(self.succeeds("inspect", self.write(name, ids), "--json").json for name in ("IDS.BIN", "ids.bin")))
        for name, content, says in (("a.CSV", "text,label\na,b\n", "a.CSV is a table, and would be learned as it is"),
                                    ("a.Tsv", "text\tlabel\na\tb\n", "a.Tsv is a table, and would be learned as it is"),
                                    ("a.JSON", '[{"text": "a"}]', "a.JSON is JSON, and would be learned as it is"),
                                    ("A.JSONL.GZ", gzip.compress(text.encode()), f"convert it with gunzip -c {self.path('A.JSONL.GZ')} > {self.path('A.JSONL')},"),
                                    ("b.json.gz", gzip.compress(text.encode()), f"convert it with gunzip -c {self.path('b.json.gz')} > {self.path('b.json')},")):
            path = self.write(name, content)
            for command in (["tokenize", path, "-o", self.path("o")], ["train", *TINY, "--data", path, "--save", "none"],
                            ["train", *TINY, "--data", self.corpus(), "--validation", path, "--save", "none"]):
                with self.subTest(command=command):
                    self.fails(4, *command, says=says)
            os.remove(path)
            self.fails(4, "tokenize", self.set_of("one", {name: content, "README.md": "about"}), "-o", self.path("o"),
                       says=says.split(",")[0].replace(self.path(""), self.path("one") + os.sep))

    def test_a_source_of_julia_is_no_file_of_lines(self):
        """Its ending is that of JSON lines, too."""
        source = "function f(x)\n    [x, 2x]\nend\n"
        self.assertEqual(self.tokenize(self.write("f.jl", source))[0], [*source.encode()])
        self.assertEqual(self.tokenize(self.set_of("julia", {"src/f.jl": source, "README.md": "f"})),
                         self.tokenize(self.set_of("texts", {"src/f.txt": source, "README.md": "f"})))

    # ---- tables and other forms ----

    def test_a_table_is_refused_with_the_command_that_makes_lines_of_it(self):
        rows = [{"text": f'some "words",\n and {"more " * 40000 if i == 1 else i}', "label": str(i)} for i in range(3)]
        for name, options in (("data.csv", {}), ("data.tsv", {"delimiter": "\t"})):
            path = self.path(name)
            with open(path, "w", newline="", encoding="utf-8") as file:
                table = csv.DictWriter(file, ["text", "label"], **options)
                table.writeheader()
                table.writerows(rows)
            with open(path, "rb") as file:
                content = file.read()
            for command in (["tokenize", path, "-o", self.path("o")], ["tokenize", path, "--tokenizer", "bytes", "-o", self.path("o")],
                            ["train", *TINY, "--data", path, "--save", "none"], ["train", *TINY, "--data", path, "--field", "text", "--save", "none"],
                            ["train", *TINY, "--data", self.set_of("tables", {"README.md": "about", name: content}), "--save", "none"]):
                with self.subTest(command=command):
                    said = self.fails(4, *command, says=f"{name} is a table, and would be learned as it is").err
                    self.assertIn("(or name the file *.txt to learn the table)", said)
                    self.assertEqual(said.count("\n"), 1)
            said = self.fails(4, "tokenize", path, "-o", self.path("o")).err
            subprocess.run(said.split("lines of its rows with ")[1].split(", and give these")[0], shell=True, check=True)
            with open(self.path("data.jsonl"), encoding="utf-8") as file:
                self.assertEqual([json.loads(line) for line in file], rows)
        both = self.set_of("both", {"data.tsv": content, "a.json": '[{"text": "a"}]', "README.md": "about"})
        self.fails(4, "tokenize", both, "-o", self.path("o"), says="data.tsv is a table, and would be learned as it is")
        os.rename(path, self.path("data.txt"))
        self.succeeds("tokenize", self.path("data.txt"), "-o", self.path("o"))
        self.succeeds("tokenize", self.lines([{"text": "a"}], "lines.csv"), "--field", "text", "-o", self.path("o"))

    def test_a_zip_and_utf_16_and_a_list_in_an_object_have_sentences_of_their_own(self):
        with zipfile.ZipFile(self.path("data.zip"), "w") as file:
            file.writestr("a.jsonl", '{"text": "a"}\n')
        self.fails(4, "train", *TINY, "--data", self.path("data.zip"), "--save", "none",
                   says=f"data.zip is a zip archive, not a text: convert it with unzip {self.path('data.zip')} -d {self.path('data')}, and give ")
        for name, folder in (("weights.v1.npz", "weights.v1"), ("archive", "archive.unpacked")):
            shutil.copy(self.path("data.zip"), self.path(name))
            self.fails(4, "tokenize", self.path(name), "-o", self.path("o"), says=f"convert it with unzip {self.path(name)} -d {self.path(folder)}, and give ")
        lines = '{"text": "words"}\n{"text": "words"}\n'
        for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
            self.fails(4, "tokenize", self.write("data.jsonl", lines.encode(encoding)), "-o", self.path("o"),
                       says="data.jsonl is in UTF-16, and JSON is read in UTF-8: convert it with iconv -f UTF-16 -t UTF-8")
        for indent in (None, 2):
            path = self.write("set.json", json.dumps({"version": 1, "data": [{"text": "a"}, {"text": "b"}]}, indent=indent))
            for flags in (["--field", "text"], ["--chat"]):
                self.fails(4, "tokenize", path, *flags, "-o", self.path("o"),
                           says='"data" is a list of objects: if they ')
            lines = self.write("set.jsonl", json.dumps({"text": "a"}, indent=indent))
            if indent:
                self.fails(4, "tokenize", lines, "-o", self.path("o"), says="an object ends on the line on which it begins, unless all are one array")

    # ---- answers that are not learned ----

    def test_an_answer_of_weight_0_is_not_learned(self):
        chat = [("user", "a"), ("assistant", "first"), ("user", "b"), ("assistant", "second")]
        messages = [{"role": role, "content": text} for role, text in chat]
        messages[1]["weight"] = 0
        messages[3]["weight"] = 1
        ids, counts = plain_chat(chat)
        learned = [0] * len(ids)
        learned[-len("second") - 2:] = counts[-len("second") - 2:]
        self.assertEqual(self.tokenize(self.lines([{"messages": messages}]), "--chat"), (ids, learned))
        self.assertEqual(ids[-1], END)

    # ---- what is learned ----

    def test_a_run_says_how_many_of_its_tokens_are_learned(self):
        """Padding and what the assistant does not say are tokens that are not."""
        chats, run = self.chats(), self.path("run")
        learned = sum(sum(plain_chat([("user", "q"), ("assistant", answer)])[1]) for answer in ("a", "b" * 40, "c" * 90))
        train = ["train", *TINY, "--data", chats, "--chat", "--steps", 3, "--save", run]
        for form in ("packed", "aligned"):
            shutil.rmtree(run, ignore_errors=True)
            done = self.succeeds(*train, "--documents", form)
            file = TokenFile(os.path.join(run, "data.tokens"))
            self.assertEqual(sum(file.counts), learned)
            said = f"{len(file.ids)} tokens, of which {learned} are learned, "
            self.assertIn(f"data:   {said}", done.err)
            with open(os.path.join(run, "steps.jsonl"), encoding="utf-8") as steps:
                told = [json.loads(line) for line in steps]
            for step in told:
                self.assertEqual((step["tokens"], 0 < step["learned"] < 32), (32, True))
            resumed = self.succeeds("train", "--resume", run, "--steps", 4)
            self.assertIn(f"{len(file.ids)} tokens made before, of which {learned} are learned: no text", resumed.err)
            made = self.succeeds("tokenize", chats, "--chat", "--documents", form, "--sequence", 16, "-o", self.path("o"))
            self.assertIn(f"/o: {said}", made.out)
            told = self.succeeds("train", *TINY, "--data", self.path("o"), "--steps", 1, "--save", "none", "--json").json
            self.assertEqual((told["data_tokens"], told["data_learned"]), (len(file.ids), learned))
        plain = self.succeeds("train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", "none", "--json")
        self.assertNotIn("are learned", plain.err)
        self.assertEqual(plain.json["data_learned"], plain.json["data_tokens"])

    def test_a_tail_that_fills_no_sequence_is_named_if_it_is_more_than_a_hundredth(self):
        for tokens, sequence, tail in ((16 * 40 + 1 + 6, 16, 0), (16 * 40 + 1 + 7, 16, 7), (16 * 40 + 1 + 15, 16, 15), (641, 16, 0), (901, 500, 400)):
            path = self.write("text.txt", "x" * (tokens - 1) + "\n")
            train = ["train", *TINY, "--sequence", sequence, "--batch", 1, "--data", path, "--steps", 1, "--save", "none"]
            said = self.succeeds(*train).err
            self.assertEqual("never read" in said, tail > 0, (tokens, sequence))
            if tail:
                self.assertIn(f"note:   the last {tail} tokens of the data ({100 * tail / tokens:.3g} %) are never read, as they fill no sequence of "
                              f"{sequence}: a shorter --sequence leaves fewer, --documents aligned none\n", said)
                self.assertNotIn("never read", self.succeeds(*train, "--documents", "aligned").err)

    # ---- lines with mistakes ----

    def test_bad_lines_are_refused_together_or_left_out_and_counted(self):
        good = [json.dumps({"text": f"document {i} of some"}) + "\n" for i in range(40)]
        expected = self.tokenize(self.write("good.jsonl", "".join(good)))
        path = self.write("data.jsonl", "".join([*good[:10], '{"text": \n', *good[10:20], '{"body": "a"}\n{"text": 3}\n', *good[20:]]))
        run, text = self.path("run"), self.corpus()
        train = ["train", *TINY, "--steps", 1, "--data", path]
        for command in ([*train, "--save", run], ["tokenize", path, "-o", self.path("o")], ["train", *TINY, "--data", text, "--validation", path, "--save", run]):
            said = self.fails(4, *command, says=f"{path}:11: no JSON at byte ").err
            self.assertIn("; 3 lines of the file are bad, also 22, 23 (--skip-bad leaves them out)\n", said)
            self.assertFalse(os.path.exists(run))
        says = f'{path}: 3 lines left out as bad: 1 not JSON, 1 without the field "text", 1 whose field "text" is no text; the first: {path}:11: no JSON at byte '
        self.assertEqual(self.tokenize(path, "--skip-bad"), expected)
        self.assertIn(says, self.succeeds("tokenize", path, "--skip-bad", "-o", self.path("o")).err)
        # a run keeps it: the validation text is read again
        done = self.succeeds(*train, "--validation", path, "--skip-bad", "--save", run)
        self.assertEqual(done.err.count(says), 1)
        self.assertEqual(TokenFile(os.path.join(run, "data.tokens")).ids, expected[0])
        self.assertIn(says, self.succeeds("train", "--resume", run, "--steps", 2).err)
        self.assertEqual(self.succeeds("eval", run, "--data", path, "--json").json["tokens"], len(expected[0]) - 1)
        self.fails(2, "train", "--resume", run, "--steps", 3, "--skip-bad", says="come from the checkpoint with --resume")
        self.fails(2, *train[:-1], os.path.join(run, "data.tokens"), "--skip-bad", "--save", "none", says="holds ids already")
        all_bad = self.write("bad.jsonl", "{}\n{}\n")
        self.fails(4, "tokenize", all_bad, "--skip-bad", "-o", self.path("o"), says=f"{all_bad} holds no line that is a document: all 2 are bad; the first: {all_bad}:1: ")

    def test_bad_lines_are_of_json_and_of_the_form_that_is_asked_for(self):
        text, wrong = self.corpus(), self.lines([{"body": "words"}] * 1200)
        note = f"note: {text} is read as text, and --skip-bad leaves out lines of JSON: it changes nothing here (--field NAME or --chat reads lines)\n"
        for command in (["tokenize", text, "-o", self.path("o")], ["train", *TINY, "--data", text, "--steps", 1, "--save", "none"]):
            self.assertIn(note, self.succeeds(*command, "--skip-bad").err)
            self.assertNotIn("--skip-bad", self.succeeds(*command).err)
        self.assertNotIn("changes nothing", self.succeeds("tokenize", wrong, "--field", "body", "--skip-bad", "-o", self.path("o")).err)
        said = self.fails(4, "tokenize", wrong, "--field", "bdoy", "-o", self.path("p"), says=f'{wrong}:1: the object has no field "bdoy"').err
        self.assertIn("; at least 1000 lines of the file are bad, also 2, 3, ", said)
        self.assertNotIn("skip-bad", said)

    def test_eval_reads_an_array_as_the_run_s_validation_does(self):
        with open(self.chats("c.jsonl"), encoding="utf-8") as file:
            run, held = self.path("run"), self.write("held.json", json.dumps([json.loads(line) for line in file]))
        done = self.succeeds("train", *TINY, "--data", self.chats(), "--chat", "--validation", held, "--steps", 1, "--save", run, "--json").json
        told = self.succeeds("eval", run, "--data", held, "--json").json
        self.assertEqual(told["loss"], done["validation_loss"])
        self.assertEqual(told["tokens"], sum(plain_chat([("user", "q"), ("assistant", a)])[1].count(1) for a in ("a", "b" * 40, "c" * 90)))


if __name__ == "__main__":
    unittest.main()
