"""Data of all forms through the program, compared with token files and windows made by hand here."""

import fcntl
import json
import os
import random
import resource
import shutil
import signal
import struct
import time
import unittest

import model_folder
from program import NANO, SHORT, TINY, ProgramTest, environment, in_full, start

DOCUMENTS = ["one", "", "a longer document than one window", "x" * 15, "y" * 16, "z" * 17, "caf\u00e9\n"]
CHATS = [[("user", "Hi"), ("assistant", "Hello")],
         [("system", "Be brief."), ("user", "1+1?"), ("assistant", "2"), ("user", "2+2?"), ("assistant", "4")]]
END = 256
LINES = 60 if SHORT else 400  # of text that is evaluated or validated whole


def ids_of(text):
    return [*text.encode(), END]


def plain_chat(turns):
    """The plain form: ids and, for each, whether it is the assistant's."""
    ids, counts = [], []
    for role, content in turns:
        head, body = f"{role}:".encode(), [*f" {content}".encode()]
        body += [END] if role == "assistant" else [ord("\n")]
        ids += [*head, *body]
        counts += [0] * len(head) + [int(role == "assistant")] * len(body)
    return ids, counts


def windows_by_hand(documents, length):
    """Each document cut into its own windows: (tokens, targets), -1 where there is none."""
    windows = []
    for ids, counts in documents:
        for begin in range(0, len(ids) - 1, length):
            tokens, targets = ids[begin:begin + length], ids[begin + 1:begin + length + 1]
            targets = [t if c else -1 for t, c in zip(targets, counts[begin + 1:begin + length + 1])]
            padding = length - len(tokens)
            tokens, targets = tokens + [END] * padding, targets + [-1] * (length - len(targets))
            if any(t >= 0 for t in targets):
                windows.append((tokens, targets))
    return windows


def fitted_by_hand(documents, length):
    """Whole documents share a window: each goes to the fullest of at most 64 open ones that has room; if none has, the fullest
    is closed. The ids of windows, -1 for padding, and their targets."""
    closed, opened = [], []
    for ids, counts in documents:
        counts = [0, *counts[1:]]
        while len(ids) > length + 1:  # the last target of a window is the first token of the next
            if any(counts[1:length + 1]):
                closed.append((ids[:length + 1], counts[:length + 1]))
            ids, counts = ids[length:], [0, *counts[length + 1:]]
        if not any(counts):
            continue
        fitting = [w for w in opened if len(w[0]) + len(ids) <= length + 1]
        if not fitting and len(opened) == 64:
            full = max(opened, key=lambda w: len(w[0]))
            closed.append((full[0][:], full[1][:]))
            full[0][:], full[1][:] = [], []
            fitting = [full]
        if not fitting:
            opened.append(([], []))
            fitting = opened[-1:]
        best = max(fitting, key=lambda w: len(w[0]))
        best[0].extend(ids), best[1].extend(counts)
    windows = []
    for ids, counts in closed + [w for w in opened if w[0]]:
        ids, counts = ids + [END] * (length + 1 - len(ids)), counts + [0] * (length + 1 - len(counts))
        windows.append((ids[:-1], [t if c else -1 for t, c in zip(ids[1:], counts[1:])]))
    return windows


class TokenFile:
    """An independent reader of the documented layout."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        magic, self.version, width, count, self.vocabulary, _, _, self.window, flags, _ = \
            struct.unpack("<8sIIQQQQIIQ", data[:64])
        assert magic == b"COHTOKEN" and len(data) == 64 + width * count
        stored = struct.unpack(f"<{count}{'H' if width == 2 else 'I'}", data[64:])
        mark = 1 << (8 * width - 1) if flags else 0
        self.ids = [value & ~mark for value in stored]
        self.counts = [int(not value & mark) for value in stored]

    def windows(self):
        stride = self.window + 1
        return [(self.ids[a:a + self.window],
                 [t if c else -1 for t, c in zip(self.ids[a + 1:a + stride], self.counts[a + 1:a + stride])])
                for a in range(0, len(self.ids), stride)]


class Data(ProgramTest):
    def lines(self, objects, name="data.jsonl"):
        return self.write(name, "".join(json.dumps(o) + "\n" for o in objects))

    def documents(self, name="data.jsonl", field="text", documents=DOCUMENTS):
        return self.lines([{field: text} for text in documents], name)

    def chats(self, name="chats.jsonl", chats=CHATS):
        return self.lines([{"messages": [{"role": r, "content": c} for r, c in chat]} for chat in chats], name)

    def tokenize(self, *arguments):
        self.succeeds("tokenize", *arguments, "-o", self.path("out.tokens"))
        self.succeeds("check", self.path("out.tokens"))
        return TokenFile(self.path("out.tokens"))

    # ---- folders ----

    def test_a_tokenizer_of_another_kind_is_refused_by_name(self):
        path = self.path("tokenizer.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}, file)
        self.fails(4, "tokenize", self.corpus(), "--tokenizer", path, "-o", self.path("x.tokens"),
                   says='"model" is of type "Unigram", which is not supported: BPE is')

    def test_files_of_a_folder_that_are_no_text_are_counted(self):
        folder = self.path("texts")
        os.mkdir(folder)
        for name, content in (("a.md", b"some text " * 99), ("b.json", b"[1]" * 99), ("c.bin", b"\0" * 9), ("b.png", b"P\0G")):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        said = self.succeeds("tokenize", "--tokenizer", "bytes", folder, "-o", self.path("all.tokens")).err
        self.assertIn(f"2 files read as text; 2 left out as binary (a NUL byte in the first 8 KiB), the first: {folder}/b.png\n", said)
        for name in ("c.bin", "b.png"):
            os.remove(os.path.join(folder, name))
        self.assertIn(": 2 files read\n", self.succeeds("tokenize", "--tokenizer", "bytes", folder, "-o", self.path("two.tokens")).err)

    def test_train_says_before_its_first_step_what_was_read(self):
        """Also a resumed run, which reads no text again."""
        folder, kept = self.path("texts"), self.path("run")
        os.mkdir(folder)
        for name, content in (("a.md", b"some text " * 99), ("b.txt", b"more " * 99), ("c.bin", b"\0" * 9)):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        said = self.succeeds("train", *TINY, "--data", folder, "--steps", 1, "--save", kept).err
        line = f"{folder}: 2 files read as text; 1 left out as binary (a NUL byte in the first 8 KiB), the first: {folder}/c.bin\n"
        self.assertIn(line, said)
        self.assertLess(said.index(line), said.index("model: "))
        shutil.rmtree(folder)
        tokens = os.path.join(kept, "data.tokens")
        said = self.succeeds("train", "--resume", kept, "--steps", 2).err
        line = f"data:   {tokens}, {len(TokenFile(tokens).ids)} tokens made before: no text is read again\n"
        self.assertIn(line, said)
        self.assertLess(said.index(line), said.index("keeps: "))
        self.assertNotIn("files read", said)

    def test_a_text_file_without_the_token_before_a_text_is_noted_once(self):
        """By train, eval and tokenize. Each line of JSON and each file of a folder begins with the token."""
        for kind in ("llama", "gpt2"):
            model_folder.make(self.path(kind), kind)
        text, other, lines = self.corpus(60), self.write("other.txt", "other " * 40), self.write("lines.jsonl", '{"text": "some text"}\n' * 40)
        os.mkdir(self.path("texts"))
        shutil.copy(text, self.path("texts"))
        train = ["--steps", 1, "--sequence", 16, "--batch", 1, "--threads", 1, "--save", self.path("run")]
        shutil.copytree(self.path("llama"), self.path("llama3"))
        os.remove(self.path("llama3", "tokenizer.model"))
        shutil.copy(os.path.join(model_folder.TOKENIZERS, "llama3", "tokenizer.json"), self.path("llama3"))
        for kind, data, token, count in (
                ("llama", text, "id 1", 1), ("llama3", text, "id 416, <|begin_of_text|>", 1), ("llama", lines, "id 1", 0),
                ("llama", self.path("texts"), "id 1", 0), ("gpt2", text, "", 0)):
            shutil.rmtree(self.path("run"), ignore_errors=True)
            for command in (["train", self.path(kind), *train, "--data", data, "--validation", other if data == text else data],
                            ["eval", self.path(kind), "--data", data, "--sequence", 16, "--threads", 1],
                            ["tokenize", data, "--tokenizer", self.path(kind), "-o", self.path(f"{kind}-{os.path.basename(data)}.tokens")]):
                with self.subTest(kind=kind, data=data, command=command[0]):
                    said = self.succeeds(*command).err
                    self.assertEqual(said.count("note: a text file is read as one stream, without the token that the tokenizer "
                                                f"puts before each text ({token}), so sequences begin without it: "), count, said)
                    self.assertEqual(said.count("one stream"), count)
            tokens = TokenFile(self.path("run", "data.tokens"))
            self.assertEqual(1 in tokens.ids, kind == "llama" and data != text, kind)
            self.assertNotIn("one stream", self.succeeds("train", "--resume", self.path("run"), "--steps", 2, "--validation", "none").err)

    def test_files_of_a_folder_of_lines_that_hold_none_are_counted(self):
        os.mkdir(self.path("lines"))
        self.documents("lines/x.jsonl")
        for name in ("y.bin", "z.txt"):
            self.write(f"lines/{name}", "other")
        os.symlink("nowhere", self.path("lines/zz.txt"))
        lines = ["tokenize", "--tokenizer", "bytes", self.path("lines"), "--field", "text", "-o", self.path("lines.tokens")]
        self.assertIn(": 1 file read; 2 left out: named as a configuration, or neither *.jsonl, *.ndjson or *.jl nor a *.json of documents\n", self.succeeds(*lines).err)

    # ---- abandoned files ----

    def test_what_a_killed_tokenization_left_goes_with_the_next_and_what_is_held_stays(self):
        temporary = self.path("temporary")
        os.mkdir(temporary)
        model_folder.make(self.path("model"), "gpt2")
        measure = ["eval", self.path("model"), "--sequence", 16, "--data"]
        keywords = {"env": environment(TMPDIR=temporary)}
        large = self.write("large.txt", "so many words as take a while, " * 600000)
        for _ in range(20):  # again if it ended before it was seen writing
            killed = start(*measure, large, **keywords)
            while killed.poll() is None and not any(os.listdir(os.path.join(temporary, n)) for n in os.listdir(temporary)):
                time.sleep(0.001)
            killed.kill()
            killed.communicate()
            if killed.returncode != 0:
                break
        self.assertEqual(killed.returncode, -signal.SIGKILL)
        self.assertEqual(len(os.listdir(temporary)), 1)
        # held by a live process; of another name; a link; with a file not made by us
        others = ["cohobate-tokens-aaaaaa", "cohobate-tokens-bbbb", "cohobate-bbbbbb", "cohobate-tokens-cccccc"]
        for name in others:
            os.mkdir(os.path.join(temporary, name))
            self.write(f"temporary/{name}/data.tokens", "theirs")
        self.write("temporary/cohobate-tokens-cccccc/notes.txt", "theirs")
        os.symlink(os.path.join(temporary, "cohobate-bbbbbb"), os.path.join(temporary, "cohobate-tokens-dddddd"))
        held = os.open(os.path.join(temporary, others[0]), os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        small = self.corpus(60)
        self.succeeds(*measure, small, **keywords)
        self.assertEqual(sorted(os.listdir(temporary)), sorted([*others, "cohobate-tokens-dddddd"]))
        for name in others[:3]:
            self.assertEqual(os.listdir(os.path.join(temporary, name)), ["data.tokens"])
        self.assertEqual(os.listdir(os.path.join(temporary, others[3])), ["notes.txt"])
        os.close(held)
        self.succeeds(*measure, small, **keywords)
        self.assertNotIn(others[0], os.listdir(temporary))
        self.fails(5, *measure, small, env=environment(TMPDIR=self.path("none")), says="set TMPDIR")

    # ---- epochs ----

    def test_epochs_are_the_steps_that_take_all_sequences_so_often(self):
        text = self.corpus(10)
        windows = (len(self.tokenize(text).ids) - 1) // 16  # of TINY's 16 tokens, 2 in a batch
        tokens = self.path("out.tokens")
        self.assertTrue(os.path.exists(tokens), os.listdir(self.folder))
        train, steps = ["train", *TINY, "--save", "none", "--json", "--data"], -(-3 * windows // 2)
        self.assertEqual(3 * windows % 2, 1)  # else there would be nothing to round up
        by_steps = self.succeeds(*train, text, "--steps", steps).json
        for data in (text, tokens):
            done = self.succeeds(*train, data, "--epochs", 3)
            self.assertIn(f"epochs: 3 of {windows} sequences of 16 tokens, 2 a step: {steps} steps", done.err)
            self.assertEqual((done.json["step"], done.json["hash"]), (steps, by_steps["hash"]))
        planned = self.succeeds("plan", *NANO, "--data", tokens, "--epochs", 3, "--json")
        self.assertEqual(planned.json["steps"], steps)
        self.assertEqual(planned.err.count("epochs: "), 1)
        table = self.succeeds("plan", *NANO, "--data", tokens, "--epochs", 3, "--what-if", "device-memory=1GiB")
        self.assertNotIn("epochs: ", table.err)

    def test_epochs_of_aligned_text_and_without_what_is_put_aside(self):
        documents = self.documents()
        aligned = self.tokenize(documents, "--documents", "aligned", "--sequence", 16)
        steps = -(-2 * len(aligned.windows()) // 2)
        train = ["train", *TINY, "--data", documents, "--documents", "aligned", "--epochs", 2, "--json"]
        self.assertEqual(self.succeeds(*train, "--save", "none").json["step"], steps)
        less = self.succeeds(*train, "--validation-split", 0.4, "--save", self.path("run")).json["step"]
        kept = TokenFile(self.path("run", "data.tokens"))
        self.assertEqual(less, -(-2 * len(kept.windows()) // 2))
        self.assertLess(less, steps)

    def test_a_schedule_that_the_epochs_are_too_short_for_and_a_resume_to_no_later_step_are_refused(self):
        train = ["train", *TINY, "--data", self.corpus(60), "--save", self.path("run")]
        self.fails(2, *train, "--epochs", 1, "--warmup", 100000, says="--warmup 100000 is longer")
        self.assertFalse(os.path.exists(self.path("run")))
        self.fails(2, *train, "--epochs", 2, "--steps", 5, says="leave one out")
        self.succeeds(*train, "--steps", 1)
        resume = ["--resume", self.path("run"), "--threads", 2]
        self.fails(2, "train", *resume, "--epochs", 2, "--steps", 5, says="leave one out")
        self.fails(2, "train", *resume, "--epochs", "1e-5", says="is at step 1, and --epochs 1e-05 end at step 1: give more")
        self.fails(2, "plan", *resume, "--epochs", 2, says="--epochs with --resume is for train")

    def test_a_part_of_an_epoch_is_rounded_up_to_whole_steps(self):
        text = self.corpus(10)
        windows = (len(self.tokenize(text).ids) - 1) // 16
        train = ["train", *TINY, "--save", "none", "--json", "--data", text]
        for epochs, sequences in ((0.5, -(-windows // 2)), (1.5, -(-3 * windows // 2)), (1e-6, 1), (0.1, -(-windows // 10)),
                                  (1 + 1 / windows, windows + 1), ("1.0", windows)):
            done = self.succeeds(*train, "--epochs", repr(epochs) if isinstance(epochs, float) else epochs)
            self.assertEqual(done.json["step"], -(-sequences // 2), epochs)
        self.assertIn(f"epochs: 0.5 of {windows} sequences of 16 tokens, 2 a step: {-(-windows // 4)} steps",
                      self.succeeds(*train, "--epochs", 0.5).err.replace(" step\n", " steps\n"))

    def test_a_resumed_run_counts_epochs_from_where_its_data_begins(self):
        text, run = self.corpus(10), self.path("run")
        windows = (len(self.tokenize(text).ids) - 1) // 16
        other = self.write("other.txt", "another text of some lines\n" * 8)
        os.remove(self.path("out.tokens"))
        others = (len(self.tokenize(other).ids) - 1) // 16
        self.succeeds("train", *TINY, "--data", text, "--steps", 2, "--schedule-steps", 100, "--save", run)
        schedule = self.succeeds("inspect", run, "--json").json["note"]["schedule_steps"]
        resume = ["train", "--resume", run, "--threads", 2, "--json"]
        done = self.succeeds(*resume, "--epochs", 1)
        end = -(-windows // 2)
        self.assertEqual(done.json["step"], end)
        self.assertIn(f"epochs: 1 of {windows} sequences of 16 tokens, 2 a step: up to step {end}\n", done.err)
        # in batches of another size, from the first sequence that was not read
        done = self.succeeds(*resume, "--epochs", 1.5, "--batch", 1)
        self.assertEqual(done.json["step"], end + max(0, -(-3 * windows // 2) - 2 * end))
        # new data is read from its first sequence
        before = done.json["step"]
        done = self.succeeds(*resume, "--epochs", 2, "--data", other)
        self.assertEqual((done.json["step"], done.json["data_passes"]), (before + 2 * others, 2))
        self.assertEqual(self.succeeds("inspect", run, "--json").json["note"]["schedule_steps"], schedule)

    # ---- forms ----

    def test_packed_documents_follow_one_another(self):
        file = self.tokenize(self.documents())
        self.assertEqual((file.version, file.ids), (1, [i for d in DOCUMENTS for i in ids_of(d)]))
        named = self.tokenize(self.documents("other.txt", "body"), "--field", "body")
        self.assertEqual(named.ids, file.ids)
        os.mkdir(self.path("folder"))
        self.write("folder/c.txt", "not these")
        self.documents("folder/a.jsonl", "body", DOCUMENTS[:3])
        told = ["tokenize", self.path("folder"), "-o", self.path("as-text")]
        self.assertIn("folder: 1 file *.jsonl, *.ndjson or *.jl: read as text; ", self.succeeds(*told).err)
        self.documents("folder/b.jsonl", "body", DOCUMENTS[3:])
        self.assertIn("folder: 2 files *.jsonl, *.ndjson or *.jl: read as text; ", self.succeeds(*told[:3], self.path("two")).err)
        self.assertEqual(self.tokenize(self.path("folder"), "--field", "body").ids, file.ids)

    def test_aligned_documents_have_windows_of_their_own(self):
        for length in (1, 4, 16, 100):
            file = self.tokenize(self.documents(), "--documents", "aligned", "--sequence", length)
            by_hand = windows_by_hand([(ids_of(d), [1] * len(ids_of(d))) for d in DOCUMENTS], length)
            self.assertEqual((file.version, file.window), (2, length))
            self.assertEqual(file.windows(), by_hand)

    def test_fitted_documents_share_windows_and_are_whole(self):
        draw = random.Random(5)
        many = ["".join(draw.choices("abcdefgh", k=draw.choice((2, 5, 9, 14, 20, 40)))) for _ in range(600)]
        for length in (1, 4, 16, 100):
            for documents in (DOCUMENTS, many):
                file = self.tokenize(self.documents(documents=documents), "--documents", "fitted", "--sequence", length)
                by_hand = fitted_by_hand([(ids_of(d), [1] * len(ids_of(d))) for d in documents], length)
                self.assertEqual((file.version, file.window, file.windows()), (2, length, by_hand))
        used = sum(len(ids_of(text)) for text in many)
        self.assertLess(len(by_hand) * 101, 1.1 * used)  # of sequences of 100 hardly any are padding
        aligned = self.tokenize(self.documents(documents=many), "--documents", "aligned", "--sequence", 100)
        self.assertGreater(len(aligned.windows()), 4 * len(by_hand))

    def test_fitted_conversations_keep_what_counts(self):
        chats = [*CHATS, *([("user", "x" * n), ("assistant", "y" * (n % 7))] for n in range(1, 90))]
        for length in (16, 64, 200):
            file = self.tokenize(self.chats(chats=chats), "--chat", "--documents", "fitted", "--sequence", length)
            self.assertEqual(file.windows(), fitted_by_hand([plain_chat(chat) for chat in chats], length))

    def test_a_run_reads_and_goes_on_with_fitted_documents(self):
        data = self.documents(documents=[f"document {i} " * (1 + i % 4) for i in range(60)])
        flags = ["--documents", "fitted", "--validation-split", "0.2", "--sequence", 64]
        told = self.succeeds("train", "gpt2-pico", "--data", data, *flags, "--batch", 2, "--threads", 2, "--steps", 2,
                             "--save", self.path("run"), "--json").json
        self.fails(2, "train", "gpt2-pico", "--data", self.path("run", "data.tokens"), "--sequence", 32, "--steps", 1,
                   says="give --sequence 64")
        held = self.succeeds("eval", self.path("run"), "--data", self.path("run", "validation.tokens"), "--json").json
        self.assertEqual(held["loss"], told["validation_loss"])
        os.remove(self.path("run", "data.tokens"))
        self.succeeds("train", "--resume", self.path("run"), "--steps", 3, "--data", data)  # made again in the same form
        other = self.succeeds("train", self.path("run"), "--data", data, "--batch", 2, "--threads", 2, "--steps", 1, "--save", "none")
        self.assertIn("were fitted; those of this run are packed (--documents fitted)", other.err)

    def test_conversations_count_what_the_assistant_says(self):
        expected = [plain_chat(chat) for chat in CHATS]
        file = self.tokenize(self.chats(), "--chat")
        self.assertEqual(file.ids, [i for ids, _ in expected for i in ids])
        self.assertEqual(file.counts, [c for _, counts in expected for c in counts])
        for length in (4, 16, 64):
            file = self.tokenize(self.chats(), "--chat", "--documents", "aligned", "--sequence", length)
            self.assertEqual(file.windows(), windows_by_hand(expected, length))

    def test_a_chat_template_that_cannot_be_run_is_refused_unless_a_form_is_named(self):
        folder, chats = self.path("model"), self.chats()
        model_folder.make(folder, "gpt2")
        told = ["tokenize", chats, "--chat", "--tokenizer", folder, "-o", self.path("out.tokens")]
        plain = self.tokenize(*told[1:-2]).ids  # without a template
        template = self.write("model/chat_template.jinja", "{% for m in messages %}{{ m.content | colour }}{% endfor %}")
        for says in (template, "--chat-form chatml|llama3|llama2|plain|gemma|qwen3", "apply_chat_template and give the texts with --field"):
            self.fails(4, *told, says=says)
            self.fails(4, "eval", folder, "--data", chats, "--chat", says=says)
        self.assertEqual(self.tokenize(*told[1:-2], "--chat-form", "plain").ids, plain)
        self.assertNotEqual(self.tokenize(*told[1:-2], "--chat-form", "llama2").ids, plain)
        self.fails(2, *told, "--chat-form", "chatml", says="<|im_start|>")
        self.fails(2, *told[:2], *told[3:], "--chat-form", "plain", says="--chat")
        # a run keeps the form: each resume tokenizes its validation text again
        train = ["train", "--save", self.path("run"), "--steps"]
        self.succeeds(*train, 1, folder, "--data", chats, "--validation", chats, "--chat",
                      "--chat-form", "plain", "--sequence", 16, "--batch", 1, "--threads", 1)
        self.succeeds("train", "--resume", self.path("run"), "--steps", 2, "--threads", 1)

    def test_a_validation_split_is_a_partition_in_order(self):
        documents = [f"document {i}" for i in range(200)]
        path = self.documents(documents=documents)
        parts = {}
        for seed in (1, 2):
            self.tokenize(path, "--validation-split", "0.2", "--seed", seed, "--held-out-file", self.path("held"))
            ids = [TokenFile(self.path(name)).ids for name in ("out.tokens", "held")]
            texts = [bytes(i if i < 256 else 10 for i in part).decode().split("\n")[:-1] for part in ids]
            self.assertEqual(sorted(texts[0] + texts[1]), sorted(documents))
            for part in texts:
                self.assertEqual(part, sorted(part, key=documents.index))
            self.assertTrue(10 <= len(texts[1]) <= 80, len(texts[1]))
            parts[seed] = texts[1]
        self.assertNotEqual(parts[1], parts[2])

    def test_malformed_lines_are_named_and_leave_nothing(self):
        good = json.dumps({"text": "x"})
        for line, says in (("{", ":2: no JSON"), ("{}", ':2: the object has no field "text"'),
                           ('{"text": 3}', ':2: the field "text" is a number where a text is needed: write one')):
            path = self.write("bad.jsonl", f"{good}\n{line}\n{good}\n")
            self.fails(4, "tokenize", path, "-o", self.path("o"), says=path + says)
            self.fails(4, "train", *TINY, "--data", path, "--steps", 1, "--save", self.path("run"), says=says)
            self.assertFalse(os.path.exists(self.path("o")))
            self.assertFalse(os.path.exists(self.path("run", "data.tokens")))
        chat = self.write("chat.jsonl", '{"messages": [{"role": "user", "content": "x"}]}\n')
        self.fails(4, "tokenize", chat, "--chat", "-o", self.path("o"), says=":1: no message is the assistant's")

    def test_the_folder_of_a_model_or_a_run_is_no_folder_of_text(self):
        """Its text files would be trained on: a config.json, a tokenizer.json, a run.json."""
        model, run, text = self.path("model"), self.path("run"), self.corpus()
        model_folder.make(model, "gpt2")
        train = ["train", *TINY, "--steps", 1, "--data"]
        self.succeeds(*train, text, "--save", run)
        for folder, says in ((model, "a Hugging Face model's folder, whose text files are its configuration and its tokenizer: give a file of text"),
                             (run, f"give {run}/data.tokens for the tokens that it trained on"),
                             (run + "/step-1", "the folder of a checkpoint, whose text files are no texts to train on: give a file")):
            for command in ([*train, folder, "--save", "none"], [*train, text, "--validation", folder, "--save", "none"],
                            ["eval", run, "--data", folder], ["tokenize", folder, "-o", self.path("o")]):
                with self.subTest(command=command):
                    self.assertIn(folder + " is ", self.fails(4, *command, says=says).err)
        self.succeeds(*train, run + "/data.tokens", "--save", "none")
        self.fails(4, "tokenize", run + "/", "-o", self.path("o"), says=f"give {run}/data.tokens for the tokens")
        # lines in such a folder are read with the flag that the refusal names
        refused = ["tokenize", model, "-o", self.path("lines")]
        self.assertNotIn("--field", self.fails(4, *refused).err)
        for name in ("a.jsonl", "a.ndjson", "a.jl"):
            path = self.documents("model/" + name, "text", DOCUMENTS[:3])
            self.fails(4, *refused, says="; --field NAME or --chat reads the lines of its *.jsonl, *.ndjson and *.jl")
            self.succeeds(*refused, "--field", "text")
            os.remove(path)

    def test_lines_in_the_folder_of_a_checkpoint_or_a_run_are_read(self):
        """--field and --chat name them. Two files of a checkpoint's make no checkpoint: one has its parameters, too."""
        for folder, names in (("checkpoint", ("manifest.json", "hashes.bin", "work.bin")), ("run", ("run.json", "plan.json"))):
            with self.subTest(folder=folder):
                os.mkdir(self.path(folder))
                for name in names:
                    self.write(f"{folder}/{name}", "{}")
                self.documents(folder + "/a.jsonl", "text", DOCUMENTS[:3])
                tokenize = ["tokenize", self.path(folder), "-o", self.path("o")]
                self.fails(4, *tokenize, says=f"is the folder of a {folder}")
                self.succeeds(*tokenize, "--field", "text")
        os.remove(self.path("checkpoint", "work.bin"))
        self.succeeds("tokenize", self.path("checkpoint"), "-o", self.path("o"))

    def test_texts_next_to_the_configuration_of_a_model_are_read(self):
        """Weights make a folder that of a model. Without them it is one if it holds nothing but a model's small files."""
        os.makedirs(self.path("texts", "more"))
        self.write("texts/more/b.txt", "text")
        tokenize = ["tokenize", self.path("texts"), "-o", self.path("o")]
        for name in ("config.json", "tokenizer.json", "generation_config.json", "merges.txt", "chat_template.jinja", "README.md",
                     ".gitattributes"):
            self.write("texts/" + name, "a b")
        self.succeeds(*tokenize)
        shutil.rmtree(self.path("texts", "more"))
        self.fails(4, *tokenize, says="a Hugging Face model's folder")
        for name in ("notes.txt", "a.jsonl", "a.json", "a.py"):
            with self.subTest(name=name):
                path = self.write("texts/" + name, "text")
                self.succeeds(*tokenize)
                os.remove(path)
        self.write("texts/notes.txt", "text")
        for name in ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"):
            with self.subTest(name=name):
                path = self.write("texts/" + name, "x")
                self.fails(4, *tokenize, says="a Hugging Face model's folder")
                os.remove(path)
        self.succeeds(*tokenize)

    def test_a_folder_of_adapters_is_no_folder_of_text(self):
        """Its text files are adapter_config.json and PEFT's README.md. Without weights it is none of adapters."""
        os.mkdir(self.path("lora"))
        tokenize = ["tokenize", self.path("lora"), "-o", self.path("o")]
        for name in ("adapter_config.json", "README.md", "notes.txt"):
            self.write("lora/" + name, "{}")
        self.succeeds(*tokenize)
        for name in ("adapter_model.safetensors", "adapter_model.bin"):
            path = self.write("lora/" + name, b"\0")
            self.fails(4, *tokenize, says="is a folder of adapters, whose text files are its configuration")
            os.remove(path)

    def test_folders_without_stored_text_get_one_sentence(self):
        run = self.path("run")
        self.succeeds("train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", run)
        os.makedirs(self.path("pipes"))
        os.mkfifo(self.path("pipes", "p"))
        for folder, says in (("/proc", "a folder of the kernel's"), ("/proc/sys", "a folder of the kernel's"), ("/proc/self", "a folder of the kernel's"),
                             (self.path("pipes"), "holds no file (hidden ones do not count)")):
            for command in (["eval", run, "--data", folder], ["tokenize", folder, "-o", self.path("o")],
                            ["train", *TINY, "--data", folder, "--save", "none"],
                            ["train", *TINY, "--data", self.corpus(), "--validation", folder, "--save", "none"]):
                with self.subTest(command=command):
                    self.assertEqual(self.fails(4, *command, says=says).err.count("\n"), 1)

    def test_data_without_text_or_too_short_for_a_sequence_says_what_is_needed(self):
        os.mkdir(self.path("folder"))
        self.write("folder/.hidden", "text")
        self.fails(4, "tokenize", self.path("folder"), "-o", self.path("o"), says="holds no file (hidden ones do not count)")
        self.write("folder/a.bin", b"\0\1\2")
        train = ["train", *TINY, "--steps", 1, "--save", "none", "--data"]
        none = f"folder {self.path('folder')} holds no text file"
        self.fails(4, *train, self.path("folder"), says=none)
        self.fails(4, "tokenize", self.path("folder"), "-o", self.path("o"), says="of its 1 file none is text")
        self.fails(4, *train, self.path("folder"), "--field", "text", says="holds no file *.jsonl, *.ndjson or *.jl")
        self.fails(4, *train, self.write("blank.jsonl", "\n"), says="no line with an object")
        for before in (1, 100, 8000):  # a NUL is what tells a binary file, as in a folder
            self.fails(4, *train, self.write("archive", b"x" * before + b"\0" * 20 + b"x" * 400), says="archive is no text")
        for count, says in ((16, "holds 16 tokens, and a sequence of 16 needs 17: give more, or --sequence 15"),
                            (1, "holds 1 token, and a sequence of 16 needs 17: give more")):
            short = self.write("short.txt", "x" * count)
            self.fails(4, *train, short, says=f"--data {short} {says}")
        self.fails(4, *train, self.corpus(), "--validation", short,
                   says=f"--validation {short} holds 1 token, and a loss needs 2: give more")
        self.succeeds(*train, self.write("short.txt", "x" * 16), "--sequence", 15)

    def test_a_limit_of_file_sizes_is_named_and_no_tokens_are_left(self):
        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        said = self.fails(5, "tokenize", self.corpus(), "-o", self.path("out.tokens"), preexec_fn=small_files, says="File too large").err
        self.assertTrue(said.endswith(": raise the limit of file sizes (ulimit -f)\n"), said)
        self.assertFalse([name for name in os.listdir(self.folder) if "out.tokens" in name])

    def test_flags_that_say_nothing_of_the_data_are_refused(self):
        path, text = self.documents(), self.corpus()
        tokens = self.path("t.tokens")
        self.succeeds("tokenize", path, "-o", tokens)
        train = ["train", *TINY, "--steps", 1, "--save", "none", "--data"]
        for arguments, says in (
            ([*train, path, "--field", "text", "--chat"], "--chat"),
            ([*train, tokens, "--chat"], "holds ids already"),
            ([*train, tokens, "--validation-split", "0.1"], "holds ids already"),
            ([*train, path, "--validation-split", "0.1", "--validation", text], "--validation-split"),
            (["tokenize", path, "-o", self.path("o"), "--validation-split", "0.5"], "--held-out-file"),
            (["tokenize", path, "-o", self.path("o"), "--validation-split", "0.5", "--held-out", 2,
              "--held-out-file", self.path("h")], "--held-out and --validation-split"),
            ([*train, path, "--validation-split", "1"], "from 1e-09 to below 1, not '1'"),
            ([*train, path, "--validation-split", "0"], "--validation-split"),
            ([*train, path, "--documents", "both"], "--documents"),
        ):
            with self.subTest(arguments=arguments):
                self.fails(2, *arguments, says=says)
        aligned = self.path("a.tokens")
        self.succeeds("tokenize", path, "--documents", "aligned", "--sequence", 8, "-o", aligned)
        self.fails(2, *train, aligned, says="give --sequence 8")

    # ---- training ----

    def chat_data(self, count=40):
        return self.chats(chats=[[("user", f"What is {i}?"), ("assistant", f"It is {i * i % 97}.")]
                                 for i in range(count)])

    @in_full
    def test_a_conversation_run_cut_in_two_ends_with_the_hash_of_the_whole_one(self):
        flags = ["--data", self.chat_data(), "--chat", "--documents", "aligned", "--validation-split", "0.2",
                 "--sequence", 32, "--validation-every", 1]
        model = ["gpt2-nano", "--batch", 2, "--threads", 2]
        whole = self.succeeds("train", *model, *flags, "--steps", 4, "--save", self.path("whole"))
        self.assertIn("conversations, written as plain", whole.err)
        self.assertIn("put aside for validation", whole.err)
        self.succeeds("train", *model, *flags, "--steps", 2, "--schedule-steps", 4, "--save", self.path("half"))
        for name in ("data", "validation"):
            self.assertEqual(TokenFile(self.path("half", name + ".tokens")).window, 32)
        resumed = self.succeeds("train", "--resume", self.path("half"), "--steps", 4, "--validation-every", 1)
        self.assertEqual(self.says_hash(resumed), self.says_hash(whole))
        self.assertRegex(resumed.out, r"validation loss \d")
        self.assertEqual(resumed.out.split("validation loss ")[1][:6], whole.out.split("validation loss ")[1][:6])
        # the text again, instead of its tokens, is read in the same form
        self.fails(2, "train", "--resume", self.path("half"), "--steps", 5, "--chat", says="give the --data")
        more = self.succeeds("train", "--resume", self.path("half"), "--steps", 5, "--data", self.chat_data())
        self.assertRegex(more.out, r"validation loss \d")
        self.assertNotIn("other data", more.err)
        self.assertEqual(len([name for name in os.listdir(self.path("half")) if name.endswith(".tokens")]), 2)
        other = self.succeeds("train", "--resume", self.path("half"), "--steps", 6, "--data", self.chat_data(41))
        self.assertIn("other data", other.err)
        for name in ("data-5", "validation-5"):
            self.assertEqual(TokenFile(self.path("half", name + ".tokens")).window, 32)

    def test_a_resumed_run_validates_with_the_text_it_had_or_says_why_not(self):
        lines = 10 if SHORT else 40
        held = self.write("held.txt", "line 5: the 7th of many\n" * lines)
        other = self.write("other.txt", "as said\n" * (20 if SHORT else 90))
        text, run = self.corpus(), self.path("run")
        whole = self.succeeds("train", *TINY, "--data", text, "--steps", 3, "--save", "none", "--validation", held, "--json")
        self.succeeds("train", *TINY, "--data", text, "--steps", 2, "--schedule-steps", 3, "--save", run, "--validation",
                      held)
        note = self.succeeds("inspect", run, "--json").json["note"]
        self.succeeds("tokenize", held, "-o", self.path("held.tokens"))
        self.assertEqual(note["validation"], os.path.realpath(held))
        self.assertEqual(note["validation_hash"], self.succeeds("inspect", self.path("held.tokens"), "--hash").out.strip())
        before = sorted(os.listdir(run))
        self.write("held.txt", "line 5: the 7th of some\n" * lines)
        self.fails(4, "train", "--resume", run, "--steps", 3, says="held.txt is not what the run was validated with")
        os.rename(held, self.path("away.txt"))
        self.fails(2, "train", "--resume", run, "--steps", 3, says="held.txt, which the run was validated with, is gone")
        self.assertEqual(sorted(os.listdir(run)), before)
        self.write("held.txt", "line 5: the 7th of many\n" * lines)
        resumed = self.succeeds("train", "--resume", run, "--steps", 3, "--json")
        self.assertEqual([resumed.json[k] for k in ("hash", "validation_loss")],
                         [whole.json[k] for k in ("hash", "validation_loss")])
        # the flag's form is used, and becomes the run's; so does none
        changed = self.succeeds("train", "--resume", run, "--steps", 4, "--validation", other)
        self.assertIn("other validation data than before", changed.err)
        after = self.succeeds("train", "--resume", run, "--steps", 5)
        self.assertNotIn("other validation data", after.err)
        self.assertRegex(after.out, r"validation loss \d")
        for flags in (["--validation", "none"], []):
            steps = 6 + (not flags)
            self.assertNotIn("validation loss", self.succeeds("train", "--resume", run, "--steps", steps, *flags).out)

    def test_what_was_put_aside_is_missed_and_known_again(self):
        data, run = self.documents(documents=[f"document {i}" * 9 for i in range(20 if SHORT else 60)]), self.path("run")
        self.succeeds("train", *TINY, "--data", data, "--validation-split", "0.3", "--steps", 1, "--save", run)
        held = self.path("run", "validation.tokens")
        os.rename(held, self.path("away"))
        self.fails(2, "train", "--resume", run, "--steps", 2, says="put aside for validation is gone")
        self.succeeds("tokenize", self.corpus(LINES), "-o", held)
        self.fails(4, "train", "--resume", run, "--steps", 2, says="is not what the run was validated with")
        os.rename(self.path("away"), held)
        self.assertIn("validation loss", self.succeeds("train", "--resume", run, "--steps", 2).out)
        # the text again, with its own validation text in addition to the held-out share
        more = self.succeeds("train", "--resume", run, "--steps", 3, "--data", data, "--validation",
                             self.corpus(LINES))
        self.assertIn("other validation data", more.err)

    def test_new_data_keeps_the_form_that_no_flag_changes(self):
        run = self.path("run")
        texts = [[f"document {i} of {n}" * 9 for i in range(20)] for n in range(2)]
        first = self.documents(documents=texts[0])
        self.succeeds("train", *TINY, "--data", first, "--validation-split", "0.3", "--steps", 1, "--save", run)
        second = self.write("second.jsonl", "".join(json.dumps({"body": text}) + "\n" for text in texts[1]))
        more = self.succeeds("train", "--resume", run, "--steps", 2, "--data", second, "--field", "body")
        self.assertIn("validation loss", more.out)
        note = self.succeeds("inspect", run, "--json").json["note"]
        self.assertEqual((note["validation_split"], note["field"]), (0.3, "body"))

    def test_what_was_put_aside_is_made_again_from_the_same_data(self):
        data, run = self.documents(documents=[f"document {i}" * 9 for i in range(20)]), self.path("run")
        self.succeeds("train", *TINY, "--data", data, "--validation-split", "0.3", "--steps", 1, "--save", run)
        os.remove(self.path("run", "validation.tokens"))
        self.assertIn("validation loss", self.succeeds("train", "--resume", run, "--steps", 2, "--data", data).out)
        self.assertIn("validation loss", self.succeeds("train", "--resume", run, "--steps", 3).out)

    def test_eval_reads_text_in_the_form_of_the_run(self):
        chats = self.chats(chats=[[("user", f"What is {i}?"), ("assistant", f"It is {i * i % 97}.")] for i in range(12)])
        for name, form in (("chat", ["--chat", "--documents", "aligned"]), ("aligned", ["--documents", "aligned"]),
                           ("fitted", ["--documents", "fitted"])):
            data = chats if name == "chat" else self.documents(documents=[f"document {i}" * 3 for i in range(20)])
            done = self.succeeds("train", "gpt2-pico", "--sequence", 32, "--batch", 2, "--threads", 2, "--data", data,
                                 "--validation", data, *form, "--steps", 1, "--save", self.path(name), "--json").json
            told = self.succeeds("eval", self.path(name), "--data", data, "--json").json
            self.assertEqual(told["loss"], done["validation_loss"])

    def test_eval_is_the_mean_over_what_counts(self):
        self.succeeds("train", *TINY, "--dtype", "f32", "--data", self.corpus(), "--steps", 1, "--save",
                      self.path("run"))
        # one document of 17 ids is one window; aligned among shorter ones it counts for its share
        whole, short = "w" * 16, "s" * 4
        losses = {}
        for name, documents in (("whole", [whole]), ("short", [short]), ("both", [whole, short])):
            path = self.documents(name + ".jsonl", documents=documents)
            losses[name] = self.succeeds("eval", self.path("run"), "--data", path, "--documents", "aligned",
                                         "--json").json
        self.assertEqual([losses[n]["tokens"] for n in ("whole", "short", "both")], [16, 4, 20])
        mean = (16 * losses["whole"]["loss"] + 4 * losses["short"]["loss"]) / 20
        self.assertAlmostEqual(losses["both"]["loss"], mean, delta=1e-6 * mean)

    def test_a_step_in_which_nothing_counts_changes_nothing(self):
        long_question = self.chats(chats=[[("user", "x" * 2000), ("assistant", "y")]])
        few = self.write("few.txt", "Some words, seventeen or more characters.\n" * 8)
        values = []
        for steps in (1, 3):
            run = self.path(f"run{steps}")
            done = self.succeeds("train", "gpt2-pico", "--dtype", "f32", "--sequence", 16, "--batch", 1, "--threads", 2,
                                 "--data", long_question, "--chat", "--steps", steps, "--warmup", 0, "--save", run,
                                 "--weight-decay", 0.5)
            self.assertIn("loss 0.0000", done.out)
            values.append(self.succeeds("eval", run, "--data", few, "--json").json["loss"])
        self.assertEqual(values[0], values[1])

    @unittest.skipUnless(os.path.exists("/proc/self/mem"), "no file here opens and cannot be read")
    def test_data_that_cannot_be_read_is_refused_by_its_flag_once(self):
        run = self.path("run")
        self.succeeds("train", *TINY, "--data", self.corpus(60), "--steps", 1, "--save", run)
        done = self.fails(5, "eval", run, "--data", "/proc/self/mem", says=": --data /proc/self/mem cannot be read: ")
        self.assertEqual(done.err.count("--data"), 1, done.err)

    def test_bins_of_llm_c_and_nanogpt_train_as_the_token_file_does(self):
        text = self.corpus()
        file = self.tokenize(text)
        ids = struct.pack(f"<{len(file.ids)}H", *file.ids)
        header = struct.pack("<3I", 20240520, 1, len(file.ids)) + bytes(1024 - 12)
        header32 = struct.pack("<3I", 20240801, 7, len(file.ids)) + bytes(1024 - 12)
        runs = {"tokens": self.path("out.tokens"), "nanogpt": self.write("nano.bin", ids),
                "llmc": self.write("llmc.bin", header + ids),
                "llmc32": self.write("llmc32.bin", header32 + struct.pack(f"<{len(file.ids)}I", *file.ids))}
        hashes = {}
        for name, path in runs.items():
            done = self.succeeds("train", *TINY, "--data", path, "--steps", 2, "--save", "none")
            self.assertEqual("does not say which tokenizer" in done.err, name != "tokens")
            hashes[name] = self.says_hash(done)
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        shown = self.succeeds("inspect", runs["llmc32"], "--json").json
        self.assertEqual({key: shown[key] for key in ("type", "form", "tokens", "id_bytes", "vocabulary")},
                         {"type": "ids", "form": "llm.c", "tokens": len(file.ids), "id_bytes": 4,
                          "vocabulary": max(file.ids) + 1})
        bad = self.write("bad.bin", struct.pack("<40H", *range(250, 290)))
        self.fails(4, "train", *TINY, "--data", bad, "--steps", 1, "--save", "none", says="id 257 at position 7")

    def test_the_width_of_ids_without_a_header_can_be_said_and_is_kept(self):
        text, train = self.corpus(LINES), ["train", *TINY, "--steps", 1, "--schedule-steps", 2]
        ids = self.tokenize(text).ids
        wide = self.write("wide.bin", struct.pack(f"<{len(ids)}I", *ids))
        self.fails(4, *train, "--data", wide, "--save", "none", says="give --id-bytes 4")
        done = self.succeeds(*train, "--data", wide, "--id-bytes", 4, "--save", self.path("run"))
        self.assertEqual(self.says_hash(done), self.says_hash(self.succeeds(*train, "--data", text, "--save", "none")))
        self.succeeds("train", "--resume", self.path("run"), "--steps", 2)
        self.fails(2, "train", "--resume", self.path("run"), "--steps", 3, "--id-bytes", 2, says="--id-bytes")
        self.succeeds("eval", self.path("run"), "--data", wide, "--id-bytes", 4)
        # ids of 2 bytes of which every second is 0, and ids that spell a text or begin like JSON
        odd = self.write("odd.bin", struct.pack("<40H", *[i % 2 * 7 for i in range(1, 41)]))
        spelled = self.write("spelled.bin", b"{ " * 40)
        for path, width, count, largest in ((wide, 4, len(ids), max(ids)), (odd, 2, 40, 7), (spelled, 2, 40, 0x207b)):
            flags = [] if path == wide else ["--id-bytes", width]
            shown = self.succeeds("inspect", path, "--json", *flags).json
            self.assertEqual((shown["form"], shown["id_bytes"], shown["tokens"], shown["vocabulary"]),
                             ("nanoGPT", width, count, largest + 1))
            self.assertIn(f"needs a vocabulary of {largest + 1} at least", self.succeeds("inspect", path, *flags).out)
            checked = self.succeeds("check", path, *flags, "--json").json
            self.assertEqual((checked["type"], checked["hash"]), ("id file", shown["hash"]))
        self.fails(4, "inspect", spelled, says="looks like text")
        self.fails(4, "check", self.write("cut.bin", b"\1\0\2"), says="no number of ids of 2 bytes")
        headed = self.write("llmc.bin", struct.pack("<3I", 20240520, 1, 20) + bytes(1012) + bytes(40))
        for arguments in (["inspect", headed, "--id-bytes", 4], ["inspect", text, "--id-bytes", 2],
                          [*train, "--save", "none", "--data", text, "--id-bytes", 2], ["inspect", wide, "--id-bytes", 3]):
            self.fails(2, *arguments, says="--id-bytes")

    @in_full
    def test_the_width_of_validation_ids_is_kept_whatever_the_data_is(self):
        text = self.corpus()
        ids = self.tokenize(text).ids
        # half as many ids of 4 bytes as of 2, every second of which is 0
        wide = self.write("wide.bin", struct.pack(f"<{len(ids)}I", *ids))
        train = ["train", *TINY, "--steps", 1, "--schedule-steps", 3]
        run, more = self.path("run"), self.write("more.txt", "another text than that before " * 20)

        def losses(*arguments):
            log = self.path("log")
            self.succeeds(*arguments, "--log", log)
            with open(log) as file:
                found = [line["validation_loss"] for line in map(json.loads, file) if "validation_loss" in line]
            os.remove(log)
            return found
        self.assertEqual(len(losses(*train, "--data", text, "--validation", wide, "--id-bytes", 4, "--save", run)), 1)
        resume = ["train", "--resume", run]
        same = losses(*resume, "--steps", 2, "--data", more, "--new-data")
        self.assertEqual(len(same), 1)
        # given again it is the width of the new validation, and the data keep their own
        again = losses(*resume, "--steps", 3, "--validation", wide, "--id-bytes", 4)
        self.assertEqual(len(again), 1)
        self.fails(4, *resume, "--steps", 4, "--validation", wide, says="give --id-bytes 4")


if __name__ == "__main__":
    unittest.main()
