# shellcheck shell=sh disable=SC2015 # the command after || is meant for either failure
# Installs the agent of hactl on the host, and nothing else. It runs as root and is read from stdin, as is its input.
# The shell that reads it has printed `root` before, so that nothing is sent to a sudo that still asks for a password.
#   out: hello ARCHITECTURE
#   in:  DIGEST SIZE
#   out: have | send
#   in:  SIZE bytes, after "send"
#   out: done
# Any other word is a reason to stop: no-exec, no-space FREE NEEDED (KiB), refused WHAT. Each word is on its own line.
umask 022
LC_ALL=C
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH
base=/var/lib/hactl/bin
tmp=$base/.incoming.$$
say() { printf 'hactl-bootstrap %s\n' "$*"; }
stop() { say "$@"; exit 1; }
# The digest is the first of the two words.
# shellcheck disable=SC2046
sum() { set -- $(sha256sum "$1") && printf %s "$1"; }

[ "$(id -u)" = 0 ] || stop refused not running as root
mkdir -p "$base" || stop refused cannot make the directory "$base"
trap 'rm -f "$tmp"' EXIT
trap 'exit 1' HUP INT TERM PIPE
# Left over from connections that broke long ago.
find "$base" -maxdepth 1 -name '.incoming.*' -mmin +60 -exec rm -f {} +
say hello "$(uname -m)"

IFS=' ' read -r digest size || exit 1
case $digest in *[!0-9a-f]*) stop refused bad digest ;; esac
case $size in '' | *[!0-9]*) stop refused bad size ;; esac
[ "${#digest}" = 64 ] || stop refused bad digest
to=$base/$digest
# An installed agent is used without any write: the disk may be full, and the agent is needed to fix that.
if [ -x "$to/hactl" ] && [ "$(sum "$to/hactl")" = "$digest" ]; then
    "$to/hactl" --version >/dev/null 2>&1 || stop no-exec
    touch "$to"
    say have
    exit 0
fi
printf '#!/bin/sh\nexit 0\n' > "$tmp" && chmod 0755 "$tmp" || stop refused cannot write into "$base"
"$tmp" || stop no-exec
rm -f "$tmp"
free=$(df -Pk "$base" | awk 'NR == 2 { print $4 }')
need=$((size / 1024 + 1024))
[ "${free:-0}" -ge "$need" ] || stop no-space "${free:-0}" "$need"
say send
head -c "$size" > "$tmp" || stop refused cannot write into "$base"
[ "$(sum "$tmp")" = "$digest" ] || stop refused what arrived has another digest
chmod 0755 "$tmp" && chown 0:0 "$tmp" || stop refused cannot set mode and owner
sync "$tmp" 2>/dev/null || sync
mkdir -p "$to" && mv -f "$tmp" "$to/hactl" || stop refused cannot rename into "$to"
sync "$to" 2>/dev/null || sync
touch "$to"
# Keeps the newest two others, because an older hactl may be running or be used again, and those that a unit runs.
# Their names are hexadecimal; "done" is a word of the protocol.
# shellcheck disable=SC2010
ls -t "$base" | grep -x '[0-9a-f]\{64\}' | grep -vx "$digest" | tail -n +3 | while read -r old; do
    grep -qs "$old" /etc/systemd/system/*.service /etc/systemd/system/*.service.d/*.conf || rm -rf "${base:?}/$old"
done
say "done"
