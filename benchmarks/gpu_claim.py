"""The claims that need a GPU (scripts/claims.d/6-1-* to 6-5-*). Without one they print so and exit 77: not checked,
which is neither met nor missed. With one they run the phases of scripts/device, with its programs: those of build/,
which are built, or of the folder in COH_DEVICE_BUILD (made by scripts/device-pack), where nothing is built.

The check of each claim is a function here that takes its cases and gives (words, missed, unmeasured) for finish():
other sizes, and a played GPU (tests/cuda/emulated_gpu.c), go through the same lines."""

import argparse
import glob
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys

import claim
import gpu_machine
import utilisation

CARRIED = os.environ.get("COH_DEVICE_BUILD")
BUILD, DEVICE = CARRIED or "build", "cuda:0"
MINUTES = 20  # of scripts/device: PyTorch compiles for part of them
PROFILE = "h200"  # of any GPU: where prices are needed and nothing depends on them
GRADIENTS = {"f32": "test_parity.py", "bf16": "test_bf16.py"}  # of tests/parity
LIBRARIES = ("attention-cudnn", "matmul-cublaslt", "kinds-libraries")  # groups of gpu-check that run NVIDIA's kernels
SANITIZER = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
SANITIZER_S = 3600  # limit for one group
H200 = {"gpt2": 420e3, "gpt2-xl": 50e3}  # tokens/s
OF_ROOF_ARE = ("opt-6.7b",)  # models compared with the roof
OF_ROOF, OF_PYTORCH, OF_MEMORY_SPEED, HIDDEN, OF_LINK, MEAN_ERROR = 0.75, 1.15, 0.95, 0.95, 0.9, 0.05


# ---- what is here ----

def finding(build=BUILD):
    """The finding of cohobate doctor on the GPU if it is usable; else None."""
    done = subprocess.run([os.path.join(build, "cli", "cohobate"), "doctor", "--json"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit("cohobate doctor fails: " + done.stderr.strip())
    return next((one["found"] for one in json.loads(done.stdout)["findings"]
                 if one["subject"] == "GPU 0" and one["level"] != "warn"), None)


def require(or_recorded=False):
    """Builds, unless programs were carried; exits if no GPU is usable, unless recorded results will do and there are some."""
    if CARRIED:
        gpu_machine.use_libraries(CARRIED)
    else:
        claim.build()
    if finding() is None and not (or_recorded and recorded()):
        print("not run: no GPU")
        sys.exit(77)


def python_with(package):
    """An interpreter with these packages: COH_TEST_PYTHON's, this one, Debian's, that of scripts/reference-python; else
    None."""
    for path in (os.environ.get("COH_TEST_PYTHON"), sys.executable, "/usr/bin/python3", "build-ci/python/bin/python"):
        if path and os.access(path, os.X_OK) and subprocess.run([path, "-c", f"import {package}"], capture_output=True,
                                                                check=False).returncode == 0:
            return path
    return None


def scripts_device():
    """scripts/device as a module."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("scripts_device", os.path.join(claim.measure.ROOT, "scripts", "device"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("scripts_device", loader))
    loader.exec_module(module)
    return module


def options_of(minutes, build=BUILD, out=claim.RESULTS, tiny=False):
    """Those of scripts/device."""
    return argparse.Namespace(build=os.path.abspath(build), out=out, disk=out, minutes=minutes, device=DEVICE, only=None,
                              allow_build=False, compile=True, tiny=tiny, python=python_with("torch") or sys.executable)


def is_of(found, wanted, phases):
    """Whether a result of scripts/device has all these phases, and these members are the same."""
    return set(phases) <= set(found.get("phases", ())) and all(found.get(name) == value for name, value in wanted.items())


def newest(folder, wanted, phases):
    """The newest result of scripts/device with is_of(); None: there is none."""
    for path in sorted(glob.glob(os.path.join(folder, "20??-??-??-*.json")), key=os.path.getmtime, reverse=True):
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if is_of(found, wanted, phases):
            return found
    return None


def recorded(folder=claim.RESULTS):
    """The recorded results of scripts/device on one GPU, that of the last one, as one result: a GPU may be at hand for some
    phases at a time. In the order of their names, which begin with the date, a later one replaces members of phases, and rows
    by name; "commits" of a phase are those of its parts. None: there are none."""
    results = []
    for path in sorted(glob.glob(os.path.join(folder, "20??-??-??-*.json"))):
        with open(path, encoding="utf-8") as file:
            results.append(json.load(file))
    results = [one for one in results if one.get("phases") and not one.get("tiny")]
    results = [one for one in results if one["found"] == results[-1]["found"]]
    phases_of = {}
    for name, phase, commit in ((*item, one["commit"]) for one in results for item in one["phases"].items()):
        old = phases_of.get(name, {"commits": []})
        rows = {kind: {**old.get(kind, {}), **phase[kind]} for kind in ("rows", "by_default") if kind in phase}
        phases_of[name] = {**old, **phase, **rows, "commits": list(dict.fromkeys([*old["commits"], commit]))}
    return {**results[-1], "phases": phases_of, "tiny": False, "is_recorded": True} if results else None


def phases(build=BUILD, out=claim.RESULTS, tiny=False, minutes=MINUTES):
    """Results of scripts/device on this GPU with these programs and sizes, which it measures if there are none; without a
    GPU the recorded ones."""
    if finding(build) is None:
        return recorded(out)
    module = scripts_device()
    wanted = {"device": DEVICE, "found": finding(build), "programs": module.programs_of(build), "tiny": tiny, "compile": True}
    found = newest(out, wanted, module.USUAL)
    if found is None:
        module.measure(options_of(minutes, build, out, tiny))
        found = newest(out, wanted, module.USUAL)
    if found is None:
        sys.exit("scripts/device wrote no results of all its phases")
    return found


def session(cases, minutes, **options):
    """scripts/device, and a session of it for separate runs, priced by a profile of these cases (in the form of
    scripts/device) that is measured first."""
    module = scripts_device()
    opened = module.Session(options_of(minutes, **options))
    try:
        module.profile(opened, cases)
    except module.Failed as failure:
        sys.exit(f"the profile: {failure}")
    return module, opened


def budget_of(device, opened, *sizes, part):
    """Bytes of the device: a fraction of the model's states for a float, or that many for an int."""
    return part if isinstance(part, int) else device.budget_of(opened, *sizes, part)


def finish(words, missed, unmeasured):
    """Prints the figures as the last line, and exits: misses take precedence over what was not measured."""
    print("; ".join(words + [f"{name}: MISSED" for name in missed] + [f"{name}: not measured" for name in unmeasured]))
    sys.exit(1 if missed else 77 if unmeasured else 0)


def large(name, build=BUILD, out=claim.RESULTS, minutes=8):
    """A result with phase large, and this row if it can be measured: of these programs on this GPU, which are measured if there
    is none; without a GPU the recorded ones."""
    here = finding(build)
    if here is None:
        return recorded(out)
    module = scripts_device()
    wanted = {"found": here, "programs": module.programs_of(build)}
    found = newest(out, wanted, ["large"])
    if found is None or name not in found["phases"]["large"].get("rows", {}):
        options = options_of(minutes, build, out)
        options.only = ["large"]
        module.measure(options)
        found = newest(out, wanted, ["large"])
    return found


def share(found, name, or_with_host=False):
    """Words, misses and what is not measured of a row of phase large. `or_with_host`: compared with the memory of the GPU and the
    host if that of the GPU is too small."""
    row = (found or {"phases": {}})["phases"].get("large", {}).get("rows", {}).get(name)
    if row is None:
        return [], [], [name]
    where = "with_host" if or_with_host and "in_memory" not in row else "in_memory"
    whole, steps = row.get(where), len(row["seconds"])
    words = [*(origin(found, "large") or [found["gpu"].get("name", found["found"])]),
             f"{row['tokens_per_second']:.0f} tokens/s, {row['step_seconds']:.2f} s a step, predicted "
             f"{row['predicted_step_seconds']:.2f}"]
    missed = ["prediction"] if abs(row["predicted_step_seconds"] / row["step_seconds"] - 1) > MEAN_ERROR else []
    missed += ["peak"] if row["peak_bytes"] != row["predicted_peak_bytes"] else []
    stood_s = sum(row["exposed_seconds"].get(lane, 0) for lane in ("h2d", "d2h")) / steps
    least_s = both_ways_s(found["phases"]["large"]["profile"],
                          {lane: row["link_bytes"].get(lane, 0) / steps for lane in ("h2d", "d2h")})[0]
    words.append(f"{1 - stood_s / least_s:.3f} of {least_s:.2f} s of transfers hidden (must {HIDDEN})")
    missed += ["hidden"] if 1 - stood_s / least_s < HIDDEN else []
    if whole is None:
        return words, missed, ["the speed in memory"]
    of = "in memory" if where == "in_memory" else "in all of the GPU's memory and the host's"
    words.append(f"{row['share_of_memory_speed']:.3f} of the speed {of} (must {OF_MEMORY_SPEED}), "
                 + ("the same hash and losses" if (row["hash"], row["losses"]) == (whole["hash"], whole["losses"]) else "OTHER BITS"))
    missed += ["speed"] if row["share_of_memory_speed"] < OF_MEMORY_SPEED else []
    missed += ["bits"] if row["hash"] != whole["hash"] or row["losses"] != whole["losses"] else []
    return words, missed, []


# ---- 6-1: correctness, the same bits, PyTorch's losses ----

def bits(found):
    """Of phase bits: the places of a model, in memory and streamed."""
    rows = found["phases"].get("bits", {}).get("rows", {})
    first, streamed = rows.get("in memory"), [row for row in rows.values() if sum(row["link_bytes"].values()) > 0]
    if first is None or sum(first["link_bytes"].values()) > 0 or len(streamed) < 2:
        return [], [], ["one model in memory, and in two places that are streamed"]
    words = [*origin(found, "bits"), ", ".join(f"{name} {row['hash']}" for name, row in rows.items())]
    missed = [name for name, row in rows.items() if (row["hash"], row["losses"]) != (first["hash"], first["losses"])]
    return words, missed, [one for one in found.get("skipped", []) if one.startswith("bits:")]


def sanitized(check, groups, sanitizer):
    """compute-sanitizer on groups of gpu-check: wrong addresses in all, races and barriers in the project's kernels."""
    own = [group for group in groups if group not in LIBRARIES]
    words, missed, unmeasured = [], [], []
    for tool, among in (("memcheck", groups), ("racecheck", own), ("synccheck", own)):
        clean = 0
        for group in among:
            try:
                done = subprocess.run([sanitizer, "--tool", tool, "--error-exitcode", "9", check, group], capture_output=True,
                                      text=True, timeout=SANITIZER_S, check=False)
            except subprocess.TimeoutExpired:
                unmeasured.append(f"{tool} of {group} within an hour")
                continue
            clean += done.returncode == 0
            if done.returncode != 0:
                print("\n".join(done.stdout.strip().splitlines()[-10:]), flush=True)
                missed.append(f"{tool} of {group}")
        words.append(f"{tool} clean in {clean} of {len(among)} groups")
    return words, missed, unmeasured


def kernels(groups=(), build=BUILD, sanitizer=None):
    """groups of gpu-check, none: all. sanitizer: compute-sanitizer's path; None: searched."""
    check = os.path.join(build, "tests", "cuda", "gpu-check")
    groups = list(groups) or list(scripts_device().CHECKS)
    done = subprocess.run([check, *groups], capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    print("\n".join(lines[-20:]), flush=True)
    skipped = [line.split()[0] for line in lines if "skipped:" in line]
    words = [f"{sum(line.endswith(' right') for line in lines)} of {len(groups)} groups right"]
    missed = ["gpu-check"] if done.returncode not in (0, 77) else []
    unmeasured = [f"{name} (its library is not here)" for name in skipped]
    unmeasured = ["gpu-check (no GPU)"] if done.returncode == 77 else unmeasured
    sanitizer = sanitizer or next((path for path in map(shutil.which, SANITIZER) if path), None)
    if sanitizer is None:
        return words + ["compute-sanitizer is not here"], missed, unmeasured
    parts = sanitized(check, [group for group in groups if group not in skipped], sanitizer)
    return words + parts[0], missed + parts[1], unmeasured + parts[2]


def beside_pytorch(tests=(), curve=(), build=BUILD):
    """tests: which of the gradients' (as unittest has them); none: all. curve: flags of tests/parity/curve.py."""
    words, missed, unmeasured = [], [], []
    python, dump = python_with("torch"), os.path.join(build, "tests", "parity", "parity_dump")
    if python is None:
        return [], [], ["gradients and losses (no interpreter has PyTorch: scripts/reference-python installs it)"]
    for name, file, flags in [(f"gradients in {dtype}", file, tests) for dtype, file in GRADIENTS.items()] + [
            ("losses in bf16", "curve.py", curve)]:
        done = subprocess.run([python, os.path.join("tests", "parity", file), dump, "--device", DEVICE, "--profile", PROFILE,
                               *flags], capture_output=True, text=True, check=False)
        lines = done.stdout.strip().splitlines()
        last = lines[-1] if lines else "no output"
        if done.returncode == 77:
            unmeasured.append(f"{name} ({last})")
            continue
        words.append(f"{name}: {last}")
        if done.returncode != 0:
            print("\n".join((done.stderr.strip().splitlines() + lines)[-30:]), flush=True)
            missed.append(name)
    return words, missed, unmeasured


# ---- 6-2 to 6-5: from the results of scripts/device ----

def origin(found, *names):
    """Words for these phases of a result that was recorded, not measured here."""
    if not found.get("is_recorded"):
        return []
    commits = dict.fromkeys(commit for name in names for commit in found["phases"].get(name, {}).get("commits", []))
    return [f"recorded on {found['found'].partition(',')[0]}, {found['date']}, {', '.join(commits)}"]


def speed(found, models=("gpt2", "gpt2-xl", "opt-6.7b")):
    device = scripts_device()
    table = device.TINY if found["tiny"] else device.MEMORY
    rows, by_default, others = (found["phases"][phase].get(kind, {}) for phase, kind in (
        ("memory", "rows"), ("memory", "by_default"), ("pytorch", "rows")))
    profile = found["phases"]["profile"].get("profile")
    name = found["gpu"].get("name", found["found"].partition(",")[0])
    words, missed, unmeasured = origin(found, "memory", "pytorch") or [name], [], []
    for model in models:
        if model not in rows:
            unmeasured.append(model)
            continue
        _, vocabulary, sequence, *_, shape = table[model]
        rate = rows[model]["tokens_per_second"]
        utilised = rows[model]["utilisation"]
        words.append(f"{model} {rate:.0f} tokens/s" + "".join(
            f", {utilised[of]:.2f} {of.replace('_', ' ')}" for of in ("of_measured_roof", "of_datasheet") if of in utilised))
        if model in by_default:
            words.append(f"{by_default[model]['tokens_per_second']:.0f} as train divides it")
        if "H200" in name and rate < H200.get(model, 0):
            missed.append(f"{model} at {H200[model]:.0f}")
        if model in OF_ROOF_ARE and profile is None:
            unmeasured.append("the roof")
        elif model in OF_ROOF_ARE:
            part = rate * utilisation.work(shape, vocabulary, sequence) / device.rate_of(profile["flops_per_s"]["bf16"])
            words.append(f"{part:.2f} of the roof without what causal attention leaves out (must {OF_ROOF})")
            missed += ["roof"] if part < OF_ROOF else []
        if model in others:
            ratio = rate / others[model]["tokens_per_second"]
            words.append(f"{ratio:.2f} times PyTorch {others[model]['mode']}, {others[model]['attention']} (must {OF_PYTORCH})")
            missed += [f"{model} against PyTorch"] if ratio < OF_PYTORCH else []
        else:
            unmeasured.append(f"{model} by PyTorch")
    return words, missed, unmeasured


def both_ways_s(profile, moved):
    """The least seconds of these bytes to and from the device, and of each direction alone: both at once at their rates
    under contention, then the rest of the longer one alone; or one after the other, if that is shorter."""
    rate_of = scripts_device().rate_of
    rates = {lane: rate_of(profile["links"][lane]["bytes_per_s"]) for lane in moved}
    alone = {lane: moved[lane] / rates[lane] for lane in moved}
    part = {lane: rate_of(profile["contention"].get(lane, {}).get(other, 1.0))
            for lane, other in (("h2d", "d2h"), ("d2h", "h2d"))}
    first, last = sorted(moved, key=lambda lane: alone[lane] / part[lane])
    together = alone[first] / part[first]
    return min(sum(alone.values()), together + alone[last] - together * part[last]), alone


def offload(found, name="opt-6.7b at 25 %"):
    """If transfers take longer than the step in memory, the links must be full. Lanes without bytes are missing in a
    run's output."""
    row = found["phases"]["offload"].get("rows", {}).get(name)
    profile = found["phases"]["profile"].get("profile")
    if row is None or profile is None or row["share_of_memory_speed"] is None:
        return [], [], [name if row is None else "the profile" if profile is None else "the speed in memory"]
    moved = {lane: row["link_bytes"].get(lane, 0) / len(row["seconds"]) for lane in ("h2d", "d2h")}  # per step
    stood_s = sum(row["exposed_seconds"].get(lane, 0) for lane in moved) / len(row["seconds"])
    if not any(moved.values()):
        return [], ["nothing was streamed"], []
    least_s, alone = both_ways_s(profile, moved)
    in_memory_s = row["share_of_memory_speed"] * row["step_seconds"]
    hidden = 1 - stood_s / least_s
    words = [*origin(found, "offload"), f"{row['share_of_memory_speed']:.3f} of the speed in memory"]
    missed = []
    for lane, alone_s in alone.items():
        words.append(f"{lane} at {moved[lane] / row['step_seconds'] / 1e9:.1f} GB/s, "
                     f"{alone_s / row['step_seconds']:.2f} of what it gives alone")
    words.append(f"both at {least_s / row['step_seconds']:.2f} of what they give together")
    if least_s > in_memory_s:
        words.append(f"transfers take longer than the step in memory: the links together must be at {OF_LINK}")
        return words, ["link"] if least_s < OF_LINK * row["step_seconds"] else [], []
    words.append(f"{hidden:.3f} of {least_s:.2f} s of transfers hidden (must {HIDDEN}, and the speed {OF_MEMORY_SPEED})")
    missed += ["speed"] if row["share_of_memory_speed"] < OF_MEMORY_SPEED else []
    missed += ["hidden"] if hidden < HIDDEN else []
    return words, missed, []


def trained(device, opened, case):
    """A run of a case: (MODEL, vocabulary, sequence, batch, micro-batch, steps, part of its states' bytes on the device or
    None: in memory)."""
    *sizes, part = case
    if not part:
        return device.train(opened, *sizes, *device.IN_MEMORY)
    return device.train(opened, *sizes, "--device-memory", f"{budget_of(device, opened, *sizes[:5], part=part)}B")


def prediction(calibrating, cases, minutes=20, **options):
    """cases as in trained(). The profile is measured for the calibrating cases, which run first. The others are scored:
    nothing is known of them then, and each is predicted from what was known before the first of them."""
    device, opened = session(sorted({case[:5] for case in calibrating}), minutes, **options)
    errors, wrong, unmeasured = [], [], []
    for case in calibrating:
        try:
            trained(device, opened, case)
        except device.Failed as failure:
            unmeasured.append(f"{case[0]} to calibrate by ({failure})")
    kept = opened.calibration + ".kept"
    if not os.path.exists(opened.calibration):
        return [], [], unmeasured + ["calibration (no run left any)"]
    shutil.copy(opened.calibration, kept)
    for case in cases:
        model, _, sequence, batch, _, _, part = case
        name = f"{model} {batch}x{sequence}" + (f" at {part:.0%}" if isinstance(part, float) else f" in {part}" if part else "")
        shutil.copy(kept, opened.calibration)
        try:
            row = trained(device, opened, case)
        except device.Failed as failure:
            unmeasured.append(f"{name} ({failure})")
            continue
        errors.append(abs(row["predicted_step_seconds"] / row["step_seconds"] - 1))
        wrong += [f"peak of {name}"] if row["peak_bytes"] != row["predicted_peak_bytes"] else []
        print(f"{name}: predicted {row['predicted_step_seconds']:.4f} s, measured {row['step_seconds']:.4f}", flush=True)
    if not errors:
        return [], [], unmeasured
    mean = sum(errors) / len(errors)
    words = [f"{len(errors)} configurations: off by {mean:.1%} in the mean (must {MEAN_ERROR:.0%}), {max(errors):.1%} at "
             f"worst, {len(wrong)} peaks differ"]
    return words, (["mean"] if mean > MEAN_ERROR else []) + wrong, unmeasured


def facts(found):
    """Issue 6's list, item by item: missing ones are named."""
    profile = found["phases"]["profile"].get("profile")
    if profile is None:
        return [], [], ["the profile"]
    told, more = found["phases"]["profile"]["told"], found["phases"]["facts"]
    figures = {"products of bf16": (profile["flops_per_s"]["bf16"], 1e12, "TFLOP/s"),
               "products of f32": (profile["flops_per_s"]["f32"], 1e12, "TFLOP/s"),
               "memory": (profile["memory_bytes_per_s"], 1e9, "GB/s"),
               "to the device": (profile["links"]["h2d"]["bytes_per_s"], 1e9, "GB/s"),
               "from the device": (profile["links"]["d2h"]["bytes_per_s"], 1e9, "GB/s")}
    rate_of = scripts_device().rate_of
    words = origin(found, "profile", "facts") + [f"{name} {rate_of(figure) / unit:.1f} {text}"
                                                  for name, (figure, unit, text) in figures.items()]
    missing = []
    for what, rows, show in (
            ("both ways at once by size", told["copies"], lambda row: f"{row['h2d_beside'] + row['d2h_beside']:.1f} GB/s"),
            ("pinning", told["pinning"], lambda row: f"{row['touch_s_per_gib'] + row['pin_s_per_gib']:.2f} s per GiB"),
            ("the drive by requests in flight", told["drive"],
             lambda row: f"{row['of']} {max(row['gb_per_s_by_depth'].values()):.1f} GB/s"),
            ("the host's memory by threads", more.get("host_memory", []),
             lambda row: f"{row['threads']} threads {max(run['copy'] for run in row['runs']):.0f} GB/s"),
            ("kernels that copy", more.get("rows", {}).get("gpu_copies", []),
             lambda row: f"{row['shape']} {row['ratio']:.2f} times the copy engine")):
        if rows:
            words.append(f"{what}: {show(rows[-1])}")
        else:
            missing.append(what)
    return words, [], missing
