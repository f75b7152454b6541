/* NVLink and the fabric that it is part of. */
#include "state.h"

#include <string.h>

static nvmlReturn_t link_fact(nvmlDevice_t device, unsigned int link, const char *key, unsigned long long *into)
{
    int gpu;
    nvmlReturn_t status = enter_gpu(device, &gpu);
    return status != NVML_SUCCESS ? status : leave(link_number(gpu, link, key, into));
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *into)
{
    unsigned long long found;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = link_fact(device, link, "state", &found);
    if (status == NVML_SUCCESS)
        *into = found ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return status;
}

API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *into)
{
    unsigned long long found;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = link_fact(device, link, "version", &found);
    if (status == NVML_SUCCESS)
        *into = (unsigned int)found;
    return status;
}

API nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
                                                 unsigned long long *into)
{
    static const char *const keys[] = {"replay_errors", "recovery_errors", "crc_flit_errors", "crc_data_errors",
                                       "ecc_data_errors"};
    if (!into || (unsigned int)counter >= NVML_NVLINK_ERROR_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    return link_fact(device, link, keys[counter], into);
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                     nvmlIntNvLinkDeviceType_t *into)
{
    unsigned long long found;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = link_fact(device, link, "remote_type", &found);
    if (status == NVML_SUCCESS)
        *into = (nvmlIntNvLinkDeviceType_t)found;
    return status;
}

/* The switch at a link's other end: `remote_bus` is its bus number in PCI domain 0. */
API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *into)
{
    static const char digits[] = "0123456789ABCDEF";
    unsigned long long bus;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = link_fact(device, link, "remote_bus", &bus);
    if (status != NVML_SUCCESS)
        return status;
    if (bus > 0xff)
        return NVML_ERROR_UNKNOWN;
    *into = (nvmlPciInfo_t){.bus = (unsigned int)bus, .busId = "00000000:00:00.0", .busIdLegacy = "0000:00:00.0"};
    into->busId[9] = into->busIdLegacy[5] = digits[bus >> 4];
    into->busId[10] = into->busIdLegacy[6] = digits[bus & 0xf];
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *into)
{
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, into);
}

struct fabric {
    unsigned int state, status, clique, health, summary;
    unsigned char cluster[NVML_GPU_FABRIC_UUID_LEN];
};

/* `fabric.cluster` is 32 hexadecimal digits. */
static nvmlReturn_t fabric(nvmlDevice_t device, struct fabric *into)
{
    char cluster[2 * NVML_GPU_FABRIC_UUID_LEN + 1];
    nvmlReturn_t status = READ(device, FACT("fabric.state", &into->state), FACT("fabric.status", &into->status),
                               FACT("fabric.clique", &into->clique), FACT("fabric.health_mask", &into->health),
                               FACT("fabric.health_summary", &into->summary));
    if (status == NVML_SUCCESS)
        status = read_text(device, "fabric.cluster", cluster, sizeof cluster);
    if (status != NVML_SUCCESS)
        return status;
    if (strspn(cluster, "0123456789abcdef") != sizeof cluster - 1)
        return NVML_ERROR_UNKNOWN;
    for (size_t i = 0; i < sizeof into->cluster; i++) {
        unsigned int high = (unsigned char)cluster[2 * i], low = (unsigned char)cluster[2 * i + 1];
        high = high <= '9' ? high - '0' : high - 'a' + 10;
        low = low <= '9' ? low - '0' : low - 'a' + 10;
        into->cluster[i] = (unsigned char)(high << 4 | low);
    }
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *into)
{
    struct fabric found;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = fabric(device, &found);
    if (status != NVML_SUCCESS)
        return status;
    memcpy(into->clusterUuid, found.cluster, sizeof found.cluster);
    into->status = (nvmlReturn_t)found.status;
    into->cliqueId = found.clique;
    into->state = (nvmlGpuFabricState_t)found.state;
    return NVML_SUCCESS;
}

/* Version 3 is version 2 and one member more. */
API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *into)
{
    struct fabric found;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (into->version != nvmlGpuFabricInfo_v2 && into->version != nvmlGpuFabricInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t status = fabric(device, &found);
    if (status != NVML_SUCCESS)
        return status;
    memcpy(into->clusterUuid, found.cluster, sizeof found.cluster);
    into->status = (nvmlReturn_t)found.status;
    into->cliqueId = found.clique;
    into->state = (nvmlGpuFabricState_t)found.state;
    into->healthMask = found.health;
    if (into->version == nvmlGpuFabricInfo_v3)
        into->healthSummary = (unsigned char)found.summary;
    return NVML_SUCCESS;
}
