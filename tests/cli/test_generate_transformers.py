"""Text by the program and by `transformers`: greedy ids with a penalty, conversations, and the frequency of each token.
"""

import json
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../reference"))
import reference_python  # noqa: E402
reference_python.need("torch", "transformers", "jinja2")
import torch  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

from program import ProgramTest  # noqa: E402
from record_samplers import probabilities  # noqa: E402

FIXTURES = os.path.join(HERE, "../text/fixtures")
SIZES = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, initializer_range=0.2, tie_word_embeddings=False)
PROMPT = "if (x) {\n    return the first line of many"
DRAWS = 1500
torch.set_num_threads(1)


class Generation(ProgramTest):
    def make(self):
        with open(os.path.join(FIXTURES, "chat/qwen2.5/chat_template.jinja"), encoding="utf-8") as file:
            template = file.read()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=os.path.join(FIXTURES, "tokenizers/qwen2/tokenizer.json"), eos_token="<|im_end|>",
            chat_template=template)
        torch.manual_seed(1)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=None,
                                             pad_token_id=None, **SIZES)).eval()
        model.save_pretrained(self.path("model"))
        tokenizer.save_pretrained(self.path("model"))
        return model, tokenizer

    def answers(self, *flags):
        done = self.succeeds("generate", self.path("model"), "--dtype", "f32", "--threads", 2, "--json", *flags)
        return [json.loads(line) for line in done.out.split("\n") if line]

    def greedy(self, model, tokenizer, ids, count, **settings):
        """As printed by the program: up to the end of a turn."""
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False,
                             max_new_tokens=count, eos_token_id=tokenizer.eos_token_id, pad_token_id=0, **settings)
        new = out[0, len(ids):].tolist()
        return tokenizer.decode(new[:-1] if new[-1] == tokenizer.eos_token_id else new)

    def test_greedy_text_with_a_penalty_is_that_of_transformers(self):
        model, tokenizer = self.make()
        for penalty in (1.0, 1.3, 0.8):
            answer, = self.answers("--prompt", PROMPT, "--tokens", 60, "--temperature", 0, "--repetition-penalty", penalty)
            ids = tokenizer.encode(PROMPT)
            self.assertEqual(answer["prompt_tokens"], len(ids))
            self.assertEqual(answer["text"], self.greedy(model, tokenizer, ids, 60, repetition_penalty=penalty))

    def test_an_answer_is_that_of_apply_chat_template_and_generate(self):
        model, tokenizer = self.make()
        chats = [[{"role": "user", "content": "What is 3?"}],
                 [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "One"},
                  {"role": "assistant", "content": "two"}, {"role": "user", "content": "\nthree "}]]
        messages = self.write("chats.jsonl", "".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
        answers = self.answers("--messages", messages, "--tokens", 40, "--temperature", 0)
        for chat, answer in zip(chats, answers, strict=True):
            ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
            self.assertEqual(answer["prompt_tokens"], len(ids))
            self.assertEqual(answer["text"], self.greedy(model, tokenizer, ids, 40))

    def test_a_text_ends_with_each_id_that_ends_it_in_transformers(self):
        model, tokenizer = self.make()
        ids = tokenizer.encode(PROMPT)
        whole = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False, max_new_tokens=60,
                               pad_token_id=0)[0, len(ids):].tolist()
        new = [token for at, token in enumerate(whole) if token not in whole[:at] and token != tokenizer.eos_token_id]
        self.assertGreater(len(new), 6)
        unused = next(token for token in range(len(tokenizer)) if token not in whole)
        for ends in ([unused, new[3]], [new[5], new[2]], new[4], [unused], [10 ** 6, new[1]], None):
            for name in ("generation_config.json", "config.json"):
                with self.subTest(ends=ends, name=name):
                    self.list_ends(ends, name)
                    loaded = AutoModelForCausalLM.from_pretrained(self.path("model")).eval()
                    out = loaded.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False,
                                          max_new_tokens=60, pad_token_id=0)[0, len(ids):].tolist()
                    is_ended = len(out) < 60
                    answer, = self.answers("--prompt", PROMPT, "--tokens", 60, "--temperature", 0)
                    self.assertEqual((answer["finish"], answer["tokens"]), ("end" if is_ended else "length", len(out) - is_ended))
                    self.assertEqual(answer["text"], tokenizer.decode(out[:-1] if is_ended else out))

    def list_ends(self, ends, name):
        """Writes ids that end a text into one of the two files; the other one names none, or does not exist."""
        for file, value in (("config.json", ends if name == "config.json" else None), ("generation_config.json", ends)):
            path = self.path("model", file)
            values = {}
            if os.path.exists(path):
                with open(path, encoding="utf-8") as read:
                    values = json.load(read)
            self.write(os.path.join("model", file), json.dumps({**values, "eos_token_id": value}))
        if name == "config.json":
            os.remove(self.path("model", "generation_config.json"))

    def test_tokens_are_drawn_as_often_as_transformers_says(self):
        model, tokenizer = self.make()
        lines = self.write("lines.txt", (PROMPT.split("\n")[1] + "\n") * DRAWS)  # a seed each
        ids = tokenizer.encode(PROMPT.split("\n")[1])
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1].double().tolist()
        settings = dict(temperature=1.4, top_k=30, top_p=0.9, min_p=0.03, repetition_penalty=1.2)
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        counts = {}
        for answer in self.answers("--prompts", lines, "--tokens", 1, *flags):
            counts[answer["text"]] = counts.get(answer["text"], 0) + 1
        expected = {}
        for token, p in enumerate(probabilities(logits, ids, settings)):
            if p > 0:
                text = "" if token == tokenizer.eos_token_id else tokenizer.decode([token])
                expected[text] = expected.get(text, 0) + p
        self.assertGreater(len(expected), 5)
        self.assertLessEqual(set(counts), set(expected))
        for text, p in expected.items():  # six standard deviations
            self.assertLessEqual(abs(counts.get(text, 0) - DRAWS * p), 6 * (DRAWS * p * (1 - p)) ** 0.5 + 1, text)


if __name__ == "__main__":
    unittest.main()
