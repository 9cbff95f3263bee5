#!/bin/sh
set -eu
. ../lib.sh
module=k8s.io/kubernetes
v=$(version $module)
minor=${v#*.}
flags=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags="$flags -X $package.gitVersion=v$v -X $package.gitMajor=${v%%.*} -X $package.gitMinor=${minor%%.*}"
	flags="$flags -X $package.gitCommit= -X $package.gitTreeState=clean"
done
mkdir -p "$out/bin"
CGO_ENABLED=0 compile "$flags" -o "$out/bin/" \
	$module/cmd/kube-apiserver $module/cmd/kube-controller-manager $module/cmd/kube-scheduler $module/cmd/kube-proxy \
	$module/cmd/kubelet $module/cmd/kubectl $module/cmd/kubeadm
for name in kubelet kubectl; do
	binary $name "$v" host
done
for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubeadm; do
	binary $name "$v" bench
done
