#include "word.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+"

enum { CODED_LENGTH = 3 }; /* %20 */

bool word_of(char word[WORD_SIZE], const char *text)
{
	size_t length = 0;
	for (; text && *text; text++) {
		if (length + CODED_LENGTH >= WORD_SIZE) {
			length = 0;
			break;
		}
		if (strchr(PLAIN, *text))
			word[length++] = *text;
		else
			length += (size_t)snprintf(word + length, CODED_LENGTH + 1, "%%%02X",
						   (unsigned char)*text);
	}
	word[length] = '\0';
	return length > 0;
}

bool word_take(char word[WORD_SIZE], const char *said)
{
	size_t length = said ? strnlen(said, WORD_SIZE) : 0;
	word[0] = '\0';
	if (length == 0 || length == WORD_SIZE || strspn(said, PLAIN "%") != length)
		return false;
	memcpy(word, said, length + 1);
	return true;
}
