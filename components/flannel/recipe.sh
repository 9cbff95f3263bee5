#!/bin/sh
set -eu
. ../lib.sh
module=github.com/flannel-io/flannel
v=$(version $module)
mkdir -p "$out/bin"
CGO_ENABLED=1 compile "-X $module/pkg/version.Version=v$v -linkmode external -extldflags -static" \
	-tags 'netgo osusergo' -o "$out/bin/flanneld" $module
binary flanneld "$v" bench
