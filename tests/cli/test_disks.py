"""Several --disk: the same bits, each folder's share and limit, a sentence for every list that cannot work, and a drive
that vanishes in the middle of a run."""

import contextlib
import os
import re
import resource
import shutil
import unittest

from program import COHOBATE, FAULTY, NANO, QUICK, TrainTest, bytes_of, environment, last_save, run, start, wait_for_save

STREAMED = ["--device-memory", "64MiB"]
WRITES = ["--disk-write-limit", "1000000TB/day"]
MIB = 1 << 20


def other_file_system(folder):
    """A folder on another file system that can be written, or None."""
    other = "/dev/shm"
    is_there = os.path.isdir(other) and os.access(other, os.W_OK)
    return other if is_there and os.stat(other).st_dev != os.stat(folder).st_dev else None


class Disks(TrainTest):
    def folders(self, *names, limit=""):
        flags = []
        for name in names:
            os.makedirs(self.path(name), exist_ok=True)
            flags += ["--disk", self.path(name) + limit]
        return flags

    def test_one_two_and_three_folders_give_the_bits_of_the_run_in_memory(self):
        run = ["--steps", 2, "--save", "none"]
        expected = self.says_hash(self.train(*run, model=NANO))
        for flags in (self.folders("a"), self.folders("a", "b"), self.folders("a", "b", "c"),
                      self.folders("a", "b", limit=":150MiB"),
                      [*self.folders("a"), "--disk", self.path("b") + ":70MiB"]):
            done = self.train(*run, *STREAMED, *flags, model=NANO)
            self.assertEqual(self.says_hash(done), expected, flags)
            self.assertEqual(os.listdir(self.path("a")), [])
            shares = re.findall(r" (\d+) % of the working store", done.err)
            self.assertEqual(len(shares), 0 if len(flags) == 2 else len(flags) // 2, done.err)
            self.assertTrue(not shares or abs(sum(map(int, shares)) - 100) <= 2, done.err)

    def test_a_run_goes_on_with_other_folders(self):
        unbroken = self.says_hash(self.train("--steps", 3, "--save", "none", model=NANO))
        self.train("--steps", 1, "--schedule-steps", 3, "--save", self.path("run"), *STREAMED, *self.folders("a", "b"), model=NANO)
        done = self.resumed(self.path("run"), "--steps", 3, *STREAMED, *self.folders("b", "a", "c"))
        self.assertEqual(self.says_hash(done), unbroken)
        loss = re.compile(r"loss [\d.]+")
        said = [loss.search(self.succeeds("eval", self.path("run"), "--data", self.corpus(40), *flags).out)[0]
                for flags in ([], [*STREAMED, *self.folders("a", "b")])]
        self.assertEqual(said[0], said[1])

    def test_a_stopped_run_names_all_folders(self):
        process = start("train", *NANO, "--data", self.corpus(), "--steps", 10000, "--save-every", 1,
                        "--save", self.path("run"), *STREAMED,
                        *WRITES, *self.folders("a", "b", limit=":1GiB"))
        wait_for_save(process, self.path("run"))
        process.terminate()
        said = process.communicate()[1].decode()
        self.assertEqual(process.returncode, 75, said)
        self.assertIn(f"--disk {self.path('a')}:1GiB --disk {self.path('b')}:1GiB", said)

    def test_lists_that_cannot_work(self):
        plan = ["plan", *NANO, *STREAMED]
        two = self.folders("a", "b")
        self.fails(2, *plan, *two, "--disk", self.path("b", "..", "a"), says="are one folder: name each folder once")
        self.fails(2, *plan, *self.folders(*"abcdefgh"), "--disk", self.folder, says="--disk is given more than 8 times")
        self.fails(2, *plan, *two, "--disk", self.path("none"), says=f"--disk {self.path('none')}")
        self.fails(2, *plan, *two, "--disk", f"{self.folder}:1MiB", says=":1MiB holds nothing: each of several folders holds a multiple of 2MiB")
        self.fails(2, *plan, *two, "--disk", ":1GiB", says="--disk takes DIR, DIR:SIZE or none")
        for command in (plan, ["train", *NANO, *STREAMED, "--data", self.corpus()]):
            self.fails(2, *command, "--disk", f"{self.folder}:", says=f"--disk {self.folder}:: the size after the colon is missing")
            for wrong in ("-1GB", "x", "GB", ".5GB"):
                self.fails(2, *command, "--disk", f"{self.folder}:{wrong}", says=f"'{wrong}' after the colon is not a size")
            said = self.fails(2, *command, "--disk", f"{self.folder}:1GB:2GB", says=f"--disk {self.folder}:1GB: there is no such folder, ").err
            self.assertIn(f"give one size, for example --disk {self.folder}:1GB", said)
            self.assertNotIn("not a size", said)
        with_colon = self.path("a:b")
        os.mkdir(with_colon)
        self.succeeds(*plan, "--disk", with_colon)
        said = self.fails(2, "doctor", "--folder", self.folder, "--folder", self.folder + "/.", says="are one folder").err
        self.assertNotIn("--disk", said)

    def test_limits_add_up(self):
        plan = ["plan", *NANO, "--micro-batch", 2, "--device-memory", "40MiB"]
        said = self.fails(3, *plan, *self.folders("a", "b", limit=":10MiB"), says="disk: ").err
        least = bytes_of(re.search(r"raise the sum of the --disk limits \(whole 2 MiB of each\) to (\S+)$", said.strip())[1])
        half = (least // 2 // (2 * MIB) + 2) * 2
        self.succeeds(*plan, *self.folders("a", "b", limit=f":{half}MiB"))
        # of two budgets that are too small the refusal names whole units of all folders, so that equal parts are enough
        small = ["plan", "gpt2-nano", "--search", "quick"]
        said = self.fails(3, *small, "--device-memory", "16MiB", *self.folders("a", "b", limit=":10MiB"), says="; enough is --device-memory ").err
        device, together = re.search(r"enough is --device-memory (\S+) --disk \(all together\):(\S+)$", said.strip()).groups()
        self.assertEqual(bytes_of(together) % (4 * MIB), 0)
        self.succeeds(*small, "--device-memory", device, *self.folders("a", "b", limit=f":{bytes_of(together) // 2 // MIB}MiB"))
        train = ["train", *NANO, *STREAMED, "--data", self.corpus(), "--save", "none", "--steps", 1]
        self.fails(5, *train, *self.folders("a"), "--disk", "/proc:60MiB", says="--disk /proc: no file can be made in it: ")
        said = self.fails(5, *train, *self.folders("a"), "--disk", "/proc", says="--disk /proc: no file can be made in it: ").err
        self.assertNotIn("No such file", said)
        self.assertEqual("see to its rights" in said, "Permission denied" in said)

    def test_a_drive_too_full_for_its_share_is_refused_and_not_the_file_that_measures_it(self):
        def lower():  # so that a file that measures the drive would be refused
            resource.setrlimit(resource.RLIMIT_FSIZE, (8 * MIB, 8 * MIB))
        train = ["train", *NANO, *STREAMED, "--data", self.corpus(), "--save", "none", "--steps", 1, *self.folders("a", "b")]
        for free in (0, 8):
            self.fails(3, *train, program=FAULTY, env=environment(COH_TEST_FREE_BYTES=str(free * MIB)), preexec_fn=lower,
                       says=f"the file system of {self.path('a')} has")

    def test_room_for_checkpoints_is_refused_with_the_flags_that_need_less(self):
        large = ["train", "opt-1.3b", "--sequence", 16, "--batch", 1, "--search", "quick", "--recompute", "all", "--data", self.corpus(),
                 "--steps", 9999, "--device-memory", "2GiB", *self.folders("a"), "--disk-write-limit", "9999TB/day", "--save",
                 self.path("run"), "--save-every", 1]
        said = self.fails(3, *large, "--keep", 1000, says=" + 1001 checkpoints ", program=FAULTY,
                          env=environment(COH_TEST_FREE_BYTES=str(1 << 40))).err  # 14 TiB
        for flag in ("(--keep 1)", "(--save DIR)", "(--save none)"):
            self.assertIn(flag, said)

    def test_folders_on_one_file_system_get_a_note(self):
        plan = ["plan", *NANO, *STREAMED]
        self.assertIn("the 2 folders are on 1 file system:", self.succeeds(*plan, *self.folders("a", "b")).err)
        other = other_file_system(self.folder)
        if not other:
            self.skipTest("no second file system that can be written")
        self.assertNotIn("file system:", self.succeeds(*plan, *self.folders("a"), "--disk", other).err)
        # two drives of the assumed kind: never slower, and the plan's file knows them
        steps = [self.succeeds(*plan, *flags, "--json").json["step_seconds"]
                 for flags in (self.folders("a"), [*self.folders("a"), "--disk", other])]
        self.assertLess(steps[1], steps[0])
        self.succeeds(*plan, *self.folders("a"), "--disk", other, "-o", self.path("plan.json"))
        again = self.succeeds("simulate", self.path("plan.json"), "--json")
        self.assertEqual(again.json["step_seconds"], steps[1])
        self.assertNotIn("other times", again.err)
        # a run on both: how its plans would be calibrated
        said = self.train("--steps", 3, "--save", "none", "--calibration", self.path("c.json"), *STREAMED, *self.folders("a"),
                          "--disk", other, model=NANO).err
        self.assertIn("calibrates no plans: the profile is of one drive, and the run had 2; cohobate profile with the same "
                      "--disk flags and -o FILE measures them, --profile FILE uses it", " ".join(said.split()))

    def test_file_systems_of_one_drive_count_as_one(self):
        """A container's root next to a volume: an overlay of the drive, with another device number, and the drive itself."""
        self.folders("lower", "upper", "work", "merged", "beside")
        mounted = ["-m", "sh", "-c", 'mount -t overlay none -o lowerdir="$0/lower",upperdir="$0/upper",workdir="$0/work" "$0/merged" && '
                   'test $(stat -c %d "$0/merged") != $(stat -c %d "$0") && exec "$@"', self.folder]
        if not shutil.which("unshare") or run(*mounted, "true", program="unshare").code != 0:
            self.skipTest("may not mount a file system")
        plan = ["plan", *NANO, *STREAMED, *self.folders("beside", "merged")]
        done = run(*mounted, COHOBATE, *plan, program="unshare")
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("the 2 folders are on 1 file system:", done.err)
        store = self.succeeds(*plan, "--json").json["peak_bytes"]["disk"]
        tight = run(*mounted, FAULTY, "train", *NANO, *STREAMED, "--data", self.corpus(), "--steps", 1, "--disk", self.path("beside"),
                    "--save", self.path("merged", "run"), program="unshare", env=environment(COH_TEST_FREE_BYTES=str(store + MIB)))
        self.assertEqual(tight.code, 3, tight.err)
        self.assertIn(f"the file system of {self.path('beside')} has", tight.err)
        self.assertRegex(tight.err, r"the working store \S+ \S+ \+ 1 checkpoint ")

    def test_drives_of_a_datasheet_are_as_many_times_its_rates(self):
        plan = ["plan", "llama-3.1-8b", *QUICK, "--sequence", 2048, "--batch", 4, "--chunk", "512MiB", "--recompute", "all", "--json",
                "--profile"]
        entry = self.succeeds(*plan, "a100-40g,host-memory=32GB,drives=4").json
        rates = self.succeeds(*plan, "a100-40g,host-memory=32GB,disk-read=4x,disk-write=4x").json
        self.assertEqual(entry["step_seconds"], rates["step_seconds"])
        self.assertGreater(entry["disk_bytes_written"], 0)
        self.fails(2, *plan, "a100-40g,drives=9", says="drives takes a number of equal drives, 1 to 8, not '9'")
        self.fails(2, *plan, "a100-40g,drives=2x", says="not '2x'")

    def test_the_doctor_examines_every_folder(self):
        self.folders("a", "b")
        done = self.succeeds("doctor", "--folder", self.path("a"), "--folder", self.path("b"), "--json").json["findings"]
        for name in "ab":
            subjects = {finding["subject"] for finding in done if self.path(name) in finding["found"]}
            self.assertEqual(subjects, {"O_DIRECT", "disk", "drive"})
        said = self.succeeds("doctor", "--folder", self.path("a"), "--folder", self.path("b")).err
        self.assertIn("the 2 folders are on 1 file system", said)
        self.assertNotIn("--disk", said)

    def test_the_doctor_measures_no_drive_that_is_not_named(self):
        subjects = [finding["subject"] for finding in self.succeeds("doctor", "--json").json["findings"]]
        self.assertIn("disk", subjects)
        self.assertNotIn("drive", subjects)

    def test_the_space_of_a_measurement_is_free_for_the_store(self):
        flags = [*self.folders("a", limit=":90MiB"), *self.folders("small", limit=":100MiB")]
        mounted = ["-m", "sh", "-c", 'mount -t tmpfs -o size=130m none "$0" && exec "$@"', self.path("small")]
        if not shutil.which("unshare") or run(*mounted, "true", program="unshare").code != 0:
            self.skipTest("may not mount a file system")
        done = run(*mounted, COHOBATE, "train", *NANO, *STREAMED, "--data", self.corpus(), "--steps", 1, "--save", "none",
                   *flags, program="unshare")
        self.assertEqual(done.code, 0, done.err)
        self.assertIn(f"{self.path('small')}: ", done.err)

    def test_a_drive_that_vanishes_costs_the_run_and_no_checkpoint(self):
        process = start("train", *NANO, "--data", self.corpus(), "--steps", 10000, "--save-every", 1, "--save",
                        self.path("run"), *STREAMED, *WRITES, *self.folders("a", "b"))
        wait_for_save(process, self.path("run"), 3)
        opened = f"/proc/{process.pid}/fd"
        for name in os.listdir(opened):
            link = os.path.join(opened, name)
            with contextlib.suppress(FileNotFoundError):  # a save opens and closes files meanwhile
                if os.readlink(link).startswith(self.path("b") + "/"):
                    os.truncate(link, 0)
        said = process.communicate()[1].decode()
        self.assertEqual(process.returncode, 5, said)
        message = said.strip().split("\n")[-1]
        # A write after the cut makes the file longer again, with zeros before it: those fail the checksum.
        drive = re.escape(self.path("b"))
        self.assertRegex(message, f"the working store in {drive}( failed: the file ended|: chunk .* is torn or damaged)")
        self.assertNotIn(f"the working store in {self.path('a')}", message)
        last = last_save(self.path("run"))
        self.assertIn(f"go on from {self.path('run')}/step-{last} with", message)
        self.succeeds("check", self.path("run", f"step-{last}"))
        steps = ["--steps", last + 1]
        done = self.resumed(self.path("run"), *steps, *STREAMED, *WRITES, *self.folders("a", "b"))
        self.assertEqual(self.says_hash(done),
                         self.says_hash(self.train(*steps, "--schedule-steps", 10000, "--save", "none", model=NANO)))


if __name__ == "__main__":
    unittest.main()
