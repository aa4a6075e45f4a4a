/*
 * Finds the count in a piece of printed text.
 *
 * Most printed text has no count, so the characters that every count needs are searched for first,
 * with fast functions of libc. The result may still be a date or a path: the reader on the node
 * decides what is progress.
 */
#define _GNU_SOURCE
#include "output_line.h"

#include <string.h>

#define MOST_DIGITS 15
#define MOST_BLANKS 12 /* between a number and the sign after it */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* The number of digits from `from` on, and where they end. NULL for none or too many. */
static const char *number_from(const char *from, const char *end, uint64_t *number)
{
	const char *digit = from;

	*number = 0;
	while (digit < end && digit - from <= MOST_DIGITS && is_digit(*digit))
		*number = *number * 10 + (uint64_t)(*digit++ - '0');
	return digit == from || digit - from > MOST_DIGITS ? NULL : digit;
}

static const char *skip_blanks(const char *from, const char *end)
{
	const char *stop = end - from > MOST_BLANKS ? from + MOST_BLANKS : end;

	while (from < stop && *from == ' ')
		from++;
	return from;
}

static const char *skip_blanks_back(const char *from, const char *begin)
{
	const char *stop = from - begin > MOST_BLANKS ? from - MOST_BLANKS : begin;

	while (from > stop && from[-1] == ' ')
		from--;
	return from;
}

/* Whether the letter before `end` ends an escape sequence such as "\x1b[31m". */
static bool is_behind_escape(const char *end, const char *begin)
{
	const char *byte = end - 1;

	while (byte > begin && end - byte < MOST_DIGITS && (is_digit(byte[-1]) || byte[-1] == ';'))
		byte--;
	return byte - begin >= 2 && byte[-1] == '[' && byte[-2] == '\x1b';
}

/* The start of the digits that end at `end`, if they are a complete number. */
static const char *digits_before(const char *end, const char *begin)
{
	const char *first = end;

	while (first > begin && end - first < MOST_DIGITS && is_digit(first[-1]))
		first--;
	if (first == end)
		return NULL;
	if (first == begin || (is_letter(first[-1]) && is_behind_escape(first, begin)))
		return first;
	if (is_digit(first[-1]) || is_letter(first[-1]) || strchr("./-", first[-1]) != NULL)
		return NULL;
	return first;
}

/* Whether the text after a number makes it a part of something else: a path, a date, a fraction. */
static bool goes_on(const char *after, const char *end)
{
	if (after == end)
		return false;
	if (is_letter(*after) || is_digit(*after) || *after == '/' || *after == '%')
		return true;
	return (*after == '.' || *after == '-') && after + 1 < end && is_digit(after[1]);
}

/* The start of the count whose sign, "/" or "of", is between `sign` and `behind`; NULL if none. */
static const char *count_around(const char *sign, const char *behind, const char *begin,
				const char *end, struct output_count *count)
{
	const char *first = digits_before(skip_blanks_back(sign, begin), begin);
	const char *after;

	if (first == NULL || number_from(first, sign, &count->step) == NULL)
		return NULL;
	after = number_from(skip_blanks(behind, end), end, &count->total);
	if (after == NULL || goes_on(after, end) || count->total == 0 || count->step > count->total)
		return NULL;
	return first;
}

/* Whether an f ends the word in "120 of 5000". Searching for the whole word (memmem) is slower. */
static bool is_of(const char *f, const char *begin, const char *end)
{
	return f - begin >= 2 && f[-2] == ' ' && f[-1] == 'o' && f + 1 < end && f[1] == ' ';
}

/* The last count written with a slash; otherwise the last one written with "of". */
static const char *last_pair(const char *begin, const char *end, struct output_count *count)
{
	const char *sign = end, *first;

	while ((sign = memrchr(begin, '/', (size_t)(sign - begin))) != NULL) {
		first = count_around(sign, sign + 1, begin, end, count);
		if (first != NULL)
			return first;
	}
	for (sign = end; (sign = memrchr(begin, 'f', (size_t)(sign - begin))) != NULL;) {
		if (!is_of(sign, begin, end))
			continue;
		first = count_around(sign - 2, sign + 2, begin, end, count);
		if (first != NULL)
			return first;
	}
	return NULL;
}

/* A tqdm bar with a percentage and without a count counts bytes: a download. */
static const char *last_percentage(const char *begin, const char *end, struct output_count *count)
{
	const char *sign = memrchr(begin, '%', (size_t)(end - begin));
	const char *first;

	if (sign == NULL || (sign + 1 < end && sign[1] == '|'))
		return NULL;
	first = skip_blanks_back(sign, begin);
	while (first > begin && sign - first < MOST_DIGITS && (is_digit(first[-1]) || first[-1] == '.'))
		first--;
	count->total = 100;
	if (number_from(first, sign, &count->step) == NULL || count->step > count->total)
		return NULL;
	return first;
}

/* Skip a sequence that sets colours or moves the cursor. */
static const char *behind_escape(const char *from, const char *end)
{
	const char *byte = from + 1;

	if (byte < end && *byte == '[')
		byte++;
	while (byte < end && !is_letter(*byte))
		byte++;
	return byte < end ? byte + 1 : end;
}

/* Whether an e belongs to a number such as 1e-05, which not every line writes that way. */
static bool is_exponent(const char *byte, const char *begin, const char *end)
{
	return *byte == 'e' && byte > begin && is_digit(byte[-1]) && byte + 1 < end &&
	       (is_digit(byte[1]) || byte[1] == '-' || byte[1] == '+');
}

/* Of the letters; not of numbers, signs, and the blocks and lines that bars are drawn with, which
 * are three bytes each in UTF-8, the first of them 0xE2. FNV-1a. */
static uint64_t shape_of(const char *begin, const char *end, uint64_t total)
{
	uint64_t shape = UINT64_C(0xCBF29CE484222325) ^ total;

	for (const char *byte = begin; byte < end; byte++) {
		if (*byte == '\x1b')
			byte = behind_escape(byte, end) - 1;
		else if ((unsigned char)*byte == 0xE2)
			byte += 2;
		else if ((is_letter(*byte) && !is_exponent(byte, begin, end)) || (*byte & 0x80))
			shape = (shape ^ (unsigned char)*byte) * UINT64_C(0x100000001B3);
	}
	return shape;
}

bool output_count_in(const char *text, size_t bytes, struct output_count *count)
{
	const char *end = text + bytes;
	const char *first = last_pair(text, end, count);

	if (first == NULL)
		first = last_percentage(text, end, count);
	if (first == NULL)
		return false;
	count->shape = shape_of(text, first, count->total);
	return true;
}
