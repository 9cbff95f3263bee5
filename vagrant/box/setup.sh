#!/bin/sh
# Turns a lab host into a Vagrant machine; mmdebstrap runs it with the root file system as $1.
set -eu
root=$1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

chroot "$root" useradd --create-home --shell /bin/bash --uid 1001 vagrant
echo 'vagrant ALL=(ALL:ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/vagrant"
chmod 440 "$root/etc/sudoers.d/vagrant"
# The public insecure key: Vagrant replaces it with a new one at the first boot.
chroot "$root" install -d -m 700 -o vagrant -g vagrant /home/vagrant/.ssh
install -m 600 "$here/vagrant.pub" "$root/home/vagrant/.ssh/authorized_keys"
chroot "$root" chown vagrant:vagrant /home/vagrant/.ssh/authorized_keys

# Each machine creates its own host keys and machine id at its first boot.
install -D -m 644 "$here/ssh-keys.conf" "$root/etc/systemd/system/ssh.service.d/keys.conf"
: >"$root/etc/machine-id"

# LXC gives eth0 its address; Vagrant restarts this unit when it sets the machine's name.
install -D -m 644 "$here/ifup.service" "$root/etc/systemd/system/ifup@.service"
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n' >"$root/etc/hosts"
