# Two commands matter: `make lab` and `make test`. They install, build and cache everything they need.

SHELL := /bin/sh
HACTL := target/x86_64-unknown-linux-gnu/release/hactl
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hactl
DIST  := $(CACHE)/dist
# The conformance suite of Kubernetes and the images of its tests.
E2E   := $(CACHE)/e2e
# The versions from and to which upgrades are tested, beside the default.
OTHERS := 1.34 1.35 1.36
LAB   ?= lab
HOSTS ?= 3
HOURS ?= 24
SEED ?= 1
FUZZ_SECONDS ?= 60
# Words in the names of conformance tests; without any, all tests run.
TESTS ?=
# Checks licences and sources; built once per version.
DENY_VERSION := 0.20.2
DENY := $(CACHE)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
# The registry for download tests; built once per version.
REGISTRY_VERSION := 3.0.0
REGISTRY := $(CACHE)/tools/registry-$(REGISTRY_VERSION)/registry
# The object storage for tests of copies of snapshots; built once per version.
STORAGE_VERSION := 1.8.0
STORAGE := $(CACHE)/tools/versitygw-$(STORAGE_VERSION)/versitygw
# Tests the alert rules; built once per version.
PROMTOOL_VERSION := 0.316.0
PROMTOOL := $(CACHE)/tools/promtool-$(PROMTOOL_VERSION)/promtool
# The same version of Prometheus scrapes guards in the lab; built once, without service discovery.
PROMETHEUS := $(CACHE)/tools/prometheus-$(PROMTOOL_VERSION)-kubernetes/prometheus
# The packages for hactl's own build and the lab; those for the components are in components/packages.
PACKAGES := build-essential cmake protobuf-compiler libprotobuf-dev lxc mmdebstrap iptables nftables iproute2 \
            openssh-client openssh-server sudo openssl shellcheck strace ca-certificates age zstd curl $(shell sed 's/\#.*//' components/packages)

.PHONY: help lab lab-down build tests packages components bundle others registry storage promtool prometheus suite test test-all test-first test-second test-vm check audit unit coverage fuzz bench soak crowd conformance clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

packages: ## install the Debian or Ubuntu packages that are missing
	@missing=; for p in $(PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  echo "installing:$$missing"; \
	  log=$$(mktemp); root=; [ "$$(id -u)" = 0 ] || root=sudo; \
	  { $$root apt-get update && $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$missing; } >"$$log" 2>&1 \
	  || { tail -n 20 "$$log"; echo "could not install the packages above; the complete log is $$log"; exit 1; }; rm -f "$$log"; fi

build: packages ## build hactl, one static binary
	@cargo build --release --locked

components: packages ## build Kubernetes, etcd, containerd and the rest from their Go modules
	@components/build.sh "$(DIST)"

bundle: build components ## build the bundle from them
	@$(HACTL) bundle build --from "$(DIST)"

others: build ## the same for the other Kubernetes versions of the upgrade tests
	@for minor in $(OTHERS); do components/build.sh "$(CACHE)/dist-$$minor" $$minor && $(HACTL) bundle build --from "$(CACHE)/dist-$$minor" || exit 1; done

lab: bundle ## create three bare hosts on this machine and a highly available cluster on them
	@$(HACTL) lab --name $(LAB) up --hosts $(HOSTS)
	@$(HACTL) up --yes -i "$$($(HACTL) lab --name $(LAB) inventory)"

lab-down: ## remove the lab and everything it created
	@if [ -x $(HACTL) ]; then $(HACTL) lab --name $(LAB) down; else echo "hactl is not built, so there is no lab"; fi

$(DENY):
	@echo "building cargo-deny $(DENY_VERSION) (once, some minutes)"
	@cargo install --quiet --locked --version $(DENY_VERSION) --root $(CACHE)/tools/cargo-deny-$(DENY_VERSION) \
	  --target-dir $(CACHE)/tools/build cargo-deny && rm -rf "$(CACHE)/tools/build"

$(REGISTRY):
	@echo "building the registry $(REGISTRY_VERSION), for tests (once, some minutes)"
	@GOBIN="$(dir $(REGISTRY))" GOFLAGS='-buildvcs=false -trimpath' GOWORK=off CGO_ENABLED=0 \
	  go install github.com/distribution/distribution/v3/cmd/registry@v$(REGISTRY_VERSION)

$(STORAGE):
	@echo "building the object storage $(STORAGE_VERSION), for tests (once, some minutes)"
	@GOBIN="$(dir $(STORAGE))" GOFLAGS='-buildvcs=false -trimpath' GOWORK=off CGO_ENABLED=0 \
	  go install github.com/versity/versitygw/cmd/versitygw@v$(STORAGE_VERSION)

$(PROMTOOL):
	@echo "building promtool $(PROMTOOL_VERSION), for tests (once, some minutes)"
	@GOBIN="$(dir $(PROMTOOL))" GOFLAGS='-buildvcs=false -trimpath' GOWORK=off CGO_ENABLED=0 \
	  go install github.com/prometheus/prometheus/cmd/promtool@v$(PROMTOOL_VERSION)

$(PROMETHEUS):
	@echo "building prometheus $(PROMTOOL_VERSION), for tests (once, some minutes)"
	@GOBIN="$(dir $(PROMETHEUS))" GOFLAGS='-buildvcs=false -trimpath' GOWORK=off CGO_ENABLED=0 \
	  go install -tags remove_all_sd,enable_kubernetes_sd github.com/prometheus/prometheus/cmd/prometheus@v$(PROMTOOL_VERSION)

prometheus: $(PROMETHEUS) ## build Prometheus for the test that scrapes guards

promtool: $(PROMTOOL) ## build promtool for the test of the alert rules

storage: $(STORAGE) ## build the object storage for tests of copies of snapshots

registry: $(REGISTRY) ## build the registry for download tests

suite: packages ## build the conformance suite of Kubernetes and the images of its tests
	@components/build.sh "$(E2E)" '' e2e

check: packages ## check formatting, lints, shell scripts, and the dependencies if they have changed
	cargo fmt --check
	cargo clippy --release --all-targets --locked -- -D warnings
	cargo clippy --release --locked --test lab --test bench --test publishers --test etcd --test storage --test vagrant --test vm -- -D warnings
	shellcheck components/*.sh components/*/*.sh templates/*.sh templates/*/*.sh vagrant/*/*.sh tests/*.sh tests/*/*.sh docs/power/* .ci/run
	@sha256sum --check --status .ci/audited || $(MAKE) --no-print-directory audit

audit: packages $(DENY) ## check licences, sources and advisories of the dependencies
	$(DENY) check bans licenses sources
	@tests/advisories.sh $(DENY)
	@sha256sum Cargo.lock deny.toml >.ci/audited

tests: build ## compile the programs of `make test`
	cargo test --release --locked --no-run
	cargo test --release --locked --no-run --test lab --test publishers --test etcd --test storage --test vagrant

unit: build ## run the tests that need no lab
	cargo test --release --locked -q

coverage: build ## run the same with counters, and print the part of the code that they run
	@tests/coverage.sh

# Vagrant, and the providers whose settings the tests use or read.
test test-all test-first test-second: PACKAGES += vagrant vagrant-lxc vagrant-libvirt

test: tests bundle registry storage ## run everything, with the lab scenarios that cover every capability
	@DIST="$(DIST)" REGISTRY="$(REGISTRY)" OBJECT_STORAGE="$(STORAGE)" tests/run.sh cut

test-all: audit bundle others registry storage promtool prometheus suite ## run everything, with all lab scenarios
	@DIST="$(DIST)" REGISTRY="$(REGISTRY)" OBJECT_STORAGE="$(STORAGE)" PROMTOOL="$(PROMTOOL)" \
	  PROMETHEUS="$(PROMETHEUS)" E2E="$(E2E)" tests/run.sh all

test-first: audit bundle others registry storage promtool ## run the first half of that: everything except half of the lab scenarios
	@DIST="$(DIST)" REGISTRY="$(REGISTRY)" OBJECT_STORAGE="$(STORAGE)" PROMTOOL="$(PROMTOOL)" tests/run.sh first

test-second: bundle others registry storage prometheus suite ## run the second half: the other lab scenarios
	@DIST="$(DIST)" REGISTRY="$(REGISTRY)" OBJECT_STORAGE="$(STORAGE)" PROMETHEUS="$(PROMETHEUS)" E2E="$(E2E)" tests/run.sh second

test-vm: PACKAGES += qemu-system-x86 e2fsprogs
test-vm: bundle ## run a cluster on one emulated machine with a kernel of its own: modules, swap, a reboot, a loss of power
	@cargo test --release --locked --test vm

fuzz: ## fuzz every parser for $(FUZZ_SECONDS) seconds each
	@HACTL_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --release --locked --test fuzz -- --nocapture --test-threads=1

# `time` measures memory, the venv is for ansible-core.
bench: PACKAGES += time python3-venv
bench: bundle others ## measure the figures of docs/figures.md, with kubeadm and ansible-core in the same run
	@DIST="$(DIST)" cargo test --release --locked --test bench

soak: bundle ## let one random fault after the other happen on $(HOSTS) hosts for $(HOURS) hours, by the numbers of $(SEED)
	@DIST="$(DIST)" cargo test --release --locked --test lab -- soak $(HOURS) $(HOSTS) $(SEED)

crowd: bundle ## let pods use up the processors of five hosts for $(HOURS) hours: no guard repairs anything
	@DIST="$(DIST)" cargo test --release --locked --test lab -- crowd $(HOURS) 5

conformance: bundle registry suite ## run the conformance tests, or those with a word of $(TESTS), on three control-plane hosts and two workers
	@DIST="$(DIST)" REGISTRY="$(REGISTRY)" E2E="$(E2E)" cargo test --release --locked --test lab -- conformance $(TESTS)

clean: lab-down ## remove the lab and the build output; caches stay
	cargo clean
