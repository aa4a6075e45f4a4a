/* The NCCL profiler plugin: the bytes of each collective, counted when it is enqueued.
 *
 * NCCL loads it when NCCL_PROFILER_PLUGIN names it, once per communicator, and picks the newest
 * of the interfaces below that it knows. It asks for no event when there is nothing to count into.
 */
#include "counting.h"
#include "nccl_layout.h"

#define EXPORT __attribute__((visibility("default")))
#define NAME "Tiresias"

/* Bytes of one element, by number: ncclDataType_t. */
static const uint8_t element_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static uint64_t bytes_of_number(uint8_t datatype)
{
	return datatype < sizeof(element_bytes) ? element_bytes[datatype] : 0;
}

/* By name: the first number in it is the number of bits, as in ncclBfloat16 or ncclFloat8e4m3. */
static uint64_t bytes_of_name(const char *datatype)
{
	unsigned int bits = 0;

	if (datatype == NULL)
		return 0;
	while (*datatype != '\0' && (*datatype < '0' || *datatype > '9'))
		datatype++;
	for (; *datatype >= '0' && *datatype <= '9' && bits < 1000; datatype++)
		bits = 10 * bits + (unsigned int)(*datatype - '0');
	return bits / 8;
}

static void count_collective(uint64_t elements, uint64_t element)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(elements, element, &bytes))
		bytes = TRAFFIC_LARGEST_BYTES;
	count_message(TRAFFIC_COLLECTIVES, bytes);
}

__attribute__((constructor)) static void begin(void)
{
	counting_begin();
}

static enum nccl_result ask_for_collectives(void **context, int *kinds)
{
	*context = NULL;
	*kinds = counting_is_on() ? NCCL_COLLECTIVE : 0;
	return NCCL_SUCCESS;
}

static enum nccl_result init_v4(void **context, int *kinds, const char *name, uint64_t hash,
				int nodes, int ranks, int rank, void *log)
{
	(void)name, (void)hash, (void)nodes, (void)ranks, (void)rank, (void)log;
	return ask_for_collectives(context, kinds);
}

static enum nccl_result init_v5(void **context, uint64_t id, int *kinds, const char *name,
				int nodes, int ranks, int rank, void *log)
{
	(void)id, (void)name, (void)nodes, (void)ranks, (void)rank, (void)log;
	return ask_for_collectives(context, kinds);
}

static enum nccl_result start_v1(void *context, void **handle, struct nccl_event_v1 *event)
{
	(void)context;
	*handle = NULL;
	if (event->type == NCCL_COLLECTIVE)
		count_collective(event->collective.count,
				 bytes_of_number(event->collective.datatype));
	return NCCL_SUCCESS;
}

/* The same in each layout. */
#define DEFINE_START(version)                                                                      \
	static enum nccl_result start_v##version(void *context, void **handle,                     \
						 struct nccl_event_v##version *event)              \
	{                                                                                          \
		(void)context;                                                                     \
		*handle = NULL;                                                                    \
		if (event->type == NCCL_COLLECTIVE)                                                \
			count_collective(event->collective.count,                                  \
					 bytes_of_name(event->collective.datatype));               \
		return NCCL_SUCCESS;                                                               \
	}

DEFINE_START(2)
DEFINE_START(4)
DEFINE_START(5)

static enum nccl_result stop(void *handle)
{
	(void)handle;
	return NCCL_SUCCESS;
}

static enum nccl_result record(void *handle, int state, void *arguments)
{
	(void)handle, (void)state, (void)arguments;
	return NCCL_SUCCESS;
}

static enum nccl_result finalize(void *context)
{
	(void)context;
	return NCCL_SUCCESS;
}

EXPORT struct nccl_profiler_v1 ncclProfiler_v1 = {NAME,     ask_for_collectives, start_v1, stop,
						  record, finalize};
EXPORT struct nccl_profiler_v2 ncclProfiler_v2 = {NAME,     ask_for_collectives, start_v2, stop,
						  record, finalize};
EXPORT struct nccl_profiler_v3 ncclProfiler_v3 = {NAME,     ask_for_collectives, start_v2, stop,
						  record, finalize};
EXPORT struct nccl_profiler_v4 ncclProfiler_v4 = {NAME, init_v4, start_v4, stop, record, finalize};
EXPORT struct nccl_profiler_v5 ncclProfiler_v5 = {NAME, init_v5, start_v5, stop, record, finalize};
