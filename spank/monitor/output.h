/* The output file: the latest text of each kind of progress line that a job has printed on a node.
 *
 * One file of OUTPUT_FILE_BYTES bytes per run of the job and node. Root creates it full of zeros,
 * gives it to the user with mode 0600 and names it in OUTPUT_VARIABLE. The first of the job's
 * processes, and what it starts, map it and write to it. A file of zeros is valid and empty.
 *
 * It has 8 slots of 512 bytes. A slot holds the latest piece of text (a piece ends at \r or \n) of
 * one shape. The shape is a hash of the total and of the words before the last count in the piece:
 * "120/5000", "120 of 5000" or, if there is neither, "12%", which counts as 12 of 100. Parts that
 * change from line to line, such as numbers, bars, colours and rates, do not enter the hash.
 * Numbers are little-endian and unsigned, times are milliseconds since 1970.
 *
 * There are no locks. A writer stores `written`, then everything else, then `sequence`; a reader
 * that copies a slot from beginning to end has an inconsistent copy if the two differ. If several
 * processes write to a slot at once, an inconsistent copy may go unnoticed. The file belongs to the
 * user, who can write anything into it.
 *
 * A new shape takes a free slot. If there is none, it replaces the least recently written slot of
 * the lowest of these ranks:
 *
 *     0  finished: the step has reached the total
 *     1  has not moved: the step has not grown since the slot was taken
 *     2  has just begun: step 0 or 1, and has not moved
 *     3  moves
 *
 * So lines that are printed once do not replace a progress bar that is printed once per epoch.
 */
#ifndef TIRESIAS_OUTPUT_H
#define TIRESIAS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define OUTPUT_VARIABLE "TIRESIAS_OUTPUT_FILE"

#define OUTPUT_MAGIC UINT32_C(0x3154554F) /* "OUT1" as stored in the file */
#define OUTPUT_FILE_BYTES 4096
#define OUTPUT_SLOTS 8
#define OUTPUT_TEXT_BYTES 432

struct output_slot {
	uint32_t magic;      /* 0: OUTPUT_MAGIC; 0: the slot is free */
	uint32_t sequence;   /* 4: equal to `written` if the slot is consistent */
	uint64_t shape;      /* 8: hash of the total and the words */
	uint64_t seen;       /* 16: number of pieces of this shape */
	uint64_t first_ms;   /* 24: when the first of them was printed */
	uint64_t last_ms;    /* 32: when the latest was */
	uint64_t changed_ms; /* 40: when the step last changed */
	uint64_t step;       /* 48: the step of the last count in the text */
	uint64_t total;      /* 56: the total of that count */
	uint32_t moved;      /* 64: how often the step has grown */
	uint32_t length;     /* 68: bytes of the text */
	char text[OUTPUT_TEXT_BYTES]; /* 72: the beginning of the piece, raw */
	uint32_t reserved;   /* 504: zero */
	uint32_t written;    /* 508: how many times the slot was written */
};

struct output_file {
	struct output_slot slots[OUTPUT_SLOTS];
};

_Static_assert(sizeof(struct output_slot) == 512, "slot of 512 bytes");
_Static_assert(offsetof(struct output_slot, text) == 72, "text from 72 on");
_Static_assert(OUTPUT_TEXT_BYTES % sizeof(uint64_t) == 0, "text of whole words");
_Static_assert(sizeof(struct output_file) == OUTPUT_FILE_BYTES, "file of 4096 bytes");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");

/* Map the file that OUTPUT_VARIABLE names, in the first of the job's processes; if it is missing or
 * invalid, nothing is recorded. */
void output_begin(void);

/* Whether there is a file to write to. */
bool output_is_on(void);

/* `sent` of `wanted` bytes were written: record the progress that they show. May be called at any
 * time and by any thread, even from a signal handler. Call it only when output is on. */
void output_printed(const char *data, size_t wanted, size_t sent);
void output_printed_parts(const struct iovec *parts, int number, size_t sent);

#endif
