#!/bin/sh
# Runs as root of the image's user namespace after the packages are installed; $1 is the root of the image.
# Turns it into `root.ext4`. From the builder, by environment:
#   CAPSEM_OUT    folder for the results: root.ext4, busybox, status (the package list)
#   and those of make-disk.sh, which lies in CAPSEM_OUT
# The builder puts `stage.tar` (our own files) and then `stage.ready` into CAPSEM_OUT.
set -eu
root=$1
out=$CAPSEM_OUT
# Where we were started may be closed to the users of the namespace.
cd "$out"

# The same links, bundle and hashes that update-ca-certificates makes.
trust_certificates() {
  rm "$root/usr/local/sbin/update-ca-certificates"
  certs=$root/etc/ssl/certs
  mkdir -p "$certs"
  : >"$certs/ca-certificates.crt"
  for file in "$root"/usr/share/ca-certificates/mozilla/*.crt; do
    name=${file##*/}
    ln -sf "/usr/share/ca-certificates/mozilla/$name" "$certs/${name%.crt}.pem"
  done
  # awk ends every file with a line break, which a bundle needs.
  awk 1 "$root"/usr/share/ca-certificates/mozilla/*.crt >"$certs/ca-certificates.crt"
  chroot "$root" openssl rehash /etc/ssl/certs 2>/dev/null
}

# The builder makes it side by side with the packages. It stops us itself if it fails; at most 10 min.
await_stage() {
  tries=0
  while [ ! -e "$out/stage.ready" ]; do
    tries=$((tries + 1))
    [ "$tries" -le 6000 ] || exit 1
    sleep 0.1
  done
}

add_user() {
  echo 'user:x:1000:1000::/home/user:/bin/bash' >>"$root/etc/passwd"
  echo 'user:x:1000:' >>"$root/etc/group"
  echo 'user:!:20000:0:99999:7:::' >>"$root/etc/shadow"
  echo 'user:!::' >>"$root/etc/gshadow"
  rm -f "$root"/etc/passwd- "$root"/etc/group- "$root"/etc/shadow- "$root"/etc/gshadow-
  mkdir -p "$root/home/user" "$root/workspace" "$root/mnt/disk" "$root/mnt/root" "$root/opt/capsem"
  for file in .bashrc .profile .bash_logout; do
    [ ! -e "$root/etc/skel/$file" ] || cp "$root/etc/skel/$file" "$root/home/user/$file"
  done
  chmod 755 "$root/home/user" "$root/workspace"
  chmod 440 "$root/etc/sudoers.d/capsem"
  chown -R 1000:1000 "$root/home/user" "$root/workspace"
}

# Nothing of the host and nothing of the moment stays: apt's settings may hold proxies and mirrors, the copied
# files name the host, logs and caches differ between two builds of the same packages.
remove_traces() {
  rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old \
    "$root"/var/cache/ldconfig/* "$root"/var/lib/dpkg/*-old "$root"/var/tmp/* \
    "$root"/etc/apt/sources.list.d/* "$root"/etc/apt/trusted.gpg.d/*.capsem.asc \
    "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/etc/dpkg/dpkg.cfg.d/99mmdebstrap \
    "$root"/var/lib/systemd/* "$root"/root/.cache
  rm -rf "$root"/usr/share/man/* "$root"/usr/share/info/* "$root"/usr/share/lintian/* "$root"/usr/share/bug/*
  find "$root/usr/share/doc" ! -type d ! -name copyright -delete
  find "$root/usr/share/doc" -mindepth 1 -type d -empty -delete
  find "$root/usr/share/locale" -mindepth 1 -maxdepth 1 -exec rm -rf {} +
  find "$root/var/log" ! -type d -delete
  : >"$root/etc/machine-id"
  rm -f "$root/var/lib/dbus/machine-id"
}

# A bind mount that is not recursive shows the image without what is mounted in it. What the build itself still
# needs in some folders is covered, not removed: without its settings in /tmp, apt would act on the host.
make_disk() {
  mkdir "$out/bare" "$out/empty" "$out/empty-tmp"
  chmod 755 "$out/bare" "$out/empty"
  chmod 1777 "$out/empty-tmp"
  trap 'umount --recursive "$out/bare"' EXIT
  mount --bind "$root" "$out/bare"
  mount --bind "$out/empty-tmp" "$out/bare/tmp"
  for folder in dev proc run sys; do
    mount --bind "$out/empty" "$out/bare/$folder"
  done
  "$out/make-disk.sh" "$out/bare" "$out/root.ext4"
}

trust_certificates
remove_traces
await_stage
tar -C "$root" --no-overwrite-dir -xpf "$out/stage.tar"
add_user
cp "$root/usr/bin/busybox" "$out/busybox"
cp "$root/var/lib/dpkg/status" "$out/status"
make_disk
chmod 644 "$out/root.ext4" "$out/busybox" "$out/status"
