#!/bin/sh
# The CNI plugin of type flannel, from the last release of the common plugins that had it: its own module is not
# on the Go proxy. It only reads flanneld's subnet file and hands over to bridge and host-local.
set -eu
. ../lib.sh
module=github.com/containernetworking/plugins
v=$(version $module)
mkdir -p "$out/bin/cni"
CGO_ENABLED=0 compile "-X $module/pkg/utils/buildversion.BuildVersion=v$v" -o "$out/bin/cni/" $module/plugins/meta/flannel
binary cni-flannel "$v" host bin/cni/flannel
