// SPDX-License-Identifier: GPL-2.0-only
/*
 * Binds to the lab's counter board and places its models where hardware has
 * them: see overlay.c for root ports and drw.c for memory controllers. This
 * file has the board's function itself, its interrupt lines, and the other
 * device that shares these lines.
 *
 * A removed board answers all-ones: this file checks what it reads against the
 * bounds of its own arrays.
 */
#include "lab.h"

static bool acpi;
module_param(acpi, bool, 0444);
MODULE_PARM_DESC(acpi, "the firmware declares the memory controllers: add none");

static atomic_t lab_foreign_handled = ATOMIC_INIT(0);

static int lab_foreign_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%u\n", (unsigned int)atomic_read(&lab_foreign_handled));
}

static const struct kernel_param_ops lab_foreign_ops = {
	.get = lab_foreign_get,
};

module_param_cb(foreign_handled, &lab_foreign_ops, NULL, 0444);
MODULE_PARM_DESC(foreign_handled, "interrupts that the foreign source raised and this module handled");

#ifdef CONFIG_GENERIC_IRQ_INJECTION
/* Raises an interrupt as the hardware behind an overlay would. */
static int lab_interrupt_set(const char *value, const struct kernel_param *kp)
{
	unsigned int irq;
	int ret = kstrtouint(value, 0, &irq);

	return ret ? ret : irq_inject_interrupt(irq);
}

static const struct kernel_param_ops lab_interrupt_ops = {
	.set = lab_interrupt_set,
};

module_param_cb(interrupt, &lab_interrupt_ops, NULL, 0200);
MODULE_PARM_DESC(interrupt, "write an IRQ number to raise it, as the hardware behind an overlay would");
#endif

/* The other user of the line: as MPAM errors share it on the Yitian 710. */
static irqreturn_t lab_foreign_handler(int irq, void *data)
{
	struct lab_line *line = data;
	void __iomem *reg = line->board->regs + LAB_FOREIGN(line->number);
	u32 state = readl(reg);

	/* All-ones: the board is gone. */
	if (state == U32_MAX || !(state & LAB_FOREIGN_ASSERTED))
		return IRQ_NONE;
	writel(LAB_FOREIGN_ASSERTED, reg);
	atomic_inc(&lab_foreign_handled);
	return IRQ_HANDLED;
}

static int lab_request_lines(struct lab_board *board, unsigned int count)
{
	struct pci_dev *pdev = board->pdev;
	int granted, ret;

	if (!count)
		return 0;
	granted = pci_alloc_irq_vectors(pdev, 1, count, PCI_IRQ_ALL_TYPES);
	if (granted < 0)
		return dev_err_probe(&pdev->dev, granted, "no interrupt vector\n");
	/*
	 * x86 grants one without interrupt remapping: the board then sends all lines there. A
	 * board with a pin has that alone.
	 */
	if (granted < count)
		dev_info(&pdev->dev, "%u interrupt lines share %d vectors\n", count, granted);
	for (; board->nlines < count; board->nlines++) {
		struct lab_line *line = &board->lines[board->nlines];

		line->board = board;
		line->number = board->nlines;
		line->irq = pci_irq_vector(pdev, line->number % granted);
		ret = devm_request_irq(&pdev->dev, line->irq, lab_foreign_handler, IRQF_SHARED,
				       KBUILD_MODNAME, line);
		if (ret)
			return dev_err_probe(&pdev->dev, ret,
					     "line %u: cannot request interrupt %d\n",
					     line->number, line->irq);
	}
	return 0;
}

/* The directory's head. What it says of each entry is checked where it is used. */
static int lab_check_directory(struct lab_board *board, unsigned int *lines)
{
	struct device *dev = &board->pdev->dev;
	u32 id = readl(board->regs + LAB_ID), version = readl(board->regs + LAB_VERSION);
	u32 functions = readl(board->regs + LAB_FUNCTIONS);
	u32 subchannels = readl(board->regs + LAB_SUBCHANNELS);

	*lines = readl(board->regs + LAB_LINES);
	if (id != LAB_ID_VALUE || version != LAB_VERSION_VALUE)
		return dev_err_probe(dev, -ENODEV,
				     "id %#x, version %u: not a counter board of version %u\n",
				     id, version, LAB_VERSION_VALUE);
	if (functions > LAB_FUNCTIONS_MAX || subchannels > LAB_SUBCHANNELS_MAX ||
	    *lines > LAB_LINES_MAX)
		return dev_err_probe(dev, -EINVAL,
				     "%u functions, %u sub-channels, %u lines: more than %u, %u, %u\n",
				     functions, subchannels, *lines, LAB_FUNCTIONS_MAX,
				     LAB_SUBCHANNELS_MAX, LAB_LINES_MAX);
	if (pci_resource_len(board->pdev, LAB_BAR_DIRECTORY) < LAB_PAGE(functions))
		return dev_err_probe(dev, -EINVAL, "BAR %u is too small for %u functions\n",
				     LAB_BAR_DIRECTORY, functions);
	return 0;
}

static int lab_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct lab_board *board;
	unsigned int lines;
	int ret;

	if (!(pci_resource_flags(pdev, LAB_BAR_DIRECTORY) & IORESOURCE_MEM) ||
	    pci_resource_len(pdev, LAB_BAR_DIRECTORY) < LAB_PAGE(0))
		return dev_err_probe(&pdev->dev, -ENODEV, "no BAR %u\n", LAB_BAR_DIRECTORY);
	board = devm_kzalloc(&pdev->dev, sizeof(*board), GFP_KERNEL);
	if (!board)
		return -ENOMEM;
	board->pdev = pdev;
	/* BAR 2 is left to the drivers of its windows. */
	ret = pcim_enable_device(pdev) ?:
	      pcim_iomap_regions(pdev, BIT(LAB_BAR_DIRECTORY), KBUILD_MODNAME);
	if (ret)
		return ret;
	board->regs = pcim_iomap_table(pdev)[LAB_BAR_DIRECTORY];
	ret = lab_check_directory(board, &lines);
	if (ret)
		return ret;
	pci_set_drvdata(pdev, board);
	pci_set_master(pdev);
	ret = lab_request_lines(board, lines) ?: lab_overlay_attach(board);
	if (ret)
		return ret;
	ret = acpi ? 0 : lab_drw_register(board);
	if (ret)
		lab_overlay_detach(board);
	return ret;
}

static void lab_remove(struct pci_dev *pdev)
{
	struct lab_board *board = pci_get_drvdata(pdev);

	lab_drw_unregister(board);
	lab_overlay_detach(board);
}

static const struct pci_device_id lab_ids[] = {
	{ PCI_DEVICE(0x1234, 0x5c0f) },
	{ }
};
MODULE_DEVICE_TABLE(pci, lab_ids);

static struct pci_driver lab_driver = {
	.name = KBUILD_MODNAME,
	.id_table = lab_ids,
	.probe = lab_probe,
	.remove = lab_remove,
};

static int __init lab_init(void)
{
	return pci_register_driver(&lab_driver);
}
module_init(lab_init);

static void __exit lab_exit(void)
{
	pci_unregister_driver(&lab_driver);
	lab_overlay_exit();
}
module_exit(lab_exit);

MODULE_DESCRIPTION("pciescope lab: places the counter board's registers where hardware has them");
MODULE_LICENSE("GPL");
