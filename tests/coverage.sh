#!/bin/sh
# Runs the tests that need no lab, and prints which part of the lines of `src` they run, by folder. Without the tools of
# the compiler and without rustup, which installs them, the tests run without that figure.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$here"
tools=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
if [ ! -x "$tools/llvm-cov" ] && ! rustup component add llvm-tools; then
	echo "coverage is not measured: the compiler's llvm-tools are missing"
	exec cargo test --release --locked --no-fail-fast
fi

counts=$here/target/coverage
rm -rf "$counts"
export RUSTC_WORKSPACE_WRAPPER="$here/tests/counted.sh" LLVM_PROFILE_FILE="$counts/%8m.profraw"
status=0
cargo test --release --locked --no-fail-fast || status=$?

"$tools/llvm-profdata" merge -sparse "$counts"/*.profraw -o "$counts/all"
set -- -object "$here/target/x86_64-unknown-linux-gnu/release/hactl"
for program in $(cargo test --release --locked --no-run 2>&1 | sed -n 's/.*Executable .*(\(.*\))/\1/p'); do
	set -- "$@" -object "$program"
done
# Files of tests do not count, and neither do dependencies.
"$tools/llvm-cov" report --instr-profile "$counts/all" "$@" \
	--ignore-filename-regex '/tests/|/tests\.rs|/\.cargo/|/rustc/|/rustlib/' >"$counts/report"
# Column 8 and 9 are lines and lines that no test runs.
awk '
		$8 !~ /^[0-9]+$/ || $9 !~ /^[0-9]+$/ { next }
		$1 == "TOTAL" { total = $8; missed = $9; next }
		{ split($1, path, "/"); lines[path[1]] += $8; left[path[1]] += $9 }
		END {
			for (folder in lines)
				printf "%-12s %5.1f %% of %5d lines\n", folder, 100 * (1 - left[folder] / lines[folder]), lines[folder] | "sort"
			close("sort")
			printf "coverage: without a lab, tests run %.1f %% of %d lines of src\n", 100 * (1 - missed / total), total
		}' "$counts/report"
exit "$status"
