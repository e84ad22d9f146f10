/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions that Linux before 5.17 does not have.
 */
#ifndef PCIESCOPE_OLDER_H
#define PCIESCOPE_OLDER_H

#include <linux/interrupt.h>
#include <linux/pm.h>

#ifndef pm_sleep_ptr
#define pm_sleep_ptr(ops)	(IS_ENABLED(CONFIG_PM_SLEEP) ? (ops) : NULL)
#define NOIRQ_SYSTEM_SLEEP_PM_OPS	SET_NOIRQ_SYSTEM_SLEEP_PM_OPS
#define DEFINE_SIMPLE_DEV_PM_OPS(name, suspend, resume) \
	const struct dev_pm_ops name = { SET_SYSTEM_SLEEP_PM_OPS(suspend, resume) }
#endif

/* Before 5.14, modules can move an interrupt only by a hint, and no error comes back. */
static inline int older_irq_set_affinity(unsigned int irq, const struct cpumask *cpus)
{
#ifdef COMPAT_HAS_irq_set_affinity_and_hint
	return irq_set_affinity(irq, cpus);
#else
	return irq_set_affinity_hint(irq, cpus) ?: irq_set_affinity_hint(irq, NULL);
#endif
}

#endif /* PCIESCOPE_OLDER_H */
