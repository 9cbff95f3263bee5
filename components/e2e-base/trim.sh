#!/bin/sh
# Runs on the extracted packages: drops what no test reads, and makes what their installation would have made, and the
# links of an image of busybox.
set -eu
gcc -Os -Wall -Wextra -Werror -static -s -o "$1/bin/sh" sh.c
cd "$1"
rm -rf etc/init.d lib/systemd lib/modules \
	usr/share/bash-completion usr/share/bug usr/share/info usr/share/initramfs-tools usr/share/lintian \
	usr/share/i18n usr/share/locale usr/share/man usr/share/perl5 usr/lib/x86_64-linux-gnu/gconv \
	usr/lib/aarch64-linux-gnu/gconv
find usr/share/doc -type f ! -name copyright -delete
find usr/share/doc -type l -delete
find usr/share/doc -depth -type d -empty -delete

ln -s bash-static bin/bash
ln -s nc.openbsd bin/nc
for tool in $(bin/busybox --list); do
	[ -e "bin/$tool" ] || ln -s busybox "bin/$tool"
done
# Without it, the C library asks DNS before it reads /etc/hosts.
echo 'hosts: files dns' >etc/nsswitch.conf
