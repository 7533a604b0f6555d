/* Prints a profile's figures as text or JSON. The one idea: one table of figures serves both. Next:
 * cohobate/profile.h. */
#include "cli/inspect_profile.h"

#include <inttypes.h>
#include <stdio.h>

/* One figure with its label in text and its key in JSON. Rates are in 10^9 per second; omitted if
 * 0. */
typedef struct figure {
    const char *label, *key;
    double value;
} figure;

enum { FIGURES = 8, ROOMS = 3 };

static void list_rates(const coh_profile_summary *s, figure *rates)
{
    rates[0] = (figure){ "products in f32", "f32_flops_per_s", s->f32_flops_per_s };
    rates[1] = (figure){ "products in bf16", "bf16_flops_per_s", s->bf16_flops_per_s };
    rates[2] = (figure){ "memory", "memory_bytes_per_s", s->memory_bytes_per_s };
    rates[3] = (figure){ "host memory", "host_memory_bytes_per_s", s->host_memory_bytes_per_s };
    rates[4] = (figure){ "host to device", "h2d_bytes_per_s", s->h2d_bytes_per_s };
    rates[5] = (figure){ "device to host", "d2h_bytes_per_s", s->d2h_bytes_per_s };
    rates[6] = (figure){ "disk reads", "read_bytes_per_s", s->read_bytes_per_s };
    rates[7] = (figure){ "disk writes", "write_bytes_per_s", s->write_bytes_per_s };
}

static void list_rooms(const coh_profile_summary *s, figure *rooms)
{
    rooms[0] = (figure){ "device", "device_bytes", (double)s->device_bytes };
    rooms[1] = (figure){ "host", "host_bytes", (double)s->host_bytes };
    rooms[2] = (figure){ "disk", "disk_bytes", (double)s->disk_bytes };
}

static coh_status print_json(const coh_profile *profile, const coh_profile_summary *s)
{
    figure rates[FIGURES], rooms[ROOMS];
    cli_line line;
    list_rates(s, rates);
    list_rooms(s, rooms);
    cli_line_clear(&line);
    cli_line_add(&line, "{\"type\": \"profile\", \"name\": ");
    cli_line_add_json_string(&line, s->name);
    cli_line_add(&line, ", \"machine\": ");
    cli_line_add_json_string(&line, s->machine);
    cli_line_add(&line, ", \"date\": ");
    cli_line_add_json_string(&line, s->date);
    cli_line_add(&line,
                 ", \"source\": \"%s\", \"device\": \"%s\", \"what_if\": %s, \"threads\": %" PRId32
                 ", \"fingerprint\": \"%016" PRIx64 "\", \"hash\": \"%016" PRIx64 "\"",
                 s->source, s->is_gpu ? "gpu" : "host", s->is_what_if ? "true" : "false",
                 s->threads, s->fingerprint, s->hash);
    for (int i = 0; i < FIGURES; i++)
        cli_line_add(&line, ", \"%s\": %.17g", rates[i].key, rates[i].value);
    for (int i = 0; i < ROOMS; i++)
        cli_line_add(&line, ", \"%s\": %.0f", rooms[i].key, rooms[i].value);
    printf("%s, \"operators\": %" PRIu32 ", \"origins\": [", line.text, s->operator_count);
    for (uint32_t i = 0; i < s->origin_count; i++) {
        coh_profile_origin_text origin;
        CLI_TRY(coh_profile_origin_at(profile, i, &origin));
        cli_line_clear(&line);
        cli_line_add_json_string(&line, origin.of);
        cli_line_add(&line, ", \"assumed\": %s, \"text\": ", origin.is_assumed ? "true" : "false");
        cli_line_add_json_string(&line, origin.text);
        printf("%s{\"of\": %s}", i ? ", " : "", line.text);
    }
    printf("]}\n");
    return COH_OK;
}

static coh_status print_text(const coh_profile *profile, const coh_profile_summary *s)
{
    figure rates[FIGURES], rooms[ROOMS];
    char text[32];
    list_rates(s, rates);
    list_rooms(s, rooms);
    printf("profile %s\n  %s%s%s%s, of a %s with %" PRId32 " thread%s%s\n", s->name, s->source,
           s->date[0] ? " of " : "", s->date, s->is_what_if ? ", a what-if" : "",
           s->is_gpu ? "GPU" : "host device", s->threads, s->threads == 1 ? "" : "s",
           s->fingerprint ? "" : ", of no one machine");
    printf("  %s\n", s->machine);
    for (int i = 0; i < FIGURES; i++)
        if (rates[i].value > 0)
            printf("  %-17s %12.1f %s\n", rates[i].label, rates[i].value * 1e-9,
                   i < 2 ? "GFLOP/s" : "GB/s");
    for (int i = 0; i < ROOMS; i++)
        if (rooms[i].value > 0)
            printf("  %-6s %s\n", rooms[i].label,
                   coh_size_format((uint64_t)rooms[i].value, text, sizeof(text)));
    if (s->operator_count)
        printf("  %" PRIu32 " operators measured\n", s->operator_count);
    for (uint32_t i = 0; i < s->origin_count; i++) {
        coh_profile_origin_text origin;
        CLI_TRY(coh_profile_origin_at(profile, i, &origin));
        printf("  %s: %s%s\n", origin.of, origin.is_assumed ? "ASSUMED: " : "", origin.text);
    }
    printf("  hash %016" PRIx64 " (the file is JSON for people, too)\n", s->hash);
    return COH_OK;
}

coh_status cli_inspect_profile(const cli_options *options, const coh_profile *profile)
{
    coh_profile_summary summary = { .struct_bytes = sizeof(summary) };
    CLI_TRY(coh_profile_summarize(profile, &summary));
    if (options->json)
        return print_json(profile, &summary);
    if (options->hash)
        printf("%016" PRIx64 "\n", summary.hash);
    return options->hash ? COH_OK : print_text(profile, &summary);
}
