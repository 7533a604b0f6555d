"""Turns Python values into those of C, and back: sizes, paths, ids, structs, arrays.

The one idea: a batch may come from any package, because the buffer protocol is all that is asked of
it. Arrays that come back are NumPy's if NumPy is installed, else memoryviews of the same shape."""
from __future__ import annotations

import ctypes
import numbers
import operator
import os
import types
from array import array
from ctypes import byref, c_uint64, sizeof

from ._library import library
from ._structs import BOUNDS, LANES, TIERS

try:
    import numpy
except ImportError:
    numpy = None

NO_LIMIT = 2**64 - 1
INT32_MOST, INT64_MOST = 2**31 - 1, 2**63 - 1
THREADS_MOST = 1024  # of a plan


# ---- into C ----


def parse_size(size: int | str) -> int:
    """Bytes of an int, or of a text such as "64MiB" or "40GB"."""
    if not isinstance(size, str):
        size = operator.index(size)
        if not 0 <= size <= NO_LIMIT:  # ctypes would take it modulo 2**64
            raise ValueError(f"a size of {size} bytes is not 0 to 2**64 - 1")
        return size
    out_bytes = c_uint64()
    library().coh_size_parse(as_name(size, "a size"), byref(out_bytes))
    return out_bytes.value


def as_path(path):
    return _ended(os.fsencode(path), "a path")


def _ended(encoded, what):
    """Bytes that C reads whole: it would take the text before a NUL, silently."""
    if b"\0" in encoded:
        raise ValueError(f"{what} has a NUL character: {encoded!r}")
    return encoded


def as_name(name, what):
    """A name, or globs, for C."""
    if not isinstance(name, str):
        raise TypeError(f"{what} is a text, not {type(name).__name__}")
    return _ended(name.encode(), what)


def as_count(number, what, least=0, most=NO_LIMIT, more=""):
    """A whole number within limits. ctypes would take it modulo 2**32 or 2**64. `more` ends the
    sentence."""
    number = operator.index(number)
    if not least <= number <= most:
        end = "2**64 - 1" if most == NO_LIMIT else most
        raise ValueError(f"{what} is {number}: {least} to {end}{more}")
    return number


def as_text(text, kind, what):
    """A text for a member of a C struct, an array of chars with an end."""
    encoded = _ended(os.fsencode(text), what)
    if len(encoded) >= sizeof(kind):
        raise ValueError(f"{what} has {len(encoded)} bytes: at most {sizeof(kind) - 1}")
    return encoded


def sized(struct):
    """A zeroed struct of that type, with struct_bytes."""
    return struct(struct_bytes=sizeof(struct))


def chosen(name, choices, what):
    """The number of a choice by its name."""
    if name not in choices:
        raise ValueError(f"{what} {name!r} is not one of {', '.join(choices)}")
    return choices[name]


def int32_array(values, what):
    """Whole numbers as an array of 32-bit integers."""
    try:
        return array("i", values)
    except OverflowError:
        wrong = next(value for value in values if not -INT32_MOST - 1 <= value <= INT32_MOST)
        raise ValueError(f"{what} has the id {wrong}: {-INT32_MOST - 1} to {INT32_MOST}") from None


def pointer(values, kind):
    """The memory of an array.array as a ctypes array of `kind`."""
    return (kind * len(values)).from_buffer(values)


def _nested(values, shape, what):
    """The numbers of lists in lists of that shape, one after the other."""
    if not hasattr(values, "__len__") or len(values) != shape[0]:
        found = len(values) if hasattr(values, "__len__") else "a number"
        raise ValueError(f"{what} takes numbers of shape {shape}, and has {found} instead of "
                         f"{shape[0]} in one place")
    if len(shape) == 1:
        return list(values)
    return [each for row in values for each in _nested(row, shape[1:], what)]


def _floats_of_lists(values, shape, what):
    """Lists, or what has a tolist, without NumPy."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    return shaped(array("f", _nested(listed, shape, what)), "float32", shape)


def _plain(values):
    """A tensor of PyTorch as NumPy takes it: without its gradient, in a dtype that NumPy has, in
    main memory."""
    return values.detach().cpu().float() if hasattr(values, "detach") else values


def floats_of(values, shape, what):
    """Numbers of that shape as a contiguous memoryview of float32. A buffer has to be one already:
    a list or a tensor is converted."""
    try:
        view = memoryview(values)
    except TypeError:
        if numpy is None:
            view = _floats_of_lists(values, shape, what)
        else:
            view = memoryview(numpy.ascontiguousarray(_plain(values), "float32"))
    if view.format != "f" or view.shape != shape or not view.c_contiguous:
        order = "contiguous" if view.c_contiguous else "not contiguous"
        raise ValueError(f"{what} takes contiguous float32 numbers of shape {shape}, not "
                         f"{view.format!r} of shape {view.shape}, {order}")
    return view


def _flat(values, rows, columns, what):
    """The integers of a list, or of a list of `rows` rows of `columns` integers."""
    if not isinstance(values, (list, tuple)):
        return [values]
    if not any(hasattr(value, "__len__") for value in values):
        return values
    lengths = [len(value) if hasattr(value, "__len__") else 1 for value in values]
    if len(lengths) != rows or set(lengths) != {columns}:
        raise ValueError(f"{what} has {len(lengths)} rows of {min(lengths)} to {max(lengths)} ids, "
                         f"the plan's step takes {rows} of {columns}: [batch, sequence]")
    return [each for value in values
            for each in (value.tolist() if hasattr(value, "tolist") else value)]


def _extents(values):
    """Rows and columns of [rows, columns] values; None: they are one row, or no rectangle."""
    shape = tuple(getattr(values, "shape", ()))
    if not shape and isinstance(values, (list, tuple)) and values and hasattr(values[0], "__len__"):
        return len(values), len(values[0])
    return shape if len(shape) == 2 else None


def rows_of(values, columns):
    """How many rows of `columns` the values are; at least one."""
    extents = _extents(values)
    return max(1, extents[0] if extents else -(-len(values) // columns))


def columns_of(values, rows, what):
    """How many columns of `rows` rows the values are. Values that are not in rows are one row."""
    extents = _extents(values)
    if not extents and rows > 1:
        raise ValueError(f"{what} has no rows, the plan's batch has {rows}: [batch, sequence]")
    return extents[1] if extents else len(values)


def padded(ids, count, fill):
    """The ids, and `fill` after them until there are `count`."""
    return ids + array("i", [fill]) * (count - len(ids))


def ids_of(values, rows, columns, what):
    """Ids as an array of 32-bit integers. Other integers are converted; too large ones are
    refused."""
    count, shape = rows * columns, tuple(getattr(values, "shape", ()))
    if len(shape) > 1 and shape != (rows, columns):
        raise ValueError(f"{what} has the shape {shape}, the plan's step takes {(rows, columns)}: "
                         "[batch, sequence]")
    try:
        view = memoryview(values)
    except TypeError:
        view = None
    if view is not None and view.format == "i":
        ids = array("i", view.tobytes())
    else:
        listed = values.tolist() if hasattr(values, "tolist") else values
        flat = _flat(listed, rows, columns, what)
        try:
            ids = int32_array(flat, what)
        except TypeError:
            wrong = next((value for value in flat if not isinstance(value, numbers.Integral)), None)
            kind = getattr(values, "dtype", None) or type(wrong).__name__
            raise TypeError(f"{what} takes integers, not {kind}") from None
    if len(ids) != count:
        raise ValueError(f"{what} has {len(ids)} ids, the plan's step takes {count}")
    return ids


def counted(targets):
    """The number of targets that count, of an array.array."""
    if numpy is not None:
        return int((numpy.frombuffer(targets, "int32") >= 0).sum())
    return sum(target >= 0 for target in targets)


# ---- out of C ----


def facts_of(struct):
    """The members of a struct as attributes. Arrays by tier, lane and bound become dicts by
    name."""
    names = {TIERS: library().coh_tier_name, LANES: library().coh_lane_name,
             BOUNDS: library().coh_plan_bound_name}
    facts = types.SimpleNamespace()
    for name, _ in struct._fields_:
        value = getattr(struct, name)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, ctypes.Structure):
            value = facts_of(value)
        elif isinstance(value, ctypes.Array):
            value = {names[len(value)](i).decode(): each for i, each in enumerate(value)}
        if name != "struct_bytes":
            setattr(facts, name, value)
    return facts


def shaped(values, dtype, shape):
    """The memory of an array.array as a NumPy array of that shape, or as a memoryview of it."""
    if numpy is not None:
        return numpy.frombuffer(values, dtype).reshape(shape)
    return memoryview(values).cast("B").cast(values.typecode, list(shape))
