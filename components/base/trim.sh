#!/bin/sh
# Runs on the extracted packages: drops what no program here reads, makes the links their installation would have made.
set -eu
root=$1
cd "$root"
rm -rf etc/init.d lib/systemd \
	usr/share/bash-completion usr/share/bug usr/share/info usr/share/initramfs-tools usr/share/lintian \
	usr/share/locale usr/share/man usr/lib/x86_64-linux-gnu/gconv usr/lib/aarch64-linux-gnu/gconv
find usr/share/doc -type f ! -name copyright -delete
find usr/share/doc -type l -delete
find usr/share/doc -depth -type d -empty -delete

for family in iptables ip6tables; do
	for verb in '' -save -restore; do
		ln -sf xtables-nft-multi "usr/sbin/$family$verb"
	done
done
for tool in cat chmod cp env grep id ip ln ls mkdir mount mv ps rm sed sh sleep test true; do
	[ -e "bin/$tool" ] || ln -s busybox "bin/$tool"
done
