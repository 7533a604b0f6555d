"""How long a test may take (length.h says the same to C): `meson test` asks for short runs."""

import os
import unittest

SHORT = os.environ.get("COH_TEST_LENGTH") == "short"


def in_full(test):
    """A test that takes seconds, of what shorter ones or those of the parts show, too."""
    return unittest.skipIf(SHORT, "in full only: meson test --setup everything")(test)
