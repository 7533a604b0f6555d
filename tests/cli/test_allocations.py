"""From step 2 on nothing is allocated, mapped or unmapped in the whole process, including saves, validation and log: a
run of 6 steps and 3 saves makes exactly as many calls as one of 4 and 2."""

import os
import sys
import unittest

SHIM = os.path.abspath(sys.argv.pop(2))

from program import TINY, ProgramTest, environment  # noqa: E402


class Allocations(ProgramTest):
    def counts(self, steps, *more):
        counted = self.path("counts")
        self.succeeds("train", *TINY, "--data", self.corpus(), "--validation", self.write("held-out", "text\n" * 99),
                      "--schedule-steps", 9, "--steps", steps, "--save", self.path(f"run-{steps}-{len(more)}"),
                      "--save-every", 2, "--keep", 1, "--log", self.path("log"), "--tensorboard", self.path("board"), *more,
                      env=environment(LD_PRELOAD=SHIM, COUNT_ALLOCATIONS_FILE=counted))
        with open(counted, encoding="utf-8") as file:
            return tuple(map(int, file.read().split()))

    def test_in_memory_steps_take_no_memory(self):
        allocations, maps = self.counts(4)
        self.assertGreater(allocations, 100)  # the counter works
        self.assertGreater(maps, 1)
        self.assertEqual((allocations, maps), self.counts(6))

    def test_streamed_steps_take_no_memory(self):
        flags = ["--device-memory", "64MiB", "--disk", self.folder]
        self.assertEqual(self.counts(4, *flags), self.counts(6, *flags))

    def test_emulated_steps_take_no_memory(self):
        flags = ["--device-memory", "64MiB", "--emulate-host", "1GiB"]
        self.assertEqual(self.counts(4, *flags), self.counts(6, *flags))


if __name__ == "__main__":
    unittest.main()
