"""Objects that own memory of the library: closed once, never used after that, never copied. Run as
`test_objects.py PATH-OF-COHOBATE`."""
import contextlib
import copy
import ctypes
import functools
import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import types
import unittest
from array import array

from package_test import BATCH, RATE, ROOT, SEQUENCE, SIZES, PackageTest, cohobate
import model_folder  # noqa: E402
from cohobate import _library, _structs, _values  # noqa: E402

KEPT = []
LEFT_OPEN = """
import sys, threading
sys.path.insert(0, {python!r})
import cohobate
plan = cohobate.Model("gpt2-pico", vocabulary=257).plan({batch}, {sequence}, **{sizes!r})
engine = plan.engine()
plan.mine = engine
engine.other = [plan]
del engine
"""


class Objects(PackageTest):
    preset = "gpt2-pico"

    def objects(self):
        plan = self.plan()
        self.addCleanup(plan.close)
        return {"tokenizer": cohobate.Tokenizer("bytes"), "token file": cohobate.TokenFile(self.data_path()),
                "engine": plan.engine(), "plan": plan, "checkpoint": self.checkpoint(plan)}

    def checkpoint(self, plan):
        path = self.path(f"checkpoint-{id(plan)}")
        with plan.engine() as engine:
            engine.save(path, training=engine.training_note(cohobate.Schedule(1e-3, 4)))
        return cohobate.Checkpoint(path)

    def data_path(self):
        return self.path("corpus.tokens")

    def uses(self):
        """For each object everything that needs its pointer."""
        tokens, targets = self.batch(0)
        result = types.SimpleNamespace(step=0, applied_count=0)
        half = self.data.batch(0, 2, SEQUENCE)
        zeros = memoryview(bytes(4 * self.vocabulary * 96)).cast("f", (self.vocabulary, 96))
        return {
            "tokenizer": [lambda it: it.vocabulary, lambda it: it.end_of_text, lambda it: it.begin_of_text,
                          lambda it: it.around, lambda it: it.identity, lambda it: it.token_id("a"),
                          lambda it: it.encode("a"), lambda it: it.decode([1]), lambda it: cohobate.tokenize(it, self.text, self.path("again"))],
            "token file": [lambda it: it.facts, lambda it: it.window_count(SEQUENCE),
                           lambda it: it.batch(0, BATCH, SEQUENCE), lambda it: next(it.batches(BATCH, SEQUENCE)),
                           lambda it: it.stretch(0, 2, SEQUENCE), lambda it: it.read(0, 1), lambda it: it.check(), lambda it: len(it)],
            "engine": [lambda it: it.submit(tokens, targets, 1e-3), lambda it: it.wait(),
                       lambda it: it.step(tokens, targets, 1e-3), lambda it: it.evaluate(*half), lambda it: it.logits(tokens),
                       lambda it: it.parameter("wte.weight"), lambda it: it.gradient("wte.weight"),
                       lambda it: it.parameters(), lambda it: it.gradients(), lambda it: it.put("wte.weight", zeros),
                       lambda it: it.state("wte.weight", "m"), lambda it: it.scan(tokens, targets, result),
                       lambda it: it.hash(), lambda it: it.save(self.path("new")), lambda it: it.load(self.path("new")),
                       lambda it: it.load_weights(self.path("new")), lambda it: it.save_wait(), lambda it: it.is_saving,
                       lambda it: it.facts, lambda it: it.ledger],
            "plan": [lambda it: it.summary, lambda it: it.parameters, lambda it: it.write(self.path("plan.json")),
                     lambda it: it.operators, lambda it: it.save_bytes, lambda it: it.save_frozen_bytes,
                     lambda it: it.write_program(self.path("program")),
                     lambda it: it.engine()],
            "checkpoint": [lambda it: it.facts, lambda it: it.note, lambda it: it.training, lambda it: it.tensors,
                           lambda it: it.read("wte.weight"), lambda it: it.check()],
        }

    def test_every_use_of_a_closed_object_is_the_same_error(self):
        objects, uses = self.objects(), self.uses()
        self.assertEqual(objects.keys(), uses.keys())
        for what, one in objects.items():
            one.close()
            one.close()
            for use in [*uses[what], lambda it: it.__enter__()]:
                with self.assertRaisesRegex(cohobate.Error, f"^this {what} was closed: ") as raised:
                    use(one)
                self.assertEqual(raised.exception.status, "COH_ERR_ARGUMENT")

    def test_uses_name_every_public_method_and_property_but_close(self):
        for what, one in self.objects().items():
            # the two others use no pointer of the object
            public = {name for name in dir(type(one)) if not name.startswith("_")} - {"close", "remove", "training_note"}
            used = {name for use in self.uses()[what] for name in use.__code__.co_names}
            self.assertLessEqual(public, used, what)

    def test_a_closed_plan_has_closed_its_engines(self):
        plan = self.plan()
        engines = [plan.engine() for _ in range(2)]
        plan.close()
        for engine in engines:
            with self.assertRaisesRegex(cohobate.Error, "this engine was closed"):
                engine.hash()
            engine.close()

    def test_a_with_block_closes_also_after_an_exception(self):
        for what, one in self.objects().items():
            with self.assertRaises(ZeroDivisionError):
                with one as entered:
                    self.assertIs(entered, one)
                    raise ZeroDivisionError
            with self.assertRaisesRegex(cohobate.Error, f"this {what} was closed"):
                self.uses()[what][0](one)

    def test_a_copy_or_a_pickle_of_an_owner_is_refused(self):
        for what, one in self.objects().items():
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, f"this {what} owns memory of the library"):
                    make(one)
            one.close()

    def test_a_model_and_errors_are_plain_data(self):
        model = self.model(dropout=0.25)
        with self.assertRaises(cohobate.Refusal) as raised:
            self.model().plan(BATCH, SEQUENCE, device_memory="1MiB", **SIZES)
        for make in (copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))):
            self.assertEqual(make(model).note(), model.note())
            make(model).plan(BATCH, SEQUENCE, **SIZES).close()
            other = make(raised.exception)
            self.assertEqual((type(other), str(other), vars(other)),
                             (cohobate.Refusal, str(raised.exception), vars(raised.exception)))

    def test_garbage_of_a_plan_and_its_engine_frees_the_engine_first(self):
        freed, library = [], _library.library()
        names = ("coh_engine_destroy", "coh_batch_plan_destroy")
        functions = {name: getattr(library, name) for name in names}
        for name in names:
            setattr(library, name, lambda pointer, name=name: (freed.append(name), functions[name](pointer)))
            self.addCleanup(setattr, library, name, functions[name])
        plan = self.plan()
        plan.mine = plan.engine()
        del plan
        gc.collect()
        self.assertEqual(freed, list(names))

    def test_an_engine_that_tells_its_progress_goes_with_its_last_reference(self):
        freed, library = [], _library.library()
        destroy = library.coh_engine_destroy
        library.coh_engine_destroy = lambda pointer: (freed.append(1), destroy(pointer))
        self.addCleanup(setattr, library, "coh_engine_destroy", destroy)
        gc.disable()
        self.addCleanup(gc.enable)
        with self.plan() as plan:
            engine = plan.engine(progress=lambda *_: None)
            del engine
            self.assertEqual(freed, [1])

    def test_an_engine_whose_weights_are_refused_is_freed_before_its_exception(self):
        freed, library = [], _library.library()
        destroy = library.coh_engine_destroy
        library.coh_engine_destroy = lambda pointer: (freed.append(1), destroy(pointer))
        self.addCleanup(setattr, library, "coh_engine_destroy", destroy)
        broken = memoryview(array("f", [float("nan")] * 96))
        with self.plan() as plan, self.assertRaisesRegex(cohobate.Error, "is nan"):
            try:
                plan.engine(weights={"ln_f.weight": broken})
            finally:
                self.assertEqual(freed, [1])

    def test_an_engine_that_is_used_while_it_tells_its_progress_is_an_error(self):
        tokens, targets = self.batch(0)
        for says, uses in {
                r"Engine\.[a-z_]+ was called while Engine\.save runs on the same engine": [
                    lambda: engine.hash(), lambda: engine.parameter("wte.weight"), lambda: engine.parameters(),
                    lambda: engine.submit(tokens, targets, 1e-3), lambda: engine.wait(), lambda: engine.save_wait(),
                    lambda: engine.evaluate(tokens, targets), lambda: engine.facts],
                "this engine is at work: close it after": [lambda: engine.close(), lambda: plan.close()]}.items():
            for use in uses:
                engine = None
                with self.plan() as plan, plan.engine(progress=lambda *_: engine and use()) as engine:
                    before = engine._handle.pointer.value
                    with self.assertRaisesRegex(cohobate.Error, says):
                        engine.save(self.path("checkpoint"))
                    self.assertEqual(engine._handle.pointer.value, before)
                cohobate.Checkpoint.remove(self.path("checkpoint"))  # it is whole

    def test_an_engine_that_another_thread_uses_is_neither_used_nor_closed(self):
        told, may_go_on, found = threading.Event(), threading.Event(), []

        def tell(operation, *_):
            if operation == "hash":
                told.set()
                may_go_on.wait(60)

        def use_beside():
            told.wait(60)
            for use in (engine.hash, engine.close, plan.close, lambda: found.append((engine.is_saving, len(engine.ledger) > 0))):
                try:
                    use()
                except cohobate.Error as error:
                    found.append(str(error))
            may_go_on.set()

        with self.plan() as plan, plan.engine(progress=tell) as engine:
            thread = threading.Thread(target=use_beside)
            thread.start()
            first = engine.hash()
            thread.join()
            self.assertEqual(found[3:], [(False, True)])
            for sentence, says in zip(found, ("one call at a time", "is at work", "is at work")):
                self.assertIn(says, sentence)
            self.assertEqual(engine.hash(), first)

    def test_an_object_that_another_thread_uses_is_not_closed(self):
        for what, one in self.objects().items():
            told, may_go_on = threading.Event(), threading.Event()
            thread = threading.Thread(target=lambda one=one: one._call(lambda _: (told.set(), may_go_on.wait(60))))
            thread.start()
            told.wait(60)
            pointer = one._handle.pointer.value
            with self.assertRaisesRegex(cohobate.Error, f"^this {what} is at work: close it after the call"):
                one.close()
            self.assertEqual(one._handle.pointer.value, pointer)
            may_go_on.set()
            thread.join()
            one.close()
            self.assertRaisesRegex(cohobate.Error, "was closed", lambda one=one: one._object)

    def test_a_plan_that_makes_an_engine_in_another_thread_is_not_closed(self):
        library, found = _library.library(), []
        create = library.coh_engine_create

        def close_beside(*arguments):
            thread = threading.Thread(target=lambda: found.append(self.error_of(plan.close)))
            thread.start()
            thread.join()
            return create(*arguments)

        self.addCleanup(setattr, library, "coh_engine_create", create)
        library.coh_engine_create = close_beside
        with self.plan() as plan, plan.engine() as engine:
            self.assertIn("this plan is at work", found[0])
            self.assertGreater(engine.hash(), 0)

    def error_of(self, function):
        try:
            return function()
        except cohobate.Error as error:
            return str(error)

    def test_every_call_of_an_object_is_known_to_its_handle(self):
        """Else close() in another thread would free what the call uses."""
        library = _library.library()
        for what, one in self.objects().items():
            bare, known, uses = [], set(), self.uses()[what]
            with contextlib.ExitStack() as stack:
                for name in _library.FUNCTIONS:
                    def watched(*arguments, name=name, function=getattr(library, name)):
                        if arguments and arguments[0] is one._handle.pointer:
                            (known.add if one._handle.calls else bare.append)(name)
                        return function(*arguments)

                    stack.callback(setattr, library, name, getattr(library, name))
                    setattr(library, name, watched)
                for use in uses:
                    self.error_of(lambda use=use: use(one))
            self.assertEqual(bare, [], what)
            self.assertGreater(len(known), 3, what)

    def test_calls_of_an_object_that_takes_turns_wait_for_one_another(self):
        objects = self.objects()
        for what in ("tokenizer", "token file", "checkpoint"):
            inside, overlap, begins = [], threading.Event(), threading.Event()

            def call(_):
                inside.append(1)
                if len(inside) > 1:
                    overlap.set()
                begins.set()
                overlap.wait(0.2)  # for a mistake to be seen
                inside.pop()

            threads = [threading.Thread(target=objects[what]._call, args=(call,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            begins.wait(60)
            for thread in threads:
                thread.join()
            self.assertFalse(overlap.is_set(), what)

    def test_two_threads_encode_with_one_tokenizer_as_one_does(self):
        """A tokenizer keeps what it found of a word for the next one."""
        path, texts = os.path.join(model_folder.TOKENIZERS, "llama3"), [f"word{i} and a{i}b{i * i}" for i in range(400)]
        with cohobate.Tokenizer(path) as tokenizer, cohobate.Tokenizer(path) as alone:
            expected, found, together = [list(alone.encode(text)) for text in texts], [], threading.Barrier(4)

            def encode():
                together.wait(60)
                found.append([list(tokenizer.encode(text)) for text in texts])

            threads = [threading.Thread(target=encode) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(found, [expected] * 4)

    def test_every_public_name_is_documented(self):
        for name in cohobate.__all__:
            one = getattr(cohobate, name)
            if callable(one):
                self.assertTrue(one.__doc__, name)
                self.assertTrue(one.__module__.startswith("cohobate."), name)
            for member, of in vars(one).items() if isinstance(one, type) else ():
                if not member.startswith("_"):
                    self.assertTrue(of.__doc__, f"{name}.{member}")

    def test_objects_left_open_are_freed_at_the_exit_of_the_interpreter(self):
        at_work = "told = threading.Event()\nthreading.Thread(target={}._call, daemon=True, args=[\n" \
                  "    lambda _: (told.set(), threading.Event().wait())]).start()\ntold.wait(60)"
        for last in ("", "raise SystemExit(7)", "gc = __import__('gc'); gc.disable()", at_work.format("plan"),
                     at_work.format("plan.mine")):
            script = LEFT_OPEN.format(python=str(ROOT / "python"), batch=BATCH, sequence=SEQUENCE, sizes=SIZES) + last
            done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", script], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (7 if "7" in last else 0, "", ""))

    def test_a_forked_child_neither_uses_nor_frees_the_engine_of_its_parent(self):
        with self.plan() as plan, plan.engine() as engine:
            before = engine.hash()
            child = os.fork()
            if child == 0:
                try:
                    self.assertRaisesRegex(cohobate.Error, "belongs to process", engine.hash)
                    engine.close()
                    plan.close()
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(engine.hash(), before)

    def test_a_child_that_is_forked_during_a_call_does_not_wait_for_it(self):
        """Another thread's call is not in the child: what it was calling is refused there, and everything else works."""
        begun, ends = threading.Event(), threading.Event()
        used, other = cohobate.Tokenizer("bytes"), cohobate.Tokenizer("bytes")
        caller = threading.Thread(target=used._call, args=[lambda _: (begun.set(), ends.wait(60))])
        caller.start()
        self.assertTrue(begun.wait(60))
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(60)
                self.assertRaisesRegex(cohobate.Error, f"this tokenizer belongs to process {os.getppid()}", used.encode, "a")
                used.close()
                self.assertEqual(list(other.encode("a")), [97])
                os._exit(0)
            except BaseException:
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        ends.set()
        caller.join(60)
        self.assertEqual(list(used.encode("a")), [97])

    def interrupt_after(self, seconds):
        """Raises KeyboardInterrupt in this thread after a time, as Ctrl-C does at its press."""
        def interrupt(*_):
            raise KeyboardInterrupt
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def gated_optimizer(self):
        """Makes an optimizer "gated" known, whose update waits for the event that is returned, and changes nothing."""
        gate = threading.Event()
        abi = int(re.search(r"COH_KIND_ABI (\d+)u", (ROOT / "include/cohobate/model.h").read_text())[1])
        update = _structs.Update(lambda _: gate.wait(60) and None)
        optimizer = _structs.coh_optimizer(struct_bytes=ctypes.sizeof(_structs.coh_optimizer), name=b"gated", revision=1,
                                           update=update)
        extension = _structs.coh_extension(struct_bytes=ctypes.sizeof(_structs.coh_extension), kind_abi=abi, name=b"gated",
                                           revision=1, optimizer_count=1)
        extension.optimizers[0] = ctypes.pointer(optimizer)
        _library.library().coh_extension_register(ctypes.pointer(extension))
        KEPT.append(extension)  # the library has its address
        return gate

    def test_an_interrupt_is_raised_while_a_step_runs_and_the_step_goes_on(self):
        """The step waits for a gate in the update of a parameter, so it is not over before the interrupt. Without
        exact_clip the update is part of the step."""
        tokens, targets = self.batch(0)
        gate = self.gated_optimizer()

        def interrupted(engine):
            self.interrupt_after(0.02)  # within assertRaises, which has to see it
            engine.wait()

        with self.plan(optimizer_for={"ln_f.bias": "gated"}, exact_clip=False) as plan:
            for ends in (lambda engine: (engine.wait(), engine.hash()), lambda engine: engine.close()):
                gate.clear()
                with plan.engine() as engine:
                    is_done = ctypes.c_int()
                    engine.submit(tokens, targets, RATE)
                    self.assertRaises(KeyboardInterrupt, interrupted, engine)
                    _library.library().coh_engine_wait_for(engine._object, 0, ctypes.byref(is_done))
                    self.assertFalse(is_done.value)
                    threading.Timer(0.05, gate.set).start()
                    found = ends(engine)
                    if found:
                        (result, found_hash) = found
                        self.assertEqual((result.step, engine.step_count), (0, 1))
                gate.wait()
            with plan.engine() as engine:
                engine.step(tokens, targets, RATE)
                self.assertEqual(found_hash, engine.hash())

    def test_a_step_after_an_interrupted_one_has_its_own_result(self):
        library = _library.library()
        wait_for = library.coh_engine_wait_for

        def interrupt(*_):
            library.coh_engine_wait_for = wait_for
            raise KeyboardInterrupt

        self.addCleanup(setattr, library, "coh_engine_wait_for", wait_for)
        with self.plan() as plan, plan.engine() as engine:
            expected = self.steps(engine, 0, 1, 2)
            engine.submit(*self.batch(3), RATE)
            self.assertEqual(engine.step(*self.batch(4), RATE).step, 4)
            with self.assertRaisesRegex(cohobate.Error, "999"):
                engine.step([999] * 64, [1] * 64, RATE)
            self.assertEqual(engine.step(*self.batch(5), RATE).step, 5)
            self.assertRaisesRegex(cohobate.Error, "no step is under way", engine.wait)
        for presses in (1, 2):
            with self.plan() as plan, plan.engine() as engine:
                for _ in range(presses):
                    library.coh_engine_wait_for = interrupt
                    self.assertRaises(KeyboardInterrupt, engine.step, *self.batch(0), RATE)
                    self.assertEqual(engine.step_count, 1)  # the second press is in the wait for the first step
                for step in (1, 2):
                    result = engine.step(*self.batch(step), RATE)
                    self.assertEqual((result.step, result.loss), (step, expected[step]))

    def test_interrupts_end_the_making_of_a_token_file(self):
        """However many there are, its thread has ended before the interrupt is raised: it uses the tokenizer."""
        library = _library.library()
        make, seen, taken = library.coh_token_file_make, [], threading.Semaphore(0)

        def handle(*_):
            taken.release()
            raise KeyboardInterrupt

        def interrupted(count, tokenizer, options, facts):
            go_on = options._obj.go_on
            self.assertEqual(go_on(None), 0)
            for _ in range(count):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                taken.acquire(timeout=60)  # a mistake does not hang the test
            until = time.monotonic() + 60
            while go_on(None) == 0 and time.monotonic() < until:
                time.sleep(0.01)
            if count > 1:
                time.sleep(0.2)  # for a mistake to be seen: the thread is not waited for
            try:
                make(tokenizer, options, facts)
            except cohobate.Error as error:
                seen.append(error.status)
                raise

        self.addCleanup(setattr, library, "coh_token_file_make", make)
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, handle))
        for count in (1, 2, 4):
            seen.clear()
            library.coh_token_file_make = functools.partial(interrupted, count)
            with self.assertRaises(KeyboardInterrupt):
                cohobate.tokenize("bytes", self.text, self.path("new.tokens"))
            self.assertEqual(seen, ["COH_ERR_STOPPED"])
            self.assertFalse(os.path.exists(self.path("new.tokens")))
        library.coh_token_file_make = make
        self.assertGreater(cohobate.tokenize("bytes", self.text, self.path("new.tokens")), 0)

    def test_lists_are_put_without_numpy(self):
        self.addCleanup(setattr, _values, "numpy", _values.numpy)
        _values.numpy = None
        plan = self.plan()
        rows = [[float(i + j) for j in range(96)] for i in range(self.vocabulary)]
        with plan.engine() as engine:
            for values in (rows, tuple(map(array, "f" * len(rows), rows))):
                engine.put("wte.weight", values)
                self.assertEqual(engine.parameter("wte.weight").tolist(), rows)
            engine.put("ln_f.weight", [2.0] * 96)
            self.assertEqual(engine.parameter("ln_f.weight").tolist(), [2.0] * 96)
            for wrong in (rows[:-1], [row[1:] for row in rows], [1.0] * 96, 3.0):
                with self.assertRaisesRegex(ValueError, "parameter 'wte.weight' takes numbers of shape"):
                    engine.put("wte.weight", wrong)

    def test_a_tensor_that_numpy_does_not_take_as_it_is_is_put(self):
        class Tensor:
            """As one of PyTorch: with a gradient, in bfloat16 or on a GPU, until it is detached, converted and moved."""

            def __init__(self, left):
                self.left = left

            def without(self, what):
                return Tensor(self.left - {what})

            def detach(self):
                return self.without("gradient")

            def float(self):
                return self.without("bfloat16")

            def cpu(self):
                return self.without("gpu")

            def __array__(self, *arguments, **more):
                if self.left:
                    raise (RuntimeError if "gradient" in self.left else TypeError)(self.left)
                return _values.numpy.asarray(self.tolist(), *arguments, **more)

            def tolist(self):
                return [0.5] * 96

        numpy = _values.numpy
        self.addCleanup(setattr, _values, "numpy", numpy)
        with self.plan() as plan:
            for module in (numpy, None):
                _values.numpy = module
                for left in ({"gradient"}, {"bfloat16"}, {"gpu"}, {"gradient", "bfloat16", "gpu"}):
                    with plan.engine(weights={"ln_f.weight": Tensor(left)}) as engine:
                        engine.put("ln_f.bias", Tensor(left))
                        for name in ("ln_f.weight", "ln_f.bias"):
                            self.assertEqual(list(engine.parameter(name)), [0.5] * 96)

    def test_sentences_have_the_names_of_the_package(self):
        with self.plan().engine() as engine:
            engine.save(self.path("first"), wait=False)
            with self.assertRaises(cohobate.Error) as raised:
                engine.save(self.path("second"), wait=False)
            engine.save_wait()
        self.assertIn("call Engine.save_wait first", str(raised.exception))
        self.assertNotIn("coh_", str(raised.exception))
        with self.plan(exact_clip=False).engine() as engine:
            engine.step(*self.batch(0), RATE)
            with self.assertRaisesRegex(cohobate.Error, "make the plan with exact_clip=True and speculate=False"):
                engine.gradient("wte.weight")
            for schedule in (6e-4, lambda step: 6e-4):
                with self.assertRaisesRegex(TypeError, "a note needs a Schedule, .*lowest=rate"):
                    engine.training_note(schedule)
            tokens, targets = ([list(row) for row in memoryview(each).tolist()] for each in self.batch(0))
            targets[1][2] = -100
            with self.assertRaisesRegex(cohobate.Error, "targets holds -100 at place 18, .*: -1 marks a target that does not count"):
                engine.step(tokens, targets, RATE)
        with self.plan() as plan, plan.engine() as engine:
            for says, use in (("TokenFile", lambda: cohobate.TokenFile("")), ("TokenFile", lambda: cohobate.TokenFile("", id_bytes=2)),
                              ("Checkpoint", lambda: cohobate.Checkpoint("")), ("Plan.write", lambda: plan.write("")),
                              ("Checkpoint.remove", lambda: cohobate.Checkpoint.remove("")), ("Engine.load", lambda: engine.load("")),
                              ("Plan.write_program", lambda: plan.write_program(""))):
                with self.assertRaisesRegex(cohobate.Error, f"^{says}: 'path' is empty: give a path"):
                    use()
            with self.assertRaisesRegex(cohobate.Error, "^tokenize: 'held_out_path' is empty"):
                cohobate.tokenize("bytes", self.text, self.path("made"), held_out_path="", validation_split=0.5)
            engine.save(self.path("damaged"))
            before = engine.hash()
            with open(self.path("damaged", "work.bin"), "r+b") as file:
                file.write(b"\xff" * 64)
            self.assertRaisesRegex(cohobate.Error, "cannot open checkpoint", engine.load, self.path("none"))
            self.assertEqual(engine.hash(), before)
            self.assertRaisesRegex(cohobate.Error, "damaged", engine.load, self.path("damaged"))
            with self.assertRaisesRegex(cohobate.Error, "have no values, since a load failed halfway: load a whole checkpoint"):
                engine.step(*self.batch(0), RATE)
        with self.assertRaisesRegex(cohobate.Refusal, "disk_limit allows 1000: .*; raise disk_limit to "):
            self.plan(device_memory="1MiB", disk=self.folder, disk_limit=1000)
        with self.assertRaisesRegex(ValueError, "speculate is for training steps, and a plan with forward_only has none"):
            self.plan(forward_only=True, micro_batch=None, speculate=True)
        # Each call that takes a text may name itself.
        texts = {name for name, (result, kinds) in _library.FUNCTIONS.items() if result is _library.STATUS and ctypes.c_char_p in kinds}
        self.assertLessEqual(texts, _library._NAMES.keys())
        # Every name of the table is a function of the library, and each replacement exists.
        for name, ours in _library._NAMES.items():
            self.assertTrue(hasattr(_library.library(), name), name)
            self.assertTrue(functools.reduce(getattr, ours.split("."), cohobate), ours)


if __name__ == "__main__":
    unittest.main()
