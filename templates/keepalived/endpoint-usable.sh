#!/bin/bash
# Written by hactl. Succeeds when the haproxy of this host has an API server to send clients to.
# bash speaks TCP by itself, so nothing needs to be installed for this. It is handed to bash rather than run, so that the
# check of a new keepalived.conf does not depend on this file being there first.
exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
printf 'GET /usable HTTP/1.0\r\n\r\n' >&3
read -r -t 1 _ code _ <&3
held=/run/hactl/endpoint-held
settled=0 until=0
[ ! -r "$held" ] || read -r settled until <"$held"
printf -v now '%(%s)T' -1
if [ "$code" = 200 ]; then
	# An API server that serves again ends it; one of a moment ago, which haproxy has not missed yet, does not.
	[ "$now" -lt "$settled" ] || [ ! -e "$held" ] || rm -f "$held"
	exit 0
fi
# A recovery has stopped every API server there is, so nobody else has more to offer: the address stays, or comes, and answers as soon as the
# first of them does. Until then only; and haproxy must be there.
[ -n "$code" ] && [ "$now" -lt "$until" ]
