// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ring of raw binary records, which user space maps or reads, and the
 * logs behind the text nodes.
 */
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "internal.h"

/* The memory is taken at the first use: most devices never fill a ring. */
int pcilat_ring_allocate(struct pcilat_ring *ring)
{
	int ret = 0;

	mutex_lock(&ring->allocate);
	if (!ring->records) {
		ring->records = vmalloc_user(array_size(ring->size, sizeof(*ring->records)));
		if (!ring->records)
			ret = -ENOMEM;
	}
	mutex_unlock(&ring->allocate);
	return ret;
}

void pcilat_ring_reset(struct pcilat_ring *ring)
{
	spin_lock(&ring->lock);
	ring->written = 0;
	ring->read = 0;
	ring->lost = 0;
	spin_unlock(&ring->lock);
}

void pcilat_ring_free(struct pcilat_ring *ring)
{
	vfree(ring->records);
}

void pcilat_ring_write(struct pcilat_ring *ring, const struct pcilat_record *record)
{
	spin_lock(&ring->lock);
	if (ring->written - ring->read == ring->size) {
		ring->read++;
		ring->lost++;
	}
	ring->records[ring->written % ring->size] = *record;
	ring->written++;
	spin_unlock(&ring->lock);
}

/* Takes up to @count of the oldest records. */
u32 pcilat_ring_read(struct pcilat_ring *ring, struct pcilat_record *to, u32 count)
{
	u32 n = 0;

	spin_lock(&ring->lock);
	for (; n < count && ring->read < ring->written; n++)
		to[n] = ring->records[ring->read++ % ring->size];
	spin_unlock(&ring->lock);
	return n;
}

/* Called with pl->lock held. */
int pcilat_text_ring_allocate(struct pcilat_text_ring *ring, u32 size, u32 record_size)
{
	void *records;

	if (ring->records)
		return 0;
	records = vzalloc(array_size(size, record_size));
	if (!records)
		return -ENOMEM;
	ring->size = size;
	ring->record_size = record_size;
	spin_lock(&ring->lock);
	ring->records = records;
	spin_unlock(&ring->lock);
	return 0;
}

void pcilat_text_ring_write(struct pcilat_text_ring *ring, const void *record)
{
	spin_lock(&ring->lock);
	if (ring->records) {
		memcpy(ring->records + ring->written % ring->size * ring->record_size, record,
		       ring->record_size);
		ring->written++;
	}
	spin_unlock(&ring->lock);
}

/* The number of the oldest record that is kept; with the lock held. */
static u64 pcilat_text_ring_oldest(const struct pcilat_text_ring *ring)
{
	if (ring->written - ring->first > ring->size)
		return ring->written - ring->size;
	return ring->first;
}

/*
 * Copies the record at *position, or the oldest one kept if that is gone, and
 * sets *position behind it. Returns false at the end.
 */
bool pcilat_text_ring_read(struct pcilat_text_ring *ring, u64 *position, void *record)
{
	bool found;

	spin_lock(&ring->lock);
	*position = max(*position, pcilat_text_ring_oldest(ring));
	found = *position < ring->written;
	if (found)
		memcpy(record, ring->records + (*position)++ % ring->size * ring->record_size,
		       ring->record_size);
	spin_unlock(&ring->lock);
	return found;
}

void pcilat_text_ring_clear(struct pcilat_text_ring *ring)
{
	spin_lock(&ring->lock);
	ring->first = ring->written;
	spin_unlock(&ring->lock);
}

void pcilat_text_ring_count(struct pcilat_text_ring *ring, u64 *kept, u64 *dropped)
{
	u64 oldest;

	spin_lock(&ring->lock);
	oldest = pcilat_text_ring_oldest(ring);
	*kept = ring->written - oldest;
	*dropped = oldest - ring->first;
	spin_unlock(&ring->lock);
}

/* The position from which @most records are left, or all of them. */
u64 pcilat_text_ring_newest(struct pcilat_text_ring *ring, u64 most)
{
	u64 position;

	spin_lock(&ring->lock);
	position = pcilat_text_ring_oldest(ring);
	if (ring->written - position > most)
		position = ring->written - most;
	spin_unlock(&ring->lock);
	return position;
}
