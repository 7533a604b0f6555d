"""check_no_faults.py FAULTY FILE...: the programs and libraries that are installed have no fault injection, by the names of
its environment variables and functions. FAULTY is the tests' program, which has it, so the search is known to find."""

import sys

NAMES = (b"COH_TEST_", b"power_cut", b"fault_plan", b"alloc_fail_nth", b"file_faults")


def names_in(path):
    with open(path, "rb") as file:
        data = file.read()
    return [name.decode() for name in NAMES if name in data]


def main(faulty, *files):
    if not {"COH_TEST_", "power_cut"} <= set(names_in(faulty)):
        sys.exit(f"{faulty} has no faults: this test would find none")
    found = [f"{path} contains {', '.join(names)}" for path in files if (names := names_in(path))]
    if found:
        sys.exit("\n".join(found))
    print(f"{len(files)} files without fault injection")


main(*sys.argv[1:])
