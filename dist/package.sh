#!/usr/bin/env bash
# dist/package.sh BINARY FOLDER: packs a binary with its manual pages and completions as a tarball, a Debian package and a
# container's build folder, and writes their checksums. The same binary gives the same bytes: times are those of the commit.
set -euo pipefail

[ $# = 2 ] || { echo "usage: dist/package.sh BINARY FOLDER" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
[ -x "$1" ] || { echo "dist/package.sh: $1 is not a program; build it first (make dist)" >&2; exit 2; }
binary=$(readlink -f "$1")
mkdir -p "$2"
out=$(cd "$2" && pwd)

version=$("$binary" --version | awk '{print $2}')
machine=$(uname -m)
case $machine in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; *) debian=$machine ;; esac
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
name=pathlab-$version-linux-$machine
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What all packages have in common.
tree=$work/$name
mkdir -p "$tree"/{man,completions}
install -m 755 "$binary" "$tree/pathlab"
"$binary" man "$tree/man" >/dev/null
for shell in bash zsh fish; do "$binary" completions "$shell" >"$tree/completions/pathlab.$shell"; done
cp "$root"/{README.md,CHANGELOG.md,LICENSE-APACHE,LICENSE-MIT} "$tree"
cp -r "$root/plans" "$root/labs" "$tree"

pack() { # FILE.tar.gz FOLDER ENTRY...: the same input gives the same bytes
    local file=$1 folder=$2; shift 2
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$folder" -cf - "$@" | gzip -n >"$file"
}
pack "$out/$name.tar.gz" "$work" "$name"

# Debian package: no dependencies, for the binary is static; tcpdump compiles filters for it.
if command -v dpkg-deb >/dev/null; then
    deb=$work/deb
    install -D -m 755 "$binary" "$deb/usr/bin/pathlab"
    install -d "$deb"/usr/share/{man/man1,bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d,doc/pathlab} "$deb/DEBIAN"
    for page in "$tree"/man/*.1; do gzip -9nc "$page" >"$deb/usr/share/man/man1/$(basename "$page").gz"; done
    cp "$tree/completions/pathlab.bash" "$deb/usr/share/bash-completion/completions/pathlab"
    cp "$tree/completions/pathlab.zsh" "$deb/usr/share/zsh/vendor-completions/_pathlab"
    cp "$tree/completions/pathlab.fish" "$deb/usr/share/fish/vendor_completions.d/pathlab.fish"
    cp -r "$tree"/{README.md,plans,labs} "$deb/usr/share/doc/pathlab"
    cat "$root"/LICENSE-{APACHE,MIT} >"$deb/usr/share/doc/pathlab/copyright"
    cat >"$deb/DEBIAN/control" <<EOT
Package: pathlab
Version: $version
Architecture: $debian
Maintainer: The pathlab authors <pathlab@localhost>
Section: net
Priority: optional
Installed-Size: $(du -k -s "$deb/usr" | cut -f1)
Recommends: tcpdump
Suggests: ethtool, nftables, openvswitch-switch
Description: laboratory for network data paths
 Builds a path of network namespaces or takes a real one, drives it, shows
 where every frame went and why the path is slow. Also captures and sends
 frames and is an OpenFlow switch.
EOT
    chmod -R u=rwX,go=rX "$deb"
    dpkg-deb --root-owner-group -Zgzip -z6 --build "$deb" "$out/pathlab_${version}_$debian.deb" >/dev/null
else
    echo "dist/package.sh: no dpkg-deb here, so no Debian package" >&2
fi

# Container: the binary alone. docker build FOLDER, or podman build FOLDER.
mkdir -p "$out/container"
install -m 755 "$binary" "$out/container/pathlab"
cp "$root/dist/Containerfile" "$out/container/Containerfile"

(cd "$out" && sha256sum -- *.tar.gz *.deb container/pathlab 2>/dev/null >SHA256SUMS) || true
(cd "$out" && ls -l -- *.tar.gz *.deb container/pathlab 2>/dev/null | awk '{printf "%9.1f MB  %s\n", $5 / 1e6, $9}')
