#!/bin/sh
# Connects the tap of a virtual machine to a bridge. qemu runs this once it has made the tap, which ends with qemu.
set -eu

ip link set dev "$1" master "$BRIDGE" up
