/* Counting messages into the traffic file of this job, if there is one. */
#ifndef TIRESIAS_COUNTING_H
#define TIRESIAS_COUNTING_H

#include "traffic.h"

#include <stdbool.h>

/* Map the file that TRAFFIC_VARIABLE names; whatever is missing or wrong, counting stays off. */
void counting_begin(void);

/* Whether there is anything to count into. */
bool counting_is_on(void);

/* Count one message; how many of this size (of its octave, if unlisted) were counted before. May be
 * called at any time, from a signal handler too, by any thread. */
uint64_t count_message(enum traffic_section_index section, uint64_t bytes);

/* A list for this thread alone; NULL when there is none left. */
struct traffic_list *take_list(void);

/* The slot of a size, taken for it if need be; NULL when all are taken by other sizes. */
struct traffic_slot *slot_of(struct traffic_slot *slots, uint64_t bytes);

#endif
