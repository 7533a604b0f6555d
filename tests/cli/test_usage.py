"""Wrong usage: exit 2, no standard output, one message that names the flag and the remedy."""

import json
import os
import re
import shutil
import unittest

from program import COHOBATE, NANO, SANITIZED, TIMEOUT_S, ProgramTest, environment, run, start

DATASHEET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "profiles", "rtx-4090.json")

COMMANDS = ["train", "plan", "generate", "eval", "tokenize", "inspect", "export", "check", "check-kind", "tune", "simulate", "explain", "trace", "doctor", "profile"]
# flag, values that are refused, a word of the remedy
REFUSED = [
    ("--steps", ["0", "-1", "x", "1.5", "", "9e9"], "--steps 100"),
    ("--epochs", ["0", "-1", "nan", "1e7", "x", ""], "--epochs 3"),
    ("--schedule-steps", ["0", "x"], "--schedule-steps 1000"),
    ("--warmup", ["-1", "x", "1.5", "%"], "--warmup 10"),
    ("--lr-for", ["-1", "x", "wte", "=1", "wte=", "wte=x", "wte=-1", ""], "--lr-for 'wte,wpe=1e-4'"),
    ("--weight-decay-for", ["wte", "=1", "wte=101", "wte=nan"], "--weight-decay-for 'wte,*.bias=0'"),
    ("--batch", ["0", "x", "99999999"], "--batch 8"),
    ("--micro-batch", ["0", "x"], "--micro-batch 4"),
    ("--sequence", ["0", "x"], "--sequence 256"),
    ("--vocabulary", ["0", "x"], "--vocabulary 50257"),
    ("--threads", ["0", "x", "5000"], "--threads 2"),
    ("--lr", ["-1", "x", "nan", "inf", ""], "--lr 6e-4"),
    ("--min-lr", ["-1", "x"], "--min-lr 6e-5"),
    ("--beta1", ["-0.1", "1", "x"], "--beta1 0.9"),
    ("--beta2", ["-0.1", "1", "x"], "--beta2 0.95"),
    ("--weight-decay", ["-1", "x"], "--weight-decay 0.1"),
    ("--clip", ["-1", "x", "nan"], "--clip 1.0"),
    ("--seed", ["-1", "x", "99999999999999999999"], "--seed 1"),
    ("--save-every", ["-1", "x"], "--save-every 100"),
    ("--keep", ["0", "x"], "--keep 2"),
    ("--validation-every", ["-1", "x"], "--validation-every 100"),
    ("--validation-split", ["0", "1", "-0.1", "x", "nan"], "--validation-split 0.05"),
    ("--documents", ["both", "", "pack"], "--documents separate"),
    ("--device-memory", ["64", "x", "-1MiB", "0MiB", "64QB", ""], "--device-memory 64MiB"),
    ("--emulate-host", ["64", "0KiB"], "--emulate-host 1GiB"),
    ("--chunk", ["64", "0KiB", "3B", "65535B", "1.1GiB", "100GiB"], "--chunk 1MiB"),
    ("--link-rate", ["64", "x/s"], "--link-rate 16GB/s"),
    ("--disk", [".:64", ":1GiB", ""], "--disk /var/tmp:40GB"),
    ("--dtype", ["f16", "bf", ""], "--dtype f32"),
    ("--atomics", ["yes", "1", ""], "--atomics on"),
    ("--recompute", ["some", "", "al"], "--recompute auto"),
    ("--pin", ["", "blocks.0", "blocks.0=cpu", "=device", "blocks.2-1=keep"], "blocks.0-3=device"),
    ("--device", ["cuda:x", "tpu", ""], "--device cuda:0"),
]


class Usage(ProgramTest):
    def test_values_out_of_range_are_refused_with_an_example(self):
        for flag, values, example in REFUSED:
            for value in values:
                with self.subTest(flag=flag, value=value):
                    done = self.fails(2, "plan", "gpt2-nano", flag, value, says=flag)
                    self.assertEqual(done.out, "")
                    self.assertEqual(done.err.count("\n"), 1)
                    if value not in ("cuda:x", "tpu"):
                        self.assertIn(example, done.err)

    def test_a_flag_that_takes_a_word_in_place_of_a_number_names_the_word(self):
        """The flags are those of --help that take N or a size, a bar, and more."""
        tried = 0
        for command in ("train", "eval"):
            for flag, word in re.findall(r"^  (--[\w-]+) (?:N|SIZE)\|(\S+)", run(command, "--help").out, re.M):
                with self.subTest(command=command, flag=flag):
                    wrong = "-1" if flag == "--warmup" else "0"
                    self.fails(2, command, "gpt2-nano", flag, wrong, says=f", or {word}, not '{wrong}': for example {flag} ")
                    tried += 1
        self.assertGreaterEqual(tried, 5)  # --host-memory twice, --micro-batch twice, --warmup, --record

    def test_a_chunk_out_of_range_names_the_range(self):
        for command in ("plan", "train", "eval", "generate"):
            for size in ("3B", "100GiB"):
                self.fails(2, command, "gpt2-nano", "--chunk", size, says=f"--chunk takes a size from 64KiB to 1GiB, not '{size}'")

    def test_a_flag_without_its_value_is_refused_with_an_example(self):
        for flag, _, example in REFUSED:
            with self.subTest(flag=flag):
                self.fails(2, "train", "gpt2-nano", flag, says=example)

    def test_a_flag_given_twice_is_refused_unless_its_values_add_up(self):
        for flags in (["--data", "a", "--data", "b"], ["--device-memory", "64MiB", "--device-memory=64MiB"], ["--json", "--json"],
                      ["-o", "a", "--output", "b"], ["--micro-batch", "auto", "--micro-batch", "4"]):
            with self.subTest(flags=flags):
                done = self.fails(2, "plan", "gpt2-nano", *flags, says=" is given twice: leave one out", as_given=True)
                self.assertEqual(done.err.count("\n"), 1)
        self.succeeds("plan", *NANO, "--lr-for", "wte=1e-4", "--lr-for", "wpe=1e-4", "--pin", "wte=device", "--pin", "wpe=device",
                      "--hyperparameter", "beta1=0.8", "--hyperparameter", "beta2=0.9",
                      as_given=True)

    def test_unknown_flags_commands_and_operands_are_named(self):
        self.fails(2, "train", "gpt2-nano", "--stepz", "3", says="--stepz")
        self.fails(2, "doctor", "--steps", "3", says="--steps")
        self.fails(2, "plan", "gpt2-nano", "another", says="another")
        self.fails(2, "doctor", "what", says="what")
        self.fails(2, "frobnicate", says="frobnicate")
        self.fails(2, says="--help")
        self.fails(2, "plan", "gpt2-nano", "--json=yes", says="--json")
        for command in COMMANDS[:-2]:  # the last two need no operand
            self.fails(2, command, says="missing")

    def test_flags_of_other_trainers_name_what_to_give(self):
        """Each row of cli/other_trainers.c, with "-" and "_", and with a value; each names flags that the command has."""
        known = set(re.findall(r"--([a-z][a-z0-9-]*)", self.succeeds("train", "--help").out))
        gives = {
            "load-in-4bit": "--frozen-dtype nf4, with --lora or --freeze",
            "packing": "--documents separate",
            "sample-packing": "--documents separate",
            "learning-rate": "--lr X",
            "modules-to-save": "--lora-also PATTERN",
            "lora-r": "--lora RANK:ALPHA",
            "lora-rank": "--lora RANK:ALPHA",
            "lora-alpha": "--lora RANK:ALPHA",
            "lora-target-modules": "--lora-targets PATTERN",
            "target-modules": "--lora-targets PATTERN",
            "num-train-epochs": "--epochs X",
            "num-epochs": "--epochs X",
            "max-steps": "--steps N",
            "per-device-train-batch-size": "--micro-batch N, and --batch N for all sequences of a step",
            "micro-batch-size": "--micro-batch N, and --batch N for all sequences of a step",
            "gradient-accumulation-steps": "--batch N, all sequences of a step, and --micro-batch N, those computed at once",
            "max-seq-length": "--sequence N, in tokens",
            "max-seq-len": "--sequence N, in tokens",
            "max-length": "--sequence N, in tokens",
            "sequence-len": "--sequence N, in tokens",
            "block-size": "--sequence N, in tokens",
            "gradient-checkpointing": "--recompute all; auto, the default, does it where memory is short",
            "bf16": "--dtype bf16",
            "fp16": "--dtype bf16, of the same size: f16 is not computed in",
            "warmup-steps": "--warmup N",
            "warmup-ratio": "--warmup X%: 3% for a ratio of 0.03",
            "lr-scheduler-type": "--schedule cosine, linear, constant or wsd",
            "max-grad-norm": "--clip X",
            "output-dir": "--save DIR",
            "save-steps": "--save-every N",
            "eval-steps": "--validation-every N",
            "save-total-limit": "--keep N",
            "num-warmup-steps": "--warmup N",
            "report-to": "--tensorboard DIR",
            "logging-dir": "--tensorboard DIR",
            "early-stopping-patience": "--stop-after-worse N",
            "load-best-model-at-end": "--keep-best: DIR/best is that checkpoint",
            "eval-strategy": "--validation-every N",
            "evaluation-strategy": "--validation-every N",
            "train-file": "--data FILE",
            "validation-file": "--validation FILE",
            "dataset": "--data FILE|DIR",
            "dataset-name": "--data FILE|DIR",
            "adam-beta1": "--beta1 X",
            "adam-beta2": "--beta2 X",
            "adam-epsilon": "--hyperparameter epsilon=X",
            "resume-from-checkpoint": "--resume DIR",
            "use-peft": "--lora RANK",
            "load-in-8bit": "--frozen-dtype nf4, with --lora or --freeze: there are no weights of 8 bits",
            "dataloader-num-workers": "--threads N",
            "fsdp": "--ranks N; --pattern zero3 divides weights, gradients and states over them",
            "completion-only-loss": "--field PROMPT,NAME, or --chat",
            "assistant-only-loss": "--chat, which learns answers only",
        }
        for name, give in gives.items():
            self.assertNotIn(name, known)
            self.assertTrue(set(re.findall(r"--([a-z][a-z0-9-]*)", give)) <= known, give)
            for typed in {f"--{name}", f"--{name.replace('-', '_')}", f"--{name}=1"}:
                with self.subTest(typed=typed):
                    said = self.fails(2, "train", "gpt2-pico", typed).err
                    self.assertEqual(said, f"cohobate train: '{typed}' is not a flag of cohobate train: give {give}\n")
        for name, says in (("model-name-or-path", "give the folder or preset as the first word, without a flag"),
                           ("model", "give the folder or preset as the first word, without a flag"),
                           ("per-device-eval-batch-size", "leave it out: validation takes --micro-batch sequences at once"),
                           ("logging-steps", "leave it out: steps.jsonl of the run folder has each step"),
                           ("deepspeed", "leave it out: --device-memory, --host-memory and --disk say what a run may use")):
            self.fails(2, "train", "gpt2-pico", f"--{name}=1", says=f"'--{name}=1' is not a flag of cohobate train: {says}")
        left_out = "leave it out: it is off without a flag"
        for typed, says in (("--packing=False", "give --documents aligned: a sequence holds tokens of one document"), ("--sample_packing=no", "give --documents aligned: "),
                            ("--gradient_checkpointing=false", "give --recompute none"), ("--load_in_4bit=False", left_out), ("--bf16=0", "give --dtype f32"),
                            ("--fp16=FALSE", left_out), ("--packing=True", "give --documents separate"), ("--max-steps=0", "give --steps N")):
            self.fails(2, "train", "gpt2-pico", typed, says=f"'{typed}' is not a flag of cohobate train: {says}")
        self.fails(2, "generate", "gpt2-pico", "--max_new_tokens", 9, says="'--max_new_tokens' is not a flag of cohobate generate: give --tokens N")
        self.assertNotIn("give", self.fails(2, "generate", "gpt2-pico", "--learning-rate", 1, says="is not a flag").err)

    def test_the_whole_name_of_another_commands_flag_is_not_the_beginning_of_a_longer_one(self):
        for flag in (["--device", "cuda:0"], ["--device=cuda:0"]):
            self.fails(2, "simulate", "plan.json", *flag, says="--device is not a flag of cohobate simulate, but of train, plan")
        for command in ("explain", "simulate"):  # which take a plan, where its flags have had their effect
            self.fails(2, command, "gpt2-nano", "--device-memory", "64MiB", "--disk", "/var/tmp",
                       says="a plan is made with it, so write one with cohobate plan MODEL --disk ... -o plan.json, and give "
                            f"{command} that file")
            self.fails(2, command, "plan.json", "--prompt", "x", says=f"but of generate: see cohobate {command} --help")
        self.fails(2, "tune", "gpt2-nano", "--steps", "4", says="--steps is not a flag of cohobate tune")
        self.fails(2, "tune", "gpt2-nano", "--st", "4", says="'--st' is not a flag of cohobate tune: see")
        self.fails(2, "plan", "gpt2-nano", "--st", "4", says="'--st' is short for more than one flag of cohobate plan: give one of "
                   "--steps, --state, --stop-after-worse")
        self.fails(2, "train", "gpt2-nano", "--test=4", says="is not a flag of")  # those that begin so are not in the help
        self.fails(2, "train", "gpt2-nano", "--te=4", says="is --tensorboard meant?")
        self.fails(2, "trian", "gpt2-nano", says="'trian' is not a command: is train meant?")
        for wrong, meant in (("--batchsize", "--batch"), ("--learning-rate", None), ("--microbatch", "--micro-batch"),
                             ("--vaildation-every=3", "--validation-every"), ("--hlep", "--help"), ("--device_memory", "--device-memory"), ("-z", None)):
            answer = self.fails(2, "train", "gpt2-nano", wrong, "4", says="is not a flag of cohobate train")
            self.assertEqual(re.findall(r"is (--\S+) meant", answer.err), [meant] if meant else [])
        self.succeeds("plan", "gpt2-nano", "--sequ", "16", "--batch=1")

    def test_a_mistyped_model_or_profile_is_answered_with_the_nearest_name(self):
        for arguments, meant in [
            (["plan", "opt-13"], "opt-13b"), (["plan", "GPT2-XL"], "gpt2-xl"), (["train", "gpt-2", "--data", self.corpus()], "gpt2"),
            (["plan", "facebook/opt-1.3b"], "opt-1.3b"), (["tune", "lama-2-7b", "-o", self.path("o")], "llama-2-7b"),
            (["plan", "bert-base"], None), (["plan", "./nowhere"], None),
            (["plan", "gpt2-nano", "--profile", "a100-40"], "a100-40g"), (["plan", "gpt2-nano", "--profile", "./h10"], "h100"),
            (["plan", "llama3-8b"], "llama-3.1-8b"), (["plan", "qwen3_14B"], "qwen3-14b"),
            (["plan", "llama-3b"], "llama-3.2-3b"), (["plan", "opt-6b"], "opt-6.7b"),
            (["plan", "gpt2-nano", "--profile", "a100"], "a100-40g"), (["plan", "gpt2-nano", "--profile", "4090"], "rtx-4090"),
            (["plan", "gpt2-nano", "--profile", "RTX4090"], "rtx-4090"), (["plan", "gpt2-nano", "--profile", "v100"], None), (["plan", "gpt2-nano", "--state", "Lean"], "lean"),
            (["plan", "gpt2-nano", "--clip-mode", "previuos"], "previous"), (["plan", "gpt2-nano", "--state", "fast"], None),
            (["plan", "gpt2-nano", "--optimizer", "Adam"], "adamw"), (["plan", "gpt2-nano", "--optimizer", "rmsprop"], None),
            (["plan", "gpt2-nano", "--topology", "./fronteir"], "frontier"),
            (["plan", "gpt2-nano", "--profile", "builtin"], "built-in"), (["plan", "gpt2-nano", "--profile", "mine"], None),
            (["inspect", "a100-40"], "a100-40g"), (["check", "a100_80g"], "a100-80g"), (["inspect", "mine"], None),
        ]:
            with self.subTest(arguments=arguments):
                answer = self.fails(2, *arguments, says=arguments[-1] if arguments[0] == "plan" else "")
                self.assertEqual(re.findall(r"is (\S+) meant\?", answer.err), [meant] if meant else [])

    def test_a_mistyped_unit_of_a_size_is_answered_with_that_name_and_the_nearest_size(self):
        for word, meant in (("opt-125b", "opt-125m or opt-66b"), ("opt-13m", "opt-13b"), ("opt-350B", "opt-350m"),
                            ("gpt2-x1", "gpt2")):
            with self.subTest(word=word):
                self.assertEqual(re.findall(r": is ([^:]+) meant\?$", self.fails(2, "plan", word).err.strip()), [meant])
                for command in ("plan", "train"):  # a path as on a hub, too
                    said = self.fails(2, command, "facebook/" + word, says=" is not there: bring ").err
                    self.assertEqual(re.findall(r", or is ([^:]+) meant\? A preset begins with first values, ", said), [meant])
                    os.makedirs(self.path("facebook"), exist_ok=True)  # a folder: the path lies in it
                    said = self.fails(2, command, "facebook/" + word, says=" is not there: is ", cwd=self.folder).err
                    self.assertEqual(re.findall(r": is ([^:]+) meant\? Or give ", said), [meant])

    def test_the_presets_are_listed_only_for_a_name_that_is_near_none(self):
        near = self.fails(2, "plan", "gtp2").err
        self.assertEqual(near, 'cohobate plan: "gtp2" is neither a preset nor the folder of a checkpoint, a run or a Hugging Face '
                               'model: is gpt2 meant?\n')
        self.fails(2, "plan", "bloom", says='"bloom" is neither a preset (gpt2-pico, gpt2-nano, ')
        self.fails(2, "plan", "bloom", says="gemma-3-27b) nor the folder of a checkpoint")

    def test_a_name_of_the_hub_is_answered_with_its_download(self):
        text, ids = self.corpus(), ["--tokenizer", "none"]
        for name, meant in (("Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"), ("bigscience/bloom-560m", None)):
            folder = name.split("/")[1]
            bring = (f"{name} is not there: bring a model of the Hugging Face Hub with hf download {name} --local-dir {folder} "
                     f"and give ./{folder}, or ")
            preset = f"is {meant} meant? A preset begins with first values, not with trained weights"
            for arguments, more in ((["train", name, "--data", text], preset), (["plan", name, *ids], preset),
                                    (["eval", name, "--data", text], None), (["generate", name, "--prompt", "x"], None),
                                    (["export", name, "-o", self.path("out")], None), (["inspect", name], None), (["check", name], None)):
                with self.subTest(arguments=arguments):
                    said = self.fails(2, *arguments, says=bring).err.strip()
                    last = more if more and meant else "give a model's folder, or a preset (--help)" if more else "give a file or folder that is"
                    self.assertTrue(said.endswith(bring + last), said)
        for path in ("./Qwen/model", "../Qwen/model", "/Qwen/model", "Qwen/models/one", "Qwen/", "Qwen//model", "Qwen/..", "Qwen/-o", "a b/c", "rnu/step-100", "rnu/best"):
            self.assertNotIn("hf download", self.fails(2, "eval", path, "--data", text, says=" is not there: ").err)
        self.assertNotIn("hf download", self.fails(2, "tokenize", "Qwen/text", "-o", self.path("out"), says=" is not there: ").err)
        self.assertIn("is a100-40g meant?", self.fails(2, "inspect", "nvidia/a100-40", says=" is not there: is ").err)

    def test_a_mistyped_entry_operator_family_or_number_is_answered_with_the_nearest_name(self):
        plan = self.path("plan.json")
        self.succeeds("plan", *NANO, "-o", plan)
        for arguments, meant in [
            (["plan", "gpt2-nano", "--profile", "a100-40g,host-memry=4GB"], "host-memory"),
            (["plan", "gpt2-nano", "--what-if", "pice=2x"], "pcie"), (["plan", "gpt2-nano", "--sweep", "host-memry=4GB:8GB"], "host-memory"),
            (["plan", "gpt2-nano", "--topology", "frontier,nodelink=1GB/s"], "node-link"),
            (["simulate", plan, "--profile", "built-in,disk_read=2x"], "disk-read"), (["inspect", "h100,flop=2x"], "flops"),
            (["plan", "gpt2-nano", "--profile", "h100,colour=2x"], None),
            (["explain", plan, "h.3.mpl.c_fc"], "h.3.mlp.c_fc"), (["explain", plan, "what"], None),
            (["plan", "--max", "llama3.1"], "llama-3.1"), (["plan", "--max", "optt"], "opt"), (["plan", "--max", "gemma2"], "gemma-2"),
            (["plan", "--max", "llama-3"], "llama-3.1"), (["plan", "--max", "bert"], None),
            (["help", "trian"], "train"), (["--help", "evla"], "eval"), (["help", "what"], None),
        ]:
            with self.subTest(arguments=arguments):
                answer = self.fails(2, *arguments)
                self.assertEqual(re.findall(r"is (\S+) meant\?", answer.err), [meant] if meant else [])
        self.fails(2, "plan", "gpt2-nano", "--hyperparameter", "momentm=0.9", "--optimizer-for", "wte=sgd",
                   says="has a number momentm: give one of beta1, beta2, ")

    def test_what_is_near_to_the_operand_that_is_needed_is_answered_with_it(self):
        for command, more in (("report", []), ("watch", []), ("trace", ["-o", self.path("t.json")])):
            self.fails(2, command, "gpt2", *more, says=f"gpt2 is a preset, and {command} takes the folder of a run")
        for command, more in (("simulate", []), ("explain", ["h.0.attn"])):
            self.fails(2, command, "gpt2", *more, says=f"{command} takes a plan file: write one with cohobate plan gpt2 -o plan.json")
        self.fails(2, "explain", "a", "b", "c", says="takes PLAN and OPERATOR")
        self.fails(2, "diff", "a", "b", "c", says="takes two RUNs")
        self.fails(2, "watch", "a", "--json", says="--json is not a flag of cohobate watch, but of train, plan, generate, eval")
        os.makedirs(self.path("run", "step-3"))
        for name in ("run.json", "steps.jsonl"):
            self.write(f"run/{name}", "{}")
        given = f"a run's folder is needed: give {self.path('run')}\n"
        for command in ("report", "watch"):
            for end in ("step-3", "step-3/"):
                self.assertTrue(self.fails(2, command, self.path("run", end), says=" is a checkpoint").err.endswith(given))
            self.assertTrue(self.fails(4, command, self.path("run", "steps.jsonl"), says=" is a file").err.endswith(given))
            self.assertTrue(self.fails(2, command, "step-3", cwd=self.path("run")).err.endswith(" is needed: give .\n"))

    def test_with_json_every_command_says_its_failure_as_an_object(self):
        none, folder = self.path("none"), self.path("folder")
        os.makedirs(folder)
        for code, *command in [
            (2, "train", "gpt2-nano", "--data", none), (2, "eval", none, "--data", none), (2, "check", none), (2, "inspect", none),
            (2, "generate", none, "--prompt", "x"), (2, "tokenize", none, "-o", self.path("t")), (2, "export", none, self.path("e")),
            (2, "check-kind", none), (2, "simulate", none), (2, "explain", none, "wte"), (2, "doctor", "--folder", none),
            (2, "plan", "gpt2-nano", "--batch", 0), (2, "train", "--stpes", 3), (2, "plan", none), (2, "report", folder),
            (5, "tune", "gpt2-nano", "-o", "/proc/kernels.json"), (5, "profile", "--quick", "-o", "/proc/profile.json"),
        ]:
            with self.subTest(command=command):
                done = self.fails(code, *command, "--json")
                said = done.err.strip().split("\n")[-1].split(": ", 1)[1]
                self.assertEqual((done.json["exit_code"], done.json["why"]), (code, said))
                self.assertIn(done.json["status"], ("COH_ERR_ARGUMENT", "COH_ERR_IO", "COH_ERR_CORRUPT"))
        self.assertEqual(self.fails(2, "diff", "a", "b", "c").out, "")
        self.assertEqual(self.fails(2, "train", "--stpes", 3, "--jso").json["exit_code"], 2)
        self.assertEqual(run("trace", "x", "--json").out, "")

    @unittest.skipUnless(shutil.which("stdbuf") and not SANITIZED, "needs stdbuf, which preloads a library")
    def test_a_result_is_one_object_also_where_each_line_is_sent_at_once(self):
        max_ = ["plan", "--max", "gpt2-pico", "--device-memory", "200KiB", "--json"]
        self.assertIn("family", run("-oL", COHOBATE, *max_, program="stdbuf", as_given=True).json)

    def test_a_name_that_is_no_utf_8_leaves_the_object_of_a_refusal_valid(self):
        odd = os.path.join(os.fsencode(self.folder), b"\xff" + b"\x01" * 100)
        self.succeeds("plan", *NANO, "--profile", "rtx-4090", "--calibration", "none", "-o", self.path("plan.json"))
        os.rename(self.path("plan.json"), odd)
        process = start("simulate", os.fsdecode(odd), "--profile", "rtx-4090,device-memory=1MiB", "--json")
        found = json.loads(process.communicate(timeout=TIMEOUT_S)[0].decode())  # which refuses what is no UTF-8
        self.assertEqual((process.returncode, found["exit_code"], found["fits"]), (3, 3, False))
        self.assertTrue(found["model"].endswith("/\ufffd" + "\x01" * 100), found["model"])

    def test_the_word_that_is_no_flag_is_named_and_not_the_one_before(self):
        for word, meant in (("-json", "--json"), ("-batch=4", "--batch"), ("-jz", None)):
            answer = self.fails(2, "plan", "gpt2-nano", word, says=f"'{word}' is not a flag of cohobate plan")
            self.assertEqual(re.findall(r"is (--\S+) meant", answer.err), [meant] if meant else [])
        for words in (["-x", "-xy"], ["gpt2-nano", "-x", "-xy"], ["gpt2-nano", "-x", "-axe"], ["-x", "gpt2-nano", "--json", "-xy"]):
            self.fails(2, "plan", *words, says="'-x' is not a flag of cohobate plan")

    def test_help_of_help_is_the_help(self):
        for words in (["help", "-h"], ["help", "--help"]):
            self.assertEqual(self.succeeds(*words).out, self.succeeds("--help").out)

    def test_the_constants_that_plans_use_without_a_profile_are_inspected_by_their_name(self):
        self.assertIn("profile built-in, 3 threads\n  built-in, of a host device", self.succeeds("inspect", "built-in-3").out)
        self.assertEqual(self.succeeds("inspect", "built-in", "--json").json["source"], "built-in")
        self.succeeds("check", "built-in,disk-read=2x")
        for wrong in ("built-in-", "built-in-x", "built-in-3x"):
            self.fails(2, "inspect", wrong, says=f"{wrong} is not there")

    def test_flags_that_contradict_one_another_are_refused(self):
        text = self.corpus()
        for arguments, says in [
            (["plan", "gpt2-nano", "--batch", "8", "--micro-batch", "3"], "--micro-batch 3"),
            (["plan", "gpt2-nano", "--min-lr", "1", "--lr", "0.1"], "--min-lr"),
            (["plan", "gpt2-nano", "--warmup", "11", "--steps", "10"], "--warmup"),
            (["plan", "gpt2-nano", "--epochs", "2", "--steps", "10", "--data", text], "leave one out"),
            (["train", "gpt2-nano", "--epochs", "2", "--steps", "10", "--data", text], "leave one out"),
            (["plan", "gpt2-nano", "--epochs", "2"], "add --data FILE"),
            (["plan", "gpt2-nano", "--epochs", "2", "--data", text], "cohobate tokenize"),
            (["plan", "gpt2-nano", "--link-rate", "1GB/s"], "--emulate-host"),
            (["plan", "gpt2-nano", "--host-memory", "1GiB"], "--device-memory"),
            (["plan", "gpt2-nano", "--sequence", "5000"], "--sequence"),
            (["plan", "gpt2-nano", "--vocabulary", "12"], "--vocabulary"),
            (["plan", "gpt5-nano"], "gpt2-nano"),
            (["plan", "gpt5-nano"], "llama-3.1-70b"),
            (["train", "gpt2-nano"], "--data"),
            (["train", "gpt2-nano", "--data", text, "--new-data"], "--resume"),
            (["generate", self.folder], "--prompt"),
            (["eval", self.folder], "--data"),
            (["tokenize", text], "-o"),
            (["tune", "gpt2-nano"], "-o"),
            (["tokenize", text, "-o", self.path("o"), "--held-out", "2"], "--held-out-file"),
        ]:
            with self.subTest(arguments=arguments):
                self.fails(2, *arguments, says=says)

    def test_a_file_that_is_no_model_is_bad_data_in_every_command(self):
        text, empty, plan = self.corpus(), self.write("empty", ""), self.path("plan.json")
        self.succeeds("plan", *NANO, "-o", plan)
        for file in (text, empty, plan):
            for arguments in [
                ["train", file, "--data", text], ["train", "--resume", file, "--data", text], ["plan", file],
                ["tune", file, "-o", self.path("o")], ["profile", file, "--quick", "-o", self.path("o")],
                ["eval", file, "--data", text], ["generate", file, "--prompt", "x"], ["export", file, "-o", self.path("o")],
                *([["inspect", file], ["check", file], ["simulate", file], ["explain", file, "wte"]] if file != plan else []),
            ]:
                with self.subTest(arguments=arguments):
                    self.assertEqual(self.fails(4, *arguments, says=file).out, "")
        self.assertEqual(sorted(os.listdir(self.folder)), ["corpus.txt", "empty", "plan.json"])

    def test_presets_are_listed_and_planned_without_any_file(self):
        for command in ("train", "plan", "tune"):
            self.assertIn("llama-3.1-70b", run(command, "--help").out)
        self.assertNotIn("llama-3.1-70b", run("eval", "--help").out)
        for extra, parameters in [([], 125239296), (["--vocabulary", 300], 125239296 - (50272 - 300) * 768)]:
            done = run("plan", "opt-125m", "--sequence", 8, "--batch", 1, "--json", *extra)
            self.assertEqual(done.code, 0, done.err)
            self.assertEqual(done.json["parameters"], parameters)

    def contents(self):
        found = {}
        for name in os.listdir(self.folder):
            with open(self.path(name), "rb") as file:
                found[name] = file.read()
        return found

    def test_outputs_never_destroy_an_input_or_a_file_that_is_not_ours(self):
        text, json_text = self.corpus(), self.write("own.json", '{"mine": 1}\n')
        listing = self.write("notes.txt", "programs are nice\n")
        lines = self.write("lines.jsonl", '{"text": "one"}\n')
        plan, profile = self.path("a.plan"), self.path("a.profile")
        pins = self.write("pins.json", '{"format": "cohobate pins", "version": 1, "pins": []}')
        self.succeeds("plan", *NANO, "-o", plan)
        shutil.copy(DATASHEET, profile)
        os.link(text, self.path("link"))
        os.symlink(text, self.path("symlink"))
        before = self.contents()
        train = ["train", "gpt2-nano", "--data", text]
        self.fails(4, "tokenize", text, "-o", self.path("symlink"), says="is a link")
        for arguments, says in [
            (["tokenize", text, "-o", text], "the same file as the input"),
            (["tokenize", text, "-o", self.path("link")], "the same file as the input"),
            (["tokenize", listing, "-o", text], "no token file"),
            (["tokenize", self.folder, "-o", self.path("o"), "--held-out", "2", "--held-out-file", text],
             "no token file"),
            (["plan", "gpt2-nano", "-o", text], "no plan"),
            (["plan", "gpt2-nano", "-o", json_text], "no plan"),
            (["tune", "gpt2-nano", "-o", json_text], "no kernel table"),
            ([*train, "--kernels", json_text, "--log", json_text], "the same file as the input"),
            (["plan", "gpt2-nano", "--program", listing], "no program listing"),
            (["plan", "gpt2-nano", "-o", self.path("both"), "--program", self.folder + "/./both"], "both name"),
            (["tokenize", self.folder, "-o", self.path("b"), "--held-out", "2", "--held-out-file", self.path("b")],
             "both name"),
            ([*train, "--log", self.path("link")], "the same file as the input"),
            ([*train, "--validation", json_text, "--log", json_text], "the same file as the input"),
            ([*train, "--log", listing], "no log of JSON lines"),
            ([*train, "--log", lines], "no log of JSON lines"),
            ([*train, "--log", plan], "no log of JSON lines"),
            (["plan", *NANO, "-o", profile], "no plan"),
            (["plan", *NANO, "--plan", plan, "-o", plan], "the same file as the input"),
            (["plan", *NANO, "--pins", pins, "-o", pins], "the same file as the input"),
            (["plan", *NANO, "--profile", profile + ",disk-read=2x", "-o", profile], "the same file as the input"),
        ]:
            with self.subTest(arguments=arguments):
                self.fails(2, *arguments, says=says)
        self.assertEqual(self.contents(), before)

    def test_outputs_of_our_own_and_empty_files_are_replaced(self):
        text = self.corpus()
        for name in ("tokens", "plan", "program"):
            self.write(name, "")
        for _ in range(2):
            self.succeeds("tokenize", text, "-o", self.path("tokens"))
            self.succeeds("plan", *NANO, "-o", self.path("plan"), "--program", self.path("program"))

    def test_help_names_every_flag_and_shows_examples(self):
        for command in COMMANDS:
            done = self.succeeds(command, "--help")
            self.assertEqual(done.err, "")
            self.assertIn("examples:\n  cohobate " + command, done.out)
            self.assertIn("--help", done.out)
        train = run("train", "--help").out
        for flag, _, _ in REFUSED:
            self.assertIn(flag + " ", train)
        self.assertNotIn("--test-", train)
        self.assertIn("--host-memory SIZE", train)
        self.assertIn("75", self.succeeds("--help").out)
        self.assertRegex(self.succeeds("--version").out, r"^cohobate \d+\.\d+\.\d+\n$")

    def test_hwloc_loads_no_graphics(self):
        """Each plug-in brings libraries that a command does not need. Here none can be loaded, and hwloc says which it tries."""
        plain = {name: value for name, value in environment(HWLOC_PLUGINS_PATH=self.path("plugins"), HWLOC_PLUGINS_VERBOSE="1").items()
                 if name != "HWLOC_PLUGINS_BLACKLIST"}
        os.mkdir(self.path("plugins"))
        for name in ("hwloc_gl.so", "hwloc_opencl.so", "hwloc_xml_libxml.so"):
            self.write("plugins/" + name, b"none")
        self.assertNotIn("Failed to load plugin", self.succeeds("plan", *NANO, env=plain).err)
        own = self.succeeds("plan", *NANO, env={**plain, "HWLOC_PLUGINS_BLACKLIST": "hwloc_opencl.so,hwloc_xml_libxml.so"}).err
        if "Starting plugin" in own:  # hwloc was built with plug-ins
            self.assertIn("hwloc_gl.so", own)


if __name__ == "__main__":
    unittest.main()
