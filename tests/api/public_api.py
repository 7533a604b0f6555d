"""The public headers as data: functions with their parameters, and structs with their fields.

Start with `read(folder)`. The parser knows the house style of include/cohobate/*.h and nothing else of C. It
fails on a declaration that it cannot read, so that no function is left out in silence."""
import pathlib
import re
from dataclasses import dataclass, field

INTEGERS = {
    "int8_t": (8, True), "int32_t": (32, True), "int": (32, True), "int64_t": (64, True),
    "uint8_t": (8, False), "uint32_t": (32, False), "unsigned": (32, False), "uint64_t": (64, False),
    "size_t": (64, False),
}
FLOATS = {"float", "double"}


@dataclass
class Variable:
    """A parameter or a field: `const char *name`, `float values[4]`, `coh_status (*infer)(...)`."""
    name: str
    type: str  # without const, struct and stars
    stars: int = 0
    is_const: bool = False
    extents: tuple = ()  # extents of an array, as written
    is_function: bool = False

    @property
    def is_pointer(self):
        return self.stars > 0 or self.is_function


@dataclass
class Function:
    name: str
    result: Variable
    parameters: list
    variadic: bool = False


@dataclass
class Struct:
    name: str
    fields: list = field(default_factory=list)


@dataclass
class Api:
    functions: list
    structs: dict
    enums: dict  # name -> number of values
    callbacks: set  # typedef names of function types
    objects: list  # names of extern kinds


def strip(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"#ifdef __cplusplus.*?#endif|^#ifdef __cplusplus\n.*?^#else", "", text, flags=re.S | re.M)
    text = re.sub(r"__attribute__\(\(.*?\)\)\)?", " ", text)
    text = re.sub(r"^#.*?(?<!\\)$", "", text, flags=re.M)
    return text


def split(text, separator=","):
    """Splits at separators outside of brackets."""
    parts, depth, begin = [], 0, 0
    for i, character in enumerate(text):
        depth += character in "([{"
        depth -= character in ")]}"
        if character == separator and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return [part.strip() for part in parts + [text[begin:]] if part.strip()]


def variables(text):
    """Splits `int32_t a, *b[2]` into two variables."""
    text = " ".join(text.split())
    pointer = re.fullmatch(r"(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)", text)
    if pointer:
        return [Variable(pointer[2], "function", is_function=True)]
    parts = split(text)
    found = re.fullmatch(r"((?:(?:const|struct|enum|union) )*)(\w+)( const)?\s*(.*)", parts[0])
    if not found:
        raise ValueError(f"cannot read the declaration {text!r}")
    base = found[2]
    result = []
    for declarator in [found[4]] + parts[1:]:
        shape = re.fullmatch(r"((?:\*\s*(?:const\s*)?)*)(\w*)((?:\[[^\]]*\])*)", declarator)
        if not shape:
            raise ValueError(f"cannot read the declarator {declarator!r} of {text!r}")
        result.append(Variable(shape[2], base, shape[1].count("*"), "const" in found[1] or bool(found[3]),
                               tuple(re.findall(r"\[([^\]]*)\]", shape[3]))))
    return result


def read_function(declaration):
    declaration = " ".join(declaration.split())
    found = re.fullmatch(r"(.*?[ *])(\w+)\((.*)\)", declaration)
    if not found:
        raise ValueError(f"cannot read the function {declaration!r}")
    result = variables(found[1].strip() + " result" if not found[1].strip().endswith("*") else found[1] + "result")[0]
    parameters, variadic = [], False
    for part in split(found[3]):
        if part == "...":
            variadic = True
        elif part != "void":
            parameter = variables(part)[0]
            if parameter.extents:  # an array parameter is a pointer
                parameter.stars += 1
            parameters.append(parameter)
    return Function(found[2], result, parameters, variadic)


def read_fields(body):
    """Reads a struct's fields; members of an anonymous union follow one another, named as in C."""
    fields = []
    while (union := re.search(r"(?:__extension__\s+)?\bunion\s*\{", body)):
        end = body.index("}", union.end())
        body = body[:union.start()] + body[union.end():end] + body[body.index(";", end) + 1:]
    for declaration in split(body, ";"):
        fields += variables(declaration)
    return fields


def read(folder):
    api = Api([], {}, {}, set(), [])
    texts = [strip(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.h"))]
    for text in texts:
        for found in re.finditer(r"(?:typedef )?struct (\w+) \{(.*?)\n\}[ \w]*;", text, flags=re.S):
            api.structs[found[1]] = Struct(found[1], read_fields(found[2]))
        for found in re.finditer(r"typedef enum (\w+) \{(.*?)\} \w+;", text, flags=re.S):
            api.enums[found[1]] = len(split(found[2]))
        for found in re.finditer(r"typedef [\w ]+?[ *]\(\*(\w+)\)\(", text):
            api.callbacks.add(found[1])
        for found in re.finditer(r"extern COH_API const coh_op_kind (.*?);", text, flags=re.S):
            api.objects += split(found[1])
        for found in re.finditer(r"(?<!extern )\bCOH_API\s+([^;]*?\))\s*;", text, flags=re.S):
            api.functions.append(read_function(found[1]))
        marked = len(re.findall(r"^(?:extern )?COH_API", text, flags=re.M))
        known = len(re.findall(r"extern COH_API const coh_op_kind", text)) + len(
            re.findall(r"(?<!extern )\bCOH_API\s+[^;]*?\)\s*;", text, flags=re.S))
        if marked != known:
            raise ValueError(f"{marked} declarations are marked COH_API, {known} were understood")
    return api
