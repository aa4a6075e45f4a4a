/* Counting messages into the traffic file of this job, if there is one. */
#ifndef TIRESIAS_COUNTING_H
#define TIRESIAS_COUNTING_H

#include "traffic.h"

#include <stdbool.h>

/* Map the file that TRAFFIC_VARIABLE names; if it is missing or invalid, counting stays off. */
void counting_begin(void);

/* Whether there is anything to count into. */
bool counting_is_on(void);

/* Count one message; return how many of this size (or of its octave, if unlisted) were counted
 * before. May be called at any time and by any thread, even from a signal handler. */
uint64_t count_message(enum traffic_section_index section, uint64_t bytes);

/* A list for this thread alone; NULL if none is left. */
struct traffic_list *take_list(void);

/* The slot of a size, taken now if needed; NULL if all are taken by other sizes. */
struct traffic_slot *slot_of(struct traffic_slot *slots, uint64_t bytes);

#endif
