// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sends malformed requests to a device that is bound to pcilat, and checks that
 * each gets its error and nothing else happens: first a table, then a seeded
 * random run. KTAP on standard output, exit status 1 if a test fails. The caller
 * checks the kernel's log for warnings.
 *
 *   pcilat_abuse 0000:01:00.0 [SEED [CALLS]]
 *
 * Registers are read at random offsets, but never written.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <linux/pcilat.h>

static bool planning = true;
static unsigned int tests, failed;
static const char *bdf;
static int fd = -1;
static struct pcilat_info info;
static __u32 cpus[4096], vectors[2048];
static __u64 buckets[PCILAT_HIST_BUCKETS];
static unsigned int bar;	/* a memory BAR */

static void report(bool ok, const char *name, const char *why)
{
	tests++;
	if (planning)
		return;
	failed += !ok;
	printf("%sok %u %s%s%s\n", ok ? "" : "not ", tests, name, *why ? " # " : "", why);
	fflush(stdout);
}

/* A call that must fail with one errno. */
static void expect(const char *name, int want, int ret, int got)
{
	char why[96] = "";

	if (ret >= 0)
		snprintf(why, sizeof(why), "succeeded, expected %s", strerror(want));
	else if (got != want)
		snprintf(why, sizeof(why), "failed with %s (%d), expected errno %d", strerror(got),
			 got, want);
	report(ret < 0 && got == want, name, why);
}

static struct pcilat_run good_run(void)
{
	return (struct pcilat_run) {
		.size = sizeof(struct pcilat_run),
		.kind = PCILAT_KIND_READ,
		.order = PCILAT_ORDER_SEQUENTIAL,
		.cpus = (uintptr_t)cpus,
		.ncpus = 1,
		.count = 10,
		.batch = 1,
		.bar = bar,
		.width = 4,
		.flags = PCILAT_RUN_ONES_OK,
	};
}

static struct pcilat_run good_irq(void)
{
	return (struct pcilat_run) {
		.size = sizeof(struct pcilat_run),
		.kind = PCILAT_KIND_IRQ,
		.order = PCILAT_ORDER_SEQUENTIAL,
		.cpus = (uintptr_t)cpus,
		.ncpus = 1,
		.count = 10,
		.vectors = (uintptr_t)vectors,
		.nvectors = 1,
		.source = PCILAT_SOURCE_RETRIGGER,
		.trigger_cpu = -1,
		.warmup = 2,
		.timeout_ns = 100000000,
	};
}

#define CALL(name, want, number, argument)					\
	do {									\
		int ret_ = planning ? 0 : ioctl(fd, number, argument);		\
		expect(name, want, ret_, errno);				\
	} while (0)

/* One field of a good request made bad. */
#define BAD_RUN(name, want, change)						\
	do {									\
		struct pcilat_run r = good_run();				\
		change;								\
		CALL(name, want, PCILAT_IOC_RUN, &r);				\
	} while (0)

#define BAD_IRQ(name, want, change)						\
	do {									\
		struct pcilat_run r = good_irq();				\
		const char *name_ = name;					\
		change;								\
		if (!planning && !(info.sources & 1 << PCILAT_SOURCE_RETRIGGER)) \
			report(true, name_, "SKIP no vectors");		\
		else								\
			CALL(name_, want, PCILAT_IOC_RUN, &r);			\
	} while (0)

#define BAD_SIZE(name, want, type, number, bytes)				\
	do {									\
		struct type s = { .size = (bytes) };				\
		CALL(name, want, number, &s);					\
	} while (0)

#define BAD(name, want, type, number, ...)					\
	do {									\
		struct type s = { .size = sizeof(s), ##__VA_ARGS__ };		\
		CALL(name, want, number, &s);					\
	} while (0)

static void bad_run_fields(void)
{
	__u32 twice[2] = { 0, 0 }, far[1] = { 0x7fffffff };

	BAD_RUN("run: size 0", EINVAL, r.size = 0);
	BAD_RUN("run: size too small", EINVAL, r.size = sizeof(r) - 8);
	BAD_RUN("run: size beyond a page", E2BIG, r.size = 0xffffffff);
	BAD_RUN("run: kind 0", EINVAL, r.kind = 0);
	BAD_RUN("run: kind unknown", EINVAL, r.kind = 6);
	BAD_RUN("run: order 0", EINVAL, r.order = 0);
	BAD_RUN("run: order unknown", EINVAL, r.order = 4);
	BAD_RUN("run: unknown flag", EINVAL, r.flags |= 1u << 31);
	BAD_RUN("run: reserved field set", EINVAL, r.reserved[3] = 1);
	BAD_RUN("run: no CPUs", EINVAL, r.ncpus = 0);
	BAD_RUN("run: too many CPUs", EINVAL, r.ncpus = 0xffffffff);
	BAD_RUN("run: a CPU twice", EINVAL, r.cpus = (uintptr_t)twice; r.ncpus = 2);
	BAD_RUN("run: a CPU that is not there", ENXIO, r.cpus = (uintptr_t)far);
	BAD_RUN("run: CPU list at null", EFAULT, r.cpus = 0);
	BAD_RUN("run: CPU list in the kernel", EFAULT, r.cpus = 0xffff888000000000ull);
	BAD_RUN("run: neither count nor time", EINVAL, r.count = 0);
	BAD_RUN("run: time beyond all measure", EINVAL, r.duration_ns = UINT64_MAX);
	BAD_RUN("run: rounds without interleaving", EINVAL, r.rounds = 2);
	BAD_RUN("run: interleaving without rounds", EINVAL, r.order = PCILAT_ORDER_INTERLEAVED);
	BAD_RUN("run: batch 0", EINVAL, r.batch = 0);
	BAD_RUN("run: batch too long", EINVAL, r.batch = 1u << 20);
	BAD_RUN("run: BAR 6", EINVAL, r.bar = 6);
	BAD_RUN("run: BAR 4294967295", EINVAL, r.bar = UINT32_MAX);
	BAD_RUN("run: width 0", EINVAL, r.width = 0);
	BAD_RUN("run: width 3", EINVAL, r.width = 3);
	BAD_RUN("run: width 16", EINVAL, r.width = 16);
	BAD_RUN("run: width 4294967295", EINVAL, r.width = UINT32_MAX);
	BAD_RUN("run: offset not aligned", EINVAL, r.offset = 2);
	BAD_RUN("run: offset at the BAR's end", ERANGE, r.offset = info.bars[bar].size);
	BAD_RUN("run: offset that wraps", ERANGE, r.offset = UINT64_MAX - 3);
	BAD_RUN("run: value with a read", EINVAL, r.value = 1);
	BAD_RUN("run: value wider than the width", EINVAL,
		r.kind = PCILAT_KIND_WRITE; r.value = 1ull << 32);
	BAD_RUN("run: vectors with a read", EINVAL, r.vectors = (uintptr_t)vectors);
	BAD_RUN("run: warm-up with a read", EINVAL, r.warmup = 1);
	BAD_RUN("run: trigger CPU with a read", EINVAL, r.trigger_cpu = -1);
	BAD_RUN("run: configuration reads with a BAR", EINVAL,
		r.kind = PCILAT_KIND_CONFIG; r.bar = 1);
	BAD_RUN("run: configuration reads of width 2", EINVAL,
		r.kind = PCILAT_KIND_CONFIG; r.bar = 0; r.width = 2);
	BAD_RUN("run: configuration reads at an offset", EINVAL,
		r.kind = PCILAT_KIND_CONFIG; r.bar = 0; r.offset = 0x100);
	BAD_RUN("run: count that overflows", EINVAL,
		r.kind = PCILAT_KIND_CONFIG; r.bar = 0;
		r.count = info.hops > 1 ? UINT64_MAX : 0);
	CALL("run: null", EFAULT, PCILAT_IOC_RUN, NULL);
	CALL("run: in the kernel", EFAULT, PCILAT_IOC_RUN, (void *)0xffff888000000000ul);
}

static void bad_irq_fields(void)
{
	__u32 twice[2] = { 0, 0 }, far[1] = { 0x7fffffff };

	BAD_IRQ("irq: all CPUs at once", EINVAL, r.order = PCILAT_ORDER_CONCURRENT);
	BAD_IRQ("irq: source 0", EINVAL, r.source = 0);
	BAD_IRQ("irq: source unknown", EINVAL, r.source = 4);
	BAD_IRQ("irq: no vectors", EINVAL, r.nvectors = 0);
	BAD_IRQ("irq: too many vectors", EINVAL, r.nvectors = UINT32_MAX);
	BAD_IRQ("irq: a vector that is not there", EOPNOTSUPP, r.vectors = (uintptr_t)far);
	BAD_IRQ("irq: a vector twice", EINVAL, r.vectors = (uintptr_t)twice;
		r.nvectors = info.vectors > 1 ? 2 : 0);
	BAD_IRQ("irq: vector list at null", EFAULT, r.vectors = 0);
	BAD_IRQ("irq: no time-out", EINVAL, r.timeout_ns = 0);
	BAD_IRQ("irq: endless time-out", EINVAL, r.timeout_ns = UINT64_MAX);
	BAD_IRQ("irq: endless interval", EINVAL, r.interval_ns = UINT64_MAX);
	BAD_IRQ("irq: interval and gap", EINVAL, r.interval_ns = 1000; r.gap_ns = 1);
	BAD_IRQ("irq: trigger CPU -2", EINVAL, r.trigger_cpu = -2);
	BAD_IRQ("irq: trigger CPU that is not there", ENXIO, r.trigger_cpu = INT32_MAX);
	BAD_IRQ("irq: a batch", EINVAL, r.batch = 1);
	BAD_IRQ("irq: a width", EINVAL, r.width = 4);
	BAD_IRQ("irq: an offset", EINVAL, r.offset = 4);
	BAD_IRQ("irq: all-ones allowed", EINVAL, r.flags = PCILAT_RUN_ONES_OK);
	BAD_IRQ("irq: endless warm-up", EINVAL, r.warmup = UINT32_MAX);
}

static void bad_queries(void)
{
	BAD_SIZE("info: size too small", EINVAL, pcilat_info, PCILAT_IOC_INFO, 8);
	BAD_SIZE("info: size beyond a page", E2BIG, pcilat_info, PCILAT_IOC_INFO, 1u << 30);
	CALL("info: null", EFAULT, PCILAT_IOC_INFO, NULL);
	BAD_SIZE("status: size 0", EINVAL, pcilat_status, PCILAT_IOC_STATUS, 0);
	CALL("status: null", EFAULT, PCILAT_IOC_STATUS, NULL);
	BAD("slot: number too large", EINVAL, pcilat_slot, PCILAT_IOC_SLOT, .slot = UINT32_MAX);
	BAD_SIZE("slot: size too small", EINVAL, pcilat_slot, PCILAT_IOC_SLOT, 8);
	BAD("hist: kind unknown", EINVAL, pcilat_hist, PCILAT_IOC_HIST, .what = 3, .count = 1,
	    .buckets = (uintptr_t)buckets);
	BAD("hist: nothing", EINVAL, pcilat_hist, PCILAT_IOC_HIST, .count = 0,
	    .buckets = (uintptr_t)buckets);
	BAD("hist: one too many", EINVAL, pcilat_hist, PCILAT_IOC_HIST, .first = 1,
	    .count = PCILAT_HIST_BUCKETS, .buckets = (uintptr_t)buckets);
	BAD("hist: range that wraps", EINVAL, pcilat_hist, PCILAT_IOC_HIST, .first = UINT32_MAX,
	    .count = 2, .buckets = (uintptr_t)buckets);
	BAD("hist: slot too large", EINVAL, pcilat_hist, PCILAT_IOC_HIST, .slot = UINT32_MAX,
	    .count = 1, .buckets = (uintptr_t)buckets);
	BAD("hist: reserved field set", EINVAL, pcilat_hist, PCILAT_IOC_HIST, .reserved0 = 1,
	    .count = 1, .buckets = (uintptr_t)buckets);
	BAD("hist: to null", EFAULT, pcilat_hist, PCILAT_IOC_HIST, .count = 1);
	BAD("hist: into the kernel", EFAULT, pcilat_hist, PCILAT_IOC_HIST, .count = 1,
	    .buckets = 0xffff888000000000ull);
	CALL("ioctl: unknown number", ENOTTY, _IO(0xb7, 99), NULL);
	CALL("ioctl: other driver's number", ENOTTY, _IO('T', 1), NULL);
	CALL("ioctl: wrong direction", ENOTTY, _IO(0xb7, 1), NULL);
}

static void bad_registers(void)
{
	BAD("reg: write 2", EINVAL, pcilat_reg, PCILAT_IOC_REG, .write = 2, .bar = bar, .width = 4);
	BAD("reg: value with a read", EINVAL, pcilat_reg, PCILAT_IOC_REG, .value = 1, .bar = bar,
	    .width = 4);
	BAD("reg: BAR 6", EINVAL, pcilat_reg, PCILAT_IOC_REG, .bar = 6, .width = 4);
	BAD("reg: width 0", EINVAL, pcilat_reg, PCILAT_IOC_REG, .bar = bar);
	BAD("reg: width 5", EINVAL, pcilat_reg, PCILAT_IOC_REG, .bar = bar, .width = 5);
	BAD("reg: not aligned", EINVAL, pcilat_reg, PCILAT_IOC_REG, .bar = bar, .width = 4,
	    .offset = 1);
	BAD("reg: outside the BAR", ERANGE, pcilat_reg, PCILAT_IOC_REG, .bar = bar, .width = 4,
	    .offset = info.bars[bar].size);
	BAD("reg: offset that wraps", ERANGE, pcilat_reg, PCILAT_IOC_REG, .bar = bar, .width = 4,
	    .offset = UINT64_MAX - 3);
	BAD("reg: value wider than the width", EINVAL, pcilat_reg, PCILAT_IOC_REG, .write = 1,
	    .bar = bar, .width = 1, .value = 0x100);
	BAD_SIZE("reg: size 0", EINVAL, pcilat_reg, PCILAT_IOC_REG, 0);
}

static int write_text(const char *attribute, const void *text, size_t length)
{
	char path[128];
	int node, ret;

	snprintf(path, sizeof(path), "/sys/class/pcilat/%s/%s", bdf, attribute);
	node = open(path, O_WRONLY);
	if (node < 0)
		return -1;
	ret = write(node, text, length);
	if (ret < 0) {
		int error = errno;

		close(node);
		errno = error;
		return -1;
	}
	close(node);
	return 0;
}

static void bad_text(void)
{
	static const struct {
		const char *attribute, *text;
		int want;
	} bad[] = {
		{ "pcilat_iomem", "\n", EINVAL },
		{ "pcilat_iomem", "walk", EINVAL },
		{ "pcilat_iomem", "run 6", EINVAL },
		{ "pcilat_iomem", "run -2", EINVAL },
		{ "pcilat_iomem", "run zero", EINVAL },
		{ "pcilat_iomem", "run -1 0", EINVAL },
		{ "pcilat_iomem", "run -1 -5", EINVAL },
		{ "pcilat_iomem", "run -1 10 99999999999", EINVAL },
		{ "pcilat_iomem", "run -1 10 0 4", EINVAL },
		{ "pcilat_iomem", "run -1 1e3", EINVAL },
		{ "pcilat_iomem", "clear all", EINVAL },
		{ "pcilat_iomem", "RUN", EINVAL },
		{ "pcilat_interrupt", "2", EINVAL },
		{ "pcilat_interrupt", "1 1", EINVAL },
		{ "pcilat_interrupt", "trigger 1", EINVAL },
		{ "pcilat_interrupt", "swtrigger x", EINVAL },
		{ "pcilat_interrupt", "swloop 0", EINVAL },
		{ "pcilat_interrupt", "swmatrix 10 xyz", EINVAL },
		{ "pcilat_interrupt", "swmatrix 1 1 1", EINVAL },
		{ "pcilat_interrupt", "iterations 0", EINVAL },
		{ "pcilat_interrupt", "iterations -1", EINVAL },
		{ "pcilat_interrupt", "iterations 4294967296", EINVAL },
		{ "pcilat_interrupt", "clear it", EINVAL },
		{ "pcilat_devreg", "0x", EINVAL },
		{ "pcilat_devreg", "0x0 1 2", EINVAL },
		{ "pcilat_devreg", "9:0x0", EINVAL },
		{ "pcilat_devreg", "0x0/3", EINVAL },
		{ "pcilat_devreg", "0x0/", EINVAL },
		{ "pcilat_devreg", ":0x0", EINVAL },
		{ "pcilat_devreg", "0x1", EINVAL },
		{ "pcilat_devreg", "0xfffffffffffffffc", ERANGE },
		{ "pcilat_devreg", "0x10000000000000000", EINVAL },
		{ "pcilat_devreg", "0x0 0x1ffffffff", EINVAL },
	};
	static const char zeros[64];
	char name[96], many[4000];
	size_t i;
	int ret;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(name, sizeof(name), "text: %s '%s'", bad[i].attribute,
			 bad[i].text[0] == '\n' ? "" : bad[i].text);
		ret = planning ? 0 : write_text(bad[i].attribute, bad[i].text, strlen(bad[i].text));
		expect(name, bad[i].want, ret, errno);
	}
	ret = planning ? 0 : write_text("pcilat_iomem", zeros, sizeof(zeros));
	expect("text: pcilat_iomem, 64 zero bytes", EINVAL, ret, errno);
	memset(many, 'r', sizeof(many));
	ret = planning ? 0 : write_text("pcilat_interrupt", many, sizeof(many));
	expect("text: pcilat_interrupt, 4000 times r", EINVAL, ret, errno);
}

static void bad_files(void)
{
	struct pcilat_record record;
	void *map;
	int ret;

	ret = planning ? 0 : read(fd, &record, sizeof(record) - 1);
	expect("read: less than a record", EINVAL, ret, errno);
	ret = planning ? 0 : write(fd, &record, sizeof(record));
	expect("write: not possible", EINVAL, ret, errno);
	map = planning ? NULL : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	expect("mmap: writable", EPERM, map == MAP_FAILED ? -1 : 0, errno);
	map = planning ? NULL : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096);
	expect("mmap: at an offset", EINVAL, map == MAP_FAILED ? -1 : 0, errno);
	map = planning ? NULL : mmap(NULL, 16ul * info.ring_records + 4096, PROT_READ, MAP_SHARED,
				     fd, 0);
	expect("mmap: longer than the ring", EINVAL, map == MAP_FAILED ? -1 : 0, errno);
	map = planning ? NULL : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ret = planning || map == MAP_FAILED ? 0 : mprotect(map, 4096, PROT_READ | PROT_WRITE);
	expect("mprotect: writable afterwards", EACCES, ret, errno);
}

/* xorshift64*: the same calls for the same seed. */
static __u64 random_state;

static __u64 random_number(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 0x2545f4914f6cdd1dull;
}

static __u64 odd_number(void)
{
	static const __u64 edges[] = { 0, 1, 2, 3, 4, 5, 7, 8, 0x7f, 0x80, 0xff, 0x100, 0xfff,
		0x1000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, INT64_MAX, UINT64_MAX };

	if (random_number() % 4)
		return edges[random_number() % (sizeof(edges) / sizeof(*edges))];
	return random_number();
}

static void random_run(void)
{
	struct pcilat_run r = random_number() % 2 ? good_run() : good_irq();
	__u32 *word = (__u32 *)&r;
	unsigned int changes = random_number() % 4, i;

	for (i = 0; i < changes; i++)
		word[1 + random_number() % (sizeof(r) / 4 - 1)] = odd_number();
	/* Registers are not written, and the CPUs' lists stay where they are. */
	if (r.kind == PCILAT_KIND_WRITE || r.kind == PCILAT_KIND_WRITE_READ)
		r.reserved[0] = 1;
	ioctl(fd, PCILAT_IOC_RUN, &r);
}

static void random_query(void)
{
	static const unsigned long numbers[] = {
		PCILAT_IOC_INFO, PCILAT_IOC_STATUS, PCILAT_IOC_SLOT,
	};
	static __u32 block[1024];
	unsigned long number = numbers[random_number() % 3];
	unsigned int i;

	for (i = 0; i < 32; i++)
		block[i] = odd_number();
	if (random_number() % 2)
		block[0] = _IOC_SIZE(number);
	ioctl(fd, number, block);
}

static void random_hist(void)
{
	struct pcilat_hist h = {
		.size = sizeof(h),
		.slot = odd_number() % 8,
		.what = odd_number() % 4,
		.first = odd_number(),
		.count = odd_number() % (PCILAT_HIST_BUCKETS + 1),
		.buckets = (uintptr_t)buckets,
	};

	ioctl(fd, PCILAT_IOC_HIST, &h);
}

static void random_register(void)
{
	struct pcilat_reg r = {
		.size = sizeof(r),
		.write = random_number() % 8 ? 0 : 2,
		.bar = random_number() % 8,
		.width = 1u << random_number() % 5,
		.offset = random_number() % 2 ? odd_number() : random_number() % 4096,
	};

	ioctl(fd, PCILAT_IOC_REG, &r);
}

static void random_text(void)
{
	static const char * const attributes[] = {
		"pcilat_iomem", "pcilat_interrupt", "pcilat_devreg",
	};
	static const char * const words[] = {
		"run", "clear", "1", "0", "trigger", "swtrigger", "swmatrix", "swloop",
		"iterations", "-1", "2", "0x3", "10", "0:0x0", "0x4/2", "4294967296", "\t", "x",
	};
	char text[128] = "";
	unsigned int i, n = random_number() % 4, attribute = random_number() % 3;

	/* Two numbers would be a write. */
	if (attribute == 2)
		n = random_number() % 2;
	for (i = 0; i <= n && (attribute != 2 || i < 1); i++) {
		strcat(text, words[random_number() % (sizeof(words) / sizeof(*words))]);
		strcat(text, " ");
	}
	write_text(attributes[attribute], text, strlen(text));
}

static void on_alarm(int signal)
{
	(void)signal;
}

/* As many rounds as there can be: a signal still ends them at once. */
static void many_rounds(void)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval soon = { { 0, 20000 }, { 0, 50000 } }, never = { 0 };
	struct pcilat_run r = good_run();
	struct timespec begin, end;
	int ret = 0, error = 0;

	r.order = PCILAT_ORDER_INTERLEAVED;
	r.rounds = 0xffffffff;
	r.count = 0xffffffff;
	if (!planning) {
		sigaction(SIGALRM, &action, NULL);
		clock_gettime(CLOCK_MONOTONIC, &begin);
		setitimer(ITIMER_REAL, &soon, NULL);
		ret = ioctl(fd, PCILAT_IOC_RUN, &r);
		error = errno;
		setitimer(ITIMER_REAL, &never, NULL);
		clock_gettime(CLOCK_MONOTONIC, &end);
		if (end.tv_sec - begin.tv_sec > 2)
			error = ETIME;
	}
	expect("run: 2^32 rounds, and a signal", EINTR, ret, error);
}

static void random_calls(__u64 seed, unsigned long calls)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval every = { { 0, 20000 }, { 0, 20000 } }, never = { 0 };
	unsigned long i;

	random_state = seed | 1;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (i = 0; i < calls; i++) {
		switch (random_number() % 6) {
		case 0:
		case 1:
			random_run();
			break;
		case 2:
			random_query();
			break;
		case 3:
			random_hist();
			break;
		case 4:
			random_register();
			break;
		default:
			random_text();
			break;
		}
	}
	setitimer(ITIMER_REAL, &never, NULL);
}

static void random_test(__u64 seed, unsigned long calls)
{
	struct pcilat_status status = { .size = sizeof(status) };
	struct pcilat_run r = good_run();
	char name[96];
	bool ok = true;

	if (!planning) {
		printf("# seed %llu, %lu random calls\n", (unsigned long long)seed, calls);
		fflush(stdout);
		random_calls(seed, calls);
		ok = !ioctl(fd, PCILAT_IOC_RUN, &r) && !ioctl(fd, PCILAT_IOC_STATUS, &status) &&
		     status.state == PCILAT_STATE_DONE && status.done == r.count;
	}
	snprintf(name, sizeof(name), "random: still measures after %lu calls", calls);
	report(ok, name, ok ? "" : strerror(errno));
}

static void all_tests(__u64 seed, unsigned long calls)
{
	struct pcilat_run r = good_run();
	bool ok;

	tests = 0;
	ok = planning || !ioctl(fd, PCILAT_IOC_RUN, &r);
	report(ok, "run: a good one", ok ? "" : strerror(errno));
	bad_run_fields();
	bad_irq_fields();
	bad_queries();
	bad_registers();
	bad_text();
	bad_files();
	many_rounds();
	random_test(seed, calls);
}

int main(int argc, char **argv)
{
	__u64 seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	unsigned long calls = argc > 3 ? strtoul(argv[3], NULL, 0) : 2000;
	char path[64];

	if (argc < 2) {
		fprintf(stderr, "usage: pcilat_abuse BDF [SEED [CALLS]]\n");
		return 2;
	}
	bdf = argv[1];
	snprintf(path, sizeof(path), "/dev/pcilat/%s", bdf);
	fd = open(path, O_RDWR);
	info.size = sizeof(info);
	if (fd < 0 || ioctl(fd, PCILAT_IOC_INFO, &info)) {
		fprintf(stderr, "pcilat_abuse: %s: %s\n", path, strerror(errno));
		return 2;
	}
	while (bar < 6 && !(info.bars[bar].flags & PCILAT_BAR_MEMORY))
		bar++;
	if (bar == 6) {
		fprintf(stderr, "pcilat_abuse: %s has no memory BAR\n", bdf);
		return 2;
	}
	printf("KTAP version 1\n");
	all_tests(seed, calls);
	printf("1..%u\n", tests);
	planning = false;
	all_tests(seed, calls);
	printf("# %u of %u failed\n", failed, tests);
	return failed != 0;
}
