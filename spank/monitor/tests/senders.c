/* Programs that send in every possible way, run with the monitor preloaded. Each prints only what
 * it has sent, as lines "BYTES MESSAGES", which the traffic file must match. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE 3000001
#define MUST(condition) must((condition), #condition, __LINE__)

static char data[LARGE];

static void must(bool holds, const char *condition, int line)
{
	if (holds)
		return;
	fprintf(stderr, "line %d: %s does not hold: %s\n", line, condition, strerror(errno));
	exit(1);
}

static void sent(size_t bytes, unsigned long messages)
{
	printf("%zu %lu\n", bytes, messages);
}

static struct sockaddr_in loopback(void)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int listening(struct sockaddr_in *at, int type)
{
	socklen_t length = sizeof(*at);
	int fd = socket(AF_INET, type, 0);

	*at = loopback();
	MUST(bind(fd, (struct sockaddr *)at, length) == 0);
	MUST(getsockname(fd, (struct sockaddr *)at, &length) == 0);
	if (type == SOCK_STREAM)
		MUST(listen(fd, 8) == 0);
	return fd;
}

/* Two ends of a TCP connection. */
static void connected(int ends[2])
{
	struct sockaddr_in at;
	int fd = listening(&at, SOCK_STREAM);

	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	MUST(connect(ends[0], (struct sockaddr *)&at, sizeof(at)) == 0);
	ends[1] = accept(fd, NULL, NULL);
	MUST(ends[1] >= 0);
	close(fd);
}

/* A UDP socket on which every send succeeds: the receiver drops what it has no room for. */
static int carefree(void)
{
	static struct sockaddr_in at;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (at.sin_port == 0)
		listening(&at, SOCK_DGRAM);
	MUST(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	return fd;
}

static void *drain(void *end)
{
	static __thread char received[65536];

	while (read(*(int *)end, received, sizeof(received)) > 0)
		continue;
	return NULL;
}

static void every_function(void)
{
	struct iovec parts[2] = {{data, 30}, {data, 12}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
	int ends[2];

	connected(ends);
	MUST(send(ends[0], data, 11, 0) == 11);
	MUST(sendto(ends[0], data, 22, 0, NULL, 0) == 22);
	MUST(sendmsg(ends[0], &message, 0) == 42);
	MUST(sendmmsg(ends[0], messages, 2, 0) == 2);
	MUST(write(ends[0], data, 55) == 55);
	MUST(writev(ends[1], parts, 2) == 42);
	sent(11, 1), sent(22, 1), sent(42, 4), sent(55, 1);
}

static void make_narrow(int ends[2])
{
	int few = 65536;

	connected(ends);
	MUST(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &few, sizeof(few)) == 0);
	MUST(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
}

/* Send everything, handling partial sends on a non-blocking socket; return the number of sends. */
static unsigned long send_all(int fd, size_t bytes)
{
	struct pollfd wait_for = {.fd = fd, .events = POLLOUT};
	unsigned long sends = 0;

	for (size_t done = 0; done < bytes; sends++) {
		ssize_t some = send(fd, data + done, bytes - done, 0);

		MUST(some > 0 || errno == EAGAIN);
		done += some > 0 ? (size_t)some : 0;
		if (some < 0)
			poll(&wait_for, 1, 1000);
	}
	return sends;
}

static void partial(void)
{
	pthread_t reader;
	int ends[2];

	make_narrow(ends);
	MUST(pthread_create(&reader, NULL, drain, &ends[1]) == 0);
	MUST(send_all(ends[0], LARGE) > 2);
	MUST(send_all(ends[0], LARGE - 1) > 2);
	MUST(send_all(ends[0], 100) >= 1);
	close(ends[0]);
	pthread_join(reader, NULL);
	sent(LARGE, 1), sent(LARGE - 1, 1), sent(100, 1);
}

/* Send as much as fits, after making a little room. */
static size_t send_some(int ends[2], size_t bytes)
{
	char received[4096];
	ssize_t some;

	while ((some = send(ends[0], data, bytes, 0)) < 0)
		MUST(errno == EAGAIN && read(ends[1], received, sizeof(received)) > 0);
	return (size_t)some;
}

/* The unsent rest of a message does not count; the sent part does. */
static void abandoned(void)
{
	int ends[2];

	make_narrow(ends);
	sent(send_some(ends, LARGE), 1);
	sent(send_some(ends, 7), 1);
	sent(send_some(ends, LARGE), 1);
	close(ends[0]);
}

static void more(void)
{
	int ends[2];

	connected(ends);
	MUST(send(ends[0], data, 10, MSG_MORE) == 10);
	MUST(send(ends[0], data, 20, MSG_MORE) == 20);
	MUST(send(ends[0], data, 30, 0) == 30);
	MUST(send(ends[0], data, 5, MSG_MORE) == 5);
	MUST(close(ends[0]) == 0);
	MUST(send(ends[1], data, 6, MSG_MORE) == 6);
	sent(60, 1), sent(5, 1), sent(6, 1);
}

#define THREADS 8
#define SENDS 5000

static void *send_many(void *shared)
{
	int own = carefree();

	for (int i = 0; i < SENDS; i++) {
		MUST(send(own, data, 100 + (size_t)i % 3, 0) > 0);
		MUST(write(*(int *)shared, data, 200) == 200);
		if (i % 100 == 0) {
			close(own);
			own = carefree();
		}
	}
	return NULL;
}

static void threads(void)
{
	pthread_t all[THREADS];
	int shared = carefree();

	for (int i = 0; i < THREADS; i++)
		MUST(pthread_create(&all[i], NULL, send_many, &shared) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(all[i], NULL);
	for (size_t i = 0; i < 3; i++)
		sent(100 + i, THREADS * ((SENDS + 2 - i) / 3));
	sent(200, THREADS * SENDS);
}

static void forked(void)
{
	int fd = carefree();

	MUST(send(fd, data, 300, 0) == 300);
	for (int child = 0; child < 4; child++) {
		if (fork() == 0) {
			for (int i = 0; i < 25; i++)
				MUST(send(fd, data, 301, 0) == 301);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		continue;
	MUST(send(fd, data, 300, 0) == 300);
	sent(300, 2), sent(301, 100);
}

/* The child borrows its parent's memory, but its changes to descriptors are its own. */
static void vforked(void)
{
	int ends[2];
	int null = open("/dev/null", O_RDWR);

	connected(ends);
	MUST(send(ends[0], data, 400, MSG_MORE) == 400);
	if (vfork() == 0) {
		dup2(null, ends[0]);
		if (write(ends[0], data, 99999) != 99999)
			_exit(1);
		close(ends[0]);
		close_range(3, ~0U, 0);
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	while (wait(NULL) > 0)
		continue;
	MUST(send(ends[0], data, 401, 0) == 401);
	MUST(send(ends[0], data, 402, 0) == 402);
	sent(801, 1), sent(402, 1);
}

/* What it learns about its descriptors does not hold for its parent's either. */
static void vforked_to_write(void)
{
	int null = open("/dev/null", O_RDWR);
	int fd = carefree();

	if (vfork() == 0) {
		dup2(null, fd);
		if (write(fd, data, 99) != 99)
			_exit(1);
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	while (wait(NULL) > 0)
		continue;
	MUST(send(fd, data, 403, 0) == 403);
	sent(403, 1);
}

/* A fork in the middle of a message: the message belongs to the parent, and counts once. */
static void forked_in_the_middle(void)
{
	int ends[2];

	connected(ends);
	MUST(send(ends[0], data, 500, MSG_MORE) == 500);
	if (fork() == 0) {
		close(ends[0]);
		exit(0);
	}
	while (wait(NULL) > 0)
		continue;
	MUST(send(ends[0], data, 1, 0) == 1);
	sent(501, 1);
}

static void all_closed(void)
{
	int ends[2];
	int output = fcntl(1, F_DUPFD, 100);

	connected(ends);
	MUST(send(ends[0], data, 600, 0) == 600);
	MUST(close_range(3, 99, 0) == 0);
	MUST(send(ends[0], data, 600, 0) < 0 && errno == EBADF);
	closefrom(101);
	connected(ends);
	MUST(send(ends[0], data, 601, 0) == 601);
	MUST(dup2(output, ends[0]) == ends[0]);
	sent(600, 1), sent(601, 1);
}

static int signal_socket;
static volatile sig_atomic_t signals;

static void send_from_handler(int number)
{
	(void)number;
	signals += send(signal_socket, data, 77, 0) == 77;
}

static void interrupted(void)
{
	struct itimerval often = {.it_interval.tv_usec = 200, .it_value.tv_usec = 200};
	struct itimerval never = {.it_value.tv_usec = 0};
	struct sigaction action = {.sa_handler = send_from_handler, .sa_flags = SA_RESTART};
	int fd = carefree();
	unsigned long sends = 0;

	signal_socket = carefree();
	MUST(sigaction(SIGALRM, &action, NULL) == 0);
	MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (; signals < 200; sends++)
		MUST(send(fd, data, 1000 + sends % 20, 0) > 0);
	MUST(setitimer(ITIMER_REAL, &never, NULL) == 0);
	sent(77, (unsigned long)signals);
	for (size_t i = 0; i < 20; i++)
		sent(1000 + i, (sends + 19 - i) / 20);
}

static void many_at_once(void)
{
	struct iovec parts[500];
	struct mmsghdr messages[500];
	int fd = carefree();

	memset(messages, 0, sizeof(messages));
	for (size_t i = 0; i < 500; i++) {
		parts[i] = (struct iovec){data, 2048 + i % 32};
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	MUST(sendmmsg(fd, messages, 500, 0) == 500);
	for (size_t i = 0; i < 32; i++)
		sent(2048 + i, i < 500 % 32 ? 16 : 15);
}

static void uncounted(void)
{
	void *volatile nowhere = (void *)8;
	char received[4096];
	int ends[2], local[2], channel[2];
	int null = open("/dev/null", O_RDWR);
	uint64_t one = 1;

	connected(ends);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, local) == 0 && pipe(channel) == 0);
	MUST(write(null, data, LARGE) == LARGE && write(channel[1], data, 900) == 900);
	MUST(send(local[0], data, 901, 0) == 901 && write(local[1], data, 902) == 902);
	MUST(write(eventfd(0, 0), &one, sizeof(one)) == sizeof(one));
	MUST(send(ends[0], data, 0, 0) == 0 && write(ends[0], data, 0) == 0);
	MUST(send(-1, data, 10, 0) < 0 && errno == EBADF);
	MUST(write(1 << 30, data, 10) < 0 && errno == EBADF);
	MUST(send(null, data, 10, 0) < 0 && errno == ENOTSOCK);
	MUST(send(ends[0], nowhere, 10, 0) < 0 && errno == EFAULT);
	MUST(sendmsg(ends[0], nowhere, 0) < 0 && errno == EFAULT);
	MUST(writev(ends[0], nowhere, 2) < 0 && errno == EFAULT);
	MUST(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
	MUST(read(ends[1], received, sizeof(received)) < 0 && errno == EAGAIN);
	shutdown(ends[0], SHUT_WR);
	MUST(send(ends[0], data, 10, MSG_NOSIGNAL) < 0 && errno == EPIPE);
}

static void keeps_errno(void)
{
	int ends[2], channel[2];

	connected(ends);
	MUST(pipe(channel) == 0);
	errno = 1234;
	MUST(send(ends[0], data, 70000, 0) == 70000 && errno == 1234);
	MUST(write(channel[1], data, 100) == 100 && errno == 1234);
	MUST(close(channel[1]) == 0 && dup2(ends[0], channel[0]) == channel[0] && errno == 1234);
	MUST(dup2(-1, ends[0]) < 0 && errno == EBADF);
	MUST(dup3(ends[0], ends[0], 0) < 0 && errno == EINVAL);
	sent(70000, 1);
}

/* The number of a closed socket is reused for a file. */
static void reused(void)
{
	int fd = carefree();
	int file;

	MUST(send(fd, data, 800, 0) == 800);
	MUST(close(fd) == 0);
	file = open("/dev/null", O_RDWR);
	MUST(file == fd && write(file, data, 801) == 801);
	MUST(close(file) == 0);
	fd = carefree();
	MUST(file == fd && write(fd, data, 802) == 802);
	sent(800, 1), sent(802, 1);
}

/* Closed by a direct system call: large messages, at least, are still attributed correctly. */
static void reused_unseen(void)
{
	int ends[2];
	int fd = carefree();

	connected(ends);
	MUST(send(fd, data, 810, 0) == 810);
	MUST(syscall(SYS_close, fd) == 0);
	MUST(open("/dev/null", O_RDWR) == fd && write(fd, data, LARGE) == LARGE);
	MUST(syscall(SYS_close, fd) == 0);
	MUST(dup(ends[0]) == fd && write(fd, data, 70000) == 70000);
	sent(810, 1), sent(70000, 1);
}

/* Descriptors beyond those that the monitor caches. */
static void high_descriptors(void)
{
	struct rlimit open_files;
	int fd = carefree();
	int high;

	MUST(getrlimit(RLIMIT_NOFILE, &open_files) == 0);
	open_files.rlim_cur = open_files.rlim_max;
	MUST(setrlimit(RLIMIT_NOFILE, &open_files) == 0);
	high = fcntl(fd, F_DUPFD, 17000);
	MUST(high >= 17000);
	MUST(write(high, data, 820) == 820 && send(high, data, 820, MSG_MORE) == 820);
	MUST(close(high) == 0);
	sent(820, 2);
}

/* The traffic file is truncated: only the counts are lost. */
static void truncated(void)
{
	int fd = carefree();

	MUST(send(fd, data, 830, 0) == 830);
	MUST(truncate(getenv("TIRESIAS_TRAFFIC_FILE"), 0) == 0);
	for (size_t i = 0; i < 1000; i++)
		MUST(send(fd, data, 1 + i, 0) == (ssize_t)(1 + i));
}

/* Other bus errors end the process, as they would without the monitor. */
static void bus_error(void)
{
	raise(SIGBUS);
}

static void real_bus_error(void)
{
	char path[] = "/tmp/tiresias-bus.XXXXXX";
	int fd = mkstemp(path);
	volatile char *page;

	MUST(unlink(path) == 0 && ftruncate(fd, 4096) == 0);
	page = (volatile char *)syscall(SYS_mmap, NULL, 4096, 3, 1, fd, 0);
	MUST(ftruncate(fd, 0) == 0);
	page[0] = 1;
}

static const struct {
	const char *name;
	void (*run)(void);
} programs[] = {
	{"every_function", every_function},
	{"partial", partial},
	{"abandoned", abandoned},
	{"more", more},
	{"threads", threads},
	{"forked", forked},
	{"vforked", vforked},
	{"vforked_to_write", vforked_to_write},
	{"forked_in_the_middle", forked_in_the_middle},
	{"all_closed", all_closed},
	{"interrupted", interrupted},
	{"many_at_once", many_at_once},
	{"uncounted", uncounted},
	{"keeps_errno", keeps_errno},
	{"reused", reused},
	{"reused_unseen", reused_unseen},
	{"high_descriptors", high_descriptors},
	{"truncated", truncated},
	{"bus_error", bus_error},
	{"real_bus_error", real_bus_error},
};

int main(int count, char **arguments)
{
	for (size_t i = 0; count == 2 && i < sizeof(programs) / sizeof(programs[0]); i++) {
		if (strcmp(programs[i].name, arguments[1]) != 0)
			continue;
		programs[i].run();
		return 0;
	}
	fprintf(stderr, "usage: senders PROGRAM\n");
	return 2;
}
