"""Measures whole processes for the programs in this folder: workers that take turns, the median of the ratios of pairs,
a fixed probe before and after, and results with the machine that they were measured on.

A worker prints one JSON line of facts when it is ready, and then answers each line "run <count>" with one JSON line
that holds "seconds", one figure for each of count runs. Between its turns it sleeps."""

import datetime
import fcntl
import fnmatch
import glob
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAIRS = 7
ABSENT = 77  # exit code of a program whose ceiling is missing on this machine: MEASURE_ABSENT of measure.h
# Most attempts at a configuration whose probes differ: set fewer on a machine that is never steady.
REPEATS_MOST = max(1, int(os.environ.get("COH_TRIES", "3")))
PROBE_BOUND = 0.05
# Vocabulary for presets: profile, plan and run must use one model, and a preset without a tokenizer is a byte model to
# some commands and has its own vocabulary to others.
VOCABULARY = {"gpt2-nano": 257, "gpt2": 50257, "gpt2-medium": 50257, "opt-125m": 50272}
# The sources of the library's speed and of its measurement: everything except the results.
SPEED = ("include", "base", "comm", "memory", "kernels", "offload", "planner", "engine", "models", "meson.build",
         "benchmarks")
# Packages whose version a figure depends on; those that are not installed are left out.
PACKAGES = ("libopenblas0-pthread", "libopenblas0-openmp", "libdnnl2", "libdnnl3", "libc6", "liburing2", "gcc")


def environment(**changes):
    """The environment of workers: a preset OpenBLAS core type would select another processor's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS", "OMP", "GOMP"))}
    return {**kept, **{name: str(value) for name, value in changes.items()}}


def first_line(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return None


def cpu_facts():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        pairs = [line.split(":", 1) for line in file if ":" in line]
    facts = {}
    for name, value in pairs:
        facts.setdefault(name.strip(), value.strip())
    flags = facts.get("flags", "").split()
    wide = [flag for flag in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return facts.get("model name", platform.processor()), wide, "hypervisor" in flags


def package_versions():
    shown = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n", *PACKAGES],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    rows = [line.split() for line in shown.stdout.splitlines()]
    return {row[0]: row[1] for row in rows if row[-1] == "ii"}


def machine():
    """The machine in a few facts: what a reader needs to judge a figure, nothing that identifies it."""
    model, wide, virtual = cpu_facts()
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory_kib = int(file.readline().split()[1])
    caches = [(first_line(f"{folder}/level"), first_line(f"{folder}/type"), first_line(f"{folder}/size"))
              for folder in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"))]
    return {"processor": model, "cores": len(os.sched_getaffinity(0)), "instructions": wide,
            "caches": {f"L{level}{'i' if kind == 'Instruction' else ''}": size for level, kind, size in caches},
            "memory_gib": round(memory_kib / 2**20, 1), "kernel": platform.release(), "virtual": virtual,
            "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not shown",
            "huge_pages": first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
            "packages": package_versions()}


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False).stdout.strip()


def changed():
    return " with changes" if git("status", "--porcelain", "--untracked-files=no", "--", *SPEED,
                                  ":(exclude)benchmarks/results") else ""


def commit():
    return git("rev-parse", "--short=12", "HEAD") + changed()


def vocabulary_flags(model):
    """For commands and workers."""
    return ["--vocabulary", str(VOCABULARY[model])] if model in VOCABULARY else []


def sources(of=None):
    """A hash of everything that speed depends on, now or in commit `of`: a row stays valid while later commits change
    only words."""
    trees = git("ls-tree", "-r", of or "HEAD", "--", *SPEED)
    trees = "\n".join(line for line in trees.splitlines() if "\tbenchmarks/results/" not in line)
    return hashlib.sha1(trees.encode()).hexdigest()[:12] + ("" if of else changed())


def chosen(name, texts):
    """Whether a row is requested. A text is part of its name, or a pattern with *; no texts request all."""
    return not texts or any(text in name or fnmatch.fnmatchcase(name, text) for text in texts)


# Lets mpirun start as root and as many ranks as cores, in a container too.
LAUNCHER = {"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1, "OMPI_MCA_rmaps_base_oversubscribe": 1}


class Failed(Exception):
    """A worker did not start or answer; the text names it and the reason."""


class Worker:
    """A process that runs on request. `facts`: its first line."""

    def __init__(self, name, command, **changes):
        self.name = name
        # errors="replace": one side's log may be anything
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
                                        env=environment(**changes), text=True, errors="replace")
        self.facts = self.answer()
        self.last = {}

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.close()
            raise Failed(f"{self.name} stopped (exit {self.process.returncode})")
        return json.loads(line)

    def run(self, count=1):
        """`count` runs; their mean time in seconds."""
        self.process.stdin.write(f"run {count}\n")
        self.process.stdin.flush()
        self.last = self.answer()
        return statistics.fmean(self.last["seconds"]) if "seconds" in self.last else None

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Probe(Worker):
    """The machine's present rates: GFLOP/s multiplied, GB/s copied, GB/s read."""

    def __init__(self, build, threads):
        super().__init__("probe", [os.path.join(build, "benchmarks", "bench_probe"), str(threads)])
        self.rates()  # pages and clocks

    def rates(self):
        self.run()
        return dict(self.last)


def moved(before, after):
    """The largest relative change of a rate, as a fraction of the larger value."""
    return max(abs(before[name] - after[name]) / max(before[name], after[name]) for name in before)


def probed(probe, measure):
    """measure() with the probe before and after it; the row gets the probe's change."""
    before = probe.rates()
    row = measure()
    after = probe.rates()
    row.update(probe_before=before, probe_after=after, probe_moved=round(moved(before, after), 4))
    return row


def steadiest(tries):
    """The attempt during which the probe changed least; prints how many there were."""
    best = min(tries, key=lambda row: row["probe_moved"])
    best["tries"] = len(tries)
    return best


def settled(probe, measure):
    """A probed() row, repeated while the probe changed by more than 5 %, at most REPEATS_MOST times; then the
    steadiest."""
    tries = []
    while len(tries) < REPEATS_MOST and not (tries and tries[-1]["probe_moved"] <= PROBE_BOUND):
        tries.append(probed(probe, measure))
    return steadiest(tries)


def pairs(ours, theirs, count=PAIRS, runs=1, warm=1):
    """Turns of `runs` runs each, ours first; `ratio` is theirs / ours: how many times faster ours is."""
    for worker in (ours, theirs):
        worker.run(warm)
    turns = [(ours.run(runs), theirs.run(runs)) for _ in range(count)]
    ratios = sorted(b / a for a, b in turns)
    return {"ours_s": round(statistics.median(a for a, _ in turns), 6),
            "theirs_s": round(statistics.median(b for _, b in turns), 6),
            "ratio": round(statistics.median(ratios), 4), "ratio_low": round(ratios[0], 4),
            "ratio_high": round(ratios[-1], 4), "pairs": count, "runs_a_turn": runs,
            "ours_turns_s": [round(a, 6) for a, _ in turns], "theirs_turns_s": [round(b, 6) for _, b in turns]}


class Results:
    """One file of rows by name, written after each row, so that a stopped run can resume. Rows of another machine are
    dropped: a file describes one machine."""

    def __init__(self, folder, name):
        self.path = os.path.join(folder, name + ".json")
        self.machine, self.sources, self.rows = machine(), sources(), {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                kept = json.load(file)
            if all(kept["machine"][fact] == self.machine[fact] for fact in ("processor", "cores", "memory_gib")):
                self.rows = {row["name"]: row for row in kept["rows"]}

    def has(self, name):
        """Whether the row was measured with the present sources."""
        return self.rows.get(name, {}).get("sources") == self.sources and not self.sources.endswith("changes")

    def add(self, name, row):
        self.rows[name] = {"name": name, "commit": commit(), "sources": self.sources,
                           "date": datetime.date.today().isoformat(), **row}
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump({"format": "cohobate-benchmark", "version": 1, "machine": self.machine,
                       "rows": list(self.rows.values())}, file, indent=1, ensure_ascii=False)
            file.write("\n")
        os.replace(self.path + ".new", self.path)


def claim_machine():
    """Waits until no other measuring program runs: two at once would disturb each other. Keep the result alive."""
    lock = open(os.path.join(ROOT, "benchmarks", "measure.py"), "rb")  # pylint: disable=consider-using-with
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("waiting for another benchmark", file=sys.stderr)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def bench(build, name):
    """The path of a benchmark program, or a message on how to get it."""
    path = os.path.join(build, "benchmarks", "bench_" + name)
    if not os.access(path, os.X_OK):
        sys.exit(f"{path} is not there: meson setup -Dbenchmarks=true {build} && ninja -C {build}")
    return path
