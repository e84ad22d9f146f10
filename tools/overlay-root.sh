#!/bin/bash
# What scripts share that try something in a Debian folder of tools/debian-root.sh and leave that folder as it was. To be
# sourced after it, and called in a mount namespace of its own: what is mounted then ends with the script.

# Lays a folder over the Debian folder $1 and mounts /proc and /dev there. $2 is the folder of this run: what is written
# goes to $2/upper, and $2/root is the system.
overlay_root() { # Debian folder, run's folder
	mount --make-rprivate /
	mkdir -p "$2/upper" "$2/work" "$2/root"
	mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root" ||
		fail "cannot lay a folder over another one" "the cache folder must be on a file system that overlayfs can write to, such as ext4"
	mount -t proc proc "$2/root/proc"
	mount --rbind /dev "$2/root/dev"
}
