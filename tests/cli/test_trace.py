"""cohobate trace: Chrome's trace events of a run. The oracles: a strict reading of the format (slices of a track nest, ends of
flows pair and lie in slices, counters) and trace.bin, read by trace_file.py."""
import bisect
import fcntl
import json
import os
import resource
import unittest
from decimal import Decimal

import trace_file
from program import NANO, TINY, TrainTest

MEASURED, PREDICTED = 1, 2


def ns(microseconds):
    whole = microseconds * 1000
    assert whole == int(whole), microseconds
    return int(whole)


class Events:
    """The events of a file by track, with times in whole nanoseconds."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            events = json.load(file, parse_float=Decimal)["traceEvents"]
        self.slices, self.flows, self.counters, self.names = {}, {}, {}, {}
        for event in events:
            kind, track = event["ph"], (event["pid"], event.get("tid"))
            if kind == "X":
                begin = ns(event["ts"])
                self.slices.setdefault(track, []).append((begin, begin + ns(event["dur"]), event["name"], event["args"]))
            elif kind in "sf":
                self.flows.setdefault(event["id"], {}).setdefault(kind, []).append((track, ns(event["ts"])))
            elif kind == "C":
                values = {name: int(value) for name, value in event["args"].items()}
                self.counters.setdefault(event["name"], []).append((ns(event["ts"]), values))
            elif event["name"] == "thread_name":
                self.names[track] = event["args"]["name"]
            else:
                assert kind == "M", event
        for one in self.slices.values():
            one.sort(key=lambda s: s[:2])

    def lane(self, track):
        return self.names[track].split()[0]

    def at(self, track, when):
        """The slice of a track that is open at a time."""
        found = [s for s in self.slices[track] if s[0] <= when and (when < s[1] or s[0] == s[1] == when)]
        return found[0] if found else None


class TraceTest(TrainTest):
    """Checks of a trace's events, by any reader that has the members of Events."""
    events = Events

    def made(self, *more, steps=3):
        folder, out = self.path(f"run{len(os.listdir(self.folder))}"), self.path("trace.json")
        self.train("--steps", steps, "--save", folder, *more, model=NANO)
        self.succeeds("trace", folder, "-o", out)
        return trace_file.read(folder), self.events(out)

    def check_slices(self, trace, events):
        of_lane = {}
        for track, slices in events.slices.items():
            self.assertIn(track, events.names)
            for one, following in zip(slices, slices[1:]):
                self.assertLessEqual(one[1], following[0], (track, one, following))  # they never overlap
            of_lane.setdefault((track[0], events.lane(track)), []).extend(slices)
        origin = min(step.begin_ns for step in trace.steps)
        for (process, lane), slices in of_lane.items():
            wanted = []
            for number, step in enumerate(trace.steps):
                for index, instruction in enumerate(trace.instructions):
                    if instruction.lane != lane:
                        continue
                    begin, end = step.spans[index]
                    base = step.begin_ns - origin
                    if process == PREDICTED:
                        begin, end = instruction.predicted_begin, instruction.predicted_end
                        base = trace.steps[0].begin_ns - origin + number * trace.predicted_step_ns
                    wanted.append((base + begin, base + end, index, step.step + 1))
            self.assertEqual(sorted((*s[:2], s[3]["instruction"], s[3]["step"]) for s in slices), sorted(wanted), (process, lane))
        for process in (MEASURED, PREDICTED):
            self.assertEqual({lane for of, lane in of_lane if of == process}, {i.lane for i in trace.instructions})

    def check_flows(self, trace, events):
        """Each compute instruction that began later than the one before it ended, because of a wait, has one flow."""
        wanted = set()
        end_before, before = 0, None
        for step in trace.steps:
            base = step.begin_ns - trace.steps[0].begin_ns
            for index, (one, (begin, end)) in enumerate(zip(trace.instructions, step.spans)):
                if one.lane != "compute":
                    continue
                ended = []
                for cause, carry in trace.waits[one.wait_begin:one.wait_begin + one.wait_count]:
                    of = before if carry else step
                    if of and trace.instructions[cause].lane != "compute":
                        ended.append((of.begin_ns - trace.steps[0].begin_ns + of.spans[cause][1], of.step, cause))
                if ended and max(ended)[0] > end_before:
                    wanted.add((max(ended)[1] + 1, max(ended)[2], step.step + 1, index))
                end_before = base + end
                self.assertLessEqual(begin, end)
            before = step
        found = set()
        for ends in events.flows.values():
            self.assertEqual({kind: len(ends[kind]) for kind in ends}, {"s": 1, "f": 1})
            (source, sent), (target, arrived) = ends["s"][0], ends["f"][0]
            cause, waiting = events.at(source, sent), events.at(target, arrived)
            self.assertNotEqual(events.lane(source), "compute")
            self.assertEqual(events.lane(target), "compute")
            self.assertEqual(waiting[0], arrived)
            self.assertLessEqual(cause[1], arrived)
            found.add((cause[3]["step"], cause[3]["instruction"], waiting[3]["step"], waiting[3]["instruction"]))
        self.assertEqual(found, wanted)

    def check_counters(self, trace, events):
        for tier, name in enumerate(trace_file.TIERS):
            points = sorted(events.counters.get(f"{name} memory", []), key=lambda point: point[0])
            self.assertEqual(bool(points), trace.arena_bytes[name] > 0)
            times = [when for when, _ in points]
            for when, values in points:
                self.assertLessEqual(sum(values.values()), trace.arena_bytes[name])
                self.assertEqual(values["pinned"], trace.pinned_bytes[name])
            for moment in times[::7]:
                total = trace.pinned_bytes[name]
                for extent in trace.extents:
                    if extent.tier != tier:
                        continue
                    total += extent.bytes * extent.at_begin
                    for step in trace.steps:
                        base = step.begin_ns - trace.steps[0].begin_ns
                        if not extent.at_begin:
                            total += extent.bytes * (base + step.spans[extent.first][0] <= moment)
                        if not extent.at_end:
                            total -= extent.bytes * (base + step.spans[extent.last][1] <= moment)
                shown = points[bisect.bisect_right(times, moment) - 1][1]
                self.assertEqual(sum(shown.values()), total, (name, moment))

    def check_runs(self):
        os.mkdir(self.path("disk"))
        streamed = ["--device-memory", "130MiB", "--disk", self.path("disk") + ":1GB"]
        for more in ([], streamed, ["--device-memory", "130MiB", "--emulate-host", "1GiB", "--link-rate", "30MB/s"]):
            trace, events = self.made(*more)
            self.check_slices(trace, events)
            self.check_flows(trace, events)
            self.check_counters(trace, events)
            # A link this slow is waited for on any machine; a disk may be fast enough.
            self.assertTrue(events.flows if "--link-rate" in more else more or not events.flows)


class Trace(TraceTest):
    def test_slices_flows_and_counters_are_those_of_the_run(self):
        self.check_runs()

    def test_some_steps_and_what_cannot_be_written(self):
        folder, out = self.path("run"), self.path("trace.json")
        self.train("--steps", 4, "--save", folder)
        self.assertIn(f"{out}: 2 recorded steps, the last is step 4;", self.succeeds("trace", folder, "-o", out, "--steps", "3:4").out)
        self.assertEqual({s[3]["step"] for one in Events(out).slices.values() for s in one}, {3, 4})
        for steps in ("1:1", "5:9", "0:3", "3", "4:3", "x:3", "3:4x", "-1:3", ":", ""):
            self.fails(2, "trace", folder, "-o", self.path("none.json"), "--steps", steps, says="--steps")
        self.fails(2, "trace", folder, says="-o")
        self.fails(5, "trace", folder, "-o", self.path("none.json"), says="-o " + self.path("none.json"),
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        self.fails(2, "trace", self.path("nowhere"), "-o", out, says="nowhere")
        self.fails(2, "trace", folder, "-o", self.write("mine.txt", "mine\n"), says="mine.txt")
        self.fails(4, "trace", self.folder, "-o", self.path("none.json"), says="trace.bin")
        path = os.path.join(folder, "trace.bin")
        with open(path, "rb") as file:
            whole = file.read()
        for place in (3, 40, 2000):
            with open(path, "wb") as file:
                file.write(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1:])
            self.fails(4, "trace", folder, "-o", self.path("none.json"), says="trace.bin")
            self.fails(4, "trace", folder, "-o", self.path("none.json"), says=": give a whole copy of the run's folder, or record steps again")
        with open(path, "wb") as file:
            file.write(whole[:-100])  # the last slot was being written
        self.assertIn("warning: 1 step", self.succeeds("trace", folder, "-o", out).err)
        self.assertFalse([name for name in os.listdir(self.folder) if name.endswith((".partial", "none.json"))])
        # a temporary file that another process holds is left to it; one that nobody holds goes
        for is_held in (True, False):
            with open(out + ".partial", "ab") as file:
                if is_held:
                    fcntl.flock(file, fcntl.LOCK_EX)
                self.succeeds("trace", folder, "-o", out)
                self.assertEqual(os.path.exists(out + ".partial"), is_held)
                self.assertEqual(os.fstat(file.fileno()).st_size, 0)
        self.train("--steps", 1, "--save", self.path("one"), model=TINY)
        self.fails(2, "trace", self.path("one"), "-o", self.path("none.json"), "--steps", "5:9", says="but 1 step up to 1:")
        self.train("--steps", 1, "--save", self.path("off"), "--record", "none", model=TINY)
        self.fails(4, "trace", self.path("off"), "-o", self.path("none.json"), says="--record")


if __name__ == "__main__":
    unittest.main()
