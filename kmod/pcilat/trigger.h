/* SPDX-License-Identifier: GPL-2.0-only */
/* How a device is made to send an interrupt: one entry for each family. */
#ifndef PCILAT_TRIGGER_H
#define PCILAT_TRIGGER_H

#include <linux/types.h>

struct pcilat_device;
struct pcilat_vector;

struct pcilat_trigger {
	const char *name;
	u16 vendor;
	const u16 *devices;		/* a 0 ends them */
	u32 regs_size;			/* of BAR 0, from its start, that are mapped */
	u32 vectors;			/* that it can raise, if so many were granted */
	bool has_line;			/* can use INTx: it has a register of causes */
	/* Quiet, and ready to be enabled; called once the interrupt type is known. */
	void (*setup)(struct pcilat_device *pl);
	/* Lets the device send, or not; not sending is the state after setup(). */
	void (*enable)(struct pcilat_device *pl, bool on);
	/* Names the registers by which a vector is raised and acknowledged. */
	void (*prepare)(struct pcilat_device *pl, struct pcilat_vector *v);
};

const struct pcilat_trigger *pcilat_trigger_find(u16 vendor, u16 device);

#endif /* PCILAT_TRIGGER_H */
