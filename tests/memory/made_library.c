/* A shared library that is opened under other libraries' names (test_cuda_library.c). */
__attribute__((visibility("default"))) int made_one(void);
__attribute__((visibility("default"))) int made_two(void);

int made_one(void)
{
    return 1;
}

int made_two(void)
{
    return 2;
}
