"""A refused run leaves no folder, even if open files cannot be deleted (NFS). Usage: ... COHOBATE network_files.so"""

import os
import sys
import unittest

PRELOADED = os.path.abspath(sys.argv.pop(2))

from program import TINY, ProgramTest, environment  # noqa: E402


class NetworkFiles(ProgramTest):
    def test_a_refused_run_leaves_no_folder_where_open_files_stay(self):
        short, bad = self.write("short.txt", "abc"), self.write("bad.jsonl", "no object\n")
        for code, data, says in ((4, short, "needs 17"), (4, bad, "bad.jsonl:1:")):
            self.fails(code, "train", *TINY, "--data", data, "--steps", 1, "--save", self.path("made"), says=says,
                       env=environment(LD_PRELOAD=PRELOADED))
            self.assertEqual(sorted(os.listdir(self.folder)), ["bad.jsonl", "short.txt"])

    def test_the_preloaded_library_keeps_what_is_open(self):
        """Checks the preloaded library: from Python, which deletes and closes through the same calls."""
        import subprocess
        code = ("import os; d = os.open('f', os.O_CREAT | os.O_RDWR); os.unlink('f'); print(os.listdir('.')); "
                "os.close(d); print(os.listdir('.'))")
        os.mkdir(self.path("empty"))
        done = subprocess.run([sys.executable, "-c", code], cwd=self.path("empty"), env=environment(LD_PRELOAD=PRELOADED),
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "['.nfs0000']\n[]\n")


if __name__ == "__main__":
    unittest.main()
