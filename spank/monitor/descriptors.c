/*
 * Tracks what each descriptor of this process is.
 *
 * Asking the kernel costs about as much as counting may cost in all, so its answer is cached until
 * the descriptor is closed or replaced. Not every close can be seen: stdio, and programs that call
 * the kernel directly (as libuv does), bypass the hooks. So cached answers are used for small
 * messages only, and are refreshed periodically. For large messages, from which the skew is
 * computed, the kernel is always asked; that is cheap compared with sending them.
 *
 * There are no locks: a signal handler may interrupt anything here and send a message itself.
 */
#define _GNU_SOURCE
#include "descriptors.h"

#include "counting.h"
#include "own_list.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#define KEPT 16384                /* descriptors above this are queried each time */
#define TRUSTED_BYTES 65536       /* messages of at least this size are always queried */
#define TRUSTED_TIMES 256         /* small messages between two queries */
#define ANY_LENGTH SIZE_MAX       /* after MSG_MORE */

/* Kept out of line, because code that calls the kernel all the time has little of the cache. */
#define SELDOM __attribute__((cold, noinline))

enum kind { UNKNOWN = 0, COUNTED = 1, OTHER = 2, KIND_MASK = 3, GENERATION = 4 };

struct descriptor {
	uint32_t state;       /* its kind, and above it a generation that each close advances */
	uint64_t incomplete;  /* the sender of a message and the bytes sent of it; 0: none */
	uint64_t left;        /* bytes that the next send of this message requests */
};

/* The process id and the bytes of an incomplete message change in one step: a thread that takes
 * over what a forked process inherited must not discard what another thread has added by then. */
#define SENT_BITS 42 /* 4 TiB; a process id has at most 22 bits (PID_MAX_LIMIT) */
#define SENT_MOST ((UINT64_C(1) << SENT_BITS) - 1)

static struct descriptor descriptors[KEPT];
static unsigned int beyond_highest; /* every descriptor from here on has just been opened */
static pid_t keeper;

static void take_over(void)
{
	__atomic_store_n(&keeper, getpid(), __ATOMIC_RELAXED);
}

void descriptors_begin(void)
{
	take_over();
	pthread_atfork(NULL, NULL, take_over);
}

static struct descriptor *descriptor(int fd)
{
	return fd < KEPT ? &descriptors[fd] : NULL;
}

static enum kind ask_kernel(int fd)
{
	int family = AF_UNSPEC;
	socklen_t length = sizeof(family);
	int error = errno;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0)
		family = AF_UNSPEC;
	errno = error;
	return family == AF_INET || family == AF_INET6 ? COUNTED : OTHER;
}

static void notice(int fd)
{
	unsigned int known = __atomic_load_n(&beyond_highest, __ATOMIC_RELAXED);

	while (known <= (unsigned int)fd &&
	       !__atomic_compare_exchange_n(&beyond_highest, &known, fd + 1, true, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		continue;
}

/* Cache the answer unless the descriptor was closed meanwhile. */
SELDOM static enum kind look_up(int fd, struct descriptor *d, uint32_t state)
{
	enum kind kind = ask_kernel(fd);
	uint32_t known = (state & ~(uint32_t)KIND_MASK) | kind;

	if (known == state || __atomic_load_n(&keeper, __ATOMIC_RELAXED) != getpid())
		return kind;
	notice(fd);
	__atomic_compare_exchange_n(&d->state, &state, known, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
	return kind;
}

static bool time_to_ask_again(void)
{
	static __thread unsigned int trusted __attribute__((tls_model("initial-exec")));

	return ++trusted % TRUSTED_TIMES == 0;
}

static bool is_counted(int fd, struct descriptor *d, size_t bytes)
{
	uint32_t state;
	enum kind kind;

	if (d == NULL)
		return ask_kernel(fd) == COUNTED;
	state = __atomic_load_n(&d->state, __ATOMIC_RELAXED);
	kind = state & KIND_MASK;
	if (kind == UNKNOWN || bytes >= TRUSTED_BYTES || time_to_ask_again())
		kind = look_up(fd, d, state);
	return kind == COUNTED;
}

/* Bytes of an incomplete message that this process has sent; another process counts its own. */
static uint64_t sent_here(uint64_t incomplete)
{
	return incomplete >> SENT_BITS == (uint64_t)getpid() ? incomplete & SENT_MOST : 0;
}

/* Bytes that this process has sent of an incomplete message; the caller must count them. */
static uint64_t take_incomplete(struct descriptor *d)
{
	if (sent_here(__atomic_load_n(&d->incomplete, __ATOMIC_ACQUIRE)) == 0)
		return 0;
	return sent_here(__atomic_exchange_n(&d->incomplete, 0, __ATOMIC_ACQ_REL));
}

static void keep_incomplete(struct descriptor *d, uint64_t sent, uint64_t left)
{
	uint64_t before = __atomic_load_n(&d->incomplete, __ATOMIC_RELAXED);
	uint64_t all;

	__atomic_store_n(&d->left, left, __ATOMIC_RELAXED);
	do {
		all = sent_here(before) + sent;
		if (all > SENT_MOST)
			all = SENT_MOST;
	} while (!__atomic_compare_exchange_n(&d->incomplete, &before,
					      (uint64_t)getpid() << SENT_BITS | all, true,
					      __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* A send that requests exactly the remainder of the previous one continues its message. */
static void join(struct descriptor *d, size_t wanted, size_t sent, bool more)
{
	uint64_t left = __atomic_load_n(&d->left, __ATOMIC_RELAXED);
	uint64_t earlier = take_incomplete(d);

	if (earlier != 0 && left != ANY_LENGTH && left != wanted) {
		count_message(TRAFFIC_MESSAGES, earlier);
		earlier = 0;
	}
	if (sent < wanted)
		keep_incomplete(d, earlier + sent, wanted - sent);
	else if (more)
		keep_incomplete(d, earlier + sent, ANY_LENGTH);
	else
		count_message(TRAFFIC_MESSAGES, earlier + sent);
}

SELDOM static void sent_otherwise(int fd, struct descriptor *d, size_t wanted, size_t sent,
				  bool more)
{
	if (!is_counted(fd, d, sent))
		return;
	if (d == NULL)
		count_message(TRAFFIC_MESSAGES, sent);
	else
		join(d, wanted, sent, more);
}

/* Whether, as far as is known, this is a complete small message on a socket that counts. */
static bool is_plain(const struct descriptor *d, size_t wanted, size_t sent, bool more)
{
	return sent == wanted && !more && sent < TRUSTED_BYTES &&
	       (__atomic_load_n(&d->state, __ATOMIC_RELAXED) & KIND_MASK) == COUNTED &&
	       __atomic_load_n(&d->incomplete, __ATOMIC_RELAXED) == 0;
}

void descriptor_sent(int fd, size_t wanted, size_t sent, bool more)
{
	struct descriptor *d = descriptor(fd);

	if (d == NULL || !is_plain(d, wanted, sent, more))
		sent_otherwise(fd, d, wanted, sent, more);
	else if (count_small_message(sent) % TRUSTED_TIMES == 0)
		look_up(fd, d, __atomic_load_n(&d->state, __ATOMIC_RELAXED));
}

static void forget(struct descriptor *d)
{
	uint32_t state = __atomic_load_n(&d->state, __ATOMIC_RELAXED);
	uint32_t next;

	do
		next = ((state & ~(uint32_t)KIND_MASK) + GENERATION) | UNKNOWN;
	while (!__atomic_compare_exchange_n(&d->state, &state, next, true, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED));
	count_message(TRAFFIC_MESSAGES, take_incomplete(d));
}

void descriptors_forget(unsigned int first, unsigned int last)
{
	unsigned int end = __atomic_load_n(&beyond_highest, __ATOMIC_RELAXED);

	for (unsigned int fd = first; fd < end && fd <= last; fd++)
		forget(&descriptors[fd]);
}

void descriptors_end(void)
{
	unsigned int end = __atomic_load_n(&beyond_highest, __ATOMIC_RELAXED);

	for (unsigned int fd = 0; fd < end; fd++)
		count_message(TRAFFIC_MESSAGES, take_incomplete(&descriptors[fd]));
}
