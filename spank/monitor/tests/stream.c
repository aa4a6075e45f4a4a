/* The benchmark's stream: MESSAGES of BYTES each over a loopback connection, from this process to a
 * child, on separate cores if there are two. Prints the seconds it took. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void give_up(const char *what)
{
	perror(what);
	exit(1);
}

static void run_on(int core)
{
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET(core, &cores);
	sched_setaffinity(0, sizeof(cores), &cores); /* there may be only one core */
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int listening(struct sockaddr_in *at)
{
	socklen_t length = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (bind(fd, (struct sockaddr *)at, length) != 0 || listen(fd, 1) != 0 ||
	    getsockname(fd, (struct sockaddr *)at, &length) != 0)
		give_up("listening");
	return fd;
}

static void receive_all(int listener)
{
	static char received[1 << 18];
	int fd = accept(listener, NULL, NULL);

	run_on(1);
	while (recv(fd, received, sizeof(received), 0) > 0)
		continue;
	_exit(0);
}

static void send_all(int fd, long messages, size_t bytes)
{
	char *message = calloc(1, bytes);

	for (long i = 0; i < messages; i++)
		if (send(fd, message, bytes, 0) != (ssize_t)bytes)
			give_up("send");
	free(message);
}

int main(int count, char **arguments)
{
	long messages = count == 3 ? atol(arguments[1]) : 0;
	long bytes = count == 3 ? atol(arguments[2]) : 0;
	struct sockaddr_in at;
	int listener, fd;
	double began_s;

	if (messages <= 0 || bytes <= 0) {
		fprintf(stderr, "usage: stream MESSAGES BYTES\n");
		return 2;
	}
	listener = listening(&at);
	if (fork() == 0)
		receive_all(listener);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0)
		give_up("connect");
	run_on(0);
	began_s = now_s();
	send_all(fd, messages, (size_t)bytes);
	shutdown(fd, SHUT_WR);
	wait(NULL);
	printf("%.6f\n", now_s() - began_s);
	return 0;
}
