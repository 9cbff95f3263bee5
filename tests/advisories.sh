#!/bin/sh
# Known faults of the crates that hactl is linked from, by RustSec's database, which is a git repository of its own. Where it cannot be
# fetched, that is said and is no failure; where it can, what it says is.
#   advisories.sh CARGO-DENY
set -eu

deny=$1
if said=$(timeout 120 "$deny" fetch db 2>&1); then
	exec "$deny" check --disable-fetch advisories
fi
echo "advisories not checked: RustSec's database cannot be fetched: $(printf '%s\n' "$said" | tail -n 1)"
