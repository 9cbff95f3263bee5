#!/bin/sh
# Builds every component from its pinned Go module: build.sh [OUT [KUBERNETES [e2e]]], for example build.sh dist 1.37
# OUT gets bin/, images/, packages/ and components.json. Results are cached by the digest of their inputs. With `e2e`, it
# builds the conformance suite of that version and the images of its tests instead.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
home=${XDG_CACHE_HOME:-$HOME/.cache}/hactl
out=${1:-$home/dist}
# The default goes with DEFAULT_KUBERNETES in src/inventory/defaults.rs.
minor=${2:-1.37}
kubernetes=kubernetes-$minor
e2e=
cache=$home/components
go_at_least=1.26.8

die() {
	printf '%s\n' "$@" >&2
	exit 1
}

[ -d "$here/$kubernetes" ] || die "components/$kubernetes does not exist; there are:" \
	"$(cd "$here" && printf '%s ' kubernetes-*)"
if [ -n "${3:-}" ]; then
	e2e=e2e-$minor
	[ "$3" = e2e ] || die "build.sh builds the components or, with e2e, the conformance suite, and no $3"
	[ -d "$here/$e2e" ] || die "components/$e2e does not exist; there are:" "$(cd "$here" && printf '%s ' e2e-[0-9]*)"
fi
command -v go >/dev/null || die "go is missing: install Go $go_at_least or later"

# The same environment on every machine, whatever the caller's settings are.
export LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH=1700000000 GOFLAGS='-mod=readonly -buildvcs=false' GOWORK=off GO111MODULE=on
unset GOEXPERIMENT GODEBUG GOAMD64 CGO_CFLAGS CGO_LDFLAGS
go_version=$(go env GOVERSION)
architecture=$(go env GOARCH)
oldest=$(printf '%s\n' "$go_at_least" "${go_version#go}" | sort -V | head -n 1)
[ "$oldest" = "$go_at_least" ] || die "$go_version is too old: install Go $go_at_least or later"
tools=$go_version/$architecture/$(gcc -dumpfullversion 2>/dev/null || echo none)

mkdir -p "$cache" "$out/bin" "$out/images"
cache=$(cd "$cache" && pwd)
out=$(cd "$out" && pwd)
work=$(mktemp -d "$cache/.work-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The build's requirements beside Go, checked by feature, so that this also works without dpkg.
static_c() {
	printf 'int main(void){return 0;}\n' >"$work/try.c"
	gcc -static -o "$work/try" "$work/try.c" 2>/dev/null
}
checked=
check_packages() {
	[ -z "$checked" ] || return 0
	checked=yes
	missing=
	command -v gcc >/dev/null || missing="$missing gcc"
	static_c || missing="$missing libc6-dev"
	command -v pkg-config >/dev/null || missing="$missing pkg-config"
	pkg-config --exists libseccomp 2>/dev/null || missing="$missing libseccomp-dev"
	command -v mmdebstrap >/dev/null || missing="$missing mmdebstrap"
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing="$missing debian-archive-keyring"
	[ -z "$missing" ] || die "these packages are missing:$missing" "  apt-get install -y --no-install-recommends$missing"
}

# key FOLDER [KEY...]: identifies the result of the folder's recipe; it changes with every file, tool and input.
key() {
	folder=$1
	shift
	{
		echo "$tools" "$@"
		cat "$here/lib.sh"
		find "$here/$folder" -type f | sort | while read -r file; do
			echo "== ${file#"$here/"}"
			cat "$file"
		done
	} | sha256sum | cut -c1-16
}

# deliver FOLDER STORED: links or copies files that are missing in OUT; a stamp records the build in OUT. Folders that
# differ by a version fill the same files, so they share a stamp.
deliver() {
	stamp=$out/.from/${1%%-[0-9]*}
	if [ "$(cat "$stamp" 2>/dev/null)" = "$2" ]; then
		complete=yes
		while read -r file; do
			[ -e "$out/$file" ] || complete=
		done <"$2/files"
		[ -z "$complete" ] || return 0
	fi
	mkdir -p "$out/.from"
	while read -r file; do
		mkdir -p "$(dirname "$out/$file")"
		ln -f "$2/$file" "$out/$file" 2>/dev/null || { rm -f "$out/$file" && cp -p "$2/$file" "$out/$file"; }
	done <"$2/files"
	echo "$2" >"$stamp"
}

# part FOLDER [INPUT...]: builds one folder, or takes it from the cache; $stored is the path of the result.
part() {
	folder=$1
	shift
	stored=$cache/$folder-$(key "$folder" "$@")
	if [ -d "$stored" ]; then
		printf '%-16s from cache\n' "$folder"
	else
		check_packages
		began=$(date +%s)
		mkdir "$work/$folder"
		log=$cache/$folder.log
		if ! (cd "$here/$folder" && out=$work/$folder nice -n 10 sh ./recipe.sh "$@") >"$log" 2>&1; then
			tail -n 20 "$log" >&2
			die "$folder failed; its complete output is in $log"
		fi
		mkdir -p "$work/$folder/bin" "$work/$folder/images" "$work/$folder/packages"
		(cd "$work/$folder" && touch rows && find bin images packages -type f | sort >files)
		[ -d "$stored" ] || mv "$work/$folder" "$stored"
		printf '%-16s built in %d s\n' "$folder" $(($(date +%s) - began))
	fi
	deliver "$folder" "$stored"
	cat "$stored/rows" >>"$work/rows"
}

if [ -n "$e2e" ]; then
	part image
	maker=$stored
	part e2e-base
	base=$stored
	part "$e2e"
	suite=$stored
	part sample-apiserver
	part e2e-images "$maker" "$base" "$suite" "$stored"
else
	part pause
	pause=$stored
	part base
	base=$stored
	part balancers
	part cni
	part cni-flannel
	cni_flannel=$stored
	part runc
	# A release that goes with another etcd names its folder.
	part "$(cat "$here/$kubernetes/etcd" 2>/dev/null || echo etcd)"
	etcd=$stored
	part containerd
	part flannel
	flannel=$stored
	part coredns
	coredns=$stored
	part "$kubernetes"
	kube=$stored
	part image
	maker=$stored
	part images "$maker" "$base" "$pause" "$etcd" "$coredns" "$flannel" "$cni_flannel" "$kube"
fi

awk -v architecture="$architecture" '
	BEGIN { printf "{\"schema\":1,\"components\":[" }
	{
		printf "%s\n  {\"name\":\"%s\",\"version\":\"%s\",\"kind\":\"%s\",\"path\":\"%s\"", \
			(NR > 1 ? "," : ""), $2, $3, $1, $5
		if ($6 != "-") printf ",\"reference\":\"%s\"", $6
		printf ",\"architecture\":\"%s\",\"use\":\"%s\"}", architecture, $4
	}
	END { print "\n]}" }
' "$work/rows" >"$work/components.json"
cmp -s "$work/components.json" "$out/components.json" || mv "$work/components.json" "$out/components.json"
