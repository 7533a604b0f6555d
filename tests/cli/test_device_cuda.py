"""--device cuda:0 from end to end, on a played GPU: the kernels' own sources, emulated (tests/cuda/emulated_gpu.c).

Results are compared with the host device, and have the same bits under any placement."""

import json
import os
import re
import resource
import shutil
import unittest

import model_folder
import program
from program import COHOBATE, QUICK, SANITIZED, SHORT, ProgramTest, environment, pairs, run, sealed_again

GPU = os.environ["COH_EMULATED_GPU"]
NCCL = os.environ["COH_EMULATED_NCCL"]  # as CUDA_HOME: NCCL's double; empty: a build without NCCL
MPI = os.environ.get("COH_MPI_FOLDER", "")  # of the module of MPI; empty: a build without MPI
MPIRUN = os.environ.get("COH_MPIRUN", "under_mpirun.sh")
METERED = os.environ["COH_METERED"]  # the folder of a played NVML
LIBRARIES = 32 * 2**20 + 4096  # kept for libraries by a plan for a GPU
STEPS = 3
BATCH = ["--batch", 2, "--micro-batch", 1] if SHORT else ["--batch", 4, "--micro-batch", 2]  # two micro-batches


class DeviceCuda(ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.corpus()

    def gpu(self, seed=1, **more):
        return {"env": environment(**{"LD_LIBRARY_PATH": GPU, "COH_CUDA_LIBRARIES": "none", "COH_EMULATED_SEED": str(seed), **more})}

    def model(self, kind):
        model_folder.make(self.path(kind), kind, "F32")
        return self.path(kind)

    def train(self, model, *flags, seed=None, **more):
        """The last line's object after a few steps; seed None: on the host."""
        where = () if seed is None else ("--device", "cuda:0", "--profile", "h200")
        done = self.succeeds("train", model, *QUICK, "--sequence", 16, *BATCH, "--data", self.text,
                             "--steps", STEPS, "--lr", "1e-3", "--validation", "none", "--save", "none", "--threads", 2,
                             "--json", *where, *flags, **(self.gpu(seed, **more) if seed is not None else {}))
        return done.json

    def peak(self, model, *flags):
        done = self.succeeds("plan", model, *QUICK, "--sequence", 16, *BATCH,
                             "--profile", "h200", "--threads", 2, "--json", *flags)
        return done.json["in_memory_bytes"]

    def test_every_architecture_learns_as_on_the_host(self):
        """A short run takes each architecture in one dtype."""
        bounds = {"f32": 2e-5, "bf16": 2e-2}
        for kind, dtypes in (("gpt2", ("bf16", "f32")), ("opt", ("f32", "bf16")), ("llama", ("f32", "bf16"))):
            model = self.model(kind)
            for dtype in pairs(*dtypes):
                with self.subTest(kind=kind, dtype=dtype):
                    gpu, host = self.train(model, "--dtype", dtype, seed=1), self.train(model, "--dtype", dtype)
                    self.assertLess(host["loss"], 5.95 if kind == "gpt2" else 6.4)
                    self.assertAlmostEqual(gpu["loss"], host["loss"], delta=bounds[dtype] * host["loss"])
                    self.assertEqual(gpu["peak_bytes"], gpu["predicted_peak_bytes"])

    def test_a_run_records_clock_and_power_where_the_gpu_has_a_meter(self):
        model = self.model("gpt2")
        for folders, rows in ((f"{GPU}:{METERED}", 2), (GPU, 0)):
            self.train(model, "--steps", 2, "--save", self.path("run"), seed=1, LD_LIBRARY_PATH=folders)
            self.succeeds("report", self.path("run"), "-o", self.path("page.html"))
            with open(self.path("page.html"), encoding="utf-8") as file:
                page = file.read()
            self.assertEqual(page.count(">1.98 GHz</td>"), rows)
            self.assertEqual(len(re.findall(r">3\d\d W</td>", page)), rows)
            shutil.rmtree(self.path("run"))

    def test_a_report_asks_what_if_of_the_host_memory_that_the_run_had(self):
        """Too little of it for the plan of the run has no what-ifs, whatever is free when the report is read."""
        model, run = self.model("gpt2"), self.path("run")
        small = f"{LIBRARIES + (self.peak(model, '--dtype', 'bf16') - LIBRARIES) // 8 * 5 // 4096 * 4096}B"
        self.train(model, "--dtype", "bf16", "--device-memory", small, "--save", run, seed=1)
        path = os.path.join(run, "run.json")
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        for host, has_rows in ((record["budget_bytes"]["host"], True), (4096, False)):
            record["budget_bytes"]["host"] = host
            with open(path, "w", encoding="utf-8") as file:
                json.dump(record, file)
            rows = self.succeeds("report", run, "--json", **self.gpu()).json["what_if"]
            self.assertEqual(bool(rows), has_rows, rows)

    def test_several_gpus_have_the_bits_of_one(self):
        """Each rank on a GPU of its own, with NCCL's double; the twin makes the replicas on one GPU. The fewest tokens: the
        emulation runs one kernel at a time, of all GPUs."""
        if not NCCL:
            self.skipTest("this build has no NCCL")
        given = ("train", self.model("gpt2"), *QUICK, "--sequence", 8, "--batch", 2, "--micro-batch", 1, "--data", self.text, "--steps", 2,
                 "--lr", "1e-3", "--validation", "none", "--save", "none", "--threads", 1, "--json", "--profile", "h200",
                 "--dtype", "f32", "--replicas", 2)
        twin = self.succeeds(*given, "--device", "cuda", **self.gpu(1)).json
        # the played GPUs share one memory
        found = self.succeeds(*given, "--device", "cuda", "--device-memory", "128MiB", "--ranks", 2, "--pattern", "zero3",
                              **self.gpu(2, CUDA_HOME=NCCL, COH_EMULATED_GPUS="2")).json
        self.assertEqual((found["hash"], found["loss"]), (twin["hash"], twin["loss"]))

    def test_nccl_adds_between_gpus_if_asked_to(self):
        """Two ranks have one sum in any order, so the hash is the twin's; the numeric plan is another, which a resume reports."""
        if not NCCL:
            self.skipTest("this build has no NCCL")
        given = ("train", self.model("gpt2"), *QUICK, "--sequence", 8, "--batch", 2, "--micro-batch", 1, "--data", self.text,
                 "--lr", "1e-3", "--validation", "none", "--threads", 1, "--profile", "h200", "--dtype", "f32", "--replicas", 2,
                 "--device", "cuda")
        where = self.gpu(2, CUDA_HOME=NCCL, COH_EMULATED_GPUS="2")
        ranks = ("--device-memory", "128MiB", "--ranks", 2, "--pattern", "zero1")
        twin = self.succeeds(*given, "--steps", 2, "--save", "none", "--json", **self.gpu(1)).json
        done = self.succeeds(*given, *ranks, "--steps", 2, "--save", self.path("run"), "--reduce", "library", **where)
        self.assertIn("NCCL adds gradients in its own order (--reduce library)", done.err + done.out)
        self.assertIn(twin["hash"], done.err + done.out)
        with open(self.path("run/run.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["reduce"], "library")
        more = ("train", "--resume", self.path("run"), "--steps", 3, "--save", "none", "--profile", "h200", "--device", "cuda", *ranks)
        self.assertIn("reduce", self.succeeds(*more, **where).err)
        self.assertNotIn("numeric plan", self.succeeds(*more, "--reduce", "library", **where).err)
        self.fails(2, *given, "--steps", 2, "--save", "none", "--reduce", "library", says="--reduce is for several ranks", **self.gpu(1))

    def test_processes_of_a_launcher_have_the_bits_of_one_gpu(self):
        """Each sees both GPUs, or only its own, as with Slurm's --gpus-per-task; only the same one is refused."""
        if not NCCL or not MPI or run(1, "true", program=MPIRUN, as_given=True).code == 77:
            self.skipTest("this build has no NCCL, or there is no mpirun")
        given = ("train", self.model("gpt2"), *QUICK, "--sequence", 8, "--batch", 2, "--micro-batch", 1, "--data", self.text, "--steps", 2,
                 "--lr", "1e-3", "--validation", "none", "--save", "none", "--threads", 1, "--json", "--profile", "h200",
                 "--dtype", "f32", "--replicas", 2, "--device", "cuda")
        twin = self.succeeds(*given, **self.gpu(1)).json
        where = {"LD_LIBRARY_PATH": f"{GPU}:{MPI}", "CUDA_HOME": NCCL, "ASAN_OPTIONS": "detect_leaks=0"}
        many = (COHOBATE, *given, "--device-memory", "128MiB", "--pattern", "zero3")
        own = ("sh", "-c", 'COH_EMULATED_FIRST=$OMPI_COMM_WORLD_LOCAL_RANK exec "$@"', "sh")
        for gpus, start in pairs(("2", ()), ("1", own)):
            with self.subTest(gpus=gpus):
                done = run(2, *start, *many, program=MPIRUN, as_given=True, **self.gpu(2, COH_EMULATED_GPUS=gpus, **where))
                self.assertEqual(done.code, 0, done.out + done.err)
                found = json.loads(done.out.splitlines()[-1])
                self.assertEqual((found["hash"], found["loss"]), (twin["hash"], twin["loss"]))
        done = run(2, *many, program=MPIRUN, as_given=True, **self.gpu(2, **where))
        self.assertNotEqual(done.code, 0)
        self.assertIn("ranks 0 and 1 both compute on GPU 0000:01:00.0", done.err)

    def test_the_doctor_finds_gpus_that_are_linked_in_pairs(self):
        """By the links that NVML lists: bridges make pairs, if the processes' order follows them; a switch makes none."""
        if not NCCL or not MPI or run(1, "true", program=MPIRUN, as_given=True).code == 77:
            self.skipTest("this build has no NCCL, or there is no mpirun")
        where = {"LD_LIBRARY_PATH": f"{GPU}:{METERED}:{MPI}", "ASAN_OPTIONS": "detect_leaks=0", "COH_EMULATED_GPUS": "4"}
        for links, says in pairs(("1-2,3-4", "in pairs of 2"), ("1-3,2-4", "no pairs"), ("1-99,2-99,3-99,4-99", "no pairs")):
            done = run(4, COHOBATE, "doctor", program=MPIRUN, as_given=True, **self.gpu(2, COH_PLAYED_LINKS=links, **where))
            self.assertEqual(done.code, 0, done.out + done.err)
            self.assertIn(f"1 node of 4 ranks, {says}\n", done.out)
            self.assertEqual("within a pair" in done.out, says != "no pairs", done.out)

    def test_ranks_need_a_gpu_each(self):
        model = self.model("gpt2")
        given = ("train", model, "--sequence", 16, "--batch", 4, "--data", self.text, "--save", "none", "--gradients", "f32",
                 "--profile", "h200", "--replicas", 2, "--ranks", 2)
        self.fails(2, *given, "--device", "cuda", **self.gpu(),
                   says="2 ranks on this machine need 2 GPUs, one each: there is no GPU 1, the driver sees 1")
        self.fails(2, *given, "--device", "cuda:0", **self.gpu(),
                   says="--device cuda:0 is one GPU, and each of 2 ranks needs its own: give --device cuda")

    def test_where_things_stand_changes_no_bit(self):
        model = self.model("gpt2")
        in_memory = self.train(model, "--dtype", "bf16", seed=1)
        room = self.peak(model, "--dtype", "bf16")
        small = f"{LIBRARIES + (room - LIBRARIES) // 8 * 5 // 4096 * 4096}B"
        for seed, flags in pairs((2, ["--device-memory", small]), (4, ["--recompute", "all"]),
                                 (3, ["--device-memory", small, "--host-memory", "512KiB", "--disk", self.folder])):
            with self.subTest(flags=flags):
                found = self.train(model, "--dtype", "bf16", *flags, seed=seed)
                self.assertEqual((found["hash"], found["loss"]), (in_memory["hash"], in_memory["loss"]))
                self.assertEqual(found["peak_bytes"], found["predicted_peak_bytes"])

    def test_a_run_keeps_its_atomics_and_says_others(self):
        run, where = self.path("run"), ["--device", "cuda:0", "--profile", "h200"]

        def goes_on(steps, *flags):
            return self.succeeds("train", "--resume", run, "--steps", steps, "--threads", 2, *flags, **self.gpu()).err

        first = self.succeeds("train", self.model("gpt2"), *QUICK, "--sequence", 16, "--batch", 2, "--data", self.text, "--steps", 1,
                              "--validation", "none", "--dtype", "bf16", "--save", run, *where, "--atomics", "on", **self.gpu())
        self.assertIn("attention backward by atomics", first.err)
        kept = goes_on(2, *where)
        self.assertIn("attention backward by atomics", kept)
        self.assertNotIn("other rounding", kept)
        other = goes_on(3, *where, "--atomics", "off")
        self.assertIn("atomics on -> off: other rounding, the run will not continue bit for bit", other)
        self.assertIn("optimizer or kernel path): other rounding", other)
        self.assertNotIn("attention backward by atomics", goes_on(4, *where))
        self.assertIn("atomics off -> on: other rounding", goes_on(5, *where, "--atomics", "on"))
        self.assertIn("atomics on -> off: they are of a GPU", goes_on(6))
        self.fails(2, "train", "--resume", run, "--steps", 7, "--atomics", "on", says="--atomics on is of a GPU")

    def test_what_no_arena_gets_is_measured_and_said(self):
        context, module = 300 * 2**20, 3 * 2**20  # what the played GPU's take
        model = self.model("gpt2")
        overhead = self.train(model, "--dtype", "f32", seed=1)["device_overhead_bytes"]
        self.assertEqual(overhead["context"], context)
        self.assertGreater(overhead["libraries"], 0)
        self.assertEqual(overhead["libraries"] % module, 0)
        self.assertLess(overhead["free"], 4 * 2**30 - context - overhead["libraries"])
        self.assertNotIn("device_overhead_bytes", self.train(model, "--dtype", "f32"))
        doctor = self.succeeds("doctor", **self.gpu()).out
        self.assertIn("overhead: context and other programs 300.00 MiB, kernels and libraries "
                      f"{overhead['libraries'] / 2**20:.2f} MiB", doctor)

    def test_the_memory_node_by_a_gpu_is_said_and_used(self):
        nodes = {"COH_EMULATED_NODE": "0", "HWLOC_SYNTHETIC": "pack:2 [numa(indexes=0,60)] core:2 pu:1"}
        self.assertRegex(self.succeeds("doctor", **self.gpu(**nodes)).out, r"multiprocessors, near memory node 0\b")
        alone = dict(nodes, HWLOC_SYNTHETIC="node:1 core:2 pu:1")
        self.assertNotIn("near memory node", self.succeeds("doctor", **self.gpu(**alone)).out)
        model = self.model("gpt2")
        room = self.peak(model, "--dtype", "bf16")
        small = f"{LIBRARIES + (room - LIBRARIES) // 8 * 5 // 4096 * 4096}B"
        cases = [("60", "on 2 NUMA nodes, touched")]  # free memory is unknown there
        if os.path.exists("/sys/devices/system/node/node0/meminfo"):
            cases.append(("0", "on 1 NUMA node, the GPU's,"))
        for node, says in cases:
            told = self.succeeds("train", model, *QUICK, "--sequence", 16, *BATCH, "--data", self.text,
                                 "--steps", 1, "--validation", "none", "--save", "none", "--dtype", "bf16",
                                 "--device", "cuda:0", "--profile", "h200", "--device-memory", small,
                                 **self.gpu(**dict(nodes, COH_EMULATED_NODE=node))).err
            self.assertRegex(told, r"(?m)^arenas: device .*, host .*" + says)

    def test_a_gpu_that_others_fill_is_refused_before_anything_is_allocated(self):
        where = self.gpu()
        where["env"]["COH_EMULATED_OTHERS"] = str(3 * 2**30)
        self.fails(1, "train", self.model("gpt2"), "--sequence", 16, "--batch", 2, "--data", self.text, "--save", "none",
                   "--device", "cuda:0", "--profile", "h200", says="next to its context and other programs: at most 0 would fit",
                   **where)

    def test_a_plan_leaves_out_what_others_have_on_the_gpu(self):
        """As NVML says, and some more that they may take meanwhile; a budget that was given stays."""
        def budget(free, *flags):
            told = self.succeeds("plan", self.model("gpt2"), *QUICK, "--sequence", 16, "--batch", 1, "--device", "cuda:0", "--json",
                                 "--profile", "h200", *flags,
                                 **self.gpu(LD_LIBRARY_PATH=f"{GPU}:{METERED}", COH_PLAYED_FREE=str(free)))
            return told.json["budget_bytes"]

        alone = budget(4 << 30)
        self.assertEqual(alone - budget(3 << 30), (1 << 30) + (128 << 20))
        self.assertEqual(budget(3 << 30, "--device-memory", "64MiB"), 64 << 20)
        self.assertEqual(budget(8 << 30), alone)

    def test_a_gpu_of_another_kind_than_its_name_says_has_no_datasheet(self):
        """A forward pass needs no prices, so it takes any."""
        model, text = self.model("gpt2"), self.write("short.txt", "a short text " * 4)
        for name in ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA L40S"):
            where = {**self.gpu(COH_EMULATED_NAME=name)}
            self.fails(2, "plan", model, "--sequence", 16, "--batch", 1, "--device", "cuda:0", says="has no datasheet here", **where)
            self.assertIn("loss", self.succeeds("eval", model, "--data", text, "--sequence", 16, "--device", "cuda:0", "--json",
                                                **where).json)

    def table(self, words):
        product = {"dtype": "f32", "c_dtype": "f32", "layout": "nt", "rows": 7, "columns": 5, "depth": 3, "strides": [3, 3, 5],
                   "adds": False, "bias": False, "relu": False, "alignment": 256, "algorithm": words * 128, "microseconds": 1.5}
        self.write("kernels.json", json.dumps(
            {"format": "cohobate kernels", "version": 1, "machine": "m", "date": "2026-01-31", "threads": 0, "products": [],
             "devices": [{"name": "stub", "multiprocessors": 132, "cublaslt": 130100, "products": [product]}]}).encode())
        return ["--kernels", self.path("kernels.json")]

    def with_libraries(self, cublaslt, cudnn):
        found = self.gpu()
        found["env"].update(COH_CUDA_LIBRARIES=GPU, COH_LIBRARY_VERSION=str(cublaslt), COH_CUDNN_VERSION=str(cudnn))
        return found

    def test_libraries_and_their_algorithms_are_in_the_numeric_plan(self):
        model = self.model("gpt2")

        def numeric(version, *flags, cudnn=0):
            return self.succeeds("plan", model, *QUICK, "--sequence", 16, "--device", "cuda:0", "--profile", "h200", "--json", *flags,
                                 **self.with_libraries(version, cudnn)).json["numeric_fingerprint"]

        self.assertEqual(numeric(130100), numeric(130100))
        self.assertEqual(numeric(130100, cudnn=91800), numeric(130100))  # too old
        self.assertNotEqual(numeric(130100, cudnn=91801), numeric(130100))
        plans = [numeric(130100), numeric(130200), numeric(130100, *self.table("1")), numeric(130100, *self.table("2"))]
        self.assertEqual(len(set(plans)), 4, plans)
        self.assertEqual(numeric(130200, *self.table("1")), plans[1])  # another version's algorithms are not used

    def test_the_doctor_says_that_cudnn_is_too_old(self):
        for version, says in ((91800, "cuDNN 9.18.0 is not used: before 9.18.1"), (91801, "9.18.1, " + GPU)):
            self.assertIn(says, self.succeeds("doctor", **self.with_libraries(130100, version)).out)

    def test_a_table_of_algorithms_is_told_by_its_hash(self):
        hashes = {self.succeeds("inspect", self.table(words)[1], "--hash").out for words in ("1", "2", "1")}
        self.assertEqual(len(hashes), 2)
        self.assertNotIn("0" * 16 + "\n", hashes)

    def test_algorithms_are_timed_of_a_gpu_alone(self):
        self.fails(2, "profile", "gpt2-nano", "--quick", "--tune", self.path("kernels.json"), says="add --device cuda:0")

    def test_what_measuring_may_take_is_bounded_of_a_gpu_alone(self):
        profile = ["profile", "gpt2-nano", "--quick", "--device-memory"]
        self.fails(2, *profile, "1GB", says="add --device cuda:0")
        self.fails(3, *profile, "600MiB", "--device", "cuda:0", **self.gpu(),
                   says="takes 624.00 MiB of its memory at least, and 600.00 MiB may be taken: raise --device-memory to 624MiB")

    def as_measured(self):
        """h200's figures as a profile measured here, by the present program."""
        self.addCleanup(setattr, program, "COHOBATE", program.COHOBATE)
        program.COHOBATE = os.path.join(GPU, "as_measured")
        self.succeeds("measured", "h200", "stub", self.path("gpu.json"), **self.gpu())
        return self.path("gpu.json")

    def factors(self, done):
        return {line["opcode"]: line["factor"] for line in done["instructions"]}

    def test_what_runs_find_of_a_measured_gpu_prices_the_next_plan(self):
        model, profile, found = self.model("gpt2"), self.as_measured(), self.path("found.json")
        flags = ["--steps", 4, "--host-memory", "none", "--calibration", found, "--profile"]
        self.assertEqual(self.train(model, *flags, "h200", seed=7)["instructions"], [])  # a datasheet is a what-if
        self.assertFalse(os.path.exists(found))
        by_graphs = self.factors(self.train(model, *flags, profile, seed=7))
        # All lines of a graph share one time, divided as predicted. A line's share is a float, so each factor is within
        # 2^-24 of it, and printed to four places.
        self.assertAlmostEqual(by_graphs["forward"], by_graphs["backward"], delta=by_graphs["forward"] * 2**-23 + 1e-4)
        plan = ["plan", model, *QUICK, "--sequence", 16, *BATCH, "--threads", 2, "--json", "--profile", profile]
        plain, after = (self.succeeds(*plan, "--calibration", path, **self.gpu()).json for path in ("none", found))
        self.assertEqual((plain["profile"]["calibrated_runs"], after["profile"]["calibrated_runs"]), (0, 1))
        self.assertEqual(after["numeric_fingerprint"], plain["numeric_fingerprint"])
        self.assertNotEqual(after["step_seconds"], plain["step_seconds"])
        os.remove(found)
        by_lines = self.factors(self.train(model, *flags, profile, seed=7, COH_CUDA_GRAPHS="none"))
        self.assertEqual(set(by_lines), set(by_graphs))
        self.assertNotAlmostEqual(by_lines["forward"], by_lines["backward"], delta=by_lines["forward"] * 2**-23 + 1e-4)

    def test_a_profile_of_another_driver_or_gpu_is_noticed(self):
        profile, model = self.as_measured(), self.model("gpt2")
        ranks = self.succeeds("plan", model, *QUICK, "--sequence", 16, "--batch", 2, "--replicas", 2, "--ranks", 2, "--gradients", "f32",
                              "--profile", profile, **self.gpu())  # profile measures no exchange between GPUs
        self.assertIn("says nothing of links between ranks", ranks.err)
        for more, is_here in (({}, True), ({"COH_EMULATED_CUDA": "13990"}, False), ({"COH_EMULATED_NAME": "other"}, False)):
            with self.subTest(more=more):
                done = self.succeeds("plan", model, *QUICK, "--sequence", 16, "--device", "cuda:0", "--profile", profile, "--json",
                                     "--calibration", self.path("none-yet.json"), **self.gpu(**more))
                self.assertEqual("was measured on another machine" in done.err, not is_here)
                self.assertEqual(done.json["profile"]["what_if"], not is_here)

    def test_a_profile_measured_here_has_the_memory_of_now(self):
        """Others had most of the GPU and of main memory when it was measured."""
        model, path = self.model("gpt2"), self.as_measured()
        with open(path, encoding="utf-8") as file:
            text = file.read()
        memory = json.dumps({"device": 1 << 30, "host": 1 << 20, "disk": 0})
        full = self.write("full.json", sealed_again(text, ("memory_bytes", memory), ("cgroup_bytes", 64 << 20)))
        plan = ["plan", model, *QUICK, "--sequence", 16, *BATCH, "--device", "cuda:0", "--calibration", "none", "--profile"]
        now = self.succeeds(*plan, "h200", "--json", **self.gpu()).json["budget_bytes"]
        self.assertGreater(now, 1 << 30)
        for name, is_here in (("", True), ("other", False)):
            where = self.gpu(COH_EMULATED_NAME=name) if name else self.gpu()
            done = self.succeeds(*plan, full, "--json", **where)
            self.assertEqual("was measured on another machine" in done.err, not is_here)
            self.assertEqual(done.json["budget_bytes"], now if is_here else 1 << 30)
            self.assertEqual("host 1.00 MiB" in self.succeeds(*plan, full, **where).out, not is_here)
        train = ["train", model, *QUICK, "--sequence", 16, *BATCH, "--data", self.text, "--steps", 1, "--validation", "none",
                 "--device", "cuda:0", "--host-memory", "128MiB", "--calibration", "none", "--profile", full, "--save"]
        for run_folder, where in (("here", {}), ("other", {"COH_EMULATED_NAME": "other"})):
            self.succeeds(*train, self.path(run_folder), **self.gpu(**where))
            with open(self.path(run_folder, "run.json"), encoding="utf-8") as file:
                self.assertEqual(json.load(file)["budget_bytes"]["device"], now)

    def test_lines_launched_one_by_one_make_the_same_bits(self):
        model = self.model("llama")
        graphs, lines = self.train(model, seed=5), self.train(model, seed=6, COH_CUDA_GRAPHS="none")
        self.assertEqual((graphs["hash"], graphs["loss"]), (lines["hash"], lines["loss"]))

    def test_a_model_is_judged_and_speaks_as_on_the_host(self):
        model = self.model("llama")
        where = ["--device", "cuda:0", "--profile", "h200"]
        few = self.corpus(lines=40)  # the emulation takes seconds for all of the text
        judge = ["eval", model, "--data", few, "--sequence", 16, "--threads", 2, "--dtype", "f32", "--json"]
        host, gpu = self.succeeds(*judge), self.succeeds(*judge, *where, **self.gpu())
        self.assertAlmostEqual(gpu.json["loss"], host.json["loss"], delta=2e-5)
        speak = ["generate", model, "--prompt", "the first of many", "--tokens", 12, "--temperature", 0, "--threads", 2,
                 "--dtype", "f32"]
        self.assertEqual(self.succeeds(*speak, *where, **self.gpu()).out, self.succeeds(*speak).out)

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_the_host_tier_leaves_room_for_what_comes_before_it(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
        for flags, chunk in (([], 256 << 20), (["--chunk", "16MiB"], 16 << 20)):
            kept = (2 << 30) + (128 << 20) + 3 * chunk
            said = self.succeeds("plan", "gpt2-nano", "--sequence", 64, "--batch", 1, "--device", "cuda:0", "--profile", "h200",
                                 *flags, preexec_fn=lower, **self.gpu()).out
            self.assertLess(float(re.search(r"budget: .* host ([\d.]+) GiB", said)[1]) * 2**30, (12 << 30) - kept, said)

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_a_plan_says_that_the_gpu_or_its_host_has_too_little_memory(self):
        """Also by a datasheet, since the GPU is named. The size of the remedy leaves what the default leaves."""
        def lower():
            resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
        named = self.gpu(COH_EMULATED_NAME="NVIDIA H200")  # 4 GiB of memory
        where = ["--sequence", 64, "--batch", 1, "--device", "cuda:0", "--json"]
        plan = ["plan", "gpt2-medium", *QUICK, *where, "--host-memory", "none", "--device-memory"]
        for more in ([], ["--profile", "h200"]):
            done = self.succeeds(*plan, "40GB", *more, **named)
            self.assertRegex(done.json["refused_here"], r"^device memory: the plan takes \S+ GiB of the GPU's memory, and \S+ GiB may be"
                                                        r" taken now: \d+ bytes short; lower --device-memory to \S+$")
            self.assertIn("note: train would be refused here and now: " + done.json["refused_here"], done.err)
        done = self.succeeds("plan", "gpt2-xl", *QUICK, *where, "--host-memory", "64GiB", preexec_fn=lower, **named)
        self.assertIn("host memory: the plan takes", done.json["refused_here"])
        size = re.search(r"lower --host-memory to ([\d.]+)GiB$", done.json["refused_here"])[1]
        self.assertLess(float(size), 10)
        self.assertGreater(float(size), 6)
        # a GPU that is not here
        self.assertIsNone(self.succeeds("plan", "gpt2-medium", *QUICK, "--sequence", 64, "--batch", 1, "--profile", "h200", "--json",
                                        **self.gpu()).json["refused_here"])

    def test_a_plan_made_without_a_profile_is_replayed_by_the_gpus_datasheet(self):
        path = self.path("plan.json")
        made = self.succeeds("plan", self.model("gpt2"), "--sequence", 16, *BATCH, "--threads", 2,
                             "--device", "cuda:0", "--json", "-o", path, **self.gpu(COH_EMULATED_NAME="NVIDIA H200")).json
        self.assertEqual(made["profile"]["name"], "h200")
        for flags in ([], ["--profile", "h200"]):
            again = self.succeeds("simulate", path, "--json", *flags).json
            self.assertEqual((again["program_hash"], again["step_seconds"], again["profile"]["name"]),
                             (made["program_hash"], made["step_seconds"], "h200"))
        self.assertEqual(self.succeeds("explain", path, "wte", "--json").json["step_seconds"], made["step_seconds"])
        self.fails(2, "simulate", path, "--profile", "built-in", says="as the profile h200 has it: give that --profile")

    def test_a_kind_is_checked_on_a_gpu(self):
        library = os.path.join(os.path.dirname(os.path.dirname(program.COHOBATE)), "libcohobate.so")
        done = self.succeeds("check-kind", f"{library}:coh_kind_softmax", "--input", "f32:3,17", "--device", "cuda:0", **self.gpu())
        self.assertIn("nothing found; gradients compared: 1", done.out)

    def test_what_a_gpu_lacks_is_said_with_the_way_on(self):
        train = ["train", self.model("gpt2"), "--sequence", 16, "--batch", 2, "--data", self.text, "--save", "none"]
        self.fails(2, *train, "--device", "cuda:0", says="profile --device cuda:0", **self.gpu())
        self.fails(2, *train, "--device", "cuda:3", says="there is no GPU 3", **self.gpu())
        self.fails(2, *train, "--profile", "h200", says="--device cuda:0", **self.gpu())
        self.fails(2, *train, "--device", "cuda:0", "--profile", "h200", says="COH_CUDA_GRAPHS=off: unset it, or give 'none'",
                   **self.gpu(COH_CUDA_GRAPHS="off"))
        self.fails(3, *train, "--device", "cuda:0", "--profile", "h200", "--device-memory", "33MiB", "--host-memory", "64KiB",
                   says="--host-memory allows 65536", **self.gpu())
        self.fails(3, *train, "--device", "cuda:0", "--device-memory", "33MiB", "--host-memory", "64KiB",
                   says="(of --profile h200, ", **self.gpu(COH_EMULATED_NAME="NVIDIA H200"))

    def test_a_what_if_is_not_held_to_the_gpu_that_is_here(self):
        plan = ["plan", "gpt2-medium", *QUICK, "--sequence", 64, "--batch", 1, "--device", "cuda:0", "--json", "--what-if"]
        named = self.gpu(COH_EMULATED_NAME="NVIDIA H200")  # still 4 GiB of memory
        for more in ([], ["--profile", "h200"]):
            with self.subTest(more=more):
                rows = self.succeeds(*plan, "device-memory=4x", *more, **named).json["rows"]
                self.assertLess(rows[0]["peak_bytes"]["device"], 4 * 2**30)
                self.assertGreater(rows[1]["peak_bytes"]["device"], 4 * 2**30)
                self.assertLess(rows[1]["step_seconds"], rows[0]["step_seconds"])
        small = self.gpu()
        rows = self.succeeds(*plan, "device-memory=0.3x", "--profile", "h200", **small).json["rows"]
        self.assertLess(rows[1]["peak_bytes"]["device"], 0.3 * rows[0]["peak_bytes"]["device"] * 1.1)


if __name__ == "__main__":
    unittest.main()
