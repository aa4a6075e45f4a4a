/* The hint that a user may also write into a job's comment: tiresias:model=NAME,... */
#ifndef TIRESIAS_HINT_H
#define TIRESIAS_HINT_H

#include "options.h"

/* Extracts the model; false, and "", if there is none. */
bool hint_model(char model[MODEL_SIZE], const char *comment);

#endif
