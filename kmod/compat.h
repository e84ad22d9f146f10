/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everything that differs between kernels. The PCILAT_HAS_* come from the
 * compile probes in probe/, which Kbuild runs.
 */
#ifndef PCILAT_COMPAT_H
#define PCILAT_COMPAT_H

#include <linux/interrupt.h>
#include <linux/mm.h>
#include <linux/pci.h>

/* The flag's newer name. */
#ifndef PCI_IRQ_INTX
#define PCI_IRQ_INTX PCI_IRQ_LEGACY
#endif

/* The device was given to @drv by name, and not through new_id. */
static inline bool compat_is_overridden(struct pci_dev *pdev, const struct device_driver *drv)
{
#ifdef PCILAT_HAS_DEVICE_DRIVER_OVERRIDE
	return device_match_driver_override(&pdev->dev, drv) > 0;
#else
	bool same;

	device_lock_assert(&pdev->dev);
	same = pdev->driver_override && !strcmp(pdev->driver_override, drv->name);
	return same;
#endif
}

static inline int compat_irq_set_affinity(unsigned int irq, const struct cpumask *mask)
{
#ifdef PCILAT_HAS_IRQ_SET_AFFINITY
	return irq_set_affinity(irq, mask);
#else
	int ret = irq_set_affinity_hint(irq, mask);

	/* The hint keeps the pointer: take it back. */
	irq_set_affinity_hint(irq, NULL);
	return ret;
#endif
}

/* The mapping can never be made writable. */
static inline void compat_vm_never_writable(struct vm_area_struct *vma)
{
#ifdef PCILAT_HAS_VM_FLAGS_CLEAR
	vm_flags_clear(vma, VM_MAYWRITE);
#else
	vma->vm_flags &= ~VM_MAYWRITE;
#endif
}

#endif /* PCILAT_COMPAT_H */
