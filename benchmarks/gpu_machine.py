"""The machine that scripts/device measures: its identity and that of its programs, nvidia-smi's data on the GPU, and
whether anything can be measured on it."""

import hashlib
import os
import platform
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLOCKS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
LEAST_MEBIBYTES = 3072  # gpu-check's arena, plus free memory for kernels and libraries


def use_libraries(build):
    """Programs of a packed folder (scripts/device-pack) find their libraries in it."""
    folder = os.path.join(os.path.abspath(build), "lib")
    if os.path.isdir(folder):
        os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, (folder, os.environ.get("LD_LIBRARY_PATH"))))


def environment():
    """Environment for programs: they also search this Python's packages for NVIDIA's libraries."""
    return {"VIRTUAL_ENV": sys.prefix, **os.environ}


def machine():
    """The host of the GPU in a few facts."""
    processor = platform.processor()
    memory_kib = 0
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            processor = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), processor)
        with open("/proc/meminfo", encoding="utf-8") as file:
            memory_kib = int(file.readline().split()[1])
    except OSError:
        pass
    return {"processor": processor, "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory_kib / 2**20, 1),
            "kernel": platform.release(), "libc": " ".join(platform.libc_ver()), "python": platform.python_version()}


def programs_of(build):
    """Identifies these programs, wherever they were built."""
    found = {}
    for name in ("cli/cohobate", "tests/cuda/gpu-check"):
        with open(os.path.join(build, name), "rb") as file:
            found[os.path.basename(name)] = hashlib.sha256(file.read()).hexdigest()[:16]
    return found


def commit():
    """Commit of the sources that contain this script; empty if git does not know."""
    try:
        head, changes = (subprocess.run(["git", "-C", ROOT, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        check=True, timeout=20).stdout.strip()
                         for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]))
        return head + (" with changes" if changes else "")
    except (OSError, subprocess.SubprocessError):
        return None


def index_of(device):
    return device.partition(":")[2] or "0"


def finding_of(findings, device):
    """The finding of cohobate doctor on the GPU; None: it knows none of that number."""
    return next((finding for finding in findings if finding["subject"] == f"GPU {index_of(device)}"), None)


def smi(device, *fields):
    """nvidia-smi's data on the GPU, or nothing, also if one of the fields is unknown to it."""
    try:
        text = subprocess.run(["nvidia-smi", "-i", index_of(device), f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=20).stdout
        return dict(zip(fields, (part.strip() for part in text.split("\n")[0].split(","))))
    except (OSError, subprocess.SubprocessError):
        return {}


class Clocks:
    """Runs nvidia-smi during the phases: clocks, power and temperature every two seconds, while something runs."""

    def __init__(self, device, folder):
        self.process, self.taken = None, 0
        self.path = os.path.join(folder, "clocks")
        with open(self.path, "w", encoding="utf-8") as file:
            try:
                self.process = subprocess.Popen(
                    ["nvidia-smi", "-i", index_of(device), f"--query-gpu={','.join(CLOCKS)}", "--format=csv,noheader,nounits",
                     "--loop-ms=2000"], stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL)
            except OSError:
                pass

    def since_last(self):
        """The rows of CLOCKS since the last call."""
        with open(self.path, encoding="utf-8", errors="replace") as file:
            rows = [[part.strip() for part in line.split(",")] for line in file if line.endswith("\n")]
        self.taken, begin = len(rows), self.taken
        return rows[begin:]

    def close(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


# ---- before anything is measured ----

def preflight(findings, gpu, device):
    """Why nothing can be measured here (None: it can), and what the results will lack. findings: those of cohobate
    doctor; gpu: nvidia-smi's data, or nothing."""
    index = index_of(device)
    by_subject = {finding["subject"]: finding for finding in findings}
    found = finding_of(findings, device)
    if found is None:
        driver = by_subject.get("CUDA", {"found": "cohobate doctor says nothing of CUDA"})
        return f"there is no GPU {index} here: " + "; ".join(filter(None, (driver["found"], driver.get("remedy")))), []
    if found["level"] == "warn":
        return f"GPU {index} ({found['found']}): {found['cost']}: {found['remedy']}", []
    mebibytes = {field: int(gpu[field].split()[0]) for field in ("memory.free", "memory.total")
                 if re.fullmatch(r"\d+ MiB", gpu.get(field, ""))}
    lacks = []
    if index == "0" and len(mebibytes) == 2:  # nvidia-smi's first
        free, total = mebibytes["memory.free"], mebibytes["memory.total"]
        if free < LEAST_MEBIBYTES:
            return (f"GPU {index} has {free} of {total} MiB free, {LEAST_MEBIBYTES} are needed: end what else uses it "
                    "(nvidia-smi lists it)"), []
        if free < 0.95 * total:
            lacks.append(f"{total - free} of {total} MiB of GPU {index} are in use: large models may not fit, and times are "
                         "those of a GPU that is shared")
    for name in ("cuBLASLt", "cuDNN"):
        library = by_subject.get(name)
        if library is not None and library["level"] != "ok":
            lacks.append(f"{name}: {library['found']}: {library['cost']}; {library['remedy']}")
    return None, lacks
