/* Calls every public function with every argument broken in turn (write_calls.py): each call must
 * return a status and a message. A child process runs the cases of one function and names each case
 * before it begins, so a signal is reported with its case, and a new child runs the next case.
 *
 *     test_calls [FUNCTION]     runs only the cases of one function */
#include "tests/api/calls.h"
#include "tests/temporary.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Limits against hangs, never reached otherwise: seconds of one case, and bytes of one process. */
enum { CASE_SECONDS = 120 };
#define PROCESS_BYTES ((rlim_t)16 << 30)

static const char sentinel[] = "a sentence of the call before";

typedef struct progress {
    int running;  /* case; -1: all are done */
    int failures; /* cases with a wrong answer */
} progress;

static progress *shared;
static const call_entry *entry;

static void complain(const char *why)
{
    printf("%s, %s: %s\n", entry->function, entry->cases[shared->running].text, why);
    fflush(stdout);
    shared->failures++;
}

void judge(coh_status status, int judges)
{
    const char *sentence = coh_last_error();
    if ((unsigned)status > COH_ERR_INTERNAL)
        complain("no status came back");
    else if (status != COH_OK && (sentence[0] == '\0' || strcmp(sentence, sentinel) == 0))
        complain("it fails without a sentence");
    else if (judges == MUST_ARGUMENT && status != COH_ERR_ARGUMENT)
        complain(status == COH_OK ? "it is taken" : sentence);
    else if (judges == MUST_REFUSED && status == COH_OK)
        complain("it is taken");
}

void look(const char *text)
{
    if (text != NULL && strlen(text) > 4096)
        complain("a text without an end");
}

/* Makes an input for each port; the kind may refuse their shapes, which is a valid answer. */
void judge_kind(const coh_op_kind *kind, const void *attributes, size_t attribute_bytes, int judges)
{
    const coh_shape shapes[] = { { .dtype = COH_DTYPE_F32, .rank = 3, .dim = { 1, 1, 24 } },
                                 { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { 1, 1 } },
                                 { .dtype = COH_DTYPE_I32, .rank = 1, .dim = { 1 } } };
    for (int first = 0; first < 2; first++) {
        for (int second = 0; second < 3; second++) {
            coh_graph *graph = NULL;
            coh_tensor inputs[COH_PORT_MAX], outputs[COH_PORT_MAX];
            const coh_op_args args = { .name = "operator",
                                       .attributes = attributes,
                                       .attribute_bytes = attribute_bytes,
                                       .inputs = inputs,
                                       .block = -1 };
            if (coh_graph_create(&graph) != COH_OK)
                exit(99);
            (void)coh_graph_input(graph, "a", &shapes[first], &inputs[0]);
            for (int i = 1; i < COH_PORT_MAX; i++) {
                char name[] = "b0";
                name[1] = (char)('0' + i);
                (void)coh_graph_input(graph, name, &shapes[i == 3 ? 2 : second], &inputs[i]);
            }
            judge(coh_graph_op(graph, kind, &args, outputs, NULL), judges);
            coh_graph_destroy(graph);
        }
    }
}

static void run_cases(int begin)
{
    for (shared->running = begin; shared->running < entry->case_count; shared->running++) {
        const int what = shared->running;
        (void)coh_kind_fail(COH_ERR_ARGUMENT, "%s", sentinel);
        alarm(CASE_SECONDS);
        entry->call(what, entry->cases[what].judges);
    }
    shared->running = -1;
    fflush(stdout);
    _exit(0);
}

static void run_entry(void)
{
    for (int begin = 0; begin >= 0 && begin < entry->case_count;) {
        int how = 0;
        shared->running = begin;
        const pid_t child = fork();
        if (child == 0)
            run_cases(begin);
        if (child < 0 || waitpid(child, &how, 0) != child)
            exit(99);
        if (shared->running < 0)
            return;
        char why[64];
        snprintf(why, sizeof(why), WIFSIGNALED(how) ? "signal %d" : "the process ends with %d",
                 WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
        complain(why);
        begin = shared->running + 1;
    }
}

int main(int argc, char **argv)
{
    int case_count = 0, function_count = 0;
    char folder[256];
    if (temporary_folder(folder, sizeof(folder), "api-calls") != 0 || chdir(folder) != 0)
        return 99;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 99;
#ifndef __SANITIZE_ADDRESS__ /* whose shadow memory exceeds any limit */
    const struct rlimit limit = { .rlim_cur = PROCESS_BYTES, .rlim_max = PROCESS_BYTES };
    setrlimit(RLIMIT_AS, &limit);
#endif
    for (int i = 0; i < call_entry_count; i++) {
        entry = &call_entries[i];
        if (argc > 1 && strcmp(entry->function, argv[1]) != 0)
            continue;
        function_count++;
        case_count += entry->case_count;
        run_entry();
    }
    (void)temporary_remove(folder);
    printf("%d functions and kinds, %d calls: %d answered wrongly\n", function_count, case_count,
           shared->failures);
    return shared->failures > 0 || function_count == 0;
}
