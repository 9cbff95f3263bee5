#!/bin/sh
# The peer for copying: ansible-core from its package index, in a folder of its own that is kept by version.
# ansible.sh: makes it where it is missing and prints the path of its programs.
set -eu

version=2.19.14
to=${XDG_CACHE_HOME:-$HOME/.cache}/hactl/tools/ansible-core-$version
if [ ! -x "$to/bin/ansible-playbook" ]; then
	rm -rf "$to.new"
	log=$(mktemp)
	{ python3 -m venv "$to.new" && "$to.new/bin/python" -m pip install --quiet --disable-pip-version-check "ansible-core==$version"; } >"$log" 2>&1 ||
		{ tail -n 20 "$log" >&2; echo "ansible-core $version could not be installed" >&2; exit 1; }
	rm -f "$log"
	# Its programs name their interpreter by its full path: the first line is rewritten for its place.
	mkdir -p "$(dirname "$to")"
	rm -rf "$to"
	mv "$to.new" "$to"
	sed -i "1s|$to.new|$to|" "$to"/bin/ansible* "$to"/bin/pip*
fi
echo "$to/bin"
