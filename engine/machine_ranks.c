/* The part of `cohobate doctor` that processes of a launcher examine together: how they are
 * connected, and how fast. Next: machine_findings.h, comm_rounds.h. */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/plural.h"
#include "comm/launcher.h"
#include "engine/comm_rounds.h"
#include "engine/machine_findings.h"

/* Five samples of two figures of up to three levels in about a second. */
#define WINDOW_NS ((uint64_t)30 * 1000 * 1000)
enum { SAMPLES = 5 };

static const char *const names[COH_LEVEL_COUNT] = { [COH_LEVEL_PAIR] = "within a pair",
                                                    [COH_LEVEL_NODE] = "within a node",
                                                    [COH_LEVEL_WORLD] = "between nodes" };

static void examine_launcher(coh_finding_list *list, const coh_world *world)
{
    coh_launcher launcher;
    coh_finding *finding = coh_finding_next(list, "launcher");
    const int32_t ranks = coh_world_size(world);
    if (coh_launcher_find(&launcher) == COH_OK && launcher.variable != NULL)
        COH_FINDING_SAY(finding->found, "%" PRId32 " process%s, by %s", ranks,
                        ranks > 1 ? "es" : "", launcher.variable);
    else
        COH_FINDING_SAY(finding->found, "none: %" PRId32 " rank%s in this process", ranks,
                        COH_PLURAL_S((uint64_t)ranks));
}

static void examine_levels(coh_finding_list *list, const coh_world *world)
{
    const int32_t *ranks = world->levels.rank_count;
    const int32_t nodes = ranks[COH_LEVEL_WORLD] / ranks[COH_LEVEL_NODE];
    coh_finding *finding = coh_finding_next(list, "levels");
    COH_FINDING_SAY(finding->found, "%" PRId32 " node%s of %" PRId32 " rank%s, ", nodes,
                    COH_PLURAL_S((uint64_t)nodes), ranks[COH_LEVEL_NODE],
                    COH_PLURAL_S((uint64_t)ranks[COH_LEVEL_NODE]));
    const size_t used = strlen(finding->found);
    if (ranks[COH_LEVEL_PAIR] > 1)
        coh_finding_print(finding->found + used, sizeof(finding->found) - used,
                          "in pairs of %" PRId32, ranks[COH_LEVEL_PAIR]);
    else
        coh_finding_print(finding->found + used, sizeof(finding->found) - used, "no pairs");
}

static coh_status examine_level(coh_finding_list *list, const coh_rounds *rounds, int level)
{
    coh_link_profile link;
    if (rounds->members == 1)
        return COH_OK;
    COH_TRY(coh_rounds_measure(rounds, WINDOW_NS, SAMPLES, &link));
    coh_finding *finding = coh_finding_next(list, names[level]);
    COH_FINDING_SAY(finding->found,
                    "%.0f us, and %.2f GB/s that a rank receives, if all groups of %" PRId32
                    " exchange main memory at once",
                    link.latency_ns.p50 * 1e-3, link.bytes_per_s.p50 * 1e-9, rounds->members);
    return COH_OK;
}

static coh_status examine_links(coh_finding_list *list, coh_world *world)
{
    const coh_rounds_place main_memory = { 0 };
    coh_level_rounds all;
    coh_status status = coh_level_rounds_open(world, &main_memory, &all);
    for (int level = COH_LEVEL_PAIR; level < COH_LEVEL_COUNT && status == COH_OK; level++)
        status = examine_level(list, &all.of[level], level);
    return coh_level_rounds_close(&all, world, status);
}

coh_status coh_machine_examine_world(coh_world *world, coh_finding *out_findings, size_t most,
                                     size_t *out_count)
{
    COH_NEED(world);
    COH_NEED(out_count);
    *out_count = 0;
    if (out_findings == NULL && most > 0)
        return coh_fail(COH_ERR_ARGUMENT, "no room for findings was given");
    coh_finding_list list = { .findings = out_findings, .most = most };
    examine_launcher(&list, world);
    COH_FINDING_SAY(coh_finding_next(&list, "transport")->found, "%s", world->transport->ops->name);
    examine_levels(&list, world);
    const coh_status status = examine_links(&list, world);
    *out_count = list.count;
    return status;
}
