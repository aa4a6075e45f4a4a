#include "run_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "as_owner.h"
#include "monitor/output.h"
#include "monitor/traffic.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct kind {
	enum run_file_kind number;
	const char *suffix;
	size_t bytes;
	const char *subfolder; /* the subfolder to collect in; NULL: the collect folder itself */
	const char *(*fault)(const void *content, size_t bytes); /* NULL: it stays on the node */
};

/* An unchanged file has no content. */
static const char *empty_fault(const void *content, size_t bytes)
{
	const char *all = content;
	return all[0] == 0 && memcmp(all, all + 1, bytes - 1) == 0 ? "only zeros" : NULL;
}

static const struct kind all_kinds[] = {
	{RUN_FILE_TRAFFIC, "traffic", TRAFFIC_FILE_BYTES, NULL, traffic_fault},
	{RUN_FILE_PROGRESS, "progress", 1024, "progress", empty_fault},
	{RUN_FILE_OUTPUT, "output", OUTPUT_FILE_BYTES, NULL, NULL},
};

static const struct kind *kind_numbered(enum run_file_kind number)
{
	const struct kind *kind = all_kinds;
	while (kind->number != number)
		kind++;
	return kind;
}

/* The kind by the end of a file's name; NULL for another file. */
static const struct kind *kind_of(const char *name)
{
	const char *dot = strrchr(name, '.');
	for (size_t i = 0; dot && i < COUNT(all_kinds); i++)
		if (strcmp(dot + 1, all_kinds[i].suffix) == 0)
			return &all_kinds[i];
	return NULL;
}

static bool take_node_name(char node[NODE_SIZE], const char *name)
{
	static const char usual[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t length = strnlen(name, NODE_SIZE);
	if (length < 1 || length >= NODE_SIZE || name[0] == '.' || strspn(name, usual) != length)
		return false;
	memcpy(node, name, length + 1);
	return true;
}

bool node_name(char node[NODE_SIZE])
{
	char host[HOST_NAME_MAX + 1] = "";
	const char *name = getenv("SLURMD_NODENAME");
	if (name)
		return take_node_name(node, name);
	if (gethostname(host, sizeof host - 1) != 0)
		return false;
	host[strcspn(host, ".")] = '\0';
	return take_node_name(node, host);
}

void run_file_name(const struct job_run *job_run, enum run_file_kind kind,
		   char name[RUN_FILE_NAME_SIZE])
{
	snprintf(name, RUN_FILE_NAME_SIZE, "%" PRIu32 ".%" PRIu32 ".%s.%s", job_run->job,
		 job_run->restarts, job_run->node, kind_numbered(kind)->suffix);
}

/* Opens the folder if only its owner, who must be us, can change its entries; otherwise -1. */
static int open_own_folder(const char *path)
{
	struct stat status;
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0)
		return -1;
	if (fstat(folder, &status) == 0 && status.st_uid == geteuid() &&
	    (status.st_mode & (S_IWGRP | S_IWOTH)) == 0)
		return folder;
	close(folder);
	return -1;
}

static int make_own_folder(const char *path)
{
	int folder;
	if (mkdir(path, 0755) != 0)
		return errno == EEXIST ? open_own_folder(path) : -1;
	folder = open_own_folder(path);
	/* The requested mode was changed by a umask that we cannot control. */
	if (folder >= 0 && fchmod(folder, 0755) != 0) {
		close(folder);
		return -1;
	}
	return folder;
}

/* Reserve the blocks while the file is still root's, so that no quota of the user applies. */
static bool reserve_and_hand_over(int file, size_t bytes, const struct job_run *job_run)
{
	return posix_fallocate(file, 0, (off_t)bytes) == 0 &&
	       fchown(file, job_run->user, job_run->group) == 0;
}

static bool create_in(int folder, const struct kind *kind, const struct job_run *job_run)
{
	bool done;
	char name[RUN_FILE_NAME_SIZE];
	int file;
	run_file_name(job_run, kind->number, name);
	file = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file < 0)
		return errno == EEXIST;
	done = reserve_and_hand_over(file, kind->bytes, job_run);
	close(file);
	if (!done)
		unlinkat(folder, name, 0);
	return done;
}

/* ---------------------------------------------------------------------------------------------
 * Room for other users' files: the folder has a size limit (etc/slurm-tiresias.mount), which one
 * user could exhaust with a larger file or with extended attributes.
 */

static void remove_attributes(int file)
{
	static char names[XATTR_LIST_MAX];
	ssize_t size = flistxattr(file, names, sizeof names);
	for (ssize_t at = 0; at < size; at += (ssize_t)strlen(names + at) + 1)
		if (strncmp(names + at, "user.", 5) == 0)
			fremovexattr(file, names + at);
}

/* Release what was reserved beyond the end, even if the size is right or too small. */
static void cut_back(int file, off_t bytes)
{
	struct stat status;
	if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
		return;
	if (ftruncate(file, status.st_size < bytes ? status.st_size : bytes) == 0)
		remove_attributes(file);
}

/* Leave a file with a lease on it alone: opening it would mean waiting for its owner. */
static void make_room(const char *run)
{
	int file, folder = open_own_folder(run);
	DIR *entries = folder >= 0 ? fdopendir(folder) : NULL;
	struct dirent *entry;
	while (entries && (entry = readdir(entries))) {
		const struct kind *kind = kind_of(entry->d_name);
		if (!kind)
			continue;
		file = openat(folder, entry->d_name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (file < 0)
			continue;
		cut_back(file, (off_t)kind->bytes);
		close(file);
	}
	if (entries)
		closedir(entries);
	else if (folder >= 0)
		close(folder);
}

/* The kind of a file named JOB.RESTARTS.NODE.KIND of this job and node; otherwise NULL. */
static const struct kind *kind_named_after(const char *name, const struct job_run *of,
					   uint32_t *restarts)
{
	const struct kind *kind = kind_of(name);
	struct job_run same = *of;
	char again[RUN_FILE_NAME_SIZE];
	if (!kind)
		return NULL;
	*restarts = same.restarts = (uint32_t)strtoul(strchr(name, '.') + 1, NULL, 10);
	run_file_name(&same, kind->number, again);
	return strcmp(name, again) == 0 ? kind : NULL;
}

bool run_file_find(const char *run, struct job_run *job_run, enum run_file_kind kind)
{
	bool found = false;
	uint32_t restarts;
	struct dirent *entry;
	DIR *entries = opendir(run);
	while (entries && (entry = readdir(entries))) {
		const struct kind *of = kind_named_after(entry->d_name, job_run, &restarts);
		if (!of || of->number != kind)
			continue;
		if (!found || restarts > job_run->restarts)
			job_run->restarts = restarts;
		found = true;
	}
	if (entries)
		closedir(entries);
	return found;
}

static bool create_all(const char *run, const struct job_run *job_run, unsigned kinds)
{
	bool done = true;
	int folder = kinds ? make_own_folder(run) : -1;
	if (folder < 0)
		return !kinds;
	for (size_t i = 0; i < COUNT(all_kinds); i++)
		if (kinds & all_kinds[i].number)
			done = create_in(folder, &all_kinds[i], job_run) && done;
	close(folder);
	return done;
}

bool run_files_create(const char *run, const struct job_run *job_run, unsigned kinds)
{
	if (create_all(run, job_run, kinds))
		return true;
	make_room(run);
	return create_all(run, job_run, kinds);
}

/* ---------------------------------------------------------------------------------------------
 * Collecting: the user controls everything about a file except its name.
 */

static bool is_sound(int file, size_t bytes, uid_t user)
{
	struct stat status;
	return fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == user &&
	       status.st_nlink == 1 && status.st_size == (off_t)bytes;
}

/* Reads exactly the expected size; false if the file has become shorter meanwhile. */
static bool read_all(int file, char *content, size_t bytes)
{
	size_t had = 0;
	while (had < bytes) {
		ssize_t got = pread(file, content + had, bytes - had, (off_t)had);
		if (got > 0)
			had += (size_t)got;
		else if (got == 0 || errno != EINTR)
			return false;
	}
	return true;
}

static bool write_all(int file, const char *content, size_t bytes)
{
	size_t written = 0;
	while (written < bytes) {
		ssize_t put = write(file, content + written, bytes - written);
		if (put > 0)
			written += (size_t)put;
		else if (put == 0 || errno != EINTR)
			return false;
	}
	return true;
}

/* Without O_NONBLOCK the owner could make us wait, with a lease on it. */
static bool read_sound(int folder, const char *name, const struct kind *kind, uid_t user,
		       char *content)
{
	bool done;
	int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file < 0)
		return false;
	done = kind->fault && is_sound(file, kind->bytes, user) && read_all(file, content, kind->bytes);
	close(file);
	return done && !kind->fault(content, kind->bytes);
}

/* Everyone who may read the folder may read the file. */
static bool share_with_group_of(int folder, int file)
{
	struct stat status;
	return fstat(folder, &status) == 0 && fchown(file, (uid_t)-1, status.st_gid) == 0 &&
	       fchmod(file, 0640) == 0;
}

static bool write_draft(int folder, const char *draft, const char *content, size_t bytes,
			bool shared)
{
	bool done;
	int file;
	unlinkat(folder, draft, 0);
	file = openat(folder, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file < 0)
		return false;
	done = (share_with_group_of(folder, file) || !shared) && write_all(file, content, bytes);
	/* Only now may a full disk on a file server be reported. */
	return close(file) == 0 && done;
}

/* A reader of the folder never sees a partial file. */
static bool write_in_one_step(int folder, const char *name, const char *content, size_t bytes,
			      bool shared)
{
	char draft[NAME_MAX + 8];
	snprintf(draft, sizeof draft, ".%s.new", name);
	if (write_draft(folder, draft, content, bytes, shared) &&
	    renameat(folder, draft, folder, name) == 0)
		return true;
	unlinkat(folder, draft, 0);
	return false;
}

/*
 * Root of a node may have no rights in the folder, or only the right to create a file that no other
 * user can read; its owner has them. If the file system has no groups, the group stays unchanged.
 */
static void write_as_root_or_owner(int folder, const char *name, const char *content, size_t bytes)
{
	if (write_in_one_step(folder, name, content, bytes, true))
		return;
	as_owner_of(folder);
	write_in_one_step(folder, name, content, bytes, false);
	as_ourselves();
}

/* Root may not be allowed to read the folder, and need not: its owner is. */
static int open_destination(const char *collect, const char *subfolder)
{
	int inner, outer = open(collect, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (outer < 0 || !subfolder)
		return outer;
	as_owner_of(outer);
	inner = openat(outer, subfolder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	as_ourselves();
	close(outer);
	return inner;
}

/* The shared file system is only accessed if there is something to copy. */
static void copy_if_sound(int run, const char *collect, const char *name, const struct kind *kind,
			  uid_t user)
{
	char *content = malloc(kind->bytes);
	if (content && read_sound(run, name, kind, user, content)) {
		int folder = open_destination(collect, kind->subfolder);
		if (folder >= 0) {
			write_as_root_or_owner(folder, name, content, kind->bytes);
			close(folder);
		}
	}
	free(content);
}

void run_files_collect(const char *run, const char *collect, const struct job_run *ended,
		       unsigned kinds)
{
	int folder = open_own_folder(run);
	DIR *entries = folder >= 0 ? fdopendir(folder) : NULL;
	struct dirent *entry;
	uint32_t restarts;
	while (entries && (entry = readdir(entries))) {
		const struct kind *kind = kind_named_after(entry->d_name, ended, &restarts);
		if (!kind || !(kinds & kind->number))
			continue;
		if (collect[0])
			copy_if_sound(folder, collect, entry->d_name, kind, ended->user);
		unlinkat(folder, entry->d_name, 0);
	}
	if (entries)
		closedir(entries);
	else if (folder >= 0)
		close(folder);
}
