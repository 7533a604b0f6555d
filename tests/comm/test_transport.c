/* Properties of every transport: random plans in any order of lines, refusals of plans that do not
 * match, meetings, and stops, which reach a rank wherever it waits. */
#include "tests/comm/ranks.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/thread.h"
#include "tests/faults/alloc_faults.h"
#include "tests/length.h"

/* Ends a body with a sentence; the world stops, and ranks_expect shows it. */
#define NEED_TRUE(condition)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return coh_transport_stop(transport, COH_ERR_INTERNAL, "is false: " #condition);       \
    } while (0)

static ranks_end ends[RANKS_MOST];

/* ---- random plans ---- */

enum { MESSAGES = 40, LINES = 5, ROUNDS = 6, BYTES_MOST = 3000 };

/* Message k from one rank to another; the line of each side is drawn, too. */
typedef struct drawn {
    int32_t from, to, from_line, to_line;
    size_t bytes;
} drawn;

typedef struct scene {
    uint64_t seed;
    int32_t rank_count;
    drawn messages[MESSAGES]; /* in the order of both plans */
} scene;

static int32_t draw(const scene *s, uint64_t stream, uint64_t at, int32_t below)
{
    return (int32_t)coh_rng_below(s->seed, stream, at, (uint64_t)below);
}

/* Lines of a rank begin one after the other, so a message may not lie in an earlier line than the
 * message before it: lines follow the number of the message, by another border on each rank. */
static int32_t draw_line(const scene *s, int32_t rank, int message)
{
    int32_t line = 0;
    for (int border = 1; border < LINES; border++)
        line += message >= draw(s, 100 + (uint64_t)rank, (uint64_t)border, MESSAGES);
    return line;
}

static void draw_scene(scene *s, uint64_t seed)
{
    *s = (scene){ .seed = seed };
    s->rank_count = ranks_pick(2 + draw(s, 0, 0, RANKS_MOST - 1));
    for (int i = 0; i < MESSAGES; i++) {
        drawn *m = &s->messages[i];
        m->from = draw(s, 1, (uint64_t)i, s->rank_count);
        m->to = (m->from + 1 + draw(s, 2, (uint64_t)i, s->rank_count - 1)) % s->rank_count;
        m->from_line = draw_line(s, m->from, i);
        m->to_line = draw_line(s, m->to, i);
        m->bytes = 1 + (size_t)draw(s, 3, (uint64_t)i, i % 4 == 0 ? BYTES_MOST : 64);
    }
}

static unsigned char byte_of(const scene *s, int message, int round, size_t i)
{
    return (unsigned char)coh_rng_u64(s->seed + 17, (uint64_t)message * ROUNDS + (uint64_t)round,
                                      i);
}

typedef unsigned char memories[MESSAGES][BYTES_MOST];

static coh_status make_plan(const scene *s, int32_t rank, coh_link_plan *plan, memories *memory)
{
    for (int line = 0; line < LINES; line++) {
        uint32_t number;
        COH_TRY(coh_link_plan_begin(plan, &number));
        for (int i = 0; i < MESSAGES; i++) {
            const drawn *m = &s->messages[i];
            if (m->from == rank && m->from_line == line)
                COH_TRY(coh_link_plan_send(plan, m->to, (*memory)[i], m->bytes));
            if (m->to == rank && m->to_line == line)
                COH_TRY(coh_link_plan_receive(plan, m->from, (*memory)[i], m->bytes));
        }
    }
    return COH_OK;
}

/* Starts all lines in one random order and waits for them in another: no order may hang. */
static coh_status run_round(const scene *s, coh_transport *transport, memories *memory, int round)
{
    const uint32_t first = (uint32_t)draw(s, 4 + (uint64_t)transport->rank, (uint64_t)round, LINES);
    const uint32_t step = 1 + (uint32_t)draw(s, 20 + (uint64_t)transport->rank, (uint64_t)round, 4);
    for (int i = 0; i < MESSAGES; i++)
        for (size_t k = 0; k < s->messages[i].bytes; k++)
            (*memory)[i][k] =
                s->messages[i].from == transport->rank ? byte_of(s, i, round, k) : 0x5a;
    for (uint32_t i = 0; i < LINES; i++)
        COH_TRY(coh_transport_start(transport, (first + i) % LINES));
    for (uint32_t i = 0; i < LINES; i++) { /* 5 is a prime */
        const uint32_t line = (first + 3 + i * step) % LINES;
        int is_done = 0;
        COH_TRY(coh_transport_wait(transport, line));
        COH_TRY(coh_transport_test(transport, line, &is_done));
        NEED_TRUE(is_done);
    }
    for (int i = 0; i < MESSAGES; i++)
        for (size_t k = 0; k < s->messages[i].bytes && s->messages[i].to == transport->rank; k++)
            NEED_TRUE((*memory)[i][k] == byte_of(s, i, round, k));
    return COH_OK;
}

static coh_status play(coh_transport *transport, void *argument)
{
    const scene *s = argument;
    memories *memory = calloc(1, sizeof(*memory));
    coh_link_plan plan = { 0 };
    coh_status status = make_plan(s, transport->rank, &plan, memory);
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    coh_link_plan_fini(&plan); /* the transport has copied it */
    for (int round = 0; round < ROUNDS && status == COH_OK; round++)
        status = run_round(s, transport, memory, round);
    if (status == COH_OK)
        status = coh_transport_gather(transport, NULL, 0, NULL);
    coh_transport_close(transport);
    free(memory);
    return status;
}

static void lines_may_start_and_end_in_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= test_cases(40); seed++) {
        scene s;
        const transport_fault_plan delays = { .seed = seed, .fail_at = -1, .delay_most_us = 100 };
        draw_scene(&s, seed);
        transport_fault_plan_set(seed % 2 == 0 ? &delays : NULL);
        ranks_run(s.rank_count, play, &s, ends);
        ranks_expect(s.rank_count, ends, COH_OK, "");
    }
    transport_fault_plan_set(NULL);
}

/* ---- memory ---- */

static coh_status bind_given(coh_transport *transport, void *argument)
{
    const coh_link_plan *plans = argument;
    coh_status status = coh_transport_bind(transport, &plans[transport->rank]);
    if (status == COH_OK)
        status = coh_transport_gather(transport, NULL, 0, NULL);
    coh_transport_close(transport);
    return status;
}

static void each_allocation_of_bind_that_fails_ends_all(void **state)
{
    (void)state;
    static memories memory;
    coh_link_plan plans[RANKS_MOST] = { 0 };
    scene s;
    draw_scene(&s, 3);
    for (int32_t rank = 0; rank < s.rank_count; rank++)
        assert_int_equal(make_plan(&s, rank, &plans[rank], &memory), COH_OK);
    for (uint64_t n = 2;; n++) { /* the first one makes the world */
        alloc_fail_nth(n);
        ranks_run(s.rank_count, bind_given, plans, ends);
        const int hit = ranks_any(alloc_fault_was_hit());
        alloc_fail_nth(0);
        ranks_expect(s.rank_count, ends, hit ? COH_ERR_MEMORY : COH_OK, hit ? "rank " : "");
        if (!hit)
            break;
    }
    for (int32_t rank = 0; rank < s.rank_count; rank++)
        coh_link_plan_fini(&plans[rank]);
}

/* ---- plans that are refused ---- */

typedef struct bad_plan {
    coh_link links[2][2]; /* of ranks 0 and 1, one line each */
    int link_counts[2];
    const char *sentence;
} bad_plan;

static unsigned char sent[64], got[64];

static coh_status bind_only(coh_transport *transport, void *argument)
{
    const bad_plan *bad = argument;
    coh_link_plan plan = { 0 };
    uint32_t line;
    coh_status status = coh_link_plan_begin(&plan, &line);
    for (int i = 0; transport->rank < 2 && i < bad->link_counts[transport->rank]; i++) {
        const coh_link *link = &bad->links[transport->rank][i];
        if (status == COH_OK)
            status = coh_link_plan_send(&plan, link->peer, link->from, link->bytes);
        plan.links[plan.link_count - 1].to = link->to;
    }
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    coh_link_plan_fini(&plan);
    coh_transport_close(transport);
    return status;
}

static void a_plan_without_its_other_side_is_refused_on_all_ranks(void **state)
{
    (void)state;
    static const bad_plan cases[] = {
        { { { { 1, 64, sent, NULL } }, { { 0, 32, NULL, got } } },
          { 1, 1 },
          "rank 0: line 0 sends 64 bytes to rank 1, whose line 0 receives 32" },
        { { { { 1, 8, sent, NULL }, { 1, 8, sent, NULL } }, { { 0, 8, NULL, got } } },
          { 2, 1 },
          "rank 0: line 0 sends 8 bytes to rank 1, which receives fewer messages from here" },
        { { { { 1, 8, sent, NULL } }, { { 0, 8, NULL, got }, { 0, 8, NULL, got } } },
          { 1, 2 },
          "rank 1: line 0 receives 8 bytes from rank 0, which sends fewer messages here" },
        { { { { 0, 8, sent, NULL } } }, { 1, 0 }, "rank 0: link 0 has peer 0, 8 bytes" },
        { { { { RANKS_MOST, 8, sent, NULL } } }, { 1, 0 }, "rank 0: link 0 has peer 8" },
        { { { { -1, 8, sent, NULL } } }, { 1, 0 }, "rank 0: link 0 has peer -1" },
        { { { { 1, 0, sent, NULL } }, { { 0, 0, NULL, got } } }, { 1, 0 }, "link 0 has peer 1, 0" },
        { { { { 1, 8, NULL, NULL } } }, { 1, 0 }, "no or two" },
        { { { { 1, 8, sent, got } } }, { 1, 0 }, "no or two" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int32_t count = ranks_pick(3);
        ranks_run(count, bind_only, (void *)&cases[i], ends);
        ranks_expect(count, ends, COH_ERR_ARGUMENT, cases[i].sentence);
    }
}

static coh_status bind_collective(coh_transport *transport, void *argument)
{
    const int32_t all[] = { 0, 1 };
    coh_link_plan plan = { 0 };
    uint32_t line, group = 0;
    coh_status status = coh_link_plan_begin(&plan, &line);
    (void)argument;
    if (status == COH_OK)
        status = coh_link_plan_group(&plan, all, 2, transport->rank, &group);
    if (status == COH_OK)
        status = coh_link_plan_collective(
            &plan, (coh_collective){ .group = group, .from = sent, .to = got, .part_bytes = 8 });
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    coh_link_plan_fini(&plan);
    coh_transport_close(transport);
    return status;
}

/* Else the line would be without messages, and done at once. */
static void a_collective_is_refused_where_there_are_none(void **state)
{
    (void)state;
    const int32_t count = ranks_pick(2);
    ranks_run(count, bind_collective, NULL, ends);
    ranks_expect(count, ends, COH_ERR_ARGUMENT, "has no collectives, and the plan has 1");
}

/* ---- mistakes in the order of calls ---- */

typedef enum mistake {
    UNKNOWN_LINE,
    STARTED_TWICE,
    BOUND_TWICE,
    OTHER_SIZE,
    OTHER_CALL,
    LEFT_EARLY,
    STOPPED,
    MISTAKES
} mistake;

/* Rank 0 makes the mistake, the others wait for its bytes, or for it in a meeting. */
static coh_status make_mistake(coh_transport *transport, mistake what)
{
    const coh_link_plan none = { 0 };
    char record[8] = { 0 };
    switch (what) {
    case UNKNOWN_LINE:
        return coh_transport_start(transport, 1);
    case STARTED_TWICE:
        COH_TRY(coh_transport_start(transport, 0));
        return coh_transport_start(transport, 0);
    case BOUND_TWICE:
        return coh_transport_bind(transport, &none);
    case OTHER_SIZE:
        return coh_transport_share(transport, record, sizeof(record));
    case OTHER_CALL:
        return coh_transport_gather(transport, record, 4, record);
    case STOPPED:
        return coh_transport_stop(transport, COH_ERR_NUMBER, "enough");
    case LEFT_EARLY:
    case MISTAKES:
        break;
    }
    return COH_OK;
}

/* Tests a line until it is done. */
static coh_status poll_line(coh_transport *transport, uint32_t line)
{
    int is_done = 0;
    COH_TRY(coh_transport_start(transport, line));
    while (!is_done) {
        COH_TRY(coh_transport_test(transport, line, &is_done));
        (void)sched_yield();
    }
    return COH_OK;
}

/* A line in which each other rank waits for bytes of rank 0. */
static coh_status make_star(coh_link_plan *plan, int32_t rank, int32_t rank_count,
                            unsigned char (*received)[16])
{
    static const unsigned char from[16];
    uint32_t line;
    COH_TRY(coh_link_plan_begin(plan, &line));
    for (int32_t peer = 0; peer < rank_count; peer++)
        if ((rank == 0) != (peer == 0)) {
            COH_TRY(coh_link_plan_send(plan, peer, from, sizeof(from)));
            COH_TRY(coh_link_plan_receive(plan, peer, received[peer], sizeof(from)));
        }
    return COH_OK;
}

static coh_status err(coh_transport *transport, void *argument)
{
    const mistake what = *(const mistake *)argument;
    const int32_t rank = transport->rank;
    /* Nobody sends to the one that starts twice, so that its line is not done. */
    const int meets = what == OTHER_SIZE || what == OTHER_CALL || what == STARTED_TWICE;
    unsigned char received[RANKS_MOST][16];
    coh_link_plan plan = { 0 };
    coh_status status = make_star(&plan, rank, transport->rank_count, received);
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    if (status == COH_OK && rank == 0)
        status = make_mistake(transport, what);
    else if (status == COH_OK && (meets || rank == 1))
        status = coh_transport_share(transport, received, 4);
    else if (status == COH_OK)
        status = poll_line(transport, 0);
    coh_link_plan_fini(&plan);
    coh_transport_close(transport);
    return status;
}

static void a_mistake_of_one_rank_ends_all(void **state)
{
    (void)state;
    static const char *const sentences[MISTAKES] = {
        [UNKNOWN_LINE] = "rank 0: there is no line 1: 1 lines are bound",
        [STARTED_TWICE] = "rank 0: line 0 is started again before it is done",
        [BOUND_TWICE] = "rank 0: a transport binds one link plan",
        [OTHER_SIZE] = "share with 8",
        [OTHER_CALL] = " calls gather with 4",
        [LEFT_EARLY] = "rank 0: it has left the world",
        [STOPPED] = "rank 0: enough",
    };
    for (mistake what = UNKNOWN_LINE; what < MISTAKES; what++)
        for (int times = 0; times < (test_is_brief() ? 3 : 10); times++) {
            const int32_t count = ranks_pick(3);
            ranks_run(count, err, &what, ends);
            if (what == LEFT_EARLY) { /* rank 0 itself has no failure */
                assert_int_equal(ends[0].status, COH_OK);
                ends[0] = ends[1];
            }
            ranks_expect(count, ends, what == STOPPED ? COH_ERR_NUMBER : COH_ERR_ARGUMENT,
                         sentences[what]);
        }
}

/* ---- meetings ---- */

static coh_status meet_often(coh_transport *transport, void *argument)
{
    (void)argument;
    coh_status status = COH_OK;
    for (int32_t round = 0; round < 50 && status == COH_OK; round++) {
        int32_t record[2] = { transport->rank, round }, all[RANKS_MOST][2];
        int32_t shared = 1000 * transport->rank + round;
        status = coh_transport_gather(transport, record, sizeof(record), all);
        for (int32_t i = 0; i < transport->rank_count && status == COH_OK; i++)
            if (all[i][0] != i || all[i][1] != round)
                status = coh_transport_stop(transport, COH_ERR_INTERNAL, "another record");
        record[0] = record[1] = -1; /* the others have read it */
        if (status == COH_OK)
            status = coh_transport_share(transport, &shared, sizeof(shared));
        if (status == COH_OK && shared != round)
            status = coh_transport_stop(transport, COH_ERR_INTERNAL, "other shared bytes");
    }
    if (status == COH_OK)
        status = coh_transport_gather(transport, NULL, 0, NULL);
    coh_transport_close(transport);
    return status;
}

static void records_and_shared_bytes_reach_all(void **state)
{
    (void)state;
    for (int32_t rank_count = 1; rank_count <= RANKS_MOST; rank_count++) {
        if (!ranks_can(rank_count))
            continue;
        const transport_fault_plan delays = { .seed = (uint64_t)rank_count,
                                              .fail_at = -1,
                                              .delay_most_us = 50 };
        transport_fault_plan_set(rank_count % 2 == 0 ? &delays : NULL);
        ranks_run(rank_count, meet_often, NULL, ends);
        ranks_expect(rank_count, ends, COH_OK, "");
    }
    transport_fault_plan_set(NULL);
}

/* ---- stops ---- */

/* Every rank stops the world at a random moment of random work. */
static coh_status stop_anywhere(coh_transport *transport, void *argument)
{
    const scene *s = argument;
    memories *memory = calloc(1, sizeof(*memory));
    coh_link_plan plan = { 0 };
    const int at = draw(s, 60, (uint64_t)transport->rank, ROUNDS + 1);
    char sentence[32];
    (void)snprintf(sentence, sizeof(sentence), "stop %d", at);
    coh_status status = make_plan(s, transport->rank, &plan, memory);
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    coh_link_plan_fini(&plan);
    for (int round = 0; round < at && status == COH_OK; round++)
        status = run_round(s, transport, memory, round);
    if (status == COH_OK)
        status = coh_transport_stop(transport, COH_ERR_STOPPED, sentence);
    coh_transport_close(transport); /* from here on nobody may touch the memory */
    memset(memory, 0, sizeof(*memory));
    free(memory);
    return status;
}

static void the_first_stop_reaches_all(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= test_cases(100); seed++) {
        scene s;
        draw_scene(&s, seed);
        ranks_run(s.rank_count, stop_anywhere, &s, ends);
        ranks_expect(s.rank_count, ends, COH_ERR_STOPPED, ": stop ");
    }
}

/* Meets until the world stops, each time with a record that is freed at once. Rank 0 has a second
 * thread that stops it at some moment. */
static void *stop_soon(void *argument)
{
    coh_transport *transport = argument;
    for (int i = 0; i < 20 + 3 * transport->rank_count; i++)
        (void)sched_yield();
    (void)coh_transport_stop(transport, COH_ERR_STOPPED, "from another thread");
    return NULL;
}

static coh_status meet_until_stopped(coh_transport *transport, void *argument)
{
    enum { BYTES = 20000 };
    pthread_t second;
    coh_status status = COH_OK;
    (void)argument;
    if (transport->rank == 0 && coh_thread_start(&second, stop_soon, transport) != 0)
        return COH_ERR_MEMORY;
    for (int round = 0; status == COH_OK; round++) {
        unsigned char *record = calloc(1, BYTES), *all = malloc(RANKS_MOST * (size_t)BYTES);
        status = round % 2 == 0 ? coh_transport_gather(transport, record, BYTES, all)
                                : coh_transport_share(transport, record, BYTES);
        memset(record, 1, BYTES);
        free(record);
        free(all);
    }
    if (transport->rank == 0)
        (void)pthread_join(second, NULL);
    coh_transport_close(transport);
    return status;
}

static void a_stop_in_a_meeting_leaves_no_record_behind(void **state)
{
    (void)state;
    for (int times = 0; times < (test_is_brief() ? 30 : 60); times++) {
        const int32_t count = ranks_pick(2 + times % 3);
        ranks_run(count, meet_until_stopped, NULL, ends);
        ranks_expect(count, ends, COH_ERR_STOPPED, "rank 0: from another thread");
    }
}

/* A rank may leave after a barrier: lines that are done remain so, also for a rank that looks
 * later. */
static coh_status look_late(coh_transport *transport, void *argument)
{
    (void)argument;
    unsigned char from[4] = { 1, 2, 3, 4 }, to[4] = { 0 };
    const int32_t count = transport->rank_count;
    coh_link_plan plan = { 0 };
    uint32_t line;
    int is_done = 0;
    coh_status status = coh_link_plan_begin(&plan, &line);
    if (status == COH_OK)
        status = coh_link_plan_send(&plan, (transport->rank + 1) % count, from, sizeof(from));
    if (status == COH_OK)
        status =
            coh_link_plan_receive(&plan, (transport->rank + count - 1) % count, to, sizeof(to));
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    if (status == COH_OK)
        status = coh_transport_start(transport, line);
    if (status == COH_OK)
        status = coh_transport_gather(transport, NULL, 0, NULL);
    for (int i = 0; i < 20 && status == COH_OK && transport->rank > 0; i++) {
        status = coh_transport_wait(transport, line);
        if (status == COH_OK)
            status = coh_transport_test(transport, line, &is_done);
        if (status == COH_OK && (!is_done || memcmp(from, to, sizeof(to)) != 0))
            status = coh_transport_stop(transport, COH_ERR_INTERNAL, "the line was not done");
    }
    coh_link_plan_fini(&plan);
    coh_transport_close(transport);
    return status;
}

static void a_rank_may_leave_after_a_barrier(void **state)
{
    (void)state;
    for (int times = 0; times < 50; times++) {
        const int32_t count = ranks_pick(2);
        ranks_run(count, look_late, NULL, ends);
        ranks_expect(count, ends, COH_OK, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_may_start_and_end_in_any_order),
        cmocka_unit_test(each_allocation_of_bind_that_fails_ends_all),
        cmocka_unit_test(a_plan_without_its_other_side_is_refused_on_all_ranks),
        cmocka_unit_test(a_collective_is_refused_where_there_are_none),
        cmocka_unit_test(a_mistake_of_one_rank_ends_all),
        cmocka_unit_test(records_and_shared_bytes_reach_all),
        cmocka_unit_test(the_first_stop_reaches_all),
        cmocka_unit_test(a_stop_in_a_meeting_leaves_no_record_behind),
        cmocka_unit_test(a_rank_may_leave_after_a_barrier),
    };
    return cmocka_run_group_tests(tests, ranks_set_up, ranks_tear_down);
}
