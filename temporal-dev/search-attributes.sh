#!/bin/sh
# Registers Horarium's search attributes. Run once for a namespace, by somebody who may; again does no harm.
# Uses Temporal's own environment: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, ...
set -eu

exec temporal operator search-attribute create \
  --name HorariumJob --type Keyword \
  --name HorariumTenant --type Keyword \
  --name HorariumTarget --type Keyword \
  --name HorariumState --type Keyword \
  --name HorariumNextFire --type Datetime \
  --name HorariumLastOutcome --type Keyword \
  --name HorariumMissed --type Int
