#!/bin/bash
# shellcheck disable=SC2154 # name, self, dir and mark are those of the script that sources this
# What lab/setup-root and packaging/setup-test-root share: how mmdebstrap gets a Debian folder on this machine, and how the folder
# says what it was made by. To be sourced; `name` is what messages begin with, `self` the script, `dir` the folder,
# `mark` the name of its stamp.

debian_root_library=$(realpath "${BASH_SOURCE[0]}")
readonly keyring=/usr/share/keyrings/debian-archive-keyring.gpg

say() { echo "$name: $*"; }
fail() {
	echo "$name: $1" >&2
	shift
	for hint; do echo "hint: $hint" >&2; done
	exit 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif command -v sudo >/dev/null 2>&1; then sudo --preserve-env=PCIESCOPE_DEBIAN_MIRROR "$@"
	else fail "this needs root: it makes Debian folders or enters them; this user is not root and there is no sudo" \
		"run it as root, with XDG_CACHE_HOME set to a folder that this user can read"
	fi
}

# The stamp holds the recipe, so a change of the scripts makes the folder anew. `recipe_parts` are further files of it.
recipe_parts=()
recipe() { cat "$self" "$debian_root_library" "${recipe_parts[@]}" | sha256sum | cut -d' ' -f1; }
is_current() { [ "$(cat "$dir/$mark" 2>/dev/null)" = "$(recipe)" ]; }

# This machine's own Debian mirror, or nothing where it is not Debian: mmdebstrap then takes its default.
mirror() {
	if [ -n "${PCIESCOPE_DEBIAN_MIRROR:-}" ]; then
		echo "$PCIESCOPE_DEBIAN_MIRROR"
	elif [ "$(. /etc/os-release && echo "$ID")" = debian ]; then
		# shellcheck disable=SC2016 # apt's own variables
		apt-get indextargets --format '$(SUITE) $(COMPONENT) $(LABEL)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
			sed -n 's/^[^ ]* main Debian|\(https\?:.*\)/\1/p' | sed -n 1p
	fi
}

# Proxies, retries and the checks of dates: what makes apt work on this machine makes it work in the folder.
apt_settings() {
	apt-config dump | grep -E '^Acquire::(Check-Valid-Until|Check-Date|Retries|http::(Proxy|Timeout)|https::(Proxy|Timeout|CaInfo|Verify)[A-Za-z-]*|http::Proxy::.*|https::Proxy::.*) ' | grep -v '""' || true
}

# What a folder needs before it is begun: further programs are the arguments.
check_tools() {
	local program
	for program in mmdebstrap "$@"; do
		command -v "$program" >/dev/null 2>&1 || fail "$program is not installed" "make setup"
	done
	[ -e "$keyring" ] || fail "Debian's archive keys are not installed ($keyring)" "make setup"
}

# Makes $dir anew of suite $1 with mmdebstrap's further options $2...: beside what is there, and in its place once it is complete.
# `variant` and `architecture` are mmdebstrap's; minbase and amd64 if they are not set. `runner` is what mmdebstrap runs in.
bootstrap() {
	local release=$1 uri settings=() mirror_line=() line
	shift
	uri=$(mirror)
	[ -z "$uri" ] || mirror_line=("deb [signed-by=$keyring] $uri $release main")
	while read -r line; do settings+=("--aptopt=$line"); done < <(apt_settings)
	as_root rm -rf --one-file-system "$dir.partial"
	if ! as_root ${runner:+"$runner"} mmdebstrap --mode=root --variant="${variant:-minbase}" \
		--architectures="${architecture:-amd64}" "${settings[@]}" \
		--aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io "$@" \
		"$release" "$dir.partial" "${mirror_line[@]}" 9>&- >"$dir.log" 2>&1; then
		tail -n 15 "$dir.log" >&2
		as_root rm -rf --one-file-system "$dir.partial"
		fail "mmdebstrap failed; its messages are in $dir.log" \
			"is the Debian mirror reachable? PCIESCOPE_DEBIAN_MIRROR names another; then run this again"
	fi
}

# Puts the folder that `bootstrap` made in its place, stamped.
finish() {
	recipe | as_root tee "$dir.partial/$mark" >/dev/null
	[ ! -e "$dir" ] || as_root mv "$dir" "$dir.old"
	as_root mv "$dir.partial" "$dir"
	as_root rm -rf --one-file-system "$dir.old"
	rm -f "$dir.log"
}

# Deletes $dir, if a script of ours made it.
remove_root() {
	[ -e "$dir" ] || [ -e "$dir.partial" ] || [ -e "$dir.old" ] || return 0
	[ ! -e "$dir" ] || [ -e "$dir/$mark" ] || fail "$dir was not made by this script; not deleted"
	as_root rm -rf --one-file-system "$dir" "$dir.partial" "$dir.old"
	say "deleted $dir"
}
