#!/bin/sh
# Runs before the packages are installed; $1 is the root of the image.
# The Debian program starts a dozen processes for each certificate, and it would run twice.
# `finish-root.sh` does its work once, in one pass.
set -eu
mkdir -p "$1/usr/local/sbin"
printf '#!/bin/sh\nexit 0\n' >"$1/usr/local/sbin/update-ca-certificates"
chmod 755 "$1/usr/local/sbin/update-ca-certificates"
