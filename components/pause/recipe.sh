#!/bin/sh
# The version is the interface of upstream's pause image that this one stands for.
set -eu
. ../lib.sh
mkdir -p "$out/bin"
gcc -Os -Wall -Wextra -Werror -static -s -o "$out/bin/pause" pause.c
binary pause 3.10.1 bench
