/* Profiles as files: a written profile is read back bit for bit, in one form; anything else is
 * refused with a message that names the place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/rng.h"
#include "cohobate/profile.h"
#include "memory/device_cuda.h"
#include "planner/price.h"
#include "planner/profile_file.h"
#include "tests/temporary.h"

/* ---- random profiles ---- */

typedef struct maker {
    uint64_t seed, count;
} maker;

static double uniform(maker *rng)
{
    return coh_rng_uniform(rng->seed, 0, rng->count++);
}

static coh_figure some_figure(maker *rng, double least)
{
    coh_figure f = { .p10 = least + uniform(rng) * 1e9 };
    f.p50 = f.p10 + uniform(rng);
    f.p90 = f.p50 * (1 + uniform(rng));
    f.samples = 1 + (uint32_t)(uniform(rng) * 1000);
    return uniform(rng) < 0.3 ? coh_figure_of(f.p50) : f;
}

static coh_figure some_seconds(maker *rng)
{
    coh_figure f = some_figure(rng, 1);
    return (coh_figure){ f.p10 * 1e-6, f.p50 * 1e-6, f.p90 * 1e-6, f.samples };
}

enum { OPERATORS = 5, SAMPLES = 4 };

static void some_operator(maker *rng, int index, coh_operator_times *o)
{
    static const char *const kinds[] = { "add", "linear", "linear", "linear", "update" };
    snprintf(o->kind, sizeof(o->kind), "%s", kinds[index]);
    o->dtype = index == 3 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
    o->phase = index == 2 ? COH_PHASE_BACKWARD : COH_PHASE_FORWARD;
    o->lane = index == 4 ? COH_LANE_HOST : COH_LANE_COMPUTE;
    o->signature = (uint64_t)index * UINT64_C(0x9E3779B97F4A7C15);
    snprintf(o->shape, sizeof(o->shape), "[.,256,%d] \"[]\\", index);
    assert_int_equal(COH_ALLOC(SAMPLES, &o->samples), COH_OK);
    o->sample_count = SAMPLES;
    for (int i = 0; i < SAMPLES; i++)
        o->samples[i] = (coh_operator_sample){ .flops = (i + 1) * 1e12 * uniform(rng) * 1e-3,
                                               .bytes = (i + 1) * 1e18,
                                               .seconds = some_seconds(rng) };
}

/* A measured profile with every member set. */
static coh_profile some_profile(uint64_t seed)
{
    maker rng = { .seed = seed };
    coh_profile p;
    coh_profile_init(&p);
    snprintf(p.name, sizeof(p.name), "this machine \xc3\xa9 \"%d\"", (int)seed);
    snprintf(p.machine, sizeof(p.machine), "a CPU\\with 2 cores");
    snprintf(p.date, sizeof(p.date), "2026-11-20");
    p.source = COH_PROFILE_MEASURED;
    p.fingerprint = UINT64_C(0xfedcba9876543210);
    p.threads = 2;
    for (int roof = 0; roof < COH_ROOF_COUNT; roof++)
        p.flops_per_s[roof] = some_figure(&rng, 1e9);
    p.memory_bytes_per_s = some_figure(&rng, 1e6);
    p.instruction_ns = some_figure(&rng, 0);
    p.host_update_bytes_per_s = some_figure(&rng, 1e3);
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++)
        p.link[lane] = (coh_link_profile){ .latency_ns = some_figure(&rng, 0),
                                           .bytes_per_s = some_figure(&rng, 1e3),
                                           .depth = (uint32_t)lane * 4 };
    for (int link = COH_LANE_COMM0; link < COH_LINK_COUNT; link++)
        p.link[link] = (coh_link_profile){ .latency_ns = some_figure(&rng, 0),
                                           .bytes_per_s = some_figure(&rng, 1e3),
                                           .depth = 1 };
    p.link[COH_LANE_WRITE].sustained_bytes_per_s = some_figure(&rng, 1e3);
    p.link[COH_LANE_WRITE].interference_ns = 1e5 * uniform(&rng);
    p.link[COH_LANE_WRITE].interference_ns_per_byte = uniform(&rng);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        for (int beside = 0; beside < COH_LANE_COUNT; beside++)
            if (lane != beside && uniform(&rng) < 0.3)
                p.contention[lane][beside] = 0.01 + 0.9 * uniform(&rng);
    p.pair_ranks = 2;
    p.node_ranks = 6;
    p.memory_bytes[COH_TIER_DEVICE] = 40000000001;
    p.memory_bytes[COH_TIER_DISK] = INT64_MAX;
    p.cgroup_bytes = 5;
    p.drive_endurance_bytes = 7;
    snprintf(p.drive, sizeof(p.drive), "ext4, device %d:1, 5 GiB", (int)seed);
    p.calibration[COH_OP_UPDATE] =
        (coh_calibration){ .factor = 1 + uniform(&rng), .runs = 3, .deviation = uniform(&rng) };
    assert_int_equal(COH_ALLOC(OPERATORS, &p.operators), COH_OK);
    p.operator_count = OPERATORS;
    for (int i = 0; i < OPERATORS; i++)
        some_operator(&rng, i, &p.operators[i]);
    return p;
}

static void assert_figure(const coh_figure *a, const coh_figure *b)
{
    assert_true(a->p10 == b->p10 && a->p50 == b->p50 && a->p90 == b->p90);
    assert_int_equal(a->samples, b->samples);
}

static void assert_operator(const coh_operator_times *a, const coh_operator_times *b)
{
    assert_string_equal(a->kind, b->kind);
    assert_string_equal(a->shape, b->shape);
    assert_true(a->dtype == b->dtype && a->phase == b->phase && a->lane == b->lane);
    assert_true(a->signature == b->signature && a->sample_count == b->sample_count);
    for (uint32_t i = 0; i < a->sample_count; i++) {
        assert_true(a->samples[i].flops == b->samples[i].flops);
        assert_true(a->samples[i].bytes == b->samples[i].bytes);
        assert_figure(&a->samples[i].seconds, &b->samples[i].seconds);
    }
}

static void assert_links(const coh_profile *a, const coh_profile *b)
{
    for (int lane = 0; lane < COH_LINK_COUNT; lane++) {
        assert_figure(&a->link[lane].latency_ns, &b->link[lane].latency_ns);
        assert_figure(&a->link[lane].bytes_per_s, &b->link[lane].bytes_per_s);
        assert_figure(&a->link[lane].sustained_bytes_per_s, &b->link[lane].sustained_bytes_per_s);
        assert_int_equal(a->link[lane].depth, b->link[lane].depth);
        assert_true(a->link[lane].interference_ns == b->link[lane].interference_ns &&
                    a->link[lane].interference_ns_per_byte ==
                        b->link[lane].interference_ns_per_byte);
    }
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        for (int beside = 0; beside < COH_LANE_COUNT; beside++)
            assert_true(a->contention[lane][beside] == b->contention[lane][beside]);
}

static void assert_profile(const coh_profile *a, const coh_profile *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->machine, b->machine);
    assert_string_equal(a->date, b->date);
    assert_true(a->source == b->source && a->fingerprint == b->fingerprint);
    assert_true(a->device_kind == b->device_kind && a->threads == b->threads);
    for (int roof = 0; roof < COH_ROOF_COUNT; roof++)
        assert_figure(&a->flops_per_s[roof], &b->flops_per_s[roof]);
    assert_figure(&a->memory_bytes_per_s, &b->memory_bytes_per_s);
    assert_figure(&a->instruction_ns, &b->instruction_ns);
    assert_figure(&a->host_memory_bytes_per_s, &b->host_memory_bytes_per_s);
    assert_figure(&a->host_update_bytes_per_s, &b->host_update_bytes_per_s);
    assert_links(a, b);
    assert_memory_equal(a->memory_bytes, b->memory_bytes, sizeof(a->memory_bytes));
    assert_true(a->memlock_bytes == b->memlock_bytes && a->cgroup_bytes == b->cgroup_bytes);
    assert_true(a->drive_endurance_bytes == b->drive_endurance_bytes);
    assert_string_equal(a->drive, b->drive);
    for (int op = 0; op < COH_OP_COUNT; op++)
        assert_true(a->calibration[op].factor == b->calibration[op].factor &&
                    a->calibration[op].runs == b->calibration[op].runs);
    assert_int_equal(a->operator_count, b->operator_count);
    for (uint32_t i = 0; i < a->operator_count; i++)
        assert_operator(&a->operators[i], &b->operators[i]);
}

/* ---- claims ---- */

static void what_is_written_is_read_again_to_the_bit_and_written_the_same(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        coh_text once = { 0 }, twice = { 0 };
        coh_profile p = some_profile(seed), q;
        assert_int_equal(coh_profile_add_text(&p, &once), COH_OK);
        if (coh_profile_parse(once.data, once.bytes, &q) != COH_OK)
            fail_msg("seed %d: %s", (int)seed, coh_last_error());
        assert_profile(&p, &q);
        assert_int_equal(coh_profile_add_text(&q, &twice), COH_OK);
        assert_int_equal(once.bytes, twice.bytes);
        assert_memory_equal(once.data, twice.data, once.bytes);
        coh_text_fini(&once);
        coh_text_fini(&twice);
        coh_profile_fini(&p);
        coh_profile_fini(&q);
    }
}

static void the_order_of_operators_does_not_change_the_file(void **state)
{
    (void)state;
    coh_text once = { 0 }, twice = { 0 };
    coh_profile p = some_profile(3);
    assert_int_equal(coh_profile_add_text(&p, &once), COH_OK);
    coh_operator_times first = p.operators[0];
    memmove(p.operators, p.operators + 1, (OPERATORS - 1) * sizeof(first));
    p.operators[OPERATORS - 1] = first;
    assert_int_equal(coh_profile_add_text(&p, &twice), COH_OK);
    assert_string_equal(once.data, twice.data);
    coh_text_fini(&once);
    coh_text_fini(&twice);
    coh_profile_fini(&p);
}

/* Shipped files are the canonical text, without the seal. */
static void every_shipped_datasheet_is_in_the_one_form_and_a_what_if(void **state)
{
    (void)state;
    size_t count = 0;
    for (const char *name; (name = coh_profile_shipped(count)) != NULL; count++) {
        coh_profile *p = NULL;
        coh_text text = { 0 };
        coh_profile_summary s = { .struct_bytes = sizeof(s) };
        if (coh_profile_read(name, &p) != COH_OK)
            fail_msg("%s", coh_last_error());
        assert_string_equal(p->name, name);
        assert_int_equal(coh_profile_add_text(p, &text), COH_OK);
        const char *shipped = coh_shipped_profiles[count].text;
        const size_t common = strlen(shipped) - strlen("\n}\n");
        assert_memory_equal(text.data, shipped, common);
        assert_memory_equal(text.data + common, ",\n  \"file_hash\"", 14);
        assert_int_equal(coh_profile_summarize(p, &s), COH_OK);
        assert_true(s.is_what_if && s.is_gpu && s.origin_count > 0);
        assert_true(count == 0 || strcmp(coh_profile_shipped(count - 1), name) < 0);
        coh_text_fini(&text);
        coh_profile_destroy(p);
    }
    assert_true(count >= 8);
}

/* A card is sold by GB and built in GiB; the driver reports slightly less, and a run leaves some of
 * that free. */
static void a_shipped_card_has_the_gib_that_a_run_may_take(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double sold;
    } cards[] = { { "a100-40g", 40 }, { "a100-80g", 80 }, { "h100", 80 },     { "h200", 141 },
                  { "mi250x", 64 },   { "rtx-3090", 24 }, { "rtx-4090", 24 }, { "rtx-5090", 32 } };
    for (size_t i = 0; i < sizeof(cards) / sizeof(cards[0]); i++) {
        coh_profile *p = NULL;
        assert_int_equal(coh_profile_read(cards[i].name, &p), COH_OK);
        const uint64_t left = COH_CUDA_RESERVE_BYTES + COH_CUDA_CONTEXT_BYTES;
        const double gib = (double)(p->memory_bytes[COH_TIER_DEVICE] + left) / ((uint64_t)1 << 30);
        if (!(gib <= cards[i].sold && gib >= 0.99 * cards[i].sold))
            fail_msg("%s has %g GiB", cards[i].name, gib);
        coh_profile_destroy(p);
    }
}

static coh_profile *read_ok(const char *what)
{
    coh_profile *p = NULL;
    if (coh_profile_read(what, &p) != COH_OK)
        fail_msg("%s: %s", what, coh_last_error());
    return p;
}

/* A topology is the datasheet of its device, with links between ranks, and nothing else. A card
 * that has a desktop alone shares another host with the cards of its node. */
static void a_topology_is_its_device_with_links(void **state)
{
    (void)state;
    static const char *const pairs[][2] = { { "frontier", "mi250x" },
                                            { "a100x8-800gbit", "a100-80g" },
                                            { "a100x8-80gbit", "a100-80g" },
                                            { "h200x8", "h200" },
                                            { "rtx-3090x4", "rtx-3090" } };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        coh_profile *topology = read_ok(pairs[i][0]), *device = read_ok(pairs[i][1]), *joined;
        char with[64];
        assert_true(topology->node_ranks > 1 && device->node_ranks == 0);
        snprintf(with, sizeof(with), "%s,topology=%s", pairs[i][1], pairs[i][0]);
        joined = read_ok(with);
        assert_links(joined, topology);
        assert_true(joined->node_ranks == topology->node_ranks &&
                    joined->pair_ranks == topology->pair_ranks);
        assert_true(joined->origin_count > device->origin_count);
        for (int link = COH_LANE_COMM0; link < COH_LINK_COUNT; link++)
            topology->link[link] = device->link[link];
        assert_links(topology, device);
        for (int roof = 0; roof < COH_ROOF_COUNT; roof++)
            assert_figure(&topology->flops_per_s[roof], &device->flops_per_s[roof]);
        assert_figure(&topology->memory_bytes_per_s, &device->memory_bytes_per_s);
        assert_int_equal(topology->host_gpus, topology->node_ranks);
        if (device->host_gpus > 0) {
            assert_figure(&topology->host_memory_bytes_per_s, &device->host_memory_bytes_per_s);
            assert_figure(&topology->host_update_bytes_per_s, &device->host_update_bytes_per_s);
        }
        assert_figure(&topology->instruction_ns, &device->instruction_ns);
        assert_memory_equal(topology->memory_bytes, device->memory_bytes,
                            sizeof(device->memory_bytes));
        assert_int_equal(topology->drive_endurance_bytes, device->drive_endurance_bytes);
        coh_profile_destroy(topology);
        coh_profile_destroy(device);
        coh_profile_destroy(joined);
    }
}

/* Four cards share eight channels of DDR4-3200 and eight modules of 32 GB. */
static void four_cards_share_the_host_of_one_machine(void **state)
{
    (void)state;
    const double channels = 8 * 8 * 3.2e9, modules = 8 * 32e9;
    coh_profile *card = read_ok("rtx-3090x4"), *all = read_ok("rtx-3090x4,host-memory=256GB");
    assert_true(4 * card->host_memory_bytes_per_s.p50 == channels);
    assert_true(4 * card->host_update_bytes_per_s.p50 == channels);
    assert_true(4 * (double)card->memory_bytes[COH_TIER_HOST] == modules);
    assert_true(all->host_memory_bytes_per_s.p50 == channels && all->host_shares == 4);
    coh_profile_destroy(card);
    coh_profile_destroy(all);
}

/* Links that the topology does not have are gone, and what the profile said of them. */
static void a_topology_without_pairs_leaves_no_source_of_their_link(void **state)
{
    (void)state;
    coh_profile *p = read_ok("frontier,topology=h200x8");
    assert_true(p->link[COH_LINK_PAIR].bytes_per_s.p50 == 0 && p->pair_ranks == 0);
    for (uint32_t i = 0; i < p->origin_count; i++)
        assert_string_not_equal(p->origins[i].of, "links.pair");
    coh_profile_destroy(p);
}

/* ---- what is refused ---- */

typedef struct bad_case {
    const char *find, *put, *says;
} bad_case;

static const bad_case bad_cases[] = {
    { "cohobate profile", "cohobate plan", "not a profile" },
    { "\"version\": 1", "\"version\": 2", "format version 2" },
    { "\"version\": 1", "\"version\": \"1\"", "entry version: expected a whole number" },
    { "\"version\": 1", "\"version\": 1.0", "found 1.0" },
    { "\"threads\": 2", "\"threads\": 0",
      "entry threads: expected a whole number 1..65536, found 0" },
    { "\"threads\": 2", "\"threads\": 99999999999999999999", "line" },
    { "\"threads\": 2", "\"threads\": 2, \"thread\": 2", "entry thread: it is not known" },
    { "\"threads\": 2", "\"threads\": 2, \"threads\": 2", "line" },
    { "\"measured\"", "\"guessed\"",
      "entry source: expected one of \"built-in\", \"datasheet\", \"measured\", found "
      "\"guessed\"" },
    { "\"host\"", "\"tpu\"", "entry device: expected one of \"host\", \"gpu\", found \"tpu\"" },
    { "2026-11-20", "2026-11-20 and many more days than a date has",
      "entry date: expected a text of at most 31 bytes" },
    { "2026-11-20", "2026\\u0001", "entry date: it holds a control character" },
    { "2026-11-20", "2026\\u0000", "line" },
    { "fedcba9876543210", "fedcba987654321g", "entry fingerprint: expected 16 hexadecimal digits" },
    { "fedcba9876543210", "fedcba98765432100",
      "entry fingerprint: expected 16 hexadecimal digits" },
    { "fedcba9876543210", "-1", "found \"-1\"" },
    { "{\"f32\": ", "{\"f31\": ", "entry flops_per_s.f31: it is not known" },
    { "\"memory_bytes_per_s\": ", "\"memory_bytes_per_s\": NaN, \"x\": ", "line" },
    { "\"memory_bytes_per_s\": ", "\"memory_bytes_per_s\": 1e999, \"x\": ", "line" },
    { "\"memory_bytes_per_s\": ", "\"memory_bytes_per_s\": 1e31, \"line_n\": ", "line_n" },
    { "\"line_ns\": ", "\"line_ns\": null, \"origin\": ", "origin" },
    { "\"line_ns\"", "\"line_nz\"", "line_nz" },
    { "\"h2d\": {", "\"compute\": {", "entry links.compute: it is not known" },
    { "\"h2d\": {", "\"h3d\": {", "entry links.h3d: it is not known" },
    { "\"depth\": 4}", "\"depth\": -4}",
      "entry links.h2d.depth: expected a whole number 1..64, found -4" },
    { "\"depth\": 4}", "\"depth\": 0}",
      "entry links.h2d.depth: expected a whole number 1..64, found 0" },
    { "\"depth\": 4}", "\"depth\": 65}", "entry links.h2d.depth: expected" },
    { "\"depth\": 4}", "\"depth\": 4, \"deep\": 1}", "entry links.h2d.deep: it is not known" },
    { "\"depth\": 4}", "\"depth\": 4, \"steal_ns_per_byte\": 1}",
      "entry links.h2d.steal_ns: expected" },
    { "\"sustained_bytes_per_s\": ", "\"sustained\": ", ".sustained: it is not known" },
    { "\"contention\": {", "\"contention\": {\"drive\": {},",
      "entry contention.drive: it is not known" },
    { "\"contention\": {", "\"contention\": [],\"links2\": {", "links2" },
    { "\"device\": 40000000001", "\"device\": -1",
      "entry memory_bytes.device: expected a whole number from 0 on, found -1" },
    { "\"device\": 40000000001", "\"device\": 4e10", "entry memory_bytes.device: expected" },
    { "\"memlock_bytes\": null", "\"memlock_bytes\": \"none\"",
      "entry memlock_bytes: expected a whole number from 0 on, found \"none\"" },
    { "\"drive_endurance_bytes\": 7", "\"drive_endurance_bytes\": null",
      "entry drive_endurance_bytes: expected a whole number from 0 on, found null" },
    { "\"kind\": \"add\"", "\"kind\": \"zzz\"", "entry operators[1]: it does not follow" },
    { "\"kind\": \"add\"", "\"kind\": 5", "entry operators[0].kind: expected a text" },
    { "\"phase\": \"backward\"", "\"phase\": \"sideways\"",
      "phase: expected one of \"forward\", \"backward\", found \"sideways\"" },
    { "\"lane\": \"host\"", "\"lane\": \"h2d\"",
      "lane: expected one of \"compute\", \"host\", found \"h2d\"" },
    { "\"dtype\": \"bf16\"", "\"dtype\": \"f8\"", "found \"f8\"" },
    { "\"bytes\": 2e+18", "\"bytes\": 1e+18", "samples[1]: it is no more work" },
    { "\"bytes\": 2e+18", "\"bytes\": -2", "bytes: expected a number from 0 to 1e+30, found -2" },
    { "\"samples\": [", "\"samples\": [], \"more\": [", ".more: it is not known" },
    { "\"UPDATE\": {\"factor\"", "\"upgrade\": {\"factor\"",
      "entry calibration.upgrade: it is not known" },
    { "\"runs\": 3", "\"runs\": 0", ".runs: expected a whole number 1..2147483647, found 0" },
    { "\"origins\": [", "\"origins\": [{\"of\": \"x\"}", "entry origins[0].published: expected" },
    { "\"origins\": [", "\"origins\": [{\"of\": \"x\", \"assumed\": \"\", \"published\": \"\"}",
      "both" },
    { "\"source\": \"measured\"", "\"source\": \"datasheet\"", "where \"flops_per_s\" comes" },
};

/* Replaces the first `find` in `text` by `put`. */
static char *replaced(const char *text, const bad_case *bad)
{
    const char *at = strstr(text, bad->find);
    char *other = NULL;
    if (at == NULL)
        fail_msg("the text holds no %s", bad->find);
    if (asprintf(&other, "%.*s%s%s", (int)(at - text), text, bad->put, at + strlen(bad->find)) < 0)
        fail();
    return other;
}

/* Returns a profile's text up to its seal. */
static char *unsealed(const coh_profile *p)
{
    coh_text text = { 0 };
    assert_int_equal(coh_profile_add_text(p, &text), COH_OK);
    char *copy = strdup(text.data);
    assert_non_null(copy);
    *strstr(copy, "  \"file_hash\"") = '\0';
    coh_text_fini(&text);
    return copy;
}

static void assert_refused(const char *body, const char *says)
{
    coh_text text = { 0 };
    coh_profile p;
    assert_int_equal(coh_text_add(&text, "%s", body), COH_OK);
    assert_int_equal(coh_json_seal(&text), COH_OK);
    const coh_status status = coh_profile_parse(text.data, text.bytes, &p);
    if (status != COH_ERR_CORRUPT || strstr(coh_last_error(), says) == NULL)
        fail_msg("status %d, wanted '%s': %s", (int)status, says, coh_last_error());
    assert_true(p.operators == NULL && p.origins == NULL);
    coh_text_fini(&text);
}

static void everything_else_is_refused_with_its_place(void **state)
{
    (void)state;
    coh_profile p = some_profile(1);
    char *body = unsealed(&p);
    for (size_t i = 0; i < sizeof(bad_cases) / sizeof(bad_cases[0]); i++) {
        char *bad = replaced(body, &bad_cases[i]);
        assert_refused(bad, bad_cases[i].says);
        free(bad);
    }
    free(body);
    coh_profile_fini(&p);
}

/* Truncation anywhere, or one changed byte after sealing, is refused; the white space at the very
 * end is exempt. */
static void no_damage_gets_past_the_seal(void **state)
{
    (void)state;
    coh_text text = { 0 };
    coh_profile p = some_profile(2), q;
    assert_int_equal(coh_profile_add_text(&p, &text), COH_OK);
    for (size_t at = 0; at < text.bytes - strlen("\n}\n"); at += 7) {
        char *cut = strndup(text.data, at);
        assert_int_equal(coh_profile_parse(cut, at, &q), COH_ERR_CORRUPT);
        free(cut);
        char *changed = strdup(text.data);
        changed[at] ^= 1;
        if (coh_profile_parse(changed, text.bytes, &q) != COH_ERR_CORRUPT)
            fail_msg("byte %zu of %zu", at, text.bytes);
        free(changed);
    }
    coh_text_fini(&text);
    coh_profile_fini(&p);
}

static void a_file_that_is_no_profile_is_not_replaced(void **state)
{
    (void)state;
    static const char path[] = "not-ours.json";
    static const char *const others[] = { "notes", "{}", "{\"format\": \"cohobate plan\"}" };
    coh_profile p = some_profile(4);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        char *kept;
        size_t bytes;
        assert_int_equal(coh_file_write_whole(path, others[i], strlen(others[i])), COH_OK);
        assert_int_equal(coh_profile_write(&p, path), COH_ERR_ARGUMENT);
        assert_non_null(
            strstr(coh_last_error(), "not-ours.json is there already and is no profile"));
        assert_int_equal(coh_file_read_whole(path, 100, &kept, &bytes), COH_OK);
        assert_string_equal(kept, others[i]);
        coh_free(kept);
    }
    assert_int_equal(coh_file_write_whole(path, "", 0), COH_OK);
    assert_int_equal(coh_profile_write(&p, path), COH_OK); /* an empty one is, and so is ours */
    assert_int_equal(coh_profile_write(&p, path), COH_OK);
    assert_int_equal(remove(path), 0);
    coh_profile_fini(&p);
}

static void what_would_not_be_read_again_is_not_written(void **state)
{
    (void)state;
    coh_profile p = some_profile(4);
    p.operators[1].samples[0].seconds = coh_figure_of(0);
    assert_int_equal(coh_profile_write(&p, "never-written.json"), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "seconds"));
    assert_int_not_equal(access("never-written.json", F_OK), 0);
    coh_profile_fini(&p);
}

/* Refuses values that would overflow a clock or be divided by zero; the bound itself is
 * accepted. */
static void figures_that_no_machine_has_are_refused(void **state)
{
    (void)state;
    coh_profile p = some_profile(7);
    const struct {
        coh_figure *figure;
        double bound, beyond;
        const char *says;
    } cases[] = {
        { &p.instruction_ns, 1e13, 1.1e13, "line_ns: expected a number from" },
        { &p.link[COH_LANE_READ].latency_ns, 1e13, 1.1e13, "latency_ns: expected a number from" },
        { &p.link[COH_LANE_READ].bytes_per_s, 1e3, 999, "bytes_per_s: expected a number from" },
        { &p.link[COH_LANE_WRITE].sustained_bytes_per_s, 1e3, 999,
          "sustained_bytes_per_s: expected a number from" },
        { &p.flops_per_s[COH_ROOF_BF16], 1e3, 999, "bf16: expected a number from" },
        { &p.memory_bytes_per_s, 1e3, 999, "memory_bytes_per_s: expected a number from" },
        { &p.flops_per_s[COH_ROOF_F32], 1e30, 1.1e30, "f32: expected a number from" },
        { &p.host_memory_bytes_per_s, 0, 999, "host_memory_bytes_per_s: expected a number from" },
        { &p.host_update_bytes_per_s, 1e3, 1e-9,
          "host_update_bytes_per_s: expected a number from" },
        { &p.operators[2].samples[1].seconds, 1e4, 1.1e4, "seconds: expected a number from" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const coh_figure before = *cases[i].figure;
        *cases[i].figure = coh_figure_of(cases[i].bound);
        assert_int_equal(coh_profile_write(&p, "bounds.json"), COH_OK);
        *cases[i].figure = coh_figure_of(cases[i].beyond);
        assert_int_equal(coh_profile_write(&p, "bounds.json"), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), cases[i].says));
        *cases[i].figure = before;
    }
    p.contention[COH_LANE_READ][COH_LANE_WRITE] = 0.01;
    assert_int_equal(coh_profile_write(&p, "bounds.json"), COH_OK);
    p.contention[COH_LANE_READ][COH_LANE_WRITE] = 0.009;
    assert_int_equal(coh_profile_write(&p, "bounds.json"), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "entry contention.read.write: expected"));
    p.contention[COH_LANE_READ][COH_LANE_WRITE] = 1;
    p.instruction_ns = (coh_figure){ .p50 = 5, .p90 = 6, .samples = 3 };
    assert_int_equal(coh_profile_write(&p, "bounds.json"), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "tenth"));
    p.instruction_ns = coh_figure_of(5);
    p.pair_ranks = 4;
    assert_int_equal(coh_profile_write(&p, "bounds.json"), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "\"pair_ranks\" is 4 and \"node_ranks\" 6"));
    p.pair_ranks = 0;
    p.link[COH_LANE_COMM0] = (coh_link_profile){ 0 };
    assert_int_equal(coh_profile_write(&p, "bounds.json"), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "lacks \"comm0\" or \"comm1\""));
    p.node_ranks = 0;
    assert_int_equal(coh_profile_write(&p, "bounds.json"), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "has \"pair\", and no \"comm0\""));
    p.link[COH_LINK_PAIR] = (coh_link_profile){ 0 };
    assert_int_equal(coh_profile_write(&p, "bounds.json"), COH_OK);
    unlink("bounds.json");
    coh_profile_fini(&p);
}

static void entries_replace_and_multiply(void **state)
{
    (void)state;
    coh_profile *plain = read_ok("a100-40g");
    coh_profile *p =
        read_ok("a100-40g,pcie=2x,disk-read=7GB/s,device-memory=80GB,flops=0.5x,"
                "bf16-flops=1e14,memory-rate=1TB/s,endurance=1200TB,host-memory=64GiB");
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_D2H; lane++)
        assert_true(p->link[lane].bytes_per_s.p50 == 2 * plain->link[lane].bytes_per_s.p50);
    assert_true(p->link[COH_LANE_READ].bytes_per_s.p90 == 7e9);
    assert_true(p->link[COH_LANE_WRITE].bytes_per_s.p50 ==
                plain->link[COH_LANE_WRITE].bytes_per_s.p50);
    assert_true(p->memory_bytes[COH_TIER_DEVICE] == UINT64_C(80000000000));
    assert_true(p->memory_bytes[COH_TIER_HOST] == (uint64_t)64 << 30);
    assert_true(p->flops_per_s[COH_ROOF_F32].p50 == plain->flops_per_s[COH_ROOF_F32].p50 / 2);
    assert_true(p->flops_per_s[COH_ROOF_BF16].p50 == 1e14 && p->memory_bytes_per_s.p50 == 1e12);
    assert_string_equal(p->name, "a100-40g,pcie=2x,disk-read=7GB/s,device-memory=80GB,flops=0.5x");
    uint64_t hashes[2];
    assert_int_equal(coh_profile_hash(plain, &hashes[0]), COH_OK);
    assert_int_equal(coh_profile_hash(p, &hashes[1]), COH_OK);
    assert_true(hashes[0] != hashes[1]);
    coh_profile_destroy(p);
    p = read_ok("rtx-3090,pcie=gen5"); /* 63.0 GB/s, as PCI-SIG rounds it */
    assert_true(p->link[COH_LANE_D2H].bytes_per_s.p50 > 63.0e9 &&
                p->link[COH_LANE_D2H].bytes_per_s.p50 < 63.1e9);
    coh_profile_destroy(p);
    coh_profile_destroy(plain);
}

/* Returns the price of an instruction with this opcode on the lane. */
static double instruction_ns(const coh_profile *profile, coh_opcode opcode, coh_lane lane)
{
    static const coh_layout no_layout;
    const coh_instruction instruction = {
        .opcode = (uint8_t)opcode, .lane = (uint8_t)lane, .call = -1, .bytes = 1000000
    };
    const coh_program program = { 0 };
    coh_pricer pricer;
    assert_int_equal(coh_pricer_init(&pricer, profile, NULL), COH_OK);
    const double ns = coh_price_instruction(&pricer, &no_layout, &program, &instruction).p50;
    coh_pricer_fini(&pricer);
    return ns;
}

/* Also if a sustained rate is given in addition to the initial one: 1 MB at 2 GB/s takes 0.5 ms,
 * and a drive of twice the rate takes half the time. Earlier calibration of the drive is
 * discarded. */
static void an_entry_of_a_link_is_what_its_instructions_are_priced_by(void **state)
{
    (void)state;
    static const struct {
        coh_lane lane;
        coh_opcode opcodes[2];
        const char *rate, *twice;
    } links[] = {
        { COH_LANE_H2D, { COH_OP_LOAD, COH_OP_LOAD }, "pcie=2GB/s", "pcie=2x" },
        { COH_LANE_D2H, { COH_OP_STORE, COH_OP_STORE }, "pcie=2GB/s", "pcie=2x" },
        { COH_LANE_READ, { COH_OP_READ, COH_OP_IMPORT }, "disk-read=2GB/s", "disk-read=2x" },
        { COH_LANE_WRITE, { COH_OP_WRITE, COH_OP_SAVE }, "disk-write=2GB/s", "disk-write=2x" },
    };
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        for (int o = 0; o < 2; o++) {
            const coh_lane lane = links[i].lane;
            const coh_opcode opcode = links[i].opcodes[o];
            coh_profile plain = some_profile(6), given = some_profile(6), twice = some_profile(6);
            const double before = instruction_ns(&plain, opcode, lane);
            given.calibration[opcode] = (coh_calibration){ .factor = 3, .runs = 2 };
            twice.calibration[opcode] = (coh_calibration){ .factor = 3, .runs = 2 };
            assert_int_equal(coh_profile_override(&given, links[i].rate), COH_OK);
            assert_int_equal(coh_profile_override(&twice, links[i].twice), COH_OK);
            assert_true(fabs(instruction_ns(&given, opcode, lane) - 5e5) < 1e-3);
            assert_true(fabs(instruction_ns(&twice, opcode, lane) - before / 2) < 1e-9 * before);
            coh_profile_fini(&plain);
            coh_profile_fini(&given);
            coh_profile_fini(&twice);
        }
}

/* The same as both rates multiplied by hand; checkpoints stay on one drive. The assumed drive of a
 * profile is one of the plan's; rates that were given or measured are those of all. */
static void drives_are_as_many_times_one_drive(void **state)
{
    (void)state;
    coh_profile *one = read_ok("a100-40g"), *four = read_ok("a100-40g,endurance=1000TB,drives=4");
    coh_profile *by_hand = read_ok("a100-40g,disk-read=4x,disk-write=4x");
    static const coh_lane lanes[] = { COH_LANE_READ, COH_LANE_WRITE };
    for (int i = 0; i < 2; i++) {
        const coh_lane lane = lanes[i];
        assert_true(four->link[lane].bytes_per_s.p50 == by_hand->link[lane].bytes_per_s.p50);
        assert_true(four->link[lane].bytes_per_s.p50 == 4 * one->link[lane].bytes_per_s.p50);
        assert_true(four->link[lane].latency_ns.p50 == one->link[lane].latency_ns.p50);
        const coh_opcode moves = i == 0 ? COH_OP_READ : COH_OP_WRITE;
        const coh_opcode keeps = i == 0 ? COH_OP_IMPORT : COH_OP_SAVE;
        assert_true(instruction_ns(four, moves, lane) < instruction_ns(one, moves, lane));
        assert_true(instruction_ns(four, keeps, COH_LANE_COMPUTE) ==
                    instruction_ns(one, keeps, COH_LANE_COMPUTE));
    }
    assert_true(four->memory_bytes[COH_TIER_DISK] == 4 * one->memory_bytes[COH_TIER_DISK]);
    assert_true(four->drive_endurance_bytes == 4 * UINT64_C(1000000000000000));
    assert_true(coh_profile_drive_is_assumed(one));
    assert_false(coh_profile_drive_is_assumed(four));
    assert_false(coh_profile_drive_is_assumed(by_hand));
    snprintf(one->drive, sizeof(one->drive), "ext4, device 8:0, 5 GiB + ext4, device 8:1, 5 GiB");
    assert_false(coh_profile_drive_is_assumed(one));
    assert_int_equal(coh_profile_drive_count(one), 2);
    coh_profile_destroy(by_hand);
    coh_profile_destroy(four);
    coh_profile_destroy(one);
}

static void a_measured_profile_with_entries_is_a_what_if_without_operators(void **state)
{
    (void)state;
    coh_profile p = some_profile(5), *q;
    coh_profile_summary s = { .struct_bytes = sizeof(s) };
    assert_int_equal(coh_profile_write(&p, "measured,1.json"), COH_OK);
    q = read_ok("measured,1.json");
    assert_int_equal(coh_profile_summarize(q, &s), COH_OK);
    assert_true(!s.is_what_if && !s.is_gpu && s.operator_count == OPERATORS);
    assert_string_equal(s.source, "measured");
    coh_profile_destroy(q);
    assert_int_equal(rename("measured,1.json", "measured.json"), 0);
    q = read_ok("measured.json,flops=2x");
    assert_int_equal(coh_profile_summarize(q, &s), COH_OK);
    assert_true(s.is_what_if && s.operator_count == 0 && s.origin_count == 1);
    coh_profile_destroy(q);
    q = read_ok("measured.json,disk-write=2x");
    assert_int_equal(q->operator_count, OPERATORS);
    coh_profile_destroy(q);
    unlink("measured.json");
    coh_profile_fini(&p);
}

static void wrong_names_and_entries_are_refused_with_what_there_is(void **state)
{
    (void)state;
    static const bad_case cases[] = {
        { NULL, "v100", "rtx-4090" },
        { NULL, "a100-40g,pci=2x", "disk-read" },
        { NULL, "a100-40g,pcie", "pcie=16GB/s" },
        { NULL, "a100-40g,pcie=gen6", "gen5" },
        { NULL, "a100-40g,pcie=0x", "pcie=2x" },
        { NULL, "a100-40g,pcie=-2x", "pcie=2x" },
        { NULL, "a100-40g,pair-link=9GB/s", "give node-link= before pair-link=" },
        { NULL, "a100-40g,topology=mi250x", "does not say how many ranks a node has" },
        { NULL, "a100-40g,topology=nowhere", "'nowhere' is neither a file nor a shipped profile" },
        { NULL, "a100-40g,topology", "neither a file nor a shipped profile" },
        { NULL, "a100-40g,pcie=nanx", "pcie=2x" },
        { NULL, "a100-40g,disk=gen4", "disk=80GB" },
        { NULL, "a100-40g,disk=none", "give disk none beside the profile" },
        { NULL, "a100-40g,host-memory=0GB", "give host memory none beside the profile" },
        { NULL, "a100-40g,disk=0x", "give disk none beside the profile" },
        { NULL, "a100-40g,flops=16GB/s", "312e12" },
        { NULL, "a100-40g,pcie=999B/s", "pcie becomes 999 a second" },
        { NULL, "a100-40g,flops=1e-6x,flops=1e-6x", "flops becomes" },
        { NULL, "a100-40g,flops=1e24,flops=1e6x,flops=1e6x", "to 1e+30" },
        { NULL, "a100-40g,endurance=2x", "no endurance to multiply" },
        { NULL, "a100-40g,disk=1e-6x,disk=1e-6x,disk=1e-6x", "less than a byte" },
        { NULL, "a100-40g,device-memory=1e6x,device-memory=1e6x", "too large" },
        { NULL, "a100-40g,", NULL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_profile *p = NULL;
        const coh_status status = coh_profile_read(cases[i].put, &p);
        if (cases[i].says == NULL)
            assert_int_equal(status, COH_OK);
        else if (status != COH_ERR_ARGUMENT || p || !strstr(coh_last_error(), cases[i].says))
            fail_msg("%s: %d %s", cases[i].put, (int)status, coh_last_error());
        coh_profile_destroy(p);
    }
}

/* A path that is too long is not called an unknown entry. */
static void an_entry_that_is_too_long_is_refused_for_its_length(void **state)
{
    (void)state;
    char list[1024] = "h100,topology=";
    coh_profile *p = NULL;
    memset(list + strlen(list), 'x', sizeof(list) - 1 - strlen(list));
    list[sizeof(list) - 1] = '\0';
    assert_int_equal(coh_profile_read(list, &p), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "is longer than 511 bytes"));
    assert_null(p);
}

static char folder[256];

static int enter_folder(void **state)
{
    (void)state;
    return temporary_folder(folder, sizeof(folder), "profile") != 0 || chdir(folder) != 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_again_to_the_bit_and_written_the_same),
        cmocka_unit_test(the_order_of_operators_does_not_change_the_file),
        cmocka_unit_test(every_shipped_datasheet_is_in_the_one_form_and_a_what_if),
        cmocka_unit_test(a_shipped_card_has_the_gib_that_a_run_may_take),
        cmocka_unit_test(a_topology_is_its_device_with_links),
        cmocka_unit_test(four_cards_share_the_host_of_one_machine),
        cmocka_unit_test(a_topology_without_pairs_leaves_no_source_of_their_link),
        cmocka_unit_test(everything_else_is_refused_with_its_place),
        cmocka_unit_test(no_damage_gets_past_the_seal),
        cmocka_unit_test(a_file_that_is_no_profile_is_not_replaced),
        cmocka_unit_test(what_would_not_be_read_again_is_not_written),
        cmocka_unit_test(figures_that_no_machine_has_are_refused),
        cmocka_unit_test(entries_replace_and_multiply),
        cmocka_unit_test(an_entry_of_a_link_is_what_its_instructions_are_priced_by),
        cmocka_unit_test(drives_are_as_many_times_one_drive),
        cmocka_unit_test(a_measured_profile_with_entries_is_a_what_if_without_operators),
        cmocka_unit_test(wrong_names_and_entries_are_refused_with_what_there_is),
        cmocka_unit_test(an_entry_that_is_too_long_is_refused_for_its_length),
    };
    return cmocka_run_group_tests(tests, enter_folder, remove_folder);
}
