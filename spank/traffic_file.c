#include "traffic_file.h"

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
#include "monitor/traffic.h"

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

void traffic_name(const struct incarnation *incarnation, char name[TRAFFIC_NAME_SIZE])
{
	snprintf(name, TRAFFIC_NAME_SIZE, "%" PRIu32 ".%" PRIu32 ".%s.traffic", incarnation->job,
		 incarnation->restarts, incarnation->node);
}

/* The folder, if only its owner, who must be us, can change what is in it; else -1. */
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
	/* The mode that was asked for went through a umask that is not ours to know. */
	if (folder >= 0 && fchmod(folder, 0755) != 0) {
		close(folder);
		return -1;
	}
	return folder;
}

/* Reserved while it is still ours, so that no quota of the user's stands in the way. */
static bool reserve_and_hand_over(int file, const struct incarnation *incarnation)
{
	return posix_fallocate(file, 0, TRAFFIC_FILE_BYTES) == 0 &&
	       fchown(file, incarnation->user, incarnation->group) == 0;
}

static bool create_in(int folder, const char *name, const struct incarnation *incarnation)
{
	bool done;
	int file = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file < 0)
		return errno == EEXIST;
	done = reserve_and_hand_over(file, incarnation);
	close(file);
	if (!done)
		unlinkat(folder, name, 0);
	return done;
}

/* ---------------------------------------------------------------------------------------------
 * Room for the files of others: the folder has a limit (etc/slurm-tiresias.mount), which one user
 * can reach who makes his file larger or attaches to it whatever a file can have attached.
 */

static void remove_attributes(int file)
{
	static char names[XATTR_LIST_MAX];
	ssize_t size = flistxattr(file, names, sizeof names);
	for (ssize_t at = 0; at < size; at += (ssize_t)strlen(names + at) + 1)
		if (strncmp(names + at, "user.", 5) == 0)
			fremovexattr(file, names + at);
}

/* What was reserved behind the end goes, too, also where the size is right or too small. */
static void cut_back(int file)
{
	struct stat status;
	if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
		return;
	if (ftruncate(file, status.st_size < TRAFFIC_FILE_BYTES ? status.st_size
								 : TRAFFIC_FILE_BYTES) == 0)
		remove_attributes(file);
}

/* A file with a lease on it is left as it is: to open it would mean to wait for its owner. */
void traffic_make_room(const char *run)
{
	int file, folder = open_own_folder(run);
	DIR *entries = folder >= 0 ? fdopendir(folder) : NULL;
	struct dirent *entry;
	while (entries && (entry = readdir(entries))) {
		file = openat(folder, entry->d_name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (file < 0)
			continue;
		cut_back(file);
		close(file);
	}
	if (entries)
		closedir(entries);
	else if (folder >= 0)
		close(folder);
}

/* Whether a name is JOB.RESTARTS.NODE.traffic of this job and node. */
static bool is_named_after(const char *name, const struct incarnation *of, uint32_t *restarts)
{
	struct incarnation same = *of;
	char again[TRAFFIC_NAME_SIZE];
	const char *dot = strchr(name, '.');
	if (!dot)
		return false;
	same.restarts = (uint32_t)strtoul(dot + 1, NULL, 10);
	traffic_name(&same, again);
	*restarts = same.restarts;
	return strcmp(name, again) == 0;
}

bool traffic_find(const char *run, struct incarnation *incarnation)
{
	bool found = false;
	uint32_t restarts;
	struct dirent *entry;
	DIR *entries = opendir(run);
	while (entries && (entry = readdir(entries))) {
		if (!is_named_after(entry->d_name, incarnation, &restarts))
			continue;
		if (!found || restarts > incarnation->restarts)
			incarnation->restarts = restarts;
		found = true;
	}
	if (entries)
		closedir(entries);
	return found;
}

bool traffic_create(const char *run, const struct incarnation *incarnation)
{
	bool done;
	char name[TRAFFIC_NAME_SIZE];
	int folder = make_own_folder(run);
	if (folder < 0)
		return false;
	traffic_name(incarnation, name);
	done = create_in(folder, name, incarnation);
	close(folder);
	return done;
}

/* ---------------------------------------------------------------------------------------------
 * At the end: everything about the file but its name is the user's doing.
 */

static bool is_sound(int file, uid_t user)
{
	struct stat status;
	return fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == user &&
	       status.st_nlink == 1 && status.st_size == TRAFFIC_FILE_BYTES;
}

/* Reads exactly as much as a traffic file holds; false where it has become shorter meanwhile. */
static bool read_all(int file, char *content)
{
	size_t had = 0;
	while (had < TRAFFIC_FILE_BYTES) {
		ssize_t got = pread(file, content + had, TRAFFIC_FILE_BYTES - had, (off_t)had);
		if (got > 0)
			had += (size_t)got;
		else if (got == 0 || errno != EINTR)
			return false;
	}
	return true;
}

static bool write_all(int file, const char *content)
{
	size_t written = 0;
	while (written < TRAFFIC_FILE_BYTES) {
		ssize_t put = write(file, content + written, TRAFFIC_FILE_BYTES - written);
		if (put > 0)
			written += (size_t)put;
		else if (put == 0 || errno != EINTR)
			return false;
	}
	return true;
}

/* Without O_NONBLOCK its owner could make us wait, with a lease on it. */
static bool read_sound(int folder, const char *name, uid_t user, char *content)
{
	bool done;
	int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file < 0)
		return false;
	done = is_sound(file, user) && read_all(file, content);
	close(file);
	return done && !traffic_fault(content, TRAFFIC_FILE_BYTES);
}

/* Who may read the folder may read what is in it. */
static bool share_with_group_of(int folder, int file)
{
	struct stat status;
	return fstat(folder, &status) == 0 && fchown(file, (uid_t)-1, status.st_gid) == 0 &&
	       fchmod(file, 0640) == 0;
}

static bool write_draft(int folder, const char *draft, const char *content, bool shared)
{
	bool done;
	int file;
	unlinkat(folder, draft, 0);
	file = openat(folder, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file < 0)
		return false;
	done = (share_with_group_of(folder, file) || !shared) && write_all(file, content);
	/* A full disk behind a network may show only now. */
	return close(file) == 0 && done;
}

/* A reader of the folder never meets half a file. */
static bool write_in_one_step(int folder, const char *name, const char *content, bool shared)
{
	char draft[NAME_MAX + 8];
	snprintf(draft, sizeof draft, ".%s.new", name);
	if (write_draft(folder, draft, content, shared) &&
	    renameat(folder, draft, folder, name) == 0)
		return true;
	unlinkat(folder, draft, 0);
	return false;
}

/*
 * Root of a node may have no rights in the folder, or only those to leave a file there that nobody
 * else can read; its owner has them. Some file systems know no groups: then it stays as it is.
 */
static void write_as_root_or_owner(int folder, const char *name, const char *content)
{
	if (write_in_one_step(folder, name, content, true))
		return;
	as_owner_of(folder);
	write_in_one_step(folder, name, content, false);
	as_ourselves();
}

static void copy_if_sound(int run, int collect, const char *name, uid_t user)
{
	char *content = malloc(TRAFFIC_FILE_BYTES);
	if (content && read_sound(run, name, user, content))
		write_as_root_or_owner(collect, name, content);
	free(content);
}

static void collect_from(DIR *run, int collect, const struct incarnation *ended)
{
	uint32_t restarts;
	struct dirent *entry;
	while ((entry = readdir(run))) {
		if (!is_named_after(entry->d_name, ended, &restarts))
			continue;
		if (collect >= 0)
			copy_if_sound(dirfd(run), collect, entry->d_name, ended->user);
		unlinkat(dirfd(run), entry->d_name, 0);
	}
}

void traffic_collect(const char *run, const char *collect, const struct incarnation *ended)
{
	int from = open_own_folder(run);
	/* Root may not be allowed to read the folder, and need not. */
	int to = collect[0] ? open(collect, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	DIR *entries = from >= 0 ? fdopendir(from) : NULL;
	if (entries)
		collect_from(entries, to, ended);
	if (entries)
		closedir(entries);
	else if (from >= 0)
		close(from);
	if (to >= 0)
		close(to);
}
