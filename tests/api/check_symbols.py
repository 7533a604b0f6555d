"""Compares the record of exported symbols with the headers and with the library: check_symbols.py MAP INCLUDE [LIBRARY]

    headers = MAP = names that LIBRARY exports, each with the version of its node in MAP

`check_symbols.py --write MAP INCLUDE` adds what the headers declare to the newest node, and removes names that no header
declares any more. A name of a released node that is missing breaks programs: restore it instead."""
import re
import subprocess
import sys

import public_api

NODE = re.compile(r"^(\w[\w.]*) \{\n(.*?)^\}[^;]*;", re.S | re.M)


def read_map(path):
    """{name: node}, in the file's order."""
    names = {}
    for node, body in NODE.findall(re.sub(r"/\*.*?\*/", "", open(path, encoding="utf-8").read(), flags=re.S)):
        for name in re.findall(r"\b(coh_\w+);", body):
            if name in names:
                sys.exit(f"{path}: {name} is there twice")
            names[name] = node
    return names


def declared(include):
    api = public_api.read(include)
    return {function.name for function in api.functions} | set(api.objects)


def exported(library):
    """{name: version}; the name of a node itself is not a symbol of ours."""
    text = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], check=True,
                          capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        kind, name = line.split()[1:3]
        if kind != "A":
            found[name.split("@")[0]] = name.split("@")[-1] if "@" in name else ""
    return found


def write(path, names):
    text = open(path, encoding="utf-8").read()
    recorded = read_map(path)
    newest = list(NODE.finditer(text))[-1]
    kept = [name for name, node in recorded.items() if node == newest[1]]
    lines = sorted(({name for name in kept} | (names - set(recorded))) & names)
    for name in set(recorded) - names:
        print(f"removed: {name}")
    body = "global:\n" + "".join(f"    {name};\n" for name in lines)
    tail = newest[2][newest[2].index("local:"):] if "local:" in newest[2] else ""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text[:newest.start(2)] + body + tail + text[newest.end(2):])


def report(text, names):
    for name in sorted(names):
        print(f"{name}: {text}")
    return len(names)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    path, names = arguments[0], declared(arguments[1])
    if "--write" in sys.argv:
        write(path, names)
        return 0
    recorded = read_map(path)
    wrong = report(f"declared in a header, not recorded in {path}: check_symbols.py --write adds it", names - set(recorded))
    wrong += report(f"recorded in {path}, declared in no header", set(recorded) - names)
    if len(arguments) > 2:
        found = exported(arguments[2])
        wrong += report(f"recorded, not exported by {arguments[2]}", set(recorded) - set(found))
        wrong += report("exported, not recorded", set(found) - set(recorded))
        wrong += report("exported with another version than recorded",
                        {name for name in set(recorded) & set(found) if found[name] != recorded[name]})
    print(f"{len(recorded)} symbols recorded, {wrong} wrong")
    return wrong != 0 or not recorded


sys.exit(main())
