#!/bin/sh
# One light host, as the first process of its own namespaces: a real sshd, its own addresses and writable places, with
# the machine's programs. It lives as long as standard input is open, so that nothing of it outlives a run.
# light-host.sh DIR NAME ADDRESS NUMBER CONFIG CGROUP: prints `ready` when its cable may be plugged in, and waits for a
# line.
set -eu

dir=$1
name=$2
address=$3
number=$4
config=$5
# Where the processor time of its processes is counted; it may be empty.
group=$6

[ -z "$group" ] || echo 0 >"$group/cgroup.procs"
# The run gives all hosts keys and configurations. Everything else that is written stays in memory, and in this host.
mount --bind "$dir" /mnt
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755,size=400m tmpfs /var/lib
mount -t tmpfs -o mode=700,size=200m tmpfs /root
mkdir -p /run/sshd /run/etc /run/work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work overlay /etc
hostname "$name"
# Each host has a machine ID of its own.
printf '%032x\n' "$number" >/etc/machine-id
# A plain shell instead of what the machine's root starts at login.
sed -i 's|^root:.*|root:x:0:0:root:/root:/bin/sh|' /etc/passwd
sed -i 's|^root:[^:]*:|root:*:|' /etc/shadow
ip link set lo up

echo ready
read -r _
ip addr add "$address/24" dev eth0
ip link set eth0 up
/usr/sbin/sshd -D -e -f "/mnt/$config" 2>/dev/null &
# Ends when the run closes its end or is killed; all other processes of the namespace end with this one.
read -r _ || true
