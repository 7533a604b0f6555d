"""The claims on speed (scripts/claims.d/3-*): each measures its rows, unless results of this machine and these sources
exist, and compares them with what is required. Stretch goals are printed and not required."""

import fnmatch
import os
import subprocess
import sys

import measure

RESULTS = os.path.join("benchmarks", "results")


def build():
    with open(os.devnull, "w", encoding="utf-8") as silent:
        for command in (["scripts/setup"], ["meson", "setup", "--reconfigure", "-Dbenchmarks=true", "build"],
                        ["ninja", "-C", "build"]):
            if subprocess.run(command, stdout=silent, stderr=silent, check=False).returncode != 0:
                sys.exit("the build with -Dbenchmarks=true fails")


def rows(program, arguments, patterns):
    """name -> row of the benchmark's file, measured with these sources, after running what is missing; and that run's
    exit code."""
    build()
    code = 0
    results = measure.Results(RESULTS, program)
    if not all(any(map(results.has, fnmatch.filter(results.rows, pattern))) for pattern in patterns):
        code = subprocess.run([os.path.join("benchmarks", program), *arguments, "--resume"], check=False).returncode
        results = measure.Results(RESULTS, program)
    return {name: row for name, row in results.rows.items() if row["sources"] == results.sources}, code


def show(program, arguments, checks):
    """checks: (label, pattern of row names, figure, ">=" or "<=", must, stretch); must None: only printed (a claim with
    no requirement at all has a line `# shown`). If a pattern matches several rows, the worst counts. Prints the figures
    as the last line and exits."""
    known, code = rows(program, arguments, [check[1] for check in checks])
    words, outcome = [], 1 if code else 0
    for label, pattern, figure, way, must, stretch in checks:
        found = [(known[name][figure], name) for name in fnmatch.filter(known, pattern)]
        if not found:
            words.append(f"{label}: not measured here")
            outcome = max(outcome, 77) if outcome != 1 else 1
            continue
        value, name = min(found) if way == ">=" else max(found)
        met = must is None or (value >= must if way == ">=" else value <= must)
        if not met:
            outcome = 1
        bound = "" if must is None else f" (must {must:g}, stretch {stretch:g})"
        moved = known[name].get("probe_moved", 0)
        unsteady = f" [probe moved {moved * 100:.0f} %]" if moved > measure.PROBE_BOUND else ""
        words.append(f"{label} {value:.2f}{bound}{unsteady}" + ("" if met else " MISSED"))
    print("; ".join(words))
    sys.exit(outcome)
