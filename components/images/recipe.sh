#!/bin/sh
# One tar per image. The arguments are the finished parts, in the order build.sh names them.
set -eu
. ../lib.sh
maker=$1/image base=$2/base.tar pause=$3 etcd=$4 coredns=$5 flannel=$6 cni_flannel=$7 kube=$8
mkdir -p "$out/images"

# of PART NAME: the version that the part's own row gives.
of() {
	awk -v name="$2" '$2 == name { print $3 }' "$1/rows"
}

v=$(of "$kube" kube-apiserver)
for name in kube-apiserver kube-controller-manager kube-scheduler; do
	"$maker" -out "$out/images/$name.tar" -name "registry.k8s.io/$name:v$v" \
		-add "$kube/bin/$name=/usr/local/bin/$name" -entrypoint "/usr/local/bin/$name"
	image $name "$v" host "registry.k8s.io/$name:v$v"
done
"$maker" -out "$out/images/kube-proxy.tar" -name "registry.k8s.io/kube-proxy:v$v" -base "$base" \
	-add "$kube/bin/kube-proxy=/usr/local/bin/kube-proxy" -entrypoint /usr/local/bin/kube-proxy
image kube-proxy "$v" host "registry.k8s.io/kube-proxy:v$v"

v=$(of "$coredns" coredns)
"$maker" -out "$out/images/coredns.tar" -name "registry.k8s.io/coredns/coredns:v$v" \
	-add "$coredns/bin/coredns=/usr/local/bin/coredns" -entrypoint /usr/local/bin/coredns
image coredns "$v" host "registry.k8s.io/coredns/coredns:v$v"

# 3.10.2 is the name that containerd 2.3 and kubeadm 1.36 look for when nobody says otherwise.
v=$(of "$pause" pause)
"$maker" -out "$out/images/pause.tar" -name "registry.k8s.io/pause:$v" -name registry.k8s.io/pause:3.10.2 \
	-user 65535:65535 -add "$pause/bin/pause=/pause" -entrypoint /pause
image pause "$v" host "registry.k8s.io/pause:$v"

v=$(of "$flannel" flanneld)
"$maker" -out "$out/images/flannel.tar" -name "docker.io/flannel/flannel:v$v" -base "$base" \
	-add "$flannel/bin/flanneld=/usr/local/bin/flanneld" -link /opt/bin/flanneld=/usr/local/bin/flanneld \
	-add "$cni_flannel/bin/cni/flannel=/opt/cni/bin/flannel" -link /flannel=/opt/cni/bin/flannel \
	-entrypoint /usr/local/bin/flanneld
image flannel "$v" host "docker.io/flannel/flannel:v$v"

# For the benchmark against kubeadm only, hence also under the name that kubeadm 1.36 or 1.37 looks for.
v=$(of "$etcd" etcd)
case $v in
3.6.*) looks_for=3.6.8-0 ;;
*) looks_for=3.7.0-0 ;;
esac
"$maker" -out "$out/images/etcd.tar" -name "registry.k8s.io/etcd:$v-0" -name "registry.k8s.io/etcd:$looks_for" \
	-add "$etcd/bin/etcd=/usr/local/bin/etcd" -add "$etcd/bin/etcdctl=/usr/local/bin/etcdctl" \
	-add "$etcd/bin/etcdutl=/usr/local/bin/etcdutl" -entrypoint /usr/local/bin/etcd
image etcd "$v" bench "registry.k8s.io/etcd:$v-0"
