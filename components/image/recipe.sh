#!/bin/sh
set -eu
. ../lib.sh
CGO_ENABLED=0 go vet .
CGO_ENABLED=0 compile '' -o "$out/image" .
