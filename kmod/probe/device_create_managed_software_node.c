// SPDX-License-Identifier: GPL-2.0-only
/* A device's properties go with it. */
#include <linux/property.h>

int probe(struct device *dev, const struct property_entry *properties);
int probe(struct device *dev, const struct property_entry *properties)
{
	return device_create_managed_software_node(dev, properties, NULL);
}
