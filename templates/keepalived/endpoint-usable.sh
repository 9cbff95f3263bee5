#!/bin/bash
# Written by hactl. Succeeds when the haproxy of this host has an API server to send clients to.
# bash speaks TCP by itself, so nothing needs to be installed for this. It is handed to bash rather than run, so that the
# check of a new keepalived.conf does not depend on this file being there first.
exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
printf 'GET /usable HTTP/1.0\r\n\r\n' >&3
read -r -t 1 _ code _ <&3
[ "$code" = 200 ]
