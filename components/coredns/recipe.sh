#!/bin/sh
set -eu
. ../lib.sh
v=$(version github.com/coredns/coredns)
mkdir -p "$out/bin"
CGO_ENABLED=0 compile '' -o "$out/bin/" github.com/coredns/coredns
binary coredns "$v" bench
