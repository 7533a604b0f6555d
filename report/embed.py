"""Writes the page's style and script as C arrays with their hashes for the Content-Security-Policy:
embed.py OUT NAME=FILE ..."""
import base64
import hashlib
import sys


def main():
    lines = ["/* Made by embed.py. */"]
    for argument in sys.argv[2:]:
        name, path = argument.split("=", 1)
        with open(path, encoding="utf-8") as file:
            data = "".join(line.strip() + "\n" for line in file if line.strip()).encode()
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        lines.append(f'static const char {name}_hash[] = "sha256-{digest}";')
        lines.append(f"static const char {name}[] = {{")
        values = [*data, 0]
        lines += ["    " + ", ".join(f"{value:d}" if value < 128 else f"(char){value:d}" for value in values[at:at + 24]) + ","
                  for at in range(0, len(values), 24)]
        lines.append("};")
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


main()
