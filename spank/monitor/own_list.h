/* Counting small messages without a lock. */
#ifndef TIRESIAS_OWN_LIST_H
#define TIRESIAS_OWN_LIST_H

#include <stdint.h>

#define LIST_AFTER_MESSAGES 4096 /* the number of small messages after which a thread gets a list */

/* Keep a forked child from counting in its parent's list. Called once. */
void own_list_begin(void);

/* Count one message of a frequent size, like count_message. Call it only when counting is on. */
uint64_t count_small_message(uint64_t bytes);

#endif
