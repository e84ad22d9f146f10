/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The clock of all latencies, and its ordering: exactly the instructions between
 * pcilat_clock_begin() and pcilat_clock_end() are executed between the two readings.
 *
 * x86: RDTSC may execute before earlier and after later instructions. LFENCE waits
 * for all earlier loads and delays later instructions. CPUID, the other fence, traps
 * in every virtual machine.
 * arm64: the DSB waits for earlier loads. The first ISB delays the reading of the
 * counter until then, and the second one delays later instructions. It is always the
 * virtual counter, which user space reads too. If the kernel runs at EL2, its offset
 * reads as zero (HCR_EL2.E2H). arch_timer_read_counter() may read the physical or the
 * self-synchronised counter instead, and does not say which.
 */
#ifndef PCILAT_CLOCK_H
#define PCILAT_CLOCK_H

#include <linux/bits.h>
#include <linux/math64.h>
#include <linux/time64.h>
#include <linux/types.h>
#include <linux/pcilat.h>

/* Longest time that user space may ask for, so that conversions cannot overflow. */
#define PCILAT_NS_MAX		BIT_ULL(53)

#if defined(CONFIG_X86_64)

#include <asm/tsc.h>

#define PCILAT_CLOCK		PCILAT_CLOCK_TSC

static inline u64 pcilat_clock_hz(void)
{
	return tsc_khz * 1000ULL;
}

static __always_inline u64 pcilat_clock_begin(void)
{
	u32 low, high;

	asm volatile("lfence\n\trdtsc\n\tlfence" : "=a" (low), "=d" (high) : : "memory");
	return (u64)high << 32 | low;
}

static __always_inline u64 pcilat_clock_end(void)
{
	u32 low, high;

	asm volatile("rdtscp\n\tlfence" : "=a" (low), "=d" (high) : : "ecx", "memory");
	return (u64)high << 32 | low;
}

/* Not ordered: for limits, not for figures. */
static __always_inline u64 pcilat_clock(void)
{
	u32 low, high;

	asm volatile("rdtsc" : "=a" (low), "=d" (high));
	return (u64)high << 32 | low;
}

#elif defined(CONFIG_ARM64)

#include <asm/arch_timer.h>
#include <asm/sysreg.h>

#define PCILAT_CLOCK		PCILAT_CLOCK_CNTVCT

static inline u64 pcilat_clock_hz(void)
{
	return arch_timer_get_cntfrq();
}

static __always_inline u64 pcilat_clock_begin(void)
{
	u64 ticks;

	asm volatile("dsb ld\n\tisb\n\tmrs %0, cntvct_el0\n\tisb" : "=r" (ticks) : : "memory");
	return ticks;
}

static __always_inline u64 pcilat_clock_end(void)
{
	return pcilat_clock_begin();
}

/* Not ordered: for limits, not for figures. */
static __always_inline u64 pcilat_clock(void)
{
	return read_sysreg(cntvct_el0);
}

#else
#error "pcilat has stamps for x86-64 and arm64 only: add those of this architecture to clock.h"
#endif

static inline u64 pcilat_ns_to_ticks(u64 ns)
{
	return mul_u64_u64_div_u64(ns, pcilat_clock_hz(), NSEC_PER_SEC);
}

static inline u64 pcilat_ticks_to_ns(u64 ticks)
{
	return mul_u64_u64_div_u64(ticks, NSEC_PER_SEC, pcilat_clock_hz());
}

#endif /* PCILAT_CLOCK_H */
