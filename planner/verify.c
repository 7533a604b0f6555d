/* Runs all checks in order and formats the message of a broken rule. The idea: tables are checked
 * first, so that every later check can follow indices safely. The list of files is in
 * verify_state.h; the rules are in verify.h. */
#include "planner/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "planner/verify_state.h"

static const char *rule_name(coh_rule rule)
{
    static const char *const names[COH_RULE_COUNT] = {
        [COH_RULE_FORM] = "FORM",
        [COH_RULE_DEADLOCK] = "DEADLOCK",
        [COH_RULE_READ] = "READ",
        [COH_RULE_OVERWRITE] = "OVERWRITE",
        [COH_RULE_WRITE_ORDER] = "WRITE_ORDER",
        [COH_RULE_OVERLAP] = "OVERLAP",
        [COH_RULE_CAPACITY] = "CAPACITY",
        [COH_RULE_ALIGNMENT] = "ALIGNMENT",
        [COH_RULE_LOST_DATA] = "LOST_DATA",
        [COH_RULE_EXACTLY_ONCE] = "EXACTLY_ONCE",
        [COH_RULE_RECOMPUTE] = "RECOMPUTE",
        [COH_RULE_CLOSURE] = "CLOSURE",
        [COH_RULE_COMM] = "COMM",
        [COH_RULE_WEAR] = "WEAR",
        [COH_RULE_CONSISTENT_SAVE] = "CONSISTENT_SAVE",
        [COH_RULE_ROLLBACK] = "ROLLBACK",
    };
    return names[rule];
}

/* Writes the text of a chunk: "work of group 2, chunk 5 (bytes 65536 + 4096)". */
static void describe_chunk(const coh_verifier *v, uint32_t chunk, char *text, size_t text_bytes)
{
    const coh_chunk *facts = &v->layout->chunks[chunk];
    const coh_object *object = coh_chunk_object(v, chunk);
    const char *owner =
        coh_stream_is_of_group(object->stream) ? "group"
        : object->stream == COH_STREAM_SAVED || object->stream == COH_STREAM_CACHE ||
                object->stream == COH_STREAM_SCRATCH || object->stream == COH_STREAM_KEPT
            ? "operator"
            : "tensor";
    snprintf(text, text_bytes,
             " on %s of %s %" PRId32 ", chunk %" PRIu32 " (bytes %" PRIu64 " + %" PRIu64 ")",
             coh_stream_name((coh_stream)object->stream), owner, object->owner, chunk,
             facts->object_offset, facts->bytes);
}

coh_status coh_verify_breach(coh_verifier *v, coh_rule rule, uint32_t instruction, uint32_t chunk,
                             const char *format, ...)
{
    if (coh_verify_is_off(v, rule))
        return COH_OK;
    v->result = (coh_verify_result){ .rule = rule, .instruction = instruction };
    char sentence[512], place[128] = "", object[160] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    if (instruction != COH_NO_INSTRUCTION && instruction < v->program->instruction_count)
        snprintf(place, sizeof(place), " instruction %" PRIu32 " %s (run %" PRIu32 ")", instruction,
                 coh_opcode_name((coh_opcode)v->program->instructions[instruction].opcode), v->run);
    if (chunk < v->layout->chunk_count)
        describe_chunk(v, chunk, object, sizeof(object));
    return coh_fail(COH_ERR_CORRUPT, "the program breaks rule %d (%s): %s%s%s: %s; it is not run",
                    (int)rule, rule_name(rule), coh_program_kind_name(v->program->kind), place,
                    object, sentence);
}

static void release(coh_verifier *v)
{
    coh_free(v->ordinals);
    coh_free(v->lane_instructions);
    coh_free(v->clocks);
    coh_free(v->chunk_stamps);
    coh_free(v->calls);
}

static coh_status allocate(coh_verifier *v)
{
    size_t instruction_count = v->program->instruction_count;
    COH_TRY(COH_ALLOC(instruction_count, &v->ordinals));
    COH_TRY(COH_ALLOC(instruction_count, &v->lane_instructions));
    const size_t runs = v->run_count < COH_CLOCK_RUNS ? v->run_count : COH_CLOCK_RUNS;
    COH_TRY(COH_ALLOC(runs * instruction_count * COH_LANE_COUNT, &v->clocks));
    COH_TRY(COH_ALLOC(instruction_count, &v->calls));
    return COH_ALLOC(v->layout->chunk_count, &v->chunk_stamps);
}

static coh_status check_all(coh_verifier *v)
{
    COH_TRY(coh_verify_tables(v));
    COH_TRY(allocate(v));
    COH_TRY(coh_verify_index(v));
    COH_TRY(coh_verify_form(v));
    COH_TRY(coh_verify_places(v));
    COH_TRY(coh_verify_issue(v));
    COH_TRY(coh_verify_bytes(v));
    COH_TRY(coh_verify_calls(v));
    COH_TRY(coh_verify_once(v));
    COH_TRY(coh_verify_shares(v));
    COH_TRY(coh_verify_adds(v));
    COH_TRY(coh_verify_folds(v));
    COH_TRY(coh_verify_sums(v));
    COH_TRY(coh_verify_rollback(v));
    return coh_verify_save(v);
}

coh_status coh_verify(const coh_layout *layout, const coh_program *program,
                      const coh_verify_options *options, coh_verify_result *out_result)
{
    coh_verifier v = { .layout = layout,
                       .program = program,
                       .options = options,
                       .result = { .instruction = COH_NO_INSTRUCTION },
                       .run_count = program->kind == COH_PROGRAM_BODY ? 3 : 1 };
    coh_status status = check_all(&v);
    release(&v);
    if (out_result != NULL)
        *out_result = v.result;
    return status;
}
