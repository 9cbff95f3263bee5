#!/bin/sh
# Compiles hactl with counters of the lines that run. Cargo calls it for hactl's own code (RUSTC_WORKSPACE_WRAPPER), so
# that the dependencies need no second build.
set -eu

exec "$@" -C instrument-coverage
