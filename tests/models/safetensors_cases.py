#!/usr/bin/env python3
"""Small safetensors files, good, bad and odd, each with the reference reader's verdict.

    safetensors_cases.py FILE     writes the cases to FILE, one a line (needs the package `safetensors`)

A line is: name, tab, the reference's verdict (ok, refused), tab, ours ("ok", or what our message must contain), tab,
the file in hexadecimal. test_safetensors.c checks each of them; test_safetensors_reference.py asks the installed
package again."""

import struct
import sys


def file(header, data=b"", length=None):
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype="F32", shape="[2]", offsets="[0,8]"):
    return '{"dtype":"%s","shape":%s,"data_offsets":%s}' % (dtype, shape, offsets)


def one(name="a", data=bytes(range(8)), **what):
    return file('{"%s":%s}' % (name, entry(**what)), data)


def with_metadata(text):
    return file('{"__metadata__":%s,"a":%s}' % (text, entry()), D8)


D8 = bytes(range(8))
A = '"a":' + entry()
GOOD = "{" + A + "}"
NUMBER = "whole number is missing"
TOO_LARGE = "more elements than 64 bits"

CASES = []


def case(name, ours, content):
    assert "\t" not in name + ours and name not in [known[0] for known in CASES], name
    CASES.append((name, ours, content))


def lengths():
    """The 8 bytes before the header."""
    case("empty file", "fewer than the 8", b"")
    case("3 bytes", "fewer than the 8", b"\1\2\3")
    case("7 bytes", "fewer than the 8", bytes(7))
    case("length 0", "begins with '{'", file(""))
    case("length 0 before a header", "begins with '{'", file("", b"{}"))
    case("length 1", "string is missing before the end", file("{"))
    case("length beyond the file", "header alone needs", file(GOOD, b"", len(GOOD) + 1))
    case("length into the data", "something follows", file(GOOD, D8, len(GOOD) + 1))
    case("length too short", "',' is missing before the end", file(GOOD, D8, len(GOOD) - 1))
    case("length of 10^8 in a small file", "header alone needs", file(GOOD, D8, 10**8))
    case("length of 10^8 + 1", "the format allows", file(GOOD, D8, 10**8 + 1))
    case("length of 2^31", "the format allows", file(GOOD, D8, 2**31))
    case("length of 2^63", "the format allows", file(GOOD, D8, 2**63))
    case("length of 2^64 - 1", "the format allows", file(GOOD, D8, 2**64 - 1))
    case("length of 2^64 - 8", "the format allows", file(GOOD, D8, 2**64 - 8))
    case("length in the other byte order", "the format allows",
         struct.pack(">Q", len(GOOD)) + GOOD.encode() + D8)


def forms():
    """JSON as a whole."""
    case("array for a header", "begins with '{'", file("[]"))
    case("string for a header", "begins with '{'", file('"a"'))
    case("null for a header", "begins with '{'", file("null"))
    case("number for a header", "begins with '{'", file("12"))
    case("byte order mark", "begins with '{'", file(b"\xef\xbb\xbf" + GOOD.encode(), D8))
    case("comment", "begins with '{'", file("/*x*/" + GOOD, D8))
    case("two objects", "something follows", file("{}{}"))
    case("NUL after the object", "something follows", file(GOOD + "\0", D8))
    case("text after the object", "something follows", file(GOOD + "x", D8))
    case("comma after the last tensor", "string is missing", file("{" + A + ",}", D8))
    case("comma before the first tensor", "string is missing", file("{," + A + "}", D8))
    case("no comma between tensors", "',' is missing",
         file('{"a":%s "b":%s}' % (entry(shape="[1]", offsets="[0,4]"),
                                   entry(shape="[1]", offsets="[4,8]")), D8))
    case("no colon", "':' is missing", file('{"a" %s}' % entry(), D8))
    case("no quotes", "string is missing", file("{a:%s}" % entry(), D8))
    case("single quotes", "string is missing", file(GOOD.replace('"', "'"), D8))
    case("object without an end", "',' is missing", file(GOOD[:-1], D8))
    case("string without an end", "string has no end", file('{"a'))
    case("number for a name", "string is missing", file("{1:%s}" % entry(), D8))
    case("name without an entry", "'{' is missing", file('{"a":}', D8))
    case("null for an entry", "'{' is missing", file('{"a":null}'))
    case("true for an entry", "'{' is missing", file('{"a":true}'))
    case("string for an entry", "'{' is missing", file('{"a":"F32"}'))
    case("not UTF-8", "not UTF-8", file(GOOD.encode().replace(b'"a"', b'"\xff"'), D8))
    case("overlong UTF-8", "not UTF-8", file(GOOD.encode().replace(b'"a"', b'"\xc0\xaf"'), D8))
    case("surrogate in UTF-8", "not UTF-8", file(GOOD.encode().replace(b'"a"', b'"\xed\xa0\x80"'), D8))
    case("character beyond U+10FFFF", "not UTF-8",
         file(GOOD.encode().replace(b'"a"', b'"\xf4\x90\x80\x80"'), D8))
    case("character cut off by the header's end", "not UTF-8", file(b'{"\xe2\x82', b"\xac"))


def strings():
    case("control character in a name", "control character 0x01", one("\x01"))
    case("newline in a name", "control character 0x0a", one("a\nb"))
    case("half of a surrogate pair", "surrogate", one("\\ud800"))
    case("half of a surrogate pair at the end", "surrogate", one("x\\ud83d\\n"))
    case("surrogates the wrong way round", "surrogate", one("\\ude00\\ud83d"))
    case("two leading surrogates", "surrogate", one("\\ud83d\\ud83d"))
    case("escape of no character", "backslash", one("\\'"))
    case("escape U", "backslash", one("\\U00000041"))
    case("escape x", "backslash", one("\\x41"))
    case("escape with three digits", "four hexadecimal", one("\\u12"))
    case("escape with a letter beyond f", "four hexadecimal", one("\\u00g1"))
    case("backslash before the end", "backslash", file('{"a\\'))


def members():
    case("no dtype", 'has no "dtype"', file('{"a":{"shape":[2],"data_offsets":[0,8]}}', D8))
    case("no shape", 'has no "shape"', file('{"a":{"dtype":"F32","data_offsets":[0,8]}}', D8))
    case("no data_offsets", 'has no "data_offsets"', file('{"a":{"dtype":"F32","shape":[2]}}', D8))
    case("empty entry", 'has no "dtype"', file('{"a":{}}', D8))
    case("dtype twice", 'has "dtype" twice', file('{"a":{"dtype":"F32",%s}' % entry()[1:] + "}", D8))
    case("shape twice", 'has "shape" twice', file('{"a":{"shape":[2],%s}' % entry()[1:] + "}", D8))
    case("data_offsets twice", 'has "data_offsets" twice',
         file('{"a":{"data_offsets":[0,8],%s}' % entry()[1:] + "}", D8))
    case("Dtype", '"Dtype", which is not known', file(GOOD.replace("dtype", "Dtype"), D8))
    for name in ["f32", "F128", "FLOAT", "", "F32 ", "E8M0", "F8_E4M3FN", "U128"]:
        case('dtype "%s"' % name, "does not exist", one(dtype=name))
    case("dtype 0", "string is missing", file(GOOD.replace('"F32"', "0"), D8))
    case("dtype null", "string is missing", file(GOOD.replace('"F32"', "null"), D8))
    case("dtype in an array", "string is missing", file(GOOD.replace('"F32"', '["F32"]'), D8))
    case("shape null", "'[' is missing", one(shape="null"))
    case("shape 2", "'[' is missing", one(shape="2"))
    case("shape {}", "'[' is missing", one(shape="{}"))
    case("shape [-2]", NUMBER, one(shape="[-2]"))
    case("shape [+2]", NUMBER, one(shape="[+2]"))
    case("shape [2.0]", "not written as a whole", one(shape="[2.0]"))
    case("shape [2e0]", "not written as a whole", one(shape="[2e0]"))
    case("shape [2E0]", "not written as a whole", one(shape="[2E0]"))
    case("shape [02]", "a zero too many", one(shape="[02]"))
    case("shape [0x2]", "',' is missing", one(shape="[0x2]"))
    case("shape [2,]", NUMBER, one(shape="[2,]"))
    case("shape [,2]", NUMBER, one(shape="[,2]"))
    case("shape [2 1]", "',' is missing", one(shape="[2 1]"))
    case("shape [2", NUMBER, one(shape="[2"))
    case("shape [[2]]", NUMBER, one(shape="[[2]]"))
    case('shape ["2"]', NUMBER, one(shape='["2"]'))
    case("shape [null]", NUMBER, one(shape="[null]"))
    case("shape [true]", NUMBER, one(shape="[true]"))
    case("shape [NaN]", NUMBER, one(shape="[NaN]"))
    case("data_offsets of one", "are not two", one(offsets="[8]"))
    case("data_offsets of none", "are not two", one(offsets="[]"))
    case("data_offsets of three", "more than 2 numbers", one(offsets="[0,8,8]"))
    case("data_offsets as strings", NUMBER, one(offsets='["0","8"]'))
    case("data_offsets in an object", "'[' is missing", one(offsets='{"begin":0,"end":8}'))
    case("data_offsets [-0,8]", NUMBER, one(offsets="[-0,8]"))
    case("data_offsets [0,8.0]", "not written as a whole", one(offsets="[0,8.0]"))
    case("data_offsets [0,-8]", NUMBER, one(offsets="[0,-8]"))


def sizes():
    case("shape beyond 64 bits", "number is more than 64 bits", one(shape="[18446744073709551616]"))
    case("shape of 100 digits", "number is more than 64 bits", one(shape="[" + "9" * 100 + "]"))
    case("shape of 2^64 - 1", TOO_LARGE, one(shape="[18446744073709551615]"))
    case("shape of 2^63", TOO_LARGE, one(shape="[9223372036854775808]"))
    case("shape [2^32, 2^32]", TOO_LARGE, one(shape="[4294967296,4294967296]"))
    case("shape [2^32, 2^32 + 1], 8 bytes modulo 2^64", TOO_LARGE,
         one(dtype="U8", shape="[4294967296,4294967297]", offsets="[0,4294967296]"))
    case("bytes are 8 modulo 2^64", TOO_LARGE, one(shape="[4611686018427387906]"))
    case("bytes are 8 modulo 2^64, as bits", TOO_LARGE, one(shape="[576460752303423490]"))
    case("shape [2^32, 2^32, 0]", TOO_LARGE,
         one(data=b"", shape="[4294967296,4294967296,0]", offsets="[0,0]"))
    case("data_offsets beyond 64 bits", "number is more than 64 bits",
         one(offsets="[0,18446744073709551616]"))
    case("data_offsets to 2^64 - 1", "by its data_offsets", one(offsets="[0,18446744073709551615]"))
    case("data_offsets that wrap around", "before its begin",
         one(offsets="[18446744073709551612,4]"))
    case("shape smaller than data_offsets", "4 bytes by its dtype and shape, 8", one(shape="[1]"))
    case("shape larger than data_offsets", "12 bytes by its dtype and shape, 8", one(shape="[3]"))
    case("empty shape with 8 bytes", "4 bytes by its dtype and shape, 8", one(shape="[]"))
    case("dtype half as wide", "4 bytes by its dtype and shape, 8", one(dtype="F16"))
    case("dtype twice as wide", "16 bytes by its dtype and shape, 8", one(dtype="F64"))
    case("three numbers of 4 bits", "does not fill its last byte",
         one(data=bytes(2), dtype="F4", shape="[3]", offsets="[0,2]"))
    case("two numbers of 6 bits", "does not fill its last byte",
         one(data=bytes(2), dtype="F6_E2M3", shape="[2]", offsets="[0,2]"))


def covers():
    def two(first, second, data=D8):
        return file('{"a":%s,"b":%s}' % (entry(shape="[1]", offsets=first),
                                         entry(shape="[1]", offsets=second)), data)

    case("data_offsets the wrong way round", "before its begin", one(offsets="[8,0]"))
    case("hole before the first", "no tensor covers bytes 0 to 4",
         one(shape="[1]", offsets="[4,8]"))
    case("hole in the middle", "no tensor covers bytes 4 to 8", two("[0,4]", "[8,12]", bytes(12)))
    case("hole at the end", "8 bytes of data, the file has 9", one(data=bytes(9)))
    case("one byte is missing", "8 bytes of data, the file has 7", one(data=bytes(7)))
    case("all data are missing", "8 bytes of data, the file has 0", one(data=b""))
    case("data without a tensor", "0 bytes of data, the file has 1", file("{}", b"x"))
    case("two tensors share all bytes", "inside tensor", two("[0,4]", "[0,4]", bytes(4)))
    case("two tensors share some bytes", "inside tensor", two("[0,4]", "[2,6]", bytes(6)))
    case("two tensors share bytes, and one hole", "inside tensor", two("[0,4]", "[3,7]"))
    case("a tensor without bytes inside another", "inside tensor",
         file('{"a":%s,"b":%s}' % (entry(), entry(shape="[0]", offsets="[4,4]")), D8))
    case("a tensor without bytes beyond the data", "no tensor covers",
         file('{"a":%s,"b":%s}' % (entry(), entry(shape="[0]", offsets="[12,12]")), D8))
    case("tensors in the other order, with a hole", "no tensor covers bytes 4 to 5",
         two("[5,9]", "[0,4]", bytes(9)))


def metadata():
    case("metadata a number", "string is missing", with_metadata('{"a":1}'))
    case("metadata null inside", "string is missing", with_metadata('{"a":null}'))
    case("metadata an object inside", "string is missing", with_metadata('{"a":{}}'))
    case("metadata an array inside", "string is missing", with_metadata('{"a":["b"]}'))
    case("metadata true inside", "string is missing", with_metadata('{"a":true}'))
    case("metadata an array", "'{' is missing", with_metadata("[]"))
    case("metadata a string", "'{' is missing", with_metadata('"pt"'))
    case("metadata twice", "occurs twice", file('{"__metadata__":{},"__metadata__":{},' + A + "}", D8))
    case("metadata with the form of a tensor", "string is missing", with_metadata(entry()))
    case("metadata without an end", "string is missing", with_metadata('{"a":"b"'))
    case("metadata with a comma too many", "string is missing", with_metadata('{"a":"b",}'))


def stricter():
    """Files that the reference accepts and we refuse: models/safetensors.h gives the reasons."""
    case("tensor twice, the same", "occurs twice", file("{%s,%s}" % (A, A), D8))
    case("tensor twice, the last one fits", "occurs twice",
         file('{"a":%s,%s}' % (entry(shape="[9]", offsets="[0,36]"), A), D8))
    case("tensor twice, once with an escape", "occurs twice",
         file('{%s,"\\u0061":%s}' % (A, entry()), D8))
    case("metadata key twice", "occurs twice", with_metadata('{"a":"1","b":"","a":"2"}'))
    case("metadata null", "'{' is missing", with_metadata("null"))
    case("metadata with a NUL", "holds a NUL", with_metadata('{"a":"\\u0000"}'))
    case("empty name", "is empty", one(""))
    case("name with a NUL", "holds a NUL", one("\\u0000"))
    case("name with an escaped newline", "holds a control character", one("a\\nb"))
    case("name with a terminal's escape", "holds a control character", one("\\u001b[2J"))
    case("name with a terminal's escape of one character", "holds a control character", one("\x9b2J"))
    case("name with DEL", "holds a control character", one("\x7f"))
    case("name of 1025 bytes", "is too long", one("n" * 1025))
    case("blank before the header", "begins with '{'", file(" " + GOOD, D8))
    case("member that is not known", "which is not known",
         file('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}}', D8))
    case("array for an entry", "'{' is missing", file('{"a":["F32",[2],[0,8]]}', D8))
    case("object for a dtype", "string is missing", file(GOOD.replace('"F32"', '{"F32":null}'), D8))
    case("nine dimensions", "more than 8 numbers", one(shape="[2,1,1,1,1,1,1,1,1]"))
    case("shape [2^64 - 1, 0]", TOO_LARGE,
         one(data=b"", shape="[18446744073709551615,0]", offsets="[0,0]"))


def good():
    case("plain", "ok", file(GOOD, D8))
    case("no tensors", "ok", file("{}"))
    case("only metadata", "ok", file('{"__metadata__":{"format":"pt"}}'))
    case("metadata without entries", "ok", with_metadata("{}"))
    case("metadata at the end", "ok", file('{%s,"__metadata__":{"a":""}}' % A, D8))
    case("metadata key with escapes", "ok", with_metadata('{"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9":"\\ud83d\\ude00"}'))
    case("__metadata__ with an escape", "ok", file('{"\\u005f_metadata__":{"k":"v"},' + A + "}", D8))
    case("blanks after the header", "ok", file(GOOD + "  \n\t\r", D8))
    case("blanks everywhere", "ok",
         file('{ "a" :\n{\t"dtype" : "F32" ,\r\n"shape" : [ 2 ] , "data_offsets" : [ 0 , 8 ] } }', D8))
    case("members in another order", "ok",
         file('{"a":{"data_offsets":[0,8],"shape":[2],"dtype":"F32"}}', D8))
    case("tensors in another order", "ok",
         file('{"b":%s,"a":%s}' % (entry(shape="[1]", offsets="[4,8]"),
                                   entry(shape="[1]", offsets="[0,4]")), D8))
    case("escapes in the keys of an entry", "ok",
         file(GOOD.replace("dtype", "\\u0064type").replace("F32", "\\u004632"), D8))
    case("name beyond ASCII", "ok", one("größe.重み.😀"))
    case("name with surrogates", "ok", one("\\ud83d\\ude00"))
    case("name like a path", "ok", one("../../etc/passwd"))
    case("name of 1024 bytes", "ok", one("n" * 1024))
    case("scalar", "ok", one(data=bytes(4), shape="[]", offsets="[0,4]"))
    case("no elements", "ok", one(data=b"", shape="[3,0,2]", offsets="[0,0]"))
    case("no elements by [0, 2^32, 2^32]", "ok",
         one(data=b"", shape="[0,4294967296,4294967296]", offsets="[0,0]"))
    case("two tensors without bytes at one place", "ok",
         file('{"a":%s,"b":%s,"c":%s}' % (entry(shape="[0]", offsets="[0,0]"),
                                          entry(shape="[0]", offsets="[0,0]"), entry()), D8))
    case("eight dimensions", "ok", one(shape="[1,1,2,1,1,1,1,1]"))
    case("data that begin at no multiple of 8", "ok", file(GOOD + " ", D8))
    for name, count, size in [("BOOL", 2, 2), ("F4", 2, 1), ("F6_E2M3", 4, 3), ("F6_E3M2", 4, 3),
                              ("U8", 2, 2), ("I8", 2, 2), ("F8_E5M2", 2, 2), ("F8_E4M3", 2, 2),
                              ("F8_E8M0", 2, 2), ("F8_E4M3FNUZ", 2, 2), ("F8_E5M2FNUZ", 2, 2),
                              ("I16", 2, 4), ("U16", 2, 4), ("F16", 2, 4), ("BF16", 2, 4),
                              ("I32", 2, 8), ("U32", 2, 8), ("F32", 2, 8), ("C64", 2, 16),
                              ("F64", 2, 16), ("I64", 2, 16), ("U64", 2, 16)]:
        case("dtype " + name, "ok",
             one(data=bytes(range(size)), dtype=name, shape="[%d]" % count, offsets="[0,%d]" % size))


for group in [lengths, forms, strings, members, sizes, covers, metadata, stricter, good]:
    group()


def reference_verdict(content):
    from safetensors import SafetensorError, deserialize
    try:
        deserialize(content)
    except SafetensorError:
        return "refused"
    return "ok"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], "w", encoding="ascii") as target:
        for name, ours, content in CASES:
            print(name, reference_verdict(content), ours, content.hex(), sep="\t", file=target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
