/* Prints a plan file as text or JSON. The one idea: only facts stored in the file are printed;
 * nothing is rebuilt. Next: replay.c reads the note. */
#include "cli/inspect_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/dtype.h"
#include "cli/replay.h"

typedef struct inspection {
    coh_plan_file file;
    cli_plan_note note;
    coh_model model;
    int has_note; /* without a note, the plan's model is unknown */
} inspection;

static double tokens_per_s(const inspection *of)
{
    const double step_s = (double)of->file.step_ns * 1e-9;
    return step_s > 0 ? (double)(of->note.batch * of->note.sequence) / step_s : 0;
}

/* ---- text ---- */

static void print_what(const inspection *of)
{
    const coh_model_size size = coh_model_size_get(&of->model);
    const cli_plan_note *note = &of->note;
    if (!of->has_note) {
        printf("  of       a model that it does not name\n");
        return;
    }
    printf("  of       %s in %s%s%s, %.2f M parameters trained (%" PRId64 " layers, %" PRId64
           " heads, %" PRId64 " wide, vocabulary %" PRId64 ")\n",
           of->model.name, cli_dtype_name(size.dtype),
           of->file.f32_gradients ? " (gradients f32)" : "", of->file.atomics ? " (atomics)" : "",
           (double)coh_model_trained_count(&of->model) * 1e-6, size.layers, size.heads,
           size.channels, size.vocabulary);
    printf("  batch    %" PRId64 " x %" PRId64 " tokens, %" PRId64 " at once, by %s; %" PRId64
           " step%s, %s\n",
           note->batch, note->sequence, note->micro_batch,
           coh_sweep_order_name(of->file.sweep_order), note->steps, note->steps == 1 ? "" : "s",
           note->clip > 0 ? "clipped" : "not clipped");
}

/* Prints the budget for which it was made, and its use of that budget. */
static void print_room(const inspection *of)
{
    const coh_plan_file *file = &of->file;
    const uint64_t peaks[] = { file->peak_device_bytes, file->peak_host_bytes,
                               file->peak_disk_bytes };
    char bytes[32];
    if (of->has_note) {
        printf("  budget   device %s",
               coh_size_format(of->note.device_bytes, bytes, sizeof(bytes)));
        if (file->host_memory_bytes > 0)
            printf(", %s %s", file->is_gpu ? "host" : "emulated host",
                   coh_size_format(file->host_memory_bytes, bytes, sizeof(bytes)));
        if (file->disk_bytes > 0)
            printf(", a disk");
        if (of->note.disk_write_limit > 0)
            printf(", which may be written %s a day",
                   coh_size_format(of->note.disk_write_limit, bytes, sizeof(bytes)));
        printf("\n");
    }
    printf("  takes    ");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (peaks[tier] > 0)
            printf("%s%s %s", tier ? ", " : "",
                   tier == COH_TIER_HOST && !file->is_gpu ? "emulated host" : coh_tier_name(tier),
                   coh_size_format(peaks[tier], bytes, sizeof(bytes)));
    printf(" at most, to the byte\n");
}

static void print_decisions(const coh_plan_file *file)
{
    char chunk[32];
    printf("  decided  chunks of %s, %d block%s recomputed, %s, %d pin%s\n",
           coh_size_format(file->chunk_bytes, chunk, sizeof(chunk)), file->recomputes,
           file->recomputes == 1 ? "" : "s",
           file->is_in_memory       ? "nothing leaves the device"
           : file->host_updates > 0 ? "updates on the host lane too"
                                    : "updates on the device",
           file->pin_count, file->pin_count == 1 ? "" : "s");
    printf("  stand    parameters of %d operators: %s\n", file->operator_count,
           file->parameters[0] ? file->parameters : "none");
    if (file->states[0])
        printf("           states: %s\n", file->states);
    printf("           activations: %s\n", file->activations);
}

static void print_text(const char *path, const inspection *of)
{
    const coh_plan_file *file = &of->file;
    char step[32];
    printf("plan %s, for a %s\n", path, file->is_gpu ? "GPU" : "host device");
    print_what(of);
    print_room(of);
    printf("  prices   profile %s (hash %016" PRIx64 ")\n", file->profile_name, file->profile_hash);
    printf("  speed    %s a step predicted", cli_duration((double)file->step_ns * 1e-9, step));
    if (of->has_note)
        printf(", %.4g tokens/s", tokens_per_s(of));
    printf("\n");
    print_decisions(file);
    printf("  numbers  %016" PRIx64 "\n  program  %016" PRIx64 ", %" PRIu32
           " instructions in the step\n  (cohobate simulate rebuilds it; the file is JSON for "
           "people, too)\n",
           file->numeric_fingerprint, file->program_hash, file->instruction_count);
}

/* ---- JSON ---- */

static void add_note_json(const inspection *of, cli_line *line)
{
    const cli_plan_note *note = &of->note;
    cli_line_add(line, ", \"model\": ");
    cli_line_add_json_string(line, of->model.name);
    cli_line_add(line,
                 ", \"dtype\": \"%s\", \"trained_parameters\": %" PRIu64 ", \"batch\": %" PRId64
                 ", \"micro_batch\": %" PRId64 ", \"sequence\": %" PRId64 ", \"steps\": %" PRId64
                 ", \"budget_bytes\": %" PRIu64 ", \"tokens_per_second\": %.9g",
                 cli_dtype_name(coh_model_size_get(&of->model).dtype),
                 coh_model_trained_count(&of->model), note->batch, note->micro_batch,
                 note->sequence, note->steps, note->device_bytes, tokens_per_s(of));
}

static void print_json(const inspection *of)
{
    const coh_plan_file *file = &of->file;
    cli_line line;
    cli_line_clear(&line);
    cli_line_add(&line, "{\"type\": \"plan\", \"device\": \"%s\"", file->is_gpu ? "gpu" : "host");
    if (of->has_note)
        add_note_json(of, &line);
    cli_line_add(&line,
                 ", \"peak_bytes\": {\"device\": %" PRIu64 ", \"host\": %" PRIu64
                 ", \"disk\": %" PRIu64 "}, \"profile\": ",
                 file->peak_device_bytes, file->peak_host_bytes, file->peak_disk_bytes);
    cli_line_add_json_string(&line, file->profile_name);
    cli_line_add(&line,
                 ", \"profile_hash\": \"%016" PRIx64 "\", \"step_seconds\": %.9f"
                 ", \"chunk_bytes\": %" PRIu64 ", \"sweep_order\": \"%s\", \"in_memory\": %s"
                 ", \"recomputes\": %d, \"host_updates\": %d, \"pins\": %d, \"operators\": %d"
                 ", \"instruction_count\": %" PRIu32 ", \"numeric_fingerprint\": \"%016" PRIx64
                 "\", \"program_hash\": \"%016" PRIx64 "\"}",
                 file->profile_hash, (double)file->step_ns * 1e-9, file->chunk_bytes,
                 coh_sweep_order_name(file->sweep_order), file->is_in_memory ? "true" : "false",
                 file->recomputes, file->host_updates, file->pin_count, file->operator_count,
                 file->instruction_count, file->numeric_fingerprint, file->program_hash);
    cli_print("%s", line.text);
}

/* A plan written by another program has no note of ours, but is valid. */
static coh_status look(const cli_options *options, inspection *of)
{
    of->file = (coh_plan_file){ .struct_bytes = sizeof(of->file) };
    CLI_TRY(coh_plan_file_read(options->operand, &of->file));
    if (options->hash && !options->json) {
        printf("%016" PRIx64 "\n", of->file.program_hash);
        return COH_OK;
    }
    const coh_status status = cli_replay_read_note(options, &of->file, &of->note, &of->model);
    if (status != COH_OK && status != COH_ERR_CORRUPT)
        return status;
    of->has_note = status == COH_OK;
    if (options->json)
        print_json(of);
    else
        print_text(options->operand, of);
    return COH_OK;
}

coh_status cli_inspect_plan(const cli_options *options)
{
    inspection *of = calloc(1, sizeof(*of));
    if (!of)
        return cli_fail(COH_ERR_MEMORY, "no memory for a plan's note");
    const coh_status status = look(options, of);
    free(of);
    return status;
}
