// SPDX-License-Identifier: GPL-2.0-only
/*
 * irq_set_affinity() is exported to modules. An export cannot be seen by
 * compiling; irq_update_affinity_hint() came shortly after it.
 */
#include <linux/interrupt.h>

int probe(unsigned int irq);
int probe(unsigned int irq)
{
	return irq_update_affinity_hint(irq, NULL) ?: irq_set_affinity(irq, cpu_online_mask);
}
