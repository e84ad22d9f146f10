// SPDX-License-Identifier: GPL-2.0-only
/*
 * The board's Driveway PMUs as platform devices of the in-tree driver's name:
 * one window of BAR 2 and one interrupt line each.
 */
#include "lab.h"

/**
 * struct lab_subchannel - a directory entry
 * @address: what the PMU's name is made of
 * @window: its registers, as an offset in BAR 2
 * @line: its interrupt line
 * @node: its NUMA node
 */
struct lab_subchannel {
	u64 address;
	u32 window;
	u32 line;
	u32 node;
};

/* Before 5.11, platform_device_unregister() removes the properties by itself. */
static int lab_add_properties(struct device *dev, const struct property_entry *properties)
{
#ifdef COMPAT_HAS_device_create_managed_software_node
	return device_create_managed_software_node(dev, properties, NULL);
#else
	return device_add_properties(dev, properties);
#endif
}

static int lab_read_subchannel(struct lab_board *board, unsigned int number,
			       struct lab_subchannel *sub)
{
	void __iomem *entry = board->regs + LAB_SUBCHANNEL(number);
	struct device *dev = &board->pdev->dev;
	resource_size_t bytes = pci_resource_len(board->pdev, LAB_BAR_WINDOWS);

	sub->address = readl(entry + LAB_SUBCHANNEL_ADDRESS_LOW) |
		       (u64)readl(entry + LAB_SUBCHANNEL_ADDRESS_HIGH) << 32;
	sub->window = readl(entry + LAB_SUBCHANNEL_WINDOW);
	sub->line = readl(entry + LAB_SUBCHANNEL_LINE);
	sub->node = readl(entry + LAB_SUBCHANNEL_NODE);
	if (sub->window % LAB_WINDOW_BYTES || bytes < LAB_WINDOW_BYTES ||
	    sub->window > bytes - LAB_WINDOW_BYTES)
		return dev_err_probe(dev, -EINVAL,
				     "sub-channel %u: window at %#x of BAR %u (%pa bytes)\n",
				     number, sub->window, LAB_BAR_WINDOWS, &bytes);
	if (sub->line >= board->nlines)
		return dev_err_probe(dev, -EINVAL, "sub-channel %u: line %u of %u\n", number,
				     sub->line, board->nlines);
	return 0;
}

static int lab_add_subchannel(struct lab_board *board, unsigned int number,
			      const struct lab_subchannel *sub)
{
	resource_size_t start = pci_resource_start(board->pdev, LAB_BAR_WINDOWS) + sub->window;
	const struct resource resources[] = {
		DEFINE_RES_MEM(start, LAB_WINDOW_BYTES),
		DEFINE_RES_IRQ(board->lines[sub->line].irq),
	};
	const struct property_entry properties[] = {
		PROPERTY_ENTRY_U64("pciescope,address", sub->address),
		{ }
	};
	struct platform_device *pdev = platform_device_alloc("ali_drw_pmu", PLATFORM_DEVID_AUTO);
	int ret;

	if (!pdev)
		return -ENOMEM;
	pdev->dev.parent = &board->pdev->dev;
	/* A die that the machine has no node for: memory cannot come from there. */
	if (sub->node < MAX_NUMNODES && node_online(sub->node))
		set_dev_node(&pdev->dev, sub->node);
	ret = platform_device_add_resources(pdev, resources, ARRAY_SIZE(resources)) ?:
	      lab_add_properties(&pdev->dev, properties) ?:
	      platform_device_add(pdev);
	if (ret) {
		platform_device_put(pdev);
		return dev_err_probe(&board->pdev->dev, ret,
				     "sub-channel %u: cannot add its platform device\n", number);
	}
	board->subchannels[board->nsubchannels++] = pdev;
	return 0;
}

/**
 * lab_drw_register() - registers a platform device for every sub-channel
 * @board: the board, with its lines
 *
 * Return: 0, or a negative error number with a message; then there are none.
 */
int lab_drw_register(struct lab_board *board)
{
	u32 i, count = min_t(u32, readl(board->regs + LAB_SUBCHANNELS), LAB_SUBCHANNELS_MAX);
	struct lab_subchannel sub;
	int ret = 0;

	for (i = 0; i < count && !ret; i++)
		ret = lab_read_subchannel(board, i, &sub) ?: lab_add_subchannel(board, i, &sub);
	if (ret)
		lab_drw_unregister(board);
	return ret;
}

/**
 * lab_drw_unregister() - takes the platform devices away, drivers first
 * @board: the board
 */
void lab_drw_unregister(struct lab_board *board)
{
	while (board->nsubchannels)
		platform_device_unregister(board->subchannels[--board->nsubchannels]);
}
