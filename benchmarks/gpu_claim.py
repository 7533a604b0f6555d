"""The claims that need a GPU (scripts/claims.d/6-1-* to 6-5-*). Where there is none they say so and exit 77: not
checked, which is neither met nor missed. Where there is one they run what scripts/device runs, with its programs."""

import argparse
import glob
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys

import claim

BUILD = "build"


def is_here():
    done = subprocess.run([os.path.join(BUILD, "cli", "cohobate"), "doctor", "--json"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit("cohobate doctor fails: " + done.stderr.strip())
    return any(finding["subject"] == "GPU 0" and finding["level"] != "warn" for finding in json.loads(done.stdout)["findings"])


def require():
    """Builds; goes on only where a GPU can be used."""
    if subprocess.run(["scripts/setup"], capture_output=True, check=False).returncode != 0:
        sys.exit("scripts/setup fails")
    if not is_here():
        print("not run: no GPU")
        sys.exit(77)


def scripts_device():
    """scripts/device as a module."""
    path = os.path.join("scripts", "device")
    loader = importlib.machinery.SourceFileLoader("scripts_device", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("scripts_device", loader))
    loader.exec_module(module)
    return module


def phases():
    """What scripts/device found on this machine with these programs; it runs, for eight minutes, where nothing is
    known."""
    require()
    made = os.path.getmtime(os.path.join(BUILD, "cli", "cohobate"))

    def newest():
        files = [path for path in glob.glob(os.path.join(claim.RESULTS, "20??-??-??-*.json")) if os.path.getmtime(path) > made]
        return max(files, key=os.path.getmtime, default=None)

    if newest() is None:
        subprocess.run(["scripts/device", "--build", BUILD], stdout=subprocess.DEVNULL, check=False)
    if newest() is None:
        sys.exit("scripts/device wrote no results")
    with open(newest(), encoding="utf-8") as file:
        return json.load(file)


def session(minutes):
    """A session of scripts/device for runs of one's own, priced by a profile that is measured first."""
    require()
    module = scripts_device()
    options = argparse.Namespace(build=os.path.abspath(BUILD), out=claim.RESULTS, minutes=minutes, device="cuda:0", only=None,
                                 allow_build=False, compile=False, tiny=False)
    opened = module.Session(options)
    module.profile(opened)
    return module, opened


def finish(words, missed, unmeasured):
    """Prints the figures as the last line, and exits: what is missed counts before what was not measured."""
    print("; ".join(words + [f"{name}: MISSED" for name in missed] + [f"{name}: not measured" for name in unmeasured]))
    sys.exit(1 if missed else 77 if unmeasured else 0)
