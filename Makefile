# The only entry point. `make help` lists the targets.
SHELL := /bin/bash
CARGO = tools/cargo
TARGET = $(or $(CARGO_TARGET_DIR),target)
PCIESCOPE = $(TARGET)/release/pciescope
# The program as the tests build it (Cargo.toml says how that differs).
TESTED_PCIESCOPE = $(TARGET)/tested/pciescope
PREFIX = /usr/local
# What `build` builds for, and the architecture of the lab's guests: nothing (this machine's) or arm64.
ARCH =
# An arm64 machine links with its own compiler, which need not have this name.
ifneq ($(shell uname -m),aarch64)
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
endif
ARM64 = --locked -p pciescope-cli --target aarch64-unknown-linux-gnu
# Its packages: of a program in this folder of the target, to that folder, by this program of ours that runs here.
ARM64_DEB = rm -f $(2)/*.deb && PCIESCOPE_HERE=$(3) PCIESCOPE=$(1)/pciescope packaging/build-deb --arch arm64 --output $(2)
# The tests of pciescope-convert for it; the compiler lays a list of sources, all-*.d, beside them.
ARM64_TESTS = $(TARGET)/aarch64-unknown-linux-gnu/release/deps/all-????????????????
ARM64_GUEST = $(TARGET)/aarch64-unknown-linux-gnu/tested
ifeq ($(ARCH),arm64)
export PCIESCOPE_LAB_ARCH = arm64
else ifneq ($(ARCH),)
$(error ARCH=$(ARCH): arm64, or nothing for this machine's own architecture)
endif

# Everything that is tested, in one build: cargo chooses the features of dependencies for all that it is asked for at once,
# and would build a third of them again for each further choice.
TESTED = --profile tested --locked --workspace

.PHONY: help setup build tested test unit vm-test prove-links prove-why prove-tune test-5.10 arm64-program arm64-test browser-test pictures parquet-test fleet-test fleet-lint fleet-bench demo lint fuzz sanitize can-sanitize bench kmod install deb dist test-dist test-fresh test-packages test-systemd clean distclean

help:				## this list
	@sed -n 's/^\([a-z0-9.-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup:				## install what building and testing need (uses sudo when not root)
	tools/setup

build:				## build the program: target/release/pciescope; ARCH=arm64: target/aarch64-unknown-linux-gnu/release/pciescope
	tools/setup build
ifeq ($(ARCH),arm64)
	tools/setup cross
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release $(ARM64)
else
	$(CARGO) build --release --locked -p pciescope-cli
endif

kmod:				## build the kernel modules for the running kernel: kmod/*/*.ko
	$(MAKE) -C kmod

unit: tested			## the tests that need no virtual hardware
	tools/setup dist
	tools/test-scripts
	$(MAKE) -C kmod check
	$(CARGO) test $(TESTED) --no-fail-fast --lib --bins --tests $(if $(TEST_TIMES),-- -Zunstable-options --report-time)
	$(CARGO) test $(TESTED) --doc

tested:
	tools/setup build tests
	$(CARGO) build $(TESTED) --bins --tests
	$(CARGO) build $(TESTED) --test vm

vm-test: tested			## the tests on virtual hardware, on every guest kernel; ONLY=NAME: those with NAME in theirs; ARCH=arm64
	tools/setup lab
ifeq ($(ARCH),arm64)
	tools/setup cross arm64
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release $(ARM64)
	rm -f $(ARM64_TESTS)
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) test --no-run --release $(ARM64:cli=convert) --test all
	$(MAKE) deb dist ARCH=arm64 PCIESCOPE=$(TESTED_PCIESCOPE)
else
	lab/build-modules
endif
	lab/build-modules --arch arm64
	PCIESCOPE_LAB_PACKAGES=$(abspath $(TARGET)/deb-arm64) PCIESCOPE_LAB_SHAPES=$$(ls $(abspath $(ARM64_TESTS)) 2>/dev/null) \
		PCIESCOPE_LAB_ARCHIVE=$$(ls $(abspath $(TARGET))/dist/*-aarch64.tar.xz 2>/dev/null) \
		$(CARGO) test $(TESTED) --test vm -- $(ONLY)

prove-links: tested		## a thousand planted changes of links on each of three kernels (docs/watch.md); half an hour
	tools/setup lab
	lab/build-modules
	PROVE=1 PCIESCOPE_LAB_PATIENCE=5 $(CARGO) test $(TESTED) --test vm -- watch::

prove-why: tested arm64-program	## two hundred causes of slow samples of each kind, on three kernels and on arm64; two hours
	tools/setup lab arm64
	lab/build-modules
	lab/build-modules --arch arm64 6.12
	PROVE=1 PCIESCOPE_LAB_PATIENCE=10 $(CARGO) test $(TESTED) --test vm -- why::
	PROVE=1 PCIESCOPE_LAB_ARCH=arm64 PCIESCOPE_LAB_PROFILE=tested PCIESCOPE_LAB_PATIENCE=10 \
		$(CARGO) test $(TESTED) --test vm -- why::every_plant_gets_its_name_on_6_12

prove-tune: tested		## 3,000 simulated experiments on noise of the lab, 40 in a guest, 540 kills (docs/tune.md); a quarter of an hour
	PROVE=1 $(CARGO) test $(TESTED) --test all -- --nocapture tune_noise:: tune::kills_at_random
	tools/setup lab
	lab/build-modules
	PROVE=1 PCIESCOPE_LAB_PATIENCE=10 $(CARGO) test $(TESTED) --test vm -- tune::

test-5.10: tested		## the core suites on Debian 11's kernel, which is added to the lab's root folder and so to vm-test
	tools/setup lab
	lab/setup-kernel 5.10
	lab/build-modules 5.10
	$(CARGO) test $(TESTED) --test vm -- on_5_10

arm64-program:
	tools/setup cross
	$(CARGO) build --profile tested $(ARM64)

arm64-test: tested arm64-program	## the condensed pass on arm64: three guests, each module, an experiment of each seed
	tools/setup lab arm64
	lab/build-modules --arch arm64 6.12
	$(call ARM64_DEB,$(ARM64_GUEST),$(ARM64_GUEST)/deb,$(TESTED_PCIESCOPE))
	PCIESCOPE_LAB_ARCH=arm64 PCIESCOPE_LAB_PROFILE=tested PCIESCOPE_LAB_PACKAGES=$(abspath $(ARM64_GUEST)/deb) \
		$(CARGO) test $(TESTED) --test vm -- arm64::

browser-test: tested		## the pages in headless Chromium, with screenshots; installs Debian's chromium where there is none
	tools/setup browser
	PCIESCOPE=$(abspath $(TESTED_PCIESCOPE)) $(CARGO) test $(TESTED) --no-fail-fast \
		--test 'browser_*' -- --ignored --test-threads=1 --nocapture
	@echo "browser-test: look at target/screenshots/"

pictures: build		## the pictures of README.md: docs/pictures, of the demo's records where `make demo` has left any
	tools/setup browser
	$(CARGO) build --release --locked -p pciescope-browser-tests --example pictures
	PCIESCOPE=$(abspath $(PCIESCOPE)) $(TARGET)/release/examples/pictures \
		$(firstword $(wildcard demo/records.jsonl) tests/records/demo.jsonl) docs/pictures

parquet-test: build		## Parquet files read by DuckDB, polars and pandas, which come from PyPI
	tools/setup parquet
	tests/parquet/run $(PCIESCOPE) $(TARGET)/parquet

fleet-test: tested		## the package for many hosts (docs/fleet.md); ALL=1: also with Spark, S3, a browser; ONLY=NAME: some
	tools/setup fleet $(if $(ALL),cluster spark browser)
	PCIESCOPE=$(abspath $(TESTED_PCIESCOPE)) fleet/tests/run $(if $(ALL),--all) \
		pytest $(if $(ALL),,-n 2 -m 'not slow') $(if $(ONLY),-k '$(ONLY)')

fleet-lint:			## ruff and mypy on that package
	tools/setup fleet
	fleet/tests/run sh -c 'ruff format --check && ruff check && mypy'

fleet-bench: build		## what that package finds and how it grows (docs/fleet-method.md); hours
	tools/setup fleet spark
	PCIESCOPE=$(abspath $(PCIESCOPE)) fleet/tests/run --all bench/all

test: unit browser-test fleet-test vm-test	## every test but the long ones of fleet-test; sets up what is missing

demo:				## boot the virtual hardware, measure it, leave demo/report.html and demo/records.jsonl; ARCH=arm64: an arm64 guest
	$(MAKE) ARCH= build
ifeq ($(ARCH),arm64)
	$(MAKE) build
	tools/setup lab arm64
	lab/build-modules --arch arm64 6.12
else
	tools/setup lab
	lab/build-modules
endif
	$(PCIESCOPE) lab demo --dir demo

lint:				## rustfmt, clippy, checkpatch, shellcheck where it is installed
	tools/setup build
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(TESTED) --all-targets -- -D warnings
	$(CARGO) clippy $(TESTED) --test vm -- -D warnings
	$(CARGO) fetch --quiet --locked --manifest-path fuzz/Cargo.toml
	$(MAKE) fleet-lint
	tools/lint-words
	tools/lint-names
	tools/lint-kmod
	tools/lint-sh

fuzz:				## fuzz all that anybody may write, 10 s a target (docs/fuzzing.md)
	tools/setup fuzz
	tools/fuzz

sanitize: can-sanitize tested	## the suites on guest kernels that look for faults (docs/sanitizers.md); root, hours
	tools/setup lab
	lab/setup-sanitize
	tools/sanitize $(ONLY)

can-sanitize:
	@tools/sanitize --check

bench: build			## benchmarks: each a ratio to a peer or limit taken in the same run
	bench/all

install:			## the program, its manual pages and completions to PREFIX=/usr/local below DESTDIR=
	packaging/install program "$(DESTDIR)" "$(PREFIX)"

deb:				## Debian packages: target/deb/*.deb; ARCH=arm64: those of arm64, after `make build`
	tools/setup build
ifeq ($(ARCH),arm64)
	tools/setup cross
	$(CARGO) build --profile packaged $(ARM64)
	$(call ARM64_DEB,$(TARGET)/aarch64-unknown-linux-gnu/packaged,$(TARGET)/deb-arm64,$(PCIESCOPE))
else
	$(CARGO) build --profile packaged --locked -p pciescope-cli
	PCIESCOPE=$(TARGET)/packaged/pciescope packaging/build-deb
endif

dist:				## a tarball with a static program for any Linux of this architecture: target/dist/; ARCH=arm64
	tools/setup build dist
ifeq ($(ARCH),arm64)
	tools/setup cross
	PCIESCOPE_HERE=$(PCIESCOPE) packaging/build-dist --machine aarch64
else
	packaging/build-dist
endif

test-dist: dist			## unpack and run that tarball in bare systems of Debian 11, 12 and 13
	tools/setup packages
	packaging/test-dist

test-fresh:			## `make demo` and the unit tests in bare systems of Debian 12 and 13, as a newcomer runs them
	tools/setup packages
	tools/test-fresh

test-packages: deb		## install, upgrade and purge the packages in clean systems of Debian 12 and 13; ARCH=arm64: in one of 13
	tools/setup packages
ifeq ($(ARCH),arm64)
	PCIESCOPE=$(abspath $(TARGET)/aarch64-unknown-linux-gnu/packaged/pciescope) PCIESCOPE_HERE=$(abspath $(PCIESCOPE)) \
		packaging/test-packages trixie-arm64
else
	PCIESCOPE=$(abspath $(TARGET)/packaged/pciescope) packaging/test-packages
endif

test-systemd: build		## the exporter as a service of systemd 252 and 257, in a guest whose clock jumps
	tools/setup lab
	lab/build-modules 6.12
	packaging/test-systemd

clean:				## remove what was built (not the lab's root folder)
	rm -rf target demo
	$(MAKE) -C kmod clean

distclean: clean		## also remove the lab's root folders, those of `make sanitize` and those of the packages' tests
	lab/setup-sanitize --remove
	lab/setup-arm64 --remove
	lab/setup-root --remove
	packaging/setup-test-root --remove bookworm
	packaging/setup-test-root --remove trixie
	packaging/setup-test-root --remove trixie-arm64
	tools/test-fresh --remove
	packaging/test-dist --remove
	cache=$${XDG_CACHE_HOME:-$$HOME/.cache}/pciescope; rm -rf "$$cache"/*.lock "$$cache"/*.log "$$cache"/qemu-user "$$cache"/initramfs "$$cache"/kvm; \
		rmdir --ignore-fail-on-non-empty "$$cache" 2>/dev/null || true
