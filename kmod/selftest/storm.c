// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes many calls on the modules' interfaces, guided by the code that they reach.
 *
 *   storm SECONDS SEED CORPUS [pcilat=BDF] [sis8300=NODE,BDF] [pmu=NAME]... [cpu=N]
 *
 * A sequence of calls is a string of bytes, from which each call takes its number
 * and its arguments; missing bytes are 0. A line of CORPUS is a sequence in
 * hexadecimal. Three processes execute the sequences of CORPUS, and then changed
 * ones. The first process also removes drivers, devices and CPU N and brings them
 * back. If the kernel has KCOV, a sequence that reaches a new edge between two places
 * of the modules is added to CORPUS. With SECONDS 0 one process executes CORPUS once,
 * and removes lines that reach nothing new.
 *
 * At the end it prints one line of JSON. If a call returns an errno that the
 * description of the interface does not have, or writes a byte where it must not, it
 * ends with a message and status 1. The caller checks the kernel's log.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/kcov.h>
#include <linux/pcilat.h>
#include <linux/perf_event.h>
#include <linux/sis8300.h>

#define PROCESSES	3
#define BYTES_MAX	192
#define POOL_MAX	8192
#define OPS_MAX		64
#define ERRNOS		134
#define KCOV_WORDS	65536
#define PCS_BITS	20
#define EDGES_BITS	22
#define ALARM_US	100000	/* how long a call may wait */
#define REST_S		0.3	/* between two that take something away */
#define BUFFER		65536
#define SKIPPED		(-2)

enum target { PCILAT, SIS8300, PMU, ADMIN, TARGETS };

struct bytes {
	unsigned int length;
	unsigned char data[BYTES_MAX];
};

/* What the processes share. */
static struct {
	unsigned int pool, replayed, kept;
	unsigned long long sequences;
	unsigned long long calls[OPS_MAX][ERRNOS], opens[TARGETS][ERRNOS];
	__u64 pcs[1 << (PCS_BITS - 6)], edges[1 << (EDGES_BITS - 6)];
	struct bytes sequences_of[POOL_MAX];
} *shared;

static const char *corpus, *pcilat, *sis8300, *sis8300_node, *pmus[16], *cpu;
static unsigned int npmus;
static char drw_device[64], port[32];
static __u64 state;
static unsigned long *kcov;
static bool is_admin, is_away, is_reset, is_replay;
static double last_away;

static struct bytes sequence;
static unsigned int at;
static int files[TARGETS][4];	/* each opened when first used */
static struct {
	unsigned char *from;
	size_t length;
} maps[4];
static __u32 cpus[] = { 0, 1, 2, 3, 1, 0 }, vectors[] = { 0, 1, 2, 3, 4, 15 };
static __u64 buckets[PCILAT_HIST_BUCKETS];
static unsigned char buffer[BUFFER + 4096];

static void fail(const char *format, ...)
{
	va_list args;
	unsigned int i;

	va_start(args, format);
	fprintf(stderr, "storm: ");
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nsequence, up to byte %u: ", at);
	for (i = 0; i < sequence.length; i++)
		fprintf(stderr, "%02x", sequence.data[i]);
	fprintf(stderr, "\n");
	exit(1);
}

static __u64 draw(__u64 below)
{
	__u64 z = state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % below;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static unsigned int next(void)
{
	return at < sequence.length ? sequence.data[at++] : 0;
}

static unsigned int next16(void)
{
	unsigned int high = next();

	return high << 8 | next();
}

/* No address that this program has: those are below or 64 bits wide. */
static __u32 odd_number(void)
{
	static const __u32 edges[] = {
		0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 0x7f, 0x80, 0xff, 0x100, 0xfff, 0x1000,
		0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe, 3600001, 1000001,
	};
	unsigned int kind = next();

	if (kind < 0xa0)
		return edges[kind % (sizeof(edges) / sizeof(*edges))];
	return kind < 0xe0 ? next() : next16() | 1u << 31;
}

static void add(unsigned long long *n)
{
	__atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
}

static bool write_text(const char *text, const char *format, ...)
{
	char path[256];
	bool is_written;
	va_list args;
	int fd;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	is_written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return is_written;
}

static bool is_there(const char *format, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), format, name);
	return !access(path, F_OK);
}

#include "storm_calls.h"

#define OPS	(sizeof(ops) / sizeof(*ops))

static bool set_bit(__u64 *bits, unsigned int n)
{
	__u64 bit = 1ull << n % 64;

	return !(__atomic_fetch_or(&bits[n / 64], bit, __ATOMIC_RELAXED) & bit);
}

/* True: the call reached an edge that none before it did. */
static bool harvest(void)
{
	unsigned long n = kcov ? __atomic_load_n(&kcov[0], __ATOMIC_RELAXED) : 0, i;
	__u64 last = 0, pc;
	bool is_new = false;

	for (i = 0; i < n; i++, last = pc) {
		pc = kcov[i + 1] * 0x9e3779b97f4a7c15;
		set_bit(shared->pcs, pc >> (64 - PCS_BITS));
		is_new |= set_bit(shared->edges, ((last >> 1) ^ pc) >> (64 - EDGES_BITS));
	}
	return is_new;
}

static bool is_allowed(const unsigned char *errnos, int error)
{
	return !errnos || strchr((const char *)errnos, error);
}

/* True: it reached something new. */
static bool carry_out(void)
{
	bool is_new = false;
	unsigned int i, k;

	for (at = 0; at < sequence.length;) {
		unsigned int n = next() % OPS;
		const struct op *op = &ops[n];
		long ret;

		if ((op->target == PCILAT && !pcilat) || (op->target == SIS8300 && !sis8300))
			continue;
		if (kcov)
			__atomic_store_n(&kcov[0], 0, __ATOMIC_RELAXED);
		ret = op->call(op);
		if (ret == SKIPPED)
			continue;
		if (ret < 0 && !is_allowed(op->errnos, errno))
			fail("%s: %s", op->name, strerrorname_np(errno));
		add(&shared->calls[n][ret < 0 ? errno % ERRNOS : 0]);
		is_new |= harvest();
	}
	if (kcov)
		__atomic_store_n(&kcov[0], 0, __ATOMIC_RELAXED);
	for (i = 0; i < 4; i++) {
		if (maps[i].from)
			munmap(maps[i].from, maps[i].length);
		maps[i].from = NULL;
		for (k = 0; k < TARGETS; k++) {
			if (files[k][i] >= 0)
				close(files[k][i]);
			files[k][i] = -1;
		}
	}
	if (is_away)
		must_bring_back();
	add(&shared->sequences);
	return harvest() || is_new;
}

static void put_line(int fd, const struct bytes *one)
{
	char line[2 * BYTES_MAX + 2];
	unsigned int i;

	for (i = 0; i < one->length; i++)
		snprintf(line + 2 * i, 3, "%02x", one->data[i]);
	line[2 * i] = '\n';
	if (write(fd, line, 2 * i + 1) != (ssize_t)(2 * i + 1))
		fail("cannot write to %s", corpus);
}

static void keep(int fd)
{
	unsigned int n = __atomic_fetch_add(&shared->pool, 1, __ATOMIC_RELAXED);

	if (n >= POOL_MAX)
		return;
	memcpy(shared->sequences_of[n].data, sequence.data, sequence.length);
	__atomic_store_n(&shared->sequences_of[n].length, sequence.length, __ATOMIC_RELEASE);
	__atomic_fetch_add(&shared->kept, 1, __ATOMIC_RELAXED);
	put_line(fd, &sequence);
}

static const struct bytes *draw_kept(void)
{
	unsigned int n = __atomic_load_n(&shared->pool, __ATOMIC_RELAXED);
	const struct bytes *one;

	n = n < POOL_MAX ? n : POOL_MAX;
	/* The last ones more often. */
	one = n ? &shared->sequences_of[draw(3) && n > 64 ? n - 1 - draw(64) : draw(n)] : NULL;
	return one && __atomic_load_n(&one->length, __ATOMIC_ACQUIRE) ? one : NULL;
}

/* Puts bytes in place of @gone bytes at @from. */
static void replace(unsigned int from, unsigned int gone, const unsigned char *data, unsigned int n)
{
	unsigned int rest = sequence.length - from - gone;

	n = from + n > BYTES_MAX ? BYTES_MAX - from : n;
	rest = from + n + rest > BYTES_MAX ? BYTES_MAX - from - n : rest;
	memmove(sequence.data + from + n, sequence.data + from + gone, rest);
	memcpy(sequence.data + from, data, n);
	sequence.length = from + n + rest;
}

static void change(void)
{
	unsigned int from = draw(sequence.length), n = 1 + draw(16), i;
	const struct bytes *other = draw_kept();
	unsigned char data[BYTES_MAX];

	n = from + n > sequence.length ? sequence.length - from : n;
	for (i = 0; i < sizeof(data); i++)
		data[i] = draw(256);
	switch (draw(7)) {
	case 0:
		sequence.data[from] += draw(2) ? 1 : -1;
		break;
	case 1:
		replace(from, 0, data, 1 + draw(8));
		break;
	case 2:
		if (n < sequence.length)
			replace(from, n, data, 0);
		break;
	case 3:
		memcpy(data, sequence.data + from, n);
		replace(draw(sequence.length), 0, data, n);
		break;
	case 4:
		if (other)
			replace(from, sequence.length - from, other->data, other->length);
		break;
	case 5:
		/* A call of another kind before what is there. */
		data[0] = draw(OPS);
		replace(from, 0, data, 1);
		break;
	default:
		sequence.data[from] = draw(256);
	}
}

static void draw_sequence(void)
{
	const struct bytes *one = draw(10) ? draw_kept() : NULL;
	unsigned int i;

	if (!one) {
		sequence.length = 8 + draw(56);
		for (i = 0; i < sequence.length; i++)
			sequence.data[i] = draw(256);
		return;
	}
	sequence.length = one->length;
	memcpy(sequence.data, one->data, sequence.length);
	for (i = 1 + draw(4); i; i--)
		change();
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void begin(unsigned int number)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval every = { { 0, ALARM_US }, { 0, ALARM_US } };
	int fd = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);

	memset(files, -1, sizeof(files));
	is_admin = !number;
	state += number << 20;
	sigaction(SIGALRM, &action, NULL);
	if (fd >= 0) {
		if (ioctl(fd, KCOV_INIT_TRACE, KCOV_WORDS))
			fail("KCOV_INIT_TRACE: %s", strerror(errno));
		kcov = mmap(NULL, KCOV_WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (kcov == MAP_FAILED || ioctl(fd, KCOV_ENABLE, KCOV_TRACE_PC))
			fail("KCOV_ENABLE: %s", strerror(errno));
	}
	setitimer(ITIMER_REAL, &every, NULL);
}

static void storm(unsigned int number, double until)
{
	unsigned int given = shared->pool, n;
	int fd = open(corpus, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		fail("%s: %s", corpus, strerror(errno));
	begin(number);
	while (now() < until) {
		n = __atomic_fetch_add(&shared->replayed, 1, __ATOMIC_RELAXED);
		if (n >= given)
			break;
		sequence = shared->sequences_of[n];
		carry_out();
	}
	while (now() < until) {
		draw_sequence();
		if (carry_out())
			keep(fd);
	}
	exit(0);
}

/* The shortest first: of two that reach the same, the shorter one stays. */
static int by_length(const void *a, const void *b)
{
	return (int)((const struct bytes *)a)->length - (int)((const struct bytes *)b)->length;
}

static void reduce(void)
{
	unsigned int given = shared->pool, n;
	int fd = open(corpus, O_WRONLY | O_TRUNC | O_CLOEXEC);

	if (fd < 0)
		fail("%s: %s", corpus, strerror(errno));
	qsort(shared->sequences_of, given, sizeof(struct bytes), by_length);
	begin(0);
	is_replay = true;
	for (n = 0; n < given; n++) {
		sequence = shared->sequences_of[n];
		if (!carry_out())
			continue;
		put_line(fd, &sequence);
		shared->kept++;
	}
	exit(0);
}

static void read_corpus(void)
{
	char line[2 * BYTES_MAX + 2], digits[3] = "";
	FILE *from = fopen(corpus, "re");

	while (from && shared->pool < POOL_MAX && fgets(line, sizeof(line), from)) {
		struct bytes *one = &shared->sequences_of[shared->pool];
		unsigned int i;

		for (i = 0; i < BYTES_MAX && line[2 * i] > ' ' && line[2 * i + 1] > ' '; i++) {
			memcpy(digits, line + 2 * i, 2);
			one->data[i] = strtoul(digits, NULL, 16);
		}
		one->length = i;
		shared->pool += !!i;
	}
	if (from)
		fclose(from);
}

static void take_argument(const char *word)
{
	unsigned int bdf;

	if (!strncmp(word, "pcilat=", 7)) {
		pcilat = word + 7;
	} else if (!strncmp(word, "sis8300=", 8)) {
		sis8300_node = strndup(word + 8, strcspn(word + 8, ","));
		sis8300 = word + 8 + strcspn(word + 8, ",");
		sis8300 += *sis8300 == ',';
	} else if (!strncmp(word, "cpu=", 4)) {
		cpu = word + 4;
	} else if (!strncmp(word, "pmu=", 4) && npmus < sizeof(pmus) / sizeof(*pmus)) {
		pmus[npmus++] = word + 4;
		/* The last root port that is named is the one that is taken away. */
		if (sscanf(word, "pmu=dwc_rootport_%x", &bdf) == 1)
			snprintf(port, sizeof(port), "%04x:%02x:%02x.%x", bdf >> 16,
				 bdf >> 8 & 0xff, bdf >> 3 & 0x1f, bdf & 7);
	} else {
		fail("what is %s?", word);
	}
}

/* One of those that drw_pmu has: it is taken away. */
static void find_drw_device(void)
{
	DIR *folder = opendir("/sys/bus/platform/drivers/drw_pmu");
	struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		if (!strncmp(entry->d_name, "ali_drw_pmu.", 12))
			snprintf(drw_device, sizeof(drw_device), "%.63s", entry->d_name);
	}
	if (folder)
		closedir(folder);
}

static unsigned int count(const __u64 *bits, unsigned int log)
{
	unsigned int sum = 0, i;

	for (i = 0; i < 1u << (log - 6); i++)
		sum += __builtin_popcountll(bits[i]);
	return sum;
}

/* How often a call gave what; true: it was made at all. */
static bool show_call(const char *before, const char *name, const unsigned long long *calls)
{
	const char *comma = "";
	unsigned int error;

	for (error = 0; error < ERRNOS; error++) {
		if (!calls[error])
			continue;
		if (!*comma)
			printf("%s\"%s\":{", before, name);
		printf("%s\"%s\":%llu", comma, error ? strerrorname_np(error) : "ok", calls[error]);
		comma = ",";
	}
	printf("%s", *comma ? "}" : "");
	return *comma;
}

static void show(double seconds)
{
	unsigned long long calls = 0;
	const char *comma = "";
	unsigned int n, error;

	for (n = 0; n < OPS; n++) {
		for (error = 0; error < ERRNOS; error++)
			calls += shared->calls[n][error];
	}
	printf("{\"seconds\":%.1f,\"sequences\":%llu,\"calls\":%llu,\"kept\":%u,", seconds,
	       shared->sequences, calls, shared->kept);
	printf("\"places\":%u,\"edges\":%u,\"by_call\":{", count(shared->pcs, PCS_BITS),
	       count(shared->edges, EDGES_BITS));
	for (n = 0; n < OPS; n++) {
		if (show_call(comma, ops[n].name, shared->calls[n]))
			comma = ",";
	}
	show_call(comma, "pcilat open", shared->opens[PCILAT]);
	show_call(comma, "sis8300 open", shared->opens[SIS8300]);
	printf("}}\n");
}

int main(int argc, char **argv)
{
	double seconds = argc > 3 ? strtod(argv[1], NULL) : -1, begin = now();
	unsigned int n, processes = seconds > 0 ? PROCESSES : 1;
	bool is_well = true;
	int i, status;

	if (seconds < 0) {
		fprintf(stderr, "storm SECONDS SEED CORPUS [pcilat=BDF] [sis8300=NODE,BDF] ");
		fprintf(stderr, "[pmu=NAME]... [cpu=N]\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED)
		fail("no memory");
	state = strtoull(argv[2], NULL, 0);
	corpus = argv[3];
	for (i = 4; i < argc; i++)
		take_argument(argv[i]);
	find_drw_device();
	read_corpus();
	for (n = 0; n < processes; n++) {
		if (fork())
			continue;
		if (seconds > 0)
			storm(n, begin + seconds);
		reduce();
	}
	while (wait(&status) > 0)
		is_well &= !status;
	must_bring_back();
	show(now() - begin);
	return !is_well;
}
