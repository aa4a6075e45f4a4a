/* The traffic file: its header, and the validation of a file. */
#include "traffic.h"

#include <stdbool.h>
#include <string.h>

void traffic_describe(struct traffic_header *header)
{
	*header = (struct traffic_header){
		.magic = TRAFFIC_MAGIC,
		.version = TRAFFIC_VERSION,
		.file_bytes = TRAFFIC_FILE_BYTES,
		.header_bytes = sizeof(struct traffic_header),
		.section_bytes = sizeof(struct traffic_section),
		.sections = TRAFFIC_SECTIONS,
		.octaves = TRAFFIC_OCTAVES,
		.octave_bytes = sizeof(struct traffic_octave),
		.slots = TRAFFIC_SLOTS,
		.list_bytes = sizeof(struct traffic_list),
		.lists = TRAFFIC_LISTS,
	};
}

static bool only_zeros(const void *start, size_t bytes)
{
	const uint8_t *byte = start;

	return bytes == 0 || (byte[0] == 0 && memcmp(byte, byte + 1, bytes - 1) == 0);
}

/* Whether a size, or the largest of several, belongs to an octave. */
static bool belongs(uint64_t bytes, int octave)
{
	return bytes >> octave == 1;
}

static bool has_twin(const struct traffic_slot *slots, int index)
{
	for (int i = 0; i < index; i++)
		if (slots[i].bytes == slots[index].bytes)
			return true;
	return false;
}

static const char *slots_fault(const struct traffic_slot *slots)
{
	for (int i = 0; i < TRAFFIC_SLOTS; i++) {
		if (slots[i].bytes == 0 && slots[i].messages != 0)
			return "messages in a free slot";
		if (slots[i].bytes > TRAFFIC_LARGEST_BYTES)
			return "a size larger than any";
		if (slots[i].bytes != 0 && has_twin(slots, i))
			return "a size listed twice";
	}
	return NULL;
}

static const char *octave_fault(const struct traffic_octave *octave, int index)
{
	for (int i = 0; i < TRAFFIC_SLOTS; i++)
		if (octave->slots[i].bytes != 0 && !belongs(octave->slots[i].bytes, index))
			return "a size in an octave that is not its own";
	return slots_fault(octave->slots);
}

/* The largest is written first, then the number, then the bytes: a task may be killed between. */
static const char *unlisted_fault(const struct traffic_octave *octave, int index)
{
	uint64_t largest = octave->unlisted_largest_bytes;

	if (largest != 0 && !belongs(largest, index))
		return "a largest size in an octave that is not its own";
	if (octave->unlisted_messages != 0 && largest == 0)
		return "unlisted messages without a largest size";
	if (largest != 0 && octave->unlisted_bytes / largest > octave->unlisted_messages)
		return "more unlisted bytes than the largest size allows";
	if (largest == 0 && octave->unlisted_bytes != 0)
		return "unlisted bytes without messages";
	if (octave->reserved != 0)
		return "a reserved field that is not zero";
	return NULL;
}

static const char *section_fault(const struct traffic_section *section)
{
	for (int i = 0; i < TRAFFIC_OCTAVES; i++) {
		const struct traffic_octave *octave = &section->octaves[i];
		const char *fault = unlisted_fault(octave, i);

		if (fault == NULL)
			fault = octave_fault(octave, i);
		if (fault != NULL)
			return fault;
	}
	return NULL;
}

static const char *header_fault(const struct traffic_header *header)
{
	struct traffic_header right;

	traffic_describe(&right);
	if (header->magic != right.magic)
		return "not a traffic file";
	if (header->version != right.version)
		return "a traffic file of another version";
	if (memcmp(header, &right, sizeof(right)) != 0)
		return "a header that contradicts its version";
	return NULL;
}

static const char *lists_fault(const struct traffic_file *traffic)
{
	const struct traffic_list *lists = traffic->lists;
	uint64_t taken = traffic->lists_taken;
	const char *fault = NULL;

	if (taken > TRAFFIC_LISTS)
		return "more lists taken than there are";
	for (uint64_t i = 0; fault == NULL && i < taken; i++)
		fault = slots_fault(lists[i].slots);
	if (fault == NULL && !only_zeros(&lists[taken], (TRAFFIC_LISTS - taken) * sizeof(*lists)))
		return "data in a list that nobody took";
	return fault;
}

const char *traffic_fault(const void *file, size_t bytes)
{
	const struct traffic_file *traffic = file;
	const char *fault;

	if (bytes != sizeof(*traffic))
		return "a file of the wrong size";
	if (only_zeros(file, bytes))
		return NULL;
	fault = header_fault(&traffic->header);
	for (int i = 0; fault == NULL && i < TRAFFIC_SECTIONS; i++)
		fault = section_fault(&traffic->sections[i]);
	if (fault == NULL && !only_zeros(traffic->unused, sizeof(traffic->unused)))
		return "data behind the last section";
	return fault == NULL ? lists_fault(traffic) : fault;
}
