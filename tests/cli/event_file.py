"""Reads TensorBoard's event files by the rules of their formats: TFRecord, and the protobuf messages Event, Summary and
SessionLog. The oracle of tests where TensorBoard itself is not installed; shares no code with the program."""

import os
import struct


def crc32c(data):
    """CRC-32C with the mask of TFRecord."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = (rest >> 1) ^ (0x82F63B78 * (rest & 1))
    rest ^= 0xFFFFFFFF
    return (((rest >> 15) | (rest << 17)) + 0xA282EAD8) & 0xFFFFFFFF


assert (crc32c(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF == ((0xE3069283 >> 15) | (0xE3069283 << 17)) & 0xFFFFFFFF


def fields(data):
    """The fields of a message: (number, value); an integer of a varint, else bytes."""
    def varint():
        nonlocal at
        number = shift = 0
        while True:
            at += 1
            number |= (data[at - 1] & 0x7F) << shift
            shift += 7
            if data[at - 1] < 0x80:
                return number

    at = 0
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}[key & 7] if key & 7 != 2 else varint()
        assert at + size <= len(data)
        yield key >> 3, data[at:at + size]
        at += size


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        size, check = struct.unpack_from("<QI", data, at)
        assert crc32c(data[at:at + 8]) == check
        event = data[at + 12:at + 12 + size]
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == crc32c(event)
        at += 16 + size
        yield event


def event_of(record):
    found = {"wall_time": None, "step": 0, "scalars": {}}
    for number, value in fields(record):
        if number == 1:
            found["wall_time"] = struct.unpack("<d", value)[0]
        elif number == 2:
            found["step"] = value
        elif number == 3:
            found["version"] = value.decode()
        elif number == 5:
            for _, entry in fields(value):
                parts = dict(fields(entry))
                found["scalars"][parts[1].decode()] = struct.unpack("<f", parts[2])[0]
        elif number == 7:
            found["session"] = dict(fields(value))[1]
    return found


def read(folder):
    """The events of each file of a folder, in the order of names."""
    return [[event_of(record) for record in records(os.path.join(folder, name))]
            for name in sorted(os.listdir(folder)) if "tfevents" in name]
