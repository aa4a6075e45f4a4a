/* Text that anybody may have made up, as one word: it can neither end a line nor begin another. */
#ifndef TIRESIAS_WORD_H
#define TIRESIAS_WORD_H

#include <stdbool.h>

/* The length of the longest name of a profile, 256 characters of UTF-8, with every byte encoded. */
enum { WORD_SIZE = 256 * 4 * 3 + 1 };

/*
 * Percent-encodes like Python's urllib.parse.quote(text, safe="+"); a model's name stays as it is.
 * False, and "", if there is no text or it is too long.
 */
bool word_of(char word[WORD_SIZE], const char *text);

/* The same for text that is already encoded. */
bool word_take(char word[WORD_SIZE], const char *said);

#endif
