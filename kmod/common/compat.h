/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everything that differs between kernels, and what pcilat and sis8300 share: the ioctls'
 * structures that carry their size. The COMPAT_HAS_* come from the compile probes in
 * probe/, which Kbuild runs.
 */
#ifndef PCIESCOPE_COMPAT_H
#define PCIESCOPE_COMPAT_H

#include <linux/interrupt.h>
#include <linux/ioctl.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/pm.h>
#include <linux/uaccess.h>

/* The ioctl of a table with the number of @cmd, whose size is not checked; 0 if there is none. */
static inline unsigned int sized_ioctl_find(const unsigned int *table, size_t entries,
					    unsigned int cmd)
{
	size_t i;

	for (i = 0; i < entries; i++) {
		if (!((cmd ^ table[i]) & ~IOCSIZE_MASK))
			return table[i];
	}
	return 0;
}

/* Copies a structure whose first field is its size, as the caller knows it. */
static inline int sized_copy_from_user(void *to, size_t size, const void __user *from)
{
	u32 theirs;
	int ret;

	if (get_user(theirs, (const u32 __user *)from))
		return -EFAULT;
	if (theirs < size)
		return -EINVAL;
	if (theirs > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(to, size, from, theirs);
	if (!ret)
		*(u32 *)to = size;
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
