#!/bin/sh
set -eu
. ../lib.sh
v=$(version go.etcd.io/etcd/server/v3)
mkdir -p "$out/bin"
export CGO_ENABLED=0
compile '' -o "$out/bin/etcd" go.etcd.io/etcd/server/v3
compile '' -o "$out/bin/etcdctl" go.etcd.io/etcd/etcdctl/v3
compile '' -o "$out/bin/etcdutl" go.etcd.io/etcd/etcdutl/v3
for name in etcd etcdctl etcdutl; do
	binary $name "$v" host
done
