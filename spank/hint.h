/* What a user may also write into the comment of his job: tiresias:model=NAME,... */
#ifndef TIRESIAS_HINT_H
#define TIRESIAS_HINT_H

#include "options.h"

/* The model that it names; false, and "", where it names none. */
bool hint_model(char model[MODEL_SIZE], const char *comment);

#endif
