"""A long run from disk uses no more than after its first save: memory, descriptors, threads, disk.

Trains a tiny GPT-2 twice: in memory, and streamed from disk with a save every hundredth step. During the second run,
/proc and its folders are read every few milliseconds. The least value between two saves is what the run keeps; a leak
raises it. Losses must be finite and equal to those in memory, line by line, and so must the hash.

Run as test_soak.py COHOBATE [STEPS]"""

import collections
import json
import math
import os
import shutil
import stat
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))

STEPS = int(sys.argv.pop(2)) if len(sys.argv) > 2 else 360

import model_folder  # noqa: E402  pylint: disable=wrong-import-position
from program import COHOBATE, environment, run, start  # noqa: E402  pylint: disable=wrong-import-position

SAVE_EVERY = 100 if STEPS >= 2000 else STEPS // 6
VALIDATE_EVERY = 500 if STEPS >= 2000 else STEPS // 4
PAUSE_S = 0.005
SAMPLES_LEAST = 3  # fewer may all fall into one save
TRAIN = ["--sequence", 16, "--batch", 2, "--micro-batch", 1, "--threads", 2]
WHAT = ("resident bytes", "anonymous bytes", "address space", "mappings", "descriptors", "threads",
        "bytes of the run folder", "bytes of the drive's folder and open scratch files")


def fail(text):
    print(text)
    sys.exit(1)


def bytes_in(folder):
    """Bytes allocated to the files below a folder; a file deleted meanwhile counts 0. A line a step is meant to be added to
    steps.jsonl, and trace.bin reaches its size when all of its slots are used."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in sorted(set(names) - {"steps.jsonl", "trace.bin"}):
            try:
                total += os.lstat(os.path.join(at, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def deleted_bytes(descriptors):
    """Bytes allocated to open files that have no name."""
    total = 0
    for name in os.listdir(descriptors):
        try:
            found = os.stat(os.path.join(descriptors, name))
        except FileNotFoundError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
            total += found.st_blocks * 512
    return total


def sample(pid, run_folder, disk):
    """The present values of WHAT. smaps_rollup walks the page table; the counts in status are approximate. Clean pages
    of files do not count as resident: code is mapped when it first runs, that of a removal after the second save."""
    proc = f"/proc/{pid}"
    with open(f"{proc}/smaps_rollup", encoding="utf-8") as file:
        memory = dict(line.split(":", 1) for line in file.read().splitlines()[1:])
    with open(f"{proc}/maps", encoding="utf-8") as file:
        mappings = file.read().count("\n")
    with open(f"{proc}/statm", encoding="utf-8") as file:
        pages = int(file.read().split()[0])
    kib = {key: int(memory[key].split()[0]) * 1024
           for key in ("Rss", "Anonymous", "Shared_Clean", "Private_Clean")}
    resident = kib["Rss"] - kib["Shared_Clean"] - kib["Private_Clean"]
    return (resident, kib["Anonymous"], pages * os.sysconf("SC_PAGE_SIZE"), mappings,
            len(os.listdir(f"{proc}/fd")), len(os.listdir(f"{proc}/task")), bytes_in(run_folder),
            bytes_in(disk) + deleted_bytes(f"{proc}/fd"))


def holds_room(pid):
    """Does the run hold room for its next checkpoint? A save takes it at its begin, and the run holds it again after the save
    removed an older checkpoint: one descriptor less in between, and fewer bytes."""
    descriptors = f"/proc/{pid}/fd"
    return any(os.readlink(f"{descriptors}/{name}").endswith("reserve.partial (deleted)") for name in os.listdir(descriptors))


def resting(run_folder):
    """The step of the only checkpoint; 0 before the first, and while another one is written or an older one is removed."""
    names = os.listdir(run_folder) if os.path.isdir(run_folder) else []
    steps = [name[5:] for name in names if name.startswith("step-")]
    return int(steps[0]) if len(steps) == 1 and steps[0].isdigit() else 0


def watch(process, run_folder, disk):
    """{step of a save: the least values between it and the next one, outside of saves}, of those that were read often enough"""
    least, count, has_held = {}, collections.Counter(), False
    while process.poll() is None:
        try:
            before, held_before = resting(run_folder), holds_room(process.pid)
            has_held |= held_before  # never where the file system reserves no room
            now = sample(process.pid, run_folder, disk)
            is_whole = held_before and holds_room(process.pid) or not has_held
            if before != 0 and is_whole and resting(run_folder) == before:
                least[before] = tuple(map(min, least.get(before, now), now))
                count[before] += 1
        except (FileNotFoundError, ProcessLookupError, KeyError, IndexError):
            pass  # the process ends
        time.sleep(PAUSE_S)
    return {step: values for step, values in least.items() if count[step] >= SAMPLES_LEAST}


def losses_of(path):
    """([training loss of each step], {step: validation loss})"""
    steps, validations = [], {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            if "validation_loss" in entry:
                validations[entry["step"]] = entry["validation_loss"]
            else:
                steps.append(entry["loss"])
    return steps, validations


def check_flat(least):
    """No value between two later saves is above that after the first save."""
    saves = [step for step in least if step < STEPS]  # after the last save the process ends
    if len(saves) < 2:
        fail(f"only {len(saves)} saves were seen")
    first = least[saves[0]]
    for index, name in enumerate(WHAT):
        step, most = max(((step, least[step][index]) for step in saves), key=lambda pair: pair[1])
        if most > first[index]:
            fail(f"{name}: {first[index]} after step {saves[0]}, {most} after step {step}, "
                 f"{least[saves[-1]][index]} after step {saves[-1]}")
    return first, saves


def check_losses(logs):
    (steps, validations), (same_steps, same_validations) = (losses_of(log) for log in logs)
    if len(steps) != STEPS or not all(map(math.isfinite, [*steps, *validations.values()])):
        fail(f"{len(steps)} losses of {STEPS} steps, or one that is not finite")
    if steps != same_steps:
        fail("a loss differs from that in memory")
    shared = validations.keys() & same_validations.keys()
    if len(shared) < STEPS // VALIDATE_EVERY or any(validations[step] != same_validations[step] for step in shared):
        fail("a validation loss differs from that in memory, or is missing")
    return len(validations)


def soak(folder):
    path = lambda name: os.path.join(folder, name)  # noqa: E731
    model_folder.make(path("model"), "gpt2", "F32")
    for name, lines in (("corpus.txt", 400), ("held-out.txt", 60)):
        with open(path(name), "w", encoding="utf-8") as file:
            file.writelines(f"line {i * i % 97}: the {i % 13}th of {lines}\n" for i in range(lines))
    os.mkdir(path("disk"))
    flags = ["train", path("model"), *TRAIN, "--steps", STEPS, "--data", path("corpus.txt"), "--validation",
             path("held-out.txt"), "--validation-every", VALIDATE_EVERY, "--json"]
    drive = ["--disk", path("disk")]
    planned = run("plan", path("model"), *TRAIN, *drive, "--json")
    if planned.code != 0:
        fail(planned.err)
    memory = planned.json["smallest_device_bytes"]
    streamed = [*flags, "--device-memory", f"{memory}B", *drive, "--save", path("run"), "--save-every", SAVE_EVERY,
                "--keep", 1, "--log", path("streamed.jsonl")]
    began = time.monotonic()
    with open(path("out"), "wb") as out, open(path("err"), "wb") as err:
        process = start(*streamed, stdout=out, stderr=err, env=environment(COH_CALIBRATION="none"))
        least = watch(process, path("run"), path("disk"))
    seconds = time.monotonic() - began
    if process.returncode != 0:
        with open(path("err"), encoding="utf-8", errors="replace") as err:
            fail(f"exit {process.returncode}: {err.read().strip().splitlines()[-1]}")
    with open(path("out"), encoding="utf-8") as out:
        done = json.load(out)
    first, saves = check_flat(least)
    resident = run(*flags, "--save", "none", "--log", path("memory.jsonl"))
    if resident.code != 0:
        fail(resident.err.strip().splitlines()[-1])
    validations = check_losses((path("streamed.jsonl"), path("memory.jsonl")))
    if done["hash"] != resident.json["hash"]:
        fail(f"hash {done['hash']} streamed, {resident.json['hash']} in memory")
    print(f"figure: {STEPS} steps in {memory} B from disk, {sum(done['link_bytes'].values()) >> 20} MiB moved, "
          f"{len(saves) + 1} saves seen, {validations} validations, {seconds:.0f} s; from step {saves[0]} on 0 B drift: "
          + ", ".join(f"{name} {value}" for name, value in zip(WHAT, first))
          + f"; {STEPS} finite losses and hash {done['hash']} equal in memory")


def main():
    folder = tempfile.mkdtemp(prefix="cohobate-soak-", dir=os.environ.get("COH_SOAK_FOLDER"))
    try:
        soak(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
