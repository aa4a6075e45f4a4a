/*
 * NVML of a machine with one GPU whose NVLink is broken, for the binding to load.
 *
 * Files in the folder $FAKE_NVML set its state: a number in each of utilization, memory, pcie and
 * nvlink; process ids in pids, and those of the multi-process service in mps_pids. If there is a
 * file asked, an i is appended for each initialization of NVML and an s for each sample of a GPU. A
 * file mig divides the GPU into two MIG devices, the first of which is in use; with a file lost it
 * has fallen off the bus.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

static const char uuid[] = "GPU-11111111-2222-3333-4444-555555555555";
static const char mig_uuid[] = "MIG-66666666-2222-3333-4444-555555555555";
static int device, mig_devices[2];

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

struct process {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
};

static FILE *opened(const char *name, const char *mode)
{
    char path[512];
    const char *folder = getenv("FAKE_NVML");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "/nonexistent", name);
    return fopen(path, mode);
}

static bool is_there(const char *name)
{
    FILE *file = opened(name, "r");
    if (file)
        fclose(file);
    return file != NULL;
}

static unsigned long long said(const char *name, unsigned long long otherwise)
{
    unsigned long long number = otherwise;
    FILE *file = opened(name, "r");
    if (file && fscanf(file, "%llu", &number) != 1)
        number = otherwise;
    if (file)
        fclose(file);
    return number;
}

/* For tests that wait until NVML was queried. */
static void note(char what)
{
    FILE *file = is_there("asked") ? opened("asked", "a") : NULL;
    if (!file)
        return;
    fputc(what, file);
    fclose(file);
}

static int answer(void)
{
    return is_there("lost") ? GPU_IS_LOST : SUCCESS;
}

static int answer_of_whole(void *handle)
{
    return handle == &device ? answer() : NOT_SUPPORTED;
}

static int processes(const char *name, unsigned *count, struct process *found)
{
    unsigned room = found ? *count : 0, pid;
    FILE *file = NULL;
    if (answer() != SUCCESS)
        return answer();
    file = opened(name, "r");
    *count = 0;
    while (file && fscanf(file, "%u", &pid) == 1) {
        if (*count < room)
            found[*count] = (struct process){pid, 1ULL << 30, 0, 0};
        ++*count;
    }
    if (file)
        fclose(file);
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlInitWithFlags(unsigned flags)
{
    note('i');
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

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    *current = *pending = is_there("mig");
    return answer_of_whole(handle);
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count)
{
    *count = 7;
    return answer_of_whole(handle);
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned number, void **found)
{
    *found = &mig_devices[number % 2];
    return number < 2 ? answer_of_whole(handle) : NOT_FOUND;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *found)
{
    return processes(handle == &mig_devices[1] ? "none" : "pids", count, found);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *found)
{
    return handle == &device ? processes("mps_pids", count, found) : NOT_SUPPORTED;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned length)
{
    strncpy(text, handle == &device ? uuid : mig_uuid, length);
    return answer();
}

int nvmlDeviceGetName(void *handle, char *text, unsigned length)
{
    (void)handle;
    strncpy(text, "Fake H200", length);
    return answer();
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci_info *info)
{
    (void)handle;
    strcpy(info->bus_id, "00000000:3B:00.0");
    return answer();
}

int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *rates)
{
    *rates = (struct utilization){(unsigned)said("utilization", 87), 40};
    return answer_of_whole(handle);
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts)
{
    *milliwatts = (unsigned)said("power", 525000);
    return answer_of_whole(handle);
}

int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts)
{
    *milliwatts = 700000;
    return answer_of_whole(handle);
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory)
{
    (void)handle;
    *memory = (struct memory){80ULL << 30, 20ULL << 30, said("memory", 60ULL << 30)};
    return answer();
}

int nvmlDeviceGetPcieThroughput(void *handle, int counter, unsigned *kb_per_s)
{
    *kb_per_s = (unsigned)said("pcie", counter == 0 ? 1500 : 2500);
    return answer_of_whole(handle);
}

int nvmlDeviceGetFieldValues(void *handle, int count, struct field_value *values)
{
    note('s');
    for (int i = 0; i < count; i++) {
        values[i].status = i == 0 ? SUCCESS : NOT_SUPPORTED;
        values[i].value = said("nvlink", 7);
    }
    return answer_of_whole(handle);
}
