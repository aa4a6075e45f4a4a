/* LD_PRELOAD and the variables that go with it, in the environment of a task. */
#ifndef TIRESIAS_PRELOAD_H
#define TIRESIAS_PRELOAD_H

#include <stdbool.h>

#include <slurm/spank.h>

/* Whether ld.so, called here and now, could load this file into a program like ours. */
bool is_loadable(const char *library);

/* Takes a library out: the variable comes along from a batch script, an srun or another job. */
void preload_remove(spank_t spank, const char *library);

/* Puts one behind those that the user preloads, where it is not yet. */
void preload_add(spank_t spank, const char *library);

#endif
