# The only entry point. `make help` lists the targets.
SHELL := /bin/bash
CARGO = $(shell tools/find-cargo || echo false)
TARGET = $(or $(CARGO_TARGET_DIR),target)
PCIESCOPE = $(TARGET)/release/pciescope

.PHONY: help setup build test unit vm-test demo lint bench kmod deb clean distclean

help:				## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup:				## install what building and testing need (uses sudo when not root)
	tools/setup

build:				## build the program: target/release/pciescope
	tools/setup build
	$(CARGO) build --release --locked --workspace

kmod:				## build the kernel modules for the running kernel: kmod/*/*.ko
	$(MAKE) -C kmod

unit:				## the tests that need no virtual hardware
	tools/setup build
	$(MAKE) -C kmod check
	$(CARGO) test --workspace --locked --no-fail-fast

vm-test: build			## the tests on virtual hardware, on every guest kernel
	tools/setup lab
	lab/build-modules
	lab/build-modules --arch arm64
	$(CARGO) test --release --locked --no-fail-fast -p pciescope-lab --test 'vm_*' -- --test-threads=1

test: unit vm-test		## every test; sets up what is missing

demo: build			## boot the virtual hardware, measure it, leave demo/report.html and demo/records.jsonl
	tools/setup lab
	lab/build-modules
	$(PCIESCOPE) lab demo --output demo

lint:				## rustfmt, clippy, checkpatch, shellcheck where it is installed
	tools/setup build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	tools/lint-kmod
	tools/lint-sh

bench: build			## benchmarks: each a ratio to a peer or limit taken in the same run
	bench/all

deb: build			## Debian packages: target/deb/*.deb
	packaging/build-deb

clean:				## remove what was built (not the lab's root folder)
	rm -rf target demo
	$(MAKE) -C kmod clean

distclean: clean		## also remove the lab's root folder
	lab/setup-root --remove
