/* The profiler interface of NCCL, versions 1 to 5 (NCCL 2.23 and later): as much of it as a
 * plugin needs that looks at collectives only.
 *
 * From NVIDIA's documentation of the interface. NCCL asks a plugin for the newest version both
 * know. Of an event only the beginning is laid out, and of its many kinds the collective one.
 */
#ifndef TIRESIAS_NCCL_LAYOUT_H
#define TIRESIAS_NCCL_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum nccl_result { NCCL_SUCCESS = 0 };

enum nccl_event { NCCL_COLLECTIVE = 1 << 1 };

/* Version 1 identifies functions and types by number. */
struct nccl_event_v1 {
	uint8_t type;
	void *parent;
	int rank;
	struct {
		const char *communicator;
		uint64_t communicator_hash;
		uint64_t sequence;
		uint8_t function;
		const void *from;
		void *to;
		size_t count;
		int root;
		uint8_t datatype;
	} collective;
};

/* Versions 2 and 3 identify them by text; the two differ only in later fields. */
struct nccl_event_v2 {
	uint8_t type;
	void *parent;
	int rank;
	struct {
		const char *communicator;
		uint64_t communicator_hash;
		uint64_t sequence;
		const char *function;
		const void *from;
		void *to;
		size_t count;
		int root;
		const char *datatype;
	} collective;
};

/* Version 4 passes the communicator to init instead. */
struct nccl_event_v4 {
	uint8_t type;
	void *parent;
	int rank;
	struct {
		uint64_t sequence;
		const char *function;
		const void *from;
		void *to;
		size_t count;
		int root;
		const char *datatype;
	} collective;
};

/* Version 5 has more than eight kinds of events. */
struct nccl_event_v5 {
	uint64_t type;
	void *parent;
	int rank;
	struct {
		uint64_t sequence;
		const char *function;
		const void *from;
		void *to;
		size_t count;
		int root;
		const char *datatype;
	} collective;
};

typedef enum nccl_result nccl_init_v1(void **context, int *kinds);
typedef enum nccl_result nccl_init_v4(void **context, int *kinds, const char *name, uint64_t hash,
				      int nodes, int ranks, int rank, void *log);
typedef enum nccl_result nccl_init_v5(void **context, uint64_t id, int *kinds, const char *name,
				      int nodes, int ranks, int rank, void *log);
typedef enum nccl_result nccl_start_v1(void *context, void **handle, struct nccl_event_v1 *event);
typedef enum nccl_result nccl_start_v2(void *context, void **handle, struct nccl_event_v2 *event);
typedef enum nccl_result nccl_start_v4(void *context, void **handle, struct nccl_event_v4 *event);
typedef enum nccl_result nccl_start_v5(void *context, void **handle, struct nccl_event_v5 *event);
typedef enum nccl_result nccl_stop(void *handle);
typedef enum nccl_result nccl_record(void *handle, int state, void *arguments);
typedef enum nccl_result nccl_finalize(void *context);

#define NCCL_PROFILER(version, init_version, start_version)                                        \
	struct nccl_profiler_v##version {                                                          \
		const char *name;                                                                  \
		nccl_init_v##init_version *init;                                                   \
		nccl_start_v##start_version *start;                                                \
		nccl_stop *stop;                                                                   \
		nccl_record *record;                                                               \
		nccl_finalize *finalize;                                                           \
	}

NCCL_PROFILER(1, 1, 1);
NCCL_PROFILER(2, 1, 2);
NCCL_PROFILER(3, 1, 2);
NCCL_PROFILER(4, 4, 4);
NCCL_PROFILER(5, 5, 5);

#endif
