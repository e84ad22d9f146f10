/* SPDX-License-Identifier: GPL-2.0-only */
/* How a device is made to send an interrupt: one entry for each family. */
#ifndef PCILAT_TRIGGER_H
#define PCILAT_TRIGGER_H

#include <linux/io.h>
#include <linux/types.h>

struct pcilat_device;

struct pcilat_trigger {
	const char *name;
	u64 regs_size;			/* of BAR 0, from its start, that are mapped */
	unsigned int vectors;		/* that it can raise, where it was granted so many */
	bool has_line;			/* can use INTx: acknowledge() knows whose it was */
	/* Quiet, and ready to be enabled; called once the interrupt type is known. */
	void (*setup)(struct pcilat_device *pl);
	/* Lets the device send, or not; not sending is the state after setup(). */
	void (*enable)(struct pcilat_device *pl, bool on);
	/* Makes the device send one interrupt. */
	void (*raise)(struct pcilat_device *pl, u32 vector);
	/* From the handler: acknowledges; false if the interrupt (INTx) was not the device's. */
	bool (*acknowledge)(struct pcilat_device *pl, u32 vector);
};

const struct pcilat_trigger *pcilat_trigger_find(u16 vendor, u16 device);

#endif /* PCILAT_TRIGGER_H */
