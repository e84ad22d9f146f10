// SPDX-License-Identifier: GPL-2.0-only
/*
 * The text surface of the program that pcilat follows, so that its users'
 * habits and scripts go on working: /sys/class/pcilat/BDF/pcilat_* take
 * commands and show their state, /dev/pcilatdriver/BDF/ holds the records.
 * Runs are those of run.c; docs/uapi.md says what was chosen where the
 * original leaves it open.
 */
#include <linux/capability.h>
#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>

#include "internal.h"
#include "trigger.h"

#define TEXT_WORDS		4	/* longest command: run BAR ITERATIONS DELAY */
#define TEXT_ITERATIONS		1000u
#define TEXT_DELAY_NS		200u
#define TEXT_WARMUP		2u
#define TEXT_TIMEOUT_NS		(100 * NSEC_PER_MSEC)
#define TEXT_ROUNDS		10u
#define TEXT_LINE		96	/* longest line of a record */

/* A command, cut at white space. */
struct text_command {
	char *copy;
	char *word[TEXT_WORDS];
	u32 words;
};

static int text_command_parse(struct text_command *command, const char *buf, size_t count)
{
	char *rest, *word;

	memset(command, 0, sizeof(*command));
	if (memchr(buf, '\0', count))
		return -EINVAL;
	command->copy = kstrndup(buf, count, GFP_KERNEL);
	if (!command->copy)
		return -ENOMEM;
	rest = command->copy;
	while ((word = strsep(&rest, " \t\n"))) {
		if (!*word)
			continue;
		if (command->words == TEXT_WORDS)
			goto err_free;
		command->word[command->words++] = word;
	}
	if (command->words)
		return 0;
err_free:
	kfree(command->copy);
	command->copy = NULL;
	return -EINVAL;
}

static bool text_is(const struct text_command *command, const char *name, u32 most_words)
{
	return !strcmp(command->word[0], name) && command->words <= most_words;
}

/* The number in a word, or what stands in *value if there is no such word. */
static int text_number(const struct text_command *command, u32 word, unsigned int base, u64 most,
		       u64 *value)
{
	u64 number;

	if (word >= command->words)
		return 0;
	if (kstrtou64(command->word[word], base, &number) || number > most)
		return -EINVAL;
	*value = number;
	return 0;
}

/* Every CPU that is online now. */
static u32 *text_online_cpus(u32 *ncpus)
{
	u32 *cpus = kvmalloc_array(nr_cpu_ids, sizeof(*cpus), GFP_KERNEL);
	unsigned int cpu;

	*ncpus = 0;
	if (!cpus)
		return NULL;
	for_each_online_cpu(cpu)
		cpus[(*ncpus)++] = cpu;
	return cpus;
}

static int text_allocate(struct pcilat_device *pl, struct pcilat_text_ring *ring)
{
	int ret;

	mutex_lock(&pl->lock);
	ret = pcilat_text_ring_allocate(ring, PCILAT_TEXT_RECORDS,
					sizeof(struct pcilat_text_record));
	mutex_unlock(&pl->lock);
	return ret;
}

/* pcilat_iomem */

static void text_iomem_note(struct pcilat_device *pl, const struct pcilat_run *run, int ret)
{
	struct pcilat_job *job;
	u32 i;

	mutex_lock(&pl->lock);
	pl->text.bar = run->bar;
	pl->text.iterations = run->count;
	pl->text.ndelay_ns = run->gap_ns;
	pl->text.errors = !!ret;
	pl->text.completed_cpus = 0;
	job = pl->job;
	for (i = 0; job && job->text == &pl->iomem_text && i < job->nslots; i++)
		pl->text.completed_cpus += job->slots[i].latency.summary.count == run->count;
	mutex_unlock(&pl->lock);
}

static int text_iomem_run(struct pcilat_device *pl, u32 bar, u32 iterations, u32 delay_ns)
{
	struct pcilat_run run = {
		.size = sizeof(run),
		.kind = PCILAT_KIND_READ,
		.order = PCILAT_ORDER_SEQUENTIAL,
		.count = iterations,
		.gap_ns = delay_ns,
		.batch = 1,
		.bar = bar,
		.width = 4,
	};
	u32 *cpus;
	int ret;

	ret = text_allocate(pl, &pl->iomem_text);
	if (ret)
		return ret;
	cpus = text_online_cpus(&run.ncpus);
	if (!cpus)
		return -ENOMEM;
	ret = pcilat_run(pl, &run, cpus, NULL, &pl->iomem_text);
	kvfree(cpus);
	if (ret != -EBUSY)
		text_iomem_note(pl, &run, ret);
	return ret;
}

static int text_iomem_command(struct pcilat_device *pl, const struct text_command *command)
{
	u64 bar, iterations = TEXT_ITERATIONS, delay_ns = TEXT_DELAY_NS;

	if (text_is(command, "clear", 1)) {
		pcilat_text_ring_clear(&pl->iomem_text);
		return 0;
	}
	if (!text_is(command, "run", 4))
		return -EINVAL;
	bar = pcilat_first_bar(pl);
	if (command->words > 1 && strcmp(command->word[1], "-1") &&
	    text_number(command, 1, 0, PCI_STD_NUM_BARS - 1, &bar))
		return -EINVAL;
	if (text_number(command, 2, 0, U32_MAX, &iterations) || !iterations ||
	    text_number(command, 3, 0, U32_MAX, &delay_ns))
		return -EINVAL;
	return text_iomem_run(pl, bar, iterations, delay_ns);
}

struct text_sum {
	u64 count, sum, min, max;
};

/* One line for each CPU with samples in the buffer. */
static int text_iomem_summary(struct pcilat_device *pl, char *buf, int at)
{
	struct text_sum *sums = kvcalloc(nr_cpu_ids, sizeof(*sums), GFP_KERNEL);
	struct pcilat_text_record record;
	u64 position = 0;
	u32 cpu;

	if (!sums)
		return at;
	while (pcilat_text_ring_read(&pl->iomem_text, &position, &record)) {
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
		u64 average;

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

static ssize_t pcilat_iomem_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct pcilat_device *pl = dev_get_drvdata(dev);
	struct pcilat_text text;
	u64 kept, dropped;
	int at = 0, bar;

	mutex_lock(&pl->lock);
	text = pl->text;
	mutex_unlock(&pl->lock);
	pcilat_text_ring_count(&pl->iomem_text, &kept, &dropped);
	at += sysfs_emit_at(buf, at, "IOMem Read Latency Data\n");
	at += sysfs_emit_at(buf, at, "Last run: bar=%d iterations=%u ndelay_ns=%u "
			    "completed_cpus=%u errors=%u\n", text.bar, text.iterations,
			    text.ndelay_ns, text.completed_cpus, text.errors);
	at += sysfs_emit_at(buf, at, "Available BARs:");
	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		if (pl->info.bars[bar].flags & PCILAT_BAR_MEMORY)
			at += sysfs_emit_at(buf, at, " %d", bar);
	}
	at += sysfs_emit_at(buf, at, "\nSample buffer: count=%llu capacity=%u dropped=%llu\n",
			    kept, PCILAT_TEXT_RECORDS, dropped);
	at += sysfs_emit_at(buf, at, "Commands: run [bar] [iterations] [ndelay_ns] | clear\n");
	at += sysfs_emit_at(buf, at, "Summary format: cpu samples avg_us min_us max_us\n");
	if (kept)
		return text_iomem_summary(pl, buf, at);
	at += sysfs_emit_at(buf, at, "No samples collected. "
			    "Run: echo 'run [bar] [iterations] [ndelay_ns]' > pcilat_iomem\n");
	return at;
}

/* pcilat_interrupt */

static void text_irq_note(struct pcilat_device *pl)
{
	struct pcilat_job *job;
	u32 i;

	mutex_lock(&pl->lock);
	job = pl->job;
	for (i = 0; job && job->text == &pl->irq_text && i < job->nslots; i++)
		pl->text.dropped += job->slots[i].lost + job->slots[i].samples_lost;
	mutex_unlock(&pl->lock);
}

/* @run names source, order, count and the lengths of the lists. */
static int text_irq_run(struct pcilat_device *pl, struct pcilat_run *run, const u32 *cpus,
			const u32 *vectors)
{
	int ret;

	run->size = sizeof(*run);
	run->kind = PCILAT_KIND_IRQ;
	run->trigger_cpu = -1;
	run->warmup = TEXT_WARMUP;
	run->timeout_ns = TEXT_TIMEOUT_NS;
	ret = text_allocate(pl, &pl->irq_text);
	if (ret)
		return ret;
	ret = pcilat_run(pl, run, cpus, vectors, &pl->irq_text);
	if (ret != -EBUSY)
		text_irq_note(pl);
	return ret;
}

/* Every vector of a mask, on every CPU. */
static int text_irq_all(struct pcilat_device *pl, bool matrix, u32 iterations, u64 mask)
{
	struct pcilat_run run = {
		.source = PCILAT_SOURCE_RETRIGGER,
		.order = matrix ? PCILAT_ORDER_INTERLEAVED : PCILAT_ORDER_SEQUENTIAL,
		.rounds = matrix ? min(iterations, TEXT_ROUNDS) : 0,
		.count = iterations,
	};
	u32 *cpus, *vectors, i;
	int ret = -ENOMEM;

	vectors = kvmalloc_array(pl->info.vectors, sizeof(*vectors), GFP_KERNEL);
	cpus = text_online_cpus(&run.ncpus);
	if (cpus && vectors) {
		for (i = 0; i < pl->info.vectors; i++) {
			if (i >= 64 ? mask == U64_MAX : mask & BIT_ULL(i))
				vectors[run.nvectors++] = i;
		}
		ret = text_irq_run(pl, &run, cpus, vectors);
	}
	kvfree(cpus);
	kvfree(vectors);
	return ret;
}

static int text_irq_loop_command(struct pcilat_device *pl, const struct text_command *command,
				 bool matrix)
{
	u64 iterations = READ_ONCE(pl->text.batch), mask = U64_MAX;

	if (text_number(command, 1, 0, U32_MAX, &iterations) || !iterations ||
	    text_number(command, 2, 16, U64_MAX, &mask) || !mask)
		return -EINVAL;
	if (!pl->info.vectors)
		return -EOPNOTSUPP;
	if (command->words > 2 && pl->info.vectors < 64 && mask >> pl->info.vectors)
		return -EINVAL;
	return text_irq_all(pl, matrix, iterations, mask);
}

/* A vector's number or, if there are not so many, a Linux interrupt's. */
static int text_irq_find(const struct pcilat_device *pl, u64 number, u32 *vector)
{
	u32 i;

	if (number < pl->info.vectors) {
		*vector = number;
		return 0;
	}
	for (i = 0; i < pl->info.vectors; i++) {
		if (pl->vectors[i].irq == number) {
			*vector = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int text_irq_one_command(struct pcilat_device *pl, const struct text_command *command)
{
	struct pcilat_run run = {
		.source = PCILAT_SOURCE_RETRIGGER,
		.order = PCILAT_ORDER_SEQUENTIAL,
		.count = 1,
		.ncpus = 1,
		.nvectors = 1,
	};
	u64 cpu = raw_smp_processor_id(), number = 0;
	u32 cpus[1], vectors[1];

	if (text_number(command, 1, 0, U32_MAX, &cpu) ||
	    text_number(command, 2, 0, U32_MAX, &number))
		return -EINVAL;
	if (!pl->info.vectors)
		return -EOPNOTSUPP;
	if (cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -ENXIO;
	if (text_irq_find(pl, number, &vectors[0]))
		return -EINVAL;
	cpus[0] = cpu;
	return text_irq_run(pl, &run, cpus, vectors);
}

/* One hardware interrupt on every vector that the device can be made to send. */
static int text_irq_trigger(struct pcilat_device *pl)
{
	struct pcilat_run run = {
		.source = PCILAT_SOURCE_HARDWARE,
		.order = PCILAT_ORDER_SEQUENTIAL,
		.count = 1,
		.ncpus = 1,
	};
	u32 cpus[1] = { raw_smp_processor_id() };
	u32 vectors[32];

	if (!(pl->sources & BIT(PCILAT_SOURCE_HARDWARE)))
		return -EOPNOTSUPP;
	while (run.nvectors < ARRAY_SIZE(vectors) && run.nvectors < pl->info.vectors &&
	       run.nvectors < pl->trigger->vectors) {
		vectors[run.nvectors] = run.nvectors;
		run.nvectors++;
	}
	return text_irq_run(pl, &run, cpus, vectors);
}

static int text_irq_enable(struct pcilat_device *pl, bool on)
{
	int ret;

	if (!(pl->sources & BIT(PCILAT_SOURCE_HARDWARE)))
		return -EOPNOTSUPP;
	ret = pcilat_check_lockdown();
	if (ret)
		return ret;
	/* A run switches them itself. */
	if (test_and_set_bit_lock(0, &pl->busy))
		return -EBUSY;
	ret = pcilat_enter(pl);
	if (!ret) {
		pl->irq_enabled = on;
		pl->trigger->enable(pl, on);
		pcilat_leave(pl);
	}
	clear_bit_unlock(0, &pl->busy);
	return ret;
}

static int text_irq_command(struct pcilat_device *pl, const struct text_command *command)
{
	u64 batch = TEXT_ITERATIONS;

	if (text_is(command, "1", 1))
		return text_irq_enable(pl, true);
	if (text_is(command, "0", 1))
		return text_irq_enable(pl, false);
	if (text_is(command, "trigger", 1))
		return text_irq_trigger(pl);
	if (text_is(command, "swtrigger", 3))
		return text_irq_one_command(pl, command);
	if (text_is(command, "swmatrix", 3))
		return text_irq_loop_command(pl, command, true);
	if (text_is(command, "swloop", 3))
		return text_irq_loop_command(pl, command, false);
	if (text_is(command, "iterations", 2)) {
		if (text_number(command, 1, 0, U32_MAX, &batch) || !batch)
			return -EINVAL;
		WRITE_ONCE(pl->text.batch, batch);
		return 0;
	}
	if (!text_is(command, "clear", 1))
		return -EINVAL;
	pcilat_text_ring_clear(&pl->irq_text);
	mutex_lock(&pl->lock);
	pl->text.dropped = 0;
	mutex_unlock(&pl->lock);
	return 0;
}

/* Lines of the newest records, as many as fit. */
static int text_newest(const struct pcilat_text_node *node, void *record, char *buf, int at)
{
	u64 position = pcilat_text_ring_newest(node->ring, (PAGE_SIZE - 1 - at) / TEXT_LINE);

	while (at < PAGE_SIZE - TEXT_LINE && pcilat_text_ring_read(node->ring, &position, record))
		at += node->print(buf + at, PAGE_SIZE - at, record);
	return at;
}

static ssize_t pcilat_interrupt_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct pcilat_device *pl = dev_get_drvdata(dev);
	struct pcilat_text_record record;
	u64 kept, dropped;
	int at = 0;
	u32 i;

	pcilat_text_ring_count(&pl->irq_text, &kept, &dropped);
	at += sysfs_emit_at(buf, at, "Interrupt Latency Data (%llu samples)\n", kept);
	at += sysfs_emit_at(buf, at, "Enabled: %d\n", READ_ONCE(pl->irq_enabled));
	at += sysfs_emit_at(buf, at, "Batch iterations: %u\n", READ_ONCE(pl->text.batch));
	at += sysfs_emit_at(buf, at, "Dropped trigger timestamps: %llu\n",
			    READ_ONCE(pl->text.dropped));
	at += sysfs_emit_at(buf, at, "Vectors: %u | IRQs:", pl->info.vectors);
	for (i = 0; i < pl->info.vectors && at < PAGE_SIZE / 2; i++)
		at += sysfs_emit_at(buf, at, " %d", pl->vectors[i].irq);
	at += sysfs_emit_at(buf, at, "\nSet CPU affinity: "
			    "echo <cpu> > /proc/irq/<IRQ>/smp_affinity_list\n");
	at += sysfs_emit_at(buf, at, "Commands: 1 | 0 | trigger | "
			    "swtrigger [cpu] [irq|vector_index] | "
			    "swmatrix [iters] [irq_mask_hex] | swloop [iters] [irq_mask_hex] | "
			    "iterations [n] | clear\n");
	at += sysfs_emit_at(buf, at, "Format: handler_entry_ns trigger_to_handler_ns "
			    "entry_to_ack_ns cpu irq\n");
	if (kept)
		return text_newest(&pl->text_node[1], &record, buf, at);
	at += sysfs_emit_at(buf, at, "No samples collected yet\n");
	return at;
}

/* pcilat_devreg */

/* [bar:]offset[/width] */
static int text_reg_parse(char *word, struct pcilat_reg *reg)
{
	char *offset = word, *colon = strchr(word, ':'), *slash;

	if (colon) {
		*colon = '\0';
		offset = colon + 1;
		if (kstrtou32(word, 0, &reg->bar))
			return -EINVAL;
	}
	slash = strchr(offset, '/');
	if (slash) {
		*slash = '\0';
		if (kstrtou32(slash + 1, 0, &reg->width))
			return -EINVAL;
	}
	return kstrtou64(offset, 0, &reg->offset) ? -EINVAL : 0;
}

static int text_reg_command(struct pcilat_device *pl, const struct text_command *command)
{
	struct pcilat_reg reg = {
		.size = sizeof(reg),
		.bar = pcilat_first_bar(pl),
		.width = 4,
		.write = command->words == 2,
	};

	if (text_is(command, "clear", 1)) {
		pcilat_text_ring_clear(&pl->reg_text);
		return 0;
	}
	if (command->words > 2 || text_reg_parse(command->word[0], &reg) ||
	    text_number(command, 1, 0, U64_MAX, &reg.value))
		return -EINVAL;
	return pcilat_reg(pl, &reg);
}

static ssize_t pcilat_devreg_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct pcilat_device *pl = dev_get_drvdata(dev);
	struct pcilat_reg_record record;
	u64 kept, dropped;
	int at = 0;

	pcilat_text_ring_count(&pl->reg_text, &kept, &dropped);
	at += sysfs_emit_at(buf, at, "DevReg log (%llu entries; "
			    "full history via /dev/pcilatdriver/%s/devreg):\n", kept, pl->bdf);
	return text_newest(&pl->text_node[2], &record, buf, at);
}

/* The same way in for all three: who may, what it says, and what comes of it. */
static ssize_t text_store(struct device *dev, const char *buf, size_t count,
			  int (*run)(struct pcilat_device *, const struct text_command *))
{
	struct text_command command;
	int ret;

	if (!capable(CAP_SYS_RAWIO))
		return -EPERM;
	ret = text_command_parse(&command, buf, count);
	if (ret)
		return ret;
	ret = run(dev_get_drvdata(dev), &command);
	kfree(command.copy);
	return ret ?: count;
}

static ssize_t pcilat_iomem_store(struct device *dev, struct device_attribute *attr,
				  const char *buf, size_t count)
{
	return text_store(dev, buf, count, text_iomem_command);
}

static ssize_t pcilat_interrupt_store(struct device *dev, struct device_attribute *attr,
				      const char *buf, size_t count)
{
	return text_store(dev, buf, count, text_irq_command);
}

static ssize_t pcilat_devreg_store(struct device *dev, struct device_attribute *attr,
				   const char *buf, size_t count)
{
	return text_store(dev, buf, count, text_reg_command);
}

static DEVICE_ATTR_ADMIN_RW(pcilat_iomem);
static DEVICE_ATTR_ADMIN_RW(pcilat_interrupt);
static DEVICE_ATTR_ADMIN_RW(pcilat_devreg);

static struct attribute *text_attrs[] = {
	&dev_attr_pcilat_iomem.attr,
	&dev_attr_pcilat_interrupt.attr,
	&dev_attr_pcilat_devreg.attr,
	NULL
};
ATTRIBUTE_GROUPS(text);

/* The nodes with all records. */

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

/* One open file: where it is, and the rest of a line that did not fit. */
struct text_reader {
	struct pcilat_text_node *node;
	struct mutex lock;		/* all below */
	u64 position;
	u32 length;
	u32 done;
	char line[TEXT_LINE];
};

static int text_open(struct inode *inode, struct file *file)
{
	struct pcilat_text_node *node = container_of(file->private_data, struct pcilat_text_node,
						     misc);
	struct text_reader *reader;

	if (!capable(CAP_SYS_RAWIO))
		return -EPERM;
	reader = kzalloc(sizeof(*reader), GFP_KERNEL);
	if (!reader)
		return -ENOMEM;
	if (!pcilat_get(node->pl)) {
		kfree(reader);
		return -ENODEV;
	}
	mutex_init(&reader->lock);
	reader->node = node;
	file->private_data = reader;
	return nonseekable_open(inode, file);
}

static int text_release(struct inode *inode, struct file *file)
{
	struct text_reader *reader = file->private_data;

	pcilat_put(reader->node->pl);
	kfree(reader);
	return 0;
}

/* Makes the next line; false at the end. */
static bool text_next_line(struct text_reader *reader)
{
	union text_any_record record;

	if (!pcilat_text_ring_read(reader->node->ring, &reader->position, &record))
		return false;
	reader->length = reader->node->print(reader->line, sizeof(reader->line), &record);
	reader->done = 0;
	return true;
}

static ssize_t text_read(struct file *file, char __user *to, size_t size, loff_t *pos)
{
	struct text_reader *reader = file->private_data;
	size_t done = 0, bytes;

	if (mutex_lock_interruptible(&reader->lock))
		return -ERESTARTSYS;
	while (done < size && !signal_pending(current)) {
		if (reader->done == reader->length && !text_next_line(reader))
			break;
		bytes = min_t(size_t, size - done, reader->length - reader->done);
		if (copy_to_user(to + done, reader->line + reader->done, bytes)) {
			mutex_unlock(&reader->lock);
			return -EFAULT;
		}
		reader->done += bytes;
		done += bytes;
		cond_resched();
	}
	mutex_unlock(&reader->lock);
	/* 0 would be the end. */
	if (!done && size && signal_pending(current))
		return -ERESTARTSYS;
	return done;
}

static const struct file_operations text_fops = {
	.owner = THIS_MODULE,
	.open = text_open,
	.release = text_release,
	.read = text_read,
};

static int text_node_init(struct pcilat_device *pl, u32 i, struct pcilat_text_ring *ring,
			  int (*print)(char *to, size_t size, const void *record))
{
	struct pcilat_text_node *node = &pl->text_node[i];

	node->pl = pl;
	node->ring = ring;
	node->print = print;
	node->misc = (struct miscdevice) {
		.minor = MISC_DYNAMIC_MINOR,
		.name = pl->node_names[2 + 2 * i],
		.nodename = pl->node_names[3 + 2 * i],
		.fops = &text_fops,
		.parent = &pl->pdev->dev,
		.mode = 0600,
	};
	return misc_register(&node->misc);
}

int pcilat_text_init(struct pcilat_device *pl)
{
	int ret;

	pl->text.bar = -1;
	pl->text.ndelay_ns = TEXT_DELAY_NS;
	pl->text.batch = TEXT_ITERATIONS;
	ret = text_node_init(pl, 0, &pl->iomem_text, text_print_iomem);
	if (ret)
		return ret;
	ret = text_node_init(pl, 1, &pl->irq_text, text_print_irq);
	if (ret)
		goto err_iomem;
	ret = text_node_init(pl, 2, &pl->reg_text, text_print_reg);
	if (ret)
		goto err_irq;
	pl->class_dev = device_create_with_groups(&pcilat_class, &pl->pdev->dev, MKDEV(0, 0), pl,
						  text_groups, "%s", pl->bdf);
	if (!IS_ERR(pl->class_dev))
		return 0;
	ret = PTR_ERR(pl->class_dev);
	misc_deregister(&pl->text_node[2].misc);
err_irq:
	misc_deregister(&pl->text_node[1].misc);
err_iomem:
	misc_deregister(&pl->text_node[0].misc);
	return ret;
}

/* Waits for commands that are being worked on; the run has been told to end. */
void pcilat_text_exit(struct pcilat_device *pl)
{
	u32 i;

	device_unregister(pl->class_dev);
	for (i = 0; i < ARRAY_SIZE(pl->text_node); i++)
		misc_deregister(&pl->text_node[i].misc);
}
