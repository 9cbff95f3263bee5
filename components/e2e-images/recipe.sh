#!/bin/sh
# The images of the conformance tests, one tar each, by the names that the suite itself lists. The arguments are the
# finished parts, in the order build.sh names them.
set -eu
. ../lib.sh
maker=$1/image base=$2/base.tar e2e=$3 sample=$4
mkdir -p "$out/images"
all=$("$e2e/bin/e2e.test" --list-images | sort -u)

# make_image NAME ARGUMENTS...: an image with every name that the suite has for it.
make_image() {
	name=$1
	shift
	references=$(printf '%s\n' "$all" | grep "^registry.k8s.io/e2e-test-images/$name:") || {
		echo "the suite lists no image $name" >&2
		exit 1
	}
	for reference in $references; do
		set -- -name "$reference" "$@"
	done
	"$maker" -out "$out/images/$name.tar" "$@"
	image "$name" "${reference##*:}" bench "$reference"
}

# The layer that several images share: agnhost, under both of its names, and the files that it reads.
files=$out/agnhost
mkdir -p "$files/uploads"
install -m 755 "$e2e/bin/agnhost" "$files/agnhost"
ln -s agnhost "$files/agnhost-2"
install -m 644 "$e2e/data/localhost.crt" "$e2e/data/localhost.key" "$files/"
agnhost=$out/agnhost.tar
tar --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf "$agnhost" \
	-C "$files" agnhost agnhost-2 localhost.crt localhost.key uploads

make_image agnhost -base "$base" -base "$agnhost" -entrypoint /agnhost -cmd pause
make_image busybox -base "$base" -cmd /bin/sh
make_image glibc-dns-testing -base "$base" -cmd /bin/sh
make_image nonroot -base "$base" -cmd /bin/sh -user 1234
# The tests start it and read nothing of it.
make_image nginx -base "$base" -base "$agnhost" -entrypoint /agnhost -cmd test-webserver
for name in kitten nautilus; do
	set -- -add "$e2e/data/$name/$name.jpg=/$name.jpg" -add "$e2e/data/$name/data.json=/data.json"
	# A test reads this file in an image volume.
	[ "$name" != kitten ] || set -- "$@" -add os-release=/etc/os-release
	make_image "$name" -base "$agnhost" "$@" -entrypoint /agnhost -cmd test-webserver
done
make_image nonewprivs -add "$e2e/bin/nnp=/usr/local/bin/nnp" -setuid /usr/local/bin/nnp -entrypoint /usr/local/bin/nnp
make_image sample-apiserver -add "$sample/bin/sample-apiserver=/sample-apiserver" -entrypoint /sample-apiserver
rm -r "$files" "$agnhost"
