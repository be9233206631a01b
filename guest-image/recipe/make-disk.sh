#!/bin/sh
# make-disk.sh TREE DISK: writes the folder TREE as a read-only ext4 without journal. The same names, contents,
# modes and owners give the same bytes. From the builder, by environment:
#   CAPSEM_EPOCH  seconds since 1970: the latest time that a file may have
#   CAPSEM_UUID, CAPSEM_HASH_SEED  identity of the file system
set -eu
tree=$1
disk=$2

# What the build itself made gets one time. Python compares the times of its sources with those noted in the
# compiled files: sources keep theirs.
settle_times() {
  find "$tree" -xdev -newermt "@$CAPSEM_EPOCH" ! -name '*.py' -exec touch -h -d "@$CAPSEM_EPOCH" {} +
}

# Content and 4 %, and 24 MiB that a small one needs. Nobody writes on it.
write_file_system() {
  files=$(find "$tree" -xdev | wc -l)
  used_kib=$(du -xsk "$tree" | cut -f1)
  size_kib=$(((used_kib * 104 / 100 + 24576) / 4096 * 4096))
  E2FSPROGS_FAKE_TIME=$CAPSEM_EPOCH mkfs.ext4 -q -F -d "$tree" -b 4096 -m 0 -N $((files + 512)) \
    -O '^has_journal,^resize_inode' -U "$CAPSEM_UUID" \
    -E "hash_seed=$CAPSEM_HASH_SEED,lazy_itable_init=0" "$disk" "${size_kib}k"
}

# mkfs takes change and access times from the tree: the only bytes that differ from build to build.
# Inodes are taken in a row, so the used ones are 2 and 11 to the last.
settle_inodes() {
  last=$(dumpe2fs -h "$disk" 2>/dev/null |
    awk -F: '/^Inode count/ { all = $2 } /^Free inodes/ { free = $2 } END { print all - free }')
  awk -v last="$last" -v at="@$CAPSEM_EPOCH" 'BEGIN {
    for (i = 2; i <= last; i = i == 2 ? 11 : i + 1) {
      print "set_inode_field <" i "> ctime " at
      print "set_inode_field <" i "> atime " at
    }
  }' >"$disk.commands"
  E2FSPROGS_FAKE_TIME=$CAPSEM_EPOCH debugfs -w -f "$disk.commands" "$disk" >/dev/null 2>&1
  rm "$disk.commands"
}

settle_times
write_file_system
settle_inodes
