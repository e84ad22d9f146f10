// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rings: the one of raw binary records, which user space maps or reads, and the logs
 * behind the text nodes, which are copied.
 */
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "internal.h"

void pcilat_ring_init(struct pcilat_ring *ring, u32 size, u32 record_size)
{
	ring->size = size;
	ring->record_size = record_size;
	spin_lock_init(&ring->lock);
}

/* At the first use: most devices never fill a ring. */
int pcilat_ring_allocate(struct pcilat_device *pl, struct pcilat_ring *ring)
{
	void *records;

	mutex_lock(&pl->lock);
	records = ring->records;
	if (!records) {
		records = vmalloc_user(array_size(ring->size, ring->record_size));
		spin_lock(&ring->lock);
		ring->records = records;
		spin_unlock(&ring->lock);
	}
	mutex_unlock(&pl->lock);
	return records ? 0 : -ENOMEM;
}

/* Starts again with record 0 at the first place. */
void pcilat_ring_reset(struct pcilat_ring *ring)
{
	spin_lock(&ring->lock);
	ring->written = 0;
	ring->first = 0;
	ring->lost = 0;
	spin_unlock(&ring->lock);
}

/* Drops the records. Positions of readers stay valid. */
void pcilat_ring_clear(struct pcilat_ring *ring)
{
	spin_lock(&ring->lock);
	ring->first = ring->written;
	ring->lost = 0;
	spin_unlock(&ring->lock);
}

/* With the ring's lock held. */
static void *pcilat_ring_at(struct pcilat_ring *ring, u64 position)
{
	return ring->records + position % ring->size * ring->record_size;
}

void pcilat_ring_write(struct pcilat_ring *ring, const void *record)
{
	spin_lock(&ring->lock);
	if (ring->written - ring->first == ring->size) {
		ring->first++;
		ring->lost++;
	}
	memcpy(pcilat_ring_at(ring, ring->written++), record, ring->record_size);
	spin_unlock(&ring->lock);
}

/* Takes up to @count of the oldest records out of the ring. */
u32 pcilat_ring_take(struct pcilat_ring *ring, void *to, u32 count)
{
	u32 n;

	spin_lock(&ring->lock);
	for (n = 0; n < count && ring->first < ring->written; n++)
		memcpy(to + n * ring->record_size, pcilat_ring_at(ring, ring->first++),
		       ring->record_size);
	spin_unlock(&ring->lock);
	return n;
}

/*
 * Copies the record at *position, or the oldest if that is gone, and sets
 * *position to the one that was copied. Returns false at the end.
 */
bool pcilat_ring_copy(struct pcilat_ring *ring, u64 *position, void *record)
{
	bool found;

	spin_lock(&ring->lock);
	*position = max(*position, ring->first);
	found = *position < ring->written;
	if (found)
		memcpy(record, pcilat_ring_at(ring, *position), ring->record_size);
	spin_unlock(&ring->lock);
	return found;
}

/* The number of records in the ring; @lost: of those lost since it was cleared. */
u64 pcilat_ring_count(struct pcilat_ring *ring, u64 *lost)
{
	u64 count;

	spin_lock(&ring->lock);
	count = ring->written - ring->first;
	*lost = ring->lost;
	spin_unlock(&ring->lock);
	return count;
}

/* The position of the last @most records, or of all if there are fewer. */
u64 pcilat_ring_newest(struct pcilat_ring *ring, u64 most)
{
	u64 position;

	spin_lock(&ring->lock);
	position = max(ring->first, ring->written - min(most, ring->written));
	spin_unlock(&ring->lock);
	return position;
}
