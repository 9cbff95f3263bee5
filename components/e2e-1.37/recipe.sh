#!/bin/sh
# The conformance suite of Kubernetes, the program that runs it, and the programs and files of its test images.
set -eu
. ../lib.sh
module=k8s.io/kubernetes
v=$(version $module)
minor=${v#*.}
flags='-s -w'
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags="$flags -X $package.gitVersion=v$v -X $package.gitMajor=${v%%.*} -X $package.gitMinor=${minor%%.*}"
	flags="$flags -X $package.gitCommit= -X $package.gitTreeState=clean"
done
mkdir -p "$out/bin" "$out/data"
export CGO_ENABLED=0
compile '' -o "$out/bin/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
compile '' -o "$out/bin/agnhost" $module/test/images/agnhost
compile '' -o "$out/bin/nnp" $module/test/images/nonewprivs
# Otherwise go would vet all of Kubernetes after it has compiled it.
go test -c -vet=off -trimpath -ldflags "$flags" -o "$out/bin/e2e.test" $module/test/e2e

images=$(go list -m -f '{{.Dir}}' $module)/test/images
for file in agnhost/porter/localhost.crt agnhost/porter/localhost.key; do
	install -m 644 "$images/$file" "$out/data/${file##*/}"
done
for name in kitten nautilus; do
	mkdir "$out/data/$name"
	install -m 644 "$images/$name/html/$name.jpg" "$images/$name/html/data.json" "$out/data/$name/"
done
binary ginkgo "$(version github.com/onsi/ginkgo/v2)" bench
for name in agnhost nnp e2e.test; do
	binary $name "$v" bench
done
