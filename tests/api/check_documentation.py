"""Every public symbol is documented: check_documentation.py INCLUDE, or --self-test.

    header     an opening comment that states the threads ("Threads: ...")
    function   a comment directly above; with an engine or a graph among its arguments, that statement names the engine or
               graph, or the comment names threads; with a coh_status it names the errors, or the function whose errors it has; with a
               pointer as its result, or as an output without a function that frees it, how long that lives
    type       a comment directly above
    member     a comment of its own (above, or behind it), or its name in the comment of its struct or, in backticks, of its
               header or, `struct_bytes` for all structs, of cohobate.h. A value of an enum counts as named by its last words, too: NORMAL for COH_INIT_NORMAL. The last value
               X_COUNT needs none
    macro, constant, kind    a comment directly above or behind it; a kind also by its attributes, directly above"""
import pathlib
import re
import sys

COMMENT = r"/\*(?:[^*]|\*(?!/))*\*/"
LIFETIME = re.compile(r"\bOwns\b|[Bb]elongs?\b|\blives? as long|[Vv]alid until|[Ss]tatic\b|\bfrees\b|\bpoints?\b|\bNULL\b|"
                      r"Returns [`\"][\w-]+[`\"]")
ERRORS = re.compile(r"\bFails\b|\b[Aa]s (?:in )?coh_\w+")


class Header:
    def __init__(self, name, text):
        self.name, self.text, self.wrong, self.count = name, text, [], 0
        found = re.match(COMMENT, text)
        self.opening = found[0] if found else ""
        said = re.search(r"\bThreads: (.*)", self.opening, flags=re.S)
        self.threads = said[1] if said else ""

    def check(self, symbol, is_documented, needs="a comment"):
        self.count += 1
        if not is_documented:
            self.wrong.append(f"{self.name}: {symbol} needs {needs}")

    def above(self, position):
        """The comment that ends on the line above, or ""."""
        found = re.search(rf"({COMMENT})\n\Z", self.text[:position])
        return re.sub(r"\s*\n \* ?", " ", found[1]) if found else ""


def members(body, separator):
    """[(declaration, comments before and behind it)] of the body of a struct or an enum."""
    found, code, comment = [], "", ""
    for token in re.findall(rf"{COMMENT}|.", body, flags=re.S):
        if not token.startswith("/*"):
            code += token
            if token == separator and code.count("(") == code.count(")"):
                found.append([code, comment])
                code = comment = ""
        elif code.strip() == "" and found and "\n" not in code:
            found[-1][1] += token  # behind it, on the same line
        else:
            comment += token
    return found + ([[code, comment]] if code.strip() else [])


def names_of(declaration):
    declaration = re.sub(r"\b(?:__extension__ )?union \{", "", declaration)
    pointer = re.search(r"\(\*(\w+)\)", declaration)
    if pointer:
        return [pointer[1]]
    return re.findall(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?=[,;=\n]|$)(?!\s*\d)", re.sub(r"=[^,]*", "", declaration))


def named(name, comment, opening, is_value):
    forms = [name]
    if is_value:
        words = name.split("_")
        forms += ["_".join(words[i:]) for i in range(1, len(words))]
    return any(re.search(rf"\b{form}\b", comment) for form in forms) or f"`{name}`" in opening


def check_types(header, shared):
    for found in re.finditer(r"^typedef (struct|enum) (\w+) \{(.*?)\n?\} \w+;", header.text, flags=re.S | re.M):
        comment, is_value = header.above(found.start()), found[1] == "enum"
        header.check(found[2], comment)
        for declaration, own in members(found[3], "," if is_value else ";"):
            for name in names_of(declaration):
                is_number = is_value and name.endswith("_COUNT")
                header.check(f"{found[2]}.{name}", own or is_number or named(name, comment, header.opening + shared, is_value))
    for found in re.finditer(r"^typedef [^{;]*?(?:\(\*(\w+)\)\([^;]*|(\w+));", header.text, flags=re.M):
        header.check(found[1] or found[2], header.above(found.start()))


def freed_types(texts):
    """Types whose objects a function frees: cohobate.h has the rule that joins the two."""
    return {found for text in texts for found in re.findall(r"^COH_API void \w+_(?:destroy|close|free)\((\w+) \*", text, flags=re.M)}


def check_functions(header, freed):
    for found in re.finditer(r"^COH_API ([^;(]*?)(\w+)\(([^;]*?)\)\s*(?:__attribute__[^;]*)?;", header.text, flags=re.S | re.M):
        comment = header.above(found.start())
        made = re.findall(r"(\w+) \*\*out_", found[3])
        if comment and (found[1].rstrip().endswith("*") or [each for each in made if each not in freed]):
            header.check(found[2], LIFETIME.search(comment), "the lifetime of its result in its comment")
        header.check(found[2], comment)
        for thing in set(re.findall(r"\bcoh_(engine|graph) \*", found[3])):
            header.check(found[2], re.search(rf"\b{thing}\b", header.threads) or re.search(r"\bthreads?\b", comment),
                         f"threads: its header's \"Threads:\" names no {thing}, nor does its comment name threads")
        if comment and found[1].strip() == "coh_status":
            header.check(found[2], ERRORS.search(comment), "its errors in its comment (\"Fails: ...\")")
    for found in re.finditer(r"^extern COH_API const (\w+) ", header.text, flags=re.M):
        line = header.text[found.start():].split("\n")[0]
        before = header.text[:found.start()].rsplit("\n", 2)[-2]
        header.check(line, header.above(found.start()) or re.match(r"\} \w+;", before))


def check_constants(header):
    for found in re.finditer(r"^#define (COH_\w+)(.*)$", header.text, flags=re.M):
        is_run_on = re.search(r"^#define COH_\w+.*\n\Z", header.text[:found.start()], flags=re.M)
        is_one_of = is_run_on and re.search(rf"({COMMENT})\n(?:#define .*\n)*\Z", header.text[:found.start()])
        header.check(found[1], header.above(found.start()) or "/*" in found[2] or is_one_of)
    for found in re.finditer(r"^enum \{(.*?)\};", header.text, flags=re.S | re.M):
        for declaration, own in members(found[1], ","):
            for name in names_of(declaration):
                header.check(name, header.above(found.start()) or own)


def check(name, text, freed=(), shared=""):
    header = Header(name, text)
    header.check("the header", header.opening)
    header.check("the opening comment", header.threads, "a line on threads")
    check_types(header, shared)
    check_functions(header, freed)
    check_constants(header)
    return header


PLANTED = {
    "a function": "COH_API int coh_x(void);",
    "a function's errors": "/* Does it. */\nCOH_API coh_status coh_x(void);",
    "an engine's thread": "/* Does it. Fails: COH_ERR_IO. */\nCOH_API coh_status coh_x(coh_engine *engine);",
    "a graph's thread": "/* Does it. Fails: COH_ERR_IO. */\nCOH_API coh_status coh_x(const coh_graph *graph);",
    "a result's lifetime": "/* Returns it. */\nCOH_API const char *coh_x(void);",
    "an output's owner": "/* Makes it. Fails: COH_ERR_IO. */\nCOH_API coh_status coh_x(char **out_text);",
    "a struct": "typedef struct coh_x {\n    int a; /* one */\n} coh_x;",
    "a member": "/* A thing. */\ntypedef struct coh_x {\n    int a; /* one */\n    int b;\n} coh_x;",
    "a member behind another": "/* A thing. */\ntypedef struct coh_x {\n    int b;\n    int a; /* one */\n} coh_x;",
    "a value": "/* Things: ONE. */\ntypedef enum coh_x { COH_X_ONE, COH_X_TWO, COH_X_COUNT } coh_x;",
    "an object": "typedef struct coh_x coh_x;",
    "a callback": "typedef int (*coh_x)(void *context);",
    "a macro": "#define COH_X 1",
    "a constant": "enum { COH_X = 1 };",
    "a kind": "extern COH_API const coh_op_kind coh_kind_x;",
}


def self_test():
    """Each planted symbol without a comment is found, and with one it is not."""
    opening, missed = "/* x.h - things. Threads: any. */\n\n", []
    for what, text in PLANTED.items():
        if len(check("x.h", opening + text + "\n").wrong) != 1:
            missed.append(what)
    good = ("/* A thing. `b` is two. */\ntypedef struct coh_x {\n    int a; /* one */\n    int b;\n} coh_x;\n"
            "/* Does it. Fails: COH_ERR_IO. */\nCOH_API coh_status coh_x_do(coh_x *x);\n")
    if check("x.h", opening + good).wrong or len(check("x.h", good.replace("/* A", "/* x.h")).wrong) == 0:
        missed.append("what is documented")
    sized = opening + "/* A thing. */\ntypedef struct coh_x {\n    uint32_t struct_bytes;\n} coh_x;\n"
    if len(check("x.h", sized).wrong) != 1 or check("x.h", sized, (), "`struct_bytes`").wrong:
        missed.append("the size of a struct")
    if len(check("x.h", "/* x.h - things. */\n").wrong) != 1:
        missed.append("a header's threads")
    print(f"missed: {', '.join(missed)}" if missed else f"all {len(PLANTED)} planted symbols are found")
    return bool(missed)


def main():
    if sys.argv[1] == "--self-test":
        return self_test()
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(pathlib.Path(sys.argv[1]).glob("*.h"))}
    shared = "`struct_bytes`" if "`struct_bytes`" in texts["cohobate.h"] else ""
    headers = [check(name, text, freed_types(texts.values()), shared) for name, text in texts.items()]
    wrong = [line for header in headers for line in header.wrong]
    print("\n".join(wrong))
    print(f"{len(headers)} headers, {sum(header.count for header in headers)} facts, {len(wrong)} undocumented")
    return bool(wrong) or not headers


sys.exit(main())
