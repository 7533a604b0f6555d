"""Writes the tests of the public interface from its headers: write_calls.py calls|names INCLUDE OUT

calls   a C program that calls each public function once with valid arguments, then with each pointer NULL, each number
        NaN, infinite, negative, 0 and largest, and each struct field likewise (objects.h has the valid ones). New
        functions are included automatically, and fail until they refuse all of that.
names   a C++ file that names every function and kind, to be compiled and linked.

The tables below list the exceptions, each with its reason. An entry that names nothing any more is an error."""
import sys

import public_api

# NULL is documented as allowed: any status will do.
MAY_BE_NULL = {
    "coh_engine_create_within.disk_folder",
    "coh_chat_prompt_json.system", "coh_checkpoint_check.out_hash", "coh_engine_evaluate.out_loss", "coh_engine_load.out_facts", "coh_engine_load_from.out_facts",
    "coh_graph_op.out_parameters",
    "coh_kernels_tune.report", "coh_terms_set.texts", "coh_kernels_use.out_machine",
    "coh_device_summarize.device", "coh_trace_read.out_lost", "coh_token_file_make.out_facts", "coh_token_file_mix.out_counts", "coh_token_file_build.held_out_path",
    "coh_token_file_build.out_token_count", "coh_token_file_window_positions.out_positions", "coh_token_file_stretch_positions.out_positions", "coh_parameter_group_count.out_parameter_count",
    "coh_parameter_group_count.out_element_count",
}
# NULL is allowed and starts minutes of work: not called. tests/engine/test_measure.c covers it.
MEASURES = {"coh_profile_measure.known"}
# Returns a status that the caller chooses.
RETURNS_ITS_ARGUMENT = {"coh_kind_fail"}
# Keeps its struct for the rest of the process: each case gives the same one.
KEEPS = {"coh_optimizer_register.optimizer", "coh_extension_register.extension"}
# The size of the caller's own array: no library can detect a larger one. Only 0 and -1 are tested.
EXTENTS = {
    "coh_space_check.item_count", "coh_chat_turn.text_bytes", "coh_token_file_stretch.tokens", "coh_token_file_stretch_positions.tokens",
    "coh_tokenizer_encode.text_bytes", "coh_tokenizer_decode.count",
    "coh_machine_examine.most", "coh_size_format.text_bytes", "coh_size_round_up.text_bytes", "coh_daily_round_up.text_bytes",
    "coh_model_to_json.text_bytes",
    "coh_kernels_use.machine_bytes", "coh_engine_ledger.text_bytes", "coh_random_words.count",
    "coh_plan_memory_curve.count", "coh_measure_options.graph_count", "coh_plan_options.pin_count",
    "coh_plan_options.earlier_count", "coh_engine_options.group_count", "coh_op_args.attribute_bytes", "coh_op_kind.input_count",
    "coh_plan_options_init_sized.bytes", "coh_engine_options_init_sized.bytes", "coh_measure_options_init_sized.bytes",
    "coh_token_build_options_init_sized.bytes", "coh_token_mix_options_init_sized.bytes", "coh_training_note_init_sized.bytes",
    "coh_chain_link.attribute_bytes", "coh_graph_chain.link_count", "coh_op_check_options.attribute_bytes",
    "coh_layer.input_count",
    "coh_parallel.piece_count",  # number of calls
    "coh_trace.opcode_count", "coh_trace.purpose_count", "coh_trace.operator_count", "coh_trace.instruction_count",
    "coh_trace.wait_count", "coh_trace.extent_count", "coh_trace.step_count",
}
# Names of parameters and members that are paths: an empty text is none.
PATHS = {"path", "folder", "from", "in_path", "out_path", "held_out_path", "chat_folder", "disk_folder", "files_from",
         "notices_from", "kernel_table"}
# Structs of at most 16 bytes, which may be as small as a pointer.
SMALL = {"coh_load_facts", "coh_op_report", "coh_world_options"}
SIGNED = {True: ("0", "-1", "INT{0}_MAX", "INT{0}_MIN"), False: ("0", "UINT{0}_MAX")}
FLOATS = ("NAN", "INFINITY", "-INFINITY", "-1", "0", "MAX")
FAMILIES = {"opt": "COH_FAMILY_OPT", "llama": "COH_FAMILY_LLAMA", "gemma": "COH_FAMILY_GEMMA"}
# Types with another graph than the family's valid object.
TYPES = {"llama": ("COH_LLAMA_QWEN3", "COH_LLAMA_PHI3")}
# Attributes of the library's kinds whose names differ from the kind's.
ATTRIBUTES = {
    "attention_atomic": "attention", "attention_grouped_atomic": "attention_grouped", "logits": "classifier",
    "dropout_residual": "dropout", "linear_uniform": "linear", "linear_residual": "linear",
    "linear_gelu": "linear", "linear_relu": "linear", "position_at": "position", "rope_at": "rope",
    "rope_split_at": "rope_split", "gelu": None, "relu": None, "swiglu": None, "swiglu_packed": None, "geglu": None,
    "attention_documents": "attention", "attention_documents_dropout": "attention_dropout",
    "attention_grouped_documents": "attention_grouped", "attention_grouped_documents_dropout": "attention_grouped_dropout",
    "position_documents": "position",
    "add": None, "token_losses": None, "concat": "axis", "mean": "axis", "softmax": None, "cross_entropy": None, "mean_squared_error": None,
}


def values(variable, key):
    """C texts of the values that a number is set to."""
    if variable.type in public_api.FLOATS:
        most = "FLT_MAX" if variable.type == "float" else "DBL_MAX"
        return [most if value == "MAX" else value for value in FLOATS]
    if variable.type in public_api.INTEGERS:
        bits, signed = public_api.INTEGERS[variable.type]
        return [value.format(bits) for value in SIGNED[signed] if key not in EXTENTS or value in ("0", "-1")]
    return [f"({variable.type})0", f"({variable.type})-1", f"({variable.type})INT32_MAX"]


def fields(api, struct, prefix=""):
    """(path, variable) of every number and pointer in a struct, first and last of arrays."""
    for variable in api.structs[struct].fields:
        paths = [prefix + variable.name]
        if variable.extents:
            if variable.type == "char" and not variable.stars:
                continue
            paths = [paths[0] + "[0]" * len(variable.extents)]
        for path in paths:
            if variable.is_pointer or variable.type in api.callbacks:
                yield path, variable
            elif variable.type in api.structs:
                yield from fields(api, variable.type, path + ".")
            elif variable.type != "char":
                yield path, variable


def is_number(api, variable):
    return not variable.is_pointer and (
        variable.type in public_api.INTEGERS or variable.type in public_api.FLOATS or variable.type in api.enums)


def is_sized(api, kind):
    return kind in api.structs and api.structs[kind].fields[0].name == "struct_bytes"


class Writer:
    def __init__(self, api):
        self.api = api
        self.used = set()
        self.destroys = {}
        for function in api.functions:
            if function.name.rsplit("_", 1)[1] in ("destroy", "close") and len(function.parameters) == 1:
                self.destroys[function.parameters[0].type] = function.name

    def declaration(self, function, i, parameter):
        """Lines that declare a valid argument with the parameter's name."""
        name, kind = parameter.name, parameter.type
        if function.name.rsplit("_", 1)[1] in ("destroy", "close", "free"):
            return [f"{kind} *{name} = NULL;"]  # other tests cover valid ones
        if parameter.is_function:
            return [f"void (*{name})(void *, int64_t) = no_piece;"]
        if kind in self.api.callbacks:
            values = {"coh_number_source": "no_numbers", "coh_parameter_source": "no_parameters",
                      "coh_parameter_sink": "drop_parameters",
                      "coh_kernel_report": "no_report"}
            return [f"{kind} {name} = {values[kind]};"]
        const = "const " if parameter.is_const else ""
        if parameter.stars == 0:
            if kind in self.api.structs:
                return [f"{kind} {name} = {{ 0 }};"]
            text = "8" if name == "tokens" else "0" if name in ("index", "stream", "what", "begin") else "1"
            return [f"{kind} {name} = ({kind}){text};"]
        if parameter.extents[1:]:
            return [f"{kind} (*{name})[{parameter.extents[1]}] = scratch({i});"]
        if kind == "char" and parameter.stars == 1 and parameter.is_const:
            return [f"const char *{name} = valid_text(\"{function.name}\", \"{name}\");"]
        stars = "*" * parameter.stars
        if kind == "void" and not name.startswith("out_"):
            return [f"void {stars}{name} = valid_object(\"{function.name}\", \"{name}\");"]
        if name.startswith("out_") and parameter.stars == 1 and is_sized(self.api, kind):
            return [f"{kind} {name}_value = {{ .struct_bytes = sizeof({name}_value) }};", f"{kind} *{name} = &{name}_value;"]
        is_output = name.startswith("out_") or parameter.stars > 1 or (not parameter.is_const and kind in (
            "char", "float", "double", "int", "int32_t", "uint32_t"))
        if is_output or kind in public_api.INTEGERS or kind in public_api.FLOATS:
            return [f"{const}{kind} {stars}{name} = scratch({i});"]
        if f"{function.name}.{name}" in KEEPS:
            return [f"static {kind} {name}_value;", f"{const}{kind} *{name} = &{name}_value;",
                    f"{name}_value = valid_{kind}();"]
        if parameter.extents:
            return [f"{const}{kind} {stars}{name} = scratch({i});"]
        if kind in self.api.structs:
            return [f"{kind} {name}_value = valid_{kind}();", f"{const}{kind} *{name} = &{name}_value;"]
        maker = f"valid_{kind}"
        if function.name in ("coh_graph_op", "coh_graph_input", "coh_graph_output", "coh_graph_chain"):
            maker = "valid_open_graph"
        if function.name == "coh_profile_measure":
            maker = "valid_datasheet"  # refused after the options: nothing is measured in each case
        return [f"{const}{kind} *{name} = {maker}();"]

    def struct_cases(self, function, parameter):
        name, struct = parameter.name, parameter.type
        for path, variable in fields(self.api, struct):
            key, family, types, before = f"{struct}.{variable.name}", path.split(".")[0], (), ""
            if struct == "coh_model" and family in FAMILIES:
                before, types = f"{name}_value = valid_model_of({FAMILIES[family]}); ", TYPES.get(family, ())
            if not is_number(self.api, variable):
                yield f"{name}->{path} NULL", f"{name}_value.{path} = NULL;", "any"
                if variable.name in PATHS:
                    self.used.add(variable.name)
                    yield f"{name}->{path} empty", f"{name}_value.{path} = \"\";", "argument"
                continue
            self.used.add(key)
            if path == "struct_bytes":
                continue  # sized_cases
            for value in values(variable, key):
                strict = value == "NAN" and not (struct == "coh_model" and not function.name.endswith("_graph"))
                for of in ("", *types):
                    setting = f"{name}_value.{family}.type = {of}; " if of else ""
                    yield (f"{name}->{path} {value}{of and ' of ' + of}",
                           f"{before}{setting}{name}_value.{path} = {value};", "refused" if strict else "any")

    def sized_cases(self, function, parameter):
        """Sizes that no struct has. The larger and smaller ones are in test_struct_bytes.c."""
        name = parameter.name
        if parameter.stars != 1 or not is_sized(self.api, parameter.type) or function.name.endswith(("_init", "_destroy")):
            return
        for size in ("0", f"sizeof({name}_value) - 1", "UINT32_MAX"):
            yield f"{name}->struct_bytes {size}", f"{name}_value.struct_bytes = {size};", "argument"
        self.used.add(parameter.type)
        if parameter.type not in SMALL:
            yield (f"{name}->struct_bytes sizeof(pointer)", f"{name}_value.struct_bytes = sizeof(void *);", "argument")

    def cases(self, function):
        yield "valid arguments", "", "any"
        for parameter in function.parameters:
            key = f"{function.name}.{parameter.name}"
            self.used.add(key)
            if key in MEASURES:
                continue
            if parameter.is_pointer or parameter.type in self.api.callbacks:
                free = key in MAY_BE_NULL or parameter.name == "context" or function.name in RETURNS_ITS_ARGUMENT
                yield f"{parameter.name} NULL", f"{parameter.name} = NULL;", "any" if free else "argument"
                if parameter.type == "char" and parameter.is_const and parameter.name in PATHS:
                    self.used.add(parameter.name)
                    yield f"{parameter.name} empty", f"{parameter.name} = \"\";", "argument"
            elif parameter.type in self.api.structs:
                for value in ("-1", "0", "INT32_MAX"):
                    yield f"{parameter.name} {value}", f"{parameter.name}.index = {value};", "any"
            else:
                for value in values(parameter, key):
                    yield f"{parameter.name} {value}", f"{parameter.name} = {value};", "any"
            if (parameter.stars == 1 and parameter.type in self.api.structs and parameter.is_const and not parameter.extents):
                yield from self.struct_cases(function, parameter)
            yield from self.sized_cases(function, parameter)

    def function(self, function):
        lines = [f"static void call_{function.name}(int case_number, int must)", "{", "    (void)must;"]
        for i, parameter in enumerate(function.parameters):
            lines += ["    " + line for line in self.declaration(function, i, parameter)]
        cases = list(self.cases(function))
        lines.append("    switch (case_number) {")
        for i, (_, code, _) in enumerate(cases):
            lines += [f"    case {i}:", f"        {code}", "        break;"]
        lines += ["    }"]
        arguments = ", ".join(parameter.name for parameter in function.parameters)
        call = f"{function.name}({arguments})"
        if function.name in RETURNS_ITS_ARGUMENT:
            lines += [f"    (void){call};"]
        elif function.result.type == "coh_status" and not function.result.stars:
            lines += [f"    judge({call}, must);"]
            for parameter in reversed(function.parameters):  # an engine before its plan
                if parameter.stars == 2 and parameter.type in self.destroys and parameter.name.startswith("out_"):
                    lines += [f"    if (case_number > 0 && {parameter.name} != NULL)",
                              f"        {self.destroys[parameter.type]}(*{parameter.name});"]
        elif function.result.type == "char" and function.result.stars:
            lines += [f"    look({call});"]
        else:
            lines += [f"    (void){call};"]
        return lines + ["}", ""], cases


def kind_function(api, kind):
    """Makes a function that sets every number of a kind's attributes, through coh_graph_op."""
    attributes = ATTRIBUTES.get(kind, kind)
    if attributes is None:
        return [], []
    struct = f"coh_{attributes}_attributes"
    cases = []
    for path, variable in fields(api, struct):
        cases += [(f"{path} {value}", f"attributes.{path} = {value};", "any" if value != "NAN" else "refused")
                  for value in values(variable, f"{struct}.{variable.name}")]
    lines = [f"static void call_kind_{kind}(int case_number, int must)", "{", f"    {struct} attributes = {{ 0 }};",
             "    switch (case_number) {"]
    for i, (_, code, _) in enumerate(cases):
        lines += [f"    case {i}:", f"        {code}", "        break;"]
    lines += ["    }", f"    judge_kind(&coh_kind_{kind}, &attributes, sizeof(attributes), must);", "}", ""]
    return lines, cases


def write_calls(api):
    writer = Writer(api)
    lines = ["/* Made by write_calls.py from the public headers. */", "#include \"tests/api/calls.h\"", "",
             "#pragma GCC diagnostic ignored \"-Wformat-security\" /* formats are texts of ours */", ""]
    table = []
    for function in api.functions:
        body, cases = writer.function(function)
        lines += body
        table.append((function.name, f"call_{function.name}", cases))
    for kind in api.objects:
        body, cases = kind_function(api, kind.removeprefix("coh_kind_"))
        lines += body
        if cases:
            table.append((kind, f"call_kind_{kind.removeprefix('coh_kind_')}", cases))
    unused = (MAY_BE_NULL | EXTENTS | MEASURES | KEEPS | PATHS | SMALL) - writer.used
    if unused:
        raise SystemExit(f"exceptions that name nothing: {', '.join(sorted(unused))}")
    for name, _, cases in table:
        lines.append(f"static const call_case cases_{name}[] = {{")
        lines += [f"    {{ \"{text}\", MUST_{judges.upper()} }}," for text, _, judges in cases]
        lines.append("};")
    lines.append("const call_entry call_entries[] = {")
    lines += [f"    {{ \"{name}\", {call}, cases_{name}, {len(cases)} }}," for name, call, cases in table]
    lines += ["};", f"const int call_entry_count = {len(table)};", ""]
    return "\n".join(lines)


def write_names(api):
    lines = ["// Made by write_calls.py from the public headers.", "#include <cohobate/cohobate.h>", "",
             "typedef void (*any_function)();", "", "extern \"C\" const any_function every_function[];",
             "const any_function every_function[] = {"]
    lines += [f"    reinterpret_cast<any_function>(&{function.name})," for function in api.functions]
    lines += ["};", "", "extern \"C\" const coh_op_kind *const every_kind[];",
              "const coh_op_kind *const every_kind[] = {"]
    lines += [f"    &{kind}," for kind in api.objects]
    lines += ["};", "", "int main()", "{", "    const coh_parameter parameters[] = { COH_PARAMETER_NEW };",
              "    return every_function[0] != nullptr && every_kind[0] != nullptr && parameters[0].index == -1",
              "               ? coh_version()[0] == '\\0'", "               : 1;", "}", ""]
    return "\n".join(lines)


def main():
    form, folder, out = sys.argv[1:]
    api = public_api.read(folder)
    with open(out, "w", encoding="utf-8") as file:
        file.write(write_calls(api) if form == "calls" else write_names(api))


main()
