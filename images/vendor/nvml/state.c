#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_PATH "/etc/muster/simulated-gpus.ini"
#define MOST_BYTES (1 << 20)

struct nvmlDevice_st {
    char unused;
};

struct entry {
    int section;
    const char *key, *value;
};

static struct {
    pthread_mutex_t lock;
    int depth, users;
    struct stat version;
    nvmlReturn_t status;
    char *content;
    struct entry *entries;
    size_t count;
    struct nvmlDevice_st handles[MOST_GPUS]; /* a handle is the address of its GPU's element */
} state = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

static const char *path(void)
{
    const char *other = secure_getenv("MUSTER_SIMULATED_GPUS");
    return other && *other ? other : DEFAULT_PATH;
}

/* -- the file ------------------------------------------------------------------------------------------------------ */

static char *trimmed(char *from, char *end)
{
    while (from < end && (*from == ' ' || *from == '\t'))
        from++;
    while (end > from && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    *end = '\0';
    return from;
}

/* [system], [gpu] or [gpu N]; line starts with a bracket. */
static bool parse_section(char *line, int *section)
{
    char *rest, *end = line + strlen(line);
    if (end[-1] != ']')
        return false;
    line = trimmed(line + 1, end - 1);
    if (strcmp(line, "system") == 0)
        return *section = SYSTEM, true;
    if (strcmp(line, "gpu") == 0)
        return *section = EVERY_GPU, true;
    if (strncmp(line, "gpu ", 4) != 0 || line[4] < '0' || line[4] > '9')
        return false;
    unsigned long index = strtoul(line + 4, &rest, 10);
    if (*rest || index >= MOST_GPUS)
        return false;
    return *section = (int)index, true;
}

static bool known(int section, const char *key)
{
    for (size_t i = 0; i < state.count; i++)
        if (state.entries[i].section == section && strcmp(state.entries[i].key, key) == 0)
            return true;
    return false;
}

static bool parse(char *content, size_t length)
{
    bool in_section = false;
    int section = SYSTEM;
    size_t room = 0;
    if (memchr(content, '\0', length))
        return false;
    for (char *line = content, *next; line < content + length; line = next) {
        char *end = strchrnul(line, '\n');
        next = end + 1;
        line = trimmed(line, end);
        if (*line == '\0' || *line == '#' || *line == ';')
            continue;
        if (*line == '[') {
            if (!parse_section(line, &section))
                return false;
            in_section = true;
            continue;
        }
        char *equals = strchr(line, '=');
        if (!equals || !in_section)
            return false;
        char *value = trimmed(equals + 1, equals + 1 + strlen(equals + 1));
        char *key = trimmed(line, equals);
        if (!*key || !*value || known(section, key))
            return false;
        if (state.count == room) {
            room = room ? 2 * room : 64;
            struct entry *more = reallocarray(state.entries, room, sizeof *more);
            if (!more)
                return false;
            state.entries = more;
        }
        state.entries[state.count++] = (struct entry){section, key, value};
    }
    return true;
}

static void forget(void)
{
    free(state.content);
    free(state.entries);
    state.content = NULL;
    state.entries = NULL;
    state.count = 0;
}

static nvmlReturn_t load(int file, size_t length)
{
    size_t have = 0;
    if (length > MOST_BYTES || !(state.content = malloc(length + 1)))
        return NVML_ERROR_UNKNOWN;
    while (have < length) {
        ssize_t got = read(file, state.content + have, length - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return NVML_ERROR_UNKNOWN;
        have += (size_t)got;
    }
    state.content[length] = '\0';
    return parse(state.content, length) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void refresh(void)
{
    struct stat now;
    if (stat(path(), &now) == 0 && state.version.st_ino && same(&now, &state.version))
        return;
    forget();
    state.version = (struct stat){0};
    state.status = NVML_ERROR_DRIVER_NOT_LOADED;
    int file = open(path(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return;
    if (fstat(file, &now) == 0) {
        state.status = S_ISREG(now.st_mode) ? load(file, (size_t)now.st_size) : NVML_ERROR_UNKNOWN;
        state.version = now;
    }
    close(file);
    const char *module = state.status == NVML_SUCCESS ? text(SYSTEM, "kernel_module") : NULL;
    if (module && strcmp(module, DRIVER_VERSION) != 0)
        state.status = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
}

/* -- access -------------------------------------------------------------------------------------------------------- */

nvmlReturn_t enter(void)
{
    pthread_mutex_lock(&state.lock);
    if (state.users == 0) {
        pthread_mutex_unlock(&state.lock);
        return NVML_ERROR_UNINITIALIZED;
    }
    if (state.depth == 0)
        refresh();
    if (state.status != NVML_SUCCESS) {
        nvmlReturn_t status = state.status;
        pthread_mutex_unlock(&state.lock);
        return status;
    }
    state.depth++;
    return NVML_SUCCESS;
}

nvmlReturn_t leave(nvmlReturn_t result)
{
    state.depth--;
    pthread_mutex_unlock(&state.lock);
    return result;
}

nvmlReturn_t open_state(void)
{
    pthread_mutex_lock(&state.lock);
    refresh();
    if (state.status == NVML_SUCCESS)
        state.users++;
    nvmlReturn_t status = state.status;
    pthread_mutex_unlock(&state.lock);
    return status;
}

nvmlReturn_t close_state(void)
{
    nvmlReturn_t status = NVML_ERROR_UNINITIALIZED;
    pthread_mutex_lock(&state.lock);
    if (state.users) {
        status = NVML_SUCCESS;
        if (--state.users == 0) {
            forget();
            state.version = (struct stat){0};
        }
    }
    pthread_mutex_unlock(&state.lock);
    return status;
}

nvmlDevice_t handle(int gpu)
{
    return &state.handles[gpu];
}

nvmlReturn_t enter_gpu(nvmlDevice_t device, int *gpu)
{
    unsigned long long count = 0, lost = 0;
    nvmlReturn_t status = enter();
    if (status != NVML_SUCCESS)
        return status;
    if (device < state.handles || device >= state.handles + MOST_GPUS)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    *gpu = (int)(device - state.handles);
    status = number(SYSTEM, "gpus", &count);
    if (status != NVML_SUCCESS)
        return leave(status);
    if ((unsigned long long)*gpu >= count)
        return leave(NVML_ERROR_GPU_IS_LOST);
    status = number(*gpu, "lost", &lost);
    if (status == NVML_ERROR_NOT_SUPPORTED)
        return NVML_SUCCESS;
    if (status == NVML_SUCCESS && lost)
        status = NVML_ERROR_GPU_IS_LOST;
    return status == NVML_SUCCESS ? status : leave(status);
}

const char *text(int section, const char *key)
{
    const char *shared = NULL;
    for (size_t i = 0; i < state.count; i++) {
        const struct entry *each = &state.entries[i];
        if (strcmp(each->key, key) != 0)
            continue;
        if (each->section == section)
            return each->value;
        if (section >= 0 && each->section == EVERY_GPU)
            shared = each->value;
    }
    return shared;
}

/* `PATH THEN ELSE`: THEN while the file exists, ELSE while it does not. */
static nvmlReturn_t by_file(const char *value, unsigned long long *into)
{
    char file[256], rest;
    unsigned int then, otherwise;
    if (sscanf(value, "%255s %u %u%c", file, &then, &otherwise, &rest) != 3)
        return NVML_ERROR_UNKNOWN;
    *into = access(file, F_OK) == 0 ? then : otherwise;
    return NVML_SUCCESS;
}

nvmlReturn_t number(int section, const char *key, unsigned long long *into)
{
    char *rest;
    const char *value = text(section, key);
    if (!value)
        return NVML_ERROR_NOT_SUPPORTED;
    if (*value == '@')
        return by_file(value + 1, into);
    if (*value < '0' || *value > '9')
        return NVML_ERROR_UNKNOWN;
    errno = 0;
    unsigned long long found = strtoull(value, &rest, strncmp(value, "0x", 2) == 0 ? 16 : 10);
    if (*rest || errno)
        return NVML_ERROR_UNKNOWN;
    *into = found;
    return NVML_SUCCESS;
}

nvmlReturn_t copy(const char *from, char *into, unsigned int length)
{
    if (!from)
        return NVML_ERROR_NOT_SUPPORTED;
    if (strlen(from) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(into, from, strlen(from) + 1);
    return NVML_SUCCESS;
}

nvmlReturn_t read_facts(nvmlDevice_t device, const struct fact *facts, size_t count)
{
    int gpu;
    unsigned long long found[8];
    for (size_t i = 0; i < count; i++)
        if (!facts[i].into || count > sizeof found / sizeof *found)
            return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter_gpu(device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    for (size_t i = 0; i < count && status == NVML_SUCCESS; i++) {
        status = number(gpu, facts[i].key, &found[i]);
        if (status == NVML_SUCCESS && facts[i].size == sizeof(unsigned int) && found[i] > 0xffffffffULL)
            status = NVML_ERROR_UNKNOWN;
    }
    for (size_t i = 0; i < count && status == NVML_SUCCESS; i++) {
        if (facts[i].size == sizeof(unsigned int))
            *(unsigned int *)facts[i].into = (unsigned int)found[i];
        else
            *(unsigned long long *)facts[i].into = found[i];
    }
    return leave(status);
}

nvmlReturn_t read_text(nvmlDevice_t device, const char *key, char *into, unsigned int length)
{
    int gpu;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter_gpu(device, &gpu);
    return status != NVML_SUCCESS ? status : leave(copy(text(gpu, key), into, length));
}

/* `nvlink.KEY` of all links, over which `nvlink.LINK.KEY` wins. Between enter and leave only. */
nvmlReturn_t link_number(int gpu, unsigned int link, const char *key, unsigned long long *into)
{
    char name[64];
    unsigned long long count;
    nvmlReturn_t status = number(gpu, "nvlink.count", &count);
    if (status != NVML_SUCCESS)
        return status;
    if (link >= count)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(name, sizeof name, "nvlink.%u.%s", link, key);
    status = number(gpu, name, into);
    if (status != NVML_ERROR_NOT_SUPPORTED)
        return status;
    snprintf(name, sizeof name, "nvlink.%s", key);
    return number(gpu, name, into);
}
