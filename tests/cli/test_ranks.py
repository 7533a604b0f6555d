"""Ranks through the command line: any number of them gives the bits of one, and resumes what another number saved."""

import json
import os
import re
import unittest

from program import FAULTY, QUICK, SHORT, TINY, TrainTest, environment, in_full, pairs, run

RUN = ["gpt2-pico", "--sequence", "16", "--batch", "8", *QUICK]
F32 = ["--dtype", "f32"]
SHAPE = ["--replicas", "2x2x2"]
PROFILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "profiles")


class Ranks(TrainTest):
    def hash_of_run(self, ranks, *more):
        return self.says_hash(self.train("--steps", 3, "--save", "none", *SHAPE, "--ranks", ranks, *more, model=RUN))

    def test_tasks_of_srun_that_nothing_connects_do_not_each_train_the_whole_run(self):
        """PMIx would set PMIX_RANK. A batch script has SLURM_NTASKS, and no task of a step."""
        names = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS",
                 "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_PROCID")

        def variables(**more):
            return {**{key: value for key, value in environment().items() if key not in names}, **more}

        train = ["train", *TINY, "--data", self.corpus(), "--steps", 1, "--save", "none"]
        task = variables(SLURM_STEP_NUM_TASKS="4", SLURM_NTASKS="4", SLURM_STEP_ID="0", SLURM_PROCID="0")
        for more in ([], ["--ranks", 4, *SHAPE, *F32, "--batch", 8]):
            said = self.fails(2, *train, *more, env=task, says="srun has started 4 tasks without connecting them, so each would train the "
                                                        "whole run: start them by srun --mpi=pmix (or mpirun)").err
            self.assertIn("--ranks 1 for 4 independent runs", said)
        other = run(*train, env={**task, "SLURM_PROCID": "3"})
        self.assertEqual((other.code, other.err), (2, ""))  # one task speaks for all
        self.fails(2, *train, "--steps", 0, env=task, says="--steps takes a whole number from 1")
        for env, flags in ((task, ["--ranks", 1]), (variables(SLURM_NTASKS="4", SLURM_PROCID="0", SLURM_STEP_ID="4294967291"), []),
                           ({**task, "SLURM_STEP_NUM_TASKS": "1"}, []), ({**task, "PMI_SIZE": "1"}, []),
                           (variables(SLURM_NTASKS="4", SLURM_ARRAY_TASK_ID="7"), [])):
            self.succeeds(*train, *flags, env=env)
        terminal, shell = os.openpty()  # as in the shell of srun --pty: no other task has one
        self.succeeds(*train, *SHAPE, *F32, "--batch", 8, "--ranks", 2, env=task, stdin=shell)
        os.close(terminal)
        os.close(shell)
        text = self.write("part.txt", "a part of the text\n")
        self.succeeds("tokenize", "--tokenizer", "bytes", text, "-o", self.path("part.tokens"), env=task)
        self.succeeds("plan", *TINY, env=task)

    def test_any_number_of_ranks_has_the_bits_of_one(self):
        numbers = [*F32, "--dropout", "0.1", "--threads", "1"]
        whole = self.hash_of_run(1, *numbers)
        for ranks in pairs(2, 4, 8):
            self.assertEqual(self.hash_of_run(ranks, *numbers, "--test-poison", "--test-delay-seed", ranks), whole)

    def test_a_run_moves_between_numbers_of_ranks(self):
        whole = self.train("--steps", 4, "--save", "none", *F32, *SHAPE, model=RUN)
        begun = self.train("--steps", 1, "--schedule-steps", 4, "--save", self.path("run"), *F32, *SHAPE, "--ranks", 4, model=RUN)
        self.assertIn("ranks:  4 in this process, their gradients added as 2x2", begun.err)
        for ranks, steps in ((2, 2), (8, 3), (1, 4)):
            last = self.resumed(self.path("run"), "--steps", steps, "--ranks", ranks)
            self.assertNotIn("other rounding", last.err)
        self.assertEqual(self.says_hash(last), self.says_hash(whole))

    def test_a_save_that_fails_ends_all_ranks_and_leaves_a_run_to_resume(self):
        """One sentence, the code of an I/O error, and nothing half written, whatever the ranks keep."""
        whole = self.hash_of_run(1, *F32)
        for pattern, fault, says in pairs(("replicate", "16:5", "Input/output error"), ("zero3", "9:28", "No space left on device")):
            folder = self.path("run-" + pattern)
            self.train("--steps", 1, "--schedule-steps", 3, "--save", folder, *F32, *SHAPE, "--ranks", 2, "--pattern", pattern, model=RUN)
            before = sorted(os.listdir(folder))
            done = run("train", "--resume", folder, "--steps", 3, "--ranks", 2, "--pattern", pattern, *QUICK, program=FAULTY,
                       env=environment(COH_TEST_FAIL_AT=fault))
            sentences = [line for line in done.err.splitlines() if line.startswith("cohobate train: ")]
            self.assertEqual((done.code, len(sentences)), (5, 1), done.err)
            self.assertIn(says, sentences[0])
            self.assertIn("the result of steps 2 to 3 is lost: the same command continues from " + folder + "/step-1", sentences[0])
            self.assertEqual(sorted(os.listdir(folder)), before)
            self.succeeds("check", folder)
            self.assertEqual(self.says_hash(self.resumed(folder, "--steps", 3, "--ranks", 2)), whole)

    def test_ranks_with_parts_of_the_states_have_the_bits_of_one(self):
        """Also where rank 0 alone validates, a save continues during the steps, and the run moves to other ranks and patterns."""
        parts = [*F32, *SHAPE, "--validation", self.write("held.txt", "a line\n" * 12), "--validation-every", "1", "--save-every", "2", "--steps", "3"]
        whole = self.train(*parts, "--save", self.path("whole"), model=RUN)
        for ranks, pattern in (*pairs((4, "1/2/4"), (4, "4/4/4/2"), (2, "zero1")), (4, "zero3")):
            done = self.train(*parts, "--ranks", ranks, "--pattern", pattern, "--save", self.path("parts-" + pattern[-1]), model=RUN)
            self.assertEqual(self.says_hash(done), self.says_hash(whole))
        last = self.resumed(self.path("parts-3"), "--steps", 5, "--ranks", 2)
        self.assertEqual(self.says_hash(self.resumed(self.path("whole"), "--steps", 5, "--ranks", 4, "--pattern", "zero1")),
                         self.says_hash(last))

    def test_parts_of_the_states_take_less_memory(self):
        memory = [self.succeeds("plan", *RUN, *F32, *SHAPE, "--ranks", 4, "--pattern", pattern, "--json").json["in_memory_bytes"]
                  for pattern in ("zero3", "zero1", "replicate")]
        self.assertEqual(memory, sorted(set(memory)))
        done = self.succeeds("plan", *RUN, *F32, *SHAPE, "--ranks", 4, "--pattern", "zero2")
        self.assertIn("each keeps its part of states and gradients (--pattern zero2)", done.out + done.err)
        mixed = self.succeeds("plan", *RUN, *F32, *SHAPE, "--ranks", 4, "--pattern", "2/4/4", "--pin", "blocks.0=zero1")
        self.assertIn("each keeps 1/4 of the states, 1/4 of the gradients and 1/2 of the weights (--pattern 2/4/4, blocks.0=zero1)",
                      " ".join(mixed.out.split()))

    def test_the_planner_chooses_the_pattern(self):
        """Without --pattern; the plan file has the choice, and explain says what others would cost."""
        plan = self.path("plan.json")
        shape = [*RUN, *F32, *SHAPE, "--ranks", 4]
        steps = {pattern: self.succeeds("plan", *shape, "--pattern", pattern, "--json").json["step_seconds"]
                 for pattern in ("replicate", "zero1", "zero2", "zero3")}
        chosen = self.succeeds("plan", *shape, "-o", plan, "--json").json
        self.assertLessEqual(chosen["step_seconds"], 1.006 * min(steps.values()))
        self.assertEqual(chosen["step_seconds"], self.succeeds("plan", *shape, "--pattern", chosen["pattern"], "--json").json["step_seconds"])
        tried = self.succeeds("explain", plan, "h.0.mlp.c_fc", "--json").json
        names = [trial["pin"] for trial in tried["alternatives"]] + tried["as_planned"]
        for pattern in steps:
            self.assertIn(f"h.0.mlp.c_fc={pattern}", names)

    def test_several_gpus_are_planned_by_the_rates_of_their_links(self):
        """Within a node over one link, between nodes over the other; twice the rate takes half the time."""
        shape = ["gpt2-nano", *RUN[1:], *F32, *SHAPE, "--ranks", 4, "--pattern", "zero1", "--calibration", "none", "--json"]
        slow, fast, apart = (self.succeeds("plan", *shape, "--profile", f"h100,{links}", *flags).json
                             for links, flags in (("node-link=10GB/s", ()), ("node-link=20GB/s", ()),
                                                  ("node-link=20GB/s,network=5GB/s", ("--node-ranks", 2))))
        self.assertEqual(slow["link_bytes"], fast["link_bytes"])
        for plan, rate in ((slow, 10e9), (fast, 20e9)):
            self.assertAlmostEqual(plan["busy_seconds"]["comm0"] * rate / plan["link_bytes"]["comm0"], 1, delta=0.01)
        self.assertNotIn("comm1", slow["link_bytes"])
        self.assertGreater(apart["link_bytes"]["comm1"], 0)
        self.assertGreater(apart["step_seconds"], fast["step_seconds"])

    def test_a_pair_has_a_link_of_its_own(self):
        """The exchanges of pairs, and no others, take less time over it; without one they cross the node's."""
        shape = ["plan", *RUN, *F32, *SHAPE, "--ranks", 4, "--pattern", "2/2/4", "--calibration", "none", "--json", "--profile"]
        links = "h100,node-link=10GB/s,network=5GB/s"
        node, pair, alone = (self.succeeds(*shape, links + own, "--node-ranks", 4, *flags).json
                             for own, flags in (("", ("--pair-ranks", 2)), (",pair-link=100GB/s", ("--pair-ranks", 2)),
                                                (",pair-link=100GB/s", ())))
        self.assertEqual(node["busy_seconds"], alone["busy_seconds"])
        self.assertEqual(node["link_bytes"], pair["link_bytes"])
        saved = (node["busy_seconds"]["comm0"] - pair["busy_seconds"]["comm0"]) / (1 / 10e9 - 1 / 100e9)
        self.assertTrue(0.3 * node["link_bytes"]["comm0"] < saved < 0.95 * node["link_bytes"]["comm0"], saved)
        named = self.succeeds(*shape, links, "--node-ranks", 4, "--pair-ranks", 2, "--pattern", "levels").json
        self.assertEqual(named["link_bytes"], self.succeeds(*shape, links, "--node-ranks", 4, "--pattern", "2/4/4").json["link_bytes"])
        found = self.succeeds("inspect", "h100,node-link=10GB/s,pair-link=100GB/s", "--json").json
        self.assertEqual((found["pair_bytes_per_s"], found["pair_latency_s"]), (100e9, 10e-6))
        self.assertIn("ranks of a pair", self.succeeds("inspect", "h100,node-link=10GB/s,pair-link=100GB/s").out)

    def test_ranks_train_in_the_pairs_and_nodes_of_a_profile(self):
        self.succeeds("profile", "gpt2-pico", "--sequence", 8, "--batch", 2, "--quick", "--threads", 1, "-o", self.path("here.json"))
        links = ["--profile", self.path("here.json") + ",topology=frontier", "--device-memory", "256MiB"]
        run = ["train", *TINY, "--batch", 8, *F32, "--data", self.corpus(), "--steps", 2, "--save", "none"]
        hashes = [self.says_hash(self.succeeds(*run, *SHAPE, *more)) for more in ([], ["--ranks", 2, *links], ["--ranks", 4, *links])]
        self.assertEqual(len(set(hashes)), 1)
        self.fails(2, *run, "--ranks", 3, *links, says="3 ranks leave one of them in part: give --ranks 2 or 4")

    def test_a_profile_may_have_pairs_and_no_node(self):
        """As one has that processes measured: other ranks than those of whole pairs are planned without them."""
        with open(os.path.join(PROFILES, "frontier.json"), encoding="utf-8") as file:
            measured = json.load(file)
        del measured["node_ranks"], measured["links"]["comm1"]
        measured["origins"] = [origin for origin in measured["origins"] if origin["of"] not in ("node_ranks", "links.comm1")]
        paired = self.write("paired.json", json.dumps(measured))
        for ranks, pair in ((4, ["2"]), (3, [])):
            self.succeeds("plan", *TINY, *F32, "--batch", ranks, "--replicas", ranks, "--ranks", ranks, "--profile", paired, "-o", self.path("p.json"))
            with open(self.path("p.json"), encoding="utf-8") as file:
                self.assertEqual(re.findall(r'"pair_ranks": (\d+)', file.read()), pair)
    def test_the_screen_has_whole_names_of_patterns(self):
        long = ["--ranks", 16, "--replicas", "4x4", "--batch", 16, "--pattern", "16/16/16/4", "--node-ranks", 4]
        for pattern, more in (("replicate", ["--ranks", 2, "--replicas", 2, "--batch", 2, "--pattern", "replicate"]), ("16/16/16/4", long)):
            screen = self.succeeds("plan", "gpt2-nano", *TINY[1:3], *F32, *QUICK, *more).out
            table = screen[screen.index("\noperators ") + 1:].split("\n\n")[0].split("\n")
            column = table[0].index("pattern")
            self.assertIn(pattern, {line[column:].split(" ")[0] for line in table}, screen)
            self.assertEqual({line[column - 1] for line in table}, {" "}, screen)
            self.assertLessEqual(max(map(len, table)), 101)

    def test_links_without_a_rate_are_noted_and_never_faster_than_those_inside(self):
        """As of a profile that was measured on one machine: it has no rate between nodes."""
        shape = ["plan", *RUN, *F32, *SHAPE, "--ranks", 4, "--pattern", "zero3", "--calibration", "none", "--json"]
        measured = [*shape, "--profile", "h100,node-link=10MB/s"]
        said = "note: profile h100,node-link=10MB/s says nothing of links between nodes: exchanges over them are priced as those within a node"
        inside, apart = self.succeeds(*measured, "--node-ranks", 4), self.succeeds(*measured, "--node-ranks", 1)
        self.assertEqual(inside.json["busy_seconds"]["comm0"], apart.json["busy_seconds"]["comm1"])
        self.assertGreaterEqual(apart.json["step_seconds"], inside.json["step_seconds"])
        self.assertNotIn("says nothing", inside.err)
        self.assertEqual(apart.err.count(said), 1, apart.err)
        rated = self.succeeds(*shape, "--profile", "h100,node-link=10MB/s,network=5MB/s", "--node-ranks", 1)
        self.assertNotIn("says nothing", rated.err)
        host = self.succeeds(*shape, "--node-ranks", 1, "-o", self.path("plan.json"))
        self.assertIn("between nodes: exchanges over them are priced as copies in memory", host.err)
        self.assertIn("says nothing of links between nodes", self.succeeds("simulate", self.path("plan.json")).err)
        self.assertNotIn("says nothing", self.succeeds(*shape).err)  # threads, whose exchanges are copies

    def test_a_topology_says_how_ranks_are_linked(self):
        """Sizes and links of a profile, alone or next to the figures of another one; flags of sizes go before."""
        shape = ["plan", *RUN, *F32, *SHAPE, "--ranks", 8, "--pattern", "levels", "--calibration", "none", "--json"]
        frontier = self.succeeds(*shape, "--topology", "frontier").json
        same = self.succeeds(*shape, "--profile", "frontier", "--pair-ranks", 2, "--node-ranks", 8).json
        self.assertEqual({**frontier, "profile": 0}, {**same, "profile": 0})
        self.assertNotIn("comm1", frontier["link_bytes"])
        two = self.succeeds(*shape, "--topology", "frontier,network=2x", "--node-ranks", 4).json
        self.assertGreater(two["link_bytes"]["comm1"], 0)
        single = self.succeeds(*shape, "--topology", "frontier", "--node-ranks", 1, "--pattern", "zero3").json
        self.assertNotIn("comm0", single["link_bytes"])
        without = self.succeeds(*shape, "--profile", "h100")
        self.assertIn("note: profile h100 says nothing of links between ranks", without.err)
        self.assertNotIn("links between ranks", self.succeeds(*shape, "--profile", "h100", "--topology", "frontier").err)
        other = self.succeeds(*shape, "--profile", "h100", "--topology", "frontier").json
        self.assertEqual(other["profile"]["name"], "h100,topology=frontier")
        self.assertEqual(other["busy_seconds"]["comm0"], frontier["busy_seconds"]["comm0"])
        self.assertLess(other["busy_seconds"]["compute"], frontier["busy_seconds"]["compute"])
        rows = self.succeeds(*shape, "--topology", "a100x8-800gbit", "--what-if", "topology=a100x8-80gbit").json["rows"]
        self.assertEqual(rows[1]["what"], "topology=a100x8-80gbit")
        crawl = ["--topology", "a100x8-80gbit,network=0.01GB/s", "--node-ranks", 4]
        slow, planned = self.succeeds(*shape[:-1], *crawl).out, self.succeeds(*shape, *crawl).json
        self.assertIn("limit:  comm1: the exchanges of these patterns take ", slow)
        self.assertEqual(planned["limiting_exchanges"], "comm1")
        self.assertGreater(planned["busy_seconds"]["comm1"], planned["limits"][0]["seconds"])
        alone = self.succeeds("plan", *RUN, *F32, "--topology", "frontier", "--calibration", "none", "--json").json
        self.assertIsNone(alone["limiting_exchanges"])
        self.assertEqual(alone["profile"]["name"], "frontier")
        self.fails(2, *shape, "--topology", "mi250x", "--profile", "h100", says="does not say how many ranks a node has")
        for name in ("h200", "built-in"):
            self.fails(2, *shape, "--topology", name, says=f"--topology {name}: the profile does not say how many ranks a node has")
        self.fails(2, *shape, "--topology", "nowhere", says="'nowhere' is neither a file nor a shipped profile")
        links = "--topology frontier has pairs of 2 and nodes of 8 ranks, and "
        for ranks, rest in ((12, "12 ranks leave one of them in part: give --ranks 8 or 16, or set"), (3, "3 ranks leave one of them in part: give --ranks 2 or 4, or set"),
                            (17, "17 ranks leave one of them in part: give --ranks 16 or 24, or set")):
            self.fails(2, "plan", *RUN, *F32, "--ranks", ranks, "--topology", "frontier", says=links + rest)
        self.fails(2, "plan", *RUN, *F32, "--ranks", 12, "--profile", "h100", "--topology", "h200x8", says="--topology h200x8 has nodes of 8 ranks, and 12 ranks")
        self.fails(2, "plan", *RUN, *F32, "--ranks", 12, "--profile", "frontier", says="the profile frontier has pairs of 2 and nodes of 8 ranks, and 12")
        self.fails(2, "plan", *RUN, *F32, "--ranks", 12, "--topology", "frontier", "--node-ranks", 3, says="pairs of 2 do not divide the 3 ranks of a node")
        self.succeeds("plan", *RUN, *F32, "--batch", 12, "--replicas", 12, "--ranks", 12, "--topology", "frontier", "--node-ranks", 4, *QUICK)

    def test_a_plan_is_replayed_with_the_sizes_it_was_made_for(self):
        plan = self.path("plan.json")
        shape = ["plan", *RUN, *F32, *SHAPE, "--ranks", 8, "--pattern", "zero3", "--calibration", "none", "--json", "-o", plan]
        made = self.succeeds(*shape, "--topology", "a100x8-800gbit", "--node-ranks", 4).json
        self.assertEqual(self.succeeds("simulate", plan, "--calibration", "none", "--profile", "a100-80g,node-link=300GB/s,network=12.5GB/s", "--json").json["program_hash"],
                         made["program_hash"])
        self.assertEqual(self.succeeds("inspect", plan, "--json").json["ranks"], "2x2x2")
        self.assertIn("ranks    2x2x2; the figures are of one", self.succeeds("inspect", plan).out)
        self.fails(2, "simulate", plan, "--topology", "a100x8-80gbit", says="nodes of 4 ranks, and the profile a100x8-80gbit has pairs of 1 and nodes of 8")
        made = self.succeeds(*shape, "--topology", "a100x8-800gbit").json
        slow = self.succeeds("simulate", plan, "--calibration", "none", "--topology", "a100x8-80gbit", "--json").json
        self.assertEqual((slow["program_hash"], slow["link_bytes"]), (made["program_hash"], made["link_bytes"]))
        shape = [*RUN, *F32, *SHAPE, "--ranks", 4]
        without, other = "plan again without --node-ranks and --pair-ranks", ["--profile", "built-in-2,disk-read=2x"]
        for sizes, profile, says in ((["--node-ranks", 4, "--pair-ranks", 2], [], without), (["--node-ranks", 4, "--pair-ranks", 2], other, without),
                                     (["--profile", "built-in-2,topology=frontier"], [], "give the --profile that the plan was made with")):
            self.succeeds("plan", *shape, *sizes, *profile, "-o", plan)
            self.fails(2, "train", *shape, *profile, "--data", self.corpus(), "--plan", plan,
                       says=f"is for pairs of 2 and nodes of 4 ranks, and this run has pairs of 1 and nodes of 4: {says}")

    def test_more_threads_than_cores_are_said(self):
        plan, cores = ["plan", *RUN, *F32, *SHAPE, "--ranks", 8, "--threads"], os.cpu_count()
        said = r"(?m)^ +they share \d+ cores?, which is not in the prices"
        self.assertRegex(self.succeeds(*plan, cores).out, said)
        self.assertNotRegex(self.succeeds("plan", *RUN, *F32, *SHAPE, "--threads", 1).out, said)
        self.assertNotRegex(self.succeeds(*plan, 1, "--node-ranks", 1).out, said)
        self.assertNotRegex(self.succeeds(*plan, cores, "--profile", "h100").out, said)

    def test_a_report_says_that_ranks_shared_cores(self):
        """Else it blames prices, operators and links for what the other ranks took."""
        said = re.compile(r"2 ranks \(--threads \d+\) share \d+ cores?, and each was\s+priced alone")
        run = ["--steps", 2, *F32, *SHAPE, "--ranks", 2, "--threads"]
        for threads, flags in ((os.cpu_count(), []), (os.cpu_count(), ["--profile", "built-in-2"])):
            folder = self.path(f"run{len(flags)}")
            self.train(*run, threads, *flags, "--save", folder, model=RUN)
            report = self.succeeds("report", folder, "--text").out
            self.assertEqual(bool(said.search(" ".join(report.split()))), not flags, report)

    def test_a_peak_that_no_step_reaches_is_said(self):
        """In memory on GPUs, host memory holds the first values until they are sent; then nothing."""
        shape = ["plan", "gpt2-xl", "--sequence", 64, "--batch", 8, "--gradients", "f32", *SHAPE, "--ranks", 4, "--search", "quick",
                 "--pattern", "zero1", "--profile", "h100,update-rate=1GB/s", "--calibration", "none"]
        kept = self.path("kept.json")
        found = self.succeeds(*shape, "--json", "-o", kept).json
        self.assertGreater(found["peak_bytes"]["host"], 0)
        self.assertEqual(found["step_peak_bytes"]["host"], 0)
        self.assertRegex(self.succeeds(*shape, "--plan", kept).out, r"(?m)^in a step +host up to 0 B; the rest is for first values, evaluations or saves$")
        self.assertNotIn("in a step ", self.succeeds(*shape, "--host-memory", "none").out)

    def test_the_least_of_a_link_is_no_more_than_a_plan_moves(self):
        """What other ranks send need not come over the link."""
        model, memory = ("gpt2", "device-memory=300MB,host-memory=3GB") if SHORT else ("gpt2-medium", "device-memory=1GB,host-memory=8GB")
        shape = [model, *(["--recompute", "all"] if SHORT else []), "--sequence", 512, "--batch", 8, "--gradients", "f32", *SHAPE, "--ranks", 4, "--search", "quick",
                 "--profile", f"rtx-4090,node-link=25GB/s,{memory}", "--calibration", "none", "--json"]
        for pattern in ("zero2", "zero3"):
            plan = self.succeeds("plan", *shape, "--pattern", pattern).json
            self.assertGreater(plan["link_bytes"]["h2d"], 0)
            for lane, least in plan["least_link_bytes"].items():
                self.assertLessEqual(least, plan["link_bytes"][lane], pattern)

    def test_a_wire_sends_fewer_bytes(self):
        shape = [*RUN, *F32, *SHAPE, "--ranks", 4, "--pattern", "zero3"]
        plans = {wire: self.succeeds("plan", *shape, "--wire", wire, "--json").json
                 for wire in ("stored", "bf16", "int8", "weights=int8,gradients=int4")}
        sent = [plan["link_bytes"]["comm0"] for plan in plans.values()]
        self.assertEqual(sent, sorted(set(sent), reverse=True))
        self.assertEqual(plans["weights=int8,gradients=int4"]["gradients_wire"], "int4")
        exact, packed = (self.train("--steps", 3, "--save", "none", *F32, *SHAPE, "--ranks", 4, "--pattern", "zero3", "--wire", wire,
                                    model=RUN) for wire in ("stored", "int8"))
        self.assertIn("between them weights travel as int8, gradients as int8", packed.err)
        self.assertNotEqual(self.says_hash(exact), self.says_hash(packed))
        plan = self.path("wired.json")
        self.succeeds("plan", *shape, "--wire", "int8", "-o", plan)
        self.succeeds("simulate", plan)
        numbers = ["--steps", 3, "--save", "none", *F32, *SHAPE, "--ranks", 4, "--plan", plan]
        self.assertEqual(self.says_hash(self.train(*numbers, "--wire", "int8", model=RUN)), self.says_hash(packed))
        self.fails(2, "train", *RUN, *numbers, "--data", self.corpus(), says="--wire weights=int8,gradients=int8: give the same")

    def test_sums_of_nccl_are_of_the_numeric_plan_alone(self):
        shape = [*RUN, *F32, *SHAPE, "--ranks", 4, "--pattern", "zero3", "--profile", "h100"]
        exact, library = (self.succeeds("plan", *shape, "--reduce", reduce, "--json").json for reduce in ("exact", "library"))
        self.assertEqual((exact["reduce"], library["reduce"]), ("exact", "library"))
        self.assertEqual({key for key in exact if exact[key] != library[key]}, {"reduce", "numeric_fingerprint"} & set(exact))
        screen = self.succeeds("plan", *shape, "--reduce", "library", "-o", self.path("library.json")).out
        self.assertIn("NCCL adds gradients in its own order (--reduce library)", screen)
        self.assertNotIn("NCCL", self.succeeds("plan", *shape).out)
        self.succeeds("simulate", self.path("library.json"))

    def test_a_plan_file_keeps_the_ranks(self):
        plan = self.path("plan.json")
        self.succeeds("plan", *RUN, *F32, *SHAPE, "--ranks", 4, "-o", plan)
        done = self.succeeds("simulate", plan, "--json").json
        self.assertEqual((done["replicas"], done["ranks"]), ("2", "2x2"))
        numbers = ["--steps", 2, "--save", "none", *F32, *SHAPE, "--plan", plan]
        self.assertEqual(self.says_hash(self.train(*numbers, "--ranks", 4, model=RUN)),
                         self.says_hash(self.train(*numbers[:-2], model=RUN)))
        for other, says in ((["--ranks", 2], "plan.json is for 4 ranks, and 2 are given: give the same number, or plan again"),
                            ([], "plan.json is for 4 ranks, and 1 is given"),
                            (["--ranks", 4, "--replicas", "4x2"], "cannot be divided"),
                            (["--ranks", 4, "--replicas", "2x4"], "plan.json is for --replicas 2x2x2: give the same"),
                            (["--ranks", 4, "--clip-mode", "previous"],
                             "plan.json is for --clip-mode exact, and --clip-mode previous or no clipping is given"),
                            (["--ranks", 4, "--clip", 0], "plan.json is for --clip-mode exact, and --clip-mode previous or no clipping is")):
            self.fails(2, "train", *RUN, *numbers, *other, "--data", self.corpus(), says=says)
        self.succeeds("plan", *RUN, *F32, *SHAPE, "--ranks", 4, "--clip-mode", "previous", "-o", plan)
        self.fails(2, "train", *RUN, *numbers, "--ranks", 4, "--data", self.corpus(),
                   says="plan.json is for --clip-mode previous or no clipping, and --clip-mode exact is given")

    def test_a_step_of_ranks_is_rehearsed_and_recorded(self):
        rehearsed = self.succeeds("plan", *RUN, *F32, *SHAPE, "--ranks", 2, "--rehearse", 8, "--json").json
        self.assertGreater(rehearsed["link_bytes"]["comm0"], 0)
        # a chunk that is gathered again and again has a newer version elsewhere while an older one is read
        for pattern in ("zero1", "zero3"):
            with self.subTest(pattern=pattern):
                self.succeeds("plan", "gpt2-nano", "--sequence", 16, "--batch", 8, "--micro-batch", 2, *F32, "--search", "quick", "--ranks", 2,
                              "--replicas", 2, "--pattern", pattern, "--device-memory", "8MiB", "--disk", self.folder, "--rehearse", 4, "--json")
        self.train("--steps", 4, "--save", self.path("recorded"), "--record", 2, *F32, *SHAPE, "--ranks", 2, model=RUN)
        self.succeeds("report", self.path("recorded"))
        slow = ["--profile", "built-in,node-link=1MB/s"]
        self.train("--steps", 2, "--save", self.path("slow"), "--record", 2, *slow, *F32, *SHAPE, "--ranks", 2, model=RUN)
        with open(self.path("slow", "run.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["limit"], "comm0")

    @in_full
    def test_no_placement_changes_a_bit(self):
        for flags in ([*F32, "--clip", "0"], [*F32, "--clip-mode", "previous"], [*F32, "--lora", "4"],
                      ["--dtype", "bf16", "--gradients", "f32"], [*F32, "--optimizer", "adamw8"]):
            with self.subTest(flags=flags):
                memory = self.succeeds("plan", *RUN, *flags, *SHAPE, "--json").json["in_memory_bytes"]
                quarter = ["--device-memory", f"{memory // 4096}KiB"]
                whole = self.hash_of_run(1, *flags)
                self.assertEqual(self.hash_of_run(4, *flags, *quarter, "--disk", self.folder, "--test-poison"), whole)
                self.assertEqual(self.hash_of_run(2, *flags, *quarter, "--emulate-host", "1GiB"), whole)

    def test_ranks_that_cannot_be_are_refused(self):
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 3, says="--replicas 2x2x2 cannot be divided between 3 ranks")
        self.fails(2, "plan", *RUN, *F32, "--ranks", 2, says="give --replicas 2")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 0, says="--ranks")
        self.fails(2, "train", *RUN, *F32, "--batch", 2048, "--replicas", 2048, "--ranks", 2048, "--data", self.corpus(), says="at most 1024 can train")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--pattern", "zero1", says="--pattern is for several ranks")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--pin", "*=zero1", says="a rank pattern is for several ranks")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--wire", "int8", says="--wire is for several ranks")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--reduce", "library", says="--reduce is for several ranks")
        for command in (["plan"], ["train", "--data", self.corpus(), "--save", "none"]):
            self.fails(2, *command, *RUN, *F32, *SHAPE, "--ranks", 2, "--pattern", "zero3", "--reduce", "library",
                       says="--reduce library: NCCL adds between GPUs, and these ranks compute on the host")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 2, "--profile", "h100", "--reduce", "library",
                   says="--reduce: results depend on what ranks divide, so name the rank pattern")
        self.fails(2, "plan", *RUN, *F32, "--node-ranks", 2, says="--node-ranks is for several ranks")
        self.fails(2, "plan", *RUN, *F32, "--pair-ranks", 2, says="--pair-ranks is for several ranks")
        self.fails(2, "plan", *RUN, *F32, "--pair-ranks", 4, says="add --ranks 4 --replicas 4")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 4, "--pair-ranks", 3, says="--pair-ranks 3 does not divide the 4 ranks of a node")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 4, "--profile", "h100,pair-link=9GB/s", says="give node-link= before pair-link=")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 2, "--wire", "int8", says="--wire: results depend on what ranks divide")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 2, "--pattern", "replicate", "--wire", "int8", says="--wire: only what ranks divide")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 2, "--pattern", "zero3", "--wire", "int3", says="--wire 'int3' is no wire")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 2, "--pattern", "zero", says="no rank pattern is called 'zero'")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 4, "--pattern", "1/1/3", says="each divides the next")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 2, "--clip-mode", "speculate", says="speculate on one rank only: give another --clip-mode (exact or previous)")
        self.fails(2, "train", *RUN, *F32, *SHAPE, "--ranks", 2, "--profile", "h100", "--data", self.corpus(), says="train computes on the host device")
        self.fails(2, "plan", *RUN, *F32, *SHAPE, "--ranks", 4, "--node-ranks", 3, says="--node-ranks 3 does not divide the 4 ranks")
        self.fails(2, "plan", *RUN, "--dtype", "bf16", *SHAPE, "--ranks", 2, says="give --gradients f32")

    def test_a_refusal_names_all_flags_that_have_to_change(self):
        for refused, all_of_them in [
            (["--ranks", 3], "--replicas 3 --batch 9 --gradients f32"), (["--ranks", 4], "--replicas 4 --gradients f32"),
            (["--ranks", 6, "--micro-batch", 4], "--replicas 6 --batch 12 --micro-batch 2 --gradients f32"),
            (["--ranks", 3, "--replicas", "2x2"], "--replicas 3 --batch 9 --gradients f32"),
            (["--ranks", 16, "--replicas", 3, "--gradients", "f32"], "--replicas 16 --batch 16"),
            (["--replicas", 3], "--batch 9 --gradients f32"), (["--replicas", 2, "--micro-batch", 8], "--micro-batch 4 --gradients f32"),
            (["--pattern", "zero1"], "--ranks 2 --replicas 2 --gradients f32"), (["--node-ranks", 4], "--ranks 4 --replicas 4 --gradients f32"),
            (["--ranks", 2, "--wire", "int8"], "--replicas 2 --gradients f32 --pattern zero3"),
            (["--ranks", 2, "--clip-mode", "speculate"], "--replicas 2 --gradients f32 --clip-mode exact"),
            (["--wire", "int8"], "--ranks 2 --replicas 2 --gradients f32 --pattern zero3"),
            (["--reduce", "library", "--profile", "h100"], "--ranks 2 --replicas 2 --gradients f32 --pattern zero3"),
            (["--ranks", 16, "--topology", "frontier"], "--replicas 2x4x2 --batch 16 --gradients f32"),
            (["--wire", "int8", "--replicas", 3], "--ranks 3 --batch 9 --gradients f32 --pattern zero3"),
        ]:
            with self.subTest(refused=refused):
                plan = ["plan", *TINY, "--batch", 8, "--dtype", "bf16", *refused]
                self.fails(2, *plan, says=all_of_them)
                self.succeeds(*plan, *all_of_them.split())


if __name__ == "__main__":
    unittest.main()
