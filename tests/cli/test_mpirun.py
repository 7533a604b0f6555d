"""train as processes of mpirun: any number of them has the bits of one process, one prints, and all end together.

COH_MPIRUN is tests/comm/under_mpirun.sh."""

import json
import os
import re
import resource
import shutil
import signal
import time
import unittest

from program import COHOBATE, QUICK, SANITIZED, TrainTest, in_full, last_of_each, pairs, run, start, wait_for_save, wait_for_step

MPIRUN = os.environ.get("COH_MPIRUN", "under_mpirun.sh")
SKIP = 77
RUN = ["gpt2-pico", "--sequence", "16", "--batch", "4", "--dtype", "f32", "--replicas", "2x2", *QUICK]


def as_processes(count, *arguments):
    """The arguments of MPIRUN: `count` processes of train."""
    return [count, COHOBATE, "train", *last_of_each(arguments)]


class Processes(TrainTest):
    def setUp(self):
        super().setUp()
        if run(1, "true", program=MPIRUN, as_given=True).code == SKIP:
            self.skipTest("there is no mpirun")
        self.data = self.corpus()

    def together(self, count, *more, model=RUN):
        done = run(*as_processes(count, *model, "--data", self.data, *more), program=MPIRUN, as_given=True)
        self.assertEqual(done.code, 0, done.out + done.err)
        return done

    def refused(self, code, *arguments, says, command="train"):
        """One process prints the sentence; mpirun adds lines of its own."""
        done = run(*arguments, program=MPIRUN, as_given=True)
        self.assertEqual(done.code, code, done.out + done.err)
        sentences = re.findall(rf"^cohobate {command}: .*", done.err, re.M)
        self.assertEqual(len(sentences), 1, done.err)
        self.assertIn(says, sentences[0])
        return sentences[0]

    def differs(self, common, flags, says):
        """Rank 1 alone has the flags, too, and the run is refused."""
        return self.refused(2, *as_processes(1, *common), ":", "-n", *as_processes(1, *common, *flags), says=says)

    def alone(self, *more):
        return self.says_hash(self.train("--save", "none", *more, model=RUN))

    def test_any_number_of_processes_has_the_bits_of_one(self):
        numbers = ["--steps", 3, "--dropout", "0.1"]
        whole = self.alone(*numbers)
        small = ["--device-memory", "3MiB", "--disk", self.folder]
        log = self.path("log.jsonl")
        for count, flags in pairs((2, ["--log", log]), (2, small), (4, [*small, "--test-poison", "--test-delay-seed", 3])):
            done = self.together(count, *numbers, "--save", "none", *flags)
            self.assertEqual(self.says_hash(done), whole)
            self.assertEqual(done.out.count("hash:"), 1)
            self.assertIn(f"ranks:  {count} in processes of a launcher", done.err)

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_plans_that_take_all_of_the_default_budgets_start(self):
        """Planning takes some of what was left when the budgets were chosen."""
        def lower():
            resource.setrlimit(resource.RLIMIT_AS, (2200 << 20, 2200 << 20))
        gpt2 = ["gpt2", *QUICK, "--batch", 2, "--micro-batch", 1, "--sequence", 64, "--replicas", 2, "--gradients", "f32"]
        done = run(*as_processes(2, *gpt2, "--disk", self.folder, "--data", self.data, "--steps", 1, "--save", "none"), program=MPIRUN,
                   as_given=True, preexec_fn=lower)
        self.assertEqual(done.code, 0, done.out + done.err)
        self.assertGreater(int(re.search(r"device predicted (\d+) ", done.out)[1]), 256 << 20)

    @in_full
    def test_packed_numbers_are_those_of_ranks_in_one_process(self):
        wired = ["--steps", 3, "--pattern", "zero3", "--wire", "weights=int8,gradients=int4"]
        self.assertEqual(self.says_hash(self.together(4, *wired, "--save", "none")), self.alone(*wired, "--ranks", 4))

    def test_a_profile_has_the_links_between_processes(self):
        """All measure together, the first keeps the figures, and they price the exchanges of a plan."""
        profile = self.path("machine.json")
        done = run(2, COHOBATE, "profile", "gpt2-nano", "--sequence", 16, "--dtype", "f32", "--batch", 2, "--quick", "--threads", 1,
                   "-o", profile, program=MPIRUN, as_given=True)
        self.assertEqual(done.code, 0, done.out + done.err)
        self.assertEqual(done.out.count("between ranks of a node"), 1)
        self.assertNotIn("between nodes", done.out)
        found = self.succeeds("inspect", profile, "--json").json
        self.assertGreater(found["comm0_bytes_per_s"], 1e6)
        self.assertTrue(0 < found["comm0_latency_s"] < 1, found["comm0_latency_s"])
        self.assertEqual(found["comm1_bytes_per_s"], 0)
        shape = [*RUN, "--ranks", 2, "--threads", 1, "--pattern", "zero1"]
        plans = [self.succeeds("plan", *shape, "--json", *flags).json for flags in ([], ["--profile", profile])]
        self.assertEqual(*(plan["link_bytes"]["comm0"] for plan in plans))
        trained = self.together(2, "--steps", 2, "--save", "none", "--threads", 1, "--profile", profile)
        self.assertEqual(self.says_hash(trained), self.alone("--steps", 2))
        paired = self.together(2, "--steps", 2, "--save", "none", "--threads", 1, "--profile", profile + ",topology=frontier")
        self.assertEqual(self.says_hash(paired), self.says_hash(trained))

    def test_the_doctor_examines_what_connects_the_processes(self):
        """Once, behind what it finds of rank 0's machine, and in --json, too."""
        done = run(2, COHOBATE, "doctor", program=MPIRUN, as_given=True)
        self.assertEqual(done.code, 0, done.out + done.err)
        self.assertEqual(done.out.count("instruction set"), 1, done.out)
        self.assertRegex(done.out, r"launcher +2 processes, by OMPI_COMM_WORLD_SIZE\n +transport +mpi\n +levels +1 node of 2 ranks, no pairs\n")
        self.assertRegex(done.out, r"within a node +\d+ us, and \d+\.\d\d GB/s that a rank receives, if all groups of 2 exchange")
        self.assertNotIn("is not divided", done.err)
        found = json.loads(run(2, COHOBATE, "doctor", "--json", program=MPIRUN, as_given=True).out)["findings"]
        self.assertEqual([finding["subject"] for finding in found[-4:]], ["launcher", "transport", "levels", "within a node"])
        alone = self.succeeds("doctor").out
        self.assertNotIn("transport", alone)

    def test_ranks_that_would_measure_something_else_are_named(self):
        """Also one that names another file: rank 0 alone writes."""
        def profile(*flags):
            return [1, COHOBATE, "profile", *last_of_each(["gpt2-nano", "--sequence", 16, "--dtype", "f32", "--batch", 2, "--quick", *flags])]
        out = ["-o", self.path("machine.json")]
        model = profile(*out)
        model[3] = "gpt2-pico"
        for other, says in pairs((profile(), "another -o"), (profile("-o", self.path("other.json")), "another -o"), (model, "another model"),
                                 (profile(*out, "--dtype", "bf16"), "another --dtype")):
            self.refused(2, *profile(*out), ":", "-n", *other, says=f"rank 1 has {says} than rank 0", command="profile")
        self.assertEqual(os.listdir(self.folder), ["corpus.txt"])

    def test_processes_lie_in_the_pairs_of_a_profile(self):
        """Weights are divided over pairs, as of ranks that are threads; pairs that do not fill the machine are left out."""
        profile, plan = "built-in-2,topology=frontier", self.path("plan.json")
        flags = ["--pattern", "levels", "--profile", profile, "--device-memory", "256MiB"]
        run_ = ["--steps", 2, "--save", "none", "--threads", 1]
        whole = self.alone("--steps", 2)
        made = self.succeeds("plan", *RUN, *flags, "--ranks", 4, "--calibration", "none", "--json", "-o", plan)
        with open(plan, encoding="utf-8") as file:
            self.assertRegex(file.read(), r'"pair_ranks": 2\b')
        self.assertGreater(made.json["link_bytes"]["comm0"], 0)
        found = self.together(4, *run_, *flags)
        self.assertEqual(self.says_hash(found), whole)
        self.assertNotIn("do not fill", found.err)
        planned = self.together(4, *run_, "--plan", plan, "--profile", profile)
        self.assertEqual(self.says_hash(planned), whole)
        odd = self.together(3, *run_, *flags, model=[*RUN, "--batch", 3, "--replicas", 3])
        self.assertEqual(odd.err.count("note: the 3 processes of a machine do not fill the pairs of 2 ranks that the profile has"), 1,
                         odd.err)

    def test_a_rank_without_the_profile_takes_the_pairs_of_rank_0(self):
        script = self.write("rank.sh", '[ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec "$@" --profile built-in-2,topology=frontier\nexec "$@"\n')
        numbers = ["--pattern", "levels", "--device-memory", "256MiB", "--data", self.data, "--steps", 2, "--save", "none", "--threads", 1]
        done = run(4, "sh", script, *as_processes(4, *RUN, *numbers)[1:], program=MPIRUN, as_given=True)
        self.assertEqual(done.code, 0, done.out + done.err)
        self.assertEqual(self.says_hash(done), self.alone("--steps", 2))

    def test_a_run_moves_between_processes_and_one(self):
        whole = self.alone("--steps", 4)
        validates = ["--validation", self.write("held.txt", "a line\n" * 12)]  # of zero3 all together
        killed = "(--save-every N: also on the way, in case of a kill, as by mpirun on SIGINT or SIGTERM; not on SIGUSR1, and " \
                 "later with Open MPI 4's --mca odls_base_sigkill_timeout 60)"
        begun = self.together(4, "--steps", 1, "--schedule-steps", 4, "--pattern", "zero3", *validates, "--save", self.path("run"))
        self.assertEqual(begun.err.count(killed), 1, begun.err)
        self.resumed(self.path("run"), "--steps", 2)
        done = self.together(2, "--resume", self.path("run"), "--steps", 4, "--save-every", 1, model=[])
        self.assertNotIn(killed, done.err)
        self.assertEqual(self.says_hash(done), whole)

    def test_more_threads_than_cores_are_said(self):
        """The processes of under_mpirun.sh may use all cores."""
        said = "which is not in the prices: a step of each is priced alone"
        crowded = self.together(2, "--steps", 1, "--save", "none", "--threads", os.cpu_count())
        self.assertEqual(crowded.err.count(said), 1, crowded.err)

    def test_all_end_with_the_first_ones_decision_after_a_validation(self):
        flags = ["--steps", 8, "--lr", "0.05", "--validation-split", "0.2", "--validation-every", 1, "--stop-after-worse", 1]
        os.mkdir(self.path("texts"))
        for i in range(40):
            self.write(f"texts/{i}.txt", "".join(f"{i + j * j % 13} of many\n" for j in range(5)))
        self.data = self.path("texts")
        whole = self.succeeds("train", *RUN, "--data", self.data, "--save", "none", *flags)
        self.assertIn("ended:", whole.out)
        done = self.together(2, "--save", self.path("run"), *flags)
        self.assertIn("ended:", done.out)
        self.assertEqual(self.says_hash(done), self.says_hash(whole))

    def test_ranks_that_validate_together_follow_the_first_ones_search_for_the_best(self):
        """Rank 0 alone knows the best checkpoint, and a validation over all windows is of all ranks."""
        validates = ["--validation", self.write("held.txt", "a line\n" * 12), "--validation-every", 1, "--validation-windows", 1]
        done = self.together(2, "--steps", 3, "--pattern", "zero3", *validates, "--keep-best", "--keep", 9, "--save", self.path("run"))
        self.assertIn("best:", done.out)
        self.assertIn("step-1", os.listdir(self.path("run")))
        self.assertEqual(self.says_hash(done), self.alone("--steps", 3))

    def test_a_stop_saves_and_gives_its_code(self):
        steps = 15  # in which the signal arrives after the second
        whole = self.alone("--steps", steps)
        process = start(*as_processes(2, *RUN, "--data", self.data, "--steps", steps, "--save", self.path("run")),
                        program=MPIRUN, as_given=True)
        wait_for_step(process, self.path("run"), 2)
        process.send_signal(signal.SIGUSR1)
        err = process.communicate(timeout=120)[1].decode()
        self.assertEqual(process.returncode, 75, err)
        self.assertEqual(err.count("go on with"), 1, err)
        self.assertEqual(self.says_hash(self.resumed(self.path("run"))), whole)
        # nothing is left to do: all processes end with 0
        again = run(*as_processes(2, "--resume", self.path("run")), program=MPIRUN, as_given=True)
        self.assertEqual(again.code, 0, again.err)
        self.assertEqual(self.says_hash(again), whole)

    def test_a_process_that_hangs_ends_all_after_the_timeout(self):
        log = self.path("log.jsonl")
        process = start(*as_processes(2, *RUN, "--data", self.data, "--steps", 1000000, "--save", self.path("run"),
                                      "--log", log, "--rank-timeout", 1), program=MPIRUN, as_given=True)
        while process.poll() is None and not (os.path.exists(log) and os.path.getsize(log) > 1000):
            time.sleep(0.05)
        os.kill(self.process_of_rank(1), signal.SIGSTOP)
        err = process.communicate(timeout=120)[1].decode()
        self.assertNotEqual(process.returncode, 0)
        self.assertRegex(err, "it has waited 1 s for the other rank of its group in (REDUCE|GATHER), instruction [0-9]+ of the "
                              "body program, on .*: ranks 0 1.: one of them hangs")
        # Whichever rank it is, the sentence ends as that of a run alone.
        self.assertRegex(err, r"(?m)^cohobate train: .*hangs.*; the result of steps 1 to \d+ is lost: start again")

    def test_data_that_become_shorter_end_all_with_the_way_to_go_on(self):
        """As in a run alone. The size is that of the file, not the place that was to be read."""
        tokens = [self.path(f"rank{rank}.tokens") for rank in range(2)]
        for path in tokens:
            self.succeeds("tokenize", self.data, "-o", path)
        common = [*RUN, "--steps", 1000000, "--save", self.path("run"), "--save-every", 2, "--data"]
        process = start(*as_processes(1, *common, tokens[0]), ":", "-n", *as_processes(1, *common, tokens[1]), program=MPIRUN, as_given=True)
        wait_for_save(process, self.path("run"))
        os.truncate(tokens[1], 200)
        err = process.communicate(timeout=120)[1].decode()
        self.assertEqual(process.returncode, 4, err)
        said = re.findall(r"(?m)^cohobate train: (.*)$", err)
        self.assertEqual(len(said), 1, err)
        self.assertRegex(said[0], rf"^rank 1: {tokens[1]} ends at byte 200, \d+ bytes too early; ")
        self.assertRegex(said[0], rf"go on from {self.path('run')}/step-\d+ with: cohobate train --resume ")

    def process_of_rank(self, rank):
        """The process below ours that the launcher has given this rank."""
        wanted = f"OMPI_COMM_WORLD_RANK={rank}".encode()
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as variables, open(f"/proc/{name}/cmdline", "rb") as command:
                    if wanted in variables.read().split(b"\0") and self.data.encode() in command.read():
                        return int(name)
            except OSError:
                continue
        self.fail(f"there is no process of rank {rank}")

    def test_mistakes_are_printed_once(self):
        common = [*RUN, "--data", self.data, "--steps", 1, "--save", "none"]
        for code, count, flags, says in pairs(
                (2, 2, ["--lr", "-1"], "--lr"), (2, 2, ["--data", self.path("none")], "none"),
                (2, 2, ["--ranks", 3], "the launcher has started 2"), (2, 3, [], "cannot be divided between 3 ranks"),
                (3, 2, ["--device-memory", "1MiB"], "--device-memory")):
            self.refused(code, *as_processes(count, *common, *flags), says=says)

    def test_broken_numbers_end_all_with_the_first_ones_sentence(self):
        """Rank 0 alone knows the checkpoints."""
        common = [*RUN, "--data", self.data, "--steps", 40, "--warmup", 0]
        for run_name, flags, says in pairs(
                ("a", ["--lr", "1e6"], "10 steps in a row"),
                ("b", ["--lr", "100", "--weight-decay", "100", "--clip", "0", "--save-every", 1], "resume from the last checkpoint")):
            sentence = self.refused(1, *as_processes(2, *common, *flags, "--save", self.path(run_name)), says=says)
            self.assertNotIn("rank 1: ", sentence)

    def test_a_command_without_ranks_notes_once_that_each_process_does_all(self):
        for count, notes in ((1, 0), (2, 1)):
            done = run(count, COHOBATE, "inspect", "h100", program=MPIRUN, as_given=True)
            self.assertEqual(done.err.count(f"note: inspect is not divided between the {count} processes"), notes, done.err)

    def test_a_command_without_ranks_writes_no_file_of_several_processes(self):
        """Else the second would find the first one's file, or replace it."""
        run_, out = self.path("run"), self.path("out")
        self.train("--steps", 1, "--save", run_, model=RUN)
        for command, *flags in (["export", run_, "-o", out], ["plan", *RUN, "--program", out], ["report", run_, "-o", out]):
            done = run(2, COHOBATE, command, *flags, program=MPIRUN, as_given=True)
            self.assertEqual(done.code, 2, done.err)
            said = re.findall("^(?:cohobate|note).*", done.err, re.M)
            self.assertEqual(said, [f"cohobate {command}: each of the 2 processes of the launcher would write {flags[-2]}: start {command} alone"])
            self.assertFalse(os.path.exists(out))
        self.assertEqual(run(1, COHOBATE, "export", run_, "-o", out, program=MPIRUN, as_given=True).code, 0)

    def test_a_plan_with_pairs_is_refused_in_the_launchers_words(self):
        """Processes lie in nodes alone. Sizes that are the default's are the launcher's, too."""
        plan, numbers = self.path("plan.json"), ["--steps", 1, "--save", "none", "--plan"]
        made = ["plan", *RUN, "--ranks", 2, "--node-ranks", 2, "--calibration", "none", "-o", plan, "--pair-ranks"]
        self.succeeds(*made, 2)
        self.refused(2, *as_processes(2, *RUN, "--data", self.data, *numbers, plan),
                     says="is for pairs of 2 and nodes of 2 ranks, and the launcher's processes lie in nodes of 2, in "
                          "pairs of 1 by this run's profile: plan again with --node-ranks 2 --pair-ranks 1")
        self.succeeds(*made, 1)
        self.assertEqual(self.says_hash(self.together(2, *numbers, plan)), self.alone("--steps", 1))

    def test_ranks_that_differ_are_named(self):
        common = [*RUN, "--data", self.data, "--steps", 1, "--save", "none"]
        other = self.write("other.txt", "another text\n" * 1000)
        for flags, says in pairs((["--seed", 2], "rank 1 has another --seed"), (["--lr", 1], "rank 1 has another --lr"),
                                 (["--sequence", 8], "rank 1 has another --sequence"),
                                 (["--data", other], "rank 1 has another --data")):
            self.differs(common, flags, says)

    def test_ranks_with_other_numbers_of_the_optimizer_are_named(self):
        """Each rank updates its part by its own: nothing would fail, and the model would be wrong."""
        common = [*RUN, "--pattern", "zero1", "--data", self.data, "--steps", 1, "--save", "none"]
        for flag, value in pairs(("--beta2", 0.9), ("--lr-for", "*=1e-5"), ("--weight-decay-for", "*=0.5"),
                                 ("--hyperparameter", "epsilon=1e-3"), ("--beta1", 0.8)):
            self.differs(common, [flag, value], f"rank 1 has another {flag} than rank 0")

    def test_ranks_with_other_programs_are_named_by_the_flag(self):
        """The plan of rank 0 would not be theirs, which is no fault of a file."""
        common = [*RUN, "--data", self.data, "--steps", 1, "--save", "none"]
        adapts = ["--lora", 4]
        for shared, flag, value in pairs(([], "--clip-mode", "previous"), ([], "--optimizer", "lion"), ([], "--documents", "separate"),
                                         (adapts, "--lora-dropout", 0.1), (adapts, "--lora-targets", "c_proj"),
                                         (["--batch", 8], "--micro-batch", 1), ([], "--dropout", 0.1)):
            self.differs([*common, *shared], [flag, value], f"rank 1 has another {flag}")
        alpha = [*as_processes(1, *common, *adapts), ":", "-n", *as_processes(1, *common, "--lora", "4:16")]
        self.refused(2, *alpha, says="rank 1 has another --lora than rank 0")
        other = [*as_processes(1, *common), ":", "-n", *as_processes(1, "gpt2-nano", *common[1:])]
        self.refused(2, *other, says="rank 1 has another model than rank 0")

    def test_ranks_that_begin_with_other_values_are_named(self):
        """Each would update its part of its own values: a mixture that no run has."""
        numbers = ["--data", self.data, "--steps", 2, "--save", "none"]
        for seed in (1, 2):
            self.train("--steps", 1, "--seed", seed, "--save", self.path(f"run{seed}"), model=RUN)
            self.succeeds("export", self.path(f"run{seed}"), "-o", self.path(f"model{seed}"))
        adapts = [self.path("model1"), *RUN[1:], "--tokenizer", "bytes"]
        for seed in (1, 2):
            self.train("--steps", 1, "--lora", 2, "--seed", seed, "--save", self.path(f"lora{seed}"), model=adapts)
            self.succeeds("export", self.path(f"lora{seed}"), "-o", self.path(f"adapter{seed}"))
        fresh = [*RUN[1:], "--tokenizer", "bytes", *numbers]
        scratch = [self.path("model1"), *fresh, "--from-scratch"]
        first = [self.path("model1"), *fresh]
        for one, other, says in pairs(
                (["--resume", self.path("run1"), "--steps", 2, "--save", "none"], ["--resume", self.path("run2"), "--steps", 2, "--save", "none"],
                 "other values in its --resume checkpoint"),
                (first, scratch, "another --from-scratch"),
                ([*first, "--adapter", self.path("adapter1")], [*first, "--adapter", self.path("adapter2")], "other adapters in its --adapter"),
                ([self.path("run1"), *fresh], [self.path("run2"), *fresh], "other weights in the folder of its model"),
                (first, [self.path("model2"), *fresh], "other weights in the folder of its model")):
            self.refused(2, *as_processes(1, *one), ":", "-n", *as_processes(1, *other), says="rank 1 has " + says)
        copy = shutil.copytree(self.path("model1"), self.path("another-name"))
        done = run(*as_processes(1, *first), ":", "-n", *as_processes(1, copy, *fresh), program=MPIRUN, as_given=True)
        self.assertEqual(done.code, 0, done.err)

    def test_ranks_that_would_validate_or_save_at_other_times_are_named(self):
        """With divided weights all take part, so one would wait for the others forever."""
        validates = ["--validation", self.write("held.txt", "a line\n" * 200), "--validation-every", 1]
        common = [*RUN, "--pattern", "zero3", "--data", self.data, "--steps", 4, *validates]
        for flag, *value in pairs(("--save-every", 1), ("--stop-after-worse", 1), ("--keep-best",), ("--validation-windows", 3)):
            self.differs([*common, "--save", self.path("run")], [flag, *value], f"rank 1 has another {flag} than rank 0")
            self.assertFalse(os.path.exists(self.path("run")))

    def test_a_setting_that_no_flag_of_the_table_has_is_found_in_the_note(self):
        ids = self.write("ids.bin", b"\x01\x00\x02\x00\x03\x00\x04\x00" * 200)
        common = [*RUN, "--tokenizer", "none", "--vocabulary", 256, "--data", ids, "--steps", 1, "--save", "none"]
        self.differs(common, ["--id-bytes", 2], "rank 1 has other settings in the note of its run")

    def test_a_failure_of_one_is_the_first_ones_sentence(self):
        common = [*RUN, "--data", self.data, "--steps", 1, "--save", "none"]
        missing = [flag if flag != self.data else self.path("none") for flag in common]
        self.refused(2, *as_processes(1, *common), ":", "-n", *as_processes(1, *missing), says="rank 1: --data")
        self.refused(2, *as_processes(1, *common), ":", "-n", *as_processes(1, *common, "--no-such-flag"),
                     says="rank 1: '--no-such-flag' is not a flag")


if __name__ == "__main__":
    unittest.main()
