/* Makes a job's plan and chooses its micro-batch and sweep order. The one idea: choices that change
 * results are made by uncalibrated predictions, so they do not depend on earlier runs. Next:
 * budget.c sets the options, planner/ makes plans. */
#include "cli/job_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/budget.h"
#include "cli/writes.h"

void cli_job_drop_plan(cli_job *job)
{
    coh_plan_destroy(job->plan);
    coh_graph_destroy(job->graph);
    job->plan = NULL;
    job->graph = NULL;
}

/* Does the profile have figures of a disk? The built-in one has. */
static int knows_drive(const cli_job *job, coh_profile_summary *facts)
{
    *facts = (coh_profile_summary){ .struct_bytes = sizeof(*facts) };
    if (!job->profile)
        return 1;
    return coh_profile_summarize(job->profile, facts) == COH_OK && facts->read_bytes_per_s > 0 &&
           facts->write_bytes_per_s > 0;
}

/* Plans with the profile's drive if a GPU's host memory is too small. Returns 1 if there is a drive
 * that is not in use yet. */
static int take_profile_disk(cli_job *job)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    const int is_alone = cli_given(job->options, CLI_FLAG_HOST_MEMORY) &&
                         job->options->host_memory_bytes == 0; /* only the GPU is meant */
    if (!job->on_gpu || is_alone || cli_budget_on_gpu(job->options) ||
        job->plan_options.disk_bytes > 0 || job->options->plan_file || !knows_drive(job, &facts))
        return 0;
    job->plan_options.disk_bytes = facts.disk_bytes;
    return facts.disk_bytes > 0;
}

/* The recipe's order; any, if the plan may choose it. */
static coh_sweep_order order_of(const cli_job *job)
{
    int is_given = cli_given(job->options, CLI_FLAG_SWEEP_ORDER);
    if (!job->is_order_chosen &&
        (is_given ? job->options->sweep_order == COH_SWEEP_AUTO : job->options->plan_file != NULL))
        return COH_SWEEP_AUTO;
    return job->recipe.by_layers ? COH_SWEEP_LAYER : COH_SWEEP_MICROBATCH;
}

/* Sets the options of a plan with the recipe's micro-batch. */
static void set_plan_options(cli_job *job)
{
    const cli_recipe *recipe = &job->recipe;
    cli_budget_plan_options(job->options, job->profile, COH_PLAN_TRAIN, &job->plan_options);
    job->plan_options.microbatch_count = (int32_t)(recipe->batch / recipe->micro_batch);
    job->plan_options.sweep_order = order_of(job);
    job->plan_options.f32_gradients = (int32_t)recipe->f32_gradients;
    snprintf(job->plan_options.optimizer, sizeof(job->plan_options.optimizer), "%s",
             recipe->optimizer);
    job->plan_options.optimizer_choices = recipe->optimizer_for.at;
    job->plan_options.optimizer_choice_count = (int32_t)recipe->optimizer_for.count;
    job->plan_options.uncalibrated = job->uncalibrated;
    if (job->asks_what_fits)
        job->plan_options.search = COH_SEARCH_PROBE;
    job->plan_options.deferred_update = recipe->clip > 0;
    job->plan_options.wear_bytes = job->wear_bytes;
    job->plan_options.pins = job->pins;
    job->plan_options.pin_count = job->pin_count;
    job->plan_options.earlier = job->earlier;
    job->plan_options.earlier_count = job->earlier_count;
}

/* `any_disk`: plans as if --disk were given without a limit. */
static coh_status make_plan(cli_job *job, int any_disk)
{
    const cli_recipe *recipe = &job->recipe;
    cli_job_drop_plan(job);
    CLI_TRY(coh_model_train_graph(&job->model, recipe->micro_batch, recipe->sequence, &job->graph));
    set_plan_options(job);
    if (any_disk)
        job->plan_options.disk_bytes = UINT64_MAX;
    coh_status status = cli_budget_plan(job->options, job->graph, &job->plan_options, &job->plan);
    if (status == COH_ERR_FULL && take_profile_disk(job))
        status = cli_budget_plan(job->options, job->graph, &job->plan_options, &job->plan);
    CLI_TRY(status);
    job->summary = (coh_plan_summary){ .struct_bytes = sizeof(job->summary) };
    CLI_TRY(coh_plan_summarize(job->plan, &job->summary));
    job->plan_options.sweep_order = job->summary.sweep_order;
    cli_recipe_set_order(&job->recipe, job->summary.sweep_order);
    return COH_OK;
}

/* The next divisor of the batch above or below; 0 if there is none. */
static int64_t next_divisor(int64_t batch, int64_t from, int direction)
{
    for (int64_t next = from + direction; next >= 1 && next <= batch; next += direction)
        if (batch % next == 0)
            return next;
    return 0;
}

/* Change the micro-batch only if the step takes at most this part of the time. */
#define SHORTER 0.97

/* A lower bound of the step time with that micro-batch, whatever drive there is. */
static coh_status least_step(cli_job *job, int64_t micro_batch, uint64_t *out_ns)
{
    const coh_plan_options kept = job->plan_options;
    const int64_t kept_micro_batch = job->recipe.micro_batch;
    coh_graph *graph = NULL;
    CLI_TRY(coh_model_train_graph(&job->model, micro_batch, job->recipe.sequence, &graph));
    job->recipe.micro_batch = micro_batch;
    set_plan_options(job);
    (void)take_profile_disk(job); /* more room is never slower */
    const coh_status status = coh_plan_least_ns(graph, &job->plan_options, out_ns);
    job->recipe.micro_batch = kept_micro_batch;
    job->plan_options = kept;
    coh_graph_destroy(graph);
    return status;
}

/* Tries the divisors of the batch above the current one, or, if the first of them is no faster,
 * those below, as long as the predicted step gets shorter. Results do not change for a gain below
 * the prediction error. */
static coh_status plan_faster(cli_job *job)
{
    cli_recipe *recipe = &job->recipe;
    const int64_t wanted = recipe->micro_batch;
    const uint64_t wanted_ns = job->summary.step_ns;
    int64_t best = wanted;
    uint64_t best_ns = wanted_ns;
    for (int direction = 1; direction >= -1 && best == wanted; direction -= 2) {
        int64_t next;
        while ((next = next_divisor(recipe->batch, best, direction)) > 0) {
            uint64_t least_ns;
            CLI_TRY(least_step(job, next, &least_ns));
            if (least_ns >= best_ns)
                break; /* too little gain for a plan */
            recipe->micro_batch = next;
            coh_status status = make_plan(job, 0);
            if (status == COH_ERR_FULL)
                break;
            CLI_TRY(status);
            if (job->summary.step_ns >= best_ns)
                break;
            best = next;
            best_ns = job->summary.step_ns;
        }
    }
    if ((double)best_ns > SHORTER * (double)wanted_ns)
        best = wanted;
    if (recipe->micro_batch == best)
        return COH_OK;
    recipe->micro_batch = best;
    return make_plan(job, 0);
}

/* The divisor of the batch about half-way, in logarithms, between two others; 0 if there is none
 * between them. */
static int64_t middle_divisor(int64_t batch, int64_t low, int64_t high)
{
    const int64_t next = next_divisor(batch, high, -1);
    if (next <= low)
        return 0;
    const double middle = sqrt((double)(low > 0 ? low : 1) * (double)high);
    const int64_t divisor = next_divisor(batch, (int64_t)middle + 1, -1);
    return divisor > low ? divisor : next;
}

/* Finds by halving the largest divisor of the batch below the current one for which a quick search
 * finds a plan. A search without success takes seconds, so few are made. 0: there is none, and the
 * error message is that of the smallest. */
static coh_status find_smaller(cli_job *job, int any_disk, int64_t *out_micro_batch)
{
    cli_recipe *recipe = &job->recipe;
    int64_t low = 0, high = recipe->micro_batch, middle;
    coh_status status = COH_ERR_FULL;
    *out_micro_batch = 0;
    while ((middle = middle_divisor(recipe->batch, low, high)) > 0) {
        recipe->micro_batch = middle;
        status = make_plan(job, any_disk);
        if (status == COH_ERR_FULL)
            high = middle;
        else if (status == COH_OK)
            low = *out_micro_batch = middle;
        else if (status == COH_ERR_ARGUMENT) /* a step has too many micro-batches */
            low = middle;
        else
            return status;
    }
    return *out_micro_batch > 0 ? COH_OK : status;
}

/* Uses the largest divisor of the batch that fits: COH_OK. COH_ERR_FULL: none fits, and the error
 * message is that of the smallest. */
static coh_status plan_smaller(cli_job *job, int any_disk)
{
    const int asks = job->asks_what_fits;
    int64_t fits;
    job->asks_what_fits = 1;
    const coh_status status = find_smaller(job, any_disk, &fits);
    job->asks_what_fits = asks;
    CLI_TRY(status);
    job->recipe.micro_batch = fits;
    return make_plan(job, any_disk);
}

/* Adds a change before the others. */
static void put_first(coh_refusal *refusal, coh_change change)
{
    if (refusal->change_count < COH_REFUSAL_CHANGES)
        refusal->change_count++;
    for (int32_t i = refusal->change_count - 1; i > 0; i--)
        refusal->changes[i] = refusal->changes[i - 1];
    refusal->changes[0] = change;
}

static void add_change(coh_refusal *refusal, coh_change_kind kind, int64_t microbatch)
{
    if (refusal->change_count < COH_REFUSAL_CHANGES)
        refusal->changes[refusal->change_count++] =
            (coh_change){ .kind = kind, .microbatch = microbatch };
}

static void drop_change(coh_refusal *refusal, coh_change_kind kind)
{
    int32_t count = 0;
    for (int32_t i = 0; i < refusal->change_count; i++)
        if (refusal->changes[i].kind != kind)
            refusal->changes[count++] = refusal->changes[i];
    refusal->change_count = count;
}

/* Finds out whether a disk helps, and names the smallest one that does. */
static coh_status refuse_without_disk(cli_job *job, int64_t wanted, int may_lower,
                                      coh_refusal *refusal)
{
    job->recipe.micro_batch = wanted;
    coh_status status = make_plan(job, 1);
    if (status == COH_ERR_FULL && may_lower)
        status = plan_smaller(job, 1);
    if (status == COH_ERR_FULL) {
        if (coh_last_refusal(refusal)) {
            refusal->is_with_disk = 1;
            status = coh_refuse(refusal);
        }
        return status;
    }
    CLI_TRY(status);
    drop_change(refusal, COH_CHANGE_ADD_DISK);
    put_first(refusal, (coh_change){ .kind = COH_CHANGE_ADD_DISK,
                                     .bytes = job->summary.peak_bytes[2],
                                     .microbatch = job->recipe.micro_batch });
    return coh_refuse(refusal);
}

/* No permitted micro-batch fits: finds the least costly change that would help, and names it. */
static coh_status refuse(cli_job *job, int64_t wanted, int may_lower)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    const cli_options *options = job->options;
    if (!coh_last_refusal(&refusal))
        return COH_ERR_FULL;
    refusal.microbatch = job->recipe.micro_batch;
    refusal.largest_microbatch = wanted;
    job->asks_what_fits = 1;
    if (!may_lower && wanted > 1) {
        const coh_status status = plan_smaller(job, 0);
        if (status == COH_OK) {
            drop_change(&refusal, COH_CHANGE_LOWER_MICROBATCH);
            add_change(&refusal, COH_CHANGE_LOWER_MICROBATCH, job->recipe.micro_batch);
            return coh_refuse(&refusal);
        }
        if (status != COH_ERR_FULL)
            return status;
    }
    const int knows = knows_drive(job, &facts);
    if (job->profile)
        snprintf(refusal.profile, sizeof(refusal.profile), "%s",
                 options->profile ? options->profile : facts.name);
    if (job->on_gpu)
        add_change(&refusal, COH_CHANGE_PROFILE, 0);
    else if (!options->disk_folder[0] && !options->emulate_host_bytes && knows)
        return refuse_without_disk(job, wanted, may_lower, &refusal);
    else if (!options->disk_folder[0] && !options->emulate_host_bytes)
        add_change(&refusal, COH_CHANGE_MEASURE_DRIVE, 0);
    return coh_refuse(&refusal);
}

/* A plan made for a smaller micro-batch than the default, since nothing larger fitted its budget,
 * is used with that micro-batch. */
static coh_status use_planned_micro_batch(cli_job *job)
{
    cli_recipe *recipe = &job->recipe;
    coh_plan_file file = { .struct_bytes = sizeof(file) };
    CLI_TRY(coh_plan_file_read(job->options->plan_file, &file));
    const int64_t count = file.microbatch_count;
    if (count < 1 || recipe->batch % count != 0 || recipe->batch / count == recipe->micro_batch)
        return COH_OK; /* a plan for another batch is refused when it is read */
    cli_note("micro-batch %" PRId64 " -> %" PRId64 ": that of the plan; other rounding",
             recipe->micro_batch, recipe->batch / count);
    recipe->micro_batch = recipe->batch / count;
    return COH_OK;
}

/* The micro-batch is part of the numeric plan, so neither a budget nor a price changes it, unless
 * --micro-batch auto permits that. */
static coh_status choose_plan(cli_job *job)
{
    int64_t wanted = job->recipe.micro_batch;
    const int may_change = cli_micro_batch_is_auto(job->options);
    cli_budget_plan_options(job->options, job->profile, COH_PLAN_TRAIN, &job->plan_options);
    CLI_TRY(coh_plan_check_budgets(&job->plan_options)); /* no smaller micro-batch helps */
    if (job->options->plan_file && !job->resumed && job->options->micro_batch == 0)
        CLI_TRY(use_planned_micro_batch(job));
    coh_status status = make_plan(job, 0);
    if (job->options->plan_file)
        return status;
    const int fits = status == COH_OK;
    const uint64_t wanted_ns = fits ? job->summary.step_ns : 0;
    if (fits && may_change)
        status = plan_faster(job);
    else if (status == COH_ERR_FULL && may_change && wanted > 1)
        status = plan_smaller(job, 0);
    if (status == COH_ERR_FULL)
        return refuse(job, wanted, may_change);
    CLI_TRY(status);
    if (fits && job->recipe.micro_batch != wanted)
        cli_note("micro-batch %" PRId64 " -> %" PRId64
                 ": other rounding; the step is predicted to take %.2f of its time",
                 wanted, job->recipe.micro_batch, (double)job->summary.step_ns / (double)wanted_ns);
    else if (job->recipe.micro_batch != wanted)
        cli_note("micro-batch %" PRId64 " -> %" PRId64
                 ": other rounding; nothing larger fits this budget",
                 wanted, job->recipe.micro_batch);
    return COH_OK;
}

/* ---- limit of disk writes ---- */

/* No plan writes as little as the limit. Finds the lowest limit with a plan, per day at the step
 * time `step_ns` that bound_writes would use, and names it if it is lower than `before`. */
static coh_status refuse_writes(cli_job *job, double before, double step_ns)
{
    CLI_TRY(coh_plan_least_written(job->graph, &job->plan_options, &job->wear_bytes));
    const double least = (double)job->wear_bytes * CLI_DAY_NS / step_ns;
    if (least == 0 || least >= before)
        return cli_writes_refuse(job->options, before, before);
    const coh_status status = make_plan(job, 0);
    if (status != COH_OK && status != COH_ERR_FULL)
        return status;
    return cli_writes_refuse(job->options, before, status == COH_OK ? least : 0);
}

/* Enforces --disk-write-limit, which is per day, while the planner's limit is per step. The plan
 * determines the steps per day, and a plan that writes less may be faster, so this repeats. */
static coh_status bound_writes(cli_job *job)
{
    enum { TRIES = 4 };
    const cli_options *options = job->options;
    const double limit = (double)options->disk_write_limit;
    char allowed[32];
    if (!cli_given(options, CLI_FLAG_DISK_WRITE_LIMIT))
        return COH_OK;
    for (int i = 0; i < TRIES && cli_writes_per_day(job) > limit; i++) {
        const double before = cli_writes_per_day(job), step_ns = (double)job->summary.step_ns;
        job->wear_bytes = (uint64_t)(limit * step_ns / CLI_DAY_NS);
        if (options->plan_file)
            return cli_writes_refuse(options, before, 0);
        coh_status status = job->wear_bytes > 0 ? make_plan(job, 0) : COH_ERR_FULL;
        if (status == COH_ERR_FULL)
            return refuse_writes(job, before, step_ns);
        CLI_TRY(status);
    }
    if (cli_writes_per_day(job) <= limit)
        return COH_OK;
    return cli_fail(COH_ERR_FULL,
                    "no plan was found that writes at most %s to the drive a day"
                    " (--disk-write-limit): raise it, or give more --device-memory",
                    coh_size_format(options->disk_write_limit, allowed, sizeof(allowed)));
}

/* Micro-batch and sweep order, which change results, are chosen without calibration; the final plan
 * is then made with it. */
coh_status cli_job_plan(cli_job *job)
{
    const cli_options *options = job->options;
    const int by_time = cli_micro_batch_is_auto(options) || order_of(job) == COH_SWEEP_AUTO;
    job->uncalibrated = job->calibration.runs > 0 && by_time && !options->plan_file;
    CLI_TRY(choose_plan(job));
    CLI_TRY(bound_writes(job));
    if (!job->uncalibrated)
        return COH_OK;
    job->uncalibrated = 0;
    job->is_order_chosen = 1;
    job->wear_bytes = 0;
    CLI_TRY(make_plan(job, 0));
    return bound_writes(job);
}
