"""Conversations in the program and in `transformers`: counted targets, their loss, and a training on them."""

import json
import os
import shutil
import struct
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../reference"))
import reference_python  # noqa: E402
reference_python.need("torch", "transformers", "jinja2")
import torch  # noqa: E402
from transformers import (AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config,  # noqa: E402
                          Qwen2ForCausalLM)

from program import ProgramTest  # noqa: E402

FIXTURES = os.path.join(HERE, "../text/fixtures")
SIZES = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, initializer_range=0.2, tie_word_embeddings=True)
CASES = [("qwen2.5", "qwen2", Qwen2Config, Qwen2ForCausalLM, (None, "<|im_end|>")),
         ("llama3.1", "llama3", LlamaConfig, LlamaForCausalLM, ("<|begin_of_text|>", "<|eot_id|>"))]
CHATS = [[("user", f"What is {i}?"), ("assistant", f"It is {i * i % 97}."), ("user", "Sure?"),
          ("assistant", "yes " * (i % 5))] for i in range(12)]
SEQUENCE = 192  # no conversation is longer
torch.set_num_threads(1)


class Chats(ProgramTest):
    def make(self, case):
        """Makes a model's folder, a file of conversations, and (ids, labels) of each as in transformers."""
        form, name, config, model, (begin, end) = case
        with open(os.path.join(FIXTURES, "chat", form, "chat_template.jinja"), encoding="utf-8") as file:
            template = file.read()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=os.path.join(FIXTURES, "tokenizers", name, "tokenizer.json"), bos_token=begin,
            eos_token=end, chat_template=template)
        torch.manual_seed(1)
        made = model(config(vocab_size=len(tokenizer), **SIZES)).eval()
        made.save_pretrained(self.path("model"))
        tokenizer.save_pretrained(self.path("model"))
        objects = [{"messages": [{"role": r, "content": c} for r, c in chat]} for chat in CHATS]
        self.write("chats.jsonl", "".join(json.dumps(o) + "\n" for o in objects))
        batch = []
        for chat in objects:
            told = tokenizer.apply_chat_template(chat["messages"], tokenize=True, return_dict=True,
                                                 return_assistant_tokens_mask=True)
            batch.append((told["input_ids"],
                          [i if m else -100 for i, m in zip(told["input_ids"], told["assistant_masks"])]))
        assert max(len(ids) for ids, _ in batch) <= SEQUENCE + 1
        return made, batch

    def loss(self, model, batch):
        """Mean over all labels, as in transformers with num_items_in_batch."""
        count = sum(label >= 0 for _, labels in batch for label in labels[1:])
        total = 0
        for ids, labels in batch:
            total = total + model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels]),
                                  num_items_in_batch=torch.tensor(count)).loss
        return total, count

    def flags(self):
        return ["--data", self.path("chats.jsonl"), "--chat", "--documents", "aligned", "--sequence", SEQUENCE,
                "--dtype", "f32", "--threads", 2]

    def test_eval_gives_the_loss_of_transformers(self):
        for case in CASES:
            with self.subTest(form=case[0]):
                model, batch = self.make(case)
                with torch.no_grad():
                    loss, count = self.loss(model, batch)
                told = self.succeeds("eval", self.path("model"), *self.flags(), "--json").json
                self.assertEqual(told["tokens"], count)
                self.assertAlmostEqual(told["loss"], loss.item(), delta=1e-5 * loss.item())

    def test_training_on_conversations_goes_as_in_pytorch(self):
        model, batch = self.make(CASES[0])
        steps, rate = 20, 1e-3
        log = self.path("log.jsonl")
        # All data are one step, in micro-batches of unequal weight.
        self.succeeds("train", self.path("model"), *self.flags(), "--batch", len(batch), "--micro-batch", 3, "--steps",
                      steps, "--lr", rate, "--min-lr", rate, "--warmup", 0, "--weight-decay", 0, "--clip", "1", "--log",
                      log, "--save", "none")
        with open(log, encoding="utf-8") as file:
            losses = [json.loads(line)["loss"] for line in file]
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
        expected = []
        for _ in range(steps):
            loss, _ = self.loss(model, batch)
            expected.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        self.assertEqual(len(losses), steps)
        self.assertLess(losses[-1], 0.8 * losses[0])
        for found, wanted in zip(losses, expected):
            self.assertLess(abs(found - wanted), 1e-3, (losses, expected))

    def test_an_export_of_plain_conversations_has_their_ids_in_transformers(self):
        """Also of a tokenizer that puts a token before each text (Llama 3)."""
        for case in CASES:
            with self.subTest(form=case[0]):
                self.make(case)
                self.succeeds("train", self.path("model"), *self.flags(), "--chat-form", "plain", "--validation", "none", "--batch", 1,
                              "--steps", 1, "--save", self.path("run"))
                self.succeeds("export", self.path("run"), "-o", self.path("out"))
                self.succeeds("tokenize", self.path("chats.jsonl"), "--chat", "--chat-form", "plain", "--tokenizer", self.path("model"),
                              "-o", self.path("ours"))
                tokenizer = AutoTokenizer.from_pretrained(self.path("out"))
                ids = []
                for chat in CHATS:
                    ids += tokenizer.apply_chat_template([{"role": r, "content": c} for r, c in chat], tokenize=True, return_dict=True)["input_ids"]
                with open(self.path("ours"), "rb") as file:
                    held = [word & 0x7fff for word, in struct.iter_unpack("<H", file.read())]  # without the bit of what does not count
                self.assertTrue(any(held[begin:begin + len(ids)] == ids for begin in range(len(held))), case[0])
                for name in ("model", "run", "out"):
                    shutil.rmtree(self.path(name))
                os.remove(self.path("ours"))


if __name__ == "__main__":
    unittest.main()
