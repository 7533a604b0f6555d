#!/usr/bin/env python3
"""Worlds of processes, opened from the launcher's environment: levels, refusals, and that all ranks end within seconds
when one stops, is killed, exits or hangs. Arguments: the program of world_process.c, then under_mpirun.sh."""

import os
import re
import subprocess
import sys
import time
import unittest

PROGRAM, MPIRUN = sys.argv[1:3]
SKIP = 77
SECONDS = 60  # a rank that waits for one that is gone would wait forever


class World(unittest.TestCase):
    def run_ranks(self, count, *arguments, code=0):
        """Runs `count` ranks; returns the lines of each rank, in order. Lines of one rank are never mixed."""
        done = subprocess.run([MPIRUN, str(count), PROGRAM, *arguments], capture_output=True, text=True,
                              timeout=SECONDS, check=False)
        if done.returncode == SKIP:
            self.skipTest(done.stdout.strip())
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        lines = {rank: [] for rank in range(-1, count)}
        for line in done.stdout.splitlines():
            match = re.match(r"(-?\d+): (.*)", line)
            if match:
                lines[int(match[1])].append(match[2])
        return lines

    def refused(self, count, *arguments, code, sentence):
        """Every rank prints the same refusal."""
        lines = self.run_ranks(count, *arguments, code=code)[-1]
        self.assertGreaterEqual(len(lines), 1)  # mpirun ends the others after the first one
        self.assertEqual(len(set(lines)), 1, lines)
        self.assertIn(sentence, lines[0])

    def test_ranks_of_a_host_are_a_node_and_a_world_opens_once(self):
        lines = self.run_ranks(4, "ends", "4", "2")
        for rank in range(4):
            self.assertEqual(lines[rank][0], "of 4, pairs of 2, nodes of 4")
            self.assertIn("COH_ERR_ARGUMENT: MPI has ended in this process", lines[rank][1])

    def test_options_may_give_nodes(self):
        lines = self.run_ranks(4, "stops", "0", "1", "2", code=3)
        for rank in range(4):
            self.assertEqual(lines[rank][0], "of 4, pairs of 1, nodes of 2")
            self.assertEqual(lines[rank][1:], ["COH_ERR_FULL: rank 2: the disk is full"])

    def test_options_that_do_not_fit_are_refused(self):
        self.refused(3, "ends", "5", code=2, sentence="rank_count is 5 and the launcher has started 3")
        self.refused(3, "ends", "0", "2", code=2, sentence="3 ranks do not fill nodes of 3 and pairs of 2")

    def test_a_rank_that_is_gone_ends_all(self):
        for how, code in ("is-killed", 137), ("exits", 5):
            self.run_ranks(3, how, code=code)

    def test_a_rank_that_hangs_is_left_behind(self):
        begin = time.monotonic()
        lines = self.run_ranks(3, "hangs", code=1)
        for rank in 0, 2:
            self.assertRegex(lines[rank][1], r"COH_ERR_NUMBER: rank [02]: a number is broken")
        self.assertEqual(lines[0][1], lines[2][1])
        self.assertEqual(len(lines[1]), 1)
        self.assertGreater(time.monotonic() - begin, 3)  # it had time to come

    def test_a_process_alone_is_a_world_of_one_rank(self):
        alone = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI"))}
        done = subprocess.run([PROGRAM, "alone"], capture_output=True, text=True, env=alone, timeout=SECONDS, check=True)
        self.assertEqual(done.stdout, "0: of 1, pairs of 1, nodes of 1\n")
        for name, value, code, sentence in [
                ("OMPI_COMM_WORLD_SIZE", "three", 2, "OMPI_COMM_WORLD_SIZE is 'three'"),
                ("PMI_SIZE", "0", 2, "PMI_SIZE is '0'"),
                ("PMI_SIZE", "3", 5, "PMI_SIZE says 3 ranks and MPI connects 1")]:
            done = subprocess.run([PROGRAM], capture_output=True, text=True, env={**alone, name: value},
                                  timeout=SECONDS, check=False)
            self.assertEqual(done.returncode, code, done)
            self.assertIn(sentence, done.stdout)

    def test_a_missing_module_is_named(self):
        without = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        done = subprocess.run([PROGRAM], capture_output=True, text=True, env={**without, "OMPI_COMM_WORLD_SIZE": "2"},
                              timeout=SECONDS, check=False)
        self.assertEqual(done.returncode, 5, done)
        self.assertIn("libcohobate-mpi.so", done.stdout)  # an installed one is opened, and connects one rank


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
