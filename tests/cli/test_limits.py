"""A request that does not fit is refused, naming tier, missing bytes and remedy; and the remedy works."""

import json
import os
import re
import resource
import signal
import unittest

from program import FAULTY, QUICK, SANITIZED, NANO, TINY, ProgramTest, bytes_of, environment, in_full, pairs, run

MIB = 1 << 20
# 150 MiB of parameters and states, plus activations that exceed 100 MiB.
ROOMY = ["plan", "gpt2-nano", *QUICK, "--threads", "2", "--device-memory", "100MiB"]
PROFILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "profiles")


class Limits(ProgramTest):
    def short(self, says, *arguments, **keywords):
        """The last line of a refusal, and how many missing bytes it reports."""
        said = self.fails(3, *arguments, says=says, **keywords).err.strip().split("\n")[-1]
        found = re.findall(r"(\d+) bytes short", said)
        self.assertEqual(len(found), 1, said)
        return said, int(found[0])

    def typed(self, needed, pattern, said):
        """The size that the sentence gives for `needed` bytes: it is enough, hardly more, and in a unit that a person types."""
        size = re.search(pattern, said)[1]
        self.assertRegex(size, r"^\d{1,4}(\.\d{1,3})?[KMGT]iB$")
        self.assertGreaterEqual(bytes_of(size), needed)
        self.assertLessEqual(bytes_of(size), needed * 1.002)
        return size

    def gpu(self, **more):
        with open(os.path.join(PROFILES, "a100-40g.json"), encoding="utf-8") as file:
            profile = json.load(file)
        profile["memory_bytes"]["disk"] = 0  # else it is used when the host tier is too small
        return self.write("gpu.json", json.dumps({**profile, **more}))

    def test_a_plan_says_that_its_drive_is_too_full(self):
        plan = ["plan", "gpt2-nano", *QUICK, "--device-memory", "64MiB"]
        for more in ([], ["--json"], ["--what-if", "disk-read=2x"]):  # nothing can be stored there: no drive, to train and to plan
            self.fails(5, *plan, "--disk", "/proc", *more, says="--disk /proc: no file can be made in it: ")
        self.fails(5, "plan", "--max", "gpt2-nano", "--disk", "/proc", says="--disk /proc: no file can be made in it: ")
        for elsewhere in (["--disk", self.folder], ["--disk", "/proc", "--profile", "built-in-2,disk-read=2x"]):
            done = self.succeeds(*plan, *elsewhere)
            self.assertNotIn("would be refused", done.err + done.out)
        os.chmod(self.folder, 0o500)
        done = self.succeeds(*plan, "--disk", self.folder)
        os.chmod(self.folder, 0o700)
        self.assertEqual(f"refused here and now: --disk {self.folder}: no file can be made in it" in done.err, os.getuid() != 0)
        self.assertEqual("to the byte; train would be refused here" in done.out, os.getuid() != 0)

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_a_plan_says_that_this_machine_has_too_little_memory(self):
        def lower():  # more than the 512 MiB that OpenBLAS maps, where its products are faster
            resource.setrlimit(resource.RLIMIT_AS, (1200 * MIB, 1200 * MIB))
        plan = ["plan", "gpt2", *QUICK, "--dtype", "f32", "--sequence", 64, "--batch", 1, "--device-memory", "4GiB"]
        says = "train would be refused here and now: device memory: the plan takes"
        done = self.succeeds(*plan, preexec_fn=lower)
        self.assertEqual(done.err.count(says), 1, done.err)
        self.assertIn("may be taken now (RLIMIT_AS: raise ulimit -v)", done.err)
        self.assertIn("to the byte; train would be refused here, see the note", " ".join(done.out.split()))
        done = self.succeeds(*plan, "--json", preexec_fn=lower)
        self.assertIn(says, done.err)
        self.assertRegex(done.json["refused_here"], r"^device memory: the plan takes .* short; lower --device-memory to [\d.]+MiB$")
        size = bytes_of(re.search(r"lower --device-memory to (\S+)$", done.json["refused_here"])[1])
        self.assertLess(size, (1200 - 128) * MIB)
        # a plan takes some of the address space, and not always as much
        done = self.succeeds(*plan, "--device-memory", f"{size - 100 * MIB}B", "--disk", self.folder, "--json", preexec_fn=lower)
        self.assertIsNone(done.json["refused_here"])
        # another machine has its own memory, and a plan that is small enough gets no note
        for more in (["--profile", "built-in,device-memory=4GiB"], ["--profile", "h100"]):
            done = self.succeeds(*plan, *more, "--json", preexec_fn=lower)
            self.assertNotIn("would be refused", done.err)
            self.assertIsNone(done.json["refused_here"])
        self.assertIsNone(self.succeeds("plan", *NANO, "--device-memory", "4GiB", "--json", preexec_fn=lower).json["refused_here"])

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_a_process_keeps_memory_in_addition_to_the_arenas_of_its_ranks(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_AS, (2000 * MIB, 2000 * MIB))
        for ranks, least in ((1, 700), (4, 140)):
            plan = ["plan", *NANO, "--batch", 4, "--replicas", 4, "--gradients", "f32", "--ranks", ranks, "--json"]
            had = self.succeeds(*plan, preexec_fn=lower).json["budget_bytes"]
            self.assertLessEqual(had, (2000 - 128) * MIB // ranks)
            self.assertGreater(had, least * MIB)

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_a_plan_that_takes_all_of_the_default_budget_starts(self):
        """Planning takes some of what was left when the budget was chosen."""
        def lower():
            resource.setrlimit(resource.RLIMIT_AS, (1400 * MIB, 1400 * MIB))
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                flags = ["gpt2", *QUICK, "--batch", 2, "--micro-batch", 1, "--sequence", 64, "--threads", 1, "--replicas", 2, "--gradients",
                         "f32", "--ranks", ranks, "--disk", self.folder]
                had = self.succeeds("plan", *flags, "--json", preexec_fn=lower).json["budget_bytes"]
                done = self.succeeds("train", *flags, "--data", self.corpus(), "--steps", 1, "--save", "none", preexec_fn=lower)
                self.assertGreater(int(re.search(r"device predicted (\d+) ", done.out)[1]), 0.9 * had)

    def test_a_plan_says_that_its_drive_has_too_little_room(self):
        plan = ["plan", "gpt2-nano", *QUICK, "--device-memory", "64MiB", "--disk", self.folder]
        peak = self.succeeds(*plan, "--json").json["peak_bytes"]["disk"]
        says = f"train would be refused here and now: the file system of {self.folder} has"
        for free in (0, peak // MIB - 1):
            done = self.succeeds(*plan, program=FAULTY, env=environment(COH_TEST_FREE_BYTES=str(free * MIB)))
            self.assertIn(says, done.err)
            self.assertIn("to the byte; train would be refused here, see the note", " ".join(done.out.split()))
        done = self.succeeds(*plan, program=FAULTY)
        self.assertNotIn("would be refused", done.err + done.out)

    def test_more_threads_than_cores_get_a_note(self):
        def one_core():
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        plan, replay = ["plan", *NANO[:-2], *QUICK], self.path("plan.json")
        train = ["train", *TINY[:-2], "--data", self.corpus(), "--steps", 1, "--save", "none"]
        note = "note: --threads 2 on 1 core: they take turns"
        for command in (plan, [*plan, "--json", "-o", replay], [*plan, "--what-if", "disk-read=2x"], train):
            self.assertEqual(self.succeeds(*command, "--threads", 2, preexec_fn=one_core).err.count(note), 1, command)
            self.assertNotIn("--threads", self.succeeds(*command, "--threads", 1, preexec_fn=one_core).err)
            self.assertNotIn("--threads", self.succeeds(*command, preexec_fn=one_core).err)
        # a plan for another machine has that machine's cores
        self.assertNotIn("they take turns", self.succeeds(*plan, "--threads", 2, "--profile", "h100", preexec_fn=one_core).err)

    def test_too_little_device_memory(self):
        plan = ["plan", *NANO, "--micro-batch", 2, "--device-memory"]
        said, short = self.short("device memory: ", *plan, "20MiB")
        needed = 20 * MIB + short
        self.succeeds(*plan, self.typed(needed, r", or raise --device-memory to (\S+)$", said))
        self.succeeds(*plan, f"{needed}B")
        self.assertEqual(self.short("device memory: ", *plan, f"{needed - 4096}B")[1], 4096)
        # with a far tier the lower bound is what is missing
        disk = ["--disk", self.folder]
        said, short = self.short("device memory: ", *plan, "1MiB", *disk)
        self.typed(MIB + short, r"raise --device-memory to at least (\S+)$", said)
        self.assertIn("(proven: no schedule", said)

    def test_what_is_proven_is_proven_with_the_flags_that_were_given(self):
        plan = ["plan", *NANO, "--device-memory", "1MiB", "--disk", self.folder]
        least = MIB + self.short("(proven: no schedule", *plan)[1]
        for flags, with_, remedy in [(["--chunk", "32MiB"], "with this --chunk ", "leave out --chunk"),
                                     (["--recompute", "none"], "with this --recompute ", "give --recompute auto")]:
            said, short = self.short(with_, *plan, *flags)
            self.assertIn("proven", said)
            if MIB + short > least:
                self.typed(least, rf", or {remedy} \(then at least (\S+)\)", said)
            else:
                self.assertNotIn(remedy, said)
        self.assertGreater(MIB + self.short("leave out --chunk", *plan, "--chunk", "32MiB")[1], least)

    def test_more_than_this_machine_has_is_refused_before_anything_is_read(self):
        train = ["train", "opt-66b", "--sequence", "32", "--batch", "1", "--data", self.corpus(), "--save", "none"]
        def lower():
            if not SANITIZED:  # a sanitizer maps terabytes
                resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
        # the plan shows what fits; a step in memory would take 800 GB or more here
        said, short = self.short("device memory: the plan takes", *train, "--device-memory", "9999GB",
                                 preexec_fn=lower)
        self.assertGreater(short, 600 << 30)
        self.assertRegex(said, r"lower --device-memory to [\d.]+[GT]iB$")

    def test_a_gpus_host_tier_is_raised_by_its_own_flag(self):
        plan = ["plan", *NANO, "--profile", self.gpu(), "--device-memory", "40MiB", "--host-memory"]
        for room in ("1MiB", "100MiB", "134MiB"):
            done = self.fails(3, *plan, room)
            self.assertNotIn("--emulate-host", done.err)

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_what_the_address_space_leaves_no_room_for_says_so(self):
        def lower(mib=275, most=None):
            limits = (mib * MIB, mib * MIB if most is None else most)
            return lambda: resource.setrlimit(resource.RLIMIT_AS, limits)
        train = ["train", *NANO, "--data", self.corpus(), "--save", "none", "--steps", 1]
        limit = r"the address-space limit \(ulimit -v 281600\) leaves \d\S* MiB for a plan"
        hard = "raise it where it was set, since it is a hard limit"
        # the default budget keeps a reserve, so that the limit leaves room for a plan and the default none
        more = rf", 0 B by default, and for more {hard}: also with --disk DIR, which is needed: device memory: 0 B "
        for command in (["plan", *NANO], train, ["plan", "gpt2-large"]):
            said = self.fails(3, *command, preexec_fn=lower(), says=hard).err
            self.assertRegex(said, rf"{limit}{more}.*; raise --device-memory to at least [\d.]+[KM]iB$")
        # the refusal's own changes, which help within the limit, are kept
        limit_of_more = r"\(ulimit -v 491520\) leaves [\d.]+ MiB for a plan, [\d.]+ MiB by default, and for more raise it .*"
        gpt2 = ["plan", "gpt2", "--dtype", "bf16"]
        said = self.fails(3, *gpt2, preexec_fn=lower(480), says="this step needs").err
        self.assertRegex(said, limit_of_more + r"without a far tier; a change that is enough: --disk DIR:[\d.]+GiB, where micro-batch \d+ fits, or raise")
        self.succeeds(*gpt2, "--disk", self.folder, *QUICK, preexec_fn=lower(480))
        pinned = [*gpt2, "--disk", self.folder, "--sequence", 1024, "--pin", "blocks.*=keep"]
        said = self.fails(3, *pinned, preexec_fn=lower(430), says="leave out pins").err
        self.assertRegex(said, limit_of_more.replace("491520", "440320") + r"with these pins no schedule .* or leave out pins \(then at least [\d.]+MiB\)$")
        self.assertRegex(self.fails(3, *train, "--device-memory", "1GiB", preexec_fn=lower(), says=hard).err,
                         rf"{limit}, and for more {hard}: device memory: the plan takes [^()]*; lower --device-memory to")
        run_folder = self.path("small")
        self.succeeds("train", *NANO, "--data", self.corpus(), "--save", run_folder, "--steps", 1)
        measure = ["eval", run_folder, "--data", self.corpus(), "--sequence", 1024, "--micro-batch", 8, "--device-memory", "1GiB"]
        self.assertRegex(self.fails(3, *measure, preexec_fn=lower(), says=hard).err,
                         rf"{limit}, and for more {hard}: device memory: the plan takes [^()]*; lower --device-memory to")
        for most, remedy in ((1 << 40, "1073741824"), (resource.RLIM_INFINITY, "unlimited")):
            self.fails(3, "plan", *NANO, preexec_fn=lower(275, most), says=f"for more raise it by ulimit -Sv {remedy}: also")
        # a budget that is too small by itself is not blamed on the limit
        said = self.fails(3, "plan", *NANO, "--device-memory", "1MiB", preexec_fn=lower()).err
        self.assertNotIn("ulimit", said.strip().split("\n")[-1])  # the note on OpenBLAS may be before it
        memory = [f for f in self.succeeds("doctor", "--json", preexec_fn=lower()).json["findings"]
                  if f["subject"] == "memory"][0]
        self.assertEqual(memory["remedy"], "raise ulimit -v")

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_a_limit_of_data_says_so(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_DATA, (200 * MIB, 200 * MIB))
        train = ["train", "gpt2", "--data", self.corpus(), "--sequence", 16, "--batch", 1, "--save", "none", "--steps", 1]
        said = self.fails(3, *train, "--device-memory", "4GiB", preexec_fn=lower, says="data-segment").err
        self.assertRegex(said, r"the data-segment limit \(ulimit -d 204800\) leaves ([\d.]+ MiB) for a plan, and for more raise it where it was"
                               r" set, since it is a hard limit: device memory: the plan takes [^()]*, and \1 may be taken now: ")
        memory = [f for f in self.succeeds("doctor", "--json", preexec_fn=lower).json["findings"] if f["subject"] == "memory"][0]
        self.assertIn("(RLIMIT_DATA)", memory["found"])
        self.assertEqual(memory["remedy"], "raise ulimit -d")

    @unittest.skipIf(SANITIZED, "a sanitizer's frames are larger")
    def test_a_small_stack_is_raised_or_refused(self):
        def lower(most):
            return lambda: resource.setrlimit(resource.RLIMIT_STACK, (64 << 10, most))
        train = ["train", *NANO, "--data", self.corpus(), "--save", "none", "--steps", 1]
        self.succeeds(*train, preexec_fn=lower(8 * MIB))
        self.fails(3, *train, preexec_fn=lower(64 << 10), says="a stack of 64 KiB (ulimit -s) is too small")

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_a_small_address_space_ends_no_command_and_keeps_none_from_ending(self):
        def lower(mib):
            return lambda: resource.setrlimit(resource.RLIMIT_AS, (mib * MIB, mib * MIB))
        avx2 = environment(COH_ISA="avx2")  # where OpenBLAS multiplies f32
        for mib in (65, 80, 100, 150, 200, 300):
            for command in (["--help"], ["doctor"], ["inspect", "h100"]):
                with self.subTest(mib=mib, command=command):
                    done = run(*command, env=avx2, preexec_fn=lower(mib))
                    # 127 is the system's loader, which prints a message. With 65 MiB a library's constructor may end
                    # the program before its first line; `run` fails a command that does not end.
                    if mib >= 80:
                        self.assertIn(done.code, (0, 127) if mib < 200 else (0,), done.err)
        # OpenBLAS maps 128 MiB for each concurrent call: if it cannot, products fall back, and that is reported
        done = self.succeeds("doctor", "--json", env=avx2, preexec_fn=lower(350))
        blas = [finding for finding in done.json["findings"] if finding["subject"] == "BLAS"][0]
        self.assertEqual(blas["level"], "warn")
        self.assertIn("raise ulimit -v", blas["remedy"])
        done = self.succeeds("train", *NANO, "--dtype", "f32", "--data", self.corpus(), "--save", self.path("run"), "--steps", 1,
                             "--device-memory", "32MiB", "--disk", self.folder, env=avx2, preexec_fn=lower(350))
        self.assertRegex(done.err, r"note: OpenBLAS cannot be loaded, .*\(kernel path \w+\+panels\): .*raise ulimit -v")
        with open(self.path("run", "run.json"), encoding="utf-8") as file:
            fallbacks = json.load(file)["fallbacks"]
        self.assertTrue([f for f in fallbacks if f.startswith("products run without OpenBLAS: ")], fallbacks)
        self.assertIn("products run without OpenBLAS", " ".join(self.succeeds("report", self.path("run"), "--text").out.split()))

    @in_full
    def test_too_little_host_memory(self):
        plan = ["plan", *NANO, "--micro-batch", 2, "--device-memory"]
        # what all tiers together lack is known before a plan is searched
        said, short = self.short("all tiers together hold ", *plan, "40MiB", "--emulate-host", "10MiB")
        self.assertGreater(short, 12 * 11e6 - 50 * MIB)  # at least parameters and two states in f32
        least = re.search(r"raise --emulate-host to at least ([\d.]+MiB)", said)[1]
        self.succeeds(*plan, "40MiB", "--emulate-host", f"{bytes_of(least) + 8 * MIB}B")
        self.needs_exactly("host memory: ", [*ROOMY, "--emulate-host"], "", first="all tiers together hold ")

    def needs_exactly(self, says, plan, place, first=None):
        """Whatever room exceeds the states', one amount is named; with it there is a plan, with a page less none."""
        first, short = self.short(first or says, *plan, f"{place}10MiB")
        states = ((10 * MIB + short) // MIB + 1) * MIB
        said, short = self.short(says, *plan, f"{place}{states}B")
        needed = states + short
        if says == "disk: ":  # the first refusal names the plan's room, not the states'
            self.typed(needed, r"give --disk DIR:(\S+)$", first)
        self.succeeds(*plan, f"{place}{self.typed(needed, r'(?: to |DIR:)([0-9.]+[KMG]iB)', said)}")
        for room in ((states + needed) // 2 // 4096 * 4096, needed - 4096):
            said, short = self.short(says, *plan, f"{place}{room}B")
            self.assertEqual(room + short, needed)
        peak = self.succeeds(*plan, f"{place}{needed}B", "--json").json["peak_bytes"]
        self.assertLessEqual(peak[says[:4]], needed)

    def test_a_report_asks_what_if_of_the_memory_that_the_run_had(self):
        """Without --device-memory a run has the memory that is free then, not when it is read."""
        folder = self.path("run")
        self.succeeds("train", "gpt2-pico", "--data", self.corpus(), "--steps", 2, "--sequence", 32, "--batch", 1, "--threads", 1,
                      "--calibration", "none", "--save", folder)
        path = os.path.join(folder, "run.json")
        with open(path, encoding="utf-8") as file:
            record = file.read()
        had = json.loads(record)["budget_bytes"]["device"]
        with open(path, "w", encoding="utf-8") as file:
            file.write(record.replace(f'"budget_bytes": {{"device": {had}', f'"budget_bytes": {{"device": {100 * MIB}'))
        self.assertIn("(--device-memory 80MiB)", " ".join(self.succeeds("report", folder, "--text").out.split()))

    def test_a_report_offers_no_memory_that_the_machine_of_the_run_lacks(self):
        """A plan that recomputes would use more memory. No machine has a pebibyte of it, whatever its profile says."""
        with open(self.gpu(), encoding="utf-8") as file:
            profile = json.load(file)
        host = self.write("host.json", json.dumps({**profile, "device": "host"}))
        run = ["train", "gpt2-pico", "--data", self.corpus(), "--steps", 2, "--sequence", 32, "--batch", 1, "--threads", 1,
               "--calibration", "none", "--recompute", "all"]
        for name, flags in (("plain", []), ("profile", ["--profile", host])):
            folder = self.path(name)
            self.succeeds(*run, "--save", folder, *flags)
            path = os.path.join(folder, "run.json")
            with open(path, encoding="utf-8") as file:
                record = file.read()
            had = json.loads(record)["budget_bytes"]["device"]
            for budget, more in ((100 * MIB, ["125MiB", "150MiB", "200MiB"]), (1 << 50, [])):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(record.replace(f'"budget_bytes": {{"device": {had}', f'"budget_bytes": {{"device": {budget}'))
                report = self.succeeds("report", folder, "--json").json
                rows = " ".join(row["text"] for row in report["what_if"])
                found = re.findall(r"more device memory \(--device-memory (\w+)\)", rows)
                self.assertEqual(found, more[:len(found)] if report["what_if_unplanned"] else more, (name, rows))

    def test_too_little_disk(self):
        plan = ["plan", *NANO, "--micro-batch", 2]
        said, short = self.short("disk: ", *plan, "--device-memory", "40MiB", "--disk", self.folder + ":10MiB")
        self.assertGreater(short, 12 * 11e6 - 10 * MIB)
        least = re.search(r"give --disk DIR:(\S+)$", said)[1]
        self.succeeds(*plan, "--device-memory", "40MiB", "--disk", f"{self.folder}:{least}")
        self.needs_exactly("disk: ", [*ROOMY, "--disk"], self.folder + ":")

    def test_a_disk_that_suffices_is_named_where_none_was_given(self):
        for flags in pairs([], ["--sweep-order", "auto", "--micro-batch", 2]):
            plan = [*ROOMY, *flags]
            said = self.fails(3, *plan, says="a change that is enough: --disk DIR:").err
            size = re.search(r"--disk DIR:([\d.]+\w+), where micro-batch \d fits", said)[1]
            self.succeeds(*plan, "--disk", f"{self.folder}:{size}")

    def test_a_host_tier_that_may_not_be_locked(self):
        plan = ["plan", *NANO, "--device-memory", "40MiB", "--json", "--profile"]
        peak = self.succeeds(*plan, self.gpu()).json["peak_bytes"]["host"]
        self.assertGreater(peak, 8 * MIB)
        said, short = self.short("host memory: the plan pins", *plan, self.gpu(memlock_bytes=8 * MIB))
        self.assertIn("ulimit -l unlimited", said)
        self.assertEqual(int(re.search(r"pins (\d+) bytes", said)[1]), 8 * MIB + short)
        self.succeeds(*plan, self.gpu(memlock_bytes=peak))
        self.fails(3, *plan, self.gpu(memlock_bytes=peak - 4096), "--micro-batch", 2, says="4096 bytes short")
        # a host device pins nothing
        with open(self.path("gpu.json"), encoding="utf-8") as file:
            profile = json.load(file)
        host = self.write("host.json", json.dumps({**profile, "device": "host", "memlock_bytes": 8 * MIB}))
        self.succeeds(*plan, host, "--emulate-host", "400MiB")

    def in_a_cgroup(self, mib):
        """What makes a program begin in a group of that much memory, where groups may be made."""
        for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            group = os.path.join(root, f"cohobate-test-{os.getpid()}-{mib}")
            try:
                os.mkdir(group)
                self.addCleanup(os.rmdir, group)
                with open(os.path.join(group, name), "w", encoding="ascii") as file:
                    file.write(str(mib * MIB))
            except OSError:
                continue

            def enter():
                with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
                    file.write(str(os.getpid()))
            return enter
        return self.skipTest("no group of memory can be made here")

    @unittest.skipIf(SANITIZED, "a sanitizer takes more memory than the group has")
    def test_a_container_that_leaves_no_memory_is_named_and_no_flag_that_does_not_help(self):
        train = ["train", *TINY, "--data", self.corpus(), "--save", "none", "--steps", 1]
        raised = "raise memory.max and memory.high of the cgroup or its container"
        enter = self.in_a_cgroup(100)
        self.fails(3, *train, says=f"the memory cgroup (limit 100.00 MiB, less a reserve) leaves no memory for a plan: {raised}",
                   preexec_fn=enter)
        said = self.fails(3, *train, "--device-memory", "8MiB", "--emulate-host", "4MiB", says=f"(the memory cgroup: {raised})",
                          preexec_fn=enter).err
        self.assertTrue(said.endswith(" bytes short\n"), said)
        # by default some is kept, which a flag may take
        self.fails(3, *train, says="less a reserve) leaves ", preexec_fn=self.in_a_cgroup(200))
        self.succeeds(*train, "--device-memory", "8MiB", preexec_fn=self.in_a_cgroup(300))

    @unittest.skipIf(SANITIZED, "a sanitizer maps terabytes")
    def test_a_limit_that_leaves_nothing_names_no_budget_of_0_bytes(self):
        train = ["train", *TINY, "--data", self.corpus(), "--save", "none", "--steps", 1, "--device-memory", "8MiB",
                 "--emulate-host", "4MiB"]
        said = self.fails(3, *train, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (160 * MIB, 160 * MIB))).err
        self.assertRegex(said, r"\(ulimit -v \d+\) leaves 0 B: raise it")
        self.assertNotRegex(said, r"to 0 ?B")

    def test_limits_of_files_are_named_by_what_meets_them(self):
        text, run_folder = self.corpus(), self.path("run")
        self.succeeds("train", *TINY, "--data", text, "--steps", 2, "--save", run_folder)

        def limit(which, count):
            def lower():
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(which, (count, count))
            return lower
        for command in (["plan", *TINY], ["report", run_folder], ["trace", run_folder]):
            self.fails(5, *command, "-o", self.path("out.html" if command[0] == "report" else "out.json"),
                       says="File too large: raise the limit of file sizes (ulimit -f)", preexec_fn=limit(resource.RLIMIT_FSIZE, 2000))
        named = set()
        for command in (["tokenize", text, "--tokenizer", "bytes", "-o", self.path("out")], ["eval", run_folder, "--data", text],
                        ["train", *TINY, "--data", text, "--save", "none", "--steps", 1, "--validation", text]):
            for count in range(5, 12):  # standard streams, and what the system opens to start a program
                done = run(*command, preexec_fn=limit(resource.RLIMIT_NOFILE, count))
                last = done.err.strip().split("\n")[-1]
                if "Too many open files" in last:
                    self.assertEqual(done.code, 5, last)
                    self.assertIn("Too many open files: raise the limit of open files (ulimit -n)", last)
                    named.add(command[0])
        self.assertTrue(named)

    def test_budgets_above_the_limit_of_the_cgroup(self):
        with open(self.gpu(), encoding="utf-8") as file:
            profile = json.load(file)
        host = self.write("host.json", json.dumps({**profile, "device": "host", "cgroup_bytes": 100 * MIB}))
        for command in ("plan", "train"):
            run = [command, *NANO, "--profile", host]
            if command == "train":
                run += ["--data", self.corpus(), "--save", "none", "--steps", 1]
            said, short = self.short("device memory: up to", *run, "--device-memory", "300MiB")
            self.assertEqual(short, 200 * MIB)
            self.assertIn("memory.max and measure again, or lower --device-memory to 100MiB", said)
        run = ["plan", *NANO, "--profile", host, "--device-memory", "60MiB"]
        _, short = self.short("--device-memory and --emulate-host together", *run, "--emulate-host", "300MiB")
        self.assertEqual(short, 260 * MIB)
        self.succeeds(*run, "--disk", self.folder)
        # with a GPU the host tier counts, and a budget that was not given keeps to the limit
        gpu = self.gpu(cgroup_bytes=300 * MIB)
        run = ["plan", *NANO, "--profile", gpu, "--device-memory", "40MiB"]
        self.assertLessEqual(self.succeeds(*run, "--json").json["peak_bytes"]["host"], 300 * MIB)
        said, short = self.short("host memory: up to", *run, "--host-memory", "1GiB")
        self.assertEqual(short, 724 * MIB)
        self.assertIn("lower --host-memory", said)


if __name__ == "__main__":
    unittest.main()
