// SPDX-License-Identifier: GPL-2.0-only
/*
 * Timed configuration reads of every function from the root port down to the
 * device. On x86 offsets from 0x100 up go through the memory-mapped window
 * (ECAM): one uncached load, without the port pair CF8/CFC and its lock.
 */
#include <linux/irqflags.h>
#include <linux/slab.h>
#include <linux/smp.h>

#include "internal.h"

/* Called from probe(). The bridges stay while the device below them is bound. */
int pcilat_path_init(struct pcilat_device *pl)
{
	struct pci_dev *at;
	u32 i = 0;

	for (at = pl->pdev; at; at = pci_upstream_bridge(at))
		i++;
	pl->hops = kcalloc(i, sizeof(*pl->hops), GFP_KERNEL);
	if (!pl->hops)
		return -ENOMEM;
	pl->nhops = i;
	for (at = pl->pdev; at; at = pci_upstream_bridge(at)) {
		struct pcilat_hop *hop = &pl->hops[--i];

		hop->pdev = pci_dev_get(at);
		hop->domain = pci_domain_nr(at->bus);
		hop->bus = at->bus->number;
		hop->devfn = at->devfn;
		if (at->cfg_size > PCI_CFG_SPACE_SIZE)
			hop->offset = PCI_CFG_SPACE_SIZE;
		else
			hop->offset = PCI_VENDOR_ID;
	}
	return 0;
}

/* Called when the last user is gone: results name the hops after the device has left. */
void pcilat_path_exit(struct pcilat_device *pl)
{
	u32 i;

	for (i = 0; i < pl->nhops; i++)
		pci_dev_put(pl->hops[i].pdev);
	kfree(pl->hops);
}

static bool path_read(const struct pcilat_hop *hop, u32 batch, unsigned long *flags, u64 *off,
		      const struct pcilat_job *job)
{
	u32 value = 0, left = batch;

	do {
		if (left != batch && pcilat_clock() - *off > job->budget) {
			if (pcilat_job_stopped(job))
				break;
			local_irq_restore(*flags);
			local_irq_save(*flags);
			*off = pcilat_clock();
		}
		pci_bus_read_config_dword(hop->pdev->bus, hop->pdev->devfn, hop->offset, &value);
	} while (--left && value != U32_MAX);
	return value != U32_MAX;
}

/* The hops take turns sample by sample, so that drift does not look like distance. */
void pcilat_path_segment(struct pcilat_worker *w, u32 samples)
{
	struct pcilat_job *job = w->job;
	bool ones_ok = job->req.flags & PCILAT_RUN_ONES_OK;
	u64 begin, end, off, longest = 0;
	unsigned long flags;
	bool good;

	local_irq_save(flags);
	off = pcilat_clock();
	w->samples = 0;
	w->ones = false;
	w->moved = smp_processor_id() != w->runs_on;
	if (w->moved)
		goto out;
	do {
		struct pcilat_sample *s = &w->sample[w->samples];

		s->target = w->next_target;
		begin = pcilat_clock_begin();
		good = path_read(&job->pl->hops[s->target], job->req.batch, &flags, &off, job);
		end = pcilat_clock_end();
		if (job->req.batch > 1 && pcilat_job_stopped(job))
			break;	/* the batch may have been cut short */
		if (!good && !ones_ok) {
			w->ones = true;
			w->ones_target = s->target;
			break;
		}
		s->at = begin;
		s->ticks = end - begin;
		w->samples++;
		w->next_target = (w->next_target + 1) % job->targets;
		longest = max(longest, end - begin);
	} while (w->samples < samples && end - off + longest <= job->budget &&
		 !pcilat_job_stopped(job));
	w->moved = smp_processor_id() != w->runs_on;
out:
	local_irq_restore(flags);
}
