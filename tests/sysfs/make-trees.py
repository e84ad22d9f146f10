#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes the recorded-tree fixtures of this folder: NAME.tar.gz, always the same bytes.

These trees are composed, not recorded: each has the shape, the files and the
formats of a kind of machine (ids from the public PCI ID list, contents as the
kernel's sysfs writes them), but no such machine was at hand. qemu-q35.tar.gz is
the exception: record-tree.sh wrote it in a guest of QEMU 11.1 (q35, four virtual
CPUs on two nodes, a switch, e1000e, igb, nvme, edu, xHCI) with Debian's 6.12.

They are archives and no text, as the trees of tests/sysfs/pmu and tests/doctor are: they hold up to 45 configuration
spaces of 4 KiB each, and record-tree.sh makes them in an initramfs, which has no more than sh, tar and gzip.

    python3 tests/sysfs/make-trees.py        writes all trees beside itself
"""

import gzip
import io
import pathlib
import struct
import tarfile

HERE = pathlib.Path(__file__).parent


class Tree:
    """Files and links of one machine; paths are absolute."""

    def __init__(self):
        self.entries = {}

    def file(self, path, content):
        data = content if isinstance(content, bytes) else f"{content}\n".encode()
        self.entries[path] = data

    def link(self, path, target):
        """A symbolic link as sysfs makes them: relative to its folder."""
        up = "../" * (path.count("/") - 1)
        self.entries[path] = up + target.lstrip("/")

    def folder(self, path):
        self.entries[path] = None

    def write(self, name):
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path, content in sorted(self.entries.items()):
                info = tarfile.TarInfo(path.lstrip("/"))
                info.mode = 0o644
                if content is None:
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(info)
                elif isinstance(content, str):
                    info.type, info.linkname = tarfile.SYMTYPE, content
                    tar.addfile(info)
                else:
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        (HERE / f"{name}.tar.gz").write_bytes(gzip.compress(raw.getvalue(), mtime=0))


# ---- machine -----------------------------------------------------------------


def machine(tree, *, kernel, arch, cmdline, cpuinfo, dmi=None, clocksource, lockdown="[none] integrity confidentiality",
            aspm="[default] performance powersave powersupersave"):
    tree.file("/proc/sys/kernel/osrelease", kernel)
    tree.file("/proc/sys/kernel/arch", arch)
    tree.file("/proc/cmdline", cmdline)
    tree.file("/proc/cpuinfo", cpuinfo)
    tree.file("/proc/stat", "cpu  100 2 300 9000 5 6 7 0 9 10")
    tree.file("/sys/devices/system/clocksource/clocksource0/current_clocksource", clocksource)
    if lockdown:
        tree.file("/sys/kernel/security/lockdown", lockdown)
    if aspm:
        tree.file("/sys/module/pcie_aspm/parameters/policy", aspm)
    for key, value in (dmi or {}).items():
        tree.file(f"/sys/class/dmi/id/{key}", value)


def ranges(cpus):
    """0,1,2,8 as 0-2,8."""
    parts = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def cpus(tree, places, *, l3=True, uncached=()):
    """places: for every CPU (node, package, L3, core), each a number that only has to differ."""
    base = "/sys/devices/system/cpu"
    tree.file(f"{base}/online", ranges(places))
    tree.file(f"{base}/possible", ranges(places))
    for cpu, (node, package, cache, core) in places.items():
        def same(index, me):
            return ranges(other for other, place in places.items() if place[index] == me)
        at = f"{base}/cpu{cpu}"
        tree.file(f"{at}/topology/physical_package_id", package)
        tree.file(f"{at}/topology/core_cpus_list", same(3, core))
        tree.file(f"{at}/topology/thread_siblings_list", same(3, core))
        if cpu not in uncached:
            tree.file(f"{at}/cache/index0/level", 1)
            tree.file(f"{at}/cache/index0/shared_cpu_list", same(3, core))
            tree.file(f"{at}/cache/index2/level", 2)
            tree.file(f"{at}/cache/index2/shared_cpu_list", same(3, core))
            if l3:
                tree.file(f"{at}/cache/index3/level", 3)
                tree.file(f"{at}/cache/index3/shared_cpu_list", same(2, cache))
        if node is not None:
            tree.link(f"{at}/node{node}", f"/sys/devices/system/node/node{node}")
            tree.file(f"/sys/devices/system/node/node{node}/cpulist", same(0, node))


def idle(tree, states):
    """(name, exit latency in us, disabled) from shallow to deep."""
    for number, (name, latency, disabled) in enumerate(states):
        at = f"/sys/devices/system/cpu/cpu0/cpuidle/state{number}"
        tree.file(f"{at}/name", name)
        tree.file(f"{at}/latency", latency)
        tree.file(f"{at}/disable", disabled)


def governor(tree, policies, name):
    for policy in range(policies):
        tree.file(f"/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor", name)


def pmu(tree, name, number, cpus, fields=(), events=()):
    """A PMU as perf sees it: (field, bits) and (event, encoding)."""
    at = f"/sys/bus/event_source/devices/{name}"
    tree.file(f"{at}/type", number)
    tree.file(f"{at}/{'cpus' if name.startswith('armv8') else 'cpumask'}", cpus)
    for folder, entries in (("format", fields), ("events", events)):
        for entry, text in entries:
            tree.file(f"{at}/{folder}/{entry}", text)


def process(tree, pid, name):
    tree.file(f"/proc/{pid}/comm", name)


# ---- PCI ---------------------------------------------------------------------

ROOT_PORT, UPSTREAM, DOWNSTREAM, ENDPOINT, INTEGRATED = 4, 5, 6, 0, 9
MEM, MEM64, PREFETCH, IO = 0x40200, 0x140204, 0x14220C, 0x40101


def config_space(vendor, device, class_code, subsystem, *, kind, link, msi, msix, mps, mrrs, aspm):
    """A header and the capabilities power management, MSI, MSI-X and PCI Express as far as given."""
    space = bytearray(4096 if kind is not None else 256)
    bridge = class_code >> 8 == 0x0604
    struct.pack_into("<HHHHBBBB", space, 0, vendor, device, 0x0406, 0x0010, 1,
                     class_code & 0xFF, class_code >> 8 & 0xFF, class_code >> 16)
    space[0x0E] = 1 if bridge else 0
    if not bridge:
        struct.pack_into("<HH", space, 0x2C, *subsystem)
    caps = [(0x01, 0x40, struct.pack("<HH", 0xC803, 8))]
    if msi:
        caps.append((0x05, 0x50, struct.pack("<H", 0x0080 | (msi.bit_length() - 1) << 1)))
    if msix:
        caps.append((0x11, 0x70, struct.pack("<H", msix - 1)))
    if kind is not None:
        speed, width = link[2:] if link else (0, 0)
        code = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5}.get(speed, 0)
        caps.append((0x10, 0x80, struct.pack("<HIHHIH", 2 | kind << 4, 0x8FE2,
                                             (mps // 128).bit_length() - 1 << 5 | (mrrs // 128).bit_length() - 1 << 12,
                                             0, code | width << 4, aspm)))
    at = 0x34
    for number, place, body in caps:
        space[at] = place
        space[place] = number
        space[place + 2:place + 2 + len(body)] = body
        at = place + 1
    return bytes(space)


def speed_text(gts):
    return f"{gts:.1f} GT/s PCIe" if gts else "Unknown"


def pci(tree, where, ids, class_code, *, subsystem=(0, 0), driver=None, node=-1, bars=(), link=None, kind=None, msi=0,
        msix=0, mps=256, mrrs=512, aspm=0, group=None, readable=4096, physfn=None, extra=None):
    """One function. where: folders from the host bridge down; link: speed and width now, then at most."""
    bdf = where.split("/")[-1]
    at = f"/sys/devices/{where}"
    tree.link(f"/sys/bus/pci/devices/{bdf}", at)
    vendor, device = ids
    tree.file(f"{at}/vendor", f"0x{vendor:04x}")
    tree.file(f"{at}/device", f"0x{device:04x}")
    tree.file(f"{at}/class", f"0x{class_code:06x}")
    tree.file(f"{at}/subsystem_vendor", f"0x{subsystem[0]:04x}")
    tree.file(f"{at}/subsystem_device", f"0x{subsystem[1]:04x}")
    tree.file(f"{at}/numa_node", node)
    tree.file(f"{at}/driver_override", "(null)")
    space = config_space(vendor, device, class_code, subsystem, kind=kind, link=link, msi=msi, msix=msix, mps=mps,
                         mrrs=mrrs, aspm=aspm)
    tree.file(f"{at}/config", space[:readable])
    lines = {number: (start, start + size - 1, flags) for number, start, size, flags in bars}
    none = (0, 0, 0)
    tree.file(f"{at}/resource", "\n".join("0x%016x 0x%016x 0x%016x" % lines.get(n, none) for n in range(13)))
    if kind is not None:
        now, width, most, lanes = link or (None, 0, None, 0)
        tree.file(f"{at}/current_link_speed", speed_text(now))
        tree.file(f"{at}/current_link_width", width)
        tree.file(f"{at}/max_link_speed", speed_text(most))
        tree.file(f"{at}/max_link_width", lanes)
    if driver:
        tree.link(f"{at}/driver", f"/sys/bus/pci/drivers/{driver}")
        tree.folder(f"/sys/bus/pci/drivers/{driver}")
    if group is not None:
        tree.link(f"{at}/iommu_group", f"/sys/kernel/iommu_groups/{group}")
        tree.link(f"/sys/kernel/iommu_groups/{group}/devices/{bdf}", at)
    if physfn:
        tree.link(f"{at}/physfn", f"/sys/devices/{physfn}")
    for name, content in (extra or {}).items():
        tree.file(f"{at}/{name}", content)


def interface(tree, where, name):
    tree.link(f"/sys/class/net/{name}", f"/sys/devices/{where}/net/{name}")
    tree.file(f"/sys/devices/{where}/net/{name}/operstate", "up")


def disk(tree, where, name, number):
    tree.link(f"/sys/class/block/{name}", f"/sys/devices/{where}/{name}")
    tree.file(f"/sys/devices/{where}/{name}/dev", number)


# ---- the machines ------------------------------------------------------------


def server():
    """Two sockets, two clusters each: 4 NUMA nodes, 64 CPUs with SMT; a switch with a downtrained GPU; VMD."""
    tree = Tree()
    machine(
        tree, kernel="6.12.48-generic", arch="x86_64",
        cmdline="BOOT_IMAGE=/vmlinuz root=/dev/mapper/vg-root ro intel_iommu=on",
        cpuinfo="processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold 6326 CPU @ 2.90GHz\n"
                "flags\t\t: fpu tsc rdtscp constant_tsc nonstop_tsc",
        dmi={"sys_vendor": "Supermicro", "product_name": "SYS-220U-TNR"}, clocksource="tsc")
    places = {}
    for cpu in range(64):
        core = cpu % 32
        places[cpu] = (core // 8, core // 16, core // 16, core)
    cpus(tree, places)
    idle(tree, [("POLL", 0, 0), ("C1", 1, 0), ("C1E", 4, 0), ("C6", 170, 0)])
    governor(tree, 2, "powersave")
    process(tree, 1, "systemd")
    process(tree, 812, "irqbalance")
    for driver in ("pcilat", "vfio-pci"):
        tree.folder(f"/sys/bus/pci/drivers/{driver}")

    port = {"driver": "pcieport", "kind": ROOT_PORT, "msi": 1}
    pci(tree, "pci0000:00/0000:00:00.0", (0x8086, 0x09A2), 0x088000, subsystem=(0x15D9, 0x1B23), node=0, group=0)
    pci(tree, "pci0000:00/0000:00:17.0", (0x8086, 0xA182), 0x010601, subsystem=(0x15D9, 0x1B23), driver="ahci", node=0,
        bars=[(0, 0x92C00000, 0x2000, MEM), (1, 0x92C03000, 0x100, MEM), (2, 0x3070, 8, IO), (5, 0x92B80000, 0x80000, MEM)],
        msi=1, group=1)
    pci(tree, "pci0000:00/0000:00:14.0", (0x8086, 0xA1AF), 0x0C0330, subsystem=(0x15D9, 0x1B23), driver="xhci_hcd", node=0,
        bars=[(0, 0x387FFFF00000, 0x10000, MEM64)], msi=8, group=2)

    # A NIC in use, its second port without an address, and a virtual function of the first.
    nic = "pci0000:16/0000:16:02.0"
    pci(tree, nic, (0x8086, 0x347A), 0x060400, node=0, link=(8.0, 4, 16.0, 8), group=20, **port)
    for n in range(2):
        pci(tree, f"{nic}/0000:17:00.{n}", (0x8086, 0x1563), 0x020000, subsystem=(0x15D9, 0x1563), driver="ixgbe", node=0,
            kind=ENDPOINT, link=(8.0, 4, 8.0, 4), msi=1, msix=64, group=21 + n,
            bars=[(0, 0x387BFFA00000 + n * 0x200000, 0x200000, PREFETCH), (4, 0x387BFFE00000 + n * 0x4000, 0x4000, PREFETCH)],
            extra={"sriov_numvfs": 1 - n})
        interface(tree, f"{nic}/0000:17:00.{n}", f"ens2f{n}")
    pci(tree, f"{nic}/0000:17:10.0", (0x8086, 0x1565), 0x020000, subsystem=(0x15D9, 0x0000), node=0, kind=ENDPOINT, msix=3,
        mps=128, mrrs=128, group=23, physfn=f"{nic}/0000:17:00.0", bars=[(0, 0x387BFF800000, 0x4000, PREFETCH)])
    tree.file("/proc/net/route", "Iface\tDestination\tGateway \tFlags\nens2f0\t00000000\t0100A8C0\t0003\n"
                                 "ens2f0\t0000A8C0\t00000000\t0001")
    tree.file("/proc/net/if_inet6", "fe800000000000000000000000000001 03 40 20 80   ens2f1")

    # The system disk: LVM on the second partition.
    nvme = "pci0000:4a/0000:4a:02.0"
    pci(tree, nvme, (0x8086, 0x347A), 0x060400, node=1, link=(16.0, 4, 16.0, 4), group=30, **port)
    pci(tree, f"{nvme}/0000:4b:00.0", (0x144D, 0xA80A), 0x010802, subsystem=(0x144D, 0xA813), driver="nvme", node=1,
        kind=ENDPOINT, link=(16.0, 4, 16.0, 4), msix=64, msi=32, group=31, bars=[(0, 0xC6B00000, 0x8000, MEM64)])
    disk(tree, f"{nvme}/0000:4b:00.0/nvme/nvme0", "nvme0n1", "259:0")
    disk(tree, f"{nvme}/0000:4b:00.0/nvme/nvme0/nvme0n1", "nvme0n1p2", "259:2")
    tree.link("/sys/class/block/dm-0", "/sys/devices/virtual/block/dm-0")
    tree.file("/sys/devices/virtual/block/dm-0/dev", "254:0")
    tree.file("/sys/devices/virtual/block/dm-0/dm/name", "vg-root")
    tree.link(f"/sys/devices/{nvme}/0000:4b:00.0/nvme/nvme0/nvme0n1/nvme0n1p2/holders/dm-0", "/sys/devices/virtual/block/dm-0")
    tree.file("/proc/self/mountinfo", "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/mapper/vg-root rw\n"
                                      "23 22 0:21 / /proc rw - proc proc rw")
    tree.file("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority")

    # An idle disk that shares the slot's IOMMU group with a NIC: VFIO will not have it.
    slot = "pci0000:4a/0000:4a:04.0"
    pci(tree, slot, (0x8086, 0x347B), 0x060400, node=1, link=(8.0, 8, 16.0, 8), group=32, **port)
    pci(tree, f"{slot}/0000:4c:00.0", (0x15B3, 0x1017), 0x020000, subsystem=(0x15B3, 0x0020), driver="mlx5_core", node=1,
        kind=ENDPOINT, link=(8.0, 8, 8.0, 16), msix=64, mrrs=1024, group=32, bars=[(0, 0x38FFFC000000, 0x2000000, PREFETCH)])
    pci(tree, f"{slot}/0000:4c:00.1", (0x15B3, 0x1017), 0x020000, subsystem=(0x15B3, 0x0020), driver="mlx5_core", node=1,
        kind=ENDPOINT, link=(8.0, 8, 8.0, 16), msix=64, mrrs=1024, group=32, bars=[(0, 0x38FFFA000000, 0x2000000, PREFETCH)])

    # Two GPUs behind a switch: one link is downtrained, and ASPM is on there. The node of the second is not known.
    switch = "pci0000:97/0000:97:01.0"
    pci(tree, switch, (0x8086, 0x352A), 0x060400, node=2, link=(16.0, 16, 16.0, 16), group=40, **port)
    upstream = f"{switch}/0000:98:00.0"
    pci(tree, upstream, (0x1000, 0xC010), 0x060400, node=2, driver="pcieport", kind=UPSTREAM, link=(16.0, 16, 16.0, 16),
        msi=1, group=41)
    for n, now in enumerate([(16.0, 16), (2.5, 8)]):
        down = f"{upstream}/0000:99:{n * 16:02x}.0"
        pci(tree, down, (0x1000, 0xC010), 0x060400, node=2, driver="pcieport", kind=DOWNSTREAM, link=(*now, 16.0, 16), msi=8,
            aspm=2 * n, group=42 + n)
        pci(tree, f"{down}/0000:{0x9a + n:02x}:00.0", (0x10DE, 0x20F1), 0x030200, subsystem=(0x10DE, 0x145F), driver="nvidia",
            node=-1 if n else 2, kind=ENDPOINT, link=(*now, 16.0, 16), msi=1, msix=6, aspm=2 * n, group=44 + n,
            bars=[(0, 0xD5000000 + n * 0x1000000, 0x1000000, MEM), (1, 0x3A0000000000 + n * 0x1000000000, 0x1000000000, PREFETCH),
                  (3, 0x3A2000000000 + n * 0x2000000, 0x2000000, PREFETCH)])

    # Two domains: behind VMD a disk without a partition; an empty slot.
    vmd = "pci0000:e2/0000:e2:00.5"
    pci(tree, vmd, (0x8086, 0x28C0), 0x010400, subsystem=(0x8086, 0x0000), driver="vmd", node=3, kind=INTEGRATED, msix=64,
        group=50, bars=[(0, 0x3E7FE0000000, 0x2000000, MEM64)])
    pci(tree, f"{vmd}/pci10000:e2/10000:e2:02.0", (0x8086, 0x347A), 0x060400, node=3, link=(8.0, 4, 16.0, 4), **port)
    pci(tree, f"{vmd}/pci10000:e2/10000:e2:02.0/10000:e3:00.0", (0x8086, 0x0A54), 0x010802, subsystem=(0x8086, 0x4308),
        driver="nvme", node=3, kind=ENDPOINT, link=(8.0, 4, 8.0, 4), msix=129, mrrs=512, bars=[(0, 0xE2010000, 0x4000, MEM64)])
    pci(tree, f"{vmd}/pci10000:e2/10000:e2:03.0", (0x8086, 0x347B), 0x060400, node=3, link=(2.5, 0, 16.0, 4), **port)
    tree.write("server-2s")


def arm_server():
    """One socket of 128 cores without SMT, whose L3 is not described; the last 8 CPUs describe no cache at all."""
    tree = Tree()
    machine(
        tree, kernel="6.8.0-45-generic-64k", arch="aarch64", cmdline="root=/dev/nvme0n1p2 ro",
        cpuinfo="processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd atomics\nCPU implementer\t: 0x41\n"
                "CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1",
        dmi={"sys_vendor": "GIGABYTE", "product_name": "R152-P33-00"}, clocksource="arch_sys_counter",
        lockdown="none [integrity] confidentiality", aspm="default performance [powersave] powersupersave")
    cpus(tree, {cpu: (0, 36, 0, cpu) for cpu in range(128)}, l3=False, uncached=range(120, 128))
    idle(tree, [("LPI-0", 1, 0), ("LPI-1", 14, 1)])
    governor(tree, 128, "schedutil")
    tree.file("/sys/devices/system/cpu/cpufreq/boost", 1)
    tree.folder("/sys/bus/pci/drivers/vfio-pci")
    pmu(tree, "armv8_pmuv3_0", 8, "0-127", [("event", "config:0-15")], [("cpu_cycles", "event=0x0011")])
    pmu(tree, "arm_spe_0", 9, "0-127")
    pmu(tree, "smmuv3_pmcg_83ff8000", 10, "0", [("event", "config:0-15")], [("transaction", "event=0x1")])
    pmu(tree, "arm_cmn_0", 11, "0", [("eventid", "config:16-26"), ("type", "config:0-15")],
        [("dtc_cycles", "type=0x3,eventid=0x0")])

    port = {"driver": "pcieport", "kind": ROOT_PORT, "msi": 32, "node": 0}
    pci(tree, "pci0004:00/0004:00:00.0", (0x1DEF, 0xE110), 0x060000, node=0, group=0)
    for n, (segment, ids, sub, driver, code, most) in enumerate([
            (0x0004, (0x144D, 0xA824), (0x144D, 0xA801), "nvme", 0x010802, (16.0, 4)),
            (0x0005, (0x8086, 0x1533), (0x1458, 0xE000), "igb", 0x020000, (2.5, 1)),
            (0x0009, (0x10EE, 0x9038), (0x10EE, 0x0007), None, 0x058000, (8.0, 8))]):
        up = f"pci{segment:04x}:00/{segment:04x}:00:01.0"
        pci(tree, up, (0x1DEF, 0xE111 + n), 0x060400, link=(*most, 16.0, 16), group=1 + n, **port)
        bars = [(0, 0x40000000 + n * 0x1000000, 0x100000, MEM64 if n != 1 else MEM)]
        pci(tree, f"{up}/{segment:04x}:01:00.0", ids, code, subsystem=sub, driver=driver, node=0, kind=ENDPOINT,
            link=(*most, *most), msix=[32, 5, 0][n], msi=[0, 1, 32][n], group=4 + n, bars=bars)
    tree.write("arm64-128c")


def desktop_as_user():
    """A desktop read without root: 64 bytes of configuration space, no vectors, no payload sizes."""
    tree = Tree()
    machine(
        tree, kernel="6.1.0-40-amd64", arch="x86_64", cmdline="root=/dev/nvme0n1p2 quiet",
        cpuinfo="processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz\n"
                "flags\t\t: fpu tsc rdtscp constant_tsc nonstop_tsc",
        dmi={"sys_vendor": "Dell Inc.", "product_name": "OptiPlex 7060"}, clocksource="hpet", lockdown=None)
    cpus(tree, {cpu: (0, 0, 0, cpu % 6) for cpu in range(12)})
    idle(tree, [("POLL", 0, 0), ("C1_ACPI", 1, 0), ("C2_ACPI", 127, 0)])
    governor(tree, 12, "powersave")
    user = {"readable": 64}
    pci(tree, "pci0000:00/0000:00:00.0", (0x8086, 0x3EC2), 0x060000, subsystem=(0x1028, 0x085A), **user)
    pci(tree, "pci0000:00/0000:00:02.0", (0x8086, 0x3E92), 0x030000, subsystem=(0x1028, 0x085A), driver="i915", msi=1,
        bars=[(0, 0xD0000000, 0x1000000, MEM64), (2, 0xC0000000, 0x10000000, PREFETCH), (4, 0xF000, 0x40, IO)],
        extra={"boot_vga": 1}, **user)
    pci(tree, "pci0000:00/0000:00:17.0", (0x8086, 0xA352), 0x010601, subsystem=(0x1028, 0x085A), driver="ahci", msi=1,
        bars=[(0, 0xD1330000, 0x2000, MEM), (5, 0xD1334000, 0x800, MEM)], **user)
    pci(tree, "pci0000:00/0000:00:1b.0", (0x8086, 0xA32C), 0x060400, driver="pcieport", kind=ROOT_PORT,
        link=(8.0, 4, 8.0, 4), **user)
    pci(tree, "pci0000:00/0000:00:1b.0/0000:01:00.0", (0x15B7, 0x5006), 0x010802, subsystem=(0x15B7, 0x5006), driver="nvme",
        kind=ENDPOINT, link=(8.0, 4, 8.0, 4), msix=65, bars=[(0, 0xD1200000, 0x4000, MEM64)],
        extra={"link/l1_aspm": 1}, **user)
    pci(tree, "pci0000:00/0000:00:1f.6", (0x8086, 0x15BC), 0x020000, subsystem=(0x1028, 0x085A), driver="e1000e", msi=1,
        bars=[(0, 0xD1300000, 0x20000, MEM)], **user)
    tree.write("desktop-user")


def board():
    """A single-board computer without PCI, described by a device tree."""
    tree = Tree()
    machine(
        tree, kernel="6.6.31+rpt-rpi-v8", arch="aarch64", cmdline="console=tty1 root=/dev/mmcblk0p2",
        cpuinfo="processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n", clocksource="arch_sys_counter",
        lockdown=None, aspm=None)
    tree.file("/proc/device-tree/model", b"Raspberry Pi 3 Model B Plus Rev 1.3\0")
    cpus(tree, {cpu: (None, 0, 0, cpu) for cpu in range(4)}, l3=False)
    governor(tree, 1, "ondemand")
    tree.write("board-no-pci")


if __name__ == "__main__":
    for make in (server, arm_server, desktop_as_user, board):
        make()
