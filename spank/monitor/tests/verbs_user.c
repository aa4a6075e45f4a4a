/* A program that sends by RDMA verbs through the fake provider. Prints what it has sent, as lines
 * "BYTES MESSAGES". Does not compile if the assumed layout differs from that of the installed
 * headers. */
#include "../verbs_layout.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>

_Static_assert(offsetof(struct rdma_context, post_send) ==
		       offsetof(struct ibv_context, ops.post_send),
	       "post_send lies elsewhere");
_Static_assert(offsetof(struct rdma_request, next) == offsetof(struct ibv_send_wr, next),
	       "next lies elsewhere");
_Static_assert(offsetof(struct rdma_request, pieces) == offsetof(struct ibv_send_wr, sg_list),
	       "sg_list lies elsewhere");
_Static_assert(offsetof(struct rdma_request, number_of_pieces) ==
		       offsetof(struct ibv_send_wr, num_sge),
	       "num_sge lies elsewhere");
_Static_assert(offsetof(struct rdma_request, opcode) == offsetof(struct ibv_send_wr, opcode),
	       "opcode lies elsewhere");
_Static_assert(offsetof(struct rdma_queue_pair, context) == offsetof(struct ibv_qp, context),
	       "context lies elsewhere");
_Static_assert(sizeof(struct rdma_piece) == sizeof(struct ibv_sge) &&
		       offsetof(struct rdma_piece, bytes) == offsetof(struct ibv_sge, length),
	       "a piece looks otherwise");
_Static_assert(VERBS_RDMA_WRITE == (int)IBV_WR_RDMA_WRITE && VERBS_SEND == (int)IBV_WR_SEND &&
		       VERBS_RDMA_READ == (int)IBV_WR_RDMA_READ &&
		       VERBS_SEND_WITH_INVALIDATE == (int)IBV_WR_SEND_WITH_INV,
	       "other numbers of operations");
#else
struct rdma_context *ibv_open_device(void *device);
#endif

void ibv_refuse_after(int requests);

static void must(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static int post(struct rdma_context *context, struct rdma_request *requests,
		struct rdma_request **refused)
{
	struct rdma_queue_pair pair = {context};

	return context->post_send(&pair, requests, refused);
}

static void send_on(struct rdma_context *context)
{
	struct rdma_piece pieces[2] = {{0, 3000, 0}, {0, 96, 0}};
	struct rdma_request last = {.pieces = pieces, .number_of_pieces = 1, .opcode = VERBS_SEND};
	struct rdma_request reading = {.next = &last,
					.pieces = pieces,
					.number_of_pieces = 2,
					.opcode = VERBS_RDMA_READ};
	struct rdma_request first = {.next = &reading,
				      .pieces = pieces,
				      .number_of_pieces = 2,
				      .opcode = VERBS_RDMA_WRITE};
	struct rdma_request *refused = NULL;

	must(post(context, &first, &refused) == 0, "all are taken");
	printf("3096 1\n3000 1\n");
	ibv_refuse_after(2);
	must(post(context, &first, &refused) == ENOMEM && refused == &last, "the last is refused");
	printf("3096 1\n");
	ibv_refuse_after(1 << 30);
}

int main(void)
{
	int device;
	struct rdma_context *one = (struct rdma_context *)ibv_open_device((void *)&device);
	struct rdma_context *other = (struct rdma_context *)ibv_open_device((void *)&device);

	must(one != NULL && other != NULL, "devices open");
	must(ibv_open_device(NULL) == NULL, "no device does not open");
	send_on(one);
	send_on(other);
	free(one);
	free(other);
	return 0;
}
