#!/bin/sh
# Makes the disks of a virtual machine from Debian packages: a host of `hactl lab` with a kernel of its own, swap and a
# fixed address. Usage: image.sh DIR NAME ADDRESS GATEWAY. DIR gets disk, swap, vmlinuz, initrd, the key of the user ops
# (id_ed25519) and known_hosts.
set -eu

dir=$1
name=$2
address=$3
gateway=$4
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
lab=$here/../../templates/lab
root=$dir/root
log=$dir/image.log

# In a mount namespace of its own: its mounts end with mmdebstrap, even if that is killed.
# shellcheck disable=SC2016 # the hook is expanded by the shell that mmdebstrap runs it in
if ! LAB=$lab unshare --mount --propagation=private mmdebstrap --mode=root --variant=minbase --skip=cleanup/apt \
	--aptopt='Acquire::Languages "none"' --customize-hook='sh "$LAB/setup.sh" "$1"' \
	--include="$(grep -v '^#' "$lab/packages" | paste -sd, -),e2fsprogs,linux-image-cloud-amd64" \
	bookworm "$root" >"$log" 2>&1 </dev/null; then
	tail -n 20 "$log" >&2
	echo "image.sh: the root file system could not be built; the end of mmdebstrap's output is above" >&2
	exit 1
fi

printf '%s\n' "$name" >"$root/etc/hostname"
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" >"$root/etc/hosts"
# Nothing answers there, at once: the machine needs no other name than its own.
printf 'nameserver %s\n' "$gateway" >"$root/etc/resolv.conf"
printf '/dev/vda / ext4 defaults 0 1\n/dev/vdb none swap sw 0 0\n' >"$root/etc/fstab"
# With an id, the first boot asks no questions on the console.
tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
printf '[Match]\nName=eth0\n\n[Network]\nAddress=%s/24\nGateway=%s\n' "$address" "$gateway" \
	>"$root/etc/systemd/network/eth0.network"
chroot "$root" systemctl --quiet enable systemd-networkd

ssh-keygen -q -t ed25519 -N '' -f "$dir/id_ed25519"
ssh-keygen -q -t ed25519 -N '' -C "root@$name" -f "$root/etc/ssh/ssh_host_ed25519_key"
{
	printf '%s ' "$address"
	cut -d' ' -f1,2 "$root/etc/ssh/ssh_host_ed25519_key.pub"
} >"$dir/known_hosts"
install -d -o 1000 -g 1000 -m 700 "$root/home/ops/.ssh"
install -o 1000 -g 1000 -m 600 "$dir/id_ed25519.pub" "$root/home/ops/.ssh/authorized_keys"

# qemu boots this kernel by itself: the disk needs no boot loader.
cp "$root"/boot/vmlinuz-* "$dir/vmlinuz"
cp "$root"/boot/initrd.img-* "$dir/initrd"
truncate -s 12G "$dir/disk"
mke2fs -q -F -t ext4 -d "$root" "$dir/disk"
truncate -s 256M "$dir/swap"
mkswap "$dir/swap" >>"$log" 2>&1
rm -rf --one-file-system "$root"
