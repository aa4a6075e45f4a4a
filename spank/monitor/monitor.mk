# The monitor of traffic and output, and the NCCL profiler plugin. Included by the Makefile beside
# this folder; alone, from there: make -f monitor/monitor.mk
#
#   monitor                     both libraries, in $(BUILD)
#   test-monitor                the unit tests
#   test-monitor-asan, -tsan    the same under AddressSanitizer and UBSan, under ThreadSanitizer
#   test-monitor-valgrind       the same under valgrind
#   monitor-tests               what tests/monitor runs: programs that send, and a fake libibverbs

BUILD ?= build
CFLAGS ?= -O2 -g
WARNINGS ?= -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
HARDENING ?= -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
HARDENED_LINK ?= -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed

MONITOR_C = -std=c11 -Imonitor $(WARNINGS) -pthread
MONITOR_HEADERS = $(wildcard monitor/*.h)
MONITOR_COUNTING = monitor/traffic.c monitor/counting.c monitor/mapped_file.c
MONITOR_OUTPUT = monitor/output.c monitor/output_line.c
MONITOR_HOOKS = monitor/descriptors.c monitor/own_list.c monitor/hooks.c monitor/verbs.c \
	$(MONITOR_OUTPUT)
MONITOR_LIBRARIES = $(BUILD)/libtiresias_monitor.so $(BUILD)/libnccl-profiler-tiresias.so

# Optimized as one: what a message costs is mostly the code that has to be fetched for it. Never
# unloaded: a signal handler and the providers' tables point into it.
MONITOR_SHARED = -flto -shared -fPIC -fvisibility=hidden $(HARDENED_LINK) -Wl,-z,defs -Wl,-z,nodelete

.PHONY: monitor monitor-tests test-monitor test-monitor-asan test-monitor-tsan test-monitor-valgrind
all: monitor
test: test-monitor
test-asan: test-monitor-asan
test-valgrind: test-monitor-valgrind
monitor: $(MONITOR_LIBRARIES)

$(BUILD)/libtiresias_monitor.so: $(MONITOR_COUNTING) $(MONITOR_HOOKS) $(MONITOR_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(MONITOR_C) $(HARDENING) $(CFLAGS) $(MONITOR_SHARED) $(LDFLAGS) -o $@ $(filter %.c,$^)

$(BUILD)/libnccl-profiler-tiresias.so: $(MONITOR_COUNTING) monitor/nccl.c $(MONITOR_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(MONITOR_C) $(HARDENING) $(CFLAGS) $(MONITOR_SHARED) $(LDFLAGS) -o $@ $(filter %.c,$^)

MONITOR_TESTS = $(BUILD)/tests/test_counting $(BUILD)/tests/test_output
COUNTING_TEST = monitor/tests/test_counting.c monitor/descriptors.c monitor/own_list.c \
	$(MONITOR_COUNTING)
OUTPUT_TEST = monitor/tests/test_output.c monitor/mapped_file.c $(MONITOR_OUTPUT)
RUN_EACH = set -e; for program in
# Without it valgrind returns from a handler for SIGBUS with another stack pointer.
KEEP_STACK_POINTER = --vex-guest-chase=no

test-monitor: $(MONITOR_TESTS)
	$(RUN_EACH) $^; do $$program; done
test-monitor-asan: $(MONITOR_TESTS:%=%_asan)
	$(RUN_EACH) $^; do $$program; done
test-monitor-tsan: $(MONITOR_TESTS:%=%_tsan)
	$(RUN_EACH) $^; do $$program; done
test-monitor-valgrind: $(MONITOR_TESTS)
	$(RUN_EACH) $^; do valgrind --quiet --leak-check=full --error-exitcode=99 \
		--trace-children=yes $(KEEP_STACK_POINTER) $$program; done

$(MONITOR_TESTS): MONITOR_CHECK = -O2 -g
$(MONITOR_TESTS:%=%_asan): MONITOR_CHECK = -O1 -g -fsanitize=address,undefined \
	-fno-sanitize-recover=all -fno-omit-frame-pointer
$(MONITOR_TESTS:%=%_tsan): MONITOR_CHECK = -O1 -g -fsanitize=thread
$(BUILD)/tests/test_counting $(BUILD)/tests/test_counting_asan $(BUILD)/tests/test_counting_tsan: \
		$(COUNTING_TEST)
$(BUILD)/tests/test_output $(BUILD)/tests/test_output_asan $(BUILD)/tests/test_output_tsan: \
		$(OUTPUT_TEST)
$(MONITOR_TESTS) $(MONITOR_TESTS:%=%_asan) $(MONITOR_TESTS:%=%_tsan): $(MONITOR_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(MONITOR_C) $(MONITOR_CHECK) -o $@ $(filter %.c,$^)

# The programs that send, with the hooks inside: the sanitizers want to come before any library.
$(BUILD)/tests/senders_asan: MONITOR_CHECK = -O1 -g -fsanitize=address,undefined \
	-fno-sanitize-recover=all -fno-omit-frame-pointer
$(BUILD)/tests/senders_asan: monitor/tests/senders.c $(MONITOR_COUNTING) $(MONITOR_HOOKS) \
		$(MONITOR_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(MONITOR_C) $(MONITOR_CHECK) -o $@ $(filter %.c,$^)

MONITOR_PROGRAMS = $(BUILD)/tests/senders $(BUILD)/tests/stream $(BUILD)/tests/nccl_host \
	$(BUILD)/tests/verbs_user $(BUILD)/tests/printer
monitor-tests: monitor $(MONITOR_PROGRAMS)

$(BUILD)/tests/senders $(BUILD)/tests/stream $(BUILD)/tests/nccl_host $(BUILD)/tests/printer: \
		$(BUILD)/tests/%: monitor/tests/%.c $(MONITOR_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(MONITOR_C) -O2 -g -o $@ $<

$(BUILD)/tests/libibverbs.so.1: monitor/tests/fake_verbs.c monitor/tests/fake_verbs.map
	@mkdir -p $(@D)
	$(CC) $(MONITOR_C) -O2 -g -shared -fPIC -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script=monitor/tests/fake_verbs.map -o $@ $<

$(BUILD)/tests/verbs_user: monitor/tests/verbs_user.c $(BUILD)/tests/libibverbs.so.1
	$(CC) $(MONITOR_C) -O2 -g -Wl,-rpath,'$$ORIGIN' -o $@ $^
