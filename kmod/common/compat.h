/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everything that differs between kernels, and what pcilat and sis8300 share: the ioctls
 * whose structures carry their size. The COMPAT_HAS_* come from the compile probes in
 * probe/, which Kbuild runs.
 */
#ifndef PCIESCOPE_COMPAT_H
#define PCIESCOPE_COMPAT_H

#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/ioctl.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/pm.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

/* Before 6.5: guard() of <linux/cleanup.h>, for the locks that are used here. */
#ifndef COMPAT_HAS_guard
#define COMPAT_GUARD(name, type, acquire, release)			\
struct compat_guard_##name {						\
	type *held;							\
	unsigned long flags;						\
};									\
static inline struct compat_guard_##name compat_acquire_##name(type *lock) \
{									\
	struct compat_guard_##name it = { .held = lock };		\
	acquire;							\
	return it;							\
}									\
static inline void compat_release_##name(struct compat_guard_##name *it)	\
{									\
	release;							\
}

COMPAT_GUARD(mutex, struct mutex, mutex_lock(lock), mutex_unlock(it->held))
COMPAT_GUARD(rwsem_read, struct rw_semaphore, down_read(lock), up_read(it->held))
COMPAT_GUARD(rwsem_write, struct rw_semaphore, down_write(lock), up_write(it->held))
COMPAT_GUARD(spinlock, spinlock_t, spin_lock(lock), spin_unlock(it->held))
COMPAT_GUARD(spinlock_irq, spinlock_t, spin_lock_irq(lock), spin_unlock_irq(it->held))
COMPAT_GUARD(spinlock_irqsave, spinlock_t, spin_lock_irqsave(lock, it.flags),
	     spin_unlock_irqrestore(it->held, it->flags))
COMPAT_GUARD(raw_spinlock, raw_spinlock_t, raw_spin_lock(lock), raw_spin_unlock(it->held))
COMPAT_GUARD(raw_spinlock_irqsave, raw_spinlock_t, raw_spin_lock_irqsave(lock, it.flags),
	     raw_spin_unlock_irqrestore(it->held, it->flags))

#undef guard
#define guard(name) \
	struct compat_guard_##name __UNIQUE_ID(guard) __maybe_unused \
		__attribute__((__cleanup__(compat_release_##name))) = compat_acquire_##name
#endif

/**
 * struct sized_ioctl - an ioctl whose structure begins with its size, as the caller knows it
 * @cmd: its number; the size in the caller's number is not checked
 * @run: carries it out. SIZED_IOCTL() makes it from a function of the two types
 * @is_input: nothing is copied back
 */
struct sized_ioctl {
	unsigned int cmd;
	int (*run)(void *owner, void *arg);
	bool is_input;
};

#define SIZED_IOCTL(run) \
	static int run##_sized(void *owner, void *arg) { return run(owner, arg); }
#define SIZED_IOCTL_MAX	384	/* bytes of the largest structure */

static inline int sized_ioctl(const struct sized_ioctl *table, size_t entries, unsigned int cmd,
			      void *owner, void __user *user)
{
	u64 arg[SIZED_IOCTL_MAX / sizeof(u64)];
	size_t i, size;
	u32 theirs;
	int ret;

	for (i = 0; i < entries && (cmd ^ table[i].cmd) & ~IOCSIZE_MASK; i++)
		;
	if (i == entries)
		return -ENOTTY;
	size = _IOC_SIZE(table[i].cmd);
	if (get_user(theirs, (const u32 __user *)user))
		return -EFAULT;
	if (theirs < size || WARN_ON_ONCE(size > sizeof(arg)))
		return -EINVAL;
	if (theirs > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(arg, size, user, theirs);
	if (ret)
		return ret;
	*(u32 *)arg = size;
	ret = table[i].run(owner, arg);
	if (!ret && !table[i].is_input && copy_to_user(user, arg, size))
		ret = -EFAULT;
	return ret;
}

/* Before 5.17. */
#ifndef pm_sleep_ptr
#define pm_sleep_ptr(ops)	(IS_ENABLED(CONFIG_PM_SLEEP) ? (ops) : NULL)
#define NOIRQ_SYSTEM_SLEEP_PM_OPS	SET_NOIRQ_SYSTEM_SLEEP_PM_OPS
#define DEFINE_SIMPLE_DEV_PM_OPS(name, suspend, resume) \
	const struct dev_pm_ops name = { SET_SYSTEM_SLEEP_PM_OPS(suspend, resume) }
#endif

/* Before 5.14, modules can move an interrupt only by a hint, and no error comes back. */
static inline int compat_irq_set_affinity(unsigned int irq, const struct cpumask *cpus)
{
#ifdef COMPAT_HAS_irq_set_affinity_and_hint
	return irq_set_affinity(irq, cpus);
#else
	return irq_set_affinity_hint(irq, cpus) ?: irq_set_affinity_hint(irq, NULL);
#endif
}

/* The flag's newer name. */
#ifndef PCI_IRQ_INTX
#define PCI_IRQ_INTX PCI_IRQ_LEGACY
#endif

/* The device was given to @drv by name, and not through new_id. */
static inline bool compat_is_overridden(struct pci_dev *pdev, const struct device_driver *drv)
{
#ifdef COMPAT_HAS_device_driver_override
	bool match = device_match_driver_override(&pdev->dev, drv) > 0;

	/* For sparse, which does not see that the guard in there ends; nothing to compilers. */
	__release(&pdev->dev.driver_override.lock);
	return match;
#else
	device_lock_assert(&pdev->dev);
	return pdev->driver_override && !strcmp(pdev->driver_override, drv->name);
#endif
}

/* mprotect() can never give the mapping what @flags allow, such as VM_MAYWRITE. */
static inline void compat_vm_forbid(struct vm_area_struct *vma, unsigned long flags)
{
#ifdef COMPAT_HAS_vm_flags_clear
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

/*
 * For pages that user space maps. Before 5.11 a page that is charged to a memory cgroup
 * has a page type, and vm_insert_page() refuses it.
 */
#ifdef PG_kmemcg
#define COMPAT_GFP_MAPPED	GFP_KERNEL
#else
#define COMPAT_GFP_MAPPED	GFP_KERNEL_ACCOUNT
#endif

#endif /* PCIESCOPE_COMPAT_H */
