/* Records the progress that a job prints: the content of its file, and the choice of slots. */
#define _GNU_SOURCE
#include "output.h"

#include "mapped_file.h"
#include "output_line.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOKED_AT 2048      /* bytes examined at the end of each write */
#define LOOKED_AT_PARTS 512 /* the same for vectored writes, which must be copied */
#define PIECES 8            /* pieces in these bytes, counted from the last one */
#define BLOCK 4096          /* a program that writes this much at once may stop within a line */

/* As in slurm_tiresias/job/channel.py: the innermost launcher counts. */
static const char *const rank_variables[] = {
	"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID",
};

static struct output_file *output;

static bool is_first_process(void)
{
	for (size_t i = 0; i < sizeof(rank_variables) / sizeof(rank_variables[0]); i++) {
		const char *rank = secure_getenv(rank_variables[i]);

		if (rank != NULL && rank[0] != '\0' && rank[strspn(rank, "0123456789")] == '\0')
			return rank[strspn(rank, "0")] == '\0';
	}
	return true;
}

void output_begin(void)
{
	if (output == NULL && is_first_process())
		output = map_named_file(OUTPUT_VARIABLE, OUTPUT_FILE_BYTES);
}

bool output_is_on(void)
{
	return output != NULL;
}

#define GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE) /* in this order */

static uint64_t now_ms(void)
{
	struct timespec now = {0};

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The rank of a slot: those with a low rank are replaced first. */
static int rank_of(const struct output_slot *slot)
{
	uint64_t step = GET(slot->step);

	if (GET(slot->magic) != OUTPUT_MAGIC)
		return -1;
	if (step >= GET(slot->total))
		return 0;
	if (GET(slot->moved) != 0)
		return 3;
	return step <= 1 ? 2 : 1;
}

static struct output_slot *slot_for(uint64_t shape)
{
	struct output_slot *found = &output->slots[0];
	int rank = rank_of(found);

	for (int i = 0; i < OUTPUT_SLOTS; i++) {
		struct output_slot *slot = &output->slots[i];

		if (GET(slot->magic) == OUTPUT_MAGIC && GET(slot->shape) == shape)
			return slot;
	}
	for (int i = 1; i < OUTPUT_SLOTS; i++) {
		struct output_slot *slot = &output->slots[i];
		int its_rank = rank_of(slot);

		if (its_rank < rank ||
		    (its_rank == rank && rank >= 0 && GET(slot->last_ms) < GET(found->last_ms)))
			found = slot, rank = its_rank;
	}
	return found;
}

/* Copy in words of eight bytes: a reader or another writer may come between any two of them. */
static void store_text(struct output_slot *slot, const char *text, size_t bytes)
{
	uint64_t *words = (uint64_t *)slot->text;
	size_t whole = bytes / sizeof(*words);
	uint64_t word;

	for (size_t i = 0; i < whole; i++) {
		memcpy(&word, text + i * sizeof(word), sizeof(word));
		SET(words[i], word);
	}
	if (whole == OUTPUT_TEXT_BYTES / sizeof(word))
		return;
	word = 0;
	memcpy(&word, text + whole * sizeof(word), bytes % sizeof(word));
	SET(words[whole], word);
}

static void keep(const char *text, size_t bytes, const struct output_count *count)
{
	struct output_slot *slot = slot_for(count->shape);
	bool is_known = GET(slot->magic) == OUTPUT_MAGIC && GET(slot->shape) == count->shape;
	uint64_t step = is_known ? GET(slot->step) : 0;
	uint32_t written = GET(slot->written) + 1;
	uint64_t now = now_ms();

	SET(slot->written, written);
	if (!is_known) {
		SET(slot->shape, count->shape);
		SET(slot->first_ms, now);
	}
	if (!is_known || step != count->step)
		SET(slot->changed_ms, now);
	SET(slot->seen, is_known ? GET(slot->seen) + 1 : 1);
	SET(slot->moved, is_known ? GET(slot->moved) + (count->step > step) : 0);
	SET(slot->last_ms, now);
	SET(slot->step, count->step);
	SET(slot->total, count->total);
	SET(slot->length, (uint32_t)bytes);
	store_text(slot, text, bytes);
	SET(slot->magic, OUTPUT_MAGIC);
	SET(slot->sequence, written);
}

static const char *later(const char *one, const char *other)
{
	return one > other ? one : other; /* NULL sorts before all */
}

/* The position after the last \r or \n before `end`; NULL if there is none from `begin` on. */
static const char *behind_last_cut(const char *begin, const char *end)
{
	const char *cut = later(memrchr(begin, '\n', (size_t)(end - begin)),
				memrchr(begin, '\r', (size_t)(end - begin)));

	return cut == NULL ? NULL : cut + 1;
}

struct piece {
	const char *begin;
	const char *end;
};

/* The last non-empty pieces, from the last one back. */
static int last_pieces(const char *begin, const char *end, bool begins_whole,
		       struct piece pieces[PIECES])
{
	int found = 0;

	for (int i = 0; i < 2 * PIECES && found < PIECES; i++) {
		const char *start = behind_last_cut(begin, end);

		if (start == NULL && !begins_whole)
			break;
		if (start == NULL)
			start = begin;
		if (start < end)
			pieces[found++] = (struct piece){start, end};
		if (start == begin)
			break;
		end = start - 1;
	}
	return found;
}

/* Store the latest text last: two pieces may have the same shape. */
static void keep_pieces(const char *begin, const char *end, bool begins_whole, bool ends_whole)
{
	struct piece pieces[PIECES];
	struct output_count count;

	/* A truncated number would be a different one. */
	if (!ends_whole)
		end = behind_last_cut(begin, end);
	if (end == NULL)
		return;
	for (int i = last_pieces(begin, end, begins_whole, pieces); i-- > 0;) {
		size_t bytes = (size_t)(pieces[i].end - pieces[i].begin);

		if (bytes > OUTPUT_TEXT_BYTES)
			bytes = OUTPUT_TEXT_BYTES;
		if (output_count_in(pieces[i].begin, bytes, &count))
			keep(pieces[i].begin, bytes, &count);
	}
}

void output_printed(const char *data, size_t wanted, size_t sent)
{
	size_t bytes = sent < LOOKED_AT ? sent : LOOKED_AT;
	const char *end = data + sent;

	keep_pieces(end - bytes, end, bytes == sent, sent == wanted && sent < BLOCK);
}

void output_printed_parts(const struct iovec *parts, int number, size_t sent)
{
	char tail[LOOKED_AT_PARTS];
	size_t bytes = sent < sizeof(tail) ? sent : sizeof(tail);
	size_t skipped = sent - bytes;
	size_t wanted = 0, kept = 0;

	for (int i = 0; i < number; i++) {
		size_t from = skipped < parts[i].iov_len ? skipped : parts[i].iov_len;
		size_t taken = parts[i].iov_len - from;

		if (taken > bytes - kept)
			taken = bytes - kept;
		if (taken > 0)
			memcpy(tail + kept, (const char *)parts[i].iov_base + from, taken);
		kept += taken;
		skipped -= from;
		wanted += parts[i].iov_len;
	}
	keep_pieces(tail, tail + kept, kept == sent, sent == wanted && sent < BLOCK);
}
