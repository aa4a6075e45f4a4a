#include "preload.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char variable[] = "LD_PRELOAD";
static const char separators[] = " :";

enum { LIST_SIZE = 32768 };

/* The header that the linker puts at the start of this plugin. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static bool fits_this_machine(const ElfW(Ehdr) * header)
{
	return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
	       header->e_ident[EI_CLASS] == __ehdr_start.e_ident[EI_CLASS] &&
	       header->e_ident[EI_DATA] == __ehdr_start.e_ident[EI_DATA] &&
	       header->e_machine == __ehdr_start.e_machine && header->e_type == ET_DYN;
}

/* Otherwise ld.so would print an error on every program's stderr. */
bool is_loadable(const char *library)
{
	ElfW(Ehdr) header;
	ssize_t got;
	int file = open(library, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (file < 0)
		return false;
	got = read(file, &header, sizeof header);
	close(file);
	return got == (ssize_t)sizeof header && fits_this_machine(&header);
}

/* The position of a library in a list, as a complete entry; NULL if it is not there. */
static char *find(char *list, const char *library)
{
	size_t length = strlen(library);
	for (char *at = list; (at = strstr(at, library)); at++) {
		bool begins = at == list || strchr(separators, at[-1]);
		if (begins && strchr(" :", at[length]))
			return at;
	}
	return NULL;
}

/* The list, "" if there is none; NULL if it is too long to be changed. */
static char *list_read(spank_t spank)
{
	char *list = calloc(1, LIST_SIZE);
	spank_err_t error = list ? spank_getenv(spank, variable, list, LIST_SIZE) : ESPANK_NOSPACE;
	if (error == ESPANK_SUCCESS)
		return list;
	if (error == ESPANK_ENV_NOEXIST) {
		list[0] = '\0';
		return list;
	}
	free(list);
	return NULL;
}

static void append(spank_t spank, const char *list, const char *library)
{
	size_t size = strlen(list) + 1 + strlen(library) + 1;
	char *longer = malloc(size);
	if (!longer)
		return;
	snprintf(longer, size, "%s%s%s", list, list[0] ? ":" : "", library);
	spank_setenv(spank, variable, longer, 1);
	free(longer);
}

void preload_add(spank_t spank, const char *library)
{
	char *list = list_read(spank);
	if (list)
		append(spank, list, library);
	free(list);
}

/* Removes an entry with the separator before it or, for the first entry, the one after it. */
static void cut(char *list, char *at, size_t length)
{
	char *behind = at + length;
	if (at > list)
		at--;
	else if (*behind)
		behind++;
	memmove(at, behind, strlen(behind) + 1);
}

void preload_remove(spank_t spank, const char *library)
{
	char *list = library[0] ? list_read(spank) : NULL;
	char *at = list ? find(list, library) : NULL;
	bool found = at;
	for (; at; at = find(list, library))
		cut(list, at, strlen(library));
	if (found && list[0])
		spank_setenv(spank, variable, list, 1);
	else if (found)
		spank_unsetenv(spank, variable);
	free(list);
}
