#include "known.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "as_owner.h"

static const char file_name[] = "known";
static const char first_line[] = "tiresias-known 1\n";

enum { MOST_BYTES = 4 << 20, KIND_SIZE = 16, LINE_SIZE = KIND_SIZE + 2 * WORD_SIZE };

struct text {
	char *bytes; /* NULL: there is none */
	size_t size;
};

/* ---------------------------------------------------------------------------------------------
 * Reading the file
 */

/* If other users may create files in the folder, theirs are ignored. */
static bool is_the_controllers(const struct stat *file, const struct stat *folder)
{
	return S_ISREG(file->st_mode) && (file->st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
	       (file->st_uid == 0 || file->st_uid == folder->st_uid);
}

static bool read_all(int file, char *bytes, size_t size)
{
	size_t had = 0;
	while (had < size) {
		ssize_t got = pread(file, bytes + had, size - had, (off_t)had);
		if (got > 0)
			had += (size_t)got;
		else if (got == 0 || errno != EINTR)
			return false;
	}
	return true;
}

static struct text read_sound(int folder, int file)
{
	struct stat of_folder, of_file;
	struct text known = {0};
	if (fstat(folder, &of_folder) != 0 || fstat(file, &of_file) != 0 ||
	    !is_the_controllers(&of_file, &of_folder) || of_file.st_size > MOST_BYTES ||
	    of_file.st_size < (off_t)strlen(first_line))
		return known;
	known.size = (size_t)of_file.st_size;
	known.bytes = malloc(known.size);
	if (known.bytes && read_all(file, known.bytes, known.size) &&
	    memcmp(known.bytes, first_line, strlen(first_line)) == 0)
		return known;
	free(known.bytes);
	return (struct text){0};
}

static int open_known(int folder)
{
	return openat(folder, file_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static int open_as_root_or_owner(int folder)
{
	int file = open_known(folder);
	if (file >= 0 || errno != EACCES)
		return file;
	as_owner_of(folder);
	file = open_known(folder);
	as_ourselves();
	return file;
}

static struct text read_known(const char *collect)
{
	struct text known = {0};
	int file, folder = collect[0] ? open(collect, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	if (folder < 0)
		return known;
	file = open_as_root_or_owner(folder);
	if (file >= 0) {
		known = read_sound(folder, file);
		close(file);
	}
	close(folder);
	return known;
}

/* ---------------------------------------------------------------------------------------------
 * Finding a program in it, as find() in slurm_tiresias/profiler/profile.py does
 */

/* KIND NAME USER, or KIND NAME if the profile counts for all users. */
static bool has_line(const struct text *known, const char *kind, const char *name,
		     const char *user)
{
	char line[LINE_SIZE];
	int length = snprintf(line, sizeof line, "\n%s %s%s%s\n", kind, name, user ? " " : "",
			      user ? user : "");
	return length > 0 && length < LINE_SIZE &&
	       memmem(known->bytes, known->size, line, (size_t)length);
}

/* Names VGG-16 and Inception_v3 become vgg16 and inception3, as in
 * slurm_tiresias/profiler/models.py. */
static void spell_plainly(char spelled[WORD_SIZE], const char *model)
{
	for (; *model; model++) {
		bool before_version = (*model == 'v' || *model == 'V') &&
				      (model[1] == '3' || model[1] == '4') && !model[2];
		if (isalnum((unsigned char)*model) && !before_version)
			*spelled++ = (char)tolower((unsigned char)*model);
	}
	*spelled = '\0';
}

static bool has_model(const struct text *known, const struct program *program)
{
	char spelled[WORD_SIZE];
	spell_plainly(spelled, program->model);
	return has_line(known, "model", program->model, NULL) ||
	       has_line(known, "built-in", spelled, NULL) ||
	       has_line(known, "model", program->model, program->user);
}

bool known_has(const char *collect, const struct program *program)
{
	struct text known = read_known(collect);
	bool found = false;
	if (known.bytes)
		found = program->model[0] ? has_model(&known, program)
					  : has_line(&known, "job", program->job_name, program->user);
	free(known.bytes);
	return found;
}
