"""Runs that go on: training notes that the program reads and writes, groups, optimizers, weights, extensions. The oracle is
the program, or a run without the part in question. Run as `test_training.py PATH-OF-COHOBATE`."""
import copy
import json
import math
import os
import pickle
import shlex
import subprocess
import unittest
from array import array

from package_test import BATCH, RATE, ROOT, SAME, SEQUENCE, SIZES, PackageTest, cohobate, hash_of
import model_folder  # noqa: E402
from cohobate import _library  # noqa: E402


def numbers(values):
    return memoryview(values).cast("B").cast("f").tolist()


class Training(PackageTest):
    preset = "gpt2-pico"

    def run_steps(self, engine, schedule, *steps):
        for step in steps:
            engine.step(*self.batch(step), schedule)
            self.assertEqual(engine.step_count, step + 1)

    def checkpoint_hash(self, path, *more):
        """The hash of a run's newest checkpoint."""
        return self.succeeds("inspect", path, "--hash", *more).out.strip().split()[-1]

    def whole(self, schedule, engine_options=None, **plan_options):
        """The hash after four steps in one go, and the engine's checkpoint of two of them."""
        path = self.path("half")
        with self.plan(**plan_options) as plan, plan.engine(**(engine_options or {})) as engine:
            self.run_steps(engine, schedule, 0, 1)
            with cohobate.Tokenizer("bytes") as tokenizer:
                note = engine.training_note(schedule, tokenizer=tokenizer, data=self.data)
            engine.save(path, training=note, purpose="a test")
            self.run_steps(engine, schedule, 2, 3)
            return hash_of(engine), path

    # ---- notes ----

    def test_the_program_resumes_a_run_of_python_to_the_same_hash(self):
        schedule = cohobate.Schedule(2e-3, 4, warmup_steps=2)
        groups = {"*.bias": {"weight_decay": 0.3}, "wte": {"rate_factor": 0.5}}
        for engine_options, plan_options in (
                ({}, {}),
                ({"groups": groups, "weight_decay": 0.2, "seed": 5, "hyperparameters": {"beta2": 0.99, "adamw.beta1": 0.8}},
                 {"optimizer_for": {"wpe,*.bias": "sgd"}}),
                ({}, {"optimizer": "lion", "exact_clip": False})):
            path = self.path("half")
            if os.path.exists(path):
                cohobate.Checkpoint.remove(path)
            seed = engine_options.get("seed", 1)
            self.batch = lambda step, seed=seed: self.data.batch(step, BATCH, SEQUENCE, seed=seed)
            expected, path = self.whole(schedule, engine_options, **plan_options)
            done = self.succeeds("train", "--resume", path, "--threads", 2, "--search", "quick", "--save", "none")
            self.assertEqual(self.says_hash(done), expected, (engine_options, plan_options))

    def test_separate_documents_go_on_in_the_program_with_the_same_bits(self):
        schedule = cohobate.Schedule(1e-3, 4)
        texts = self.write("texts.jsonl", "".join(json.dumps({"text": "ab c"[i % 3:] * (i % 4)}) + "\n" for i in range(90)))
        tokens = self.path("texts.tokens")
        cohobate.tokenize("bytes", texts, tokens, form="jsonl", window=SEQUENCE, separate=True)
        model = cohobate.Model(self.preset, 257, dtype="f32", separate_documents=True)
        with cohobate.TokenFile(tokens) as data, model.plan(BATCH, SEQUENCE, **SIZES) as plan, plan.engine() as engine:
            self.assertEqual(data.facts.marks_documents, 1)
            ids, targets, positions = data.batch(0, BATCH, SEQUENCE, positions=True)
            self.assertEqual([bytes(memoryview(each)) for each in data.batch(0, BATCH, SEQUENCE)],
                             [bytes(memoryview(each)) for each in (ids, targets)])
            counted = list(memoryview(positions).cast("B").cast("i"))
            self.assertTrue(any(at % SEQUENCE and not counted[at] for at in range(len(counted))))
            apart = engine.evaluate(ids, targets, positions)
            self.assertNotEqual(apart, engine.evaluate(ids, targets))  # one document a sequence
            with self.assertRaisesRegex(cohobate.Error, "takes positions in documents"):
                engine.evaluate(ids, targets, ids)
            with self.assertRaisesRegex(ValueError, "give the positions"):
                engine.step(ids, targets, schedule)
            for step in range(4):
                ids, targets, positions = data.batch(step, BATCH, SEQUENCE, positions=True)
                if step == 2:
                    with cohobate.Tokenizer("bytes") as tokenizer:
                        note = engine.training_note(schedule, tokenizer=tokenizer, data=data)
                    self.assertIs(note.model_options()["separate_documents"], True)
                    engine.save(self.path("half"), training=note)
                engine.step(ids, targets, schedule, positions=positions)
            expected = hash_of(engine)
        done = self.succeeds("train", "--resume", self.path("half"), "--threads", 2, "--search", "quick", "--save", "none")
        self.assertEqual(self.says_hash(done), expected)
        with self.plan() as plan, plan.engine() as engine, self.assertRaisesRegex(ValueError, "separate_documents=True"):
            engine.step(ids, targets, schedule, positions=positions)

    def test_the_program_resumes_and_exports_what_python_fine_tuned_from_a_folder(self):
        model_folder.make(self.path("model"), "gpt2")
        schedule = cohobate.Schedule(1e-3, 4)
        model = cohobate.Model(self.path("model"), lora=2, dropout=0.1)
        with model.plan(BATCH, SEQUENCE, micro_batch=2, search="quick", threads=2) as plan, plan.engine(seed=3) as engine:
            ids = [[(7 * i + j) % plan.model.size.vocabulary for j in range(SEQUENCE + 1)] for i in range(64)]
            raw = self.write("ids.bin", array("H", sum(ids, [])).tobytes())
            with cohobate.TokenFile(raw, id_bytes=2, vocabulary=plan.model.size.vocabulary) as data:
                batches = [data.batch(step, BATCH, SEQUENCE, seed=3) for step in range(4)]
                for batch in batches[:2]:
                    engine.step(*batch, schedule)
                engine.save(self.path("half"), training=engine.training_note(schedule, data=data))
            for batch in batches[2:]:
                engine.step(*batch, schedule)
            expected = hash_of(engine)
        with cohobate.Checkpoint(self.path("half")) as checkpoint:
            note = checkpoint.training
        self.assertEqual((note.base, note.dropout, note.trained_positions), (self.path("model"), 0.1, 64))
        done = self.succeeds("train", "--resume", self.path("half"), "--threads", 2, "--search", "quick", "--save", "none")
        self.assertEqual(self.says_hash(done), expected)
        self.succeeds("export", self.path("half"), "-o", self.path("adapters"))
        with open(self.path("adapters", "adapter_config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["base_model_name_or_path"], self.path("model"))

    def test_python_goes_on_with_a_run_of_the_program_to_the_same_hash(self):
        run = self.path("run")
        arguments = ["train", self.preset, "--data", self.text, *SAME, "--lr", 2e-3, "--warmup", 2, "--schedule-steps", 4,
                     "--weight-decay-for", "*.bias=0.3", "--optimizer-for", "wpe=sgd"]
        expected = self.says_hash(self.succeeds(*arguments, "--steps", 4, "--save", "none"))
        self.succeeds(*arguments, "--steps", 2, "--save", run)
        with cohobate.Checkpoint(run) as checkpoint:
            note, facts = checkpoint.training, checkpoint.facts
            self.assertEqual(checkpoint.check(), facts.hash)
        self.assertEqual((facts.step, note.batch, note.sequence, note.tokenizer), (2, BATCH, SEQUENCE, "bytes"))
        self.assertEqual((note.weight_decay_for, note.optimizer_for), ({"*.bias": 0.3}, {"wpe": "sgd"}))
        groups = {pattern: {"weight_decay": value} for pattern, value in note.weight_decay_for.items()}
        with cohobate.TokenFile(note.data) as data, cohobate.Model(run).plan(
                note.batch, note.sequence, micro_batch=note.micro_batch, optimizer_for=note.optimizer_for, threads=2,
                search="quick") as plan, plan.engine(seed=note.seed, groups=groups) as engine:
            self.assertFalse(engine.load(facts.path))
            for tokens, targets in data.batches(BATCH, SEQUENCE, start=engine.step_count, stop=4, seed=note.seed):
                engine.step(tokens, targets, note.schedule, note.clip)
            self.assertEqual(hash_of(engine), expected)

    def continued(self, run, steps, is_token_file=True):
        """The hash of a run of the program after `steps` of them, continued by its note alone."""
        with cohobate.Checkpoint(run) as checkpoint:
            note, path = checkpoint.training, checkpoint.facts.path
        model = cohobate.Model(run, **note.model_options())
        of_ids = {} if is_token_file else {"id_bytes": note.form.id_bytes, "vocabulary": model.size.vocabulary}  # as in the README
        with cohobate.TokenFile(note.data, **of_ids) as data, model.plan(**note.plan_options(), threads=2, search="quick") as plan:
            with plan.engine(**note.engine_options()) as engine:
                self.assertFalse(engine.load(path), "another numeric plan")
                for tokens, targets in data.batches(**{**note.data_options(), "stop": steps}, start=engine.step_count):
                    engine.step(tokens, targets, note.schedule, note.clip)
                again = engine.training_note(note.schedule, steps=note.steps, clip=note.clip)
                for name in ("by_layers", "replicas", "f32_gradients", "speculates", "clips_by_previous", "dropout", "lora_dropout",
                             "weight_decay_for", "optimizer_for", "batch", "micro_batch", "sequence", "weight_decay"):
                    self.assertEqual(getattr(again, name), getattr(note, name), name)
                return hash_of(engine)

    def test_a_run_with_any_flag_is_continued_by_its_note(self):
        same = ["--data", self.text, *SAME, "--lr", 2e-3, "--warmup", 2, "--schedule-steps", 4]
        for number, flags in enumerate((
                ["--lr-for", "wte=1e-3", "--lr-for", "*.bias,wpe=4e-3", "--weight-decay-for", "*.bias=0.3",
                 "--weight-decay-for", "wte=0.2", "--weight-decay", 0.05],
                ["--beta1", 0.8, "--beta2", 0.99], ["--optimizer", "lion", "--hyperparameter", "lion.beta2=0.9", "--seed", 7],
                ["--dropout", 0.1], ["--dtype", "bf16", "--gradients", "f32"], ["--clip-mode", "previous", "--clip", 0.01],
                ["--clip", 0.01], ["--sweep-order", "layer"], ["--replicas", 2, "--micro-batch", 1], ["--lora", 2],
                ["--lora", 2, "--lora-dropout", 0.25])):
            with self.subTest(flags=flags):
                run = self.path(f"run-{number}")
                self.succeeds("train", self.preset, *same, *flags, "--steps", 2, "--save", run)
                expected = self.says_hash(self.succeeds(
                    "train", "--resume", run, "--steps", 4, "--threads", 2, "--search", "quick", "--save", "none"))
                self.assertEqual(self.continued(run, 4), expected)

    def test_a_run_on_ids_of_another_program_is_continued_by_its_note(self):
        ids = [97 + i * i % 26 for i in range(4 * BATCH * SEQUENCE + 1)]
        header = array("i", [20240520, 1, len(ids)] + [0] * 253).tobytes()
        for name, content, flags in (("llmc.bin", header + array("H", ids).tobytes(), []),
                                     ("two.bin", array("H", ids).tobytes(), []),
                                     ("four.bin", array("i", ids).tobytes(), ["--id-bytes", 4])):
            with self.subTest(name=name):
                run = self.path(f"run-{name}")
                self.succeeds("train", self.preset, "--data", self.write(name, content), *SAME, *flags, "--steps", 2, "--save", run)
                expected = self.says_hash(self.succeeds(
                    "train", "--resume", run, "--steps", 4, "--threads", 2, "--search", "quick", "--save", "none"))
                self.assertEqual(self.continued(run, 4, is_token_file=False), expected)

    def test_a_run_that_changed_its_batch_is_continued_in_its_windows(self):
        run = self.path("run")
        self.succeeds("train", self.preset, "--data", self.text, *SAME, "--steps", 2, "--save", run)
        resume = ["train", "--resume", run, "--threads", 2, "--search", "quick"]
        self.succeeds(*resume, "--batch", 6, "--steps", 3)
        with cohobate.Checkpoint(run) as checkpoint:
            note = checkpoint.training
        self.assertEqual((note.data_first_step, note.data_first_window, note.batch), (2, 8, 6))
        expected = self.says_hash(self.succeeds(*resume, "--steps", 5, "--save", "none"))
        self.assertEqual(self.continued(run, 5), expected)
        with self.assertRaisesRegex(ValueError, "step is 1: 2 to"):
            self.data.batch(1, 6, SEQUENCE, first_step=2, first_window=8)

    def test_the_last_of_equal_patterns_stays_the_last(self):
        groups = [("wte", {"rate_factor": 0.5}), ("w*", {"rate_factor": 2.0}), ("wte", {"rate_factor": 0.25})]
        with self.plan() as plan, plan.engine(groups=groups) as engine:
            note = engine.training_note(cohobate.Schedule(1e-3, 4))
            self.assertEqual(list(note.lr_for.items()), [("w*", 2e-3), ("wte", 0.25e-3)])
            for wrong in (["wte"], [("wte",)]):
                with self.assertRaisesRegex(ValueError, "a list of pairs"):
                    plan.engine(groups=wrong)

    def test_a_schedule_that_cannot_be_is_refused(self):
        for rates, says in (((1e-3, 0), "0 steps"), ((-1.0, 4), "highest is -1.0"), ((float("nan"), 4), "highest is nan"),
                            ((1e-3, 4, "lowest", float("inf")), "lowest is inf")):
            with self.subTest(rates=rates), self.assertRaisesRegex(ValueError, says):
                cohobate.Schedule(*rates[:2], **dict([rates[2:]] if rates[2:] else []))

    def test_a_note_holds_what_it_was_given(self):
        schedule = cohobate.Schedule(1e-3, 50, warmup_steps=5, lowest=1e-5)
        note = cohobate.TrainingNote(schedule=schedule, steps=50, lr_for={"wte": 1e-4, "*.bias": 2e-3}, keep=3,
                                     optimizer_for={"wpe": "lion"}, tokenizer="/models/é", form={"chat": 1, "field": "body"},
                                     replicas=(2, 1, 1))
        for other in (copy.deepcopy(note), pickle.loads(pickle.dumps(note))):
            self.assertEqual(other, note)
            self.assertEqual((other.schedule, other.steps, other.keep), (schedule, 50, 3))
            self.assertEqual(list(other.lr_for.items()), [("wte", 1e-4), ("*.bias", 2e-3)])
            self.assertEqual((other.optimizer_for, other.tokenizer), ({"wpe": "lion"}, "/models/é"))
            self.assertEqual((other.form.chat, other.form.field, other.replicas), (1, "body", (2, 1, 1)))
        self.assertIn("keep=3", repr(note))
        self.assertEqual(cohobate.TrainingNote().steps, 100)
        self.assertNotEqual(note, cohobate.TrainingNote())
        other.tokenizer = note.tokenizer = "bytes"  # after a longer text
        other.lr_for = dict(reversed(note.lr_for.items()))
        self.assertNotEqual(other, note)  # the last pattern that matches wins
        other.lr_for = note.lr_for
        self.assertEqual(other, note)
        for text in ("a longer text", "bytes"):
            other.tokenizer = text
        self.assertEqual(other, note)
        for name, value, error, says in (
                ("stepz", 1, AttributeError, "no member 'stepz'; its members are steps, schedule"),
                ("steps", -1, ValueError, "steps is -1"), ("batch", 2**63, ValueError, "batch is"),
                ("replicas", (2**32 + 2, 1, 1), ValueError, "replicas is 4294967298"),
                ("replicas", (2,) * 4, ValueError, "replicas has 4 factors: at most 3"),
                ("steps", 1.5, TypeError, "integer"), ("tokenizer", "x" * 4096, ValueError, "4096 bytes"),
                ("lr_for", {str(i): 1.0 for i in range(17)}, ValueError, "17 patterns")):
            with self.assertRaisesRegex(error, says):
                setattr(note, name, value)
        with self.assertRaises(AttributeError):
            cohobate.TrainingNote(stepz=1)

    def test_a_change_in_a_member_of_a_note_is_refused(self):
        """It would be lost: the note has the member in a struct of C."""
        note = cohobate.TrainingNote(steps=5, lr_for={"wte": 1e-3}, schedule=cohobate.Schedule(1e-3, 10), form={"chat": 1},
                                     hyperparameters={"beta1": 0.5}, optimizer_for={"wte": "sgd"})
        before = copy.copy(note)
        for name in ("lr_for", "weight_decay_for", "hyperparameters", "optimizer_for"):
            for change in (lambda of: of.__setitem__("wpe", 1), lambda of: of.update(wpe=1), lambda of: of.setdefault("wpe", 1),
                           lambda of: of.pop("wte", 0), lambda of: of.clear(), lambda of: of.__ior__({"wpe": 1}),
                           lambda of: of.popitem(), lambda of: of.__delitem__("wte")):
                with self.assertRaisesRegex(TypeError, "are not changed in place: assign a whole dict"):
                    change(getattr(note, name))
            setattr(note, name, {**getattr(note, name)})
            for other in (copy.copy(getattr(note, name)), pickle.loads(pickle.dumps(getattr(note, name)))):
                self.assertEqual(other, getattr(note, name))
                other["wpe"] = 1  # a dict of its own
            self.assertEqual(json.loads(json.dumps(getattr(note, name))), getattr(note, name))
        note.plan_options()["optimizer_for"]["wpe"] = "lion"
        for one, name in ((note.form, "id_bytes"), (note.schedule, "highest"), (cohobate.Schedule(1e-3, 4), "steps")):
            with self.assertRaisesRegex(AttributeError, f"{name}.*not changed|not changed.*{name}"):
                setattr(one, name, 2)
        for make in (copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))):
            self.assertEqual(make(note.schedule), note.schedule)
        self.assertEqual(note, before)
        self.assertEqual(eval(repr(note), vars(cohobate)), note)
        note.form = {**vars(note.form), "id_bytes": 2}
        self.assertEqual((note.form.chat, note.form.id_bytes), (1, 2))
        with self.assertRaisesRegex(AttributeError, "form of a training note has no member 'id_byte'; its members are field, chat"):
            note.form = {"id_byte": 2}
        with self.assertRaisesRegex(TypeError, "schedule is None: give a Schedule"):
            note.schedule = None

    def test_a_copy_of_a_note_has_members_of_its_own(self):
        note = cohobate.TrainingNote(steps=5)
        for make in (copy.copy, copy.deepcopy):
            other = make(note)
            self.assertEqual(other, note)
            other.steps = 99
            self.assertEqual((note.steps, other.steps), (5, 99))

    def test_a_checkpoint_has_its_note_and_its_tensors(self):
        with self.plan() as plan, plan.engine() as engine:
            self.run_steps(engine, lambda step: RATE, 0)
            engine.save(self.path("plain"), purpose="a test", best=4.5)
            note = engine.training_note(cohobate.Schedule(RATE, 4), keep=2)
            for more in ({"training": note, "batch": "mine"}, {"training": note, "lr_for": 1}, {"model": "mine"}):
                with self.assertRaisesRegex(ValueError, f"note has a {list(more)[-1]!r} of its own: give yours another name"):
                    engine.save(self.path("mine"), **more)
                self.assertFalse(os.path.exists(self.path("mine")))
            engine.save(self.path("noted"), training=note, purpose="a test")
            weight, state = engine.parameter("wte.weight"), engine.state("wte.weight", "v")
            with self.assertRaisesRegex(KeyError, "no optimizer has a state 'q'"):
                engine.state("wte.weight", "q")
            parameters = plan.parameters
        with cohobate.Checkpoint(self.path("plain")) as checkpoint:
            self.assertEqual((checkpoint.note["purpose"], checkpoint.note["best"]), ("a test", 4.5))
            with self.assertRaisesRegex(cohobate.Error, "no training note"):
                checkpoint.training
        with cohobate.Checkpoint(self.path("noted")) as checkpoint:
            self.assertEqual((checkpoint.note["purpose"], checkpoint.training.keep), ("a test", 2))
            self.assertEqual(checkpoint.note["model"], self.model().note())
            self.assertEqual({name: each.shape for name, each in checkpoint.tensors.items()},
                             {name: each.shape for name, each in parameters.items()})
            tensor = checkpoint.tensors["wte.weight"]
            self.assertEqual((tensor.optimizer, list(tensor.streams)), ("adamw", ["m", "v"]))
            self.assertEqual(numbers(checkpoint.read("wte.weight")), numbers(weight))
            self.assertEqual(numbers(checkpoint.read("wte.weight", "v")), numbers(state))
            self.assertTrue(any(numbers(state)))
            for name, stream in (("wte", "work"), ("wte.weight", "q")):
                with self.assertRaises(KeyError):
                    checkpoint.read(name, stream)

    def test_a_checkpoint_at_a_path_that_is_not_utf_8_is_opened_by_its_facts(self):
        run = os.path.join(os.fsencode(self.path("run")), b"\xff")
        os.makedirs(run)
        with self.plan() as plan, plan.engine() as engine:
            engine.save(os.path.join(run, b"step-1"))
            with cohobate.Checkpoint(run) as checkpoint:
                path = checkpoint.facts.path
            self.assertEqual(os.fsencode(path), os.path.join(run, b"step-1"))
            engine.load(path)

    def test_a_save_goes_on_beside_the_next_step(self):
        with self.plan() as plan, plan.engine() as engine:
            self.run_steps(engine, lambda step: RATE, 0)
            engine.save(self.path("beside"), wait=False)
            engine.save_wait()
            before = engine.hash()
            self.assertFalse(engine.is_saving)
            self.run_steps(engine, lambda step: RATE, 1)
            self.assertGreater(plan.save_bytes, 0)
        with cohobate.Checkpoint(self.path("beside")) as checkpoint:
            self.assertEqual(checkpoint.check(), before)

    def fail_at_the_end(self, path):
        """A progress that takes the name of a checkpoint between its numbers and its rename."""
        def tell(operation, done, total):
            if operation == "save" and done == total:
                os.makedirs(os.path.join(path, "taken"))
        return tell

    def test_a_save_that_fails_beside_the_last_steps_is_an_error_of_the_end(self):
        path = self.path("final")
        with self.assertRaisesRegex(cohobate.Error, "final"):
            with self.plan() as plan, plan.engine(progress=self.fail_at_the_end(path)) as engine:
                engine.save(path, wait=False)
        for owner in (engine, plan):
            self.assertRaisesRegex(cohobate.Error, "was closed", lambda owner=owner: owner._object)
        plan = self.plan()
        engine = plan.engine(progress=self.fail_at_the_end(self.path("other")))
        engine.save(self.path("other"), wait=False)
        self.assertRaisesRegex(cohobate.Error, "other", plan.close)
        plan.close()
        engine.close()

    def test_a_save_that_fails_does_not_hide_the_exception_that_ends_the_loop(self):
        path = self.path("final")
        with self.assertLogs("cohobate", "ERROR") as logs, self.assertRaises(ZeroDivisionError):
            with self.plan() as plan, plan.engine(progress=self.fail_at_the_end(path)) as engine:
                engine.save(path, wait=False)
                raise ZeroDivisionError
        self.assertIn(path, logs.output[0])

    def test_new_adapters_on_a_checkpoint_begin_with_first_values(self):
        path = self.path("base")
        with self.plan() as plan, plan.engine() as engine:
            self.run_steps(engine, lambda step: RATE, 0)
            with cohobate.Tokenizer("bytes") as tokenizer:
                engine.save(path, training=engine.training_note(cohobate.Schedule(RATE, 1, lowest=RATE), tokenizer=tokenizer))
            base = {name: numbers(found) for name, found in engine.parameters().items()}
        same = ["--data", self.text, *SAME, "--lora", 2, "--steps", 2, "--save", "none"]
        expected = self.says_hash(self.succeeds("train", path, *same))
        with cohobate.Model(path, lora=2).plan(BATCH, SEQUENCE, **SIZES) as plan:
            with plan.engine(seed=1) as engine:
                begin = {name: numbers(found) for name, found in engine.parameters().items()}
                self.assertEqual({name: begin[name] for name in base}, base)
                self.assertTrue(any(any(begin[name]) for name in begin.keys() - base.keys()))
                self.run_steps(engine, lambda step: RATE, 0, 1)
                self.assertEqual(hash_of(engine), expected)
                engine.save(self.path("adapted"))
                trained = engine.hash()
            given = memoryview(array("f", [0.5] * 96))
            with plan.engine(weights={"ln_f.weight": given}) as engine:
                self.assertEqual(set(numbers(engine.parameter("ln_f.weight"))), {0.5})
        with cohobate.Model(self.path("adapted")).plan(BATCH, SEQUENCE, **SIZES) as plan, plan.engine() as engine:
            engine.load(self.path("adapted"))
            self.assertEqual(engine.hash(), trained)

    def test_adapters_of_a_checkpoint_go_on_and_are_not_replaced(self):
        path, other = self.path("adapted"), self.path("other")
        for save, lora in ((path, 2), (other, 3)):
            with self.model(lora=lora, lora_targets="c_attn").plan(BATCH, SEQUENCE, **SIZES) as plan, plan.engine() as engine:
                self.run_steps(engine, lambda step: RATE, 0, 1)
                engine.save(save)
                trained = {name: numbers(found) for name, found in engine.parameters().items()}
        for more in ({"lora": 3}, {"lora": 2, "lora_alpha": 99.0}, {"freeze": "ln_f"}, {"lora": 3, "lora_targets": "c_fc"}):
            with self.subTest(more=more), self.assertRaisesRegex(
                    cohobate.Error, "other has adapters of rank 3 already: go on with them by leaving lora, .* out, or begin from"):
                cohobate.Model(other, **more)
        self.fails(2, "train", other, "--data", self.text, "--lora", 2, says="has adapters of rank 3 already: go on with them")
        model = cohobate.Model(other)
        with model.plan(BATCH, SEQUENCE, **SIZES) as plan:
            with plan.engine() as engine:
                self.assertEqual({name: numbers(found) for name, found in engine.parameters().items()}, trained)
            model._model.adapters.targets = b"c_attn,c_fc"  # as no Model has it: other tensors than its checkpoint
            with model.plan(BATCH, SEQUENCE, **SIZES) as more, self.assertRaisesRegex(
                    cohobate.Error, "other has no tensor 'h.0.mlp.c_fc.lora_A.weight': it is of another model"):
                more.engine()
            model._model.adapters.targets = b"c_fc"
            with model.plan(BATCH, SEQUENCE, **SIZES) as fewer, self.assertRaisesRegex(
                    cohobate.Error, "other has a tensor 'h.0.attn.c_attn.lora_A.weight', which the model lacks"):
                fewer.engine()

    # ---- rates, groups, optimizers ----

    def test_a_schedule_has_the_rates_of_the_program(self):
        schedule = cohobate.Schedule(2e-3, 4, warmup_steps=2)
        run = self.path("run")
        self.succeeds("train", self.preset, "--data", self.text, *SAME, "--lr", 2e-3, "--min-lr", 2e-4, "--warmup", 2,
                      "--steps", 4, "--save", run)
        with open(os.path.join(run, "steps.jsonl"), encoding="utf-8") as file:
            rates = [json.loads(line)["lr"] for line in file]
        self.assertEqual(len(rates), 4)
        for step, rate in enumerate(rates):
            self.assertAlmostEqual(schedule(step), rate, delta=1e-6 * rate)
        self.assertEqual(schedule, cohobate.Schedule(2e-3, 4, warmup_steps=2, lowest=2e-4))
        self.assertEqual(eval(repr(schedule), {"Schedule": cohobate.Schedule}), schedule)

    def test_every_kind_of_schedule_has_the_rates_of_the_program_which_resumes_it(self):
        linear = cohobate.Schedule(2e-3, 6, warmup_steps=1, lowest=0, kind="linear")
        wsd = cohobate.Schedule(2e-3, 6, warmup_steps=1, lowest=5e-4, kind="wsd", decay_steps=3)
        constant = cohobate.Schedule(2e-3, 6, kind="constant")
        for schedule, rates in ((linear, [1, 0.8, 0.6, 0.4, 0.2, 0, 0]), (wsd, [1, 1, 1, 0.75, 0.5, 0.25, 0.25]),
                                (constant, [1] * 7)):
            for step, rate in enumerate(rates):
                self.assertAlmostEqual(schedule(step), 2e-3 * rate, delta=1e-12)
            self.assertEqual(eval(repr(schedule), {"Schedule": cohobate.Schedule}), schedule)
            note = cohobate.TrainingNote(schedule=schedule)
            self.assertEqual(note.schedule, schedule)
            self.assertEqual(eval(repr(note), vars(cohobate)), note)
            self.assertNotEqual(note, cohobate.TrainingNote(schedule=cohobate.Schedule(2e-3, 6)))
        for more, says in (({"kind": "cosin"}, "'cosin' is not one of cosine, linear"), ({"kind": "wsd"}, "decay_steps 0"),
                           ({"decay_steps": 3}, "kind 'cosine' with decay_steps 3"),
                           ({"kind": "wsd", "warmup_steps": 2, "decay_steps": 5}, "a warm-up of 2 steps and a decay of 5 are longer")):
            with self.assertRaisesRegex(ValueError, says):
                cohobate.Schedule(2e-3, 6, **more)
        expected, path = self.whole(cohobate.Schedule(2e-3, 4, kind="wsd", decay_steps=3))
        done = self.succeeds("train", "--resume", path, "--threads", 2, "--search", "quick", "--save", "none")
        self.assertEqual(self.says_hash(done), expected)
        with cohobate.Checkpoint(path) as checkpoint:
            self.assertEqual(checkpoint.training.schedule.kind, "wsd")

    def test_a_group_changes_its_parameters_and_no_others(self):
        def trained(**options):
            with self.plan() as plan, plan.engine(**options) as engine:
                self.run_steps(engine, lambda step: RATE, 0)
                return {name: numbers(values) for name, values in engine.parameters().items()}

        before = trained(groups={"*": {"rate_factor": 0.0}})
        usual, frozen = trained(), trained(groups={"wte": {"rate_factor": 0.0}})
        changed = {name for name in usual if usual[name] != frozen[name]}
        self.assertEqual(changed, {"wte.weight"})
        self.assertEqual(frozen["wte.weight"], before["wte.weight"])
        decayed = trained(groups={"wte": {"weight_decay": 0.5}}, weight_decay=0.0)
        plain = trained(weight_decay=0.0)
        # AdamW's decay: a weight without decay, less rate * decay of the old one
        for old, new, without in zip(before["wte.weight"], decayed["wte.weight"], plain["wte.weight"]):
            self.assertAlmostEqual(new, without - RATE * 0.5 * old, delta=1e-6)
        for wrong in ({"wte": {}}, {"wte": {"lr": 1.0}}):
            with self.assertRaisesRegex(ValueError, "group 'wte' is .*rate_factor"):
                trained(groups=wrong)
        with self.assertRaisesRegex(cohobate.Error, "nothing"):
            trained(groups={"nothing": {"weight_decay": 0.0}})

    def test_optimizers_are_listed_and_chosen_by_pattern(self):
        known = cohobate.optimizers()
        self.assertLessEqual({"adamw", "adamw8", "adamw8sr", "lion", "sgd"}, known.keys())
        self.assertEqual((known["adamw"].streams, known["adamw"].hyperparameters["beta1"]), (["m", "v"], 0.9))
        with self.plan(optimizer_for={"wte": "lion"}) as plan, plan.engine() as engine:
            self.run_steps(engine, lambda step: RATE, 0)
            engine.save(self.path("checkpoint"))
        with cohobate.Checkpoint(self.path("checkpoint")) as checkpoint:
            found = {name: tensor.optimizer for name, tensor in checkpoint.tensors.items()}
        self.assertEqual((found.pop("wte.weight"), set(found.values())), ("lion", {"adamw"}))

    def test_a_plan_says_what_trains_each_parameter(self):
        with self.model(freeze="wte").plan(BATCH, SEQUENCE, optimizer_for={"wpe": "lion"}, **SIZES) as plan:
            found = {name: (each.is_frozen, each.optimizer, each.is_unused) for name, each in plan.parameters.items()}
            self.assertEqual(found.pop("wte.weight"), (True, None, False))
            self.assertEqual(found.pop("wpe.weight"), (False, "lion", False))
            self.assertEqual(set(found.values()), {(False, "adamw", False)})

            def unused(_plan, index, out_parameter):  # the presets have no such parameter
                out_parameter._obj.is_unused = index == 1
                return 0

            library = _library.library()
            self.addCleanup(setattr, library, "coh_plan_parameter_at", library.coh_plan_parameter_at)
            library.coh_plan_parameter_at = unused
            self.assertEqual([each.index for each in plan.parameters.values() if each.is_unused], [1])

    def test_an_eight_bit_state_is_bytes(self):
        with self.plan(optimizer="adamw8") as plan, plan.engine() as engine:
            self.run_steps(engine, lambda step: RATE, 0)
            streams = cohobate.optimizers()["adamw8"].streams
            sizes = {stream: memoryview(engine.state("wte.weight", stream)).nbytes for stream in streams}
            engine.save(self.path("checkpoint"))
            with cohobate.Checkpoint(self.path("checkpoint")) as checkpoint:
                for stream in streams:
                    self.assertEqual(bytes(memoryview(checkpoint.read("wte.weight", stream))),
                                     bytes(memoryview(engine.state("wte.weight", stream))), stream)
        self.assertIn(self.vocabulary * 96, sizes.values())

    # ---- initial weights ----

    def test_an_engine_begins_with_weights_of_its_user(self):
        halves = memoryview(array("f", [0.5] * (self.vocabulary * 96))).cast("B").cast("f", (self.vocabulary, 96))
        model_folder.make(self.path("model"), "gpt2")
        with self.plan() as plan, plan.engine() as engine:
            self.run_steps(engine, lambda step: RATE, 0)
            engine.save(self.path("checkpoint"))
        for model in (self.model(), cohobate.Model(self.path("checkpoint")), cohobate.Model(self.path("model"))):
            with model.plan(BATCH, SEQUENCE, micro_batch=2, search="quick", threads=2) as plan:
                with plan.engine() as engine:
                    usual = {name: numbers(values) for name, values in engine.parameters().items()}
                shape = plan.parameters["wte.weight"].shape
                mine = halves if shape == halves.shape else memoryview(
                    array("f", [0.5] * math.prod(shape))).cast("B").cast("f", shape)
                with plan.engine(weights={"wte.weight": mine}) as engine:
                    found = {name: numbers(values) for name, values in engine.parameters().items()}
            self.assertEqual(found.pop("wte.weight"), numbers(mine))
            usual.pop("wte.weight")
            self.assertEqual(found, usual)
        with self.plan() as plan:
            with self.assertRaisesRegex(KeyError, "no parameter 'wte'"):
                plan.engine(weights={"wte": halves})
            with self.assertRaisesRegex(ValueError, "'wte.weight' takes contiguous float32"):
                plan.engine(weights={"wte.weight": array("f", [1.0])})

    def test_own_parameters_keep_their_first_values(self):
        def values(plan, **options):
            with plan.engine(seed=7, **options) as engine:
                return {name: numbers(found) for name, found in engine.parameters().items()}

        model_folder.make(self.path("model"), "gpt2")
        with self.plan() as plan, plan.engine() as engine:
            self.run_steps(engine, lambda step: RATE, 0)
            engine.save(self.path("checkpoint"))
        for model in (self.model(), cohobate.Model(self.path("checkpoint")), cohobate.Model(self.path("model"))):
            with model.plan(BATCH, SEQUENCE, **SIZES) as plan:
                usual, first, found = values(plan), values(plan, own="*"), values(plan, own="wte, h.0.*")
                self.assertEqual(first == usual, model._model.checkpoint + model._model.folder == b"")
                self.assertEqual(found, {name: (first if name == "wte.weight" or name.startswith("h.0.") else usual)[name]
                                         for name in usual})
                with self.assertRaisesRegex(cohobate.Error, "'wtf' matches no parameter"):
                    plan.engine(own="wte,wtf")
                weights = {name: memoryview(array("f", [0.5] * 96)) for name in ("ln_f.weight", "ln_f.bias")}
                if plan.parameters["ln_f.bias"].shape == (96,):
                    given = values(plan, own="ln_f.bias", weights={"ln_f.weight": weights["ln_f.weight"]})
                    self.assertEqual((set(given["ln_f.weight"]), given["ln_f.bias"]), ({0.5}, first["ln_f.bias"]))
                    with self.assertRaisesRegex(ValueError, "'ln_f.bias' is in weights, and own matches it"):
                        plan.engine(own="ln_f.bias", weights=weights)

    def test_a_new_head_starts_on_the_weights_of_a_checkpoint(self):
        with self.plan() as plan, plan.engine() as engine:
            self.run_steps(engine, lambda step: RATE, 0)
            engine.save(self.path("checkpoint"))
            trained = {name: numbers(found) for name, found in engine.parameters().items()}
        model = cohobate.Model(self.preset, vocabulary=self.vocabulary + 3)
        with model.plan(BATCH, SEQUENCE, **SIZES) as plan, plan.engine(seed=7) as engine:
            head = numbers(engine.parameter("wte.weight"))
            engine.step(*self.batch(0), RATE)
            before = engine.hash()
            for own, says in ((None, "another shape"), ("wpe", "1 of the model's .*'wte.weight'"), ("wtf", "'wtf' matches no")):
                with self.assertRaisesRegex(cohobate.Error, says):
                    engine.load_weights(self.path("checkpoint"), own=own)
                self.assertEqual(engine.hash(), before)
            engine.load_weights(self.path("checkpoint"), own="wte")
            found = {name: numbers(found) for name, found in engine.parameters().items()}
            self.assertEqual(found, {**trained, "wte.weight": head})
            self.assertFalse(any(numbers(engine.state("wpe.weight", "m"))))
            engine.step(*self.batch(1), RATE)

    def test_weights_of_another_optimizer_are_loaded_without_its_states(self):
        with self.plan(optimizer="lion") as plan, plan.engine() as engine:
            self.run_steps(engine, lambda step: RATE, 0)
            engine.save(self.path("checkpoint"))
            weights = {name: numbers(values) for name, values in engine.parameters().items()}
        with self.plan() as plan, plan.engine() as engine:
            with self.assertRaisesRegex(cohobate.Error, "lion"):
                engine.load(self.path("checkpoint"))
            engine.load_weights(self.path("checkpoint"))
            self.assertEqual(engine.step_count, 0)
            self.assertEqual({name: numbers(values) for name, values in engine.parameters().items()}, weights)
            self.assertFalse(any(numbers(engine.state("wte.weight", "m"))))

    # ---- forward passes ----

    def test_any_number_of_sequences_is_evaluated_to_the_mean_over_what_counts(self):
        tokens, targets = (memoryview(each).tolist() for each in self.data.batch(0, 5, SEQUENCE))
        targets[1][3:] = [-1] * (SEQUENCE - 3)
        targets[4] = [-1] * SEQUENCE
        counts = [sum(target >= 0 for target in row) for row in targets]
        with self.plan() as plan, plan.engine() as engine:
            alone = [engine.evaluate([row] * 2, [of] * 2) for row, of in zip(tokens, targets)]
            mean = sum(map(lambda loss, count: loss * count, alone, counts)) / sum(counts)
            self.assertAlmostEqual(engine.evaluate(tokens, targets), mean, delta=1e-5)
            self.assertAlmostEqual(engine.evaluate(tokens[0], targets[0]), alone[0], delta=1e-5)
            self.assertEqual(engine.evaluate(tokens[4:], targets[4:]), 0)
            with self.assertRaisesRegex(ValueError, "targets has 4 rows"):
                engine.evaluate(tokens, targets[:4])

    def test_logits_give_the_loss_and_do_not_depend_on_later_tokens(self):
        tokens, targets = (memoryview(each).tolist() for each in self.data.batch(0, 2, SEQUENCE))
        with self.plan() as plan, plan.engine() as engine:
            self.run_steps(engine, lambda step: RATE, 0)
            weights, expected = engine.parameters(), engine.evaluate(tokens, targets)
            with self.assertRaisesRegex(cohobate.Error, "forward_only=True"):
                engine.logits(tokens)
        forward = self.model().plan(2, SEQUENCE, forward_only=True, search="quick", threads=2)
        with forward, forward.engine(weights=weights) as engine:
            found = memoryview(engine.logits(tokens))
            self.assertEqual(found.shape, (2, SEQUENCE, self.vocabulary))
            rows = found.tolist()
            losses = [math.log(sum(map(math.exp, row))) - row[target]
                      for i in range(2) for row, target in zip(rows[i], targets[i])]
            self.assertAlmostEqual(sum(losses) / len(losses), expected, delta=1e-4)
            self.assertAlmostEqual(engine.evaluate(tokens, targets), expected, delta=1e-5)
            begin = memoryview(engine.logits([row[:5] for row in tokens])).tolist()
            self.assertEqual(begin, [row[:5] for row in rows])
            for alone in (tokens[0], memoryview(array("i", tokens[0]))):  # would be cut into rows
                with self.assertRaisesRegex(ValueError, r"tokens has no rows, the plan's batch has 2: \[batch, sequence\]"):
                    engine.logits(alone)
            with self.assertRaisesRegex(cohobate.Error, "does not train"):
                engine.step(tokens, targets, RATE)
            for wrong in ([[]] * 2, [[1] * (SEQUENCE + 1)] * 2):
                with self.assertRaisesRegex(ValueError, "ids in a sequence, the plan takes 1 to"):
                    engine.logits(wrong)
        with self.model().plan(1, SEQUENCE, forward_only=True, search="quick") as plan, plan.engine(weights=weights) as engine:
            self.assertEqual(memoryview(engine.logits(tokens[1][:3])).shape, (1, 3, self.vocabulary))

    # ---- what went wrong ----

    def test_a_scan_names_where_a_broken_number_comes_from(self):
        with self.plan() as plan, plan.engine() as engine:
            rows, columns = plan.parameters["h.1.mlp.c_fc.weight"].shape
            huge = memoryview(array("f", [3e38] * (rows * columns))).cast("B").cast("f", (rows, columns))
            engine.put("h.1.mlp.c_fc.weight", huge)
            before = engine.hash()
            result = engine.step(*self.batch(0), RATE)
            self.assertFalse(result.finite)
            self.assertIn("h.1.mlp.c_fc", engine.scan(*self.batch(0), result))
            self.assertEqual(engine.hash(), before)

    def test_a_plan_for_a_gpu_has_its_kernels_and_its_memory(self):
        def describe(name, out_summary):
            summary = out_summary._obj
            summary.is_gpu, summary.memory_bytes, summary.kernel_path = 1, 64 << 20, b"cuda: played"
            return 0

        host = cohobate.device()
        self.assertEqual((host.is_gpu, host.kernel_path), (0, cohobate.kernel_path()))
        with self.assertRaisesRegex(cohobate.Error, "CUDA|no such"):
            self.plan(device="cuda:99")
        library = _library.library()
        self.addCleanup(setattr, library, "coh_device_summarize", library.coh_device_summarize)
        library.coh_device_summarize = describe
        with self.plan() as usual, self.plan(device="cuda:0") as plan:
            self.assertEqual(plan.device, "cuda:0")
            self.assertNotEqual(plan.summary.numeric_fingerprint, usual.summary.numeric_fingerprint)
            self.assertEqual(plan.summary.peak_bytes, usual.summary.peak_bytes)
        with self.assertRaises(cohobate.Refusal) as raised:
            cohobate.Model("gpt2-nano").plan(BATCH, SEQUENCE, device="cuda:0", search="quick")
        self.assertEqual(raised.exception.given_bytes, 64 << 20)

    def test_facts_of_engine_and_plan_are_read(self):
        with self.plan() as plan, plan.engine() as engine:
            self.assertEqual(engine.facts.kernel_path, cohobate.kernel_path())
            self.assertEqual(engine.facts.arena_bytes["device"], plan.summary.peak_bytes["device"])
            self.assertEqual(sum(row.bytes for row in engine.ledger if (row.tier, row.owner) == ("device", "arena")),
                             plan.summary.peak_bytes["device"], engine.ledger)
            operators = {row.name: row for row in plan.operators}
            self.assertEqual((operators["wte"].kind, operators["wte"].parameters), ("cohobate.embedding", "device"))
            plan.write_program(self.path("program"))
            self.assertGreater(os.path.getsize(self.path("program")), 1000)
        self.assertIn("gpt2-pico", cohobate.presets())
        self.assertIn("a100-40g", cohobate.datasheets())


class Extension(PackageTest):
    """The example's shared object. One process registers it once, so this is one test."""

    def test_a_model_and_an_optimizer_of_a_shared_object_train_as_by_the_program(self):
        with self.assertRaisesRegex(cohobate.Error, "does not exist: build it first"):
            cohobate.load_extension(self.path("libmine.so"))
        with self.assertRaisesRegex(cohobate.Error, "cannot be loaded"):
            cohobate.load_extension(self.write("text.so", "text"))
        with self.assertRaisesRegex(cohobate.Error, "exports no extension"):
            cohobate.load_extension(os.environ["COHOBATE_LIBRARY"])
        with self.assertRaisesRegex(cohobate.Error, "neither a preset"):
            cohobate.Model("mine-gated")
        library = self.path("libmine.so")
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=c17", "-O2", "-fPIC", "-shared",
                        f"-I{ROOT / 'include'}", ROOT / "examples" / "own_extension" / "mine.c", "-lm", "-o", library],
                       check=True)
        for _ in range(2):
            extension = cohobate.load_extension(library)
        self.assertEqual((extension.name, extension.models, extension.optimizers), ("mine", ["mine-gated"], ["mine_momentum"]))
        self.assertIn("mine_momentum", cohobate.optimizers())
        model = cohobate.Model("mine-gated", vocabulary=self.vocabulary)
        with model.plan(BATCH, SEQUENCE, micro_batch=2, search="quick", threads=2, optimizer="mine_momentum") as plan:
            with plan.engine() as engine:
                self.steps(engine, 0, 1)
                found = hash_of(engine)
                engine.save(self.path("checkpoint"))
        done = self.succeeds("train", "mine-gated", "--kinds", library, "--optimizer", "mine_momentum", "--data", self.text,
                             *SAME, "--steps", 2, "--save", "none")
        self.assertEqual(found, self.says_hash(done))
        self.assertEqual(cohobate.Model(self.path("checkpoint")).note(), model.note())


if __name__ == "__main__":
    unittest.main()
