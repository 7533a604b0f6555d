/* Runs the program on version numbers instead of data, in issue order, and checks every touch
 * against the clocks (rules READ, OVERWRITE, WRITE_ORDER, LOST_DATA, CLOSURE). The idea: if
 * conflicting touches are ordered by the clocks, one order proves all. The model of memory is in
 * verify_scene.h; extents are in verify_lifetime.c. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/verify_scene.h"

void coh_scene_set_version(coh_scene *scene, coh_scene_place *place, uint32_t chunk,
                           int64_t version)
{
    int64_t current = coh_scene_current(scene, chunk);
    scene->copies[chunk] += (version == current) - (place->version == current);
    place->version = version;
}

/* ---- one instruction ---- */

typedef struct instruction_instance {
    uint32_t run, index;
    uint32_t number; /* in its lane, over all runs */
    uint32_t instance;
    const uint32_t *clock;
    uint8_t lane, moves;
} instruction_instance;

static coh_scene_place *place_of(coh_scene *scene, const coh_touch *touch)
{
    return touch->extent == COH_EXTENT_FILE ? &scene->files[touch->chunk]
                                            : &scene->lives[scene->life_of[touch->extent]].place;
}

static coh_status check_read(coh_scene *scene, const instruction_instance *at,
                             const coh_touch *touch)
{
    const coh_scene_place *place = place_of(scene, touch);
    int64_t wanted = scene->base[touch->chunk] + touch->version;
    if (place->version != wanted) {
        if (place->version == COH_GARBAGE)
            COH_TRY(coh_verify_breach(scene->v, COH_RULE_READ, at->index, touch->chunk,
                                      "it wants version %" PRId32 " and finds nothing written",
                                      touch->version));
        else
            COH_TRY(coh_verify_breach(scene->v, COH_RULE_READ, at->index, touch->chunk,
                                      "it wants version %" PRId32 " and finds version %" PRId64,
                                      touch->version, place->version - scene->base[touch->chunk]));
    }
    if (place->writer > at->clock[place->writer_lane])
        COH_TRY(coh_verify_breach(
            scene->v, COH_RULE_READ, at->index, touch->chunk,
            "it does not wait for instruction %" PRIu32 " (%s), which writes "
            "version %" PRId32,
            place->writer_instruction,
            coh_opcode_name(
                (coh_opcode)scene->v->program->instructions[place->writer_instruction].opcode),
            touch->version));
    return COH_OK;
}

static coh_status check_write(coh_scene *scene, const instruction_instance *at,
                              const coh_touch *touch)
{
    const coh_scene_place *place = place_of(scene, touch);
    if (place->writer > at->clock[place->writer_lane])
        COH_TRY(coh_verify_breach(
            scene->v, COH_RULE_WRITE_ORDER, at->index, touch->chunk,
            "it does not wait for instruction %" PRIu32 " (%s), which wrote the same "
            "place",
            place->writer_instruction,
            coh_opcode_name(
                (coh_opcode)scene->v->program->instructions[place->writer_instruction].opcode)));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (place->readers[lane] > at->clock[lane])
            COH_TRY(coh_verify_breach(scene->v, COH_RULE_OVERWRITE, at->index, touch->chunk,
                                      "it writes version %" PRId32 " while instruction %" PRIu32
                                      " of the lane %s may still read what was there",
                                      touch->version,
                                      (place->readers[lane] - 1) % scene->v->lane_length[lane] + 1,
                                      coh_lane_name((coh_lane)lane)));
    return COH_OK;
}

static coh_status check_touch(coh_scene *scene, const instruction_instance *at,
                              const coh_operand *operand, const coh_touch *touch)
{
    uint32_t mark = scene->chunk_mark[touch->chunk];
    uint32_t access_before = mark / 4 == at->instance && !at->moves ? mark % 4 : 0;
    int is_read = operand->access & COH_ACCESS_READ,
        is_written = operand->access & COH_ACCESS_WRITE;
    if (touch->extent != COH_EXTENT_FILE && scene->extent_mark[touch->extent] != at->instance) {
        scene->extent_mark[touch->extent] = at->instance;
        COH_TRY(coh_scene_use(scene, at->run, at->index, touch->extent));
    }
    if (touch->extent != COH_EXTENT_FILE && scene->life_of[touch->extent] >= COH_LIFE_LEFT)
        return coh_verify_breach(scene->v, COH_RULE_OVERLAP, at->index, touch->chunk,
                                 "another operand of the instruction has taken the place of "
                                 "extent %" PRIu32,
                                 touch->extent);
    if ((access_before == COH_ACCESS_READ && is_written) ||
        ((access_before & COH_ACCESS_WRITE) && !is_written))
        COH_TRY(
            coh_verify_breach(scene->v, COH_RULE_FORM, at->index, touch->chunk,
                              "one operand reads it, another of the same instruction writes it"));
    if (touch->version != scene->writes[touch->chunk])
        COH_TRY(coh_verify_breach(
            scene->v, is_read ? COH_RULE_READ : COH_RULE_WRITE_ORDER, at->index, touch->chunk,
            "it names version %" PRId32 ", %" PRId64 " instructions have written the chunk",
            touch->version, scene->writes[touch->chunk]));
    if (is_read && !(access_before & COH_ACCESS_WRITE))
        COH_TRY(check_read(scene, at, touch));
    if (is_written && !(access_before & COH_ACCESS_WRITE))
        COH_TRY(check_write(scene, at, touch));
    scene->chunk_mark[touch->chunk] = at->instance * 4 + (access_before | operand->access);
    return COH_OK;
}

static void write_place(coh_scene *scene, const instruction_instance *at, coh_scene_place *place,
                        uint32_t chunk, int64_t version)
{
    coh_scene_set_version(scene, place, chunk, version);
    place->writer = at->number;
    place->writer_instruction = at->index;
    place->writer_lane = at->lane;
    memset(place->readers, 0, sizeof(place->readers));
}

/* Sets the versions that the operands hold after the instruction. */
static void apply_instruction(coh_scene *scene, const instruction_instance *at)
{
    const coh_instruction *instruction = &scene->v->program->instructions[at->index];
    const coh_operand *operands = coh_instruction_operands(scene->v, at->index);
    for (uint32_t o = 0; o < instruction->operand_count; o++) {
        const coh_touch *touches = coh_operand_touches(scene->v, &operands[o]);
        for (uint32_t t = 0; t < operands[o].touch_count; t++) {
            if (touches[t].extent != COH_EXTENT_FILE &&
                scene->life_of[touches[t].extent] == COH_LIFE_LEFT)
                continue; /* another operand has taken its place */
            coh_scene_place *place = place_of(scene, &touches[t]);
            uint32_t chunk = touches[t].chunk;
            if (!(operands[o].access & COH_ACCESS_WRITE)) {
                place->readers[at->lane] = at->number;
            } else if (at->moves) {
                const coh_scene_place *from =
                    place_of(scene, &coh_operand_touches(scene->v, &operands[0])[t]);
                write_place(scene, at, place, chunk, from->version);
            } else {
                if (scene->chunk_mark[chunk] != 0) { /* once per instruction */
                    scene->chunk_mark[chunk] = 0;
                    scene->writes[chunk]++;
                    scene->copies[chunk] = 0;
                }
                write_place(scene, at, place, chunk, coh_scene_current(scene, chunk));
            }
        }
    }
}

/* Leaves the extents of an operand that no other instruction uses. */
static coh_status release_operand(coh_scene *scene, uint32_t index, const coh_operand *operand)
{
    for (uint32_t t = operand->touch_begin; t < operand->touch_begin + operand->touch_count; t++) {
        const uint32_t extent = scene->v->program->touches[t].extent;
        if (extent != COH_EXTENT_FILE)
            COH_TRY(coh_scene_release(scene, index, extent, scene->live_after[t]));
    }
    return COH_OK;
}

static coh_status run_instruction(coh_scene *scene, uint32_t run, uint32_t index)
{
    coh_verifier *v = scene->v;
    const coh_instruction *instruction = &v->program->instructions[index];
    const coh_operand *operands = coh_instruction_operands(v, index);
    instruction_instance at = {
        .run = run,
        .index = index,
        .lane = instruction->lane,
        .number = run * v->lane_length[instruction->lane] + v->ordinals[index],
        .instance = run * v->program->instruction_count + index + 1,
        .clock = coh_instruction_clock(v, run, index),
        .moves =
            (uint8_t)(coh_opcode_moves(instruction->opcode) && instruction->operand_count == 2 &&
                      operands[0].touch_count == operands[1].touch_count)
    };
    for (uint32_t o = 0; o < instruction->operand_count; o++) {
        if (operands[o].takes > 0)
            COH_TRY(release_operand(scene, index, &operands[operands[o].takes - 1]));
        for (uint32_t t = 0; t < operands[o].touch_count; t++)
            COH_TRY(check_touch(scene, &at, &operands[o],
                                &v->program->touches[operands[o].touch_begin + t]));
    }
    apply_instruction(scene, &at);
    for (uint32_t o = 0; o < instruction->operand_count; o++)
        COH_TRY(release_operand(scene, index, &operands[o]));
    return COH_OK;
}

/* ---- before and after a run ---- */

/* Walks the instructions backwards: a chunk is live if the next compute instruction that touches
 * it reads it, or if there is none and the chunk survives. Also counts the writes of one run. */
static void mark_live(coh_scene *scene)
{
    const coh_verifier *v = scene->v;
    uint32_t *live = v->chunk_stamps;
    for (uint32_t c = 0; c < v->layout->chunk_count; c++)
        live[c] = coh_chunk_object(v, c)->survives;
    for (uint32_t i = v->program->instruction_count; i-- > 0;) {
        const coh_instruction *instruction = &v->program->instructions[i];
        const coh_operand *operands = coh_instruction_operands(v, i);
        for (uint32_t o = 0; o < instruction->operand_count; o++)
            for (uint32_t t = 0; t < operands[o].touch_count; t++) {
                uint32_t touch = operands[o].touch_begin + t;
                scene->live_after[touch] = (uint8_t)live[v->program->touches[touch].chunk];
            }
        /* the first operand of an instruction that touches a chunk decides: a later one only
         * adds to it */
        for (uint32_t o = instruction->operand_count;
             !coh_opcode_moves(instruction->opcode) && o-- > 0;)
            for (uint32_t t = 0; t < operands[o].touch_count; t++) {
                uint32_t chunk = coh_operand_touches(v, &operands[o])[t].chunk;
                live[chunk] = (operands[o].access & COH_ACCESS_READ) ? 1 : 0;
                if ((operands[o].access & COH_ACCESS_WRITE) && scene->chunk_mark[chunk] != i + 1) {
                    scene->chunk_mark[chunk] = i + 1;
                    scene->writes_per_run[chunk]++;
                }
            }
    }
    memset(v->chunk_stamps, 0, v->layout->chunk_count * sizeof(*v->chunk_stamps));
    memset(scene->chunk_mark, 0, v->layout->chunk_count * sizeof(*scene->chunk_mark));
}

static coh_status begin_run(coh_scene *scene, uint32_t run)
{
    const coh_verifier *v = scene->v;
    for (uint32_t c = 0; c < v->layout->chunk_count; c++) {
        const coh_object *object = coh_chunk_object(v, c);
        int is_in_file =
            object->survives && !object->pinned && v->layout->file_bytes > 0 &&
            (coh_scene_home(scene, c) == COH_TIER_DISK || coh_chunk_is_read_only(v->layout, c));
        if (!is_in_file || (run == 0 && coh_scene_starts_empty(scene)))
            scene->files[c].version = COH_GARBAGE;
        else if (run == 0)
            scene->files[c].version = 0;
        /* a chunk that does not survive skips a number, so that no place holds the new run's
         * version 0 */
        scene->base[c] = run * (scene->writes_per_run[c] + (object->survives ? 0 : 1));
        scene->writes[c] = 0;
    }
    COH_TRY(coh_scene_begin_lives(scene, run));
    for (uint32_t c = 0; c < v->layout->chunk_count; c++)
        scene->copies[c] = scene->files[c].version == scene->base[c];
    for (uint32_t e = 0; e < v->program->extent_count; e++) {
        uint32_t chunk = v->program->extents[e].chunk;
        if (v->program->extents[e].at_begin && coh_scene_version(scene, e) == scene->base[chunk])
            scene->copies[chunk]++;
    }
    return COH_OK;
}

/* Checks that every tier that holds a read-only chunk between programs holds its current
 * version. */
static coh_status check_read_only(coh_scene *scene, uint32_t chunk)
{
    coh_verifier *v = scene->v;
    int64_t current = coh_scene_current(scene, chunk);
    uint32_t extent = scene->end_extent[coh_tier_chunk(scene, COH_TIER_HOST, chunk)];
    if (v->layout->file_bytes > 0 && scene->files[chunk].version != current)
        COH_TRY(coh_verify_breach(v, COH_RULE_LOST_DATA, COH_NO_INSTRUCTION, chunk,
                                  "at the end its version %" PRId64 " is not in the file, which "
                                  "nothing will write again",
                                  scene->writes[chunk]));
    if (extent != 0 && coh_scene_version(scene, extent - 1) != current)
        COH_TRY(coh_verify_breach(v, COH_RULE_CLOSURE, COH_NO_INSTRUCTION, chunk,
                                  "at the end its version %" PRId64 " is not in the host tier, "
                                  "which nothing will write again",
                                  scene->writes[chunk]));
    return COH_OK;
}

/* Checks that every survivor lies, in its latest version, where the next program expects it. */
static coh_status end_run(coh_scene *scene)
{
    coh_verifier *v = scene->v;
    COH_TRY(coh_scene_end_lives(scene));
    for (uint32_t c = 0; c < v->layout->chunk_count; c++) {
        const coh_object *object = coh_chunk_object(v, c);
        coh_tier home = coh_scene_home(scene, c);
        if (!object->survives || object->pinned)
            continue;
        int64_t current = coh_scene_current(scene, c);
        if (coh_chunk_is_read_only(v->layout, c))
            COH_TRY(check_read_only(scene, c));
        if (home == COH_TIER_DISK && v->layout->file_bytes == 0) {
            COH_TRY(coh_verify_breach(v, COH_RULE_CLOSURE, COH_NO_INSTRUCTION, c,
                                      "it survives and has neither a boundary entry nor a disk"));
        } else if (home == COH_TIER_DISK) {
            if (scene->files[c].version != current)
                COH_TRY(coh_verify_breach(
                    v, COH_RULE_LOST_DATA, COH_NO_INSTRUCTION, c,
                    "at the end its version %" PRId64 " is not in the file, the file has %" PRId64,
                    scene->writes[c], scene->files[c].version - scene->base[c]));
        } else {
            uint32_t extent = scene->end_extent[coh_tier_chunk(scene, (int)home, c)];
            if (extent != 0 && coh_scene_version(scene, extent - 1) != current)
                COH_TRY(coh_verify_breach(v, COH_RULE_CLOSURE, COH_NO_INSTRUCTION, c,
                                          "at the end its version %" PRId64
                                          " is not at its boundary entry in the %s tier",
                                          scene->writes[c], coh_tier_name(home)));
        }
    }
    return COH_OK;
}

/* ---- all runs ---- */

static coh_status scene_init(coh_scene *scene)
{
    size_t chunks = scene->v->layout->chunk_count, extents = scene->v->program->extent_count;
    COH_TRY(COH_ALLOC(chunks, &scene->files));
    COH_TRY(COH_ALLOC(chunks, &scene->writes));
    COH_TRY(COH_ALLOC(chunks, &scene->writes_per_run));
    COH_TRY(COH_ALLOC(chunks, &scene->base));
    COH_TRY(COH_ALLOC(chunks, &scene->copies));
    COH_TRY(COH_ALLOC(2 * chunks, &scene->resident));
    COH_TRY(COH_ALLOC(2 * chunks, &scene->begin_extent));
    COH_TRY(COH_ALLOC(2 * chunks, &scene->end_extent));
    COH_TRY(COH_ALLOC(chunks, &scene->chunk_mark));
    COH_TRY(COH_ALLOC(scene->v->program->touch_count, &scene->live_after));
    COH_TRY(COH_ALLOC(extents, &scene->life_of));
    COH_TRY(COH_ALLOC(extents, &scene->next_life_of));
    COH_TRY(COH_ALLOC(extents, &scene->used));
    COH_TRY(COH_ALLOC(extents, &scene->extent_mark));
    COH_TRY(COH_ALLOC(extents, &scene->cell_begin));
    return COH_ALLOC(extents, &scene->cell_end);
}

static void scene_fini(coh_scene *scene)
{
    coh_free(scene->files);
    coh_free(scene->writes);
    coh_free(scene->writes_per_run);
    coh_free(scene->base);
    coh_free(scene->copies);
    coh_free(scene->resident);
    coh_free(scene->begin_extent);
    coh_free(scene->end_extent);
    coh_free(scene->chunk_mark);
    coh_free(scene->live_after);
    coh_free(scene->life_of);
    coh_free(scene->next_life_of);
    coh_free(scene->used);
    coh_free(scene->extent_mark);
    coh_free(scene->cell_begin);
    coh_free(scene->cell_end);
    coh_free(scene->lives);
    coh_free(scene->unused_lives);
    coh_free(scene->heads);
    coh_free(scene->tenants);
}

static coh_status run_all(coh_scene *scene)
{
    COH_TRY(coh_scene_map(scene));
    mark_live(scene);
    for (uint32_t run = 0; run < scene->v->run_count; run++) {
        scene->v->run = run;
        coh_verify_clocks(scene->v, run);
        COH_TRY(begin_run(scene, run));
        for (uint32_t i = 0; i < scene->v->program->instruction_count; i++)
            COH_TRY(run_instruction(scene, run, i));
        COH_TRY(end_run(scene));
    }
    scene->v->run = 0;
    return COH_OK;
}

coh_status coh_verify_bytes(coh_verifier *v)
{
    coh_scene scene = { .v = v };
    coh_status status = scene_init(&scene);
    if (status == COH_OK)
        status = run_all(&scene);
    scene_fini(&scene);
    return status;
}
