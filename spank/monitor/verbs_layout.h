/*
 * The layout of libibverbs that the hook on RDMA sends needs: its stable ABI, IBVERBS_1.1.
 *
 * It is repeated here so that the build needs neither the headers nor the library. The tests
 * compare it with the real headers if those are installed.
 */
#ifndef TIRESIAS_VERBS_LAYOUT_H
#define TIRESIAS_VERBS_LAYOUT_H

#include <stdint.h>

#define VERBS_LIBRARY "libibverbs.so.1"
#define VERBS_ABI "IBVERBS_1.1"

struct rdma_piece {
	uint64_t address;
	uint32_t bytes;
	uint32_t key;
};

enum rdma_opcode {
	VERBS_RDMA_WRITE = 0,
	VERBS_RDMA_WRITE_WITH_IMMEDIATE = 1,
	VERBS_SEND = 2,
	VERBS_SEND_WITH_IMMEDIATE = 3,
	VERBS_RDMA_READ = 4,
	VERBS_SEND_WITH_INVALIDATE = 9,
};

/* A work request; the fields after these do not matter here. */
struct rdma_request {
	uint64_t id;
	struct rdma_request *next;
	struct rdma_piece *pieces;
	int number_of_pieces;
	int opcode;
};

struct rdma_context;

struct rdma_queue_pair {
	struct rdma_context *context;
};

typedef int rdma_post_send(struct rdma_queue_pair *, struct rdma_request *,
			    struct rdma_request **);

/* The provider's table of operations is in the context; post_send is its 26th entry. */
struct rdma_context {
	void *device;
	void *operations_before[25];
	rdma_post_send *post_send;
};

#endif
