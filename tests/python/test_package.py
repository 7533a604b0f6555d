"""The Python package against the command line program: the same bits, checkpoints that the program reads, refusals as data.

Run as `test_package.py PATH-OF-COHOBATE`. Next: package_test.py, the base; test_objects.py, what owns memory."""
import json
import os
import pathlib
import re
import unittest
from array import array

from package_test import BATCH, RATE, ROOT, SEQUENCE, SIZES, PackageTest, cohobate, hash_of
import model_folder  # noqa: E402
from cohobate import _library  # noqa: E402
from program import SHORT  # noqa: E402


def some(names):
    """In short an eighth of them: each one that is fetched from a drive brings all."""
    return list(names)[::8] if SHORT else list(names)


class Package(PackageTest):
    # ---- bits ----

    def test_a_streamed_loop_in_python_ends_with_the_hash_of_the_program_in_memory(self):
        with self.model().plan(BATCH, SEQUENCE, device_memory="64MiB", disk=self.folder, **SIZES) as plan:
            self.assertGreater(plan.summary.link_bytes["read"], 0)
            self.assertLessEqual(plan.summary.peak_bytes["device"], 64 << 20)
            engine = plan.engine()
            losses = self.steps(engine, 0, 1, 2)
            self.assertTrue(all(0 < loss < 8 for loss in losses), losses)
            self.assertEqual(hash_of(engine), self.program_hash(3, "--save", "none"))

    def test_two_folders_share_the_far_tier(self):
        folders = [self.path("first"), self.path("second")]
        hashes = []
        for disk in (self.folder, folders, folders[:1]):
            for folder in folders:
                os.makedirs(folder, exist_ok=True)
            with self.model().plan(BATCH, SEQUENCE, device_memory="64MiB", disk=disk, **SIZES) as plan, plan.engine() as engine:
                self.steps(engine, 0)
                self.assertGreater(plan.summary.link_bytes["read"], 0)
                hashes.append(engine.hash())
        self.assertEqual(len(set(hashes)), 1)
        with self.assertRaisesRegex(cohobate.Error, "are one folder"):
            self.model().plan(BATCH, SEQUENCE, device_memory="64MiB", disk=folders[:1] * 2, **SIZES)

    def test_two_steps_in_flight_and_ids_of_any_kind_give_the_same_bits(self):
        tokens, targets = zip(*map(self.batch, range(2)))
        lists = [memoryview(each).tolist() for each in tokens + targets]
        wide = [array("q", sum(each, [])) for each in lists]
        hashes = set()
        for of in (tokens + targets, lists, wide):
            with self.model().plan(BATCH, SEQUENCE, **SIZES) as plan, plan.engine() as engine:
                for step in range(2):
                    engine.submit(of[step], of[2 + step], RATE)
                self.assertEqual([engine.wait().step, engine.wait().step], [0, 1])
                hashes.add(hash_of(engine))
        self.assertEqual(len(hashes), 1)

    def test_a_folder_of_another_program_is_trained_as_the_program_trains_it(self):
        model_folder.make(self.path("model"), "gpt2")
        with cohobate.Model(self.path("model")).plan(BATCH, SEQUENCE, **SIZES) as plan, plan.engine() as engine:
            self.steps(engine, 0, 1)
            self.assertEqual(hash_of(engine), self.program_hash(2, "--save", "none", model=self.path("model")))

    def test_a_loaded_checkpoint_continues_bit_for_bit(self):
        with self.model().plan(BATCH, SEQUENCE, **SIZES) as plan:
            with plan.engine() as engine:
                self.steps(engine, 0)
                engine.save(self.path("checkpoint"), purpose="a test")
                self.steps(engine, 1)
                whole = hash_of(engine)
            with plan.engine(seed=1) as engine:
                self.assertFalse(engine.load(self.path("checkpoint")))
                self.assertEqual(engine.step_count, 1)
                self.steps(engine, 1)
                self.assertEqual(hash_of(engine), whole)

    # ---- what comes back ----

    def test_parameters_are_the_numbers_of_the_checkpoint(self):
        with self.model().plan(BATCH, SEQUENCE, **SIZES) as plan, plan.engine() as engine:
            self.steps(engine, 0)
            engine.save(self.path("checkpoint"))
            values = b"".join(memoryview(found).tobytes() for found in engine.parameters().values())
            self.assertEqual(memoryview(engine.parameter("wte.weight")).shape, (self.vocabulary, 384))
            with self.assertRaises(KeyError):
                engine.parameter("wte")
        self.assertEqual(values, pathlib.Path(self.path("checkpoint", "work.bin")).read_bytes())

    def test_gradients_in_and_out_of_memory_have_the_norm_of_the_step(self):
        streamed = {"device_memory": "64MiB", "disk": self.folder}
        found = []
        for where in ({}, streamed):
            with self.model().plan(BATCH, SEQUENCE, **where, **SIZES) as plan, plan.engine() as engine:
                result = engine.step(*self.batch(0), RATE)
                found.append({name: bytes(memoryview(values)) for name, values in engine.gradients().items()})
                self.assertEqual(set(found[-1]), set(plan.parameters))
                for name in some(plan.parameters):
                    self.assertEqual(bytes(memoryview(engine.gradient(name))), found[-1][name], name)
                squares = sum(number * number for one in found[0].values() for number in memoryview(one).cast("f"))
                self.assertAlmostEqual(squares ** 0.5, result.grad_norm, delta=1e-5 * result.grad_norm)
        self.assertEqual(found[0], found[1])

    def test_a_gradient_stays_until_the_next_step_whatever_is_called_in_between(self):
        def gradients():
            return {name: bytes(memoryview(values)) for name, values in engine.gradients().items()}

        half = [each[:2] for each in self.batch(1)]
        for where in ({}, {"device_memory": "64MiB", "disk": self.folder}):
            with self.model().plan(BATCH, SEQUENCE, **where, **SIZES) as plan, plan.engine() as engine:
                self.steps(engine, 0, 1)
                before = gradients()
                engine.parameters()
                engine.evaluate(*half)
                engine.hash()
                halves = memoryview(array("f", [0.5] * (self.vocabulary * 384))).cast("B")
                engine.put("wte.weight", halves.cast("f", (self.vocabulary, 384)))
                engine.save(self.path(f"checkpoint-{len(where)}"))
                self.assertEqual(gradients(), before)
                self.steps(engine, 2)
                self.assertNotEqual(gradients(), before)

    def test_a_parameter_is_written_between_two_steps_in_and_out_of_memory(self):
        hashes, name = [], "h.3.mlp.c_fc.weight"
        for where in ({}, {"device_memory": "64MiB", "disk": self.folder}):
            with self.model().plan(BATCH, SEQUENCE, **where, **SIZES) as plan, plan.engine() as engine:
                self.steps(engine, 0)
                before = {each: bytes(memoryview(values)) for each, values in engine.parameters().items()}
                rows, columns = plan.parameters[name].shape
                halves = memoryview(array("f", [0.5] * (rows * columns))).cast("B").cast("f", (rows, columns))
                engine.put(name, halves)
                before[name] = bytes(halves)
                self.assertEqual({each: bytes(memoryview(values)) for each, values in engine.parameters().items()}, before)
                self.assertEqual(bytes(memoryview(engine.parameter(name))), before[name])
                with self.assertRaises(KeyError):
                    engine.parameters([name, "wte"])
                self.steps(engine, 1)
                hashes.append(engine.hash())
                for wrong in (array("f", [0.5]), array("d", [0.5])):
                    with self.assertRaisesRegex(ValueError, "takes contiguous float32 numbers of shape"):
                        engine.put(name, wrong)
                halves[0, 0] = float("inf")
                with self.assertRaisesRegex(cohobate.Error, "value for element 0 of parameter 'h.3.mlp.c_fc.weight' is inf"):
                    engine.put(name, halves)
        self.assertEqual(*hashes)

    def test_progress_is_told_of_each_long_operation(self):
        told = {}
        with self.model().plan(BATCH, SEQUENCE, **SIZES) as plan:
            with plan.engine(progress=lambda what, done, total: told.setdefault(what, []).append((done, total))) as engine:
                engine.save(self.path("checkpoint"))
                engine.load(self.path("checkpoint"))
        self.assertLessEqual({"init", "save", "load"}, told.keys())
        for calls in told.values():
            self.assertLessEqual(len(calls), 101)
            self.assertEqual(calls, sorted(calls))
            self.assertEqual(*calls[-1])

    def test_what_progress_raises_is_raised_after_the_operation(self):
        class Enough(BaseException):
            pass

        def tell(what, done, total):
            told.append(what)
            if what in wanted:
                raise Enough

        told, wanted = [], {"init"}
        with self.model().plan(BATCH, SEQUENCE, **SIZES) as plan:
            with self.assertRaises(Enough):
                plan.engine(progress=tell)
            with self.assertRaisesRegex(TypeError, "5 cannot be called"):
                plan.engine(progress=5)
            wanted = {"save"}
            with plan.engine(progress=tell) as engine:
                told.clear()
                with self.assertRaises(Enough):
                    engine.save(self.path("checkpoint"))
                self.assertEqual(told.count("save"), 1)
                wanted = {}
                before = engine.hash()
                engine.load(self.path("checkpoint"))  # it is whole
                self.assertEqual(engine.hash(), before)

    def test_the_program_evaluates_a_saved_checkpoint_to_the_same_loss(self):
        text = self.write("held.txt", "line 42: the held out one"[:SEQUENCE + 1])
        ids = list(pathlib.Path(text).read_bytes())
        with self.model().plan(1, SEQUENCE, search="quick", threads=2) as plan, plan.engine() as engine:
            for step in range(2):
                engine.step(*self.data.batch(step, 1, SEQUENCE), RATE)
            loss = engine.evaluate(ids[:-1], ids[1:])
            engine.save(self.path("checkpoint"))
        of = ["--data", text, "--sequence", SEQUENCE, "--dtype", "f32", "--threads", 2]
        done = self.succeeds("eval", self.path("checkpoint"), *of, "--tokenizer", "bytes", "--json")
        self.assertAlmostEqual(done.json["loss"], loss, delta=1e-6 * loss)
        self.fails(2, "eval", self.path("checkpoint"), *of, says="it does not name its tokenizer: give --tokenizer bytes|PATH")
        self.fails(4, "train", "--resume", self.path("checkpoint"), says="no training note")
        again = f"a new run begins with its weights by cohobate train {self.path('checkpoint')} --data FILE"
        self.fails(4, "train", "--resume", self.path("checkpoint"), says=again)

    def test_targets_that_do_not_count_are_left_out_of_the_mean(self):
        tokens, targets = (memoryview(each).tolist() for each in self.batch(0))
        half = [row[:8] + [-1] * 8 for row in targets]
        with self.model().plan(BATCH, SEQUENCE, **SIZES) as plan:
            short = self.model().plan(BATCH, 8, **SIZES)
            with plan.engine() as engine, short, short.engine() as other:
                loss = engine.step(tokens, half, RATE).loss
                alone = other.step([row[:8] for row in tokens], [row[:8] for row in targets], RATE).loss
            self.assertAlmostEqual(loss, alone, delta=1e-5)

    def test_adapters_are_trained_and_everything_else_is_not(self):
        with self.model(lora=2, lora_targets="c_attn").plan(BATCH, SEQUENCE, **SIZES) as plan, plan.engine() as engine:
            frozen = {name: facts.is_frozen for name, facts in plan.parameters.items()}
            self.assertEqual({name for name, is_frozen in frozen.items() if not is_frozen},
                             {name for name in frozen if ".lora_" in name})
            before = {name: bytes(memoryview(values)) for name, values in engine.parameters().items()}
            self.steps(engine, 0, 1)
            after = engine.parameters()
            self.assertEqual(set(engine.gradients()), {name for name in frozen if not frozen[name]})
            with self.assertRaisesRegex(cohobate.Error, "is not trained"):
                engine.gradients([next(name for name in frozen if frozen[name])])
            changed = {name for name in frozen if bytes(memoryview(after[name])) != before[name]}
            self.assertEqual(changed, {name for name in frozen if ".lora_" in name})

    def test_operators_next_to_adapters_are_trained_in_full(self):
        model = self.model(lora=2, lora_targets="c_attn", lora_also="wte,ln_f")
        self.assertEqual(model.note()["adapters"]["also"], "wte,ln_f")
        with model.plan(BATCH, SEQUENCE, **SIZES) as plan:
            trained = {name for name, facts in plan.parameters.items() if not facts.is_frozen}
            self.assertEqual({name for name in trained if ".lora_" not in name}, {"wte.weight", "ln_f.weight", "ln_f.bias"})
            with plan.engine() as engine:
                self.steps(engine, 0, 1)
                self.assertEqual(set(engine.gradients()), trained)
        with self.assertRaisesRegex(cohobate.Error, "c_attn has an adapter"):
            self.model(lora=2, lora_also="c_attn")

    # ---- refusals and mistakes ----

    def test_a_refusal_has_the_figures_and_its_remedy_helps(self):
        with self.assertRaises(cohobate.Refusal) as raised:
            self.model().plan(BATCH, SEQUENCE, device_memory="32MiB", **SIZES)
        refusal = raised.exception
        self.assertEqual((refusal.tier, refusal.exit_code, refusal.status), ("device", 3, "COH_ERR_FULL"))
        self.assertEqual((refusal.given_bytes, refusal.short_bytes), (32 << 20, refusal.needed_bytes - (32 << 20)))
        self.assertIn("raise device memory", str(refusal))
        kinds = {change.kind: change for change in refusal.changes}
        self.model().plan(BATCH, SEQUENCE, device_memory=kinds["raise"].bytes, **SIZES).close()
        self.model().plan(BATCH, SEQUENCE, device_memory="32MiB", disk=self.folder, **SIZES).close()

    def test_a_dtype_that_models_do_not_have_is_named(self):
        with self.assertRaisesRegex(ValueError, "'f16' is not one of f32, bf16"):
            cohobate.Model("gpt2-nano", dtype="f16")

    def test_mistakes_are_exceptions_with_a_sentence(self):
        with self.assertRaisesRegex(cohobate.Error, "neither a preset") as raised:
            cohobate.Model("gpt-nothing")
        self.assertEqual((raised.exception.status, raised.exception.exit_code), ("COH_ERR_ARGUMENT", 2))
        with self.assertRaisesRegex(cohobate.Error, "positions"):
            self.model().plan(BATCH, 4096, **SIZES)
        for wrong, says in (({"optimizer": "x" * 16}, "an optimizer's name has 16 bytes: at most 15"),
                            ({"optimizer_for": {"x" * 256: "sgd"}}, "an optimizer's pattern has 256 bytes: at most 255"),
                            ({"recompute": "some"}, "recompute 'some' is not one of auto, none, all")):
            with self.assertRaisesRegex(ValueError, says):
                self.model().plan(BATCH, SEQUENCE, **{**SIZES, **wrong})
        with self.assertRaisesRegex(ValueError, "freeze has 300 bytes"):
            self.model(freeze="x" * 300)
        for size in (-1, 2**64):
            with self.assertRaisesRegex(ValueError, f"{re.escape(str(size))} bytes"):
                self.model().plan(BATCH, SEQUENCE, device_memory=size, **SIZES)
        for batch in (0, -4):
            with self.assertRaisesRegex(ValueError, f"batch is {batch}: 1 to"):
                self.model().plan(batch, SEQUENCE)
        with self.model().plan(BATCH, SEQUENCE, **SIZES) as plan:
            engine = plan.engine()
            with self.assertRaisesRegex(ValueError, "tokens has 3 ids, the plan's step takes 64"):
                engine.step([1, 2, 3], [1, 2, 3], RATE)
            turned = memoryview(array("i", [1] * 64)).cast("B").cast("i", (SEQUENCE, BATCH))
            with self.assertRaisesRegex(ValueError, r"targets has the shape .* takes \(.*\): \[batch, sequence\]"):
                engine.step([1] * 64, turned, RATE)
            rows, transposed = [[1] * SEQUENCE] * BATCH, [[1] * BATCH] * SEQUENCE
            for wrong in (transposed, [[1] * (SEQUENCE - 1), *rows[2:], [1] * (SEQUENCE + 1)], [rows]):
                with self.assertRaisesRegex(ValueError, r"targets has \d+ rows of .*: \[batch, sequence\]"):
                    engine.step(rows, wrong, RATE)
            of_arrays = [array("i", row) for row in rows]
            self.assertEqual(engine.evaluate(of_arrays[:plan.micro_batch], of_arrays[:plan.micro_batch]),
                             engine.evaluate(rows[:plan.micro_batch], rows[:plan.micro_batch]))
            with self.assertRaisesRegex(cohobate.Error, "999"):
                engine.step([999] * 64, [1] * 64, RATE)
            with self.assertRaisesRegex(ValueError, f"tokens has the id {2**40}: -2147483648 to 2147483647"):
                engine.step([2**40] * 64, [1] * 64, RATE)
            for wrong, kind in ((array("d", [1] * 64), "float"), ([1] * 63 + [1.5], "float"), ([1, None] * 32, "NoneType")):
                with self.assertRaisesRegex(TypeError, f"^tokens takes integers, not {kind}$"):
                    engine.step(wrong, [1] * 64, RATE)

    def test_a_value_that_nobody_means_is_not_the_default(self):
        with open(self.path("odd.txt"), "w", encoding="utf-8") as text:
            text.write("some text " * 40)
        data = self.path("odd.tokens")
        cohobate.tokenize("bytes", self.path("odd.txt"), data)
        inferring = {"forward_only": True, "micro_batch": BATCH - 1}
        with cohobate.TokenFile(data) as ids, self.model().plan(BATCH, SEQUENCE, **SIZES) as plan:
            for says, wrong in (
                    *((f"micro_batch is {n}: 1 to {BATCH}; None: the usual one",
                       lambda n=n: self.model().plan(BATCH, SEQUENCE, micro_batch=n)) for n in (0, -1, BATCH + 1, 2**32 + 1)),
                    *((f"threads is {n}: 1 to 1024; None: one for each core",
                       lambda n=n: self.model().plan(BATCH, SEQUENCE, threads=n)) for n in (0, -1, 1025, 2**32 + 1)),
                    *((f"sequence is {n}: 1 to", lambda n=n: self.model().plan(BATCH, n)) for n in (0, -1, 2**63)),
                    ("one micro-batch: leave it out", lambda: self.model().plan(BATCH, SEQUENCE, **inferring)),
                    ("an optimizer's name is empty", lambda: self.model().plan(BATCH, SEQUENCE, optimizer="")),
                    ("disk has an empty path", lambda: self.model().plan(BATCH, SEQUENCE, disk="")),
                    *((f"lora is {n}: 0 to 2147483647; 0: no adapters", lambda n=n: self.model(lora=n)) for n in (-1, 2**32, 2**32 + 4)),
                    ("need adapters: give lora", lambda: self.model(lora_targets="c_attn")),
                    ("need adapters: give lora", lambda: self.model(lora_also="wte")),
                    ("need adapters: give lora", lambda: self.model(lora_alpha=4.0)),
                    *((f"dropout is {x}: a probability", lambda x=x: self.model(dropout=x)) for x in (-0.5, 1.0, float("nan"))),
                    ("lora_dropout is 1.0: a probability", lambda: self.model(lora=2, lora_dropout=1.0)),
                    ("lora_dropout needs adapters", lambda: self.model(lora_dropout=0.5)),
                    *((f"batch is {n}: 1 to", lambda n=n: self.model().plan(n, SEQUENCE, **SIZES)) for n in (2**31, 2**64 + 4, 4 - 2**64)),
                    *((f"vocabulary is {n}: 0 to", lambda n=n: cohobate.Model("gpt2-nano", n)) for n in (-1, 2**64 + 257)),
                    *((f"batch is {n}: 1 to", lambda n=n: ids.batch(0, n, SEQUENCE)) for n in (0, -1)),
                    (f"batch . sequence is {2**60}: 1 to", lambda: ids.batch(0, 2**30, 2**30)),
                    (f"batch . sequence is {2**60}: 1 to", lambda: ids.stretch(0, 2**30, 2**30)),
                    (f"step is {2**62}: 0 to {2**62 - 1}", lambda: ids.batch(2**62, 4, SEQUENCE)),  # window 0 modulo 2**64
                    *((f"id_bytes is {n}: 0 to 4", lambda n=n: cohobate.TokenFile(data, id_bytes=n)) for n in (-1, 2**32 + 2)),
                    (f"ids has the id {2**32}: ", lambda: cohobate.Tokenizer("bytes").decode([2**32])),
                    (f"step_count is {2**64}: 0 to", lambda: self.stepping(plan, 2**64)),
                    *((f"batch is {n}: 1 to", lambda n=n: ids.stretch(0, n, SEQUENCE)) for n in (0, -1)),
                    *((f"sequence is {n}: 1 to", lambda n=n: ids.batch(0, BATCH, n)) for n in (0, -1, 2**63)),
                    *((f"sequence is {n}: 1 to", lambda n=n: ids.window_count(n)) for n in (0, -1, 2**64 + 4)),
                    ("sequence is 0: 1 to", lambda: ids.stretch(0, BATCH, 0)),
                    ("begin is -1: 0 to", lambda: ids.stretch(-1, BATCH, SEQUENCE)),
                    ("vocabulary is -1: 0 to", lambda: cohobate.TokenFile(data, vocabulary=-1)),
                    *((f"{name} is -1: 0 to", lambda name=name: cohobate.tokenize("bytes", self.path("odd.txt"), data, **{name: -1}))
                      for name in ("window", "seed", "vocabulary", "threads"))):
                with self.subTest(says=says), self.assertRaisesRegex(ValueError, says):
                    wrong()
            with self.assertRaisesRegex(cohobate.Error, "no device is called ''"):
                plan.engine(device="")

    def stepping(self, plan, step_count):
        with plan.engine() as engine:
            engine.step_count = step_count
            engine.step(*self.batch(0), RATE)

    def test_numbers_of_other_packages_are_sizes_too(self):
        class Number:
            def __init__(self, value):
                self.value = value

            def __index__(self):
                return self.value

        batch, sequence = Number(BATCH), Number(SEQUENCE)
        with self.model().plan(batch, sequence, **{**SIZES, "threads": Number(2), "micro_batch": Number(2)}) as plan:
            self.assertEqual((plan.batch, plan.sequence, plan.micro_batch, plan.threads), (BATCH, SEQUENCE, 2, 2))
        for found, same in ((self.data.batch(Number(3), batch, sequence, Number(5)), self.data.batch(3, BATCH, SEQUENCE, 5)),
                            (self.data.stretch(Number(3), batch, sequence), self.data.stretch(3, BATCH, SEQUENCE))):
            self.assertEqual([memoryview(each).tolist() for each in found], [memoryview(each).tolist() for each in same])
        self.assertEqual(self.data.window_count(sequence), self.data.window_count(SEQUENCE))
        self.assertEqual(cohobate.Model("gpt2-nano", Number(257)).size.vocabulary, 257)

    def test_a_batch_of_a_file_without_windows_takes_no_memory(self):
        with self.assertRaisesRegex(cohobate.Error, "no window of 2147483647 tokens"):
            self.data.batch(0, 1, 2**31 - 1)

    def test_the_program_simulates_and_explains_a_plan_of_python(self):
        flags = ["--batch", BATCH, "--micro-batch", 2, "--sequence", SEQUENCE, "--dtype", "f32", "--search", "quick",
                 "--threads", 2, "--device-memory", "4MiB", "--calibration", "none"]
        for more, model, options in (
                ([], {}, {}), (["--dropout", 0.25, "--clip-mode", "previous"], {"dropout": 0.25}, {"exact_clip": False}),
                (["--lora", 2, "--lora-dropout", 0.5, "--optimizer", "lion"], {"lora": 2, "lora_dropout": 0.5}, {"optimizer": "lion"}),
                (["--profile", "rtx-4090", "--device-memory", "64MiB"], {}, {"profile": "rtx-4090", "device_memory": "64MiB"})):
            options = {**SIZES, "device_memory": "4MiB", "disk": self.folder, **options}
            with self.subTest(more=more), cohobate.Model("gpt2-pico", 257, **model).plan(BATCH, SEQUENCE, **options) as plan:
                mine, theirs = self.path("mine.json"), self.path("theirs.json")
                plan.write(mine)
                self.succeeds("plan", "gpt2-pico", "--tokenizer", "bytes", *flags, "--disk", self.folder, *more, "-o", theirs)
                found = [json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in (mine, theirs)]
                self.assertEqual(*(json.loads(file["note"]) for file in found))
                done = self.succeeds("simulate", mine, "--calibration", "none", "--json").json
                peaks, made = plan.summary.peak_bytes, done["made"]["step_seconds"]
                self.assertEqual(done["peak_bytes"], peaks)
                self.assertAlmostEqual(made, plan.summary.step_ns * 1e-9, delta=1e-9)
                self.succeeds("explain", mine, "h.0.mlp.c_fc", "--calibration", "none")
        with cohobate.Model("gpt2-pico", 257).plan(2, SEQUENCE, forward_only=True, search="quick") as plan:
            plan.write(self.path("forward.json"))
        self.fails(4, "simulate", self.path("forward.json"), says="does not say which model it is for")

    def test_a_file_that_is_not_ours_is_never_replaced(self):
        notes = self.path("notes.txt")
        with self.model().plan(BATCH, SEQUENCE, **SIZES) as plan:
            for write, kind in ((plan.write, "plan"), (plan.write_program, "program listing")):
                for text in ("notes", "{}", "program", '{"format": "cohobate pins"}'):
                    with open(notes, "w", encoding="utf-8") as file:
                        file.write(text)
                    with self.assertRaisesRegex(cohobate.Error, f"notes.txt is there already and is no {kind}: remove it"):
                        write(notes)
                    with open(notes, encoding="utf-8") as file:
                        self.assertEqual(file.read(), text)
                os.truncate(notes, 0)
                for _ in range(2):  # an empty one is, and so is one of ours
                    write(notes)
                os.remove(notes)
                os.mkfifo(notes)
                with self.assertRaisesRegex(cohobate.Error, "is no regular file: give another path"):
                    write(notes)
                os.remove(notes)

    def test_no_argument_is_cut_or_taken_for_another_one(self):
        data = self.path("cut.tokens")
        with open(self.path("cut.txt"), "w", encoding="utf-8") as text:
            text.write("some text " * 40)
        cohobate.tokenize("bytes", self.path("cut.txt"), data)
        with cohobate.TokenFile(data) as ids, cohobate.Tokenizer("bytes") as tokenizer, \
                self.model().plan(BATCH, SEQUENCE, **SIZES) as plan, plan.engine() as engine:
            for kind, says, wrong in (
                    (ValueError, "path has a NUL", lambda: cohobate.Model("gpt2-nano\0x")),
                    (ValueError, "path has a NUL", lambda: engine.save(self.path("cut\0x"))),
                    (ValueError, "freeze has a NUL", lambda: self.model(freeze="wte\0x")),
                    (ValueError, "a pin has a NUL", lambda: self.model().plan(BATCH, SEQUENCE, pins=["wte=disk\0x"])),
                    (ValueError, "own has a NUL", lambda: plan.engine(own="wte*\0x")),
                    (ValueError, "token has a NUL", lambda: tokenizer.token_id("a\0")),
                    (ValueError, "seed is -1", lambda: plan.engine(seed=-1)),
                    (ValueError, "step is -1", lambda: ids.batch(-1, BATCH, SEQUENCE)),
                    (ValueError, "count is -1", lambda: ids.read(0, -1)),
                    (cohobate.Error, "beyond the", lambda: ids.read(0, 2**60)),
                    (ValueError, "warmup_steps is -4", lambda: cohobate.Schedule(1e-3, 4, warmup_steps=-4)),
                    (TypeError, "integer", lambda: cohobate.Model("gpt2-nano", vocabulary=257.0)),
                    (TypeError, "integer", lambda: plan.engine(seed="1")),
                    (TypeError, "a list of names", lambda: engine.parameters("wte.weight")),
                    (TypeError, "bytes-like", lambda: tokenizer.encode(4)),
                    (TypeError, "device is a text", lambda: cohobate.device(None)),
                    (TypeError, "pattern is a text", lambda: plan.engine(groups={3: {"rate_factor": 1.0}})),
                    (TypeError, "PathLike", lambda: self.model().plan(BATCH, SEQUENCE, disk=5, **SIZES))):
                with self.subTest(says=says), self.assertRaisesRegex(kind, says):
                    wrong()

    def test_an_interrupt_while_a_graph_is_made_ends_the_plan(self):
        def interrupted(*_):
            raise KeyboardInterrupt

        library = _library.library()
        self.addCleanup(setattr, library, "coh_model_train_graph", library.coh_model_train_graph)
        library.coh_model_train_graph = interrupted
        with self.assertRaises(KeyboardInterrupt):
            self.model().plan(BATCH, SEQUENCE, **SIZES)

    def test_an_interrupt_while_another_micro_batch_is_compared_ends_the_plan(self):
        library = _library.library()
        made, make = [], library.coh_model_train_graph

        def interrupted(model, sequences, *more):
            made.append(sequences)
            if sequences != 1:
                raise KeyboardInterrupt
            return make(model, sequences, *more)

        self.addCleanup(setattr, library, "coh_model_train_graph", make)
        library.coh_model_train_graph = interrupted
        with self.assertRaises(KeyboardInterrupt):
            self.model().plan(BATCH, SEQUENCE, **{**SIZES, "micro_batch": 1}, may_change_micro_batch=True)
        self.assertEqual(made, [1, 2])

    def test_package_and_library_have_one_version(self):
        said = re.search(r'^version = "(.*)"$', (ROOT / "python" / "pyproject.toml").read_text(encoding="utf-8"), re.M)[1]
        self.assertEqual(cohobate.version(), said)

    def test_text_goes_through_a_tokenizer_and_back(self):
        with cohobate.Tokenizer("bytes") as tokenizer:
            self.assertEqual(list(tokenizer.encode("né")), [110, 195, 169])
            self.assertEqual(tokenizer.decode(tokenizer.encode(b"\xff\0x")), b"\xff\0x")
            self.assertEqual((list(tokenizer.encode("")), tokenizer.decode([])), ([], b""))
        self.assertEqual(self.data.facts.token_count, os.path.getsize(self.text))
        self.assertEqual(self.data.window_count(SEQUENCE), (os.path.getsize(self.text) - 1) // SEQUENCE)


if __name__ == "__main__":
    unittest.main()
