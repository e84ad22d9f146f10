// SPDX-License-Identifier: GPL-2.0-only
/* The override's name stands in struct device (with a lock), not in struct pci_dev. */
#include <linux/pci.h>

int probe(struct pci_dev *pdev, const struct device_driver *drv);
int probe(struct pci_dev *pdev, const struct device_driver *drv)
{
	return device_match_driver_override(&pdev->dev, drv);
}
