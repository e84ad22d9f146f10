// SPDX-License-Identifier: GPL-2.0-only
/* A kernel that is new enough to let modules move an interrupt without a hint. */
#include <linux/interrupt.h>

int probe(const struct cpumask *cpus);
int probe(const struct cpumask *cpus)
{
	return irq_set_affinity_and_hint(1, cpus);
}
