#!/bin/sh
set -eu
. ../lib.sh
module=github.com/containernetworking/plugins
v=$(version $module)
mkdir -p "$out/bin/cni"
CGO_ENABLED=0 compile "-X $module/pkg/utils/buildversion.BuildVersion=v$v" -o "$out/bin/cni/" \
	$module/plugins/main/bridge $module/plugins/main/loopback $module/plugins/main/ptp \
	$module/plugins/ipam/host-local $module/plugins/meta/portmap
for plugin in bridge loopback ptp host-local portmap; do
	binary "cni-$plugin" "$v" host "bin/cni/$plugin"
done
