// SPDX-License-Identifier: GPL-2.0-only
/*
 * Accesses to the device: timed ones to registers and configuration space, the
 * calibration with an empty pair of stamps, and single ones, which are logged.
 *
 * A segment is a row of samples that are taken with interrupts off. It ends when one
 * more sample, as long as its longest one, would exceed PCILAT_BATCH_MAX_NS. Only an
 * access that is slower than all before it can exceed that time. Samples are sorted
 * and stored after the segment.
 *
 * On x86 configuration offsets from 0x100 up go through the memory-mapped
 * window (ECAM): one uncached load, without the port pair CF8/CFC and its lock.
 */
#include "internal.h"

#ifndef CONFIG_64BIT
#error "pcilat is for 64-bit kernels: it reads a register of 8 bytes at once"
#endif

/* Called from probe(). The bridges, and the list, stay while the device below them is bound. */
int pcilat_path_init(struct pcilat_device *pl)
{
	struct pci_dev *at;
	u32 i = 0;

	for (at = pl->pdev; at; at = pci_upstream_bridge(at))
		i++;
	pl->hops = devm_kcalloc(&pl->pdev->dev, i, sizeof(*pl->hops), GFP_KERNEL);
	if (!pl->hops)
		return -ENOMEM;
	pl->nhops = i;
	for (at = pl->pdev; at; at = pci_upstream_bridge(at))
		pl->hops[--i] = (struct pcilat_hop) {
			.pdev = at,
			.offset = at->cfg_size > PCI_CFG_SPACE_SIZE ? PCI_CFG_SPACE_SIZE :
								      PCI_VENDOR_ID,
		};
	return 0;
}

/* The default BAR of text commands; -1 if the device has no memory BAR. */
int pcilat_first_bar(const struct pcilat_device *pl)
{
	int bar;

	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		if (pl->info.bars[bar].flags & PCILAT_BAR_MEMORY)
			return bar;
	}
	return -1;
}

/*
 * The MSI-X table and its pending bits belong to the kernel. The PCI Express Base
 * Specification (7.7.2) defines only accesses of 4 and 8 bytes there. A device may refuse
 * others, and on arm64 a refused read may be an external abort, which ends the kernel.
 */
static bool pcilat_hits_msix(struct pci_dev *pdev, u32 bar, u32 width, u64 offset)
{
	static const struct { int reg; u32 entry_bits; } part[] = {
		{ PCI_MSIX_TABLE, 128 }, { PCI_MSIX_PBA, 1 },
	};
	u16 flags;
	u32 at, i;

	if (!pdev->msix_cap)
		return false;
	pci_read_config_word(pdev, pdev->msix_cap + PCI_MSIX_FLAGS, &flags);
	for (i = 0; i < ARRAY_SIZE(part); i++) {
		u64 bytes = ((flags & PCI_MSIX_FLAGS_QSIZE) + 1) * part[i].entry_bits;

		bytes = ALIGN(bytes, 64) / 8;
		pci_read_config_dword(pdev, pdev->msix_cap + part[i].reg, &at);
		if ((at & PCI_MSIX_TABLE_BIR) == bar &&
		    offset + width > (at & PCI_MSIX_TABLE_OFFSET) &&
		    offset < (at & PCI_MSIX_TABLE_OFFSET) + bytes)
			return true;
	}
	return false;
}

/* Refuses an access that is malformed, outside the BAR or not permitted. */
int pcilat_check_access(struct pcilat_device *pl, u32 bar, u32 width, u64 offset, bool write)
{
	u64 end;

	lockdep_assert_held(&pl->hw);
	if (bar >= PCI_STD_NUM_BARS || !(pci_resource_flags(pl->pdev, bar) & IORESOURCE_MEM) ||
	    !pci_resource_len(pl->pdev, bar))
		return -EINVAL;
	if (width != 1 && width != 2 && width != 4 && width != 8)
		return -EINVAL;
	if (offset % width)
		return -EINVAL;
	if (check_add_overflow(offset, (u64)width, &end) || end > pci_resource_len(pl->pdev, bar))
		return -ERANGE;
	if (!(pl->claimed & BIT(bar)))
		return -EBUSY;
	if ((write || width < 4) && pcilat_hits_msix(pl->pdev, bar, width, offset))
		return -EACCES;
	return 0;
}

/* Maps one register; a BAR may be larger than the address space for mappings. */
void __iomem *pcilat_map(struct pcilat_device *pl, u32 bar, u32 width, u64 offset)
{
	return ioremap(pci_resource_start(pl->pdev, bar) + offset, width);
}

static __always_inline u64 access_read(const void __iomem *reg, const u32 width)
{
	if (width == 1)
		return readb(reg);
	if (width == 2)
		return readw(reg);
	return width == 4 ? readl(reg) : readq(reg);
}

static __always_inline void access_write(void __iomem *reg, u64 value, const u32 width)
{
	if (width == 1)
		writeb(value, reg);
	else if (width == 2)
		writew(value, reg);
	else if (width == 4)
		writel(value, reg);
	else
		writeq(value, reg);
}

/* What is accessed. The segment has it in local variables: nothing is loaded between two stamps. */
struct access {
	void __iomem *reg;
	u64 value;
	u64 budget;
	u32 batch;
	bool ones_ok;
	struct pci_bus *bus;
	u32 devfn;
	int offset;
};

/* One access of a constant kind and width; false if it read all-ones. */
static __always_inline bool access_once(const struct access *a, const u32 kind, const u32 width)
{
	u32 config = 0;

	if (kind == PCILAT_KIND_CONFIG) {
		pci_bus_read_config_dword(a->bus, a->devfn, a->offset, &config);
		return config != U32_MAX;
	}
	if (kind == PCILAT_KIND_WRITE || kind == PCILAT_KIND_WRITE_READ)
		access_write(a->reg, a->value, width);
	if (kind == PCILAT_KIND_WRITE)
		return true;
	return access_read(a->reg, width) != U64_MAX >> (64 - 8 * width);
}

/*
 * The accesses between two stamps. A batch that would keep interrupts off for too
 * long enables them for a moment, and lets other tasks run: it may take a minute. Its value
 * then includes their time.
 * All-ones that the caller does not expect end it: it is no sample then.
 */
static __always_inline bool access_batch(const struct access *a, const struct pcilat_job *job,
					 unsigned long *flags, u64 *off, const u32 kind,
					 const u32 width)
{
	bool good = access_once(a, kind, width);
	u32 left = a->batch;

	while (--left && (good || a->ones_ok)) {
		if (pcilat_clock() - *off > a->budget) {
			if (pcilat_job_stopped(job))
				break;
			local_irq_restore(*flags);
			pcilat_yield();
			local_irq_save(*flags);
			*off = pcilat_clock();
		}
		good = access_once(a, kind, width);
	}
	return good;
}

/*
 * Inlined for each kind and width, so that there are no branches between the stamps.
 * The hops of CONFIG take turns sample by sample, so that drift over time does not
 * look like distance.
 */
static __always_inline void segment(struct pcilat_worker *w, u32 samples, const u32 kind,
				    const u32 width)
{
	const struct pcilat_job *job = w->job;
	struct access a = {
		.reg = job->reg,
		.value = job->req.value,
		.budget = job->budget,
		.batch = job->req.batch,
		.ones_ok = job->req.flags & PCILAT_RUN_ONES_OK,
	};
	u64 begin, end, off, longest = 0;
	unsigned long flags;
	bool good = true;

	w->samples = 0;
	w->ones = false;
	local_irq_save(flags);
	off = pcilat_clock();
	/* The worker is moved if its CPU goes offline or the run is stopped. */
	w->moved = smp_processor_id() != w->runs_on;
	while (!w->moved) {
		struct pcilat_sample *s = &w->sample[w->samples];

		s->target = 0;
		if (kind == PCILAT_KIND_CONFIG) {
			const struct pcilat_hop *hop = &job->pl->hops[w->next_target];

			s->target = w->next_target;
			a.bus = hop->pdev->bus;
			a.devfn = hop->pdev->devfn;
			a.offset = hop->offset;
		}
		begin = pcilat_clock_begin();
		if (kind != PCILAT_KIND_EMPTY)
			good = access_batch(&a, job, &flags, &off, kind, width);
		end = pcilat_clock_end();
		if (a.batch > 1 && pcilat_job_stopped(job))
			break;	/* the batch may have been cut short */
		if (!good && !a.ones_ok) {
			w->ones = true;
			w->ones_target = s->target;
			break;
		}
		s->at = begin;
		s->ticks = end - begin;
		if (kind == PCILAT_KIND_CONFIG)
			w->next_target = (w->next_target + 1) % job->targets;
		longest = max(longest, end - begin);
		if (++w->samples == samples || end - off + longest > a.budget ||
		    pcilat_job_stopped(job))
			break;
	}
	/* A batch may have enabled interrupts. */
	w->moved |= smp_processor_id() != w->runs_on;
	local_irq_restore(flags);
}

static __always_inline void segment_of_kind(struct pcilat_worker *w, u32 samples, const u32 kind)
{
	const u32 width = w->job->req.width;

	if (width == 1)
		segment(w, samples, kind, 1);
	else if (width == 2)
		segment(w, samples, kind, 2);
	else if (width == 4)
		segment(w, samples, kind, 4);
	else
		segment(w, samples, kind, 8);
}

/* Takes samples of one kind, as many as fit in one segment, at most @samples. */
void pcilat_segment(struct pcilat_worker *w, u32 samples, u32 kind)
{
	if (kind == PCILAT_KIND_EMPTY)
		segment(w, samples, PCILAT_KIND_EMPTY, 4);
	else if (kind == PCILAT_KIND_READ)
		segment_of_kind(w, samples, PCILAT_KIND_READ);
	else if (kind == PCILAT_KIND_WRITE)
		segment_of_kind(w, samples, PCILAT_KIND_WRITE);
	else if (kind == PCILAT_KIND_WRITE_READ)
		segment_of_kind(w, samples, PCILAT_KIND_WRITE_READ);
	else
		segment(w, samples, PCILAT_KIND_CONFIG, 4);
}

static int pcilat_reg_checked(struct pcilat_device *pl, struct pcilat_reg *reg)
{
	void __iomem *at;
	int ret;

	ret = pcilat_check_access(pl, reg->bar, reg->width, reg->offset, reg->write);
	if (ret)
		return ret;
	if (reg->width < 8 && reg->value >> (8 * reg->width))
		return -EINVAL;
	at = pcilat_map(pl, reg->bar, reg->width, reg->offset);
	if (!at)
		return -ENOMEM;
	if (reg->write)
		access_write(at, reg->value, reg->width);
	else
		reg->value = access_read(at, reg->width);
	iounmap(at);
	return 0;
}

static void pcilat_reg_log(struct pcilat_device *pl, const struct pcilat_reg *reg, int error)
{
	struct pcilat_ring *ring = &pl->text_ring[PCILAT_TEXT_DEVREG];
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

	if (!pcilat_ring_allocate(pl, ring))
		pcilat_ring_write(ring, &record);
}

/*
 * Reads or writes one register. A value of all-ones is not an error here, unless the
 * function does not answer at all: then a read may crash an arm64 machine.
 */
int pcilat_reg(struct pcilat_device *pl, struct pcilat_reg *reg)
{
	int ret = pcilat_check_lockdown() ?: pcilat_enter(pl);

	if (ret)
		return ret;
	ret = pcilat_check_alive(pl, true) ?: pcilat_reg_checked(pl, reg);
	pcilat_reg_log(pl, reg, ret);
	pcilat_leave(pl);
	return ret;
}
