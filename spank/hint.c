#include "hint.h"

#include <string.h>

static const char mark[] = "tiresias:";
static const char part[] = "model=";
static const char blanks[] = " \t\n\v\f\r";

/* Returns the text after the mark, if the mark begins a word; otherwise NULL. */
static const char *find(const char *comment)
{
	for (const char *at = comment; (at = strstr(at, mark)); at++)
		if (at == comment || strchr(blanks, at[-1]))
			return at + strlen(mark);
	return NULL;
}

bool hint_model(char model[MODEL_SIZE], const char *comment)
{
	const char *at = comment ? find(comment) : NULL;
	const char *end = at ? at + strcspn(at, blanks) : NULL;
	model[0] = '\0';
	while (at && at < end) {
		size_t length = strcspn(at, ", \t\n\v\f\r");
		if (strncmp(at, part, strlen(part)) == 0)
			return options_take_model(model, at + strlen(part), length - strlen(part));
		at += length + 1;
	}
	return false;
}
