#!/bin/sh
# Makes the secrets of docker-compose.yml, once: what is there stays. Replace the certificate with your own.
#   sh deploy/secrets.sh [host name]
set -eu
umask 077
folder="$(dirname "$0")/secrets"
host="${1:-localhost}"
mkdir -p "$folder"
cd "$folder"
random() { test -s "$1" || openssl rand -hex 32 > "$1"; }
random secret
random postgres_password
random s3_access_key
random s3_secret_key
test -s database_url || printf 'postgresql+psycopg://potstill:%s@postgres:5432/potstill\n' "$(cat postgres_password)" > database_url
test -s s3_identities || cat > s3_identities <<JSON
{"identities": [{"name": "potstill",
  "credentials": [{"accessKey": "$(cat s3_access_key)", "secretKey": "$(cat s3_secret_key)"}],
  "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
JSON
test -s tls_key || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \
    -subj "/CN=$host" -addext "subjectAltName=DNS:$host,DNS:localhost,IP:127.0.0.1" \
    -keyout tls_key -out tls_certificate 2> /dev/null
echo "$(pwd) has the secrets; what was there before stayed, the certificate and its host name too"
chmod 644 ./* # containers run as other users; the folder itself is closed
