/* The simulated GPUs' state: an INI file, read again whenever it was replaced.
 *
 *   [system]            facts of the node: gpus, kernel_module
 *   [gpu]               facts that all GPUs share
 *   [gpu 3]             facts of GPU 3, which win over [gpu]
 *   key = value         a whole number (decimal or 0x), text to the end of the line, or `@PATH THEN ELSE`, which is
 *                       the number THEN while that file exists and ELSE while it does not: what a daemon brings about
 *
 * A fact that the file does not have is NVML_ERROR_NOT_SUPPORTED to whoever asks; one that is not a number where a
 * number is due, or a file that breaks this grammar, is NVML_ERROR_UNKNOWN. Nothing is ever made up.
 */
#ifndef MUSTER_STATE_H
#define MUSTER_STATE_H

#include <stddef.h>

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml.h"

#define API __attribute__((visibility("default")))

enum { SYSTEM = -2, EVERY_GPU = -1, MOST_GPUS = 64 };

/* Number facts to read in one go: from one version of the file, all or none. */
struct fact {
    const char *key;
    void *into;
    size_t size; /* of what `into` points to: 4 or 8 bytes, unsigned */
};
#define FACT(key, into) {key, into, sizeof *(into)}
#define READ(device, ...)                                                                                              \
    read_facts(device, (const struct fact[]){__VA_ARGS__}, sizeof((const struct fact[]){__VA_ARGS__}) / sizeof(struct fact))

/* Holds the state still until `leave`; calls nest. The first reads the file again if it was replaced.
 * Returns NVML_ERROR_UNINITIALIZED before nvmlInit, DRIVER_NOT_LOADED without a file, UNKNOWN for one that is broken. */
nvmlReturn_t enter(void);
nvmlReturn_t leave(nvmlReturn_t result);

/* The same for a GPU's handle: NVML_ERROR_INVALID_ARGUMENT if it is none, GPU_IS_LOST if the GPU is gone. */
nvmlReturn_t enter_gpu(nvmlDevice_t device, int *gpu);

/* A fact as text, or NULL. Between enter and leave only. */
const char *text(int section, const char *key);
nvmlReturn_t number(int section, const char *key, unsigned long long *into);
nvmlReturn_t copy(const char *from, char *into, unsigned int length);

nvmlReturn_t read_facts(nvmlDevice_t device, const struct fact *facts, size_t count);
nvmlReturn_t read_text(nvmlDevice_t device, const char *key, char *into, unsigned int length);
nvmlReturn_t link_number(int gpu, unsigned int link, const char *key, unsigned long long *into);

nvmlReturn_t open_state(void);
nvmlReturn_t close_state(void);
nvmlDevice_t handle(int gpu);

#endif
