// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lets the counter board answer a part of the configuration accesses to some
 * functions of the machine.
 *
 * It replaces the accessors of the functions' buses (pci_bus_set_ops). Several
 * buses may share their accessors, and new buses inherit ours from their parent.
 * So the replacement keeps the original accessors, looks up the function in a table
 * for each access, and passes on accesses to functions that are not in the table.
 *
 * Accessors run in atomic context. The table is under RCU: while it is in use,
 * only an entry's link and state change.
 */
#include "lab.h"

/* Kinds of accessors in one machine; x86 and ECAM host bridges have one. */
#define LAB_OPS_MAX		4

/**
 * struct lab_function - a function that gets an overlay
 * @address: its PCI address, as LAB_FUNCTION_ADDRESS has it
 * @vendor: vendor ID it is to show
 * @device: device ID it is to show
 * @first: first byte of the overlay
 * @link: last extended capability below it, 0 as long as it is not known
 * @express: the PCI Express capability, 0 as long as it is not known
 * @own_ids: the function's own IDs
 * @is_attached: the function was seen; as long as it was not, its accesses are left alone
 * @page: what answers in the overlay
 */
struct lab_function {
	u32 address;
	u16 vendor;
	u16 device;
	u16 first;
	u16 link;
	u16 express;
	u32 own_ids;
	bool is_attached;
	void __iomem *page;
};

struct lab_overlay {
	struct lab_board *board;
	unsigned int count;
	struct lab_function functions[LAB_FUNCTIONS_MAX];
};

struct lab_ops {
	struct pci_ops ops;
	struct pci_ops *original;
};

/* Serializes attaching; the accessors do not take it. */
static DEFINE_MUTEX(lab_lock);
static struct lab_overlay __rcu *lab_overlay;
/* Filled one by one and never emptied: buses point to them until the module goes. */
static struct lab_ops lab_ops[LAB_OPS_MAX];

static int lab_config_read(struct pci_bus *bus, unsigned int devfn, int where, int size,
			   u32 *value);

static bool lab_is_ours(const struct pci_ops *ops)
{
	return ops->read == lab_config_read;
}

/* The accessors below ours. A bus that was given back a moment ago has them already. */
static struct pci_ops *lab_original(struct pci_bus *bus)
{
	struct pci_ops *ops = READ_ONCE(bus->ops);

	return lab_is_ours(ops) ? container_of(ops, struct lab_ops, ops)->original : ops;
}

static struct lab_function *lab_find(struct lab_overlay *overlay, struct pci_bus *bus,
				     unsigned int devfn)
{
	u32 address = FIELD_PREP(LAB_ADDRESS_DOMAIN, pci_domain_nr(bus)) |
		      FIELD_PREP(LAB_ADDRESS_BUS, bus->number) | devfn;
	unsigned int i;

	for (i = 0; overlay && i < overlay->count; i++) {
		if (overlay->functions[i].address == address)
			return &overlay->functions[i];
	}
	return NULL;
}

/* The part of a dword that an access of @size bytes at @where sees. */
static u32 lab_part(u32 dword, int where, int size)
{
	dword >>= 8 * (where & 3);
	return size == 4 ? dword : dword & GENMASK(8 * size - 1, 0);
}

static u32 lab_page_read(void __iomem *at, int size)
{
	switch (size) {
	case 1:
		return readb(at);
	case 2:
		return readw(at);
	default:
		return readl(at);
	}
}

/* As lab_find(), for an access: NULL also where the function has no overlay yet. */
static struct lab_function *lab_overlaid(struct pci_bus *bus, unsigned int devfn)
{
	struct lab_function *function = lab_find(rcu_dereference(lab_overlay), bus, devfn);

	return function && READ_ONCE(function->is_attached) ? function : NULL;
}

/* The dwords of the PCI Express capability that the board may answer, in its order. */
static const u16 lab_express[] = {
	PCI_EXP_LNKCTL, PCI_EXP_SLTCTL, PCI_EXP_LNKCTL2, PCI_EXP_LNKCAP, PCI_EXP_LNKCAP2,
	PCI_EXP_DEVCAP, PCI_EXP_DEVCTL,
};

/* The place of an access among lab_express, negative for all others. */
static int lab_express_of(const struct lab_function *function, int where)
{
	u16 express = READ_ONCE(function->express);
	int i;

	for (i = 0; express && i < ARRAY_SIZE(lab_express); i++) {
		if ((where & ~3) == express + lab_express[i])
			return i;
	}
	return -ENOENT;
}

/* The function's own dword, with the bits that the board answers. */
static int lab_read_express(const struct lab_function *function, struct pci_bus *bus,
			    unsigned int devfn, int place, int where, int size, u32 *value)
{
	void __iomem *pair = function->page + LAB_EXPRESS(place);
	u32 dword, mask = readl(pair + LAB_EXPRESS_MASK);
	int ret = lab_original(bus)->read(bus, devfn, where & ~3, 4, &dword);

	if (ret)
		return ret;
	if (!PCI_POSSIBLE_ERROR(dword) && !PCI_POSSIBLE_ERROR(mask))
		dword = (dword & ~mask) | (readl(pair + LAB_EXPRESS_VALUE) & mask);
	*value = lab_part(dword, where, size);
	return PCIBIOS_SUCCESSFUL;
}

static void lab_page_write(void __iomem *at, int size, u32 value)
{
	if (size == 1)
		writeb(value, at);
	else if (size == 2)
		writew(value, at);
	else
		writel(value, at);
}

/* Reads of the two dwords of the function's own that show something else. */
static int lab_read_changed(const struct lab_function *function, struct pci_bus *bus,
			    unsigned int devfn, int where, int size, u32 *value)
{
	u32 dword;
	int ret = lab_original(bus)->read(bus, devfn, where & ~3, 4, &dword);

	if (ret)
		return ret;
	/* A function that is not there, or not ready, must not come to life by its overlay. */
	if ((where & ~3) == PCI_VENDOR_ID) {
		if ((dword & 0xffff) != 0xffff && (dword & 0xffff) > 1)
			dword = (u32)function->device << 16 | function->vendor;
	} else if (!PCI_POSSIBLE_ERROR(dword)) {
		dword = (dword & GENMASK(19, 0)) | (u32)function->first << 20;
	}
	*value = lab_part(dword, where, size);
	return PCIBIOS_SUCCESSFUL;
}

static int lab_config_read(struct pci_bus *bus, unsigned int devfn, int where, int size,
			   u32 *value)
{
	struct pci_ops *original = lab_original(bus);
	struct lab_function *function;
	int ret = PCIBIOS_SUCCESSFUL, place;
	u16 link;

	rcu_read_lock();
	function = lab_overlaid(bus, devfn);
	link = function ? READ_ONCE(function->link) : 0;
	place = function ? lab_express_of(function, where) : -ENOENT;
	if (function && where >= function->first)
		*value = lab_page_read(function->page + where, size);
	else if (function && ((where & ~3) == PCI_VENDOR_ID || (link && (where & ~3) == link)))
		ret = lab_read_changed(function, bus, devfn, where, size, value);
	else if (place >= 0)
		ret = lab_read_express(function, bus, devfn, place, where, size, value);
	else
		ret = original->read(bus, devfn, where, size, value);
	rcu_read_unlock();
	return ret;
}

static int lab_config_write(struct pci_bus *bus, unsigned int devfn, int where, int size,
			    u32 value)
{
	struct pci_ops *original = lab_original(bus);
	struct lab_function *function;
	int ret = PCIBIOS_SUCCESSFUL, place;

	rcu_read_lock();
	function = lab_overlaid(bus, devfn);
	place = function ? lab_express_of(function, where) : -ENOENT;
	if (!function || where < function->first)
		ret = original->write(bus, devfn, where, size, value);
	else
		lab_page_write(function->page + where, size, value);
	/* The board clears in its answer what is cleared by writing 1. */
	if (place >= 0)
		lab_page_write(function->page + LAB_EXPRESS(place) + (where & 3), size, value);
	rcu_read_unlock();
	return ret;
}

/* Puts our accessors in front of a bus's own. */
static int lab_take_bus(struct pci_bus *bus)
{
	struct pci_ops *original = bus->ops;
	unsigned int i;

	lockdep_assert_held(&lab_lock);
	if (lab_is_ours(original))
		return 0;
	for (i = 0; i < LAB_OPS_MAX; i++) {
		if (!lab_ops[i].original) {
			lab_ops[i].ops = *original;
			lab_ops[i].ops.read = lab_config_read;
			lab_ops[i].ops.write = lab_config_write;
			lab_ops[i].original = original;
		}
		if (lab_ops[i].original == original) {
			pci_bus_set_ops(bus, &lab_ops[i].ops);
			return 0;
		}
	}
	return -ENOSPC;
}

static void lab_give_back_bus(struct pci_bus *bus)
{
	if (lab_is_ours(bus->ops))
		pci_bus_set_ops(bus, lab_original(bus));
}

static int lab_give_back_below(struct pci_dev *pdev, void *data)
{
	if (pdev->subordinate)
		lab_give_back_bus(pdev->subordinate);
	return 0;
}

/* Every bus, not only those taken: child buses made since have inherited our accessors. */
static void lab_give_back_all(void)
{
	struct pci_bus *root = NULL;

	while ((root = pci_find_next_bus(root))) {
		lab_give_back_bus(root);
		pci_walk_bus(root, lab_give_back_below, NULL);
	}
}

/*
 * The extended capability that is to point to the overlay: the last of the
 * function's own chain below it. An empty chain has its first dword at 0x100 all
 * the same.
 */
static int lab_find_link(struct pci_dev *pdev, unsigned int first, u16 *link)
{
	unsigned int position = PCI_CFG_SPACE_SIZE, next, left;
	u32 header;

	*link = 0;
	if (first == PCI_CFG_SPACE_SIZE)
		return 0;
	for (left = (PCI_CFG_SPACE_EXP_SIZE - PCI_CFG_SPACE_SIZE) / 8; left; left--) {
		pci_read_config_dword(pdev, position, &header);
		if (PCI_POSSIBLE_ERROR(header))
			return -ENODEV;
		next = PCI_EXT_CAP_NEXT(header);
		if (next < PCI_CFG_SPACE_SIZE || next >= first) {
			*link = position;
			return 0;
		}
		position = next;
	}
	return -ELOOP;
}

/*
 * Shows a function's overlay to the kernel. A function that is scanned again
 * after its removal was found with its overlay; only its link may have moved.
 */
static int lab_attach(struct lab_function *function, struct pci_dev *pdev)
{
	u16 link;
	int ret;

	lockdep_assert_held(&lab_lock);
	if (pdev->cfg_size < PCI_CFG_SPACE_EXP_SIZE) {
		pci_err(pdev, "no overlay: its configuration space has %d bytes\n",
			pdev->cfg_size);
		return -EOPNOTSUPP;
	}
	/* Without a link, the chain that is read is the function's own. */
	WRITE_ONCE(function->link, 0);
	ret = lab_find_link(pdev, function->first, &link);
	if (ret) {
		pci_err(pdev, "no overlay: its extended capabilities cannot be followed (%d)\n",
			ret);
		return ret;
	}
	if (!function->is_attached)
		pci_read_config_dword(pdev, PCI_VENDOR_ID, &function->own_ids);
	ret = lab_take_bus(pdev->bus);
	if (ret) {
		pci_err(pdev, "no overlay: more than %d kinds of accessors\n", LAB_OPS_MAX);
		return ret;
	}
	WRITE_ONCE(function->link, link);
	WRITE_ONCE(function->express, pci_pcie_cap(pdev));
	WRITE_ONCE(function->is_attached, true);
	/* What the kernel and sysfs show was read before there was an overlay. */
	pdev->vendor = function->vendor;
	pdev->device = function->device;
	return 0;
}

/* A port that was removed and scanned again, or appears late: before any driver hears of it. */
static int lab_bus_notify(struct notifier_block *block, unsigned long action, void *data)
{
	struct pci_dev *pdev = to_pci_dev(data);
	struct lab_overlay *overlay;
	struct lab_function *function;

	if (action != BUS_NOTIFY_ADD_DEVICE)
		return NOTIFY_DONE;
	guard(mutex)(&lab_lock);
	overlay = rcu_dereference_protected(lab_overlay, lockdep_is_held(&lab_lock));
	function = lab_find(overlay, pdev->bus, pdev->devfn);
	if (function)
		lab_attach(function, pdev);
	return NOTIFY_OK;
}

static struct notifier_block lab_notifier = {
	.notifier_call = lab_bus_notify,
	.priority = INT_MAX,
};

static int lab_read_function(struct lab_overlay *overlay, unsigned int number)
{
	struct lab_function *function = &overlay->functions[number];
	void __iomem *entry = overlay->board->regs + LAB_FUNCTION(number);
	u32 address = readl(entry + LAB_FUNCTION_ADDRESS), ids = readl(entry + LAB_FUNCTION_IDS);
	struct device *dev = &overlay->board->pdev->dev;
	u32 first = readl(entry + LAB_FUNCTION_FIRST);
	unsigned int i;

	if (first < PCI_CFG_SPACE_SIZE || first > LAB_PAGE_BYTES - 4 || first % 4)
		return dev_err_probe(dev, -EINVAL, "function %u: overlay at %#x\n", number, first);
	function->address = address;
	function->vendor = FIELD_GET(LAB_IDS_VENDOR, ids);
	function->device = FIELD_GET(LAB_IDS_DEVICE, ids);
	function->first = first;
	function->page = overlay->board->regs + LAB_PAGE(number);
	for (i = 0; i < number; i++) {
		if (overlay->functions[i].address == address)
			return dev_err_probe(dev, -EINVAL,
					     "functions %u and %u have one address, %#x\n",
					     i, number, address);
	}
	return 0;
}

static struct pci_dev *lab_get_device(const struct lab_function *function)
{
	return pci_get_domain_bus_and_slot(FIELD_GET(LAB_ADDRESS_DOMAIN, function->address),
					   FIELD_GET(LAB_ADDRESS_BUS, function->address),
					   FIELD_GET(LAB_ADDRESS_DEVFN, function->address));
}

static int lab_attach_all(struct lab_overlay *overlay)
{
	unsigned int i;
	int ret = 0;

	guard(mutex)(&lab_lock);
	for (i = 0; i < overlay->count && !ret; i++) {
		struct lab_function *function = &overlay->functions[i];
		struct pci_dev *pdev = lab_get_device(function);

		/* A machine need not have all that the board describes. */
		if (!pdev)
			continue;
		ret = lab_attach(function, pdev);
		if (!ret)
			kobject_uevent(&pdev->dev.kobj, KOBJ_CHANGE);
		pci_dev_put(pdev);
	}
	return ret;
}

/**
 * lab_overlay_attach() - overlays the functions of a board's directory
 * @board: the board
 *
 * One board at a time has overlays. Functions that are not there get theirs when
 * they appear.
 *
 * Return: 0, -EBUSY while another board has overlays, or a negative error number
 * with a message.
 */
int lab_overlay_attach(struct lab_board *board)
{
	struct lab_overlay *overlay;
	unsigned int i;
	int ret = 0;

	overlay = kzalloc(sizeof(*overlay), GFP_KERNEL);
	if (!overlay)
		return -ENOMEM;
	overlay->board = board;
	overlay->count = min_t(u32, readl(board->regs + LAB_FUNCTIONS), LAB_FUNCTIONS_MAX);
	for (i = 0; i < overlay->count && !ret; i++)
		ret = lab_read_function(overlay, i);
	if (ret)
		goto err_free;
	mutex_lock(&lab_lock);
	if (rcu_access_pointer(lab_overlay))
		ret = dev_err_probe(&board->pdev->dev, -EBUSY, "another board has overlays\n");
	else
		rcu_assign_pointer(lab_overlay, overlay);
	mutex_unlock(&lab_lock);
	if (ret)
		goto err_free;
	ret = bus_register_notifier(&pci_bus_type, &lab_notifier);
	if (ret)
		goto err_withdraw;
	ret = lab_attach_all(overlay);
	if (ret) {
		lab_overlay_detach(board);
		return ret;
	}
	return 0;

err_withdraw:
	RCU_INIT_POINTER(lab_overlay, NULL);
	synchronize_rcu();
err_free:
	kfree(overlay);
	return ret;
}

/**
 * lab_overlay_detach() - makes every function what it was
 * @board: the board that lab_overlay_attach() succeeded with
 */
void lab_overlay_detach(struct lab_board *board)
{
	struct lab_overlay *overlay;
	unsigned int i;

	bus_unregister_notifier(&pci_bus_type, &lab_notifier);
	mutex_lock(&lab_lock);
	overlay = rcu_dereference_protected(lab_overlay, lockdep_is_held(&lab_lock));
	RCU_INIT_POINTER(lab_overlay, NULL);
	lab_give_back_all();
	mutex_unlock(&lab_lock);
	/* Accesses that still see the pages end before the pages do. */
	synchronize_rcu();
	for (i = 0; i < overlay->count; i++) {
		struct lab_function *function = &overlay->functions[i];
		struct pci_dev *pdev = lab_get_device(function);

		if (pdev && function->is_attached) {
			pdev->vendor = function->own_ids & 0xffff;
			pdev->device = function->own_ids >> 16;
			kobject_uevent(&pdev->dev.kobj, KOBJ_CHANGE);
		}
		pci_dev_put(pdev);
	}
	kfree(overlay);
}

/**
 * lab_overlay_exit() - waits until no CPU runs our accessors, now or later
 *
 * For the module's end, when no board is left.
 */
void lab_overlay_exit(void)
{
	/* A bus that was being made while the others were given back may have ours. */
	lab_give_back_all();
	/* An access may be preempted just before or behind its RCU section: wait for the tasks. */
	synchronize_rcu();
	synchronize_rcu_tasks();
}
