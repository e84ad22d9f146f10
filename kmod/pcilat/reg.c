// SPDX-License-Identifier: GPL-2.0-only
/* Single register accesses, each of them logged, refused ones too. */
#include <linux/io.h>
#include <linux/ktime.h>

#include "internal.h"

/* The BAR that is meant where a text command names none; -1 if the device has no memory BAR. */
int pcilat_first_bar(const struct pcilat_device *pl)
{
	int bar;

	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		if (pl->info.bars[bar].flags & PCILAT_BAR_MEMORY)
			return bar;
	}
	return -1;
}

static void pcilat_reg_access(void __iomem *at, struct pcilat_reg *reg)
{
	switch (reg->width) {
	case 1:
		if (reg->write)
			writeb(reg->value, at);
		else
			reg->value = readb(at);
		break;
	case 2:
		if (reg->write)
			writew(reg->value, at);
		else
			reg->value = readw(at);
		break;
	case 4:
		if (reg->write)
			writel(reg->value, at);
		else
			reg->value = readl(at);
		break;
#ifdef CONFIG_64BIT
	case 8:
		if (reg->write)
			writeq(reg->value, at);
		else
			reg->value = readq(at);
		break;
#endif
	}
}

static int pcilat_reg_checked(struct pcilat_device *pl, struct pcilat_reg *reg)
{
	void __iomem *page;
	int ret;

	ret = pcilat_check_access(pl, reg->bar, reg->width, reg->offset, reg->write);
	if (ret)
		return ret;
	if (reg->width < 8 && reg->value >> (8 * reg->width))
		return -EINVAL;
	page = pcilat_map_page(pl, reg->bar, reg->offset);
	if (!page)
		return -ENOMEM;
	pcilat_reg_access(page + offset_in_page(reg->offset), reg);
	iounmap(page);
	return 0;
}

static void pcilat_reg_log(struct pcilat_device *pl, const struct pcilat_reg *reg, int error)
{
	struct pcilat_reg_record record = {
		.at_ns = ktime_get_ns(),
		.offset = reg->offset,
		.value = reg->value,
		.bar = min_t(u32, reg->bar, U8_MAX),
		.width = min_t(u32, reg->width, U8_MAX),
		.write = reg->write,
		.plain = reg->width == 4 && (int)reg->bar == pcilat_first_bar(pl),
		.error = error,
	};
	int ret;

	mutex_lock(&pl->lock);
	ret = pcilat_text_ring_allocate(&pl->reg_text, PCILAT_TEXT_RECORDS, sizeof(record));
	mutex_unlock(&pl->lock);
	if (!ret)
		pcilat_text_ring_write(&pl->reg_text, &record);
}

/* Reads or writes one register. A value of all-ones is no error here: the caller sees it. */
int pcilat_reg(struct pcilat_device *pl, struct pcilat_reg *reg)
{
	int ret;

	ret = pcilat_check_lockdown();
	if (ret)
		return ret;
	ret = pcilat_enter(pl);
	if (ret)
		return ret;
	ret = pcilat_reg_checked(pl, reg);
	pcilat_reg_log(pl, reg, ret);
	pcilat_leave(pl);
	return ret;
}
