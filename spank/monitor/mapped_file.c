/* Files of the job that are mapped for as long as the process lives. */
#define _GNU_SOURCE
#include "mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
	void *start; /* NULL: none */
	size_t bytes;
} files[MAPPED_FILES];

static bool survives_truncation;
static struct sigaction earlier_action;

/* Reserve every block: writing to a mapped page when the disk is full raises SIGBUS. */
static bool has_its_blocks(int fd, size_t bytes)
{
	struct stat file;

	if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size != (off_t)bytes)
		return false;
	return file.st_blocks * 512 >= (off_t)bytes || fallocate(fd, 0, 0, (off_t)bytes) == 0;
}

static void *map_file(const char *path, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	void *mapped = MAP_FAILED;

	if (fd < 0)
		return NULL;
	if (has_its_blocks(fd, bytes))
		mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return mapped == MAP_FAILED ? NULL : mapped;
}

/* Replace the failed file by memory of this process: only its counts are lost. */
static bool give_up_file_at(const void *address)
{
	for (int i = 0; i < MAPPED_FILES; i++) {
		uintptr_t start = (uintptr_t)files[i].start;

		if (start != 0 && (uintptr_t)address - start < files[i].bytes)
			return mmap(files[i].start, files[i].bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
	}
	return false;
}

/* Not our fault: call the previous handler, or the default one, which ends the process. */
static void pass_on(int number, siginfo_t *info, void *context)
{
	if (earlier_action.sa_flags & SA_SIGINFO) {
		earlier_action.sa_sigaction(number, info, context);
	} else if (earlier_action.sa_handler != SIG_DFL && earlier_action.sa_handler != SIG_IGN) {
		earlier_action.sa_handler(number);
	} else if (earlier_action.sa_handler == SIG_DFL || info->si_code > 0) {
		/* A fault recurs when we return; a signal that was sent must be sent again. */
		sigaction(number, &earlier_action, NULL);
		if (info->si_code <= 0)
			syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
	}
}

/* A user may truncate the file, and every access beyond its end raises SIGBUS. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
	int error = errno;

	if (info->si_code <= 0 || !give_up_file_at(info->si_addr))
		pass_on(number, info, context);
	errno = error;
}

static void survive_truncation(void)
{
	struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	if (survives_truncation)
		return;
	survives_truncation = true;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, NULL, &earlier_action) == 0)
		sigaction(SIGBUS, &action, NULL);
}

void *map_named_file(const char *variable, size_t bytes)
{
	const char *path = secure_getenv(variable);
	int place = 0;

	while (place < MAPPED_FILES && files[place].start != NULL)
		place++;
	if (path == NULL || place == MAPPED_FILES)
		return NULL;
	files[place].bytes = bytes;
	files[place].start = map_file(path, bytes);
	if (files[place].start != NULL)
		survive_truncation();
	return files[place].start;
}

void unmap_file(void *mapped)
{
	for (int i = 0; i < MAPPED_FILES; i++) {
		if (files[i].start != mapped)
			continue;
		files[i].start = NULL;
		munmap(mapped, files[i].bytes);
	}
}
