"""From step 2 on no thread of `cohobate train` allocates, maps or unmaps: streamed from disk, with saves every 2 steps,
two checkpoints and the best kept, validation, a log and events of TensorBoard. Calls are counted in the process, and system calls by a filter,
between the report of step 2 and the final report.

Run as test_allocations.py COHOBATE WATCH_MEMORY.SO"""

import os
import sys
import unittest

WATCH = os.path.abspath(sys.argv.pop(2))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))

from program import NANO, SHORT, TINY, ProgramTest, environment  # noqa: E402

# In short, too, watched steps run beside saves, a checkpoint is removed, and a text is validated.
STEPS = 7 if SHORT else 9
# The larger model takes all tiers; of the smaller one a run streams the same share of its state.
SMALL = TINY if SHORT else NANO


def size(small, usual):
    return small if SHORT else usual


class Allocations(ProgramTest):
    def watched(self, *flags, model=SMALL, begin='{"step": 2,', end='{"model"'):
        """Returns what the preloaded library wrote: (state, how mappings were counted, {call: count}, backtraces)."""
        counted = self.path("counted")
        done = self.succeeds("train", *model, "--micro-batch", 1, "--data", self.corpus(), "--validation",
                             self.write("held-out", "text\n" * 20), "--validation-every", 3, "--steps", STEPS,
                             "--save", self.path("run"), "--save-every", 2, "--keep", 2, "--keep-best", "--log",
                             self.path("log"), "--tensorboard", self.path("board"), "--json", *flags,
                             env=environment(LD_PRELOAD=WATCH, WATCH_FILE=counted, WATCH_FROM=begin, WATCH_UNTIL=end))
        with open(counted, encoding="utf-8", errors="replace") as file:
            head, traces = file.read().split("\n", 1)
        state, seen_by, *words = head.split()
        kept = sorted(name for name in os.listdir(self.path("run")) if name.startswith("step-"))
        self.assertEqual(kept[-2:], [f"step-{STEPS - 1}", f"step-{STEPS}"])
        self.assertIn(os.readlink(self.path("run", "best")), kept)
        return done.json, state, seen_by, dict(zip(words[::2], map(int, words[1::2]))), traces

    def counts_nothing(self, name, *flags, **how):
        result, state, seen_by, counts, traces = self.watched(*flags, **how)
        self.assertEqual(state, "counted", "the two reports were not seen")
        frees = counts.pop("free")
        total = sum(counts.values()) + frees
        print(f"figure: {name}: {total} in steps 3 to {STEPS} (mappings: {seen_by})")
        self.assertEqual(total, 0, f"{counts}, {frees} frees\n{traces}")
        return result

    def test_the_watch_sees_what_a_run_takes(self):
        """Checks the watch: over a whole run it counts allocations."""
        _, state, seen_by, counts, _ = self.watched(begin="")
        self.assertEqual(state, "counted")
        print(f"from the start on: {counts} (seen by {seen_by})")
        self.assertGreater(counts["malloc"], 10)
        self.assertGreater(counts["mmap"], 2)

    def test_streamed_from_disk(self):
        result = self.counts_nothing("disk", "--device-memory", size("2MiB", "48MiB"), "--disk", self.folder)
        self.assertGreater(result["link_bytes"]["read"], 0)

    def test_steps_that_run_twice(self):
        result = self.counts_nothing("disk, speculating", "--device-memory", size("2300KiB", "21MiB"), "--disk", self.folder, "--clip-mode",
                                     "speculate", "--clip", "0.01")
        self.assertEqual(result["steps_run_twice"], STEPS)

    def test_emulated_host_over_disk(self):
        result = self.counts_nothing("emulated host over disk", "--device-memory", "48MiB", "--emulate-host", "50MiB",
                                     "--disk", self.folder, model=NANO)
        self.assertGreater(result["link_bytes"]["h2d"], 0)
        self.assertGreater(result["link_bytes"]["read"], 0)

    def updates_on_the_host_lane(self, name, *flags):
        flags += ("--device-memory", size("2MiB", "48MiB"), "--emulate-host", "400MiB")
        planned = self.succeeds("plan", *SMALL, "--micro-batch", 1, *flags, "--json").json
        self.assertGreater(planned["host_update_bytes"], 0)
        self.counts_nothing(name, *flags)

    def test_updates_on_the_host_lane(self):
        self.updates_on_the_host_lane("updates on the host lane")

    def test_updates_on_the_host_lane_in_backward(self):
        self.updates_on_the_host_lane("updates on the host lane, in backward", "--clip", "0")

    def test_in_memory(self):
        self.counts_nothing("in memory")

    def test_in_memory_updates_in_backward(self):
        self.counts_nothing("in memory, updates in backward", "--clip", "0")


if __name__ == "__main__":
    unittest.main()
