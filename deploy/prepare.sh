#!/bin/sh
# Makes what compose.yaml mounts: certs/NAME (one folder per container), data/PARTY/table.parquet and
# a password for Grafana. usage: sh prepare.sh FOLDER_WITH_PARTY.parquet [OUT]
# OUT: default is the folder of this script.
# Run it again after `certs rotate`, `revoke` or `renew-ca` in OUT/ca: it copies what is new.
set -eu
tables=${1:?"the folder with bank.parquet, telco.parquet and shop.parquet"}
out=${2:-$(dirname "$0")}
fedboost=${FEDBOOST:-fedboost}
umask 077

# Daemons read files anew while they run: each appears whole, the key before its certificate.
put() {
    cp "$1" "$2.new"
    mv "$2.new" "$2"
}

"$fedboost" certs create --out "$out/ca" --coordinator coordinator \
    --party bank --party telco --party shop --user ana --relay relay --host 127.0.0.1
for name in coordinator bank telco shop ana relay; do
    mkdir -p "$out/certs/$name"
    for file in ca.pem ca.crl ca.retired "$name.key" "$name.pem"; do
        if [ -e "$out/ca/$file" ]; then put "$out/ca/$file" "$out/certs/$name/$file"; fi
    done
done
for party in bank telco shop; do
    mkdir -p "$out/data/$party"
    put "$tables/$party.parquet" "$out/data/$party/table.parquet"
done
mkdir -p "$out/certs/grafana"
if [ ! -e "$out/certs/grafana/password" ]; then
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n' > "$out/certs/grafana/password"
fi
echo "ready: $out/certs, $out/data; keep $out/ca away from the daemons"
