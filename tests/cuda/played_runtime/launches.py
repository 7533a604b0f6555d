"""Rewrites the launches of a .cu file as calls that C++ knows: launches.py IN OUT

    kernel<<<grid, block, bytes, stream>>>(a, b);   becomes   played_launch(grid, block, bytes, stream, kernel, a, b);"""
import re
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    source = file.read()
result, launches = re.subn(r"(\w+)<<<(.*?)>>>\s*\(", r"played_launch(\2, \1, ", source, flags=re.S)
if launches == 0:
    sys.exit(f"{sys.argv[1]} launches no kernel")
with open(sys.argv[2], "w", encoding="utf-8") as file:
    file.write(f'#line 1 "{sys.argv[1]}"\n{result}')
