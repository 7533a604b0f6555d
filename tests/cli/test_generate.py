"""Text generation: samplers, stop strings, prompts from all sources, conversations."""

import json
import os
import re
import shutil
import subprocess
import unittest

import model_folder
from program import ProgramTest, held_files, start

CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


class Generate(ProgramTest):
    def model(self, tokenizer="bytes"):
        """A small GPT-2 with random weights, and the flags for it."""
        folder = self.path("model")
        if not os.path.exists(folder):
            self.tensors = model_folder.make(folder, "gpt2", dtype="F32", P=128)
        if tokenizer != "bytes":
            shutil.copy(os.path.join(model_folder.TOKENIZERS, tokenizer, "tokenizer.json"), folder)
            tokenizer = folder
        return [folder, "--tokenizer", tokenizer, "--dtype", "f32", "--threads", 2]

    def answers(self, *flags, tokenizer="bytes", **keywords):
        done = self.succeeds("generate", *self.model(tokenizer), "--json", *flags, **keywords)
        return [json.loads(line) for line in done.out.split("\n") if line]

    def answer(self, *flags, **keywords):
        answer, = self.answers(*flags, **keywords)
        return answer

    def fed(self, text, *flags):
        """With `text` on standard input."""
        process = start("generate", *self.model(), "--json", *flags, stdin=subprocess.PIPE)
        out, err = process.communicate(text.encode(), timeout=60)
        self.assertEqual(process.returncode, 0, err)
        return [json.loads(line) for line in out.decode().split("\n") if line]

    # ---- several prompts ----

    def test_a_prompts_text_does_not_depend_on_the_others(self):
        prompts = ["one", "a second that is longer than the others, so that the window is another", "x", "one"]
        flags = [flag for prompt in prompts for flag in ("--prompt", prompt)]
        for more in (["--seed", 5], ["--seed", 5, "--top-p", 0.8, "--repetition-penalty", 1.3], ["--temperature", 0]):
            together = self.answers(*flags, "--tokens", 20, *more)
            self.assertEqual([answer["index"] for answer in together], [0, 1, 2, 3])
            for i, prompt in enumerate(prompts):
                alone = self.answer("--prompt", prompt, "--tokens", 20, *more, "--seed", together[i]["seed"])
                self.assertEqual({**alone, "index": i}, together[i])
        self.assertEqual([answer["seed"] for answer in self.answers(*flags, "--seed", 5)], [5, 6, 7, 8])
        self.assertNotEqual(*(self.answers(*flags, "--seed", 5)[i]["text"] for i in (0, 3)))

    def test_a_budget_that_is_too_small_for_a_chunk_only_is_said_to_be(self):
        flags = [*self.model(), "--tokens", 5, "--disk", self.path("")]
        self.succeeds("generate", *flags, "--prompt", "xyz", "--prefill-chunk", 1, "--device-memory", "80KiB")
        self.fails(3, "generate", *flags, "--prompt", "xyz", "--device-memory", "80KiB", says="; or give --prefill-chunk 1, which fits")
        none = self.fails(3, "generate", *flags, "--prompt", "xyz", "--device-memory", "20KiB")
        self.assertNotIn("--prefill-chunk", none.err)
        self.succeeds("generate", *flags, "--prompt", "xy", "--device-memory", "80KiB")  # two tokens are no chunk

    def test_a_prompt_is_read_in_chunks_of_any_size(self):
        long = "".join(chr(32 + i * i % 90) for i in range(125))
        counts = [1, 2, 3, 6, 7, 8, 9, 13, 14, 15, 63, 64, 65, 66, 124, 125]
        flags = [flag for count in counts for flag in ("--prompt", long[:count])]
        flags += ["--tokens", 3, "--temperature", 0]
        one_by_one = self.answers(*flags, "--prefill-chunk", 1)
        self.assertEqual([answer["prompt_tokens"] for answer in one_by_one], counts)
        for more in ([], ["--prefill-chunk", 2], ["--prefill-chunk", 7], ["--prefill-chunk", 65536]):
            self.assertEqual(self.answers(*flags, *more), one_by_one, more)
        streamed = self.succeeds("generate", *self.model(), "--json", *flags, "--prefill-chunk", 7,
                                 "--device-memory", "220KiB", "--disk", self.path(""))
        self.assertIn(", disk ", streamed.err)
        self.assertEqual([json.loads(line) for line in streamed.out.splitlines()], one_by_one)

    def test_chunks_keep_a_prompts_text_its_own(self):
        prompts = ["x", "a second that is longer than the others", "eightchr", "seven!!"]
        flags = [flag for prompt in prompts for flag in ("--prompt", prompt)]
        more = ["--prefill-chunk", 7, "--tokens", 20, "--seed", 5]
        for i, together in enumerate(self.answers(*flags, *more)):
            alone = self.answer("--prompt", prompts[i], *more, "--seed", 5 + i)
            self.assertEqual({**alone, "index": i}, together)

    def test_text_is_the_prompt_and_what_follows_with_a_header_where_there_are_several(self):
        flags = ["--tokens", 5, "--temperature", 0, "--tokenizer", self.model("gpt2")[0]]
        follows = [self.answer("--prompt", prompt, *flags, tokenizer="gpt2")["text"] for prompt in ("ab", "cd")]
        one = self.succeeds("generate", *self.model(), "--prompt", "ab", *flags)
        self.assertEqual(one.out, f"ab{follows[0]}\n")
        two = self.succeeds("generate", *self.model(), "--prompt", "ab", "--prompt", "cd", *flags)
        self.assertEqual(two.out, f"==> prompt 1 of 2 <==\nab{follows[0]}\n\n==> prompt 2 of 2 <==\ncd{follows[1]}\n")

    def test_prompts_come_from_flags_files_and_standard_input_in_that_order(self):
        whole, lines = self.write("whole.txt", "two\nlines\n"), self.write("lines.txt", "l1\r\n\nl2\nl3")
        messages = self.write("chat.json", json.dumps([{"role": "user", "content": "m"}]))
        counts = [answer["prompt_tokens"] for answer in self.answers(
            "--prompt", "p", "--prompt", "pp", "--prompt-file", whole, "--prompts", lines, "--tokens", 1)]
        self.assertEqual(counts, [1, 2, 9, 2, 2, 2])
        self.assertEqual(self.fed("two\nlines\n", "--prompt-file", "-", "--tokens", 9),
                         self.answers("--prompt", "two\nlines", "--tokens", 9))
        self.assertEqual(self.fed("l1\nl2\n", "--prompts", "-"), self.answers("--prompt", "l1", "--prompt", "l2"))
        self.assertEqual(self.fed('[{"role": "user", "content": "m"}]', "--messages", "-"),
                         self.answers("--messages", messages))

    # ---- samplers ----

    def test_the_narrowest_samplers_are_greedy(self):
        flags = ["--prompt", "abc", "--tokens", 20]
        greedy = self.answer(*flags, "--temperature", 0)["text"]
        for narrow in (["--top-p", 0], ["--min-p", 1], ["--top-k", 1], ["--top-p", "1e-9", "--temperature", 3]):
            self.assertEqual(self.answer(*flags, *narrow)["text"], greedy, narrow)
        drawn = self.answer(*flags)["text"]
        self.assertNotEqual(drawn, greedy)
        wide = ["--top-p", 1, "--min-p", 0, "--top-k", 0, "--repetition-penalty", 1]
        self.assertEqual(self.answer(*flags, *wide)["text"], drawn)

    def test_a_penalty_holds_for_prompt_and_text_and_at_temperature_0(self):
        prompt = "abcdef"
        process = start("generate", *self.model(), "--prompt", prompt, "--tokens", 40, "--temperature", 0,
                        "--repetition-penalty", 1000)
        out, _ = process.communicate(timeout=60)
        text = out[:-1]
        self.assertEqual(len(text), len(prompt) + 40)
        self.assertEqual(len(set(text)), len(text))

    def test_values_out_of_range_are_refused(self):
        for flag, values in (("--top-p", ["1.01", "-0.1", "nan", "x", ""]), ("--min-p", ["1.5", "-1e-9", "nan"]),
                             ("--repetition-penalty", ["0", "-1", "nan", "inf"]), ("--top-k", ["-1", "1.5"]),
                             ("--temperature", ["-0.1", "nan"]), ("--stop", [""]), ("--prompt", [""]), ("--system", [""]),
                             ("--tokens", ["0"]), ("--prefill-chunk", ["0", "-1", "65537", "1.5"])):
            for value in values:
                self.fails(2, "generate", self.path("model"), "--prompt", "x", f"{flag}={value}", says=flag)

    def drawn(self, settings, *flags, of=None):
        """The text after a prompt with that generation_config.json, and the flags that it is said to stand for."""
        what = [of, "--threads", 2] if of else self.model("qwen2")
        self.write("model/generation_config.json", json.dumps(settings))
        done = self.succeeds("generate", *what, *flags, "--prompt", "One two", "--tokens", 24, "--seed", 3, "--json")
        said = re.findall(r"note: \S*/generation_config.json is taken as if it were flags: (.*); a flag that is given", done.err)
        return json.loads(done.out)["text"], said, done.err

    def test_values_of_the_models_settings_stand_for_flags_that_are_not_given(self):
        plain = self.drawn({})
        self.assertEqual(plain[1], [])
        every = {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.01, "repetition_penalty": 1.3}
        as_flags = ["--repetition-penalty", "1.3", "--temperature", "0.7", "--top-k", "20", "--top-p", "0.8", "--min-p", "0.01"]
        text, said, _ = self.drawn({**every, "do_sample": True})
        self.assertEqual((text, said), (self.drawn({}, *as_flags)[0], [" ".join(as_flags)]))
        self.assertNotEqual(text, plain[0])
        # a flag replaces its own value, and without others the values of the file are those of flags
        text, said, _ = self.drawn(every, "--temperature", 1.5, "--top-k", 0)
        self.assertEqual((text, said), (self.drawn({}, *as_flags[:2], "--temperature", 1.5, *as_flags[6:])[0],
                                        ["--repetition-penalty 1.3 --top-p 0.8 --min-p 0.01"]))
        text, said, _ = self.drawn(every, *as_flags)
        self.assertEqual((text, said), (self.drawn({}, *as_flags)[0], []))
        self.assertEqual(self.drawn(every, "--temperature", 0)[1], ["--repetition-penalty 1.3"])
        # greedy, unless a flag draws; a file that says nothing of it draws
        greedy = self.drawn({}, "--temperature", 0)[0]
        self.assertEqual(self.drawn({"do_sample": False, "temperature": 0.7, "top_p": 0.8})[:2], (greedy, ["--temperature 0"]))
        self.assertEqual(self.drawn({"do_sample": False, "top_k": 20}, "--top-p", 0.8)[:2],
                         (self.drawn({}, "--top-k", 20, "--top-p", 0.8)[0], ["--top-k 20"]))
        self.assertEqual(self.drawn({"top_k": None, "top_p": 1.0, "temperature": 1, "do_sample": None})[:2], plain[:2])
        for member, value in (("temperature", -1), ("temperature", "0.7"), ("top_k", 2.5), ("top_k", -1), ("top_p", 1.5),
                              ("min_p", True), ("repetition_penalty", 0)):
            text, said, err = self.drawn({member: value})
            self.assertEqual((text, said), plain[:2], (member, value))
            self.assertIn(f'generation_config.json: "{member}" holds {json.dumps(value)}, which is out of the range of --', err)

    def test_values_of_the_models_settings_that_are_not_taken_are_named(self):
        neutral = {"num_beams": 1, "no_repeat_ngram_size": 0, "typical_p": 1.0, "max_length": 20, "suppress_tokens": [], "stop_strings": None,
                   "forced_bos_token_id": None, "sequence_bias": {}, "pad_token_id": 3, "use_cache": True, "guidance_scale": 1}
        plain = self.drawn(neutral)
        self.assertNotIn("not taken here", plain[2])
        text, _, said = self.drawn({**neutral, "num_beams": 4, "no_repeat_ngram_size": 3, "suppress_tokens": [5], "max_new_tokens": 9,
                                    "forced_bos_token_id": 0, "stop_strings": ["###"]})
        self.assertEqual(text, plain[0])
        self.assertIn("generation_config.json also sets stop_strings, num_beams, no_repeat_ngram_size, forced_bos_token_id, suppress_tokens, "
                      "not taken here", said)  # drawn gives --tokens
        self.assertNotIn("not taken here", self.drawn({"stop_strings": ["###"]}, "--stop", "?!?")[2])
        self.write("model/generation_config.json", json.dumps({"max_new_tokens": 2, "max_length": 128}))
        said = self.succeeds("generate", *self.model("qwen2"), "--prompt", "One").err
        self.assertIn("generation_config.json also sets max_new_tokens, not taken here", said)  # the model has 128 positions

    def test_a_run_draws_as_the_model_that_it_began_with(self):
        folder = self.model("qwen2")[0]
        still = ["--data", self.corpus(60), "--sequence", 16, "--batch", 2, "--steps", 1, "--lr", 0, "--threads", 2]
        self.succeeds("train", folder, *still, "--save", self.path("run"), "--dtype", "f32")
        self.succeeds("train", "gpt2-pico", *still, "--save", self.path("new"), "--tokenizer", folder)
        expected = self.drawn({}, "--top-k", 3)[0]
        self.assertEqual(self.drawn({"top_k": 3}, of=self.path("run"))[:2], (expected, ["--top-k 3"]))
        self.assertEqual(self.drawn({"top_k": 3}, of=self.path("new"))[1], [])
        shutil.rmtree(folder)  # a run keeps a copy of the file, of the time at which it began
        self.assertTrue(os.path.exists(self.path("run", "tokenizer", "generation_config.json")))

    def test_the_weights_files_are_closed_when_they_are_loaded(self):
        prompts = self.write("prompts", "a prompt that is printed again\n" * 2000)
        process = start("generate", *self.model(), "--json", "--prompts", prompts, "--tokens", 1)
        self.assertTrue(process.stdout.readline())
        held = held_files(process, self.path("model"))
        self.assertIsNone(process.poll())  # its output does not fit into the pipe
        process.kill()
        process.communicate(timeout=60)
        self.assertEqual(held, [])

    # ---- stop strings ----

    def test_a_text_ends_before_its_stop_string(self):
        process = start("generate", *self.model(), "--prompt", "abc", "--tokens", 60)
        out, _ = process.communicate(timeout=60)
        text = out[3:-1]
        for begin, length in ((0, 1), (5, 1), (17, 4), (30, 9)):  # a token is a byte, a character may be several
            stop = text[begin:begin + length]
            if b"\0" in stop:
                continue
            end = text.index(stop)
            process = start("generate", *self.model(), "--prompt", "abc", "--tokens", 60, f"--stop={os.fsdecode(stop)}", "--stop",
                            "never found")
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (0, b"abc" + text[:end] + b"\n"), err)
        answer = self.answer("--prompt", "abc", "--tokens", 60, "--stop", "never found")
        self.assertEqual((answer["finish"], answer["stop"], answer["tokens"]), ("length", None, 60))

    def test_a_stop_string_across_tokens_is_found(self):
        flags = ["--prompt", "the ", "--tokens", 20, "--temperature", 0]
        whole = self.answer(*flags, tokenizer="gpt2")["text"]
        self.assertGreater(len(whole), 20)  # tokens of several bytes
        for begin in range(1, len(whole) - 4, 3):
            stop = whole[begin:begin + 4]
            if "\ufffd" in stop:
                continue
            answer = self.answer(*flags, "--stop", stop, tokenizer="gpt2")
            self.assertEqual((answer["text"], answer["finish"], answer["stop"]), (whole[:whole.index(stop)], "stop", stop))

    def test_the_reason_of_the_end_is_told(self):
        self.assertEqual(self.answer("--prompt", "abc", "--tokens", 5)["finish"], "length")
        long = self.answer("--prompt", "x" * 120, "--tokens", 50)
        self.assertEqual((long["finish"], long["tokens"]), ("window", 8))

    # ---- ids that end a text ----

    DRAWN = 68

    def ends(self, settings, of_config):
        """Writes the files that name ids that end a text; `settings` is a text, or what JSON is made of; None: no file."""
        path = self.write("model/generation_config.json", settings if isinstance(settings, str) else json.dumps(settings))
        if settings is None:
            os.remove(path)
        with open(self.path("model", "config.json"), encoding="utf-8") as file:
            config = {**json.load(file), "eos_token_id": of_config}
        self.write("model/config.json", json.dumps(config))

    def ending(self, *arguments):
        """The end of a text of the model that always draws one token, and standard error."""
        done = self.succeeds("generate", *arguments, "--prompt", "ab", "--tokens", 3, "--temperature", 0, "--threads", 2, "--json")
        answer = json.loads(done.out)
        self.assertEqual(answer["tokens"], {"end": 0, "length": 3}[answer["finish"]])
        return answer["finish"], done.err

    def test_each_id_that_the_models_files_list_ends_a_text(self):
        folder = self.model("qwen2")[0]
        self.always(self.DRAWN)
        other, many = self.DRAWN + 1, 10 ** 6
        no_id = ", which is no id and ends no text"
        for settings, of_config, finish, says in (
                ({"eos_token_id": [other, self.DRAWN]}, None, "end", []), ({"eos_token_id": self.DRAWN}, other, "end", []),
                ({"eos_token_id": [other]}, [self.DRAWN], "length", []), ({"eos_token_id": []}, self.DRAWN, "length", []),
                ({}, [other, self.DRAWN], "end", []), ({"eos_token_id": None}, self.DRAWN, "end", []),
                (None, self.DRAWN, "end", []), (None, [other, many], "length", []), (None, None, "length", []),
                ({"eos_token_id": [many, 2 ** 62, -1, "</s>", True, 0.5, None, self.DRAWN]}, None, "end",
                 [f'generation_config.json: "eos_token_id" holds {word}{no_id}' for word in ("-1", '"</s>"', "true", "0.5", "null")]),
                ({"eos_token_id": {"id": self.DRAWN}}, None, "length", [f'{{"id":{self.DRAWN}}}{no_id}']),
                (None, -5, "length", [f'config.json: "eos_token_id" holds -5{no_id}']),
                ("{", self.DRAWN, "end", ["generation_config.json is no object of JSON: "]),
                ("[]", None, "length", ["generation_config.json is no object of JSON, so it names no ids"])):
            with self.subTest(settings=settings, of_config=of_config):
                self.ends(settings, of_config)
                found, said = self.ending(folder, "--dtype", "f32")
                self.assertEqual(found, finish, said)
                for sentence in says:
                    self.assertIn(sentence, said)
                self.assertEqual(said.count("note: "), len(says), said)

    def test_ids_of_another_tokenizer_end_no_text(self):
        folder = self.model("qwen2")[0]
        self.always(self.DRAWN)
        self.ends({"eos_token_id": [self.DRAWN]}, self.DRAWN)
        shutil.copy(os.path.join(folder, "tokenizer.json"), self.path("same.json"))
        other = os.path.join(model_folder.TOKENIZERS, "llama3", "tokenizer.json")
        for tokenizer, finish in ((os.path.join(folder, "tokenizer.json"), "end"), (self.path("same.json"), "end"),
                                  (other, "length"), ("bytes", "length")):
            self.assertEqual(self.ending(folder, "--tokenizer", tokenizer)[0], finish, tokenizer)

    def test_a_run_and_adapters_end_texts_as_the_folder_that_they_began_from(self):
        folder = self.model("qwen2")[0]
        self.always(self.DRAWN)
        self.ends({"eos_token_id": [1, self.DRAWN]}, 1)
        text, run, lora = self.corpus(60), self.path("run"), self.path("lora")
        still = ["--data", text, "--sequence", 16, "--batch", 2, "--steps", 1, "--lr", 0, "--threads", 2]
        self.succeeds("train", folder, *still, "--save", run)
        self.succeeds("train", folder, *still, "--save", lora, "--lora", 2)
        self.succeeds("export", lora, "-o", self.path("adapters"))
        self.succeeds("export", run, "-o", self.path("out"))
        for arguments in ([run], [os.path.join(run, "step-1")], [lora], [folder, "--adapter", self.path("adapters")],
                          [self.path("out")]):
            self.assertEqual(self.ending(*arguments)[0], "end", arguments)
        self.ends({"eos_token_id": 1}, self.DRAWN)  # a run keeps the members of config.json
        self.assertEqual(self.ending(run)[0], "length")
        os.remove(self.path("model", "generation_config.json"))
        self.assertEqual(self.ending(run)[0], "length")
        self.assertEqual(self.ending(folder)[0], "end")

    def test_a_run_that_moves_without_its_folder_ends_texts_as_before(self):
        folder = self.model("qwen2")[0]
        self.always(self.DRAWN)
        self.ends({"eos_token_id": [1, self.DRAWN]}, 1)
        self.succeeds("train", folder, "--data", self.corpus(60), "--sequence", 16, "--batch", 2, "--steps", 1, "--lr", 0,
                      "--threads", 2, "--save", self.path("run"))
        shutil.rmtree(folder)
        os.rename(self.path("run"), self.path("moved"))
        self.assertEqual(self.ending(self.path("moved"))[0], "end")
        self.succeeds("export", self.path("moved"), "-o", self.path("out"))
        self.assertEqual(self.ending(self.path("out"))[0], "end")

    def test_an_export_with_another_tokenizer_has_its_ids_and_ends_texts_as_the_run(self):
        folder = self.model("qwen2")[0]
        self.always(self.DRAWN)
        self.ends({"bos_token_id": 3, "eos_token_id": [self.DRAWN, 4], "pad_token_id": 5, "suppress_tokens": [6], "top_k": 7}, self.DRAWN)
        with open(self.path("model", "config.json"), encoding="utf-8") as file:
            self.write("model/config.json", json.dumps({**json.load(file), "bos_token_id": 3, "pad_token_id": 5, "label2id": {"A": 1}}))
        other, same = self.path("other"), self.path("same")
        shutil.copytree(os.path.join(model_folder.TOKENIZERS, "llama3"), other)
        shutil.copytree(folder, same, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
        self.write("other/tokenizer_config.json", json.dumps({"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}))
        with open(os.path.join(other, "tokenizer.json"), encoding="utf-8") as file:
            ids = {token["content"]: token["id"] for token in json.load(file)["added_tokens"]}
        own = {"bos_token_id": ids["<|begin_of_text|>"], "eos_token_id": ids["<|end_of_text|>"]}
        of_bytes = {"bos_token_id": None, "eos_token_id": 256}  # of bytes, of which none begins a text
        kept = {"bos_token_id": 3, "eos_token_id": self.DRAWN, "pad_token_id": 5}
        for name, tokenizer, must, generation, finish in (
                ("other", other, own, {**own, "top_k": 7}, "length"), ("bytes", "bytes", of_bytes, {**of_bytes, "top_k": 7}, "length"),
                ("same", same, kept, {**kept, "eos_token_id": [self.DRAWN, 4], "suppress_tokens": [6], "top_k": 7}, "end")):
            with self.subTest(name=name):
                run, out = self.path(f"run-{name}"), self.path(f"out-{name}")
                self.succeeds("train", folder, "--data", self.corpus(60), "--sequence", 16, "--batch", 2, "--steps", 1, "--lr", 0,
                              "--threads", 2, "--tokenizer", tokenizer, "--save", run)
                said = self.succeeds("export", run, "-o", out).err
                self.assertEqual(f"are those of the tokenizer {tokenizer}, which is not that of {folder}" in said, name != "same", said)
                with open(os.path.join(out, "config.json"), encoding="utf-8") as file:
                    config = json.load(file)
                self.assertEqual({key: config[key] for key in config if key.endswith("token_id")}, must)
                self.assertEqual(config["label2id"], {"A": 1})
                with open(os.path.join(out, "generation_config.json"), encoding="utf-8") as file:
                    self.assertEqual(json.load(file), generation)
                self.assertEqual([self.ending(run)[0], self.ending(out)[0]], [finish, finish])
                self.succeeds("export", out, "-o", out + "-again")
                with open(os.path.join(out, "config.json"), "rb") as file, open(os.path.join(out + "-again", "config.json"), "rb") as again:
                    self.assertEqual(file.read(), again.read())
        self.succeeds("export", folder, "--tokenizer", other, "-o", self.path("given"))
        with open(self.path("given", "generation_config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), {**own, "top_k": 7})

    def test_a_base_model_that_learned_conversations_is_exported_with_their_form(self):
        """Its own files end no answer and have no template, so other programs would run on, or refuse."""
        folder = self.model("qwen2")[0]
        self.write("model/generation_config.json", json.dumps({"eos_token_id": 3, "temperature": 0.5}))
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
            end, = (token["id"] for token in json.load(file)["added_tokens"] if token["content"] == "<|im_end|>")
        turns = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "1"}]
        chats = self.write("chats.jsonl", f"{json.dumps({'messages': turns})}\n" * 8)

        def exported(out, *flags):
            run = self.path(f"run-{out}")
            self.succeeds("train", folder, "--data", chats, "--chat", "--sequence", 16, "--batch", 1, "--steps", 1, "--lr", 0,
                          "--threads", 2, "--validation", "none", "--save", run, *flags)
            said = self.succeeds("export", run, "-o", self.path(out)).err
            return self.path(out), said

        def ids(tokenizer, *flags):
            out = self.path("made.tokens")
            self.succeeds("tokenize", chats, "--chat", "--tokenizer", tokenizer, "-o", out, *flags)
            with open(out, "rb") as file:
                made = file.read()
            os.remove(out)
            return made

        def settings(out):
            with open(os.path.join(out, "generation_config.json"), encoding="utf-8") as file:
                return json.load(file)

        out = exported("out")[0]
        self.assertEqual(settings(out), {"eos_token_id": [3, end], "temperature": 0.5})
        self.assertEqual(ids(out), ids(folder))
        self.assertEqual(ids(out), ids(folder, "--chat-form", "chatml"))
        os.remove(os.path.join(folder, "generation_config.json"))
        self.assertEqual(settings(exported("none")[0])["eos_token_id"], [0, end])  # config.json's, too
        broken = self.write("model/generation_config.json", "[1]")
        self.fails(4, "export", self.path("run-out"), "-o", self.path("refused"), says=f"{broken} is no object of JSON")
        os.remove(broken)
        # weights leave without the files of conversations, too
        tokenizer, moved = self.path("run-out", "tokenizer"), self.path("moved")
        os.rename(folder, moved)
        if os.path.exists(tokenizer):
            os.rename(tokenizer, self.path("kept"))
        said = self.succeeds("export", self.path("run-out"), "-o", self.path("bare"), "--tokenizer", "none").err
        self.assertIn("does not say how the run's conversations are written and end", said)
        os.rename(moved, folder)
        if os.path.exists(self.path("kept")):
            os.rename(self.path("kept"), tokenizer)
        # a form of another name than the template's
        own = self.write("model/chat_template.jinja", "{% for m in messages %}{{ m.content + '<|im_end|>' }}{% endfor %}")
        named = exported("named", "--chat-form", "chatml")[0]
        self.assertEqual(ids(named), ids(out))
        kept = exported("kept")[0]
        with open(own, encoding="utf-8") as file, open(os.path.join(kept, "chat_template.jinja"), encoding="utf-8") as copy:
            self.assertEqual(copy.read(), file.read())
        self.assertNotEqual(ids(kept), ids(out))
        os.remove(own)
        beside, said = exported("beside", "--lora", "2")
        self.assertIn("form ChatML (<|im_start|>), which is not that of the model's own files: export the run with --merge-lora", said)
        self.assertFalse(os.path.exists(os.path.join(beside, "chat_template.jinja")))

    def test_plain_conversations_are_exported_with_the_token_before_each_text(self):
        turns = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "1"}]
        chats = self.write("chats.jsonl", f"{json.dumps({'messages': turns * 2})}\n" * 8)
        model_folder.make(self.path("model"), "gpt2", dtype="F32", P=128, V=520)
        data = ["--data", chats, "--chat", "--chat-form", "plain", "--sequence", 64, "--batch", 1, "--steps", 1, "--lr", 0,
                "--threads", 2, "--validation", "none"]
        for name, has_template in (("llama3", True), ("llama2-json", True), ("llama2-modern", False)):
            with self.subTest(name=name):
                tokenizer = os.path.join(model_folder.TOKENIZERS, name)
                run, out = self.path("run-" + name), self.path("out-" + name)
                self.succeeds("train", self.path("model"), *data, "--tokenizer", tokenizer, "--save", run)
                said = self.succeeds("export", run, "-o", out).err
                self.assertEqual("with this tokenizer no chat template writes their ids" in said, not has_template, said)
                self.assertEqual(os.path.exists(os.path.join(out, "chat_template.jinja")), has_template)
                if has_template:
                    for place, flags in ((tokenizer, ["--chat-form", "plain"]), (out, [])):
                        made = self.path(name + str(len(flags)))
                        self.succeeds("tokenize", chats, "--chat", "--tokenizer", place, *flags, "-o", made)
                    with open(self.path(name + "0"), "rb") as own, open(self.path(name + "2"), "rb") as named:
                        self.assertEqual(own.read(), named.read())

    # ---- conversations ----

    def test_a_plain_conversation_is_its_text(self):
        flags = ["--tokens", 20, "--seed", 3]
        for more, written in ((["--chat", "--prompt", "Hi"], "user: Hi\nassistant:"),
                              (["--chat", "--system", "Be", "--prompt", "Hi"], "system: Be\nuser: Hi\nassistant:")):
            asked, told = self.answer(*flags, *more), self.answer(*flags, "--prompt", written)
            self.assertEqual(asked["prompt_tokens"], told["prompt_tokens"])
            self.assertEqual(asked["text"], told["text"].removeprefix(" "))
        out = self.succeeds("generate", *self.model("gpt2"), "--chat", "--prompt", "Hi", "--tokens", 3)
        self.assertNotIn("Hi", out.out)  # only the answer

    def chatml(self):
        """A tokenizer with a chat template, and a model that always ends a turn."""
        flags = self.model("qwen2")
        self.write("model/tokenizer_config.json", json.dumps({"chat_template": CHATML, "eos_token": "<|endoftext|>"}))
        return flags

    def test_a_conversation_goes_through_the_tokenizers_template(self):
        self.chatml()
        written = "<|im_start|>system\nBe<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        told = self.answer("--tokens", 5, "--prompt", written, tokenizer="qwen2")
        self.assertEqual(self.answer("--tokens", 5, "--chat", "--system", "Be", "--prompt", "Hi", tokenizer="qwen2"), told)
        said = [{"role": "system", "content": "Be"}, {"role": "user", "content": "Hi"}]
        more = [*said, {"role": "assistant", "content": "Oh"}, {"role": "user", "content": "So"}]
        other = written.removesuffix("<|im_start|>assistant\n") + (
            "<|im_start|>assistant\nOh<|im_end|>\n<|im_start|>user\nSo<|im_end|>\n<|im_start|>assistant\n")
        both = self.answers("--tokens", 5, "--prompt", written, "--prompt", other, tokenizer="qwen2")
        for text in (json.dumps([said, more]), json.dumps([{"messages": said}, {"messages": more}], indent=1),
                     f'{json.dumps({"messages": said})}\n\n{json.dumps(more)}\n'):
            self.assertEqual(self.answers("--tokens", 5, "--messages", self.write("m.json", text), tokenizer="qwen2"), both)
        for text in (json.dumps(said), json.dumps({"messages": said}), json.dumps({"messages": said}) + "\n"):
            self.assertEqual(self.answer("--tokens", 5, "--messages", self.write("m.json", text), tokenizer="qwen2"), told)
        self.assertEqual(self.answer("--tokens", 5, "--messages", self.write("m.json", json.dumps(said[1:])), "--system", "Be",
                                     tokenizer="qwen2"), told)
        lines = self.write("m.jsonl", f"\n{json.dumps({'messages': said})}\n{json.dumps(more)}\n")
        self.assertEqual(self.answers("--tokens", 5, "--messages", lines, tokenizer="qwen2"), both)

    def test_a_conversation_has_the_forms_of_data_and_its_last_answer_is_left_out(self):
        self.chatml()
        written = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        told = self.answer("--tokens", 5, "--prompt", written, tokenizer="qwen2")
        user, answer = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Oh", "weight": 1}
        parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
        human, gpt = {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Oh"}
        for asked, is_answered in (
                ([{"role": "user", "content": parts}], 0), ([user, answer], 1), ([user, answer, answer], 1), ([human, gpt], 1),
                ({"conversations": [human]}, 0), ({"conversations": [human, gpt]}, 1), ({"prompt": "Hi", "completion": "Oh"}, 1),
                ({"prompt": [user], "completion": [answer]}, 1), ({"instruction": "Hi", "input": "", "output": "Oh"}, 1)):
            for text in (json.dumps(asked), json.dumps([asked], indent=1)):
                done = self.succeeds("generate", *self.model("qwen2"), "--json", "--tokens", 5, "--messages", self.write("m.json", text))
                self.assertEqual(json.loads(done.out), told, asked)
                self.assertEqual("m.json: the answer at the end of 1 conversation is left out, for the model to write" in done.err,
                                 bool(is_answered), asked)
        chats = self.write("held.jsonl", f"{json.dumps({'messages': [user, answer]})}\n{json.dumps({'conversations': [human, gpt]})}\n")
        done = self.succeeds("generate", *self.model("qwen2"), "--json", "--tokens", 5, "--messages", chats)
        self.assertEqual(done.err.count("the answer at the end of 2 conversations is left out"), 1)
        self.assertEqual([json.loads(line)["prompt_tokens"] for line in done.out.splitlines()], [told["prompt_tokens"]] * 2)

    def always(self, token):
        """Changes the model so that it draws this token after any text."""
        # the last norm gives the same vector for any input; the row of one token is that vector
        changed = {"transformer.ln_f.weight": [0.0] * 32, "transformer.ln_f.bias": [1.0] * 32}
        dtype, shape, data = self.tensors["transformer.wte.weight"]
        table = list(model_folder.widen(data, dtype))
        table[32 * token:32 * token + 32] = [1.0] * 32
        changed["transformer.wte.weight"] = table
        for name, values in changed.items():
            self.tensors[name] = (dtype, self.tensors[name][1], model_folder.narrow(values, dtype))
        model_folder.write_file(self.path("model", "model.safetensors"), self.tensors)

    def test_the_end_of_a_turn_ends_an_answer(self):
        folder = self.chatml()[0]
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
            end, = (token["id"] for token in json.load(file)["added_tokens"] if token["content"] == "<|im_end|>")
        self.always(end)
        answer = self.answer("--chat", "--prompt", "Hi", "--temperature", 0, tokenizer="qwen2")
        self.assertEqual((answer["text"], answer["finish"], answer["tokens"]), ("", "end", 0))
        answer = self.answer("--prompt", "Hi", "--temperature", 0, "--tokens", 2, tokenizer="qwen2")
        self.assertEqual((answer["finish"], answer["tokens"]), ("length", 2))

    def test_a_run_on_conversations_says_that_a_prompt_is_plain_text_and_ends_its_turn(self):
        folder = self.chatml()[0]
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
            end, = (token["id"] for token in json.load(file)["added_tokens"] if token["content"] == "<|im_end|>")
        self.always(end)
        turns = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "1"}]
        chats = self.write("chats.jsonl", f"{json.dumps({'messages': turns})}\n" * 8)
        still = ["--sequence", 16, "--batch", 1, "--steps", 1, "--lr", 0, "--threads", 2, "--validation", "none"]
        self.succeeds("train", folder, "--data", chats, "--chat", *still, "--save", self.path("run"))
        self.succeeds("train", folder, "--data", self.corpus(60), *still, "--save", self.path("other"))
        told = "note: the run was trained on conversations, and the prompt is plain text: --chat asks it as a question\n"
        ask = ["--prompt", "Hi", "--temperature", 0, "--tokens", 2, "--threads", 2, "--json"]
        for name, flags, finish, count in (("run", [], "end", 1), ("run", ["--chat"], "end", 0), ("other", [], "length", 0)):
            done = self.succeeds("generate", self.path(name), *ask, *flags)
            self.assertEqual((json.loads(done.out)["finish"], done.err.count(told)), (finish, count), (name, flags))

    def test_a_template_that_loses_the_answer_is_refused_with_flags_that_generate_has(self):
        flags = self.model("llama3")
        self.write("model/tokenizer_config.json", json.dumps({"chat_template": "{{ bos_token }}{{ messages[0].content }}"}))
        said = self.fails(4, "generate", *flags, "--chat", "--prompt", "x", says="--chat-form chatml|llama3|llama2|plain").err
        self.assertIn('apply_chat_template and give the texts with --prompt, without the "<|begin_of_text|>"', said)
        self.assertNotRegex(said, "learn|--field")
        self.succeeds("generate", *flags, "--chat", "--prompt", "x", "--tokens", 1, "--chat-form", "plain")

    # ---- what is refused ----

    def test_prompts_that_are_none_are_refused_before_anything_is_written(self):
        model = self.model()
        user, assistant = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}
        cases = [(2, [], "--prompt TEXT is missing"), (2, ["--prompts", self.path("no.txt")], "--prompts"),
                 (4, ["--prompt-file", self.folder], "is a folder"), (4, ["--prompts", self.write("e", "\n\n")], "holds no prompt"),
                 (4, ["--prompt-file", self.write("n", "\n")], "is empty"),
                 (2, ["--prompt", "ok", "--prompt", "x" * 500], "--prompt number 2 has 500 tokens"),
                 (2, ["--prompts", self.write("l", "ok\n\n" + "x" * 500)], "l:3 has 500 tokens"),
                 (2, ["--prompts", "-", "--messages", "-"], "once only"), (2, ["--prompt", "x", "--system", "s"], "--system"),
                 (2, ["--prompt", "x", "--messages", self.write("u.json", json.dumps([user]))], "add --chat"),
                 (2, ["--prompt", "x", "--chat-form", "plain"], "--chat-form"),
                 (2, ["--chat", "--prompt", "x", "--chat-form", "chatml"], "<|im_start|>")]
        for text, says in (
                ("{", ":1 is not JSON"), (json.dumps([user]) + "\n{x", ":2 is not JSON"), ("[]", "holds no prompt"), ("[[]]", "conversation 1: \"messages\" is empty"), ("[3]", "holds no conversation"),
                ('{"a": 3}', '"messages" is missing, and so are '), ("3", ":1 is not JSON"), ('[\n{},\nx]', ":3 is not JSON"),
                (json.dumps([assistant]), "does not end with a user's message"),
                (json.dumps({"messages": [user], "tools": [1]}), 'the member "tools" is not written into the conversation'),
                (json.dumps([user, {"role": "tool", "content": "x"}]), "message 2"),
                (json.dumps([{"role": "user", "content": 3}]), "message 1"),
                (json.dumps([dict(user, tool_calls=[1])]), "tool_calls"), ("", "holds no prompt"),
                (json.dumps([[user], [assistant]]), "conversation 2")):
            cases.append((4, ["--messages", self.write(f"m{len(cases)}.json", text)], says))
        own = self.write("own.json", json.dumps([{"role": "system", "content": "s"}, user]))
        cases.append((2, ["--messages", own, "--system", "t"], "leave --system out"))
        for code, flags, says in cases:
            done = self.fails(code, "generate", *model, *flags, says=says)
            self.assertEqual(done.out, "")

    def test_all_prompts_of_a_file_that_are_refused_are_named_at_once(self):
        good, bad = json.dumps([{"role": "user", "content": "u"}]), json.dumps([{"role": "assistant", "content": "a"}])
        lines = self.write("m.jsonl", "\n".join([good, bad, "", good, "{x", json.dumps({"a": 3}), good]))
        done = self.fails(4, "generate", *self.model("qwen2"), "--messages", lines, says="3 prompts are refused (named above)")
        named = re.findall(r"m\.jsonl:(\d+)", done.err)
        self.assertEqual((done.out, named), ("", ["2", "5", "6"]))
        whole = self.write("m.json", f"[{good}, {bad}, {good}, {bad}]")
        done = self.fails(4, "generate", *self.model("qwen2"), "--messages", whole, says="2 prompts are refused (named above)")
        self.assertEqual(re.findall(r"conversation (\d)", done.err), ["2", "4"])
        # a long one is a mistake of the call (2); ten are named
        long = self.write("long.txt", "\n".join(["ok"] + ["x" * (200 + i) for i in range(12)]))
        done = self.fails(2, "generate", *self.model(), "--prompts", long, says="12 prompts are refused (the first ten are named above)")
        self.assertEqual(re.findall(r"long\.txt:(\d+) has (\d+)", done.err), [(str(i + 2), str(i + 200)) for i in range(10)])

    def test_a_lost_output_is_an_io_fault_with_json_too(self):
        for more in ([], ["--json"]):
            with open("/dev/full", "wb") as full:
                self.fails(5, "generate", *self.model(), "--prompt", "x", "--tokens", 2, *more, stdout=full, says="could not be")


if __name__ == "__main__":
    unittest.main()
