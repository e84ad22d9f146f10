// SPDX-License-Identifier: GPL-2.0-only
/* Locks that are held to the end of a scope. */
#include <linux/cleanup.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>

void probe(struct mutex *a, struct rw_semaphore *b, spinlock_t *c, raw_spinlock_t *d);
void probe(struct mutex *a, struct rw_semaphore *b, spinlock_t *c, raw_spinlock_t *d)
{
	guard(mutex)(a);
	guard(rwsem_read)(b);
	guard(rwsem_write)(b);
	guard(spinlock)(c);
	guard(spinlock_irq)(c);
	guard(spinlock_irqsave)(c);
	guard(raw_spinlock)(d);
	guard(raw_spinlock_irqsave)(d);
}
