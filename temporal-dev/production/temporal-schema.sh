#!/bin/sh
# Creates and updates the schema of Temporal's two databases. Run by the schema service of compose.yaml.
set -eu

for database in temporal:temporal temporal_visibility:visibility; do
  name=${database%%:*}
  schema=${database##*:}
  tool="temporal-sql-tool --plugin postgres12 --ep postgresql -p 5432 -u postgres --db $name"
  $tool create || true
  $tool setup-schema -v 0.0 || true
  $tool update-schema -d "/etc/temporal/schema/postgresql/v12/$schema/versioned"
done
