"""`pip install ./python` gives a package whose README's loop runs: test_readme.py PATH-OF-COHOBATE. Skipped (77) where the
interpreter has no pip, setuptools or wheel, since nothing is fetched."""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

COHOBATE = os.path.abspath(sys.argv[1])
PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
missing = [name for name in ("pip", "setuptools", "wheel") if importlib.util.find_spec(name) is None]
if missing:
    print(f"{sys.executable} has no {' and no '.join(missing)}")
    sys.exit(77)

with tempfile.TemporaryDirectory() as folder:
    # pip builds in the source folder, which may be read-only.
    shutil.copytree(PACKAGE, os.path.join(folder, "source"), ignore=shutil.ignore_patterns("__pycache__"))
    site = os.path.join(folder, "site")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
                    "--root-user-action=ignore", "--target", site, os.path.join(folder, "source")], check=True)
    loop = re.search(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(encoding="utf-8"), re.S)[1]
    if len(loop.splitlines()) > 30 or "STEPS = 8, 64, 20" not in loop:
        sys.exit("the README's loop is longer than 30 lines, or of other numbers than this test shortens")
    with open(os.path.join(folder, "corpus.txt"), "w", encoding="utf-8") as file:
        file.write("".join(f"line {i * i % 97}: the {i % 13}th of many\n" for i in range(400)))
    shorter = loop.replace("STEPS = 8, 64, 20", "STEPS = 2, 16, 2").replace('disk="/var/tmp"', 'disk=".", search="quick"')
    done = subprocess.run([sys.executable, "-c", shorter], cwd=folder, env={**os.environ, "PYTHONPATH": site}, check=False,
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the README's loop failed:\n{done.stderr}")
    if not re.search(r"^step 1: loss \d\.\d+, norm .*\n\(257, 384\) hash [0-9a-f]{16}$", done.stdout, re.M):
        sys.exit(f"the README's loop printed something else:\n{done.stdout}")
    subprocess.run([COHOBATE, "eval", "checkpoint", "--tokenizer", "bytes", "--data", "corpus.txt", "--sequence", "64"],
                   cwd=folder, check=True, capture_output=True)
print("the installed package runs the README's loop")
