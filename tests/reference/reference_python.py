"""Finds the interpreter that has the libraries for comparisons. A test says at its top

    import reference_python
    reference_python.need("torch", "transformers")

and is started again by the interpreter in COH_TEST_PYTHON. Else it continues if its own has these packages; else it is
started again by that of build-ci/python (scripts/reference-python); else it exits 77 with a line that names what is
missing."""

import importlib.util
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MARK = "COH_TEST_PYTHON_STARTED"


def start_again(python):
    if python and MARK not in os.environ and os.access(python, os.X_OK):
        os.environ[MARK] = "1"
        os.execv(python, [python] + sys.argv)


def is_missing(package):
    try:
        return importlib.util.find_spec(package) is None
    except ModuleNotFoundError:  # of a part, whose whole is not there
        return True


def need(*packages):
    start_again(os.environ.get("COH_TEST_PYTHON"))
    missing = [package for package in packages if is_missing(package)]
    if not missing:
        return
    start_again(os.path.join(ROOT, "build-ci", "python", "bin", "python"))
    print(f"{sys.executable} has no {' and no '.join(missing)}: scripts/reference-python installs what is compared with")
    sys.exit(77)
