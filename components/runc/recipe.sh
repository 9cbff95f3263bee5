#!/bin/sh
set -eu
. ../lib.sh
v=$(version github.com/opencontainers/runc)
mkdir -p "$out/bin"
CGO_ENABLED=1 compile "-linkmode external -extldflags -static" -tags 'seccomp netgo osusergo' \
	-o "$out/bin/" github.com/opencontainers/runc
binary runc "$v" host
