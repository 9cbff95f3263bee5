#!/bin/sh
set -eu
. ../lib.sh
module=github.com/containerd/containerd/v2
v=$(version $module)
mkdir -p "$out/bin"
CGO_ENABLED=0 compile "-X $module/version.Version=v$v -X $module/version.Package=$module" \
	-tags 'no_btrfs no_zfs no_devmapper netgo osusergo urfave_cli_no_docs' -o "$out/bin/" \
	$module/cmd/containerd $module/cmd/containerd-shim-runc-v2 $module/cmd/ctr
for name in containerd containerd-shim-runc-v2 ctr; do
	binary $name "$v" host
done
