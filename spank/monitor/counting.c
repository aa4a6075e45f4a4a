/* Counts messages in the traffic file, which is mapped once and written by many processes at the
 * same time. */
#define _GNU_SOURCE
#include "counting.h"

#include "mapped_file.h"

#include <string.h>

static struct traffic_file *traffic;

static bool is_new(const struct traffic_header *header)
{
	return __atomic_load_n(&header->magic, __ATOMIC_ACQUIRE) == 0;
}

/* Several tasks may do this at once: all write the same, and the magic number last. */
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

void counting_begin(void)
{
	struct traffic_file *mapped;

	if (traffic != NULL)
		return;
	mapped = map_named_file(TRAFFIC_VARIABLE, TRAFFIC_FILE_BYTES);
	if (mapped == NULL)
		return;
	if (is_new(&mapped->header))
		write_header(&mapped->header);
	if (is_ours(&mapped->header))
		traffic = mapped;
	else
		unmap_file(mapped);
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
