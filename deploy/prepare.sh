#!/bin/sh
# Makes what compose.yaml mounts: certs/NAME (one folder per container) and data/PARTY/table.parquet.
# usage: sh prepare.sh FOLDER_WITH_PARTY.parquet [OUT]      OUT: default is the folder of this script
# Run it again after `certs rotate` or `certs revoke` in OUT/ca: it copies what is new.
set -eu
tables=${1:?"the folder with bank.parquet, telco.parquet and shop.parquet"}
out=${2:-$(dirname "$0")}
fedboost=${FEDBOOST:-fedboost}
umask 077

"$fedboost" certs create --out "$out/ca" --coordinator coordinator \
    --party bank --party telco --party shop --user ana
for name in coordinator bank telco shop ana; do
    mkdir -p "$out/certs/$name"
    cp "$out/ca/ca.pem" "$out/ca/ca.crl" "$out/ca/$name.pem" "$out/ca/$name.key" "$out/certs/$name/"
done
for party in bank telco shop; do
    mkdir -p "$out/data/$party"
    cp "$tables/$party.parquet" "$out/data/$party/table.parquet"
done
echo "ready: $out/certs, $out/data; keep $out/ca away from the daemons"
