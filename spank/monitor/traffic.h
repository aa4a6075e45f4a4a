/* The traffic file: what the tasks of one job on one node have sent, by size.
 *
 * One file per run of a job and node, of a fixed size. Root creates it with ftruncate,
 * gives it to the user with mode 0600, and names it in TRAFFIC_VARIABLE; every task of the job
 * there maps it and adds to it. A file of the right size that holds only zeros is a valid empty
 * one: the first process that maps it writes the header.
 *
 * Offsets in bytes, all numbers little-endian and unsigned:
 *
 *     0      header, 64 bytes (struct traffic_header)
 *     64     section "messages": what went through sockets and verbs
 *     26176  section "collectives": what was handed to NCCL
 *     52288  number of lists in use, and zeros
 *     53248  64 lists of small messages, of 512 bytes each, up to 86016, the end
 *
 * A section is 48 octaves of 544 bytes. Octave o holds sizes from 2^o to 2^(o+1) - 1 bytes. It
 * has 32 slots, each for one size and the number of messages of exactly that size. A slot is taken
 * by the first message of its size and kept, so its number is exact. Messages of sizes that came
 * when all slots of their octave were taken are unlisted: only their number, their bytes and the
 * largest of them are known. So, for one octave,
 *
 *     messages = unlisted_messages + sum of slots[].messages
 *     bytes    = unlisted_bytes    + sum of slots[].bytes * slots[].messages
 *     largest  = max(unlisted_largest_bytes, slots[].bytes)
 *
 * and the histogram is these numbers over the octaves. A message is counted by one atomic addition,
 * or, unlisted, by three; there is no moment at which a killed task leaves a wrong number.
 *
 * A list belongs permanently to the thread that has taken it, and has slots like those of an
 * octave, but for sizes of any octave. The counts in a list are in addition to those in the
 * section "messages": a size may also be in that section, and in other lists. As no other thread
 * writes to it, a thread adds to its list without a lock.
 */
#ifndef TIRESIAS_TRAFFIC_H
#define TIRESIAS_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

#define TRAFFIC_VARIABLE "TIRESIAS_TRAFFIC_FILE"

#define TRAFFIC_MAGIC UINT64_C(0x4652545345524954) /* "TIRESTRF" as stored in the file */
#define TRAFFIC_VERSION 2
#define TRAFFIC_FILE_BYTES 86016
#define TRAFFIC_SECTIONS 2
#define TRAFFIC_OCTAVES 48
#define TRAFFIC_SLOTS 32
#define TRAFFIC_LISTS 64
#define TRAFFIC_LARGEST_BYTES ((UINT64_C(1) << TRAFFIC_OCTAVES) - 1) /* larger ones count as this */

enum traffic_section_index {
	TRAFFIC_MESSAGES = 0,    /* sends on AF_INET and AF_INET6 sockets, and of RDMA verbs */
	TRAFFIC_COLLECTIVES = 1, /* NCCL: elements times the size of one, per rank and call */
};

struct traffic_header {
	uint64_t magic;         /* 0: TRAFFIC_MAGIC, written last */
	uint32_t version;       /* 8: TRAFFIC_VERSION */
	uint32_t file_bytes;    /* 12: TRAFFIC_FILE_BYTES */
	uint32_t header_bytes;  /* 16: 64, where the first section begins */
	uint32_t section_bytes; /* 20: 26112 */
	uint32_t sections;      /* 24: TRAFFIC_SECTIONS */
	uint32_t octaves;       /* 28: TRAFFIC_OCTAVES, per section */
	uint32_t octave_bytes;  /* 32: 544 */
	uint32_t slots;         /* 36: TRAFFIC_SLOTS, per octave and per list */
	uint32_t list_bytes;    /* 40: 512 */
	uint32_t lists;         /* 44: TRAFFIC_LISTS, the last bytes of the file */
	uint64_t reserved[2];   /* 48: zero */
};

struct traffic_slot {
	uint64_t bytes;    /* the size, in an octave one of its own; 0: the slot is free */
	uint64_t messages; /* how many of exactly this size */
};

struct traffic_octave {
	uint64_t unlisted_messages;      /* messages whose size found no slot */
	uint64_t unlisted_bytes;         /* their sum */
	uint64_t unlisted_largest_bytes; /* the largest of them; 0: none */
	uint64_t reserved;               /* zero */
	struct traffic_slot slots[TRAFFIC_SLOTS];
};

struct traffic_section {
	struct traffic_octave octaves[TRAFFIC_OCTAVES];
};

struct traffic_list {
	struct traffic_slot slots[TRAFFIC_SLOTS];
};

struct traffic_file {
	struct traffic_header header;
	struct traffic_section sections[TRAFFIC_SECTIONS];
	uint64_t lists_taken; /* the number of lists in use; they are the first ones */
	uint8_t unused[952];  /* zeros, so that the lists begin on a separate page */
	struct traffic_list lists[TRAFFIC_LISTS];
};

_Static_assert(sizeof(struct traffic_header) == 64, "header of 64 bytes");
_Static_assert(sizeof(struct traffic_octave) == 544, "octave of 544 bytes");
_Static_assert(sizeof(struct traffic_section) == 26112, "section of 26112 bytes");
_Static_assert(offsetof(struct traffic_file, lists) == 53248, "lists from 53248 on");
_Static_assert(sizeof(struct traffic_file) == TRAFFIC_FILE_BYTES, "file of 86016 bytes");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");

/* Fill in the header of a file that is being created. */
void traffic_describe(struct traffic_header *header);

/* What is wrong with a traffic file, or NULL: it is valid, or empty.
 *
 * For files that a user has written: looks at no more than `bytes` bytes, and believes nothing.
 * `file` must be aligned to 8 bytes and must not change meanwhile: copy it first. */
const char *traffic_fault(const void *file, size_t bytes);

#endif
