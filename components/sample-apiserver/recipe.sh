#!/bin/sh
# The API server that a conformance test puts behind the aggregation layer, in the version that the test names.
set -eu
. ../lib.sh
module=k8s.io/sample-apiserver
v=$(version $module)
mkdir -p "$out/bin"
CGO_ENABLED=0 compile '' -o "$out/bin/sample-apiserver" $module
binary sample-apiserver "$v" bench
