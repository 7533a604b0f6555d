"""What a run folder keeps of its steps: run.json, steps.jsonl, trace.bin. The oracles: a reader of trace.bin of its own
(trace_file.py), --log, and the sums that the result prints."""
import json
import os
import signal
import time
import unittest

import trace_file
from program import FAULTY, NANO, TINY, TrainTest, environment, lines_of, run, start


class Record(TrainTest):
    def streamed(self):
        os.makedirs(self.path("disk"), exist_ok=True)
        return ["--device-memory", "130MiB", "--disk", self.path("disk") + ":1GB"]

    def test_steps_are_kept_instruction_by_instruction_and_sum_to_what_the_run_reports(self):
        for more in ([], self.streamed()):
            folder, log = self.path(f"run{len(more)}"), self.path(f"log{len(more)}.jsonl")
            done = self.train("--steps", 6, "--save", folder, "--log", log, "--json", *more, model=NANO).json
            lines, trace = lines_of(os.path.join(folder, "steps.jsonl")), trace_file.read(folder)
            self.assertEqual(lines, lines_of(log))
            self.assertEqual([step.step for step in trace.steps], [3, 4, 5])
            moved = {}
            for one in trace.instructions:
                if one.chunk != trace_file.NONE:
                    moved[one.lane] = moved.get(one.lane, 0) + one.bytes
            for step in trace.steps:
                self.assertEqual(min(begin for begin, _ in step.spans), 0)
                self.assertTrue(all(0 <= begin <= end for begin, end in step.spans))
                self.assertAlmostEqual(step.step_ns * 1e-9, lines[step.step]["seconds"], delta=0.501e-6)  # of whole microseconds
                if step.step == 3:
                    continue  # its first bytes are of the step before
                least, most = trace_file.link_bytes(trace, step.step)
                for lane, counted in lines[step.step]["link_bytes"].items():
                    self.assertTrue(least[lane] <= counted <= most[lane], (lane, least, counted, most))
                self.assertEqual(set(moved), set(lines[step.step]["link_bytes"]))
            self.assertEqual(bool(more), bool(moved))
            self.assertEqual(trace.arena_bytes, done["predicted_peak_bytes"])
            counted = {lane: sum(counts) for lane, counts in trace.latencies.items() if any(counts)}
            wanted = {}
            for one in trace.instructions:
                wanted[one.lane] = wanted.get(one.lane, 0) + 6
            self.assertEqual(counted, wanted)
            with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
                facts = json.load(file)
            self.assertEqual((facts["version"], facts["model"], facts["tokens_per_step"], facts["seed"]), (1, "gpt2-nano", 32, 1))
            self.assertEqual(facts["plan_hash"], f"{trace.program_hash:016x}")
            self.assertEqual(facts["command"][:2], ["cohobate", "train"])
            self.assertIn("--save", facts["command"])
            self.succeeds("check", folder)
            self.succeeds("inspect", folder)

    def test_arguments_that_json_cannot_hold_leave_a_record_that_can_be_read(self):
        wide = "x" + "宽" * 80
        os.mkdir(self.path(wide))
        for name, log in (("odd", os.fsdecode(os.fsencode(self.path("log")) + b"\xff")),
                          *((f"cut{i}", self.folder + "/" * i + f"/{wide}/.." * 7 + "/log") for i in range(3))):
            self.train("--steps", 1, "--save", self.path(name), "--log", log)
            with open(self.path(name, "run.json"), encoding="utf-8") as file:
                self.assertIn("--log", json.load(file)["command"])
        self.succeeds("report", self.path("odd"))

    def test_a_run_of_any_command_has_its_end_recorded(self):
        folder = self.path("run")
        self.train("--steps", 1, "--save", folder, *["--lr-for", "none"] * 4000)
        self.assertGreater(os.path.getsize(os.path.join(folder, "run.json")), 65536)
        with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
            facts = json.load(file)
        self.assertEqual((facts["command"].count("none"), facts["ended"]["how"], facts["ended"]["step"]), (4000, "finished", 1))

    def test_none_keeps_no_trace_and_no_folder_keeps_nothing(self):
        folder = self.path("run")
        bits = self.says_hash(self.train("--steps", 2, "--save", folder, "--record", "none"))
        self.assertFalse(os.path.exists(os.path.join(folder, "trace.bin")))
        self.assertEqual(len(lines_of(os.path.join(folder, "steps.jsonl"))), 2)
        os.mkdir(self.path("empty"))
        self.assertEqual(self.says_hash(self.train("--steps", 2, "--save", "none", cwd=self.path("empty"))), bits)
        self.assertEqual(os.listdir(self.path("empty")), [])
        self.fails(2, "train", *TINY, "--data", self.corpus(), "--record", "0", says="--record")
        self.fails(2, "train", *TINY, "--data", self.corpus(), "--record", "auto", says="--record")

    def test_a_resumed_run_goes_on_with_its_steps(self):
        folder = self.path("run")
        self.train("--steps", 2, "--schedule-steps", 5, "--save", folder)
        with open(os.path.join(folder, "steps.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"step": 3, "lo')  # a kill in the middle of a line
        self.resumed(folder, "--steps", 5, "--record", 2)
        self.assertEqual([line["step"] for line in lines_of(os.path.join(folder, "steps.jsonl"))], [1, 2, 3, 4, 5])
        self.assertEqual([step.step for step in trace_file.read(folder).steps], [3, 4])
        log = os.path.join(folder, "steps.jsonl")
        self.resumed(folder, "--steps", 6, "--log", log)  # not twice
        self.assertEqual([line["step"] for line in lines_of(log)], [1, 2, 3, 4, 5, 6])

    def test_the_reported_peak_is_that_of_the_process_whose_budget_is_reported(self):
        folder, disk = self.path("run"), ["--disk", self.folder]
        for flags in (["--save", folder, *NANO, "--data", self.corpus(), "--steps", 2, "--device-memory", "40MiB"],
                      ["--resume", folder, "--steps", 4, "--device-memory", "36MiB"]):
            peak = self.succeeds("train", *flags, *disk, "--search", "quick", "--json").json["peak_bytes"]["device"]
            with self.subTest(flags=flags):
                report = self.succeeds("report", folder, "--json").json
                self.assertEqual(report["memory"][0]["measured_peak_bytes"], peak)
        self.assertLessEqual(peak, 36 << 20)

    def test_a_killed_run_leaves_whole_files(self):
        for steps, more in ((3, []), (5, self.streamed())):
            process = start("train", *NANO, "--data", self.corpus(), "--steps", 1000, "--save", self.path(f"run{steps}"), *more)
            folder = self.path(f"run{steps}")
            log = os.path.join(folder, "steps.jsonl")
            for _ in range(3000):
                if os.path.exists(log) and os.path.getsize(log) > 300 * steps:
                    break
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            lines, trace = lines_of(log), trace_file.read(folder)
            self.assertGreaterEqual(len(lines), 1)
            self.assertIn(trace.steps[-1].step, (len(lines) - 2, len(lines) - 1))
            with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
                self.assertEqual(json.load(file)["version"], 1)
            self.fails(4, "train", "--resume", folder, says=f"The run was killed after step {lines[-1]['step']} of 1000. It has no "
                       "checkpoint: train again, with --save-every N")

    def test_a_slow_step_is_kept_among_the_slow_ones(self):
        folder, log = self.path("run"), self.path("run", "steps.jsonl")
        process = start("train", *NANO, "--data", self.corpus(), "--steps", 40, "--save", folder)
        while process.poll() is None and (not os.path.exists(log) or len(lines_of(log)) < 15):
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        time.sleep(1 + 5 * max(line["seconds"] for line in lines_of(log)))
        process.send_signal(signal.SIGCONT)
        process.communicate()
        lines, trace = lines_of(log), trace_file.read(folder)
        slow = [step for step in trace.steps if step.is_slow]
        slowest = max(lines[8:], key=lambda line: line["seconds"])["step"] - 1
        self.assertIn(slowest, [step.step for step in slow])
        self.assertLessEqual(len(slow), 8 + 3)
        for step in trace.steps:
            before = sorted(line["seconds"] for line in lines[max(0, step.step - 63):step.step])
            limit = 1.5 * before[len(before) // 2]
            if abs(step.step_ns * 1e-9 - limit) > 1e-5:
                self.assertEqual(step.is_slow, step.step_ns * 1e-9 > limit, step.step)
            self.assertTrue(step.slot < 3 or step.is_slow)
        self.assertEqual(len({step.step for step in trace.steps}), len(trace.steps))

    def test_a_full_disk_ends_the_trace_with_one_warning_and_not_the_run(self):
        folder = self.path("run")
        done = run("train", *TINY, "--data", self.corpus(), "--steps", 6, "--save", folder, program=FAULTY,
                   env=environment(COH_TEST_FAIL_AT="5:28"))  # a write of the trace, and one of the last save
        self.assertEqual(done.err.count("warning: trace.bin is not written"), 1, done.err)
        self.assertIn("No space left", done.err)
        self.assertEqual(len(lines_of(os.path.join(folder, "steps.jsonl"))), 6)
        self.assertGreaterEqual(len(trace_file.read(folder).steps), 1)

    def test_files_of_others_stay_and_those_of_a_refused_run_go(self):
        os.mkdir(self.path("theirs"))
        self.write("theirs/trace.bin", "x")
        self.fails(2, "train", *TINY, "--data", self.corpus(), "--save", self.path("theirs"), says="trace.bin")
        done = run("train", *TINY, "--data", self.corpus(), "--save", self.path("refused"), "--log", self.path("none/log"))
        self.assertIn("--log", done.err)
        self.assertNotEqual(done.code, 0)
        self.assertFalse(os.path.exists(self.path("refused")))


if __name__ == "__main__":
    unittest.main()
