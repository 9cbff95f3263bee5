#!/bin/sh
# Builds a box for Vagrant's provider lxc from Debian packages: a host of `hactl lab` with Vagrant's requirements.
# Usage: build.sh [BOX]. HACTL_MIRROR names a mirror of Debian, with debian and debian-security below it.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
lab=$here/../../templates/lab
out=${1:-$here/hactl-lxc.box}

for command in mmdebstrap tar gzip; do
	if ! command -v "$command" >/dev/null; then
		echo "build.sh: this machine lacks $command: run \`apt-get install -y mmdebstrap tar gzip\`" >&2
		exit 1
	fi
done
if [ "$(id -u)" -ne 0 ]; then
	echo "build.sh: building a root file system needs root: run \`sudo $0\`" >&2
	exit 1
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/hactl-box.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
log=$work/log

set -- bookworm "$work/rootfs"
if [ -n "${HACTL_MIRROR:-}" ]; then
	set -- "$@" "deb $HACTL_MIRROR/debian bookworm main" "deb $HACTL_MIRROR/debian bookworm-updates main" \
		"deb $HACTL_MIRROR/debian-security bookworm-security main"
fi

echo "box: building its root file system (about a minute)"
# In a mount namespace of its own: its mounts end with mmdebstrap, even if that is killed.
# shellcheck disable=SC2016 # the hooks are expanded by the shells that mmdebstrap runs them in
if ! LAB=$lab BOX=$here unshare --mount --propagation=private mmdebstrap --mode=root --variant=minbase --skip=cleanup/apt \
	--aptopt='Acquire::Languages "none"' --include="$(grep -v '^#' "$lab/packages" | paste -sd, -)" \
	--customize-hook='sh "$LAB/setup.sh" "$1"' --customize-hook='sh "$BOX/setup.sh" "$1"' \
	"$@" >"$log" 2>&1 </dev/null; then
	tail -n 20 "$log" >&2
	echo "build.sh: the root file system could not be built; the end of mmdebstrap's output is above" >&2
	exit 1
fi

echo "box: packing it"
# With the fastest compression: the box stays on this machine.
# Two commands, no pipe: a pipe would hide a failure of the first command.
tar --numeric-owner --xattrs --xattrs-include='*' -C "$work" -cf "$work/rootfs.tar" ./rootfs
gzip -1 "$work/rootfs.tar"
printf '{"provider": "lxc", "version": "1.0.0"}\n' >"$work/metadata.json"
cp "$here/lxc-config" "$work/lxc-config"
tar -C "$work" -cf "$work/box" metadata.json lxc-config rootfs.tar.gz
mv "$work/box" "$out"
echo "box: $out"
echo "next: vagrant box add --force --name hactl/lab --provider lxc '$out'"
