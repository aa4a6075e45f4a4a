/*
 * Hooks on the functions of libc that send, print, or replace a descriptor.
 *
 * Each calls the real function first and then evaluates the result; failed calls are not counted.
 * Until the real functions are found the kernel is called directly, because other libraries may
 * write before our constructor runs.
 */
#define _GNU_SOURCE
#include "counting.h"
#include "descriptors.h"
#include "output.h"
#include "own_list.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define ALL_DESCRIPTORS (~0U)

typedef ssize_t send_function(int, const void *, size_t, int);
typedef ssize_t sendto_function(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
typedef ssize_t sendmsg_function(int, const struct msghdr *, int);
typedef int sendmmsg_function(int, struct mmsghdr *, unsigned int, int);
typedef ssize_t write_function(int, const void *, size_t);
typedef ssize_t writev_function(int, const struct iovec *, int);
typedef int close_function(int);
typedef int close_range_function(unsigned int, unsigned int, int);
typedef void closefrom_function(int);
typedef int dup2_function(int, int);
typedef int dup3_function(int, int, int);

static ssize_t direct_send(int fd, const void *data, size_t bytes, int flags)
{
	return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
}

static ssize_t direct_sendto(int fd, const void *data, size_t bytes, int flags,
			     const struct sockaddr *to, socklen_t length)
{
	return syscall(SYS_sendto, fd, data, bytes, flags, to, length);
}

static ssize_t direct_sendmsg(int fd, const struct msghdr *message, int flags)
{
	return syscall(SYS_sendmsg, fd, message, flags);
}

static int direct_sendmmsg(int fd, struct mmsghdr *messages, unsigned int number, int flags)
{
	return (int)syscall(SYS_sendmmsg, fd, messages, number, flags);
}

static ssize_t direct_write(int fd, const void *data, size_t bytes)
{
	return syscall(SYS_write, fd, data, bytes);
}

static ssize_t direct_writev(int fd, const struct iovec *parts, int number)
{
	return syscall(SYS_writev, fd, parts, number);
}

static int direct_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}

static int direct_close_range(unsigned int first, unsigned int last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

static void direct_closefrom(int first)
{
	syscall(SYS_close_range, first, ALL_DESCRIPTORS, 0);
}

static int direct_dup3(int from, int to, int flags)
{
	return (int)syscall(SYS_dup3, from, to, flags);
}

/* If the descriptors are equal, dup3 fails, and dup2 returns them if they are open. */
static int direct_dup2(int from, int to)
{
	if (from == to)
		return syscall(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to;
	return direct_dup3(from, to, 0);
}

static send_function *real_send = direct_send;
static sendto_function *real_sendto = direct_sendto;
static sendmsg_function *real_sendmsg = direct_sendmsg;
static sendmmsg_function *real_sendmmsg = direct_sendmmsg;
static write_function *real_write = direct_write;
static writev_function *real_writev = direct_writev;
static close_function *real_close = direct_close;
static close_range_function *real_close_range = direct_close_range;
static closefrom_function *real_closefrom = direct_closefrom;
static dup2_function *real_dup2 = direct_dup2;
static dup3_function *real_dup3 = direct_dup3;

/* Find one real function; if libc has none, keep the kernel's. */
static void find(void *function, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (found != NULL)
		memcpy(function, &found, sizeof(found));
}

#define FIND(name) find(&real_##name, #name)

__attribute__((constructor)) static void begin(void)
{
	int error = errno;

	FIND(send);
	FIND(sendto);
	FIND(sendmsg);
	FIND(sendmmsg);
	FIND(write);
	FIND(writev);
	FIND(close);
	FIND(close_range);
	FIND(closefrom);
	FIND(dup2);
	FIND(dup3);
	descriptors_begin();
	own_list_begin();
	counting_begin();
	output_begin();
	errno = error;
}

__attribute__((destructor)) static void end(void)
{
	if (counting_is_on())
		descriptors_end();
}

static void sent_bytes(int fd, size_t wanted, ssize_t sent, int flags)
{
	if (sent > 0 && counting_is_on())
		descriptor_sent(fd, wanted, (size_t)sent, flags & MSG_MORE);
}

/* Only after the kernel has read the buffers: before, the pointers may be invalid. */
static size_t length_of(const struct iovec *parts, size_t number)
{
	size_t bytes = 0;

	for (size_t i = 0; i < number; i++)
		bytes += parts[i].iov_len;
	return bytes;
}

static void sent_message(int fd, const struct msghdr *message, ssize_t sent, int flags)
{
	if (sent > 0 && counting_is_on())
		sent_bytes(fd, length_of(message->msg_iov, message->msg_iovlen), sent, flags);
}

static void forget(unsigned int first, unsigned int last)
{
	if (counting_is_on())
		descriptors_forget(first, last);
}

/* Programs print to these two descriptors, whatever they refer to. */
static bool is_printed(int fd, ssize_t sent)
{
	return (fd == STDOUT_FILENO || fd == STDERR_FILENO) && sent > 0 && output_is_on();
}

EXPORT ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
	ssize_t sent = real_send(fd, data, bytes, flags);

	sent_bytes(fd, bytes, sent, flags);
	return sent;
}

EXPORT ssize_t sendto(int fd, const void *data, size_t bytes, int flags, __CONST_SOCKADDR_ARG to,
		      socklen_t length)
{
	ssize_t sent = real_sendto(fd, data, bytes, flags, to.__sockaddr__, length);

	sent_bytes(fd, bytes, sent, flags);
	return sent;
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t sent = real_sendmsg(fd, message, flags);

	sent_message(fd, message, sent, flags);
	return sent;
}

EXPORT int sendmmsg(int fd, struct mmsghdr *messages, unsigned int number, int flags)
{
	int sent = real_sendmmsg(fd, messages, number, flags);

	for (int i = 0; i < sent; i++)
		sent_message(fd, &messages[i].msg_hdr, messages[i].msg_len, flags);
	return sent;
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
	ssize_t sent = real_write(fd, data, bytes);

	sent_bytes(fd, bytes, sent, 0);
	if (is_printed(fd, sent))
		output_printed(data, bytes, (size_t)sent);
	return sent;
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int number)
{
	ssize_t sent = real_writev(fd, parts, number);

	if (sent > 0 && counting_is_on())
		sent_bytes(fd, length_of(parts, (size_t)number), sent, 0);
	if (is_printed(fd, sent))
		output_printed_parts(parts, number, (size_t)sent);
	return sent;
}

EXPORT int close(int fd)
{
	forget((unsigned int)fd, (unsigned int)fd);
	return real_close(fd);
}

EXPORT int close_range(unsigned int first, unsigned int last, int flags)
{
	if (!(flags & CLOSE_RANGE_CLOEXEC))
		forget(first, last);
	return real_close_range(first, last, flags);
}

EXPORT void closefrom(int first)
{
	forget(first < 0 ? 0 : (unsigned int)first, ALL_DESCRIPTORS);
	real_closefrom(first);
}

EXPORT int dup2(int from, int to)
{
	if (from != to)
		forget((unsigned int)to, (unsigned int)to);
	return real_dup2(from, to);
}

EXPORT int dup3(int from, int to, int flags)
{
	if (from != to)
		forget((unsigned int)to, (unsigned int)to);
	return real_dup3(from, to, flags);
}
