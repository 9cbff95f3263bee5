# shellcheck shell=sh
# Shared by the recipes. A recipe runs in its own folder and gets $out, the folder to fill.
: "${out:?is the folder to fill}"

# version MODULE: the version this folder's go.mod asks for, without the v.
version() {
	awk -v module="$1" '
		{ sub(/^require[ \t]+/, "") }
		$1 == module && $2 ~ /^v[0-9]/ { print substr($2, 2); found = 1; exit }
		END { if (!found) { print "go.mod does not require " module > "/dev/stderr"; exit 1 } }
	' go.mod
}

# compile LDFLAGS BUILD-ARGUMENTS...: one static binary, or several into a folder.
compile() {
	linking=$1
	shift
	go build -trimpath -ldflags "-s -w $linking" "$@"
}

# binary NAME VERSION USE [PATH]: a row of components.json. USE is host, or bench for what hosts do not get as a file.
binary() {
	printf 'binary %s %s %s %s -\n' "$1" "$2" "$3" "${4:-bin/$1}" >>"$out/rows"
}

# image NAME VERSION USE REFERENCE: the same for an image.
image() {
	printf 'image %s %s %s images/%s.tar %s\n' "$1" "$2" "$3" "$1" "$4" >>"$out/rows"
}
