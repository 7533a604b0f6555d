"""What users of other trainers bring, through the program: conversations longer than a sequence. What is cut is counted
here."""

import json
import shutil
import unittest

from program import TINY, ProgramTest
from test_data import plain_chat


class DataSets(ProgramTest):
    def lines(self, objects, name="data.jsonl"):
        return self.write(name, "".join(json.dumps(each) + "\n" for each in objects))

    def texts(self, name="data.jsonl", count=60):
        return self.lines([{"text": f"document {i} of some"} for i in range(count)], name)

    def chats(self, name="chats.jsonl", answers=("a", "b" * 40, "c" * 90)):
        return self.lines([{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]}
                           for answer in answers], name)

    # ---- conversations that are cut ----

    def test_conversations_longer_than_a_sequence_are_counted_and_the_longest_is_named(self):
        chats = self.chats()
        ids = [len(plain_chat([("user", "q"), ("assistant", answer)])[0]) for answer in ("a", "b" * 40, "c" * 90)]
        says = f"{chats}: 2 of 3 conversations are longer than --sequence 32 (the longest has {ids[2]} tokens), so they are cut: "
        remedy = f"--sequence {ids[2] - 1} holds the longest"
        train = ["train", *TINY, "--sequence", 32, "--steps", 1, "--save", self.path("run"), "--data", chats, "--chat"]
        packed = self.succeeds(*train).err
        self.assertIn(says + remedy + ", and --documents aligned begins a sequence with each\n", packed)
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


if __name__ == "__main__":
    unittest.main()
