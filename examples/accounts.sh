#!/bin/sh
# The accounts of payments.csv and payments.jsonl that a new stack doesn't have (alice, bob and shop are there).
set -e
npx remit account create dana --currency USD
npx remit account create store --currency USD --kind merchant
npx remit account create kenji --currency JPY
npx remit account create ramen --currency JPY --kind merchant
npx remit account create layla --currency KWD
npx remit account create souk --currency KWD --kind merchant
