/* libnvidia-ml.so.1 for the GPUs that emulated_gpu.c plays, on the PCI buses 1 to 8: a clock of
 * 1,980 MHz, and a power that each reading raises by a watt, from 301 W on. COH_PLAYED_NVML:
 * "lost": it knows no GPU; "silent": it knows neither clock nor power. COH_PLAYED_FREE: the bytes
 * that are free, else it knows no memory. COH_PLAYED_LINKS: links by the buses of both ends:
 * "1-2,3-4,1-99"; one that is not active has a bus of 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS = 8 };
#define UNKNOWN                  999
#define CLOCK_OF_MULTIPROCESSORS 1

struct handle {
    unsigned milliwatts;
};

struct memory {
    unsigned long long total, free, used;
};

struct pci {
    char legacy_address[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char address[32];
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, struct handle **out_device);
int nvmlDeviceGetClockInfo(struct handle *device, int type, unsigned *out_mhz);
int nvmlDeviceGetPowerUsage(struct handle *device, unsigned *out_milliwatts);
int nvmlDeviceGetMemoryInfo(struct handle *device, struct memory *out_memory);
int nvmlDeviceGetNvLinkState(struct handle *device, unsigned link, unsigned *out_is_active);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct handle *device, unsigned link, struct pci *out_peer);

static int begun;
static struct handle gpus[GPUS] = { { 300000 }, { 300000 }, { 300000 }, { 300000 },
                                    { 300000 }, { 300000 }, { 300000 }, { 300000 } };

static int is_gpu(const struct handle *device)
{
    return begun > 0 && device >= gpus && device < gpus + GPUS;
}

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
    unsigned bus;
    char end;
    if (begun == 0 || plays("lost") || sscanf(address, "0000:%2x:00.0%c", &bus, &end) != 1 ||
        bus < 1 || bus > GPUS)
        return UNKNOWN;
    *out_device = &gpus[bus - 1];
    return 0;
}

int nvmlDeviceGetClockInfo(struct handle *device, int type, unsigned *out_mhz)
{
    if (!is_gpu(device) || type != CLOCK_OF_MULTIPROCESSORS || plays("silent"))
        return UNKNOWN;
    *out_mhz = 1980;
    return 0;
}

int nvmlDeviceGetPowerUsage(struct handle *device, unsigned *out_milliwatts)
{
    if (!is_gpu(device) || plays("silent"))
        return UNKNOWN;
    device->milliwatts += 1000;
    *out_milliwatts = device->milliwatts;
    return 0;
}

int nvmlDeviceGetMemoryInfo(struct handle *device, struct memory *out_memory)
{
    const char *bytes = getenv("COH_PLAYED_FREE");
    if (!is_gpu(device) || bytes == NULL)
        return UNKNOWN;
    *out_memory = (struct memory){ .total = 4ull << 30, .free = strtoull(bytes, NULL, 10) };
    return 0;
}

/* Finds the other end of a GPU's n-th link; 0: it has no such link. */
static int find_link(const struct handle *device, unsigned link, unsigned *out_bus)
{
    const char *text = getenv("COH_PLAYED_LINKS");
    const unsigned own = (unsigned)(device - gpus) + 1;
    unsigned a, b, count = 0;
    int length;
    while (text != NULL && sscanf(text, "%u-%u%n", &a, &b, &length) == 2) {
        if ((a == own || b == own) && count++ == link) {
            *out_bus = a == own ? b : a;
            return 1;
        }
        text += length + (text[length] == ',');
    }
    return 0;
}

int nvmlDeviceGetNvLinkState(struct handle *device, unsigned link, unsigned *out_is_active)
{
    unsigned bus;
    if (!is_gpu(device) || !find_link(device, link, &bus))
        return UNKNOWN;
    *out_is_active = bus != 0;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct handle *device, unsigned link, struct pci *out_peer)
{
    unsigned bus;
    if (!is_gpu(device) || !find_link(device, link, &bus) || bus == 0 || plays("silent"))
        return UNKNOWN;
    *out_peer = (struct pci){ .domain = 0, .bus = bus, .address = "00000000:" };
    return 0;
}
