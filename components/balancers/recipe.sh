#!/bin/sh
# The packages that hosts install, as one flat repository of apt for each release of Debian: haproxy, keepalived and
# nftables with all that they depend on, except for essential packages, which no host lacks.
set -eu
. ../lib.sh
cd "$out"
mkdir packages
# A suite, and the release as ID and VERSION_ID of its os-release name it. Hosts of another release get no packages.
for release in bookworm/debian-12 trixie/debian-13; do
	name=${release#*/}
	mmdebstrap --quiet --variant=extract --skip=output/dev --include=haproxy,keepalived,nftables \
		--extract-hook='copy-out /var/cache/apt/archives .' "${release%/*}" /dev/null
	mkdir repository
	for deb in archives/*.deb; do
		[ "$(dpkg-deb -f "$deb" Essential)" != yes ] || continue
		# Plain names: a version may have characters that apt escapes in a URL.
		file=$(dpkg-deb -f "$deb" Package).deb
		mv "$deb" "repository/$file"
		{
			dpkg-deb -f "repository/$file"
			printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$file" "$(wc -c <"repository/$file")" \
				"$(sha256sum "repository/$file" | cut -c1-64)"
		} >>repository/Packages
	done
	(cd repository && tar --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--mode=644 -cf "../packages/$name.tar" -- *)
	rm -r archives repository
	printf 'packages packages %s host packages/%s.tar -\n' "$name" "$name" >>"$out/rows"
done
