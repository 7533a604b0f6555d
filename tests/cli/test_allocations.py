"""From step 2 on nothing is allocated, mapped or unmapped in the whole process, including saves, validation and log: a
run of 24 steps and 12 saves makes as many calls as one of 4 and 2. On a busy machine one run in some sixteen makes one
call more or less, also of the same length. One call in each step or save would be ten or more."""

import os
import sys
import unittest

SHIM = os.path.abspath(sys.argv.pop(2))

from program import TINY, ProgramTest, environment  # noqa: E402


class Allocations(ProgramTest):
    def counts(self, steps, *more):
        counted = self.path("counts")
        self.succeeds("train", *TINY, "--data", self.corpus(), "--validation", self.write("held-out", "text\n" * 99),
                      "--schedule-steps", 30, "--steps", steps, "--save", self.path(f"run-{steps}-{len(more)}"),
                      "--save-every", 2, "--keep", 1, "--log", self.path("log"), "--tensorboard", self.path("board"), *more,
                      env=environment(LD_PRELOAD=SHIM, COUNT_ALLOCATIONS_FILE=counted))
        with open(counted, encoding="utf-8") as file:
            return tuple(map(int, file.read().split()))

    def compare(self, *more):
        (allocations, maps), (longer, longer_maps) = self.counts(4, *more), self.counts(24, *more)
        self.assertGreater(allocations, 100)  # the counter works
        self.assertGreater(maps, 1)
        self.assertLess(abs(longer - allocations), 5)
        self.assertLess(abs(longer_maps - maps), 5)

    def test_in_memory_steps_take_no_memory(self):
        self.compare()

    def test_streamed_steps_take_no_memory(self):
        self.compare("--device-memory", "64MiB", "--disk", self.folder)

    def test_emulated_steps_take_no_memory(self):
        self.compare("--device-memory", "64MiB", "--emulate-host", "1GiB")


if __name__ == "__main__":
    unittest.main()
