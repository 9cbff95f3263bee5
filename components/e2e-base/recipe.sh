#!/bin/sh
# The layer under the images of the conformance tests: the tools that the tests call there, out of Debian's packages.
set -eu
. ../lib.sh
# shellcheck disable=SC2016 # the hook's own shell expands $1
mmdebstrap --quiet --variant=extract --skip=output/dev --include="$(grep -v '^#' packages | paste -sd, -)" \
	--extract-hook='sh ./trim.sh "$1"' bookworm "$out/base.tar"
