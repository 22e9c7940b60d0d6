"""The history of the schema, one file a version. ``schema.migrate`` applies it."""
