"""--documents separate: documents share a sequence, and a token attends over its own. The loss is that of documents in sequences
of their own (aligned), for models with learned and with rotated positions; budgets, ranks and a resume change no bit."""

import json
import os
import random
import struct
import unittest

import model_folder
from program import TrainTest
from test_data import CHATS, END, TokenFile, fitted_by_hand, ids_of, plain_chat

LENGTH = 48
SEPARATE = ["--documents", "separate", "--sequence", LENGTH]


class MarkedFile(TokenFile):
    """Reads the second mark, too: the first id of a document."""

    def __init__(self, path):
        super().__init__(path)
        with open(path, "rb") as file:
            data = file.read()
        width, flags = struct.unpack("<I", data[12:16])[0], struct.unpack("<I", data[52:56])[0]
        assert self.version == 3 and flags == 3
        begins = 1 << (8 * width - 2)
        self.begins = [int(bool(value & begins)) for value in self.ids]
        self.ids = [value & ~begins for value in self.ids]


def some_documents(count=40):
    """Of at most LENGTH tokens, with the end."""
    draw = random.Random(9)
    return ["".join(draw.choices("abcd efgh\n", k=draw.choice((1, 3, 8, 15, 22, 30, 46)))) for _ in range(count)]


class Separate(TrainTest):
    def documents(self, documents=None, name="data.jsonl"):
        return self.write(name, "".join(json.dumps({"text": text}) + "\n" for text in documents or some_documents()))

    def tokenize(self, *arguments):
        self.succeeds("tokenize", *arguments, "-o", self.path("out.tokens"))
        self.succeeds("check", self.path("out.tokens"))
        return MarkedFile(self.path("out.tokens"))

    def loss(self, model, data, layout, *more):
        return self.succeeds("eval", model, "--data", data, "--documents", layout, "--dtype", "f32", "--sequence", LENGTH,
                             "--micro-batch", 2, "--json", *more).json["loss"]

    def test_a_file_marks_the_first_id_of_each_document(self):
        """Documents longer than a window go on at the begin of the next; each id of padding is alone."""
        long = "x" * (2 * LENGTH + 5)
        for documents in (some_documents(), [long, "short", long, "", "end"]):
            for length in (4, LENGTH):
                file = self.tokenize(self.documents(documents), "--documents", "separate", "--sequence", length)
                by_hand = fitted_by_hand([(ids_of(text), [1] * len(ids_of(text))) for text in documents], length)
                self.assertEqual((file.window, file.windows()), (length, by_hand))
                for at in range(len(file.ids)):
                    if at % (length + 1) > 0:  # the first of a window begins one anyway
                        self.assertEqual(file.begins[at], int(file.ids[at - 1] == END))
        said = self.succeeds("inspect", self.path("out.tokens"))
        self.assertIn("separate, a token attends over its own", said.out)
        self.assertIs(self.succeeds("inspect", self.path("out.tokens"), "--json").json["marks_documents"], True)

    def test_conversations_are_marked_once_each(self):
        data = self.write("chats.jsonl", "".join(
            json.dumps({"messages": [{"role": r, "content": c} for r, c in chat]}) + "\n" for chat in CHATS * 2))
        file = self.tokenize(data, "--chat", "--documents", "separate", "--sequence", 200)
        begins = []
        for ids, _ in [plain_chat(chat) for chat in CHATS * 2]:
            begins += [1] + [0] * (len(ids) - 1)
        begins = begins[:201] + [1] * (201 - len(begins))
        self.assertEqual(len(file.ids), 201)
        self.assertEqual(file.begins, begins)

    def test_the_loss_is_that_of_documents_in_sequences_of_their_own(self):
        """The oracle shares no code: there a row has one document, and no kind takes positions."""
        data = self.documents()
        for kind in ("gpt2", "opt", "llama", "gemma3_text", "qwen3", "phi3"):
            folder = self.path(kind)
            model_folder.make(folder, kind)
            use = ("--tokenizer", "bytes")
            alone, together, seen = (self.loss(folder, data, layout, *use) for layout in ("aligned", "separate", "fitted"))
            self.assertLess(abs(together - alone), 2e-6 * alone, kind)
            self.assertGreater(abs(seen - alone), 1e-4, kind)  # tokens that see other documents have another loss

    def test_gradients_are_those_of_documents_in_sequences_of_their_own(self):
        """The norm of a step's gradient, of all sequences at once."""
        data, norms = self.documents(some_documents(12)), {}
        for kind in ("gpt2", "llama"):
            folder = self.path(kind)
            model_folder.make(folder, kind)
            for layout in ("aligned", "separate", "fitted"):
                file = TokenFile if layout != "separate" else MarkedFile
                self.succeeds("tokenize", data, "--documents", layout, "--sequence", LENGTH, "-o", self.path(layout))
                batch = len(file(self.path(layout)).windows())
                log = self.path("log.jsonl")
                self.succeeds("train", folder, "--tokenizer", "bytes", "--data", self.path(layout), "--dtype", "f32", "--batch", batch,
                              "--micro-batch", 1, "--sequence", LENGTH, "--steps", 1, "--threads", 2, "--save", "none", "--log", log)
                with open(log, encoding="utf-8") as lines:
                    norms[layout] = [json.loads(line)["grad_norm"] for line in lines if "grad_norm" in line][0]
                os.remove(log)
            self.assertLess(abs(norms["separate"] - norms["aligned"]), 1e-5 * norms["aligned"], kind)
            self.assertGreater(abs(norms["fitted"] - norms["aligned"]), 1e-4 * norms["aligned"], kind)

    def test_budgets_ranks_and_a_resume_change_no_bit(self):
        shape = ["gpt2-pico", "--data", self.documents(), *SEPARATE, "--batch", 4, "--micro-batch", 2, "--threads", 2, "--replicas", 2,
                 "--gradients", "f32", "--steps", 4, "--schedule-steps", 4]
        whole = self.says_hash(self.succeeds("train", *shape, "--save", "none"))
        os.mkdir(self.path("disk"))
        streamed = self.succeeds("train", *shape, "--save", "none", "--device-memory", "9MiB", "--disk", self.path("disk"))
        self.assertEqual(self.says_hash(streamed), whole)
        ranks = self.succeeds("train", *shape, "--save", "none", "--ranks", 2)
        self.assertEqual(self.says_hash(ranks), whole)
        self.succeeds("train", *shape, "--steps", 2, "--save", self.path("run"))
        resumed = self.succeeds("train", "--resume", self.path("run"), "--steps", 4)
        self.assertEqual(self.says_hash(resumed), whole)

    def test_a_run_validates_and_is_evaluated_as_it_was_trained(self):
        data = self.documents()
        done = self.succeeds("train", "gpt2-pico", "--data", data, *SEPARATE, "--validation-split", "0.3", "--batch", 2, "--threads", 2,
                             "--steps", 2, "--save", self.path("run"), "--json").json
        held = self.path("run", "validation.tokens")
        self.assertEqual(self.succeeds("eval", self.path("run"), "--data", held, "--json").json["loss"], done["validation_loss"])
        other = self.succeeds("train", self.path("run"), "--data", data, "--batch", 2, "--threads", 2, "--steps", 1, "--save", "none")
        self.assertIn("were separate; those of this run are packed (--documents separate)", other.err)
        again = self.succeeds("train", self.path("run"), "--data", self.path("run", "data.tokens"), "--batch", 2, "--threads", 2,
                              "--steps", 1, "--save", self.path("again"))
        self.assertNotIn("does not mark", again.err)  # a token file says by itself that it marks documents
        self.assertEqual(self.succeeds("inspect", self.path("again"), "--json").json["note"]["aligned"], 3)
        self.assertNotIn("are packed", again.err)

    def test_new_data_of_a_run_says_whether_its_documents_are_separate(self):
        data, run, layouts = self.documents(), self.path("run"), {}
        for layout in ("fitted", "separate"):
            layouts[layout] = self.path(layout + ".tokens")
            self.succeeds("tokenize", data, "--documents", layout, "--sequence", LENGTH, "-o", layouts[layout])
        self.succeeds("train", "gpt2-pico", "--data", layouts["separate"], "--sequence", LENGTH, "--batch", 2, "--threads", 2, "--steps", 1,
                      "--save", run)
        for steps, layout, says, noted in (
                (2, "fitted", "fitted.tokens does not mark where its documents begin: from now on a token attends over all before it", 2),
                (3, "separate", "the documents of " + layouts["separate"] + " are separate: from now on", 3)):
            said = self.succeeds("train", "--resume", run, "--data", layouts[layout], "--new-data", "--steps", steps)
            self.assertIn(says, " ".join(said.err.split()))
            self.assertEqual(self.succeeds("inspect", run, "--json").json["note"]["aligned"], noted)

    def test_losses_of_the_two_attentions_do_not_compare(self):
        data, run = self.documents(), self.path("run")
        for layout in ("fitted", "separate"):
            self.succeeds("tokenize", data, "--documents", layout, "--sequence", LENGTH, "-o", self.path(layout))
        self.succeeds("train", "gpt2-pico", "--data", self.path("separate"), "--validation", self.path("separate"), "--sequence", LENGTH,
                      "--batch", 2, "--threads", 2, "--steps", 2, "--save-every", 1, "--keep-best", "--save", run)
        said = self.succeeds("train", "--resume", run, "--data", self.path("fitted"), "--new-data", "--lr", 1e-9, "--steps", 3)
        self.assertIn("other validation data than before: its losses do not compare with those so far", said.err)

    def test_every_loss_of_a_run_is_taken_as_its_steps_are(self):
        data, losses = self.documents(), {}
        files = {layout: self.path(layout + ".tokens") for layout in ("fitted", "separate")}
        for layout, path in files.items():
            self.succeeds("tokenize", data, "--documents", layout, "--sequence", LENGTH, "-o", path)
        for trained in files:
            for validated in files:
                run = self.path(trained + validated)
                done = self.succeeds("train", "gpt2-pico", "--data", files[trained], "--validation", files[validated], "--sequence", LENGTH,
                                     "--batch", 2, "--threads", 2, "--steps", 1, "--save", run, "--json")
                told = self.succeeds("eval", run, "--data", files[validated], "--json")
                self.assertEqual(told.json["loss"], done.json["validation_loss"], (trained, validated))
                for said in (done.err, told.err):
                    says = "are separate, but not those" if validated == "separate" else "does not mark where its documents begin"
                    self.assertEqual(says in " ".join(said.split()), trained != validated, (trained, validated, said))
                losses[trained, validated] = told.json["loss"]
        self.assertNotEqual(losses["separate", "separate"], losses["fitted", "separate"])

    def test_a_token_file_and_the_flag_must_agree(self):
        data = self.documents()
        for layout, other, remedy in (("separate", "fitted", "give --documents separate"),
                                      ("fitted", "separate", "make it again with cohobate tokenize --documents separate")):
            tokens = self.path(layout + ".tokens")
            self.succeeds("tokenize", data, "--documents", layout, "--sequence", LENGTH, "-o", tokens)
            self.fails(2, "train", "gpt2-pico", "--data", tokens, "--validation", data, "--documents", other, "--sequence", LENGTH,
                       "--batch", 2, "--steps", 1, "--save", "none", says=remedy)

    def test_a_plan_has_the_kinds_and_is_replayed(self):
        plan = self.path("plan.json")
        flags = ["gpt2-pico", *SEPARATE, "--batch", 2]
        self.succeeds("plan", *flags, "-o", plan)
        listed = self.succeeds("simulate", plan)
        self.assertEqual(listed.code, 0)
        with open(plan, encoding="utf-8") as file:
            self.assertIn("separate_documents", file.read())
        planned = self.succeeds("plan", *flags, "--profile", "a100-40g", "--json")
        self.assertGreater(planned.json["tokens_per_second"], 0)
        self.fails(2, "plan", *flags, "--dtype", "bf16", "--profile", "a100-40g", "--atomics", "on",
                   says="--atomics on is of attention on cuDNN (it takes no separate documents): leave it out")


if __name__ == "__main__":
    unittest.main()
