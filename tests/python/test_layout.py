"""The Python package declares the library's structs and functions as the headers do: test_layout.py INCLUDE COMPILER...

A C program made from the package's list prints the sizes and offsets that the compiler sees; the functions are compared with
the headers' by their names, results and parameters."""
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

INCLUDE, COMPILER = pathlib.Path(sys.argv[1]), sys.argv[2:]
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "api")]

import public_api  # noqa: E402
from cohobate import _library, _structs  # noqa: E402
from left_out import LEFT_OUT  # noqa: E402

API = public_api.read(INCLUDE / "cohobate")
NUMBERS = {
    "int": ctypes.c_int, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "float": ctypes.c_float, "double": ctypes.c_double,
}
# Array lengths and values that the package repeats.
CONSTANTS = {
    "COH_TIER_COUNT": _structs.TIERS, "COH_LANE_COUNT": _structs.LANES, "COH_PLAN_BOUND_COUNT": _structs.BOUNDS,
    "COH_DTYPE_F32": _structs.DTYPES["f32"], "COH_DTYPE_BF16": _structs.DTYPES["bf16"],
    "COH_RECOMPUTE_AUTO": _structs.RECOMPUTE["auto"], "COH_RECOMPUTE_NONE": _structs.RECOMPUTE["none"],
    "COH_RECOMPUTE_ALL": _structs.RECOMPUTE["all"], "COH_SEARCH_USUAL": _structs.SEARCH["usual"],
    "COH_SEARCH_QUICK": _structs.SEARCH["quick"], "COH_SEARCH_THOROUGH": _structs.SEARCH["thorough"],
    "COH_SWEEP_SAME_BITS": _structs.SWEEP_SAME_BITS, "COH_SWEEP_LAYER": _structs.SWEEP_LAYER,
    "COH_ERR_STOPPED": _structs.STOPPED, "COH_PLAN_INFER": _structs.PLAN_INFER, "COH_FETCH_VALUE": _structs.FETCH_VALUE,
    "COH_FETCH_GRADIENT": _structs.FETCH_GRADIENT, "COH_MODEL_JSON_BYTES": _structs.MODEL_JSON_BYTES,
    "COH_TRAINING_NOTE_BYTES": _structs.TRAINING_NOTE_BYTES, "COH_GROUP_SETS_RATE": _structs.GROUP_SETS_RATE,
    "COH_GROUP_SETS_DECAY": _structs.GROUP_SETS_DECAY, "COH_DISK_WORTH_BYTES": _structs.DISK_WORTH_BYTES, "COH_OK": 0,
    "COH_TERM_COUNT": _structs.TERM_COUNT, "COH_TERM_DISK_LIMIT": _structs.TERM_DISK_LIMIT,
    "COH_TERM_WEIGHTS": _structs.TERM_WEIGHTS,
    **{f"COH_OPERATION_{name.upper()}": number for number, name in enumerate(_structs.OPERATIONS)},
    **{f"COH_DATA_{name.upper()}": number for name, number in _structs.DATA_FORMS.items()},
    **{f"COH_SCHEDULE_{name.upper()}": number for name, number in _structs.SCHEDULES.items()},
    **{f"COH_CHAT_FORM_{name.upper()}": number for name, number in _structs.CHAT_FORMS.items()},
}


def expected():
    """{C expression: value that the package has}."""
    table = dict(CONSTANTS)
    for struct in _structs.STRUCTS:
        name = struct.__name__
        table[f"sizeof({name})"] = ctypes.sizeof(struct)
        for field, _ in struct._fields_:
            if not field.startswith("_"):
                table[f"offsetof({name}, {field})"] = getattr(struct, field).offset
                table[f"sizeof((({name} *)0)->{field})"] = getattr(struct, field).size
    return table


def compiled(expressions):
    lines = ["#include <cohobate/cohobate.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    lines += [f'    printf("%lld\\n", (long long)({expression}));' for expression in expressions]
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        pathlib.Path(source).write_text("\n".join(lines + ["    return 0;", "}", ""]), encoding="utf-8")
        subprocess.run([*COMPILER, "-w", "-I", INCLUDE, source, "-o", program], check=True)
        return map(int, subprocess.run([program], check=True, capture_output=True, text=True).stdout.split())


def fits(variable, kind):
    """Can an argument (or result) of ctypes type `kind` be passed for the C variable?"""
    if variable.is_pointer or variable.type in API.callbacks:
        if kind is ctypes.c_void_p:
            return True
        if variable.type == "char" and variable.stars == 1:
            return kind is ctypes.c_char_p
        if not isinstance(kind, type) or not issubclass(kind, ctypes._Pointer):
            return False
        inner = kind._type_
        if variable.stars == 2 and inner is ctypes.c_void_p:
            return True
        return fits(public_api.Variable(variable.name, variable.type, variable.stars - 1), inner)
    if variable.type in NUMBERS:
        return kind is NUMBERS[variable.type]
    if variable.type in API.enums:
        return kind is ctypes.c_int
    if variable.type == "void":
        return kind is None
    return getattr(kind, "__name__", "") == variable.type


def is_same_member(variable, kind):
    """Sizes and offsets are compared elsewhere: an integer of the same size may still be a float."""
    if variable.is_function or variable.type in API.callbacks:
        return issubclass(kind, ctypes._CFuncPtr)
    if variable.extents:
        variable = public_api.Variable(variable.name, variable.type, variable.stars)
        kind = kind._type_
        if variable.type == "char":
            return kind is ctypes.c_char
    return fits(variable, kind)


def wrong_members():
    for struct in _structs.STRUCTS:
        kinds = dict(struct._fields_)
        for variable in API.structs[struct.__name__].fields:
            if variable.name in kinds and not is_same_member(variable, kinds[variable.name]):
                yield f"{struct.__name__}.{variable.name} is another type"


def wrong_functions():
    known = {function.name: function for function in API.functions}
    for name, (result, parameters) in _library.FUNCTIONS.items():
        if name not in known:
            yield f"{name}: not in the headers"
            continue
        function = known[name]
        if (function.result.type == "coh_status") != (result is _library.STATUS):
            yield f"{name}: a coh_status on one side only"
        elif result is not _library.STATUS and not fits(function.result, result):
            yield f"{name}: another result"
        if len(function.parameters) != len(parameters):
            yield f"{name}: {len(parameters)} parameters, the headers have {len(function.parameters)}"
            continue
        for variable, kind in zip(function.parameters, parameters):
            if not fits(variable, kind):
                yield f"{name}: parameter {variable.name} is another type"


def forgotten_functions():
    """Every public function is declared or left out for a reason, and every declared one is called."""
    public = {function.name for function in API.functions}
    reasons = [name for names in LEFT_OUT.values() for name in names.split()]
    left_out, declared = set(reasons), set(_library.FUNCTIONS)
    modules = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "python" / "cohobate").glob("*.py"))
    for name in sorted(public - declared - left_out):
        yield f"{name}: neither declared in python/cohobate/_library.py nor named in tests/python/left_out.py"
    for name in sorted(left_out - public):
        yield f"{name}: left_out.py names it, and no header has it"
    for name in sorted(left_out & declared):
        yield f"{name}: left_out.py names it, and the package declares it"
    for name in sorted(left_out):
        if reasons.count(name) > 1:
            yield f"{name}: left_out.py names it twice"
    for name in sorted(declared):
        if not re.search(rf"\.{name}\b", modules):
            yield f"{name}: declared, and never called"


def main():
    table, wrong = expected(), [*wrong_functions(), *wrong_members(), *forgotten_functions()]
    for (expression, value), seen in zip(table.items(), compiled(table)):
        if value != seen:
            wrong.append(f"{expression} is {seen}, the package has {value}")
    for struct in _structs.STRUCTS:
        names = [field.name for field in API.structs[struct.__name__].fields]
        mine = [field for field, _ in struct._fields_]
        if struct is not _structs.coh_model and names != mine:
            wrong.append(f"{struct.__name__} has members {names}, the package has {mine}")
    print("\n".join(wrong))
    print(f"{len(_structs.STRUCTS)} structs, {len(table)} sizes, offsets and constants, {len(_library.FUNCTIONS)} functions:"
          f" {len(wrong)} wrong")
    return bool(wrong)


sys.exit(main())
