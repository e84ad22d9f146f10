#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Records what pciescope reads of a machine, for a golden test:
#
#   sh tests/sysfs/record-tree.sh NAME.tar.gz        (as root, or the vectors are missing)
#
# Copies files and links; changes nothing. Look through the archive before you
# give it away: it names the machine's model and its kernel command line. Serial
# numbers, addresses and user names are not in it. Needs sh, tar and gzip only,
# so that it runs in an initramfs.
set -eu

[ $# -eq 1 ] || { echo "usage: $0 NAME.tar.gz" >&2; exit 2; }
out=$1
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT

# Copies a file's content: sysfs states a size of 4096 for all, which tar would believe.
file() {
	[ -r "$1" ] && [ -f "$1" ] || return 0
	mkdir -p "$top${1%/*}"
	cat "$1" >"$top$1" 2>/dev/null || rm -f "$top$1"
}

link() {
	[ -L "$1" ] || return 0
	mkdir -p "$top${1%/*}"
	ln -s "$(readlink "$1")" "$top$1"
}

for f in /proc/sys/kernel/osrelease /proc/sys/kernel/arch /proc/cmdline /proc/cpuinfo /proc/stat \
	/proc/interrupts \
	/sys/devices/system/clocksource/clocksource0/current_clocksource /sys/kernel/security/lockdown \
	/sys/module/pcie_aspm/parameters/policy /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name \
	/proc/device-tree/model /sys/hypervisor/type /sys/devices/system/cpu/online; do
	file $f
done

for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
	for f in "$cpu"/topology/physical_package_id "$cpu"/topology/core_cpus_list "$cpu"/topology/thread_siblings_list \
		"$cpu"/topology/cluster_cpus_list "$cpu"/topology/cluster_id \
		"$cpu"/cache/index*/level "$cpu"/cache/index*/shared_cpu_list; do
		file "$f"
	done
	for node in "$cpu"/node*; do
		link "$node"
	done
done
for f in /sys/devices/system/cpu/cpu0/cpuidle/state*/name /sys/devices/system/cpu/cpu0/cpuidle/state*/latency \
	/sys/devices/system/cpu/cpu0/cpuidle/state*/disable /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; do
	file "$f"
done

for short in /sys/bus/pci/devices/*; do
	[ -L "$short" ] || continue
	link "$short"
	at=$(cd -P "$short" && pwd -P)
	for f in vendor device class subsystem_vendor subsystem_device numa_node driver_override resource config \
		current_link_speed current_link_width max_link_speed max_link_width sriov_numvfs boot_vga \
		link/l0s_aspm link/l1_aspm; do
		file "$at/$f"
	done
	for f in driver iommu_group physfn; do
		link "$at/$f"
	done
done
for driver in /sys/bus/pci/drivers/*; do
	[ -d "$driver" ] && mkdir -p "$top$driver"
done
for iommu in /sys/class/iommu/*; do
	[ ! -e "$iommu" ] || mkdir -p "$top$iommu"
done
for member in /sys/kernel/iommu_groups/*/devices/*; do
	link "$member"
done
for f in /sys/kernel/iommu_groups/*/type; do
	file "$f"
done

set -- proc
[ -d "$top/sys" ] && set -- proc sys
(cd "$top" && tar cf - "$@") | gzip -9 >"$out"
