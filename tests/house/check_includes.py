#!/usr/bin/env python3
"""Walks every #include of the tree and fails on an arrow in the wrong direction.

    check_includes.py ROOT          file:line of every wrong include; exit 1 where there is one
    check_includes.py --self-test   plants wrong includes in a made-up tree and sees each one caught

The arrows: base -> memory -> (kernels | offload | comm | planner, never one another) -> engine; models, text and report include
the public headers and base; cli only the public headers and report; examples only the public headers and those beside
them. In addition,
includes are written from the root, CUDA, NCCL and MPI headers are included only where allowed, operator kinds include no
header of a device, and no header includes itself, directly or not."""

import os
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
SOURCES = (".c", ".h", ".cu", ".cuh")
LIBRARY = {"cohobate", "coh_config.h", "base", "memory", "kernels", "offload", "comm", "planner", "engine"}

# folder -> first path part of what its files may include
ALLOWED = {
    "include": {"cohobate"},
    "base": {"cohobate", "coh_config.h", "base"},
    "memory": {"cohobate", "coh_config.h", "base", "memory"},
    "kernels": {"cohobate", "coh_config.h", "base", "memory", "kernels"},
    "offload": {"cohobate", "coh_config.h", "base", "memory", "offload"},
    "comm": {"cohobate", "coh_config.h", "base", "memory", "comm"},
    "planner": {"cohobate", "coh_config.h", "base", "memory", "planner"},
    "engine": LIBRARY,
    "models": {"cohobate", "coh_config.h", "base", "models"},
    "text": {"cohobate", "coh_config.h", "base", "text"},
    "report": {"cohobate", "coh_config.h", "base", "report"},
    "cli": {"cohobate", "coh_config.h", "report", "cli"},
    "examples": {"cohobate"},
    "tests": LIBRARY | {"models", "text", "report", "cli", "examples", "tests"},
    "benchmarks": LIBRARY | {"models", "text", "benchmarks"},
}
OURS = set().union(*ALLOWED.values()) | set(ALLOWED)

CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|nccl|curand)")
CUDA_PLACES = re.compile(r"^memory/(device_cuda|cuda)_?\w*\.[ch]$|^comm/nccl\w*\.[ch]$"
                         r"|^(kernels|tests)/cuda/|^examples/\w+/\w+\.cu$")

MPI_PLACES = ("comm/mpi.c", "benchmarks/reduce.c")  # the benchmark compares with MPI itself

KIND = re.compile(r"^kernels/kind_\w+\.[ch]$")


def wrong(path, quote, target, is_beside):
    """The reason why `path` may not include `target`, or None. is_beside: both are in one folder."""
    folder, first = path.split("/", 1)[0], target.split("/", 1)[0]
    if first in ("..", "."):
        return "includes are written from the root"
    if CUDA_HEADER.match(target) and not CUDA_PLACES.search(path):
        return ("CUDA headers stand in memory/cuda_*, memory/device_cuda*, comm/nccl*, "
                "kernels/cuda/ and tests/cuda/ only")
    if target == "mpi.h" and path not in MPI_PLACES:
        return f"MPI's header stands in {MPI_PLACES[0]} only: all else is linked without MPI"
    if KIND.search(path) and target.startswith("kernels/cuda/"):
        return "what a kind does differently on a device is declared in kernels/kind_devices.h"
    if quote == "<" and first not in OURS:
        return None
    if folder == "examples" and is_beside:
        return None
    if first not in ALLOWED[folder]:
        return f"{folder}/ may include {', '.join(sorted(ALLOWED[folder]))} only"
    return None


def sources(root):
    for folder in sorted(ALLOWED):
        for at, folders, names in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(at, name), root)


def cycles(edges):
    """A message for every header that includes itself, directly or not."""
    found, state = [], {}

    def visit(header, way):
        if state.get(header) == "done":
            return
        if header in way:
            found.append(f"{header}: includes itself through {' -> '.join(way[way.index(header):])}")
            return
        for target in edges.get(header, ()):
            visit(target, way + [header])
        state[header] = "done"

    for header in sorted(edges):
        visit(header, [])
    return found


def check(root):
    """Every wrong include as file:line: reason, and how many files and includes were read."""
    errors, edges, file_count, include_count = [], {}, 0, 0
    for path in sources(root):
        file_count += 1
        edges[path] = []
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                include_count += 1
                beside = os.path.join(root, os.path.dirname(path), match[2])
                reason = wrong(path, match[1], match[2], "/" not in match[2] and os.path.isfile(beside))
                if reason:
                    errors.append(f"{path}:{number}: includes {match[2]}: {reason}")
                public = match[2].startswith("cohobate/")
                edges[path].append("include/" + match[2] if public else match[2])
    return errors + cycles(edges), file_count, include_count


# path, text, the expected message ("" for a valid file)
PLANTED = [
    ("base/good.c", '#include "base/good.h"\n#include <stdio.h>\n#include "cohobate/status.h"\n', ""),
    ("base/up.c", '\n#include "memory/arena.h"\n', "base/up.c:2: includes memory/arena.h"),
    ("memory/up.h", '  #  include "planner/plan.h"\n', "memory/up.h:1: includes planner/plan.h"),
    ("kernels/beside.c", '#include "offload/store.h"\n', "kernels/beside.c:1:"),
    ("offload/beside.c", '#include "planner/program.h"\n', "offload/beside.c:1:"),
    ("kernels/kind_deep.c", '#include "kernels/cuda/scratch.h"\n', "kernels/kind_deep.c:1:"),
    ("kernels/cuda/kind_good.c", '#include "kernels/cuda/scratch.h"\n', ""),
    ("comm/beside.c", '#include "kernels/fold.h"\n', "comm/beside.c:1:"),
    ("comm/mpi.c", "#include <mpi.h>\n", ""),
    ("benchmarks/reduce.c", "#include <mpi.h>\n", ""),
    ("comm/mpi_deep.c", "#include <mpi.h>\n", "comm/mpi_deep.c:1:"),
    ("tests/comm/deep.c", "#include <mpi.h>\n", "tests/comm/deep.c:1:"),
    ("comm/good.c", '#include "memory/mesh.h"\n', ""),
    ("planner/beside.c", '#include "kernels/kernels.h"\n', "planner/beside.c:1:"),
    ("planner/angle.c", "#include <kernels/kernels.h>\n", "planner/angle.c:1:"),
    ("models/deep.c", '#include "engine/step.h"\n', "models/deep.c:1:"),
    ("text/deep.c", '#include "memory/arena.h"\n', "text/deep.c:1:"),
    ("cli/deep.c", '#include "base/alloc.h"\n', "cli/deep.c:1:"),
    ("examples/deep.c", '#include "coh_config.h"\n', "examples/deep.c:1:"),
    ("examples/own/beside.h", "int one;\n", ""),
    ("examples/own/good.c", '#include "beside.h"\n#include <cohobate/cohobate.h>\n', ""),
    ("examples/own/good.cu", "#include <cuda_runtime.h>\n", ""),
    ("examples/own/gpu.c", "#include <cuda_runtime.h>\n", "examples/own/gpu.c:1:"),
    ("examples/own/deep.c", '#include "absent.h"\n', "examples/own/deep.c:1:"),
    ("include/cohobate/deep.h", '#include "base/check.h"\n', "include/cohobate/deep.h:1:"),
    ("engine/good.c", '#include "kernels/kernels.h"\n#include "offload/store.h"\n', ""),
    ("engine/dots.c", '#include "../base/check.h"\n', "engine/dots.c:1:"),
    ("engine/gpu.c", "#include <cuda_runtime.h>\n", "engine/gpu.c:1:"),
    ("memory/device_cuda.c", "#include <cuda.h>\n", ""),
    ("memory/cuda_queue.h", "#include <cuda.h>\n", ""),
    ("memory/device.h", "#include <cuda.h>\n", "memory/device.h:1:"),
    ("kernels/cuda/deep.cu", '#include "offload/store.h"\n', "kernels/cuda/deep.cu:1:"),
    ("base/ring_a.h", '#include "base/ring_b.h"\n', "base/ring_a.h: includes itself"),
    ("base/ring_b.h", '#include "base/ring_a.h"\n', "base/ring_a.h: includes itself"),
]


def self_test():
    failures = 0
    with tempfile.TemporaryDirectory() as root:
        for path, text, _ in PLANTED:
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        errors, _, _ = check(root)
    for path, _, answer in PLANTED:
        caught = any(error.startswith(answer) for error in errors) if answer else False
        clean = not any(error.startswith(path) for error in errors)
        if not (caught if answer else clean):
            failures += 1
            print(f"self-test: {path} should {'be caught as ' + answer if answer else 'pass'}")
    expected = len({answer for _, _, answer in PLANTED if answer})
    if len(errors) != expected:
        failures += 1
        print(f"self-test: {len(errors)} errors where {expected} were planted: {errors}")
    print(f"self-test: {expected} wrong includes planted, {failures} misjudged")
    return 1 if failures else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    errors, file_count, include_count = check(sys.argv[1])
    for error in errors:
        print(error)
    print(f"{include_count} includes in {file_count} files, {len(errors)} wrong")
    return 1 if errors or file_count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
