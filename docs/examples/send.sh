#!/bin/sh
# Send one signed message to the generic webhook with curl and openssl.
# KEYTURN_WEBHOOK__SECRETS is the same as for `run up`. Usage: sh send.sh [TEXT] [URL]
# TEXT stands in a JSON string: write quotes and backslashes as \" and \\.
set -eu
text=${1:-hello}
url=${2:-http://localhost:8080/webhooks/webhook}

secret=${KEYTURN_WEBHOOK__SECRETS%%,*}
key=$(printf %s "${secret#whsec_}" | base64 -d | od -An -v -tx1 | tr -d ' \n')
id="evt_$(openssl rand -hex 16)"
at=$(date +%s)
body="{\"chat\": {\"id\": \"c2\"}, \"user\": {\"id\": \"u1\"}, \"text\": \"$text\"}"
signature=$(printf %s "$id.$at.$body" | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | base64)
curl -sS --fail-with-body "$url" --data-binary "$body" -H 'content-type: application/json' \
     -H "webhook-id: $id" -H "webhook-timestamp: $at" -H "webhook-signature: v1,$signature"
echo
