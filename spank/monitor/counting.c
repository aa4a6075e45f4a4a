/* Counting messages into the traffic file: mapped once, written by many at a time, never needed. */
#define _GNU_SOURCE
#include "counting.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct traffic_file *traffic;
static struct sigaction earlier_action;

/* Every page must have its blocks: to write where the disk has no room left is death by SIGBUS. */
static bool has_its_blocks(int fd)
{
	struct stat file;

	if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size != TRAFFIC_FILE_BYTES)
		return false;
	return file.st_blocks * 512 >= TRAFFIC_FILE_BYTES ||
	       fallocate(fd, 0, 0, TRAFFIC_FILE_BYTES) == 0;
}

static struct traffic_file *map_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	void *mapped = MAP_FAILED;

	if (fd < 0)
		return NULL;
	if (has_its_blocks(fd))
		mapped = mmap(NULL, TRAFFIC_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return mapped == MAP_FAILED ? NULL : mapped;
}

static bool is_new(const struct traffic_header *header)
{
	return __atomic_load_n(&header->magic, __ATOMIC_ACQUIRE) == 0;
}

/* Several tasks may do this at once: all write the same, and the magic last. */
static void write_header(struct traffic_header *header)
{
	struct traffic_header right;
	const uint64_t *from = (const uint64_t *)&right;
	uint64_t *to = (uint64_t *)header;

	traffic_describe(&right);
	for (size_t i = sizeof(right) / sizeof(*to); i-- > 0;)
		__atomic_store_n(&to[i], from[i], __ATOMIC_RELEASE);
}

static bool is_ours(const struct traffic_header *header)
{
	struct traffic_header right;

	traffic_describe(&right);
	return memcmp(header, &right, sizeof(right)) == 0;
}

/* The page that failed becomes memory of this process alone: nothing is lost but the counts. */
static bool give_up_page_at(const void *address)
{
	uintptr_t start = (uintptr_t)traffic;

	if (start == 0 || (uintptr_t)address - start >= TRAFFIC_FILE_BYTES)
		return false;
	return mmap(traffic, TRAFFIC_FILE_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* Not our fault: to the former handler, or to the default, which ends the process. */
static void pass_on(int number, siginfo_t *info, void *context)
{
	if (earlier_action.sa_flags & SA_SIGINFO) {
		earlier_action.sa_sigaction(number, info, context);
	} else if (earlier_action.sa_handler != SIG_DFL && earlier_action.sa_handler != SIG_IGN) {
		earlier_action.sa_handler(number);
	} else if (earlier_action.sa_handler == SIG_DFL || info->si_code > 0) {
		/* A fault comes again when we return; one that was sent has to be sent again. */
		sigaction(number, &earlier_action, NULL);
		if (info->si_code <= 0)
			syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
	}
}

/* A user may truncate his own file, and every access behind its end is a SIGBUS. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
	int error = errno;

	if (info->si_code <= 0 || !give_up_page_at(info->si_addr))
		pass_on(number, info, context);
	errno = error;
}

static void survive_truncation(void)
{
	struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, NULL, &earlier_action) == 0)
		sigaction(SIGBUS, &action, NULL);
}

void counting_begin(void)
{
	const char *path = secure_getenv(TRAFFIC_VARIABLE);
	struct traffic_file *mapped = path == NULL ? NULL : map_file(path);

	if (mapped == NULL || traffic != NULL)
		return;
	traffic = mapped;
	survive_truncation();
	if (is_new(&mapped->header))
		write_header(&mapped->header);
	if (is_ours(&mapped->header))
		return;
	traffic = NULL;
	munmap(mapped, TRAFFIC_FILE_BYTES);
}

bool counting_is_on(void)
{
	return traffic != NULL;
}

struct traffic_list *take_list(void)
{
	uint64_t taken = __atomic_load_n(&traffic->lists_taken, __ATOMIC_RELAXED);

	while (taken < TRAFFIC_LISTS)
		if (__atomic_compare_exchange_n(&traffic->lists_taken, &taken, taken + 1, true,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return &traffic->lists[taken];
	return NULL;
}

struct traffic_slot *slot_of(struct traffic_slot *slots, uint64_t bytes)
{
	unsigned int first = (bytes * UINT64_C(0x9E3779B97F4A7C15)) >> 32;

	for (unsigned int i = 0; i < TRAFFIC_SLOTS; i++) {
		struct traffic_slot *slot = &slots[(first + i) % TRAFFIC_SLOTS];
		uint64_t holder = __atomic_load_n(&slot->bytes, __ATOMIC_RELAXED);

		if (holder == 0 &&
		    __atomic_compare_exchange_n(&slot->bytes, &holder, bytes, false,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return slot;
		if (holder == bytes)
			return slot;
	}
	return NULL;
}

static void raise_to(uint64_t *largest, uint64_t bytes)
{
	uint64_t known = __atomic_load_n(largest, __ATOMIC_RELAXED);

	while (known < bytes &&
	       !__atomic_compare_exchange_n(largest, &known, bytes, true, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		continue;
}

__attribute__((cold, noinline)) static uint64_t count_unlisted(struct traffic_octave *octave,
							       uint64_t bytes)
{
	uint64_t before;

	raise_to(&octave->unlisted_largest_bytes, bytes);
	before = __atomic_fetch_add(&octave->unlisted_messages, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&octave->unlisted_bytes, bytes, __ATOMIC_RELAXED);
	return before;
}

uint64_t count_message(enum traffic_section_index section, uint64_t bytes)
{
	struct traffic_octave *octave;
	struct traffic_slot *slot;

	if (traffic == NULL || bytes == 0)
		return 0;
	if (bytes > TRAFFIC_LARGEST_BYTES)
		bytes = TRAFFIC_LARGEST_BYTES;
	octave = &traffic->sections[section].octaves[63 - __builtin_clzll(bytes)];
	slot = slot_of(octave->slots, bytes);
	if (slot == NULL)
		return count_unlisted(octave, bytes);
	return __atomic_fetch_add(&slot->messages, 1, __ATOMIC_RELAXED);
}
