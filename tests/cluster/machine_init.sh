#!/bin/bash
# The first process of a pretended machine: its own /tmp, /dev/shm, /proc and host name, then "$@".
# MACHINE_VISIBLE: folders of the real /tmp that it sees, MACHINE_HIDDEN: folders that it sees empty (colon-separated).
set -eu
hostname "$MACHINE_NAME"
mount --make-rprivate /
IFS=: read -ra visible <<< "${MACHINE_VISIBLE:-}"
for folder in "${visible[@]}"; do
    mkdir -p "$MACHINE_TMP/${folder#/tmp/}"
    mount --rbind "$folder" "$MACHINE_TMP/${folder#/tmp/}"
done
mount -t tmpfs -o size=1024m tmpfs /dev/shm
mount --rbind "$MACHINE_TMP" /tmp
IFS=: read -ra hidden <<< "${MACHINE_HIDDEN:-}"
for folder in "${hidden[@]}"; do
    mount -t tmpfs tmpfs "$folder"
done
printf '%b\n' "127.0.0.1 localhost\n${MACHINE_HOSTS:-}" > /tmp/.hosts
mount --bind /tmp/.hosts /etc/hosts
cd /
# A raylet has 30 s to register, which a busy machine may exceed; and it ends when its head is away.
until "$@"; do
    sleep 1
done
