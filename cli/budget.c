/* Turns the budget flags into plan and engine options. The one idea: every command with a plan
 * calls the same functions here, so a flag means the same everywhere. Next: job.c and inference.c,
 * the callers; planner/ for the plan itself. */
#include "cli/budget.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/artefact.h"
#include "cli/disks.h"
#include "cli/launch.h"

static coh_status refuse_host_memory(void)
{
    return cli_fail(COH_ERR_ARGUMENT,
                    "--host-memory is the pinned memory next to a GPU, and the host device has"
                    " none: its RAM budget is --device-memory (--emulate-host builds a second"
                    " tier as a test-bed); to plan for a GPU, give its --profile, as rtx-4090");
}

/* --chunk in whole multiples of the smallest chunk; 0: not given. */
static uint64_t chunk_bytes(const cli_options *options)
{
    return options->chunk_bytes / COH_CHUNK_BYTES_LEAST * COH_CHUNK_BYTES_LEAST;
}

/* The threads of a plan for another machine, as a profile's, are not those of this one. */
static void say_few_cores(const cli_options *options)
{
    const int32_t cores = coh_machine_core_count();
    if (!cli_given(options, CLI_FLAG_THREADS) || options->profile || options->threads <= cores)
        return;
    cli_note_choice("note: --threads %d on %d core%s: they take turns, and predicted times are "
                    "those of a core for each thread",
                    (int)options->threads, (int)cores, cores == 1 ? "" : "s");
}

coh_status cli_budget_check(const cli_options *options)
{
    coh_device_summary device = { .struct_bytes = sizeof(device) };
    if (coh_device_summarize(options->device, &device) != COH_OK)
        return cli_fail(COH_ERR_ARGUMENT, "--device %s: %s", options->device, coh_last_error());
    if (cli_given(options, CLI_FLAG_HOST_MEMORY) && !options->profile && !device.is_gpu)
        return refuse_host_memory();
    if (cli_given(options, CLI_FLAG_LINK_RATE) && !cli_given(options, CLI_FLAG_EMULATE_HOST))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--link-rate throttles the emulated far tier, and there is"
                        " none: add --emulate-host SIZE, or leave it out");
    if (options->plan_file && (options->pin_count > 0 || options->pins))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--plan %s holds its own pins: leave --pin and --pins out, or plan again"
                        " with them",
                        options->plan_file);
    say_few_cores(options);
    if (chunk_bytes(options) != options->chunk_bytes)
        cli_note_choice("note: --chunk %s is rounded down to %s: chunks are multiples of %s",
                        options->written[CLI_FLAG_CHUNK], cli_size_whole(chunk_bytes(options)).at,
                        cli_size_whole(COH_CHUNK_BYTES_LEAST).at);
    return COH_OK;
}

enum { LIMIT_TEXT_BYTES = 192 };

/* What the machine and its limits left when budgets were first chosen; 0: none were. Planning takes
 * some of it, and not always as much. */
static uint64_t left_for_plan;

/* A default budget leaves this much more to its process than the check of the plan does, since
 * planning takes some of it, and other processes may. */
#define LEFT_BY_DEFAULT (UINT64_C(128) << 20)

/* What each further rank of a process takes in addition to its arenas, with a margin: of 8 ranks
 * of gpt2 each took 10 MiB, and 80 MiB of address space, most of it stacks. */
#define FURTHER_RANK_BYTES  (UINT64_C(16) << 20)
#define FURTHER_RANK_MAPPED (UINT64_C(96) << 20)

/* The main memory of each rank that this machine runs, next to a pinned host tier if `is_pinned`,
 * when each process leaves `left`, too. A driver keeps memory for each GPU, as for a process. */
static uint64_t rank_bytes(const cli_options *options, int is_pinned, uint64_t left)
{
    const int32_t all = cli_budget_local_ranks(options);
    const int32_t processes = is_pinned ? all : cli_budget_local_processes(options);
    const uint64_t ranks = (uint64_t)(all / processes);
    const uint64_t most = coh_machine_arena_bytes(processes, is_pinned);
    const uint64_t of_rank = coh_machine_is_limited() ? FURTHER_RANK_MAPPED : FURTHER_RANK_BYTES;
    const uint64_t kept = left + (ranks - 1) * of_rank;
    return most > kept ? (most - kept) / ranks : 0;
}

uint64_t cli_budget_most_bytes(const cli_options *options, int is_pinned)
{
    return rank_bytes(options, is_pinned, 0);
}

/* Is the limit that of a container? */
static int is_of_cgroup(void)
{
    return strcmp(coh_machine_limit(NULL), "the memory cgroup") == 0;
}

/* Writes "the address-space limit (ulimit -v 300000)", and how to raise it. */
static void describe_limit(char *out_limit, char *out_remedy)
{
    struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
    const char *raise;
    const int is_of_data = strcmp(coh_machine_limit(&raise), "RLIMIT_DATA") == 0;
    const char letter = is_of_data ? 'd' : 'v';
    if (is_of_cgroup()) {
        snprintf(out_limit, LIMIT_TEXT_BYTES, "the memory cgroup (limit %s, less a reserve)",
                 cli_size(coh_machine_cgroup_bytes()).at);
        snprintf(out_remedy, LIMIT_TEXT_BYTES, "%s", raise);
        return;
    }
    (void)getrlimit(is_of_data ? RLIMIT_DATA : RLIMIT_AS, &limit);
    snprintf(out_limit, LIMIT_TEXT_BYTES, "the %s limit (ulimit -%c %" PRIu64 ")",
             is_of_data ? "data-segment" : "address-space", letter, (uint64_t)limit.rlim_cur >> 10);
    if (limit.rlim_max == limit.rlim_cur)
        snprintf(out_remedy, LIMIT_TEXT_BYTES,
                 "raise it where it was set, since it is a hard limit");
    else if (limit.rlim_max == RLIM_INFINITY)
        snprintf(out_remedy, LIMIT_TEXT_BYTES, "raise it by ulimit -S%c unlimited", letter);
    else
        snprintf(out_remedy, LIMIT_TEXT_BYTES, "raise it by ulimit -S%c %" PRIu64, letter,
                 (uint64_t)limit.rlim_max >> 10);
}

/* Is the last failure that a step needs more device memory than there is? */
static int needs_more(coh_refusal *out_refusal)
{
    *out_refusal = (coh_refusal){ .struct_bytes = sizeof(*out_refusal) };
    return coh_last_refusal(out_refusal) && out_refusal->reason != COH_REFUSAL_MACHINE &&
           out_refusal->tier == COH_TIER_DEVICE &&
           out_refusal->needed_bytes > out_refusal->given_bytes;
}

/* A refusal of this machine's memory, made after planning, knows what was left then, and the size
 * to lower to. It leaves out how to raise the limit, since the sentence before it says that. */
static int has_own_size(uint64_t *out_most)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    if (!coh_last_refusal(&refusal) || refusal.reason != COH_REFUSAL_MACHINE)
        return 0;
    refusal.items[0] = '\0';
    (void)coh_refuse(&refusal);
    *out_most = refusal.given_bytes;
    return 1;
}

/* Puts the limit before the refusal's own sentence, whose changes (a disk, no pin, a smaller
 * micro-batch) may help within the limit. A default budget that leaves less is named, too. */
static coh_status blame_limit(const cli_options *options, coh_status status, uint64_t most)
{
    char limit[LIMIT_TEXT_BYTES], remedy[LIMIT_TEXT_BYTES];
    coh_refusal refusal;
    const int has_size = status == COH_ERR_FULL && has_own_size(&most);
    describe_limit(limit, remedy);
    const cli_text left = cli_size(most);
    if (status == COH_ERR_MEMORY || most == 0)
        return cli_blame(status, "%s leaves %s: %s", limit, left.at, remedy);
    if (cli_given(options, CLI_FLAG_DEVICE_MEMORY) && !has_size)
        return cli_blame(status,
                         "%s leaves %s for a plan: %s, or give --device-memory of at most that",
                         limit, left.at, remedy);
    if (!needs_more(&refusal))
        return cli_blame(status, "%s leaves %s for a plan, and for more %s", limit, left.at,
                         remedy);
    return cli_blame(status, "%s leaves %s for a plan, %s by default, and for more %s", limit,
                     left.at, cli_size(refusal.given_bytes).at, remedy);
}

/* A GPU's memory is not in the address space. */
static int is_of_gpu(void)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    return coh_last_refusal(&refusal) && refusal.is_gpu;
}

/* The default budget is what a container leaves, so where it leaves nothing, or less than a step
 * needs, to raise it by a flag is no remedy. */
static coh_status blame_cgroup(const cli_options *options, coh_status status, uint64_t most)
{
    char limit[LIMIT_TEXT_BYTES], remedy[LIMIT_TEXT_BYTES];
    coh_refusal refusal;
    if (status != COH_ERR_FULL || cli_given(options, CLI_FLAG_DEVICE_MEMORY) ||
        !needs_more(&refusal) || (refusal.given_bytes > 0 && refusal.needed_bytes <= most))
        return status;
    if (most > 0)
        return blame_limit(options, status, most);
    describe_limit(limit, remedy);
    return cli_fail(status, "%s leaves no memory for a plan: %s", limit, remedy);
}

coh_status cli_budget_blame_limit(const cli_options *options, coh_status status)
{
    const int has_budget = cli_flag_table[CLI_FLAG_DEVICE_MEMORY].commands >> options->command & 1;
    if (!(status == COH_ERR_MEMORY || (status == COH_ERR_FULL && has_budget && !options->profile)))
        return status;
    const uint64_t most = status == COH_ERR_FULL && left_for_plan > 0
                              ? left_for_plan
                              : cli_budget_most_bytes(options, cli_budget_on_gpu(options));
    const int is_enough =
        cli_given(options, CLI_FLAG_DEVICE_MEMORY) && options->device_memory_bytes <= most;
    if (!is_of_gpu() && is_of_cgroup())
        return blame_cgroup(options, status, most);
    if (!coh_machine_is_limited() || (status == COH_ERR_FULL && (is_enough || is_of_gpu())))
        return status;
    return blame_limit(options, status, most);
}

coh_status cli_budget_use_kernels(const char *path, int noted, coh_dtype dtype)
{
    char machine[128];
    if (dtype == COH_DTYPE_F32 && coh_kernel_fallback()[0])
        cli_note_choice(
            "note: OpenBLAS cannot be loaded, so f32 products are slower and round differently "
            "(kernel path %s): %s",
            coh_kernel_path(), coh_kernel_fallback());
    if (!path[0])
        return COH_OK;
    if (noted && access(path, F_OK) != 0) {
        cli_note_choice("the kernel table %s of the run is gone: standard products, other rounding;"
                        " --kernels FILE names another place",
                        path);
        return COH_OK;
    }
    CLI_TRY(coh_kernels_use(path, machine, sizeof(machine)));
    if (machine[0])
        cli_note_choice(
            "note: the kernel table %s was measured on another processor (%s): cohobate tune"
            " measures on this one",
            path, machine);
    if (coh_kernels_onednn(dtype))
        cli_note_choice(
            "note: the kernel table %s takes oneDNN, which allocates inside each of its calls",
            path);
    return COH_OK;
}

int32_t cli_budget_thread_count(const cli_options *options)
{
    if (cli_given(options, CLI_FLAG_THREADS))
        return (int32_t)options->threads;
    if (options->launch)
        return options->launch->thread_count;
    const int32_t of_each = coh_machine_core_count() / cli_budget_rank_count(options);
    return of_each > 1 ? of_each : 1;
}

int32_t cli_budget_rank_count(const cli_options *options)
{
    if (options->launch)
        return options->launch->rank_count;
    return cli_given(options, CLI_FLAG_RANKS) ? (int32_t)options->ranks : 1;
}

int32_t cli_budget_local_ranks(const cli_options *options)
{
    return options->launch ? options->launch->local_count : cli_budget_rank_count(options);
}

int32_t cli_budget_local_processes(const cli_options *options)
{
    return options->launch ? options->launch->local_count : 1;
}

/* ---- profiles ---- */

/* Checks that the command can use the profile. */
static coh_status check_profile(const cli_options *options, const char *name,
                                const coh_profile_summary *facts)
{
    const int has_host = cli_given(options, CLI_FLAG_HOST_MEMORY);
    if (options->topology && facts->node_ranks == 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--topology %s: the profile does not say how many ranks a node has"
                        " (node_ranks): name one that does, as frontier",
                        options->topology);
    if (!facts->is_gpu && cli_budget_on_gpu(options))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--profile %s is of a host device, and --device %s is a GPU: cohobate"
                        " profile --device %s -o FILE measures it",
                        name, options->device, options->device);
    if (!facts->is_gpu)
        return has_host ? refuse_host_memory() : COH_OK;
    if (options->command == CLI_TRAIN && !cli_budget_on_gpu(options))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--profile %s is of a GPU, and train computes on the host device: add"
                        " --device cuda:0, leave it out, or ask cohobate plan",
                        name);
    if (cli_given(options, CLI_FLAG_DEVICE) && !cli_budget_on_gpu(options))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--profile %s is of a GPU, and --device host is none: leave --device out,"
                        " or name a profile of a host",
                        name);
    if (cli_given(options, CLI_FLAG_EMULATE_HOST))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--emulate-host is a test-bed on the host device, and --profile %s is of a"
                        " GPU: its host tier is --host-memory SIZE",
                        name);
    if (facts->device_bytes == 0 && !cli_given(options, CLI_FLAG_DEVICE_MEMORY))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--profile %s does not know the device's memory: give --device-memory SIZE",
                        name);
    return COH_OK;
}

/* Was it measured on another machine or by another build? */
static int is_of_elsewhere(const coh_profile *profile, const coh_profile_summary *facts)
{
    return facts->fingerprint != 0 && !coh_profile_is_of_here(profile);
}

/* Will this command run what it plans, here? */
static int runs_here(const cli_options *options)
{
    return options->command == CLI_TRAIN || options->command == CLI_EVAL ||
           options->command == CLI_GENERATE;
}

/* Is the plan, of a measured profile, for this machine? The profile's memory and limit are then
 * those of the moment of measuring. */
static int is_measured_here(const cli_options *options, const coh_profile *profile,
                            const coh_profile_summary *facts)
{
    return facts->fingerprint != 0 && (runs_here(options) || coh_profile_is_of_here(profile));
}

static int is_of_other_threads(const cli_options *options, const coh_profile_summary *facts)
{
    return facts->fingerprint != 0 && facts->threads != cli_budget_thread_count(options);
}

int cli_budget_on_gpu(const cli_options *options)
{
    return strcmp(options->device, "host") != 0;
}

/* The datasheet of a GPU by its name and memory, or NULL. The mobile GPU of a name is another than
 * the desktop's, and a MIG instance is part of one. */
static const char *find_sheet(const coh_device_summary *device)
{
    static const struct {
        const char *part, *name;
        uint64_t least_gib; /* of the GPU's memory, also what others use now */
    } sheets[] = {
        { "H200", "h200", 0 },         { "H100", "h100", 0 },         { "A100", "a100-80g", 60 },
        { "A100", "a100-40g", 0 },     { "RTX 5090", "rtx-5090", 0 }, { "RTX 4090", "rtx-4090", 0 },
        { "RTX 3090", "rtx-3090", 0 },
    };
    if (strstr(device->name, "Laptop") != NULL || strstr(device->name, " MIG ") != NULL)
        return NULL;
    for (size_t i = 0; i < sizeof(sheets) / sizeof(sheets[0]); i++)
        if (strstr(device->name, sheets[i].part) != NULL &&
            device->total_bytes >> 30 >= sheets[i].least_gib)
            return sheets[i].name;
    return NULL;
}

/* Prices decide little in a plan of forward passes. */
#define SHEET_OF_ANY "a100-40g"

coh_status cli_budget_datasheet(const cli_options *options, const char **out_name)
{
    coh_device_summary device = { .struct_bytes = sizeof(device) };
    CLI_TRY(coh_device_summarize(options->device, &device));
    *out_name = find_sheet(&device);
    if (*out_name != NULL) {
        cli_note_choice("note: predicted times are those of the datasheet %s: cohobate profile"
                        " --device %s -o FILE measures this machine, --profile FILE uses it",
                        *out_name, options->device);
        return COH_OK;
    }
    if (options->command == CLI_EVAL || options->command == CLI_GENERATE) {
        *out_name = SHEET_OF_ANY;
        return COH_OK;
    }
    return cli_fail(COH_ERR_ARGUMENT,
                    "--device %s (%s) has no datasheet here: cohobate profile --device %s -o FILE"
                    " measures it, then give --profile FILE",
                    options->device, device.name, options->device);
}

static void say_other_drive(const cli_options *options, const coh_profile *profile)
{
    cli_disks disks;
    cli_line flags;
    cli_disks_list(options, &disks);
    if (disks.count == 0 || coh_profile_is_of_drives(profile, disks.of, disks.count))
        return;
    cli_line_clear(&flags);
    cli_disks_add(options, " --disk ", NULL, &flags);
    cli_note_choice(
        "note: --profile %s measured another drive than that of%s: predicted times of it are"
        " not its own; cohobate profile%s -o FILE measures it",
        options->profile, flags.text, flags.text);
}

/* Prints a note if a budget is above the memory of the profile's machine. Rows of a table ask for
 * such budgets. */
static void say_more_than_there_is(const cli_options *options, const coh_profile_summary *facts)
{
    const struct {
        cli_flag flag;
        uint64_t given_bytes, there_bytes;
    } budgets[] = {
        { CLI_FLAG_DEVICE_MEMORY, options->device_memory_bytes, facts->device_bytes },
        { CLI_FLAG_HOST_MEMORY, options->host_memory_bytes, facts->host_bytes },
    };
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++)
        if (cli_given(options, budgets[i].flag) && budgets[i].there_bytes > 0 &&
            budgets[i].given_bytes > budgets[i].there_bytes)
            cli_note_choice(
                "note: --%s %s is more than the %s that programs can use on the machine "
                "of profile %s: this plan is of a machine that has it",
                cli_flag_table[budgets[i].flag].name, options->written[budgets[i].flag],
                cli_size(budgets[i].there_bytes).at, options->profile);
}

coh_status cli_budget_open_profile(const cli_options *options, coh_profile **out_profile)
{
    coh_profile *profile = NULL;
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    const char *name = options->profile;
    *out_profile = NULL;
    if (!name && (!cli_budget_on_gpu(options) || options->command == CLI_PROFILE))
        return COH_OK;
    if (!name)
        CLI_TRY(cli_budget_datasheet(options, &name));
    CLI_TRY(coh_profile_read(name, &profile));
    coh_status status = coh_profile_summarize(profile, &facts);
    if (status == COH_OK)
        status = check_profile(options, name, &facts);
    if (status != COH_OK) {
        coh_profile_destroy(profile);
        return status;
    }
    if (!options->profile) {
        *out_profile = profile;
        return COH_OK;
    }
    if (facts.is_gpu && options->command == CLI_PLAN && !options->sweep && !options->what_if[0])
        say_more_than_there_is(options, &facts);
    if (facts.is_what_if && options->command == CLI_TRAIN)
        cli_note_choice("note: with --profile %s predicted times are a what-if, not this machine's",
                        options->profile);
    else if (!facts.is_what_if && is_of_elsewhere(profile, &facts))
        cli_note_choice(
            "note: --profile %s was measured on another machine or by another build (%s):"
            " predicted times are not this one's; cohobate profile measures it",
            options->profile, facts.machine);
    else if (!facts.is_what_if && is_of_other_threads(options, &facts))
        cli_note_choice(
            "note: --profile %s was measured for %d thread%s, this run has %d: predicted times"
            " are not its own; cohobate profile --threads %d measures them",
            options->profile, (int)facts.threads, facts.threads == 1 ? "" : "s",
            (int)cli_budget_thread_count(options), (int)cli_budget_thread_count(options));
    if (!facts.is_what_if && facts.fingerprint != 0)
        say_other_drive(options, profile);
    *out_profile = profile;
    return COH_OK;
}

static coh_status parse_pins(const cli_options *options, coh_pin *pins)
{
    for (int32_t i = 0; i < options->pin_count; i++) {
        const coh_status status = coh_pin_parse(options->pin[i], &pins[i]);
        char why[256];
        if (status == COH_OK)
            continue;
        snprintf(why, sizeof(why), "%s", coh_last_error());
        return cli_fail(status, "--pin: %s: for example %s", why,
                        cli_flag_table[CLI_FLAG_PIN].example);
    }
    return COH_OK;
}

coh_status cli_budget_open_pins(const cli_options *options, coh_pin **out_pins, int32_t *out_count)
{
    coh_pin *of_file = NULL, *all;
    int32_t count = 0;
    *out_pins = NULL;
    *out_count = 0;
    if (options->pins)
        CLI_TRY(coh_pins_read(options->pins, &of_file, &count));
    all = calloc((size_t)(count + options->pin_count) + 1, sizeof(*all));
    for (int32_t i = 0; all && i < count; i++)
        all[options->pin_count + i] = of_file[i];
    coh_pins_free(of_file);
    if (!all)
        return cli_fail(COH_ERR_MEMORY, "no memory for %d pins", (int)count);
    const coh_status status = parse_pins(options, all);
    if (status != COH_OK) {
        free(all);
        return status;
    }
    *out_pins = all;
    *out_count = options->pin_count + count;
    return COH_OK;
}

int cli_budget_is_gpu(const coh_profile *profile)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    return profile && coh_profile_summarize(profile, &facts) == COH_OK && facts.is_gpu;
}

int cli_budget_is_what_if(const cli_options *options, const coh_profile *profile)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    if (!profile || coh_profile_summarize(profile, &facts) != COH_OK)
        return 0;
    return facts.is_what_if || is_of_elsewhere(profile, &facts) ||
           is_of_other_threads(options, &facts);
}

int cli_budget_is_here(const cli_options *options, const coh_profile *profile)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    if (options->topology)
        return 0;
    if (cli_budget_on_gpu(options) || !profile)
        return 1;
    return coh_profile_summarize(profile, &facts) == COH_OK && !facts.is_what_if &&
           !is_of_elsewhere(profile, &facts);
}

/* ---- options ---- */

/* Two staging buffers: for a chunk and for its states. States of f32 are twice as large as their
 * chunk; a bf16 chunk is half as large as in f32, and its states are five times that. */
uint64_t cli_budget_stage_bytes(uint64_t chunk_bytes)
{
    return 3 * chunk_bytes;
}

/* The size of a host tier, next to a GPU, that fits in free memory. */
static uint64_t host_room(const cli_options *options)
{
    const uint64_t most_chunk = options->chunk_bytes ? chunk_bytes(options) : COH_CHUNK_BYTES_MOST;
    const uint64_t stages = cli_budget_stage_bytes(most_chunk);
    const uint64_t most = rank_bytes(options, 1, LEFT_BY_DEFAULT);
    return most > stages ? most - stages : 0;
}

/* The default budget of the host device. With several ranks it keeps to what each may have, as a
 * given one has to. */
static uint64_t device_room(const cli_options *options)
{
    const uint64_t most = rank_bytes(options, 0, LEFT_BY_DEFAULT);
    const uint64_t share = coh_machine_free_bytes() / (uint64_t)cli_budget_local_ranks(options);
    return share < most ? share : most;
}

/* Limits memory to that of this machine unless flags set it, and records the device that
 * computes. */
static void fit_room(const cli_options *options, coh_plan_options *plan_options)
{
    coh_device_summary device = { .struct_bytes = sizeof(device) };
    const uint64_t host_bytes = host_room(options);
    if (coh_device_summarize(options->device, &device) != COH_OK)
        return; /* cli_budget_check has reported it */
    if (!cli_given(options, CLI_FLAG_DEVICE_MEMORY) &&
        device.memory_bytes < plan_options->device_memory_bytes)
        plan_options->device_memory_bytes = device.memory_bytes;
    if (!cli_given(options, CLI_FLAG_HOST_MEMORY) && host_bytes < plan_options->host_memory_bytes)
        plan_options->host_memory_bytes = host_bytes;
    snprintf(plan_options->kernel_path, sizeof(plan_options->kernel_path), "%s",
             device.kernel_path);
}

/* Does the what-if of a GPU include its machine's drive? Not if only the GPU is meant, or
 * `--disk none` was given. */
static int may_use_drive(const cli_options *options, const coh_profile_summary *facts)
{
    const int is_alone =
        cli_given(options, CLI_FLAG_HOST_MEMORY) && options->host_memory_bytes == 0;
    const int is_none = cli_given(options, CLI_FLAG_DISK) && options->disk_count == 0;
    return facts->is_gpu && !is_alone && !is_none && facts->read_bytes_per_s > 0 &&
           facts->write_bytes_per_s > 0;
}

/* Uses the memory of the profile's machine unless flags set it. `is_here`: that is this machine,
 * which may have more memory free than when it was measured. */
static void use_room(const cli_options *options, const coh_profile_summary *facts, int is_here,
                     coh_plan_options *plan_options)
{
    const int is_all = is_here && cli_budget_on_gpu(options); /* fit_room limits it */
    const uint64_t device_bytes = is_all ? UINT64_MAX : facts->device_bytes;
    if (!cli_given(options, CLI_FLAG_DEVICE_MEMORY) && device_bytes > 0)
        plan_options->device_memory_bytes = device_bytes;
    if (facts->is_gpu && cli_given(options, CLI_FLAG_HOST_MEMORY))
        plan_options->host_memory_bytes = options->host_memory_bytes;
    else if (facts->is_gpu)
        plan_options->host_memory_bytes = is_all ? UINT64_MAX : facts->host_bytes;
    if (cli_budget_on_gpu(options))
        fit_room(options, plan_options);
    else if (may_use_drive(options, facts))
        plan_options->spare_disk_bytes = facts->disk_bytes;
}

/* Takes the profile, and from it the memory that flags and this machine leave open. */
static void use_profile(const cli_options *options, const coh_profile *profile,
                        coh_plan_options *out_options)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    out_options->profile = profile;
    if (!profile || coh_profile_summarize(profile, &facts) != COH_OK)
        return;
    const int is_here = is_measured_here(options, profile, &facts);
    const int is_elsewhere = facts.is_what_if || is_of_elsewhere(profile, &facts);
    if (is_here)
        out_options->main_memory_limit_bytes = coh_machine_cgroup_bytes();
    if (facts.is_gpu || (options->command == CLI_PLAN && is_elsewhere))
        use_room(options, &facts, is_here && !facts.is_what_if, out_options);
}

void cli_budget_plan_options(const cli_options *options, const coh_profile *profile,
                             coh_plan_mode mode, coh_plan_options *out_options)
{
    /* in the order of the flags' choices */
    static const coh_recompute choices[] = { COH_RECOMPUTE_NONE, COH_RECOMPUTE_ALL,
                                             COH_RECOMPUTE_AUTO };
    static const coh_search searches[] = { COH_SEARCH_USUAL, COH_SEARCH_QUICK,
                                           COH_SEARCH_THOROUGH };
    coh_plan_options_init(out_options);
    if (left_for_plan == 0)
        left_for_plan = cli_budget_most_bytes(options, cli_budget_on_gpu(options));
    out_options->mode = mode;
    out_options->device_memory_bytes = cli_given(options, CLI_FLAG_DEVICE_MEMORY)
                                           ? options->device_memory_bytes
                                           : device_room(options);
    out_options->host_memory_bytes = options->emulate_host_bytes;
    out_options->emulate_host = options->emulate_host_bytes > 0;
    out_options->disk_bytes = options->disk_bytes;
    out_options->drive_count = options->drive_count;
    out_options->link_bytes_per_s = (double)options->link_bytes_per_s;
    out_options->thread_count = cli_budget_thread_count(options);
    out_options->chunk_bytes = chunk_bytes(options);
    out_options->recompute =
        cli_given(options, CLI_FLAG_RECOMPUTE) ? choices[options->recompute] : COH_RECOMPUTE_AUTO;
    if (cli_given(options, CLI_FLAG_DISK_WRITE_LIMIT))
        out_options->disk_write_bytes_per_day =
            options->disk_write_limit > 0 ? options->disk_write_limit : 1;
    out_options->search = searches[options->search];
    use_profile(options, profile, out_options);
}

void cli_budget_resolve(const cli_options *options, const coh_profile *profile,
                        cli_budget *out_budget)
{
    const int is_given = cli_given(options, CLI_FLAG_SWEEP_ORDER);
    *out_budget = (cli_budget){
        .plan_file = options->plan_file,
        .has_disk_folder = options->disk_count > 0,
        .is_run_here = options->command == CLI_TRAIN,
        .may_change_micro_batch = cli_micro_batch_is_auto(options),
        .may_choose_order =
            is_given ? options->sweep_order == COH_SWEEP_AUTO : options->plan_file != NULL,
        .keeps_order = is_given,
        .takes_planned_micro_batch = options->plan_file && options->micro_batch == 0,
    };
    cli_budget_plan_options(options, profile, COH_PLAN_TRAIN, &out_budget->options);
    cli_budget_engine_options(options, &out_budget->engine_options);
}

coh_status cli_budget_plan_file(const cli_budget *budget, coh_plan_file *out_file)
{
    return budget->plan_text ? coh_plan_file_parse(budget->plan_text, out_file)
                             : coh_plan_file_read(budget->plan_file, out_file);
}

/* Refuses flags that ask for other decisions than those of the plan. Those that it was made with
 * may be given again. */
static coh_status check_decisions(const coh_plan_options *asked, const char *path,
                                  const coh_plan_file *file)
{
    if (asked->chunk_bytes > 0 && file->chunk_bytes > asked->chunk_bytes)
        return cli_fail(COH_ERR_ARGUMENT,
                        "the plan %s has chunks of %s: leave --chunk out, or plan again with it",
                        path, cli_size(file->chunk_bytes).at);
    if (asked->recompute == COH_RECOMPUTE_NONE && file->recomputes > 0 && file->pin_count == 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "the plan %s recomputes %s: leave --recompute out, or plan again with it",
                        path, cli_count((uint64_t)file->recomputes, "block").at);
    return COH_OK;
}

/* Reads the plan; its tiers come from the file, since the caller's would limit it. */
static coh_status read_plan(const cli_budget *budget, const coh_graph *graph,
                            coh_plan_options *plan_options, coh_plan **out_plan)
{
    coh_plan_file file = { .struct_bytes = sizeof(file) };
    CLI_TRY(cli_budget_plan_file(budget, &file));
    CLI_TRY(check_decisions(plan_options, budget->plan_file, &file));
    CLI_TRY(budget->plan_text ? coh_plan_parse(graph, plan_options, budget->plan_file,
                                               budget->plan_text, out_plan)
                              : coh_plan_read(graph, plan_options, budget->plan_file, out_plan));
    plan_options->host_memory_bytes = file.host_memory_bytes;
    plan_options->emulate_host = !file.is_gpu;
    plan_options->disk_bytes = file.disk_bytes;
    return COH_OK;
}

coh_status cli_budget_replay(const cli_budget *budget, const coh_graph *graph,
                             coh_plan_options *plan_options, coh_plan **out_plan)
{
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    const char *path = budget->plan_file;
    const int is_gpu = cli_budget_is_gpu(plan_options->profile);
    CLI_TRY(read_plan(budget, graph, plan_options, out_plan));
    coh_status status = coh_plan_summarize(*out_plan, &summary);
    if (status == COH_OK && is_gpu && !budget->has_disk_folder)
        status = cli_budget_check_disk(plan_options->profile, path, &summary);
    else if (status == COH_OK && summary.peak_bytes[COH_TIER_DISK] > 0 && !budget->has_disk_folder)
        status = cli_fail(COH_ERR_ARGUMENT, "the plan %s uses a disk: add --disk DIR", path);
    if (status == COH_OK)
        return COH_OK;
    coh_plan_destroy(*out_plan);
    *out_plan = NULL;
    return status;
}

static void log_sentence(void *context, const char *sentence)
{
    (void)context;
    cli_note("%s", sentence);
}

void cli_budget_engine_options(const cli_options *options, coh_engine_options *out_options)
{
    coh_engine_options_init(out_options);
    out_options->disk_bytes = options->disk_bytes;
    out_options->thread_count = cli_budget_thread_count(options);
    out_options->poison = (int32_t)options->test_poison;
    out_options->delay_seed = (uint64_t)options->test_delay_seed;
    out_options->delay_most_us = options->test_delay_seed ? 2000 : 0;
    out_options->store = options->test_store;
    out_options->device = options->device;
    out_options->log = log_sentence;
}
