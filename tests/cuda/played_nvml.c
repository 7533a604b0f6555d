/* libnvidia-ml.so.1 for the GPU that emulated_gpu.c plays: a clock of 1,980 MHz, and a power that
 * each reading raises by a watt, from 301 W on. COH_PLAYED_NVML: "lost": it knows no GPU; "silent":
 * it knows neither clock nor power. COH_PLAYED_FREE: the bytes that are free, else it knows no
 * memory. */
#include <stdlib.h>
#include <string.h>

#define UNKNOWN                  999
#define CLOCK_OF_MULTIPROCESSORS 1

struct handle {
    unsigned milliwatts;
};

struct memory {
    unsigned long long total, free, used;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, struct handle **out_device);
int nvmlDeviceGetClockInfo(struct handle *device, int type, unsigned *out_mhz);
int nvmlDeviceGetPowerUsage(struct handle *device, unsigned *out_milliwatts);
int nvmlDeviceGetMemoryInfo(struct handle *device, struct memory *out_memory);

static int begun;
static struct handle gpu = { 300000 };

static int plays(const char *part)
{
    const char *asked = getenv("COH_PLAYED_NVML");
    return asked != NULL && strcmp(asked, part) == 0;
}

int nvmlInit_v2(void)
{
    begun++;
    return 0;
}

int nvmlShutdown(void)
{
    return begun-- > 0 ? 0 : UNKNOWN;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, struct handle **out_device)
{
    if (begun == 0 || plays("lost") || strcmp(address, "0000:01:00.0") != 0)
        return UNKNOWN;
    *out_device = &gpu;
    return 0;
}

int nvmlDeviceGetClockInfo(struct handle *device, int type, unsigned *out_mhz)
{
    if (begun == 0 || device != &gpu || type != CLOCK_OF_MULTIPROCESSORS || plays("silent"))
        return UNKNOWN;
    *out_mhz = 1980;
    return 0;
}

int nvmlDeviceGetPowerUsage(struct handle *device, unsigned *out_milliwatts)
{
    if (begun == 0 || device != &gpu || plays("silent"))
        return UNKNOWN;
    device->milliwatts += 1000;
    *out_milliwatts = device->milliwatts;
    return 0;
}

int nvmlDeviceGetMemoryInfo(struct handle *device, struct memory *out_memory)
{
    const char *bytes = getenv("COH_PLAYED_FREE");
    if (begun == 0 || device != &gpu || bytes == NULL)
        return UNKNOWN;
    *out_memory = (struct memory){ .total = 4ull << 30, .free = strtoull(bytes, NULL, 10) };
    return 0;
}
