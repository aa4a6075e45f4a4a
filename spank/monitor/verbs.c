/*
 * The hook on RDMA sends.
 *
 * ibv_post_send is an inline function that calls the function in the table of operations of the
 * device's context, where the provider has put it. So the hook is put there when the device is
 * opened. Until a program opens a device, nothing here runs and libibverbs is neither loaded nor
 * looked for.
 */
#define _GNU_SOURCE
#include "counting.h"
#include "verbs_layout.h"

#include <dlfcn.h>
#include <errno.h>

#define EXPORT __attribute__((visibility("default")))
#define CONTEXTS 64 /* maximum number of queues per process; sends on further ones are not seen */

typedef struct rdma_context *open_function(void *device);
typedef struct rdma_context *import_function(int descriptor);

EXPORT open_function ibv_open_device;
EXPORT import_function ibv_import_device;

static struct {
	struct rdma_context *context;
	rdma_post_send *post_send;
} contexts[CONTEXTS];

static rdma_post_send *real_post_send(const struct rdma_context *context)
{
	for (int i = 0; i < CONTEXTS; i++)
		if (__atomic_load_n(&contexts[i].context, __ATOMIC_ACQUIRE) == context)
			return __atomic_load_n(&contexts[i].post_send, __ATOMIC_ACQUIRE);
	return NULL;
}

static bool is_sending(int opcode)
{
	return opcode == VERBS_RDMA_WRITE || opcode == VERBS_RDMA_WRITE_WITH_IMMEDIATE ||
	       opcode == VERBS_SEND || opcode == VERBS_SEND_WITH_IMMEDIATE ||
	       opcode == VERBS_SEND_WITH_INVALIDATE;
}

static void count_request(const struct rdma_request *request)
{
	uint64_t bytes = 0;

	for (int i = 0; i < request->number_of_pieces; i++)
		bytes += request->pieces[i].bytes;
	if (is_sending(request->opcode))
		count_message(TRAFFIC_MESSAGES, bytes);
}

/* The first request that the provider refuses is *refused; those before it in the list are sent. */
static int post_send(struct rdma_queue_pair *pair, struct rdma_request *requests,
		     struct rdma_request **refused)
{
	rdma_post_send *real = real_post_send(pair->context);
	int error = real == NULL ? ENOSYS : real(pair, requests, refused);
	struct rdma_request *end = error != 0 ? *refused : NULL;

	if (real == NULL)
		return error;
	for (struct rdma_request *r = requests; r != NULL && r != end; r = r->next)
		count_request(r);
	return error;
}

/* The entry of a context: its own if another context had this address before, or a free one. */
static int place_of(struct rdma_context *context)
{
	for (int i = 0; i < CONTEXTS; i++) {
		struct rdma_context *holder = NULL;

		if (__atomic_compare_exchange_n(&contexts[i].context, &holder, context, false,
						__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
		    holder == context)
			return i;
	}
	return -1;
}

static void watch(struct rdma_context *context)
{
	int place;

	if (context == NULL || !counting_is_on() || context->post_send == NULL ||
	    context->post_send == post_send)
		return;
	place = place_of(context);
	if (place < 0)
		return;
	__atomic_store_n(&contexts[place].post_send, context->post_send, __ATOMIC_RELEASE);
	__atomic_store_n(&context->post_send, post_send, __ATOMIC_RELEASE);
}

/* The caller has loaded libibverbs, but perhaps not into the global scope: ask for it by name. */
static void *find_in_verbs(const char *name)
{
	void *library = dlopen(VERBS_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
	void *found = library == NULL ? NULL : dlvsym(library, name, VERBS_ABI);

	if (library != NULL && found == NULL)
		found = dlsym(library, name);
	if (library != NULL)
		dlclose(library);
	if (found == NULL)
		errno = ENOSYS;
	return found;
}

struct rdma_context *ibv_open_device(void *device)
{
	open_function *real = (open_function *)find_in_verbs("ibv_open_device");
	struct rdma_context *context = real == NULL ? NULL : real(device);

	watch(context);
	return context;
}

struct rdma_context *ibv_import_device(int descriptor)
{
	import_function *real = (import_function *)find_in_verbs("ibv_import_device");
	struct rdma_context *context = real == NULL ? NULL : real(descriptor);

	watch(context);
	return context;
}
