/* libFuzzer target: a chat template. It is refused with a line that names the place, or it writes a
 * conversation, twice the same text, with an origin of each byte. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_refusal(void)
{
    check(strstr(coh_last_error(), "fuzzed:") && !strchr(coh_last_error(), '\n'));
}

static void run_twice(coh_jinja *program)
{
    static const char question[] = " Who?\n", answer[] = "<think>\n\xc3\xa9</think>\n{{ I }}";
    const coh_chat_turn turns[] = {
        { COH_CHAT_SYSTEM, "Be brief.", 9 },
        { COH_CHAT_USER, question, sizeof(question) - 1 },
        { COH_CHAT_ASSISTANT, answer, sizeof(answer) - 1 },
    };
    const coh_jinja_input input = { turns, 3, 1, { "<s>", 3 }, { "</s>", 4 } };
    coh_jinja_text texts[2] = { { 0 } };
    coh_status statuses[2];
    for (int i = 0; i < 2; i++) {
        statuses[i] = coh_jinja_render(program, &input, &texts[i]);
        check(statuses[i] == COH_OK || statuses[i] == COH_ERR_CORRUPT);
        if (statuses[i] != COH_OK)
            check_refusal();
    }
    check(statuses[0] == statuses[1] && texts[0].count == texts[1].count);
    for (size_t i = 0; i < texts[0].count; i++)
        check(texts[0].bytes[i] == texts[1].bytes[i] &&
              texts[0].origins[i] == texts[1].origins[i] &&
              (texts[0].origins[i] & (COH_JINJA_ANSWER - 1)) <= 3);
    coh_jinja_text_free(&texts[0]);
    coh_jinja_text_free(&texts[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    coh_jinja *program;
    char *text; /* with a NUL after its end */
    check(COH_ALLOC(count + 1, &text) == COH_OK);
    if (count)
        memcpy(text, bytes, count);
    const coh_status status = coh_jinja_open("fuzzed", text, &program);
    check(status == COH_OK || status == COH_ERR_CORRUPT);
    if (status == COH_OK)
        run_twice(program);
    else
        check(!program && !strchr(coh_last_error(), '\n'));
    coh_jinja_close(program);
    coh_free(text);
    return 0;
}
