#!/bin/sh
# Runs the tests: `run.sh cut` runs everything with a selection of lab scenarios, `run.sh all` everything; `run.sh
# first` and `run.sh second` are halves of that, the second with lab scenarios only. Ends with `N passed, N failed`.
set -eu

which=${1:-cut}
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$here"
logs=$here/target/test-logs
mkdir -p "$logs"

# The cut plays a part of the simulated cases.
[ "$which" = cut ] || export HACTL_ALL_CASES=yes

passed=0
failed=0
name=start
begun=$(date +%s)
child=
beside=

# A run that a signal ends says how far it came. It ends the suite with all that the suite started; Ctrl-C reaches only
# this script, because the suite has a session of its own.
ended() {
	[ -z "$child" ] || kill -s TERM -- "-$child" 2>/dev/null || kill "$child" 2>/dev/null || true
	[ -z "$beside" ] || { kill "$beside" 2>/dev/null && wait "$beside"; } || true
	printf '%-12s ENDED by a signal after %s s; the end of %s:\n' "$name" "$(($(date +%s) - begun))" "target/test-logs/$name.log"
	grep -E '^(ok|FAILED) |^test .* FAILED$' "$logs/$name.log" | tail -n 30 || true
	tail -n 10 "$logs/$name.log" || true
	exit "$1"
}
trap 'ended 143' TERM
trap 'ended 130' INT

# Adds up the counts of the test runners in a log.
count() {
	p=$(sed -n 's/^test result: .* \([0-9][0-9]*\) passed; .*/\1/p; s/^[a-z]*: \([0-9][0-9]*\) passed, .*/\1/p' "$1" | awk '{ n += $1 } END { print n + 0 }')
	f=$(sed -n 's/^test result: .* \([0-9][0-9]*\) failed; .*/\1/p; s/^[a-z]*: [0-9][0-9]* passed, \([0-9][0-9]*\) failed.*/\1/p' "$1" | awk '{ n += $1 } END { print n + 0 }')
	passed=$((passed + p))
	failed=$((failed + f))
}

# The failures and their messages, which may be far above the end of a log, after what their scenarios measured; the end
# of the log if nothing is named.
blame() {
	named=$(awk '
		function measured(  i) { for (i = lines > 60 ? lines - 60 : 0; i < lines; i++) print seen[i % 60]; lines = 0 }
		/^test .* FAILED$|^FAILED / { measured(); print; left = 0; next }
		/^ok  |^test .* ok$/ { left = 0; lines = 0 }
		/^        / && !left { seen[lines++ % 60] = substr($0, 1, 600); next }
		/^thread .*panicked at/ { measured(); left = 120 }
		/^error(\[|:)/ { left = 12 }
		left > 0 { print substr($0, 1, 4000); left-- }
	' "$1" | head -n 300)
	if [ -n "$named" ]; then
		printf '%s\n' "$named"
	else
		tail -n 60 "$1"
	fi
}

# Runs one suite with its output in a log; a suite that fails without counting a failure counts as one.
suite() {
	name=$1
	shift
	begun=$(date +%s)
	before=$failed
	status=0
	setsid "$@" >"$logs/$name.log" 2>&1 </dev/null &
	child=$!
	wait "$child" || status=$?
	child=
	count "$logs/$name.log"
	if [ "$status" -ne 0 ] && [ "$failed" -eq "$before" ]; then
		failed=$((failed + 1))
	fi
	if [ "$status" -eq 0 ]; then
		printf '%-12s passed in %s s\n' "$name" "$(($(date +%s) - begun))"
	else
		printf '%-12s FAILED after %s s; of %s:\n' "$name" "$(($(date +%s) - begun))" "target/test-logs/$name.log"
		blame "$logs/$name.log"
	fi
}

go_tests() {
	suite components sh -c 'cd components/image && go test ./... && echo "test result: ok. 1 passed; 0 failed;"'
}

# Suites without hosts, one after the other, in a process of its own that leaves what it counted in a file.
hostless() {
	trap 'ended 143' TERM
	passed=0
	failed=0
	suite units nice -n 19 cargo test --release --locked --no-fail-fast
	suite publishers nice -n 19 cargo test --release --locked --test publishers
	suite etcd nice -n 19 cargo test --release --locked --test etcd -- cut
	suite storage nice -n 19 cargo test --release --locked --test storage
	echo "$passed $failed" >"$logs/hostless"
}

case $which in
cut)
	go_tests
	# Hosts of these two labs mostly wait. The other suites compute, when no host wants the processors.
	rm -f "$logs/hostless"
	hostless &
	beside=$!
	suite alone cargo test --release --locked --test lab -- t-lone
	suite vagrant cargo test --release --locked --test vagrant -- cut
	wait "$beside" || true
	beside=
	read -r p f <"$logs/hostless" || { p=0 && f=1; }
	passed=$((passed + p))
	failed=$((failed + f))
	;;
second) ;;
*)
	go_tests
	suite units tests/coverage.sh
	grep '^coverage' "$logs/units.log" || true
	suite alerts sh -c "'$PROMTOOL' test rules tests/alerts*.yaml && echo 'test result: ok. 1 passed; 0 failed;'"
	suite publishers cargo test --release --locked --test publishers
	suite etcd cargo test --release --locked --test etcd -- "$which"
	suite storage cargo test --release --locked --test storage
	suite vagrant cargo test --release --locked --test vagrant -- "$which"
	;;
esac
suite lab cargo test --release --locked --test lab -- "$which"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
