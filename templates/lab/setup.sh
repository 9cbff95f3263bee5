#!/bin/sh
# Finishes the base of the lab's hosts; mmdebstrap runs it with the root file system as $1.
set -eu
root=$1
here=$(dirname "$0")

# The packages of the load balancer: downloaded, but not installed. The hosts stay bare, and install them offline.
chroot "$root" apt-get clean
chroot "$root" apt-get install --yes --download-only --no-install-recommends haproxy keepalived

chroot "$root" useradd --create-home --shell /bin/bash --uid 1000 ops
echo 'ops ALL=(ALL:ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/ops"
chmod 440 "$root/etc/sudoers.d/ops"

# Every host gets its own files of these.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf" "$root/var/lib/dbus/machine-id"

install -D -m 755 "$here/prepare.sh" "$root/usr/local/lib/hactl-lab/prepare"
install -D -m 644 "$here/prepare.service" "$root/etc/systemd/system/hactl-lab-prepare.service"
install -D -m 644 "$here/tmpfiles.conf" "$root/etc/tmpfiles.d/hactl-lab.conf"
install -D -m 644 "$here/journald.conf" "$root/etc/systemd/journald.conf.d/hactl-lab.conf"
install -D -m 644 "$here/sshd.conf" "$root/etc/ssh/sshd_config.d/hactl-lab.conf"
chroot "$root" systemctl enable hactl-lab-prepare.service

# Units that only cost time in a container, or affect the machine below it.
chroot "$root" systemctl mask console-getty.service getty.target e2scrub_reap.service apt-daily.timer \
    apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer sys-kernel-debug.mount \
    sys-kernel-tracing.mount dev-hugepages.mount
