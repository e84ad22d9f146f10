// SPDX-License-Identifier: GPL-2.0-only
/*
 * Timed register accesses, and the calibration of the empty stamp pair.
 *
 * A segment is a row of samples with interrupts off. It ends before a sample
 * as long as its longest would exceed PCILAT_BATCH_MAX_NS, so that only an
 * access that is slower than those before can. Nothing is sorted, stored or
 * counted inside.
 */
#include <linux/io.h>
#include <linux/irqflags.h>
#include <linux/smp.h>

#include "internal.h"

/* The MSI-X table and its pending bits belong to the kernel. */
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

/* Refuses an access that is malformed, outside the BAR or not for the caller. */
int pcilat_check_access(struct pcilat_device *pl, u32 bar, u32 width, u64 offset, bool write)
{
	u64 end;

	lockdep_assert_held(&pl->hw);
	if (bar >= PCI_STD_NUM_BARS || !(pci_resource_flags(pl->pdev, bar) & IORESOURCE_MEM) ||
	    !pci_resource_len(pl->pdev, bar))
		return -EINVAL;
	if (width != 1 && width != 2 && width != 4 && width != 8)
		return -EINVAL;
	if (width == 8 && !IS_ENABLED(CONFIG_64BIT))
		return -EOPNOTSUPP;
	if (offset % width)
		return -EINVAL;
	if (check_add_overflow(offset, (u64)width, &end) || end > pci_resource_len(pl->pdev, bar))
		return -ERANGE;
	if (!(pl->claimed & BIT(bar)))
		return -EBUSY;
	if (write && pcilat_hits_msix(pl->pdev, bar, width, offset))
		return -EACCES;
	return 0;
}

/* Maps the page around an offset; a BAR may be larger than the address space for mappings. */
void __iomem *pcilat_map_page(struct pcilat_device *pl, u32 bar, u64 offset)
{
	return ioremap(pci_resource_start(pl->pdev, bar) + (offset & PAGE_MASK), PAGE_SIZE);
}

/* Begins a segment; false if the thread was moved off its CPU, which is going offline. */
static __always_inline bool segment_begin(struct pcilat_worker *w)
{
	w->samples = 0;
	w->ones = false;
	w->moved = smp_processor_id() != w->runs_on;
	return !w->moved;
}

/* One access of a constant kind and width; false if it read all-ones. */
static __always_inline bool access_once(void __iomem *reg, u64 value, const u32 kind,
					const u32 width)
{
	if (kind == PCILAT_KIND_WRITE || kind == PCILAT_KIND_WRITE_READ) {
		if (width == 1)
			writeb(value, reg);
		else if (width == 2)
			writew(value, reg);
		else if (width == 4)
			writel(value, reg);
#ifdef CONFIG_64BIT
		else
			writeq(value, reg);
#endif
	}
	if (kind == PCILAT_KIND_WRITE)
		return true;
	if (width == 1)
		return readb(reg) != U8_MAX;
	if (width == 2)
		return readw(reg) != U16_MAX;
	if (width == 4)
		return readl(reg) != U32_MAX;
#ifdef CONFIG_64BIT
	return readq(reg) != U64_MAX;
#else
	return true;	/* refused before */
#endif
}

/*
 * The accesses between two stamps. A batch that would keep interrupts off for
 * too long lets them in, and its value then holds whatever came in.
 */
static __always_inline bool access_batch(struct pcilat_job *job, unsigned long *flags, u64 *off,
					 const u32 kind, const u32 width)
{
	u32 left = job->req.batch;
	bool good = access_once(job->reg, job->req.value, kind, width);

	while (--left && good) {
		if (pcilat_clock() - *off > job->budget) {
			if (pcilat_job_stopped(job))
				break;
			local_irq_restore(*flags);
			local_irq_save(*flags);
			*off = pcilat_clock();
		}
		good = access_once(job->reg, job->req.value, kind, width);
	}
	return good;
}

static __always_inline void access_segment(struct pcilat_worker *w, u32 samples, const u32 kind,
					   const u32 width)
{
	struct pcilat_job *job = w->job;
	bool ones_ok = job->req.flags & PCILAT_RUN_ONES_OK;
	u64 begin, end, off, longest = 0;
	unsigned long flags;
	bool good;

	local_irq_save(flags);
	off = pcilat_clock();
	if (!segment_begin(w))
		goto out;
	do {
		struct pcilat_sample *s = &w->sample[w->samples];

		begin = pcilat_clock_begin();
		good = access_batch(job, &flags, &off, kind, width);
		end = pcilat_clock_end();
		if (job->req.batch > 1 && pcilat_job_stopped(job))
			break;	/* the batch may have been cut short */
		if (!good && !ones_ok) {
			w->ones = true;
			break;
		}
		s->at = begin;
		s->ticks = end - begin;
		s->target = 0;
		w->samples++;
		longest = max(longest, end - begin);
	} while (w->samples < samples && end - off + longest <= job->budget &&
		 !pcilat_job_stopped(job));
	w->moved = smp_processor_id() != w->runs_on;
out:
	local_irq_restore(flags);
}

/* A loop for each width: there are no choices between the stamps. */
static __always_inline void segment_of_kind(struct pcilat_worker *w, u32 samples, const u32 kind)
{
	switch (w->job->req.width) {
	case 1:
		access_segment(w, samples, kind, 1);
		break;
	case 2:
		access_segment(w, samples, kind, 2);
		break;
	case 4:
		access_segment(w, samples, kind, 4);
		break;
	case 8:
		access_segment(w, samples, kind, 8);
		break;
	}
}

static void segment_read(struct pcilat_worker *w, u32 samples)
{
	segment_of_kind(w, samples, PCILAT_KIND_READ);
}

static void segment_write(struct pcilat_worker *w, u32 samples)
{
	segment_of_kind(w, samples, PCILAT_KIND_WRITE);
}

static void segment_write_read(struct pcilat_worker *w, u32 samples)
{
	segment_of_kind(w, samples, PCILAT_KIND_WRITE_READ);
}

pcilat_segment_fn pcilat_mmio_segment(u32 kind)
{
	switch (kind) {
	case PCILAT_KIND_READ:
		return segment_read;
	case PCILAT_KIND_WRITE:
		return segment_write;
	default:
		return segment_write_read;
	}
}

/* The empty stamp pair, in the interrupt state of the measurement. */
void pcilat_calibration_segment(struct pcilat_worker *w, u32 samples)
{
	struct pcilat_job *job = w->job;
	unsigned long flags;
	u64 off, end;

	local_irq_save(flags);
	off = pcilat_clock();
	if (!segment_begin(w))
		goto out;
	do {
		struct pcilat_sample *s = &w->sample[w->samples];

		s->at = pcilat_clock_begin();
		end = pcilat_clock_end();
		s->ticks = end - s->at;
		w->samples++;
	} while (w->samples < samples && end - off < job->budget);
out:
	local_irq_restore(flags);
}
