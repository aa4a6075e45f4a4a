/* LD_PRELOAD and related variables in the environment of a task. */
#ifndef TIRESIAS_PRELOAD_H
#define TIRESIAS_PRELOAD_H

#include <stdbool.h>

#include <slurm/spank.h>

/* Whether ld.so, as called now, could load this file into a program of our architecture. */
bool is_loadable(const char *library);

/* Removes a library: the variable may be inherited from a batch script, an srun or another job. */
void preload_remove(spank_t spank, const char *library);

/* Appends a library to those that the user preloads, if it is not there yet. */
void preload_add(spank_t spank, const char *library);

#endif
