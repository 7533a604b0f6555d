"""cohobate check-kind: kinds of a shared library, as a user makes one, through the command line."""

import os
import signal
import unittest

from program import ProgramTest, start

KINDS = os.environ["COH_KINDS"]


class CheckKind(ProgramTest):
    def kind(self, name):
        return f"{KINDS}:{name}"

    def test_a_right_kind_passes(self):
        self.assertEqual(self.succeeds("check-kind", self.kind("square")).out,
                         "test.square: nothing found; gradients compared: 2\n")
        found = self.succeeds("check-kind", self.kind("square"), "--input", "f32:7,13", "--seed", 3, "--json").json
        self.assertEqual(found, {"kind": "test.square", "findings": [], "gradients": 2})
        self.succeeds("check-kind", self.kind("scaled"), "--attributes", "twice")

    def test_a_mistake_is_explained_and_the_exit_code_is_1(self):
        said = self.fails(1, "check-kind", self.kind("wrong"), says="1 finding").out
        self.assertRegex(said, r"^backward does not give the derivative of forward: input_grad 0, element \d+: "
                               r"by differences .*, it is .*\. Usual cause: the sign\n$")
        found = self.fails(1, "check-kind", self.kind("wrong"), "--json").json["findings"]
        self.assertEqual([(one["fault"], one["phase"], one["port"]) for one in found],
                         [("does not give the derivative of forward", "backward", "input_grad 0")])
        self.assertAlmostEqual(found[0]["expected"], -found[0]["got"], 2)

    def test_a_kind_that_crashes_is_a_finding(self):
        self.assertIn("forward crashes", self.fails(1, "check-kind", self.kind("crashing"), says="1 finding").out)

    def test_a_kind_that_hangs_is_named(self):
        """The alarm, which comes after some seconds, is sent by hand, once the kind hangs."""
        with start("check-kind", self.kind("hanging"), start_new_session=True) as process:
            self.assertEqual(process.stderr.readline(), b"hangs\n")
            process.send_signal(signal.SIGALRM)
            self.assertEqual(process.stderr.readline(), b"cohobate check-kind: still calls functions of test.hanging: if one never "
                                                        b"returns, stop this with Ctrl-C\n")
            os.killpg(process.pid, signal.SIGKILL)

    def test_a_kind_that_refuses_says_why(self):
        said = self.fails(1, "check-kind", self.kind("scaled"), "--attributes", "broken", says="1 finding").out
        self.assertIn("a factor of -1", said)
        self.fails(2, "check-kind", self.kind("scaled"), says="kind 'test.scaled' takes 4 bytes of attributes: give --attributes SYMBOL")
        self.assertIn("give .index[0]", self.fails(1, "check-kind", self.kind("square"), "--input", "i32:4,4",
                                                    says="1 finding").out)

    def test_wrong_arguments_are_named(self):
        text = self.corpus(4)
        for code, arguments, says in [
            (2, ["square"], "LIBRARY:SYMBOL"),
            (2, [KINDS], "LIBRARY:SYMBOL"),
            (2, [self.path("gone.so") + ":square"], "does not exist"),
            (4, [text + ":square"], "no library"),
            (2, [self.kind("nothing")], "no symbol 'nothing'"),
            (4, [self.kind("twice")], "4 bytes"),
            (2, [self.kind("scaled"), "--attributes", "nothing"], "no symbol 'nothing'"),
            (2, [self.kind("square"), "--input", "f32:4", "--input", "f32:4"], "given 2 times"),
        ]:
            with self.subTest(arguments=arguments):
                self.fails(code, "check-kind", *arguments, says=says)
        for shape in ("f32", "f64:3", "f32:", "f32:0", "f32:3,", "f32:1,2,3,4,5,6", "f32:-1", "f32:3x4"):
            self.fails(2, "check-kind", self.kind("square"), "--input", shape, says="for example")


if __name__ == "__main__":
    unittest.main()
