/*
 * Counts small messages without a lock.
 *
 * A locked addition waits until the core has completed all its pending stores, which takes long
 * right after a system call: longer than everything else here together. So a thread that sends many
 * small messages permanently takes a list in the file, and adds to that. If no list is left, it
 * counts in the shared slots.
 */
#include "own_list.h"

#include "counting.h"

#include <pthread.h>
#include <stddef.h>

static __thread struct {
	struct traffic_list *list; /* NULL: the thread has none */
	unsigned int messages;     /* messages that the thread counted in the shared slots */
} own __attribute__((tls_model("initial-exec")));

/* A forked child has only this one thread, and its parent keeps using the list. */
static void leave_to_parent(void)
{
	own.list = NULL;
	own.messages = 0;
}

void own_list_begin(void)
{
	pthread_atfork(NULL, NULL, leave_to_parent);
}

/* One instruction without a lock prefix: a signal handler that counts runs before or after it.
 * Other processors have atomic additions that do not wait for earlier stores. */
static uint64_t add_one(uint64_t *number)
{
#ifdef __x86_64__
	uint64_t before = 1;

	__asm__("xaddq %0, %1" : "+r"(before), "+m"(*number) : : "cc");
	return before;
#else
	return __atomic_fetch_add(number, 1, __ATOMIC_RELAXED);
#endif
}

__attribute__((cold, noinline)) static uint64_t count_where_all_do(uint64_t bytes)
{
	if (own.list == NULL && ++own.messages % LIST_AFTER_MESSAGES == 0)
		own.list = take_list();
	return count_message(TRAFFIC_MESSAGES, bytes);
}

uint64_t count_small_message(uint64_t bytes)
{
	struct traffic_slot *slot = own.list == NULL ? NULL : slot_of(own.list->slots, bytes);

	return slot == NULL ? count_where_all_do(bytes) : add_one(&slot->messages);
}
