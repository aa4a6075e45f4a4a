/* A fake libibverbs with a provider: devices, and queues that accept or refuse requests. */
#include "../verbs_layout.h"

#include <errno.h>
#include <stdlib.h>

struct rdma_context *open_device(void *device);
struct rdma_context *open_device_of_old(void *device);
void ibv_refuse_after(int requests);

static int accepted = 1 << 30;

/* From now on each list is refused after this many requests. */
void ibv_refuse_after(int requests)
{
	accepted = requests;
}

static int post_send(struct rdma_queue_pair *pair, struct rdma_request *request,
		     struct rdma_request **refused)
{
	(void)pair;
	for (int i = 0; request != NULL; i++, request = request->next) {
		if (i < accepted)
			continue;
		*refused = request;
		return ENOMEM;
	}
	return 0;
}

struct rdma_context *open_device(void *device)
{
	struct rdma_context *context = device == NULL ? NULL : calloc(1, sizeof(*context));

	if (context == NULL)
		return NULL;
	context->device = device;
	context->post_send = post_send;
	return context;
}

/* The symbol version for programs older than the stable ABI must not be mistaken for the current
 * one. */
struct rdma_context *open_device_of_old(void *device)
{
	(void)device;
	abort();
}

__asm__(".symver open_device_of_old,ibv_open_device@IBVERBS_1.0");
__asm__(".symver open_device,ibv_open_device@@IBVERBS_1.1");
