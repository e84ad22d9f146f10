// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What `pciescope convert` is compared with: the compiler's own loops, and VOLK's kernel in each form that this CPU can run.
 *
 *	peers KERNEL SAMPLES MILLISECONDS
 *
 * prints a line "peer median best" for each that has this kernel: nanoseconds of a pass. Input, memory and rounds are those of
 * `pciescope convert`: the same pseudo-random samples, pages touched and asked to be huge, passes that take turns, enough of them
 * between two stamps that the clock does not count.
 *
 * Scaling to float is done in float, which rounds twice; pciescope rounds the exact value once. So that loop is there in double as well:
 * it is off by at most the last bit, and that rarely.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifdef WITH_VOLK
#include <volk/volk.h>
#endif

#define MOST_PEERS 32
#define MOST_TURNS 4000
#define FEWEST_TURNS 15
#define BATCH_NS 50e3
#define DEGREES 57.29577951308232

typedef void convert(const uint16_t *restrict in, void *restrict out, size_t values);

/* Each loop is a function of its own, so that the compiler sees nothing but it. */
#define LOOP(name, sample, output, step, expression)                                                                           \
	__attribute__((noinline, noclone)) static void name(const uint16_t *restrict words, void *restrict to, size_t values) \
	{                                                                                                                      \
		const sample *restrict in = (const sample *)words;                                                             \
		output *restrict out = to;                                                                                     \
                                                                                                                               \
		for (size_t i = 0; i < values; i++) {                                                                          \
			sample x = in[step * i];                                                                               \
			out[i] = expression;                                                                                   \
		}                                                                                                              \
	}

LOOP(u16_cast_f32, uint16_t, float, 1, x)
LOOP(u16_cast_f64, uint16_t, double, 1, x)
LOOP(i16_cast_f32, int16_t, float, 1, x)
LOOP(i16_cast_f64, int16_t, double, 1, x)
LOOP(u16_scale_f32, uint16_t, float, 1, x * 0.1f - 5.0f)
LOOP(u16_scale_f64, uint16_t, double, 1, x * 0.1 - 5.0)
LOOP(i16_scale_f32, int16_t, float, 1, x * 0.1f - 5.0f)
LOOP(i16_scale_f64, int16_t, double, 1, x * 0.1 - 5.0)
LOOP(u16_scale_double, uint16_t, float, 1, x * 0.1 - 5.0)
LOOP(i16_scale_double, int16_t, float, 1, x * 0.1 - 5.0)
LOOP(u16_unsigned_f32, uint16_t, float, 1, x * (1.0f / 32768))
LOOP(u16_unsigned_f64, uint16_t, double, 1, x * (1.0 / 32768))
LOOP(i16_signed_f32, int16_t, float, 1, x * (1.0f / 32768))
LOOP(i16_signed_f64, int16_t, double, 1, x * (1.0 / 32768))
LOOP(i16_degrees_f32, int16_t, float, 1, x * (float)(DEGREES / 8192))
LOOP(i16_degrees_f64, int16_t, double, 1, x * (DEGREES / 8192))
LOOP(u16_cast_f32_d10, uint16_t, float, 10, x)
LOOP(u16_cast_f64_d10, uint16_t, double, 10, x)
LOOP(i16_cast_f32_d10, int16_t, float, 10, x)
LOOP(i16_cast_f64_d10, int16_t, double, 10, x)
LOOP(u16_scale_f32_d10, uint16_t, float, 10, x * 0.1f - 5.0f)
LOOP(u16_scale_f64_d10, uint16_t, double, 10, x * 0.1 - 5.0)
LOOP(i16_scale_f32_d10, int16_t, float, 10, x * 0.1f - 5.0f)
LOOP(i16_scale_f64_d10, int16_t, double, 10, x * 0.1 - 5.0)

static const struct kernel {
	const char *name;
	convert *loop;
	size_t step, size;
	double volk_divisor; /* 0: VOLK has no such kernel */
	convert *in_double; /* NULL: no other than the loop */
} kernels[] = {
	{ "u16-cast-f32", u16_cast_f32, 1, 4, 0, NULL },
	{ "u16-cast-f64", u16_cast_f64, 1, 8, 0, NULL },
	{ "i16-cast-f32", i16_cast_f32, 1, 4, 1, NULL },
	{ "i16-cast-f64", i16_cast_f64, 1, 8, 0, NULL },
	{ "u16-scale-f32", u16_scale_f32, 1, 4, 0, u16_scale_double },
	{ "u16-scale-f64", u16_scale_f64, 1, 8, 0, NULL },
	{ "i16-scale-f32", i16_scale_f32, 1, 4, 0, i16_scale_double },
	{ "i16-scale-f64", i16_scale_f64, 1, 8, 0, NULL },
	{ "u16-unsigned-f32", u16_unsigned_f32, 1, 4, 0, NULL },
	{ "u16-unsigned-f64", u16_unsigned_f64, 1, 8, 0, NULL },
	{ "i16-signed-f32", i16_signed_f32, 1, 4, 32768, NULL },
	{ "i16-signed-f64", i16_signed_f64, 1, 8, 0, NULL },
	{ "i16-degrees-f32", i16_degrees_f32, 1, 4, 8192 / DEGREES, NULL },
	{ "i16-degrees-f64", i16_degrees_f64, 1, 8, 0, NULL },
	{ "u16-cast-f32-d10", u16_cast_f32_d10, 10, 4, 0, NULL },
	{ "u16-cast-f64-d10", u16_cast_f64_d10, 10, 8, 0, NULL },
	{ "i16-cast-f32-d10", i16_cast_f32_d10, 10, 4, 0, NULL },
	{ "i16-cast-f64-d10", i16_cast_f64_d10, 10, 8, 0, NULL },
	{ "u16-scale-f32-d10", u16_scale_f32_d10, 10, 4, 0, NULL },
	{ "u16-scale-f64-d10", u16_scale_f64_d10, 10, 8, 0, NULL },
	{ "i16-scale-f32-d10", i16_scale_f32_d10, 10, 4, 0, NULL },
	{ "i16-scale-f64-d10", i16_scale_f64_d10, 10, 8, 0, NULL },
};

struct peer {
	char name[64];
	convert *loop;
	const char *volk; /* where it is no loop */
	size_t batch;
	double ns[MOST_TURNS];
};

static struct peer peers[MOST_PEERS];
static size_t peer_count;
static const struct kernel *kernel;
static uint16_t *in;
static void *out;
static size_t values;

static void die(const char *why)
{
	fprintf(stderr, "peers: %s\n", why);
	exit(2);
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static void *memory(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		die("no memory");
	madvise(at, bytes, MADV_HUGEPAGE);
	memset(at, 1, bytes);
	return at;
}

static void add(const char *name, convert *loop, const char *volk)
{
	if (peer_count == MOST_PEERS)
		die("more peers than there is room for");
	snprintf(peers[peer_count].name, sizeof(peers[peer_count].name), "%s", name);
	peers[peer_count].loop = loop;
	peers[peer_count++].volk = volk;
}

static void add_volk(void)
{
#ifdef WITH_VOLK
	volk_func_desc_t known = volk_16i_s32f_convert_32f_get_func_desc();
	char name[64];

	for (size_t i = 0; i < known.n_impls; i++) {
		snprintf(name, sizeof(name), "volk:%s", known.impl_names[i]);
		add(name, NULL, known.impl_names[i]);
	}
#endif
}

static void pass(const struct peer *peer, size_t times)
{
	while (times--) {
		if (peer->loop) {
			peer->loop(in, out, values);
			continue;
		}
#ifdef WITH_VOLK
		volk_16i_s32f_convert_32f_manual(out, (const int16_t *)in, kernel->volk_divisor, values, peer->volk);
#endif
	}
}

static double timed(const struct peer *peer, size_t times)
{
	double begun = now_ns();

	pass(peer, times);
	return now_ns() - begun;
}

/* VOLK's kernel has to compute what the loop stands for, or it is no peer. */
static void check(const struct peer *peer)
{
	for (size_t i = 0; i < values && peer->volk; i++) {
		double right = (int16_t)in[i] / kernel->volk_divisor, off = ((float *)out)[i] - right;

		if (off * off > 1e-12 * right * right) {
			fprintf(stderr, "peers: %s: %s is wrong at %zu\n", peer->name, kernel->name, i);
			exit(2);
		}
	}
}

/* Forms that are far from the best one would only take time: they are left out, by the best of a few passes of each. */
static void drop_slow_forms(void)
{
	double best_ns[MOST_PEERS], least = 0;
	size_t kept = 0;

	for (size_t i = 0; i < peer_count; i++) {
		best_ns[i] = 0;
		for (int turn = 0; turn < 5 && peers[i].volk; turn++) {
			double ns = timed(&peers[i], peers[i].batch) / peers[i].batch;

			if (!turn || ns < best_ns[i])
				best_ns[i] = ns;
		}
		if (peers[i].volk && (!least || best_ns[i] < least))
			least = best_ns[i];
	}
	for (size_t i = 0; i < peer_count; i++)
		if (best_ns[i] <= 1.5 * least)
			peers[kept++] = peers[i];
	peer_count = kept;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	uint64_t state = 0x9e3779b97f4a7c15;
	double begun, most_ns;
	size_t samples, turns;

	if (argc != 4)
		die("KERNEL SAMPLES MILLISECONDS");
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (!strcmp(kernels[i].name, argv[1]))
			kernel = &kernels[i];
	if (!kernel)
		die("no such kernel");
	samples = strtoull(argv[2], NULL, 10);
	most_ns = strtod(argv[3], NULL) * 1e6;
	values = samples / kernel->step;
	in = memory(2 * samples);
	out = memory(kernel->size * values);
	for (size_t i = 0; i < samples; i++) {
		if (i % 4 == 0) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
		}
		in[i] = state >> (16 * (i % 4));
	}
	add("gcc", kernel->loop, NULL);
	if (kernel->in_double)
		add("double", kernel->in_double, NULL);
	if (kernel->volk_divisor)
		add_volk();
	/* The first passes warm up and show how many passes it takes that the clock does not count. */
	for (struct peer *peer = peers; peer < peers + peer_count; peer++) {
		for (peer->batch = 1; timed(peer, peer->batch) < BATCH_NS; peer->batch *= 2)
			;
		check(peer);
	}
	drop_slow_forms();
	begun = now_ns();
	for (turns = 0; turns < MOST_TURNS; turns++) {
		if (turns >= FEWEST_TURNS && now_ns() - begun >= most_ns * peer_count)
			break;
		for (struct peer *peer = peers; peer < peers + peer_count; peer++)
			peer->ns[turns] = timed(peer, peer->batch) / peer->batch;
	}
	for (struct peer *peer = peers; peer < peers + peer_count; peer++) {
		qsort(peer->ns, turns, sizeof(double), ascending);
		printf("%s %.3f %.3f\n", peer->name, peer->ns[turns / 2], peer->ns[0]);
	}
	return 0;
}
