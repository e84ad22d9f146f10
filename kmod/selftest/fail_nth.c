// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lets every memory allocation and user copy of a system call fail in turn: in the
 * first try the first one, in the second try the second one, until a try has no
 * further one. A call may also succeed although something failed, if the kernel has
 * another way. KTAP on standard output. The exit status is 1 if a call failed with an
 * errno that does not fit the failure, or did not work again at the end. The caller
 * checks for warnings and leaks.
 *
 *   fail_nth module FILE [PARAMETER=VALUE...]      load, unload
 *   fail_nth driver DRIVER DEVICE                  unbind, bind; bound before and after
 *   fail_nth pcilat BDF                            each ioctl of a function, ring, text nodes
 *   fail_nth sis8300 /dev/sis8300-6                each ioctl of a board, ring, read, write
 *   fail_nth event PMU CONFIG...                   perf_event_open of each as a group; read
 *   fail_nth write FILE TEXT [UNDO]                write(), as `echo TEXT >FILE`; after it UNDO
 *
 * While a module is loaded or a device is bound, a failure counts if its call trace goes
 * through a module. It does not count if the trace goes through one function of the kernel:
 * register_irq_proc, or the one that `fail_nth -x FUNCTION ...` names.
 *
 * Needs CONFIG_FAULT_INJECTION with failslab, fail_page_alloc and fail_usercopy
 * (Documentation/fault-injection/fault-injection.rst, "/proc/<pid>/fail-nth").
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/pcilat.h>
#include <linux/perf_event.h>
#include <linux/sis8300.h>

#define TRIES_MAX	20000
#define RUN_SAMPLES	20

static int nth_fd;
static unsigned int tests, failed;
static __u32 cpus[] = { 0, 1 }, vectors[] = { 0 };
static char bytes[1 << 14];

/*
 * struct action - what is tried
 * @run: the system call; -1 and errno where it failed
 * @undo: takes a success back, without failures
 * @prepare: before each try, without failures
 */
struct action {
	const char *name;
	long (*run)(void);
	void (*undo)(long result);
	void (*prepare)(void);
};

static void die(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		die(path);
	close(fd);
}

/* Puts @text to a setting of each kind of failure. */
static void set(const char *setting, const char *text)
{
	static const char * const kinds[] = { "failslab", "fail_page_alloc", "fail_usercopy" };
	char path[96];
	unsigned int i;

	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/%s", kinds[i], setting);
		put(path, text);
	}
}

/* Only failures count whose call trace has an address from @text on. */
static void count_from(const char *text)
{
	set("require-start", text);
	set("stacktrace-depth", "32");
}

/*
 * Loading and binding make hundreds of allocations in the kernel's own code before and
 * after a module's function runs. Those failures are not the module's, and each try takes
 * a second. A trace that goes through a module has an address beyond the kernel's text.
 * Failures in one function of the kernel do not count either, usually register_irq_proc():
 * the kernel goes on without the entry in /proc/irq, and warns later that it is not there
 * to be removed.
 */
static const char *excepted = "register_irq_proc";

static void count_in_modules(void)
{
	char line[512], text[32] = "", start[32] = "", end[32] = "", name[128];
	FILE *from = fopen("/proc/kallsyms", "re");

	snprintf(name, sizeof(name), " %s\n", excepted);
	while (from && !*text && fgets(line, sizeof(line), from)) {
		if (*start && !*end)
			snprintf(end, sizeof(end), "0x%.16s", line);
		if (strstr(line, name))
			snprintf(start, sizeof(start), "0x%.16s", line);
		if (strstr(line, " _etext\n"))
			snprintf(text, sizeof(text), "0x%.16s", line);
	}
	if (from)
		fclose(from);
	if (!*text || !*end)
		die("/proc/kallsyms has no _etext, or not the function that is excepted");
	set("reject-start", start);
	set("reject-end", end);
	count_from(text);
}

/*
 * What a failed allocation or user copy may come out as. EBUSY: a region of a BAR that
 * could not be requested, for whatever reason; one that stays requested fails the last
 * try, in which nothing fails.
 */
static bool is_expected(int error)
{
	static const int expected[] = {
		ENOMEM, EFAULT, ENOBUFS, ENOSPC, EAGAIN, EINTR, ENODEV, EIO, EINVAL, ENOENT, ENXIO,
		EBUSY,
	};
	unsigned int i;

	for (i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		if (error == expected[i])
			return true;
	}
	return false;
}

/* Whether the failure is still to come; not any more after this. It may come to this very copy. */
static bool failures_left(void)
{
	char left[16] = "";
	bool is_copy = pread(nth_fd, left, sizeof(left) - 1, 0) < 0 && errno == EFAULT;

	if (!is_copy && !*left)
		die("/proc/self/fail-nth");
	if (pwrite(nth_fd, "0", 1, 0) != 1 && pwrite(nth_fd, "0", 1, 0) != 1)
		die("/proc/self/fail-nth");
	return is_copy || strtoul(left, NULL, 0);
}

static void try_all(const struct action *action)
{
	unsigned int nth, hit = 0, survived = 0;
	const char *why = "";
	bool still;
	char text[96];
	long result;
	int error;

	for (nth = 1; nth <= TRIES_MAX; nth++) {
		int length = snprintf(text, sizeof(text), "%u", nth);

		if (action->prepare)
			action->prepare();
		if (pwrite(nth_fd, text, length, 0) != length)
			die("/proc/self/fail-nth");
		errno = 0;
		result = action->run();
		error = errno;
		still = failures_left();
		if (result >= 0 && action->undo)
			action->undo(result);
		if (still) {
			/* There were fewer than nth: nothing failed. */
			if (result < 0) {
				snprintf(text, sizeof(text), "fails without a reason: %s",
					 strerror(error));
				why = text;
			}
			break;
		}
		hit++;
		survived += result >= 0;
		if (result < 0 && !is_expected(error)) {
			snprintf(text, sizeof(text), "failure %u came out as %s", nth,
				 strerror(error));
			why = text;
			break;
		}
	}
	if (nth > TRIES_MAX)
		why = "no end";
	tests++;
	failed += !!*why;
	printf("%sok %u %s # %u failures, survived %u%s%s\n", *why ? "not " : "", tests,
	       action->name, hit, survived, *why ? ": " : "", why);
	fflush(stdout);
}

/* --- modules, drivers, files --- */

static const char *module_path, *file_path, *file_text, *file_undo;
static char module_name[64], module_options[512];

static long module_load(void)
{
	int fd = open(module_path, O_RDONLY);
	long result = fd < 0 ? -1 : syscall(SYS_finit_module, fd, module_options, 0);
	int error = errno;

	if (fd >= 0)
		close(fd);
	errno = error;
	return result;
}

static void module_unload(long result)
{
	(void)result;
	if (syscall(SYS_delete_module, module_name, O_NONBLOCK))
		die(module_name);
}

static void try_module(char **args)
{
	static const struct action load = { "load", module_load, module_unload, NULL };
	const char *base = strrchr(args[0], '/');

	module_path = args[0];
	snprintf(module_name, sizeof(module_name), "%s", base ? base + 1 : args[0]);
	*strchrnul(module_name, '.') = 0;
	while (*++args) {
		strncat(module_options, *args, sizeof(module_options) - strlen(module_options) - 2);
		strcat(module_options, " ");
	}
	try_all(&load);
}

static long file_write(void)
{
	int fd = open(file_path, O_WRONLY), error;
	long result = fd < 0 ? -1 : write(fd, file_text, strlen(file_text));

	error = errno;
	if (fd >= 0)
		close(fd);
	errno = error;
	return result;
}

static void file_back(long result)
{
	(void)result;
	if (file_undo)
		put(file_path, file_undo);
}

static char bind_path[256], unbind_path[256];

static void unbind_again(long result)
{
	(void)result;
	put(unbind_path, file_text);
}

static void bind_again(long result)
{
	(void)result;
	put(bind_path, file_text);
}

static void try_driver(char **args)
{
	struct action bind = { "bind", file_write, unbind_again, NULL };
	struct action unbind = { "unbind", file_write, bind_again, NULL };

	snprintf(bind_path, sizeof(bind_path), "/sys/bus/platform/drivers/%s/bind", args[0]);
	if (access(bind_path, F_OK))
		snprintf(bind_path, sizeof(bind_path), "/sys/bus/pci/drivers/%s/bind", args[0]);
	snprintf(unbind_path, sizeof(unbind_path), "%.*sunbind",
		 (int)(strlen(bind_path) - strlen("bind")), bind_path);
	file_text = args[1];
	file_path = unbind_path;
	try_all(&unbind);
	put(unbind_path, file_text);
	file_path = bind_path;
	try_all(&bind);
	put(bind_path, file_text);
}

/* --- ioctls --- */

static const char *node;
static int fd = -1;
static unsigned long request;
static void *argument;
static size_t map_length, read_length;

static long open_node(void)
{
	return open(node, O_RDWR);
}

static void close_result(long result)
{
	close(result);
}

static long call(void)
{
	return ioctl(fd, request, argument);
}

static long map(void)
{
	void *at = mmap(NULL, map_length, PROT_READ, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? -1 : (long)at;
}

static void unmap(long result)
{
	munmap((void *)result, map_length);
}

static long read_bytes(void)
{
	return pread(fd, bytes, read_length, 0);
}

static long read_next(void)
{
	return read(fd, bytes, read_length);
}

static long write_bytes(void)
{
	return pwrite(fd, bytes, read_length, 0);
}

/* Tries an ioctl whose argument is copied back before each try: the kernel writes into it. */
static char original[512];
static size_t original_size;

static void restore(void)
{
	memcpy(argument, original, original_size);
}

static void try_call(const char *name, unsigned long number, void *at, size_t size)
{
	struct action action = { name, call, NULL, restore };

	request = number;
	argument = at;
	original_size = size;
	memcpy(original, at, size);
	try_all(&action);
}

#define TRY_CALL(number, at)							\
	do {									\
		__typeof__(at) at_ = (at);					\
		try_call(#number, number, at_, sizeof(*at_));			\
	} while (0)

static void try_simple(const char *name, long (*run)(void), void (*undo)(long))
{
	struct action action = { name, run, undo, NULL };

	try_all(&action);
}

static void try_nodes(const char *bdf)
{
	static const char *const writes[][2] = {
		{ "pcilat_iomem", "run 0 100 0" }, { "pcilat_iomem", "clear" },
		{ "pcilat_interrupt", "1" }, { "pcilat_interrupt", "swloop 10 0x1" },
		{ "pcilat_interrupt", "clear" }, { "pcilat_devreg", "0x4" },
	};
	char path[128], name[160];
	unsigned int i;

	for (i = 0; i < sizeof(writes) / sizeof(*writes); i++) {
		snprintf(path, sizeof(path), "/sys/class/pcilat/%s/%s", bdf, writes[i][0]);
		snprintf(name, sizeof(name), "echo %s >%s", writes[i][1], writes[i][0]);
		file_path = path;
		file_text = writes[i][1];
		try_simple(name, file_write, NULL);
	}
}

static void try_pcilat(char **args)
{
	struct pcilat_info info = { .size = sizeof(info) };
	struct pcilat_run run = {
		.size = sizeof(run), .order = PCILAT_ORDER_SEQUENTIAL, .cpus = (uintptr_t)cpus,
		.ncpus = 2, .count = RUN_SAMPLES, .batch = 1, .width = 4, .kind = PCILAT_KIND_READ,
		.flags = PCILAT_RUN_ONES_OK | PCILAT_RUN_RAW,
	};
	struct pcilat_status status = { .size = sizeof(status) };
	struct pcilat_slot slot = { .size = sizeof(slot) };
	struct pcilat_hist hist = {
		.size = sizeof(hist), .count = 64, .buckets = (uintptr_t)bytes,
	};
	struct pcilat_reg reg = { .size = sizeof(reg), .width = 4 };
	char path[64];

	snprintf(path, sizeof(path), "/dev/pcilat/%s", args[0]);
	node = path;
	try_simple("open", open_node, close_result);
	fd = open(node, O_RDWR);
	if (fd < 0)
		die(node);
	TRY_CALL(PCILAT_IOC_INFO, &info);
	for (run.order = PCILAT_ORDER_SEQUENTIAL; run.order <= PCILAT_ORDER_CONCURRENT;
	     run.order++) {
		run.rounds = run.order == PCILAT_ORDER_INTERLEAVED ? 2 : 0;
		TRY_CALL(PCILAT_IOC_RUN, &run);
	}
	run.rounds = 0;
	run.order = PCILAT_ORDER_SEQUENTIAL;
	run.kind = PCILAT_KIND_CONFIG;
	TRY_CALL(PCILAT_IOC_RUN, &run);
	run.kind = PCILAT_KIND_IRQ;
	run.flags = PCILAT_RUN_RAW;
	run.batch = 0;
	run.width = 0;
	run.vectors = (uintptr_t)vectors;
	run.nvectors = 1;
	run.source = PCILAT_SOURCE_HARDWARE;
	run.trigger_cpu = -1;
	run.timeout_ns = 2000000000;
	TRY_CALL(PCILAT_IOC_RUN, &run);
	TRY_CALL(PCILAT_IOC_STATUS, &status);
	TRY_CALL(PCILAT_IOC_SLOT, &slot);
	TRY_CALL(PCILAT_IOC_HIST, &hist);
	TRY_CALL(PCILAT_IOC_REG, &reg);
	map_length = info.ring_records * sizeof(struct pcilat_record);
	try_simple("mmap of the ring", map, unmap);
	read_length = 4096;
	try_simple("read of the ring", read_next, NULL);
	close(fd);
	try_nodes(args[0]);
}

static void try_sis8300(char **args)
{
	struct sis8300_info info = { .size = sizeof(info) };
	struct sis8300_setup setup = {
		.size = sizeof(setup), .channels = 0x3, .samples = 320,
		.clock = SIS8300_CLOCK_INTERNAL, .divider = 3,
	};
	struct sis8300_setup present = { .size = sizeof(present) };
	struct sis8300_arm arm = { .size = sizeof(arm) };
	struct sis8300_end end = { .size = sizeof(end), .timeout_ms = 5000 };
	struct sis8300_stats stats = { .size = sizeof(stats) };
	struct sis8300_ring_setup ring = {
		.size = sizeof(ring), .buffers = 4, .buffer_bytes = 4096,
	};
	struct sis8300_ring_start start = { .size = sizeof(start), .bytes = 16384, .passes = 1 };
	struct sis8300_ring_next next = {
		.size = sizeof(next), .timeout_ms = 5000, .release = ~0ULL,
	};

	node = args[0];
	try_simple("open", open_node, close_result);
	fd = open(node, O_RDWR);
	if (fd < 0)
		die(node);
	TRY_CALL(SIS8300_IOC_INFO, &info);
	TRY_CALL(SIS8300_IOC_SETUP, &setup);
	TRY_CALL(SIS8300_IOC_GET_SETUP, &present);
	TRY_CALL(SIS8300_IOC_ARM, &arm);
	TRY_CALL(SIS8300_IOC_WAIT_END, &end);
	end.flags = SIS8300_WAIT_POLL;
	end.poll_us = 100;
	TRY_CALL(SIS8300_IOC_WAIT_END, &end);
	TRY_CALL(SIS8300_IOC_STATS, &stats);
	read_length = 4096;
	try_simple("read of the card", read_bytes, NULL);
	try_simple("write to the card", write_bytes, NULL);
	TRY_CALL(SIS8300_IOC_RING_SETUP, &ring);
	map_length = 4 * 4096;
	try_simple("mmap of the ring", map, unmap);
	TRY_CALL(SIS8300_IOC_RING_START, &start);
	ioctl(fd, SIS8300_IOC_RING_STOP);
	if (ioctl(fd, SIS8300_IOC_RING_START, &start))
		die("SIS8300_IOC_RING_START");
	TRY_CALL(SIS8300_IOC_RING_NEXT, &next);
	ioctl(fd, SIS8300_IOC_RING_STOP);
	close(fd);
}

/* --- events --- */

static struct perf_event_attr attr = { .size = sizeof(attr), .read_format = PERF_FORMAT_GROUP };
static int leader = -1;

static long open_event(void)
{
	return syscall(SYS_perf_event_open, &attr, -1, 0, leader, 0UL);
}

static void try_events(char **args)
{
	char path[160], name[64];
	FILE *from;

	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/type", args[0]);
	from = fopen(path, "r");
	if (!from || fscanf(from, "%u", &attr.type) != 1)
		die(path);
	fclose(from);
	while (*++args) {
		attr.config = strtoull(*args, NULL, 0);
		snprintf(name, sizeof(name), "event %#llx%s", (unsigned long long)attr.config,
			 leader < 0 ? "" : " of a group");
		try_simple(name, open_event, close_result);
		fd = open_event();
		if (fd < 0)
			die(name);
		if (leader < 0)
			leader = fd;
	}
	fd = leader;
	read_length = sizeof(bytes);
	try_simple("read of the group", read_next, NULL);
}

int main(int argc, char **argv)
{
	struct action action = { "write", file_write, file_back, NULL };
	const char *what;

	if (argc > 2 && !strcmp(argv[1], "-x")) {
		excepted = argv[2];
		argv += 2;
		argc -= 2;
	}
	what = argc > 2 ? argv[1] : "";
	/* Allocations that may wait are the most: failslab and fail_page_alloc leave them alone. */
	put("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	put("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	put("/sys/kernel/debug/fail_page_alloc/ignore-gfp-highmem", "N");
	put("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	/* Each is a report with a call trace otherwise, which looks like a fault. */
	put("/sys/kernel/debug/failslab/verbose", "0");
	put("/sys/kernel/debug/fail_page_alloc/verbose", "0");
	put("/sys/kernel/debug/fail_usercopy/verbose", "0");
	nth_fd = open("/proc/self/fail-nth", O_RDWR);
	if (nth_fd < 0)
		die("/proc/self/fail-nth");
	if (!strcmp(what, "module") || !strcmp(what, "driver"))
		count_in_modules();
	else
		count_from("0");
	if (!strcmp(what, "module")) {
		try_module(argv + 2);
	} else if (!strcmp(what, "driver") && argc == 4) {
		try_driver(argv + 2);
	} else if (!strcmp(what, "pcilat")) {
		try_pcilat(argv + 2);
	} else if (!strcmp(what, "sis8300")) {
		try_sis8300(argv + 2);
	} else if (!strcmp(what, "event")) {
		try_events(argv + 2);
	} else if (!strcmp(what, "write") && argc >= 4) {
		file_path = argv[2];
		file_text = argv[3];
		file_undo = argv[4];
		try_all(&action);
	} else {
		fprintf(stderr,
			"fail_nth [-x FUNCTION] module|driver|pcilat|sis8300|event|write WHAT...\n");
		return 2;
	}
	printf("1..%u\n", tests);
	return failed ? 1 : 0;
}
