// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keeps the guest's shared folders awake while the system sleeps.
 *
 * The guest's root folder and the commands' output are 9p over virtio. Linux has no
 * suspend for that transport: virtio resets the device, nothing sets its queue up again,
 * and after the resume every access to a folder waits for ever. So this module excludes
 * the functions of the folders from the sleep. All others sleep as on any machine.
 */
#include <linux/device.h>
#include <linux/module.h>
#include <linux/pci.h>

#define AWAKE_VENDOR	0x1af4	/* virtio */

static const struct pci_device_id awake_ids[] = {
	{ PCI_DEVICE(AWAKE_VENDOR, 0x1009) },	/* 9p, transitional */
	{ PCI_DEVICE(AWAKE_VENDOR, 0x1049) },	/* 9p */
	{ }
};

static void awake_set(bool is_kept)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev) {
		if (pci_match_id(awake_ids, pdev))
			dev_pm_syscore_device(&pdev->dev, is_kept);
	}
}

static int __init awake_init(void)
{
	awake_set(true);
	return 0;
}
module_init(awake_init);

static void __exit awake_exit(void)
{
	awake_set(false);
}
module_exit(awake_exit);

MODULE_DESCRIPTION("pciescope lab: the shared folders stay awake while the guest sleeps");
MODULE_LICENSE("GPL");
