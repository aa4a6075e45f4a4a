/* NVML of a machine with one GPU whose NVLink is broken, for the binding to load. */
#include <stdint.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

static const char uuid[] = "GPU-11111111-2222-3333-4444-555555555555";
static int device;

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct utilization {
    unsigned gpu, memory;
};

struct memory {
    unsigned long long total, free, used;
};

struct field_value {
    uint32_t field_id, scope_id;
    int64_t timestamp, latency_us;
    int value_type, status;
    uint64_t value;
};

int nvmlInitWithFlags(unsigned flags)
{
    return (int)flags;
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

const char *nvmlErrorString(int error)
{
    (void)error;
    return "fake";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **handle)
{
    *handle = &device;
    return number == 0 ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *name, void **handle)
{
    *handle = &device;
    return strcmp(name, uuid) == 0 ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *name, void **handle)
{
    *handle = &device;
    return strcmp(name, "0000:3B:00.0") == 0 ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned length)
{
    (void)handle;
    strncpy(text, uuid, length);
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned length)
{
    (void)handle;
    strncpy(text, "Fake H200", length);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci_info *info)
{
    (void)handle;
    strcpy(info->bus_id, "00000000:3B:00.0");
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *rates)
{
    (void)handle;
    *rates = (struct utilization){87, 40};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory)
{
    (void)handle;
    *memory = (struct memory){80ULL << 30, 20ULL << 30, 60ULL << 30};
    return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(void *handle, int counter, unsigned *kb_per_s)
{
    (void)handle;
    *kb_per_s = counter == 0 ? 1500 : 2500;
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(void *handle, int count, struct field_value *values)
{
    (void)handle;
    for (int i = 0; i < count; i++) {
        values[i].status = i == 0 ? SUCCESS : NOT_SUPPORTED;
        values[i].value = 7;
    }
    return SUCCESS;
}
