"""cohobate report and diff on made-up runs: the planted cause is named first in every form, the forms agree, and nothing
in a run can run a script, load anything, make the page large or crash the program.

    test_report.py COHOBATE MAKE_RUN"""
import base64
import hashlib
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from length import SHORT  # pylint: disable=wrong-import-position

COHOBATE, MAKE_RUN = sys.argv[1:3]
QUICK = ["--search", "quick"] if SHORT else []
VOID = {"meta", "br", "link", "img", "input", "hr"}
BYTES_MOST = 3 << 20


def run(*arguments, expect=0, **more):
    done = subprocess.run([COHOBATE, *arguments], capture_output=True, timeout=300, **more)
    text = (done.stdout.decode(), done.stderr.decode())
    assert done.returncode == expect, (arguments, done.returncode, *text)
    return text


def make(folder, case, *more):
    os.mkdir(folder)
    subprocess.run([MAKE_RUN, folder, case, *map(str, more)], check=True)
    return folder


class Page(html.parser.HTMLParser):
    """Checks nesting and collects what matters."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.headings, self.policy, self.text = [], [], [], "", {}
        self.blocks, self.kind = {"script": [], "style": []}, ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        for name, value in attributes:
            assert name not in ("style", "src", "action", "srcdoc", "background"), (tag, name)
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "xlink:href"):
                assert value.startswith("#"), value
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form", "foreignobject"), tag
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if "id" in given:
            self.ids.append(given["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:], self.getpos())
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] in self.blocks:
            self.blocks[self.open[-1]].append(data)
        for tag in set(self.open):
            self.text[tag] = self.text.get(tag, "") + data


def read_page(path):
    assert os.path.getsize(path) <= BYTES_MOST, os.path.getsize(path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    page = Page(text)
    assert "default-src 'none'" in page.policy and "unsafe" not in page.policy and "http" not in page.policy
    for tag, blocks in page.blocks.items():
        assert len(blocks) == 1, (tag, len(blocks))
        digest = base64.b64encode(hashlib.sha256(blocks[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page.policy, tag
    assert len(set(page.ids)) == len(page.ids)
    for target in re.findall(r'href="#([^"]*)"', text):
        assert target in page.ids, target
    return page


def causes(folder):
    CASES = {"slow-read": "slow link", "late-update": "late update", "small-chunk": "small chunks", "busy-core": "busy core",
             "usual": "compute"}
    most_changes = 0
    for case, kind in CASES.items():
        path = make(os.path.join(folder, case), case)
        report = json.loads(run("report", path, "--json")[0])
        assert report["format"] == "cohobate report" and report["version"] == 1
        assert report["causes"][0]["kind"] == kind, (case, report["causes"])
        # the parts sum to the window, as busy and idle time do
        assert sum(part["ns"] for part in report["parts"]) == report["window_ns"]
        for lane in report["lanes"]:
            assert lane["busy_ns"] + lane["idle_ns"] == report["window_ns"]
        text = run("report", path, "--text", env={**os.environ, "LC_ALL": "C.UTF-8"})[0]
        assert kind in " ".join(text.split()), text
        assert ("the verdict follows them" in text) == ("wait for" in text), text
        assert max(len(line) for line in text.splitlines()) <= 80, text
        plain = run("report", path, "--text", "--ascii")[0]
        assert plain.isascii() and max(len(line) for line in plain.splitlines()) <= 80
        out = run("report", path)[0]
        page = read_page(os.path.join(path, "report.html"))
        assert kind in out and kind in page.text["section"]
        # the console names the same changes, up to three
        changes = [f"  {i + 1}. {100 * action['gain']:+.1f} % tokens/s ({action['basis']}): {action['text']}"
                   for i, action in enumerate(report["actions"])]
        # each names the step of the verdict, whose time is the gain's first one
        assert f"Step {report['window_step']} takes " in report["verdict"], report["verdict"]
        for action in report["actions"]:
            assert action["basis"].startswith(f"{action['source']}: step {report['window_step']} takes "), action
            assert abs(action["before_seconds"] - report["window_ns"] * 1e-9) < 1e-9, (case, action)
            assert abs(action["before_seconds"] / action["after_seconds"] - 1 - action["gain"]) < 1e-6, (case, action)
            assert action["basis"] in page.text["section"] and action["basis"] in " ".join(text.split()), action
        assert out.splitlines()[2:] == changes and len(changes) <= 3, (case, out)
        most_changes = max(most_changes, len(changes))
        assert page.ids[1:] == ["verdict", "run", "time", "lanes", "links", "memory", "operators", "curves", "faults",
                                "method"], page.ids
        # the same numbers in all forms
        for action in report["actions"]:
            assert f"{100 * action['gain']:+.1f} %" in page.text["section"] and f"{100 * action['gain']:+.1f} %" in text
    assert most_changes > 0
    print("causes: each planted one is first, in all forms")


def hostile(folder):
    path = make(os.path.join(folder, "script"), "script")
    run("report", path)
    page = read_page(os.path.join(path, "report.html"))
    assert "<script>alert(2)</script>" in page.text["h1"]
    text = run("report", path, "--text")[0]
    assert "\x1b" not in text
    path = make(os.path.join(folder, "operators"), "operators")
    run("report", path)
    read_page(os.path.join(path, "report.html"))
    path = make(os.path.join(folder, "zero"), "zero")
    out = run("report", path)[0]
    assert "predicted" in out
    read_page(os.path.join(path, "report.html"))
    path = make(os.path.join(folder, "nan"), "nan")
    run("report", path)
    assert "10 steps were left out" in read_page(os.path.join(path, "report.html")).text["p"]
    path = make(os.path.join(folder, "fallbacks"), "usual")
    with open(os.path.join(path, "run.json"), encoding="utf-8") as file:
        facts = json.load(file)
    for fallbacks, shown in ((["pages are <small>", "\x1b[2J and slow"], 2), ([], 0), ("text", 0), ([7, "after"], 0), (None, 0)):
        with open(os.path.join(path, "run.json"), "w", encoding="utf-8") as file:
            json.dump({**facts, "fallbacks": fallbacks}, file)
        run("report", path)
        items = read_page(os.path.join(path, "report.html")).text.get("li", "")
        text = run("report", path, "--text")[0]
        assert items.count("pages are <small>") == (1 if shown else 0), items
        assert ("SLOWER WAYS" in text) == (shown > 0) and "\x1b" not in text
    path = make(os.path.join(folder, "many"), "usual", 20000)
    run("report", path)
    read_page(os.path.join(path, "report.html"))
    print("hostile runs: no script, no request, at most 3 MB")


def damaged(folder):
    path = make(os.path.join(folder, "damaged"), "usual")
    trace = os.path.join(path, "trace.bin")
    with open(trace, "rb") as file:
        whole = file.read()
    for bytes_kept in (0, 5, 71, 100, 1000, len(whole) // 2, len(whole) - 1):
        with open(trace, "wb") as file:
            file.write(whole[:bytes_kept])
        report = json.loads(run("report", path, "--json")[0])
        assert len(report["notes"]) == 1, report["notes"]
        assert bytes_kept > 1000 or "; trace.bin is damaged, so" in report["verdict"], report["verdict"]
        run("report", path)
        read_page(os.path.join(path, "report.html"))
    for at in (9, 30, 80, 2000, len(whole) - 20):
        with open(trace, "wb") as file:
            file.write(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1:])
        report = json.loads(run("report", path, "--json")[0])
        assert len(report["notes"]) == 1, (at, report["notes"])
    os.remove(trace)
    report = json.loads(run("report", path, "--json")[0])
    assert not report["measured"] and "no step was recorded" in report["verdict"], report["verdict"]
    with open(os.path.join(path, "steps.jsonl"), "a", encoding="utf-8") as file:
        file.write('{"step": 21, "lo')  # a killed run
    assert any("1 line" in note for note in json.loads(run("report", path, "--json")[0])["notes"])
    print("damaged files: one sentence for each")


def refusals(folder):
    path = make(os.path.join(folder, "refusals"), "usual")
    sentences = [run("report", os.path.join(folder, "nowhere"), expect=2)[1], run("report", folder, expect=2)[1],
                 run("report", path, "-o", "report.doc", expect=2)[1],
                 run("report", path, "-o", os.path.join(folder, "no", "place.html"), expect=2)[1],
                 run("report", path, "--text", "--json", expect=2)[1],
                 run("diff", path, expect=2)[1], run("report", *[path] * 9, expect=2)[1]]
    page = os.path.join(path, "report.html")
    os.mkdir(page)  # as a file that may not be replaced
    sentences.append(run("report", path, expect=5)[1])
    assert sentences[-1].strip().endswith(": give another place by -o FILE"), sentences[-1]
    assert sentences[-1].count("give another") == 1, sentences[-1]
    os.rmdir(page)
    os.mkdir(page + ".partial")  # what is in the way of the temporary file is another writer's
    run("report", path)
    os.rmdir(page + ".partial")
    os.remove(page)
    json_path = os.path.join(path, "run.json")
    with open(json_path, encoding="utf-8") as file:
        facts = json.load(file)
    for text, word in ((json.dumps({**facts, "version": 2}), "newer"), ("{", "run.json"), ("[]", "version"), ("", "run.json")):
        with open(json_path, "w", encoding="utf-8") as file:
            file.write(text)
        said = run("report", path, expect=4)[1]
        assert word in said and not os.path.exists(os.path.join(path, "report.html"))
        sentences.append(said)
    for said in sentences:
        assert said.startswith("cohobate ") and said.count("\n") == 1, said
    print(f"refusals: {len(sentences)}, one sentence each")


def several(folder):
    paths = [make(os.path.join(folder, name), case) for name, case in (("a", "usual"), ("b", "slow-read"))]
    out = os.path.join(folder, "both.html")
    run("report", *paths, "-o", out)
    page = read_page(out)
    assert paths[1] in page.text["li"]
    text = run("diff", *paths, env={**os.environ, "LC_ALL": "C.UTF-8"})[0]
    assert "became slower" in text and "read exposed" in text and "plan, machine and settings are equal" in text, text
    assert "became faster" in run("diff", *reversed(paths))[0]
    assert max(len(line) for line in text.splitlines() if folder not in line) <= 80
    foreign = os.path.join(folder, "foreign.txt")
    with open(foreign, "w", encoding="utf-8") as file:
        file.write("someone's notes\n")
    run("report", paths[0], "-o", foreign, expect=2)
    print("several runs: curves overlaid, diff names what changed")


def points_of(page, style):
    """Points of each path of a class: [(x, y), ...]."""
    with open(page, encoding="utf-8") as file:
        paths = re.findall(f'<path class="{style}" d="M0 100([^"]*)"', file.read())
    return [[tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)] for path in paths]


def validations(folder):
    """Losses of validations are drawn on the axes of the training's, without those that a resumed run replaced."""
    def add(path, *lines):
        with open(os.path.join(path, "steps.jsonl"), "a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def step(number):
        return {"step": number, "loss": 1 + 3 / number, "grad_norm": 1.5, "lr": 0.001, "tokens": 1024, "seconds": 0.01}

    def held(number, loss):
        return {"step": number, "validation_loss": loss, "windows": 8, "windows_total": 8}

    first = make(os.path.join(folder, "first"), "usual", 5)  # losses of training from 4 to 1.6
    add(first, held(5, 3.0), *map(step, range(6, 9)), held(8, 9.0), step(9), held(9, 8.0),
        # resumed at step 5
        *map(step, range(6, 11)), held(10, 2.0), step(11), held(11, None))
    run("report", first)
    page = os.path.join(first, "report.html")
    assert "training" in read_page(page).text["li"] and "validation" in read_page(page).text["li"]
    line, = points_of(page, "line held r0")
    dots, = points_of(page, "dots r0")
    assert line == dots and [x for x, _ in dots] == [400.0, 900.0], dots  # steps 5 and 10 of 1 to 11
    least, most = 1 + 3 / 11, 4
    for (_, y), loss in zip(dots, (3.0, 2.0), strict=True):
        assert abs(y - (96 - 92 * (loss - least) / (most - least))) < 0.06, (y, loss)
    assert "at the end 1.273; validation - at step 11" in read_page(page).text["figcaption"], read_page(page).text["figcaption"]

    second = make(os.path.join(folder, "second"), "usual", 11)
    add(second, held(11, 5.0))  # above all losses of training
    plain = make(os.path.join(folder, "plain"), "usual", 11)
    both = os.path.join(folder, "both.html")
    run("report", first, plain, second, "-o", both)
    read_page(both)
    assert [len(points_of(both, f"dots r{i}")) for i in range(3)] == [1, 0, 1]
    assert points_of(both, "dots r2") == [[(1000.0, 4.0)]]

    many = make(os.path.join(folder, "many"), "usual", 20000)
    add(many, held(20000, 1.5))
    with open(os.path.join(many, "steps.jsonl"), "a", encoding="utf-8") as file:
        for number in range(20001, 30001):
            file.write(json.dumps(step(number)) + "\n" + json.dumps(held(number, 2 + 1e4 / number)) + "\n")
    run("report", many)
    assert len(points_of(os.path.join(many, "report.html"), "dots r0")[0]) == 400
    read_page(os.path.join(many, "report.html"))

    run("report", plain)
    with open(os.path.join(plain, "report.html"), encoding="utf-8") as file:
        assert "validation</li>" not in file.read()

    corpus, trained = os.path.join(folder, "corpus.txt"), os.path.join(folder, "trained")
    with open(corpus, "w", encoding="utf-8") as file:
        file.write("a step of a small model\n" * 100)
    small = ["--threads", "2", "--steps"]
    run("train", "gpt2-pico", "--data", corpus, "--batch", "2", "--sequence", "16", "--validation", corpus, "--validation-every", "1",
        "--save-every", "2", "--save", trained, "--schedule-steps", "7", *QUICK, *small, "5")
    shutil.rmtree(os.path.join(trained, "step-5"))
    run("train", "--resume", trained, *QUICK, *small, "7")
    run("report", trained)
    assert len(points_of(os.path.join(trained, "report.html"), "dots r0")[0]) == 7
    print("validations: drawn, once a step")


def settings(folder):
    """diff names every setting of the recipe that differs, and no other."""
    corpus = os.path.join(folder, "corpus.txt")
    with open(corpus, "w", encoding="utf-8") as file:
        file.write("".join(f"line {i}\n" for i in range(400)))
    lines = os.path.join(folder, "lines.jsonl")
    with open(lines, "w", encoding="utf-8") as file:
        talk = [{"role": "user", "content": "what is this line"}, {"role": "assistant", "content": "a line of many words"}]
        file.write((json.dumps({"messages": talk}) + "\n") * 100)
    os.mkdir(os.path.join(folder, "second"))
    runs = {"usual": [], "same": [], "rates": ["--lr", "1.25e-3", "--warmup", "1", "--lr-for", "wte=1e-4"],
            "shape": ["--batch", "2", "--dropout", "0.1", "--seed", "2", "--steps", "3", "--clip", "0.5"],
            "part": ["--freeze", "wpe"], "held": ["--validation", corpus],
            "seed": ["--seed", "1234567890123"], "seeds": ["--seed", "1234567890124"], "lora": ["--lora", "2:4", "--lora-also", "ln_f", "--lora-dropout", "0.1"],
            "ranks": ["--replicas", "2", "--ranks", "2", "--pattern", "zero1"], "far": ["--disk", folder],
            "stable": ["--schedule", "wsd"], "two": ["--disk", folder, "--disk", os.path.join(folder, "second"), "--clip-mode", "speculate"],
            "words": ["--documents", "separate", "--sweep-order", "layer", "--micro-batch", "4", "--clip-mode", "previous"],
            "lines": ["--data", lines, "--chat", "--chat-form", "plain", "--skip-bad"], "packed": ["--lora", "2", "--frozen-dtype", "nf4"],
            "saves": ["--save-every", "1", "--validation", corpus, "--validation-every", "1", "--validation-windows", "3",
                      "--stop-after-worse", "2"]}
    for name, flags in runs.items():
        few = [] if "--steps" in flags else ["--steps", "2"]
        run("train", "gpt2-pico", *([] if "--data" in flags else ["--data", corpus]), "--sequence", "16", "--dtype", "f32", "--threads", "1", "--calibration", "none",
            "--device-memory", "2MiB" if "--disk" in flags else "64MiB", "--save",
            os.path.join(folder, name), *few, *flags)
    expected = {"same": [], "rates": ["warmup", "lr", "min-lr", "lr-for"],
                "shape": ["batch", "micro-batch", "dropout", "seed", "steps", "schedule-steps", "clip"],
                "part": ["freeze"], "held": ["validation-hash"], "lora": ["lora-rank", "lora-alpha", "lora-targets", "lora-also", "lora-dropout"],
                "ranks": ["replicas", "ranks", "pattern"], "far": ["disk budget", "disk folders"], "stable": ["schedule", "decay-steps"],
                "two": ["disk budget", "disk folders", "clip-mode"], "words": ["data-hash", "documents", "sweep-order", "clip-mode"],
                "lines": ["data-hash", "chat", "chat-form", "skip-bad"], "packed": ["lora-rank", "lora-alpha", "lora-targets", "frozen-dtype"],
                "saves": ["save-every", "validation-hash", "validation-every", "validation-windows", "stop-after-worse"]}
    made = ["plan", "planned limit", "device budget", "threads", "micro-batch", "profile"]
    texts = {}
    for name, names in expected.items():
        texts[name] = run("diff", *(os.path.join(folder, x) for x in ("usual", name)),
                          env={**os.environ, "LC_ALL": "C.UTF-8"})[0].split("WHAT DIFFERS\n")[1]
        found = [re.match("  (disk folders|[a-z-]+(?: budget| limit)?)", line)[1] for line in texts[name].splitlines() if "→" in line]
        assert sorted(x for x in found if x not in made) == sorted(x for x in names if x not in made), (name, texts[name])
    assert "lr               0.0006 → 0.00125\n" in texts["rates"], texts["rates"]
    assert "lr-for           - → wte 0.0001\n" in texts["rates"], texts["rates"]
    assert "settings are equal" in texts["same"], texts["same"]
    assert "validation-hash  none → " in texts["held"], texts["held"]
    assert "disk budget      none → no limit\n" in texts["far"], texts["far"]
    # Values are the words of the flags, as they were typed: none is a number that only the record has.
    for name in ("words", "two", "lines", "packed", "saves"):
        for flag, value in zip(runs[name], runs[name][1:]):
            if flag in ("--documents", "--sweep-order", "--clip-mode", "--chat-form", "--frozen-dtype", "--save-every",
                        "--validation-every", "--validation-windows", "--stop-after-worse"):
                assert re.search(f"(?m)^  {flag[2:]} .* → {value}$", texts[name]), (flag, texts[name])
    for row in ("documents        packed → ", "sweep-order      micro-batch → ", "clip-mode        exact → "):
        assert row in texts["words"], texts["words"]
    for row in ("chat             no → yes\n", "skip-bad         no → yes\n", "chat-form        auto → "):
        assert row in texts["lines"], texts["lines"]
    for row in ("save-every       at the end → ", "validation-windows all → ", "stop-after-worse never → "):
        assert row in texts["saves"], texts["saves"]
    # one folder, and one more, each by its path
    one, two = folder, f"{folder}, {os.path.join(folder, 'second')}"
    for before, after, disks in (("usual", "far", f"none → {one}"), ("far", "two", f"{one} → {two}")):
        text = run("diff", *(os.path.join(folder, x) for x in (before, after)), env={**os.environ, "LC_ALL": "C.UTF-8"})[0]
        head, tail = re.search("(?m)^  disk folders     (.*) → (.*)$", text).groups()
        wanted = disks.split(" → ")
        for said, full in zip((head, tail), wanted):  # a long text begins near the first difference
            assert full.startswith(said) if not said.startswith("...") else said[3:] in full, (text, full)
    large = run("diff", *(os.path.join(folder, x) for x in ("seed", "seeds")), env={**os.environ, "LC_ALL": "C.UTF-8"})[0]
    assert "seed             1234567890123 → 1234567890124\n" in large, large
    # NCCL's sums need GPUs, so a run of the host has its record changed. One of an earlier version says nothing of sums.
    path = os.path.join(folder, "same", "run.json")
    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    for reduce, says in (("library", "reduce           exact → library\n"), (None, "settings are equal")):
        record.pop("reduce")
        record |= {"reduce": reduce} if reduce else {}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(record, file)
        text = run("diff", *(os.path.join(folder, x) for x in ("usual", "same")), env={**os.environ, "LC_ALL": "C.UTF-8"})[0]
        assert says in text, text
    # Predictions of which only one is calibrated are not of the same kind: both places that compare them say so.
    for name, is_calibrated in (("usual", False), ("same", True)):
        with open(os.path.join(folder, name, "run.json"), encoding="utf-8") as file:
            changed = json.load(file)
        with open(os.path.join(folder, name, "run.json"), "w", encoding="utf-8") as file:
            json.dump({**changed, "calibrated": is_calibrated}, file)
        said = {"prices           not calibrated → calibrated by earlier runs\n",
                "    predictions: before not calibrated, after calibrated by earlier runs\n"}
        text = run("diff", *(os.path.join(folder, x) for x in ("usual", "same")), env={**os.environ, "LC_ALL": "C.UTF-8"})[0]
        assert {one for one in said if one in text} == (said if is_calibrated else set()), text
    # One of an earlier version had no other schedule than a cosine, and recorded no folders.
    record["recipe"].pop("schedule"), record["recipe"].pop("decay_steps"), record.pop("disks")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(record, file)
    assert "settings are equal" in run("diff", *(os.path.join(folder, x) for x in ("usual", "same")),
                                       env={**os.environ, "LC_ALL": "C.UTF-8"})[0]
    # A run of an earlier version has no recipe: its command is compared.
    path = os.path.join(folder, "rates", "run.json")
    with open(path, encoding="utf-8") as file:
        old = json.load(file)
    del old["recipe"]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(old, file)
    assert "  command " in run("diff", os.path.join(folder, "usual"), os.path.join(folder, "rates"))[0]
    print(f"settings: diff names {sum(map(len, expected.values()))} that differ")


def real(folder):
    small = ["gpt2-nano", "--batch", "2", "--micro-batch", "1", "--sequence", "16"]
    plan, text, out = (os.path.join(folder, name) for name in ("plan.html", "text.txt", "report.html"))
    run("plan", *small, "--report", plan)
    page = read_page(plan)
    assert "predicted to take" in page.text["section"] and "curves" not in page.ids and "lanes" in page.ids
    run("plan", *small, "--device-memory", "600MiB", "--calibration", "none", "--search", "quick", "--report", text)
    with open(text, encoding="utf-8") as file:
        said = file.read()
    assert "more device memory changes nothing" in said and "more device memory (" not in said, said
    assert not re.search("·\\s*$", said, re.M), said  # no date, since nothing ran
    rows = said[said.index("WHAT IF"):]
    assert "less device memory" in rows and rows.count("(--") == rows.count(")"), rows
    # 1.25 times this memory holds everything, and so do 1.5 and 2 times
    run("plan", "gpt2-nano", "--dtype", "bf16", "--batch", "4", "--sequence", "128", "--threads", "1", "--device-memory", "170MiB",
        "--calibration", "none", "--search", "quick", "--report", plan + ".json")
    with open(plan + ".json", encoding="utf-8") as file:
        report = json.load(file)
    assert sum("more device memory" in row["text"] for row in report["what_if"]) > 1, report["what_if"]
    assert sum("more device memory" in each["text"] for each in report["actions"]) == 1, report["actions"]
    pico = ["gpt2-pico", "--batch", "2", "--micro-batch", "1", "--sequence", "16"]
    emulated = [*pico, "--device-memory", "1500KiB", "--emulate-host", "1GiB", "--calibration", "none"]
    run("plan", *emulated, *QUICK, "--link-rate", "50MB/s", "--report", plan + ".json")
    with open(plan + ".json", encoding="utf-8") as file:
        report = json.load(file)
    rows, factors = [row for row in report["what_if"] if "device memory" in row["text"]], (1.25, 1.5, 2, 0.8)
    assert len(rows) == len(factors) or report["what_if_unplanned"], report["what_if"]
    for row, factor in zip(rows, factors):
        asked = float(re.search(r"--device-memory ([\d.]+)KiB", row["text"])[1])
        assert asked == 1500 * factor // 4 * 4, row
    linked = [row for row in report["what_if"] if "--link-rate 100MB/s" in row["text"]]
    assert linked or report["what_if_unplanned"], report["what_if"]
    for row in linked:
        search = "quick" if row["is_quick"] or QUICK else "usual"
        again = json.loads(run("plan", *emulated, "--link-rate", "100MB/s", "--search", search, "--json")[0])
        assert abs(row["step_seconds"] - again["step_seconds"]) < 1e-9, (row, again["step_seconds"])
    with open(text, "w", encoding="utf-8") as file:
        file.write("a step of a small model\n" * 200)
    kept = os.path.join(folder, "run")
    run("train", *small, "--data", text, "--steps", "4", "--save", kept, "--report", out)
    page = read_page(out)
    report = json.loads(run("report", kept, "--json")[0])
    # one of the two recorded steps that a recorded one follows
    assert report["window_step"] in (2, 3), report["window_step"]
    assert f"Step {report['window_step']} takes" in page.text["section"], page.text["section"][:400]
    assert "(median of 4 steps: " in report["verdict"], report["verdict"]
    assert report["measured"] and report["steps"] == 4 and not report["notes"]
    assert sum(part["ns"] for part in report["parts"]) == report["window_ns"]
    refused = run("train", *small, "--data", text, "--save", "none", "--report", out, expect=2)[1]
    assert "--save none" in refused
    # a resumed run has another plan, whose prediction is that of its own steps
    run("train", "--resume", kept, "--steps", "7", "--batch", "1")
    report = json.loads(run("report", kept, "--json")[0])
    with open(os.path.join(kept, "steps.jsonl"), encoding="utf-8") as file:
        seconds = sorted(row["seconds"] for row in map(json.loads, file) if row["step"] > 4 and "seconds" in row)
    assert report["steps"] == 7 and report["timed_steps"] == 3 == len(seconds), report
    assert abs(report["step_seconds"] / seconds[1] - 1) < 1e-6, (report["step_seconds"], seconds)
    assert "resumed at step 4: times are of the steps since" in run("report", kept, "--text")[0]
    print("a plan and a real run: drawn")


def guesses(folder):
    """Gains against built-in constants are marked as plan marks its prices; those of a datasheet are not."""
    mark, text = "a guess, not calibrated", os.path.join(folder, "text.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write("a step of a small model\n" * 400)
    small = ["gpt2-pico", "--batch", "2", "--sequence", "32", "--device-memory", "1500KiB", "--disk", folder]
    for calibration, names in (("none", 0), ("file", 0), ("file", 1)):
        path = calibration if calibration == "none" else os.path.join(folder, "calibration.json")
        kept = os.path.join(folder, f"run-{calibration}-{names}")
        run("train", *small, "--data", text, "--steps", "6", "--save", kept, "--calibration", path, "--search", "quick")
        said = " ".join(run("report", kept, "--text")[0].split())
        assert (": a guess, " in said[said.index("(predicted "):][:40]) == (names == 0), said[:600]
        assert f"WHAT IF {mark}, so" in said, said
        actions = json.loads(run("report", kept, "--json")[0])["actions"]
        assert any(each["is_guess"] for each in actions if each["source"].startswith("planned")), actions
        assert all(each["is_guess"] for each in actions if each["source"].startswith("planned")), actions
        assert not any(each["is_guess"] for each in actions if each["source"] == "estimated"), actions
        if names == 1:
            assert not any(each["is_guess"] for each in actions if each["source"] == "replayed"), actions
        run("report", kept, "-o", kept + ".html")
        assert mark in read_page(kept + ".html").text["section"]
    for more, is_guess in ((["--device-memory", "1500KiB", "--disk", folder], True),
                           (["--device-memory", "34MiB", "--profile", "rtx-4090,host-memory=64MiB"], False)):
        out = os.path.join(folder, "plan.txt")
        run("plan", *small[:-4], *more, "--calibration", "none", "--search", "quick", "--report", out)
        with open(out, encoding="utf-8") as file:
            said = " ".join(file.read().split())
        assert (f"; {mark}): " in said) == is_guess and (f"WHAT IF {mark}, so" in said) == is_guess, said
    print("gains by built-in constants: marked as a guess")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")  # calibrations of these runs are not the user's
        for number, part in enumerate((causes, hostile, damaged, refusals, several, validations, settings, real, guesses)):
            sub = os.path.join(folder, str(number))
            os.mkdir(sub)
            part(sub)


main()
