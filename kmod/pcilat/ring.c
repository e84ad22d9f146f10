// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rings: the one of raw binary records, which user space maps or reads, and the logs
 * behind the text nodes, which are copied.
 */
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

	guard(mutex)(&pl->lock);
	if (ring->records)
		return 0;
	records = vmalloc_user(array_size(ring->size, ring->record_size));
	guard(spinlock)(&ring->lock);
	ring->records = records;
	return records ? 0 : -ENOMEM;
}

/* Starts again with record 0 at the first place. */
void pcilat_ring_reset(struct pcilat_ring *ring)
{
	guard(spinlock)(&ring->lock);
	ring->written = 0;
	ring->first = 0;
	ring->lost = 0;
}

/* Drops the records. Positions of readers stay valid. */
void pcilat_ring_clear(struct pcilat_ring *ring)
{
	guard(spinlock)(&ring->lock);
	ring->first = ring->written;
	ring->lost = 0;
}

/* With the ring's lock held. */
static void *pcilat_ring_at(struct pcilat_ring *ring, u64 position)
{
	return ring->records + position % ring->size * ring->record_size;
}

void pcilat_ring_write(struct pcilat_ring *ring, const void *record)
{
	guard(spinlock)(&ring->lock);
	if (ring->written - ring->first == ring->size) {
		ring->first++;
		ring->lost++;
	}
	memcpy(pcilat_ring_at(ring, ring->written++), record, ring->record_size);
}

/* Takes up to @count of the oldest records out of the ring. */
u32 pcilat_ring_take(struct pcilat_ring *ring, void *to, u32 count)
{
	u32 n;

	guard(spinlock)(&ring->lock);
	for (n = 0; n < count && ring->first < ring->written; n++)
		memcpy(to + n * ring->record_size, pcilat_ring_at(ring, ring->first++),
		       ring->record_size);
	return n;
}

/*
 * Copies the record at *position, or the oldest if that is gone, and sets
 * *position to the one that was copied. Returns false at the end.
 */
bool pcilat_ring_copy(struct pcilat_ring *ring, u64 *position, void *record)
{
	guard(spinlock)(&ring->lock);
	*position = max(*position, ring->first);
	if (*position >= ring->written)
		return false;
	memcpy(record, pcilat_ring_at(ring, *position), ring->record_size);
	return true;
}

/* The number of records in the ring; @lost: of those lost since it was cleared. */
u64 pcilat_ring_count(struct pcilat_ring *ring, u64 *lost)
{
	guard(spinlock)(&ring->lock);
	*lost = ring->lost;
	return ring->written - ring->first;
}

/* The position of the last @most records, or of all if there are fewer. */
u64 pcilat_ring_newest(struct pcilat_ring *ring, u64 most)
{
	guard(spinlock)(&ring->lock);
	return max(ring->first, ring->written - min(most, ring->written));
}
