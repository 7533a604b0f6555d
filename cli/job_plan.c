/* Makes a job's plan from its recipe and budget. The one idea: no flag is read here; the library
 * makes the choices that the budget permits (cohobate/plan_batch.h). Next: job.c, the caller;
 * budget.c, where flags become the budget. */
#include "cli/job_plan.h"

#include <inttypes.h>
#include <stdio.h>

/* The recipe's order; any, if the plan may choose it. */
static coh_sweep_order order_of(const cli_job *job)
{
    if (job->budget.may_choose_order)
        return COH_SWEEP_AUTO;
    return job->recipe.by_layers ? COH_SWEEP_LAYER : COH_SWEEP_MICROBATCH;
}

/* Joins budget and recipe. */
static void set_plan_options(cli_job *job)
{
    const cli_recipe *recipe = &job->recipe;
    coh_plan_options *o = &job->plan_options;
    *o = job->budget.options;
    o->microbatch_count = (int32_t)(recipe->batch / recipe->micro_batch);
    o->sweep_order = order_of(job);
    o->f32_gradients = (int32_t)recipe->f32_gradients;
    o->deferred_update = recipe->clip > 0;
    snprintf(o->optimizer, sizeof(o->optimizer), "%s", recipe->optimizer);
    o->optimizer_choices = recipe->optimizer_for.at;
    o->optimizer_choice_count = (int32_t)recipe->optimizer_for.count;
    o->earlier = job->earlier;
    o->earlier_count = job->earlier_count;
}

static coh_status make_graph(void *context, int64_t microbatch, coh_graph **out_graph)
{
    const cli_job *job = context;
    return coh_model_train_graph(&job->model, microbatch, job->recipe.sequence, out_graph);
}

/* ---- a plan file ---- */

/* A plan made for a smaller micro-batch than the default, since nothing larger fitted its budget,
 * is used with that micro-batch. */
static coh_status use_planned_micro_batch(cli_job *job)
{
    cli_recipe *recipe = &job->recipe;
    coh_plan_file file = { .struct_bytes = sizeof(file) };
    CLI_TRY(coh_plan_file_read(job->budget.plan_file, &file));
    const int64_t count = file.microbatch_count;
    if (count < 1 || recipe->batch % count != 0 || recipe->batch / count == recipe->micro_batch)
        return COH_OK; /* a plan for another batch is refused when it is read */
    cli_note("micro-batch %" PRId64 " -> %" PRId64 ": that of the plan; other rounding",
             recipe->micro_batch, recipe->batch / count);
    recipe->micro_batch = recipe->batch / count;
    return COH_OK;
}

static coh_status replay(cli_job *job)
{
    CLI_TRY(coh_plan_check_budgets(&job->budget.options));
    if (job->budget.takes_planned_micro_batch)
        CLI_TRY(use_planned_micro_batch(job));
    CLI_TRY(make_graph(job, job->recipe.micro_batch, &job->graph));
    set_plan_options(job);
    return cli_budget_replay(&job->budget, job->graph, &job->plan_options, &job->plan);
}

/* ---- a new plan ---- */

static void say_micro_batch(int64_t wanted, int64_t chosen, uint64_t wanted_ns, uint64_t step_ns)
{
    if (chosen == wanted)
        return;
    if (wanted_ns > 0)
        cli_note("micro-batch %" PRId64 " -> %" PRId64
                 ": other rounding; the step is predicted to take %.2f of its time",
                 wanted, chosen, (double)step_ns / (double)wanted_ns);
    else
        cli_note("micro-batch %" PRId64 " -> %" PRId64
                 ": other rounding; nothing larger fits this budget",
                 wanted, chosen);
}

/* The micro-batch is part of the numeric plan, so neither a budget nor a price changes it, unless
 * --micro-batch auto permits that. */
static coh_status plan_batch(cli_job *job)
{
    const coh_batch batch = { .struct_bytes = sizeof(batch),
                              .may_change = job->budget.may_change_micro_batch,
                              .make_graph = make_graph,
                              .context = job,
                              .batch = job->recipe.batch,
                              .microbatch = job->recipe.micro_batch };
    const int64_t wanted = job->recipe.micro_batch;
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    set_plan_options(job);
    CLI_TRY(coh_batch_plan_create(&batch, &job->plan_options, &made));
    job->graph = made.graph;
    job->plan = made.plan;
    job->recipe.micro_batch = made.microbatch;
    say_micro_batch(wanted, made.microbatch, made.wanted_step_ns, made.chosen_step_ns);
    return COH_OK;
}

coh_status cli_job_plan(cli_job *job)
{
    const int is_replayed = job->budget.plan_file != NULL;
    CLI_TRY(is_replayed ? replay(job) : plan_batch(job));
    job->summary = (coh_plan_summary){ .struct_bytes = sizeof(job->summary) };
    CLI_TRY(coh_plan_summarize(job->plan, &job->summary));
    if (!is_replayed) {
        job->plan_options.microbatch_count = (int32_t)(job->recipe.batch / job->recipe.micro_batch);
        job->plan_options.disk_bytes = job->summary.disk_limit_bytes;
    }
    job->plan_options.sweep_order = job->summary.sweep_order;
    cli_recipe_set_order(&job->recipe, job->summary.sweep_order);
    return COH_OK;
}
