/* Counting small messages without a lock. */
#ifndef TIRESIAS_OWN_LIST_H
#define TIRESIAS_OWN_LIST_H

#include <stdint.h>

#define LIST_AFTER_MESSAGES 4096 /* small ones, which a thread has to send to be given a list */

/* See to it that a child does not count into the list of its parent. Called once. */
void own_list_begin(void);

/* Count one message of a size that comes often, as count_message does. Only when counting is on. */
uint64_t count_small_message(uint64_t bytes);

#endif
