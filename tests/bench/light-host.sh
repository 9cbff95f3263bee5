#!/bin/sh
# One light host, as the first process of name spaces of its own: a real sshd, its own addresses and its own writable places,
# on the machine's own programs. It lives for as long as standard input is open, so that nothing of it outlives a run.
# light-host.sh DIR NAME ADDRESS NUMBER CONFIG: says `ready` when its network cable may be put in, then waits for one line.
set -eu

dir=$1
name=$2
address=$3
number=$4
config=$5

# What the run gives all hosts: keys and configurations. Everything else that is written to stays in memory, and in here.
mount --bind "$dir" /mnt
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755,size=400m tmpfs /var/lib
mount -t tmpfs -o mode=700,size=200m tmpfs /root
mkdir -p /run/sshd /run/etc /run/work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work overlay /etc
hostname "$name"
# No two hosts are one machine.
printf '%032x\n' "$number" >/etc/machine-id
# A plain shell: what the machine's root starts at login is not the host's.
sed -i 's|^root:.*|root:x:0:0:root:/root:/bin/sh|' /etc/passwd
sed -i 's|^root:[^:]*:|root:*:|' /etc/shadow
ip link set lo up

echo ready
read -r _
ip addr add "$address/24" dev eth0
ip link set eth0 up
/usr/sbin/sshd -D -e -f "/mnt/$config" 2>/dev/null &
# Until the run closes its end, or is killed. Then this ends, and with the first process all others of the name space.
read -r _ || true
