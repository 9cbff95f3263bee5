#!/bin/sh
# Adds what a container lacks compared with a real host; run before sysinit.
set -eu
mount --make-rshared /

# A kernel with everything built in has no directory of modules, and `modprobe overlay` would fail.
# List the modules that are known to be built in.
modules=/lib/modules/$(uname -r)
if [ ! -e "$modules" ]; then
    mkdir -p "$modules"
    touch "$modules/modules.order"
    {
        if grep -qw overlay /proc/filesystems; then echo kernel/fs/overlayfs/overlay.ko; fi
        if [ -e /proc/sys/net/bridge ]; then echo kernel/net/bridge/br_netfilter.ko; fi
        if [ -e /proc/sys/net/netfilter ]; then echo kernel/net/netfilter/nf_conntrack.ko; fi
        if nft list tables >/dev/null 2>&1; then echo kernel/net/netfilter/nf_tables.ko; fi
        for module in vxlan ip_set; do
            if [ -e "/sys/module/$module" ]; then echo "kernel/net/$module.ko"; fi
        done
    } >"$modules/modules.builtin"
    depmod "$(uname -r)"
fi

# On a machine with the unified hierarchy there is nothing more to do.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then exit 0; fi
mount -o remount,rw /sys/fs/cgroup
# systemd mounts cpu and cpuacct only when the kernel joins them.
for controller in cpu cpuacct; do
    directory=/sys/fs/cgroup/$controller
    if mountpoint -q "$directory"; then continue; fi
    if [ -L "$directory" ]; then rm "$directory"; fi
    mkdir -p "$directory"
    mount -t cgroup -o "$controller" cgroup "$directory"
done
