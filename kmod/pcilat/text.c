// SPDX-License-Identifier: GPL-2.0-only
/*
 * The text nodes of the original program, so that its users' scripts still work.
 * /sys/class/pcilat/BDF/pcilat_* take commands and show their state.
 * /dev/pcilatdriver/BDF/ has the records. run.c executes the runs. docs/uapi.md
 * describes the choices that the original leaves open.
 */
#include "internal.h"

#define TEXT_NUMBERS		3	/* longest command: run BAR ITERATIONS DELAY */
#define TEXT_ITERATIONS		1000u
#define TEXT_DELAY_NS		200u
#define TEXT_WARMUP		2u
#define TEXT_TIMEOUT_NS		(100 * NSEC_PER_MSEC)
#define TEXT_ROUNDS		10u
#define TEXT_LINE		96	/* longest line of a record */
#define TEXT_ALL_CPUS		U64_MAX	/* that are online */
#define TEXT_ALL_VECTORS	U64_MAX	/* a mask */

/* A command's numbers, and what the table says of it. */
struct text_numbers {
	u32 given;
	u64 number[TEXT_NUMBERS];
	u32 mode;
};

static u64 text_number(const struct text_numbers *numbers, u32 which, u64 otherwise)
{
	return which < numbers->given ? numbers->number[which] : otherwise;
}

static bool text_is_count(u64 number)
{
	return number && number <= U32_MAX;
}

/*
 * Stores what the nodes show of the last run. Returns its error: -EIO also if a CPU and
 * vector could not be measured, which the samples of the others do not show.
 */
static int text_note(struct pcilat_device *pl, const struct pcilat_run *run,
		     const struct pcilat_ring *ring, int ret)
{
	bool is_iomem = run->kind == PCILAT_KIND_READ;
	const struct pcilat_job *job;
	u32 i;

	guard(mutex)(&pl->lock);
	if (is_iomem) {
		pl->text.bar = run->bar;
		pl->text.iterations = run->count;
		pl->text.ndelay_ns = run->gap_ns;
		pl->text.errors = !!ret;
		pl->text.completed_cpus = 0;
	}
	job = pl->job;
	for (i = 0; job && job->text == ring && i < job->nslots; i++) {
		const struct pcilat_slot_state *slot = &job->slots[i];

		if (is_iomem)
			pl->text.completed_cpus += slot->latency.summary.count == run->count;
		else
			pl->text.dropped += slot->counts.lost + slot->counts.samples_lost;
		if (!ret && slot->counts.error)
			ret = -EIO;
	}
	return ret;
}

/*
 * Runs on CPU @only or on TEXT_ALL_CPUS. For interrupts, @mask selects vectors; its bit
 * 0 is vector @first. @run has everything but the two lists.
 */
static int text_run(struct pcilat_device *pl, struct pcilat_run *run, enum pcilat_text_kind kind,
		    u64 only, u32 first, u64 mask)
{
	struct pcilat_ring *ring = &pl->text_ring[kind];
	u32 *cpus, *vectors, cpu, i;
	int ret = -ENOMEM;

	cpus = kvmalloc_array(nr_cpu_ids, sizeof(*cpus), GFP_KERNEL);
	vectors = kvmalloc_array(pl->info.vectors + 1, sizeof(*vectors), GFP_KERNEL);
	if (!cpus || !vectors)
		goto out;
	for_each_online_cpu(cpu) {
		if (only == TEXT_ALL_CPUS || cpu == only)
			cpus[run->ncpus++] = cpu;
	}
	for (i = 0; first + i < pl->info.vectors; i++) {
		if (mask == TEXT_ALL_VECTORS || (i < 64 && mask & BIT_ULL(i)))
			vectors[run->nvectors++] = first + i;
	}
	run->size = sizeof(*run);
	ret = run->ncpus ? pcilat_ring_allocate(pl, ring) : -ENXIO;
	if (!ret) {
		ret = pcilat_run(pl, run, cpus, vectors, ring);
		if (ret != -EBUSY)
			ret = text_note(pl, run, ring, ret);
	}
out:
	kvfree(cpus);
	kvfree(vectors);
	return ret;
}

/* pcilat_iomem: run [bar] [iterations] [ndelay_ns] */
static int text_iomem_run(struct pcilat_device *pl, const struct text_numbers *numbers)
{
	u64 bar = text_number(numbers, 0, U64_MAX);
	u64 iterations = text_number(numbers, 1, TEXT_ITERATIONS);
	u64 delay_ns = text_number(numbers, 2, TEXT_DELAY_NS);
	struct pcilat_run run = {
		.kind = PCILAT_KIND_READ,
		.order = PCILAT_ORDER_SEQUENTIAL,
		.count = iterations,
		.gap_ns = delay_ns,
		.batch = 1,
		.bar = bar == U64_MAX ? pcilat_first_bar(pl) : bar,
		.width = 4,
	};

	if ((bar != U64_MAX && bar >= PCI_STD_NUM_BARS) || !text_is_count(iterations) ||
	    delay_ns > U32_MAX)
		return -EINVAL;
	return text_run(pl, &run, PCILAT_TEXT_IOMEM, TEXT_ALL_CPUS, 0, 0);
}

/* @run has order, rounds and count. */
static int text_irq_run(struct pcilat_device *pl, struct pcilat_run *run, u32 source, u64 cpu,
			u32 first, u64 mask)
{
	run->kind = PCILAT_KIND_IRQ;
	run->source = source;
	run->trigger_cpu = -1;
	run->warmup = TEXT_WARMUP;
	run->timeout_ns = TEXT_TIMEOUT_NS;
	return text_run(pl, run, PCILAT_TEXT_INTERRUPT, cpu, first, mask);
}

/* swmatrix, swloop [iters] [irq_mask_hex]: every vector of a mask, on every CPU. */
static int text_irq_all(struct pcilat_device *pl, const struct text_numbers *numbers)
{
	u64 iterations = text_number(numbers, 0, READ_ONCE(pl->text.batch));
	u64 mask = text_number(numbers, 1, TEXT_ALL_VECTORS);
	struct pcilat_run run = { .order = numbers->mode, .count = iterations };

	if (!text_is_count(iterations))
		return -EINVAL;
	/* The original calls the mask a list of numbers too: 0 can only be the first vector. */
	if (!mask)
		mask = BIT(0);
	if (!pl->info.vectors)
		return -EOPNOTSUPP;
	if (numbers->given > 1 && pl->info.vectors < 64 && mask >> pl->info.vectors)
		return -EINVAL;
	if (run.order == PCILAT_ORDER_INTERLEAVED)
		run.rounds = min_t(u64, iterations, TEXT_ROUNDS);
	return text_irq_run(pl, &run, PCILAT_SOURCE_RETRIGGER, TEXT_ALL_CPUS, 0, mask);
}

/* swtrigger [cpu] [irq|vector_index]: a number that is no vector's is a Linux interrupt. */
static int text_irq_one(struct pcilat_device *pl, const struct text_numbers *numbers)
{
	struct pcilat_run run = { .order = PCILAT_ORDER_SEQUENTIAL, .count = 1 };
	u64 cpu = text_number(numbers, 0, raw_smp_processor_id());
	u64 vector = text_number(numbers, 1, 0), i;

	if (cpu > U32_MAX || vector > U32_MAX)
		return -EINVAL;
	if (!pl->info.vectors)
		return -EOPNOTSUPP;
	if (cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -ENXIO;
	for (i = 0; vector >= pl->info.vectors && i < pl->info.vectors; i++) {
		if (pl->vectors[i].irq == vector)
			vector = i;
	}
	if (vector >= pl->info.vectors)
		return -EINVAL;
	return text_irq_run(pl, &run, PCILAT_SOURCE_RETRIGGER, cpu, vector, 1);
}

/* A CPU to which a vector's interrupts go: the one that writes, where it is among several. */
static u64 text_cpu_of(struct pcilat_device *pl, u32 vector)
{
	const struct cpumask *cpus = pcilat_affinity(irq_get_irq_data(pl->vectors[vector].irq));
	unsigned int near = raw_smp_processor_id();

	return cpumask_test_cpu(near, cpus) ? near : cpumask_any_and(cpus, cpu_online_mask);
}

/*
 * trigger: one hardware interrupt on each vector that the device can raise and the kernel
 * has granted. One that is lost keeps none of the others from being raised.
 */
static int text_irq_trigger(struct pcilat_device *pl, const struct text_numbers *numbers)
{
	int ret = 0, first = 0;
	u32 i, n;

	if (!(pl->sources & BIT(PCILAT_SOURCE_HARDWARE)))
		return -EOPNOTSUPP;
	n = min(pl->trigger->vectors, pl->info.vectors);
	for (i = 0; i < n && (!ret || ret == -ETIMEDOUT); i++) {
		struct pcilat_run run = { .order = PCILAT_ORDER_SEQUENTIAL, .count = 1 };

		ret = text_irq_run(pl, &run, PCILAT_SOURCE_HARDWARE, text_cpu_of(pl, i), i, 1);
		first = first ?: ret;
	}
	return first;
}

/* 1, 0: lets the device send interrupts, or not. */
static int text_irq_enable(struct pcilat_device *pl, const struct text_numbers *numbers)
{
	int ret;

	if (!(pl->sources & BIT(PCILAT_SOURCE_HARDWARE)))
		return -EOPNOTSUPP;
	ret = pcilat_check_lockdown();
	if (ret)
		return ret;
	/* A run enables and disables them itself. */
	if (test_and_set_bit_lock(0, &pl->busy))
		return -EBUSY;
	ret = pcilat_enter(pl);
	if (!ret) {
		/* As in pcilat_reg(). */
		ret = pcilat_check_alive(pl, true);
		if (!ret) {
			pl->irq_enabled = numbers->mode;
			pl->trigger->enable(pl, pl->irq_enabled);
		}
		pcilat_leave(pl);
	}
	clear_bit_unlock(0, &pl->busy);
	return ret;
}

static int text_irq_iterations(struct pcilat_device *pl, const struct text_numbers *numbers)
{
	u64 batch = text_number(numbers, 0, TEXT_ITERATIONS);

	if (!text_is_count(batch))
		return -EINVAL;
	WRITE_ONCE(pl->text.batch, batch);
	return 0;
}

static const struct text_verb {
	enum pcilat_text_kind kind;
	const char *name;
	u32 most;		/* numbers that may follow */
	u32 hex;		/* bit n: number n is hexadecimal */
	int (*run)(struct pcilat_device *pl, const struct text_numbers *numbers);
	u32 mode;		/* tells commands of one function apart */
} text_verbs[] = {
	{ PCILAT_TEXT_IOMEM, "run", 3, 0, text_iomem_run },
	{ PCILAT_TEXT_INTERRUPT, "1", 0, 0, text_irq_enable, true },
	{ PCILAT_TEXT_INTERRUPT, "0", 0, 0, text_irq_enable, false },
	{ PCILAT_TEXT_INTERRUPT, "trigger", 0, 0, text_irq_trigger },
	{ PCILAT_TEXT_INTERRUPT, "swtrigger", 2, 0, text_irq_one },
	{ PCILAT_TEXT_INTERRUPT, "swmatrix", 2, BIT(1), text_irq_all, PCILAT_ORDER_INTERLEAVED },
	{ PCILAT_TEXT_INTERRUPT, "swloop", 2, BIT(1), text_irq_all, PCILAT_ORDER_SEQUENTIAL },
	{ PCILAT_TEXT_INTERRUPT, "iterations", 1, 0, text_irq_iterations },
};

static int text_verb_run(struct pcilat_device *pl, const struct text_verb *verb, u32 words,
			 char **word)
{
	struct text_numbers numbers = { .given = words, .mode = verb->mode };
	u32 i;

	if (words > verb->most)
		return -EINVAL;
	for (i = 0; i < words; i++) {
		/* A BAR of -1 is the first one. */
		if (verb->run == text_iomem_run && !i && !strcmp(word[i], "-1"))
			numbers.number[i] = U64_MAX;
		else if (kstrtou64(word[i], verb->hex & BIT(i) ? 16 : 0, &numbers.number[i]))
			return -EINVAL;
	}
	return verb->run(pl, &numbers);
}

/* pcilat_devreg: [bar:]offset[/width] [value] */
static int text_devreg(struct pcilat_device *pl, u32 words, char **word)
{
	struct pcilat_reg reg = {
		.size = sizeof(reg),
		.bar = pcilat_first_bar(pl),
		.width = 4,
		.write = words == 2,
	};
	char *width = word[0], *offset, *bar = NULL;

	if (strchr(width, ':'))
		bar = strsep(&width, ":");
	offset = strsep(&width, "/");
	if (words > 2 || (bar && kstrtou32(bar, 0, &reg.bar)) ||
	    kstrtou64(offset, 0, &reg.offset) || (width && kstrtou32(width, 0, &reg.width)) ||
	    (words == 2 && kstrtou64(word[1], 0, &reg.value)))
		return -EINVAL;
	return pcilat_reg(pl, &reg);
}

static int text_command(struct pcilat_device *pl, enum pcilat_text_kind kind, u32 words,
			char **word)
{
	u32 i;

	if (!words)
		return -EINVAL;
	if (words == 1 && !strcmp(word[0], "clear")) {
		pcilat_ring_clear(&pl->text_ring[kind]);
		mutex_lock(&pl->lock);
		if (kind == PCILAT_TEXT_INTERRUPT)
			pl->text.dropped = 0;
		mutex_unlock(&pl->lock);
		return 0;
	}
	if (kind == PCILAT_TEXT_DEVREG)
		return text_devreg(pl, words, word);
	for (i = 0; i < ARRAY_SIZE(text_verbs); i++) {
		if (text_verbs[i].kind == kind && !strcmp(word[0], text_verbs[i].name))
			return text_verb_run(pl, &text_verbs[i], words - 1, word + 1);
	}
	return -EINVAL;
}

/* The records as lines. */

static int text_print_iomem(char *to, size_t size, const void *data)
{
	const struct pcilat_text_record *record = data;

	return scnprintf(to, size, "%llu %llu %u %u\n", record->at_ns, record->first_ns,
			 record->cpu, record->where);
}

static int text_print_irq(char *to, size_t size, const void *data)
{
	const struct pcilat_text_record *record = data;

	return scnprintf(to, size, "%llu %llu %llu %u %u\n", record->at_ns, record->first_ns,
			 record->second_ns, record->cpu, record->where);
}

static int text_print_reg(char *to, size_t size, const void *data)
{
	const struct pcilat_reg_record *record = data;
	const char *what = record->write ? "write" : "read";
	int digits = record->width <= 8 ? 2 * record->width : 16;

	if (record->plain)
		return scnprintf(to, size, "[%llu] %s 0x%llx = 0x%08llx rc=%d\n", record->at_ns,
				 what, record->offset, record->value, record->error);
	return scnprintf(to, size, "[%llu] %s %u:0x%llx/%u = 0x%0*llx rc=%d\n", record->at_ns, what,
			 record->bar, record->offset, record->width, digits, record->value,
			 record->error);
}

union text_any_record {
	struct pcilat_text_record sample;
	struct pcilat_reg_record reg;
};

static const struct {
	u32 record_size;
	int (*print)(char *to, size_t size, const void *record);
} text_kinds[PCILAT_TEXT_KINDS] = {
	[PCILAT_TEXT_IOMEM] = {
		sizeof(struct pcilat_text_record), text_print_iomem
	},
	[PCILAT_TEXT_INTERRUPT] = {
		sizeof(struct pcilat_text_record), text_print_irq
	},
	[PCILAT_TEXT_DEVREG] = {
		sizeof(struct pcilat_reg_record), text_print_reg
	},
};

/* What the nodes in /sys show. */

struct text_sum {
	u64 count, sum, min, max;
};

/* One line for each CPU with samples in the buffer. */
static int text_show_cpus(struct pcilat_device *pl, char *buf, int at)
{
	struct text_sum *sums = kvcalloc(nr_cpu_ids, sizeof(*sums), GFP_KERNEL);
	struct pcilat_text_record record;
	u64 position, average;
	u32 cpu;

	if (!sums)
		return at;
	for (position = 0; pcilat_ring_copy(&pl->text_ring[PCILAT_TEXT_IOMEM], &position, &record);
	     position++) {
		struct text_sum *sum = &sums[record.cpu];

		sum->min = sum->count ? min(sum->min, record.first_ns) : record.first_ns;
		sum->max = max(sum->max, record.first_ns);
		sum->sum += record.first_ns;
		sum->count++;
		if (!(position % 4096))
			cond_resched();
	}
	for (cpu = 0; cpu < nr_cpu_ids && at < PAGE_SIZE - TEXT_LINE; cpu++) {
		struct text_sum *sum = &sums[cpu];

		if (!sum->count)
			continue;
		average = div64_u64(sum->sum, sum->count);
		at += sysfs_emit_at(buf, at, "%u %llu %llu.%03llu %llu.%03llu %llu.%03llu\n", cpu,
				    sum->count, average / 1000, average % 1000,
				    sum->min / 1000, sum->min % 1000,
				    sum->max / 1000, sum->max % 1000);
	}
	kvfree(sums);
	return at;
}

/* Lines of the newest records, as many as fit. */
static int text_show_newest(struct pcilat_device *pl, enum pcilat_text_kind kind, char *buf, int at)
{
	struct pcilat_ring *ring = &pl->text_ring[kind];
	union text_any_record record;
	u64 position = pcilat_ring_newest(ring, (PAGE_SIZE - 1 - at) / TEXT_LINE);

	for (; at < PAGE_SIZE - TEXT_LINE && pcilat_ring_copy(ring, &position, &record); position++)
		at += text_kinds[kind].print(buf + at, PAGE_SIZE - at, &record);
	return at;
}

static int text_show_iomem(struct pcilat_device *pl, char *buf, u64 kept, u64 lost)
{
	struct pcilat_text text;
	int at, bar;

	mutex_lock(&pl->lock);
	text = pl->text;
	mutex_unlock(&pl->lock);
	at = sysfs_emit(buf, "IOMem Read Latency Data\n"
			"Last run: bar=%d iterations=%u ndelay_ns=%u completed_cpus=%u errors=%u\n"
			"Available BARs:", text.bar, text.iterations, text.ndelay_ns,
			text.completed_cpus, text.errors);
	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		if (pl->info.bars[bar].flags & PCILAT_BAR_MEMORY)
			at += sysfs_emit_at(buf, at, " %d", bar);
	}
	at += sysfs_emit_at(buf, at, "\nSample buffer: count=%llu capacity=%u dropped=%llu\n"
			    "Commands: run [bar] [iterations] [ndelay_ns] | clear\n"
			    "Summary format: cpu samples avg_us min_us max_us\n",
			    kept, PCILAT_TEXT_RECORDS, lost);
	if (kept)
		return text_show_cpus(pl, buf, at);
	return at + sysfs_emit_at(buf, at, "No samples collected. Run: "
				  "echo 'run [bar] [iterations] [ndelay_ns]' > pcilat_iomem\n");
}

static int text_show_interrupt(struct pcilat_device *pl, char *buf, u64 kept)
{
	int at;
	u32 i;

	at = sysfs_emit(buf, "Interrupt Latency Data (%llu samples)\nEnabled: %d\n"
			"Batch iterations: %u\nDropped trigger timestamps: %llu\n"
			"Vectors: %u | IRQs:", kept, READ_ONCE(pl->irq_enabled),
			READ_ONCE(pl->text.batch), READ_ONCE(pl->text.dropped), pl->info.vectors);
	for (i = 0; i < pl->info.vectors && at < PAGE_SIZE / 2; i++)
		at += sysfs_emit_at(buf, at, " %d", pl->vectors[i].irq);
	at += sysfs_emit_at(buf, at, "\nSet CPU affinity: "
			    "echo <cpu> > /proc/irq/<IRQ>/smp_affinity_list\n"
			    "Commands: 1 | 0 | trigger | swtrigger [cpu] [irq|vector_index] | "
			    "swmatrix [iters] [irq_mask_hex] | swloop [iters] [irq_mask_hex] | "
			    "iterations [n] | clear\n"
			    "Format: handler_entry_ns trigger_to_handler_ns entry_to_ack_ns cpu irq\n");
	if (kept)
		return text_show_newest(pl, PCILAT_TEXT_INTERRUPT, buf, at);
	return at + sysfs_emit_at(buf, at, "No samples collected yet\n");
}

static int text_show_devreg(struct pcilat_device *pl, char *buf, u64 kept)
{
	int at = sysfs_emit(buf, "DevReg log (%llu entries; "
			    "full history via /dev/pcilatdriver/%s/devreg):\n", kept, pl->bdf);

	return text_show_newest(pl, PCILAT_TEXT_DEVREG, buf, at);
}

static ssize_t text_show(struct device *dev, struct device_attribute *attr, char *buf);
static ssize_t text_store(struct device *dev, struct device_attribute *attr, const char *buf,
			  size_t count);

static struct device_attribute text_attributes[PCILAT_TEXT_KINDS] = {
	[PCILAT_TEXT_IOMEM] = __ATTR(pcilat_iomem, 0600, text_show, text_store),
	[PCILAT_TEXT_INTERRUPT] = __ATTR(pcilat_interrupt, 0600, text_show, text_store),
	[PCILAT_TEXT_DEVREG] = __ATTR(pcilat_devreg, 0600, text_show, text_store),
};

static ssize_t text_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct pcilat_device *pl = dev_get_drvdata(dev);
	u64 kept, lost;

	kept = pcilat_ring_count(&pl->text_ring[attr - text_attributes], &lost);
	switch (attr - text_attributes) {
	case PCILAT_TEXT_IOMEM:
		return text_show_iomem(pl, buf, kept, lost);
	case PCILAT_TEXT_INTERRUPT:
		return text_show_interrupt(pl, buf, kept);
	default:
		return text_show_devreg(pl, buf, kept);
	}
}

static ssize_t text_store(struct device *dev, struct device_attribute *attr, const char *buf,
			  size_t count)
{
	int ret, words;
	char **word;

	if (!capable(CAP_SYS_RAWIO))
		return -EPERM;
	if (memchr(buf, '\0', count))
		return -EINVAL;
	word = argv_split(GFP_KERNEL, buf, &words);
	if (!word)
		return -ENOMEM;
	ret = text_command(dev_get_drvdata(dev), attr - text_attributes, words, word);
	argv_free(word);
	return ret ?: count;
}

static struct attribute *text_attrs[] = {
	&text_attributes[PCILAT_TEXT_IOMEM].attr,
	&text_attributes[PCILAT_TEXT_INTERRUPT].attr,
	&text_attributes[PCILAT_TEXT_DEVREG].attr,
	NULL
};
ATTRIBUTE_GROUPS(text);

/* The nodes with all records. */

struct text_reader {
	struct pcilat_device *pl;
	enum pcilat_text_kind kind;
	union text_any_record record;
};

static void *text_start(struct seq_file *seq, loff_t *pos)
{
	struct text_reader *reader = seq->private;
	u64 position = *pos;
	bool found;

	found = pcilat_ring_copy(&reader->pl->text_ring[reader->kind], &position, &reader->record);
	*pos = position;
	return found ? &reader->record : NULL;
}

static void *text_next(struct seq_file *seq, void *record, loff_t *pos)
{
	++*pos;
	return text_start(seq, pos);
}

static void text_stop(struct seq_file *seq, void *record)
{
}

static int text_show_record(struct seq_file *seq, void *record)
{
	struct text_reader *reader = seq->private;
	char line[TEXT_LINE];

	text_kinds[reader->kind].print(line, sizeof(line), record);
	seq_puts(seq, line);
	return 0;
}

static const struct seq_operations text_seq_ops = {
	.start = text_start,
	.next = text_next,
	.stop = text_stop,
	.show = text_show_record,
};

static int text_open(struct inode *inode, struct file *file)
{
	struct pcilat_device *pl = file->private_data;
	struct text_reader *reader;

	/* For the seq_file. */
	file->private_data = NULL;
	reader = __seq_open_private(file, &text_seq_ops, sizeof(*reader));
	if (!reader)
		return -ENOMEM;
	reader->pl = pl;
	reader->kind = iminor(inode) % PCILAT_NODES;
	return nonseekable_open(inode, file);
}

static int text_release(struct inode *inode, struct file *file)
{
	struct seq_file *seq = file->private_data;
	struct text_reader *reader = seq->private;
	struct pcilat_device *pl = reader->pl;

	seq_release_private(inode, file);
	pcilat_put(pl);
	return 0;
}

const struct file_operations pcilat_text_fops = {
	.owner = THIS_MODULE,
	.open = text_open,
	.release = text_release,
	.read = seq_read,
};

int pcilat_text_init(struct pcilat_device *pl)
{
	int i;

	pl->text.bar = -1;
	pl->text.ndelay_ns = TEXT_DELAY_NS;
	pl->text.batch = TEXT_ITERATIONS;
	for (i = 0; i < PCILAT_TEXT_KINDS; i++)
		pcilat_ring_init(&pl->text_ring[i], PCILAT_TEXT_RECORDS, text_kinds[i].record_size);
	pl->class_dev = device_create_with_groups(&pcilat_class, &pl->pdev->dev, MKDEV(0, 0), pl,
						  text_groups, "%s", pl->bdf);
	return PTR_ERR_OR_ZERO(pl->class_dev);
}

/* Waits for the commands under way; the run has been told to end. */
void pcilat_text_exit(struct pcilat_device *pl)
{
	device_unregister(pl->class_dev);
}
