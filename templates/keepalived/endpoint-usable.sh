#!/bin/bash
# Written by hactl. Succeeds when the haproxy of this host has a ready API server. bash can open TCP connections, so
# nothing has to be installed for this. It is an argument of bash rather than a command, so that the check of a new
# keepalived.conf does not require this file to exist first.
exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
printf 'GET /usable HTTP/1.0\r\n\r\n' >&3
read -r -t 1 _ code _ <&3
held=/run/hactl/endpoint-held
settled=0 until=0
[ ! -r "$held" ] || read -r settled until <"$held"
printf -v now '%(%s)T' -1
if [ "$code" = 200 ]; then
	# A ready API server ends the hold; one that just stopped, which haproxy has not detected yet, does not.
	[ "$now" -lt "$settled" ] || [ ! -e "$held" ] || rm -f "$held"
	exit 0
fi
# A recovery has stopped all API servers, so no other host is better: the VIP stays here or moves here, and is usable as
# soon as the first API server is ready. This holds only for the given time, and only while haproxy answers.
[ -n "$code" ] && [ "$now" -lt "$until" ]
