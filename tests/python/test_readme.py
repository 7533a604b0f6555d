"""`pip install ./python` gives a package whose README's loops run: test_readme.py PATH-OF-COHOBATE. Skipped (77) where the
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
    loop, note, again = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(encoding="utf-8"), re.S)
    if len(loop.splitlines()) > 30 or "STEPS = 8, 64, 20" not in loop:
        sys.exit("the README's loop is longer than 30 lines, or of other numbers than this test shortens")
    with open(os.path.join(folder, "corpus.txt"), "w", encoding="utf-8") as file:
        file.write("".join(f"line {i * i % 97}: the {i % 13}th of many\n" for i in range(400)))
    shorter = loop.replace("STEPS = 8, 64, 20", "STEPS = 2, 16, 2").replace('disk="/var/tmp"', 'disk=".", search="quick"')

    def python(script):
        done = subprocess.run([sys.executable, "-c", script], cwd=folder, env={**os.environ, "PYTHONPATH": site}, check=False,
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"a loop of the README failed:\n{script}\n{done.stderr}")
        return done.stdout

    printed = python(shorter)
    if not re.search(r"^step 1: loss \d\.\d+, norm .*\n\(257, 384\) hash [0-9a-f]{16}$", printed, re.M):
        sys.exit(f"the README's loop printed something else:\n{printed}")
    subprocess.run([COHOBATE, "eval", "checkpoint", "--tokenizer", "bytes", "--data", "corpus.txt", "--sequence", "64"],
                   cwd=folder, check=True, capture_output=True)

    # One step, its checkpoint with a note, and the other step by Python and by the program.
    begin = shorter.replace("2, 16, 2", "2, 16, 1").partition("    print(engine.parameter")[0]
    if "steps=100, warmup_steps=10" not in note or "run/step-50" not in note:
        sys.exit("the README's note is of other numbers than this test shortens")
    os.mkdir(os.path.join(folder, "run"))
    note = note.replace("100, warmup_steps=10", "2").replace("step-50", "step-1")
    python(begin + "".join(f"    {line}\n" for line in note.splitlines()))
    lines = "import cohobate\ndata = cohobate.TokenFile('corpus.tokens')\n" + again + "    print(f'{engine.hash():016x}')\n"
    mine = python(lines).strip()
    resumed = subprocess.run([COHOBATE, "train", "--resume", "run"], cwd=folder, check=True, capture_output=True, text=True)
    if f"hash:   {mine}" not in resumed.stdout:
        sys.exit(f"the README's second loop ends with hash {mine}, the resumed program with another:\n{resumed.stdout}")
print("the installed package runs the README's loops")
