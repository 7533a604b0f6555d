/* cohobate tune: times the matrix products of a model's shapes and writes the fastest choices as a
 * kernel table. Next: cohobate/kernels.h for the table. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/budget.h"
#include "cli/commands.h"
#include "cli/dtype.h"
#include "cli/job.h"
#include "cli/output.h"

typedef struct tally {
    FILE *json; /* NULL: rows of text, as they are measured */
    int shape_count, changed_count;
    double standard_s, chosen_s; /* seconds of all products of one micro-batch */
} tally;

static void add_row_json(FILE *json, const coh_kernel_timing *timing, int first)
{
    const char *comma = "";
    fprintf(json,
            "%s{\"dtype\": \"%s\", \"layout\": \"%s\", \"rows\": %" PRId64 ", \"columns\": %" PRId64
            ", \"depth\": %" PRId64 ", \"uses\": %d, \"standard\": \"%s\", \"product\": \"%s\""
            ", \"seconds\": {",
            first ? "" : ", ", cli_dtype_name(timing->dtype), timing->layout, timing->rows,
            timing->columns, timing->depth, timing->use_count,
            coh_kernel_product_name(timing->standard), coh_kernel_product_name(timing->chosen));
    for (int p = 0; p < COH_KERNEL_PRODUCTS; p++)
        if (timing->seconds[p] > 0) {
            fprintf(json, "%s\"%s\": %.9f", comma, coh_kernel_product_name(p), timing->seconds[p]);
            comma = ", ";
        }
    fprintf(json, "}}");
}

static void print_row(const coh_kernel_timing *timing)
{
    double flops = 2.0 * (double)timing->rows * (double)timing->columns * (double)timing->depth;
    printf("%-4s %s %6" PRId64 " x %6" PRId64 " x %6" PRId64 "  %3d times ",
           cli_dtype_name(timing->dtype), timing->layout, timing->rows, timing->columns,
           timing->depth, timing->use_count);
    for (int p = 0; p < COH_KERNEL_PRODUCTS; p++)
        if (timing->seconds[p] > 0)
            printf("  %s%s %.0f GFLOP/s", coh_kernel_product_name(p),
                   p == timing->chosen && p != timing->standard ? " (taken)" : "",
                   flops / timing->seconds[p] * 1e-9);
    printf("\n");
    cli_send();
}

static void hear(void *context, const coh_kernel_timing *timing)
{
    tally *sum = context;
    if (sum->json)
        add_row_json(sum->json, timing, sum->shape_count == 0);
    else
        print_row(timing);
    sum->shape_count++;
    sum->changed_count += timing->chosen != timing->standard;
    sum->standard_s += timing->use_count * timing->seconds[timing->standard];
    sum->chosen_s += timing->use_count * timing->seconds[timing->chosen];
}

/* Prints the object only after the table is written, so a failure prints none of it. */
static coh_status measure_json(const cli_options *options, coh_graph *graph)
{
    char *text = NULL;
    size_t bytes = 0;
    tally sum = { .json = open_memstream(&text, &bytes) };
    if (!sum.json)
        return cli_fail(COH_ERR_MEMORY, "out of memory for the result as JSON");
    fprintf(sum.json, "{\"threads\": %d, \"shapes\": [", (int)cli_budget_thread_count(options));
    coh_status status =
        coh_kernels_tune(graph, cli_budget_thread_count(options), options->output, hear, &sum);
    fprintf(sum.json, "], \"standard_seconds\": %.9f, \"seconds\": %.9f}\n", sum.standard_s,
            sum.chosen_s);
    int is_cut = ferror(sum.json);
    if ((fclose(sum.json) != 0 || is_cut) && status == COH_OK)
        status = cli_fail(COH_ERR_MEMORY, "out of memory for the result as JSON");
    if (status == COH_OK)
        fputs(text, stdout);
    free(text);
    return status;
}

static coh_status measure(const cli_options *options, const cli_job *job, coh_graph *graph)
{
    tally sum = { 0 };
    char before[32], after[32];
    const int threads = (int)cli_budget_thread_count(options);
    printf("%s, %s of %s at a time, %s; rows x columns x depth, forward nt, backward nn and tn\n",
           job->model.name, cli_count((uint64_t)job->recipe.micro_batch, "sequence").at,
           cli_count((uint64_t)job->recipe.sequence, "token").at,
           cli_count((uint64_t)threads, "thread").at);
    CLI_TRY(coh_kernels_tune(graph, threads, options->output, hear, &sum));
    printf("%s: %s, %d by another product than the standard one; a micro-batch's products"
           " take %s, by the standard ones %s\n",
           options->output, cli_count((uint64_t)sum.shape_count, "shape").at, sum.changed_count,
           cli_duration(sum.chosen_s, after), cli_duration(sum.standard_s, before));
    return COH_OK;
}

coh_status cli_tune(const cli_options *options)
{
    cli_job job;
    coh_graph *graph = NULL;
    if (!options->output)
        return cli_fail(COH_ERR_ARGUMENT, "-o FILE is missing: the kernel table to write");
    CLI_TRY(cli_output_check(options));
    CLI_TRY(cli_job_open_unplanned(options, &job));
    coh_status status =
        coh_model_train_graph(&job.model, job.recipe.micro_batch, job.recipe.sequence, &graph);
    if (status == COH_OK)
        status = options->json ? measure_json(options, graph) : measure(options, &job, graph);
    coh_graph_destroy(graph);
    cli_job_close(&job);
    return status;
}
