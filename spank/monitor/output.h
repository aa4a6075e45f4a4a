/* The output file: the latest text of each kind of progress line that a job has printed on a node.
 *
 * One file of OUTPUT_FILE_BYTES bytes per run of the job and node. Root creates it full of zeros,
 * gives it to the user with mode 0600 and names it in OUTPUT_VARIABLE. The first of the job's
 * processes, and what it starts, map it and write to it. A file of zeros is valid and empty.
 *
 * It has 8 slots of 512 bytes. A slot holds the latest piece of text (a piece ends at \r or \n) of
 * one shape. The shape is a hash of the total and of the words before the last count in the piece:
 * "120/5000", "120 of 5000" or, where there is neither, "12%", which counts as 12 of 100. What changes
 * from one line to the next, such as numbers, bars, colours and rates, is left out of it. Numbers
 * are little-endian and unsigned, times are milliseconds since 1970.
 *
 * Nothing is locked. A writer stores `written`, then everything else, then `sequence`; a reader that
 * copies a slot from its beginning to its end has a torn one where the two differ. Where several
 * processes write to a slot at once, a torn one may go unnoticed. The file belongs to the user, who
 * can write anything into it.
 *
 * A new shape takes a free slot. Where there is none it replaces the least recently written slot of
 * the lowest of these ranks:
 *
 *     0  finished: the step has reached the total
 *     1  has not moved: the step has not grown since the slot was taken
 *     2  has just begun: step 0 or 1, and has not moved
 *     3  moves
 *
 * So lines that come once do not replace a bar that is printed once an epoch.
 */
#ifndef TIRESIAS_OUTPUT_H
#define TIRESIAS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define OUTPUT_VARIABLE "TIRESIAS_OUTPUT_FILE"

#define OUTPUT_MAGIC UINT32_C(0x3154554F) /* "OUT1" as it lies in the file */
#define OUTPUT_FILE_BYTES 4096
#define OUTPUT_SLOTS 8
#define OUTPUT_TEXT_BYTES 432

struct output_slot {
	uint32_t magic;      /* 0: OUTPUT_MAGIC; 0: the slot is free */
	uint32_t sequence;   /* 4: equal to `written` where the slot is whole */
	uint64_t shape;      /* 8: of the text */
	uint64_t seen;       /* 16: how many pieces of this shape */
	uint64_t first_ms;   /* 24: when the first of them was printed */
	uint64_t last_ms;    /* 32: when the latest was */
	uint64_t changed_ms; /* 40: when the step last became another */
	uint64_t step;       /* 48: of the last count in the text */
	uint64_t total;      /* 56: the same */
	uint32_t moved;      /* 64: how often the step has grown */
	uint32_t length;     /* 68: bytes of the text */
	char text[OUTPUT_TEXT_BYTES]; /* 72: the beginning of the piece, raw */
	uint32_t reserved;   /* 504: zero */
	uint32_t written;    /* 508: how often the slot was written to */
};

struct output_file {
	struct output_slot slots[OUTPUT_SLOTS];
};

_Static_assert(sizeof(struct output_slot) == 512, "slot of 512 bytes");
_Static_assert(offsetof(struct output_slot, text) == 72, "text from 72 on");
_Static_assert(OUTPUT_TEXT_BYTES % sizeof(uint64_t) == 0, "text of whole words");
_Static_assert(sizeof(struct output_file) == OUTPUT_FILE_BYTES, "file of 4096 bytes");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");

/* Map the file that OUTPUT_VARIABLE names, in the first of the job's processes; whatever is missing
 * or wrong, nothing is kept. */
void output_begin(void);

/* Whether there is a file to write to. */
bool output_is_on(void);

/* Of `wanted` bytes `sent` were written: keep the progress that they tell. May be called at any time,
 * from a signal handler too, by any thread. Only when output is on. */
void output_printed(const char *data, size_t wanted, size_t sent);
void output_printed_parts(const struct iovec *parts, int number, size_t sent);

#endif
