#!/usr/bin/env python3
"""Runs of several ranks that move and that lose one of them.

    test_processes.py COHOBATE patterns DTYPE what each rank keeps, on 2, 4 and 8 ranks in three places, against one rank
    test_processes.py COHOBATE elastic        runs on 8, 2, 1 and 4 ranks, saved in one place and resumed in another
    test_processes.py COHOBATE kills COUNT    kills each of two processes COUNT times, at random moments

The last line is the figure. COH_MPIRUN is tests/comm/under_mpirun.sh, for which mpirun must be installed (77)."""

import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

COHOBATE, WHAT = os.path.abspath(sys.argv[1]), sys.argv[2]
MPIRUN = os.environ["COH_MPIRUN"]
SHAPE = ["gpt2-nano", "--sequence", "16", "--replicas", "2x2x2", "--search", "quick"]
MODEL = [*SHAPE, "--batch", "8", "--dtype", "f32"]
# What each rank keeps: of all operators, or one block as zero1, one as levels and the others as zero3.
PATTERNS = [*(["--pattern", name] for name in ("replicate", "zero1", "zero2", "zero3", "levels")),
            ["--pattern", "zero3", "--pin", "blocks.0=zero1", "--pin", "blocks.1=levels"]]
LEVELS = {2: "1/2/2", 4: "2/2/4", 8: "2/4/8"}
PROGRAM = {**os.environ, "COH_CALIBRATION": "none"}


def start(processes, *arguments):
    launcher = [MPIRUN, str(processes)] if processes > 1 else []
    return subprocess.Popen([*launcher, COHOBATE, "train", *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=PROGRAM)


def hash_of(processes, *arguments):
    out, err = start(processes, *arguments).communicate(timeout=1200)
    found = re.search(r"^hash: +([0-9a-f]{16})$", out, re.M)
    return found[1] if found else sys.exit(f"{arguments}: {err}")


def numbers_of(processes, log, *arguments):
    """The loss and the norm of each step, as written, and the hash."""
    found = hash_of(processes, *arguments, "--log", log)
    with open(log, encoding="utf-8") as file:
        rows = [json.loads(line, parse_float=str) for line in file]
    os.remove(log)
    return found, [(row["loss"], row["grad_norm"]) for row in rows if "grad_norm" in row]


def patterns(folder, data, dtype):
    """Every pattern has the losses, norms and hash of one rank, whatever a rank keeps and wherever it lies. Delayed runs sleep most
    of their time, so many run at once."""
    small = ["--device-memory", "24MiB"]
    places = [(1, 2, [*small, "--disk", folder]), (1, 4, [*small, "--emulate-host", "1GiB"]), (1, 8, []),
              (2, 2, [*small, "--emulate-host", "1GiB"]), (4, 4, [*small, "--disk", folder])]
    numbers = ["--dtype", dtype, *(["--gradients", "f32"] if dtype == "bf16" else [])]
    plans = []
    for clip in (["--clip", "0.5"], ["--clip", "0"], ["--clip-mode", "previous"]):
        for batch in (8, 32):
            same = [*SHAPE, *numbers, *clip, "--batch", batch, "--micro-batch", 1, "--dropout", "0.1", "--data", data, "--steps", 20,
                    "--save", "none", "--threads", 1]
            twin = numbers_of(1, os.path.join(folder, "log.jsonl"), *same)
            if len(twin[1]) != 20:
                sys.exit(f"{same}: the log has {len(twin[1])} steps")
            plans.append((same, twin))

    def one(run):
        same, twin = plans[run // len(PATTERNS)]
        processes, ranks, place = places[run % len(places)]
        pattern = [word.replace("levels", LEVELS[ranks]) for word in PATTERNS[run % len(PATTERNS)]]
        flags = [*place, *pattern, "--test-poison", "--test-delay-seed", run + 1, *([] if processes > 1 else ["--ranks", ranks])]
        log = os.path.join(folder, f"log-{run}.jsonl")
        return None if numbers_of(processes, log, *same, *flags) == twin else f"{same} {flags} on {ranks} ranks: other numbers"

    runs = len(plans) * len(PATTERNS)
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        for done, wrong in enumerate(pool.map(one, range(runs)), 1):
            print(f"{done} of {runs}", file=sys.stderr, flush=True)
            if wrong:
                sys.exit(wrong)
    print(f"{runs} runs of 20 steps in {dtype} on 2, 4 and 8 ranks, threads and processes, in three places: the losses, norms and"
          f" hashes of their {len(plans)} twins")


def elastic(folder, data):
    """The hash of a run that moves through all pairs of places is that of the unbroken run."""
    small = ["--device-memory", "24MiB"]
    places = {"memory": [], "disk": [*small, "--disk", folder], "host": [*small, "--emulate-host", "1GiB"]}
    whole = hash_of(1, *MODEL, "--data", data, "--steps", 4, "--save", "none")
    runs = 0
    for before, first in places.items():
        for after, second in places.items():
            run = os.path.join(folder, f"{before}-{after}")
            hash_of(1, *MODEL, "--data", data, "--steps", 1, "--schedule-steps", 4, "--save", run, "--ranks", 8, *first)
            hash_of(2, "--resume", run, "--steps", 2, *second)
            hash_of(1, "--resume", run, "--steps", 3, *first)
            if hash_of(4, "--resume", run, "--steps", 4, *second) != whole:
                sys.exit(f"from {before} to {after}: another hash")
            runs += 1
    print(f"{runs} runs of 8, 2, 1 and 4 ranks, each in two of 3 places: all with the hash of the unbroken run")


def processes_of(launcher):
    """The processes of the launcher, by rank."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                values = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue  # it has ended, or is another's
        if parent == launcher.pid and b"OMPI_COMM_WORLD_RANK" in values:
            found[int(values[b"OMPI_COMM_WORLD_RANK"])] = int(pid)
    return found


def flags_to_go_on(run, data, steps):
    resumes = os.path.isdir(run) and any(re.fullmatch(r"step-\d+", name) for name in os.listdir(run))
    return ["--resume", run] if resumes else [*MODEL, "--data", data, "--steps", steps, "--save", run]


def kill_one(rank, seconds, run, data, steps):
    """Returns the run's exit code, or None if it ended before the kill."""
    launcher = start(2, *flags_to_go_on(run, data, steps), "--save-every", 1)
    time.sleep(seconds)
    pid = processes_of(launcher).get(rank)
    if pid is not None and launcher.poll() is None:
        os.kill(pid, signal.SIGKILL)
    launcher.communicate(timeout=60)
    left = [name for name in (os.listdir(run) if os.path.isdir(run) else []) if "partial" in name]
    if len(left) > 1:
        sys.exit(f"a kill of rank {rank} left {left}")
    return launcher.returncode if pid is not None else None


def ended_hash(run, data, steps):
    """The hash at the end of a run that is whole, or is resumed, or begins again, in one process."""
    if os.path.isdir(os.path.join(run, f"step-{steps}")):
        return subprocess.run([COHOBATE, "inspect", os.path.join(run, f"step-{steps}"), "--hash"], capture_output=True,
                              text=True, check=True).stdout.strip()
    return hash_of(1, *flags_to_go_on(run, data, steps))


def kills(folder, data, count):
    """Each run is killed several times, then resumed by one process: it ends with the unbroken run's hash."""
    steps, draw = 12, random.Random(1)
    whole = hash_of(1, *MODEL, "--data", data, "--steps", steps, "--save", "none")
    killed, late, longest, runs = 0, 0, 0.0, 0
    while killed < 2 * count:
        run = os.path.join(folder, "run")
        shutil.rmtree(run, ignore_errors=True)
        for _ in range(5):
            rank = killed % 2
            begin = time.monotonic()
            seconds = draw.uniform(0.3, 3.5)
            code = kill_one(rank, seconds, run, data, steps)
            longest = max(longest, time.monotonic() - begin - seconds)
            if code == 137:
                killed += 1
            elif code not in (None, 0):
                sys.exit(f"a kill of rank {rank} ends with {code}")
            if code in (None, 0):
                late += 1
                break
        if ended_hash(run, data, steps) != whole:
            sys.exit(f"run {runs}, killed: another hash")
        runs += 1
    print(f"{killed} kills of one of two processes in {runs} runs, which all ended within {longest:.1f} s and were resumed"
          f" with the hash of the unbroken run ({late} kills came too late)")


def main():
    if subprocess.run([MPIRUN, "1", "true"], check=False).returncode == 77:
        sys.exit(77)
    with tempfile.TemporaryDirectory(dir=os.environ.get("COH_SOAK_FOLDER")) as folder:
        data = os.path.join(folder, "corpus.txt")
        with open(data, "w", encoding="utf-8") as file:
            file.write("".join(f"line {i * i % 97}: the {i % 13}th of many\n" for i in range(400)))
        if WHAT == "patterns":
            patterns(folder, data, sys.argv[3])
        elif WHAT == "elastic":
            elastic(folder, data)
        else:
            kills(folder, data, int(sys.argv[3]))


if __name__ == "__main__":
    main()
