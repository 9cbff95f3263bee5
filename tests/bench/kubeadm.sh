#!/bin/sh
# The peer: a highly available cluster with kubeadm as documented (haproxy and keepalived in front of the API servers,
# init, two joins with --control-plane), with the same binaries and images, over SSH. Three bare hosts of a lab.
# kubeadm.sh up LABDIR DIST NET: prints `stage SECONDS` lines. NET is the first three numbers of the lab's network.
# kubeadm.sh upgrade LABDIR DIST NET: upgrades the same cluster to the Kubernetes of another DIST, also as documented:
# `kubeadm upgrade` on one host after the other, then the kubelet of each, drained meanwhile.
set -eu

verb=$1
lab=$2
dist=$3
net=$4
vip=$net.100
version=$("$dist/bin/kubeadm" version -o short)
ignore="--ignore-preflight-errors=all"
hosts="$net.11 $net.12 $net.13"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() {
	to=$1
	shift
	ssh -o BatchMode=yes -o LogLevel=ERROR -o UserKnownHostsFile="$lab/known_hosts" -i "$lab/id_ed25519" "ops@$to" "sudo sh -c '$*'"
}

# The tag of an image of the same components as hactl's.
tag() {
	tar -xOf "$dist/images/$1.tar" index.json | grep -o '"io.containerd.image.name":"[^"]*"' | sed -n '1s/.*:\(.*\)"/\1/p'
}

# Runs a function for every host at once; fails if any fails.
all() {
	pids=
	for h in $hosts; do
		"$1" "$h" >"$work/$1.$h.log" 2>&1 &
		pids="$pids $!"
	done
	for p in $pids; do
		wait "$p" || { tail -n 15 "$work/$1".*.log >&2; exit 1; }
	done
}

now() { date +%s.%N; }
stage() {
	printf '%s %s\n' "$1" "$(echo "$2 $(now)" | awk '{ printf "%.1f", $2 - $1 }')"
}

cat >"$work/containerd.toml" <<'T'
version = 3
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'registry.k8s.io/pause:3.10.1'
T
cat >"$work/containerd.service" <<'T'
[Unit]
After=network.target
[Service]
ExecStart=/usr/local/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
LimitNOFILE=infinity
[Install]
WantedBy=multi-user.target
T
cat >"$work/kubelet.service" <<'T'
[Unit]
After=containerd.service
[Service]
ExecStart=/usr/local/bin/kubelet
Restart=always
RestartSec=10
[Install]
WantedBy=multi-user.target
T
cat >"$work/10-kubeadm.conf" <<'T'
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
T
cat >"$work/haproxy.cfg" <<T
global
    log /dev/log local0
    daemon
defaults
    mode tcp
    timeout http-request 10s
    timeout queue 20s
    timeout connect 5s
    timeout client 35s
    timeout server 35s
    timeout http-keep-alive 10s
    timeout check 10s
frontend apiserver
    bind *:8443
    mode tcp
    option tcplog
    default_backend apiserverbackend
backend apiserverbackend
    option httpchk
    http-check connect ssl
    http-check send meth GET uri /healthz
    http-check expect status 200
    mode tcp
    balance roundrobin
    server cp1 $net.11:6443 check verify none
    server cp2 $net.12:6443 check verify none
    server cp3 $net.13:6443 check verify none
T
cat >"$work/check_apiserver.sh" <<'T'
#!/bin/sh
curl -sfk --max-time 2 https://localhost:8443/healthz -o /dev/null
T
keepalived() {
	cat <<T
global_defs {
    router_id LVS_DEVEL
}
vrrp_script check_apiserver {
  script "/etc/keepalived/check_apiserver.sh"
  interval 3
  weight -2
  fall 10
  rise 2
}
vrrp_instance VI_1 {
    state $1
    interface eth0
    virtual_router_id 51
    priority $2
    authentication {
        auth_type PASS
        auth_pass 42
    }
    virtual_ipaddress {
        $vip
    }
    track_script {
        check_apiserver
    }
}
T
}
keepalived MASTER 101 >"$work/keepalived.$net.11"
keepalived BACKUP 100 >"$work/keepalived.$net.12"
keepalived BACKUP 100 >"$work/keepalived.$net.13"
cat >"$work/kubeadm.yaml" <<T
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: $net.11, bindPort: 6443}
nodeRegistration:
  criSocket: unix:///run/containerd/containerd.sock
  imagePullPolicy: Never
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: $version
controlPlaneEndpoint: $vip:8443
networking: {podSubnet: 10.244.0.0/16}
dns: {imageTag: $(tag coredns)}
etcd: {local: {imageTag: $(tag etcd)}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
# As in templates/kubelet/config.yaml: at kubeadm's default, the disk that all hosts share may count as full.
evictionHard: {memory.available: 100Mi, nodefs.available: 5%, nodefs.inodesFree: 3%, imagefs.available: 5%}
failCgroupV1: false
failSwapOn: false
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack: {maxPerCore: 0, min: 0}
T

packages() {
	run "$1" "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends haproxy keepalived"
}
copy() {
	tar -C "$dist" -cf - bin/kubeadm bin/kubelet bin/kubectl bin/containerd bin/containerd-shim-runc-v2 bin/ctr bin/runc \
		bin/cni images/kube-apiserver.tar images/kube-controller-manager.tar images/kube-scheduler.tar images/kube-proxy.tar \
		images/coredns.tar images/etcd.tar images/pause.tar images/flannel.tar |
		run "$1" "mkdir -p /opt/kubeadm && tar -C /opt/kubeadm -xf -"
	tar -C "$work" -cf - containerd.toml containerd.service kubelet.service 10-kubeadm.conf haproxy.cfg check_apiserver.sh "keepalived.$1" kubeadm.yaml |
		run "$1" "tar -C /opt/kubeadm -xf -"
}
install() {
	run "$1" "set -e; cd /opt/kubeadm; mkdir -p /opt/cni/bin /etc/containerd /etc/systemd/system/kubelet.service.d /etc/keepalived
	mv bin/cni/* /opt/cni/bin/; rmdir bin/cni; mv bin/* /usr/local/bin/
	cp containerd.toml /etc/containerd/config.toml; cp containerd.service kubelet.service /etc/systemd/system/
	cp 10-kubeadm.conf /etc/systemd/system/kubelet.service.d/; cp haproxy.cfg /etc/haproxy/haproxy.cfg
	cp check_apiserver.sh /etc/keepalived/; chmod 755 /etc/keepalived/check_apiserver.sh; cp keepalived.$1 /etc/keepalived/keepalived.conf
	echo net.ipv4.ip_forward=1 >/etc/sysctl.d/k8s.conf; sysctl -qw net.ipv4.ip_forward=1
	systemctl daemon-reload; systemctl enable -q --now containerd; systemctl enable -q kubelet haproxy keepalived; systemctl restart haproxy keepalived
	for i in images/*.tar; do ctr -n k8s.io images import \$i >/dev/null; done"
}

# Waits for three Ready nodes, and for every pod of the control plane and of the network.
everything_ready() {
	deadline=$(($(date +%s) + 300))
	until run "$net.11" "kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes,pods -A --no-headers" 2>/dev/null | awk '
		$1 ~ /^node\// { n++; if ($2 == "Ready") r++ }
		$2 ~ /^pod\// { p++; split($3, a, "/"); if (a[1] == a[2] && $4 == "Running") q++ }
		END { exit !(n == 3 && r == 3 && p >= 20 && p == q) }'; do
		[ "$(date +%s)" -lt "$deadline" ] || { echo "not ready after 300 s" >&2; exit 1; }
		sleep 0.5
	done
}
up() {
	t=$(now); all packages; stage packages "$t"
	t=$(now); all copy; stage copy "$t"
	t=$(now); all install; stage import "$t"
	t=$(now)
	run "$net.11" "kubeadm init --config /opt/kubeadm/kubeadm.yaml --upload-certs $ignore" >"$work/init.log" 2>&1 || { tail -n 30 "$work/init.log" >&2; exit 1; }
	stage init "$t"
	t=$(now)
	run "$net.11" "kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f -" <"$(dirname "$0")/flannel.yaml" >/dev/null
	join=$(sed -n 's/\\$//; /kubeadm join/,/certificate-key/p' "$work/init.log" | head -n 3 | tr -d '\n')
	for h in $net.12 $net.13; do
		run "$h" "$join --apiserver-advertise-address $h $ignore" >"$work/join.log" 2>&1 || { tail -n 30 "$work/join.log" >&2; exit 1; }
	done
	stage join "$t"
	t=$(now)
	everything_ready
	stage ready "$t"
}

# Copies the files of the newer version to one host.
newer() {
	tar -C "$dist" -cf - bin/kubeadm bin/kubelet bin/kubectl images/kube-apiserver.tar images/kube-controller-manager.tar \
		images/kube-scheduler.tar images/kube-proxy.tar | run "$1" "mkdir -p /opt/newer && tar -C /opt/newer -xf - &&
		for i in /opt/newer/images/*.tar; do ctr -n k8s.io images import \$i >/dev/null; done"
}
kubectl() {
	run "$net.11" "kubectl --kubeconfig /etc/kubernetes/admin.conf $*"
}
# kubeadm refuses a CoreDNS that is newer than those whose settings it can migrate, so CoreDNS stays, as with hactl.
upgrade() {
	skip=--skip-phases=addon/coredns
	t=$(now); all newer; stage copy "$t"
	number=0
	for h in $hosts; do
		number=$((number + 1))
		t=$(now)
		how=node
		[ "$number" != 1 ] || how="apply $version --yes"
		run "$h" "install /opt/newer/bin/kubeadm /usr/local/bin/kubeadm && kubeadm upgrade $how $skip $ignore" >"$work/upgrade.log" 2>&1 ||
			{ tail -n 30 "$work/upgrade.log" >&2; exit 1; }
		stage "upgrade-cp$number" "$t"
		t=$(now)
		kubectl drain "cp$number" --ignore-daemonsets --timeout=120s >"$work/drain.log" 2>&1 || { cat "$work/drain.log" >&2; exit 1; }
		run "$h" "install /opt/newer/bin/kubelet /opt/newer/bin/kubectl /usr/local/bin && systemctl daemon-reload && systemctl restart kubelet"
		kubectl uncordon "cp$number" >/dev/null
		stage "kubelet-cp$number" "$t"
	done
	t=$(now); everything_ready; stage ready "$t"
}

case $verb in
up | upgrade) ;;
*) echo "kubeadm.sh up|upgrade LABDIR DIST NET" >&2; exit 2 ;;
esac
begun=$(now)
"$verb"
stage total "$begun"
