#include "base/thread.h"

int coh_thread_start(pthread_t *out_thread, void *(*body)(void *), void *argument)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return error;
    error = pthread_attr_setstacksize(&attributes, COH_THREAD_STACK_BYTES);
    if (error == 0)
        error = pthread_create(out_thread, &attributes, body, argument);
    (void)pthread_attr_destroy(&attributes);
    return error;
}
