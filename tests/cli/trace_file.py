"""Reads trace.bin of a run folder by the layout in docs/report.md. Shares no code with the library, so tests and claims can
compare the two."""
import ctypes
import ctypes.util
import os
import struct
import types

LANES = ("compute", "h2d", "d2h", "read", "write", "host", "comm0", "comm1")
TIERS = ("device", "host", "disk")
NONE = 0xffffffff
HEADER = struct.Struct("<8s12IQQ")
INSTRUCTION = struct.Struct("<QQQdIIIIIIiBB")
EXTENT = struct.Struct("<QIIIBBB")
STEP = struct.Struct("<Ii9Q")


def _check(data, begin, end):
    """The last 8 bytes of a part are the checksum of the others."""
    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_64bits.restype = ctypes.c_uint64
    part = data[begin:end - 8]
    assert library.XXH3_64bits(part, ctypes.c_size_t(len(part))) == struct.unpack_from("<Q", data, end - 8)[0], (begin, end)


def _texts(data, at, count):
    offsets = struct.unpack_from(f"<{count}I", data, at)
    return offsets, at + 4 * count


def read(folder):
    """A namespace with the tables; its `steps` are the used slots by step, spans as (begin_ns, end_ns)."""
    with open(os.path.join(folder, "trace.bin"), "rb") as file:
        data = file.read()
    trace = types.SimpleNamespace()
    (magic, version, slots, opcodes, purposes, operators, instructions, waits, extents, lanes, tiers, latencies, _, text_bytes,
     _) = HEADER.unpack_from(data, 0)
    assert (magic, version, lanes, tiers) == (b"COHTRACE", 1, len(LANES), len(TIERS)), (magic, version, lanes, tiers)
    _check(data, 0, HEADER.size)
    at = HEADER.size
    fixed = struct.unpack_from("<9Q", data, at)
    trace.pinned_bytes, trace.arena_bytes, trace.budget_bytes = (dict(zip(TIERS, fixed[i::3])) for i in range(3))
    at += 72
    trace.lane_bytes_per_s = dict(zip(LANES, struct.unpack_from("<8d", data, at)))
    trace.flops_per_s, trace.predicted_step_ns, trace.program_hash = struct.unpack_from("<dQQ", data, at + 64)
    at += 88
    opcode_at, at = _texts(data, at, opcodes)
    purpose_at, at = _texts(data, at, purposes)
    operator_rows = [struct.unpack_from("<7Ii", data, at + 32 * i) for i in range(operators)]
    at += 32 * operators
    rows = [INSTRUCTION.unpack_from(data, at + INSTRUCTION.size * i) for i in range(instructions)]
    at += INSTRUCTION.size * instructions
    trace.waits = [struct.unpack_from("<II", data, at + 8 * i) for i in range(waits)]
    at += 8 * waits
    trace.extents = [types.SimpleNamespace(**dict(zip(("bytes", "first", "last", "purpose", "tier", "at_begin", "at_end"),
                                                      EXTENT.unpack_from(data, at + EXTENT.size * i))))
                     for i in range(extents)]
    at += EXTENT.size * extents

    def text(offset):
        return data[at + offset:data.index(b"\0", at + offset)].decode()

    trace.opcodes, trace.purposes = [text(o) for o in opcode_at], [text(o) for o in purpose_at]
    trace.operators = [text(row[0]) for row in operator_rows]
    trace.instructions = []
    for row in rows:
        one = types.SimpleNamespace(**dict(zip(
            ("predicted_begin", "predicted_end", "bytes", "flops", "opcode", "operator", "chunk", "stream", "wait_begin",
             "wait_count", "microbatch", "lane", "is_shared"), row)))
        one.opcode, one.lane = trace.opcodes[one.opcode], LANES[one.lane]
        trace.instructions.append(one)
    at += text_bytes + 8
    _check(data, HEADER.size, at)
    trace.latencies = {lane: struct.unpack_from(f"<{latencies}Q", data, at + 8 * latencies * i) for i, lane in enumerate(LANES)}
    at += 8 * latencies * lanes + 8
    _check(data, at - 8 * latencies * lanes - 8, at)
    slot_bytes = STEP.size + 16 * instructions + 8
    trace.steps = []
    for slot in range(slots):
        begin = at + slot * slot_bytes
        if begin + slot_bytes > len(data):
            break
        used, slow, step, begin_ns, step_ns, *counters = STEP.unpack_from(data, begin)
        if not used:
            continue
        _check(data, begin, begin + slot_bytes)
        flat = struct.unpack_from(f"<{2 * instructions}Q", data, begin + STEP.size)
        trace.steps.append(types.SimpleNamespace(slot=slot, is_slow=slow, step=step, begin_ns=begin_ns, step_ns=step_ns,
                                                 counters=counters, spans=list(zip(flat[::2], flat[1::2]))))
    trace.steps.sort(key=lambda one: one.step)
    return trace


def link_bytes(trace, step, margin_ns=1000000):
    """The fewest and the most bytes by lane that ended between the CLIP of the step before and the CLIP of this one, as
    steps.jsonl counts them. What ended within the margin of a CLIP may count on either side."""
    by_step = {one.step: one for one in trace.steps}
    clip = next(i for i, one in enumerate(trace.instructions) if one.opcode == "clip")
    begin, end = (by_step[s].begin_ns + by_step[s].spans[clip][1] for s in (step - 1, step))
    least, most = {}, {}
    for one in trace.steps:
        for instruction, (_, ended) in zip(trace.instructions, one.spans):
            if instruction.chunk == NONE:
                continue
            when = one.begin_ns + ended
            for sums, inside in ((least, begin + margin_ns < when <= end - margin_ns),
                                 (most, begin - margin_ns < when <= end + margin_ns)):
                sums[instruction.lane] = sums.get(instruction.lane, 0) + (instruction.bytes if inside else 0)
    return least, most
