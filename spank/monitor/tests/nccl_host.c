/* A fake NCCL: loads the profiler plugin, uses the interface version given as an argument, and runs
 * two communicators through their life cycle. The event structs are complete here, as in NCCL, so
 * that a plugin that reads or writes beyond its part is detected. Prints the bytes and the number
 * of collectives that the traffic file must have. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLLECTIVE (1 << 1)
#define POINT_TO_POINT (1 << 2)
#define ANSWER ((void *)0x5a5a)

typedef int logger(int, unsigned long, const char *, int, const char *, ...);

struct plugin {
	const char *name;
	void (*init)(void);
	int (*start)(void *, void **, void *);
	int (*stop)(void *);
	int (*record)(void *, int, void *);
	int (*finalize)(void *);
};

typedef int init_three(void **, int *);
typedef int init_four(void **, int *, const char *, uint64_t, int, int, int, logger *);
typedef int init_five(void **, uint64_t, int *, const char *, int, int, int, logger *);

struct event_one {
	uint8_t type;
	void *parentObj;
	int rank;
	union {
		struct {
			const char *name;
			uint64_t commHash, seqNumber;
			uint8_t func;
			const void *sendBuff;
			void *recvBuff;
			size_t count;
			int root;
			uint8_t datatype;
			uint32_t op;
			size_t trafficBytes;
			uint8_t nMaxChannels, nWarps, algo, proto;
			int isCollnet, isNvls;
		} coll;
	};
};

struct event_three {
	uint8_t type;
	void *parentObj;
	int rank;
	union {
		struct {
			const char *name;
			uint64_t commHash, seqNumber;
			const char *func;
			const void *sendBuff;
			void *recvBuff;
			size_t count;
			int root;
			const char *datatype;
			uint8_t nMaxChannels, nWarps;
			const char *algo, *proto;
		} coll;
	};
};

struct event_four {
	uint8_t type;
	void *parentObj;
	int rank;
	union {
		struct {
			uint64_t seqNumber;
			const char *func;
			const void *sendBuff;
			void *recvBuff;
			size_t count;
			int root;
			const char *datatype;
			uint8_t nChannels, nWarps;
			const char *algo, *proto;
		} coll;
	};
};

struct event_five {
	uint64_t type;
	void *parentObj;
	int rank;
	union {
		struct {
			bool graphCaptured;
			int groupDepth;
		} groupApi;
		struct {
			uint64_t seqNumber;
			const char *func;
			const void *sendBuff;
			void *recvBuff;
			size_t count;
			int root;
			const char *datatype;
			uint8_t nChannels, nWarps;
			const char *algo, *proto;
			void *parentGroup;
		} coll;
	};
};

static const struct {
	size_t count;
	const char *name;
	uint8_t number;
	size_t bytes;
} collectives[] = {
	{1000, "ncclFloat32", 7, 4000},
	{102760448, "ncclFloat32", 7, 411041792},
	{500, "ncclBfloat16", 9, 1000},
	{77, "ncclFloat8e4m3", 10, 77},
	{3, "ncclUint64", 5, 24},
	{9, "Unknown", 200, 0},
};

static void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static void *event_of(int version, size_t i, int type)
{
	static union {
		struct event_one one;
		struct event_three three;
		struct event_four four;
		struct event_five five;
	} event;

	memset(&event, 0xee, sizeof(event));
	if (version == 1) {
		event.one.type = (uint8_t)type;
		event.one.coll.count = collectives[i].count;
		event.one.coll.datatype = collectives[i].number;
	} else if (version <= 3) {
		event.three.type = (uint8_t)type;
		event.three.coll.count = collectives[i].count;
		event.three.coll.datatype = collectives[i].name;
	} else if (version == 4) {
		event.four.type = (uint8_t)type;
		event.four.coll.count = collectives[i].count;
		event.four.coll.datatype = collectives[i].name;
	} else {
		event.five.type = (uint64_t)type;
		event.five.coll.count = collectives[i].count;
		event.five.coll.datatype = collectives[i].name;
	}
	return &event;
}

static int begin(const struct plugin *plugin, int version, void **context)
{
	int kinds = -1;
	int result;

	if (version <= 3)
		result = ((init_three *)plugin->init)(context, &kinds);
	else if (version == 4)
		result = ((init_four *)plugin->init)(context, &kinds, "world", 1, 1, 2, 0, NULL);
	else
		result = ((init_five *)plugin->init)(context, 1, &kinds, "world", 1, 2, 0, NULL);
	if (result != 0 || (kinds != COLLECTIVE && kinds != 0))
		fail("init");
	return kinds;
}

static void run_event(const struct plugin *plugin, void *context, void *event)
{
	void *handle = ANSWER;

	if (plugin->start(context, &handle, event) != 0 || handle == ANSWER)
		fail("startEvent");
	if (plugin->record(handle, 9, NULL) != 0 || plugin->stop(handle) != 0)
		fail("stopEvent");
}

static void run_communicator(const struct plugin *plugin, int version)
{
	void *context = ANSWER;
	int kinds = begin(plugin, version, &context);

	for (size_t i = 0; i < sizeof(collectives) / sizeof(collectives[0]); i++) {
		if (kinds & COLLECTIVE)
			run_event(plugin, context, event_of(version, i, COLLECTIVE));
		run_event(plugin, context, event_of(version, i, POINT_TO_POINT));
		if ((kinds & COLLECTIVE) && collectives[i].bytes != 0)
			printf("%zu 1\n", collectives[i].bytes);
	}
	if (version == 5)
		run_event(plugin, context, event_of(version, 0, 1 << 9));
	if (plugin->finalize(context) != 0)
		fail("finalize");
}

int main(int count, char **arguments)
{
	int version = count == 3 ? atoi(arguments[2]) : 0;
	char symbol[32];
	void *library;
	const struct plugin *plugin;

	if (version < 1 || version > 5) {
		fprintf(stderr, "usage: nccl_host PLUGIN VERSION\n");
		return 2;
	}
	snprintf(symbol, sizeof(symbol), "ncclProfiler_v%d", version);
	library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
	plugin = library == NULL ? NULL : dlsym(library, symbol);
	if (plugin == NULL)
		fail(dlerror());
	run_communicator(plugin, version);
	run_communicator(plugin, version);
	dlclose(library);
	return 0;
}
